"""The private repair: its recipe, what is declared before, and the map that is made of it.

Private rows are read cell by cell: no value raises, warns, or changes how others are read. Types,
names and shapes are public, and are all that a fit may refuse for nothing. A value that is not
declared is missing, and a row without a place is counted nowhere.
"""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from skdpot._progress import progress_bar
from skdpot.fairness._conditional import ConditionalRepair
from skdpot.fairness._groups import Groups
from skdpot.fairness._repair import (
    BlurredColumn,
    FairMap,
    RepairRows,
    is_range,
    map_of_groups,
    map_of_rows,
    position_of_bounds,
    redrawn,
)
from skdpot.fairness._rows import ColumnSpace, in_own_units
from skdpot.fairness._supports import LARGEST_AUTOMATIC_SUPPORT, distinct
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.foreign import silence
from skdpot.privacy.preview import PrivacyGuarantee
from skdpot.privacy.random import make_source
from skdpot.releases import HistogramRelease
from skdpot.tables import (
    NOMINAL,
    NUMERIC,
    Column,
    Table,
    TableSchema,
    objects,
    private_codes,
    read_schema,
    refuse_other_labels,
)

if TYPE_CHECKING:
    from skdpot.generative import ReleasedTable

# What of rows is not protected by a private fit, besides what is said of single estimators.
PUBLIC_OF_ROWS = ("the number of rows", "the names and types of columns", "the time of the fit")
# Factor by which sums of costs may exceed a single cost.
_ROOM = 1e6
# Minimum number of rows drawn of every group, whatever its released size.
_FEWEST = 20
# Cells with fewer rows than this many deviations of the noise of a count are merged.
_TOLD_APART = 4.0
# Cells of images with a smaller share of the rows than this are merged. Maps are not precise enough
# to give smaller cells the same share in all groups.
_LEAST_SHARE = 0.02


def private_repair(fair: Any, plan: ReleasePlan, rows: RepairRows) -> FairMap:
    """Return the map of a private fit. Every step that reads private values is here, in order.

    `fair` is the estimator. One record may be replaced by any other. There is one release, with the
    whole budget; what follows it is a function of the release and of public facts. Proof:
    :ref:`proof-private-groups`, and of the sketch :ref:`proof-private-tables`.
    """
    release, source = plan.release, plan.source
    public = replace(rows, table=None, labels=None)
    if isinstance(rows.method, ConditionalRepair):
        # The sketch of the columns and the group. Its own recipe divides the budget, and says by
        # how much each of its counts and sums may change.
        records = SimpleNamespace(points=private_units(rows, release.space.schema))
        return map_of_table(fair, release, public, release.run(records, source))
    # Counts by group and cell. A replaced record leaves one of them and joins another: they change
    # by 2 in the l1 norm and by sqrt(2) in the l2 norm, as `histogram_sensitivities` proves.
    counts = release.add_noise(release.values(*private_points(rows)), source)
    return map_of_counts(fair, release, public, counts)


def plan_repair(fair: Any, rows: RepairRows) -> ReleasePlan:
    """Return the plan of the release of a private fit, from public facts; or raise."""
    name, groups, delta = type(fair).__name__, rows.groups, float(fair.delta or 0.0)
    if isinstance(rows.method, ConditionalRepair):
        # Imported here: open repairs, and repairs by supports, need no generators.
        from skdpot.generative import plan_table

        schema = _schema_of(rows, fair.bounds)
        progress = partial(progress_bar, desc=name, disable=not fair.verbose)
        release: Any = plan_table(schema, fair.epsilon, delta, "replace_one", progress)
        what = release.label
    else:
        _check_extent(rows)
        layout, n_groups = in_own_units(rows.columns).layout, len(groups.names)
        release = HistogramRelease(
            layout, n_groups, rows.n_records, fair.epsilon, delta, rows.n_parts
        )
        rows.method._check_size(n_groups * release.most_points, rows.candidates)
        what = "histogram"
    guarantee = PrivacyGuarantee(
        epsilon=float(fair.epsilon),
        delta=delta,
        neighbouring="replace_one",
        unit="record",
        not_protected=("rows that are transformed", *PUBLIC_OF_ROWS),
    )
    source = make_source(fair.random_state)
    return ReleasePlan(
        release, release.event, source, f"{name}, {what}", guarantee, n_records=rows.n_records
    )


