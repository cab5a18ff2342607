"""Metrics of unequal treatment of groups: by decisions and scores, and by features."""

import inspect
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import make_scorer
from sklearn.model_selection import StratifiedKFold, check_cv, cross_val_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skdpot._sklearn_compat import MANY_ROWS, one_thread_unless
from skdpot.fairness._certificate import gap_bound
from skdpot.fairness._conditional import max_gap
from skdpot.fairness._groups import Groups, find_groups, labels_of_columns, read_labels
from skdpot.privacy.checks import check_count, redact_errors, refuse_other_rows
from skdpot.tables import Table, is_missing, take_rows
from skdpot.transport import monotone_transport

__all__ = ["group_auc", "ks_between_groups", "make_fairness_scorer", "wasserstein_between_groups"]


def ks_between_groups(
    scores: Any,
    *,
    sensitive_features: Any,
    min_group_size: int = 1,
    confidence: float | None = None,
) -> float:
    r"""Return the largest Kolmogorov-Smirnov statistic between the scores of two groups.

    Parameters
    ----------
    scores : array-like of shape (n_samples,)
        Predictions, or scores of a classifier.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The sensitive attribute of every row. Several attributes define groups by their
        intersections.
    min_group_size : int, default=1
        Groups with fewer rows are left out.
    confidence : float, default=None
        None gives the statistic of these rows. With a number in (0, 1) the result is an upper
        bound for new rows from the same distribution. It holds with this probability, for any
        number of rows, if no row was used to compute the scores. See Notes.

    Returns
    -------
    float
        The largest difference between the distribution functions of two groups. It is the largest
        difference of rates, over all decisions by a threshold. For decisions, 0 or 1, it is the
        demographic parity difference. 0 if the distributions are equal, 1 if they do not overlap.

    Raises
    ------
    ValueError
        If lengths differ, scores are not finite, there are fewer than two groups, or more than 20
        with fewer than five rows on average, or the confidence is not in [0.5, 1).

    See Also
    --------
    make_fairness_scorer : The same as a scorer.
    scipy.stats.ks_2samp : The statistic of two samples, with a test.

    Notes
    -----
    The result is not private: it depends on single rows.

    By chance, groups of n and m rows with the same distribution have a statistic of about
    :math:`0.87 (1/n + 1/m)^{1/2}` on average. For the confidence c, the upper bound adds at most
    :math:`(\log(1 / (1 - c)) (1/n + 1/m) / 2)^{1/2}` to the statistic of each two groups, and
    about 0.7 times as much for hundreds of rows (:ref:`certificate`).

    Examples
    --------
    >>> from skdpot.fairness.metrics import ks_between_groups
    >>> ks_between_groups([1.0, 2.0, 1.5, 3.0], sensitive_features=["a", "a", "b", "b"])
    0.5
    """
    if confidence is not None and not 0.5 <= confidence < 1.0:
        raise ValueError(
            f"confidence must be from 0.5 to below 1, such as 0.95; got {confidence!r}."
        )
    measure = max_gap if confidence is None else partial(gap_bound, risk=1.0 - confidence)
    samples = scores_by_group(scores, sensitive_features, min_group_size)
    return max(measure(*pair) for pair in combinations(samples, 2))


def wasserstein_between_groups(
    scores: Any, *, sensitive_features: Any, order: float = 1, min_group_size: int = 1
) -> float:
    r"""Return the largest Wasserstein distance between the scores of two groups.

    Parameters
    ----------
    scores : array-like of shape (n_samples,)
        Predictions, or scores of a classifier.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The sensitive attribute of every row. Several attributes define groups by their
        intersections.
    order : float, default=1
        The order p >= 1 of the distance W_p.
    min_group_size : int, default=1
        Groups with fewer rows are left out.

    Returns
    -------
    float
        In the unit of the scores: the difference between scores of two groups at the same rank, on
        average for ``order=1``, in quadratic mean for ``order=2``.

    Raises
    ------
    ValueError
        If lengths differ, scores are not finite, there are fewer than two groups, or more than 20
        with fewer than five rows on average, or the order is below 1.

    See Also
    --------
    scipy.stats.wasserstein_distance : The distance of order 1 between two samples.
    skdpot.PrivateSinkhornDistance : Releases distances between groups under differential privacy.

    Notes
    -----
    The result is not private: it depends on single rows.

    References
    ----------
    Federated Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual
    Decomposition, equation (5), whose terms for predictions these are.

    Examples
    --------
    >>> from skdpot.fairness.metrics import wasserstein_between_groups
    >>> wasserstein_between_groups([1.0, 2.0, 1.5, 3.5], sensitive_features=list("aabb"))
    1.0
    """
    samples = scores_by_group(scores, sensitive_features, min_group_size)
    costs = [monotone_transport(*pair, cost=order) for pair in combinations(samples, 2)]
    return float(max(costs) ** (1 / order))


