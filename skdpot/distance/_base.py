"""Base of the distances between groups: records, groups, and the settings of the cost."""

from abc import abstractmethod
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.validation import validate_data

from skdpot._base import PrivateEstimator, count_columns, validate_private_data
from skdpot._sklearn_compat import Interval, fit_context
from skdpot.distance._costs import CostSettings, Threads
from skdpot.distance._groups import Layout, Records, declared_groups, make_groups
from skdpot.distance._released import Released
from skdpot.distance._space import BoxSpace, TableSpace
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.preview import PrivacyGuarantee
from skdpot.privacy.random import make_source
from skdpot.tables import as_numbers, check_bounds, read_columns, read_schema
from skdpot.transport import load_compiler, load_solver

_WHY_BOUNDS = "They give the range of the cost, which the noise is scaled to."


class BaseTransportDistance(PrivateEstimator):
    """Base of the estimators that release transport costs between groups of records.

    A subclass returns its release from :meth:`_plan_release`: its ``event``, its ``groups``, and a
    ``run(X, source)`` that returns :class:`Released`.
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "bounds": ["array-like", None],
        "groups": ["array-like", None],
        "metric": [str, callable],
        "metric_params": [dict, None],
        "cost_range": ["array-like", None],
        "order": [Interval(Real, 1, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    # Defaults of parameters that some subclasses do not have.
    schema: Any = None
    labels = "public"
    min_group_size: Any = None
    # Replacements of scikit-learn's messages about X.
    _instead: ClassVar[dict[str, str]] = {}

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Release the distances between the groups of records.

        Charges the ledger first.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
            Private records. Values outside of the bounds are moved to them, silently, and values
            that are no numbers to the middle.
        y : array-like of shape (n_records,)
            The group of every record, required; private only where labels are.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter, a type or shape of X, or a public label is wrong. Nothing has been
            charged then. No value of a record raises an error.
        BudgetExceededError
            If the ledger does not allow the release. Nothing has been released then.
        """
        return self._fit(X, y)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        return tags

    def _validate(self, X: Any, y: Any) -> Records:
        return self._read(X, y, self.groups, reset=True)

    def _declared(self, n_records: int, columns: Any, group_sizes: Any = None) -> Records:
        """Return declared records with a known layout and unknown values."""
        d = count_columns(columns, default=np.max([np.size(end) for end in self.bounds or (0, 1)]))
        made = declared_groups(
            n_records,
            group_sizes,
            groups=self.groups,
            labels=self.labels,
            min_group_size=self.min_group_size,
        )
        return Records(np.empty((0, d)), Layout(self._space(d), made, n_records))

    def _read(self, X: Any, y: Any, groups: Any, reset: bool) -> Records:
        """Return records within their box, with their groups.

        Errors are raised here. No private value decides whether one is.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Give "
                "the group of every record as y."
            )
        space, points = self._points(X, reset)
        made = make_groups(
            points, y, groups=groups, labels=self.labels, min_group_size=self.min_group_size
        )
        # Raises if joblib does not understand n_jobs, before a budget is charged.
        effective_n_jobs(self.n_jobs)
        load_compiler()
        load_solver()
        return Records(points, Layout(space, made, len(points)))

    def _points(self, X: Any, reset: bool) -> tuple[BoxSpace | TableSpace, np.ndarray]:
        """Return records as points of the declared space, or raise."""
        if self.schema is None:
            X = validate_private_data(
                self, X, instead=self._instead, as_numbers=as_numbers, dtype=np.float64,
                ensure_min_samples=2, reset=reset,
            )  # fmt: skip
            space = self._space(X.shape[1])
            return space, space.moved_inside(X)
        space = self._space(0)
        columns = read_columns(X, space.schema, private=True)
        validate_data(self, X, skip_check_array=True, reset=reset)
        return space, space.points(columns)

    def _space(self, n_features: int) -> Any:
        """Return the declared space of records with so many features, or raise."""
        if self.schema is None:
            return BoxSpace(*self._box(n_features))
        if self.bounds is not None:
            raise ValueError(
                "bounds and schema are both given. bounds are those of an array of numbers; with "
                "schema, each column declares its own. Leave bounds out."
            )
        return TableSpace(read_schema(self.schema))

    def _box(self, n_features: int) -> tuple[np.ndarray, np.ndarray]:
        return check_bounds(self.bounds, n_features, _WHY_BOUNDS)

    def _cost_settings(
        self, layout: Layout, reg: float | None, divergence: str = "ot"
    ) -> CostSettings:
        """Return the settings of the cost; the default of `reg` depends on the range of costs."""
        cost = layout.space.cost(
            self.metric, metric_params=self.metric_params, cost_range=self.cost_range
        )
        low, high = cost.range
        threads = Threads(self.n_jobs, type(self).__name__ if self.verbose else None)
        return CostSettings(cost, high - low if reg is None else float(reg), divergence, threads)

    def _plan(self, data: Records) -> ReleasePlan:
        release = self._plan_release(data.layout)
        doubts = data.layout.space.doubts(data.layout.n_records)
        return replace(self._plan_of(release), n_records=data.layout.n_records, doubts=doubts)

    @abstractmethod
    def _plan_release(self, layout: Layout) -> Any:
        """Return the planned release, made of public quantities, or raise."""

    def _plan_of(self, release: Any) -> ReleasePlan:
        """Return the plan of a release for the budget of a fit."""
        public = ("the group of each record", "the size of each group")
        return ReleasePlan(
            release,
            release.event,
            make_source(self.random_state),
            label=f"{type(self).__name__}, {self.labels} labels",
            guarantee=PrivacyGuarantee(
                epsilon=float(self.epsilon),
                delta=float(self.delta),
                neighbouring="replace_one",
                unit="record",
                not_protected=public if self.labels == "public" else (),
            ),
            neighbouring="replace_one",
            parameters=("accounting",) if hasattr(self, "accounting") else (),
        )

    def _run(self, plan: ReleasePlan, data: Records) -> Released:
        return plan.release.run(data.X, plan.source)

    def _keep(self, plan: ReleasePlan, released: Released) -> None:
        self.groups_ = plan.release.groups.names
        self._fitted = released.transport
        shown = released.attributes | released.distances(self.order, len(self.groups_))
        for name, value in shown.items():
            setattr(self, name, value)
