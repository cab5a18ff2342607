"""Costs with noise of their sensitivity: the release with the least noise."""

from typing import Any

import numpy as np

from skdpot.distance._costs import Question, answers
from skdpot.distance._groups import Groups
from skdpot.distance._noise import VectorNoise
from skdpot.distance._released import Released
from skdpot.privacy.events import DpEvent
from skdpot.privacy.sensitivity import pairwise_sensitivities

_EPS = float(np.finfo(np.float64).eps)


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
        self.question, self.groups, self.filler = question, groups, filler
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
        self._noise = VectorNoise(
            epsilon,
            delta,
            l1=margin * float(relative.sum(axis=1).max()),
            l2=margin * float(np.linalg.norm(relative, axis=1).max()),
            n_coordinates=n_pairs,
            largest=float((question.cost_range / self.sensitivities).max()),
        )

    @property
    def event(self) -> DpEvent:
        """Return what is charged."""
        return self._noise.event

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
        released = self._noise.release(costs / self.sensitivities, source)
        offset = self.question.cost.range[0] if self.question.divergence == "ot" else 0.0
        return Released(
            costs=offset + self.sensitivities * released,
            standard_errors=self.sensitivities * self._noise.standard_deviation,
            half_widths=self.sensitivities * self._noise.half_width,
        )
