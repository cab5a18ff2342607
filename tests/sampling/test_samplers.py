"""The samplers of users' distributions, as a user meets them."""

import math
import pickle
from functools import partial

import numpy as np
import ot
import pandas as pd
import pytest
from joblib import parallel_config
from joblib.externals.loky import get_reusable_executor
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV

from skdpot import (
    ExponentialMechanismSampler,
    KLProjectionSampler,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.privacy import (
    BudgetAccountant,
    BudgetExceededError,
    PrivacyLedger,
    PureDpEvent,
    SelfComposedDpEvent,
)
from tests.oracles.refusals import SECRET, refuse_without_telling

LOCAL_SAMPLERS = [WassersteinProjectionSampler, KLProjectionSampler, ExponentialMechanismSampler]
SAMPLERS = [*LOCAL_SAMPLERS, SphericalProjectionSampler]


def make_weights(n_users=12, n_inputs=5, seed=0):
    """Return whole numbers, so that no cast changes them, about half of them zero."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 50, (n_users, n_inputs)) * (rng.random((n_users, n_inputs)) < 0.5)
    weights[np.arange(n_users), np.arange(n_users) % n_inputs] += 1
    return weights.astype(np.float64)


def make_input(sampler_class, n_users=12, n_features=5, seed=0):
    """Return data that a sampler of this class takes."""
    if sampler_class is SphericalProjectionSampler:
        vectors = np.random.default_rng(seed).standard_normal((n_users, n_features))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return make_weights(n_users, n_features, seed)


def line_cost(n_inputs, n_outputs=None, order=1):
    return np.abs(np.arange(n_inputs)[:, None] - np.arange(n_outputs or n_inputs)) ** order


def emd_costs(weights, targets, cost):
    """Return optimal transport costs by POT's network simplex."""
    rows = weights / weights.sum(axis=1, keepdims=True)
    return [ot.emd2(row, target, cost) for row, target in zip(rows, targets, strict=True)]


# Outputs
# -------


@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_outputs_are_views_of_the_same_samples(sampler_class):
    X = make_weights()
    points = np.random.default_rng(1).random((5, 3))
    sampler = sampler_class(3.0, input_points=points, random_state=0).fit(X)
    index = sampler.sample(X)
    assert index.shape == (12, 1) and index.dtype == np.intp
    np.testing.assert_array_equal(sampler.transform(X), points[index[:, 0]])
    np.testing.assert_array_equal(sampler.set_params(output="index").transform(X), index)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("output, width", [("points", 2), ("index", 1)])
@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_outputs_as_data_frames(sampler_class, output, width, library):
    frame = pd.DataFrame(make_weights(), columns=[f"bin {i}" for i in range(5)])
    points = np.random.default_rng(1).random((5, 2))
    sampler = sampler_class(input_points=points, output=output, random_state=0).fit(frame)
    assert list(sampler.feature_names_in_) == list(frame.columns)
    expected = sampler.transform(frame)
    released = sampler.set_output(transform=library).transform(frame)
    assert type(released).__module__.split(".")[0] == library
    names = [f"{sampler_class.__name__.lower()}{i}" for i in range(width)]
    assert list(released.columns) == names == list(sampler.get_feature_names_out())
    np.testing.assert_array_equal(released.to_numpy(), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        sampler.transform(frame[frame.columns[::-1]])


@pytest.mark.parametrize("sampler_class", SAMPLERS)
def test_every_sample_of_every_user_has_noise_of_its_own(sampler_class):
    """Otherwise, whoever knows the distribution of one user knows the noise of all others."""
    X = np.repeat(make_input(sampler_class, n_users=1), 40, axis=0)
    samples = sampler_class(0.5).fit(X).sample(X, n_samples=np.int64(40))
    # Equal for two users, or at two places, with a probability below 1e-9.
    for of_each in (samples, np.swapaxes(samples, 0, 1)):
        assert len(np.unique(of_each.reshape(40, -1), axis=0)) == 40


# What X may be
# -------------


def with_duplicates(X):
    """Return CSR with every entry split in two, out of order, and explicit zeros."""
    rows, columns = np.nonzero(X)
    halves = X[rows, columns] / 2
    order = np.random.default_rng(0).permutation(2 * len(rows))
    data = np.concatenate([halves, halves, np.zeros(len(X))])
    rows = np.concatenate([np.tile(rows, 2)[order], np.arange(len(X))])
    columns = np.concatenate([np.tile(columns, 2)[order], np.zeros(len(X), dtype=int)])
    data = np.concatenate([np.tile(halves, 2)[order], np.zeros(len(X))])
    by_row = np.argsort(rows, kind="stable")
    indptr = np.searchsorted(rows[by_row], np.arange(len(X) + 1))
    return sparse.csr_array((data[by_row], columns[by_row], indptr), shape=X.shape)


FORMS = {
    "list": lambda X: X.tolist(),
    "int": lambda X: X.astype(np.int32),
    "float32": lambda X: X.astype(np.float32),
    "object": lambda X: X.astype(object),
    "read-only": lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),
    "frame": pd.DataFrame,
    "csr array": sparse.csr_array,
    "csc array": sparse.csc_array,
    "sparse integers": lambda X: sparse.csr_array(X.astype(np.int64)),
    "duplicates": with_duplicates,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_the_form_of_the_input_changes_nothing(sampler_class, form):
    X = make_weights()
    given = FORMS[form](X)
    sampler = sampler_class(random_state=0).fit(given)
    before = pickle.dumps(given)
    np.testing.assert_array_equal(sampler.sample(given, 2), sampler.sample(1.0 * X, 2))
    np.testing.assert_array_equal(sampler.project(given), sampler.project(X))
    assert sampler.score(given) == sampler.score(X)
    assert pickle.dumps(given) == before


@pytest.mark.parametrize("make", [np.array, sparse.csr_array])
@pytest.mark.parametrize(
    "row, same_as",
    [
        ([1e-320, 1e-320, 0.0], [1, 1, 0]),
        ([5e-324, 0.0, 0.0], [1, 0, 0]),
        ([1.7e308, 1.7e308, 1.7e308], [1, 1, 1]),
        ([1.7e308, 5e-324, 0.0], [1, 0, 0]),
        ([-0.0, 1.0, 0.0], [0, 1, 0]),
    ],
)
@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_no_weight_is_too_small_or_too_large(sampler_class, row, same_as, make):
    """Nor does any cause a warning, not even where the caller turned them into errors."""
    sampler = sampler_class(random_state=0).fit(np.ones((1, 3)))
    with np.errstate(all="raise"):
        released = sampler.sample(make([row]), 5)
        np.testing.assert_array_equal(released, sampler.sample([same_as], 5))
    np.testing.assert_allclose(sampler.project(make([row])), sampler.project([same_as]), atol=1e-15)


# Randomness and parallel work
# ----------------------------


@pytest.mark.parametrize("sampler_class", SAMPLERS)
def test_a_random_state_object_advances(sampler_class):
    X = make_input(sampler_class, n_users=100)

    def draw_twice():
        sampler = sampler_class(random_state=np.random.RandomState(4)).fit(X)
        return sampler.transform(X), sampler.transform(X)

    first, second = draw_twice()
    assert (first != second).any()
    np.testing.assert_array_equal(draw_twice(), (first, second))


@pytest.mark.parametrize("sampler_class, params", [
    *((sampler_class, {}) for sampler_class in SAMPLERS),
    (SphericalProjectionSampler, {"method": "direct"}),
])  # fmt: skip
def test_seeded_results_do_not_depend_on_the_division_of_work(sampler_class, params):
    X = make_input(sampler_class, n_users=23)
    sampler = sampler_class(random_state=5, **params).fit(X)
    expected, score = sampler.sample(X, 2), sampler.score(X)
    np.testing.assert_array_equal(sampler.sample(X[:7], 2), expected[:7])
    projections = sampler.project(X) if sampler_class in LOCAL_SAMPLERS else None
    # There are as many chunks as jobs.
    for n_jobs in (2, 5):
        sampler.set_params(n_jobs=n_jobs)
        assert sampler.score(X) == score
        if projections is not None:
            np.testing.assert_array_equal(sampler.project(X), projections)
        np.testing.assert_array_equal(sampler.sample(X, 2), expected)
        with parallel_config(backend="threading"):
            np.testing.assert_array_equal(sampler.sample(X, 2), expected)


@pytest.fixture
def other_processes():
    """Give joblib two worker processes, and end them after the test."""
    with parallel_config(backend="loky", n_jobs=2):
        yield
    get_reusable_executor().shutdown(wait=True)


@pytest.mark.experiment
def test_seeded_results_do_not_depend_on_processes(other_processes):
    for sampler_class in SAMPLERS:
        X = make_input(sampler_class, n_users=23)
        sampler = sampler_class(random_state=5, n_jobs=1).fit(X)
        expected = sampler.sample(X, 2)
        # The ledger stays behind in this process, where it is charged.
        ledger = PrivacyLedger(2.0, allow_seeded=True)
        sampler.set_params(n_jobs=2, ledger=ledger)
        np.testing.assert_array_equal(sampler.sample(X, 2), expected)
        assert ledger.spent()[0] == 2.0


# Geometry and score
# ------------------


@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_cost_matrix_wins_over_points(sampler_class):
    X = make_weights()
    cost = np.random.default_rng(0).random((5, 5))
    points = np.random.default_rng(1).random((5, 2))
    alone = sampler_class(cost_matrix=cost).fit(X)
    both = sampler_class(cost_matrix=cost, input_points=points, metric="cityblock", order=3).fit(X)
    np.testing.assert_array_equal(both.cost_matrix_, cost)
    np.testing.assert_array_equal(both.project(X), alone.project(X))
    np.testing.assert_array_equal(both.output_points_, points)
    np.testing.assert_array_equal(alone.output_points_, np.arange(5.0)[:, None])


@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_rows_of_a_frame_of_points_are_in_the_order_of_the_columns_of_X(sampler_class):
    X = pd.DataFrame(make_weights(), columns=list("edcba"))
    points = pd.DataFrame({"x": range(5)}, index=X.columns)
    fitted = sampler_class(input_points=points).fit(X)
    np.testing.assert_array_equal(fitted.output_points_, points)
    # Numbers are no names.
    sampler_class(input_points=points.reset_index(drop=True)).fit(X)


@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_rows_of_a_cost_frame_are_the_columns_of_X(sampler_class):
    names = list("edcba")
    X = pd.DataFrame(make_weights(), columns=names)
    cost = pd.DataFrame(line_cost(5), index=names, columns=names)
    fitted = sampler_class(cost_matrix=cost).fit(X)
    np.testing.assert_array_equal(fitted.cost_matrix_, line_cost(5))
    alphabetical = cost.sort_index().sort_index(axis=1)
    with pytest.raises(ValueError, match="cost_matrix has the names of X in another order"):
        sampler_class(cost_matrix=alphabetical).fit(X)
    with pytest.raises(ValueError, match="cost_matrix has other names than X"):
        sampler_class(cost_matrix=cost.set_axis(list("vwxyz"))).fit(X)
    reindexed = sampler_class(cost_matrix=alphabetical.loc[names, names]).fit(X)
    np.testing.assert_array_equal(reindexed.cost_matrix_, line_cost(5))
    # Where either side has no names, there is nothing to compare.
    for unnamed, data in ((alphabetical, X.to_numpy()), (cost.reset_index(drop=True), X)):
        sampler_class(cost_matrix=unnamed).fit(data)


@pytest.mark.parametrize("metric", ["jaccard", "dice", "rogerstanimoto"])
@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_metrics_of_sets_take_indicators_without_a_warning(sampler_class, metric):
    genres = [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]]
    sampler = sampler_class(input_points=genres, metric=metric)
    X = make_weights()
    sampler.fit(X).score(X)
    np.testing.assert_array_equal(
        sampler.cost_matrix_, pairwise_distances(np.array(genres, dtype=bool), metric=metric)
    )
    np.testing.assert_array_equal(sampler.output_points_, genres)
    with pytest.warns(DataConversionWarning, match="converted to boolean"):
        sampler.set_params(input_points=2 * np.array(genres)).fit(X)


@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_score_is_minus_the_mean_transport_cost(sampler_class):
    X = make_weights()
    rng = np.random.default_rng(0)
    inputs, outputs = rng.random((5, 2)), rng.random((5, 2))
    sampler = sampler_class(
        input_points=inputs, output_points=outputs, order=3, metric="cityblock"
    ).fit(X)
    cost = np.abs(inputs[:, None] - outputs).sum(axis=2)
    expected = -np.mean(emd_costs(X, sampler.project(X), cost))
    assert sampler.score(X) == pytest.approx(expected, rel=1e-9)
    assert isinstance(sampler.score(X), float)


@pytest.mark.parametrize(
    "geometry", [{}, {"input_points": np.zeros((5, 1)), "output_points": np.zeros((3, 2))}]
)
def test_score_takes_the_cost_matrix_where_points_cannot_be_compared(geometry):
    X = make_weights()
    cost = line_cost(5, 3) + 1.0
    sampler = WassersteinProjectionSampler(cost_matrix=cost, **geometry).fit(X)
    expected = -np.mean(emd_costs(X, sampler.project(X), cost))
    assert sampler.score(X) == pytest.approx(expected, rel=1e-9)


def test_score_compares_candidates_by_one_measure():
    X = make_weights()
    for parameters in ({"order": 1}, {"order": 4}, {"solver": "entropic"}, {"base_measure": 0.7}):
        sampler = WassersteinProjectionSampler(2.0, **parameters).fit(X)
        expected = -np.mean(emd_costs(X, sampler.project(X), line_cost(5)))
        assert sampler.score(X) == pytest.approx(expected, rel=1e-9)


def test_kullback_leibler_needs_one_output_per_input():
    with pytest.raises(ValueError, match="one output point per input point, got 5 inputs and 3"):
        KLProjectionSampler(output_points=[[0], [1], [2]]).fit(make_weights())


# Budgets
# -------


@pytest.mark.parametrize("sampler_class", SAMPLERS)
def test_every_sample_is_charged(sampler_class):
    X = make_input(sampler_class)
    ledger = PrivacyLedger(epsilon=3.0)
    sampler = sampler_class(0.5, ledger=ledger).fit(X)
    sampler.score(X)
    if sampler_class in LOCAL_SAMPLERS:
        sampler.project(X)
    assert ledger.entries() == []
    sampler.transform(X)
    sampler.sample(X, n_samples=3)
    sampler.fit_transform(X)
    one = PureDpEvent(0.5)
    assert [entry.event for entry in ledger.entries()] == [one, SelfComposedDpEvent(one, 3), one]
    about = {(entry.unit, entry.label) for entry in ledger.entries()}
    assert about == {("user", sampler_class.__name__)}
    assert ledger.spent() == (2.5, 0.0)
    with pytest.raises(BudgetExceededError, match="per user"):
        sampler.sample(X, n_samples=2)
    assert ledger.spent() == (2.5, 0.0)
    sampler.transform(X)


@pytest.mark.parametrize("sampler_class", SAMPLERS)
def test_the_guarantee_is_that_of_the_fitted_mechanism(sampler_class):
    sampler = sampler_class(2.0)
    assert not hasattr(sampler, "privacy_guarantee_")
    guarantee = sampler.fit(make_input(sampler_class)).set_params(epsilon=0.5).privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.unit) == (2.0, 0.0, "user")
    assert guarantee.neighbouring == "replace_one"
    assert "2-differentially private for every user" in str(guarantee)
    assert "who takes part" in guarantee.not_protected
    X = make_input(sampler_class, seed=1)
    assert sampler.fit(X).privacy_guarantee_.epsilon == 0.5
    # Samples that are seeded since have none.
    sampler.set_params(random_state=np.random.RandomState(0)).sample(X)
    assert sampler.privacy_guarantee_ is None
    sampler.set_params(random_state=None).sample(X)
    assert sampler.privacy_guarantee_.epsilon == 0.5


