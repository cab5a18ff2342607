"""What every estimator of the package shares: how it holds a ledger and reads private data."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from skdpot._sklearn_compat import clone_parametrized
from skdpot.privacy._diffprivlib import is_budget_accountant
from skdpot.privacy.charging import DetachedLedger

# How messages begin in which scikit-learn or numpy quotes the data, and what is said instead.
_INSTEAD_OF_QUOTES = {
    "Expected 2D array": (
        "X must be two-dimensional, one row per user. Reshape your data using "
        "array.reshape(1, -1) if it is a single user's."
    ),
    "Complex data not supported": "Complex data not supported: X must hold real numbers.",
    "could not convert": (
        "X holds text that cannot be read as numbers. Convert it to numbers first."
    ),
}


def validate_private_data(
    estimator: BaseEstimator, X: Any, *, instead: Mapping[str, str] | None = None, **options: Any
) -> Any:
    """Return X as scikit-learn's `validate_data` does, in whose errors no value of X is quoted.

    Parameters
    ----------
    estimator : BaseEstimator
        The estimator that X is given to.
    X : {array-like, sparse matrix} of shape (n_users, n_features)
        Private data.
    instead : mapping of str to str, default=None
        How further messages of scikit-learn begin, and what is said in the place of each.
    **options
        Of `sklearn.utils.validation.validate_data`.

    Returns
    -------
    {ndarray, sparse matrix} of shape (n_users, n_features)
        X, converted and checked as the options say.

    Raises
    ------
    ValueError
        If X is not what the options ask for; positions and shapes are named, never a value.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> from skdpot._base import validate_private_data
    >>> validate_private_data(BaseEstimator(), [["3.75 euros"]], dtype=float)
    Traceback (most recent call last):
    ValueError: X holds text that cannot be read as numbers. Convert it to numbers first.
    """
    try:
        # That values are finite is part of what is promised, whatever the caller has switched off;
        # and the sum of finite ones, by which that is checked first, may not be.
        with config_context(assume_finite=False), np.errstate(all="ignore"):
            return validate_data(estimator, X, **options)
    except ValueError as error:
        texts = {**_INSTEAD_OF_QUOTES, **(instead or {})}
        replaced = [text for start, text in texts.items() if str(error).startswith(start)]
        if not replaced:
            raise
    # Outside of the handler, so that the message in question is no context of this error either.
    raise ValueError(replaced[0])


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
