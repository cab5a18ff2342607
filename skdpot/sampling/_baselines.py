"""The mechanisms that the Wasserstein projection is compared with."""

import math
from functools import partial
from numbers import Real

import numpy as np
from scipy.special import softmax

from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.privacy.sensitivity import cost_score_sensitivity
from skdpot.sampling._distributions import BaseDistributionSampler, Projection, scaled_uniform
from skdpot.transport import check_base_measure, clip_to_polytope, kl_projection

# Finite after products and sums, and far beyond any cost at which an output could be drawn.
_LARGEST_RELATIVE_COST = 1e300


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
    {score_metric}
    {score_order}
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
        "base_measure": [
            StrOptions({"minimax"}),
            Interval(Real, 0, 1, closed="right"),
            "array-like",
        ],
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
        score_metric="euclidean",
        score_order=1,
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=0,
    ) -> None:
        self.epsilon = epsilon
        self.input_points = input_points
        self.output_points = output_points
        self.metric = metric
        self.order = order
        self.cost_matrix = cost_matrix
        self.base_measure = base_measure
        self.output = output
        self.score_metric = score_metric
        self.score_order = score_order
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _plan_projection(self, cost, epsilon):
        n_inputs, n_outputs = cost.shape
        if n_inputs != n_outputs:
            raise ValueError(
                "the Kullback-Leibler projection needs one output point per input point, got "
                f"{n_inputs} inputs and {n_outputs} outputs. WassersteinProjectionSampler has no "
                "such limit."
            )
        base = scaled_uniform(self.base_measure, n_outputs)
        if isinstance(base, str):
            base = np.full(n_outputs, 1 / (math.exp(epsilon) + n_outputs - 1))
        base = check_base_measure(base, epsilon, n_outputs)
        return Projection(partial(kl_projection, base_measure=base, epsilon=epsilon), base)


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
    {score_metric}
    {score_order}
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
        score_metric="euclidean",
        score_order=1,
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=0,
    ) -> None:
        self.epsilon = epsilon
        self.input_points = input_points
        self.output_points = output_points
        self.metric = metric
        self.order = order
        self.cost_matrix = cost_matrix
        self.output = output
        self.score_metric = score_metric
        self.score_order = score_order
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _plan_projection(self, cost, epsilon):
        sensitivity = cost_score_sensitivity(cost)
        logits = -0.5 * epsilon * _relative_costs(cost, sensitivity)
        base = softmax(logits, axis=1).min(axis=0)
        base = check_base_measure(base, epsilon, len(base))
        projector = partial(_exponential_projection, logits, base, epsilon)
        return Projection(projector, base, {"sensitivity_": sensitivity})


def _exponential_projection(logits, base_measure, epsilon, rows):
    return clip_to_polytope(softmax(rows @ logits, axis=1), base_measure, epsilon)


def _relative_costs(cost_matrix, sensitivity):
    """Return the costs of outputs minus an input's lowest cost, in units of the sensitivity."""
    if sensitivity == 0:
        # All inputs have the same utilities: there is nothing to protect.
        return np.zeros_like(cost_matrix)
    beyond = cost_matrix - cost_matrix.min(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        return np.minimum(beyond / sensitivity, _LARGEST_RELATIVE_COST)
