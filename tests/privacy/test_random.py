"""The sources of noise, uniform in every bit, and Poisson samples of exact probability."""

import hashlib
import os
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chisquare, kstest, norm

from skdpot.privacy.noise import NoiseSource, derive_key, keyed_source, make_source, poisson_sample
from tests.oracles.given_bits import GivenBits

N_DRAWS = 100_000
# False alarms of a test without a seed: one in a thousand million.
RARE = 1e-9


@pytest.fixture(params=["seeded", "cryptographic", "keyed"])
def source(request, seed):
    if request.param == "keyed":
        return keyed(seed)
    return make_source(seed if request.param == "seeded" else None)


def keyed(seed, *what):
    return keyed_source(seed.to_bytes(32, "big"), *what)


@pytest.fixture(params=[make_source, keyed])
def made(request):
    """Return what makes a source that can be made again."""
    return request.param


class FixedWords(NoiseSource):
    """A source whose words are given."""

    seeded = True

    def __init__(self, *words):
        self.words = np.array(words, dtype=np.uint64)

    def for_user(self, index):
        return self

    def _words(self, count):
        return self.words[:count]


def first_words(source, count=8):
    return source.bits(63, count).tolist()


# No rows of test_every_mechanism.py: nothing is claimed of draws without a mechanism.


def test_uniforms_are_uniform(source):
    draws = source.uniform(N_DRAWS)
    assert kstest(draws, "uniform").pvalue > RARE
    for wrong_scale in (0.9, 1.1):
        assert kstest(draws * wrong_scale, "uniform").pvalue < RARE


def test_normals_are_standard_normal(source):
    draws = source.normal(N_DRAWS)
    assert kstest(draws, "norm").pvalue > RARE
    for wrong_scale in (0.9, 1.1):
        assert kstest(draws, norm(scale=wrong_scale).cdf).pvalue < RARE


@pytest.mark.parametrize("n_bits", [1, 8, 63])
def test_integers_are_uniform_below_their_power_of_two(source, n_bits):
    draws = source.bits(n_bits, N_DRAWS)
    assert draws.dtype == np.int64
    assert draws.min() >= 0
    assert draws.max() < 1 << n_bits
    cells = min(n_bits, 8)
    highest = np.bincount(draws >> (n_bits - cells), minlength=1 << cells)
    lowest = np.bincount(draws & ((1 << cells) - 1), minlength=1 << cells)
    assert chisquare(highest).pvalue > RARE
    assert chisquare(lowest).pvalue > RARE


def test_every_bit_is_a_fair_coin_and_neighbours_are_independent(source):
    draws = source.bits(63, N_DRAWS)
    bits = (draws[:, None] >> np.arange(63)) & 1
    standard_error = 0.5 / np.sqrt(N_DRAWS)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 * standard_error
    assert np.abs((bits[:, 1:] ^ bits[:, :-1]).mean(axis=0) - 0.5).max() < 6 * standard_error
    assert np.abs((bits[1:] ^ bits[:-1]).mean(axis=0) - 0.5).max() < 6 * standard_error


def test_extreme_words_neither_wrap_nor_reach_the_ends():
    source = FixedWords(0, 2**64 - 1, 2**63, 2**63 - 1)
    assert source.bits(63, 4).tolist() == [0, 2**63 - 1, 2**62, 2**62 - 1]
    assert source.bits(62, 4).tolist() == [0, 2**62 - 1, 2**61, 2**61 - 1]
    uniforms = source.uniform(4)
    assert 0 < uniforms.min() and uniforms.max() < 1
    assert uniforms[0] == 1 - uniforms[1]
    assert np.isfinite(source.normal(4)).all()


@pytest.mark.parametrize("n_bits", [0, -1, 64, 65])
def test_numbers_of_bits_that_int64_cannot_hold_are_refused(n_bits, source):
    with pytest.raises(ValueError, match="n_bits must be from 1 to 63"):
        source.bits(n_bits, 3)


def test_streams_of_users_differ_and_do_not_depend_on_order(made, seed):
    source = made(seed)
    forwards = {user: first_words(source.for_user(user)) for user in range(200)}
    backwards = {user: first_words(source.for_user(user)) for user in reversed(range(200))}
    assert forwards == backwards
    batch = first_words(made(seed))
    words = sum(forwards.values(), batch)
    assert len(set(words)) == len(words)


