"""The private marginals of a table: counts with noise of single columns, and of pairs of them.

Everything is counted within each class of the target, where there is one: a record is in one cell
of every table that is counted, as it is without classes.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from skdpot.generative._sketch.column_totals import (
    LEAST_NOISE,
    PRIOR_SPREAD,
    SEEN_DEVIATIONS,
    deviation_in_classes,
    likely_counts,
    sums_of_pairs,
    with_totals,
)
from skdpot.generative._sketch.parities import (
    are_scanned,
    column_halves,
    largest_scanned,
    parity_sums,
    scanned_subsets,
)
from skdpot.generative._sketch.workload import Workload
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import LOG, NUMERIC, Column, TableSchema

__all__ = [
    "ROUNDS",
    "clear_cells",
    "count_together",
    "empty_tails",
    "errors_of_counts",
    "cut_cells",
    "expected_errors",
    "first_edges",
    "group_cells",
    "joint_parts",
    "merge_cells",
    "noise_of_counts",
    "noise_of_tables",
    "possible_counts",
    "refined_columns",
    "release_marginals",
    "release_tables",
    "release_weighted",
    "released_size",
    "share_marginals",
    "workload_statistics",
]

# A column of more units is cut into as many cells, and these into smaller ones where many are.
_FIRST_CELLS = 64
_MOST_LEAVES = 128
ROUNDS = ("cells 1", "cells 2", "cells 3")
# Of so few records in a cell on average, so many cells are made one.
_HIDDEN_DEVIATIONS, _WIDER = 0.5, 4
# A cell is cut where it has so much of all records, and more than so many deviations of the noise.
_CUT_SHARE = 0.01
_CUT_DEVIATIONS = 4.0
_MOST_PARTS = 16
# Groups of cells are so large that a pair of them has about half a deviation of the noise.
_PAIR_DEVIATIONS = 0.5
_MOST_GROUPS = 32
# So many cells of a tail together have clearly more than noise above so many deviations of it.
_TAIL_DEVIATIONS = 4.0
_TAIL_WIDTHS = (1, 2, 4, 8, 16)
# And so many beyond others that have, on a linear scale.
_BEYOND_DEVIATIONS = 3.0
_MOST_JOINT_CELLS = 4096
_LEAST_VARIANCE = 1e-12
_PARITY_SHARE = 0.08
# Of counts of columns. Counts of classes add up their noise: so columns are counted in all classes
# together as well, and less precisely within classes.
_COLUMN_SHARE, _SHARE_WITHIN, _SHARE_OF_TOTALS = 0.3, 0.2, 0.1


def share_marginals(
    schema: TableSchema,
    *,
    parities: bool = False,
    totals: bool = False,
    workload: Workload | None = None,
) -> dict[str, float]:
    """Return the shares of the budget of all that `release_marginals` releases.

    Parameters
    ----------
    schema : TableSchema
        What the table is declared to hold.
    parities : bool, default=False
        Whether parities of columns are released, where there are not too many.
    totals : bool, default=False
        Whether columns are counted in all classes together, too, where there are several.
    workload : Workload, default=None
        Which tables have more noise than others. None is for even weights.

    Returns
    -------
    dict of str to float
        By the name of the release; they need not have the sum 1.

    Examples
    --------
    >>> from skdpot.generative._sketch.marginals import share_marginals
    >>> from skdpot.tables import read_schema
    >>> share_marginals(read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]}))
    {'values': 0.3, 'pairs': 0.4}
    """
    workload = workload or Workload.even(len(schema.features))
    has_totals = totals and schema.n_classes > 1
    shares = workload.shares("values", _SHARE_WITHIN if has_totals else _COLUMN_SHARE)
    if has_totals:
        shares |= workload.shares("totals", _SHARE_OF_TOTALS)
    if refined_columns(schema):
        shares |= dict.fromkeys(ROUNDS, 0.02)
    if len(schema.features) > 1:
        shares |= workload.shares("pairs", 0.4)
    if parities and are_scanned(len(schema.features)):
        shares["parities"] = _PARITY_SHARE
    return shares


def release_marginals(
    units: np.ndarray,
    schema: TableSchema,
    releases: SketchReleases,
    *,
    parities: bool = False,
    totals: bool = False,
    workload: Workload | None = None,
) -> dict[str, np.ndarray]:
    """Release the counts of single columns and of all pairs, within each class.

    Parameters
    ----------
    units : ndarray of shape (n, n_columns), dtype int64
        Private, of `TableSchema.encode`.
    schema : TableSchema
        What the table is declared to hold.
    releases : SketchReleases
        With the shares of `share_marginals`.
    parities, totals, workload : bool, bool, Workload
        As of `share_marginals`.

    Returns
    -------
    dict of str to ndarray
        Nothing but what was released, and public numbers. Columns are all but the target; cells
        are those of all columns, one after another.

        - ``"n_cells"``: the number of cells of each column.
        - ``"starts"``, ``"stops"``: which units each cell has.
        - ``"counts"`` of shape (n_cells, n_classes): how many records.
        - ``"groups"``: the group of each cell, from 0 in every column.
        - ``"pairs"``: how many records a pair of groups of two columns has, in each class; the
          tables of shape (n_groups, n_groups, n_classes) of the pairs of columns one after another.
        - ``"deviations"``: of the noise of counts and of pairs, of weight 1. Where columns are
          counted in all classes together, too, there are two more: of the noise of counts of each
          class, and of all, before they were combined in ``"counts"``.
        - With a workload, ``"column_weights"`` and ``"pair_weights"``: how many times as precise as
          noise of these deviations says tables are, in variances.
        - ``"joints"``, where it has more than two columns: how many records are in each combination
          of their parts, in each class; one table after another. ``"joint_columns"`` has the
          positions of columns, filled up with -1, ``"joint_parts"`` the part of each group, of
          which its column has less where more of them are counted together.
        - ``"parities"`` of shape (n_subsets, n_classes), where they are released: sums of parities
          of `scanned_subsets`, up to ``"largest_parity"`` columns, of the ``"halves"`` in which
          groups are, with noise of the ``"parity_deviation"``.
        - ``"totals"`` of shape (n_cells,): how many records of all classes each cell has, as all
          counts together tell, none below 0; ``"tails"`` of shape (n_cells,), of `empty_tails`.

    Notes
    -----
    A record is in one cell of each of `t` tables of a release, which has the sensitivity
    ``sqrt(t)``. Cells, and groups of them, are chosen by what was released before. A record changes
    a parity by 1 in its class.

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
    features, n_classes = schema.features, schema.n_classes
    classes = np.zeros(len(units), dtype=np.int64)
    if schema.target is not None:
        classes = schema.classes_of(units[:, schema.target])
    edges, rounds = _cut_cells(units, schema, releases)
    cells = [_cells_of(units[:, j], edges[j]) for j in features]
    sizes = [len(edges[j]) - 1 for j in features]
    counts = [
        np.bincount(cell * n_classes + classes, minlength=size * n_classes)
        for cell, size in zip(cells, sizes, strict=True)
    ]
    weighted = workload is not None
    workload = workload or Workload.even(len(features))
    counts = release_weighted(releases, "values", counts, workload)
    counts = [table.reshape(-1, n_classes) for table in counts]
    starts = [edges[j][:-1] for j in features]
    for k, j in enumerate(features):
        counts[k] = counts[k] * possible_cells(schema, j, starts[k])
    tables = list(combinations(range(len(features)), 2))
    deviations = [noise_of_counts(schema, releases, workload), 0.0]
    groups = [np.zeros(size, dtype=np.int64) for size in sizes]
    pairs: list[np.ndarray] = []
    parts: list[list[np.ndarray]] = []
    joints: list[np.ndarray] = []
    further: dict[str, np.ndarray] = {}
    known_sums = [
        _sums_of_rounds(column_starts, rounds[j])
        for j, column_starts in zip(features, starts, strict=True)
    ]
    class_sums = [count.sum(axis=1) for count in counts]
    column_noise = [
        np.sqrt(possible_cells(schema, j, column_starts).sum(axis=1) / weight) * deviations[0]
        for j, column_starts, weight in zip(features, starts, workload.columns, strict=True)
    ]
    if totals and n_classes > 1:
        exact = [np.bincount(cell, minlength=size) for cell, size in zip(cells, sizes, strict=True)]
        class_noise = max(deviations[0], LEAST_NOISE)
        total_noise = max(noise_of_tables(releases, "totals", workload), LEAST_NOISE)
        for k, count in enumerate(release_weighted(releases, "totals", exact, workload)):
            possible = possible_cells(schema, features[k], starts[k])
            counts[k] = with_totals(counts[k], count, class_noise, total_noise, possible)
            class_sums[k] = counts[k].sum(axis=1)
            noise = total_noise / math.sqrt(workload.columns[k])
            column_noise[k] *= noise / np.hypot(column_noise[k], noise)
        combined_noise = deviation_in_classes(class_noise, total_noise, n_classes)
        deviations = [combined_noise, 0.0, class_noise, total_noise]
    # Noise of these sums is independent; that of what they are combined with below is not.
    empty = empty_tails(class_sums, starts, schema, [noise.max() for noise in column_noise])
    if tables:
        deviations[1] = noise_of_tables(releases, "pairs", workload)
        cleared = [
            np.where(gone, 0.0, column_counts)
            for gone, column_counts in zip(empty, class_sums, strict=True)
        ]
        groups = group_cells(cleared, schema, deviations[1], starts)
        codes = [group[cell] for group, cell in zip(groups, cells, strict=True)]
        masses = [np.bincount(group, sums) for group, sums in zip(groups, class_sums, strict=True)]
        n_groups = [len(mass) for mass in masses]
        parts = joint_parts(masses, n_classes, deviations[1], workload)
        exact = [count_together(codes, n_groups, pair, classes, n_classes) for pair in tables]
        for (joint, _), part_of_group in zip(workload.joints, parts, strict=True):
            joint_codes = {j: part_of_group[j][codes[j]] for j in joint}
            n_parts = [part.max() + 1 for part in part_of_group]
            exact.append(count_together(joint_codes, n_parts, joint, classes, n_classes))
        noisy = release_weighted(releases, "pairs", exact, workload)
        pairs = noisy[: len(tables)]
        if schema.has_bands:
            possible_pairs = possible_counts(schema, starts, groups)[1]
            pairs = [pair * possible for pair, possible in zip(pairs, possible_pairs, strict=True)]
        joints = noisy[len(tables) :]
        pair_noise = max(deviations[1], LEAST_NOISE) / np.sqrt(workload.pairs)
        margins = sums_of_pairs(pairs, n_groups, n_classes, pair_noise.tolist())
        for k, margin in enumerate(margins):
            known_sums[k].append((groups[k], *margin))
    combined = [
        likely_counts(*known_of_column)
        for known_of_column in zip(class_sums, column_noise, known_sums, groups, empty, strict=True)
    ]
    if weighted:
        further |= workload_statistics(workload, parts, joints)
    if parities and are_scanned(len(features)):
        further |= _release_parities(codes, classes, masses, schema, releases)
    return {
        **further,
        "n_cells": np.array(sizes),
        "starts": np.concatenate(starts),
        "stops": np.concatenate([edges[j][1:] for j in features]),
        "counts": np.concatenate(counts),
        "groups": np.concatenate(groups),
        "pairs": np.concatenate([*pairs, np.zeros(0)]),
        "deviations": np.array(deviations),
        "totals": np.concatenate(combined),
        "tails": np.concatenate(empty),
    }


