"""The published noisy Sinkhorn iterations between groups of records, and their privacy."""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot._base import warn_user
from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.distance import BaseTransportDistance, CostSettings, LabelledGroups, Released
from skdpot.privacy import events as ev
from skdpot.privacy.accounting import calibrate_noise_multiplier, epsilon_of, plan_epsilon
from skdpot.privacy.charging import ExpectedError, NoGuaranteeWarning
from skdpot.privacy.checks import check_count, check_delta, check_memory, check_positive
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism, NoiseSource
from skdpot.privacy.sensitivity import noisy_sinkhorn_sensitivity, plan_cost_sensitivity

# Maximum number of rounds, unless more are asked for.
MOST_ROUNDS = 10
# Error of the arithmetic, as a share of its inputs.
_ARITHMETIC_SHARE = 2.0**-44
# Rounding of prices and of multipliers, as a share of them.
_MARGIN = 1e-12


def check_problem(
    n_samples: Any, cost_range: Any, reg: Any
) -> tuple[tuple[int, int], float, float]:
    """Return the sizes of two samples, the range of costs and the regularisation, or raise."""
    # One number stands for two samples of a size.
    sizes = n_samples if isinstance(n_samples, (tuple, list)) else (n_samples, n_samples)
    if len(sizes) != 2:
        raise ValueError(f"n_samples must be one size for both samples, or two, got {n_samples!r}.")
    n, m = (check_count("n_samples", size) for size in sizes)
    return (n, m), check_positive("cost_range", cost_range), check_positive("reg", reg)


def published_privacy(
    n_iter: int,
    noise_variance: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
) -> float:
    r"""Return the epsilon that the paper claims for noisy Sinkhorn: *not* a guarantee.

    Parameters
    ----------
    n_iter : int
        Number of iterations, K.
    noise_variance : float
        Variance M of the noise, above 0.
    delta : float
        Above 0 and below 1.
    n_samples : int or tuple of two ints
        Size of both samples, or their sizes; n is the smaller one.
    cost_range : float
        Costs lie between 0 and this, R.
    reg : float
        Regularisation.

    Returns
    -------
    float
        ``K C / M + sqrt(K C log(1 / delta) / M)`` with ``C = reg / 2 log(1 + 4 reg R / n exp(6 R /
        reg))``.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    sound_privacy : The epsilon of a version that is private.

    Notes
    -----
    What is wrong: a replaced record moves its own potential by up to R, however many records there
    are; a bound in the sup norm is used in the l2 norm; the sensitivity is not squared; noise whose
    variance depends on the data is not covered; and the argument of the logarithm has a unit.
    Besides, the minimum over alpha that ends the proof has *twice* the square root.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Theorem 2.

    Examples
    --------
    >>> from skdpot.published import published_privacy, sound_privacy
    >>> settings = {"n_samples": 10_000, "cost_range": 1.0, "reg": 5.0}
    >>> round(published_privacy(1, 0.02, 1e-5, **settings), 2)
    3.91
    >>> sound_privacy(1, 0.02, 1e-5, **settings) > 54
    True
    """
    sizes, cost_range, reg = check_problem(n_samples, cost_range, reg)
    n_iter = check_count("n_iter", n_iter)
    noise_variance = check_positive("noise_variance", noise_variance)
    # In logarithms, since the exponential of the claim overflows for a small regularisation.
    log_term = math.log(4 * reg * cost_range / min(sizes))
    constant = reg / 2 * float(np.logaddexp(0.0, log_term + 6 * (cost_range / reg)))
    price = n_iter * constant / noise_variance
    return price + math.sqrt(price * -math.log(check_delta(delta)))


