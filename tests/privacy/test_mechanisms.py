"""Sampling from integers: no ratio above exp(epsilon), no output that may not be, the right law."""

import decimal
import math
import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skdpot.privacy.choices import (
    TOTAL_WEIGHT,
    WEIGHT_BITS,
    BoundedRatioMechanism,
    exceeds_exp,
    scaled_exp,
)
from skdpot.privacy.noise import make_source
from tests.oracles.exponential import exp_bounds

EPSILONS = [1e-6, 0.5, math.log(3), 4.0, 40.0, 43.0, 700.0]


def feasible_base(shares, epsilon, position):
    """Return shares of sum 1 scaled to a sum between exp(-epsilon) (position 0) and 1."""
    shares = np.asarray(shares, dtype=np.float64)
    return shares / math.fsum(shares) * math.exp(-epsilon * (1.0 - position))


def assert_bounds(mechanism, base, epsilon):
    """Check everything that the proof asks of the bounds, with Python's integers."""
    high = exp_bounds(epsilon)[1]
    smallest, largest = mechanism.smallest_.tolist(), mechanism.largest_.tolist()
    assert [weight == 0 for weight in smallest] == [share == 0 for share in base]
    assert sum(smallest) <= TOTAL_WEIGHT <= sum(largest)
    for least, most in zip(smallest, largest, strict=True):
        assert 0 <= least <= most <= TOTAL_WEIGHT
        assert most << 2048 <= least * high


def assert_private(mechanism, weights):
    """Check that rows are distributions between the bounds, and the ratio of any two of them."""
    assert weights.dtype == np.int64
    assert (weights >= mechanism.smallest_).all() and (weights <= mechanism.largest_).all()
    assert {sum(row) for row in weights.tolist()} == {TOTAL_WEIGHT}
    for column in weights.T.tolist():
        assert not exceeds_exp(max(column), min(column), mechanism.epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_scaled_exp_is_just_below_by_an_independent_computation(epsilon):
    low, high = exp_bounds(epsilon)
    spare = 2048 - 128
    assert scaled_exp(epsilon) << spare < low
    assert (scaled_exp(epsilon) + 3) << spare > high
    assert high - low < 1 << (spare - 1)


@pytest.mark.parametrize("tenths", range(1, 40))
def test_a_ratio_is_at_most_that_of_the_decimal_which_is_charged(tenths):
    context = decimal.Context(prec=60)
    charged = context.exp(decimal.Decimal(repr(tenths / 10)))
    assert scaled_exp(tenths / 10) <= context.multiply(charged, decimal.Decimal(1 << 128))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_ratio_is_compared_with_exp_exactly(epsilon):
    low, high = exp_bounds(epsilon)
    denominator = 1 << 2048
    assert exceeds_exp(high, denominator, epsilon)
    assert not exceeds_exp(low - (low >> 120), denominator, epsilon)
    assert exceeds_exp(1, 0, epsilon)
    assert not exceeds_exp(0, 1, epsilon)


@pytest.mark.parametrize("n_outputs", [1, 3, 300])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("position", [0.0, 1.0])
def test_bounds_at_extremes(n_outputs, epsilon, position, rng):
    bases = [np.ones(n_outputs), rng.dirichlet(np.full(n_outputs, 0.1)) + 1e-300]
    if n_outputs > 2:
        bases.append(np.where(np.arange(n_outputs) % 3 == 0, 1.0, 0.0))
        bases.append(np.where(np.arange(n_outputs) % 3 == 0, 1.0, 1e-300))
    for shares in bases:
        base = feasible_base(shares, epsilon, position)
        mechanism = BoundedRatioMechanism(base, epsilon)
        assert mechanism.epsilon == epsilon
        assert_bounds(mechanism, base, epsilon)
        diracs = np.zeros((4, n_outputs))
        diracs[np.arange(4), [0, -1, n_outputs // 2, n_outputs // 3]] = 1.0
        inputs = np.vstack([diracs, base, np.full(n_outputs, 1.0 / n_outputs)])
        assert_private(mechanism, mechanism.integer_weights(inputs))


def test_bounds_do_not_depend_on_what_was_released(rng):
    base = feasible_base(rng.dirichlet(np.ones(7)), 1.0, 0.5)
    mechanism = BoundedRatioMechanism(base, 1.0)
    before = pickle.dumps(mechanism)
    mechanism.draw(mechanism.integer_weights(rng.dirichlet(np.ones(7), size=5)), np.zeros((5, 1)))
    assert pickle.dumps(mechanism) == before


@pytest.mark.parametrize("epsilon", [0.5, 30.0, 36.0, 40.0, 42.0])
def test_quantisation_is_negligible_even_where_the_base_measure_is_tiny(epsilon):
    n_outputs = 5
    base = np.full(n_outputs, 1.0 / (math.exp(epsilon) + n_outputs - 1))
    inputs = np.where(np.eye(n_outputs) > 0, math.exp(epsilon) * base, base)
    weights = BoundedRatioMechanism(base, epsilon).integer_weights(inputs)
    np.testing.assert_allclose(weights / TOTAL_WEIGHT, inputs, rtol=1e-12, atol=2.0**-52)


hostile_numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e308, math.inf, -math.inf]),
    st.just(math.nan),
    st.floats(min_value=0.0, max_value=1.0),
)


@st.composite
def bases(draw):
    """Draw epsilon and a feasible base measure, with zeros and with next to nothing in places."""
    epsilon = draw(st.sampled_from(EPSILONS))
    share = st.one_of(
        st.sampled_from([0.0, 1e-300, 1e-20, 1.0]), st.floats(min_value=1e-9, max_value=1.0)
    )
    shares = draw(st.lists(share, min_size=1, max_size=12).filter(any))
    return epsilon, feasible_base(shares, epsilon, draw(st.sampled_from([0.0, 0.01, 0.5, 1.0])))


