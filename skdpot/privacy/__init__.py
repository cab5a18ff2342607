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
    "Preview",
    "PrivacyGuarantee",
    "PrivacyLedger",
    "PureDpEvent",
    "Receipt",
    "SelfComposedDpEvent",
    "ZCDpEvent",
    "allow_useless_releases",
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
    from skdpot.privacy.preview import Preview, allow_useless_releases
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
            "preview": ["Preview", "allow_useless_releases"],
            "mechanisms": [name for name in __all__ if name.endswith("Mechanism")],
        },
    )
