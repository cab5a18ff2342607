"""What the samplers of users' distributions share: geometry, chunks over users, the release."""

import math
from abc import ABCMeta, abstractmethod
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS
from sklearn.utils.validation import check_array, check_is_fitted
from threadpoolctl import threadpool_limits

from skdpot._base import PrivateEstimator, validate_private_data
from skdpot._sklearn_compat import Interval, StrOptions, fit_context, validate_parameters
from skdpot.privacy.mechanisms import WEIGHT_BITS, BoundedRatioMechanism
from skdpot.privacy.random import make_source
from skdpot.sampling._charge import GuaranteeMixin, charge_samples, check_sampler_ledger
from skdpot.sampling._parallel import map_chunks, plan_chunks
from skdpot.transport import check_cost_matrix, check_epsilon, normalise_rows, transport_costs

# Distances below zero by no more than this fraction of the largest are rounding.
_NEGLIGIBLE = 1e-12
# scikit-learn advises to impute.
_INSTEAD = {
    "Input X contains NaN": (
        "Input X contains NaN. Where a user has no weight write 0, as "
        "DataFrame.pivot_table(..., fill_value=0) does; do not impute, which would fill in what "
        "other users hold."
    ),
}


class BaseLocalSampler(
    GuaranteeMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    PrivateEstimator,
    metaclass=ABCMeta,
):
    """Base of the mechanisms that turn a user's whole distribution into one private sample.

    A subclass sets ``base_measure_`` and returns a projector in :meth:`_fit_mechanism`: a
    picklable object, public throughout, whose ``__call__`` maps normalised CSR rows to
    probability vectors between the base measure and ``exp(epsilon)`` times it.
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "input_points": ["array-like", None],
        "output_points": ["array-like", None],
        "metric": [str, callable],
        "order": [Interval(Real, 0, None, closed="neither")],
        "cost_matrix": ["array-like", None],
        "output": [StrOptions({"points", "index", "onehot"})],
        "score_metric": [str, callable],
        "score_order": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [Integral, None],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Prepare the mechanism for the public geometry.

        Nothing is learned from X but its number of columns and their names. Negative and missing
        weights are refused; rows without any weight are when they are released.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_inputs)
            Non-negative weights; one user's distribution over the input points a row.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted sampler.

        Raises
        ------
        ValueError
            If a parameter is wrong, or rows of X hold no weights.
        """
        _validate_weights(self, X, reset=True)
        epsilon = check_epsilon(self.epsilon)
        check_sampler_ledger(self)
        self._fit_geometry()
        with threadpool_limits(1, user_api="blas"):
            projector = self._fit_mechanism(epsilon)
        mechanism = BoundedRatioMechanism(self.base_measure_, epsilon)
        # What is computed may be best there: where all outputs cost the same, say.
        if not isinstance(getattr(self, "base_measure", "computed"), str):
            _check_choice(self.base_measure_, epsilon)
        self._mechanism = mechanism
        self._projector = projector
        return self

    @abstractmethod
    def _fit_mechanism(self, epsilon):
        """Set ``base_measure_`` and return the projector."""

    def transform(self, X) -> Any:
        """Release one epsilon-LDP sample per user.

        Charges epsilon to the ledger, under the assumption that every call concerns the same
        users.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_inputs)
            Non-negative weights; rows are normalised, and none may be all zero.

        Returns
        -------
        ndarray
            With ``output="points"`` the coordinates of the sampled output points, of shape
            (n_users, n_coordinates); with ``"index"`` their numbers, (n_users, 1); with
            ``"onehot"`` indicators, (n_users, n_outputs). Private, unless seeded.

        Raises
        ------
        ValueError, BudgetExceededError
            As in :meth:`sample`.
        """
        index = self.sample(X)[:, 0]
        if self.output == "points":
            return self.output_points_[index]
        if self.output == "index":
            return index[:, None]
        indicators = np.zeros((len(index), len(self.output_points_)))
        indicators[np.arange(len(index)), index] = 1.0
        return indicators

    def sample(self, X, n_samples=1) -> np.ndarray:
        """Release private samples of every user's distribution.

        Charges ``n_samples * epsilon`` to the ledger: a user's samples compose.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_inputs)
            Non-negative weights; rows are normalised, and none may be all zero.
        n_samples : int, default=1
            Samples per user.

        Returns
        -------
        ndarray of intp, shape (n_users, n_samples)
            Numbers of output points. Private at ``n_samples * epsilon`` a user, unless seeded.

        Raises
        ------
        ValueError
            If a parameter is wrong, or a row of X is no distribution: errors name the row. Nothing
            has been charged then.
        BudgetExceededError
            If the ledger does not allow the release. Nothing has been released then.
        """
        n_samples = check_n_samples(n_samples)
        rows, chunks = self._validate_rows(X)
        source = make_source(self.random_state)
        # What is charged is the epsilon of the mechanism that releases, whatever was set since.
        mechanism = self._mechanism
        charge_samples(self, mechanism.epsilon, n_samples, source)
        integers = source.bits(WEIGHT_BITS, (rows.shape[0], n_samples))
        release = partial(_release, self._projector, mechanism)
        return self._map(release, chunks, rows, integers)

    def project(self, X) -> np.ndarray:
        """Return the distributions from which the users' samples are drawn.

        *Not private*, and never charged: these vectors may not leave the user's side.

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
            If a row of X is no distribution.
        """
        rows, chunks = self._validate_rows(X)
        return self._map(self._projector, chunks, rows)

    def score(self, X, y=None) -> float:
        """Return minus the mean transport cost between users' distributions and projections.

        *Not private*: a diagnostic for public data or consenting users, with which a grid search
        can choose among metrics, orders and base measures. The cost is the distance
        ``score_metric`` between input and output points to the power ``score_order``, whatever
        the mechanism's own cost, so that candidates stay comparable. It is `cost_matrix` where
        that is given without input and output points of one space.

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
            If a row of X is no distribution.
        """
        rows, chunks = self._validate_rows(X)
        costs = self._map(partial(_score, self._projector, self._score_cost()), chunks, rows)
        return -float(np.mean(costs))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    @property
    def _n_features_out(self):
        return {"points": self.output_points_.shape[1], "index": 1}.get(
            self.output, len(self.output_points_)
        )

    def _fit_geometry(self):
        """Set ``output_points_`` and ``cost_matrix_`` from the parameters; all of it is public."""
        n_inputs = self.n_features_in_
        inputs = _check_points(self.input_points, "input_points")
        outputs = _check_points(self.output_points, "output_points")
        if inputs is not None and len(inputs) != n_inputs:
            raise ValueError(
                f"input_points has {len(inputs)} rows but X has {n_inputs} features; there must "
                "be one input point per column of X."
            )
        if self.cost_matrix is None:
            inputs = _bins(n_inputs) if inputs is None else inputs
            outputs = inputs if outputs is None else outputs
            cost = check_cost_matrix(_cost(inputs, outputs, self.metric, self.order))
        else:
            cost = _check_cost_shape(self.cost_matrix, n_inputs, outputs)
            _check_row_names(self.cost_matrix, getattr(self, "feature_names_in_", None))
            if outputs is None and inputs is not None and cost.shape[1] == n_inputs:
                outputs = inputs
            elif outputs is None:
                inputs, outputs = None, _bins(cost.shape[1])
        self._input_points = inputs
        self.output_points_ = outputs
        self.cost_matrix_ = cost

    def _score_cost(self):
        inputs, outputs = self._input_points, self.output_points_
        if inputs is None or inputs.shape[1] != outputs.shape[1]:
            return self.cost_matrix_
        return check_cost_matrix(_cost(inputs, outputs, self.score_metric, self.score_order))

    def _validate_rows(self, X):
        """Return X as normalised CSR rows, and its chunks; raise before anything is charged."""
        check_is_fitted(self)
        validate_parameters(self)
        weights = _validate_weights(self, X, reset=False)
        # Where a caller made underflow an error, the values of a row could raise it.
        with np.errstate(all="ignore"):
            rows = normalise_rows(weights)
        chunks = plan_chunks(
            rows.shape[0], len(self.output_points_), n_jobs=self.n_jobs, verbose=self.verbose
        )
        return rows, chunks

    def _map(self, function, chunks, *per_user):
        title = type(self).__name__ if self.verbose else None
        return map_chunks(function, chunks, *per_user, n_jobs=self.n_jobs, title=title)


