"""Compilation in advance: small runs on made-up data that call every kernel once."""

import time
from collections.abc import Iterator

import numpy as np

from skdpot.allocation import PrivateADMMTransport
from skdpot.fairness import CandidateSupport, FairBarycenterPreprocessor, FreeSupport
from skdpot.published import PrivateMessageADMM
from skdpot.transport import (
    MatrixCosts,
    PointCosts,
    Projector,
    clip_to_polytope,
    entropic_transport,
    exact_transport,
    kl_projection,
    normalise_rows,
)
from skdpot.transport.kernels import compiled_at_once

_N_POINTS = 40


def warm() -> Iterator[tuple[str, float]]:
    """Compile all kernels, or load their machine code from disk.

    Yields
    ------
    name, seconds
        Each compiled part and its time, when it is done.
    """
    works = {
        "projections of users' distributions": _project,
        "transport, exact and entropic": _transport,
        "barycenters": _repair,
        "allocations": _allocate,
    }
    for name, work in works.items():
        start = time.perf_counter()
        with compiled_at_once():
            work(np.random.default_rng(0))
        yield name, time.perf_counter() - start


def _project(rng):
    base = np.full(_N_POINTS, 0.5 / _N_POINTS)
    weights = np.ones((1, _N_POINTS))
    for solver in ("exact", "entropic"):
        cost = rng.random((_N_POINTS, _N_POINTS))
        Projector(cost, base, 1.0, solver=solver).project(normalise_rows(weights))
    clip_to_polytope(kl_projection(weights, base, 1.0), base, 1.0)


def _transport(rng):
    points, masses = rng.random((_N_POINTS, 2)), rng.dirichlet(np.ones(_N_POINTS))
    equal = np.full(_N_POINTS, 1 / _N_POINTS)
    cost = np.abs(points[:, :1] - points[:, 1])
    exact_transport(cost, masses, equal)
    for costs in (MatrixCosts(cost), PointCosts(points, points, squared=True, high=2.0)):
        entropic_transport(costs, masses, equal, reg=0.1, tol=1e-3)


def _repair(rng):
    X, groups = rng.random((_N_POINTS, 2)), np.repeat(["a", "b"], _N_POINTS // 2)
    for method in (FreeSupport(), CandidateSupport()):
        FairBarycenterPreprocessor(method=method).fit(X, sensitive_features=groups)


def _allocate(rng):
    worth, bounds = rng.random((6, 4)), {"target_bounds": (0, 5), "source_bounds": (0, 5)}
    PrivateADMMTransport(epsilon=None, **bounds).fit(worth)
    for utility in ("linear", "quadratic", "log"):
        PrivateMessageADMM(10.0, utility=utility, utility_bounds=(0, 1), **bounds).fit(worth)
