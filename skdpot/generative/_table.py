"""The sketch of a table: its parameters, and its release.

The private marginals of a table: counts with noise of single columns and of pairs of columns.

All counts are made within each class of the target, if there is one. A record is in one cell of
every table, with or without classes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, validate_parameters
from skdpot.generative._budget import (
    PlannedRelease,
    SketchBudget,
    SketchSeries,
    check_noise,
    sketch_budget,
)
from skdpot.generative._counts import (
    LEAST_NOISE,
    MOST_PARITIES,
    ROUNDS,
    WIDENING,
    are_scanned,
    cells_of_units,
    column_halves,
    count_together,
    cut_cells,
    deviation_in_classes,
    empty_tails,
    expected_errors,
    first_edges,
    group_cells,
    largest_scanned,
    likely_counts,
    noise_of_counts,
    noise_of_tables,
    parity_sums,
    possible_cells,
    possible_pairs,
    records_hidden_by,
    refined_columns,
    release_tables,
    released_size,
    scanned_subsets,
    sums_of_pairs,
    tables_sensitivity,
    widened_cells,
    with_totals,
)
from skdpot.generative._draws import ReleasedTable
from skdpot.generative._mixture import fit_table
from skdpot.generative._records import Declared
from skdpot.generative._table_space import (
    LARGEST_WEIGHT,
    People,
    TableRecords,
    TableSpace,
    read_space,
    release_sizes,
    taken_out,
)
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import Table, TableSchema, check_index, person_codes

# Statistics that are used only to fit a model.
_FIT_ONLY = ("totals", "tails")
# Totals of all classes are released if the noise multiplier is above this. With less noise, counts
# within classes are precise enough, and matter more to models.
_NOISE_OF_TOTALS = 1.0


class TableSketch(BaseEstimator):
    """A sketch of a table: counts of pairs of columns, and a mixture fitted to them.

    Parameters
    ----------
    n_components : int, default=400
        Number of components of all mixtures together. Half of them are divided equally among the
        classes of the target, the others in proportion to class size.
    n_iter : int, default=600
        Number of steps of the fit of a mixture to the released counts.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator, which takes it as `model`.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import TableSketch
    >>> generator = DPSinkhornGenerator(
    ...     schema={"age": range(18, 80), "sex": ["F", "M"]}, model=TableSketch(n_components=100)
    ... )
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, n_components=400, *, n_iter=600):
        self.n_components = n_components
        self.n_iter = n_iter

    def _check(self, declared: Declared) -> None:
        """Raise where parameters are wrong."""
        validate_parameters(self)

    def _read(
        self, estimator: Any, X: Any, y: Any, declared: Declared, *, reset: bool, private: bool,
        groups: Any = None,
    ) -> "TableRecords":  # fmt: skip
        """Return a private table, or raise; with `groups`, that of their people."""
        if groups is None:
            space = self._space_of(X, y, declared)
            units = space.read(estimator, X, y, reset=reset, private=private)
            return TableRecords(space, units[(units >= 0).all(axis=1)], len(units))
        X, groups, user = taken_out(X, groups)
        check_index(X, groups)
        space = self._space_of(X, y, declared).by_person(user)
        units = space.read(estimator, X, y, reset=reset, private=private)
        codes, names = person_codes(groups, len(units), leave_out=private)
        kept = (codes >= 0) & (units >= 0).all(axis=1)
        return TableRecords(space, units[kept], len(names), People.of(codes[kept]))

    def _space_of(self, X: Any, y: Any, declared: Declared) -> "TableSpace":
        """Return the declaration of a table, with the types of a frame, or raise."""
        table = Table(X)
        space = read_space(declared, table.container, apart=y is not None)
        return replace(space, schema=space.schema.typed(table, declared.schema))

    def _unseen(
        self, declared: Declared, columns: Any, *, by_person: bool = False
    ) -> "TableRecords":
        """Return no records of the declared table, or raise."""
        space = read_space(declared, "array", apart=declared.classes is not None)
        if by_person:
            space = space.by_person("user")
        return TableRecords(space, np.empty((0, 0)), 0)

    def _plan(
        self, space: "TableSpace", budget: SketchBudget, training: Any,
        progress: Callable[..., Any],
    ) -> "TableReleases":  # fmt: skip
        """Return the release, or raise; no record is looked at."""
        if training is not None:
            raise ValueError("network is for vectors and images, and a table has a schema.")
        release = TableReleases(space, budget, int(self.n_components), int(self.n_iter), progress)
        check_noise(budget, release.planned)
        return release


