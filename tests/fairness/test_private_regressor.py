"""Private fair predictions: a function of released counts, charged, near to what is not private."""

import numpy as np
import pytest
from scipy.stats import laplace
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV

from skdpot import FairBarycenterClassifier, FairBarycenterRegressor, PrivacyLedger
from skdpot.fairness import DeclaredGroups, FoundGroups
from skdpot.fairness._predictions import (
    GroupDistribution,
    PredictionBarycenter,
    number_of_cells,
    shrunk_masses,
)
from skdpot.fairness.metrics import ks_between_groups

DELTA = 1e-5


class FirstColumn(RegressorMixin, BaseEstimator):
    """Predicts the first column."""

    def fit(self, X, y=None):
        self.is_fitted_ = True
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(float)


class FirstProbability(ClassifierMixin, BaseEstimator):
    """The first column is the probability of the class "yes"."""

    def fit(self, X=None, y=None):
        self.classes_ = np.array(["no", "yes"])
        return self

    def predict_proba(self, X):
        p = np.asarray(X)[:, 0].astype(float)
        return np.column_stack([1 - p, p])


SCORES = FrozenEstimator(FirstColumn().fit(None))
PROBABILITIES = FrozenEstimator(FirstProbability().fit())
DECLARED = {"sensitive_features": 1, "bounds": (-5, 5), "groups": [0, 1]}


