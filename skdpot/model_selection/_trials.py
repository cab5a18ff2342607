"""The scores of candidates in one block of records, with all other effects hidden."""

import contextlib
import copy
import io
import logging
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import cross_validate
from sklearn.utils import get_tags

from skdpot.model_selection._candidates import seed_trial
from skdpot.model_selection._copies import copy_of
from skdpot.privacy.block_scores import in_units
from skdpot.privacy.preview import allow_useless_releases

# Number of made-up records with which an estimator is tried.
_MADE_UP = 20


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


def _torch_restorer() -> Callable[[], None]:
    """Return a function that restores torch's random states, without an import of torch."""
    before = sys.modules.get("torch")
    state = before.get_rng_state() if before else None
    on_cuda = before.cuda.get_rng_state_all() if before and before.cuda.is_initialized() else None

    def restore() -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if state is None or (on_cuda is None and torch.cuda.is_initialized()):
            torch.seed()  # objects set up meanwhile had no state before, and get a new one
        if state is not None:
            torch.set_rng_state(state)
        if on_cuda is not None:
            torch.cuda.set_rng_state_all(on_cuda)

    return restore


def _seed_globals(seed: int) -> None:
    """Seed the global random number generators of the process."""
    np.random.seed(seed)
    random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


class _Silence:
    """Hides all output and warnings inside, until the last of those inside has left.

    Streams, warnings and logs belong to the process: with several threads, the first one silences
    them and the last one restores them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._hush()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._undo.close()

    def _hush(self) -> None:
        self._undo.callback(np.random.set_state, np.random.get_state())
        self._undo.callback(random.setstate, random.getstate())
        self._undo.callback(_torch_restorer())
        self._undo.callback(logging.disable, logging.root.manager.disable)
        logging.disable(sys.maxsize)
        self._undo.enter_context(contextlib.redirect_stdout(io.StringIO()))
        self._undo.enter_context(contextlib.redirect_stderr(io.StringIO()))
        self._undo.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")


# Hides warnings, prints and logs, and restores random states. Output of compiled code that bypasses
# Python is not caught.
silence = _Silence()


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
        return [
            in_units(_score(trial, X, y, groups, params, judgement, seed), *judgement.score_range)
            for trial in trials
        ]


def _score(
    trial: Any, X: Any, y: Any, groups: Any, params: Any, judgement: Judgement, seed: int
) -> Any:
    try:
        trial = clone(trial)
        seed_trial(trial, seed)
        _seed_globals(seed)
        # Copies: candidates and blocks must neither affect nor see each other.
        scoring, cv, public = copy.deepcopy(judgement[:3])
        X, y, groups = copy_of(X), copy_of(y), copy_of(groups)
        params = public | {name: copy_of(values) for name, values in params.items()}
        # A trial of a private estimator has few records; whether it is useful depends on all of
        # them.
        with np.errstate(all="ignore"), allow_useless_releases():
            found = cross_validate(
                trial, X, y, groups=groups, scoring=scoring, cv=cv, params=params,
                error_score="raise",
            )  # fmt: skip
            return np.mean(found["test_score"])
    except KeyboardInterrupt:
        raise
    except BaseException:  # every failure of a candidate may depend on private records
        return None


def refuses_nan(trial: Any, n_features: int, with_nan: Sequence[int]) -> bool:
    """Tell whether a candidate refuses made-up records with a NaN in some columns.

    The result is False for all other failures, which real records may not cause.

    Examples
    --------
    >>> from sklearn.impute import SimpleImputer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdpot.model_selection._trials import refuses_nan
    >>> refuses_nan(LogisticRegression(), 3, [0])
    True
    >>> refuses_nan(make_pipeline(SimpleImputer(), LogisticRegression()), 3, [0])
    False
    """
    if get_tags(trial).input_tags.allow_nan:
        return False
    X = np.random.RandomState(0).uniform(size=(_MADE_UP, n_features))
    X[0, with_nan] = np.nan
    try:
        with np.errstate(all="ignore"), allow_useless_releases():
            clone(trial).fit(X, np.arange(_MADE_UP) % 2)
    except Exception as error:
        return "NaN" in str(error)
    return False
