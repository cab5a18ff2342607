"""A repair that moves rows, so that no model can distinguish their groups.

doc/theory/releases.csv has the sensitivity, noise and proof of each release in one row.
"""

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from skdpot import tables
from skdpot._base import PrivateEstimator, count_columns, validate_private_data, warn_user
from skdpot._sklearn_compat import StrOptions, fit_context, output_container, validate_parameters
from skdpot.fairness import _repair
from skdpot.fairness._conditional import ConditionalRepair
from skdpot.fairness._groups import FAIR_CONSTRAINTS, group_policy, split_attribute
from skdpot.fairness._supports import BLEND_DRAW, FreeSupport, SupportMap, row_keys, uniforms
from skdpot.privacy.charging import ReleasePlan, useless_releases_are_allowed
from skdpot.privacy.checks import refuse_derived, refuse_other_rows


class FairBarycenterPreprocessor(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    r"""Move the rows of all groups to one distribution, by optimal transport.

    If all groups have the same distribution, no model can predict the group, however flexible it
    is. There are two methods. The *conditional* method, for wide and mixed tables, repairs one
    column after the other: given the columns before it, every value moves to the mean of the
    groups' values at its rank. A *support*, for few numeric columns, moves whole rows to points of
    the Wasserstein barycenter q. It minimises :math:`\sum_s \lambda_s W_2^2(Q_s, q)`, where Q_s is
    the distribution of group s, so rows are moved as little as possible. Both methods also repair
    rows that were not seen in fit, up to sampling error.

    **What is protected.** Without epsilon nothing: the fitted attributes depend on single rows.
    With epsilon, every record of one call of :meth:`fit`, with its values and its group: it may be
    replaced by any other. Such a fit is a release, charged to the ledger. All fitted attributes are
    functions of noisy histograms of the groups, or of a noisy sketch of the table. The
    number of rows, the names and types of columns, the time of the fit and all declarations are
    public. The result is a private *map*. Rows that you transform with it are as sensitive as
    before, and a model trained on them is not private.

    Parameters
    ----------
    sensitive_features : str, int, or list of these, default=None
        The columns of X with the sensitive attribute: names, for data frames of pandas or polars,
        or positions. They are dropped. Several columns define groups by their intersections. With
        None, pass the attribute to `fit` and `transform`.
    method : {"auto", "support", "conditional"} or object, default="auto"
        How rows are moved. ``"support"`` couples whole rows with the support of the barycenter; it
        stands for :class:`~skdpot.fairness.FreeSupport`. ``"conditional"`` moves one column after
        the other, given the columns before it; it stands for
        :class:`~skdpot.fairness.ConditionalRepair`. ``"auto"`` is a support for at most
        three columns that are all numeric, and conditional otherwise. With epsilon, ``"auto"`` is
        conditional if `delta` is above 0 and there are more than three columns of any type, or a
        histogram of them would have more than 4096 cells, or too much noise for small groups. To
        search over parameters such as ``method__max_rows``, pass an object, not a name.
    weights : {"proportional", "uniform"}, dict or array-like, default="proportional"
        Weights of the groups in the barycenter: proportional to size, which moves rows least;
        equal; or one for each group, by label or in the order of ``groups_``. They are scaled to
        sum to 1.
    repair_level : float, default=1.0
        How far `transform` moves rows: 0 does not move them, 1 moves them to the barycenter.
    interpolation : {"geodesic", "mixture"}, default="geodesic"
        Meaning of levels between 0 and 1. ``"geodesic"`` moves every row a part of the way.
        Numbers are interpolated; levels are interpolated and rounded. With probability
        `repair_level` all categories of a row are changed, otherwise none. ``"mixture"`` moves a
        row all the way with that probability, otherwise not at all. On discrete features, **only
        with the mixture does a higher level always hide the group better**. Interpolated numbers
        are different in every group, so flexible models may predict the group better than without
        a repair.
    categorical_features : None, "from_dtype", array-like or dict, default=None
        Which columns are categorical: names, positions or a mask. None and ``"from_dtype"`` use
        the types of a data frame: text, booleans, objects and categories are categorical, and
        ordered categories are ordinal; arrays have no categorical columns. With epsilon they use
        the columns named in the dict `categories` instead, because a single value could change a
        column's type. A dict declares columns ``"ordinal"`` or ``"nominal"``; all others are as
        with None. Repaired values are valid categories. In the distances of a support, nominal
        columns are scaled one-hot vectors, and ordinal columns are ranks. Ordinal text needs an
        order, from `categories` or an ordered categorical type.
    missing : {"error", "category"}, default="error"
        Whether missing values are refused or treated as a category. For numbers and levels, the
        latter needs the conditional method. With epsilon no value is refused, and None is a
        category if it is among the declared `categories`: see Notes.
    groups : array-like, FoundGroups or DeclaredGroups, default=None
        All groups: labels, or tuples of labels for several attributes. A
        :class:`~skdpot.fairness.DeclaredGroups` also sets the policy for new rows of other groups.
        Required with epsilon; then rows of other groups are ignored, as the text "1" if the number
        1 is declared. A column of text is refused if all groups are numbers. Without epsilon, None
        finds the groups in the rows, and a :class:`~skdpot.fairness.FoundGroups` sets the policy
        for small groups.
    conditional_on : str, int, or list of these, default=None
        Columns, by name or position, that may differ between groups for good reasons. They are not
        changed. Among rows with the same values in them, the other columns get the same
        distribution in all groups (conditional demographic parity). Needs the conditional method.
    computed : dict, default=None
        Formulas of numeric columns that are functions of other numeric columns, in the language of
        `pandas.DataFrame.eval`: ``{"ratio": "loan / price"}``. Such columns are not moved, but
        computed from moved ones. None finds them without epsilon: copies, steps such as age bands,
        sums, products, ratios and other functions that hold for held-out rows. ``{}`` has none.
        A formula that more than 5 % of the rows break is warned of, without epsilon.
    epsilon : float, default=None
        Privacy parameter of a fit; None is a fit without privacy. If noise for so many rows, groups
        and columns would show the groups better than the rows do, the fit is refused before the
        charge, and the error says what helps: see `preview`.
    delta : float, default=None
        None or 0 means Laplace noise; a value above 0 means Gaussian noise, which the conditional
        method needs.
    bounds : tuple of (float or array-like, float or array-like) or dict, default=None
        Lower and upper bounds: two numbers, or two arrays with one number for every numeric column
        that is kept, in order; or a dict of ``(low, high)`` by name or position, such as
        ``{"income": (8, 13)}``. In a dict, ``range(low, high + 1)`` declares integers, and a
        conditional fit returns integers. Required with epsilon, for all numeric columns; values
        outside are clipped. Only for fits with epsilon.
    categories : dict, default=None
        The labels of categorical columns by name or position, in order for ordinal ones. Required
        with epsilon. Then an undeclared label is treated as missing, and the conditional method
        ignores its row. Without epsilon, labels are found in the data by default, and `fit` refuses
        undeclared ones.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        What a fit with epsilon is charged to.
    n_jobs : int, default=None
        Number of groups, or parts of the rows, that are processed in parallel. The result does not
        depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed for the draws of rows, starts and images. With an integer, a row has the same image in
        every table; if rows of a table are equal, the first one has this image. With epsilon it
        also seeds the noise, and then nothing is private.
    verbose : bool, default=None
        Whether to show a progress bar, over the rounds of the search for a support, or over the
        columns of a conditional repair. None shows it on a terminal after three seconds.

    Attributes
    ----------
    support_ : ndarray of shape (n_support, n_columns)
        The points of the barycenter, which are valid rows. This and the next four attributes exist
        for a support only.
    objective_ : float
        Weighted sum of the groups' transport costs to the support, in units of scaled columns.
        With epsilon, for the released groups.
    lower_bound_ : float
        A lower bound of the objective for all barycenters.
    couplings_ : list of csr_array of shape (n_points_s, n_support)
        Transport plans from each group's distinct points to the support. With epsilon, from
        released points.
    n_iter_ : int
        Number of rounds of the search for the support.
    groups_ : ndarray of shape (n_groups,), dtype=object
        Labels of the groups: scalars, or tuples for several attributes.
    group_weights_ : ndarray of shape (n_groups,)
        Their weights in the barycenter.
    computed_features_ : dict
        The columns that are computed from others, each with its formula in words.
    n_rows_changed_ : int or None
        Number of rows of the fit that a full repair changes, by more than rounding; None with
        epsilon. If it is 0, there is a warning.
    certificate_ : FairnessCertificate or None
        Upper bounds for new rows after a full repair, with confidence 95 %, computed from held-out
        rows. ``group_auc`` bounds how well classifiers predict the group, ``group_auc_before`` is
        the AUC without the repair, and ``parity_gap`` bounds the difference of rates of their
        decisions. ``print(certificate_)`` says what is not certified.
        None with epsilon, with `conditional_on`, for supports, for small groups, and if the method
        holds out no rows.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee of a fit with epsilon; None without epsilon, or with a seed.
    n_features_in_ : int
        Number of columns seen by `fit`, including those of the attribute.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns seen by `fit`, if X has any.

    See Also
    --------
    FairBarycenterRegressor : Makes predictions fair, which costs less accuracy.
    skdpot.fairness.metrics : How different groups are treated.

    Notes
    -----
    *Demographic parity.* After a full repair the distribution of rows is the same in all groups,
    up to sampling error. This is demographic parity for all models at once. It does not imply
    equal error rates, and is no statement about single rows: see the user guide.

    *The conditional method* repairs the columns in their order, after those of `conditional_on`.
    Numbers stay in their range, and columns with few values keep these values. The share of
    missing values is the mean of those of the groups. Groups that no classifier tells apart in
    held-out rows share one map. If there are no others (``tol``), or if the repair made the groups
    easier to find in held-out rows, no row is moved, and there is a warning.

    *Columns that are functions of others* are not moved, but computed from moved ones. Otherwise
    the function would fail for the rows that are moved, and show their group.

    *A support* moves new rows to its points. The share of a group that goes to each point is
    estimated from the fitted rows of the group. So more rows per point give more fairness, and
    more points keep more detail.

    *Randomness.* Equal rows may get different images, because values that many rows share are
    spread out. Unless `random_state` is an integer, a row may also get different images in
    different calls. ``fit_transform`` is ``fit`` followed by ``transform``.

    *With epsilon*, two data sets are neighbours if they differ in the values, and possibly the
    group, of one row. Counts by group and cell change by 2 in the l1 norm and by sqrt(2) in the l2
    norm. For the sketch of a conditional fit see this :ref:`proof <private-tables>`. Only noisy
    group sizes are used. No value raises an error or a warning, because that would reveal it; a map
    that moves no row warns, as a function of the release.
    Numbers are clipped to their bounds, also infinite ones, and read from text where it is a
    number. Rows with a missing number, or with another value in its place, are ignored, and so are
    rows of undeclared groups. An undeclared label is missing. Only what the types of columns show
    is refused, such as dates or text for numbers.

    *Approximations.* Large tables are fitted on a sample: see ``max_rows`` of the methods. Free
    supports are local optima, and their categories and levels are rounded; ``objective_`` is
    computed for the final support, with optimal couplings. The conditional method does not
    minimise the total movement of all columns.

    References
    ----------
    Federated Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual
    Decomposition: problems (3) and (12), Algorithm 1, and "Fairness" in section 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import FairBarycenterPreprocessor
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat(["a", "b"], 200)
    >>> X = rng.normal(size=(400, 2)) + 3 * (group == "b")[:, None]
    >>> fair = FairBarycenterPreprocessor(random_state=0)
    >>> Z = fair.fit_transform(X, sensitive_features=group)
    >>> means = Z[group == "a"].mean(axis=0), Z[group == "b"].mean(axis=0)
    >>> bool(np.allclose(*means, atol=0.2))
    True
    >>> round(fair.objective_, 2), round(fair.lower_bound_, 2)
    (1.42, 1.39)

    A table with words, and the attribute in a column:

    >>> import pandas as pd
    >>> table = pd.DataFrame(X, columns=["income", "debt"]).assign(
    ...     sex=group, job=np.where(rng.random(400) < 0.2 + 0.6 * (group == "b"), "cook", "clerk")
    ... )
    >>> fair = FairBarycenterPreprocessor("sex", random_state=0).set_output(transform="pandas")
    >>> cooks = fair.fit_transform(table)["job"] == "cook"
    >>> bool(abs(cooks[group == "a"].mean() - cooks[group == "b"].mean()) < 0.1)
    True
    """

    _parameter_constraints = FAIR_CONSTRAINTS | {
        "method": [StrOptions({"auto", "support", "conditional"}), FreeSupport, ConditionalRepair],
        "interpolation": [StrOptions({"geodesic", "mixture"})],
        "categorical_features": [StrOptions({"from_dtype"}), "array-like", dict, None],
        "missing": [StrOptions({"error", "category"})],
        "conditional_on": [str, Integral, "array-like", None],
        "computed": [dict, None],
        "categories": [dict, None],
    }

    # Default routing of the attribute.
    __metadata_request__fit = {"sensitive_features": True}
    __metadata_request__transform = {"sensitive_features": True}

    def __init__(
        self,
        sensitive_features=None,
        *,
        method="auto",
        weights="proportional",
        repair_level=1.0,
        interpolation="geodesic",
        categorical_features=None,
        missing="error",
        groups=None,
        conditional_on=None,
        computed=None,
        epsilon=None,
        delta=None,
        bounds=None,
        categories=None,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=None,
    ) -> None:
        self.sensitive_features = sensitive_features
        self.method = method
        self.weights = weights
        self.repair_level = repair_level
        self.interpolation = interpolation
        self.categorical_features = categorical_features
        self.missing = missing
        self.groups = groups
        self.conditional_on = conditional_on
        self.computed = computed
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.categories = categories
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, sensitive_features=None) -> Self:
        """Fit the repair; with epsilon, this is a release.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        self : object
            The fitted preprocessor.

        Raises
        ------
        ValueError
            If the attribute is given twice or not at all, a group is too small, values are missing
            or not numeric, or a parameter does not match the data. With epsilon no value raises,
            but a missing declaration, and types of columns that hold nothing declared. Nothing is
            charged in this case. After any error, the earlier fit is kept.
        BudgetExceededError
            If the ledger's budget does not allow the release.
        """
        return self._fit(X, sensitive_features)

    def fit_transform(self, X, y=None, *, sensitive_features=None) -> Any:
        """Fit to X and repair it.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        {ndarray, DataFrame} of shape (n_samples, n_columns)
            Repaired rows, without the columns of the attribute.

        Raises
        ------
        ValueError
            If `fit` or `transform` would raise.
        BudgetExceededError
            If the ledger's budget does not allow the release.
        """
        fitted = self.fit(X, y, sensitive_features=sensitive_features)
        return fitted.transform(X, sensitive_features=sensitive_features)

    # Floating-point warnings and errors may depend on private values.
    @np.errstate(all="ignore")
    def transform(self, X, *, sensitive_features=None) -> Any:
        """Repair rows, including new ones.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows with the columns of `fit`.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        {ndarray, DataFrame} of shape (n_samples, n_columns)
            Repaired rows, without the columns of the attribute: numbers, or objects if there are
            categories; after ``set_output``, a data frame with the types of X. They are as
            sensitive as X, also with epsilon.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If the attribute is given twice or not at all, columns differ from those of `fit`,
            values are missing or not numeric, or rows are in unknown groups that the policy of
            `groups` refuses.
        """
        check_is_fitted(self, "groups_")
        validate_parameters(self)
        fitted = self._fitted
        table, labels, _ = self._read(X, sensitive_features, fitted.groups)
        missing = self._missing(not isinstance(fitted.transport, SupportMap))
        codes = tables.read_numbers(table, fitted.every, missing)
        unknown = group_policy(self.groups).unknown
        groups = fitted.groups.encode(labels, unknown, quoted=self.epsilon is None)
        _repair.warn_of_units(fitted, codes)
        moved = self._moved(fitted, codes, groups)
        container = output_container(self).replace("default", "array")
        return _rows_as(container, table, fitted.every, codes, moved, self.get_feature_names_out())

    @np.errstate(all="ignore")
    def repair(self, X, y, *, sensitive_features=None):
        """Repair rows together with their labels, for training (the paper's procedure).

        Then all groups have the same joint distribution of rows and labels. The method fits a new
        repair to X and y and does not change this object, because the labels of new rows are not
        known. **Nothing in the result is private.**

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels: numbers or classes. As in scikit-learn, integers are classes.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        X_repaired : {ndarray, DataFrame} of shape (n_samples, n_columns)
            Repaired rows, as a data frame with the types of X if X is one.
        y_repaired : ndarray of shape (n_samples,)
            Their labels.

        Raises
        ------
        ValueError
            If y is missing, if `epsilon` is set, or for the reasons of `fit`.
        """
        validate_parameters(self)
        if self.epsilon is not None:
            raise ValueError(
                "repair moves rows with their labels, for which no bounds are declared: it works "
                "without epsilon."
            )
        if y is None:
            raise ValueError("repair needs y: the labels that are to be repaired with the rows.")
        # A clone reads the columns of X, so that this object does not change.
        refuse_other_rows(X, {"y": y})
        rows = clone(self)._validate(X, sensitive_features)
        check_consistent_length(rows.codes, y)
        # A column vector is one label for each row; more than one column is refused.
        y = tables.public_labels(y, "leave out these rows.")
        if type_of_target(y, input_name="y").startswith("continuous"):
            label, numbers = tables.Column("y", tables.NUMERIC), y.astype(np.float64)
        else:
            classes, numbers = np.unique(y, return_inverse=True)
            label = tables.Column("y", tables.NOMINAL, values=tuple(classes.tolist()))
        # The label is one more column, and gets its place in the joint distribution.
        joint = np.column_stack([rows.codes, numbers])
        every = [*rows.every, label]
        rows = replace(rows, every=every, codes=joint, certified=False)
        fitted = _repair.open_repair(self, rows)
        moved = self._moved(fitted, joint, fitted.groups.codes)
        table, names = rows.table, [column.name for column in every[:-1]]
        X_moved = _rows_as(table.container, table, every[:-1], joint[:, :-1], moved[:, :-1], names)
        y_moved = moved[:, -1]
        if label.labels is not None:
            y_moved = label.labels[y_moved.astype(np.intp)]
        return X_moved, y_moved.astype(y.dtype)

    def get_feature_names_out(self, input_features=None):
        """Return the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns of X, which must be those of fit if it had names.

        Returns
        -------
        ndarray of str
            Names of the columns without the attribute.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If `input_features` differ from those of `fit`.
        """
        check_is_fitted(self, "groups_")
        names = super().get_feature_names_out(input_features)
        return names[[column.position for column in self._fitted.every]]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _for_parts(self) -> Self:
        """Return what owners agree on: the parts of a repair are those of a support."""
        return clone(self).set_params(method=self._method(FreeSupport))

    def _plan_of_parts(self, n_records, columns, n_parts) -> ReleasePlan:
        """Return the plan of the release of each owner, or raise."""
        return self._plan(self._rows_of_parts(n_records, columns, n_parts))

    def _rows_of_parts(self, n_records, columns, n_parts) -> _repair.RepairRows:
        rows = None if self.epsilon is None else self._declared(n_records, columns)
        if rows is None or isinstance(rows.method, ConditionalRepair):
            raise ValueError(
                "parts are private releases, of a repair by a support: set epsilon, bounds and "
                "groups, and method='support'."
            )
        return replace(rows, n_parts=n_parts)

    def _private_sums(self, plan, data) -> np.ndarray:
        """Return an owner's sums without noise: private."""
        return plan.release.values(*_repair.private_points(data))

    def _keep_parts(self, plan, total, columns) -> None:
        """Fit to the sum of all parts."""
        rows = self._rows_of_parts(plan.n_records, columns, plan.release.n_parts)
        self._replace_fit(plan, _repair.map_of_counts(self, plan.release, rows, total))

    def _validate(self, X, sensitive_features) -> _repair.RepairRows:
        table, labels, kept = self._read(X, sensitive_features)
        if not len(table):
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
        return _repair.read_repair(self, table, labels, kept, len(table))

    def _declared(self, n_records: int, columns: Any) -> _repair.RepairRows:
        if not hasattr(columns, "shape"):
            # Of a number of columns no types are known, so none are refused.
            columns = np.empty((0, count_columns(columns)))
        beside = np.empty(0, dtype=object) if self.sensitive_features is None else None
        return _repair.read_repair(self, *self._read(columns, beside), n_records)

    def _read(self, X, beside, fitted=None) -> tuple[tables.Table, np.ndarray, np.ndarray]:
        """Return rows as a table, the label of each, and the positions of the other columns."""
        table = tables.Table(X if self.epsilon is None else _repair.in_cells(X))
        new = fitted is None
        if table.container != "array":
            validate_data(self, X, skip_check_array=True, reset=new)
        else:
            # Missing values are for the policy `missing`, and private values raise nothing.
            first = "X is sparse: repair the table before an encoder, or pass X.toarray()."
            options = {"dtype": None, "ensure_all_finite": False, "ensure_min_samples": 0}
            instead: dict[str, Any] = {"instead": {"Sparse data was passed": first}, "reset": new}
            table.X = validate_private_data(self, table.X, **options | instead)
        labels, kept = split_attribute(self, table, beside, fitted)
        if not len(kept):
            raise ValueError(
                f"X has {table.X.shape[1]} feature(s), and none is left besides the sensitive "
                "attribute: a minimum of 1 is required."
            )
        return table, labels, kept

    def _method(
        self, automatic: Callable[[], FreeSupport | ConditionalRepair]
    ) -> FreeSupport | ConditionalRepair:
        """Return the method of the parameter, or raise if it is wrong."""
        by_name = {"auto": automatic, "support": FreeSupport, "conditional": ConditionalRepair}
        method = by_name[self.method]() if isinstance(self.method, str) else self.method
        if self.epsilon is not None:
            refuse_derived("method", method, (FreeSupport, ConditionalRepair))
        validate_parameters(method)
        return method

    def _missing(self, is_conditional: bool) -> str:
        """Return the policy for missing values; private ones never raise, and are not missing."""
        if self.epsilon is not None:
            return "none"
        return "kept" if self.missing == "category" and is_conditional else self.missing

    def _plan(self, rows) -> ReleasePlan:
        return _repair.open_plan(self) if self.epsilon is None else _repair.plan_repair(self, rows)

    def _run(self, plan, rows) -> _repair.FairMap:
        if self.epsilon is None:
            return _repair.open_repair(self, rows)
        return _repair.private_repair(self, plan, rows)

    def _keep(self, plan, fitted: _repair.FairMap) -> None:
        # Private state: the map alone, of which all attributes are parts.
        self._fitted, every = fitted, fitted.every
        self.groups_, self.group_weights_ = fitted.groups.names, fitted.weights
        self.certificate_, self.n_rows_changed_ = fitted.certificate, fitted.n_changed
        self.computed_features_ = {every[one.position].name: one.text for one in fitted.computed}
        if isinstance(fitted.transport, SupportMap):
            self.__dict__.update(fitted.transport.attributes())
        if len(self.groups_) < 2:
            warn_user("all rows are in one group, so there is nothing to repair.")
        unmoved = self.epsilon is not None and not fitted.transport.moves
        # A function of the release: that nothing is moved tells no more of a record than the map.
        if unmoved and not useless_releases_are_allowed(self._permit):
            warn_user(
                "no row is changed: in what was released, the groups do not differ by more than "
                "its errors may explain, or a map with such errors would show them as well. More "
                "rows, a larger epsilon or fewer columns may change that. "
                "FairBarycenterRegressor(epsilon=...), which repairs predictions, needs far fewer "
                "rows."
            )

    def _moved(self, fitted: _repair.FairMap, codes: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Return the codes of rows that are moved a part of the way to their images."""
        seed = check_random_state(self.random_state).randint(2**63 - 1, dtype=np.int64)
        keys = row_keys(seed, codes)
        images = fitted.images(codes, groups, keys, self.n_jobs)
        moved, level, drawn = groups != -1, float(self.repair_level), uniforms(keys, BLEND_DRAW)
        if self.interpolation == "mixture":
            moved, level = moved & (drawn < level), 1.0
            # All of a row or nothing of it, so that the group has a mixture of two distributions.
            images = np.where(moved[:, None], images, codes)
        # In these rows all categories become those of the image.
        jumping, blended = moved & (drawn < level), codes.copy()
        for j, column in enumerate(fitted.every):
            start, end = codes[:, j], images[:, j]
            between = end if level == 1 else (1 - level) * start + level * end
            if column.kind == tables.NUMERIC:
                # Nothing is between a number and a missing value.
                jumps = np.isnan(start) != np.isnan(end)
                blended[:, j] = np.where(jumps, np.where(jumping, end, start), between)
                continue
            # Levels stop in between, and other labels jump at random.
            jumps = (start < 0) | (end < 0) | (column.kind != tables.ORDINAL)
            taken = np.where(jumps, jumping, moved & (level > 0))
            blended[taken, j] = np.where(jumps, end, np.rint(between))[taken]
        for computed in fitted.computed:
            blended[:, computed.position] = computed.updated(blended, codes)
        return blended


def _rows_as(
    container: str,
    table: tables.Table,
    columns: list[tables.Column],
    codes: np.ndarray,
    moved: np.ndarray,
    names: Any,
) -> Any:
    """Return the rows of a table with moved codes; labels and numbers have the types of the fit.

    A label stays what it is in the table where its code does, also an unknown one.
    """
    values = []
    for column, start, end in zip(columns, codes.T, moved.T, strict=True):
        if column.kind != tables.NUMERIC:
            labels, changed = table.labels(column.position).copy(), start != end
            labels[changed] = tables.objects([*column.values, None])[end[changed].astype(np.intp)]
            end = labels
        values.append(end)
    dtypes = [column.dtype or table.dtype(column.position) for column in columns]
    return tables.make_table(container, names, values, dtypes, getattr(table.X, "index", None))
