"""Every estimator against scikit-learn's own checks."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import estimator_checks as checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpot import (
    DPSinkhornGenerator,
    ExponentialMechanismSampler,
    FairBarycenterClassifier,
    FairBarycenterPreprocessor,
    FairBarycenterRegressor,
    KLProjectionSampler,
    PrivateADMMTransport,
    PrivateSinkhornDistance,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.fairness import DeclaredGroups, FoundGroups, FreeSupport
from skdpot.generative import NetworkTraining
from skdpot.published import NoisySinkhornDistance, PrivateMessageADMM, SinkhornGradientGenerator
from tests.conformance import expected_failed_checks

# All labels that the checks give, and noise whose scale needs no search.
TINY_GENERATOR = {
    "network": NetworkTraining(n_iter=2, batch_size=4, sampling_rate=1.0),
    "bounds": (-100, 100),
}
# Their data have as many groups as rows, in any column.
ANY_GROUPS = {"groups": FoundGroups(small="merge", unknown="nearest")}
BOX = (-100, 100)
ALLOCATION = {"utility_bounds": (-1000, 1000), "source_bounds": (0, 5)}
# Each class once, with all that the data of the checks ask for. Which checks each fails all the
# same `conformance` says, and one of them that passes is an error.
ESTIMATORS = [
    WassersteinProjectionSampler(),
    KLProjectionSampler(),
    ExponentialMechanismSampler(),
    SphericalProjectionSampler(),
    PrivateSinkhornDistance(bounds=BOX),
    NoisySinkhornDistance(bounds=BOX),
    FairBarycenterRegressor(sensitive_features=0, **ANY_GROUPS),
    FairBarycenterClassifier(sensitive_features=0, **ANY_GROUPS),
    FairBarycenterPreprocessor([0], method=FreeSupport(n_support=20), random_state=0, **ANY_GROUPS),
    DPSinkhornGenerator(classes=[-1, 0, 1, 2, 3], bounds=BOX),
    SinkhornGradientGenerator(classes=[-1, 0, 1, 2, 3], **TINY_GENERATOR),
    PrivateADMMTransport(10.0, **ALLOCATION),
    PrivateMessageADMM(10.0, n_rounds=3, eta=1.0, **ALLOCATION),
]
PUBLISHED = [each for each in ESTIMATORS if ".published." in type(each).__module__]
OURS = [each for each in ESTIMATORS if each not in PUBLISHED]
# Other forms of some of them.
VARIANTS = [
    # Its default method takes longer.
    FairBarycenterPreprocessor([0], random_state=0, **ANY_GROUPS),
    PrivateSinkhornDistance(bounds=BOX, mechanism="histogram"),
    PrivateSinkhornDistance(
        bounds=BOX, mechanism="histogram",
        labels="private", groups=[0, 1], min_group_size=2,
    ),
    FairBarycenterPreprocessor(
        [0], epsilon=10.0, bounds=BOX, groups=DeclaredGroups([0, 1], unknown="nearest"),
        method=FreeSupport(n_support=20), random_state=0,
    ),
    SinkhornGradientGenerator(
        classes=[-1, 0, 1, 2, 3], gradient="per_image", **TINY_GENERATOR,
    ),
    PrivateADMMTransport(None),
]  # fmt: skip

# These are not among those that `parametrize_with_checks` generates.
FURTHER_CHECKS = [
    checks.check_dataframe_column_names_consistency,
    checks.check_global_output_transform_pandas,
    checks.check_global_set_output_transform_polars,
    checks.check_param_validation,
    checks.check_set_output_transform,
    checks.check_set_output_transform_pandas,
    checks.check_set_output_transform_polars,
    checks.check_transformer_get_feature_names_out,
    checks.check_transformer_get_feature_names_out_pandas,
]


@pytest.fixture(autouse=True)
def seeded_checks():
    """Seed what scikit-learn's checks draw from: which order of rows they look at, say."""
    np.random.seed(0)


@pytest.mark.filterwarnings("ignore:all rows are in one group:UserWarning")
@parametrize_with_checks(OURS, expected_failed_checks=expected_failed_checks)
def test_generated_checks(estimator, check):
    check(estimator)


@pytest.mark.experiment
@pytest.mark.filterwarnings("ignore:all rows are in one group:UserWarning")
@parametrize_with_checks([*PUBLISHED, *VARIANTS], expected_failed_checks=expected_failed_checks)
def test_generated_checks_of_other_forms(estimator, check):
    check(estimator)


def applies(check, estimator):
    """Tell whether a check is of what an estimator does."""
    return hasattr(estimator, "transform") or "transform" not in check.__name__


FURTHER_PAIRS = [
    pytest.param(
        estimator, check, id=f"{type(estimator).__name__}-{i}-{check.__name__}",
        marks=[pytest.mark.experiment] if estimator is VARIANTS[0] else [],
    )
    for i, estimator in enumerate([*ESTIMATORS, VARIANTS[0]])
    for check in FURTHER_CHECKS
    if applies(check, estimator)
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:all rows are in one group:UserWarning")
# The checks of set_output fit to arrays and transform data frames, and the other way round.
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names:UserWarning")
@pytest.mark.parametrize("estimator, check", FURTHER_PAIRS)
def test_further_checks(estimator, check):
    check(type(estimator).__name__, estimator)


PAGE = (Path(__file__).parents[1] / "doc" / "conformance.rst").read_text()
PAGE = " ".join(PAGE.replace("``", "").split())


@pytest.mark.parametrize("estimator", [*ESTIMATORS, *VARIANTS])
def test_the_page_has_all_reasons(estimator):
    listed = expected_failed_checks(estimator).values()
    assert not [reason for reason in listed if reason not in PAGE]
