"""What the columns of a table are declared to hold, and their values as whole numbers.

A value becomes the number of its unit: the position of a category or of a level, or of a cell of
the declared bounds, the narrowest that is ever told apart. A missing value has the unit after the
last. The declaration is public; it may not be learned from private data.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot._declarations import declared_labels, label_codes, objects

# Real numbers between the bounds have so many cells. Each bound is a unit of its own: values from
# beyond are moved there, and many may be there anyway.
_REAL_CELLS = 2**20
# Integers of this magnitude, and differences of two of them, are doubles.
_LARGEST_INTEGER = 2**51
_LARGEST_REAL = 1e150
_HOW = (
    "range(low, high + 1) for integers, (low, high) for real numbers, a list of categories, or a "
    "dict with 'bounds' (and 'integer'), 'levels' or 'categories', and with 'missing': True where "
    "values may be missing"
)


@dataclass(frozen=True)
class Column:
    """What one column holds.

    Attributes
    ----------
    name : str or int
        Of the column.
    kind : {"numeric", "ordinal", "nominal"}
        Numbers within bounds, levels in an order, or categories.
    missing : bool
        Whether a value may be missing.
    low, high : float
        Bounds of numbers; integers are integers.
    integer : bool
        Whether numbers are integers.
    values : tuple
        Levels or categories.
    """

    name: Any
    kind: str
    missing: bool
    low: float = 0
    high: float = 0
    integer: bool = False
    values: tuple = ()

    @property
    def n_known(self) -> int:
        """Return the number of units, without that of a missing value."""
        if self.kind != "numeric":
            return len(self.values)
        return int(self.high) - int(self.low) + 1 if self.integer else _REAL_CELLS + 2

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return self.n_known + self.missing

    def units(self, values: Any) -> np.ndarray:
        """Return the units of values: -1 for a missing one, and -2 for one that is not declared.

        Parameters
        ----------
        values : ndarray of shape (n,)
            Doubles of a numeric column, of which NaN is missing; otherwise objects.

        Returns
        -------
        ndarray of int64
            Each a function of its value alone.
        """
        if self.kind != "numeric":
            return _units_of_labels(values, self.values)
        with np.errstate(all="ignore"):
            if self.integer:
                units = np.rint(np.clip(values, self.low, self.high)) - self.low
            else:
                cells = np.floor((values - self.low) / (self.high - self.low) * _REAL_CELLS)
                units = 1 + np.clip(cells, 0, _REAL_CELLS - 1)
                units = np.where(values <= self.low, 0, units)
                units = np.where(values >= self.high, self.n_known - 1, units)
        return np.where(np.isnan(values), -1, np.nan_to_num(units)).astype(np.int64)

    def numbers(self, units: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the numbers of units of a numeric column, spread over their cells.

        Parameters
        ----------
        units : ndarray of int64
            Below `n_known`.
        uniforms : ndarray
            From 0 to 1: where in its cell a real number is.

        Returns
        -------
        ndarray
            Of int64 for integers, else of doubles within the bounds.
        """
        if self.integer:
            return int(self.low) + units
        between = np.clip((units - 1 + uniforms) / _REAL_CELLS, 0.0, 1.0)
        numbers = np.clip(self.low + between * (self.high - self.low), self.low, self.high)
        # Rounding may miss an end by a little.
        numbers[units == 0] = self.low
        numbers[units == self.n_known - 1] = self.high
        return numbers

    def plain(self) -> dict:
        """Return the declaration of this column, with its name, as JSON holds it."""
        declared: dict = {"name": self.name, "missing": self.missing}
        if self.kind == "numeric":
            return declared | {"bounds": [self.low, self.high], "integer": self.integer}
        return declared | {_LISTS[self.kind]: list(self.values)}


_LISTS = {"ordinal": "levels", "nominal": "categories"}


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
                    f"{_LISTS[column.kind]}: declare all that there may be, or 'missing': True, "
                    "which counts others as missing."
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
            _values(column, units[:, j], uniforms[:, j]) for j, column in enumerate(self.columns)
        ]
        for name, condition in (given or {}).items():
            j = self.names.index(name)
            if self.columns[j].kind == "numeric" and not self.columns[j].integer:
                values[j] = _conditioned(self.columns[j], values[j], units[:, j], condition)
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
            raise ValueError(f"there is no column {name!r} in the schema.")
        column = self.columns[self.names.index(name)]
        if isinstance(condition, tuple) and column.kind == "numeric":
            return [_number_interval(column, condition)]
        wanted = list(condition) if isinstance(condition, list | np.ndarray) else [condition]
        found = sorted({_unit_of(column, value) for value in wanted})
        if not found:
            raise ValueError(f"the condition on column {name!r} allows no value.")
        return [(unit, unit + 1) for unit in found]

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
    >>> from skdpot.generative._sketch.schema import read_schema
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
            "schema must be a dict that declares what each column of the table holds: " + _HOW + "."
        )
    columns = tuple(_read_column(name, declared) for name, declared in schema.items())
    if target is None:
        return TableSchema(columns)
    names = [column.name for column in columns]
    if target not in names:
        raise ValueError(f"target must be a column of the schema, got {target!r}.")
    position = names.index(target)
    if columns[position].kind == "numeric":
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
    >>> from skdpot.generative._sketch.schema import read_schema, schema_from_plain
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> schema_from_plain(schema.plain()) == schema
    True
    """
    columns = {
        column["name"]: {key: value for key, value in column.items() if key != "name"}
        for column in plain["columns"]
    }
    return read_schema(columns, plain["target"])


def _read_column(name: Any, declared: Any) -> Column:
    """Return one column's declaration, or raise."""
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ValueError(f"columns have names of text, or numbers; the schema has {name!r}.")
    if isinstance(declared, range):
        if len(declared) < 2 or declared.step != 1:
            raise ValueError(_wrong(name, declared))
        return _numeric(name, (declared[0], declared[-1]), True, False)
    if isinstance(declared, tuple):
        return _numeric(name, declared, False, False)
    if isinstance(declared, list | np.ndarray):
        declared = {"categories": declared}
    keys = set(declared) if isinstance(declared, Mapping) else set()
    kinds = keys & {"bounds", "levels", "categories"}
    allowed = kinds | {"missing"} | ({"integer"} if "bounds" in kinds else set())
    if len(kinds) != 1 or keys - allowed:
        raise ValueError(_wrong(name, declared))
    missing, integer = declared.get("missing", False), declared.get("integer", False)
    if not isinstance(missing, bool) or not isinstance(integer, bool):
        raise ValueError(_wrong(name, declared))
    if "bounds" in keys:
        return _numeric(name, declared["bounds"], integer, missing)
    if "levels" in keys:
        return _labelled(name, "ordinal", declared["levels"], missing)
    return _labelled(name, "nominal", declared["categories"], missing)