def check_n_samples(n_samples):
    """Return a number of samples per user as an int; raise if it is none."""
    if not isinstance(n_samples, Integral):
        raise ValueError(
            f"n_samples must be a positive integer, got an object of {type(n_samples)}."
        )
    if n_samples < 1:
        raise ValueError(f"n_samples must be a positive integer, got {n_samples}.")
    return int(n_samples)


def _validate_weights(estimator, X, reset):
    """Return X as float64, dense or CSR, with finite and non-negative entries."""
    X = validate_private_data(
        estimator, X, instead=_INSTEAD, accept_sparse="csr", dtype=np.float64, reset=reset
    )
    if sparse.issparse(X):
        wrong = np.searchsorted(X.indptr, np.flatnonzero(X.data < 0), side="right") - 1
    else:
        wrong = np.flatnonzero((X < 0).any(axis=1))
    if wrong.size:
        raise ValueError(
            f"Negative values in data: row {wrong[0]} of X has some. Weights of a distribution "
            "must be non-negative."
        )
    return X


def _check_choice(base_measure, epsilon):
    """Raise where the base measure leaves a single distribution, whatever a user's is."""
    total = math.fsum(base_measure)
    alone = total > 1 - _NEGLIGIBLE or math.exp(epsilon) * total < 1 + _NEGLIGIBLE
    if alone and len(base_measure) > 1 and np.count_nonzero(base_measure) > 1:
        raise ValueError(
            f"base_measure sums to {total:.6g}, so that every user would get the same "
            "distribution, whatever she holds. Its sum must lie between exp(-epsilon) = "
            f"{math.exp(-epsilon):.6g} and 1, and not at either end: multiply a probability vector "
            "by a number between them, such as "
            f"{math.exp(-epsilon / 2):.3g}."
        )