def test_seeds_reproduce_and_differ(seed):
    assert first_words(make_source(seed)) == first_words(make_source(np.int64(seed)))
    assert first_words(make_source(seed)) != first_words(make_source(seed + 1))
    assert first_words(make_source(0)) != first_words(make_source(2**32))
    assert make_source(seed).seeded


def test_cryptographic_source_never_repeats():
    source = make_source()
    assert not source.seeded
    assert source.for_user(3) is source
    draws = [first_words(one) for one in (source, source, source.for_user(0), make_source(None))]
    assert len({word for words in draws for word in words}) == 4 * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to fork with")
def test_cryptographic_source_differs_after_a_fork():
    source = make_source()
    source.bits(62, 1)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(source.bits(62, 1)[0]).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading) as file:
        theirs = int(file.read())
    assert theirs != source.bits(62, 1)[0]


@pytest.mark.parametrize("random_state", [-1, 1.5, "seed", np.random.default_rng(0), [1, 2]])
def test_what_is_no_random_state_is_refused(random_state):
    with pytest.raises(ValueError, match="random_state must be None"):
        make_source(random_state)


def test_unseeded_words_are_those_of_the_operating_system(monkeypatch):
    """Not those of a generator, which a few of its outputs would give away."""
    given = np.random.default_rng(0).bytes(8 * 5)
    monkeypatch.setattr("secrets.token_bytes", lambda count: given[:count])
    words = np.frombuffer(given, dtype=np.uint64)
    assert (make_source(None).bits(63, 5) == FixedWords(*words).bits(63, 5)).all()


def test_a_key_and_names_determine_the_words(seed):
    names = [(), (b"",), (b"", b""), (b"ab",), (b"a", b"b"), (b"b", b"a"), (b"user", bytes(8))]
    words = [first_words(keyed(seed, *name)) for name in names]
    words += [first_words(keyed(seed + 1)), first_words(keyed(seed).for_user(0))]
    assert len({word for some in words for word in some}) == 8 * len(words)
    assert words[3] == first_words(keyed(seed, b"ab"))
    assert not keyed(seed).seeded


def test_a_keyed_stream_does_not_repeat(seed):
    source = keyed(seed)
    words = [first_words(source), first_words(source, 3), first_words(source)]
    assert len({word for some in words for word in some}) == 19


def test_keyed_words_are_those_of_shake_256():
    """Of fixed parts, each with its length in front."""
    key = bytes(range(32))
    message = b"".join(len(part).to_bytes(8, "big") + part for part in (b"key", key, b"what"))
    derived = hashlib.shake_256(message).digest(32)
    assert derive_key(key, b"what") == derived
    parts = (b"words", derived, bytes(8))
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    words = np.frombuffer(hashlib.shake_256(message).digest(24), "<u8")
    assert (keyed_source(key, b"what").bits(63, 3) == FixedWords(*words).bits(63, 3)).all()


# Of the tests that accept: their seeds are made of their names.
UNLIKELY = 1e-4
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


@pytest.mark.parametrize("n_records", [1, 3, 100])
def test_rates_of_one_and_of_nothing(n_records):
    for seed in range(20):
        everyone = poisson_sample(make_source(seed), n_records, 1.0)
        np.testing.assert_array_equal(everyone, np.arange(n_records))
        assert len(poisson_sample(make_source(seed), n_records, 2.0**-60)) == 0
        assert len(poisson_sample(make_source(seed), n_records, 2.0**-70)) == 0
    assert len(poisson_sample(make_source(0), 0, 0.5)) == 0


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


@pytest.mark.parametrize("rate", [0.05, 0.8])
def test_sizes_are_binomial_and_other_rates_are_noticed(rate, seed):
    assert sizes_fit(rate, rate, seed) > UNLIKELY
    assert sizes_fit(0.9 * rate, rate, seed) < 1e-6
    assert sizes_fit(1.1 * rate, rate, seed) < 1e-6


@pytest.mark.parametrize("rate", [0.3])
@pytest.mark.parametrize("n_records", [3, 5])
def test_every_pattern_of_records_has_its_probability(n_records, rate, seed):
    """Independence of records, of the three in a word and of others."""
    source, n_samples = make_source(seed), 3_000
    counts = np.zeros(2**n_records)
    for _ in range(n_samples):
        counts[(1 << poisson_sample(source, n_records, rate)).sum()] += 1
    ones = np.array([bin(pattern).count("1") for pattern in range(2**n_records)])
    probabilities = rate**ones * (1 - rate) ** (n_records - ones)
    assert chisquare(counts, n_samples * probabilities).pvalue > UNLIKELY
