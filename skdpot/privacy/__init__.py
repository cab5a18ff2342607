"""What can be wrong about a privacy guarantee lives here, and only here."""

from typing import TYPE_CHECKING

from skdpot.privacy._diffprivlib import is_budget_accountant

__all__ = [
    "ApproximateDpEvent",
    "AuditResult",
    "BoundedRatioMechanism",
    "BudgetAccountant",
    "BudgetError",
    "BudgetExceededError",
    "CentredGaussianDpEvent",
    "ComposedDpEvent",
    "DpEvent",
    "Entry",
    "ExactAudit",
    "ExponentialMechanism",
    "GaussianDpEvent",
    "GaussianMechanism",
    "LaplaceDpEvent",
    "LaplaceMechanism",
    "LedgerError",
    "LedgerTamperedError",
    "NoGuaranteeWarning",
    "OneRunAuditResult",
    "PermuteAndFlipMechanism",
    "PlannedDpEvent",
    "PoissonSampledDpEvent",
    "PrivacyGuarantee",
    "PrivacyLedger",
    "PureDpEvent",
    "Receipt",
    "SelfComposedDpEvent",
    "ZCDpEvent",
    "calibrate_noise_multiplier",
    "convert_event",
    "delta_of",
    "epsilon_of",
    "exact_audit",
    "is_budget_accountant",
    "one_run_audit",
    "plan_delta",
    "plan_epsilon",
    "renyi_divergence",
]

if TYPE_CHECKING:
    from diffprivlib.accountant import BudgetAccountant, BudgetError

    from skdpot.privacy.accounting import (
        calibrate_noise_multiplier,
        convert_event,
        delta_of,
        epsilon_of,
        plan_delta,
        plan_epsilon,
        renyi_divergence,
    )
    from skdpot.privacy.audit import (
        AuditResult,
        ExactAudit,
        OneRunAuditResult,
        exact_audit,
        one_run_audit,
    )
    from skdpot.privacy.events import (
        ApproximateDpEvent,
        CentredGaussianDpEvent,
        ComposedDpEvent,
        DpEvent,
        GaussianDpEvent,
        LaplaceDpEvent,
        PlannedDpEvent,
        PoissonSampledDpEvent,
        PureDpEvent,
        SelfComposedDpEvent,
        ZCDpEvent,
    )
    from skdpot.privacy.guarantee import NoGuaranteeWarning, PrivacyGuarantee
    from skdpot.privacy.ledger import (
        BudgetExceededError,
        Entry,
        LedgerError,
        LedgerTamperedError,
        PrivacyLedger,
        Receipt,
    )
    from skdpot.privacy.mechanisms import (
        BoundedRatioMechanism,
        ExponentialMechanism,
        GaussianMechanism,
        LaplaceMechanism,
        PermuteAndFlipMechanism,
    )
else:
    from skdpot._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_diffprivlib": ["BudgetAccountant", "BudgetError"],
            "accounting": [
                "calibrate_noise_multiplier",
                "convert_event",
                "delta_of",
                "epsilon_of",
                "plan_delta",
                "plan_epsilon",
                "renyi_divergence",
            ],
            # The function `audit` stays in its module, which has that name.
            "audit": [
                "AuditResult",
                "ExactAudit",
                "OneRunAuditResult",
                "exact_audit",
                "one_run_audit",
            ],
            "events": [
                "ApproximateDpEvent",
                "CentredGaussianDpEvent",
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
            "guarantee": ["NoGuaranteeWarning", "PrivacyGuarantee"],
            "ledger": [
                "BudgetExceededError",
                "Entry",
                "LedgerError",
                "LedgerTamperedError",
                "PrivacyLedger",
                "Receipt",
            ],
            "mechanisms": [
                "BoundedRatioMechanism",
                "ExponentialMechanism",
                "GaussianMechanism",
                "LaplaceMechanism",
                "PermuteAndFlipMechanism",
            ],
        },
    )
