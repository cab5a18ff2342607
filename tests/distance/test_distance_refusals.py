"""Refusals of releases of distances, about which no private value decides."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpot import PrivacyLedger, PrivateSinkhornDistance, private_ot_cost
from tests.distance.grouped_records import (
    DELTA,
    ODD_LABELS,
    PRIVATE,
    SCHEMA,
    asymmetric,
    failing,
    make_groups,
    make_tables,
)
from tests.oracles.refusals import SECRET, refuse_without_telling

# What fails must not depend on what is private
# ---------------------------------------------


SEARCHED = {
    "exact": {},
    "on a line": {"metric": "euclidean"},
    "entropic": {"reg": 0.05},
    "entropic, many features": {"reg": 0.5, "metric": "cityblock"},
    "debiased": {"reg": 0.5, "divergence": "sinkhorn", "delta": DELTA},
    "callable": {"metric": failing, "cost_range": (0, 1)},
    "histogram": {"mechanism": "histogram"},
    "histogram, entropic": {"mechanism": "histogram", "reg": 0.1, "delta": DELTA},
}
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, 1.0, 0.5, 5e-324, 1e-160, 1e-310, -0.0, 1.7e308, -1.7e308]
)


def outcome(estimator, X, y):
    """Return how a fit ends, and of what they warn, for callers who want to know all."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        try:
            estimator.fit(X, y)
            end = "released"
        except Exception as error:
            end = repr(error)
    return end, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    "name, labels", [(name, labels) for name in SEARCHED for labels in ("public", "private")]
)
def test_no_record_makes_a_release_fail_or_warn(name, labels):
    n_features = 1 if name == "on a line" else 9 if "many" in name else 2
    X, y = make_groups(5, 4, n_features=n_features)
    options = {"bounds": (0, 1)} | (PRIVATE if labels == "private" else {}) | SEARCHED[name]
    estimator = PrivateSinkhornDistance(**options)
    strange = st.sampled_from(ODD_LABELS + ["a", "b"]) if labels == "private" else st.nothing()

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(
        st.integers(0, len(y) - 1),
        st.lists(NUMBERS, min_size=n_features, max_size=n_features),
        st.none() | strange.map(lambda label: [label]),
    )
    def search(i, record, label):
        other, other_y = X.copy(), y.tolist()
        other[i] = record
        if label is not None:
            other_y[i] = label[0]
        assert outcome(estimator, other, other_y) == ("released", [])

    search()


@pytest.mark.parametrize("name", ["exact", "debiased"])
@pytest.mark.parametrize("labels", ["public", "private"])
def test_no_row_of_a_table_makes_a_release_fail_or_warn(name, labels):
    X, y = make_tables(5, 4)
    options = {"schema": SCHEMA} | (PRIVATE if labels == "private" else {}) | SEARCHED[name]
    estimator = PrivateSinkhornDistance(**options)
    numbers = NUMBERS | st.just(math.nan)
    strange = st.sampled_from([*ODD_LABELS, "low", "home", ""])

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(st.integers(0, len(y) - 1), NUMBERS, numbers, strange, strange, strange)
    def search(i, age, wage, grade, work, label):
        other, other_y = X.to_numpy(dtype=object), y.tolist()
        for j, value in enumerate((age, wage, grade, work)):
            other[i, j] = value
        if labels == "private":
            other_y[i] = label
        assert outcome(estimator, other, other_y) == ("released", [])

    search()


def test_no_sum_of_features_warns():
    """One record's values, whose sums are both infinities, are finite all the same."""
    X, y = make_groups(5, 4, n_features=16)
    X[3] = np.tile([1.7e308, -1.7e308], 8)
    estimator = PrivateSinkhornDistance(bounds=(0, 1))
    assert outcome(estimator, X, y) == ("released", [])


# Bad input
# ---------

TEXT = "'{}' parameter of PrivateSinkhornDistance"


def nowhere(x, y):
    raise ArithmeticError("no distance")


