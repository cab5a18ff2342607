"""Records of vectors, images and tables: their declaration, reading, score, and budget.

The rows of a person share the weight of one record; proofs: :ref:`proof-sketch-people`. Rules are
public, and are only applied to drawn rows. No private row is ever tested.
"""

import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import RandomState
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from skdpot import tables
from skdpot._base import count_columns, validate_private_data
from skdpot.generative import _counts
from skdpot.generative._encoders import Encoder, RecordSpace
from skdpot.generative._images import blocks, whole_shape
from skdpot.generative._network import TrainedNetwork
from skdpot.privacy import events as ev
from skdpot.privacy.accounting import calibrate_noise_multiplier, epsilon_of
from skdpot.privacy.checks import UndeclaredError, check_count, names_of, redact_errors, to_display
from skdpot.privacy.noise import LARGEST_SCALE, NoiseSource
from skdpot.releases import ReleaseSeries, SketchReleases
from skdpot.transport.sinkhorn import entropic_transport

# The share of a release, in proportion to others, and its sensitivity.
PlannedRelease = tuple[float, Callable[..., float]]
# Of a larger budget no more is spent: there is next to no noise.
LARGEST_EPSILON = 1e6


@dataclass(frozen=True)
class SketchBudget:
    """The noise of a sketch as a whole.

    Parameters
    ----------
    epsilon : float or None
        The budget; None asks for no noise, and no guarantee.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity, of all releases as one; 0 for no
        noise, and no guarantee.
    delta : float
        At which they are sold.
    neighbouring : {"add_remove", "replace_one"}
        The neighbouring relation.
    failure : float, default=0.0
        What of delta is for labels that single records have.
    """

    epsilon: float | None
    noise_multiplier: float
    delta: float
    neighbouring: str
    failure: float = 0.0

    @property
    def event(self) -> ev.DpEvent | None:
        """Return the event of the charge; None where nothing is guaranteed."""
        if not self.noise_multiplier:
            return None
        event: ev.DpEvent = ev.GaussianDpEvent(self.noise_multiplier)
        if self.failure:
            event = ev.ComposedDpEvent([event, ev.ApproximateDpEvent(0.0, self.failure)])
        return ev.PlannedDpEvent(event, self.delta)


class SketchSeries(ReleaseSeries):
    """Base of the releases of a sketch, which have one budget.

    A series has the share of each release in `_shares`. That of `n_parts` owners, whose sums are
    added up, makes them in `_released`.
    """

    budget: SketchBudget
    label: str

    @property
    def event(self) -> ev.DpEvent | None:
        return self.budget.event

    def releases(self: Any, source: NoiseSource | None) -> SketchReleases:
        """Return what releases sums with noise; without a source, what tells its deviation."""
        budget = self.budget
        return SketchReleases(budget.noise_multiplier, self._shares, budget.neighbouring, source)

    def values(self: Any, records: Any) -> np.ndarray:
        """Return the sums of one owner without noise: private. They depend on no other release."""
        return self._of_parts().made_by(self._released, records)

    def add_noise(self: Any, values: np.ndarray, source: NoiseSource) -> np.ndarray:
        """Return the sums of an owner with all the noise of a fit to her records alone."""
        # The order and the sizes of runs are public, and so is the split of the sums among them.
        return self._of_parts(values, source).made_by(self._released, None)

    def _of_parts(self: Any, given: Any = None, source: Any = None) -> _counts.SumsOfParts:
        releases, is_noisy = self.releases(source), source is not None
        return _counts.SumsOfParts(releases, max(self.n_parts, 1), given, is_noisy)


def sketch_budget(epsilon: float | None, delta: float, neighbouring: str) -> SketchBudget:
    """Return the least noise within a budget; an epsilon of None asks for none.

    Examples
    --------
    >>> from skdpot.generative._records import sketch_budget
    >>> round(sketch_budget(1.0, 1e-5, "add_remove").noise_multiplier, 2)
    3.73
    """
    noise = 0.0 if epsilon is None else min_noise(float(epsilon), float(delta))
    return SketchBudget(epsilon, noise, float(delta), neighbouring)


# A search over other parameters asks for the same noise again and again.
@lru_cache(maxsize=256)
def min_noise(epsilon: float, delta: float, **options: Any) -> float:
    """Return the smallest noise multiplier within a budget; options of the calibration."""
    return calibrate_noise_multiplier(min(epsilon, LARGEST_EPSILON), delta, **options)


def rounded_up(epsilon: float, n_digits: int) -> float:
    """Round a number up to this number of digits, or about as many."""
    places = n_digits - 1 - math.floor(math.log10(epsilon))
    return math.ceil(epsilon * 10**places) / 10**places


def check_noise(plan: SketchBudget, *alternatives: Mapping[str, PlannedRelease]) -> None:
    """Raise where the noise of a release would be larger than noise may be.

    Parameters
    ----------
    plan : SketchBudget
        How much noise there is.
    *alternatives : mapping of str to (float, callable)
        The share of each release, and by how much a record may change its integers in the l2 norm,
        for ``relation=``; where releases are not settled yet, all that they may be.

    Raises
    ------
    ValueError
        If it would. The smallest epsilon for which it is not is named.

    Examples
    --------
    >>> from skdpot.generative._records import check_noise, sketch_budget
    >>> from skdpot.privacy.sensitivity import cell_count_sensitivity
    >>> releases = {"counts": (1.0, cell_count_sensitivity)}
    >>> check_noise(sketch_budget(1.0, 1e-5, "add_remove"), releases)
    """
    max_multiplier = math.inf
    for releases in alternatives:
        total = math.fsum(share for share, _ in releases.values())
        for share, sensitivity in releases.values():
            # One percent is left for the rounding of scales: a refusal after the charge would be
            # too late.
            scale = LARGEST_SCALE / 1.01 / sensitivity(relation=plan.neighbouring)
            max_multiplier = min(max_multiplier, scale * math.sqrt(share / total))
    if plan.noise_multiplier > max_multiplier:
        smallest = epsilon_of(max_multiplier, plan.delta) * 1.01
        if not smallest < LARGEST_EPSILON:
            raise ValueError("a part of the budget is too small: its noise would have no bounds.")
        raise ValueError(
            "epsilon is too small for a sketch: its noise would exceed the range of numbers. "
            f"The smallest epsilon for these releases, at delta={plan.delta!r}, is "
            f"{rounded_up(smallest, 3)!r}."
        )


