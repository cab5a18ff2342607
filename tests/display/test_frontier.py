"""Scores against epsilon or parity: what is drawn is what was passed, or measured."""

import numpy as np
import pytest
from matplotlib import pyplot
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold, cross_validate
from sklearn.pipeline import make_pipeline

from skdpot import FairBarycenterPreprocessor, FairBarycenterRegressor
from skdpot.display import FrontierDisplay
from skdpot.fairness.metrics import ks_between_groups, make_fairness_scorer

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


def test_deviations_are_drawn():
    display = FrontierDisplay.from_scores(SCORES, error="std")
    (bars,) = display.errorbar_[0].lines[2]
    lengths = [np.ptp(segment[:, 1]) / 2 for segment in bars.get_segments()]
    np.testing.assert_allclose(lengths, [0.2, 0.1])
    with pytest.raises(ValueError, match="error must be one of"):
        FrontierDisplay.from_scores(SCORES, error="sem")


def test_it_goes_where_it_is_told_and_again():
    _, axes = pyplot.subplots(1, 2)
    display = FrontierDisplay.from_scores(SCORES, ax=axes[0])
    assert display.ax_ is axes[0]
    assert display.plot(axes[1]) is display
    assert display.ax_ is axes[1]
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), axes[0].lines[0].get_ydata())


def test_wrong_scores_are_refused():
    for scores in (([1.0], [0.5]), ([1.0], [[0.5], [0.6]]), ([1.0], [[]])):
        with pytest.raises(ValueError, match=r"scores of 'a' must have shape \(1, n_repeats\)"):
            FrontierDisplay.from_scores({"a": scores})
    for epsilon in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="positive and finite"):
            FrontierDisplay.from_scores({"a": ([epsilon], [[0.5]])})


PARITY = make_fairness_scorer(ks_between_groups, sensitive_features=0)


@pytest.fixture
def applicants(rng):
    """Return rows, the attribute first, and decisions that depend on the group."""
    group = rng.integers(0, 2, 240)
    X = np.column_stack([group, rng.normal(size=(240, 2)) + group[:, None]])
    return X, (X[:, 1] + rng.normal(size=240) > 0.5).astype(int)


@pytest.fixture
def pipeline():
    return make_pipeline(FairBarycenterPreprocessor(0, random_state=0), LogisticRegression())


def test_a_path_is_what_cross_validation_of_every_level_finds(applicants, pipeline):
    cv, levels = KFold(3), [0.0, 0.5, 1.0]
    display = FrontierDisplay.from_estimator(
        pipeline, *applicants, parity=PARITY, scoring="accuracy", levels=levels, cv=cv
    )
    for place, level in enumerate(levels):
        at = clone(pipeline).set_params(fairbarycenterpreprocessor__repair_level=level)
        expected = cross_validate(
            at, *applicants, cv=cv, scoring={"accuracy": "accuracy", "parity": PARITY}
        )
        np.testing.assert_allclose(display.scores[0][place], expected["test_accuracy"])
        np.testing.assert_allclose(display.costs[0][place], -expected["test_parity"])
    (line,) = display.lines_
    np.testing.assert_allclose(line.get_xdata(), display.costs[0].mean(axis=1))
    assert display.errorbar_[0].has_xerr and display.errorbar_[0].has_yerr
    assert [text.get_text() for text in display.ax_.texts] == ["0", "0.5", "1"]
    assert display.ax_.get_xlabel() == "ks between groups"
    assert display.ax_.get_ylabel() == "accuracy"
    assert display.ax_.get_xscale() == "linear"


def test_peers_are_points_or_paths(applicants, pipeline, legend_of):
    unaware = make_pipeline(
        make_column_transformer(("drop", [0]), remainder="passthrough"), LogisticRegression()
    )
    display = FrontierDisplay.from_estimator(
        pipeline, *applicants, parity=PARITY, levels=(0, 1), cv=2, label="repair of rows",
        peers={"no repair": unaware, "mixture": pipeline},
    )  # fmt: skip
    assert legend_of(display.ax_) == ["repair of rows", "no repair", "mixture"]
    assert [len(line.get_xdata()) for line in display.lines_] == [2, 1, 2]
    # Without a repair the rows of the pipeline are those of the peer.
    np.testing.assert_allclose(display.costs[0][0], display.costs[1][0])
    np.testing.assert_allclose(display.scores[0], display.scores[2])


def test_the_repair_is_fitted_once_in_every_fold(applicants, monkeypatch):
    fits, fit = [], FairBarycenterPreprocessor.fit

    def counted(self, X, y=None, **params):
        fits.append(len(X))
        return fit(self, X, y, **params)

    monkeypatch.setattr(FairBarycenterPreprocessor, "fit", counted)
    scale = make_column_transformer(("passthrough", [0]), remainder="passthrough")
    pipeline = make_pipeline(
        scale, FairBarycenterPreprocessor(0, random_state=0), LogisticRegression()
    )
    FrontierDisplay.from_estimator(pipeline, *applicants, parity=PARITY, cv=KFold(4))
    assert fits == [180] * 4


def test_predictions_of_a_regressor_have_levels_too(applicants, capsys):
    X, _ = applicants
    fair = FairBarycenterRegressor(LinearRegression(), sensitive_features=0, random_state=0)
    parity = make_fairness_scorer(ks_between_groups, sensitive_features=0)
    display = FrontierDisplay.from_estimator(
        fair, X, X[:, 1], parity=parity, scoring="r2", levels=(0, 1), cv=2, verbose=1
    )
    gaps, scores = display.costs[0].mean(axis=1), display.scores[0].mean(axis=1)
    assert gaps[0] > gaps[1] + 0.2
    assert scores[0] > scores[1]
    assert "2/2" in capsys.readouterr().err


def test_estimators_without_a_level_or_with_two_are_refused(applicants, pipeline):
    with pytest.raises(ValueError, match="no repair_level.*LogisticRegression"):
        FrontierDisplay.from_estimator(LogisticRegression(), *applicants, parity=PARITY)
    twice = make_pipeline(*(step for _, step in [*pipeline.steps[:1], *pipeline.steps]))
    with pytest.raises(ValueError, match="several steps"):
        FrontierDisplay.from_estimator(twice, *applicants, parity=PARITY)
    with pytest.raises(ValueError, match="costs of 'a' must be as many"):
        FrontierDisplay.from_scores({"a": ([[1.0]], [[0.5, 0.6]])})
    with pytest.raises(ValueError, match="scale must be one of"):
        FrontierDisplay.from_scores(SCORES, scale="cubic")
