"""The example of rounds and bytes, on few points."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from skdpot.federation import SecureAggregation

pytestmark = pytest.mark.experiment


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("federation/plot_rounds.py")


@pytest.fixture(scope="module")
def task(example):
    """Return a small problem."""
    return example.paper_task(n_points=40, n_candidates=60, n_support=15)


@pytest.fixture(scope="module")
def runs(example, task):
    """Return what the algorithms found."""
    runs = {name: example.federate(task, name, max_iter=80) for name in example.METHODS}
    runs["bregman, secure"] = example.federate(task, "bregman", SecureAggregation(), 80)
    return runs


def test_what_federations_find_is_near_what_a_central_solver_finds(example, task, runs):
    central, seconds = example.central(task)
    assert seconds > 0
    assert example.value_of(task, runs["free"].found.support) < 1.03 * central
    for name in ("dual", "bregman", "bundle"):
        found = runs[name].found
        value = example.value_of(task, found.support)
        assert found.objective == pytest.approx(value, rel=1e-6)
        assert value > central


def test_gaps_fall_and_rounds_are_the_first_that_reach_them(example, runs):
    for name in ("dual", "bregman", "bundle"):
        rounds, gaps = example.gaps(runs[name].found)
        assert (np.diff(gaps) <= 0).all() and (np.diff(rounds) >= 0).all()
        first = example.rounds_to(runs[name].found, gaps[-1])
        assert first == rounds[np.flatnonzero(gaps <= gaps[-1])[0]]
        assert example.rounds_to(runs[name].found, gaps[-1] / 2) is None


def test_sums_under_masks_are_the_same_and_cost_more(runs):
    plain, secure = runs["bregman"], runs["bregman, secure"]
    np.testing.assert_allclose(secure.found.support, plain.found.support, atol=1e-9)
    assert secure.found.resolution > 0 == plain.found.resolution
    assert secure.bytes_up[-1] > plain.bytes_up[-1] > 60 * 8 * 30


def test_table_and_picture(example, task, runs, capsys, tmp_path):
    private = {5.0: example.release(task, 5.0)}
    assert private[5.0].found.n_rounds == 1
    peer = example.central(task, max_iter=5)
    example.table(task, runs, peer, private)
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*runs, "POT", "release, epsilon 5"))
    example.draw(task, runs, peer, tmp_path / "rounds.png")
    assert (tmp_path / "rounds.png").stat().st_size > 10_000
    plt.close("all")
