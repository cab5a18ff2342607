"""Poisson samples: the probability of a record, to the last bit, and independence."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from skdpot.privacy.noise import poisson_sample
from skdpot.privacy.random import make_source
from tests.oracles.given_bits import GivenBits

# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4
RATES = [0.3, 0.05, 1 / 1200, 0.5, 1 - 2.0**-20, 2.0**-17]


def threshold(rate):
    """Return how many of 2**63 integers include a record, which is the exact probability."""
    return Fraction(rate) * 2**63 // 1


def included(integer, rate):
    """Tell whether the one record for which an integer of 63 bits is drawn is in the sample."""
    leading, trailing = divmod(integer, 2**47)
    source = GivenBits(leading, trailing)
    sample = poisson_sample(source, 1, rate)
    return len(sample) == 1


@pytest.mark.parametrize("rate", [*RATES, 2.0**-60, 1e-12, 0.1, 1e-5, np.nextafter(1, 0)])
def test_the_integers_that_include_a_record_are_those_below_the_rate(rate):
    """And so the probability is not above the rate, and below it by less than 2**-63."""
    limit = threshold(rate)
    assert 0 <= Fraction(rate) - Fraction(limit, 2**63) < Fraction(1, 2**63)
    near = [limit + offset for offset in (-(2**47), -2, -1, 0, 1, 2**47)]
    for integer in [0, *near, 2**63 - 1]:
        if 0 <= integer < 2**63:
            assert included(integer, rate) == (integer < limit)


def test_trailing_bits_are_drawn_for_ties_alone():
    limit = threshold(1 / 3)
    leading, trailing = divmod(limit, 2**47)
    words = [leading - 1, leading, leading + 1]
    source = GivenBits(words[0] | words[1] << 16 | words[2] << 32, trailing - 1)
    np.testing.assert_array_equal(poisson_sample(source, 3, 1 / 3), [0, 1])
    assert source.asked == [(48, 1), (47, 1)]
    assert source.left == []


def test_ties_are_decided_record_by_record():
    leading, trailing = divmod(threshold(0.3), 2**47)
    packed = leading | leading << 16 | leading << 32
    decisions = [trailing, trailing - 1, 0, 2**47 - 1]
    source = GivenBits(packed, packed, *decisions, 0, trailing)
    # Of six records with the same first bits the last are decided by bits of their own.
    np.testing.assert_array_equal(poisson_sample(source, 6, 0.3), [1, 2, 4])


@pytest.mark.parametrize("n_records", [1, 2, 3, 4, 100])
def test_rates_of_one_and_of_nothing(n_records):
    for seed in range(20):
        everyone = poisson_sample(make_source(seed), n_records, 1.0)
        np.testing.assert_array_equal(everyone, np.arange(n_records))
        assert len(poisson_sample(make_source(seed), n_records, 2.0**-60)) == 0
        assert len(poisson_sample(make_source(seed), n_records, 2.0**-70)) == 0
    assert len(poisson_sample(make_source(0), 0, 0.5)) == 0


def test_positions_ascend():
    sample = poisson_sample(make_source(1), 10_000, 0.2)
    assert (np.diff(sample) > 0).all()
    assert 0 <= sample[0] <= sample[-1] < 10_000


def sizes_fit(drawn, claimed, seed, n_records=60, n_samples=4000):
    """Return the p-value of the sizes of samples, if the rate were what is claimed."""
    source = make_source(seed)
    sizes = [len(poisson_sample(source, n_records, drawn)) for _ in range(n_samples)]
    low, high = binom.ppf([0.005, 0.995], n_records, claimed).astype(int)
    low, high = max(low, 1), max(high, 2)
    edges = np.arange(low, high + 1)
    expected = np.diff([0.0, *binom.cdf(edges - 1, n_records, claimed), 1.0])
    found = np.bincount(np.searchsorted(edges, sizes, side="right"), minlength=len(expected))
    return chisquare(found, n_samples * expected).pvalue


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_sizes_are_binomial_and_other_rates_are_noticed(rate, seed):
    assert sizes_fit(rate, rate, seed) > RARE
    assert sizes_fit(0.9 * rate, rate, seed) < 1e-6
    assert sizes_fit(1.1 * rate, rate, seed) < 1e-6


@pytest.mark.parametrize("rate", [0.3, 0.6])
@pytest.mark.parametrize("n_records", [3, 5, 7])
def test_every_pattern_of_records_has_its_probability(n_records, rate, seed):
    """Independence of records, of the three in a word and of others."""
    source, n_samples = make_source(seed), 8_000
    counts = np.zeros(2**n_records)
    for _ in range(n_samples):
        counts[(1 << poisson_sample(source, n_records, rate)).sum()] += 1
    ones = np.array([bin(pattern).count("1") for pattern in range(2**n_records)])
    probabilities = rate**ones * (1 - rate) ** (n_records - ones)
    assert chisquare(counts, n_samples * probabilities).pvalue > RARE


@pytest.mark.parametrize("n_records", [2, 300])
def test_steps_are_independent(n_records, seed):
    """Of each record, in three steps after one another."""
    source, rate, n_rounds = make_source(seed), 0.4, 16_000 // n_records
    counts = np.zeros((2, 2, 2))
    for _ in range(n_rounds):
        steps = np.zeros((3, n_records), dtype=int)
        for step in steps:
            step[poisson_sample(source, n_records, rate)] = 1
        np.add.at(counts, tuple(steps), 1)
    probabilities = [
        np.prod([rate if bit else 1 - rate for bit in bits])
        for bits in itertools.product([0, 1], repeat=3)
    ]
    expected = n_rounds * n_records * np.array(probabilities)
    assert chisquare(counts.ravel(), expected).pvalue > RARE


def test_small_rates_are_not_lost_in_the_first_bits(seed):
    """Here one in two records passes the first bits, and one in 2**16 of them the others."""
    rate = 2.0**-17
    source, n_records, n_samples = make_source(seed), 300_000, 40
    sizes = [len(poisson_sample(source, n_records, rate)) for _ in range(n_samples)]
    total = n_samples * n_records
    tails = [binom.cdf(sum(sizes), total, rate), binom.sf(sum(sizes) - 1, total, rate)]
    assert min(tails) > RARE / 2


def test_samples_are_fresh_unless_seeded():
    def draw(source):
        return poisson_sample(source, 200, 0.5).tolist()

    assert draw(make_source()) != draw(make_source())
    assert draw(make_source(3)) == draw(make_source(3)) != draw(make_source(4))
