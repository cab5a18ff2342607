"""Wasserstein barycenters: on given candidates, with free support, and on a line."""

from ._candidates import CandidateBarycenter, candidate_barycenter
from ._dual import useful_candidates
from ._exchange import Method, Step
from ._free import FreeBarycenter, free_support_barycenter
from ._point_group import PointGroup, solve
from ._point_problem import BarycenterProblem, BarycenterResult
from ._quantiles import QuantileBarycenter, quantile_barycenter
from ._whole_program import LARGEST_EXACT

__all__ = ["candidate_barycenter", "free_support_barycenter", "quantile_barycenter"]
