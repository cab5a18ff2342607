"""The released sketch of a table, from which tables are sampled."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.generative._records import check_count, wanted_labels
from skdpot.generative._score import SCORED_ROWS, sinkhorn_divergence
from skdpot.generative._sketch.cell_groups import merge_cells
from skdpot.generative._sketch.file_parts import with_prefix
from skdpot.generative._sketch.table_draws import sample_units
from skdpot.generative._sketch.table_files import STATISTICS_PREFIX, read_further, read_model
from skdpot.generative._sketch.table_model import class_shares
from skdpot.generative._sketch.table_rows import TableRows, WantedRows, draw_rows
from skdpot.generative._sketch.table_space import TableSpace
from skdpot.privacy.quotes import shown
from skdpot.tables import TableSchema, write_table

__all__ = ["ReleasedTable"]

# The key of a target beside the table: no column has this name.
_LABELS = object()
# Different categories have the distance of the two ends of the range of a number.
_HALF_RANGE = 2**-0.5


@dataclass(frozen=True)
class ReleasedTable:
    """The released sketch of a table, from which tables are sampled.

    Parameters
    ----------
    space : TableSpace
        Public.
    model : mapping of str to ndarray
        Of `fit_table`.
    n_records : int
        About how many records were sketched.
    statistics : mapping of str to ndarray, default=None
        The statistics of `release_marginals` to which the model was fitted. Files of earlier
        versions have none.
    """

    space: TableSpace
    model: Mapping[str, np.ndarray]
    n_records: int
    statistics: Mapping[str, np.ndarray] | None = None

    network = None

    @property
    def declaration(self) -> dict[Any, Any]:
        """Return the schema as a generator is given it."""
        return self.space.declaration

    @property
    def classes(self) -> np.ndarray | None:
        """Return the labels of the target; None without one."""
        return self.space.classes

    @property
    def counts(self) -> np.ndarray:
        """Return the share of the records that each class has."""
        return class_shares(self.model, self.space.schema.n_classes)

    @property
    def counted(self) -> tuple[TableSchema, Mapping[str, np.ndarray]]:
        """Return the columns that were counted, and the model of these."""
        return self.space.schema, self.model

    @property
    def known_statistics(self) -> Mapping[str, np.ndarray]:
        """Return the released statistics, or raise where a file does not hold them."""
        if self.statistics is None:
            raise ValueError(
                "an earlier version saved the generator without the released counts: fit again."
            )
        return self.statistics

    def merged_cells(self, least: float) -> list[tuple[np.ndarray, ...]]:
        """Return the cells of every column but the target, and how they are merged into groups.

        Each column has four arrays: where the units of cells start, where they stop, their shares
        of all records, and groups of consecutive cells with a share of about `least` or more.
        """
        model = self.model
        shares = model["weights"] @ model["cells"]
        ends = np.cumsum(model["n_cells"])[:-1]
        column_parts = [np.split(part, ends) for part in (model["starts"], model["stops"], shares)]
        return [(*part, merge_cells(part[-1], least)) for part in zip(*column_parts, strict=True)]

    def units_of(self, codes: np.ndarray, rng: Any) -> np.ndarray:
        """Return a record of each of these classes, as whole numbers."""
        return sample_units(self.model, self.space.schema, len(codes), rng, None, codes)

    def sample(self, n_samples: Any, y: Any, given: Any, rng: Any, device: Any = None) -> Any:
        """Return a table of records, and their labels where these are no column of it."""
        return self._sample(n_samples, y, given, rng, evenly=True)

    def _sample(self, n_samples: Any, y: Any, given: Any, rng: Any, *, evenly: bool) -> Any:
        codes = None if y is None else wanted_labels(n_samples, y, self.classes, rng)
        n_samples = check_count(n_samples) if codes is None else len(codes)
        table, labels = self._presented([self._rows(n_samples, rng, given, codes, evenly=evenly)])
        return table if labels is None else (table, labels)

    def _presented(self, blocks: Iterable[TableRows]) -> tuple[Any, Any]:
        """Return rows in the user's container, and the target, where it is no column of tables."""
        schema = self.space.table_schema
        parts = [self._values(rows) for rows in blocks]
        labels = [part.pop(_LABELS) for part in parts]
        # No block has a column twice.
        values = {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}
        columns = [values[name] for name in schema.names]
        table = write_table(self.space.container, schema, columns, values)
        return table, None if labels[0] is None else np.concatenate(labels)

    def _values(self, rows: TableRows) -> dict[Any, Any]:
        """Return the values of columns, computed ones too, and the target beside them."""
        schema = self.space.table_schema
        values = schema.presented([rows.plain[name] for name in schema.names])
        computed = self.space.rules.presented(rows.plain)
        named = dict(zip(schema.names, values, strict=True))
        return {**named, **computed, _LABELS: self._labels(rows)}

    def _labels(self, rows: TableRows) -> Any:
        """Return the target of rows, where it is no column of tables."""
        schema = self.space.schema
        if schema.target is None or not self.space.apart:
            return None
        if self.classes is not None:
            return self.classes[rows.units[:, schema.target]]
        return schema.columns[schema.target].presented(rows.plain[schema.names[schema.target]])

    def score(
        self, estimator: Any, X: Any, y: Any, reg: float, rng: Any, device: Any = None
    ) -> float:
        """Return minus the Sinkhorn divergence of generated records from given ones."""
        schema = self.space.schema
        units = self.space.read(estimator, X, y, reset=False)
        units = units[rng.permutation(len(units))[:SCORED_ROWS]]
        labels = None if schema.target is None else schema.classes_of(units[:, schema.target])
        samples = self._rows(len(units), rng, None, labels).units
        points, sampled = (_table_points(rows, schema) for rows in (units, samples))
        return -sinkhorn_divergence(sampled, points, reg=reg)

    def _rows(
        self, n_samples: int, rng: Any, given: Any, codes: Any, *, evenly: bool = False
    ) -> TableRows:
        """Return records under conditions, target included, that keep all rules."""
        wanted = self._wanted_rows(self._conditions(given, codes is not None))
        return draw_rows(self.model, wanted, n_samples, rng, codes, evenly=evenly)

    def _wanted_rows(self, conditions: Mapping[Any, Any]) -> WantedRows:
        """Return the rules and conditions that rows must keep."""
        space = self.space
        coded = space.apart and not space.schema.has_bands
        return WantedRows(space.schema, space.rules, conditions, coded)

    def _conditions(self, given: Any, labelled: bool) -> Mapping[Any, Any]:
        """Return conditions by the names of columns, or raise."""
        given = {} if given is None else given
        space = self.space
        schema = space.schema if space.named else space.table_schema
        names = [*schema.names, *space.rules.computed]
        if not isinstance(given, Mapping):
            raise ValueError(
                f"given must be a dictionary of conditions by the name of a column, among {names}, "
                f"such as given={{{names[0]!r}: value}}; got {shown(given)}."
            )
        unknown = [shown(name) for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"given has a condition on {', '.join(unknown)}, and the table has no such column "
                f"that is learned. Those are {names}."
            )
        if labelled and self.space.target is not None and self.space.target in given:
            raise ValueError("given has a condition on the target, for which y asks: use one.")
        return given

    def to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return a header that JSON can hold, and arrays."""
        space = self.space
        header = {
            "schema": space.schema.plain(), "container": space.container, "apart": space.apart,
        } | ({"rules": list(space.rules.texts)} if space.rules else {})  # fmt: skip
        header |= {"named": True} if space.named else {}
        return {"table": header}, {**self.model, **self._further_arrays()}

    def _further_arrays(self) -> dict[str, np.ndarray]:
        """Return the part of the release that a file holds besides the model."""
        return with_prefix(self.statistics, STATISTICS_PREFIX)

    @classmethod
    def from_file(
        cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_records: Any
    ) -> "ReleasedTable":
        """Return the sketch of a file, or raise."""
        space = TableSpace.from_file(header)
        model = read_model(arrays, space.schema)
        further = read_further(arrays, len(model), space.schema, n_records)
        return cls(space, model, n_records, **further)


def _table_points(units: np.ndarray, schema: TableSchema) -> np.ndarray:
    """Return records as points whose squared distances are sums of differences of columns.

    Numbers and levels are scaled to the range from -1 to 1. Different categories have the distance
    2. A missing number is at 0, and has the distance 1 from all others in a further coordinate.
    """
    parts = []
    for column, codes in zip(schema.columns, units.T, strict=True):
        known = codes < column.n_known
        if column.kind == "nominal":
            one_hot = codes[:, None] == np.arange(column.n_units)
            parts.append(one_hot * (2 * _HALF_RANGE))
            continue
        along = 2 * column.places_of_units(codes) - 1
        parts.append(np.where(known, along, 0.0)[:, None])
        if column.missing:
            parts.append(np.where(known, 0.0, 1.0)[:, None])
    return np.column_stack(parts)
