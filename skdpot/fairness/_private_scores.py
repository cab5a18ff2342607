"""Private predictions: the predictions to count, the release of counts, and the results."""

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpot.fairness._cells import (
    MOST_CELLS,
    cell_edges,
    cell_numbers,
    number_of_cells,
    shrunk_masses,
)
from skdpot.fairness._groups import Groups
from skdpot.fairness._held_out import numbers_per_row, one_score_per_row
from skdpot.fairness._predictions import PredictionBarycenter
from skdpot.fairness._private_cells import PUBLIC_OF_ROWS
from skdpot.fairness._quantiles import resolution, rounded
from skdpot.privacy.foreign import quiet
from skdpot.privacy.preview import ExpectedError, PrivacyGuarantee
from skdpot.privacy.sensitivity import histogram_sensitivities
from skdpot.releases import VectorRelease, group_weights
from skdpot.tables import take_rows


def scores_without_quotes(
    estimator: Any, method: str, X: Any, params: Mapping[str, Any] | None = None
) -> np.ndarray:
    """Return one score per row; errors quote nothing that the estimator said."""
    # The error below is raised outside of a handler, and so has no context.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return one_score_per_row(estimator, method, X, params)
    raise ValueError(
        f"the estimator's {method} did not return one finite number, or the probabilities of two "
        "classes, for every row of X. Its output may quote private values, so it is not shown."
    )


def refuse_unusable(estimator: Any, method: str, columns: Any) -> None:
    """Raise if a model cannot predict rows with these columns; `columns` is a table without rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.linear_model import LinearRegression
    >>> from skdpot.fairness._private_scores import refuse_unusable
    >>> model = FrozenEstimator(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))
    >>> refuse_unusable(model, "predict", np.empty((0, 2)))
    Traceback (most recent call last):
    ValueError: X has 2 features, but FrozenEstimator is expecting 1 features as input.
    """
    check_is_fitted(estimator)
    n_classes = len(getattr(estimator, "classes_", (0, 1)))
    if not hasattr(estimator, method) or n_classes != 2:
        raise ValueError(
            "the estimator must predict one number for every row, or probabilities of two classes, "
            f"by its method {method}."
        )
    first = estimator.estimator
    while isinstance(first, Pipeline):
        first = first[0]
    # It takes tables with more columns than it was fitted to.
    if not isinstance(first, ColumnTransformer):
        with quiet():
            validate_data(estimator, columns, reset=False, skip_check_array=True)


def private_predictions(estimator: Any, method: str, X: Any) -> np.ndarray:
    """Return the prediction of each private row, NaN where the estimator has none.

    The prediction of a row is what the estimator says of it alone. If it fails for several rows,
    which one row may cause, they are divided until those for which it fails are alone.

    Examples
    --------
    >>> from sklearn.preprocessing import OrdinalEncoder
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdpot.fairness._private_scores import private_predictions
    >>> model = make_pipeline(OrdinalEncoder(), LinearRegression())
    >>> model = model.fit([["a"], ["b"]], [1.0, 2.0])
    >>> private_predictions(model, "predict", np.array([["b"], ["?"], ["a"]])).round(6)
    array([ 2., nan,  1.])
    """
    n_rows = X.shape[0]
    scores, parts = np.full(n_rows, np.nan), [np.arange(n_rows)]
    while parts:
        rows = parts.pop()
        try:
            of_rows = X if len(rows) == n_rows else take_rows(X, rows)
            scores[rows] = numbers_per_row(estimator, method, of_rows)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # A row is missing, whatever the model does with it: it may even ask for the exit.
            parts += np.array_split(rows, 2) if len(rows) > 1 else []
    return scores


