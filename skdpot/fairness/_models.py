"""Predictions that are distributed alike in all groups, at the least cost in accuracy."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import get_config
from sklearn.base import (
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    clone,
    is_classifier,
    is_clusterer,
)
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from skdpot import tables
from skdpot._base import PrivateEstimator, warn_of_grid, warn_user
from skdpot._sklearn_compat import HasMethods, Interval, StrOptions, fit_context, metadata_at
from skdpot.fairness._groups import (
    FAIR_CONSTRAINTS,
    Groups,
    group_policy,
    group_weights,
    read_groups,
    split_attribute,
)
from skdpot.fairness._predictions import (
    MOST_CELLS,
    PredictionBarycenter,
    number_of_cells,
    resolution,
    rounded,
    share_of_ties,
    shrunk_masses,
)
from skdpot.fairness._repair import in_cells, open_plan, plan_of, progress_of
from skdpot.privacy.charging import ExpectedError
from skdpot.privacy.checks import redact_errors, refuse_other_rows, result_of, silence
from skdpot.privacy.sensitivity import histogram_sensitivities
from skdpot.releases import VectorRelease


@dataclass(frozen=True, eq=False)
class PredictionRows:
    """The rows of a fit.

    Attributes
    ----------
    X : {array-like, sparse matrix, DataFrame} of shape (n_records, n_features)
        What the estimator sees; with epsilon, after the charge alone.
    labels : ndarray of shape (n_records,)
        The labels of groups; with epsilon, read after the charge alone.
    groups : Groups
        The groups; with epsilon the declared ones, without rows.
    n_records : int
        The number of rows.
    y, params : ndarray of shape (n_records,), dict
        Targets and metadata for the estimator, without epsilon.
    """

    X: Any
    labels: np.ndarray
    groups: Groups
    n_records: int
    y: Any = None
    params: Any = None


class FairModel(MetaEstimatorMixin, PrivateEstimator):
    """Base of the fair models: how the distributions of predictions are learned and moved.

    A subclass says which predictions these are, and what is made of the moved ones.
    """

    _parameter_constraints = FAIR_CONSTRAINTS | {
        "estimator": [HasMethods(["fit"]), None],
        "cv": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left"), None],
        "repair_level": [StrOptions({"auto"}), *FAIR_CONSTRAINTS["repair_level"]],
        "n_quantiles": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
        "sensitive_in_estimator": ["boolean"],
        "ties": [StrOptions({"random", "mean"})],
    }

    # What None stands for, and the method of the estimator whose results are made fair.
    _default_estimator: ClassVar[type]
    _response_method: ClassVar[str]

    # Default routing of the attribute.
    __metadata_request__fit = {"sensitive_features": True}
    __metadata_request__predict = {"sensitive_features": True}
    __metadata_request__score = {"sensitive_features": True}

    def __init__(
        self,
        estimator=None,
        *,
        sensitive_features=None,
        weights="proportional",
        repair_level="auto",
        cv="auto",
        n_quantiles="auto",
        sensitive_in_estimator=True,
        groups=None,
        epsilon=None,
        delta=None,
        bounds=None,
        ledger=None,
        ties="random",
        n_jobs=None,
        random_state=None,
        verbose=None,
    ) -> None:
        self.estimator = estimator
        self.sensitive_features = sensitive_features
        self.weights = weights
        self.repair_level = repair_level
        self.cv = cv
        self.n_quantiles = n_quantiles
        self.sensitive_in_estimator = sensitive_in_estimator
        self.groups = groups
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.ledger = ledger
        self.ties = ties
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # The nested estimator is validated, since its parameters are the user's own.
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, *, sensitive_features=None, **fit_params) -> Self:
        """Fit the estimator, and the barycenter of its predictions.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Training data, in the form that the estimator takes.
        y : array-like of shape (n_samples,)
            Targets; of a classifier, the class of every row.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.
        **fit_params : dict
            Further arguments for the fit of the estimator, such as `sample_weight`.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If the attribute is given twice or not at all, or is missing for a row, a group is too
            small, lengths differ, the estimator does not predict one finite number or probability
            for every row, or y of a classifier does not have two classes. With epsilon no value of
            a row raises, but a missing declaration, an estimator that was not trained before, on
            these columns, and types that hold nothing declared. Nothing is charged in this case.
        BudgetExceededError
            If the ledger's budget does not allow the release.

        Warns
        -----
        UserWarning
            If all rows are in one group.
        """
        params = fit_params
        if get_config()["enable_metadata_routing"]:
            if sensitive_features is not None:
                params = params | {"sensitive_features": sensitive_features}
            routed = process_routing(self, "fit", **params)
            params = routed.get("estimator", Bunch()).get("fit", {})
        return self._fit(X, y, sensitive_features, params)

    def _moved(self, X, sensitive_features):
        """Return fair predictions, moved as far as `repair_level` says."""
        check_is_fitted(self, "barycenter_")
        # Some parameters may be set after the fit.
        self._validate_params()
        policy = group_policy(self.groups)
        groups, way = self._fitted
        X, labels = self._read(X, sensitive_features, groups)
        # Labels of rows that a private fit knows nothing of are not quoted either.
        codes = groups.encode(labels, policy.unknown, quoted=self.epsilon is None)
        read = partial(one_score_per_row, self.estimator_, self._response_method, X)
        scores = self._unquoted(
            read,
            f"the estimator's {self._response_method} did not return one finite number, or the "
            "probabilities of two classes, for every row of X. Its output may quote private "
            "values, so it is not shown.",
        )
        uniforms = None
        if self.ties == "random":
            # Equal predictions are drawn apart: one image for all could identify the group.
            uniforms = check_random_state(self.random_state).uniform(size=len(scores))
        fair = way.move(scores, codes, uniforms)
        level = way.levels[codes] if isinstance(self.repair_level, str) else self.repair_level
        return (1 - level) * scores + level * fair

    def _measured(self, metric, X, y, sample_weight, sensitive_features):
        """Return a metric of targets and predictions."""
        refuse_other_rows(X, {"y": y, "sample_weight": sample_weight})
        predictions = self.predict(X, sensitive_features=sensitive_features)
        measure = partial(metric, y, predictions, sample_weight=sample_weight)
        return self._unquoted(measure, "y and sample_weight cannot be read as targets and weights.")

    def _unquoted(self, call, otherwise):
        """Return a result; after a private fit, nothing that foreign code says about rows."""
        if self.epsilon is None:
            return call()
        with silence():
            return redact_errors(call, otherwise)

    def get_metadata_routing(self):
        """Return the metadata routing: the attribute is used here, the rest by the estimator.

        Returns
        -------
        MetadataRouter
            The routing.
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=self._estimator, method_mapping=mapping)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self._estimator).input_tags
        # It takes what the estimator takes.
        for name in ("sparse", "allow_nan", "categorical", "string"):
            setattr(tags.input_tags, name, getattr(inner, name))
        return tags

    @property
    def _estimator(self):
        return self._default_estimator() if self.estimator is None else self.estimator

    @abstractmethod
    def _check_estimator(self) -> None:
        """Raise if the estimator is not of the kind whose predictions are made fair."""

    def _read(self, X, sensitive_features, fitted=None):
        """Return the columns that the estimator sees, and the label of each row."""
        table = tables.Table(X if self.epsilon is None else in_cells(X))
        # If names differ from those of the fit, positions mean other columns. An array of a wrong
        # shape is refused with the attribute.
        if table.container != "array":
            validate_data(self, table.X, reset=fitted is None, skip_check_array=True)
        labels, kept = split_attribute(self, table, sensitive_features, fitted)
        if table.container == "array":
            validate_data(self, table.X, reset=fitted is None, skip_check_array=True)
        if self.sensitive_features is None or self.sensitive_in_estimator:
            return table.X, labels
        return tables.take_columns(table.X, kept), labels

    def _validate(self, X, y, sensitive_features, params):
        declared = self._declared(0, None)
        X, labels = self._read(X, sensitive_features)
        redact_errors(lambda: check_consistent_length(X, y), "y cannot be read as targets.")
        if isinstance(self.estimator, FrozenEstimator):
            try:
                no_rows = tables.take_rows(X, np.arange(0))
                refuse_unusable(self.estimator, self._response_method, no_rows)
            except ValueError as error:
                error.add_note("Sensitive columns are left out by sensitive_in_estimator=False.")
                raise
        if declared is not None:
            # Targets are not used; an array of them must have one for each row, as in other fits.
            n_records = len(tables.one_by_one(y))
            if not n_records:
                raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
            return replace(declared, X=X, labels=labels, n_records=n_records)
        y = tables.public_labels(y, "leave out these rows.")
        if is_classifier(self):
            refuse_other_classes(y, self._estimator)
        # Wrong weights raise before anything is computed.
        return PredictionRows(X, labels, read_groups(self, labels), len(y), y, params)

    def _declared(self, n_records, columns):
        self._check_estimator()
        if self.epsilon is None:
            return None
        if not isinstance(self.estimator, FrozenEstimator):
            raise ValueError(
                "with epsilon the estimator must be a sklearn.frozen.FrozenEstimator: a model that "
                "was trained on other rows, or privately. fit releases counts of its predictions "
                "only. A model trained on the same rows would reveal them."
            )
        if self.cv != "auto":
            raise ValueError("cv is for fits without epsilon: a FrozenEstimator is not trained.")
        # Raises if bounds are not declared.
        self._cell_edges(1)
        return PredictionRows(np.empty(0), np.empty(0), read_groups(self), n_records)

    def _cell_edges(self, n_cells: int) -> np.ndarray:
        """Return the edges of cells: equally wide, or without bounds, quantiles of probabilities.

        Probabilities of a rare class are near 0, and those of a common one near 1. Cells are
        equally wide on the scale of the arcsine of the root, and so narrower there.
        """
        if self._response_method == "predict_proba" and self.bounds is None:
            # On this scale the variance of a share is the same near 0, 1 and one half.
            return np.sin(np.linspace(0.0, 0.5 * np.pi, n_cells + 1)) ** 2
        why = "Predictions are counted in cells between them."
        low, high = tables.check_bounds(self.bounds, 1, why)
        if self._response_method == "predict_proba" and not 0 <= low[0] < high[0] <= 1:
            raise ValueError("bounds of probabilities are within 0 and 1: leave them out.")
        return np.linspace(low[0], high[0], n_cells + 1)

    def _plan(self, data):
        if self.epsilon is None:
            return open_plan(self)
        delta = float(self.delta or 0.0)
        n_cells = None if self.n_quantiles == "auto" else self.n_quantiles
        n_groups = len(data.groups.names)
        release = PredictionCounts(self.epsilon, delta, n_groups, data.n_records, n_cells)
        not_protected = ("rows that are predicted", "the estimator")
        return plan_of(self, release, not_protected, data.n_records)

    def _run(self, plan, data):
        if self.epsilon is not None:
            return self.estimator, data.groups, *self._run_privately(plan, data)
        groups = data.groups
        with progress_of(self, unit=" fits") as bar:
            estimator, scores = self._fit_openly(data, bar)
        samples = [scores[groups.codes == g] for g in range(len(groups.names))]
        weights = group_weights(self.weights, groups.sizes, groups.names)
        way = PredictionBarycenter.from_scores(samples, weights, self.n_quantiles)
        return estimator, groups, weights, way

    def _run_privately(self, plan, rows):
        """Return weights of groups, and the map to fair predictions: each private step, in order.

        One record may be replaced by any other. There is one release, with the whole budget. Proof:
        :ref:`proof-private-predictions`.
        """
        release = plan.release
        edges = self._cell_edges(release.n_cells)
        # A replaced record leaves one cell and joins another: counts change by 2 in the l1 norm and
        # by sqrt(2) in the l2 norm, as `histogram_sensitivities` proves.
        noisy = release.run(private_counts(self, rows, edges), plan.source)
        # No private value is read from here.
        names, box = ["predictions" if self.bounds is not None else None], (edges[:1], edges[-1:])
        warn_of_grid(names, box, noisy, release.standard_deviation, rows.n_records)
        sizes = np.maximum(noisy.sum(axis=1), 1.0)
        weights = group_weights(self.weights, sizes, rows.groups.names)
        # A group with too few rows is assumed to be like the others.
        masses = shrunk_masses(noisy, release.standard_deviation)
        return weights, PredictionBarycenter.from_cells(edges, masses, weights)

    def _fit_openly(self, data, bar):
        """Return the fitted estimator, and the predictions that distributions are learned from."""
        method = self._response_method
        try:
            estimator = clone(self._estimator).fit(data.X, data.y, **data.params)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise ValueError(
                f"{type(self._estimator).__name__} does not accept text ({error}). Encode columns "
                "of text in a pipeline with it, and y before the fit. The sensitive columns of X "
                "are left out with sensitive_in_estimator=False."
            ) from error
        bar.update()
        # Of the final estimator: its ties decide whether folds can stand for it.
        scores = one_score_per_row(estimator, method, data.X)
        cv = self.cv
        if isinstance(cv, str):
            # Other folds would have other values, and ties of the final estimator no mass. Of 52
            # fits to public tables, trees tie .98 or more; others up to .57, for which folds keep
            # as much AUC or more, but for .001.
            cv = None if share_of_ties(scores, data.groups.codes) > 0.8 else 5
        if cv is None:
            return estimator, scores
        folds = self._folds(cv, data.y, data.groups.codes)
        bar.total = 1 + len(folds)
        found = Parallel(n_jobs=self.n_jobs, return_as="generator")(
            delayed(scores_of_fold)(self._estimator, method, data, *fold) for fold in folds
        )
        scores = np.empty(data.n_records)
        for (_, test), of_fold in zip(folds, found, strict=True):
            scores[test] = of_fold
            bar.update()
        return estimator, scores

    def _folds(self, n_folds, y, codes):
        """Return folds, each a pair of training rows and held-out rows.

        They are shuffled, and have equal shares of groups, and of classes in these, if there are
        enough rows.
        """
        options = {"n_splits": n_folds, "shuffle": True, "random_state": self.random_state}
        y_codes = np.unique(y, return_inverse=True)[1] if is_classifier(self) else 0
        for strata in (codes * len(y) + y_codes, codes):
            if np.unique(strata, return_counts=True)[1].min() >= n_folds:
                return list(StratifiedKFold(**options).split(strata, strata))
        return list(KFold(**options).split(codes))

    def _keep(self, plan, released):
        self.estimator_, groups, self.group_weights_, way = released
        self._fitted = groups, way
        self.groups_ = groups.names
        self.barycenter_, self.objective_ = way.quantiles, way.objective
        self.repair_levels_ = way.levels
        if len(groups.names) < 2:
            warn_user("all rows are in one group, so there is nothing to make fair.")


