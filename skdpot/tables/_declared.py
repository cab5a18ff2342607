"""Declarations that replace learning from private data: bounds, and lists of labels."""

from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdpot.privacy.checks import number_of_label
from skdpot.privacy.quotes import shown, without_quotes

# Squares of larger numbers, and their sums, could overflow.
LARGEST_BOUND = 1e150


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
        f"{shown(bounds)}. A pair for each feature becomes such bounds by zip(*pairs)."
    )
    if isinstance(bounds, dict):
        raise ValueError(
            f"{message} Bounds by column are declared by schema={{column: (low, high)}}, or as two "
            "lists in the order of the columns."
        )
    try:
        low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
        # Copies: the caller may change the arrays later.
        low, high = (np.array(np.broadcast_to(bound, n_features)) for bound in (low, high))
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    with np.errstate(all="ignore"):
        widths = high - low
    if not ((np.abs([low, high]) <= LARGEST_BOUND).all() and (widths > 0).all()):
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
        number = {label: g for g, label in enumerate(given.tolist())}
        different = names.ndim == 1 and len(number) == len(given)
        different = different and all(label == label for label in number)
    except (TypeError, ValueError):
        different = False
    # Raised outside of the handler, so that an error that may quote labels is not its context.
    if not different:
        raise ValueError(
            f"{name} must be a list of different labels, none of them missing (None or NaN), got "
            f"{shown(labels)}."
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
    codes = [number_of_label(label, number) for label in labels.tolist()]
    return np.array(codes, dtype=np.intp)


def one_by_one(labels: Any) -> np.ndarray:
    """Return labels as objects, so that no label changes the type of others.

    Examples
    --------
    >>> from skdpot.tables import one_by_one
    >>> one_by_one([1, "a"])
    array([1, 'a'], dtype=object)
    """
    if isinstance(labels, list | tuple):
        return objects(labels)
    dtype = getattr(labels, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        # In other units, dates become integers, or dates that equal no times.
        labels = np.asarray(labels, dtype="datetime64[us]")
    return without_quotes(
        lambda: column_or_1d(labels, dtype=object, warn=True),
        "labels cannot be read as one for each row.",
    )


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
