"""An allocation of resources over a network, as an estimator."""

import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from tqdm.auto import tqdm

from skdpot._base import PrivateEstimator, validate_private_data
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.allocation._estimates import estimate_utilities
from skdpot.allocation._inputs import MECHANISMS, make_releases, release_utilities
from skdpot.allocation._messages import make_noise, private_consensus
from skdpot.allocation._planning import plan_rounds
from skdpot.allocation._reading import (
    FAMILIES,
    check_within,
    declare_utilities,
    make_utility,
    on_edges,
    read_factors,
    read_network,
    read_ranges,
    read_scale,
    read_source_utilities,
)
from skdpot.privacy.allocation_sensitivity import PROTECTED
from skdpot.privacy.charging import charge, check_ledger
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.privacy.random import make_source
from skdpot.transport.consensus import (
    BipartiteNetwork,
    LinearUtility,
    check_feasible,
    consensus,
    optimal_plan,
    starting_eta,
    welfare,
)

NEIGHBOURING = "replace_one"
_FITTED = {
    *("plan_", "duals_", "welfare_", "gap_", "n_iter_", "primal_residual_", "dual_residual_"),
    *("history_", "target_utilities_", "source_utilities_", "epsilons_", "privacy_guarantee_"),
}
_UNITS = {"parameter": "edge", "node": "node"}
_HISTORY = ("n_iter", "eta", "primal_residual", "dual_residual", "welfare", "bound")
# For whom linear programs take some seconds.
_FEW_EDGES = 100_000
# Rounds, at most, where there is no noise and nothing else is said.
_MOST_ROUNDS = 20_000


@dataclass(frozen=True, eq=False)
class _Problem:
    """What there is to allocate; the network and the scale are public.

    Attributes
    ----------
    network : BipartiteNetwork
    values : list of ndarray of shape (n_edges,)
        Utilities of the targets, and of the sources if they have any.
    scale : ndarray of shape (n_edges,)
        The public parameter of utilities that have a second one.
    """

    network: BipartiteNetwork
    values: list[np.ndarray]
    scale: np.ndarray


