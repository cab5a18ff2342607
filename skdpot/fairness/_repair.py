"""From the rows of a fit, through groups and a method, to the map that repairs rows."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skdpot._base import refuse_bounds_in_other_order, warn_user
from skdpot._progress import progress_bar
from skdpot._sklearn_compat import validate_parameters
from skdpot._threads import MANY_ROWS, one_thread_unless
from skdpot.fairness._certificate import MOST_ROWS, FairnessCertificate, certify, hold_out
from skdpot.fairness._conditional import ConditionalMap, ConditionalRepair, fit_conditional
from skdpot.fairness._groups import Groups, doubts_about_small_groups, group_policy
from skdpot.fairness._rows import (
    BLUR_DRAW,
    BLURRED_IMAGE_DRAW,
    ColumnSpace,
    in_own_units,
    row_keys,
    uniforms,
)
from skdpot.fairness._supports import (
    LARGEST_AUTOMATIC_SUPPORT,
    FreeSupport,
    Question,
    Support,
    SupportMap,
    distinct,
    doubts_about_support,
)
from skdpot.releases import group_weights, has_grid
from skdpot.tables import NUMERIC, Column, Table, check_bounds, place_of, read_codes

# Maximum number of numeric columns for which "auto" chooses a free support.
_MOST_COLUMNS = 3
# Rows for each column of each group that a private conditional fit needs at an epsilon of 1, and in
# proportion to 1 / epsilon: enough to distinguish three parts of a column.
_ROWS_PER_CELL = 25
# Default size of a support: one point for this many rows, but at least this many points.
_ROWS_PER_POINT, _FEW = 10, 50
_WHY_BOUNDS = "They determine the grid or the clipping of the release."
_OR_CATEGORIES = "For columns of text or categories, declare categories={column: [labels]} instead."


@dataclass(frozen=True, eq=False)
class RepairRows:
    """The rows of a fit as they were read, and the public facts about their repair.

    Attributes
    ----------
    columns : list of Column
        The columns of rows.
    method : Support or ConditionalRepair
        The method that moves them.
    fixed : tuple of int
        Positions of the columns that are conditioned on.
    box : tuple of two ndarray, or None
        Bounds that numbers are clipped to.
    candidates : ndarray of shape (n_candidates, n_columns) or None
        Rows to choose the support from, as codes.
    groups : Groups or None
        The declared groups of a private fit.
    n_records : int
        The number of rows, which is public.
    table, labels : Table, ndarray of shape (n_records,)
        The rows and the labels of their groups; of a private fit, read after the charge alone.
    codes : ndarray of shape (n_records, n_columns) or None
        The rows of a fit without privacy, as codes.
    n_parts : int
        Number of owners whose releases are added up, each with noise of its own.
    """

    columns: list[Column]
    method: Any
    fixed: tuple[int, ...]
    box: Any
    candidates: np.ndarray | None
    groups: Any
    n_records: int
    table: Any
    labels: Any
    codes: Any = None
    n_parts: int = 1


@dataclass(frozen=True, eq=False)
class BlurredColumn:
    """A column of numbers with merged cells.

    Attributes
    ----------
    position : int
        Its place in the table.
    column : Column
        Its declaration.
    starts, stops : ndarray of shape (n_cells,)
        The ranges of units of the cells.
    running : ndarray of shape (n_cells + 1,)
        The share of rows in all cells before.
    low, high : ndarray of shape (n_cells,)
        Where in these shares the merged cell of each begins and ends.
    """

    position: int
    column: Column
    starts: np.ndarray
    stops: np.ndarray
    running: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def drawn(self, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return numbers drawn in the merged cells of these, by uniform numbers."""
        cell = np.searchsorted(self.starts, self.column.units(numbers), side="right") - 1
        at = self.low[cell] + places * (self.high[cell] - self.low[cell])
        # Cells without rows are skipped.
        cell = np.searchsorted(self.running, at, side="right") - 1
        cell = np.clip(cell, 0, len(self.starts) - 1)
        share = self.running[cell + 1] - self.running[cell]
        inside = np.clip((at - self.running[cell]) / np.where(share > 0, share, 1.0), 0.0, 1.0)
        units = self.starts[cell] + inside * (self.stops[cell] - self.starts[cell])
        whole = np.minimum(np.floor(units), self.stops[cell] - 1)
        return self.column.numbers(whole.astype(np.int64), units - whole)


