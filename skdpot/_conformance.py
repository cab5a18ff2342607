"""Checks of scikit-learn that estimators fail, with the reason of each failure.

An estimator lists those that apply to it in ``_failing_checks``, and missing declarations that make
every fit fail in ``_undeclared``. ``expected_failed_checks`` shows both to users; the page
:doc:`conformance` explains them.
"""

from collections.abc import Mapping

import sklearn

Failures = Mapping[str, str]

_ORDERS = ("check_methods_sample_order_invariance", "check_methods_subset_invariance")
FRESH_NOISE: Failures = dict.fromkeys(
    _ORDERS,
    "the noise depends on a user's position in the batch; noise that depended on the row's values "
    "would reveal them",
)
EMPTY_ROW: Failures = {
    "check_estimators_dtypes": "cast to integers, the check's data has a row of zeros; it is "
    "refused, because a row of zeros has no distribution and no direction"
}
PRIVATE_COUNT: Failures = {
    "check_transformer_n_iter": "max_iter caps the iterations of transform for one user; their "
    "number is private, and fit does not iterate"
}
NO_REFUSED_VALUES: Failures = {
    "check_dtype_object": "the check puts an object that is no number into X, and expects an "
    "error; with epsilon no value of a record raises one, since that would reveal it"
}
MORE_THAN_TWO_GROUPS: Failures = dict.fromkeys(
    (
        "check_dict_unchanged",
        "check_dtype_object",
        "check_f_contiguous_array_estimator",
        "check_fit_score_takes_y",
        *_ORDERS,
    ),
    "its labels name more than two groups, and a map exists only between two",
)
DRAWN_IMAGES: Failures = dict.fromkeys(
    _ORDERS, "equal rows get different random images, which depend on the order of the rows"
)
PRIVATE_LABELS: Failures = {
    "check_estimators_nan_inf": "with epsilon no value raises an error, which would reveal it; "
    "rows with NaN are ignored"
}
MISSING_LABELS: Failures = {
    "check_estimators_nan_inf": "the check's NaN is a missing label, which these groups accept"
}
INTEGERS_OF_THE_CHECK: Failures = (
    {
        "check_positive_only_tag_during_fit": "in scikit-learn 1.7 the check itself fails: it "
        "cannot center its integers"
    }
    if sklearn.__version__.startswith("1.7.")
    else {}
)
FITTED_TARGETS: Failures = dict.fromkeys(
    ("check_fit_idempotent", *_ORDERS),
    "rows are the nodes of one network, and the fitted plan belongs to these nodes",
)
NO_FIT_TRANSFORM: Failures = dict.fromkeys(
    (
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
    ),
    "like scikit-learn's searches, it has no fit_transform",
)
# The attribute is required; and data of which all rows differ has as many groups as rows.
NO_GROUPS = (
    "the sensitive attribute is not named, or the checks' data has as many groups as rows; give "
    "sensitive_features=0 (a preprocessor: [0]) and "
    "groups=FoundGroups(small='merge', unknown='nearest')"
)
# Checks that fit, and so fail where any fit is refused.
ANY_FIT = (
    *FITTED_TARGETS,
    *MORE_THAN_TWO_GROUPS,
    *NO_FIT_TRANSFORM,
    *EMPTY_ROW,
    *PRIVATE_COUNT,
    *PRIVATE_LABELS,
    "check_complex_data",
    "check_dont_overwrite_parameters",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_empty_data_messages",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_regressor_data_not_an_array",
    "check_regressors_int",
    "check_regressors_no_decision_function",
    "check_regressors_train",
    "check_supervised_y_2d",
)