class ScoreCounts(VectorRelease):
    """The release of the number of predictions in each cell.

    Parameters
    ----------
    epsilon, delta : float
        Budget.
    n_slots : int
        Number of distributions.
    n_records : int
        Number of predictions.
    n_cells : int or None
        How many cells each of them has; None is as many as have the least error.
    """

    def __init__(
        self, epsilon: float, delta: float, n_slots: int, n_records: int, n_cells: int | None
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            histogram_sensitivities,
            n_coordinates=n_slots * (n_cells or MOST_CELLS),
            largest=float(n_records),
            counts=True,
        )
        self._n_slots = n_slots
        best = number_of_cells(n_records / n_slots, self.standard_deviation)
        self.n_cells = n_cells or min(best, MOST_CELLS)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard error of a median's rank; its scale is 1/2, the worst guess."""
        noise = self.standard_deviation * math.sqrt(self.n_cells) / 2.0
        what = "standard error of the share of a group's predictions below their median"
        return (ExpectedError(what, noise / (n_records / self._n_slots), 0.5),)


@dataclass(frozen=True, eq=False)
class PrivateScores:
    """Private rows, read and predicted after the charge, and the public facts about them.

    Attributes
    ----------
    rows : Any of shape (n, n_columns)
        Private: what the estimator sees.
    labels : ndarray of shape (n,)
        Private: the labels of groups.
    estimator, method : estimator object, str
        The public model, and the method that predicts.
    groups : Groups
        The declared groups, without rows.
    bounds : tuple of float
        Bounds of predictions.
    probabilities : bool
        Whether they are probabilities of a class.
    n_cells : int or None
        How many cells are asked for; None is as many as have the least error.
    weights : Any
        The user's parameter for the weights of groups.
    """

    rows: Any
    labels: np.ndarray
    estimator: Any
    method: str
    groups: Groups
    bounds: tuple[float, float]
    probabilities: bool
    n_cells: int | None
    weights: Any
    n_records: int

    def release(self, epsilon: float, delta: float) -> ScoreCounts:
        """Return the release of the counts, made of public quantities."""
        n_groups = len(self.groups.names)
        return ScoreCounts(epsilon, delta, n_groups, self.n_records, self.n_cells)

    def edges(self, release: ScoreCounts) -> np.ndarray:
        """Return the edges of the cells, from public quantities."""
        return cell_edges(*self.bounds, release.n_cells, probabilities=self.probabilities)

    def counts(self, edges: np.ndarray) -> np.ndarray:
        """Return the number of rows in the cells of every group: private.

        A row without a group or a prediction is in no cell.
        """
        counts = np.zeros((len(self.groups.names), len(edges) - 1))
        with quiet():
            scores = private_predictions(self.estimator, self.method, self.rows)
            groups = self.groups.find(self.labels)
        known = (groups >= 0) & ~np.isnan(scores)
        # Rounded as before they are moved, so that rounding in the model moves no atom over an
        # edge.
        within = np.clip(scores, *self.bounds)
        cells = cell_numbers(rounded(within, resolution(edges)), edges)
        np.add.at(counts, (groups[known], cells[known]), 1.0)
        return counts

    def run(self, release: ScoreCounts, source: Any) -> tuple[np.ndarray, PredictionBarycenter]:
        """Release the counts; return weights of groups, and the map to fair predictions."""
        edges = self.edges(release)
        noisy = release.run(self.counts(edges), source)
        sizes = np.maximum(noisy.sum(axis=1), 1.0)
        weights = group_weights(self.weights, sizes, self.groups.names)
        # A group with too few rows is assumed to be like the others.
        masses = shrunk_masses(noisy, release.standard_deviation)
        return weights, PredictionBarycenter.from_cells(edges, masses, weights)

    def guarantee(self, epsilon: float, delta: float) -> PrivacyGuarantee:
        """Return the guarantee."""
        return PrivacyGuarantee(
            epsilon=float(epsilon),
            delta=delta,
            neighbouring="replace_one",
            unit="record",
            not_protected=("rows that are predicted", "the estimator", *PUBLIC_OF_ROWS),
        )
