"""What the samplers of users' distributions share: geometry, chunks over users, the release."""

from abc import ABCMeta, abstractmethod
from numbers import Integral, Real

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import pairwise_distances
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from skdpot._base import PrivateEstimator
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.privacy.ledger import charge, check_ledger
from skdpot.privacy.mechanisms import BoundedRatioMechanism
from skdpot.privacy.random import make_source
from skdpot.transport import check_cost_matrix, check_epsilon, normalise_rows, transport_costs

# Doubles that one chunk of users may take per (users x outputs) array: 8 MiB.
_CHUNK_SIZE = 1 << 20


class BaseLocalSampler(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator, metaclass=ABCMeta
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
    def fit(self, X, y=None):
        """Prepare the mechanism for the public geometry.

        Nothing is learned from X but its number of columns and their names.

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
        """
        validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, ensure_non_negative=True, reset=True
        )
        epsilon = check_epsilon(self.epsilon)
        check_ledger(self.ledger)
        self._fit_geometry()
        with threadpool_limits(1, user_api="blas"):
            self._projector = self._fit_mechanism(epsilon)
        self._mechanism = BoundedRatioMechanism(self.base_measure_, epsilon)
        return self

    @abstractmethod
    def _fit_mechanism(self, epsilon):
        """Set ``base_measure_`` and return the projector."""

    def transform(self, X):
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
        """
        index = self.sample(X)[:, 0]
        if self.output == "points":
            return self.output_points_[index]
        if self.output == "index":
            return index[:, None]
        indicators = np.zeros((len(index), len(self.output_points_)))
        indicators[np.arange(len(index)), index] = 1.0
        return indicators

    def sample(self, X, n_samples=1):
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
        """
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}.")
        rows = self._validate_rows(X)
        source = make_source(self.random_state)
        charge(self.ledger, int(n_samples) * float(self.epsilon))
        integers = source.bits(62, (rows.shape[0], int(n_samples)))
        return self._map_chunks(_release, rows, integers, self._mechanism)

    def project(self, X):
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
        """
        return self._map_chunks(_project, self._validate_rows(X))

    def score(self, X, y=None):
        """Return minus the mean transport cost between users' distributions and projections.

        *Not private*: a diagnostic for public data or consenting users, with which a grid search
        can choose among metrics, orders and base measures. The cost is the distance
        ``score_metric`` between input and output points to the power ``score_order``, whatever
        the mechanism's own cost, so that candidates stay comparable; where only a `cost_matrix`
        is given, it is that.

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
        """
        rows = self._validate_rows(X)
        costs = self._map_chunks(_score, rows, np.arange(rows.shape[0]), self._score_cost())
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
        if self.cost_matrix is not None:
            cost = check_cost_matrix(self.cost_matrix)
            if cost.shape[0] != n_inputs:
                raise ValueError(
                    f"cost_matrix has {cost.shape[0]} rows but X has {n_inputs} features; it "
                    "must have shape (n_inputs, n_outputs)."
                )
            if outputs is None:
                same = inputs is not None and cost.shape[1] == n_inputs
                outputs = inputs if same else np.arange(float(cost.shape[1]))[:, None]
            if cost.shape[1] != len(outputs):
                raise ValueError(
                    f"cost_matrix has {cost.shape[1]} columns but output_points has "
                    f"{len(outputs)} rows; they must agree."
                )
        else:
            if inputs is None:
                inputs = np.arange(float(n_inputs))[:, None]
            if outputs is None:
                outputs = inputs
            cost = check_cost_matrix(_cost(inputs, outputs, self.metric, self.order))
        self._input_points = inputs
        self.output_points_ = outputs
        self.cost_matrix_ = cost

    def _score_cost(self):
        if self._input_points is None:
            return self.cost_matrix_
        return check_cost_matrix(
            _cost(self._input_points, self.output_points_, self.score_metric, self.score_order)
        )

    def _validate_rows(self, X):
        """Return X as normalised CSR rows; raise before anything is charged."""
        check_is_fitted(self)
        X = validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, ensure_non_negative=True, reset=False
        )
        return normalise_rows(X)

    def _map_chunks(self, function, rows, per_user=None, constant=None):
        """Apply a function to chunks of users, in parallel, and stack what it returns."""
        n_users = rows.shape[0]
        n_workers = effective_n_jobs(self.n_jobs)
        size = max(1, min(_CHUNK_SIZE // len(self.output_points_), -(-n_users // n_workers)))
        starts = range(0, n_users, size)
        tasks = (
            delayed(function)(
                self._projector,
                rows[start : start + size],
                None if per_user is None else per_user[start : start + size],
                constant,
            )
            for start in starts
        )
        with threadpool_limits(1, user_api="blas"):
            if not self.verbose:
                chunks = Parallel(n_jobs=self.n_jobs, prefer="threads")(tasks)
            else:
                parallel = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")
                progress = tqdm(parallel(tasks), total=len(starts), desc=type(self).__name__)
                chunks = list(progress)
        return np.concatenate(chunks)


def _check_points(points, name):
    if points is None:
        return None
    return check_array(points, dtype=np.float64, input_name=name)


def _cost(inputs, outputs, metric, order):
    if inputs.shape[1] != outputs.shape[1]:
        raise ValueError(
            f"input_points have {inputs.shape[1]} coordinates but output_points have "
            f"{outputs.shape[1]}; give points of one space, or a cost_matrix."
        )
    return pairwise_distances(inputs, outputs, metric=metric) ** order


def _project(projector, rows, per_user, constant):
    return projector(rows)


def _release(projector, rows, integers, mechanism):
    return mechanism.draw(mechanism.integer_weights(projector(rows)), integers)


def _score(projector, rows, per_user, cost):
    return transport_costs(rows, projector(rows), cost)
