"""The import of diffprivlib, which needs names that scikit-learn no longer has.

The package adds these names during the import and removes them afterwards. Each test runs a script
in its own process, because a process imports a module only once.
"""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]

NAMES_OF_TREE = """
import sklearn.tree._tree as tree
before = dict(vars(tree))
def assert_tree_untouched():
    assert vars(tree).keys() == before.keys()
    assert all(vars(tree)[name] is value for name, value in before.items())
"""


def run(script):
    """Run a script in a new interpreter; if it fails, fail with its error output."""
    done = subprocess.run(
        [sys.executable, "-c", NAMES_OF_TREE + script],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_it_is_imported_for_its_accountant_alone_and_scikit_learn_is_left_as_it_was():
    run(
        """
import sys
from skdpot.privacy.charging import is_budget_accountant
assert not is_budget_accountant(object())
assert "diffprivlib" not in sys.modules
from skdpot.privacy import BudgetAccountant, BudgetError
assert_tree_untouched()
accountant = BudgetAccountant(epsilon=1.0, delta=0.0)
assert is_budget_accountant(accountant) and not is_budget_accountant(1.0)
accountant.spend(0.75, 0.0)
assert accountant.total() == (0.75, 0.0)
try:
    accountant.spend(0.5, 0.0)
except BudgetError:
    pass
else:
    raise AssertionError("overspent")
"""
    )


@pytest.mark.experiment
def test_nothing_is_left_behind_when_the_import_fails():
    run(
        """
import sys
sys.modules["diffprivlib.models"] = None
try:
    from skdpot.privacy import BudgetAccountant
except ImportError as error:
    assert "diffprivlib.models" in str(error)
else:
    raise AssertionError("the import should have failed")
assert_tree_untouched()
del sys.modules["diffprivlib.models"]
from skdpot.privacy import BudgetAccountant
assert_tree_untouched()
"""
    )


def test_a_name_that_privacy_does_not_have_is_refused():
    privacy = importlib.import_module("skdpot.privacy")
    with pytest.raises(AttributeError, match="no attribute 'Accountant'"):
        _ = privacy.Accountant
