"""Data sets that differ in one record: what a release computes, raises and says of them."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn

from skdpot import PrivacyLedger, PrivateSinkhornDistance
from skdpot.distance import _releases
from skdpot.distance._costs import make_cost
from skdpot.distance._releases import CostSettings, pairwise_costs
from skdpot.privacy.sensitivity import transport_cost_sensitivity


@pytest.mark.parametrize(
    "metric, width",
    [
        ("euclidean", 1e150),
        ("euclidean", 1e-150),
        ("cityblock", 1.0),
        ("chebyshev", 1e5),
        ("sqeuclidean", 1e-74),
        ("sqeuclidean", 1e150),
    ],
)
def test_sorted_points_are_coupled_best_also_where_powers_underflow(metric, width):
    """One record that moves shifts the partners of all others in a sorted sample."""
    cost = make_cost(metric, np.zeros(1), np.full(1, width))
    settings = CostSettings(cost, 0.0, "ot")
    grid = np.linspace(0, width, 101)[:, None]
    values = [
        settings.transport_cost(sample, grid[:100], 0.0)
        for sample in (grid[:100], np.vstack([grid[1:100], grid[-1:]]))
    ]
    assert abs(values[0] - values[1]) <= settings.cost_range / 100 * (1 + 1e-9)


@pytest.mark.parametrize("short", [(1, 0), (0, 1)], ids=["of a sample to itself", "of a pair"])
def test_a_divergence_is_within_its_tolerance_whatever_the_solver_leaves(short, monkeypatch):
    """Its sensitivity is raised by this: the costs of a sample to itself count, too."""

    def as_bad_as_allowed(costs, a, b, reg, tol, **options):
        return SimpleNamespace(cost=1.0 - tol * short[len(a) != len(b)])

    monkeypatch.setattr(_releases, "entropic_transport", as_bad_as_allowed)
    settings = CostSettings(make_cost("euclidean", np.zeros(1), np.ones(1)), 0.1, "sinkhorn")
    samples, tolerances = [np.zeros((n, 1)) for n in (2, 3, 4)], [0.01, 0.02, 0.03]
    errors = np.abs(pairwise_costs(settings, samples, tolerances))
    assert 0 < errors.max() and (errors <= np.array(tolerances) + 1e-12).all()


@pytest.mark.parametrize("tiny", [3e-160, 3e-310, 5e-324])
@pytest.mark.parametrize("options", [{}, {"reg": 0.1}, {"metric": "cityblock"}], ids=str)
@pytest.mark.parametrize("n_features", [1, 2])
def test_the_smallest_numbers_make_no_noise_of_arithmetic(tiny, options, n_features):
    X = np.zeros((20, n_features))
    X[0] = tiny
    estimator = PrivateSinkhornDistance(bounds=(0, 1), **options)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        estimator.fit(X, np.arange(20) % 2).score(X, np.arange(20) % 2)


@pytest.mark.parametrize("mechanism", ["output", "histogram"])
def test_no_number_is_the_middle_whatever_is_configured(mechanism):
    X, y = np.random.default_rng(0).random((20, 2)), np.arange(20) % 2
    distances = []
    for value, finite in ((0.5, False), (np.nan, False), (np.nan, True)):
        X[3, 1] = value
        estimator = PrivateSinkhornDistance(bounds=(0, 1), mechanism=mechanism, random_state=0)
        with sklearn.config_context(assume_finite=finite):
            distances.append(estimator.fit(X, y).distance_)
    assert len(set(distances)) == 1


class Label:
    """A label that tells a secret when it is looked up."""

    def __hash__(self):
        raise RuntimeError("3.75")


def test_private_labels_that_cannot_be_looked_up_are_in_no_group():
    y = np.array([0, 1] * 10, dtype=object)
    y[3] = Label()
    estimator = PrivateSinkhornDistance(
        bounds=(0, 1), labels="private", groups=[0, 1], min_group_size=5
    )
    assert np.isfinite(estimator.fit(np.zeros((20, 1)), y).distance_)


@pytest.mark.parametrize("bound", [1e151, 1e308, np.inf, np.nan])
def test_bounds_whose_squares_are_no_numbers_are_refused(bound):
    with pytest.raises(ValueError, match="bounds must be a pair .* magnitudes up to 1e150"):
        PrivateSinkhornDistance(bounds=(0, bound)).fit(np.zeros((4, 1)), [0, 0, 1, 1])


@pytest.mark.parametrize("size", [11, 10**9, 2**62])
def test_more_records_than_there_are_cannot_be_declared(size):
    ledger = PrivacyLedger(1.0)
    estimator = PrivateSinkhornDistance(
        bounds=(0, 1), labels="private", groups=[0, 1], min_group_size=size, ledger=ledger
    )
    with pytest.raises(ValueError, match="min_group_size adds up to .* and there are 20 in all"):
        estimator.fit(np.zeros((20, 1)), [0, 1] * 10)
    assert ledger.spent() == (0.0, 0.0)


def test_a_fit_that_is_refused_keeps_the_one_before():
    X, y = np.random.default_rng(0).random((40, 2)), np.arange(40) % 2
    estimator = PrivateSinkhornDistance(bounds=(0, 1), mechanism="histogram", grid=2).fit(X, y)
    state = pickle.dumps(vars(estimator) | {"bounds": None})
    with pytest.raises(ValueError, match="low < high"):
        estimator.set_params(bounds=(1, 0)).fit(X, y)
    assert pickle.dumps(vars(estimator) | {"bounds": None}) == state


def test_a_map_and_its_plan_survive_a_wide_box():
    X = np.array([[0.0], [1e150], [5e149], [0.0]])
    estimator = PrivateSinkhornDistance(
        bounds=(0, 1e150), mechanism="histogram", grid=4, metric="euclidean"
    )
    assert np.isfinite(estimator.fit(X, [0, 0, 1, 1]).transform(X)).all()


@pytest.mark.parametrize("reg, solver", [(0.0, "exact_transport"), (0.2, "entropic_transport")])
@pytest.mark.parametrize("tol", [1e-3, 1e-2])
def test_solvers_leave_open_no_more_than_the_noise_pays_for(monkeypatch, reg, solver, tol):
    """The noise covers an error of `tol` times the sensitivity; the solver is asked for that."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(90, 2)), np.repeat([0, 1], [60, 30])
    solve, asked, gaps = getattr(_releases, solver), [], []

    def spied(cost, a, b, *args, **options):
        # The exact solver ends within a gap that is checked beforehand.
        asked.extend(args[1:2])
        result = solve(cost, a, b, *args, **options)
        gaps.append(result.gap)
        return result

    monkeypatch.setattr(_releases, solver, spied)
    distance = PrivateSinkhornDistance(1.0, bounds=(0, 1), reg=reg, tol=tol, random_state=0)
    distance.fit(X, y)
    sensitivity = transport_cost_sensitivity(2.0, 60, 30)
    assert gaps[0] <= tol * sensitivity
    assert asked == [pytest.approx(tol * sensitivity, rel=1e-9)] * (reg > 0)
    assert distance.standard_error_ >= np.sqrt(2) * sensitivity * (1 + tol) * (1 - 1e-9)
