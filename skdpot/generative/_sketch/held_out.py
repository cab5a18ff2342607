"""Records that are held out of a sketch, and what is released of them to judge it.

Some teach a classifier to tell records from samples, and the others are counted: by their values,
by the score of that classifier, and by what a model that learned from samples predicts of them.
Every record is counted by what it is alone, given the sketch. It is a row of whole numbers: of a
table its values, and of vectors and images public summaries.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from skdpot._threads import MANY_ROWS, one_thread_unless
from skdpot.generative._sketch.file_parts import with_kinds
from skdpot.generative._sketch.marginals import merge_cells
from skdpot.generative._sketch.plan import PlannedRelease, SketchBudget
from skdpot.generative._sketch.table_model import class_shares
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import NOMINAL, TableSchema

__all__ = [
    "HeldOutRows",
    "Judged",
    "cells_of_model",
    "counted_size",
    "expected_report_error",
    "held_out_plans",
    "hold_out",
    "n_held_out",
    "read_held_out",
    "release_held_out",
]

# Of the records that are held out, so many teach the classifier, and are counted nowhere else.
_TEACHERS = 1 / 3
_FEATURES, _VALUES, _SCORES, _UTILITY = (
    "held-out features", "held-out values", "held-out scores", "held-out utility",
)  # fmt: skip
_SHARES = {_VALUES: 0.4, _SCORES: 0.3, _UTILITY: 0.3}
# What the shares of samples are called, and the counts of records.
_NAMES = {
    _VALUES: ("value_shares", "values"),
    _SCORES: ("score_shares", "scores"),
    _UTILITY: ("utility_shares", "utility"),
}
# The types of what `release_held_out` returns.
_HELD_OUT = {
    **dict.fromkeys(("n_bins", "predictions"), np.int64),
    **dict.fromkeys((name for pair in _NAMES.values() for name in pair), np.float64),
    **dict.fromkeys(("n_records", "deviations"), np.float64),
}
_MOST_FEATURES = 512
_COLUMN_BINS, _SCORE_BINS = 10, 16
_N_SAMPLES = 20_000
_ROWS_AT_ONCE, _TRIALS = 2**13, 1024
_LARGEST_WEIGHT, _TINY = 2.0**30, 1e-300
# No count in a file is larger, with its noise.
_LARGEST_COUNT = 2.0**53
# Eigenvalues of about 1 get so much more, and more with noise.
_LEAST_RIDGE = 0.01
_FIT_SEED, _TEST_SEED = 1, 2
# Trees of all classes together, and what they take for categories.
_BOOSTED, _MOST_CATEGORIES = 120, 255
# The score of a class that alone occurs in samples; those of boosting are far below.
_CERTAIN = 1e9


# Where units of a column start that have a share of samples, and these shares.
Cells = tuple[np.ndarray, np.ndarray]


class Judged(NamedTuple):
    """What records judge that are held out: samples, as rows of whole numbers.

    Attributes
    ----------
    schema : TableSchema
        Public: what the columns of rows are, the target among them.
    draw : callable
        Returns so many rows, of a `RandomState`: a function of what was released.
    cells : sequence of tuple of two ndarray, default=None
        Of each column. None is a cell for each unit, and its share of samples.
    """

    schema: TableSchema
    draw: Callable[[int, Any], np.ndarray]
    cells: Sequence[Cells] | None = None


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Records that are held out, of which each has one row: private.

    Parameters
    ----------
    units : ndarray of shape (n, n_columns), dtype int64
        Of `TableSchema.encode`.
    """

    units: np.ndarray

    def sums(self, of_rows: Callable[..., list[np.ndarray]]) -> list[np.ndarray]:
        """Return what a function gives of rows, and of the weight of each."""
        return of_rows(self.units, np.ones(len(self.units)))


class Samples(NamedTuple):
    """What a model is made known by: samples to learn from, and others to compare with."""

    learned: np.ndarray
    compared: np.ndarray


