"""PrivateSearchCV against scikit-learn's own checks: around what predicts, and what transforms."""

import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    parametrize_with_checks,
)

from skdpot import PrivateSearchCV
from tests.conformance import expected_failed_checks

SMALL = {"n_iter": 2, "cv": 2, "n_blocks": 2}
ESTIMATORS = [
    PrivateSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, **SMALL),
    PrivateSearchCV(PCA(n_components=1), {"whiten": [True, False]}, **SMALL),
]
# Another one that predicts.
REGRESSION = PrivateSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, **SMALL)


# A check that is listed as failing, and that passes all the same, is an error.
@parametrize_with_checks(ESTIMATORS[:1], expected_failed_checks=expected_failed_checks)
def test_generated_checks(estimator, check):
    check(estimator)


@pytest.mark.experiment
@parametrize_with_checks([ESTIMATORS[1], REGRESSION], expected_failed_checks=expected_failed_checks)
def test_generated_checks_of_others(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, REGRESSION])
@pytest.mark.parametrize(
    "check", [check_dataframe_column_names_consistency, check_param_validation]
)
def test_further_checks(estimator, check):
    check(type(estimator).__name__, estimator)