def _sums_of_rounds(starts, rounds):
    """Return what was counted of a column's wider cells, as `likely_counts` takes it."""
    return [
        (np.searchsorted(edges, starts, side="right") - 1, counts, deviation)
        for edges, counts, deviation in rounds
    ]


def released_size(released: Mapping[str, np.ndarray]) -> int:
    """Return the number of records, as nearly as what was released tells.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_marginals`.

    Returns
    -------
    int
        At least 0. Of each column all counts are added up; columns with more cells add up more
        noise, and count for less.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.marginals import released_size
    >>> counts = np.array([[610.0], [400.0], [200.0], [300.0], [200.0], [250.0]])
    >>> released_size({"n_cells": np.array([2, 4]), "counts": counts})
    990
    """
    n_cells = released["n_cells"]
    totals = np.add.reduceat(released["counts"].sum(axis=1), np.cumsum(n_cells) - n_cells)
    return max(round(float(np.average(totals, weights=1 / n_cells))), 0)


def expected_errors(
    n_records: int,
    schema: TableSchema,
    releases: SketchReleases,
    workload: Workload | None = None,
    *,
    totals: bool = False,
) -> tuple[ExpectedError, ...]:
    """Return the standard errors of what the counts tell of columns, and of pairs of them.

    They are those of evenly distributed records, by all counts of a column together. The model is
    nearer to the records, as a rule.

    Parameters
    ----------
    n_records : int
        How many records there are.
    schema : TableSchema
        What the table is declared to hold.
    releases : SketchReleases
        With the shares of `share_marginals`.
    workload, totals : Workload, bool
        As of `share_marginals`.

    Returns
    -------
    tuple of ExpectedError
        Of a number the mean, and the middle of its bounds is off by half of their range at most. Of
        a category its share, and an even one is the scale. Of pairs the correlation of what is in
        the upper halves of two columns.

    Examples
    --------
    >>> from skdpot.generative._sketch.marginals import expected_errors, share_marginals
    >>> from skdpot.tables import read_schema
    >>> from skdpot.privacy.random import make_source
    >>> from skdpot.releases import SketchReleases
    >>> schema = read_schema({"sex": ["F", "M"], "age": range(18, 80)})
    >>> releases = SketchReleases(4.0, share_marginals(schema), "add_remove", make_source(0))
    >>> for error in expected_errors(1000, schema, releases):
    ...     print(error)
    standard error of the share of a category of 'sex': 0.00573 (useless from 0.5)
    standard error of the mean of 'age': 0.525 (useless from 30.5)
    standard error of the correlation of the upper halves of two columns: 0.033 (useless from 1)
    """
    workload = workload or Workload.even(len(schema.features))
    count, pair = noise_of_counts(schema, releases, workload), 0.0
    if len(schema.features) > 1:
        pair = noise_of_tables(releases, "pairs", workload)
    total_noise = math.inf
    if totals and schema.n_classes > 1:
        total_noise = noise_of_tables(releases, "totals", workload) or math.inf
    refined = refined_columns(schema)
    round_noise = math.inf
    if refined:
        round_noise = releases.standard_deviation(ROUNDS[0], _in_tables(len(refined))) or math.inf
    return errors_of_counts(n_records, schema, (count, pair), workload, total_noise, round_noise)


