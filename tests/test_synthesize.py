"""The command that makes synthetic tables: what it writes, says, charges and refuses."""

import csv
import gzip
import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator, PrivacyLedger, tables
from skdpot.__main__ import main
from skdpot.tables import read_header, read_schema, read_table_file, write_table_file

PROJECT = Path(__file__).parents[1]
SCHEMA = {
    "retired": [False, True],
    "age": {"bounds": [18, 79], "integer": True},
    "wage": {"bounds": [0.0, 9000.0], "missing": True},
    "room": {"categories": [1, 2], "missing": True},
    "grade": {"levels": ["low", "high"]},
}
# So many that no text has them by chance.
N_RECORDS = 1213


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a private table, its schema, and a column that is not declared."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, N_RECORDS)
    with (tmp_path / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "age", "wage", "room", "grade", "retired"])
        for i, years in enumerate(age):
            wage = "" if i % 7 == 0 else f" {rng.uniform(0, 9000):.2f}"
            room = ["1", "2.0", "NA"][i % 3]
            writer.writerow([f"s3cret{i}", years, wage, room, "high", str(years > 65).upper()])
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


def run(folder, *arguments, rows="500", out="made.csv"):
    places = [str(folder / "data.csv"), "--schema", str(folder / "schema.json")]
    made = ["--rows", rows, "--out", str(folder / out)]
    return main(["synthesize", *places, "--epsilon", "2", *made, *arguments])


@pytest.mark.parametrize("end", ["", ".key", "-wal"])
def test_no_result_replaces_a_ledger(end, folder, capsys):
    ledger = folder / "budget.sqlite"
    PrivacyLedger(3.0, 1e-4, path=ledger, neighbouring="add_remove")
    there = ledger.read_bytes()
    assert run(folder, "--ledger", str(ledger), "--save", f"{ledger}{end}") == 1
    assert "name another" in capsys.readouterr().err
    assert ledger.read_bytes() == there and not PrivacyLedger.open(ledger).entries()


def test_no_part_and_no_sum_replaces_what_is_read(folder, capsys):
    data, part = folder / "data.csv", folder / "north.part"
    part.write_bytes(b"a part")
    agreement = folder / "agreement.json"
    agreement.write_text("{}")
    of_part = ["part", str(data), "--agreement", str(agreement), "--owner", "north"]
    of_part += ["--ledger", str(folder / "mine.sqlite")]
    for command in (
        [*of_part, "--out", str(data)],
        [*of_part, "--out", str(agreement)],
        ["combine", str(part), "--out", str(part)],
    ):
        assert main(command) == 1
        assert "is not replaced" in capsys.readouterr().err
    assert part.read_bytes() == b"a part" and agreement.read_text() == "{}"


def test_a_synthetic_table_is_written_and_charged_and_the_generator_kept(folder, capsys):
    ledger, saved = folder / "budget.sqlite", folder / "made.npz"
    arguments = ["--target", "retired", "--ledger", str(ledger), "--save", str(saved)]
    arguments += ["--report", str(folder / "report.html")]
    assert run(folder, *arguments, "--budget", "3", "1e-4") == 0
    told = capsys.readouterr()
    assert "Preview of a release" in told.out and "from 0 to 2 of 3" in told.out
    assert "(2, 1e-05)-differentially private for every record (add_remove)" in told.out
    assert "does not declare the columns ['id']: they are left out" in told.err
    # Neither a value nor how many there are, which is private where records are added or removed.
    said = re.sub(r"counts about [\d,]+", "", told.out + told.err)
    assert not any(text in said for text in ("s3cret", str(N_RECORDS), "1,213"))
    made = pd.read_csv(folder / "made.csv")
    assert made.shape == (500, 5) and list(made) == list(SCHEMA)
    assert made["age"].between(18, 79).all() and set(made["room"].dropna()) == {1, 2}
    assert made.loc[made["retired"], "age"].mean() > made.loc[~made["retired"], "age"].mean() + 15
    assert 0.05 < made["wage"].isna().mean() < 0.25
    loaded = DPSinkhornGenerator.load(saved)
    assert list(loaded.sample(3)) == list(SCHEMA)
    report = (folder / "report.html").read_text()
    assert "worst first" in report and report == loaded.quality().to_html()
    book = PrivacyLedger.open(ledger)
    spent = book.spent()
    assert spent == pytest.approx((2, 1e-5))
    assert "Charged: epsilon 2 and delta 1e-05" in told.out and "Left: epsilon 1 and" in told.out
    assert json.loads(told.out.rpartition("ledger: ")[2]) == asdict(book.receipt())
    # The second one is beyond the budget, and says so in one line.
    assert run(folder, "--ledger", str(ledger), out="second.csv") == 1
    assert PrivacyLedger.open(ledger).spent() == spent
    assert not (folder / "second.csv").exists()