def group_auc(
    X: Any,
    sensitive_features: Any,
    *,
    estimator: Any = None,
    cv: Any = 5,
    min_group_size: int = 1,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> float:
    """Return the AUC with which a classifier predicts the group of a row from its features.

    If features do not reveal the group, any model of them satisfies demographic parity. If a
    linear model cannot predict the group, this proves nothing: trees also find repeated values and
    interactions.

    Parameters
    ----------
    X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
        Features, without the attribute itself. Columns of text or categories are encoded for the
        default classifier; your own classifier gets X unchanged.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The sensitive attribute of every row. Several attributes define groups by their
        intersections.
    estimator : classifier, default=None
        None is :class:`~sklearn.ensemble.HistGradientBoostingClassifier`, with smaller leaves for
        fewer than 100 rows.
    cv : int, cross-validation generator or iterable, default=5
        Folds; a number of folds is shuffled and stratified by group. Rows are scored by
        classifiers that were not trained on them.
    min_group_size : int, default=1
        Groups with fewer rows are left out.
    n_jobs : int, default=None
        Number of folds that are fitted in parallel.
    random_state : int, RandomState instance or None, default=None
        Seed for the folds, and for the classifier.

    Returns
    -------
    float
        Area under the ROC curve, averaged over folds: 0.5 if the group cannot be predicted (by
        chance it may be below), 1 if it always can. With more than two groups, the mean over
        groups of each against the rest.

    Raises
    ------
    ValueError
        If lengths differ, there are fewer than two groups, or a group has fewer rows than there
        are folds.

    See Also
    --------
    ks_between_groups : For a single score.

    Notes
    -----
    The result is not private: it depends on single rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness.metrics import group_auc
    >>> rng = np.random.default_rng(0)
    >>> groups, noise = rng.integers(2, size=300), rng.normal(size=(300, 1))
    >>> round(group_auc(noise + 3 * groups[:, None], groups, random_state=0), 2)
    0.97
    >>> abs(group_auc(noise, groups, random_state=0) - 0.5) < 0.1
    True
    """
    # Lists become arrays, so that rows can be taken.
    table = Table(X)
    X = table.X
    if len(X.shape) != 2:
        raise ValueError("X must be two-dimensional, and comes before sensitive_features.")
    groups = check_groups(X, sensitive_features, min_group_size)
    kept = np.flatnonzero(groups.codes >= 0)
    codes = groups.codes[kept]
    if not sparse.issparse(X):
        groups.warn_of_attribute(map(table.column, range(X.shape[1])), table.names)
    if not (estimator is None or is_classifier(estimator)):
        raise ValueError(f"estimator must be a classifier, got {type(estimator).__name__}.")
    source = check_random_state(random_state)
    if estimator is None:
        X, categorical = _as_numbers(table)
        estimator = HistGradientBoostingClassifier(categorical_features=categorical)
        # In fewer than two leaves of the default size, boosting would find nothing.
        estimator.set_params(min_samples_leaf=min(max(len(kept) // 5, 2), 20))
    # Not every classifier draws; a clone leaves the user's own object as it is.
    if "random_state" in estimator.get_params():
        estimator = clone(estimator).set_params(random_state=source.randint(2**31 - 1))
    # After the encoding, so that a category has the same code in all folds.
    X = take_rows(X, kept)
    if isinstance(cv, Integral):
        if groups.sizes.min() < cv:
            raise ValueError(
                f"a group has {groups.sizes.min()} rows, fewer than cv={cv} folds. Leave it out by "
                "min_group_size, or use fewer folds."
            )
        cv = StratifiedKFold(cv, shuffle=True, random_state=source.randint(2**31 - 1))
    # Split once: an iterable of folds is used up, and every group must be on both sides.
    folds = list(check_cv(cv, codes, classifier=True).split(codes, codes))
    # A classifier that has no probabilities can tell two groups apart.
    scoring = "roc_auc" if len(groups.names) == 2 else "roc_auc_ovr"
    with one_thread_unless(len(kept) >= MANY_ROWS):
        areas = cross_val_score(
            estimator, X, codes, scoring=scoring, cv=folds, n_jobs=n_jobs, error_score="raise"
        )
    return float(np.mean(areas))


def make_fairness_scorer(
    metric: Callable[..., float],
    *,
    sensitive_features: Any,
    greater_is_better: bool | None = None,
    response_method: Any = "predict",
    **options: Any,
) -> Callable[..., float]:
    """Make a scorer of a metric of fairness, for `cross_validate`, `GridSearchCV` and others.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_pred, *, sensitive_features, ...)``, such as those of fairlearn, or
        ``metric(scores, *, sensitive_features, ...)``. It returns a number.
    sensitive_features : str, int, or list of these
        The columns of X, as given to the scorer, that hold the sensitive attribute.
    greater_is_better : bool, default=None
        Whether the metric, or else minus it, is the score. None says so of metrics whose name ends
        with "ratio".
    response_method : {"predict", "predict_proba", "decision_function"} or list of such, \
            default="predict"
        The method of the estimator whose result is measured; of a list, the first that it has.
    **options : dict
        Options of the metric.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)``.

    See Also
    --------
    sklearn.metrics.make_scorer : For metrics of the prediction alone.

    Notes
    -----
    Scores are not private, nor are choices by them.

    Options that the metric lacks, and values in place of names, are refused at once.
    When it is called, the scorer raises a ValueError if X does not have the columns, and passes on
    errors of the metric.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from skdpot.fairness.metrics import ks_between_groups, make_fairness_scorer
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> scorer = make_fairness_scorer(ks_between_groups, sensitive_features="sex")
    >>> cross_val_score(LinearRegression(), X, y, scoring=scorer).mean().round(1)
    np.float64(-0.2)
    """
    if not callable(metric):
        raise ValueError(f"metric must be a function, such as ks_between_groups; got {metric!r}.")
    if greater_is_better is None:
        # A partial metric has the name of the function in it.
        named = getattr(metric, "func", metric)
        greater_is_better = getattr(named, "__name__", "").endswith("ratio")
    parameters = inspect.signature(metric).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    n_required = sum(p.kind in positional and p.default is p.empty for p in parameters)
    measured = partial(metric, **options)
    call, wanted = partial(measured, sensitive_features=None), ["sensitive_features", *options]
    redact_errors(lambda: inspect.signature(call), f"metric must take the options {wanted}.")
    named = np.ravel(np.asarray(sensitive_features, dtype=object)).tolist()
    if len(set(named)) < len(named):
        raise ValueError("sensitive_features must name columns of X, and not have their values.")
    # Not a closure, which could not be pickled with a search.
    return partial(
        _score, measured, n_required == 1, sensitive_features, greater_is_better, response_method
    )


def _score(metric, of_scores, columns, greater_is_better, response_method, estimator, X, y=None):
    """Return the score of an estimator by a metric of predictions and groups, and true values."""
    # The model keeps its columns: what it may see is its own affair.
    labels, _ = labels_of_columns(Table(X), columns)

    def measure(y_true, y_pred):
        values = (y_pred,) if of_scores else (y_true, y_pred)
        return metric(*values, sensitive_features=labels)

    scorer = make_scorer(
        measure, response_method=response_method, greater_is_better=greater_is_better
    )
    return scorer(estimator, X, y)


def check_groups(values: Any, sensitive_features: Any, min_group_size: int) -> Groups:
    """Return the groups of rows, two or more, or raise."""
    refuse_other_rows(values, {"sensitive_features": sensitive_features})
    labels = read_labels(sensitive_features)
    check_consistent_length(values, labels)
    least = check_count("min_group_size", min_group_size)
    groups = find_groups(labels, min_group_size=least, small_groups="drop")
    if len(groups.names) < 2:
        raise ValueError(
            f"groups can be compared if there are two or more with at least {min_group_size} rows; "
            f"sensitive_features has {len(groups.names)}."
        )
    if len(groups.names) > max(20, groups.sizes.sum() / 5):
        raise ValueError(
            f"sensitive_features has {len(groups.names)} groups of few rows: make bands of numbers "
            "first, or leave out small groups by min_group_size."
        )
    return groups


def scores_by_group(scores: Any, sensitive_features: Any, min_group_size: int) -> list[np.ndarray]:
    """Return the finite scores of each of two or more groups, or raise."""
    one = "scores must have one number for each row, as predict_proba(X)[:, 1] has."
    instead = {"y should be a 1d array": one}
    values = redact_errors(
        lambda: column_or_1d(scores), "scores must be real numbers.", instead=instead
    )
    if values.dtype.kind not in "buif" or not np.isfinite(values).all():
        raise ValueError(
            "scores must be finite numbers; they are text or dates, or contain NaN or infinity, in "
            f"an array of {values.dtype}."
        )
    # Rows of groups that are left out have no number.
    groups = check_groups(scores, sensitive_features, min_group_size)
    return [values[groups.codes == g].astype(np.float64) for g in range(len(groups.names))]


def _as_numbers(table: Table) -> tuple[Any, Any]:
    """Return data as numbers, and which columns are categorical, or None.

    Columns of words and categories are replaced by the positions of their values in order, and are
    categorical unless there are too many values. Missing values are NaN.
    """
    X = table.X
    if table.container == "array" and X.dtype.kind not in "OcmM":
        return X.toarray() if sparse.issparse(X) else X, None
    columns, categorical = [], np.zeros(X.shape[1], dtype=bool)
    for j in range(X.shape[1]):
        values = table.column(j)
        try:
            columns.append(values.astype(np.float64))
        except (TypeError, ValueError, OverflowError):
            # As words they would have no order, and a model could not learn from new ones.
            if any(isinstance(value, date | timedelta | complex) for value in values):
                raise TypeError("X holds dates or complex numbers: make numbers of them.") from None
            words, codes = np.unique([str(value) for value in values], return_inverse=True)
            missing = [is_missing(value) for value in values]
            columns.append(np.where(missing, np.nan, codes.astype(np.float64)))
            # Gradient boosting takes no more categories; they are ordered then.
            categorical[j] = len(words) <= 255
    return np.column_stack(columns), categorical
