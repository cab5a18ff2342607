"""Settings of a fit, and public facts about rows, checked before anything is charged."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdpot._base import refuse_bounds_in_other_order
from skdpot.fairness._groups import DeclaredGroups, FoundGroups, Groups, declare_groups
from skdpot.fairness._methods import ConditionalRepair
from skdpot.fairness._private_cells import private_codes
from skdpot.fairness._space import ColumnSpace, in_own_units
from skdpot.fairness._support import Support
from skdpot.releases import group_weights
from skdpot.tables import (
    NOMINAL,
    NUMERIC,
    Column,
    Table,
    TableSchema,
    check_bounds,
    place_of,
    read_codes,
    read_schema,
)

# Factor by which sums of costs may exceed a single cost.
_ROOM = 1e6
_WHY_BOUNDS = "They determine the grid or the clipping of the release."
_OR_CATEGORIES = "For columns of text or categories, declare categories={column: [labels]} instead."


@dataclass(frozen=True, eq=False)
class FitSettings:
    """The public settings of a fit: the estimator's `name`, then its parameters.

    `doubts` is a warning about declarations, or undeclared columns, that are probably wrong.
    """

    name: str
    weights: Any
    method: Support | ConditionalRepair
    fixed: tuple[int, ...]
    groups: FoundGroups | DeclaredGroups
    epsilon: Any
    delta: float
    bounds: Any
    n_jobs: Any
    random_state: Any
    verbose: Any
    doubts: str | None


@dataclass(frozen=True, eq=False)
class Declared:
    """The public facts about rows, before anything of them is released.

    Attributes
    ----------
    columns : list of Column
        The columns of rows.
    groups : Groups
        The declared groups.
    candidates : ndarray of shape (n_candidates, n_columns) or None
        Rows to choose the support from, as codes.
    box : tuple of two ndarray
        Bounds of numbers.
    unscaled, space : ColumnSpace
        Rows in their own units, and where distances are taken.
    low, high : ndarray of shape (n_ranked,)
        Bounds of numbers and ranks.
    """

    columns: list[Column]
    groups: Groups
    candidates: np.ndarray | None
    box: tuple[np.ndarray, np.ndarray]
    unscaled: ColumnSpace
    space: ColumnSpace
    low: np.ndarray
    high: np.ndarray

    def units(self, table: Table) -> np.ndarray:
        """Return private rows in unit coordinates, NaN for a missing number."""
        units = self.unscaled.raw(private_codes(table, column) for column in self.columns)
        ranked = units[:, : len(self.low)]
        ranked[:] = (np.clip(ranked, self.low, self.high) - self.low) / (self.high - self.low)
        return units

    def points_of(self, units: np.ndarray) -> np.ndarray:
        """Return points in the space in which distances are measured."""
        ranked, raw = len(self.low), units.copy()
        raw[:, :ranked] = self.low + (self.high - self.low) * raw[:, :ranked]
        return (raw - self.space.origin) * self.space.factor


def declare(settings: FitSettings, columns: list[Column]) -> Declared:
    """Return the public facts about rows with these columns, or raise."""
    groups = read_groups(settings.groups, settings.weights)
    candidates = read_candidates(settings, columns)
    box = read_box(settings, columns)
    unscaled = in_own_units(columns)
    low, high = unscaled.box(*box)
    space = unscaled.of_box(low, high, scaled=settings.method.scale)
    corner = np.concatenate([high, np.ones(len(unscaled.factor) - len(high))])
    _check_extent(settings, space, corner, candidates)
    return Declared(columns, groups, candidates, box, unscaled, space, low, high)


def read_groups(policy: FoundGroups | DeclaredGroups, weights: Any) -> Groups:
    """Return the declared groups; raise if they or their weights are wrong."""
    groups = declare_groups(policy.labels if isinstance(policy, DeclaredGroups) else None)
    if len(groups.names) < 2:
        raise ValueError("a repair needs two or more groups, and one was declared.")
    # Wrong weights raise before anything is charged; the sizes are not known yet.
    group_weights(weights, np.ones(len(groups.names)), groups.names)
    return groups


def read_box(settings: FitSettings, columns: list[Column]) -> Any:
    """Return the bounds of numbers, or None if they are neither given nor needed; or raise."""
    private = settings.epsilon is not None
    if not private and settings.bounds is None:
        return None
    numeric = [column for column in columns if column.kind == NUMERIC]
    # Labels y come last, have no position, and need no bounds.
    bounded = [column for column in numeric if column.position is not None]
    low, high = np.empty(0), np.empty(0)
    if isinstance(settings.bounds, dict):
        low, high = _bounds_by_column(settings.bounds, bounded, private)
    elif bounded:
        low, high = _bounds_in_order(settings.bounds, bounded)
    beyond = np.full(len(numeric) - len(bounded), np.inf)
    return np.concatenate([low, -beyond]), np.concatenate([high, beyond])


def _bounds_in_order(bounds: Any, columns: list[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds as a pair; raise and name the columns that they must be for."""
    names = [column.name for column in columns]
    refuse_bounds_in_other_order(bounds, names)
    try:
        return check_bounds(bounds, len(columns), _WHY_BOUNDS)
    except ValueError as error:
        raise ValueError(
            f"{error} A dict gives bounds by column. The columns without categories are, in order: "
            f"{names}. {_OR_CATEGORIES}"
        ) from error


