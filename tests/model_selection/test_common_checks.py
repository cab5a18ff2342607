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

SMALL = {"n_iter": 2, "cv": 2, "n_blocks": 2}
# Which checks a search fails, and why it should. A check that passes all the same is an error.
NO_FIT_TRANSFORM = dict.fromkeys(
    (
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
    ),
    "a search has no fit_transform, as scikit-learn's own have none",
)
EXPECTED_FAILURES = {
    PrivateSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, **SMALL): {},
    PrivateSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, **SMALL): {},
    PrivateSearchCV(PCA(n_components=1), {"whiten": [True, False]}, **SMALL): NO_FIT_TRANSFORM,
}


@parametrize_with_checks(list(EXPECTED_FAILURES), expected_failed_checks=EXPECTED_FAILURES.get)
def test_generated_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", EXPECTED_FAILURES)
@pytest.mark.parametrize(
    "check", [check_dataframe_column_names_consistency, check_param_validation]
)
def test_further_checks(estimator, check):
    check(type(estimator).__name__, estimator)
