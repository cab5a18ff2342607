"""Dates, times and durations as whole numbers of a unit, and back."""

import datetime
import re
from functools import partial
from typing import Any

import numpy as np

from skdpot.privacy.foreign import result_of
from skdpot.tables._declarations import is_missing, objects

# Users' name of each unit, and NumPy's.
UNITS: dict[str, Any] = {"D": "D", "h": "h", "min": "m", "s": "s"}
DATETIME, DATE, TEXT, TIMEDELTA = "datetime", "date", "text", "timedelta"
_SECONDS = {"D": 86400, "h": 3600, "min": 60, "s": 1}
# Range of Python's dates: years from 1 to 9999.
_FIRST, _LAST = np.datetime64("0001-01-01", "s"), np.datetime64("9999-12-31T23:59:59", "s")
_LONGEST = _LAST - _FIRST
# Durations as Python and pandas write them.
_DURATION = re.compile(r"(?:(-?\d{1,7}) days?(?:, | |$))?(?:\+?(\d{1,9}):(\d\d):(\d\d)(?:\.\d+)?)?")


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
    >>> from skdpot.tables._dates import date_number
    >>> date_number("1970-01-02T12:00", "D"), date_number("1970-01-02", "h")
    (1, 24)
    """
    date = _as_datetime(value)
    return None if date is None else int(date.astype(f"datetime64[{UNITS[unit]}]").astype(int))


def last_number(value: Any, unit: str) -> Any:
    """Return the last number of a range that ends at a date; a day without a time counts whole.

    Examples
    --------
    >>> from skdpot.tables._dates import last_number
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
    >>> from skdpot.tables._dates import duration_number
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
    >>> from skdpot.tables._dates import numbers_of_dates
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
    >>> from skdpot.tables._dates import dates_of_numbers
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
