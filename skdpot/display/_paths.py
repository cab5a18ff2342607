"""Cross-validated scores and parity of estimators, along the levels of their repair."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv, cross_validate
from sklearn.pipeline import Pipeline
from tqdm.auto import tqdm

_LEVEL = "repair_level"


@dataclass(frozen=True, eq=False)
class MeasuredPath:
    """Scores and parity measured of an estimator.

    Attributes
    ----------
    name : str
    levels : list of str
        The levels of its points; an estimator without levels has a single nameless point.
    costs, scores : ndarray of shape (n_levels, n_folds)
        Parity, as a positive number, and the score.
    """

    name: str
    levels: list[str]
    costs: np.ndarray
    scores: np.ndarray


def measure_paths(
    estimators: Mapping[str, Any],
    X: Any,
    y: Any,
    *,
    parity: Any,
    scoring: Any,
    levels: Sequence[float],
    cv: Any,
    verbose: int,
) -> list[MeasuredPath]:
    """Cross-validate estimators, the first of which has levels of repair."""
    first = next(iter(estimators.values()))
    if not has_levels(first):
        raise ValueError(
            "the estimator has no repair_level: pass a pipeline with a step that has one, such as "
            f"FairBarycenterPreprocessor; got a {type(first).__name__}."
        )
    folds = list(check_cv(cv, y, classifier=is_classifier(first)).split(X, y))
    measured = []
    with tqdm(total=len(folds) * len(estimators), unit=" folds", disable=not verbose) as bar:
        for name, estimator in estimators.items():
            chosen = list(levels) if has_levels(estimator) else [None]
            measure = _Measure(check_scoring(estimator, scoring), parity)
            found = np.empty((2, len(chosen), len(folds)))
            for k, fold in enumerate(folds):
                path = Path(estimator, chosen)
                scores = cross_validate(path, X, y, cv=[fold], scoring=measure, error_score="raise")
                found[:, :, k] = [
                    [scores[f"test_{what}_{place}"].item() for place in range(len(chosen))]
                    for what in ("parity", "score")
                ]
                bar.update()
            # Scorers of quantities that should be small are negative.
            texts = ["" if level is None else f"{level:g}" for level in chosen]
            measured.append(MeasuredPath(name, texts, np.abs(found[0]), found[1]))
    return measured


def has_levels(estimator: Any) -> bool:
    """Tell whether an estimator, or a step of a pipeline, has levels of repair."""
    return _LEVEL in estimator.get_params(deep=False) or _step_of(estimator) is not None


class Path(BaseEstimator):
    """An estimator at several levels of repair, with one fit of the repair."""

    def __init__(self, estimator, levels):
        self.estimator = estimator
        self.levels = levels

    def fit(self, X, y):
        """Fit the repair, and for each level the steps after it."""
        self.models_ = list(self._models(X, y))
        return self

    def _models(self, X: Any, y: Any) -> Iterator[Any]:
        step = _step_of(self.estimator)
        if step is None:
            fitted = clone(self.estimator).fit(X, y)
            for level in self.levels:
                yield fitted if level is None else copy(fitted).set_params(**{_LEVEL: level})
            return
        head = clone(self.estimator[: step + 1]).fit(X, y)
        rows = head[:-1].transform(X) if step else X
        name, repair = head.steps[-1]
        for level in self.levels:
            adjusted = copy(repair).set_params(**{_LEVEL: level})
            tail = clone(self.estimator[step + 1 :]).fit(adjusted.transform(rows), y)
            yield Pipeline([*head.steps[:-1], (name, adjusted), *tail.steps])


def _step_of(estimator: Any) -> int | None:
    """Return the number of the step of a pipeline that has levels of repair."""
    if not isinstance(estimator, Pipeline):
        return None
    steps = [
        k
        for k, (_, step) in enumerate(estimator.steps)
        if hasattr(step, "get_params") and _LEVEL in step.get_params(deep=False)
    ]
    if len(steps) > 1:
        raise ValueError("several steps of the pipeline have a repair_level.")
    return steps[0] if steps else None


@dataclass(frozen=True, eq=False)
class _Measure:
    """Scores and parity of all models of a path."""

    score: Any
    parity: Any

    def __call__(self, path: Path, X: Any, y: Any) -> dict[str, float]:
        return {
            f"{what}_{place}": scorer(model, X, y)
            for what, scorer in (("score", self.score), ("parity", self.parity))
            for place, model in enumerate(path.models_)
        }
