"""Schemas that are found with noise: what is found, charged, refused, and seen of a record."""

import json
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch, VectorSketch, schema_from
from skdpot.privacy import (
    ApproximateDpEvent,
    BudgetAccountant,
    BudgetExceededError,
    calibrate_noise_multiplier,
)
from skdpot.privacy.events import ComposedDpEvent
from skdpot.releases import SketchReleases
from skdpot.tables import read_codes, read_schema
from tests.oracles.sketch import moved_by, squared_mu, transcript_of

SMALL = TableSketch(16, n_iter=2)


def a_ledger(**options):
    return PrivacyLedger(1e3, 0.5, **{"neighbouring": "add_remove"} | options)


def found_by(epsilon=1.0, **options):
    return DPSinkhornGenerator(epsilon, schema="auto", **{"model": SMALL} | options)


@pytest.fixture
def table(rng):
    n = 20_000
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "wage": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(7, 1.5, n)),
            "share": rng.random(n),
            "rooms": np.where(rng.random(n) < 0.2, np.nan, rng.integers(1, 9, n)),
            "gain": np.where(rng.random(n) < 0.9, 0, rng.integers(3000, 9000, n)),
            "town": rng.choice(["Oslo", "Rome", "Bonn"], n, p=[0.6, 0.399, 0.001]),
            "name": [f"s3cret{i}" for i in range(n)],
            "kind": pd.Categorical(rng.choice([7, 8], n), [7, 8, 9], ordered=True),
            "mixed": rng.choice(np.array([2, "x", True, None, "y"], dtype=object), n),
            "count": rng.choice(np.array([2, 3, None], dtype=object), n),
            "smokes": rng.random(n) < 0.5,
            "since": pd.Timestamp("2015-03-01") + pd.to_timedelta(rng.integers(0, 999, n), "D"),
        }
    )


def check_found(schema):
    """Check the schema of the table."""
    labels = {name: column.get("categories") for name, column in schema.items()}
    # Bounds are next to the values; noise moves one of a hundred ends by up to 16 times.
    for name, least, most in (("age", 18, 90), ("rooms", 1, 9), ("gain", 0, 9000), ("share", 0, 1)):
        low, high = schema[name]["bounds"]
        assert -16 * most < low <= least and 0.9 * most <= high <= 24 * most
    low, high = schema["wage"]["bounds"]
    assert low < 60 and 20_000 < high < 2e7 and schema["wage"]["scale"] == "log"
    # A column of doubles has integers only.
    integers = {name for name, column in schema.items() if column.get("integer")}
    assert {"age", "rooms", "gain"} <= integers and not {"wage", "share"} & integers
    assert labels["town"] in (["Oslo", "Rome"], ["Oslo", "Rome", "other"])
    assert labels.get("name", ["other"]) == ["other"]
    assert labels["smokes"] == [False, True]
    assert schema["since"]["bounds"][0] < "2015-03-01" < "2017-11-01" < schema["since"]["bounds"][1]
    assert "s3cret" not in str(schema)
    json.dumps(schema)
    read_schema(schema)
    return labels


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_schema_is_found_charged_and_can_be_passed_on(table, relation):
    ledger = a_ledger(neighbouring=relation)
    with pytest.warns(UserWarning, match=r"nothing was found of \['name'\]"):
        schema = schema_from(table, 2.0, delta=1e-6, ledger=ledger)
    labels = check_found(schema)
    assert schema["kind"]["integer"] and set(labels["mixed"]) == {True, "x", "y", "other"}
    assert schema["count"]["integer"] and schema["count"]["missing"]
    assert schema["count"]["bounds"][0] <= 2 and schema["count"]["bounds"][1] >= 3
    assert not any(schema[name]["missing"] for name in ("age", "gain", "smokes"))
    (entry,) = ledger.entries()
    assert (entry.unit, entry.delta) == ("record", 1e-6) and 1.99 < entry.epsilon <= 2.0
    assert schema["name"]["other"] == "other"
    made = DPSinkhornGenerator(2.0, schema=schema, model=SMALL).fit(table).sample(50)
    assert list(made) == list(table) and set(made["name"]) <= {"other", None, np.nan}


def test_frames_of_polars_have_the_same_schema(table):
    frame = pl.from_pandas(table.drop(columns=["mixed", "count", "name"]))
    check_found(schema_from(frame, 2.0))


