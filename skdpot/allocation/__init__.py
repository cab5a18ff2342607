"""Allocation of resources over a network whose nodes keep their utilities to themselves."""

from skdpot.allocation._estimator import ALLOCATION_CONSTRAINTS, AllocationEstimator
from skdpot.allocation._problem import Problem, make_utility, read_factors, read_ranges
from skdpot.allocation._solver import Solution, Solver
from skdpot.allocation._transport import PrivateADMMTransport

__all__ = [
    "ALLOCATION_CONSTRAINTS",
    "AllocationEstimator",
    "PrivateADMMTransport",
    "Problem",
    "Solution",
    "Solver",
    "make_utility",
    "read_factors",
    "read_ranges",
]
