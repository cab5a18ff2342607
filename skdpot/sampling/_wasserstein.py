"""Private samples by Wasserstein projection."""

from numbers import Integral, Real

import numpy as np

from skdpot._progress import plain_bar
from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.sampling._distributions import BaseDistributionSampler, Projection, scaled_uniform
from skdpot.transport import (
    Projector,
    check_base_measure,
    optimal_base_measure,
    uniform_base_measure,
    worst_case_cost,
)


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
    max_iter : int, default=1000
        Largest number of entropic sweeps per user. If they give no certificate, the exact solver
        finishes.
    {output}
    {score_metric}
    {score_order}
    {n_jobs}
    {ledger}
    {random_state}
    verbose : int, default=0
        Whether to show progress bars, over users and in the search for the base measure.

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
        "base_measure": [
            StrOptions({"balanced", "optimal", "uniform"}),
            Interval(Real, 0, 1, closed="right"),
            "array-like",
        ],
        "solver": [StrOptions({"auto", "exact", "entropic"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
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
        max_iter=1000,
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
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.output = output
        self.score_metric = score_metric
        self.score_order = score_order
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _plan_projection(self, cost, epsilon):
        n_outputs, gap = cost.shape[1], np.nan
        base = scaled_uniform(self.base_measure, n_outputs)
        if isinstance(base, str):
            base, gap = self._find_base_measure(base, cost, epsilon)
        base = check_base_measure(base, epsilon, n_outputs)
        projector = Projector(
            cost, base, epsilon, solver=self.solver, tol=self.tol, max_iter=self.max_iter
        )
        worst = worst_case_cost(cost, base, epsilon)
        return Projection(projector, base, {"worst_case_cost_": worst, "worst_case_gap_": gap})

    def _prepare_work(self, n_points):
        self._fitted.projection.projector.prepare(n_points)

    def _find_base_measure(self, choice, cost, epsilon):
        if choice == "optimal":
            optimal = self._optimal_base_measure(cost, epsilon)
            return optimal.base_measure, optimal.gap
        base = uniform_base_measure(cost, epsilon).base_measure
        if choice == "balanced":
            base = (self._optimal_base_measure(cost, epsilon).base_measure + base) / 2
        return base, np.nan

    def _optimal_base_measure(self, cost, epsilon):
        with plain_bar(desc="optimal base measure", disable=not self.verbose) as progress:

            def show(result):
                progress.set_postfix(gap=f"{result.gap:.1e}", refresh=False)
                progress.update()

            return optimal_base_measure(cost, epsilon, tol=self.tol, callback=show)
