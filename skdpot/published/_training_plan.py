"""The plan of a training: the number of its steps, and their noise."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scipy.optimize import brentq

from skdpot.generative import least_noise, rounded_up
from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.events import (
    CentredGaussianDpEvent,
    DpEvent,
    GaussianDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from skdpot.published._training_price import published_epsilon

# Range in which the paper's noise scale is searched.
_PUBLISHED_SCALES = (0.3, 1e6)


@dataclass(frozen=True)
class TrainingPlan:
    """The releases of a training.

    Parameters
    ----------
    n_steps : int
        Number of steps.
    sampling_rate : float
        Probability with which a record is in a step's sample.
    noise_multiplier : float
        Standard deviation of the noise over the l2 sensitivity of all that a step releases; 0 for
        no noise.
    delta : float
        At which the steps are sold.
    neighbouring : str
        The relation under which the sensitivity is one.
    guaranteed : bool
        Whether a proof covers the noise.
    centred : bool, default=False
        Whether a step releases sums of vectors, one for each record of its sample.

    Examples
    --------
    >>> from skdpot.published._training_plan import TrainingPlan
    >>> plan = TrainingPlan(2000, 0.01, 1.84, 1e-5, "add_remove", guaranteed=True)
    >>> round(plan.epsilon_after(2000), 2)
    1.0
    """

    n_steps: int
    sampling_rate: float
    noise_multiplier: float
    delta: float
    neighbouring: str
    guaranteed: bool
    centred: bool = False

    @property
    def event(self) -> DpEvent | None:
        """Return the event to be charged; None without a guarantee."""
        if not self.guaranteed:
            return None
        noise = CentredGaussianDpEvent if self.centred else GaussianDpEvent
        step: DpEvent = noise(self.noise_multiplier)
        if self.sampling_rate < 1:
            step = PoissonSampledDpEvent(self.sampling_rate, step)
        return PlannedDpEvent(SelfComposedDpEvent(step, self.n_steps), self.delta)

    def epsilon_after(self, n_steps: int) -> float:
        """Return the epsilon of the first steps."""
        return epsilon_of(
            self.noise_multiplier,
            self.delta,
            sampling_rate=self.sampling_rate,
            steps=n_steps,
            neighbouring=self.neighbouring,
            centred=self.centred,
        )

    def progress(self, n_steps: int) -> dict[str, str]:
        """Return the text of the progress bar about the budget: public."""
        return {"epsilon": f"{self.epsilon_after(n_steps):.3g}"} if self.guaranteed else {}


def plan_training(
    *,
    epsilon: float | None,
    delta: float,
    sampling_rate: float,
    n_iter: int,
    noise_multiplier: float | None,
    neighbouring: str,
    centred: bool = False,
) -> TrainingPlan:
    """Return the plan of a training within a budget.

    An `epsilon` of None asks for no noise and no guarantee. If `noise_multiplier` is None, noise is
    as little as `n_iter` steps need; else as many of them are planned as the budget allows.
    `centred` says whether a step releases sums of vectors, one for each record of its sample.
    Raises ValueError if not even one step is within the budget.

    Examples
    --------
    >>> from skdpot.published._training_plan import plan_training
    >>> options = dict(delta=1e-5, sampling_rate=0.01, neighbouring="add_remove")
    >>> plan = plan_training(epsilon=1.0, n_iter=2000, noise_multiplier=None, **options)
    >>> round(plan.noise_multiplier, 2)
    1.84
    >>> plan_training(epsilon=1.0, n_iter=5000, noise_multiplier=1.84, **options).n_steps
    1992
    """
    options: dict[str, Any] = {
        "sampling_rate": sampling_rate,
        "neighbouring": neighbouring,
        "centred": centred,
    }
    if epsilon is None:
        return TrainingPlan(n_iter, noise_multiplier=0.0, delta=0.0, guaranteed=False, **options)
    if noise_multiplier is None:
        found = least_noise(epsilon, delta, steps=n_iter, **options)
        return TrainingPlan(n_iter, noise_multiplier=found, delta=delta, guaranteed=True, **options)
    n_steps = _affordable(
        epsilon, n_iter, lambda steps: epsilon_of(noise_multiplier, delta, steps=steps, **options)
    )
    return TrainingPlan(n_steps, noise_multiplier=noise_multiplier, delta=delta,
                        guaranteed=True, **options)  # fmt: skip


def plan_published(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    n_iter: int,
    noise_scale: float | None,
    batch_size: int,
) -> TrainingPlan:
    """Return the plan by the paper's accounting, which guarantees nothing.

    `noise_scale` is the paper's sigma: the multiplier of one of `batch_size` generated points'
    gradients. If it is None, noise is as little as `n_iter` steps need. The plan's noise multiplier
    is that of a whole step. Raises ValueError if not even one step is within the budget, or no
    noise is enough.

    Examples
    --------
    >>> from skdpot.published._training_plan import plan_published
    >>> plan = plan_published(epsilon=10.0, delta=1e-5, sampling_rate=1 / 1200, n_iter=200_000,
    ...                       noise_scale=1.5, batch_size=50)
    >>> plan.n_steps
    159412
    """
    count: dict[str, Any] = {"batch_size": batch_size, "sampling_rate": sampling_rate}
    if noise_scale is None:
        n_steps, scale = n_iter, _published_scale(epsilon, delta, steps=n_iter, **count)
    else:
        scale = float(noise_scale)
        n_steps = _affordable(
            epsilon, n_iter, lambda steps: published_epsilon(scale, delta, steps=steps, **count)
        )
    return TrainingPlan(
        n_steps, sampling_rate, scale / math.sqrt(batch_size), delta, "add_remove", guaranteed=False
    )


def _published_scale(epsilon: float, delta: float, **training: Any) -> float:
    """Return the smallest noise scale that the paper's accounting allows, or raise."""
    low, high = map(math.log, _PUBLISHED_SCALES)

    def excess(log_scale: float) -> float:
        return published_epsilon(math.exp(log_scale), delta, **training) - epsilon

    if excess(high) > 0:
        raise ValueError(
            f"epsilon={epsilon!r} is less than the paper's conversion of Renyi divergences "
            f"states for any noise at delta={delta!r}. Use accounting='sound', or more epsilon."
        )
    return _PUBLISHED_SCALES[0] if excess(low) < 0 else math.exp(brentq(excess, low, high))


def _affordable(epsilon: float, n_iter: int, price: Callable[[int], float]) -> int:
    """Return the largest number of steps, up to `n_iter`, with a price within epsilon."""
    if price(n_iter) <= epsilon:
        return n_iter
    smallest = price(1)
    if smallest > epsilon:
        raise ValueError(
            f"epsilon={epsilon!r} does not allow a single step with this noise_multiplier, "
            "sampling_rate and delta: the smallest epsilon that does is "
            f"{rounded_up(smallest, 4)!r}. Use that, or more noise, or noise_multiplier=None."
        )
    # False for affordable numbers, True for others and for no number.
    return bisect_left(range(1, n_iter), True, key=lambda n_steps: not price(n_steps) <= epsilon)
