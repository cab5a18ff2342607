"""Records and labels: read as private data, and made up to order."""

import math

import numpy as np

from skdpot._base import validate_private_data
from skdpot.tables import check_bounds, declared_labels, label_codes, one_by_one, shown

_WHY_BOUNDS = "Records are scaled by them."
# So many of the largest differences between a record and a point do doubles add up exactly.
_MOST_UNITS = 2**23


def read_records(estimator, X, y, classes, data_bounds, *, reset):
    """Return records scaled to [-1, 1], and the codes of their labels, or None.

    What is wrong raises here. That all numbers are finite, and all labels declared, is public, as
    users are told; nothing else that is private decides whether anything is wrong.
    """
    declared = read_classes(classes)
    if (y is None) != (declared is None):
        raise ValueError(
            "y has labels, and classes are not declared: give all labels that there may be, as "
            "classes=[...]. They may not be learned from private data."
            if declared is None
            else f"{type(estimator).__name__} with classes requires y to be passed, but the target "
            "y is None: give the label of each record."
        )
    X = _read_numbers(estimator, X, reset)
    low, high = read_bounds(data_bounds, X.shape[1])
    points = np.clip(2 * ((X - low) / (high - low)) - 1, -1, 1)
    if declared is None:
        return points, None
    return points, read_codes(y, declared[1], len(X))


def _read_numbers(estimator, X, reset):
    """Return records as numbers, or raise; whoever fits a frame is told of the schema."""
    try:
        return validate_private_data(estimator, X, dtype=np.float64, reset=reset)
    except ValueError as error:
        if not reset or not hasattr(X, "columns"):
            raise
        message = str(error)
    raise ValueError(f"{message.removesuffix('.')}; for a table declare schema={{column: ...}}.")


def read_codes(y, number, n_records):
    """Return the codes of the labels of records, or raise."""
    labels = one_by_one(y)
    if len(labels) != n_records:
        raise ValueError("y must have one label for each row of X.")
    codes = label_codes(labels, number)
    if (codes < 0).any():
        raise ValueError(
            "y has labels that are not among the declared classes. Declare all labels that there "
            "may be, or leave out the records that have others."
        )
    return codes


def read_bounds(data_bounds, n_features):
    """Return the box that records are declared to lie in, or raise."""
    return check_bounds(data_bounds, n_features, _WHY_BOUNDS, "data_bounds")


def read_classes(classes):
    """Return the declared labels with the code of each, None where there are none, or raise."""
    if classes is None:
        return None
    names, number = declared_labels(classes, "classes")
    if not number:
        raise ValueError("classes must name at least one label, or be None.")
    return names, number


def without_sizes(function, *arguments):
    """Return what a function returns; that memory is short is told without sizes.

    Those of classes, and of all records, are private.
    """
    try:
        return function(*arguments)
    except MemoryError:
        pass
    # Outside of the handler, so that the error in question is no context of this one.
    raise MemoryError(
        "the records do not fit into memory, as they are needed for a sketch: use fewer of them, "
        "or fewer coefficients."
    )


def from_unit_box(rows, box):
    """Return rows of [-1, 1] as records."""
    low, high = box
    return np.clip(low + (rows + 1) / 2 * (high - low), low, high)


def check_exactness(gradient, l1_weight, sampling_rate, n_records):
    """Raise where a sample may have more records than doubles add up exactly.

    The number of records in a sample exceeds the bound with a probability below 1e-20.
    """
    mean = sampling_rate * n_records
    sampled = min(n_records, mean + 10 * math.sqrt(mean) + 100)
    if gradient == "per_record" and sampled * (4 + l1_weight) >= _MOST_UNITS:
        raise ValueError(
            "samples may have more records than can be added up exactly, which are 2**23 / (4 + "
            "l1_weight): choose a smaller sampling_rate."
        )


def wanted_labels(n_samples, y, classes, rng, counts=None):
    """Return the codes of the labels that are asked for; None where there are no classes.

    Where none are, they are in proportion to counts of the classes, or equally frequent.
    """
    if y is None:
        check_count(n_samples)
    if classes is None:
        if y is not None:
            raise ValueError("y asks for labels, and the generator was fitted without classes.")
        return None
    if y is None and counts is not None:
        return rng.choice(len(classes), n_samples, p=counts / counts.sum())
    if y is None:
        return rng.permutation(np.arange(n_samples) % len(classes))
    number = declared_labels(classes, "classes")[1]
    labels, counts = (list(y), list(y.values())) if isinstance(y, dict) else (y, 1)
    codes = label_codes(one_by_one(labels), number)
    if not len(codes) or (codes < 0).any():
        raise ValueError(f"y must ask for labels among {classes.tolist()}, got {shown(y)}.")
    if not all(_is_count(n, 0) for n in np.atleast_1d(counts)):
        raise ValueError(f"y must give the number of records of each label, got {shown(y)}.")
    return np.repeat(codes, counts)


def check_count(n_samples):
    """Return a number of samples, or raise."""
    if not _is_count(n_samples, 1):
        raise ValueError(f"n_samples must be an integer of at least 1, got {shown(n_samples)}.")
    return n_samples


def _is_count(value, least):
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least