def refuse_declared(estimator: Any, by: str, *names: str) -> None:
    """Raise where an estimator's parameters declare something that a model is not for."""
    for name in names:
        if getattr(estimator, name) is not None:
            raise ValueError(
                f"{name} is declared, but {by} is for records without {name}. Leave it out, or "
                "choose another model (model='auto' chooses by the declarations: of a table, "
                "whose target is a column, declare schema={column: ...}, or use schema_from)."
            )


def record_space(n_features: int, bounds: Any, classes: Any, image_shape: Any) -> RecordSpace:
    """Return the declaration of records with this many features, or raise."""
    shape = None if image_shape is None else whole_shape(image_shape, n_features)
    labels = None if classes is None else read_classes(classes)[0]
    why_bounds = (
        "Records are scaled by them, and cut to them: images of 8 bits have (0, 255), those of "
        "shares (0, 1), people's heights and weights ([100, 30], [220, 200]). For a table declare "
        "schema={column: ...} instead."
    )
    box = tables.check_bounds(bounds, n_features, why_bounds)
    return RecordSpace(box, shape, labels)


@dataclass(frozen=True, eq=False)
class PrivateRecords:
    """Private records that were read.

    Vectors are scaled to [-1, 1] where rows of them are asked for by their positions: scaled copies
    of all of them at once may need several times their memory.

    Attributes
    ----------
    space : RecordSpace or TableSpace
        Public.
    values : ndarray of shape (n_records, n_features)
        Private: vectors with a declared label, in the units and the type of the data; or the codes
        of the rows of a table whose values all have one. Others count nowhere.
    n_read : int
        How many were read, also of those that count nowhere. If people have several rows, this is
        the number of people.
    labels : ndarray of shape (n_records,), default=None
        Private: the number of the label of each vector. None means that there are no labels.
    persons : ndarray of shape (n_records,), default=None
        Private: the number of the person of each row of a table. None means one row per person.
    doubts : str, default=None
        Public: what to warn of before the charge, if there is anything.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._encoders import RecordSpace
    >>> from skdpot.generative._records import PrivateRecords
    >>> space = RecordSpace((np.zeros(2), np.full(2, 255.0)))
    >>> records = PrivateRecords(space, np.array([[0, 255], [51, 0]], dtype=np.uint8), 2)
    >>> records[1:]
    array([[-0.6, -1. ]])
    """

    space: Any
    values: np.ndarray
    n_read: int
    labels: np.ndarray | None = None
    persons: np.ndarray | None = None
    doubts: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of records and of features."""
        n_records, n_features = self.values.shape
        return n_records, n_features

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        # Numbers outside of [-1, 1] are moved there, and NaN to 0.
        low, high = self.space.box
        scaled = np.clip(2 * ((self.values[rows] - low) / (high - low)) - 1, -1, 1)
        return np.nan_to_num(scaled, copy=False, nan=0.0)

    def codes_of_classes(self, encoder: Encoder) -> list[np.ndarray]:
        """Return the codes of the vectors of each class; all are of one without labels.

        Norms are at most one, so that no square overflows.
        """
        codes = encoder.encode(self)
        codes /= encoder.max_norm
        labels = np.zeros(len(self), dtype=np.intp) if self.labels is None else self.labels
        return [codes[labels == c] for c in range(max(self.space.n_classes, 1))]


def read_points(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    reset: bool,
    private: bool = False,
    space: RecordSpace | None = None,
) -> PrivateRecords:
    """Return records and labels, or raise; if `private`, no value decides about an error.

    They are declared by the parameters of the estimator, but for a `space` of an earlier fit. If
    `private`, NaN stands for values that are no numbers, and records with undeclared labels are
    left out.
    """
    read = tables.as_numbers if private else None
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
        if reset and hasattr(X, "columns"):
            error.add_note("For a table declare schema={column: ...}.")
        raise
    n_read = len(numbers)
    classes = estimator.classes if space is None else space.classes
    if classes is None and y is not None:
        raise ValueError(
            "y has labels, but classes are not declared: give all possible labels, as "
            "classes=[...]. They may not be learned from private data."
        )
    if classes is not None and y is None:
        raise ValueError(
            f"{type(estimator).__name__} with classes requires y to be passed, but the target y "
            "is None: give the label of each record."
        )
    codes = None if classes is None else read_label_codes(y, classes, n_read, private)
    # Left out and not refused: an error would tell of a single record.
    if codes is not None and (codes < 0).any():
        numbers, codes = numbers[codes >= 0], codes[codes >= 0]
    if space is None:
        space = record_space(numbers.shape[1], estimator.bounds, classes, estimator.image_shape)
    if space.image_shape and numbers.dtype == np.uint8 and not 1 < space.box[1].max() <= 255:
        remedy = "declare bounds=(0, 255), or for images of 0 and 1 pass X.astype(float)"
        raise ValueError(f"X is of type uint8, which ends at 255: {remedy}.")
    return PrivateRecords(space, numbers, n_read, codes)


def unseen_points(estimator: Any, columns: Any) -> PrivateRecords:
    """Return records that are known only by their declaration, or raise."""
    shape = estimator.image_shape
    d = count_columns(columns, None if shape is None else int(np.prod(shape)))
    space = record_space(d, estimator.bounds, estimator.classes, shape)
    return PrivateRecords(space, np.empty((0, 0)), 0)


def read_label_codes(y, classes, n_records, private):
    """Return the codes of the labels of records, or raise; if `private`, -1 for undeclared ones."""
    number = read_classes(classes)[1]
    codes = tables.label_codes(read_each(y, n_records), number)
    if private:
        tables.refuse_other_labels(y, number, "y")
    elif (codes < 0).any():
        raise UndeclaredError(
            "y has labels that are not among the declared classes. Declare all possible labels, or "
            "leave out the records with others."
        )
    return codes


def read_each(y, n_records):
    """Return the label of each record in y as objects, or raise."""
    labels = redact_errors(
        lambda: tables.one_by_one(y),
        "y cannot be read as labels.",
        # It says how many records there are.
        instead={"y should be a 1d": "y should be a 1d array, with one label for each record."},
    )
    if len(labels) != n_records:
        raise ValueError("y must have one label for each row of X, in a Series or a list.")
    return labels


def read_classes(classes):
    """Return the declared labels with the code of each, or raise."""
    names, number = tables.declared_labels(classes, "classes")
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
            return None
        if counts is None:
            # No shares of classes were released.
            return rng.permutation(np.arange(n_samples) % len(classes))
        return rng.choice(len(classes), n_samples, p=counts / counts.sum())
    if classes is None:
        raise ValueError(
            "y asks for labels, and the generator was fitted without classes. Leave y out; "
            "where a table has a target, ask for its values with given={column: value}."
        )
    if isinstance(y, str):
        raise ValueError("y must be a list of labels, or a dict {label: number}, got a text.")
    number = tables.declared_labels(classes, "classes")[1]
    labels, counts = (list(y), list(y.values())) if isinstance(y, dict) else (y, 1)
    codes = tables.label_codes(tables.one_by_one(labels), number)
    if not len(codes) or (codes < 0).any():
        raise ValueError(
            f"y must ask for labels among {classes.tolist()}, by a list of these or a dict "
            f"{{label: number}}, got {to_display(y)}."
        )
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in np.atleast_1d(counts)):
        raise ValueError(f"y must give the number of records of each label, got {to_display(y)}.")
    wanted = np.repeat(codes, counts)
    if n_samples not in (1, len(wanted)):
        raise ValueError(f"n_samples is {n_samples!r}, and y asks for {len(wanted)}: leave it out.")
    return wanted


def stream_of(random_state: Any) -> RandomState:
    """Return the source of samples: random numbers that no other use of the same seed meets.

    Even draws deal rows out in a random order. With the numbers of the seed itself, a later
    ``train_test_split`` with this seed would make the same order, and sort its rows by class.

    Examples
    --------
    >>> from skdpot.generative._records import stream_of
    >>> stream_of(0).uniform() == stream_of(0).uniform() != np.random.RandomState(0).uniform()
    True
    """
    tag = int.from_bytes(b"skdpot: samples", "big")
    # A seed sequence hashes the tag with numbers that the seed gives.
    numbers = check_random_state(random_state).randint(2**32, size=4, dtype=np.uint32)
    hashed = np.random.SeedSequence([tag, *numbers.tolist()])
    return RandomState(np.random.MT19937(hashed))


# If there are more, a score is computed from this number of them.
SCORED_ROWS = 2000


def sinkhorn_divergence(rows, columns, row_labels=None, column_labels=None, *, reg):
    """Return the debiased transport cost between rows of [-1, 1]; zero between equal ones.

    Costs are mean squared differences of features, and 4 more between labels that differ: as if
    all features were at the other ends of their ranges.
    """

    def transport(one, other):
        (x, x_labels), (y, y_labels) = one, other
        costs = euclidean_distances(x, y, squared=True) / x.shape[1]
        if x_labels is not None:
            costs += 4.0 * (x_labels[:, None] != y_labels)
        a, b = (np.full(n, 1 / n) for n in costs.shape)
        return entropic_transport(costs, a, b, reg, 1e-3).cost

    first, second = (rows, row_labels), (columns, column_labels)
    within = transport(first, first) + transport(second, second)
    return transport(first, second) - within / 2


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
    device : str or torch.device, default="auto"
        On which it makes them.
    """

    space: RecordSpace
    sketch: Any
    network: TrainedNetwork | None
    device: Any = "auto"

    @property
    def n_records(self) -> int | None:
        """Return how many records there are, about, where that was released."""
        return None if self.sketch is None else self.sketch.n_records

    def sample(self, n_samples: Any, y: Any, given: Any, rng: RandomState) -> Any:
        """Return records, with their labels if there are any."""
        if given is not None:
            raise ValueError("given is for tables, with a schema; use y for labels.")
        counts = None if self.sketch is None else self.sketch.counts
        codes = wanted_labels(n_samples, y, self.space.classes, rng, counts)
        rows = self._rows(n_samples if codes is None else len(codes), codes, rng)
        X = np.asarray(rows, dtype=np.float64)
        for block in blocks(*X.shape):
            X[block] = self.space.records(X[block])
        return X if self.space.classes is None else (X, self.space.classes[codes])

    def prototypes(self) -> Any:
        """Return the means of clusters as records, with their labels if there are any."""
        rows, codes = self.sketch.prototypes()
        X = self.space.records(rows)
        return X if self.space.classes is None else (X, self.space.classes[codes])

    def score(self, estimator: Any, X: Any, y: Any, reg: float, rng: RandomState) -> float:
        """Return minus how far generated records are from given ones."""
        given = read_points(estimator, X, y, reset=False, space=self.space)
        kept = rng.permutation(len(given))[:SCORED_ROWS]
        points, codes = given[kept], None if given.labels is None else given.labels[kept]
        rows = self._rows(len(kept), codes, rng)
        return -sinkhorn_divergence(rows, points, codes, codes, reg=reg)

    def _rows(self, n_rows: int, codes: np.ndarray | None, rng: RandomState) -> np.ndarray:
        """Return generated rows, from -1 to 1."""
        if self.network is not None:
            return self.network.rows(n_rows, codes, rng, self.device)
        return self.sketch.rows(np.zeros(n_rows, dtype=np.intp) if codes is None else codes, rng)