class FairBarycenterRegressor(RegressorMixin, FairModel):
    r"""Predictions that do not depend on a sensitive attribute: the fair premium.

    It moves the predictions of a regressor to the Wasserstein barycenter of their distributions in
    the groups. Then predictions have the same distribution in all groups (strong demographic
    parity) as far as the rows of `fit` show it, and keep their order within each group. If the
    regressor is right, no other predictions with this property have a smaller mean squared error.
    For the probabilities of a classifier, use :class:`FairBarycenterClassifier`.

    **What is protected.** Without epsilon nothing: the fitted attributes depend on single rows.
    With epsilon, every record of one call of :meth:`fit`, with its group: it may be replaced by any
    other, and their number is public. Then fit learns only noisy counts of predictions by group
    from its rows; the model must be trained before, on other rows or privately. It sees rows only
    after the charge. Predictions are as sensitive as their rows.

    Parameters
    ----------
    estimator : estimator object, default=None
        Regressor to fit; None is :class:`~sklearn.linear_model.LinearRegression`. Pass a fitted
        model as a :class:`~sklearn.frozen.FrozenEstimator`; then `fit` learns only the
        distributions, and its data should not be the training data of the model. With epsilon a
        frozen model is required, and it must predict row by row: see Notes.
    sensitive_features : str, int, or list of these, default=None
        The columns of X with the sensitive attribute: names, for data frames of pandas or polars,
        or positions. Several columns define groups by their intersections. With None, pass the
        attribute to `fit`, `predict` and `score`.
    weights : {"proportional", "uniform"}, dict or array-like, default="proportional"
        The weights lambda of the groups in the barycenter: proportional to size, which minimises
        the risk; equal; or one for each group, by label or in the order of ``groups_``. They are
        scaled to sum to 1.
    repair_level : "auto" or float, default="auto"
        How far `predict` moves predictions, from 0 (the estimator's own) to 1 (fair). ``"auto"`` is
        near 1, and less for groups with so few rows that chance explains some of their difference:
        see `repair_levels_`. You may change it without another fit.
    cv : "auto", int or None, default="auto"
        Which predictions the distributions are learned from. With folds, predictions for rows that
        the estimator was not trained on. An integer is a number of folds, shuffled, with equal
        shares of the groups. None uses predictions for the training data. ``"auto"`` is 5 folds,
        or None if more than four fifths of the training data have predictions equal to others in
        their group, as those of a tree, see Notes.
    n_quantiles : "auto" or int, default="auto"
        Number of quantiles that describe the distribution of a group's predictions, besides ties
        and the extremes. ``"auto"`` is the square root of the number of its rows, and gives a group
        with few rows a shape like that of all groups, see Notes. With epsilon, it is the number of
        cells in which predictions are counted, and ``"auto"`` is the number with the smallest
        error.
    sensitive_in_estimator : bool, default=True
        Whether the estimator sees the columns with the sensitive attribute. The best predictor
        sees them, and its fair version has the smallest risk. An attribute that is passed beside X
        is not shown to the estimator. If the attribute is text, the estimator must encode it.
    groups : array-like, FoundGroups or DeclaredGroups, default=None
        The groups of the training data, and the policy for small and unknown groups. None finds
        the groups and is :class:`~skdpot.fairness.FoundGroups`; labels stand for
        :class:`~skdpot.fairness.DeclaredGroups`. Predictions for rows that are left out are
        unchanged. Required with epsilon; then rows of other groups are ignored, as the text "1" if
        the number 1 is declared. A column of text is refused if all groups are numbers.
    epsilon : float, default=None
        Privacy parameter of a fit; None is a fit without privacy.
    delta : float, default=None
        None or 0 means Laplace noise; a value above 0 means Gaussian noise, which is larger here.
    bounds : tuple of (float, float), default=None
        Lower and upper bound of predictions, required with epsilon. Predictions outside are clipped
        to the bounds.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        What a fit with epsilon is charged to.
    ties : {"random", "mean"}, default="random"
        What `predict` gives predictions that are equal to others in their group: drawn images, or
        the mean of these. With ``"mean"`` nothing is drawn, and equal rows get equal predictions,
        but groups are less alike: see Notes. You may change it without another fit.
    n_jobs : int, default=None
        Number of folds that are fitted in parallel.
    random_state : int, RandomState instance or None, default=None
        Seed for the folds, and for the ranks of equal predictions. An integer gives the same
        predictions for the same X; None makes new draws in every call. With epsilon it also seeds
        the noise, and then nothing is private.
    verbose : bool, default=None
        Whether to show a progress bar over the fits of the estimator: to all rows, and in folds.
        None shows it on a terminal after three seconds.

    Attributes
    ----------
    estimator_ : estimator object
        The estimator, fitted to all of the data.
    groups_ : ndarray of shape (n_groups,), dtype=object
        Labels of the groups: scalars, or tuples for several attributes.
    group_weights_ : ndarray of shape (n_groups,)
        Their weights in the barycenter.
    barycenter_ : callable
        The quantile function of fair predictions: it takes ranks in [0, 1] and returns
        predictions.
    objective_ : float
        The value of the barycenter: the weighted sum of the squared Wasserstein distances W_2
        between it and the groups' predictions. The mean squared error grows by this value, see
        Notes. With epsilon, for the released groups.
    repair_levels_ : ndarray of shape (n_groups,)
        How far each group is moved with ``repair_level="auto"``: by the part of its squared
        distance from the barycenter that chance does not explain, and wholly if that is above .9.
        With epsilon all are 1, as the noise is taken out before.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee of a fit with epsilon; None without epsilon, or with a seed.
    n_features_in_ : int
        Number of features seen by `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen by `fit`, if X has any.

    See Also
    --------
    FairBarycenterClassifier : The same for the probabilities of a classifier.
    skdpot.fairness.metrics : How different groups are treated.

    Notes
    -----
    *Definition.* Let F_s be the distribution function and Q_s the quantile function of the
    predictions mu(X, s) in group s. Fair predictions are

    .. math:: g(x, s) = \sum_{s'} \lambda_{s'} Q_{s'}(F_s(\mu(x, s))).

    On a line, the quantile function of the barycenter is exactly the average of the groups'
    quantile functions, and the optimal map to it keeps the order. Equal predictions in a group, as
    from trees or discrete features, get ranks drawn uniformly within their mass. A function of the
    prediction alone would give them one value, which could identify the group. So equal rows may
    get different predictions. With ``ties="mean"`` they get one value, the mean of all that could
    be drawn. Then the prediction is a monotone function of the estimator's own within each group,
    groups have equal means as before, and the risk is no larger. But distributions differ in the
    groups, by up to the mass of ties, and the values of ties may identify the group. Without ties,
    both are the same (:ref:`fair-premium`).

    *Risk.* Let mu(x, s) = E[L | X = x, S = s], with weights equal to the probabilities of groups.
    Then L - mu is uncorrelated with all functions of (X, S), also with a random rank, and

    .. math::
        E[(L - g)^2] - E[(L - \mu)^2] = E[(g - \mu)^2] = \sum_s \lambda_s W_2^2(Q_s, \bar q).

    Any other g' with one distribution q' in all groups has :math:`E[(g' - \mu)^2] \ge \sum_s
    \lambda_s W_2^2(Q_s, q')`, because it couples the distributions, and no q' has a smaller value
    than the barycenter. Partial repair moves along geodesics: with `repair_level` t, the risk
    grows by :math:`t^2` times the value, and :math:`(1 - t)^2` times the value remains between the
    groups and the barycenter. If the regressor is not the best one, the second equality still
    holds. This independence of the attribute costs the value of the barycenter. The paper defines
    fairness by equal means in all groups, which cost only the differences of the means.

    *Statistics.* Distributions are learned from samples. So new predictions of two groups differ
    by a Kolmogorov-Smirnov statistic of the order of :math:`(1/n_1 + 1/n_2)^{1/2}`, for the
    smaller of the numbers of training and new rows. Predictions for training rows may be spread
    more widely than those for new rows, much more so for forests. Then new rows get ranks too
    close to the middle, especially in small groups. Folds avoid this, although their estimators
    see fewer rows. But some estimators predict few different values: single trees, and all
    estimators on discrete features. They predict other values in every fold. Then the values of
    the final estimator have no mass to draw ranks in, and they identify the group. In this case
    ``"auto"`` learns the distributions from the training data, which does less harm. Nothing helps
    if new rows get the values of single training rows, as from fully grown trees or one nearest
    neighbour. Larger leaves and more neighbours are fairer.

    Equal distribution functions do not imply equal densities. With all quantiles, the relative
    error of the mass between neighbouring training predictions is about 1. So with many fair
    predictions, gradient boosting can predict the group from densities at this scale. Fewer
    quantiles smooth the densities, without harm to the statistic or the risk. In a simulation with
    three normally distributed groups and 4000 rows, :func:`~skdpot.fairness.metrics.group_auc` of
    held-out predictions is 0.58 with all quantiles, and 0.51 with the square root of their number.

    In a group of twenty rows, these statistics are about a fifth. So ``n_quantiles="auto"`` shrinks
    a group's distribution towards one with its mean rank among all predictions, in which these
    ranks are powers of uniform ones. As in James and Stein's rule, chance alone decides by how
    much: few rows show where a group is, and many its shape. A number of quantiles uses the group's
    own predictions alone.

    *With epsilon*, two data sets are neighbours if they differ in one row: its values, group and
    target. The number of rows is public. The release is a histogram of predictions by group. Its
    cells have equal width; for probabilities, on the scale of the arcsine of their
    root. The number of cells depends on `epsilon` and the number of rows. Counts by group are
    shrunk towards those of all groups; the amount follows from the noise. Ranks are linear within
    cells. If a cell has more than twice the mass of its neighbours, perhaps because of equal
    predictions, ranks in it are drawn at random (:ref:`proof-private-predictions`).

    A row is counted nowhere if its group is not declared, or if the model predicts no
    number for it: NaN, text, or an error of any kind. Nobody is told, because a message would
    reveal the row. If the model fails for a table, rows for which it fails are found by asking it
    for parts of the table, and are replaced by a copy of another row. The predictions are those of
    one call with all rows. **The model must predict row by row**: whether it fails for a row must
    depend on that row alone, and the prediction, to its last bit, on the row, its position and the
    number of rows alone. What it prints, warns and logs is discarded. The model is code that runs
    on your rows: use none that keeps, writes or sends them. The number of rows, the names and types
    of columns, and the time of the fit are not protected.

    `sample_weight` and other metadata are used only to fit the estimator. Distributions and
    proportional weights count every row once.

    With metadata routing, `fit`, `predict` and `score` request `sensitive_features` by default,
    and other metadata of `fit` goes to the estimator if it requests it. Tools that predict without
    metadata, such as scorers, need the attribute as columns of X.

    References
    ----------
    Federated Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual
    Decomposition, equations (4) and (5).

    R. Xian, Q. Li, G. Kamath and H. Zhao, "Differentially private post-processing for fair
    regression", ICML 2024.

    E. Chzhen, C. Denis, M. Hebiri, L. Oneto and M. Pontil, "Fair regression with Wasserstein
    barycenters", NeurIPS 2020.

    T. Le Gouic, J.-M. Loubes and P. Rigollet, "Projection to fairness in statistical learning",
    2020. :doi:`10.48550/arXiv.2005.11720`

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdpot import FairBarycenterRegressor
    >>> from skdpot.fairness.metrics import ks_between_groups
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> y += 50 * (X["sex"] > 0)
    >>> fair = FairBarycenterRegressor(sensitive_features="sex", random_state=0).fit(X, y)
    >>> unfair = fair.estimator_.predict(X)
    >>> round(ks_between_groups(unfair, sensitive_features=X["sex"]), 2)
    0.41
    >>> round(ks_between_groups(fair.predict(X), sensitive_features=X["sex"]), 2)
    0.03
    """

    _default_estimator = LinearRegression
    _response_method = "predict"

    def predict(self, X, *, sensitive_features=None) -> np.ndarray:
        """Return fair predictions, moved as far as `repair_level` says.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Rows.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions, in the units of the estimator's predictions.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If the attribute is given twice or not at all, columns differ from those of `fit`, or
            rows are in unknown groups that the policy of `groups` refuses.
        """
        return self._moved(X, sensitive_features)

    def score(self, X, y, sample_weight=None, *, sensitive_features=None) -> float:
        """Return the coefficient of determination of the predictions.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of rows.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        float
            R^2; 1 is best.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If `predict` would raise, or lengths differ.
        """
        return self._measured(r2_score, X, y, sample_weight, sensitive_features)

    def _check_estimator(self):
        if is_classifier(self._estimator) or is_clusterer(self._estimator):
            raise ValueError(
                f"estimator must be a regressor that predicts y, got {self.estimator!r}. Of a "
                "classifier, FairBarycenterClassifier makes its probabilities fair."
            )


