"""Costs with noise of their sensitivity: the release with the least noise."""

import math
from typing import Any

import numpy as np

from skdpot.distance._costs import Question, answers
from skdpot.distance._groups import Groups
from skdpot.distance._released import Released
from skdpot.privacy.events import DpEvent, PlannedDpEvent
from skdpot.privacy.mechanisms import GaussianMechanism, LaplaceMechanism
from skdpot.privacy.sensitivity import pairwise_sensitivities

# Half the width of an interval that holds the noise with a probability of 95 %.
_NORMAL_QUANTILE = 1.959963984540054
_EPS = float(np.finfo(np.float64).eps)
_LAPLACE_QUANTILE = math.log(20.0)


class OutputRelease:
    """All costs between pairs of groups, each in units of its sensitivity, with noise.

    In these units a record changes the vector of all costs by at most a number of about k - 1 in
    the l1 norm, and its root in the l2 norm, for k groups: it takes part in so many of them.

    Parameters
    ----------
    question : Question
        What is asked; public.
    groups : Groups
        The groups.
    filler : ndarray of shape (n_features,)
        Public point with which groups of private size are filled up to what was declared.
    epsilon, delta : float
        Budget; Laplace noise for delta 0, normal noise above.
    tol : float
        Part of the sensitivity up to which costs are computed.
    """

    def __init__(
        self,
        question: Question,
        groups: Groups,
        filler: np.ndarray,
        epsilon: float,
        delta: float,
        tol: float,
    ) -> None:
        self.question, self.groups, self.filler, self.delta = question, groups, filler, delta
        n_pairs = len(groups.sizes) * (len(groups.sizes) - 1) // 2
        exact, _ = pairwise_sensitivities(question.cost_range, groups.sizes, labels=groups.labels)
        self.tolerances = tol * exact
        self.sensitivities, changes = pairwise_sensitivities(
            question.cost_range,
            groups.sizes,
            labels=groups.labels,
            divergence=question.divergence,
            tol=tol,
        )
        relative = changes / self.sensitivities
        # What the division may do to a cost, and to these very numbers.
        margin = 1.0 + 8 * _EPS * float((question.cost_range / self.sensitivities).max() + n_pairs)
        self._mechanism: Any
        if delta == 0:
            together = margin * float(relative.sum(axis=1).max())
            self._mechanism = LaplaceMechanism(epsilon, together, n_coordinates=n_pairs)
        else:
            together = margin * float(np.linalg.norm(relative, axis=1).max())
            self._mechanism = GaussianMechanism(epsilon, delta, together, n_coordinates=n_pairs)

    @property
    def event(self) -> DpEvent:
        """Return what is charged."""
        event = self._mechanism.event
        return event if self.delta == 0 else PlannedDpEvent(event, self.delta)

    @property
    def standard_errors(self) -> np.ndarray:
        """Return the standard deviations of the noise, for every pair."""
        spread = math.sqrt(2.0) if self.delta == 0 else 1.0
        return spread * self._mechanism.scale * self.sensitivities

    @property
    def half_widths(self) -> np.ndarray:
        """Return what the magnitude of the noise exceeds with a probability of 5 %."""
        quantile = _LAPLACE_QUANTILE if self.delta == 0 else _NORMAL_QUANTILE
        return quantile * self._mechanism.scale * self.sensitivities

    def run(
        self, X: np.ndarray, source: Any, *, n_jobs: int | None = None, title: str | None = None
    ) -> Released:
        """Release the costs of all pairs.

        Parameters
        ----------
        X : ndarray of shape (n_records, n_features)
            Records within the bounds.
        source : NoiseSource
            Where the noise comes from.
        n_jobs : int, default=None
            Threads.
        title : str, default=None
            Of a progress bar.

        Returns
        -------
        Released
            The costs with noise.
        """
        samples = self.groups.split(X, self.filler)
        costs = answers(self.question, samples, self.tolerances, n_jobs=n_jobs, title=title)
        released = self._mechanism.release(costs / self.sensitivities, source)
        offset = self.question.cost.range[0] if self.question.divergence == "ot" else 0.0
        return Released(
            offset + self.sensitivities * released, self.standard_errors, self.half_widths
        )