def hold_out(n_records: int, share: float, source: Any) -> np.ndarray:
    """Return to what use each record is put: 0 the sketch, 1 the classifier, 2 the counts.

    A coin decides that is thrown for the record alone, and that no value of it changes.

    Parameters
    ----------
    n_records : int
        How many there are.
    share : float
        The probability of being held out; public. With 0 no coin is thrown.
    source : NoiseSource
        Of coins.

    Returns
    -------
    ndarray of shape (n_records,)
        Private.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.held_out import hold_out
    >>> from skdpot.privacy.random import make_source
    >>> uses = hold_out(6000, 0.3, make_source(0))
    >>> np.round(np.bincount(uses) / 6000, 1)
    array([0.7, 0.1, 0.2])
    """
    if not share:
        return np.zeros(n_records, dtype=np.int8)
    coins = source.uniform(n_records)
    return np.where(coins < share, np.where(coins < _TEACHERS * share, 1, 2), 0)


def held_out_plans(schema: TableSchema, whole: int = 1) -> list[dict[str, PlannedRelease]]:
    """Return what is released of records that teach, and of those that are counted.

    No record is in both parts, or in the sketch as well: each part has the whole budget.

    Parameters
    ----------
    schema : TableSchema
        What the table is declared to hold.
    whole : int, default=1
        What the weights of the rows of a record, or of a person, add up to at most.

    Returns
    -------
    list of dict
        The planned releases of each part, by name.

    Examples
    --------
    >>> from skdpot.generative._sketch.held_out import held_out_plans
    >>> from skdpot.tables import read_schema
    >>> teachers, counted = held_out_plans(read_schema({"sex": ["F", "M"], "age": range(99)}))
    >>> list(teachers), list(counted)
    (['held-out features'], ['held-out values', 'held-out scores'])
    """
    n_columns = len(schema.columns)
    counted = {_VALUES: n_columns, _SCORES: 1}
    if schema.n_classes > 1:
        counted[_UTILITY] = 1
    return [
        {_FEATURES: PlannedRelease(1.0, _in_tables(_MOST_FEATURES + 1, whole))},
        {name: PlannedRelease(_SHARES[name], _in_tables(n, whole)) for name, n in counted.items()},
    ]


def expected_report_error(
    n_records: float, schema: TableSchema, budget: SketchBudget
) -> ExpectedError:
    """Return the standard error of the AUC by which records are told from samples.

    Parameters
    ----------
    n_records : float
        How many records are held out.
    schema : TableSchema
        What the table is declared to hold.
    budget : SketchBudget
        Of each part.

    Returns
    -------
    ExpectedError
        Where it cannot tell them, which is what errors have to be small against.

    Examples
    --------
    >>> from skdpot.generative._sketch.held_out import expected_report_error
    >>> from skdpot.generative._sketch.plan import sketch_budget
    >>> from skdpot.tables import read_schema
    >>> schema, budget = read_schema({"sex": ["F", "M"]}), sketch_budget(1.0, 1e-5, "add_remove")
    >>> print(expected_report_error(3000, schema, budget))
    standard error of the AUC by which records are told from samples: 0.00725 (useless from 0.5)
    """
    plan = held_out_plans(schema)[1]
    share = plan[_SCORES].share / sum(planned.share for planned in plan.values())
    sensitivity = cell_count_sensitivity(relation=budget.neighbouring)
    deviation = budget.noise_multiplier / math.sqrt(share) * sensitivity
    n_counted = (1 - _TEACHERS) * n_records
    # Ranks of samples are even from 0 to 1, and have the variance 1/12.
    error = math.sqrt((_SCORE_BINS * deviation**2 / n_counted + 1) / (12 * n_counted))
    what = "standard error of the AUC by which records are told from samples"
    return ExpectedError(what, error, 0.5)


