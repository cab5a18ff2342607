"""The noise of a sketch: its budget, the price of it, and the shares of its releases."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from skdpot.privacy.accounting import calibrate_noise_multiplier, epsilon_of
from skdpot.privacy.events import DpEvent, GaussianDpEvent, PlannedDpEvent
from skdpot.privacy.noise import LARGEST_SCALE
from skdpot.releases import ReleaseSeries

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
    """

    epsilon: float | None
    noise_multiplier: float
    delta: float
    neighbouring: str

    @property
    def event(self) -> DpEvent | None:
        """Return the event of the charge; None where nothing is guaranteed."""
        if not self.noise_multiplier:
            return None
        return PlannedDpEvent(GaussianDpEvent(self.noise_multiplier), self.delta)


class SketchSeries(ReleaseSeries):
    """Base of the releases of a sketch, which have one budget."""

    budget: SketchBudget
    label: str

    @property
    def event(self) -> DpEvent | None:
        return self.budget.event


def sketch_budget(epsilon: float | None, delta: float, neighbouring: str) -> SketchBudget:
    """Return the least noise within a budget; an epsilon of None asks for none.

    Examples
    --------
    >>> from skdpot.generative._budget import sketch_budget
    >>> round(sketch_budget(1.0, 1e-5, "add_remove").noise_multiplier, 2)
    3.73
    """
    noise = 0.0 if epsilon is None else least_noise(float(epsilon), float(delta))
    return SketchBudget(epsilon, noise, float(delta), neighbouring)


# A search over other parameters asks for the same noise again and again.
@lru_cache(maxsize=256)
def least_noise(epsilon: float, delta: float, **options: Any) -> float:
    """Return the smallest noise multiplier within a budget; options of the calibration."""
    return calibrate_noise_multiplier(min(epsilon, LARGEST_EPSILON), delta, **options)


def rounded_up(epsilon: float, n_digits: int) -> float:
    """Return a number of so many digits, or about so many, that is not below this one."""
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
    >>> from skdpot.generative._budget import check_noise, sketch_budget
    >>> from skdpot.privacy.sensitivity import cell_count_sensitivity
    >>> releases = {"counts": (1.0, cell_count_sensitivity)}
    >>> check_noise(sketch_budget(1.0, 1e-5, "add_remove"), releases)
    """
    largest = math.inf
    for releases in alternatives:
        total = math.fsum(share for share, _ in releases.values())
        for share, sensitivity in releases.values():
            # One percent is left for the rounding of scales: a refusal after the charge would be
            # too late.
            scale = LARGEST_SCALE / 1.01 / sensitivity(relation=plan.neighbouring)
            largest = min(largest, scale * math.sqrt(share / total))
    if plan.noise_multiplier > largest:
        smallest = epsilon_of(largest, plan.delta) * 1.01
        if not smallest < LARGEST_EPSILON:
            raise ValueError("a part of the budget is too small: its noise would have no bounds.")
        raise ValueError(
            "epsilon is too small for a sketch: its noise would exceed the range of numbers. "
            f"The smallest epsilon for these releases, at delta={plan.delta!r}, is "
            f"{rounded_up(smallest, 3)!r}."
        )
