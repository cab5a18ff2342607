"""Masks and sealed shares of a secure sum."""

import hashlib

import numpy as np

from ._crypto import HASH_BYTES, KEY_BYTES, SEALING_BYTES, agree, derive, mask_words, seal, unseal
from ._sum_plan import FaultyOwnerError, SumPlan

# A share of an owner's seed, and one of its masking key.
SHARES_BYTES = 2 * KEY_BYTES
SEALED_BYTES = SHARES_BYTES + SEALING_BYTES
SEED, MASKING = slice(0, KEY_BYTES), slice(KEY_BYTES, SHARES_BYTES)
# Rows of what owners advertise.
SEALING_ROW, MASKING_ROW = 0, 1


def own_mask(plan: SumPlan, owner: int, seed: bytes) -> np.ndarray:
    """Return the mask that an owner adds for itself."""
    return mask_words(derive(seed, _context(plan, b"own mask", owner)), plan.size)


def common_mask(plan: SumPlan, owner: int, other: int, private: bytes, public: bytes) -> np.ndarray:
    """Return the mask that an owner adds for another one, which adds its negative.

    Parameters
    ----------
    plan : SumPlan
        That of the sum.
    owner, other : int
        Two neighbours.
    private : bytes
        Private masking key of one of the two.
    public : bytes
        Public masking key of the other one.
    """
    context = _context(plan, b"common mask", min(owner, other), max(owner, other))
    mask = mask_words(agree(private, public, context), plan.size)
    return mask if owner < other else np.negative(mask)


def commitment(plan: SumPlan, owner: int, seed: bytes) -> bytes:
    """Return what tells whether a seed is an owner's, and nothing about it."""
    return derive(seed, _context(plan, b"commitment", owner))[:HASH_BYTES]


def hash_of_share(plan: SumPlan, dealer: int, holder: int, share: bytes) -> bytes:
    """Return what tells whether a share is the one that was dealt.

    Each share alone is uniform, and so are fewer than a secret needs: hashes tell nothing of them.
    """
    context = _context(plan, b"hash of a share", dealer, holder)
    return hashlib.sha256(context + share).digest()[:HASH_BYTES]


def hashes_of_shares(plan: SumPlan, dealer: int, holder: int, shares: bytes) -> bytes:
    """Return the hashes of the two shares that a holder has of a dealer."""
    return b"".join(hash_of_share(plan, dealer, holder, shares[half]) for half in (SEED, MASKING))


def seal_shares(
    plan: SumPlan,
    sender: int,
    receiver: int,
    private: bytes,
    public: bytes,
    shares: bytes,
    hashes: bytes,
) -> bytes:
    """Encrypt shares for their holder, bound to the hashes that are published of them."""
    context = _context(plan, b"shares", sender, receiver)
    return seal(agree(private, public, context), shares, context + hashes)


def unseal_shares(
    plan: SumPlan,
    sender: int,
    receiver: int,
    private: bytes,
    public: bytes,
    sealed: bytes,
    hashes: bytes,
) -> bytes:
    """Decrypt what a neighbour sealed in this sum for this receiver, or raise FaultyOwnerError."""
    context = _context(plan, b"shares", sender, receiver)
    try:
        shares = unseal(agree(private, public, context), sealed, context + hashes)
    except ValueError:
        raise FaultyOwnerError(
            f"the shares of owner {sender} were not sealed by it, in this sum, for owner "
            f"{receiver}.",
            sender,
        ) from None
    if hashes_of_shares(plan, sender, receiver, shares) != hashes:
        raise FaultyOwnerError(
            f"the shares of owner {sender} are not those that it published the hashes of.", sender
        )
    return shares


def _context(plan: SumPlan, purpose: bytes, *owners: int) -> bytes:
    """Return what a key is for: the sum, the purpose and the owners, of fixed lengths."""
    encoded = b"".join(int(owner).to_bytes(8, "big") for owner in owners)
    return plan.context + purpose.ljust(16, b"\0") + encoded
