"""Kinds of the columns of X: of the types of a data frame, or as users declare them."""

from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.tables._column import NOMINAL, NUMERIC, ORDINAL, Column
from skdpot.tables._containers import Table
from skdpot.tables._declarations import declared_labels
from skdpot.tables._reading import label_order, labels_of

# As many columns an error names.
_MOST_LISTED = 20


def find_columns(
    table: Table,
    kept: np.ndarray,
    *,
    categorical_features: Any,
    categories: Any,
    missing: str,
    private: bool,
) -> list[Column]:
    """Return what is in each of the kept columns of X.

    Parameters
    ----------
    table : Table
        Rows.
    kept : ndarray of int
        Positions of columns.
    categorical_features : None, "from_dtype", array-like or dict
        See the estimator.
    categories : None, dict or list
        Declared labels of the categorical columns.
    missing : {"error", "category"}
        Whether a missing category is one.
    private : bool
        Whether labels that were not declared are refused, instead of being found in X.

    Returns
    -------
    list of Column
        In the order of `kept`.

    Raises
    ------
    ValueError
        If columns are named that there are none of, or declarations do not match.
    """
    names = table.names
    kinds = _kinds(table, kept, names, categorical_features, categories, private)
    categorical = [position for position in kept.tolist() if kinds[position] != NUMERIC]
    declared = _declared(categories, categorical, names)
    columns = []
    for position in kept.tolist():
        column = Column(names[position], kinds[position], position=position)
        if column.kind != NUMERIC:
            column = _labelled(column, table, declared.get(position), missing, private)
        columns.append(column)
    return columns


def _labelled(column: Column, table: Table, labels: Any, missing: str, private: bool) -> Column:
    """Return a categorical column with its labels: those declared, or else those found in X."""
    column = replace(column, dtype=_type_of_categories(table, column.position))
    if labels is None and private:
        raise ValueError(
            f"categories must be declared for column {column.name!r}: a list of its labels, which "
            "may not be learned from private data."
        )
    if labels is None:
        labels = _labels_in(table, column, missing)
    _, number = declared_labels(labels, f"categories of column {column.name!r}")
    if not number:
        raise ValueError(f"categories of column {column.name!r} are none; it needs some.")
    # A single level is in no order.
    kind = column.kind if len(number) > 1 else NOMINAL
    dtype = _with_categories(column.dtype, number) if private else column.dtype
    return replace(column, kind=kind, values=tuple(number), dtype=dtype)


def _labels_in(table: Table, column: Column, missing: str) -> list[Any]:
    """Return the labels that a column has, in order; declared by its type, or found in it."""
    if getattr(column.dtype, "ordered", False) or (
        column.kind == ORDINAL and type(column.dtype).__name__ == "Enum"
    ):
        return list(column.dtype.categories)
    found = set(labels_of(table, column, missing).tolist())
    if column.kind == ORDINAL and any(isinstance(label, str) for label in found):
        raise ValueError(
            f"column {column.name!r} is declared ordinal, and its labels are text, which has no "
            f"order of its own. Give the order by categories={{{column.name!r}: [...]}}, or make "
            "the column an ordered pandas Categorical."
        )
    return sorted(found - {None}, key=label_order) + ([None] if None in found else [])


def _type_of_categories(table: Table, position: Any) -> Any:
    """Return the type of a data frame's column if it lists categories; others follow the data."""
    dtype = table.dtype(position)
    return dtype if hasattr(dtype, "categories") else None


def _with_categories(dtype: Any, labels: Iterable) -> Any:
    """Return a type with the declared categories; its own ones may have been found in the data."""
    known = [label for label in labels if label is not None]
    if hasattr(dtype, "ordered"):
        return type(dtype)(known, ordered=dtype.ordered)
    if type(dtype).__name__ != "Enum":
        return dtype
    return type(dtype)(known) if all(isinstance(label, str) for label in known) else None


def _kinds(
    table: Table,
    kept: np.ndarray,
    names: list[Any],
    categorical_features: Any,
    categories: Any,
    private: bool,
) -> dict[int, str]:
    """Return the kind of each kept column, by positions."""
    of_types = categorical_features is None or isinstance(categorical_features, str)
    if of_types or isinstance(categorical_features, dict):
        listed = categories is not None and not isinstance(categories, dict) and len(categories)
        if private and of_types and listed:
            raise ValueError(
                "categories is a list, and the types of columns, which may be due to single "
                "values, do not say with epsilon which columns they are of: give a dict by "
                "columns, or categorical_features."
            )
        by_name = None if listed else categories
        kinds = _kinds_of_types(table, kept)
        if private:
            kinds = _kinds_of_declared(table, kept, names, by_name)
    else:
        kinds = dict.fromkeys(kept.tolist(), NUMERIC)
    return kinds if of_types else kinds | _kinds_of_named(table, kept, names, categorical_features)


