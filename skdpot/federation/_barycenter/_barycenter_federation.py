"""Owners and a carrier, as a parameter of an estimator."""

from collections.abc import Mapping
from typing import Any

from .._carriers import Carrier, run_barycenter
from .._keys import SigningKey
from .._run_defaults import MAX_ROWS
from .._secure_aggregation import SecureAggregation
from ._agreement import BarycenterAgreement
from ._barycenter_coordinator import BarycenterCoordinator
from ._coordinator_settings import checked_names
from ._group_release import GroupRelease


class BarycenterFederation:
    """The owners of the rows to which an estimator is fitted.

    Clones of an estimator share it. A pickle of an estimator contains the fitted attributes, but
    not the federation.

    Parameters
    ----------
    owners : sequence of str, or mapping of str to str
        Names of the owners, or public keys by names.
    carrier : Carrier
        Carrier of the messages.
    noise : {"own", "shared"}, default="own"
        Whether every owner adds all the noise that its rows need, or only a part, under secure
        aggregation: see :class:`GroupRelease`. Owners must agree to it.
    n_honest : int, default=None
        With shared noise, the smallest number of honest owners in the sum.
    secure : SecureAggregation, default=None
        Secure aggregation, with which the coordinator sees only sums.
    on_missing : {"raise", "drop"}, default="raise"
        Whether a release continues without owners that do not answer.
    n_attempts : int, default=3
        How often an owner is asked.
    timeout : float, default=None
        Seconds to wait for answers.
    max_rows : int or mapping of str to int, default=10_000_000
        Largest number of rows that an owner may declare: see :class:`BarycenterCoordinator`.
    combine : {"sum", "median"}, default="sum"
        Whether parts are summed, or the median over owners is taken.
    key : SigningKey, default=None
        Key with which the coordinator signs its messages.

    Attributes
    ----------
    agreement : BarycenterAgreement or None
        Record of the last fit: messages and owners.

    Raises
    ------
    ValueError
        If two names are equal.
    TypeError
        If the carrier has no method `exchange`, or `secure` is no `SecureAggregation`.

    Notes
    -----
    Owners send only the release that they agreed to, with noise and charged to their own ledgers.
    The number of rows of each owner is public.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.federation import BarycenterFederation, InProcessCarrier
    >>> rng = np.random.default_rng(0)
    >>> declared = {"epsilon": 4.0, "delta": 1e-6, "bounds": (-5, 5), "groups": ["a", "b"]}
    >>> from skdpot.fairness import FreeSupport
    >>> fair = FairBarycenterPreprocessor(**declared, method=FreeSupport(n_support=50))
    >>> owners = []
    >>> for name, shift in [("north", -1), ("south", 1)]:
    ...     group = rng.choice(["a", "b"], 1000)
    ...     X = rng.normal(size=(1000, 2)) + shift * (group == "a")[:, None]
    ...     owners.append(fair.as_owner(name, X, sensitive_features=group))
    >>> federation = BarycenterFederation(["north", "south"], InProcessCarrier(owners))
    >>> fitted = fair.set_params(federation=federation).fit(np.empty((0, 2)))
    >>> fitted.transform(X, sensitive_features=group).shape
    (1000, 2)
    """

    def __init__(
        self,
        owners: Any,
        carrier: Carrier | None,
        *,
        noise: str = "own",
        n_honest: int | None = None,
        secure: SecureAggregation | None = None,
        on_missing: str = "raise",
        n_attempts: int = 3,
        timeout: float | None = None,
        max_rows: int | Mapping[str, int] = MAX_ROWS,
        combine: str = "sum",
        key: SigningKey | None = None,
    ) -> None:
        self.owners, self.carrier = list(checked_names(owners)), carrier
        self._known, self._key = owners, key
        self.noise, self.n_honest, self.secure = noise, n_honest, secure
        self.on_missing, self.n_attempts, self.timeout = on_missing, n_attempts, timeout
        self.max_rows, self.combine = max_rows, combine
        self.agreement: BarycenterAgreement | None = None
        # Owners that have answered pay again in another session.
        self._unfinished: tuple[GroupRelease, BarycenterCoordinator] | None = None
        if not (carrier is None or hasattr(carrier, "exchange")):
            raise TypeError(
                "carrier must take messages to owners, as InProcessCarrier(owners) does, got "
                f"{type(carrier).__name__}."
            )
        if not (secure is None or isinstance(secure, SecureAggregation)):
            raise TypeError("secure must be None or a SecureAggregation.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.owners}, noise={self.noise!r})"

    def __sklearn_clone__(self) -> "BarycenterFederation":
        return self

    def __deepcopy__(self, memo: Any) -> "BarycenterFederation":
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _without_carrier, (self.owners, self.noise, self.n_honest)

    def collect(self, release: GroupRelease) -> BarycenterAgreement:
        """Ask the owners for a release; continue if an attempt at the same release failed before.

        Parameters
        ----------
        release : GroupRelease
            The agreement.

        Returns
        -------
        BarycenterAgreement
            With ``released`` groups, and without a support.

        Raises
        ------
        FederationError
            If owners do not answer, or agreed to another release.
        RuntimeError
            If the federation came out of a pickle.
        """
        if self.carrier is None:
            raise RuntimeError(
                "this federation came out of a pickle, which holds no way to the owners. Make one "
                "with a carrier to fit again."
            )
        if self._unfinished is None or self._unfinished[0] != release:
            coordinator = BarycenterCoordinator(
                self._known,
                None,
                release=release,
                secure=self.secure,
                on_missing=self.on_missing,
                n_attempts=self.n_attempts,
                max_rows=self.max_rows,
                combine=self.combine,
                key=self._key,
            )
            self._unfinished = release, coordinator
        coordinator = self._unfinished[1]
        self.agreement = run_barycenter(coordinator, self.carrier, timeout=self.timeout)
        self._unfinished = None
        return self.agreement


def _without_carrier(owners: Any, noise: str, n_honest: int | None) -> BarycenterFederation:
    return BarycenterFederation(owners, None, noise=noise, n_honest=n_honest)