# In company
# ----------


def test_grid_search_over_epsilon_order_and_base_measure():
    X = make_weights(40)
    grid = {"epsilon": [0.5, 2.0, 8.0], "order": [1, 2], "base_measure": ["optimal", "uniform"]}
    search = GridSearchCV(WassersteinProjectionSampler(), grid, cv=2, error_score="raise").fit(X)
    results = pd.DataFrame(search.cv_results_)
    assert len(results) == 12 and (results["mean_test_score"] <= 0).all()
    assert search.best_params_["epsilon"] == 8.0
    for base_measure in ("optimal", "uniform"):
        chosen = results[(results["param_base_measure"] == base_measure)]
        for order in (1, 2):
            scores = chosen[chosen["param_order"] == order].sort_values("param_epsilon")
            assert scores["mean_test_score"].is_monotonic_increasing
    assert search.score(X) == search.best_estimator_.score(X)
    assert search.transform(X).shape == (40, 1)


def test_wasserstein_projection_has_the_best_score_of_all():
    X = make_weights(40)
    best, *others = (cls(2.0).fit(X).score(X) for cls in LOCAL_SAMPLERS)
    assert best > max(others)


# Bad input
# ---------

BAD_GEOMETRY = [
    ({"input_points": [[0], [1]]}, "has 2 rows but X has 5 features.*one input point per column"),
    ({"input_points": [0, 1, 2, 3, 4]}, r"Expected 2D array(.|\n)*reshape\(-1, 1\)"),
    ({"output_points": [0, 1, 2, 3, 4]}, "Expected 2D array, got 1D array instead"),
    ({"input_points": [[0], [1], [2], [3], [np.nan]]}, "input_points contains NaN"),
    (
        {"output_points": np.zeros((5, 2))},
        "measure distances between these points .*Give another .*, or a cost_matrix",
    ),
    ({"cost_matrix": np.full((5, 5), np.nan)}, "cost_matrix contains NaN or infinity"),
    ({"cost_matrix": np.ones((4, 5))}, r"cost_matrix has shape \(4, 5\); with 5 features"),
    ({"cost_matrix": np.ones(5)}, r"cost_matrix must be .* of shape \(n_inputs, n_outputs\)"),
    (
        {"cost_matrix": np.ones((5, 4)), "output_points": np.zeros((3, 1))},
        r"cost_matrix has shape \(5, 4\); .* must be \(5, 3\)",
    ),
    ({"metric": "crow"}, "metric='crow' does not measure .*[Mm]etric.*Give another metric"),
    ({"metric": "precomputed"}, "give costs as cost_matrix"),
    ({"metric": "correlation"}, "gives no finite cost between input point 0 and output point 0|1"),
    ({"order": 1e4}, "gives no finite cost .* Change metric or order"),
    ({"order": 0}, "'order' parameter"),
    ({"epsilon": 0}, "'epsilon' parameter .* must be a float in the range"),
    ({"epsilon": 701.0}, r"too large: exp\(epsilon\) overflows. Choose epsilon <= 700"),
    ({"epsilon": 1e-300}, "epsilon is too small"),
    ({"output": "label"}, "'output' parameter"),
]
BAD_BASE_MEASURES = [
    (0.1, "infeasible base_measure: .*less than 1.* Scale it up"),
    ([0.21] * 5, "infeasible base_measure: it sums to 1.05, .* Scale it down"),
    ([0.07] * 5, "infeasible base_measure: .*less than 1.* Scale it up"),
    ([0.2, 0.2, -0.1, 0.2, 0.2], "base_measure must be finite and non-negative"),
    ([0.2, 0.2, np.nan, 0.2, 0.2], "base_measure must be finite and non-negative"),
    ([0.25] * 4, r"one entry per output point \(5\), got \(4,\)"),
    (1.5, "'base_measure' parameter"),
    ("best", "'base_measure' parameter"),
    # At either end of what is feasible, all users have the same projection.
    ([0.1, 0.2, 0.4, 0.2, 0.1], "sums to 1, so that every user would get the same distribution"),
    (
        np.array([1, 2, 4, 2, 1]) / 10 * np.exp(-1),
        r"sums to 0.367879, .* exp\(-epsilon\) = 0.367879",
    ),
    (1.0, "every user .* multiply a probability vector by a number .*, such as 0.607"),
    (math.exp(-1), "sums to 0.367879, so that every user would get the same distribution"),
]


