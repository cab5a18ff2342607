"""What the local samplers charge for a user's samples, and promise of them."""

from typing import Any

from skdpot.privacy.charging import charge, check_ledger
from skdpot.privacy.events import PureDpEvent, SelfComposedDpEvent
from skdpot.privacy.guarantee import PrivacyGuarantee

# A user's whole data is replaced by any other; who takes part is not hidden.
NEIGHBOURING = "replace_one"


def check_sampler_ledger(sampler):
    """Raise unless the samples of a sampler can be charged to its ledger."""
    check_ledger(sampler.ledger, NEIGHBOURING, seeded=sampler.random_state is not None)


class GuaranteeMixin:
    """What a fitted sampler, which holds its ``_mechanism``, promises of a sample."""

    random_state: Any
    _mechanism: Any

    @property
    def privacy_guarantee_(self):
        """What is guaranteed of one sample of a user; None for seeded samples."""
        if not hasattr(self, "_mechanism"):
            raise AttributeError("privacy_guarantee_ is known once the sampler is fitted.")
        if self.random_state is not None:
            return None
        return PrivacyGuarantee(
            epsilon=self._mechanism.epsilon,
            delta=0.0,
            neighbouring=NEIGHBOURING,
            unit="user",
            not_protected=("who takes part", "that a row was refused", "running time"),
        )


def charge_samples(sampler, epsilon, n_samples, source):
    """Charge so many samples of every user, each epsilon-LDP, before they are drawn."""
    event = PureDpEvent(epsilon)
    charge(
        sampler.ledger,
        event if n_samples == 1 else SelfComposedDpEvent(event, n_samples),
        unit="user",
        label=type(sampler).__name__,
        neighbouring=NEIGHBOURING,
        seeded=source.seeded,
    )
