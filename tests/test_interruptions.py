"""Interruptions at any moment of a release: what they say, and what works afterwards."""

import logging
import signal
import sys
import threading
import warnings

import pytest

from skdpot.privacy import PrivacyLedger
from skdpot.privacy.checks import is_silent, silence
from tests.test_ritual import CASES, n_charges, told

# Of what Python ignores while it closes a generator, and of files that its garbage held.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

QUICK = ("WassersteinProjectionSampler", "PrivateSinkhornDistance", "DPSinkhornGenerator, a table")
N_MOMENTS = 20


@pytest.fixture(autouse=True)
def _interruptions_are_heard():
    """Let SIGINT interrupt: a shell has it ignored by what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def calls_of(run):
    """Return how many calls of Python functions a release makes."""
    count = 0

    def watch(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def interrupted_at(moment, run):
    """Return how a release ends that is sent SIGINT at a call, counted from its first.

    None is that it ends well: Python ignores what is raised while it closes a generator.
    """
    left = moment

    def watch(_frame, event, _argument):
        nonlocal left
        left -= event == "call"
        if left == 0:
            left = -1
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(watch)
    try:
        run()
    except BaseException as error:
        # Compiled code of others may raise an error of its own for an interruption within it.
        if not is_due_to_interruption(error):
            raise
        return error
    finally:
        sys.setprofile(None)
    return None


def is_due_to_interruption(error):
    """Tell whether an error is an interruption, or was raised because of one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def check_interruptions(case, n_moments):
    assert threading.current_thread() is threading.main_thread()
    ledger = PrivacyLedger(1e6, 0.1, allow_seeded=True)
    # Seeded, since other noise takes a solver another number of calls.
    estimator = case.fitted(ledger=ledger).set_params(random_state=0)

    def run():
        getattr(estimator, case.release)(*case.data())

    # What is imported, compiled or kept for later is so after the first release.
    run()
    n_calls = calls_of(run)
    n_ignored, stdout = 0, sys.stdout
    for moment in range(n_moments):
        charged = n_charges(ledger)
        # The first calls make the data, and enter the release.
        error = interrupted_at(n_calls // 10 + moment * (n_calls * 8 // 10) // n_moments, run)
        was_charged = n_charges(ledger) > charged
        # What hides output has ended.
        assert sys.stdout is stdout
        if error is None:
            n_ignored += 1
            assert was_charged
            continue
        said = told(error)
        assert not was_charged or "entries" in said, (moment, said)
        assert was_charged or "was charged before this, and stays" not in said, (moment, said)
    assert n_ignored <= n_moments // 2
    charged = n_charges(ledger)
    run()
    assert n_charges(ledger) == charged + 1


def test_wherever_it_is_interrupted_what_hides_output_leaves_all_as_it_was():
    def run():
        with silence():
            pass

    def state():
        return sys.stdout, sys.stderr, logging.root.manager.disable, [*warnings.filters]

    run()
    before, n_calls = state(), calls_of(run)
    for moment in range(1, n_calls + 1):
        interrupted_at(moment, run)
        assert state() == before and not is_silent(), moment
    run()
    assert state() == before


@pytest.mark.parametrize("name", QUICK)
def test_a_release_that_is_interrupted_after_its_charge_says_so(name):
    check_interruptions(CASES[name], 4)


@pytest.mark.experiment
@pytest.mark.parametrize("name", CASES)
def test_whenever_it_is_interrupted_after_its_charge_a_release_says_so(name):
    check_interruptions(CASES[name], N_MOMENTS)
