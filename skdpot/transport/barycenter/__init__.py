"""Wasserstein barycenters: on given candidates, with free support, and on a line."""

from ._candidates import candidate_barycenter
from ._free import FreeBarycenter, free_support_barycenter
from ._quantiles import QuantileBarycenter, quantile_barycenter
from ._result import CandidateBarycenter

__all__ = [
    "CandidateBarycenter",
    "FreeBarycenter",
    "QuantileBarycenter",
    "candidate_barycenter",
    "free_support_barycenter",
    "quantile_barycenter",
]
