"""Private selection has exactly the probabilities of the formulas, and never fails on data."""

import itertools
import math
import pickle
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from skdpot.privacy import choices as _race
from skdpot.privacy.accounting import least_meant
from skdpot.privacy.choices import (
    BoundedRatioMechanism,
    ExponentialMechanism,
    PermuteAndFlipMechanism,
)
from skdpot.privacy.events import PureDpEvent
from skdpot.privacy.random import make_source
from tests.oracles.given_bits import GivenBits
from tests.quick import first_quick

# Levels of tests: of draws that are the same in every run, and of draws that are not.
RARE, NEVER = 1e-4, 1e-9
MECHANISMS = [ExponentialMechanism, PermuteAndFlipMechanism]
by_mechanism = pytest.mark.parametrize("make", MECHANISMS)
LAWS = {"exponential": _race.EXPONENTIAL, "gumbel": _race.GUMBEL}
UTILITIES = [0.0, 1.0, 1.5, -2.0, 0.3]


def permuted_and_flipped(accepted):
    """Return the law of permute-and-flip by going through all orders."""
    chances = np.zeros(len(accepted))
    orders = list(itertools.permutations(range(len(accepted))))
    for order in orders:
        left = 1.0
        for index in order:
            chances[index] += left * accepted[index] / len(orders)
            left *= 1.0 - accepted[index]
    return chances


def exact_chances(make, utilities, factor):
    """Return probabilities by an independent computation."""
    accepted = np.exp(factor * (np.array(utilities) - np.max(utilities)))
    if make is ExponentialMechanism:
        return accepted / accepted.sum()
    return permuted_and_flipped(accepted)


# ------------------------------------------------------------------------------- probabilities


@by_mechanism
@pytest.mark.parametrize("monotonic", [True, False])
@pytest.mark.parametrize("epsilon", [0.01, 5.0])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_probabilities_are_those_of_the_formula(make, monotonic, epsilon, n, rng):
    utilities = rng.normal(size=n) * 3
    mechanism = make(epsilon, 0.7, monotonic=monotonic)
    factor = epsilon / 0.7 / (1 if monotonic else 2)
    chances = mechanism.probabilities(utilities)
    np.testing.assert_allclose(chances, exact_chances(make, utilities, factor), rtol=1e-12)


@by_mechanism
@pytest.mark.parametrize("monotonic", [True, False])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_losses_of_neighbours_reach_epsilon_and_never_exceed_it(make, monotonic, epsilon, rng):
    sensitivity = 0.4
    mechanism = make(epsilon, sensitivity, monotonic=monotonic)
    largest = 0.0
    for _ in range(100):
        n = rng.integers(2, 40)
        unit = sensitivity / epsilon
        utilities = rng.normal(size=n) * unit * rng.choice([0.0, 0.1, 3.0, 100.0])
        moves = rng.choice([0.0, 1.0], n) if monotonic else rng.choice([-1.0, 1.0], n)
        if rng.random() < 0.5:
            # One candidate gains on all others, which is the worst case.
            moves = np.where(np.arange(n) == 0, 1.0, 0.0 if monotonic else -1.0)
            utilities[0] -= 30 * unit
        if rng.random() < 0.3:
            moves *= rng.random(n)
        both = [mechanism.probabilities(u) for u in (utilities, utilities + sensitivity * moves)]
        largest = max(largest, np.abs(np.log(both[0]) - np.log(both[1])).max())
    assert 0.95 * epsilon < largest <= epsilon * (1 + 1e-9)


# ------------------------------------------------------------------------------- draws


@by_mechanism
@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("utilities", [UTILITIES, [0.0] * 6, [1e17, 1e17 + 16]])
def test_frequencies_are_the_probabilities_of_this_epsilon_and_no_other(
    make, seeded, utilities, seed
):
    n = 40_000
    source = make_source(seed if seeded else None)
    counts = np.bincount(make(1.0, 1.0).select(utilities, source, n), minlength=len(utilities))

    def p_value(epsilon):
        expected = make(epsilon, 1.0).probabilities(utilities) * n
        return chisquare(counts, expected * n / expected.sum()).pvalue

    assert p_value(1.0) > (RARE if seeded else NEVER)
    if utilities is UTILITIES:
        for factor in (0.8, 1.2):
            assert p_value(factor) < NEVER


@pytest.mark.experiment
@by_mechanism
@pytest.mark.parametrize("utilities", [UTILITIES, [0.0] * 40, [1e9, 1e9 - 3, -1e300, 0.0]])
def test_decisions_do_not_depend_on_whether_doubles_were_trusted(
    make, utilities, seed, monkeypatch
):
    mechanism = make(1.0, 1.0)
    trusting = mechanism.select(utilities, seed, 300)
    decided = []
    decide = _race._decide
    monkeypatch.setattr(_race, "MARGIN_BITS", -3)
    monkeypatch.setattr(_race, "_decide", lambda *given: decided.append(given) or decide(*given))
    assert (mechanism.select(utilities, seed, 300) == trusting).all()
    assert len(decided) > 250


