"""Scores against epsilon: how estimators are fitted and charged, and what is drawn."""

import numpy as np
import pytest
from matplotlib import pyplot
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpot.display import PrivacyUtilityDisplay
from skdpot.privacy import BudgetExceededError, PrivacyLedger, PureDpEvent

SCORES = {
    "input": ([10, 1], [[0.8, 1.0, 0.9], [0.5, 0.1, 0.3]]),
    "messages": ([1, 10, 100], [[0.2], [0.4], [0.9]]),
}


class Releasing(BaseEstimator):
    """Charges a fit, and has its epsilon and its draw for a score."""

    def __init__(self, epsilon=1.0, ledger=None, random_state=None):
        self.epsilon = epsilon
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X, y=None, shift=0.0):
        if self.ledger is not None:
            self.ledger.charge(
                PureDpEvent(self.epsilon),
                unit="record",
                label="fit",
                seeded=self.random_state is not None,
            )
        self.released_ = self.epsilon + shift
        return self

    def score(self, X, y=None):
        draw = 0 if self.random_state is None else self.random_state / 2**31
        return 100 * self.released_ + draw + len(X) / 1000


def rows(n_rows=6):
    return np.arange(2.0 * n_rows).reshape(n_rows, 2)


def test_means_and_standard_errors_are_drawn_by_ascending_epsilon(legend_of):
    display = PrivacyUtilityDisplay.from_scores(SCORES, baseline=1.0, score_name="Welfare")
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
    assert display.fill_between_ is None
    styles = [(of.get_color(), of.get_marker(), of.get_linestyle()) for of in display.lines_]
    assert all(len(set(of)) == 2 for of in zip(*styles, strict=True))
    np.testing.assert_array_equal(display.ax_.get_xticks(), [1, 10, 100])
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["1", "10", "100"]


def test_deviations_are_drawn_as_bands_and_nothing_is():
    display = PrivacyUtilityDisplay.from_scores(SCORES, error="std", error_style="fill_between")
    band, none = display.fill_between_
    assert none is None and display.errorbar_ is None
    (path,) = band.get_paths()
    for x, mean, std in ((1.0, 0.3, 0.2), (10.0, 0.9, 0.1)):
        heights = path.vertices[path.vertices[:, 0] == x, 1]
        np.testing.assert_allclose((heights.min(), heights.max()), (mean - std, mean + std))
    display.plot(error=None)
    assert not any(of.has_yerr for of in display.errorbar_)


def test_it_goes_where_it_is_told_and_again():
    _, axes = pyplot.subplots(1, 2)
    display = PrivacyUtilityDisplay.from_scores(SCORES, ax=axes[0])
    assert display.ax_ is axes[0]
    assert display.plot(axes[1]) is display
    assert display.ax_ is axes[1]
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), axes[0].lines[0].get_ydata())


def test_estimators_are_scored_on_each_split_as_often_as_repeated():
    display = PrivacyUtilityDisplay.from_estimator(
        Releasing(), rows(), epsilons=[2.0, 0.5], cv=3, n_repeats=2, baseline=7.0
    )
    np.testing.assert_allclose(display.scores, [[[200.002] * 6, [50.002] * 6]])
    np.testing.assert_allclose(display.lines_[0].get_ydata(), [50.002, 200.002])
    assert display.labels == ["Releasing"] and display.baseline == 7.0


def test_every_fit_is_charged_once_and_no_score():
    ledger = PrivacyLedger(100.0)
    PrivacyUtilityDisplay.from_estimator(
        Releasing(ledger=ledger), rows(), epsilons=[0.5, 2.0], cv=3, n_repeats=2
    )
    assert len(ledger.entries()) == 2 * 3 * 2
    assert ledger.spent()[0] == pytest.approx(3 * 2 * 2.5)


def test_a_budget_that_ends_is_no_missing_score():
    with pytest.raises(BudgetExceededError):
        PrivacyUtilityDisplay.from_estimator(
            Releasing(ledger=PrivacyLedger(4.0)), rows(), epsilons=[1.0, 2.0], cv=3
        )


def test_several_pipelines_by_a_nested_parameter_with_fit_parameters(legend_of):
    pipelines = {name: make_pipeline(StandardScaler(), Releasing()) for name in ("a", "b")}
    display = PrivacyUtilityDisplay.from_estimator(
        pipelines,
        rows(),
        epsilons=[1.0],
        param_name="releasing__epsilon",
        params={"releasing__shift": 1.0},
        cv=KFold(2),
        scoring=lambda pipeline, X, y=None: pipeline[-1].released_,
        score_name="released",
    )
    np.testing.assert_array_equal(display.scores, [[[2.0, 2.0]]] * 2)
    assert legend_of(display.ax_) == ["a", "b"]
    assert display.ax_.get_ylabel() == "released"


def test_groups_stay_together():
    seen = []

    def scoring(estimator, X, y=None):
        seen.append(sorted(X[:, 0].tolist()))
        return 0.0

    from sklearn.model_selection import LeaveOneGroupOut

    PrivacyUtilityDisplay.from_estimator(
        Releasing(), rows(4), epsilons=[1.0], groups=[0, 1, 1, 0], cv=LeaveOneGroupOut(),
        scoring=scoring,
    )  # fmt: skip
    assert seen == [[0.0, 6.0], [2.0, 4.0]]


def test_seeds_differ_between_fits_and_make_it_reproducible():
    options = {"epsilons": [1.0, 2.0], "cv": [([0, 1, 2], [3, 4, 5])], "n_repeats": 3}
    first, again = (
        PrivacyUtilityDisplay.from_estimator(Releasing(), rows(), random_state=0, **options)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.scores, again.scores)
    assert len(np.unique(np.array(first.scores) % 100)) == 6
    # Seeded releases are not private, and so a ledger does not take them.
    with pytest.raises(ValueError, match="allow_seeded"):
        PrivacyUtilityDisplay.from_estimator(
            Releasing(ledger=PrivacyLedger(99.0)), rows(), random_state=0, **options
        )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilons": []}, "at least one number"),
        ({"epsilons": [1.0, 0.0]}, "positive and finite"),
        ({"epsilons": [np.inf]}, "positive and finite"),
        ({"n_repeats": 0}, "n_repeats must be a positive integer"),
        ({"param_name": "budget"}, r"no parameter 'budget'; give one of \['epsilon'\]"),
        ({"error": "sem"}, "error must be one of"),
        ({"error_style": "lines"}, "error_style must be one of"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_released(wrong, message):
    ledger = PrivacyLedger(10.0)
    with pytest.raises(ValueError, match=message):
        PrivacyUtilityDisplay.from_estimator(
            Releasing(ledger=ledger), rows(), **{"epsilons": [1.0], "cv": 2, **wrong}
        )
    assert ledger.entries() == []


def test_wrong_scores_are_refused():
    for scores in (([1.0], [0.5]), ([1.0], [[0.5], [0.6]]), ([1.0], [[]])):
        with pytest.raises(ValueError, match=r"scores of 'a' must have shape \(1, n_repeats\)"):
            PrivacyUtilityDisplay.from_scores({"a": scores})
    with pytest.raises(ValueError, match="positive"):
        PrivacyUtilityDisplay.from_scores({"a": ([0.0], [[0.5]])})