def test_people_are_protected_and_made_with_all_their_rows(folder, capsys):
    frame = pd.DataFrame({
        "who": [f"s3cret{i // 3}" for i in range(900)], "stars": [1, 3, 5] * 300, "id": "x",
    })  # fmt: skip
    frame.to_csv(folder / "visits.csv", index=False)
    schema = {"stars": {"bounds": [1, 5], "integer": True}, "id": {"categories": ["x", "y"]}}
    (folder / "visits.json").write_text(json.dumps(schema))
    places = [str(folder / "visits.csv"), "--schema", str(folder / "visits.json")]
    options = ["--epsilon", "30", "--out", str(folder / "made.csv"), "--groups", "who"]
    options += ["--rows", "200", "--report", str(folder / "report.txt")]
    assert main(["synthesize", *places, *options]) == 0
    told = capsys.readouterr()
    assert "for every user" in told.out and "s3cret" not in told.out + told.err
    assert "Errors are those of 200 people" in told.out and "mean of 'stars'" in told.out
    made = pd.read_csv(folder / "made.csv")
    assert list(made) == ["who", "stars", "id"] and made["who"].nunique() == 200
    assert 2 < len(made) / 200 < 5
    assert f"200 synthetic people with {len(made)} records" in told.out
    assert "people. Guarantee" in (folder / "report.txt").read_text()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_template_has_the_columns_and_no_value_and_has_to_be_filled_in(suffix, folder, capsys):
    data, schema = folder / f"people.{suffix}", folder / "people.json"
    frame = pd.DataFrame({"age": [7777, 30], "job": ["s3cret", "cook"]})
    getattr(frame, f"to_{suffix}")(data, index=False)
    assert main(["template", str(data), "--out", str(schema)]) == 0
    written = schema.read_text()
    assert "s3cret" not in written and "7777" not in written
    assert list(json.loads(written)) == ["format", "age", "job"]
    assert ("bounds" in written) == (suffix == "parquet")
    told = capsys.readouterr().out
    assert 'have "levels"' in told and ('"2024-12-31"]} for dates' in told) == (suffix == "csv")
    again = main(["template", str(data), "--out", str(schema)])
    options = ["--schema", str(schema), "--epsilon", "1", "--preview", "--records", "100"]
    assert again == main(["synthesize", str(data), *options]) == 1
    told = capsys.readouterr().err
    assert "FILL IN" in told and "exists, and is not replaced" in told and "Errno" not in told


@pytest.mark.parametrize("record", ["s3cret,41.5,low", "s3cret,low,s3cret"])
def test_a_record_is_not_taken_for_names(record, folder, capsys):
    data, schema = folder / "bare.csv", folder / "bare.json"
    data.write_text(f"{record}\nother,1,high\n")
    assert main(["template", str(data), "--out", str(schema)]) == 1
    told = capsys.readouterr()
    assert "add a line of names above" in told.err and not schema.exists()
    assert not any(text in told.out + told.err for text in ("s3cret", "41.5"))


def test_a_preview_reads_no_data_and_writes_nothing(folder, capsys):
    (folder / "data.csv").unlink()
    before = sorted(folder.iterdir())
    arguments = ["--ledger", str(folder / "b.sqlite"), "--budget", "3", "1e-4"]
    assert run(folder, "--preview", "--records", "20000", *arguments) == 0
    told = capsys.readouterr().out
    assert "standard error of the mean of 'age'" in told and "from 0 to 2 of 3" in told
    assert sorted(folder.iterdir()) == before


