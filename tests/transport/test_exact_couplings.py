"""Couplings of weighted points with a support of equal masses, against POT."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.transport import exact_transport


def couple_with_support(cost, masses):
    return exact_transport(cost, masses, np.full(len(cost[0]), 1.0 / len(cost[0])))


def check(cost, masses, coupling):
    """Check all that is said of a coupling, and its cost against POT."""
    n_support = cost.shape[1]
    equal = np.full(n_support, 1.0 / n_support)
    plan = coupling.plan
    np.testing.assert_allclose(plan.sum(axis=1), masses, atol=1e-14)
    np.testing.assert_allclose(plan.sum(axis=0), equal, atol=1e-14)
    assert plan.nnz <= sum(cost.shape) - 1 and (plan.data > 0).all()
    unit = max(cost.max(), 1e-300)
    assert coupling.cost == pytest.approx((plan.toarray() * cost).sum(), abs=1e-12 * unit)
    assert 0 <= coupling.gap <= 1e-9 * unit
    assert coupling.cost == pytest.approx(ot.emd2(masses, equal, cost), abs=1e-9 * unit)
    # Mass goes only where the cost minus the price is the smallest.
    reduced = cost - coupling.column_potential
    reduced -= reduced.min(axis=1, keepdims=True)
    assert (reduced[plan.toarray() > 0] <= 1e-9 * unit).all()


@settings(derandomize=True, max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 30), m=st.integers(1, 20), ties=st.booleans())
def test_is_optimal_and_certified(seed, n, m, ties):
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, 4, (n, m)).astype(float) if ties else rng.random((n, m)) ** 3
    masses = rng.random(n) + 1e-3 if seed % 2 else np.ones(n)
    masses /= masses.sum()
    check(cost, masses, couple_with_support(cost, masses))


def test_costs_of_any_size():
    cost, masses = np.array([[0.0, 4.0], [1.0, 1.0]]), np.array([0.25, 0.75])
    for unit in (1e-150, 1.0, 1e150):
        coupling = couple_with_support(unit * cost, masses)
        assert coupling.cost == pytest.approx(0.75 * unit)
    assert couple_with_support(np.zeros((3, 2)), np.full(3, 1 / 3)).cost == 0.0
