"""Steps of Gaussian noise: their price, and the noise for a budget."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from scipy.optimize import brentq

from skdpot.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon
from skdpot.privacy.accounting.losses import CentredPair, GaussianPair, Pair, SampledPair
from skdpot.privacy.accounting.pricing import composed_delta, composed_epsilon, directed
from skdpot.privacy.accounting.relations import check_relation
from skdpot.privacy.checks import check_count, check_delta, check_flag, check_positive, real_number

# Arguments are rounded to this many binary digits, always to the side that costs more. Then two
# arguments that are rounded differently differ by far more than the rounding error of a price, so
# prices are monotone. Exact formulas allow more digits than sums over a grid.
_EXACT_BITS, _GRID_BITS = 32, 20
# Numbers beyond this, or below its inverse, are replaced by it where that costs more.
_EXTREME = 1e50
# With sampling, a smaller noise multiplier is treated as no noise, which delta alone may allow.
_LEAST_FOUND = 1e-6
# Binary digits of a noise multiplier that is found by sums over a grid.
_FOUND_BITS = 13


def epsilon_of(
    noise_multiplier: float,
    delta: float,
    *,
    sampling_rate: float = 1.0,
    steps: int = 1,
    neighbouring: str = "add_remove",
    centred: bool = False,
) -> float:
    """Return the epsilon of steps of Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the l2 sensitivity of a step, under
        `neighbouring`. Everything computed from a step's sample counts as one release.
    delta : float
        Above 0 and below 1.
    sampling_rate : float, default=1.0
        Probability that a record is in the sample of a step, independently of all other records
        and steps (Poisson sampling).
    steps : int, default=1
        Number of steps.
    neighbouring : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation. Without sampling it affects only the sensitivity. With sampling,
        "replace_one" needs a sensitivity that bounds both the effect of a replaced record of the
        sample and that of an added one. For a sum of vectors with norm at most C it is 2 C.
    centred : bool, default=False
        Whether each step releases a sum of vectors, one per record, with norms of at most half of
        the sensitivity under "replace_one", such as clipped gradients (:ref:`centred-sums`). It
        matters only under "replace_one" with sampling.

    Returns
    -------
    float
        An upper bound that grows with steps and sampling rate and falls with noise multiplier and
        delta. Without sampling its relative error is at most 1e-9. With sampling it is about 1e-4
        above the exact value under "add_remove".

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the relation is unknown.

    See Also
    --------
    calibrate_noise_multiplier : The inverse.
    plan_epsilon : The epsilon of any plan.

    Notes
    -----
    Without sampling, T steps of multiplier s are one Gaussian release with ``mu = sqrt(T) / s``
    [1]_. With it, the privacy losses of a step are put on a grid so that prices can only grow
    [2]_, and convolved. Under "replace_one" a pair of distributions that no replacement exceeds is
    composed: an exact one for centred contributions (:ref:`centred-sums`), and else one derived
    from advanced joint convexity (:ref:`proof-accounting`).

    References
    ----------
    .. [1] B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy:
       analytical calibration and optimal denoising", ICML 2018. :arxiv:`1805.06530`
    .. [2] V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi, "Connect the dots: tighter
       discrete approximations of privacy loss distributions", PoPETs 2022.
       :doi:`10.56553/popets-2022-0122`

    Examples
    --------
    >>> from skdpot.privacy.accounting import epsilon_of
    >>> round(epsilon_of(3.73, 1e-5), 2)
    1.0
    >>> round(epsilon_of(1.84, 1e-5, sampling_rate=0.01, steps=2_000), 2)
    1.0
    >>> steps = {"sampling_rate": 0.02, "steps": 500, "neighbouring": "replace_one"}
    >>> [round(epsilon_of(1.0, 1e-6, **steps, centred=centred), 2) for centred in (False, True)]
    [3.71, 2.0]
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_delta(delta)
    _check_steps(sampling_rate, steps, neighbouring, centred)
    if sampling_rate == 0:
        return 0.0
    if noise_multiplier < 1 / _EXTREME:
        return math.inf
    whole = gaussian_epsilon(_rounded(delta, _EXACT_BITS, -1), _whole_mu(noise_multiplier, steps))
    rounded = _rounded(delta, _GRID_BITS, -1)
    ways = _sampled_ways(noise_multiplier, sampling_rate, steps, neighbouring, centred)
    # Sampling never raises the price, which a grid may be too coarse to show.
    sampled = max((composed_epsilon(pairs, rounded) for pairs in ways), default=whole)
    return float(min(whole, sampled))


