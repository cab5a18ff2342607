"""The sources of noise: uniform in every bit, of the right scale, and each stream its own."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, norm

from skdpot.privacy.random import (
    CryptographicSource,
    NoiseSource,
    derive_key,
    keyed_source,
    make_source,
)

PROJECT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("n_bits", [1, 2, 8, 53, 62, 63])
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


def test_shapes(source):
    assert source.bits(62, 5).shape == (5,)
    assert source.uniform((2, 3)).shape == (2, 3)
    assert source.normal((2, 0)).shape == (2, 0)


def test_streams_of_users_differ_and_do_not_depend_on_order(made, seed):
    source = made(seed)
    forwards = {user: first_words(source.for_user(user)) for user in range(200)}
    backwards = {user: first_words(source.for_user(user)) for user in reversed(range(200))}
    assert forwards == backwards
    batch = first_words(made(seed))
    words = sum(forwards.values(), batch)
    assert len(set(words)) == len(words)


def test_drawing_from_one_stream_moves_no_other(made, seed):
    source = made(seed)
    expected = first_words(made(seed).for_user(3))
    source.bits(63, 1000)
    source.for_user(2).bits(63, 1000)
    assert first_words(source.for_user(3)) == expected


def test_neighbouring_streams_are_not_correlated(made, seed):
    source = made(seed)
    draws = np.stack([source.for_user(user).normal(2000) for user in range(20)])
    correlations = np.corrcoef(draws)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 6 / np.sqrt(2000)
    # First draws of all users are what a batch consists of.
    firsts = [source.for_user(user).uniform(1)[0] for user in range(5000)]
    assert kstest(firsts, "uniform").pvalue > RARE


def test_seeds_reproduce_and_differ(seed):
    assert first_words(make_source(seed)) == first_words(make_source(np.int64(seed)))
    assert first_words(make_source(seed)) != first_words(make_source(seed + 1))
    assert first_words(make_source(0)) != first_words(make_source(2**32))
    assert make_source(seed).seeded


def test_random_states_advance(seed):
    state = np.random.RandomState(seed)
    first, second = first_words(make_source(state)), first_words(make_source(state))
    assert first != second
    assert first == first_words(make_source(np.random.RandomState(seed)))
    assert make_source(state).seeded
    assert make_source(np.random).seeded


def test_cryptographic_source_never_repeats():
    source = make_source()
    assert not source.seeded
    assert isinstance(source.for_user(3), CryptographicSource)
    draws = [first_words(one) for one in (source, source, source.for_user(0), make_source(None))]
    assert len({word for words in draws for word in words}) == 4 * 8


def test_cryptographic_source_does_not_depend_on_numpy_seeds(seed):
    draws = []
    for _ in range(2):
        np.random.seed(seed)
        draws.append(first_words(make_source()))
    assert draws[0] != draws[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to fork with")
def test_cryptographic_source_differs_after_a_fork():
    script = """
import os
from skdpot.privacy.random import make_source
source = make_source()
source.bits(62, 1)
child = os.fork()
if child:
    os.waitpid(child, 0)
print(source.bits(62, 1)[0], flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert len(set(words)) == len(words) == 2


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


def test_a_keyed_stream_does_not_repeat_and_can_be_skipped(seed):
    source = keyed(seed)
    words = [first_words(source), first_words(source, 3), first_words(source)]
    assert source.n_words == 19
    assert len({word for some in words for word in some}) == 19
    late = keyed(seed)
    late.skip(11)
    assert first_words(late) == words[2]


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


def test_short_keys_are_refused():
    with pytest.raises(ValueError, match="at least 32 random bytes, got 31"):
        keyed_source(bytes(31), b"what")
