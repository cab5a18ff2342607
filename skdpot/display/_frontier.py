"""The plot of scores against their cost in privacy or fairness."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import sem

from ._paths import measure_paths
from ._style import DASHES, GREY, MARKERS, axes_for, check_option, colour_of, numbers

# With more epsilons, tick labels would overlap.
_MOST_TICKS = 8


@dataclass(eq=False, repr=False)
class FrontierDisplay:
    r"""Scores against their cost: an epsilon, or the difference between groups.

    Every estimator or mechanism is a curve, with error bars for repeated measurements. The plot is
    as sensitive as its input: scores of private data without noise are sensitive, even if the
    estimators are private. Create it with :meth:`from_scores` or, for accuracy against parity at
    several values of `repair_level`, with :meth:`from_estimator`.

    Parameters
    ----------
    costs : sequence of array-like of shape (n_points,) or (n_points, n_repeats)
        Costs of the points of each curve: epsilons, or differences between groups measured in each
        repeat.
    scores : sequence of array-like of shape (n_points, n_repeats)
        Scores of each curve: a row for each point, a column for each repeat.
    labels : sequence of str
        Names of the curves.
    point_names : sequence of (sequence of str), default=None
        Text beside the points of each curve.
    baseline : float, default=None
        The score without privacy; a horizontal line.
    score_name : str, default="Score"
        Label of the vertical axis.
    cost_name : str, default="$\varepsilon$"
        Label of the horizontal axis.
    scale : {"log", "linear"}, default="log"
        Scale of the horizontal axis. A logarithmic axis needs positive costs.
    error : {"standard_error", "std"}, default="standard_error"
        The length of the bars on either side: the standard error of the mean, as if repeats were
        independent, or their standard deviation. A single repeat has none.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : list of matplotlib Line2D
        The mean scores of each curve.
    errorbar_ : list of matplotlib ErrorbarContainer
        The curves with their bars.

    See Also
    --------
    sklearn.model_selection.ValidationCurveDisplay : Cross-validates an estimator with several
        values of a parameter, such as epsilon. Every fit is a release, and is charged.
    AuditDisplay : Tests a claimed epsilon.
    GroupDistributionDisplay : Columns by group, before and after a repair.

    Examples
    --------
    >>> from skdpot.display import FrontierDisplay
    >>> scores = {"input": ([1, 10], [[0.82, 0.84], [0.98, 0.99]]), "laplace": ([1], [[0.75]])}
    >>> display = FrontierDisplay.from_scores(scores, baseline=1.0, score_name="Welfare")
    >>> display.ax_.get_xscale(), len(display.lines_)
    ('log', 2)
    """

    costs: Sequence[Any]
    scores: Sequence[Any]
    _: KW_ONLY
    labels: Sequence[str]
    point_names: Sequence[Sequence[str]] | None = None
    baseline: float | None = None
    score_name: str = "Score"
    cost_name: str = r"$\varepsilon$"
    scale: str = "log"
    error: str = "standard_error"

    @classmethod
    def from_scores(
        cls, scores: Mapping[str, tuple[Any, Any]], *, ax: Any = None, **options: Any
    ) -> "FrontierDisplay":
        """Plot existing scores; nothing is released.

        Parameters
        ----------
        scores : dict of str to tuple
            For the name of each curve, a pair: costs of shape (n_points,) or (n_points,
            n_repeats), and scores of shape (n_points, n_repeats).
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        **options : dict
            Further parameters of the display, such as `baseline` and names of axes.

        Returns
        -------
        FrontierDisplay
            The plot.

        Raises
        ------
        ValueError
            If there is not one row of scores for each cost, or a cost cannot be drawn.
        """
        costs, repeats = (
            [mean_and_spread[k] for mean_and_spread in scores.values()] for k in (0, 1)
        )
        return cls(costs, repeats, labels=list(scores), **options).plot(ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        parity: Any,
        scoring: Any = None,
        levels: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
        peers: Mapping[str, Any] | None = None,
        cv: Any = 5,
        label: str = "repair",
        verbose: int = 0,
        ax: Any = None,
        **options: Any,
    ) -> "FrontierDisplay":
        """Cross-validate a repair at several levels, and plot scores against parity.

        In every fold the repair is fitted once, and the later steps of the pipeline once for each
        level. The scores and the picture are not private. An estimator with an epsilon makes a
        release, and is charged, in every fold.

        Parameters
        ----------
        estimator : estimator object
            An estimator with a `repair_level`, such as a FairBarycenterRegressor, or a pipeline
            with such a step, such as a FairBarycenterPreprocessor. It must take the attribute from
            columns of X.
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows, including the attribute.
        y : array-like of shape (n_samples,)
            Targets.
        parity : callable
            A scorer of parity, from :func:`~skdpot.fairness.metrics.make_fairness_scorer`.
        scoring : str or callable, default=None
            The score: a scorer or its name; None is the estimator's own.
        levels : sequence of float, default=(0.0, 0.25, 0.5, 0.75, 1.0)
            The levels of repair; they are written beside the points.
        peers : dict of str to estimator, default=None
            Estimators to compare with, by their names. Estimators with a `repair_level` are
            curves, others are points.
        cv : int, cross-validation generator or iterable, default=5
            The folds; error bars are over folds.
        label : str, default="repair"
            The name of the estimator's curve.
        verbose : int, default=0
            Above 0 a progress bar shows the folds.
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        **options : dict
            Further parameters of the display, such as `cost_name`.

        Returns
        -------
        FrontierDisplay
            The plot.

        Raises
        ------
        ValueError
            If the estimator has no `repair_level`, or if a fit raises.
        """
        paths = measure_paths(
            {label: estimator, **(peers or {})}, X, y, parity=parity, scoring=scoring,
            levels=levels, cv=cv, verbose=verbose,
        )  # fmt: skip
        defaults = {
            "score_name": scoring if isinstance(scoring, str) else "score",
            "cost_name": getattr(getattr(parity, "metric", None), "__name__", "difference"),
        }
        names = {name: words.replace("_", " ") for name, words in defaults.items()}
        display = cls(
            [path.costs for path in paths], [path.scores for path in paths],
            labels=[path.name for path in paths], point_names=[path.levels for path in paths],
            **({"scale": "linear"} | names | options),
        )  # fmt: skip
        return display.plot(ax)

    def plot(self, ax: Any = None) -> "FrontierDisplay":
        """Plot it again: means of the repeats, with bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.

        Returns
        -------
        FrontierDisplay
            This object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is not one row of scores for each cost, or a cost cannot be drawn.
        """
        check_option("error", self.error, ("standard_error", "std"))
        check_option("scale", self.scale, ("log", "linear"))
        curves = [
            _curve(*curve, self.scale, self.error)
            for curve in zip(self.costs, self.scores, self.labels, strict=True)
        ]
        self.ax_ = ax = axes_for(ax)
        self.figure_ = ax.figure
        if self.baseline is not None:
            ax.axhline(self.baseline, color=GREY, linestyle=":", label="without privacy")
        self.errorbar_ = [
            ax.errorbar(
                *curve, capsize=3, label=label, color=colour_of(k), markersize=5,
                marker=MARKERS[k % len(MARKERS)], linestyle=DASHES[k % len(DASHES)],
            )
            for k, (curve, label) in enumerate(zip(curves, self.labels, strict=True))
        ]  # fmt: skip
        self.lines_ = [bars.lines[0] for bars in self.errorbar_]
        for line, texts in zip(self.lines_, self.point_names or (), strict=False):
            for place, text in zip(line.get_xydata(), texts, strict=True):
                ax.annotate(
                    text, place, xytext=(4, -11), textcoords="offset points", fontsize="small"
                )
        self._finish()
        return self

    def _finish(self) -> None:
        ax = self.ax_
        ax.set_xscale(self.scale)
        if self.scale == "log":
            shown = np.unique(np.concatenate([line.get_xdata() for line in self.lines_] or [[]]))
            if 0 < len(shown) <= _MOST_TICKS:
                ax.set_xticks(shown, [f"{cost:g}" for cost in shown])
                ax.minorticks_off()
        ax.set(xlabel=self.cost_name, ylabel=self.score_name)
        ax.grid(alpha=0.3)
        if self.lines_ or self.baseline is not None:
            ax.legend(fontsize="small")


def _curve(
    costs: Any, scores: Any, label: str, scale: str, error: str
) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    """Return the means of costs and scores, and the errors of scores and of costs."""
    costs, scores = numbers(costs), numbers(scores)
    if not np.isfinite(costs).all() or (scale == "log" and not (costs > 0).all()):
        requirement = "positive and finite" if scale == "log" else "finite"
        raise ValueError(f"costs, such as epsilons, must be {requirement} numbers.")
    if scores.ndim != 2 or len(scores) != len(costs) or not scores.size:
        raise ValueError(
            f"scores of {label!r} must have shape ({len(costs)}, n_repeats), a row for each "
            f"cost; got shape {scores.shape}."
        )
    if costs.ndim == 2:
        if costs.shape != scores.shape:
            raise ValueError(
                f"costs of {label!r} must be as many as its scores: shape {scores.shape}; got "
                f"shape {costs.shape}."
            )
        means, errors = costs.mean(axis=1), _errors(costs, error)
        return means, scores.mean(axis=1), _errors(scores, error), errors
    order = np.argsort(costs, kind="stable")
    costs, scores = costs[order], scores[order]
    return costs, scores.mean(axis=1), _errors(scores, error), None


def _errors(repeats: np.ndarray, error: str) -> Any:
    """Return the lengths of error bars of means; NaN for a single repeat."""
    spread = sem if error == "standard_error" else partial(np.std, ddof=1)
    return spread(repeats, axis=1) if repeats.shape[1] > 1 else None