@dataclass(frozen=True, eq=False)
class FairMap:
    """Groups, and the map of their rows.

    A private map by conditional distributions redraws the numbers of rows first: only the
    information of the release remains. The release does not contain numbers that many rows share,
    nor close ties between columns. A map would move them by different errors in each group, and so
    mark the rows of a group. Images are redrawn too: numbers that heap up in the release would be
    moved apart by group.

    Attributes
    ----------
    columns : list of Column
        The columns of rows.
    box : tuple of two ndarray, or None
        Bounds that numbers are clipped to.
    groups : Groups
        The groups; those of a private fit have no rows here.
    weights : ndarray of shape (n_groups,)
        Their weights.
    transport : SupportMap or ConditionalMap
        How they are moved.
    certificate : FairnessCertificate or None
        The certificate from held-out rows.
    of_rows, of_images : list of BlurredColumn
        The numbers that are redrawn before they are moved, and after, if any rows are moved.
    """

    columns: list[Column]
    box: tuple[np.ndarray, np.ndarray] | None
    groups: Groups
    weights: np.ndarray
    transport: SupportMap | ConditionalMap
    certificate: FairnessCertificate | None = None
    of_rows: list[BlurredColumn] | tuple[()] = ()
    of_images: list[BlurredColumn] | tuple[()] = ()

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, n_jobs: Any, way: Any
    ) -> np.ndarray:
        """Return the images of rows, as codes; rows with group number -1 stay.

        `keys` are those of `row_keys`; `n_jobs` is that of the estimator, and `way` the
        `transform_method` of a support.
        """
        moved = clipped(codes, self.columns, self.box)
        if not self.transport.moves:
            return np.where((groups >= 0)[:, None], moved, codes)
        moved = redrawn(self.of_rows, moved, keys, BLUR_DRAW)
        moved = self.transport.images(moved, groups, keys, n_jobs, way)
        moved = redrawn(self.of_images, moved, keys, BLURRED_IMAGE_DRAW)
        return np.where((groups >= 0)[:, None], moved, codes)


def redrawn(
    columns: Any, codes: np.ndarray, keys: np.ndarray, first_draw: int = BLUR_DRAW
) -> np.ndarray:
    """Return rows with redrawn numbers, regardless of their groups."""
    codes = codes.copy()
    for blurred in columns:
        j = blurred.position
        codes[:, j] = blurred.drawn(codes[:, j], uniforms(keys, first_draw + j))
    return codes


def clipped(codes: np.ndarray, columns: list[Column], box: Any) -> np.ndarray:
    """Return rows with numbers clipped to their bounds, if there are any."""
    if box is None:
        return codes
    numeric = [column.kind == NUMERIC for column in columns]
    codes = codes.copy()
    codes[:, numeric] = np.clip(codes[:, numeric], *box)
    return codes


# ------------------------------------------------------------------- public facts about a repair


def automatic_method(
    columns: list[Column], n_records: int, groups: Any, epsilon: float | None, delta: float | None
) -> str:
    """Return the method that ``"auto"`` stands for, from public facts.

    It is a support for few columns (without epsilon only if they are numbers), and for private fits
    without a delta or with so few rows that noise hides how columns depend on each other. Otherwise
    it is conditional distributions, also for a private fit with a delta whose histogram would have
    too many cells.
    """
    few = len(columns) <= _MOST_COLUMNS
    if epsilon is None:
        numbers = all(column.kind == NUMERIC for column in columns)
        return "support" if few and numbers else "conditional"
    if delta and not has_grid(in_own_units(columns).layout):
        return "conditional"
    if few:
        return "support"
    n_cells = len(columns) * len(getattr(groups, "labels", ()))
    return "conditional" if delta and n_records * epsilon >= _ROWS_PER_CELL * n_cells else "support"


