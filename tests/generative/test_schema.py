"""Tables as their schema declares them: read, refused, and made of units."""

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from skdpot.tables import container_of, read_columns, read_schema, schema_from_plain, write_table

SCHEMA = {
    "age": range(17, 91),
    "wage": (0.0, 10.0),
    "hours": {"bounds": (1, 99), "integer": True, "missing": True},
    "grade": {"levels": ["low", "mid", "high"]},
    "job": {"categories": ["clerk", "cook"], "missing": True},
    "children": [0, 1, 2],
}
ROWS = {
    "age": [17, 90, 40],
    "wage": [0.0, 10.0, 2.5],
    "hours": [40.0, None, 1.0],
    "grade": ["mid", "low", "high"],
    "job": ["cook", "clerk", None],
    "children": [2, 0, 1],
}
UNITS = [
    [0, 73, 23],
    [0, 2**20 + 1, 2**18 + 1],
    [39, 99, 0],
    [1, 0, 2],
    [1, 0, 2],
    [2, 0, 1],
]


def units_of(table, schema):
    return schema.encode(read_columns(table, schema))


def array_of(rows):
    return np.array(list(zip(*rows.values(), strict=True)), dtype=object)


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame, array_of])
def test_values_become_units_and_are_made_of_them(container):
    schema = read_schema(SCHEMA)
    table = container(ROWS)
    units = units_of(table, schema)
    np.testing.assert_array_equal(units, np.transpose(UNITS))
    made = write_table(container_of(table), schema, schema.decode(units, np.full(units.shape, 0.5)))
    assert type(made) is type(table)
    np.testing.assert_array_equal(units_of(made, schema), units)


def test_columns_of_a_frame_have_types_that_hold_what_is_declared():
    schema = read_schema(SCHEMA)
    units = np.transpose(UNITS)
    made = write_table("pandas", schema, schema.decode(units, np.zeros(units.shape)))
    assert list(made) == list(SCHEMA)
    assert [str(made[name].dtype) for name in ("age", "wage", "hours", "children")] == [
        "int64",
        "float64",
        "Int64",
        "int64",
    ]
    assert made["job"].isna().tolist() == [False, False, True]


def test_columns_of_a_frame_are_found_by_name_and_of_any_type():
    schema = read_schema(SCHEMA)
    frame = pd.DataFrame(ROWS)[list(SCHEMA)[::-1]]
    frame = frame.astype({"hours": "Int64", "job": "category", "wage": "float32", "age": object})
    np.testing.assert_array_equal(units_of(frame, schema), np.transpose(UNITS))


def test_an_array_of_numbers_alone_stays_one():
    schema = read_schema({"a": range(0, 5), "b": {"bounds": (0, 1), "missing": True}})
    table = np.array([[4, 0.5], [0, np.nan]])
    units = units_of(table, schema)
    made = write_table("array", schema, schema.decode(units, np.zeros(units.shape)))
    np.testing.assert_array_equal(made, table)


def test_bounds_are_kept_exactly_and_all_else_is_between():
    low, high = 0.1, 0.7
    schema = read_schema({"size": (low, high)})
    values = np.array([low, np.nextafter(low, 1), 0.3, np.nextafter(high, 0), high])
    units = units_of(values[:, None], schema)
    assert units[0] == 0 and units[-1] == 2**20 + 1
    assert (units[1:-1] > 0).all() and (units[1:-1] <= 2**20).all()
    for uniform in (0.0, 0.5, 1.0):
        (made,) = schema.decode(units, np.full(units.shape, uniform))
        assert made[0] == low and made[-1] == high
        assert (made >= low).all() and (made <= high).all()
        np.testing.assert_allclose(made, values, atol=1e-6)


def test_numbers_beyond_the_bounds_are_moved_to_them():
    schema = read_schema({"count": range(0, 10), "size": (0.0, 1.0)})
    values = [-math.inf, -5, 3.4, 3.6, 10**400, math.inf]
    units = units_of(array_of({"count": values, "size": values}), schema)
    assert units[:, 0].tolist() == [0, 0, 3, 4, 9, 9]
    assert units[:, 1].tolist() == [0, 0] + [2**20 + 1] * 4


def test_what_is_no_category_counts_as_missing_where_that_is_declared():
    schema = read_schema({"job": {"categories": ["cook"], "missing": True}})
    labels = [["cook"], ["Cook"], [math.nan], [3.5], [("cook",)]]
    assert units_of(labels[:4], schema)[:, 0].tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "column, value, message",
    [
        ("age", None, "column 'age' has missing values"),
        ("wage", math.nan, "column 'wage' has missing values"),
        ("wage", "12.75", "column 'wage' is declared numeric"),
        ("age", pd.Timestamp("1977-03-04"), "column 'age' is declared numeric"),
        ("grade", "secret", "column 'grade' has values that are not among its declared levels"),
        ("grade", None, "column 'grade' has missing values"),
        ("children", 7919, "column 'children' has values that are not among its declared categ"),
    ],
)
@pytest.mark.parametrize("container", [pd.DataFrame, array_of])
def test_what_is_not_declared_is_refused_and_not_quoted(column, value, message, container):
    rows = {name: list(values) for name, values in ROWS.items()}
    rows[column][1] = value
    with pytest.raises(ValueError, match=message) as error:
        units_of(container(rows), read_schema(SCHEMA))
    assert str(value) not in str(error.value).replace("None", "") or value is None


