"""The private transport cost between groups of records, as an estimator and as a function.

doc/theory/releases.csv has the sensitivity, noise and proof of each release in one row.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_consistent_length, validate_data

from skdpot import tables
from skdpot._base import (
    PrivateEstimator,
    count_columns,
    make_bar,
    validate_private_data,
    warn_of_variants,
    warn_user,
)
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.distance._costs import BoxSpace, SchemaSpace
from skdpot.distance._releases import CostSettings, CostsRelease, GridRelease, Released
from skdpot.privacy.charging import ExpectedError, PrivacyGuarantee, ReleasePlan
from skdpot.privacy.checks import (
    check_type,
    names_of,
    redact_errors,
    refuse_other_order,
    to_display,
)
from skdpot.privacy.noise import make_source
from skdpot.transport import load_compiler, load_solver

_INSTEAD = {
    "could not convert": (
        "X holds text that cannot be read as numbers. Convert it to numbers first; or declare what "
        "the columns hold, by schema={column: ...}."
    )
}


@dataclass(frozen=True)
class LabelledGroups:
    """Records by group, and the public facts that a release is planned from.

    Attributes
    ----------
    names : ndarray of shape (n_groups,)
        Public.
    codes : ndarray of shape (n_records,)
        Private with private labels: the number of each record's group, -1 if it is in none.
    sizes : ndarray of shape (n_groups,)
        Public: how many records a group has, or at least how many it is filled up to.
    labels : {"public", "private"}
        Whether the group of a record is public.
    n_records : int
        Public: how many records there are, in a group or in none.
    n_parts : int
        Releases of this many owners are added up, each with noise of its own.
    """

    names: np.ndarray
    codes: np.ndarray
    sizes: np.ndarray
    labels: str
    n_records: int
    n_parts: int = 1

    def cost_errors(
        self, errors: Iterable[float], cost_range: float, note: str = ""
    ) -> tuple[ExpectedError, ...]:
        """Return the given standard errors of the costs between pairs of groups, with names."""
        pairs = combinations(self.names.tolist(), 2)
        return tuple(
            ExpectedError(
                f"standard error of the cost between {g!r} and {h!r}{note}",
                float(error),
                cost_range,
            )
            for (g, h), error in zip(pairs, errors, strict=True)
        )

    def max_pair(self) -> tuple[int, int]:
        """Return the public largest sizes of two groups."""
        if self.labels == "public":
            second, first = np.sort(self.sizes)[-2:]
            return int(first), int(second)
        # The group of each record is private: the product of two sizes is largest if they are
        # equal.
        # Filling up adds at most the declared sizes of two groups.
        filled = self.n_records + int(np.sort(self.sizes)[-2:].sum())
        return -(-filled // 2), -(-filled // 2)

    def split(self, X: np.ndarray, filler: np.ndarray) -> list[np.ndarray]:
        """Return the records of every group.

        If a group of private size has fewer records than declared, a public point is added as often
        as needed. An error, or a guarantee that did not hold, would reveal its size.
        """
        # Order within a group is that of the records; no cost depends on it.
        samples = [X[self.codes == g] for g in range(len(self.names))]
        if self.labels == "public":
            return samples
        return [
            np.vstack([sample, np.tile(filler, (max(size - len(sample), 0), 1))])
            for sample, size in zip(samples, self.sizes, strict=True)
        ]


def make_groups(X: Any, y: Any, groups: Any, labels: str, min_group_size: Any) -> LabelledGroups:
    """Return the groups that y names; raise if something public is wrong.

    With private labels errors depend on the shape of y only.
    """
    if len(getattr(y, "shape", ())) > 1:
        raise ValueError("y must be a list of groups: compare samples by private_ot_cost(X, Y).")
    redact_errors(lambda: check_consistent_length(X, y), "y cannot be read as labels.")
    if labels == "private" and (groups is None or min_group_size is None):
        missing = "groups" if groups is None else "min_group_size"
        raise ValueError(
            f"labels='private' needs {missing}: with private labels, which groups there are and "
            "how large they are may not be learned from y. Declare groups=, and with "
            "min_group_size= a number of records that every group has."
        )
    # Public labels may be looked at, and so may say which groups there are.
    if groups is None:
        remedy = "a record without a group cannot be compared. Remove it, or give it its own label."
        given = tables.public_labels(y, remedy)
        names, codes = np.unique(given, return_inverse=True)
    else:
        names, number = tables.declared_labels(groups, "groups")
        given = tables.one_by_one(y)
        if labels == "private":
            tables.refuse_other_labels(y, number, "y")
        codes = tables.label_codes(given, number)
    if len(names) < 2:
        raise ValueError(f"a distance needs two or more groups, got {len(names)}.")
    if groups is None and len(names) > max(20, len(X) / 2):
        instead = "make bands of numbers first, or compare two samples by private_ot_cost(X, Y)"
        raise ValueError(f"y has a group for nearly every record: {instead}.")
    declared = None if min_group_size is None else _check_sizes(min_group_size, names.tolist())
    if labels == "private" and declared is not None:
        if sum(declared.tolist()) > len(X):
            raise ValueError(
                f"min_group_size adds up to {sum(declared.tolist())} records in {len(names)} "
                f"groups, and there are {len(X)} in all. Declare what every group surely has."
            )
        return LabelledGroups(names, codes, declared.astype(np.int64), labels, len(X))
    # The code of records without a group, -1, is counted first and left out.
    sizes = np.bincount(codes + 1, minlength=len(names) + 1)[1:]
    made = LabelledGroups(names, codes, sizes, labels, len(X))
    _check_public(made, given, declared)
    return made


def labels_of_sizes(n_records: int, group_sizes: Any, groups: Any) -> tuple[list[Any], np.ndarray]:
    """Return the groups, and the labels of records in groups of declared sizes; or raise.

    Without sizes, two groups or the declared ones have equally many records.
    """
    by_name = isinstance(group_sizes, Mapping)
    numbers = range(2 if group_sizes is None else len(group_sizes))
    names = list((group_sizes if by_name else numbers) if groups is None else groups)
    refuse_other_order("group_sizes", group_sizes, names, of="the groups")
    if by_name:
        group_sizes = [group_sizes[name] for name in names] if set(names) == {*group_sizes} else []
    if group_sizes is None:
        group_sizes = np.diff(np.linspace(0, n_records, len(names) + 1).astype(np.int64))
    if np.asarray(group_sizes).dtype.kind not in "iuf":
        raise TypeError(
            "group_sizes holds labels: give the number of records of each one, as {label: number}."
        )
    if len(group_sizes) != len(names) or sum(group_sizes) != n_records or min(group_sizes) < 0:
        raise ValueError(
            f"group_sizes must give one number for each of the {len(names)} groups, none below 0, "
            f"and add up to n_records={n_records}, got {to_display(group_sizes)}."
        )
    # As objects: an array of numbers and texts would make all of them texts.
    of_groups = np.asarray(names, dtype=object)
    return names, np.repeat(of_groups, np.asarray(group_sizes, dtype=np.int64), axis=0)


def _check_sizes(min_group_size: Any, names: list[Any]) -> np.ndarray:
    refuse_other_order("min_group_size", min_group_size, names, of="the groups")
    sizes = np.asarray(min_group_size)
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (len(names),)) or (sizes < 1).any():
        raise ValueError(
            "min_group_size must be a positive integer, or one for each of the "
            f"{len(names)} groups, got {to_display(min_group_size)}."
        )
    # Sizes of any integer type are added without overflow.
    return np.broadcast_to(sizes, len(names))


def _check_public(made: LabelledGroups, given: np.ndarray, declared: np.ndarray | None) -> None:
    names, codes, sizes = made.names, made.codes, made.sizes
    if (codes < 0).any():
        raise ValueError(
            f"y holds {given[codes < 0].tolist()[0]!r}, which is not one of the declared groups "
            f"{names.tolist()}. Declare it, or remove the records that have it."
        )
    if not sizes.all():
        raise ValueError(
            f"there is no record of group {names[sizes == 0].tolist()[0]!r} in y. Declare only "
            "groups that have records. In a search, take folds with all of them: StratifiedKFold."
        )
    if declared is not None and (sizes < declared).any():
        g = int(np.argmax(sizes < declared))
        raise ValueError(
            f"group {names.tolist()[g]!r} has {sizes[g]} records, fewer than "
            f"min_group_size={declared[g]}."
        )


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
        "cost_range": "no_validation",
        "order": [Interval(Real, 1, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "verbose": ["verbose", None],
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

    def _declared(
        self, n_records: int, columns: Any, group_sizes: Any = None
    ) -> tuple[np.ndarray, Any, LabelledGroups]:
        """Return no records, their declared space, and declared groups."""
        d = count_columns(columns, default=np.max([np.size(end) for end in self.bounds or (0, 1)]))
        names, y = labels_of_sizes(n_records, group_sizes, self.groups)
        made = make_groups(y, y, names, self.labels, self.min_group_size)
        return np.empty((0, d)), self._space(d), made

    def _validate(self, X: Any, y: Any) -> tuple[np.ndarray, Any, LabelledGroups]:
        """Return records within their space, the space, and their groups.

        Errors are raised here. No private value decides whether one is.
        """
        # Space and points first: errors about declarations do not depend on y.
        space, points = self._points(X)
        made = make_groups(points, y, self.groups, self.labels, self.min_group_size)
        # Raises if joblib does not understand n_jobs, before a budget is charged.
        effective_n_jobs(self.n_jobs)
        load_compiler()
        load_solver()
        return points, space, made

    def _points(self, X: Any) -> tuple[BoxSpace | SchemaSpace, np.ndarray]:
        """Return records as points of the declared space, or raise."""
        if self.schema is None:
            read = partial(validate_private_data, as_numbers=tables.as_numbers, dtype=np.float64)
            X = read(self, X, instead=self._instead, ensure_min_samples=2)
            space = self._space(X.shape[1])
            return space, space.moved_inside(X)
        space = self._space(0)
        # A table is read by its declared columns; scikit-learn then checks names and number alone.
        columns = tables.read_columns(X, space.schema, private=True)
        validate_data(self, X, skip_check_array=True)
        return space, space.points(columns)

    def _space(self, n_features: int) -> Any:
        """Return the declared space of records with this many features, or raise."""
        if self.schema is None:
            why = "They give the range of the cost, which the noise is scaled to."
            return BoxSpace(*tables.check_bounds(self.bounds, n_features, why))
        if self.bounds is not None:
            raise ValueError(
                "bounds and schema are both given. bounds are those of an array of numbers; with "
                "schema, each column declares its own. Leave bounds out."
            )
        return SchemaSpace(tables.read_schema(self.schema))

    def _cost_settings(
        self, space: BoxSpace | SchemaSpace, reg: float | None, divergence: str = "ot"
    ) -> CostSettings:
        """Return the settings of the cost; the default of `reg` depends on the range of costs."""
        if self.metric in ("euclidean", "cityblock", "chebyshev") and self.order not in (None, 1):
            raise ValueError("order takes roots of powers: leave it out, or use 'sqeuclidean'.")
        cost = space.cost(self.metric, self.cost_range)
        low, high = cost.range
        # Published iterations lose all to noise with less regularisation than this.
        reg = high - low if reg is None else float(reg)
        progress = partial(make_bar, desc=type(self).__name__, verbose=self.verbose)
        return CostSettings(cost, reg, divergence, self.n_jobs, progress)

    def _plan(self, data: tuple[np.ndarray, Any, LabelledGroups]) -> ReleasePlan:
        _, space, groups = data
        release = self._plan_release(space, groups)
        warn_of_variants(groups.names)
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
            n_records=groups.n_records,
        )

    @abstractmethod
    def _plan_release(self, space: BoxSpace | SchemaSpace, groups: LabelledGroups) -> Any:
        """Return the planned release, made of public quantities, or raise."""

    def _run(self, plan: ReleasePlan, data: tuple[np.ndarray, Any, LabelledGroups]) -> Released:
        X, _, _ = data
        return plan.release.run(X, plan.source)

    def _keep(self, plan: ReleasePlan, released: Released) -> None:
        self.groups_ = plan.release.groups.names
        shown = released.attributes | released.distances(self.order)
        for name, value in shown.items():
            setattr(self, name, value)


class PrivateSinkhornDistance(BaseTransportDistance):
    """Distance between groups of private records: optimal transport with noise.

    It releases the cost of transporting one group's distribution to another's under central
    differential privacy, for two groups or for all pairs of several groups. The cost may be exact,
    entropic or debiased. Use it to monitor drift (this month against a reference) or to measure
    how different groups are. Records are points within `bounds` or, with a `schema`, rows of a
    table with text, numbers and missing values.

    **What is protected.** Every record, with epsilon (and delta), for one call of :meth:`fit`: its
    values may be replaced by any others within the bounds. With ``labels="public"`` the group of a
    record, the sizes of the groups and the labels are *not* protected. With ``labels="private"``
    the group of a record is protected, too: it may be replaced by a record of another group. In
    either case the number of records is public. No value refuses a fit: NaN, and values that are no
    numbers or not declared, are read as the middle of the bounds or levels, or as the first
    category (:doc:`/not_protected`).

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of a fit.
    delta : float, default=0.0
        0 means Laplace noise; a value above 0 means Gaussian noise. For the distance between two
        groups, Laplace noise is smaller. Gaussian noise is better for many pairs and long
        histograms.
    bounds : tuple (low, high), default=None
        Public; required without a `schema`. Each is a number, or one number per feature. Values
        outside are clipped, without a warning. The bounds give the range of the cost, and the
        noise is proportional to this range. So narrow bounds mean less noise.
    schema : dict, default=None
        Public. For tables, instead of `bounds`: the possible values of each column, by name. They
        are ``range(low, high + 1)`` for integers, ``(low, high)`` for real numbers, or a list of
        categories. A dictionary says more: ``{"bounds": (low, high), "integer": False}``,
        ``{"categories": [...]}``, or ``{"levels": [...]}`` for ordered categories. Add
        ``"missing": True`` if values may be missing; then undeclared values count as missing.
        Costs are means over columns, see Notes.
    groups : array-like of shape (n_groups,), default=None
        Public. The labels of the groups, in the order of the results. With public labels, None
        uses the labels in y.
    labels : {"public", "private"}, default="public"
        Whether the group of a record is public. Private labels need `groups` and `min_group_size`;
        then records with a label that is not in `groups` are ignored, without a warning. The text
        "1" is not the number 1.
    min_group_size : int or array-like of shape (n_groups,), default=None
        Public. With private labels, the smallest number of records in each group. A larger number
        means less noise. A smaller group is filled up with the middle of the bounds, without a
        warning. With public labels, smaller groups are refused.
    metric : str or callable, default="sqeuclidean"
        Cost between two records: ``"sqeuclidean"``, ``"euclidean"``, ``"cityblock"``,
        ``"chebyshev"``, or a function of two vectors that returns a number. If it fails for some
        values, their cost is the largest one, without a warning. With a `schema` it is
        ``"sqeuclidean"``, ``"euclidean"`` or ``"cityblock"``.
    cost_range : tuple (low, high), default=None
        Public. Costs are clipped to this range. It is required for callables.
    reg : float, default=0.0
        Regularisation, in units of cost; 0 means exact transport. The penalty is the relative
        entropy with respect to the product of both distributions.
    divergence : {"ot", "sinkhorn"}, default="ot"
        The cost of transport, or the debiased ``OT(x, y) - OT(x, x) / 2 - OT(y, y) / 2``, which is
        0 between equal distributions for any `reg` above 0, and needs twice the noise.
    mechanism : {"output", "histogram"}, default="output"
        Which values get noise. ``"output"``: the cost itself, with by far the least noise.
        ``"histogram"``: counts on a public grid, which also give a plan and potentials at no
        further cost; not with a `schema`. The number of records, of features and epsilon choose
        the grid.
    order : float, default=None
        Distances are the `order`-th roots of the costs, at no privacy cost. Use 2 for the
        Wasserstein distance W_2 with ``metric="sqeuclidean"``.
    n_jobs : int, default=None
        Number of threads, over pairs and within a pair. Results do not depend on it.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before anything is released, with the unit ``"record"`` and the relation
        ``"replace_one"``.
    random_state : int or RandomState, default=None
        None uses the operating system's cryptographic source. Seeded releases can be reproduced,
        so they are *not private*: use seeds for tests and teaching only.
    verbose : bool, default=None
        Whether to show a progress bar over pairs. None shows it on a terminal after three seconds.

    Attributes
    ----------
    distance_ : float
        The private distance, if there are two groups. It may be negative by noise.
    distances_ : ndarray of shape (n_groups, n_groups)
        Private distances between all pairs. An asymmetric cost is from the earlier to the later
        group.
    standard_error_ : float or ndarray of shape (n_groups, n_groups)
        Standard deviation of the privacy noise, in units of cost (before `order`). It does not
        include sampling error. Public. NaN for other mechanisms than ``"output"``.
    noise_interval_ : tuple of float or ndarray of shape (n_groups, n_groups, 2)
        Interval that contains the distance without privacy noise, with a confidence of 95 %. It
        does not cover sampling error. NaN for other mechanisms than ``"output"``.
    groups_ : ndarray of shape (n_groups,)
        Labels of the groups.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee; None for seeded releases.
    support_ : ndarray of shape (n_cells, n_features)
        Points of the grid (``mechanism="histogram"``).
    histograms_ : ndarray of shape (n_groups, n_cells)
        Private distributions over `support_` (``mechanism="histogram"``).
    plan_ : ndarray of shape (n_cells, n_cells)
        Transport plan between the two histograms, if there are two groups
        (``mechanism="histogram"``).
    potentials_ : tuple of two ndarray
        Private dual potentials at the grid points, if there are two groups
        (``mechanism="histogram"``).
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X has names.

    See Also
    --------
    private_ot_cost : The distance between two samples, as a function.
    PrivacyLedger : Records and limits all releases.
    skdpot.published.NoisySinkhornDistance : The published noisy Sinkhorn iterations.

    Notes
    -----
    *Sensitivity.* A record changes the cost between groups of n and m records by at most the range
    of the cost divided by ``min(n, m)``, exact or entropic (:ref:`proof-transport-sensitivity`).
    With k groups, a record affects k - 1 costs, so the noise is larger by this factor.

    *Tables.* Within a column, the distance between two values is in [0, 1]. For numbers it is
    their difference divided by the width of the bounds, and for levels the difference of their
    ranks divided by the largest rank. Different categories have distance 1. A missing value has
    distance 1 from all other values, and 0 from another missing value. ``"cityblock"`` is the mean
    of these distances over columns (Gower's distance), ``"sqeuclidean"`` the mean of their
    squares, and ``"euclidean"`` the root of that mean. All costs are in [0, 1]. All except
    ``"sqeuclidean"`` are metrics (:ref:`proof <proof-table-costs>`).

    *Several fits compose,* so use a ledger. Costs are computed up to a thousandth of their
    sensitivity, with a certificate, and the noise is larger by the same fraction.

    *Time.* The computation always ends, but its running time depends on the data. If an observer
    can measure it, this is a side channel. Memory grows with the number of records for ``reg >
    0``. For ``reg=0`` it grows with the product of the group sizes, unless there is one feature.

    References
    ----------
    J. Wang and Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Allerton 2024: Lemma 5 and
    Theorem 5 are what became of ``"output"``.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import PrivateSinkhornDistance
    >>> rng = np.random.default_rng(0)
    >>> ages = np.concatenate([rng.normal(40, 10, 1500), rng.normal(45, 10, 1000)])[:, None]
    >>> cohort = np.repeat(["2024", "2025"], [1500, 1000])
    >>> drift = PrivateSinkhornDistance(1.0, bounds=(18, 90), metric="euclidean", random_state=0)
    >>> round(drift.fit(ages, cohort).distance_, 2), round(drift.standard_error_, 3)
    (4.89, 0.102)

    A table is declared by a schema:

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": ages[:, 0], "work": np.where(ages[:, 0] > 60, None, "office")})
    >>> schema = {"age": (18, 90), "work": {"categories": ["office", "home"], "missing": True}}
    >>> drift = PrivateSinkhornDistance(1.0, schema=schema, metric="cityblock", random_state=0)
    >>> round(drift.fit(table, cohort).distance_, 2), round(drift.standard_error_, 4)
    (0.06, 0.0014)
    """

    _parameter_constraints: dict = {
        **BaseTransportDistance._parameter_constraints,
        "schema": [dict, None],
        "labels": [StrOptions({"public", "private"})],
        "min_group_size": [Interval(Integral, 1, None, closed="left"), "array-like", None],
        "reg": [Interval(Real, 0, None, closed="left")],
        "divergence": [StrOptions({"ot", "sinkhorn"})],
        "mechanism": [StrOptions({"output", "histogram"})],
    }
    _instead = _INSTEAD

    def __init__(
        self,
        epsilon=1.0,
        delta=0.0,
        *,
        bounds=None,
        schema=None,
        groups=None,
        labels="public",
        min_group_size=None,
        metric="sqeuclidean",
        cost_range=None,
        reg=0.0,
        divergence="ot",
        mechanism="output",
        order=None,
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.schema = schema
        self.groups = groups
        self.labels = labels
        self.min_group_size = min_group_size
        self.metric = metric
        self.cost_range = cost_range
        self.reg = reg
        self.divergence = divergence
        self.mechanism = mechanism
        self.order = order
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _for_parts(self) -> Any:
        """Return what owners agree on: histograms of declared groups, whose labels are private."""
        if self.mechanism != "histogram" or self.groups is None:
            raise ValueError(
                "parts of a distance are counts of declared groups: set mechanism='histogram' and "
                "groups."
            )
        return clone(self).set_params(labels="private", min_group_size=1)

    def _plan_of_parts(self, n_records, columns, n_parts) -> ReleasePlan:
        """Return the plan of the release of each owner, or raise."""
        nothing, space, groups = self._declared(n_records, columns)
        return self._plan((nothing, space, replace(groups, n_parts=n_parts)))

    def _private_sums(self, plan, data) -> np.ndarray:
        """Return an owner's counts without noise: private."""
        X, _, groups = data
        return plan.release.values(X, groups.codes)

    def _plan_release(self, space, groups):
        settings = self._cost_settings(space, self.reg, self.divergence)
        if settings.divergence == "sinkhorn" and settings.reg == 0:
            raise ValueError(
                "divergence='sinkhorn' removes the bias of regularisation, and needs reg > 0. "
                "Use divergence='ot' for reg=0."
            )
        is_plain = self.metric in ("euclidean", "cityblock", "chebyshev")
        is_biased = is_plain and settings.reg > 0.005 * settings.cost_range
        if settings.divergence == "sinkhorn" and is_biased:
            warn_user(
                f"divergence='sinkhorn' of metric={self.metric!r} is far too small at such a reg: "
                "use reg=0 and divergence='ot', or metric='sqeuclidean'."
            )
        if settings.divergence == "ot" and settings.reg > settings.cost_range:
            raise ValueError(
                f"reg={settings.reg:g} is above the range of the costs, {settings.cost_range:g}, "
                "so that plans would hardly depend on them: use a smaller one."
            )
        if self.mechanism == "output":
            # The filler is public, and within the bounds of every cost.
            release = CostsRelease(settings, groups, space.middle, self.epsilon, self.delta)
            settings.check_tolerance(release.tolerances.min(), groups.max_pair())
            if isinstance(space, BoxSpace) and isinstance(self.metric, str):
                most = (space.high - space.low) ** (2 if self.metric == "sqeuclidean" else 1)
                hidden = most < release.standard_errors.min()
                if hidden.any() and not hidden.all():
                    warn_user(
                        f"noise hides the features {np.flatnonzero(hidden).tolist()}, whose bounds "
                        "are narrower than others': scale all to one width, as (X - low) / width."
                    )
            return release
        if self.schema is not None:
            raise ValueError(
                "mechanism='histogram' is for numbers within bounds, and a table with a schema has "
                "no grid. Use mechanism='output'; or DPSinkhornGenerator(schema=...), which makes "
                "records like those of a table."
            )
        on_grid = GridRelease(settings, groups, (space.low, space.high), self.epsilon, self.delta)
        settings.check_tolerance(1e-3 * settings.cost_range, 2 * on_grid.support.shape[:1])
        return on_grid


def private_ot_cost(X, Y, epsilon=1.0, delta=0.0, **options) -> float:
    """Return the private transport cost between two samples.

    Parameters
    ----------
    X, Y : array-like of shape (n_x, n_features), (n_y, n_features)
        Private samples. Their sizes are public unless ``labels="private"`` is given. With
        ``schema=`` they are tables.
    epsilon : float, default=1.0
        Privacy parameter.
    delta : float, default=0.0
        With 0 the noise is Laplace noise, above it is Gaussian.
    **options
        Parameters of :class:`PrivateSinkhornDistance`; ``bounds=(low, high)`` or ``schema=`` is
        required.

    Returns
    -------
    float
        The private cost, or its root with ``order=``.

    Raises
    ------
    ValueError
        If an option is out of its range, or the samples have different columns.
    BudgetExceededError
        If the budget of ``ledger=`` does not allow the release.

    See Also
    --------
    PrivateSinkhornDistance : The estimator, which also gives the size of the noise.

    References
    ----------
    J. Wang and Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Allerton 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import private_ot_cost
    >>> x, y = np.random.default_rng(0).random((2, 1000, 2))
    >>> cost = private_ot_cost(x, y + 0.5, bounds=(0, 1.5), reg=0.1, random_state=0)
    >>> round(cost, 2)
    0.67
    """
    if "groups" in options:
        raise TypeError("private_ot_cost has the groups X and Y: leave out groups.")
    if np.ndim(epsilon):
        raise TypeError("X and Y are two samples, and no weights: costs are those of metric=.")
    for name, sample in {"X": X, "Y": Y}.items():
        check_type(name, sample)
    if options.get("schema") is not None:
        schema = tables.read_schema(options["schema"])
        X, Y = (_declared_values(table, schema) for table in (X, Y))
    else:
        refuse_other_order("Y", Y, names_of(X, "columns"), axis="columns")
        read = partial(
            validate_private_data, instead=_INSTEAD, as_numbers=tables.as_numbers, dtype=np.float64
        )
        X, Y = read(BaseEstimator(), X), read(BaseEstimator(), Y)
        n, m = X.shape[1], Y.shape[1]
        if n != m:
            raise ValueError(f"X has {n} features, and Y has {m}; they must agree.")
    # Sizes of samples are public here, as are labels by default.
    labels = np.repeat([0, 1], [len(X), len(Y)])
    estimator = PrivateSinkhornDistance(epsilon, delta, groups=[0, 1], **options)
    return estimator.fit(np.vstack([X, Y]), labels).distance_


def _declared_values(X: Any, schema: tables.TableSchema) -> np.ndarray:
    """Return the declared columns of a private table, in order, as an array of objects."""
    tables.read_columns(X, schema, private=True)
    table = tables.Table(X)
    declared = [column.name for column in schema.declared]
    names = declared if table.container == "array" else table.names
    columns = [table.column(names.index(name)) for name in declared]
    return tables.as_array(list(map(tables.objects, columns)))
