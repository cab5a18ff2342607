"""Multinomial logistic regression with offsets."""

import numpy as np
from scipy import optimize

_MAX_ITER = 40
_LITTLE = 1e-300


def minimise(
    features: np.ndarray,
    states: np.ndarray,
    offset: np.ndarray,
    penalties: np.ndarray,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Return slopes that minimise the penalised loss, and the loss of them without the penalty.

    `features` have a row for each feature, `offset` and slopes one for each state. Slopes are
    sought in coordinates in which the curvature is nearly the identity: that of a rare state is
    smaller.
    """
    n_states, n_rows = offset.shape
    width, own = len(features), np.arange(n_rows)
    if not width or not n_rows:
        found = softmax(offset)
        return np.zeros((n_states, width)), -np.log(found[states, own]).sum()
    shares = (np.bincount(states, minlength=n_states) + 1) / (n_rows + n_states)
    products = features @ features.T
    curvatures = (shares * (1 - shares))[:, None, None] * products + np.diag(penalties)
    roots = np.linalg.cholesky(curvatures)
    turns = np.linalg.inv(roots)

    def slopes_at(flat: np.ndarray) -> np.ndarray:
        return (flat.reshape(n_states, 1, width) @ turns)[:, 0]

    def evaluated(flat: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = slopes_at(flat)
        logits = slopes @ features
        logits += offset
        found = softmax(logits)
        loss = -np.log(found[states, own] + _LITTLE).sum()
        found[states, own] -= 1
        gradient = found @ features.T + penalties * slopes
        penalised = loss + 0.5 * (penalties * slopes**2).sum()
        return penalised, (turns @ gradient[:, :, None]).ravel()

    first = np.zeros((n_states, width)) if start is None else start
    result = optimize.minimize(
        evaluated, (first[:, None] @ roots).ravel(), jac=True, method="L-BFGS-B",
        options={"maxiter": _MAX_ITER, "maxcor": 8, "ftol": 1e-8},
    )  # fmt: skip
    slopes = slopes_at(result.x)
    return slopes, float(result.fun - 0.5 * (penalties * slopes**2).sum())


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities, a row for each state."""
    weights = logits - logits.max(axis=0, initial=-np.inf)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=0)
    return weights
