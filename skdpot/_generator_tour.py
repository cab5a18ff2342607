"""The tour's third part: digits drawn from a private sketch, and a classifier trained on them."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from skdpot.generative import DPSinkhornGenerator

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
REAL = "real digits, without privacy"
N_SYNTHETIC = 2000
_CLASSES = range(10)
_BRIGHTEST = 16
_SHAPE = (8, 8)


def load() -> list[np.ndarray]:
    """Return private digits and held-out ones, with labels, from scikit-learn's 1,797 digits."""
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)


def synthetic_name(epsilon: float) -> str:
    """Return the name of a generator's digits in the table."""
    return f"synthetic digits, epsilon {epsilon:g}"


def outcomes(digits: list[np.ndarray]) -> dict[str, float]:
    """Return the accuracy on held-out digits after training on real and on synthetic ones."""
    X, X_test, y, y_test = digits

    def accuracy(X: np.ndarray, y: np.ndarray) -> float:
        model = LogisticRegression(max_iter=1000).fit(X / _BRIGHTEST, y)
        return model.score(X_test / _BRIGHTEST, y_test)

    found = {REAL: accuracy(X, y)}
    for epsilon in reversed(EPSILONS):
        generator = DPSinkhornGenerator(
            epsilon, DELTA, bounds=(0, _BRIGHTEST), classes=_CLASSES, image_shape=_SHAPE
        )
        found[synthetic_name(epsilon)] = accuracy(*generator.fit(X, y).sample(N_SYNTHETIC))
    return found


def table(found: dict[str, float]) -> str:
    """Return the outcomes as text."""
    lines = [
        "Synthetic data: a logistic regression learns from digits drawn from a private sketch",
        f"  {'learned from':<32}{'accuracy':>10}",
    ]
    lines += [f"  {name:<32}{accuracy:>10.2f}" for name, accuracy in found.items()]
    lines.append(
        "\nThe accuracy is that on real digits held out. A generator protects every digit and its "
        f"label by\nepsilon (and delta = {DELTA:g}), and so does whatever is learned from what it "
        "makes."
    )
    return "\n".join(lines)
