"""The parts of rules: terms of numbers, and conditions, for rows and within bounds.

A condition on a missing value is unknown. A rule is violated only if its condition is false.

``truth`` returns where a condition is true and where it is false. A box has the values that a
column may still take. ``narrow`` makes boxes smaller: it takes out values with which a condition is
false, or with which a term is outside an interval. ``must_be`` tells whether a condition is true
(or false) for all values in the boxes.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from skdpot.tables._column import NUMERIC, Column

# The range of each column: the least and the largest number, or the codes of its labels.
Boxes = dict[Any, Any]
Rows = Mapping[Any, np.ndarray]
Truth = tuple[np.ndarray, np.ndarray]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
# Relative rounding error of computed numbers.
_SLACK = 1e-9


class EmptyBoxError(Exception):
    """No value is left for a column."""


def number_labels(column: Column) -> bool:
    """Tell whether the labels of a column are numbers."""
    return column.kind != NUMERIC and all(
        isinstance(label, int | float) and not isinstance(label, bool) for label in column.values
    )


def box_of(column: Column) -> Any:
    """Return the declared bounds, or labels, of a column."""
    if column.kind == NUMERIC:
        return float(column.low), float(column.high)
    if number_labels(column):
        return float(min(column.values)), float(max(column.values))
    return frozenset(range(len(column.values)))


@dataclass(frozen=True)
class Number:
    """A number in a rule; `dates` is 1 for a date."""

    value: float
    dates: int = 0

    columns: tuple[Column, ...] = ()

    @property
    def whole(self) -> bool:
        return float(self.value).is_integer()

    def values(self, rows: Rows) -> Any:
        return self.value

    def interval(self, boxes: Boxes) -> tuple[float, float]:
        return self.value, self.value

    def narrow(self, boxes: Boxes, low: float, high: float) -> None:
        if not _low(low) <= self.value <= _high(high):
            raise EmptyBoxError


@dataclass(frozen=True)
class Reference:
    """The numbers of a column."""

    column: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)

    @property
    def dates(self) -> int:
        return int(self.column.unit is not None and not self.column.duration)

    @property
    def whole(self) -> bool:
        if self.column.kind == NUMERIC:
            return self.column.integer
        return all(float(label).is_integer() for label in self.column.values)

    @cached_property
    def _numbers(self) -> np.ndarray:
        return np.array([*self.column.values, np.nan], dtype=np.float64)

    def values(self, rows: Rows) -> Any:
        values = rows[self.column.name]
        return values if self.column.kind == NUMERIC else self._numbers[values]

    def interval(self, boxes: Boxes) -> tuple[float, float]:
        return boxes[self.column.name]

    def narrow(self, boxes: Boxes, low: float, high: float) -> None:
        first, last = boxes[self.column.name]
        low, high = max(first, _low(low)), min(last, _high(high))
        if self.column.integer:
            low, high = np.ceil(low), np.floor(high)
        if low > high:
            raise EmptyBoxError
        boxes[self.column.name] = low, high


@dataclass(frozen=True)
class Operation:
    """The sum, difference or product of two terms."""

    sign: str
    left: "Term"
    right: "Term"

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns + self.right.columns

    @property
    def dates(self) -> int:
        if self.sign == "*":
            # A date cannot be a factor; 2 marks the result as invalid.
            return 2 * (self.left.dates or self.right.dates)
        return self.left.dates + (self.right.dates if self.sign == "+" else -self.right.dates)

    @property
    def whole(self) -> bool:
        return self.left.whole and self.right.whole

    def values(self, rows: Rows) -> Any:
        return _OPERATIONS[self.sign](self.left.values(rows), self.right.values(rows))

    def interval(self, boxes: Boxes) -> tuple[float, float]:
        first, second = self.left.interval(boxes), self.right.interval(boxes)
        ends = [_OPERATIONS[self.sign](a, b) for a in first for b in second]
        return min(ends), max(ends)

    def narrow(self, boxes: Boxes, low: float, high: float) -> None:
        a, b = self.left.interval(boxes), self.right.interval(boxes)
        if self.sign == "+":
            self.left.narrow(boxes, low - b[1], high - b[0])
            self.right.narrow(boxes, low - a[1], high - a[0])
        elif self.sign == "-":
            self.left.narrow(boxes, low + b[0], high + b[1])
            self.right.narrow(boxes, a[0] - high, a[1] - low)
        else:
            for term, (first, last) in ((self.left, b), (self.right, a)):
                if first > 0 or last < 0:
                    ends = [end / other for end in (low, high) for other in (first, last)]
                    term.narrow(boxes, min(ends), max(ends))


Term = Number | Reference | Operation
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """A comparison of two terms: below, above or equal."""

    sign: str
    left: Term
    right: Term

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns + self.right.columns

    def truth(self, rows: Rows) -> Truth:
        left, right = self.left.values(rows), self.right.values(rows)
        known = ~(np.isnan(left) | np.isnan(right))
        holds = COMPARISONS[self.sign](left, right)
        return known & holds, known & ~holds

    def must_be(self, boxes: Boxes, value: bool) -> bool:
        if any(column.missing for column in self.columns):
            return False
        if not value:
            return Comparison(NEGATED[self.sign], self.left, self.right).must_be(boxes, True)
        (a, b), (c, d) = self.left.interval(boxes), self.right.interval(boxes)
        if self.sign in ("==", "!="):
            return a == b == c == d if self.sign == "==" else b < _low(c) or a > _high(d)
        return COMPARISONS[self.sign](*((b, c) if "<" in self.sign else (a, d)))

    def narrow(self, boxes: Boxes) -> None:
        if any(column.missing for column in self.columns) or self.sign == "!=":
            return
        (a, b), (c, d) = self.left.interval(boxes), self.right.interval(boxes)
        gap = float(self.sign in ("<", ">") and self.left.whole and self.right.whole)
        if self.sign in ("<", "<=", "=="):
            self.left.narrow(boxes, a, d - gap)
            self.right.narrow(boxes, a + gap, d)
        if self.sign in (">", ">=", "=="):
            self.left.narrow(boxes, c + gap, b)
            self.right.narrow(boxes, c, b - gap)

    def negated(self) -> "Condition":
        return Comparison(NEGATED[self.sign], self.left, self.right)


@dataclass(frozen=True)
class OneOf:
    """A column that has one of some labels, given by their codes."""

    column: Column
    codes: frozenset[int]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)

    def truth(self, rows: Rows) -> Truth:
        codes = rows[self.column.name]
        known, holds = codes < self.column.n_known, np.isin(codes, list(self.codes))
        return known & holds, known & ~holds

    def must_be(self, boxes: Boxes, value: bool) -> bool:
        may_be = boxes[self.column.name] & self.codes
        return not self.column.missing and (
            may_be == boxes[self.column.name] if value else not may_be
        )

    def narrow(self, boxes: Boxes) -> None:
        if self.column.missing:
            return
        boxes[self.column.name] &= self.codes
        if not boxes[self.column.name]:
            raise EmptyBoxError

    def negated(self) -> "Condition":
        return OneOf(self.column, frozenset(range(len(self.column.values))) - self.codes)


@dataclass(frozen=True)
class SameLabel:
    """Two columns of labels that are equal, or are not."""

    left: Column
    right: Column
    same: bool = True

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left, self.right

    @cached_property
    def to_left(self) -> np.ndarray:
        """Return the codes in the left column of the right column's labels, -1 for none."""
        codes = [self.left.number.get(label, -1) for label in self.right.values]
        return np.array([*codes, self.left.n_known])

    def truth(self, rows: Rows) -> Truth:
        left, right = rows[self.left.name], self.to_left[rows[self.right.name]]
        known = (left < self.left.n_known) & (right < self.left.n_known)
        holds = (left == right) == self.same
        return known & holds, known & ~holds

    def must_be(self, boxes: Boxes, value: bool) -> bool:
        return False

    def narrow(self, boxes: Boxes) -> None:
        pass

    def negated(self) -> "Condition":
        return SameLabel(self.left, self.right, not self.same)