class FairBarycenterClassifier(ClassifierMixin, FairModel):
    r"""Class probabilities that do not depend on a sensitive attribute, and decisions by them.

    It moves the probabilities of a binary classifier to the Wasserstein barycenter of their
    distributions in the groups. Then they have the same distribution in all groups, so decisions
    by *any* threshold have the same rates (strong demographic parity), and the order within each
    group stays. If the probabilities are right, no others with this property have a smaller Brier
    score. It is :class:`FairBarycenterRegressor` for classes, with all of its guarantees.

    **What is protected.** Without epsilon nothing: the fitted attributes depend on single rows.
    With epsilon, every record of one call of :meth:`fit`, as of :class:`FairBarycenterRegressor`.

    Parameters
    ----------
    estimator : estimator object, default=None
        Binary classifier with `predict_proba` to fit; None is
        :class:`~sklearn.linear_model.LogisticRegression`. One with a decision function alone gets
        probabilities by :class:`~sklearn.calibration.CalibratedClassifierCV` around it. Pass a
        fitted model as a :class:`~sklearn.frozen.FrozenEstimator`; then `fit` learns only the
        distributions, and its data should not be the training data of the model. With epsilon a
        frozen model is required, and it must predict row by row.
    sensitive_features : str, int, or list of these, default=None
        The columns of X with the sensitive attribute: names, for data frames of pandas or polars,
        or positions. Several columns define groups by their intersections. With None, pass the
        attribute to every method. Tools that predict without metadata, such as scorers, searches,
        and thresholds or calibrations around this classifier, need it as columns of X.
    weights : {"proportional", "uniform"}, dict or array-like, default="proportional"
        The weights of the groups in the barycenter: proportional to size, which minimises the risk;
        equal; or one for each group, by label or in the order of ``groups_``.
    repair_level : "auto" or float, default="auto"
        How far probabilities are moved, from 0 (the estimator's own) to 1 (fair). ``"auto"`` is
        near 1, and less for groups with so few rows that chance explains some of their difference:
        see `repair_levels_`. You may change it without another fit.
    cv : "auto", int or None, default="auto"
        Which predictions the distributions are learned from: those for rows that the estimator was
        not trained on, by a number of folds with equal shares of groups and classes; None is those
        for the training data. ``"auto"`` is 5, or None if nearly all are tied.
    n_quantiles : "auto" or int, default="auto"
        Number of quantiles that describe the distribution of a group's probabilities, besides ties
        and the extremes. ``"auto"`` is the square root of the number of its rows, and gives a group
        with few rows a shape like that of all groups. With epsilon, the number of cells that
        probabilities are counted in.
    sensitive_in_estimator : bool, default=True
        Whether the estimator sees the columns with the sensitive attribute. The best classifier
        sees them, and its fair version has the smallest risk.
    groups : array-like, FoundGroups or DeclaredGroups, default=None
        The groups of the training data, and the policy for small and unknown groups. None finds
        the groups and is :class:`~skdpot.fairness.FoundGroups`; labels stand for
        :class:`~skdpot.fairness.DeclaredGroups`. Required with epsilon.
    epsilon : float, default=None
        Privacy parameter of a fit; None is a fit without privacy.
    delta : float, default=None
        None or 0 means Laplace noise; a value above 0 means Gaussian noise, which is larger here.
    bounds : tuple of (float, float), default=None
        With epsilon, lower and upper bound of the probabilities of the second class, in which cells
        have equal width. None is (0, 1), with narrower cells near the ends.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        What a fit with epsilon is charged to.
    ties : {"random", "mean"}, default="random"
        What equal probabilities of a group become: drawn images, or the mean of these. With
        ``"mean"`` nothing is drawn, and equal rows get equal decisions, but groups are less alike:
        a whole leaf of a tree is accepted or rejected. You may change it without another fit.
    n_jobs : int, default=None
        Number of folds that are fitted in parallel.
    random_state : int, RandomState instance or None, default=None
        Seed for the folds, and for the ranks of equal probabilities. An integer gives the same
        predictions for the same X; None makes new draws in every call, also for `predict` after
        `predict_proba`. With epsilon it also seeds the noise, and then nothing is private.
    verbose : bool, default=None
        Whether to show a progress bar over the fits of the estimator: to all rows, and in folds.
        None shows it on a terminal after three seconds.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The classes, as of the estimator.
    estimator_ : estimator object
        The estimator, fitted to all of the data.
    groups_ : ndarray of shape (n_groups,), dtype=object
        Labels of the groups: scalars, or tuples for several attributes.
    group_weights_ : ndarray of shape (n_groups,)
        Their weights in the barycenter.
    barycenter_ : callable
        The quantile function of fair probabilities of the second class.
    objective_ : float
        The value of the barycenter: by how much the Brier score grows if the estimator's
        probabilities are right. With epsilon, for the released groups.
    repair_levels_ : ndarray of shape (n_groups,)
        How far each group is moved with ``repair_level="auto"``: by the part of its squared
        distance from the barycenter that chance does not explain, and wholly if that is above .9.
        With epsilon all are 1, as the noise is taken out before.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee of a fit with epsilon; None without epsilon, or with a seed.
    n_features_in_ : int
        Number of features seen by `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen by `fit`, if X has any.

    See Also
    --------
    FairBarycenterRegressor : The same for a regressor, with the details in its Notes.
    skdpot.fairness.metrics : How different groups are treated.

    Notes
    -----
    *Decisions.* `predict` takes the second class where its fair probability is above 1/2. If the
    estimator's probabilities are right and weights proportional, no decisions with equal rates in
    all groups are more accurate (:ref:`proof <fair-decisions>`). Every other threshold is as fair:
    :class:`~sklearn.model_selection.TunedThresholdClassifierCV` around this classifier finds one
    for another metric.

    *Ties* of classifiers are common, as in leaves of trees. Their images are drawn by default: of
    two equal rows, one may be accepted. ``ties="mean"`` decides about both alike, at a price: a
    tree of few leaves then has other rates, and values of leaves that identify the group.

    With metadata routing, all methods request `sensitive_features` by default, and other metadata
    of `fit` goes to the estimator if it requests it.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import cross_val_score
    >>> from skdpot import FairBarycenterClassifier
    >>> from skdpot.fairness.metrics import ks_between_groups
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> severe = y > 150
    >>> fair = FairBarycenterClassifier(sensitive_features="sex", random_state=0).fit(X, severe)
    >>> unfair = fair.estimator_.predict_proba(X)[:, 1]
    >>> round(ks_between_groups(unfair, sensitive_features=X["sex"]), 2)
    0.26
    >>> round(ks_between_groups(fair.predict_proba(X)[:, 1], sensitive_features=X["sex"]), 2)
    0.08
    >>> cross_val_score(fair, X, severe, scoring="roc_auc").mean().round(2)
    np.float64(0.83)
    """

    _default_estimator = LogisticRegression
    _response_method = "predict_proba"

    # Default routing of the attribute.
    __metadata_request__predict_proba = {"sensitive_features": True}

    @property
    def classes_(self) -> np.ndarray:
        """Return the classes, as of the estimator."""
        return np.asarray(self.estimator_.classes_)

    def predict_proba(self, X, *, sensitive_features=None) -> np.ndarray:
        """Return fair probabilities, moved as far as `repair_level` says.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Rows.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Probabilities, in the order of ``classes_``.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If the attribute is given twice or not at all, columns differ from those of `fit`, or
            rows are in unknown groups that the policy of `groups` refuses.
        """
        # Sums of weights may exceed 1 by rounding.
        second = np.clip(self._moved(X, sensitive_features), 0.0, 1.0)
        return np.column_stack([1.0 - second, second])

    def predict(self, X, *, sensitive_features=None) -> np.ndarray:
        """Return the class that is more probable after the repair.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Rows.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        ndarray of shape (n_samples,)
            The second of ``classes_`` where its probability is above 1/2, otherwise the first.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If `predict_proba` would raise.
        """
        probabilities = self.predict_proba(X, sensitive_features=sensitive_features)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def score(self, X, y, sample_weight=None, *, sensitive_features=None) -> float:
        """Return the accuracy of the predicted classes.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of rows.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.

        Returns
        -------
        float
            The share of rows whose class is predicted.

        Raises
        ------
        NotFittedError
            If it was not fitted.
        ValueError
            If `predict` would raise, or lengths differ.
        """
        return self._measured(accuracy_score, X, y, sample_weight, sensitive_features)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_estimator(self):
        model = self._estimator
        if not is_classifier(model) or not hasattr(model, "predict_proba"):
            raise ValueError(
                f"estimator must be a classifier with predict_proba, got {self.estimator!r}. A "
                "classifier with a decision function alone gets probabilities by "
                "sklearn.calibration.CalibratedClassifierCV around it. FairBarycenterRegressor "
                "takes regressors."
            )


