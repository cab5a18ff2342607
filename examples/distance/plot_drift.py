r"""
================================================
How can drift be watched with one budget a year?
================================================

A model was trained on last year's customers. Every week, the scores of this week's customers are
compared with those of last year: have the customers changed? All of them are people. The 52 answers
of a year are released under :math:`(\varepsilon, \delta)`-differential privacy, from one
:class:`skdpot.PrivacyLedger`.

**Whose budget is spent?** Every week has different customers, so each customer takes part in one
release. But the *reference* takes part in all 52, so its records pay every week. The ledger is
kept for them. How much noise a week needs depends on how the 52 prices add up:

- *epsilons are added:* a week gets :math:`\varepsilon / 52`;
- *Gaussian noise composes:* random privacy losses partly cancel, and the price grows with the
  square root of the number of weeks. This needs a small delta, which the ledger sets aside as
  ``slack``. The figure shows this case;
- *the reference is public:* it was released before, for example as a private histogram, or comes
  from a census. Then every customer takes part in one release, and every week can spend all of
  :math:`\varepsilon`.

The scores are simulated, and drift from week 30 on.
"""

# %%
# The scores
# ----------
# Scores are between 0 and 1. This range is public, and so are the number of customers and the week
# of each of them. The distance of two weeks is their Wasserstein distance of order 1: the mean
# difference of scores when people are matched in the order of their scores.

from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import wasserstein_distance

from skdpot import PrivacyLedger, PrivateSinkhornDistance
from skdpot.privacy import BudgetExceededError, calibrate_noise_multiplier, epsilon_of

EPSILON, DELTA = 2.0, 1e-5
DELTA_OF_A_WEEK = 1e-7
N_WEEKS, DRIFT_BEGINS = 52, 30
N_REFERENCE, N_CUSTOMERS = 5000, 2000
LIMIT = 0.03


def draw_scores(n_weeks=N_WEEKS, seed=0):
    """Return the scores of the reference, and those of every week's customers."""
    rng = np.random.default_rng(seed)
    weeks = np.arange(1, n_weeks + 1)
    shapes = 2 + 0.05 * np.maximum(weeks - DRIFT_BEGINS, 0)
    return rng.beta(2, 5, N_REFERENCE), [rng.beta(shape, 5, N_CUSTOMERS) for shape in shapes]


# %%
# The price of a week
# -------------------
# The number of releases, 52, is known beforehand. So we can compute the noise with which the
# budget lasts for all of them. ``calibrate_noise_multiplier`` finds it, for half of the slack: a
# ledger sets that much aside for Gaussian noise (:ref:`proof-filters`). An estimator takes an
# epsilon and a delta instead of the noise; ``epsilon_of`` converts.


class Accounting(NamedTuple):
    """One way to divide the budget: the price of a week, and the ledger that is charged."""

    title: str
    epsilon: float
    delta: float
    ledgers: list


def gaussian_composition(n_weeks=N_WEEKS):
    """Return the accounting with Gaussian noise and a private reference."""
    multiplier = calibrate_noise_multiplier(EPSILON, DELTA / 2, steps=n_weeks)
    ledger = PrivacyLedger(EPSILON, DELTA, slack=DELTA, allow_seeded=True)
    price = epsilon_of(multiplier, DELTA_OF_A_WEEK)
    return Accounting(
        "private reference, Gaussian noise composes", price, DELTA_OF_A_WEEK, [ledger] * n_weeks
    )


def sum_of_epsilons(n_weeks=N_WEEKS):
    """Return the accounting with Laplace noise and a private reference."""
    ledger = PrivacyLedger(EPSILON, allow_seeded=True)
    return Accounting(
        "private reference, epsilons are added", EPSILON / n_weeks, 0.0, [ledger] * n_weeks
    )


def public_reference(n_weeks=N_WEEKS):
    """Return the accounting in which only the customers of a week are private."""
    ledger = PrivacyLedger(EPSILON, allow_seeded=True)
    names = [f"week {week}" for week in range(1, n_weeks + 1)]
    parts = ledger.partition("week", names, fixed_key=True)
    return Accounting("public reference, weeks are parts", EPSILON, 0.0, list(parts.values()))


# %%
# The ledger of the first two ways is charged as a whole. It would be *wrong* to declare the weeks
# as parts of a partition there, although they have no customer in common. A record of the
# reference is in every part, and would be charged for only one of its 52 releases. With a public
# reference, parts are right. The week of a customer is public and never changes;
# ``fixed_key=True`` says so.
#
# In all three ways, the guarantee is for one record. A customer who returns in another week, or
# was in the reference, has several records. Each is protected, but not all of them together.


class Week(NamedTuple):
    """The result of a week: the released distance, and the total price so far."""

    distance: float
    interval: tuple
    spent: float
    without_privacy: float


def watch(reference, batches, accounting, seed=0):
    """Compare every week's scores with the reference; each release is charged first."""
    weeks = []
    for number, (batch, ledger) in enumerate(zip(batches, accounting.ledgers, strict=True)):
        monitor = PrivateSinkhornDistance(
            accounting.epsilon,
            accounting.delta,
            bounds=(0, 1),
            groups=["reference", "week"],
            metric="euclidean",
            ledger=ledger,
            random_state=seed + number,
        )
        scores = np.concatenate([reference, batch])[:, None]
        monitor.fit(scores, np.repeat(["reference", "week"], [len(reference), len(batch)]))
        weeks.append(
            Week(
                monitor.distance_,
                monitor.noise_interval_,
                ledger.spent()[0],
                wasserstein_distance(reference, batch),
            )
        )
    return weeks


