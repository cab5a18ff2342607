"""Utilities on the edges of a public network, from matrices."""

from typing import Any

import numpy as np
from scipy import sparse

from skdpot.transport.consensus import (
    BipartiteNetwork,
    LinearUtility,
    LogUtility,
    QuadraticUtility,
    make_network,
)

FAMILIES = ("linear", "quadratic", "log")
# What a node may give or receive, where nothing is declared.
_USUAL_BOUNDS = (0.0, 1.0)


def read_network(
    X: Any, adjacency: Any, target_bounds: Any, source_bounds: Any, *, private: bool
) -> BipartiteNetwork:
    """Return the public network.

    Parameters
    ----------
    X : {ndarray, sparse matrix} of shape (n_targets, n_sources)
        Of which only the shape is used, and, without privacy, which entries are stored.
    adjacency : {array-like, sparse matrix} of shape (n_targets, n_sources) or None
        What differs from zero is an edge. None is every pair of a dense X, and every entry that a
        sparse one stores.
    target_bounds, source_bounds : array-like or None
        Of `make_network`; None is 0 to 1.
    private : bool
        Whether utilities are protected.

    Returns
    -------
    BipartiteNetwork
        Of that shape.

    Raises
    ------
    ValueError
        If the shape is another, or the edges would be those of private utilities.
    """
    if adjacency is None:
        if not sparse.issparse(X):
            adjacency = np.ones(X.shape, dtype=bool)
        elif private:
            raise ValueError(
                "adjacency must be given with a sparse X: which edges there are is public, and "
                "may not be taken from private utilities. If it is no secret which entries X "
                "has, pass adjacency=(X != 0), or what else it is."
            )
        else:
            adjacency = sparse.csr_array(
                (np.ones(X.nnz, dtype=bool), X.indices, X.indptr), shape=X.shape
            )
    bounds = [_USUAL_BOUNDS if of is None else of for of in (target_bounds, source_bounds)]
    network = make_network(adjacency, *bounds)
    if network.shape != X.shape:
        raise ValueError(
            f"adjacency is of {network.shape[0]} targets and {network.shape[1]} sources, and X of "
            f"{X.shape[0]} and {X.shape[1]}."
        )
    return network


def on_edges(matrix: Any, network: BipartiteNetwork) -> np.ndarray:
    """Return the entries of a matrix on the edges, in the order of the targets.

    Entries that a sparse one does not store are 0, and what it stores elsewhere is ignored.
    """
    rows, columns = network.targets.nodes, network.targets.neighbours
    if not sparse.issparse(matrix):
        return np.asarray(matrix, dtype=np.float64)[rows, columns]
    held = sparse.csr_array(matrix)
    held.sum_duplicates()
    places = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr)) * held.shape[1]
    places += held.indices
    wanted = rows * held.shape[1] + columns
    found = np.searchsorted(places, wanted)
    found = np.minimum(found, max(len(places) - 1, 0))
    values = np.zeros(len(wanted))
    if len(places):
        same = places[found] == wanted
        values[same] = held.data[found[same]]
    return values


def make_utility(utility: Any, values: np.ndarray) -> Any:
    """Return utilities of amounts with these parameters, one for every edge."""
    if utility == "linear":
        return LinearUtility(values)
    if utility == "quadratic":
        return QuadraticUtility(values, np.ones_like(values))
    if utility == "log":
        return LogUtility(values, np.ones_like(values))
    return utility(values)
