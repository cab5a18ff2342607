"""Differences and ratios between groups of the rates of positive decisions."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.validation import check_consistent_length

from skdpot.fairness.metrics._input import check_groups, check_positives, check_scores, documented
from skdpot.privacy.checks import check_choice

_METHODS = ("between_groups", "to_overall")
_AGGREGATIONS = ("worst_case", "mean")


@documented
def demographic_parity_difference(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: Any = None,
    pos_label: Any = None,
    min_group_size: int = 1,
) -> float:
    """Return the largest difference between groups of the rates of positive predictions.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or None
        Ignored; all metrics of predictions have this argument.
    {y_pred}
    {sensitive_features}
    {method}
    {sample_weight}
    {pos_label}
    {min_group_size}

    Returns
    -------
    float
        0 if all groups have the same rate, 1 at most.

    Raises
    ------
    ValueError
        If lengths differ, labels are missing or of more than two kinds, weights are negative or not
        finite, `method` is not one of the two, or there are fewer than two groups.

    See Also
    --------
    ks_between_groups : For predictions that are numbers.

    Notes
    -----
    The result is not private: it depends on single rows.

    References
    ----------
    C. Dwork, M. Hardt, T. Pitassi, O. Reingold and R. Zemel, "Fairness through awareness", ITCS
    2012: statistical parity. :doi:`10.1145/2090236.2090255`

    Examples
    --------
    >>> from skdpot.fairness.metrics import demographic_parity_difference
    >>> groups = ["a", "a", "b", "b"]
    >>> demographic_parity_difference(None, [1, 1, 0, 1], sensitive_features=groups)
    0.5
    """
    rates = _selection_rates(y_pred, sensitive_features, sample_weight, pos_label, min_group_size)
    return _difference(*rates, method=method)


@documented
def demographic_parity_ratio(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: Any = None,
    pos_label: Any = None,
    min_group_size: int = 1,
) -> float:
    """Return the smallest ratio between groups of the rates of positive predictions.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or None
        Ignored; all metrics of predictions have this argument.
    {y_pred}
    {sensitive_features}
    {method}
    {sample_weight}
    {pos_label}
    {min_group_size}

    Returns
    -------
    float
        1 if all groups have the same rate, be it zero; 0 at least. The rule of four fifths asks for
        0.8.

    Raises
    ------
    ValueError
        If lengths differ, labels are missing or of more than two kinds, weights are negative or not
        finite, `method` is not one of the two, or there are fewer than two groups.

    See Also
    --------
    demographic_parity_difference : The difference of the same rates.

    Notes
    -----
    The result is not private: it depends on single rows.

    References
    ----------
    C. Dwork, M. Hardt, T. Pitassi, O. Reingold and R. Zemel, "Fairness through awareness", ITCS
    2012: statistical parity. :doi:`10.1145/2090236.2090255`

    Examples
    --------
    >>> from skdpot.fairness.metrics import demographic_parity_ratio
    >>> groups = ["a", "a", "b", "b"]
    >>> demographic_parity_ratio(None, [1, 1, 0, 1], sensitive_features=groups)
    0.5
    """
    rates = _selection_rates(y_pred, sensitive_features, sample_weight, pos_label, min_group_size)
    return _ratio(*rates, method=method)


@documented
def equalized_odds_difference(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: Any = None,
    agg: str = "worst_case",
    pos_label: Any = None,
    min_group_size: int = 1,
) -> float:
    """Return the largest difference between groups of true or false positive rates.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels, with at most two distinct values.
    {y_pred}
    {sensitive_features}
    {method}
    {sample_weight}
    agg : {"worst_case", "mean"}, default="worst_case"
        The larger of the two differences, or their mean.
    {pos_label}
    {min_group_size}

    Returns
    -------
    float
        0 if all groups have the same rates, 1 at most.

    Raises
    ------
    ValueError
        If lengths differ, labels are missing or of more than two kinds, weights are negative or not
        finite, `method` or `agg` is invalid, or neither rate can be compared between two groups.

    Warns
    -----
    UndefinedMetricWarning
        If a group has no positive row, or no negative one: it has no such rate, and is left out.

    See Also
    --------
    equalized_odds_ratio : The ratio of the same rates.

    Notes
    -----
    The result is not private: it depends on single rows.

    References
    ----------
    M. Hardt, E. Price and N. Srebro, "Equality of opportunity in supervised learning", NeurIPS
    2016: equalized odds. :doi:`10.48550/arXiv.1610.02413`

    Examples
    --------
    >>> from skdpot.fairness.metrics import equalized_odds_difference
    >>> y_true, y_pred = [0, 1, 1, 0, 1, 1], [0, 1, 1, 0, 0, 1]
    >>> equalized_odds_difference(y_true, y_pred, sensitive_features=list("aaabbb"))
    0.5
    """
    differences = [
        _difference(*rates, method=method)
        for rates in _odds(
            y_true, y_pred, sensitive_features, sample_weight, pos_label, min_group_size
        )
    ]
    return _aggregated(differences, agg, max)


@documented
def equalized_odds_ratio(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: Any = None,
    agg: str = "worst_case",
    pos_label: Any = None,
    min_group_size: int = 1,
) -> float:
    """Return the smallest ratio between groups of true or false positive rates.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels, with at most two distinct values.
    {y_pred}
    {sensitive_features}
    {method}
    {sample_weight}
    agg : {"worst_case", "mean"}, default="worst_case"
        The smaller of the two ratios, or their mean.
    {pos_label}
    {min_group_size}

    Returns
    -------
    float
        1 if all groups have the same rates, be they zero; 0 at least.

    Raises
    ------
    ValueError
        If lengths differ, labels are missing or of more than two kinds, weights are negative or not
        finite, `method` or `agg` is invalid, or neither rate can be compared between two groups.

    Warns
    -----
    UndefinedMetricWarning
        If a group has no positive row, or no negative one: it has no such rate, and is left out.

    See Also
    --------
    equalized_odds_difference : The difference of the same rates.

    Notes
    -----
    The result is not private: it depends on single rows.

    References
    ----------
    M. Hardt, E. Price and N. Srebro, "Equality of opportunity in supervised learning", NeurIPS
    2016: equalized odds. :doi:`10.48550/arXiv.1610.02413`

    Examples
    --------
    >>> from skdpot.fairness.metrics import equalized_odds_ratio
    >>> y_true, y_pred = [0, 1, 1, 0, 1, 1], [0, 1, 1, 0, 0, 1]
    >>> equalized_odds_ratio(y_true, y_pred, sensitive_features=list("aaabbb"))
    0.5
    """
    ratios = [
        _ratio(*rates, method=method)
        for rates in _odds(
            y_true, y_pred, sensitive_features, sample_weight, pos_label, min_group_size
        )
    ]
    return _aggregated(ratios, agg, min)


def _selection_rates(
    y_pred, sensitive_features, sample_weight, pos_label, min_group_size
) -> tuple[np.ndarray, float]:
    """Return the rate of positive predictions in each group, and overall."""
    selected = check_positives(y_pred, pos_label, "y_pred")
    groups = check_groups(selected, sensitive_features, min_group_size)
    return _rates(selected, groups, _check_weights(sample_weight, selected))


def _odds(
    y_true, y_pred, sensitive_features, sample_weight, pos_label, min_group_size
) -> list[tuple[np.ndarray, float]]:
    """Return the rates of positive predictions among positive rows, and among negative ones."""
    check_consistent_length(y_true, y_pred)
    positive = check_positives(y_true, pos_label, "y_true")
    selected = check_positives(y_pred, pos_label, "y_pred")
    groups = check_groups(selected, sensitive_features, min_group_size)
    weights = _check_weights(sample_weight, selected)
    odds = []
    for name, rows in (("positive", positive), ("negative", ~positive)):
        by_group, overall = _rates(selected, groups, weights * rows)
        undefined = int(np.isnan(by_group).sum())
        if undefined:
            warnings.warn(
                f"{undefined} of {len(by_group)} groups have no {name} rows in y_true, and so no "
                "rate of positive predictions among them: they are left out of it.",
                UndefinedMetricWarning,
                stacklevel=3,
            )
        odds.append((by_group[~np.isnan(by_group)], overall))
    return odds


def _check_weights(sample_weight, y):
    if sample_weight is None:
        return np.ones(len(y))
    check_consistent_length(y, sample_weight)
    weights = check_scores(sample_weight, "sample_weight")
    if (weights < 0).any():
        raise ValueError("sample_weight must be non-negative.")
    return weights


def _rates(selected, groups, weights):
    """Return the weighted share of selected rows in each group, NaN without rows, and overall."""
    weights = np.where(groups.codes >= 0, weights, 0.0)
    n_groups = len(groups.names)
    totals = np.bincount(groups.codes + 1, weights, n_groups + 1)[1:]
    hits = np.bincount(groups.codes + 1, weights * selected, n_groups + 1)[1:]
    by_group = np.divide(hits, totals, out=np.full(n_groups, np.nan), where=totals > 0)
    return by_group, hits.sum() / (totals.sum() or np.nan)


def _difference(by_group, overall, method):
    """Return the largest difference of rates, NaN without two rates."""
    check_choice("method", method, _METHODS)
    if len(by_group) < 2:
        return np.nan
    if method == "to_overall":
        return float(np.abs(by_group - overall).max())
    return float(np.ptp(by_group))


def _ratio(by_group, overall, method):
    """Return the smallest ratio of rates, 1 if both are zero, NaN without two rates."""
    check_choice("method", method, _METHODS)
    if len(by_group) < 2:
        return np.nan
    others = overall if method == "to_overall" else by_group.max()
    larger = np.maximum(by_group, others)
    smaller = np.minimum(by_group, others)
    return float(np.divide(smaller, larger, out=np.ones_like(larger), where=larger > 0).min())


def _aggregated(values, agg, worst):
    """Return the worst of two values or their mean, without missing ones."""
    check_choice("agg", agg, _AGGREGATIONS)
    defined = [value for value in values if not np.isnan(value)]
    if not defined:
        raise ValueError(
            "no two groups have rows of the same true label: no rates can be compared."
        )
    return worst(defined) if agg == "worst_case" else float(np.mean(defined))
