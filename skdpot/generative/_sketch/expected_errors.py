"""Expected errors of released counts, before anything is released."""

import math

from skdpot.generative._sketch.cell_groups import number_of_groups
from skdpot.generative._sketch.cells import (
    CUT_DEVIATIONS,
    FIRST_CELLS,
    MOST_CELLS,
    ROUNDS,
    WIDENING,
    records_hidden_by,
    refined_columns,
)
from skdpot.generative._sketch.column_totals import PRIOR_SPREAD, SEEN_DEVIATIONS
from skdpot.generative._sketch.noisy_counts import (
    noise_of_counts,
    noise_of_tables,
    tables_sensitivity,
)
from skdpot.privacy.preview import ExpectedError
from skdpot.releases import SketchReleases
from skdpot.tables import NUMERIC, Column, TableSchema

__all__ = ["errors_of_counts", "expected_errors"]

_LEAST_VARIANCE = 1e-12


def expected_errors(
    n_records: int, schema: TableSchema, releases: SketchReleases, *, totals: bool = False
) -> tuple[ExpectedError, ...]:
    """Return the standard errors of estimates from released counts, of columns and of pairs.

    Records are assumed to be evenly distributed, and an estimate uses all counts of a column. The
    model usually has smaller errors.

    Parameters
    ----------
    n_records : int
        Number of records.
    schema : TableSchema
        The declaration of the table.
    releases : SketchReleases
        With the shares of `share_marginals`.
    totals : bool
        As of `share_marginals`.

    Returns
    -------
    tuple of ExpectedError
        Of the mean of each numeric column, useless from half of its range. Of the share of a
        category of each other column, useless from an even share. Of the correlation of the upper
        halves of two columns.

    Examples
    --------
    >>> from skdpot.generative._sketch.expected_errors import expected_errors
    >>> from skdpot.generative._sketch.marginals import share_marginals
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
    n_columns = len(schema.features)
    count, pair = noise_of_counts(schema, releases), 0.0
    if n_columns > 1:
        pair = noise_of_tables(releases, "pairs", math.comb(n_columns, 2))
    total_noise = math.inf
    if totals and schema.n_classes > 1:
        total_noise = noise_of_tables(releases, "totals", n_columns) or math.inf
    refined = refined_columns(schema)
    round_noise = math.inf
    if refined:
        sensitivity = tables_sensitivity(len(refined))
        round_noise = releases.standard_deviation(ROUNDS[0], sensitivity) or math.inf
    return errors_of_counts(n_records, schema, (count, pair), total_noise, round_noise)


def errors_of_counts(
    n_records: int,
    schema: TableSchema,
    deviations: tuple[float, float],
    total_noise: float = math.inf,
    round_noise: float = math.inf,
) -> tuple[ExpectedError, ...]:
    """Return the errors of `expected_errors`, given the noise of counts and of pairs.

    `total_noise` is that of counts in all classes together, and `round_noise` that of the rounds in
    which cells are cut. Both are infinite if these counts are not released.

    Examples
    --------
    >>> from skdpot.generative._sketch.expected_errors import errors_of_counts
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"age": range(18, 80)})
    >>> print(*errors_of_counts(1000, schema, (8.5, 0.0)))
    standard error of the mean of 'age': 1.18 (useless from 30.5)
    """
    n_classes = schema.n_classes
    count_noise, pair_noise = deviations
    sizes = _expected_sizes(n_records, schema, round_noise)
    most_groups = number_of_groups(n_records, n_classes, pair_noise)
    n_groups = [min(most_groups, size) for size in sizes]
    precision = 1 / max(n_classes * count_noise**2, _LEAST_VARIANCE) + total_noise**-2
    refined = refined_columns(schema)
    errors = _class_errors(n_records, schema, count_noise, sizes)
    for k, j in enumerate(schema.features):
        cell = precision
        if j in refined:
            cell += 3 * sizes[k] / FIRST_CELLS / round_noise**2
        margins = sum(
            1 / (n_classes * n_groups[other] * pair_noise**2)
            for other in range(len(sizes))
            if other != k and pair_noise
        )
        variances = _variances(n_records, sizes[k], n_groups[k], cell, margins)
        errors += _column_errors(n_records, schema.columns[j], sizes[k], n_groups[k], variances)
    if len(sizes) > 1:
        second, first = sorted(n_groups)[-2:]
        error = pair_noise * math.sqrt(n_classes * first * second) / n_records
        label = "standard error of the correlation of the upper halves of two columns"
        errors.append(ExpectedError(label, error, 1.0))
    return tuple(errors)


def _expected_sizes(n_records: int, schema: TableSchema, round_noise: float) -> list[int]:
    """Return about how many cells each column will have."""
    is_cut = n_records > FIRST_CELLS * CUT_DEVIATIONS * round_noise or math.isinf(round_noise)
    n_refined = MOST_CELLS if is_cut else FIRST_CELLS
    if n_records < records_hidden_by(round_noise) < math.inf:
        n_refined //= WIDENING
    refined = refined_columns(schema)
    return [n_refined if j in refined else schema.columns[j].n_units for j in schema.features]


def _class_errors(
    n_records: int, schema: TableSchema, count_noise: float, sizes: list[int]
) -> list[ExpectedError]:
    """Return the error of the share of a class, if there are several."""
    n_classes = schema.n_classes
    if schema.target is None or n_classes < 2:
        return []
    # Columns with fewer cells have more weight.
    noise = sum(1 / size for size in sizes)
    error = count_noise * math.sqrt((1 - 1 / n_classes) / noise)
    part = "band" if schema.has_bands else "class"
    label = f"standard error of the share of a {part} of {schema.names[schema.target]!r}"
    return [ExpectedError(label, error / n_records, 1 / n_classes)]


def _column_errors(
    n_records: int, column: Column, size: int, groups: float, variances: tuple[float, float]
) -> list[ExpectedError]:
    """Return the error of the mean of a number, or of the share of a category."""
    group_variance, cell_variance = variances
    if column.kind == NUMERIC and column.high > column.low:
        width = column.length
        between = group_variance * (groups - 1 / groups) + cell_variance * (size / groups**2)
        scale = "" if column.scale == "linear" else "the logarithm of "
        label = f"standard error of the mean of {scale}{column.name!r}"
        return [ExpectedError(label, math.sqrt(between / 12) / n_records * width, width / 2)]
    if size == 1:
        return []
    singles = groups / size
    variance = group_variance * singles**2 + cell_variance * (1 - singles)
    label = f"standard error of the share of a category of {column.name!r}"
    return [ExpectedError(label, math.sqrt(variance * (1 - 1 / size)) / n_records, 1 / size)]


def _variances(n_records, size, n_groups, cell, margin):
    """Return the variances of the count of a group of cells, and of a cell in it.

    `cell` is the precision of all counts of a cell together, and `margin` that of the counts of a
    group by pairs: see `likely_counts`.
    """
    group_variance = 1 / (n_groups / size * cell + margin)
    expected = n_records / size
    if expected < SEEN_DEVIATIONS * cell**-0.5:
        cell += (PRIOR_SPREAD * expected) ** -2
    return group_variance, 1 / cell
