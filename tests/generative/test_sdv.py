"""The interface of SDV's synthesizers: metadata, tables, samples and files."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import SdvSynthesizer, TableSketch
from skdpot.privacy import BudgetExceededError

# As version 1 describes a table, and as version 2 does, with what it detected in private values.
FIRST = {
    "columns": {
        "id": {"sdtype": "id", "regex_format": "[0-9]{5}"},
        "age": {"sdtype": "numerical", "computer_representation": "Int64"},
        "wage": {"sdtype": "numerical", "computer_representation": "Float"},
        "seen": {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"},
        "size": {"sdtype": "categorical", "order": ["S", "M", "L"]},
        "job": {"sdtype": "categorical"},
        "rich": {"sdtype": "boolean"},
        "email": {"sdtype": "email", "pii": True},
    },
    "primary_key": "id",
    "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1",
}
DETECTED = {
    "age": {"range_min": 18, "range_max": 79, "decimal_places": 0, "range_is_nullable": False},
    "wage": {"range_min": 1.25, "range_max": 777.5, "decimal_places": 2, "range_is_nullable": True},
    "seen": {"range_min": "2024-01-01 00:00:00", "range_max": "2024-12-30 00:00:00"},
    "job": {"range_values": ["s3cret", "cook"], "high_cardinality": False},
}
SECOND = {
    "tables": {
        "people": {
            "columns": {name: of | DETECTED.get(name, {}) for name, of in FIRST["columns"].items()},
            "primary_key": "id",
        }
    },
    "relationships": [],
    "METADATA_SPEC_VERSION": "V2",
}
SCHEMA = {
    "age": range(18, 80),
    "wage": {"bounds": (0.0, 1000.0), "missing": True},
    "seen": ("2024-01-01", "2024-12-31"),
    "job": ["cook", "s3cret"],
}


QUICK = {"schema": SCHEMA, "model": TableSketch(20, n_iter=60), "random_state": 0}


class Metadata:
    """What has the one method that is called."""

    def __init__(self, described):
        self.described = described

    def to_dict(self):
        return self.described


class Condition:
    """As SDV's."""

    def __init__(self, values, n_rows):
        self.values, self.n_rows = values, n_rows

    def get_column_values(self):
        return self.values

    def get_num_rows(self):
        return self.n_rows


def make_table(n=600):
    rng = np.random.default_rng(0)
    return pd.DataFrame({
        "id": [f"{i:05d}" for i in range(n)],
        "age": rng.integers(18, 80, n),
        "wage": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 777.0, n)),
        "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, n), "D"),
        "size": rng.choice(["S", "M", "L"], n), "job": rng.choice(["cook", "s3cret"], n),
        "rich": rng.random(n) < 0.3, "email": [f"private{i}@example.org" for i in range(n)],
    })  # fmt: skip


@pytest.mark.parametrize("metadata", [FIRST, Metadata(FIRST), SECOND, Metadata(SECOND)])
def test_samples_have_the_columns_and_types_of_the_table(metadata):
    table = make_table()
    synthesizer = SdvSynthesizer(metadata, 3.0, **QUICK)
    assert synthesizer.fit(table) is None
    made = synthesizer.sample(num_rows=200)
    assert list(made) == list(table) and len(made) == 200
    for name in ("age", "wage", "rich"):
        assert made[name].dtype == table[name].dtype
    assert made["seen"].dtype == "datetime64[us]"  # A single value can make it finer in the table.
    assert made["id"].is_unique and made["seen"].between("2024-01-01", "2024-12-31").all()
    assert set(made["size"]) == {"S", "M", "L"} and 0.05 < made["wage"].isna().mean() < 0.4
    assert not set(made["email"]) & set(table["email"])
    assert synthesizer.get_metadata() is metadata
    assert synthesizer.get_parameters()["epsilon"] == 3.0


def test_text_in_the_format_of_the_metadata_is_dates():
    table, seen = make_table(), FIRST["columns"]["seen"] | {"datetime_format": "%d %b %Y"}
    metadata = FIRST | {"columns": FIRST["columns"] | {"seen": seen}}
    synthesizer = SdvSynthesizer(metadata, 3.0, **QUICK)
    synthesizer.fit(table)
    from_dates = synthesizer.sample(50)
    text = table.assign(seen=table["seen"].dt.strftime("%d %b %Y"))
    synthesizer.fit(text)
    pd.testing.assert_frame_equal(synthesizer.sample(50), from_dates)
    text.loc[3, "seen"] = "s3cret"
    with pytest.raises(ValueError, match="not in the format of the metadata, '%d %b %Y'") as error:
        synthesizer.fit(text)
    assert "s3cret" not in str(error.value) and error.value.__context__ is None


