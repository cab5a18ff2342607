"""Wasserstein barycenters: on given candidates, with free support, and on a line."""

from ._candidates import candidate_barycenter
from ._coupling import SupportCoupling, couple_with_support
from ._free import FreeBarycenter, free_support_barycenter
from ._quantiles import QuantileBarycenter, quantile_barycenter
from ._result import CandidateBarycenter

__all__ = [
    "CandidateBarycenter",
    "FreeBarycenter",
    "QuantileBarycenter",
    "SupportCoupling",
    "candidate_barycenter",
    "couple_with_support",
    "free_support_barycenter",
    "quantile_barycenter",
]
