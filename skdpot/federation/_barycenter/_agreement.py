"""Results of a federation, the record of its messages, and its error."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from skdpot.releases import ReleasedGroups


class FederationError(RuntimeError):
    """Error: owners did not answer or refused, and the coordinator may not continue without them.

    Parameters
    ----------
    message : str
        The problem, and what to do.
    missing : mapping of str to str
        Reason for each missing owner, as the coordinator noticed it or the owner gave it. Reasons
        contain nothing private.
    """

    def __init__(self, message: str, missing: Mapping[str, str]) -> None:
        super().__init__(message)
        self.missing = dict(missing)


@dataclass(frozen=True)
class Crossing:
    """Record of the messages in one leg of a round: the types of the numbers, without their
    values.

    Attributes
    ----------
    round : int
        Number of the round, from 0; the greeting before it also has 0.
    leg : str
        ``"hello"``, ``"step"``, ``"finish"``, or a leg of secure aggregation: ``"keys"``,
        ``"shares"``, ``"check"``, ``"masked"``, with keys ``"consistency"``, ``"reveal"``.
    step : str
        The question of the coordinator in the round.
    n_asked : int
        Number of messages to owners, including repeated ones.
    n_answered : int
        Number of accepted answers.
    bytes_down : int
        Size of all messages to owners.
    bytes_up : int
        Size of all accepted answers.
    values_down : str
        Number and types of the numbers in a message to an owner, such as ``"242 int64"``.
    values_up : str
        The same for an answer.
    asked : dict of str to str
        SHA-256 digests of the messages to owners, by owner. They prove which message was sent.
        Comparisons ignore digests, because they differ between sessions.
    answered : dict of str to str
        Digests of the answers, by owner.
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
    """Result of a federation.

    Attributes
    ----------
    support : ndarray of shape (n_support, n_features)
        Points of the barycenter, each of mass ``1 / n_support``.
    objective : float
        Weighted sum of the groups' squared Wasserstein distances to the support; after a release,
        for the released groups.
    lower_bound : float
        Lower bound of the objective over all choices among the candidates; after a release, over
        all barycenters of the released groups. NaN if no bound is known.
    n_rounds : int
        Number of rounds of messages.
    converged : bool
        Whether the tolerance was reached.
    history : list of tuple
        Round, lower and upper bound, for the rounds in which they were known.
    released : ReleasedGroups or None
        The groups, after a release.
    owners : tuple of str
        Owners that took part to the end.
    dropped : tuple of str
        Owners that were dropped.
    traffic : list of Crossing
        Record of the messages.
    rows : dict of str to int
        Number of rows that each owner declared, for a release. Answers that are impossible for
        these rows were refused.
    keys : dict of str to str
        Public keys of owners, if names were bound to keys: every accepted answer of an owner was
        signed with its key.
    rejected : dict of str to (dict of str to int)
        Number of refused messages, by owner and by cause. They had no effect.
    resolution : float
        Largest error of an entry of a sum, relative to the largest possible entry, because secure
        sums of doubles are sums of integers. Bounds include it.

    See Also
    --------
    run_barycenter : Returns one.

    Notes
    -----
    After a release, everything in it is a function of the owners' releases and of public values,
    so you may publish it. Without a release **it is not private:** support and bounds depend on
    single rows.
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
        """Return the record of the messages: JSON for the files of all parties.

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