def repair_method(method: Any, automatic: str) -> Support | ConditionalRepair:
    """Return the method of a parameter `method`, or raise if it is wrong."""
    method = automatic if isinstance(method, str) and method == "auto" else method
    if isinstance(method, str):
        method = FreeSupport() if method == "support" else ConditionalRepair()
    validate_parameters(method)
    return method


def positions_of(named: Any, columns: list[Column]) -> tuple[int, ...]:
    """Return the positions of columns, given by names or positions in X; or raise."""
    if named is None:
        return ()
    names = [named] if np.ndim(named) == 0 else list(named)
    found = []
    for name in names:
        place = place_of(name, columns)
        if place is None:
            known = [column.name for column in columns]
            raise ValueError(f"conditional_on names {name!r}; the repaired columns are {known}.")
        found.append(place)
    if len(set(found)) == len(columns):
        raise ValueError("conditional_on names all columns, so none is left to repair.")
    return tuple(sorted(set(found)))


def read_box(bounds: Any, columns: list[Column], private: bool) -> Any:
    """Return the bounds of numbers, or None if they are neither given nor needed; or raise."""
    if not private and bounds is None:
        return None
    numeric = [column for column in columns if column.kind == NUMERIC]
    # Labels y come last, have no position, and need no bounds.
    bounded = [column for column in numeric if column.position is not None]
    low, high = np.empty(0), np.empty(0)
    if isinstance(bounds, dict):
        low, high = _bounds_by_column(bounds, bounded, private)
    elif bounded:
        low, high = _bounds_in_order(bounds, bounded)
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
        place = position_of_bounds(key, columns)
        ends = (pair[0], pair[-1]) if is_range(pair) else pair
        low[[place]], high[[place]] = check_bounds(ends, 1, _WHY_BOUNDS, f"bounds[{key!r}]")
    unbounded = [one.name for one, end in zip(columns, high, strict=True) if np.isinf(end)]
    if all_needed and unbounded:
        raise ValueError(
            f"bounds must be declared for the columns {unbounded}. {_WHY_BOUNDS} {_OR_CATEGORIES}"
        )
    return low, high


def is_range(bounds: Any) -> bool:
    """Tell whether bounds are those of integers."""
    return isinstance(bounds, range) and len(bounds) > 1 and bounds.step == 1


def position_of_bounds(key: Any, columns: list[Column]) -> int:
    """Return the position of the column that bounds are declared for, or raise."""
    place = place_of(key, columns)
    if place is None:
        raise ValueError(
            f"bounds are declared for column {key!r}, which is not one of the numeric columns: "
            f"{[column.name for column in columns]}."
        )
    return place


def read_candidates(
    method: Support | ConditionalRepair, columns: list[Column]
) -> np.ndarray | None:
    """Return the candidates as codes, None if there are none; or raise."""
    if method.candidates is None:
        return None
    table = Table(method.candidates)
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
    n_support = method.n_support
    if n_support is not None and n_support > len(codes):
        raise ValueError(
            f"n_support={n_support} points cannot be chosen among {len(codes)} different "
            "candidates."
        )
    return codes


# ---------------------------------------------------------------------- from groups to a map


