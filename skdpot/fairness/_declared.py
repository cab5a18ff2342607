"""What a fit is told: parameters that are checked before anything is charged, and made ready."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdpot.fairness._fair_map import clipped
from skdpot.fairness._group_weights import check_group_weights
from skdpot.fairness._groups import Groups, declare_groups
from skdpot.fairness._space import ColumnSpace, in_own_units
from skdpot.fairness._support import (
    CANDIDATES_PER_POINT,
    LARGEST_AUTOMATIC_SUPPORT,
    OPTIONS,
    VALUES,
)
from skdpot.tables import NUMERIC, Column, as_table, check_bounds, find_columns, read_codes
from skdpot.transport.barycenter import LARGEST_EXACT

# By how much sums of costs may be larger than one of them.
_ROOM = 1e6
_WHY_BOUNDS = "They give the grid, or the clipping, that what is released is scaled to."


@dataclass(frozen=True, eq=False)
class Declared:
    """What is public of rows, before anything is released of them.

    Attributes
    ----------
    columns : list of Column
        What rows are made of.
    groups : Groups
        The declared groups.
    candidates : ndarray of shape (n_candidates, n_columns) or None
        Rows to choose the support from, as codes.
    box : tuple of two ndarray
        Bounds of numbers.
    own, space : ColumnSpace
        Rows in their own units, and where distances are taken.
    low, high : ndarray of shape (n_ranked,)
        Bounds of numbers and ranks.
    """

    columns: list[Column]
    groups: Groups
    candidates: np.ndarray | None
    box: tuple[np.ndarray, np.ndarray]
    own: ColumnSpace
    space: ColumnSpace
    low: np.ndarray
    high: np.ndarray

    def units(self, codes: np.ndarray) -> np.ndarray:
        """Return private rows in unit coordinates."""
        ranked = len(self.low)
        units = self.own.raw(clipped(codes, self.columns, self.box))
        units[:, :ranked] = (units[:, :ranked] - self.low) / (self.high - self.low)
        return units

    def points_of(self, units: np.ndarray) -> np.ndarray:
        """Return points in the space of distances."""
        ranked, raw = len(self.low), units.copy()
        raw[:, :ranked] = self.low + (self.high - self.low) * raw[:, :ranked]
        return (raw - self.space.origin) * self.space.factor

    def meaning(self) -> dict[str, str]:
        """Return digests of what coordinates mean, which owners have to agree on."""
        labels = [() if column.labels is None else column.labels for column in self.columns]
        told = {
            "columns": [[column.kind, repr(column.name)] for column in self.columns],
            "categories": [[repr(label) for label in of_column] for of_column in labels],
            "bounds": [self.low.tolist(), self.high.tolist()],
        }
        return {
            name: hashlib.sha256(json.dumps(one).encode()).hexdigest() for name, one in told.items()
        }


def declare(settings: Any, columns: list[Column]) -> Declared:
    """Return what is public of rows, or raise before anything is charged.

    Parameters
    ----------
    settings : FairBarycenterPreprocessor
        Whose parameters count.
    columns : list of Column
        What rows are made of.

    Returns
    -------
    Declared
        Groups, candidates, bounds and spaces.
    """
    groups = declare_groups(settings.groups)
    if len(groups.names) < 2:
        raise ValueError("a repair needs two or more groups, and one was declared.")
    # Wrong weights and candidates raise before anything is charged; sizes are not known yet.
    check_group_weights(settings.weights, groups.names, np.ones(len(groups.names)))
    candidates = check_candidates(settings, columns)
    box = check_box(settings, columns)
    own = in_own_units(columns)
    low, high = own.box(*box)
    space = own.of_box(low, high, scaled=settings.scale)
    corner = np.concatenate([high, np.ones(len(own.factor) - len(high))])
    _check_extent(settings, space, corner, candidates)
    return Declared(columns, groups, candidates, box, own, space, low, high)


def read_columns(settings: Any, X: Any, kept: np.ndarray) -> list[Column]:
    """Return what is in the columns of X, as the estimator's parameters have it."""
    return find_columns(
        X,
        kept,
        categorical_features=settings.categorical_features,
        categories=settings.categories,
        missing=settings.missing,
        private=settings.epsilon is not None,
    )


def check_solver(settings: Any) -> tuple[str, dict[str, Any]]:
    """Return the solver that is asked for and its options, or raise."""
    solver = settings.solver
    free = settings.order == 2 and settings.candidates is None
    if solver == "auto" and free:
        solver = "free"
    if solver == "free" and not free:
        raise ValueError(
            "solver='free' moves support points freely, with costs of order 2; candidates and "
            "other orders are for the other solvers."
        )
    given = settings.solver_params or {}
    options = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(set(options) - OPTIONS[solver])
    if unknown:
        raise ValueError(
            f"solver_params holds {unknown}, and those of the solver {solver!r} are "
            f"{sorted(OPTIONS[solver])}."
        )
    for name, value in options.items():
        if not VALUES[name].is_satisfied_by(value):
            raise ValueError(f"solver_params[{name!r}] must be {VALUES[name]}, got {value!r}.")
    return solver, options


