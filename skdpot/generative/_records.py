"""Vectors and images: their declaration, reading, generated ones, and their score."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from skdpot._base import count_columns, validate_private_data
from skdpot.generative._encoders import RecordSpace
from skdpot.generative._images import blocks, whole_shape
from skdpot.generative._network import TrainedNetwork
from skdpot.privacy.checks import check_count
from skdpot.privacy.quotes import shown, without_quotes
from skdpot.tables import (
    as_numbers,
    check_bounds,
    declared_labels,
    label_codes,
    one_by_one,
    refuse_other_labels,
)
from skdpot.transport.sinkhorn import entropic_transport

# Of images, whose pixels are floating-point numbers unless bounds are declared.
DEFAULT_BOUNDS = (0, 1)


@dataclass(frozen=True)
class Declared:
    """Users' declarations of records: public, and read once the number of features is known."""

    bounds: Any = None
    classes: Any = None
    image_shape: Any = None
    schema: Any = None
    target: Any = None
    rules: Any = None
    computed: Any = None

    def refuse(self, by: str, *names: str) -> None:
        """Raise where something is declared that a model is not for."""
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is declared, but {by} is for records without {name}. Leave it out, or "
                    "choose another model (model='auto' chooses by the declarations)."
                )

    def space(self, n_features: int) -> RecordSpace:
        """Return the declaration of records with so many features, or raise."""
        shape = None if self.image_shape is None else whole_shape(self.image_shape, n_features)
        classes = read_classes(self.classes)
        of_images = DEFAULT_BOUNDS if shape is not None and self.bounds is None else self.bounds
        why_bounds = (
            "Records are scaled by them, and cut to them: grey values have (0, 1), or (0, 255), "
            "people's heights and weights ([100, 30], [220, 200]). For a table declare "
            "schema={column: ...} instead."
        )
        box = check_bounds(of_images, n_features, why_bounds)
        return RecordSpace(box, shape, None if classes is None else classes[0])


