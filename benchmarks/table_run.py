"""Private tables made by ours and by peers: what models learn from them, errors, time, memory.

Run with ``python -m benchmarks.table_run --data FOLDER``, where the folder holds the files that
`table_sets.SOURCES` names; a table whose file is missing is left out. Nothing is downloaded. A
result is written as soon as it is there, and one that is known is not computed again, so a run that
was stopped goes on. ``--again`` computes what is chosen anew; ``--page`` only writes the pages of
the documentation from the results.

A peer is run where a variable names an interpreter that has it: ``SKDPOT_DPMM_PYTHON`` one with
dpmm; ``SKDPOT_PGM_PYTHON`` one with mbi, beside ``SKDPOT_PRIVATE_PGM``, the folder of mechanisms of
a copy of private-pgm; ``SKDPOT_SWIFT_PYTHON`` one with what dpsynth needs, beside
``SKDPOT_DPSYNTH``, the path of dpsynth and of dp-accounting. ``--checkout`` is the folder whose
skdpot is measured.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd

from benchmarks.table_board import (
    BINNED,
    DELTA,
    ERRORS_SUMMARY,
    OURS,
    PAGE,
    REAL,
    RESULTS,
    SUMMARY,
    TableBoard,
    TableResult,
    errors_of,
    page_of,
    summary_of,
)
from benchmarks.table_measures import measures, measures_of_real, noise_of, with_noise
from benchmarks.table_methods import METHODS
from benchmarks.table_sets import NAMES, TITLES, load_set

ROOT = Path(__file__).parents[1]
PYTHONS = {
    OURS: sys.executable,
    BINNED: sys.executable,
    "independent": sys.executable,
    "AIM": os.environ.get("SKDPOT_DPMM_PYTHON"),
    "MST": os.environ.get("SKDPOT_DPMM_PYTHON"),
    "PrivBayes": os.environ.get("SKDPOT_DPMM_PYTHON"),
    "MST, private-pgm": os.environ.get("SKDPOT_PGM_PYTHON"),
    "SWIFT": os.environ.get("SKDPOT_SWIFT_PYTHON"),
}
EPSILONS = (0.5, 1.0, 4.0)
N_SEEDS = 3
# Larger graphical models take too long, and so do more steps of their fits; AIM's starts from the
# last one. Parities have to be in the workload.
_AIM = {"max_model_size": 4, "n_iters": 200}
OPTIONS = {("AIM", name): _AIM | {"degree": 4 if name == "xor3" else 2} for name in NAMES}
OPTIONS |= {(method, name): {"n_iters": 400} for method in ("MST", "PrivBayes") for name in NAMES}
# Of 10,000 steps so many; cliques of at most 100,000 cells, where 10,000,000 took hours or failed.
OPTIONS |= {("SWIFT", name): {"pgm_iters": 1_000, "max_clique_size": 100_000} for name in NAMES}


def made_by(table, method, epsilon, seed, folder, *, limit=0, checkout=ROOT):
    """Return the records that a method makes in a process of its own, and what it told of them.

    A run that fails makes none, and tells how it failed.
    """
    options = OPTIONS.get((method, table.name), {})
    shown = [f"{name}={value}" for name, value in options.items()]
    task = {"epsilon": epsilon, "delta": DELTA, "seed": seed, "sizes": table.sizes}
    task |= {"schema": table.schema, "target": table.target}
    task |= {"options": options, "limit": limit}
    (folder / "task.json").write_text(json.dumps(task))
    if method == OURS:
        table.train.to_pickle(folder / "records.pkl")
    else:
        table.codes(table.train).to_csv(folder / "codes.csv", index=False)
    program = Path(__file__).with_name("table_methods.py")
    paths = {"SWIFT": os.environ.get("SKDPOT_DPSYNTH")} | dict.fromkeys((OURS, BINNED), checkout)
    ended = subprocess.run(
        [PYTHONS[method], "-W", "ignore", program, method, folder],
        env=os.environ | {"PYTHONPATH": str(paths.get(method) or "")},
        check=False,
        stdout=subprocess.DEVNULL,
    )
    if ended.returncode:
        is_late = limit and ended.returncode == -signal.SIGKILL
        package = " ".join([METHODS[method][1], *shown])
        told = {"seconds": float(limit), "megabytes": 0.0, "version": package}
        return None, told | {"failure": f"over {limit} s" if is_late else "error"}
    told = json.loads((folder / "told.json").read_text())
    told["version"] = " ".join([told["version"], *shown])
    if method == OURS:
        return pd.read_pickle(folder / "made.pkl"), told
    return table.values(pd.read_csv(folder / "made.csv"), seed), told


def run_method(table, method, epsilon, seed, folder, **options):
    """Return the result of one method; a failure is a result too."""
    made, told = made_by(table, method, epsilon, seed, folder, **options)
    found = {} if made is None else measures(table, made)
    return TableResult(table.name, method, epsilon, seed, found, **told)


def with_noise_target(table, result, folder, **options):
    """Return a result with the measure of a table whose target is pure noise."""
    noisy = with_noise(table, result.seed)
    made, _ = made_by(noisy, *result.key[1:], folder, **options)
    noise = {} if made is None else {"noise": noise_of(noisy, made)}
    return replace(result, measures=result.measures | noise)


def add(result, path):
    board = TableBoard.load(path)
    board.add(result)
    board.save(path)


def run(chosen):
    """Compute what is chosen and not known yet."""
    shared = {"limit": chosen.limit, "checkout": chosen.checkout.resolve()}
    for name in chosen.tables:
        table = load_set(name, [chosen.data])
        if table is None:
            continue
        if not TableBoard.load(chosen.results).select(table=name, method=REAL):
            real = measures_of_real(table)
            add(TableResult(name, REAL, 0.0, 0, real, 0.0, 0.0, "as published"), chosen.results)
        tasks = [
            (method, epsilon, seed)
            for seed in chosen.seeds
            for epsilon in chosen.epsilons
            for method in chosen.methods
            if PYTHONS[method]
        ]
        for method, epsilon, seed in tasks:
            key = {"table": name, "method": method, "epsilon": epsilon, "seed": seed}
            known = TableBoard.load(chosen.results).select(**key)
            with tempfile.TemporaryDirectory() as folder:
                if not known or chosen.again:
                    result = run_method(table, method, epsilon, seed, Path(folder), **shared)
                    add(result, chosen.results)
                    known = [result]
                result = known[0]
                if chosen.noise and result.measures and "noise" not in result.measures:
                    result = with_noise_target(table, result, Path(folder), **shared)
                    add(result, chosen.results)
        print("", name, *lines_of(TableBoard.load(chosen.results), name, chosen), sep="\n")


def lines_of(board, name, chosen):
    """Return the figures of a table in columns, the means over seeds."""
    shown = [one for one in board.select(table=name) if one.epsilon in (0.0, *chosen.epsilons)]
    frame = pd.DataFrame(
        [
            {"method": one.method, "epsilon": one.epsilon, **one.measures, "seconds": one.seconds}
            | {"MB": one.megabytes, "failed": bool(one.failure)}
            for one in shown
        ]
    )
    means = frame.groupby(["epsilon", "method"]).mean()
    return means.to_string(float_format=lambda value: f"{value:.4g}").splitlines()


def write_pages(path):
    board = TableBoard.load(path)
    PAGE.write_text(page_of(board, TITLES))
    SUMMARY.write_text(summary_of(board, TITLES))
    ERRORS_SUMMARY.write_text(errors_of(board, TITLES))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", nargs="+", type=int, default=range(N_SEEDS))
    parser.add_argument("--noise", action="store_true", help="also with a target of pure noise")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--limit", type=int, default=0, help="seconds of the processor for a run")
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--page", action="store_true")
    chosen = parser.parse_args()
    if chosen.page:
        write_pages(chosen.results)
    else:
        run(chosen)


if __name__ == "__main__":
    main()
