"""Single steps of a generator's training, with the network and the records that a test chooses."""

import math
from types import SimpleNamespace

import torch

from skdpot.generative._torch.networks import RowGenerator
from skdpot.generative._torch.steps import Settings
from skdpot.generative._torch.training import STEPS
from skdpot.published._gradient_generator import step_vector

# What is released.
WAYS = {"per image": "per_image", "per record": "per_record"}


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
