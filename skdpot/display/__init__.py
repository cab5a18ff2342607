"""Plots of what the package computes; matplotlib is imported once something is plotted."""

from skdpot.display._audit import AuditDisplay

__all__ = ["AuditDisplay"]
