"""Tables as their schema declares them: read, refused, and made of codes."""

import collections
import datetime
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from skdpot.tables import Table, one_by_one, read_codes, read_columns, read_schema, write_table

SCHEMA = {
    "age": range(17, 91),
    "wage": (0.0, 10.0),
    "hours": {"bounds": (1.0, np.float64(99)), "integer": True, "missing": True},
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
DAYS = ("2020-01-01", "2024-12-31")
CODES = [[0, 73, 23], [0, 2**20 + 1, 2**18 + 1], [39, 99, 0], [1, 0, 2], [1, 0, 2], [2, 0, 1]]


def values_of(schema, codes, uniform):
    return schema.presented(schema.plain_values(codes, np.full(np.shape(codes), uniform)))


def array_of(rows):
    return np.array(list(zip(*rows.values(), strict=True)), dtype=object)


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame, pa.table, array_of])
def test_values_become_codes_and_are_made_of_them(container):
    schema = read_schema(SCHEMA)
    table = container(ROWS)
    codes = read_codes(table, schema)
    np.testing.assert_array_equal(codes, np.transpose(CODES))
    made = write_table(Table(table).container, schema, values_of(schema, codes, 0.5))
    assert type(made) is type(table)
    np.testing.assert_array_equal(read_codes(made, schema), codes)


def test_columns_of_a_frame_have_types_that_hold_what_is_declared():
    schema = read_schema(SCHEMA)
    codes = np.transpose(CODES)
    made = write_table("pandas", schema, values_of(schema, codes, 0.0))
    assert list(made) == list(SCHEMA)
    assert [str(made[name].dtype) for name in ("age", "wage", "hours", "children")] == [
        "int64",
        "float64",
        "Int64",
        "int64",
    ]
    assert made["job"].isna().tolist() == [False, False, True]


def test_times_of_day_are_read_as_their_text():
    schema = read_schema({"at": {"levels": ["09:00", "09:30:00"]}})
    rows = {"at": [datetime.time(9, 30), datetime.time(9), "09:00"]}
    for table in (pd.DataFrame(rows), array_of(rows)):
        assert read_codes(table, schema).ravel().tolist() == [1, 0, 0]


def test_bounds_are_kept_exactly_and_all_else_is_between():
    low, high = 0.1, 0.7
    schema = read_schema({"size": (low, high)})
    values = np.array([low, np.nextafter(low, 1), 0.3, np.nextafter(high, 0), high])
    codes = read_codes(values[:, None], schema)
    assert codes[0] == 0 and codes[-1] == 2**20 + 1
    assert (codes[1:-1] > 0).all() and (codes[1:-1] <= 2**20).all()
    for uniform in (0.0, 0.5, 1.0):
        (made,) = values_of(schema, codes, uniform)
        assert made[0] == low and made[-1] == high
        assert (made >= low).all() and (made <= high).all()
        np.testing.assert_allclose(made, values, atol=1e-6)


def test_numbers_beyond_the_bounds_are_moved_to_them():
    schema = read_schema({"count": range(0, 10), "size": (0.0, 1.0)})
    values = [-math.inf, -5, 3.4, 3.6, 10**400, math.inf]
    codes = read_codes(array_of({"count": values, "size": values}), schema)
    assert codes[:, 0].tolist() == [0, 0, 3, 4, 9, 9]
    assert codes[:, 1].tolist() == [0, 0] + [2**20 + 1] * 4


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
        read_codes(container(rows), read_schema(SCHEMA))
    assert str(value) not in str(error.value).replace("None", "") or value is None


