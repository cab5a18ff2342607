"""Groups of cells: columns are counted together in groups that noise does not hide."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from skdpot.tables import NOMINAL, TableSchema

__all__ = ["group_cells", "merge_cells", "number_of_groups", "possible_cells", "possible_pairs"]

# Groups are so large that a pair of groups has about this number of deviations of the noise.
_PAIR_DEVIATIONS = 0.5
_MOST_GROUPS = 32
_MOST_JOINT_CELLS = 4096


def group_cells(
    counts: Sequence[np.ndarray],
    schema: TableSchema,
    deviation: float,
    starts: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Return the group of each cell, for each column; pairs of columns are counted in groups.

    With a target of numbers, every group lies in one band. `starts` has the first unit of cells.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.cell_groups import group_cells
    >>> from skdpot.tables import read_schema
    >>> counts = np.array([50.0, 1.0, 2.0, 40.0])
    >>> group_cells([counts], read_schema({"city": ["A", "B", "C", "D"]}), 5.0)
    [array([0, 1, 1, 1])]
    """
    total = max(np.mean([count.sum() for count in counts]), 1.0)
    n_groups = number_of_groups(total, schema.n_classes, deviation)
    groups = []
    for j, count in zip(schema.features, counts, strict=True):
        mass = np.maximum(count, 0.0)
        if schema.columns[j].kind == NOMINAL:
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
    """Return the group of each cell. No group is in two bands."""
    group, first = np.empty(len(mass), dtype=np.int64), 0
    for band in np.unique(bands):
        merged = merge_cells(mass[bands == band], least)
        group[bands == band] = first + merged
        first += merged.max() + 1
    return group


def merge_cells(mass: np.ndarray, least: float) -> np.ndarray:
    """Return the group of each cell: consecutive cells with a mass of `least` or more.

    The last group has at least half of that.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.cell_groups import merge_cells
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


def number_of_groups(n_records: float, n_classes: int, deviation: float) -> float:
    """Return about how many groups of cells a column has, where pairs are counted."""
    cell_size = _PAIR_DEVIATIONS * n_classes * max(deviation, 1.0)
    return float(np.clip(math.sqrt(n_records / cell_size), 2, _MOST_GROUPS))


def possible_pairs(
    schema: TableSchema, starts: Sequence[np.ndarray], groups: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Tell which counts of pairs may have records: a band of a target is in one class only.

    Parameters
    ----------
    schema : TableSchema
        The declaration of the table.
    starts, groups : sequence of ndarray of shape (n_cells,)
        The first unit and the group of each cell, of all columns that depend on the class.

    Returns
    -------
    list of ndarray
        Of each pair of columns: groups of the first, groups of the second, and classes, flattened.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.cell_groups import possible_pairs
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"grade": range(3), "sex": ["F", "M"]}, "grade")
    >>> (pairs,) = possible_pairs(schema, *[[np.arange(3), np.arange(2)]] * 2)
    >>> pairs.reshape(3, 2, 3)[:, 0].astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """
    possible_groups = []
    for j, start, group in zip(schema.features, starts, groups, strict=True):
        possible = possible_cells(schema, j, start)
        # All cells of a group are alike.
        possible_groups.append(possible[np.unique(group, return_index=True)[1]])
    return [(a[:, None] & b).ravel() for a, b in combinations(possible_groups, 2)]


def possible_cells(schema: TableSchema, j: int, starts: np.ndarray) -> np.ndarray:
    """Tell in which classes records of each cell of a column may be, by the cell's first unit."""
    if not schema.has_bands or j != schema.target:
        return np.ones((len(starts), schema.n_classes), dtype=bool)
    return schema.classes_of(starts)[:, None] == np.arange(schema.n_classes)
