"""Charging a release to the user's budget, before it happens."""

import os
import threading
import weakref
from typing import Any

from skdpot.privacy._diffprivlib import is_budget_accountant

_spending = threading.Lock()
# In which process an accountant was first seen: a fork of it has a copy of the accountant.
_process_of: Any = weakref.WeakKeyDictionary()


class DetachedLedger:
    """What takes the place of an accountant in a copy that the user's own cannot follow.

    A diffprivlib ``BudgetAccountant`` lives in one process. In a pickle or a deep copy of an
    estimator it would be a second accountant with a budget of its own; this refuses instead.
    """

    def __repr__(self) -> str:
        return "DetachedLedger()"


def check_ledger(ledger: Any) -> None:
    """Raise unless releases can be charged to this ledger.

    Parameters
    ----------
    ledger : None or diffprivlib.BudgetAccountant
        None charges nothing.

    Raises
    ------
    TypeError
        If it is anything else.
    RuntimeError
        If it was left behind when the estimator was pickled or copied, or is the copy that a
        forked process has of an accountant in use before the fork.
    """
    if isinstance(ledger, DetachedLedger):
        raise RuntimeError(
            "this estimator is a pickle or a copy, which the BudgetAccountant of the original "
            "cannot follow, so nothing can be charged to it and nothing is released. Give it an "
            "accountant with set_params(ledger=...), or run in one process (n_jobs=1, or "
            "joblib.parallel_config(backend='threading'))."
        )
    if ledger is None:
        return
    if not is_budget_accountant(ledger):
        raise TypeError(
            "ledger must be None or a diffprivlib BudgetAccountant (skdpot.privacy."
            f"BudgetAccountant), got {type(ledger).__name__}."
        )
    if _process_of.setdefault(ledger, os.getpid()) != os.getpid():
        raise RuntimeError(
            "this process was forked from the one in which the BudgetAccountant was put to use, so "
            "what is spent here would be unknown there, and nothing is released. Give the "
            "estimator an accountant of this process with set_params(ledger=...), or use threads."
        )


def charge(ledger: Any, epsilon: float, delta: float = 0.0) -> None:
    """Charge an (epsilon, delta) release to a ledger; what the budget forbids raises.

    Parameters
    ----------
    ledger : None or diffprivlib.BudgetAccountant
        None charges nothing.
    epsilon, delta : float
        Cost of the release that is about to happen.

    Raises
    ------
    diffprivlib.utils.BudgetError
        If the budget does not allow the release; nothing is charged then.

    Examples
    --------
    >>> from skdpot.privacy import BudgetAccountant
    >>> from skdpot.privacy.ledger import charge
    >>> accountant = BudgetAccountant(epsilon=1.0, delta=0.0)
    >>> charge(accountant, 0.75)
    >>> accountant.remaining()
    (epsilon=0.25, delta=0.0)
    """
    check_ledger(ledger)
    if ledger is not None:
        with _spending:
            ledger.spend(epsilon, delta)
