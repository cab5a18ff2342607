"""Seeds and examples that are the same in every run."""

import zlib

import numpy as np
import pytest
from hypothesis import settings

from skdpot.privacy import allow_useless_releases

# A machine that is busy, or compiles a kernel, is no failure of a test.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_addoption(parser):
    parser.addoption("--share", metavar="K/N", help="only the K-th of N shares of the tests")


def pytest_collection_modifyitems(config, items):
    """Leave out the tests of other shares; the name of a test decides about its share.

    Nobody reads the traceback of a failure that is expected, and to format it takes long.
    """
    for item in items:
        if item.get_closest_marker("xfail"):
            item.repr_failure = lambda excinfo: excinfo.exconly()
    if config.getoption("--share", default=None):
        number, of = map(int, config.getoption("--share").split("/"))
        elsewhere = [it for it in items if zlib.crc32(it.nodeid.encode()) % of != number % of]
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [it for it in items if zlib.crc32(it.nodeid.encode()) % of == number % of]


@pytest.fixture
def seed(request):
    """Return an integer that depends on the test's name, with its parameters, alone."""
    words = np.random.SeedSequence(list(request.node.name.encode())).generate_state(1)
    return int(words[0])


@pytest.fixture
def rng(seed):
    """Return a random generator seeded by the test's name."""
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def small_samples_are_released(request):
    """Let tests be quick: few records, which tell nothing, unless the test is about that."""
    if request.node.get_closest_marker("refuses_useless"):
        yield
        return
    with allow_useless_releases():
        yield
