"""The private marginals of a table: counts with noise of single columns and of pairs of columns.

All counts are made within each class of the target, if there is one. A record is in one cell of
every table, with or without classes.
"""

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np

from skdpot.generative._sketch.cell_groups import group_cells, possible_cells, possible_pairs
from skdpot.generative._sketch.cells import (
    ROUNDS,
    WIDENING,
    cells_of_units,
    cut_cells,
    empty_tails,
    first_edges,
    records_hidden_by,
    refined_columns,
    widened_cells,
)
from skdpot.generative._sketch.column_totals import (
    LEAST_NOISE,
    deviation_in_classes,
    likely_counts,
    sums_of_pairs,
    with_totals,
)
from skdpot.generative._sketch.noisy_counts import (
    count_together,
    noise_of_counts,
    noise_of_tables,
    release_tables,
    tables_sensitivity,
)
from skdpot.generative._sketch.parities import (
    are_scanned,
    column_halves,
    largest_scanned,
    parity_sums,
    scanned_subsets,
)
from skdpot.generative._sketch.people import LARGEST_WEIGHT, People, release_sizes
from skdpot.releases import SketchReleases
from skdpot.tables import TableSchema

__all__ = ["release_marginals", "share_marginals"]

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
    >>> from skdpot.generative._sketch.marginals import share_marginals
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
    >>> from skdpot.generative._sketch.marginals import release_marginals, share_marginals
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
