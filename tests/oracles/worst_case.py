"""A search for the worst case among finitely many, one coordinate at a time."""

import numpy as np


def climb(objective, start, n_options):
    """Return a state that no change of one coordinate improves, and its value.

    A state is a vector of integers, its i-th coordinate below ``n_options[i]``; `objective` takes
    an array of states.
    """
    state = np.array(start)
    best = objective(state[None])[0]
    while True:
        moves = np.repeat(state[None], sum(n_options), axis=0)
        coordinates = np.repeat(np.arange(len(state)), n_options)
        moves[np.arange(len(moves)), coordinates] = np.concatenate([*map(np.arange, n_options)])
        values = objective(moves)
        if not values.max() > best * (1 + 1e-9):
            return state, best
        state, best = moves[values.argmax()], values.max()


def worst_case(objective, n_options, rng, n_starts, start=None):
    """Return the best of several climbs: from random states, and from a given one."""
    starts = [rng.integers(n_options) for _ in range(n_starts)]
    if start is not None:
        starts.append(start)
    return max(climb(objective, start, n_options)[1] for start in starts)
