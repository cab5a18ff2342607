"""The budget accountant of diffprivlib, imported on first use.

diffprivlib 0.6.6 cannot be imported with recent releases of scikit-learn, which lack two private
names that its forest imports. Its accountant does not need them. During the import
`skdpot._sklearn_compat` provides them.
"""

import importlib
import sys
import warnings
from typing import Any

from skdpot._sklearn_compat import removed_tree_types

ACCOUNTANT_MODULE = "diffprivlib.accountant"


def load_accountant(name: str) -> Any:
    """Return diffprivlib's own class of this name; import diffprivlib first if needed.

    Examples
    --------
    >>> from skdpot.privacy._diffprivlib import load_accountant
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
    >>> from skdpot.privacy._diffprivlib import is_budget_accountant, load_accountant
    >>> is_budget_accountant(1.0)
    False
    >>> is_budget_accountant(load_accountant("BudgetAccountant")())
    True
    """
    accountant = sys.modules.get(ACCOUNTANT_MODULE)
    return accountant is not None and isinstance(candidate, accountant.BudgetAccountant)
