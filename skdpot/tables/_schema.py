"""The schema of a table: the declarations of its columns, and its values as integers.

The declaration is public; it must not be learned from private data.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.privacy.quotes import shown
from skdpot.tables._column import LABEL_KEYS, NUMERIC, Column
from skdpot.tables._containers import Table, exact_digits, labels_in
from skdpot.tables._dates import DATE, TEXT
from skdpot.tables._declarations import objects
from skdpot.tables._declared_columns import HOW_TO_DECLARE, names_type, read_column
from skdpot.tables._frames import as_array, make_table
from skdpot.tables._reading import labels_of_other_types, numbers_in
from skdpot.tables._schema_files import columns_in, refuse_gaps
from skdpot.tables._types import type_in_frame, typed_values
from skdpot.tables._unlearned import Constant, Identifier, Unlearned


@dataclass(frozen=True)
class TableSchema:
    """What a table is declared to hold.

    Attributes
    ----------
    columns : tuple of Column
        The columns that are read and learned, in the order of the declaration.
    target : int or None
        Position of the target among these columns.
    others : tuple of (int, Identifier, Constant or Column)
        Columns that are not learned, in order, each with its position among all that are declared;
        one of the last kind is computed from others.
    """

    columns: tuple[Column, ...]
    target: int | None = None
    others: tuple[tuple[int, Unlearned], ...] = ()

    @property
    def names(self) -> list:
        """Return the names of the learned columns."""
        return [column.name for column in self.columns]

    @property
    def declared(self) -> list[Unlearned]:
        """Return all declared columns, learned or not."""
        declared: list[Unlearned] = list(self.columns)
        for place, column in self.others:
            declared.insert(place, column)
        return declared

    @property
    def n_classes(self) -> int:
        """Return the number of classes: 1 without a target."""
        if self.target is None:
            return 1
        target = self.columns[self.target]
        return len(target.band_starts()) if self.has_bands else target.n_units

    @property
    def has_bands(self) -> bool:
        """Tell whether the target is a number, whose classes are public bands."""
        return self.target is not None and self.columns[self.target].kind == NUMERIC

    @property
    def features(self) -> list[int]:
        """Return the positions of the columns that depend on the class.

        These are all columns but the target, and the target too if it is a number, since its class
        only tells its band.
        """
        return [j for j in range(len(self.columns)) if j != self.target or self.has_bands]

    def classes_of(self, units: np.ndarray) -> np.ndarray:
        """Return the classes of the target's units."""
        target = None if self.target is None else self.columns[self.target]
        if target is None or target.kind != NUMERIC:
            return units
        return np.searchsorted(target.band_starts(), units, side="right") - 1

    def without_target(self) -> "TableSchema":
        """Return the schema without the target, which is the last column."""
        return TableSchema(self.columns[:-1], None, self.others)

    def computing(self, names: Iterable) -> "TableSchema":
        """Return the schema in which the columns with these names are computed, and not learned."""
        target = None if self.target is None else self.names[self.target]
        return _schema_of(self.declared, target, set(names))

    def typed(self, table: Table, declared: Any = None) -> "TableSchema":
        """Return the schema with types for frames, but for those that users declared."""
        if table.container == "array":
            return self
        dtypes = {name: table.dtype(place) for place, name in enumerate(table.names)}
        kept = [name for name, one in columns_in(declared)[0].items() if names_type(name, one)]

        def typed(column: Any, dtype_in_frame: Any) -> Any:
            if not isinstance(column, Column):
                return column
            dtype = type_in_frame(dtype_in_frame, column)
            # Dates always have a type, from how their bounds are written.
            taken = dtype and column.dtype in (None, TEXT, DATE) and column.name not in kept
            return replace(column, dtype=dtype) if taken else column

        columns = tuple(typed(column, dtypes.get(column.name)) for column in self.columns)
        # Computed columns are not read, and what they hold would decide about their types.
        others = tuple((place, typed(column, None)) for place, column in self.others)
        return replace(self, columns=columns, others=others)

    def encode(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the units of a table's values, or raise if some are not declared.

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
        units, problems = self._encoded(values)
        _refuse(problems)
        return units

    def _encoded(self, values: Sequence[np.ndarray]) -> tuple[np.ndarray, list[str]]:
        """Return the units of a table's values, and the errors in them."""
        units = np.empty((len(values[0]), len(self.columns)), dtype=np.int64, order="F")
        problems = []
        for j, column in enumerate(self.columns):
            units[:, j] = column.units(values[j])
            if column.missing:
                problems += labels_of_other_types(column, values[j], units[:, j])
                units[units[:, j] < 0, j] = column.n_known
                continue
            if (units[:, j] == -1).any():
                problems.append(
                    f"column {column.name!r} has missing values, which its schema does not declare:"
                    " declare 'missing': True, or leave these records out"
                )
            if (units[:, j] == -2).any():
                problems.append(
                    f"column {column.name!r} has values that are not among its declared "
                    f"{LABEL_KEYS[column.kind]}: declare all that there may be (the number 1 "
                    "is not the text '1'), or 'missing': True, which counts others as missing"
                )
        return units, problems

    def plain_values(
        self, units: np.ndarray, uniforms: np.ndarray, given: Mapping[Any, Any] | None = None
    ) -> list[np.ndarray]:
        """Return the values of units in the form for rules: doubles, or units of labels.

        `uniforms`, from 0 to 1, place real numbers within their units. `given` are conditions by
        the name of the column, as of `intervals`, that the units are in: a real number shares its
        unit with others, which a condition may exclude.
        """
        values = [
            column.plain_values(units[:, j], uniforms[:, j])
            for j, column in enumerate(self.columns)
        ]
        for name, condition in (given or {}).items():
            j = self.names.index(name)
            values[j] = self.columns[j].conditioned(values[j], units[:, j], condition)
        return values

    def presented(self, plain: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return values of `plain_values` for users, as `Column.presented`."""
        return [
            column.presented(values) for column, values in zip(self.columns, plain, strict=True)
        ]

    def intervals(self, name: Any, condition: Any) -> list[tuple[int, int]]:
        """Return the units of a column that a condition allows.

        Parameters
        ----------
        name : str or int
            The name of the column.
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
        """Return the declaration in the form of JSON; `schema_from_plain` reads it."""
        target = None if self.target is None else self.columns[self.target].name
        return {"columns": [column.plain() for column in self.declared], "target": target}


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
        Name of a column on which all others are modelled to depend: numbers by public bands.

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
    columns, file_target = columns_in(schema)
    if not columns:
        raise ValueError(
            "schema must be a dict that declares what each column of the table holds, or JSON or "
            "the path of a JSON file with one: " + HOW_TO_DECLARE + "."
        )
    refuse_gaps(columns)
    target = file_target if target is None else target
    declared = [read_column(name, declaration) for name, declaration in columns.items()]
    return _schema_of(declared, target, set())


def _schema_of(declared: list[Unlearned], target: Any, computed: set) -> TableSchema:
    """Return the schema of columns, some of which may be computed, or raise."""
    learned: list[Column] = []
    others: list[tuple[int, Unlearned]] = []
    for place, column in enumerate(declared):
        if isinstance(column, Column) and column.name not in computed:
            learned.append(column)
        else:
            others.append((place, column))
    if not learned:
        raise ValueError("the schema must declare a column that is learned.")
    names = [column.name for column in learned]
    if target is None:
        return TableSchema(tuple(learned), None, tuple(others))
    if not isinstance(target, str | int) or target not in names:
        raise ValueError(f"target must be a column of the schema, got {shown(target)}.")
    position = names.index(target)
    if len(learned) == 1:
        raise ValueError("the schema must declare another column beside the target.")
    return TableSchema(tuple(learned), position, tuple(others))


def schema_from_plain(plain: Mapping) -> TableSchema:
    """Return the schema with this plain form.

    Examples
    --------
    >>> from skdpot.tables import read_schema, schema_from_plain
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> schema_from_plain(schema.plain()) == schema
    True
    """
    return read_schema(dict(plain))


def read_units(X: Any, schema: TableSchema) -> np.ndarray:
    """Return the units of a private table, or raise with all violations of the declaration.

    Examples
    --------
    >>> from skdpot.tables import read_schema, read_units
    >>> read_units([[30, "F"], [40, "M"]], read_schema({"age": range(17, 91), "sex": ["F", "M"]}))
    array([[13,  0],
           [23,  1]])
    """
    values, problems = _values_in(Table(X), schema)
    units, unit_problems = schema._encoded(values)
    _refuse([*problems, *unit_problems])
    return units


def read_columns(X: Any, schema: TableSchema) -> list[np.ndarray]:
    """Return the columns of a private table in the form for `TableSchema.encode`, or raise.

    The columns of a frame are found by their names; those of an array are in the order of the
    schema. Numeric ones are doubles, with NaN for missing values; others are objects, with None.
    Errors quote no value.

    Examples
    --------
    >>> from skdpot.tables import read_columns, read_schema
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> read_columns([[30, "F"], [40, "M"]], schema)
    [array([30., 40.]), array(['F', 'M'], dtype=object)]
    """
    values, problems = _values_in(Table(X), schema)
    _refuse(problems)
    return values


def _values_in(table: Table, schema: TableSchema) -> tuple[list[np.ndarray], list[str]]:
    """Return the learned columns of a private table, and the errors in them; or raise."""
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
        if column.kind != NUMERIC:
            values.append(labels_in(table.column(place)))
            problems += _mistaken(table, place, column)
            continue
        numbers, problem = numbers_in(table, place, column)
        values.append(numbers)
        problems += problem
    return values, problems


def _mistaken(table: Table, place: int, column: Column) -> list[str]:
    """Return what is wrong with floating-point numbers that stand for several labels.

    One missing value makes them of integers in pandas, and rounds the labels of other records.
    """
    least = 2 ** exact_digits(table.series(place))
    if not any(type(label) is int and abs(label) >= least for label in column.values):
        return []
    if not any(type(v) is float and abs(v) >= least for v in table.column(place).tolist()):
        return []
    return [
        f"column {column.name!r} has floating-point numbers, and declares integers that these do "
        "not tell apart: read it as text, or as integers that may be missing (Int64)"
    ]


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ValueError("; ".join(problems) + ".")


def values_in(X: Any, schema: TableSchema) -> np.ndarray:
    """Return the declared columns of a private table, in order, as an array of objects.

    Raises as `read_columns` does.

    Examples
    --------
    >>> from skdpot.tables import read_schema, values_in
    >>> values_in([[30, "F"], [40, "M"]], read_schema({"age": range(17, 91), "sex": ["F", "M"]}))
    array([[30, 'F'],
           [40, 'M']], dtype=object)
    """
    read_columns(X, schema)
    table = Table(X)
    declared = [column.name for column in schema.declared]
    names = declared if table.container == "array" else table.names
    return as_array([objects(table.column(names.index(name))) for name in declared])


def write_table(
    container: str, schema: TableSchema, values: Sequence[np.ndarray],
    computed: Mapping[Any, np.ndarray] | None = None,
) -> Any:  # fmt: skip
    """Return columns of `TableSchema.presented` as a table, in "pandas", "polars" or an "array".

    `computed` are the columns that rules compute. Columns have their declared types; integers that
    may be missing have the nullable type of pandas. An array has doubles if all columns are
    numeric, and objects otherwise.

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