@dataclass(frozen=True)
class IsMissing:
    """A column whose value is missing, or is not."""

    column: Column
    missing: bool = True

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)

    def truth(self, rows: Rows) -> Truth:
        values = rows[self.column.name]
        is_number = self.column.kind == NUMERIC
        holds = (np.isnan(values) if is_number else values >= self.column.n_known) == self.missing
        return holds, ~holds

    def must_be(self, boxes: Boxes, value: bool) -> bool:
        # A column without missing values is never missing.
        return not self.column.missing and self.missing != value

    def narrow(self, boxes: Boxes) -> None:
        if self.must_be(boxes, False):
            raise EmptyBoxError

    def negated(self) -> "Condition":
        return IsMissing(self.column, not self.missing)


@dataclass(frozen=True)
class Joined:
    """Conditions joined by "and" or by "or"."""

    parts: tuple["Condition", ...]
    all: bool

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(chain.from_iterable(part.columns for part in self.parts))

    def truth(self, rows: Rows) -> Truth:
        truths = [part.truth(rows) for part in self.parts]
        join, other = (np.logical_and, np.logical_or)[:: 1 if self.all else -1]
        return (
            join.reduce([true for true, _ in truths]),
            other.reduce([false for _, false in truths]),
        )

    def must_be(self, boxes: Boxes, value: bool) -> bool:
        truths = (part.must_be(boxes, value) for part in self.parts)
        return all(truths) if value == self.all else any(truths)

    def narrow(self, boxes: Boxes) -> None:
        parts: Sequence[Condition] = self.parts
        if not self.all:
            parts = [part for part in parts if not part.must_be(boxes, False)]
            if not parts:
                raise EmptyBoxError
            # If several parts may hold, no single part is required.
            parts = parts if len(parts) == 1 else ()
        for part in parts:
            part.narrow(boxes)

    def negated(self) -> "Condition":
        return Joined(tuple(part.negated() for part in self.parts), not self.all)


Condition = Comparison | OneOf | SameLabel | IsMissing | Joined


def _low(number: float) -> float:
    return number - _SLACK * max(1.0, abs(number)) if np.isfinite(number) else number


def _high(number: float) -> float:
    return -_low(-number)
