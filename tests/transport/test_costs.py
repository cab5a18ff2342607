"""Costs in memory and on the fly, and the compiled kernels that read them, against numpy."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from skdpot.transport import Costs, FunctionCosts, MatrixCosts, PointCosts
from skdpot.transport.sinkhorn import as_costs, exponentials

REG = 0.07
NOTHING = np.empty((0, 0))


def points(n, m, n_features, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, n_features)), rng.random((m, n_features))


def make_costs(kind, n, m):
    """Return costs of a kind and the matrix they should be, less their lower bound."""
    x, y = points(n, m, 3)
    if kind == "distances":
        return PointCosts(x, y, squared=False, high=2.0), cdist(x, y)
    if kind == "squares":
        return PointCosts(x, y, squared=True, high=3.0), cdist(x, y, "sqeuclidean")
    if kind == "clipped":
        return PointCosts(x, y, squared=False, high=0.4), np.minimum(cdist(x, y), 0.4)
    if kind == "matrix":
        matrix = 5 - cdist(x, y, "cityblock")
        return MatrixCosts(matrix), matrix - matrix.min()
    return FunctionCosts(x, y, lambda x, y: cdist(x, y) - 7.0, low=-7.0, high=-5.0), cdist(x, y)


def answer(costs, biased, weights, kept=NOTHING):
    """Return the row potentials and the columns of the plan by the kernels, panel by panel."""
    potential, columns = np.full(costs.shape[0], np.nan), np.zeros(costs.shape[1])
    for rows in costs.panels():
        costs.answer(rows, biased, weights, REG, potential, columns, kept)
    return potential, columns


def direct_answer(matrix, biased, weights):
    exponents = biased - matrix / REG
    potential = -logsumexp(exponents, axis=1)
    plan = np.exp(exponents + potential[:, None])
    return potential, weights @ plan, plan


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (17, 30)])
@pytest.mark.parametrize("kind", ["distances", "squares", "clipped", "matrix", "function"])
def test_answers_equal_the_formula(kind, shape):
    rng = np.random.default_rng(1)
    costs, matrix = make_costs(kind, *shape)
    weights, biased = rng.dirichlet(np.ones(shape[0])), rng.normal(size=shape[1]) * 3
    if shape[1] > 1:
        biased[0] = -np.inf
    kept = np.full(shape, np.nan)
    potential, columns, plan = direct_answer(matrix, biased, weights)
    for got_potential, got_columns in (
        answer(costs, biased, weights),
        answer(costs, biased, weights, kept),
    ):
        np.testing.assert_allclose(got_potential, potential, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(got_columns, columns, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(kept, plan, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("kind", ["distances", "squares", "clipped", "matrix", "function"])
def test_transposed_costs_are_those_of_the_transposed_matrix(kind):
    costs, matrix = make_costs(kind, 6, 11)
    transposed = costs.transposed()
    assert (transposed.shape, transposed.low, transposed.high) == ((11, 6), costs.low, costs.high)
    weights, biased = np.full(11, 1 / 11), np.arange(6.0)
    potential, columns, _ = direct_answer(matrix.T, biased, weights)
    got_potential, got_columns = answer(transposed, biased, weights)
    np.testing.assert_allclose(got_potential, potential, rtol=1e-13)
    np.testing.assert_allclose(got_columns, columns, rtol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (15, 3), (16, 3), (17, 3), (1000, 1), (3, 2_000_000)])
def test_panels_are_all_rows_once(shape):
    x, y = np.zeros((shape[0], 1)), np.zeros((shape[1], 1))
    for costs in (PointCosts(x, y, squared=True, high=1.0), FunctionCosts(x, y, cdist, 0.0, 1.0)):
        rows = [np.arange(shape[0])[panel] for panel in costs.panels()]
        np.testing.assert_array_equal(np.concatenate(rows), np.arange(shape[0]))
        assert all(len(panel) for panel in rows)


def test_costs_are_only_read_where_asked():
    seen = []

    def spy(x, y):
        seen.append(len(x))
        return cdist(x, y)

    costs = FunctionCosts(*points(7, 300_000, 1), spy, 0.0, 1.0)
    answer(costs, np.zeros(300_000), np.full(7, 1 / 7))
    assert seen == [3, 3, 1]


def test_whatever_is_an_array_becomes_a_matrix_of_costs():
    costs = as_costs([[1, 2], [3, 5]])
    assert isinstance(costs, MatrixCosts) and as_costs(costs) is costs
    assert costs.matrix.dtype == np.float64
    assert (costs.shape, costs.low, costs.high) == ((2, 2), 1.0, 5.0)
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(as_costs(fortran).matrix, fortran)
    with pytest.raises(TypeError, match="abstract"):
        Costs()


@pytest.mark.parametrize(
    "matrix, message",
    [
        ([1.0, 2.0], "must be a non-empty matrix"),
        (np.empty((0, 3)), "non-empty"),
        ([[np.nan]], "finite"),
        ([[np.inf, 0.0]], "finite"),
    ],
)
def test_bad_matrices_are_named(matrix, message):
    with pytest.raises(ValueError, match=message):
        MatrixCosts(matrix)


def in_place(values):
    values = np.array(values, dtype=np.float64)
    exponentials(values, np.empty_like(values))
    return values


def test_exponentials_are_right_to_four_units_in_the_last_place():
    exponents = np.linspace(-708.0, 700.0, 100_001)
    near_halves = (np.arange(-1020, 1009) + 0.5) * math.log(2.0)
    exponents = np.concatenate([exponents, near_halves, np.nextafter(near_halves, 0)])
    exact = np.exp(exponents)
    assert (np.abs(in_place(exponents) - exact) <= 4 * np.spacing(exact)).all()


def test_exponentials_of_what_underflows_are_those_of_the_smallest_exponent():
    smallest = np.exp(-708.0)
    got = in_place([-708.0, -708.0001, -745.0, -1e5, -1e300, -np.inf])
    np.testing.assert_allclose(got, smallest, rtol=1e-15)
    np.testing.assert_array_equal(in_place([0.0, -0.0]), 1.0)
