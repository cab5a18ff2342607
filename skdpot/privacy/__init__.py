"""Privacy: events and their prices, the ledger, mechanisms, sensitivities and audits."""

from typing import TYPE_CHECKING

__all__ = [
    "ApproximateDpEvent",
    "BudgetAccountant",
    "BudgetError",
    "BudgetExceededError",
    "ComposedDpEvent",
    "ExponentialMechanism",
    "GaussianDpEvent",
    "GaussianMechanism",
    "LaplaceDpEvent",
    "LaplaceMechanism",
    "LedgerError",
    "NoGuaranteeWarning",
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
    "delta_of",
    "epsilon_of",
]

if TYPE_CHECKING:
    from diffprivlib.accountant import BudgetAccountant, BudgetError

    from skdpot.privacy.accounting import (
        calibrate_noise_multiplier,
        delta_of,
        epsilon_of,
        plan_epsilon,
    )
    from skdpot.privacy.events import (
        ApproximateDpEvent,
        CentredGaussianDpEvent,
        ComposedDpEvent,
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
        LedgerError,
        LedgerTamperedError,
        PrivacyLedger,
        Receipt,
    )
    from skdpot.privacy.mechanisms import (
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
                "delta_of",
                "epsilon_of",
                "plan_epsilon",
            ],
            # The function `audit` stays in its module, which has that name.
            "audit": [],
            "events": [
                "CentredGaussianDpEvent",
                *(name for name in __all__ if name.endswith("DpEvent")),
            ],
            "guarantee": ["NoGuaranteeWarning", "PrivacyGuarantee"],
            "ledger": [
                "BudgetExceededError",
                "LedgerError",
                "LedgerTamperedError",
                "PrivacyLedger",
                "Receipt",
            ],
            "mechanisms": [name for name in __all__ if name.endswith("Mechanism")],
        },
    )
