"""Private predictions: the predictions to count, the release of counts, and the results."""

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.fairness._cells import (
    MOST_CELLS,
    cell_edges,
    cell_numbers,
    number_of_cells,
    shrunk_masses,
)
from skdpot.fairness._groups import Groups
from skdpot.fairness._held_out import one_score_per_row
from skdpot.fairness._odds import MOST_ODDS_CELLS, OddsKernels
from skdpot.fairness._predictions import PredictionBarycenter
from skdpot.fairness._quantiles import resolution, rounded
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import histogram_sensitivities
from skdpot.releases import VectorRelease, group_weights


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
    most_cells : int
        Maximum number of cells if it is chosen.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        n_slots: int,
        n_records: int,
        n_cells: int | None,
        most_cells: int,
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
        self.n_cells = n_cells or min(best, most_cells)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard error of a median's rank; its scale is 1/2, the worst guess."""
        noise = self.standard_deviation * math.sqrt(self.n_cells) / 2.0
        what = "standard error of the share of a group's predictions below their median"
        return (ExpectedError(what, noise / (n_records / self._n_slots), 0.5),)


@dataclass(frozen=True, eq=False)
class PrivateScores:
    """Private predictions of a public number of rows, and the public facts about them.

    Attributes
    ----------
    scores, codes, labels : ndarray of shape (n,)
        Private: predictions, and the numbers of groups and of classes; -1 means none.
    groups : Groups
        The declared groups, without rows.
    n_classes : int
        Number of classes; 1 for predictions with equal distributions regardless of the class.
    bounds : tuple of float
        Bounds of predictions.
    probabilities : bool
        Whether they are probabilities of a class.
    n_cells : int or None
        How many cells are asked for; None is as many as have the least error.
    weights : Any
        The user's parameter for the weights of groups.
    """

    scores: np.ndarray
    codes: np.ndarray
    labels: np.ndarray
    groups: Groups
    n_classes: int
    bounds: tuple[float, float]
    probabilities: bool
    n_cells: int | None
    weights: Any
    n_records: int

    @property
    def n_slots(self) -> int:
        """Return the number of counted distributions: one for every class of every group."""
        return len(self.groups.names) * self.n_classes

    def release(self, epsilon: float, delta: float) -> ScoreCounts:
        """Return the release of the counts, made of public quantities."""
        most = MOST_CELLS if self.n_classes == 1 else MOST_ODDS_CELLS
        return ScoreCounts(epsilon, delta, self.n_slots, self.n_records, self.n_cells, most)

    def edges(self, release: ScoreCounts) -> np.ndarray:
        """Return the edges of the cells, from public quantities."""
        return cell_edges(*self.bounds, release.n_cells, probabilities=self.probabilities)

    def counts(self, edges: np.ndarray) -> np.ndarray:
        """Return the number of rows in the cells of every class of every group: private."""
        counts = np.zeros((len(self.groups.names), self.n_classes, len(edges) - 1))
        known = (self.codes >= 0) & (self.labels >= 0)
        # Rounded as before they are moved, so that rounding in the model moves no atom over an
        # edge.
        cells = cell_numbers(rounded(self.scores, resolution(edges)), edges)
        np.add.at(counts, (self.codes[known], self.labels[known], cells[known]), 1.0)
        return counts

    def run(
        self, release: ScoreCounts, source: Any
    ) -> tuple[np.ndarray, PredictionBarycenter | OddsKernels]:
        """Release the counts; return weights of groups, and the map to fair predictions."""
        edges = self.edges(release)
        noisy = release.run(self.counts(edges), source)
        sizes = np.maximum(noisy.sum(axis=2), 1.0)
        weights = group_weights(self.weights, sizes.sum(axis=1), self.groups.names)
        # A group with too few rows is assumed to be like the others, class by class.
        masses = np.stack(
            [shrunk_masses(noisy[:, c], release.standard_deviation) for c in range(self.n_classes)],
            axis=1,
        )
        if self.n_classes == 1:
            return weights, PredictionBarycenter.from_cells(edges, masses[:, 0], weights)
        shares = weights[:, None] * sizes / sizes.sum(axis=1, keepdims=True)
        return weights, OddsKernels.from_cells(edges, masses, shares)

    def guarantee(self, epsilon: float, delta: float) -> PrivacyGuarantee:
        """Return the guarantee."""
        return PrivacyGuarantee(
            epsilon=float(epsilon),
            delta=delta,
            neighbouring="replace_one",
            unit="record",
            not_protected=("rows that are predicted", "the number of rows", "the estimator"),
        )
