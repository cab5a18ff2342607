"""Audits: attacks that prove lower bounds on the epsilon of a mechanism.

An attack that finds nothing proves nothing.
"""

from skdpot.privacy.audit._exact import ExactAudit as ExactAudit
from skdpot.privacy.audit._exact import exact_audit
from skdpot.privacy.audit._result import AuditResult as AuditResult
from skdpot.privacy.audit._two_samples import audit

__all__ = ["audit", "exact_audit"]
