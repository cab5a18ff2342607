"""A test of whether held-out rows can be told apart by group."""

import numpy as np
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingClassifier

from skdpot.fairness._conditional._softmax import minimise

# Maximum number of rows; or this many for each feature and group, if that is more.
_MOST_ROWS, _ROWS_PER_CELL = 6000, 10
_N_PARTS = 3
# An area under the curve must exceed its limit by this many standard errors.
_STANDARD_ERRORS = 1.5
_PENALTY = 10.0
# Number of boosted trees of all groups together, and minimum number of iterations.
_N_TREES, _LEAST_ITER = 60, 10


def groups_are_told_apart(features: np.ndarray, groups: np.ndarray, tol: float) -> bool:
    """Tell whether a classifier finds a group in held-out rows.

    It does if the area under the curve, for one group against the others, exceeds 0.5 + tol by more
    than chance allows. A linear classifier is tried first, then boosted trees.
    """
    if tol <= 0:
        return True
    most = max(_MOST_ROWS, _ROWS_PER_CELL * features.shape[1] * (int(groups.max()) + 1))
    features, groups = features[:most], groups[:most]
    parts = np.arange(len(groups)) % _N_PARTS
    for classify in (_linear, _boosted):
        scores = np.zeros((len(groups), groups.max() + 1))
        for part in range(_N_PARTS):
            trained, tested = parts != part, parts == part
            if tested.any() and len(np.unique(groups[trained])) > 1:
                scores[tested] = classify(features[trained], groups[trained], features[tested],
                                          scores.shape[1])  # fmt: skip
        if any(_lower_limit(scores[:, g], groups == g) > 0.5 + tol for g in range(scores.shape[1])):
            return True
    return False


def _linear(features: np.ndarray, groups: np.ndarray, new: np.ndarray, n_groups: int) -> np.ndarray:
    means, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale == 0] = 1.0
    level = np.log(np.bincount(groups, minlength=n_groups) + 0.5)
    offset = np.broadcast_to(level[:, None], (n_groups, len(groups)))
    penalties = np.full(features.shape[1], _PENALTY)
    slopes, _ = minimise(((features - means) / scale).T, groups, offset, penalties)
    return (new - means) / scale @ slopes.T


def _boosted(
    features: np.ndarray, groups: np.ndarray, new: np.ndarray, n_groups: int
) -> np.ndarray:
    classifier = HistGradientBoostingClassifier(
        max_iter=max(_LEAST_ITER, _N_TREES // n_groups),
        max_leaf_nodes=15,
        early_stopping=False,
        random_state=0,
    ).fit(features, groups)
    scores = np.zeros((len(new), n_groups))
    scores[:, classifier.classes_] = classifier.predict_proba(new)
    return scores


def _lower_limit(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return a lower confidence limit of an area under the curve."""
    n_positive, n_negative = positive.sum(), (~positive).sum()
    if not n_positive or not n_negative:
        return 0.0
    above = rankdata(scores)[positive].sum() - n_positive * (n_positive + 1) / 2
    error = np.sqrt((len(scores) + 1) / (12 * n_positive * n_negative))
    return above / (n_positive * n_negative) - _STANDARD_ERRORS * error
