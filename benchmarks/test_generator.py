"""Ordinary models that learn from private digits, and how fast these are made.

Run with ``SKDPOT_MNIST=mnist.npz OMP_NUM_THREADS=1 python -m pytest
benchmarks/test_generator.py -m benchmark -s``; with SKDPOT_PICTURES=folder grids of digits
are kept there. Nothing is asserted about time or accuracy. Every row trains a generator on the
60,000 images, draws 10,000 images from it, and trains classifiers on these, which are tested on
real images. On one core of a CPU all rows take an hour and a half.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from benchmarks.images import load_images
from skdpot.published import published_epsilon, sound_epsilon
from tests.oracles.gradient_generators import make_gradient_generator

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif("SKDPOT_MNIST" not in os.environ, reason="SKDPOT_MNIST names no archive"),
    pytest.mark.filterwarnings("default"),
]

N_DRAWN = 10_000
# Gradients of points release less with larger samples of records; sums over records release more.
OF_POINTS = {
    "gradient": "per_image",
    "sampling_rate": 1 / 1200,
    "n_iter": 800,
    "l1_weight": 1.0,
    "learning_rate": 3e-4,
}
OF_RECORDS = {"gradient": "per_record"}
ROWS = {
    "per_image": OF_POINTS | {"clip_norm": 0.5},
    "joint": OF_POINTS | {"gradient": "images"},
    "per_record": OF_RECORDS,
}
EPSILONS = (10.0, 1.0)
# With a small network, so that all of them take a quarter of an hour.
OF_PERCEPTRONS = OF_RECORDS | {"network": "mlp"}
ABLATIONS = {
    "at points": OF_POINTS | {"network": "mlp", "gradient": "images"},
    "perceptron": OF_PERCEPTRONS,
    "perceptron, debias=0": OF_PERCEPTRONS | {"debias": 0.0},
    "perceptron, debias=1": OF_PERCEPTRONS | {"debias": 1.0},
    "perceptron, l1_weight=1": OF_PERCEPTRONS | {"l1_weight": 1.0},
    "perceptron, reg=8": OF_PERCEPTRONS | {"reg": 8.0},
    **{
        f"perceptron, {optimizer} {rate:g}": OF_PERCEPTRONS
        | {"optimizer": optimizer, "learning_rate": rate}
        for optimizer, rate in [
            ("adam", 1e-4),
            ("adam", 5e-3),
            ("sgd", 1e-4),
            ("sgd", 1e-3),
            ("sgd", 1e-2),
        ]
    },
}


@pytest.fixture(scope="module")
def digits():
    return load_images(os.environ["SKDPOT_MNIST"])


def train(digits, epsilon, **parameters):
    generator = make_gradient_generator(
        epsilon=epsilon, classes=range(10), image_shape=digits.image_shape, bounds=(0, 1),
        random_state=0, **parameters,
    )  # fmt: skip
    started = time.perf_counter()
    generator.fit(digits.data, digits.target)
    return generator, time.perf_counter() - started


def accuracies(digits, X, y):
    """Return what classifiers trained on these images get right of real ones."""
    from benchmarks.networks import Convolutions

    models = [
        LogisticRegression(C=0.1, max_iter=200),
        MLPClassifier(early_stopping=True, random_state=0),
        Convolutions(digits.image_shape),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = [model.fit(X, y) for model in models]
    return [np.mean(model.predict(digits.data_test) == digits.target_test) for model in fitted]


def keep_picture(generator, digits, name):
    """Save a grid of digits, a class a column, where a folder is given."""
    if "SKDPOT_PICTURES" in os.environ:
        from matplotlib import pyplot as plt

        X, _ = generator.sample(y=np.tile(np.arange(10), 8))
        height, width = digits.image_shape
        grid = X.reshape(8, 10, height, width).transpose(0, 2, 1, 3).reshape(8 * height, -1)
        file = Path(os.environ["SKDPOT_PICTURES"], name.replace(", ", "_") + ".png")
        plt.imsave(file, grid, cmap="gray", vmin=0, vmax=1)


def report(digits, name, epsilon, parameters):
    generator, seconds = train(digits, epsilon, **parameters)
    keep_picture(generator, digits, f"{name}, {epsilon:g}")
    shares = accuracies(digits, *generator.sample(N_DRAWN))
    values = " / ".join(f"{100 * share:.1f}" for share in shares)
    speed = generator.n_iter_ / seconds
    print(
        f"\n{name}, epsilon {epsilon:g}: LogReg/MLP/CNN {values} %; {generator.n_iter_} steps, "
        f"{speed:.1f} a second; noise multiplier {generator.noise_multiplier_:.3g}"
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ROWS)
def test_table(digits, name, epsilon):
    report(digits, name, epsilon, ROWS[name])


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations(digits, name):
    report(digits, name, 10.0, ABLATIONS[name])


def test_bias_and_variance_over_debias(digits, n_drawn=300):
    """Gradients of the loss at a network's weights, without noise."""
    import torch

    from skdpot.generative._torch.steps import latents
    from skdpot.generative._torch.transport import GroundCost, semi_debiased

    generator, _ = train(digits, None, **OF_RECORDS | {"n_iter": 100, "network": "mlp"})
    network, settings = generator._network, generator._settings
    draws = torch.Generator().manual_seed(0)
    records = torch.as_tensor(digits.data) * 2 - 1
    codes = torch.as_tensor(digits.target.astype(np.int64))

    def gradient(debias, n=50, reg=0.05):
        size = n + int(n * debias)
        labels = torch.randint(10, (size,), generator=draws)
        points = network(latents(labels, settings.latent_dim, 10, draws))
        batch = torch.randint(len(records), (n,), generator=draws)
        _, _, private_gradient, public_gradient = semi_debiased(
            points.detach(), labels, records[batch], codes[batch],
            n=n, cost=GroundCost(1.0, 15.0), reg=reg,
        )  # fmt: skip
        at_points = public_gradient.clone()
        at_points[:n] += private_gradient
        parts = torch.autograd.grad(points, list(network.parameters()), at_points)
        return torch.cat([part.reshape(-1) for part in parts])

    unbiased = torch.stack([gradient(1.0) for _ in range(n_drawn)]).mean(dim=0)
    for debias in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        drawn = torch.stack([gradient(debias) for _ in range(n_drawn)])
        variance = drawn.var(dim=0).sum()
        # Of the squared distance of two means, so much is there without any bias.
        squared = (drawn.mean(dim=0) - unbiased).square().sum() - 2 * variance / n_drawn
        print(
            f"\ndebias {debias:.1f}: bias {squared.clamp(min=0).sqrt():.1f}, "
            f"standard deviation {variance.sqrt():.1f}"
        )


