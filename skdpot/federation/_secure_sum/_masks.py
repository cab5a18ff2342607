"""Masks and sealed shares of a secure sum."""

import numpy as np

from ._crypto import KEY_BYTES, SEALING_BYTES, agree, derive, mask_words, seal, unseal
from ._sum_plan import SumPlan

# A share of a member's seed, and one of its masking key.
SHARES_BYTES = 2 * KEY_BYTES
SEALED_BYTES = SHARES_BYTES + SEALING_BYTES
SEED, MASKING = slice(0, KEY_BYTES), slice(KEY_BYTES, SHARES_BYTES)
# Rows of what members advertise.
SEALING_ROW, MASKING_ROW = 0, 1


def own_mask(plan: SumPlan, member: int, seed: bytes) -> np.ndarray:
    """Return the mask that a member adds for itself."""
    return mask_words(derive(seed, _context(plan, b"own mask", member)), plan.size)


def common_mask(
    plan: SumPlan, member: int, other: int, private: bytes, public: bytes
) -> np.ndarray:
    """Return the mask that a member adds for another one, which adds its negative.

    Parameters
    ----------
    plan : SumPlan
        That of the sum.
    member, other : int
        Two neighbours.
    private : bytes
        Private masking key of one of the two.
    public : bytes
        Public masking key of the other one.
    """
    context = _context(plan, b"common mask", min(member, other), max(member, other))
    mask = mask_words(agree(private, public, context), plan.size)
    return mask if member < other else np.negative(mask)


def commitment(plan: SumPlan, member: int, seed: bytes) -> bytes:
    """Return what tells whether a seed is a member's, and nothing about it."""
    return derive(seed, _context(plan, b"commitment", member))


def seal_shares(
    plan: SumPlan, sender: int, receiver: int, private: bytes, public: bytes, shares: bytes
) -> bytes:
    """Encrypt shares for their holder."""
    context = _context(plan, b"shares", sender, receiver)
    return seal(agree(private, public, context), shares, context)


def unseal_shares(
    plan: SumPlan, sender: int, receiver: int, private: bytes, public: bytes, sealed: bytes
) -> bytes:
    """Decrypt what a neighbour sealed in this sum for this receiver, or raise ValueError."""
    context = _context(plan, b"shares", sender, receiver)
    try:
        return unseal(agree(private, public, context), sealed, context)
    except ValueError:
        raise ValueError(
            f"the shares of member {sender} were not sealed by it, in this sum, for member "
            f"{receiver}."
        ) from None


def _context(plan: SumPlan, purpose: bytes, *members: int) -> bytes:
    """Return what a key is for: the sum, the purpose and the members, of fixed lengths."""
    encoded = b"".join(int(member).to_bytes(8, "big") for member in members)
    return plan.context + purpose.ljust(16, b"\0") + encoded
