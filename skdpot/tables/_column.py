"""A column of a table: its declared values, and the conversion of values to units and back.

A label becomes its position. A declared number becomes the number of its *unit*: an integer, or a
cell of the declared bounds. Numbers in one cell are never distinguished. A missing value has the
last unit. Declarations are public; they must not be learned from private data.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from skdpot.privacy.quotes import shown
from skdpot.tables._dates import (
    date_number,
    dates_of_numbers,
    duration_number,
    last_number,
    shown_date,
)
from skdpot.tables._declarations import label_codes, objects
from skdpot.tables._scales import LINEAR, roundest, scaled, unscaled, with_few_decimals

NUMERIC, ORDINAL, NOMINAL = "numeric", "ordinal", "nominal"
# Number of cells of real numbers between the bounds. Each bound is a unit of its own, since values
# beyond are moved to it.
_REAL_CELLS = 2**20
# Largest rounding error of a number on a grid, as a share of the step.
_ROUNDING = 1e-6
# Number of bands of a numeric target. A target with hardly more values has one class for each.
_BANDS = 4
# The key of the labels in the declaration of a column of each kind.
LABEL_KEYS = {ORDINAL: "levels", NOMINAL: "categories"}


@dataclass(frozen=True)
class Column:
    """The declaration of one column.

    Attributes
    ----------
    name : str or int
        The user's name of it.
    kind : {"numeric", "ordinal", "nominal"}
        Numbers, levels in an order, or categories without one.
    missing : bool
        Whether values are declared to be missing, perhaps.
    low, high : float
        Declared bounds of numbers; integers are integers.
    integer : bool
        Whether numbers are declared to be integers.
    step : float or None
        The distance between adjacent real numbers of the column; None if all are allowed.
    scale : {"linear", "log"}
        On which units of real numbers are evenly spaced, and the first cells of integers.
    unit : {"D", "h", "min", "s"} or None
        The unit of dates, which are integers since 1970, or of durations; None for other numbers.
    duration : bool
        Whether values are durations.
    values : tuple
        Levels or categories.
    position : int or None
        Where it is in X; None where it is found by its name, or is the target beside X.
    dtype : object
        The data frame's type for these categories, if it lists them. In a schema, the name of the
        type of written values.
    """

    name: Any
    kind: str
    missing: bool = False
    low: float = 0
    high: float = 0
    integer: bool = False
    step: float | None = None
    scale: str = LINEAR
    unit: str | None = None
    duration: bool = False
    values: tuple = ()
    position: int | None = None
    dtype: Any = None

    @cached_property
    def labels(self) -> np.ndarray | None:
        """Return the levels or categories as an array of objects, None for numbers."""
        return None if self.kind == NUMERIC else objects(self.values)

    @cached_property
    def number(self) -> dict[Any, int]:
        """Return the position of each level or category, by label."""
        return {label: i for i, label in enumerate(self.values)}

    @property
    def n_coordinates(self) -> int:
        """Return its number of coordinates of a point: one per category, otherwise one."""
        return len(self.values) if self.kind == NOMINAL else 1

    @property
    def may_lack_integers(self) -> bool:
        """Tell whether its values are integers that may be missing."""
        if self.kind == NUMERIC:
            return self.missing and self.integer
        return self.missing and all(type(value) is int for value in self.values)

    def codes(self, labels: np.ndarray) -> np.ndarray:
        """Return the positions of labels, -1 for a missing and -2 for an undeclared label.

        None is missing, unless it is among the labels. No value raises.
        """
        codes = label_codes(labels, self.number).astype(np.int64)
        unknown = np.flatnonzero(codes < 0)
        codes[unknown] = [-1 if labels[i] is None else -2 for i in unknown]
        return codes

    @property
    def n_known(self) -> int:
        """Return the number of units, without the unit of a missing value."""
        if self.kind != NUMERIC:
            return len(self.values)
        if self.step is not None:
            return round((self.high - self.low) / self.step) + 1
        return int(self.high) - int(self.low) + 1 if self.integer else _REAL_CELLS + 2

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return self.n_known + self.missing

    def units(self, values: Any) -> np.ndarray:
        """Return the units of values: -1 for a missing and -2 for an undeclared value.

        Values of a numeric column are doubles, where NaN is missing; those of other columns are
        objects.
        """
        if self.kind != NUMERIC:
            return self.codes(values)
        with np.errstate(all="ignore"):
            if self.integer:
                units = np.rint(np.clip(values, self.low, self.high)) - self.low
            elif self.step is not None:
                units = np.rint((np.clip(values, self.low, self.high) - self.low) / self.step)
            else:
                cells = np.floor(self._fraction(values) * _REAL_CELLS)
                units = 1 + np.clip(cells, 0, _REAL_CELLS - 1)
                units = np.where(values <= self.low, 0, units)
                units = np.where(values >= self.high, self.n_known - 1, units)
        return np.where(np.isnan(values), -1, np.nan_to_num(units)).astype(np.int64)

    def numbers(self, units: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the numbers of units of a numeric column: integers, or real numbers in bounds.

        `uniforms`, from 0 to 1, give the place of a real number in its cell. A cell stands for a
        number in it that has far fewer decimals than others, if there is one.
        """
        if self.integer:
            return int(self.low) + units
        if self.step is not None:
            return np.round(self.low + units * self.step, self._n_decimals)
        numbers = self._inside(units + uniforms)
        low, high = self._inside(units), self._inside(units + 1)
        rounded = with_few_decimals(low, high)
        numbers = np.where(np.isnan(rounded), numbers, rounded)
        # Rounding may miss an end by a little.
        numbers[units == 0] = self.low
        numbers[units == self.n_known - 1] = self.high
        return numbers

    def heaped_units(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Return the unit of the roundest number in each range of units of real numbers."""
        return self.units(roundest(self._inside(starts), self._inside(stops)))

    def _inside(self, places: np.ndarray) -> np.ndarray:
        """Return real numbers at places among the units; integers are at the starts of units."""
        first, last = self._scaled_bounds
        between = first + np.clip((places - 1) / _REAL_CELLS, 0.0, 1.0) * (last - first)
        return np.clip(unscaled(between, self.scale, self.low), self.low, self.high)

    @property
    def length(self) -> float:
        """Return the distance of the bounds on the scale."""
        first, last = self._scaled_bounds
        return last - first

    def places(self, values: np.ndarray) -> np.ndarray:
        """Return the places of numbers on the scale between the bounds, from 0 to 1."""
        return np.clip(self._fraction(np.clip(values, self.low, self.high)), 0.0, 1.0)

    def places_of_units(self, units: np.ndarray) -> np.ndarray:
        """Return the places of units on the scale, from 0 to 1; categories are in their order."""
        if self.integer and self.scale != LINEAR:
            return self.places(self.low + units)
        return units / max(self.n_known - 1, 1)

    def even_edges(self, n_cells: int) -> np.ndarray:
        """Return the edges of equal cells on the scale, with a cell of its own for each bound.

        Edges are units; a numeric column has at least two more units than cells.
        """
        inner = 1 + np.arange(n_cells + 1) * (self.n_known - 2) // n_cells
        if self.integer and self.scale != LINEAR:
            places = np.linspace(*self._scaled_bounds, n_cells + 1)
            inner = np.rint(unscaled(places, self.scale, self.low) - self.low).astype(np.int64)
            inner = np.unique(np.clip(inner, 1, self.n_known - 1))
        return np.array([0, *inner, self.n_known])

    def band_starts(self) -> np.ndarray:
        """Return the first unit of each band of a numeric column; the last band is missing values.

        Bands are equally wide on the scale. Each cell of `even_edges`, for a power of two cells, is
        in one band.
        """
        few = self.n_known <= 2 * _BANDS
        starts = np.arange(self.n_known) if few else np.append(0, self.even_edges(_BANDS)[2:-2])
        return np.append(starts, [self.n_known] * self.missing)

    def plain_values(self, units: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the values of all units below `n_units`, as numbers.

        These are doubles for a numeric column, where NaN is missing, and units for other columns.
        """
        if self.kind != NUMERIC:
            return units
        numbers = self.numbers(np.minimum(units, self.n_known - 1), uniforms).astype(np.float64)
        numbers[units >= self.n_known] = np.nan
        return numbers

    def presented(self, plain: np.ndarray) -> np.ndarray:
        """Return values of `plain_values` in the user's terms: int64, doubles, dates or objects.

        If values may be missing, integers and labels are objects, and None is missing; doubles have
        NaN, and dates NaT.
        """
        if self.kind != NUMERIC:
            return objects([*self.values, None])[plain]
        if self.unit is not None:
            return dates_of_numbers(plain, self.unit, self.duration)
        if not self.integer:
            return plain
        missing = np.isnan(plain)
        numbers: Any = np.where(missing, 0, plain).astype(np.int64)
        if self.missing:
            numbers = numbers.astype(object)
            numbers[missing] = None
        return numbers

    def intervals(self, condition: Any) -> list[tuple[int, int]]:
        """Return the units that a condition allows, as `TableSchema.intervals`."""
        if isinstance(condition, tuple) and self.kind == NUMERIC:
            return [self._interval_of(condition)]
        units = sorted({self._unit_of(value) for value in _condition_values(condition)})
        if not units:
            raise ValueError(f"the condition on column {self.name!r} allows no value: name one.")
        return [(unit, unit + 1) for unit in units]

    def conditioned(self, numbers: np.ndarray, units: np.ndarray, condition: Any) -> np.ndarray:
        """Return values, of allowed units, moved to values that a condition allows.

        Several real numbers share a unit, so an allowed unit may hold others. Changes `numbers` in
        place.
        """
        if self.kind != NUMERIC or self.integer or self.step is not None:
            return numbers
        if isinstance(condition, tuple):
            return np.clip(numbers, *condition)
        for value in _condition_values(condition):
            numbers[units == self._unit_of(value)] = math.nan if value is None else value
        return numbers

    def plain(self) -> dict:
        """Return the declaration of this column, with its name, in the form of JSON."""
        declared: dict = {"name": self.name, "missing": self.missing}
        if self.dtype is not None:
            declared["dtype"] = self.dtype
        if self.kind != NUMERIC:
            return declared | {LABEL_KEYS[self.kind]: list(self.values)}
        if self.unit is not None:
            return declared | {
                "bounds": [self.shown(self.low), self.shown(self.high)],
                "unit": self.unit,
            }
        declared |= {"bounds": [self.low, self.high], "integer": self.integer}
        if self.step is not None:
            declared |= {"step": self.step}
        return declared if self.scale == LINEAR else declared | {"scale": self.scale}

    def shown(self, number: float) -> Any:
        """Return a number of this column as text for users."""
        if self.unit is not None and not self.duration:
            return shown_date(int(number), self.unit)
        return int(number) if self.integer else float(number)

    def number_of(self, value: Any) -> float | None:
        """Return a user's value as a number of this column; None if that is impossible."""
        number: Any = None
        if self.unit is not None:
            number = (duration_number if self.duration else date_number)(value, self.unit)
        if number is None and _is_number(value) and (self.unit is None or self.duration):
            number = value
        return number

    def range_of(self, condition: tuple) -> tuple[float, float]:
        """Return the numbers of a range condition, or raise."""
        ends: list[Any] = [self.number_of(value) for value in condition]
        if len(ends) == 2 and self.unit is not None and not self.duration:
            ends[1] = last_number(condition[1], self.unit)
        if len(ends) != 2 or None in ends or not ends[0] <= ends[1]:
            raise ValueError(f"a range of column {self.name!r} is (low, high), got {condition!r}.")
        return ends[0], ends[1]

    @property
    def _scaled_bounds(self) -> tuple[float, float]:
        """Return the places of the bounds on the scale."""
        ends = scaled(np.array([self.low, self.high], dtype=np.float64), self.scale, self.low)
        return float(ends[0]), float(ends[1])

    @property
    def _n_decimals(self) -> int:
        """Return the number of decimals of the column's numbers."""
        parts = (Decimal(repr(part)).as_tuple().exponent for part in (self.low, self.step))
        return max(0, *(-int(part) for part in parts))

    def _fraction(self, values: np.ndarray) -> np.ndarray:
        first, last = self._scaled_bounds
        return (scaled(values, self.scale, self.low) - first) / (last - first)

    def _unit_of(self, value: Any) -> int:
        """Return the unit of a value in a condition, or raise."""
        unit = -2
        if value is None or (isinstance(value, float) and math.isnan(value)):
            unit = self.n_known if self.missing else -1
        elif self.kind != NUMERIC:
            unit = int(self.codes(objects([value]))[0])
        else:
            number = self.number_of(value)
            if number is not None and self.low <= number <= self.high and self._on_grid(number):
                unit = int(self.units(np.array([number], dtype=np.float64))[0])
        if unit >= 0:
            return unit
        raise ValueError(
            f"column {self.name!r} is not declared to hold {shown(value)}. A condition is a "
            "value, a list of values, None for missing ones, or for numbers a tuple (low, high)."
        )

    def _on_grid(self, number: float) -> bool:
        """Tell whether a number is a multiple of the step above the lowest one, if any."""
        if self.step is None:
            return True
        place = (number - self.low) / self.step
        return abs(place - round(place)) <= _ROUNDING

    def _interval_of(self, condition: tuple) -> tuple[int, int]:
        """Return the units from one number to another, or raise."""
        first, last = self.range_of(condition)
        low, high = max(first, self.low), min(last, self.high)
        if self.integer and low <= high:
            low, high = math.ceil(low), math.floor(high)
        if self.step is not None and low <= high:
            # A number that misses the grid by rounding is on the grid.
            places = (np.array([low, high]) - self.low) / self.step + [-_ROUNDING, _ROUNDING]
            first_unit, last_unit = math.ceil(places[0]), math.floor(places[1])
            low, high = self.numbers(np.array([first_unit, last_unit]), places).tolist()
        if low > high:
            raise ValueError(
                f"column {self.name!r} is not declared to hold values in {condition!r}."
            )
        units = self.units(np.array([low, high], dtype=np.float64)).tolist()
        return units[0], units[1] + 1


def place_of(key: Any, columns: list[Column]) -> int | None:
    """Return the position of the column with this name or position in X; None without one."""
    for keys in ([column.name for column in columns], [column.position for column in columns]):
        if key in keys:
            return keys.index(key)
    return None


def _condition_values(condition: Any) -> list:
    """Return the values that a condition names."""
    return list(condition) if isinstance(condition, list | np.ndarray) else [condition]


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool)
