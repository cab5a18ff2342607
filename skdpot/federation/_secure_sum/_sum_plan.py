"""The public plan of a secure sum: its size, its threshold, and who shares keys with whom."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral

import numpy as np

_MIN_SESSION_BYTES = 16
# A mask is one stream of ChaCha20, whose counter has 32 bits for blocks of eight words.
_MAX_SIZE = 2**35


class SecureSumError(RuntimeError):
    """A secure sum is impossible, or a method was called out of turn.

    Examples
    --------
    >>> from skdpot.federation._secure_sum import SecureSumCoordinator, SecureSumError, SumPlan
    >>> coordinator = SecureSumCoordinator(SumPlan(3, 10, 2, b"sixteen or more."))
    >>> try:
    ...     coordinator.total()
    ... except SecureSumError as error:
    ...     print(error)
    there is no total before survivors are asked to reveal shares.
    """


class FaultyOwnerError(ValueError):
    """The shares that an owner dealt to another one are invalid.

    Parameters
    ----------
    message : str
        What is wrong with them.
    owner : int
        The owner that dealt them.
    """

    def __init__(self, message: str, owner: int) -> None:
        super().__init__(message)
        self.owner = owner


@dataclass(frozen=True)
class SumPlan:
    """The public parameters of one secure sum, the same for all owners.

    Parameters
    ----------
    n_owners : int
        Number of owners; they are numbered from 0.
    size : int
        Number of 64-bit words of a vector.
    threshold : int
        Smallest number of survivors in a sum; more than half of the owners.
    session : bytes
        At least 16 bytes that are unique to this sum; all keys are derived with it.
    n_neighbours : int, default=None
        Number of neighbours of each owner, even. Owners share masks with their neighbours only:
        the nearest ones on both sides of a circle, whose order `session` determines (SecAgg+).
        None: every two owners share a mask (SecAgg).
    all_or_nothing : bool, default=False
        Whether owners reveal shares only if the vectors of all owners arrived.

    Attributes
    ----------
    local_threshold : int
        Number of shares that determine a secret: `threshold`, in proportion to the holders.
    required : int
        Number of owners that each of the first three legs needs.
    context : bytes
        A hash of the plan, on which every key depends.

    Raises
    ------
    ValueError
        If a parameter is not valid.

    See Also
    --------
    SecureSumOwner : One owner's part.
    SecureSumCoordinator : The part of the coordinator, which gets the sum.

    Notes
    -----
    The coordinator learns the sum of the survivors' vectors modulo 2**64, who took part in which
    leg, and nothing else, provided that

    - fewer than `threshold` owners collude with it, each other or anybody else. They can always
      subtract their own vectors from the sum, and learn the sum of the rest;
    - each owner keeps one state and answers each leg once. An owner that restores an old state can
      be made to reveal both secrets;
    - *without* :class:`Signers`, the coordinator follows the protocol, though it may analyse all
      it sees. A coordinator that invents owners sees the vectors of the others. One that tells
      owners different lists of survivors, with c colluding owners, gets both secrets of an owner,
      and so its vector, if ``2 * threshold <= n_owners + c``. Otherwise it may get a sum over
      fewer owners than `threshold`;
    - *with* :class:`Signers`, ``2 * threshold > n_owners + c`` and the public keys belong to the
      owners. Then the coordinator may do anything, and the sum is over at least ``threshold - c``
      honest owners: :ref:`proof-colluding-owners`. If privacy needs the noise of m honest owners,
      this number must be at least m. For ``2 * threshold <= n_owners + c`` signatures do not help.

    Wrong shares, and their dealers, are found before any vector is sent. Shares are numbers modulo
    the order of a curve, and each dealer publishes their points [3]_. An owner that opens its
    shares compares them with the points. The coordinator checks that all points of one secret are
    on one polynomial [4]_, and that those of a masking key match the public key. Then any
    `local_threshold` of the shares give the secret. The published points protect a secret as well
    as a public key protects its private key. A wrong vector is not detected.

    With `n_neighbours`, an owner is safe under two conditions: fewer than `local_threshold` of its
    neighbours and itself collude, and the circle of the honest survivors is connected. Two gaps of
    ``n_neighbours / 2`` divide it, and the sums of both parts are revealed. Both conditions hold
    with high probability if the colluders were chosen before `session`; [2]_ bounds this
    probability. Without `n_neighbours` there is no such condition, and a sum is fast enough for a
    hundred owners.

    Sums of the same vectors over different survivors reveal more than one sum: their difference is
    the sum over the owners that were missing once. If a sum may be repeated, use `all_or_nothing`.

    *A sum is not private.* It reveals as much about a row as it would without masks. For example,
    the sum of the messages of a barycenter's dual gives weighted means of rows exactly, and most
    single rows. Add noise to private vectors before they are summed.

    References
    ----------
    .. [1] K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
       learning", CCS 2017. :doi:`10.1145/3133956.3133982`
    .. [2] J. H. Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead",
       CCS 2020. :doi:`10.1145/3372297.3417885`
    .. [3] P. Feldman, "A practical scheme for non-interactive verifiable secret sharing", FOCS
       1987. :doi:`10.1109/SFCS.1987.4`
    .. [4] I. Cascudo and B. David, "SCRAPE: scalable randomness attested by public entities", ACNS
       2017, Lemma 1. :doi:`10.1007/978-3-319-61204-1_27`

    Examples
    --------
    >>> from skdpot.federation._secure_sum import SumPlan
    >>> plan = SumPlan(n_owners=9, size=100, threshold=6, session=bytes(16), n_neighbours=4)
    >>> len(plan.neighbours(0)), plan.local_threshold
    (4, 4)
    """

    n_owners: int
    size: int
    threshold: int
    session: bytes
    n_neighbours: int | None = None
    all_or_nothing: bool = False

    def __post_init__(self) -> None:
        n = self.n_owners
        _check_integer("n_owners", n, 2, None)
        _check_integer("size", self.size, 1, _MAX_SIZE)
        _check_integer("threshold", self.threshold, n // 2 + 1, n)
        if not isinstance(self.session, bytes) or len(self.session) < _MIN_SESSION_BYTES:
            raise ValueError(f"session must be at least {_MIN_SESSION_BYTES} bytes.")
        if self.n_neighbours is not None:
            _check_integer("n_neighbours", self.n_neighbours, 2, n - 1)
            if self.n_neighbours % 2:
                raise ValueError(f"n_neighbours must be even, got {self.n_neighbours}.")
        if not isinstance(self.all_or_nothing, bool):
            raise ValueError(f"all_or_nothing must be a bool, got {self.all_or_nothing!r}.")

    @property
    def local_threshold(self) -> int:
        """Return the number of shares that determine a secret."""
        n_holders = self._degree + 1
        return -(-self.threshold * n_holders // self.n_owners)

    @property
    def required(self) -> int:
        """Return the number of owners that each of the first three legs needs."""
        return self.n_owners if self.all_or_nothing else self.threshold

    @cached_property
    def context(self) -> bytes:
        """Return a hash of the plan."""
        numbers = (self.n_owners, self.size, self.threshold, self._degree, int(self.all_or_nothing))
        encoded = b"".join(int(number).to_bytes(8, "big") for number in numbers)
        return hashlib.sha256(b"skdpot secure sum 2" + encoded + self.session).digest()

    def neighbours(self, owner: int) -> list[int]:
        """Return the other owners that have a common mask with an owner, in ascending order."""
        self.check_owner(owner)
        if self.n_neighbours is None:
            return [other for other in range(self.n_owners) if other != owner]
        circle, place = self._circle, self._places[owner]
        steps = range(1, self.n_neighbours // 2 + 1)
        near = [circle[(place + s) % self.n_owners] for step in steps for s in (step, -step)]
        return sorted(near)

    def holders(self, owner: int) -> list[int]:
        """Return the owners that hold a share of an owner's secrets: its neighbours and itself.

        They are in ascending order; the one in position p has the share at the point p + 1.
        """
        return sorted([owner, *self.neighbours(owner)])

    def hang_together(self, owners: Iterable[int]) -> bool:
        """Tell whether only the sum over all of these owners can be unmasked.

        That is true if neighbours among them connect each owner with every other one.
        """
        left = set(owners)
        reached = [left.pop()] if left else []
        while reached:
            near = left.intersection(self.neighbours(reached.pop()))
            left -= near
            reached += near
        return not left

    def check_owner(self, owner: int) -> None:
        """Raise ValueError unless an owner is one of the plan."""
        _check_integer("owner", owner, 0, self.n_owners - 1)

    @property
    def _degree(self) -> int:
        return self.n_owners - 1 if self.n_neighbours is None else self.n_neighbours

    @cached_property
    def _circle(self) -> list[int]:
        # Sorted by hashes, not shuffled by a generator, so it is the same in all versions of NumPy.
        def key(owner: int) -> bytes:
            return hashlib.sha256(self.context + b"circle" + owner.to_bytes(8, "big")).digest()

        return sorted(range(self.n_owners), key=key)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {owner: place for place, owner in enumerate(self._circle)}


def read_payload(
    payload: Mapping[str, np.ndarray], subject: str, **expected: tuple[type, tuple[int | None, ...]]
) -> list[np.ndarray]:
    """Return copies of a payload's arrays in the order of `expected`, or raise ValueError.

    `expected` has the type and shape of every array; a length of None is any. Errors call the
    payload `subject`, and show no values.
    """
    if not isinstance(payload, Mapping) or set(payload) != set(expected):
        raise ValueError(f"{subject} must have the arrays {', '.join(expected)} and no others.")
    arrays = []
    for name, (dtype, shape) in expected.items():
        array = payload[name]
        if not isinstance(array, np.ndarray) or array.dtype != np.dtype(dtype):
            raise ValueError(f"{subject}: {name} must be an array of {np.dtype(dtype).name}.")
        fits = len(array.shape) == len(shape) and all(
            length in (None, found) for length, found in zip(shape, array.shape, strict=True)
        )
        if not fits:
            raise ValueError(f"{subject}: {name} must have the shape {shape}, got {array.shape}.")
        arrays.append(np.array(array, order="C"))
    return arrays


def read_owners(array: np.ndarray, among: Iterable[int], subject: str) -> list[int]:
    """Return the owners of an array that must be ascending and among some, or raise ValueError."""
    owners = array.tolist()
    if any(first >= second for first, second in zip(owners, owners[1:], strict=False)):
        raise ValueError(f"{subject} must name owners in ascending order, each once.")
    strangers = sorted(set(owners).difference(among))
    if strangers:
        raise ValueError(f"{subject} names owners that cannot be there: {strangers[:5]}.")
    return owners


def _check_integer(name: str, value: int, low: int, high: int | None) -> None:
    valid = isinstance(value, Integral) and not isinstance(value, bool) and value >= low
    if not valid or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be an integer {limits}, got {value!r}.")
