"""The column of a table: what it holds, and its values as numbers and back.

A label becomes its position. A declared number becomes the number of its *unit*: an integer, or a
cell of the declared bounds, the narrowest that is ever told apart. A missing value has the unit
after the last. Declarations are public; they may not be learned from private data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot.tables._declarations import (
    LARGEST_BOUND,
    declared_labels,
    label_codes,
    objects,
    shown,
)

NUMERIC, ORDINAL, NOMINAL = "numeric", "ordinal", "nominal"
# Real numbers between the bounds have so many cells. Each bound is a unit of its own: values from
# beyond are moved there, and many may be there anyway.
_REAL_CELLS = 2**20
# Integers of this magnitude, and differences of two of them, are doubles.
_LARGEST_INTEGER = 2**51
HOW_TO_DECLARE = (
    "range(low, high + 1) for integers, (low, high) for real numbers, a list of categories, or a "
    "dict with 'bounds' (and 'integer'), 'levels' or 'categories', and with 'missing': True where "
    "values may be missing"
)
# What has the labels in the declaration of a column of this kind.
LABEL_KEYS = {ORDINAL: "levels", NOMINAL: "categories"}


@dataclass(frozen=True)
class Column:
    """What one column holds.

    Attributes
    ----------
    name : str or int
        As users call it.
    kind : {"numeric", "ordinal", "nominal"}
        Numbers, levels in an order, or categories without one.
    missing : bool
        Whether values are declared to be missing, perhaps.
    low, high : float
        Declared bounds of numbers; integers are integers.
    integer : bool
        Whether numbers are declared to be integers.
    values : tuple
        Levels or categories.
    position : int or None
        Where it is in X; None where it is found by its name, or is the target beside X.
    dtype : object
        The data frame's type for these categories, if it is one that lists them.
    """

    name: Any
    kind: str
    missing: bool = False
    low: float = 0
    high: float = 0
    integer: bool = False
    values: tuple = ()
    position: int | None = None
    dtype: Any = None

    @cached_property
    def labels(self) -> np.ndarray | None:
        """Return the levels or categories as an array of objects, None for numbers."""
        return None if self.kind == NUMERIC else objects(self.values)

    @cached_property
    def number(self) -> dict[Any, int]:
        """Return the position of each level or category."""
        return {label: i for i, label in enumerate(self.values)}

    @property
    def n_coordinates(self) -> int:
        """Return how many coordinates a point has for it: one for each category, or one."""
        return len(self.values) if self.kind == NOMINAL else 1

    @property
    def may_lack_integers(self) -> bool:
        """Tell whether its values are integers of which some may be missing."""
        if self.kind == NUMERIC:
            return self.missing and self.integer
        return self.missing and all(type(value) is int for value in self.values)

    def codes(self, labels: np.ndarray) -> np.ndarray:
        """Return the positions of labels, -1 where one is missing and -2 where it is none.

        None is missing, unless it is among the labels. Nothing raises.
        """
        codes = label_codes(labels, self.number).astype(np.int64)
        unknown = np.flatnonzero(codes < 0)
        codes[unknown] = [-1 if labels[i] is None else -2 for i in unknown]
        return codes

    @property
    def n_known(self) -> int:
        """Return the number of units, without that of a missing value."""
        if self.kind != NUMERIC:
            return len(self.values)
        return int(self.high) - int(self.low) + 1 if self.integer else _REAL_CELLS + 2

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return self.n_known + self.missing

    def units(self, values: Any) -> np.ndarray:
        """Return the units of values: -1 for a missing one, and -2 for one that is not declared.

        Values are doubles of a numeric column, of which NaN is missing; otherwise objects.
        """
        if self.kind != NUMERIC:
            return self.codes(values)
        with np.errstate(all="ignore"):
            if self.integer:
                units = np.rint(np.clip(values, self.low, self.high)) - self.low
            else:
                cells = np.floor((values - self.low) / (self.high - self.low) * _REAL_CELLS)
                units = 1 + np.clip(cells, 0, _REAL_CELLS - 1)
                units = np.where(values <= self.low, 0, units)
                units = np.where(values >= self.high, self.n_known - 1, units)
        return np.where(np.isnan(values), -1, np.nan_to_num(units)).astype(np.int64)

    def numbers(self, units: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the numbers of units of a numeric column: integers, or real numbers in bounds.

        `uniforms`, from 0 to 1, say where in its cell a real number is.
        """
        if self.integer:
            return int(self.low) + units
        between = np.clip((units - 1 + uniforms) / _REAL_CELLS, 0.0, 1.0)
        numbers = np.clip(self.low + between * (self.high - self.low), self.low, self.high)
        # Rounding may miss an end by a little.
        numbers[units == 0] = self.low
        numbers[units == self.n_known - 1] = self.high
        return numbers

    def values_of(self, units: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the values of units from 0 to below `n_units`: int64, doubles, or objects.

        Where values may be missing, integers and labels are objects, and None is missing; doubles
        have NaN.
        """
        if self.kind != NUMERIC:
            return objects([*self.values, None])[units]
        numbers = self.numbers(np.minimum(units, self.n_known - 1), uniforms)
        if not self.missing:
            return numbers
        if self.integer:
            numbers = numbers.astype(object)
        numbers[units >= self.n_known] = None if self.integer else np.nan
        return numbers

    def intervals(self, condition: Any) -> list[tuple[int, int]]:
        """Return which units a condition allows, as `TableSchema.intervals`."""
        if isinstance(condition, tuple) and self.kind == NUMERIC:
            return [self._interval_of(condition)]
        found = sorted({self._unit_of(value) for value in _wanted(condition)})
        if not found:
            raise ValueError(
                f"the condition on column {self.name!r} allows no value. Name at least one."
            )
        return [(unit, unit + 1) for unit in found]

    def conditioned(self, numbers: np.ndarray, units: np.ndarray, condition: Any) -> np.ndarray:
        """Return values, of units that a condition allows, that it allows as well.

        A real number shares its unit with others. Changes `numbers` in place.
        """
        if self.kind != NUMERIC or self.integer:
            return numbers
        if isinstance(condition, tuple):
            return np.clip(numbers, *condition)
        for value in _wanted(condition):
            numbers[units == self._unit_of(value)] = math.nan if value is None else value
        return numbers

    def plain(self) -> dict:
        """Return the declaration of this column, with its name, as JSON holds it."""
        declared: dict = {"name": self.name, "missing": self.missing}
        if self.kind == NUMERIC:
            return declared | {"bounds": [self.low, self.high], "integer": self.integer}
        return declared | {LABEL_KEYS[self.kind]: list(self.values)}

    def _unit_of(self, value: Any) -> int:
        """Return the unit of a value that a condition asks for, or raise."""
        unit = -2
        if value is None or (isinstance(value, float) and math.isnan(value)):
            unit = self.n_known if self.missing else -1
        elif self.kind != NUMERIC:
            unit = int(self.codes(objects([value]))[0])
        elif _is_number(value) and self.low <= value <= self.high:
            unit = int(self.units(np.array([value], dtype=np.float64))[0])
        if unit >= 0:
            return unit
        raise ValueError(
            f"column {self.name!r} is not declared to hold {shown(value)}. A condition is a "
            "value, a list of values, None for missing ones, or for numbers a tuple (low, high)."
        )

    def _interval_of(self, bounds: tuple) -> tuple[int, int]:
        """Return the units from one number to another, or raise."""
        if len(bounds) != 2 or not all(map(_is_number, bounds)) or not bounds[0] <= bounds[1]:
            raise ValueError(
                f"a condition on a range of column {self.name!r} is (low, high), got {bounds!r}."
            )
        low, high = max(bounds[0], self.low), min(bounds[1], self.high)
        if self.integer and low <= high:
            low, high = math.ceil(low), math.floor(high)
        if low > high:
            raise ValueError(f"column {self.name!r} is not declared to hold numbers in {bounds!r}.")
        first, last = self.units(np.array([low, high], dtype=np.float64)).tolist()
        return first, last + 1


def place_of(key: Any, columns: list[Column]) -> int | None:
    """Return which of the columns has this name, or else this position in X; None if none has."""
    for known in ([column.name for column in columns], [column.position for column in columns]):
        if key in known:
            return known.index(key)
    return None


def read_column(name: Any, declared: Any) -> Column:
    """Return one column's declaration, or raise."""
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ValueError(f"columns have names of text, or numbers; the schema has {name!r}.")
    if isinstance(declared, range):
        if len(declared) < 2 or declared.step != 1:
            raise ValueError(
                _wrong(name, declared, "a range has the step 1, and at least two integers")
            )
        return _numeric(name, (declared[0], declared[-1]), True, False)
    if isinstance(declared, tuple):
        if any(isinstance(value, str) for value in declared):
            raise ValueError(_wrong(name, declared, "categories are a list, not a tuple"))
        return _numeric(name, declared, False, False)
    if isinstance(declared, list | np.ndarray):
        declared = {"categories": declared}
    keys = set(declared) if isinstance(declared, Mapping) else set()
    kinds = keys & {"bounds", "levels", "categories"}
    allowed = kinds | {"missing"} | ({"integer"} if "bounds" in kinds else set())
    if len(kinds) != 1 or keys - allowed:
        unknown = keys - {"bounds", "levels", "categories", "missing", "integer"}
        why = f"there is no key {shown(min(unknown, key=str))}" if unknown else ""
        raise ValueError(_wrong(name, declared, why))
    missing, integer = declared.get("missing", False), declared.get("integer", False)
    if not isinstance(missing, bool) or not isinstance(integer, bool):
        raise ValueError(_wrong(name, declared))
    if "bounds" in keys:
        return _numeric(name, declared["bounds"], integer, missing)
    if "levels" in keys:
        return _labelled(name, ORDINAL, declared["levels"], missing)
    return _labelled(name, NOMINAL, declared["categories"], missing)


def _numeric(name: Any, bounds: Any, integer: bool, missing: bool) -> Column:
    kind, largest = (Integral, _LARGEST_INTEGER) if integer else (Real, LARGEST_BOUND)
    ends = list(bounds) if isinstance(bounds, tuple | list) else []
    numbers = len(ends) == 2 and all(isinstance(end, kind) for end in ends)
    if not numbers or not -largest <= ends[0] < ends[1] <= largest:
        reversed_ = numbers and not ends[0] < ends[1]
        raise ValueError(_wrong(name, bounds, "low must be below high" if reversed_ else ""))
    low, high = (int(end) if integer else float(end) for end in ends)
    return Column(name, NUMERIC, missing, low=low, high=high, integer=integer)


def _labelled(name: Any, kind: str, values: Any, missing: bool) -> Column:
    what = f"{LABEL_KEYS[kind]} of column {name!r}"
    labels = declared_labels(values, what)[0].tolist()
    if not labels or not all(
        isinstance(label, str | int) or (isinstance(label, float) and math.isfinite(label))
        for label in labels
    ):
        raise ValueError(f"{what} must be a list of words or numbers, got {_declared(values)}.")
    return Column(name, kind, missing, values=tuple(labels))


def _wrong(name: Any, declared: Any, why: str = "") -> str:
    reason = f": {why}" if why else ""
    return (
        f"column {name!r} must be declared as {HOW_TO_DECLARE}; got {_declared(declared)}{reason}."
    )


def _declared(declared: Any) -> str:
    """Return a declaration as text; of a frame's column, which is none, the type alone."""
    is_one = isinstance(declared, list | tuple | dict | range)
    return repr(declared) if is_one else shown(declared)


def _wanted(condition: Any) -> list:
    """Return the values that a condition names."""
    return list(condition) if isinstance(condition, list | np.ndarray) else [condition]


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool)
