"""States of rows in every group, drawn jointly so that few of them differ.

A state's *logit* is the logarithm of its probability, up to a constant for all states of a row in a
group. Logits have the shape (n_groups, n_states, n_rows).
"""

import numpy as np

from skdpot.fairness._conditional._parts import UNKNOWN
from skdpot.fairness._conditional._softmax import softmax
from skdpot.fairness._row_draws import Draws


def along_the_order(
    states: np.ndarray, logits: np.ndarray, groups: np.ndarray, draws: Draws, first_draw: int
) -> np.ndarray:
    """Return states in every group from one uniform rank: the monotone coupling of an order.

    Changes `logits` in place.
    """
    rows, known = np.arange(len(states)), states != UNKNOWN
    logits -= logits.max(axis=1, keepdims=True)
    running = np.exp(logits, out=logits)
    share = running[groups, states, rows]
    for state in range(1, running.shape[1]):
        running[:, state] += running[:, state - 1]
    totals = running[:, -1]
    total = totals[groups, rows]
    high = np.where(known, running[groups, states, rows], total)
    low = np.where(known, high - share, 0.0)
    ranks = (low + draws.uniforms(first_draw) * (high - low)) / total
    wanted = ranks * totals
    found = np.zeros(wanted.shape, dtype=np.int8)
    for state in range(running.shape[1] - 1):
        found += running[:, state] < wanted
    return _with_own(found, states, groups)


def by_a_race(
    states: np.ndarray, logits: np.ndarray, groups: np.ndarray, draws: Draws, first_draw: int
) -> np.ndarray:
    """Return states without an order in every group, from clocks that groups share.

    In a group with probabilities p, the state is the one with the smallest clock divided by p.
    Clocks are drawn conditionally on the row's own state, and are independent of its group. Changes
    `logits` in place. Proof: :ref:`proof-race`.
    """
    rows, known = np.arange(len(states)), states != UNKNOWN
    n_states = logits.shape[1]
    drawn = draws.exponentials(range(first_draw, first_draw + n_states + 1))
    first = softmax(logits[groups, :, rows].T) * drawn[-1]
    clocks = drawn[:-1] + np.where(known, first, 0.0)
    clocks[states[known], rows[known]] = first[states[known], rows[known]]
    logits -= np.log(clocks)
    found, best = np.zeros((len(logits), len(states)), dtype=np.int8), logits[:, 0].copy()
    for state in range(1, n_states):
        np.copyto(found, state, where=logits[:, state] > best)
        np.maximum(best, logits[:, state], out=best)
    return _with_own(found, states, groups)


def _with_own(found: np.ndarray, states: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return states in which a row keeps its own state in its own group, despite rounding."""
    known = np.flatnonzero(states != UNKNOWN)
    found[groups[known], known] = states[known]
    return found