@st.composite
def bases_and_inputs(draw):
    """Draw a base measure and rows that a projection might return, or never should."""
    epsilon, base = draw(bases())
    m = len(base)
    weights = st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=m, max_size=m)
    rows = [list(row) for row in np.eye(m)]
    for row in draw(st.lists(weights.filter(any), min_size=1, max_size=3)):
        error = draw(st.sampled_from([0.0, 1e-13, -1e-13, 1e-16, 1e-6]))
        rows.append(list(np.array(row) / math.fsum(row) * (1.0 + error)))
    rows += draw(st.lists(st.lists(hostile_numbers, min_size=m, max_size=m), max_size=3))
    return epsilon, base, np.array(rows)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(bases_and_inputs())
@example((1.0, np.full(8, 0.1), np.full((1, 8), 1.0)))
@example((40.0, feasible_base([1.0] * 9, 40.0, 0.01), np.full((2, 9), np.nan)))
@example((700.0, feasible_base([1.0, 0.0, 1e-300], 700.0, 0.0), np.eye(3)))
def test_integer_weights_never_exceed_exp_epsilon_whatever_is_asked_for(case):
    epsilon, base, inputs = case
    mechanism = BoundedRatioMechanism(base, epsilon)
    assert_bounds(mechanism, base, epsilon)
    weights = mechanism.integer_weights(inputs)
    assert_private(mechanism, weights)
    assert not weights[:, base == 0].any()


@settings(derandomize=True, deadline=None, max_examples=40)
@given(bases(), st.data())
def test_every_integer_selects_an_output_that_may_be(case, data):
    epsilon, base = case
    mechanism = BoundedRatioMechanism(base, epsilon)
    shares = np.array(
        data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(base), max_size=len(base)).filter(any))
    )
    weights = mechanism.integer_weights(shares[None] / math.fsum(shares))
    ends = np.cumsum(weights[0])
    edges = np.concatenate([[0, TOTAL_WEIGHT - 1], ends - 1, ends])
    edges = edges[(edges >= 0) & (edges < TOTAL_WEIGHT)]
    for index, edge in zip(mechanism.draw(weights, edges[None])[0], edges, strict=True):
        assert base[index] > 0
        assert sum(weights[0, :index].tolist()) <= edge < sum(weights[0, : index + 1].tolist())


def test_neighbouring_inputs_come_within_rounding_of_exp_epsilon():
    for epsilon in (1e-3, 0.5, 1.0, 4.0):
        base = feasible_base(np.ones(6), epsilon, 0.3)
        mechanism = BoundedRatioMechanism(base, epsilon)
        column = mechanism.integer_weights(np.eye(6))[:, -1].tolist()
        assert math.log(max(column) / min(column)) == pytest.approx(epsilon, rel=1e-12)
        assert exceeds_exp(max(column) + 1, min(column), epsilon)


def test_bounds_loosened_by_one_percent_are_noticed():
    mechanism = BoundedRatioMechanism(feasible_base(np.ones(6), 1.0, 0.5), 1.0)
    mechanism.largest_ = mechanism.largest_ // 100 * 101
    with pytest.raises(AssertionError):
        assert_private(mechanism, mechanism.integer_weights(np.eye(6)))


@pytest.mark.parametrize("seeded", [True, False])
def test_outputs_without_base_measure_do_not_appear_in_a_million_draws(seeded, seed):
    # The sum that cumulative sums in floating point reach before a last output that may not be.
    base = feasible_base([0.0, 3.0, 0.0, 2.0, 5.0, 0.0], 1.0, 0.5)
    forbidden = np.flatnonzero(base == 0)
    probabilities = np.array([0.0, 0.3, 0.0, 0.2, 0.5, 0.0]) * (1.0 - 1e-13)
    mechanism = BoundedRatioMechanism(base, 1.0)
    weights = mechanism.integer_weights(probabilities[None])
    source = make_source(seed if seeded else None)
    integers = source.bits(WEIGHT_BITS, (1, 10**6))
    counts = np.bincount(mechanism.draw(weights, integers)[0], minlength=len(base))
    assert counts.sum() == 10**6
    assert not counts[forbidden].any()


def test_users_get_their_own_draws():
    weights = np.array([[TOTAL_WEIGHT // 2] * 2, [TOTAL_WEIGHT, 0], [0, TOTAL_WEIGHT]])
    integers = np.array([[0, TOTAL_WEIGHT // 2], [0, TOTAL_WEIGHT - 1], [0, TOTAL_WEIGHT - 1]])
    drawn = BoundedRatioMechanism.draw(weights, integers)
    assert drawn.tolist() == [[0, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize(
    "base, epsilon, message",
    [
        ([1.0, 1.0], 1.0, "infeasible base_measure"),
        ([0.75, 0.75], 1.0, "infeasible base_measure"),
        ([0.1, 0.1], 1.0, "infeasible base_measure"),
        ([0.0, 0.0], 1.0, "infeasible base_measure"),
        ([-0.5, 1.0], 1.0, "finite and non-negative"),
        ([np.nan, 1.0], 1.0, "finite and non-negative"),
        ([np.inf, 1.0], 1.0, "finite and non-negative"),
        ([1 / 3, 1 / 3, 1 / 3], 1e-20, "epsilon is too small"),
    ],
)
def test_base_measures_that_allow_nothing_are_refused(base, epsilon, message):
    with pytest.raises(ValueError, match=message):
        BoundedRatioMechanism(base, epsilon)
