r"""
========================
Digits that nobody wrote
========================

The 1,797 digit images that come with scikit-learn are taken as private records: each image together
with its label. :class:`skdpot.DPSinkhornGenerator` trains a network that makes such images under
:math:`(\varepsilon, \delta)`-differential privacy. The network, and all images that it ever makes,
may be published.

How good are they? A logistic regression learns from synthetic digits only, and is tested on real
ones that were held out. Three ways of training are compared at one budget. And the training is done
once more with the accounting that it was published with, to see what is stated there, and what
holds.

It takes less than a minute on one core, and needs PyTorch.
"""

# %%
# What is declared
# ----------------
# A generator may not learn from records what everybody can see of it: the range of their values and
# all labels there may be are declared. So are the number of steps and the rate at which records are
# sampled for each, since the price depends on them. A rate that was made of the number of records
# would tell it.

import warnings
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative.theory import published_epsilon, sound_epsilon
from skdpot.privacy import NoGuaranteeWarning

EPSILON, DELTA = 8.0, 1e-5
BOUNDS, CLASSES = (0, 16), range(10)
SIDE = 8
N_SYNTHETIC = 2000


class Split(NamedTuple):
    """Digits to learn from, which are private, and digits that were held out."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def load_split(seed=0):
    """Return the digits, 30 % of them held out."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    return Split(X, y, X_test, y_test)


# %%
# A release and its ledger
# ------------------------
# A fit is charged before its first step, with all its steps. The seeds of this page make it look
# alike whenever it is built. A release that is to protect anybody leaves ``random_state`` at None;
# only then there is a ``privacy_guarantee_``. Mind the relation of the ledger: by default,
# neighbours of a generator's records have a record more or less.


def release_once(split, n_iter=20):
    """Train for a few steps, without a seed and on a ledger; return both."""
    ledger = PrivacyLedger(EPSILON, DELTA, neighbouring="add_remove")
    generator = DPSinkhornGenerator(
        EPSILON, DELTA, data_bounds=BOUNDS, classes=CLASSES, sampling_rate=1.0, n_iter=n_iter,
        ledger=ledger,
    )  # fmt: skip
    return generator.fit(split.X, split.y), ledger


# %%
# Three ways of training
# ----------------------
# A step compares generated digits with a sample of the real ones, by optimal transport, and moves
# the network along the gradient of the cost. What is released of the sample is
#
# - *per record:* a sum over records, of each of which a bounded part is taken. Noise is scaled to
#   that part, so that all digits in every step are the best sample;
# - *joint:* the gradient at the generated points, clipped as a whole. One record may turn all of
#   it, so that noise is scaled to its diameter, however many records there are. Only small samples
#   help, in which a record is seldom;
# - *per image:* as published, with each point's gradient clipped on its own. All of them may turn
#   with one record, too, so that this needs as much noise as the gradient of all 50 points does.

SAMPLED = {"sampling_rate": 0.05, "n_iter": 100}
WAYS = {
    "per record": {"gradient": "per_record", "sampling_rate": 1.0, "n_iter": 200},
    "joint": {"gradient": "per_image", "clipping": "joint", **SAMPLED},
    "per image": {"gradient": "per_image", "clipping": "per_image", **SAMPLED},
}
NO_NOISE = "per record, no noise"


class Made(NamedTuple):
    """A generator, digits that it made, and the accuracy of what learns from them."""

    generator: DPSinkhornGenerator
    X: np.ndarray
    y: np.ndarray
    accuracy: float


def accuracy(X, y, split):
    """Return how many held-out digits a logistic regression recognises."""
    model = LogisticRegression(max_iter=1000).fit(np.asarray(X) / BOUNDS[1], y)
    return model.score(split.X_test / BOUNDS[1], split.y_test)


def train(split, epsilon=EPSILON, seed=0, **options):
    """Train a generator, and learn from what it makes."""
    generator = DPSinkhornGenerator(
        epsilon, DELTA, data_bounds=BOUNDS, classes=CLASSES, latent_dim=4, random_state=seed,
        **options,
    )  # fmt: skip
    X, y = generator.fit(split.X, split.y).sample(N_SYNTHETIC)
    return Made(generator, X, y, accuracy(X, y, split))


