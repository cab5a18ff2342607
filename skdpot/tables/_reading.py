"""Reading of private tables: columns as numbers and labels, kinds of columns, and people."""

import math
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import column_or_1d

from skdpot.privacy.checks import UndeclaredError, redact_errors, result_of, to_display
from skdpot.tables import _frames
from skdpot.tables._column import (
    NOMINAL,
    NUMERIC,
    ORDINAL,
    Column,
    declared_labels,
    is_missing,
    numbers_of_dates,
    one_by_one,
)
from skdpot.tables._schema import TableSchema

# Tables with a schema
# --------------------


def read_codes(X: Any, schema: TableSchema, *, private: bool = False) -> np.ndarray:
    """Return the codes of a table, or raise with all violations of the declaration.

    If `private`, no value raises: one that has no code gets -1, or -2. Names, shapes and types of
    columns still raise.

    Examples
    --------
    >>> from skdpot.tables import read_schema, read_codes
    >>> read_codes([[30, "F"], [40, "M"]], read_schema({"age": range(17, 91), "sex": ["F", "M"]}))
    array([[13,  0],
           [23,  1]])
    """
    values, problems = _values_in(_frames.Table(X), schema, private)
    # In a private fit, problems of codes are not refused: these depend on values.
    codes, code_problems = schema.codes_and_problems(values)
    found = [] if private else code_problems
    _refuse(problems + found, ValueError if problems else UndeclaredError)
    return codes


def read_columns(X: Any, schema: TableSchema, *, private: bool = False) -> list[np.ndarray]:
    """Return the columns of a table in the form for `TableSchema.codes_and_problems`, or raise.

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
    values, problems = _values_in(_frames.Table(X), schema, private)
    _refuse(problems)
    return values


def _values_in(table: _frames.Table, schema: TableSchema, private: bool) -> tuple[list, list[str]]:
    """Return the learned columns of a table, and the errors in them; or raise.

    If `private`, these are errors that types of columns show, and no value decides about one.
    """
    names = [column.name for column in schema.declared]
    if table.container != "array":
        _check_names(checked_names(table), names)
        names = table.names
    elif len(table.names) != len(names):
        raise ValueError(
            f"the table must be a data frame, or an array with the {len(names)} columns of the "
            f"schema, got an array of shape {('n', *table.X.shape[1:])}."
        )
    if not len(table):
        raise ValueError("the table has no records (0 rows); at least 1 is needed.")
    values, problems = [], []
    for column in schema.columns:
        position = names.index(column.name)
        if column.kind == NUMERIC:
            read, wrong = _numbers_in(table, position, column, private)
        else:
            read = _frames.labels_in(table.column(position))
            listed = _listed_in(table.series(position))
            wrong = column.type_problems(table.kind(position), listed)
        values.append(read)
        problems += wrong
    return values, problems


def _numbers_in(
    table: _frames.Table, position: int, column: Column, private: bool
) -> tuple[np.ndarray, list[str]]:
    """Return a numeric column as doubles, and its error in a list, as `_values_in`."""
    if column.unit is not None:
        read, are_valid = numbers_of_dates(table.series(position), column.unit)
        wrong = (
            f"column {column.name!r} is declared to hold dates: write them in ISO 8601, as "
            "2024-12-31, or read them by pandas.to_datetime; it has others, or two kinds"
        )
    else:
        read, are_valid = _floats(table.column(position))
        wrong = (
            f"column {column.name!r} is declared numeric, and has values that are not numbers. "
            "Convert text to numbers first, as by pandas.to_numeric; dates have dates as bounds, "
            "in the schema"
        )
    if private:
        # What such types hold may be numbers, or dates; text alone is none. The type alone decides,
        # also where all values are missing.
        kind = table.kind(position)
        are_valid = kind in ("biufO" if column.unit is None else "MUO")
        if kind == "b" and not column.low <= 0 < column.high:
            are_valid = False
            wrong = f"column {column.name!r} has the truth values 0 and 1: declare these"
    elif not are_valid:
        # Such a column causes no further complaint.
        read = np.full(len(table), column.low)
    return read, [] if are_valid else column.type_problems(table.kind(position)) or [wrong]


def _refuse(problems: list[str], kind: type[ValueError] = ValueError) -> None:
    """Raise with all problems of a table, if there are any."""
    if problems:
        raise kind("; ".join(problems) + ".")


def checked_names(table: _frames.Table) -> list:
    """Return the names of a table's columns, or raise if they are invalid."""
    # Other names may be private values, for example of a transposed table.
    if not all(isinstance(name, str | Integral) for name in table.names):
        raise TypeError("names of columns must be text or integers; those of X are not.")
    if len(set(table.names)) < len(table.names):
        raise ValueError(f"column {max(table.names, key=table.names.count)!r} is there twice.")
    return table.names