def errors_of_counts(
    n_records: int,
    schema: TableSchema,
    deviations: tuple[float, float],
    workload: Workload,
    total_noise: float = math.inf,
    round_noise: float = math.inf,
) -> tuple[ExpectedError, ...]:
    """Return the errors of `expected_errors`, by the noise of counts and of pairs of weight 1.

    That of counts in all classes together, and of rounds of cells, is infinite where there are
    none.

    Examples
    --------
    >>> from skdpot.generative._sketch.marginals import errors_of_counts
    >>> from skdpot.generative._sketch.workload import Workload
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"age": range(18, 80)})
    >>> print(*errors_of_counts(1000, schema, (8.5, 0.0), Workload.even(1)))
    standard error of the mean of 'age': 1.18 (useless from 30.5)
    """
    features, n_classes = schema.features, schema.n_classes
    count, pair = deviations
    refined = refined_columns(schema)
    is_cut = n_records > _FIRST_CELLS * _CUT_DEVIATIONS * round_noise or math.isinf(round_noise)
    n_refined = _MOST_LEAVES if is_cut else _FIRST_CELLS
    if n_records < _hidden_by(round_noise) < math.inf:
        n_refined //= _WIDER
    sizes = {j: n_refined if j in refined else schema.columns[j].n_units for j in features}
    errors = []
    if schema.target is not None and n_classes > 1:
        # Columns with fewer cells count for more.
        inverse_sizes = [1 / size for size in sizes.values()]
        noise = sum(share / w for share, w in zip(inverse_sizes, workload.columns, strict=True))
        error_of_share = count * math.sqrt(noise * (1 - 1 / n_classes)) / sum(inverse_sizes)
        part = "band" if schema.has_bands else "class"
        label = f"standard error of the share of a {part} of {schema.names[schema.target]!r}"
        errors.append(ExpectedError(label, error_of_share / n_records, 1 / n_classes))
    most_groups = _number_of_groups(n_records, n_classes, pair)
    n_groups = [min(float(most_groups), size) for size in sizes.values()]
    pair_weights = dict(zip(combinations(range(len(features)), 2), workload.pairs, strict=True))
    for k, (j, weight) in enumerate(zip(features, workload.columns, strict=True)):
        column, size = schema.columns[j], sizes[j]
        precision = 1 / max(n_classes * count**2, _LEAST_VARIANCE) + total_noise**-2
        cell = weight * precision + (
            3 * size / _FIRST_CELLS / round_noise**2 if j in refined else 0
        )
        margins = sum(
            pair_weight / (n_classes * n_groups[a + b - k] * pair**2)
            for (a, b), pair_weight in pair_weights.items()
            if k in (a, b) and pair
        )
        variances = _variances(n_records, size, n_groups[k], cell, margins)
        if column.kind == "numeric" and column.high > column.low:
            width, (group_variance, cell_variance), groups = column.length, variances, n_groups[k]
            between = group_variance * (groups - 1 / groups) + cell_variance * (size / groups**2)
            scale = "" if column.scale == "linear" else "the logarithm of "
            label = f"standard error of the mean of {scale}{column.name!r}"
            error = math.sqrt(between / 12) / n_records * width
            errors.append(ExpectedError(label, error, width / 2))
        elif size > 1:
            singles = n_groups[k] / size
            share = variances[0] * singles**2 + variances[1] * (1 - singles)
            label = f"standard error of the share of a category of {column.name!r}"
            error = math.sqrt(share * (1 - 1 / size)) / n_records
            errors.append(ExpectedError(label, error, 1 / size))
    if len(features) > 1:
        second, first = sorted(n_groups)[-2:]
        error = pair * math.sqrt(n_classes * first * second) / n_records
        label = "standard error of the correlation of the upper halves of two columns"
        for weight in sorted(set(workload.pairs)):
            weighted = "" if weight == 1 else f" with the weight {weight:g}"
            errors.append(ExpectedError(label + weighted, error / math.sqrt(weight), 1.0))
    return tuple(errors)