def release_held_out(
    teachers: Any, counted: Any, judged: Judged, budget: SketchBudget, source: Any, whole: int = 1
) -> dict[str, np.ndarray]:
    """Release what the records that were held out tell of a sketch's samples.

    Each part has the whole budget: :ref:`proof-held-out`.

    Parameters
    ----------
    teachers, counted : HeldOutRows
        Private. The parts 1 and 2 of `hold_out`; or what else has its method ``sums``, of rows with
        weights that are integers.
    judged : Judged
        What was made of the other records.
    budget : SketchBudget
        Of each part: no record is in two.
    source : NoiseSource
        Of noise.
    whole : int, default=1
        As of `held_out_plans`.

    Returns
    -------
    dict of str to ndarray
        Nothing but what was released, and what follows from it and the sketch.

        - ``"n_records"``: about how many records were held out.
        - ``"n_bins"``: in how many bins each column is counted, target included.
        - ``"values"``, ``"value_shares"``: how many records each bin has, one column after
          another, and the shares of samples.
        - ``"scores"``, ``"score_shares"``: the same of bins of the score by which a classifier
          tells records from samples.
        - ``"utility"``, ``"utility_shares"`` of shape (n_bins, n_classes): the same of bins of a
          prediction, for each class; empty without a target.
        - ``"predictions"`` of shape (n_bins,): the class that is predicted.
        - ``"deviations"``: of the noise of values, scores and utility.
    """
    schema = judged.schema
    samples = Samples(
        *(judged.draw(_N_SAMPLES, np.random.RandomState(seed)) for seed in (_FIT_SEED, _TEST_SEED))
    )
    columns = _columns(judged.cells or _cells_of_samples(samples.learned, schema), schema)
    plans = held_out_plans(schema, whole)
    of_teachers, of_counted = (
        SketchReleases(
            budget.noise_multiplier, {name: planned.share for name, planned in plan.items()},
            budget.neighbouring, source,
        )
        for plan in plans
    )  # fmt: skip
    score, n_teachers = _learn_to_tell(teachers, samples.learned, columns, of_teachers, whole)
    edges = _even_edges(score(samples.compared))
    bins = {
        _VALUES: [partial(_value_bins, column) for column in columns],
        _SCORES: [lambda units: np.searchsorted(edges, score(units), side="right")],
    }
    n_bins = {
        _VALUES: [int(column.bins.max()) + 1 for column in columns],
        _SCORES: [len(edges) + 1],
    }
    predictions = np.zeros(0, dtype=np.int64)
    if _UTILITY in plans[1]:
        predicted, predictions = _predictor(samples, schema)
        bins[_UTILITY] = [partial(_class_cells, predicted, schema)]
        n_bins[_UTILITY] = [len(predictions) * schema.n_classes]
    made = {"n_bins": np.array(n_bins[_VALUES]), "predictions": predictions}
    deviations = []
    for name, plan in plans[1].items():
        one, many = _NAMES[name]
        count = partial(_counts, bins=bins[name], n_bins=n_bins[name])
        (counts,) = counted.sums(count)
        made[many] = of_counted.run(name, counts, plan.sensitivity) / whole
        made[one] = HeldOutRows(samples.compared).sums(count)[0] / _N_SAMPLES
        deviations.append(of_counted.standard_deviation(name, plan.sensitivity) / whole)
    for name in _NAMES[_UTILITY]:
        table = made.get(name, np.zeros(0))
        made[name] = table.reshape(len(predictions), schema.n_classes)
    made["n_records"] = np.array(n_teachers + counted_size(made)[0])
    return {**made, "deviations": np.array(deviations)}


