"""The private distance between groups of rows of a table: text, numbers, levels, missing values."""

import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import laplace, norm
from sklearn.base import clone
from sklearn.preprocessing import OneHotEncoder

from skdpot import PrivacyLedger, PrivateSinkhornDistance, private_ot_cost
from skdpot.distance._costs import TableSpace
from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.tables import read_columns, read_schema
from tests.distance.grouped_records import (
    DELTA,
    PRIVATE,
    SCHEMA,
    assert_scale,
    emd,
    exact,
    gower,
    make_tables,
    noise_of,
)
from tests.oracles.entropic_transport import entropic_transport

TABLES = {"bounds": None, "schema": SCHEMA}
METRICS = {
    "sqeuclidean": (("sqeuclidean", {}), {"exponent": 2}, 1.0),
    "euclidean": (("euclidean", {}), {"exponent": 2}, 0.5),
    "cityblock": (("cityblock", {}), {}, 1.0),
    "weights": (("cityblock", {"w": [1, 0, 2, 5]}), {"weights": [1, 0, 2, 5]}, 1.0),
}


def costs_of(metric, X, y):
    (name, params), options, power = METRICS[metric]
    return {"metric": name, "metric_params": params}, gower(
        X[y == "a"], X[y == "b"], **options
    ) ** power


@pytest.mark.parametrize("metric", METRICS)
def test_the_cost_is_a_mean_over_columns(metric):
    X, y = make_tables(12, 9)
    options, costs = costs_of(metric, X, y)
    assert exact(X, y, **TABLES, **options).distance_ == pytest.approx(emd(costs), abs=1e-9)
    found = exact(X, y, **TABLES, **options, reg=0.3).distance_
    assert found == pytest.approx(entropic_transport(costs, 0.3)[0], abs=1e-7)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock"])
def test_costs_of_many_rows_are_those_of_single_rows(metric):
    X, y = make_tables(400, 200)
    schema = read_schema(SCHEMA)
    rows = TableSpace(schema).points(read_columns(X, schema))
    A, B, cost = rows[y == "a"], rows[y == "b"], TableSpace(schema).cost(metric)
    assert np.array_equal(cost(A, B), np.vstack([cost(row, B) for row in A[:, None]]))


def test_the_debiased_divergence_and_the_score():
    X, y = make_tables(7, 5)
    groups = [X[y == name] for name in "ab"]

    def cost(g, h):
        return entropic_transport(gower(groups[g], groups[h], exponent=2), 0.3)[0]

    fitted = exact(X, y, **TABLES, reg=0.3, divergence="sinkhorn")
    divergence = cost(0, 1) - (cost(0, 0) + cost(1, 1)) / 2
    assert fitted.distance_ == pytest.approx(divergence, abs=1e-7)
    scored = exact(X, y, **TABLES, reg=0.05, divergence="sinkhorn").distance_
    # It is computed up to a thousandth of its sensitivity.
    assert fitted.score(X, y) == pytest.approx(-scored, abs=1e-3 / 5)


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
    assert found.score(other, y) == expected.score(X, y)
    samples = [other.filter(pl.Series(y == name)) if kind == "polars" else other[y == name]
               for name in "ab"]  # fmt: skip
    options = {"schema": SCHEMA, "tol": 1e-8, "random_state": 0}
    # The first group is the first sample, whatever holds the second.
    assert private_ot_cost(samples[0], X[y == "b"], 1e10, **options) == expected.distance_
    assert private_ot_cost(X[y == "a"], samples[1], 1e10, **options) == expected.distance_


@pytest.mark.parametrize("metric", METRICS)
def test_costs_are_metrics_with_values_from_0_to_1(metric):
    schema = read_schema(SCHEMA)
    (name, params), _, _ = METRICS[metric]
    X, _ = make_tables(30, 20)
    X.loc[0] = [10**6, np.inf, "unknown", None]
    places = TableSpace(schema).points(read_columns(X, schema))
    costs = TableSpace(schema).cost(name, metric_params=params)(places, places)
    np.testing.assert_array_equal(costs, costs.T)
    np.testing.assert_array_equal(np.diag(costs), 0.0)
    assert 0 < costs.max() <= 1
    distances = np.sqrt(costs) if metric == "sqeuclidean" else costs
    assert (distances[:, None] <= distances[:, :, None] + distances[None] + 1e-12).all()
    ends = [[20, 0, "low", "office"], [60, 10, "high", "home"], [40, None, None, None]]
    places = TableSpace(schema).points(read_columns(ends, schema))
    costs = TableSpace(schema).cost(name, metric_params=params)(places, places)
    assert costs[0, 1] == pytest.approx(1.0, abs=1e-15)