@pytest.mark.parametrize(
    "table",
    [
        pa.record_batch({"age": [123456789.25]}),
        pd.Series({"columns": "123456789.25"}),
        np.rec.fromarrays([[123456789.25, 1.0]], names=["columns"]),
        pd.DataFrame([[1.0]], columns=[(123456789.25, "a")]),
        pd.DataFrame([[1.0]], columns=[123456789.25]),
    ],
    ids=lambda table: type(table).__name__,
)
def test_columns_that_may_be_values_are_refused_and_not_quoted(table):
    with pytest.raises(
        TypeError, match="give a pandas, polars or pyarrow frame|must be text"
    ) as error:
        read_columns(table, read_schema({"age": (0.0, 1.0)}))
    assert "123456789" not in str(error.value)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (("a", "b"), "categories are a list, not a tuple"),
        (("2020-13-02", "2021-01-01"), "'2020-13-02' is no date"),
        (range(0, 10, 2), "a range has the step 1"),
        ({"bounds": (0, 1), "bins": 3}, "there is no key 'bins'"),
        ({"bounds": (0.5, 3), "integer": True}, "bounds of integers are whole"),
        ([datetime.time(9, 30)], "a time of day is text"),
        (pd.Series([123456789.25]), r"got a value of type Series\.$"),
        # A missing value makes doubles of integers in pandas: the second would be the first.
        ({"categories": [2**60, 2**60 + 1], "missing": True}, "integers from .* give them as text"),
        ({"bounds": (0, 9), "scale": "cubic"}, "scale"),
        ({"bounds": DAYS, "unit": "week"}, "dates have a unit"),
        ({"bounds": (0, 9), "unit": "h"}, "a unit is that of dates"),
        ({"categories": ["a"], "dtype": "object"}, "a schema has no dtype"),
        ({"bounds": DAYS, "scale": "log"}, "and no scale"),
        ({"bounds": ("2024-01-01", "2020-01-01")}, "low must be below high"),
        ({"bounds": ("2024-01-01", 5)}, "must be declared as"),
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
        {"age": None},
        {"age": "integer"},
        {"age": (0, math.inf)},
        {"age": {"bounds": 3}},
        {"age": {"bounds": (0, 3), "integer": "yes"}},
        {"age": {"bounds": (0, 3), "levels": [1]}},
        {"age": {"categories": ["a"], "integer": True}},
        {"age": {"missing": True}},
        {"job": ["a", "a"]},
        {"job": [("a", "b")]},
        {"job": [math.nan]},
        {"job": {"categories": ["a"], "missing": 1}},
        {None: ["a", "b"]},
    ],
)
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(ValueError, match="schema|declared as|must be a list"):
        read_schema(schema)


def test_a_target_is_a_column():
    assert read_schema(SCHEMA, "job").n_classes == 3
    assert read_schema(SCHEMA, "job").features == [0, 1, 2, 3, 5]
    with pytest.raises(ValueError, match="target"):
        read_schema(SCHEMA, "salary")
    with pytest.raises(ValueError, match="another column"):
        read_schema({"job": ["cook", "judge"]}, "job")


@pytest.mark.parametrize(
    "declared, n_bands",
    [
        (range(2), 2),
        (range(5, 13), 8),
        (range(9), 4),
        (range(1_000), 4),
        ((0.0, 1.0), 4),
        ({"bounds": (1, 10_000), "integer": True, "scale": "log"}, 4),
        ({"bounds": (0, 1e6), "scale": "log", "missing": True}, 5),
        ({"bounds": ("2020-01-01", "2024-12-31")}, 4),
    ],
    ids=str,
)
def test_bands_of_numbers_are_even_on_the_scale_and_hold_whole_cells(declared, n_bands):
    schema = read_schema({"x": declared, "sex": ["F", "M"]}, "x")
    column, starts = schema.columns[0], schema.columns[0].band_starts()
    assert schema.n_classes == n_bands == len(starts) and schema.features == [0, 1]
    assert starts[0] == 0 and (np.diff(starts) > 0).all()
    # Columns with more values are counted in as many cells at first.
    assert column.n_known <= 64 or set(starts) <= {*column.even_edges(64), column.n_known}
    assert schema.classes_of(np.array([0, column.n_codes - 1])).tolist() == [0, n_bands - 1]
    if n_bands - column.missing == 4:
        positions = column.positions_of_codes(starts[1:4])
        np.testing.assert_allclose(positions, [0.25, 0.5, 0.75], atol=0.1)


@pytest.mark.parametrize("target", [None, "grade", "age"])
def test_a_schema_survives_json(target):
    schema = read_schema(SCHEMA, target)
    text = json.dumps(schema.plain())
    assert read_schema(json.loads(text)) == read_schema(text) == schema


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


# Scales, dates and columns that are not learned
# ----------------------------------------------


@pytest.mark.parametrize("bounds", [(1, 1e6), (0.01, 1.0), (0, 1e6), (-1e3, 1e6), (-50, 0)])
def test_codes_of_a_logarithmic_scale_resolve_every_magnitude(bounds):
    schema = read_schema({"income": {"bounds": bounds, "scale": "log"}})
    low, high = bounds
    steps = np.geomspace(max(abs(low), 0.01) if low > 0 else 0.01, max(abs(low), high), 40)
    values = np.clip(np.concatenate([[low, high], steps, -steps]), low, high)
    codes = read_codes(values[:, None], schema)
    order = np.argsort(values)
    assert (np.diff(codes[order, 0]) >= 0).all() and codes[:2, 0].tolist() == [0, 2**20 + 1]
    (made,) = values_of(schema, codes, 0.5)
    assert made.min() >= low and made.max() <= high
    # Where the scale is linear, near 0, it is as exact as its whole length allows.
    np.testing.assert_allclose(made, values, rtol=2e-5, atol=2e-5 * (low <= 0))


