"""The plot of users' distributions beside those that samplers would draw from."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from skdpot.display._style import (
    GREY,
    aspect_of,
    check_points,
    colour_of,
    name_axes,
    names_or_numbers,
    numbers,
    panels_for,
)

_MOST_USERS = 12
# Square points: the area of the largest mass among scattered points.
_LARGEST_AREA = 260.0


@dataclass(eq=False, repr=False)
class ProjectedDistributionsDisplay:
    """Users' distributions beside those that samplers would draw their private samples from.

    **None of it is private:** neither the distributions of the users nor their projections, which
    may not leave the users' side. It is a picture for public data, or of people who agree to it.
    Points with one coordinate are shown as bars along a line; with two coordinates as a map where
    they are a grid, and otherwise as discs with areas proportional to masses. Make one with
    :meth:`from_estimator`, or of distributions that there are already.

    Parameters
    ----------
    distributions : array-like of shape (n_users, n_inputs)
        Weights of the users over input points.
    projections : sequence of array-like of shape (n_users, n_outputs)
        For every sampler, weights over its output points.
    input_points : array-like of shape (n_inputs, n_coordinates)
        Of one or two coordinates, as the following.
    output_points : sequence of array-like of shape (n_outputs, n_coordinates), default=None
        Of every sampler; None is the input points.
    labels : sequence of str
        Names of the samplers.
    costs : array-like of shape (n_samplers, n_users), default=None
        How far projections are from the distributions; written above them.
    bounds : sequence of (tuple of two array-like of shape (n_outputs,) or None), default=None
        Between which probabilities a sampler's projections lie; dotted, on a line.
    user_names : sequence of str, default=None
        None is ``"user"``, or numbers several of them.
    coordinate_names : sequence of str, default=None
        What coordinates are.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        The panels: the user's, and one for each sampler. On a line they are below each other, of
        shape (1 + n_samplers, n_users); in the plane beside each other, of shape
        (n_users, 1 + n_samplers).
    figure_ : matplotlib Figure
        The figure of these axes.
    artists_ : ndarray of matplotlib artists, of the shape of `axes_`
        What shows the masses: bars (``BarContainer``), a map (``QuadMesh``), or discs
        (``PathCollection``).

    See Also
    --------
    PlanDisplay : How one distribution is moved to another.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import WassersteinProjectionSampler
    >>> from skdpot.display import ProjectedDistributionsDisplay
    >>> visits = np.array([[9.0, 1.0, 0.0, 0.0]])
    >>> sampler = WassersteinProjectionSampler(epsilon=1.0).fit(visits)
    >>> display = ProjectedDistributionsDisplay.from_estimator(sampler, visits)
    >>> [float(bar.get_height()) for bar in display.artists_[0, 0]]
    [0.9, 0.1, 0.0, 0.0]
    """

    distributions: Any
    projections: Sequence[Any]
    _: KW_ONLY
    input_points: Any
    output_points: Sequence[Any] | None = None
    labels: Sequence[str]
    costs: Any = None
    bounds: Sequence[Any] | None = None
    user_names: Sequence[str] | None = None
    coordinate_names: Sequence[str] | None = None

    @classmethod
    def from_estimator(
        cls,
        sampler: Any,
        X: Any,
        *,
        input_points: Any = None,
        output_points: Any = None,
        user_names: Sequence[str] | None = None,
        coordinate_names: Sequence[str] | None = None,
        ax: Any = None,
    ) -> "ProjectedDistributionsDisplay":
        """Plot what fitted samplers would draw from; nothing is released and nothing charged.

        Above each projection stands the mean cost of transport from the user's distribution, as
        the sampler's ``score`` has it.

        Parameters
        ----------
        sampler : sampler, or dict of str to sampler
            Fitted, with a method ``project``; or several of the same input points, by their names.
        X : {array-like, sparse matrix} of shape (n_users, n_inputs)
            Weights of at most 12 users. *Not private:* they are shown.
        input_points : array-like of shape (n_inputs, n_coordinates), default=None
            Where columns of X are. None is the sampler's parameter; without one, columns are at
            0, 1, ... on a line.
        output_points : array-like of shape (n_outputs, n_coordinates), default=None
            Where outputs are, for all samplers. None is what each has as ``output_points_``, which
            after a fit by ``cost_matrix`` alone is 0, 1, ... on a line.
        user_names : sequence of str, default=None
            None is ``"user"``, or numbers several of them.
        coordinate_names : sequence of str, default=None
            What coordinates are.
        ax : matplotlib Axes or array of them, default=None
            See :meth:`plot`.

        Returns
        -------
        ProjectedDistributionsDisplay
            The plot.

        Raises
        ------
        NotFittedError
            If a sampler is not fitted.
        TypeError
            If one has no projection.
        ValueError
            If there are too many users, or points have neither one nor two coordinates, or input
            and output points not as many.
        """
        samplers = sampler if isinstance(sampler, Mapping) else {type(sampler).__name__: sampler}
        for one in samplers.values():
            if not hasattr(one, "project"):
                raise TypeError(f"{type(one).__name__} has no method project, which is shown here.")
            check_is_fitted(one)
        X = X.toarray() if sparse.issparse(X) else numbers(X)
        if X.ndim != 2 or not 1 <= len(X) <= _MOST_USERS:
            raise ValueError(
                f"X must hold the weights of 1 to {_MOST_USERS} users, a user a row; got shape "
                f"{X.shape}."
            )
        first = next(iter(samplers.values()))
        for default in (first.input_points, np.arange(X.shape[1])[:, None]):
            input_points = default if input_points is None else input_points
        display = cls(
            X,
            [one.project(X) for one in samplers.values()],
            input_points=input_points,
            output_points=[
                one.output_points_ if output_points is None else output_points
                for one in samplers.values()
            ],
            labels=list(samplers),
            costs=[[-one.score(row[None]) for row in X] for one in samplers.values()],
            bounds=[
                (one.base_measure_, np.exp(one.epsilon) * one.base_measure_)
                for one in samplers.values()
            ],
            user_names=user_names,
            coordinate_names=coordinate_names,
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> "ProjectedDistributionsDisplay":
        """Plot it, once more.

        Parameters
        ----------
        ax : matplotlib Axes or array of them, default=None
            Where to plot: as many axes as there are panels, or one in whose place they all are.
            None makes a new figure.

        Returns
        -------
        ProjectedDistributionsDisplay
            This very object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If shapes do not agree, or weights are negative.
        """
        outputs = self.output_points
        if outputs is None:
            outputs = [self.input_points] * len(self.labels)
        points = [check_points(of, "points") for of in (self.input_points, *outputs)]
        dimension = points[0].shape[1]
        masses = [
            _checked_masses(*of)
            for of in zip(
                (self.distributions, *self.projections), points, ("distributions", *self.labels),
                strict=True,
            )
        ]  # fmt: skip
        n_users = len(masses[0])
        if {len(of) for of in masses} != {n_users}:
            raise ValueError("all samplers must be of the same users.")
        for of in points[1:]:
            if of.shape[1] != dimension:
                raise ValueError(
                    f"output points have {of.shape[1]} coordinate(s), input_points {dimension}: "
                    "give output_points."
                )
        default = ["user"] if n_users == 1 else [f"user {k}" for k in range(n_users)]
        users = names_or_numbers(self.user_names, n_users, "user", default)
        # A user's panels are below each other on a line, and beside each other in the plane.
        line = dimension == 1
        shape = (len(masses), n_users) if line else (n_users, len(masses))
        self.axes_ = panels_for(ax, *shape, panel_size=(6.4, 1.5) if line else (2.9, 2.7))
        self.figure_ = self.axes_[0, 0].figure
        self.artists_ = np.empty(shape, dtype=object)
        draw = self._plot_line if line else self._plot_plane
        by_user = (self.axes_.T, self.artists_.T) if line else (self.axes_, self.artists_)
        for user, (panels, artists) in enumerate(zip(*by_user, strict=True)):
            draw(panels, artists, points, [of[user] for of in masses])
            titles = [users[user], *(self._title(k, user) for k in range(len(self.labels)))]
            for panel, title in zip(panels, titles, strict=True):
                panel.set_title(title, fontsize="medium")
        return self

    def _title(self, sampler: int, user: int) -> str:
        cost = "" if self.costs is None else f"\ncost {numbers(self.costs)[sampler, user]:.3g}"
        return self.labels[sampler] + cost

    def _plot_line(self, panels: Any, artists: Any, points: Any, masses: Any) -> None:
        places = [of[:, 0] for of in points]
        widths = [0.85 * _least_gap(of) for of in places]
        ends = min(of.min() for of in places), max(of.max() for of in places)
        none: list[Any] = [None] * len(panels)
        bounds = none if self.bounds is None else [None, *self.bounds]
        highest = max((of.max() for of in masses[1:]), default=0.0)
        for k, panel in enumerate(panels):
            if k:
                panel.bar(places[0], masses[0], widths[0], color=GREY, alpha=0.22, linewidth=0)
            colour = colour_of(k - 1) if k else GREY
            artists[k] = panel.bar(places[k], masses[k], widths[k], color=colour, linewidth=0)
            if bounds[k] is not None:
                _plot_bounds(panel, places[k], bounds[k])
                highest = max(highest, np.max(bounds[k][1]))
            panel.set(xlim=(ends[0] - widths[0], ends[1] + widths[0]), ylabel="probability")
            panel.tick_params(labelbottom=k == len(panels) - 1)
        for panel in panels[1:]:
            # The user's own may be far higher; their tips are cut off here.
            panel.set_ylim(0, 1.08 * highest)
        name_axes(panels[-1], self.coordinate_names)

    def _plot_plane(self, panels: Any, artists: Any, points: Any, masses: Any) -> None:
        largest = max(of.max() for of in masses)
        aspect = aspect_of(np.concatenate(points))
        as_maps = all(_is_grid(of) for of in points)
        for k, panel in enumerate(panels):
            colour = colour_of(k - 1) if k else GREY
            plot = _plot_map if as_maps else _plot_discs
            artists[k] = plot(panel, points[k], masses[k], largest, colour)
            panel.set_aspect(aspect)
            panel.tick_params(labelleft=k == 0)
            name_axes(panel, self.coordinate_names if k == 0 else (self.coordinate_names or ())[:1])
        if as_maps:
            self.figure_.colorbar(artists[0], ax=list(panels), label="probability", shrink=0.9)


def _plot_bounds(panel: Any, places: np.ndarray, bounds: Any) -> None:
    order = np.argsort(places)
    for bound in bounds:
        panel.step(
            places[order], numbers(bound)[order], where="mid", color="black", ls=":", linewidth=0.9
        )


def _plot_map(panel: Any, points: np.ndarray, masses: np.ndarray, largest: float, _: str) -> Any:
    xs, ys = (np.unique(of) for of in points.T)
    shares = np.empty((len(ys), len(xs)))
    shares[np.searchsorted(ys, points[:, 1]), np.searchsorted(xs, points[:, 0])] = masses
    # What has little mass is nearly white.
    options = {"shading": "nearest", "cmap": "BuPu", "vmin": 0.0, "vmax": largest}
    return panel.pcolormesh(xs, ys, shares, **options)


def _plot_discs(
    panel: Any, points: np.ndarray, masses: np.ndarray, largest: float, colour: str
) -> Any:
    panel.plot(*points.T, ".", color="0.75", markersize=1.5, zorder=1)
    areas = _LARGEST_AREA * masses / largest
    return panel.scatter(*points.T, s=areas, color=colour, alpha=0.65, linewidths=0, zorder=2)


def _checked_masses(weights: Any, points: np.ndarray, name: str) -> np.ndarray:
    """Return probabilities over points."""
    weights = weights.toarray() if sparse.issparse(weights) else numbers(weights)
    if weights.ndim != 2 or weights.shape[1] != len(points):
        raise ValueError(
            f"{name} must have shape (n_users, {len(points)}), a column for each point; got shape "
            f"{weights.shape}."
        )
    totals = weights.sum(axis=1, keepdims=True)
    if not (np.isfinite(weights) & (weights >= 0)).all() or not (totals > 0).all():
        raise ValueError(f"{name} must be finite and at least 0, and no row may be all zero.")
    return weights / totals


def _least_gap(places: np.ndarray) -> float:
    gaps = np.diff(np.unique(places))
    return float(gaps.min()) if len(gaps) else 1.0


def _is_grid(points: np.ndarray) -> bool:
    """Tell whether points in the plane are all crossings of some lines, each of them once."""
    n_crossings = len(np.unique(points[:, 0])) * len(np.unique(points[:, 1]))
    return n_crossings == len(points) == len(np.unique(points, axis=0))
