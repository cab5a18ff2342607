"""A column of a table: its declared bounds and labels, and values as codes and back.

The *code* of a value is an integer from 0: the position of a label, and of a number that of the
integer, or of its cell of the declared bounds. Numbers in one cell are never distinguished. A
missing value has the last code. Declarations are public; they must not be learned from private
data.
"""

import datetime
import decimal
import math
import re
import sys
import zoneinfo
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdpot.privacy.checks import check_type, number_labels, redact_errors, result_of, to_display

# Squares of larger numbers, and their sums, could overflow.
LARGEST_BOUND = 1e150
# Types of values that run no code of others, cannot be changed, and refer to no other values.
_PLAIN: set[type] = {type(None), bool, int, float, complex, str, bytes, decimal.Decimal}
_PLAIN |= {datetime.date, datetime.datetime, datetime.time, datetime.timedelta}
_PLAIN |= set(np.sctypeDict.values()) - {np.void, np.object_}


def check_bounds(
    bounds: Any, n_features: int, why: str, name: str = "bounds"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper corner of declared bounds, or raise.

    `bounds` is a pair, each a number or one number per feature. An error says `why` they are
    needed, and uses `name` for the parameter.

    Examples
    --------
    >>> from skdpot.tables import check_bounds
    >>> check_bounds((0, [1, 2]), 2, "They scale the noise.")
    (array([0., 0.]), array([1., 2.]))
    """
    if bounds is None:
        raise ValueError(
            f"{name} must be declared: (low, high), each a number or one number per feature. "
            f"{why} They may not be learned from private data."
        )
    message = (
        f"{name} must be a pair (low, high) of finite numbers, or of arrays with one number for "
        f"each of the {n_features} features, with low < high and magnitudes up to 1e150; got "
        f"{to_display(bounds)}. A pair for each feature becomes such bounds by tuple(zip(*pairs))."
    )
    # A frame would be read by the names of its columns.
    if isinstance(bounds, dict) or hasattr(bounds, "columns"):
        raise ValueError(
            f"{message} Bounds by column are declared by schema={{column: (low, high)}}, or as two "
            "lists in the order of the columns."
        )
    try:
        of_one = n_features > 1 and (1,) in map(np.shape, bounds)
        # A list of two tuples is as much a pair for each of two features.
        are_tuples = isinstance(bounds, list) and [type(end) for end in bounds] == [tuple, tuple]
        are_pairs = are_tuples and n_features == 2 and all(end[0] < end[-1] for end in bounds)
        if of_one or are_pairs or any(np.asarray(end).dtype.kind in "mM" for end in bounds):
            raise ValueError("neither a list of one number, nor pairs, nor dates are such ends")
        # Copies: the caller may change the arrays later.
        low, high = (np.array(np.broadcast_to(end, n_features), np.float64) for end in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    with np.errstate(all="ignore"):
        # In units of these widths, numbers must not overflow.
        is_wide = high - low >= np.finfo(np.float64).tiny
    if not ((np.abs([low, high]) <= LARGEST_BOUND).all() and is_wide.all()):
        raise ValueError(message)
    return low, high


def declared_labels(labels: Any, name: str) -> tuple[np.ndarray, dict[Any, int]]:
    """Return declared labels as an array, and the position of each, or raise.

    An error uses `name` for them. It quotes no list, which may be a private column.

    Examples
    --------
    >>> from skdpot.tables import declared_labels
    >>> declared_labels(["b", "a"], "groups")[1]
    {'b': 0, 'a': 1}
    """
    try:
        names = np.asarray(labels)
        given = one_by_one(labels if names.ndim == 1 else ())
        each = (label if type(label) is tuple else (label,) for label in given.tolist())
        parts = [part for label in each for part in label if not is_plain(part)]
        # Their own code would be asked whether private values are equal to them.
        are_own = any(type(part).__hash__ is not None for part in parts)
        number = {label: g for g, label in enumerate(() if are_own else given.tolist())}
        different = names.ndim == 1 and len(number) == len(given) and all(x == x for x in number)
    except (TypeError, ValueError):
        different = are_own = False
    if are_own:
        raise TypeError(f"{name} must be text, numbers, truth values or dates.")
    # Raised outside of the handler, so that an error that may quote labels is not its context.
    if not different:
        raise ValueError(
            f"{name} must be a list of different labels, none of them missing (None or NaN), got "
            f"{to_display(labels)}: one may be there twice."
        )
    # A missing value turns the integers of a column into doubles, as a fraction does those of a
    # list: longer ones would be rounded, and one record would change the labels of others.
    if any(isinstance(label, int) and abs(label) >= 2**53 for label in number):
        raise ValueError(f"{name} have integers from 2**53 on: give them as text, and in rows.")
    if names.dtype.kind == "U" and not all(isinstance(label, str) for label in number):
        names = given
    return names, number


def label_codes(labels: np.ndarray, number: dict[Any, int]) -> np.ndarray:
    """Return the number of each private label, -1 for an undeclared one, without errors.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import label_codes
    >>> label_codes(np.array(["a", ["b"], None, "b"], dtype=object), {"a": 0, "b": 1})
    array([ 0, -1, -1,  1])
    """
    return np.array(number_labels(labels.tolist(), number), dtype=np.intp)


def one_by_one(labels: Any) -> np.ndarray:
    """Return labels as objects, so that no label changes the type of others.

    Examples
    --------
    >>> from skdpot.tables import one_by_one
    >>> one_by_one([1, "a"])
    array([1, 'a'], dtype=object)
    """
    check_type("a list of labels", labels)
    dtype = getattr(labels, "dtype", None)
    is_of_library = dtype is not None or type(labels).__module__.partition(".")[0] == "pyarrow"
    is_other = isinstance(labels, Iterable) or hasattr(labels, "__getitem__")
    if is_other and not (is_of_library or isinstance(labels, str | bytes)):
        # NumPy makes a table of labels that are all lists, and no column of a library has these.
        return objects(labels)
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        # In other units, dates become integers, or dates that equal no times.
        labels = np.asarray(labels, dtype="datetime64[us]")
    read = partial(column_or_1d, dtype=object, warn=True)
    is_column = len(getattr(labels, "shape", (0,))) == 1
    return redact_errors(
        lambda: read_in_parts(read, labels, objects([None])) if is_column else read(labels),
        "labels cannot be read as one for each row.",
    )


def read_in_parts(read: Callable[[Any], np.ndarray], values: Any, unread: np.ndarray) -> np.ndarray:
    """Return what a library reads of private values: `unread` for each on which it raises.

    Dates beyond a calendar and text in no encoding raise in some libraries, in others they panic.

    Examples
    --------
    >>> from skdpot.tables._column import objects, read_in_parts
    >>> read_in_parts(lambda part: objects(map(int, part)), ["1", "x", "2"], objects([None]))
    array([1, None, 2], dtype=object)
    """
    whole = result_of(lambda: read(values), None)
    if whole is not None or len(values) < 2:
        return unread[: len(values)] if whole is None else whole
    middle = len(values) // 2
    parts = (values[:middle], values[middle:])
    return np.concatenate([read_in_parts(read, part, unread) for part in parts])


def is_plain(value: Any) -> bool:
    """Tell whether a value is a number, text, date or such, and of no class derived from these.

    Examples
    --------
    >>> from skdpot.tables import is_plain
    >>> is_plain("a"), is_plain(["a"])
    (True, False)
    """
    kind = type(value)
    # A metaclass of its own may say that it equals any other type.
    if type(kind) is not type:
        return False
    pandas = sys.modules.get("pandas")
    names, missing = ("Timestamp", "Timedelta", "Period", "Interval"), ("NA", "NaT")
    if kind not in _PLAIN:
        types = [getattr(pandas, name, None) for name in names]
        if kind not in types + [type(getattr(pandas, name, None)) for name in missing]:
            return False
    zone = type(getattr(value, "tzinfo", None))
    return zone is type(None) or zone is datetime.timezone or zone is zoneinfo.ZoneInfo


def objects(values: Any) -> np.ndarray:
    """Return values, possibly lists themselves, as an array of objects.

    Examples
    --------
    >>> from skdpot.tables import objects
    >>> objects([1, "a", None])
    array([1, 'a', None], dtype=object)
    """
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    # One by one: np.array would look into values that are lists or arrays.
    return np.fromiter(values, dtype=object, count=len(values))


def is_missing(value: Any) -> bool:
    """Tell whether a value is a missing value of pandas, Python or floating point.

    No value raises.

    Examples
    --------
    >>> from skdpot.tables import is_missing
    >>> [is_missing(value) for value in (None, float("nan"), "nan")]
    [True, True, False]
    """
    try:
        return value is None or bool(value != value)
    except TypeError:
        # pandas.NA equals nothing, and comparing it gives no truth value.
        return True
    except Exception:
        # A value that cannot be compared is a label, though none of the known ones.
        return False


NUMERIC, ORDINAL, NOMINAL = "numeric", "ordinal", "nominal"
# The key of the labels in the declaration of a column of each kind.
LABEL_KEYS = {ORDINAL: "levels", NOMINAL: "categories"}
LINEAR, LOG = "linear", "log"
# Number of cells of real numbers between the bounds. Each bound has a code of its own, since values
# beyond are moved to it.
_REAL_CELLS = 2**20
# Users' name of each unit of time, and NumPy's.
UNITS: dict[str, Any] = {"D": "D", "h": "h", "min": "m", "s": "s"}


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
    scale : {"linear", "log"}
        On which cells of real numbers are evenly spaced, and the first ones of integers.
    unit : {"D", "h", "min", "s"} or None
        The unit of dates, which are integers since 1970; None for other numbers.
    values : tuple
        Levels or categories.
    position : int or None
        Where it is in X; None where it is found by its name, or is the target beside X.
    dtype : object
        The data frame's type for these categories, if it lists them. In a schema, "category" or
        "string" if labels are drawn with this type.
    other : str, int, float or None
        The category that all undeclared labels are read as; None without one.
    """

    name: str | int
    kind: str
    missing: bool = False
    low: float = 0
    high: float = 0
    integer: bool = False
    scale: str = LINEAR
    unit: str | None = None
    values: tuple = ()
    position: int | None = None
    dtype: Any = None
    other: str | int | float | None = None

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

    def type_problems(self, kind: str, listed: Any = None) -> list[str]:
        """Return the problem of a column whose type, of this kind, holds no declared value.

        It is in a list, which is empty for other types. `listed` is the list of categories of a
        column of pandas, which is public.
        """
        # The type alone decides: a private column is refused for no value.
        if self.kind == NUMERIC:
            of_hours = f"X[{self.name!r}] / pandas.Timedelta(hours=1)"
            told = f"column {self.name!r} has durations: divide them by a unit, as by {of_hours}"
            return [told] if kind == "m" else []
        are_text = [isinstance(label, str) for label in self.values]
        # Labels that an open fit has found may be periods or intervals themselves.
        are_plain = all(isinstance(label, str | Real) for label in self.values)
        kinds = () if self.other is not None else ("string", "integer")
        # Code of objects in the list shall not run.
        is_listed = getattr(listed, "inferred_type", "") in kinds
        wrong = {
            "numbers or truth values": kind in "biuf" and all(are_text),
            "text": kind in "UST" and not any(are_text),
            "periods or intervals": kind == "V" and are_plain,
            "other categories": is_listed and not listed.isin(list(self.values)).any(),
        }
        return [
            f"column {self.name!r} has {what}, none of which is a declared label (the number 1 is "
            "not the text '1'): convert the column"
            for what, is_wrong in wrong.items()
            if is_wrong
        ][:1]

    @property
    def n_known(self) -> int:
        """Return the number of codes, without the code of a missing value."""
        if self.kind != NUMERIC:
            return len(self.values)
        # The two are the bounds themselves.
        return int(self.high) - int(self.low) + 1 if self.integer else _REAL_CELLS + 2

    @property
    def n_codes(self) -> int:
        """Return the number of codes."""
        return self.n_known + self.missing

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Return the codes of values: -1 for a missing and -2 for an undeclared value.

        Values of a numeric column are doubles, where NaN is missing; those of other columns are
        objects, where None is missing, unless it is a declared label. With the category `other`, no
        label is undeclared. No value raises.
        """
        if self.kind != NUMERIC:
            # -1 is every unknown label at first; None may be a declared one.
            codes = label_codes(values, self.number).astype(np.int64)
            unknown = np.flatnonzero(codes < 0)
            undeclared = -2 if self.other is None else self.number[self.other]
            codes[unknown] = [-1 if values[i] is None else undeclared for i in unknown]
            return codes
        with np.errstate(all="ignore"):
            if self.integer:
                # A fraction where integers are declared is rounded; NaN stays NaN until the end.
                codes = np.rint(np.clip(values, self.low, self.high)) - self.low
            else:
                # Clipping of cells alone would move the bounds themselves into a cell.
                cells = np.floor(self.positions_on_scale(values) * _REAL_CELLS)
                codes = 1 + np.minimum(cells, _REAL_CELLS - 1)
                codes = np.where(values <= self.low, 0, codes)
                codes = np.where(values >= self.high, self.n_known - 1, codes)
        return np.where(np.isnan(values), -1, np.nan_to_num(codes)).astype(np.int64)

    def numbers(self, codes: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the numbers of codes of a numeric column: integers, or real numbers in bounds.

        `uniforms`, from 0 to 1, give the position of a real number in its cell. A cell stands for a
        number in it that has far fewer decimals than others, if there is one.
        """
        if self.integer:
            return int(self.low) + codes
        # People write 12.5 and not 12.4993: a drawn number is as round as its cell allows.
        rounded = with_few_decimals(self._inside(codes), self._inside(codes + 1))
        numbers = np.where(np.isnan(rounded), self._inside(codes + uniforms), rounded)
        # Rounding may miss an end by a little.
        numbers[codes == 0] = self.low
        numbers[codes == self.n_known - 1] = self.high
        return numbers

    def rounded_codes(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Return the code of the simplest number in each range of codes of real numbers."""
        return self.codes(simplest_number(self._inside(starts), self._inside(stops)))

    def _inside(self, codes: np.ndarray) -> np.ndarray:
        """Return the real numbers at which codes start, and those between at fractions."""
        first, last = self._scaled_bounds
        between = first + np.clip((codes - 1) / _REAL_CELLS, 0.0, 1.0) * (last - first)
        # The exponential of a logarithm may miss a bound by rounding.
        return np.clip(unscaled(between, self.scale, self.low), self.low, self.high)

    @property
    def length(self) -> float:
        """Return the distance of the bounds on the scale."""
        first, last = self._scaled_bounds
        return last - first

    def positions_on_scale(self, values: np.ndarray) -> np.ndarray:
        """Return the positions of numbers on the scale between the bounds, from 0 to 1."""
        first, last = self._scaled_bounds
        inside = scaled(np.clip(values, self.low, self.high), self.scale, self.low)
        return np.clip((inside - first) / (last - first), 0.0, 1.0)

    def positions_of_codes(self, codes: np.ndarray) -> np.ndarray:
        """Return the positions of codes on the scale, from 0 to 1; categories are in order."""
        if self.integer and self.scale != LINEAR:
            return self.positions_on_scale(self.low + codes)
        return codes / max(self.n_known - 1, 1)

    def even_edges(self, n_cells: int) -> np.ndarray:
        """Return the edges of equal cells on the scale, with a cell of its own for each bound.

        Edges are codes; a numeric column has at least two more codes than cells.
        """
        # In integers, so that cells of a power of two are divided into each other exactly.
        inner = 1 + np.arange(n_cells + 1) * (self.n_known - 2) // n_cells
        if self.integer and self.scale != LINEAR:
            positions = np.linspace(*self._scaled_bounds, n_cells + 1)
            inner = np.rint(unscaled(positions, self.scale, self.low) - self.low).astype(np.int64)
            # Near the lower bound, several positions are the same integer.
            inner = np.unique(np.clip(inner, 1, self.n_known - 1))
        return np.array([0, *inner, self.n_known])

    def band_starts(self) -> np.ndarray:
        """Return the first code of each band of a numeric column; the last band is missing values.

        Bands are equally wide on the scale. Each cell of `even_edges`, for a power of two cells, is
        in one band.
        """
        # Four bands; a target with hardly more values has one class for each.
        few = self.n_known <= 8
        starts = np.arange(self.n_known) if few else np.append(0, self.even_edges(4)[2:-2])
        return np.append(starts, [self.n_known] * self.missing)

    def plain_values(self, codes: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the values of all codes below `n_codes`, as numbers.

        These are doubles for a numeric column, where NaN is missing, and codes for other columns.
        """
        if self.kind != NUMERIC:
            return codes
        numbers = self.numbers(np.minimum(codes, self.n_known - 1), uniforms).astype(np.float64)
        numbers[codes >= self.n_known] = np.nan
        return numbers

    def presented(self, plain: np.ndarray) -> np.ndarray:
        """Return values of `plain_values` in the user's terms: int64, doubles, dates or objects.

        If values may be missing, integers and labels are objects, and None is missing; doubles have
        NaN, and dates NaT.
        """
        if self.kind != NUMERIC:
            return objects([*self.values, None])[plain]
        if not self.integer:
            return plain
        missing = np.isnan(plain)
        numbers: Any = np.where(missing, 0, plain).astype(np.int64)
        if self.unit is not None or self.missing:
            numbers = numbers.astype(object if self.unit is None else f"M8[{UNITS[self.unit]}]")
            # NaN has no integer, so that 0 stood in its place. Among dates, None becomes NaT.
            numbers[missing] = None
        return numbers

    def intervals(self, condition: Any) -> list[tuple[int, int]]:
        """Return the codes that a condition allows, as `TableSchema.intervals`."""
        if isinstance(condition, tuple) and self.kind == NUMERIC:
            return [self._interval_of(condition)]
        codes = sorted({self._code_of(value) for value in _condition_values(condition)})
        if not codes:
            raise ValueError(f"the condition on column {self.name!r} allows no value: name one.")
        return [(code, code + 1) for code in codes]

    def conditioned(self, numbers: np.ndarray, codes: np.ndarray, condition: Any) -> np.ndarray:
        """Return values, of allowed codes, moved to values that a condition allows.

        Several real numbers share a code, so an allowed code may hold others. Changes `numbers` in
        place.
        """
        if self.kind != NUMERIC or self.integer:
            return numbers
        if isinstance(condition, tuple):
            return np.clip(numbers, *condition)
        for value in _condition_values(condition):
            # A code has many numbers, and the condition names one of them.
            numbers[codes == self._code_of(value)] = math.nan if value is None else value
        return numbers

    def plain(self) -> dict:
        """Return the declaration of this column, with its name, in the form of JSON."""
        others = {"dtype": self.dtype, "other": self.other}
        declared: dict = {"name": self.name, "missing": self.missing}
        declared |= {key: value for key, value in others.items() if value is not None}
        if self.kind != NUMERIC:
            return declared | {LABEL_KEYS[self.kind]: list(self.values)}
        if self.unit is not None:
            # In text, JSON keeps dates exactly, whatever the unit.
            ends = [format_date(int(end), self.unit) for end in (self.low, self.high)]
            return declared | {"bounds": ends, "unit": self.unit}
        declared |= {"bounds": [self.low, self.high], "integer": self.integer}
        return declared if self.scale == LINEAR else declared | {"scale": self.scale}

    def _number_of(self, value: Any) -> Any:
        """Return a user's value as a number of this column; None if that is impossible."""
        if self.unit is not None:
            return date_number(value, self.unit)
        return value if isinstance(value, Real) and not isinstance(value, bool) else None

    @property
    def _scaled_bounds(self) -> tuple[float, float]:
        """Return the positions of the bounds on the scale."""
        ends = scaled(np.array([self.low, self.high], dtype=np.float64), self.scale, self.low)
        return float(ends[0]), float(ends[1])

    def _code_of(self, value: Any) -> int:
        """Return the code of a value in a condition, or raise."""
        code = -2
        if value is None or (isinstance(value, float) and math.isnan(value)):
            code = self.n_known if self.missing else -1
        elif self.kind != NUMERIC:
            code = int(self.codes(objects([value]))[0])
        elif (number := self._number_of(value)) is not None and self.low <= number <= self.high:
            if not self.integer or number == math.floor(number):
                code = int(self.codes(np.array([number], dtype=np.float64))[0])
        if code >= 0:
            return code
        raise ValueError(
            f"column {self.name!r} is not declared to hold {to_display(value)}. A condition is a "
            "value, a list of values, None for missing ones, or for numbers a tuple (low, high)."
        )

    def _interval_of(self, condition: tuple) -> tuple[int, int]:
        """Return the codes of a range (low, high), or raise."""
        ends: list[Any] = [self._number_of(value) for value in condition]
        # The last day of a range is part of it with all of its hours.
        if len(ends) == 2 and self.unit is not None:
            ends[1] = last_number(condition[1], self.unit)
        if len(ends) != 2 or None in ends or not ends[0] <= ends[1]:
            raise ValueError(f"a range of column {self.name!r} is (low, high), got {condition!r}.")
        low, high = max(ends[0], self.low), min(ends[1], self.high)
        if self.integer and low <= high:
            # Integers in (17.2, 20.9) are 18 to 20: rounding would add 17 and 21.
            low, high = math.ceil(low), math.floor(high)
        if low > high:
            raise ValueError(
                f"column {self.name!r} is not declared to hold values in {condition!r}."
            )
        codes = self.codes(np.array([low, high], dtype=np.float64)).tolist()
        return codes[0], codes[1] + 1


def column_index(key: Any, columns: list[Column]) -> int | None:
    """Return the position of the column with this name or position in X; None without one."""
    names = [column.name for column in columns]
    # Integers are names where columns are named by them: others of X may have that name.
    are_names = any(isinstance(name, Integral) for name in names)
    for keys in (names, [] if are_names else [column.position for column in columns]):
        if key in keys:
            return keys.index(key)
    return None


def _condition_values(condition: Any) -> list:
    """Return the values that a condition names."""
    return list(condition) if isinstance(condition, list | np.ndarray) else [condition]


# Scales
# ------


def scaled(values: np.ndarray, scale: str, low: float) -> np.ndarray:
    """Return the positions of a column's numbers on its scale, in the same order.

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
    # The logarithm has no position for 0 and below.
    return np.log(values) if low > 0 else np.sign(values) * np.log1p(np.abs(values))


def simplest_number(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return numbers in [low, high) with as few decimals as possible.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._column import simplest_number
    >>> simplest_number(np.array([74.9996, 0.1231, 2.0]), np.array([75.0002, 0.1241, 2.0]))
    array([75.   ,  0.124,  2.   ])
    """
    numbers, remaining = np.array(low, dtype=np.float64), np.asarray(low < high)
    # Doubles have 15 digits that can be trusted.
    for n_decimals in range(-15, 16):
        power = 10.0 ** abs(n_decimals)
        candidates = (
            np.ceil(low / power) * power if n_decimals < 0 else np.ceil(low * power) / power
        )
        fits = remaining & (candidates >= low) & (candidates < high)
        numbers[fits] = candidates[fits]
        remaining = remaining & ~fits
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
        # This step is ten to a hundred times the range: few ranges hold a multiple of it.
        power = 10.0 ** (np.floor(-np.log10(high - low)) - 1)
        steps = np.ceil(low * power)
        short = np.where(power < 1, steps * (1 / power), steps / power)
    return np.where((short >= low) & (short < high), short, np.nan)


def unscaled(positions: np.ndarray, scale: str, low: float) -> np.ndarray:
    """Return the numbers at positions on a scale.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._column import unscaled
    >>> unscaled(np.log([2.0, 8.0]), "log", 1.0).round(9)
    array([2., 8.])
    """
    if scale == LINEAR:
        return positions
    return np.exp(positions) if low > 0 else np.sign(positions) * np.expm1(np.abs(positions))


# Dates and times as whole numbers of a unit, and back
# ----------------------------------------------------


def is_date(value: Any) -> bool:
    """Tell whether a value is a date or time, or ISO text of one."""
    return _as_datetime(value) is not None


def says_time(value: Any) -> bool:
    """Tell whether a date or time, or its text, includes a time of day."""
    return str(value) != format_date(date_number(value, "D"), "D")


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


def last_number(value: Any, unit: str) -> int | None:
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
    return number + int(np.timedelta64(1, "D") / np.timedelta64(1, UNITS[unit])) - 1


def numbers_of_dates(values: Any, unit: str) -> tuple[np.ndarray, bool]:
    """Return dates as doubles, NaN for missing and invalid ones, and whether all are valid.

    `values` are private, in an array or a series of narwhals: of a type of dates, or objects of one
    kind. Text is read as ISO 8601, and times of a zone as local times. The `unit` of the numbers is
    "D", "h", "min" or "s".

    Examples
    --------
    >>> from skdpot.tables._column import numbers_of_dates
    >>> numbers_of_dates(np.array(["1970-01-02", None], dtype=object), "D")
    (array([ 1., nan]), True)
    """

    def plain(part: Any) -> np.ndarray:
        if not isinstance(part, np.ndarray):
            # Local times: a table of one place has its own days.
            is_zoned = getattr(part.dtype, "time_zone", None) is not None
            part = (part.dt.replace_time_zone(None) if is_zoned else part).to_numpy()
        return part.astype(dtype if part.dtype.kind == "M" else object)

    dtype = f"M8[{UNITS[unit]}]"
    values = read_in_parts(plain, values, np.array(["NaT"], dtype))
    if values.dtype.kind == "M":
        return np.where(np.isnat(values), np.nan, values.astype(np.int64)), True
    values = values.tolist()
    numbers = [_number_of(value, unit) for value in values]
    # A single value of another kind turns times into objects, so the type of a frame would reveal
    # it.
    kinds = {result_of(partial(_kind_of, value), None) for value in values if not is_missing(value)}
    valid = None not in numbers and len(kinds) <= 1
    # None becomes NaN.
    return np.array(numbers, dtype=np.float64), valid


def format_date(number: int, unit: str) -> str:
    """Return the ISO text of a date."""
    return str(np.datetime64(int(number), UNITS[unit]))


def _number_of(value: Any, unit: str) -> float | None:
    """Return a date in units, NaN for a missing one, None for another value. No value raises."""
    return result_of(lambda: np.nan if is_missing(value) else date_number(value, unit), None)


def _kind_of(value: Any) -> tuple[type | None, str]:
    """Return the type of dates that all values of a column have, if there is one."""
    kinds = (str, datetime.datetime, datetime.date)
    kind = next((kind for kind in kinds if isinstance(value, kind)), None)
    return kind, str(getattr(value, "tzinfo", None))


def _as_datetime(value: Any) -> np.datetime64 | None:
    """Return a date or time as a local time to the second; None for others."""
    if isinstance(value, np.datetime64):
        seconds = value.astype("datetime64[s]")
        # Beyond the years 1 to 9999, there are no dates of Python, and NumPy's may overflow.
        inside = np.datetime64("0001-01-01") <= seconds < np.datetime64("10000-01-01")
        return seconds if inside else None
    # ISO weeks, and days without dashes, are as likely to be other numbers.
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value):
        with suppress(ValueError):
            value = datetime.datetime.fromisoformat(value)
    if isinstance(value, datetime.datetime):
        # The constructor drops the nanoseconds of a pandas time.
        parts = value.year, value.month, value.day, value.hour, value.minute, value.second
        return np.datetime64(datetime.datetime(*parts), "s")
    return np.datetime64(value, "s") if isinstance(value, datetime.date) else None
