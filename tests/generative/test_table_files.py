"""Files of tables: what was written is read, whatever columns and labels are called."""

import numpy as np
import pytest

from skdpot.tables import (
    make_table,
    read_codes,
    read_schema,
    read_table_file,
    write_table,
    write_table_file,
)

DAYS = ["2020-01-01", "2020-01-09"]
# Names, declarations and values of columns.
COLUMNS = {
    "commas": ("a,b", ["x,y", "z"], ["x,y", "z", "x,y"]),
    "quotes": ('said "hi"', ['"q"', "it's"], ['"q"', "it's", '"q"']),
    "lines": ("a\nb", ["x\ny", "z"], ["x\ny", "z", "z"]),
    "blanks": (" a ", [" x", "y "], [" x", "y ", "y "]),
    "tabs": ("a;b", ["x;y", "z\t"], ["x;y", "z\t", "z\t"]),
    "a number as a name": (1, [0, 1, 2], [2, 0, 1]),
    "no name": ("", ["x", "y"], ["x", "y", "y"]),
    "truth values": ("b", {"categories": [False, True], "missing": True}, [True, None, False]),
    "text like truth values": ("b", ["True", "False"], ["True", "False", "True"]),
    "text like missing values": ("b", ["NA", "None", ""], ["NA", "None", ""]),
    "text like numbers": ("b", ["01", "1", "1.0"], ["01", "1", "1.0"]),
    "numbers as labels": ("b", [0.5, 1.0, 1e22], [0.5, 1e22, 1.0]),
    "numbers and text": ("b", ["a", 1], ["a", 1, "a"]),
    "other letters": ("größe", ["é", "日本"], ["日本", "é", "é"]),
    "formulas": ("=a", ["=1+1", "-x"], ["=1+1", "-x", "-x"]),
    "a missing integer": (
        "i", {"bounds": (0, 9), "integer": True, "missing": True}, [3.0, np.nan, 0.0],
    ),
    "days": ("d", {"bounds": DAYS, "missing": True}, ["2020-01-02", None, "2020-01-09"]),
}  # fmt: skip


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("case", COLUMNS)
def test_what_was_written_is_read(case, suffix, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    name, declared, values = COLUMNS[case]
    schema = read_schema({name: declared, "k": [0, 1]})
    columns = [np.array(values, dtype=None if case == "a missing integer" else object), np.ones(3)]
    frame = make_table("pandas", [name, "k"], columns, ["object", "object"])
    codes = read_codes(frame, schema)
    drawn = write_table(
        "pandas", schema, schema.presented(schema.plain_values(codes, np.full(codes.shape, 0.5)))
    )
    path = tmp_path / f"table{suffix}"
    write_table_file(path, drawn)
    found = read_table_file(path, schema.columns)
    np.testing.assert_array_equal(read_codes(found, schema), codes)


@pytest.mark.parametrize("kind", ["date32", "text"])
def test_what_a_parquet_file_has_beyond_all_years_and_letters_is_not_quoted(kind, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    made = {
        "date32": lambda: arrow.array([2**30 + 7], arrow.date32()),
        "text": lambda: arrow.Array.from_buffers(
            arrow.string(), 1,
            [None, arrow.py_buffer(np.array([0, 1], np.int32)), arrow.py_buffer(b"\xfe")],
        ),
    }  # fmt: skip
    parquet.write_table(arrow.table({"d": made[kind]()}), tmp_path / "table.parquet")
    schema = read_schema({"d": ["x"] if kind == "text" else DAYS})
    with pytest.raises(ValueError, match="cannot be read as a Parquet file") as error:
        read_table_file(tmp_path / "table.parquet", schema.columns)
    assert error.value.__context__ is None
    assert not any(quoted in str(error.value) for quoted in (str(2**30 + 7), "0xfe"))


def test_a_time_beyond_all_years_is_missing(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    times = arrow.array([2**60 + 7, 0], arrow.timestamp("ms"))
    path = tmp_path / "table.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table({"d": times}), path)
    schema = read_schema({"d": {"bounds": ["1970-01-01", "2024-12-31"], "missing": True}})
    codes = read_codes(read_table_file(path, schema.columns), schema, private=True)
    assert codes[:, 0].tolist() == [schema.columns[0].n_known, 0]


@pytest.mark.parametrize("labels", [["x", " x"], [1, "1"]])
def test_labels_that_a_file_does_not_tell_apart_are_refused(labels, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a\nx\n")
    with pytest.raises(ValueError, match="look the same in a file"):
        read_table_file(path, read_schema({"a": labels}).columns)
