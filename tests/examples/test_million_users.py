"""The example of a million users, with a few, in this process and on workers."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from skdpot import PrivacyLedger

pytestmark = pytest.mark.experiment

EXAMPLE = Path(__file__).parents[2] / "examples" / "sampling" / "plot_million_users.py"


class OneProcess:
    """What a cluster's client does, done at once."""

    def map(self, function, *arguments, pure=False):
        assert not pure
        return [function(*some) for some in zip(*arguments, strict=True)]

    def gather(self, results):
        return results


@pytest.fixture
def example(monkeypatch):
    """Return the example as a module that worker processes find, too."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    example = importlib.import_module(EXAMPLE.stem)
    monkeypatch.setattr(example, "USERS_IN_A_FILE", 200)
    yield example
    del sys.modules[EXAMPLE.stem]


def samples_of(paths):
    return [np.load(path)[:, 0] for path in paths]


def test_every_user_is_charged_once_and_released_once(example, tmp_path):
    paths = example.write_all(OneProcess(), tmp_path, 500)
    ledger = PrivacyLedger(epsilon=2.0)
    targets = example.release_all(OneProcess(), paths, ledger)
    assert [len(samples) for samples in samples_of(targets)] == [200, 200, 100]
    assert ledger.spent() == (2.0, 0.0)
    assert len(ledger.entries()) == 3
    before = samples_of(targets)
    assert example.release_all(OneProcess(), paths, ledger) == targets
    assert ledger.spent() == (2.0, 0.0)
    for old, new in zip(before, samples_of(targets), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_samples_do_not_depend_on_the_workers(example, tmp_path, n_workers):
    distributed = pytest.importorskip("distributed")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    ledgers = [PrivacyLedger(epsilon=2.0, allow_seeded=True) for _ in range(2)]
    sources = example.write_all(OneProcess(), here, 500)
    one = example.release_all(OneProcess(), sources, ledgers[0], random_state=0)
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        sources = example.write_all(client, there, 500)
        many = example.release_all(client, sources, ledgers[1], random_state=0)
    assert ledgers[1].spent() == (2.0, 0.0)
    for mine, theirs in zip(samples_of(one), samples_of(many), strict=True):
        np.testing.assert_array_equal(mine, theirs)
