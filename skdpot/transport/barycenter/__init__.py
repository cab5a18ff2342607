"""Wasserstein barycenters: on given candidates, with free support, and on a line."""

from ._candidates import LARGEST_EXACT, CandidateBarycenter, candidate_barycenter
from ._free import FreeBarycenter, free_support_barycenter
from ._quantiles import QuantileBarycenter, quantile_barycenter
from ._rounds import BarycenterResult, PointGroup, solve

__all__ = ["candidate_barycenter", "free_support_barycenter", "quantile_barycenter"]
