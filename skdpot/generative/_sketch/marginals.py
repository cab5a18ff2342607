"""The private marginals of a table: counts with noise of single columns, and of pairs of them.

Everything is counted within each class of the target, where there is one: a record is in one cell
of every table that is counted, as it is without classes.
"""

import math
from collections.abc import Mapping
from functools import partial
from itertools import combinations

import numpy as np

from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import TableSchema

__all__ = [
    "expected_errors",
    "merge_cells",
    "noise_of_counts",
    "release_marginals",
    "released_size",
    "share_marginals",
]

# A column of more units is cut into as many cells, and these into smaller ones where many are.
_FIRST_CELLS = 64
_MOST_LEAVES = 128
_ROUNDS = ("cells 1", "cells 2", "cells 3")
# A cell is cut where it has so much of all records, and more than so many deviations of the noise.
_CUT_SHARE = 0.01
_CUT_DEVIATIONS = 4.0
_MOST_PARTS = 16
# Groups of cells are so large that a pair of them has about half a deviation of the noise.
_PAIR_DEVIATIONS = 0.5
_MOST_GROUPS = 32


def share_marginals(schema: TableSchema) -> dict[str, float]:
    """Return the shares of the budget of all that `release_marginals` releases.

    Parameters
    ----------
    schema : TableSchema
        What the table is declared to hold.

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
    shares = {"values": 0.3}
    if _refined(schema):
        shares |= dict.fromkeys(_ROUNDS, 0.02)
    if len(schema.features) > 1:
        shares["pairs"] = 0.4
    return shares


def release_marginals(
    units: np.ndarray, schema: TableSchema, releases: SketchReleases
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
        - ``"deviations"``: of the noise of counts and of pairs.

    Notes
    -----
    A record is in one cell of each of `t` tables of a release, which has the sensitivity
    ``sqrt(t)``. Cells, and groups of them, are chosen by what was released before.

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
        classes = units[:, schema.target]
    edges = _cut_cells(units, schema, releases)
    cells = [
        (np.searchsorted(edges[j], units[:, j], side="right") - 1).astype(np.int32)
        for j in features
    ]
    sizes = [len(edges[j]) - 1 for j in features]
    counts = [
        np.bincount(cell * n_classes + classes, minlength=size * n_classes)
        for cell, size in zip(cells, sizes, strict=True)
    ]
    counts = _release(releases, "values", counts, len(features))
    counts = [table.reshape(-1, n_classes) for table in counts]
    tables = list(combinations(range(len(features)), 2))
    deviations = [noise_of_counts(schema, releases), 0.0]
    groups = [np.zeros(size, dtype=np.int64) for size in sizes]
    pairs: list[np.ndarray] = []
    if tables:
        deviations[1] = releases.standard_deviation("pairs", _in_tables(len(tables)))
        groups = _group_cells(counts, schema, deviations[1])
        pairs = _release_pairs(cells, classes, groups, n_classes, releases, tables)
    return {
        "n_cells": np.array(sizes),
        "starts": np.concatenate([edges[j][:-1] for j in features]),
        "stops": np.concatenate([edges[j][1:] for j in features]),
        "counts": np.concatenate(counts),
        "groups": np.concatenate(groups),
        "pairs": np.concatenate([*pairs, np.zeros(0)]),
        "deviations": np.array(deviations),
    }


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
    n_records: int, schema: TableSchema, releases: SketchReleases
) -> tuple[ExpectedError, ...]:
    """Return the standard errors of what the counts tell of columns, and of pairs of them.

    They are those of evenly distributed records. The model that is fitted to all counts together
    is nearer to the records, as a rule.

    Parameters
    ----------
    n_records : int
        How many records there are.
    schema : TableSchema
        What the table is declared to hold.
    releases : SketchReleases
        With the shares of `share_marginals`.

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
    standard error of the share of a category of 'sex': 0.00611 (useless from 0.5)
    standard error of the mean of 'age': 1.2 (useless from 30.5)
    standard error of the correlation of the upper halves of two columns: 0.033 (useless from 1)
    """
    features, n_classes = schema.features, schema.n_classes
    count = noise_of_counts(schema, releases)
    share = count * math.sqrt(n_classes) / n_records
    refined = _refined(schema)
    sizes = {j: _MOST_LEAVES if j in refined else schema.columns[j].n_units for j in features}
    errors = []
    if schema.target is not None and n_classes > 1:
        of_class = count * math.sqrt(sum(sizes.values()) * (1 - 1 / n_classes)) / len(features)
        what = f"standard error of the share of a class of {schema.names[schema.target]!r}"
        errors.append(ExpectedError(what, of_class / n_records, 1 / n_classes))
    for j in features:
        column, size = schema.columns[j], sizes[j]
        if column.kind == "numeric" and column.high > column.low:
            width = float(column.high - column.low)
            what = f"standard error of the mean of {column.name!r}"
            errors.append(ExpectedError(what, share * math.sqrt(size / 12) * width, width / 2))
        elif size > 1:
            what = f"standard error of the share of a category of {column.name!r}"
            errors.append(ExpectedError(what, share * math.sqrt(1 - 1 / size), 1 / size))
    if len(features) > 1:
        n_tables = len(features) * (len(features) - 1) // 2
        pair = releases.standard_deviation("pairs", _in_tables(n_tables))
        groups = _number_of_groups(n_records, n_classes, pair)
        second, first = sorted(min(groups, size) for size in sizes.values())[-2:]
        of_pairs = pair * math.sqrt(n_classes * first * second) / n_records
        what = "standard error of the correlation of the upper halves of two columns"
        errors.append(ExpectedError(what, of_pairs, 1.0))
    return tuple(errors)


def noise_of_counts(schema: TableSchema, releases: SketchReleases) -> float:
    """Return the standard deviation of the noise of the counts of single columns.

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
    return releases.standard_deviation("values", _in_tables(len(schema.features)))


