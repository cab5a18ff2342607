"""Steps towards the distributions nearest to a release: Adam, on logits of columns."""

from itertools import combinations

import numpy as np

__all__ = ["Adam", "column_slices", "pair_tables", "rate_of_step", "softmax", "through_softmax"]

_WARM_UP = 20
# Decay of Adam's means of gradients and of their squares.
_DECAYS = (0.9, 0.99)
_SMALLEST = 1e-12


class Adam:
    """Steps against gradients in units of their own size (D. P. Kingma and J. Ba, 2015).

    Parameters
    ----------
    parameters : list of ndarray
        Changed in place.
    """

    def __init__(self, parameters):
        self._parameters = parameters
        self._means = [np.zeros_like(part) for part in parameters]
        self._squares = [np.zeros_like(part) for part in parameters]
        self._n_steps = 0

    def descend(self, gradients, rate):
        """Make a step."""
        self._n_steps += 1
        # Means begin at zero; these are the weights of the gradients in them.
        mean_weight, square_weight = (1 - decay**self._n_steps for decay in _DECAYS)
        for part, gradient, mean, square in zip(
            self._parameters, gradients, self._means, self._squares, strict=True
        ):
            mean += (1 - _DECAYS[0]) * (gradient - mean)
            square += (1 - _DECAYS[1]) * (gradient**2 - square)
            size = np.sqrt(square / square_weight) + np.float32(_SMALLEST)
            part -= np.float32(rate) * mean / mean_weight / size


def column_slices(sizes):
    """Return where each column's groups are among those of all."""
    stops = np.cumsum(sizes).tolist()
    return [slice(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


def pair_tables(pairs, sizes):
    """Return the tables of all pairs in one above the diagonal."""
    columns = column_slices(sizes)
    tables = np.zeros((sum(sizes), sum(sizes)), dtype=np.float32)
    begin = 0
    for a, b in combinations(range(len(sizes)), 2):
        end = begin + sizes[a] * sizes[b]
        tables[columns[a], columns[b]] = pairs[begin:end].reshape(sizes[a], sizes[b])
        begin = end
    return tables


def softmax(logits, columns):
    """Return the distribution of each column that rows of logits stand for."""
    shares = np.empty_like(logits)
    for column in columns:
        part = logits[:, column]
        part = np.exp(part - part.max(axis=1, keepdims=True))
        shares[:, column] = part / part.sum(axis=1, keepdims=True)
    return shares


def through_softmax(slopes, shares, columns):
    """Return the gradient at logits of a function with such a gradient at the distributions."""
    gradient = shares * slopes
    for column in columns:
        gradient[:, column] -= shares[:, column] * gradient[:, column].sum(axis=1, keepdims=True)
    return gradient


def rate_of_step(step, n_iter):
    """Return the share of the learning rate for a step: rising at first, and then falling."""
    falling = 0.5 * (1 + np.cos(np.pi * step / n_iter))
    return min(1.0, (step + 1) / _WARM_UP) * (0.05 + 0.95 * falling)
