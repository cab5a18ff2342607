"""The model of a table: fitted to what was released of it, and sampled, with or without conditions.

Within a class of the target, and a component of its mixture, columns are independent. So the
probability of every value of every column, given any values of others, is a sum over components,
and conditional sampling is exact.
"""

import math
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from skdpot.generative._sketch.class_effects import pool_classes
from skdpot.generative._sketch.column_totals import column_shares
from skdpot.generative._sketch.draws import (
    draw_entries,
    draw_units,
    even_uniforms,
    independent_uniforms,
)
from skdpot.generative._sketch.joint_tables import joint_tables
from skdpot.generative._sketch.latent_classes import fit_mixture, penalty_of
from skdpot.tables import NUMERIC, TableSchema
from skdpot.transport import nearest_distribution

__all__ = ["class_shares", "fit_table", "sample_units", "shares_within", "with_even_share"]

# Of the distribution of a column, and of classes, so much is even: nothing declared is impossible.
_EVEN_SHARE = 1e-6
# A class has at least so many records, for the units of what is fitted.
_SMALLEST_CLASS = 1.0
_FIT_SEED = 0
_TINY = 1e-300
# A cell keeps at least so much of what is expected of it, whatever the noise says.
_SMALLEST_PART = 0.01
# A heap's cell is narrower than one over this of the bounds, and so many times as dense as others.
_MOST_OF_HEAP = 1024
_HEAP_DENSITY = 5.0
# Pairs whose dependence is stronger than their noise count for so many times as much, at most.
_MOST_CLEAR = 2.0
# Rounds by which a model is given the distributions of columns.
_RAKINGS = 8


def fit_table(
    released: Mapping[str, np.ndarray],
    schema: TableSchema,
    n_components: int = 400,
    n_iter: int = 600,
    *,
    pooled: bool = False,
) -> dict[str, np.ndarray]:
    """Return the model of a table, made of what was released of it.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_marginals`.
    schema : TableSchema
        What the table is declared to hold.
    n_components : int, default=400
        Of all mixtures together: half of them evenly for all classes, the others by their sizes.
    n_iter : int, default=600
        Number of steps by which a mixture is fitted.
    pooled : bool, default=False
        Whether classes differ no more than noise and chance do not explain. Their mixtures have
        then equally many components, and begin with the same ones.

    Returns
    -------
    dict of str to ndarray
        All that sampling needs. Cells are those of all columns but the target.

        - ``"n_cells"``, ``"starts"``, ``"stops"``: of `release_marginals`.
        - ``"weights"``, ``"classes"`` of shape (n_components,): the probability of each component,
          and its class.
        - ``"cells"`` of shape (n_components, n_cells): the distribution of each column in each
          component.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_schema
    >>> from skdpot.generative._sketch.table_model import fit_table
    >>> released = {
    ...     "n_cells": np.array([2, 2]), "starts": np.array([0, 1, 0, 1]),
    ...     "stops": np.array([1, 2, 1, 2]), "counts": np.array([[800.0], [200], [300], [700]]),
    ...     "groups": np.array([0, 1, 0, 1]), "pairs": np.array([300.0, 500, 0, 200]),
    ...     "deviations": np.array([2.0, 2.0]),
    ... }
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> model = fit_table(released, schema, n_components=8, n_iter=200)
    >>> np.round(model["weights"] @ model["cells"], 1)
    array([0.8, 0.2, 0.3, 0.7])
    """
    sizes, n_classes = released["n_cells"], schema.n_classes
    of_pairs = None
    if pooled:
        released, of_pairs = pool_classes(released, n_classes)
    columns = np.split(np.arange(len(released["groups"])), np.cumsum(sizes)[:-1])
    totals = np.array([released["counts"][column].sum(axis=0) for column in columns])
    tails = released.get("tails", np.zeros(len(released["groups"]), dtype=bool))
    counts = np.where(tails[:, None], 0.0, released["counts"])
    released = {**released, "counts": counts, "tails": tails}
    # Columns with more cells add up more noise.
    of_classes = np.average(totals, axis=0, weights=1 / sizes)
    n_records = max(float(of_classes.sum()), _SMALLEST_CLASS)
    shares = with_even_share(nearest_distribution(of_classes / n_records))
    rng = np.random.RandomState(_FIT_SEED)
    # What classes differ in by noise would show them, where they are the groups of a map.
    fit = fit_mixture if pooled else partial(fit_mixture, penalty=penalty_of(len(columns)))
    known, fitted = [], []
    for c in range(n_classes):
        n_here = max(shares[c] * n_records, _SMALLEST_CLASS)
        size, noise = shares[c], max(released["deviations"][1], 1.0) / n_here
        if of_pairs is not None:
            rng, size = np.random.RandomState(_FIT_SEED), 1 / n_classes
            noise = max(of_pairs[c], 1 / n_here)
        part = max(round(n_components * (0.5 / n_classes + 0.5 * size)), 2)
        singles, pairs, deviations = _known_of_class(released, columns, c, n_here, noise)
        if not pooled and len(columns) > 1:
            deviations = deviations[0], deviations[1] / _clearness(singles, pairs, deviations[1])
        known.append((singles, pairs, deviations))
        fitted.append(fit(singles, pairs, deviations, part, n_iter, rng))
    sizes_of_classes = np.maximum(shares * n_records, _SMALLEST_CLASS)
    joints = joint_tables(released, columns, sizes_of_classes, fitted)
    if joints is not None:
        fitted = [
            fit(singles, pairs, deviations, 0, n_iter, rng, start=start, joints=tables)
            for (singles, pairs, deviations), start, tables in zip(
                known, fitted, joints, strict=True
            )
        ]
    weights = np.concatenate([shares[c] * of_class[0] for c, of_class in enumerate(fitted)])
    # As those of a file lie in memory, so that both add up to the same.
    cells = np.ascontiguousarray(
        np.concatenate(
            [_with_cells(of_class[1], released, columns, c) for c, of_class in enumerate(fitted)]
        )
    )
    if not pooled and "totals" in released:
        of_columns = [released["totals"][column] for column in columns]
        wanted = [nearest_distribution(count / max(count.sum(), 1.0)) for count in of_columns]
        wanted = [with_even_share(share) for share in wanted]
        _rake(cells, weights, wanted)
    return {
        **{name: released[name] for name in ("n_cells", "starts", "stops")},
        "weights": weights,
        "classes": np.repeat(np.arange(n_classes), [len(of_class[0]) for of_class in fitted]),
        "cells": cells,
    }


