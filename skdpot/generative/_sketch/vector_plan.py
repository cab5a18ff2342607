"""The plan of a sketch of vectors: its releases, and their shares of the budget."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skdpot.generative._encoders import Encoder
from skdpot.generative._sketch.clusters import ROUND
from skdpot.generative._sketch.mixture import MixturePlan
from skdpot.generative._sketch.moments import BALL, COUNTED, SYMMETRIC, WITH_COUNT
from skdpot.generative._sketch.plan import PlannedRelease, SketchBudget, check_noise
from skdpot.privacy.sensitivity import repeated_count_sensitivity

# Parts of the budget where noise leaves little of a class, but for its mean; where it leaves more;
# and where there is next to none.
_LITTLE = {"counts": 0.03, "radii": 0.03, "intensities": 0.03, "means": 0.61, "kernels": 0.30}
_MORE = {
    **{"counts": 0.003, "radii": 0.012, "intensities": 0.01, "means": 0.08, "covariances": 0.10},
    **{"assignments": 0.10, "clusters": 0.27, "kernels": 0.225},
}
_MUCH = {
    **{"counts": 0.003, "radii": 0.009, "intensities": 0.01, "means": 0.06, "covariances": 0.30},
    **{"assignments": 0.10, "clusters": 0.20, "kernels": 0.30},
}
SHARE_NAMES = tuple(_MUCH)
# Of the whole; the latter is shared out when it is known how many records there are, about.
STAGES = {"size": 0.002, "sketch": 0.998}
# The least noise of a mean of a class, in units of a radius, at which classes share histograms, or
# share covariances: for vectors, and for images, whose classes share half of them anyway.
_SHARED_HISTOGRAMS, _SHARED_COVARIANCES, _SHARED_BY_IMAGES = 0.02, 0.004, 0.03
# The least noise at which a small class of images has only the common covariance, and the part of
# the mean size below which a class is small.
_SHARED_BY_SMALL, _SMALL = 0.02, 0.5
# Clusters are as many as this over the noise, and no more than these.
_CLUSTERS_AT, _MOST_CLUSTERS = 0.25, 30
# A cluster has at least so many records on an average.
_RECORDS_OF_CLUSTER = 30
_N_DIRECTIONS, _N_ROUNDS = 30, 3
# The share of vectors that are not clipped if noise is small, and otherwise. Clipping half of them
# costs less than the noise of a larger radius.
_MOST_KEPT, _HALF_KEPT = 0.8, 0.5
# For all of these numbers of records there must be noise enough; the releases depend on them.
_SIZES = np.logspace(0, 12, 61)


@dataclass(frozen=True)
class VectorPlan:
    """The public facts about a sketch of vectors before any release.

    Parameters
    ----------
    n_classes : int
        At least 1.
    noise_multiplier : float
        Of the whole sketch.
    n_clusters : int or None
        Clusters of a class; None chooses.
    budget_shares : mapping of str to float
        The user's own parts of the budget.
    n_pixels : int
        Of which intensities are counted; 0 for none.
    """

    n_classes: int
    noise_multiplier: float
    n_clusters: int | None
    budget_shares: Mapping[str, float]
    n_pixels: int

    @property
    def intensity_sensitivity(self) -> Callable[..., float]:
        """Return by how much a record can change counts of the intensities of its pixels."""
        return partial(repeated_count_sensitivity, n_values=self.n_pixels)

    def check(self, budget: SketchBudget, encoder: Encoder) -> None:
        """Raise where noise would be out of range for some number of records."""
        check_noise(budget, *(self.releases(self.sizes(n, encoder)) for n in _SIZES))

    def sizes(self, n_records: float, encoder: Encoder) -> MixturePlan:
        """Return the sizes of a mixture of about so many records."""
        class_size = max(n_records, 1.0) / self.n_classes
        noise = self.noise_multiplier * math.sqrt(encoder.n_codes) / class_size
        n_clusters = self.n_clusters
        if n_clusters is None:
            affordable = min(_CLUSTERS_AT / max(noise, 1e-9), class_size / _RECORDS_OF_CLUSTER)
            n_clusters = max(1, min(int(affordable), _MOST_CLUSTERS))
        shared = _SHARED_COVARIANCES if encoder.frequencies is None else _SHARED_BY_IMAGES
        return MixturePlan(
            n_codes=encoder.n_codes,
            n_classes=self.n_classes,
            n_clusters=n_clusters,
            n_directions=min(_N_DIRECTIONS, encoder.n_codes),
            n_rounds=_N_ROUNDS,
            own_histograms=noise < _SHARED_HISTOGRAMS,
            own_covariances=noise < shared,
            least_own=min(noise / _SHARED_BY_SMALL, _SMALL) * class_size,
            level=_MOST_KEPT if noise < _SHARED_COVARIANCES else _HALF_KEPT,
            frequencies=encoder.frequencies,
        )

    def releases(self, sizes: MixturePlan) -> dict[str, PlannedRelease]:
        """Return the releases of a mixture, and of intensities."""
        shares = _LITTLE if sizes.n_clusters == 1 else _MUCH if sizes.level == _MOST_KEPT else _MORE
        clustered = sizes.n_clusters > 1
        radii = ["norms of records", "norms of residuals", "norms within clusters"]
        groups: dict[str, tuple[list[str], Any]] = {
            "counts": (["counts"], COUNTED),
            "radii": (radii[: 2 + clustered], COUNTED),
            "intensities": (["intensities"] if self.n_pixels else [], self.intensity_sensitivity),
            "means": (["means"], BALL),
            "kernels": (["kernels"], SYMMETRIC),
        }
        if clustered:
            groups["covariances"] = (["covariances"], SYMMETRIC)
            rounds = [f"assignments {t + 1}" for t in range(sizes.n_rounds)]
            groups["assignments"] = (rounds, ROUND)
            groups["clusters"] = (["clusters"], WITH_COUNT)
        return {
            name: PlannedRelease(
                self.budget_shares.get(group, shares[group]) / len(names), sensitivity
            )
            for group, (names, sensitivity) in groups.items()
            for name in names
        }