BAD_PARAMETERS = [
    ({"bounds": None}, r"bounds must be declared.*\(low, high\), each a number or one number per"),
    ({"bounds": (1, 0)}, r"bounds must be a pair .* with low < high .* got \(1, 0\)"),
    ({"bounds": (0, np.nan)}, "bounds must be a pair"),
    ({"bounds": (0, np.inf)}, "bounds must be a pair"),
    ({"bounds": ([0, 1], [1, 1])}, "bounds must be a pair"),
    ({"bounds": ([0, 0, 0], 1)}, "one number for each of the 2 features"),
    ({"bounds": ("a", "b")}, "bounds must be a pair"),
    ({"bounds": (-1.7e308, 1.7e308)}, "bounds must be a pair"),
    ({"bounds": (0, 1e200)}, "magnitudes up to 1e150"),
    ({"epsilon": 0}, TEXT.format("epsilon")),
    ({"epsilon": 1e-300}, "scale of the noise|noise of scale"),
    ({"epsilon": 1e-14, "mechanism": "histogram"}, "would span more than"),
    ({"delta": 1.0}, TEXT.format("delta")),
    ({"groups": ["a"]}, "needs two or more groups, got 1"),
    ({"groups": ["a", "a"]}, "groups must be a list of different labels"),
    ({"groups": np.array([["a"], ["b"]])}, "groups must be a list of different labels"),
    ({"groups": [np.nan, "a"]}, "groups must be a list of different labels"),
    ({"groups": ["a", "c"]}, r"y holds 'b', .* the declared groups \['a', 'c'\].*Declare it, or"),
    ({"groups": ["a", "b", "c"]}, "no record of group 'c' in y.* all of them: StratifiedKFold"),
    ({"groups": "ab"}, TEXT.format("groups")),
    ({"min_group_size": 2.5}, TEXT.format("min_group_size")),
    ({"min_group_size": [4, 0]}, "min_group_size must be a positive integer, or one for each"),
    ({"min_group_size": [4, 4, 4]}, "one for each of the 2 groups"),
    ({"min_group_size": 9}, "group 'b' has 6 records, fewer than min_group_size=9"),
    (PRIVATE | {"groups": None}, "needs groups: .* not be learned from y.* Declare groups=, and"),
    (PRIVATE | {"min_group_size": None}, "labels='private' needs min_group_size"),
    (PRIVATE | {"groups": ["a"]}, "needs two or more groups, got 1"),
    (PRIVATE | {"min_group_size": [4, 4, 4]}, "one for each of the 2 groups"),
    (PRIVATE | {"min_group_size": 9}, "min_group_size adds up to 18 .* there are 16 in all"),
    (PRIVATE | {"min_group_size": 2**62}, "min_group_size adds up to .* there are 16 in all"),
    ({"metric": "crow"}, "metric='crow' is not known"),
    ({"metric": "jaccard"}, "a function of two points, with its cost_range"),
    ({"metric": asymmetric}, "a callable metric needs cost_range"),
    ({"metric": nowhere, "cost_range": (0, 1)}, "returned no number for the two corners"),
    ({"cost_range": (1, 0)}, "cost_range must be two finite numbers"),
    ({"cost_range": ("0", "1")}, "cost_range must be two finite numbers"),
    ({"cost_range": (0.0, np.inf)}, "cost_range must be two finite numbers"),
    ({"cost_range": (-1e308, 1e308)}, "cost_range must be two finite numbers"),
    ({"cost_range": (0.0, 1.0, 2.0)}, "two finite numbers|'cost_range' parameter"),
    ({"cost_range": (2, 3)}, "leaves one cost only"),
    ({"reg": -0.1}, TEXT.format("reg")),
    ({"reg": 1e-15}, "double precision certifies no less than .* Raise reg, or use fewer"),
    ({"reg": 1e-15, "mechanism": "histogram"}, "double precision certifies no less"),
    ({"divergence": "sinkhorn"}, "needs reg > 0"),
    ({"divergence": "sinkhorn", "mechanism": "histogram"}, "needs reg > 0"),
    ({"order": 0.5}, TEXT.format("order")),
    ({"n_jobs": 0}, "n_jobs == 0"),
    ({"verbose": -1}, TEXT.format("verbose")),
]


