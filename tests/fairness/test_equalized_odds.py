"""Equal odds for scores: kernels of least movement whose images of a class agree in all groups."""

from itertools import product

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score

from skdpot import FairBarycenterRegressor, PrivacyLedger
from skdpot.fairness._odds import OddsKernels
from skdpot.fairness._predictions import PredictionBarycenter
from skdpot.fairness.metrics import equalized_odds_difference, ks_between_groups


def random_problem(n_groups, n_classes, n_cells, seed):
    """Return edges, masses and shares."""
    rng = np.random.default_rng(seed)
    masses = rng.dirichlet(np.ones(n_cells), (n_groups, n_classes))
    shares = rng.dirichlet(np.ones(n_groups * n_classes)).reshape(n_groups, n_classes)
    return np.sort(rng.normal(size=n_cells + 1)), masses, shares


def images_of(kernels, masses):
    return np.einsum("gcb,gbd->gcd", masses, kernels)


# --------------------------------------------------------------------------------- the kernels


@pytest.mark.parametrize("n_groups, n_classes, n_cells", [(2, 2, 5), (3, 2, 8), (4, 3, 6)])
def test_images_of_a_class_agree_in_all_groups(n_groups, n_classes, n_cells):
    for seed in range(5):
        edges, masses, shares = random_problem(n_groups, n_classes, n_cells, seed)
        found = OddsKernels.from_cells(edges, masses, shares)
        np.testing.assert_allclose(found.kernels.sum(axis=2), 1)
        assert (found.kernels >= 0).all()
        images = images_of(found.kernels, masses)
        np.testing.assert_allclose(images, np.broadcast_to(images[:1], images.shape), atol=1e-6)


def cost_of(kernels, edges, masses, shares):
    """Return the mean squared distance from the middles of cells, to images spread in cells."""
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    of_cells = np.einsum("gc,gcb->gb", shares, masses)
    moved = (middles[:, None] - middles) ** 2 + widths**2 / 12
    return float((of_cells[:, :, None] * moved * kernels).sum())


def test_no_kernels_on_a_fine_grid_are_better():
    """Two equal cells, two classes: all kernels of one group, and what they need of the other."""
    edges = np.array([0.0, 1.0, 2.0])
    for seed in range(8):
        _, masses, shares = random_problem(2, 2, 2, seed)
        found = OddsKernels.from_cells(edges, masses, shares)
        to_other, best = np.linalg.inv(masses[1]) @ masses[0], np.inf
        # What the second group needs follows from two equations in its two unknowns.
        for pair in product(np.linspace(0, 1, 101), repeat=2):
            needed = to_other @ pair
            if (needed >= -1e-9).all() and (needed <= 1 + 1e-9).all():
                first = np.array([pair, needed])
                kernels = np.stack([first, 1 - first], axis=2)
                best = min(best, cost_of(kernels, edges, masses, shares))
        assert found.objective == pytest.approx(best, abs=0.015)
        assert found.objective <= best + 1e-3


def test_constant_kernels_are_no_better():
    edges = np.linspace(-1, 1, 7)
    for seed in range(5):
        _, masses, shares = random_problem(3, 2, 6, seed)
        found = OddsKernels.from_cells(edges, masses, shares)
        for cell in range(6):
            constant = np.zeros((3, 6, 6))
            constant[:, :, cell] = 1
            assert found.objective <= cost_of(constant, edges, masses, shares) + 1e-8


def test_one_class_is_demographic_parity():
    """The program is then transport to a common distribution, whose cost is the barycenter's."""
    edges = np.linspace(0, 1, 31)
    x = 0.5 * (edges[1:] + edges[:-1])
    masses = np.exp(-0.5 * ((x - np.array([[0.4], [0.6]])) / 0.1) ** 2)
    masses /= masses.sum(axis=1, keepdims=True)
    weights = np.array([0.5, 0.5])
    odds = OddsKernels.from_cells(edges, masses[:, None], weights[:, None])
    barycenter = PredictionBarycenter.from_cells(edges, masses, weights)
    # Each group moves by 0.1; images of the kernels are spread in their cells.
    assert barycenter.objective == pytest.approx(0.01, rel=0.05)
    assert odds.objective == pytest.approx(barycenter.objective + (1 / 30) ** 2 / 12, rel=0.05)


def test_groups_alike_stay_where_they_are():
    edges, masses, shares = random_problem(3, 2, 6, 0)
    masses[:] = masses[:1]
    found = OddsKernels.from_cells(edges, masses, shares)
    np.testing.assert_allclose(found.kernels, np.broadcast_to(np.eye(6), (3, 6, 6)), atol=1e-6)


