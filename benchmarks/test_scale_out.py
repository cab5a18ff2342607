"""Speed and memory of samples of a million users, in files, on one process and on a cluster.

Run with ``OMP_NUM_THREADS=1 python -m pytest benchmarks/test_scale_out.py -m benchmark -s``;
``SKDPOT_USERS`` sets the number of users, a million by default. Nothing is asserted about time. The
peers are all users at once in the memory of one process, by the same sampler, and a loop over users
with diffprivlib's exponential mechanism, which draws a place by its mean distance to the user's.
Peaks are of whole processes, as Linux counts them; those of workers may differ by a fifth between a
tenth of the users and all of them.
"""

import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster

from benchmarks.contest import Contestant
from skdpot import PrivacyLedger, WassersteinProjectionSampler, release_files
from skdpot.privacy import BudgetAccountant

pytestmark = pytest.mark.benchmark

EXAMPLE = Path(__file__).parents[1] / "examples" / "sampling" / "plot_million_users.py"
N_USERS = int(os.environ.get("SKDPOT_USERS", 1_000_000))
N_WORKERS = int(os.environ.get("SKDPOT_WORKERS", 2))
PEER_USERS = 500
EPSILON = 2.0


@pytest.fixture
def example(monkeypatch):
    """Return the example as a module that worker processes find, too."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    yield importlib.import_module(EXAMPLE.stem)
    del sys.modules[EXAMPLE.stem]


def on_a_cluster(example, folder, n_users):
    """Return the seconds of a release on a fresh cluster, and the largest peak of its workers."""
    with (
        LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        sources = example.write_all(client, folder, n_users)
        ledger = PrivacyLedger(epsilon=EPSILON)
        start = time.perf_counter()
        targets = example.release_all(client, sources, ledger, epsilon=EPSILON)
        seconds = time.perf_counter() - start
        assert ledger.spent() == (EPSILON, 0.0)
        assert len(targets) == len(sources)
        return seconds, max(client.run(example.peak_memory).values())


def test_a_million_users(example, tmp_path):
    # Kernels that this process compiles, workers find on disk.
    visits = example.make_visits(1, 0)
    WassersteinProjectionSampler(input_points=example.PLACES).fit(visits).sample(visits)
    peaks = []
    for n_users in (N_USERS // 10, N_USERS):
        folder = tmp_path / str(n_users)
        folder.mkdir()
        seconds, peak = on_a_cluster(example, folder, n_users)
        peaks.append(peak)
        print(
            f"\n{n_users:,} users, {N_WORKERS} workers: {seconds:.1f} s, "
            f"{n_users / seconds:,.0f} users/s, peak of a worker {peak:.0f} MiB",
            end="",
        )
    assert peaks[1] < 1.2 * peaks[0]


def releases(example, folder, n_files, base_measure="balanced", **options):
    """Return a call that releases new links to the same files, the sampler, and users in memory."""
    real = [folder / f"real-{number}.npz" for number in range(n_files)]
    for number, path in enumerate(real):
        example.write_visits(path, example.USERS_IN_A_FILE, number)
    visits = example.make_visits(example.USERS_IN_A_FILE, 0)
    sampler = WassersteinProjectionSampler(
        epsilon=EPSILON, input_points=example.PLACES, base_measure=base_measure
    ).fit(visits)

    def call():
        new = Path(tempfile.mkdtemp(dir=folder))
        sources = [new / path.name for path in real]
        for path, source in zip(real, sources, strict=True):
            os.link(path, source)
        targets = [new / f"made-{number}.npy" for number in range(n_files)]
        ledger = PrivacyLedger(epsilon=EPSILON, path=new / "ledger")
        release_files(sampler, sources, targets, ledger=ledger, **options)
        shutil.rmtree(new)

    return call, sampler, visits


def one_after_another(visits, distances):
    """Draw a place of every user with diffprivlib."""
    from diffprivlib.mechanisms import Exponential

    for row in visits:
        utility = list(-(row @ distances))
        Exponential(epsilon=EPSILON, sensitivity=distances.max(), utility=utility).randomise()


@pytest.mark.table
@pytest.mark.parametrize("base_measure", ["balanced", "optimal"])
def test_a_user_in_files(base_measure, example, contest, tmp_path):
    n_files = contest.size(100, 10)
    call, sampler, visits = releases(example, tmp_path, n_files, base_measure)
    BudgetAccountant()  # imports diffprivlib whatever the version of scikit-learn
    distances = np.linalg.norm(example.PLACES[:, None] - example.PLACES, axis=2)
    some = visits[:PEER_USERS].toarray() / example.N_VISITS
    contest.compare(
        "release_files",
        f"release a user of 64 places from files, base measure {base_measure}",
        Contestant("release_files", call, units=n_files * visits.shape[0]),
        [
            Contestant("sample, in memory", lambda: sampler.sample(visits), units=visits.shape[0]),
            Contestant(
                "diffprivlib, user by user", lambda: one_after_another(some, distances),
                "diffprivlib", units=len(some),
            ),
        ],
        {},
    )  # fmt: skip


@pytest.mark.table
def test_two_workers(example, contest, tmp_path):
    """By a clock on the wall. To start workers takes a quarter of a second."""
    n_files = 100
    calls = []
    for n_jobs in (2, 1):
        (folder := tmp_path / str(n_jobs)).mkdir()
        calls.append(releases(example, folder, n_files, n_jobs=n_jobs)[0])
    contest.compare(
        "release_files",
        f"release {n_files * example.USERS_IN_A_FILE:,} users of 64 places from files",
        Contestant("two workers", calls[0]),
        [Contestant("one worker", calls[1])],
        {},
        clock=time.perf_counter,
    )
