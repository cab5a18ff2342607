"""Rows that a model of a table generates and that keep declared rules.

Rows that break a rule are drawn again. A row that still breaks one gets the values of the nearest
row that keeps all rules: one that was drawn, or a possible one. All of this uses declarations and
released statistics only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skdpot._base import warn_user
from skdpot.generative._sketch.table_draws import sample_units
from skdpot.tables import NUMERIC, Column, Rules, TableSchema

__all__ = ["TableRows", "WantedRows", "check_rules", "draw_rows", "nearest_rows"]

# A row is drawn anew up to 1 + 4 + ... + 256 times.
_ROUNDS, _FACTOR = 5, 4
# The number of rows that are drawn at a time, unless more are wanted.
_AT_ONCE = 2**16
# The largest number of rows whose values are given to rows that break rules.
_DONORS = 2048
# Possible rows are drawn this many at a time, this often at most, until so many keep the rules.
_TRIED, _SEARCHES, _ENOUGH = 4096, 16, 1024
# The share of possible values at ends of ranges: many rules hold there only.
_AT_ENDS = 0.3


@dataclass(eq=False)
class TableRows:
    """Rows of a table.

    Attributes
    ----------
    units : ndarray of shape (n, n_columns)
        Of `TableSchema.encode`.
    plain : dict of str to ndarray
        Values by the name of the column, as rules reckon with them; with computed columns.
    """

    units: np.ndarray
    plain: dict[Any, np.ndarray]

    def select(self, rows: np.ndarray) -> "TableRows":
        """Return some of the rows."""
        return TableRows(
            self.units[rows], {name: column[rows] for name, column in self.plain.items()}
        )

    def overwrite(self, rows: Any, others: "TableRows", schema: TableSchema, names: Any) -> None:
        """Replace the values of some rows in columns of these names by those of other rows."""
        for name in names:
            self.plain[name][rows] = others.plain[name]
            if name in schema.names:
                j = schema.names.index(name)
                self.units[rows, j] = others.units[:, j]


def draw_rows(
    model: Mapping[str, np.ndarray],
    wanted: "WantedRows",
    n_samples: int,
    rng: np.random.RandomState,
    labels: np.ndarray | None = None,
    *,
    evenly: bool = False,
) -> TableRows:
    """Return rows that a model generates, which keep rules and conditions.

    Parameters
    ----------
    model : mapping of str to ndarray
        Of `fit_table`.
    wanted : WantedRows
        The rules and conditions.
    n_samples : int
        How many.
    rng : RandomState
        Source of randomness.
    labels : ndarray of shape (n_samples,), default=None
        The class of each row.
    evenly : bool, default=False
        As of `sample_units`, but for rows that break rules, which are drawn again.

    Returns
    -------
    TableRows
        The rows.

    Raises
    ------
    ValueError
        If no row was found that keeps all rules and conditions.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_rules, read_schema
    >>> from skdpot.generative._sketch.table_rows import WantedRows, draw_rows
    >>> model = {
    ...     "n_cells": np.array([2, 2]), "starts": np.array([0, 1, 0, 1]),
    ...     "stops": np.array([1, 2, 1, 2]), "weights": np.array([1.0]),
    ...     "classes": np.array([0]), "cells": np.array([[0.5, 0.5, 0.5, 0.5]]),
    ... }
    >>> schema = read_schema({"start": range(2), "end": range(2)})
    >>> wanted = WantedRows(schema, read_rules(["end > start"], schema), {})
    >>> draw_rows(model, wanted, 2, np.random.RandomState(0)).units
    array([[0, 1],
           [0, 1]])
    """
    draw = partial(sample_units, model, wanted.schema, rng=rng, given=wanted.conditions)
    rows = wanted.rows(draw(n_samples, labels=labels, evenly=evenly), rng)
    if not wanted.rules:
        return rows
    # Raises where no row can keep all rules and conditions.
    wanted.possible_rows()
    broken = np.flatnonzero(~wanted.kept(rows))
    for n_tried in range(_ROUNDS):
        if not len(broken):
            return rows
        repeats = min(_FACTOR**n_tried, max(1, _AT_ONCE // len(broken)))
        broken = _redrawn(rows, broken, repeats, wanted, draw, labels, rng)
    if len(broken):
        _mend(rows, broken, wanted, draw, labels, rng)
    return rows


def check_rules(schema: TableSchema, rules: Rules) -> None:
    """Raise if a search finds no row within the declaration that satisfies all rules.

    Warn where rules that relate columns exclude a declared label.

    Parameters
    ----------
    schema : TableSchema
        Of the columns that are learned.
    rules : Rules
        Public, as all of this is.

    Examples
    --------
    >>> from skdpot.generative._sketch.table_rows import check_rules
    >>> from skdpot.tables import read_rules, read_schema
    >>> schema = read_schema({"a": range(9), "b": range(9)})
    >>> check_rules(schema, read_rules(["a < b"], schema))
    """
    if not rules:
        return
    WantedRows(schema, rules, {}).possible_rows()
    # A rule on one column alone is meant to exclude values.
    relating = [
        (text, condition)
        for text, condition in rules.conditions
        if len({column.name for column in condition.columns}) > 1
    ]
    excluded = Rules(conditions=tuple(relating)).excluded_labels(schema.columns)
    if excluded:
        warn_user(
            f"the rules exclude declared labels, which no synthetic row will have: {excluded}. If "
            "you did not mean that, look for a wrong number or label in the rules."
        )


class WantedRows:
    """Rules and conditions on rows of a table.

    Parameters
    ----------
    schema : TableSchema
        Of the columns that are learned.
    rules : Rules
        Of these and of computed columns.
    given : mapping
        Conditions by the name of the column, as of `TableSchema.intervals`; of computed ones, too.
    apart : bool, default=False
        Whether the target, which is the last column then, goes beside tables.

    Raises
    ------
    ValueError
        If a condition is none.
    """

    def __init__(
        self, schema: TableSchema, rules: Rules, given: Mapping[Any, Any], apart: bool = False
    ) -> None:
        self.schema, self.rules, self._apart = schema, rules, apart
        computed = {formula.column.name: formula.column for formula in rules.formulas}
        self._learned = {
            name: condition for name, condition in given.items() if name not in computed
        }
        self._computed = {
            computed[name]: condition for name, condition in given.items() if name in computed
        }
        # Raises if a condition is on values that are not declared.
        self._intervals = {
            name: schema.intervals(name, condition) for name, condition in self._learned.items()
        }
        for column, condition in self._computed.items():
            column.intervals(condition)
        # Values are drawn within the bounds that rules leave.
        self._boxes = self._narrowed() if rules else {}
        self.conditions = self._learned | self._rule_conditions()

    def rows(self, units: np.ndarray, rng: Any) -> TableRows:
        """Return rows of units, with random values within each unit."""
        uniforms = np.zeros(units.shape)
        n_drawn = units.shape[1] - self._apart
        uniforms[:, :n_drawn] = rng.uniform(size=(len(units), n_drawn))
        plain = self.schema.plain_values(units, uniforms, self.conditions)
        named = dict(zip(self.schema.names, plain, strict=True))
        return TableRows(units, self.rules.complete(named))

    def kept(self, rows: TableRows, part: Rules | None = None) -> np.ndarray:
        """Tell which rows keep all rules, or a part, and conditions on columns these compute."""
        rules = self.rules if part is None else part
        kept = rules.kept(rows.plain)
        for column, condition in self._computed.items():
            if column.name in rules.computed:
                kept &= _meets(column, rows.plain[column.name], condition)
        return kept

    def possible_rows(self, label: int | None = None) -> TableRows:
        """Return declared rows that keep the rules and conditions, or raise.

        With `label` they are of this class of the target.
        """
        intervals = self._possible_units()
        if label is not None and self.schema.target is not None:
            intervals[self.schema.target] = [(label, label + 1)]
        # The same rows each time; nothing private is used.
        rng = check_random_state(0)
        parts, n_kept = [], 0
        for _ in range(_SEARCHES):
            units = np.column_stack(
                [_units_in(column_intervals, rng) for column_intervals in intervals]
            )
            rows = self.rows(units, rng)
            kept = np.flatnonzero(self.kept(rows))
            parts.append(rows.select(kept))
            n_kept += len(kept)
            if n_kept >= _ENOUGH:
                break
        if not n_kept:
            given = [*self._learned, *(column.name for column in self._computed)]
            conditions = f" and the conditions of given on {given}" if given else ""
            raise ValueError(
                f"no row was found that satisfies all rules, {list(self.rules.texts)}{conditions}, "
                "within the declarations. Wider bounds, fewer rules or fewer conditions may help. "
                "Write an equation with the computed column alone on its left."
            )
        return TableRows(
            np.concatenate([rows.units for rows in parts]),
            {name: np.concatenate([rows.plain[name] for rows in parts]) for name in parts[0].plain},
        )

    def _possible_units(self) -> list[list[tuple[int, int]]]:
        """Return the intervals of units that rules allow in each column."""
        boxes, possible = self._boxes, []
        for column in self.schema.columns:
            allowed = self._intervals.get(column.name, [(0, column.n_units)])
            box = column.units_within(boxes[column.name]) if column.name in boxes else allowed
            overlap = [
                (max(a, c), min(b, d)) for a, b in allowed for c, d in box if max(a, c) < min(b, d)
            ]
            possible.append(overlap or allowed)
        return possible

    def _narrowed(self) -> dict[Any, Any]:
        """Return the bounds that rules and conditions leave to columns, or raise."""
        columns = dict(zip(self.schema.names, self.schema.columns, strict=True))
        pairs = [(columns[name], condition) for name, condition in self._learned.items()]
        boxes = {
            column.name: _range_of(column, condition)
            for column, condition in [*pairs, *self._computed.items()]
            if isinstance(condition, tuple) and column.kind == NUMERIC
        }
        return self.rules.narrowed(boxes)

    def _rule_conditions(self) -> dict[Any, Any]:
        """Return conditions that follow from rules, on columns without a condition."""
        conditions: dict[Any, Any] = {}
        for j in self.schema.features:
            column = self.schema.columns[j]
            box = self._boxes.get(column.name)
            # A column with missing values is not narrowed.
            if box is None or column.missing or column.name in self._learned:
                continue
            if column.kind == NUMERIC:
                conditions[column.name] = tuple(map(column.shown, box))
            else:
                conditions[column.name] = [column.values[u] for u, _ in column.units_within(box)]
        return conditions


def _redrawn(
    rows: TableRows, broken: np.ndarray, repeats: int, wanted: WantedRows,
    draw: Callable[..., np.ndarray], labels: np.ndarray | None, rng: Any,
) -> np.ndarray:  # fmt: skip
    """Replace each broken row by the first of some new ones that keeps the rules.

    Returns the rows that are still broken.
    """
    places = np.repeat(broken, repeats)
    new_labels = None if labels is None else labels[places]
    new = wanted.rows(draw(len(places), labels=new_labels), rng)
    kept = np.flatnonzero(wanted.kept(new))
    mended, positions = np.unique(places[kept], return_index=True)
    new, names = new.select(kept[positions]), list(rows.plain)
    rows.overwrite(mended, new, wanted.schema, names)
    return np.setdiff1d(broken, mended)


def _mend(
    rows: TableRows, broken: np.ndarray, wanted: WantedRows, draw: Callable[..., np.ndarray],
    labels: np.ndarray | None, rng: Any,
) -> None:  # fmt: skip
    """Give broken rows the values of the nearest row that keeps rules, in the columns of these.

    Rules without a column in common, directly or through others, are mended separately.
    """
    for label in (None,) if labels is None else np.unique(labels[broken]).tolist():
        places = broken if label is None or labels is None else broken[labels[broken] == label]
        new_labels = None if label is None else np.full(_AT_ONCE // 4, label)
        others = wanted.rows(draw(_AT_ONCE // 4, labels=new_labels), rng)
        for part in wanted.rules.parts:
            # Possible rows are used last, since drawn rows are more like the table.
            keeping = np.flatnonzero(wanted.kept(others, part))[:_DONORS]
            donors = others.select(keeping) if len(keeping) else wanted.possible_rows(label)
            remaining = places[~wanted.kept(rows.select(places), part)]
            # In blocks, since distances to all donors are in memory.
            for some in np.array_split(remaining, len(remaining) // _DONORS + 1):
                nearest = nearest_rows(rows.units[some], donors.units, wanted.schema, part.columns)
                names = [column.name for column in part.columns]
                rows.overwrite(some, donors.select(nearest), wanted.schema, names)


def nearest_rows(
    units: np.ndarray, others: np.ndarray, schema: TableSchema, columns: Sequence[Column]
) -> np.ndarray:
    """Return the row of others that differs least from each row in these columns."""
    distances = np.zeros((len(units), len(others)))
    for column in columns:
        if column.name not in schema.names:
            continue
        j = schema.names.index(column.name)
        values, other_values = units[:, j], others[:, j]
        if column.kind == "nominal":
            distances += values[:, None] != other_values
        else:
            places = map(column.places_of_units, (values, other_values))
            distances += np.abs(np.subtract.outer(*places))
    return distances.argmin(axis=1)


def _meets(column: Column, plain: np.ndarray, condition: Any) -> np.ndarray:
    """Tell which values of a computed column a condition asks for."""
    if column.kind == NUMERIC:
        if isinstance(condition, tuple):
            low, high = column.range_of(condition)
            return (plain >= low) & (plain <= high)
        values = condition if isinstance(condition, list | np.ndarray) else [condition]
        numbers = [np.nan if value is None else column.number_of(value) for value in values]
        missing = np.isnan(plain) & any(value is None for value in values)
        return np.isin(plain, np.array(numbers, dtype=np.float64)) | missing
    is_in = [(plain >= first) & (plain < last) for first, last in column.intervals(condition)]
    return np.logical_or.reduce(is_in)


def _range_of(column: Column, condition: tuple) -> tuple[float, float]:
    low, high = column.range_of(condition)
    return max(low, float(column.low)), min(high, float(column.high))


def _units_in(intervals: list[tuple[int, int]], rng: Any) -> np.ndarray:
    """Return units of intervals: some of them ends, all others evenly."""
    starts, stops = np.array(intervals, dtype=np.int64).T
    sizes = stops - starts
    piece = rng.choice(len(sizes), _TRIED, p=np.where(sizes > 0, sizes, 0) / sizes.sum())
    ends = rng.uniform(size=_TRIED)
    units = starts[piece] + np.floor(rng.uniform(size=_TRIED) * sizes[piece]).astype(np.int64)
    units = np.where(ends < _AT_ENDS / 2, starts.min(), units)
    return np.where((ends >= _AT_ENDS / 2) & (ends < _AT_ENDS), stops.max() - 1, units)
