"""The sensitive attribute, however it is given."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from skdpot import FairBarycenterPreprocessor
from skdpot.fairness._groups import read_labels, split_attribute
from skdpot.tables import Table


def split(X, columns=None, beside=None):
    labels, kept = split_attribute(FairBarycenterPreprocessor(columns), Table(X), beside)
    return labels.tolist(), kept.tolist()


FRAME = pd.DataFrame(
    {
        "sex": pd.Categorical(["f", "m", "f"]),
        "age": [1.0, 2.0, 3.0],
        "day": pd.to_datetime(["2020-01-01", "2021-01-01", "2020-01-01"]),
        "hole": pd.array([1, 2, None], dtype="Int64"),
    }
)


def test_columns_are_found_by_name_and_by_position():
    assert split(FRAME, "sex") == (["f", "m", "f"], [1, 2, 3])
    assert split(FRAME, ["age", 0]) == ([(1.0, "f"), (2.0, "m"), (3.0, "f")], [2, 3])
    assert split(FRAME, np.int64(-3)) == ([1.0, 2.0, 3.0], [0, 2, 3])
    polars = pl.DataFrame(
        {"sex": ["f", "m"], "age": [1, 2]}, schema_overrides={"sex": pl.Enum(["f", "m"])}
    )
    assert split(polars, ["sex"]) == (["f", "m"], [1])
    assert split([["f", 1.5], ["m", 2.5]], 0) == (["f", "m"], [1])
    for matrix in (sparse.csr_array, sparse.coo_matrix, np.asarray):
        assert split(matrix([[1, 0], [0, 2]]), [1]) == ([0, 2], [0])


def test_days_are_labels_whatever_holds_them():
    days = FRAME["day"]
    from_series = read_labels(days).tolist()
    assert from_series == read_labels(days.to_numpy()).tolist()
    assert from_series[0] == from_series[2] != from_series[1]


@pytest.mark.parametrize(
    "beside",
    [
        ["f", "m", "f"],
        np.array(["f", "m", "f"]),
        pd.Series(["f", "m", "f"], index=[7, 8, 9]),
        pl.Series(["f", "m", "f"]),
        [["f"], ["m"], ["f"]],
        pd.DataFrame({"sex": ["f", "m", "f"]}),
        ("f", np.str_("m"), "f"),
    ],
    ids=lambda value: type(value).__module__ + "." + type(value).__name__,
)
def test_labels_beside_the_data(beside):
    labels, kept = split(FRAME, None, beside)
    assert labels == ["f", "m", "f"] and kept == [0, 1, 2, 3]
    assert {type(label) for label in labels} == {str}


@pytest.mark.parametrize(
    "columns, beside, message",
    [
        ("sex", ["f"] * 3, "FairBarycenterPreprocessor was given the sensitive attribute twice"),
        (None, None, "FairBarycenterPreprocessor needs the sensitive attribute of every row"),
        ("salary", None, "X has no column 'salary'. Its columns are"),
        (4, None, "has the position 4, and X has 4 columns"),
        (["sex", 0], None, "one column of X, or several different ones"),
        ([], None, "one column of X, or several different ones"),
        (True, None, "must be names or positions"),
        ("hole", None, "contains NaN"),
        (None, ["f", "m", None], "contains NaN"),
        (None, [1.0, np.inf, 2.0], "contains infinity"),
        (None, ["f", "m"], "has 2 rows, and X has 3"),
        (None, np.zeros((3, 1, 1)), "of shape"),
        (None, "fmf", "of shape"),
    ],
)
def test_what_is_wrong_is_said_without_quoting_rows(columns, beside, message):
    with pytest.raises(ValueError, match=message):
        split(FRAME, columns, beside)


def test_further_errors():
    with pytest.raises(ValueError, match="X is no data frame"):
        split(FRAME.to_numpy(), "sex")
    with pytest.raises(ValueError, match="Reshape your data"):
        split(np.arange(3.0), 0)
    with pytest.raises(TypeError, match="argument must be a string, a number"):
        split(FRAME, None, [[1], {}, [2]])
    doubled = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(ValueError, match="which 2 columns of X have"):
        split(doubled, "a")
