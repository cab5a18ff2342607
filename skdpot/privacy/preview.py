"""Guarantees and previews of releases: price and expected error, from public values only."""

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from skdpot.privacy.events import DpEvent, event_to_json


class NoGuaranteeWarning(UserWarning):
    """Warning: a release is not private, because the requested published proof does not hold."""


@dataclass(frozen=True)
class PrivacyGuarantee:
    """The privacy guarantee of a release; public.

    Parameters
    ----------
    epsilon, delta : float
        The release is (epsilon, delta)-differentially private.
    neighbouring : {"replace_one", "add_remove"}
        The neighbouring relation.
    unit : {"record", "user", "edge", "node"}
        The unit whose data are protected.
    not_protected : tuple of str
        Facts that are treated as public, in words.

    Examples
    --------
    >>> from skdpot.privacy import PrivacyGuarantee
    >>> print(PrivacyGuarantee(1.0, 0.0, "replace_one", "record", ("the size of each group",)))
    1-differentially private for every record (replace_one); not protected: the size of each group
    """

    epsilon: float
    delta: float
    neighbouring: str
    unit: str
    not_protected: tuple[str, ...] = ()

    def __str__(self) -> str:
        amount = f"({self.epsilon:g}, {self.delta:g})" if self.delta else f"{self.epsilon:g}"
        text = f"{amount}-differentially private for every {self.unit} ({self.neighbouring})"
        if self.not_protected:
            text += "; not protected: " + ", ".join(self.not_protected)
        return text


# How many `allow_useless_releases` blocks are open, in all threads: a list of one number.
_inside = [0]
_counting = threading.Lock()


@contextmanager
def allow_useless_releases() -> Iterator[None]:
    """Allow releases that are useless according to public facts.

    A context manager. Outside of it, a useless release is refused with a ValueError before it is
    charged, and a release with a useless part gives a warning. It applies to all threads of the
    process, and to estimators that are sent to worker processes inside the block (``n_jobs=2``).

    Yields
    ------
    None
        Nothing; the block is run.

    See Also
    --------
    skdpot.privacy.Preview : The result of an estimator's ``preview``: price and expected errors.

    Examples
    --------
    >>> from skdpot import PrivateSinkhornDistance
    >>> from skdpot.privacy import allow_useless_releases
    >>> distance = PrivateSinkhornDistance(0.1, bounds=(0, 1), random_state=0)
    >>> distance.fit([[0.1], [0.9]], ["a", "b"])
    Traceback (most recent call last):
    ValueError: PrivateSinkhornDistance, public labels: nothing was charged, because ...
    >>> with allow_useless_releases():
    ...     distance.fit([[0.1], [0.9]], ["a", "b"]).groups_
    array(['a', 'b'], dtype='<U1')
    """
    with _counting:
        _inside[0] += 1
    try:
        yield
    finally:
        with _counting:
            _inside[0] -= 1


def permit_of_process() -> int | None:
    """Return the permission that a copy of an estimator takes to a worker process, or None.

    Examples
    --------
    >>> from skdpot.privacy import allow_useless_releases
    >>> from skdpot.privacy.preview import permit_of_process
    >>> permit_of_process() is None
    True
    >>> with allow_useless_releases():
    ...     permit_of_process() is None
    False
    """
    return os.getpid() if _inside[0] else None


def useless_releases_are_allowed(permit: int | None = None) -> bool:
    """Tell whether `allow_useless_releases` is active here or in the process that sent the work.

    `permit` is the result of `permit_of_process` that a copy brought along. It holds in workers of
    that process.
    """
    # A worker is a child of the process that sent the permission; no other process is meant.
    return _inside[0] > 0 or (permit is not None and permit == os.getppid())


@dataclass(frozen=True)
class ExpectedError:
    """The expected distance of a released quantity from its value without privacy.

    Parameters
    ----------
    quantity : str
        Description of the quantity.
    error : float
        Expected error in the units of the quantity; a standard error unless stated otherwise.
    scale : float
        The error at which the quantity is useless: the error of an answer without the data, or the
        whole range of the quantity.
    """

    quantity: str
    error: float
    scale: float

    @property
    def share(self) -> float:
        """Return the error divided by its scale; from 1 on, the quantity is useless."""
        return self.error / self.scale if self.scale > 0 else math.inf

    @property
    def is_useless(self) -> bool:
        """Tell whether the quantity is useless."""
        # 1, but for rounding.
        return self.share >= 1.0 - 1e-9

    def __str__(self) -> str:
        begins = f"from {self.scale:.3g}"
        told = f"(useless {begins})" if not self.is_useless else f"is useless ({begins})"
        return f"{self.quantity}: {self.error:.3g} {told}"


