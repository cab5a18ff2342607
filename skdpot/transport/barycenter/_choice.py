"""The rounding of shares to distinct candidates: systematic sampling, then relocation.

The largest shares may all lie in one place. If they are chosen along an order in which neighbours
are close, every stretch of candidates gets as many points as the sum of its shares, up to one. So
mass moves only a short way. The choice is then improved as Lloyd's method does: with the couplings
kept, every point moves to the candidate that is cheapest for the mass it receives.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from ._exchange import Rounds

_N_LANDMARKS = 8
# Beyond this number of pairs, an optimal assignment would take longer than the solver did.
_LARGEST_ASSIGNMENT = 2_000_000
# Relative: a smaller gain is not worth its time.
_SMALLEST_GAIN = 3e-4
_MOST_MOVES = 5


def space_filling_order(points: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the leaves of a kd-tree from left to right: neighbours in it are near in space.

    Cells are cut at the middle of their shares, across the direction in which they are longest.
    """
    order = np.arange(len(points))
    cells = [(0, len(points))]
    while cells:
        start, end = cells.pop()
        cell = order[start:end]
        coordinates = points[cell]
        lengths = coordinates.max(axis=0) - coordinates.min(axis=0)
        if end - start < 2 or not lengths.max() > 0:
            continue
        cell = cell[np.argsort(coordinates[:, lengths.argmax()], kind="stable")]
        order[start:end] = cell
        filled = np.cumsum(shares[cell])
        middle = int(np.searchsorted(filled, 0.5 * filled[-1])) + 1
        middle = start + min(max(middle, 1), end - start - 1)
        cells += [(start, middle), (middle, end)]
    return order


def coordinates_from_costs(costs: Sequence[np.ndarray]) -> np.ndarray:
    """Return costs to a few landmarks, points of the groups that are far apart, as coordinates.

    Each landmark is the point that is dearest to reach from the candidates near those before.
    """
    rows = np.concatenate([cost[_spread(len(cost))] for cost in costs])
    rows = rows[np.unique(rows, axis=0, return_index=True)[1]]
    chosen = [0]
    distances = np.full(len(rows), np.inf)
    while len(chosen) < min(_N_LANDMARKS, len(rows)):
        distances = np.minimum(distances, np.abs(rows - rows[chosen[-1]]).max(axis=1))
        chosen.append(int(distances.argmax()))
    return rows[chosen].T


def _spread(length: int) -> np.ndarray:
    """Return a few evenly spread indices."""
    return np.unique(np.linspace(0, length - 1, 4 * _N_LANDMARKS).astype(int))


def systematic_choice(shares: np.ndarray, order: np.ndarray, n_support: int) -> np.ndarray:
    """Return the candidates at which the running sum of shares passes another half of a point."""
    filled = np.cumsum(shares[order])
    passed = np.floor(filled / filled[-1] * n_support + 0.5)
    steps = np.diff(np.minimum(passed, n_support), prepend=0.0)
    chosen = order[steps > 0]
    # Only rounding lets one candidate take two steps.
    others = np.setdiff1d(np.argsort(-shares, kind="stable"), chosen, assume_unique=True)
    return np.sort(np.concatenate([chosen, others[: n_support - len(chosen)]]))


def _first_choices(shares: np.ndarray, order: np.ndarray, n_support: int) -> list[np.ndarray]:
    """Return the systematic choice, and the largest shares if they are another one."""
    systematic = systematic_choice(shares, order, n_support)
    largest = np.sort(np.argsort(-shares, kind="stable")[:n_support])
    return [systematic] if (systematic == largest).all() else [systematic, largest]


class Choice(NamedTuple):
    """Bounds on the objective of a choice, and the costs of other points.

    `elsewhere` returns the costs of all candidates for each point, of shape (n_support,
    n_candidates), up to a constant of each row, with the present couplings.
    """

    upper: float
    lower: float
    elsewhere: Callable[[], np.ndarray]


def choose(
    place: Callable[[np.ndarray], Rounds[Choice]],
    shares: np.ndarray,
    points: np.ndarray,
    n_support: int,
) -> Rounds[tuple[np.ndarray, Choice]]:
    """Return a choice of candidates near the shares that no relocation improves much.

    Every relocation lowers the objective: it makes the present couplings cheaper, and new couplings
    are cheaper still. `points` are coordinates of the candidates.
    """
    starts = []
    for start in _first_choices(shares, space_filling_order(points, shares), n_support):
        starts.append((start, (yield from place(start))))
    chosen, best = min(starts, key=lambda start: start[1].upper)
    for _ in range(_MOST_MOVES):
        moved = relocated(chosen, best.elsewhere())
        if (moved == chosen).all():
            break
        before = best.upper
        trial = yield from place(moved)
        if trial.upper < best.upper:
            chosen, best = moved, trial
        if not before - trial.upper > _SMALLEST_GAIN * abs(trial.upper):
            break
    return chosen, best


def relocated(chosen: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the best distinct candidates for the chosen points, or better ones."""
    if costs.size <= _LARGEST_ASSIGNMENT:
        return np.sort(linear_sum_assignment(costs)[1])
    free = np.setdiff1d(np.arange(costs.shape[1]), chosen, assume_unique=True)
    moved = chosen.copy()
    targets = costs[:, free].argmin(axis=1)
    gains = costs[np.arange(len(chosen)), chosen] - costs[np.arange(len(chosen)), free[targets]]
    order = np.argsort(-gains, kind="stable")
    # A candidate goes to the point that gains most.
    winners = order[np.unique(targets[order], return_index=True)[1]]
    winners = winners[gains[winners] > 0]
    moved[winners] = free[targets[winners]]
    return np.sort(moved)
