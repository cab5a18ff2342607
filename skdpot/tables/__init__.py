"""How a table is read: declared bounds and labels, missing values, and what holds the rows."""

from skdpot.tables._containers import CONTAINERS, container_of
from skdpot.tables._declarations import (
    check_bounds,
    declared_labels,
    is_missing,
    label_codes,
    objects,
    one_by_one,
)

__all__ = [
    "CONTAINERS",
    "check_bounds",
    "container_of",
    "declared_labels",
    "is_missing",
    "label_codes",
    "objects",
    "one_by_one",
]