@pytest.mark.parametrize("parameters, message", BAD_GEOMETRY)
@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_bad_parameters_are_refused(sampler_class, parameters, message):
    with pytest.raises(ValueError, match=message):
        sampler_class(**parameters).fit(make_weights())


@pytest.mark.parametrize("base_measure, message", BAD_BASE_MEASURES)
@pytest.mark.parametrize("sampler_class", [WassersteinProjectionSampler, KLProjectionSampler])
def test_bad_base_measures_are_refused(sampler_class, base_measure, message):
    with pytest.raises(ValueError, match=message):
        sampler_class(base_measure=base_measure).fit(make_weights())


@pytest.mark.parametrize("total", [0.37, 0.6, 0.999])
@pytest.mark.parametrize("sampler_class", [WassersteinProjectionSampler, KLProjectionSampler])
def test_base_measures_between_the_ends_tell_users_apart(sampler_class, total):
    for base_measure in (total, total * np.array([1, 2, 4, 2, 1]) / 10):
        projections = sampler_class(base_measure=base_measure).fit(np.eye(5)).project(np.eye(5))
        assert len(np.unique(projections.round(6), axis=0)) > 1


def test_base_measures_that_leave_no_choice_are_taken_where_none_is_better():
    one_output = WassersteinProjectionSampler(output_points=[[2.0]], input_points=line_cost(5, 1))
    for base_measure in (1.0, math.exp(-1), [0.6], "balanced", "optimal", "uniform"):
        one_output.set_params(base_measure=base_measure).fit(np.eye(5))
        np.testing.assert_array_equal(one_output.project(np.eye(5)), np.ones((5, 1)))
    # Where one output costs nobody anything, the optimum is that one for all.
    free = np.ones((5, 3)) * [1, 0, 1]
    optimal = WassersteinProjectionSampler(cost_matrix=free, base_measure="optimal")
    optimal.fit(np.eye(5))
    assert np.count_nonzero(optimal.base_measure_) == 1
    for base_measure in (optimal.base_measure_, [0.0, 1.0, 0.0], [0.0, 0.4, 0.0]):
        given = WassersteinProjectionSampler(cost_matrix=free, base_measure=base_measure)
        projections = given.fit(np.eye(5)).project(np.eye(5))
        np.testing.assert_array_equal(projections, np.tile([0, 1, 0], (5, 1)))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_no_user_pays_more_with_the_balanced_measure_than_on_average_with_the_two(epsilon):
    rng = np.random.default_rng(0)
    users = np.vstack([np.eye(12), rng.dirichlet(np.full(12, 0.3), 40), np.ones(12)])
    points = rng.normal(size=(12, 2))

    def fit_with(base_measure):
        sampler = WassersteinProjectionSampler(
            epsilon, input_points=points, order=2, base_measure=base_measure
        ).fit(users)
        pairs = zip(users / users.sum(axis=1, keepdims=True), sampler.project(users), strict=True)
        costs = [ot.emd2(user, image, sampler.cost_matrix_) for user, image in pairs]
        return sampler.base_measure_, np.array(costs)

    (balanced, costs), (optimal, of_optimal), (uniform, of_uniform) = map(
        fit_with, ("balanced", "optimal", "uniform")
    )
    np.testing.assert_allclose(balanced, (optimal + uniform) / 2)
    assert balanced.min() > 0
    assert (costs <= (of_optimal + of_uniform) / 2 + 1e-9).all()


