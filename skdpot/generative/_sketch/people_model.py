"""The model of people with several rows: types of people, and in each a chain of states of rows.

The type of a person sets the distribution of her own columns and of her number of rows. Given the
type, her rows go from state to state as a Markov chain, and given its state the columns of a row
are independent. So a random row of a random person has a mixture of product distributions, as rows
of other tables have. Nothing here is private: the model is fitted to released statistics.
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
from skdpot.generative._sketch.noisy_counts import released_size
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
# Weights of the errors of single columns, of products over the rows of a person, and of pairs of a
# column of people with one of rows, relative to other pairs. These are few numbers, each of which
# tells much, and the penalty would hide them.
_WEIGHT_OF_MEANS, _WEIGHT_OF_PRODUCTS, _WEIGHT_OF_OWN = 30.0, 30.0, 5.0
# Added to the logits of staying in a state in the first guess of chains.
_INERTIA = 2.0
# The longest lag of two rows that depend on each other, given the type; and every how many steps
# the chances of pairs of states are updated.
_N_LAGS, _EVERY = 100, 10
# A chain keeps its memory in a step with this probability at most: otherwise it forgets its state.
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
    """Return the model of the rows of people, fitted to released statistics.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_people`.
    table : PeopleTable
        What the table is declared to hold.
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
    targets = _Targets.read(released, table)
    state = _first_guess(targets, n_types, n_states)
    optimiser = Adam(state)
    chances = None
    for step in range(n_iter):
        guess = _Guess.of(state, targets)
        if step % _EVERY == 0:
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
class _Targets:
    """The statistics that a model is fitted to, and one over the variances of their noise.

    Arrays over groups of cells have one column of the table after another.
    """

    pair_noise: float
    sizes: np.ndarray
    columns: list
    # Counts of more than two columns together, of a workload.
    joints: list
    means: np.ndarray
    mean_precisions: np.ndarray
    pairs: np.ndarray
    pair_precisions: np.ndarray
    # Which groups are of columns of people; slices of each column among those of rows, of people.
    is_own: np.ndarray
    row_columns: list
    own_columns: list
    # Coordinates of the points of groups of rows, products of two of these, and which pairs of
    # coordinates are of one column; products of two rows of a person, and of consecutive rows.
    points: np.ndarray
    squares: np.ndarray
    in_one_column: np.ndarray
    products: np.ndarray
    product_precisions: np.ndarray
    next_products: np.ndarray | None
    next_precisions: np.ndarray | None
    # Of groups of numbers of rows: the mean of one over the number, whether there are two rows or
    # more, and the share of pairs of rows with each lag.
    inverse_sizes: np.ndarray
    has_several: np.ndarray
    lag_shares: np.ndarray
    group_of_cell: np.ndarray
    cell_shares: np.ndarray

    @property
    def n_numbers(self) -> float:
        """Return about how many numbers there are."""
        n_pairs, n_products = (self.pair_precisions > 0).sum(), (self.product_precisions > 0).sum()
        return float(n_pairs + len(self.means) + n_products)

    @property
    def penalty(self) -> float:
        """Return the weight of the pull towards the mean."""
        return penalty_of(len(self.sizes)) / self.pair_noise

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
        cells = [with_even_share(_nearest_cells(count / n_people)) for count in counts]
        cell_shares = [c / np.bincount(g, c)[g] for g, c in zip(groups, cells, strict=True)]
        sizes = [int(group.max()) + 1 for group in groups]
        columns = column_slices(sizes)
        n_cells = np.concatenate([np.bincount(group) for group in groups])
        # The noise of counts of a workload is less by the root of their weight.
        column_roots, pair_roots = (
            np.sqrt(table.workload.weights(kind)[: len(tables)])
            for kind, tables in (("values", sizes), ("pairs", table.workload.pairs))
        )
        column_pairs = list(combinations(columns, 2))
        pairs, pair_precisions = _blocks(
            released["pairs"] / n_people, column_pairs, noise["pairs"] / pair_roots, sum(sizes)
        )
        singles = [
            np.bincount(*group_and_counts) / n_people
            for group_and_counts in zip(groups, counts, strict=True)
        ]
        value_noise = noise["values"] / np.repeat(column_roots, sizes)
        shares, mean_precisions = _group_shares(
            np.concatenate(singles), 1 / (n_cells * value_noise**2), pairs, pair_precisions, columns
        )
        for place, distributions, root in zip(
            column_pairs, combinations(shares, 2), pair_roots, strict=True
        ):
            deviation = deviations["pairs"] / n_people / root
            pairs[place] = _denoised(pairs[place], distributions, deviation)
        rows = table.of_rows
        moments = [
            np.eye(sizes[j])[groups[j]].T @ (cell_shares[j][:, None] * _points_and_products(points))
            for j, points in zip(rows, row_points(table, released), strict=True)
        ]
        points, squares, coordinates = _points_of_rows(moments)
        size = len(points.T)
        in_one_column = np.zeros((size, size))
        for column in coordinates:
            in_one_column[column, column] = 1
        # For a column the scatter of a person's rows, for two columns products of their means.
        numbers = [-released["within"], released.get("crossed", np.zeros(0))]
        places = [[(place, place) for place in coordinates], list(combinations(coordinates, 2))]
        scatter = noise["within"] * np.array(largest_scatters(table))
        products, product_precisions = _blocks(numbers[0] / n_people, places[0], scatter, size)
        if len(numbers[1]):
            crossed = _blocks(numbers[1] / n_people, places[1], noise["crossed"], size)
            products, product_precisions = products + crossed[0], product_precisions + crossed[1]
        next_products, next_precisions = None, None
        if "next" in released:
            blocks = [places[0][rows.index(j)] for j in table.walking]
            noises = noise["next"] * released["radii"]
            steps = released["next"] / n_people
            next_products, next_precisions = _blocks(steps, blocks, noises, size)
            next_precisions = _WEIGHT_OF_PRODUCTS * next_precisions
        ends_of_sizes = (1 + released[name][-len(cells[-1]) :] for name in ("starts", "stops"))
        size_statistics = np.eye(sizes[-1])[groups[-1]].T @ (
            cell_shares[-1][:, None] * _size_statistics(*ends_of_sizes)
        )
        is_own = np.repeat(np.isin(np.arange(len(sizes)), table.own), sizes)
        pair_precisions *= np.where(is_own[:, None] != is_own, _WEIGHT_OF_OWN, 1.0)
        return cls(
            pair_noise=noise["pairs"] / pair_roots.min(),
            sizes=np.array(sizes),
            columns=columns,
            joints=wanted_tables(released, sizes, np.array([n_people]))[0],
            means=np.concatenate(shares),
            mean_precisions=_WEIGHT_OF_MEANS * mean_precisions,
            pairs=pairs,
            pair_precisions=pair_precisions,
            is_own=is_own,
            row_columns=column_slices([sizes[j] for j in rows]),
            own_columns=column_slices([sizes[j] for j in table.own]),
            points=points,
            squares=squares,
            in_one_column=in_one_column,
            products=products,
            product_precisions=_WEIGHT_OF_PRODUCTS * product_precisions,
            next_products=next_products,
            next_precisions=next_precisions,
            inverse_sizes=size_statistics[:, 0],
            has_several=size_statistics[:, 1],
            lag_shares=size_statistics[:, 2:],
            group_of_cell=np.concatenate(
                [column.start + group for column, group in zip(columns, groups, strict=True)]
            ),
            cell_shares=np.concatenate(cell_shares),
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
    inverse_sizes: np.ndarray
    has_several: np.ndarray
    lag_shares: np.ndarray

    @classmethod
    def of(cls, parameters: Sequence[np.ndarray], targets: _Targets) -> "_Guess":
        """Return the model of these parameters."""
        n_types = parameters[3].shape[1]
        rows = softmax(parameters[0], targets.row_columns).reshape(n_types, -1, len(targets.points))
        own = softmax(parameters[1], targets.own_columns)
        n_states = rows.shape[1]
        chains = softmax(parameters[2], _WHOLE).reshape(n_types, n_states, -1)
        if targets.next_products is None:
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
        chain_slopes = chain_slopes + (1 - _LONGEST) * independent
        chain_slopes = (chain_slopes + np.swapaxes(chain_slopes, 1, 2)) / 2 + _LONGEST * changes
    is_own, rows = targets.is_own, guess.rows.reshape(n_types * n_states, -1)
    pulls = targets.penalty * (guess.profiles - mean)
    row_slopes = (cell_slopes[:, :, ~is_own] + row_slopes).reshape(rows.shape)
    own_slopes = (guess.states[:, :, None] * cell_slopes[:, :, is_own]).sum(axis=1)
    chains = guess.chains if targets.next_products is not None else guess.states[:, :, None]
    return [
        through_softmax(row_slopes, rows, targets.row_columns)
        + pulls[:, :, ~is_own].reshape(rows.shape),
        through_softmax(own_slopes, guess.own, targets.own_columns) + pulls[:, 0, is_own],
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
    for joint in targets.joints:
        state_slopes += joint.add_slopes(pair_slopes, profiles, weights, targets.columns)[:, 0]
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


def _nearest_cells(shares):
    """Return the distribution nearest to these shares, with 0 where an empty tail was cleared."""
    is_counted, cells = shares != 0, np.zeros(len(shares))
    if not is_counted.any():
        return nearest_distribution(shares)
    cells[is_counted] = nearest_distribution(shares[is_counted])
    return cells


def _group_shares(singles, precisions, pairs, pair_precisions, columns):
    """Return shares of groups, and one over their variances, from counts and margins of pairs."""
    total, precision = singles * precisions, precisions.copy()
    for a, b in combinations(columns, 2):
        for column, table in ((a, pairs[a, b]), (b, pairs[a, b].T)):
            margin_precision = pair_precisions[a, b].max() / table.shape[1]
            total[column] += margin_precision * table.sum(axis=1)
            precision[column] += margin_precision
    return [
        nearest_distribution(total[column] / precision[column]) for column in columns
    ], precision


def _denoised(table, shares, deviation):
    """Return a table of two columns with these margins, whose dependence is shrunk by its noise."""
    centred = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    row_effects, column_effects = (column - column.mean() for column in shares)
    dependence = centred - np.outer(row_effects, column_effects)
    noise = np.prod([len(column) - 1 for column in shares]) * deviation**2
    kept_share = max(1 - noise / max(float((dependence**2).sum()), _TINY), 0.0)
    return np.outer(*shares) + kept_share * dependence


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


def _points_and_products(points):
    """Return points of length one, each followed by the products of two of its coordinates."""
    points = points / RADIUS
    products = points[:, :, None] * points[:, None, :]
    return np.column_stack([points, products.reshape(len(points), -1)])


def _points_of_rows(parts):
    """Return coordinates of groups of all columns, products of two, and slices of each column."""
    # A column with n coordinates has n + n * n numbers.
    widths = [round((4 * moments.shape[1] + 1) ** 0.5 - 1) // 2 for moments in parts]
    coordinates, rows = column_slices(widths), column_slices([len(moments) for moments in parts])
    points = np.zeros((rows[-1].stop, coordinates[-1].stop))
    squares = np.zeros((rows[-1].stop, coordinates[-1].stop, coordinates[-1].stop))
    for moments, row, place, width in zip(parts, rows, coordinates, widths, strict=True):
        points[row, place] = moments[:, :width]
        squares[row, place, place] = moments[:, width:].reshape(-1, width, width)
    return points, squares, coordinates


def _size_statistics(starts, stops):
    """Return three statistics of each cell of numbers of rows.

    These are the mean of one over the number, whether there are two rows or more, and the share of
    pairs of random rows with each lag, in either order.
    """
    lags, statistics = np.arange(1, _N_LAGS + 1), []
    for start, stop in zip(starts, stops, strict=True):
        sizes = np.arange(start, stop)[:, None]
        lag_shares = 2 * np.maximum(sizes - lags, 0) / sizes**2
        statistics.append([np.mean(1 / sizes), start > 1, *lag_shares.mean(axis=0)])
    return np.array(statistics, dtype=np.float64)


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
    stops, noise = np.cumsum(targets.sizes), np.sqrt(_WEIGHT_OF_MEANS / targets.mean_precisions)
    mean = (weights * profiles).sum(axis=(0, 1))
    goal = np.clip(mean, targets.means - noise, targets.means + noise)
    for _ in range(_RAKINGS):
        profiles = profiles * (goal / np.maximum((weights * profiles).sum((0, 1)), _TINY))
        totals = np.add.reduceat(profiles, stops - targets.sizes, axis=2)
        profiles = profiles / np.repeat(totals, targets.sizes, axis=2)
    return profiles
