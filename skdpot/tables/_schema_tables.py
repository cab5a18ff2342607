"""Tables that are read, or made, as their schema declares them."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.tables._column import NUMERIC, Column
from skdpot.tables._containers import Table, exact_digits, labels_in
from skdpot.tables._declarations import objects
from skdpot.tables._frames import as_array, make_table
from skdpot.tables._reading import has_other_labels, mistyped, numbers_in
from skdpot.tables._schema import TableSchema, refuse
from skdpot.tables._types import typed_values
from skdpot.tables._unlearned import Constant, Identifier


def read_units(X: Any, schema: TableSchema, *, private: bool = False) -> np.ndarray:
    """Return the units of a table, or raise with all violations of the declaration.

    If `private`, no value raises: one that has no unit gets -1, or -2. Names, shapes and types of
    columns still raise.

    Examples
    --------
    >>> from skdpot.tables import read_schema, read_units
    >>> read_units([[30, "F"], [40, "M"]], read_schema({"age": range(17, 91), "sex": ["F", "M"]}))
    array([[13,  0],
           [23,  1]])
    """
    values, problems = _values_in(Table(X), schema, private)
    units, unit_problems = schema.units_and_problems(values)
    refuse(problems if private else [*problems, *unit_problems])
    return units


def read_columns(X: Any, schema: TableSchema, *, private: bool = False) -> list[np.ndarray]:
    """Return the columns of a table in the form for `TableSchema.encode`, or raise.

    The columns of a frame are found by their names; those of an array are in the order of the
    schema. Numeric ones are doubles, with NaN for missing values; others are objects, with None.
    Errors quote no value. If `private`, values that are no numbers are missing, and raise nothing.

    Examples
    --------
    >>> from skdpot.tables import read_columns, read_schema
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> read_columns([[30, "F"], [40, "M"]], schema)
    [array([30., 40.]), array(['F', 'M'], dtype=object)]
    """
    values, problems = _values_in(Table(X), schema, private)
    refuse(problems)
    return values


def _values_in(
    table: Table, schema: TableSchema, private: bool
) -> tuple[list[np.ndarray], list[str]]:
    """Return the learned columns of a table, and the errors in them; or raise.

    If `private`, these are errors that types of columns show, and no value decides about one.
    """
    names = [column.name for column in schema.declared]
    if np.ma.isMaskedArray(table.X):
        raise TypeError("X is a masked array, whose mask would be lost: use NaN, or None.")
    if table.container != "array":
        _check_names(checked_names(table), names)
        names = table.names
    elif len(table.X.shape) != 2 or table.X.shape[1] != len(names):
        raise ValueError(
            f"the table must have the {len(names)} columns of the schema, got an array of shape "
            f"{('n', *table.X.shape[1:])}."
        )
    if not len(table):
        raise ValueError("the table has no records (0 rows); at least 1 is needed.")
    values, problems = [], []
    for column in schema.columns:
        place = names.index(column.name)
        if column.kind == NUMERIC:
            read, problem = numbers_in(table, place, column)
            if problem and not private:
                # Such a column causes no further complaint.
                read = np.full(len(table), column.low)
            is_mistyped = table.kind(place) not in _kinds_of_numbers(column)
        else:
            read, problem = _labels_in(table, place, column, private)
            is_mistyped = True
            if private and has_other_labels(column.values, table.kind(place)):
                problem = mistyped(column)
        values.append(read)
        problems += problem if is_mistyped or not private else []
    return values, problems


def _kinds_of_numbers(column: Column) -> str:
    """Return the kinds of types that may hold the values of a numeric column."""
    if column.unit is None:
        return "biufO"
    return "mUO" if column.duration else "MUO"


def _labels_in(
    table: Table, place: int, column: Column, private: bool
) -> tuple[np.ndarray, list[str]]:
    """Return a column of labels, and the problem of floating-point numbers, in a list.

    Those that stand for several labels are missing. One missing value makes them of integers in
    pandas, and rounds the labels of other records.
    """
    labels = labels_in(table.column(place))
    least = 2 ** exact_digits(table.series(place))
    if not any(type(label) is int and abs(label) >= least for label in column.values):
        return labels, []
    rounded = [type(label) is float and abs(label) >= least for label in labels.tolist()]
    labels[np.array(rounded, dtype=bool)] = None
    if not (table.kind(place) == "f" if private else any(rounded)):
        return labels, []
    return labels, [
        f"column {column.name!r} has floating-point numbers, which do not distinguish all of its "
        "declared integers: read it as text, or as integers that may be missing (Int64)"
    ]


def values_in(X: Any, schema: TableSchema) -> np.ndarray:
    """Return the declared columns of a private table, in order, as an array of objects.

    Raises as `read_columns` does, and no value raises.

    Examples
    --------
    >>> from skdpot.tables import read_schema, values_in
    >>> values_in([[30, "F"], [40, "M"]], read_schema({"age": range(17, 91), "sex": ["F", "M"]}))
    array([[30, 'F'],
           [40, 'M']], dtype=object)
    """
    read_columns(X, schema, private=True)
    table = Table(X)
    declared = [column.name for column in schema.declared]
    names = declared if table.container == "array" else table.names
    return as_array([objects(table.column(names.index(name))) for name in declared])


def write_table(
    container: str, schema: TableSchema, values: Sequence[np.ndarray],
    computed: Mapping[Any, np.ndarray] | None = None,
) -> Any:  # fmt: skip
    """Return columns of `TableSchema.presented` as a table, in "pandas", "polars" or an "array".

    `computed` are the columns that are computed from others. Columns have their declared types;
    integers that may be missing have the nullable type of pandas. An array has doubles if all
    columns are numeric, and objects otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_schema, write_table
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> values = [np.array([30, 40]), np.array(["F", "M"], dtype=object)]
    >>> write_table("array", schema, values)
    array([[30, 'F'],
           [40, 'M']], dtype=object)
    """
    named = dict(zip(schema.names, values, strict=True)) | dict(computed or {})
    columns, types = [], []
    for column in schema.declared:
        if isinstance(column, Identifier | Constant):
            array, dtype = column.values(len(values[0])), None
        else:
            array, dtype = typed_values(container, column, named[column.name])
        columns.append(array)
        types.append(dtype)
    # Integers that may be missing are objects elsewhere.
    if container == "array" and all(
        isinstance(column, Column) and column.kind == NUMERIC and column.unit is None
        for column in schema.declared
    ):
        columns = [np.asarray(column, dtype=np.float64) for column in columns]
    return make_table(container, [column.name for column in schema.declared], columns, types)


def checked_names(table: Table) -> list:
    """Return the names of a table's columns, or raise if they are invalid."""
    # Other names may be private values, for example of a transposed table.
    if not all(isinstance(name, str | Integral) for name in table.names):
        raise TypeError("names of columns must be text or integers; those of X are not.")
    return table.names


def _check_names(names: list, declared: list) -> None:
    """Raise unless the columns of a frame are the declared ones, each once."""
    wrong = [f"column {name!r} is there twice" for name in declared if names.count(name) > 1]
    extra = [name for name in names if name not in declared]
    if extra:
        wrong.append(
            f"the table has columns that the schema does not declare: {extra}. Declare them, or "
            "leave them out; identifiers are declared as {'identifier': True}"
        )
    lacking = [name for name in declared if name not in names]
    if lacking:
        wrong.append(
            f"the table lacks the columns {lacking} of the schema. Add them to the table, or "
            "declare a schema without them"
        )
    if wrong:
        raise ValueError("; ".join(wrong) + ".")
