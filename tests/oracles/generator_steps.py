"""Single steps of a generator's training, with the network and the records that a test chooses."""

import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch

from skdpot.generative._torch import training
from skdpot.generative._torch.networks import RowGenerator
from skdpot.generative._torch.steps import NoisyGradients, Settings
from skdpot.generative._torch.training import STEPS
from skdpot.privacy.noise import GaussianMechanism
from skdpot.published._gradient_generator import step_vector
from tests.oracles.gradient_generators import make_gradient_generator

# What is released.
WAYS = {"per image": "per_image", "per record": "per_record"}
# All points are near the first, and far from the second.
NEAR, FAR = [-1.0, -1.0], [1.0, 1.0]


class Recorder:
    """Takes the place of noise: keeps the vectors that are to be released, and adds nothing."""

    def __init__(self):
        self.vectors = []

    def __call__(self, parts):
        self.vectors.append(torch.cat([part.detach().double().reshape(-1) for part in parts]))
        return [part.detach().double() for part in parts]


def make_step(
    way,
    *,
    neighbouring="add_remove",
    n_features=2,
    n_classes=0,
    batch_size=4,
    debias=0.5,
    reg=0.5,
    l1_weight=0.0,
    class_scale=0.5,
    clip_norm=1.0,
    noise_multiplier=1.0,
    centre=0.0,
    spread=0.5,
    release=None,
    network=None,
    device="cpu",
    seed=0,
):
    """Return a step, how its vector is made, and what it hands to its noise.

    The points are around a centre, all of them there with a spread of 0.
    """
    made = step_vector(WAYS[way], clip_norm, batch_size, neighbouring)
    vector = SimpleNamespace(
        **dict(zip(("sensitivity", "loss_weight", "count_weight"), made, strict=True))
    )
    settings = Settings(
        n_features=n_features,
        n_classes=n_classes,
        latent_dim=3,
        batch_size=batch_size,
        debias=debias,
        reg=reg,
        l1_weight=l1_weight,
        class_scale=class_scale,
        clip_norm=clip_norm,
        per_point=way == "per image",
        loss_weight=vector.loss_weight,
        count_weight=vector.count_weight,
        count_noise=noise_multiplier * vector.sensitivity / (vector.count_weight or math.inf),
    )
    if network is None:
        network = around(centre, spread, settings, seed)
    generator = torch.Generator(device=device).manual_seed(seed)
    release = Recorder() if release is None else release
    step = STEPS[WAYS[way]](settings, network.to(device), release, generator)
    return step, vector, release


def around(centre, spread, settings, seed):
    """Return a network whose points are around a centre."""
    layer = torch.nn.Linear(settings.latent_dim + settings.n_classes, settings.n_features)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        layer.weight.normal_(generator=generator).mul_(spread)
        layer.bias.fill_(centre)
    return RowGenerator(layer, settings.n_features)


def batch_of(points, labels=None, device="cpu"):
    """Return a batch of records; one without records is as wide as the others."""
    rows = torch.as_tensor(points, dtype=torch.float32, device=device)
    codes = None if labels is None else torch.as_tensor(labels, dtype=torch.long, device=device)
    return rows, codes


def vector_for(way, points, labels=None, **options):
    """Return what a fresh step hands to its noise, and how that was made."""
    step, vector, recorder = make_step(way, **options)
    step.backpropagate(batch_of(points, labels))
    (released,) = recorder.vectors
    return released.numpy(), vector


def values_of(way, records, **options):
    """Return what a step near one corner hands to its noise, and the declared sensitivity."""
    clip_norm = 0.05 if way == "per record" else 1e-3
    near = {"clip_norm": clip_norm, "batch_size": 3, "centre": -0.9, "spread": 0.0}
    released, vector = vector_for(way, np.reshape(records, (-1, 2)), **near | options)
    return released, vector.sensitivity


def with_noise(rows, multiplier, sensitivity, source, *, on_gpu=False, secure=False):
    """Return vectors with the noise of steps.

    Without a GPU, noise that is drawn on one is drawn by the generator that every machine has.
    """
    mechanism = GaussianMechanism.from_noise_multiplier(
        multiplier, sensitivity, n_coordinates=rows.size
    )
    has_gpu = on_gpu and torch.cuda.is_available()
    release = NoisyGradients(mechanism, source, torch.device("cuda" if has_gpu else "cpu"), secure)
    values = torch.as_tensor(rows, device=release.device)
    if has_gpu or not on_gpu:
        return release([values])[0].cpu().numpy()
    granularity = mechanism.granularity
    whole = torch.floor(values / granularity + 0.5).reshape(-1) + release._integer_noise(
        values.reshape(-1)
    )
    return (whole * granularity).reshape(values.shape).numpy()


def noise_of_training(way, neighbouring, epsilon, delta, n_steps, seed):
    """Return the noise of all steps of a training, in units of the declared sensitivity."""
    noise = []

    class Watched(NoisyGradients):
        def _with_noise(self, values):
            released = super()._with_noise(values)
            if self.mechanism is not None:
                noise.append((released - values).numpy())
            return released

    with mock.patch.object(training.steps, "NoisyGradients", Watched):
        make_gradient_generator(
            epsilon=epsilon, delta=delta, gradient=WAYS[way], neighbouring=neighbouring,
            clip_norm=0.7, n_iter=n_steps, sampling_rate=1.0, batch_size=8,
            network=torch.nn.Linear, random_state=seed,
        ).fit(np.random.default_rng(0).uniform(size=(20, 8)))  # fmt: skip
    assert len(noise) == n_steps
    return np.ravel(noise) / step_vector(WAYS[way], 0.7, 8, neighbouring)[0]