ABSENT = (
    "Input X contains NaN. .* write 0, .*fill_value=0.* do not impute, because that would fill in"
)
BAD_WEIGHTS = {
    "negative": ([[1, 1, 1], [SECRET, 1, -SECRET]], "Negative values in data: row 1 of X has some"),
    "sparse negative": (
        sparse.csr_array([[1, 1, 1], [0, 0, 1], [SECRET, 0, -SECRET]]),
        "Negative values in data: row 2 of X has some",
    ),
    "NaN": ([[SECRET, np.nan, 1]], ABSENT),
    "infinite": ([[SECRET, np.inf, 1]], "Input X contains infinity"),
    "sparse NaN": (sparse.csr_array([[SECRET, np.nan, 0]]), ABSENT),
    "all zero": (
        [[1, 1, 1], [SECRET, 0, 0], [0, 0, 0], [0, 0, 0]],
        "row 2 is all zero.*not depend on anybody's data, such as all ones: its absence reveals",
    ),
    "explicit zeros": (
        sparse.csr_array(([SECRET, 0.0, 0.0], ([0, 1, 1], [0, 1, 2])), shape=(2, 3)),
        "row 1 is all zero",
    ),
    "too wide": ([[SECRET] * 4], "X has 4 features, but .* expecting 3 features"),
    "empty": (np.empty((0, 3)), r"0 sample\(s\)"),
    "flat": ([SECRET, SECRET, 1], r"two-dimensional.* array.reshape\(1, -1\)"),
    "complex": (np.array([[SECRET + 1j, 1, 1]]), "Complex data not supported: X must hold real"),
    "text": ([[f"{SECRET} euros", "1", "1"]], "X holds text that cannot be read as numbers"),
    "objects": (np.array([[{SECRET: 1}, 1, 1]], dtype=object), "argument must be a string or a"),
}


