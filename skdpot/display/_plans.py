"""The plot of a plan: the amounts from sources to targets."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ._style import COLOURS, GREY, axes_for, check_points, colour_of, load_pyplot, names_or_numbers

# In points: the widest line of a plan, and the largest diameters of nodes with and without names.
_WIDEST, _LARGEST_NODE, _LARGEST_DISC, _SMALLEST_NODE = 7.0, 26.0, 12.0, 2.5
_WIDTHS_SHOWN = (1.0, 0.5, 0.1)
# With more nodes on a side, names would overlap.
_MOST_NAMES = 40
# Up to this ratio of its sides, a plane is drawn to scale.
_MOST_OBLONG = 4.0
# More lines are drawn thinner and paler.
_FEW_LINES = 150


@dataclass(eq=False, repr=False)
class PlanDisplay:
    """A plan as lines from sources to targets.

    The width of a line is proportional to its amount, and the area of a node to its total amount.
    Without points, sources are on the left and targets on the right, with their names. Points with
    one coordinate give the heights of nodes. Points with two coordinates give places in the plane,
    where targets are rings. The plot is as sensitive as its input. Create it with
    :meth:`from_plan` or :meth:`from_estimator`.

    Parameters
    ----------
    plan : {array-like, sparse matrix} of shape (n_sources, n_targets)
        Amounts, finite and non-negative.
    source_points, target_points : array-like of shape (n_nodes, n_coordinates), default=None
        Places of the nodes, with one or two coordinates; give both or none.
    source_names, target_names : sequence of str, default=None
        Names of nodes without points; None numbers them.
    side_names : tuple of two str, default=("Sources", "Targets")
        Names of the two sides.
    coordinate_names : sequence of str, default=None
        Names of the coordinates.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : matplotlib LineCollection
        A line from its source to its target for every amount shown, the largest ones last.
    source_points_, target_points_ : matplotlib PathCollection
        The nodes.

    See Also
    --------
    skdpot.PrivateADMMTransport : Plans of allocations.
    skdpot.PrivateSinkhornDistance : Releases plans, with ``mechanism="histogram"``.

    Examples
    --------
    >>> from skdpot.display import PlanDisplay
    >>> display = PlanDisplay.from_plan([[2.0, 0.0], [1.0, 3.0]])
    >>> len(display.lines_.get_segments())
    3
    """

    plan: Any
    _: KW_ONLY
    source_points: Any = None
    target_points: Any = None
    source_names: Sequence[str] | None = None
    target_names: Sequence[str] | None = None
    side_names: tuple[str, str] = ("Sources", "Targets")
    coordinate_names: Sequence[str] | None = None

    @classmethod
    def from_plan(
        cls, plan: Any, *, shown_mass: float = 1.0, ax: Any = None, **options: Any
    ) -> "PlanDisplay":
        """Plot a plan.

        Parameters
        ----------
        plan : {array-like, sparse matrix} of shape (n_sources, n_targets)
            Amounts, finite and non-negative.
        shown_mass : float, default=1.0
            See :meth:`plot`.
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        **options : dict
            Further parameters of the display: points and names.

        Returns
        -------
        PlanDisplay
            The plot.

        Raises
        ------
        ValueError
            If amounts are negative or not finite, or names or points do not go with the plan.
        """
        return cls(plan, **options).plot(ax, shown_mass=shown_mass)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, shown_mass: float = 1.0, ax: Any = None, **options: Any
    ) -> "PlanDisplay":
        """Plot the plan of a fitted estimator; it is as private as the fit.

        Parameters
        ----------
        estimator : PrivateADMMTransport or PrivateSinkhornDistance
            A fitted estimator; a distance needs two groups and ``mechanism="histogram"``, and its
            points are on the public grid.
        shown_mass : float, default=1.0
            See :meth:`plot`.
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        **options : dict
            Further parameters of the display, such as names instead of those of the estimator.

        Returns
        -------
        PlanDisplay
            The plot.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If it did not release a plan, or there are more than two features.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "plan_"):
            raise ValueError(
                f"this {type(estimator).__name__} has released no plan; a distance does, fitted to "
                "two groups, with mechanism='histogram'."
            )
        names = getattr(estimator, "feature_names_in_", None)
        if hasattr(estimator, "support_"):
            support = estimator.support_
            fitted = {"source_points": support, "target_points": support, "coordinate_names": names,
                     "side_names": tuple(map(str, estimator.groups_))}  # fmt: skip
            plan = estimator.plan_
        else:
            plan, fitted = estimator.plan_.T, {"source_names": names}
        return cls.from_plan(plan, shown_mass=shown_mass, ax=ax, **fitted | options)

    def plot(self, ax: Any = None, *, shown_mass: float = 1.0) -> "PlanDisplay":
        """Plot it again.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        shown_mass : float, default=1.0
            Only the widest lines are drawn that together have this share of the
            mass: an entropic plan has very many lines.

        Returns
        -------
        PlanDisplay
            This object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If amounts are negative or not finite, or names or points do not go with the plan.
        """
        plan = _checked_plan(self.plan)
        if not 0 < shown_mass <= 1:
            raise ValueError(f"shown_mass must be above 0 and at most 1, got {shown_mass!r}.")
        both_names = [self.source_names, self.target_names]
        names = [
            [] if node_names is None and self.source_points is not None
            else names_or_numbers(node_names, n, side)
            for node_names, n, side in zip(
                both_names, plan.shape, ("source", "target"), strict=True
            )
        ]  # fmt: skip
        in_plane, places = self._places(plan.shape)
        height = 5.6 if in_plane else 0.8 + 0.2 * min(max(*plan.shape, 15), _MOST_NAMES)
        self.ax_ = axes_for(ax, figsize=(6.0, height))
        self.figure_ = self.ax_.figure
        n_sources = plan.shape[0]
        many = in_plane or n_sources > len(COLOURS)
        colours = [COLOURS[0] if many else colour_of(node) for node in range(n_sources)]
        self._plot_lines(plan, places, [GREY] * n_sources if in_plane else colours, shown_mass)
        self._plot_nodes(plan, places, colours, in_plane)
        if in_plane:
            sides = np.ptp(np.concatenate(places), axis=0)
            self.ax_.set_aspect("equal" if sides.max() <= _MOST_OBLONG * sides.min() else "auto")
            self.ax_.margins(0.08)
            axes = () if self.coordinate_names is None else self.coordinate_names
            self.ax_.set(**dict(zip(("xlabel", "ylabel"), axes, strict=False)))
            self.ax_.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        else:
            self._finish_sides(plan, places, names)
        return self

    def _places(self, shape: tuple[int, int]) -> tuple[bool, list[np.ndarray]]:
        """Return whether nodes are in the plane, and their places; else these are on two sides."""
        if self.source_points is None or self.target_points is None:
            heights = [1.0 - (np.arange(n) + 0.5) / n for n in shape]
            return False, [np.c_[np.full(len(ys), x), ys] for x, ys in enumerate(heights)]
        sides = (self.source_points, "source_points"), (self.target_points, "target_points")
        points = [check_points(side_points, name) for side_points, name in sides]
        sizes = tuple(len(side_points) for side_points in points)
        if sizes != shape or points[0].shape[1] != points[1].shape[1]:
            raise ValueError(
                f"the plan has shape {shape}: there must be as many source_points and "
                f"target_points, of as many coordinates, got shapes {points[0].shape} and "
                f"{points[1].shape}."
            )
        if points[0].shape[1] == 2:
            return True, points
        low, width = np.min(np.concatenate(points)), np.ptp(np.concatenate(points)) or 1.0
        return False, [
            np.c_[np.full(len(ys), x), (ys - low) / width] for x, ys in enumerate(points)
        ]

    def _plot_lines(self, plan: Any, places: Any, colours: Sequence[str], shown: float) -> None:
        from matplotlib.collections import LineCollection

        chosen = _heaviest(plan.data, shown)
        shares = plan.data[chosen] / plan.data.max(initial=np.finfo(float).tiny)
        sources, targets = (nodes[chosen] for nodes in plan.coords)
        faint = min(1.0, (_FEW_LINES / max(len(chosen), 1)) ** 0.5)
        self._widest = _WIDEST * min(1.0, max(0.15, 30 / max(plan.shape)))
        self.lines_ = LineCollection(
            list(np.stack([places[0][sources], places[1][targets]], axis=1)),
            linewidths=self._widest * shares,
            colors=[colours[source] for source in sources],
            alpha=faint * (0.25 + 0.6 * shares) if len(shares) else None,
            capstyle="butt",
            zorder=1,
        )
        self.ax_.add_collection(self.lines_)

    def _plot_nodes(self, plan: Any, places: Any, colours: Any, in_plane: bool) -> None:
        totals = [np.asarray(plan.sum(axis=axis)).ravel() for axis in (1, 0)]
        # Scale of areas, in square points, at which no nodes of a side overlap.
        room = self.ax_.get_window_extent().height * 72.0 / self.figure_.dpi
        widest = [
            _LARGEST_DISC if in_plane else min(_LARGEST_NODE, 0.8 * room / len(masses))
            for masses in totals
        ]
        units = [
            w**2 / masses.max()
            for w, masses in zip(widest, totals, strict=True)
            if masses.max() > 0
        ]
        areas = [
            np.maximum(min(units, default=0.0) * masses, _SMALLEST_NODE**2) for masses in totals
        ]
        edges = {"edgecolors": "white", "linewidths": 0.6, "clip_on": False}
        rings = {"facecolors": "none", "edgecolors": COLOURS[1], "linewidths": 1.6}
        styles = {"c": colours, **edges}, rings if in_plane else {"c": GREY, **edges}
        self.source_points_, self.target_points_ = (
            self.ax_.scatter(*points.T, s=area, label=name, zorder=2 + k, **style)
            for k, (points, area, name, style) in enumerate(
                zip(places, areas, self.side_names, styles, strict=True)
            )
        )

    def _finish_sides(self, plan: Any, places: Any, names: Any) -> None:
        ax, pyplot = self.ax_, load_pyplot()
        for x, (title, node_names, points) in enumerate(
            zip(self.side_names, names, places, strict=True)
        ):
            ax.text(x, 1.04, title, ha="center", va="bottom", weight="bold")
            _write_names(ax, x, node_names, points)
        ax.set(xlim=(-0.35, 1.35), ylim=(-0.02, 1.1))
        ax.set_axis_off()
        if not plan.nnz:
            ax.text(0.5, 0.5, "nothing is allocated", ha="center", style="italic", color=GREY)
            return
        handles = [
            pyplot.Line2D([], [], color=GREY, linewidth=self._widest * share)
            for share in _WIDTHS_SHOWN
        ]
        labels = [f"{share * plan.data.max():.3g}" for share in _WIDTHS_SHOWN]
        ax.legend(
            handles, labels, title="Amount", loc="upper center", bbox_to_anchor=(0.5, 0.0),
            ncols=len(labels), frameon=False, fontsize="small", title_fontsize="small",
        )  # fmt: skip


