"""Rows moved to where no model can tell their groups apart."""

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from skdpot._base import (
    PrivateEstimator,
    count_columns,
    tells_of_charges,
    validate_private_data,
    warn_user,
)
from skdpot._conformance import (
    DRAWN_IMAGES,
    INTEGERS_OF_THE_CHECK,
    MISSING_LABELS,
    NO_GROUPS,
    PRIVATE_LABELS,
    Failures,
)
from skdpot._sklearn_compat import (
    Interval,
    StrOptions,
    fit_context,
    output_container,
    validate_parameters,
)
from skdpot.fairness._attribute import split_attribute
from skdpot.fairness._conditional import uniforms
from skdpot.fairness._declared import FitSettings, declare
from skdpot.fairness._fair_map import FairMap
from skdpot.fairness._fitting import (
    KnownGroups,
    OpenRows,
    PrivateRows,
    RowsOfOwners,
    release_of,
)
from skdpot.fairness._groups import (
    DeclaredGroups,
    FoundGroups,
    group_policy,
    reading_of_fit,
    reading_of_new,
)
from skdpot.fairness._methods import (
    ConditionalRepair,
    automatic_method,
    positions_of,
    repair_method,
)
from skdpot.fairness._row_draws import BLEND_DRAW, row_keys
from skdpot.fairness._sketched import SketchedRows, declare_table
from skdpot.fairness._space import blend
from skdpot.fairness._support import CandidateSupport, FreeSupport, Support
from skdpot.federation import BarycenterFederation, BarycenterOwner
from skdpot.privacy.charging import ReleasePlan
from skdpot.tables import (
    NOMINAL,
    NUMERIC,
    Column,
    Table,
    as_array,
    find_columns,
    labels_of,
    make_table,
    objects,
    read_codes,
    said_of_identifiers,
)
from skdpot.transport import load_compiler

# What floating-point arithmetic would warn of, or raise, may be due to private values.
_SILENT = np.errstate(all="ignore")