@pytest.mark.parametrize(
    "table, message",
    [
        (pd.DataFrame(ROWS).drop(columns="age"), "lacks the columns ..age.."),
        (
            pd.DataFrame(ROWS).assign(height=3),
            "declare: ..height... Declare them, or",
        ),
        (
            pd.concat([pd.DataFrame(ROWS), pd.DataFrame(ROWS)["age"]], axis=1),
            "age. is there twice",
        ),
        (np.zeros((3, 2)), "shape"),
        (np.zeros(6), "shape"),
        (pd.DataFrame(ROWS).iloc[:0], "0 rows"),
        (np.zeros((0, 6)), "0 rows"),
    ],
)
def test_a_table_without_the_columns_of_the_schema_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        read_columns(table, read_schema(SCHEMA))


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"age": [123456789.25]}),
        pd.Series({"columns": "123456789.25"}),
        np.rec.fromarrays([[123456789.25, 1.0]], names=["columns"]),
        pd.DataFrame([[1.0]], columns=[(123456789.25, "a")]),
        pd.DataFrame([[1.0]], columns=[123456789.25]),
    ],
    ids=lambda table: type(table).__name__,
)
def test_columns_that_may_be_values_are_refused_and_not_quoted(table):
    with pytest.raises(TypeError, match="give a pandas or polars frame|must be text") as error:
        read_columns(table, read_schema({"age": (0.0, 1.0)}))
    assert "123456789" not in str(error.value)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ((5, 1), r"got \(5, 1\): low must be below high"),
        (("a", "b"), "categories are a list, not a tuple"),
        (range(0, 10, 2), "a range has the step 1"),
        ({"bounds": (0, 1), "bins": 3}, "there is no key 'bins'"),
        (pd.Series([123456789.25]), r"got a value of type Series\.$"),
    ],
)
def test_it_is_said_what_is_wrong_with_a_declaration(declared, reason):
    with pytest.raises(ValueError, match=reason):
        read_schema({"age": declared})


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        ["age"],
        {"age": None},
        {"age": "integer"},
        {"age": range(3, 4)},
        {"age": range(0, 10, 2)},
        {"age": (5, 5)},
        {"age": (0, math.inf)},
        {"age": (0, 1, 2)},
        {"age": ("a", "b")},
        {"age": {"bounds": 3}},
        {"age": {"bounds": (0.5, 3), "integer": True}},
        {"age": {"bounds": (0, 3), "integer": "yes"}},
        {"age": {"bounds": (0, 3), "levels": [1]}},
        {"age": {"bounds": (0, 3), "bins": 4}},
        {"age": {"categories": ["a"], "integer": True}},
        {"age": {"missing": True}},
        {"job": []},
        {"job": ["a", "a"]},
        {"job": [("a", "b")]},
        {"job": [math.nan]},
        {"job": {"levels": 3}},
        {"job": {"categories": ["a"], "missing": 1}},
        {None: ["a", "b"]},
    ],
)
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(ValueError, match="schema|declared as|must be a list"):
        read_schema(schema)


def test_a_target_is_a_column_of_categories():
    assert read_schema(SCHEMA, "job").n_classes == 3
    assert read_schema(SCHEMA, "job").features == [0, 1, 2, 3, 5]
    for target in ("salary", "age", "wage"):
        with pytest.raises(ValueError, match="target"):
            read_schema(SCHEMA, target)
    with pytest.raises(ValueError, match="another column"):
        read_schema({"job": ["cook", "judge"]}, "job")


@pytest.mark.parametrize("target", [None, "grade"])
def test_a_schema_survives_json(target):
    schema = read_schema(SCHEMA, target)
    assert schema_from_plain(json.loads(json.dumps(schema.plain()))) == schema


@pytest.mark.parametrize(
    "name, condition, intervals",
    [
        ("age", 20, [(3, 4)]),
        ("age", (20, 22), [(3, 6)]),
        ("age", (-100, 17.5), [(0, 1)]),
        ("wage", (0, 5), [(0, 2**19 + 2)]),
        ("hours", None, [(99, 100)]),
        ("grade", "mid", [(1, 2)]),
        ("grade", ["low", "high"], [(0, 1), (2, 3)]),
        ("job", ["cook", None, "cook"], [(1, 2), (2, 3)]),
    ],
)
def test_conditions_allow_units(name, condition, intervals):
    assert read_schema(SCHEMA).intervals(name, condition) == intervals


@pytest.mark.parametrize(
    "name, condition",
    [
        ("height", 3),
        ("age", 16),
        ("age", "17"),
        ("age", None),
        ("age", True),
        ("age", (91, 95)),
        ("age", (30, 20)),
        ("age", (1, 2, 3)),
        ("age", ("a", "b")),
        ("hours", (math.nan, 3)),
        ("grade", "best"),
        ("grade", []),
        ("grade", None),
    ],
)
def test_conditions_that_nothing_meets_are_refused(name, condition):
    with pytest.raises(ValueError, match="column|declared"):
        read_schema(SCHEMA).intervals(name, condition)