def _variances(n_records, size, n_groups, cell, margin):
    """Return those of the counts of a column's groups, and of cells in these: of `likely_counts`.

    Records are evenly distributed; the precision of what is counted of a cell, and of a group by
    pairs, are those given.
    """
    group_variance = 1 / (n_groups / size * cell + margin)
    expected = n_records / size
    if expected < SEEN_DEVIATIONS * cell**-0.5:
        cell += (PRIOR_SPREAD * expected) ** -2
    return group_variance, 1 / cell


def noise_of_counts(
    schema: TableSchema, releases: SketchReleases, workload: Workload | None = None
) -> float:
    """Return the standard deviation of the noise of the counts of columns of weight 1.

    Examples
    --------
    >>> from skdpot.generative._sketch.marginals import noise_of_counts, share_marginals
    >>> from skdpot.tables import read_schema
    >>> from skdpot.releases import SketchReleases
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> releases = SketchReleases(1.0, share_marginals(schema), "add_remove", None)
    >>> round(noise_of_counts(schema, releases), 1)
    2.2
    """
    return noise_of_tables(releases, "values", workload or Workload.even(len(schema.features)))


def refined_columns(schema: TableSchema) -> list[int]:
    """Return the columns whose units are too many to be counted one by one.

    Examples
    --------
    >>> from skdpot.generative._sketch.marginals import refined_columns
    >>> from skdpot.tables import read_schema
    >>> refined_columns(read_schema({"sex": ["F", "M"], "wage": (0.0, 100.0)}))
    [1]
    """
    return [j for j in schema.features if _is_refined(schema.columns[j])]


