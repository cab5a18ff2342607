"""Every estimator against scikit-learn's own checks."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_global_output_transform_pandas,
    check_global_set_output_transform_polars,
    check_param_validation,
    check_set_output_transform,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
    check_transformer_get_feature_names_out,
    check_transformer_get_feature_names_out_pandas,
    parametrize_with_checks,
)

from skdpot import (
    ExponentialMechanismSampler,
    KLProjectionSampler,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.sampling import _spherical

# Which checks an estimator fails, and why it should. A check that passes all the same is an error.
FRESH_NOISE = dict.fromkeys(
    ("check_methods_sample_order_invariance", "check_methods_subset_invariance"),
    "noise is drawn by a user's place in the batch; noise that went with the row's values would "
    "tell of them",
)
EMPTY_ROW = {
    "check_estimators_dtypes": "cast to integers, its data has a row of zeros, no distribution"
}
PRIVATE_COUNT = {
    "check_transformer_n_iter": "max_iter bounds what transform does with one user's distribution; "
    "how many iterations that took is private, and fit has no such iterations"
}
NO_UNIT_VECTORS = dict.fromkeys(
    (
        "check_dict_unchanged",
        "check_dtype_object",
        "check_estimators_dtypes",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit_idempotent",
        "check_fit_score_takes_y",
        "check_pipeline_consistency",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
    ),
    "its data are no unit vectors, which are refused on release",
)
EXPECTED_FAILURES = {
    WassersteinProjectionSampler: FRESH_NOISE | EMPTY_ROW | PRIVATE_COUNT,
    KLProjectionSampler: FRESH_NOISE | EMPTY_ROW,
    ExponentialMechanismSampler: FRESH_NOISE | EMPTY_ROW,
    SphericalProjectionSampler: FRESH_NOISE | NO_UNIT_VECTORS,
}
ESTIMATORS = [cls() for cls in EXPECTED_FAILURES]

# These are not among those that `parametrize_with_checks` generates.
FURTHER_CHECKS = [
    check_dataframe_column_names_consistency,
    check_global_output_transform_pandas,
    check_global_set_output_transform_polars,
    check_param_validation,
    check_set_output_transform,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
    check_transformer_get_feature_names_out,
    check_transformer_get_feature_names_out_pandas,
]


@pytest.fixture
def any_norm(monkeypatch):
    """Let vectors of any norm pass where unit vectors are asked for."""
    monkeypatch.setattr(_spherical, "_NORM_TOLERANCE", np.inf)


@parametrize_with_checks(
    ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator)]
)
def test_generated_checks(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [SphericalProjectionSampler()], expected_failed_checks=lambda estimator: FRESH_NOISE
)
def test_generated_checks_but_for_unit_norms(estimator, check, any_norm):
    check(estimator)


# The checks of set_output fit to arrays and transform data frames, and the other way round.
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names:UserWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize("check", FURTHER_CHECKS, ids=lambda check: check.__name__)
def test_further_checks(estimator, check, any_norm):
    check(type(estimator).__name__, estimator)
