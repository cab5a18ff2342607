"""The sketch of a table, and tables that are drawn from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.generative._sketch.tables import class_shares, sample_units
from skdpot.tables import CONTAINERS, TableSchema, schema_from_plain, shown, write_table

# A category that differs is as far as a number at the other end of its range.
_HALF_RANGE = 2**-0.5
# Whole numbers, and others, of a model in a file.
_ARRAYS = {
    **dict.fromkeys(("n_cells", "starts", "stops", "classes"), np.int64),
    **dict.fromkeys(("weights", "cells"), np.float64),
}


@dataclass(frozen=True)
class TableSketch:
    """What was released of a table, and how tables are made of it.

    Parameters
    ----------
    schema : TableSchema
        Public.
    container : str
        What tables are held by.
    model : mapping of str to ndarray
        Of `fit_table`.
    apart : bool
        Whether the target is no column of tables, and goes beside them.
    """

    schema: TableSchema
    container: str
    model: Mapping[str, np.ndarray]
    apart: bool

    @property
    def counts(self) -> np.ndarray:
        """Return what part of the records each class has."""
        return class_shares(self.model, self.schema.n_classes)

    @property
    def classes(self) -> np.ndarray | None:
        """Return the labels of the target; None where there is none."""
        if self.schema.target is None:
            return None
        column = self.schema.columns[self.schema.target]
        labels = [*column.values, *([None] if column.missing else [])]
        made = np.asarray(labels, dtype=object if column.missing else None)
        return made if made.ndim == 1 else np.fromiter(labels, dtype=object, count=len(labels))

    @property
    def target(self) -> Any:
        """Return the name of the target, if it is a column of tables."""
        if self.schema.target is None or self.apart:
            return None
        return self.schema.names[self.schema.target]

    @property
    def declaration(self) -> dict[Any, Any]:
        """Return the schema of tables, as a generator is given it."""
        declared = self.schema.plain()["columns"]
        kept = self.schema.features if self.apart else range(len(declared))
        return {declared[j].pop("name"): declared[j] for j in kept}

    def table(
        self,
        n_samples: int,
        rng: np.random.RandomState,
        given: Mapping[Any, Any] | None,
        codes: np.ndarray | None,
    ) -> Any:
        """Return a table of records under conditions, and the codes of their classes.

        Parameters
        ----------
        n_samples : int
            How many.
        rng : RandomState
            Source of randomness.
        given : mapping or None
            Conditions by the name of the column.
        codes : ndarray of shape (n_samples,) or None
            The class of each record.

        Returns
        -------
        table : {DataFrame, ndarray}
            In the container of the records.
        codes : ndarray of shape (n_samples,) or None
            Where the target goes beside it.
        """
        units, schema = self.units(n_samples, rng, given, codes), self.schema
        if self.apart:
            codes = units[:, schema.target]
            units = units[:, schema.features]
            schema = schema.without_target()
        of_columns = {name: of for name, of in (given or {}).items() if name in schema.names}
        values = schema.decode(units, rng.uniform(size=units.shape), of_columns)
        return write_table(self.container, schema, values), codes if self.apart else None

    def units(
        self,
        n_samples: int,
        rng: np.random.RandomState,
        given: Mapping[Any, Any] | None,
        codes: np.ndarray | None,
    ) -> np.ndarray:
        """Return records as `table` does, target included, as whole numbers."""
        conditions = self._conditions(given, codes is not None)
        return sample_units(self.model, self.schema, n_samples, rng, conditions, codes)

    def _conditions(self, given: Any, labelled: bool) -> Mapping[Any, Any]:
        """Return conditions by the names of columns, or raise."""
        given = {} if given is None else given
        names = list(self.declaration)
        if not isinstance(given, Mapping) or not set(given) <= set(names):
            raise ValueError(
                f"given must be a dictionary of conditions on columns among {names}, got "
                f"{shown(given)}."
            )
        if labelled and self.target is not None and self.target in given:
            raise ValueError("given has a condition on the target, for which y asks: use one.")
        return given

    def header(self) -> dict[str, Any]:
        """Return what a file says of the sketch, but for its arrays."""
        return {
            "schema": self.schema.plain(),
            "container": self.container,
            "apart": self.apart,
        }


def table_sketch_of(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> TableSketch:
    """Return the sketch of a file.

    Parameters
    ----------
    header : mapping
        Of `TableSketch.header`.
    arrays : mapping of str to ndarray
        Its model.

    Returns
    -------
    TableSketch
        As it was.

    Raises
    ------
    ValueError
        If the file does not hold one.
    """
    schema, container, apart = (header[name] for name in ("schema", "container", "apart"))
    schema = schema_from_plain(schema)
    model = {name: arrays[name].astype(kind, casting="safe") for name, kind in _ARRAYS.items()}
    if (
        arrays.keys() != model.keys()
        or container not in CONTAINERS
        or apart not in (False, True)
        or (apart and schema.target is None)
        or not _is_model(schema, **model)
    ):
        raise ValueError("the file does not hold a sketch of a table.")
    return TableSketch(schema, container, model, apart)


def _is_model(
    schema: TableSchema,
    n_cells: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    weights: np.ndarray,
    classes: np.ndarray,
    cells: np.ndarray,
) -> bool:
    """Tell whether arrays are a model of a table, of which any number of records can be drawn."""
    columns = [schema.columns[j] for j in schema.features]
    # In this order, no array is looked at before its shape is known, and none is large.
    if (
        n_cells.shape != (len(columns),)
        or not columns
        or starts.ndim != 1
        or not ((n_cells > 0) & (n_cells <= len(starts))).all()
        or not starts.shape == stops.shape == (n_cells.sum(),)
        or weights.ndim != 1
        or weights.shape != classes.shape
        or cells.shape != (len(weights), len(starts))
    ):
        return False
    n_units = np.repeat([column.n_units for column in columns], n_cells)
    within = (starts >= 0) & (starts < stops) & (stops <= n_units)
    of_columns = np.add.reduceat(cells, np.cumsum(n_cells) - n_cells, axis=1)
    return bool(
        within.all()
        and ((classes >= 0) & (classes < schema.n_classes)).all()
        and (weights >= 0).all()
        and np.isclose(weights.sum(), 1)
        and (cells >= 0).all()
        and np.allclose(of_columns, 1)
    )


def table_points(units: np.ndarray, schema: TableSchema) -> np.ndarray:
    """Return records as points, so that squared distances add up how much columns differ.

    Parameters
    ----------
    units : ndarray of shape (n, n_columns)
        Of `TableSchema.encode`.
    schema : TableSchema
        What the table is declared to hold.

    Returns
    -------
    ndarray of shape (n, n_points)
        A number, or a level, is from -1 to 1, and categories are as far apart as these two. A
        missing number is at 0, and 1 beside all others.
    """
    parts = []
    for column, of_column in zip(schema.columns, units.T, strict=True):
        known = of_column < column.n_known
        if column.kind == "nominal":
            one_hot = of_column[:, None] == np.arange(column.n_units)
            parts.append(one_hot * (2 * _HALF_RANGE))
            continue
        along = 2 * of_column / max(column.n_known - 1, 1) - 1
        parts.append(np.where(known, along, 0.0)[:, None])
        if column.missing:
            parts.append(np.where(known, 0.0, 1.0)[:, None])
    return np.column_stack(parts)
