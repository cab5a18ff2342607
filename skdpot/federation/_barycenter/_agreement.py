"""Results of a federation, counts of its messages, and its error."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skdpot.releases import ReleasedGroups


class FederationError(RuntimeError):
    """Owners did not answer, or refused, and the coordinator was not told to go on without.

    Parameters
    ----------
    message : str
        What went wrong, and what to do.
    missing : mapping of str to str
        Why, by the owners' names: what the coordinator noticed, or an owner gave as its reason, in
        which there is nothing private.
    """

    def __init__(self, message: str, missing: Mapping[str, str]) -> None:
        super().__init__(message)
        self.missing = dict(missing)


@dataclass(frozen=True)
class Crossing:
    """What crossed the wire in one leg of a round: how many messages and bytes, no contents.

    Attributes
    ----------
    round : int
        Number of the round, from 0; of the greeting before, 0, too.
    leg : str
        ``"hello"``, ``"step"``, ``"finish"``, or a leg of secure aggregation: ``"keys"``,
        ``"shares"``, ``"masked"``, ``"reveal"``.
    step : str
        What the coordinator wanted to know in the round.
    n_asked : int
        Messages to owners, repeated ones included.
    n_answered : int
        Answers that were accepted.
    bytes_down : int
        Size of all messages to owners.
    bytes_up : int
        Size of all accepted answers.
    """

    round: int
    leg: str
    step: str
    n_asked: int
    n_answered: int
    bytes_down: int
    bytes_up: int


@dataclass(frozen=True, eq=False)
class BarycenterAgreement:
    """What a federation has found.

    Attributes
    ----------
    support : ndarray of shape (n_support, n_features)
        Points of the barycenter, each of mass ``1 / n_support``.
    objective : float
        Weighted sum of the groups' squared Wasserstein distances to it; after a release, of the
        groups as they were released.
    lower_bound : float
        No choice among the candidates has a smaller one; after a release, no barycenter of the
        released groups. NaN where no bound is known.
    n_rounds : int
        Rounds of messages.
    converged : bool
        Whether the tolerance was reached.
    history : list of tuple
        Round, lower and upper bound, whenever they were known.
    released : ReleasedGroups or None
        The groups, after a release.
    owners : tuple of str
        Owners that took part to the end.
    dropped : tuple of str
        Owners that the coordinator went on without.
    traffic : list of Crossing
        What crossed the wire.
    resolution : float
        By how much an entry of a sum may be wrong, in units of the largest that there may be,
        because secure sums of doubles are sums of integers. Bounds allow for it.

    See Also
    --------
    run_barycenter : Makes one.

    Notes
    -----
    After a release all of it is a function of what owners released, and of what is public; it may
    be published. Without one **it is not private:** a support, and what is certain about it, depend
    on single rows.
    """

    support: np.ndarray = field(repr=False)
    objective: float
    lower_bound: float
    n_rounds: int
    converged: bool
    history: list[Any] = field(repr=False)
    released: ReleasedGroups | None = field(repr=False)
    owners: tuple[str, ...]
    dropped: tuple[str, ...]
    traffic: list[Crossing] = field(repr=False)
    resolution: float
