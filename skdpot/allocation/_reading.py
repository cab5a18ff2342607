"""Utilities on the edges of a public network, from matrices."""

from typing import Any

import numpy as np
from scipy import sparse

from skdpot.allocation._messages import DeclaredUtilities
from skdpot.transport.consensus import (
    BipartiteNetwork,
    LinearUtility,
    LogUtility,
    QuadraticUtility,
    make_network,
)

FAMILIES = ("linear", "quadratic", "log")
_METHODS = ("value", "derivative", "second_derivative", "take")
# What a node may give or receive, where nothing is declared.
_USUAL_BOUNDS = (0.0, 1.0)
# Products and quotients of some numbers between these are doubles.
_LEAST, _LARGEST = 1e-60, 1e60


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
        adjacency = _edges_of(X, private)
    bounds = [_USUAL_BOUNDS if of is None else of for of in (target_bounds, source_bounds)]
    if np.shape(adjacency) != X.shape:
        raise ValueError(
            f"adjacency must be of shape {X.shape}, that of X, with a row for each target; got "
            f"shape {np.shape(adjacency)}."
        )
    network = make_network(adjacency, *bounds)
    largest = max(side.upper.max(initial=0.0) for side in (network.targets, network.sources))
    if largest > _LARGEST or 0 < largest < _LEAST:
        raise ValueError(f"bounds must be up to {_LARGEST:g}, and one of them at least {_LEAST:g}.")
    return network


def _edges_of(X: Any, private: bool) -> Any:
    """Return the edges that go without saying."""
    if not sparse.issparse(X):
        return np.ones(X.shape, dtype=bool)
    if private:
        raise ValueError(
            "adjacency must be given with a sparse X: which edges there are is public, and may not "
            "be taken from private utilities. If it is no secret which entries X has, pass "
            "adjacency=(X != 0), or what else they are."
        )
    # A copy: a network sorts its indices in place, and those of X belong to its values.
    edges = sparse.csr_array(X, dtype=bool, copy=True)
    edges.data[:] = True
    return edges


def read_source_utilities(matrix: Any, shape: tuple[int, int]) -> Any:
    """Return the sources' utilities as an array or a CSR array of doubles.

    Parameters
    ----------
    matrix : {array-like, sparse matrix}
        Private; no error quotes it.
    shape : tuple of (int, int)
        Numbers of targets and of sources.

    Returns
    -------
    {ndarray, csr_array} of that shape
        Finite.

    Raises
    ------
    ValueError
        If it has another shape, is not made of numbers, or is not finite.
    """
    found = _as_numbers(matrix)
    if found is None:
        # Outside of the handler, whose error quotes what it could not read.
        raise ValueError("source_utilities holds what cannot be read as real numbers.")
    if found.shape != shape:
        raise ValueError(
            f"source_utilities must be of shape {shape}, that of X: a row for each target, what "
            f"its amounts are worth to the sources; got shape {found.shape}."
        )
    if not np.isfinite(found.data if sparse.issparse(found) else found).all():
        raise ValueError("source_utilities contains NaN or infinity.")
    return found


def _as_numbers(matrix: Any) -> Any:
    """Return an array or a CSR array of doubles, or None where that cannot be."""
    try:
        found = sparse.csr_array(matrix) if sparse.issparse(matrix) else np.asarray(matrix)
        return None if np.iscomplexobj(found) else found.astype(np.float64)
    except (TypeError, ValueError):
        return None


def on_edges(matrix: Any, network: BipartiteNetwork) -> np.ndarray:
    """Return the entries of a matrix on the edges, in the order of the targets.

    Entries that a sparse one does not store are 0, and what it stores elsewhere is ignored.
    """
    rows, columns = network.targets.nodes, network.targets.neighbours
    if not sparse.issparse(matrix):
        return np.asarray(matrix, dtype=np.float64)[rows, columns]
    # A copy, as duplicates are added up in place.
    held = sparse.csr_array(matrix, copy=True)
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


def read_scale(scale: Any, network: BipartiteNetwork) -> np.ndarray:
    """Return the public parameter of quadratic and logarithmic utilities on the edges."""
    if np.ndim(scale) == 0 and not sparse.issparse(scale):
        found = np.full(network.n_edges, float(scale))
    elif np.shape(scale) == network.shape:
        found = on_edges(scale, network)
    else:
        raise ValueError(
            f"utility_scale must be a number or of shape {network.shape}, got shape "
            f"{np.shape(scale)}."
        )
    if not ((found == 0) | ((found >= _LEAST) & (found <= _LARGEST))).all():
        raise ValueError(f"utility_scale must be 0, or between {_LEAST:g} and {_LARGEST:g}.")
    return found


