"""Plots of what the package computes; matplotlib is imported once something is plotted."""

from skdpot.display._audit import AuditDisplay
from skdpot.display._budget import BudgetWelfareDisplay
from skdpot.display._convergence import AllocationConvergenceDisplay
from skdpot.display._plan import AllocationPlanDisplay

__all__ = [
    "AllocationConvergenceDisplay",
    "AllocationPlanDisplay",
    "AuditDisplay",
    "BudgetWelfareDisplay",
]
