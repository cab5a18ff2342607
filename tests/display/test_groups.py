"""Distributions in groups, before and after a repair: what is drawn, and how far it is apart."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib import pyplot
from scipy.stats import wasserstein_distance
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from skdpot import FairBarycenterPreprocessor, FairBarycenterRegressor
from skdpot.display import GroupDistributionDisplay
from skdpot.fairness import FreeSupport
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


def test_the_area_between_distribution_functions_is_the_distance(scores):
    group = np.repeat(["a", "b"], 60)
    display = GroupDistributionDisplay.from_predictions(
        *scores, sensitive_features=group, kind="ecdf"
    )
    first, second = display.artists_[0, 0].values()
    places = np.unique(np.concatenate([first.get_xdata()[1:], second.get_xdata()[1:]]))
    heights = [
        np.searchsorted(np.sort(line.get_xdata()[1:]), places, side="right") / 60
        for line in (first, second)
    ]
    area = np.sum(np.abs(heights[0] - heights[1])[:-1] * np.diff(places))
    assert area == pytest.approx(display.distances_[0, 0])
    assert first.get_ydata()[-1] == 1.0


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


def people(rng, n_rows=80):
    sex = rng.choice(["f", "m"], n_rows)
    return pd.DataFrame(
        {
            "age": rng.normal(40, 9, n_rows) + 9 * (sex == "m"),
            "sex": sex,
            "work": pd.Categorical(np.where(rng.random(n_rows) < 0.5, sex, "z")),
        }
    )


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_rows_are_repaired_by_the_estimator_in_whatever_container(rng, output):
    table = people(rng)
    fair = FairBarycenterPreprocessor("sex", random_state=0, method=FreeSupport(n_support=20))
    fair.set_output(transform=output).fit(table)
    display = GroupDistributionDisplay.from_estimator(fair, table)
    assert display.feature_names == ["age", "work"]
    repaired = fair.set_output(transform="pandas").transform(table)
    for name, before, after in zip(
        display.feature_names, display.before, display.after, strict=True
    ):
        assert list(before) == list(table[name])
        assert list(after) == list(repaired[name])
    assert list(display.groups) == list(table["sex"])
    assert display.distances_[0, 1] < 0.5 * display.distances_[0, 0]
    only = GroupDistributionDisplay.from_estimator(fair, table, features=["work"])
    assert only.feature_names == ["work"] and only.axes_.shape == (1, 2)


def test_arrays_with_the_attribute_in_them_or_beside(rng):
    group = rng.choice([0.0, 1.0], 60)
    X = np.column_stack([rng.normal(size=60) + group, group, rng.normal(size=60)])
    fair = FairBarycenterPreprocessor([1], random_state=0).fit(X)
    display = GroupDistributionDisplay.from_estimator(fair, X, features=[2])
    assert display.feature_names == ["x2"]
    np.testing.assert_array_equal(display.before[0], X[:, 2])
    assert set(display.groups) == {"0.0", "1.0"}
    attributes = np.column_stack([group, rng.choice([3.0, 4.0], 60)])
    beside = FairBarycenterPreprocessor(random_state=0)
    beside.fit(X[:, [0, 2]], sensitive_features=attributes)
    display = GroupDistributionDisplay.from_estimator(
        beside, X[:, [0, 2]], sensitive_features=attributes
    )
    assert set(display.groups) == {"0.0, 3.0", "0.0, 4.0", "1.0, 3.0", "1.0, 4.0"}
    with pytest.raises(ValueError, match="no repaired column 'x1'"):
        GroupDistributionDisplay.from_estimator(fair, X, features=[1])
    with pytest.raises(NotFittedError):
        GroupDistributionDisplay.from_estimator(FairBarycenterPreprocessor(), X)
    for wrong in (make_pipeline(fair), FairBarycenterRegressor()):
        with pytest.raises(TypeError, match=r"not a \w+: for a pipeline, pass its step"):
            GroupDistributionDisplay.from_estimator(wrong, X)


def test_it_goes_where_it_is_told(scores, groups):
    axes = pyplot.subplots(1, 2)[1]
    display = GroupDistributionDisplay.from_predictions(*scores, sensitive_features=groups, ax=axes)
    assert list(display.axes_[0]) == list(axes)
    assert display.plot(kind="ecdf") is display
    assert display.figure_ is not axes[0].figure


@pytest.mark.parametrize(
    ("before", "after", "groups", "options", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0], ["a", "a"], {}, "at least two groups"),
        ([1.0, 2.0], [[1.0, 2.0], [1.0, 3.0]], ["a", "b"], {}, "as many columns"),
        ([1.0, 2.0], [1.0], ["a", "b"], {}, "must have 2 rows"),
        ([1.0, np.nan], [1.0, 2.0], ["a", "b"], {}, "missing or not finite"),
        ([1.0, 2.0], [1.0, 2.0], ["a", "b"], {"kind": "violin"}, "kind must be one of"),
    ],
)
def test_what_is_wrong_is_said(before, after, groups, options, message):
    with pytest.raises(ValueError, match=message):
        GroupDistributionDisplay.from_predictions(
            before, after, sensitive_features=groups, **options
        )
