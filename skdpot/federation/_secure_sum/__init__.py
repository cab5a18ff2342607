"""Secure sums: SecAgg+ for vectors of 64-bit words, independent of any wire.

A sum takes four legs, or five where owners have keys. In each the coordinator sends something to
every owner and gets an answer:

1. *keys*: owners advertise two public keys;
2. *shares*: each splits its two secrets among its neighbours, encrypted for them, and publishes
   points by which shares are checked;
3. *masked*: each sends its vector plus a mask of its own, and plus or minus a mask for every
   neighbour, which the neighbour's cancels;
4. *consistency*, with keys: each signs the list of those whose vectors arrived, and goes on when
   as many as the threshold have signed the same one;
5. *reveal*: each gives its shares of what is left: of the own masks of owners whose vector
   arrived, and of the masking keys of owners whose vector did not.

What holds, and on what conditions, is said at :class:`SumPlan`.
"""

from ._fixed_point import LARGEST_NUMBER, FixedPoint, integers_of, words_of
from ._signers import Signers
from ._sum_coordinator import SecureSumCoordinator
from ._sum_owner import SecureSumOwner
from ._sum_plan import FaultyOwnerError, SecureSumError, SumPlan

__all__ = [
    "LARGEST_NUMBER",
    "FaultyOwnerError",
    "FixedPoint",
    "SecureSumOwner",
    "SecureSumCoordinator",
    "SecureSumError",
    "Signers",
    "SumPlan",
    "integers_of",
    "words_of",
]
