"""Allocation of resources over a network whose nodes keep their utilities to themselves."""

# Also exports what `skdpot.published` builds on.
from ._estimator import ALLOCATION_CONSTRAINTS as ALLOCATION_CONSTRAINTS
from ._estimator import AllocationEstimator as AllocationEstimator
from ._estimator import PrivateADMMTransport
from ._estimator import Problem as Problem
from ._estimator import read_factors as read_factors
from ._estimator import read_ranges as read_ranges

__all__ = ["PrivateADMMTransport"]
