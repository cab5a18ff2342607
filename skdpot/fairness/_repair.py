"""From the rows of a fit, through groups and a method, to the map that repairs rows."""

import math
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from skdpot._base import progress_bar, refuse_bounds_in_other_order, warn_user
from skdpot._sklearn_compat import MANY_ROWS, one_thread_unless
from skdpot.fairness._certificate import MOST_ROWS, FairnessCertificate, certify, hold_out
from skdpot.fairness._conditional import ConditionalMap, ConditionalRepair, fit_conditional
from skdpot.fairness._groups import Groups, doubts_about_small_groups, group_policy
from skdpot.fairness._supports import (
    BLUR_DRAW,
    BLURRED_IMAGE_DRAW,
    LARGEST_AUTOMATIC_SUPPORT,
    ColumnSpace,
    FreeSupport,
    Group,
    Support,
    SupportMap,
    distinct,
    in_own_units,
    row_keys,
    uniforms,
)
from skdpot.privacy.charging import PrivacyGuarantee, ReleasePlan
from skdpot.privacy.checks import silence
from skdpot.privacy.noise import make_source
from skdpot.releases import HistogramRelease, group_weights, has_grid
from skdpot.tables import (
    NOMINAL,
    NUMERIC,
    Column,
    Table,
    TableSchema,
    check_bounds,
    objects,
    place_of,
    private_codes,
    read_codes,
    read_schema,
    refuse_other_labels,
)

if TYPE_CHECKING:
    from skdpot.generative import ReleasedTable

_WHY_BOUNDS = "They determine the grid or the clipping of the release."


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
        Bounds that the numbers of a private fit are clipped to.
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
        Bounds that the numbers of a private fit are clipped to.
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
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, n_jobs: Any
    ) -> np.ndarray:
        """Return the images of rows, as codes; rows with group number -1 stay.

        `keys` are those of `row_keys`, and `n_jobs` is that of the estimator.
        """
        moved = clipped(codes, self.columns, self.box)
        if not self.transport.moves:
            return np.where((groups >= 0)[:, None], moved, codes)
        moved = redrawn(self.of_rows, moved, keys, BLUR_DRAW)
        moved = self.transport.images(moved, groups, keys, n_jobs)
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
    """Return rows with numbers clipped to the bounds of a private fit."""
    if box is None:
        return codes
    numeric = [column.kind == NUMERIC for column in columns]
    # Not in place: rows that are not moved are returned as they came.
    codes = codes.copy()
    codes[:, numeric] = np.clip(codes[:, numeric], *box)
    return codes


# ------------------------------------------------------------------- public facts about a repair


def automatic_method(
    columns: list[Column],
    n_records: int,
    groups: Any,
    epsilon: float | None,
    delta: float | None,
    *,
    most_columns: int = 3,
    rows_per_cell: int = 25,
) -> Support | ConditionalRepair:
    """Return the method that ``"auto"`` stands for, from public facts.

    It is a support for few columns (without epsilon only if they are numbers), and for private fits
    without a delta or with so few rows that noise hides how columns depend on each other. Otherwise
    it is conditional distributions, also for a private fit with a delta whose histogram would have
    too many cells. `rows_per_cell` are the rows for each column of each group that a private
    conditional fit needs at an epsilon of 1: enough to distinguish three parts of a column.
    """
    few = len(columns) <= most_columns
    if epsilon is None:
        takes_support = few and all(column.kind == NUMERIC for column in columns)
    elif delta and not has_grid(in_own_units(columns).layout):
        takes_support = False
    else:
        n_cells = len(columns) * len(getattr(groups, "labels", ()))
        # The noise shrinks with epsilon, and so do the rows that are needed.
        takes_support = few or not delta or n_records * epsilon < rows_per_cell * n_cells
    return FreeSupport() if takes_support else ConditionalRepair()


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