def _check_points(points, name):
    if points is None:
        return None
    if np.ndim(points) != 2:
        raise ValueError(
            f"{name} must have shape (n_points, n_coordinates), got an array of "
            f"{np.ndim(points)} dimension(s). Give points on a line as a column: "
            "array.reshape(-1, 1)."
        )
    return check_array(points, dtype=np.float64, input_name=name)


def _bins(count):
    return np.arange(float(count))[:, None]


def _check_cost_shape(cost_matrix, n_inputs, outputs):
    cost = check_cost_matrix(cost_matrix)
    if cost.shape[0] != n_inputs:
        raise ValueError(
            f"cost_matrix has {cost.shape[0]} rows but X has {n_inputs} features; it must have "
            "shape (n_inputs, n_outputs)."
        )
    if outputs is not None and cost.shape[1] != len(outputs):
        raise ValueError(
            f"cost_matrix has {cost.shape[1]} columns but output_points has {len(outputs)} rows; "
            "they must agree."
        )
    return cost


def _check_row_names(cost_matrix, feature_names):
    """Raise where rows and columns of X both have names, and not the same in the same order."""
    if feature_names is None or not hasattr(cost_matrix, "iloc"):
        return
    rows = list(cost_matrix.index)
    if all(isinstance(row, str) for row in rows) and rows != list(feature_names):
        raise ValueError(
            "rows of cost_matrix are named differently from the columns of X, with which they are "
            "matched by position; reindex it with cost.loc[X.columns], or with "
            "cost.loc[X.columns, X.columns] where what can be released are the columns of X."
        )


def _for_metric(points, metric):
    """Return indicators as booleans where the metric is one of sets, which would warn of floats."""
    is_of_sets = isinstance(metric, str) and metric in PAIRWISE_BOOLEAN_FUNCTIONS
    return points.astype(bool) if is_of_sets and np.isin(points, (0, 1)).all() else points


def _cost(inputs, outputs, metric, order):
    if inputs.shape[1] != outputs.shape[1]:
        raise ValueError(
            f"input_points have {inputs.shape[1]} coordinates but output_points have "
            f"{outputs.shape[1]}; give points of one space, or a cost_matrix."
        )
    if isinstance(metric, str) and metric == "precomputed":
        raise ValueError('metric="precomputed" has no meaning here; give costs as cost_matrix.')
    with np.errstate(all="ignore"):
        try:
            distances = pairwise_distances(
                _for_metric(inputs, metric), _for_metric(outputs, metric), metric=metric
            )
        except ValueError as error:
            raise ValueError(
                f"metric={metric!r} does not measure distances between these points ({error}). "
                "Give another metric of sklearn.metrics.pairwise_distances, or a cost_matrix."
            ) from error
        rounding = _NEGLIGIBLE * np.max(np.abs(distances))
        distances[(distances < 0) & (distances >= -rounding)] = 0.0
        cost = distances**order
    if not np.isfinite(cost).all():
        i, j = np.argwhere(~np.isfinite(cost))[0]
        raise ValueError(
            f"metric={metric!r} to the power order={order!r} gives no finite cost between input "
            f"point {i} and output point {j}. Choose another metric or order, or rescale the "
            "points."
        )
    return cost


def _release(projector, mechanism, rows, integers):
    # Where a caller made underflow an error, the values of a row could raise it.
    with np.errstate(all="ignore"):
        probabilities = projector(rows)
    return mechanism.draw(mechanism.integer_weights(probabilities), integers)


def _score(projector, cost, rows):
    return transport_costs(rows, projector(rows), cost)
