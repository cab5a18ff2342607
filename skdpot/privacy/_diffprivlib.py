"""The care with which diffprivlib is imported, and what is taken from it.

diffprivlib 0.6.6 as a whole cannot be imported with the scikit-learn releases that lack two private
names which its forest asks for, while its accountant never uses them. They are lent to it while it
is being imported. What they are is a private matter of scikit-learn's, which is why this one module
of `skdpot.privacy` imports `skdpot._sklearn_compat`.

Nothing is imported before it is asked for.
"""

import importlib
import sys
import warnings
from typing import Any

from skdpot._sklearn_compat import removed_tree_types

ACCOUNTANT_MODULE = "diffprivlib.accountant"
ACCOUNTANT_NAMES = ("BudgetAccountant", "BudgetError")


def load_accountant(name: str) -> Any:
    """Return diffprivlib's class of this name, importing diffprivlib first where need be.

    Parameters
    ----------
    name : {"BudgetAccountant", "BudgetError"}
        The class that is wanted.

    Returns
    -------
    type
        diffprivlib's own class, not a copy.

    Examples
    --------
    >>> from skdpot.privacy._diffprivlib import load_accountant
    >>> load_accountant("BudgetAccountant")(epsilon=1.0, delta=0.0).remaining()
    (epsilon=1.0, delta=0.0)
    """
    if "diffprivlib" not in sys.modules:
        # It adds filters for warnings of its own, which scikit-learn would send to its worker
        # processes; these could not read them without importing diffprivlib, and would break.
        with removed_tree_types(), warnings.catch_warnings():
            importlib.import_module("diffprivlib")
    return getattr(importlib.import_module(ACCOUNTANT_MODULE), name)


def is_budget_accountant(candidate: object) -> bool:
    """Tell whether an object is one of diffprivlib's accountants.

    Where diffprivlib has not been imported, nothing can be one, so it is not imported to find out.

    Parameters
    ----------
    candidate : object
        Anything.

    Returns
    -------
    bool
        True for a `BudgetAccountant`, and for an object of a class derived from it.

    Examples
    --------
    >>> from skdpot.privacy._diffprivlib import is_budget_accountant, load_accountant
    >>> is_budget_accountant(1.0)
    False
    >>> is_budget_accountant(load_accountant("BudgetAccountant")())
    True
    """
    accountant = sys.modules.get(ACCOUNTANT_MODULE)
    return accountant is not None and isinstance(candidate, accountant.BudgetAccountant)


def __getattr__(name: str) -> Any:
    """Import diffprivlib for one of its classes, and not before."""
    if name in ACCOUNTANT_NAMES:
        return load_accountant(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
