"""The allocation estimator: optimal without a budget, and with one a function of releases."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import PrivacyLedger, PrivateADMMTransport
from skdpot.published import PrivateMessageADMM
from skdpot.releases import UTILITY_MECHANISMS
from skdpot.transport.consensus import LogUtility
from tests.oracles.case_study import RANGE, best_welfare, draw_case_study
from tests.oracles.consensus import NETWORKS, draw_network, linear_optimum, smooth_optimum

MECHANISMS = ["input", "input_laplace", "messages"]
FEW_ROUNDS = {"n_rounds": 3, "eta": 2.0}
# What does not follow from utilities, though it is set by a fit.
PUBLIC = {"n_features_in_"}


def bounds_of(network):
    sides = {"target_bounds": network.targets, "source_bounds": network.sources}
    return {name: np.c_[side.lower, side.upper] for name, side in sides.items()}


def small(mechanism=None, *, epsilon=None, **parameters):
    """Return two utilities and an estimator of a small complete network.

    "messages" is the published method, with a few rounds unless other ones are given.
    """
    rng = np.random.default_rng(5)
    utilities = [rng.uniform(*RANGE, (5, 3)) for _ in range(2)]
    settings = {"utility_bounds": RANGE, "target_bounds": (0, 2), "source_bounds": (1, 3)}
    settings |= {"epsilon": epsilon}
    if mechanism == "messages":
        return utilities, PrivateMessageADMM(**settings | FEW_ROUNDS | parameters)
    settings |= {"mechanism": mechanism or "input"}
    return utilities, PrivateADMMTransport(**settings | parameters)


def fitted_state(estimator):
    """Return what a fit left, as comparable arrays."""
    values = {}
    for name, value in vars(estimator).items():
        if name.endswith("_") and name not in PUBLIC:
            values[name] = value.toarray() if sparse.issparse(value) else value
    return values


def assert_same_state(one, other):
    one, other = fitted_state(one), fitted_state(other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_equal(value, other[name], err_msg=name)


# --- without privacy ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NETWORKS)
def test_without_a_budget_the_plan_is_optimal(kind, rng):
    network = draw_network(kind, rng)
    adjacency = network.matrix(np.ones(network.n_edges)).toarray()
    X, S = (adjacency * rng.uniform(0.5, 5, network.shape) for _ in range(2))
    model = PrivateADMMTransport(None, adjacency=adjacency, tol=1e-7, **bounds_of(network))
    model.fit(X, source_utilities=S)
    rows, columns = network.targets.nodes, network.targets.neighbours
    optimum = linear_optimum(network, (X + S)[rows, columns])
    assert model.welfare_ == pytest.approx(optimum, rel=1e-6)
    assert model.welfare_ == pytest.approx(((X + S) * model.plan_).sum())
    assert model.gap_ <= 1e-7
    assert (model.plan_[adjacency == 0] == 0).all()
    assert network.violation(model.plan_[rows, columns]) <= 1e-9


@pytest.mark.experiment
@pytest.mark.parametrize("utility", ["quadratic", "log"])
def test_other_utilities_reach_a_general_optimiser(utility, rng):
    network = draw_network("lower bounds", rng)
    adjacency = network.matrix(np.ones(network.n_edges)).toarray()
    X, S = (adjacency * rng.uniform(0.5, 3, network.shape) for _ in range(2))
    scale = rng.uniform(0.1, 0.3, network.shape)
    model = PrivateADMMTransport(
        None,
        utility=utility,
        utility_scale=scale,
        adjacency=adjacency,
        tol=1e-6,
        **bounds_of(network),
    )
    model.fit(X, source_utilities=S)
    rows, columns = network.targets.nodes, network.targets.neighbours
    utilities = model._validate(X, S).utilities()
    _, optimum = smooth_optimum(network, utilities)
    assert model.welfare_ == pytest.approx(optimum, rel=1e-5)
    assert network.violation(model.plan_[rows, columns]) <= 1e-9


def test_a_users_utility(rng):
    utilities, model = small(utility=lambda values: LogUtility(values, np.ones_like(values)))
    named = clone(model).set_params(utility="log")
    for one in (model, named):
        one.fit(utilities[0], source_utilities=utilities[1])
    np.testing.assert_allclose(model.plan_, named.plan_)


def test_sparse_matrices_hold_the_edges(rng):
    adjacency = rng.random((8, 6)) < 0.5
    X = np.where(adjacency, rng.uniform(1, 5, adjacency.shape), 0)
    dense = PrivateADMMTransport(None, adjacency=adjacency).fit(X, source_utilities=X)
    held = PrivateADMMTransport(None).fit(sparse.csr_array(X), source_utilities=sparse.csc_array(X))
    assert isinstance(dense.plan_, np.ndarray)
    assert sparse.issparse(held.plan_) and held.plan_.nnz == adjacency.sum()
    np.testing.assert_array_equal(held.plan_.toarray(), dense.plan_)
    np.testing.assert_array_equal(held.transform(sparse.csr_array(X)).toarray(), dense.transform(X))
    assert held.score(sparse.csr_array(X)) == pytest.approx(dense.score(X))


def test_not_converging_is_a_warning():
    utilities, model = small(max_iter=1, tol=1e-12)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter or tol") as caught:
        model.fit(utilities[0])
    assert caught[0].filename == __file__


# --- shares ---------------------------------------------------------------------------------------


def test_shares_of_sources_and_of_bounds():
    X = np.array([[5.0, 1.0], [4.0, 2.0], [1.0, 3.0]])
    model = PrivateADMMTransport(
        None, target_bounds=[(0, 2), (0, 0), (0, 4)], source_bounds=[(0, 1), (0, 3)], tol=1e-9
    )
    shares = model.fit_transform(X)
    np.testing.assert_allclose(model.plan_, [[1, 0], [0, 0], [0, 3]], atol=1e-6)
    np.testing.assert_allclose(shares, [[1, 0], [0, 0], [0, 1]], atol=1e-6)
    np.testing.assert_allclose(model.predict(X), [0.5, 0, 0.75], atol=1e-6)


def test_shares_are_those_of_the_fitted_targets():
    utilities, model = small()
    model.fit(utilities[0])
    for method in (model.transform, model.predict, model.score):
        with pytest.raises(ValueError, match="2 targets, but the fitted plan has 5"):
            method(utilities[0][:2])
        with pytest.raises(NotFittedError):
            getattr(clone(model), method.__name__)(utilities[0])


def test_score_is_the_social_utility():
    (X, S), model = small()
    model.fit(X, source_utilities=S)
    assert model.score(X, source_utilities=S) == pytest.approx(model.welfare_)
    assert model.score(X) == pytest.approx((model.plan_ * X).sum())


def test_source_utilities_are_routed():
    (X, S), model = small()
    direct = clone(model).fit(X, source_utilities=S)
    with config_context(enable_metadata_routing=True):
        asking = model.set_fit_request(source_utilities=True)
        pipeline = make_pipeline(FunctionTransformer(), asking).fit(X, source_utilities=S)
    np.testing.assert_array_equal(pipeline[-1].plan_, direct.plan_)


# --- with a budget --------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon, least", [(1, 0.83), (10, 0.98), (100, 0.999)])
def test_released_utilities_keep_most_of_the_welfare(epsilon, least):
    ratios = []
    for seed in range(8):
        utilities, bounds = draw_case_study(np.random.default_rng(seed))
        model = PrivateADMMTransport(epsilon, utility_bounds=RANGE, random_state=seed, **bounds)
        model.fit(utilities[0], source_utilities=utilities[1])
        found = model.score(utilities[0], source_utilities=utilities[1])
        ratios.append(found / best_welfare(utilities, bounds))
        assert model._fitted.violation(model.plan_.ravel()) <= 1e-9
    assert np.mean(ratios) >= least


@pytest.mark.parametrize("utility", ["linear", "quadratic", "log"])
@pytest.mark.parametrize("mechanism", ["input", "input_laplace"])
def test_all_that_is_left_follows_from_released_utilities(mechanism, utility, monkeypatch):
    (X, S), model = small(epsilon=2.0, mechanism=mechanism, utility=utility, random_state=0)
    releasing = UTILITY_MECHANISMS[mechanism]
    recorded, replayed = [], []
    release = releasing.run

    def recording(self, values, source):
        recorded.append(release(self, values, source))
        return recorded[-1]

    monkeypatch.setattr(releasing, "run", recording)
    first = clone(model).fit(X, source_utilities=S)
    assert len(recorded) == 2

    def replaying(self, values, source):
        replayed.append(values)
        return recorded[len(replayed) - 1]

    monkeypatch.setattr(releasing, "run", replaying)
    others = np.full_like(X, RANGE[0]), np.full_like(S, RANGE[1])
    second = clone(model).fit(others[0], source_utilities=others[1])
    np.testing.assert_array_equal(replayed[0], others[0].ravel())
    assert_same_state(first, second)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protect, unit", [("parameter", "edge"), ("node", "node")])
def test_what_is_charged(mechanism, protect, unit):
    ledger = PrivacyLedger(epsilon=5.0, neighbouring="replace_one", allow_seeded=True)
    (X, S), model = small(
        epsilon=2.0, mechanism=mechanism, protect=protect, ledger=ledger, random_state=0,
    )  # fmt: skip
    model.fit(X, source_utilities=S)
    (entry,) = ledger.entries()
    assert entry.unit == unit
    assert ledger.spent()[0] == pytest.approx(2.0, rel=1e-9)
    assert ledger.spent()[0] <= 2.0 * (1 + 1e-12)
    assert model.privacy_guarantee_ is None
    model.set_params(random_state=None).fit(X)
    assert (model.privacy_guarantee_.epsilon, model.privacy_guarantee_.unit) == (2.0, unit)


def test_budgets_of_nodes():
    ledger = PrivacyLedger(epsilon=9.0, neighbouring="replace_one")
    (X, S), model = small(
        epsilon=8.0, node_budgets=([0.5, 0.25, 0.25, 0.125, 0.5], 0.25), ledger=ledger
    )
    model.fit(X, source_utilities=S)
    np.testing.assert_array_equal(model.epsilons_[0], [4, 2, 2, 1, 4])
    np.testing.assert_array_equal(model.epsilons_[1], [2, 2, 2])
    assert model.privacy_guarantee_.epsilon == 4.0
    assert ledger.spent()[0] == pytest.approx(4.0)


def test_a_second_fit_forgets_the_first():
    (X, S), model = small(epsilon=1.0, random_state=0)
    model.fit(X, source_utilities=S)
    model.set_params(epsilon=None).fit(X)
    assert model.privacy_guarantee_ is None
    names = {"epsilons_", "target_utilities_", "source_utilities_"}
    assert not names & vars(model).keys()


# --- bad input ------------------------------------------------------------------------------------

WRONG = [
    (
        {"utility_bounds": None},
        r"utility_bounds must be declared.*\(low, high\), the least and the",
    ),
    ({"utility_bounds": (5, 1)}, "low < high"),
    ({"utility": "log", "utility_bounds": (-1, 5)}, "no weights below 0"),
    ({"utility": "log", "utility_scale": 0.0}, "scales must be positive"),
    ({"utility": "quadratic", "utility_scale": np.ones((2, 2))}, "utility_scale must be a number"),
    ({"utility": "quadratic", "utility_scale": -1.0}, "utility_scale"),
    ({"target_bounds": (2, 1)}, "smallest <= largest"),
    ({"target_bounds": (-1, 1)}, "non-negative"),
    ({"source_bounds": (0, np.nan)}, "finite"),
    ({"source_bounds": {"depot": (0, 1)}}, "source_bounds must be a pair of numbers"),
    ({"target_bounds": (9, 9)}, "target"),
    ({"adjacency": np.ones((2, 2))}, "adjacency must be of shape"),
    ({"node_budgets": (0.0, 1.0)}, "node_budgets must be a pair"),
    ({"node_budgets": (1.0,)}, "node_budgets must be a pair"),
    ({"epsilon": 0.0}, "epsilon"),
    ({"epsilon": 1e-12}, "larger epsilon"),
    ({"utility_bounds": (0, 1e300)}, "sizes up to"),
    ({"utility": "log", "utility_scale": 1e308}, "utility_scale must be 0, or between"),
    ({"target_bounds": (0, 1e200)}, "the largest bound must be 0 or from"),
    ({"adjacency": np.full((5, 3), np.nan)}, "only 0 and 1"),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("parameters, message", WRONG)
def test_bad_parameters_cost_nothing(parameters, message, mechanism):
    if mechanism == "input" and parameters.get("epsilon") == 1e-12:
        pytest.skip("randomised response works with any epsilon")
    ledger = PrivacyLedger(epsilon=9.0, neighbouring="replace_one")
    settings = {"epsilon": 1.0, "mechanism": mechanism, "ledger": ledger}
    (X, S), model = small(**settings | parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, source_utilities=S)
    assert not list(ledger.entries())


def bad_utilities():
    (X, S), _ = small()
    yield (np.full(X.shape, "3.75 euros"), S), "becomes X by its method pivot"
    yield (X, S[:2]), "source_utilities must be of shape"
    yield (X, np.full(X.shape, "3.75 euros")), "are not real numbers"
    yield (sparse.csr_array(X), S), "adjacency must be given with a sparse X"


@pytest.mark.parametrize("utilities, message", list(bad_utilities()))
def test_bad_utilities_cost_nothing(utilities, message):
    ledger = PrivacyLedger(epsilon=9.0, neighbouring="replace_one")
    _, model = small(epsilon=1.0, ledger=ledger)
    with pytest.raises(ValueError, match=message) as caught:
        model.fit(utilities[0], source_utilities=utilities[1])
    assert not list(ledger.entries())
    assert "3.75" not in str(caught.value)


def test_frames_in_another_order_cost_nothing():
    (X, S), _ = small()
    targets, sources = list("abcde"), ["x", "y", "z"]
    frame = pd.DataFrame(X, targets, sources)
    edges = pd.DataFrame(1, targets, sources)
    many, few = (pd.DataFrame({"low": 1, "high": 3}, names) for names in (targets, sources))
    tables = {"adjacency": edges, "target_bounds": many, "source_bounds": few}
    fits = {"source_utilities": pd.DataFrame(S, targets, sources)}
    ledger = PrivacyLedger(epsilon=1.0)
    for name, table in (tables | fits).items():
        turned = {name: table.iloc[::-1] if "bounds" in name else table.iloc[:, ::-1]}
        of_fit = fits | {key: turned[key] for key in turned.keys() & fits.keys()}
        of_model = tables | {key: turned[key] for key in turned.keys() & tables.keys()}
        _, model = small(epsilon=1.0, ledger=ledger, **of_model)
        with pytest.raises(ValueError, match=f"{name} has the names of X in another order"):
            model.fit(frame, **of_fit)
    assert not list(ledger.entries())
    in_order = small(epsilon=1.0, ledger=ledger, **tables)[1].fit(frame, **fits)
    assert in_order.plan_.shape == X.shape


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_matrices_that_come_in_stay_as_they_are(epsilon):
    (X, S), model = small(epsilon=epsilon, random_state=0)
    # Columns in another order, and an entry in two parts.
    other = sparse.csr_array(X[:, ::-1])[:, ::-1]
    held = sparse.csr_array(
        (
            np.append(other.data, [0.25, -0.25]),
            np.append(other.indices, [0, 0]),
            np.append(other.indptr[:-1], other.indptr[-1] + 2),
        ),
        shape=X.shape,
    )
    assert not held.has_sorted_indices
    parts = held.data.copy(), held.indices.copy(), held.indptr.copy()
    model.set_params(adjacency=np.ones(X.shape), utility_bounds=(0, 6))
    dense = held.toarray()
    fits = [clone(model).fit(of, source_utilities=of) for of in (held, dense)]
    np.testing.assert_array_equal(fits[0].plan_.toarray(), fits[1].plan_)
    for before, after in zip(parts, (held.data, held.indices, held.indptr), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_allclose(dense, X)


def test_both_ends_of_an_edge_are_two_secrets():
    (X, S), model = small(epsilon=1.0)
    assert "as one" in str(model.fit(X, source_utilities=S).privacy_guarantee_)
    assert "as one" not in str(model.fit(X).privacy_guarantee_)
    model.set_params(protect="node")
    assert "as one" not in str(model.fit(X, source_utilities=S).privacy_guarantee_)


# The last two targets have no edges.
CHAIN = np.eye(5, 3) + np.eye(5, 3, 1)


@pytest.mark.parametrize(
    "mechanism, protect", list(zip(MECHANISMS, ["parameter", "node", "node"], strict=True))
)
@pytest.mark.parametrize("adjacency, bounds", [(CHAIN, (0, 2)), (np.ones((5, 3)), (1, 1))])
def test_unusual_networks(mechanism, protect, adjacency, bounds):
    (X, S), model = small(
        epsilon=2.0, mechanism=mechanism, protect=protect, adjacency=adjacency,
        target_bounds=bounds, source_bounds=(0, 3),
    )  # fmt: skip
    model.fit(X, source_utilities=S)
    assert (model.plan_[adjacency == 0] == 0).all()
    assert model._fitted.violation(model.plan_[adjacency != 0]) <= 1e-9
