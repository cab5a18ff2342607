"""Distributions in groups, before and after a repair: what is drawn, and how far it is apart."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib import pyplot
from scipy.stats import wasserstein_distance

from skdpot.display import GroupDistributionDisplay
from skdpot.fairness.metrics import wasserstein_between_groups


@pytest.fixture
def groups(rng):
    return rng.choice(["a", "b", "c"], 120)


@pytest.fixture
def scores(rng, groups):
    before = rng.normal(size=120) + (groups == "b")
    return before, before - (groups == "b")


def titles_of(row):
    return [ax.get_title() for ax in row]


def test_numbers_are_histograms_and_the_largest_distance_stands_above(scores, groups, legend_of):
    display = GroupDistributionDisplay.from_predictions(*scores, sensitive_features=groups)
    assert display.axes_.shape == display.artists_.shape == (1, 2)
    everything = np.concatenate(scores)
    edges = np.linspace(everything.min(), everything.max(), 31)
    for stage, values in enumerate(scores):
        for group, artist in display.artists_[0, stage].items():
            expected, _ = np.histogram(values[groups == group], edges, density=True)
            np.testing.assert_allclose(artist.get_data().values, expected)
        distance = wasserstein_between_groups(values, sensitive_features=groups)
        assert display.distances_[0, stage] == pytest.approx(distance)
    before, after = display.distances_[0]
    assert titles_of(display.axes_[0]) == [
        f"before: $W_1$ = {before:.3g}", f"after: $W_1$ = {after:.3g}"
    ]  # fmt: skip
    assert legend_of(display.axes_[0, 0]) == ["a", "b", "c"]
    assert display.axes_[0, 0].get_xlim() == display.axes_[0, 1].get_xlim()
    assert display.axes_[0, 0].get_ylim() == display.axes_[0, 1].get_ylim()
    assert display.axes_[0, 0].get_xlabel() == "prediction"


def test_bins_have_as_many_whole_numbers_each():
    values = np.arange(70.0)
    display = GroupDistributionDisplay.from_predictions(
        values, values[::-1], sensitive_features=np.arange(70) % 2
    )
    counts = 0.0
    for artist in display.artists_[0, 0].values():
        heights, edges, _ = artist.get_data()
        assert set(np.diff(edges)) == {3.0}
        counts = counts + heights * 3 * 35
    np.testing.assert_allclose(counts, [3.0] * 23 + [1.0])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_categories_are_bars_of_their_shares(frame, groups):
    group = np.repeat(["f", "m"], 4)
    before = frame({"work": list("xxxyyyyz"), "age": np.arange(8)})
    after = frame({"work": list("xyxyxyxy"), "age": np.arange(8)})
    display = GroupDistributionDisplay.from_predictions(before, after, sensitive_features=group)
    bars = display.artists_[0, 0]
    assert [bar.get_height() for bar in bars["f"]] == [0.75, 0.25, 0.0]
    assert [bar.get_height() for bar in bars["m"]] == [0.0, 0.75, 0.25]
    np.testing.assert_allclose(display.distances_[0], [0.75, 0.0])
    assert titles_of(display.axes_[0])[0] == "before: total variation = 0.75"
    labels = [tick.get_text() for tick in display.axes_[0, 1].get_xticklabels()]
    assert labels == ["x", "y", "z"]
    assert display.distances_[1, 0] == wasserstein_distance([0, 1, 2, 3], [4, 5, 6, 7])
    display.figure_.canvas.draw()


def test_missing_categories_are_one_category():
    before = np.array(["x", None, "x", "None"], dtype=object)
    after = np.array(["x", np.nan, pd.NA, "x"], dtype=object)
    display = GroupDistributionDisplay.from_predictions(
        before, after, sensitive_features=["f", "f", "m", "m"]
    )
    labels = [tick.get_text() for tick in display.axes_[0, 0].get_xticklabels()]
    assert labels == ["None", "missing", "x"]
    assert [bar.get_height() for bar in display.artists_[0, 1]["m"]] == [0.0, 0.5, 0.5]


def test_it_goes_where_it_is_told(scores, groups):
    axes = pyplot.subplots(1, 2)[1]
    display = GroupDistributionDisplay.from_predictions(*scores, sensitive_features=groups, ax=axes)
    assert list(display.axes_[0]) == list(axes)
    with pytest.raises(ValueError, match="ax must be 2 axes"):
        display.plot(axes[0])
    assert display.plot() is display
    assert display.figure_ is not axes[0].figure


@pytest.mark.parametrize(
    ("before", "after", "groups", "options", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0], ["a", "a"], {}, "at least two groups"),
        ([1.0, 2.0], [[1.0, 2.0], [1.0, 3.0]], ["a", "b"], {}, "as many columns"),
        ([1.0, 2.0], [1.0], ["a", "b"], {}, "must have 2 rows"),
        ([1.0, np.nan], [1.0, 2.0], ["a", "b"], {}, "missing or not finite"),
    ],
)
def test_what_is_wrong_is_said(before, after, groups, options, message):
    with pytest.raises(ValueError, match=message):
        GroupDistributionDisplay.from_predictions(
            before, after, sensitive_features=groups, **options
        )
