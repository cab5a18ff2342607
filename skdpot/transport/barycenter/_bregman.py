r"""Iterative Bregman projections with a cap, in the logarithmic domain.

The regularised problem is to minimise ``sum_s lambda_s (<c_s, P_s> + reg KL(P_s))`` over plans with
rows a_s and common columns q in the capped simplex. One projection makes rows exact. The other
projection makes columns equal and keeps them in the capped simplex. By the conditions of
optimality, ``q_k = min(1/M, C prod_s columns_sk ** lambda_s)``, with the C that makes the sum 1. A
round of both is one pass over the costs: a group sends the logarithms of its columns, and gets
those of q.
"""

import numpy as np

from ..log_domain import answer_matrix
from ._exchange import Arrays, Group, Rounds, answers, learns
from ._minorants import Minorant, minorant_of_prices
from ._relaxation import Plane, Relaxation, own_minorant

_NOTHING = np.empty((0, 0))
_SMALLEST = 1e-300
# Upper bound on the absolute value of logarithms of columns.
_LARGEST_LOGARITHM = 700.0
# Over-relaxation of the logarithms; with 1, steps are the projections.
_RELAXATION = 1.5
# Regularisations, in units of the mean cost above the smallest one. They fall as fast as plans can
# follow: while the groups' columns differ by more than this, they wait.
FIRST_REG, _LAST_REG = 0.3, 1e-5
_FACTOR = 0.8
_LARGEST_DISAGREEMENT = 0.1
_FIRST_CHECK = 30
_ROUNDS_PER_CHECK = 10
_STALLED = 0.8
# The number of the minorant that groups are asked for.
_PRICE_MINORANT = 0


def anneal(relaxation: Relaxation, last_reg: float) -> Rounds[list[list[Plane]]]:
    """Project with falling regularisation until the gap is closed; return all planes found.

    Otherwise, end when no round is left, or at a check that finds the regularisation below
    `last_reg`, or the gap nearly as wide as at the last check.
    """
    met_planes: list[list[Plane]] = []
    relative, n_projections = FIRST_REG, 0
    while not relaxation.finished:
        log_shares, relative = yield from project(relaxation, relative)
        n_projections += 1
        if relaxation.n_left <= 1 or (
            n_projections >= _FIRST_CHECK and n_projections % _ROUNDS_PER_CHECK == 0
        ):
            gap_before = relaxation.gap
            shares = np.exp(log_shares)
            _, planes = yield from relaxation.evaluate(shares / shares.sum(), (_PRICE_MINORANT,))
            met_planes += planes
            stalled = relaxation.gap > _STALLED * gap_before
            if relative <= last_reg or stalled:
                break
    return met_planes


def project(relaxation: Relaxation, relative: float) -> Rounds[tuple[np.ndarray, float]]:
    """Project once: return logarithms of shares, and the next relative regularisation."""
    # With equal costs the scale is 0, and the regularisation must not be.
    reg = relative * (relaxation.scale or 1.0)
    answer = yield from relaxation.exchange.ask(
        "bregman", relaxation.n_candidates + 1, _LARGEST_LOGARITHM, reg=np.array([reg])
    )
    relaxation.n_iter += 1
    log_shares = capped(answer[:-1], relaxation.n_support)
    relaxation.exchange.news = {"log_shares": log_shares}
    # The disagreement is known one round later, when groups know the shares.
    if answer[-1] <= _LARGEST_DISAGREEMENT:
        relative = max(relative * _FACTOR, _LAST_REG)
    return log_shares, relative


def capped(means: np.ndarray, n_support: int) -> np.ndarray:
    """Return logarithms of shares with sum 1: the given ones, scaled and capped."""
    descending = np.sort(means)[::-1]
    rest = np.logaddexp.accumulate(descending[::-1])[::-1]
    n_capped = np.arange(n_support)
    # With the m largest at the cap, this scale gives the others the remaining mass. For the last m,
    # none of them exceeds the cap, up to rounding.
    scales = np.log1p(-n_capped / n_support) - rest[:n_support]
    fits = scales + descending[:n_support] <= -np.log(n_support)
    fits[-1] = True
    return np.minimum(scales[fits.argmax()] + means, -np.log(n_support))


# ------------------------------------------------------------------------------ computations of
# groups


@answers("bregman")
def _columns(group: Group, arrays: Arrays) -> np.ndarray:
    """Answer the logarithms of the plan's columns, and the error of the last ones."""
    state, reg = group.state, float(arrays["reg"][0])
    prices = group.zeros("prices", group.cost.shape[1])
    columns, potential = np.zeros(len(prices)), np.empty(len(group.masses))
    answer_matrix(
        group.cost, group.low, reg, prices / reg, group.masses, potential, columns, _NOTHING
    )
    state["reg"], state["log_columns"] = np.array([reg]), np.log(np.maximum(columns, _SMALLEST))
    disagreement = state.get("disagreement", np.array([2.0]))
    return group.weight * np.concatenate([state["log_columns"], disagreement])


@learns("log_shares")
def _make_equal(group: Group, arrays: Arrays) -> None:
    """Move prices towards the common columns, and record the error of the own ones."""
    state, log_shares = group.state, arrays["log_shares"]
    columns = state["log_columns"]
    state["prices"] += (_RELAXATION * float(state["reg"][0])) * (log_shares - columns)
    state["disagreement"] = np.abs(np.exp(columns) - np.exp(log_shares)).sum(keepdims=True)


@own_minorant(_PRICE_MINORANT)
def _minorant_from_prices(group: Group) -> Minorant:
    prices = group.zeros("prices", group.cost.shape[1])
    return minorant_of_prices(group.cost, group.masses, prices)
