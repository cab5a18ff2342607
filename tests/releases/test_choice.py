"""Selections among a random number of candidates: their number, their noise and their price."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import chisquare, laplace

from skdpot.privacy import LaplaceMechanism, PureDpEvent
from skdpot.privacy.choices import SCORE_UNITS, in_units, random_blocks
from skdpot.privacy.noise import make_source
from skdpot.releases import ChoiceRelease
from tests.oracles.given_bits import GivenBits
from tests.oracles.sensitivities import declared

pytestmark = pytest.mark.experiment

# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4


def probabilities(law, n):
    """Return the probabilities of 1 to n, of a geometric distribution."""
    stop = float(law.stop)
    return stop * (1 - stop) ** np.arange(n)


# How many
# --------


def count_of(mean):
    """Return a selection that tries so many candidates on average."""
    return ChoiceRelease(mean, 1.0, declared(1))


@pytest.mark.parametrize("mean", [3, 10])
def test_a_run_is_the_last_with_exactly_its_probability(mean):
    """The words that decide are those below and above the first digit; the equal one asks on."""
    digit, rest = divmod(Fraction(1, mean) * 2**62, 1)
    second = rest * 2**62 // 1
    for words in ([digit - 1], [digit, second - 1]):
        source = GivenBits(*words)
        assert count_of(mean).draw_count(source) == 1
        assert set(source.asked) == {(62, ())}
    # Another word is asked for, whether there is to be a second candidate.
    for words in ([digit + 1], [digit, second + 1]):
        with pytest.raises(IndexError):
            count_of(mean).draw_count(GivenBits(*words))


def test_the_number_of_candidates_follows_its_law(seed):
    law = count_of(4)
    source = make_source(seed % 2**32)
    drawn = np.array([law.draw_count(source) for _ in range(3000)])
    counts = np.bincount(np.minimum(drawn, 12), minlength=13)[1:]

    def p_value(law):
        expected = probabilities(law, 11)
        return chisquare(counts, 3000 * np.append(expected, 1 - expected.sum())).pvalue

    assert p_value(law) > RARE
    for wrong in (count_of(3), count_of(5)):
        assert p_value(wrong) < RARE


# What a pure run costs
# ---------------------


def selected(law, run):
    """Return the distribution of the best of K runs, whose outputs are listed from worst to best.

    K is summed over, and not the generating function used that the proof has.
    """
    p = probabilities(law, math.ceil(30 / law.stop))
    k = np.arange(1, len(p) + 1)
    below = np.append(0.0, np.cumsum(run))
    return np.diff([p @ edge**k for edge in below])


def worst_run(epsilon, n_atoms=300):
    """Return two neighbours' distributions of a run, for which the price of a selection is due."""
    high, low = math.exp(epsilon) / (1 + math.exp(epsilon)), 1 / (1 + math.exp(epsilon))
    return np.repeat([high, low], n_atoms) / n_atoms, np.repeat([low, high], n_atoms) / n_atoms


@pytest.mark.parametrize("mean, epsilon", [(1, 1.0), (3, 0.3), (10, 1.0), (30, 3.0)])
def test_the_price_is_exact(mean, epsilon):
    law = count_of(mean)
    one, other = (selected(law, run) for run in worst_run(epsilon))
    loss = np.abs(np.log(one / other)).max()
    price = law.price(epsilon)
    assert 0.99 * price < loss <= price
    assert price < 3 * epsilon * (1 + 1e-9)


def noisy_run(selection, scores):
    """Return the distribution of a run's (score, candidate), from the worst to the best.

    Scores are integers, candidates are equally likely and the noise is on integers.
    """
    at = np.arange(-150, 160)
    scale = selection.mechanism.grid_scale
    law = laplace(scale=scale)
    noise = [law.cdf(at - score + 0.5) - law.cdf(at - score - 0.5) for score in scores]
    return np.column_stack(noise).ravel() / len(scores)


# The last pair is nearly the worst: a rare candidate is the best only if it is far from its score.
WORST = ([4] * 9 + [44], [0] * 9 + [40])
NEIGHBOURS = [([4, 0], [0, 4]), ([4, 4, 0], [4, 0, 4]), ([4], [0]), ([4, 3, 1], [0, 0, 3]), WORST]


