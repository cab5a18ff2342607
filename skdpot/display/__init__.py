"""Plots of results; matplotlib is imported on first use."""

from ._audit import AuditDisplay
from ._frontier import FrontierDisplay
from ._groups import GroupDistributionDisplay
from ._ledger import LedgerDisplay
from ._plans import PlanDisplay
from ._samples import SampleGridDisplay
from ._style import axes_for

__all__ = [
    "PlanDisplay",
    "AuditDisplay",
    "FrontierDisplay",
    "GroupDistributionDisplay",
    "LedgerDisplay",
    "SampleGridDisplay",
]
