"""What a sketch releases, with how much noise: public, and settled before it begins."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from skdpot.generative._budget import LARGEST_EPSILON, least_noise, rounded_up
from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.events import DpEvent, GaussianDpEvent, PlannedDpEvent
from skdpot.privacy.exact_noise import LARGEST_SCALE


@dataclass(frozen=True)
class PlannedRelease:
    """A release of a sketch.

    Parameters
    ----------
    share : float
        Its part of the budget, in proportion to the others.
    sensitivity : callable
        By how much a record may change its integers, in the l2 norm, for ``relation=``.
    """

    share: float
    sensitivity: Callable[..., float]


@dataclass(frozen=True)
class SketchPlan:
    """The budget of a sketch.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity, of all releases as one; 0 for no
        noise, and no guarantee.
    delta : float
        At which they are sold.
    neighbouring : {"add_remove", "replace_one"}
        What a neighbour of the data is.
    """

    noise_multiplier: float
    delta: float
    neighbouring: str

    @property
    def guaranteed(self) -> bool:
        """Return whether there is noise."""
        return self.noise_multiplier > 0

    @property
    def event(self) -> DpEvent:
        """Return what is charged."""
        return PlannedDpEvent(GaussianDpEvent(self.noise_multiplier), self.delta)


def plan_sketch(*, epsilon: float | None, delta: float, neighbouring: str) -> SketchPlan:
    """Return the plan of a sketch within a budget.

    Parameters
    ----------
    epsilon, delta : float
        Budget; an epsilon of None asks for no noise and no guarantee.
    neighbouring : {"add_remove", "replace_one"}
        The neighbouring relation.

    Returns
    -------
    SketchPlan
        With the least noise that the budget asks for.

    Examples
    --------
    >>> from skdpot.generative._sketch.plan import plan_sketch
    >>> plan = plan_sketch(epsilon=1.0, delta=1e-5, neighbouring="add_remove")
    >>> round(plan.noise_multiplier, 2)
    3.73
    """
    if epsilon is None:
        return SketchPlan(0.0, delta, neighbouring)
    return SketchPlan(least_noise(epsilon, delta), delta, neighbouring)


def check_noise(plan: SketchPlan, *alternatives: Mapping[str, PlannedRelease]) -> None:
    """Raise where the noise of a release would be larger than noise may be.

    Parameters
    ----------
    plan : SketchPlan
        How much noise there is.
    *alternatives : mapping of str to PlannedRelease
        The releases by name; where these are not settled yet, all that they may be.

    Raises
    ------
    ValueError
        If it would. The smallest epsilon for which it is not is named.

    Examples
    --------
    >>> from skdpot.generative._sketch.plan import PlannedRelease, check_noise, plan_sketch
    >>> from skdpot.privacy.sensitivity import cell_count_sensitivity
    >>> releases = {"counts": PlannedRelease(1.0, cell_count_sensitivity)}
    >>> check_noise(plan_sketch(epsilon=1.0, delta=1e-5, neighbouring="add_remove"), releases)
    """
    largest = math.inf
    for releases in alternatives:
        total = math.fsum(release.share for release in releases.values())
        for release in releases.values():
            sensitivity = release.sensitivity(relation=plan.neighbouring)
            scale = LARGEST_SCALE / 1.01 / sensitivity
            largest = min(largest, scale * math.sqrt(release.share / total))
    if plan.noise_multiplier > largest:
        smallest = epsilon_of(largest, plan.delta) * 1.01
        if not smallest < LARGEST_EPSILON:
            raise ValueError("a part of the budget is too small: its noise would have no bounds.")
        raise ValueError(
            "epsilon is too small for a sketch: its noise would be larger than all numbers are. "
            f"The smallest epsilon for these releases, at delta={plan.delta!r}, is "
            f"{rounded_up(smallest, 3)!r}."
        )
