"""Samples drawn on a Dask cluster."""

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from joblib import parallel_config
from scipy import sparse

from skdpot import (
    ExponentialMechanismSampler,
    KLProjectionSampler,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)

pytestmark = pytest.mark.experiment


@pytest.fixture(scope="module")
def client():
    """Return a client of two worker processes."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 20, (60, 8)) * (rng.random((60, 8)) < 0.4)
    dense[:, 0] += 1
    return sparse.csr_array(dense.astype(float))


@pytest.mark.parametrize(
    "sampler_class",
    [WassersteinProjectionSampler, KLProjectionSampler, ExponentialMechanismSampler],
)
def test_distributions_are_served_alike(client, weights, sampler_class):
    sampler = sampler_class(2.0, random_state=0).fit(weights)
    expected = sampler.sample(weights, 3), sampler.project(weights), sampler.score(weights)
    with parallel_config(backend="dask"):
        found = sampler.sample(weights, 3), sampler.project(weights), sampler.score(weights)
    for ours, theirs in zip(expected, found, strict=True):
        np.testing.assert_array_equal(theirs, ours)


def test_unit_vectors_are_served_alike(client):
    vectors = np.random.default_rng(0).standard_normal((60, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sampler = SphericalProjectionSampler(2.0, random_state=0).fit(vectors)
    expected = sampler.sample(vectors, 2)
    with parallel_config(backend="dask"):
        np.testing.assert_array_equal(sampler.sample(vectors, 2), expected)
