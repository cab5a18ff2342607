"""Samplers of users' distributions over points, by projection or the exponential mechanism."""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS
from sklearn.utils.validation import check_array

from skdpot import transport
from skdpot._base import validate_private_data, warn_user
from skdpot._sklearn_compat import Interval, StrOptions, one_blas_thread
from skdpot.privacy.checks import check_memory, names_of, refuse_dates, refuse_other_order
from skdpot.privacy.choices import WEIGHT_BITS, BoundedRatioMechanism
from skdpot.privacy.sensitivity import cost_score_sensitivity
from skdpot.sampling._base import BaseLocalSampler, UserSamples

# Takes users' distributions, as rows.
Projection = Callable[[Any], np.ndarray]
# Base measures that a user gives: a multiple of the uniform one, or any.
_MEASURES = [Interval(Real, 0, 1, closed="right"), "array-like"]


class BaseDistributionSampler(BaseLocalSampler):
    """Base of the mechanisms that turn a user's whole distribution into one private sample.

    A subclass returns, in :meth:`_plan_projection`, a public map of users' distributions into the
    polytope of a base measure, this measure, and further fitted attributes by name. The map is
    picklable, and takes normalised CSR rows to probability vectors between the base measure and
    ``exp(epsilon)`` times it.

    Parameters
    ----------
    input_points : array-like of shape (n_inputs, n_coordinates), default=None
        Public. Coordinates of the columns of X. With None (and no `cost_matrix`) the columns are
        ordered bins at 0, 1, 2, ...
    output_points : array-like of shape (n_outputs, n_coordinates), default=None
        Public. The points that can be released; by default the input points.
    metric : str or callable, default="euclidean"
        Distance between points, as in :func:`sklearn.metrics.pairwise_distances`.
    order : float, default=1
        The cost of moving mass is the distance to this power.
    cost_matrix : array-like of shape (n_inputs, n_outputs), default=None
        Public. Costs, instead of `metric` and `order`. Its rows are matched with the columns of X
        by position, and its columns are the output points.
    output : {"points", "index"}, default="points"
        The result of :meth:`transform`: coordinates of output points, or their indices.

    Attributes
    ----------
    cost_matrix_ : ndarray of shape (n_inputs, n_outputs)
        Costs between input and output points.
    base_measure_ : ndarray of shape (n_outputs,)
        The base measure s.
    output_points_ : ndarray of shape (n_outputs, n_coordinates)
        The points that can be released.
    """

    _parameter_constraints: dict = {
        **BaseLocalSampler._parameter_constraints,
        "input_points": ["array-like", None],
        "output_points": ["array-like", None],
        "metric": [str, callable],
        "cost_matrix": ["array-like", None],
        "output": [StrOptions({"points", "index"})],
    }

    def __init__(
        self,
        epsilon=1.0,
        *,
        input_points=None,
        output_points=None,
        metric="euclidean",
        order=1,
        cost_matrix=None,
        output="points",
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=None,
    ) -> None:
        self.epsilon = epsilon
        self.input_points = input_points
        self.output_points = output_points
        self.metric = metric
        self.order = order
        self.cost_matrix = cost_matrix
        self.output = output
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def _plan_projection(
        self, cost: np.ndarray, epsilon: float
    ) -> tuple[Projection, np.ndarray, dict[str, float]]:
        """Return the projection for costs between input and output points."""

    def _validate(self, X, reset=True):
        """Return X as float64, dense or CSR, with finite and non-negative entries."""
        # scikit-learn's own text advises to impute.
        instead = {
            "Input X contains NaN": (
                "Input X contains NaN. Where a user has no weight write 0, as "
                "DataFrame.pivot_table(..., fill_value=0) does; do not impute, because that would "
                "fill in values of other users."
            ),
            "could not convert": (
                "X holds text that cannot be read as numbers. It must have weights, in a row for "
                "each user and a column for each place, visited or not. Of a list of visits it is "
                "made by pandas.crosstab(users, places).reindex(columns=all_places, fill_value=0)."
            ),
        }
        weights = validate_private_data(
            self, X, instead=instead, accept_sparse="csr", dtype=np.float64, reset=reset
        )
        points, costs, names = self.output_points, self.cost_matrix, names_of(X, "columns")
        refuse_dates("output_points", points)
        refuse_dates("input_points", self.input_points)
        # Without points of their own, outputs have the names of the costs, or else of the inputs.
        outputs = (
            names_of(points) or names_of(costs, "columns") or (names if points is None else [])
        )
        refuse_other_order("input_points", self.input_points, names)
        refuse_other_order("cost_matrix", costs, names)
        refuse_other_order("cost_matrix", costs, outputs, of="the output points", axis="columns")
        base = getattr(self, "base_measure", None)
        refuse_other_order("base_measure", base, outputs, of="the output points")
        # Only the number of a row is told, never a value.
        wrong = np.flatnonzero((weights < 0).sum(axis=1))
        if wrong.size:
            raise ValueError(f"Negative values in data: row {wrong[0]} of X has some.")
        return weights

    def _plan_mechanism(self, epsilon):
        inputs, outputs, cost = self._make_geometry()
        with one_blas_thread():
            project, base, further = self._plan_projection(cost, epsilon)
        base = transport.check_base_measure(base, epsilon, cost.shape[1])
        draws = BoundedRatioMechanism(base, epsilon)
        # A computed base measure may be best there, for example if all outputs cost the same.
        if not isinstance(getattr(self, "base_measure", "computed"), str):
            _check_choice(base, epsilon)
        attributes = {"output_points_": outputs, "cost_matrix_": cost, "base_measure_": base}
        worst = further.get("worst_case_cost_")
        # Without a closed form users are tried at the points alone, where they are most different,
        # unless these are too many.
        if worst is None and len(cost) <= 512:
            worst = np.max(np.sum(project(sparse.eye_array(len(cost), format="csr")) * cost, 1))
        blind = float(np.max(cost @ base) / np.sum(base))
        costs = None if worst is None else (float(worst), blind)
        return UserSamples(draws, costs, attributes | further, len(outputs), project, inputs)

    def _make_geometry(self) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        """Return input points, output points and costs; no inputs without a space; or raise."""
        n_inputs, metric, order = self.n_features_in_, self.metric, self.order
        points = {"input_points": self.input_points, "output_points": self.output_points}
        inputs, outputs = (
            None if given is None else check_array(given, dtype=np.float64, input_name=name)
            for name, given in points.items()
        )
        if inputs is not None and len(inputs) != n_inputs:
            raise ValueError(
                f"input_points has {len(inputs)} rows but X has {n_inputs} features; there must "
                "be one input point per column of X."
            )
        # Without any geometry, columns are ordered bins at 0, 1, 2, ...
        if self.cost_matrix is None:
            inputs = np.arange(float(n_inputs))[:, None] if inputs is None else inputs
            outputs = inputs if outputs is None else outputs
            return inputs, outputs, power_of_distances(inputs, outputs, metric, order)
        cost = transport.check_cost_matrix(self.cost_matrix)
        shape = (n_inputs, cost.shape[1] if outputs is None else len(outputs))
        if cost.shape != shape:
            raise ValueError(
                f"cost_matrix has shape {cost.shape}; with {n_inputs} features of X and these "
                f"output points, it must be {shape}."
            )
        if outputs is None and cost.shape[1] == n_inputs:
            outputs = inputs
            if np.ptp(cost) > 0 and (np.diag(cost) >= cost.max(axis=1)).all():
                warn_user("staying costs most in cost_matrix: is it a similarity? Give distances.")
            elif len(cost) > 2 and cost.any() and not (np.tril(cost).any() and np.triu(cost).any()):
                warn_user("half of cost_matrix is 0: if costs are the same both ways, add its .T.")
        # Costs alone say nothing about a space that both kinds of points are in.
        if outputs is None:
            inputs, outputs = None, np.arange(float(cost.shape[1]))[:, None]
        return inputs, outputs, cost

    def _validate_users(self, X):
        # Imported before the charge, since an import may fail.
        transport.load_compiler()
        rows = transport.normalise_rows(self._validate(X, reset=False))
        project = self._fitted.project
        if isinstance(project, transport.Projector):
            project.prepare(np.diff(rows.indptr))
        return rows

    def _run(self, plan, data):
        samples = plan.release
        # Drawn for all users at once and in their order, so that results do not depend on chunks.
        integers = plan.source.bits(WEIGHT_BITS, (data.shape[0], samples.n_samples))
        draw = partial(_draw, samples.project, samples.draws)
        return self._map(draw, samples, data, integers)

    def _as_output(self, samples):
        return self.output_points_[samples] if self.output == "points" else samples[:, None]

    def project(self, X) -> np.ndarray:
        """Return the distributions from which the users' samples are drawn.

        *Not private*, and never charged: do not let these vectors leave the user's device.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_inputs)
            Non-negative weights; rows are normalised, and none may be all zero.

        Returns
        -------
        ndarray of shape (n_users, n_outputs)
            Probability vectors between the base measure and ``exp(epsilon)`` times it.

        Raises
        ------
        ValueError
            If a row of X is not a distribution.
        """
        rows = self._read_users(X)
        # A copy: joblib adds attributes to functions that it calls.
        project = partial(self._fitted.project)
        return self._map(project, self._fitted, rows)

    def score(self, X, y=None) -> float:
        """Return minus the mean transport cost between users' distributions and their projections.

        *Not private*: a diagnostic for public data or consenting users. A grid search can use it
        to choose orders and base measures. The cost is the distance `metric` between input and
        output points, not its power `order`, so that candidates are comparable. If `cost_matrix` is
        given without input and output points of one space, the cost is `cost_matrix`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_inputs)
            Non-negative weights; rows are normalised, and none may be all zero.
        y : None
            Ignored.

        Returns
        -------
        float
            Higher is better; zero is perfect.

        Raises
        ------
        ValueError
            If a row of X is not a distribution.
        """
        rows = self._read_users(X)
        inputs, outputs, cost = self._fitted.input_points, self.output_points_, self.cost_matrix_
        if inputs is not None and inputs.shape[1] == outputs.shape[1]:
            cost = power_of_distances(inputs, outputs, self.metric, 1)
        score = partial(_transport_costs, self._fitted.project, cost)
        return -float(np.mean(self._map(score, self._fitted, rows)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    @property
    def _n_features_out(self):
        return self.output_points_.shape[1] if self.output == "points" else 1


def _draw(
    project: Projection, draws: BoundedRatioMechanism, rows: Any, bits: np.ndarray
) -> np.ndarray:
    """Return the indices of outputs, drawn by uniform random bits."""
    # A caller may have made underflow an error, which the values of a row could raise.
    with np.errstate(all="ignore"):
        probabilities = project(rows)
    return draws.draw(draws.integer_weights(probabilities), bits)


def _transport_costs(project: Projection, cost: np.ndarray, rows: Any) -> np.ndarray:
    """Return the transport costs from users' distributions to their projections."""
    return transport.transport_costs(rows, project(rows), cost)


def _check_choice(base_measure, epsilon):
    """Raise if the base measure permits a single distribution only."""
    # A sum this close to an end leaves a single distribution.
    total, negligible = math.fsum(base_measure), 1e-12
    is_single = total > 1 - negligible or math.exp(epsilon) * total < 1 + negligible
    if is_single and len(base_measure) > 1 and np.count_nonzero(base_measure) > 1:
        raise ValueError(
            f"base_measure sums to {total:.6g}, so that every user would get the same distribution."
            f" It must lie between exp(-epsilon) = {math.exp(-epsilon):.6g} and 1: multiply a "
            f"probability vector by a number between them, such as {math.exp(-epsilon / 2):.3g}."
        )


def scaled_uniform(base_measure: Any, n_outputs: int) -> Any:
    """Return a multiple of the uniform distribution, for a base measure given as a number."""
    is_number = isinstance(base_measure, Real)
    return np.full(n_outputs, base_measure / n_outputs) if is_number else base_measure


class WassersteinProjectionSampler(BaseDistributionSampler):
    """Release one private sample of each user's whole distribution, by Wasserstein projection.

    The sampler projects a user's distribution onto the polytope ``{nu : s <= nu <= exp(epsilon)
    s}`` around a public base measure s, in the Wasserstein sense. Then it draws one sample from
    the projection. With the optimal base measure, no mechanism with the same guarantee has a
    smaller worst-case cost. Input and output points may differ.

    **What is protected.** Local differential privacy with epsilon per sample. The unit is a user:
    a user's distribution may be replaced by any other. The samples are private; the results of
    :meth:`project` and :meth:`score` are not. All constructor parameters and fitted attributes are
    public, because ``fit`` learns only the number and the names of the columns from X.

    Parameters
    ----------
    {epsilon}
    {input_points}
    {output_points}
    {metric}
    {order}
    {cost_matrix}
    base_measure : {"balanced", "optimal", "uniform"}, float or array-like of shape \
(n_outputs,), default="balanced"
        Public. ``"optimal"`` minimises the worst-case cost over all base measures (by cutting
        planes, to a certified relative gap of at most `tol`). ``"uniform"`` minimises it over the
        multiples of the uniform distribution. ``"balanced"`` is the mean of both: no user's cost
        is above the mean of her costs with the two. A float c is c times the uniform distribution.
        An array is used as it is. The float, or the sum of the array, must be strictly between
        exp(-epsilon) and 1: at either end all users would have the same projection.
    solver : {"auto", "exact", "entropic"}, default="auto"
        The algorithm of the projection, see :func:`skdpot.transport.wasserstein_projection`.
    tol : float, default=1e-3
        Certified relative excess cost of the optimal base measure, and of projections by the
        entropic solver. The exact solver is exact up to rounding.
    {output}
    {n_jobs}
    {ledger}
    {random_state}
    {verbose}

    Attributes
    ----------
    {cost_matrix_}
    {base_measure_}
    worst_case_cost_ : float
        Largest cost of a projection over all distributions, in units of `cost_matrix_`. The
        `order`-th root of it is a Wasserstein distance.
    worst_case_gap_ : float
        Certified relative difference between `worst_case_cost_` and the smallest possible one; NaN
        unless the base measure is ``"optimal"``.
    {output_points_}
    {privacy_guarantee_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    KLProjectionSampler : Projects in the Kullback-Leibler sense, ignoring distances.
    ExponentialMechanismSampler : Chooses outputs by their mean cost.
    SphericalProjectionSampler : The same mechanism for unit vectors.

    Notes
    -----
    ``transform`` draws new samples at every call, unless `random_state` is an integer. Every call
    is charged with the epsilon of the last `fit`. In a grid search over a pipeline, every
    candidate makes a release on every fold, both when it is fitted and when it is scored.

    Two facts are not protected: that a user takes part, and that a row was refused. (The error
    names the row, for example one that is all zero, and comes before anything is charged or
    released.) The running time of a release depends on the user's distribution. If an observer can
    measure it, this is a side channel.

    References
    ----------
    S. Takakura, S. P. Liew and S. Hasegawa, "Differentially Private Sampling from Distributions via
    Wasserstein Projection", 2026, :arxiv:`2605.10015`: the mechanism is Definition 3.1, the optimal
    base measure Theorem 3.5, the entropic algorithm section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import WassersteinProjectionSampler
    >>> histograms = np.array([[8, 1, 1, 0, 0], [0, 0, 1, 4, 5]])
    >>> sampler = WassersteinProjectionSampler(epsilon=2.0, output="index", random_state=0)
    >>> sampler.fit(histograms).transform(histograms).shape
    (2, 1)
    >>> round(sampler.worst_case_cost_, 3)
    0.823
    >>> uniform = WassersteinProjectionSampler(epsilon=2.0, base_measure="uniform")
    >>> uniform.fit(histograms).project(histograms).round(3)
    array([[0.649, 0.088, 0.088, 0.088, 0.088],
           [0.088, 0.088, 0.088, 0.237, 0.5  ]])
    """

    _parameter_constraints: dict = {
        **BaseDistributionSampler._parameter_constraints,
        "base_measure": [StrOptions({"balanced", "optimal", "uniform"}), *_MEASURES],
        "solver": [StrOptions({"auto", "exact", "entropic"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        epsilon=1.0,
        *,
        input_points=None,
        output_points=None,
        metric="euclidean",
        order=1,
        cost_matrix=None,
        base_measure="balanced",
        solver="auto",
        tol=1e-3,
        output="points",
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=None,
    ) -> None:
        super().__init__(
            epsilon, input_points=input_points, output_points=output_points, metric=metric,
            order=order, cost_matrix=cost_matrix, output=output, n_jobs=n_jobs, ledger=ledger,
            random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.base_measure = base_measure
        self.solver = solver
        self.tol = tol

    def _plan_projection(self, cost, epsilon):
        choice, gap = self.base_measure, np.nan
        # A number or an array is the user's choice; the three names are computed.
        base = scaled_uniform(choice, cost.shape[1])
        if isinstance(choice, str):
            base = transport.uniform_base_measure(cost, epsilon).base_measure
            if choice != "uniform":
                optimal = transport.optimal_base_measure(cost, epsilon, tol=self.tol)
                # A mean of two feasible measures is feasible, as its constraints are linear.
                base = (optimal.base_measure + base) / 2
            if choice == "optimal":
                base, gap = optimal.base_measure, optimal.gap
        projector = transport.Projector(cost, base, epsilon, solver=self.solver, tol=self.tol)
        # In closed form: the worst user is at one of the points.
        worst = transport.worst_case_cost(cost, base, epsilon)
        return projector, base, {"worst_case_cost_": worst, "worst_case_gap_": gap}


class KLProjectionSampler(BaseDistributionSampler):
    """Release one private sample of each user's distribution, by Kullback-Leibler projection.

    The sampler projects a user's distribution P onto the polytope ``{nu : s <= nu <= exp(epsilon)
    s}`` in the Kullback-Leibler sense. The projection is ``clip(r P, s, exp(epsilon) s)``, with a
    constant r that makes it sum to one. It is minimax optimal for every f-divergence, but ignores
    distances between points. The output points are the input points.

    **What is protected.** As for :class:`WassersteinProjectionSampler`: epsilon-local differential
    privacy of a user's whole distribution, per sample.

    Parameters
    ----------
    {epsilon}
    {input_points}
    {output_points}
    metric : str or callable, default="euclidean"
        Distance between points, for `cost_matrix_` only.
    order : float, default=1
        Power of the distance in `cost_matrix_`.
    {cost_matrix}
    base_measure : "minimax", float or array-like of shape (n_inputs,), default="minimax"
        Public. ``"minimax"`` is ``1 / (exp(epsilon) + n_inputs - 1)`` everywhere; a float c is c
        times the uniform distribution; an array is used as it is. The float, or the sum of the
        array, must be strictly between exp(-epsilon) and 1.
    {output}
    {n_jobs}
    {ledger}
    {random_state}
    {verbose}

    Attributes
    ----------
    {cost_matrix_}
    {base_measure_}
    {output_points_}
    {privacy_guarantee_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    WassersteinProjectionSampler : Takes the geometry into account.

    Notes
    -----
    For some distributions, such as a Dirac, no such r exists. Then the points of the support get
    their upper bounds, and the rest of the mass is spread over the other points in proportion to
    their slack.

    The notes of :class:`WassersteinProjectionSampler` on repeated calls, errors and running time
    apply here, too.

    References
    ----------
    S. Takakura, S. P. Liew and S. Hasegawa, "Differentially Private Sampling from Distributions via
    Wasserstein Projection", 2026, :arxiv:`2605.10015`, section 2.2.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import KLProjectionSampler
    >>> histograms = np.array([[8, 1, 1, 0, 0], [0, 0, 1, 4, 5]])
    >>> KLProjectionSampler(epsilon=2.0).fit(histograms).project(histograms).round(2)
    array([[0.65, 0.09, 0.09, 0.09, 0.09],
           [0.09, 0.09, 0.09, 0.33, 0.41]])
    """

    _parameter_constraints: dict = {
        **BaseDistributionSampler._parameter_constraints,
        "base_measure": [StrOptions({"minimax"}), *_MEASURES],
    }

    def __init__(
        self,
        epsilon=1.0,
        *,
        input_points=None,
        output_points=None,
        metric="euclidean",
        order=1,
        cost_matrix=None,
        base_measure="minimax",
        output="points",
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=None,
    ) -> None:
        super().__init__(
            epsilon, input_points=input_points, output_points=output_points, metric=metric,
            order=order, cost_matrix=cost_matrix, output=output, n_jobs=n_jobs, ledger=ledger,
            random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.base_measure = base_measure

    def _plan_projection(self, cost, epsilon):
        n_inputs, n_outputs = cost.shape
        # A ratio of densities exists only between distributions over the same points.
        if n_inputs != n_outputs:
            raise ValueError(
                f"there must be one output point per input point, got {n_inputs} inputs and "
                f"{n_outputs} outputs. WassersteinProjectionSampler has no such limit."
            )
        base = scaled_uniform(self.base_measure, n_outputs)
        if isinstance(base, str):
            base = np.full(n_outputs, 1 / (math.exp(epsilon) + n_outputs - 1))
        return partial(transport.kl_projection, base_measure=base, epsilon=epsilon), base, {}


class ExponentialMechanismSampler(BaseDistributionSampler):
    """Release one private output per user, chosen by its mean cost (exponential mechanism).

    Output j has probability proportional to ``exp(-epsilon u_j / (2 D))``, where ``u_j = sum_i P_i
    C_ij`` is its mean cost under the user's distribution and ``D = max_j (max_i C_ij - min_i
    C_ij)`` is the sensitivity of u.

    **What is protected.** As for :class:`WassersteinProjectionSampler`: epsilon-local differential
    privacy of a user's whole distribution, per sample.

    Parameters
    ----------
    {epsilon}
    {input_points}
    {output_points}
    {metric}
    {order}
    {cost_matrix}
    {output}
    {n_jobs}
    {ledger}
    {random_state}
    {verbose}

    Attributes
    ----------
    {cost_matrix_}
    sensitivity_ : float
        D above.
    base_measure_ : ndarray of shape (n_outputs,)
        The smallest probability that any distribution gives to an output.
    {output_points_}
    {privacy_guarantee_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    WassersteinProjectionSampler : Uses the whole distribution, not only mean costs.

    Notes
    -----
    Log-probabilities are concave in P, so their smallest values are attained at Diracs. These
    values are a base measure whose polytope contains every probability vector of the mechanism.

    The notes of :class:`WassersteinProjectionSampler` on repeated calls, errors and running time
    apply here, too.

    References
    ----------
    S. Takakura, S. P. Liew and S. Hasegawa, "Differentially Private Sampling from Distributions via
    Wasserstein Projection", 2026, :arxiv:`2605.10015`, section 5.2.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import ExponentialMechanismSampler
    >>> histograms = np.array([[8, 1, 1, 0, 0], [0, 0, 1, 4, 5]])
    >>> ExponentialMechanismSampler(epsilon=2.0).fit(histograms).project(histograms).round(2)
    array([[0.28, 0.24, 0.2 , 0.15, 0.12],
           [0.13, 0.16, 0.21, 0.25, 0.25]])
    """

    def _plan_projection(self, cost, epsilon):
        sensitivity = cost_score_sensitivity(cost)
        # Costs of outputs beyond an input's lowest cost, in units of the sensitivity.
        relative = cost - cost.min(axis=1, keepdims=True)
        # Without a sensitivity all inputs have the same utilities: there is nothing to protect.
        # Finite after products and sums, and far beyond any cost at which an output is drawn.
        relative = np.minimum(relative / sensitivity, 1e300) if sensitivity else np.zeros_like(cost)
        logits = -0.5 * epsilon * relative
        # By concavity, the smallest probability over all users is at one of the points.
        base = softmax(logits, axis=1).min(axis=0)
        projector = partial(_exponential_projection, logits, base, epsilon)
        return projector, base, {"sensitivity_": sensitivity}


def _exponential_projection(logits, base_measure, epsilon, rows):
    return transport.clip_to_polytope(softmax(rows @ logits, axis=1), base_measure, epsilon)


def power_of_distances(inputs, outputs, metric, order):
    """Return costs: a power of distances between points; or raise if they are invalid."""
    if isinstance(metric, str) and metric == "precomputed":
        raise ValueError('metric="precomputed" has no meaning here; give costs as cost_matrix.')
    what = f"the costs between {len(inputs):,} input points and {len(outputs):,} output points"
    n_bytes = 40 * len(inputs) * len(outputs)
    check_memory(n_bytes, what, "Use fewer points, such as cells of a grid.")
    points = [inputs, outputs]
    transport.refuse_degrees(metric, points)
    # A metric of sets would warn about floats.
    if metric in PAIRWISE_BOOLEAN_FUNCTIONS and all(np.isin(each, (0, 1)).all() for each in points):
        points = [each.astype(bool) for each in points]
    # What overflows is refused below, by the number of its points.
    with np.errstate(all="ignore"):
        try:
            distances = pairwise_distances(*points, metric=metric)
        except ValueError as error:
            raise ValueError(
                f"metric={metric!r} does not measure distances between these points ({error}). "
                "Give another metric of sklearn.metrics.pairwise_distances, or a cost_matrix."
            ) from error
        # Distances below zero by no more than this are rounding.
        rounding = 1e-12 * np.max(np.abs(distances))
        distances[(distances < 0) & (distances >= -rounding)] = 0.0
        cost = distances**order
    if not np.isfinite(cost).all():
        i, j = np.argwhere(~np.isfinite(cost))[0]
        raise ValueError(
            f"metric={metric!r} to the power order={order!r} gives no finite cost between input "
            f"point {i} and output point {j}. Change metric or order, or rescale the points."
        )
    return transport.check_cost_matrix(cost)
