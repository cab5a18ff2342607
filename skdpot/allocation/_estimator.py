"""Allocations over a network, in which nodes release their utilities.

doc/theory/releases.csv has the sensitivity, noise and proof of each release in one row.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from skdpot import _base
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.privacy.charging import ExpectedError, PrivacyGuarantee, ReleasePlan
from skdpot.privacy.checks import names_of, refuse_other_order, refuse_unused, to_display
from skdpot.privacy.events import DpEvent
from skdpot.privacy.noise import NoiseSource, make_source
from skdpot.privacy.sensitivity import PROTECTED
from skdpot.releases import UTILITY_MECHANISMS, Release
from skdpot.tables import as_numbers
from skdpot.transport import load_compiler, load_solver
from skdpot.transport.consensus import (
    FAMILIES,
    BipartiteNetwork,
    ConcaveUtility,
    LinearUtility,
    NetworkPlan,
    check_feasible,
    consensus,
    make_network,
    make_utility,
    optimal_plan,
    starting_eta,
    welfare,
)

# Products and quotients of some numbers within these limits neither overflow nor underflow.
_LEAST, _LARGEST = 1e-60, 1e60
# Constraints of the parameters that all subclasses share.
ALLOCATION_CONSTRAINTS: dict[str, Any] = {
    "protect": [StrOptions(set(PROTECTED))],
    "utility": [StrOptions(set(FAMILIES)), callable],
    "utility_bounds": ["array-like", None],
    "utility_scale": [Interval(Real, 0, None, closed="left"), "array-like", "sparse matrix"],
    "target_bounds": ["array-like", None],
    "source_bounds": ["array-like", None],
    "adjacency": ["array-like", "sparse matrix", None],
    "node_budgets": ["array-like", None],
    "ledger": "no_validation",
    "random_state": ["random_state"],
    "verbose": ["verbose", None],
}


@dataclass(frozen=True, eq=False)
class Problem:
    """An allocation problem. Everything but the values of utilities is public.

    Attributes
    ----------
    network : BipartiteNetwork
        Edges, and bounds of the nodes.
    family : str or callable
        The family of utilities.
    scale : ndarray of shape (n_edges,)
        The public parameter of utilities that have a second one.
    values : tuple of ndarray of shape (n_edges,)
        Utilities of the targets, and of the sources if they have any: private, or released.
    compact : bool
        Whether matrices on the edges are returned as sparse arrays.
    """

    network: BipartiteNetwork
    family: Any
    scale: np.ndarray
    values: tuple[np.ndarray, ...]
    compact: bool = False

    def utilities(self) -> list[ConcaveUtility]:
        """Return the utilities of the targets, and those of the sources if they have any."""
        found = [make_utility(self.family, side_values, self.scale) for side_values in self.values]
        # Sources without utilities are indifferent to all plans.
        return found if len(found) == 2 else [*found, LinearUtility(np.zeros_like(self.scale))]


def check_order(estimator: Any, X: Any, source_utilities: Any) -> None:
    """Raise if what is given for nodes or for edges has their names in another order."""
    targets, sources = names_of(X), names_of(X, "columns")
    refuse_other_order("target_bounds", estimator.target_bounds, targets)
    refuse_other_order("source_bounds", estimator.source_bounds, sources)
    budgets = estimator.node_budgets if isinstance(estimator.node_budgets, tuple | list) else ()
    for part, names in zip(budgets, (targets, sources), strict=False):
        refuse_other_order("node_budgets", part, names)
    edges = {name: getattr(estimator, name) for name in ("adjacency", "utility_scale")}
    for name, matrix in (edges | {"source_utilities": source_utilities}).items():
        refuse_other_order(name, matrix, targets)
        refuse_other_order(name, matrix, sources, axis="columns")


def _default_edges(X: Any, private: bool) -> Any:
    """Return all pairs for a dense X, or the stored entries of a sparse X that is not private."""
    if not sparse.issparse(X):
        return np.ones(X.shape, dtype=bool)
    if private:
        raise ValueError(
            "adjacency must be given with a sparse X: edges are public, and are not learned from "
            "private utilities. If it is public which entries X has, pass adjacency=(X != 0)."
        )
    # A copy: a network sorts its indices in place, and those of X belong to its values.
    edges = sparse.csr_array(X, dtype=bool, copy=True)
    edges.data[:] = True
    return edges


def read_source_utilities(matrix: Any, shape: tuple[int, int], *, private: bool = False) -> Any:
    """Return the sources' utilities as an array or CSR array; errors quote no value.

    If `private`, no value raises: NaN stands for those that are no numbers, or missing. They are
    read like X, so that columns of all types of libraries of tables become numbers.
    """
    found = None
    with suppress(Exception):
        if private:
            kind = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": False}
            sizes = {"ensure_2d": False, "ensure_min_samples": 0, "ensure_min_features": 0}
            matrix = check_array(as_numbers(matrix), allow_nd=True, **kind, **sizes)
        read = sparse.csr_array(matrix) if sparse.issparse(matrix) else np.asarray(matrix)
        # A cast would drop imaginary parts with a warning, which private values could raise.
        found = None if np.iscomplexobj(read) else read.astype(np.float64)
    if found is None:
        # Raised here, since the first error quotes what could not be read.
        raise ValueError("source_utilities holds values that are not real numbers.")
    if found.shape != shape:
        raise ValueError(f"source_utilities must be of shape {shape}, got {found.shape}.")
    # Private NaN is read as the middle of its range later, as an error would reveal it.
    if not (private or np.isfinite(found.data if sparse.issparse(found) else found).all()):
        raise ValueError("source_utilities contains NaN or infinity.")
    return found


def on_edges(matrix: Any, network: BipartiteNetwork) -> np.ndarray:
    """Return the entries of a matrix on the edges, in the order of the targets.

    Entries that a sparse matrix does not store are 0; stored entries elsewhere are ignored.
    """
    # All vectors of this package are in the order of the targets' edges.
    rows, columns = network.targets.nodes, network.targets.neighbours
    if not sparse.issparse(matrix):
        return np.asarray(matrix, dtype=np.float64)[rows, columns]
    # A copy, since duplicates are added in place.
    held = sparse.csr_array(matrix, copy=True)
    held.sum_duplicates()
    return np.asarray(held[rows, columns], dtype=np.float64).ravel()


def read_scale(scale: Any, network: BipartiteNetwork) -> np.ndarray:
    """Return the public scale of quadratic and logarithmic utilities on the edges."""
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


def read_ranges(utility_bounds: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the declared ranges (low, high) of the targets' and of the sources' utilities."""
    if utility_bounds is None:
        raise ValueError(
            "utility_bounds must be declared for a private fit: (low, high), the least and the "
            "largest possible utility of a unit. They scale the noise and may not be learned from "
            "private utilities. (epsilon=None is a fit that protects nothing.)"
        )
    message = (
        "utility_bounds must be a pair (low, high) of finite numbers of sizes up to "
        f"{_LARGEST:g}, with low < high by {_LEAST:g} at least, or two such pairs, of targets and "
        f"of sources; got {to_display(utility_bounds)}."
    )
    try:
        # One pair is that of both sides.
        ranges = np.array(np.broadcast_to(np.asarray(utility_bounds, dtype=np.float64), (2, 2)))
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    sizes_fit = (np.abs(ranges) <= _LARGEST).all()
    if not (sizes_fit and (ranges[:, 1] - ranges[:, 0] >= _LEAST).all()):
        raise ValueError(message)
    return tuple((float(low), float(high)) for low, high in ranges)  # type: ignore[return-value]