def _checked_plan(plan: Any) -> sparse.coo_array:
    """Return the positive amounts of a plan."""
    if not sparse.issparse(plan):
        plan = np.asarray(plan, dtype=np.float64)
    if plan.ndim != 2 or 0 in plan.shape:
        raise ValueError(f"plan must have shape (n_sources, n_targets), got {plan.shape}.")
    amounts = sparse.coo_array(plan, dtype=np.float64)
    amounts.sum_duplicates()
    if not (np.isfinite(amounts.data) & (amounts.data >= 0)).all():
        raise ValueError("plan must have finite amounts of at least 0.")
    amounts.eliminate_zeros()
    return amounts


def _write_names(ax: Any, x: float, names: Sequence[str], places: Any) -> None:
    """Write the names of nodes beside them, or their number if names would overlap."""
    away = _LARGEST_NODE / 2 + 4
    placed = {"xytext": (away if x else -away, 0.0), "textcoords": "offset points",
              "ha": "left" if x else "right", "va": "center"}  # fmt: skip
    if len(names) > _MOST_NAMES:
        ax.annotate(f"{len(names)} nodes", (x, 0.5), rotation=90, color=GREY, **placed)
        return
    size = "medium" if len(names) <= 12 else "small" if len(names) <= 20 else "x-small"
    for name, place in zip(names, places, strict=False):
        ax.annotate(name, place, fontsize=size, **placed)


def _heaviest(masses: np.ndarray, share: float) -> np.ndarray:
    """Return the positions of the largest masses that have this share in total, in rising order."""
    order = np.argsort(-masses, kind="stable")
    if share < 1 and len(order):
        reached = np.cumsum(masses[order]) >= share * masses.sum()
        order = order[: 1 + int(np.argmax(reached))]
    return order[::-1]
