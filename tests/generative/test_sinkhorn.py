"""Entropic transport between small samples: against POT, closed forms and certificates."""

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.generative._torch import transport as module
from skdpot.generative._torch.transport import sinkhorn
from skdpot.transport import entropic_transport, smallest_tolerance
from tests.oracles.devices import DEVICES, NEEDS_CUDA

pytestmark = pytest.mark.experiment

PRECISIONS = [torch.float32, torch.float64]


def random_costs(n, m, *, seed=0, scale=1.0, dtype=torch.float64, device="cpu"):
    rng = np.random.default_rng(seed)
    costs = ((rng.normal(size=(n, 1, 2)) - rng.normal(size=(m, 2))) ** 2).sum(axis=2)
    return torch.tensor(scale * costs).to(device=device, dtype=dtype)


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
def test_value_and_plan_are_those_of_pot(device, reg):
    costs = random_costs(8, 6)
    mu, nu = (torch.tensor(uniform(size)) for size in costs.shape)
    expected, plan = value_by_pot(costs, mu, nu, reg)
    result = sinkhorn(costs.to(device), reg, n_iter=40)
    assert result.value.item() == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(result.plan.cpu(), plan, atol=1e-8)
    density = torch.exp((result.f[:, None] + result.g - costs.to(device)) / reg).cpu()
    np.testing.assert_allclose(mu[:, None] * nu * density, plan, atol=1e-8)
    np.testing.assert_allclose(result.plan.sum(dim=1).cpu(), mu, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_one_point_on_each_side(device, dtype):
    result = sinkhorn(torch.tensor([[3.5]], dtype=dtype, device=device), 0.1)
    assert result.value.item() == pytest.approx(3.5, rel=1e-6)
    assert result.plan.item() == pytest.approx(1)


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
)
def test_values_are_not_above_the_cost_however_early_rounds_stop(
    dtype, shape, seed, scale, reg, n_iter
):
    """They are dual objectives; and plans have the right sums of rows."""
    costs = random_costs(*shape, seed=seed, scale=scale, dtype=dtype)
    result = sinkhorn(costs, reg, n_iter=n_iter)
    reference = exact(costs, *map(uniform, shape), reg)
    rounding = 20 * torch.finfo(dtype).eps * (costs.max().item() + reg)
    assert result.value.item() <= reference.cost + reference.gap + rounding
    np.testing.assert_allclose(result.plan.sum(dim=1), uniform(shape[0]), rtol=1e-4)


def test_more_rounds_are_nearer():
    costs = random_costs(30, 30, scale=30.0)
    reference = exact(costs, uniform(30), uniform(30), 0.05)
    values = [sinkhorn(costs, 0.05, n_iter=n_iter).value.item() for n_iter in (1, 4, 16, 64)]
    errors = [reference.cost - value for value in values]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4 < errors[0]


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_is_enough_for_costs_of_images(device):
    costs = random_costs(50, 50, scale=100.0, device=device) + 100
    double, single = sinkhorn(costs, 0.5, n_iter=40), sinkhorn(costs.float(), 0.5, n_iter=40)
    assert single.value.item() == pytest.approx(double.value.item(), rel=1e-6)
    assert (single.plan - double.plan).abs().sum() < 5e-3
    assert single.plan.dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("n_iter", [1, 2, 16])
def test_tiny_regularisation_and_large_costs_stay_finite(device, dtype, n_iter):
    costs = random_costs(30, 40, scale=1e4, dtype=dtype, device=device)
    result = sinkhorn(costs, 1e-2, n_iter=n_iter)
    transport = ot.emd2(uniform(30), uniform(40), costs.cpu().double().numpy())
    assert result.plan.isfinite().all()
    np.testing.assert_allclose(result.plan.sum(dim=1).cpu(), uniform(30), rtol=1e-4)
    assert result.value.item() <= transport + 1e-2 * math.log(40) + 1e-5 * costs.max().item()


@pytest.mark.parametrize("seed", range(10))
def test_scalings_stay_in_the_range_of_single_precision(monkeypatch, seed):
    """However many updates a kernel is kept for, however far it is from its marginals."""
    monkeypatch.setattr(module, "_KEPT_UPDATES", 500)
    generator = torch.Generator().manual_seed(seed)
    costs = 10.0**seed * torch.rand(20, 30, generator=generator)
    result = sinkhorn(costs, 1e-2, n_iter=1)
    for found in (result.f, result.g, result.plan, result.value):
        assert found.isfinite().all()
    rows = torch.full((20,), 1 / 20)
    torch.testing.assert_close(result.plan.sum(dim=1), rows, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_less_than_single_precision_is_refused(dtype):
    with pytest.raises(ValueError, match="single or double precision, got torch"):
        sinkhorn(torch.ones(2, 2).to(dtype), 0.1)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_bits_every_time(device):
    costs = random_costs(30, 20, scale=100.0, dtype=torch.float32, device=device)
    first, again = sinkhorn(costs, 0.05), sinkhorn(costs.clone(), 0.05)
    assert torch.equal(first.plan, again.plan) and torch.equal(first.value, again.value)


def test_no_operation_depends_on_values():
    """Tensors without values would raise where a number or a branch were made of them."""
    assert sinkhorn(torch.empty(5, 4, device="meta"), 0.1).plan.shape == (5, 4)


@NEEDS_CUDA
def test_nothing_waits_for_the_gpu():
    costs = random_costs(20, 20, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        sinkhorn(costs, 0.1)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    "costs, options, message",
    [
        (torch.ones(3), {}, r"a matrix with entries, got shape \(3,\)"),
        (torch.ones(0, 3), {}, r"a matrix with entries, got shape \(0, 3\)"),
        (torch.ones(2, 2), {"reg": 0.0}, "reg must be a finite number above 0, got 0.0"),
        (torch.ones(2, 2), {"reg": math.nan}, "reg must be a finite number above 0, got nan"),
        (torch.ones(2, 2), {"n_iter": 0}, "n_iter must be at least 1, got 0"),
        (torch.ones(2, 2, 2), {}, r"a matrix with entries, got shape \(2, 2, 2\)"),
    ],
)
def test_arguments_out_of_range(costs, options, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn(costs, **{"reg": 0.1, **options})