class HasExpectedErrors:
    """A release whose errors can be predicted from public quantities."""

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the expected errors of the release; empty if they are unknown.

        Parameters
        ----------
        n_records : int
            Number of records; public, or a guess.

        Returns
        -------
        tuple of ExpectedError
            One for each kind of quantity.
        """
        return ()


@dataclass(frozen=True)
class Price:
    """The cost of a release, in the terms of a ledger.

    Parameters
    ----------
    budget : tuple of two float
        The (epsilon, delta) of the ledger.
    spent, spent_after : tuple of two float
        Pairs spent before and after the release.
    """

    budget: tuple[float, float]
    spent: tuple[float, float]
    spent_after: tuple[float, float]


@dataclass(frozen=True)
class Preview:
    """Preview of an estimator's release, from public values only, before anything is charged.

    ``print`` shows it as text, and :meth:`to_dict` returns plain values.

    Parameters
    ----------
    label : str
        Label of the release in the ledger.
    event : DpEvent or None
        Event that would be charged; None if nothing is guaranteed.
    guarantee : PrivacyGuarantee or None
        The guarantee of the release.
    epsilon : float or None
        The epsilon of the estimator.
    price : Price or None
        Price in the terms of the ledger; None without a `PrivacyLedger`, or if the ledger refuses
        the release.
    refusal : str or None
        Reason why the release would be refused, if any.
    errors : tuple of ExpectedError
        Expected errors.

    See Also
    --------
    allow_useless_releases : Allows releases that are refused because they are useless.

    Examples
    --------
    >>> from skdpot import PrivacyLedger, PrivateSinkhornDistance
    >>> ledger = PrivacyLedger(epsilon=3.0)
    >>> distance = PrivateSinkhornDistance(0.5, bounds=(18, 90), ledger=ledger, metric="euclidean")
    >>> print(distance.preview(5000, group_sizes={"2024": 3000, "2025": 2000}))
    Preview of a release: PrivateSinkhornDistance, public labels. Nothing was charged.
      guarantee: 0.5-differentially private for every record (replace_one); not protected: ...
      event: LaplaceDpEvent(noise_multiplier=2.0)
      price: the ledger's epsilon goes from 0 to 0.5 of 3, its delta to 0 of 0
      expected errors:
        standard error of the cost between '2024' and '2025': 0.102 (useless from 72)
    """

    label: str
    event: DpEvent | None
    guarantee: PrivacyGuarantee | None
    epsilon: float | None
    price: Price | None
    refusal: str | None
    errors: tuple[ExpectedError, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as plain values for JSON.

        Returns
        -------
        dict
            Values by the names of the attributes.
        """
        return {
            "label": self.label,
            "event": None if self.event is None else event_to_json(self.event),
            "guarantee": None if self.guarantee is None else asdict(self.guarantee),
            "epsilon": self.epsilon,
            "price": None if self.price is None else asdict(self.price),
            "refusal": self.refusal,
            "errors": [{**asdict(error), "share": error.share} for error in self.errors],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"Preview of a release: {self.label}. Nothing was charged."
        yield f"  guarantee: {self.guarantee or 'none'}"
        yield f"  event: {self.event}"
        if self.price is not None:
            (budget, delta), (spent, _), (after, delta_after) = (
                self.price.budget,
                self.price.spent,
                self.price.spent_after,
            )
            yield (
                f"  price: the ledger's epsilon goes from {spent:.3g} to {after:.3g} of "
                f"{budget:g}, its delta to {delta_after:.3g} of {delta:g}"
            )
        if self.refusal is not None:
            yield f"  refused: {self.refusal}"
        if self.errors:
            yield "  expected errors:"
            yield from (f"    {error}" for error in self.errors)


def describe_useless(errors: tuple[ExpectedError, ...], most_named: int = 3) -> str:
    """Return a text that names the useless quantities."""
    named = "; ".join(map(str, errors[:most_named]))
    more = len(errors) - most_named
    return named + (f"; and {more} more" if more > 0 else "")