def class_shares(model: Mapping[str, np.ndarray], n_classes: int) -> np.ndarray:
    """Return the probability of each class of the target.

    Parameters
    ----------
    model : mapping of str to ndarray
        Of `fit_table`.
    n_classes : int
        How many there are.

    Returns
    -------
    ndarray of shape (n_classes,)
        They have the sum 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.table_model import class_shares
    >>> model = {"weights": np.array([0.5, 0.25, 0.25]), "classes": np.array([0, 1, 1])}
    >>> class_shares(model, 2)
    array([0.5, 0.5])
    """
    return np.bincount(model["classes"], model["weights"], minlength=n_classes)


def sample_units(
    model: Mapping[str, np.ndarray],
    schema: TableSchema,
    n_samples: int,
    rng: np.random.RandomState,
    given: Mapping[Any, Any] | None = None,
    labels: np.ndarray | None = None,
    *,
    evenly: bool = False,
) -> np.ndarray:
    """Return records that a model generates, under conditions.

    Parameters
    ----------
    model : mapping of str to ndarray
        Of `fit_table`.
    schema : TableSchema
        What the table is declared to hold.
    n_samples : int
        How many.
    rng : RandomState
        Source of randomness.
    given : mapping, default=None
        Conditions by the name of the column, as `TableSchema.intervals` reads them. They hold for
        all records.
    labels : ndarray of shape (n_samples,), default=None
        The class of each record. None draws them, given the conditions.
    evenly : bool, default=False
        Whether shares of components, and of each one's cells, are hardly changed by chance. Each
        record is drawn as if it were the only one, and all together are nearer to the model than
        independent ones.

    Returns
    -------
    ndarray of shape (n_samples, n_columns), dtype int64
        Units, as of `TableSchema.encode`.

    Raises
    ------
    ValueError
        If a condition is none.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_schema
    >>> from skdpot.generative._sketch.table_model import sample_units
    >>> model = {
    ...     "n_cells": np.array([2, 2]), "starts": np.array([0, 1, 0, 1]),
    ...     "stops": np.array([1, 2, 1, 2]), "weights": np.array([0.5, 0.5]),
    ...     "classes": np.array([0, 0]), "cells": np.array([[1.0, 0, 1, 0], [0, 1, 0, 1]]),
    ... }
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> sample_units(model, schema, 3, np.random.RandomState(0), {"sex": "M"})
    array([[1, 1],
           [1, 1],
           [1, 1]])
    """
    conditions = {
        schema.names.index(name): schema.intervals(name, condition)
        for name, condition in (given or {}).items()
    }
    stops = np.cumsum(model["n_cells"])
    columns = {
        j: slice(stop - size, stop)
        for j, size, stop in zip(schema.features, model["n_cells"], stops, strict=True)
    }
    ends = {j: (model["starts"][part], model["stops"][part]) for j, part in columns.items()}
    prior = model["weights"]
    if schema.target in conditions and not schema.has_bands:
        wanted = [np.arange(*interval) for interval in conditions[schema.target]]
        prior = prior * np.isin(model["classes"], np.concatenate(wanted))
    posterior = prior.copy()
    for j in conditions.keys() & columns.keys():
        probability = model["cells"][:, columns[j]] @ _allowed_shares(*ends[j], conditions[j])
        # What no component has, as in an empty tail, tells nothing of which one it is.
        posterior *= probability if probability.any() else 1.0
    draw = partial(
        draw_entries, rng=rng, uniforms=even_uniforms if evenly else independent_uniforms
    )
    components = _draw_components(posterior, prior, model["classes"], n_samples, labels, draw)
    # Records of one component after another are drawn faster.
    order = np.argsort(components, kind="stable")
    components = components[order]
    units = np.empty((n_samples, len(schema.columns)), dtype=np.int64, order="F")
    if schema.target is not None and not schema.has_bands:
        units[order, schema.target] = model["classes"][components]
    for j, part in columns.items():
        cells, column = model["cells"][:, part], schema.columns[j]
        units[order, j] = draw_column(
            column, ends[j], cells, prior, components, draw, rng, conditions.get(j)
        )
    return units


