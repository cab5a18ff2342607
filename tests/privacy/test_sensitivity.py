"""Declared sensitivities against a search for the worst neighbours: never exceeded, and reached."""

import itertools
import math
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.privacy.sensitivity import (
    ball_sum_sensitivity,
    cell_count_sensitivity,
    clipped_gradient_sensitivity,
    clipped_sum_sensitivity,
    cost_score_sensitivity,
    counted_sum_sensitivity,
    half_step_shift,
    noisy_sinkhorn_sensitivity,
    pairwise_sensitivities,
    plan_cost_sensitivity,
    product_sum_sensitivity,
    repeated_count_sensitivity,
    share_sum_sensitivity,
    utility_sensitivity,
)
from tests.oracles.entropic_transport import entropic_transport, soft_minimum
from tests.oracles.worst_case import worst_case
from tests.quick import first_quick

# Costs between the points of small domains, from 0 to 1.
LINE = np.abs(np.subtract.outer([0.0, 0.5, 1.0], [0.0, 0.5, 1.0]))
SQUARE = 1.0 - np.eye(4)
SKEW = np.array([[0.0, 1.0, 0.3], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
# Where the solvers of the tests stop.
TOLERANCE = 1e-8


def transport(table, reg):
    """Return the transport cost of many pairs of samples, given as numbers of points."""

    def cost(x, y):
        costs = table[x[:, :, None], y[:, None, :]]
        if reg:
            return entropic_transport(costs, reg)[0]
        weights = np.full(x.shape[1], 1 / x.shape[1]), np.full(y.shape[1], 1 / y.shape[1])
        return np.array([ot.emd2(*weights, matrix) for matrix in costs])

    return cost


def sinkhorn_divergence(table, reg):
    cost = transport(table, reg)
    return lambda x, y: cost(x, y) - cost(x, x) / 2 - cost(y, y) / 2


COSTS = {
    "exact": (transport, 0.0),
    "entropic": (transport, 0.3),
    "entropic, smooth": (transport, 3.0),
    "divergence, exact": (sinkhorn_divergence, 0.0),
    "divergence": (sinkhorn_divergence, 1.0),
    "divergence, smooth": (sinkhorn_divergence, 100.0),
}
by_cost = pytest.mark.parametrize("name", COSTS)


def bound_of(name, n, m, labels, cost_range=1.0):
    divergence = "sinkhorn" if name.startswith("divergence") else "ot"
    options = {"labels": labels, "divergence": divergence}
    return pairwise_sensitivities(cost_range, [n, m], **options)[0][0]


def change_of_values(cost, n, in_x):
    """Return the change of a cost as a function of x, y, and what replaces the first x or y."""

    def change(states):
        x, y, new = states[:, :n], states[:, n:-1], states[:, -1:]
        if in_x:
            other = np.hstack([new, x[:, 1:]]), y
        else:
            other = x, np.hstack([new, y[:, 1:]])
        return np.abs(cost(x, y) - cost(*other))

    return change


def change_of_group(cost, n, n_min, m_min):
    """Return the change of a cost where the first of n x becomes the last y, with other values.

    States are x, y, and what becomes of the record; samples are filled up with the point 0.
    """

    def filled(sample, smallest):
        missing = max(0, smallest - sample.shape[1])
        return np.pad(sample, ((0, 0), (0, missing)))

    def change(states):
        x, y = states[:, :n], states[:, n:]
        before = cost(filled(x, n_min), filled(y[:, :-1], m_min))
        return np.abs(before - cost(filled(x[:, 1:], n_min), filled(y, m_min)))

    return change


# --------------------------------------------------------------------------------- public labels


@by_cost
@pytest.mark.parametrize("in_x", [True, False])
@pytest.mark.parametrize("table", first_quick([SKEW, LINE, SQUARE]))
def test_no_change_of_values_exceeds_the_sensitivity(name, in_x, table, rng):
    make, reg = COSTS[name]
    n, m = (2, 3) if in_x else (3, 2)
    found = worst_case(
        change_of_values(make(table, reg), n, in_x), [len(table)] * (n + m + 1), rng, n_starts=2
    )
    bound = bound_of(name, n, m, "public")
    assert found <= bound + TOLERANCE
    if make is transport:
        assert found >= 0.95 * bound


def test_the_sensitivity_of_the_divergence_is_reached_on_a_line():
    n = 12
    change = change_of_values(sinkhorn_divergence(LINE, 100.0), n, in_x=True)
    found = change(np.array([[0] * n + [2] * n + [2]]))[0]
    bound = bound_of("divergence", n, n, "public")
    assert 0.95 * bound <= found <= bound


# -------------------------------------------------------------------------------- private labels


@by_cost
@pytest.mark.parametrize(
    "n, m",
    # Just above the declared sizes, nobody left, and then one or two below and above.
    first_quick([(3, 2), (1, 3), (2, 1), (2, 2), (4, 3)], 2),
)
def test_no_change_of_group_exceeds_the_sensitivity(name, n, m, rng):
    """The declared sizes are 2 and 2; the record is one of n before, and of m + 1 after."""
    make, reg = COSTS[name]
    change = change_of_group(make(LINE, reg), n, n_min=2, m_min=2)
    found = worst_case(change, [3] * (n + m + 1), rng, n_starts=1)
    assert found <= bound_of(name, 2, 2, "private") + TOLERANCE


@pytest.mark.parametrize("n_min, m_min", [(3, 3), (2, 4)])
def test_the_sensitivity_with_private_labels_is_reached_where_both_are_filled_up(n_min, m_min, rng):
    change = change_of_group(transport(LINE, 0.0), 2, n_min, m_min)
    # From the far end of x, where another far one stays, to the far end of y.
    found = worst_case(change, [3] * 3, rng, n_starts=3, start=[2, 2, 2])
    assert found == pytest.approx(bound_of("exact", n_min, m_min, "private"))


@by_cost
def test_the_sensitivity_with_private_labels_is_nearly_reached_in_larger_samples(name):
    make, reg = COSTS[name]
    n = 24
    if make is transport:
        # All x at one end and all y at the other, where the cost is largest.
        worst, size = [2] * n + [0] * (n - 1) + [2], n
    else:
        # The divergence is largest once the record at the end of y has left that end of x.
        worst, size = [2] + [2] * n, 1
    found = change_of_group(make(LINE, reg), size, n, n)(np.array([worst]))[0]
    bound = bound_of(name, n, n, "private")
    assert found <= bound + TOLERANCE
    if name not in ("divergence, exact", "divergence"):
        assert found >= 0.95 * bound


# ------------------------------------------------------------------------- costs between all pairs


@pytest.mark.parametrize("divergence, errors", [("ot", 1), ("sinkhorn", 2)])
@pytest.mark.parametrize("tol", [0.0, 0.1])
def test_changes_of_pairs_are_those_of_their_samples(divergence, errors, tol):
    """By the shares of both samples that a neighbour changes, and by what is left of the costs."""
    cost_range, sizes = 3.0, [10, 20, 40]
    pairs = list(itertools.combinations(range(3), 2))
    of_public = [cost_range / min(sizes[g], sizes[h]) for g, h in pairs]
    of_private = [cost_range / sizes[g] + cost_range / sizes[h] for g, h in pairs]
    for labels, alone in (("public", of_public), ("private", of_private)):
        kinds = [(g,) for g in range(3)] if labels == "public" else pairs
        expected = [
            [
                errors * (sum(cost_range / sizes[g] for g in kind if g in pair) + tol * largest)
                if set(kind) & set(pair)
                else 0.0
                for pair, largest in zip(pairs, alone, strict=True)
            ]
            for kind in kinds
        ]
        how = {"labels": labels, "divergence": divergence, "tol": tol}
        found = pairwise_sensitivities(cost_range, sizes, **how)
        np.testing.assert_allclose(found[1], expected, rtol=1e-11)
        np.testing.assert_allclose(found[0], np.max(expected, axis=0), rtol=1e-11)
        assert (found[1] >= np.array(expected)).all()
        single = [
            pairwise_sensitivities(
                cost_range, [sizes[g], sizes[h]], labels=labels, divergence=divergence
            )[0][0]
            for g, h in pairs
        ]
        if not tol:
            np.testing.assert_allclose(found[0], single)


# --------------------------------------------------------------------------------- noisy Sinkhorn

# The cost goes up to 1: regularisation, size of the record's and of the other sample, bound.
SETTINGS = [(0.2, 4, 3, 1.0), (1.0, 3, 4, 0.5), (1.0, 6, 6, 1.0), (5.0, 4, 4, 2.0)]
by_setting = pytest.mark.parametrize("reg, n, m, bound", first_quick(SETTINGS, 2))


def half_step(potentials, costs, reg):
    """Return the potentials of the columns, for those of the rows."""
    return soft_minimum(costs - potentials[..., :, None], reg, axis=-2)


def round_of(state_costs, phi, psi, reg):
    """Return what a round computes from the potentials that were released, phi first."""
    rows = half_step(psi, np.swapaxes(state_costs, -1, -2), reg)
    centred = rows - rows.mean(axis=-1, keepdims=True)
    return np.concatenate([centred, half_step(phi, state_costs, reg)], axis=-1)


def unpacked(states, n, m, in_x):
    """Return costs of two neighbours and two potentials up to 1, from states of zeros and ones."""
    sizes = [n * m, m if in_x else n, n, m]
    costs, new, phi, psi = np.split(states.astype(float), np.cumsum(sizes)[:-1], axis=1)
    costs = costs.reshape(-1, n, m)
    other = costs.copy()
    if in_x:
        other[:, 0] = new
    else:
        other[:, :, 0] = new
    return costs, other, 2 * phi - 1, 2 * psi - 1


def packed(n, m, in_x):
    """Return the state where the record's costs fall from 1 to 0, its potential being largest."""
    new = np.zeros(m if in_x else n)
    record_first = [np.eye(1, size)[0] for size in (n, m)]
    return np.concatenate([np.ones(n * m), new, *record_first]).astype(int)


def worst_round(setting, in_x, measure, rng, n_starts):
    """Return the largest measure of what a record changes in a round, and its extremes' own."""
    reg, n, m, bound = setting

    def change(states):
        costs, other, phi, psi = unpacked(states, n, m, in_x)
        before, after = (round_of(c, bound * phi, bound * psi, reg) for c in (costs, other))
        return measure(after - before)

    start = packed(n, m, in_x)
    return worst_case(change, [2] * len(start), rng, n_starts, start)


@by_setting
def test_shift_of_the_other_potentials(reg, n, m, bound, rng):
    declared = half_step_shift(1.0, reg, n, bound)
    found = worst_round((reg, n, m, bound), True, lambda e: np.abs(e[:, n:]).max(axis=1), rng, 2)
    assert found == pytest.approx(declared, rel=1e-9)
    assert found <= declared


@by_setting
@pytest.mark.parametrize("in_x", [True, False])
def test_the_record_moves_its_own_potential_by_the_range_of_the_cost(reg, n, m, bound, in_x, rng):
    own = 0 if in_x else n
    found = worst_round((reg, n, m, bound), in_x, lambda moved: np.abs(moved[:, own]), rng, 1)
    centring = 1 - 1 / n if in_x else 1.0
    assert found == pytest.approx(centring)


@by_setting
def test_no_round_exceeds_its_sensitivity(reg, n, m, bound, rng):
    declared = noisy_sinkhorn_sensitivity(1.0, reg, n, m, bound)
    for in_x in (True, False):
        found = worst_round((reg, n, m, bound), in_x, lambda e: np.linalg.norm(e, axis=1), rng, 1)
        assert found <= declared


@pytest.mark.parametrize(
    "reg, n, m, bound", [(0.2, 12, 12, 1.0), (1.0, 12, 30, 0.5), (9, 12, 16, 1)]
)
def test_a_round_reaches_its_sensitivity(reg, n, m, bound):
    declared = noisy_sinkhorn_sensitivity(1.0, reg, n, m, bound)
    costs, other, phi, psi = unpacked(packed(n, m, True)[None], n, m, True)
    moved = np.subtract(*(round_of(c, bound * phi, bound * psi, reg) for c in (other, costs)))
    assert 0.95 * declared <= np.linalg.norm(moved) <= declared


def test_rounding_is_added_in_both_half_steps():
    others = np.sqrt(30) * half_step_shift(1.0, 1.0, 12, 0.5)
    assert others > np.sqrt(12) * half_step_shift(1.0, 1.0, 30, 0.5)
    with_rounding = noisy_sinkhorn_sensitivity(1.0, 1.0, 12, 30, 0.5, rounding=0.25 / np.sqrt(30))
    assert with_rounding == pytest.approx(np.hypot(1.25, others + 0.25))


@pytest.mark.parametrize(
    "reg, n, m, bound", first_quick([(0.3, 2, 3, 1.0), (1.0, 3, 2, 0.5), (4.0, 2, 2, 1.0)])
)
@pytest.mark.parametrize("in_x", [True, False])
def test_second_stage(reg, n, m, bound, in_x, rng):
    declared = plan_cost_sensitivity(1.0, reg, n, m, bound)
    levels = np.array([0.0, min(reg, 1.0), 1.0])

    def change(states):
        *costs, phi, psi = unpacked(states, n, m, in_x)
        potentials = bound * (np.sign(phi)[:, :, None] + np.sign(psi)[:, None, :])
        costs = [levels[c.astype(int)] for c in costs]
        values = [(c * np.exp((potentials - c) / reg)).mean(axis=(1, 2)) for c in costs]
        return np.abs(values[0] - values[1])

    n_costs = n * m + (m if in_x else n)
    found = worst_case(change, [3] * n_costs + [2] * (n + m), rng, n_starts=3)
    size = n if in_x else m
    assert found <= plan_cost_sensitivity(1.0, reg, size, size, bound)
    assert found == pytest.approx(declared * min(n, m) / size, rel=1e-9)


@pytest.mark.parametrize("reg, n, m", [(0.25, 8, 20), (4.0, 20, 8)])
def test_rounding_is_added_to_the_cost_of_a_plan(reg, n, m):
    """A share of the largest of the ``n m`` terms of a mean, for all of its exponent."""
    without = plan_cost_sensitivity(1.0, reg, n, m, 0.5)
    found = plan_cost_sensitivity(1.0, reg, n, m, 0.5, rounding=2.0**-10)
    assert found == pytest.approx(without * (1 + 2.0**-10 * 8 * (1 + (2 * 0.5 + 1.0) / reg)))


# ---------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("ratio", [1e-6, 0.3, 1.0, 1e6])
@pytest.mark.parametrize("n", [1, 1000, 10**9])
@pytest.mark.parametrize("bound", [0.0, 3.0])
def test_formulas_are_stable_and_rounded_up(ratio, n, bound):
    """`ratio` is that of the regularisation to the range of the cost, which is 3."""
    reg = 3.0 * ratio
    with mpmath.workdps(60):
        r, b = mpmath.mpf(3) / reg, mpmath.mpf(bound)
        share = 1 / (1 + (n - 1) * mpmath.exp(-2 * b / reg))
        shift = reg * mpmath.log(1 + share * (mpmath.exp(r) - 1))
        steepest = min(mpmath.mpf(reg), 3)
        term = mpmath.exp((2 * b - steepest) / reg) * steepest / n
        round_ = mpmath.sqrt(9 + n * shift**2)
    assert shift <= half_step_shift(3.0, reg, n, bound) <= shift * (1 + 2e-12)
    found = noisy_sinkhorn_sensitivity(3.0, reg, n, n, bound)
    assert round_ <= found <= round_ * (1 + 3e-12)
    found = plan_cost_sensitivity(3.0, reg, n, n, bound)
    assert term <= found and (found == np.inf or found <= term * (1 + 2e-12))
    assert found < np.inf or term > 1e307


@pytest.mark.parametrize("options", [{"labels": "secret"}, {"divergence": "w2"}])
def test_words_are_checked(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be one of"):
        pairwise_sensitivities(1.0, [2, 2], **options)


def test_whom_a_release_of_utilities_protects_is_checked():
    with pytest.raises(ValueError, match="protect must be one of"):
        utility_sensitivity(1.0, 2, protect="record")


def test_costs_of_outputs_move_by_the_widest_column(rng):
    costs = rng.uniform(0, [1.0, 5.0, 0.1], (4, 3))
    moved = [np.abs(one - other).max() for one in costs for other in costs]
    assert cost_score_sensitivity(costs) == pytest.approx(max(moved))
    mixed = rng.dirichlet(np.ones(4), 1000) @ costs
    assert np.ptp(mixed, axis=0).max() <= cost_score_sensitivity(costs)


@pytest.mark.parametrize(
    "bound",
    [
        partial(cell_count_sensitivity, n_tables=7, whole=3.0, signed=True),
        partial(ball_sum_sensitivity, radius=5.0),
        partial(counted_sum_sensitivity, radius=4, count_weight=3),
        partial(share_sum_sensitivity, radius=4, count_weight=3, whole=10),
        partial(product_sum_sensitivity, radius=10.0, diagonal=29, beside=41),
    ],
    ids=lambda bound: bound.func.__name__,
)
def test_a_replaced_record_moves_a_sum_twice_as_far_as_one_more(bound):
    assert bound(relation="replace_one") == 2 * bound(relation="add_remove") > 0


def test_a_replaced_record_moves_counts_by_the_root_of_two_and_no_more(rng):
    """Counts are not negative, so what two records add is never at an obtuse angle."""
    moved = {"tables": 0.0, "values": 0.0}
    for _ in range(300):
        cells = np.zeros((2, 7, 2))
        for one in cells:
            one[np.arange(7), rng.integers(2, size=7)] = 1
        moved["tables"] = max(moved["tables"], np.linalg.norm(cells[0] - cells[1]))
        draws = [rng.choice(3, 9, p=rng.dirichlet([0.1] * 3)) for _ in range(2)]
        bins = [np.bincount(values, minlength=3) for values in draws]
        moved["values"] = max(moved["values"], np.linalg.norm(bins[0] - bins[1]))
    declared = {
        "tables": cell_count_sensitivity(n_tables=7, relation="replace_one"),
        "values": repeated_count_sensitivity(n_values=9, relation="replace_one"),
    }
    assert moved == pytest.approx(declared)
    # One less would not do, and one more is not asked for.
    assert declared["tables"] ** 2 == pytest.approx(14) and declared["values"] ** 2 >= 162


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


@pytest.mark.parametrize("clip_norm", [0.1, 1 / 3, 2.0**-30, 1e5 / 3])
@pytest.mark.parametrize("n_parts", [2, 7, 50])
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
