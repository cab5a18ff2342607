"""Speed of the ledger, on one thread: durable charges, and those of an accountant in memory.

Run with ``OMP_NUM_THREADS=1 python -m pytest tests/benchmarks/test_ledger.py -m benchmark -s``.
Nothing is asserted about time. The peer is diffprivlib's accountant, which keeps a list in memory;
with a slack it prices the whole list at every charge.
"""

import time

import pytest

from skdpot.privacy import BudgetAccountant, GaussianDpEvent, PrivacyLedger, PureDpEvent

pytestmark = pytest.mark.benchmark

N_CHARGES = 1000


def ours(ledger, event):
    for _ in range(N_CHARGES):
        ledger.charge(event, unit="record", label="x")


def theirs(accountant):
    for _ in range(N_CHARGES):
        accountant.spend(1e-3, 0.0)


def timed(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def test_a_thousand_charges():
    peer = timed(theirs, BudgetAccountant(epsilon=10.0, delta=1e-5))
    peer_with_slack = timed(theirs, BudgetAccountant(epsilon=10.0, delta=1e-5, slack=1e-6))
    print(f"\ndiffprivlib, in memory: {peer:.2f} s, with slack {peer_with_slack:.2f} s")
    for title, slack, event in [
        ("sums", 0.0, PureDpEvent(1e-3)),
        ("mixture, generic releases", 1e-5, PureDpEvent(1e-3)),
        ("mixture, Gaussian noise", 1e-5, GaussianDpEvent(100.0)),
    ]:
        took = timed(ours, PrivacyLedger(10.0, 1e-5, slack=slack), event)
        print(f"{title}, on disk: {took:.2f} s, {took / peer_with_slack:.2f} times its slack")


def test_reading_many_charges():
    ledger = PrivacyLedger(100.0, 1e-5)
    ours(ledger, PureDpEvent(1e-3))
    for title, function in [
        ("entries", ledger.entries),
        ("verify", ledger.verify),
        ("spent", ledger.spent),
        ("spent at a delta", lambda: ledger.spent(delta=1e-6)),
        ("open", lambda: PrivacyLedger.open(ledger.path)),
    ]:
        print(f"\n{title}: {timed(function):.3f} s", end="")
    print()