def check_box(settings: Any, columns: list[Column]) -> Any:
    """Return the bounds of numbers, None if there are none and need not be, or raise."""
    if settings.epsilon is None and settings.bounds is None:
        return None
    numeric = [column for column in columns if column.kind == NUMERIC]
    # Labels y, which have no position and come last, have no bounds.
    bounded = [column for column in numeric if column.position is not None]
    low, high = np.empty(0), np.empty(0)
    if isinstance(settings.bounds, dict):
        low, high = _bounds_by_column(settings.bounds, bounded, settings.epsilon is not None)
    elif bounded:
        low, high = _bounds_in_order(settings.bounds, bounded)
    beyond = np.full(len(numeric) - len(bounded), np.inf)
    return np.concatenate([low, -beyond]), np.concatenate([high, beyond])


def _bounds_in_order(bounds: Any, columns: list[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds that are a pair, or raise and say of which columns they have to be."""
    try:
        return check_bounds(bounds, len(columns), _WHY_BOUNDS)
    except ValueError as error:
        names = [column.name for column in columns]
        raise ValueError(
            f"{error} The numeric columns are, in order: {names}. A dict gives bounds by column."
        ) from error


def _bounds_by_column(
    bounds: dict, columns: list[Column], all_needed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds that are given by name or position, infinite where none are needed."""
    names = [column.name for column in columns]
    low, high = np.full(len(columns), -np.inf), np.full(len(columns), np.inf)
    for key, pair in bounds.items():
        places = [j for j, name in enumerate(names) if name == key]
        places = places or [j for j, column in enumerate(columns) if column.position == key]
        if not places:
            raise ValueError(
                f"bounds are declared for column {key!r}, which is none of the numeric columns: "
                f"{names}."
            )
        low[places], high[places] = check_bounds(pair, 1, _WHY_BOUNDS, f"bounds[{key!r}]")
    unbounded = [name for name, end in zip(names, high, strict=True) if np.isinf(end)]
    if all_needed and unbounded:
        raise ValueError(f"bounds must be declared for the columns {unbounded}. {_WHY_BOUNDS}")
    return low, high


def check_candidates(settings: Any, columns: list[Column]) -> np.ndarray | None:
    """Return the candidates as codes, None if there are none, or raise."""
    if settings.candidates is None:
        return None
    candidates = as_table(settings.candidates)
    if len(np.shape(candidates)) != 2 or candidates.shape[1] != len(columns):
        raise ValueError(
            f"candidates must be rows of {len(columns)} columns, those of X without the sensitive "
            f"attribute; got shape {np.shape(candidates)}."
        )
    places = [replace(column, position=place) for place, column in enumerate(columns)]
    codes = read_codes(candidates, places, "category")
    if (codes[:, [column.kind != NUMERIC for column in columns]] < 0).any():
        raise ValueError("candidates hold categories that are none of those of X.")
    codes = np.unique(codes, axis=0)
    if settings.n_support is not None and settings.n_support > len(codes):
        raise ValueError(
            f"n_support={settings.n_support} points cannot be chosen among {len(codes)} different "
            "candidates."
        )
    return codes


def check_size(settings: Any, n_points: int, candidates: np.ndarray | None) -> None:
    """Raise if the problem of released points may be too large for the solver."""
    if settings.solver != "exact":
        return
    n_candidates = CANDIDATES_PER_POINT * (settings.n_support or LARGEST_AUTOMATIC_SUPPORT)
    if candidates is not None:
        n_candidates = len(candidates)
    if n_points * n_candidates > LARGEST_EXACT:
        raise ValueError(
            f"solver='exact' is for at most {LARGEST_EXACT} pairs of points and candidates, and "
            f"these may be {n_points * n_candidates}. Use solver='bundle' with a small tol."
        )


def _check_extent(
    settings: Any, space: ColumnSpace, corner: np.ndarray, candidates: np.ndarray | None
) -> None:
    """Raise if costs within the box, to whose lower corner this one is opposite, may overflow."""
    extent = np.abs((corner - space.origin) * space.factor)
    if candidates is not None:
        extent = np.maximum(extent, np.abs(space.encode(candidates)).max(axis=0))
    # Four times: an upper bound on squares of sums of two. The rest is room for sums of costs.
    largest = np.float64(4.0 * (extent @ extent)) ** (settings.order / 2.0) * _ROOM
    if not np.isfinite([largest, space.factor.max()]).all():
        raise ValueError(
            "costs of transport between the bounds are beyond the range of doubles. Declare other "
            "bounds, or use a smaller order or other units."
        )
