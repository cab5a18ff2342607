"""The model of people with several rows: types of people, and in each a chain of states of rows.

The type of a person sets the distribution of her own columns and of her number of rows. Given the
type, her rows go from state to state as a Markov chain, and given its state the columns of a row
are independent. So a random row of a random person has a mixture of product distributions, as rows
of other tables have. Nothing here is private: the model is fitted to released statistics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skdpot.generative._sketch.descent import Adam, rate_of_step, softmax, through_softmax
from skdpot.generative._sketch.people_table import PeopleTable
from skdpot.generative._sketch.people_targets import WEIGHT_OF_MEANS, Targets
from skdpot.tables import TableSchema

__all__ = ["as_mixture", "fit_people"]

_FIT_SEED = 0
_LEARNING_RATE = 0.1
# Added to the logits of staying in a state in the first guess of chains.
_INERTIA = 2.0
# The number of steps of the fit after which the chances of pairs of states are updated.
_STEPS_BETWEEN_UPDATES = 10
# The largest probability with which a chain keeps its memory in a step. Otherwise, it forgets its
# state.
_MEMORY = 0.95
_FEW_SCALINGS, _SCALINGS, _RAKINGS = 10, 200, 10
_TINY = 1e-300
_WHOLE = [slice(None)]


def fit_people(
    released: Mapping[str, np.ndarray], table: PeopleTable, n_types: int, n_states: int, n_iter: int
) -> dict[str, np.ndarray]:
    """Return the model of the rows of people, fitted to released statistics.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_people`.
    table : PeopleTable
        The declaration of the table.
    n_types, n_states : int
        The number of types of people, and of states of rows in each type.
    n_iter : int
        Number of steps of Adam.

    Returns
    -------
    dict of str to ndarray
        - ``"n_cells"``, ``"starts"``, ``"stops"``: of `release_people`.
        - ``"types"`` of shape (n_types,): the probability of each type of people.
        - ``"chains"`` of shape (n_types, n_states, n_states): the probability of each two states
          of consecutive rows; both marginals are those of one row.
        - ``"cells"`` of shape (n_types, n_states, n_cells): the distribution of each column in
          each state. Those of people are the same in all states of a type.

    Notes
    -----
    Squared errors are minimised over their variances, of counts as `fit_mixture` does, and of means
    of products of two rows of a person, which are sums over types of products of means of states.
    """
    targets = Targets.read(released, table)
    state = _first_guess(targets, n_types, n_states)
    optimiser = Adam(state)
    chances = None
    for step in range(n_iter):
        guess = _Guess.of(state, targets)
        if step % _STEPS_BETWEEN_UPDATES == 0:
            if targets.next_products is not None:
                _balance(state[2], n_types)
                guess = _Guess.of(state, targets)
            chances = _pair_chances(guess, targets)
        gradients = _gradients(guess, chances, targets)
        optimiser.descend(
            [gradient / targets.n_numbers for gradient in gradients],
            _LEARNING_RATE * rate_of_step(step, n_iter),
        )
    guess = _Guess.of(state, targets)
    chains = _with_equal_marginals(guess.chains, _SCALINGS)
    cells = _raked(guess, targets)[:, :, targets.group_of_cell] * targets.cell_shares
    return {
        **{name: released[name] for name in ("n_cells", "starts", "stops")},
        "types": guess.types,
        "chains": chains,
        # The memory layout of arrays of a file, so that sums have the same rounding errors.
        "cells": np.ascontiguousarray(cells),
    }


def as_mixture(people: Mapping[str, np.ndarray], schema: TableSchema) -> dict[str, np.ndarray]:
    """Return the distribution of a random row of a random person, as `fit_table` returns it.

    `schema` is that of the rows. Every component is divided by the classes of the target. The
    result is a model for `sample_units`.
    """
    n_states, n_types = people["chains"].shape[1], len(people["types"])
    weights = (people["types"][:, None] * people["chains"].sum(axis=2)).ravel()
    cells = people["cells"].reshape(n_types * n_states, -1)
    column_of = np.repeat(np.arange(len(people["n_cells"])), people["n_cells"])
    classes = np.zeros(len(weights), dtype=np.int64)
    if schema.target is not None:
        is_target = column_of == schema.target
        starts = people["starts"][is_target]
        possible = schema.classes_of(starts) == np.arange(schema.n_classes)[:, None]
        # A numeric target has its cells divided by bands, which are its classes.
        class_cells = cells[:, None, is_target] * possible
        shares = class_cells.sum(axis=2, keepdims=True)
        weights = (weights[:, None] * shares[:, :, 0]).ravel()
        classes = np.tile(np.arange(schema.n_classes), len(cells))
        cells = np.repeat(cells, schema.n_classes, axis=0)
        evenly = possible / possible.sum(axis=1, keepdims=True)
        conditional = np.where(shares > 0, class_cells / np.maximum(shares, _TINY), evenly)
        cells[:, is_target] = conditional.reshape(len(cells), -1)
    is_feature = np.isin(column_of, schema.features)
    return {
        "n_cells": people["n_cells"][schema.features],
        "starts": people["starts"][is_feature],
        "stops": people["stops"][is_feature],
        "weights": weights / weights.sum(),
        "classes": classes,
        "cells": cells[:, is_feature],
    }


@dataclass(frozen=True, eq=False)
class _Guess:
    """A model, with the first axis for types and the second one for states."""

    types: np.ndarray
    chains: np.ndarray
    states: np.ndarray
    rows: np.ndarray
    person: np.ndarray
    profiles: np.ndarray
    # Means of the points of rows, and of numbers of rows: see `Targets`.
    points: np.ndarray
    inverse_sizes: np.ndarray
    has_several: np.ndarray
    lag_shares: np.ndarray

    @classmethod
    def of(cls, parameters: Sequence[np.ndarray], targets: Targets) -> "_Guess":
        """Return the model of these parameters."""
        n_types = parameters[3].shape[1]
        rows = softmax(parameters[0], targets.row_columns).reshape(n_types, -1, len(targets.points))
        person = softmax(parameters[1], targets.own_columns)
        n_states = rows.shape[1]
        chains = softmax(parameters[2], _WHOLE).reshape(n_types, n_states, -1)
        if targets.next_products is None:
            states = chains[:, :, 0]
            chains = states[:, :, None] * states[:, None, :]
        else:
            states = (chains.sum(axis=2) + chains.sum(axis=1)) / 2
            chance = states[:, :, None] * states[:, None, :]
            chains = _MEMORY * chains + (1 - _MEMORY) * chance
        profiles = np.empty((n_types, n_states, len(targets.is_own)))
        profiles[:, :, ~targets.is_own] = rows
        profiles[:, :, targets.is_own] = person[:, None]
        sizes = person[:, targets.own_columns[-1]]
        return cls(
            softmax(parameters[3], _WHOLE)[0], chains, states, rows, person, profiles,
            rows @ targets.points, sizes @ targets.inverse_sizes, sizes @ targets.has_several,
            sizes @ targets.lag_shares,
        )  # fmt: skip


def _first_guess(targets, n_types, n_states):
    """Return the logits of rows, of columns of people, of chains and of types."""
    rng = np.random.RandomState(_FIT_SEED)
    logits = np.log(np.maximum(targets.means, 1e-4))
    type_logits = logits + rng.normal(size=(n_types, len(logits)))
    rows = type_logits[:, None, ~targets.is_own]
    rows = rows + rng.normal(size=(n_types, n_states, rows.shape[2]))
    shape = (n_states,) if targets.next_products is None else (n_states, n_states)
    chains = 0.1 * rng.normal(size=(n_types, *shape))
    if targets.next_products is not None:
        chains += _INERTIA * np.eye(n_states)
    return [
        rows.reshape(n_types * n_states, -1),
        type_logits[:, targets.is_own],
        chains.reshape(n_types, -1),
        0.1 * rng.normal(size=(1, n_types)),
    ]


def _pair_chances(guess, targets):
    """Return how often two random rows of a person have each pair of states, relative to chance.

    Rows with a lag up to 100 depend on each other. A row may be drawn twice; such pairs are left
    out.
    """
    distinct = (1 - guess.inverse_sizes)[:, None, None]
    if targets.next_products is None:
        return np.broadcast_to(distinct, guess.chains.shape)
    step = guess.chains / np.maximum(guess.chains.sum(axis=2, keepdims=True), _TINY)
    later, states = step, np.maximum(guess.states[:, None, :], _TINY)
    chances = (distinct[:, 0, 0] - guess.lag_shares.sum(axis=1))[:, None, None] * np.ones_like(step)
    for share in guess.lag_shares.T:
        chances = chances + share[:, None, None] * later / states
        later = later @ step
    return (chances + np.swapaxes(chances, 1, 2)) / 2


def _gradients(guess, chances, targets):
    """Return the gradients of all parameters; those of states per unit of their weight."""
    n_types, n_states = guess.states.shape
    mean, cell_slopes, state_slopes = _count_slopes(guess, targets)
    row_slopes, state_changes, type_slopes = _product_slopes(guess, chances, targets)
    type_slopes = type_slopes + (guess.states * state_slopes).sum(axis=1)
    chain_slopes = (state_slopes + state_changes)[:, :, None]
    if targets.next_products is not None:
        row_changes, changes, type_changes = _next_slopes(guess, targets)
        row_slopes, type_slopes = row_slopes + row_changes, type_slopes + type_changes
        independent = (changes + np.swapaxes(changes, 1, 2)) @ guess.states[:, :, None]
        chain_slopes = chain_slopes + (1 - _MEMORY) * independent
        chain_slopes = (chain_slopes + np.swapaxes(chain_slopes, 1, 2)) / 2 + _MEMORY * changes
    is_own, rows = targets.is_own, guess.rows.reshape(n_types * n_states, -1)
    pulls = targets.penalty * (guess.profiles - mean)
    row_slopes = (cell_slopes[:, :, ~is_own] + row_slopes).reshape(rows.shape)
    own_slopes = (guess.states[:, :, None] * cell_slopes[:, :, is_own]).sum(axis=1)
    chains = guess.chains if targets.next_products is not None else guess.states[:, :, None]
    return [
        through_softmax(row_slopes, rows, targets.row_columns)
        + pulls[:, :, ~is_own].reshape(rows.shape),
        through_softmax(own_slopes, guess.person, targets.own_columns) + pulls[:, 0, is_own],
        through_softmax(chain_slopes.reshape(n_types, -1), chains.reshape(n_types, -1), _WHOLE),
        through_softmax(type_slopes[None], guess.types[None], _WHOLE),
    ]


def _count_slopes(guess, targets):
    """Return the mean profile, and the slopes of errors of counts by cells and by states."""
    shape = guess.profiles.shape
    profiles = guess.profiles.reshape(-1, shape[2])
    weights = (guess.types[:, None] * guess.states).reshape(-1, 1)
    weighed = weights * profiles
    mean = weighed.sum(axis=0)
    errors = targets.pair_precisions * (weighed.T @ profiles - targets.pairs)
    pair_slopes = profiles @ (errors + errors.T)
    mean_slopes = targets.mean_precisions * (mean - targets.means)
    state_slopes = ((0.5 * pair_slopes + mean_slopes) * profiles).sum(axis=1)
    return mean, (pair_slopes + mean_slopes).reshape(shape), state_slopes.reshape(shape[:2])


def _product_slopes(guess, chances, targets):
    """Return the slopes of errors of products of any two rows, by cells of rows, states and types.

    Products within one column are less the square of each row, so that they are minus the scatter.
    """
    n_coordinates = guess.points.shape[2]
    weights = (guess.types[:, None] * guess.states)[:, :, None]
    flat = guess.points.reshape(-1, n_coordinates)
    partners = chances @ (guess.states[:, :, None] * guess.points)
    # Two random rows are the same one with probability one over the number of rows.
    diagonal = weights * guess.inverse_sizes[:, None, None]
    across_columns = 1 - targets.in_one_column
    inside = np.tensordot(((diagonal - weights) * guess.rows).sum(axis=(0, 1)), targets.squares, 1)
    inside += across_columns * ((diagonal * guess.points).reshape(flat.shape).T @ flat)
    between = (weights * guess.points).reshape(flat.shape).T @ partners.reshape(flat.shape)
    errors = targets.product_precisions * (inside + between - targets.products)
    symmetric = errors + errors.T
    partner_slopes = partners @ symmetric
    crossed = guess.points @ (symmetric * across_columns)
    squared = np.tensordot(targets.squares, errors * targets.in_one_column, 2)
    inverse = guess.inverse_sizes[:, None, None]
    row_slopes = (partner_slopes + inverse * crossed) @ targets.points.T + (inverse - 1) * squared
    own_slopes = 0.5 * inverse[:, :, 0] * (crossed * guess.points).sum(axis=2)
    own_slopes += (inverse[:, :, 0] - 1) * (guess.rows @ squared)
    pair_slopes = (partner_slopes * guess.points).sum(axis=2)
    type_slopes = (guess.states * (own_slopes + 0.5 * pair_slopes)).sum(axis=1)
    return row_slopes, own_slopes + pair_slopes, type_slopes


def _next_slopes(guess, targets):
    """Return the slopes of errors of products of a row and the next one, by rows, chains, types."""
    n_coordinates = guess.points.shape[2]
    flat = guess.points.reshape(-1, n_coordinates)
    share = guess.has_several[:, None, None]
    after, before = guess.chains @ guess.points, np.swapaxes(guess.chains, 1, 2) @ guess.points
    weighed = (guess.types[:, None, None] * share * guess.points).reshape(flat.shape)
    products = weighed.T @ after.reshape(flat.shape)
    errors = targets.next_precisions * (products - targets.next_products)
    point_slopes = (after @ errors.T + before @ errors) / guess.states[:, :, None]
    chain_slopes = share * ((guess.points @ errors) @ np.swapaxes(guess.points, 1, 2))
    type_slopes = (guess.chains * chain_slopes).sum(axis=(1, 2))
    return share * point_slopes @ targets.points.T, chain_slopes, type_slopes


def _balance(logits, n_types):
    """Make the two marginals of each chain nearly equal, in place."""
    n_states = round(logits.shape[1] ** 0.5)
    chains = softmax(logits, _WHOLE).reshape(n_types, n_states, n_states)
    balanced = _with_equal_marginals(chains, _FEW_SCALINGS)
    logits[:] = np.log(np.maximum(balanced, _TINY)).reshape(logits.shape)


def _with_equal_marginals(chains, n_rounds):
    """Return chains whose two marginals are equal: they leave each state as often as they enter."""
    states = (chains.sum(axis=2) + chains.sum(axis=1)) / 2
    for _ in range(n_rounds):
        chains = chains * (states / np.maximum(chains.sum(axis=2), _TINY))[:, :, None]
        chains = chains * (states / np.maximum(chains.sum(axis=1), _TINY))[:, None, :]
    return chains


def _raked(guess, targets):
    """Return profiles whose mean is within the noise of single columns, so that rare cells stay."""
    profiles, weights = guess.profiles, (guess.types[:, None] * guess.states)[:, :, None]
    stops, noise = np.cumsum(targets.sizes), np.sqrt(WEIGHT_OF_MEANS / targets.mean_precisions)
    mean = (weights * profiles).sum(axis=(0, 1))
    goal = np.clip(mean, targets.means - noise, targets.means + noise)
    for _ in range(_RAKINGS):
        profiles = profiles * (goal / np.maximum((weights * profiles).sum((0, 1)), _TINY))
        totals = np.add.reduceat(profiles, stops - targets.sizes, axis=2)
        profiles = profiles / np.repeat(totals, targets.sizes, axis=2)
    return profiles
