"""Tables as they are read: columns, kinds, bounds, labels, missing values, and data frames."""

from skdpot.privacy.checks import names_of, refuse_other_order, refuse_other_rows
from skdpot.tables._column import (
    LOG,
    NOMINAL,
    NUMERIC,
    ORDINAL,
    Column,
    check_bounds,
    column_index,
    declared_labels,
    is_missing,
    is_plain,
    label_codes,
    objects,
    one_by_one,
    simplest_number,
)
from skdpot.tables._frames import (
    CONTAINERS,
    Table,
    as_array,
    library_of,
    make_table,
    number_in_file,
    plain_values,
    read_header,
    read_table_file,
    suffix_of,
    take_columns,
    take_rows,
    with_person,
    write_table_file,
)
from skdpot.tables._reading import (
    as_numbers,
    checked_names,
    find_columns,
    label_order,
    person_codes,
    position_of,
    private_numbers,
    public_labels,
    read_codes,
    read_columns,
    read_numbers,
    refuse_other_labels,
)
from skdpot.tables._schema import FILL_IN, TableSchema, read_schema, write_table
