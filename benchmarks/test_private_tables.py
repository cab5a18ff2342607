"""Private tables made by ours and by peers: what models learn from them, errors, time, memory.

Run with ``SKDPOT_TABLES=FOLDERS python -m pytest benchmarks -m benchmark -s -k
test_private_tables``. The folders, separated as those of PATH are, hold the files that
`table_sets.SOURCES` names; a table whose file is missing is skipped. Nothing is downloaded, and
nothing is asserted about who wins. Every result is written into ``table_results.json`` as soon as
it is there, and ``doc/tables_measured.inc`` is written from it. Results that the file holds are not
computed again, so a run that was stopped goes on. Ours is computed again with
``SKDPOT_TABLES_AGAIN=ours``, and so is another method by its name.

A peer is run where a variable names an interpreter that has it: ``SKDPOT_DPMM_PYTHON`` one with
dpmm, ``SKDPOT_PGM_PYTHON`` one with mbi, beside ``SKDPOT_PRIVATE_PGM``, the folder of mechanisms of
a copy of private-pgm. ``SKDPOT_TABLES_ONLY`` names methods, epsilons or tables to be run alone,
separated by semicolons.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.table_board import (
    DELTA,
    EPSILONS,
    OURS,
    PAGE,
    REAL,
    TableBoard,
    TableResult,
    page_of,
    table_of,
)
from benchmarks.table_measures import measures, measures_of_real
from benchmarks.table_methods import METHODS
from benchmarks.table_sets import NAMES, TITLES, load_set

ROOT = Path(__file__).parents[1]
PYTHONS = {
    "ours": sys.executable,
    "AIM": os.environ.get("SKDPOT_DPMM_PYTHON"),
    "MST": os.environ.get("SKDPOT_DPMM_PYTHON"),
    "PrivBayes": os.environ.get("SKDPOT_DPMM_PYTHON"),
    "MST, private-pgm": os.environ.get("SKDPOT_PGM_PYTHON"),
}
# AIM takes minutes to hours.
SEEDS = {"AIM": 3}
N_SEEDS = 5
# Seconds of the processor after which a run is ended; 0 is no limit.
LIMIT = int(os.environ.get("SKDPOT_TABLES_LIMIT", 0))
# Larger graphical models take too long, and so do more steps of their fits; AIM's starts from the
# last one. Parities have to be in the workload.
_AIM = {"max_model_size": 4, "n_iters": 200}
OPTIONS = {("AIM", name): _AIM | {"degree": 4 if name == "xor3" else 2} for name in NAMES}
OPTIONS |= {(method, name): {"n_iters": 400} for method in ("MST", "PrivBayes") for name in NAMES}


def run_method(table, method, epsilon, seed, folder):
    """Return the result of one method, run in a process of its own; a failure is a result too."""
    options = OPTIONS.get((method, table.name), {})
    shown = [f"{name}={value}" for name, value in options.items()]
    task = {"epsilon": epsilon, "delta": DELTA, "seed": seed, "sizes": table.sizes}
    task |= {"schema": table.schema, "target": table.target}
    task |= {"options": options, "limit": LIMIT}
    (folder / "task.json").write_text(json.dumps(task))
    if method == OURS:
        table.train.to_pickle(folder / "records.pkl")
    else:
        table.codes(table.train).to_csv(folder / "codes.csv", index=False)
    program = Path(__file__).with_name("table_methods.py")
    environment = os.environ | {"PYTHONPATH": str(ROOT) if method == OURS else ""}
    ended = subprocess.run(
        [PYTHONS[method], "-W", "ignore", program, method, folder],
        env=environment,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    key = table.name, method, epsilon, seed
    if ended.returncode:
        is_late = LIMIT and ended.returncode == -signal.SIGKILL
        failure = f"over {LIMIT} s" if is_late else "error"
        package = " ".join([METHODS[method][1], *shown])
        return TableResult(*key, {}, float(LIMIT), 0.0, package, failure)
    told = json.loads((folder / "told.json").read_text())
    if method == OURS:
        made = pd.read_pickle(folder / "made.pkl")
    else:
        made = table.values(pd.read_csv(folder / "made.csv"), seed)
    version = " ".join([told.pop("version"), *shown])
    return TableResult(*key, measures(table, made), version=version, **told)


def tasks_of(name):
    """Return what is to be run on a table: methods, epsilons and seeds."""
    only = set(filter(None, os.environ.get("SKDPOT_TABLES_ONLY", "").split(";")))
    wanted_methods = [m for m in METHODS if PYTHONS[m] and (m in only or not only & set(METHODS))]
    epsilons = [e for e in EPSILONS if f"{e:g}" in only] or EPSILONS
    if only & set(NAMES) and name not in only:
        return []
    return [
        (method, epsilon, seed)
        for seed in range(N_SEEDS)
        for epsilon in epsilons
        for method in wanted_methods
        if seed < SEEDS.get(method, N_SEEDS)
    ]


@pytest.mark.benchmark
@pytest.mark.parametrize("name", NAMES)
def test_private_tables(name, tmp_path):
    folders = os.environ.get("SKDPOT_TABLES", "").split(os.pathsep)
    table = load_set(name, [Path(folder) for folder in folders])
    if table is None:
        pytest.skip("its file is in no folder of SKDPOT_TABLES")
    again = os.environ.get("SKDPOT_TABLES_AGAIN")
    tasks = tasks_of(name)
    if tasks and not TableBoard.load().select(table=name, method=REAL):
        add(TableResult(name, REAL, 0.0, 0, measures_of_real(table), 0.0, 0.0, "as published"))
    for method, epsilon, seed in tasks:
        known = TableBoard.load().select(table=name, method=method, epsilon=epsilon, seed=seed)
        if not known or method == again:
            add(run_method(table, method, epsilon, seed, tmp_path))
    print("", name, *table_of(TableBoard.load(), name), sep="\n")


def add(result):
    board = TableBoard.load()
    board.add(result)
    board.save()
    PAGE.write_text(page_of(board, TITLES))
