"""Multinomial logistic regression with offsets."""

import numpy as np
from scipy import optimize

_MAX_ITER = 60
# Iterations end when the gain is smaller: a hundredth of what a parameter gains by chance.
_GAIN = 0.005
_LITTLE = 1e-300


def minimise(
    features: np.ndarray,
    states: np.ndarray,
    offset: np.ndarray,
    penalties: np.ndarray,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Return the slopes that minimise the penalised loss, and their loss without the penalty.

    `features` have one row per feature; `offset` and slopes have one per state. Slopes are found in
    coordinates in which the curvature is nearly the identity. If all rows have the same
    probabilities, the curvature is a product of a matrix of states and one of features.
    """
    n_states, n_rows = offset.shape
    width, rows = len(features), np.arange(n_rows)
    if not width or not n_rows:
        found = softmax(offset)
        return np.zeros((n_states, width)), -np.log(found[states, rows]).sum()
    shares = (np.bincount(states, minlength=n_states) + 1) / (n_rows + n_states)
    products = features @ features.T
    sizes, axes = np.linalg.eigh(np.diag(shares) - np.outer(shares, shares))
    curvatures = np.maximum(sizes, 0)[:, None, None] * products + np.diag(penalties)
    roots = np.linalg.cholesky(curvatures)
    turns = np.linalg.inv(roots)

    def slopes_at(flat: np.ndarray) -> np.ndarray:
        return axes @ (flat.reshape(n_states, 1, width) @ turns)[:, 0]

    def evaluated(flat: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = slopes_at(flat)
        logits = slopes @ features
        logits += offset
        found = softmax(logits)
        loss = -np.log(found[states, rows] + _LITTLE).sum()
        found[states, rows] -= 1
        gradient = found @ features.T + penalties * slopes
        penalised = loss + 0.5 * (penalties * slopes**2).sum()
        return penalised, (turns @ (axes.T @ gradient)[:, :, None]).ravel()

    first = np.zeros((n_states, width)) if start is None else start
    result = optimize.minimize(
        evaluated, ((axes.T @ first)[:, None] @ roots).ravel(), jac=True, method="L-BFGS-B",
        options={"maxiter": _MAX_ITER, "maxcor": 8, "ftol": _GAIN / n_rows},
    )  # fmt: skip
    slopes = slopes_at(result.x)
    return slopes, float(result.fun - 0.5 * (penalties * slopes**2).sum())


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities, a row for each state."""
    weights = logits - logits.max(axis=0, initial=-np.inf)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=0)
    return weights
