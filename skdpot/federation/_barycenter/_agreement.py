"""Results of a federation, the record of its messages, and its error."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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
    """What crossed the wire in one leg of a round: what kinds of numbers, and no number.

    Attributes
    ----------
    round : int
        Number of the round, from 0; of the greeting before, 0, too.
    leg : str
        ``"hello"``, ``"step"``, ``"finish"``, or a leg of secure aggregation: ``"keys"``,
        ``"shares"``, ``"check"``, ``"masked"``, with keys ``"consistency"``, ``"reveal"``.
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
    values_down : str
        How many numbers of which types a message to an owner had, as ``"242 int64"``.
    values_up : str
        The same of an answer.
    asked : dict of str to str
        SHA-256 digests of what owners were sent, by owner. Whoever kept a message can show that it
        is the one. In comparisons digests do not count: no two sessions have the same ones.
    answered : dict of str to str
        Digests of what owners answered.
    """

    round: int
    leg: str
    step: str
    n_asked: int
    n_answered: int
    bytes_down: int
    bytes_up: int
    values_down: str = ""
    values_up: str = ""
    asked: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    answered: dict[str, str] = field(default_factory=dict, compare=False, repr=False)


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
    rows : dict of str to int
        How many rows each owner declared, for a release. What an owner sent is compared with what
        so many rows can give.
    keys : dict of str to str
        Public keys of owners, if names were bound to keys: every accepted answer of an owner was
        signed with its key.
    rejected : dict of str to (dict of str to int)
        How many messages were not accepted, by owner and by cause. None of them did anything.
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
    rows: dict[str, int] = field(repr=False)
    keys: dict[str, str] = field(repr=False)
    rejected: dict[str, dict[str, int]] = field(repr=False)
    resolution: float

    def record(self) -> str:
        """Return who saw what: JSON for the files of all parties.

        Returns
        -------
        str
            Owners, their keys, and the rows that they declared; of every leg of a round, what kinds
            of numbers the coordinator and each owner saw, how many, and digests of the messages;
            what was not accepted, from whom, and why. There are no values in it. After a restart
            from a checkpoint it is of the legs since then.
        """
        names = ("owners", "dropped", "rows", "keys", "n_rounds", "converged", "rejected")
        told: dict[str, Any] = {name: getattr(self, name) for name in names}
        return json.dumps(told | {"legs": [asdict(leg) for leg in self.traffic]}, indent=1)
