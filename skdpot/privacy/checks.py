"""Checks of public parameters, which may raise, and of private values, which do not."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot.privacy.foreign import shown, without_quotes

# All integers up to here are doubles.
_LARGEST_EXACT = 2**53


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless a value is one of a few words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}.")


def check_flag(name: str, value: Any) -> None:
    """Raise unless a value is True or False; any text would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {shown(value)}.")


def real_number(value: Any) -> float:
    """Return a number as a double; NaN for other objects and for numbers beyond all doubles."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def check_positive(name: str, value: Any) -> float:
    """Return a finite number above zero as a float, or raise."""
    number = real_number(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, got {shown(value)}.")
    return number


def check_probability(name: str, value: Any) -> None:
    """Raise unless a value is a number in [0, 1)."""
    if not 0 <= real_number(value) < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {shown(value)}.")


def check_delta(value: Any, name: str = "delta") -> float:
    """Return a probability strictly between zero and one as a float, or raise."""
    number = real_number(value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {shown(value)}.")
    return number


def check_count(name: str, value: Any) -> int:
    """Return an integer of at least one, or raise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {shown(value)}.")
    return int(value)


def private_vector(values: Any, n_coordinates: int) -> np.ndarray:
    """Return private numbers as doubles; raise if there are more than the noise is made for."""
    doubles = private_doubles(values)
    # Shapes are public; more numbers would have more than the declared sensitivity.
    if doubles.size > n_coordinates:
        raise ValueError(
            f"a value of {doubles.size} numbers is too long for noise with "
            f"n_coordinates={n_coordinates}. Create the mechanism for as many coordinates, with "
            "their joint sensitivity."
        )
    return doubles


def private_doubles(values: Any) -> np.ndarray:
    """Return private numbers as an array of doubles, for any kind of numbers.

    Missing values become NaN, and numbers beyond the range of doubles become infinite. An error on
    only one of two neighbouring data sets would distinguish them. Integers beyond ``2**53`` are
    moved there, also beside other numbers in a list, since neighbours that are 1 apart could become
    doubles that are further apart.

    Raises
    ------
    TypeError
        If they are of a kind that no real numbers are of: text, or complex numbers.
    """
    with np.errstate(all="ignore"):
        array = without_quotes(lambda: _unrounded(values), "private values must be real numbers.")
        if array.dtype.kind in "cSTU" or (
            array.dtype == object
            and any(
                isinstance(value, (str, bytes, complex, np.complexfloating)) for value in array.flat
            )
        ):
            raise TypeError("private values must be real numbers, and not text or complex numbers.")
        if array.dtype == object:
            array = np.array([_double(value) for value in array.flat]).reshape(array.shape)
        elif array.dtype.kind == "u":
            array = np.minimum(array.astype(np.uint64), np.uint64(_LARGEST_EXACT))
        elif array.dtype.kind == "i":
            array = np.clip(array.astype(np.int64), -_LARGEST_EXACT, _LARGEST_EXACT)
        return array.astype(np.float64)


def _unrounded(values: Any) -> np.ndarray:
    """Return an array, in which integers of a mixed list are not rounded.

    NumPy turns them into doubles, and also integers that have no common integer type.
    """
    array = np.asarray(values)
    if isinstance(values, (list, tuple)) and array.dtype.kind == "f":
        if (np.abs(array) >= _LARGEST_EXACT).any():
            return np.asarray(values, dtype=object)
    return array


def _double(value: Any) -> float:
    if isinstance(value, Integral):
        return float(max(-_LARGEST_EXACT, min(int(value), _LARGEST_EXACT)))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def number_of_label(label: Any, number: Mapping[Any, int]) -> int:
    """Return the number of a private label, -1 if it is not declared, without errors.

    Examples
    --------
    >>> from skdpot.privacy.checks import number_of_label
    >>> [number_of_label(label, {"a": 0, "b": 1}) for label in ("b", None, ["a"])]
    [1, -1, -1]
    """
    try:
        return number.get(label, -1)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Foreign objects can raise anything when they are hashed or compared, also an exit.
        # A value that cannot be looked up is no declared label. An error would reveal it.
        return -1
