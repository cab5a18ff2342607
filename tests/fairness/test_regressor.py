"""The fair regressor: quantile averages, held-out fairness, and scikit-learn's conventions."""

import numpy as np
import polars as pl
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skdpot import FairBarycenterRegressor
from skdpot.fairness import FoundGroups
from skdpot.fairness.metrics import ks_between_groups, make_fairness_scorer
from skdpot.transport import monotone_transport


class Given(RegressorMixin, BaseEstimator):
    """Predicts the first column."""

    def fit(self, X, y, sample_weight=None):
        self.n_features_in_ = X.shape[1]
        self.sample_weight_ = sample_weight
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(float)


def fair_of(scores, labels, **options):
    """Return a regressor whose estimator predicts given scores, fitted, and its fair ones."""
    options = {
        "cv": None,
        "random_state": 0,
        "sensitive_features": 1,
        "n_quantiles": 1000,
        "repair_level": 1.0,
    } | options
    X = np.column_stack([scores, labels])
    fair = FairBarycenterRegressor(Given(), **options).fit(X, scores)
    return fair, fair.predict(X)


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, as_frame=True)


# ------------------------------------------------------------------------- what is computed


def test_groups_of_one_size_get_the_averages_of_their_order_statistics():
    scores, groups = np.array([4.0, 0.0, 1.0, 5.0, 9.0, 2.0]), np.array([0, 0, 0, 1, 1, 1])
    fair, predictions = fair_of(scores, groups)
    # 0, 1, 4 and 2, 5, 9 in order
    np.testing.assert_allclose(predictions, [6.5, 1.0, 3.0, 3.0, 6.5, 1.0], atol=1e-9)
    # a quarter of the mean of the squares of 2, 4 and 5
    assert fair.objective_ == pytest.approx((4 + 16 + 25) / 3 / 4)
    assert np.mean((predictions - scores) ** 2) == pytest.approx(fair.objective_)
    _, weighted = fair_of(scores, groups, weights={0: 3, 1: 1})
    np.testing.assert_allclose(weighted, [5.25, 0.5, 2.0, 2.0, 5.25, 0.5], atol=1e-9)


def test_ranks_of_ties_are_drawn_within_their_mass():
    """Group 0 is at 0; group 1 is at 1 and 3, half each: group 0 must go to both averages."""
    scores, groups = np.repeat([0.0, 1.0, 3.0], [200, 100, 100]), np.repeat([0, 1], 200)
    fair, predictions = fair_of(scores, groups)
    np.testing.assert_allclose(predictions[200:], np.repeat([0.5, 1.5], 100), atol=1e-9)
    assert set(np.round(predictions[:200], 9)) == {0.5, 1.5}
    assert np.mean(predictions[:200] == predictions[200]) == pytest.approx(0.5, abs=4 * 0.036)
    # W_2^2 of the groups from {0.5, 1.5}: (0.25 + 2.25) / 2 for both
    assert fair.objective_ == pytest.approx(1.25)


def test_the_objective_is_the_value_of_the_barycenter():
    """With weights, ties and unequal sizes, against transport to a fine quantile average."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [30, 50, 40])
    scores = rng.integers(8, size=120) + 2.0 * groups + (groups == 1) * rng.normal(size=120)
    fair, _ = fair_of(scores, groups, weights=[1, 2, 3])
    samples = [scores[groups == g] for g in range(3)]
    # All sizes divide 600, so that the barycenter is a sample of that size.
    quantiles = [np.repeat(np.sort(sample), 600 // len(sample)) for sample in samples]
    barycenter = np.average(quantiles, axis=0, weights=[1, 2, 3])
    costs = [monotone_transport(sample, barycenter, cost=2) for sample in samples]
    assert fair.objective_ == pytest.approx(np.average(costs, weights=[1, 2, 3]))


def test_single_predictions_keep_their_order_and_one_group_its_values():
    rng = np.random.default_rng(0)
    scores, groups = rng.normal(size=200), rng.integers(2, size=200)
    _, predictions = fair_of(scores, groups)
    for g in (0, 1):
        order = np.argsort(scores[groups == g])
        assert (np.diff(predictions[groups == g][order]) > 0).all()
    with pytest.warns(UserWarning, match="all rows are in one group"):
        _, predictions = fair_of(scores, np.zeros(200))
    np.testing.assert_allclose(predictions, scores, atol=1e-9)


@pytest.mark.parametrize("round_to", [0.01, 0.5])
def test_small_groups_borrow_the_shape_of_all_and_large_ones_have_their_own(round_to):
    """On new rows, against the groups' own predictions alone; the scales of groups differ."""

    def drawn(rng, sizes, shifts, scales):
        scores = [rng.normal(*of) for of in zip(shifts, scales, sizes, strict=True)]
        return np.round(np.concatenate(scores) / round_to) * round_to, np.repeat([0, 1, 2], sizes)

    def distance(sizes, shifts, scales, n_quantiles):
        found = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            options = {"n_quantiles": n_quantiles, "groups": FoundGroups(min_size=10)}
            fair, _ = fair_of(*drawn(rng, sizes, shifts, scales), **options)
            new = np.column_stack(drawn(rng, [1000] * 3, shifts, scales))
            found.append(ks_between_groups(fair.predict(new), sensitive_features=new[:, 1]))
        return np.mean(found)

    few, shifts = [400, 80, 16], [0.0, 0.3, 0.6]
    assert distance(few, shifts, [1.0] * 3, "auto") < 0.9 * distance(few, shifts, [1.0] * 3, 500)
    many, scales = [3000, 2000, 1000], [1.0, 0.5, 1.6]
    assert distance(many, shifts, scales, "auto") < distance(many, shifts, scales, 3000) + 0.005


