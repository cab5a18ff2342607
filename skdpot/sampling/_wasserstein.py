"""Private samples by Wasserstein projection."""

from numbers import Integral, Real

import numpy as np
from tqdm.auto import tqdm

from skdpot._conformance import PRIVATE_COUNT, Failures
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

    A user's distribution is replaced by the nearest one, in the Wasserstein sense, of the
    polytope ``{nu : s <= nu <= exp(epsilon) s}`` around a public base measure s, and one sample
    is drawn from that. Among all mechanisms with the same guarantee none has a smaller
    worst-case cost when the base measure is optimal; supports of input and output may differ.

    **What is protected.** Local differential privacy: every user is protected on their own, by
    epsilon per sample, and two neighbours may have completely different distributions (the unit
    of privacy is a user). The samples are private; what :meth:`project` and :meth:`score` return
    is not. All constructor parameters and fitted attributes are public: nothing but the number
    of columns (and their names) is learned from X.

    Parameters
    ----------
    {epsilon}
    {input_points}
    {output_points}
    {metric}
    {order}
    {cost_matrix}
    base_measure : {"optimal", "uniform"}, float or array-like of shape (n_outputs,), \
default="optimal"
        Public. ``"optimal"`` minimises the worst-case cost over all base measures (by cutting
        planes, to a certified relative gap of at most `tol`); ``"uniform"`` over the multiples
        of the uniform distribution; a float c strictly between exp(-epsilon) and 1 is c times the
        uniform distribution; an array is taken as it is, and its sum lies strictly between them,
        too: at either end all users would have one and the same projection.
    solver : {"auto", "exact", "entropic"}, default="auto"
        How distributions are projected, see :func:`skdpot.transport.wasserstein_projection`.
    tol : float, default=1e-3
        Certified relative excess cost of the optimal base measure, and of a projection by the
        entropic solver (that of the exact one is at rounding error).
    max_iter : int, default=1000
        Entropic sweeps per user; what they leave uncertified is solved exactly.
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
        Largest cost of a projection over all distributions (in units of `cost_matrix_`; take the
        root of degree `order` for a Wasserstein distance).
    worst_case_gap_ : float
        Certified relative distance of `worst_case_cost_` from the smallest one possible; NaN
        unless the base measure is the optimal one.
    {output_points_}
    {privacy_guarantee_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    KLProjectionSampler : Projects in the Kullback-Leibler sense, blind to geometry.
    ExponentialMechanismSampler : Chooses outputs by their mean cost.
    SphericalProjectionSampler : The same mechanism for unit vectors.

    Notes
    -----
    ``fit(X).transform(X)`` gives fresh samples at every call unless seeded with an integer, and
    every call is charged with the epsilon of the last `fit`. In a grid search over a pipeline
    every candidate releases on every fold, when it is fitted and when it is scored.

    Not protected are the facts that a user takes part and that a row was refused (errors name the
    row, an all-zero one say; they come before anything is charged or released). How long a
    release takes depends on the user's distribution: where an observer could time it, that is a
    side channel.

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
    0.767
    >>> uniform = WassersteinProjectionSampler(epsilon=2.0, base_measure="uniform")
    >>> uniform.fit(histograms).project(histograms).round(3)
    array([[0.649, 0.088, 0.088, 0.088, 0.088],
           [0.088, 0.088, 0.088, 0.237, 0.5  ]])
    """

    _parameter_constraints: dict = {
        **BaseDistributionSampler._parameter_constraints,
        "base_measure": [
            StrOptions({"optimal", "uniform"}),
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
        base_measure="optimal",
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

    def _failing_checks(self) -> Failures:
        return {**super()._failing_checks(), **PRIVATE_COUNT}

    def _plan_projection(self, cost, epsilon):
        n_outputs, gap = cost.shape[1], np.nan
        base = scaled_uniform(self.base_measure, n_outputs)
        if isinstance(base, str) and base == "uniform":
            base = uniform_base_measure(cost, epsilon).base_measure
        elif isinstance(base, str):
            result = self._optimal_base_measure(cost, epsilon)
            base, gap = result.base_measure, result.gap
        base = check_base_measure(base, epsilon, n_outputs)
        projector = Projector(
            cost, base, epsilon, solver=self.solver, tol=self.tol, max_iter=self.max_iter
        )
        worst = worst_case_cost(cost, base, epsilon)
        return Projection(projector, base, {"worst_case_cost_": worst, "worst_case_gap_": gap})

    def _prepare_work(self, n_points):
        self._fitted.projection.projector.prepare(n_points)

    def _optimal_base_measure(self, cost, epsilon):
        with tqdm(desc="optimal base measure", disable=not self.verbose) as progress:

            def show(result):
                progress.set_postfix(gap=f"{result.gap:.1e}", refresh=False)
                progress.update()

            return optimal_base_measure(cost, epsilon, tol=self.tol, callback=show)
