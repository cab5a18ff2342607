"""Trainings of the published generator: their price, their steps and noise, a step's vector.

Everything is computed from public numbers, without data.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq

from skdpot.generative import least_noise, rounded_up
from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.checks import check_count, check_delta, check_positive
from skdpot.privacy.events import (
    CentredGaussianDpEvent,
    DpEvent,
    GaussianDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    check_event,
)
from skdpot.privacy.sensitivity import clipped_gradient_sensitivity, clipped_sum_sensitivity

# The orders among which accountants of the paper's time took the best.
_ORDERS = np.concatenate([np.arange(1.1, 11.0, 0.1), np.arange(11.0, 65.0)])


def published_epsilon(
    noise_scale: float, delta: float, *, batch_size: int, sampling_rate: float, steps: int
) -> float:
    r"""Return the epsilon that the paper states for a training; it does not hold for this code.

    The paper counts every generated point's gradient as a separate query, with its own sample of
    records. But all gradients of a step are computed from one sample: see `sound_epsilon`.

    Parameters
    ----------
    noise_scale : float
        The paper's :math:`\sigma`: noise has the standard deviation :math:`2 \Delta \sigma`, where
        :math:`\Delta` is the norm that each point's gradient is clipped to.
    delta : float
        Above 0 and below 1.
    batch_size : int
        Generated points in a step.
    sampling_rate : float
        Probability with which a record is in a step's sample.
    steps : int
        Number of steps.

    Returns
    -------
    float
        Epsilon, of the Renyi divergences of the queries, with the conversion of the paper's
        definition 3.2.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    sound_epsilon : The epsilon that holds.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021, section 4.3.

    Examples
    --------
    The setting that is printed for MNIST:

    >>> from skdpot.published import published_epsilon, sound_epsilon
    >>> printed = dict(batch_size=50, sampling_rate=1 / 1200, steps=160_000)
    >>> round(published_epsilon(1.5, 1e-5, **printed), 1)
    10.0
    >>> round(sound_epsilon(1.5, 1e-5, **printed))
    846
    """
    query = PoissonSampledDpEvent(sampling_rate, GaussianDpEvent(noise_scale))
    check_event(query)
    n_queries = check_count("batch_size", batch_size) * check_count("steps", steps)
    accountant = RdpAccountant(_ORDERS)
    accountant.compose(query, n_queries)
    return float(np.min(accountant.rdp - math.log(check_delta(delta)) / (_ORDERS - 1)))


def sound_epsilon(
    noise_scale: float, delta: float, *, batch_size: int, sampling_rate: float, steps: int
) -> float:
    r"""Return the epsilon of a training whose gradients are clipped point by point.

    One record may change the gradients of all points. So the :math:`n` rows of a step are one
    query on one sample, with sensitivity :math:`2 \Delta \sqrt n`.

    Parameters
    ----------
    noise_scale : float
        The paper's :math:`\sigma`: noise has the standard deviation :math:`2 \Delta \sigma`, where
        :math:`\Delta` is the norm that each point's gradient is clipped to.
    delta : float
        Above 0 and below 1.
    batch_size : int
        Generated points in a step.
    sampling_rate : float
        Probability with which a record is in a step's sample.
    steps : int
        Number of steps.

    Returns
    -------
    float
        Epsilon, for the relation add/remove.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    published_epsilon : The epsilon that the paper claims.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021, algorithm 1. That the rows of
    a step are one query is proven in :ref:`proof-gradient-sensitivity`.

    Examples
    --------
    One step, of 160,000:

    >>> from skdpot.published import sound_epsilon
    >>> round(sound_epsilon(1.5, 1e-5, batch_size=50, sampling_rate=1 / 1200, steps=1), 1)
    13.8
    """
    noise_scale = check_positive("noise_scale", noise_scale)
    multiplier = noise_scale / math.sqrt(check_count("batch_size", batch_size))
    return epsilon_of(multiplier, delta, sampling_rate=sampling_rate, steps=steps)


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
    >>> from skdpot.published._training import TrainingPlan
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
    >>> from skdpot.published._training import plan_training
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
    >>> from skdpot.published._training import plan_published
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


# Range of the loss beside a gradient that is clipped as a whole, as a share of its diameter.
_LOSS_SHARE = 0.25
# Weights of the number of records and of losses beside sums over records, as a share of the
# clipping norm.
_COUNT_SHARE = 0.125
# Possible releases of a step, and the engine's name of such a step.
GRADIENTS = {"per_record": "per_record", "images": "per_image", "per_image": "per_image"}


@dataclass(frozen=True)
class StepVector:
    """The composition of a step's vector.

    Attributes
    ----------
    sensitivity : float
        How much one record moves it, in the l2 norm, under the relation of the training.
    sensitivity_to_added : float
        How much an added record moves it.
    clip_norm : float
        Norm that gradients are clipped to.
    per_point : bool
        Whether the gradient of each generated point is clipped on its own.
    loss_weight, count_weight : float
        Multipliers of a loss in [0, 1], and of the number of records.
    """

    sensitivity: float
    sensitivity_to_added: float
    clip_norm: float
    per_point: bool
    loss_weight: float
    count_weight: float

    def settings(self, noise_multiplier: float) -> dict[str, Any]:
        """Return it as settings of the engine; nothing is clipped without noise."""
        return {
            "clip_norm": self.clip_norm if noise_multiplier else math.inf,
            "per_point": self.per_point,
            "loss_weight": self.loss_weight,
            "count_weight": self.count_weight,
            "count_noise": self.count_noise(noise_multiplier),
        }

    def count_noise(self, noise_multiplier: float) -> float:
        """Return the standard deviation of the noise on the number of records, or 0."""
        if not self.count_weight:
            return 0.0
        return noise_multiplier * self.sensitivity / self.count_weight


def make_vector(gradient: str, clip_norm: float, batch_size: int, neighbouring: str) -> StepVector:
    """Return the composition of a step's vector, for gradients clipped to a norm.

    `gradient` is one of "per_record", "images" and "per_image", and `batch_size` the
    number of generated points.

    Examples
    --------
    >>> from skdpot.published._training import make_vector
    >>> vector = make_vector("per_record", 8.0, 50, "add_remove")
    >>> vector.count_weight, round(vector.sensitivity, 2)
    (1.0, 8.12)
    """
    if gradient == "per_record":
        # A power of two, so that losses on a grid stay on a grid.
        weight = 2.0 ** round(math.log2(_COUNT_SHARE * clip_norm))
        sensitivity, of_added = (
            clipped_sum_sensitivity(
                clip_norm, count_weight=weight, loss_weight=weight, relation=relation
            )
            for relation in (neighbouring, "add_remove")
        )
        return StepVector(sensitivity, of_added, clip_norm, False, weight, weight)
    per_point = gradient == "per_image"
    n_parts = batch_size if per_point else 1
    weight = _LOSS_SHARE * clipped_gradient_sensitivity(clip_norm, n_parts=n_parts)
    sensitivity = clipped_gradient_sensitivity(clip_norm, n_parts=n_parts, loss_range=weight)
    return StepVector(sensitivity, sensitivity, clip_norm, per_point, weight, 0.0)


def default_clip_norm(gradient: str, n_features: int, l1_weight: float, batch_size: int) -> float:
    """Return about the norm of a gradient between rows at a moderate distance: public."""
    of_record = (0.7 + l1_weight) * math.sqrt(n_features)
    if gradient == "per_record":
        return of_record
    return 2 * of_record / (batch_size if gradient == "per_image" else math.sqrt(batch_size))
