"""Releases of a step: vectors that are clipped, and the distribution of the noise on them."""

import math

import numpy as np
import pytest
import torch

from skdpot.generative._torch.steps import NoisyGradients, clip_rows, clip_whole
from skdpot.privacy.noise import GaussianMechanism, NoiseSource, make_source
from tests.oracles.devices import DEVICES

pytestmark = pytest.mark.experiment

DTYPES = [torch.float32, torch.float64]


# Clipping
# --------


def exact_norm(vector):
    """Return the norm of a tensor, in doubles whose sum of squares is rounded once."""
    numbers = vector.detach().double().reshape(-1).tolist()
    largest = max(map(abs, numbers), default=0.0)
    if largest == 0:
        return 0.0
    return largest * math.sqrt(math.fsum((x / largest) ** 2 for x in numbers))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("clip_norm", [1e-30, 1e-3, 0.5, 7.0, 1e30])
@pytest.mark.parametrize("size", [(1, 1), (5, 3), (50, 784)])
def test_nothing_is_longer_than_the_clip_norm(device, dtype, clip_norm, size, rng):
    for scale in (1e-40, 1e-3, 1.0, 1e3, 1e37):
        rows = torch.tensor(rng.standard_normal(size) * scale, dtype=dtype, device=device)
        assert exact_norm(clip_whole(rows, clip_norm)) <= clip_norm
        assert max(map(exact_norm, clip_rows(rows, clip_norm))) <= clip_norm


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_short_stays_as_it_is_and_what_is_long_keeps_its_direction(dtype, rng):
    rows = torch.tensor(rng.standard_normal((4, 3)), dtype=dtype)
    rows = rows / rows.norm(dim=1, keepdim=True) * torch.tensor([[0.1], [0.9], [2.0], [50.0]])
    found = clip_rows(rows, 1.0)
    assert found.dtype == dtype or found.dtype == torch.float64
    torch.testing.assert_close(found[:2].double(), rows[:2].double(), rtol=0, atol=0)
    expected = rows[2:] / rows[2:].norm(dim=1, keepdim=True)
    torch.testing.assert_close(found[2:].double(), expected.double(), rtol=1e-5, atol=0)
    whole = clip_whole(rows, 1.0)
    torch.testing.assert_close(whole.double(), (rows / rows.norm()).double(), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_no_number_is_clipped_like_any_other(dtype):
    odd = torch.tensor([[math.nan, 3.0], [math.inf, 1.0], [-math.inf, math.nan]], dtype=dtype)
    rows = clip_rows(odd, 1.0).double()
    expected = torch.tensor([0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(rows[0], expected, rtol=1e-5, atol=0)
    assert max(map(exact_norm, rows)) <= 1.0
    assert exact_norm(clip_whole(odd, 1.0)) <= 1.0
    assert clip_whole(torch.full((3, 2), math.nan, dtype=dtype), 1.0).abs().sum() == 0.0


def test_an_infinite_norm_clips_nothing():
    rows = torch.tensor([[1e30, -2.0]])
    assert torch.equal(clip_rows(rows, math.inf), rows)
    assert torch.equal(clip_whole(rows, math.inf), rows)


# Noise
# -----


def make_release(multiplier, sensitivity, n_coordinates, source, *, device="cpu", secure=False):
    mechanism = GaussianMechanism.from_noise_multiplier(
        multiplier, sensitivity, n_coordinates=n_coordinates
    )
    return NoisyGradients(mechanism, source, torch.device(device), secure), mechanism


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("secure", [False, True])
def test_what_is_released_lies_on_a_grid_that_tells_no_last_bits(device, secure, rng):
    """What is not on the grid would tell which values could have been there before."""
    values = torch.tensor(rng.standard_normal(500), device=device)
    release, mechanism = make_release(1.0, 2.0, 500, make_source(0), device=device, secure=secure)
    (noisy,) = release([values])
    assert ((noisy / mechanism.granularity) % 1 == 0).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("secure", [False, True])
def test_what_is_no_number_is_released_as_one(device, secure):
    values = torch.tensor([math.nan, 1.0], device=device)
    release, _ = make_release(1.0, 1.0, 2, make_source(0), device=device, secure=secure)
    (noisy,) = release([values])
    assert noisy.isfinite().all()


def test_parts_are_one_vector_with_one_noise():
    """The noise of each coordinate is its own, in whatever part that is."""
    release, mechanism = make_release(1.0, 1.0, 7, make_source(5))
    noisy = release([torch.zeros(2, 2), torch.tensor(0.0), torch.zeros(2)])
    together = torch.cat([part.reshape(-1) for part in noisy]).numpy()
    expected = mechanism.release(np.zeros(7), make_source(5))
    np.testing.assert_array_equal(together, expected)
    assert len(set(together)) == 7


def test_noise_is_drawn_anew_for_every_release_and_from_a_cryptographic_source():
    class Counted(NoiseSource):
        seeded = False

        def __init__(self, inner):
            self.inner = inner
            self.n_drawn = 0

        def for_user(self, index):
            raise NotImplementedError

        def _words(self, count):
            self.n_drawn += count
            return self.inner._words(count)

    source = Counted(make_source())
    release, _ = make_release(1.0, 1.0, 100, source)
    first, second = release([torch.zeros(100)])[0], release([torch.zeros(100)])[0]
    assert source.n_drawn >= 200
    assert not (first == second).any()


def test_a_longer_vector_than_was_accounted_for_is_refused():
    release, _ = make_release(1.0, 1.0, 3, make_source(0))
    with pytest.raises(ValueError, match="n_coordinates=3"):
        release([torch.zeros(4)])


def test_gradients_do_not_flow_through_a_release():
    release, _ = make_release(1.0, 1.0, 3, make_source(0))
    values = torch.zeros(3, requires_grad=True)
    assert not release([values])[0].requires_grad
