"""The example of private repairs: its pieces, a small run, and the real data."""

import numpy as np
import pytest

from skdpot.privacy import BudgetExceededError

pytestmark = pytest.mark.experiment


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("fairness/plot_private_repair.py")


@pytest.fixture(scope="module")
def rows(example):
    """Return small samples of the five groups."""
    return example.five_groups(n_points=300)


@pytest.fixture(scope="module")
def found(example, rows):
    """Return the objectives of releases at a small and a large budget."""
    return example.by_budget(
        lambda *release: example.objective_on_true_groups(rows, *release, n_support=60),
        epsilons=(0.5, 8.0),
        n_releases=3,
    )


@pytest.fixture(scope="module")
def parts(example):
    """Return made-up rows like those of Adult, to train and to test with."""
    rng = np.random.default_rng(0)

    def draw(n):
        groups = rng.choice(example.SEXES, n)
        shift = groups == "Male"
        age = np.round(rng.uniform(20, 60, n) + 15 * shift)
        education = rng.integers(1, 14, n) + 3 * shift
        gain = np.where(rng.random(n) < 0.1, 5000, 0)
        hours = np.round(rng.normal(35, 5, n) + 8 * shift)
        X = np.column_stack([age, education, gain, np.zeros(n), hours])
        return example.Rows(X, (age / 4 + education + rng.normal(size=n) > 23).astype(int), groups)

    return draw(2500), draw(1500)


def test_a_release_is_charged_and_guaranteed(example, rows):
    fair, ledger = example.release_once(rows, epsilon=2.0)
    assert (fair.privacy_guarantee_.epsilon, fair.privacy_guarantee_.delta) == (2.0, example.DELTA)
    assert "rows that are transformed" in fair.privacy_guarantee_.not_protected
    assert ledger.spent()[0] == pytest.approx(2.0)
    with pytest.raises(BudgetExceededError):
        fair.fit(rows.X, sensitive_features=rows.groups)


def test_noise_costs_the_less_the_larger_the_budget(example, rows, found):
    plain = found[None]
    assert plain.shape == (1, 1)
    assert plain == example.objective_on_true_groups(rows, n_support=60)
    small, large = (found[epsilon] for epsilon in (0.5, 8.0))
    assert small.shape == (3, 1) and len(np.unique(small)) == 3
    assert 0.97 * plain < large.mean() < small.mean()
    assert large.mean() < 1.1 * plain


def test_private_repairs_hide_groups(example, parts):
    train, test = parts
    before = example.judge(train.X, test.X, train, test)
    after = [example.judge_repair(train, test, 8.0, seed=seed, n_support=200) for seed in range(4)]
    # The areas of these four differ by .02.
    assert np.mean([one.auc for one in after]) < 0.63 < 0.8 < before.auc
    for one in after:
        assert one.parity < 0.1 < before.parity
        assert 0.6 < one.accuracy < before.accuracy


def test_table_and_figure(example, found, capsys):
    example.print_table("Made up", ["objective"], found)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[3:]] == ["0.5", "8", "without"]
    figure = example.draw([("objective", found, 0)] * 2)
    assert [len(axes.lines) for axes in figure.axes] == [2, 2]
    example.plt.close(figure)


@pytest.mark.usefixtures("no_data")
def test_without_adult_the_example_says_so(example, capsys):
    assert example.load_parts() is None
    printed = capsys.readouterr().out
    assert printed.startswith("No data for SKDPOT_ADULT") and "https://" in printed
