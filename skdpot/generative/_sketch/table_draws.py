"""Draws of records from the model of a table, with or without conditions.

Within a component of a mixture, columns are independent. So the conditional probability of values,
given others, is a sum over components, and conditional sampling is exact.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from skdpot.generative._sketch.draws import EvenDraws, IndependentDraws, draw_units, shares_of_rows
from skdpot.tables import NUMERIC, TableSchema

__all__ = ["draw_column", "sample_units"]

# A cell with a heap is narrower than the bounds by this factor, and denser than its neighbours by
# this one.
_MOST_OF_HEAP = 1024
_HEAP_DENSITY = 5.0


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
        The declaration of the table.
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
        Whether shares of components, of cells, and of each component's cells, are hardly changed
        by chance. Each record is drawn almost as if it were the only one, and all are nearer to
        the model than independent ones. Components of a model with parities are drawn
        independently.

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
    >>> from skdpot.generative._sketch.table_draws import sample_units
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
    cell_ends = {j: (model["starts"][span], model["stops"][span]) for j, span in columns.items()}
    prior = model["weights"]
    if schema.target in conditions and not schema.has_bands:
        allowed = [np.arange(*interval) for interval in conditions[schema.target]]
        prior = prior * np.isin(model["classes"], np.concatenate(allowed))
    posterior = prior.copy()
    for j in conditions.keys() & columns.keys():
        probability = model["cells"][:, columns[j]] @ _allowed_shares(*cell_ends[j], conditions[j])
        # A value that no component has, as in an empty tail, does not change the posterior.
        posterior *= probability if probability.any() else 1.0
    of_labels, labels = _component_weights(posterior, prior, model["classes"], n_samples, labels)
    # Trees find a parity because, by chance, a column or a pair is slightly informative about the
    # target.
    even_components = evenly and "n_parities" not in model
    components = (EvenDraws if even_components else IndependentDraws)(rng).entries(
        of_labels, labels
    )
    component_shares = (
        np.bincount(labels, minlength=len(of_labels)) / max(len(labels), 1) @ of_labels
    )
    draws = EvenDraws(rng, component_shares) if evenly else IndependentDraws(rng)
    # Records are drawn faster in the order of their components.
    order = np.argsort(components, kind="stable")
    components = components[order]
    units = np.empty((n_samples, len(schema.columns)), dtype=np.int64, order="F")
    if schema.target is not None and not schema.has_bands:
        units[order, schema.target] = model["classes"][components]
    for j, span in columns.items():
        cells, column = model["cells"][:, span], schema.columns[j]
        units[order, j] = draw_column(
            column, cell_ends[j], cells, prior, components, draws, conditions.get(j)
        )
    return units


def draw_column(column, ends, cells, weights, rows, draws, intervals=None):
    """Return a unit of a column for each record.

    Parameters
    ----------
    column : Column
        Its declaration.
    ends : tuple of two ndarray of shape (n_cells,)
        The first units of cells, and the ends of cells.
    cells : ndarray of shape (n_rows, n_cells)
        Distributions over cells.
    weights : ndarray of shape (n_rows,)
        The frequency of each distribution.
    rows : ndarray of shape (n,)
        The distribution of each record.
    draws : IndependentDraws or EvenDraws
        How records are drawn.
    intervals : list of (int, int), default=None
        The allowed units; None for all.

    Returns
    -------
    ndarray of shape (n,)
        Units.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.draws import IndependentDraws
    >>> from skdpot.generative._sketch.table_draws import draw_column
    >>> from skdpot.tables import read_schema
    >>> column = read_schema({"age": range(10)}).columns[0]
    >>> ends, cells = (np.array([0, 9]), np.array([9, 10])), np.array([[0.0, 1.0], [0.5, 0.5]])
    >>> draws = IndependentDraws(np.random.RandomState(0))
    >>> draw_column(column, ends, cells, np.ones(2), np.array([0, 0, 1]), draws, [(8, 10)])
    array([9, 9, 9])
    """
    starts, stops = ends
    allowed = _allowed_shares(starts, stops, intervals)
    # A row without any allowed cell gets all allowed units with equal probability.
    chosen = draws.entries(_with_fallback(cells * allowed, allowed * (stops - starts)), rows)
    heaps = _heaps(column, starts, stops, weights @ cells)[chosen]
    units = draw_units(starts[chosen], stops[chosen], intervals, draws.uniforms(chosen))
    return units if intervals is not None else np.where(heaps < 0, units, heaps)


def _heaps(column, starts, stops, shares):
    """Return the only unit that a cell has, if it has a heap, and -1 otherwise.

    Where people write round numbers, cells are cut until each round number is in a narrow cell of
    its own.
    """
    units = np.full(len(starts), -1)
    if column.kind != NUMERIC or column.integer or column.step is not None:
        return units
    density = shares / (stops - starts)
    nearby = np.maximum(np.append(0, density[:-1]), np.append(density[1:], 0))
    narrow = (stops - starts) * _MOST_OF_HEAP <= column.n_known
    heaped = narrow & (density > _HEAP_DENSITY * nearby) & (starts > 0) & (stops < column.n_known)
    units[heaped] = column.heaped_units(starts[heaped], stops[heaped])
    return units


def _allowed_shares(starts, stops, intervals):
    """Return the share of each cell within the intervals; 1 for `intervals` of None."""
    if intervals is None:
        return np.ones(len(starts))
    overlaps = [
        np.maximum(np.minimum(stops, last) - np.maximum(starts, first), 0)
        for first, last in intervals
    ]
    return np.sum(overlaps, axis=0) / (stops - starts)


def _component_weights(posterior, prior, classes, n_samples, labels):
    """Return the probability of each component for each label, and the label of each record.

    It is the prior where the posterior is 0. All records have the label 0 if there are none.
    """
    if labels is None:
        weights, labels = (
            _with_fallback(posterior[None], prior),
            np.zeros(n_samples, dtype=np.int64),
        )
    else:
        is_of_class = classes == np.arange(classes.max() + 1)[:, None]
        weights = _with_fallback(is_of_class * posterior, is_of_class * prior)
    return shares_of_rows(weights), labels


def _with_fallback(weights, fallback):
    """Return weights, with the fallback in rows where all are 0."""
    return np.where(weights.any(axis=1, keepdims=True), weights, fallback)
