"""Rules that drawn rows keep, and columns that are computed from others.

Rules are public, and are only applied to drawn rows. No private row is ever tested.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from skdpot.privacy.quotes import shown
from skdpot.tables import NUMERIC, Column, TableSchema, write_table

__all__ = ["Rules", "check_rules", "computed_values", "draw_rows", "frame_of", "read_rules"]

# A broken row is drawn anew 1, 4, 16, ... times in a round, within a number of rows at once. After
# so many rounds in a row that mend no row, there is an error.
_FACTOR, _AT_ONCE, _IDLE_ROUNDS = 4, 2**16, 10


@dataclass(frozen=True)
class Rules:
    """Expressions of pandas, or functions of a data frame.

    `conditions` give True for rows that are right, and `formulas` the values of computed columns,
    by name. Later formulas may use earlier ones.
    """

    conditions: tuple[Any, ...] = ()
    formulas: Mapping[Any, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.conditions or self.formulas)

    def complete(self, frame: Any) -> Any:
        """Return a data frame with the computed columns."""
        for name, formula in self.formulas.items():
            frame[name] = _evaluated(formula, frame)
        return frame

    def kept(self, frame: Any, schema: TableSchema) -> np.ndarray:
        """Tell which rows keep all rules, and have declared values in computed columns."""
        frame = self.complete(frame)
        kept = np.ones(len(frame), dtype=bool)
        for column in schema.computed:
            values, numeric = frame[column.name], column.kind == NUMERIC
            if column.unit is None:
                ends = column.low, column.high
                inside = values.between(*ends) if numeric else values.isin(column.values)
                inside |= values.isna() & column.missing
                kept &= inside.to_numpy(dtype=bool, na_value=False)
        for condition in self.conditions:
            values = type(frame)({"kept": _evaluated(condition, frame)})["kept"]
            if str(values.dtype) not in ("bool", "boolean"):
                raise ValueError(f"the rule {shown(condition)} must be true or false in each row.")
            kept &= values.astype("boolean").to_numpy(dtype=bool, na_value=False)
        return kept


def read_rules(rules: Any, computed: Any) -> Rules:
    """Return the rules of a table, or raise.

    Examples
    --------
    >>> from skdpot.generative._sketch.table_rows import read_rules
    >>> read_rules(["end >= start"], None).conditions
    ('end >= start',)
    """
    conditions, formulas = () if rules is None else rules, {} if computed is None else computed
    if not isinstance(conditions, list | tuple) or not all(map(_is_rule, conditions)):
        raise ValueError(f"rules must be a list of texts or functions, got {shown(rules)}.")
    if not isinstance(formulas, Mapping) or not all(map(_is_rule, formulas.values())):
        raise ValueError(
            f"computed must be a dictionary of texts or functions by column, got {shown(computed)}."
        )
    found = Rules(tuple(conditions), dict(formulas))
    if found and find_spec("pandas") is None:
        raise ImportError("rules and computed columns need pandas: install pandas.")
    return found


def check_rules(schema: TableSchema, rules: Rules) -> None:
    """Raise unless rules can be evaluated on rows of a declaration: public, as all of this is."""
    if rules:
        rng = np.random.RandomState(0)
        units = [rng.randint(0, column.n_units, 64, dtype=np.int64) for column in schema.columns]
        uniforms = rng.uniform(size=(64, len(units)))
        rules.kept(frame_of(schema, schema.plain_values(np.column_stack(units), uniforms)), schema)


def frame_of(schema: TableSchema, plain: Sequence[np.ndarray]) -> Any:
    """Return values of `TableSchema.plain_values` as a pandas data frame of all learned columns.

    Dates are dates there, also where samples have them as text.
    """
    columns = (c if c.unit is None else replace(c, dtype=None) for c in schema.columns)
    return write_table("pandas", TableSchema(tuple(columns)), schema.presented(plain))


def computed_values(column: Column, values: Any) -> np.ndarray:
    """Return a computed column of a data frame in the form of `Column.presented`."""
    if column.kind == NUMERIC and column.unit is None:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return column.presented(np.rint(numbers) if column.integer else numbers)
    if column.kind == NUMERIC:
        return values.to_numpy()
    return values.astype(object).where(values.notna(), None).to_numpy()


def draw_rows(
    draw: Callable[..., list[np.ndarray]],
    kept: Callable[[list[np.ndarray]], np.ndarray],
    rows: list[np.ndarray],
    labels: np.ndarray | None,
) -> list[np.ndarray]:
    """Return rows that keep all rules: those that break one are drawn again, or raise.

    `rows` are arrays with an entry for each row, which `draw` makes, given a number of rows and
    their labels. `kept` tells which rows keep all rules.
    """
    broken, n_tried, n_idle = np.flatnonzero(~kept(rows)), 0, 0
    while len(broken):
        if n_idle == _IDLE_ROUNDS:
            raise ValueError(
                "no further row was found that keeps all rules: use fewer or wider rules, fewer "
                "conditions of given, or computed={...}."
            )
        places = np.repeat(broken, min(_FACTOR**n_tried, max(1, _AT_ONCE // len(broken))))
        new = draw(len(places), None if labels is None else labels[places])
        right = np.flatnonzero(kept(new))
        mended, positions = np.unique(places[right], return_index=True)
        for column, new_column in zip(rows, new, strict=True):
            column[mended] = new_column[right[positions]]
        broken = np.setdiff1d(broken, mended)
        n_tried, n_idle = n_tried + 1, 0 if len(mended) else n_idle + 1
    return rows


def _evaluated(rule: Any, frame: Any) -> Any:
    """Return the value of an expression or a function for each row of a frame, or raise."""
    try:
        if callable(rule):
            values = rule(frame.copy())
        else:
            values = frame.eval(rule, engine="python", local_dict={}, global_dict={})
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        if np.shape(values) == (len(frame),):
            return values
        problem = "it must have one value for each row"
    raise ValueError(f"the rule {shown(rule)} cannot be evaluated on drawn rows: {problem}.")


def _is_rule(rule: Any) -> bool:
    return isinstance(rule, str) or callable(rule)
