"""Sensitivities of clipped gradients and clipped sums: bounds that hold and are attained."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.privacy.sensitivity import clipped_gradient_sensitivity, clipped_sum_sensitivity

RELATIONS = ["add_remove", "replace_one"]
numbers = st.floats(1e-100, 1e100)


def is_root_rounded_up(found, square):
    """Tell whether a double is the root of a rational, or above it by two roundings at most."""
    lower = Fraction(math.nextafter(math.nextafter(found, 0.0), 0.0))
    return lower**2 < square <= Fraction(found) ** 2


@settings(deadline=None)
@given(numbers, st.integers(1, 300), st.one_of(st.just(0.0), numbers))
def test_gradients_have_the_diameter_of_where_they_can_lie(clip_norm, n_parts, loss_range):
    found = clipped_gradient_sensitivity(clip_norm, n_parts=n_parts, loss_range=loss_range)
    square = n_parts * (2 * Fraction(clip_norm)) ** 2 + Fraction(loss_range) ** 2
    assert Fraction(found) ** 2 >= square * (1 - Fraction(1, 2**50))
    assert Fraction(found) ** 2 <= square * (1 + Fraction(1, 2**50))


@settings(deadline=None)
@given(numbers, st.one_of(st.just(0.0), numbers), st.one_of(st.just(0.0), numbers))
def test_sums_move_by_one_term_or_by_two(clip_norm, count_weight, loss_weight):
    options = {"count_weight": count_weight, "loss_weight": loss_weight}
    square = sum(Fraction(x) ** 2 for x in (clip_norm, count_weight, loss_weight))
    found = clipped_sum_sensitivity(clip_norm, **options)
    assert abs(Fraction(found) ** 2 / square - 1) <= Fraction(1, 2**50)
    replaced = clipped_sum_sensitivity(clip_norm, relation="replace_one", **options)
    assert replaced == 2 * found


@pytest.mark.parametrize("clip_norm", [0.1, 0.7, 1 / 3, 2.0**-30, 1.1, 7.7, 1e5 / 3])
@pytest.mark.parametrize("n_parts", [2, 3, 7, 11, 50])
def test_rounding_is_upwards(clip_norm, n_parts):
    found = clipped_gradient_sensitivity(clip_norm, n_parts=n_parts)
    assert is_root_rounded_up(found, n_parts * (2 * Fraction(clip_norm)) ** 2)


def test_roots_that_are_doubles_are_not_raised():
    assert clipped_gradient_sensitivity(1.5) == 3.0
    assert clipped_gradient_sensitivity(1.0, n_parts=4, loss_range=3.0) == 5.0
    assert clipped_sum_sensitivity(3.0) == 3.0
    assert clipped_sum_sensitivity(3.0, count_weight=4.0) == 5.0
    assert clipped_sum_sensitivity(3.0, loss_weight=4.0) == 5.0


def clipped(vector, norm):
    return vector * min(1.0, norm / max(np.linalg.norm(vector), 1e-300))


@pytest.mark.parametrize("n_parts", [1, 4])
def test_no_two_clipped_gradients_are_further_apart_and_opposite_ones_are_as_far(n_parts, rng):
    found = clipped_gradient_sensitivity(0.5, n_parts=n_parts, loss_range=0.25)

    def released(parts, loss):
        return np.append([clipped(part, 0.5) for part in parts], loss)

    parts = rng.standard_normal((40, n_parts, 3)) * rng.choice([0, 0.1, 10], (40, 1, 1))
    vectors = [released(part, rng.choice([0, 0.25])) for part in parts]
    apart = [np.linalg.norm(a - b) for a, b in itertools.combinations(vectors, 2)]
    assert max(apart) <= found
    opposite = released(9 * parts[-1] + 1, 0.25) - released(-9 * parts[-1] - 1, 0.0)
    assert np.linalg.norm(opposite) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("neighbouring", RELATIONS)
def test_no_record_moves_a_sum_further(neighbouring, rng):
    weights = {"count_weight": 0.25, "loss_weight": 0.5}
    found = clipped_sum_sensitivity(1.0, relation=neighbouring, **weights)

    def term():
        shares = rng.dirichlet(np.full(3, 0.3))
        gradient = clipped(5 * rng.standard_normal(6), 1.0)
        return np.concatenate([gradient, 0.25 * shares, [0.5 * rng.random()]])

    for _ in range(300):
        moved = term() - (term() if neighbouring == "replace_one" else 0.0)
        assert np.linalg.norm(moved) <= found


def test_an_unknown_relation_is_refused():
    with pytest.raises(ValueError, match="neighbouring must be"):
        clipped_sum_sensitivity(1.0, relation="swap")