def test_beyond_the_extremes_predictions_keep_the_order():
    scores, groups = np.arange(200.0), np.repeat([0.0, 1.0], 100)
    fair, _ = fair_of(scores, groups)
    outside = np.array([-1000.0, -10.0, -0.5, 0.0, 99.0, 99.5, 110.0, 1e6])
    predictions = fair.predict(np.column_stack([outside, np.zeros(8)]))
    assert (np.diff(predictions) >= 0).all()
    assert predictions.min() >= fair.barycenter_(0) and predictions.max() <= fair.barycenter_(1)
    assert (np.diff(fair.barycenter_(np.linspace(0, 1, 5))) > 0).all()


def test_predictions_equal_but_for_rounding_are_one_atom():
    scores = np.concatenate([np.repeat([0.1 + 0.2, 0.3, 0.7], [50, 50, 100]),
                             np.linspace(0, 1, 200)])  # fmt: skip
    _, predictions = fair_of(scores, np.repeat([0, 1], 200))
    assert np.ptp(predictions[:50]) > 0.2 and np.ptp(predictions[50:100]) > 0.2


def test_partial_repair_is_a_straight_line(diabetes):
    X, y = diabetes
    fair = FairBarycenterRegressor(sensitive_features="sex", repair_level=1, random_state=0)
    unfair, full = fair.fit(X, y).estimator_.predict(X), fair.predict(X)
    np.testing.assert_array_equal(fair.set_params(repair_level=0.0).predict(X), unfair)
    part = fair.set_params(repair_level=0.25).predict(X)
    np.testing.assert_allclose(part, 0.75 * unfair + 0.25 * full)


def test_groups_are_moved_by_what_chance_does_not_explain():
    rng = np.random.default_rng(0)
    groups, off = np.repeat([0, 1], [50, 150]), []
    for _ in range(20):
        alike = rng.normal(size=200)
        fair, moved = fair_of(alike, groups, repair_level="auto")
        fully = fair.set_params(repair_level=1.0).predict(np.column_stack([alike, groups]))
        off.append([np.square(moved - alike).mean(), np.square(fully - alike).mean()])
        # The same in other units.
        other = fair_of(1e-200 * alike + 3e-199, groups, repair_level="auto")[0]
        np.testing.assert_allclose(other.repair_levels_, fair.repair_levels_, atol=1e-6)
    # The right map moves nothing.
    auto, full = np.mean(off, axis=0)
    assert auto < 0.3 * full
    apart = rng.normal(size=200) + 3 * (groups == 1)
    fair, moved = fair_of(apart, groups, repair_level="auto")
    assert fair.repair_levels_.tolist() == [1.0, 1.0]
    np.testing.assert_array_equal(moved, fair_of(apart, groups)[1])


