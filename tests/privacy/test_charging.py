"""Budgets: every release is charged to the user's own accountant, before it happens, and once."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdpot import KLProjectionSampler, SphericalProjectionSampler
from skdpot.privacy import (
    ApproximateDpEvent,
    BudgetAccountant,
    BudgetError,
    BudgetExceededError,
    GaussianDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    PrivacyGuarantee,
    PrivacyLedger,
    PureDpEvent,
    SelfComposedDpEvent,
)
from skdpot.privacy.charging import DetachedLedger, ReleasePlan
from skdpot.privacy.noise import make_source

PROJECT = Path(__file__).parents[2]
X = np.eye(4)
# One that draws points, and one that draws vectors.
SAMPLERS = [KLProjectionSampler, SphericalProjectionSampler]


def plan_of(event, *, seeded=False, unit="record"):
    return ReleasePlan(None, event, make_source(0 if seeded else None), "a mean", None, unit)


def check_ledger(ledger):
    plan_of(PureDpEvent(0.1)).check(ledger)


def charge(ledger, epsilon, delta=0.0):
    """Charge a generic release."""
    plan_of(ApproximateDpEvent(epsilon, delta)).charge_to(ledger)


class HesitantAccountant(BudgetAccountant):
    """An accountant that waits for company between the check and the entry of an expense."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.company = threading.Barrier(2)

    def check(self, epsilon, delta):
        allowed = super().check(epsilon, delta)
        try:
            self.company.wait(timeout=0.2)
        except threading.BrokenBarrierError:
            pass
        return allowed


def attempt(function, *args):
    """Tell whether a call is within the budget."""
    try:
        function(*args)
    except BudgetError:
        return False
    return True


def at_once(function, n_threads):
    """Call a function in several threads and return how often the budget allowed it."""
    with ThreadPoolExecutor(n_threads) as pool:
        return sum(pool.map(lambda _: attempt(function), range(n_threads)))


def test_charge_beyond_the_budget_is_refused_and_not_entered():
    ledger = BudgetAccountant(epsilon=1.0, delta=0.0)
    charge(ledger, 0.75)
    for epsilon, delta in [(0.5, 0.0), (0.1, 1e-9)]:
        with pytest.raises(BudgetError):
            charge(ledger, epsilon, delta)
    assert ledger.spent_budget == [(0.75, 0.0)]


def test_no_ledger_charges_nothing():
    charge(None, 1.0)
    check_ledger(None)


@pytest.mark.parametrize("ledger, error, message", [
    *((ledger, TypeError, "must be None, a skdpot.PrivacyLedger or a diffpriv")
      for ledger in (1.0, "budget", {}, BudgetAccountant, object())),
    (DetachedLedger(), RuntimeError, r"set_params\(ledger=...\)"),
])  # fmt: skip
def test_what_is_no_ledger_is_refused(ledger, error, message):
    for call in (lambda: check_ledger(ledger), lambda: charge(ledger, 0.1)):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("event", [None, PureDpEvent(1.0)])
def test_a_plan_guarantees_nothing_without_an_event_or_with_a_seed(event, seeded):
    guarantee = PrivacyGuarantee(1.0, 0.0, "replace_one", "record")
    plan = ReleasePlan(None, event, make_source(0 if seeded else None), "a mean", guarantee)
    assert plan.guarantee is (None if seeded or event is None else guarantee)


def test_nothing_comes_between_check_and_entry():
    unguarded = HesitantAccountant(epsilon=1.0, delta=0.0)
    assert at_once(lambda: unguarded.spend(0.75, 0.0), n_threads=2) == 2
    assert unguarded.total()[0] > unguarded.epsilon
    guarded = HesitantAccountant(epsilon=1.0, delta=0.0)
    assert at_once(lambda: charge(guarded, 0.75), n_threads=2) == 1
    assert guarded.total() == (0.75, 0.0)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_an_epsilon_that_was_set_since_the_fit_is_never_charged(kind):
    ledger = BudgetAccountant(epsilon=10.0, delta=0.0)
    sampler = kind(2.0, ledger=ledger).fit(X)
    score = sampler.score(X)
    sampler.transform(X)
    sampler.sample(X, n_samples=2)
    sampler.set_params(epsilon=1e-3)
    for release in (sampler.transform, sampler.sample):
        with pytest.raises(ValueError, match="fit again"):
            release(X)
    assert ledger.spent_budget == [(2.0, 0.0), (4.0, 0.0)]
    assert sampler.score(X) == score


@pytest.mark.parametrize("kind", SAMPLERS)
def test_refitting_between_charge_and_release_changes_nothing(kind):
    class RefittingAccountant(BudgetAccountant):
        def spend(self, epsilon, delta):
            super().spend(epsilon, delta)
            sampler._fitted = None

    ledger = RefittingAccountant(epsilon=1.0, delta=0.0)
    sampler = kind(0.5, ledger=ledger).fit(X)
    assert len(sampler.transform(X)) == len(X)
    assert ledger.total() == (0.5, 0.0)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_clones_spend_the_budget_of_the_original(kind):
    ledger = BudgetAccountant(epsilon=1.0, delta=0.0)
    sampler = kind(0.25, ledger=ledger)
    pipeline = make_pipeline(clone(sampler), KMeans(2, n_init=1))
    for duplicate in (clone(sampler), clone(pipeline)[0], clone(clone(sampler))):
        assert duplicate.ledger is ledger
        duplicate.fit_transform(X)
    assert ledger.total() == (0.75, 0.0)


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(
    "duplicate_of",
    [lambda sampler: pickle.loads(pickle.dumps(sampler)), copy.deepcopy, copy.copy],
    ids=["pickle", "deepcopy", "copy"],
)
def test_copies_do_not_spend_a_budget_of_their_own(kind, duplicate_of):
    ledger = BudgetAccountant(epsilon=1.0, delta=0.0)
    original = kind(0.25, ledger=ledger).fit(X)
    duplicate = duplicate_of(original)
    assert isinstance(duplicate.ledger, DetachedLedger)
    assert repr(duplicate.ledger) == "DetachedLedger()"
    assert original.ledger is ledger
    for call in (lambda: duplicate.transform(X), lambda: duplicate.fit(X)):
        with pytest.raises(RuntimeError, match="nothing is released"):
            call()
    # A clone, or a copy, of a copy is no way around it.
    assert isinstance(clone(duplicate).ledger, DetachedLedger)
    assert isinstance(copy.deepcopy(duplicate).ledger, DetachedLedger)
    duplicate.set_params(ledger=ledger).transform(X)
    assert ledger.total() == (0.25, 0.0)
    unlimited = duplicate_of(original.set_params(ledger=None))
    assert unlimited.ledger is None


