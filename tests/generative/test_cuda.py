"""Trainings on a GPU, where there is one."""

import numpy as np
import pytest
import torch

from skdpot.generative._torch.training import Trainer
from tests.oracles.devices import NEEDS_CUDA
from tests.oracles.gradient_generators import make_gradient_generator

pytestmark = NEEDS_CUDA

KINDS = [{"gradient": name} for name in ("per_record", "per_image")]


@pytest.fixture
def digits():
    rng = np.random.default_rng(0)
    return rng.random((300, 64)), rng.integers(0, 3, 300)


def fit(digits, **parameters):
    options = {"n_iter": 10, "sampling_rate": 1.0, "classes": range(3), "random_state": 0}
    return make_gradient_generator(**{"epsilon": 10.0} | options | parameters).fit(*digits)


@pytest.mark.parametrize("secure_noise", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_trains_there_and_samples_anywhere(digits, kind, secure_noise):
    generator = fit(digits, device="cuda", secure_noise=secure_noise, image_shape=(8, 8), **kind)
    X, y = generator.sample(30)
    assert np.isfinite(X).all() and np.bincount(y).tolist() == [10, 10, 10]
    assert {w.device.type for w in generator._fitted.network.network.parameters()} == {"cpu"}
    np.testing.assert_allclose(
        generator.set_params(network__device="cpu").sample(30)[0], X, atol=1e-4
    )


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_it_is_the_training_of_the_cpu(digits, kind):
    losses = [
        fit(digits, epsilon=None, device=device, n_iter=1, debias=0.0, **kind).loss_curve_
        for device in ("cpu", "cuda")
    ]
    # The generated points differ, since each device has random numbers of its own.
    assert losses[0] == pytest.approx(losses[1], rel=0.3)


@pytest.mark.parametrize("secure_noise", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_step_waits_for_the_device(digits, kind, secure_noise, monkeypatch):
    made = []

    def step(trainer, *arguments):
        torch.cuda.set_sync_debug_mode("error" if made else "default")
        try:
            made.append(original(trainer, *arguments))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return made[-1]

    original = Trainer.step
    monkeypatch.setattr(Trainer, "step", step)
    fit(digits, device="cuda", secure_noise=secure_noise, sampling_rate=0.5, **kind)
    assert len(made) == 11
