"""The schema of a table: the declarations of its columns, and tables as they are declared.

The declaration is public; it must not be learned from private data.
"""

import json
import math
import os
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.privacy.checks import to_display
from skdpot.tables import _column
from skdpot.tables._frames import Table, categories_type, make_table

# Placeholder of a template for values that must be declared.
FILL_IN = "FILL IN"
HOW_TO_DECLARE = (
    "range(low, high + 1) for integers, (low, high) for real numbers or dates, a list of "
    "categories, or a dict with 'bounds' (and 'integer', 'scale' or 'unit'), 'levels' or "
    "'categories' (and 'other'), and with 'missing': True where values may be missing"
)
# Optional keys of a declaration, by the key that says its kind. Users do not declare a dtype: it is
# that of a frame's labels, in the plain form of its schema.
_KEYS: dict[str, set[str]] = {
    "bounds": {"integer", "scale", "unit", "missing"},
    "levels": {"missing", "dtype"},
    "categories": {"missing", "dtype", "other"},
}


@dataclass(frozen=True)
class TableSchema:
    """The declaration of a table: its columns, and its target.

    Attributes
    ----------
    columns : tuple of Column
        The columns that are read and learned, in the order of the declaration.
    target : int or None
        Position of the target among these columns.
    others : tuple of (int, Column)
        Columns that are computed from others and not learned, in order, each with its position
        among all that are declared.
    """

    columns: tuple[_column.Column, ...]
    target: int | None = None
    others: tuple[tuple[int, _column.Column], ...] = ()

    @property
    def names(self) -> list:
        """Return the names of the learned columns."""
        return [column.name for column in self.columns]

    @property
    def declared(self) -> list[_column.Column]:
        """Return all declared columns, learned or not."""
        declared = list(self.columns)
        for position, column in self.others:
            declared.insert(position, column)
        return declared

    @property
    def computed(self) -> list[_column.Column]:
        """Return the columns that are computed from others."""
        return [column for _, column in self.others]

    @property
    def n_classes(self) -> int:
        """Return the number of classes: 1 without a target."""
        if self.target is None:
            return 1
        target = self.columns[self.target]
        return len(target.band_starts()) if self.has_bands else target.n_codes

    @property
    def has_bands(self) -> bool:
        """Tell whether the target is a number, whose classes are public bands."""
        return self.target is not None and self.columns[self.target].kind == _column.NUMERIC

    @property
    def features(self) -> list[int]:
        """Return the positions of the columns that depend on the class.

        These are all columns but the target. A numeric target is included, since its class gives
        only its band.
        """
        return [j for j in range(len(self.columns)) if j != self.target or self.has_bands]

    def classes_of(self, codes: np.ndarray) -> np.ndarray:
        """Return the classes of the target's codes."""
        if self.target is None or not self.has_bands:
            return codes
        return np.searchsorted(self.columns[self.target].band_starts(), codes, side="right") - 1

    def computing(self, names: Iterable) -> "TableSchema":
        """Return the schema in which the columns with these names are computed, and not learned."""
        target = None if self.target is None else self.names[self.target]
        return _schema_of(self.declared, target, set(names))

    def typed(self, table: Table) -> "TableSchema":
        """Return the schema with the types of a frame's labels.

        A column takes how text is stored. Types of numbers, dates and truth values follow from the
        declaration, since a single value can change them. A missing value turns integers into
        doubles, as does the label 1.0. A large number makes longer integers, and 1 turns truth
        values into objects. pandas leaves all dates of a file as text if one of them is written in
        another way, such as with a time or another zone. An undeclared label changes the type where
        such labels count as missing; then only the type of categories is taken, which the maker of
        the frame asked for. Computed columns are not read: their values would decide about their
        types.
        """
        if table.container == "array":
            return self

        def typed(column: _column.Column) -> _column.Column:
            # A target may lie beside the table.
            if column.kind == _column.NUMERIC or column.name not in table.names:
                return column
            own = table.dtype(table.names.index(column.name))
            # Types of polars, which have the names of pandas in a schema.
            names = {"Categorical": "category", "Enum": "category", "String": "string"}
            name = names.get(type(own).__name__, str(own))
            text = all(isinstance(label, str) for label in column.values) and not column.missing
            if hasattr(own, "ordered") or name == "category":
                return replace(column, dtype="category")
            # No single value can have caused this type.
            return replace(column, dtype="string") if name == "string" and text else column

        return replace(self, columns=tuple(map(typed, self.columns)))

    def codes_and_problems(self, values: Sequence[np.ndarray]) -> tuple[np.ndarray, list[str]]:
        """Return the codes of a table's values, and the errors in them.

        `values` are private, a column each, as `Column.codes` reads them. Where missing ones are
        not declared, those that are missing, or no declared category, have codes below 0.
        """
        codes = np.empty((len(values[0]), len(self.columns)), dtype=np.int64, order="F")
        problems = []
        for j, column in enumerate(self.columns):
            codes[:, j] = column.codes(values[j])
            if column.missing:
                # The last code is that of missing values; undeclared labels count as missing.
                codes[codes[:, j] < 0, j] = column.n_known
                continue
            if (codes[:, j] == -1).any():
                problems.append(
                    f"column {column.name!r} has missing values, which its schema does not declare:"
                    " declare 'missing': True, or leave these records out"
                )
            if (codes[:, j] == -2).any():
                problems.append(
                    f"column {column.name!r} has values that are not among its declared "
                    f"{_column.LABEL_KEYS[column.kind]}: declare all that there may be (the number "
                    "1 is not the text '1'), or 'missing': True, which counts others as missing"
                )
        return codes, problems

    def plain_values(
        self, codes: np.ndarray, uniforms: np.ndarray, given: Mapping[Any, Any] | None = None
    ) -> list[np.ndarray]:
        """Return the values of codes as numbers: doubles, or codes of labels.

        `uniforms`, from 0 to 1, place real numbers within their cells. The codes satisfy the
        conditions `given`, by the name of the column, as in `intervals`. A real number shares its
        code with others, which a condition may exclude.
        """
        values = list(map(_column.Column.plain_values, self.columns, codes.T, uniforms.T))
        for name, condition in (given or {}).items():
            j = self.names.index(name)
            values[j] = self.columns[j].conditioned(values[j], codes[:, j], condition)
        return values

    def presented(self, plain: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return values of `plain_values` for users, as `Column.presented`."""
        return [column.presented(each) for column, each in zip(self.columns, plain, strict=True)]

    def intervals(self, name: Any, condition: Any) -> list[tuple[int, int]]:
        """Return the codes of a column that a condition allows.

        Parameters
        ----------
        name : str or int
            The name of the column, which is learned.
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
            If the column never has such values.
        """
        return self.columns[self.names.index(name)].intervals(condition)

    def plain(self) -> dict:
        """Return the declaration in the form of JSON; `read_schema` reads it."""
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
        All undeclared labels are read as the category ``"other"`` of a dict, if it names one.
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
    >>> [(column.name, column.kind, column.n_codes) for column in schema.columns]
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
    # A template that is filled in by halves must not be taken for a schema.
    gaps = [name for name, declared in columns.items() if _has_gap(declared)]
    if gaps:
        raise ValueError(
            f"the schema has {FILL_IN!r} for the columns {gaps}: write what is publicly known of "
            "them. It may not be learned from the table."
        )
    target = file_target if target is None else target
    declared = [_read_column(name, declaration) for name, declaration in columns.items()]
    return _schema_of(declared, target, set())


def _schema_of(declared: list[_column.Column], target: Any, computed: set) -> TableSchema:
    """Return the schema of columns, some of which may be computed, or raise."""
    learned = [column for column in declared if column.name not in computed]
    others = [(j, column) for j, column in enumerate(declared) if column.name in computed]
    if not learned:
        raise ValueError("the schema must declare a column that is learned.")
    position = None
    if target is not None:
        names = [column.name for column in learned]
        if not isinstance(target, str | int) or target not in names:
            raise ValueError(f"target must be a column of the schema, got {to_display(target)}.")
        if len(learned) == 1:
            raise ValueError("the schema must declare another column beside the target.")
        position = names.index(target)
    return TableSchema(tuple(learned), position, tuple(others))


def write_table(
    container: str, schema: TableSchema, values: list[np.ndarray], computed: Mapping | None = None
) -> Any:
    """Return columns of `TableSchema.presented` as a table in one of `CONTAINERS`.

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
    typed = (_typed(container, column, named[column.name]) for column in schema.declared)
    columns, dtypes = map(list, zip(*typed, strict=True))
    table = make_table(container, [column.name for column in schema.declared], columns, dtypes)
    # Integers that may be missing are objects elsewhere.
    are_numbers = all(one.kind == _column.NUMERIC and one.unit is None for one in schema.declared)
    return np.asarray(table, np.float64) if container == "array" and are_numbers else table


def _typed(container: str, column: _column.Column, values: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return values of `Column.presented`, and the type that they have in a frame."""
    if container == "array" and column.unit is not None:
        # Dates of Python; NaT becomes None.
        values = _column.objects(values.astype("M8[D]" if column.unit == "D" else "M8[us]"))
    if container == "array":
        return values, None
    if column.unit is not None:
        return values.astype("M8[us]"), None
    if column.dtype == "category":
        return values, categories_type(container, column.values, column.kind == _column.ORDINAL)
    if column.dtype is None and column.missing:
        # Integers and truth values that may be missing have types of pandas of their own.
        kinds = set(map(type, column.values))
        if column.integer or kinds in ({int}, {bool}):
            return values, "boolean" if kinds == {bool} else "Int64"
    return values, column.dtype


def columns_in(schema: Any) -> tuple[dict[Any, Any], Any]:
    """Return a schema's declarations by name, and its target if it names one, or raise.

    Parameters
    ----------
    schema : mapping, str or path-like
        Declarations by name; the result of `TableSchema.plain`; JSON of either; or the path of a
        file with that.

    Examples
    --------
    >>> from skdpot.tables._schema import columns_in
    >>> columns_in('{"sex": ["F", "M"]}')
    ({'sex': ['F', 'M']}, None)
    """
    if isinstance(schema, str | os.PathLike):
        text, source = str(schema), "the text"
        try:
            if not text.lstrip().startswith(("{", "[")):
                source = f"the file {text!r}"
                # Editors of Windows begin a file with a mark.
                text = Path(schema).read_text(encoding="utf-8-sig")
            schema = json.loads(text, object_pairs_hook=_each_once)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"schema must be JSON, but {source} is not: {error}. `python -m skdpot template` "
                "writes one to be filled in, and schema='auto' of a generator finds one."
            ) from None
    if not isinstance(schema, Mapping):
        return {}, None
    # A number declares no column, so that one may have this name, too.
    if isinstance(form := schema.get("format"), int):
        if form != 1:
            raise ValueError(f"the schema is of format {form}; this version of skdpot reads 1.")
        schema = {name: declared for name, declared in schema.items() if name != "format"}
    listed = schema.get("columns")
    # A list of columns is the plain form of a schema, and not the declaration of a column.
    is_list = isinstance(listed, list | tuple) and len(listed) > 0
    if not is_list or not all(isinstance(one, Mapping) and "name" in one for one in listed):
        return dict(schema), None
    columns = {one["name"]: {key: one[key] for key in one if key != "name"} for one in listed}
    if len(columns) < len(listed):
        raise ValueError("the schema declares a column twice.")
    return columns, schema.get("target")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(named := dict(pairs)) < len(pairs):
        raise ValueError("it has a name twice")
    return named


def _has_gap(declared: Any) -> bool:
    parts = declared.values() if isinstance(declared, Mapping) else declared
    if isinstance(declared, Mapping | list | tuple):
        return any(map(_has_gap, parts))
    return isinstance(declared, str) and declared == FILL_IN


def _read_column(name: Any, declared: Any) -> _column.Column:
    """Return one column's declaration, or raise."""
    # JSON and frames have no other names.
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ValueError(f"columns have names of text, or numbers; the schema has {name!r}.")
    in_full = _as_mapping(name, declared)
    keys = set(in_full)
    kinds = keys & _KEYS.keys()
    missing, dtype = in_full.get("missing", False), in_full.get("dtype")
    is_wrong = len(kinds) != 1 or keys - kinds - _KEYS[min(kinds)]
    if is_wrong or not isinstance(missing, bool):
        unknown = keys - _KEYS.keys() - set().union(*_KEYS.values())
        why = f"there is no key {to_display(min(unknown, key=str))}" if unknown else ""
        raise _wrong(name, declared, why)
    if dtype not in (None, "category", "string"):
        raise _wrong(name, declared, "a schema has no dtype: convert the drawn column")
    key = min(kinds)
    if key == "bounds":
        return _column_of_bounds(name, in_full, missing)
    values, other = in_full[key], in_full.get("other")
    if isinstance(values, list) and any(map(_column.is_missing, values)):
        why = f"{key} are words or numbers, none of them missing (None or NaN)"
        raise _wrong(name, values, why)
    what = f"{key} of column {name!r}"
    labels = _column.declared_labels(values, what)[0].tolist()
    if not labels or not all(map(_is_label, labels)):
        why = f"{what} must be a list of words or numbers (a time of day is text, as '09:30:00')"
        raise ValueError(f"{why}, got {_declared(values)}.")
    if other is not None and other not in labels:
        raise _wrong(name, declared, "'other' names one of the categories")
    kind = _column.ORDINAL if key == "levels" else _column.NOMINAL
    return _column.Column(name, kind, missing, values=tuple(labels), dtype=dtype, other=other)


def _as_mapping(name: Any, declared: Any) -> Mapping:
    """Return a declaration in its dict form, or raise."""
    if isinstance(declared, Mapping):
        return declared
    if isinstance(declared, range):
        if len(declared) < 2 or declared.step != 1:
            raise _wrong(name, declared, "a range has the step 1, and at least two integers")
        return {"bounds": (declared[0], declared[-1]), "integer": True}
    if isinstance(declared, tuple):
        words = [one for one in declared if isinstance(one, str) and not _column.is_date(one)]
        like_dates = [word for word in words if re.match(r"\d+[-/.]\d+[-/.]\d+", word)]
        if like_dates or 0 < len(words) < len(declared):
            raise _wrong(name, declared, f"{(like_dates or words)[0]!r} is no date (YYYY-MM-DD)")
        if words:
            raise _wrong(name, declared, "categories are a list, not a tuple")
        return {"bounds": declared}
    if isinstance(declared, list | np.ndarray):
        # Those who mean bounds write lists, too; codes of two categories are mostly 0, 1 or 1, 2.
        is_pair = len(declared) == 2 and all(isinstance(end, Real) for end in declared)
        if is_pair and (isinstance(declared[0], float) or declared[1] - declared[0] > 1):
            raise ValueError(
                f"column {name!r} is declared as {_declared(declared)}, a list of two categories: "
                f"bounds are {tuple(declared)}; for categories, write {{'categories': [...]}}."
            )
        return {"categories": declared}
    raise _wrong(name, declared)


def _column_of_bounds(name: str | int, declared: Mapping, missing: bool) -> _column.Column:
    """Return the column of numbers or dates with these bounds, or raise."""
    bounds, unit = declared["bounds"], declared.get("unit")
    integer, scale = declared.get("integer", False), declared.get("scale", _column.LINEAR)
    ends = list(bounds) if isinstance(bounds, tuple | list) else []
    if not isinstance(integer, bool) or scale not in (_column.LINEAR, _column.LOG):
        raise _wrong(name, declared)
    are_dates = len(ends) == 2 and all(map(_column.is_date, ends))
    if unit is None and are_dates:
        # A time of day in a bound says that times matter.
        unit = "s" if any(map(_column.says_time, ends)) else "D"
    if unit is not None:
        if str(unit) not in _column.UNITS or {"integer", "scale"} & declared.keys():
            raise _wrong(name, declared, "dates have a unit 'D', 'h', 'min' or 's', and no scale")
        if not are_dates:
            raise _wrong(name, declared, "a unit is that of dates")
        integer = True
        ends = [_column.date_number(ends[0], unit), _column.last_number(ends[1], unit)]
    # Integers up to this magnitude, and differences of two of them, are doubles.
    max_magnitude = 2**51 if integer else _column.LARGEST_BOUND
    numbers = len(ends) == 2 and all(isinstance(end, Real) for end in ends)
    whole = not integer or (numbers and all(end % 1 == 0 for end in ends))
    if not (numbers and whole and -max_magnitude <= ends[0] < ends[1] <= max_magnitude):
        why = "bounds of integers are whole numbers" if numbers and not whole else ""
        why = "low must be below high" if numbers and not ends[0] < ends[1] else why
        raise _wrong(name, bounds, why)
    low, high = (int(end) if integer else float(end) for end in ends)
    return _column.Column(name, _column.NUMERIC, missing, low, high, integer, scale, unit)


def _is_label(label: Any) -> bool:
    return isinstance(label, str | int) or (isinstance(label, float) and math.isfinite(label))


def _wrong(name: Any, declared: Any, why: str = "") -> ValueError:
    """Return the error about a declaration."""
    got = _declared(declared) + (f": {why}" if why else "")
    return ValueError(f"column {name!r} must be declared as {HOW_TO_DECLARE}; got {got}.")


def _declared(declared: Any) -> str:
    """Return a declaration as text; for a frame's column, which is private, only its type."""
    is_one = isinstance(declared, list | tuple | dict | range)
    return reprlib.repr(declared) if is_one else to_display(declared)
