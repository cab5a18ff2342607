"""The estimator of allocations over a network, private by what nodes release of utilities."""

from numbers import Integral, Real
from typing import Self

from joblib import effective_n_jobs

from skdpot._base import tells_of_charges
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.random import make_source
from skdpot.transport import load_compiler

from ._estimator import ALLOCATION_CONSTRAINTS, AllocationEstimator
from ._inputs import MECHANISMS, UtilityReleases
from ._problem import Problem, read_factors, read_ranges
from ._solver import Solution, Solver


class PrivateADMMTransport(AllocationEstimator):
    """Allocation of resources over a network, where each node keeps its utilities private.

    Targets want what sources have. Each node knows what amounts on its own edges are worth to
    itself, and nothing of the others. The goal is the plan of maximum total utility. With an
    epsilon, every node releases its utilities once, with noise of its own, and the best plan for
    what was released is computed. With ``epsilon=None`` nodes agree by the alternating direction
    method of multipliers (ADMM): each sends the amounts that are best for itself, near those agreed
    on so far, while prices rise where targets want more than sources offer.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Total budget of a node. None protects nothing: all attributes are then as private as X.
    mechanism : {"input", "input_laplace"}, default="input"
        How a node releases its utilities. ``"input"``: by randomised response, in which part of its
        range each of them lies. ``"input_laplace"``: with Laplace noise, which tells less for the
        same epsilon.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the utility of one edge at one of its ends, or all utilities of a node.
    utility : {"linear", "quadratic", "log"} or callable, default="linear"
        What the amount x is worth on an edge with the utility a: ``a x``, ``a x - b x**2 / 2`` or
        ``a log(1 + x / c)``. A callable takes the utilities of all edges, an ndarray of shape
        (n_edges,), and returns a
        :class:`~skdpot.transport.consensus.ConcaveUtility`; see Notes.
    utility_bounds : array-like of shape (2,) or (2, 2), default=None
        Public, and required with an epsilon: the least and the largest utility that there may be,
        or a pair for the targets and one for the sources. Utilities outside are refused.
    utility_scale : float, array-like or sparse matrix of shape (n_targets, n_sources), default=1.0
        Public. The b of quadratic utilities, in units of utility per unit of amount, at least 0, or
        the c of logarithmic ones, in units of amount, above 0.
    target_bounds, source_bounds : array-like of shape (2,) or (n_nodes, 2), default=None
        Public. The least and the largest amount that a target receives in all, and that a source
        gives, or one pair for all of them. None is (0, 1).
    adjacency : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
        Public. What differs from zero is an edge; nothing goes elsewhere, and utilities elsewhere
        are not used. None is every pair, and without an epsilon every entry that a sparse X stores.
    node_budgets : pair of float or array-like, default=None
        Public. What part of epsilon each target spends, and each source, above 0 and at most 1: a
        number, or one for each node. None is all of it.
    max_iter : int, default=20000
        Largest number of rounds.
    tol : float, default=1e-4
        Rounds end once the plan's welfare is proven to be within this part of the largest possible
        one. The best plan for linear utilities that were released is computed without rounds,
        unless the network is large and sparse.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before anything is released, for the unit ``"edge"`` or ``"node"`` and the
        relation ``"replace_one"``.
    n_jobs : int, default=None
        With 2 or more, targets and sources answer at the same time. Results do not depend on it.
    random_state : int or RandomState, default=None
        None draws from the operating system's cryptographic source. Seeded releases are
        reproducible, for tests and teaching, and therefore *not private*.
    verbose : int, default=0
        Whether to show a progress bar over rounds.

    Attributes
    ----------
    plan_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        What goes from each source to each target. Feasible up to rounding. Sparse if X or
        `adjacency` is.
    duals_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Prices on the edges, in units of utility: what targets pay for a unit and sources are paid.
    welfare_ : float
        Worth of the plan to all nodes; with an epsilon, by the utilities that were released.
    gap_ : float
        By what part of the largest possible welfare `welfare_` may fall short of it.
    n_iter_ : int
        Number of rounds; of programs, where the best plan for linear utilities is computed.
    primal_residual_, dual_residual_ : float
        Euclidean norms of the difference between what both sides want at last, and of eta times the
        last change of its mean.
    history_ : dict of str to ndarray
        ``n_iter``, ``eta``, ``primal_residual`` and ``dual_residual`` in rounds that were looked
        at, and without noise also ``welfare`` and ``bound``; of no rounds, where there were none.
    target_utilities_, source_utilities_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Means of the utilities, given what nodes released of them. Only with an epsilon.
    epsilons_ : tuple of ndarray
        What each target spent, and each source, if these have utilities. Only with an epsilon.
    privacy_guarantee_ : PrivacyGuarantee or None
        What is guaranteed; None for seeded releases, and without an epsilon.
    n_features_in_ : int
        Number of sources.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the sources, where X has any.

    See Also
    --------
    skdpot.published.PrivateMessageADMM : The published method: ADMM with noise on every message.
    skdpot.federation : Nodes as objects of their own, which exchange messages. Without privacy
        they come to the same prices, and to the plan nearest to their last amounts, where this
        class returns the best plan that was met.
    PrivacyLedger : Keeps account of what was released.

    Notes
    -----
    *What is protected.* Nodes trust nobody: each adds noise to what it releases, and the guarantee
    holds against all others together. Two inputs are neighbours if they differ in the utility of
    one edge at one of its ends, or in all those of one node. A unit belongs to one node, so that
    all nodes together cost what the node with the largest epsilon does. An edge has one utility at
    its target and one at its source, which are different units. Edges and bounds are public.
    Proof: :ref:`proof-private-utilities`.

    *Planning for average utilities is best:* as long as welfare is linear in the released
    utilities, which all three families are, the plan that is best for their means, given what was
    released, has the largest expected welfare, if utilities were uniform in their range. Privacy
    does not depend on that.

    *Every private fit releases.* Each charges its epsilon anew.

    *One centre, or many.* Where a trusted centre may know all utilities, a central solver is
    faster: ``ot.emd`` with dummy nodes, and sparse costs where edges are missing; linear
    programming where there are lower bounds.

    *User-defined utilities* need ``value(x)``, ``derivative(x)`` and ``second_derivative(x)``,
    elementwise, and ``take(edges)``, the utilities of some edges; they must be concave. With an
    epsilon they must not print or raise what depends on their parameters.

    *Targets are those of the fit.* The rows of X are nodes of one network, so that shares of other
    targets cannot be predicted. A search over parameters should have all rows in its one fold, as
    in the example; `source_utilities` reach the score only by metadata routing. Every candidate
    that is private is charged, and what is chosen by the score is not private.

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
        "mechanism": [StrOptions(set(MECHANISMS))],
        **ALLOCATION_CONSTRAINTS,
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_jobs": [Integral, None],
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
        n_jobs=None,
        random_state=None,
        verbose=0,
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
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @tells_of_charges
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, source_utilities=None) -> Self:
        """Find a plan for these utilities; with an epsilon, from what their nodes release.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            What a unit from each source is worth to each target: the parameter a of `utility`.
            Private.
        y : None
            Not used.
        source_utilities : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
            What it is worth to the source. Private as X. None is nothing.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If utilities are not numbers or are outside of their declared range, shapes differ, or
            the network has no plan. Nothing was charged then.
        BudgetExceededError
            If the ledger does not allow the release. Nothing was released then.
        """
        return self._fit(X, source_utilities)

    def _solver(self) -> Solver:
        n_threads = min(effective_n_jobs(self.n_jobs), 2)
        load_compiler()
        return Solver(self.max_iter, self.tol, n_threads, self._progress())

    def _plan(self, data: tuple[Problem, Solver]) -> ReleasePlan:
        problem, _ = data
        source = make_source(self.random_state)
        if self.epsilon is None:
            return ReleasePlan(None, None, source, type(self).__name__, None)
        release = UtilityReleases.plan(
            self.mechanism, problem.network, epsilon=self.epsilon,
            ranges=read_ranges(self.utility_bounds), protect=self.protect,
            factors=read_factors(self.node_budgets, problem.network), n_sides=len(problem.values),
        )  # fmt: skip
        return self._plan_of(release, source, delta=0.0, by=self.mechanism)

    def _run(self, plan: ReleasePlan, data: tuple[Problem, Solver]) -> Solution:
        problem, solver = data
        if plan.event is None:
            return solver.agree(problem)
        released = plan.release.run(problem.values, plan.source)
        return solver.best_plan(problem.with_values(released))