def _check_names(names: list, declared: list) -> None:
    """Raise unless the columns of a frame are the declared ones, each once."""
    extra, wrong = [name for name in names if name not in declared], []
    if extra:
        wrong.append(
            f"the table has columns that the schema does not declare: {extra}. Declare them, or "
            "leave them out, as identifiers"
        )
    lacking = [name for name in declared if name not in names]
    if lacking:
        wrong.append(
            f"the table lacks the columns {lacking} of the schema. Add them to the table, or "
            "declare a schema without them, as without a column that groups= names (a CSV file has "
            "its names in the first line)"
        )
    _refuse(wrong)


# Numbers and labels
# ------------------


def as_numbers(X: Any) -> Any:
    """Return private records as numbers: NaN for a value that is none. No value raises.

    X is returned as it is if its types say that it holds numbers, or no numbers at all. A type of
    text raises.

    Examples
    --------
    >>> from skdpot.tables import as_numbers
    >>> as_numbers([[1, "2.5"], [None, "two"]])
    array([[1. , 2.5],
           [nan, nan]])
    """
    table = _frames.Table(X) if _frames.library_of(type(X)) != "array" else None
    if table is None:
        # As objects: in an array of numbers, one text would make text of all.
        given = X if hasattr(X, "dtype") or sparse.issparse(X) else _frames.rows_as_array(X, object)
        kinds = {getattr(given.dtype, "kind", "f")}
    else:
        kinds = {table.kind(position) for position in range(len(table.names))}
        # Decimal numbers of Arrow are objects elsewhere.
        kinds |= {"O" for j in range(len(table.names)) if "ecimal" in str(table.dtype(j))}
    # The type is public, and holds no numbers whatever its values are.
    if kinds & set("UST"):
        raise ValueError("could not convert a type of text")
    if table is not None and "O" in kinds:
        return np.column_stack([_floats(table.column(j), str)[0] for j in range(len(table.names))])
    return _floats(given, str)[0] if kinds == {"O"} and len(given.shape) == 2 else X


def _floats(values: np.ndarray, *others: type) -> tuple[np.ndarray, bool]:
    """Return values as doubles, NaN for those that are no numbers, and whether all are numbers.

    Values of `others`, types that are no numbers, are read where they can be.
    """
    if values.dtype != object:
        return values.astype(np.float64), True
    numbers = [_number(value, *others) for value in values.ravel().tolist()]
    # None becomes NaN.
    return np.array(numbers, dtype=np.float64).reshape(values.shape), None not in numbers


