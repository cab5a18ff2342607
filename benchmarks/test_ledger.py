"""Speed of the ledger, on one thread: durable charges, and those of an accountant in memory.

Run with ``python -m pytest benchmarks -m benchmark -s -k ledger``.
Nothing is asserted about time. The peer is diffprivlib's accountant, which keeps a list in memory;
with a slack it prices the whole list at every charge.
"""

import time

import pytest

from benchmarks.contest import Contestant
from skdpot.privacy import (
    BudgetAccountant,
    ComposedDpEvent,
    GaussianDpEvent,
    PrivacyLedger,
    PureDpEvent,
)

pytestmark = pytest.mark.benchmark

N_CHARGES = 1000


def ours(ledger, event, n_charges=N_CHARGES):
    for _ in range(n_charges):
        ledger.charge(event, unit="record", label="x")


def theirs(slack, n_charges):
    accountant = BudgetAccountant(epsilon=10.0, delta=1e-5, slack=slack)
    for _ in range(n_charges):
        accountant.spend(1e-3, 0.0)


def timed(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


@pytest.mark.quick
@pytest.mark.parametrize(
    "title, slack, event",
    [
        ("sums of pure releases", 0.0, PureDpEvent(1e-3)),
        ("composition with a slack, pure releases", 1e-5, PureDpEvent(1e-3)),
        ("composition with a slack, Gaussian noise", 1e-5, GaussianDpEvent(100.0)),
    ],
)
def test_a_thousand_charges(title, slack, event, contest):
    name, n = "diffprivlib, BudgetAccountant", contest.size(N_CHARGES, 300)
    contest.compare(
        "PrivacyLedger",
        f"{n:,} charges, {title}",
        Contestant("PrivacyLedger", lambda: ours(PrivacyLedger(10.0, 1e-5, slack=slack), event, n)),
        [Contestant(name, lambda: theirs(slack / 10, n), "diffprivlib")],
        {},
        notes={
            name: "in memory, while ours are on disk before they are granted"
            + ("; it takes pairs of epsilon and delta" if slack else "")
        },
        rounds=(2, 5),
        clock=time.perf_counter,
    )


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


def test_ten_thousand_charges_of_any_kind():
    """Prints seconds of processor time; one charge costs as much as the next."""
    n = 10_000
    plain = PrivacyLedger(1e6, 1e-5)
    parts = PrivacyLedger(1e6, 1e-5).partition("day", [f"{day}" for day in range(n)])
    composed = ComposedDpEvent([PureDpEvent(1e-3), GaussianDpEvent(100.0)])
    tight = PrivacyLedger(1e6, 1e-5, slack=1e-5)

    def through_parts():
        for part in parts.values():
            ours(part, PureDpEvent(1e-3), 1)
            part.receipt()

    for title, function in [
        ("plain", lambda: ours(plain, PureDpEvent(1e-3), n)),
        ("composed, with a slack", lambda: ours(tight, composed, n)),
        ("through parts, with receipts", through_parts),
    ]:
        print(f"\n{title}: {processor_time(function):.1f} s", end="")
    print()


def processor_time(function):
    start = time.process_time()
    function()
    return time.process_time() - start