def _is_refined(column):
    return column.kind == "numeric" and column.n_known > _MOST_LEAVES


def _in_tables(n_tables, whole=1):
    """Return by how much a record, or a person, can change the cells of so many tables."""
    return partial(cell_count_sensitivity, n_tables=n_tables, whole=whole)


def release_tables(releases, name, counts, whole=1):
    """Return counts with noise; a record is in one cell of each table.

    A person adds integers to the cells of each table whose length is at most the whole.
    """
    sums = np.concatenate(counts).astype(np.int64)
    # A multiplier has been rounded up by more than this root may be rounded down.
    noisy = releases.run(name, sums, _in_tables(len(counts), whole)) / whole
    return np.split(noisy, np.cumsum([len(count) for count in counts])[:-1])


def _cut_cells(units, schema, releases):
    """Return the edges of each column's cells: narrow ones where many records are.

    Beside them is what was counted on the way: edges, counts, and the noise of these.
    """
    edges = {j: first_edges(schema.columns[j]) for j in schema.features}
    rounds: dict[int, list[tuple[np.ndarray, np.ndarray, float]]] = {j: [] for j in edges}
    refined = refined_columns(schema)
    for name in ROUNDS if refined else ():
        counts = [
            np.bincount(_cells_of(units[:, j], edges[j]), minlength=len(edges[j]) - 1)
            for j in refined
        ]
        deviation = releases.standard_deviation(name, _in_tables(len(refined)))
        noisy = release_tables(releases, name, counts)
        if name == ROUNDS[0] and np.mean([count.sum() for count in noisy]) < _hidden_by(deviation):
            # Cells of few records are mostly noise.
            for k, j in enumerate(refined):
                edges[j], noisy[k] = _widened(edges[j], noisy[k])
            deviation *= math.sqrt(_WIDER)
        for j, count in zip(refined, noisy, strict=True):
            rounds[j].append((edges[j], count, deviation))
            edges[j] = cut_cells(edges[j], count, deviation)
    return edges, rounds


def _hidden_by(deviation):
    """Return the number of records that this noise hides in the cells of a column."""
    return _HIDDEN_DEVIATIONS * deviation * _FIRST_CELLS