def delta_of(
    noise_multiplier: float,
    epsilon: float,
    *,
    sampling_rate: float = 1.0,
    steps: int = 1,
    neighbouring: str = "add_remove",
    centred: bool = False,
) -> float:
    """Return the delta of steps of Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the l2 sensitivity of a step, as for
        `epsilon_of`.
    epsilon : float
        Finite and at least 0.
    sampling_rate : float, default=1.0
        Probability that a record is in the sample of a step.
    steps : int, default=1
        Number of steps.
    neighbouring : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation, as for `epsilon_of`.
    centred : bool, default=False
        Whether contributions are centred, as for `epsilon_of`.

    Returns
    -------
    float
        An upper bound that grows with steps and sampling rate and falls with noise multiplier
        and epsilon.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the relation is unknown.

    See Also
    --------
    epsilon_of : The epsilon at a delta.

    Examples
    --------
    >>> from skdpot.privacy.accounting import delta_of
    >>> round(delta_of(1.0, 1.0), 4)
    0.1269
    """
    check_positive("noise_multiplier", noise_multiplier)
    if epsilon != 0:
        check_positive("epsilon", epsilon)
    _check_steps(sampling_rate, steps, neighbouring, centred)
    if sampling_rate == 0:
        return 0.0
    if noise_multiplier < 1 / _EXTREME:
        return 1.0
    epsilon = min(epsilon, _EXTREME)
    whole = gaussian_delta(_rounded(epsilon, _EXACT_BITS, -1), _whole_mu(noise_multiplier, steps))
    # Near 0, a change of epsilon is smaller than the rounding error of a price.
    rounded = _rounded(epsilon, _GRID_BITS, -1) if epsilon > 1e-9 else 0.0
    ways = _sampled_ways(noise_multiplier, sampling_rate, steps, neighbouring, centred)
    sampled = max((composed_delta(pairs, rounded) for pairs in ways), default=whole)
    return float(min(whole, sampled))


