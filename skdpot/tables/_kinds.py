"""Kinds of the columns of X: from the types of a data frame, or declared by users."""

from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.privacy.quotes import shown
from skdpot.tables._column import NOMINAL, NUMERIC, ORDINAL, Column
from skdpot.tables._containers import Table
from skdpot.tables._declarations import declared_labels
from skdpot.tables._reading import label_order, labels_of

# Types of polars of which single values, or the lack of any, can make any other type.
_UNSURE = ("Boolean", "Null", "Object")
# Maximum number of columns that an error lists.
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
    """Return the column declarations of the kept columns of X.

    `categorical_features` and `categories` are as in the estimators, and `missing` is as in
    `labels_of`. If `private`, labels that were not declared are refused, instead of being found in
    X. Raises if declarations name other columns than those of X, or do not match them.
    """
    names, kinds = table.names, dict.fromkeys(kept.tolist(), NUMERIC)
    if categorical_features is None or isinstance(categorical_features, str | dict):
        kinds = {position: _kind_of_type(table.dtype(position)) for position in kinds}
        if private:
            is_dict = isinstance(categorical_features, dict)
            kinds = _kinds_of_declared(table, kinds, categories, named=is_dict)
    named = _kinds_of_named(table, categorical_features)
    kinds |= {position: kind for position, kind in named.items() if position in kinds}
    declared = _declared(categories, [j for j, kind in kinds.items() if kind != NUMERIC], names)
    columns = []
    for position, kind in kinds.items():
        column = Column(names[position], kind, position=position)
        if kind != NUMERIC:
            column = _labelled(column, table, declared.get(position), missing, private)
        columns.append(column)
    return columns


def _labelled(column: Column, table: Table, labels: Any, missing: str, private: bool) -> Column:
    """Return a categorical column with its labels: declared ones, or those found in X."""
    # Types of data frames that list no categories depend on the data.
    dtype = table.dtype(column.position)
    column = replace(column, dtype=dtype if hasattr(dtype, "categories") else None)
    if labels is None and private:
        raise ValueError(
            f"categories must be declared for column {column.name!r}: a list of its labels, which "
            "may not be learned from private data."
        )
    # A table without rows, as for a preview, has no labels.
    may_have_none = labels is None and not len(table)
    if labels is None:
        labels = _labels_in(table, column, missing)
    _, number = declared_labels(labels, f"categories of column {column.name!r}")
    if not number and not may_have_none:
        raise ValueError(f"categories of column {column.name!r} are empty; declare at least one.")
    # A single level has no order.
    kind = column.kind if len(number) > 1 else NOMINAL
    dtype = _with_declared_categories(column.dtype, number) if private else column.dtype
    return replace(column, kind=kind, values=tuple(number), dtype=dtype)


def _labels_in(table: Table, column: Column, missing: str) -> list[Any]:
    """Return a column's labels in order: declared by its type, or found in it."""
    if getattr(column.dtype, "ordered", False) or (
        column.kind == ORDINAL and type(column.dtype).__name__ == "Enum"
    ):
        return list(column.dtype.categories)
    labels = set(labels_of(table, column, missing).tolist())
    if column.kind == ORDINAL and any(isinstance(label, str) for label in labels):
        raise ValueError(
            f"column {column.name!r} is declared ordinal, and its labels are text, which has no "
            f"order of its own. Give the order by categories={{{column.name!r}: [...]}}, or make "
            "the column an ordered pandas Categorical."
        )
    # A missing value is a category of its own, but not a level.
    missing_too = None in labels and column.kind != ORDINAL
    return sorted(labels - {None}, key=label_order) + ([None] if missing_too else [])


def _with_declared_categories(dtype: Any, labels: Iterable) -> Any:
    """Return a type with the declared categories; its own ones may come from the data."""
    categories = [label for label in labels if label is not None]
    if hasattr(dtype, "ordered"):
        return type(dtype)(categories, ordered=dtype.ordered)
    if type(dtype).__name__ != "Enum":
        return dtype
    return type(dtype)(categories) if all(isinstance(label, str) for label in categories) else None


def _kinds_of_named(table: Table, categorical_features: Any) -> dict[int, str]:
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
        return {
            _position(name, names, parameter): kind for name, kind in categorical_features.items()
        }
    # An array of objects keeps positions as integers beside names.
    listed = np.asarray(categorical_features, dtype=object).tolist()
    if len(listed) == len(names) and all(isinstance(item, bool | np.bool_) for item in listed):
        listed = np.flatnonzero(listed).tolist()
    positions = [_position(name, names, parameter) for name in listed]
    ordered = [getattr(table.dtype(position), "ordered", False) for position in positions]
    return {j: ORDINAL if is_one else NOMINAL for j, is_one in zip(positions, ordered, strict=True)}


def _kinds_of_declared(
    table: Table, kinds: dict[int, str], categories: Any, *, named: bool
) -> dict[int, str]:
    """Return the kinds that types declare, regardless of single values.

    Types are used if no record can change them. A column of numbers and one word has the type
    object; declarations decide about every column that libraries treat that way.
    """
    declarations = categories if isinstance(categories, dict) else ()
    if categories is not declarations and categories is not None and len(categories) and not named:
        raise ValueError(
            "with epsilon, a list of categories needs categorical_features, because types of "
            "columns may depend on single values. Or give a dict by column."
        )
    declared = {_position(name, table.names, "categories") for name in declarations}
    kinds_by_position = {}
    for position, kind in kinds.items():
        dtype = table.dtype(position)
        unsure = getattr(dtype, "kind", "f") in "Ob" or type(dtype).__name__ in _UNSURE
        if position in declared:
            kinds_by_position[position] = NOMINAL if kind == NUMERIC else kind
        else:
            kinds_by_position[position] = NUMERIC if unsure else kind
    return kinds_by_position


def _kind_of_type(dtype: Any) -> str:
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
    raise ValueError(f"{parameter} names a column that X lacks. {no_such_column(name, names)}")


def _declared(categories: Any, categorical: list[int], names: list[Any]) -> dict[int, Any]:
    """Return the declared labels of categorical columns, by position."""
    if categories is None:
        return {}
    if isinstance(categories, dict):
        labels_by_position = {}
        for name, labels in categories.items():
            position = _position(name, names, "categories")
            if position not in categorical:
                raise ValueError(
                    f"categories are declared for column {name!r}, which is not categorical."
                )
            labels_by_position[position] = labels
        return labels_by_position
    categories = list(categories)
    if len(categories) != len(categorical):
        raise ValueError(
            f"categories declares {len(categories)} columns, and there are {len(categorical)} "
            "categorical ones."
        )
    return dict(zip(categorical, categories, strict=True))


def no_such_column(column: Any, names: Any) -> str:
    """Return the text of an error about a column that X does not have."""
    names = list(names)
    listed = ", ".join(map(repr, names[:_MOST_LISTED])) + (", ..." * (len(names) > _MOST_LISTED))
    text = f"X has no column {shown(column)}. Its columns are [{listed}]."
    if isinstance(column, str) and any("__" in str(name) for name in names):
        text += " A ColumnTransformer prefixes names; set verbose_feature_names_out=False."
    return text