def _finite_numbers(table: _frames.Table, column: Column, missing: str) -> np.ndarray:
    """Return a column as finite doubles, also read from text, or raise; no value is quoted.

    `missing` is as for `read_numbers`.
    """
    may_miss = missing == "kept"
    if table.kind(column.position) in "mM":
        raise TypeError(
            f"column {column.name!r} of X is not numeric, it holds dates or durations. Convert "
            "them first, for example to days, of dates since a fixed day."
        )
    values = table.column(column.position)
    numbers, are_read = _floats(values, str)
    if are_read and (np.isfinite(numbers) | (np.isnan(numbers) & may_miss)).all():
        return numbers
    if are_read and (may_miss or not np.isnan(numbers).any()):
        raise ValueError(
            f"Input X contains infinity, in column {column.name!r}, which is not a missing value: "
            "replace it by a number, or leave out its rows."
        )
    if are_read or (not may_miss and any(map(is_missing, values.tolist()))):
        advice = (
            "With epsilon, leave out the rows that have missing numbers, or fill in a number that "
            "is public. Do not impute from private rows: what an imputer learns of them has no "
            "protection."
        )
        if missing != "none":
            advice = (
                "Impute it before, in the same pipeline; or keep it with missing='category', for "
                "which missing numbers and levels need the conditional method. "
                f"{_columns_with_missing(table)}"
            )
        raise ValueError(f"Input X contains NaN or infinity, in column {column.name!r}. {advice}")
    known = all(is_missing(one) or isinstance(one, (str, Real, Decimal)) for one in values.tolist())
    raise (ValueError if known else TypeError)(
        f"column {column.name!r} of X holds what cannot be read as a number: the argument must be "
        "a string or a number. Name columns of categories by categorical_features, or with epsilon "
        "by categories."
    )


def labels_of(table: _frames.Table, column: Column, missing: str) -> np.ndarray:
    """Return a column of labels as objects, None for a missing one, or raise.

    `missing` is ``"error"``, which refuses missing labels; ``"category"``, which makes them a
    category, and refuses them for ordered labels; or ``"kept"`` or ``"none"``, with which no value
    raises.
    """
    # None for each kind of missing value.
    labels, is_nominal = table.labels(column.position), column.kind != ORDINAL
    may_miss = missing in ("kept", "none") or (missing == "category" and is_nominal)
    if may_miss or not any(label is None for label in labels):
        return labels
    if missing == "category":
        raise ValueError(
            f"Input X contains NaN, in column {column.name!r} of levels, whose order has no place "
            "for missing values. Impute it, or declare the column to be nominal."
        )
    raise ValueError(
        f"Input X contains NaN, in column {column.name!r} of categories. Impute it, or, if it is "
        "nominal, make it a category of its own with missing='category'. "
        f"{_columns_with_missing(table)}"
    )


def _columns_with_missing(table: _frames.Table) -> str:
    """Return a sentence that names all columns with missing values, for errors about open rows."""
    values = [table.column(position).tolist() for position in range(len(table.names))]
    missing = [name for name, v in zip(table.names, values, strict=True) if any(map(is_missing, v))]
    return f"Columns with missing values: {missing}."


def refuse_other_labels(labels: Any, declared: Iterable, name: str | int) -> None:
    """Raise if private labels have a type that none of the declared ones has; no value raises."""
    column = Column(name, NOMINAL, values=tuple(declared))
    _refuse(column.type_problems(_frames.kind_of(labels), _listed_in(labels)))


def _listed_in(labels: Any) -> Any:
    """Return the list of categories that a column's type has, or None."""
    own = labels.to_native() if hasattr(labels, "to_native") else labels
    return getattr(getattr(own, "dtype", None), "categories", None)


def read_numbers(table: _frames.Table, columns: list[Column], missing: str) -> np.ndarray:
    """Return all columns as doubles, one row per row of data.

    These are numbers, or codes of labels, -1 for an unknown label. `missing` is as for
    `labels_of`; ``"kept"`` keeps missing numbers as NaN. Errors quote no value.
    """
    read = []
    for column in columns:
        if column.kind == NUMERIC:
            read.append(_finite_numbers(table, column, missing))
            continue
        # Codes that were text in a fit and are numbers now would all be unknown.
        refuse_other_labels(table.series(column.position), column.values, column.name)
        codes = column.codes(labels_of(table, column, missing))
        read.append(np.maximum(codes, -1).astype(np.float64))
    return np.column_stack(read)


def label_order(label: Any) -> tuple[int, str, Any]:
    """Return a key that sorts labels of all types together."""
    # Numbers, then text, then others: Python compares only labels of one type.
    if isinstance(label, Real):
        return 0, "", label
    if isinstance(label, str):
        return 1, "", label
    if isinstance(label, tuple):
        return 3, "", tuple(label_order(part) for part in label)
    return 2, type(label).__name__, str(label)


