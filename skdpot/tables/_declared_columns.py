"""The columns that users declare, read one at a time."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot.privacy.quotes import shown
from skdpot.tables._column import LABEL_KEYS, NOMINAL, NUMERIC, ORDINAL, Column
from skdpot.tables._dates import (
    UNITS,
    date_number,
    duration_number,
    is_date,
    is_duration,
    last_number,
    says_time,
)
from skdpot.tables._declarations import LARGEST_BOUND, declared_labels, is_missing
from skdpot.tables._scales import LINEAR, SCALES
from skdpot.tables._types import default_type, holds_integers, is_type
from skdpot.tables._unlearned import Constant, Identifier, Unlearned, is_pattern

# Integers up to this magnitude, and differences of two of them, are doubles.
_LARGEST_INTEGER = 2**51
# Maximum number of steps between bounds, and the rounding error of that number.
_MOST_STEPS, _ROUNDING = 2**40, 1e-6
# Words that are meant as dates.
_LIKE_A_DATE = re.compile(r"\d+[-/.]\d+[-/.]\d+")
HOW_TO_DECLARE = (
    "range(low, high + 1) for integers, (low, high) for real numbers or dates, a list of "
    "categories, or a dict with 'bounds' (and 'integer', 'step', 'scale' or 'unit'), 'levels', "
    "'categories', 'identifier' or 'constant', and with 'missing': True where values may be missing"
)
_WHY_NO_TYPE = (
    "a dtype is the name of a type of pandas, such as 'int16', 'Int64', 'float32', 'category' or "
    "'datetime64[us]', or 'date' or 'text' for dates"
)
# Optional keys of a declaration, by the key that says its kind.
_KEYS: dict[str, set[str]] = {
    "bounds": {"integer", "step", "scale", "unit", "missing", "dtype"},
    "levels": {"missing", "dtype"},
    "categories": {"missing", "dtype"},
    "identifier": set(),
    "constant": set(),
}


def read_column(name: Any, declared: Any) -> Column | Unlearned:
    """Return one column's declaration, or raise."""
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ValueError(f"columns have names of text, or numbers; the schema has {name!r}.")
    in_full = _as_mapping(name, declared)
    keys = set(in_full)
    kinds = keys & _KEYS.keys()
    if len(kinds) != 1 or keys - kinds - _KEYS[min(kinds)]:
        unknown = keys - _KEYS.keys() - set().union(*_KEYS.values())
        why = f"there is no key {shown(min(unknown, key=str))}" if unknown else ""
        raise ValueError(_wrong(name, declared, why))
    if "identifier" in keys:
        return _identifier(name, in_full["identifier"])
    if "constant" in keys:
        return _constant(name, in_full["constant"])
    missing, dtype = in_full.get("missing", False), in_full.get("dtype")
    if not isinstance(missing, bool) or not (dtype is None or is_type(dtype)):
        wrong_type = dtype is not None and not is_type(dtype)
        raise ValueError(_wrong(name, declared, _WHY_NO_TYPE if wrong_type else ""))
    if "bounds" in keys:
        return _column_of_bounds(name, in_full, missing, dtype)
    kind = ORDINAL if "levels" in keys else NOMINAL
    return _labelled(name, kind, in_full[LABEL_KEYS[kind]], missing, dtype)


def names_type(name: Any, declared: Any) -> bool:
    """Tell whether a declaration, which can be read, names the type of its column."""
    return "dtype" in _as_mapping(name, declared)


def _as_mapping(name: Any, declared: Any) -> Mapping:
    """Return a declaration in its dict form, or raise."""
    if isinstance(declared, Mapping):
        return declared
    if isinstance(declared, range):
        if len(declared) < 2 or declared.step != 1:
            why = "a range has the step 1, and at least two integers"
            raise ValueError(_wrong(name, declared, why))
        return {"bounds": (declared[0], declared[-1]), "integer": True}
    if isinstance(declared, tuple):
        if len(declared) == 3 and is_type(declared[0]):
            return {"dtype": declared[0], "bounds": declared[1:]}
        if any(isinstance(value, str) and not is_date(value) for value in declared):
            raise ValueError(_wrong(name, declared, _why_no_bounds(declared)))
        return {"bounds": declared}
    if isinstance(declared, list | np.ndarray):
        return {"categories": declared}
    raise ValueError(_wrong(name, declared))