@pytest.mark.parametrize(
    "estimator", [LinearRegression(), RandomForestRegressor(8, min_samples_leaf=3, random_state=0),
                  DecisionTreeRegressor(max_leaf_nodes=8, random_state=0)],
    ids=["linear", "forest", "tree"],
)  # fmt: skip
def test_held_out_predictions_are_alike_in_all_groups(diabetes, estimator):
    X, y = diabetes
    statistics = []
    for seed, (train, test) in enumerate(ShuffleSplit(5, test_size=0.5, random_state=0).split(X)):
        fair = FairBarycenterRegressor(estimator, sensitive_features="sex", random_state=seed)
        fair.fit(X.iloc[train], y.iloc[train])
        predictions = fair.predict(X.iloc[test])
        statistics.append(ks_between_groups(predictions, sensitive_features=X["sex"].iloc[test]))
    # Two samples of both groups, 103 and 118 rows, are apart by 0.87 (2 / 103 + 2 / 118)^(1/2)
    # on average, with a standard deviation of 0.26 times the root.
    root = np.sqrt(2 / 103 + 2 / 118)
    assert np.mean(statistics) < 0.87 * root + 4 * 0.26 * root / np.sqrt(5)


def test_ties_without_draws_get_the_mean_of_their_images():
    """Half of group 1 is at 1 and at 3 each, so the images of 0 are 0.5 and 1.5 alike."""
    scores, groups = np.repeat([0.0, 1.0, 3.0], [200, 100, 100]), np.repeat([0, 1], 200)
    _, predictions = fair_of(scores, groups, ties="mean", random_state=None)
    np.testing.assert_allclose(predictions, np.repeat([1.0, 0.5, 1.5], [200, 100, 100]), atol=1e-9)


@pytest.mark.parametrize("n_quantiles", [300, "auto"])
def test_means_of_images_are_monotone_and_those_of_many_draws(n_quantiles):
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [150, 100, 50])
    continuous = rng.normal(size=300) + (groups == 1)
    scores = np.where(rng.random(300) < 0.6, np.round(continuous), continuous)
    options = {"n_quantiles": n_quantiles, "random_state": None}
    fair, found = fair_of(scores, groups, ties="mean", **options)
    X = np.column_stack([scores, groups])
    np.testing.assert_array_equal(fair.predict(X), found)
    for g in range(3):
        order = np.argsort(scores[groups == g], kind="stable")
        assert (np.diff(found[groups == g][order]) >= 0).all()
    fair.set_params(ties="random")
    draws = fair.predict(np.tile(X, (400, 1))).reshape(400, -1)
    error = draws.std(axis=0) / 20
    assert (np.abs(draws.mean(axis=0) - found) <= 5 * error + 1e-9).all()
    tied = error > 1e-9
    assert 0.3 < tied.mean() < 0.9
    # Their risk is no larger, whatever the target, but for chance.
    target = continuous + rng.normal(size=300)
    drawn = np.mean((draws - target) ** 2, axis=1)
    assert np.mean((found - target) ** 2) < drawn.mean()
    if n_quantiles == 300:
        means = [found[groups == g].mean() for g in range(3)]
        np.testing.assert_allclose(means, means[0], atol=0.02)


def test_without_ties_nothing_is_drawn(diabetes):
    X, y = diabetes
    fair = FairBarycenterRegressor(sensitive_features="sex", random_state=0).fit(X, y)
    expected = fair.predict(X)
    np.testing.assert_allclose(fair.set_params(ties="mean").predict(X), expected, atol=1e-9)


# ---------------------------------------------------------------------------- the attribute


def test_all_ways_to_give_the_attribute_agree(diabetes):
    X, y = diabetes
    options = {"random_state": 0, "sensitive_features": "sex"}
    expected = FairBarycenterRegressor(**options).fit(X, y).predict(X)
    frame = pl.DataFrame(X.to_dict("list"))
    for data, attribute in ((frame, "sex"), (X.to_numpy(), 1), (X, -9), (X.values.tolist(), [1])):
        fair = FairBarycenterRegressor(**options | {"sensitive_features": attribute}).fit(data, y)
        np.testing.assert_allclose(fair.predict(data), expected, atol=1e-9)
    fair = FairBarycenterRegressor(random_state=0).fit(X, y, sensitive_features=X["sex"])
    np.testing.assert_allclose(fair.predict(X, sensitive_features=X["sex"]), expected)
    score = fair.score(X, y, sensitive_features=X["sex"])
    assert score == FairBarycenterRegressor(**options).fit(X, y).score(X, y)


