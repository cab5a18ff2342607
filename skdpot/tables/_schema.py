"""The schema of a table: what its columns are declared to hold, and its values as whole numbers.

The declaration is public; it may not be learned from private data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.tables._column import HOW_TO_DECLARE, LABEL_KEYS, NUMERIC, Column, read_column
from skdpot.tables._containers import Table, labels_in
from skdpot.tables._declarations import shown
from skdpot.tables._frames import make_table
from skdpot.tables._reading import numbers_in


@dataclass(frozen=True)
class TableSchema:
    """What a table is declared to hold.

    Attributes
    ----------
    columns : tuple of Column
        In the order of the declaration.
    target : int or None
        Position of the target column.
    """

    columns: tuple[Column, ...]
    target: int | None = None

    @property
    def names(self) -> list:
        """Return the names of the columns."""
        return [column.name for column in self.columns]

    @property
    def n_classes(self) -> int:
        """Return the number of classes: 1 where there is no target."""
        return 1 if self.target is None else self.columns[self.target].n_units

    @property
    def features(self) -> list[int]:
        """Return the positions of all columns but the target."""
        return [j for j in range(len(self.columns)) if j != self.target]

    def without_target(self) -> "TableSchema":
        """Return the schema of all columns but the target."""
        return TableSchema(tuple(self.columns[j] for j in self.features))

    def encode(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the units of a table's values, or raise where some are not declared.

        Parameters
        ----------
        values : sequence of ndarray of shape (n,)
            Private. A column each, as `Column.units` reads them.

        Returns
        -------
        ndarray of shape (n, n_columns), dtype int64
            From 0 to below the number of units.

        Raises
        ------
        ValueError
            If a column has values that are missing or no declared category, and missing ones are
            not declared. That it has is not protected; it is all that the message tells.
        """
        units = np.empty((len(values[0]), len(self.columns)), dtype=np.int64, order="F")
        for j, column in enumerate(self.columns):
            units[:, j] = column.units(values[j])
            if column.missing:
                units[units[:, j] < 0, j] = column.n_known
                continue
            if (units[:, j] == -1).any():
                raise ValueError(
                    f"column {column.name!r} has missing values, which its schema does not declare:"
                    " declare 'missing': True, or leave these records out."
                )
            if (units[:, j] == -2).any():
                raise ValueError(
                    f"column {column.name!r} has values that are not among its declared "
                    f"{LABEL_KEYS[column.kind]}: declare all that there may be (the number 1 "
                    "is not the text '1'), or 'missing': True, which counts others as missing."
                )
        return units

    def decode(
        self, units: np.ndarray, uniforms: np.ndarray, given: Mapping[Any, Any] | None = None
    ) -> list[np.ndarray]:
        """Return the values of units.

        Parameters
        ----------
        units : ndarray of shape (n, n_columns)
            Of `encode`.
        uniforms : ndarray of shape (n, n_columns)
            From 0 to 1, of which real numbers are made.
        given : mapping, default=None
            Conditions by the name of the column, as of `intervals`, that the units are in: a real
            number shares its unit with others, which the conditions may exclude.

        Returns
        -------
        list of ndarray of shape (n,)
            A column each: int64, doubles, or objects. Where values may be missing, those of
            integers and categories are objects, and None is missing; doubles have NaN.
        """
        values = [
            column.values_of(units[:, j], uniforms[:, j]) for j, column in enumerate(self.columns)
        ]
        for name, condition in (given or {}).items():
            j = self.names.index(name)
            values[j] = self.columns[j].conditioned(values[j], units[:, j], condition)
        return values

    def intervals(self, name: Any, condition: Any) -> list[tuple[int, int]]:
        """Return which units of a column a condition allows.

        Parameters
        ----------
        name : str or int
            Of the column.
        condition : object
            A value; a list of values; a tuple (low, high) for numbers from low to high; None for
            missing ones.

        Returns
        -------
        list of (int, int)
            Half-open intervals.

        Raises
        ------
        ValueError
            If there is no such column, or it never has such values.
        """
        if name not in self.names:
            raise ValueError(f"there is no column {shown(name)} in the schema.")
        return self.columns[self.names.index(name)].intervals(condition)

    def plain(self) -> dict:
        """Return the declaration as JSON holds it; `schema_from_plain` reads it."""
        target = None if self.target is None else self.columns[self.target].name
        return {"columns": [column.plain() for column in self.columns], "target": target}


