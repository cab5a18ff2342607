"""The example of drift: who pays for 52 releases, and when they tell of the drift."""

import numpy as np
import pytest

from skdpot.privacy import BudgetExceededError

N_WEEKS = 52


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("distance/plot_drift.py")


@pytest.fixture(scope="module")
def scores(example):
    """Return the scores of the reference and of every week."""
    return example.draw_scores()


@pytest.fixture(scope="module")
def year(example, scores):
    """Return the accounting of the figure, with its ledger, and its weeks."""
    accounting = example.gaussian_composition()
    return accounting, example.watch(*scores, accounting)


@pytest.mark.experiment
def test_the_budget_lasts_for_the_year_and_no_longer(example, year):
    accounting, weeks = year
    ledger = accounting.ledgers[0]
    assert all(one is ledger for one in accounting.ledgers)
    spent = [week.spent for week in weeks]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(example.EPSILON, rel=1e-6)
    entries = ledger.entries()
    assert len(entries) == N_WEEKS
    assert {(entry.unit, entry.partition) for entry in entries} == {("record", None)}
    with pytest.raises(BudgetExceededError):
        ledger.charge(entries[0].event, unit="record", label="week 53")
    assert len(ledger.entries()) == N_WEEKS


def test_a_sum_would_end_in_week_6(example, year):
    spent = example.spent_by_sum(year[0].ledgers[0])
    assert len(spent) == 6
    np.testing.assert_allclose(spent, year[0].epsilon * np.arange(1, 7), rtol=1e-3)
    assert spent[-1] + year[0].epsilon > example.EPSILON


def test_intervals_hold_the_distance_without_privacy(year):
    held = [week.interval[0] <= week.without_privacy <= week.interval[1] for week in year[1]]
    # Of 52 intervals with a confidence of 95 %, fewer than 44 hold it once in 1000 times.
    assert sum(held) >= 44


def test_alarm_needs_two_weeks_in_a_row(example, year):
    def history(*lows):
        return [example.Week(low + 1, (low, low + 2), 0.0, 0.0) for low in lows]

    assert example.first_alarm(history(0.5, 0, 0.5, 0), limit=0.1) is None
    assert example.first_alarm(history(0, 0.5, 0.5, 0.5), limit=0.1) == 3
    assert example.DRIFT_BEGINS < example.first_alarm(year[1]) <= 42


def test_table_and_figure(example, year, capsys):
    accounting, weeks = year
    example.print_table([(accounting, weeks)], weeks)
    printed = capsys.readouterr().out
    assert "private reference, Gaussian noise composes     0.293      2.000   +-0.0146" in printed
    figure = example.draw(weeks, example.spent_by_sum(accounting.ledgers[0]))
    above, below = figure.axes
    assert (
        len(above.collections) == 1 and "alarm in week" in above.get_legend_handles_labels()[1][-1]
    )
    composed, added = (line.get_ydata() for line in below.lines[:2])
    assert len(composed) == N_WEEKS + 1 and len(added) == 7
    assert composed[0] == added[0] == example.EPSILON and composed[-1] == pytest.approx(0, abs=1e-6)
    example.plt.close(figure)
