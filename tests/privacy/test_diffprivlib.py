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


def test_importing_privacy_imports_no_diffprivlib():
    run(
        """
import sys
from skdpot.privacy.charging import is_budget_accountant
assert not is_budget_accountant(object())
assert "diffprivlib" not in sys.modules
"""
    )


def test_accountant_works_and_scikit_learn_is_left_as_it_was():
    run(
        """
from skdpot.privacy import BudgetAccountant, BudgetError
from skdpot.privacy.charging import is_budget_accountant
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
def test_classes_are_those_of_diffprivlib_and_its_other_parts_work_afterwards():
    run(
        """
from skdpot.privacy import BudgetAccountant, BudgetError
import diffprivlib
assert BudgetAccountant is diffprivlib.BudgetAccountant
assert BudgetError is diffprivlib.utils.BudgetError
mechanism = diffprivlib.mechanisms.Laplace(epsilon=1.0, sensitivity=1.0, random_state=0)
assert mechanism.randomise(1.0) != 1.0
"""
    )


@pytest.mark.experiment
def test_accountant_can_be_imported_after_a_failed_import_of_diffprivlib():
    run(
        """
try:
    import diffprivlib
except ImportError:
    pass
from skdpot.privacy import BudgetAccountant
from skdpot.privacy.charging import is_budget_accountant
import diffprivlib
assert BudgetAccountant is diffprivlib.BudgetAccountant
assert is_budget_accountant(BudgetAccountant())
assert_tree_untouched()
"""
    )


@pytest.mark.experiment
def test_names_that_scikit_learn_still_has_are_left_alone():
    run(
        """
marker = type("marker", (), {})
tree.DOUBLE = marker
from skdpot.privacy import BudgetAccountant
assert tree.DOUBLE is marker
from diffprivlib.models import forest
assert forest.DOUBLE is marker
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


@pytest.mark.experiment
def test_concurrent_threads_get_the_same_class():
    run(
        """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from skdpot.privacy.charging import load_accountant
barrier = Barrier(8)
def load(_):
    barrier.wait()
    return load_accountant("BudgetAccountant")
with ThreadPoolExecutor(8) as threads:
    assert len(set(threads.map(load, range(8)))) == 1
assert_tree_untouched()
"""
    )


def test_a_name_that_privacy_does_not_have_is_refused():
    privacy = importlib.import_module("skdpot.privacy")
    with pytest.raises(AttributeError, match="no attribute 'Accountant'"):
        _ = privacy.Accountant


@pytest.mark.experiment
def test_worker_processes_of_scikit_learn_still_work():
    run(
        """
import warnings
import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV
from skdpot.privacy import BudgetAccountant
BudgetAccountant()
categories = [category for _, _, category, _, _ in warnings.filters]
assert not any(category.__module__.startswith("diffprivlib") for category in categories)
search = GridSearchCV(DummyClassifier(), {"strategy": ["prior", "uniform"]}, cv=2, n_jobs=2)
search.fit(np.zeros((8, 1)), [0, 1] * 4)
"""
    )
