"""The polytope: checks, rounding, and the projection in the Kullback-Leibler sense."""

import math

import numpy as np
import pytest
from scipy import sparse

from skdpot.transport import kl_projection
from skdpot.transport.polytope import (
    cheapest_in_box,
    check_base_measure,
    check_weights,
    clip_to_polytope,
    max_spread,
    normalise_rows,
    round_into_box,
)

EPSILON = math.log(3.0)


@pytest.mark.parametrize("n_outputs", [2, 5, 40])
@pytest.mark.parametrize("share", [0.34, 0.5, 0.9, 1.0])
def test_a_kl_projection_is_a_multiple_that_was_clipped(n_outputs, share, rng):
    """One factor for all that lies inside the bounds, and no other side for what does not."""
    base = share * rng.dirichlet(np.ones(n_outputs))
    weights = rng.dirichlet(np.full(n_outputs, 0.7), size=20)
    for row, nu in zip(weights, kl_projection(weights, base, EPSILON), strict=True):
        assert nu.sum() == pytest.approx(1.0, abs=1e-12)
        assert (nu >= base).all() and (nu <= 3.0 * base * (1 + 1e-15)).all()
        inside = (nu > base * (1 + 1e-9)) & (nu < 3.0 * base * (1 - 1e-9))
        at_lower, at_upper = nu <= base * (1 + 1e-9), nu >= 3.0 * base * (1 - 1e-9)
        factors = nu / row
        if inside.any():
            factor = factors[inside][0]
            np.testing.assert_allclose(factors[inside], factor, rtol=1e-9)
            assert (factor * row[at_lower & ~at_upper] <= base[at_lower & ~at_upper] * 1.001).all()
            assert (factor * row[at_upper] >= 3.0 * base[at_upper] * 0.999).all()
        elif at_lower.any() and at_upper.any():
            # Any factor in between will do.
            assert factors[at_lower].min() >= factors[at_upper].max() * (1 - 1e-9)


def test_a_support_that_cannot_take_all_the_mass_is_filled_and_the_rest_shared_out():
    """In proportion to the slack of the other points."""
    base = np.array([0.1, 0.2, 0.05, 0.25])
    projected = kl_projection([[1.0, 0.0, 0.0, 0.0]], base, EPSILON)[0]
    rest = (1.0 - 0.3 - 0.5) / (2 * 0.5)
    np.testing.assert_allclose(projected, [0.3, *(base[1:] * (1 + 2 * rest))], rtol=1e-12)
    # A point that may hold nothing holds nothing, whatever the weights are.
    base = np.array([0.0, 0.2, 0.2, 0.2])
    projected = kl_projection([[1.0, 0.0, 0.0, 0.0]], base, EPSILON)[0]
    np.testing.assert_allclose(projected, [0.0, 1 / 3, 1 / 3, 1 / 3], rtol=1e-12)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_rows_become_distributions_without_zeros(make):
    rows = normalise_rows(make([[1.0, 0.0, 3.0], [0.0, 1e308, 1e308], [5e-324, 0.0, 0.0]]))
    assert rows.nnz == 5 and rows.format == "csr"
    np.testing.assert_allclose(rows.toarray(), [[0.25, 0, 0.75], [0, 0.5, 0.5], [1, 0, 0]])


@pytest.mark.parametrize("rows", [[[1.5, -0.5]], sparse.csr_array([[1.5, -0.5]]), [[-1.0, -3.0]]])
def test_rows_with_negative_weights_are_refused(rows):
    with pytest.raises(ValueError, match="weights must be non-negative"):
        normalise_rows(rows)


def test_duplicates_of_sparse_rows_are_added_up():
    parts = ([1.0, 2.0, 1.0], ([0, 0, 0], [1, 1, 0]))
    rows = normalise_rows(sparse.csr_array(sparse.coo_array(parts, shape=(1, 2))))
    np.testing.assert_allclose(rows.toarray(), [[0.25, 0.75]])
    unsorted = sparse.csr_array(([1.0, 2.0, 1.0], [1, 1, 0], [0, 3]), shape=(1, 2))
    rows = normalise_rows(unsorted)
    assert rows.nnz == 2
    np.testing.assert_allclose(rows.toarray(), [[0.25, 0.75]])


