r"""
========================================
Samples for many users on a Dask cluster
========================================

The samplers serve users in chunks, and joblib decides where each chunk is computed: in a thread of
this process, in another process, or on another machine. This example uses a local Dask cluster of
two processes. For a real cluster, pass its address to ``Client``; nothing else changes.

Only the returned samples are private. A worker receives the rows of its users unchanged, so the
cluster must be as trusted as this process.

With a seed, the samples are the same wherever they are drawn. Seeded samples can be reproduced and
are therefore not private: use a seed for tests, not for a release.

For users in many files, use :func:`skdpot.release_files`, on a cluster of any number of machines:
:ref:`sphx_glr_auto_examples_sampling_plot_million_users.py`.

The example needs dask.distributed, ``pip install "skdpot[dask]"``. Without it, it prints a message
and stops. It takes a few seconds.
"""

# %%
# Users
# -----
# A user's day is a distribution over 48 half hours: when she uses her telephone. Half hours form a
# circle: 23:30 is next to 0:00.

import time

import numpy as np
from joblib import parallel_config

from skdpot import PrivacyLedger, WassersteinProjectionSampler

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
# The same release in this process and on the cluster
# ---------------------------------------------------
# The backend is chosen around the call, and nothing else changes. The budget is charged in this
# process before any chunk is sent: a worker never sees the ledger.


def timed_release(sampler, days):
    """Return the released half hours and the time in seconds."""
    start = time.perf_counter()
    return sampler.sample(days)[:, 0], time.perf_counter() - start


def compare(client, days):
    """Release the users' samples twice, first in this process and then on the cluster."""
    # A ledger that takes seeded samples, since the two runs are compared.
    ledger = PrivacyLedger(epsilon=4.0, allow_seeded=True)
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
    print(f"charged to every user: epsilon = {ledger.spent()[0]:g} for two releases")


# %%
# The cluster
# -----------
# Worker processes import this file, so they must not be started above this line.


def main():
    """Start a cluster on this machine, release, and stop it."""
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        print('dask.distributed is missing. Install it with: pip install "skdpot[dask]"')
        return
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        compare(client, make_days())


if __name__ == "__main__":
    main()
