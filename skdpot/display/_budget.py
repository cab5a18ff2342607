"""What privacy costs: welfare against the budget."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skdpot.display._style import COLOURS, DASHES, GREY, MARKERS, load_pyplot, numbers


class BudgetWelfareDisplay:
    """Welfare of private allocations against their total budget, a curve for each mechanism.

    What is drawn is as private as what was passed: welfare is computed from private utilities. Make
    one with :meth:`from_scores`.

    Parameters
    ----------
    epsilons : sequence of array-like of shape (n_epsilons,)
        Total budgets of each curve, positive.
    welfare : sequence of array-like of shape (n_epsilons,)
        Welfare of each curve, or its ratio to the best.
    errors : sequence of (array-like of shape (n_epsilons,) or None), default=None
        Half the lengths of error bars.
    optimum : float, default=None
        Welfare without privacy, 1 for ratios; a horizontal line.
    labels : sequence of str
        Names of the curves.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was plotted.
    figure_ : matplotlib Figure
        The figure of these axes.
    containers_ : list of matplotlib ErrorbarContainer
        The curves.

    See Also
    --------
    AllocationPlanDisplay : A single plan.

    Examples
    --------
    >>> from skdpot.display import BudgetWelfareDisplay
    >>> scores = {"input": ([1, 10], [[0.82, 0.84], [0.98, 0.99]]), "messages": ([1], [[0.75]])}
    >>> display = BudgetWelfareDisplay.from_scores(scores, optimum=1.0)
    >>> display.ax_.get_xscale(), len(display.containers_)
    ('log', 2)
    """

    def __init__(
        self,
        epsilons: Sequence[Any],
        welfare: Sequence[Any],
        errors: Sequence[Any] | None = None,
        *,
        optimum: float | None = None,
        labels: Sequence[str],
    ) -> None:
        self.epsilons = epsilons
        self.welfare = welfare
        self.errors = errors
        self.optimum = optimum
        self.labels = labels

    @classmethod
    def from_scores(
        cls,
        scores: Mapping[str, tuple[Any, Any]],
        *,
        optimum: float | None = None,
        ax: Any = None,
    ) -> "BudgetWelfareDisplay":
        """Plot means and standard errors of repeated fits.

        Parameters
        ----------
        scores : dict of str to tuple
            By the name of each mechanism, its budgets, of shape (n_epsilons,), and its scores, of
            shape (n_epsilons, n_repeats).
        optimum : float, default=None
            Welfare without privacy, 1 for ratios.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        BudgetWelfareDisplay
            The plot. A single repeat has no error bars.

        Raises
        ------
        ValueError
            If there is not one row of scores for each budget, or a budget is not positive.
        """
        epsilons, welfare, errors = [], [], []
        for name, (of_curve, repeats) in scores.items():
            repeats = np.asarray(repeats, dtype=np.float64)
            if repeats.ndim != 2 or len(repeats) != np.size(of_curve) or not repeats.size:
                raise ValueError(
                    f"scores of {name!r} must have shape ({np.size(of_curve)}, n_repeats), a row "
                    f"for each epsilon; got shape {repeats.shape}."
                )
            n_repeats = repeats.shape[1]
            epsilons.append(of_curve)
            welfare.append(repeats.mean(axis=1))
            deviations = repeats.std(axis=1, ddof=1) if n_repeats > 1 else None
            errors.append(None if deviations is None else deviations / np.sqrt(n_repeats))
        display = cls(epsilons, welfare, errors, optimum=optimum, labels=list(scores))
        return display.plot(ax)

    def plot(self, ax: Any = None) -> "BudgetWelfareDisplay":
        """Plot it, once more.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        BudgetWelfareDisplay
            This very object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        errors = [None] * len(self.labels) if self.errors is None else self.errors
        curves = [
            (*_curve(epsilons, welfare, error), label)
            for epsilons, welfare, error, label in zip(
                self.epsilons, self.welfare, errors, self.labels, strict=True
            )
        ]
        if ax is None:
            ax = load_pyplot().subplots(layout="constrained")[1]
        self.ax_, self.figure_, self.containers_ = ax, ax.figure, []
        if self.optimum is not None:
            ax.axhline(self.optimum, color=GREY, linestyle=":", label="without privacy")
        for number, (epsilons, welfare, error, label) in enumerate(curves):
            self.containers_.append(
                ax.errorbar(
                    epsilons,
                    welfare,
                    error,
                    label=label,
                    color=COLOURS[number % len(COLOURS)],
                    marker=MARKERS[number % len(MARKERS)],
                    linestyle=DASHES[number % len(DASHES)],
                    markersize=5,
                    capsize=3,
                )
            )
        ax.set_xscale("log")
        ax.set(xlabel=r"Total $\varepsilon$ of a node", ylabel="Welfare")
        ax.grid(alpha=0.3)
        if curves or self.optimum is not None:
            ax.legend(fontsize="small")
        return self


def _curve(epsilons: Any, welfare: Any, error: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return a curve with its budgets ascending."""
    epsilons, welfare = numbers(epsilons), numbers(welfare)
    if epsilons.ndim != 1 or epsilons.shape != welfare.shape:
        raise ValueError(
            "epsilons and welfare of a curve must be as many, got shapes "
            f"{epsilons.shape} and {welfare.shape}."
        )
    if not (epsilons > 0).all():
        raise ValueError("epsilons must be positive.")
    order = np.argsort(epsilons, kind="stable")
    return epsilons[order], welfare[order], None if error is None else numbers(error)[order]