def test_draws_follow_the_kernels():
    edges, masses, shares = random_problem(2, 2, 4, 3)
    found = OddsKernels.from_cells(edges, masses, shares)
    rng = np.random.default_rng(0)
    for group, cell in product(range(2), range(4)):
        scores = np.full(20_000, 0.5 * (edges[cell] + edges[cell + 1]))
        moved = found.move(scores, np.full(20_000, group), rng.random(20_000))
        counts = np.histogram(moved, edges)[0] / 20_000
        np.testing.assert_allclose(counts, found.kernels[group, cell], atol=0.02)
        # Within a cell images are spread evenly.
        most = counts.argmax()
        inside = moved[(moved > edges[most]) & (moved < edges[most + 1])]
        places = (inside - edges[most]) / (edges[most + 1] - edges[most])
        assert abs(places.mean() - 0.5) < 0.02 and abs(places.var() - 1 / 12) < 0.01
    stay = np.array([0.1, 0.2])
    np.testing.assert_array_equal(found.move(stay, np.full(2, -1), np.zeros(2)), stay)


# ------------------------------------------------------------------------------- the estimator


def simulated(n, seed, n_groups=2):
    """Return rows of features and a group, and classes: a score tells more in some groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n)
    y = (rng.random(n) < np.array([0.3, 0.6, 0.45])[group]).astype(int)
    spread = np.array([0.7, 1.3, 1.0])[group]
    score = y + 0.5 * group + spread * np.random.default_rng(seed + 1000).normal(size=n)
    return np.column_stack([score, score * group, group]), y


def gaps(predictions, X, y):
    """Return the largest distance between groups of each class."""
    return [
        ks_between_groups(predictions[y == c], sensitive_features=X[y == c, -1])
        for c in np.unique(y)
    ]


@pytest.mark.parametrize("n_groups", [2, 3])
def test_roc_curves_of_groups_coincide(n_groups):
    X, y = simulated(12_000, 0, n_groups)
    new, y_new = simulated(12_000, 1, n_groups)
    fair = FairBarycenterRegressor(
        LogisticRegression(), sensitive_features=-1, constraint="equalized_odds", random_state=0
    ).fit(X, y)
    unfair = fair.estimator_.predict_proba(new)[:, 1]
    predictions = fair.predict(new)
    assert min(gaps(unfair, new, y_new)) > 0.2
    assert max(gaps(predictions, new, y_new)) < 0.07
    for threshold in np.quantile(predictions, [0.2, 0.5, 0.8]):
        decided = predictions > threshold
        odds = equalized_odds_difference(y_new, decided, sensitive_features=new[:, -1])
        assert odds < 0.07
    aucs = [
        roc_auc_score(y_new[new[:, -1] == g], predictions[new[:, -1] == g]) for g in range(n_groups)
    ]
    assert np.ptp(aucs) < 0.04 and min(aucs) > 0.6
    # Less is asked for than what makes all predictions independent of the group.
    parity = clone(fair).set_params(constraint="demographic_parity").fit(X, y)
    assert max(gaps(parity.predict(new), new, y_new)) > 0.1


def test_regressors_have_equal_odds_in_fifths_of_the_target():
    X, _ = simulated(10_000, 0)
    rng = np.random.default_rng(5)
    y = X[:, 0] - 0.5 * X[:, -1] + rng.normal(size=len(X)) * 0.3
    fair = FairBarycenterRegressor(
        LinearRegression(), sensitive_features=-1, constraint="equalized_odds", random_state=0
    ).fit(X[:6000], y[:6000])
    new, y_new = X[6000:], y[6000:]
    fifth = np.searchsorted(np.quantile(y, [0.2, 0.4, 0.6, 0.8]), y_new)
    predictions = fair.predict(new)
    assert max(gaps(predictions, new, fifth)) < 0.15
    assert np.corrcoef(predictions, y_new)[0, 1] > 0.9


def test_partial_repair_is_a_straight_line():
    X, y = simulated(2000, 0)
    fair = FairBarycenterRegressor(
        LogisticRegression(), sensitive_features=-1, constraint="equalized_odds", random_state=0
    ).fit(X, y)
    full, unfair = fair.predict(X), fair.estimator_.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(fair.set_params(repair_level=0.0).predict(X), unfair)
    part = fair.set_params(repair_level=0.25).predict(X)
    np.testing.assert_allclose(part, 0.75 * unfair + 0.25 * full)


def test_the_objective_is_the_mean_squared_movement():
    X, y = simulated(8000, 0)
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    fair = FairBarycenterRegressor(
        frozen, sensitive_features=-1, constraint="equalized_odds", cv=None, random_state=0
    ).fit(X, y)
    moved = np.mean((fair.predict(X) - frozen.predict_proba(X)[:, 1]) ** 2)
    # Scores are not all at the mean of their cell.
    assert fair.objective_ == pytest.approx(moved, rel=0.1)
    ranks = np.array([0.1, 0.5, 0.9])
    found = np.quantile(fair.predict(X), ranks)
    np.testing.assert_allclose(fair.barycenter_(ranks), found, atol=0.02)


def test_scores_of_one_value_stay():
    X = np.column_stack([np.zeros(40), np.tile([0, 1], 20)])
    y = np.repeat([0, 1], 20)
    fair = FairBarycenterRegressor(
        LogisticRegression(), sensitive_features=1, sensitive_in_estimator=False,
        constraint="equalized_odds", random_state=0,
    ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(fair.predict(X), 0.5)


def test_a_group_without_a_class_is_refused():
    X, y = simulated(500, 0)
    y[X[:, -1] == 1] = 1
    fair = FairBarycenterRegressor(
        LogisticRegression(), sensitive_features=-1, constraint="equalized_odds"
    )
    with pytest.raises(ValueError, match=r"group 1.0 has no rows of class number 0"):
        fair.fit(X, y)
    with pytest.raises(ValueError, match="n_quantiles=None"):
        fair.set_params(n_quantiles=None).fit(X, y)
    with pytest.raises(ValueError, match="'constraint' parameter"):
        fair.set_params(constraint="equal_odds").fit(X, y)


def test_classes_that_a_frozen_classifier_does_not_know_are_refused():
    X, y = simulated(300, 0)
    fair = FairBarycenterRegressor(
        FrozenEstimator(LogisticRegression().fit(X, y)), sensitive_features=-1,
        constraint="equalized_odds", cv=None,
    )  # fmt: skip
    with pytest.raises(ValueError, match="was not trained with"):
        fair.fit(X, y + 1)
    with pytest.raises(ValueError, match="has no rows of class number 1"):
        fair.fit(X, np.zeros_like(y))


# ------------------------------------------------------------------------------------- private


def test_private_odds_are_about_equal():
    X, y = simulated(12_000, 0)
    new, y_new = simulated(12_000, 1)
    frozen = FrozenEstimator(LogisticRegression().fit(*simulated(3000, 2)))
    ledger = PrivacyLedger(2.0)
    fair = FairBarycenterRegressor(
        frozen, sensitive_features=-1, constraint="equalized_odds", epsilon=2.0, groups=[0, 1],
        ledger=ledger,
    ).fit(X, y)  # fmt: skip
    assert len(ledger.entries()) == 1 and fair.privacy_guarantee_.epsilon == 2.0
    unfair = frozen.predict_proba(new)[:, 1]
    assert max(gaps(fair.predict(new), new, y_new)) < 0.4 * max(gaps(unfair, new, y_new))
    assert roc_auc_score(y_new, fair.predict(new)) > 0.65


def test_a_class_that_is_none_counts_nowhere():
    X, y = simulated(300, 0)
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    declared = {"sensitive_features": -1, "constraint": "equalized_odds", "groups": [0, 1]}
    fair = FairBarycenterRegressor(frozen, **declared, epsilon=1e6, random_state=0, n_quantiles=9)
    expected = fair.fit(X, y).group_weights_
    odd = np.array([*y, "secret", None], dtype=object)
    found = fair.fit(np.vstack([X, X[:2]]), odd).group_weights_
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_small_group_does_not_limit_the_others():
    """Sixteen rows of a class would look as if their scores told little."""
    rng = np.random.default_rng(0)
    n = 9000
    group = np.where(np.arange(n) < 60, 2, rng.integers(0, 2, n))
    y = (rng.random(n) < 0.3).astype(int)
    score = 2.0 * y + rng.normal(size=n) + 0.3 * group
    X = np.column_stack([score, group])
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    fair = FairBarycenterRegressor(
        frozen, sensitive_features=-1, constraint="equalized_odds", cv=None, random_state=0
    ).fit(X, y)
    lost = roc_auc_score(y, frozen.predict_proba(X)[:, 1]) - roc_auc_score(y, fair.predict(X))
    assert lost < 0.02
