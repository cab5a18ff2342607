"""Coverage of the intervals that synthetic sets give for the population, at an epsilon of 1."""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch, combine

pytestmark = pytest.mark.experiment

N_RUNS, N_RECORDS, N_SETS = 25, 10_000, 10
SCHEMA = {"age": range(20, 80), "smoke": ["no", "yes"], "stress": (0.0, 10.0), "ill": ["no", "yes"]}
# The share who are ill among smokers less that among others, and the mean and slope of stress.
TRUTH = np.array([0.2, 5.0, 0.05])


def make_table(seed):
    """Return records of a study."""
    rng = np.random.default_rng(seed)
    age, smoke = rng.integers(20, 80, N_RECORDS), rng.uniform(size=N_RECORDS) < 0.3
    stress = np.clip(5 + 0.05 * (age - 49.5) + rng.normal(size=N_RECORDS), 0, 10)
    ill = rng.uniform(size=N_RECORDS) < 0.2 + 0.2 * smoke
    words = np.array(["no", "yes"])
    columns = {"age": age, "smoke": words[smoke * 1], "stress": stress, "ill": words[ill * 1]}
    return pd.DataFrame(columns)


def analyse(table):
    """Return the estimates of a table, and their variances as if its rows were real."""
    smoke, ill = ((table[name] == "yes").to_numpy() for name in ("smoke", "ill"))
    age, stress = (table[name].to_numpy(dtype=float) for name in ("age", "stress"))
    shares = [ill[of].mean() for of in (smoke, ~smoke)]
    of_shares = sum(
        share * (1 - share) / of.sum() for share, of in zip(shares, (smoke, ~smoke), strict=True)
    )
    slope, of_slope = np.polyfit(age - age.mean(), stress, 1, cov=True)
    estimates = [shares[0] - shares[1], stress.mean(), slope[0]]
    return estimates, [of_shares, stress.var() / len(table), of_slope[0, 0]]


def test_intervals_of_sets_cover_and_those_of_one_table_do_not():
    covered, naive = np.zeros(3), np.zeros(3)
    for seed in range(N_RUNS):
        generator = DPSinkhornGenerator(
            schema=SCHEMA, model=TableSketch(60, n_iter=200), random_state=seed
        ).fit(make_table(seed))
        estimates, variances = (np.array(part) for part in analyse(generator.sample(N_RECORDS)))
        naive += np.abs(estimates - TRUTH) <= 1.96 * np.sqrt(variances)
        analyses = [analyse(made) for made in generator.sample(N_RECORDS, n_sets=N_SETS)]
        low, high = combine(*zip(*analyses, strict=True)).interval()
        covered += (low <= TRUTH) & (high >= TRUTH)
    # Of 25 intervals that cover with probability .95, 7 miss in one of 6,000 experiments.
    assert (covered >= N_RUNS - 6).all(), covered
    assert (naive < N_RUNS - 6).any() and naive[2] < covered[2], naive
