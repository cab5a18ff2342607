"""Releases before they happen: guarantees, previews of price and error, and the charge."""

import gc
import importlib
import math
import multiprocessing
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from skdpot.privacy.events import DpEvent, event_to_json
from skdpot.privacy.filters import stated_epsilon_delta
from skdpot.privacy.ledger import PrivacyLedger, Receipt
from skdpot.privacy.noise import NoiseSource


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


# The `allow_useless_releases` blocks that are open, in all threads.
_inside: set[object] = set()


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
    me = object()
    try:
        _inside.add(me)
        yield
    finally:
        # Where one is interrupted, the other leaves: otherwise all that follows would be allowed.
        try:
            _inside.discard(me)
        finally:
            _inside.discard(me)


def permit_of_process() -> int | None:
    """Return the permission that a copy of an estimator takes to a worker process, or None.

    Examples
    --------
    >>> from skdpot.privacy import allow_useless_releases
    >>> from skdpot.privacy.charging import permit_of_process
    >>> permit_of_process() is None
    True
    >>> with allow_useless_releases():
    ...     permit_of_process() is None
    False
    """
    return os.getpid() if _inside else None


def useless_releases_are_allowed(permit: int | None = None) -> bool:
    """Tell whether `allow_useless_releases` is active here or in the process that sent the work.

    `permit` is the result of `permit_of_process` that a copy brought along. It holds in workers of
    that process.
    """
    # A worker is a child of the process that sent the permission; no other process is meant.
    return bool(_inside) or (permit is not None and permit == os.getppid())


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
        # 1, but for rounding and for what nobody would notice.
        return self.share >= 0.999

    def __str__(self) -> str:
        begins = f"from {self.scale:.3g}"
        told = f"(useless {begins})" if not self.is_useless else f"is useless ({begins})"
        return f"{self.quantity}: {self.error:.3g} {told}"


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
    hint : str or None
        What another relation would change, if the estimator has a choice.
    warning : str or None
        What the release would warn of before its charge, if anything.

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
    hint: str | None = None
    warning: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as plain values for JSON.

        Returns
        -------
        dict
            Values by the names of the attributes.
        """
        return asdict(self) | {
            "event": None if self.event is None else event_to_json(self.event),
            "errors": [asdict(error) | {"share": error.share} for error in self.errors],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"Preview of a release: {self.label}. Nothing was charged."
        yield f"  guarantee: {self.guarantee or 'none'}"
        if self.hint is not None:
            yield f"  relation: {self.hint}"
        yield f"  event: {self.event}"
        if self.price is not None:
            (budget, delta), (spent, _) = self.price.budget, self.price.spent
            after, delta_after = self.price.spent_after
            yield (
                f"  price: the ledger's epsilon goes from {spent:.3g} to {after:.3g} of "
                f"{budget:g}, its delta to {delta_after:.3g} of {delta:g}"
            )
        if self.refusal is not None:
            yield f"  refused: {self.refusal}"
        if self.warning is not None:
            yield f"  warning: {self.warning}"
        if self.errors:
            yield "  expected errors:"
            yield from (f"    {error}" for error in self.errors)


# The budget accountant of diffprivlib, imported on first use.
#
# diffprivlib 0.6.6 cannot be imported with recent releases of scikit-learn, which lack two private
# names that its forest imports. Its accountant does not need them. During the import
# `skdpot._sklearn_compat` provides them.

ACCOUNTANT_MODULE = "diffprivlib.accountant"


def load_accountant(name: str) -> Any:
    """Return diffprivlib's own class of this name; import diffprivlib first if needed.

    Examples
    --------
    >>> from skdpot.privacy.charging import load_accountant
    >>> load_accountant("BudgetAccountant")(epsilon=1.0, delta=0.0).remaining()
    (epsilon=1.0, delta=0.0)
    """
    if "diffprivlib" not in sys.modules:
        # Imported here: the import of scikit-learn takes longer than all else.
        from skdpot._sklearn_compat import removed_tree_types

        # diffprivlib adds filters for its own warnings. scikit-learn would send these to its worker
        # processes, which could not read them without importing diffprivlib.
        with removed_tree_types(), warnings.catch_warnings():
            importlib.import_module("diffprivlib")
    return getattr(importlib.import_module(ACCOUNTANT_MODULE), name)


def is_budget_accountant(candidate: object) -> bool:
    """Tell whether an object is one of diffprivlib's accountants, or of a derived class.

    If diffprivlib has not been imported, no object can be one, and it is not imported for this
    check.

    Examples
    --------
    >>> from skdpot.privacy.charging import is_budget_accountant, load_accountant
    >>> is_budget_accountant(1.0)
    False
    >>> is_budget_accountant(load_accountant("BudgetAccountant")())
    True
    """
    accountant = sys.modules.get(ACCOUNTANT_MODULE)
    return accountant is not None and isinstance(candidate, accountant.BudgetAccountant)


_ADVICE = (
    "Use more records or a larger epsilon (preview() shows what to expect), or release it all the "
    "same within skdpot.privacy.allow_useless_releases()."
)
_spending = threading.Lock()
# The process in which an accountant was first used: a forked process has a copy of the accountant.
_process_of: Any = weakref.WeakKeyDictionary()


def _find_copies() -> None:
    """Note in the child of a fork which accountants are copies, used or not."""
    for each in gc.get_objects() if ACCOUNTANT_MODULE in sys.modules else ():
        # By its type: an object's own code may run when it is asked for its class.
        if issubclass(type(each), sys.modules[ACCOUNTANT_MODULE].BudgetAccountant):
            _process_of.setdefault(each, os.getppid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_find_copies)
# The attribute of an accountant with the unit and the relation of what it was charged: it is in
# copies and pickles of the accountant, as these charges are.
_MEANING = "_skdpot_meaning"


class DetachedLedger:
    """The accountant in a pickle or a copy of an estimator; it refuses all charges.

    A diffprivlib ``BudgetAccountant`` lives in one process. A copy of it would be a second
    accountant with a budget of its own.
    """

    def __repr__(self) -> str:
        return "DetachedLedger()"


def _check_ledger(ledger: Any, plan: "ReleasePlan") -> None:
    """Raise unless this ledger can be charged for a release; None always can."""
    if isinstance(ledger, DetachedLedger):
        raise RuntimeError(
            "nothing is released: this estimator is a pickle or a copy, which the BudgetAccountant "
            "of the original cannot follow. Give it an accountant with set_params(ledger=...), or "
            "run in one process (n_jobs=1, or joblib.parallel_config(backend='threading')), or use "
            "a PrivacyLedger, which pickles and copies share."
        )
    if ledger is None:
        return
    if isinstance(ledger, PrivacyLedger):
        _check_privacy_ledger(ledger, plan)
        return
    if not is_budget_accountant(ledger):
        raise TypeError(
            "ledger must be None, a skdpot.PrivacyLedger or a diffprivlib BudgetAccountant "
            f"(skdpot.privacy.BudgetAccountant), {_instead_of_ledger(ledger)}"
        )
    # A copy, by a fork or in a worker process, would start with the parent's total, and go its own
    # way. Whether it is one cannot be seen of an accountant that was never used.
    is_worker = multiprocessing.parent_process() is not None
    if is_worker or _process_of.setdefault(ledger, os.getpid()) != os.getpid():
        raise RuntimeError(
            "nothing is released: a BudgetAccountant is of one process, and in a worker or forked "
            "process it may be a copy. Use threads, or a PrivacyLedger, which processes share."
        )
    _check_meaning(ledger, plan)
    if plan.source.seeded:
        raise ValueError(
            "a release with a random_state is not private, which a BudgetAccountant cannot record. "
            "Leave random_state=None, or use a PrivacyLedger created with allow_seeded=True."
        )


def _check_meaning(accountant: Any, plan: "ReleasePlan") -> None:
    """Raise unless the pair of a release may be added to those of earlier releases."""
    unit, neighbouring = getattr(accountant, _MEANING, (plan.unit, plan.neighbouring))
    if (unit, neighbouring) != (plan.unit, plan.neighbouring):
        raise ValueError(
            f"{plan.label}: this release protects every {plan.unit} under neighbouring="
            f"{plan.neighbouring!r}, and those charged to the BudgetAccountant every {unit} under "
            f"neighbouring={neighbouring!r}. Such guarantees do not add up. Use an accountant for "
            "each, or the same relation, or a PrivacyLedger, which keeps units apart."
        )


def _instead_of_ledger(given: Any) -> str:
    """Return the type of something that is no ledger, and how to get a ledger from it."""
    if isinstance(given, str | os.PathLike):
        path = repr(os.fspath(given))
        return (
            f"got the path {path}. Open the ledger that is there with PrivacyLedger.open({path}), "
            f"or create one with PrivacyLedger(epsilon, delta, path={path})."
        )
    what = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
    return f"got {what}. Create one with PrivacyLedger(epsilon, delta)."


def _check_privacy_ledger(ledger: PrivacyLedger, plan: "ReleasePlan") -> None:
    if ledger.neighbouring != plan.neighbouring:
        remedy = f"Use a PrivacyLedger(epsilon, delta, neighbouring={plan.neighbouring!r})"
        if "neighbouring" in plan.parameters:
            remedy += f", or set neighbouring={ledger.neighbouring!r} here"
        public = ", which does not hide how many records there are"
        public *= plan.neighbouring == "replace_one"
        raise ValueError(
            f"{plan.label}: this release is private under neighbouring={plan.neighbouring!r}"
            f"{public}; the ledger is for {ledger.neighbouring!r}. {remedy}. A second ledger for "
            "the same people has its own part of their budget."
        )
    if plan.neighbouring == "replace_one" and ledger.part_is_secret:
        raise ValueError(
            "the ledger is for a part of the data, and the part of a unit is not public. But a "
            "release under replace_one treats the number of units as public. If each unit's part "
            "is public and fixed, declare the partition with fixed_key=True."
        )
    ledger.check_seeded(plan.source.seeded)


def relation_of(ledger: Any, neighbouring: str) -> str:
    """Return the neighbouring relation of a release: the requested one, or the ledger's.

    ``"auto"`` is the relation of a `PrivacyLedger`, and "add_remove" without one.

    Examples
    --------
    >>> from skdpot.privacy import PrivacyLedger
    >>> from skdpot.privacy.charging import relation_of
    >>> relation_of(PrivacyLedger(3.0), "auto")
    'replace_one'
    >>> relation_of(None, "auto")
    'add_remove'
    """
    # What the user says is checked against the ledger later, and not changed.
    if neighbouring != "auto":
        return neighbouring
    return ledger.neighbouring if isinstance(ledger, PrivacyLedger) else "add_remove"


@dataclass(frozen=True, eq=False)
class ReleasePlan:
    """The plan of a release: made of public values, before any private one is used.

    Parameters
    ----------
    release : Any
        The release, usually a :class:`skdpot.releases.Release`.
    event : DpEvent or None
        The event to be charged; None without a guarantee, and then a ledger is refused.
    source : NoiseSource
        Where the noise comes from.
    label : str
        Its description; public.
    guarantee : PrivacyGuarantee or None
        The guarantee of the release, or None. Seeded noise has no guarantee, whatever is given
        here.
    unit : {"record", "user", "edge", "node"}, default="record"
        The protected unit.
    neighbouring : {"replace_one", "add_remove"}, default="replace_one"
        The relation that the event is described for.
    n_records : int, default=None
        Number of records (users, nodes), if public.
    parameters : tuple of str, default=()
        The parameters ``"neighbouring"`` and ``"accounting"`` that the user can set; errors advise
        on these.
    advice : str, default=None
        What to do if the release is useless; None is the advice for all releases.

    Examples
    --------
    >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
    >>> from skdpot.privacy.charging import ReleasePlan
    >>> from skdpot.privacy.noise import make_source
    >>> ledger = PrivacyLedger(1.0)
    >>> plan = ReleasePlan(None, PureDpEvent(0.75), make_source(), "a sample", None)
    >>> receipt = plan.charge_to(ledger)
    >>> ledger.remaining()
    (0.25, 0.0)
    """

    release: Any
    event: DpEvent | None
    source: NoiseSource
    label: str
    guarantee: PrivacyGuarantee | None
    unit: str = "record"
    neighbouring: str = "replace_one"
    n_records: int | None = None
    parameters: tuple[str, ...] = ()
    advice: str | None = None

    def __post_init__(self) -> None:
        # Whoever knows the seed can take the noise away.
        if self.source.seeded or self.event is None:
            object.__setattr__(self, "guarantee", None)

    def check(self, ledger: Any) -> None:
        """Raise unless a ledger accepts releases of this kind, which None does; nothing is charged.

        Raises TypeError if it is no ledger. Raises ValueError if nothing is guaranteed, and there
        is a ledger. Or if it is a ledger for another relation, one that takes no seeded releases,
        or, under replace_one, that of a part of the data whose size is not public. Or if the
        release is seeded, or has another unit or relation than earlier ones, and it is a
        BudgetAccountant. Raises RuntimeError if it was left behind when the estimator was pickled
        or copied, or is the copy that a forked process has of an accountant in use before the fork.
        """
        # By declarations only: a refusal must not depend on a record.
        if self.event is not None:
            _check_ledger(ledger, self)
        elif ledger is not None:
            remedy = "accounting='sound'" if "accounting" in self.parameters else "an epsilon"
            raise ValueError(
                f"{self.label}: nothing is guaranteed, so there is nothing that a ledger could "
                f"charge. Set {remedy}, or use no ledger (ledger=None)."
            )

    @cached_property
    def errors(self) -> tuple[ExpectedError, ...]:
        """Return the expected errors of the release, from public values."""
        if self.event is None or self.n_records is None:
            return ()
        return tuple(self.release.expected_errors(self.n_records))

    def refuse_useless(self, permit: int | None) -> str | None:
        """Raise if public values show that the release is useless.

        That is so if the expected error of all that is released is no smaller than its scale.
        Within :func:`allow_useless_releases` it does not raise; `permit` is the permission that a
        copied estimator brought to a worker process. Returns what to warn of: a delta with which
        records may be published, or a part of the release that is useless.
        """
        allowed = useless_releases_are_allowed(permit)
        if not allowed and (refusal := self.refusal) is not None:
            raise ValueError(refusal)
        given, largest = self.guarantee, math.inf if allowed else 700
        most = min(0.01, 1 / (self.n_records or 1))
        if given is not None and (given.delta > most or given.epsilon > largest):
            return (
                f"{self.label}: an epsilon of {given.epsilon:g} with a delta of {given.delta:g} "
                "allows to publish records. Take an epsilon of at most some tens, and a delta of "
                "less than one over the number of records."
            )
        if allowed or not self.useless:
            return None
        return f"{self.label}: a part of the release is useless. {self._why_useless}"

    @property
    def refusal(self) -> str | None:
        """Return why the release is refused, if all of it is useless; else None."""
        given = self.guarantee
        if given is not None and given.delta > max(given.epsilon, 0.01):
            return (
                f"{self.label}: nothing was charged, because the delta of {given.delta:g} is above "
                f"the epsilon of {given.epsilon:g}. Are they swapped?"
            )
        useless = self.useless
        if not useless or len(useless) < len(self.errors):
            return None
        what = "nothing was charged, because the release would be useless."
        return f"{self.label}: {what} {self._why_useless}"

    @property
    def useless(self) -> tuple[ExpectedError, ...]:
        """Return the expected errors that are no smaller than their scale."""
        return tuple(error for error in self.errors if error.is_useless)

    @property
    def _why_useless(self) -> str:
        """Return a text that names the useless quantities, and what to do."""
        most_named = 3
        named = "; ".join(map(str, self.useless[:most_named]))
        more = len(self.useless) - most_named
        named += f"; and {more} more" if more > 0 else ""
        return f"Expected errors: {named}. {self.advice or _ADVICE}"

    def price(self, ledger: Any) -> Price | None:
        """Return the spending of a `PrivacyLedger` after the charge; None without such a ledger.

        Raises
        ------
        BudgetExceededError, TypeError, ValueError, RuntimeError
            As in :meth:`charge_to`.
        """
        self.check(ledger)
        if self.event is None or not isinstance(ledger, PrivacyLedger):
            return None
        # That of its own unit: units are never added up.
        spent = ledger.spent(unit=self.unit)
        after = ledger.quote(self.event, unit=self.unit)
        return Price((ledger.epsilon, ledger.delta), spent, after)

    def preview(self, ledger: Any, epsilon: Any) -> Preview:
        """Return the preview of the release for a ledger, and the epsilon of its estimator."""
        price, refusal = None, self.refusal
        warning = self.refuse_useless(None) if refusal is None else None
        try:
            price = self.price(ledger)
        except (ValueError, RuntimeError) as error:
            refusal = str(error)
        asked = None if epsilon is None else float(epsilon)
        hint = None
        if self.neighbouring == "replace_one" and "neighbouring" in self.parameters:
            hint = "the noise is up to twice that of neighbouring='add_remove', for equal epsilon"
        about = self.label, self.event, self.guarantee, asked, price, refusal, self.errors
        return Preview(*about, hint, warning)

    def charge_to(
        self, ledger: Any, *, token: str | None = None, pending: bool = False
    ) -> Receipt | None:
        """Charge the release to a ledger; raise if the budget forbids it.

        Parameters
        ----------
        ledger : None, PrivacyLedger or diffprivlib.BudgetAccountant
            None charges nothing. An accountant is charged the pair (epsilon, delta) of the event.
        token : str, default=None
            A name of this release, under which it is charged once: see
            :meth:`PrivacyLedger.charge`. An accountant takes none.
        pending : bool, default=False
            Whether a `PrivacyLedger` is told when the release is made.

        Returns
        -------
        Receipt or None
            That of a `PrivacyLedger`.

        Raises
        ------
        BudgetExceededError
            If the budget of a `PrivacyLedger` does not allow the release; nothing is charged then.
        diffprivlib.utils.BudgetError
            If that of an accountant does not; nothing is charged then.
        TypeError, ValueError, RuntimeError
            As in :meth:`check`.
        """
        self.check(ledger)
        if ledger is None or self.event is None:
            return None
        if isinstance(ledger, PrivacyLedger):
            about: dict[str, Any] = {"seeded": self.source.seeded, "token": token}
            about |= {"unit": self.unit, "label": self.label, "pending": pending}
            return ledger.charge(self.event, **about)
        if token is not None:
            raise ValueError("a BudgetAccountant takes no token. Use a PrivacyLedger.")
        pair = stated_epsilon_delta(self.event, self.neighbouring)
        if pair is None:
            raise ValueError("this release has no (epsilon, delta) to add up. Use a PrivacyLedger.")
        # Two threads could both find it unused, and charge for different units.
        with _spending:
            _check_meaning(ledger, self)
            # Set before it spends, so that a charge is never there without its meaning.
            is_first = not hasattr(ledger, _MEANING)
            setattr(ledger, _MEANING, (self.unit, self.neighbouring))
            try:
                ledger.spend(*pair)
            except Exception:
                # An accountant checks before it records.
                if is_first:
                    delattr(ledger, _MEANING)
                raise
        return None

    def charge_parts_to(
        self, ledger: PrivacyLedger, partition: str, tokens: dict[str, str]
    ) -> dict[str, Receipt]:
        """Declare a partition by a public, fixed key, and charge the release of each part.

        All parts are charged at once, or none. `tokens` has the token of each part's release, by
        the part's name: a release with a charged token is not charged again. Returns the receipt of
        each part. Raises what :meth:`charge_to` raises, also if there is another partition of this
        name.
        """
        # The ledgers of the other parts need not be kept.
        self.check(next(iter(ledger.partition(partition, tokens, fixed_key=True).values())))
        # Their tokens tell what is released: a call that goes on may label its ledger otherwise.
        mine = partition, self.unit, self.event, self.source.seeded
        receipts = {
            each.part: Receipt(ledger.identity, each.number, each.digest)
            for each in ledger.entries()
            if (each.partition, each.unit, each.event, each.seeded) == mine
            and each.token == tokens.get(each.part, ())
        }
        if new := {part: token for part, token in tokens.items() if part not in receipts}:
            about: dict[str, Any] = {"seeded": self.source.seeded, "tokens": new}
            about |= {"unit": self.unit, "label": self.label}
            receipts |= ledger.charge_parts(partition, dict.fromkeys(new, self.event), **about)
        return receipts