def test_a_generator_charges_once_for_the_schema_and_the_sketch(table, tmp_path):
    ledger, table = a_ledger(), table.drop(columns="name")
    generator = found_by(ledger=ledger, target="town")
    preview = generator.preview(20_000, table[:0])
    generator.fit(table)
    (entry,) = ledger.entries()
    assert entry.event == preview.event and 0.99 < entry.epsilon <= 1.0
    counts, failure = entry.event.event.events
    assert isinstance(entry.event.event, ComposedDpEvent)
    assert failure == ApproximateDpEvent(0.0, pytest.approx(1e-6))
    assert counts.noise_multiplier == generator.noise_multiplier_
    assert counts.noise_multiplier == pytest.approx(calibrate_noise_multiplier(1.0, 9e-6))
    assert str(generator.privacy_guarantee_).startswith("(1, 1e-05)-differentially private")
    assert [error.quantity for error in preview.errors] == [
        "records that a number needs to be found",
        "records that a category needs to be found",
    ]
    generator.save(tmp_path / "it.npz")
    loaded = DPSinkhornGenerator.load(tmp_path / "it.npz")
    assert loaded.schema_ == generator.schema_ == loaded.schema
    assert set(generator.sample(500)["town"].dropna()) <= {"Oslo", "Rome", "other"}


def test_arrays_of_numbers_have_a_schema(table):
    assert schema_from(table[["age"]].to_numpy(), 5.0)[0]["bounds"][1] >= 90


def test_an_accountant_is_charged(table):
    accountant = BudgetAccountant(3.0, 1e-4)
    found_by(ledger=accountant).fit(table[["age", "town"]])
    assert accountant.total()[0] == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(BudgetExceededError):
        found_by(ledger=PrivacyLedger(0.5, 1e-4, neighbouring="add_remove")).fit(table[["age"]])


# What a record changes
# ---------------------

# Values of columns of each kind.
VALUES = {
    "i": [0, 1, -7, 2**60], "f": [0.0, 0.5, 3.0, -1e308, np.inf, np.nan], "b": [True, False],
    "t": ["a", "b", "other", "FILL IN"], "o": [1, 1.5, True, "1", None, 10**400],
    "d": [np.datetime64("1999-01-01"), np.datetime64("2020-05-05"), np.datetime64("NaT")],
}  # fmt: skip


def rows_of(rng, n):
    """Return a table of all kinds of columns, in which each value occurs."""
    made = {
        name: [*values, *(values[i] for i in rng.integers(0, len(values), n))][:n]
        for name, values in VALUES.items()
    }
    frame = pd.DataFrame({name: pd.Series(one, dtype=object) for name, one in made.items()})
    types = {"i": "int64", "f": "float64", "b": "bool", "t": "str", "d": "datetime64[us]"}
    return frame.astype(types)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_record_moves_the_counts_by_no_more_than_is_declared(relation, rng):
    most = 0.0
    for _ in range(12):
        rows = rows_of(rng, 40)
        other = rows[:-1] if relation == "add_remove" else rows.copy()
        if relation == "replace_one":
            other.iloc[-1] = rows.iloc[int(rng.integers(12, 20))]
        generator = found_by(3.0, neighbouring=relation)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = transcript_of(lambda: generator.fit(rows))  # noqa: B023
            again = transcript_of(lambda: generator.fit(other), one)  # noqa: B023
        bound = 2.0**0.5 if relation == "replace_one" else 1.0
        moved = moved_by(one, again)["schema"] / bound
        assert moved <= 1 + 1e-12
        most = max(most, moved)
        # All releases together are one with the noise that was charged.
        assert squared_mu(one, again) <= generator.noise_multiplier_**-2 * (1 + 1e-9)
    assert most > 0.8


def fit_without_noise(rows, **options):
    """Return a generator with counts that hide a record, and do not depend on it at all."""

    def hidden(releases, name, sums, sensitivity):
        return np.floor((np.asarray(sums, dtype=float) + 10) / 40) * 40

    with mock.patch.object(SketchReleases, "run", hidden), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return found_by(300.0, random_state=0, **options).fit(rows)


