"""Entropic transport between small samples: against POT, closed forms and certificates."""

import math
import warnings

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.generative._torch import sinkhorn as module
from skdpot.generative._torch.sinkhorn import SinkhornConvergenceWarning, sinkhorn
from skdpot.transport import entropic_transport, smallest_tolerance
from tests.oracles.devices import DEVICES, NEEDS_CUDA

pytestmark = pytest.mark.experiment

PRECISIONS = [torch.float32, torch.float64]


def random_costs(n, m, *, seed=0, scale=1.0, dtype=torch.float64, device="cpu"):
    rng = np.random.default_rng(seed)
    costs = ((rng.normal(size=(n, 1, 2)) - rng.normal(size=(m, 2))) ** 2).sum(axis=2)
    return torch.tensor(scale * costs).to(device=device, dtype=dtype)


def random_weights(n, *, seed=0):
    weights = np.random.default_rng(seed).random(n) + 0.1
    return torch.tensor(weights / weights.sum())


def value_by_pot(costs, mu, nu, reg):
    """Return the cost and the plan of POT, whose entropy is not relative to the weights."""
    mu, nu = mu.numpy(), nu.numpy()
    plan = ot.bregman.sinkhorn_log(mu, nu, costs.numpy(), reg, stopThr=1e-11, numItermax=20_000)
    divergence = (plan * np.log(plan / np.outer(mu, nu))).sum()
    return (plan * costs.numpy()).sum() + reg * divergence, plan


def exact(costs, mu, nu, reg):
    """Return the entropic cost by the solver that certifies it in double precision."""
    costs = costs.double().numpy()
    tol = 2 * smallest_tolerance(*costs.shape, np.ptp(costs), reg) + 1e-12 * np.abs(costs).max()
    return entropic_transport(costs, mu, nu, reg, tol)