class FairBarycenterPreprocessor(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    r"""Move the rows of all groups to one distribution, by optimal transport.

    If groups are distributed alike, no model can tell them apart, however flexible it is. There are
    two ways to get there. The *conditional* method, for wide and mixed tables, takes one column
    after the other: given the columns before it, every value moves to the mean of the groups'
    values of its rank. A *support*, for few columns of numbers, moves whole rows to points of the
    Wasserstein barycenter q, which has the smallest :math:`\sum_s \lambda_s W_2^2(Q_s, q)`, where
    Q_s is the distribution of group s: rows are moved least. Both work for rows that were not seen
    in fit, up to the error of learning from samples.

    **Without epsilon nothing is private:** what is fitted depends on single rows. With epsilon, fit
    is a release: everything that is fitted is a function of noisy histograms or moments of the
    groups, or of the noisy sketch of the table, charged to the ledger. What it gives is a private
    *map*: rows that are sent through it are as sensitive as before, and a model that is trained
    with them is not private by itself.

    Parameters
    ----------
    sensitive_features : str, int, or list of these, default=None
        The columns of X that hold the sensitive attribute, by names for data frames of pandas or
        polars, or by positions; they are dropped. The groups of several columns are the
        intersections. With None the attribute is passed beside X, to `fit` and `transform`.
    method : {"auto", "support", "conditional"} or object, default="auto"
        How groups are moved. ``"support"`` couples whole rows with the support of the barycenter,
        as :class:`~skdpot.fairness.FreeSupport` does, or, given as an object,
        :class:`~skdpot.fairness.CandidateSupport`. ``"conditional"`` moves one column after the
        other, given those before it: :class:`~skdpot.fairness.ConditionalRepair`. ``"auto"`` is a
        support for at most three columns, all of numbers; conditional otherwise. With epsilon it is
        conditional for more than three columns of any kind if `delta` is above 0 and rows times
        epsilon are at least 25 times groups times columns, and never with a `federation`.
        A search over parameters, such as ``method__max_rows``, needs the object: a word has none.
    weights : {"proportional", "uniform"}, dict or array-like, default="proportional"
        Weights of the groups in the barycenter: by size, by which rows are moved least; equal; or
        one for each group, by label or in the order of ``groups_``. Their sum is made 1.
    repair_level : float, default=1.0
        How much of the way rows go: 0 leaves them as they are, 1 moves them to the barycenter. It
        is used by `transform`.
    interpolation : {"geodesic", "mixture"}, default="geodesic"
        What is done in between. ``"geodesic"`` moves every row a part of the way: numbers are
        interpolated, levels too and rounded, and of a row's categories either all are changed, with
        probability `repair_level`, or none. ``"mixture"`` moves a row all the way with that
        probability, and else not at all. On discrete features **only the mixture leaks less the
        higher the level is**: interpolated numbers are others for every group, and flexible models
        find a group by them, more easily than without any repair.
    categorical_features : None, "from_dtype", array-like or dict, default=None
        Which columns are categorical: names, positions or a mask. None and ``"from_dtype"`` take
        the types of a data frame: text, booleans, objects and categories, ordinal if they are
        ordered; arrays have none. With epsilon they take the columns that the dict `categories`
        names instead, since one value may change a column's type. A dict says of columns whether
        they are ``"ordinal"`` or ``"nominal"``, and all others are as with None. Both leave as
        valid categories; in the distances of a support nominal columns are scaled one-hot vectors,
        and ordinal ones ranks. Text that is ordinal needs its order: `categories`, or ordered
        categories.
    missing : {"error", "category"}, default="error"
        Whether missing values are refused, or are treated as a category. Those of numbers and
        levels need the conditional method for that. With epsilon nothing of labels is refused, and
        None is a category if it is among the declared `categories`.
    groups : array-like, FoundGroups or DeclaredGroups, default=None
        All groups: labels, or tuples of labels for several attributes; or a
        :class:`~skdpot.fairness.DeclaredGroups`, which says, too, what becomes of new rows of other
        groups. Required with epsilon, where rows of other groups count nowhere. Without, None finds
        groups in the rows, and a :class:`~skdpot.fairness.FoundGroups` says what becomes of small
        ones.
    conditional_on : str, int, or list of these, default=None
        Columns, by name or position, that may differ between groups for good reasons. They are left
        as they are, and groups are made alike among rows that agree in them (conditional
        demographic parity). It needs the conditional method.
    epsilon : float, default=None
        Privacy parameter of a fit; None is a fit without privacy.
    delta : float, default=None
        With None or 0 noise is Laplace noise, above it is Gaussian noise, which the conditional
        method needs.
    bounds : tuple of (float or array-like, float or array-like) or dict, default=None
        Lower and upper bounds, each a number or one for every numeric column that is kept, in
        order; or a dict of ``(low, high)`` by name or position, as ``{"income": (8, 13)}``, where
        ``range(low, high + 1)`` declares integers, which a private conditional fit keeps.
        Required with epsilon, of all numeric columns; values beyond are clipped. Without epsilon,
        they only clip, and a dict clips the columns that it names.
    categories : dict or list, default=None
        The labels of categorical columns, in order for ordinal ones: by name or position, or a list
        for the categorical columns in order. Required with epsilon; a row with another label is
        treated as one without, and counts nowhere with the conditional method. Without epsilon,
        labels are found in the data by default.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        What a fit with epsilon is charged to.
    federation : BarycenterFederation, default=None
        Owners of rows, who release them together: `fit` is then given a table without rows, which
        tells the columns, and `epsilon` is what a release costs each owner. See `as_owner`.
    n_jobs : int, default=None
        Groups, or parts of the rows, worked on in parallel; the result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Draws rows, starts and the images of rows. With an integer a row has the same image in
        whatever table it is; of equal rows in a table the first has. With epsilon it seeds the
        noise, too, which is then not private; with a
        federation it does not, as owners draw theirs: `as_owner` has a seed of its own.
    verbose : int, default=0
        Above 0 a progress bar shows the rounds of the method that finds the support, or the columns
        that the conditional method has taken: each once, or twice.

    Attributes
    ----------
    support_ : ndarray of shape (n_support, n_columns)
        The points of the barycenter: valid rows. This and the next four are those of a support.
    objective_ : float
        Weighted sum of the groups' costs of transport to the support, in the units of scaled
        columns. With epsilon, of the groups as they were released.
    lower_bound_ : float
        No barycenter has a smaller one; among candidates, no choice of as many of them.
    couplings_ : list of csr_array of shape (n_points_s, n_support)
        How the mass of each group's different points is moved. With epsilon, of released points.
    n_iter_ : int
        Rounds of the method that found the support.
    groups_ : ndarray of shape (n_groups,), dtype=object
        Labels of the groups: scalars, or tuples where there are several attributes.
    group_weights_ : ndarray of shape (n_groups,)
        Their weights in the barycenter.
    certificate_ : FairnessCertificate or None
        What rows that were held out certify of a full repair, with confidence 95 %: upper bounds of
        how well classifiers tell groups apart in new rows, ``certificate_.group_auc``, and of
        differences of rates, ``parity_gap`` and ``tree_gap``; ``print(certificate_)`` says for
        which models. None with epsilon, with `conditional_on`, for supports, for small groups, and
        where the method holds out nothing.
    privacy_guarantee_ : PrivacyGuarantee or None
        What a fit with epsilon guarantees; None without, or with a seed.
    n_features_in_ : int
        Number of columns seen by `fit`, those of the attribute included.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns seen by `fit`, if X has any.

    See Also
    --------
    FairBarycenterRegressor : Makes predictions fair, which costs less accuracy.
    skdpot.fairness.metrics : How different groups are treated.

    Notes
    -----
    *What is guaranteed is about the distribution:* after a full repair the distribution of rows is
    the same in all groups, up to the error of learning it from samples (demographic parity, for all
    models at once). It is not equal error rates, and says nothing about single rows: see the user
    guide.

    *The conditional method* takes the columns in their order, after those of `conditional_on`.
    Numbers stay in their range, and columns with few values keep to them. If no classifier tells
    the groups of held-out rows apart, nothing is moved (``tol``).

    *A support* sends new rows to its points. How many of a group's go to each is known from the fit
    as precisely as the group's rows allow: more rows for each point are fairer, more points are
    nearer to the data.

    *Randomness.* Equal rows may get different images, since values that many rows share are spread,
    and so may a row in different calls, unless `random_state` is an integer. ``fit_transform`` is
    ``fit`` and then ``transform``.

    *With epsilon*, two data sets are neighbours if one row has other values, in another group,
    perhaps. Counts of groups and cells together change by 2 in the l1 and sqrt(2) in the l2 norm;
    those of moments of clipped rows: :ref:`proof-moments`; those of the sketch that a conditional
    fit draws its rows from: :ref:`proof <private-tables>`. Only noisy group sizes are used. The
    number of rows is public; that all values are numbers is, too, as others raise.

    *Approximations.* Of large tables a sample is fitted: see ``max_rows`` of the methods. Free
    supports are local optima, and their categories and levels are rounded; ``objective_`` is that
    of the support as it is, with optimal couplings. Columns that are moved in turn are not moved
    least together.

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

    _parameter_constraints = {
        "sensitive_features": [str, Integral, "array-like", None],
        "method": [
            StrOptions({"auto", "support", "conditional"}),
            FreeSupport, CandidateSupport, ConditionalRepair,
        ],
        "weights": [StrOptions({"proportional", "uniform"}), dict, "array-like"],
        "repair_level": [Interval(Real, 0, 1, closed="both")],
        "interpolation": [StrOptions({"geodesic", "mixture"})],
        "categorical_features": [StrOptions({"from_dtype"}), "array-like", dict, None],
        "missing": [StrOptions({"error", "category"})],
        "groups": ["array-like", FoundGroups, DeclaredGroups, None],
        "conditional_on": [str, Integral, "array-like", None],
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="left"), None],
        "bounds": "no_validation",
        "categories": [dict, "array-like", list, None],
        "ledger": "no_validation",
        "federation": [BarycenterFederation, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }  # fmt: skip

    _fitted: FairMap

    # What the attribute's routing is unless a user says otherwise.
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
        epsilon=None,
        delta=None,
        bounds=None,
        categories=None,
        ledger=None,
        federation=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
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
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.categories = categories
        self.ledger = ledger
        self.federation = federation
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @tells_of_charges
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, sensitive_features=None) -> Self:
        """Find the barycenter, and the couplings of the groups with it; a release with epsilon.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows; with a federation none of them, as in ``X[:0]``.
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
            or no numbers, a parameter does not match the data, or with epsilon a declaration is
            missing; nothing is charged then. Whatever raises, an earlier fit is kept.
        BudgetExceededError
            If the ledger's budget does not allow the release.
        FederationError
            If owners do not answer, or did not agree to this release.
        """
        return self._fit(X, sensitive_features)

    def as_owner(
        self,
        name,
        X,
        *,
        sensitive_features=None,
        noise="own",
        n_honest=None,
        secure=False,
        state=None,
        random_state=None,
        key=None,
        owners=None,
        coordinator_key=None,
    ):
        """Make the owner of some rows, for a federation that fits this preprocessor.

        Owners and coordinator have preprocessors with the same parameters; `ledger` is the owner's
        own, and charged when the coordinator asks. This object is left as it is.

        Parameters
        ----------
        name : str
            As the coordinator calls the owner.
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            The owner's rows. They stay here; how many they are is told.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.
        noise : {"own", "shared"}, default="own"
            Whether the owner adds all the noise that its rows need, or a part of it.
        n_honest : int, default=None
            With shared noise, how many of the owners whose parts are summed are honest, at least.
        secure : bool or SecureAggregation, default=False
            Whether the owner insists on secure aggregation, which with shared noise it does. With
            shared noise and a coordinator that c owners may collude with, insist on
            ``SecureAggregation(threshold=n_honest + c)``: otherwise sums of `n_honest` owners are
            answered, and these may be among them.
        state : str or Path, default=None
            A file that the owner remembers its answers in, as private as the rows: see
            :class:`BarycenterOwner <skdpot.federation.BarycenterOwner>`.
        random_state : int, RandomState instance or None, default=None
            Where the noise comes from. With anything but None it is reproducible, and not private.
        key : SigningKey, default=None
            What the owner signs its answers with.
        owners : mapping of str to str, default=None
            Public keys of the other owners, by their names: required for shared noise.
        coordinator_key : str, default=None
            Public key of the coordinator, if it must have signed what it asks.

        Returns
        -------
        BarycenterOwner
            What answers the coordinator.

        Raises
        ------
        ValueError
            If `epsilon` is None or a declaration is missing, or for what `fit` raises.
        """
        validate_parameters(self)
        self._check_together()
        method = repair_method(self.method, "support", federated=True)
        alone = clone(self).set_params(federation=None, method=method)
        rows = alone._validate(X, sensitive_features)
        if not len(rows.units):
            raise ValueError("an owner has rows, and X has none: a minimum of 1 is required.")
        return BarycenterOwner(
            name,
            rows.units,
            rows.codes,
            release=release_of(rows.settings, rows.declared, noise, n_honest),
            secure=secure,
            ledger=self.ledger,
            state=state,
            random_state=random_state,
            key=key,
            owners=owners,
            coordinator_key=coordinator_key,
        )

    @tells_of_charges
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
            For what `fit` and `transform` raise.
        BudgetExceededError
            If the ledger's budget does not allow the release.
        """
        fitted = self.fit(X, y, sensitive_features=sensitive_features)
        return fitted.transform(X, sensitive_features=sensitive_features)

    @_SILENT
    def transform(self, X, *, sensitive_features=None) -> Any:
        """Repair rows, also ones that fit did not see.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows, in the columns of fit.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        {ndarray, DataFrame} of shape (n_samples, n_columns)
            Repaired rows, without the columns of the attribute: numbers, or objects where there are
            categories; a data frame with the types of X after ``set_output``. As private as X, with
            epsilon, too.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If the attribute is given twice or not at all, columns are others than those of fit,
            values are missing or no numbers, or rows are in unknown groups, which
            the policy of `groups` refuses.
        """
        check_is_fitted(self, "groups_")
        validate_parameters(self)
        fitted = self._fitted
        method = repair_method(self.method, fitted.transport.method)
        policy = group_policy(self.groups, may_be_unknown=True)
        reading = reading_of_new(policy, fitted.groups)
        if method.unaware or policy.unknown == "posterior":
            reading |= {"may_miss": True, "may_lack": True}
        table, labels, _ = self._read(X, sensitive_features, reset=False, **reading)
        codes = read_codes(table, fitted.columns, self._missing(method))
        if method.unaware:
            labels = np.full(len(labels), fitted.groups.names[0])
        groups = fitted.groups.encode(labels, policy.unknown, quoted=self.epsilon is None)
        values = self._moved(fitted, method, table, codes, groups)
        container = output_container("transform", self)
        if container == "default":
            return as_array(values)
        dtypes = [
            table.dtype(column.position) if column.dtype is None else column.dtype
            for column in fitted.columns
        ]
        return make_table(container, self.get_feature_names_out(), values, dtypes, table.index)

    @_SILENT
    def repair(self, X, y, *, sensitive_features=None):
        """Repair rows together with their labels, for training: the paper's procedure.

        Groups then agree in the joint distribution of rows and labels. It is fitted to X and y, and
        leaves this object as it is: labels of new rows, which `transform` repairs, are not known.
        **Nothing of it is private.**

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels: numbers, or classes, as which scikit-learn takes whole numbers, too.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        X_repaired : ndarray of shape (n_samples, n_columns)
            Repaired rows.
        y_repaired : ndarray of shape (n_samples,)
            Labels that go with them.

        Raises
        ------
        ValueError
            If y is missing, or `epsilon` or `candidates` are set, or for what `fit` raises.
        """
        validate_parameters(self)
        if self.epsilon is not None or getattr(self.method, "candidates", None) is not None:
            raise ValueError(
                "repair moves rows with their labels, for which neither bounds nor candidates are "
                "declared: it works without epsilon and without candidates."
            )
        if y is None:
            raise ValueError("repair needs y: the labels that are to be repaired with the rows.")
        # What a copy learns of the columns of X does not concern this object.
        rows = clone(self)._validate(X, sensitive_features)
        table = Table(X)
        check_consistent_length(table.X, y)
        y = column_or_1d(y, warn=True)
        target, numbers = _target_column(y)
        joint = np.column_stack([rows.codes, numbers])
        known = OpenRows(rows.settings, [*rows.columns, target], joint, rows.labels).run()
        warn_user(rows.settings.doubts)
        method = rows.settings.method
        values = self._moved(
            known.fair_map(certified=False), method, table, joint, known.groups.codes, y
        )
        return as_array(values[:-1]), values[-1].astype(y.dtype)

    def fit_resample(self, X, y, *, sensitive_features=None):
        """Do what `repair` does, under the name that imbalanced-learn has for it.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        X_repaired : ndarray of shape (n_samples, n_columns)
            Repaired rows.
        y_repaired : ndarray of shape (n_samples,)
            Labels that go with them.

        Raises
        ------
        ValueError
            For what `repair` raises.
        """
        return self.repair(X, y, sensitive_features=sensitive_features)

    def get_feature_names_out(self, input_features=None):
        """Return the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns of X, which must be those of fit if it had names.

        Returns
        -------
        ndarray of str
            Those that do not hold the attribute.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If `input_features` are others than those of fit.
        """
        check_is_fitted(self, "groups_")
        names = super().get_feature_names_out(input_features)
        return names[[column.position for column in self._fitted.columns]]

    def _failing_checks(self) -> Failures:
        takes_missing = group_policy(self.groups).unknown != "error"
        of_missing: Failures = MISSING_LABELS if takes_missing else {}
        of_labels = of_missing if self.epsilon is None else PRIVATE_LABELS
        return {**DRAWN_IMAGES, **INTEGERS_OF_THE_CHECK, **of_labels}

    def _undeclared(self) -> str | None:
        return NO_GROUPS if self.sensitive_features is None or self.groups is None else None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _missing(self, method: Support | ConditionalRepair) -> str:
        """Return the policy for missing values; private ones may not raise, and are none."""
        if self.epsilon is not None:
            return "none"
        keeps = self.missing == "category" and isinstance(method, ConditionalRepair)
        return "kept" if keeps else self.missing

    def _check_together(self) -> None:
        """Raise unless there is something that owners may release."""
        if self.epsilon is None:
            raise ValueError(
                "a federation fits to what its owners release: set epsilon, bounds and groups. "
                "Messages of other algorithms are not private; BarycenterCoordinator has them."
            )

    def _settings(self, columns: list[Column], n_rows: int) -> FitSettings:
        """Return what a fit is asked for, or raise where it does not go together."""
        # Raises where n_jobs is nothing that joblib understands, before a budget is charged.
        effective_n_jobs(self.n_jobs)
        load_compiler()
        private = self.epsilon is not None
        if not private and self.delta is not None:
            raise ValueError("delta is for fits with epsilon.")
        if private and self.missing != "error":
            raise ValueError("missing='category' is for fits without epsilon.")
        groups = group_policy(self.groups, may_be_unknown=not private)
        federated = self.federation is not None
        automatic = automatic_method(columns, n_rows, groups, self.epsilon, self.delta)
        method = repair_method(
            self.method, "support" if federated else automatic, federated=federated
        )
        method._check(self.epsilon, self.delta)
        fixed = positions_of(self.conditional_on, columns)
        if fixed and not isinstance(method, ConditionalRepair):
            raise ValueError("conditional_on needs method='conditional'.")
        return FitSettings(
            type(self).__name__,
            self.weights,
            method,
            fixed,
            groups,
            self.epsilon,
            float(self.delta or 0.0),
            self.bounds,
            self.n_jobs,
            self.random_state,
            self.verbose,
            said_of_identifiers(columns, n_rows),
        )

    def _validate(self, X, sensitive_features) -> Any:
        """Return the rows of a fit in the form that they are released from."""
        if self.federation is not None:
            self._check_together()
            if self.ledger is not None:
                raise ValueError(
                    "with a federation owners charge their own ledgers, which as_owner is given; "
                    "the one that fits has none."
                )
            if X is None or len(Table(X)):
                raise ValueError(
                    "with a federation rows stay with their owners: give fit a table with the "
                    "columns and without rows, such as X[:0]. In a pipeline, use the fitted "
                    "preprocessor: sklearn.frozen.FrozenEstimator(fitted)."
                )
            if self.sensitive_features is None and sensitive_features is None:
                sensitive_features = np.empty(0, dtype=object)
        policy = group_policy(self.groups, may_be_unknown=True)
        reading = reading_of_fit(policy, private=self.epsilon is not None)
        table, labels, kept = self._read(X, sensitive_features, reset=True, **reading)
        return self._rows(table, labels, kept, len(table))

    def _declared(self, n_records: int, columns: Any) -> Any:
        """Return rows of which nothing is known but their columns."""
        table = columns
        if not hasattr(columns, "shape"):
            table = np.empty((0, count_columns(columns)))
        elif len(columns):
            raise ValueError("columns must be a table without rows, such as X[:0].")
        labels = np.empty(0, dtype=object)
        beside = labels if self.sensitive_features is None else None
        read = self._read(table, beside, reset=True, fewest=0)
        return self._rows(*read, n_records)

    def _rows(self, table: Table, labels: np.ndarray, kept: np.ndarray, n_rows: int) -> Any:
        """Return rows in the form that they are released from, or raise."""
        columns = find_columns(
            table,
            kept,
            categorical_features=self.categorical_features,
            categories=self.categories,
            missing="kept" if self.missing == "category" else self.missing,
            private=self.epsilon is not None,
        )
        settings = self._settings(columns, n_rows)
        if self.epsilon is None:
            codes = read_codes(table, columns, self._missing(settings.method))
            return OpenRows(settings, columns, codes, labels)
        if isinstance(settings.method, ConditionalRepair):
            of_table = declare_table(settings, columns)
            return SketchedRows(settings, of_table, of_table.units(table, labels), n_rows)
        declared = declare(settings, columns)
        if self.federation is not None:
            return RowsOfOwners(settings, declared, self.federation)
        codes = declared.groups.find(labels)
        return PrivateRows(settings, declared, declared.units(table), codes, n_rows)

    def _plan(self, data) -> ReleasePlan:
        return replace(data.plan(), doubts=data.settings.doubts)

    def _run(self, plan, data) -> KnownGroups:
        return data.run(plan)

    def _keep(self, plan, released) -> None:
        fitted: FairMap = released.fair_map()
        if hasattr(self, "_fitted"):
            for name in self._fitted.transport.attributes():
                delattr(self, name)
        self._fitted = fitted
        self.groups_, self.group_weights_ = fitted.groups.names, fitted.weights
        self.certificate_ = fitted.certificate
        for name, value in fitted.transport.attributes().items():
            setattr(self, name, value)
        if len(self.groups_) < 2:
            warn_user("all rows are in one group, so that there is nothing to be repaired.")

    def _read(
        self, X, sensitive_features, reset, fewest=1, **reading
    ) -> tuple[Table, np.ndarray, np.ndarray]:
        """Return rows as a table, the label of each, and which columns are no attribute."""
        table = Table(X)
        if table.container != "array":
            validate_data(self, X, skip_check_array=True, reset=reset)
        else:
            # The one who fits with a federation has columns, and no rows.
            least = 0 if reset and self.federation is not None else fewest
            options: dict[str, Any] = {
                "dtype": None,
                "ensure_all_finite": False,
                "ensure_min_samples": least,
            }
            table.X = validate_private_data(self, table.X, reset=reset, **options)
        labels, kept = split_attribute(
            table,
            self.sensitive_features,
            sensitive_features,
            estimator_name=type(self).__name__,
            private=self.epsilon is not None,
            **reading,
        )
        if not len(kept):
            raise ValueError(
                f"X has {table.X.shape[1]} feature(s), and none is left besides the sensitive "
                "attribute: a minimum of 1 is required."
            )
        return table, labels, kept

    def _moved(
        self, fitted: FairMap, method, table: Table, codes, groups, y=None
    ) -> list[np.ndarray]:
        """Return rows on their way to their images, as columns of what users know."""
        seed = check_random_state(self.random_state).randint(2**63 - 1, dtype=np.int64)
        keys = row_keys(seed, codes, groups)
        images = fitted.images(codes, groups, keys, method, self.n_jobs)
        own = [self._own_values(method, table, column, y) for column in fitted.columns]
        moved, level, drawn = groups != -1, float(self.repair_level), uniforms(keys, BLEND_DRAW)
        if self.interpolation == "mixture":
            moved, level = moved & (drawn < level), 1.0
            images = np.where(moved[:, None], images, codes)
        return blend(fitted.columns, own, codes, images, moved, drawn, level)

    def _own_values(self, method, table: Table, column: Column, y) -> np.ndarray | None:
        """Return the labels of rows themselves, for those that keep them; None for numbers."""
        if column.kind == NUMERIC:
            return None
        if column.position is None:
            return objects(y)
        return labels_of(table, column, self._missing(method))


def _target_column(y):
    """Return what is in y, and y as codes."""
    kind = type_of_target(y, input_name="y")
    if kind.startswith("continuous"):
        return Column("y", NUMERIC), y.astype(np.float64)
    labels, codes = np.unique(y, return_inverse=True)
    return Column("y", NOMINAL, values=tuple(labels.tolist())), codes
