"""Parameters of secure aggregation, and the encoding of vectors for it."""

import hashlib
import json
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._keys import SigningKey
from ._secure_sum import FixedPoint, Signers, SumPlan, integers_of, words_of
from ._wire import Packet, digest_of

# The leg "check" of a release checks everything that could make an owner refuse, before owners are
# charged in "masked".
SECURE_LEGS = ("keys", "shares", "check", "masked", "reveal")
# Owners with keys sign the list of survivors before they unmask the sum.
SIGNED_LEGS = ("keys", "shares", "check", "masked", "consistency", "reveal")
# Names and public keys of all owners, in their order; empty without keys.
Roster = Sequence[Sequence[str]]


@dataclass(frozen=True)
class SecureAggregation:
    """Parameters of secure aggregation, in which the coordinator sees only sums.

    **Secure aggregation alone is not private**: the sums of an algorithm reveal single rows. The
    page on federations shows attacks.

    Parameters
    ----------
    threshold : int, default=None
        Number of owners needed to unmask a sum. Fewer owners, even together with the coordinator,
        learn nothing about another owner's vector. It must be more than half of the owners. None
        is two thirds, rounded up, at least 2. With keys of all owners it is more than two thirds,
        which protects against a coordinator that tells owners different things. With shared noise
        it is at least `n_honest`, and above the number of all other owners. Then at most
        ``threshold - n_honest`` owners may collude with the coordinator, because they may all be
        among the `threshold` owners of a sum.
    n_neighbours : int, default=None
        Number of other owners with which an owner shares keys. None is all of them: use it for up
        to about a hundred owners, and for shared noise.

    Raises
    ------
    ValueError
        If the threshold is below 2.

    References
    ----------
    K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS
    2017. :doi:`10.1145/3133956.3133982`

    J. H. Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020.
    :doi:`10.1145/3372297.3417885`

    Examples
    --------
    >>> from skdpot.federation import SecureAggregation
    >>> SecureAggregation().for_owners(10)
    SecureAggregation(threshold=7, n_neighbours=None)
    """

    threshold: int | None = None
    n_neighbours: int | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and operator.index(self.threshold) < 2:
            raise ValueError(f"threshold must be at least 2, got {self.threshold!r}.")

    def for_owners(
        self, n_owners: int, n_honest: int = 1, signed: bool = False
    ) -> "SecureAggregation":
        """Return the parameters for a number of owners.

        Parameters
        ----------
        n_owners : int
            Number of owners.
        n_honest : int, default=1
            A sum must not be over fewer, and the others must not be enough to unmask one.
        signed : bool, default=False
            Whether owners have keys.

        Returns
        -------
        SecureAggregation
            With a threshold, and neighbours only where they are fewer than all others.

        Raises
        ------
        ValueError
            If there are too few owners for the threshold, the threshold is too low, or the number
            of neighbours is odd or not allowed with shared noise.
        """
        # With shared noise a single part has too little noise.
        of_others = n_owners - n_honest if n_honest > 1 else 0
        least = max(2, n_owners // 2 + 1, n_honest, of_others + 1)
        threshold = self.threshold
        if threshold is None:
            threshold = max(default_threshold(n_owners, signed), least)
        if not least <= threshold <= n_owners:
            raise ValueError(
                f"a secure sum over {n_owners} owners needs a threshold from {least} to "
                f"{n_owners}, got {threshold}."
            )
        neighbours = self.n_neighbours
        if neighbours is not None and (neighbours < 2 or neighbours % 2):
            raise ValueError(f"n_neighbours must be even and at least 2, got {neighbours!r}.")
        if neighbours is not None and neighbours >= n_owners - 1:
            neighbours = None
        if neighbours is not None and n_honest > 1:
            raise ValueError(
                "with shared noise every owner shares keys with all others: leave n_neighbours "
                "out, as colluding owners may be all neighbours of one."
            )
        return SecureAggregation(threshold, neighbours)


def default_threshold(n_owners: int, signed: bool) -> int:
    """Return two thirds of the owners, rounded up; more than two thirds if they have keys."""
    return 2 * n_owners // 3 + 1 if signed else math.ceil(2 * n_owners / 3)


def plan_of(said: dict[str, Any], session: str, attempt: str, roster: Roster = ()) -> Any:
    """Return the plan of a sum, from a message of a session and an attempt.

    `said` has the parameters of the sum (``"plan"``), its number (``"round"``) and a digest of the
    question (``"task"``). `roster` has the owners' names and public keys, if they have keys. The
    keys depend on all of it. Owners that got different values have no common masks, and their sum
    is noise.
    """
    names = ("n_owners", "size", "threshold", "n_neighbours", "all_or_nothing")
    context = json.dumps([session, said["round"], attempt, said["task"], *roster]).encode()
    return SumPlan(
        **{name: said["plan"][name] for name in names}, session=hashlib.sha256(context).digest()
    )


def signers_of(roster: Roster, key: SigningKey | None = None) -> Signers | None:
    """Return the signers of a sum, None without keys."""
    return Signers(tuple(public for _, public in roster), key) if roster else None


def task_digest(task: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return a digest of a task and its arrays."""
    in_order = {name: arrays[name] for name in sorted(arrays)}
    return digest_of(Packet("task", fields=task, arrays=in_order))


def resolution(n_owners: int) -> float:
    """Return the largest error of a sum of so many doubles, in units of the largest entry."""
    return float(FixedPoint(1.0, n_owners).error_bound)


class Coding:
    """The encoding of the vectors of a round as 64-bit words, and the decoding of their sum.

    Parameters
    ----------
    step : dict
        ``"type"`` of the vectors; for doubles, also their ``"largest"`` magnitude.
    n_owners : int
        Largest number of summed vectors.
    """

    def __init__(self, step: dict[str, Any], n_owners: int) -> None:
        self._fixed = None
        if step["type"] == "float64":
            self._fixed = FixedPoint(float(step["largest"]), n_owners)

    def encode(self, vector: np.ndarray) -> np.ndarray:
        """Return a vector as words."""
        return words_of(vector) if self._fixed is None else self._fixed.encode(vector)

    def decode(self, words: np.ndarray) -> np.ndarray:
        """Return the sum of vectors, from the sum of their words."""
        return integers_of(words) if self._fixed is None else self._fixed.decode(words)
