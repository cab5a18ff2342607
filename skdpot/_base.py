"""Base of all estimators: the order of every fit, reading of private data, and progress bars."""

import math
import sys
import threading
import time
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from numbers import Integral
from types import FrameType
from typing import Any, Self, TypeVar

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.utils import get_tags
from sklearn.utils.validation import check_array, has_fit_parameter, validate_data
from tqdm.auto import tqdm

from skdpot._sklearn_compat import (
    InvalidParameterError,
    clone_parametrized,
    groups_are_lost,
    validate_parameters,
)
from skdpot.privacy import charging, checks
from skdpot.privacy.ledger import PrivacyLedger

# Whose frames are not the user's code.
_LIBRARIES = {"skdpot", "sklearn", "joblib", "contextlib", "numpy", "scipy", "pandas", "polars"}

# What is to be told at the end of a fit that has been charged: a filter may make an error of it.
_LATER: ContextVar[list | None] = ContextVar("later", default=None)


class _ErrorStream:
    """The standard error stream, for bars: where it is closed, the release goes on without.

    It is that of the time when the bar is made, so that a bar is seen during silent steps.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()

    def flush(self) -> None:
        """Do nothing more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_bar(*iterable: Any, verbose: bool | None, **options: Any) -> Any:
    """Return a bar of tqdm, which may fail to be shown.

    With None it is shown after three seconds, if the standard error stream is a terminal, and its
    clock goes on during a step. Processes that were started by another one show none: their bars
    would be mixed up. Of what is private, a clock tells the running time, which nothing protects.

    Examples
    --------
    >>> from skdpot._base import make_bar
    >>> list(make_bar([1, 2], verbose=None))
    [1, 2]
    """
    # For tqdm, None hides a bar on what is no terminal.
    hidden = (True if parent_process() else None) if verbose is None else not verbose
    shown = {"file": _ErrorStream(), "disable": hidden, "delay": 3.0 if verbose is None else 0.0}
    bar = tqdm(*iterable, **(shown | options))

    def tick() -> None:
        # A bar that is closed is disabled.
        while not bar.disable:
            time.sleep(bar.delay)
            bar.refresh()

    if not bar.disable and bar.delay:
        threading.Thread(target=tick, daemon=True).start()
    return bar


Result = TypeVar("Result")


