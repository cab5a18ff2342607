r"""
================================================
How many bytes does a federated barycenter cost?
================================================

Five clinics may not share rows, and want the Wasserstein barycenter of their groups. How many
rounds of messages does it take, how many bytes do they contain, and how close is the result to that
of a central solver with all the rows?

**Nothing on this page is private, except the releases in the last lines of the table.** Messages
can disclose rows even if the rows never leave the clinics: ``plot_attacks.py`` recovers the rows
from these very messages.
"""

# %%
# The problem
# -----------
# It is that of the paper "Federated Calculation of the Free-Support Transportation Barycenter by
# Single-Loop Dual Decomposition": five Gaussian distributions in the plane, with 500 points each.
# 250 points are chosen among 1000 candidates.

import time
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import ot

from skdpot.federation import (
    BarycenterCoordinator,
    BarycenterOwner,
    GroupRelease,
    InProcessCarrier,
    SecureAggregation,
    run_barycenter,
)
from skdpot.transport import exact_transport

MEANS = np.array([(-2, -2), (2, 2), (2, -2), (-2, 2), (0, 0)])
COVARIANCE = np.array([[0.5, -0.2], [-0.2, 0.5]])
WEIGHTS = (0.7, 0.1, 0.05, 0.05, 0.1)
NAMES = ("Bergen", "Cork", "Graz", "Lyon", "Turku")
BOX = ([-8.0, -8.0], [8.0, 8.0])
GAPS = (0.01, 0.001, 0.0001)
METHODS = ("dual", "bregman", "bundle", "free")


class Task(NamedTuple):
    """Groups of points, and what is to be found."""

    groups: list
    candidates: np.ndarray
    n_support: int


def paper_task(n_points=500, n_candidates=1000, n_support=250, seed=0):
    """Draw the paper's problem."""
    rng = np.random.default_rng(seed)
    groups = [rng.multivariate_normal(mean, COVARIANCE, n_points) for mean in MEANS]
    candidates = np.clip(rng.normal(scale=5**0.5, size=(n_candidates, 2)), *BOX)
    return Task(groups, candidates, n_support)


# %%
# Rounds
# ------
# In every round the coordinator broadcasts numbers, every clinic answers with one vector, and only
# the sum of these vectors is used. ``"dual"`` is the paper's algorithm. The gap between the best
# choice so far and the optimum is computed from sums, too.


class Run(NamedTuple):
    """The result of a federation, with its time and bytes by round."""

    found: object
    seconds: float
    bytes_up: np.ndarray
    bytes_down: np.ndarray


def federate(task, method, secure=None, max_iter=None, tol=1e-4):
    """Let clinics find the barycenter with a coordinator."""
    clinics = [
        BarycenterOwner(name, points, name) for name, points in zip(NAMES, task.groups, strict=True)
    ]
    coordinator = BarycenterCoordinator(
        NAMES, task.n_support, method=method, candidates=task.candidates, weights=WEIGHTS,
        bounds=BOX, secure=secure, max_iter=max_iter, tol=tol,
    )  # fmt: skip
    start = time.perf_counter()
    found = run_barycenter(coordinator, InProcessCarrier(clinics))
    return Run(found, time.perf_counter() - start, *bytes_by_round(found))


def bytes_by_round(found):
    """Return the bytes that one clinic has sent and received after each round."""
    up, down = np.zeros(found.n_rounds + 1), np.zeros(found.n_rounds + 1)
    for crossing in found.traffic:
        up[crossing.round] += crossing.bytes_up / len(NAMES)
        down[crossing.round] += crossing.bytes_down / len(NAMES)
    return up.cumsum(), down.cumsum()


def gaps(found):
    """Return rounds, and the best certified relative gap after each.

    It belongs to the relaxed problem, in which candidates have shares; "free" has no such bound.
    """
    rounds, lower, upper = (np.array(column) for column in zip(*found.history, strict=True))
    upper = np.minimum.accumulate(upper)
    return rounds, (upper - np.maximum.accumulate(lower)) / upper


def rounds_to(found, gap):
    """Return the first round that certified the gap, None if there is none."""
    rounds, certified = gaps(found)
    reached = np.flatnonzero(certified <= gap)
    return int(rounds[reached[0]]) if len(reached) else None


# %%
# The central solver
# ------------------
# POT's free-support barycenter has all rows in one place, and moves points by exact transport.


def uniform(points):
    """Return equal masses."""
    return np.full(len(points), 1 / len(points))


def value_of(task, support):
    """Return the weighted sum of squared distances of a support, by exact transport."""
    values = [
        exact_transport(ot.dist(points, support), *map(uniform, (points, support))).cost
        for points in task.groups
    ]
    return float(np.dot(WEIGHTS, values))


