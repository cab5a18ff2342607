"""A column of a table: its declared values, and the conversion of values to units and back.

A label becomes its position. A declared number becomes the number of its *unit*: an integer, or a
cell of the declared bounds. Numbers in one cell are never distinguished. A missing value has the
last unit. Declarations are public; they must not be learned from private data.
"""

import datetime
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from numbers import Real
from typing import Any

import numpy as np

from skdpot.privacy.foreign import result_of
from skdpot.privacy.quotes import shown
from skdpot.tables._declared import is_missing, label_codes, objects

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
LINEAR, LOG = "linear", "log"
SCALES = (LINEAR, LOG)
_MOST_DIGITS = 15
# All integers up to the first are doubles; longer ones than the second cannot be written.
LARGEST_EXACT, _LARGEST_WRITTEN = 2.0**53, 1e300
# Users' name of each unit, and NumPy's.
UNITS: dict[str, Any] = {"D": "D", "h": "h", "min": "m", "s": "s"}
DATETIME, DATE, TEXT, TIMEDELTA = "datetime", "date", "text", "timedelta"
_SECONDS = {"D": 86400, "h": 3600, "min": 60, "s": 1}
# Range of Python's dates: years from 1 to 9999.
_FIRST, _LAST = np.datetime64("0001-01-01", "s"), np.datetime64("9999-12-31T23:59:59", "s")
# Durations as Python and pandas write them.
_DURATION = re.compile(r"(?:(-?\d{1,7}) days?(?:, | |$))?(?:\+?(\d{1,9}):(\d\d):(\d\d)(?:\.\d+)?)?")


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

    def codes(self, labels: np.ndarray) -> np.ndarray:
        """Return the positions of labels, -1 for a missing and -2 for an undeclared label.

        None is missing, unless it is among the labels. No value raises.
        """
        codes = label_codes(labels, self.number).astype(np.int64)
        unknown = np.flatnonzero(codes < 0)
        codes[unknown] = [-1 if labels[i] is None else -2 for i in unknown]
        return codes

    def labels_of_other_types(self, labels: np.ndarray, codes: np.ndarray) -> list[str]:
        """Return the problem of unknown labels that are declared ones of another type.

        A single text makes text of all numbers that pandas reads from a file: one record would make
        the labels of all others unknown. `codes` are those of `codes`.
        """
        unknown = labels[codes == -2] if self.kind != NUMERIC else ()
        found = (result_of(partial(self._is_of_other_type, value), False) for value in unknown)
        return [self.mistyped] if any(found) else []

    @property
    def mistyped(self) -> str:
        """Return the problem of a column of labels of another type than those declared."""
        return (
            f"column {self.name!r} has text where numbers or truth values are declared, or the "
            "other way round (the number 1 is not the text '1'): convert the column, as none of it "
            "would be a declared label"
        )

    def has_other_labels(self, kind: str) -> bool:
        """Tell whether a type of this kind holds none of the declared labels."""
        are_text = [isinstance(label, str) for label in self.values]
        return (kind in "biuf" and all(are_text)) or (kind in "UST" and not any(are_text))

    def _is_of_other_type(self, value: Any) -> bool:
        """Tell whether a value that is no label equals one after a conversion of its type."""
        if isinstance(value, str):
            with suppress(ValueError):
                return float(value) in [label for label in self.values if type(label) is not str]
            return value in map(str, self.values)
        # Longer integers are no labels, and cannot be written.
        if not isinstance(value, int | float) or abs(value) >= _LARGEST_WRITTEN:
            return False
        whole = abs(value) < LARGEST_EXACT and value == int(value)
        return str(value) in self.number or (whole and str(int(value)) in self.number)

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
            parts = (Decimal(repr(part)).as_tuple().exponent for part in (self.low, self.step))
            return np.round(self.low + units * self.step, max(0, *(-int(part) for part in parts)))
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
                "bounds": [
                    int(end) if self.duration else shown_date(int(end), self.unit)
                    for end in (self.low, self.high)
                ],
                "unit": self.unit,
            }
        declared |= {"bounds": [self.low, self.high], "integer": self.integer}
        if self.step is not None:
            declared |= {"step": self.step}
        return declared if self.scale == LINEAR else declared | {"scale": self.scale}

    def number_of(self, value: Any) -> float | None:
        """Return a user's value as a number of this column; None if that is impossible."""
        number: Any = None
        if self.unit is not None:
            number = (duration_number if self.duration else date_number)(value, self.unit)
        if number is None and _is_number(value) and (self.unit is None or self.duration):
            number = value
        return number

    @property
    def _scaled_bounds(self) -> tuple[float, float]:
        """Return the places of the bounds on the scale."""
        ends = scaled(np.array([self.low, self.high], dtype=np.float64), self.scale, self.low)
        return float(ends[0]), float(ends[1])

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
        """Return the units of a range (low, high), or raise."""
        ends: list[Any] = [self.number_of(value) for value in condition]
        if len(ends) == 2 and self.unit is not None and not self.duration:
            ends[1] = last_number(condition[1], self.unit)
        if len(ends) != 2 or None in ends or not ends[0] <= ends[1]:
            raise ValueError(f"a range of column {self.name!r} is (low, high), got {condition!r}.")
        first, last = ends
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