def within_ranges(problem: Problem, ranges: Any) -> Problem:
    """Return private utilities moved into their declared ranges, and their middles for NaN.

    Raise if the family has no utility with the lowest parameter, or the best plan is known, as an
    empty one is. All of this is public.
    """
    least, largest = np.sum(ranges[: len(problem.values)], axis=0)
    sides = problem.network.targets, problem.network.sources
    if largest <= 0 and isinstance(problem.family, str) and not any(s.lower.any() for s in sides):
        raise ValueError(
            "nothing was charged: with utilities of at most 0, and lower bounds of 0, the best "
            "plan is empty. If X has costs, declare lower bounds, or fit a public number minus X."
        )
    # Of utilities above 0, the best plan moves all that is possible.
    grows = least > 0 and problem.family in ("linear", "log")
    for ends, others in (sides, sides[::-1]):
        fits = grows and (others.sums(ends.upper[others.neighbours]) <= others.upper).all()
        is_known = fits or (ends.lower == ends.upper)[ends.degrees > 0].all()
        if is_known and ends.degrees.max() <= 1:
            raise ValueError("nothing was charged: edges and bounds allow one best plan alone.")
    moved = []
    for values, (low, high) in zip(problem.values, ranges, strict=False):
        # Of the lowest parameter alone, which is public: actual values must not decide whether this
        # raises.
        make_utility(problem.family, np.full_like(problem.scale, low), problem.scale)
        # Clipping before the release gives the range that its sensitivity is proven for.
        moved.append(np.where(np.isnan(values), (low + high) / 2, np.clip(values, low, high)))
    return replace(problem, values=tuple(moved))


