"""The plot of scores against epsilon."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import sem

from ._style import DASHES, GREY, MARKERS, axes_for, check_option, colour_of, numbers

# Beyond so many epsilons their ticks would overlap.
_MOST_TICKS = 8


@dataclass(eq=False, repr=False)
class PrivacyUtilityDisplay:
    r"""Scores against epsilon, a curve for each estimator or mechanism.

    What is drawn is as private as what was passed: scores of private data without noise are as
    private as these, however private the estimators are. Make one with :meth:`from_scores`.

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

    error : {"standard_error", "std"}, default="standard_error"
        The length of the bars on either side: the standard error of the mean, as if repeats were
        independent, or their standard deviation. A single repeat has none.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was plotted.
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
    AuditDisplay : Whether an epsilon is what it is claimed to be.

    Examples
    --------
    >>> from skdpot.display import PrivacyUtilityDisplay
    >>> scores = {"input": ([1, 10], [[0.82, 0.84], [0.98, 0.99]]), "laplace": ([1], [[0.75]])}
    >>> display = PrivacyUtilityDisplay.from_scores(scores, baseline=1.0, score_name="Welfare")
    >>> display.ax_.get_xscale(), len(display.lines_)
    ('log', 2)
    """

    epsilons: Sequence[Any]
    scores: Sequence[Any]
    _: KW_ONLY
    labels: Sequence[str]
    baseline: float | None = None
    score_name: str = "Score"
    epsilon_name: str = r"$\varepsilon$"
    error: str = "standard_error"

    @classmethod
    def from_scores(
        cls, scores: Mapping[str, tuple[Any, Any]], *, ax: Any = None, **options: Any
    ) -> "PrivacyUtilityDisplay":
        """Plot scores that there are already; nothing is released.

        Parameters
        ----------
        scores : dict of str to tuple
            By the name of each curve, its epsilons, of shape (n_epsilons,), and its scores, of
            shape (n_epsilons, n_repeats).
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.
        **options : dict
            The baseline and the names of the axes: further parameters of the display.

        Returns
        -------
        PrivacyUtilityDisplay
            The plot.

        Raises
        ------
        ValueError
            If there is not one row of scores for each epsilon, or an epsilon is not positive.
        """
        epsilons, repeats = ([of[k] for of in scores.values()] for k in (0, 1))
        return cls(epsilons, repeats, labels=list(scores), **options).plot(ax)

    def plot(self, ax: Any = None) -> "PrivacyUtilityDisplay":
        """Plot it, once more: means of the repeats, with bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

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
        check_option("error", self.error, ("standard_error", "std"))
        curves = [
            _curve(*of, self.error)
            for of in zip(self.epsilons, self.scores, self.labels, strict=True)
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
        self._finish()
        return self

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


def _curve(
    epsilons: Any, scores: Any, label: str, error: str
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return epsilons, ascending, with the means of their scores and errors."""
    epsilons, scores = numbers(epsilons), numbers(scores)
    if epsilons.ndim != 1 or not (np.isfinite(epsilons) & (epsilons > 0)).all():
        raise ValueError("epsilons must be positive and finite numbers.")
    if scores.ndim != 2 or len(scores) != len(epsilons) or not scores.size:
        raise ValueError(
            f"scores of {label!r} must have shape ({len(epsilons)}, n_repeats), a row for each "
            f"epsilon; got shape {scores.shape}."
        )
    order = np.argsort(epsilons, kind="stable")
    epsilons, scores = epsilons[order], scores[order]
    # Of a single repeat there is none.
    spread = sem if error == "standard_error" else partial(np.std, ddof=1)
    errors = spread(scores, axis=1) if scores.shape[1] > 1 else None
    return epsilons, scores.mean(axis=1), errors
