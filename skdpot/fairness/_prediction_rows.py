"""Rows of a fit without privacy, and the result of its predictions."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.parallel import Parallel, delayed

from skdpot.fairness._groups import Groups
from skdpot.fairness._held_out import make_folds, one_score_per_row, scores_of_fold
from skdpot.fairness._odds import MOST_ODDS_CELLS, OddsKernels
from skdpot.fairness._predictions import share_of_ties

# Number of folds of cv="auto", and the share of ties above which it means None.
_FOLDS = 5
_MANY_TIES = 0.1
# Number of classes of a regressor's targets, for equalized odds.
_TARGET_CLASSES = 5


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

    def odds(self, fitted: Any, scores: np.ndarray, n_cells: int | str) -> OddsKernels:
        """Return the kernels that equalize odds, or raise if a group lacks a class."""
        codes, n_groups = self.groups.codes, len(self.groups.names)
        kept = codes >= 0
        labels, n_classes = self._classes(fitted)
        sizes = np.zeros((n_groups, n_classes), dtype=np.intp)
        np.add.at(sizes, (codes[kept], labels[kept]), 1)
        if not sizes.all():
            g, c = np.argwhere(sizes == 0)[0].tolist()
            raise ValueError(
                f"the group {self.groups.names[g]!r} has no rows of class number {c} of the "
                "target, so odds cannot be equalized. Merge groups with FoundGroups(small='merge')."
            )
        if isinstance(n_cells, str):
            n_cells = max(2, min(MOST_ODDS_CELLS, math.isqrt(int(sizes.sum(axis=0).min()))))
        return OddsKernels.from_rows(scores[kept], codes[kept], labels[kept], self.weights, n_cells)

    def _classes(self, fitted: Any) -> tuple[np.ndarray, int]:
        """Return the class of each target as a number, and how many there are."""
        if is_classifier(fitted):
            if not np.isin(self.y, fitted.classes_).all():
                raise ValueError("y has classes that the estimator was not trained with.")
            return np.searchsorted(fitted.classes_, self.y), len(fitted.classes_)
        cuts = np.unique(np.quantile(self.y, np.arange(1, _TARGET_CLASSES) / _TARGET_CLASSES))
        # If targets have few different values, some classes have no rows.
        names, labels = np.unique(np.searchsorted(cuts, self.y), return_inverse=True)
        return labels, len(names)