def sound_privacy(
    n_iter: int,
    noise_variance: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
) -> float:
    r"""Return the epsilon of noisy Sinkhorn on clipped potentials.

    Parameters
    ----------
    n_iter : int
        Number of iterations, K.
    noise_variance : float
        Variance M of the noise, above 0.
    delta : float
        Above 0 and below 1.
    n_samples : int or tuple of two ints
        Size of both samples, or their sizes. They are public, and so is the sample of each record.
    cost_range : float
        Costs lie between 0 and this, R. Released potentials are clipped to ``[-R, R]`` before they
        are used.
    reg : float
        Regularisation.

    Returns
    -------
    float
        The epsilon of Gaussian differential privacy with ``mu = D sqrt(K / M)``, where D is the
        sensitivity of all that an iteration releases.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    skdpot.privacy.sensitivity.noisy_sinkhorn_sensitivity : The sensitivity D.
    published_privacy : What the paper claims.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Algorithm 1 with sigma = 0.

    Examples
    --------
    >>> from skdpot.published import sound_privacy
    >>> round(sound_privacy(1, 16.0, 1e-5, n_samples=1000, cost_range=1.0, reg=1.0), 2)
    1.0
    """
    sizes, cost_range, reg = check_problem(n_samples, cost_range, reg)
    n_iter = check_count("n_iter", n_iter)
    noise_variance = check_positive("noise_variance", noise_variance)
    # Potentials are clipped to the range of costs: exact ones are below it.
    moved = noisy_sinkhorn_sensitivity(cost_range, reg, *sizes, cost_range)
    multiplier = math.sqrt(noise_variance / n_iter) / moved
    return epsilon_of(multiplier, check_delta(delta))


@dataclass(frozen=True)
class NoisySinkhornPlan:
    """The releases of a run of private noisy Sinkhorn; everything in it is public.

    The noise multiplier is that of all rounds together, as one Gaussian release. The cost
    sensitivity is how much a record can change the cost of the plan, once the potentials are
    released.
    """

    n_samples: tuple[int, int]
    cost_range: float
    reg: float
    n_iter: int
    noise_variance: float
    granularity: float
    noise_multiplier: float
    cost_sensitivity: float
    delta: float
    second_epsilon: float

    @property
    def event(self) -> ev.PlannedDpEvent:
        """Return the event of a run, under the relation "replace_one"."""
        return _event(self.noise_multiplier, self.second_epsilon, self.delta)

    @cached_property
    def potential_mechanism(self) -> GaussianMechanism:
        """Return the noise on the potentials of a sample, with at least the planned variance."""
        of_a_round = self.noise_multiplier * math.sqrt(self.n_iter)
        return GaussianMechanism.from_noise_multiplier(
            of_a_round,
            math.sqrt(self.noise_variance) / of_a_round,
            n_coordinates=max(self.n_samples),
            granularity=self.granularity,
        )

    @cached_property
    def cost_mechanism(self) -> LaplaceMechanism:
        """Return the noise on the cost of the plan."""
        return LaplaceMechanism(self.second_epsilon, self.cost_sensitivity)