def train_all(split, ways=None):
    """Train in all ways at the budget, and in the first one without noise."""
    ways = WAYS if ways is None else ways
    found = {name: train(split, **options) for name, options in ways.items()}
    return found | {NO_NOISE: train(split, epsilon=None, **ways["per record"])}


# %%
# What the paper states
# ---------------------
# The published accounting counts the gradient of each generated point as a query with a sample of
# its own. But a step has one sample, and a record that is in it may turn the gradients of all
# points (theory page, "What one record moves"). ``accounting="paper"`` adds the noise that the
# paper asks for, warns, and guarantees nothing; a ledger refuses it.


def train_as_published(split, **options):
    """Train with the published accounting; return what was made, and what the warning says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoGuaranteeWarning)
        made = train(split, accounting="paper", **(WAYS["per image"] | options))
    return made, str(caught[0].message)


def print_settings_of_paper():
    """Print what the paper states for its settings, what holds, and what a single step costs."""
    print(f"\n{'settings that are printed':28}{'stated':>8}{'holds':>8}{'one step':>10}")
    for name, noise_scale, steps in (("MNIST", 1.5, 160_000), ("Fashion-MNIST", 1.9, 280_000)):
        setting = {"batch_size": 50, "sampling_rate": 1 / 1200}
        stated = published_epsilon(noise_scale, DELTA, steps=steps, **setting)
        holds = sound_epsilon(noise_scale, DELTA, steps=steps, **setting)
        one_step = sound_epsilon(noise_scale, DELTA, steps=1, **setting)
        print(f"{name:28}{stated:8.1f}{holds:8.0f}{one_step:10.1f}")


def print_table(found, split):
    """Print accuracies beside that of learning from the real digits."""
    print(f"\n{'learned from':28}{'epsilon':>8}{'steps':>8}{'noise':>8}{'accuracy':>10}")
    print(f"{'real digits':52}{accuracy(split.X, split.y, split):10.2f}")
    for name, made in found.items():
        generator = made.generator
        epsilon = "none" if generator.epsilon is None else f"{generator.epsilon:g}"
        print(
            f"{name:28}{epsilon:>8}{generator.n_iter_:8}{generator.noise_multiplier_:8.2f}"
            f"{made.accuracy:10.2f}"
        )


def draw(split, found, n_columns=10):
    """Draw a real digit of every label, and one from every generator."""
    rows = {"real": (split.X, split.y)} | {name: (made.X, made.y) for name, made in found.items()}
    figure, axes = plt.subplots(
        len(rows), n_columns, figsize=(n_columns * 0.75, len(rows) * 0.85), layout="constrained"
    )
    for line, (name, (X, y)) in zip(axes, rows.items(), strict=True):
        for label, place in enumerate(line):
            image = X[np.flatnonzero(y == label % len(CLASSES))[label // len(CLASSES)]]
            place.imshow(image.reshape(SIDE, SIDE), cmap="gray_r", vmin=BOUNDS[0], vmax=BOUNDS[1])
            place.set(xticks=[], yticks=[])
            place.spines[:].set_visible(False)
        line[0].set_ylabel(name.replace(", ", ",\n"), rotation=0, ha="right", va="center")
    return figure


# %%
# Results
# -------
# Digits that are made by way of sums over records teach nearly as well as real ones: nine in ten
# are recognised, and little of what is missing is due to noise, since without any the network does
# not do much better. Gradients of whole samples drown in their noise, for these 1,257 records and
# this budget.
#
# "As published" there is half as much noise, and the epsilon is about 41, not 8. For the setting
# that the paper prints for MNIST, one step out of 160,000 already costs more than is stated for
# all.


def main():
    """Print the accuracies, the prices, and draw digits."""
    split = load_split()
    generator, ledger = release_once(split)
    print(generator.privacy_guarantee_)
    print(ledger.report())
    found = train_all(split)
    published, warning = train_as_published(split)
    found["as published"] = published
    print_table(found, split)
    print(warning)
    print_settings_of_paper()
    draw(split, found)
    plt.show()


if __name__ == "__main__":
    main()