def read_ranges(utility_range: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the declared ranges of the targets' and of the sources' utilities.

    Parameters
    ----------
    utility_range : array-like of shape (2,) or (2, 2) or None
        A pair (low, high), or one for the targets and one for the sources.

    Returns
    -------
    tuple of two tuples of (float, float)
        With low < high, both finite.

    Raises
    ------
    ValueError
        If there is none, or it is none.
    """
    if utility_range is None:
        raise ValueError(
            "utility_range must be declared for a private fit: (low, high), the least and the "
            "largest utility of a unit that there may be. It scales the noise and may not be "
            "learned from private utilities."
        )
    message = (
        "utility_range must be a pair (low, high) of finite numbers of sizes up to "
        f"{_LARGEST:g}, with low < high by {_LEAST:g} at least, or two such pairs, of targets and "
        f"of sources; got {utility_range!r}."
    )
    try:
        ranges = np.array(np.broadcast_to(np.asarray(utility_range, dtype=np.float64), (2, 2)))
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    sizes_fit = (np.abs(ranges) <= _LARGEST).all()
    if not (sizes_fit and (ranges[:, 1] - ranges[:, 0] >= _LEAST).all()):
        raise ValueError(message)
    return tuple((float(low), float(high)) for low, high in ranges)  # type: ignore[return-value]


def check_within(values: np.ndarray, bounds: tuple[float, float], name: str) -> None:
    """Raise where utilities are outside of their declared range, which is a domain."""
    low, high = bounds
    if ((values < low) | (values > high)).any():
        raise ValueError(
            f"{name} has utilities outside of utility_range ({low:g}, {high:g}), for which nothing "
            "was promised. Declare a wider range, or clip them. (What a sparse matrix does not "
            "store on an edge is 0.)"
        )


def read_factors(node_budgets: Any, network: BipartiteNetwork) -> tuple[Any, Any]:
    """Return what part of epsilon each target and each source spends.

    Parameters
    ----------
    node_budgets : pair of float or array-like, or None
        Of the targets and of the sources; None is all of it.
    network : BipartiteNetwork
        The network.

    Returns
    -------
    tuple of two ndarray, of shapes (n_targets,) and (n_sources,)
        Above 0 and at most 1.

    Raises
    ------
    ValueError
        If it is no such pair.
    """
    pair = (1.0, 1.0) if node_budgets is None else tuple(node_budgets)
    message = (
        "node_budgets must be a pair, of the targets and of the sources: what part of epsilon they "
        f"spend, above 0 and at most 1, a number or one for each of {network.shape[0]} targets "
        f"and {network.shape[1]} sources."
    )
    if len(pair) != 2:
        raise ValueError(message)
    try:
        targets, sources = (
            np.broadcast_to(np.asarray(part, dtype=np.float64), (n,))
            for part, n in zip(pair, network.shape, strict=True)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    if not all(((part > 0) & (part <= 1)).all() for part in (targets, sources)):
        raise ValueError(message)
    return targets, sources


def declare_utilities(
    utility: Any,
    ranges: tuple[tuple[float, float], tuple[float, float]],
    scale: Any,
    network: BipartiteNetwork,
    *,
    both: bool,
) -> tuple[DeclaredUtilities | None, DeclaredUtilities | None]:
    """Return what is public about the utilities behind messages.

    Parameters
    ----------
    utility : str or callable
        The family.
    ranges : pair of (low, high)
        Of the parameters of targets and of sources.
    scale : float
        The public parameter of quadratic and logarithmic utilities.
    network : BipartiteNetwork
        The network.
    both : bool
        Whether sources have utilities.

    Returns
    -------
    tuple of two DeclaredUtilities, or None
        Of targets and of sources.

    Raises
    ------
    ValueError
        If `scale` is not a number, or a user's utility does not say what its margins are.
    """
    if np.ndim(scale) or sparse.issparse(scale):
        raise ValueError(
            'utility_scale must be a number with mechanism="messages": one for all edges.'
        )
    sides = (network.targets, network.sources)[: 1 + both]
    found = []
    for side, (low, high) in zip(sides, ranges, strict=False):
        if callable(utility):
            low, high = _margins(utility, low, high, float(side.upper.max(initial=0.0)))
        found.append(DeclaredUtilities(utility, low, high, float(scale)))
    return (*found, None)[:2]  # type: ignore[return-value]


def _margins(utility: Any, low: float, high: float, cap: float) -> tuple[float, float]:
    """Return between what numbers the marginal utilities of a user's family are."""
    if not hasattr(utility, "marginal_range"):
        raise ValueError(
            "a user-defined utility needs a method marginal_range(low, high, cap) for mechanism="
            '"messages": the least and the largest marginal utility that there may be for a '
            "parameter from low to high, at any amount from 0 to cap. Noise is scaled to it."
        )
    least, largest = map(float, utility.marginal_range(low, high, cap))
    if not (np.isfinite([least, largest]).all() and least <= largest):
        raise ValueError("marginal_range must return two finite numbers (least, largest).")
    return least, largest


def make_utility(utility: Any, values: np.ndarray, scale: np.ndarray) -> Any:
    """Return utilities of amounts with these parameters, one for every edge."""
    if utility == "linear":
        return LinearUtility(values)
    if utility == "quadratic":
        return QuadraticUtility(values, scale)
    if utility == "log":
        return LogUtility(values, scale)
    found = utility(values)
    if not all(hasattr(found, name) for name in _METHODS):
        raise TypeError(
            "utility must be a callable that returns an object with the methods "
            f"{', '.join(_METHODS)}; see ConcaveUtility."
        )
    return found