def read_box(bounds: Any, columns: list[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of all numbers of a private fit, or raise and name their columns."""
    numeric = [column for column in columns if column.kind == NUMERIC]
    names = [column.name for column in numeric]
    or_categories = (
        "For columns of text or categories, declare categories={column: [labels]} instead."
    )
    low, high = np.full(len(numeric), np.inf), np.full(len(numeric), np.inf)
    if isinstance(bounds, dict):
        for key, pair in bounds.items():
            place = position_of_bounds(key, numeric)
            ends = (pair[0], pair[-1]) if is_range(pair) else pair
            low[[place]], high[[place]] = check_bounds(ends, 1, _WHY_BOUNDS, f"bounds[{key!r}]")
        unbounded = [name for name, end in zip(names, high, strict=True) if np.isinf(end)]
        if unbounded:
            raise ValueError(
                f"bounds must be declared for the columns {unbounded}. {_WHY_BOUNDS} "
                f"{or_categories}"
            )
    elif numeric:
        refuse_bounds_in_other_order(bounds, names)
        try:
            low, high = check_bounds(bounds, len(numeric), _WHY_BOUNDS)
        except ValueError as error:
            raise ValueError(
                f"{error} A dict gives bounds by column. The columns without categories are, in "
                f"order: {names}. {or_categories}"
            ) from error
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
    # Candidates lack the columns of the attribute.
    places = [replace(column, position=place) for place, column in enumerate(columns)]
    codes = read_codes(table, places, "category")
    if (codes[:, [column.kind != NUMERIC for column in columns]] < 0).any():
        raise ValueError("candidates have categories that X does not have.")
    # Equal candidates would be chosen as different points of the support.
    codes = np.unique(codes, axis=0)
    n_support = method.n_support
    if n_support is not None and n_support > len(codes):
        raise ValueError(
            f"n_support={n_support} points cannot be chosen among {len(codes)} different "
            "candidates."
        )
    return codes


def _schema_of(rows: RepairRows, bounds: Any) -> TableSchema:
    """Return the declared schemas of the rows and, as the target, of their groups; or raise.

    Numbers whose bounds are a range are integers.
    """
    numeric = [column for column in rows.columns if column.kind == NUMERIC]
    ends: list[Any] = list(zip(*(end.tolist() for end in rows.box), strict=True))
    for key, pair in bounds.items() if isinstance(bounds, dict) else ():
        if is_range(pair):
            ends[position_of_bounds(key, numeric)] = pair
    declared = [
        read_schema({str(column.name): pair}).columns[0]
        for column, pair in zip(numeric, ends, strict=True)
    ]
    found = [declared.pop(0) if column.kind == NUMERIC else column for column in rows.columns]
    target = Column("group", NOMINAL, values=tuple(rows.groups.names.tolist()))
    return TableSchema((*found, target), len(found))


def _scales(rows: RepairRows) -> tuple[ColumnSpace, ColumnSpace, np.ndarray, np.ndarray]:
    """Return rows in own units, where distances are taken, and bounds of numbers and ranks."""
    unscaled = in_own_units(rows.columns)
    low, high = unscaled.box(*rows.box)
    return unscaled, unscaled.of_box(low, high, scaled=rows.method.scale), low, high


def _check_extent(rows: RepairRows) -> None:
    """Raise if costs between declared bounds could overflow."""
    unscaled, space, _, high = _scales(rows)
    # The corner opposite to the origin.
    corner = np.concatenate([high, np.ones(len(unscaled.factor) - len(high))])
    extent = np.abs((corner - space.origin) * space.factor)
    if rows.candidates is not None:
        extent = np.maximum(extent, np.abs(space.encode(rows.candidates)).max(axis=0))
    # The factor 4 bounds the square of a sum of two, and a million is room for sums of costs.
    largest = np.float64(4.0 * (extent @ extent)) ** (rows.method.order / 2.0) * 1e6
    if not np.isfinite([largest, space.factor.max()]).all():
        raise ValueError(
            "costs of transport between the bounds are beyond the range of doubles. Declare other "
            "bounds, or use a smaller order or other units."
        )


# ---------------------------------------------------------------------------- private rows
#
# Private rows are read cell by cell: no value raises, warns, or changes how others are read. Types,
# names and shapes are public, and are all that a fit may refuse for nothing. A value that is not
# declared is missing, and a row without a place is counted nowhere.


def in_cells(X: Any) -> Any:
    """Return rows in a list as an array of objects, whatever their values; others as they are.

    Lists have no type: that of `np.asarray` would depend on single values.

    Examples
    --------
    >>> from skdpot.fairness._repair import in_cells
    >>> in_cells([[1, 2.5], [["a"], None]])
    array([[1, 2.5],
           [list(['a']), None]], dtype=object)
    """
    rows = X if isinstance(X, list | tuple) else []
    widths = {len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in rows}
    if len(widths) != 1 or -1 in widths:
        return X
    return objects([cell for row in rows for cell in row]).reshape(len(rows), *widths)


def refuse_types(table: Table, columns: list[Column]) -> None:
    """Raise if the type of a column shows that it holds no declared value; no value is read."""
    for column in columns:
        if column.kind != NUMERIC:
            refuse_other_labels(table.series(column.position), column.values, column.name)
        elif table.kind(column.position) == "M":
            raise TypeError(
                f"column {column.name!r} of X is not numeric, it holds dates. Convert them first, "
                "for example to days since a fixed day."
            )
        # Kinds of NumPy: text of three forms, durations, complex numbers.
        elif table.kind(column.position) in "USTmc":
            raise ValueError(
                f"column {column.name!r} of X has the type "
                f"{table.dtype(column.position) or table.X.dtype}, which is not numeric. "
                "Convert it first, or declare its labels by categories."
            )


def private_points(rows: RepairRows) -> tuple[np.ndarray, np.ndarray]:
    """Return private rows in unit coordinates, and the numbers of their groups.

    A row of an undeclared group, or with a missing number, has the number -1.
    """
    unscaled, _, low, high = _scales(rows)
    with silence():
        units = unscaled.raw(private_codes(rows.table, column) for column in rows.columns)
        # In place, through a view of the numbers and ranks.
        ranked = units[:, : len(low)]
        ranked[:] = (np.clip(ranked, low, high) - low) / (high - low)
        codes = rows.groups.find(rows.labels)
        return np.nan_to_num(units), np.where(np.isnan(units).any(axis=1), -1, codes)


def private_units(rows: RepairRows, schema: TableSchema) -> np.ndarray:
    """Return the private rows of which all is declared and known, as integers, last the group."""
    units = np.empty((len(rows.table), len(schema.columns)), dtype=np.int64, order="F")
    with silence():
        for j, column in enumerate(rows.columns):
            codes = private_codes(rows.table, column)
            units[:, j] = schema.columns[j].units(codes) if column.kind == NUMERIC else codes
        units[:, -1] = rows.groups.find(rows.labels)
        # A sketch counts whole rows: what is unknown in one column has no place in the pairs.
        return units[(units >= 0).all(axis=1)]


# --------------------------------------------------------------- from rows to groups to a map


def progress_of(fair: Any, **options: Any) -> Any:
    """Return a progress bar of an estimator, which is shown if its `verbose` says so."""
    return progress_bar(desc=type(fair).__name__, disable=not fair.verbose, **options)


def plan_repair(fair: Any, rows: RepairRows) -> ReleasePlan:
    """Return the plan of the release of a private fit, from public facts; or raise."""
    groups, delta = rows.groups, float(fair.delta or 0.0)
    if isinstance(rows.method, ConditionalRepair):
        # Imported here: open repairs, and repairs by supports, need no generators.
        from skdpot.generative import plan_table

        schema, progress = _schema_of(rows, fair.bounds), partial(progress_of, fair)
        release: Any = plan_table(schema, fair.epsilon, delta, "replace_one", progress)
        what = release.label
    else:
        _check_extent(rows)
        layout, n_groups = in_own_units(rows.columns).layout, len(groups.names)
        release = HistogramRelease(
            layout, n_groups, rows.n_records, fair.epsilon, delta, rows.n_parts
        )
        what = "histogram"
    return plan_of(fair, release, what, ("rows that are transformed",), rows.n_records)


def plan_of(
    fair: Any, release: Any, what: str, not_protected: tuple[str, ...], n_records: int
) -> ReleasePlan:
    """Return the plan of the release of an estimator, in which any record may be replaced."""
    guarantee = PrivacyGuarantee(
        epsilon=float(fair.epsilon),
        delta=float(fair.delta or 0.0),
        neighbouring="replace_one",
        unit="record",
        # What of rows no private fit protects.
        not_protected=(
            *not_protected,
            "the number of rows",
            "the names and types of columns",
            "the time of the fit",
        ),
    )
    label, source = f"{type(fair).__name__}, {what}", make_source(fair.random_state)
    return ReleasePlan(release, release.event, source, label, guarantee, n_records=n_records)


def private_repair(fair: Any, plan: ReleasePlan, rows: RepairRows) -> FairMap:
    """Return the map of a private fit. Every step that reads private values is here, in order.

    `fair` is the estimator. One record may be replaced by any other. There is one release, with the
    whole budget; what follows it is a function of the release and of public facts. Proof:
    :ref:`proof-private-groups`, and of the sketch :ref:`proof-private-tables`.
    """
    release, source = plan.release, plan.source
    # What follows the release is handed no private value, and could not read one.
    public = replace(rows, table=None, labels=None)
    if isinstance(rows.method, ConditionalRepair):
        # The sketch of the columns and the group. Its own recipe divides the budget, and says by
        # how much each of its counts and sums may change.
        records = SimpleNamespace(values=private_units(rows, release.space.schema))
        return map_of_table(fair, release, public, release.run(records, source))
    # Counts by group and cell. A replaced record leaves one of them and joins another: they change
    # by 2 in the l1 norm and by sqrt(2) in the l2 norm, as `histogram_sensitivities` proves.
    counts = release.add_noise(release.values(*private_points(rows)), source)
    return map_of_counts(fair, release, public, counts)


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
    codes, columns = rows.codes, rows.columns
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
    # Ten rows for each support point are enough to estimate the masses of new rows there.
    n_support = min(LARGEST_AUTOMATIC_SUPPORT, max(n_rows // 10, min(n_rows, 50)))
    return map_of_groups(fair, rows, groups, space, found, n_support, rng)


# Below, no private value is read: groups and rows are released, or those of an open fit.


def map_of_counts(
    fair: Any, release: HistogramRelease, rows: RepairRows, counts: np.ndarray
) -> FairMap:
    """Return the map to the barycenter of groups with released counts."""
    sizes, points, masses = release.groups_of(counts)
    _, space, low, high = _scales(rows)
    found = []
    for units, of_units in zip(points, masses, strict=True):
        # Released points are in units of the bounds.
        raw = units.copy()
        raw[:, : len(low)] = low + (high - low) * raw[:, : len(low)]
        found.append(distinct((raw - space.origin) * space.factor, of_units))
    groups = replace(rows.groups, sizes=sizes)
    rng = check_random_state(fair.random_state)
    return map_of_groups(fair, rows, groups, space, found, LARGEST_AUTOMATIC_SUPPORT, rng)


def map_of_table(
    fair: Any,
    release: Any,
    rows: RepairRows,
    released: "ReleasedTable",
    *,
    told_apart: float = 4.0,
    least_of_images: float = 0.02,
) -> FairMap:
    """Return the map by conditional distributions of rows drawn from a released sketch.

    Cells with fewer rows than `told_apart` deviations of the noise of a count are merged. Maps are
    not precise enough to give cells with a share below `least_of_images` the same share in all
    groups, so images are drawn in larger ones.
    """
    rng = check_random_state(fair.random_state)
    n_records, n_groups = rows.n_records, len(rows.groups.names)
    codes, groups = drawn_rows(rows, released, min(n_records, rows.method._most_rows()), rng)
    least = told_apart * release.noise_of_counts * math.sqrt(n_groups) / n_records
    free = [
        j for j, column in enumerate(rows.columns)
        if column.kind == NUMERIC and j not in rows.fixed
    ]  # fmt: skip
    of_rows = _blurred_columns(released, free, least)
    # The map moves blurred rows, so it is fitted to blurred rows.
    codes = redrawn(of_rows, codes, rng.randint(2**63, size=len(codes), dtype=np.uint64))
    # The expected separation of groups by chance, for a map fitted to this number of rows.
    by_chance = math.sqrt(len(rows.columns) * n_groups / n_records)
    shown = math.hypot(release.shown_by_noise(n_records), by_chance)
    found = map_of_rows(fair, rows, codes, groups, rng, shown=shown)
    of_images = _blurred_columns(released, free, max(least, least_of_images))
    return replace(found, of_rows=of_rows, of_images=of_images)


def drawn_rows(
    rows: RepairRows, released: "ReleasedTable", n_records: int, rng: Any
) -> tuple[np.ndarray, Groups]:
    """Return about this number of rows drawn from a sketch, as codes, and their groups."""
    # Weights by size use the released sizes, not the numbers of drawn rows.
    sizes = np.maximum(np.rint(released.counts * n_records), 1).astype(np.intp)
    # A few rows of every group, also where noise hides it: models need examples.
    of_rows = np.repeat(np.arange(len(sizes)), np.maximum(sizes, 20))
    units = released.units_of(of_rows, rng)
    codes = units[:, :-1].astype(np.float64)
    for j, column in enumerate(released.space.schema.columns[:-1]):
        if column.kind == NUMERIC:
            codes[:, j] = column.numbers(units[:, j], rng.uniform(size=len(units)))
    return codes, replace(rows.groups, codes=of_rows, sizes=sizes)


def _blurred_columns(
    released: "ReleasedTable", positions: list[int], least: float
) -> list[BlurredColumn]:
    """Return columns whose cells with smaller shares than this are merged."""
    cells, found = released.merged_cells(least), []
    for j in positions:
        starts, stops, shares, merged = cells[j]
        running = np.r_[0.0, np.cumsum(shares)]
        first, last = (np.searchsorted(merged, merged, side=side) for side in ("left", "right"))
        column = released.space.schema.columns[j]
        found.append(
            BlurredColumn(j, column, starts, stops, running, running[first], running[last])
        )
    return found


def map_of_groups(
    fair: Any,
    rows: RepairRows,
    groups: Groups,
    space: ColumnSpace,
    found: list[Group],
    n_support: int,
    rng: Any,
) -> FairMap:
    """Return the map to the barycenter of exact or released groups.

    `found` are the points of every group and their masses, and `n_support` is the default number of
    points of the support. No row is read.
    """
    weights = group_weights(fair.weights, groups.sizes, groups.names)
    n_support = rows.method.n_support or n_support
    with progress_of(fair, unit=" rounds") as bar:
        transport = rows.method._solve(
            space,
            found,
            weights,
            n_support,
            rows.candidates,
            rng,
            fair.n_jobs,
            lambda n_rounds, *_: bar.update(n_rounds - bar.n),
        )
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
    held_out = np.zeros(len(codes), dtype=bool)
    # Of conditional parity there is no bound: groups may differ in the columns that are fixed.
    if certified and fair.epsilon is None and not rows.fixed:
        held_out = hold_out(groups.codes, method.held_out, generator)
    tol, certificate = float(method.tol), None
    with one_thread_unless(len(codes) >= MANY_ROWS):
        with progress_of(fair, unit=" columns") as bar:
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
                # Like new rows: their draws are not those that the fit was made with.
                keys = row_keys(seed, codes[of], groups.codes[of])
                moved = transport.images(codes[of], groups.codes[of], keys, fair.n_jobs)
                return moved, groups.codes[of]

            known = generator.permutation(np.flatnonzero(~held_out & (groups.codes >= 0)))
            of_fit, of_others = repaired(known[:MOST_ROWS]), repaired(np.flatnonzero(held_out))
            names = groups.names.tolist()
            certificate = certify(of_fit, of_others, rows.columns, names, generator)
    return FairMap(rows.columns, rows.box, groups, weights, transport, certificate)
