"""Numbers as words: errors within their bound, and sums that never wrap."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpot.federation._secure_sum import FixedPoint, integers_of, words_of

largests = st.floats(1e-150, 1e150)
owner_counts = st.integers(1, 40) | st.sampled_from([1023, 1024, 1025, 10**6, 2**40, 2**53])


def exactly(vector):
    return [Fraction(x) for x in np.asarray(vector).tolist()]


@st.composite
def terms(draw):
    """Draw a bound and the terms of a sum, some of them as large as the bound allows."""
    largest = draw(largests)
    n_owners = draw(st.integers(1, 40))
    # Only numbers far below the bound are no multiples of a step.
    parts = st.floats(-1, 1) | st.sampled_from([-1.0, 1.0]) | st.floats(-1e-17, 1e-17)
    factors = draw(st.lists(parts, min_size=n_owners, max_size=n_owners))
    return largest, [largest * factor for factor in factors]


@given(terms())
def test_sums_are_within_the_error_bound(drawn):
    largest, numbers = drawn
    fixed = FixedPoint(largest, len(numbers))
    words = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        words += fixed.encode(np.array([number]))
    summed = integers_of(words).tolist()[0] * Fraction(float(fixed.step))
    truth = sum(exactly(numbers))
    assert abs(summed - truth) <= Fraction(float(fixed.error_bound))
    assert fixed.decode(words)[0] == float(summed)


@given(largests, owner_counts)
def test_steps_are_as_small_as_they_can_be(largest, n_owners):
    step = Fraction(float(FixedPoint(largest, n_owners).step))
    most = (2**63 - 1) // n_owners
    assert Fraction(largest) / step <= most < 2 * Fraction(largest) / step


@given(largests, owner_counts)
def test_sums_of_the_largest_do_not_wrap(largest, n_owners):
    fixed = FixedPoint(largest, n_owners)
    for sign in (-1, 1):
        one = int(integers_of(fixed.encode(np.array([sign * largest])))[0])
        total = words_of(np.array([one])) * np.uint64(n_owners)
        assert int(integers_of(total)[0]) == one * n_owners


@pytest.mark.parametrize("part", [0.499999, 0.500001, -0.499999, -0.500001])
def test_the_error_bound_is_nearly_attained(part):
    n_owners = 3
    fixed = FixedPoint(1.0, n_owners)
    number = part * float(fixed.step)
    words = n_owners * fixed.encode(np.array([number]))
    error = abs(fixed.decode(words)[0] - n_owners * number)
    assert 0.99999 * fixed.error_bound < error <= fixed.error_bound


def test_entries_have_bounds_of_their_own():
    largest = np.array([1e-3, 0.0, 1e9])
    fixed = FixedPoint(largest, 2)
    words = fixed.encode(largest) + fixed.encode(-largest / 3)
    np.testing.assert_allclose(fixed.decode(words), largest * 2 / 3, rtol=1e-15)
    assert fixed.step.shape == fixed.error_bound.shape == (3,)
    with pytest.raises(ValueError, match="at most `largest`"):
        fixed.encode(np.array([0.0, 1e-9, 0.0]))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 2.0 + 1e-15, -2.0 - 1e-15])
def test_entries_beyond_the_bound_are_refused(wrong):
    with pytest.raises(ValueError, match="^all entries must be finite and at most `largest`.$"):
        FixedPoint(2.0, 3).encode(np.array([0.0, wrong]))


@pytest.mark.parametrize(
    "largest, n_owners, match",
    [
        (-1.0, 2, "largest must be from 0"),
        (np.nan, 2, "largest must be from 0"),
        (1e151, 2, "largest must be from 0"),
        ([[1.0]], 2, "a real number or a vector"),
        ("1", 2, "a real number or a vector"),
        (1.0, 0, "n_owners must be from 1"),
        (1.0, 2.0, "n_owners must be from 1"),
    ],
)
def test_parameters_are_checked(largest, n_owners, match):
    with pytest.raises(ValueError, match=match):
        FixedPoint(largest, n_owners)


def test_shapes_and_types_are_checked():
    fixed = FixedPoint(np.ones(3), 2)
    for call, argument in [
        (fixed.encode, np.zeros(2)),
        (fixed.encode, np.zeros((1, 3))),
        (fixed.decode, np.zeros(2, dtype=np.uint64)),
    ]:
        with pytest.raises(ValueError, match="of the length of `largest`"):
            call(argument)
    for call, given_type in [(fixed.decode, np.int64), (integers_of, np.int64), (words_of, float)]:
        with pytest.raises(ValueError, match="an array of u?int64 is expected"):
            call(np.zeros(3, dtype=given_type))


@given(st.lists(st.integers(-(2**60), 2**60 - 1), min_size=1, max_size=7))
def test_integers_are_summed_as_words(numbers):
    words = [words_of(np.array([number])) for number in numbers]
    assert integers_of(np.sum(words, axis=0, dtype=np.uint64)).tolist() == [sum(numbers)]
