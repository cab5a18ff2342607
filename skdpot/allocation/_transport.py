"""The estimator of allocations over a network, in which nodes release their utilities."""

from numbers import Integral, Real

from joblib import effective_n_jobs

from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.random import make_source
from skdpot.releases import UTILITY_MECHANISMS
from skdpot.transport import load_compiler

from ._estimator import ALLOCATION_CONSTRAINTS, AllocationEstimator
from ._inputs import UtilityReleases
from ._problem import Problem, read_factors, read_ranges
from ._solver import Solution, Solver


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
        source gives; or one pair for all of them. None is (0, 1).
    adjacency : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
        Public. Nonzero entries are edges. Nothing is sent on other pairs, and their utilities are
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
    n_jobs : int, default=None
        With 2 or more, targets and sources compute in parallel. Results do not depend on it.
    random_state : int or RandomState, default=None
        None uses the operating system's cryptographic source. Seeded releases can be reproduced,
        so they are *not private*: use seeds for tests and teaching only.
    verbose : int, default=0
        Whether to show a progress bar over rounds.

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