def counted_size(held_out: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Return how many records were counted, as nearly as values tell, and the noise of that.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.held_out import counted_size
    >>> values = np.array([60.0, 42.0, 20.0, 30.0, 25.0, 25.0])
    >>> size, noise = counted_size({"n_bins": np.array([2, 4]), "values": values})
    >>> round(size, 3), round(noise, 3)
    (101.333, 1.155)
    """
    n_bins = held_out["n_bins"]
    totals = np.add.reduceat(held_out["values"], np.cumsum(n_bins) - n_bins)
    precisions = 1 / n_bins
    size = np.average(totals, weights=precisions)
    return float(size), float(1 / np.sqrt(precisions.sum()))


def n_held_out(held_out: Mapping[str, np.ndarray] | None) -> int:
    """Return about how many records were held out; none where nothing was released of them."""
    return 0 if held_out is None else max(round(float(held_out["n_records"])), 0)


def read_held_out(
    schema: TableSchema, arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Return what `release_held_out` had returned, of the arrays of a file, or raise.

    Parameters
    ----------
    schema : TableSchema
        Of what is judged.
    arrays : mapping of str to ndarray
        By their names; empty where no records were held out.

    Returns
    -------
    dict of str to ndarray, or None
        None where no records were held out.

    Raises
    ------
    ValueError
        If there can be no report of these arrays.
    """
    if not arrays:
        return None
    held_out = with_kinds(arrays, _HELD_OUT)
    if arrays.keys() != held_out.keys() or not _are_held_out(schema, held_out):
        raise ValueError("the file does not hold what was released of records held out.")
    return held_out


def cells_of_model(model: Mapping[str, np.ndarray], schema: TableSchema) -> list[Cells]:
    """Return the cells of every column of a table, target included."""
    shares = model["weights"] @ model["cells"]
    ends = np.cumsum(model["n_cells"])[:-1]
    of_features = zip(np.split(model["starts"], ends), np.split(shares, ends), strict=True)
    cells = dict(zip(schema.features, of_features, strict=True))
    if schema.target is not None and not schema.has_bands:
        n_classes = schema.n_classes
        cells[schema.target] = (np.arange(n_classes), class_shares(model, n_classes))
    return [cells[j] for j in range(len(schema.columns))]


def _cells_of_samples(samples: np.ndarray, schema: TableSchema) -> list[Cells]:
    """Return a cell for each unit of every column, and its share of samples."""
    sizes = [column.n_units for column in schema.columns]
    return [
        (np.arange(n), np.bincount(units, minlength=n) / len(samples))
        for n, units in zip(sizes, samples.T, strict=True)
    ]


def _are_held_out(schema: TableSchema, held_out: Mapping[str, np.ndarray]) -> bool:
    """Tell whether arrays are what `release_held_out` returns, of which a report can be made."""
    n_bins, predictions = held_out["n_bins"], held_out["predictions"]
    utility = (len(predictions), schema.n_classes)
    return bool(
        n_bins.shape == (len(schema.columns),)
        and ((n_bins > 0) & (n_bins <= len(held_out["values"]))).all()
        and held_out["values"].shape == held_out["value_shares"].shape == (n_bins.sum(),)
        and held_out["scores"].ndim == 1
        and held_out["scores"].shape == held_out["score_shares"].shape
        and held_out["utility"].shape == held_out["utility_shares"].shape == utility
        and (len(predictions) > 0) == (schema.n_classes > 1)
        and predictions.ndim == 1
        and held_out["n_records"].ndim == 0
        and held_out["deviations"].shape == (2 + (schema.n_classes > 1),)
        and (held_out["deviations"] >= 0).all()
        and all((held_out[shares] >= 0).all() for shares, _ in _NAMES.values())
        and all((np.abs(array) <= _LARGEST_COUNT).all() for array in held_out.values())
    )


class _OfColumn(NamedTuple):
    """The cells of a column of a model: what they are counted in, and two signs of each."""

    position: int
    starts: np.ndarray
    shares: np.ndarray
    bins: np.ndarray
    signs: np.ndarray

    def cells(self, units: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.starts, units[:, self.position], side="right") - 1


def _columns(cells: Sequence[Cells], schema: TableSchema) -> list[_OfColumn]:
    """Return how every column is counted, target included."""
    columns = []
    for j, (column, (starts, shares)) in enumerate(zip(schema.columns, cells, strict=True)):
        bins = merge_cells(shares, shares.sum() / _COLUMN_BINS)
        signs = _signs(shares, column.kind == NOMINAL)
        columns.append(_OfColumn(j, starts, shares, bins, signs))
    return columns


def _signs(shares, nominal):
    """Return which half of a column each cell is in, and whether it is in the middle: 1 or -1.

    Frequent categories are before rare ones. A sign that all cells share is left out.
    """
    order = np.argsort(-shares if nominal else np.arange(len(shares)), kind="stable")
    middles = np.empty(len(shares))
    middles[order] = np.cumsum(shares[order]) - shares[order] / 2
    middles /= shares.sum()
    signs = np.array([middles < 0.5, np.abs(middles - 0.5) < 0.25]) * 2 - 1
    told = signs.min(axis=1) < signs.max(axis=1)
    return signs[told].astype(np.int8)


def _products(columns, rng):
    """Return which signs each feature is a product of: at most three, of different columns."""
    owners = [k for k, column in enumerate(columns) for _ in column.signs]
    first = [i for i, k in enumerate(owners) if i == 0 or owners[i - 1] != k]
    products: list[tuple[int, ...]] = [(i,) for i in range(len(owners))]
    pairs = list(combinations(first, 2))
    rng.shuffle(pairs)
    products += pairs[: max((_MOST_FEATURES - len(products)) * 2 // 3, 0)]
    wanted = set()
    for trial in range(_TRIALS if len(first) > 1 else 0):
        size = min(3 if trial % 4 else 2, len(first))
        chosen = tuple(sorted(rng.choice(len(owners), size, replace=False).tolist()))
        if len({owners[i] for i in chosen}) == size:
            wanted.add(chosen)
    return [*products, *sorted(wanted.difference(products))][:_MOST_FEATURES]


def _feature_blocks(
    units: np.ndarray, columns: Sequence[_OfColumn], products: list[tuple[int, ...]]
) -> Iterator[np.ndarray]:
    """Yield features of blocks of records: products of signs, and at last a 1 for the record."""
    for start in range(0, len(units), _ROWS_AT_ONCE):
        block = units[start : start + _ROWS_AT_ONCE]
        signs = np.concatenate([column.signs[:, column.cells(block)] for column in columns])
        made = np.ones((len(products) + 1, len(block)), dtype=np.int8)
        for i, product in enumerate(products):
            np.multiply.reduce(signs[list(product)], axis=0, out=made[i])
        yield made.T


def _learn_to_tell(teachers, samples, columns, releases, whole):
    """Return the score of a classifier that tells records from samples, and how many taught it.

    It is the linear one of Fisher, on signs and products of them. Of records it needs the sum of
    these; how they spread is that of samples.
    """
    products = _products(columns, np.random.RandomState(_FIT_SEED))
    blocks = partial(_feature_blocks, columns=columns, products=products)
    (sums,) = teachers.sums(partial(_sums_of_features, blocks, len(products) + 1))
    sensitivity = _in_tables(len(sums), whole)
    noisy = releases.run(_FEATURES, sums, sensitivity) / whole
    deviation = releases.standard_deviation(_FEATURES, sensitivity) / whole
    n_teachers = max(noisy[-1], 1.0)
    of_samples = np.concatenate(list(blocks(samples)))[:, :-1].astype(np.float32)
    means = of_samples.mean(axis=0, dtype=np.float64)
    spread = (of_samples.T @ of_samples).astype(np.float64) / len(samples) - np.outer(means, means)
    ridge = _LEAST_RIDGE + deviation**2 / n_teachers
    difference = np.clip(noisy[:-1] / n_teachers, -1.0, 1.0) - means
    weights = np.linalg.solve(spread + ridge * np.eye(len(products)), difference)
    # Sums of integers have no rounding errors, so that no score depends on other records.
    weights = np.rint(weights / max(np.abs(weights).max(initial=0.0), _TINY) * _LARGEST_WEIGHT)

    def score(units):
        found = [block[:, :-1].astype(np.float64) @ weights for block in blocks(units)]
        return np.concatenate([*found, np.zeros(0)])

    return score, noisy[-1]


def _sums_of_features(blocks, n_features, units, weights):
    """Return the sums of features over rows with weights: integers, of which no bit is lost."""
    sums = np.zeros(n_features, dtype=np.int64)
    for start, block in zip(range(0, len(units), _ROWS_AT_ONCE), blocks(units), strict=True):
        sums += (weights[start : start + _ROWS_AT_ONCE] @ block).astype(np.int64)
    return [sums]


def _even_edges(scores):
    """Return what is between bins that have about equally many samples."""
    return np.unique(np.quantile(scores, np.arange(1, _SCORE_BINS) / _SCORE_BINS))


def _value_bins(column, units):
    return column.bins[column.cells(units)]


def _class_cells(predicted, schema, units):
    """Return in which cell of the table of predictions and classes each record is."""
    return predicted(units) * schema.n_classes + schema.classes_of(units[:, schema.target])


def _counts(units, weights, bins, n_bins):
    """Return what the weights of rows add up to in each bin, one table after another."""
    counts = [
        np.bincount(bin_of(units), weights, minlength=n)
        for bin_of, n in zip(bins, n_bins, strict=True)
    ]
    return [np.concatenate(counts).astype(np.int64)]


def _predictor(samples, schema):
    """Return what puts records in bins by what is predicted of them, and the class of each bin.

    Boosting learns from samples. Of two classes bins are of the score of the second; of more, one
    is for each class.
    """
    scores = _boosted(samples.learned, schema)
    if schema.n_classes > 2:
        return lambda units: scores(units).argmax(axis=1), np.arange(schema.n_classes)
    edges = np.unique([*_even_edges(scores(samples.compared)[:, 1]), 0.0])
    predictions = np.concatenate([[0], (edges >= 0).astype(np.int64)])
    return lambda units: np.searchsorted(edges, scores(units)[:, 1], side="right"), predictions


def _boosted(learned, schema):
    """Return what gives every class a score, which has learned from samples; 0 is even.

    Scores are sums over trees, one after another, so that none depends on other records.
    """
    # It takes a while to be imported.
    from sklearn.ensemble import HistGradientBoostingClassifier

    classes = schema.classes_of(learned[:, schema.target])
    features = [j for j in schema.features if j != schema.target]
    known = np.unique(classes)
    columns = [schema.columns[j] for j in features]
    nominal = [column.kind == NOMINAL and column.n_units <= _MOST_CATEGORIES for column in columns]
    boosting = HistGradientBoostingClassifier(
        max_iter=max(_BOOSTED // len(known), 5), categorical_features=nominal,
        early_stopping=False, random_state=_FIT_SEED,
    )  # fmt: skip
    if len(known) > 1:
        with one_thread_unless(len(learned) >= MANY_ROWS):
            boosting.fit(learned[:, features], classes)

    def scores(units):
        made = np.full((len(units), schema.n_classes), -_CERTAIN)
        if len(known) == 1:
            made[:, known] = _CERTAIN
        elif len(units):
            with one_thread_unless(len(learned) >= MANY_ROWS):
                found = boosting.decision_function(units[:, features])
            made[:, known] = found if found.ndim == 2 else np.column_stack([-found, found])
        return made

    return scores


def _in_tables(n_tables, whole):
    """Return by how much a record can change so many tables, in each of which it is once."""
    return partial(cell_count_sensitivity, n_tables=n_tables, whole=whole)
