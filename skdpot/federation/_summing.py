"""What is agreed on about a secure sum, and how a round's vectors become words of it."""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

SECURE_LEGS = ("keys", "shares", "masked", "reveal")


@dataclass(frozen=True)
class SecureAggregation:
    """How sums are taken so that the coordinator sees nothing but them.

    Sums are **not private by themselves**: whoever sees those of an algorithm learns about single
    rows. The user guide has the attacks.

    Parameters
    ----------
    threshold : int, default=None
        So many owners are needed to unmask a sum; fewer, even with the coordinator, learn nothing
        of another's vector. None is two thirds of the owners, rounded up, and at least 2.
    n_neighbours : int, default=None
        With how many others an owner shares keys. None is with all of them, which is for up to
        about a hundred owners.

    Examples
    --------
    >>> from skdpot.federation import SecureAggregation
    >>> SecureAggregation().for_members(10)
    SecureAggregation(threshold=7, n_neighbours=None)
    """

    threshold: int | None = None
    n_neighbours: int | None = None

    def for_members(self, n_members: int) -> "SecureAggregation":
        """Return the same for so many owners, or raise if they are too few."""
        threshold = self.threshold or max(2, math.ceil(2 * n_members / 3))
        if not 2 <= threshold <= n_members:
            raise ValueError(
                f"a secure sum over {n_members} owners needs a threshold from 2 to {n_members}, "
                f"got {threshold}."
            )
        return SecureAggregation(threshold, self.n_neighbours)


def plan_of(fields: dict[str, Any], session: str, number: int, attempt: str) -> Any:
    """Return the plan of a sum that is told in a message of a session, a round and an attempt."""
    from skdpot.federation._secure_sum import SumPlan

    names = ("n_members", "size", "threshold", "n_neighbours", "all_or_nothing")
    context = json.dumps([session, number, attempt]).encode()
    return SumPlan(
        **{name: fields[name] for name in names}, session=hashlib.sha256(context).digest()
    )


def resolution(n_members: int) -> float:
    """Return by how much a sum of so many doubles may be wrong, in units of the largest entry."""
    from skdpot.federation._secure_sum import FixedPoint

    return float(FixedPoint(1.0, n_members).error_bound)


class Coding:
    """How vectors of a round become words of 64 bits, and a sum of words a sum of vectors.

    Parameters
    ----------
    step : dict
        ``"type"`` of the vectors; of doubles, also the ``"largest"`` magnitude that they have.
    n_members : int
        How many are summed at most.
    """

    def __init__(self, step: dict[str, Any], n_members: int) -> None:
        from skdpot.federation._secure_sum import FixedPoint

        self._fixed = None
        if step["type"] == "float64":
            self._fixed = FixedPoint(float(step["largest"]), n_members)

    def encode(self, vector: np.ndarray) -> np.ndarray:
        """Return a vector as words."""
        return vector.view(np.uint64) if self._fixed is None else self._fixed.encode(vector)

    def decode(self, words: np.ndarray) -> np.ndarray:
        """Return the sum of vectors that a sum of words is."""
        return words.view(np.int64) if self._fixed is None else self._fixed.decode(words)
