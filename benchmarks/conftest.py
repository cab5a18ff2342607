"""Options, threads and the report of benchmarks.

``python -m pytest benchmarks -m benchmark -s --quick --benchmark-report=FOLDER`` makes the
most telling comparison of each estimator and all curves at reduced sizes, and writes
``report.html``, ``report.md``, ``report.json`` and ``scaling.png`` into the folder; without
``--quick`` it makes all of them. Without either option, comparisons are printed.

``python -m pytest benchmarks -m benchmark -s --table=new`` measures the table of the page on
benchmarks, in ten rounds, and writes it into the documentation. ``--table=rest`` goes on with a run
that was interrupted.
"""

import os
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from benchmarks.contest import ONE_THREAD, Contest
from benchmarks.speed_board import PAGE, ROUNDS, SpeedBoard, page_of
from tests.conftest import rng, seed, small_samples_are_released  # noqa: F401

# POT would load each of these that is installed when it is imported, and so for any test here.
for backend in ("PYTORCH", "JAX", "TENSORFLOW", "CUPY"):
    os.environ.setdefault(f"POT_BACKEND_DISABLE_{backend}", "1")

# PyTorch, which these need, is not to be imported to look for doctests.
collect_ignore = ["networks.py", "image_classifiers.py", "image_measures.py"]

FOUND = pytest.StashKey[Contest]()
# Benchmarks of the table that are measured, by the names of their tests, and their places in it.
PLACES = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser):
    group = parser.getgroup("benchmarks of skdpot")
    group.addoption("--quick", action="store_true", help="only what is marked quick, and smaller")
    group.addoption("--table", choices=("new", "rest"), help="the page's table, anew or the rest")
    group.addoption("--rounds", type=int, default=1, metavar="N", help="rounds at least")
    group.addoption("--benchmark-report", type=Path, metavar="FOLDER", help="write a report there")


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: a benchmark that --quick selects")
    config.addinivalue_line("markers", "table: a benchmark of the page's table")
    table = config.getoption("--table", default=None)
    config.stash[FOUND] = Contest(
        quick=bool(config.getoption("--quick", default=False) or table),
        min_rounds=ROUNDS if table else config.getoption("--rounds", default=1),
    )
    config.stash[PLACES] = {}
    if table == "new":
        SpeedBoard().save()


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("benchmark"):
            # What a peer warns of is no failure of ours.
            item.add_marker(pytest.mark.filterwarnings("default"))
    if config.getoption("--table", default=None):
        those = [item for item in items if item.get_closest_marker("table")]
        config.stash[PLACES].update((item.nodeid, place) for place, item in enumerate(those))
        done = {result.test for result in SpeedBoard.load().results}
        those = [item for item in those if item.nodeid not in done]
    elif config.stash[FOUND].quick:
        those = [item for item in items if item.get_closest_marker("quick")]
    else:
        return
    config.hook.pytest_deselected(items=[item for item in items if item not in those])
    items[:] = those


def pytest_sessionfinish(session):
    if session.config.getoption("--table", default=None):
        PAGE.write_text(page_of(SpeedBoard.load()))
    folder = session.config.getoption("--benchmark-report", default=None)
    if folder is not None:
        from benchmarks.report import write_report

        write_report(session.config.stash[FOUND], folder)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Let libraries that are loaded, and those that will be, compute on one thread."""
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    with threadpool_limits(1):
        yield


@pytest.fixture
def contest(request):
    """Return who compares, and keeps what was found for the report and the table."""
    found, places = request.config.stash[FOUND], request.config.stash[PLACES]
    n_before = len(found.rows)
    yield found
    if request.node.nodeid in places:
        board, test = SpeedBoard.load(), request.node.nodeid
        board.add_rows(test, places[test], found.rows[n_before:], found)
        board.save()
