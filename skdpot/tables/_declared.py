"""Declarations that replace learning from private data, and warnings of what is hard to learn."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdpot.privacy.checks import number_of_label
from skdpot.privacy.quotes import shown, without_quotes

# Squares of larger numbers, and their sums, could overflow.
LARGEST_BOUND = 1e150
# A column with more labels than this share of the rows identifies rows. Many columns of smaller
# tables have as many.
_IDENTIFYING_PART, _FEWEST_ROWS = 0.5, 20
# The share of numbers that are farthest from the mean, and the least share of the variance for
# which their tail is heavy. (One hundredth has 0.08 of the variance of a Gaussian, 0.22 of an
# exponential and 0.5 of a lognormal distribution.) Then the fewest rows, and the fewest different
# numbers, for this check.
_FAR_PART, _HEAVY = 0.01, 0.5
_FEWEST_IN_TAIL, _FEWEST_NUMBERS = 200, 20
# Numbers are crowded if this share of them lies within this share of their bounds.
_USUAL, _CROWDED = 0.9, 0.05
# With more rows, only every second row, every third and so on is used.
_MOST_LOOKED_AT = 5000


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


def doubts_about_identifiers(columns: Iterable[Any], n_records: int) -> str | None:
    """Return a warning about columns with nearly as many labels as rows, or None.

    Labels were declared or found in rows that are not private, and `n_records` is no more private.

    Examples
    --------
    >>> from skdpot.tables import read_schema, doubts_about_identifiers
    >>> columns = read_schema({"name": [f"name {i}" for i in range(90)], "sex": ["F", "M"]}).columns
    >>> doubts_about_identifiers(columns, 100).partition(", like")[0]
    "column 'name' has 90 different labels for 100 rows"
    >>> doubts_about_identifiers(columns, 1000)
    """
    cases = [
        f"column {column.name!r} has {len(column.values)} different labels for {n_records} rows"
        for column in columns
        if len(column.values) > _IDENTIFYING_PART * n_records
    ]
    if not cases or n_records < _FEWEST_ROWS:
        return None
    return (
        f"{'; '.join(cases)}, like an identifier, which has nothing to be learned. Leave it out, "
        "merge its labels, or make it a number."
    )


def doubts_about_heavy_tails(names: Sequence, values: np.ndarray) -> str | None:
    """Return a warning about numbers of which a few have most of the variance, or None.

    `values` of shape (n_rows, n_columns) are not private; missing numbers are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import doubts_about_heavy_tails
    >>> normal = np.random.default_rng(0).normal(size=(1000, 1))
    >>> doubts_about_heavy_tails(["wealth"], normal)
    >>> doubts_about_heavy_tails(["wealth"], np.exp(3 * normal)).partition(". ")[0]
    "the most extreme 1 % of the numbers in column 'wealth' have 96 % of the variance there"
    """
    cases = []
    for name, column in zip(names, values.T, strict=True):
        finite = column[np.isfinite(column)]
        if len(finite) < _FEWEST_IN_TAIL or len(np.unique(finite)) < _FEWEST_NUMBERS:
            continue
        squares = np.sort((finite - finite.mean()) ** 2)
        part = squares[-int(_FAR_PART * len(finite)) :].sum() / squares.sum()
        if part > _HEAVY:
            cases.append(f"column {name!r} have {100 * part:.0f} % of the variance there")
    if not cases:
        return None
    return (
        f"the most extreme {100 * _FAR_PART:.0f} % of the numbers in {'; in '.join(cases)}. A few "
        "rows decide the scale, then. Take the logarithm of such a column, or declare bounds."
    )


def doubts_about_crowding(names: Sequence, values: np.ndarray) -> str | None:
    """Return a warning about numbers that crowd in a small part of their bounds, or None.

    `values` of shape (n_rows, n_columns) are not private, and scaled so that bounds are -1 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import doubts_about_crowding
    >>> even = np.linspace(-1, 1, 500)[:, None]
    >>> doubts_about_crowding(["wealth"], even)
    >>> doubts_about_crowding(["wealth"], 2 * ((even + 1) / 2) ** 80 - 1).partition(". ")[0]
    "90 % of the numbers in column 'wealth' are within 2 % of the bounds"
    """
    if len(values) < _FEWEST_IN_TAIL:
        return None
    values = values[:: -(-len(values) // _MOST_LOOKED_AT)]
    ends = np.quantile(values, [(1 - _USUAL) / 2, (1 + _USUAL) / 2], axis=0)
    widths, cases = (ends[1] - ends[0]) / 2, []
    for name, column, width in zip(names, values.T, widths, strict=True):
        # A logarithm does not help a column that is nearly constant.
        if 0 < width < _CROWDED and len(np.unique(column)) >= _FEWEST_NUMBERS:
            cases.append(f"column {name!r} are within {100 * width:.0f} % of the bounds")
    if not cases:
        return None
    return (
        f"{100 * _USUAL:.0f} % of the numbers in {'; in '.join(cases)}. Such numbers are hardly "
        "distinguished, because the bounds set the scale. Take the logarithm of the column, or "
        "declare narrower bounds."
    )