# Scales
# ------


def scaled(values: np.ndarray, scale: str, low: float) -> np.ndarray:
    """Return the places of a column's numbers on its scale, in the same order.

    The scale ``"log"`` is the logarithm if the lower bound is above 0. Otherwise it is ``sign(x) *
    log(1 + |x|)``, which is about linear from -1 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._column import scaled
    >>> scaled(np.array([-9.0, 0.0, 99.0]), "log", -9.0) / np.log(10)
    array([-1.,  0.,  2.])
    """
    if scale == LINEAR:
        return values
    return np.log(values) if low > 0 else np.sign(values) * np.log1p(np.abs(values))


def roundest(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return numbers in [low, high) with as few decimals as possible.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._column import roundest
    >>> roundest(np.array([74.9996, 0.1231, 2.0]), np.array([75.0002, 0.1241, 2.0]))
    array([75.   ,  0.124,  2.   ])
    """
    numbers, remaining = np.array(low, dtype=np.float64), np.asarray(low < high)
    for n_decimals in range(-_MOST_DIGITS, _MOST_DIGITS + 1):
        power = 10.0 ** abs(n_decimals)
        if n_decimals < 0:
            candidates = np.ceil(low / power) * power
        else:
            candidates = np.ceil(low * power) / power
        fits = remaining & (candidates >= low) & (candidates < high)
        numbers[fits] = candidates[fits]
        remaining = remaining & ~fits
        if not remaining.any():
            break
    return numbers


def with_few_decimals(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the number in [low, high) that is far rounder than others; NaN if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._column import with_few_decimals
    >>> with_few_decimals(np.array([74.9999, 75.0001]), np.array([75.0001, 75.0003]))
    array([75., nan])
    """
    with np.errstate(all="ignore"):
        power = 10.0 ** (np.floor(-np.log10(high - low)) - 1)
        steps = np.ceil(low * power)
        short = np.where(power < 1, steps * (1 / power), steps / power)
    return np.where((short >= low) & (short < high), short, np.nan)


def unscaled(places: np.ndarray, scale: str, low: float) -> np.ndarray:
    """Return the numbers at places of a scale.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._column import unscaled
    >>> unscaled(np.log([2.0, 8.0]), "log", 1.0).round(9)
    array([2., 8.])
    """
    if scale == LINEAR:
        return places
    return np.exp(places) if low > 0 else np.sign(places) * np.expm1(np.abs(places))


# Dates, times and durations as whole numbers of a unit, and back
# ----------------------------------------------------------------


def is_date(value: Any) -> bool:
    """Tell whether a value is a date or time, or ISO text of one."""
    return _as_datetime(value) is not None


def is_duration(value: Any) -> bool:
    """Tell whether a value is a duration of Python, NumPy or pandas."""
    return isinstance(value, datetime.timedelta | np.timedelta64)


def says_time(value: Any) -> bool:
    """Tell whether a date or time, or its text, includes a time of day."""
    return str(value) != shown_date(date_number(value, "D"), "D")


def date_number(value: Any, unit: str) -> Any:
    """Return a date or time as a number of units since 1970, None for another value.

    Examples
    --------
    >>> from skdpot.tables._column import date_number
    >>> date_number("1970-01-02T12:00", "D"), date_number("1970-01-02", "h")
    (1, 24)
    """
    date = _as_datetime(value)
    return None if date is None else int(date.astype(f"datetime64[{UNITS[unit]}]").astype(int))


def last_number(value: Any, unit: str) -> Any:
    """Return the last number of a range that ends at a date; a day without a time counts whole.

    Examples
    --------
    >>> from skdpot.tables._column import last_number
    >>> last_number("1970-01-01", "h"), last_number("1970-01-01T00:00", "h")
    (23, 0)
    """
    number = date_number(value, unit)
    if number is None or says_time(value):
        return number
    return number + _SECONDS["D"] // _SECONDS[unit] - 1


def duration_number(value: Any, unit: str) -> Any:
    """Return a duration in units, rounded down, None for another value.

    Examples
    --------
    >>> from skdpot.tables._column import duration_number
    >>> [duration_number(text, "h") for text in ("5:30:00", "1 day, 5:00:00", "-1 days +23:00:00")]
    [5, 29, -1]
    """
    if isinstance(value, str):
        value = _duration_of_text(value)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(seconds=_SECONDS[unit])
    if isinstance(value, np.timedelta64):
        return int(value.astype(f"timedelta64[{UNITS[unit]}]").astype(int))
    return None


def numbers_of_dates(values: Any, unit: str, duration: bool) -> tuple[np.ndarray, bool]:
    """Return dates or durations as doubles, NaN for missing and invalid ones, and if all are valid.

    `values` are private: of a type of dates, or objects of one kind. Text is read as ISO 8601, and
    times of a zone as local times. The `unit` of the numbers is "D", "h", "min" or "s".

    Examples
    --------
    >>> from skdpot.tables._column import numbers_of_dates
    >>> numbers_of_dates(np.array(["1970-01-02", None], dtype=object), "D", False)
    (array([ 1., nan]), True)
    """
    typed = values if isinstance(values, np.ndarray) else _without_zone(values).to_numpy()
    if typed.dtype.kind == ("m" if duration else "M"):
        units = typed.astype(f"{typed.dtype.kind}8[{UNITS[unit]}]")
        return np.where(np.isnat(units), np.nan, units.astype(np.int64)), True
    values = typed.tolist()
    numbers = [_number_of(value, unit, duration) for value in values]
    # A single value of another kind turns times into objects, so the type of a frame would reveal
    # it.
    kinds = {result_of(partial(_kind_of, value), None) for value in values if not is_missing(value)}
    valid = None not in numbers and len(kinds) <= 1
    return np.array([np.nan if number is None else number for number in numbers], float), valid


def dates_of_numbers(numbers: np.ndarray, unit: str, duration: bool) -> np.ndarray:
    """Return integers as NumPy dates or durations; NaN is a missing value.

    Examples
    --------
    >>> from skdpot.tables._column import dates_of_numbers
    >>> dates_of_numbers(np.array([1.0]), "D", False).astype(str).tolist()
    ['1970-01-02']
    """
    kind, missing = "m" if duration else "M", np.isnan(numbers)
    dates = np.where(missing, 0, numbers).astype(np.int64).astype(f"{kind}8[{UNITS[unit]}]")
    dates[missing] = np.array("NaT", dtype=dates.dtype)
    return dates


def shown_date(number: int, unit: str) -> str:
    """Return the ISO text of a date."""
    return str(np.datetime64(int(number), UNITS[unit]))


def date_objects(dates: np.ndarray, form: str) -> np.ndarray:
    """Return dates or durations as objects: text, or Python dates or times; None is missing."""
    missing = np.isnat(dates)
    if form == TEXT:
        values = dates.astype(str).tolist()
    else:
        kind = dates.dtype.kind
        values = dates.astype("M8[D]" if form == DATE else f"{kind}8[us]").tolist()
    return objects([None if gone else value for gone, value in zip(missing, values, strict=True)])


def _number_of(value: Any, unit: str, duration: bool) -> float | None:
    """Return a date or duration in units, NaN for a missing one, None for another value."""
    try:
        if is_missing(value):
            return np.nan
        return duration_number(value, unit) if duration else date_number(value, unit)
    except Exception:
        return None


def _without_zone(series: Any) -> Any:
    """Return a series with time zones removed: local times remain."""
    if getattr(series.dtype, "tz", None) is not None:
        return series.dt.tz_localize(None)
    if getattr(series.dtype, "time_zone", None) is not None:
        return series.dt.replace_time_zone(None)
    return series


def _kind_of(value: Any) -> Any:
    """Return the type of dates that all values of a column have, if there is one."""
    kinds = (str, datetime.timedelta, datetime.datetime, datetime.date)
    kind = next((kind for kind in kinds if isinstance(value, kind)), None)
    return kind, str(getattr(value, "tzinfo", None))


def _as_datetime(value: Any) -> np.datetime64 | None:
    """Return a date or time as a local time to the second; None for others."""
    if isinstance(value, np.datetime64):
        seconds = value.astype("datetime64[s]")
        return seconds if _FIRST <= seconds <= _LAST else None
    if isinstance(value, str):
        value = _parse_date(value)
    if isinstance(value, datetime.datetime):
        # The constructor drops the nanoseconds of a pandas time.
        parts = value.year, value.month, value.day, value.hour, value.minute, value.second
        return np.datetime64(datetime.datetime(*parts), "s")
    return np.datetime64(value, "s") if isinstance(value, datetime.date) else None


def _parse_date(text: str) -> datetime.datetime | None:
    # ISO weeks, and days without dashes, are as likely to be other numbers.
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        return None
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def _duration_of_text(text: str) -> datetime.timedelta | None:
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return datetime.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
