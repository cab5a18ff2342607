"""The public declaration of a table of people with several rows, and of its releases."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from skdpot.generative._sketch.cells import ROUNDS, first_edges, refined_columns
from skdpot.generative._sketch.expected_errors import errors_of_counts
from skdpot.generative._sketch.noisy_counts import noise_of_tables
from skdpot.generative._sketch.people_parts import LARGEST_WEIGHT
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import RADIUS, SketchReleases
from skdpot.tables import TableSchema

__all__ = [
    "LARGEST_PRODUCT",
    "PeopleTable",
    "largest_scatters",
    "noise_of_people",
    "people_errors",
    "people_sensitivities",
    "released_products",
    "share_people",
]

# The largest norm of a person's contribution to a table of means of products of two points of the
# ball.
LARGEST_PRODUCT = RADIUS**2
# The first cells of numbers of rows: each is wider than the one before by this factor.
_SIZE_STEP = 1.4
# The scatter of the rows of a person is clipped to this part of the possible one, if a column has
# more than two values; few people exceed it.
_LARGE_SCATTER = 0.8


@dataclass(frozen=True)
class PeopleTable:
    """The public declaration of the columns that are counted of people with several rows.

    Parameters
    ----------
    schema : TableSchema
        All columns, the target among them, and last the number of rows of a person. It has no
        target.
    shared : tuple of int
        Positions of the columns with one value for each person, including the last column.
    order : int or None
        Position of the column by which rows of a person are in order.
    """

    schema: TableSchema
    shared: tuple[int, ...]
    order: int | None

    @property
    def n_tables(self) -> dict[str, int]:
        """Return the number of tables of counts of columns, and of pairs of columns."""
        n_columns = len(self.schema.columns)
        return {"values": n_columns, "pairs": math.comb(n_columns, 2)}

    @property
    def refined(self) -> list[int]:
        """Return the positions of the columns whose cells are cut."""
        return [*refined_columns(self.schema), len(self.schema.columns) - 1]

    @property
    def first_edges(self) -> dict[int, np.ndarray]:
        """Return the edges of the first cells of each column."""
        *columns, n_rows = self.schema.columns
        edges = [1]
        while edges[-1] <= n_rows.n_units:
            edges.append(max(edges[-1] + 1, math.ceil(edges[-1] * _SIZE_STEP)))
        size_edges = np.minimum(edges[:-1], n_rows.n_units) - 1
        size_edges[-1] = n_rows.n_units
        return dict(enumerate([*map(first_edges, columns), size_edges]))

    @property
    def row_columns(self) -> list[int]:
        """Return the positions of the columns with a value for each row."""
        return [j for j in range(len(self.schema.columns)) if j not in self.shared]

    @property
    def chained_columns(self) -> list[int]:
        """Return the positions of the columns whose values in consecutive rows are compared."""
        return [] if self.order is None else [j for j in self.row_columns if j != self.order]


def share_people(table: PeopleTable) -> dict[str, float]:
    """Return the share of the budget of each release of `release_people`."""
    shares = {"values": 0.28, **dict.fromkeys(ROUNDS, 0.02), "pairs": 0.38}
    return shares | {name: share for name, (share, _, _) in released_products(table).items()}


def released_products(table: PeopleTable) -> dict[str, tuple[float, int, int]]:
    """Return the share, the number of tables and the unit of each release of products."""
    n_columns = len(table.row_columns)
    products = {
        "within": (0.2, n_columns, RADIUS),
        "crossed": (0.04, n_columns * (n_columns - 1) // 2, LARGEST_PRODUCT),
        "next": (0.12, len(table.chained_columns), RADIUS),
    }
    return {name: product for name, product in products.items() if product[1]}


def largest_scatters(table: PeopleTable) -> list[float]:
    """Return the bound on the scatter of a person's rows, as a part of the possible one.

    There is one for each column of rows.
    """
    columns = [table.schema.columns[j] for j in table.row_columns]
    return [1.0 if column.n_known <= 2 else _LARGE_SCATTER for column in columns]


def people_sensitivities(table: PeopleTable) -> dict[str, Any]:
    """Return the sensitivity of each release."""
    tables = {
        **dict.fromkeys(ROUNDS, (len(table.refined), LARGEST_WEIGHT)),
        **{kind: (n_tables, LARGEST_WEIGHT) for kind, n_tables in table.n_tables.items()},
        **{name: product[1:] for name, product in released_products(table).items()},
    }
    return {
        name: partial(cell_count_sensitivity, n_tables=tables[name][0], whole=tables[name][1])
        for name in share_people(table)
    }


def noise_of_people(table: PeopleTable, releases: SketchReleases) -> dict[str, float]:
    """Return the noise of values and pairs, and of products, in units of people."""
    noise = {
        kind: noise_of_tables(releases, kind, n_tables, LARGEST_WEIGHT)
        for kind, n_tables in table.n_tables.items()
    }
    sensitivities = people_sensitivities(table)
    for name, (_, _, unit) in released_products(table).items():
        noise[name] = releases.standard_deviation(name, sensitivities[name]) / unit
    return noise


def people_errors(
    n_people: int, table: PeopleTable, releases: SketchReleases
) -> tuple[ExpectedError, ...]:
    """Return the standard errors of estimates from counts of people, of columns and of pairs."""
    noise = noise_of_people(table, releases)
    deviations = noise["values"], noise["pairs"]
    # Errors of numbers of rows are those of their first cells.
    *columns, n_rows = table.schema.columns
    wide = tuple(map(str, table.first_edges[len(columns)][:-1] + 1))
    schema = replace(table.schema, columns=(*columns, replace(n_rows, values=wide)))
    return errors_of_counts(n_people, schema, deviations)