def open_repair(fair: Any, rows: RepairRows, *, certified: bool = True) -> FairMap:
    """Return the map of a fit without privacy; it is as private as the rows.

    `fair` is the estimator, whose parameters say how.
    """
    policy = group_policy(fair.groups)
    groups = policy._make_groups(rows.labels)
    warn_user(doubts_about_small_groups(policy, groups))
    # Wrong weights raise before anything is computed.
    group_weights(fair.weights, groups.sizes, groups.names)
    rng = check_random_state(fair.random_state)
    codes, columns = clipped(rows.codes, rows.columns, rows.box), rows.columns
    if isinstance(rows.method, ConditionalRepair):
        return map_of_rows(fair, rows, codes, groups, rng, certified=certified)
    inside = codes[groups.codes >= 0]
    units = in_own_units(columns)
    space = units.scaled_to(inside) if rows.method.scale else units.centred_on(inside)
    # All rows, or as many as the method takes.
    most, found, n_rows = rows.method._most_rows(), [], 0
    for g in range(len(groups.names)):
        drawn = np.flatnonzero(groups.codes == g)
        drawn = drawn if len(drawn) <= most else rng.choice(drawn, most, replace=False)
        n_rows += len(drawn)
        found.append(distinct(space.encode(codes[drawn]), np.full(len(drawn), 1.0 / len(drawn))))
    # Each support point then has enough rows to estimate the masses of new rows.
    n_support = min(LARGEST_AUTOMATIC_SUPPORT, max(n_rows // _ROWS_PER_POINT, min(n_rows, _FEW)))
    return map_of_groups(fair, rows, groups, space, found, n_support, rng)


def map_of_groups(
    fair: Any,
    rows: RepairRows,
    groups: Groups,
    space: ColumnSpace,
    found: list[tuple[np.ndarray, np.ndarray]],
    n_support: int,
    rng: Any,
) -> FairMap:
    """Return the map to the barycenter of exact or released groups.

    `found` are the points of every group and their masses, and `n_support` is the default number of
    points of the support. No row is read.
    """
    weights = group_weights(fair.weights, groups.sizes, groups.names)
    question = Question(
        space=space,
        points=[points for points, _ in found],
        masses=[masses for _, masses in found],
        weights=weights,
        n_support=rows.method.n_support or n_support,
        candidates=rows.candidates,
    )
    name = type(fair).__name__
    with progress_bar(desc=name, unit=" rounds", disable=not fair.verbose) as bar:
        transport = rows.method._solve(
            question, rng, fair.n_jobs, lambda n_iter: bar.update(n_iter - bar.n)
        )
    if fair.epsilon is None:
        warn_user(doubts_about_support(question, transport))
    return FairMap(rows.columns, rows.box, groups, weights, transport)


def map_of_rows(
    fair: Any,
    rows: RepairRows,
    codes: np.ndarray,
    groups: Groups,
    rng: Any,
    *,
    certified: bool = True,
    shown: float = 0.0,
) -> FairMap:
    """Return the map by conditional distributions, with a certificate if one is possible.

    `codes` are exact rows, or rows drawn from a release. There is no certificate for the latter,
    and none of conditional parity. `shown` is the excess of the AUC over 1/2 that errors of a
    private map may cause: if groups are not found more easily, nothing is moved.
    """
    method, weights = rows.method, group_weights(fair.weights, groups.sizes, groups.names)
    generator = np.random.default_rng(rng.randint(2**31))
    may_be = certified and fair.epsilon is None and not rows.fixed
    held_out = hold_out(groups.codes, method.held_out if may_be else 0.0, generator)
    tol = float(method.tol)
    name, certificate = type(fair).__name__, None
    with one_thread_unless(len(codes) >= MANY_ROWS):
        with progress_bar(desc=name, unit=" columns", disable=not fair.verbose) as bar:
            transport = fit_conditional(
                rows.columns,
                codes,
                np.where(held_out, -1, groups.codes),
                weights,
                generator,
                fixed=rows.fixed,
                tol=max(tol, min(shown, 0.5)) if tol > 0 else tol,
                max_rows=method._most_rows(),
                callback=bar.update,
            )
        if held_out.any():
            seed = int(generator.integers(2**63))

            def repaired(of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                keys = row_keys(seed, codes[of], groups.codes[of])
                moved = transport.images(codes[of], groups.codes[of], keys, fair.n_jobs)
                return moved, groups.codes[of]

            known = generator.permutation(np.flatnonzero(~held_out & (groups.codes >= 0)))
            of_fit, of_others = repaired(known[:MOST_ROWS]), repaired(np.flatnonzero(held_out))
            names = groups.names.tolist()
            certificate = certify(of_fit, of_others, rows.columns, names, generator)
    return FairMap(rows.columns, rows.box, groups, weights, transport, certificate)
