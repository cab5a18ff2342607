"""Owners and coordinators that are killed, and what must hold of them whatever happens."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.oracles.federation_faults import Nursery, check_schedule, new_folder

# SKDPOT_SCHEDULES=3 plays three times as many.
TIMES = int(os.environ.get("SKDPOT_SCHEDULES", "1"))
QUICK, HERE, ELSEWHERE = 40, 160 * TIMES, 40 * TIMES
N_BLOCKS = 8


@pytest.fixture(scope="module")
def folder():
    """Return a folder, in memory if that can be: a disk that is waited for tells no more."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture(scope="module")
def ledgers(folder):
    """Return ledgers that schedules share: to make one takes longer than to play a schedule."""
    return new_folder(folder / "ledgers")


@pytest.fixture(scope="module")
def nursery(folder):
    """Return where processes come from."""
    with Nursery(folder / "socket") as made:
        yield made


@pytest.mark.parametrize("block", range(4))
def test_whoever_is_killed_here(block, folder, ledgers):
    faults = sum(
        check_schedule(seed, folder / f"{seed}", ledgers).total() for seed in range(block, QUICK, 4)
    )
    assert faults > QUICK


@pytest.mark.experiment
@pytest.mark.parametrize("block", range(N_BLOCKS))
def test_many_schedules_here(block, folder, ledgers):
    for seed in range(QUICK + block, QUICK + HERE, N_BLOCKS):
        check_schedule(seed, folder / f"{seed}", ledgers)


@pytest.mark.experiment
@pytest.mark.parametrize("block", range(N_BLOCKS))
def test_many_schedules_of_processes(block, folder, ledgers, nursery):
    for seed in range(1000 + block, 1000 + ELSEWHERE, N_BLOCKS):
        check_schedule(seed, folder / f"{seed}", ledgers, nursery)
