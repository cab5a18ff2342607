r"""
====================================
Serving users on a cluster with Dask
====================================

The samplers serve users in chunks, and joblib decides where a chunk is worked on: in a thread of
this process, in another process, or on another machine. Here it is a Dask cluster, a local one of
two processes; with the address of a real one in ``Client``, the rest would stay as it is.

What is private are the samples that come back. A worker is sent the rows of its users as they are,
so the cluster has to be as trusted as this process.

With a seed, the samples are the same wherever they are drawn. (Seeded samples are reproducible, and
therefore not private: for tests, not for a release.)

It needs dask.distributed, ``pip install "skdpot[dask]"``, and says so and stops where that is
missing. It takes a few seconds.
"""

# %%
# Users
# -----
# A user's day is a distribution over 48 half hours, those of the day and night she is at her
# telephone. Half hours lie on a circle: 23:30 is next to 0:00.

import time

import numpy as np
from joblib import parallel_config

from skdpot import WassersteinProjectionSampler
from skdpot.privacy import BudgetAccountant

N_USERS, N_SLOTS = 2000, 48


def make_days(n_users=N_USERS, seed=0):
    """Return how many minutes of every half hour each user was at the telephone."""
    rng = np.random.default_rng(seed)
    slots = np.arange(N_SLOTS)
    favourite = rng.integers(N_SLOTS, size=(n_users, 1))
    apart = np.abs(slots - favourite)
    apart = np.minimum(apart, N_SLOTS - apart)
    return rng.binomial(30, 0.8 * np.exp(-((apart / 4) ** 2)) + 0.02)


def on_a_clock(n_slots=N_SLOTS):
    """Return the middle of every half hour as a point on a clock with one hand."""
    angles = 2 * np.pi * (np.arange(n_slots) + 0.5) / n_slots
    return np.column_stack([np.sin(angles), np.cos(angles)])


# %%
# One release, here and there
# ---------------------------
# The backend is chosen around the call, and nothing else changes. The budget is charged in this
# process, before any chunk is sent away: a worker never sees the ledger.


def timed_release(sampler, days):
    """Return the released half hours and how long that took."""
    start = time.perf_counter()
    return sampler.sample(days)[:, 0], time.perf_counter() - start


def compare(client, days):
    """Release the users' samples twice, first in this process and then on the cluster."""
    ledger = BudgetAccountant(epsilon=4.0, delta=0.0)
    sampler = WassersteinProjectionSampler(
        epsilon=2.0,
        input_points=on_a_clock(),
        base_measure="uniform",
        ledger=ledger,
        random_state=0,
    ).fit(days)
    sampler.project(days[:1])  # so that compiling a kernel is not in the times below
    here, seconds_here = timed_release(sampler, days)
    with parallel_config(backend="dask"):
        there, seconds_there = timed_release(sampler, days)
    n_workers = len(client.scheduler_info()["workers"])
    print(f"{len(days)} users in this process: {seconds_here:.2f} s")
    print(f"{len(days)} users on {n_workers} workers of the cluster: {seconds_there:.2f} s")
    print(f"the same samples: {np.array_equal(here, there)}")
    print(f"charged to every user: epsilon = {ledger.total()[0]:g} for two releases")


# %%
# The cluster
# -----------
# Worker processes import this very file, which is why they are started below this line only.


def main():
    """Start a cluster on this machine, release, and stop it."""
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        print('dask.distributed is missing. Install it with: pip install "skdpot[dask]"')
        return
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        compare(client, make_days())


if __name__ == "__main__":
    main()
