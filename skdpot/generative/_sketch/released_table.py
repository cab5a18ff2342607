"""The released sketch of a table, from which tables are sampled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.generative._records import check_count, wanted_labels
from skdpot.generative._score import SCORED_ROWS, sinkhorn_divergence
from skdpot.generative._sketch.cell_groups import merge_cells
from skdpot.generative._sketch.file_parts import with_prefix
from skdpot.generative._sketch.people import draw_sizes, with_person
from skdpot.generative._sketch.table_draws import sample_units
from skdpot.generative._sketch.table_files import STATISTICS_PREFIX, read_further, read_model
from skdpot.generative._sketch.table_model import class_shares
from skdpot.generative._sketch.table_rows import Rules, computed_values, draw_rows, frame_of
from skdpot.generative._sketch.table_space import TableSpace
from skdpot.privacy.quotes import shown
from skdpot.tables import TableSchema, write_table

__all__ = ["ReleasedTable"]

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
    rules : Rules, default=Rules()
        That samples keep.
    """

    space: TableSpace
    model: Mapping[str, np.ndarray]
    n_records: int
    statistics: Mapping[str, np.ndarray] | None = None
    rules: Rules = Rules()

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
        _, *plain = self._rows(n_samples, rng, given, codes, evenly=evenly)
        schema = self.space.table_schema
        columns = schema.presented(plain[: len(schema.columns)])
        table = write_table(self.space.container, schema, columns, self._computed(plain))
        labels = self._labels(plain)
        return table if labels is None else (table, labels)

    def _frame(self, plain: Sequence[np.ndarray]) -> Any:
        """Return rows as a pandas data frame, with the target if it is declared in the schema."""
        schema = self._named_schema
        return frame_of(schema, plain[: len(schema.columns)])

    def _computed(self, plain: Sequence[np.ndarray]) -> dict[Any, np.ndarray]:
        """Return the computed columns of rows."""
        computed = self.space.schema.computed
        if not computed:
            return {}
        frame = self.rules.complete(self._frame(plain))
        return {column.name: computed_values(column, frame[column.name]) for column in computed}

    def _labels(self, plain: Sequence[np.ndarray]) -> Any:
        """Return the target of rows, where it is no column of tables."""
        schema = self.space.schema
        if schema.target is None or not self.space.apart:
            return None
        if self.classes is not None:
            return self.classes[plain[schema.target]]
        return schema.columns[schema.target].presented(plain[schema.target])

    def sample_users(self, n_users: Any, rng: Any) -> Any:
        """Return the rows of so many people, with a column of their person."""
        if self.space.user is None:
            raise ValueError("n_users is for a generator that was fitted with groups=.")
        sizes = draw_sizes(self.known_statistics, n_users, rng)
        drawn = self._sample(int(sizes.sum()), None, None, rng, evenly=False)
        table, *labels = drawn if isinstance(drawn, tuple) else (drawn,)
        table = with_person(table, self.space.user, np.repeat(np.arange(n_users), sizes))
        return (table, *labels) if labels else table

    def score(
        self, estimator: Any, X: Any, y: Any, reg: float, rng: Any, device: Any = None
    ) -> float:
        """Return minus the Sinkhorn divergence of generated records from given ones."""
        schema = self.space.schema
        units = self.space.read(estimator, X, y, reset=False)
        units = units[rng.permutation(len(units))[:SCORED_ROWS]]
        labels = None if schema.target is None else schema.classes_of(units[:, schema.target])
        samples = self._rows(len(units), rng, None, labels)[0]
        points, sampled = (_table_points(rows, schema) for rows in (units, samples))
        return -sinkhorn_divergence(sampled, points, reg=reg)

    def _rows(
        self, n_samples: int, rng: Any, given: Any, codes: Any, *, evenly: bool = False
    ) -> list[np.ndarray]:
        """Return records under conditions that keep all rules: units, and each column's numbers."""
        space, schema = self.space, self.space.schema
        conditions = self._conditions(given, codes is not None)
        n_drawn = len(schema.columns) - (space.apart and not schema.has_bands)

        def draw(n: int, labels: Any, evenly: bool = False) -> list[np.ndarray]:
            units = sample_units(self.model, schema, n, rng, conditions, labels, evenly=evenly)
            uniforms = np.zeros(units.shape)
            uniforms[:, :n_drawn] = rng.uniform(size=(n, n_drawn))
            return [units, *schema.plain_values(units, uniforms, conditions)]

        rows = draw(n_samples, codes, evenly)
        if not self.rules:
            return rows
        return draw_rows(
            draw, lambda drawn: self.rules.kept(self._frame(drawn[1:]), schema), rows, codes
        )

    @property
    def _named_schema(self) -> TableSchema:
        """Return the schema of the columns that users declared by name."""
        return self.space.schema if self.space.named else self.space.table_schema

    def _conditions(self, given: Any, labelled: bool) -> Mapping[Any, Any]:
        """Return conditions by the names of columns, or raise."""
        given = {} if given is None else given
        names = self._named_schema.names
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
        } | ({"ruled": True} if self.rules else {})  # fmt: skip
        computed = [column.name for column in space.schema.computed]
        header |= {"computed": computed} if computed else {}
        header |= {"named": True} if space.named else {}
        header |= {} if space.user is None else {"user": space.user}
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
        if (space.user is None) == ("sizes" in further.get("statistics", {})):
            raise ValueError("the file does not hold a sketch of a table.")
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
