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
    DPSinkhornGenerator,
    ExponentialMechanismSampler,
    FairBarycenterPreprocessor,
    FairBarycenterRegressor,
    KLProjectionSampler,
    PrivateADMMTransport,
    PrivateSinkhornDistance,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.fairness import DeclaredGroups, FoundGroups, FreeSupport
from skdpot.generative import NetworkTraining, VectorSketch
from skdpot.published import (
    NoisySinkhornDistance,
    PrivateMessageADMM,
    SinkhornGradientGenerator,
)
from skdpot.sampling import _spherical
from tests.oracles.versions import IS_SKLEARN_1_7

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
MORE_THAN_TWO_GROUPS = dict.fromkeys(
    (
        "check_dict_unchanged",
        "check_dtype_object",
        "check_f_contiguous_array_estimator",
        "check_fit_score_takes_y",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
    ),
    "its labels name more than two groups, between which there is no one map",
)
EQUAL_ROWS = "equal rows are drawn apart, so that which has which image depends on their order"
DRAWN_IMAGES = dict.fromkeys(
    ("check_methods_sample_order_invariance", "check_methods_subset_invariance"), EQUAL_ROWS
)
PRIVATE_LABELS = {
    "check_estimators_nan_inf": "its NaN is a label, which is private and none of the declared ones"
}
MISSING_LABELS = {"check_estimators_nan_inf": "its NaN is a missing label, which its groups take"}
CENTERED_INTEGERS = (
    {"check_positive_only_tag_during_fit": "in scikit-learn 1.7 it cannot center its own integers"}
    if IS_SKLEARN_1_7
    else {}
)
FITTED_TARGETS = dict.fromkeys(
    (
        "check_fit_idempotent",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
    ),
    "rows are the nodes of one network, and shares are those of the nodes that were fitted",
)
# All labels that the checks give, and noise whose scale needs no search.
TINY_GENERATOR = {
    "network": NetworkTraining(n_iter=2, batch_size=4, sampling_rate=1.0),
    "bounds": (-100, 100),
}
# Their data have as many groups as rows, in any column.
ANY_GROUPS = {"groups": FoundGroups(small="merge", unknown="nearest")}
BOX = (-100, 100)
ALLOCATION = {"utility_bounds": (-1000, 1000), "source_bounds": (0, 5)}
EXPECTED_FAILURES = {
    WassersteinProjectionSampler(): FRESH_NOISE | EMPTY_ROW | PRIVATE_COUNT,
    KLProjectionSampler(): FRESH_NOISE | EMPTY_ROW,
    ExponentialMechanismSampler(): FRESH_NOISE | EMPTY_ROW,
    SphericalProjectionSampler(): FRESH_NOISE | NO_UNIT_VECTORS,
    PrivateSinkhornDistance(bounds=BOX): {},
    PrivateSinkhornDistance(bounds=BOX, mechanism="histogram", grid=2): MORE_THAN_TWO_GROUPS,
    # Of all that the labels may be, it takes two for groups, and so maps between these.
    PrivateSinkhornDistance(
        bounds=BOX, mechanism="histogram", grid=2,
        labels="private", groups=[0, 1], min_group_size=2,
    ): {},
    NoisySinkhornDistance(bounds=BOX): {},
    FairBarycenterRegressor(sensitive_features=0, **ANY_GROUPS): {},
    FairBarycenterPreprocessor([0], random_state=0, **ANY_GROUPS): (
        DRAWN_IMAGES | CENTERED_INTEGERS | MISSING_LABELS
    ),
    FairBarycenterPreprocessor(
        [0], epsilon=10.0, bounds=BOX, groups=DeclaredGroups([0, 1], unknown="nearest"),
        method=FreeSupport(n_support=20), random_state=0,
    ): DRAWN_IMAGES | PRIVATE_LABELS | CENTERED_INTEGERS,
    DPSinkhornGenerator(classes=[-1, 0, 1, 2, 3], bounds=(-100, 100)): {},
    SinkhornGradientGenerator(classes=[-1, 0, 1, 2, 3], **TINY_GENERATOR): {},
    SinkhornGradientGenerator(
        classes=[-1, 0, 1, 2, 3], gradient="per_image", **TINY_GENERATOR,
    ): {},
    PrivateADMMTransport(None): FITTED_TARGETS,
    PrivateADMMTransport(10.0, **ALLOCATION): FITTED_TARGETS,
    PrivateMessageADMM(10.0, n_rounds=3, eta=1.0, **ALLOCATION): FITTED_TARGETS,
}  # fmt: skip

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


@pytest.fixture(autouse=True)
def seeded_checks():
    """Seed what scikit-learn's checks draw from: which order of rows they look at, say."""
    np.random.seed(0)


@pytest.fixture
def any_norm(monkeypatch):
    """Let vectors of any norm pass where unit vectors are asked for."""
    monkeypatch.setattr(_spherical, "_NORM_TOLERANCE", np.inf)


@pytest.mark.filterwarnings("ignore:all rows are in one group:UserWarning")
@parametrize_with_checks(list(EXPECTED_FAILURES), expected_failed_checks=EXPECTED_FAILURES.get)
def test_generated_checks(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [SphericalProjectionSampler()], expected_failed_checks=lambda estimator: FRESH_NOISE
)
def test_generated_checks_but_for_unit_norms(estimator, check, any_norm):
    check(estimator)


class UnlabelledGenerator(DPSinkhornGenerator):
    """Takes no account of labels, which nearly all checks give, and which are refused otherwise."""

    def fit(self, X, y=None):
        return super().fit(X)

    def score(self, X, y=None):
        return super().score(X)


@parametrize_with_checks(
    [
        UnlabelledGenerator(bounds=(-100, 100)),
        UnlabelledGenerator(bounds=(-100, 100), model=VectorSketch("identity")),
    ]
)
def test_generated_checks_but_for_undeclared_labels(estimator, check):
    check(estimator)


def applies(check, estimator):
    """Tell whether a check is of what an estimator does."""
    return hasattr(estimator, "transform") or "transform" not in check.__name__


FURTHER_PAIRS = [
    pytest.param(estimator, check, id=f"{type(estimator).__name__}-{i}-{check.__name__}")
    for i, estimator in enumerate(EXPECTED_FAILURES)
    for check in FURTHER_CHECKS
    if applies(check, estimator)
]


@pytest.mark.filterwarnings("ignore:all rows are in one group:UserWarning")
# The checks of set_output fit to arrays and transform data frames, and the other way round.
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names:UserWarning")
@pytest.mark.parametrize("estimator, check", FURTHER_PAIRS)
def test_further_checks(estimator, check, any_norm):
    check(type(estimator).__name__, estimator)
