"""Bipartite networks: edges in the order of the targets and of the sources, and bounds."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a network: its nodes, each with the edges that it sees.

    Attributes
    ----------
    indptr : ndarray of shape (n_nodes + 1,)
        Node i has the edges ``indptr[i]`` to ``indptr[i + 1]``, in the order of this side.
    neighbours : ndarray of shape (n_edges,)
        Node of the other side at every edge; ascending for every node.
    positions : ndarray of shape (n_edges,)
        Position of every edge in the order of the other side: ``values[positions]`` brings values
        from that order into the order of this side.
    lower, upper : ndarray of shape (n_nodes,)
        Bounds on the sum of the plan over the edges of a node.
    """

    indptr: np.ndarray
    neighbours: np.ndarray
    positions: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def n_nodes(self) -> int:
        """Number of nodes, including isolated ones."""
        return len(self.lower)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Number of edges of every node."""
        return np.diff(self.indptr)

    @cached_property
    def nodes(self) -> np.ndarray:
        """Node of this side at every edge."""
        return np.repeat(np.arange(self.n_nodes), self.degrees)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum at every node of values in the order of this side."""
        return np.bincount(self.nodes, values, self.n_nodes)

    def maxima(self, values: np.ndarray) -> np.ndarray:
        """Return the maximum of the values of every node's edges; minus infinity without edges."""
        maxima = np.full(self.n_nodes, -np.inf)
        np.maximum.at(maxima, self.nodes, values)
        return maxima


@dataclass(frozen=True, eq=False)
class BipartiteNetwork:
    """Targets and sources, the edges between them and the bounds of both.

    A plan is an array with one value for each edge, in the order of the targets: by target, then
    by source. `make_network` makes networks.

    Attributes
    ----------
    targets, sources : Side
        The two sides. Each has its own order of the edges.
    """

    targets: Side
    sources: Side

    @property
    def shape(self) -> tuple[int, int]:
        """Number of targets and number of sources."""
        return self.targets.n_nodes, self.sources.n_nodes

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.targets.neighbours)

    def matrix(self, plan: np.ndarray) -> sparse.csr_array:
        """Return a plan as a sparse array of shape (n_targets, n_sources)."""
        side = self.targets
        return sparse.csr_array((plan, side.neighbours, side.indptr), shape=self.shape, copy=True)

    def violation(self, plan: np.ndarray) -> float:
        """Return the largest violation of a bound by a plan."""
        largest = max(0.0, float(-plan.min(initial=0.0)))
        for side, values in ((self.targets, plan), (self.sources, plan[self.sources.positions])):
            sums = side.sums(values)
            for excess in (sums - side.upper, side.lower - sums):
                largest = max(largest, float(excess.max(initial=0.0)))
        return largest


def make_network(adjacency: Any, target_bounds: Any, source_bounds: Any) -> BipartiteNetwork:
    """Make a bipartite network from its edges and the bounds of its nodes.

    Parameters
    ----------
    adjacency : {array-like, sparse array or matrix} of shape (n_targets, n_sources)
        Every entry that is not zero is an edge. Nodes without edges are allowed.
    target_bounds, source_bounds : array-like of shape (2,) or (n_nodes, 2)
        Smallest and largest amount that a target receives, and that a source gives. One pair is
        for all nodes of the side. All are finite and non-negative.

    Returns
    -------
    BipartiteNetwork
        The network.

    Raises
    ------
    ValueError
        If the shapes do not fit, or bounds are negative, not finite, or crossed.

    Examples
    --------
    >>> from skdpot.transport.consensus import make_network
    >>> network = make_network([[1, 1, 0], [0, 1, 1]], (0, 2), [(0, 1), (1, 3), (0, 1)])
    >>> network.shape, network.n_edges
    ((2, 3), 4)
    """
    edges = _edges(adjacency)
    n_targets, n_sources = edges.shape
    n_edges = edges.nnz
    sources = edges.indices.astype(np.int64)
    # A stable order leaves the targets of every source ascending.
    source_order = np.argsort(sources, kind="stable")
    positions = np.empty(n_edges, np.int64)
    positions[source_order] = np.arange(n_edges)
    indptr = edges.indptr.astype(np.int64)
    counts = np.bincount(sources, minlength=n_sources)
    nodes = np.repeat(np.arange(n_targets), np.diff(indptr))
    return BipartiteNetwork(
        Side(
            indptr,
            sources,
            positions.astype(np.int32),
            *_bounds(target_bounds, n_targets, "target"),
        ),
        Side(
            np.concatenate([[0], np.cumsum(counts)]),
            nodes[source_order],
            source_order.astype(np.int32),
            *_bounds(source_bounds, n_sources, "source"),
        ),
    )


def _edges(adjacency: Any) -> sparse.csr_array:
    """Return the edges as a boolean CSR array with sorted indices."""
    if not sparse.issparse(adjacency):
        adjacency = np.asarray(adjacency)
    if adjacency.ndim != 2 or adjacency.dtype.kind not in "biuf":
        raise ValueError(
            "adjacency must be a boolean or numeric array of shape (n_targets, n_sources), got "
            f"shape {adjacency.shape} and dtype {adjacency.dtype}."
        )
    if np.isnan(adjacency.data if sparse.issparse(adjacency) else adjacency).any():
        raise ValueError("adjacency must not have NaN: edges are the nonzero entries.")
    edges = sparse.csr_array(adjacency != 0, copy=True)
    edges.sum_duplicates()
    return edges


def _bounds(bounds: Any, n_nodes: int, side: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper bounds of a side, or raise if they are invalid."""
    try:
        bounds = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{side}_bounds must be a pair of numbers (low, high), or a list with a pair for each "
            f"{side}, in their order; got {type(bounds).__name__}."
        ) from None
    if bounds.shape != (2,) and bounds.shape != (n_nodes, 2):
        raise ValueError(
            f"{side}_bounds must have shape (2,) or ({n_nodes}, 2), a pair per {side}; got "
            f"{bounds.shape}."
        )
    lower, upper = np.ascontiguousarray(np.broadcast_to(bounds, (n_nodes, 2)).T)
    for wrong, what in (
        (~(np.isfinite(lower) & np.isfinite(upper)), "finite"),
        (lower < 0, "non-negative"),
        (lower > upper, "given as (smallest, largest) with smallest <= largest"),
    ):
        if wrong.any():
            node = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"{side}_bounds must be {what}; those of {side} {node} are ({lower[node]:g}, "
                f"{upper[node]:g}) ({np.count_nonzero(wrong)} of {n_nodes} are wrong)."
            )
    return lower.copy(), upper.copy()