def _refined(schema):
    """Return the columns whose units are too many to be counted one by one."""
    return [
        j
        for j in schema.features
        if schema.columns[j].kind == "numeric" and schema.columns[j].n_known > _MOST_LEAVES
    ]


def _in_tables(n_tables):
    """Return by how much a record can change the cells of so many tables."""
    return partial(cell_count_sensitivity, n_tables=n_tables)


def _release(releases, name, counts, n_tables):
    """Return counts with noise; every record is in one cell of each of so many tables."""
    sums = np.concatenate(counts).astype(np.int64)
    # A multiplier has been rounded up by more than this root may be rounded down.
    noisy = releases.run(name, sums, _in_tables(n_tables))
    return np.split(noisy, np.cumsum([len(count) for count in counts])[:-1])


def _cut_cells(units, schema, releases):
    """Return the edges of each column's cells: narrow ones where many records are."""
    edges = {}
    refined = _refined(schema)
    for j in schema.features:
        known, everything = schema.columns[j].n_known, schema.columns[j].n_units
        known_edges = np.arange(known + 1) if j not in refined else _first_edges(known)
        # A missing value has a cell of its own.
        edges[j] = np.append(known_edges, everything) if everything > known else known_edges
    for name in _ROUNDS if refined else ():
        counts = [
            np.bincount(
                np.searchsorted(edges[j], units[:, j], side="right") - 1,
                minlength=len(edges[j]) - 1,
            )
            for j in refined
        ]
        deviation = releases.standard_deviation(name, _in_tables(len(refined)))
        for j, count in zip(refined, _release(releases, name, counts, len(refined)), strict=True):
            least = max(_CUT_DEVIATIONS * deviation, _CUT_SHARE * count.sum())
            edges[j] = _cut(edges[j], count, max(least, 1.0))
    return edges


def _first_edges(n_units):
    """Return the edges of even cells, and of one for either bound, where there may be many."""
    inner = 1 + np.arange(_FIRST_CELLS + 1) * (n_units - 2) // _FIRST_CELLS
    return np.array([0, *inner, n_units])


def _cut(edges, counts, least):
    """Return edges with more between those that have more than the least between them."""
    parts = np.clip(np.ceil(2 * counts / least), 2, _MOST_PARTS).astype(np.int64)
    parts = np.where(counts > least, np.minimum(parts, np.diff(edges)), 1)
    cut = [
        start + (stop - start) * np.arange(n) // n
        for start, stop, n in zip(edges[:-1], edges[1:], parts, strict=True)
    ]
    return np.append(np.concatenate(cut), edges[-1])


def _group_cells(counts, schema, deviation):
    """Return which cells of each column go together where pairs of columns are counted."""
    total = max(np.mean([count.sum() for count in counts]), 1.0)
    n_groups = _number_of_groups(total, schema.n_classes, deviation)
    groups = []
    for j, count in zip(schema.features, counts, strict=True):
        mass = np.maximum(count.sum(axis=1), 0.0)
        if schema.columns[j].kind == "nominal":
            # Frequent categories are alone, and rare ones together.
            order = np.argsort(-mass, kind="stable")
            group = np.empty(len(mass), dtype=np.int64)
            group[order] = merge_cells(mass[order], mass.sum() / n_groups)
        else:
            group = merge_cells(mass, mass.sum() / n_groups)
        groups.append(group)
    return groups


def _number_of_groups(n_records, n_classes, deviation):
    """Return about how many groups the cells of a column make, where pairs are counted."""
    per_pair = _PAIR_DEVIATIONS * n_classes * max(deviation, 1.0)
    return np.clip(math.sqrt(n_records / per_pair), 2, _MOST_GROUPS)


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
    current, held = 0, 0.0
    for i, m in enumerate(mass):
        if held > 0 and (held >= least or m >= least):
            current, held = current + 1, 0.0
        group[i] = current
        held += m
    if held < least / 2 and current:
        group[group == current] = current - 1
    return group


def _release_pairs(cells, classes, groups, n_classes, releases, tables):
    """Return counts with noise of the pairs of groups of each two columns, in each class."""
    codes = [group[cell] for group, cell in zip(groups, cells, strict=True)]
    sizes = [group.max() + 1 for group in groups]
    counts = [
        np.bincount(
            (codes[a] * sizes[b] + codes[b]) * n_classes + classes,
            minlength=sizes[a] * sizes[b] * n_classes,
        )
        for a, b in tables
    ]
    return _release(releases, "pairs", counts, len(tables))
