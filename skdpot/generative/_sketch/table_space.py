"""The public declaration of a table, and the private records that were read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from skdpot.generative._records import Declared, read_classes, read_codes, read_each
from skdpot.generative._sketch.people import People
from skdpot.generative._sketch.table_rows import check_rules, read_rules
from skdpot.tables import CONTAINERS, Table, TableSchema, read_schema, read_units, schema_from_plain

__all__ = ["TableRecords", "TableSpace", "read_space"]


@dataclass(frozen=True)
class TableSpace:
    """The public declaration of a table.

    Parameters
    ----------
    schema : TableSchema
        Target included.
    container : str
        The container of tables.
    apart : bool
        Whether the target is no column of tables, and goes beside them.
    named : bool, default=False
        Whether a target that goes beside tables is declared in their schema.
    user : str, default=None
        The name of the column of people, who have several rows. None means one row per person.
    """

    schema: TableSchema
    container: str
    apart: bool
    named: bool = False
    user: str | None = None

    def by_person(self, user: str) -> "TableSpace":
        """Return the declaration with people, whose column has this name, or a longer one."""
        while user in [column.name for column in self.schema.declared]:
            user += "_"
        return replace(self, user=user)

    @property
    def classes(self) -> np.ndarray | None:
        """Return the labels of the target; None where there is none, or it is a number."""
        if self.schema.target is None or self.schema.has_bands:
            return None
        column = self.schema.columns[self.schema.target]
        labels = [*column.values, *([None] if column.missing else [])]
        array = np.asarray(labels, dtype=object if column.missing else None)
        return array if array.ndim == 1 else np.fromiter(labels, dtype=object, count=len(labels))

    @property
    def target(self) -> Any:
        """Return the name of the target, if it is declared in the schema of tables."""
        if self.schema.target is None or (self.apart and not self.named):
            return None
        return self.schema.names[self.schema.target]

    @property
    def table_schema(self) -> TableSchema:
        """Return the schema of the columns of tables."""
        return self.schema.without_target() if self.apart else self.schema

    @property
    def declaration(self) -> dict[Any, Any]:
        """Return the schema, as a generator is given it."""
        schema = self.schema if self.named else self.table_schema
        return {column.pop("name"): column for column in schema.plain()["columns"]}

    @classmethod
    def from_file(cls, header: Mapping[str, Any]) -> "TableSpace":
        """Return the declaration of a table from a file, or raise."""
        schema, container, apart = (header[name] for name in ("schema", "container", "apart"))
        named, user = header.get("named", False), header.get("user")
        schema = schema_from_plain(schema)
        target = None if schema.target is None else schema.names[schema.target]
        computed = header.get("computed", [])
        if (
            container not in CONTAINERS
            or apart not in (False, True)
            or named not in (False, True)
            or not isinstance(user, str | None)
            or not set(computed) <= set(schema.names) - {target}
            or (apart and schema.target != len(schema.columns) - 1)
            or (named and not apart)
            or (apart and schema.has_bands and not named)
        ):
            raise ValueError("the file does not hold a sketch of a table.")
        return cls(schema.computing(computed), container, apart, named, user)

    def read(
        self, estimator: Any, X: Any, y: Any, *, reset: bool, private: bool = False
    ) -> np.ndarray:
        """Return the values of a table as whole numbers, or raise.

        If `private`, no value raises; below 0 are those without a place.
        """
        if self.apart != (y is not None):
            raise ValueError(
                "y must be given if classes were declared, or a target that is no column of X, and "
                "only then: with one label for each row of X."
            )
        schema = self.schema
        table = Table(X)
        if self.named and table.container != "array" and self.target in table.names:
            raise ValueError(
                f"y is the target {self.target!r}, and X has that column as well. Give one of them."
            )
        units = read_units(X, self.table_schema, private=private)
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        if schema.target is None or not self.apart:
            return units
        target = schema.columns[schema.target]
        if self.named:
            labels, schema = read_each(y, len(units))[:, None], TableSchema((target,))
            codes = read_units(labels, schema, private=private)[:, 0]
        else:
            codes = read_codes(y, read_classes(target.values)[1], len(units), private)
        return np.column_stack([units, codes])


@dataclass(frozen=True, eq=False)
class TableRecords:
    """A private table that was read.

    `points` has a row of whole numbers for each record whose values all have a place. Others, which
    are among the `n_read`, count nowhere. If people have several rows, `n_read` is their number.
    """

    space: TableSpace
    points: np.ndarray
    n_read: int
    people: People | None = None


def read_space(declared: Declared, container: str, *, apart: bool) -> TableSpace:
    """Return the declaration of a table, or raise."""
    declared.refuse("a table", "image_shape")
    if declared.schema is None:
        raise ValueError("TableSketch is for tables: declare schema={column: ...}.")
    if declared.bounds is not None:
        raise ValueError("bounds are for records without a schema. Give them in the schema.")
    features = read_schema(declared.schema, declared.target)
    named = apart and declared.classes is None and features.target is not None
    if not named and apart != (declared.classes is not None):
        raise ValueError(
            "y and classes go together: give the labels of records as y, and all possible labels "
            "as classes=[...]. Or declare y in the schema, and name it as target; then it is a "
            "column of the table."
        )
    rules = read_rules(declared.rules, declared.computed)
    columns = [column for column in features.names if column != declared.target]
    if unknown := [name for name in rules.formulas if name not in columns]:
        raise ValueError(
            f"computed has {unknown}: these are no columns of the schema but the target, which are "
            f"{columns}."
        )
    features = features.computing(rules.formulas)
    check_rules(features, rules)
    if not apart:
        return TableSpace(features, container, False)
    if named:
        return TableSpace(_with_target_last(features), container, True, named=True)
    if declared.target is not None:
        raise ValueError("target is of the schema, and classes are of a y that is not: use one.")
    plain, name = features.plain()["columns"], "y"
    while name in {column["name"] for column in plain}:
        name += "_"
    labels = {"name": name, "categories": read_classes(declared.classes)[0].tolist()}
    schema = schema_from_plain({"columns": [*plain, labels], "target": name})
    return TableSpace(schema.computing(rules.formulas), container, True)


def _with_target_last(schema: TableSchema) -> TableSchema:
    target = schema.columns[schema.target or 0]
    features = [column for column in schema.declared if column is not target]
    plain = [column.plain() for column in (*features, target)]
    reordered = schema_from_plain({"columns": plain, "target": target.name})
    return reordered.computing([column.name for column in schema.computed])
