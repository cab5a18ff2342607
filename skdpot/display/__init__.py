"""Plots of what the package computes; matplotlib is imported once something is plotted."""

from skdpot.display._allocation import (
    AllocationConvergenceDisplay,
    AllocationPlanDisplay,
    BudgetWelfareDisplay,
)
from skdpot.display._audit import AuditDisplay

__all__ = [
    "AllocationConvergenceDisplay",
    "AllocationPlanDisplay",
    "AuditDisplay",
    "BudgetWelfareDisplay",
]