@pytest.mark.parametrize("params, message", BAD_PARAMETERS)
@pytest.mark.filterwarnings("ignore:accounting='paper':skdpot.privacy.NoGuaranteeWarning")
def test_bad_parameters_are_refused_before_the_charge(params, message):
    _, y = make_groups(10, 6)
    ledger = PrivacyLedger(10.0, 0.5)
    estimator = PrivateSinkhornDistance(bounds=(0, 4), ledger=ledger)
    estimator.set_params(**{"bounds": (0, 1)} | params)
    refuse_without_telling(lambda: estimator.fit(np.full((16, 2), SECRET), y), message)
    assert not ledger.entries()
    assert not hasattr(estimator, "groups_")


ROWS = np.full((4, 2), SECRET)
BAD_X = {
    "flat": (ROWS[:, 0], r"one row per record or user.*array.reshape\(-1, 1\) if it is a single"),
    "complex": (ROWS + 1j, "Complex data not supported"),
    "text": (np.array([[f"{SECRET} euros", "1"]] * 4), "X holds text .* Convert it to numbers"),
    "ragged": ([[SECRET, 1.0], [SECRET]] * 2, "inhomogeneous"),
    "sparse": (sparse.csr_array(ROWS), r"Sparse data was passed.*Use '.toarray\(\)'"),
    "empty": (np.empty((0, 2)), r"0 sample\(s\)"),
    "one record": (ROWS[:1], "1 sample"),
    "too few labels": (np.full((5, 2), SECRET), "inconsistent numbers of samples"),
}


@pytest.mark.parametrize("labels", [{}, PRIVATE | {"min_group_size": 1}], ids=["public", "private"])
@pytest.mark.parametrize("kind", BAD_X)
def test_bad_records_are_refused_before_the_charge(kind, labels):
    X, message = BAD_X[kind]
    ledger = PrivacyLedger(10.0)
    estimator = PrivateSinkhornDistance(bounds=(0, 4), ledger=ledger, **labels)
    y = [*"abab"][: 1 if kind == "one record" else 0 if kind == "empty" else 4]
    refuse_without_telling(lambda: estimator.fit(X, y), message)
    assert not ledger.entries()
    if kind not in ("too few labels", "one record"):
        options = {"bounds": (0, 4), "ledger": ledger}
        refuse_without_telling(lambda: private_ot_cost(X, ROWS, **options), message)
        refuse_without_telling(lambda: private_ot_cost(ROWS, X, **options), message)
        assert not ledger.entries()


BAD_Y = {
    "none": (None, "the target y is None.*For a distance it is the group of every"),
    "one group": (["a"] * 4, "needs two or more groups, got 1"),
    "NaN": ([0.0, 1.0, np.nan, 1.0], "y contains NaN.*a record without a group .*Remove it"),
    "missing": (pd.Series([0, 1, None, 1], dtype="Int64"), "y contains NaN"),
    "None": (["a", "b", None, "b"], "y contains NaN or None"),
    "objects": (np.array(["a", 1, 2, "b"], dtype=object), "cannot be sorted together"),
    "table": (np.full((4, 2), SECRET), r"samples by private_ot_cost"),
    "too long": ([f"{SECRET} euros"] * 5, "inconsistent numbers of samples"),
}


@pytest.mark.parametrize(
    "labels, kind",
    [("public", kind) for kind in BAD_Y]
    + [("private", kind) for kind in ("none", "table", "too long")],
)
def test_bad_labels_are_refused_before_the_charge(labels, kind):
    y, message = BAD_Y[kind]
    ledger = PrivacyLedger(10.0)
    options = PRIVATE if labels == "private" else {}
    estimator = PrivateSinkhornDistance(bounds=(0, 4), ledger=ledger, **options)
    refuse_without_telling(lambda: estimator.fit(ROWS, y), message)
    assert not ledger.entries()


def test_memory_is_that_of_the_largest_sizes_that_private_labels_may_have():
    estimator = PrivateSinkhornDistance(bounds=(0, 1), **PRIVATE)
    with pytest.raises(ValueError, match="between 1,000,004 and 1,000,004 records would take"):
        estimator.preview(2 * 10**6, 2, group_sizes=[10**6] * 2)


@pytest.mark.parametrize("names", ["ab", (0, 1)])
def test_bounds_by_column_are_no_pair(names):
    X, y = np.ones((50, 2)), [0, 1] * 25
    distance = PrivateSinkhornDistance(bounds=dict.fromkeys(names, (0, 2)))
    with pytest.raises(ValueError, match=r"Bounds by column are declared by schema="):
        distance.fit(X, y)