def refuse_other_classes(y: np.ndarray, estimator: Any) -> None:
    """Raise if targets are not of two classes."""
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {kind}. Of "
            "several classes, sklearn.multiclass.OneVsRestClassifier makes two; "
            "FairBarycenterRegressor takes numbers."
        )
    # A frozen model has learned its classes from other rows.
    if len(np.unique(y)) < 2 and not isinstance(estimator, FrozenEstimator):
        raise ValueError("y has one class, and a classifier needs two.")


def private_counts(fair: FairModel, rows: PredictionRows, edges: np.ndarray) -> np.ndarray:
    """Return the number of rows in the cells of every group: private.

    A row without a group or a prediction is in no cell.
    """
    with silence():
        scores = private_predictions(fair.estimator, fair._response_method, rows.X)
        groups = rows.groups.find(rows.labels)
        # Rounded as before they are moved, so that rounding in the model moves no atom over an
        # edge. Scores beyond the range are in the outermost cells.
        within = np.clip(rounded(scores, resolution(edges)), edges[0], edges[-1])
    # Counted nowhere, in silence: an error or a warning would reveal the row.
    known = (groups >= 0) & ~np.isnan(scores)
    codes = np.arange(len(rows.groups.names) + 1)
    return np.histogram2d(groups[known], within[known], [codes, edges])[0]