class PrivateADMMTransport(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    """Allocation of resources over a network by messages that tell little of anyone's utilities.

    Targets want what sources have. Each knows what amounts on its own edges are worth to itself,
    and nothing of the others; what goes from each source to each target is to be worth as much as
    possible to all together. Without an epsilon, nodes agree by the alternating direction method of
    multipliers (ADMM): each sends the amounts that are best for itself, near those agreed on so
    far, while prices rise where targets want more than sources offer. With one, all that leaves a
    node is differentially private: its utilities, perturbed once, or its messages.

    Parameters
    ----------
    epsilon : float, default=None
        Total budget of a node for all that it sends. None protects nothing: all attributes are then
        as private as X.
    delta : float, default=0.0
        For ``mechanism="messages"``: above 0 the noise is normal. Utilities are released without a
        delta.
    mechanism : {"input", "input_laplace", "messages"}, default="input"
        What is released. ``"input"``: of each utility, in which part of its range it lies, by
        randomised response; then the best plan for what they are on average is computed, which
        costs nothing. ``"input_laplace"``: utilities with Laplace noise, which tells less for the
        same price. ``"messages"``: amounts with noise. If `n_iter` or `eta` is given, or not
        `averaging`, those of every round, as published; else of a single one, which tells more than
        many for the same budget: utilities are estimated from it, and planned for.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the utility of one edge at one of its ends, or all utilities of a node.
    utility : {"linear", "quadratic", "log"} or callable, default="linear"
        What the amount x is worth on an edge with the utility a: ``a x``, ``a x - b x**2 / 2`` or
        ``a log(1 + x / c)``. A callable takes the utilities of all edges, an ndarray of shape
        (n_edges,), and returns a
        :class:`~skdpot.transport.consensus.ConcaveUtility`; see Notes.
    utility_range : array-like of shape (2,) or (2, 2), default=None
        Public, and required with an epsilon: the least and the largest utility that there may be,
        or a pair for the targets and one for the sources. What is outside is refused.
    utility_scale : float, array-like or sparse matrix of shape (n_targets, n_sources), default=1.0
        Public. The b of quadratic utilities, in units of utility per unit of amount, at least 0, or
        the c of logarithmic ones, in units of amount, above 0. A number with
        ``mechanism="messages"``.
    target_bounds, source_bounds : array-like of shape (2,) or (n_nodes, 2), default=None
        Public. The least and the largest amount that a target receives in all, and that a source
        gives, or one pair for all of them. None is (0, 1).
    adjacency : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
        Public. What differs from zero is an edge; nothing goes elsewhere, and utilities elsewhere
        are of no account. None is every pair, and without an epsilon every entry that a sparse X
        stores.
    node_budgets : pair of float or array-like, default=None
        Public. What part of epsilon each target spends, and each source, above 0 and at most 1: a
        number, or one for each node. None is all of it.
    eta : {"adaptive"} or float, default="adaptive"
        Penalty of a squared difference between amounts, in units of utility per squared amount.
        ``"adaptive"`` follows the residuals of the messages. With ``mechanism="messages"`` it is
        chosen by simulation of other utilities in their range, without a look at X.
    n_iter : int, default=None
        Largest number of rounds. None is 20,000, and with ``mechanism="messages"`` is chosen as
        `eta` is.
    tol : float, default=1e-4
        Rounds end once a plan's welfare is proven to be within this part of the largest possible
        one. Of no account with ``mechanism="messages"``, of which all rounds are made, and where
        the best plan for linear utilities is computed.
    averaging : bool, default=True
        For ``mechanism="messages"``: whether the plan may be made of all messages, with rounds of
        the mean of their second half, or is that of the last round, as published.
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
        Worth of the plan to all nodes; with an epsilon by what was released of utilities. Not there
        for rounds of messages with noise.
    gap_ : float
        By what part of the largest possible welfare `welfare_` may fall short of it.
    n_iter_ : int
        Number of rounds; of linear programs, where the best plan for linear utilities is computed.
    primal_residual_, dual_residual_ : float
        Euclidean norms of the difference between what both sides want at last, and of eta times the
        last change of its mean.
    history_ : dict of str to ndarray
        ``n_iter``, ``eta``, ``primal_residual`` and ``dual_residual`` in rounds that were looked
        at, and without noise also ``welfare`` and ``bound``; of no rounds, where there were none.
    target_utilities_, source_utilities_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        What utilities are on average, given what nodes released of them. Not there for rounds.
    epsilons_ : tuple of ndarray
        What each target spent, and each source, if these have utilities. Only with an epsilon.
    privacy_guarantee_ : PrivacyGuarantee or None
        What is guaranteed; None for seeded releases. Only with an epsilon.
    n_features_in_ : int
        Number of sources.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the sources, where X has any.

    See Also
    --------
    skdpot.federation : Nodes as objects of their own, which exchange such messages. Without privacy
        they come to the same prices, and to the plan nearest to their last amounts, where this
        class returns the best plan that was met.
    PrivacyLedger : Keeps account of what was released.

    Notes
    -----
    *What is protected.* Nodes trust nobody: each adds noise to what it sends, and what is stated
    holds against all others together. Two inputs are neighbours if they differ in the utility of
    one edge at one of its ends, or in all those of one node. A unit belongs to one node, so that
    all nodes together cost what the dearest of them does, and a node's messages add up. An edge has
    one utility at its target and one at its source, which are different units. Edges and bounds
    are public. The theory page proves the sensitivity of a message.

    *Planning for average utilities is best:* as long as welfare is linear in the released
    utilities, which all three families are, the plan that is best for their means, given what was
    released, has the largest expected welfare, if utilities were uniform in their range. Privacy
    does not depend on that.

    *All fits release.* Each charges its epsilon anew.

    *One centre, or many.* Where nobody minds to tell a centre their utilities, a central solver is
    faster: ``ot.emd`` with dummy nodes for complete networks, linear programming for others.

    *User-defined utilities* need ``value(x)``, ``derivative(x)`` and ``second_derivative(x)``,
    elementwise, and ``take(edges)``, the utilities of some edges; they must be concave. With an
    epsilon they must not print or raise what depends on their parameters. With
    ``mechanism="messages"`` the callable must also have a method ``marginal_range(low, high,
    cap)``: the least and the largest marginal utility of all members with parameters from `low` to
    `high`, at any amount from 0 to `cap`. Noise is scaled to it.

    *Targets are those of the fit.* The rows of X are nodes of one network and not samples of
    something, so that shares of other targets cannot be predicted, and folds of rows make no sense.
    Where a search is to compare parameters, it should have all rows in its one fold, as in the
    example; `source_utilities` reach the score only by metadata routing. Every candidate that is
    private is charged, and what is chosen by the score is not private.

    References
    ----------
    J. Hughes and J. Chen, "Differentially Private ADMM-Based Distributed Discrete Optimal Transport
    for Resource Allocation": Algorithm 1 without an epsilon, and Algorithm 2, corrected, with
    ``mechanism="messages"``. The theory page lists what was corrected.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import PrivateADMMTransport
    >>> likes = np.array([[5.0, 1.0], [4.0, 2.0], [1.0, 3.0]])
    >>> allocation = PrivateADMMTransport(target_bounds=(0, 1), source_bounds=[(0, 1), (0, 2)])
    >>> allocation.fit(likes).plan_.round(3) + 0.0
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    >>> round(allocation.welfare_, 3)
    10.0
    >>> private = PrivateADMMTransport(
    ...     2.0, utility_range=(1, 5), target_bounds=(0, 1), source_bounds=[(0, 1), (0, 2)],
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
        "delta": [Interval(Real, 0, 1, closed="left")],
        "mechanism": [StrOptions({*MECHANISMS, "messages"})],
        "protect": [StrOptions(set(PROTECTED))],
        "utility": [StrOptions(set(FAMILIES)), callable],
        "utility_range": ["array-like", None],
        "utility_scale": [
            Interval(Real, 0, None, closed="left"), "array-like", "sparse matrix",
        ],
        "target_bounds": ["array-like", None],
        "source_bounds": ["array-like", None],
        "adjacency": ["array-like", "sparse matrix", None],
        "node_budgets": ["array-like", None],
        "eta": [StrOptions({"adaptive"}), Interval(Real, 0, None, closed="neither")],
        "n_iter": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "averaging": ["boolean"],
        "ledger": "no_validation",
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }  # fmt: skip

    def __init__(
        self,
        epsilon=None,
        delta=0.0,
        *,
        mechanism="input",
        protect="parameter",
        utility="linear",
        utility_range=None,
        utility_scale=1.0,
        target_bounds=None,
        source_bounds=None,
        adjacency=None,
        node_budgets=None,
        eta="adaptive",
        n_iter=None,
        tol=1e-4,
        averaging=True,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.protect = protect
        self.utility = utility
        self.utility_range = utility_range
        self.utility_scale = utility_scale
        self.target_bounds = target_bounds
        self.source_bounds = source_bounds
        self.adjacency = adjacency
        self.node_budgets = node_budgets
        self.eta = eta
        self.n_iter = n_iter
        self.tol = tol
        self.averaging = averaging
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, source_utilities=None):
        """Find a plan for these utilities; with an epsilon, from what their nodes release.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            What a unit from each source is worth to each target: the parameter a of `utility`.
            Private.
        y : None
            Of no account.
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
        # A fit that is refused leaves nothing of an earlier one, which may not have been private.
        self._forget()
        X = validate_private_data(self, X, accept_sparse="csr", dtype=np.float64)
        problem = self._read(X, source_utilities)
        if self.epsilon is None:
            fitted = self._agree(problem)
        elif self.mechanism == "messages":
            fitted = self._exchange_messages(problem)
        else:
            fitted = self._release_inputs(problem)
        compact = sparse.issparse(X) or sparse.issparse(self.adjacency)
        for name in ("plan_", "duals_", "target_utilities_", "source_utilities_"):
            if name in fitted:
                matrix = problem.network.matrix(fitted[name])
                fitted[name] = matrix if compact else matrix.toarray()
        for name, value in fitted.items():
            setattr(self, name, value)
        self._network = problem.network
        return self

    def _read(self, X, source_utilities):
        """Return the problem, or raise where it is none."""
        private = self.epsilon is not None
        effective_n_jobs(self.n_jobs)  # Raises where it is none.
        network = read_network(
            X, self.adjacency, self.target_bounds, self.source_bounds, private=private
        )
        check_feasible(network)
        values = [on_edges(X, network)]
        if source_utilities is not None:
            values.append(on_edges(read_source_utilities(source_utilities, X.shape), network))
        scale = read_scale(self.utility_scale, network)
        if private:
            ranges = read_ranges(self.utility_range)
            for name, of, bounds in zip(("X", "source_utilities"), values, ranges, strict=False):
                # Raises where the family has no such member, which is public.
                make_utility(self.utility, np.full(network.n_edges, bounds[0]), scale)
                check_within(of, bounds, name)
        return _Problem(network, values, scale)

    def _agree(self, problem):
        """Return what the nodes agree on, by messages in which nothing is hidden."""
        network, n_iter = problem.network, self.n_iter or _MOST_ROUNDS
        adaptive = self.eta == "adaptive"
        spread = max(float(np.ptp(of)) if len(of) else 0.0 for of in problem.values)
        with self._progress(n_iter) as bar:
            result = consensus(
                network,
                *self._utilities(problem),
                eta=starting_eta(network, spread) if adaptive else float(self.eta),
                adaptive=adaptive,
                tol=self.tol,
                max_iter=n_iter,
                release=lambda n_iter, eta, *answers: (answers, bar.update())[0],
                n_threads=min(effective_n_jobs(self.n_jobs), 2),
            )
        if not result.converged:
            warnings.warn(
                f"after {result.n_iter} rounds the welfare of the plan is within {result.gap:.1e} "
                f"of the largest possible one, and not within {self.tol:g}. Raise n_iter or tol.",
                ConvergenceWarning,
                stacklevel=4 if self.epsilon is None else 6,
            )
        return _told_of(result) | {"welfare_": result.welfare, "gap_": result.gap}

    def _release_inputs(self, problem):
        """Return the plan that is best for the utilities that the nodes release."""
        source = self._source()
        releases = make_releases(
            self.mechanism, problem.network, epsilon=self.epsilon,
            ranges=read_ranges(self.utility_range), protect=self.protect,
            factors=read_factors(self.node_budgets, problem.network), source=source,
            both=len(problem.values) > 1,
        )  # fmt: skip
        promised = self._charge(releases, 0.0)
        told = release_utilities(releases, problem.network, problem.values)
        return promised | self._plan_for(problem, told)

    def _plan_for(self, problem, told):
        """Return the best plan for utilities that were released."""
        public = replace(problem, values=told)
        central = self.utility == "linear" and _is_soon_solved(problem.network)
        fitted = self._solve(public) if central else self._agree(public)
        return fitted | dict(zip(("target_utilities_", "source_utilities_"), told, strict=False))

    def _solve(self, problem):
        """Return the best plan for linear utilities, as of whoever knows them all."""
        result = optimal_plan(problem.network, *self._utilities(problem))
        return {
            "plan_": result.plan,
            "duals_": result.prices,
            "n_iter_": result.n_programs,
            "primal_residual_": 0.0,
            "dual_residual_": 0.0,
            "history_": dict.fromkeys(_HISTORY, np.empty(0)),
            "welfare_": result.welfare,
            "gap_": result.gap,
        }

    def _exchange_messages(self, problem):
        """Return the plan that messages with noise lead to."""
        source, network = self._source(), problem.network
        declared = declare_utilities(
            self.utility, read_ranges(self.utility_range), self.utility_scale, network,
            both=len(problem.values) > 1,
        )  # fmt: skip
        factors = read_factors(self.node_budgets, network)
        budget = {"epsilon": self.epsilon, "delta": self.delta, "protect": self.protect}
        rounds = plan_rounds(
            network, declared, factors=factors, averaging=self.averaging, n_iter=self.n_iter,
            eta=None if self.eta == "adaptive" else float(self.eta), **budget,
        )  # fmt: skip
        noises: Any = tuple(
            make_noise(side, of, n_rounds=rounds.n_iter, factors=part, source=source, **budget)
            for side, of, part in zip(
                (network.targets, network.sources), declared, factors, strict=True
            )
        )
        promised = self._charge([of for of in noises if of is not None], self.delta)
        targets, sources = self._utilities(problem)
        of_nodes = network, (targets, None if declared[1] is None else sources), noises, declared
        if rounds.queries is not None:
            told = estimate_utilities(*of_nodes, rounds.queries, delta=self.delta)
            return promised | self._plan_for(problem, [of for of in told if of is not None])
        with self._progress(rounds.n_iter) as bar:
            result = private_consensus(
                *of_nodes, eta=rounds.eta, n_iter=rounds.n_iter,
                average_from=rounds.average_from, progress=bar.update,
            )  # fmt: skip
        return promised | _told_of(result)

    def _source(self):
        check_ledger(self.ledger, NEIGHBOURING, seeded=self.random_state is not None)
        return make_source(self.random_state)

    def _charge(self, releases, delta):
        """Charge what the nodes are about to release; return what is promised then."""
        # A unit belongs to one node, and all nodes together cost what the dearest costs.
        dearest = max(releases, key=lambda of: of.epsilons.max(initial=0.0))
        seeded = self.random_state is not None
        charge(
            self.ledger,
            dearest.event,
            unit=_UNITS[self.protect],
            label=f"{type(self).__name__} by {self.mechanism}",
            neighbouring=NEIGHBOURING,
            seeded=seeded,
        )
        guarantee = PrivacyGuarantee(
            float(dearest.epsilons.max()), float(delta), NEIGHBOURING, _UNITS[self.protect],
            self._not_protected(n_sides=len(releases)),
        )  # fmt: skip
        return {
            "privacy_guarantee_": None if seeded else guarantee,
            "epsilons_": tuple(of.epsilons for of in releases),
        }

    def _not_protected(self, n_sides):
        """Return what the guarantee is not about, in words."""
        public = ("the edges of the network", "the bounds of its nodes", "running time")
        if n_sides == 1 or self.protect == "node":
            return public
        return (*public, "both utilities of an edge, at its target and at its source, as one")

    def _utilities(self, problem):
        """Return the utilities of the targets and of the sources, who may have none."""
        found = [make_utility(self.utility, of, problem.scale) for of in problem.values]
        nothing = LinearUtility(np.zeros(problem.network.n_edges))
        return found if len(found) == 2 else [*found, nothing]

    def _progress(self, n_rounds):
        return tqdm(
            desc=type(self).__name__, total=n_rounds, unit=" rounds", disable=not self.verbose
        )

    def _forget(self):
        """Drop what an earlier fit left that this one may not have."""
        for name in _FITTED & vars(self).keys():
            delattr(self, name)

    def transform(self, X):
        """Return what share of each target's amount comes from each source.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            The targets that were fitted, of which only the shape is read.

        Returns
        -------
        {ndarray, sparse array} of shape (n_targets, n_sources)
            Rows add up to 1, or to 0 for a target that receives nothing. Sparse as ``plan_`` is,
            and then not for frames (`set_output`).
        """
        self._check_targets(X)
        sums = np.asarray(self.plan_.sum(axis=1)).ravel()
        factors = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
        if sparse.issparse(self.plan_):
            return sparse.csr_array(sparse.diags_array(factors) @ self.plan_)
        return factors[:, None] * self.plan_

    def predict(self, X):
        """Return what share of its upper bound each target receives.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            The targets that were fitted, of which only the shape is read.

        Returns
        -------
        ndarray of shape (n_targets,)
            Between 0 and 1; 0 for a target that can receive nothing.
        """
        self._check_targets(X)
        sums = np.asarray(self.plan_.sum(axis=1)).ravel()
        upper = self._network.targets.upper
        return np.divide(sums, upper, out=np.zeros_like(sums), where=upper > 0)

    def score(self, X, y=None, *, source_utilities=None):
        """Return the social utility of the plan; that is not private.

        It is computed from the given utilities without noise: where these are private, so is the
        score, and whatever is chosen by it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_targets, n_sources)
            What a unit from each source is worth to each target.
        y : None
            Of no account.
        source_utilities : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
            What it is worth to the source; None is nothing.

        Returns
        -------
        float
            The sum of all utilities of the amounts of the plan.
        """
        X = self._check_targets(X)
        network = self._network
        values = [on_edges(X, network)]
        if source_utilities is not None:
            values.append(on_edges(read_source_utilities(source_utilities, X.shape), network))
        problem = _Problem(network, values, read_scale(self.utility_scale, network))
        targets, sources = self._utilities(problem)
        return float(welfare(network, targets, sources, on_edges(self.plan_, network)))

    def _check_targets(self, X):
        """Return X, if it has the shape of what was fitted."""
        check_is_fitted(self)
        X = validate_private_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        if X.shape != self.plan_.shape:
            raise ValueError(
                f"X has {X.shape[0]} targets, and the plan that was fitted {self.plan_.shape[0]}: "
                "shares are those of the fitted targets, in their order."
            )
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Which entries private utilities have is not public.
        tags.input_tags.sparse = self.epsilon is None or self.adjacency is not None
        return tags


def _is_soon_solved(network):
    """Tell whether linear programs are faster than rounds: on small networks, and on dense ones."""
    return network.n_edges <= max(_FEW_EDGES, network.shape[0] * network.shape[1] // 2)


def _told_of(result):
    """Return what a run of messages tells, and nothing that it computed from utilities."""
    return {
        "plan_": result.plan,
        "duals_": result.prices,
        "n_iter_": result.n_iter,
        "primal_residual_": result.primal_residual,
        "dual_residual_": result.dual_residual,
        "history_": result.history,
    }