def two_groups(n, shift=1.0, seed=0):
    """Return rows of a score and a group, and targets."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(n) < 0.4).astype(float)
    scores = rng.normal(size=n) + shift * groups
    return np.column_stack([scores, groups]), scores + rng.normal(size=n)


def private(estimator=SCORES, **params):
    fair = FairBarycenterClassifier if estimator is PROBABILITIES else FairBarycenterRegressor
    return fair(estimator, **{"epsilon": 1.0} | DECLARED | params)


def classes(**params):
    """Return a classifier of probabilities."""
    return private(PROBABILITIES, **{"bounds": None} | params)


# ------------------------------------------------------------------------------ what is learned


@pytest.mark.parametrize("delta", [None, DELTA])
def test_predictions_of_groups_are_alike_and_near_those_without_privacy(delta):
    X, y = two_groups(6000)
    new, _ = two_groups(6000, seed=1)
    fair = private(delta=delta, random_state=0).fit(X, y)
    predictions = fair.predict(new)
    assert ks_between_groups(new[:, 0], sensitive_features=new[:, 1]) > 0.3
    assert ks_between_groups(predictions, sensitive_features=new[:, 1]) < 0.06
    exact = FairBarycenterRegressor(SCORES, sensitive_features=1, cv=None).fit(X, y)
    assert np.mean((predictions - exact.predict(new)) ** 2) < 0.02
    assert fair.objective_ == pytest.approx(exact.objective_, abs=0.04)
    np.testing.assert_allclose(fair.group_weights_, exact.group_weights_, atol=0.01)
    # The order within a group stays, but for scores beyond the bounds.
    for group in (0, 1):
        rows = new[:, 1] == group
        order = np.argsort(new[rows, 0])
        assert (np.diff(predictions[rows][order]) >= 0).all()


def test_atoms_at_edges_are_counted_where_they_are_moved_from():
    rng = np.random.default_rng(0)
    edge = np.full(400, 0.5)
    edge[rng.random(400) < 0.5] = np.nextafter(0.5, 0.0)
    X = np.column_stack([edge, np.arange(400) % 2])
    y = np.where(rng.random(400) < 0.5, "yes", "no")
    fair = classes(epsilon=100.0, bounds=(0, 1), n_quantiles=4, random_state=0).fit(X, y)
    assert (fair.predict_proba(X)[:, 1] >= 0.5 - 1e-4).all()


def test_a_group_of_which_noise_hides_everything_is_taken_to_be_like_all():
    X, y = two_groups(2000)
    X[:, 1] = 0.0
    X[:4, 1] = 1.0
    fair = private(random_state=0, epsilon=0.05).fit(X, y)
    rare, common = (way.quantiles.ranks for way in fair._fitted[1].groups)
    assert np.abs(rare - common).max() < 0.2


def test_atoms_are_spread_where_a_cell_is_crowded():
    rng = np.random.default_rng(0)
    groups = (rng.random(8000) < 0.5).astype(float)
    atoms = np.where(rng.random(8000) < 0.3 + 0.4 * groups, 0.31, -1.72)
    fair = private(random_state=0, bounds=(-3, 3)).fit(np.column_stack([atoms, groups]), atoms)
    predictions = fair.predict(np.column_stack([atoms, groups]))
    assert ks_between_groups(atoms, sensitive_features=groups) > 0.35
    assert ks_between_groups(predictions, sensitive_features=groups) < 0.05


def test_probabilities_need_no_bounds():
    rng = np.random.default_rng(0)
    groups = (rng.random(6000) < 0.5).astype(float)
    p = rng.beta(1 + groups, 9.0)
    y = np.where(rng.random(6000) < p, "yes", "no")
    X = np.column_stack([p, groups])
    fair = classes(random_state=0).fit(X, y)
    probabilities = fair.predict_proba(X)
    assert (probabilities >= 0).all() and (probabilities <= 1).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert ks_between_groups(probabilities[:, 1], sensitive_features=groups) < 0.05
    assert fair.classes_.tolist() == ["no", "yes"]
    assert fair.score(X, y) == np.mean(fair.predict(X) == y) > 0.8
    assert set(fair.predict(X)) <= {"no", "yes"}
    # Crowded cells have one image then, and nothing is drawn.
    fair.set_params(ties="mean", random_state=None)
    np.testing.assert_array_equal(fair.predict_proba(X), fair.predict_proba(X))


# ------------------------------------------------------------------------------------- the cells


@pytest.mark.experiment
def test_the_number_of_cells_has_about_the_least_error():
    """Noise, and Gaussian scores whose deviation is a ninth of the width of the bounds."""
    rng = np.random.default_rng(0)
    n, deviation = 1000, 20.0

    def error(n_cells):
        edges = np.linspace(-4.5, 4.5, n_cells + 1)
        off = []
        for _ in range(200):
            # The bounds need not be centred where the scores are.
            scores = rng.normal(size=20_000) + rng.uniform(-1, 1) * 9 / n_cells
            masses = np.histogram(np.clip(scores, -4.5, 4.5), edges)[0] / len(scores)
            noisy = masses + laplace.rvs(size=n_cells, random_state=rng) * deviation / n / 2**0.5
            ends = np.append(0.0, np.cumsum(noisy))
            values = np.sort(scores)[::50]
            exact = np.searchsorted(np.sort(scores), values) / len(scores)
            off.append(np.abs(np.interp(values, edges, ends / ends[-1]) - exact).max() ** 2)
        return np.mean(off)

    chosen = number_of_cells(n, deviation)
    errors = {n_cells: error(n_cells) for n_cells in (3, 6, chosen, 40, 64)}
    assert errors[chosen] <= 1.25 * min(errors.values())


def test_the_number_of_cells_is_that_of_public_numbers():
    """Sizes of groups are private: a table of one group has as many cells as any other."""
    (X, y), other = two_groups(3000), two_groups(3000)[0]
    other[:, 1] = 0.0
    cells = [
        [len(way.quantiles.values) for way in private().fit(rows, y)._fitted[1].groups]
        for rows in (X, other)
    ]
    assert cells[0] == cells[1]


def test_ranks_and_quantiles_of_cells_are_inverse():
    edges = np.array([0.0, 1.0, 3.0, 4.0])
    distribution = GroupDistribution.from_cells(edges, np.array([0.3, 0.3, 0.4]))
    scores = np.array([0.0, 0.5, 2.0, 3.5, 4.0])
    ranks = distribution.ranks(scores, np.full(5, np.nan))
    np.testing.assert_allclose(ranks, [0, 0.15, 0.45, 0.8, 1.0])
    np.testing.assert_allclose(distribution.quantiles(ranks), scores)


def test_the_objective_of_cells_is_that_of_their_quantile_functions():
    edges = np.linspace(-1, 2, 9)
    masses = np.random.default_rng(0).dirichlet(np.ones(8), 3)
    weights = np.array([0.5, 0.3, 0.2])
    barycenter = PredictionBarycenter.from_cells(edges, masses, weights)
    ranks = (np.arange(200_000) + 0.5) / 200_000
    quantiles = np.array([group.quantiles(ranks) for group in barycenter.groups])
    average = weights @ quantiles
    np.testing.assert_allclose(barycenter.quantiles(ranks), average, atol=1e-9)
    expected = weights @ ((quantiles - average) ** 2).mean(axis=1)
    assert barycenter.objective == pytest.approx(expected, rel=1e-6)


def test_masses_without_noise_are_those_of_the_counts():
    counts = np.random.default_rng(0).integers(0, 4000, (3, 10)).astype(float)
    masses = shrunk_masses(counts, 1e-9)
    np.testing.assert_allclose(masses, counts / counts.sum(axis=1, keepdims=True), atol=1e-3)


def test_shrunk_masses_are_nearer_than_counts():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(12, 5.0))
    counts = 300 * np.tile(shares, (4, 1))
    shrunk, raw = [], []
    for _ in range(100):
        noisy = counts + 20 * rng.normal(size=counts.shape)
        clipped = np.maximum(noisy, 0) / np.maximum(noisy, 0).sum(axis=1, keepdims=True)
        for found, off in ((shrunk_masses(noisy, 20.0), shrunk), (clipped, raw)):
            off.append(np.abs(np.cumsum(found - shares, axis=1)).max())
    assert np.mean(shrunk) < 0.9 * np.mean(raw)


# ---------------------------------------------------------------------------- what is released


@pytest.mark.parametrize("make", [private, classes])
def test_what_is_not_trained_is_shared_by_clones(make):
    X, y = two_groups(200)
    y = np.where(y > 0, "yes", "no") if make is classes else y
    ledger = PrivacyLedger(10.0)
    fair = make(ledger=ledger)
    clone(fair).fit(X, y)
    assert len(ledger.entries()) == 1
    search = GridSearchCV(make(ledger=ledger), {"repair_level": [0.0, 1.0]}, cv=2, refit=False)
    search.fit(X, y)
    assert len(ledger.entries()) == 5


# ------------------------------------------------------------------------------ what is refused


REFUSED = {
    "no estimator": ({"estimator": None}, "FrozenEstimator"),
    "no groups": ({"groups": None}, "groups must be declared"),
    "groups that are found": ({"groups": FoundGroups()}, "groups must be declared"),
    "one group": ({"groups": [0]}, "two or more groups"),
    "other bounds": ({"bounds": (1, 0)}, "must be a pair"),
    "folds": ({"cv": 3}, "is for fits without epsilon"),
    "epsilon": ({"epsilon": 0.0}, "'epsilon' parameter"),
    "delta": ({"delta": 1.0}, "'delta' parameter"),
    "delta without epsilon": ({"epsilon": None, "delta": 1e-5, "bounds": None}, "with epsilon"),
    "bounds without epsilon": ({"epsilon": None, "bounds": (0, 1)}, "with epsilon"),
}
OF_SCORES = {
    "a model that is trained": ({"estimator": LinearRegression()}, "FrozenEstimator"),
    "no bounds": ({"bounds": None}, "bounds must be declared"),
    "a classifier": ({"estimator": PROBABILITIES}, "must be a reg.*FairBarycenterClassifier makes"),
}
OF_CLASSES = {
    "a model that is trained": ({"estimator": LogisticRegression()}, "FrozenEstimator"),
    "a regressor": ({"estimator": SCORES}, "must be a classifier with predict_proba"),
}


@pytest.mark.parametrize("kind, options, refused", [
    (FairBarycenterRegressor, {"estimator": SCORES}, REFUSED | OF_SCORES),
    (FairBarycenterClassifier, {"estimator": PROBABILITIES, "bounds": None}, REFUSED | OF_CLASSES),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_and_not_charged(kind, options, refused):
    X, y = two_groups(60)
    y = y if kind is FairBarycenterRegressor else np.where(y > 0, "yes", "no")
    ledger = PrivacyLedger(10.0)
    for params, message in refused.values():
        fair = kind(**DECLARED | {"epsilon": 1.0, "ledger": ledger} | options | params)
        with pytest.raises(ValueError, match=message):
            fair.fit(X, y)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        kind(**DECLARED | {"epsilon": 1.0, "ledger": ledger} | options).fit(X[:0], y[:0])
    assert not ledger.entries()


def test_targets_are_not_quoted():
    X, _ = two_groups(60)
    fair = classes()
    for y in (np.full(60, 1234j), [*["no"] * 59, 1234j]):
        fair.fit(X, y)
    with pytest.raises(ValueError, match=r"shape \(60, 2\)"):
        fair.fit(X, np.full((60, 2), 1234.0))


def test_labels_of_rows_are_not_quoted():
    X, y = two_groups(60)
    fair = private(groups=DeclaredGroups([0, 1])).fit(X, y)
    X[0, 1] = 1234.0
    with pytest.raises(ValueError) as caught:
        fair.predict(X)
    assert "1234" not in str(caught.value)
    fair.set_params(groups=DeclaredGroups([0, 1], unknown="nearest"))
    assert np.isfinite(fair.predict(X)).all()
