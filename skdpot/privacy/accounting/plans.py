"""The price of a plan: of releases that are declared together beforehand.

Every release is replaced by a pair of distributions that dominates its outputs on two neighbours.
The pairs are composed exactly, and the price of the composition is rounded up. A release with only
a known Renyi divergence (zero-concentrated privacy) is priced by that.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from skdpot.privacy.accounting.gaussian import gaussian_epsilon
from skdpot.privacy.accounting.guarantees import (
    exact_failure,
    pure_epsilon,
    renyi_divergence,
    squared_gaussian_mu,
)
from skdpot.privacy.accounting.parts import Parts
from skdpot.privacy.accounting.relations import check_relation
from skdpot.privacy.checks import check_probability
from skdpot.privacy.events import DpEvent, check_event, event_from_json, event_to_json
from skdpot.privacy.rounding import as_written, written_rounded_down

# Orders of Renyi divergences: any of them gives a bound.
_ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 60, endpoint=False), np.geomspace(2, 1e6, 240)])


def plan_epsilon(event: DpEvent, delta: float, *, neighbouring: str) -> float:
    """Return the epsilon of a plan at a delta.

    Parameters
    ----------
    event : DpEvent
        All releases. Later ones may depend on earlier results, if their events are fixed
        beforehand.
    delta : float
        From 0 to less than 1.
    neighbouring : {"add_remove", "replace_one"}
        The relation under which the event is described.

    Returns
    -------
    float
        An upper bound, exact up to a share of about 1e-4 for releases with a known privacy loss;
        infinite if there is none.

    Raises
    ------
    TypeError
        If the event cannot be priced.
    ValueError
        If `delta`, or a parameter of the event, is out of its range, or the relation is unknown.

    See Also
    --------
    epsilon_of : The same for steps of Gaussian noise, monotone in every argument.

    Notes
    -----
    Generic pure releases are priced as randomised response, (epsilon, delta) ones as randomised
    response that fails with probability delta. Under "replace_one" what is Poisson-sampled must
    keep its parameters also for a record that is added to the sample (see
    :func:`~skdpot.privacy.epsilon_of`). Where it is neither Gaussian nor Laplace noise,
    it is priced by the Gaussian noise that it does not exceed. Zero-concentrated parts add to
    the Renyi divergences of all others, or are sold at a part of delta of their own, whichever is
    better [1]_.

    References
    ----------
    .. [1] C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy",
       NeurIPS 2020, proposition 12. :arxiv:`2004.00010`

    Examples
    --------
    >>> from skdpot.privacy import PureDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import plan_epsilon
    >>> releases = SelfComposedDpEvent(PureDpEvent(0.5), 50)
    >>> round(plan_epsilon(releases, 1e-5, neighbouring="replace_one"), 1)
    18.9
    """
    check_event(event)
    check_relation(neighbouring)
    check_probability("delta", delta)
    return _plan_epsilon(event_to_json(event), float(delta), neighbouring)


@lru_cache(maxsize=1024)
def _plan_epsilon(event_text: str, delta: float, neighbouring: str) -> float:
    event = event_from_json(event_text)
    failure, allowed = exact_failure(event), as_written(delta)
    if failure > allowed:
        return math.inf
    bounds = [pure_epsilon(event)]
    # The rest, without failures.
    delta = written_rounded_down((allowed - failure) / (1 - failure))
    if delta > 0:
        mu = math.sqrt(squared_gaussian_mu(event))
        bounds.append(gaussian_epsilon(delta, mu) if mu < math.inf else math.inf)
        for parts in Parts.alternatives(event, neighbouring):
            if parts.rho == 0:
                bounds.append(parts.epsilon(delta))
            else:
                bounds.append(_separate_epsilon(parts, delta))
                divergences = renyi_divergence(event, _ORDERS, neighbouring)
                bounds.append(_epsilon_from_renyi(divergences, delta))
    return float(min(bounds))


def _separate_epsilon(parts: Parts, delta: float) -> float:
    """Return about the lowest sum of two epsilons: of pairs, and of zero-concentrated privacy.

    Each is priced at its own share of delta.
    """
    divergences = parts.xi + parts.rho * _ORDERS

    def price(log_odds: float) -> float:
        share = float(expit(log_odds))
        of_pairs = parts.epsilon(share * delta)
        return of_pairs + _epsilon_from_renyi(divergences, (1 - share) * delta)

    options = {"bounds": (-12.0, 12.0), "method": "bounded", "options": {"xatol": 1.0}}
    return float(minimize_scalar(price, **options).fun)


def _epsilon_from_renyi(divergences: np.ndarray, delta: float) -> float:
    """Return the smallest epsilon at delta that Renyi divergences imply."""
    epsilons = divergences + np.log1p(-1 / _ORDERS) - np.log(delta * _ORDERS) / (_ORDERS - 1)
    return max(0.0, float(epsilons.min()))