# Noise
# -----


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("labels", [{}, PRIVATE])
def test_noise_has_the_scale_of_costs_up_to_1(delta, labels):
    X, y = make_tables(10, 6)
    estimator = PrivateSinkhornDistance(0.5, delta, **TABLES, **labels)
    fitted = clone(estimator).fit(X, y)
    spread = math.sqrt(2) / 0.5 if delta == 0 else calibrate_noise_multiplier(0.5, delta)
    sensitivity = 1 / 4 + 1 / 4 if labels else 1 / 6
    assert 1 < fitted.standard_error_ / (sensitivity * spread) < 1.0011
    noise, release = noise_of(estimator, X, y)
    law, scale = (laplace, 1 / math.sqrt(2)) if delta == 0 else (norm, 1.0)
    assert_scale((noise * release.sensitivities)[:, 0], law, scale * fitted.standard_error_)


def test_small_groups_are_filled_up_with_a_public_row():
    X, y = make_tables(3, 9)
    fitted = exact(X, y, **TABLES, **PRIVATE)
    public = pd.DataFrame({"age": [40], "wage": [5.0], "grade": ["mid"], "work": ["office"]})
    costs = gower(pd.concat([X[y == "a"], public]), X[y == "b"], exponent=2)
    assert fitted.distance_ == pytest.approx(emd(costs), abs=1e-9)


# In use
# ------


def test_drifts_are_in_the_order_that_encoding_and_pot_find():
    """What is done today, without privacy: categories one by one, standardised numbers, emd2."""
    rng = np.random.default_rng(0)

    def month(shift, share, n=150):
        wage = rng.normal(4 + shift, 1, n)
        work = np.where(rng.random(n) < share, "home", "office")
        return pd.DataFrame({"wage": wage, "work": work})

    schema = {"wage": (0.0, 10.0), "work": ["office", "home"]}
    reference = month(0, 0.2)
    months = [month(0, 0.2), month(0.6, 0.3), month(1.2, 0.5), month(2.5, 0.8)]
    encoder = OneHotEncoder(categories=[["office", "home"]], sparse_output=False).fit(
        reference[["work"]]
    )

    def encoded(table):
        return np.column_stack(
            [
                (table["wage"] - reference["wage"].mean()) / reference["wage"].std(),
                encoder.transform(table[["work"]]),
            ]
        )

    def squared(x, y):
        return ((x[:, None] - y) ** 2).sum(axis=2)

    today = [emd(squared(encoded(reference), encoded(table))) for table in months]
    private = [
        private_ot_cost(reference, table, 2.0, schema=schema, random_state=0) for table in months
    ]
    assert np.argsort(private).tolist() == np.argsort(today).tolist() == [0, 1, 2, 3]


def test_a_ledger_and_copies():
    X, y = make_tables(12, 9)
    ledger = PrivacyLedger(2.0)
    estimator = PrivateSinkhornDistance(1.0, **TABLES, ledger=ledger)
    pickle.loads(pickle.dumps(clone(estimator).fit(X, y))).score(X, y)
    assert ledger.spent()[0] == pytest.approx(2.0)


# Refusals
# --------

SECRET = 3.14159
REFUSED = {
    "bounds": ({"bounds": (0, 1)}, "bounds and schema are both given. .* Leave bounds out"),
    "histogram": ({"mechanism": "histogram"}, "a table with a schema has no grid"),
    "metric": ({"metric": "cosine"}, "with schema, metric is one of .* got 'cosine'"),
    "function": ({"metric": min, "cost_range": (0, 1)}, "with schema, metric is one of"),
    "parameters": ({"metric_params": {"V": 1}}, "'V'; with schema, .* takes w, the weights"),
    "weights": ({"metric_params": {"w": [1, 1]}}, "a weight for each of the 4 columns"),
    "no weights": ({"metric_params": {"w": [0] * 4}}, "not all zero"),
    "words": ({"metric_params": {"w": "abcd"}}, "a weight for each of the 4 columns"),
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