@pytest.mark.experiment
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to fork with")
@pytest.mark.parametrize("is_used", [True, False])
def test_forks_do_not_spend_copies_of_a_budget(is_used):
    script = (
        f"is_used = {is_used}"
        + """
import os
import numpy as np
from skdpot import KLProjectionSampler
from skdpot.privacy import BudgetAccountant
X = np.eye(3)
ledger = BudgetAccountant(epsilon=1.0, delta=0.0)
sampler = KLProjectionSampler(0.25, ledger=ledger).fit(X)
if is_used:
    sampler.transform(X)
child = os.fork()
if not child:
    try:
        sampler.transform(X)
    except RuntimeError as error:
        own = BudgetAccountant(epsilon=1.0, delta=0.0)
        sampler.set_params(ledger=own).transform(X)
        os._exit(0 if "forked" in str(error) and own.total()[0] == 0.25 else 3)
    os._exit(2)
status = os.waitpid(child, 0)[1]
sampler.transform(X)
assert ledger.total()[0] == 0.25 + 0.25 * is_used
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_worker_takes_no_accountant_which_may_be_a_copy(monkeypatch):
    """Whether a copy was sent in a function cannot be seen of an accountant that is not used."""
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    ledger = BudgetAccountant(epsilon=1.0, delta=0.0)
    with pytest.raises(RuntimeError, match="in a worker or forked process"):
        KLProjectionSampler(0.25, ledger=ledger).fit(np.eye(3)).transform(np.eye(3))
    assert ledger.total() == (0, 0)


@pytest.mark.parametrize("kind", [BudgetAccountant, PrivacyLedger])
def test_budget_of_a_grid_search_runs_out(kind, rng):
    ledger = kind(epsilon=3.0, delta=0.0)
    pipeline = make_pipeline(
        KLProjectionSampler(1.0, ledger=ledger), KMeans(2, n_init=1, random_state=0)
    )
    search = GridSearchCV(
        pipeline, {"klprojectionsampler__base_measure": [0.5, 0.6]}, cv=3, error_score="raise"
    )
    rows = rng.random((12, 4))
    with pytest.raises((BudgetError, BudgetExceededError)) as refused:
        search.fit(rows)
    (note,) = refused.value.__notes__
    assert "once for each candidate and fold" in note and "PrivateSearchCV" in note
    assert (ledger.total() if kind is BudgetAccountant else ledger.spent()) == (3.0, 0.0)
    # No clone fits here, and nothing is said of searches.
    with pytest.raises((BudgetError, BudgetExceededError)) as refused:
        pipeline.fit_transform(rows)
    assert not hasattr(refused.value, "__notes__")


def test_an_accountant_is_charged_the_pair_of_an_event():
    ledger = BudgetAccountant()
    for event, pair in [
        (SelfComposedDpEvent(PureDpEvent(0.1), 3), (0.3, 0.0)),
        (PlannedDpEvent(ApproximateDpEvent(0.5, 1e-7), 1e-6), (0.5, 1e-6)),
        (PoissonSampledDpEvent(0.5, ApproximateDpEvent(0.0, 1e-6)), (0.0, 5e-7)),
    ]:
        plan_of(event).charge_to(ledger)
        assert ledger.spent_budget[-1] == pytest.approx(pair, rel=1e-4)


# Releases that an accountant refuses after one of records that are replaced.
OTHERS = {
    "another relation": ({"neighbouring": "add_remove"}, "Such guarantees do not add up"),
    "another unit": ({"unit": "user"}, "protects every user under neighbouring='replace_one'"),
    "a seed": ({"source": make_source(0)}, "random_state is not private(.|\n)*allow_seeded=True"),
}


@pytest.mark.parametrize("about, message", OTHERS.values(), ids=OTHERS)
def test_an_accountant_takes_releases_of_one_kind(about, message):
    accountant, plan = BudgetAccountant(1.0, 0.0), plan_of(PureDpEvent(0.25))
    other = replace(plan, **about)
    plan.charge_to(accountant)
    for same in (accountant, copy.deepcopy(accountant), pickle.loads(pickle.dumps(accountant))):
        for call in (other.check, other.charge_to):
            with pytest.raises(ValueError, match=message):
                call(same)
        plan.charge_to(same)
        assert same.spent_budget == [(0.25, 0.0)] * 2


def test_an_accountant_is_not_charged_what_has_no_pair():
    ledger = BudgetAccountant()
    with pytest.raises(ValueError, match="no .epsilon, delta. to add up. Use a PrivacyLedger"):
        plan_of(GaussianDpEvent(1.0)).charge_to(ledger)
    assert ledger.spent_budget == []