def test_a_dictionary_of_tables_is_answered_by_one():
    synthesizer = SdvSynthesizer(SECOND, 3.0, **QUICK)
    synthesizer.fit({"people": make_table()})
    made = synthesizer.sample(20)
    assert list(made) == ["people"] and len(made["people"]) == 20
    with pytest.raises(ValueError, match="one table"):
        synthesizer.fit({"people": make_table(), "events": make_table()})


def test_conditions_hold_and_keys_stay_unique():
    synthesizer = SdvSynthesizer(FIRST, 3.0, **QUICK)
    synthesizer.fit(make_table())
    conditions = [Condition({"job": "cook", "rich": True}, 5), Condition({"size": "L"}, 7)]
    made = synthesizer.sample_from_conditions(conditions, batch_size=3)
    assert (made["job"][:5] == "cook").all() and made["rich"][:5].all()
    assert (made["size"][5:] == "L").all() and len(made) == 12
    assert made["id"].is_unique and made["email"].is_unique


def test_what_was_detected_in_private_values_is_not_used():
    with pytest.raises(ValueError) as error:
        SdvSynthesizer(SECOND, 1.0)
    message = str(error.value)
    assert all(repr(name) in message for name in ("age", "wage", "seen", "job"))
    assert "ranges_are_public" in message
    assert not any(value in message for value in ("777", "s3cret", "2024"))
    with pytest.raises(ValueError, match="may not be learned"):
        SdvSynthesizer(FIRST, 1.0)
    synthesizer = SdvSynthesizer(SECOND, 1.0, ranges_are_public=True)
    assert synthesizer.generator.schema["age"] == {"bounds": [18, 79], "integer": True}
    assert synthesizer.generator.schema["wage"]["missing"] is True
    synthesizer.fit(make_table())
    assert synthesizer.sample(50)["wage"].dropna().between(1.25, 777.5).all()


def test_a_file_holds_what_was_released_and_no_range_of_the_metadata(tmp_path):
    synthesizer = SdvSynthesizer(SECOND, 2.0, schema=SCHEMA)
    synthesizer.fit({"people": make_table()})
    synthesizer.save(tmp_path / "file.npz")
    content = (tmp_path / "file.npz").read_bytes()
    assert b"777.5" not in content and b"range_" not in content and b"private" not in content
    pickled = pickle.dumps(synthesizer)
    assert b"range_m" not in pickled
    assert pickle.loads(pickled).sample(3)["people"].shape == (3, 8)
    loaded = SdvSynthesizer.load(tmp_path / "file.npz")
    assert list(loaded.sample(5)["people"]) == list(FIRST["columns"])
    described = loaded.get_metadata()
    assert described["primary_key"] == "id" and described["columns"]["age"]["sdtype"] == "numerical"
    assert loaded.generator.privacy_guarantee_ == synthesizer.generator.privacy_guarantee_
    json.dumps(described)
    assert DPSinkhornGenerator.load(tmp_path / "file.npz").sample(5).shape == (5, 8)
    synthesizer.generator.save(tmp_path / "other.npz")
    with pytest.raises(ValueError, match="hold an SdvSynthesizer"):
        SdvSynthesizer.load(tmp_path / "other.npz")


def test_a_ledger_is_charged_and_its_budget_holds():
    ledger = PrivacyLedger(1.5, 1e-4, neighbouring="add_remove")
    synthesizer = SdvSynthesizer(FIRST, 1.0, schema=SCHEMA, ledger=ledger, target="rich")
    synthesizer.fit(make_table())
    assert ledger.spent()[0] == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError):
        synthesizer.fit(make_table())


WRONG = {
    "no metadata": (3, {}, "metadata must be"),
    "metadata without types": ({"columns": {"age": {}}}, {}, "metadata must be"),
    "two tables": ({"tables": {"a": FIRST, "b": FIRST}}, {}, "one table"),
    "a schema of another column": (FIRST, SCHEMA | {"nobody": [1, 2]}, "nobody"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case):
    metadata, schema, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        SdvSynthesizer(metadata, 1.0, schema=schema)
