"""Wasserstein barycenters: on given candidates, with free support, and on a line."""

from ._candidates import LARGEST_EXACT, candidate_barycenter
from ._free import free_support_barycenter
from ._quantiles import quantile_barycenter
from ._relaxation import BarycenterResult
from ._rounds import PointGroup, solve

__all__ = ["candidate_barycenter", "free_support_barycenter", "quantile_barycenter"]