@dataclass(frozen=True)
class TableReleases(SketchSeries):
    """The releases of a sketch of a table: public."""

    space: TableSpace
    budget: SketchBudget
    n_components: int
    n_iter: int
    progress: Callable[..., Any]
    # Whether classes are the groups of a map, which noise in them would reveal.
    pooled: bool = False

    label = "a sketch of a table"

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the counts of columns, and of pairs of columns."""
        errors = expected_errors(
            n_records, self.space.schema, self._releases(None), totals=self._options["totals"]
        )
        if not self.pooled:
            return errors
        quantity = "AUC above 1/2 that the noise of a map may give groups away by"
        return (*errors, ExpectedError(quantity, self.shown_by_noise(n_records), 0.5))

    def shown_by_noise(self, n_records: int) -> float:
        """Return by how much the AUC is above 1/2 that errors reveal a class of average size by."""
        schema = self.space.schema
        share_noise = self.noise_of_counts * schema.n_classes / n_records
        return 2 * math.sqrt(len(schema.features)) * share_noise

    @property
    def noise_of_counts(self) -> float:
        """Return the standard deviation of the noise of the counts of single columns."""
        return noise_of_counts(self.space.schema, self._releases(None))

    def run(self, records: Any, source: Any) -> "ReleasedTable":
        """Release the counts of the points of records, and fit the model to them."""
        schema, shares = self.space.schema, self._shares
        releases, points = self._releases(source), records.points
        # One step for each release, and one for the fit of the model.
        with self.progress(total=len(shares) + 1, unit=" parts") as bar:
            released = release_marginals(
                points, schema, releases, **self._options,
                people=None if self.space.user is None else records.people,
            )  # fmt: skip
            bar.update(len(shares))
            model = fit_table(released, schema, self.n_components, self.n_iter, pooled=self.pooled)
            bar.update()
        statistics = {name: array for name, array in released.items() if name not in _FIT_ONLY}
        return ReleasedTable(self.space, model, released_size(released), statistics)

    def _releases(self, source: Any) -> SketchReleases:
        budget = self.budget
        return SketchReleases(budget.noise_multiplier, self._shares, budget.neighbouring, source)

    @property
    def planned(self) -> dict[str, PlannedRelease]:
        """Return the releases, with bounds of their sensitivities."""
        # A record is in at most one table for each column, and for each pair of columns.
        n_tables = max(len(self.space.schema.columns) ** 2, MOST_PARITIES)
        whole = 1 if self.space.user is None else LARGEST_WEIGHT
        bound = partial(cell_count_sensitivity, n_tables=n_tables, whole=whole)
        return {name: PlannedRelease(share, bound) for name, share in self._shares.items()}

    @property
    def _shares(self) -> dict[str, float]:
        by_person = self.space.user is not None
        return share_marginals(self.space.schema, **self._options, by_person=by_person)

    @property
    def _options(self) -> dict[str, Any]:
        """Return the release; classes that are groups of a map need no parities or totals."""
        apart = not self.pooled
        totals = apart and self.budget.noise_multiplier > _NOISE_OF_TOTALS
        # Parities are counted by bits, which have no weights.
        return {"parities": apart and self.space.user is None, "totals": totals}


def plan_table(
    schema: TableSchema,
    epsilon: float,
    delta: float,
    neighbouring: str,
    progress: Callable[..., Any],
) -> TableReleases:
    """Return the release of the sketch of a table, or raise; for other parts of the package.

    Parameters
    ----------
    schema : TableSchema
        The declaration of the table; all columns depend on its target.
    epsilon, delta : float
        Budget, which is spent completely.
    neighbouring : {"add_remove", "replace_one"}
        The neighbouring relation.
    progress : callable
        Makes a progress bar, as tqdm does.

    Returns
    -------
    TableReleases
        Its ``event`` is charged, then ``run(records, source)`` returns a `ReleasedTable`. Of
        `records` it reads the attribute ``points``, as of `TableRecords`. Records that are not
        declared may be left out there: they count nowhere then.

    Raises
    ------
    ValueError
        If epsilon is too small: that depends on public quantities only.

    Examples
    --------
    >>> from tqdm import tqdm
    >>> from skdpot.generative import plan_table
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"age": range(18, 80), "sex": ["F", "M"]}, "sex")
    >>> plan_table(schema, 1.0, 1e-5, "replace_one", tqdm).label
    'a sketch of a table'
    """
    space = TableSpace(schema, "array", False)
    budget = sketch_budget(epsilon, delta, neighbouring)
    model = TableSketch()
    release = TableReleases(space, budget, model.n_components, model.n_iter, progress, pooled=True)
    check_noise(budget, release.planned)
    return release


_PAIR_SHARE, _PARITY_SHARE, _SIZES_SHARE = 0.4, 0.08, 0.05
# Of counts of columns. The sum over classes adds up their noise. Where columns are also counted in
# all classes together, counts within classes have a smaller share.
_COLUMN_SHARE, _SHARE_WITHIN, _SHARE_OF_TOTALS = 0.3, 0.2, 0.1


def share_marginals(
    schema: TableSchema, *, parities: bool = False, totals: bool = False, by_person: bool = False
) -> dict[str, float]:
    """Return the share of the budget of each release of `release_marginals`.

    Parameters
    ----------
    schema : TableSchema
        The declaration of the table.
    parities : bool, default=False
        Whether parities of columns are released, unless there are too many columns.
    totals : bool, default=False
        Whether columns are also counted in all classes together, if there are several classes.
    by_person : bool, default=False
        Whether people have several rows, whose numbers are released.

    Returns
    -------
    dict of str to float
        By the name of the release. The sum need not be 1.

    Examples
    --------
    >>> from skdpot.generative._table import share_marginals
    >>> from skdpot.tables import read_schema
    >>> share_marginals(read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]}))
    {'values': 0.3, 'pairs': 0.4}
    """
    has_totals = totals and schema.n_classes > 1
    shares = {"values": _SHARE_WITHIN if has_totals else _COLUMN_SHARE}
    if has_totals:
        shares["totals"] = _SHARE_OF_TOTALS
    if refined_columns(schema):
        shares |= dict.fromkeys(ROUNDS, 0.02)
    if len(schema.features) > 1:
        shares["pairs"] = _PAIR_SHARE
    if parities and are_scanned(len(schema.features)):
        shares["parities"] = _PARITY_SHARE
    if by_person:
        shares["numbers of rows"] = _SIZES_SHARE
    return shares


def release_marginals(
    units: np.ndarray,
    schema: TableSchema,
    releases: SketchReleases,
    *,
    parities: bool = False,
    totals: bool = False,
    people: People | None = None,
) -> dict[str, np.ndarray]:
    """Release the counts of single columns and of all pairs, within each class.

    Parameters
    ----------
    units : ndarray of shape (n, n_columns), dtype int64
        Private, of `TableSchema.encode`.
    schema : TableSchema
        The declaration of the table.
    releases : SketchReleases
        With the shares of `share_marginals`.
    parities, totals : bool
        As of `share_marginals`. There are no parities of people.
    people : People, default=None
        Private. The people of rows. None means one row per person.

    Returns
    -------
    dict of str to ndarray
        Released values, and numbers computed from public ones. Columns are all but the target;
        cells are those of all columns, one column after another.

        - ``"n_cells"``: the number of cells of each column.
        - ``"starts"``, ``"stops"``: the range of units of each cell.
        - ``"counts"`` of shape (n_cells, n_classes): the number of records of each cell.
        - ``"groups"``: the group of each cell, from 0 in every column.
        - ``"pairs"``: the number of records in each pair of groups of two columns, by class: the
          tables of shape (n_groups, n_groups, n_classes), one pair of columns after another.
        - ``"deviations"``: of the noise of counts and of pairs. If columns are also counted in all
          classes together, two more follow: of the noise of counts of each class, and of all
          classes, before they were combined in ``"counts"``.
        - ``"parities"`` of shape (n_subsets, n_classes), if they are released: sums of the parities
          of `scanned_subsets`, of up to ``"largest_parity"`` columns. ``"halves"`` has the half of
          its column in which each group is, and ``"parity_deviation"`` that of the noise.
        - ``"totals"`` of shape (n_cells,): the number of records of all classes in each cell, by
          all counts together, at least 0; ``"tails"`` of shape (n_cells,), of `empty_tails`.
        - With people, ``"sizes"``: of `release_sizes`. All other counts are of people then.

    Notes
    -----
    A record is in one cell of each of the `t` tables of a release, whose sensitivity is
    ``sqrt(t)``. With people, each of the `k` rows of a person adds ``LARGEST_WEIGHT // k``, so that
    a person adds at most the weight of a record to each table, and the sensitivity is
    ``LARGEST_WEIGHT * sqrt(t)``. Cells and their groups are functions of earlier releases. A record
    changes a parity by 1, in its class only.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._table import release_marginals, share_marginals
    >>> from skdpot.tables import read_schema
    >>> from skdpot.privacy.random import make_source
    >>> from skdpot.releases import SketchReleases
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> units = np.repeat([[0, 0], [0, 1], [1, 1]], [300, 500, 200], axis=0)
    >>> releases = SketchReleases(1.0, share_marginals(schema), "add_remove", make_source(0))
    >>> released = release_marginals(units, schema, releases)
    >>> released["counts"].shape, released["pairs"].shape
    ((4, 1), (4,))
    >>> bool(np.abs(np.sort(released["pairs"]) - [0, 200, 300, 500]).max() < 20)
    True
    """
    cells = _release_cells(units, schema, releases, people)
    columns = _release_columns(cells, schema, releases, totals=totals)
    # Noise of these sums is independent; that of what they are combined with below is not.
    largest_noise = [noise.max() for noise in columns.noise]
    tails = empty_tails(columns.sums, cells.starts, schema, largest_noise)
    groups = [np.zeros(len(starts), dtype=np.int64) for starts in cells.starts]
    pairs: list[np.ndarray] = []
    further: dict[str, np.ndarray] = {}
    if people is not None:
        further["sizes"] = release_sizes(people.sizes, releases)
    known_sums, pair_noise = cells.round_sums, 0.0
    if len(schema.features) > 1:
        pair_noise = noise_of_tables(releases, "pairs", math.comb(len(schema.features), 2))
        grouped = _group_columns(cells, columns.sums, tails, schema, pair_noise)
        groups, n_groups = grouped.groups, grouped.sizes
        pairs = _release_pairs(grouped, cells, schema, releases)
        noise_of_pairs = [max(pair_noise, LEAST_NOISE)] * len(pairs)
        margins = sums_of_pairs(pairs, n_groups, schema.n_classes, noise_of_pairs)
        known_sums = [
            [*sums, (group, *margin)]
            for sums, group, margin in zip(known_sums, groups, margins, strict=True)
        ]
        if parities and are_scanned(len(schema.features)):
            further |= _release_parities(grouped, cells.classes, schema, releases)
    combined = [
        likely_counts(*known_of_column)
        for known_of_column in zip(
            columns.sums, columns.noise, known_sums, groups, tails, strict=True
        )
    ]
    count_noise, *separate_noise = columns.deviations
    return {
        **further,
        "n_cells": np.array([len(starts) for starts in cells.starts]),
        "starts": np.concatenate(cells.starts),
        "stops": np.concatenate(cells.stops),
        "counts": np.concatenate(columns.counts),
        "groups": np.concatenate(groups),
        "pairs": np.concatenate([*pairs, np.zeros(0)]),
        "deviations": np.array([count_noise, pair_noise, *separate_noise]),
        "totals": np.concatenate(combined),
        "tails": np.concatenate(tails),
    }


class _Cells(NamedTuple):
    """The cells of every column but the target, and the cells and classes of records.

    The arrays of `codes`, `classes` and `weights` are private. `round_sums` has the counts that
    were released to cut the cells, as `likely_counts` takes them.
    """

    starts: list[np.ndarray]
    stops: list[np.ndarray]
    codes: list[np.ndarray]
    classes: np.ndarray
    round_sums: list[list[tuple[np.ndarray, np.ndarray, float]]]
    # The integers that rows add to counts, and their sum over the rows of a person, at most.
    weights: np.ndarray | None
    whole: int


class _ColumnCounts(NamedTuple):
    """Released counts of each column by class, and their sums over classes with their noise.

    `deviations` has the noise of counts by class; if totals were released, it is followed by the
    noise of these counts and of totals before they were combined.
    """

    counts: list[np.ndarray]
    sums: list[np.ndarray]
    noise: list[np.ndarray]
    deviations: list[float]


class _Groups(NamedTuple):
    """The groups of cells of each column, their counts, and the group of each record: private."""

    groups: list[np.ndarray]
    masses: list[np.ndarray]
    codes: list[np.ndarray]

    @property
    def sizes(self) -> list[int]:
        """Return the number of groups of each column."""
        return [len(mass) for mass in self.masses]


def _release_cells(
    units: np.ndarray, schema: TableSchema, releases: SketchReleases, people: People | None
) -> _Cells:
    """Release counts, cut cells with many records by them, and return the cells."""
    final_deviation = math.sqrt(schema.n_classes) * noise_of_counts(schema, releases)
    weights, whole = (None, 1) if people is None else (people.weights, LARGEST_WEIGHT)
    edges = {j: first_edges(schema.columns[j]) for j in schema.features}
    rounds: dict[int, list[tuple[np.ndarray, np.ndarray, float]]] = {j: [] for j in edges}
    refined = refined_columns(schema)
    for name in ROUNDS if refined else ():
        counts = [
            np.bincount(cells_of_units(units[:, j], edges[j]), weights, len(edges[j]) - 1)
            for j in refined
        ]
        deviation = releases.standard_deviation(name, tables_sensitivity(len(refined)))
        noisy = release_tables(releases, name, counts, whole)
        n_records = np.mean([count.sum() for count in noisy])
        if name == ROUNDS[0] and n_records < records_hidden_by(deviation):
            for k, j in enumerate(refined):
                edges[j], noisy[k] = widened_cells(edges[j], noisy[k])
            deviation *= math.sqrt(WIDENING)
        for j, count in zip(refined, noisy, strict=True):
            rounds[j].append((edges[j], count, deviation))
            edges[j] = cut_cells(edges[j], count, deviation, final_deviation)
    classes = np.zeros(len(units), dtype=np.int64)
    if schema.target is not None:
        classes = schema.classes_of(units[:, schema.target])
    round_sums = [
        [
            (np.searchsorted(wider, edges[j][:-1], side="right") - 1, counts, deviation)
            for wider, counts, deviation in rounds[j]
        ]
        for j in edges
    ]
    return _Cells(
        [edge[:-1] for edge in edges.values()],
        [edge[1:] for edge in edges.values()],
        [cells_of_units(units[:, j], edge) for j, edge in edges.items()],
        classes,
        round_sums,
        weights,
        whole,
    )


def _release_columns(
    cells: _Cells, schema: TableSchema, releases: SketchReleases, *, totals: bool
) -> _ColumnCounts:
    """Release the counts of single columns by class, and combine them with totals if wanted."""
    n_classes, sizes = schema.n_classes, [len(starts) for starts in cells.starts]
    exact = [
        np.bincount(codes * n_classes + cells.classes, cells.weights, size * n_classes)
        for codes, size in zip(cells.codes, sizes, strict=True)
    ]
    possible = [
        possible_cells(schema, j, starts)
        for j, starts in zip(schema.features, cells.starts, strict=True)
    ]
    noisy = release_tables(releases, "values", exact, cells.whole)
    counts = [
        count.reshape(-1, n_classes) * cell for count, cell in zip(noisy, possible, strict=True)
    ]
    class_noise = noise_of_counts(schema, releases)
    noise = [np.sqrt(cell.sum(axis=1)) * class_noise for cell in possible]
    if not totals or n_classes == 1:
        return _ColumnCounts(counts, [count.sum(axis=1) for count in counts], noise, [class_noise])
    exact = [
        np.bincount(codes, cells.weights, size)
        for codes, size in zip(cells.codes, sizes, strict=True)
    ]
    class_noise = max(class_noise, LEAST_NOISE)
    total_noise = max(noise_of_tables(releases, "totals", len(exact)), LEAST_NOISE)
    for k, total in enumerate(release_tables(releases, "totals", exact, cells.whole)):
        counts[k] = with_totals(counts[k], total, class_noise, total_noise, possible[k])
        noise[k] *= total_noise / np.hypot(noise[k], total_noise)
    combined_noise = deviation_in_classes(class_noise, total_noise, n_classes)
    sums = [count.sum(axis=1) for count in counts]
    return _ColumnCounts(counts, sums, noise, [combined_noise, class_noise, total_noise])


def _group_columns(
    cells: _Cells,
    sums: list[np.ndarray],
    tails: list[np.ndarray],
    schema: TableSchema,
    pair_noise: float,
) -> _Groups:
    """Return groups of cells, chosen by released counts."""
    cleared = [np.where(tail, 0.0, count) for tail, count in zip(tails, sums, strict=True)]
    groups = group_cells(cleared, schema, pair_noise, cells.starts)
    masses = [np.bincount(group, count) for group, count in zip(groups, sums, strict=True)]
    codes = [group[code] for group, code in zip(groups, cells.codes, strict=True)]
    return _Groups(groups, masses, codes)


def _release_pairs(
    grouped: _Groups, cells: _Cells, schema: TableSchema, releases: SketchReleases
) -> list[np.ndarray]:
    """Release the counts of all pairs of columns."""
    n_classes, pairs = schema.n_classes, list(combinations(range(len(schema.features)), 2))
    exact = [
        count_together(grouped.codes, grouped.sizes, pair, cells.classes, n_classes, cells.weights)
        for pair in pairs
    ]
    noisy = release_tables(releases, "pairs", exact, cells.whole)
    if schema.has_bands:
        possible = possible_pairs(schema, cells.starts, grouped.groups)
        noisy = [pair * mask for pair, mask in zip(noisy, possible, strict=True)]
    return noisy


def _release_parities(
    groups: "_Groups", classes: np.ndarray, schema: TableSchema, releases: SketchReleases
) -> dict[str, np.ndarray]:
    """Release sums of parities; return them and the subsets of columns that they are of."""
    halves = column_halves(groups.masses, schema)
    n_records = np.mean([mass.sum() for mass in groups.masses]) / schema.n_classes
    noise_of_one = releases.standard_deviation("parities", tables_sensitivity(1))
    largest = largest_scanned(len(groups.codes), n_records, noise_of_one)
    upper = np.array([half[code] for half, code in zip(halves, groups.codes, strict=True)])
    subsets = scanned_subsets(len(groups.codes), largest)
    sums = parity_sums(upper, classes, schema.n_classes, subsets)
    sensitivity = tables_sensitivity(len(sums))
    return {
        "parities": releases.run("parities", sums, sensitivity),
        "parity_deviation": np.array([releases.standard_deviation("parities", sensitivity)]),
        "largest_parity": np.array([largest]),
        "halves": np.concatenate(halves).astype(np.int64),
    }
