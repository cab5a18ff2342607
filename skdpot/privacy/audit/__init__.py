"""Attacks on mechanisms: what they really leak, against what they claim.

An attack proves that a mechanism leaks more than some epsilon. That it finds nothing is no proof.
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
