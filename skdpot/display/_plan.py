"""What the nodes of an allocation agreed on, as a bipartite picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from skdpot.display._style import COLOURS, GREY, axes_for, load_pyplot

# Points: the widest line of a plan, and the diameter of its largest node.
_WIDEST, _LARGEST_NODE, _SMALLEST_NODE = 7.0, 26.0, 2.5
_WIDTHS_SHOWN = (1.0, 0.5, 0.1)
# Beyond so many nodes on a side their names would overlap.
_MOST_NAMES = 40


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
    TransportPlanDisplay : A plan between points that are somewhere.

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
        plan = checked_plan(self.plan, "(n_targets, n_sources)")
        n_targets, n_sources = plan.shape
        names = (
            _names(self.source_names, n_sources, "source"),
            _names(self.target_names, n_targets, "target"),
        )
        height = 0.8 + 0.2 * min(max(n_targets, n_sources, 15), _MOST_NAMES)
        self.ax_ = ax = axes_for(ax, figsize=(6.0, height))
        self.figure_ = ax.figure
        heights = _heights(n_sources), _heights(n_targets)
        colours = [
            COLOURS[node % len(COLOURS)] if n_sources <= len(COLOURS) else COLOURS[0]
            for node in range(n_sources)
        ]
        self._plot_lines(plan, heights, colours)
        self._plot_nodes(plan, heights, colours)
        for x, of_side, ys in zip((0.0, 1.0), names, heights, strict=True):
            _write_names(ax, x, of_side, ys)
        self._finish(plan)
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
                (0.0, 1.0), heights, areas, (list(colours), GREY), strict=True
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

    def _finish(self, plan: Any) -> None:
        ax, pyplot = self.ax_, load_pyplot()
        for x, title in ((0.0, "Sources"), (1.0, "Targets")):
            ax.text(x, 1.04, title, ha="center", va="bottom", weight="bold")
        ax.set(xlim=(-0.35, 1.35), ylim=(-0.02, 1.1))
        ax.set_axis_off()
        if not plan.nnz:
            ax.text(0.5, 0.5, "nothing is allocated", ha="center", style="italic", color=GREY)
            return
        largest = plan.data.max()
        handles = [
            pyplot.Line2D([], [], color=GREY, linewidth=self._widest * share, solid_capstyle="butt")
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


def checked_plan(plan: Any, shape: str) -> sparse.coo_array:
    """Return the positive amounts of a plan, of which `shape` says what its sides are."""
    if not sparse.issparse(plan):
        plan = np.asarray(plan, dtype=np.float64)
    if plan.ndim != 2 or 0 in plan.shape:
        raise ValueError(f"plan must be a matrix of shape {shape}, got shape {plan.shape}.")
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
        ax.annotate(f"{len(names)} nodes", (x, 0.5), rotation=90, color=GREY, **placed)
        return
    size = "medium" if len(names) <= 12 else "small" if len(names) <= 20 else "x-small"
    for name, y in zip(names, heights, strict=True):
        ax.annotate(name, (x, y), fontsize=size, **placed)
