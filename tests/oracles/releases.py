"""Textbook mechanisms in floating point, each released many times at once."""

import numpy as np


def randomised_response(bit, n_trials, random_state):
    """Return a bit that is turned with probability 1/4: epsilon is the logarithm of 3."""
    return bit ^ (np.random.default_rng(random_state).random(n_trials) < 0.25)


def laplace(value, n_trials, random_state):
    """Return a number with Laplace noise of scale 1."""
    return value + np.random.default_rng(random_state).laplace(size=n_trials)


def gaussian(value, n_trials, random_state):
    """Return a number with normal noise of scale 1."""
    return value + np.random.default_rng(random_state).standard_normal(n_trials)


def gaussian_vector(value, n_trials, random_state):
    """Return a vector with normal noise of scale 1 on every number."""
    noise = np.random.default_rng(random_state).standard_normal((n_trials, len(value)))
    return value + noise
