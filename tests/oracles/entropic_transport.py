"""Entropic transport by the plainest iteration in the log domain, for many problems at a time."""

import numpy as np
from scipy.special import logsumexp


def soft_minimum(values, reg, axis):
    """Return ``-reg log(mean(exp(-values / reg)))`` along an axis."""
    return -reg * (logsumexp(-values / reg, axis=axis) - np.log(values.shape[axis]))


def entropic_transport(costs, reg, tol=1e-10, n_iter=100_000):
    """Return dual values and plans between uniform weights; the penalty is relative to these.

    `costs` may have leading axes, one problem each. The value is a lower bound that is off by what
    the potentials' last change was, at most.
    """
    on_columns = np.zeros(costs.shape[:-2] + costs.shape[-1:])
    for _ in range(n_iter):
        on_rows = soft_minimum(costs - on_columns[..., None, :], reg, axis=-1)
        last, on_columns = on_columns, soft_minimum(costs - on_rows[..., :, None], reg, axis=-2)
        if np.abs(on_columns - last).max() < tol:
            break
    else:
        raise RuntimeError("Sinkhorn's algorithm did not converge.")
    slack = on_rows[..., :, None] + on_columns[..., None, :] - costs
    plans = np.exp(slack / reg) / (costs.shape[-1] * costs.shape[-2])
    return on_rows.mean(axis=-1) + on_columns.mean(axis=-1), plans