class GivenFirst(GivenBits):
    """First words for everybody, and then others, all of them chosen by a test."""

    def __init__(self, first, *following):
        super().__init__(*following)
        self.first = first

    def bits(self, n_bits, size):
        if size == ():
            return super().bits(n_bits, size)
        return np.broadcast_to(np.asarray(self.first, dtype=np.int64), size)


# Largest sums: of the smallest q for Gumbel noise, of the largest for exponential noise.
@by_mechanism
@pytest.mark.parametrize("first", [0, 12345, (1 << 62) - 1])
def test_equal_bits_are_decided_by_the_next_ones(make, first):
    smallest_wins = make is ExponentialMechanism
    source = GivenFirst(first, 7 << 50, 5 << 50, 6 << 50)
    assert make(1.0, 1.0).select([4.0, 4.0, 4.0], source) == (1 if smallest_wins else 0)
    # As long as all are equal, they draw again.
    winner = make(1.0, 1.0).select([4.0, 4.0, 4.0], GivenFirst(first, 9, 9, 9, 3 << 9, 5 << 9, 2))
    assert winner == (2 if smallest_wins else 1)


@by_mechanism
def test_the_most_extreme_bits_leave_the_largest_noise_open(make):
    """The cell at the end reaches to infinity, whatever its middle is."""
    last, step = (0, 1) if make is ExponentialMechanism else ((1 << 62) - 1, -1)
    ordinary = 1 << 61
    for deeper, expected in ((last + 5 * step, 0), (ordinary, 1)):
        source = GivenFirst([last, ordinary], deeper, ordinary)
        assert make(2.0, 1.0).select([0.0, 44.5], source) == expected
        assert source.left == []


def test_a_difference_below_the_precision_of_doubles_decides():
    """Equal noise: the larger utility wins, however little larger it is."""
    for make in MECHANISMS:
        for first in (1, 1 << 61, (1 << 62) - 2):
            source = GivenFirst(first, *[1 << 61] * 20)
            above = math.nextafter(1.0, 2.0)
            assert make(2.0**-60, 1.0).select([1.0, above, 1.0], source) == 1


@pytest.mark.parametrize("law", LAWS)
def test_doubles_are_right_within_a_margin_many_times_their_error(law, rng):
    words = np.concatenate(
        [rng.integers(0, 1 << 62, 200), (2.0 ** rng.uniform(0, 62, 200)).astype(np.int64)]
    )
    words = np.concatenate([words, (1 << 62) - 1 - words])
    words = words[(words >= 0) & (words < 1 << 62)]
    noise = LAWS[law].value(_race._exponentials(words))
    with mpmath.workprec(300):
        for word, value in zip(words.tolist(), noise.tolist(), strict=True):
            exact = -mpmath.log(1 - (mpmath.mpf(word) + 0.5) / 2**62)
            exact = exact if law == "exponential" else -mpmath.log(exact)
            assert abs(exact - value) <= 2.0 ** -(_race.MARGIN_BITS + 3) * (1 + abs(value))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n_bits", first_quick([124, 62, 310]))
def test_enclosures_hold_the_whole_cell_and_little_more(law, n_bits, rng):
    cells = [int(rng.integers(1 << 62)) << (n_bits - 62) | int(rng.integers(7)) for _ in range(9)]
    cells += [0, 1, 2, 1000, (1 << n_bits) - 1, (1 << n_bits) - 2, (1 << n_bits) - 1001]
    scores = [Fraction(0), Fraction(-10, 3), Fraction(-(2**20))]
    for cell, score in itertools.product(cells, scores):
        with mpmath.workprec(5 * n_bits + 100):
            low, high = enclosure(cell, n_bits, score, LAWS[law])
            inside = mpmath.mpf(cell) / 2**n_bits, mpmath.mpf(cell + 1) / 2**n_bits
            ends = [mpmath.inf if q == 1 else -mpmath.log(1 - q) for q in inside]
            if law == "gumbel":
                ends = [mpmath.inf if x == 0 else -mpmath.log(x) for x in ends[::-1]]
            exact = mpmath.mpf(score.numerator) / score.denominator
            assert low <= exact + ends[0] and exact + ends[1] <= high
            if all(mpmath.isfinite(end) for end in ends):
                excess = (high - low) - (ends[1] - ends[0])
                assert excess <= mpmath.mpf(2) ** -n_bits * (1 + abs(exact)) * 2.0**-20


def enclosure(cell, n_bits, score, law):
    """Return the bounds of a noisy score as numbers of mpmath."""
    bounds = _race._enclose(cell, n_bits, score, law)
    return [mpmath.mpf(str(bound).replace("Infinity", "inf")) for bound in bounds]