def test_the_attribute_may_be_hidden_from_the_estimator(diabetes):
    X, y = diabetes
    options = {"sensitive_features": "sex", "sensitive_in_estimator": False, "random_state": 0}
    fair = FairBarycenterRegressor(**options).fit(X, y)
    assert "sex" not in fair.estimator_.feature_names_in_
    assert fair.n_features_in_ == 10 and "sex" in fair.feature_names_in_
    others = X.drop(columns="sex")
    beside = FairBarycenterRegressor(random_state=0).fit(others, y, sensitive_features=X["sex"])
    expected = beside.predict(others, sensitive_features=X["sex"])
    np.testing.assert_allclose(fair.predict(X), expected, rtol=1e-12)
    with_matrix = FairBarycenterRegressor(**options | {"sensitive_features": 1})
    matrix = sparse.csr_array(X.to_numpy())
    np.testing.assert_allclose(with_matrix.fit(matrix, y).predict(matrix), expected, atol=0.1)


def test_words_and_intersections_are_groups(diabetes):
    X, y = diabetes
    X = X.assign(sex=np.where(X["sex"] > 0, "a", "b"), old=np.where(X["age"] > 0, "old", "young"))
    encoder = make_column_transformer((OneHotEncoder(), ["sex", "old"]), remainder="passthrough")
    fair = FairBarycenterRegressor(
        make_pipeline(encoder, Ridge()), sensitive_features=["sex", "old"], random_state=0
    ).fit(X, y)  # fmt: skip
    expected = [("a", "old"), ("a", "young"), ("b", "old"), ("b", "young")]
    assert fair.groups_.tolist() == expected
    np.testing.assert_allclose(
        fair.group_weights_, [np.mean((X["sex"] == s) & (X["old"] == o)) for s, o in expected]
    )
    both = X[["sex", "old"]]
    assert ks_between_groups(fair.estimator_.predict(X), sensitive_features=both) > 0.25
    assert ks_between_groups(fair.predict(X), sensitive_features=both) < 0.15


# ------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "options, fit_options, message",
    [
        ({"sensitive_features": None}, {}, "needs the sensitive attribute of every row"),
        ({}, {"sensitive_features": [0] * 20}, "was given the sensitive attribute twice"),
        ({"sensitive_features": "x"}, {}, "X is no data frame with names"),
        ({"sensitive_features": None}, {"sensitive_features": [0, 1]}, "has 2 rows, and X has 20"),
        ({"weights": [1, 2, 3]}, {}, "2 numbers, one per group"),
        ({"cv": ShuffleSplit(3, random_state=0)}, {}, "The 'cv' parameter"),
    ],
)
def test_fit_refuses_what_does_not_fit(options, fit_options, message):
    X = np.column_stack([np.arange(20.0), np.repeat([0, 1], 10)])
    estimator = FairBarycenterRegressor(Given(), **{"sensitive_features": 1, "cv": 2} | options)
    with pytest.raises((ValueError, AttributeError), match=message):
        estimator.fit(X, X[:, 0], **fit_options)


def test_the_estimator_must_predict_one_finite_number_per_row(diabetes):
    X, y = diabetes

    class Two(Given):
        def predict(self, X):
            return np.asarray(X)[:, :2]

    with pytest.raises(ValueError, match="must predict one number for every row"):
        FairBarycenterRegressor(Two(), sensitive_features="sex").fit(X, y)
    for classifier in (LogisticRegression(), FrozenEstimator(LogisticRegression().fit(X, y > 150))):
        with pytest.raises(ValueError, match="FairBarycenterClassifier makes its probabilities"):
            FairBarycenterRegressor(classifier, sensitive_features="sex").fit(X, y > 150)

    class Broken(Given):
        def predict(self, X):
            return np.full(len(X), np.nan)

    with pytest.raises(ValueError, match="returned NaN or infinity"):
        FairBarycenterRegressor(Broken(), sensitive_features="sex").fit(X, y)


# ------------------------------------------------------------------- as part of scikit-learn


def test_folds_are_those_asked_for(diabetes):
    X, y = diabetes
    options = {"sensitive_features": "sex", "random_state": 0}
    by_number = FairBarycenterRegressor(**options, cv=5).fit(X, y)
    automatic = FairBarycenterRegressor(**options).fit(X, y)
    assert automatic.objective_ == by_number.objective_
    by_three = FairBarycenterRegressor(**options, cv=3).fit(X, y)
    tree = DecisionTreeRegressor(max_leaf_nodes=8, random_state=0)
    in_sample = FairBarycenterRegressor(tree, **options, cv=None).fit(X, y)
    automatic = FairBarycenterRegressor(tree, **options).fit(X, y)
    assert automatic.objective_ == in_sample.objective_
    assert by_number.objective_ != by_three.objective_


