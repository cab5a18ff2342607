"""The exact price of Gaussian noise, against arithmetic with many digits."""

import math

import mpmath
import numpy as np
import pytest

from skdpot.privacy.accounting import gaussian_delta, gaussian_epsilon


def exact_delta(epsilon, mu):
    epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
    far = mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - far


def test_delta_is_exact_over_the_whole_range_and_never_below(rng):
    with mpmath.workdps(60):
        for _ in range(1000):
            mu = 10 ** rng.uniform(-8, 2.5)
            epsilon = max(mu**2 / 2 + mu * rng.uniform(-5, 37), 0.0)
            exact = exact_delta(epsilon, mu)
            assert 0 <= float(gaussian_delta(epsilon, mu) / exact - 1) < 1e-11


def test_epsilon_is_exact_over_the_whole_range_and_never_below(rng):
    with mpmath.workdps(260):
        for _ in range(100):
            mu, delta = 10 ** rng.uniform(-6, 2), 10 ** rng.uniform(-200, -0.01)
            epsilon = gaussian_epsilon(delta, mu)
            assert exact_delta(epsilon, mu) <= delta
            if epsilon > 0:
                assert exact_delta(epsilon * (1 - 1e-11), mu) > delta * (1 - 1e-9)


@pytest.mark.parametrize(
    "epsilon, mu, delta", [(1.0, 0.0, 0.0), (0.0, 100.0, 1.0), (1.0, 100.0, 1.0)]
)
def test_ends_of_the_range(epsilon, mu, delta):
    assert gaussian_delta(epsilon, mu) == delta


def test_a_delta_that_underflows_is_not_rounded_to_zero():
    assert 0 < gaussian_delta(50.0, 0.1) < 1e-300
    assert 0 < gaussian_delta(1e6, 1e-6) < 1e-300


def test_no_epsilon_is_needed_for_a_delta_of_the_total_variation():
    total_variation = math.erf(0.7 / math.sqrt(8))
    assert gaussian_epsilon(total_variation * 1.000001, 0.7) == 0
    assert gaussian_epsilon(total_variation * 0.999999, 0.7) > 0


def test_profile_falls_with_epsilon_and_grows_with_mu():
    epsilons, mus = np.geomspace(1e-6, 50, 40), np.geomspace(1e-4, 10, 40)
    table = np.array([[gaussian_delta(epsilon, mu) for epsilon in epsilons] for mu in mus])
    assert (np.diff(table, axis=1) <= 0).all()
    assert (np.diff(table, axis=0) >= 0).all()
