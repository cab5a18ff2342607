"""Charges to a user's ledger before a release."""

import importlib
import os
import sys
import threading
import warnings
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from skdpot._sklearn_compat import removed_tree_types
from skdpot.privacy.events import DpEvent
from skdpot.privacy.filters import sold_pair
from skdpot.privacy.ledger import PrivacyLedger, Receipt
from skdpot.privacy.preview import (
    ExpectedError,
    Preview,
    Price,
    PrivacyGuarantee,
    describe_useless,
    useless_releases_are_allowed,
)
from skdpot.privacy.random import NoiseSource

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
            "this estimator is a pickle or a copy, which the BudgetAccountant of the original "
            "cannot follow, so nothing can be charged to it and nothing is released. Give it an "
            "accountant with set_params(ledger=...), or run in one process (n_jobs=1, or "
            "joblib.parallel_config(backend='threading')), or use a PrivacyLedger, which pickles "
            "and copies share."
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
    # In the child of a fork the copy would start with the parent's total, and go its own way.
    if _process_of.setdefault(ledger, os.getpid()) != os.getpid():
        raise RuntimeError(
            "this process was forked after the BudgetAccountant was first used, so the first "
            "process would not know what is spent here. Nothing is released. Give the estimator an "
            "accountant of this process with set_params(ledger=...), or use threads, or use a "
            "PrivacyLedger, which processes share."
        )
    _check_meaning(ledger, plan)
    if plan.source.seeded:
        raise ValueError(
            "a release with a random_state is not private, and a BudgetAccountant cannot record "
            "that, so it is refused. Leave random_state=None, or, for tests and teaching, use a "
            "PrivacyLedger that is created with allow_seeded=True."
        )


def _check_meaning(accountant: Any, plan: "ReleasePlan") -> None:
    """Raise unless the pair of a release may be added to those of earlier releases."""
    unit, neighbouring = getattr(accountant, _MEANING, (plan.unit, plan.neighbouring))
    if (unit, neighbouring) != (plan.unit, plan.neighbouring):
        raise ValueError(
            f"{plan.label}: this release protects every {plan.unit} under neighbouring="
            f"{plan.neighbouring!r}, and the BudgetAccountant was charged for releases that "
            f"protect every {unit} under neighbouring={neighbouring!r}. Such guarantees do not add "
            "up. Use an accountant for each, or the same relation where neighbouring is a "
            "parameter, or a PrivacyLedger, which keeps units apart."
        )


def _instead_of_ledger(given: Any) -> str:
    """Return the type of something that is no ledger, and how to get a ledger from it."""
    if isinstance(given, str | os.PathLike):
        path = repr(os.fspath(given))
        return (
            f"got the path {path}. Open the ledger that is there with PrivacyLedger.open({path}), "
            f"or create one with PrivacyLedger(epsilon, delta, path={path})."
        )
    if isinstance(given, type):
        return f"got the class {given.__name__}. Create one: PrivacyLedger(epsilon, delta)."
    return f"got {type(given).__name__}. Create one with PrivacyLedger(epsilon, delta)."


def _check_privacy_ledger(ledger: PrivacyLedger, plan: "ReleasePlan") -> None:
    if ledger.neighbouring != plan.neighbouring:
        remedy = f"Use a PrivacyLedger(neighbouring={plan.neighbouring!r})"
        if "neighbouring" in plan.parameters:
            remedy += f", or set neighbouring={ledger.neighbouring!r} here"
        raise ValueError(
            f"{plan.label}: this release is private under neighbouring={plan.neighbouring!r}, and "
            f"the ledger is for {ledger.neighbouring!r}. {remedy}."
        )
    if plan.neighbouring == "replace_one" and ledger.hides_the_part:
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

    Examples
    --------
    >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
    >>> from skdpot.privacy.charging import ReleasePlan
    >>> from skdpot.privacy.random import make_source
    >>> ledger = PrivacyLedger(1.0)
    >>> plan = ReleasePlan(None, PureDpEvent(0.75), make_source(), "a sample", None)
    >>> plan.charge_to(ledger)
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
        copied estimator brought to a worker process. Returns quantities to warn of, if a part of
        the release is useless.
        """
        if useless_releases_are_allowed(permit):
            return None
        refusal = self.refusal
        if refusal is not None:
            raise ValueError(refusal)
        useless = self._useless
        if not useless:
            return None
        return (
            f"{self.label}: a part of the release is useless. Expected errors: "
            f"{describe_useless(useless)}. {_ADVICE}"
        )

    @property
    def refusal(self) -> str | None:
        """Return why the release is refused, if all of it is useless; else None."""
        useless = self._useless
        if not useless or len(useless) < len(self.errors):
            return None
        return (
            f"{self.label}: nothing was charged, because the release would be useless. "
            f"Expected errors: {describe_useless(useless)}. {_ADVICE}"
        )

    @property
    def _useless(self) -> tuple[ExpectedError, ...]:
        return tuple(error for error in self.errors if error.is_useless)

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
        try:
            price = self.price(ledger)
        except (ValueError, RuntimeError) as error:
            refusal = str(error)
        return Preview(
            self.label,
            self.event,
            self.guarantee,
            None if epsilon is None else float(epsilon),
            price,
            refusal,
            self.errors,
        )

    def charge_to(self, ledger: Any, *, token: str | None = None) -> None:
        """Charge the release to a ledger; raise if the budget forbids it.

        Parameters
        ----------
        ledger : None, PrivacyLedger or diffprivlib.BudgetAccountant
            None charges nothing. An accountant is charged the pair (epsilon, delta) of the event.
        token : str, default=None
            A name of this release, under which it is charged once: see
            :meth:`PrivacyLedger.charge`. An accountant takes none.

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
            return
        if isinstance(ledger, PrivacyLedger):
            seeded = self.source.seeded
            ledger.charge(self.event, unit=self.unit, label=self.label, seeded=seeded, token=token)
            return
        if token is not None:
            raise ValueError("a BudgetAccountant takes no token. Use a PrivacyLedger.")
        pair = sold_pair(self.event, self.neighbouring)
        if pair is None:
            raise ValueError(
                "a BudgetAccountant adds up pairs (epsilon, delta), and this release names none. "
                "Use a PrivacyLedger."
            )
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
        return ledger.charge_parts(
            partition,
            dict.fromkeys(tokens, self.event),
            unit=self.unit,
            label=self.label,
            seeded=self.source.seeded,
            tokens=tokens,
        )