def plan_noisy_sinkhorn(
    epsilon: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
    n_iter: int | None = None,
    noise_variance: float | None = None,
) -> NoisySinkhornPlan:
    """Return a plan of noisy Sinkhorn whose event costs at most epsilon at delta, or raise.

    By default the number of rounds, from 1 to 10, is what half of epsilon pays for with noise of
    variance `noise_variance`; or, without it, with a standard deviation of a fiftieth of the bound
    on potentials. The default variance makes all rounds cost half of epsilon.

    Examples
    --------
    >>> from skdpot.published._noisy_sinkhorn import plan_noisy_sinkhorn
    >>> problem = {"n_samples": 1000, "cost_range": 1.0, "reg": 1.0}
    >>> plan = plan_noisy_sinkhorn(1.0, 1e-5, **problem)
    >>> plan.n_iter, round(plan.second_epsilon, 3)
    (1, 0.5)
    >>> round(plan.noise_variance), round(plan.cost_mechanism.scale, 4)
    (57, 0.0054)
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    sizes, cost_range, reg = check_problem(n_samples, cost_range, reg)
    # A larger budget is not spent, since noise can hardly be smaller.
    epsilon = min(epsilon, 1e30)

    def of_a_round(granularity: float = 0.0) -> float:
        """Return how much a record moves a round that is computed and rounded to a grid.

        Potentials are clipped to the range of costs before they are used. Without noise that
        changes nothing: exact ones are below it.
        """
        rounding = granularity + _ARITHMETIC_SHARE * (2 * cost_range + reg)
        return noisy_sinkhorn_sensitivity(cost_range, reg, *sizes, cost_range, rounding=rounding)

    # With this deviation, a single round costs half of epsilon.
    half = calibrate_noise_multiplier(epsilon / 2, delta) * of_a_round()
    # The budget decides on the rounds, and the rounds on the noise.
    if noise_variance is None:
        # More rounds lose more by noise than they gain by convergence, unless the standard
        # deviation is below a fiftieth of the bound on potentials (tried for regularisations of 0.2
        # to 1 times R).
        n_iter = _rounds(n_iter, 0.02 * cost_range / half)
        noise_variance = n_iter * half**2
    else:
        noise_variance = check_positive("noise_variance", noise_variance)
        n_iter = _rounds(n_iter, math.sqrt(noise_variance) / half)
    # Rounding to the grid adds at most a share of 2**-20 to a round's sensitivity, or of 2**-27 to
    # the noise, whichever is more: the noise must span fewer than 2**40 points.
    rounding = max(2.0**-20 * of_a_round(), 2.0**-27 * math.sqrt(noise_variance))
    rounding /= math.sqrt(max(sizes))
    granularity = math.ldexp(0.5, math.frexp(rounding)[1])
    of_all_rounds = math.sqrt(n_iter) * of_a_round(granularity)
    multiplier = math.sqrt(noise_variance) / of_all_rounds * (1 - _MARGIN)
    first_epsilon = epsilon_of(multiplier, delta)
    left = _what_is_left(epsilon, delta, multiplier, first_epsilon)
    moved = plan_cost_sensitivity(cost_range, reg, *sizes, cost_range, rounding=_ARITHMETIC_SHARE)
    # Larger exponents than 700, or their products with costs, could overflow.
    if not (2 * (cost_range / reg) <= 700.0 and math.isfinite(moved)):
        raise ValueError(
            f"reg={reg!r} is too small for potentials up to {cost_range!r}: the cost of their plan "
            "may be beyond the range of doubles. Choose a larger reg."
        )
    plan = NoisySinkhornPlan(
        n_samples=sizes,
        cost_range=cost_range,
        reg=reg,
        n_iter=n_iter,
        noise_variance=noise_variance,
        granularity=granularity,
        noise_multiplier=multiplier,
        cost_sensitivity=moved,
        delta=delta,
        # With more, the grid of the second stage, which is finer than its noise, would not reach
        # the largest cost of a plan.
        second_epsilon=min(left, 2.0**39 / min(sizes)),
    )
    # Computed now, since they raise if the noise is out of range.
    plan.potential_mechanism, plan.cost_mechanism  # noqa: B018
    return plan


def run_noisy_sinkhorn(
    cost: Any, plan: NoisySinkhornPlan, source: NoiseSource
) -> tuple[float, np.ndarray, np.ndarray]:
    """Release the potentials of the last round, and the cost of their transport plan.

    Costs are of shape (n, m), and shifted to the interval from 0 to the range of costs; others are
    clipped, and NaN counts as the largest. Only the row or column of a record may depend on the
    record, except for arithmetic errors below ``2**-46 R``. The cost of the plan is ``sum_ij c_ij
    exp((phi_i + psi_j - c_ij) / reg) / (n m)`` for the clipped potentials, with Laplace noise.
    """
    mechanism, max_cost = plan.potential_mechanism, plan.cost_range
    costs = read_costs(cost, plan.n_samples)
    with np.errstate(all="ignore"):
        costs = np.clip(np.where(np.isnan(costs), max_cost, costs), 0.0, max_cost)
        psi = np.zeros(costs.shape[1])
        for _ in range(plan.n_iter):
            answer = half_step(costs, np.clip(psi, -max_cost, max_cost), plan.reg)
            # Released before it is used: all that follows from it costs nothing.
            phi = mechanism.release(answer - answer.mean(), source)
            answer = half_step(costs.T, np.clip(phi, -max_cost, max_cost), plan.reg)
            psi = mechanism.release(answer, source)
        phi_used, psi_used = np.clip(phi, -max_cost, max_cost), np.clip(psi, -max_cost, max_cost)
        # The second stage: the cost still depends on the records, given the potentials.
        value = plan_cost(costs, phi_used, psi_used, plan.reg)
    return plan.cost_mechanism.release(value, source), phi, psi


def read_costs(cost: Any, n_samples: tuple[int, int]) -> np.ndarray:
    """Return costs as doubles, or raise if the plan is for other costs."""
    costs = np.asarray(cost, dtype=np.float64)
    if costs.shape != n_samples:
        raise ValueError(f"costs must have shape {n_samples}, got {costs.shape}.")
    return costs


def half_step(costs: np.ndarray, potentials: np.ndarray, reg: float) -> np.ndarray:
    """Return the potentials of the rows, computed from those of the columns."""
    # Sums along contiguous rows are pairwise, as the bound on their rounding errors requires.
    exponents = np.subtract(potentials, costs, order="C") / reg
    maxima = exponents.max(axis=1, keepdims=True)
    means = np.exp(exponents - maxima).mean(axis=1)
    return -reg * (maxima[:, 0] + np.log(means))


def plan_cost(costs: np.ndarray, phi: np.ndarray, psi: np.ndarray, reg: float) -> float:
    """Return the cost of the plan of two potentials."""
    return float(np.mean(costs * np.exp((phi[:, None] + psi - costs) / reg)))


def _event(noise_multiplier: float, second_epsilon: float, delta: float) -> ev.PlannedDpEvent:
    """Return the event of both stages."""
    stages = [ev.GaussianDpEvent(noise_multiplier), ev.LaplaceDpEvent(1 / second_epsilon)]
    return ev.PlannedDpEvent(ev.ComposedDpEvent(stages), delta)


def _rounds(n_iter: Any, deviations: float) -> int:
    """Return the number of rounds: the requested one, or one that the budget pays for."""
    if n_iter is not None:
        return check_count("n_iter", n_iter)
    return int(min(max(deviations**2, 1), MOST_ROUNDS))


def _what_is_left(epsilon: float, delta: float, multiplier: float, first_epsilon: float) -> float:
    """Return the largest epsilon of the second stage that keeps the total price at epsilon.

    The sum of the stages' epsilons is a valid price as well. But a ledger takes the price of the
    composition, which is about 3 % lower if the stages cost the same, and may be slightly higher,
    by rounding, if one costs much more than the other.
    """
    # The plain sum is nearly always enough; a step down is for rounding.
    left = epsilon - first_epsilon
    while left > epsilon * _MARGIN:
        price = plan_epsilon(_event(multiplier, left, delta), delta, neighbouring="replace_one")
        if price <= epsilon:
            return left
        left -= min(2 * (price - epsilon), left / 2)
    raise nothing_left(epsilon, first_epsilon)


def nothing_left(epsilon: float, first_epsilon: float) -> ValueError:
    """Return the error for rounds that spend the whole budget."""
    return ValueError(
        f"the rounds spend {first_epsilon:g} of epsilon={epsilon:g}, and leave nothing for the "
        "cost of the plan. Choose a larger noise_variance or a smaller n_iter."
    )


@dataclass(frozen=True)
class PaperSinkhornPlan:
    """A run of noisy Sinkhorn as published: *no guarantee*."""

    n_samples: tuple[int, int]
    reg: float
    n_iter: int
    noise_variance: float
    adaptive_noise: float
    cost_noise_scale: float

    # A ledger cannot be charged for it.
    event = None


def plan_paper_sinkhorn(
    epsilon: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
    n_iter: int | None = None,
    noise_variance: float | None = None,
    adaptive_noise: float = 0.0,
) -> PaperSinkhornPlan:
    """Return a plan of published noisy Sinkhorn for an epsilon that is claimed and does not hold.

    By default there are 10 rounds, and half of epsilon is claimed for the potentials (Theorem 2);
    eq. (12) splits it. The
    share `adaptive_noise`, sigma^2, of a round's squared step is added to the variance. The claim
    does not depend on it.

    Examples
    --------
    >>> from skdpot.published._noisy_sinkhorn import plan_paper_sinkhorn
    >>> problem = {"n_samples": 10_000, "cost_range": 1.0, "reg": 5.0}
    >>> plan = plan_paper_sinkhorn(8.0, 1e-5, **problem, n_iter=1, noise_variance=0.02)
    >>> round(plan.cost_noise_scale, 5)
    0.00099
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    sizes, cost_range, reg = check_problem(n_samples, cost_range, reg)
    n_iter = n_iter or MOST_ROUNDS
    claim = partial(published_privacy, delta=delta, n_samples=sizes, cost_range=cost_range, reg=reg)
    if noise_variance is None:
        # The claim depends only on K C / M.
        noise_variance = _rate(claim(n_iter, 1.0), delta) / _rate(epsilon / 2, delta)
    first_claim = claim(n_iter, noise_variance)
    if first_claim >= epsilon:
        raise nothing_left(epsilon, first_claim)
    # Lemma 5, on how much a record moves the cost of the optimal plan. The smallest of three bounds
    # is never one whose exponential is cut off.
    n, ratio = min(sizes), cost_range / reg
    stability = cost_range * math.sqrt(ratio / (2 * n)) * math.exp(min(ratio, 700.0))
    sensitivity = 2 * cost_range / n + min(reg * math.log(n), cost_range, stability)
    return PaperSinkhornPlan(
        n_samples=sizes,
        reg=reg,
        n_iter=n_iter,
        noise_variance=noise_variance,
        adaptive_noise=adaptive_noise,
        cost_noise_scale=sensitivity / (epsilon - first_claim),
    )


