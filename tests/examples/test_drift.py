"""The example of drift: who pays for 52 releases, and when they tell of the drift."""

import numpy as np
import pytest

from skdpot.privacy import BudgetExceededError, GaussianDpEvent, PlannedDpEvent

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


def half_width(week):
    """Return how far an interval reaches to either side."""
    low, high = week.interval
    return (high - low) / 2


def first_week(example, scores, accounting):
    """Return the first week under an accounting."""
    reference, batches = scores
    return example.watch(
        reference, batches[:1], accounting._replace(ledgers=accounting.ledgers[:1])
    )[0]


def test_scores_drift_from_week_30_on(scores, year):
    reference, batches = scores
    assert len(reference) == 5000 and len(batches) == N_WEEKS
    assert all(len(batch) == 2000 and 0 <= batch.min() <= batch.max() <= 1 for batch in batches)
    distances = [week.without_privacy for week in year[1]]
    assert 0 < min(distances[:30]) and max(distances[:30]) < 0.012
    assert min(distances[36:]) > 0.025 and distances[-1] > 0.09


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


def test_what_is_charged_is_noise_for_every_week(example, year):
    events = [entry.event for entry in year[0].ledgers[0].entries()]
    assert all(event == events[0] for event in events)
    assert isinstance(events[0], PlannedDpEvent)
    assert isinstance(events[0].event, GaussianDpEvent)
    noise = example.calibrate_noise_multiplier(example.EPSILON, example.DELTA / 2, steps=N_WEEKS)
    assert events[0].event.noise_multiplier == pytest.approx(noise, rel=1e-4)


def test_a_sum_would_end_in_week_6(example, year):
    spent = example.spent_by_sum(year[0].ledgers[0])
    assert len(spent) == 6
    np.testing.assert_allclose(spent, year[0].epsilon * np.arange(1, 7), rtol=1e-3)
    assert spent[-1] + year[0].epsilon > example.EPSILON


def test_intervals_hold_the_distance_without_privacy(year):
    held = [week.interval[0] <= week.without_privacy <= week.interval[1] for week in year[1]]
    # Of 52 intervals with a confidence of 95 %, fewer than 44 hold it once in 1000 times.
    assert sum(held) >= 44
    widths = [half_width(week) for week in year[1]]
    np.testing.assert_allclose(widths, 0.0146, rtol=0.01)


def test_reference_decides_how_wide_intervals_are(example, scores, year):
    private = half_width(year[1][0])
    added = half_width(first_week(example, scores, example.sum_of_epsilons()))
    public = half_width(first_week(example, scores, example.public_reference()))
    assert added == pytest.approx(np.log(20) * N_WEEKS / (2000 * example.EPSILON), rel=0.01)
    assert 2.5 < added / private < 3
    assert 19 < private / public < 21


def test_public_reference_makes_weeks_parts(example, scores):
    reference, batches = scores
    accounting = example.public_reference(n_weeks=3)
    weeks = example.watch(reference, batches[:3], accounting)
    assert [week.spent for week in weeks] == [example.EPSILON] * 3
    parts = [entry.part for entry in accounting.ledgers[0].entries()]
    assert parts == ["week 1", "week 2", "week 3"]


def test_private_reference_pays_every_week(example, scores):
    reference, batches = scores
    accounting = example.sum_of_epsilons(n_weeks=4)
    weeks = example.watch(reference, batches[:4], accounting)
    np.testing.assert_allclose([week.spent for week in weeks], [0.5, 1, 1.5, 2])


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
