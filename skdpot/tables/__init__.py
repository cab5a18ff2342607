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
)
from skdpot.tables._doubts import (
    doubts_about_crowding,
    doubts_about_heavy_tails,
    doubts_about_identifiers,
)
from skdpot.tables._files import read_header, read_table_file, suffix_of, write_table_file
from skdpot.tables._frames import as_array, make_table
from skdpot.tables._kinds import find_columns, no_such_column
from skdpot.tables._people import check_index, person_codes
from skdpot.tables._reading import (
    as_numbers,
    column_codes,
    declared_codes,
    label_order,
    labels_of,
    private_codes,
    read_codes,
    refuse_other_labels,
)
from skdpot.tables._scales import LOG
from skdpot.tables._schema import TableSchema, read_schema, schema_from_plain
from skdpot.tables._schema_files import FILL_IN, columns_in
from skdpot.tables._schema_tables import (
    checked_names,
    read_columns,
    read_units,
    values_in,
    write_table,
)
