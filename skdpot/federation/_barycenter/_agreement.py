"""The result of a federated barycenter."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from skdpot.releases import ReleasedGroups

from .._legs import Crossing


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
