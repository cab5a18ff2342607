"""An allocation of resources over a network, as an estimator."""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skdpot._base import PrivateEstimator, validate_private_data
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.allocation._fitting import (
    fit_by_messages,
    fit_openly,
    fit_to_inputs,
    problem_on,
    read_problem,
    utilities_of,
)
from skdpot.allocation._inputs import MECHANISMS
from skdpot.allocation._reading import FAMILIES, on_edges
from skdpot.privacy.sensitivity import PROTECTED
from skdpot.transport.consensus import welfare

_FITTED = {
    *("plan_", "duals_", "welfare_", "gap_", "n_iter_", "primal_residual_", "dual_residual_"),
    *("history_", "target_utilities_", "source_utilities_", "epsilons_", "privacy_guarantee_"),
}


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
    are public. Proof of a message's sensitivity: :ref:`proof-message-sensitivity`.

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
    ``mechanism="messages"``. :ref:`differences` lists what was corrected.

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
    ) -> None:
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
    def fit(self, X, y=None, *, source_utilities=None) -> Self:
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
        problem = read_problem(self, X, source_utilities)
        if self.epsilon is None:
            fitted = fit_openly(self, problem)
        elif self.mechanism == "messages":
            fitted = fit_by_messages(self, problem)
        else:
            fitted = fit_to_inputs(self, problem)
        compact = sparse.issparse(X) or sparse.issparse(self.adjacency)
        for name in ("plan_", "duals_", "target_utilities_", "source_utilities_"):
            if name in fitted:
                matrix = problem.network.matrix(fitted[name])
                fitted[name] = matrix if compact else matrix.toarray()
        for name, value in fitted.items():
            setattr(self, name, value)
        self._network = problem.network
        return self

    def _forget(self):
        """Drop what an earlier fit left that this one may not have."""
        for name in _FITTED & vars(self).keys():
            delattr(self, name)

    def transform(self, X) -> Any:
        """Return what share of each target's amount comes from each source.

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
        """Return what share of its upper bound each target receives.

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
        upper = self._network.targets.upper
        return np.divide(sums, upper, out=np.zeros_like(sums), where=upper > 0)

    def score(self, X, y=None, *, source_utilities=None) -> float:
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

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If utilities are not numbers, or have another shape than what was fitted.
        """
        X = self._check_targets(X)
        network = self._network
        targets, sources = utilities_of(self, problem_on(self, network, X, source_utilities))
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
