"""Secure sums: SecAgg+ for vectors of 64-bit words, independent of any wire.

A sum takes four legs, or five if owners have keys. In each leg the coordinator sends a message to
every owner and gets an answer:

1. *keys*: owners advertise two public keys;
2. *shares*: each splits its two secrets among its neighbours, encrypted for them, and publishes
   points that verify the shares;
3. *masked*: each sends its vector plus its own mask, and plus or minus a common mask for every
   neighbour, which cancels in the sum;
4. *consistency*, with keys: each signs the list of owners whose vectors arrived, and continues
   if as many as the threshold have signed the same list;
5. *reveal*: each reveals its shares of the remaining masks: of the own masks of owners whose
   vector arrived, and of the masking keys of all others.

:class:`SumPlan` states the guarantees and their conditions.
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