def test_a_cell_leaves_no_more_open_than_doubles_allow_for(rng):
    words = np.concatenate([rng.integers(0, 1 << 62, 60), np.arange(1, 60)])
    words = np.concatenate([words, (1 << 62) - 1 - words])
    with mpmath.workprec(300):
        for law in LAWS.values():
            for word, allowed in zip(words.tolist(), _race._open(words), strict=True):
                value = -mpmath.log(1 - (mpmath.mpf(word) + 0.5) / 2**62)
                value = value if law is _race.EXPONENTIAL else -mpmath.log(value)
                for bound in enclosure(word, 62, Fraction(0), law):
                    assert abs(bound - value) <= allowed * (1 + 1e-6)


# ------------------------------------------------------------------------------- hostile values


HOSTILE = [
    [math.nan, 0.0],
    [math.nan, math.nan],
    [math.inf, -math.inf, math.nan],
    [1e308, -1e308],
    [10**400, -(10**400), 0],
    [None, 1.0],
    [5e-324, 0.0],
    [True, False],
]


@by_mechanism
@pytest.mark.parametrize("epsilon", [1e-200, 1e200])
@pytest.mark.parametrize("utilities", HOSTILE, ids=repr)
def test_no_number_raises_or_warns(make, epsilon, utilities, seed):
    mechanism = make(epsilon, 1.0)
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        drawn = mechanism.select(utilities, seed, 50)
        chances = mechanism.probabilities(utilities)
    assert set(drawn) <= set(range(len(utilities)))
    assert chances.sum() == pytest.approx(1.0)


@by_mechanism
def test_what_is_no_number_is_the_worst(make, seed):
    mechanism = make(1.0, 1.0)
    assert set(mechanism.select([math.nan, -1e300, 0.0], seed, 200)) == {2}
    assert set(mechanism.select([math.nan, -1e300], seed, 200)) == {1}
    assert set(mechanism.select([math.inf, 0.0, 1e300], seed, 200)) == {0}
    assert set(mechanism.select([math.nan] * 3, seed, 200)) == {0, 1, 2}
    assert set(mechanism.select([-math.inf, -1e300], seed, 200)) == {1}


@by_mechanism
@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    st.floats(1e-100, 1e100),
    st.booleans(),
)
def test_scores_in_doubles_are_near_the_exact_ones(make, utilities, epsilon, monotonic):
    mechanism = make(epsilon, 0.3, monotonic=monotonic)
    values = np.array(utilities)
    for index, score in enumerate(mechanism._scores(values)):
        gap = Fraction(max(utilities)) - Fraction(utilities[index])
        exact = least_meant(epsilon) / Fraction(0.3) / (1 if monotonic else 2) * gap
        exact = -min(exact, Fraction(2**20))
        assert mechanism._exact_score(values, index) == exact
        assert abs(Fraction(float(score)) - exact) <= abs(exact) / 2**50 + Fraction(1, 2**1000)


# ------------------------------------------------------------------------------- interface


@by_mechanism
def test_seeds_reproduce_and_nothing_else_does(make, seed):
    mechanism = make(0.1, 1.0)
    first = mechanism.select(UTILITIES, seed, 100)
    assert (first == mechanism.select(UTILITIES, seed, 100)).all()
    assert (first == pickle.loads(pickle.dumps(mechanism)).select(UTILITIES, seed, 100)).all()
    assert (first != mechanism.select(UTILITIES, seed + 1, 100)).any()
    assert (mechanism.select(UTILITIES, size=100) != mechanism.select(UTILITIES, size=100)).any()
    source = make_source(seed)
    draws = [mechanism.select(UTILITIES, source, 100) for _ in range(2)]
    assert (draws[0] == first).all() and (draws[1] != first).any()


@by_mechanism
def test_shapes(make, seed):
    mechanism = make(1.0, 1.0)
    assert mechanism.select([3.0], seed) == 0
    assert mechanism.select(UTILITIES, seed, 0).shape == (0,)
    assert mechanism.select(UTILITIES, seed, 4).dtype == np.intp
    for bad in ([], 1.0, [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="utilities must have shape"):
            mechanism.select(bad)
        with pytest.raises(ValueError, match="utilities must have shape"):
            mechanism.probabilities(bad)
    with pytest.raises(ValueError, match="random_state must be None"):
        mechanism.select(UTILITIES, "seed")
    for size in (-1, 1.5, "3"):
        with pytest.raises(ValueError, match="size must be None or a non-negative integer"):
            mechanism.select(UTILITIES, seed, size)


@by_mechanism
@pytest.mark.parametrize("bad", [0, -1.0, math.nan, "1", None, True, 10**400])
def test_parameters_out_of_range_are_refused(make, bad):
    with pytest.raises(ValueError, match="epsilon must be a finite number above 0"):
        make(bad, 1.0)
    with pytest.raises(ValueError, match="sensitivity must be a finite number above 0"):
        make(1.0, bad)


def test_events_are_pure():
    assert ExponentialMechanism(0.7, 3.0).event == PureDpEvent(0.7)
    assert PermuteAndFlipMechanism(0.7, 3.0, monotonic=True).event == PureDpEvent(0.7)
    assert BoundedRatioMechanism([0.25, 0.25], 1.5).event == PureDpEvent(1.5)
