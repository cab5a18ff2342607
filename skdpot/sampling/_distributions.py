"""The common base of samplers of users' distributions: weights, projection and draws."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches

from skdpot._base import refuse_other_order, validate_private_data
from skdpot._sklearn_compat import StrOptions
from skdpot._threads import one_blas_thread
from skdpot.privacy.choices import WEIGHT_BITS, BoundedRatioMechanism
from skdpot.sampling._base import BaseLocalSampler
from skdpot.sampling._geometry import Geometry, check_row_names, make_geometry, power_of_distances
from skdpot.transport import load_compiler, normalise_rows, transport_costs

# A sum this close to an end leaves a single distribution.
_NEGLIGIBLE = 1e-12
# Number of weights that are rounded at a time: the processor's cache holds them.
_IN_CACHE = 1 << 16
# Maximum number of inputs for which the cost of each is computed.
_MOST_TRIED = 512
# scikit-learn's own text advises to impute.
_INSTEAD = {
    "Input X contains NaN": (
        "Input X contains NaN. Where a user has no weight write 0, as DataFrame.pivot_table(..., "
        "fill_value=0) does; do not impute, because that would fill in values of other users."
    ),
    "could not convert": (
        "X holds text that cannot be read as numbers. It must have weights, in a row for each user "
        "and a column for each place, visited or not. Of a list of visits it is made by "
        "pandas.crosstab(users, places).reindex(columns=all_places, fill_value=0)."
    ),
}


@dataclass(frozen=True)
class Projection:
    """A public map of users' distributions into the polytope of a base measure.

    The projector is picklable, and maps normalised CSR rows to probability vectors between the base
    measure and ``exp(epsilon)`` times it. The attributes are further fitted attributes, by name.
    """

    projector: Any
    base_measure: np.ndarray
    attributes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ProjectionMechanism:
    """A projection, and the random outputs from its result; public throughout."""

    geometry: Geometry
    projection: Projection
    draws: BoundedRatioMechanism

    @property
    def epsilon(self) -> float:
        """Return the privacy parameter of one sample."""
        return self.draws.epsilon

    def project(self, rows: Any) -> np.ndarray:
        """Return the distributions that outputs are drawn from."""
        return self.projection.projector(rows)

    def worst_costs(self) -> tuple[float, float] | None:
        """Return the expected cost of a sample for the worst user, and without any data.

        It is None without a closed form, if there are too many inputs to try them all.
        """
        cost, base = self.geometry.cost_matrix, self.projection.base_measure
        worst = self.projection.attributes.get("worst_case_cost_")
        if worst is None and len(cost) > _MOST_TRIED:
            return None
        if worst is None:
            worst = np.max(
                np.sum(self.project(sparse.eye_array(len(cost), format="csr")) * cost, 1)
            )
        return float(worst), float(np.max(cost @ base) / np.sum(base))

    def score(self, cost: np.ndarray, rows: Any) -> np.ndarray:
        """Return the transport costs from users' distributions to their projections."""
        return transport_costs(rows, self.project(rows), cost)

    def sample(self, rows: Any, integers: np.ndarray) -> np.ndarray:
        """Return the indices of outputs, drawn by uniform random integers."""
        # A caller may have made underflow an error, which the values of a row could raise.
        with np.errstate(all="ignore"):
            probabilities = self.project(rows)
        outputs = np.empty(np.shape(integers), dtype=np.intp)
        height = max(1, _IN_CACHE // probabilities.shape[1])
        for users in gen_batches(len(outputs), height):
            weights = self.draws.integer_weights(probabilities[users])
            outputs[users] = self.draws.draw(weights, integers[users])
        return outputs


class BaseDistributionSampler(BaseLocalSampler):
    """Base of the mechanisms that turn a user's whole distribution into one private sample.

    A subclass returns a :class:`Projection` in :meth:`_plan_projection`.

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
    output : {"points", "index", "onehot"}, default="points"
        The result of :meth:`transform`: coordinates of output points, their indices, or
        indicators.
    score_metric : str or callable, default="euclidean"
        Distance in :meth:`score`. It does not follow `metric`.

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
        "output": [StrOptions({"points", "index", "onehot"})],
        "score_metric": [str, callable],
    }

    @abstractmethod
    def _plan_projection(self, cost: np.ndarray, epsilon: float) -> Projection:
        """Return the projection for costs between input and output points."""

    def _validate(self, X):
        _validate_weights(self, X, reset=True)

    def _plan_mechanism(self, epsilon):
        geometry = make_geometry(
            self.input_points,
            self.output_points,
            self.cost_matrix,
            self.metric,
            self.order,
            n_inputs=self.n_features_in_,
        )
        with one_blas_thread():
            projection = self._plan_projection(geometry.cost_matrix, epsilon)
        draws = BoundedRatioMechanism(projection.base_measure, epsilon)
        # A computed base measure may be best there, for example if all outputs cost the same.
        if not isinstance(getattr(self, "base_measure", "computed"), str):
            _check_choice(projection.base_measure, epsilon)
        return ProjectionMechanism(geometry, projection, draws)

    def _keep_mechanism(self, mechanism):
        self.output_points_ = mechanism.geometry.output_points
        self.cost_matrix_ = mechanism.geometry.cost_matrix
        self.base_measure_ = mechanism.projection.base_measure
        for name, value in mechanism.projection.attributes.items():
            setattr(self, name, value)

    def _validate_users(self, X):
        load_compiler()
        rows = normalise_rows(_validate_weights(self, X, reset=False))
        self._prepare_work(np.diff(rows.indptr))
        return rows

    def _prepare_work(self, n_points: np.ndarray) -> None:  # noqa: B027
        """Compile the kernels for users with so many points, before the charge."""

    def _doubles_per_user(self, n_samples):
        return len(self.output_points_)

    def _run(self, plan, data):
        samples = plan.release
        integers = plan.source.bits(WEIGHT_BITS, (data.shape[0], samples.n_samples))
        return self._map(samples.mechanism.sample, samples.chunks, data, integers)

    def _as_output(self, samples):
        if self.output == "points":
            return self.output_points_[samples]
        if self.output == "index":
            return samples[:, None]
        indicators = np.zeros((len(samples), len(self.output_points_)))
        indicators[np.arange(len(samples)), samples] = 1.0
        return indicators

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
        return self._map(self._fitted.project, self._plan_chunks(rows.shape[0]), rows)

    def score(self, X, y=None) -> float:
        """Return minus the mean transport cost between users' distributions and their projections.

        *Not private*: a diagnostic for public data or consenting users. A grid search can use it
        to choose metrics, orders and base measures. The cost is the distance ``score_metric``
        between input and output points to the power ``score_order``. It does not depend on the
        mechanism's own cost, so that candidates are comparable. If `cost_matrix` is given without
        input and output points of one space, the cost is `cost_matrix`.

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
        score = partial(self._fitted.score, self._score_cost())
        return -float(np.mean(self._map(score, self._plan_chunks(rows.shape[0]), rows)))

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

    def _score_cost(self):
        inputs, outputs = self._fitted.geometry.input_points, self.output_points_
        if inputs is None or inputs.shape[1] != outputs.shape[1]:
            return self.cost_matrix_
        return power_of_distances(inputs, outputs, self.score_metric, self.score_order)


def _validate_weights(estimator, X, reset):
    """Return X as float64, dense or CSR, with finite and non-negative entries."""
    names = list(getattr(X, "columns", ()))
    refuse_other_order("input_points", estimator.input_points, names)
    check_row_names(estimator.cost_matrix, names)
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
    """Raise if the base measure permits a single distribution only."""
    total = math.fsum(base_measure)
    is_single = total > 1 - _NEGLIGIBLE or math.exp(epsilon) * total < 1 + _NEGLIGIBLE
    if is_single and len(base_measure) > 1 and np.count_nonzero(base_measure) > 1:
        raise ValueError(
            f"base_measure sums to {total:.6g}, so that every user would get the same "
            "distribution, whatever she holds. Its sum must lie between exp(-epsilon) = "
            f"{math.exp(-epsilon):.6g} and 1, and not at either end: multiply a probability vector "
            "by a number between them, such as "
            f"{math.exp(-epsilon / 2):.3g}."
        )


def scaled_uniform(base_measure: Any, n_outputs: int) -> Any:
    """Return a multiple of the uniform distribution, for a base measure given as a number."""
    is_number = isinstance(base_measure, Real)
    return np.full(n_outputs, base_measure / n_outputs) if is_number else base_measure