# %%
# A ledger that adds epsilons would not admit the same releases for long. The function below counts
# how many it admits.


def spent_by_sum(ledger):
    """Return the prices of a ledger's releases in a ledger that adds epsilons, until it refuses."""
    strict = PrivacyLedger(EPSILON, DELTA, slack=0.0)
    spent = []
    for entry in ledger.entries():
        try:
            strict.charge(entry.event, unit=entry.unit, label=entry.label)
        except BudgetExceededError:
            break
        spent.append(strict.spent()[0])
    return spent


# %%
# When to act
# -----------
# ``noise_interval_`` contains the distance without privacy noise with a confidence of 95 %.
# Anything that is computed from it costs nothing. The model tolerates a shift of 0.03, so there is
# an alarm when the whole interval is above 0.03 for two weeks in a row. Of 52 intervals, two or
# three miss the distance, but hardly ever two in a row.


def first_alarm(weeks, limit=LIMIT):
    """Return the first week that, with the week before, has its interval above the limit."""
    above = [week.interval[0] > limit for week in weeks]
    for number in range(1, len(weeks)):
        if above[number - 1] and above[number]:
            return number + 1
    return None


def print_table(histories, shown):
    """Print the width of intervals and the week of the alarm for every accounting."""
    print(
        f"epsilon = {EPSILON:g}, delta = {DELTA:g} (if any) for {len(shown)} weeks; drift begins "
        f"after week {DRIFT_BEGINS}"
    )
    print(f"{'':44}{'a week':>8}{'all weeks':>11}{'interval':>11}{'alarm':>7}")
    for accounting, weeks in histories:
        low, high = weeks[0].interval
        print(
            f"{accounting.title:44}{accounting.epsilon:8.3f}{weeks[-1].spent:11.3f}"
            f"{f'+-{(high - low) / 2:.4f}':>11}{first_alarm(weeks) or 'none':>7}"
        )
    held = np.mean([week.interval[0] <= week.without_privacy <= week.interval[1] for week in shown])
    print(f"intervals with Gaussian noise that hold the distance without privacy: {held:.0%}")


def draw(weeks, by_sum):
    """Draw distances with their intervals, and the remaining budget."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(8, 6), sharex=True, height_ratios=[2, 1], layout="constrained"
    )
    numbers = np.arange(1, len(weeks) + 1)
    low, high = np.transpose([week.interval for week in weeks])
    above.fill_between(numbers, low, high, alpha=0.25, linewidth=0, label="95 % for the noise")
    above.plot(numbers, [week.distance for week in weeks], "o-", markersize=3, label="private")
    above.plot(
        numbers, [week.without_privacy for week in weeks], color="black", linewidth=0.8,
        label="without privacy",
    )  # fmt: skip
    above.axhline(LIMIT, color="grey", linestyle=":", label="what the model can bear")
    alarm = first_alarm(weeks)
    if alarm is not None:
        above.axvline(alarm, color="C3", linewidth=1, label=f"alarm in week {alarm}")
    above.set(ylabel="distance to the reference", title="Scores of each week's customers")
    above.legend(loc="upper left")
    below.step(
        [0, *numbers], [EPSILON, *(EPSILON - week.spent for week in weeks)], where="post",
        label="Gaussian noise composes",
    )  # fmt: skip
    left = [EPSILON, *(EPSILON - spent for spent in by_sum)]
    below.step(
        range(len(left)), left, "C1--", where="post", label="the same releases, epsilons added"
    )
    below.plot(len(by_sum), left[-1], "C1x")
    below.set(xlabel="week", ylabel=r"$\varepsilon$ left", ylim=(-0.05, 1.02 * EPSILON))
    below.legend()
    return figure


# %%
# Results
# -------
# With Gaussian noise the year's budget lasts for exactly 52 weeks, and a 53rd release would be
# refused. Intervals reach 0.015 to either side. If epsilons are added, intervals are nearly three
# times as wide, and the drift is noticed two weeks later. A ledger that adds epsilons would refuse
# the releases of the figure from week 7 on. The releases are the same, but this ledger has a worse
# bound on their price.
#
# If the reference were public, intervals would be twenty times narrower for the same guarantee to
# every customer, because no record is used twice. It can be worth a part of the budget to release
# the reference once.
#
# The ledger reports the largest price. A customer of a single week takes part in one release, with
# Gaussian noise at an epsilon of 0.29 (and a delta of 1e-7), not 2.
#
# The distance without privacy noise is not 0 before the drift either: two samples of the same
# customers differ by chance. The intervals do not contain this error, so the limit has to allow for
# it.


def main():
    """Watch a year of scores under all accountings, and show the one with Gaussian noise."""
    reference, batches = draw_scores()
    accountings = (gaussian_composition(), sum_of_epsilons(), public_reference())
    histories = [(one, watch(reference, batches, one)) for one in accountings]
    shown, by_sum = histories[0][1], spent_by_sum(accountings[0].ledgers[0])
    print_table(histories, shown)
    print(f"if their epsilons were added, only {len(by_sum)} of these releases would be admitted")
    draw(shown, by_sum)
    plt.show()


if __name__ == "__main__":
    main()
