"""Axes, colours and checks that the plots share."""

from collections.abc import Sequence
from typing import Any

import numpy as np

# Colours that colour-blind readers can tell apart (M. Okabe, K. Ito), the darkest ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (8, 2)))
GREY = "0.35"


def load_pyplot() -> Any:
    """Return ``matplotlib.pyplot``, or raise and say how to install it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: `pip install skdpot[plot]`.") from error
    return pyplot


def axes_for(ax: Any, **options: Any) -> Any:
    """Return the given axes, or those of a new figure with these options."""
    pyplot = load_pyplot()
    return pyplot.subplots(layout="constrained", **options)[1] if ax is None else ax


def panels_for(
    ax: Any, n_rows: int, n_columns: int, *, panel_size: tuple[float, float]
) -> np.ndarray:
    """Return a matrix of axes: the given ones, or new ones in a new figure or in the given axes."""
    pyplot = load_pyplot()
    if ax is None:
        figsize = (n_columns * panel_size[0] + 0.6, n_rows * panel_size[1] + 0.6)
        options = {"squeeze": False, "figsize": figsize, "layout": "constrained"}
        return pyplot.subplots(n_rows, n_columns, **options)[1]
    given = np.asarray(ax, dtype=object)
    if given.size == n_rows * n_columns:
        return given.reshape(n_rows, n_columns)
    cell = None if given.ndim else ax.get_subplotspec()
    if cell is None:
        raise ValueError(
            f"ax must be {n_rows * n_columns} axes, for {n_rows} x {n_columns} panels, or one of a "
            "grid of subplots, which they replace."
        )
    ax.set_axis_off()
    return cell.subgridspec(n_rows, n_columns).subplots(squeeze=False)


def numbers(values: Any) -> np.ndarray:
    """Return values as floats."""
    return np.asarray(values, dtype=np.float64)


def check_option(name: str, value: Any, options: Sequence[Any]) -> None:
    """Raise unless a value is one of its options."""
    if value not in options:
        raise ValueError(f"{name} must be one of {tuple(options)}, got {value!r}.")


def check_points(points: Any, name: str) -> np.ndarray:
    """Return points with one or two coordinates, or raise."""
    points = numbers(points)
    if points.ndim != 2 or points.shape[1] not in (1, 2) or not len(points):
        raise ValueError(
            f"{name} must have one or two coordinates to be shown, as an array of shape "
            f"(n_points, 1) or (n_points, 2); got shape {points.shape}."
        )
    return points


def names_or_numbers(names: Any, n: int, what: str) -> list[str]:
    """Return the names of the nodes of a side, by default their numbers."""
    if names is None:
        return [str(number) for number in range(n)]
    if len(names) != n:
        raise ValueError(f"{what}_names must name {n} {what}s, got {len(names)} names.")
    return [str(name) for name in names]


def colour_of(number: int) -> str:
    """Return the colour of a curve."""
    return COLOURS[number % len(COLOURS)]
