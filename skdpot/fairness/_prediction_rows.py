"""Rows of a fit without privacy, and the result of its predictions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.parallel import Parallel, delayed

from skdpot.fairness._groups import Groups
from skdpot.fairness._held_out import make_folds, one_score_per_row, scores_of_fold
from skdpot.fairness._predictions import share_of_ties

# Number of folds of cv="auto", and the share of ties above which it means None.
_FOLDS = 5
_MANY_TIES = 0.1


@dataclass(frozen=True, eq=False)
class PredictionRows:
    """Rows for the estimator, their targets, metadata and groups."""

    X: Any
    y: np.ndarray
    params: dict[str, Any]
    groups: Groups
    weights: np.ndarray

    def scores(
        self, fitted: Any, unfitted: Any, method: str, cv: Any, n_jobs: Any, random_state: Any
    ) -> np.ndarray:
        """Return the predictions that distributions are learned from, one for every row."""
        codes = self.groups.codes
        in_sample = one_score_per_row(fitted, method, self.X)
        automatic = isinstance(cv, str)
        if cv is None or (automatic and share_of_ties(in_sample, codes) > _MANY_TIES):
            return in_sample
        cv = _FOLDS if automatic else cv
        folds = make_folds(cv, self.y, codes, is_classifier(unfitted), random_state)
        found = Parallel(n_jobs=n_jobs)(
            delayed(scores_of_fold)(unfitted, method, self.X, self.y, *fold, self.params)
            for fold in folds
        )
        scores = np.empty(len(self.y))
        for (_, test), of_fold in zip(folds, found, strict=True):
            scores[test] = of_fold
        return scores