@dataclass(frozen=True, eq=False)
class ScaledRecords:
    """Private records that are scaled to [-1, 1] where they are asked for.

    Scaled copies of all of them at once may need several times their memory.

    Attributes
    ----------
    space : RecordSpace
        Public.
    records : ndarray of shape (n_records, n_features)
        Private, in the units and the type of the data.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._encoders import RecordSpace
    >>> from skdpot.generative._records import ScaledRecords
    >>> space = RecordSpace((np.zeros(2), np.full(2, 255.0)))
    >>> scaled = ScaledRecords(space, np.array([[0, 255], [51, 0]], dtype=np.uint8))
    >>> scaled[1:]
    array([[-0.6, -1. ]])
    """

    space: RecordSpace
    records: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of records and of features."""
        n_records, n_features = self.records.shape
        return n_records, n_features

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.space.points(self.records[rows])


@dataclass(frozen=True, eq=False)
class Points:
    """Private records that were read.

    Attributes
    ----------
    space : RecordSpace
        Public.
    points : ScaledRecords
        Private: those with a declared label. Others count nowhere.
    codes : ndarray of shape (n_records,) or None
        Private: the codes of their labels.
    n_read : int
        How many were read, also of those that count nowhere.
    """

    space: RecordSpace
    points: ScaledRecords
    codes: np.ndarray | None
    n_read: int

    @property
    def labels(self) -> np.ndarray:
        """Return the codes, which are all 0 without labels."""
        return np.zeros(len(self.points), dtype=np.intp) if self.codes is None else self.codes


def read_points(
    estimator: Any, X: Any, y: Any, declared: Declared, *, reset: bool, private: bool = False
) -> Points:
    """Return records and labels, or raise; if `private`, no value decides about an error.

    Then NaN stands for values that are no numbers, and records with undeclared labels are left out.
    """
    read = as_numbers if private else None
    # Numbers of these types are read without a copy; others become the first.
    kinds = (np.float64, np.float32, np.uint8)
    instead = {
        "Found array with dim": (
            "X must have two dimensions, one row per record. Flatten images, as by "
            "np.reshape(X, (len(X), -1)), and declare their image_shape=(height, width), or "
            "(height, width, channels)."
        )
    }
    try:
        numbers = validate_private_data(
            estimator, X, instead=instead, as_numbers=read, dtype=kinds, reset=reset
        )
    except ValueError as error:
        # A user who fits a frame gets a hint at the schema.
        if not reset or not hasattr(X, "columns"):
            raise
        message = f"{str(error).removesuffix('.')}; for a table declare schema={{column: ...}}."
    else:
        n_read = len(numbers)
        codes = _read_labels(estimator, y, declared.classes, n_read, private)
        # Left out and not refused: an error would tell of a single record.
        if codes is not None and (codes < 0).any():
            numbers, codes = numbers[codes >= 0], codes[codes >= 0]
        space = declared.space(numbers.shape[1])
        if reset and declared.bounds is None and getattr(X, "dtype", np.dtype(float)).kind in "iu":
            raise ValueError(
                "images of integers need bounds, since the default is (0, 1) and larger values "
                "would be clipped: declare bounds=(0, 255) for 8 bits, or bounds=(0, 1) for masks."
            )
        return Points(space, ScaledRecords(space, numbers), codes, n_read)
    # Outside of the handler, so that no error with private values is the context of this one.
    raise ValueError(message)


def _read_labels(estimator, y, classes, n_records, private):
    """Return the codes of labels, None without labels, or raise."""
    if classes is None:
        if y is not None:
            raise ValueError(
                "y has labels, but classes are not declared: give all possible labels, as "
                "classes=[...]. They may not be learned from private data."
            )
        return None
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} with classes requires y to be passed, but the target y "
            "is None: give the label of each record."
        )
    return read_codes(y, read_classes(classes)[1], n_records, private)


def unseen_points(declared: Declared, columns: Any) -> Points:
    """Return records that are known only by their declaration, or raise."""
    d = None if declared.image_shape is None else int(np.prod(declared.image_shape))
    space = declared.space(count_columns(columns, d))
    return Points(space, ScaledRecords(space, np.empty((0, 0))), None, 0)


def read_codes(y, number, n_records, private):
    """Return the codes of the labels of records, or raise; if `private`, -1 for undeclared ones."""
    codes = label_codes(read_each(y, n_records), number)
    if private:
        refuse_other_labels(y, number, "y")
    elif (codes < 0).any():
        raise ValueError(
            "y has labels that are not among the declared classes. Declare all possible labels, or "
            "leave out the records with others."
        )
    return codes


def read_each(y, n_records):
    """Return the label of each record in y as objects, or raise."""
    if np.ma.isMaskedArray(y):
        raise TypeError("y is a masked array, whose mask would be lost: use NaN, or None.")
    labels = without_quotes(
        lambda: one_by_one(y),
        "y cannot be read as labels.",
        # It says how many records there are.
        instead={"y should be a 1d": "y should be a 1d array, with one label for each record."},
    )
    if len(labels) != n_records:
        raise ValueError("y must have one label for each row of X.")
    return labels


def read_classes(classes):
    """Return the declared labels with the code of each, None without any, or raise."""
    if classes is None:
        return None
    names, number = declared_labels(classes, "classes")
    if not number:
        raise ValueError("classes must name at least one label, or be None.")
    return names, number


def wanted_labels(n_samples, y, classes, rng, counts=None):
    """Return the codes of the labels that are asked for; None where there are no classes.

    Where none are, they are in proportion to counts of the classes, or equally frequent.
    """
    if y is None:
        check_count("n_samples", n_samples)
    if classes is None:
        if y is not None:
            raise ValueError(
                "y asks for labels, and the generator was fitted without classes. Leave y out; "
                "where a table has a target, ask for its values with given={column: value}."
            )
        return None
    if y is None and counts is not None:
        return rng.choice(len(classes), n_samples, p=counts / counts.sum())
    if y is None:
        # No shares of classes were released.
        return rng.permutation(np.arange(n_samples) % len(classes))
    if isinstance(y, str):
        raise ValueError("y must be a list of labels, or a dict {label: number}, got a text.")
    number = declared_labels(classes, "classes")[1]
    labels, counts = (list(y), list(y.values())) if isinstance(y, dict) else (y, 1)
    codes = label_codes(one_by_one(labels), number)
    if not len(codes) or (codes < 0).any():
        raise ValueError(f"y must ask for labels among {classes.tolist()}, got {shown(y)}.")
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in np.atleast_1d(counts)):
        raise ValueError(f"y must give the number of records of each label, got {shown(y)}.")
    return np.repeat(codes, counts)


# More are represented by so many when a score is computed.
SCORED_ROWS = 2000


def mean_squared_costs(rows, columns, row_labels=None, column_labels=None):
    """Return mean squared differences of features, and 4 more between labels that differ."""
    costs = euclidean_distances(rows, columns, squared=True) / rows.shape[1]
    if row_labels is not None:
        # Cost of a row of another class: as if all features were at the other ends of their ranges.
        other_class = 4.0
        costs += other_class * (row_labels[:, None] != column_labels)
    return costs


def sinkhorn_divergence(rows, columns, row_labels=None, column_labels=None, *, reg):
    """Return the debiased transport cost between rows of [-1, 1]; zero between equal ones."""
    sets = {"rows": (rows, row_labels), "columns": (columns, column_labels)}

    def transport(one, other):
        (x, x_labels), (y, y_labels) = sets[one], sets[other]
        costs = mean_squared_costs(x, y, x_labels, y_labels)
        a, b = (np.full(n, 1 / n) for n in costs.shape)
        return entropic_transport(costs, a, b, reg, 1e-3).cost

    within = transport("rows", "rows") + transport("columns", "columns")
    return transport("rows", "columns") - within / 2


@dataclass(frozen=True, eq=False)
class FittedRecords:
    """The source of records: a sketch, or a network; all of it was released, or is public.

    Attributes
    ----------
    space : RecordSpace
        Public.
    sketch : ReleasedVectors or None
        None where a network was trained on records.
    network : TrainedNetwork or None
        Makes the samples, if there is one.
    """

    space: RecordSpace
    sketch: Any
    network: TrainedNetwork | None

    @property
    def classes(self) -> np.ndarray | None:
        """Return the declared labels."""
        return self.space.classes

    @property
    def n_records(self) -> int | None:
        """Return how many records there are, about, where that was released."""
        return None if self.sketch is None else self.sketch.n_records

    def sample(self, n_samples: Any, y: Any, given: Any, rng: Any, device: Any) -> Any:
        """Return records, with their labels if there are any."""
        if given is not None:
            raise ValueError("given is for tables, with a schema; use y for labels.")
        counts = None if self.sketch is None else self.sketch.counts
        codes = wanted_labels(n_samples, y, self.classes, rng, counts)
        rows = self._rows(n_samples if codes is None else len(codes), codes, rng, device)
        X = np.asarray(rows, dtype=np.float64)
        for block in blocks(*X.shape):
            X[block] = self.space.records(X[block])
        return X if self.classes is None else (X, self.classes[codes])

    def prototypes(self) -> Any:
        """Return the means of clusters as records, with their labels if there are any."""
        rows, codes = self.sketch.prototypes()
        X = self.space.records(rows)
        return X if self.classes is None else (X, self.classes[codes])

    def score(self, estimator: Any, X: Any, y: Any, reg: float, rng: Any, device: Any) -> float:
        """Return minus how far generated records are from given ones."""
        # No image_shape: a score compares pixels, whatever their places are.
        declared = Declared(self.space.box, self.classes)
        given = read_points(estimator, X, y, declared, reset=False)
        kept = rng.permutation(len(given.points))[:SCORED_ROWS]
        points, codes = given.points[kept], None if given.codes is None else given.codes[kept]
        rows = self._rows(len(kept), codes, rng, device)
        return -sinkhorn_divergence(rows, points, codes, codes, reg=reg)

    def _rows(self, n_rows: int, codes: np.ndarray | None, rng: Any, device: Any) -> np.ndarray:
        """Return generated rows, from -1 to 1."""
        if self.network is not None:
            return self.network.rows(n_rows, codes, rng, device)
        return self.sketch.rows(np.zeros(n_rows, dtype=np.intp) if codes is None else codes, rng)