def test_weights_are_scaled_to_sum_one_where_rounding_left_them():
    np.testing.assert_allclose(
        check_weights([0.5, 0.5 + 8e-10], 2, "w").sum(), 1.0, rtol=0, atol=1e-15
    )
    for bad in ([0.5, 0.5 + 2e-9], [0.5, 0.4], [-0.1, 1.1], [0.5, math.nan]):
        with pytest.raises(ValueError, match="non-negative weights with sum 1"):
            check_weights(bad, 2, "w")
    with pytest.raises(ValueError, match=r"w must have shape \(3,\)"):
        check_weights([0.5, 0.5], 3, "w")


def test_a_base_measure_is_mended_where_its_sum_misses_a_bound_by_rounding():
    too_large = check_base_measure([0.5, 0.5 + 5e-10], 1.0, 2)
    assert too_large.sum() == pytest.approx(1.0, abs=1e-15)
    least = math.exp(-1.0)
    too_small = check_base_measure([least / 2, least / 2 * (1 - 5e-10)], 1.0, 2)
    assert math.exp(1.0) * too_small.sum() == pytest.approx(1.0, abs=1e-15)
    for total, said in ((1 + 2e-9, "Scale it down"), (least * (1 - 2e-9), "Scale it up")):
        with pytest.raises(ValueError, match=said):
            check_base_measure([total / 2, total / 2], 1.0, 2)


def test_upper_bounds_that_rounding_left_below_one_are_reached():
    """No point is left over that what is missing could be given to."""
    base = np.full(4, (1.0 - 1e-14) / 12.0)
    projected = kl_projection([[4, 3, 2, 1]], base, EPSILON)[0]
    np.testing.assert_array_equal(projected, math.exp(EPSILON) * base)


def test_what_rounding_left_outside_is_moved_into_the_polytope():
    base = np.array([0.2, 0.2, 0.2])
    moved = clip_to_polytope([[0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3]], base, EPSILON)
    np.testing.assert_allclose(moved.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert (moved >= base).all() and (moved <= math.exp(EPSILON) * base).all()
    np.testing.assert_allclose(moved[0], [0.6, 0.2, 0.2])
    np.testing.assert_allclose(moved[1], 1 / 3)


def test_rounding_moves_by_what_it_says():
    for columns in ([0.9, 0.3, 0.0], [0.1, 0.2, 0.3], [0.5, 0.3, 0.2]):
        before, after = np.array(columns), np.array(columns)
        moved = round_into_box(after, np.full(3, 0.1), np.full(3, 0.7))
        assert after.sum() == pytest.approx(1.0, abs=1e-15)
        assert (after >= 0.1).all() and (after <= 0.7).all()
        assert moved >= np.abs(after - before).sum() - 1e-15
    # What is missing is shared out in proportion to the slack.
    after = np.array([0.1, 0.2, 0.3])
    assert round_into_box(after, np.full(3, 0.1), np.full(3, 0.7)) == pytest.approx(0.4)
    np.testing.assert_allclose(after, np.array([0.1, 0.2, 0.3]) + 0.4 * np.array([6, 5, 4]) / 15)


def test_the_cheapest_points_are_filled_first():
    lower, upper = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.6, 0.9])
    value = cheapest_in_box(np.array([3.0, -1.0, 2.0]), lower, upper)
    assert value == pytest.approx(0.3 - 0.6 + 0.6)


def test_spread_of_costs_is_that_of_the_worst_row():
    cost = np.array([[1.0, 4.0], [10.0, 10.5], [0.0, 9.0]])
    assert max_spread(cost, np.array([0, 1])) == 3.0
    assert max_spread(cost, np.array([1])) == 0.5
