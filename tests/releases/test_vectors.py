"""Noise on a vector for a budget: what it is charged as, how large it is, and on which grid."""

import math

import numpy as np
import pytest
from scipy.stats import laplace, norm

from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent, PlannedDpEvent
from skdpot.privacy.noise import make_source
from skdpot.releases import VectorRelease
from tests.oracles.sensitivities import declared


def make_noise(epsilon=0.5, delta=0.0, **options):
    options = {"n_coordinates": 3, "largest": 1e6} | options
    return VectorRelease(epsilon, delta, declared((2.0, 1.5)), **options)


def test_without_a_delta_noise_is_laplace_noise_for_the_l1_sensitivity():
    noise = make_noise(0.5, 0.0)
    assert noise.event == LaplaceDpEvent(2.0)
    exact = laplace(scale=2.0 / 0.5)
    assert noise.standard_deviation == pytest.approx(exact.std(), rel=1e-5)
    assert noise.half_width == pytest.approx(exact.isf(0.025), rel=1e-5)


def test_with_a_delta_noise_is_normal_noise_for_the_l2_sensitivity():
    noise = make_noise(0.5, 1e-5)
    multiplier = calibrate_noise_multiplier(0.5, 1e-5)
    assert noise.event == PlannedDpEvent(GaussianDpEvent(multiplier), 1e-5)
    exact = norm(scale=1.5 * multiplier)
    assert noise.standard_deviation == pytest.approx(exact.std(), rel=1e-5)
    assert noise.half_width == pytest.approx(exact.isf(0.025), rel=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_noise_is_of_integers_for_counts_alone(delta):
    source = make_source(0)
    values = np.array([3.0, 4.0, 5.0])
    whole = make_noise(delta=delta, counts=True).run(values, source)
    assert (whole == np.rint(whole)).all()
    real = make_noise(delta=delta).run(values, source)
    assert (real != np.rint(real)).all()


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_counts_need_no_allowance_for_rounding(delta):
    """A thousand counts have the scale of three."""
    few, many = (make_noise(delta=delta, counts=True, n_coordinates=n) for n in (3, 1000))
    assert few.standard_deviation == many.standard_deviation


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("largest", [1.0, 1e6, 1e10])
def test_of_a_huge_epsilon_no_more_is_spent_than_leaves_the_values_on_the_grid(delta, largest):
    noise = make_noise(1e30, delta, largest=largest)
    released = noise.run(np.array([largest, -largest, 0.0]), 0)
    np.testing.assert_allclose(released / largest, [1.0, -1.0, 0.0], atol=1e-4)
    assert math.isfinite(noise.standard_deviation) and noise.standard_deviation > 0