def calibrate_noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sampling_rate: float = 1.0,
    steps: int = 1,
    neighbouring: str = "add_remove",
    centred: bool = False,
) -> float:
    """Return the noise multiplier that steps of Gaussian noise need for a budget.

    Parameters
    ----------
    epsilon : float
        Finite and above 0.
    delta : float
        Above 0 and below 1.
    sampling_rate : float, default=1.0
        Probability that a record is in the sample of a step, above 0.
    steps : int, default=1
        Number of steps.
    neighbouring : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation, as for `epsilon_of`.
    centred : bool, default=False
        Whether contributions are centred, as for `epsilon_of`.

    Returns
    -------
    float
        A multiplier at which `epsilon_of` is at most `epsilon`. It is never too small; the
        relative excess is 1e-9 without sampling and about 2e-4 with it. It grows with steps and
        sampling rate, and falls with epsilon and delta.

    Raises
    ------
    ValueError
        If a parameter is out of its range, `sampling_rate` is 0, or the relation is unknown.

    See Also
    --------
    epsilon_of : The epsilon of a multiplier.

    Examples
    --------
    >>> from skdpot.privacy.accounting import calibrate_noise_multiplier
    >>> round(calibrate_noise_multiplier(1.0, 1e-5), 2)
    3.73
    >>> round(calibrate_noise_multiplier(1.0, 1e-5, sampling_rate=0.01, steps=2_000), 2)
    1.84
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    _check_steps(sampling_rate, steps, neighbouring, centred)
    if sampling_rate == 0:
        raise ValueError("sampling_rate must be above 0: records never sampled need no noise.")

    # A smaller budget needs more noise.
    epsilon = min(epsilon, _EXTREME)

    def price(noise_multiplier: float, rate: float) -> float:
        return epsilon_of(
            noise_multiplier,
            delta,
            sampling_rate=rate,
            steps=steps,
            neighbouring=neighbouring,
            centred=centred,
        )

    def log_excess(log_mu: float) -> float:
        return math.log(gaussian_delta(epsilon, math.exp(log_mu))) - math.log(max(delta, 1e-290))

    log_mu = brentq(log_excess, -700.0, math.log(math.sqrt(2 * epsilon) + 40))
    near = _code(math.sqrt(steps) / math.exp(log_mu), _EXACT_BITS)
    code = _first_code(lambda code: price(_decoded(code, _EXACT_BITS), 1.0) <= epsilon, near)
    whole = _decoded(code, _EXACT_BITS)
    if sampling_rate == 1:
        return whole
    return min(whole, _least_multiplier(lambda found: price(found, sampling_rate) / epsilon, whole))


def _least_multiplier(share: Callable[[float], float], enough: float) -> float:
    """Return the smallest multiplier of few digits where a decreasing function is at most 1."""

    @cache
    def log_share(log_multiplier: float) -> float:
        return math.log(min(max(share(math.exp(log_multiplier)), 1e-9), 1e9))

    low = high = math.log(enough) + 2.0**-_FOUND_BITS
    while log_share(low) <= 0:
        if low < math.log(_LEAST_FOUND):
            return math.exp(low)
        # A little lower than the price suggests, if it fell like 1 / multiplier.
        high, low = low, low + max(log_share(low), -math.log(16)) - 0.1
    near = math.exp(brentq(log_share, low, high, xtol=2.0**-_FOUND_BITS))
    code = _first_code(
        lambda code: share(_decoded(code, _FOUND_BITS)) <= 1, _code(near, _FOUND_BITS)
    )
    return _decoded(code, _FOUND_BITS)


def _first_code(holds: Callable[[int], bool], near: int) -> int:
    """Return the first code at which a monotone condition holds, searched from a nearby one."""
    stride = 1
    if holds(near):
        low, high = near - stride, near
        while holds(low):
            stride *= 2
            low, high = low - stride, low
    else:
        low, high = near, near + stride
        while not holds(high):
            stride *= 2
            low, high = high, high + stride
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _whole_mu(noise_multiplier: float, steps: int) -> float:
    return math.sqrt(steps) / _rounded(noise_multiplier, _EXACT_BITS, -1)


def _sampled_ways(
    noise_multiplier: float, sampling_rate: float, steps: int, neighbouring: str, centred: bool
) -> list[dict[Pair, int]]:
    """Return the pairs of the steps in every direction; none if all records are sampled."""
    rate = min(_rounded(max(sampling_rate, 1 / _EXTREME), _GRID_BITS, 1), 1.0)
    if rate == 1:
        return []
    noise_multiplier = _rounded(min(noise_multiplier, _EXTREME), _GRID_BITS, -1)
    mu = 1 / noise_multiplier
    step: Pair = SampledPair(rate, GaussianPair(mu))
    if centred and neighbouring == "replace_one":
        step = CentredPair(rate, mu / 2)
    return directed({step: int(steps)}, neighbouring)


def _rounded(value: float, bits: int, direction: int) -> float:
    """Return a number rounded to so many binary digits, up (1) or down (-1)."""
    mantissa, exponent = math.frexp(value)
    scaled = math.ldexp(mantissa, bits)
    return math.ldexp(math.ceil(scaled) if direction > 0 else math.floor(scaled), exponent - bits)


def _code(value: float, bits: int) -> int:
    """Return the rank of a positive number, rounded down, among numbers with so many digits."""
    mantissa, exponent = math.frexp(value)
    return (exponent << (bits - 1)) + math.floor(math.ldexp(mantissa, bits)) - (1 << (bits - 1))


def _decoded(code: int, bits: int) -> float:
    """Return the number with a rank."""
    exponent, rest = code >> (bits - 1), code & ((1 << (bits - 1)) - 1)
    return math.ldexp(rest + (1 << (bits - 1)), exponent - bits)


def _check_steps(sampling_rate: Any, steps: Any, neighbouring: Any, centred: Any) -> None:
    if not 0 <= real_number(sampling_rate) <= 1:
        raise ValueError(f"sampling_rate must be from 0 to 1, got {sampling_rate!r}.")
    check_count("steps", steps)
    check_relation(neighbouring)
    check_flag("centred", centred)
