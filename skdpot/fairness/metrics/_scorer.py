"""Metrics of fairness as scorers, for cross-validation and searches."""

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from sklearn.metrics import make_scorer
from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

from skdpot.fairness._attribute import split_attribute
from skdpot.tables import Table

_RESPONSE_METHODS = ("predict", "predict_proba", "decision_function")


def make_fairness_scorer(
    metric: Callable[..., float],
    *,
    sensitive_features: Any = None,
    greater_is_better: bool | None = None,
    response_method: Any = "predict",
    **options: Any,
) -> "FairnessScorer":
    """Make a scorer of a metric of fairness, for `cross_validate`, `GridSearchCV` and others.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_pred, *, sensitive_features, ...)``, such as those of fairlearn, or
        ``metric(scores, *, sensitive_features, ...)``. It returns a number.
    sensitive_features : str, int, or list of these, default=None
        The columns of X, as given to the scorer, that hold the sensitive attribute. With None it is
        passed as metadata, which needs metadata routing to be enabled; the scorer requests it.
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
        ``scorer(estimator, X, y, sensitive_features=None)``. If the attribute is passed, and the
        estimator's prediction takes it too, it gets it.

    See Also
    --------
    sklearn.metrics.make_scorer : For metrics of the prediction alone.

    Notes
    -----
    Scores are not private, nor are choices by them.

    When it is called, the scorer raises a ValueError if the attribute is given twice or not at all,
    and passes on errors of the metric.

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
    return FairnessScorer(
        metric,
        sensitive_features=sensitive_features,
        greater_is_better=greater_is_better,
        response_method=response_method,
        options=options,
    )


class FairnessScorer:
    """A metric of fairness as a scorer; made by :func:`make_fairness_scorer`."""

    def __init__(self, metric, *, sensitive_features, greater_is_better, response_method, options):
        self.metric = metric
        self.sensitive_features = sensitive_features
        self.greater_is_better = greater_is_better
        self.response_method = response_method
        self.options = options
        # An attribute that is read from columns is not requested.
        self._requests = {"sensitive_features": sensitive_features is None}

    def __call__(self, estimator, X, y_true=None, *, sensitive_features=None, **params):
        """Return the score of an estimator on data.

        Parameters
        ----------
        estimator : estimator object
            Fitted.
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Rows.
        y_true : array-like of shape (n_samples,), default=None
            Targets.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute, unless it is read from columns of X.
        **params : dict
            Further metadata of the metric, such as `sample_weight`.

        Returns
        -------
        float
            The score; higher is better.
        """
        labels, _ = split_attribute(self, Table(X), sensitive_features)
        measure = partial(
            _Measure(self.metric), sensitive_features=labels, **self.options, **params
        )
        if sensitive_features is not None:
            estimator = _Informed(estimator, sensitive_features)
        scorer = make_scorer(
            measure, response_method=self.response_method, greater_is_better=self._higher_is_better
        )
        return scorer(estimator, X, y_true)

    def __repr__(self):
        return f"make_fairness_scorer({_name(self.metric)})"

    def set_score_request(self, **requests):
        """Set the requested metadata, as scikit-learn's scorers do.

        Parameters
        ----------
        **requests : dict
            For `sensitive_features` and other metadata, whether it is requested, or its alias.

        Returns
        -------
        self : object
            The scorer.
        """
        self._requests |= requests
        return self

    def get_metadata_routing(self):
        """Return which metadata is requested.

        Returns
        -------
        MetadataRequest
            The requests.
        """
        routing = MetadataRequest(owner=type(self).__name__)
        for name, alias in self._requests.items():
            routing.score.add_request(param=name, alias=alias)
        return routing

    @property
    def _higher_is_better(self):
        if self.greater_is_better is None:
            return _name(self.metric).endswith("ratio")
        return self.greater_is_better


class _Measure:
    """A metric, called with those of true values and predictions that it takes."""

    def __init__(self, metric):
        self.metric = metric

    def __call__(self, y_true, y_pred, **options):
        positional = [
            parameter
            for parameter in inspect.signature(self.metric).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            and parameter.default is parameter.empty
        ]
        given = (y_pred,) if len(positional) == 1 else (y_true, y_pred)
        return self.metric(*given, **options)


class _Informed:
    """An estimator whose predictions get the sensitive attribute, if they take it."""

    def __init__(self, estimator, sensitive_features):
        self._estimator = estimator
        self._attribute = {"sensitive_features": sensitive_features}

    def __getattr__(self, name):
        value = getattr(self._estimator, name)
        if name in _RESPONSE_METHODS and hasattr(self._estimator, "get_metadata_routing"):
            routing = get_routing_for_object(self._estimator)
            if routing.consumes(name, self._attribute):
                # The scorers of scikit-learn read the name of a classifier's method.
                return update_wrapper(partial(value, **self._attribute), value)
        return value


def _name(metric):
    """Return the name of a metric, also of a partial one."""
    return getattr(metric, "__name__", _name(metric.func) if hasattr(metric, "func") else "")