def uniform(n):
    return np.full(n, 1 / n)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reg", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_value_and_plan_are_those_of_pot(device, reg, weighted):
    costs = random_costs(8, 6)
    mu, nu = (torch.tensor(uniform(size)) for size in costs.shape)
    logs = (None, None)
    if weighted:
        mu, nu = random_weights(8, seed=1), random_weights(6, seed=2)
        logs = mu.log().to(device), nu.log().to(device)
    expected, plan = value_by_pot(costs, mu, nu, reg)
    result = sinkhorn(costs.to(device), reg, *logs, n_iter=40)
    assert result.value.item() == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(result.plan().cpu(), plan, atol=1e-8)
    density = torch.exp((result.f[:, None] + result.g - costs.to(device)) / reg).cpu()
    np.testing.assert_allclose(mu[:, None] * nu * density, plan, atol=1e-8)
    np.testing.assert_allclose(result.plan().sum(dim=1).cpu(), mu, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_one_point_on_each_side(device, dtype):
    result = sinkhorn(torch.tensor([[3.5]], dtype=dtype, device=device), 0.1)
    assert result.value.item() == pytest.approx(3.5, rel=1e-6)
    assert result.plan().item() == pytest.approx(1)


@pytest.mark.parametrize("reg", [0.01, 0.3, 5.0])
@pytest.mark.parametrize("n", [2, 7])
def test_equal_clouds_of_points_at_distance_one(n, reg):
    result = sinkhorn(1 - torch.eye(n, dtype=torch.float64), reg)
    expected = reg * math.log(n / (1 + (n - 1) * math.exp(-1 / reg)))
    assert result.value.item() == pytest.approx(expected, rel=1e-9)


def test_little_regularisation_gives_the_transport_cost():
    costs = random_costs(12, 9)
    expected = ot.emd2(uniform(12), uniform(9), costs.numpy())
    result = sinkhorn(costs, 1e-4, n_iter=100)
    # The divergence of a plan is at most the logarithm of the larger number of points.
    assert expected - 1e-6 <= result.value.item() <= expected + 1e-4 * math.log(12)


def test_on_a_line_points_are_matched_in_order():
    x, y = torch.randn(2, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    result = sinkhorn((x[:, None] - y).square(), 1e-4, n_iter=100)
    expected = (x.sort().values - y.sort().values).square().mean()
    assert result.value.item() == pytest.approx(expected.item(), abs=1e-4 * math.log(40))


@pytest.mark.parametrize("dtype", PRECISIONS)
@settings(deadline=None, max_examples=60)
@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(1e-2, 1e3),
    reg=st.floats(1e-2, 1e2),
    n_iter=st.integers(1, 6),
    masked=st.booleans(),
)
def test_gap_is_a_bound_however_early_rounds_stop(dtype, shape, seed, scale, reg, n_iter, masked):
    costs = random_costs(*shape, seed=seed, scale=scale, dtype=dtype)
    weights = [random_weights(size, seed=seed).to(dtype) for size in shape]
    if masked:
        weights[1][0] = 0 if shape[1] > 1 else 1
    result = sinkhorn(costs, reg, *(weight.log() for weight in weights), n_iter=n_iter)
    mu, nu = (weight.log().exp().double() / weight.log().exp().double().sum() for weight in weights)
    reference = exact(costs, mu.numpy(), nu.numpy(), reg)
    error = abs(result.value.item() - reference.cost)
    # Weights are normalised in the precision of the costs.
    weight_rounding = 20 * torch.finfo(dtype).eps * costs.max().item()
    assert error <= result.gap.item() + reference.gap + weight_rounding


def test_gap_tells_more_rounds_from_fewer():
    costs = random_costs(30, 30, scale=30.0)
    gaps = [sinkhorn(costs, 0.05, n_iter=n_iter).gap.item() for n_iter in (1, 4, 16, 64)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-4 < gaps[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("filling", [0.0, 1e30, math.nan, math.inf])
def test_masked_rows_and_columns_do_not_exist(device, dtype, filling):
    costs = random_costs(6, 5, dtype=dtype, device=device)
    padded = torch.full((9, 7), filling, dtype=dtype, device=device)
    rows, columns = [0, 2, 3, 5, 6, 8], [1, 2, 3, 5, 6]
    padded[np.ix_(rows, columns)] = costs
    log_mu = torch.full((9,), -torch.inf, device=device)
    log_nu = torch.full((7,), -torch.inf, device=device)
    log_mu[rows], log_nu[columns] = -math.log(6), -math.log(5)
    found, expected = sinkhorn(padded, 0.2, log_mu, log_nu), sinkhorn(costs, 0.2)
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(found.value, expected.value, **close)
    torch.testing.assert_close(found.plan()[np.ix_(rows, columns)], expected.plan(), **close)
    torch.testing.assert_close(found.f[rows], expected.f, **close)
    torch.testing.assert_close(found.g[columns], expected.g, **close)
    assert found.plan().isfinite().all() and found.gap.isfinite()
    others = [1, 4, 7]
    assert not found.plan()[others].any() and not found.f[others].any() and not found.g[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("filling", [1.0, math.nan])
def test_without_any_weight_everything_is_zero(device, side, filling):
    costs = torch.full((4, 3), filling, device=device)
    logs = [None, None]
    logs[side] = torch.full((costs.shape[side],), -torch.inf, device=device)
    result = sinkhorn(costs, 0.1, *logs)
    for found in (result.value, result.f, result.g, result.plan()):
        assert not found.any()


@pytest.mark.parametrize("device", DEVICES)
def test_batches_are_solved_one_by_one(device):
    costs = torch.stack([random_costs(6, 5, seed=seed, device=device) for seed in range(6)])
    log_mu = random_weights(6).log().to(device)
    log_nu = torch.stack([random_weights(5, seed=seed) for seed in range(3)]).log().to(device)
    batch = sinkhorn(costs.unflatten(0, (2, 3)), 0.1, log_mu, log_nu)
    assert batch.gap.shape == batch.value.shape == (2, 3)
    for place in np.ndindex(2, 3):
        single = sinkhorn(costs.unflatten(0, (2, 3))[place], 0.1, log_mu, log_nu[place[1]])
        for name in ("value", "f", "g", "gap"):
            assert torch.equal(getattr(batch, name)[place], getattr(single, name))
        assert torch.equal(batch.plan()[place], single.plan())


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_is_enough_for_costs_of_images(device):
    costs = random_costs(50, 50, scale=100.0, device=device) + 100
    double, single = sinkhorn(costs, 0.5, n_iter=40), sinkhorn(costs.float(), 0.5, n_iter=40)
    assert single.value.item() == pytest.approx(double.value.item(), rel=1e-6)
    assert (single.plan() - double.plan()).abs().sum() < 5e-3
    assert single.plan().dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("n_iter", [1, 2, 16])
def test_tiny_regularisation_and_large_costs_stay_finite(device, dtype, n_iter):
    costs = random_costs(30, 40, scale=1e4, dtype=dtype, device=device)
    result = sinkhorn(costs, 1e-2, n_iter=n_iter)
    transport = ot.emd2(uniform(30), uniform(40), costs.cpu().double().numpy())
    assert result.plan().isfinite().all()
    np.testing.assert_allclose(result.plan().sum(dim=1).cpu(), uniform(30), rtol=1e-4)
    assert result.value.item() <= transport + 1e-2 * math.log(40) + 1e-5 * costs.max().item()
    assert result.value.item() + result.gap.item() >= transport


@pytest.mark.parametrize("seed", range(10))
def test_scalings_stay_in_the_range_of_single_precision(monkeypatch, seed):
    """However many updates a kernel is kept for, however far it is from its marginals."""
    monkeypatch.setattr(module, "_KEPT_UPDATES", 500)
    generator = torch.Generator().manual_seed(seed)
    costs = 10.0**seed * torch.rand(20, 30, generator=generator)
    logs = [torch.log_softmax(seed * torch.randn(n, generator=generator), dim=0) for n in (20, 30)]
    result = sinkhorn(costs, 1e-2, *logs, n_iter=1)
    for found in (result.f, result.g, result.plan(), result.value):
        assert found.isfinite().all()
    torch.testing.assert_close(result.plan().sum(dim=1), logs[0].exp(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_less_than_single_precision_is_refused(dtype):
    with pytest.raises(ValueError, match="single or double precision, got torch"):
        sinkhorn(torch.ones(2, 2).to(dtype), 0.1)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_bits_every_time(device):
    costs = random_costs(30, 20, scale=100.0, dtype=torch.float32, device=device)
    first, again = sinkhorn(costs, 0.05), sinkhorn(costs.clone(), 0.05)
    assert torch.equal(first.plan(), again.plan()) and torch.equal(first.value, again.value)


def test_no_operation_depends_on_values():
    """Tensors without values would raise where a number or a branch were made of them."""
    costs, log_nu = torch.empty(5, 4, device="meta"), torch.empty(4, device="meta")
    assert sinkhorn(costs, 0.1, log_nu=log_nu).plan().shape == (5, 4)


@NEEDS_CUDA
def test_nothing_waits_for_the_gpu():
    costs = random_costs(20, 20, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        sinkhorn(costs, 0.1, log_nu=torch.full((20,), -math.log(20), device="cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("device", DEVICES)
def test_tolerance_is_reached(device):
    costs = random_costs(40, 30, scale=10.0, device=device)
    result = sinkhorn(costs, 0.05, n_iter=1, tol=1e-6)
    reference = exact(costs.cpu(), uniform(40), uniform(30), 0.05)
    assert result.gap.item() <= 1e-6
    assert result.value.item() == pytest.approx(reference.cost, abs=1e-6 + reference.gap)


def test_a_batch_reaches_its_tolerance():
    costs = torch.stack([random_costs(20, 20, seed=seed, scale=10.0) for seed in range(3)])
    assert (sinkhorn(costs, 0.1, n_iter=1, tol=1e-5).gap <= 1e-5).all()


def test_a_tolerance_out_of_reach_is_said(monkeypatch):
    monkeypatch.setattr(module, "_LARGEST_N_ITER", 20)
    # Not to be had in double precision.
    costs = random_costs(40, 30, scale=100.0)
    with pytest.warns(SinkhornConvergenceWarning, match="stopped after 20 rounds at a gap of"):
        result = sinkhorn(costs, 0.01, tol=1e-15)
    assert result.gap > 1e-15
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sinkhorn(costs, 0.01)


@pytest.mark.parametrize(
    "costs, options, message",
    [
        (torch.ones(3), {}, r"matrices with entries, got shape \(3,\)"),
        (torch.ones(0, 3), {}, r"matrices with entries, got shape \(0, 3\)"),
        (torch.ones(2, 2), {"reg": 0.0}, "reg must be a finite number above 0, got 0.0"),
        (torch.ones(2, 2), {"reg": math.nan}, "reg must be a finite number above 0, got nan"),
        (torch.ones(2, 2), {"n_iter": 0}, "n_iter must be at least 1, got 0"),
        (torch.ones(2, 2), {"tol": 0.0}, "tol must be above 0, got 0.0"),
    ],
)
def test_arguments_out_of_range(costs, options, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn(costs, **{"reg": 0.1, **options})
