"""The optimal base measure on the sphere, against quadrature and closed forms."""

import math

import pytest
from scipy.special import betainc

from skdpot.transport.base_measure import sphere_base_measure, sphere_cap_cost
from tests.oracles.sphere import cap_mechanism, optimal_cap_mechanism


def angle_of(threshold):
    return 2.0 * math.asin(math.sqrt(threshold))


@pytest.mark.parametrize(
    "n_features, epsilon, order",
    [
        (2, 0.1, 1),
        (2, 4.0, 3),
        (2, 50.0, 1),
        (3, 1.0, 1),
        (3, 50.0, 2),
        (10, 0.5, 0.5),
        (10, 8.0, 1),
        (100, 2.0, 1),
        (100, 20.0, 2.5),
        (1000, 0.1, 2),
        (1000, 1.0, 1),
        (1000, 12.0, 1),
        (1000, 50.0, 1),
    ],
)
def test_scale_and_cost_agree_with_quadrature(n_features, epsilon, order):
    result = sphere_base_measure(n_features, epsilon, order=order)
    guess = angle_of(result.threshold)
    bracket = (0.9 * guess, min(1.1 * guess, math.pi))
    angle, scale, cost = optimal_cap_mechanism(n_features, epsilon, order, bracket)
    assert angle == pytest.approx(guess, rel=1e-9)
    assert result.scale == pytest.approx(scale, rel=1e-9)
    assert result.cost == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 5.0, 20.0, 50.0, 300.0])
def test_closed_form_in_three_dimensions_with_squared_distances(epsilon):
    result = sphere_base_measure(3, epsilon, order=2)
    assert result.scale == pytest.approx(math.exp(-epsilon / 2), rel=1e-12)
    assert result.cost == pytest.approx(4.0 / (1.0 + math.exp(epsilon / 2)), rel=1e-12)
    # On the ordinary sphere, heights are uniform.
    assert result.cap_probability == pytest.approx(result.threshold, rel=1e-12)


@pytest.mark.parametrize("n_features, epsilon, order", [(2, 1.0, 1), (20, 3.0, 2), (300, 2.0, 1)])
def test_no_other_cap_has_a_smaller_cost(n_features, epsilon, order):
    result = sphere_base_measure(n_features, epsilon, order=order)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 1.3):
        angle = factor * angle_of(result.threshold)
        assert cap_mechanism(n_features, epsilon, angle, order)[1] > result.cost


@pytest.mark.parametrize("n_features", [2, 17, 20_000])
@pytest.mark.parametrize("epsilon", [1e-9, 4.0, 30.0])
@pytest.mark.parametrize("order", [0.2, 2, 30])
def test_results_are_consistent(n_features, epsilon, order):
    result = sphere_base_measure(n_features, epsilon, order=order)
    shape = (n_features - 1) / 2
    assert math.exp(-epsilon) <= result.scale <= 1.0
    assert result.cap_probability == pytest.approx(betainc(shape, shape, result.threshold))
    assert result.cost == pytest.approx((4.0 * result.threshold) ** (order / 2), rel=1e-9)
    cost = sphere_cap_cost(n_features, epsilon, result.threshold, order=order)
    assert cost == pytest.approx(result.cost, rel=1e-9)
    assert result.cost <= sphere_base_measure(n_features, 0.9 * epsilon, order=order).cost


def test_a_cap_that_is_the_whole_sphere_costs_what_a_uniform_output_does():
    """The mean distance of two points of the sphere is 4/3, and its mean square 2."""
    assert sphere_cap_cost(3, 1.0, 1.0) == pytest.approx(4 / 3)
    assert sphere_cap_cost(3, 1.0, 1.0, order=2) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "n_features, epsilon, order, error, message",
    [
        (2.5, 1.0, 1, TypeError, "integer"),
        (3, 0.0, 1, ValueError, "epsilon must be positive"),
        (3, math.nan, 1, ValueError, "epsilon must be positive"),
        (3, 1.0, 0, ValueError, "order must be positive"),
        (3, 1.0, math.inf, ValueError, "order must be positive"),
        (2, 690.0, 0.1, ValueError, "epsilon is too large for this number of features"),
    ],
)
def test_bad_parameters_are_refused(n_features, epsilon, order, error, message):
    with pytest.raises(error, match=message):
        sphere_base_measure(n_features, epsilon, order=order)


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.5, math.nan])
def test_bad_thresholds_are_refused(threshold):
    with pytest.raises(ValueError, match="threshold must lie in"):
        sphere_cap_cost(3, 1.0, threshold)