def read_schema(schema: Any, target: Any = None) -> TableSchema:
    """Return what a table is declared to hold, or raise.

    Parameters
    ----------
    schema : mapping of str or int to declaration
        Public. What the columns hold, by name: ``range(low, high + 1)`` for integers,
        ``(low, high)`` for real numbers, a list of categories; or a dict, for more:
        ``{"bounds": (low, high), "integer": False}``, ``{"levels": [...]}`` for categories in an
        order, ``{"categories": [...]}``, each with ``"missing": True`` where values may be missing.
    target : str or int, default=None
        Name of a column of categories or levels, on which all others are modelled to depend.

    Returns
    -------
    TableSchema
        The same, in one form.

    Raises
    ------
    ValueError
        If it is no such mapping.

    Examples
    --------
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({
    ...     "age": range(17, 91), "wage": (0.0, 100.0),
    ...     "grade": {"levels": ["low", "mid", "high"], "missing": True}, "sex": ["F", "M"],
    ... }, target="sex")
    >>> [(column.name, column.kind, column.n_units) for column in schema.columns]
    [('age', 'numeric', 74), ('wage', 'numeric', 1048578), ('grade', 'ordinal', 4), ('sex', 'nominal', 2)]
    >>> schema.n_classes
    2
    """  # noqa: E501
    if not isinstance(schema, Mapping) or not schema:
        raise ValueError(
            "schema must be a dict that declares what each column of the table holds: "
            + HOW_TO_DECLARE
            + "."
        )
    columns = tuple(read_column(name, declared) for name, declared in schema.items())
    if target is None:
        return TableSchema(columns)
    names = [column.name for column in columns]
    if not isinstance(target, str | int) or target not in names:
        raise ValueError(f"target must be a column of the schema, got {shown(target)}.")
    position = names.index(target)
    if columns[position].kind == NUMERIC:
        raise ValueError(
            f"the target {target!r} must be declared with categories or levels. A column of numbers"
            " may be conditioned on without being the target."
        )
    if len(columns) == 1:
        raise ValueError("the schema must declare another column beside the target.")
    return TableSchema(columns, position)


def schema_from_plain(plain: Mapping) -> TableSchema:
    """Return the schema of its plain form.

    Parameters
    ----------
    plain : mapping
        Of `TableSchema.plain`.

    Returns
    -------
    TableSchema
        The schema.

    Examples
    --------
    >>> from skdpot.tables import read_schema, schema_from_plain
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> schema_from_plain(schema.plain()) == schema
    True
    """
    columns = {
        column["name"]: {key: value for key, value in column.items() if key != "name"}
        for column in plain["columns"]
    }
    return read_schema(columns, plain["target"])


def read_columns(X: Any, schema: TableSchema) -> list[np.ndarray]:
    """Return the columns of a private table as `TableSchema.encode` takes them, or raise.

    The columns of a frame are found by their names; those of an array are in the order of the
    schema. Numeric ones are doubles, with NaN for missing values; others objects, with None. No
    value is quoted in what is raised.

    Examples
    --------
    >>> from skdpot.tables import read_columns, read_schema
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> read_columns([[30, "F"], [40, "M"]], schema)
    [array([30., 40.]), array(['F', 'M'], dtype=object)]
    """
    table, names = Table(X), schema.names
    places = list(range(len(names)))
    if table.container != "array":
        _check_names(table.names, names)
        places = [table.names.index(name) for name in names]
    elif len(table.X.shape) != 2 or table.X.shape[1] != len(names):
        raise ValueError(
            f"the table must have the {len(names)} columns of the schema, got an array of shape "
            f"{table.X.shape}."
        )
    if not len(table):
        raise ValueError("the table has no records (0 rows); at least 1 is needed.")
    values = [table.column(place) for place in places]
    return [
        numbers_in(of_column, column) if column.kind == NUMERIC else labels_in(of_column)
        for of_column, column in zip(values, schema.columns, strict=True)
    ]


def write_table(container: str, schema: TableSchema, values: Sequence[np.ndarray]) -> Any:
    """Return columns of `TableSchema.decode` as a table, in "pandas", "polars" or an "array".

    Integers that may be missing have the nullable type of pandas. An array is of doubles where all
    columns are numeric, and of objects otherwise.

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
    columns = list(values)
    if container == "array" and all(column.kind == NUMERIC for column in schema.columns):
        columns = [np.asarray(column, dtype=np.float64) for column in columns]
    types = ["Int64" if column.may_lack_integers else None for column in schema.columns]
    return make_table(container, schema.names, columns, types)


def _check_names(names: list, declared: list) -> None:
    """Raise where the columns of a frame are not the declared ones, each once."""
    # Others may be private values, as where a table was turned on its side.
    if not all(isinstance(name, str | Integral) for name in names):
        raise TypeError("names of columns must be text or integers; those of X are not.")
    wrong = [f"column {name!r} is there twice" for name in declared if names.count(name) > 1]
    extra = [name for name in names if name not in declared]
    if extra:
        wrong.append(
            f"the table has columns that the schema does not declare: {extra}. Declare them, or "
            "leave them out; identifiers always"
        )
    lacking = [name for name in declared if name not in names]
    if lacking:
        wrong.append(
            f"the table lacks the columns {lacking} of the schema. Add them to the table, or "
            "declare a schema without them"
        )
    if wrong:
        raise ValueError("; ".join(wrong) + ".")
