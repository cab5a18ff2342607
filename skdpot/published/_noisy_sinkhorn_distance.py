"""The published noisy Sinkhorn iterations between groups of records, as an estimator."""

import math
from dataclasses import dataclass
from itertools import combinations
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot._base import warn_user
from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.distance import BaseTransportDistance, CostSettings, Groups, Layout, Released
from skdpot.privacy.events import ApproximateDpEvent, DpEvent
from skdpot.privacy.preview import ExpectedError, HasExpectedErrors, NoGuaranteeWarning
from skdpot.published._noisy_sinkhorn import plan_noisy_sinkhorn, run_noisy_sinkhorn
from skdpot.published._paper_sinkhorn import (
    PaperSinkhornPlan,
    plan_paper_sinkhorn,
    run_paper_sinkhorn,
)
from skdpot.published._sinkhorn_privacy import check_problem

# A few matrices with this many costs are held in memory.
_LARGEST = 1 << 26


@dataclass(frozen=True)
class NoisySinkhornRuns(HasExpectedErrors):
    """A run of noisy Sinkhorn for every pair of groups, and the event of all runs."""

    settings: CostSettings
    groups: Groups
    plans: list[Any]
    event: DpEvent | None

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the deviation of the noise of each cost; the noise of potentials adds to it."""
        if isinstance(self.plans[0], PaperSinkhornPlan):
            return ()
        errors = (plan.cost_mechanism.scale * math.sqrt(2.0) for plan in self.plans)
        return self.groups.cost_errors(errors, self.settings.cost_range, ", or more")

    def run(self, X: np.ndarray, source: Any) -> Released:
        """Release the costs of all pairs, and the potentials if there are two groups."""
        pairs = combinations(self.groups.split(X, X[:0]), 2)
        calls = [(self._between, k, x, y, source.for_user(k)) for k, (x, y) in enumerate(pairs)]
        released = self.settings.threads.map(calls)
        costs = np.array([value for value, _, _ in released])
        potentials = {"potentials_": released[0][1:]} if len(released) == 1 else {}
        return Released.without_errors(costs, potentials)

    def _between(
        self, k: int, x: np.ndarray, y: np.ndarray, source: Any
    ) -> tuple[float, np.ndarray, np.ndarray]:
        low, _ = self.settings.cost.range
        cost, plan = self.settings.cost(x, y) - low, self.plans[k]
        if isinstance(plan, PaperSinkhornPlan):
            value, phi, psi = run_paper_sinkhorn(cost, plan, source)
        else:
            value, phi, psi = run_noisy_sinkhorn(cost, plan, source)
            # Noise gives the plan too much or too little mass; no cost can leave this range.
            value = min(max(value, 0.0), self.settings.cost_range)
        return low + value, low + phi, psi


class NoisySinkhornDistance(BaseTransportDistance):
    """The published noisy Sinkhorn: noise on the potentials of every iteration.

    **Superseded** by :class:`~skdpot.PrivateSinkhornDistance`, whose noise is smaller by about the
    number of records. With ``accounting="sound"`` the published algorithm is corrected, so that it
    is private. With ``accounting="paper"`` it is the one of the paper, whose proof does not hold.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of a fit.
    delta : float, default=1e-5
        Above 0, because noise is Gaussian.
    bounds, groups, metric, metric_params, cost_range : optional
        As in :class:`~skdpot.PrivateSinkhornDistance`. Labels are public: there is one potential
        for every record.
    reg : float, default=None
        Regularisation, in units of cost. Noise grows as ``exp(2 B / reg)`` for potentials up to B:
        unless `reg` is of the size of the costs' range, which None is, only noise is left.
    accounting : {"sound", "paper"}, default="sound"
        ``"paper"`` scales the noise by the published proof, which does not hold: **nothing is
        guaranteed**, a warning says so, and a ledger is refused.
    n_iter : int, default=None
        Number of iterations K. None chooses by the budget.
    noise_variance : float, default=None
        Variance M of the noise on each potential, in squared units of cost. None chooses by the
        budget.
    adaptive_noise : float, default=0.0
        The factor sigma**2 of the published algorithm, for ``accounting="paper"`` only.
    potential_bound : float, default=None
        For ``accounting="sound"`` only: potentials are clipped to this magnitude B, in units of
        cost, before they are used. None is the range of the cost.
    order, n_jobs, ledger, random_state, verbose : optional
        As in :class:`~skdpot.PrivateSinkhornDistance`.

    Attributes
    ----------
    distance_ : float
        The noisy distance, if there are two groups.
    distances_ : ndarray of shape (n_groups, n_groups)
        Noisy distances between all pairs.
    standard_error_, noise_interval_ : object
        NaN: the error of noisy iterations is not known.
    potentials_ : tuple of two ndarray
        Noisy potentials of the records, if there are two groups.
    groups_ : ndarray of shape (n_groups,)
        Labels of the groups.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee; None for ``accounting="paper"`` and for seeded releases.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has any.

    Warns
    -----
    NoGuaranteeWarning
        For ``accounting="paper"``.

    See Also
    --------
    skdpot.PrivateSinkhornDistance : Noise on the cost, or on counts.
    published_privacy : The epsilon that the paper claims.
    sound_privacy : The epsilon of the corrected iterations.

    Notes
    -----
    The cost is ``<c, pi>`` of the plan that the potentials stand for, without the penalty; with
    ``accounting="sound"`` it is moved into the range of costs. Proof: :ref:`proof-noisy-sinkhorn`.
    :doc:`/published` lists the errors of the published claims.

    References
    ----------
    J. Wang and Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Allerton 2024: Algorithm 1
    and equation (8).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.published import NoisySinkhornDistance
    >>> X, y = np.repeat([[0.0], [1.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> noisy = NoisySinkhornDistance(2000.0, bounds=(0, 1), random_state=0).fit(X, y)
    >>> bool(0 <= noisy.distance_ <= 1), noisy.potentials_[0].shape
    (True, (500,))
    """

    _parameter_constraints: dict = {
        **BaseTransportDistance._parameter_constraints,
        "reg": [Interval(Real, 0, None, closed="neither"), None],
        "accounting": [StrOptions({"sound", "paper"})],
        "n_iter": [Interval(Integral, 1, None, closed="left"), None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
        "adaptive_noise": [Interval(Real, 0, 1, closed="left")],
        "potential_bound": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-5,
        *,
        bounds=None,
        groups=None,
        metric="sqeuclidean",
        metric_params=None,
        cost_range=None,
        reg=None,
        accounting="sound",
        n_iter=None,
        noise_variance=None,
        adaptive_noise=0.0,
        potential_bound=None,
        order=None,
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.groups = groups
        self.metric = metric
        self.metric_params = metric_params
        self.cost_range = cost_range
        self.reg = reg
        self.accounting = accounting
        self.n_iter = n_iter
        self.noise_variance = noise_variance
        self.adaptive_noise = adaptive_noise
        self.potential_bound = potential_bound
        self.order = order
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _plan_release(self, layout: Layout) -> NoisySinkhornRuns:
        settings, groups = self._cost_settings(layout, self.reg), layout.groups
        others = len(groups.sizes) - 1
        budget = (self.epsilon / others, self.delta / others)
        options = {"n_iter": self.n_iter, "noise_variance": self.noise_variance}
        options = {name: value for name, value in options.items() if value is not None}
        self._check_accounting()
        plans: list[Any] = []
        # A record takes part in k - 1 of the runs, each of which gets that part of the budget.
        for n, m in combinations(groups.sizes.tolist(), 2):
            if n * m > _LARGEST:
                raise ValueError(
                    f"noisy Sinkhorn between {n} and {m} records needs too much memory. Use "
                    "PrivateSinkhornDistance, which also has far less noise."
                )
            problem = check_problem((n, m), settings.cost_range, settings.reg, self.potential_bound)
            if self.accounting == "paper":
                options["adaptive_noise"] = self.adaptive_noise
                plans.append(plan_paper_sinkhorn(*budget, problem, **options))
            else:
                plans.append(plan_noisy_sinkhorn(*budget, problem, **options))
        event = plans[0].event
        if event is not None and len(plans) > 1:
            # The pairs (epsilon, delta) of the runs with one record add up.
            event = ApproximateDpEvent(self.epsilon, self.delta)
        return NoisySinkhornRuns(settings, groups, plans, event)

    def _check_accounting(self) -> None:
        if self.accounting == "paper":
            if self.potential_bound is not None:
                raise ValueError(
                    "potential_bound clips potentials for accounting='sound'; the paper does not "
                    "clip. Use potential_bound=None."
                )
            warn_user(
                "accounting='paper' scales noise by a published proof that does not hold: the "
                "release is not private.",
                NoGuaranteeWarning,
            )
        elif self.adaptive_noise > 0:
            raise ValueError(
                "noise whose variance depends on the data (adaptive_noise > 0) has no proof of "
                "privacy. Use adaptive_noise=0, or accounting='paper' to reproduce the paper."
            )
