"""How the nodes of an allocation came to agree."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdpot.display._style import COLOURS, GREY, load_pyplot, numbers


class AllocationConvergenceDisplay:
    """Residuals of an allocation over its rounds, and its welfare between what bounds it.

    What is drawn is as private as what was passed: residuals of messages without noise, and
    welfare, are made of private utilities. Make one with :meth:`from_estimator`.

    Parameters
    ----------
    n_iter : array-like of shape (n_checks,)
        Rounds, ascending.
    primal_residual, dual_residual : array-like of shape (n_checks,)
        Euclidean norms of what both sides of the network differ by, and of the changes of prices.
        Where they are not finite nothing is drawn.
    welfare, bound : array-like of shape (n_checks,), default=None
        Social utility of the feasible plan of each round, and an upper bound on that of all plans.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where the residuals were plotted.
    welfare_ax_ : matplotlib Axes or None
        Where the welfare was.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : list of matplotlib Line2D
        The primal and the dual residual, and, where there, welfare and bound.

    See Also
    --------
    AllocationPlanDisplay : What was agreed on.

    Examples
    --------
    >>> from skdpot.display import AllocationConvergenceDisplay
    >>> display = AllocationConvergenceDisplay(
    ...     [20, 40, 60], [1.0, 0.1, 0.01], [2.0, 0.3, 0.02], [7.0, 7.8, 8.0], [9.0, 8.2, 8.0]
    ... )
    >>> display.plot().ax_.get_yscale()
    'log'
    """

    def __init__(
        self,
        n_iter: Any,
        primal_residual: Any,
        dual_residual: Any,
        welfare: Any = None,
        bound: Any = None,
    ) -> None:
        self.n_iter = n_iter
        self.primal_residual = primal_residual
        self.dual_residual = dual_residual
        self.welfare = welfare
        self.bound = bound

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> "AllocationConvergenceDisplay":
        """Plot how a fitted estimator converged.

        Parameters
        ----------
        estimator : PrivateADMMTransport
            Fitted: its ``history_`` is plotted.
        ax : matplotlib Axes or sequence of two, default=None
            Where to plot, see :meth:`plot`.

        Returns
        -------
        AllocationConvergenceDisplay
            The plot.

        Raises
        ------
        NotFittedError
            If the estimator has no ``history_``.
        """
        check_is_fitted(estimator, "history_")
        history = estimator.history_
        display = cls(
            history["n_iter"],
            history["primal_residual"],
            history["dual_residual"],
            history.get("welfare"),
            history.get("bound"),
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> "AllocationConvergenceDisplay":
        """Plot it, once more.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of two, default=None
            Where to plot: residuals in the first, welfare in the second; a single one is shared by
            both, if there is welfare. None makes a new figure.

        Returns
        -------
        AllocationConvergenceDisplay
            This very object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If a single one is not of a grid of subplots, and there is welfare.
        """
        welfare, bound = numbers(self.welfare), numbers(self.bound)
        shown = np.isfinite(welfare).any() and len(welfare) == len(numbers(self.n_iter))
        self.ax_, self.welfare_ax_ = _one_or_two_axes(ax, bool(shown))
        self.figure_ = self.ax_.figure
        self._plot_residuals(self.ax_)
        if self.welfare_ax_ is not None:
            self._plot_welfare(self.welfare_ax_, welfare, bound)
            self.ax_.set_xlabel("")
            self.ax_.tick_params(labelbottom=False)
        return self

    def _plot_residuals(self, ax: Any) -> None:
        rounds, self.lines_ = numbers(self.n_iter), []
        marker = "o" if len(rounds) == 1 else ""
        for values, name, colour, dashes in (
            (self.primal_residual, "primal residual", COLOURS[0], "-"),
            (self.dual_residual, "dual residual", COLOURS[1], "--"),
        ):
            values = numbers(values)
            values = np.where(np.isfinite(values), values, np.nan)
            options = {"color": colour, "linestyle": dashes, "label": name, "marker": marker}
            self.lines_ += ax.plot(rounds, values, **options)
        drawn = np.concatenate([line.get_ydata() for line in self.lines_])
        if np.any(drawn > 0):
            ax.set_yscale("log", nonpositive="mask")
        ax.set(xlabel="Round", ylabel="Residual")
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")

    def _plot_welfare(self, ax: Any, welfare: np.ndarray, bound: np.ndarray) -> None:
        rounds = numbers(self.n_iter)
        marker = "o" if len(rounds) == 1 else ""
        self.lines_ += ax.plot(
            rounds, welfare, color=COLOURS[2], label="welfare of the plan", marker=marker
        )
        title = None
        if np.isfinite(bound).any():
            label = "upper bound"
            self.lines_ += ax.plot(
                rounds, bound, color=GREY, linestyle="--", label=label, marker=marker
            )
            ax.fill_between(rounds, welfare, bound, color=GREY, alpha=0.12, linewidth=0.0)
            lowest = np.nanmin(bound)
            gap = max(0.0, lowest - np.nanmax(welfare)) / max(abs(lowest), 1e-300)
            title = f"proven gap: {gap:.1e}"
        ax.set(xlabel="Round", ylabel="Welfare")
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small", title=title, title_fontsize="small")


def _one_or_two_axes(ax: Any, two: bool) -> tuple[Any, Any]:
    """Return axes for residuals, and others below them for welfare if there are to be two."""
    pyplot = load_pyplot()
    if ax is None:
        if not two:
            return pyplot.subplots(layout="constrained")[1], None
        return tuple(
            pyplot.subplots(2, 1, sharex=True, figsize=(6.4, 6.0), layout="constrained")[1]
        )
    if np.ndim(ax) == 1:
        first, second = ax
        return first, second if two else None
    if not two:
        return ax, None
    cell = ax.get_subplotspec()
    if cell is None:
        raise ValueError("ax must be of a grid of subplots, or two axes, where there is welfare.")
    above, below = cell.subgridspec(2, 1, hspace=0.1)
    ax.set_subplotspec(above)
    return ax, ax.figure.add_subplot(below, sharex=ax)
