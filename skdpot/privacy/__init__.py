"""What can be wrong about a privacy guarantee lives here, and only here."""

import importlib
from typing import Any

from skdpot.privacy._diffprivlib import (
    ACCOUNTANT_NAMES,
    is_budget_accountant,
    load_accountant,
)

# In which module a public name lives; it is imported once the name is asked for.
_HOMES = {
    **dict.fromkeys(
        [
            "ApproximateDpEvent",
            "ComposedDpEvent",
            "DpEvent",
            "GaussianDpEvent",
            "LaplaceDpEvent",
            "PlannedDpEvent",
            "PoissonSampledDpEvent",
            "PureDpEvent",
            "SelfComposedDpEvent",
            "ZCDpEvent",
        ],
        "events",
    ),
    **dict.fromkeys(
        [
            "calibrate_noise_multiplier",
            "convert_event",
            "delta_of",
            "epsilon_of",
            "plan_delta",
            "plan_epsilon",
            "renyi_divergence",
        ],
        "accounting",
    ),
    **dict.fromkeys(["NoGuaranteeWarning", "PrivacyGuarantee"], "guarantee"),
    # The function `audit` stays in its module, which has that name.
    **dict.fromkeys(
        ["AuditResult", "ExactAudit", "OneRunAuditResult", "exact_audit", "one_run_audit"], "audit"
    ),
    **dict.fromkeys(
        [
            "BoundedRatioMechanism",
            "ExponentialMechanism",
            "GaussianMechanism",
            "LaplaceMechanism",
            "PermuteAndFlipMechanism",
        ],
        "mechanisms",
    ),
    **dict.fromkeys(
        [
            "BudgetExceededError",
            "Entry",
            "LedgerError",
            "LedgerTamperedError",
            "PrivacyLedger",
            "Receipt",
        ],
        "ledger",
    ),
}

__all__ = [*ACCOUNTANT_NAMES, *_HOMES, "is_budget_accountant"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and diffprivlib only for one of its own classes."""
    if name in ACCOUNTANT_NAMES:
        return load_accountant(name)
    if name in _HOMES:
        return getattr(importlib.import_module(f"skdpot.privacy.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