@pytest.mark.parametrize("kind", BAD_WEIGHTS)
@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_bad_weights_are_refused_before_the_charge(sampler_class, kind):
    ledger = BudgetAccountant(epsilon=10.0, delta=0.0)
    sampler = sampler_class(ledger=ledger).fit(np.ones((1, 3)))
    X, message = BAD_WEIGHTS[kind]
    for release in (sampler.transform, sampler.sample, sampler.project, sampler.score):
        refuse_without_telling(partial(release, X), message)
    assert ledger.total()[0] == 0 and len(ledger) == 0


@pytest.mark.parametrize(
    "kind", ["negative", "sparse negative", "NaN", "sparse NaN", "infinite", "flat", "text"]
)
@pytest.mark.parametrize("sampler_class", LOCAL_SAMPLERS)
def test_fit_refuses_what_can_be_no_weight(sampler_class, kind):
    X, message = BAD_WEIGHTS[kind]
    refuse_without_telling(partial(sampler_class().fit, X), message)


@pytest.mark.parametrize(
    "kind", ["NaN", "infinite", "too wide", "flat", "complex", "text", "empty"]
)
def test_bad_vectors_are_refused_before_the_charge(kind):
    ledger = BudgetAccountant(epsilon=10.0, delta=0.0)
    sampler = SphericalProjectionSampler(ledger=ledger).fit(np.eye(3))
    X, message = BAD_WEIGHTS[kind]
    message = "Input X contains NaN" if kind == "NaN" else message
    for release in (sampler.transform, sampler.sample, sampler.score):
        refuse_without_telling(partial(release, X), message)
    with np.errstate(all="raise"):
        refuse_without_telling(
            partial(sampler.transform, [[SECRET, 0, 0], [0, 0, 0]]),
            "row 1 is all zero, so it has no direction.*Give it one that does not depend on",
        )
    assert len(ledger) == 0


