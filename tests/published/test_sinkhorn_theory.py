"""Theory of noisy Sinkhorn: formulas, limits and refusals."""

import math

import numpy as np
import pytest

from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.sensitivity import noisy_sinkhorn_sensitivity
from skdpot.published import published_privacy, sound_privacy
from skdpot.published._noisy_sinkhorn import check_problem, published_linear_sensitivity

DELTA = 1e-5
PROBLEM = {"n_samples": (400, 300), "cost_range": 1.5, "reg": 2.0}


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
    "bound": lambda value: sound_privacy(1, 1.0, DELTA, **PROBLEM, bound=value),
    "n_iter": lambda value: sound_privacy(value, 1.0, DELTA, **PROBLEM),
    "noise_variance": lambda value: published_privacy(1, value, DELTA, **PROBLEM),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", [-1, -1.0, math.nan, math.inf, "1", True, np.ones(2)], ids=repr)
def test_bad_arguments_are_named(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        CALLS[name](value)


@pytest.mark.parametrize("name", CALLS)
def test_zero_is_refused(name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        CALLS[name](0)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="delta must be above 0 and below 1"):
        CALLS["delta"](1.0)
    with pytest.raises(ValueError, match="one size for both samples, or two"):
        CALLS["n_samples"]((1, 2, 3))
    with pytest.raises(ValueError, match="noise_variance must be a finite number above 0"):
        sound_privacy(1, 0.0, DELTA, **PROBLEM)