def _numeric(name: Any, bounds: Any, integer: bool, missing: bool) -> Column:
    kind, largest = (Integral, _LARGEST_INTEGER) if integer else (Real, _LARGEST_REAL)
    ends = list(bounds) if isinstance(bounds, tuple | list) else []
    numbers = len(ends) == 2 and all(isinstance(end, kind) for end in ends)
    if not numbers or not -largest <= ends[0] < ends[1] <= largest:
        raise ValueError(_wrong(name, bounds))
    low, high = (int(end) if integer else float(end) for end in ends)
    return Column(name, "numeric", missing, low=low, high=high, integer=integer)


def _labelled(name: Any, kind: str, values: Any, missing: bool) -> Column:
    try:
        labels = declared_labels(values, f"{_LISTS[kind]} of column {name!r}")[0].tolist()
    except TypeError as error:
        raise ValueError(_wrong(name, values)) from error
    if not labels or not all(
        isinstance(label, str | int) or (isinstance(label, float) and math.isfinite(label))
        for label in labels
    ):
        raise ValueError(
            f"{_LISTS[kind]} of column {name!r} must be a list of words or numbers, got {values!r}."
        )
    return Column(name, kind, missing, values=tuple(labels))


def _wrong(name: Any, declared: Any) -> str:
    return f"column {name!r} must be declared as {_HOW}; got {declared!r}."


def _units_of_labels(values: np.ndarray, labels: tuple) -> np.ndarray:
    """Return the positions of labels, -1 where a value is missing and -2 where it is none."""
    codes = label_codes(values, {label: i for i, label in enumerate(labels)})
    unknown = np.flatnonzero(codes < 0)
    codes[unknown] = [-1 if values[i] is None else -2 for i in unknown]
    return codes.astype(np.int64)


def _values(column: Column, units: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return the values of one column's units."""
    known = units < column.n_known
    if column.kind == "numeric":
        numbers = column.numbers(np.minimum(units, column.n_known - 1), uniforms)
        if not column.missing:
            return numbers
        if column.integer:
            numbers = numbers.astype(object)
        numbers[~known] = None if column.integer else np.nan
        return numbers
    labels = np.empty(column.n_units, dtype=object)
    labels[: column.n_known] = column.values
    return labels[units]


def _conditioned(column, numbers, units, condition):
    """Return real numbers that a condition allows, of units that it does."""
    if isinstance(condition, tuple):
        return np.clip(numbers, *condition)
    wanted = list(condition) if isinstance(condition, list | np.ndarray) else [condition]
    for value in wanted:
        numbers[units == _unit_of(column, value)] = math.nan if value is None else value
    return numbers


def _unit_of(column: Column, value: Any) -> int:
    """Return the unit of a value that a condition asks for, or raise."""
    unit = -2
    if value is None or (isinstance(value, float) and math.isnan(value)):
        unit = column.n_known if column.missing else -1
    elif column.kind != "numeric":
        unit = int(_units_of_labels(objects([value]), column.values)[0])
    elif _is_number(value) and column.low <= value <= column.high:
        unit = int(column.units(np.array([value], dtype=np.float64))[0])
    if unit >= 0:
        return unit
    raise ValueError(f"column {column.name!r} is not declared to hold {value!r}.")


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool)


def _number_interval(column: Column, bounds: tuple) -> tuple[int, int]:
    """Return the units from one number to another, or raise."""
    if len(bounds) != 2 or not all(map(_is_number, bounds)) or not bounds[0] <= bounds[1]:
        raise ValueError(
            f"a condition on a range of column {column.name!r} is (low, high), got {bounds!r}."
        )
    low, high = max(bounds[0], column.low), min(bounds[1], column.high)
    if column.integer and low <= high:
        low, high = math.ceil(low), math.floor(high)
    if low > high:
        raise ValueError(f"column {column.name!r} is not declared to hold numbers in {bounds!r}.")
    first, last = column.units(np.array([low, high], dtype=np.float64)).tolist()
    return first, last + 1
