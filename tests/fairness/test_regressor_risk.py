"""The theorem of the fair premium: the risk grows by the value of the barycenter, and no less.

Statistical tests allow four standard errors. Comments say how each is computed.
"""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from skdpot import FairBarycenterRegressor
from skdpot.fairness.metrics import ks_between_groups

pytestmark = pytest.mark.experiment

SHARES = np.array([0.5, 0.3, 0.2])
MEANS = np.array([0.0, 1.0, 3.0])
SCALES = np.array([1.0, 2.0, 0.5])


class TrueRegression(RegressorMixin, BaseEstimator):
    """A regressor that predicts the true conditional mean, which is the second column."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return X[:, 1]


def normal_means(groups, rng):
    return MEANS[groups] + SCALES[groups] * rng.normal(size=len(groups))


def discrete_means(groups, rng):
    """Return 0 or 1 with probabilities that depend on the group, and twice that in the last one."""
    return (rng.random(len(groups)) < np.array([0.2, 0.5, 0.8])[groups]) * np.array([1, 1, 2])[
        groups
    ]


def sample(n, conditional_means, seed):
    """Return rows (group, conditional mean), and losses with these conditional means."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(3, size=n, p=SHARES)
    mu = conditional_means(groups, rng)
    return np.column_stack([groups, mu]), mu + (1 + groups) * rng.normal(size=n)


def fair_regressor(X, y, **options):
    estimator = FairBarycenterRegressor(
        TrueRegression(), sensitive_features=0, cv=None, random_state=0, **options
    )
    return estimator.fit(X, y)


def value_for_normal_means():
    """Return the barycenter's value: quantile functions m_s + sigma_s z have the average's form."""
    return SHARES @ ((MEANS - SHARES @ MEANS) ** 2 + (SCALES - SHARES @ SCALES) ** 2)


def value_for_discrete_means():
    """Return the barycenter's value for quantile functions that are steps at 0.2, 0.5 and 0.8."""
    masses = np.array([0.2, 0.3, 0.3, 0.2])
    quantiles = np.array([[0, 0, 0, 1], [0, 0, 1, 1], [0, 2, 2, 2]])
    return masses @ (SHARES @ (quantiles - SHARES @ quantiles) ** 2)


@pytest.mark.parametrize(
    "conditional_means, value",
    [(normal_means, value_for_normal_means()), (discrete_means, value_for_discrete_means())],
    ids=["normal", "discrete"],
)
def test_risk_grows_by_the_value_of_the_barycenter(conditional_means, value):
    fair = fair_regressor(*sample(40_000, conditional_means, 0))
    assert fair.objective_ == pytest.approx(value, rel=0.04)
    X, losses = sample(400_000, conditional_means, 1)
    predictions = fair.predict(X)
    for level in (1.0, 0.5):
        partial = (1 - level) * X[:, 1] + level * predictions
        excess = (losses - partial) ** 2 - (losses - X[:, 1]) ** 2
        # The fitted barycenter's own error adds its relative standard error, 1 %, to that of the
        # mean, 0.02 or less.
        error = np.std(excess) / np.sqrt(len(excess)) + 0.01 * value
        assert excess.mean() == pytest.approx(level**2 * value, abs=4 * error)
        left = fair_regressor(np.column_stack([X[:, 0], partial]), losses).objective_
        assert left == pytest.approx((1 - level) ** 2 * value, abs=0.04 * value)
    # Two samples of the smallest groups, 8,000 and 12,000 rows, are apart by 0.0127 on average.
    assert ks_between_groups(predictions, sensitive_features=X[:, 0].astype(int)) < 0.035


def test_other_fair_predictors_cost_more_and_equal_means_less():
    fair = fair_regressor(*sample(40_000, normal_means, 0))
    X, losses = sample(400_000, normal_means, 1)
    groups, mu = X[:, 0].astype(int), X[:, 1]
    ranks = (mu - MEANS[groups]) / SCALES[groups]
    fair_risk = np.mean((losses - fair.predict(X)) ** 2)
    others = [np.full(len(X), SHARES @ MEANS), MEANS[0] + SCALES[0] * ranks,
              SHARES @ MEANS + 1.1 * SHARES @ SCALES * ranks]  # fmt: skip
    for other in others:
        assert ks_between_groups(other, sensitive_features=groups) < 0.01
        assert np.mean((losses - other) ** 2) > fair_risk + 0.01
    equal_means = mu - MEANS[groups] + SHARES @ MEANS
    assert ks_between_groups(equal_means, sensitive_features=groups) > 0.1
    assert np.mean((losses - equal_means) ** 2) < fair_risk - 0.1
