"""Theory of noisy Sinkhorn: formulas, limits, and bounds that are bounds."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import logsumexp

from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.sensitivity import noisy_sinkhorn_sensitivity
from skdpot.published import published_privacy, sound_privacy, sound_utility_bound, utility_bound
from skdpot.published._sinkhorn_privacy import published_linear_sensitivity
from skdpot.published._sinkhorn_problem import check_problem

DELTA = 1e-5
PROBLEM = {"n_samples": (400, 300), "cost_range": 1.5, "reg": 2.0}


# ------------------------------------------------------------------------------ a simulation


def noisy_sinkhorn(costs, reg, bound, n_iter, variance, rng, repetitions):
    """Return clipped potentials of runs whose half steps start from clipped potentials."""
    n, m = costs.shape
    deviation = math.sqrt(variance)
    psi = np.zeros((repetitions, m))
    for _ in range(n_iter):
        psi = np.clip(psi, -bound, bound)
        phi = -reg * (logsumexp((psi[:, None, :] - costs) / reg, axis=2) - math.log(m))
        phi -= phi.mean(axis=1, keepdims=True)
        phi = np.clip(phi + deviation * rng.standard_normal(phi.shape), -bound, bound)
        psi = -reg * (logsumexp((phi[:, :, None] - costs) / reg, axis=1) - math.log(n))
        psi += deviation * rng.standard_normal(psi.shape)
    return phi, np.clip(psi, -bound, bound)


def plans(phi, psi, costs, reg):
    """Return the plans that potentials stand for."""
    return np.exp((phi[:, :, None] + psi[:, None, :] - costs) / reg) / costs.size


def objective(phi, psi, costs, reg):
    """Return F, which is `reg` at its least less the entropic cost."""
    mass = plans(phi, psi, costs, reg).sum(axis=(1, 2))
    return reg * mass - phi.mean(axis=1) - psi.mean(axis=1)


def optimum(costs, reg):
    """Return optimal potentials, from many iterations without logarithms."""
    kernel = np.exp(-costs / reg)
    right = np.ones(costs.shape[1])
    for _ in range(2000):
        left = 1 / (kernel @ right / len(right))
        right = 1 / (left @ kernel / len(left))
    phi, psi = reg * np.log(left), reg * np.log(right)
    return (phi - phi.mean())[None], (psi + phi.mean())[None]


def random_costs(rng, kind):
    n, m = rng.integers(2, 10, 2)
    if kind == "line":
        return np.abs(np.subtract.outer(rng.random(n), rng.random(m)))
    costs = rng.random((n, m))
    return costs.round() if kind == "extreme" else costs


by_kind = pytest.mark.parametrize("kind", ["line", "even", "extreme"])


# -------------------------------------------------------------------------------- utility


@by_kind
@pytest.mark.parametrize("reg", [0.1, 1.0, 20.0])
def test_noiseless_sinkhorn_is_within_theorem_1(kind, reg):
    rng = np.random.default_rng(0)
    for _ in range(3):
        costs = random_costs(rng, kind)
        best = objective(*optimum(costs, reg), costs, reg)[0]
        zero = np.zeros((1, len(costs))), np.zeros((1, costs.shape[1]))
        gap = objective(*zero, costs, reg)[0] - best
        for n_iter in (1, 2, 5):
            run = noisy_sinkhorn(costs, reg, np.inf, n_iter, 0.0, rng, 1)
            lacks = objective(*run, costs, reg)[0] - best
            default = utility_bound(n_iter, 0.0, cost_range=1.0, reg=reg)
            own = utility_bound(n_iter, 0.0, cost_range=1.0, reg=reg, initial_gap=max(gap, 0.0))
            assert lacks <= own + 1e-12 <= default + 2e-12


def test_theorem_1_does_not_hold_with_noise():
    # Where costs are 0 zero is optimal.
    variance, reg = 0.1, 1.0
    costs = np.zeros((3, 4))
    runs = noisy_sinkhorn(costs, reg, np.inf, 1, variance, np.random.default_rng(1), 20_000)
    lacks = objective(*runs, costs, reg).mean() - reg
    claim = utility_bound(1, variance, cost_range=1e-6, reg=reg, initial_gap=0.0)
    assert claim == pytest.approx(variance / (4 * reg), rel=1e-4)
    assert lacks > 0.97 * reg * math.expm1(variance / reg**2 / 2) > 1.9 * claim


@by_kind
@pytest.mark.parametrize("reg", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("variance", [1e-3, 0.05, 10.0])
def test_noisy_sinkhorn_is_within_the_sound_bound(kind, reg, variance):
    rng = np.random.default_rng(2)
    costs = random_costs(rng, kind)
    best = optimum(costs, reg)
    exact_cost = np.sum(costs * plans(*best, costs, reg)[0])
    for n_iter, bound in ((1, 1.0), (4, 1.0), (2, 2.5)):
        run = noisy_sinkhorn(costs, reg, bound, n_iter, variance, rng, 300)
        lacks = objective(*run, costs, reg).mean() - objective(*best, costs, reg)[0]
        limit = sound_utility_bound(
            n_iter, variance, n_samples=costs.shape, cost_range=1.0, reg=reg, bound=bound
        )
        assert 0 <= lacks <= limit
        # As the trade-off of two stages turns it into a bound on the error of the cost.
        divergence = limit / reg
        error = 2 * divergence / 3 + math.sqrt(4 * divergence**2 / 9 + 2 * divergence)
        released = np.sum(costs * plans(*run, costs, reg), axis=(1, 2))
        assert np.abs(released - exact_cost).mean() <= error


def exact_theorem_1(n_iter, variance, cost_range, reg, sigma2, gap):
    with mpmath.workdps(400):
        rho = (1 - mpmath.mpf(sigma2)) / 8 * mpmath.exp(-24 * mpmath.mpf(cost_range) / reg)
        floor = mpmath.exp(-6 * mpmath.mpf(cost_range) / reg) / (2 * reg) * variance / (2 * rho)
        return float((1 - rho) ** n_iter * (gap - floor) + floor)


@pytest.mark.parametrize("reg", [0.04, 0.5, 3.0, 100.0])
@pytest.mark.parametrize("n_iter", [1, 30, 10**6])
@pytest.mark.parametrize("variance, sigma2", [(0.0, 0.0), (0.3, 0.0), (2.0, 0.9)])
def test_theorem_1_to_many_digits(n_iter, variance, reg, sigma2):
    value = utility_bound(
        n_iter, variance, cost_range=1.0, reg=reg, adaptive_noise=sigma2, initial_gap=0.7
    )
    exact = exact_theorem_1(n_iter, variance, 1.0, reg, sigma2, 0.7)
    assert value == pytest.approx(exact, rel=1e-9)


def test_start_at_zero():
    # Where all costs are the largest the optimum is known, and the default attained.
    default = utility_bound(1, 0.0, cost_range=2.0, reg=1e-2)
    assert default == pytest.approx(2.0 - 1e-2, rel=1e-12)
    costs = np.full((3, 3), 2.0)
    lacks = objective(np.zeros((1, 3)), np.zeros((1, 3)), costs, 3.0)[0] - (3.0 - 2.0)
    start = utility_bound(1, 0.0, cost_range=2.0, reg=3.0)
    assert start == pytest.approx(lacks, rel=1e-7)


@pytest.mark.parametrize("reg", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize("n_iter", [1, 10**12])
@pytest.mark.parametrize("variance", [0.0, 1e-300, 1.0, 1e300])
def test_extremes_are_no_errors(n_iter, variance, reg):
    values = [
        utility_bound(n_iter, variance, cost_range=1.0, reg=reg),
        sound_utility_bound(n_iter, variance, n_samples=10**9, cost_range=1.0, reg=reg),
    ]
    assert all(value >= 0 for value in values)


def test_sound_bound_falls_with_iterations_and_grows_with_noise():
    options = {"n_samples": 50, "cost_range": 1.0, "reg": 0.7}
    without_noise = [sound_utility_bound(k, 0.0, **options) for k in (1, 2, 5, 20, 1000)]
    assert without_noise == sorted(without_noise, reverse=True)
    assert without_noise[-1] == pytest.approx(0.0, abs=1e-100)
    noisy = [sound_utility_bound(3, variance, **options) for variance in (0, 1e-4, 1e-2, 1, 100)]
    assert noisy == sorted(noisy)
    # The iterations that are added where a half step hardly contracts.
    slow = [sound_utility_bound(k, 1e-12, n_samples=9, cost_range=1.0, reg=r) for k, r in
            ((10**6, 1 / 36), (10**6, 1 / 38))]  # fmt: skip
    assert slow[0] == pytest.approx(slow[1], rel=0.2)


# -------------------------------------------------------------------------------- privacy


def test_the_numbers_of_the_counterexample():
    options = {"n_samples": 10_000, "cost_range": 1.0, "reg": 5.0}
    assert published_privacy(1, 0.02, DELTA, **options) == pytest.approx(3.91, abs=0.005)
    # The potential of the replaced record alone.
    own = epsilon_of(math.sqrt(0.02), DELTA)
    assert 54 <= own <= sound_privacy(1, 0.02, DELTA, **options) < 60


@pytest.mark.parametrize("reg", [0.5, 2.0, 30.0])
def test_privacy_formulas(reg):
    constant = reg / 2 * math.log(1 + 4 * reg * 1.5 / 300 * math.exp(6 * 1.5 / reg))
    price = 7 * constant / 0.4
    options = PROBLEM | {"reg": reg}
    assert published_privacy(7, 0.4, DELTA, **options) == pytest.approx(
        price + math.sqrt(price * math.log(1 / DELTA)), rel=1e-12
    )
    sensitivity = noisy_sinkhorn_sensitivity(1.5, reg, 400, 300, 2.0)
    assert sound_privacy(7, 0.4, DELTA, **options, bound=2.0) == pytest.approx(
        epsilon_of(1 / math.sqrt(7) * math.sqrt(0.4) / sensitivity, DELTA), rel=1e-8
    )


def test_privacy_improves_with_noise_and_fewer_iterations():
    for claim in (published_privacy, sound_privacy):
        assert claim(1, 1.0, DELTA, **PROBLEM) < claim(2, 1.0, DELTA, **PROBLEM)
        assert claim(1, 2.0, DELTA, **PROBLEM) < claim(1, 1.0, DELTA, **PROBLEM)
        assert claim(1, 1.0, 1e-3, **PROBLEM) < claim(1, 1.0, DELTA, **PROBLEM)
        assert claim(3, 1e8, DELTA, **PROBLEM) < 0.1
    # Huge exponents of the claim.
    assert published_privacy(1, 1.0, DELTA, n_samples=5, cost_range=1.0, reg=1e-5) < 10


def test_linear_component_formulas():
    for reg in (0.01, 0.5, 20.0):
        options = PROBLEM | {"reg": reg}
        root = math.sqrt(1.5**3 / (2 * 300 * reg))
        paper = 3 / 300 + min(reg * math.log(300), 1.5, root * math.exp(1.5 / reg))
        published = published_linear_sensitivity(check_problem(**options))
        assert published == pytest.approx(paper, rel=1e-9)
    assert math.isfinite(published_linear_sensitivity(check_problem(9, 1.0, 1e-5)))


# -------------------------------------------------------------------------------- bad input

CALLS = {
    "delta": lambda value: sound_privacy(1, 1.0, value, **PROBLEM),
    "n_samples": lambda value: sound_privacy(1, 1.0, DELTA, **PROBLEM | {"n_samples": value}),
    "cost_range": lambda value: published_privacy(
        1, 1.0, DELTA, **PROBLEM | {"cost_range": value}
    ),
    "reg": lambda value: sound_privacy(1, 1.0, DELTA, **PROBLEM | {"reg": value}),
    "bound": lambda value: sound_utility_bound(1, 1.0, **PROBLEM, bound=value),
    "n_iter": lambda value: sound_utility_bound(value, 1.0, **PROBLEM),
    "noise_variance": lambda value: utility_bound(1, value, cost_range=1.0, reg=1.0),
    "adaptive_noise": lambda value: utility_bound(
        1, 1.0, cost_range=1.0, reg=1.0, adaptive_noise=value
    ),
    "initial_gap": lambda value: utility_bound(1, 1.0, cost_range=1.0, reg=1.0, initial_gap=value),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", [-1, -1.0, math.nan, math.inf, "1", True, np.ones(2)], ids=repr)
def test_bad_arguments_are_named(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        CALLS[name](value)


@pytest.mark.parametrize(
    "name", sorted(set(CALLS) - {"noise_variance", "adaptive_noise", "initial_gap"})
)
def test_zero_is_refused(name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        CALLS[name](0)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="delta must be above 0 and below 1"):
        CALLS["delta"](1.0)
    with pytest.raises(ValueError, match="adaptive_noise must be below 1"):
        CALLS["adaptive_noise"](1.0)
    with pytest.raises(ValueError, match="one size for both samples, or two"):
        CALLS["n_samples"]((1, 2, 3))
    with pytest.raises(ValueError, match=r"bound must be at least cost_range=1\.5"):
        CALLS["bound"](1.0)
    with pytest.raises(ValueError, match="noise_variance must be a finite number above 0"):
        sound_privacy(1, 0.0, DELTA, **PROBLEM)
