"""The scores of candidates in one block of records, with all other effects hidden."""

import contextlib
import copy
import os
import random
import sys
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from joblib import parallel_config
from sklearn.base import clone
from sklearn.model_selection import cross_validate

from skdpot.model_selection._candidates import seed_trial
from skdpot.model_selection._copies import copy_of
from skdpot.privacy.choices import in_units
from skdpot.privacy.foreign import result_of, silence
from skdpot.privacy.preview import allow_useless_releases


class Judgement(NamedTuple):
    """The public rule by which a candidate is scored in a block.

    Attributes
    ----------
    scoring : str, callable or None
        As in `cross_validate`.
    cv : int, splitter or None
        As in `cross_validate`.
    params : dict
        Parameters of fits that are not divided with the records.
    score_range : tuple (low, high)
        The range that the mean over the block's splits is clipped to.
    process : int
        Number of the process in which the search runs.
    """

    scoring: Any
    cv: Any
    params: dict[str, Any]
    score_range: tuple[float, float]
    process: int


def _seed_globals(seed: int) -> None:
    """Seed the global random number generators of the process."""
    np.random.seed(seed)
    random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def score_block(
    trials: list[Any], X: Any, y: Any, groups: Any, params: Any, judgement: Judgement, seed: int
) -> list[int]:
    """Return the private scores of candidates in a block, in units of the range of scores.

    `trials` are from `make_trial`; `groups` and `params`, those of the block's records, are for the
    splitter and for fits. A candidate that fails has the lowest score.
    """
    # The process of the search is silent already. Others work on one block at a time.
    elsewhere = os.getpid() != judgement.process
    with silence() if elsewhere else contextlib.nullcontext():
        given = X, y, groups, params, judgement, seed
        scores = [result_of(partial(_score, trial, *given), None) for trial in trials]
        return [in_units(score, *judgement.score_range) for score in scores]


def _score(
    trial: Any, X: Any, y: Any, groups: Any, params: Any, judgement: Judgement, seed: int
) -> Any:
    trial = clone(trial)
    seed_trial(trial, seed)
    _seed_globals(seed)
    # Copies: candidates and blocks must neither affect nor see each other.
    scoring, cv, public = copy.deepcopy(judgement[:3])
    X, y, groups = copy_of(X), copy_of(y), copy_of(groups)
    params = public | {name: copy_of(values) for name, values in params.items()}
    # A trial of a private estimator has few records; whether it is useful depends on all of them.
    # Processes of a candidate would not be silent, so that it has threads only.
    with np.errstate(all="ignore"), allow_useless_releases(), parallel_config("threading"):
        found = cross_validate(
            trial, X, y, groups=groups, scoring=scoring, cv=cv, params=params, error_score="raise"
        )
        return np.mean(found["test_score"])
