"""Audits: attacks that prove lower bounds on the epsilon of a mechanism.

An attack that finds nothing proves nothing.
"""

from skdpot.privacy.audit._exact import ExactAudit, exact_audit
from skdpot.privacy.audit._one_run import OneRunAuditResult, one_run_audit
from skdpot.privacy.audit._result import AuditResult
from skdpot.privacy.audit._two_samples import audit

__all__ = [
    "AuditResult",
    "ExactAudit",
    "OneRunAuditResult",
    "audit",
    "exact_audit",
    "one_run_audit",
]