class PredictionCounts(VectorRelease):
    """The release of the number of predictions in each cell.

    Parameters
    ----------
    epsilon, delta : float
        Budget.
    n_slots : int
        Number of distributions.
    n_records : int
        Number of predictions.
    n_cells : int or None
        How many cells each of them has; None is as many as have the least error.
    """

    def __init__(
        self, epsilon: float, delta: float, n_slots: int, n_records: int, n_cells: int | None
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            histogram_sensitivities,
            n_coordinates=n_slots * (n_cells or MOST_CELLS),
            largest=float(n_records),
            counts=True,
        )
        self._n_slots = n_slots
        # It follows from the noise, which is known only now.
        self.n_cells = n_cells or number_of_cells(n_records / n_slots, self.standard_deviation)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard error of a median's rank; its scale is 1/2, the worst guess."""
        noise = self.standard_deviation * math.sqrt(self.n_cells) / 2.0
        what = "standard error of the share of a group's predictions below their median"
        return (ExpectedError(what, noise / (n_records / self._n_slots), 0.5),)


def private_predictions(estimator: Any, method: str, X: Any) -> np.ndarray:
    """Return the prediction of each private row, NaN where the estimator has none.

    All predictions are of one batch, in which a row without a prediction is replaced by a copy of
    another row. So one record changes no other prediction, not in its last bit, if the model
    predicts row by row: whether it fails for a row depends on that row alone, and the bits of a
    prediction on the row, its position and the number of rows. In a batch of another size, sums
    may be rounded otherwise.

    Examples
    --------
    >>> from sklearn.preprocessing import OrdinalEncoder
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdpot.fairness._models import private_predictions
    >>> model = make_pipeline(OrdinalEncoder(), LinearRegression())
    >>> model = model.fit([["a"], ["b"]], [1.0, 2.0])
    >>> private_predictions(model, "predict", np.array([["b"], ["?"], ["a"]])).round(6)
    array([ 2., nan,  1.])
    """

    def predicted(rows: np.ndarray) -> np.ndarray | None:
        # Always of selected rows: those of X itself may lie in memory in another order.
        read = partial(numbers_per_row, estimator, method, tables.take_rows(X, rows))
        return result_of(read, None)

    every = np.arange(X.shape[0])
    scores = predicted(every)
    if scores is not None:
        return scores
    failing, parts = np.zeros(len(every), dtype=bool), np.array_split(every, 2)
    while parts:
        rows = parts.pop()
        if predicted(rows) is None:
            # A row is missing, whatever the model does with it: it may even ask for the exit.
            failing[rows] = len(rows) == 1
            parts += np.array_split(rows, 2) if len(rows) > 1 else []
    # If all fail, the first one does so again.
    scores = predicted(np.where(failing, np.argmin(failing), every))
    return np.full(len(every), np.nan) if scores is None else np.where(failing, np.nan, scores)


