"""Columns that are probably of little use: identifiers, and numbers with heavy tails."""

from collections.abc import Iterable, Sequence

import numpy as np

from skdpot.tables._column import NUMERIC, Column

# A column with more labels than this share of the rows identifies rows. Many columns of smaller
# tables have as many.
_IDENTIFYING_PART, _FEWEST_ROWS = 0.5, 20
# The share of numbers that are farthest from the mean, and the least share of the variance for
# which their tail is heavy. (One hundredth has 0.08 of the variance of a Gaussian, 0.22 of an
# exponential and 0.5 of a lognormal distribution.) Then the fewest rows, and the fewest different
# numbers, for this check.
_FAR_PART, _HEAVY = 0.01, 0.5
_FEWEST_IN_TAIL, _FEWEST_NUMBERS = 200, 20
# Numbers are crowded if this share of them lies within this share of their bounds.
_USUAL, _CROWDED = 0.9, 0.05
# With more rows, only every second row, every third and so on is used.
_MOST_LOOKED_AT = 5000


def doubts_about_identifiers(columns: Iterable[Column], n_records: int) -> str | None:
    """Return a warning about columns with nearly as many labels as rows, or None.

    Labels were declared or found in rows that are not private, and `n_records` is no more private.

    Examples
    --------
    >>> from skdpot.tables import read_schema, doubts_about_identifiers
    >>> columns = read_schema({"name": [f"name {i}" for i in range(90)], "sex": ["F", "M"]}).columns
    >>> doubts_about_identifiers(columns, 100).partition(", like")[0]
    "column 'name' has 90 different labels for 100 rows"
    >>> doubts_about_identifiers(columns, 1000)
    """
    cases = [
        f"column {column.name!r} has {len(column.values)} different labels for {n_records} rows"
        for column in columns
        if column.kind != NUMERIC and len(column.values) > _IDENTIFYING_PART * n_records
    ]
    if not cases or n_records < _FEWEST_ROWS:
        return None
    return (
        f"{'; '.join(cases)}, like an identifier, which has nothing to be learned. Leave it out, "
        "merge its labels, or make it a number."
    )


def doubts_about_heavy_tails(names: Sequence, values: np.ndarray) -> str | None:
    """Return a warning about numbers of which a few have most of the variance, or None.

    `values` of shape (n_rows, n_columns) are not private; missing numbers are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import doubts_about_heavy_tails
    >>> normal = np.random.default_rng(0).normal(size=(1000, 1))
    >>> doubts_about_heavy_tails(["wealth"], normal)
    >>> doubts_about_heavy_tails(["wealth"], np.exp(3 * normal)).partition(". ")[0]
    "the most extreme 1 % of the numbers in column 'wealth' have 96 % of the variance there"
    """
    cases = []
    for name, column in zip(names, values.T, strict=True):
        finite = column[np.isfinite(column)]
        if len(finite) < _FEWEST_IN_TAIL or len(np.unique(finite)) < _FEWEST_NUMBERS:
            continue
        squares = np.sort((finite - finite.mean()) ** 2)
        part = squares[-int(_FAR_PART * len(finite)) :].sum() / squares.sum()
        if part > _HEAVY:
            cases.append(f"column {name!r} have {100 * part:.0f} % of the variance there")
    if not cases:
        return None
    return (
        f"the most extreme {100 * _FAR_PART:.0f} % of the numbers in {'; in '.join(cases)}. A few "
        "rows decide the scale, then. Take the logarithm of such a column, or declare bounds."
    )


def doubts_about_crowding(names: Sequence, values: np.ndarray) -> str | None:
    """Return a warning about numbers that crowd in a small part of their bounds, or None.

    `values` of shape (n_rows, n_columns) are not private, and scaled so that bounds are -1 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import doubts_about_crowding
    >>> even = np.linspace(-1, 1, 500)[:, None]
    >>> doubts_about_crowding(["wealth"], even)
    >>> doubts_about_crowding(["wealth"], 2 * ((even + 1) / 2) ** 80 - 1).partition(". ")[0]
    "90 % of the numbers in column 'wealth' are within 2 % of the bounds"
    """
    if len(values) < _FEWEST_IN_TAIL:
        return None
    values = values[:: -(-len(values) // _MOST_LOOKED_AT)]
    ends = np.quantile(values, [(1 - _USUAL) / 2, (1 + _USUAL) / 2], axis=0)
    widths, cases = (ends[1] - ends[0]) / 2, []
    for name, column, width in zip(names, values.T, widths, strict=True):
        # A logarithm does not help a column that is nearly constant.
        if 0 < width < _CROWDED and len(np.unique(column)) >= _FEWEST_NUMBERS:
            cases.append(f"column {name!r} are within {100 * width:.0f} % of the bounds")
    if not cases:
        return None
    return (
        f"{100 * _USUAL:.0f} % of the numbers in {'; in '.join(cases)}. Such numbers are hardly "
        "distinguished, because the bounds set the scale. Take the logarithm of the column, or "
        "declare narrower bounds."
    )
