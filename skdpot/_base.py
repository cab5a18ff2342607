"""What every estimator of the package shares: how it holds and charges a ledger."""

from typing import Any

from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import clone_parametrized
from skdpot.privacy._diffprivlib import is_budget_accountant
from skdpot.privacy.ledger import DetachedLedger


class PrivateEstimator(BaseEstimator):
    """Base of the estimators that release something: one ledger, whatever copies are made.

    Clones share the ledger of the original, so that a grid search spends the user's budget.
    Pickles and deep copies do not hold an accountant that lives in one process: releasing from
    them is refused until they are given a ledger.
    """

    ledger: Any

    def __sklearn_clone__(self) -> "PrivateEstimator":
        duplicate = clone_parametrized(self)
        duplicate.ledger = self.ledger
        return duplicate

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if is_budget_accountant(state.get("ledger")):
            state["ledger"] = DetachedLedger()
        return state
