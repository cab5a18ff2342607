"""Base of the allocation estimators: it reads networks, keeps plans and returns shares."""

from numbers import Real
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from skdpot._base import PrivateEstimator, count_columns, tells_of_charges, validate_private_data
from skdpot._conformance import FITTED_TARGETS, NO_REFUSED_VALUES, Failures
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.random import NoiseSource
from skdpot.privacy.sensitivity import PROTECTED
from skdpot.tables import as_numbers
from skdpot.transport import load_compiler, load_solver
from skdpot.transport.consensus import FAMILIES, BipartiteNetwork, check_feasible, welfare

from ._problem import (
    Problem,
    check_order,
    on_edges,
    read_network,
    read_ranges,
    read_scale,
    read_source_utilities,
    within_ranges,
)
from ._simulation import LARGEST_SIMULATED, share_lost
from ._solver import Solution, Solver

_INSTEAD = {
    "Input X contains NaN": (
        "Input X contains NaN. If these pairs are no edges, and that is public, pass "
        "adjacency=X.notna() and fit X.fillna(0): only utilities of edges are used. Otherwise, "
        "fill them with a number that is public."
    ),
    "could not convert": (
        "X holds text. It must have numbers only, with a row for each target and a column for each "
        "source. A table of edges becomes X by its method pivot."
    ),
}
_UNITS = {"parameter": "edge", "node": "node"}
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
    "verbose": ["verbose"],
}


class AllocationEstimator(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    """Base of the allocation estimators. A subclass plans and runs releases."""

    plan_: Any
    _fitted: BipartiteNetwork

    @tells_of_charges
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
        return self._fit(X, source_utilities)

    def _validate(self, X: Any, source_utilities: Any) -> tuple[Problem, Solver]:
        solver = self._solver()
        check_order(
            X, adjacency=self.adjacency, utility_scale=self.utility_scale,
            source_utilities=source_utilities, target_bounds=self.target_bounds,
            source_bounds=self.source_bounds,
        )  # fmt: skip
        private = self.epsilon is not None
        X = validate_private_data(
            self, X, instead=_INSTEAD, as_numbers=as_numbers if private else None,
            accept_sparse="csr", dtype=np.float64,
        )  # fmt: skip
        problem = self._problem_on(self._network_of(X), X, source_utilities, private=private)
        if private:
            problem = within_ranges(problem, read_ranges(self.utility_bounds))
        return problem, solver

    def _declared(
        self, n_records: int, columns: Any, source_utilities: bool = False
    ) -> tuple[Problem, Solver]:
        """Return the problem on the declared network, with unknown utilities."""
        X = sparse.csr_array((n_records, count_columns(columns)))
        if not sparse.issparse(self.adjacency):
            X = X.toarray()
        network = self._network_of(X)
        return self._problem_on(network, X, X if source_utilities else None), self._solver()

    def _simulated_errors(self, declared: tuple[Problem, Solver]) -> tuple[ExpectedError, ...]:
        """Return the lost share of the optimum, for made-up utilities in the declared ranges."""
        problem, solver = declared
        if self.epsilon is None or problem.network.n_edges > LARGEST_SIMULATED:
            return ()
        seeded = clone(self)

        def released(seed: int, drawn: Problem, quick: Solver) -> Solution:
            seeded.set_params(random_state=seed)
            return seeded._run(seeded._plan((drawn, quick)), (drawn, quick))

        return share_lost(problem, solver, read_ranges(self.utility_bounds), released)

    def _network_of(self, X: Any) -> BipartiteNetwork:
        """Return the public network, or raise."""
        network = read_network(
            X,
            self.adjacency,
            self.target_bounds,
            self.source_bounds,
            private=self.epsilon is not None,
        )
        check_feasible(network)
        return network

    def _solver(self) -> Solver:
        """Return the solver, or raise; nothing has been charged yet."""
        load_compiler()
        load_solver()
        return Solver(progress=self._progress())

    def _progress(self) -> dict[str, Any]:
        return {"desc": type(self).__name__, "disable": not self.verbose}

    def _problem_on(
        self, network: BipartiteNetwork, X: Any, source_utilities: Any, *, private: bool = False
    ) -> Problem:
        """Return the problem of these utilities on the edges of a network."""
        values = [on_edges(X, network)]
        if source_utilities is not None:
            read = read_source_utilities(source_utilities, X.shape, private=private)
            values.append(on_edges(read, network))
        compact = sparse.issparse(X) or sparse.issparse(self.adjacency)
        scale = read_scale(self.utility_scale, network)
        return Problem(network, self.utility, scale, tuple(values), compact)

    def _plan_of(self, release: Any, source: NoiseSource, *, delta: float, by: str) -> ReleasePlan:
        """Return the plan of the releases of all nodes; a unit of privacy belongs to one node."""
        unit = _UNITS[self.protect]
        public: tuple[str, ...] = (
            "the edges of the network",
            "the bounds of its nodes",
            "running time",
        )
        if len(release.epsilons) > 1 and self.protect != "node":
            public += ("both utilities of an edge, at its target and at its source, as one",)
        largest = max(float(node_epsilons.max(initial=0.0)) for node_epsilons in release.epsilons)
        guarantee = PrivacyGuarantee(largest, float(delta), "replace_one", unit, public)
        label = f"{type(self).__name__} by {by}"
        return ReleasePlan(release, release.event, source, label, guarantee, unit, "replace_one")

    def _keep(self, plan: ReleasePlan, released: Solution) -> None:
        matrices = {"plan_": released.plan, "duals_": released.prices}
        names = ("target_utilities_", "source_utilities_")
        matrices |= dict(zip(names, released.utilities, strict=False))
        for name, values in matrices.items():
            matrix = released.network.matrix(values)
            setattr(self, name, matrix if released.compact else matrix.toarray())
        for name in ("n_iter", "primal_residual", "dual_residual", "history", "welfare", "gap"):
            if getattr(released, name) is not None:
                setattr(self, f"{name}_", getattr(released, name))
        if plan.event is not None:
            self.epsilons_ = plan.release.epsilons
        self._fitted = released.network

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
        factors = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
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
        X = self._check_targets(X, private=False)
        network = self._fitted
        targets, sources = self._problem_on(network, X, source_utilities).utilities()
        return float(welfare(network, targets, sources, on_edges(self.plan_, network)))

    def _check_targets(self, X, private=True):
        """Return X, if it has the shape of the fitted X."""
        check_is_fitted(self)
        X = validate_private_data(
            self, X, as_numbers=as_numbers if private and self.epsilon is not None else None,
            accept_sparse="csr", dtype=np.float64, reset=False,
        )  # fmt: skip
        if X.shape != self.plan_.shape:
            raise ValueError(
                f"X has {X.shape[0]} targets, but the fitted plan has {self.plan_.shape[0]}. Pass "
                "the targets of the fit, in the same order."
            )
        return X

    def _failing_checks(self) -> Failures:
        failing = {} if self.epsilon is None else NO_REFUSED_VALUES
        return {**FITTED_TARGETS, **failing}

    def _undeclared(self) -> str | None:
        lacking = self.epsilon is not None and self.utility_bounds is None
        return "utility_bounds are not declared, for a private fit" if lacking else None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Which entries private utilities have is not public.
        tags.input_tags.sparse = self.epsilon is None or self.adjacency is not None
        tags.input_tags.allow_nan = self.epsilon is not None
        return tags