# The integer weights of a person's rows add up to at most this, which is the weight of a record.
LARGEST_WEIGHT = 2**20
# Numbers of rows are counted in these cells, each about 1.4 times as wide as the one before. From
# 1,000 rows on, a person counts, and is drawn, with about 1,000.
SIZE_EDGES = np.unique(np.ceil(1.4 ** np.arange(21)).astype(np.int64).clip(max=1001))


def weigh_rows(persons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of each row, and each person's number of rows, which are both private.

    Notes
    -----
    The weights of a person's rows are ``LARGEST_WEIGHT // k`` for `k` rows, which add up to at most
    LARGEST_WEIGHT. They depend on no other person.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._records import weigh_rows
    >>> weigh_rows(np.array([0, 1, 0, 0]))
    (array([ 349525, 1048576,  349525,  349525]), array([3, 1]))
    """
    _, person, sizes = np.unique(persons, return_inverse=True, return_counts=True)
    return (LARGEST_WEIGHT // sizes)[person], sizes


def release_sizes(sizes: np.ndarray, releases: _counts.CountReleases) -> np.ndarray:
    """Release how many people have each number of rows, in cells; a person is in one of them.

    Counts are 0 beyond the last cell that is clear of noise: otherwise noise alone would make
    people with hundreds of rows.
    """
    cells = np.searchsorted(SIZE_EDGES, np.minimum(sizes, SIZE_EDGES[-1] - 1), side="right") - 1
    exact = np.bincount(cells, minlength=len(SIZE_EDGES) - 1)
    (counts,) = _counts.release_tables(releases, "numbers of rows", [exact])
    noise = releases.standard_deviation("numbers of rows", _counts.tables_sensitivity(1))
    # Numbers of rows are those up to the last cell whose count is above this many deviations of
    # noise.
    clear_deviations = 4.0
    clear = np.flatnonzero(counts > clear_deviations * noise)
    last = clear[-1] if len(clear) else counts.argmax()
    return np.where(np.arange(len(counts)) > last, 0.0, counts)


def draw_sizes(statistics: Mapping[str, np.ndarray], n_users: int, rng: RandomState) -> np.ndarray:
    """Return the numbers of rows of this many people, from released counts."""
    counts = np.maximum(statistics["sizes"], 0.0)
    shares = counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))
    cells = rng.choice(len(shares), n_users, p=shares)
    return rng.randint(SIZE_EDGES[cells], SIZE_EDGES[cells + 1])


def taken_out(X: Any, groups: Any) -> tuple[Any, Any, str]:
    """Return a table, the person of each row, and the name of their column, or raise.

    `groups` has the persons, or names the column of X that has them, which is taken out.
    """
    if isinstance(groups, list) and len(groups) == 1 and groups[0] in getattr(X, "columns", ()):
        raise ValueError(f"groups is a list of one: name the column, as groups={groups[0]!r}.")
    if not isinstance(groups, str):
        name = getattr(groups, "name", None)
        if isinstance(name, str) and name in names_of(X, "columns"):
            # A copy of a column is taken for its name.
            return taken_out(X, name)[0], groups, name
        return X, groups, name if isinstance(name, str) else "user"
    names = tables.Table(X).names
    if names.count(groups) != 1:
        raise ValueError(
            f"groups names a column, and X has no column {groups!r}, or several. Name one of a "
            "data frame, or give the person of each row itself."
        )
    others = [position for position, name in enumerate(names) if name != groups]
    return tables.take_columns(X, others), X[groups], groups


@dataclass(frozen=True)
class Rules:
    """Expressions of pandas, or functions of a data frame.

    `conditions` give True for rows that are right, and `formulas` the values of computed columns,
    by name. Later formulas may use earlier ones.
    """

    conditions: tuple[Any, ...] = ()
    formulas: Mapping[Any, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.conditions or self.formulas)

    def complete(self, frame: Any) -> Any:
        """Return a data frame with the computed columns."""
        for name, formula in self.formulas.items():
            frame[name] = _evaluated(formula, frame)
        return frame

    def kept(self, frame: Any, schema: tables.TableSchema) -> np.ndarray:
        """Tell which rows keep all rules, and have declared values in computed columns."""
        frame = self.complete(frame)
        kept = np.ones(len(frame), dtype=bool)
        for column in schema.computed:
            kept &= _are_declared(column, frame[column.name])
        for condition in self.conditions:
            values = type(frame)({"kept": _evaluated(condition, frame)})["kept"]
            if str(values.dtype) not in ("bool", "boolean"):
                raise ValueError(
                    f"the rule {to_display(condition)} must be true or false in each row."
                )
            kept &= values.astype("boolean").to_numpy(dtype=bool, na_value=False)
        return kept


def read_rules(rules: Any, computed: Any) -> Rules:
    """Return the rules of a table, or raise.

    Examples
    --------
    >>> from skdpot.generative._records import read_rules
    >>> read_rules(["end >= start"], None).conditions
    ('end >= start',)
    """
    conditions, formulas = () if rules is None else rules, {} if computed is None else computed
    if not isinstance(conditions, list | tuple) or not all(map(_is_rule, conditions)):
        raise ValueError(f"rules must be a list of texts or functions, got {to_display(rules)}.")
    if not isinstance(formulas, Mapping) or not all(map(_is_rule, formulas.values())):
        raise ValueError(
            "computed must be a dictionary of texts or functions by column, got "
            f"{to_display(computed)}."
        )
    found = Rules(tuple(conditions), dict(formulas))
    if found and find_spec("pandas") is None:
        raise ImportError("rules and computed columns need pandas: install pandas.")
    return found


def _are_declared(column: tables.Column, values: Any) -> np.ndarray:
    """Tell which values of a computed column are declared; all dates are."""
    if column.unit is not None:
        return np.ones(len(values), dtype=bool)
    right = values.isin(column.values) if column.values else values.between(column.low, column.high)
    return (right | values.isna() & column.missing).to_numpy(dtype=bool, na_value=False)


def check_rules(schema: tables.TableSchema, rules: Rules) -> None:
    """Raise unless rules can be evaluated on rows of a declaration: public, as all of this is."""
    labels = {str(column.name): column.values for column in schema.declared if column.values}
    for text in (one for one in rules.conditions if isinstance(one, str)):
        for name, word in re.findall(r"(\w+)`? *[=!]= *['\"]([^'\"]*)['\"]", text):
            if word not in labels.get(name, (word,)):
                raise ValueError(f"the rule {text!r} has {word!r}, which is no label of {name!r}.")
    if rules:
        # A rule that fails must fail before the charge.
        frame = _made_up_rows(schema, 64)
        if not replace(rules, conditions=()).kept(frame, schema).any():
            raise ValueError("computed has values that the schema does not declare: compare both.")
        if not rules.kept(frame, schema).any():
            _refuse_impossible(schema, [each for each in rules.conditions if isinstance(each, str)])


def _made_up_rows(schema: tables.TableSchema, n_rows: int) -> Any:
    """Return a frame of random declared values; of each eighth row, all are missing that may be."""
    rng = RandomState(0)
    n_known, n_codes = np.array([(c.n_known, c.n_codes) for c in schema.columns]).T
    codes = rng.randint(0, n_codes, (n_rows, len(n_codes)), dtype=np.int64)
    codes[7::8] = np.where(n_codes > n_known, n_known, codes[7::8])
    codes[0], codes[1] = 0, n_known - 1
    return frame_of(schema, schema.plain_values(codes, rng.uniform(size=codes.shape)))


def doubts_of(estimator: Any, space: "TableSpace", table: tables.Table) -> str | None:
    """Return what to warn of before the charge: public, by declarations and types of columns.

    Of the table only names and types are read; it has no columns if these are not known.
    """
    doubts, schema = [], space.named_schema
    if schema.computed:
        frame, rules = _made_up_rows(schema, 1024), read_rules(estimator.rules, estimator.computed)
        frame = frame[rules.kept(frame, tables.TableSchema(schema.columns))]
    for column in schema.computed:
        values = frame[column.name]
        others = values[~_are_declared(column, values)].astype(object)
        # Fewer hardly change what is drawn.
        if len(others) > 0.05 * len(values):
            said = reprlib.repr(others.where(others.notna(), "missing").unique().tolist())
            if column.kind == tables.NUMERIC and others.notna().any():
                said = f"from {float(values.min()):.6g} to {float(values.max()):.6g}"
            doubts.append(
                f"column {column.name!r} is computed, and could be {said}, not only as declared: "
                f"{len(others) / len(values):.0%} of possible rows are never drawn, which ties "
                "other columns. Declare all its values, or rules if no real row is like these."
            )
    names = [one.name for one in schema.declared] if table.container == "array" else table.names
    kinds = dict(zip(names, map(table.kind, range(len(table.names))), strict=False))
    ranges = [
        f"range({math.ceil(one.low)}, {math.floor(one.high) + 1}) for {one.name!r}"
        for one in schema.columns
        if one.kind == tables.NUMERIC and not one.integer and kinds.get(one.name) in ("i", "u")
    ]
    if ranges:
        doubts.append(
            "columns of integers are declared as real numbers, and are drawn with decimals: for "
            f"integers declare {', '.join(ranges)}, or 'integer': True beside bounds."
        )
    given = estimator.schema if isinstance(estimator.schema, Mapping) else {}
    for one in schema.columns:
        codes, is_list = np.array(one.values), isinstance(given.get(one.name), list | np.ndarray)
        # Short lists are mostly codes of labels.
        if is_list and len(codes) > 10 and codes.dtype.kind == "i" and np.ptp(codes) < len(codes):
            declare = f"for {one.name!r} declare range({codes.min()}, {codes.max() + 1})"
            doubts.append(
                f"a list of categories has no order: {declare}, or {{'categories': [...]}}."
            )
    return " ".join(doubts) or None


def _refuse_impossible(schema: tables.TableSchema, texts: list[str]) -> None:
    """Raise if rules are false for all values that the few columns that they name may have."""
    words = {one.name: rf"(?<!\w){re.escape(str(one.name))}(?!\w)" for one in schema.declared}
    named = {text: {name for name in words if re.search(words[name], text)} for text in texts}
    for chosen in named.values():
        columns = tables.TableSchema(tuple(one for one in schema.columns if one.name in chosen))
        shape = [column.n_codes for column in columns.columns]
        # Computed columns have values of others. One real number has a million cells.
        if not len(shape) == len(chosen) > 0 or math.prod(shape) > 2**21:
            continue
        codes = np.indices(shape).reshape(len(shape), -1).T
        together = Rules(tuple(text for text in texts if named[text] <= chosen))
        within = (np.full(codes.shape, place) for place in (0.001, 0.5, 0.999))
        frames = (frame_of(columns, columns.plain_values(codes, each)) for each in within)
        if not any(together.kept(frame, columns).any() for frame in frames):
            raise ValueError(
                f"nothing was charged: no row that may be drawn keeps {list(together.conditions)}. "
                "Compare these rules with the schema."
            )


def frame_of(schema: tables.TableSchema, plain: Sequence[np.ndarray]) -> Any:
    """Return values of `TableSchema.plain_values` as a pandas data frame of all learned columns."""
    return tables.write_table("pandas", tables.TableSchema(schema.columns), schema.presented(plain))


def computed_values(column: tables.Column, values: Any) -> np.ndarray:
    """Return a computed column of a data frame in the form of `Column.presented`."""
    if column.kind == tables.NUMERIC and column.unit is None:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return column.presented(np.rint(numbers) if column.integer else numbers)
    if column.kind == tables.NUMERIC:
        return values.to_numpy()
    return values.astype(object).where(values.notna(), None).to_numpy()


def draw_rows(
    draw: Callable[..., list[np.ndarray]],
    kept: Callable[[list[np.ndarray]], np.ndarray],
    n_rows: int,
    labels: np.ndarray | None,
    rng: RandomState,
) -> list[np.ndarray]:
    """Return rows that keep all rules, and have the model's shares of single columns; or raise.

    `draw` makes rows of the model, given their number and labels: arrays with an entry for each
    row, the first of them the codes. `kept` tells which rows keep all rules.

    Notes
    -----
    Real rows keep the rules, so the shares of every column go together with them. Rows that are
    drawn again until they keep the rules have other shares: if the model makes half of the pregnant
    men, half of the pregnant are lost. So rows that keep the rules are weighted until each column
    has the shares that it has without rules, and are drawn by their weights, each at most once.
    Weights change the distribution of these rows as little as possible (iterative proportional
    fitting). Values that no rule allows have no rows.
    """
    # Rows are made in parts, to save memory. Labels may be sorted, and each part has all of them.
    n_parts = -(-n_rows // 2**16)
    places = [np.arange(k, n_rows, n_parts) for k in range(n_parts)]
    parts = [
        _ruled_part(draw, kept, len(part), None if labels is None else labels[part], rng)
        for part in places
    ]
    order = np.argsort(np.concatenate(places))
    return [np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True)]


def _ruled_part(draw, kept, n_rows, labels, rng):
    """Return rows as `draw_rows` does, all of them at once."""
    classes = np.zeros(n_rows, dtype=np.int64) if labels is None else labels
    sizes = np.bincount(classes)
    # Rows of the model are drawn until no column is `far` from the model's shares, or there are
    # `most` times as many rows as are asked for; and `fewest` rows at least. After `idle_rounds`
    # rounds in a row without a row that is needed, there is an error.
    fewest, most, at_once, idle_rounds, far = 2**11, 8, 2**16, 10, 0.005
    pool: list[np.ndarray] = []
    missed, n_drawn, n_idle, n_lacking = 1.0, 0, 0, n_rows
    while n_lacking or (missed > far and n_drawn < most * n_rows):
        if n_idle == idle_rounds:
            raise ValueError(
                "no further row was found that keeps all rules: use fewer or wider rules, fewer "
                "conditions of given, or computed={...}."
            )
        of_rows = np.tile(classes, -(-max(fewest, min(n_drawn, at_once)) // n_rows))
        rows = draw(len(of_rows), None if labels is None else of_rows)
        right = kept(rows)
        if n_drawn == 0:
            if right.all():
                return [array[:n_rows] for array in rows]
            # Those of the first draw remain if possible.
            n_first = right.sum() if len(rows[0]) == n_rows else 0
            edges = [_cell_edges(codes) for codes in rows[0].T]
            pool, of_pool = [array[:0] for array in rows], classes[:0]
            wanted = [np.zeros(len(starts) + 1) for starts in edges]
        for starts, counts, codes in zip(edges, wanted, rows[0].T, strict=True):
            counts += np.bincount(np.searchsorted(starts, codes, "right"), minlength=len(counts))
        pool = [np.concatenate([old, new[right]]) for old, new in zip(pool, rows, strict=True)]
        of_pool, n_drawn = np.append(of_pool, of_rows[right]), n_drawn + len(of_rows)
        lacking = np.maximum(sizes - np.bincount(of_pool, minlength=len(sizes)), 0).sum()
        n_idle, n_lacking = n_idle + 1 if lacking == n_lacking else 0, lacking
        if not lacking:
            n_idle = 0
            # Other rows share the weight of those of the first draw that are broken.
            weights = np.full(len(of_pool), (n_rows - n_first) / (len(of_pool) - n_first))
            weights[:n_first] = 1.0
            cells = [np.searchsorted(*c, "right") for c in zip(edges, pool[0].T, strict=True)]
            weights, missed = _raked(cells, [n_rows / n_drawn * c for c in wanted], weights)
    chosen = np.empty(n_rows, dtype=np.int64)
    for label in np.flatnonzero(sizes):
        rows_of_label = np.flatnonzero(of_pool == label)
        drawn = rows_of_label[_drawn_by_weight(weights[rows_of_label], sizes[label], rng)]
        chosen[classes == label] = rng.permutation(drawn)
    return [array[chosen] for array in pool]


def _drawn_by_weight(weights, n_rows, rng):
    """Return this number of rows, each at most once, with weights from 0 to 1."""
    lacking, rest = n_rows - weights.sum(), (1 - weights).sum()
    # Weights that add up to less than the number of rows are moved towards 1.
    if lacking > 0 < rest:
        weights = weights + (1 - weights) * lacking / rest
    ladder = np.cumsum(weights)
    # Steps are at least as long as the weight of a row.
    places = (np.arange(n_rows) + rng.uniform()) * ladder[-1] / n_rows
    return np.searchsorted(ladder, places, side="right")


def _cell_edges(codes):
    """Return the codes at which cells start, but the first: of values, or of ranges of many."""
    values, counts = np.unique(codes, return_counts=True)
    # A column of many values has about a hundred cells. Of few values, those that not even this
    # number of rows have share a cell with others.
    most_cells, few_rows = 100, 30
    if len(values) > most_cells:
        return np.unique(np.quantile(codes, np.arange(1, most_cells) / most_cells, method="higher"))
    return values[1:][np.diff(_counts.merge_cells(counts / len(codes), few_rows / len(codes))) > 0]


def _raked(cells, wanted, weights):
    """Return weights, from 0 to 1, with which columns have the wanted sums; and what they miss.

    The second number is the largest distance of a column, as a share of all rows. Values that no
    row has are left out.
    """
    n_rows, n_rounds, near, tiny = wanted[0].sum(), 40, 0.0005, 1e-300
    filled = [np.bincount(c, minlength=len(w)) > 0 for c, w in zip(cells, wanted, strict=True)]
    wanted = [n_rows * w * s / (w @ s) for w, s in zip(wanted, filled, strict=True)]
    for _ in range(n_rounds):
        misses = []
        for of_column, counts in zip(cells, wanted, strict=True):
            sums = np.bincount(of_column, weights, minlength=len(counts))
            misses.append(np.abs(sums - counts).sum() / n_rows)
            # Where rows are lacking, only those with a weight below 1 may get more.
            full = np.bincount(of_column, weights * (weights >= 1), minlength=len(counts))
            full = np.where(sums < counts, full, 0.0)
            factors = (counts - full) / np.maximum(sums - full, tiny)
            weights = np.minimum(weights * factors[of_column], 1.0)
        if max(misses) < near:
            break
    return weights, max(misses)


# How rules are written.
_OF_ALL_ROWS = (
    "write == for equal, 'and' and 'or' in small letters, '(not a) or b' for if, names with blanks "
    "in backticks, and functions of a whole data frame d, as (d.a > d.b) & (d.c < 5)"
)


def _evaluated(rule: Any, frame: Any) -> Any:
    """Return the value of an expression or a function for each row of a frame, or raise."""
    try:
        if callable(rule):
            values = rule(frame.copy())
        else:
            values = frame.eval(rule, engine="python", local_dict={}, global_dict={})
    except (NameError, LookupError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}; computed columns follow those they need"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}; {_OF_ALL_ROWS}"
    else:
        if np.shape(values) == (len(frame),):
            return values
        problem = f"it must have one value for each row; {_OF_ALL_ROWS}"
    raise ValueError(f"rule or formula {to_display(rule)} cannot be evaluated: {problem}.")


def _is_rule(rule: Any) -> bool:
    return isinstance(rule, str) or callable(rule)


@dataclass(frozen=True)
class TableSpace:
    """The public declaration of a table.

    Parameters
    ----------
    schema : TableSchema
        Target included.
    container : str
        The container of tables.
    apart : bool
        Whether the target is not a column of tables, and goes beside them.
    named : bool, default=False
        Whether a target that goes beside tables is declared in their schema.
    user : str, default=None
        The name of the column of people, who have several rows. None means one row per person.
    is_open : bool, default=False
        Whether bounds and categories are to be found with noise.
    """

    schema: tables.TableSchema
    container: str
    apart: bool
    named: bool = False
    user: str | None = None
    is_open: bool = False

    def by_person(self, user: str) -> "TableSpace":
        """Return the declaration with people, whose column has this name, or a longer one."""
        # A declared column may be called like this as well.
        while user in [column.name for column in self.schema.declared]:
            user += "_"
        return replace(self, user=user)

    @property
    def classes(self) -> np.ndarray | None:
        """Return the labels of the target; None where there is none, or it is a number."""
        if self.schema.target is None or self.schema.has_bands:
            return None
        column = self.schema.columns[self.schema.target]
        labels = [*column.values, *([None] if column.missing else [])]
        return np.asarray(labels, dtype=object if column.missing else None)

    @property
    def target(self) -> Any:
        """Return the name of the target, if it is declared in the schema of tables."""
        if self.schema.target is None or (self.apart and not self.named):
            return None
        return self.schema.names[self.schema.target]

    @property
    def table_schema(self) -> tables.TableSchema:
        """Return the schema of the columns of tables."""
        if not self.apart:
            return self.schema
        return replace(self.schema, columns=self.schema.columns[:-1], target=None)

    @property
    def named_schema(self) -> tables.TableSchema:
        """Return the schema of the columns that users declared by name."""
        return self.schema if self.named else self.table_schema

    @property
    def declaration(self) -> dict[Any, Any]:
        """Return the schema, as a generator is given it."""
        return {column.pop("name"): column for column in self.named_schema.plain()["columns"]}

    def read(
        self, estimator: Any, X: Any, y: Any, *, reset: bool, private: bool = False
    ) -> np.ndarray:
        """Return the codes of the values of a table, or raise.

        If `private`, no value raises: those without a code get one below 0.
        """
        if self.apart != (y is not None):
            raise ValueError(
                "pass y (one label for each row of X) exactly if the schema declares classes, or a "
                "target that is not a column of X."
            )
        schema = self.schema
        codes = tables.read_codes(X, self.table_schema, private=private)
        # Only counts features and keeps their names: values were read above.
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        if schema.target is None or not self.apart:
            return codes
        target = schema.columns[schema.target]
        if self.named:
            labels, schema = read_each(y, len(codes))[:, None], tables.TableSchema((target,))
            of_target = tables.read_codes(labels, schema, private=private)[:, 0]
        else:
            of_target = read_label_codes(y, target.values, len(codes), private)
        return np.column_stack([codes, of_target])


def read_space(estimator: Any, container: str, *, apart: bool) -> TableSpace:
    """Return the declaration of a table by the parameters of an estimator, or raise."""
    refuse_declared(estimator, "a table", "image_shape")
    if estimator.schema is None:
        raise ValueError("TableSketch is for tables: declare schema={column: ...}.")
    if estimator.bounds is not None:
        raise ValueError("bounds are for records without a schema. Give them in the schema.")
    classes, target = estimator.classes, estimator.target
    features = tables.read_schema(estimator.schema, target)
    named = apart and classes is None and features.target is not None
    if not named and apart != (classes is not None):
        raise ValueError(
            "y and classes go together: give the labels of records as y, and all possible labels "
            "as classes=[...]. Or declare y in the schema, and name it as target; then it is a "
            "column of the table."
        )
    rules = read_rules(estimator.rules, estimator.computed)
    columns = [column for column in features.names if column != target]
    if unknown := [name for name in rules.formulas if name not in columns]:
        raise ValueError(
            f"computed may have the columns {columns}: those of the schema but the target, which "
            f"cannot be computed. It has {unknown}."
        )
    features = features.computing(rules.formulas)
    check_rules(features, rules)
    if not apart:
        return TableSpace(features, container, False)
    plain = features.plain()["columns"]
    if named:
        # The target, which the schema may name, is the last column.
        target = features.names[features.target or 0]
        plain.sort(key=lambda column: column["name"] == target)
    elif target is not None:
        raise ValueError("target is of the schema, and classes are of a y that is not: use one.")
    else:
        target = "y"
        # No other column has the name of the labels.
        while target in {column["name"] for column in plain}:
            target += "_"
        plain.append({"name": target, "categories": read_classes(classes)[0].tolist()})
    schema = tables.read_schema({"columns": plain, "target": target}).computing(rules.formulas)
    return TableSpace(schema, container, True, named)


def schema_template(frame, path=None, *, categories=False) -> dict:
    """Return a schema with the columns of a table, to be filled in.

    Only the names and types of columns are read, no values. Replace each "FILL IN" by public
    knowledge, such as the answers that a questionnaire allows; a schema that still contains "FILL
    IN" is refused. If values may be missing, change ``"missing"`` to true. Change a declaration if
    another one fits better. Columns of text get categories:

    - dates that are text have ``{"bounds": ["2020-01-01", "2024-12-31"]}``;
    - ordered categories have ``"levels"``, from the lowest to the highest.

    Leave out identifiers, also in the table. Durations become numbers before.

    Parameters
    ----------
    frame : {DataFrame, array-like} of shape (n_records, n_features)
        A frame of pandas or polars, or an array. Programs that read files may infer types from
        values; to avoid this, use a frame of synthetic rows.
    path : str or path-like, default=None
        A new file, to which the schema is written as JSON.
    categories : bool, default=False
        Whether the categories of categorical types are copied. Copy them only if they were
        declared, because they may have been read from private data.

    Returns
    -------
    dict
        For `schema` of :class:`~skdpot.DPSinkhornGenerator`.

    Raises
    ------
    FileExistsError
        If the file exists.
    TypeError
        If the names of columns are neither text nor integers, or the table is of another library.

    See Also
    --------
    skdpot.DPSinkhornGenerator : Synthetic tables for a schema.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.generative import schema_template
    >>> table = pd.DataFrame({"age": [34, 51], "smokes": [True, False]})
    >>> for name, declared in schema_template(table).items():
    ...     print(name, declared)
    age {'bounds': ['FILL IN', 'FILL IN'], 'integer': True, 'missing': False}
    smokes {'categories': [False, True], 'missing': False}
    """
    table = tables.Table(frame)
    names = tables.checked_names(table)
    declared = [_declaration(table, place, categories) for place in range(len(names))]
    schema: dict = dict(zip(names, declared, strict=True))
    if not all(isinstance(name, str) for name in names):
        # Keys of JSON are text.
        columns = [{"name": name, **declaration} for name, declaration in schema.items()]
        schema = {"columns": columns, "target": None}
    if path is not None:
        # Never over a schema that somebody has filled in.
        with Path(path).open("x", encoding="utf-8") as file:
            json.dump({"format": 1, **schema}, file, indent=2)
    return schema


def _declaration(table: tables.Table, place: int, categories: bool) -> Mapping[str, Any]:
    """Return the template of a declaration for a column of this type."""
    dtype, kind = table.dtype(place), table.kind(place)
    numbers: dict[str, Any] = {"bounds": [tables.FILL_IN, tables.FILL_IN]}
    of_kind = dict.fromkeys("iu", numbers | {"integer": True}) | {"f": numbers}
    of_kind |= {"M": numbers | {"unit": "D"}, "b": {"categories": [False, True]}}
    if kind in of_kind:
        return of_kind[kind] | {"missing": False}
    labels = [tables.FILL_IN]
    if categories and hasattr(dtype, "categories"):
        labels = tables.plain_values(np.asarray(dtype.categories)).tolist()
    declared = "levels" if getattr(dtype, "ordered", False) else "categories"
    return {declared: labels, "missing": False}
