"""Tables of counts with noise, and the standard deviation of that noise."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import TableSchema

__all__ = [
    "count_together",
    "noise_of_counts",
    "noise_of_tables",
    "release_tables",
    "released_size",
    "tables_sensitivity",
]


def count_together(
    codes: Mapping[int, np.ndarray] | Sequence[np.ndarray],
    sizes: Sequence[int],
    columns: Sequence[int],
    classes: np.ndarray | int,
    n_classes: int,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return the number of records with each combination of codes of some columns, by class.

    With weights, which are integers, return their sums.
    """
    cell: Any = 0
    n_cells = n_classes
    for j in columns:
        n_codes = sizes[j]
        cell, n_cells = cell * n_codes + codes[j], n_cells * n_codes
    return np.bincount(cell * n_classes + classes, weights, minlength=n_cells)


def release_tables(
    releases: SketchReleases, name: str, counts: Sequence[np.ndarray], whole: int = 1
) -> list[np.ndarray]:
    """Release tables of counts with noise. A record is in one cell of each table.

    With `whole` above 1, a person adds integers with a norm of at most `whole` to each table.
    """
    sums = np.concatenate(counts).astype(np.int64)
    # A multiplier has been rounded up by more than this root may be rounded down.
    noisy = releases.run(name, sums, tables_sensitivity(len(counts), whole)) / whole
    return np.split(noisy, np.cumsum([len(count) for count in counts])[:-1])


def tables_sensitivity(n_tables: int, whole: int = 1) -> partial[float]:
    """Return the sensitivity of tables of counts, each of which has a record, or person, once."""
    return partial(cell_count_sensitivity, n_tables=n_tables, whole=whole)


def noise_of_tables(releases: SketchReleases, name: str, n_tables: int) -> float:
    """Return the standard deviation of the noise of tables of counts."""
    return releases.standard_deviation(name, tables_sensitivity(n_tables))


def noise_of_counts(schema: TableSchema, releases: SketchReleases) -> float:
    """Return the standard deviation of the noise of the counts of columns.

    Examples
    --------
    >>> from skdpot.generative._sketch.marginals import share_marginals
    >>> from skdpot.generative._sketch.noisy_counts import noise_of_counts
    >>> from skdpot.tables import read_schema
    >>> from skdpot.releases import SketchReleases
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> releases = SketchReleases(1.0, share_marginals(schema), "add_remove", None)
    >>> round(noise_of_counts(schema, releases), 1)
    2.2
    """
    return noise_of_tables(releases, "values", len(schema.features))


def released_size(released: Mapping[str, np.ndarray]) -> int:
    """Return an estimate of the number of records, from released counts.

    It is at least 0, and a mean of the totals of all columns. Columns with more cells add up more
    noise, and have less weight.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.noisy_counts import released_size
    >>> counts = np.array([[610.0], [400.0], [200.0], [300.0], [200.0], [250.0]])
    >>> released_size({"n_cells": np.array([2, 4]), "counts": counts})
    990
    """
    n_cells = released["n_cells"]
    totals = np.add.reduceat(released["counts"].sum(axis=1), np.cumsum(n_cells) - n_cells)
    return max(round(float(np.average(totals, weights=1 / n_cells))), 0)
