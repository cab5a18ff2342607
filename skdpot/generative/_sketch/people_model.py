"""The model of people with several rows: types of people, and in each a chain of states of rows.

A person has a type, which decides about the columns that are hers and about how many rows she has.
Given the type, her rows go from state to state as a Markov chain, and given its state the columns
of a row are independent. So a row of a random person is a mixture of products of distributions, as
rows of other tables are. Nothing here is private: all is made of what was released.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from skdpot.generative._sketch.descent import (
    Adam,
    column_slices,
    rate_of_step,
    softmax,
    through_softmax,
)
from skdpot.generative._sketch.joint_tables import wanted_tables
from skdpot.generative._sketch.latent_classes import penalty_of
from skdpot.generative._sketch.marginals import released_size
from skdpot.generative._sketch.people_counts import (
    PeopleTable,
    largest_scatters,
    released_products,
    row_points,
)
from skdpot.generative._sketch.table_model import with_even_share
from skdpot.releases import RADIUS
from skdpot.tables import TableSchema
from skdpot.transport import nearest_distribution

__all__ = ["as_mixture", "fit_people"]

_FIT_SEED = 0
_LEARNING_RATE = 0.1
# Single columns, and products over the rows of a person, are few numbers, each of which tells much:
# errors of theirs count so many times as much as those of pairs, or the penalty would hide them.
_WEIGHT_OF_MEANS, _WEIGHT_OF_PRODUCTS, _WEIGHT_OF_OWN = 30.0, 30.0, 5.0
# Chains stay where they are at first, by so much more than they would.
_INERTIA = 2.0
# Rows that are further apart than this are independent, given the type; how often that is updated.
_N_LAGS, _EVERY = 100, 10
# A chain forgets its state with at least the rest of this probability in every step.
_LONGEST = 0.95
_FEW_SCALINGS, _SCALINGS, _RAKINGS = 10, 200, 10
_TINY = 1e-300
_WHOLE = [slice(None)]


def fit_people(
    released: Mapping[str, np.ndarray],
    table: PeopleTable,
    n_types: int,
    n_states: int,
    n_iter: int,
) -> dict[str, np.ndarray]:
    """Return the model of the rows of people, made of what was released of them.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_people`.
    table : PeopleTable
        What the table is declared to hold.
    n_types, n_states : int
        How many types of people there are, and how many states of rows each has.
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
    targets = _Targets.read(released, table)
    state = _first_guess(targets, n_types, n_states)
    optimiser = Adam(state)
    far = None
    for step in range(n_iter):
        guess = _Guess.of(state, targets)
        if step % _EVERY == 0:
            if targets.next is not None:
                _balance(state[2], n_types)
                guess = _Guess.of(state, targets)
            far = _apart(guess, targets)
        gradients = _gradients(guess, far, targets)
        optimiser.descend(
            [gradient / targets.n_numbers for gradient in gradients],
            _LEARNING_RATE * rate_of_step(step, n_iter),
        )
    guess = _Guess.of(state, targets)
    chains = _with_equal_marginals(guess.chains, _SCALINGS)
    cells = _raked(guess, targets)[:, :, targets.group_of_cell] * targets.within
    return {
        **{name: released[name] for name in ("n_cells", "starts", "stops")},
        "types": guess.types,
        "chains": chains,
        # As those of a file lie in memory, so that both add up to the same.
        "cells": np.ascontiguousarray(cells),
    }


def as_mixture(people: Mapping[str, np.ndarray], schema: TableSchema) -> dict[str, np.ndarray]:
    """Return the distribution of a random row of a random person, as `fit_table` returns it.

    Parameters
    ----------
    people : mapping of str to ndarray
        Of `fit_people`.
    schema : TableSchema
        Of the rows. Every component is divided by the classes of the target.

    Returns
    -------
    dict of str to ndarray
        A model for `sample_units`.
    """
    n_states, n_types = people["chains"].shape[1], len(people["types"])
    weights = (people["types"][:, None] * people["chains"].sum(axis=2)).ravel()
    cells = people["cells"].reshape(n_types * n_states, -1)
    column_of = np.repeat(np.arange(len(people["n_cells"])), people["n_cells"])
    classes = np.zeros(len(weights), dtype=np.int64)
    if schema.target is not None:
        of_target = column_of == schema.target
        starts = people["starts"][of_target]
        possible = schema.classes_of(starts) == np.arange(schema.n_classes)[:, None]
        # A number is in its band alone.
        of_classes = cells[:, None, of_target] * possible
        shares = of_classes.sum(axis=2, keepdims=True)
        weights = (weights[:, None] * shares[:, :, 0]).ravel()
        classes = np.tile(np.arange(schema.n_classes), len(cells))
        cells = np.repeat(cells, schema.n_classes, axis=0)
        evenly = possible / possible.sum(axis=1, keepdims=True)
        within = np.where(shares > 0, of_classes / np.maximum(shares, _TINY), evenly)
        cells[:, of_target] = within.reshape(len(cells), -1)
    kept = np.isin(column_of, schema.features)
    return {
        "n_cells": people["n_cells"][schema.features],
        "starts": people["starts"][kept],
        "stops": people["stops"][kept],
        "weights": weights / weights.sum(),
        "classes": classes,
        "cells": cells[:, kept],
    }


@dataclass(frozen=True, eq=False)
class _Targets:
    """What a model is fitted to; columns are groups of cells, one column after another."""

    noise_of_pairs: float
    sizes: np.ndarray
    columns: list
    # Of a workload: what is known of more than two columns together.
    joints: list
    means: np.ndarray
    of_means: np.ndarray
    pairs: np.ndarray
    of_pairs: np.ndarray
    # Of columns of people, and where the groups of each column are among those of rows, or people.
    is_own: np.ndarray
    row_columns: list
    own_columns: list
    # The coordinates of the points of groups of rows, and products of two; blocks of one column.
    points: np.ndarray
    squares: np.ndarray
    same: np.ndarray
    others: np.ndarray
    of_others: np.ndarray
    next: np.ndarray | None
    of_next: np.ndarray | None
    # Of numbers of rows: means of one over them, how often there are two rows, and lags.
    inverse: np.ndarray
    several: np.ndarray
    lags: np.ndarray
    group_of_cell: np.ndarray
    within: np.ndarray

    @property
    def n_numbers(self) -> float:
        """Return about how many numbers there are."""
        return float((self.of_pairs > 0).sum() + len(self.means) + (self.of_others > 0).sum())

    @property
    def penalty(self) -> float:
        """Return the weight of the pull towards the mean."""
        return penalty_of(len(self.sizes)) / self.noise_of_pairs

    @classmethod
    def read(cls, released: Mapping[str, np.ndarray], table: PeopleTable) -> "_Targets":
        """Return what was released, in shares of people and units of noise."""
        n_people = max(float(released_size(released)), 1.0)
        names = ["values", "pairs", *released_products(table)]
        deviations = dict(zip(names, released["deviations"].tolist(), strict=True))
        noise = {name: max(deviation, 1.0) / n_people for name, deviation in deviations.items()}
        ends = np.cumsum(released["n_cells"])[:-1]
        groups = np.split(released["groups"], ends)
        counts = np.split(released["counts"][:, 0], ends)
        cells = [with_even_share(_cells_of(count / n_people)) for count in counts]
        within = [c / np.bincount(group, c)[group] for group, c in zip(groups, cells, strict=True)]
        sizes = [int(group.max()) + 1 for group in groups]
        columns = column_slices(sizes)
        n_cells = np.concatenate([np.bincount(group) for group in groups])
        # Noise of what is wanted is less by the root of its weight.
        roots_of_columns, roots_of_pairs = (
            np.sqrt(table.workload.weights(kind)[: len(tables)])
            for kind, tables in (("values", sizes), ("pairs", table.workload.pairs))
        )
        of_two = list(combinations(columns, 2))
        pairs, of_pairs = _blocks(
            released["pairs"] / n_people, of_two, noise["pairs"] / roots_of_pairs, sum(sizes)
        )
        singles = [
            np.bincount(*group_and_counts) / n_people
            for group_and_counts in zip(groups, counts, strict=True)
        ]
        of_columns = noise["values"] / np.repeat(roots_of_columns, sizes)
        shares, of_means = _with_pairs(
            np.concatenate(singles), 1 / (n_cells * of_columns**2), pairs, of_pairs, columns
        )
        for place, of_pair, root in zip(
            of_two, combinations(shares, 2), roots_of_pairs, strict=True
        ):
            deviation = deviations["pairs"] / n_people / root
            pairs[place] = _without_noise(pairs[place], of_pair, deviation)
        rows = table.of_rows
        at = [
            np.eye(sizes[j])[groups[j]].T @ (within[j][:, None] * _with_products(points))
            for j, points in zip(rows, row_points(table, released), strict=True)
        ]
        points, squares, coordinates = _points_of_rows(at)
        same = np.zeros((len(points.T), len(points.T)))
        for column in coordinates:
            same[column, column] = 1
        # Of a column the scatter of a person's rows, and of two columns products of their means.
        numbers = [-released["within"], released.get("crossed", np.zeros(0))]
        places = [[(place, place) for place in coordinates], list(combinations(coordinates, 2))]
        scatter = noise["within"] * np.array(largest_scatters(table))
        others, of_others = _blocks(numbers[0] / n_people, places[0], scatter, len(same))
        if len(numbers[1]):
            crossed = _blocks(numbers[1] / n_people, places[1], noise["crossed"], len(same))
            others, of_others = others + crossed[0], of_others + crossed[1]
        following, of_next = None, None
        if "next" in released:
            walking = [places[0][rows.index(j)] for j in table.walking]
            noises = noise["next"] * released["radii"]
            following, of_next = _blocks(released["next"] / n_people, walking, noises, len(same))
            of_next = _WEIGHT_OF_PRODUCTS * of_next
        ends_of_sizes = (1 + released[of][-len(cells[-1]) :] for of in ("starts", "stops"))
        of_sizes = np.eye(sizes[-1])[groups[-1]].T @ (
            within[-1][:, None] * _of_sizes(*ends_of_sizes)
        )
        is_own = np.repeat(np.isin(np.arange(len(sizes)), table.own), sizes)
        of_pairs *= np.where(is_own[:, None] != is_own, _WEIGHT_OF_OWN, 1.0)
        return cls(
            noise_of_pairs=noise["pairs"] / roots_of_pairs.min(),
            sizes=np.array(sizes),
            columns=columns,
            joints=wanted_tables(released, sizes, np.array([n_people]))[0],
            means=np.concatenate(shares),
            of_means=_WEIGHT_OF_MEANS * of_means,
            pairs=pairs,
            of_pairs=of_pairs,
            is_own=is_own,
            row_columns=column_slices([sizes[j] for j in rows]),
            own_columns=column_slices([sizes[j] for j in table.own]),
            points=points,
            squares=squares,
            same=same,
            others=others,
            of_others=_WEIGHT_OF_PRODUCTS * of_others,
            next=following,
            of_next=of_next,
            inverse=of_sizes[:, 0],
            several=of_sizes[:, 1],
            lags=of_sizes[:, 2:],
            group_of_cell=np.concatenate(
                [column.start + group for column, group in zip(columns, groups, strict=True)]
            ),
            within=np.concatenate(within),
        )


@dataclass(frozen=True, eq=False)
class _Guess:
    """A model, with the first axis for types and the second one for states."""

    types: np.ndarray
    chains: np.ndarray
    states: np.ndarray
    rows: np.ndarray
    own: np.ndarray
    profiles: np.ndarray
    # Means of the points of rows, and of numbers of rows: see `_Targets`.
    points: np.ndarray
    inverse: np.ndarray
    several: np.ndarray
    lags: np.ndarray

    @classmethod
    def of(cls, parameters: Sequence[np.ndarray], targets: _Targets) -> "_Guess":
        """Return the model of these parameters."""
        n_types = parameters[3].shape[1]
        rows = softmax(parameters[0], targets.row_columns).reshape(n_types, -1, len(targets.points))
        own = softmax(parameters[1], targets.own_columns)
        n_states = rows.shape[1]
        chains = softmax(parameters[2], _WHOLE).reshape(n_types, n_states, -1)
        if targets.next is None:
            states = chains[:, :, 0]
            chains = states[:, :, None] * states[:, None, :]
        else:
            states = (chains.sum(axis=2) + chains.sum(axis=1)) / 2
            chance = states[:, :, None] * states[:, None, :]
            chains = _LONGEST * chains + (1 - _LONGEST) * chance
        profiles = np.empty((n_types, n_states, len(targets.is_own)))
        profiles[:, :, ~targets.is_own] = rows
        profiles[:, :, targets.is_own] = own[:, None]
        sizes = own[:, targets.own_columns[-1]]
        return cls(
            softmax(parameters[3], _WHOLE)[0], chains, states, rows, own, profiles,
            rows @ targets.points, sizes @ targets.inverse, sizes @ targets.several,
            sizes @ targets.lags,
        )  # fmt: skip


def _first_guess(targets, n_types, n_states):
    """Return parameters: of rows, of people, of chains and of types."""
    rng = np.random.RandomState(_FIT_SEED)
    logits = np.log(np.maximum(targets.means, 1e-4))
    of_types = logits + rng.normal(size=(n_types, len(logits)))
    rows = of_types[:, None, ~targets.is_own]
    rows = rows + rng.normal(size=(n_types, n_states, rows.shape[2]))
    shape = (n_states,) if targets.next is None else (n_states, n_states)
    chains = 0.1 * rng.normal(size=(n_types, *shape))
    if targets.next is not None:
        chains += _INERTIA * np.eye(n_states)
    return [
        rows.reshape(n_types * n_states, -1),
        of_types[:, targets.is_own],
        chains.reshape(n_types, -1),
        0.1 * rng.normal(size=(1, n_types)),
    ]


def _apart(guess, targets):
    """Return how much of the pairs of a person's rows is in each two states, over chance.

    Pairs are of two rows in random order, which may be far apart, or close. Those of a row with
    itself are left out.
    """
    far = (1 - guess.inverse)[:, None, None]
    if targets.next is None:
        return np.broadcast_to(far, guess.chains.shape)
    step = guess.chains / np.maximum(guess.chains.sum(axis=2, keepdims=True), _TINY)
    after, states = step, np.maximum(guess.states[:, None, :], _TINY)
    found = (far[:, 0, 0] - guess.lags.sum(axis=1))[:, None, None] * np.ones_like(step)
    for share in guess.lags.T:
        found = found + share[:, None, None] * after / states
        after = after @ step
    return (found + np.swapaxes(found, 1, 2)) / 2


def _gradients(guess, far, targets):
    """Return the gradients at all parameters; those of states per unit of their weight."""
    n_types, n_states = guess.states.shape
    mean, of_cells, of_states = _slopes_of_counts(guess, targets)
    of_rows, by_state, of_types = _slopes_of_others(guess, far, targets)
    of_types = of_types + (guess.states * of_states).sum(axis=1)
    of_chains = (of_states + by_state)[:, :, None]
    if targets.next is not None:
        by_row, by_chain, by_type = _slopes_of_next(guess, targets)
        of_rows, of_types = of_rows + by_row, of_types + by_type
        by_chance = (by_chain + np.swapaxes(by_chain, 1, 2)) @ guess.states[:, :, None]
        of_chains = of_chains + (1 - _LONGEST) * by_chance
        of_chains = (of_chains + np.swapaxes(of_chains, 1, 2)) / 2 + _LONGEST * by_chain
    own, rows = targets.is_own, guess.rows.reshape(n_types * n_states, -1)
    towards = targets.penalty * (guess.profiles - mean)
    of_rows = (of_cells[:, :, ~own] + of_rows).reshape(rows.shape)
    of_own = (guess.states[:, :, None] * of_cells[:, :, own]).sum(axis=1)
    chains = guess.chains if targets.next is not None else guess.states[:, :, None]
    return [
        through_softmax(of_rows, rows, targets.row_columns)
        + towards[:, :, ~own].reshape(rows.shape),
        through_softmax(of_own, guess.own, targets.own_columns) + towards[:, 0, own],
        through_softmax(of_chains.reshape(n_types, -1), chains.reshape(n_types, -1), _WHOLE),
        through_softmax(of_types[None], guess.types[None], _WHOLE),
    ]


def _slopes_of_counts(guess, targets):
    """Return the mean of all, and slopes of errors of counts at cells and at states."""
    shape = guess.profiles.shape
    profiles = guess.profiles.reshape(-1, shape[2])
    weights = (guess.types[:, None] * guess.states).reshape(-1, 1)
    weighed = weights * profiles
    mean = weighed.sum(axis=0)
    errors = targets.of_pairs * (weighed.T @ profiles - targets.pairs)
    of_pairs = profiles @ (errors + errors.T)
    of_means = targets.of_means * (mean - targets.means)
    at_states = ((0.5 * of_pairs + of_means) * profiles).sum(axis=1)
    for joint in targets.joints:
        at_states += joint.add_slopes(of_pairs, profiles, weights, targets.columns)[:, 0]
    return mean, (of_pairs + of_means).reshape(shape), at_states.reshape(shape[:2])


def _slopes_of_others(guess, far, targets):
    """Return slopes of errors of products of any two rows at cells of rows, states and types.

    Those of one column are without the square of each row: what is left is minus the scatter.
    """
    n_coordinates = guess.points.shape[2]
    heavy = (guess.types[:, None] * guess.states)[:, :, None]
    flat = guess.points.reshape(-1, n_coordinates)
    beside = far @ (guess.states[:, :, None] * guess.points)
    # A row with itself: as often as one over the number of rows.
    itself = heavy * guess.inverse[:, None, None]
    inside = np.tensordot(((itself - heavy) * guess.rows).sum(axis=(0, 1)), targets.squares, 1)
    inside += (1 - targets.same) * ((itself * guess.points).reshape(flat.shape).T @ flat)
    both = (heavy * guess.points).reshape(flat.shape).T @ beside.reshape(flat.shape)
    errors = targets.of_others * (inside + both - targets.others)
    across = errors + errors.T
    pull = beside @ across
    crossed = guess.points @ (across * (1 - targets.same))
    squared = np.tensordot(targets.squares, errors * targets.same, 2)
    inverse = guess.inverse[:, None, None]
    at_rows = (pull + inverse * crossed) @ targets.points.T + (inverse - 1) * squared
    alone = 0.5 * inverse[:, :, 0] * (crossed * guess.points).sum(axis=2)
    alone += (inverse[:, :, 0] - 1) * (guess.rows @ squared)
    with_others = (pull * guess.points).sum(axis=2)
    at_types = (guess.states * (alone + 0.5 * with_others)).sum(axis=1)
    return at_rows, alone + with_others, at_types


def _slopes_of_next(guess, targets):
    """Return slopes of errors of products of a row and the next one, at rows, chains and types."""
    n_coordinates = guess.points.shape[2]
    flat = guess.points.reshape(-1, n_coordinates)
    share = guess.several[:, None, None]
    after, before = guess.chains @ guess.points, np.swapaxes(guess.chains, 1, 2) @ guess.points
    heavy = (guess.types[:, None, None] * share * guess.points).reshape(flat.shape)
    errors = targets.of_next * (heavy.T @ after.reshape(flat.shape) - targets.next)
    at_points = (after @ errors.T + before @ errors) / guess.states[:, :, None]
    at_chains = share * ((guess.points @ errors) @ np.swapaxes(guess.points, 1, 2))
    at_types = (guess.chains * at_chains).sum(axis=(1, 2))
    return share * at_points @ targets.points.T, at_chains, at_types


def _cells_of(shares):
    """Return a distribution near to these shares, with nothing where an empty tail was cleared."""
    seen, cells = shares != 0, np.zeros(len(shares))
    if not seen.any():
        return nearest_distribution(shares)
    cells[seen] = nearest_distribution(shares[seen])
    return cells


def _with_pairs(singles, precisions, pairs, of_pairs, columns):
    """Return shares of groups, and one over their variances, of counts and margins of all pairs."""
    total, precision = singles * precisions, precisions.copy()
    for a, b in combinations(columns, 2):
        for one, other, table in ((a, b, pairs[a, b]), (b, a, pairs[a, b].T)):
            of_margin = of_pairs[a, b].max() / (other.stop - other.start)
            total[one] += of_margin * table.sum(axis=1)
            precision[one] += of_margin
    return [
        nearest_distribution(total[column] / precision[column]) for column in columns
    ], precision


def _without_noise(table, shares, deviation):
    """Return a table of two columns with these shares, and of their dependence what is no noise."""
    even = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    one, other = (column - column.mean() for column in shares)
    dependence = even - np.outer(one, other)
    noise = np.prod([len(column) - 1 for column in shares]) * deviation**2
    kept = max(1 - noise / max(float((dependence**2).sum()), _TINY), 0.0)
    return np.outer(*shares) + kept * dependence


def _blocks(numbers, places, noise, size):
    """Return numbers at places of a square matrix, and one over the variance of each."""
    target, precision = np.zeros((size, size)), np.zeros((size, size))
    begin = 0
    for (row, column), deviation in zip(places, np.broadcast_to(noise, len(places)), strict=True):
        shape = (row.stop - row.start, column.stop - column.start)
        end = begin + shape[0] * shape[1]
        target[row, column] = numbers[begin:end].reshape(shape)
        precision[row, column] = 1 / deviation**2
        begin = end
    return target, precision


def _with_products(points):
    """Return points of length one, and beside each the products of two of its coordinates."""
    points = points / RADIUS
    products = points[:, :, None] * points[:, None, :]
    return np.column_stack([points, products.reshape(len(points), -1)])


def _points_of_rows(of_columns):
    """Return the coordinates of groups of all columns, products of two, and whose they are."""
    # A column with n coordinates has n + n * n numbers.
    widths = [round((4 * moments.shape[1] + 1) ** 0.5 - 1) // 2 for moments in of_columns]
    coordinates, groups = (
        column_slices(widths),
        column_slices([len(moments) for moments in of_columns]),
    )
    points = np.zeros((groups[-1].stop, coordinates[-1].stop))
    squares = np.zeros((groups[-1].stop, coordinates[-1].stop, coordinates[-1].stop))
    for moments, group, place, width in zip(of_columns, groups, coordinates, widths, strict=True):
        points[group, place] = moments[:, :width]
        squares[group, place, place] = moments[:, width:].reshape(-1, width, width)
    return points, squares, coordinates


def _of_sizes(starts, stops):
    """Return of each cell of numbers of rows the mean of one over them, whether there are two, and
    how often two random rows have each lag, both orders together.
    """
    lags, made = np.arange(1, _N_LAGS + 1), []
    for start, stop in zip(starts, stops, strict=True):
        sizes = np.arange(start, stop)[:, None]
        of_lags = 2 * np.maximum(sizes - lags, 0) / sizes**2
        made.append([np.mean(1 / sizes), start > 1, *of_lags.mean(axis=0)])
    return np.array(made, dtype=np.float64)


def _balance(logits, n_types):
    """Make chains leave each state nearly as often as they come there, in place."""
    n_states = round(logits.shape[1] ** 0.5)
    chains = softmax(logits, _WHOLE).reshape(n_types, n_states, n_states)
    balanced = _with_equal_marginals(chains, _FEW_SCALINGS)
    logits[:] = np.log(np.maximum(balanced, _TINY)).reshape(logits.shape)


def _with_equal_marginals(chains, n_rounds):
    """Return chains that leave each state as often as they come there."""
    states = (chains.sum(axis=2) + chains.sum(axis=1)) / 2
    for _ in range(n_rounds):
        chains = chains * (states / np.maximum(chains.sum(axis=2), _TINY))[:, :, None]
        chains = chains * (states / np.maximum(chains.sum(axis=1), _TINY))[:, None, :]
    return chains


def _raked(guess, targets):
    """Return profiles whose mean is within noise of single columns: rare cells are easily lost."""
    profiles, weights = guess.profiles, (guess.types[:, None] * guess.states)[:, :, None]
    stops, noise = np.cumsum(targets.sizes), np.sqrt(_WEIGHT_OF_MEANS / targets.of_means)
    mean = (weights * profiles).sum(axis=(0, 1))
    wanted = np.clip(mean, targets.means - noise, targets.means + noise)
    for _ in range(_RAKINGS):
        profiles = profiles * (wanted / np.maximum((weights * profiles).sum((0, 1)), _TINY))
        totals = np.add.reduceat(profiles, stops - targets.sizes, axis=2)
        profiles = profiles / np.repeat(totals, targets.sizes, axis=2)
    return profiles
