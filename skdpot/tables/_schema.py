"""The schema of a table: the declarations of its columns, and its values as integers.

The declaration is public; it must not be learned from private data.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdpot.privacy.quotes import shown
from skdpot.tables._column import LABEL_KEYS, NUMERIC, Column
from skdpot.tables._containers import Table
from skdpot.tables._dates import DATE, TEXT
from skdpot.tables._declared_columns import HOW_TO_DECLARE, names_type, read_column
from skdpot.tables._reading import labels_of_other_types
from skdpot.tables._schema_files import columns_in, refuse_gaps
from skdpot.tables._types import type_in_frame
from skdpot.tables._unlearned import Unlearned


@dataclass(frozen=True)
class TableSchema:
    """The declaration of a table: its columns, and its target.

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
    def computed(self) -> list[Column]:
        """Return the columns that are computed from others."""
        return [column for _, column in self.others if isinstance(column, Column)]

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

        These are all columns but the target. A numeric target is included, since its class gives
        only its band.
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
        """Return the schema with types for frames, except where users declared a type."""
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
        # Computed columns are not read: their values would decide about their types.
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
            not declared. Private tables are read by `read_units`, where no value raises.
        """
        units, problems = self.units_and_problems(values)
        refuse(problems)
        return units

    def units_and_problems(self, values: Sequence[np.ndarray]) -> tuple[np.ndarray, list[str]]:
        """Return the units of a table's values, and the errors in them.

        Units of values without a place are below 0.
        """
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
        """Return the values of units as numbers: doubles, or units of labels.

        `uniforms`, from 0 to 1, place real numbers within their units. The units satisfy the
        conditions `given`, by the name of the column, as in `intervals`. A real number shares its
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
            If the column is unknown, or never has such values.
        """
        if name not in self.names:
            raise ValueError(f"there is no column {shown(name)} in the schema.")
        return self.columns[self.names.index(name)].intervals(condition)

    def plain(self) -> dict:
        """Return the declaration in the form of JSON; `schema_from_plain` reads it."""
        target = None if self.target is None else self.columns[self.target].name
        return {"columns": [column.plain() for column in self.declared], "target": target}


def read_schema(schema: Any, target: Any = None) -> TableSchema:
    """Return the declaration of a table, or raise.

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


def refuse(problems: list[str]) -> None:
    """Raise with all problems of a table, if there are any."""
    if problems:
        raise ValueError("; ".join(problems) + ".")
