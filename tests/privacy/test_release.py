"""Leaks of a release besides its samples: errors, warnings, what is left on the object."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse

from skdpot import (
    ExponentialMechanismSampler,
    KLProjectionSampler,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)

SAMPLERS = [ExponentialMechanismSampler, KLProjectionSampler, WassersteinProjectionSampler]
N_POINTS = 6


def hostile_distributions():
    """Return valid weights on which arithmetic overflows, underflows, or loses every digit."""
    first, last = np.eye(N_POINTS)[[0, -1]]
    return np.vstack(
        [
            np.eye(N_POINTS),
            np.maximum(first, 1e-310),
            np.maximum(first, 5e-324),
            first + 1e-310 * last,
            first + 1e-16 * last,
            np.full(N_POINTS, 5e-324),
            np.full(N_POINTS, 1.7e308),
            1e308 * first + 1e-308 * last,
            10.0 ** -np.linspace(0, 323, N_POINTS),
            10.0 ** np.linspace(-300, 300, N_POINTS),
        ]
    )


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 40.0, 700.0])
@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("state", ["warn", "raise"])
def test_no_distribution_makes_a_release_fail_or_warn(kind, epsilon, state):
    # One output is so far away that its odds underflow.
    cost = np.abs(np.arange(N_POINTS)[:, None] - np.arange(N_POINTS) ** 2.0)
    cost[:, -1] += 1e5
    sampler = kind(epsilon, cost_matrix=cost).fit(np.eye(N_POINTS))
    rows = hostile_distributions()
    weights = sampler._fitted.draws.integer_weights(sampler.project(rows))
    assert {sum(row) for row in weights.tolist()} == {2**62}
    with np.errstate(all=state), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sampler.sample(rows, n_samples=2).shape == (len(rows), 2)
        assert sampler.sample(sparse.csr_array(rows)).shape == (len(rows), 1)


@pytest.mark.parametrize("method", ["rejection", "direct"])
def test_no_vector_makes_a_release_fail_or_warn(method):
    vectors = np.vstack([np.eye(3), -np.eye(3), [[1 - 1e-7, 1e-310, 0.0], [1.0, 1e-200, -1e-160]]])
    sampler = SphericalProjectionSampler(2.0, method=method).fit(vectors)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sampler.sample(vectors, n_samples=2).shape == (len(vectors), 2, 3)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_projections_stay_in_the_polytope_whatever_the_distribution(kind):
    for epsilon in (0.01, 0.5, 4.0, 200.0):
        sampler = kind(epsilon).fit(np.eye(N_POINTS))
        projections = sampler.project(hostile_distributions())
        assert (projections >= sampler.base_measure_).all()
        assert (projections <= np.exp(epsilon) * sampler.base_measure_ * (1 + 1e-15)).all()
        np.testing.assert_allclose(projections.sum(axis=1), 1.0, atol=1e-12)
        # Weights that are next to nothing change next to nothing.
        for position in range(N_POINTS, N_POINTS + 4):
            np.testing.assert_allclose(projections[position], projections[0], atol=1e-9)


@pytest.mark.parametrize("kind", [*SAMPLERS, SphericalProjectionSampler])
def test_nothing_private_is_left_on_the_object(kind, rng):
    rows = rng.dirichlet(np.ones(N_POINTS), size=5)
    if kind is SphericalProjectionSampler:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    sampler = kind(random_state=0).fit(np.eye(N_POINTS))
    state, text = pickle.dumps(sampler), repr(sampler)
    sampler.sample(rows, n_samples=2)
    sampler.transform(rows)
    sampler.score(rows)
    if kind is not SphericalProjectionSampler:
        sampler.project(rows)
    assert pickle.dumps(sampler) == state
    assert repr(sampler) == text
    assert pickle.dumps(sampler.fit(rows)) == state


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_users_samples_do_not_depend_on_the_other_users(kind, rng):
    sampler = kind(random_state=0).fit(np.eye(N_POINTS))
    rows = rng.dirichlet(np.full(N_POINTS, 0.2), size=30)
    others = rng.dirichlet(np.full(N_POINTS, 0.2), size=30)
    others[7] = rows[7]
    np.testing.assert_array_equal(sampler.sample(rows)[7], sampler.sample(others)[7])
    np.testing.assert_allclose(sampler.project(rows)[7], sampler.project(others)[7], atol=1e-12)
    np.testing.assert_allclose(sampler.project(rows[::-1])[::-1], sampler.project(rows), atol=1e-12)