def test_what_the_paper_prints():
    printed = {"batch_size": 50, "sampling_rate": 1 / 1200}
    for data, scale, steps, shares in [
        ("MNIST", 1.5, 160_000, "82.8 / 82.7 / 83.2"),
        ("Fashion-MNIST", 1.9, 280_000, "75.1 / 74.6 / 71.1"),
    ]:
        stated = published_epsilon(scale, 1e-5, steps=steps, **printed)
        holds = sound_epsilon(scale, 1e-5, steps=steps, **printed)
        print(f"\n{data}, as printed: {shares} % at epsilon {stated:.1f}; sound: {holds:.0f}")


def test_real_images(digits):
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(digits.data), N_DRAWN, replace=False)
    values = accuracies(digits, digits.data[drawn], digits.target[drawn])
    print("\nreal images: " + " / ".join(f"{100 * share:.1f}" for share in values))


@pytest.mark.parametrize("gradient", ["per_image", "per_record"])
def test_steps_a_second(digits, gradient):
    import torch

    parameters = ROWS["per_record" if gradient == "per_record" else "joint"]
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        parameters = parameters | {"n_iter": 20, "sampling_rate": 1 / 1200, "device": device}
        generator, seconds = train(digits, None, **parameters)
        print(f"\n{gradient} on {device}: {generator.n_iter_ / seconds:.1f} steps a second")