def _column_of_bounds(name: Any, declared: Mapping, missing: bool, dtype: Any) -> Column:
    """Return the column of numbers, dates or durations with these bounds, or raise."""
    bounds, unit = declared["bounds"], declared.get("unit")
    integer = declared.get("integer", holds_integers(dtype))
    scale = declared.get("scale", LINEAR)
    ends = list(bounds) if isinstance(bounds, tuple | list) else []
    if not isinstance(integer, bool) or scale not in SCALES:
        raise ValueError(_wrong(name, declared))
    dates = len(ends) == 2 and all(map(is_date, ends))
    durations = unit is not None or (len(ends) == 2 and all(map(is_duration, ends)))
    if not dates and not durations:
        column = _numeric(name, bounds, integer, missing, scale, dtype)
        return _stepped(column, declared) if "step" in declared else column
    if unit is None:
        unit = "s" if durations or any(map(says_time, ends)) else "D"
    if (
        not isinstance(unit, str)
        or unit not in UNITS
        or {"integer", "step", "scale"} & declared.keys()
    ):
        why = "dates and durations have a unit 'D', 'h', 'min' or 's', and no scale or step"
        raise ValueError(_wrong(name, declared, why))
    if dates:
        dtype = default_type(ends) if dtype is None else dtype
        ends = [date_number(ends[0], unit), last_number(ends[1], unit)]
    else:
        ends = [duration_number(end, unit) if is_duration(end) else end for end in ends]
    column = _numeric(name, tuple(ends), True, missing, LINEAR, dtype, bounds)
    return replace(column, unit=unit, duration=not dates)


def _why_no_bounds(declared: tuple) -> str:
    """Return the error in a tuple with words that are no dates."""
    words = [value for value in declared if isinstance(value, str) and not is_date(value)]
    like_dates = [word for word in words if _LIKE_A_DATE.match(word)]
    if like_dates or len(words) < len(declared):
        return f"{(like_dates or words)[0]!r} is no date"
    return "categories are a list, not a tuple"


def _numeric(
    name: Any, bounds: Any, integer: bool, missing: bool, scale: str, dtype: Any,
    declared: Any = None,
) -> Column:  # fmt: skip
    kind, largest = (Integral, _LARGEST_INTEGER) if integer else (Real, LARGEST_BOUND)
    ends = list(bounds) if isinstance(bounds, tuple | list) else []
    numbers = len(ends) == 2 and all(isinstance(end, kind) for end in ends)
    if not numbers or not -largest <= ends[0] < ends[1] <= largest:
        reversed_ = numbers and not ends[0] < ends[1]
        given = bounds if declared is None else declared
        raise ValueError(_wrong(name, given, "low must be below high" if reversed_ else ""))
    low, high = (int(end) if integer else float(end) for end in ends)
    return Column(
        name, NUMERIC, missing, low=low, high=high, integer=integer, scale=scale, dtype=dtype
    )


def _stepped(column: Column, declared: Mapping) -> Column:
    """Return a column of real numbers that are multiples of a step above the lowest."""
    step: Any = declared["step"]
    is_one = isinstance(step, int | float) and not isinstance(step, bool) and step > 0
    n_steps = (column.high - column.low) / step if is_one else 0.0
    if column.integer or column.scale != LINEAR:
        why = "a step is for real numbers on a linear scale"
    elif not 1 <= round(n_steps) <= _MOST_STEPS or abs(n_steps - round(n_steps)) > _ROUNDING:
        why = "high must be a whole number of steps above low"
    else:
        return replace(column, step=float(step))
    raise ValueError(_wrong(column.name, declared, why))


def _labelled(name: Any, kind: str, values: Any, missing: bool, dtype: Any) -> Column:
    what = f"{LABEL_KEYS[kind]} of column {name!r}"
    if isinstance(values, list) and any(map(is_missing, values)):
        why = f"{LABEL_KEYS[kind]} are words or numbers, none of them missing (None or NaN)"
        raise ValueError(_wrong(name, values, why))
    labels = declared_labels(values, what)[0].tolist()
    if not labels or not all(map(_is_label, labels)):
        raise ValueError(f"{what} must be a list of words or numbers, got {_declared(values)}.")
    return Column(name, kind, missing, values=tuple(labels), dtype=dtype)


def _identifier(name: Any, pattern: Any) -> Identifier:
    if not is_pattern(pattern):
        why = "an identifier is True, or a pattern with one number, such as 'customer-{:06d}'"
        raise ValueError(_wrong(name, {"identifier": pattern}, why))
    return Identifier(name, pattern)


def _constant(name: Any, value: Any) -> Constant:
    if not _is_label(value):
        raise ValueError(_wrong(name, {"constant": value}, "a constant is a word or a number"))
    return Constant(name, value)


def _is_label(label: Any) -> bool:
    return isinstance(label, str | int) or (isinstance(label, float) and math.isfinite(label))


def _wrong(name: Any, declared: Any, why: str = "") -> str:
    reason = f": {why}" if why else ""
    return (
        f"column {name!r} must be declared as {HOW_TO_DECLARE}; got {_declared(declared)}{reason}."
    )


def _declared(declared: Any) -> str:
    """Return a declaration as text; for a frame's column, which is private, only its type."""
    is_one = isinstance(declared, list | tuple | dict | range)
    return repr(declared) if is_one else shown(declared)