def refuse_unusable(estimator: Any, method: str, columns: Any) -> None:
    """Raise if a model cannot predict rows with these columns; `columns` is a table without rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.linear_model import LinearRegression
    >>> from skdpot.fairness._models import refuse_unusable
    >>> model = FrozenEstimator(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))
    >>> refuse_unusable(model, "predict", np.empty((0, 2)))
    Traceback (most recent call last):
    ValueError: X has 2 features, but FrozenEstimator is expecting 1 features as input.
    """
    check_is_fitted(estimator)
    n_classes = len(getattr(estimator, "classes_", (0, 1)))
    if not hasattr(estimator, method) or n_classes != 2:
        raise ValueError(
            "the estimator must predict one number for every row, or probabilities of two classes, "
            f"by its method {method}."
        )
    # The step that sees the columns first decides whether more of them are an error.
    first = estimator.estimator
    while isinstance(first, Pipeline):
        first = first[0]
    # It takes tables with more columns than it was fitted to.
    if not isinstance(first, ColumnTransformer):
        with silence():
            validate_data(estimator, columns, reset=False, skip_check_array=True)


def one_score_per_row(estimator: Any, method: str, X: Any) -> np.ndarray:
    """Return the predictions of a method, one finite number for every row, or raise."""
    scores = numbers_per_row(estimator, method, X)
    if not np.isfinite(scores).all():
        raise ValueError(f"the estimator's {method} returned NaN or infinity, or no numbers.")
    return scores