def test_random_states_decide_about_ties():
    scores, groups = np.repeat([0.0, 1.0], 50), np.tile([0, 0, 1, 1, 1], 20)
    scores = scores + (groups == 1) * np.tile([0.0, 0.5], 50)
    fair, predictions = fair_of(scores, groups, random_state=3)
    X = np.column_stack([scores, groups])
    np.testing.assert_array_equal(fair.predict(X), predictions)
    fair.set_params(random_state=None)
    assert (fair.predict(X) != fair.predict(X)).any()


def test_frozen_estimators_are_not_fitted(diabetes):
    X, y = diabetes
    frozen = FrozenEstimator(Ridge(alpha=0.1).fit(X[:200], y[:200]))
    fair = FairBarycenterRegressor(frozen, sensitive_features="sex", repair_level=0.0)
    fair.fit(X[200:], y[200:])
    np.testing.assert_array_equal(fair.predict(X), frozen.predict(X))


def test_sample_weights_reach_every_fit(diabetes):
    X, y = diabetes
    weights = np.random.default_rng(0).random(len(y))
    options = {"sensitive_features": "sex", "random_state": 0}
    plain = FairBarycenterRegressor(Ridge(), **options).fit(X, y, sample_weight=weights)
    ridge = Ridge().fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(plain.estimator_.coef_, ridge.coef_)
    with config_context(enable_metadata_routing=True):
        model = Ridge().set_fit_request(sample_weight="w")
        routed = FairBarycenterRegressor(model, **options).fit(X, y, w=weights)
        beside = FairBarycenterRegressor(model, random_state=0)
        beside.fit(X, y, w=weights, sensitive_features=X["sex"])
        np.testing.assert_allclose(routed.predict(X), plain.predict(X))
        again = beside.predict(X, sensitive_features=X["sex"])
        np.testing.assert_allclose(again, plain.predict(X))
        with pytest.raises(TypeError, match="unexpected argument"):
            FairBarycenterRegressor(Ridge(), **options).fit(X, y, weight=weights)


def test_in_pipelines_and_searches_by_columns(diabetes):
    X, y = diabetes
    fair = FairBarycenterRegressor(Ridge(), sensitive_features="sex", random_state=0)
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), fair)
    level = "fairbarycenterregressor__repair_level"
    scoring = {"r2": "r2", "ks": make_fairness_scorer(ks_between_groups, sensitive_features="sex")}
    search = GridSearchCV(model, {level: [0.0, 1.0]}, scoring=scoring, refit="r2")
    results = search.fit(X, y).cv_results_
    unfair = cross_validate(make_pipeline(StandardScaler(), Ridge()), X, y, scoring=scoring["r2"])
    assert results["mean_test_r2"][0] == pytest.approx(unfair["test_score"].mean())
    assert (results["mean_test_ks"] < 0).all()
    best = search.best_estimator_.predict(X)
    np.testing.assert_array_equal(search.predict(X), best)


def test_texts_need_no_columns():
    texts = ["a b", "b c", "c d", "d e"] * 5
    length = FunctionTransformer(lambda rows: np.array([[len(row)] for row in rows], dtype=float))
    fair = FairBarycenterRegressor(make_pipeline(length, LinearRegression()), cv=2)
    groups = ["x", "y"] * 10
    fair.fit(texts, np.arange(20.0), sensitive_features=groups)
    assert fair.predict(texts, sensitive_features=groups).shape == (20,)


def test_progress_is_shown_over_fits(capsys):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    fair = FairBarycenterRegressor(sensitive_features="sex", cv=3, random_state=0)
    expected = fair.fit(X, y).predict(X)
    assert capsys.readouterr() == ("", "")
    np.testing.assert_array_equal(fair.set_params(verbose=1).fit(X, y).predict(X), expected)
    printed = capsys.readouterr()
    last = printed.err.split("\r")[-1]
    assert printed.out == ""
    # To all rows, and in three folds.
    assert last.startswith("FairBarycenterRegressor: 100%") and "| 4/4 [" in last
