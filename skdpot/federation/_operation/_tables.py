"""TOML tables of known keys: reading with errors that name the line, and writing."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._settings_error import SettingsError

# Keys of each table: a type for a required key, otherwise the default. A table with None takes any
# keys with texts.
Schema = Mapping[str, Mapping[str, Any] | None]
Tables = dict[str, dict[str, Any]]

_KINDS = {str: "a text", float: "a number", int: "a whole number", bool: "true or false"}
_TABLE = re.compile(r"\s*\[\s*([\w-]+)\s*\]")
_KEY = re.compile(r"""\s*["']?([\w.-]+)["']?\s*=""")


def read_tables(path: Path, schema: Schema) -> Tables:
    """Return the tables of a file by name, with a value for every key of the schema.

    Keys before the first table belong to the table "". Raises a SettingsError if there is no such
    file, or a key is unknown, missing or of a wrong type.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise SettingsError(f"{path} is not written as TOML is: {error}.") from None
    given: Tables = {"": {key: value for key, value in found.items() if key not in schema}}
    given |= {name: found.get(name, {}) for name in schema if name}
    tables = {}
    for name, keys in schema.items():
        if not isinstance(given[name], dict):
            raise SettingsError(f"{path}: [{name}] is a table, not a key.")
        table = _Table(path, text, name, given[name])
        tables[name] = table.texts() if keys is None else table.values(keys)
    return tables


class _Table:
    """One table of a file, with the lines of its keys for errors."""

    def __init__(self, path: Path, text: str, name: str, given: Mapping[str, Any]) -> None:
        self._path, self._text, self._name, self._given = path, text, name, given

    def values(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        for key in self._given:
            if key not in keys:
                raise self._error(key, f"is no key. Keys are {', '.join(keys)}")
        return {key: self._value(key, default) for key, default in keys.items()}

    def texts(self) -> dict[str, str]:
        for key, value in self._given.items():
            if not isinstance(value, str):
                raise self._error(key, "must be a text")
        return dict(self._given)

    def _value(self, key: str, default: Any) -> Any:
        kind = default if isinstance(default, type) else type(default)
        if key not in self._given:
            if kind is default:
                raise self._error(key, "is missing")
            return default
        value = self._given[key]
        if kind is list:
            return self._items(key, value)
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or isinstance(value, bool) != (kind is bool):
            raise self._error(key, f"must be {_KINDS[kind]}, got {value!r}")
        return float(value) if kind is float else value

    def _items(self, key: str, value: Any) -> list[Any]:
        """Return a list of texts without commas, or of numbers."""
        if isinstance(value, list):
            if all(isinstance(item, str) and item and "," not in item for item in value):
                return value
            if all(type(item) in (int, float) for item in value):
                return value
        raise self._error(key, "must be a list of numbers, or of texts without commas")

    def _error(self, key: str, problem: str) -> SettingsError:
        where = f", line {line}" if (line := self._line_of(key)) else ""
        table = f"[{self._name}] " if self._name else ""
        return SettingsError(f"{self._path}{where}: {table}{key} {problem}.")

    def _line_of(self, key: str) -> int:
        """Return the line of a key, 0 if it is not found."""
        table = ""
        for number, line in enumerate(self._text.splitlines(), 1):
            if begun := _TABLE.match(line):
                table = begun[1]
                if not self._name and table == key:
                    return number
            elif table == self._name and (named := _KEY.match(line)) and named[1] == key:
                return number
        return 0


def as_toml(value: Any) -> str:
    """Return a value as TOML; its texts, numbers and lists are those of JSON."""
    return json.dumps(value, ensure_ascii=False)


def written(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables as a TOML file."""
    parts = []
    for name, table in tables.items():
        lines = [f"[{name}]"] if name else []
        parts.append("\n".join([*lines, *(f"{key} = {as_toml(v)}" for key, v in table.items())]))
    return "\n\n".join(parts) + "\n"
