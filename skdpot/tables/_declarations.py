"""What users declare instead of having it learned from private data: bounds, and labels."""

from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdpot.privacy.labels import number_of_label

# Squares of larger ones, and their sums, could be beyond the range of doubles.
_LARGEST_BOUND = 1e150


def check_bounds(
    bounds: Any, n_features: int, why: str, name: str = "bounds"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the box of the bounds as two vectors, or raise.

    Parameters
    ----------
    bounds : tuple of (float or array-like, float or array-like)
        Lower and upper bounds, each a number or one per feature.
    n_features : int
        Number of features.
    why : str
        What they are needed for, for the message if they are missing.
    name : str, default="bounds"
        The parameter that they were given as, for the messages.

    Returns
    -------
    low, high : ndarray of shape (n_features,)
        The corners of the box.

    Raises
    ------
    ValueError
        If there are none, or they are no bounds.

    Examples
    --------
    >>> from skdpot.tables._declarations import check_bounds
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
        f"{bounds!r}."
    )
    try:
        low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
        low, high = (np.array(np.broadcast_to(bound, n_features)) for bound in (low, high))
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    with np.errstate(all="ignore"):
        widths = high - low
    if not ((np.abs([low, high]) <= _LARGEST_BOUND).all() and (widths > 0).all()):
        raise ValueError(message)
    return low, high


def declared_labels(labels: Any, name: str) -> tuple[np.ndarray, dict[Any, int]]:
    """Return declared labels as an array, and the number of each.

    Parameters
    ----------
    labels : array-like of shape (n_labels,)
        Different from one another.
    name : str
        The parameter that they were given as, for the message.

    Returns
    -------
    names : ndarray of shape (n_labels,)
        The labels.
    number : dict
        The position of each.

    Raises
    ------
    ValueError
        If they are no list of different labels.

    Examples
    --------
    >>> from skdpot.tables._declarations import declared_labels
    >>> declared_labels(["b", "a"], "groups")[1]
    {'b': 0, 'a': 1}
    """
    try:
        names = np.asarray(labels)
        if names.ndim != 1:
            raise ValueError("labels are numbers, words, or the like.")
        given = one_by_one(labels)
        number = {label: g for g, label in enumerate(given.tolist())}
        if len(number) < len(given) or any(label != label for label in number):
            raise ValueError("some labels are equal to others, or not to themselves.")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of different labels, got {labels!r}.") from error
    if names.dtype.kind == "U" and not all(isinstance(label, str) for label in number):
        names = given
    return names, number


def label_codes(labels: np.ndarray, number: dict[Any, int]) -> np.ndarray:
    """Return the number of each label, and -1 for what is none of them; nothing raises.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Private, as of `one_by_one`.
    number : dict
        Of `declared_labels`.

    Returns
    -------
    ndarray of shape (n,)
        Integers.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._declarations import label_codes
    >>> label_codes(np.array(["a", ["b"], None, "b"], dtype=object), {"a": 0, "b": 1})
    array([ 0, -1, -1,  1])
    """
    codes = [number_of_label(label, number) for label in labels.tolist()]
    return np.array(codes, dtype=np.intp)


def one_by_one(labels: Any) -> np.ndarray:
    """Return labels as objects, so that one of another type changes none of the others.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Private, perhaps.

    Returns
    -------
    ndarray of shape (n,), dtype object
        The same labels.

    Examples
    --------
    >>> from skdpot.tables._declarations import one_by_one
    >>> one_by_one([1, "a"])
    array([1, 'a'], dtype=object)
    """
    if isinstance(labels, list | tuple):
        return np.fromiter(labels, dtype=object, count=len(labels))
    dtype = getattr(labels, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        # What becomes of other units are integers, or dates that equal no times.
        labels = np.asarray(labels, dtype="datetime64[us]")
    return column_or_1d(labels, dtype=object, warn=True)


def objects(values: Any) -> np.ndarray:
    """Return values as an array of objects, whatever they are.

    Parameters
    ----------
    values : sequence or ndarray
        Values, perhaps lists themselves.

    Returns
    -------
    ndarray of shape (n,), dtype object
        The same.

    Examples
    --------
    >>> from skdpot.tables._declarations import objects
    >>> objects([1, "a", None])
    array([1, 'a', None], dtype=object)
    """
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def is_missing(value: Any) -> bool:
    """Tell whether a value is that of pandas, Python or floating point for none at all.

    Parameters
    ----------
    value : object
        Private, perhaps; nothing raises.

    Returns
    -------
    bool
        Whether it is.

    Examples
    --------
    >>> from skdpot.tables._declarations import is_missing
    >>> [is_missing(value) for value in (None, float("nan"), "nan")]
    [True, True, False]
    """
    try:
        return value is None or bool(value != value)
    except TypeError:
        # The missing value of pandas equals nothing, and does not say that it does not.
        return True
    except Exception:
        # What cannot be compared is a label, which will be found to be none of the known ones.
        return False
