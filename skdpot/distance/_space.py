"""Declared spaces of records, boxes or tables, and the costs in them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.distance._metrics import CostFunction, make_cost
from skdpot.distance._table_costs import middle_of_table, table_cost, table_places
from skdpot.tables import TableSchema, doubts_about_identifiers


@dataclass(frozen=True, eq=False)
class BoxSpace:
    """The points of a box.

    Attributes
    ----------
    low, high : ndarray of shape (n_features,)
        Public bounds.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def middle(self) -> np.ndarray:
        """Return a public point."""
        return (self.low + self.high) / 2

    @property
    def unit(self) -> "BoxSpace":
        """Return the space of scaled points: the unit box."""
        return BoxSpace(np.zeros_like(self.low), np.ones_like(self.high))

    def moved_inside(self, points: np.ndarray) -> np.ndarray:
        """Return points with numbers moved to the bounds, and the middle in place of NaN."""
        return np.where(np.isnan(points), self.middle, np.clip(points, self.low, self.high))

    def doubts(self, n_records: int) -> str | None:
        """Return a warning about declarations that are probably wrong, or None."""
        return None

    def scaled(self, points: np.ndarray) -> np.ndarray:
        """Return points in public units."""
        return np.clip((points - self.low) / (self.high - self.low), 0.0, 1.0)

    def cost(self, metric: Any, **options: Any) -> CostFunction:
        """Return the cost function of a metric between points."""
        return make_cost(metric, self.low, self.high, **options)


@dataclass(frozen=True, eq=False)
class TableSpace:
    """Rows of a table, as places on the lines of their columns, in public units.

    Attributes
    ----------
    schema : TableSchema
        Public.
    """

    schema: TableSchema

    @property
    def middle(self) -> np.ndarray:
        """Return a public point."""
        return middle_of_table(self.schema)

    @property
    def unit(self) -> "TableSpace":
        """Return the space of scaled points: this one."""
        return self

    def points(self, columns: list[np.ndarray]) -> np.ndarray:
        """Return columns of a private table as points."""
        return table_places(self.schema, columns)

    def doubts(self, n_records: int) -> str | None:
        """Return a warning about declarations that are probably wrong, or None."""
        return doubts_about_identifiers(self.schema.columns, n_records)

    def scaled(self, points: np.ndarray) -> np.ndarray:
        """Return points in public units, as they are."""
        return points

    def cost(self, metric: Any, **options: Any) -> CostFunction:
        """Return the cost function of a metric between points."""
        return table_cost(self.schema, metric, **options)
