"""Speed and memory of samples of a million users, in files, on one process and on a cluster.

Run with ``OMP_NUM_THREADS=1 python -m pytest tests/benchmarks/test_scale_out.py -m benchmark -s``;
``SKDPOT_USERS`` sets the number of users, a million by default. Nothing is asserted about time. The
peers are all users at once in the memory of one process, by the same sampler, and a loop over users
with diffprivlib's exponential mechanism, which draws a place by its mean distance to the user's.
Peaks are of whole processes, as Linux counts them; those of workers may differ by a fifth between a
tenth of the users and all of them.
"""

import importlib
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster

from skdpot import PrivacyLedger, WassersteinProjectionSampler
from skdpot.privacy import BudgetAccountant

pytestmark = pytest.mark.benchmark

EXAMPLE = Path(__file__).parents[2] / "examples" / "sampling" / "plot_million_users.py"
N_USERS = int(os.environ.get("SKDPOT_USERS", 1_000_000))
N_WORKERS = int(os.environ.get("SKDPOT_WORKERS", 2))
PEER_USERS = 1000
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


def test_one_process(example):
    visits = example.make_visits(N_USERS // 10, 0)
    sampler = WassersteinProjectionSampler(epsilon=EPSILON, input_points=example.PLACES)
    sampler.fit(visits).sample(visits[:1])
    start = time.perf_counter()
    sampler.sample(visits)
    seconds = time.perf_counter() - start
    print(
        f"\n{visits.shape[0]:,} users at once in one process: {seconds:.1f} s, "
        f"{visits.shape[0] / seconds:,.0f} users/s, peak {example.peak_memory():.0f} MiB"
    )


def test_the_loop_of_another_package(example):
    BudgetAccountant()  # imports diffprivlib whatever the version of scikit-learn
    from diffprivlib.mechanisms import Exponential

    distances = np.linalg.norm(example.PLACES[:, None] - example.PLACES, axis=2)
    visits = example.make_visits(PEER_USERS, 0).toarray() / example.N_VISITS
    start = time.perf_counter()
    for row in visits:
        utility = list(-(row @ distances))
        Exponential(epsilon=EPSILON, sensitivity=distances.max(), utility=utility).randomise()
    seconds = time.perf_counter() - start
    print(f"\ndiffprivlib, one user after another: {PEER_USERS / seconds:,.0f} users/s")
