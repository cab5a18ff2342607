"""The private distance between groups of rows of a table: text, numbers, levels, missing values."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from skdpot import PrivacyLedger, PrivateSinkhornDistance, private_ot_cost
from skdpot.privacy.accounting import calibrate_noise_multiplier
from tests.distance.grouped_records import DELTA, PRIVATE, SCHEMA, emd, exact, gower, make_tables
from tests.oracles.entropic_transport import entropic_transport

TABLES = {"bounds": None, "schema": SCHEMA}
# The exponent of distances within columns, and the power of their mean.
METRICS = {"sqeuclidean": (2, 1.0), "euclidean": (2, 0.5), "cityblock": (1, 1.0)}


def costs_of(metric, X, y):
    exponent, power = METRICS[metric]
    return {"metric": metric}, gower(X[y == "a"], X[y == "b"], exponent=exponent) ** power


@pytest.mark.parametrize("metric", METRICS)
def test_the_cost_is_a_mean_over_columns(metric):
    X, y = make_tables(12, 9)
    options, costs = costs_of(metric, X, y)
    assert exact(X, y, **TABLES, **options).distance_ == pytest.approx(emd(costs), abs=1e-9)
    found = exact(X, y, **TABLES, **options, reg=0.3).distance_
    assert found == pytest.approx(entropic_transport(costs, 0.3)[0], abs=1e-7)


def test_the_debiased_divergence():
    X, y = make_tables(7, 5)
    groups = [X[y == name] for name in "ab"]

    def cost(g, h):
        return entropic_transport(gower(groups[g], groups[h], exponent=2), 0.3)[0]

    fitted = exact(X, y, **TABLES, reg=0.3, divergence="sinkhorn")
    divergence = cost(0, 1) - (cost(0, 0) + cost(1, 1)) / 2
    assert fitted.distance_ == pytest.approx(divergence, abs=1e-7)


def test_costs_within_a_range_of_ones_own():
    X, y = make_tables(12, 9)
    costs = np.clip(gower(X[y == "a"], X[y == "b"]), 0.3, 0.6)
    fitted = exact(X, y, **TABLES, metric="cityblock", cost_range=(0.3, 0.6))
    assert fitted.distance_ == pytest.approx(emd(costs), abs=1e-9)


@pytest.mark.parametrize(
    "declared, values",
    [
        ((0.0, 4.0), [0.0, 1.0, 3.0, 4.0]),
        (range(5), [0, 1, 3, 4]),
        ({"levels": ["a", "b", "c", "d", "e"]}, ["a", "b", "d", "e"]),
    ],
    ids=["numbers", "integers", "levels"],
)
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_one_column_in_an_order_is_a_line(declared, values, metric):
    """It takes no memory for pairs of records, as the first column of an array."""
    schema, y = {"x": declared}, ["a", "a", "b", "b"]
    numbers = np.array([[0.0], [0.25], [0.75], [1.0]])
    options = {"metric": metric}
    found = exact(pd.DataFrame({"x": values}), y, bounds=None, schema=schema, **options).distance_
    assert found == pytest.approx(exact(numbers, y, **options).distance_, abs=1e-12)


def containers(X):
    """Return the same table in whatever may hold it."""
    nullable = X.assign(
        age=X["age"].astype("Int64"),
        grade=pd.Categorical(X["grade"], ["high", "mid", "low"]),
        work=X["work"].astype("string"),
    )
    plain = X.astype(object).where(X.notna(), None)
    return {
        "array": X.to_numpy(dtype=object),
        "None": plain,
        "nullable": nullable,
        "NA": nullable.astype(object).where(X.notna(), pd.NA),
        "other order": X[X.columns[::-1]],
        "polars": pl.DataFrame({name: plain[name].tolist() for name in X}),
    }


@pytest.mark.parametrize("kind", containers(make_tables(3, 3)[0]))
def test_it_does_not_matter_what_holds_a_table(kind):
    X, y = make_tables(12, 9)
    other = containers(X)[kind]
    expected, found = exact(X, y, **TABLES), exact(other, y, **TABLES)
    assert found.distance_ == expected.distance_ and found.n_features_in_ == 4
    samples = [other.filter(pl.Series(y == name)) if kind == "polars" else other[y == name]
               for name in "ab"]  # fmt: skip
    options = {"schema": SCHEMA, "random_state": 0}
    # The first group is the first sample, whatever holds the second.
    assert private_ot_cost(samples[0], X[y == "b"], 1e10, **options) == expected.distance_
    assert private_ot_cost(X[y == "a"], samples[1], 1e10, **options) == expected.distance_


# Noise
# -----


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("labels", [{}, PRIVATE])
def test_errors_are_those_of_costs_up_to_1(delta, labels):
    X, y = make_tables(10, 6)
    estimator = PrivateSinkhornDistance(0.5, delta, **TABLES, **labels)
    fitted = clone(estimator).fit(X, y)
    spread = math.sqrt(2) / 0.5 if delta == 0 else calibrate_noise_multiplier(0.5, delta)
    sensitivity = 1 / 4 + 1 / 4 if labels else 1 / 6
    assert 1 < fitted.standard_error_ / (sensitivity * spread) < 1.0011


def test_small_groups_are_filled_up_with_a_public_row():
    X, y = make_tables(3, 9)
    fitted = exact(X, y, **TABLES, **PRIVATE)
    public = pd.DataFrame({"age": [40], "wage": [5.0], "grade": ["mid"], "work": ["office"]})
    costs = gower(pd.concat([X[y == "a"], public]), X[y == "b"], exponent=2)
    assert fitted.distance_ == pytest.approx(emd(costs), abs=1e-9)


# In use
# ------


# Refusals
# --------

SECRET = 3.14159
REFUSED = {
    "bounds": ({"bounds": (0, 1)}, "bounds and schema are both given. .* Leave bounds out"),
    "histogram": ({"mechanism": "histogram"}, "a table with a schema has no grid"),
    "metric": ({"metric": "cosine"}, "with schema, metric is one of .* got 'cosine'"),
    "function": ({"metric": min, "cost_range": (0, 1)}, "with schema, metric is one of"),
    "range": ({"cost_range": (2, 3)}, "leaves one cost only"),
    "schema": ({"schema": {"age": (1, 0)}}, "low must be below high"),
    "no schema": ({"schema": {}}, "schema must be a dict that declares"),
    "columns": ({"schema": {"age": range(20, 61)}}, "columns that the schema does not declare"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_wrong_is_refused_before_the_charge_and_nothing_quoted(kind):
    params, message = REFUSED[kind]
    X, y = make_tables(10, 6)
    X.loc[3, "work"] = f"{SECRET} euros"
    ledger = PrivacyLedger(10.0)
    estimator = PrivateSinkhornDistance(**TABLES | params, ledger=ledger)
    with pytest.raises(ValueError, match=message) as caught:
        estimator.fit(X, y)
    assert str(SECRET)[:4] not in str(caught.value)
    assert not ledger.entries() and not hasattr(estimator, "groups_")


@pytest.mark.parametrize("text", [lambda labels: pd.Series(labels, dtype="string"), pl.Series])
def test_whoever_gives_a_table_without_schema_is_told_of_it(text):
    estimator = PrivateSinkhornDistance(bounds=(0, 1))
    column = text(["a", "b", "a", "b"])
    X = (pd if isinstance(column, pd.Series) else pl).DataFrame({"x": column})
    message = "X holds text .* declare .* by schema="
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, [0, 0, 1, 1])
    with pytest.raises(ValueError, match=message):
        private_ot_cost(X, X, bounds=(0, 1))


def test_a_preview_needs_the_schema_alone():
    public = {"group_sizes": {"a": 10, "b": 6}}
    X, y = make_tables(10, 6)
    estimator = PrivateSinkhornDistance(4.0, **TABLES, groups=["a", "b"])
    (error,) = estimator.preview(16, **public).errors
    assert error.error == pytest.approx(estimator.fit(X, y).standard_error_)
