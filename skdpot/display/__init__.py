"""Plots of what the package computes; matplotlib is imported once something is plotted."""

from skdpot.display._audit import AuditDisplay
from skdpot.display._groups import GroupDistributionDisplay
from skdpot.display._ledger import LedgerDisplay
from skdpot.display._plans import PlanDisplay
from skdpot.display._privacy_utility import PrivacyUtilityDisplay
from skdpot.display._samples import SampleGridDisplay

__all__ = [
    "PlanDisplay",
    "AuditDisplay",
    "GroupDistributionDisplay",
    "LedgerDisplay",
    "PrivacyUtilityDisplay",
    "SampleGridDisplay",
]
