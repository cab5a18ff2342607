"""Schemas as dicts, as JSON, and as templates with values to be filled in."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Placeholder of a template for values that must be declared.
FILL_IN = "FILL IN"


def columns_in(schema: Any) -> tuple[dict[Any, Any], Any]:
    """Return a schema's declarations by name, and its target if it names one, or raise.

    Parameters
    ----------
    schema : mapping, str or path-like
        Declarations by name; the result of `TableSchema.plain`; JSON of either; or the path of a
        file with that.

    Examples
    --------
    >>> from skdpot.tables._schema_files import columns_in
    >>> columns_in('{"sex": ["F", "M"]}')
    ({'sex': ['F', 'M']}, None)
    """
    if isinstance(schema, str | os.PathLike):
        schema = _read_json(schema)
    if not isinstance(schema, Mapping):
        return {}, None
    listed: Any = schema.get("columns")
    if not _are_columns(listed):
        return dict(schema), None
    columns = {
        column["name"]: {key: value for key, value in column.items() if key != "name"}
        for column in listed
    }
    if len(columns) < len(listed):
        raise ValueError("the schema declares a column twice.")
    return columns, schema.get("target")


def refuse_gaps(columns: Mapping[Any, Any]) -> None:
    """Raise if a template is incomplete; the error names all such columns."""
    gaps = [name for name, declared in columns.items() if _has_gap(declared)]
    if gaps:
        raise ValueError(
            f"the schema has {FILL_IN!r} for the columns {gaps}: write what is publicly known of "
            "them. It may not be learned from the table."
        )


def _has_gap(declared: Any) -> bool:
    if isinstance(declared, Mapping):
        return any(_has_gap(part) for part in declared.values())
    if isinstance(declared, list | tuple):
        return any(_has_gap(part) for part in declared)
    return isinstance(declared, str) and declared == FILL_IN


def _are_columns(listed: Any) -> bool:
    """Tell whether this is the column list of a schema's plain form, and not a declaration."""
    return (
        isinstance(listed, list | tuple)
        and bool(listed)
        and all(isinstance(column, Mapping) and "name" in column for column in listed)
    )


def _read_json(schema: str | os.PathLike) -> Any:
    text, source = str(schema), "the text"
    if not text.lstrip().startswith("{"):
        text, source = Path(schema).read_text(encoding="utf-8"), f"the file {text!r}"
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"schema must be JSON, but {source} is not: {error}.") from None
