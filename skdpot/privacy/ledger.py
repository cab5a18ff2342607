"""Charging a release to the user's budget, before it happens."""

import threading
from typing import Any

from skdpot.privacy._diffprivlib import is_budget_accountant

_spending = threading.Lock()


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
        If it was left behind when the estimator was pickled or deep-copied.
    """
    if isinstance(ledger, DetachedLedger):
        raise RuntimeError(
            "this estimator is a pickled or deep copy, which the BudgetAccountant of the original "
            "cannot follow, so nothing can be charged to it and nothing is released. Give it an "
            "accountant with set_params(ledger=...), or run in one process (n_jobs=1, or "
            "joblib.parallel_config(backend='threading'))."
        )
    if ledger is not None and not is_budget_accountant(ledger):
        raise TypeError(
            "ledger must be None or a diffprivlib BudgetAccountant (skdpot.privacy."
            f"BudgetAccountant), got {type(ledger).__name__}."
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