def _widened(edges, counts):
    """Return edges of wider cells, and their counts; those at both ends stay as they are."""
    firsts = np.unique([0, *range(1, len(counts) - 2, _WIDER), len(counts) - 2, len(counts) - 1])
    return np.append(edges[firsts], edges[-1]), np.add.reduceat(counts, firsts)


def first_edges(column: Column) -> np.ndarray:
    """Return the edges of the cells that a column begins with.

    Every unit is one, or where there may be many, cells are even, and either bound has its own.

    Examples
    --------
    >>> from skdpot.generative._sketch.marginals import first_edges
    >>> from skdpot.tables import read_schema
    >>> first_edges(read_schema({"sex": ["F", "M"]}).columns[0])
    array([0, 1, 2])
    """
    n_known, n_units = column.n_known, column.n_units
    edges = column.even_edges(_FIRST_CELLS) if _is_refined(column) else np.arange(n_known + 1)
    # A missing value has a cell of its own.
    return np.append(edges, n_units) if n_units > n_known else edges


def cut_cells(edges: np.ndarray, counts: np.ndarray, deviation: float) -> np.ndarray:
    """Return edges with more between those that have many records between them.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.marginals import cut_cells
    >>> cut_cells(np.array([0, 10, 20]), np.array([3.0, 30.0]), 5.0)
    array([ 0, 10, 13, 16, 20])
    """
    least = max(_CUT_DEVIATIONS * deviation, _CUT_SHARE * counts.sum(), 1.0)
    parts = np.clip(np.ceil(2 * counts / least), 2, _MOST_PARTS).astype(np.int64)
    parts = np.where(counts > least, np.minimum(parts, np.diff(edges)), 1)
    cut = [
        start + (stop - start) * np.arange(n) // n
        for start, stop, n in zip(edges[:-1], edges[1:], parts, strict=True)
    ]
    return np.append(np.concatenate(cut), edges[-1])


def empty_tails(
    counts: Sequence[np.ndarray],
    starts: Sequence[np.ndarray],
    schema: TableSchema,
    deviations: Sequence[float],
) -> list[np.ndarray]:
    """Tell which cells of numbers are far beyond all that clearly have records: there noise is all.

    There a record changes a mean, and a distance, by as much as thousands do elsewhere.

    Parameters
    ----------
    counts, starts : sequence of ndarray of shape (n_cells,)
        Released, of all columns but the target, in all classes together; and the first units.
    schema : TableSchema
        What the table is declared to hold. On a logarithmic scale from 0 or above, the lower end is
        kept: little depends on what is small there.
    deviations : sequence of float
        Of the noise of a count of each column.

    Returns
    -------
    list of ndarray of shape (n_cells,)
        True beyond the last cell in the middle of some that have clearly more than noise. On linear
        scales it is beyond all that have, and further away than these are from each other.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.marginals import empty_tails
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"wage": {"bounds": (1, 1e6), "scale": "log"}})
    >>> empty_tails([np.array([90.0, -2.0, 9.0, 3.0, -1.0])], [np.arange(5)], schema, [2.0])
    [array([False, False, False, False,  True])]
    """
    empty = []
    for j, totals, start, deviation in zip(
        schema.features, counts, starts, deviations, strict=True
    ):
        column, tail = schema.columns[j], np.zeros(len(totals), dtype=bool)
        numbers = totals[: len(totals) - column.missing]
        is_log = column.scale == LOG
        widths = _TAIL_WIDTHS if is_log else _TAIL_WIDTHS[:1]
        first, last = clear_cells(numbers, _TAIL_DEVIATIONS * deviation, widths)
        if column.kind == NUMERIC and first <= last:
            margin = 0
            stop = np.append(start[1:], column.n_known)
            if not is_log:
                first -= _n_beyond(numbers[:first][::-1], deviation)
                last += _n_beyond(numbers[last + 1 :], deviation)
                margin = stop[last] - start[first]
            tail[: len(numbers)] = start[: len(numbers)] >= stop[last] + margin
            if not is_log or column.low < 0:
                tail |= stop <= start[first] - margin
        empty.append(tail)
    return empty


def _n_beyond(totals, deviation):
    """Return how many cells, from the first on, have together clearly more than noise.

    These are as many as are the farthest above it, and beyond them others again.
    """
    n_cells = 0
    while n_cells < len(totals):
        rest = totals[n_cells:]
        above = np.cumsum(rest) / np.sqrt(np.arange(1, len(rest) + 1))
        best = int(np.argmax(above))
        if above[best] <= _BEYOND_DEVIATIONS * deviation:
            break
        n_cells += best + 1
    return n_cells


