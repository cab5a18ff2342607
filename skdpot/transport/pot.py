"""The network simplex of POT, on integers: cheapest flows from rows to columns, and their prices.

All numbers that it computes are integers below 2**53, so exact as doubles, and the strongly
feasible trees that it keeps exclude cycling. It ends for all data, without a limit on its pivots.
"""

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_UNLIMITED = 2**63
# Libraries that POT would import, though arrays of NumPy do not need them.
_BACKENDS = {"PYTORCH": "torch", "JAX": "jax", "CUPY": "cupy", "TENSORFLOW": "tensorflow"}


@cache
def load_solver() -> Callable[..., Any]:
    """Import POT, and return its solver.

    For releases, which call it after they were charged: an interrupted import leaves modules half
    made. POT gets no other backend than NumPy, unless one is imported already, or the environment
    says otherwise.
    """
    switches = {
        name: "1"
        for backend, module in _BACKENDS.items()
        if module not in sys.modules
        and (name := f"POT_BACKEND_DISABLE_{backend}") not in os.environ
    }
    os.environ.update(switches)
    try:
        from ot import emd
    finally:
        for name in switches:
            del os.environ[name]
    return emd


def cheapest_flow(cost: Any, supplies: np.ndarray, demands: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the cheapest flow, of the kind of `cost`, and the prices of the columns.

    Parameters
    ----------
    cost : ndarray or sparse array of shape (n, m)
        Integers from 0 to ``LARGEST_COST / (n + m + 2)``. A sparse array has the costs of all pairs
        that may be joined, zeros as well.
    supplies, demands : ndarray of shape (n,), (m,)
        Positive integers with one sum, `TOTAL_MASS` of `network` at most.

    Raises
    ------
    RuntimeError
        If POT finds no flow; that would be a defect.
    """
    emd = load_solver()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flow, log = emd(
            supplies.astype(np.float64), demands.astype(np.float64), cost,
            numItermax=_UNLIMITED, log=True, center_dual=False,
        )  # fmt: skip
    if log["warning"] is not None:
        raise RuntimeError(f"POT has found no plan: {log['warning']}")
    return flow, log["v"]
