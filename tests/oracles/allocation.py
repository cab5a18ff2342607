"""Messages of a node of an allocation network, by bisection on the multiplier of its bounds."""

import numpy as np
from scipy.optimize import brentq


def amounts(family, parameters, pull, eta, z, multiplier):
    """Return the minimisers of each edge's part, given the node's multiplier."""
    pull = pull + multiplier
    if family == "log":
        a, c = parameters
        half = (c + (pull / eta - z)) / 2
        return np.maximum(-half + np.sqrt(half**2 - (pull * c - a) / eta + z * c), 0.0)
    a, b = (*parameters, 0.0)[:2]
    return np.maximum((eta * z + a - pull) / (eta + b), 0.0)


def node_message(family, parameters, pull, eta, z, least, cap):
    """Minimise ``sum -u(x) + <pull, x> + eta/2 |x - z|^2`` over the node's amounts.

    Utilities are ``a x - b x^2 / 2`` (linear without b), or ``a log(1 + x / c)``.
    """

    def total(multiplier):
        return amounts(family, parameters, pull, eta, z, multiplier).sum()

    free = total(0.0)
    if least <= free <= cap:
        return amounts(family, parameters, pull, eta, z, 0.0)
    bound, side = (cap, 1.0) if free > cap else (least, -1.0)
    far = 1.0
    while (total(side * far) - bound) * side > 0:
        far *= 2.0
    found = brentq(lambda m: total(m) - bound, min(0, side * far), max(0, side * far), xtol=1e-14)
    return amounts(family, parameters, pull, eta, z, found)


def project_rows(points, cap):
    """Return the projections of many rows onto ``x >= 0, sum(x) <= cap``, by sorting."""
    inside = np.maximum(points, 0.0)
    falling = -np.sort(-points, axis=1)
    excess = np.cumsum(falling, axis=1) - cap
    ranks = np.arange(1, points.shape[1] + 1)
    active = (falling > excess / ranks).sum(axis=1)
    shift = np.take_along_axis(excess, active[:, None] - 1, axis=1) / active[:, None]
    return np.where(inside.sum(axis=1, keepdims=True) > cap, np.maximum(points - shift, 0), inside)
