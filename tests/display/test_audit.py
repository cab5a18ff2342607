"""The plot of an audit."""

import math

import numpy as np
import pytest
from matplotlib import pyplot

from skdpot.display import AuditDisplay
from skdpot.display._audit import trade_off_bound
from skdpot.privacy.audit import audit
from tests.oracles.privacy_profiles import gaussian_delta


@pytest.fixture
def result():
    def release(value, n_trials, random_state):
        return value + np.random.default_rng(random_state).laplace(size=n_trials)

    return audit(release, 0.0, 2.0, vectorized=True, n_trials=2000, random_state=0)


def test_plot_shows_both_error_rates_and_what_was_proven(result, legend_of):
    display = result.plot()
    assert isinstance(display, AuditDisplay)
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel() == "False positive rate"
    assert display.ax_.get_ylabel() == "False negative rate"
    np.testing.assert_array_equal(display.line_.get_xydata(), np.transpose(result.trade_off()))
    assert f"{result.epsilon_lower:.3g}" in " ".join(legend_of(display.ax_))
    assert not display.ax_.collections
    # The bound that was proven passes through the event that was counted.
    false_positives, false_negatives = display.event_bounds
    proven = trade_off_bound(false_positives, result.epsilon_lower, 0.0)
    assert proven == pytest.approx(false_negatives)


def test_a_claim_is_a_region_that_a_refuting_attack_enters(result, legend_of):
    for claim in (result.epsilon_lower / 2, result.epsilon_lower * 2):
        display = AuditDisplay.from_result(result, claimed_epsilon=claim)
        (region,) = display.ax_.collections
        assert f"impossible if $\\varepsilon$ = {claim:.3g}" in " ".join(legend_of(display.ax_))
        inside = region.get_paths()[0].contains_point(display.event_bounds)
        assert inside == result.exceeds(claim)


def test_plot_goes_where_it_is_told_and_again(result):
    _, axes = pyplot.subplots(1, 2)
    display = result.plot(axes[0])
    assert display.ax_ is axes[0]
    assert display.plot(axes[1], color="green") is display
    assert display.ax_ is axes[1]
    assert display.line_.get_color() == "green"
    assert len(axes[0].lines) == len(axes[1].lines)


@pytest.mark.parametrize("mu, epsilon", [(1.0, 0.5), (1.0, 2.0), (3.0, 1.0)])
def test_bound_is_below_the_trade_off_of_a_private_mechanism_and_touches_it(mu, epsilon):
    from scipy.special import ndtr, ndtri

    rates = np.concatenate([np.geomspace(1e-12, 0.5, 2000), np.linspace(0.5, 1.0, 2000)[1:]])
    gaussian = ndtr(-ndtri(rates) - mu)
    gap = gaussian - trade_off_bound(rates, epsilon, gaussian_delta(epsilon, mu))
    assert gap.min() > -1e-12
    assert gap.min() < 1e-5


def test_bound_at_its_ends():
    assert trade_off_bound([0.0, 1.0], 3.0, 0.1).tolist() == [0.9, 0.0]
    assert trade_off_bound([0.25], 0.0, 0.0).tolist() == [0.75]
    assert trade_off_bound([0.0, 1e-300, 1.0], 1e4, 0.0).tolist() == [1.0, 0.0, 0.0]
    assert trade_off_bound([0.5], math.log(2), 0.0).tolist() == [0.25]


def test_artists_are_attributes(result):
    display = result.plot(claimed_epsilon=1.0)
    assert display.claim_ is display.ax_.collections[0]
    np.testing.assert_array_equal(display.event_.get_xydata(), [display.event_bounds])
    rates, bound = display.bound_.get_data()
    np.testing.assert_array_equal(bound, trade_off_bound(rates, result.epsilon_lower, 0.0))
    assert result.plot().claim_ is None


def test_what_cannot_be_drawn_is_refused(result):
    with pytest.raises(TypeError, match="skdpot.privacy.audit.audit"):
        AuditDisplay.from_result(1.0)
    with pytest.raises(ValueError, match="claimed_epsilon must be at least 0"):
        result.plot(claimed_epsilon=-1.0)
