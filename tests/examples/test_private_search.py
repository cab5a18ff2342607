"""The example of private searches: its pieces, and a small run."""

import numpy as np
import pytest

from skdpot.privacy import BudgetExceededError

pytestmark = pytest.mark.experiment

SMALL_GRID = {"gamma": [0.1, 100.0], "C": [10.0]}


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("model_selection/plot_private_search.py")


@pytest.fixture
def records(example, monkeypatch):
    """Return few records, among whose candidates one is the best by far."""
    monkeypatch.setattr(example, "GRID", SMALL_GRID)
    monkeypatch.setattr(example, "N_ITER", 2)
    return example.make_records(600, 400)


def test_a_search_is_charged_once_and_keeps_no_model(example, records):
    search, ledger = example.search_once(records[0], epsilon=2.0)
    assert search.privacy_guarantee_.epsilon == 2.0
    assert ledger.remaining() == (0.0, 0.0)
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(BudgetExceededError):
        search.fit(*records[0])


def test_choices_lie_between_the_worst_and_the_best(example, records, capsys):
    train, test = records
    truth = example.true_accuracies(train, test)
    assert len(truth) == 2
    assert max(truth.values()) > min(truth.values()) + 0.05
    found = example.compare(train, truth, epsilons=(0.5, 1e3), n_searches=2)
    assert all(np.isin(values, list(truth.values())).all() for values in found.values())
    example.print_table(truth, found)
    printed = capsys.readouterr().out.splitlines()
    assert f" {np.mean(list(truth.values())):.3f} [" in printed[0]
    assert len(printed) == 5
    figure = example.draw(truth, found)
    assert len(figure.axes[0].lines) == 6
    example.plt.close(figure)
