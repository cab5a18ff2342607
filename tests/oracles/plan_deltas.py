"""The delta of a plan at an epsilon: the counterpart of `plan_epsilon`, from the same parts."""

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from skdpot.privacy.accounting import (
    failure_delta,
    pure_epsilon,
    renyi_divergence,
    squared_gaussian_mu,
)
from skdpot.privacy.accounting.gaussian import gaussian_delta
from skdpot.privacy.accounting.parts import Parts
from skdpot.privacy.accounting.plans import _ORDERS as ORDERS
from skdpot.privacy.accounting.pricing import composed_delta, directed


def plan_delta(event, epsilon, *, neighbouring):
    """Return an upper bound, at most 1, on the delta of a plan at a finite epsilon."""
    mu = math.sqrt(squared_gaussian_mu(event))
    bounds = [
        0.0 if pure_epsilon(event) <= epsilon else 1.0,
        gaussian_delta(epsilon, mu) if mu < math.inf else 1.0,
    ]
    for parts in Parts.alternatives(event, neighbouring):
        if parts.rho == 0:
            bounds.append(_of_pairs(parts, epsilon))
        else:
            bounds.append(_separate_delta(parts, epsilon))
            divergences = renyi_divergence(event, ORDERS, neighbouring)
            bounds.append(_from_renyi(divergences, epsilon))
    failure = min(failure_delta(event), 1.0)
    return float(failure + (1 - failure) * min(bounds))


def _of_pairs(parts, epsilon):
    """Return the delta of the pairs at epsilon, and 0 if there are none."""
    directions = directed(parts.pairs, parts.neighbouring)
    return max((composed_delta(pairs, epsilon) for pairs in directions), default=0.0)


def _separate_delta(parts, epsilon):
    """Return the sum of the deltas of the pairs and of what is zero-concentrated."""
    divergences = parts.xi + parts.rho * ORDERS

    def price(log_odds):
        share = float(expit(log_odds))
        of_pairs = _of_pairs(parts, share * epsilon)
        return of_pairs + _from_renyi(divergences, (1 - share) * epsilon)

    options = {"bounds": (-12.0, 12.0), "method": "bounded", "options": {"xatol": 1.0}}
    return float(minimize_scalar(price, **options).fun)


def _from_renyi(divergences, epsilon):
    """Return the best delta at epsilon that follows from Renyi divergences."""
    log_deltas = (ORDERS - 1) * (divergences - epsilon + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    return min(1.0, math.exp(min(0.0, float(log_deltas.min()))))