def test_nothing_but_counts_depends_on_a_record(rng):
    """Also where it has labels that no other one has."""
    rows = pd.concat([rows_of(rng, 40)] * 40, ignore_index=True)
    one = fit_without_noise(rows)
    for label in ("s3cret", "", "FILL IN"):
        last = rows.iloc[[-1]].assign(t=label, f=1.2345e-9, i=123456, o=["s3cret"])
        other = fit_without_noise(pd.concat([rows, last], ignore_index=True))
        assert other.schema_ == one.schema_ and other.n_records_ == one.n_records_
        assert other.sample(50).equals(one.sample(50))
    assert one.schema_["t"]["categories"] == ["a", "b", "other"]
    assert "s3cret" not in str(one.schema_)


def test_what_is_planned_follows_from_types_alone(rng):
    one, other = rows_of(rng, 40), rows_of(rng, 60).assign(f=np.nan, t="?", i=5)
    previews = [str(found_by().preview(50, rows)) for rows in (one[:0], other[:0])]
    assert len(set(previews)) == 1


# What is refused, and said
# -------------------------


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"rules": ["a > 1"]}, "rules is declared, but schema='auto'"),
        ({"model": VectorSketch()}, "VectorSketch is for records without schema"),
        ({"target": "q"}, "target must be a column"),
        ({"classes": ["x", "y"]}, "classes is declared"),
        ({"network": "perceptron"}, "network is for vectors"),
        ({"delta": 1e-323}, "delta is too small"),
        ({"epsilon": 1e-12, "delta": 1e-14}, "epsilon or delta is too small"),
    ],
)
def test_what_cannot_be_is_refused_before_the_charge(options, reason):
    ledger, frame = a_ledger(), pd.DataFrame({"a": [1, 2] * 30, "b": ["x", "y"] * 30})
    with pytest.raises(ValueError, match=reason):
        found_by(**{"ledger": ledger} | options).fit(frame)
    with pytest.raises(ValueError, match="leave out y"):
        found_by(ledger=ledger).fit(frame[["a"]], frame["b"])
    with pytest.raises(ValueError, match="groups are for tables with a schema"):
        found_by(ledger=ledger).fit(frame, groups="a")
    assert not ledger.entries()


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2]],
        np.array([[1, "a"]], dtype=object),
        pd.DataFrame({"t": pd.to_timedelta([1], "D")}),
        7,
    ],
    ids=["list", "objects", "durations", "a number"],
)
def test_columns_without_a_type_are_refused(X):
    ledger = a_ledger()
    with pytest.raises(ValueError, match="reads what columns may hold from their types"):
        schema_from(X, 1.0, ledger=ledger)
    assert not ledger.entries()
    with pytest.raises(ValueError, match=r"X\[:0\] to a preview"):
        found_by().preview(100)


@pytest.mark.refuses_useless
def test_too_few_records_are_refused_where_their_number_is_public():
    frame = pd.DataFrame({"a": np.arange(30), "b": ["x"] * 30})
    ledger = a_ledger(neighbouring="replace_one")
    with pytest.raises(ValueError, match="would be useless"):
        schema_from(frame, 0.1, ledger=ledger)
    assert not ledger.entries()


def test_of_what_is_not_found_hardly_anything_is_left():
    frame = pd.DataFrame({"a": np.arange(30), "b": ["x"] * 30, "c": [None] * 30})
    with pytest.warns(UserWarning, match=r"nothing was found of .*'a', 'b', 'c'.* Declare these"):
        schema = schema_from(frame, 0.1)
    assert schema["a"] == {"missing": False, "bounds": [0, 1], "integer": True}
    assert schema["b"]["categories"] == schema["c"]["categories"] == ["other"]


# The category of others
# ----------------------


def test_undeclared_labels_are_read_as_the_category_that_is_declared_for_them():
    declared = {"b": {"categories": ["x", "rest"], "other": "rest", "missing": True}}
    schema = read_schema(json.dumps(read_schema(declared).plain()))
    values = pd.DataFrame({"b": ["x", "rest", "?", None, 7, [1]]})
    assert read_codes(values, schema)[:, 0].tolist() == [0, 1, 1, 2, 1, 1]
    full = read_schema({"b": {"categories": [1, 2], "other": 2}})
    assert read_codes(pd.DataFrame({"b": [1, 2, 3]}), full)[:, 0].tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="'other' names one of the categories"):
        read_schema({"b": {"categories": ["x"], "other": "rest"}})