def public_labels(y: Any, if_missing: str) -> np.ndarray:
    """Return labels or targets that are not private in one dimension; raise if some are missing.

    Text beside numbers raises as well, since an array would make text of all. `if_missing` says why
    none may be missing, and what to do.

    Examples
    --------
    >>> from skdpot.tables import public_labels
    >>> public_labels(["a", float("nan")], "leave out these rows.")
    Traceback (most recent call last):
    ValueError: Input y contains NaN or None: leave out these rows.
    """
    column = column_or_1d(y if hasattr(y, "dtype") else np.asarray(y, dtype=object), warn=True)
    labels = one_by_one(column).tolist()
    if any(map(is_missing, labels)):
        raise ValueError(f"Input y contains NaN or None: {if_missing}")
    if column.dtype == object and len({label_order(label)[:2] for label in labels}) > 1:
        raise ValueError(
            "the labels in y are of types that cannot be sorted together, such as 1 and '1'. Make "
            "them all text."
        )
    return column_or_1d(y)


def _number(value: Any, *others: type) -> float | None:
    """Return a value as a double, NaN for a missing one, and None if it is no number.

    Values of other types are read, too.
    """
    if is_missing(value):
        return math.nan
    try:
        # Databases return decimal numbers.
        known: Any = value if isinstance(value, (Real, Decimal, *others)) else None
        return None if known is None else float(known)
    except OverflowError:
        # An integer beyond all doubles is beyond all bounds, too.
        return math.inf if value > 0 else -math.inf
    except Exception:
        # A signalling NaN, or an object that raises.
        return None


def private_numbers(table: _frames.Table, column: Column) -> np.ndarray:
    """Return the numbers of a column, NaN for a missing one, or the codes of its labels.

    No value raises. An undeclared or missing label is -1, and so is one of another type. A number
    beyond all doubles is infinite. Text is read as a number where it is one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import NUMERIC, Column, Table, private_numbers
    >>> cells = np.array([[1], ["2.5"], ["two"], [None], [-(10**400)]], dtype=object)
    >>> private_numbers(Table(cells), Column("x", NUMERIC, position=0)).tolist()
    [1.0, 2.5, nan, nan, -inf]
    """
    if column.kind == NUMERIC:
        return _floats(table.column(column.position), str)[0]
    return np.maximum(column.codes(table.labels(column.position)), -1).astype(np.float64)


# Kinds of columns
# ----------------


def find_columns(
    table: _frames.Table, kept: np.ndarray, categorical_features: Any, categories: Any, missing: str
) -> list[Column]:
    """Return the column declarations of the kept columns of X.

    `categorical_features` and `categories` are as in the estimators, and `missing` is as in
    `labels_of`. It is ``"none"`` for private rows alone: then labels that were not declared are
    refused, instead of being found in X. Raises if declarations name other columns than those of X,
    or do not match them.
    """
    names, kinds = table.names, dict.fromkeys(kept.tolist(), NUMERIC)
    declared = {position_of(name, names, "categories"): name for name in categories or ()}
    if categorical_features is None or isinstance(categorical_features, str | dict):
        for position in kinds:
            kind = _kind_of_type(table.dtype(position), missing == "none")
            is_declared = missing == "none" and position in declared
            kinds[position] = NOMINAL if is_declared and kind == NUMERIC else kind
    named = _kinds_of_named(table, categorical_features)
    kinds |= {position: kind for position, kind in named.items() if position in kinds}
    if wrong := [name for j, name in declared.items() if kinds.get(j, NUMERIC) == NUMERIC]:
        raise ValueError(f"categories are declared for columns that are not categorical: {wrong}.")
    labels: dict[Any, Any] = {position: categories[name] for position, name in declared.items()}
    columns = (Column(names[position], kind, position=position) for position, kind in kinds.items())
    return [
        one if one.kind == NUMERIC else _labelled(one, table, labels.get(one.position), missing)
        for one in columns
    ]