# ---------------------------------------------------------------------------- private rows


def in_cells(X: Any) -> Any:
    """Return rows in a list as an array of objects, whatever their values; others as they are.

    Lists have no type: that of `np.asarray` would depend on single values.

    Examples
    --------
    >>> from skdpot.fairness._private import in_cells
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
        return units[(units >= 0).all(axis=1)]


# ----------------------------------------------------------------------- declarations


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
    # The factor 4 bounds the square of a sum of two. The rest is room for sums of costs.
    largest = np.float64(4.0 * (extent @ extent)) ** (rows.method.order / 2.0) * _ROOM
    if not np.isfinite([largest, space.factor.max()]).all():
        raise ValueError(
            "costs of transport between the bounds are beyond the range of doubles. Declare other "
            "bounds, or use a smaller order or other units."
        )


# ------------------------------------------------------- post-processing: no private value is read


def map_of_counts(
    fair: Any, release: HistogramRelease, rows: RepairRows, counts: np.ndarray
) -> FairMap:
    """Return the map to the barycenter of groups with released counts."""
    released = release.groups_of(counts)
    _, space, low, high = _scales(rows)
    found = []
    for units, masses in zip(released.points, released.masses, strict=True):
        raw = units.copy()
        raw[:, : len(low)] = low + (high - low) * raw[:, : len(low)]
        found.append(distinct((raw - space.origin) * space.factor, masses))
    groups = replace(rows.groups, sizes=released.sizes)
    rng = check_random_state(fair.random_state)
    return map_of_groups(fair, rows, groups, space, found, LARGEST_AUTOMATIC_SUPPORT, rng)


def map_of_table(fair: Any, release: Any, rows: RepairRows, released: "ReleasedTable") -> FairMap:
    """Return the map by conditional distributions of rows drawn from a released sketch."""
    rng = check_random_state(fair.random_state)
    n_records, n_groups = rows.n_records, len(rows.groups.names)
    codes, groups = drawn_rows(rows, released, min(n_records, rows.method._most_rows()), rng)
    least = _TOLD_APART * release.noise_of_counts * math.sqrt(n_groups) / n_records
    free = [
        j for j, column in enumerate(rows.columns)
        if column.kind == NUMERIC and j not in rows.fixed
    ]  # fmt: skip
    of_rows = _blurred_columns(released, free, least)
    # The map moves blurred rows, so it is fitted to blurred rows.
    codes = redrawn(of_rows, codes, rng.randint(2**63, size=len(codes), dtype=np.uint64))
    # The expected separation of groups by chance, for a map fitted to so many rows.
    by_chance = math.sqrt(len(rows.columns) * n_groups / n_records)
    shown = math.hypot(release.shown_by_noise(n_records), by_chance)
    found = map_of_rows(fair, rows, codes, groups, rng, shown=shown)
    of_images = _blurred_columns(released, free, max(least, _LEAST_SHARE))
    return replace(found, of_rows=of_rows, of_images=of_images)


def drawn_rows(
    rows: RepairRows, released: "ReleasedTable", n_records: int, rng: Any
) -> tuple[np.ndarray, Groups]:
    """Return about so many rows drawn from a sketch, as codes, and their groups."""
    # Weights by size use the released sizes, not the numbers of drawn rows.
    sizes = np.maximum(np.rint(released.counts * n_records), 1).astype(np.intp)
    of_rows = np.repeat(np.arange(len(sizes)), np.maximum(sizes, _FEWEST))
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