def _kinds_of_named(
    table: Table, kept: np.ndarray, names: list[Any], categorical_features: Any
) -> dict[int, str]:
    """Return the kinds of the kept columns that are named, by positions."""
    kinds = {}
    if isinstance(categorical_features, dict):
        given = categorical_features
        if not all(kind in (ORDINAL, NOMINAL) for kind in given.values()):
            raise ValueError(
                "categorical_features, as a dict, says of each column whether it is 'ordinal' or "
                f"'nominal', got {categorical_features!r}."
            )
        for name, kind in given.items():
            kinds[_position(name, names, "categorical_features")] = kind
    else:
        # As objects, names do not make words of positions.
        listed = np.asarray(categorical_features, dtype=object).tolist()
        if len(listed) == len(names) and all(
            isinstance(is_one, bool | np.bool_) for is_one in listed
        ):
            listed = np.flatnonzero(listed).tolist()
        for name in listed:
            position = _position(name, names, "categorical_features")
            ordered = getattr(table.dtype(position), "ordered", False)
            kinds[position] = ORDINAL if ordered else NOMINAL
    return {position: kind for position, kind in kinds.items() if position in kept}


def _kinds_of_types(table: Table, kept: np.ndarray) -> dict[int, str]:
    """Return the kind of each kept column as the types of a data frame have it."""
    return {position: _kind_of_dtype(table.dtype(position)) for position in kept.tolist()}


def _kinds_of_declared(
    table: Table, kept: np.ndarray, names: list[Any], categories: Any
) -> dict[int, str]:
    """Return the kind of each kept column as declarations have it, whatever single values are.

    Types are looked at where a record cannot change them. A column of numbers and one word is one
    of objects; of all that libraries take it for, declarations decide.
    """
    declared = {_position(name, names, "categories") for name in categories or ()}
    kinds = {}
    for position in kept.tolist():
        dtype = table.dtype(position)
        kind = _kind_of_dtype(dtype)
        if position in declared:
            kinds[position] = NOMINAL if kind == NUMERIC else kind
        else:
            kinds[position] = NUMERIC if getattr(dtype, "kind", "f") in "Ob" else kind
    return kinds


def _kind_of_dtype(dtype: Any) -> str:
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):
        return ORDINAL if dtype.ordered else NOMINAL
    if hasattr(dtype, "is_numeric"):
        return NUMERIC if dtype.is_numeric() or dtype.is_temporal() else NOMINAL
    return NOMINAL if getattr(dtype, "kind", "f") in "OUSb" else NUMERIC


def _position(name: Any, names: list[Any], parameter: str) -> int:
    if name in names and (isinstance(name, str) or all(isinstance(n, Integral) for n in names)):
        return names.index(name)
    if isinstance(name, Integral) and -len(names) <= int(name) < len(names):
        return int(name) % len(names)
    raise ValueError(f"{parameter} names a column that is none of X. {no_column_said(name, names)}")


def _declared(categories: Any, categorical: list[int], names: list[Any]) -> dict[int, Any]:
    """Return the declared labels of categorical columns, by position."""
    if categories is None:
        return {}
    if isinstance(categories, dict):
        found = {}
        for name, labels in categories.items():
            position = _position(name, names, "categories")
            if position not in categorical:
                raise ValueError(
                    f"categories are declared for column {name!r}, which is none of the "
                    "categorical columns."
                )
            found[position] = labels
        return found
    categories = list(categories)
    if len(categories) != len(categorical):
        raise ValueError(
            f"categories declares {len(categories)} columns, and there are {len(categorical)} "
            "categorical ones."
        )
    return dict(zip(categorical, categories, strict=True))


def no_column_said(column: Any, names: Any) -> str:
    """Return what an error says where X, with columns of these names, has no such column."""
    names = list(names)
    listed = ", ".join(map(repr, names[:_MOST_LISTED])) + (", ..." * (len(names) > _MOST_LISTED))
    said = f"X has no column {column!r}. Its columns are [{listed}]."
    if isinstance(column, str) and any("__" in str(name) for name in names):
        said += " A ColumnTransformer prefixes names; set verbose_feature_names_out=False."
    return said