def test_integers_on_a_logarithmic_scale_begin_with_cells_of_all_magnitudes():
    gain = {"bounds": (0, 99_999), "integer": True, "scale": "log"}
    column = read_schema({"gain": gain}).columns[0]
    edges = column.even_edges(64)
    assert edges[0] == 0 and edges[-1] == column.n_known == 100_000
    assert (np.diff(edges) > 0).all() and len(edges) > 50
    assert (edges < 100).sum() > 15 and column.codes(np.array([7.0])).tolist() == [7]


MOMENTS = pd.to_datetime(["2020-01-01", "2024-12-31", "2022-06-05"])


@pytest.mark.parametrize(
    "bounds",
    [
        DAYS,
        tuple(pd.to_datetime(DAYS)),
        tuple(date.date() for date in pd.to_datetime(DAYS)),
        tuple(np.array(DAYS, dtype="datetime64[D]")),
    ],
    ids=lambda bounds: type(bounds[0]).__name__,
)
@pytest.mark.parametrize(
    "column",
    [
        pd.Series(MOMENTS),
        pd.Series(MOMENTS.strftime("%Y-%m-%d")),
        pd.Series(MOMENTS.date),
        pd.Series(list(MOMENTS), dtype=object),
        pd.Series(MOMENTS.tz_localize("UTC")),
        pl.Series(MOMENTS.date.tolist()),
    ],
    ids=lambda column: str(column.dtype),
)
def test_dates_are_read_from_all_their_types(bounds, column):
    frame = (pl if isinstance(column, pl.Series) else pd).DataFrame({"day": column})
    schema = read_schema({"day": {"bounds": bounds, "unit": "D"}})
    assert read_codes(frame, schema)[:, 0].tolist() == [0, 1826, 886]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(MOMENTS),
        pl.Series(MOMENTS.to_numpy()),
        pd.Series(["a", "b", "a"], dtype="category"),
        pd.Series(["a", "b", "a"], dtype="string"),
        pl.Series(["a", "b", "a"]),
        pd.Series([True, False, True]),
    ],
    ids=lambda column: str(column.dtype),
)
def test_types_of_frames_come_back(column):
    declared = {
        "d": DAYS, "b": [False, True], "c": ["a", "b"], "s": ["a", "b"], "o": ["a", "b"],
    }  # fmt: skip
    name = str(column.dtype).lower()[0]
    library = pl if isinstance(column, pl.Series) else pd
    frame = library.DataFrame({"x": column})
    schema = read_schema({"x": declared[name]}).typed(Table(frame))
    codes = read_codes(frame, schema)
    values = values_of(schema, codes, 0.5)
    made = write_table(Table(frame).container, read_schema(schema.plain()), values)["x"]
    if str(column.dtype) == "category":
        assert made.dtype.categories.tolist() == ["a", "b"]
        column = column.astype(made.dtype)
    # How exact times are is not taken.
    if isinstance(column.dtype, pl.Datetime):
        column = column.dt.cast_time_unit("us")
    elif getattr(column.dtype, "kind", "O") == "M":
        column = column.dt.as_unit("us")
    assert made.dtype == column.dtype
    assert [str(one)[:10] for one in made] == [str(one)[:10] for one in column]


