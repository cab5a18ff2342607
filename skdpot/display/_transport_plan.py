"""How one distribution is moved to another, on a line or in the plane."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdpot.display._plan import checked_plan
from skdpot.display._style import COLOURS, GREY, MASSES, aspect_of, axes_for, numbers

# Points and square points: the widest line of a plan, and the areas of its largest nodes.
_WIDEST, _LARGEST_AREA = 4.0, 150.0
# Points: the widest of many lines of one width, times the root of their number.
_WIDTH_OF_MANY = 16.0
# Of the marginals of points that are not evenly spaced.
_N_BINS = 25


class TransportPlanDisplay:
    """A transport plan between two sets of points, where they are.

    Points on a line are the axes of a picture of the plan, with both its marginals beside it; the
    dotted diagonal is what stays. Points in the plane are drawn as discs, with lines from sources
    to targets that are as wide as masses are large. What is drawn is as private as what was passed.
    Make one with :meth:`from_plan` or :meth:`from_estimator`.

    Parameters
    ----------
    plan : {array-like, sparse matrix} of shape (n_sources, n_targets)
        Masses, finite and non-negative.
    source_points : array-like of shape (n_sources, n_coordinates)
        Where the mass is from; of one or two coordinates.
    target_points : array-like of shape (n_targets, n_coordinates)
        Where it goes.
    source_name, target_name : str, default="source", "target"
        What both are called.
    coordinate_names : sequence of str, default=None
        What coordinates are.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was plotted.
    figure_ : matplotlib Figure
        The figure of these axes.
    plan_ : matplotlib artist
        The plan: on a line a ``QuadMesh`` where both sets are evenly spaced, and else a
        ``PathCollection`` of a disc for each positive mass; in the plane a ``LineCollection``.
    source_, target_ : matplotlib artist
        The marginals: the ``StepPatch`` of each on a line, ``PathCollection`` in the plane.
    marginal_axes_ : tuple of two matplotlib Axes or None
        On a line, where the sources and the targets are plotted.

    See Also
    --------
    AllocationPlanDisplay : A plan between nodes that are nowhere.
    skdpot.PrivateSinkhornDistance : Releases plans, with ``mechanism="histogram"``.

    Examples
    --------
    >>> from skdpot.display import TransportPlanDisplay
    >>> X, Y = [[0.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [2.0, 1.0]]
    >>> display = TransportPlanDisplay.from_plan([[0.5, 0.0], [0.1, 0.4]], X, Y)
    >>> len(display.plan_.get_segments())
    3
    """

    def __init__(
        self,
        plan: Any,
        source_points: Any,
        target_points: Any,
        *,
        source_name: str = "source",
        target_name: str = "target",
        coordinate_names: Any = None,
    ) -> None:
        self.plan = plan
        self.source_points = source_points
        self.target_points = target_points
        self.source_name = source_name
        self.target_name = target_name
        self.coordinate_names = coordinate_names

    @classmethod
    def from_plan(
        cls,
        plan: Any,
        X: Any,
        Y: Any,
        *,
        source_name: str = "source",
        target_name: str = "target",
        coordinate_names: Any = None,
        shown_mass: float = 1.0,
        ax: Any = None,
    ) -> "TransportPlanDisplay":
        """Plot a plan.

        Parameters
        ----------
        plan : {array-like, sparse matrix} of shape (n_sources, n_targets)
            Masses, finite and non-negative.
        X : array-like of shape (n_sources, n_coordinates)
            Where the mass is from; of one or two coordinates.
        Y : array-like of shape (n_targets, n_coordinates)
            Where it goes.
        source_name, target_name : str, default="source", "target"
            What both are called.
        coordinate_names : sequence of str, default=None
            What coordinates are.
        shown_mass : float, default=1.0
            See :meth:`plot`.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        TransportPlanDisplay
            The plot.

        Raises
        ------
        ValueError
            If the plan does not go with the points, or has masses that are negative or not finite.
        """
        display = cls(
            plan,
            X,
            Y,
            source_name=source_name,
            target_name=target_name,
            coordinate_names=coordinate_names,
        )
        return display.plot(ax, shown_mass=shown_mass)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, shown_mass: float = 1.0, ax: Any = None
    ) -> "TransportPlanDisplay":
        """Plot the private plan between two groups that an estimator has released.

        It was made of private histograms on a public grid: no record is looked at, nothing is
        charged, and the picture may be shown to anybody, unless the fit was seeded.

        Parameters
        ----------
        estimator : PrivateSinkhornDistance
            Fitted to two groups of records with one or two features, with
            ``mechanism="histogram"``.
        shown_mass : float, default=1.0
            See :meth:`plot`.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        TransportPlanDisplay
            The plot.

        Raises
        ------
        NotFittedError
            If it is not fitted.
        ValueError
            If it did not release a plan, or there are more than two features.
        """
        check_is_fitted(estimator)
        if not (hasattr(estimator, "plan_") and hasattr(estimator, "support_")):
            raise ValueError(
                f"this {type(estimator).__name__} has released no plan: fit it to two groups, with "
                "mechanism='histogram'."
            )
        source_name, target_name = estimator.groups_
        return cls.from_plan(
            estimator.plan_,
            estimator.support_,
            estimator.support_,
            source_name=str(source_name),
            target_name=str(target_name),
            coordinate_names=getattr(estimator, "feature_names_in_", None),
            shown_mass=shown_mass,
            ax=ax,
        )

    def plot(self, ax: Any = None, *, shown_mass: float = 1.0) -> "TransportPlanDisplay":
        """Plot it, once more.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.
        shown_mass : float, default=1.0
            In the plane: of all lines, which an entropic plan has very many of, the widest are
            drawn that have this share of the mass together.

        Returns
        -------
        TransportPlanDisplay
            This very object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If the plan does not go with the points, or has masses that are negative or not finite.
        """
        plan = checked_plan(self.plan, "(n_sources, n_targets)")
        if not plan.nnz:
            raise ValueError("plan must have some mass.")
        if not 0 < shown_mass <= 1:
            raise ValueError(f"shown_mass must be above 0 and at most 1, got {shown_mass!r}.")
        points = [numbers(self.source_points), numbers(self.target_points)]
        for of, name, n_points in zip(points, ("source", "target"), plan.shape, strict=True):
            if of.ndim != 2 or len(of) != n_points or of.shape[1] not in (1, 2):
                raise ValueError(
                    f"{name}_points must be {n_points} points of one or two coordinates, as the "
                    f"plan has shape {plan.shape}; got shape {of.shape}."
                )
        if points[0].shape[1] != points[1].shape[1]:
            raise ValueError("source_points and target_points must have as many coordinates.")
        self.ax_ = axes_for(ax, figsize=(6.0, 5.6))
        self.figure_ = self.ax_.figure
        self.marginal_axes_: tuple[Any, Any] | None = None
        if points[0].shape[1] == 1:
            self._plot_line(plan, *(of[:, 0] for of in points))
        else:
            self._plot_plane(plan, points[0], points[1], shown_mass)
        return self

    def _plot_line(self, plan: Any, sources: np.ndarray, targets: np.ndarray) -> None:
        ax = self.ax_
        if _is_even(sources) and _is_even(targets):
            dense = np.zeros(plan.shape)
            dense[plan.coords] = plan.data
            dense = dense[np.argsort(sources)][:, np.argsort(targets)]
            self.plan_ = ax.pcolormesh(
                np.sort(sources), np.sort(targets), dense.T, shading="nearest", cmap=MASSES, vmin=0
            )
        else:
            areas = _LARGEST_AREA * plan.data / plan.data.max()
            from_, to = plan.coords
            self.plan_ = ax.scatter(
                sources[from_], targets[to], s=areas, color=COLOURS[0], alpha=0.5, linewidths=0
            )
        low, high = min(sources.min(), targets.min()), max(sources.max(), targets.max())
        ax.plot((low, high), (low, high), ":", color=GREY, linewidth=1.0)
        above = ax.inset_axes((0.0, 1.02, 1.0, 0.2), sharex=ax)
        right = ax.inset_axes((1.02, 0.0, 0.2, 1.0), sharey=ax)
        self.marginal_axes_ = above, right
        self.source_ = _plot_marginal(above, sources, _totals(plan, 0), COLOURS[0], "vertical")
        self.target_ = _plot_marginal(right, targets, _totals(plan, 1), COLOURS[1], "horizontal")
        above.tick_params(labelbottom=False)
        right.tick_params(labelleft=False)
        labels = [self.source_name, self.target_name]
        if self.coordinate_names is not None:
            labels = [f"{self.coordinate_names[0]} ({label})" for label in labels]
        ax.set_xlabel(labels[0], color=COLOURS[0])
        ax.set_ylabel(labels[1], color=COLOURS[1])

    def _plot_plane(
        self, plan: Any, sources: np.ndarray, targets: np.ndarray, shown_mass: float
    ) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.colors import to_rgb

        ax = self.ax_
        chosen = _heaviest(plan.data, shown_mass)
        masses = plan.data[chosen]
        from_, to = (of[chosen] for of in plan.coords)
        shares = masses / masses.max()
        rgba = [(*to_rgb(GREY), 0.15 + 0.55 * share) for share in shares]
        # As if all lines had one mass: as many as the masses are worth, by their second moment.
        n_lines = masses.sum() ** 2 / (masses**2).sum()
        widest = min(_WIDEST, _WIDTH_OF_MANY / n_lines**0.5)
        segments = np.stack([sources[from_], targets[to]], axis=1)
        self.plan_ = LineCollection(
            list(segments), linewidths=0.3 + widest * shares, colors=rgba, zorder=1
        )
        ax.add_collection(self.plan_)
        totals = _totals(plan, 0), _totals(plan, 1)
        scale = _LARGEST_AREA / max(of.max() for of in totals)
        # Where both are at one place, the targets, which are rings, are around the sources.
        self.source_ = ax.scatter(
            *sources.T,
            s=scale * totals[0],
            color=COLOURS[0],
            alpha=0.75,
            linewidths=0,
            label=self.source_name,
            zorder=2,
        )
        self.target_ = ax.scatter(
            *targets.T,
            s=scale * totals[1],
            facecolors="none",
            edgecolors=COLOURS[1],
            linewidths=1.6,
            label=self.target_name,
            zorder=3,
        )
        ax.set_aspect(aspect_of(np.concatenate([sources, targets])))
        names = self.coordinate_names
        if names is not None:
            ax.set(xlabel=names[0], ylabel=names[1])
        ax.margins(0.08)
        _add_legend(ax)


def _add_legend(ax: Any) -> None:
    """Add a legend outside, with discs of one size, whatever the largest masses are."""
    legend = ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    for handle in legend.legend_handles:
        handle.set_sizes([60.0])


def _plot_marginal(ax: Any, places: np.ndarray, masses: np.ndarray, colour: str, way: str) -> Any:
    """Draw masses as steps, around evenly spaced places or in bins, and without a box."""
    edges = _edges(np.sort(places)) if _is_even(places) else _N_BINS
    heights, edges = np.histogram(places, edges, weights=masses)
    artist = ax.stairs(heights, edges, fill=True, color=colour, alpha=0.8, orientation=way)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    (ax.set_yticks if way == "vertical" else ax.set_xticks)([])
    return artist


def _edges(places: np.ndarray) -> np.ndarray:
    """Return the bounds of cells around ascending places."""
    middles = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])


def _totals(plan: Any, side: int) -> np.ndarray:
    return np.bincount(plan.coords[side], plan.data, plan.shape[side])


def _is_even(places: np.ndarray) -> bool:
    """Tell whether places are all different, and at equal distances."""
    gaps = np.diff(np.sort(places))
    return len(gaps) > 0 and gaps.min() > 0 and bool(np.allclose(gaps, gaps.mean(), rtol=1e-6))


def _heaviest(masses: np.ndarray, share: float) -> np.ndarray:
    """Return the numbers of the largest masses that have a share of all, the largest last."""
    order = np.argsort(-masses, kind="stable")
    if share < 1:
        reached = np.cumsum(masses[order]) >= share * masses.sum()
        order = order[: 1 + int(np.argmax(reached))]
    return order[::-1]
