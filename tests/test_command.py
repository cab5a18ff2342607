"""Commands without tables: the demo, the kernels, ledgers, and wrong command lines."""

import contextlib
import hashlib
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
    """Return a ledger whose second release was interrupted."""
    ledger = PrivacyLedger(3.0, path=tmp_path / "budget.sqlite")
    ledger.finish(ledger.charge(PureDpEvent(1.0), unit="record", label="salaries", pending=True))
    ledger.charge(PureDpEvent(0.5), unit="record", label="ages", pending=True)
    return ledger


def test_a_ledger_is_shown_copied_and_restored(ledger, tmp_path, capsys):
    def told(what, *options, status=0, of=ledger.path):
        assert main(["ledger", what, str(of), *options]) == status
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
    assert PrivacyLedger.open(copy).remaining() == (1.5, 0.0)
    assert "none.sqlite" in told("report", of=tmp_path / "none.sqlite", status=1)


def edited(ledger, number):
    """Return a copy of a ledger that was damaged in one of many ways."""
    rng, path = random.Random(number), ledger.path.with_name(f"{number}.sqlite")
    ledger.backup(path)
    content = bytearray(path.read_bytes())
    if number % 3 == 0:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content[: rng.randrange(len(content))] if number % 3 == 1 else content)
    if number % 3 < 2:
        return path
    name = rng.choice(["time", "unit", "label", "event", "pair", "seeded", "part", "kind"])
    value = rng.choice(["null", "3", "'x'", "json('[]')", "json('{\"a\": 1}')"])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("DROP TRIGGER records_are_not_changed")
        file.execute(
            f"UPDATE records SET body = json_set(body, '$.{name}', {value}) WHERE number = 1"
        )
        # The chain of digests is made anew, as anybody can without a key.
        digest = ""
        for number, body in file.execute("SELECT number, body FROM records").fetchall():
            digest = hashlib.sha256(f"{digest}\n{body}".encode()).hexdigest()
            file.execute("UPDATE records SET digest = ? WHERE number = ?", (digest, number))
        if rng.random() < 0.1:
            file.execute("DROP TABLE records")
    return path


@pytest.mark.parametrize("number", range(40))
def test_an_edited_ledger_is_refused_in_one_sentence_at_every_entry(number, ledger, capsys):
    path = edited(ledger, number)
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


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--warm"], ["ledger"]])
def test_a_wrong_command_line_is_explained(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_it_runs_as_a_module_and_imports_no_more_than_it_needs():
    script = (
        "import runpy, sys; sys.argv = ['skdpot', '--version']\n"
        "try: runpy.run_module('skdpot', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'pandas', 'skdpot.fairness'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"skdpot {__version__}\n"