def draw_column(column, ends, cells, weights, rows, draw, rng, intervals=None):
    """Return units of a column, of the rows of cells that records have.

    Parameters
    ----------
    column : Column
        What is declared of it.
    ends : tuple of two ndarray of shape (n_cells,)
        The units with which cells start, and where they stop.
    cells : ndarray of shape (n_rows, n_cells)
        Distributions.
    weights : ndarray of shape (n_rows,)
        How frequent each of these is.
    rows : ndarray of shape (n,)
        Which one each record has.
    draw : callable
        As `draw_entries`, of weights and rows.
    rng : RandomState
        Source of randomness.
    intervals : list of (int, int), default=None
        Which units there may be; None for all.

    Returns
    -------
    ndarray of shape (n,)
        Units.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from skdpot.generative._sketch.draws import draw_entries
    >>> from skdpot.generative._sketch.table_model import draw_column
    >>> from skdpot.tables import read_schema
    >>> column = read_schema({"age": range(10)}).columns[0]
    >>> ends, cells = (np.array([0, 9]), np.array([9, 10])), np.array([[0.0, 1.0], [0.5, 0.5]])
    >>> rng = np.random.RandomState(0)
    >>> draw = partial(draw_entries, rng=rng)
    >>> draw_column(column, ends, cells, np.ones(2), np.array([0, 0, 1]), draw, rng, [(8, 10)])
    array([9, 9, 9])
    """
    starts, stops = ends
    allowed = _allowed_shares(starts, stops, intervals)
    # What has nothing of that is given has all of its units equally.
    drawn = draw(_or_else(cells * allowed, allowed * (stops - starts)), rows)
    heaps = _heaps(column, starts, stops, weights @ cells)[drawn]
    made = draw_units(starts[drawn], stops[drawn], intervals, rng)
    return made if intervals is not None else np.where(heaps < 0, made, heaps)


def _heaps(column, starts, stops, shares):
    """Return the only unit that a cell has, if it has a heap, and -1 otherwise.

    Where people write round numbers, cells are cut until a narrow one has each of them alone.
    """
    units = np.full(len(starts), -1)
    if column.kind != NUMERIC or column.integer or column.step is not None:
        return units
    density = shares / (stops - starts)
    around = np.maximum(np.append(0, density[:-1]), np.append(density[1:], 0))
    narrow = (stops - starts) * _MOST_OF_HEAP <= column.n_known
    heaped = narrow & (density > _HEAP_DENSITY * around) & (starts > 0) & (stops < column.n_known)
    units[heaped] = column.heaped_units(starts[heaped], stops[heaped])
    return units


def _known_of_class(released, columns, c, n_records, of_pairs):
    """Return the distributions of a class's groups, the shares of pairs, and their deviations."""
    singles = []
    weights = released.get("column_weights", np.ones(len(columns)))
    for column in columns:
        group, counts = released["groups"][column], released["counts"][column]
        single = nearest_distribution(np.bincount(group, counts[:, c]) / n_records)
        singles.append(with_even_share(single))
    # One record more or less is as little noise as matters; a group has that of all its cells.
    n_cells = [
        np.bincount(released["groups"][column]) / weight
        for column, weight in zip(columns, weights, strict=True)
    ]
    # Of a single column there are none.
    if len(released.get("pair_weights", ())):
        n_groups = [len(single) for single in singles]
        sizes = [a * b for a, b in combinations(n_groups, 2)]
        of_pairs = of_pairs / np.sqrt(np.repeat(released["pair_weights"], sizes))
    deviations = (
        np.sqrt(np.concatenate(n_cells)) * max(released["deviations"][0], 1.0) / n_records,
        of_pairs,
    )
    pairs = released["pairs"].reshape(-1, released["counts"].shape[1])[:, c] / n_records
    return singles, pairs, deviations