@pytest.mark.parametrize("scores", NEIGHBOURS)
def test_a_whole_selection_keeps_to_epsilon(scores):
    """Candidates that tie are in a fixed order here, and in the order of their draws there."""
    selection = ChoiceRelease(8, 1.0, declared(4))
    one, other = (selected(selection, noisy_run(selection, of)) for of in scores)
    seen = (one > 1e-12) & (other > 1e-12)
    loss = np.abs(np.log(one[seen] / other[seen])).max()
    assert loss <= 1.0 + 1e-6
    assert scores is not WORST or loss > 0.85


def test_the_noise_of_a_single_run_is_too_little():
    """What the exact distribution above would show of a selection that paid for one run only."""
    selection = ChoiceRelease(30, 1.0, declared(4))
    selection.mechanism = ChoiceRelease(1, 1.0, declared(4)).mechanism
    one, other = (selected(selection, noisy_run(selection, of)) for of in ([4], [0]))
    seen = (one > 1e-9) & (other > 1e-9)
    assert np.abs(np.log(one[seen] / other[seen])).max() > 1.5


def test_half_of_the_noise_is_too_little():
    selection = ChoiceRelease(8, 1.0, declared(4))
    selection.mechanism = LaplaceMechanism(
        2 * selection.mechanism.epsilon, 4, granularity=1.0, on_grid=True
    )
    one, other = (selected(selection, noisy_run(selection, of)) for of in WORST)
    seen = (one > 1e-12) & (other > 1e-12)
    assert np.abs(np.log(one[seen] / other[seen])).max() > 1.5


def test_a_number_of_candidates_that_is_known_costs_more():
    selection = ChoiceRelease(8, 1.0, declared(4))
    runs = [noisy_run(selection, of) for of in ([4, 4, 0], [0, 0, 0])]
    count = 40
    one, other = (np.diff(np.append(0.0, np.cumsum(run)) ** count) for run in runs)
    seen = (one > 1e-9) & (other > 1e-9)
    assert np.abs(np.log(one[seen] / other[seen])).max() > 1.5


@pytest.mark.parametrize("mean", [1, 10])
def test_prices_are_rounded_up(mean):
    law = count_of(mean)
    with mpmath.workdps(60):
        stop = mpmath.mpf(float(law.stop))
        for epsilon in (1e-4, 0.3, 0.999, 1.0, 5.0, 400.0, 1e4):
            power = mpmath.exp(epsilon)
            ratio = mpmath.log((power + stop) / (1 + stop * power))
            assert law.price(epsilon) > epsilon + 2 * ratio


# Noise and the choice
# --------------------


@pytest.mark.parametrize("n_iter", [1, 2, 10])
@pytest.mark.parametrize("epsilon", [1e-4, 0.5, 20.0, 1e4])
def test_the_budget_is_used_and_not_exceeded(n_iter, epsilon):
    selection = ChoiceRelease(n_iter, epsilon, declared(SCORE_UNITS))
    run_epsilon = 1 / selection.mechanism.noise_multiplier
    assert epsilon * (1 - 1e-8) < selection.price(run_epsilon) <= epsilon
    assert selection.event == PureDpEvent(epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 1e-5, -1.0, math.nan])
def test_budgets_for_noise_alone_are_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be at least"):
        ChoiceRelease(10, epsilon, declared(1))


# Blocks
# ------


def test_records_are_dealt_whatever_they_are():
    blocks = random_blocks(make_source(3), 103, 10)
    assert sorted(np.concatenate(blocks)) == list(range(103))
    assert {len(block) for block in blocks} == {10, 11}


@pytest.mark.parametrize(
    "score", [None, math.nan, -math.inf, "text", [1, 2], {}, object(), -1e308, 0.0]
)
def test_what_is_no_score_counts_as_the_lowest(score):
    assert in_units(score, 0.0, 1e308) == 0


@pytest.mark.parametrize("score", [math.inf, 1e308, 10**400, 1.0])
def test_scores_are_moved_to_the_range(score):
    expected = 0 if score == 10**400 else SCORE_UNITS  # it is no double
    assert in_units(score, 0.0, 1.0) == expected