def _labelled(column: Column, table: _frames.Table, labels: Any, missing: str) -> Column:
    """Return a categorical column with its labels: declared ones, or those found in X."""
    private = missing == "none"
    # Types of data frames that list no categories depend on the data.
    dtype = table.dtype(column.position)
    column = replace(column, dtype=dtype if hasattr(dtype, "categories") else None)
    if is_found := labels is None:
        if private:
            raise ValueError(
                f"categories must be declared for column {column.name!r}: a list of its labels, "
                "which may not be learned from private data."
            )
        labels = _labels_in(table, column, missing)
    _, number = declared_labels(labels, f"categories of column {column.name!r}")
    # A table without rows, as for a preview, has no labels.
    if not number and (len(table) or not is_found):
        raise ValueError(f"categories of column {column.name!r} are empty; declare at least one.")
    # A single level has no order.
    kind = column.kind if len(number) > 1 else NOMINAL
    if private and column.dtype is not None:
        # Its own categories may come from the data.
        dtype = _frames.categories_type(table.container, number, getattr(dtype, "ordered", False))
        column = replace(column, dtype=dtype)
    column = replace(column, kind=kind, values=tuple(number))
    if not (private or is_found or (column.codes(labels_of(table, column, missing)) > -2).all()):
        raise UndeclaredError(
            f"column {column.name!r} of X has labels that categories does not declare: add them, "
            "or leave out their rows."
        )
    return column


def _labels_in(table: _frames.Table, column: Column, missing: str) -> list[Any]:
    """Return a column's labels in order: declared by its type, or found in it."""
    is_enum = column.kind == ORDINAL and type(column.dtype).__name__ == "Enum"
    if is_enum or getattr(column.dtype, "ordered", False):
        return list(column.dtype.categories)
    found = labels_of(table, column, missing).tolist()
    wrong = f"column {column.name!r} of X holds lists or dictionaries, which are no labels."
    labels = redact_errors(lambda: set(found), wrong)
    if column.kind == ORDINAL and any(isinstance(label, str) for label in labels):
        raise ValueError(
            f"column {column.name!r} is declared ordinal, and its labels are text, which has no "
            f"order of its own. Give the order by categories={{{column.name!r}: [...]}}, or make "
            "the column an ordered pandas Categorical."
        )
    # A missing value is a category of its own, but not a level.
    missing_too = None in labels and column.kind != ORDINAL
    return sorted(labels - {None}, key=label_order) + ([None] if missing_too else [])


def _kinds_of_named(table: _frames.Table, categorical_features: Any) -> dict[int, str]:
    """Return the kinds of named columns, by position."""
    if categorical_features is None or isinstance(categorical_features, str):
        return {}
    names, parameter = table.names, "categorical_features"
    if isinstance(categorical_features, dict):
        if not set(categorical_features.values()) <= {ORDINAL, NOMINAL}:
            raise ValueError(
                "categorical_features, as a dict, must have 'ordinal' or 'nominal' for each "
                f"column, got {categorical_features!r}."
            )
        return {position_of(one, names, parameter): of for one, of in categorical_features.items()}
    # An array of objects keeps positions as integers beside names.
    listed = np.asarray(categorical_features, dtype=object).tolist()
    if len(listed) == len(names) and all(isinstance(item, bool | np.bool_) for item in listed):
        listed = np.flatnonzero(listed).tolist()
    positions = [position_of(name, names, parameter) for name in listed]
    return {j: ORDINAL if getattr(table.dtype(j), "ordered", False) else NOMINAL for j in positions}


def _kind_of_type(dtype: Any, private: bool) -> str:
    """Return the kind of a column by its type; if `private`, by types that no record can change.

    A column of numbers and one word has the type object. So declarations decide about every column
    that libraries treat that way.
    """
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):
        return ORDINAL if dtype.ordered else NOMINAL
    # Single values, or the lack of any, can make any other type of these.
    of_polars = type(dtype).__name__ in ("Boolean", "Null", "Object")
    if private and (getattr(dtype, "kind", "f") in "Ob" or of_polars):
        return NUMERIC
    if hasattr(dtype, "is_numeric"):
        return NUMERIC if dtype.is_numeric() or dtype.is_temporal() else NOMINAL
    return NOMINAL if getattr(dtype, "kind", "f") in "OUSb" else NUMERIC