def test_dates_and_missing_values_are_written_as_they_are_read(tmp_path):
    days = np.array(["2024-02-29", "NaT"], dtype="datetime64[us]")
    times = np.array(["2024-02-29T12:30", "2024-02-29"], dtype="datetime64[us]")
    frame = pd.DataFrame({"day": days, "time": times, "word": ["a,b", None]})
    write_table_file(tmp_path / "made.csv", frame)
    lines = (tmp_path / "made.csv").read_text().splitlines()
    assert lines == [
        "day,time,word",
        '2024-02-29,2024-02-29 12:30:00,"a,b"',
        ",2024-02-29 00:00:00,",
    ]
    schema = read_schema({"word": {"categories": ["a,b"], "missing": True}})
    found = read_table_file(tmp_path / "made.csv", schema.columns)
    assert found["word"].tolist() == ["a,b", None]


@pytest.mark.parametrize(
    "step, error",
    [("save", OSError), ("sample", KeyboardInterrupt), ("write_table_file", OSError),
     ("quality", MemoryError)],
)  # fmt: skip
def test_what_was_charged_is_kept_whatever_fails(step, error, folder, capsys, monkeypatch):
    """A table that is written in part does not have its name."""

    def break_off(*args):
        monkeypatch.undo()
        if step == "write_table_file":
            args[0].write_text("age\n")
        raise error

    home = tables if step == "write_table_file" else DPSinkhornGenerator
    monkeypatch.setattr(home, step, break_off)
    status = run(folder, "--report", str(folder / "report.txt"))
    assert status == (130 if error is KeyboardInterrupt else 3)
    assert (folder / "made.csv").exists() == (step in ("save", "quality"))
    place = capsys.readouterr().err.partition("The release is in ")[2].partition(": ")[0]
    assert (place == str(folder / "made.csv.npz")) == (step != "save")
    assert len(DPSinkhornGenerator.load(place).sample(7)) == 7


def test_files_of_other_programs_are_read_and_compressed_ones_written(folder, capsys):
    data, schema, made = (folder / name for name in ("data.csv.gz", "schema.json", "made.csv.gz"))
    lines = [" x \ty\tdrink", *["0,5\t-9\tcaf\u00e9", "1,5\t1.000\tth\u00e9"] * 450]
    data.write_bytes(gzip.compress("\n".join(lines).encode("latin-1")))
    declared = {
        "x": {"categories": [0.5, 1.5]},
        "y": {"bounds": [0, 5], "missing": True},
        "drink": ["caf\u00e9", "th\u00e9"],
    }
    options = ["--sep", "\\t", "--encoding", "latin-1", "--decimal", ",", "--na", "-9"]
    template = ["template", str(data), "--out", str(folder / "template.json")]
    assert main(template) == 1 and "no text in UTF-8" in capsys.readouterr().err
    assert main([*template, *options]) == 0
    assert list(json.loads((folder / "template.json").read_text())) == ["format", *declared]
    reading = {"sep": "\t", "encoding": "latin-1", "decimal": ",", "na": ["-9"]}
    read = read_table_file(data, read_schema(declared).columns, **reading)
    # The point separates thousands there: it is no number, and not 1.
    assert read.iloc[1].tolist() == [1.5, "1.000", "th\u00e9"] and np.isnan(read["y"].iloc[0])
    schema.write_text(json.dumps(declared))
    arguments = ["--epsilon", "5", "--rows", "300", "--out", str(made), *options]
    assert main(["synthesize", str(data), "--schema", str(schema), *arguments]) == 0
    assert set(pd.read_csv(made)["drink"]) == {"caf\u00e9", "th\u00e9"}
    read.set_axis([" x ", "y", "drink"], axis=1).astype(str).to_parquet(folder / "data.parquet")
    assert list(read_table_file(folder / "data.parquet", [])) == list(declared)
    assert list(read_header(folder / "data.parquet")) == list(declared)
    with pytest.raises(ValueError, match="are for CSV files"):
        read_table_file(folder / "data.parquet", [], na=["-9"])


@pytest.mark.refuses_useless
@pytest.mark.filterwarnings("always:nearly all")
def test_decimal_commas_are_asked_for_where_semicolons_separate(folder, capsys):
    (folder / "data.csv").write_text("wage;sex\n" + "12,5;f\n7,25;m\n" * 500)
    schema = {"wage": {"bounds": [0, 20], "missing": True}, "sex": ["f", "m"]}
    (folder / "schema.json").write_text(json.dumps(schema))
    # The second time beside the warning that all of them are missing.
    for options, times in (
        (["--preview"], 1), (["--preview", "--decimal", "."], 0), ([], 2), (["--decimal", ","], 0),
    ):  # fmt: skip
        assert run(folder, "--sep", ";", *options, out=f"{times}{len(options)}.csv") == 0
        assert capsys.readouterr().err.count("for such as 12,5 add --decimal ,") == times


