"""Checks of scikit-learn that estimators fail, with the reason of each: see doc/conformance.rst."""

import sklearn

import skdpot
from skdpot import published
from skdpot.distance import BaseTransportDistance

ORDERS = ("check_methods_sample_order_invariance", "check_methods_subset_invariance")
FRESH_NOISE = dict.fromkeys(
    ORDERS,
    "the noise depends on a user's position in the batch; noise that depended on the row's values "
    "would reveal them",
)
EMPTY_ROW = {
    "check_estimators_dtypes": "cast to integers, the check's data has a row of zeros; it is "
    "refused, because a row of zeros has no distribution and no direction"
}
NO_REFUSED_VALUES = {
    "check_dtype_object": "the check puts an object that is no number into X, and expects an "
    "error; with epsilon no value of a record raises one, since that would reveal it"
}
DRAWN_IMAGES = dict.fromkeys(
    ORDERS, "equal rows get different random images, which depend on the order of the rows"
)
PRIVATE_LABELS = {
    "check_estimators_nan_inf": "with epsilon no value raises an error, which would reveal it; "
    "rows with NaN are ignored"
}
MISSING_LABELS = {
    "check_estimators_nan_inf": "the check's NaN is a missing label, which these groups accept"
}
INTEGERS_OF_THE_CHECK = (
    {
        "check_positive_only_tag_during_fit": "in scikit-learn 1.7 the check itself fails: it "
        "cannot center its integers"
    }
    if sklearn.__version__.startswith("1.7.")
    else {}
)
FITTED_TARGETS = dict.fromkeys(
    ("check_fit_idempotent", *ORDERS),
    "rows are the nodes of one network, and the fitted plan belongs to these nodes",
)
NO_FIT_TRANSFORM = dict.fromkeys(
    (
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
    ),
    "like scikit-learn's searches, it has no fit_transform",
)
SAMPLERS = (
    skdpot.WassersteinProjectionSampler,
    skdpot.KLProjectionSampler,
    skdpot.ExponentialMechanismSampler,
    skdpot.SphericalProjectionSampler,
)
GENERATORS = (skdpot.DPSinkhornGenerator, published.SinkhornGradientGenerator)
ALLOCATIONS = (skdpot.PrivateADMMTransport, published.PrivateMessageADMM)


def expected_failed_checks(estimator):
    """Return the reasons of the checks that an estimator with all declarations fails, by name."""
    if isinstance(estimator, SAMPLERS):
        return FRESH_NOISE | EMPTY_ROW
    if isinstance(estimator, BaseTransportDistance):
        return NO_REFUSED_VALUES
    if isinstance(estimator, GENERATORS + ALLOCATIONS):
        of_nodes = FITTED_TARGETS if isinstance(estimator, ALLOCATIONS) else {}
        return {**of_nodes, **({} if estimator.epsilon is None else NO_REFUSED_VALUES)}
    if isinstance(estimator, skdpot.FairBarycenterPreprocessor):
        takes_missing = getattr(estimator.groups, "unknown", "error") != "error"
        of_missing = MISSING_LABELS if takes_missing else {}
        of_labels = of_missing if estimator.epsilon is None else PRIVATE_LABELS
        # In the few rows of the checks, a private map moves all groups alike, so nothing is drawn.
        of_images = DRAWN_IMAGES if estimator.epsilon is None else {}
        return {**of_images, **INTEGERS_OF_THE_CHECK, **of_labels}
    if isinstance(estimator, skdpot.PrivateSearchCV):
        # PCA is fitted to sparse matrices, but scores none: a search of them is refused.
        sparse = {"check_estimator_sparse_tag": "PCA has no scores of sparse matrices"}
        return NO_FIT_TRANSFORM | sparse if hasattr(estimator.estimator, "transform") else {}
    return {}