# Each is declared, and has types that pandas finds, and asks for, with another value in one record.
ODD_RECORDS = {
    "a missing number": (
        {"bounds": (0, 99), "integer": True, "missing": True}, [1, 2, 3], [1, 2, None],
    ),
    "a large number": (range(0, 99), pd.to_numeric([1, 2], downcast="integer"), [1, 2**40]),
    "a fraction": ((0.0, 9.0), [1, 2, 3], [1, 2, 2.5]),
    "a short double": ((0.0, 9.0), pd.array([1.0, 2.0], dtype="float32"), [1.0, 2.0]),
    "text among numbers": ({"categories": [1, 2], "missing": True}, [1, 2, 1], [1, 2, "?"]),
    "a number among text": (
        {"categories": ["a", "b"], "missing": True}, pd.array(["a", "b"], dtype="string"), ["a", 3],
    ),
    "a label that is a double": ([1, 2], pd.to_numeric([1, 2], downcast="integer"), [1, 2.0]),
    "a number among truth values": ([False, True], [False, True], [False, 1]),
    "the only date": (
        {"bounds": DAYS, "missing": True}, pd.Series([None, None], dtype=object),
        [None, pd.Timestamp("2020-01-01")],
    ),
    "nanoseconds": (
        DAYS, pd.to_datetime(["2020-01-01"]), [pd.Timestamp("2020-01-01 00:00:00.1234567")],
    ),
    # pandas leaves dates as text then, in a file that it reads.
    "a time among dates": (
        DAYS, pd.to_datetime(["2020-01-01", "2020-01-02"]), ["2020-01-01", "2020-01-02T03:00"],
    ),
    "summer among winter": (
        DAYS, pd.to_datetime(["2020-01-01"] * 2).tz_localize("Europe/Berlin"),
        ["2020-01-01T00:00:00+01:00", "2020-07-01T00:00:00+02:00"],
    ),
    "a missing truth value": (
        {"categories": [False, True], "missing": True}, [False, True], [False, None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD_RECORDS)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_no_single_value_decides_about_the_type_of_a_drawn_column(odd, library):
    declared, plain, other = ODD_RECORDS[odd]
    frames = [pd.DataFrame({"x": values}) for values in (plain, other)]
    if library == "polars":
        values = [[None if one is pd.NaT else one for one in frame["x"]] for frame in frames]
        frames = [pl.DataFrame({"x": of}, strict=False) for of in values]
    schemas = [read_schema({"x": declared}).typed(Table(frame)) for frame in frames]
    assert schemas[0] == schemas[1]
    column = schemas[0].columns[0]
    codes = np.arange(2 + column.missing)[:, None]
    made = write_table(library, schemas[0], values_of(schemas[0], codes, 0.5))
    if library == "pandas":
        expected = {"a missing number": "Int64", "a missing truth value": "boolean"}
        assert str(made["x"].dtype) == expected.get(odd, str(made["x"].dtype))


@pytest.mark.parametrize("values", [["a", "b"], ["a", 1], [1, 2], [pd.Timestamp(0)]])
def test_no_value_decides_about_the_type_of_a_column_of_objects(values):
    """narwhals looks into them, and calls them text if all are."""
    table = Table(pd.DataFrame({"x": pd.Series(values, dtype=object)}))
    assert table.kind(0) == "O" and table.dtype(0) == np.dtype(object)


@pytest.mark.parametrize("dtype", ["string", "category"])
def test_what_is_in_a_computed_column_does_not_decide_about_its_type(dtype):
    """It is not read: a number among the texts would be no error."""
    labels = pd.Series(["a", "b"])
    frames = [pd.DataFrame({"x": labels, "y": y}) for y in (labels.astype(dtype), ["a", 3])]
    schema = read_schema({"x": ["a", "b"], "y": ["a", "b"]}).computing(["y"])
    assert schema.typed(Table(frames[0])) == schema.typed(Table(frames[1]))


@pytest.mark.parametrize("odd", ["2020-01-01", pd.Timestamp("2020-01-01", tz="UTC")])
def test_times_of_two_kinds_which_are_of_no_type_of_dates_are_refused(odd):
    times = pd.Series([pd.Timestamp("2021-05-05"), odd], dtype=object)
    with pytest.raises(ValueError, match="it has others, or two kinds"):
        read_columns(pd.DataFrame({"day": times}), read_schema({"day": DAYS}))


@pytest.mark.parametrize(
    ("labels", "values"), [([1, 2], ["1", "?"]), ([False, True], ["True"]), (["1", "2"], [1, 2])]
)
def test_a_column_of_another_type_than_all_labels_is_refused(labels, values):
    """As text among the numbers of a file does, and a number that is missing."""
    schema = read_schema({"x": {"categories": labels, "missing": True}})
    with pytest.raises(ValueError, match="has (text|numbers or truth values), none of which"):
        read_codes(np.array(values)[:, None], schema)
    known = pd.DataFrame({"x": np.array([*labels, None, "7", 7.5, [1], 10**5000], dtype=object)})
    assert read_codes(known, schema)[:, 0].tolist() == [0, 1, *[2] * 5]


def test_a_day_without_a_time_ends_a_range_with_all_of_its_hours():
    schema = read_schema({"at": {"bounds": DAYS, "unit": "h"}})
    assert schema.columns[0].n_known == 1827 * 24
    assert schema.intervals("at", ("2020-01-02", "2020-01-02")) == [(24, 48)]
    assert schema.intervals("at", ("2020-01-02", "2020-01-02T01:00")) == [(24, 26)]
    assert schema.intervals("at", "2020-01-01T05") == [(5, 6)]
    late = pd.DataFrame({"at": np.array(["2024-12-31T23:10", "2030-01-01", "1900-01-01"], "M8[s]")})
    assert read_codes(late, schema)[:, 0].tolist() == [1827 * 24 - 1, 1827 * 24 - 1, 0]


@pytest.mark.parametrize("value", ["01.02.2022", "2022-13-45", 20220203, 0.5, "secret"])
def test_what_is_no_date_is_refused_and_not_quoted(value):
    with pytest.raises(ValueError, match="column 'day' is declared to hold dates") as error:
        read_columns(pd.DataFrame({"day": [value]}), read_schema({"day": DAYS}))
    assert str(value) not in str(error.value)


def test_all_that_is_not_as_declared_is_said_at_once():
    frame = pd.DataFrame(ROWS).assign(age="secret", grade="best", wage=[None, 1, 2])
    with pytest.raises(ValueError, match="'age' is declared numeric.*'wage' has missing.*'grade'"):
        read_codes(frame, read_schema(SCHEMA))


def test_a_moment_in_nanoseconds_changes_no_other_record():
    schema = read_schema({"day": {"bounds": ("1500-01-01", "2100-01-01")}})
    early, late = np.datetime64("1600-01-01", "D"), np.datetime64("2020-01-01", "D")
    plain = read_codes([[early], [late]], schema)
    assert (read_codes([[early], [late.astype("M8[ns]")]], schema) == plain).all()


def of_arrow(odd, kind):
    """Return a column of three whole numbers, the last of which may be odd, read as a type."""
    return pa.table({"x": pa.array([0, 10**9, odd], pa.int64()).view(kind)})


def of_bytes(last):
    parts = [None, pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"ab" + last)]
    return pa.table({"x": pa.Array.from_buffers(pa.string(), 3, parts)})


LARGEST = 2**63 - 1
UNREADABLE = {
    "text in no encoding": (of_bytes(b"a"), of_bytes(b"\xff")),
    "a year beyond all": (of_arrow(0, pa.timestamp("s")), of_arrow(LARGEST, pa.timestamp("s"))),
    "a year beyond all in a zone": tuple(
        of_arrow(odd, pa.timestamp("us", "Asia/Tokyo")) for odd in (0, LARGEST)
    ),
    "rows of lists": ([[[1]], [[2]], [3]], [[[1]], [[2]], [[3]]]),
    "complex": ([[1], [5], [7]], [[1], [5], [7j]]),
}


@pytest.mark.parametrize("library", ["as it is", "pandas", "polars"])
@pytest.mark.parametrize("name", UNREADABLE)
def test_a_value_that_no_library_reads_changes_no_other_record(name, library):
    plain, odd = UNREADABLE[name]
    if library != "as it is":
        if isinstance(plain, list) or (library == "polars" and name.startswith("text")):
            pytest.skip("no such rows in this library")
        types = {"types_mapper": pd.ArrowDtype}
        plain, odd = (
            table.to_pandas(**types) if library == "pandas" else pl.from_arrow(table)
            for table in (plain, odd)
        )
    days = {"bounds": ("1960-01-01", "2030-01-01")}
    for declared in (days, {"bounds": (0, 9), "integer": True}, {"categories": ["a", "b"]}):
        schema = read_schema({"x": declared | {"missing": True}})
        codes = []
        for table in (plain, odd):
            try:
                codes.append(read_codes(table, schema, private=True)[:2].tolist())
            except ValueError as error:
                codes.append(str(error))
        assert codes[0] == codes[1]


class Columns(list):
    """Labels in a container of nobody's library."""

    def __array__(self, dtype=None, copy=None):
        return np.asarray(list(self), dtype=dtype)


@pytest.mark.parametrize("container", [list, tuple, collections.deque, Columns])
def test_a_label_that_is_a_list_changes_no_other_one(container):
    lists = [["a"], ["b"], ["a"]]
    for odd in ("b", ["b", "b"], [], np.array("b")):
        assert one_by_one(container([*lists[:2], odd])).tolist()[:2] == lists[:2]
    assert one_by_one(container(lists)).tolist() == lists
