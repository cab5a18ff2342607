"""Judges of samples: a classifier of records and samples, and a predictor of classes.

The classifier learns from released sums over records and from samples; the predictor learns from
samples only.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from skdpot._threads import MANY_ROWS, one_thread_unless
from skdpot.generative._sketch.cell_groups import merge_cells
from skdpot.generative._sketch.noisy_counts import tables_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import NOMINAL, TableSchema

__all__ = [
    "FEATURES",
    "SCORE_BINS",
    "Cells",
    "column_cells",
    "even_edges",
    "fit_discriminator",
    "fit_predictor",
    "largest_features_sensitivity",
]

FEATURES = "held-out features"
_MOST_FEATURES = 512
_COLUMN_BINS, SCORE_BINS = 10, 16
_ROWS_AT_ONCE, _TRIALS = 2**13, 1024
_LARGEST_WEIGHT, _TINY = 2.0**30, 1e-300
# Added to the eigenvalues, which are about 1; noise adds more.
_LEAST_RIDGE = 0.01
_FIT_SEED = 1
# The number of trees of all classes together, and the most categories that boosting supports.
_BOOSTED, _MOST_CATEGORIES = 120, 255
# The score of the only class in samples. Scores of boosting are far below it.
_CERTAIN = 1e9

# The first unit of each cell of a column, and the cells' shares of samples.
Cells = tuple[np.ndarray, np.ndarray]


def largest_features_sensitivity(whole: int) -> partial[float]:
    """Return the sensitivity of the sums of the largest number of features, and of ones."""
    return tables_sensitivity(_MOST_FEATURES + 1, whole)


class _ColumnCells(NamedTuple):
    """The cells of a column of a model, with the bin and up to two signs of each."""

    position: int
    starts: np.ndarray
    shares: np.ndarray
    bins: np.ndarray
    signs: np.ndarray

    def cells(self, units: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.starts, units[:, self.position], side="right") - 1


def column_cells(cells: Sequence[Cells], schema: TableSchema) -> list[_ColumnCells]:
    """Return the cells, bins and signs of every column, target included."""
    columns = []
    for j, (column, (starts, shares)) in enumerate(zip(schema.columns, cells, strict=True)):
        bins = merge_cells(shares, shares.sum() / _COLUMN_BINS)
        signs = _signs(shares, column.kind == NOMINAL)
        columns.append(_ColumnCells(j, starts, shares, bins, signs))
    return columns


def _signs(shares, nominal):
    """Return two signs of each cell: its half of the column, and whether it is in the middle half.

    Frequent categories are before rare ones. A sign that all cells share is left out.
    """
    order = np.argsort(-shares if nominal else np.arange(len(shares)), kind="stable")
    middles = np.empty(len(shares))
    middles[order] = np.cumsum(shares[order]) - shares[order] / 2
    middles /= shares.sum()
    signs = np.array([middles < 0.5, np.abs(middles - 0.5) < 0.25]) * 2 - 1
    is_split = signs.min(axis=1) < signs.max(axis=1)
    return signs[is_split].astype(np.int8)


def fit_discriminator(
    teachers: Any, samples: np.ndarray, columns: list[_ColumnCells],
    releases: SketchReleases, whole: int,
) -> tuple[Callable[[np.ndarray], np.ndarray], float]:  # fmt: skip
    """Return the score of a classifier of records and samples, and its number of records.

    It is Fisher's linear discriminant of products of signs. Of records, it uses only the sums of
    these products; the covariance is that of samples.
    """
    products = _sign_products(columns, np.random.RandomState(_FIT_SEED))
    blocks = partial(_feature_blocks, columns=columns, products=products)
    (sums,) = teachers.sums(partial(_sums_of_features, blocks, len(products) + 1))
    sensitivity = tables_sensitivity(len(sums), whole)
    noisy = releases.run(FEATURES, sums, sensitivity) / whole
    deviation = releases.standard_deviation(FEATURES, sensitivity) / whole
    n_teachers = max(noisy[-1], 1.0)
    signs = np.concatenate(list(blocks(samples)))[:, :-1].astype(np.float32)
    means = signs.mean(axis=0, dtype=np.float64)
    spread = (signs.T @ signs).astype(np.float64) / len(samples) - np.outer(means, means)
    ridge = _LEAST_RIDGE + deviation**2 / n_teachers
    difference = np.clip(noisy[:-1] / n_teachers, -1.0, 1.0) - means
    weights = np.linalg.solve(spread + ridge * np.eye(len(products)), difference)
    # Sums of integers have no rounding errors, so the score of a record depends only on it.
    weights = np.rint(weights / max(np.abs(weights).max(initial=0.0), _TINY) * _LARGEST_WEIGHT)

    def score(units: np.ndarray) -> np.ndarray:
        scores = [block[:, :-1].astype(np.float64) @ weights for block in blocks(units)]
        return np.concatenate([*scores, np.zeros(0)])

    return score, float(noisy[-1])


def _sign_products(columns, rng):
    """Return the signs that each feature multiplies: at most three, of different columns."""
    owners = [k for k, column in enumerate(columns) for _ in column.signs]
    first_signs = [i for i, k in enumerate(owners) if i == 0 or owners[i - 1] != k]
    products: list[tuple[int, ...]] = [(i,) for i in range(len(owners))]
    pairs = list(combinations(first_signs, 2))
    rng.shuffle(pairs)
    products += pairs[: max((_MOST_FEATURES - len(products)) * 2 // 3, 0)]
    further = set()
    for trial in range(_TRIALS if len(first_signs) > 1 else 0):
        size = min(3 if trial % 4 else 2, len(first_signs))
        chosen = tuple(sorted(rng.choice(len(owners), size, replace=False).tolist()))
        if len({owners[i] for i in chosen}) == size:
            further.add(chosen)
    return [*products, *sorted(further.difference(products))][:_MOST_FEATURES]


def _feature_blocks(
    units: np.ndarray, columns: Sequence[_ColumnCells], products: list[tuple[int, ...]]
) -> Iterator[np.ndarray]:
    """Yield features of blocks of records: products of signs, and a last column of ones."""
    for start in range(0, len(units), _ROWS_AT_ONCE):
        block = units[start : start + _ROWS_AT_ONCE]
        signs = np.concatenate([column.signs[:, column.cells(block)] for column in columns])
        features = np.ones((len(products) + 1, len(block)), dtype=np.int8)
        for i, product in enumerate(products):
            np.multiply.reduce(signs[list(product)], axis=0, out=features[i])
        yield features.T


def _sums_of_features(blocks, n_features, units, weights):
    """Return the weighted sums of features over rows: integers, without rounding errors."""
    sums = np.zeros(n_features, dtype=np.int64)
    for start, block in zip(range(0, len(units), _ROWS_AT_ONCE), blocks(units), strict=True):
        sums += (weights[start : start + _ROWS_AT_ONCE] @ block).astype(np.int64)
    return [sums]


def fit_predictor(
    learned: np.ndarray, compared: np.ndarray, schema: TableSchema
) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """Return a function from records to bins of predictions, and the class of each bin.

    Boosting learns from samples. With two classes, the score of the second one is binned. With more
    classes, each class is a bin.
    """
    scores = _boosted_scores(learned, schema)
    if schema.n_classes > 2:
        return lambda units: scores(units).argmax(axis=1), np.arange(schema.n_classes)
    edges = np.unique([*even_edges(scores(compared)[:, 1]), 0.0])
    predictions = np.concatenate([[0], (edges >= 0).astype(np.int64)])
    return lambda units: np.searchsorted(edges, scores(units)[:, 1], side="right"), predictions


def _boosted_scores(learned, schema):
    """Return a function from records to a score of each class, fitted to samples; 0 is even.

    Scores are sums over trees in a fixed order, so that none depends on other records.
    """
    # A slow import.
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
        class_scores = np.full((len(units), schema.n_classes), -_CERTAIN)
        if len(known) == 1:
            class_scores[:, known] = _CERTAIN
        elif len(units):
            with one_thread_unless(len(learned) >= MANY_ROWS):
                decisions = boosting.decision_function(units[:, features])
            if decisions.ndim == 1:
                decisions = np.column_stack([-decisions, decisions])
            class_scores[:, known] = decisions
        return class_scores

    return scores


def even_edges(scores: np.ndarray) -> np.ndarray:
    """Return the edges of bins with about equally many samples."""
    return np.unique(np.quantile(scores, np.arange(1, SCORE_BINS) / SCORE_BINS))
