"""Privacy: events and their prices, the ledger, mechanisms, sensitivities and audits."""

from typing import TYPE_CHECKING, Any

# The function `audit` stays in its module, which has that name.
from skdpot.privacy import audit
from skdpot.privacy.accounting import calibrate_noise_multiplier, delta_of, epsilon_of, plan_epsilon
from skdpot.privacy.charging import (
    NoGuaranteeWarning,
    Preview,
    PrivacyGuarantee,
    allow_useless_releases,
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
from skdpot.privacy.ledger import PrivacyLedger, Receipt
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism
from skdpot.privacy.records import BudgetExceededError, LedgerError, LedgerTamperedError

if TYPE_CHECKING:
    from diffprivlib.accountant import BudgetAccountant, BudgetError

__all__ = [
    "ApproximateDpEvent", "BudgetAccountant", "BudgetError", "BudgetExceededError",
    "ComposedDpEvent", "GaussianDpEvent", "GaussianMechanism", "LaplaceDpEvent",
    "LaplaceMechanism", "LedgerError", "NoGuaranteeWarning", "PlannedDpEvent",
    "PoissonSampledDpEvent", "Preview", "PrivacyGuarantee", "PrivacyLedger", "PureDpEvent",
    "Receipt", "SelfComposedDpEvent", "ZCDpEvent", "allow_useless_releases",
    "calibrate_noise_multiplier", "delta_of", "epsilon_of",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import diffprivlib, which takes long, once one of its classes is used."""
    if name in ("BudgetAccountant", "BudgetError"):
        from skdpot.privacy.charging import load_accountant

        return load_accountant(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