def _clearness(singles, pairs, deviations):
    """Return by what the noise of each entry is divided: more, where pairs clearly depend.

    Components are pulled together as the noise of weak pairs asks for, which is more than strong
    ones can bear.
    """
    deviations = np.broadcast_to(deviations, pairs.shape)
    clearness, begin = np.ones(len(pairs)), 0
    for first, second in combinations(singles, 2):
        of_table = slice(begin, begin + len(first) * len(second))
        apart = pairs[of_table] - np.outer(first, second).ravel()
        excess = np.mean((apart / deviations[of_table]) ** 2) - 1
        clearness[of_table] = math.sqrt(np.clip(excess, 1.0, _MOST_CLEAR))
        begin = of_table.stop
    return clearness


def _with_cells(profiles, released, columns, c):
    """Return the distributions of the cells of a class, of those of their groups."""
    weights = released.get("column_weights", np.ones(len(columns)))
    groups, within, first = [], [], 0
    for column, weight in zip(columns, weights, strict=True):
        noise = max(float(released["deviations"][0] / np.sqrt(weight)), 1.0)
        group = released["groups"][column]
        known = released["totals"][column] if "totals" in released else None
        shares = shares_within(released["counts"][column], group, c, noise, known)
        within.append(_without(released["tails"][column], shares, group))
        groups.append(first + group)
        first += group.max() + 1
    return profiles[:, np.concatenate(groups)] * np.concatenate(within)


def _rake(cells, weights, wanted):
    """Give all components together these distributions of columns, by what they have in common.

    What of a column differs between components, and between classes, does so by the same factors
    as before.
    """
    begin = 0
    for of_column in wanted:
        part = cells[:, begin : begin + len(of_column)]
        begin += len(of_column)
        for _ in range(_RAKINGS):
            part *= of_column / np.maximum(weights @ part, _TINY)
            part /= part.sum(axis=1, keepdims=True)


def _without(tail, shares, group):
    """Return shares of cells of their groups, of which an empty tail has none."""
    if not tail.any():
        return shares
    kept = np.where(tail, 0.0, shares)
    whole = np.bincount(group, kept)[group]
    return np.where(whole > 0, kept / np.where(whole > 0, whole, 1.0), shares)


def with_even_share(shares):
    """Return a distribution in which nothing is impossible."""
    return (1 - _EVEN_SHARE) * shares + _EVEN_SHARE / len(shares)


def shares_within(counts, group, c, noise, totals=None):
    """Return the share that each cell has of its group in a class.

    `totals` are counts of all classes together, none below 0, where they are known otherwise.
    Counts of the class are moved towards those that all classes together would have there, by as
    much as noise explains their differences.
    """
    n_classes = counts.shape[1]
    if totals is None:
        shares = column_shares(counts.sum(axis=1), group, math.sqrt(n_classes) * noise)
    else:
        totals = totals + _EVEN_SHARE * noise
        shares = totals / np.bincount(group, totals)[group]
    expected = shares * np.maximum(np.bincount(group, counts[:, c]), 0.0)[group]
    differences = counts[:, c] - expected
    several = np.bincount(group)[group] > 1
    if several.any():
        spread = max(float(np.mean(differences[several] ** 2)) - noise**2, 0.0)
        expected = np.maximum(
            expected + spread / (spread + noise**2) * differences, _SMALLEST_PART * expected
        )
    # A share of what nobody has is that of all classes.
    expected += _EVEN_SHARE * noise * shares
    return expected / np.bincount(group, expected)[group]


def _allowed_shares(starts, stops, intervals):
    """Return which part of each cell is within the intervals; all of it where there are none."""
    if intervals is None:
        return np.ones(len(starts))
    overlaps = [
        np.maximum(np.minimum(stops, last) - np.maximum(starts, first), 0)
        for first, last in intervals
    ]
    return np.sum(overlaps, axis=0) / (stops - starts)


def _draw_components(posterior, prior, classes, n_samples, labels, draw):
    """Return the component of each record: of the prior, where the posterior leaves none."""
    if labels is None:
        return draw(_or_else(posterior[None], prior), np.zeros(n_samples, dtype=np.int64))
    is_of_class = classes == np.arange(classes.max() + 1)[:, None]
    return draw(_or_else(is_of_class * posterior, is_of_class * prior), labels)


def _or_else(weights, others):
    """Return weights, with the others in rows that have none."""
    return np.where(weights.any(axis=1, keepdims=True), weights, others)