def read_factors(node_budgets: Any, network: BipartiteNetwork) -> tuple[Any, Any]:
    """Return the share of epsilon, in (0, 1], that each target and each source spends."""
    pair = (1.0, 1.0) if node_budgets is None else tuple(node_budgets)
    message = (
        "node_budgets must be a pair, for the targets and for the sources: the part of epsilon "
        "that they spend, above 0 and at most 1, as one number or as one for each of "
        f"{network.shape[0]} targets and {network.shape[1]} sources."
    )
    try:
        targets, sources = (
            np.broadcast_to(np.asarray(part, dtype=np.float64), (n,))
            for part, n in zip(pair, network.shape, strict=True)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    # A node with part 0 would have noise without bound, and above 1 the guarantee would not hold.
    if not all(((part > 0) & (part <= 1)).all() for part in (targets, sources)):
        raise ValueError(message)
    return targets, sources


@dataclass(frozen=True, eq=False)
class UtilityReleases(Release):
    """The releases of utilities by the nodes of both sides.

    Attributes
    ----------
    network : BipartiteNetwork
        The public network.
    sides : tuple of {UtilityResponse, UtilityNoise}
        The releases of the targets, and those of the sources if they have utilities.
    """

    network: BipartiteNetwork
    sides: tuple[Any, ...]

    @property
    def event(self) -> DpEvent:
        """Return the event of the node that spends most: a unit of privacy belongs to one node."""
        # Nodes protect different units, so the prices of nodes do not add up.
        return max(self.sides, key=lambda side: side.epsilons.max(initial=0.0)).event

    @property
    def epsilons(self) -> tuple[np.ndarray, ...]:
        """Return the epsilon of each target, and of each source."""
        return tuple(side.epsilons for side in self.sides)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of a utility; the scale is the error without a release."""
        return tuple(
            ExpectedError(
                f"standard error of a utility of a {node}", side.standard_error, side.spread
            )
            for node, side in zip(("target", "source"), self.sides, strict=False)
        )

    def sensitivity(self, relation: str) -> float:
        """Return the larger sensitivity of both sides, in units of their releases."""
        return max(side.sensitivity(relation) for side in self.sides)

    def run(self, values: Any, source: NoiseSource) -> tuple[np.ndarray, ...]:
        """Return posterior means of the utilities, in the order of the targets."""
        # Utilities are in the order of the targets; the sources' releases need those of each source
        # together.
        orders = (slice(None), self.network.sources.positions)
        back = (slice(None), self.network.targets.positions)
        return tuple(
            release.estimate(release.run(side_values[order], source))[again]
            for release, side_values, order, again in zip(
                self.sides, values, orders, back, strict=False
            )
        )


def warn_of_ranges(release: UtilityReleases, ranges: Any, released: tuple[np.ndarray, ...]) -> None:
    """Warn of declared ranges in which all released utilities are at one end, or next to 0.

    Only releases that tell tenths of a range apart show it: of levels, fewer than one in a hundred
    is random then. A few utilities may all be there.
    """
    sides = zip(("target", "source"), release.sides, ranges, released, strict=False)
    for node, side, (low, high), values in sides:
        if len(values) >= 10 and side.standard_error < 0.05 * (high - low):
            counts, noise = np.histogram(values, 10, (low, high))[0], 0.03 * len(values) ** 0.5
            name, box = f"utilities of {node}s", ([low], [high])
            _base.warn_of_grid([name], box, counts[None], noise, len(values))


class AllocationEstimator(OneToOneFeatureMixin, TransformerMixin, _base.PrivateEstimator):
    """Base of the allocation estimators. A subclass plans and runs releases."""

    plan_: Any
    _fitted: BipartiteNetwork
    _beside = "source_utilities"

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, source_utilities=None) -> Self:
        """Find a plan for these utilities; with an epsilon, from the nodes' releases.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            Utility of one unit from each source to each target: the parameter a of `utility`.
            Private.
        y : None
            Not used.
        source_utilities : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
            Utility of the unit to the source. Private, like X. None means zero.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If shapes or types are wrong, or the network has no plan; without epsilon, also if
            utilities are not numbers. Nothing is charged in this case.
        BudgetExceededError
            If the ledger does not allow the release. Nothing is released in this case.
        """
        refuse_unused(X, y)
        self._fit(X, source_utilities)
        self.targets_ = names_of(X)
        return self

    def _validate(self, X: Any, source_utilities: Any) -> Problem:
        check_order(self, X, source_utilities)
        private = self.epsilon is not None
        instead = {
            "Input X contains NaN": (
                "Input X contains NaN. If these pairs are no edges, and that is public, pass "
                "adjacency=X.notna() and fit X.fillna(0): only utilities of edges are used. "
                "Otherwise, fill them with a number that is public."
            ),
            "could not convert": (
                "X holds text. It must have numbers only, with a row for each target and a column "
                "for each source. A table of edges becomes X by its method pivot."
            ),
        }
        read = as_numbers if private else None
        X = _base.validate_private_data(
            self, X, instead=instead, as_numbers=read, accept_sparse="csr", dtype=np.float64
        )
        return self._problem_on(self._network_of(X), X, source_utilities, private=private)

    def _declared(self, n_records: int, columns: Any, source_utilities: bool = False) -> Problem:
        """Return the problem on the declared network, with unknown utilities."""
        # Only the shape is declared; utilities of a preview are unknown, and not needed.
        X = sparse.csr_array((n_records, _base.count_columns(columns)))
        if not sparse.issparse(self.adjacency):
            X = X.toarray()
        beside, private = X if source_utilities else None, self.epsilon is not None
        return self._problem_on(self._network_of(X), X, beside, private=private)

    def _network_of(self, X: Any) -> BipartiteNetwork:
        """Return the public network, from the shape of X; without privacy, its stored entries."""
        # Imports of what runs after the charge may fail: nothing has been charged yet.
        load_compiler()
        load_solver()
        private = self.epsilon is not None
        # The network is public, so it may not come from values of X.
        adjacency = _default_edges(X, private) if self.adjacency is None else self.adjacency
        if np.shape(adjacency) != X.shape:
            raise ValueError(f"adjacency must be of shape {X.shape}, got {np.shape(adjacency)}.")
        given = (self.target_bounds, self.source_bounds)
        # Errors of the network name positions and bounds, which are public.
        network = make_network(adjacency, *((0.0, 1.0) if each is None else each for each in given))
        ends, sources = network.targets, network.sources
        max_bound = max(side.upper.max(initial=0.0) for side in (ends, sources))
        # Otherwise products of amounts and utilities could overflow after the charge.
        if max_bound > _LARGEST or 0 < max_bound < _LEAST:
            raise ValueError(f"the largest bound must be 0 or from {_LEAST:g} to {_LARGEST:g}.")
        check_feasible(network)
        if private and not (ends.upper[ends.nodes] * sources.upper[ends.neighbours]).any():
            raise ValueError("nothing was charged: no edge has bounds above 0 at both ends.")
        return network

    def _bar(self, n_rounds: int) -> Any:
        """Return a progress bar over rounds."""
        name = type(self).__name__
        return _base.make_bar(total=n_rounds, unit=" rounds", desc=name, verbose=self.verbose)

    def _problem_on(
        self, network: BipartiteNetwork, X: Any, source_utilities: Any, *, private: bool = False
    ) -> Problem:
        """Return the problem of these utilities on the edges of a network."""
        # Pairs that are no edges are dropped at once: nobody may be charged for them.
        values = [on_edges(X, network)]
        if source_utilities is not None:
            read = read_source_utilities(source_utilities, X.shape, private=private)
            values.append(on_edges(read, network))
        compact = sparse.issparse(X) or sparse.issparse(self.adjacency)
        scale = read_scale(self.utility_scale, network)
        problem = Problem(network, self.utility, scale, tuple(values), compact)
        return within_ranges(problem, read_ranges(self.utility_bounds)) if private else problem

    def _plan_of(self, release: Any, source: NoiseSource, *, delta: float, by: str) -> ReleasePlan:
        """Return the plan of the releases of all nodes; a unit of privacy belongs to one node."""
        unit = {"parameter": "edge", "node": "node"}[self.protect]
        public = ["the edges of the network", "the bounds of its nodes", "running time"]
        # The two utilities of an edge are charged as two units, at both of its nodes.
        if len(release.epsilons) > 1 and self.protect != "node":
            public.append("both utilities of an edge, at its target and at its source, as one")
        # Each node is protected by its own epsilon, and the guarantee is that of the weakest.
        max_epsilon = max(float(of_nodes.max(initial=0.0)) for of_nodes in release.epsilons)
        guarantee = PrivacyGuarantee(max_epsilon, float(delta), "replace_one", unit, tuple(public))
        label = f"{type(self).__name__} by {by}"
        n_targets, about = len(release.epsilons[0]), (guarantee, unit, "replace_one")
        return ReleasePlan(release, release.event, source, label, *about, n_targets)

    def _attributes(
        self, problem: Problem, found: Any, utilities: tuple[np.ndarray, ...] = ()
    ) -> dict[str, Any]:
        """Return the fitted attributes of a plan on the edges of a network, by name.

        `found` says how it was found, and has the total utility and its gap where utilities are
        known; `utilities` are released.
        """
        network = problem.network
        edges = {"plan_": found.plan, "duals_": found.prices}
        edges |= dict(zip(("target_utilities_", "source_utilities_"), utilities, strict=False))
        shown: dict[str, Any] = {name: network.matrix(values) for name, values in edges.items()}
        if not problem.compact:
            shown = {name: matrix.toarray() for name, matrix in shown.items()}
        for name in ("n_iter", "primal_residual", "dual_residual", "history", "welfare", "gap"):
            if hasattr(found, name):
                shown[f"{name}_"] = getattr(found, name)
        return shown | {"_fitted": network}

    def _keep(self, plan: ReleasePlan, released: dict[str, Any]) -> None:
        self.__dict__.update(released)
        if plan.event is not None:
            self.epsilons_ = plan.release.epsilons

    def transform(self, X) -> Any:
        """Return the share of each target's amount that comes from each source.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            The targets that were fitted, of which only the shape is read.

        Returns
        -------
        {ndarray, sparse array} of shape (n_targets, n_sources)
            Rows add up to 1, or to 0 for a target that receives nothing. Sparse as ``plan_`` is,
            and then not for frames (`set_output`). As private as ``plan_``.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If X has another shape than what was fitted.
        """
        self._check_targets(X)
        sums = np.asarray(self.plan_.sum(axis=1)).ravel()
        # A target that receives nothing has no shares, rather than NaN.
        factors = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
        # A sparse plan of many nodes may not fit into memory as an array.
        if sparse.issparse(self.plan_):
            return sparse.csr_array(sparse.diags_array(factors) @ self.plan_)
        return factors[:, None] * self.plan_

    def predict(self, X) -> Any:
        """Return the share of its upper bound that each target receives.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            The targets that were fitted, of which only the shape is read.

        Returns
        -------
        ndarray of shape (n_targets,)
            Between 0 and 1; 0 for a target that can receive nothing. As private as ``plan_``.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If X has another shape than what was fitted.
        """
        self._check_targets(X)
        sums = np.asarray(self.plan_.sum(axis=1)).ravel()
        # Bounds of the fit, even if parameters were changed since.
        upper = self._fitted.targets.upper
        return np.divide(sums, upper, out=np.zeros_like(sums), where=upper > 0)

    def score(self, X, y=None, *, source_utilities=None) -> float:
        """Return the social utility of the plan, which is not private.

        It is computed from the given utilities without noise: if these are private, so are the
        score and any choice that is based on it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            Utility of a unit from each source to each target.
        y : None
            Not used.
        source_utilities : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
            Utility of the unit to the source; None is nothing.

        Returns
        -------
        float
            The sum of all utilities of the amounts of the plan.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If utilities are not numbers, or have another shape than what was fitted.
        """
        refuse_unused(X, y)
        X = self._check_targets(X, private=False)
        network = self._fitted
        # The network of the fit, whose plan is valued by the utilities that are given now.
        targets, sources = self._problem_on(network, X, source_utilities).utilities()
        return welfare(targets, sources, on_edges(self.plan_, network))

    def _check_targets(self, X, private=True):
        """Return X, if it has the shape of the fitted X."""
        check_is_fitted(self)
        refuse_other_order("X", X, self.targets_, of="the fit")
        read = as_numbers if private and self.epsilon is not None else None
        X = _base.validate_private_data(
            self, X, as_numbers=read, accept_sparse="csr", dtype=np.float64, reset=False
        )
        if X.shape != self.plan_.shape:
            raise ValueError(
                f"X has {X.shape[0]} targets, but the fitted plan has {self.plan_.shape[0]}. Pass "
                "the targets of the fit, in the same order."
            )
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Which entries private utilities have is not public.
        tags.input_tags.sparse = self.epsilon is None or self.adjacency is not None
        tags.input_tags.allow_nan = self.epsilon is not None
        return tags


class PrivateADMMTransport(AllocationEstimator):
    """Allocation of resources over a network, where each node keeps its utilities private.

    Sources supply targets. Each node knows only the utilities of its own edges. The goal is the
    plan of maximum total utility. With an epsilon, every node releases its utilities once, with
    its own noise, and the best plan for the released utilities is computed. With ``epsilon=None``
    nodes agree by the alternating direction method of multipliers (ADMM). In each round a node
    sends the amounts that are best for itself, close to the amounts agreed so far, and prices rise
    where targets want more than sources offer.

    **What is protected.** Without epsilon nothing. With epsilon, for one call of :meth:`fit`, the
    utility of one edge at one of its ends, or with ``protect="node"`` all utilities of one node.
    They may be replaced by any others within `utility_bounds`. See the Notes.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Total budget of a node. None protects nothing: then all attributes are as sensitive as X.
    mechanism : {"input", "input_laplace"}, default="input"
        How a node releases its utilities. ``"input"``: randomised response about the interval of
        the range that contains each utility. ``"input_laplace"``: Laplace noise, which is less
        accurate for the same epsilon.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the utility of one edge at one of its ends, or all utilities of a node.
    utility : {"linear", "quadratic", "log"} or callable, default="linear"
        Utility of the amount x on an edge with the parameter a: ``a x``, ``a x - b x**2 / 2`` or
        ``a log(1 + x / c)``. A callable takes the parameters of all edges, an ndarray of shape
        (n_edges,), and returns a :class:`~skdpot.transport.consensus.ConcaveUtility`; see Notes.
    utility_bounds : array-like of shape (2,) or (2, 2), default=None
        Public; required with an epsilon. The smallest and the largest possible utility, or one
        pair for the targets and one for the sources. Utilities outside are
        clipped, and NaN is read as the middle.
    utility_scale : float, array-like or sparse matrix of shape (n_targets, n_sources), default=1.0
        Public. The b of quadratic utilities, in units of utility per unit of amount, at least 0, or
        the c of logarithmic ones, in units of amount, above 0.
    target_bounds, source_bounds : array-like of shape (2,) or (n_nodes, 2), default=None
        Public. The smallest and the largest total amount that each target receives, and that each
        source gives; or one pair for all of them, a tuple. None is (0, 1).
    adjacency : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
        Public. 1 where an edge is, else 0. Nothing is sent on other pairs, and their utilities are
        not used. None means all pairs; without an epsilon, and for a sparse X, its stored entries.
    node_budgets : pair of float or array-like, default=None
        Public. The part of epsilon that each target and each source spends, above 0 and at most 1:
        one number, or one for each node. None is 1.
    max_iter : int, default=20000
        Largest number of rounds.
    tol : float, default=1e-4
        Rounds end when the total utility of the plan is certified to be within this fraction of
        the largest possible one. For released linear utilities, the best plan is computed without
        rounds, unless the network is large and sparse.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before anything is released, with the unit ``"edge"`` or ``"node"`` and the
        relation ``"replace_one"``.
    random_state : int or RandomState, default=None
        None uses the operating system's cryptographic source. Seeded releases can be reproduced,
        so they are *not private*: use seeds for tests and teaching only.
    verbose : bool, default=None
        Whether to show a progress bar over rounds. None shows it on a terminal after three seconds.

    Attributes
    ----------
    plan_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Amount from each source to each target. Feasible up to rounding. Sparse if X or `adjacency`
        is sparse.
    duals_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Prices on the edges, in units of utility: targets pay them for a unit, and sources are paid.
    welfare_ : float
        Total utility of the plan; with an epsilon, by the released utilities.
    gap_ : float
        Largest relative difference between `welfare_` and the largest possible total utility.
    n_iter_ : int
        Number of rounds; if the best plan for linear utilities is computed directly, number of
        programs.
    primal_residual_, dual_residual_ : float
        Euclidean norms of the final difference between the amounts that both sides want, and of
        eta times the last change of their mean.
    history_ : dict of str to ndarray
        ``n_iter``, ``eta``, ``primal_residual`` and ``dual_residual`` in the checked rounds, and
        without noise also ``welfare`` and ``bound``; empty if there were no rounds.
    target_utilities_, source_utilities_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Means of the utilities, given the releases. Only with an epsilon.
    targets_ : list
        The index of X, if it has one: `predict` refuses targets in another order.
    epsilons_ : tuple of ndarray
        The epsilon that each target spent, and each source, if sources have utilities. Only with
        an epsilon.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee; None for seeded releases, and without an epsilon.
    n_features_in_ : int
        Number of sources.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the sources, if X has names.

    See Also
    --------
    skdpot.published.PrivateMessageADMM : The published method: ADMM with noise on every message.
    PrivacyLedger : Records and limits all releases.

    Notes
    -----
    *What is protected.* Nodes trust nobody: each adds noise to its release, and the guarantee
    holds against all others together. Two inputs are neighbours if they differ in the utility of
    one edge at one of its ends, or in all utilities of one node. A unit belongs to one node, so
    all nodes together cost as much as the node with the largest epsilon. An edge has one utility
    at its target and one at its source, which are different units. Edges and bounds are public.
    Proof: :ref:`proof-private-utilities`.

    *The plan is optimal for mean utilities.* Total utility is linear in the released utilities,
    for all three families. So the plan that is best for their means, given the releases, has the
    largest expected total utility, if utilities are uniform in their range. Privacy does not
    depend on this assumption.

    *Every private fit is a release* and is charged its epsilon.

    *With a trusted centre* that may know all utilities, a central solver is faster: ``ot.emd``
    with dummy nodes, and with sparse costs if edges are missing; linear programming if there are
    lower bounds.

    *User-defined utilities* need ``value(x)``, ``derivative(x)`` and ``second_derivative(x)``,
    elementwise, and ``take(edges)``, the utilities of some edges; they must be concave. With an
    epsilon they must not print anything, or raise errors, that depend on their parameters.

    *There are no new targets.* The rows of X are the nodes of one network, so shares of other
    targets cannot be predicted. A search over parameters should use one fold with all rows, as in
    the example; `source_utilities` reach the score only by metadata routing. Every private
    candidate is charged, and a choice by the score is not private.

    References
    ----------
    J. Hughes and J. Chen, "Differentially Private ADMM-Based Distributed Discrete Optimal Transport
    for Resource Allocation", Algorithm 1 without an epsilon.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import PrivateADMMTransport
    >>> likes = np.array([[5.0, 1.0], [4.0, 2.0], [1.0, 3.0]])
    >>> allocation = PrivateADMMTransport(
    ...     epsilon=None, target_bounds=(0, 1), source_bounds=[(0, 1), (0, 2)]
    ... )
    >>> allocation.fit(likes).plan_.round(3) + 0.0
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    >>> round(allocation.welfare_, 3)
    10.0
    >>> private = PrivateADMMTransport(
    ...     2.0, utility_bounds=(1, 5), target_bounds=(0, 1), source_bounds=[(0, 1), (0, 2)],
    ...     random_state=0,
    ... )
    >>> private.fit(likes).plan_.sum(axis=1).round(3)
    array([1., 1., 1.])

    A search over parameters has all targets in its one fold:

    >>> from sklearn.model_selection import GridSearchCV
    >>> everyone = np.arange(3)
    >>> search = GridSearchCV(
    ...     allocation, {"source_bounds": [(0, 1), (0, 2)]}, cv=[(everyone, everyone)]
    ... )
    >>> search.fit(likes).best_params_
    {'source_bounds': (0, 2)}

    What a user defines has four methods:

    >>> class Root:
    ...     def __init__(self, factors):
    ...         self.factors = factors
    ...     def value(self, x):
    ...         return self.factors * (np.sqrt(1 + x) - 1)
    ...     def derivative(self, x):
    ...         return 0.5 * self.factors / np.sqrt(1 + x)
    ...     def second_derivative(self, x):
    ...         return -0.25 * self.factors * (1 + x) ** -1.5
    ...     def take(self, edges):
    ...         return Root(self.factors[edges])
    >>> allocation.set_params(utility=Root).fit(likes).plan_.round(2) + 0.0
    array([[0.99, 0.01],
           [0.01, 0.99],
           [0.  , 1.  ]])
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "mechanism": [StrOptions(set(UTILITY_MECHANISMS))],
        **ALLOCATION_CONSTRAINTS,
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        epsilon=1.0,
        *,
        mechanism="input",
        protect="parameter",
        utility="linear",
        utility_bounds=None,
        utility_scale=1.0,
        target_bounds=None,
        source_bounds=None,
        adjacency=None,
        node_budgets=None,
        max_iter=20_000,
        tol=1e-4,
        ledger=None,
        random_state=None,
        verbose=None,
    ) -> None:
        self.epsilon = epsilon
        self.mechanism = mechanism
        self.protect = protect
        self.utility = utility
        self.utility_bounds = utility_bounds
        self.utility_scale = utility_scale
        self.target_bounds = target_bounds
        self.source_bounds = source_bounds
        self.adjacency = adjacency
        self.node_budgets = node_budgets
        self.max_iter = max_iter
        self.tol = tol
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _plan(self, problem: Problem) -> ReleasePlan:
        source = make_source(self.random_state)
        if self.epsilon is None:
            return ReleasePlan(None, None, source, type(self).__name__, None)
        network, ranges = problem.network, read_ranges(self.utility_bounds)
        factors = read_factors(self.node_budgets, network)
        # The declared ranges, and not the values, set the noise.
        # Sources without utilities release nothing.
        sides = (network.targets, network.sources)[: len(problem.values)]
        make = partial(UTILITY_MECHANISMS[self.mechanism], self.epsilon, protect=self.protect)
        releases = tuple(
            make(low=low, high=high, degrees=side.degrees, factors=of_nodes)
            for side, (low, high), of_nodes in zip(sides, ranges, factors, strict=False)
        )
        release = UtilityReleases(network, releases)
        return self._plan_of(release, source, delta=0.0, by=self.mechanism)

    def _run(self, plan: ReleasePlan, problem: Problem) -> dict[str, Any]:
        network, released = problem.network, ()
        if plan.event is not None:
            released = plan.release.run(problem.values, plan.source)
            problem = replace(problem, values=released)
            warn_of_ranges(plan.release, read_ranges(self.utility_bounds), released)
        # The network simplex takes some seconds for a million edges. Except on huge sparse
        # networks, it is faster than rounds.
        soon = network.n_edges <= max(1_000_000, network.shape[0] * network.shape[1] // 2)
        is_direct = released and problem.family == "linear" and soon
        found = optimal_plan(network, *problem.utilities()) if is_direct else self._agree(problem)
        return self._attributes(problem, found, released)

    def _agree(self, problem: Problem) -> NetworkPlan:
        """Return the plan that the nodes agree on by messages without noise."""
        # Prices move on the scale of utilities, so that the step size must fit their spread.
        spread = max(float(np.ptp(values)) if len(values) else 0.0 for values in problem.values)
        with self._bar(self.max_iter) as bar:

            def pass_on(n_iter, eta, *answers):
                """Return answers as they are; it is called once in every round."""
                bar.update()
                return answers

            agreed = consensus(
                problem.network,
                *problem.utilities(),
                eta=starting_eta(problem.network, spread),
                tol=self.tol,
                max_iter=self.max_iter,
                release=pass_on,
            )
        if not agreed.converged:
            _base.warn_user(
                f"after {agreed.n_iter} rounds the welfare of the plan is within {agreed.gap:.1e} "
                f"of the largest possible one, and not within {self.tol:g}. Raise max_iter or tol.",
                ConvergenceWarning,
            )
        return agreed
