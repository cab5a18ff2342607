"""The model of a table: fitted to what was released of it, and sampled, with or without conditions.

Within a class of the target, and a component of its mixture, columns are independent. So the
probability of every value of every column, given any values of others, is a sum over components,
and conditional sampling is exact.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from skdpot.generative._sketch.class_effects import pool_classes
from skdpot.generative._sketch.latent_classes import fit_mixture
from skdpot.tables import TableSchema
from skdpot.transport import nearest_distribution

__all__ = ["class_shares", "fit_table", "sample_units"]

# Of the distribution of a column, and of classes, so much is even: nothing declared is impossible.
_EVEN_SHARE = 1e-6
# A class has at least so many records, for the units of what is fitted.
_SMALLEST_CLASS = 1.0
_FIT_SEED = 0
# A cell keeps at least so much of what is expected of it, whatever the noise says.
_SMALLEST_PART = 0.01


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
    n_records = max(float(totals.sum(axis=1).mean()), _SMALLEST_CLASS)
    shares = _with_even_share(nearest_distribution(totals.mean(axis=0) / n_records))
    weights, classes, cells = [], [], []
    rng = np.random.RandomState(_FIT_SEED)
    for c in range(n_classes):
        n_here = max(shares[c] * n_records, _SMALLEST_CLASS)
        size, noise = shares[c], max(released["deviations"][1], 1.0) / n_here
        if of_pairs is not None:
            rng, size = np.random.RandomState(_FIT_SEED), 1 / n_classes
            noise = max(of_pairs[c], 1 / n_here)
        part = max(round(n_components * (0.5 / n_classes + 0.5 * size)), 2)
        of_class = _fit_class(released, columns, c, n_here, noise, part, n_iter, rng)
        weights.append(shares[c] * of_class[0])
        classes.append(np.full(len(of_class[0]), c))
        cells.append(of_class[1])
    return {
        **{name: released[name] for name in ("n_cells", "starts", "stops")},
        "weights": np.concatenate(weights),
        "classes": np.concatenate(classes),
        "cells": np.concatenate(cells),
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
    allowed = {j: _allowed_shares(*ends[j], conditions.get(j)) for j in columns}
    posterior = model["weights"].copy()
    for j in conditions.keys() & columns.keys():
        posterior *= model["cells"][:, columns[j]] @ allowed[j]
    if schema.target in conditions:
        wanted = [np.arange(*interval) for interval in conditions[schema.target]]
        posterior *= np.isin(model["classes"], np.concatenate(wanted))
    components = _draw_components(posterior, model["classes"], n_samples, labels, rng)
    # Records of one component after another are drawn faster.
    order = np.argsort(components, kind="stable")
    components = components[order]
    units = np.empty((n_samples, len(schema.columns)), dtype=np.int64, order="F")
    if schema.target is not None:
        units[order, schema.target] = model["classes"][components]
    for j, part in columns.items():
        drawn = _draw(model["cells"][:, part] * allowed[j], components, rng)
        starts, stops = (end[drawn] for end in ends[j])
        units[order, j] = _units_in(starts, stops, conditions.get(j), rng)
    return units


def _fit_class(released, columns, c, n_records, of_pairs, n_components, n_iter, rng):
    """Return the weights of a class's components, and the distributions of cells in each."""
    singles, within = [], []
    noise = max(float(released["deviations"][0]), 1.0)
    for column in columns:
        group, counts = released["groups"][column], released["counts"][column]
        single = nearest_distribution(np.bincount(group, counts[:, c]) / n_records)
        singles.append(_with_even_share(single))
        within.append(_shares_within(counts, group, c, noise))
    # One record more or less is as little noise as matters; a group has that of all its cells.
    n_cells = [np.bincount(released["groups"][column]) for column in columns]
    deviations = (
        np.sqrt(np.concatenate(n_cells)) * max(released["deviations"][0], 1.0) / n_records,
        of_pairs,
    )
    pairs = released["pairs"].reshape(-1, released["counts"].shape[1])[:, c] / n_records
    weights, profiles = fit_mixture(singles, pairs, deviations, n_components, n_iter, rng)
    stops = np.cumsum([len(single) for single in singles])
    groups = [
        stop - len(single) + released["groups"][column]
        for single, stop, column in zip(singles, stops, columns, strict=True)
    ]
    return weights, profiles[:, np.concatenate(groups)] * np.concatenate(within)


def _with_even_share(shares):
    """Return a distribution in which nothing is impossible."""
    return (1 - _EVEN_SHARE) * shares + _EVEN_SHARE / len(shares)


def _shares_within(counts, group, c, noise):
    """Return the share that each cell has of its group in a class.

    Counts of the class are moved towards those that all classes together would have there, by as
    much as noise explains their differences.
    """
    pooled = np.maximum(counts.sum(axis=1), 0.0) + _EVEN_SHARE * noise
    shares = pooled / np.bincount(group, pooled)[group]
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


def _draw_components(posterior, classes, n_samples, labels, rng):
    """Return the component of each record."""
    if labels is None:
        return _draw(posterior[None], np.zeros(n_samples, dtype=np.int64), rng)
    n_classes = classes.max() + 1
    of_class = np.where(classes == np.arange(n_classes)[:, None], posterior, 0.0)
    return _draw(of_class, labels, rng)


def _draw(weights, rows, rng):
    """Return an entry for each record, with a probability proportional to those of its row."""
    cumulated = np.cumsum(weights, axis=1)
    totals = cumulated[:, -1:]
    # One search for all: each row is moved to an interval of its own.
    ladder = cumulated / np.where(totals > 0, totals, 1.0) + 2 * np.arange(len(weights))[:, None]
    ladder[:, -1] = 2 * np.arange(len(weights)) + 2
    found = np.searchsorted(ladder.ravel(), rng.uniform(size=len(rows)) + 2 * rows, side="right")
    return found - rows * weights.shape[1]


def _units_in(starts, stops, intervals, rng):
    """Return units that are evenly spread over cells, and within the intervals."""
    if intervals is None:
        return starts + np.floor(rng.uniform(size=len(starts)) * (stops - starts)).astype(np.int64)
    firsts, lasts = np.array(intervals).T
    low = np.maximum(starts[:, None], firsts)
    sizes = np.maximum(np.minimum(stops[:, None], lasts) - low, 0)
    passed = np.cumsum(sizes, axis=1)
    position = np.floor(rng.uniform(size=len(starts)) * passed[:, -1]).astype(np.int64)
    piece = (position[:, None] >= passed).sum(axis=1)
    row = np.arange(len(starts))
    return low[row, piece] + position - (passed - sizes)[row, piece]