def validate_private_data(
    estimator: BaseEstimator,
    X: Any,
    *,
    instead: Mapping[str, str] | None = None,
    as_numbers: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Any:
    """Return X as scikit-learn's `validate_data` does, with errors that quote no value of X.

    `instead` has beginnings of further messages of scikit-learn, each with its replacement. A
    ValueError names positions and shapes, never a value. With `as_numbers`, that of
    `skdpot.tables`, no value raises: NaN stands for those that are no numbers.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> from skdpot._base import validate_private_data
    >>> validate_private_data(BaseEstimator(), [["3.75 euros"]], dtype=float)
    Traceback (most recent call last):
    ValueError: X holds text that cannot be read as numbers. Convert it to numbers first.
    """

    def checked_data() -> Any:
        checks.refuse_dates("X", X)
        if as_numbers is None:
            return validate_data(estimator, X, **options)
        # Private values must not raise: what is no number becomes NaN here, and is placed later.
        numbers = as_numbers(X)
        if numbers is X:
            return validate_data(estimator, X, ensure_all_finite=False, **options)
        reset = options.pop("reset", True)
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        return check_array(numbers, ensure_all_finite=False, estimator=estimator, **options)

    checks.check_type("X", X)
    # The promise that values are finite holds even if the caller disabled the check; the sum that
    # scikit-learn checks first may overflow.
    with config_context(assume_finite=False), np.errstate(all="ignore"):
        checked = checks.redact_errors(
            checked_data,
            otherwise="X cannot be read as an array of real numbers, one row per user.",
            instead=instead,
        )
    refuse_bounds_in_other_order(getattr(estimator, "bounds", None), getattr(X, "columns", ()))
    return checked


def refuse_bounds_in_other_order(bounds: Any, names: Any) -> None:
    """Raise if bounds are series with the names of X in another order."""
    for end in bounds if isinstance(bounds, list | tuple) else ():
        checks.refuse_other_order("bounds", end, names)


def warn_of_uncounted(counted: float, of: str) -> None:
    """Warn that a release counts few records, `of` what; that is a function of the release."""
    warn_user(
        f"the release counts about {max(round(counted), 1):,} {of}. A record with a value that is "
        "not declared, or has another type, counts nowhere: compare the records with the "
        "declarations."
    )


def warn_of_empty(labels: Iterable, counts: np.ndarray, deviation: float) -> None:
    """Warn of declared classes of which a release shows no record, by the noise of its counts."""
    lost = [label for label, n in zip(labels, counts, strict=False) if n <= 2.0 * deviation]
    # Of a release that is nothing but noise, more is told elsewhere.
    if lost and np.max(counts) > 8.0 * deviation and not charging.useless_releases_are_allowed():
        warn_user(
            f"noise hides all records of {lost}, if there are any: what is learned of these is "
            "noise."
        )


def warn_of_few(counts: np.ndarray | float, deviation: float, n_records: int) -> None:
    """Warn if a release counts far fewer records than there are; the noise has this deviation.

    Of 176 private repairs and distances of tables of 300 to 3,000 rows that are declared, or of
    which a fifth lacks a number, none is told.
    """
    counted, noise = float(np.sum(counts)), deviation * float(np.sqrt(np.size(counts)))
    if counted + 4.0 * noise < 0.75 * n_records and not charging.useless_releases_are_allowed():
        warn_of_uncounted(counted, f"of {n_records:,} records")


def warn_of_bounds(axes: Iterable[tuple[str, np.ndarray, np.ndarray, np.ndarray, float]]) -> None:
    """Warn of axes of which all that is released is, but for noise, in one place, or missing.

    An axis has its name, the least and the largest number of each cell, noisy counts of the cells,
    and of missing values after them, and the standard deviation of the noise of each. The place is
    an end that is not 0, where bounds clip values, or next to 0, where values are if bounds are far
    too wide. The latter must be one cell, or a 25th of the bounds or less, or if it holds of all
    axes, an eighth of their box: columns of which nine in ten are 0 may be in wider cells. No
    private value is read.
    """
    axes, found = list(axes), []
    for name, lows, highs, counts, deviation in axes:
        numbers, missing = np.split(counts, [len(lows)])
        if holds_all(missing, numbers, deviation):
            found.append((f"{name} missing", True, 1.0))
        # Many columns are 0 in most records, and tables have a cell for them.
        numbers = np.where((lows == 0) & (highs == 0), 0.0, numbers)
        nearest = np.maximum(np.maximum(lows, -highs), 0.0)
        # Fits resolve what is 100,000 times smaller than its bounds, if cells are so fine.
        next_to_zero = nearest <= nearest.min() + 1e-5 * np.abs([lows, highs]).max()
        for place in (highs == highs[0], lows == lows[-1], next_to_zero):
            low, high, is_end = lows[place].min(), highs[place].max(), nearest[place].min() > 0
            width = (high - low) / (highs[-1] - lows[0])
            if width < 0.45 and holds_all(numbers[place], numbers[~place], deviation):
                declared = f"{low:.3g} and {high:.3g} of ({lows[0]:.6g}, {highs[-1]:.6g})"
                is_told = is_end or width <= 0.04 or place.sum() == 1
                found.append((f"{name} between {declared}", is_told, width))
                break
    is_box = len(found) == len(axes) and math.prod(width for *_, width in found) <= 0.125
    told = ", ".join(text for text, is_told, _ in found if is_told or is_box)
    if told and not charging.useless_releases_are_allowed():
        warn_user(
            f"nearly all that the release counts is in one place: {told}; compare bounds with the "
            "unit and the type of the values, and declare others from public knowledge."
        )


def holds_all(inside: np.ndarray, outside: np.ndarray, deviation: float) -> bool:
    """Tell whether noisy counts are, but for noise, inside; cells outside are in order.

    Counts inside must be many times the noise of those outside, and no adjacent ones of these are
    clear of noise.
    """
    kept, noise, sums = inside.sum(), deviation * math.sqrt(len(outside)), np.cumsum([0, *outside])
    first, last = np.triu_indices(len(sums), 1)
    clear = np.maximum(4.0 * deviation * np.sqrt(last - first), 0.005 * kept)
    few = sums[-1] < 0.01 * kept + min(2.0 * noise, 0.05 * kept)
    return kept > 14.0 * noise and few and not (sums[last] - sums[first] > clear).any()


def warn_of_grid(
    names: Sequence[str | None], box: Any, counts: np.ndarray, noise: float, n_records: int
) -> None:
    """Warn of noisy counts of groups that are few, or on a grid of even cells in one place.

    The grid is in a box, of which axes without a name are left out.
    """
    warn_of_few(counts, noise, n_records)
    axes: list[Any] = []
    for axis, (name, low, high) in enumerate(zip(names, *box, strict=True)):
        along = np.moveaxis(counts, axis + 1, 0).reshape(counts.shape[axis + 1], -1)
        edges, deviation = np.linspace(low, high, len(along) + 1), noise * math.sqrt(along.shape[1])
        axes += [(name, edges[:-1], edges[1:], along.sum(axis=1), deviation)] if name else []
    warn_of_bounds(axes)


# What was told within folds, and where.
_TOLD: set[Any] = set()


def warn_user(message: str | None, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line, about something public or not private; do nothing if it is None."""
    if message is None or checks.is_silent():
        return
    if (later := _LATER.get()) is not None:
        later.append((message, category))
        return
    # The first frame that is neither ours nor of a library that calls us is the user's.
    frame, level, in_folds = sys._getframe(1), 2, False
    while frame.f_back is not None and is_library(frame.f_back):
        frame, level = frame.f_back, level + 1
        in_folds |= frame.f_globals["__name__"].startswith("sklearn.model_selection")
    # Python shows a warning once for each line. Searches and cross-validation set filters anew for
    # each fold, and it would forget.
    if in_folds:
        told = message, frame.f_back and (frame.f_back.f_code, frame.f_back.f_lineno)
        if told in _TOLD:
            return
        _TOLD.add(told)
    warnings.warn(message, category, stacklevel=level + 1)


def warn_of_variants(labels: Iterable) -> None:
    """Warn of groups whose labels, not private, differ by capitals or blanks alone."""
    known: dict[str, str] = {}
    for label in [str(label) for label in labels if isinstance(label, str)]:
        if (first := known.setdefault(label.strip().lower(), label)) != label:
            warn_user(
                f"{first!r} and {label!r} are two groups: make them one if they are the same."
            )


def warn_of_stand_ins(columns: Iterable[Any], codes: np.ndarray) -> None:
    """Warn of columns, not private, where a number may stand for missing values, such as -999.

    Several rows have it, and it is the only one below 0, or far from all others. Many columns are 0
    in some rows and far from it in others. `codes` has the values of a column in each row.
    """
    for column, values in zip(columns, codes, strict=True):
        found, counts = np.unique(values[np.isfinite(values)], return_counts=True)
        for end, others in ((0, found[1:]), (-1, found[:-1])):
            if column.labels is None and len(others) > 4 and counts[end] > 2 and found[end] != 0:
                is_far = np.abs(others - found[end]).min() > 2 * np.ptp(others)
                if is_far or found[end] < 0 <= others[0]:
                    warn_user(
                        f"column {column.name!r} has the number {found[end]:g} in several rows, "
                        "apart from all others: if it stands for missing values, write NaN."
                    )


def is_library(frame: FrameType) -> bool:
    """Tell whether a stack frame is in this package, or in a library that calls it."""
    return frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES


LOST_GROUPS = (
    "the estimator's fit takes groups, and without metadata routing they are for the splitter "
    "alone: people with several records would not be protected. Call "
    "sklearn.set_config(enable_metadata_routing=True), and set_fit_request(groups=True) of the "
    "estimator."
)


class PrivateEstimator(BaseEstimator, metaclass=ABCMeta):
    """Base of all estimators: it orders the steps of a fit, and all copies share one ledger.

    *The ritual.* A subclass writes four methods, and its ``fit`` calls :meth:`_fit`:

    - ``_validate(*inputs)`` reads private data and checks everything that may be refused. Errors
      quote no private value.
    - ``_plan(data)`` returns a :class:`~skdpot.privacy.charging.ReleasePlan`, a function of public
      values alone: what will be released, what it costs, what is guaranteed.
    - ``_run(plan, data)`` makes the release. It is the only step that computes with private
      values, and it runs after the charge.
    - ``_keep(plan, released)`` sets the fitted attributes. It never sees the data.

    A fifth method, ``_declared(n_records, columns)``, returns a stand-in for the result of
    ``_validate`` from public values alone. ``_plan`` takes either, and :meth:`preview` shows the
    plan.

    A fit that is refused, fails or is interrupted leaves the earlier fit unchanged. Names of fitted
    state end in an underscore, or it is in the one attribute ``_fitted``. If releases are made
    after the fit (``sample``, ``score``), :meth:`_release` charges and runs each of them within
    :meth:`_guarded`, and a fit that itself releases nothing calls :meth:`_prepare` instead of
    :meth:`_fit`.

    *The ledger.* Clones share the ledger of the original, so that a grid search spends the user's
    budget. Pickles and deep copies do not hold an accountant that lives in one process: releasing
    from them is refused until they are given a ledger.
    """

    epsilon: Any
    ledger: Any
    privacy_guarantee_: Any
    _is_clone = False
    # What errors call what is passed beside X.
    _beside = "sensitive_features, y or groups"
    # By this, copies in worker processes know that useless releases are allowed.
    _permit: int | None = None

    @abstractmethod
    def _validate(self, *inputs: Any) -> Any:
        """Return the data and typed settings, or raise; errors quote no private value."""

    @abstractmethod
    def _plan(self, data: Any) -> charging.ReleasePlan:
        """Return the plan of the release, from public values only, or raise."""

    @abstractmethod
    def _declared(self, n_records: int, columns: Any) -> Any:
        """Return a stand-in for the data from their declaration, for `_plan`; or raise."""

    def _run(self, plan: charging.ReleasePlan, data: Any) -> Any:
        """Make the release, which has already been charged."""
        return plan.release.run(data, plan.source)

    @abstractmethod
    def _keep(self, plan: charging.ReleasePlan, released: Any) -> None:
        """Set the fitted attributes from the release."""

    def _keep_parts(self, plan: charging.ReleasePlan, total: np.ndarray, columns: Any) -> None:
        """Fit to the sum of all parts, which owners have released."""
        # The names of features, which are public.
        validate_data(self, columns, skip_check_array=True)
        self._replace_fit(plan, plan.release.read(total))

    def preview(self, n_records, columns=None, **public) -> charging.Preview:
        """Return what a fit would release, its price and its expected errors; charges nothing.

        No record is read. The preview depends only on the parameters and on the arguments, which
        must be public. Nothing is charged and nothing is released.

        Parameters
        ----------
        n_records : int
            Number of rows of X, or with ``groups`` of a generator the number of people. If the
            number is private (``neighbouring="add_remove"``), give a public guess.
        columns : int, list of str, or table, default=None
            Number of columns of X, or their names, or a table without rows (``X[:0]``), whose
            column names and types are read. Not needed if the parameters describe the columns.
        **public : dict
            Further public facts for some estimators: ``group_sizes`` for distances between groups,
            and ``groups=True`` for generators if people have several rows.

        Returns
        -------
        Preview
            The preview; see ``print``, its attributes and ``to_dict``.

        Raises
        ------
        ValueError
            If a parameter is wrong, as in a fit.
        """
        if not isinstance(n_records, Integral) or n_records < 1:
            raise ValueError(
                f"n_records must be a positive integer, got {checks.to_display(n_records)}. A "
                "preview reads no records: pass their number, or a public guess of it."
            )
        shape: tuple[int, ...] = getattr(columns, "shape", ())
        if len(shape) == 2 and shape[0]:
            # Rows may be private: nothing is taken from their table.
            raise ValueError("columns must be a table without rows, such as X[:0].")
        # A clone copies random states, so that later draws of this object do not change.
        estimator = clone(self)
        validate_parameters(estimator)
        declared: Callable[..., Any] = estimator._declared

        with np.errstate(all="ignore"):
            plan = estimator._plan(declared(int(n_records), columns, **public))
            return replace(plan, n_records=int(n_records)).preview(self.ledger, self.epsilon)

    def _validate_params(self) -> None:
        """Validate as scikit-learn does, but quote no table that was passed as a parameter."""
        for name, value in self.get_params(deep=False).items():
            for part in value if isinstance(value, list | tuple) else [value]:
                checks.check_type(name, part)
        try:
            super()._validate_params()
            return
        except InvalidParameterError as error:
            # The 'name' parameter of Estimator must be ... Got ... instead.
            said = str(error).partition(" Got ")[0]
        # Raised outside of the handler, so that the original message is not the context.
        value = self.get_params(deep=False).get(said.split("'")[1])
        raise InvalidParameterError(f"{said} Got {checks.to_display(value)} instead.")

    def _fit(self, X: Any, beside: Any, *others: Any) -> Self:
        """Validate, plan, charge, run and keep."""
        if isinstance(beside, str):
            raise ValueError(
                "fit needs one value for each row of X, got a single string. If it is the name of "
                "a column of X, pass the values of this column, and X without it; or name it in "
                "the constructor, as the target of a generator, or as sensitive_features."
            )

        # A fit without y could fail where nothing is shown, after the charge. Where `classes` say
        # whether it is needed, errors say more.
        if beside is None and not hasattr(self, "classes") and get_tags(self).target_tags.required:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Pass "
                "the target: fit(X, y). For a distance it is the group of every record."
            )

        def steps() -> Any:
            names = checks.names_of(X, "columns") if hasattr(X, "shape") else []
            if len(set(names)) < len(names):
                raise ValueError(f"column {max(names, key=names.count)!r} of X is there twice.")
            # A column of labels would be a feature that tells them. What is made of a column keeps
            # its name, but bands have another type; targets of regressors need not. So have codes
            # of the labels, of which a private repair cannot warn.
            own = getattr(beside, "name", None)
            pair = (beside, X[own]) if isinstance(own, str) and own in names else ()
            any_type = self.epsilon is not None and hasattr(self, "repair")
            is_same = any_type or len({getattr(each, "dtype", None) for each in pair}) == 1
            if pair and is_same and not is_regressor(self):
                raise ValueError(
                    f"column {own!r} is in X and beside it: drop it from X, or rename it."
                )
            with checks.silence() if self.epsilon is not None else nullcontext():
                # Values may be objects whose own code prints, warns or draws when it is asked.
                for one in (beside, *others):
                    named = one if isinstance(one, Mapping) else {self._beside: one}
                    checks.refuse_other_rows(X, named)
                data = self._validate(X, beside, *others)
            plan = self._plan(data)
            warn_user(plan.refuse_useless(self._permit))
            return self._release(plan, data, partial(self._replace_fit, plan), told)

        told: list = []
        self._guarded(steps)
        for message, category in told:
            warn_user(message, category)
        return self

    def _prepare(self, *inputs: Any) -> Self:
        """Validate, plan and check the ledger, without a release; keep the plan."""

        def steps() -> Any:
            plan = self._plan(self._validate(*inputs))
            warn_user(plan.refuse_useless(self._permit))
            plan.check(self.ledger)
            return self._replace_fit(plan, plan.release)

        return self._guarded(steps)

    def _guarded(self, steps: Callable[[], Result]) -> Result:
        """Return the result of steps; if they raise, keep the earlier fit, and name no size."""
        # A fit that fails leaves the last one as it was.
        earlier = self._fitted_state()
        try:
            # Floating-point warnings and errors may depend on private values.
            with np.errstate(all="ignore"):
                return steps()
        except BaseException as error:
            for name in self._fitted_state():
                delattr(self, name)
            self.__dict__.update(earlier)
            said = checks.without_sizes(error)
            if said is error:
                raise
        # Outside of the handler, so that the error with a size is no context of this one.
        raise said

    def _replace_fit(self, plan: charging.ReleasePlan, released: Any) -> Self:
        """Replace the attributes of the last fit by those of the new one."""
        for name in self._fitted_state():
            # These were read from the columns of X, before anything was planned.
            if name not in ("n_features_in_", "feature_names_in_"):
                delattr(self, name)
        # `_keep` sees no data, so that nothing private can be kept.
        self._keep(plan, released)
        self.privacy_guarantee_ = plan.guarantee
        return self

    def _release(
        self,
        plan: charging.ReleasePlan,
        data: Any,
        keep: Callable = lambda made: made,
        told: list | None = None,
    ):
        """Charge a plan to the ledger, then run it and keep what is released.

        If this is interrupted, or fails after the charge, a note at the error says so. Warnings of
        the run are added to `told`.
        """
        plan.check(self.ledger)
        note = "The entries of the ledger say whether it was charged before this."
        refused = True
        try:
            receipt = plan.charge_to(self.ledger, pending=True)
            refused = False
            note = (
                "The ledger was charged before this, and stays charged: see its entries. The "
                "release is lost, and another call is charged again."
            )
            shown = _LATER.set(_LATER.get() if told is None else told)
            try:
                with np.errstate(all="ignore"):
                    released = keep(self._run(plan, data))
            finally:
                _LATER.reset(shown)
            if receipt is not None:
                self.ledger.finish(receipt)
            return released
        except BaseException as error:
            if not (refused and isinstance(error, Exception)):
                # An interruption says nothing about how far the charge has come.
                if self.ledger is not None:
                    error.add_note(note)
            elif self._is_clone and isinstance(error, ValueError):
                # It was refused by the budget.
                error.add_note(
                    "This estimator is a clone, as searches and cross-validations make them. These "
                    "fit once for each candidate and fold, and every fit is charged. "
                    "PrivateSearchCV charges a search once."
                )
            raise

    def _fitted_state(self) -> dict[str, Any]:
        """Return all attributes that a fit has set, by name."""
        return {
            name: value
            for name, value in vars(self).items()
            if name == "_fitted" or (name.endswith("_") and not name.startswith("_"))
        }

    def __sklearn_clone__(self) -> "PrivateEstimator":
        # Searches of scikit-learn make a clone before the first fit, which would be charged.
        if hasattr(self, "fit") and has_fit_parameter(self, "groups") and groups_are_lost():
            raise ValueError(LOST_GROUPS)
        duplicate = clone_parametrized(self)
        duplicate._is_clone = True
        # `clone` copies parameters, and a copied ledger would have a budget of its own.
        if "ledger" in vars(self):
            duplicate.ledger = self.ledger
        duplicate._permit = self._permit
        return duplicate

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        # A copy in another process would count its charges apart, and the sum would exceed the
        # budget.
        if charging.is_budget_accountant(state.get("ledger")):
            state["ledger"] = charging.DetachedLedger()
        state["_permit"] = charging.permit_of_process()
        return state


def make_trial(candidate: Any) -> Any:
    """Return a copy of a candidate that charges no ledger, prints nothing and keeps no files.

    It is fitted on a part of one block. Noise on its scores covers everything that it computes from
    its block: the search pays for its charges, and the length of a ledger or of printed text would
    reveal how many candidates there were.
    """
    trial = clone(candidate)
    for part in [trial, *trial.get_params(deep=True).values()]:
        # Callbacks of scikit-learn may show or keep what they are told.
        if hasattr(part, "set_callbacks") and not isinstance(part, type):
            part.set_callbacks()
    changes: dict[str, Any] = {}
    for path, value in trial.get_params(deep=True).items():
        name = path.rpartition("__")[2]
        # A cache on disk would keep models of blocks.
        if name in ("ledger", "memory"):
            changes[path] = None
        elif name == "accountant":
            # diffprivlib's models would charge the default one otherwise.
            changes[path] = charging.load_accountant("BudgetAccountant")()
        elif name == "verbose" and value != 0:
            changes[path] = False
        elif not hasattr(value, "get_params"):
            changes[path] = _charging_nobody(value)
    return trial.set_params(**changes)


def _charging_nobody(value: Any) -> Any:
    """Return a parameter's value without ledgers, also within containers such as a grid."""
    if isinstance(value, PrivacyLedger):
        return None
    if charging.is_budget_accountant(value):
        return charging.load_accountant("BudgetAccountant")()
    if type(value) is dict:
        return {key: _charging_nobody(inside) for key, inside in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_charging_nobody, value))
    if hasattr(value, "get_params") and not isinstance(value, type):
        return make_trial(value)
    return value


def count_columns(columns: Any, default: int | None = None) -> int:
    """Return the number of columns that were declared to `preview`, or raise.

    `columns` are their number, their names, or a table without rows; for None it is the default, or
    an error.
    """
    columns = default if columns is None else columns
    if isinstance(columns, Integral) and int(columns) >= 1:
        return int(columns)
    shape: tuple[int, ...] = getattr(columns, "shape", ())
    if len(shape) == 2:
        return int(shape[1])
    if columns is not None and not isinstance(columns, str):
        return len(list(columns))
    got = "it is missing" if columns is None else f"got an object of {type(columns)}"
    raise ValueError(
        "columns must say how many columns X will have: a number, a list of names, or a table "
        f"without rows such as X[:0], as in preview(n_records, X[:0]); {got}."
    )
