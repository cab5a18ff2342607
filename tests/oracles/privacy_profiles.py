"""Exact privacy parameters of textbook mechanisms."""

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr


def gaussian_delta(epsilon, mu):
    """Return the delta of Gaussian noise whose sensitivity is mu standard deviations."""
    far = math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    return float(ndtr(mu / 2 - epsilon / mu) - far)


def gaussian_epsilon(delta, mu):
    """Return the smallest epsilon that goes with a delta."""
    return brentq(lambda epsilon: gaussian_delta(epsilon, mu) - delta, 0.0, 200.0, xtol=1e-12)


def gaussian_mu(epsilon, delta):
    """Return the sensitivity in standard deviations that (epsilon, delta) allows."""
    return brentq(lambda mu: gaussian_delta(epsilon, mu) - delta, 1e-3, 20.0, xtol=1e-12)
