"""The template of a schema: the columns of a table, and their missing declarations."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.tables import FILL_IN, Table, checked_names


def schema_template(frame, path=None, *, categories=False) -> dict:
    """Return a schema with the columns of a table, to be filled in.

    Only the names and types of columns are read, no values. Replace each "FILL IN" by public
    knowledge, such as the answers that a questionnaire allows; a schema that still contains "FILL
    IN" is refused. If values may be missing, change ``"missing"`` to true. Change a declaration if
    another one fits better. Columns of text get categories:

    - dates that are text have ``{"bounds": ["2020-01-01", "2024-12-31"]}``;
    - ordered categories have ``"levels"``, from the lowest to the highest;
    - identifiers have ``{"identifier": true}``.

    Parameters
    ----------
    frame : {DataFrame, array-like} of shape (n_records, n_features)
        A frame of pandas or polars, or an array. Programs that read files may infer types from
        values; to avoid this, use a frame of synthetic rows.
    path : str or path-like, default=None
        A new file, to which the schema is written as JSON.
    categories : bool, default=False
        Whether the categories of categorical types are copied. Copy them only if they were
        declared, because they may have been read from private data.

    Returns
    -------
    dict
        For `schema` of :class:`~skdpot.DPSinkhornGenerator`.

    Raises
    ------
    FileExistsError
        If the file exists.
    TypeError
        If the names of columns are neither text nor integers, or the table is of another library.

    See Also
    --------
    skdpot.DPSinkhornGenerator : Synthetic tables for a schema.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.generative import schema_template
    >>> table = pd.DataFrame({"age": [34, 51], "smokes": [True, False]})
    >>> for name, declared in schema_template(table).items():
    ...     print(name, declared)
    age {'bounds': ['FILL IN', 'FILL IN'], 'integer': True, 'missing': False}
    smokes {'categories': [False, True], 'missing': False}
    """
    table = Table(frame)
    names = checked_names(table)
    declared = [_declaration(table, place, categories) for place in range(len(names))]
    schema: dict = dict(zip(names, declared, strict=True))
    if not all(isinstance(name, str) for name in names):
        # Keys of JSON are text.
        columns = [{"name": name, **declaration} for name, declaration in schema.items()]
        schema = {"columns": columns, "target": None}
    if path is not None:
        with Path(path).open("x", encoding="utf-8") as file:
            json.dump(schema, file, indent=2)
    return schema


def _declaration(table: Table, place: int, categories: bool) -> Mapping[str, Any]:
    """Return the template of a declaration for a column of this type."""
    dtype: Any = table.dtype(place)
    dtype = getattr(table.X, "dtype", None) if dtype is None else dtype
    kind, bounds = _kind(dtype), [FILL_IN, FILL_IN]
    if kind in "iu":
        return {"bounds": bounds, "integer": True, "missing": False}
    if kind == "f":
        return {"bounds": bounds, "missing": False}
    if kind in "mM":
        return {"bounds": bounds, "unit": "D" if kind == "M" else "s", "missing": False}
    if kind == "b":
        return {"categories": [False, True], "missing": False}
    labels = [FILL_IN]
    if categories and hasattr(dtype, "categories"):
        labels = [_plain(label) for label in dtype.categories]
    return {
        "levels" if getattr(dtype, "ordered", False) else "categories": labels,
        "missing": False,
    }


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _kind(dtype: Any) -> str:
    """Return the letter that NumPy has for the kind of a type."""
    if not hasattr(dtype, "is_temporal"):
        return getattr(dtype, "kind", "O")
    kinds = {"i": dtype.is_integer(), "f": dtype.is_numeric(), "b": str(dtype) == "Boolean"}
    kinds |= {"m": str(dtype).startswith("Duration"), "M": dtype.is_temporal()}
    return next((kind for kind, is_one in kinds.items() if is_one), "O")
