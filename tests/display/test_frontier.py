"""Scores against epsilon or parity: what is drawn is what was passed."""

import numpy as np
import pytest

from skdpot.display import FrontierDisplay

SCORES = {
    "input": ([10, 1], [[0.8, 1.0, 0.9], [0.5, 0.1, 0.3]]),
    "messages": ([1, 10, 100], [[0.2], [0.4], [0.9]]),
}


def test_means_and_standard_errors_are_drawn_by_ascending_epsilon(legend_of):
    display = FrontierDisplay.from_scores(SCORES, baseline=1.0, score_name="Welfare")
    assert legend_of(display.ax_) == ["without privacy", "input", "messages"]
    assert (display.ax_.get_xscale(), display.ax_.get_ylabel()) == ("log", "Welfare")
    assert display.figure_ is display.ax_.figure
    first, second = display.lines_
    np.testing.assert_array_equal(first.get_xdata(), [1.0, 10.0])
    np.testing.assert_allclose(first.get_ydata(), [0.3, 0.9])
    np.testing.assert_allclose(second.get_ydata(), [0.2, 0.4, 0.9])
    _, _, (bars,) = display.errorbar_[0]
    lengths = [np.ptp(segment[:, 1]) / 2 for segment in bars.get_segments()]
    np.testing.assert_allclose(lengths, np.array([0.2, 0.1]) / np.sqrt(3))
    assert not display.errorbar_[1].has_yerr
    styles = [(of.get_color(), of.get_marker(), of.get_linestyle()) for of in display.lines_]
    assert all(len(set(of)) == 2 for of in zip(*styles, strict=True))
    np.testing.assert_array_equal(display.ax_.get_xticks(), [1, 10, 100])
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["1", "10", "100"]


def test_wrong_scores_are_refused():
    for scores in (([1.0], [0.5]), ([1.0], [[0.5], [0.6]]), ([1.0], [[]])):
        with pytest.raises(ValueError, match=r"scores of 'a' must have shape \(1, n_repeats\)"):
            FrontierDisplay.from_scores({"a": scores})
    for epsilon in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="positive and finite"):
            FrontierDisplay.from_scores({"a": ([epsilon], [[0.5]])})
    with pytest.raises(ValueError, match="costs of 'a' must be as many"):
        FrontierDisplay.from_scores({"a": ([[1.0]], [[0.5, 0.6]])})
    with pytest.raises(ValueError, match="scale must be 'log' or 'linear'"):
        FrontierDisplay.from_scores(SCORES, scale="cubic")


def test_costs_that_vary_have_bars_too():
    costs, scores = np.array([[0.3, 0.1], [0.0, 0.2]]), np.array([[0.9, 0.8], [0.7, 0.7]])
    display = FrontierDisplay.from_scores(
        {"repair": (costs, scores)}, scale="linear", cost_name="gap"
    )
    (line,) = display.lines_
    np.testing.assert_allclose(line.get_xydata(), [[0.2, 0.85], [0.1, 0.7]])
    assert display.errorbar_[0].has_xerr and display.errorbar_[0].has_yerr
    assert (display.ax_.get_xscale(), display.ax_.get_xlabel()) == ("linear", "gap")