@pytest.mark.parametrize("n_samples", [0, -1, 1.0, "2", None, np.array([SECRET])])
@pytest.mark.parametrize("sampler_class", SAMPLERS)
def test_bad_numbers_of_samples_are_refused_before_the_charge(sampler_class, n_samples):
    X = make_input(sampler_class)
    ledger = BudgetAccountant(epsilon=10.0, delta=0.0)
    sampler = sampler_class(ledger=ledger).fit(X)
    refuse_without_telling(
        partial(sampler.sample, X, n_samples), "n_samples must be an integer of at least 1, got"
    )
    assert len(ledger) == 0


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"n_jobs": 0}, "n_jobs == 0"),
        ({"random_state": "seed"}, "'random_state' parameter"),
        ({"epsilon": -1.0}, "'epsilon' parameter"),
    ],
)
@pytest.mark.parametrize("sampler_class", SAMPLERS)
def test_bad_parameters_set_after_fit_are_refused_before_the_charge(
    sampler_class, parameters, message
):
    X = make_input(sampler_class)
    ledger = BudgetAccountant(epsilon=10.0, delta=0.0)
    sampler = sampler_class(ledger=ledger).fit(X)
    if not parameters.keys() <= sampler.get_params().keys():
        pytest.skip("not a parameter of this sampler")
    with pytest.raises(ValueError, match=message):
        sampler.set_params(**parameters).transform(X)
    assert len(ledger) == 0
