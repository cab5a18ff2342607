"""Barycenters as rounds of sums: what owners calculate, and what a coordinator makes of sums."""

from skdpot.federation._solvers._problem import BarycenterProblem, BarycenterResult, Step
from skdpot.federation._solvers._solve import solve
from skdpot.federation._solvers._steps import GroupSteps

__all__ = ["BarycenterProblem", "BarycenterResult", "GroupSteps", "Step", "solve"]
