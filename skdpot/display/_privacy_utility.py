"""What privacy costs: scores against epsilon."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv, cross_val_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import indexable

from skdpot.display._style import DASHES, GREY, MARKERS, axes_for, colour_of, numbers

# Beyond so many epsilons their ticks would overlap.
_MOST_TICKS = 8
_ERRORS = ("standard_error", "std", None)
_ERROR_STYLES = ("errorbar", "fill_between")


class PrivacyUtilityDisplay:
    r"""Scores against epsilon, a curve for each estimator or mechanism.

    What is drawn is as private as what was passed: scores of private data without noise are as
    private as these, however private the estimators are. Make one with :meth:`from_estimator` or
    :meth:`from_scores`.

    Parameters
    ----------
    epsilons : sequence of array-like of shape (n_epsilons,)
        Privacy parameters of each curve, positive.
    scores : sequence of array-like of shape (n_epsilons, n_repeats)
        Scores of each curve: a row for each epsilon, a column for each repeat.
    labels : sequence of str
        Names of the curves.
    baseline : float, default=None
        The score without privacy; a horizontal line.
    score_name : str, default="Score"
        What scores are; the label of the vertical axis.
    epsilon_name : str, default="$\varepsilon$"
        Whose epsilon it is; the label of the horizontal axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was plotted.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : list of matplotlib Line2D
        The mean scores of each curve.
    errorbar_ : list of matplotlib ErrorbarContainer or None
        The curves, if errors are bars.
    fill_between_ : list of (matplotlib PolyCollection or None) or None
        Bands of each curve that has errors, if they are bands.

    See Also
    --------
    sklearn.model_selection.ValidationCurveDisplay : Scores against any parameter.
    AuditDisplay : Whether an epsilon is what it is claimed to be.

    Examples
    --------
    >>> from skdpot.display import PrivacyUtilityDisplay
    >>> scores = {"input": ([1, 10], [[0.82, 0.84], [0.98, 0.99]]), "messages": ([1], [[0.75]])}
    >>> display = PrivacyUtilityDisplay.from_scores(scores, baseline=1.0, score_name="Welfare")
    >>> display.ax_.get_xscale(), len(display.lines_)
    ('log', 2)
    """

    def __init__(
        self,
        epsilons: Sequence[Any],
        scores: Sequence[Any],
        *,
        labels: Sequence[str],
        baseline: float | None = None,
        score_name: str = "Score",
        epsilon_name: str = r"$\varepsilon$",
    ) -> None:
        self.epsilons = epsilons
        self.scores = scores
        self.labels = labels
        self.baseline = baseline
        self.score_name = score_name
        self.epsilon_name = epsilon_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        epsilons: Any,
        param_name: str = "epsilon",
        scoring: Any = None,
        cv: Any = None,
        groups: Any = None,
        params: Mapping[str, Any] | None = None,
        n_repeats: int = 1,
        random_state: Any = None,
        n_jobs: int | None = None,
        baseline: float | None = None,
        score_name: str | None = None,
        error: str | None = "standard_error",
        error_style: str = "errorbar",
        ax: Any = None,
    ) -> "PrivacyUtilityDisplay":
        r"""Cross-validate estimators with each epsilon, and plot their scores.

        **This makes releases.** Each estimator is fitted ``n_epsilons * n_splits * n_repeats``
        times, and every fit that releases something is charged to the estimator's ledger, which
        clones share: ``n_splits * n_repeats * sum(epsilons)`` for one that spends epsilon a fit, in
        pairs of which delta is spent as often. Estimators whose score is a release, such as
        :class:`~skdpot.PrivateSinkhornDistance`, are charged as much again; samplers, whose fits
        and scores release nothing, are not. No score of training rows is taken.

        **The curve is not private** if scores are not: all of them are drawn as they are, and the
        epsilon that is chosen by them depends on the data. Use public data, or rows of people who
        agree to it.

        Parameters
        ----------
        estimator : estimator, or dict of str to estimator
            What is fitted, or several by their names, each of which is a curve.
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,), default=None
            Targets, labels or groups, where the estimator has them.
        epsilons : array-like of shape (n_epsilons,)
            Privacy parameters to try, positive.
        param_name : str, default="epsilon"
            The parameter that they are given to, such as ``"sampler__epsilon"`` in a pipeline.
        scoring : str or callable, default=None
            See :func:`sklearn.model_selection.cross_val_score`; None is the estimator's own.
        cv : int, cross-validation generator or iterable, default=None
            See :func:`sklearn.model_selection.cross_val_score`. All epsilons and repeats have the
            same splits.
        groups : array-like of shape (n_samples,), default=None
            Which rows go together in the splits.
        params : dict, default=None
            What else `fit` is given, such as ``{"sensitive_features": ...}``; and the scorer, if
            metadata is routed.
        n_repeats : int, default=1
            How often each split is used, with other noise every time.
        random_state : int or RandomState instance, default=None
            With None every fit draws as the estimator does. Otherwise every fit is given a seed of
            its own, so that repeats differ and the plot is reproducible; such releases are *not
            private*, and ledgers refuse them unless they were made to take them.
        n_jobs : int, default=None
            Processes over the splits.
        baseline : float, default=None
            The score without privacy; a horizontal line.
        score_name : str, default=None
            The label of the vertical axis. None is the name of the `scoring` if it has one.
        error : {"standard_error", "std", None}, default="standard_error"
            See :meth:`plot`.
        error_style : {"errorbar", "fill_between"}, default="errorbar"
            See :meth:`plot`.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        PrivacyUtilityDisplay
            The plot.

        Raises
        ------
        ValueError
            If epsilons, repeats or the parameter's name are wrong; nothing is released then.
        BudgetExceededError
            If a ledger does not allow a fit. What was released before is released, and charged.
        """
        epsilons = _checked_epsilons(epsilons)
        _check_errors(error, error_style)
        if not isinstance(n_repeats, Integral) or n_repeats < 1:
            raise ValueError(f"n_repeats must be a positive integer, got {n_repeats!r}.")
        if not isinstance(estimator, Mapping):
            estimator = {type(estimator).__name__: estimator}
        for each in estimator.values():
            _check_parameter(each, param_name)
        X, y, groups = indexable(X, y, groups)
        source = None if random_state is None else check_random_state(random_state)
        options = {"scoring": scoring, "n_jobs": n_jobs, "params": params, "error_score": "raise"}
        scores = []
        for each in estimator.values():
            splits = list(check_cv(cv, y, classifier=is_classifier(each)).split(X, y, groups))
            scores.append(
                [
                    np.concatenate(
                        [
                            cross_val_score(candidate, X, y, cv=splits, **options)
                            for candidate in _candidates(
                                each, {param_name: float(epsilon)}, n_repeats, source
                            )
                        ]
                    )
                    for epsilon in epsilons
                ]
            )
        display = cls(
            [epsilons] * len(estimator),
            scores,
            labels=list(estimator),
            baseline=baseline,
            score_name=_name_of(scoring) if score_name is None else score_name,
        )
        return display.plot(ax, error=error, error_style=error_style)

    @classmethod
    def from_scores(
        cls,
        scores: Mapping[str, tuple[Any, Any]],
        *,
        baseline: float | None = None,
        score_name: str = "Score",
        epsilon_name: str = r"$\varepsilon$",
        error: str | None = "standard_error",
        error_style: str = "errorbar",
        ax: Any = None,
    ) -> "PrivacyUtilityDisplay":
        r"""Plot scores that there are already; nothing is released.

        Parameters
        ----------
        scores : dict of str to tuple
            By the name of each curve, its epsilons, of shape (n_epsilons,), and its scores, of
            shape (n_epsilons, n_repeats).
        baseline : float, default=None
            The score without privacy; a horizontal line.
        score_name : str, default="Score"
            The label of the vertical axis.
        epsilon_name : str, default="$\varepsilon$"
            The label of the horizontal axis.
        error : {"standard_error", "std", None}, default="standard_error"
            See :meth:`plot`.
        error_style : {"errorbar", "fill_between"}, default="errorbar"
            See :meth:`plot`.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        PrivacyUtilityDisplay
            The plot.

        Raises
        ------
        ValueError
            If there is not one row of scores for each epsilon, or an epsilon is not positive.
        """
        display = cls(
            [of_curve for of_curve, _ in scores.values()],
            [repeats for _, repeats in scores.values()],
            labels=list(scores),
            baseline=baseline,
            score_name=score_name,
            epsilon_name=epsilon_name,
        )
        return display.plot(ax, error=error, error_style=error_style)

    def plot(
        self,
        ax: Any = None,
        *,
        error: str | None = "standard_error",
        error_style: str = "errorbar",
    ) -> "PrivacyUtilityDisplay":
        """Plot it, once more.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.
        error : {"standard_error", "std", None}, default="standard_error"
            What is drawn about the mean of the repeats, on either side: its standard error, as if
            repeats were independent, which folds are not quite; their standard deviation; or
            nothing. A single repeat has neither.
        error_style : {"errorbar", "fill_between"}, default="errorbar"
            As what it is drawn.

        Returns
        -------
        PrivacyUtilityDisplay
            This very object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is not one row of scores for each epsilon, or an epsilon is not positive.
        """
        _check_errors(error, error_style)
        curves = [
            _curve(epsilons, scores, label, error)
            for epsilons, scores, label in zip(self.epsilons, self.scores, self.labels, strict=True)
        ]
        self.ax_ = ax = axes_for(ax)
        self.figure_ = ax.figure
        self.lines_: list[Any] = []
        self.errorbar_: list[Any] | None = [] if error_style == "errorbar" else None
        self.fill_between_: list[Any] | None = None if error_style == "errorbar" else []
        if self.baseline is not None:
            ax.axhline(self.baseline, color=GREY, linestyle=":", label="without privacy")
        for number, (curve, label) in enumerate(zip(curves, self.labels, strict=True)):
            self._plot_curve(*curve, label, number)
        self._finish()
        return self

    def _plot_curve(
        self, epsilons: np.ndarray, means: np.ndarray, errors: Any, label: str, number: int
    ) -> None:
        style = {
            "label": label,
            "color": colour_of(number),
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": DASHES[number % len(DASHES)],
            "markersize": 5,
        }
        if self.errorbar_ is not None:
            bars = self.ax_.errorbar(epsilons, means, errors, capsize=3, **style)
            self.errorbar_.append(bars)
            self.lines_.append(bars.lines[0])
            return
        self.lines_ += self.ax_.plot(epsilons, means, **style)
        band = None
        if errors is not None:
            options = {"color": style["color"], "alpha": 0.2, "linewidth": 0.0}
            band = self.ax_.fill_between(epsilons, means - errors, means + errors, **options)
        assert self.fill_between_ is not None
        self.fill_between_.append(band)

    def _finish(self) -> None:
        ax = self.ax_
        ax.set_xscale("log")
        shown = np.unique(np.concatenate([numbers(of) for of in self.epsilons] or [np.empty(0)]))
        if 0 < len(shown) <= _MOST_TICKS:
            ax.set_xticks(shown, [f"{epsilon:g}" for epsilon in shown])
            ax.minorticks_off()
        ax.set(xlabel=self.epsilon_name, ylabel=self.score_name)
        ax.grid(alpha=0.3)
        if self.lines_ or self.baseline is not None:
            ax.legend(fontsize="small")


def _checked_epsilons(epsilons: Any) -> np.ndarray:
    """Return what may be epsilons of a curve."""
    epsilons = numbers(epsilons)
    if epsilons.ndim != 1 or not epsilons.size:
        raise ValueError(
            f"epsilons must be a list of at least one number, got shape {epsilons.shape}."
        )
    if not (np.isfinite(epsilons) & (epsilons > 0)).all():
        raise ValueError("epsilons must be positive and finite.")
    return epsilons


def _check_errors(error: str | None, error_style: str) -> None:
    if error not in _ERRORS:
        raise ValueError(f"error must be one of {_ERRORS}, got {error!r}.")
    if error_style not in _ERROR_STYLES:
        raise ValueError(f"error_style must be one of {_ERROR_STYLES}, got {error_style!r}.")


def _check_parameter(estimator: Any, param_name: str) -> None:
    names = estimator.get_params(deep=True)
    if param_name not in names:
        near = sorted(name for name in names if name.split("__")[-1] == "epsilon")
        raise ValueError(
            f"{type(estimator).__name__} has no parameter {param_name!r}; give one of "
            f"{near or sorted(names)} as param_name."
        )


def _candidates(estimator: Any, values: dict[str, float], n_repeats: int, source: Any) -> Any:
    """Yield clones with these values, and seeds of their own if there is a source of them."""
    for _ in range(n_repeats):
        candidate = clone(estimator).set_params(**values)
        if source is not None:
            seeded = [
                name
                for name in sorted(candidate.get_params(deep=True))
                if name.split("__")[-1] == "random_state"
            ]
            candidate.set_params(**{name: source.randint(2**31 - 1) for name in seeded})
        yield candidate


def _name_of(scoring: Any) -> str:
    return scoring.replace("_", " ").capitalize() if isinstance(scoring, str) else "Score"


def _curve(
    epsilons: Any, scores: Any, label: str, error: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return epsilons, ascending, with means of their scores and what is drawn about them."""
    epsilons, scores = _checked_epsilons(epsilons), numbers(scores)
    if scores.ndim != 2 or len(scores) != len(epsilons) or not scores.size:
        raise ValueError(
            f"scores of {label!r} must have shape ({len(epsilons)}, n_repeats), a row for each "
            f"epsilon; got shape {scores.shape}."
        )
    order = np.argsort(epsilons, kind="stable")
    epsilons, scores = epsilons[order], scores[order]
    n_repeats = scores.shape[1]
    if n_repeats == 1 or error is None:
        return epsilons, scores.mean(axis=1), None
    errors = scores.std(axis=1, ddof=1)
    if error == "standard_error":
        errors = errors / np.sqrt(n_repeats)
    return epsilons, scores.mean(axis=1), errors
