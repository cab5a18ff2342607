"""Plots of allocations: how nodes came to agree, on what, and what privacy cost."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from skdpot.display._audit import _pyplot

# Colours that colour-blind readers can tell apart (M. Okabe, K. Ito), the darkest ones first.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (8, 2)))
_GREY = "0.35"
# Points: the widest line of a plan, and the diameter of its largest node.
_WIDEST, _LARGEST_NODE, _SMALLEST_NODE = 7.0, 26.0, 2.5
_WIDTHS_SHOWN = (1.0, 0.5, 0.1)
# Beyond so many nodes on a side their names would overlap.
_MOST_NAMES = 40


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
        welfare, bound = _values(self.welfare), _values(self.bound)
        shown = np.isfinite(welfare).any() and len(welfare) == len(_values(self.n_iter))
        self.ax_, self.welfare_ax_ = _one_or_two_axes(ax, bool(shown))
        self.figure_ = self.ax_.figure
        self._plot_residuals(self.ax_)
        if self.welfare_ax_ is not None:
            self._plot_welfare(self.welfare_ax_, welfare, bound)
            self.ax_.set_xlabel("")
            self.ax_.tick_params(labelbottom=False)
        return self

    def _plot_residuals(self, ax: Any) -> None:
        rounds, self.lines_ = _values(self.n_iter), []
        marker = "o" if len(rounds) == 1 else ""
        for values, name, colour, dashes in (
            (self.primal_residual, "primal residual", _COLOURS[0], "-"),
            (self.dual_residual, "dual residual", _COLOURS[1], "--"),
        ):
            values = _values(values)
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
        rounds = _values(self.n_iter)
        marker = "o" if len(rounds) == 1 else ""
        self.lines_ += ax.plot(
            rounds, welfare, color=_COLOURS[2], label="welfare of the plan", marker=marker
        )
        title = None
        if np.isfinite(bound).any():
            label = "upper bound"
            self.lines_ += ax.plot(
                rounds, bound, color=_GREY, linestyle="--", label=label, marker=marker
            )
            ax.fill_between(rounds, welfare, bound, color=_GREY, alpha=0.12, linewidth=0.0)
            lowest = np.nanmin(bound)
            gap = max(0.0, lowest - np.nanmax(welfare)) / max(abs(lowest), 1e-300)
            title = f"proven gap: {gap:.1e}"
        ax.set(xlabel="Round", ylabel="Welfare")
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small", title=title, title_fontsize="small")


class AllocationPlanDisplay:
    """A plan of allocation as a picture: sources on the left, targets on the right.

    Lines are as wide as amounts are large, and the areas of nodes are proportional to what they
    give or receive in all. What is drawn is as private as what was passed. Make one with
    :meth:`from_plan` or :meth:`from_estimator`.

    Parameters
    ----------
    plan : {array-like, sparse matrix} of shape (n_targets, n_sources)
        Amounts, finite and non-negative.
    target_names, source_names : sequence of str, default=None
        What nodes are called; None numbers them.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was plotted.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : matplotlib LineCollection
        A line from its source to its target for every positive amount, the largest ones last.
    source_points_, target_points_ : matplotlib PathCollection
        The nodes.

    See Also
    --------
    AllocationConvergenceDisplay : How it came about.

    Examples
    --------
    >>> from skdpot.display import AllocationPlanDisplay
    >>> display = AllocationPlanDisplay.from_plan([[2.0, 0.0], [1.0, 3.0]])
    >>> len(display.lines_.get_segments())
    3
    """

    def __init__(
        self,
        plan: Any,
        *,
        target_names: Sequence[str] | None = None,
        source_names: Sequence[str] | None = None,
    ) -> None:
        self.plan = plan
        self.target_names = target_names
        self.source_names = source_names

    @classmethod
    def from_plan(
        cls,
        plan: Any,
        *,
        target_names: Sequence[str] | None = None,
        source_names: Sequence[str] | None = None,
        ax: Any = None,
    ) -> "AllocationPlanDisplay":
        """Plot a plan.

        Parameters
        ----------
        plan : {array-like, sparse matrix} of shape (n_targets, n_sources)
            Amounts, finite and non-negative.
        target_names, source_names : sequence of str, default=None
            What nodes are called; None numbers them.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        AllocationPlanDisplay
            The plot.

        Raises
        ------
        ValueError
            If the plan is no matrix, or has amounts that are negative or not finite, or there is
            not one name for each node.
        """
        return cls(plan, target_names=target_names, source_names=source_names).plot(ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        target_names: Sequence[str] | None = None,
        source_names: Sequence[str] | None = None,
        ax: Any = None,
    ) -> "AllocationPlanDisplay":
        """Plot the plan of a fitted estimator.

        Parameters
        ----------
        estimator : PrivateADMMTransport
            Fitted: its ``plan_`` is plotted.
        target_names, source_names : sequence of str, default=None
            What nodes are called. None numbers them, but sources that were columns of a data frame
            have those names.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        AllocationPlanDisplay
            The plot.

        Raises
        ------
        NotFittedError
            If the estimator has no ``plan_``.
        """
        check_is_fitted(estimator, "plan_")
        if source_names is None:
            source_names = getattr(estimator, "feature_names_in_", None)
        return cls.from_plan(
            estimator.plan_, target_names=target_names, source_names=source_names, ax=ax
        )

    def plot(self, ax: Any = None) -> "AllocationPlanDisplay":
        """Plot it, once more.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        AllocationPlanDisplay
            This very object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        plan = _checked_plan(self.plan)
        n_targets, n_sources = plan.shape
        names = (
            _names(self.source_names, n_sources, "source"),
            _names(self.target_names, n_targets, "target"),
        )
        pyplot = _pyplot()
        height = 0.8 + 0.2 * min(max(n_targets, n_sources, 15), _MOST_NAMES)
        if ax is None:
            ax = pyplot.subplots(figsize=(6.0, height), layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        heights = _heights(n_sources), _heights(n_targets)
        colours = [
            _COLOURS[node % len(_COLOURS)] if n_sources <= len(_COLOURS) else _COLOURS[0]
            for node in range(n_sources)
        ]
        self._plot_lines(plan, heights, colours)
        self._plot_nodes(plan, heights, colours)
        for x, of_side, ys in zip((0.0, 1.0), names, heights, strict=True):
            _write_names(ax, x, of_side, ys)
        self._finish(plan, pyplot)
        return self

    def _plot_lines(self, plan: Any, heights: Any, colours: Sequence[str]) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.colors import to_rgb

        largest = plan.data.max(initial=0.0)
        order = np.argsort(plan.data, kind="stable")
        shares = plan.data[order] / largest if largest else plan.data[order]
        rows, columns = plan.coords[0][order], plan.coords[1][order]
        # Where there are many, lines are as thin and pale as to be told apart.
        faint = min(1.0, (150 / max(plan.nnz, 1)) ** 0.5)
        self._widest = _WIDEST * min(1.0, max(0.15, 30 / max(plan.shape)))
        segments = [
            [(0.0, heights[0][source]), (1.0, heights[1][target])]
            for target, source in zip(rows, columns, strict=True)
        ]
        rgba = [
            (*to_rgb(colours[source]), faint * (0.25 + 0.6 * share))
            for source, share in zip(columns, shares, strict=True)
        ]
        self.lines_ = LineCollection(
            segments, linewidths=self._widest * shares, colors=rgba, capstyle="butt", zorder=1
        )
        self.ax_.add_collection(self.lines_)

    def _plot_nodes(self, plan: Any, heights: Any, colours: Sequence[str]) -> None:
        totals = [
            np.bincount(where, plan.data, size)
            for where, size in zip(plan.coords[::-1], plan.shape[::-1], strict=True)
        ]
        scale = self._area_of_a_unit(totals)
        areas = [np.maximum(scale * total, _SMALLEST_NODE**2) for total in totals]
        self.source_points_, self.target_points_ = (
            self.ax_.scatter(
                np.full(len(ys), x),
                ys,
                s=area,
                c=of_side,
                edgecolors="white",
                linewidths=0.6,
                zorder=2,
                clip_on=False,
            )
            for x, ys, area, of_side in zip(
                (0.0, 1.0), heights, areas, (list(colours), _GREY), strict=True
            )
        )

    def _area_of_a_unit(self, totals: Sequence[np.ndarray]) -> float:
        """Return the area, in square points, of one unit, such that no nodes overlap."""
        height = self.ax_.get_window_extent().height * 72.0 / self.figure_.dpi
        scales = [
            min(_LARGEST_NODE, 0.8 * height / len(total)) ** 2 / total.max()
            for total in totals
            if total.max(initial=0.0) > 0
        ]
        return min(scales, default=0.0)

    def _finish(self, plan: Any, pyplot: Any) -> None:
        ax = self.ax_
        for x, title in ((0.0, "Sources"), (1.0, "Targets")):
            ax.text(x, 1.04, title, ha="center", va="bottom", weight="bold")
        ax.set(xlim=(-0.35, 1.35), ylim=(-0.02, 1.1))
        ax.set_axis_off()
        if not plan.nnz:
            ax.text(0.5, 0.5, "nothing is allocated", ha="center", style="italic", color=_GREY)
            return
        largest = plan.data.max()
        handles = [
            pyplot.Line2D(
                [], [], color=_GREY, linewidth=self._widest * share, solid_capstyle="butt"
            )
            for share in _WIDTHS_SHOWN
        ]
        labels = [f"{share * largest:.3g}" for share in _WIDTHS_SHOWN]
        ax.legend(
            handles,
            labels,
            title="Amount",
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            ncols=len(labels),
            frameon=False,
            fontsize="small",
            title_fontsize="small",
        )


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
            ax = _pyplot().subplots(layout="constrained")[1]
        self.ax_, self.figure_, self.containers_ = ax, ax.figure, []
        if self.optimum is not None:
            ax.axhline(self.optimum, color=_GREY, linestyle=":", label="without privacy")
        for number, (epsilons, welfare, error, label) in enumerate(curves):
            self.containers_.append(
                ax.errorbar(
                    epsilons,
                    welfare,
                    error,
                    label=label,
                    color=_COLOURS[number % len(_COLOURS)],
                    marker=_MARKERS[number % len(_MARKERS)],
                    linestyle=_DASHES[number % len(_DASHES)],
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


def _values(values: Any) -> np.ndarray:
    """Return values as floats; None is none of them."""
    return np.empty(0) if values is None else np.asarray(values, dtype=np.float64)


def _one_or_two_axes(ax: Any, two: bool) -> tuple[Any, Any]:
    """Return axes for residuals, and others below them for welfare if there are to be two."""
    pyplot = _pyplot()
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


def _checked_plan(plan: Any) -> sparse.coo_array:
    """Return the positive amounts of a plan."""
    if not sparse.issparse(plan):
        plan = np.asarray(plan, dtype=np.float64)
    if plan.ndim != 2 or 0 in plan.shape:
        raise ValueError(
            f"plan must be a matrix of shape (n_targets, n_sources), got shape {plan.shape}."
        )
    found = sparse.coo_array(plan, dtype=np.float64)
    found.sum_duplicates()
    if not (np.isfinite(found.data) & (found.data >= 0)).all():
        raise ValueError("plan must have finite amounts of at least 0.")
    found.eliminate_zeros()
    return found


def _names(names: Sequence[str] | None, n_nodes: int, side: str) -> list[str]:
    if names is None:
        return [str(node) for node in range(n_nodes)]
    if len(names) != n_nodes:
        raise ValueError(f"{side}_names must name {n_nodes} {side}s, got {len(names)} names.")
    return [str(name) for name in names]


def _heights(n_nodes: int) -> np.ndarray:
    """Return heights of nodes from top to bottom, between 0 and 1."""
    return 1.0 - (np.arange(n_nodes) + 0.5) / n_nodes


def _write_names(ax: Any, x: float, names: Sequence[str], heights: Any) -> None:
    """Write names of nodes beside them, or how many there are where they would overlap."""
    away = _LARGEST_NODE / 2 + 4
    placed = {
        "xytext": (away if x else -away, 0.0),
        "textcoords": "offset points",
        "ha": "left" if x else "right",
        "va": "center",
    }
    if len(names) > _MOST_NAMES:
        ax.annotate(f"{len(names)} nodes", (x, 0.5), rotation=90, color=_GREY, **placed)
        return
    size = "medium" if len(names) <= 12 else "small" if len(names) <= 20 else "x-small"
    for name, y in zip(names, heights, strict=True):
        ax.annotate(name, (x, y), fontsize=size, **placed)


def _curve(epsilons: Any, welfare: Any, error: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return a curve with its budgets ascending."""
    epsilons, welfare = _values(epsilons), _values(welfare)
    if epsilons.ndim != 1 or epsilons.shape != welfare.shape:
        raise ValueError(
            "epsilons and welfare of a curve must be as many, got shapes "
            f"{epsilons.shape} and {welfare.shape}."
        )
    if not (epsilons > 0).all():
        raise ValueError("epsilons must be positive.")
    order = np.argsort(epsilons, kind="stable")
    return epsilons[order], welfare[order], None if error is None else _values(error)[order]