def clear_cells(totals, noise, widths):
    """Return the first and the last cell that are in the middle of clearly more than noise.

    A real tail has little in each of many cells, so several of them are looked at together, too.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.marginals import clear_cells
    >>> clear_cells(np.array([1.0, 9.0, 2.0, 4.0, 4.0, -3.0]), 5.0, (1, 2))
    (0, 4)
    """
    first, last = len(totals), -1
    for width in widths:
        if width <= len(totals):
            sums = np.convolve(totals, np.ones(width), "valid")
            clear = np.flatnonzero(sums > noise * math.sqrt(width))
            first = min([first, *(clear[:1] + (width - 1) // 2).tolist()])
            last = max([last, *(clear[-1:] + width // 2).tolist()])
    return first, last


def group_cells(
    counts: Sequence[np.ndarray],
    schema: TableSchema,
    deviation: float,
    starts: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Return which cells of each column go together where pairs of columns are counted.

    Those of a target of numbers are of one band, by the units with which cells start.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.marginals import group_cells
    >>> from skdpot.tables import read_schema
    >>> counts = np.array([50.0, 1.0, 2.0, 40.0])
    >>> group_cells([counts], read_schema({"city": ["A", "B", "C", "D"]}), 5.0)
    [array([0, 1, 1, 1])]
    """
    total = max(np.mean([count.sum() for count in counts]), 1.0)
    n_groups = _number_of_groups(total, schema.n_classes, deviation)
    groups = []
    for j, count in zip(schema.features, counts, strict=True):
        mass = np.maximum(count, 0.0)
        if schema.columns[j].kind == "nominal":
            # Frequent categories are alone, and rare ones together.
            order = np.argsort(-mass, kind="stable")
            group = np.empty(len(mass), dtype=np.int64)
            group[order] = merge_cells(mass[order], mass.sum() / n_groups)
        elif j == schema.target and starts is not None:
            group = _merged_in_bands(mass, mass.sum() / n_groups, schema.classes_of(starts[j]))
        else:
            group = merge_cells(mass, mass.sum() / n_groups)
        groups.append(group)
    return groups


def _merged_in_bands(mass, least, bands):
    """Return the group of each cell, none of which is in two bands."""
    group, first = np.empty(len(mass), dtype=np.int64), 0
    for band in np.unique(bands):
        merged = merge_cells(mass[bands == band], least)
        group[bands == band] = first + merged
        first += merged.max() + 1
    return group


def possible_counts(
    schema: TableSchema, starts: Sequence[np.ndarray], groups: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Tell which counts records may be in: a band of a target of numbers is in one class alone.

    Parameters
    ----------
    schema : TableSchema
        What the table is declared to hold.
    starts, groups : sequence of ndarray of shape (n_cells,)
        The first unit and the group of each cell, of all columns that depend on the class.

    Returns
    -------
    cells : list of ndarray of shape (n_cells, n_classes)
        Of each column.
    pairs : list of ndarray
        Of each two columns, as one array of groups of the first, the second, and classes.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.marginals import possible_counts
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"grade": range(3), "sex": ["F", "M"]}, "grade")
    >>> cells, pairs = possible_counts(schema, *[[np.arange(3), np.arange(2)]] * 2)
    >>> cells[0].astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """
    cells, possible_groups = [], []
    for j, start, group in zip(schema.features, starts, groups, strict=True):
        possible = possible_cells(schema, j, start)
        cells.append(possible)
        # All cells of a group are alike.
        possible_groups.append(possible[np.unique(group, return_index=True)[1]])
    pairs = [(a[:, None] & b).ravel() for a, b in combinations(possible_groups, 2)]
    return cells, pairs


def possible_cells(schema: TableSchema, j: int, starts: np.ndarray) -> np.ndarray:
    """Tell in which classes records of each cell of a column may be, by the cell's first unit."""
    if not schema.has_bands or j != schema.target:
        return np.ones((len(starts), schema.n_classes), dtype=bool)
    return schema.classes_of(starts)[:, None] == np.arange(schema.n_classes)


def _number_of_groups(n_records, n_classes, deviation):
    """Return about how many groups the cells of a column make, where pairs are counted."""
    cell_size = _PAIR_DEVIATIONS * n_classes * max(deviation, 1.0)
    return np.clip(math.sqrt(n_records / cell_size), 2, _MOST_GROUPS)


def merge_cells(mass: np.ndarray, least: float) -> np.ndarray:
    """Return the group of each cell: consecutive cells with at least so much mass.

    The last group has at least half of it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.marginals import merge_cells
    >>> merge_cells(np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.05]), 0.2)
    array([0, 1, 1, 2, 2, 2])
    """
    group = np.empty(len(mass), dtype=np.int64)
    current, group_mass = 0, 0.0
    for i, m in enumerate(mass):
        if group_mass > 0 and (group_mass >= least or m >= least):
            current, group_mass = current + 1, 0.0
        group[i] = current
        group_mass += m
    if group_mass < least / 2 and current:
        group[group == current] = current - 1
    return group


def _release_parities(codes, classes, masses, schema, releases):
    """Return the sums of parities with noise, and what they are of."""
    halves = column_halves(masses, schema)
    n_records = np.mean([mass.sum() for mass in masses]) / schema.n_classes
    noise_of_one = releases.standard_deviation("parities", _in_tables(1))
    largest = largest_scanned(len(codes), n_records, noise_of_one)
    upper = np.array([half[code] for half, code in zip(halves, codes, strict=True)])
    subsets = scanned_subsets(len(codes), largest)
    sums = parity_sums(upper, classes, schema.n_classes, subsets)
    sensitivity = _in_tables(len(sums))
    return {
        "parities": releases.run("parities", sums, sensitivity),
        "parity_deviation": np.array([releases.standard_deviation("parities", sensitivity)]),
        "largest_parity": np.array([largest]),
        "halves": np.concatenate(halves).astype(np.int64),
    }


def _cells_of(units, edges):
    """Return the cell of each unit: of many units by a list of them all, which is faster."""
    if edges[-1] > len(units):
        return (np.searchsorted(edges, units, side="right") - 1).astype(np.int32)
    return np.repeat(np.arange(len(edges) - 1, dtype=np.int32), np.diff(edges))[units]


def joint_parts(masses, n_classes, deviation, workload):
    """Return, for each table of more than two columns, the part of each group of all columns."""
    parts = []
    total = max(np.mean([mass.sum() for mass in masses]), 1.0)
    for columns, weight in workload.joints:
        cell_size = _PAIR_DEVIATIONS * n_classes * max(deviation / math.sqrt(weight), 1.0)
        n_cells = min(total / cell_size, _MOST_JOINT_CELLS)
        n_parts = np.clip(n_cells ** (1 / len(columns)), 2, _MOST_GROUPS)
        positive = [np.maximum(mass, 0.0) for mass in masses]
        parts.append([merge_cells(mass, mass.sum() / n_parts) for mass in positive])
    return parts


def count_together(codes, sizes, columns, classes, n_classes, weights=None):
    """Return how many records each combination of codes of some columns has, in each class.

    With weights, which are integers, it is their sums.
    """
    cell, n_cells = 0, n_classes
    for j in columns:
        n_codes = sizes[j]
        cell, n_cells = cell * n_codes + codes[j], n_cells * n_codes
    return np.bincount(cell * n_classes + classes, weights, minlength=n_cells)


def release_weighted(releases, kind, counts, workload, whole=1):
    """Return counts with noise: tables of each weight are a release of their own."""
    noisy = list(counts)
    for name, tables in workload.levels(kind).items():
        released = release_tables(releases, name, [counts[i] for i in tables], whole)
        for i, table in zip(tables, released, strict=True):
            noisy[i] = table
    return noisy


def noise_of_tables(releases, kind, workload, whole=1):
    """Return the standard deviation of the noise that tables of weight 1 have, or would have."""
    name, tables = next(iter(workload.levels(kind).items()))
    sensitivity = _in_tables(len(tables), whole)
    weight = workload.weights(kind)[tables[0]]
    return releases.standard_deviation(name, sensitivity) / whole * math.sqrt(weight)


def workload_statistics(workload, parts, joints):
    """Return what is known of a workload: weights, and counts of more than two columns.

    `parts` are those of `joint_parts`, and `joints` the released tables.
    """
    weights = {
        "column_weights": np.array(workload.columns), "pair_weights": np.array(workload.pairs)
    }  # fmt: skip
    if not workload.joints:
        return weights
    return weights | {
        "joints": np.concatenate(joints),
        "joint_columns": np.array(
            [[*joint, *[-1] * (5 - len(joint))] for joint, _ in workload.joints]
        ),
        "joint_parts": np.array([np.concatenate(part_of_group) for part_of_group in parts]),
        "joint_weights": np.array([weight for _, weight in workload.joints]),
    }
