"""Tables as they are read: columns, kinds, bounds, labels, missing values, and data frames."""

from skdpot.tables._column import NOMINAL, NUMERIC, ORDINAL, Column, place_of
from skdpot.tables._containers import (
    CONTAINERS,
    Table,
    container_of,
    plain_values,
    take_columns,
    take_rows,
)
from skdpot.tables._declarations import (
    check_bounds,
    declared_labels,
    is_missing,
    label_codes,
    objects,
    one_by_one,
    shown,
)
from skdpot.tables._doubts import said_of_crowded, said_of_heavy_tails, said_of_identifiers
from skdpot.tables._frames import as_array, make_table
from skdpot.tables._kinds import find_columns, no_column_said
from skdpot.tables._reading import column_codes, label_order, labels_of, read_codes
from skdpot.tables._schema import (
    TableSchema,
    read_columns,
    read_schema,
    schema_from_plain,
    write_table,
)

__all__ = [
    "CONTAINERS",
    "NOMINAL",
    "NUMERIC",
    "ORDINAL",
    "Column",
    "Table",
    "TableSchema",
    "as_array",
    "check_bounds",
    "column_codes",
    "container_of",
    "declared_labels",
    "find_columns",
    "is_missing",
    "label_codes",
    "label_order",
    "labels_of",
    "make_table",
    "no_column_said",
    "objects",
    "one_by_one",
    "place_of",
    "plain_values",
    "read_codes",
    "read_columns",
    "read_schema",
    "said_of_crowded",
    "said_of_heavy_tails",
    "said_of_identifiers",
    "schema_from_plain",
    "shown",
    "take_columns",
    "take_rows",
    "write_table",
]
