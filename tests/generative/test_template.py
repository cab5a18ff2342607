"""Templates of schemas: made of names and types alone, and refused until they are filled in."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import schema_template
from skdpot.tables import read_schema

FILL = ["FILL IN", "FILL IN"]
FRAME = pd.DataFrame(
    {
        "age": [30, 40],
        "kids": pd.array([1, None], dtype="Int64"),
        "wage": [1.5, 2.5],
        "since": pd.to_datetime(["2020-01-01", "2021-01-01"]),
        "smokes": [True, False],
        "town": ["here", "there"],
        "grade": pd.Categorical(["low", "high"], ["low", "high"], ordered=True),
        "job": pd.Categorical(["cook", "clerk"]),
    }
)
TEMPLATE = {
    "age": {"bounds": FILL, "integer": True, "missing": False},
    "kids": {"bounds": FILL, "integer": True, "missing": False},
    "wage": {"bounds": FILL, "missing": False},
    "since": {"bounds": FILL, "unit": "D", "missing": False},
    "smokes": {"categories": [False, True], "missing": False},
    "town": {"categories": ["FILL IN"], "missing": False},
    "grade": {"levels": ["FILL IN"], "missing": False},
    "job": {"categories": ["FILL IN"], "missing": False},
}


def test_a_template_says_what_must_be_declared_of_each_type():
    assert schema_template(FRAME) == TEMPLATE
    of_polars = schema_template(pl.from_pandas(FRAME))
    assert of_polars.pop("grade")["categories"] == ["FILL IN"]
    assert of_polars == {name: of for name, of in TEMPLATE.items() if name != "grade"}


def test_the_same_names_and_types_give_the_same_template():
    """Categories of a type, which may have been found in the data, are values as well."""
    other = FRAME.iloc[:1].assign(
        age=99, wage=np.nan, town="secret", job=pd.Categorical(["secret"]), since=pd.Timestamp(0)
    )
    assert schema_template(other) == schema_template(FRAME.iloc[:0]) == TEMPLATE
    assert "secret" not in str(schema_template(other))


def test_categories_are_copied_if_the_user_says_so():
    template = schema_template(FRAME, categories=True)
    assert template["job"]["categories"] == ["clerk", "cook"]
    assert template["grade"]["levels"] == ["low", "high"] and "here" not in str(template)


def test_a_template_is_written_once_filled_in_and_read(tmp_path):
    path = tmp_path / "schema.json"
    frame = FRAME[["age", "town"]]
    written = schema_template(frame, path)
    assert json.loads(path.read_text()) == {"format": 1, **written}
    with pytest.raises(FileExistsError):
        schema_template(frame, path)
    ledger = PrivacyLedger(100.0, 0.5, neighbouring="add_remove")
    generator = DPSinkhornGenerator(20.0, schema=path, ledger=ledger)
    with pytest.raises(ValueError, match=r"\['age', 'town'\].*write what is publicly known"):
        generator.fit(frame)
    assert not ledger.entries()
    written |= {"age": {"bounds": [0, 99], "integer": True}, "town": ["here", "there"], "format": 1}
    path.write_text(json.dumps(written))
    for schema in (path, str(path), json.dumps(written)):
        generator.set_params(schema=schema).fit(frame)
        assert generator.sample(5)["age"].between(0, 99).all()


def test_columns_of_arrays_are_numbered():
    template = schema_template(np.zeros((3, 2)))
    assert [column["name"] for column in template["columns"]] == [0, 1]
    for column in template["columns"]:
        column["bounds"] = [0, 1]
    assert read_schema(json.dumps(template)).names == [0, 1]


def test_names_that_may_be_values_are_refused():
    with pytest.raises(TypeError, match="names of columns must be text"):
        schema_template(pd.DataFrame([[1.0]], columns=[0.61803]))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ('{"age": ', "schema must be JSON, but the text is not"),
        ('{"columns": [{"name": "a"}, {"name": "a"}]}', "declares a column twice"),
        ('{"format": 2, "age": [0]}', "format 2; this version of skdpot reads 1"),
    ],
)
def test_json_that_is_no_schema_is_refused(schema, message):
    with pytest.raises(ValueError, match=message):
        read_schema(schema)
