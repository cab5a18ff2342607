"""Tables made of columns: pandas and polars data frames, and arrays."""

import datetime
import importlib
from typing import Any

import numpy as np

from skdpot.tables._containers import labels_in

# Beginnings of the names of polars' numeric types.
_NUMBERS = ("Int", "UInt", "Float")


def make_table(
    container: str, names: Any, columns: list[np.ndarray], dtypes: Any = None, index: Any = None
) -> Any:
    """Return columns of numbers or objects as a table.

    The container is "array", "pandas" or "polars". None in a column of objects is a missing value.
    `dtypes` are the types that columns of objects get if these hold all values; words are those of
    pandas. None, and types of the other library, leave the choice to the library. An array is of
    numbers if all columns are, else of objects.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import make_table
    >>> columns = [np.array([30, 40]), np.array(["F", "M"], dtype=object)]
    >>> make_table("array", ["age", "sex"], columns)
    array([[30, 'F'],
           [40, 'M']], dtype=object)
    """
    if container == "array":
        return as_array(columns)
    pairs = list(zip(names, columns, dtypes or [None] * len(columns), strict=True))
    try:
        library: Any = importlib.import_module(container)
    except ImportError:
        raise ImportError(
            f"the sketch was made of a {container} DataFrame, and draws one: install {container}, "
            "or load(path, container='array')."
        ) from None
    if container == "polars":
        return library.DataFrame([_polars_series(library, *pair) for pair in pairs])
    series = [_pandas_series(library, column, dtype) for _, column, dtype in pairs]
    frame = library.concat(series, axis=1, keys=[name for name, *_ in pairs])
    return frame if index is None else frame.set_axis(index)


def as_array(columns: list[np.ndarray]) -> np.ndarray:
    """Return columns as one array: of numbers if all are numbers, else of objects."""
    if all(column.dtype != object for column in columns):
        return np.column_stack(columns)
    array = np.empty((len(columns[0]), len(columns)), dtype=object)
    for j, column in enumerate(columns):
        array[:, j] = column.tolist()
    return array


def _pandas_series(pandas: Any, values: np.ndarray, dtype: Any) -> Any:
    """Return a pandas series with a type, or with an inferred one if that cannot hold it."""
    dtype = dtype.in_library(pandas) if hasattr(dtype, "in_library") else dtype
    if isinstance(dtype, str):
        return _named_series(pandas, values, dtype)
    if values.dtype != object:
        return pandas.Series(values)
    if dtype is None or not hasattr(dtype, "type"):
        return pandas.Series(values.tolist())
    column = pandas.Series(values)
    known = column.dropna()
    if hasattr(dtype, "categories"):
        return column.astype(dtype) if known.isin(dtype.categories).all() else column
    try:
        typed = column.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return column
    same = typed.isna().equals(column.isna()) and (typed[known.index] == known).all()
    return typed if same else column


def _named_series(pandas: Any, values: np.ndarray, dtype: str) -> Any:
    """Return a series with a pandas type that holds all values, or with an inferred one."""
    plain = values.tolist() if values.dtype == object else values
    try:
        zone = dtype.removesuffix("]").partition(", ")[2]
        if zone:
            # Some times do not exist when clocks go forward, and some exist twice when they go
            # back.
            earlier = np.ones(len(plain), dtype=bool)
            moments = pandas.Series(plain).dt.tz_localize(zone, earlier, "shift_forward")
            return moments.astype(dtype)
        return pandas.Series(plain, dtype=dtype)
    except (TypeError, ValueError, OverflowError, KeyError):
        return pandas.Series(plain)


def _polars_series(polars: Any, name: Any, values: np.ndarray, dtype: Any) -> Any:
    """Return a polars series with a type, or with an inferred one if that cannot hold it."""
    # A type that is asked for by its name can hold all values.
    named = isinstance(dtype, str)
    if named:
        dtype = _type_of_polars(polars, dtype)
    elif hasattr(dtype, "in_library"):
        dtype = dtype.in_library(polars)
    if values.dtype != object:
        series = polars.Series(name, values, nan_to_null=True)
        if dtype is None or not named:
            return series
        if getattr(dtype, "time_zone", None):
            series = _in_zone(series, dtype.time_zone)
        return series.cast(dtype)
    plain = labels_in(values).tolist()
    if hasattr(dtype, "is_numeric"):
        try:
            return polars.Series(name, plain, dtype=dtype)
        except (TypeError, OverflowError, polars.exceptions.PolarsError):
            pass
    return polars.Series(name, plain, strict=False)


def _in_zone(series: Any, zone: str) -> Any:
    """Return a polars series of local times as times of a zone."""
    hour = datetime.timedelta(hours=1)
    # Some times do not exist when clocks go forward, and some exist twice when they go back.
    times, later = (
        local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        for local in (series, series + hour)
    )
    return times.zip_with(times.is_not_null(), later)


def _type_of_polars(polars: Any, name: str) -> Any:
    """Return the polars type for the name of a pandas type, None if there is none."""
    kind, _, unit_and_zone = name.removesuffix("]").partition("64[")
    unit, _, zone = unit_and_zone.partition(", ")
    if kind in ("datetime", "timedelta"):
        unit = unit if unit in ("ms", "us", "ns") else "us"
        duration = kind == "timedelta"
        return polars.Duration(unit) if duration else polars.Datetime(unit, zone or None)
    known = name.capitalize().replace("Uint", "UInt")
    return getattr(polars, known, None) if known.rstrip("123468") in _NUMBERS else None
