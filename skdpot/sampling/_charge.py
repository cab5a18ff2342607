"""What the local samplers charge for a user's samples."""

from skdpot.privacy.charging import charge, check_ledger
from skdpot.privacy.events import PureDpEvent, SelfComposedDpEvent
from skdpot.privacy.ledger import PrivacyLedger

# A user's whole data is replaced by any other; who takes part is not hidden.
NEIGHBOURING = "replace_one"


def check_sampler_ledger(sampler):
    """Raise unless the samples of a sampler can be charged to its ledger."""
    check_ledger(sampler.ledger, NEIGHBOURING, seeded=sampler.random_state is not None)
    _check_part(sampler.ledger)


def _check_part(ledger):
    if isinstance(ledger, PrivacyLedger) and ledger.hides_the_part:
        raise ValueError(
            "the ledger is that of a part of the users, and which part a user is in is not public, "
            "while the number of samples tells how many users a part has. Declare the partition "
            "with fixed_key=True, if each user's part is public and fixed."
        )


def charge_samples(sampler, epsilon, n_samples, source):
    """Charge so many samples of every user, each epsilon-LDP, before they are drawn."""
    _check_part(sampler.ledger)
    event = PureDpEvent(epsilon)
    charge(
        sampler.ledger,
        event if n_samples == 1 else SelfComposedDpEvent(event, n_samples),
        unit="user",
        label=type(sampler).__name__,
        neighbouring=NEIGHBOURING,
        seeded=source.seeded,
    )