WRONG_FILES = {
    "no schema": ("schema.json", None, "writes one to be filled in"),
    "a record instead of names": ("data.csv", "s3cret,s3cret2\n3,4", "lacks the columns"),
    "a column that lacks": ("data.csv", "age,wage\n3,4", "lacks the columns"),
    "a column twice": ("data.csv", "age,age\n3,4", "is there twice"),
    "no data": ("data.csv", None, "there is no file"),
    "no rows": ("data.csv", "age,wage,room,grade,retired\n", "no records"),
    "a short line": ("data.csv", "age,wage,room,grade,retired\n1,2\n", "more or fewer fields"),
    "no text": ("data.csv", b"age\n\xff\n", "no text in UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_file_is_said_in_a_line_and_nothing_is_charged(case, folder, capsys):
    name, content, message = WRONG_FILES[case]
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    ledger = folder / "budget.sqlite"
    assert run(folder, "--ledger", str(ledger), "--budget", "3", "1e-4") == 1
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told and "s3cret" not in told
    assert not ledger.exists() or PrivacyLedger.open(ledger).entries() == []
    assert not (folder / "made.csv").exists()


def test_a_value_that_is_not_declared_is_said_to_nobody(folder, capsys):
    told = []
    for number, (age, grade) in enumerate(((20, "low"), (20, "s3cret"), ("s3cret", "low"))):
        rows = f"age,wage,room,grade,retired\n{age},2,1,{grade},True\n"
        (folder / "data.csv").write_text(rows)
        assert run(folder, out=f"{number}.csv") == 0
        said = capsys.readouterr().out.replace(f"{number}.csv", "made.csv")
        # A count of the release.
        told.append(re.sub(r"about [\d,]+", "", said))
        assert set(pd.read_csv(folder / f"{number}.csv")["grade"]) <= {"low", "high"}
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--out", "data.csv"], "not replaced"),
        (["--out", "made.xlsx"], ".csv or .parquet"),
        (["--out", "no/folder/made.csv"], "cannot be written"),
        (["--save", "kept.csv"], "not replaced"),
        (["--report", "report.pdf"], ".html"),
        (["--budget", "3", "1e-4"], "--ledger"),
        (["--ledger", "none.sqlite"], "--budget EPSILON DELTA"),
        (["--ledger", "new.sqlite", "--budget", "3", "1e-6"], "give a smaller --delta"),
        (["--target", "nobody"], "target must be a column"),
        (["--epsilon", "0.0001"], "would be useless"),
    ],
)
def test_wrong_options_are_refused_before_data_are_read(
    arguments, message, folder, capsys, monkeypatch
):
    monkeypatch.chdir(folder)
    (folder / "kept.csv").write_text("mine")
    assert run(folder, *arguments) == 1
    assert message in capsys.readouterr().err
    assert (folder / "kept.csv").read_text() == "mine"
    assert not list(folder.glob("*.sqlite*"))


@pytest.mark.filterwarnings("ignore:nothing was found of")
def test_a_schema_is_found_within_the_budget(folder, capsys):
    ledger = str(folder / "auto.sqlite")
    data, made = str(folder / "data.csv"), folder / "made.csv"
    options = ["--epsilon", "4", "--rows", "300", "--out", str(made), "--ledger", ledger]
    assert main(["synthesize", data, "--schema", "auto", *options, "--budget", "9", "1e-4"]) == 0
    said = capsys.readouterr()
    assert "records that a category needs to be found" in said.out and "s3cret" not in said.err
    drawn = pd.read_csv(made, dtype={"retired": str})
    assert list(drawn) == ["id", "age", "wage", "room", "grade", "retired"]
    assert drawn["age"].dropna().between(0, 127).all() and set(drawn["id"].dropna()) == {"other"}
    assert set(drawn["retired"].dropna()) <= {"TRUE", "FALSE", "other"}
    options = ["--epsilon", "1", "--rows", "9", "--out", str(folder / "no.csv"), "--groups", "id"]
    assert main(["synthesize", data, "--schema", "auto", *options]) == 1
    assert "groups are for tables with a schema" in capsys.readouterr().err
