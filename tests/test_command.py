"""Commands without files: the demo, the kernels, a ledger's report, and wrong command lines."""

import subprocess
import sys
from pathlib import Path

import pytest

from skdpot import PrivacyLedger, __version__
from skdpot.__main__ import main
from skdpot.privacy import PureDpEvent

PROJECT = Path(__file__).parents[1]


def test_the_demo_shows_a_released_number_and_rows(capsys, monkeypatch):
    # The first command of the README installs neither.
    monkeypatch.setitem(sys.modules, "skdpot.generative._torch", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert main(["demo"]) == 0
    told = capsys.readouterr().out
    assert 5 < float(told.partition("epsilon = 1: ")[2].partition(" ")[0]) < 8
    assert told.count("\n [") == 4 and "has charged epsilon = 3.00 of 3" in told


def test_a_ledger_is_shown(tmp_path, capsys):
    ledger = PrivacyLedger(3.0, path=tmp_path / "budget.sqlite")
    ledger.charge(PureDpEvent(1.0), unit="record", label="salaries")
    assert main(["ledger", str(tmp_path / "budget.sqlite")]) == 0
    assert "salaries" in capsys.readouterr().out
    assert main(["ledger", str(tmp_path / "none.sqlite")]) == 1
    assert "none.sqlite" in capsys.readouterr().err


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