def position_of(column: Any, names: list[Any], parameter: str) -> int:
    """Return the position of a column: that of its name if X has such a name, else its position.

    Examples
    --------
    >>> from skdpot.tables import position_of
    >>> position_of(1, [2, 1], "sensitive_features"), position_of(-1, ["a", "b"], "categories")
    (1, 1)
    """
    # True is an integer in Python, and is more likely meant as a mask.
    if isinstance(column, bool | np.bool_) or not isinstance(column, Integral | str):
        raise ValueError(
            f"{parameter} must be names or positions of columns of X, got {to_display(column)}."
        )
    if column in names:
        return names.index(column)
    # From the end, as in NumPy.
    if isinstance(column, Integral) and -len(names) <= int(column) < len(names):
        return int(column) % len(names)
    listed = ", ".join(map(repr, names[:20])) + (", ..." * (len(names) > 20))
    text = f"{parameter} names a column that X lacks. X has no column {column!r}. "
    text += f"Its columns are [{listed}]."
    if isinstance(column, str) and names == list(range(len(names))):
        text += " X is no data frame with names: use positions, or set_output(transform='pandas')."
    elif isinstance(column, str) and any("__" in str(name) for name in names):
        text += " A ColumnTransformer prefixes names; set verbose_feature_names_out=False."
    raise ValueError(text)


# People
# ------


def person_codes(groups: Any, n_rows: int, *, leave_out: bool = False) -> tuple[np.ndarray, list]:
    """Return the number of each row's person, and the people, or raise without a quote.

    With `leave_out`, the number is -1 where a value names no single person: a missing value, a list
    or a floating-point number that may stand for several people. Otherwise these raise.

    Examples
    --------
    >>> from skdpot.tables import person_codes
    >>> person_codes(["b", "a", "b"], 3)
    (array([0, 1, 0]), ['b', 'a'])
    """
    if not isinstance(groups, Iterable):
        groups = ()
    # These are rounded where they are read, or made, so that two people would become one.
    kind = str(getattr(groups, "dtype", getattr(groups, "type", ""))).lower()
    if kind.startswith(("time", "date", "duration", "float16", "float32", "float[", "half", "<m")):
        raise ValueError(
            "groups names people by dates, times or short floating-point numbers: give names as "
            "text, or as numbers."
        )
    # One by one: a person of another type changes none of the others.
    is_column = hasattr(groups, "dtype") and not isinstance(groups, np.ndarray)
    values = _frames.entries_of(groups) if is_column else one_by_one(groups)
    if values.ndim != 1 or len(values) != n_rows:
        raise ValueError("groups must have one person for each row of X, in one dimension.")
    number: dict[Any, int] = {}
    codes = [result_of(partial(_code_of, value, number), -1) for value in values.tolist()]
    if -1 in codes and not leave_out:
        raise ValueError(
            "groups has values that do not name one person, whose rows cannot be protected: "
            "missing values, lists, or floating-point numbers that may stand for several people "
            "(from 2**53 on). Leave these rows out, or read names as text."
        )
    if len(set(map(_kind_of, number))) > 1:
        raise ValueError(
            "groups names people by values of different types, such as 7 and '7', and one person "
            "may have two names: read the column as text (dtype=str)."
        )
    return np.array(codes, dtype=np.intp), list(number)


def _code_of(value: Any, number: dict[Any, int]) -> int:
    """Return the number of a person, a new one for a new person, and -1 for no name."""
    return -1 if _names_nobody(value) else number.setdefault(value, len(number))


def _names_nobody(value: Any) -> bool:
    # Parts that are missing are unequal, so that each row would be a person.
    if isinstance(value, tuple | frozenset):
        return any(map(_names_nobody, value))
    # One missing value makes doubles of all integers, which round longer ones.
    return is_missing(value) or (isinstance(value, float) and abs(value) >= 2**53)


def _kind_of(person: Any) -> Any:
    if isinstance(person, tuple):
        return tuple(map(_kind_of, person))
    # Numbers of different types are equal, except for decimal ones.
    kind = Real if isinstance(person, Real) else type(person)
    return kind, result_of(lambda: person.tzinfo, None) is None
