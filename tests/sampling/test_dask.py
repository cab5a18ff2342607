"""Samples drawn on a Dask cluster."""

import os
import time

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
from skdpot.privacy import BudgetAccountant, BudgetError
from skdpot.sampling._base import map_chunks, plan_chunks

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


@pytest.mark.parametrize("verbose", [0, 1])
@pytest.mark.parametrize("chunk_size", [None, 7 * 8])
@pytest.mark.parametrize(
    "sampler_class",
    [WassersteinProjectionSampler, KLProjectionSampler, ExponentialMechanismSampler],
)
def test_distributions_are_served_alike(
    client, weights, sampler_class, chunk_size, verbose, monkeypatch
):
    sampler = sampler_class(2.0, random_state=0, verbose=verbose).fit(weights)
    expected = sampler.sample(weights, 3), sampler.project(weights), sampler.score(weights)
    if chunk_size is not None:
        monkeypatch.setattr("skdpot.sampling._base._CHUNK_SIZE", chunk_size)
    with parallel_config(backend="dask"):
        found = sampler.sample(weights, 3), sampler.project(weights), sampler.score(weights)
    for ours, theirs in zip(expected, found, strict=True):
        np.testing.assert_array_equal(theirs, ours)


def test_both_workers_work(client):
    def where(users):
        time.sleep(0.3)
        return [os.getpid()] * len(users)

    with parallel_config(backend="dask"):
        chunks = plan_chunks(20, 1)
        processes = map_chunks(where, chunks, np.arange(20))
    assert len(chunks) == len(set(processes)) == 2
    assert os.getpid() not in processes


def test_unit_vectors_are_served_alike(client):
    vectors = np.random.default_rng(0).standard_normal((60, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sampler = SphericalProjectionSampler(2.0, random_state=0).fit(vectors)
    expected = sampler.sample(vectors, 2)
    with parallel_config(backend="dask"):
        np.testing.assert_array_equal(sampler.sample(vectors, 2), expected)


def test_the_ledger_is_charged_here(client, weights):
    ledger = BudgetAccountant(epsilon=2.5, delta=0.0)
    sampler = KLProjectionSampler(1.0, ledger=ledger).fit(weights)
    with parallel_config(backend="dask"):
        sampler.sample(weights, 2)
        with pytest.raises(BudgetError):
            sampler.transform(weights)
    assert ledger.total()[0] == pytest.approx(2.0)