def central(task, max_iter=100):
    """Return the value that POT reaches from the same candidates, and its time."""
    masses = [np.full(len(points), 1 / len(points)) for points in task.groups]
    start = time.perf_counter()
    support = ot.lp.free_support_barycenter(
        task.groups, masses, task.candidates[: task.n_support], weights=np.array(WEIGHTS),
        numItermax=max_iter, stopThr=1e-5,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    return value_of(task, support), seconds


# %%
# The private release
# -------------------
# The default method of the package asks once, for counts with noise. Everything else is computed
# from these counts, and no clinic is asked again. It is public here that each clinic has one group.


def release(task, epsilon, delta=1e-6):
    """Let clinics release their groups once, and find the barycenter of what was released."""
    agreed = GroupRelease(
        epsilon, NAMES, bounds=([-5, -5], [5, 5]), delta=delta, owners_per_group=[1] * len(NAMES)
    )
    clinics = [
        BarycenterOwner(name, points, name, release=agreed)
        for name, points in zip(NAMES, task.groups, strict=True)
    ]
    coordinator = BarycenterCoordinator(NAMES, task.n_support, release=agreed, weights=WEIGHTS)
    start = time.perf_counter()
    found = run_barycenter(coordinator, InProcessCarrier(clinics))
    return Run(found, time.perf_counter() - start, *bytes_by_round(found))


# %%
# The table
# ---------
# Bytes are those of one clinic. Under secure aggregation every round has four parts: keys, shares
# of secrets, the masked vector, and the shares that unmask the sum.


def table(task, runs, peer, private):
    """Print values, rounds, bytes and seconds of all runs."""
    certified = "".join(f"{f'rounds to {gap:g}':>18}" for gap in GAPS)
    print(f"{'':22}{'value':>8}{'rounds':>8}{certified}{'kB up':>9}{'kB down':>9}{'seconds':>9}")
    for name, run in runs.items():
        found = run.found
        reached = [rounds_to(found, gap) if "free" not in name else None for gap in GAPS]
        cells = "".join(f"{'' if number is None else number:>18}" for number in reached)
        print(
            f"{name:22}{value_of(task, found.support):8.4f}{found.n_rounds:8}{cells}"
            f"{run.bytes_up[-1] / 1e3:9.0f}{run.bytes_down[-1] / 1e3:9.0f}{run.seconds:9.2f}"
        )
    value, seconds = peer
    print(f"{'POT, all rows central':22}{value:8.4f}{'':62}{'':18}{seconds:9.2f}")
    for epsilon, run in private.items():
        print(
            f"{f'release, epsilon {epsilon:g}':22}{value_of(task, run.found.support):8.4f}"
            f"{run.found.n_rounds:8}{'':54}{run.bytes_up[-1] / 1e3:9.0f}"
            f"{run.bytes_down[-1] / 1e3:9.0f}{run.seconds:9.2f}"
        )


# %%
# The picture
# -----------


def draw(task, runs, peer, path=None):
    """Draw gaps by rounds and by bytes, and values of supports by rounds."""
    figure, (by_round, by_bytes, by_value) = plt.subplots(1, 3, figsize=(12, 3.6))
    for name, run in runs.items():
        if "secure" in name:
            continue
        if name == "free":
            rounds, _, values = zip(*run.found.history, strict=True)
            by_value.plot(rounds, values, label=name)
            continue
        rounds, certified = gaps(run.found)
        by_round.semilogy(rounds, certified, ".-", ms=4, label=name)
        total = run.bytes_up + run.bytes_down
        by_bytes.loglog(total[np.minimum(rounds, len(total) - 1)] / 1e6, certified, ".-", ms=4,
                        label=name)  # fmt: skip
    by_value.axhline(peer[0], color="black", ls=":", label="POT, all rows central")
    by_round.set(xscale="log", xlabel="rounds", ylabel="certified gap")
    by_bytes.set(xlabel="megabytes of one clinic", ylabel="certified gap")
    by_value.set(xlabel="rounds after 20 projections", ylabel="value")
    by_value.xaxis.get_major_locator().set_params(integer=True)
    for axes in (by_round, by_bytes, by_value):
        axes.legend()
    figure.tight_layout()
    if path is not None:
        figure.savefig(path, dpi=110)


def main(path=None):
    """Print the table and draw the picture."""
    task = paper_task()
    runs = {name: federate(task, name) for name in METHODS}
    runs["bregman, secure"] = federate(task, "bregman", SecureAggregation(), tol=1e-2)
    peer = central(task)
    private = {epsilon: release(task, epsilon) for epsilon in (1.0, 10.0)}
    table(task, runs, peer, private)
    draw(task, runs, peer, path)


if __name__ == "__main__":
    main()
