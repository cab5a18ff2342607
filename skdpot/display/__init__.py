"""Plots of what the package computes; matplotlib is imported once something is plotted."""

from skdpot.display._audit import AuditDisplay
from skdpot.display._convergence import AllocationConvergenceDisplay
from skdpot.display._groups import GroupDistributionDisplay
from skdpot.display._ledger import LedgerDisplay
from skdpot.display._plan import AllocationPlanDisplay
from skdpot.display._privacy_utility import PrivacyUtilityDisplay
from skdpot.display._projected import ProjectedDistributionsDisplay
from skdpot.display._samples import SampleGridDisplay
from skdpot.display._transport_plan import TransportPlanDisplay

__all__ = [
    "AllocationConvergenceDisplay",
    "AllocationPlanDisplay",
    "AuditDisplay",
    "GroupDistributionDisplay",
    "LedgerDisplay",
    "PrivacyUtilityDisplay",
    "ProjectedDistributionsDisplay",
    "SampleGridDisplay",
    "TransportPlanDisplay",
]