def run_paper_sinkhorn(
    cost: Any, plan: PaperSinkhornPlan, source: NoiseSource
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the noisy cost of the plan, and the noisy potentials of the last round: *not private*.

    Line 5 of Algorithm 1 answers a ``phi`` that line 8 only defines. Here it is the one before the
    noise, as in the operator T of the proof of Theorem 2.
    """
    n, m = plan.n_samples
    costs = read_costs(cost, plan.n_samples)
    phi, psi = np.zeros(n), np.zeros(m)
    with np.errstate(all="ignore"):
        for _ in range(plan.n_iter):
            answer = half_step(costs, psi, plan.reg)
            new_phi = answer - answer.mean()
            new_psi = half_step(costs.T, new_phi, plan.reg)
            step = np.sum((new_phi - phi) ** 2) + np.sum((new_psi - psi) ** 2)
            deviation = math.sqrt(plan.adaptive_noise * step + plan.noise_variance)
            phi = new_phi + deviation * source.normal(n)
            psi = new_psi + deviation * source.normal(m)
        value = plan_cost(costs, phi, psi, plan.reg)
    return value + plan.cost_noise_scale * float(_laplace(source, ())), phi, psi


def _laplace(source: NoiseSource, size: Any) -> np.ndarray:
    """Return standard Laplace doubles, which are not private in finite arithmetic."""
    # By inversion, as the paper would: this is no private release.
    uniform = source.uniform(size) - 0.5
    return -np.copysign(np.log1p(-2 * np.abs(uniform)), uniform)


def _rate(claim: float, delta: float) -> float:
    """Return the x for which Theorem 2 claims ``x + sqrt(x log(1 / delta))``."""
    root = math.sqrt(-math.log(delta))
    return (2 * claim / (math.sqrt(root**2 + 4 * claim) + root)) ** 2


@dataclass(frozen=True)
class NoisySinkhornRuns:
    """A run of noisy Sinkhorn for every pair of groups, and the event of all runs."""

    settings: CostSettings
    groups: LabelledGroups
    plans: list[NoisySinkhornPlan] | list[PaperSinkhornPlan]
    event: ev.DpEvent | None

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the deviation of the noise of each cost; the noise of potentials adds to it."""
        if isinstance(self.plans[0], PaperSinkhornPlan):
            return ()
        # A Laplace distribution has the deviation of root two of its scale.
        errors = (plan.cost_mechanism.scale * math.sqrt(2.0) for plan in self.plans)
        return self.groups.cost_errors(errors, self.settings.cost_range, ", or more")

    def run(self, X: np.ndarray, source: NoiseSource) -> Released:
        """Release the costs of all pairs, and the potentials if there are two groups."""
        # Every pair has a stream of its own, so that jobs may run in any order.
        pairs = combinations(self.groups.split(X, X[:0]), 2)
        calls = [(self._between, k, x, y, source.for_user(k)) for k, (x, y) in enumerate(pairs)]
        released = self.settings.map(calls)
        costs = np.array([value for value, _, _ in released])
        potentials = {"potentials_": released[0][1:]} if len(released) == 1 else {}
        return Released(costs, attributes=potentials)

    def _between(
        self, k: int, x: np.ndarray, y: np.ndarray, source: NoiseSource
    ) -> tuple[float, np.ndarray, np.ndarray]:
        low, _ = self.settings.cost.range
        cost, plan = self.settings.cost(x, y) - low, self.plans[k]
        if isinstance(plan, PaperSinkhornPlan):
            value, phi, psi = run_paper_sinkhorn(cost, plan, source)
        else:
            value, phi, psi = run_noisy_sinkhorn(cost, plan, source)
            # Noise gives the plan too much or too little mass; no cost can leave this range.
            value = min(max(value, 0.0), self.settings.cost_range)
        return low + value, low + phi, psi


class NoisySinkhornDistance(BaseTransportDistance):
    """The published noisy Sinkhorn: noise on the potentials of every iteration.

    **Superseded** by :class:`~skdpot.PrivateSinkhornDistance`, whose noise is smaller by about the
    number of records. With ``accounting="sound"`` the published algorithm is corrected, so that it
    is private. With ``accounting="paper"`` it is the one of the paper, whose proof does not hold.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of a fit.
    delta : float, default=1e-5
        Above 0, because noise is Gaussian.
    bounds, groups, metric, cost_range : optional
        As in :class:`~skdpot.PrivateSinkhornDistance`. Labels are public: there is one potential
        for every record.
    reg : float, default=None
        Regularisation, in units of cost. Noise grows as ``exp(2 R / reg)`` with the range R of the
        costs: unless `reg` is of the size of R, which None is, only noise is left.
    accounting : {"sound", "paper"}, default="sound"
        ``"paper"`` scales the noise by the published proof, which does not hold: **nothing is
        guaranteed**, a warning says so, and a ledger is refused.
    n_iter : int, default=None
        Number of iterations K. None chooses by the budget.
    noise_variance : float, default=None
        Variance M of the noise on each potential, in squared units of cost. None chooses by the
        budget.
    adaptive_noise : float, default=0.0
        The factor sigma**2 of the published algorithm, for ``accounting="paper"`` only.
    order, n_jobs, ledger, random_state, verbose : optional
        As in :class:`~skdpot.PrivateSinkhornDistance`.

    Attributes
    ----------
    distance_ : float
        The noisy distance, if there are two groups.
    distances_ : ndarray of shape (n_groups, n_groups)
        Noisy distances between all pairs.
    standard_error_, noise_interval_ : object
        NaN: the error of noisy iterations is not known.
    potentials_ : tuple of two ndarray
        Noisy potentials of the records, if there are two groups.
    groups_ : ndarray of shape (n_groups,)
        Labels of the groups.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee; None for ``accounting="paper"`` and for seeded releases.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has any.

    Warns
    -----
    NoGuaranteeWarning
        For ``accounting="paper"``.

    See Also
    --------
    skdpot.PrivateSinkhornDistance : Noise on the cost, or on counts.
    published_privacy : The epsilon that the paper claims.
    sound_privacy : The epsilon of the corrected iterations.

    Notes
    -----
    The cost is ``<c, pi>`` of the plan that the potentials stand for, without the penalty; with
    ``accounting="sound"`` it is moved into the range of costs. Proof: :ref:`proof-noisy-sinkhorn`.
    :doc:`/published` lists the errors of the published claims.

    References
    ----------
    J. Wang and Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Allerton 2024: Algorithm 1
    and equation (8).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.published import NoisySinkhornDistance
    >>> X, y = np.repeat([[0.0], [1.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> noisy = NoisySinkhornDistance(2000.0, bounds=(0, 1), random_state=0).fit(X, y)
    >>> bool(0 <= noisy.distance_ <= 1), noisy.potentials_[0].shape
    (True, (500,))
    """

    _parameter_constraints: dict = {
        **BaseTransportDistance._parameter_constraints,
        "reg": [Interval(Real, 0, None, closed="neither"), None],
        "accounting": [StrOptions({"sound", "paper"})],
        "n_iter": [Interval(Integral, 1, None, closed="left"), None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
        "adaptive_noise": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-5,
        *,
        bounds=None,
        groups=None,
        metric="sqeuclidean",
        cost_range=None,
        reg=None,
        accounting="sound",
        n_iter=None,
        noise_variance=None,
        adaptive_noise=0.0,
        order=None,
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.groups = groups
        self.metric = metric
        self.cost_range = cost_range
        self.reg = reg
        self.accounting = accounting
        self.n_iter = n_iter
        self.noise_variance = noise_variance
        self.adaptive_noise = adaptive_noise
        self.order = order
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _plan_release(self, space: Any, groups: LabelledGroups) -> NoisySinkhornRuns:
        settings = self._cost_settings(space, self.reg)
        # Each record is in as many pairs as there are other groups, and the budget is for a record.
        others = len(groups.sizes) - 1
        budget = (self.epsilon / others, self.delta / others)
        options = {"cost_range": settings.cost_range, "reg": settings.reg, "n_iter": self.n_iter}
        options["noise_variance"] = self.noise_variance
        make_plan: Any = plan_noisy_sinkhorn
        if self.accounting == "paper":
            make_plan = partial(plan_paper_sinkhorn, adaptive_noise=self.adaptive_noise)
            warn_user(
                "accounting='paper' scales noise by a published proof that does not hold: the "
                "release is not private.",
                NoGuaranteeWarning,
            )
        elif self.adaptive_noise > 0:
            raise ValueError(
                "noise whose variance depends on the data (adaptive_noise > 0) has no proof of "
                "privacy. Use adaptive_noise=0, or accounting='paper' to reproduce the paper."
            )
        plans: list[Any] = []
        # A record takes part in k - 1 of the runs, each of which gets that part of the budget.
        for n, m in combinations(groups.sizes.tolist(), 2):
            # Six matrices of n * m costs are held in memory.
            what = f"noisy Sinkhorn between {n:,} and {m:,} records"
            check_memory(48 * n * m, what, "Use PrivateSinkhornDistance.")
            plans.append(make_plan(*budget, n_samples=(n, m), **options))
        event = plans[0].event
        if event is not None and len(plans) > 1:
            # The pairs (epsilon, delta) of the runs with one record add up.
            event = ev.ApproximateDpEvent(self.epsilon, self.delta)
        return NoisySinkhornRuns(settings, groups, plans, event)
