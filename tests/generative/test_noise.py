"""Noise on tensors: its law, where it is drawn, and what reproduces it."""

import pytest
import torch
from scipy.stats import kstest

from skdpot.generative._torch import steps as module
from skdpot.generative._torch.steps import normal_noise
from skdpot.privacy.random import make_source
from tests.oracles.devices import DEVICES

# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4


def draw(shape=(100, 300), std=1.0, device="cpu", dtype=torch.float64, **options):
    return normal_noise(shape, std, device=device, dtype=dtype, **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("std", [0.01, 1.0, 50.0])
def test_noise_is_normal_with_this_scale_and_no_other(device, std, seed):
    values = draw(std=std, device=device, random_state=seed).cpu().ravel()
    assert kstest(values / std, "norm").pvalue > RARE
    for factor in (0.9, 1.1):
        assert kstest(values / (std * factor), "norm").pvalue < RARE


@pytest.mark.parametrize("device", DEVICES)
def test_shape_type_and_place_are_what_was_asked_for(device):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for shape in ((2, 3), (), (0, 4), 5):
            noise = draw(shape, device=device, dtype=dtype)
            assert noise.shape == torch.empty(shape).shape
            assert (noise.dtype, noise.device.type) == (dtype, device)


@pytest.mark.parametrize("device", DEVICES)
def test_seeds_reproduce_and_sources_advance(device, seed):
    first = draw((5,), device=device, random_state=seed)
    again = draw((5,), device=device, random_state=seed)
    other = draw((5,), device=device, random_state=seed + 1)
    assert torch.equal(first, again) and not torch.equal(first, other)
    source = make_source(seed)
    steps = [draw((5,), device=device, random_state=source) for _ in range(3)]
    assert torch.equal(steps[0], first)
    assert len({value for step in steps for value in step.tolist()}) == 15


@pytest.mark.parametrize("device", DEVICES)
def test_noise_does_not_repeat_and_ignores_the_seed_of_torch(device):
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        draws.append(draw((5,), device=device))
    assert not torch.equal(*draws)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    draw((5,), device=device)
    assert torch.equal(torch.rand(1), expected)


def test_generator_of_a_device_is_seeded_by_the_source(seed):
    """The path of a GPU, on the generator that every machine has."""
    device = torch.device("cpu")
    first = module._draw_by_generator(make_source(seed), (200, 100), device)
    assert torch.equal(first, module._draw_by_generator(make_source(seed), (200, 100), device))
    assert kstest(first.ravel(), "norm").pvalue > RARE
    fresh = {float(module._draw_by_generator(make_source(), (), device)) for _ in range(50)}
    assert len(fresh) == 50


def test_noise_on_a_cpu_has_more_than_the_seeds_of_its_generator(monkeypatch):
    """PyTorch's own generator there knows 2**32 seeds, so it must not be asked."""
    one, other = (torch.Generator().manual_seed(7 + (k << 32)) for k in (0, 1))
    assert torch.equal(torch.randn(9, generator=one), torch.randn(9, generator=other))
    monkeypatch.setattr(module, "_draw_by_generator", None)
    assert draw((3,)).shape == (3,)


def test_no_noise_is_zero():
    assert torch.equal(draw((4,), std=0.0), torch.zeros(4, dtype=torch.float64))


@pytest.mark.parametrize("std", [-1.0, float("nan"), float("inf")])
def test_impossible_deviations_are_refused(std):
    with pytest.raises(ValueError, match="std must be a finite number of at least 0"):
        draw(std=std)


def test_impossible_states_are_refused():
    with pytest.raises(ValueError, match="random_state must be None"):
        draw(random_state="seed")
