"""Masks and sealed shares of a secure sum."""

import numpy as np

from ._crypto import (
    KEY_BYTES,
    POINT_BYTES,
    SEALING_BYTES,
    agree,
    derive,
    has_point,
    mask_words,
    point_of,
    seal,
    unseal,
)
from ._sum_plan import FaultyOwnerError, SumPlan

# Size of a share of an owner's seed and a share of its masking key.
SHARES_BYTES = 2 * KEY_BYTES
SEALED_BYTES = SHARES_BYTES + SEALING_BYTES
SEED, MASKING = slice(0, KEY_BYTES), slice(KEY_BYTES, SHARES_BYTES)
# Rows of the advertised keys.
SEALING_ROW, MASKING_ROW = 0, 1


def own_mask(plan: SumPlan, owner: int, seed: bytes) -> np.ndarray:
    """Return the mask that an owner adds for itself."""
    return mask_words(derive(seed, _context(plan, b"own mask", owner)), plan.size)


def common_mask(plan: SumPlan, owner: int, other: int, private: bytes, public: bytes) -> np.ndarray:
    """Return the mask that an owner adds for a neighbour, which adds its negative.

    `private` is the masking key of one of the two, and `public` that of the other one.
    """
    context = _context(plan, b"common mask", min(owner, other), max(owner, other))
    mask = mask_words(agree(private, public, context), plan.size)
    return mask if owner < other else np.negative(mask)


def points_of_shares(shares: bytes) -> bytes:
    """Return the points of the two shares that a holder has from a dealer.

    They hide the shares like public keys hide private ones, and identify them.
    """
    return point_of(shares[SEED]) + point_of(shares[MASKING])


def seal_shares(
    plan: SumPlan,
    sender: int,
    receiver: int,
    private: bytes,
    public: bytes,
    shares: bytes,
    points: bytes,
) -> bytes:
    """Encrypt shares for their holder, bound to their published points."""
    # The points make the key unique to these shares, even if an old state is used again.
    context = _context(plan, b"shares", sender, receiver) + points
    return seal(agree(private, public, context), shares, context)


def unseal_shares(
    plan: SumPlan,
    sender: int,
    receiver: int,
    private: bytes,
    public: bytes,
    sealed: bytes,
    points: bytes,
) -> bytes:
    """Decrypt shares that a neighbour sealed for this receiver, or raise FaultyOwnerError."""
    context = _context(plan, b"shares", sender, receiver) + points
    try:
        shares = unseal(agree(private, public, context), sealed, context)
    except ValueError:
        raise FaultyOwnerError(
            f"the shares of owner {sender} were not sealed by it, in this sum, for owner "
            f"{receiver}.",
            sender,
        ) from None
    pairs = (SEED, points[:POINT_BYTES]), (MASKING, points[POINT_BYTES:])
    if not all(has_point(shares[half], point) for half, point in pairs):
        raise FaultyOwnerError(f"shares of owner {sender} do not fit its published points.", sender)
    return shares


def _context(plan: SumPlan, purpose: bytes, *owners: int) -> bytes:
    """Return the context of a key: the sum, the purpose and the owners, with fixed lengths."""
    encoded = b"".join(int(owner).to_bytes(8, "big") for owner in owners)
    return plan.context + purpose.ljust(16, b"\0") + encoded