def _bounds_by_column(
    bounds: dict, columns: list[Column], all_needed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds given by name or position, infinite for columns that need none."""
    low, high = np.full(len(columns), -np.inf), np.full(len(columns), np.inf)
    for key, pair in bounds.items():
        place = _place_of(key, columns)
        ends = (pair[0], pair[-1]) if _is_range(pair) else pair
        low[[place]], high[[place]] = check_bounds(ends, 1, _WHY_BOUNDS, f"bounds[{key!r}]")
    unbounded = [one.name for one, end in zip(columns, high, strict=True) if np.isinf(end)]
    if all_needed and unbounded:
        raise ValueError(
            f"bounds must be declared for the columns {unbounded}. {_WHY_BOUNDS} {_OR_CATEGORIES}"
        )
    return low, high


def read_schema_of(
    settings: FitSettings, columns: list[Column], box: Any, groups: Groups
) -> TableSchema:
    """Return the declared schemas of the rows and, as the target, of their groups; or raise.

    Numbers whose bounds are a range are integers.
    """
    numeric = [column for column in columns if column.kind == NUMERIC]
    bounds: list[Any] = list(zip(*(ends.tolist() for ends in box), strict=True))
    given = settings.bounds if isinstance(settings.bounds, dict) else {}
    for key, pair in given.items():
        if _is_range(pair):
            bounds[_place_of(key, numeric)] = pair
    declared = [
        read_schema({str(column.name): pair}).columns[0]
        for column, pair in zip(numeric, bounds, strict=True)
    ]
    found = [declared.pop(0) if column.kind == NUMERIC else column for column in columns]
    target = Column("group", NOMINAL, values=tuple(groups.names.tolist()))
    return TableSchema((*found, target), len(found))


def _is_range(bounds: Any) -> bool:
    return isinstance(bounds, range) and len(bounds) > 1 and bounds.step == 1


def _place_of(key: Any, columns: list[Column]) -> int:
    """Return the position of the column that bounds are declared for, or raise."""
    place = place_of(key, columns)
    if place is None:
        raise ValueError(
            f"bounds are declared for column {key!r}, which is not one of the numeric columns: "
            f"{[column.name for column in columns]}."
        )
    return place


def read_candidates(settings: FitSettings, columns: list[Column]) -> np.ndarray | None:
    """Return the candidates as codes, None if there are none; or raise."""
    if settings.method.candidates is None:
        return None
    table = Table(settings.method.candidates)
    if len(table.X.shape) != 2 or table.X.shape[1] != len(columns):
        raise ValueError(
            f"candidates must be rows of {len(columns)} columns, those of X without the sensitive "
            f"attribute; got shape {table.X.shape}."
        )
    places = [replace(column, position=place) for place, column in enumerate(columns)]
    codes = read_codes(table, places, "category")
    if (codes[:, [column.kind != NUMERIC for column in columns]] < 0).any():
        raise ValueError("candidates have categories that X does not have.")
    codes = np.unique(codes, axis=0)
    n_support = settings.method.n_support
    if n_support is not None and n_support > len(codes):
        raise ValueError(
            f"n_support={n_support} points cannot be chosen among {len(codes)} different "
            "candidates."
        )
    return codes


def _check_extent(
    settings: FitSettings, space: ColumnSpace, corner: np.ndarray, candidates: np.ndarray | None
) -> None:
    """Raise if costs within the box could overflow, given the corner opposite to the origin."""
    extent = np.abs((corner - space.origin) * space.factor)
    if candidates is not None:
        extent = np.maximum(extent, np.abs(space.encode(candidates)).max(axis=0))
    # The factor 4 bounds the square of a sum of two. The rest is room for sums of costs.
    largest = np.float64(4.0 * (extent @ extent)) ** (settings.method.order / 2.0) * _ROOM
    if not np.isfinite([largest, space.factor.max()]).all():
        raise ValueError(
            "costs of transport between the bounds are beyond the range of doubles. Declare other "
            "bounds, or use a smaller order or other units."
        )
