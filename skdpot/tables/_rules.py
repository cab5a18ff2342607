"""The rules of a table: the columns they compute, the rows they keep, and the bounds they imply."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.tables._column import NUMERIC, Column
from skdpot.tables._rule_terms import (
    Boxes,
    Comparison,
    Condition,
    EmptyBoxError,
    Joined,
    Reference,
    SameLabel,
    Term,
    box_of,
)
from skdpot.tables._rule_text import read_rule
from skdpot.tables._schema import TableSchema

# More passes hardly narrow the bounds.
_MOST_PASSES = 20


@dataclass(frozen=True)
class Formula:
    """A computed column: by a term, or as the labels of another column."""

    column: Column
    source: Term | SameLabel

    @property
    def needs(self) -> set[Any]:
        """Return the names of the columns that it is computed from."""
        if isinstance(self.source, SameLabel):
            return {self.source.right.name}
        return {column.name for column in self.source.columns}

    def values(self, rows: Mapping[Any, np.ndarray]) -> np.ndarray:
        """Return the values, which may violate the declaration."""
        if isinstance(self.source, SameLabel):
            return self.source.to_left[rows[self.source.right.name]]
        return np.asarray(self.source.values(rows), dtype=np.float64)

    def kept(self, values: np.ndarray) -> np.ndarray:
        """Tell which values satisfy the column's declaration."""
        if self.column.kind != NUMERIC:
            return values >= 0
        is_inside = (values >= self.column.low) & (values <= self.column.high)
        return is_inside | np.isnan(values)


@dataclass(frozen=True)
class Rules:
    """Rules that hold in every row of a table.

    Attributes
    ----------
    texts : tuple of str
        The declared texts.
    formulas : tuple of Formula
        The formulas of computed columns, each of which uses earlier results only.
    conditions : tuple of (str, Condition)
        All rules with their texts.
    """

    texts: tuple[str, ...] = ()
    formulas: tuple[Formula, ...] = ()
    conditions: tuple[tuple[str, Condition], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.texts)

    @property
    def computed(self) -> list[Any]:
        """Return the names of the computed columns."""
        return [formula.column.name for formula in self.formulas]

    @property
    def columns(self) -> list[Column]:
        """Return the columns in rules, each once."""
        columns_by_name = {}
        for _, condition in self.conditions:
            columns_by_name.update({column.name: column for column in condition.columns})
        return list(columns_by_name.values())

    @property
    def parts(self) -> "list[Rules]":
        """Return these rules in parts that have no column in common."""
        groups: list[tuple[set[Any], list[tuple[str, Condition]]]] = []
        for text, condition in self.conditions:
            names, joined = {column.name for column in condition.columns}, [(text, condition)]
            separate = [group for group in groups if not group[0] & names]
            for group_names, rules in (group for group in groups if group[0] & names):
                names |= group_names
                joined = [*rules, *joined]
            groups = [*separate, (names, joined)]
        return [
            Rules(
                tuple(text for text, _ in rules),
                tuple(formula for formula in self.formulas if formula.column.name in names),
                tuple(rules),
            )
            for names, rules in groups
        ]

    def complete(self, rows: Mapping[Any, np.ndarray]) -> dict[Any, np.ndarray]:
        """Return plain values by column name, including computed ones."""
        rows = dict(rows)
        for formula in self.formulas:
            rows[formula.column.name] = formula.values(rows)
        return rows

    def kept(self, rows: Mapping[Any, np.ndarray]) -> np.ndarray:
        """Tell which rows of `complete` satisfy all rules."""
        kept = np.ones(len(next(iter(rows.values()))), dtype=bool)
        for formula in self.formulas:
            kept &= formula.kept(rows[formula.column.name])
        for _, condition in self.conditions:
            kept &= ~condition.truth(rows)[1]
        return kept

    def presented(self, rows: Mapping[Any, np.ndarray]) -> dict[Any, np.ndarray]:
        """Return computed columns of `complete` in the user's terms."""
        columns = [formula.column for formula in self.formulas]
        return {column.name: column.presented(rows[column.name]) for column in columns}

    def narrowed(self, boxes: Boxes) -> Boxes:
        """Return the bounds that remain, by column name; raise if nothing remains."""
        boxes = {column.name: box_of(column) for column in self.columns} | boxes
        for _ in range(_MOST_PASSES):
            before = dict(boxes)
            for text, condition in self.conditions:
                try:
                    condition.narrow(boxes)
                    impossible = condition.must_be(boxes, False)
                except EmptyBoxError:
                    impossible = True
                if impossible:
                    raise ValueError(
                        f"the rule {text!r} contradicts other declarations or conditions: bounds, "
                        "categories, other rules, or given."
                    )
            if boxes == before:
                break
        return boxes

    def excluded_labels(self, columns: Iterable[Column]) -> dict[Any, list[Any]]:
        """Return the labels of columns that are outside the bounds which rules leave, by name."""
        excluded: dict[Any, list[Any]] = {}
        boxes = self.narrowed({})
        for column in columns:
            if column.kind != NUMERIC and column.name in boxes:
                left = {unit for unit, _ in column.units_within(boxes[column.name])}
                labels = [label for u, label in enumerate(column.values) if u not in left]
                excluded |= {column.name: labels} if labels else {}
        return excluded


