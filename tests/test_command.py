"""Commands without tables: the demo, the kernels, ledgers, and wrong command lines."""

import contextlib
import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from skdpot import PrivacyLedger, __version__
from skdpot.__main__ import main
from skdpot.privacy import LedgerError, PureDpEvent, Receipt

PROJECT = Path(__file__).parents[1]
OF_TABLE = "synthesize data.csv --schema schema.json"


def test_the_demo_shows_a_released_number_and_rows(capsys, monkeypatch):
    # The first command of the README installs neither.
    monkeypatch.setitem(sys.modules, "skdpot.generative._torch", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert main(["demo"]) == 0
    told = capsys.readouterr().out
    assert 5 < float(told.partition("epsilon = 1: ")[2].partition(" ")[0]) < 8
    assert told.count("\n [") == 4 and "has charged epsilon = 3.00 of 3" in told


@pytest.fixture
def ledger(tmp_path):
    """Return a ledger with a key, whose second release was interrupted."""
    (tmp_path / "secret").write_bytes(b"key")
    ledger = PrivacyLedger(3.0, path=tmp_path / "budget.sqlite", key=b"key")
    ledger.finish(ledger.charge(PureDpEvent(1.0), unit="record", label="salaries", pending=True))
    ledger.charge(PureDpEvent(0.5), unit="record", label="ages", pending=True)
    return ledger


def test_a_ledger_is_shown_copied_and_restored(ledger, tmp_path, capsys):
    def told(what, *options, status=0, of=ledger.path):
        command = ["ledger", what, str(of), "--key", str(tmp_path / "secret"), *options]
        assert main(command) == status
        said = capsys.readouterr()
        return said.err if status else json.loads(said.out) if "--json" in options else said.out

    lines = told("charges").splitlines()
    assert ["charged, not released" in line for line in lines] == [False, True]
    assert "ages (charged, not released)" in told("report")
    assert [each["released"] for each in told("charges", "--json")] == [True, False]
    assert told("report", "--json")["units"][0]["spent"] == [1.5, 0.0]
    assert str(told("backup", "--json")["backup"]) == f"{ledger.path}.backup"
    assert "is not replaced" in told("backup", status=1)
    ledger.charge(PureDpEvent(0.25), unit="record", label="heights")
    receipt = told("receipt")
    assert Receipt(**json.loads(receipt)) == ledger.receipt()
    assert "heights" in told("charges", "--after", receipt)
    # The copy is an old ledger, as the receipt tells.
    copy = ledger.path.with_name("budget.sqlite.backup")
    assert "is missing" in told("report", "--after", receipt, of=copy, status=1)
    assert PrivacyLedger.open(copy, key=b"key").remaining() == (1.5, 0.0)
    assert main(["ledger", "report", str(ledger.path)]) == 1
    assert "Open it with the key" in capsys.readouterr().err
    assert "none.sqlite" in told("report", of=tmp_path / "none.sqlite", status=1)


@pytest.mark.parametrize("number", range(40))
def test_an_edited_ledger_is_refused_in_one_sentence_at_every_entry(number, ledger, capsys):
    rng, path = random.Random(number), ledger.path.with_name("edited.sqlite")
    ledger.backup(path)
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content[: rng.randrange(len(content))] if number % 2 else content)
    if number < 2:
        path.write_bytes(ledger.path.read_bytes())
        with contextlib.closing(sqlite3.connect(path)) as file:
            file.execute(f"ALTER TABLE {('records', 'pending')[number]} RENAME TO others")
    for call in (
        lambda: PrivacyLedger.open(path),
        lambda: PrivacyLedger.open(path).entries(as_frame=True),
        lambda: PrivacyLedger.open(path).report().to_html(),
        lambda: PrivacyLedger.open(path).quote(PureDpEvent(0.1), unit="record"),
    ):
        # What it is damaged in may be of no use to it.
        with contextlib.suppress(LedgerError):
            call()
    for what in ("report", "charges", "receipt", "backup"):
        status = main(["ledger", what, str(path), "--json"])
        said = capsys.readouterr().err
        assert (status, len(said.splitlines())) in ((0, 0), (1, 1))
        assert not said or "ledger" in said or "record" in said


@pytest.mark.experiment
def test_kernels_can_be_compiled_in_advance(capsys):
    assert main(["warm"]) == 0
    assert "All kernels are compiled" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        "", "nonsense", "--warm", "ledger", f"{OF_TABLE}", f"{OF_TABLE} --rows 5 --out made.csv",
        f"{OF_TABLE} --epsilon 0 --rows 5 --out made.csv", f"{OF_TABLE} --epsilon 1 --out made.csv",
        f"{OF_TABLE} --epsilon 1 --rows 0 --out made.csv", f"{OF_TABLE} --epsilon 1 --preview",
        "ledger report none.sqlite --after nothing", "ledger report none.sqlite --out copy",
        f"{OF_TABLE} --epsilon 1 --decimal ;",
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_explained(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_it_runs_as_a_module_and_imports_no_more_than_it_needs():
    script = (
        "import runpy, sys; sys.argv = ['skdpot', '--version']\n"
        "try: runpy.run_module('skdpot', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'pandas', 'skdpot.fairness'} & set(sys.modules)\n"
        "import skdpot.display; assert 'matplotlib' not in sys.modules"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"skdpot {__version__}\n"
