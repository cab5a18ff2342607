"""Costs with noise scaled to their sensitivity: the release with the least noise."""

from functools import partial
from typing import Any

import numpy as np

from skdpot.distance._costs import CostSettings, pairwise_costs
from skdpot.distance._groups import Groups
from skdpot.distance._released import Released
from skdpot.privacy.sensitivity import cost_vector_sensitivities, pairwise_sensitivities
from skdpot.releases import NoisyRelease, VectorRelease


class CostsRelease(NoisyRelease):
    """All costs between pairs of groups, each in units of its sensitivity, with noise.

    With public labels a record takes part in k - 1 of the costs of k groups. So in these units it
    changes the vector of all costs by at most k - 1 in the l1 norm, and sqrt(k - 1) in the l2 norm.
    With private labels it may take part in the costs of two groups. The bound is computed for the
    given sizes.

    Parameters
    ----------
    settings : CostSettings
        The public settings of the cost.
    groups : Groups
        The groups.
    filler : ndarray of shape (n_features,)
        Public point that fills up groups of private size to their declared sizes.
    epsilon, delta : float
        Budget; Laplace noise for delta 0, Gaussian noise above.
    tol : float
        Part of the sensitivity up to which costs are computed.
    """

    def __init__(
        self,
        settings: CostSettings,
        groups: Groups,
        filler: np.ndarray,
        epsilon: float,
        delta: float,
        tol: float,
    ) -> None:
        self.settings, self.groups, self.filler = settings, groups, filler
        n_pairs = len(groups.sizes) * (len(groups.sizes) - 1) // 2
        exact, _ = pairwise_sensitivities(settings.cost_range, groups.sizes, labels=groups.labels)
        self.tolerances = tol * exact
        of_costs: dict[str, Any] = {
            "labels": groups.labels,
            "divergence": settings.divergence,
            "tol": tol,
        }
        self.sensitivities, _ = pairwise_sensitivities(
            settings.cost_range, groups.sizes, **of_costs
        )
        self._noise = VectorRelease(
            epsilon,
            delta,
            partial(cost_vector_sensitivities, settings.cost_range, groups.sizes, **of_costs),
            n_coordinates=n_pairs,
            largest=float((settings.cost_range / self.sensitivities).max()),
        )

    def expected_errors(self, n_records):
        errors = self.sensitivities * self._noise.standard_deviation
        return self.groups.cost_errors(errors, self.settings.cost_range)

    def run(self, X, source):
        samples = self.groups.split(X, self.filler)
        costs = pairwise_costs(self.settings, samples, self.tolerances)
        released = self._noise.run(costs / self.sensitivities, source)
        return Released(
            costs=self.settings.offset + self.sensitivities * released,
            standard_errors=self.sensitivities * self._noise.standard_deviation,
            half_widths=self.sensitivities * self._noise.half_width,
        )