def read_rules(texts: Any, schema: TableSchema) -> Rules:
    """Return the rules of a table, or raise.

    The texts are public, and the schema has no computed columns.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_rules, read_schema
    >>> schema = read_schema({"food": (0, 9), "rent": (0, 9), "total": (0, 18)})
    >>> rules = read_rules(["total == food + rent", "rent >= food"], schema)
    >>> rules.computed
    ['total']
    >>> rows = rules.complete({"food": np.array([1.0, 5.0]), "rent": np.array([2.0, 3.0])})
    >>> rows["total"], rules.kept(rows)
    (array([3., 8.]), array([ True, False]))
    """
    if texts is None:
        return Rules()
    if isinstance(texts, str) or not isinstance(texts, list | tuple):
        raise ValueError(f"rules must be a list of texts, got {type(texts).__name__}.")
    columns = {column.name: column for column in schema.columns}
    conditions = [(text, read_rule(text, columns)) for text in texts]
    target = None if schema.target is None else schema.names[schema.target]
    formulas: dict[Any, Formula] = {}
    for text, condition in conditions:
        formula = _formula(condition)
        if formula is None or formula.column.name == target:
            continue
        name = formula.column.name
        if name in formulas:
            raise ValueError(f"two rules compute the column {name!r}; the second is {text!r}.")
        _check(text, formula)
        formulas[name] = formula
    for text, condition in conditions:
        _check_equalities(text, condition, set(formulas))
    return Rules(tuple(texts), tuple(_ordered(formulas)), tuple(conditions))


def _formula(condition: Condition) -> Formula | None:
    """Return the formula of a rule, None if it computes nothing."""
    if isinstance(condition, SameLabel) and condition.same:
        return Formula(condition.left, condition) if condition.left != condition.right else None
    if not isinstance(condition, Comparison) or condition.sign != "==":
        return None
    for left, right in ((condition.left, condition.right), (condition.right, condition.left)):
        # A numeric label has no formula, since not every number is a label.
        if isinstance(left, Reference) and left.column.kind == NUMERIC and right.columns:
            is_alone = left.column.name not in {column.name for column in right.columns}
            return Formula(left.column, right) if is_alone else None
    return None


def _check(text: str, formula: Formula) -> None:
    """Raise if a column cannot hold the computed values."""
    column, source = formula.column, formula.source
    sources = (source.right,) if isinstance(source, SameLabel) else source.columns
    if any(needed.missing for needed in sources) and not column.missing:
        raise ValueError(
            f"the rule {text!r} computes {column.name!r} from a column with missing values: declare"
            f" 'missing': True for {column.name!r}, too."
        )
    if not isinstance(source, SameLabel) and column.integer and not source.whole:
        raise ValueError(
            f"the rule {text!r} computes {column.name!r}, a column of integers, from other numbers."
        )


def _check_equalities(text: str, condition: Condition, computed: set[Any]) -> None:
    """Raise for an equality of real numbers, which would hold by chance only."""
    if isinstance(condition, Joined):
        for part in condition.parts:
            _check_equalities(text, part, set())
    elif isinstance(condition, Comparison) and condition.sign == "==":
        terms = (condition.left, condition.right)
        exact = all(term.whole for term in terms)
        is_formula = any(
            isinstance(term, Reference) and term.column.name in computed for term in terms
        )
        if not exact and not is_formula:
            raise ValueError(
                f"the rule {text!r} requires real numbers to be equal. That is possible only if "
                "the whole rule is one equation with a column of numbers alone on its left, as in "
                "'total == food + rent'. At a bound, write <= or >=, as in 'tip <= 0' for amounts "
                "from 0. Integers may be equal."
            )


def _ordered(formulas: dict[Any, Formula]) -> list[Formula]:
    """Return formulas ordered so that each needs earlier ones only, or raise."""
    ordered: list[Formula] = []
    waiting = dict(formulas)
    while waiting:
        ready = [name for name, formula in waiting.items() if not formula.needs & waiting.keys()]
        if not ready:
            raise ValueError(f"rules compute the columns {list(waiting)} from each other.")
        ordered += [waiting.pop(name) for name in ready]
    return ordered