def numbers_per_row(estimator: Any, method: str, X: Any) -> np.ndarray:
    """Return the predictions of a method, one for every row, NaN where it is no number; or raise.

    Each prediction is read for itself: in private rows, one of them may give the array of all
    another type.
    """
    predicted = getattr(estimator, method)(X)
    scores = np.asarray(predicted)
    # A single complex prediction makes the array complex; real ones keep their value.
    if scores.dtype.kind == "c":
        scores = np.where(scores.imag == 0, scores.real, np.nan)
    if scores.dtype.kind not in "buif":
        values = np.asarray(predicted, dtype=object)
        scores = tables.as_numbers(values.reshape(len(values), -1)).reshape(values.shape)
    # Of two probabilities one tells the other.
    if method == "predict_proba" and scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1]
    if scores.shape != (X.shape[0],):
        raise ValueError(
            "the estimator must predict one number for every row, or probabilities of two classes; "
            f"its {method} returned an array of shape {scores.shape}."
        )
    return scores.astype(np.float64)


def scores_of_fold(
    estimator: Any, method: str, rows: PredictionRows, train: np.ndarray, test: np.ndarray
) -> np.ndarray:
    """Return the scores of the held-out rows of a fold."""
    params = metadata_at(rows.X, rows.params, indices=train)
    fitted = clone(estimator).fit(tables.take_rows(rows.X, train), rows.y[train], **params)
    return one_score_per_row(fitted, method, tables.take_rows(rows.X, test))
