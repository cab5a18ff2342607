"""Private rows of many columns: the release of their sketch, and rows drawn from it."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from skdpot._progress import progress_bar
from skdpot.fairness._blur import blur_of
from skdpot.fairness._declared import FitSettings, read_box, read_groups, read_schema_of
from skdpot.fairness._fitting import KnownRows, guarantee
from skdpot.fairness._groups import Groups
from skdpot.fairness._private_cells import PUBLIC_OF_ROWS, private_codes
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.foreign import quiet
from skdpot.privacy.random import make_source
from skdpot.tables import NUMERIC, Column, Table, TableSchema

if TYPE_CHECKING:
    from skdpot.generative import ReleasedTable

# Minimum number of rows drawn of every group, whatever its released size.
_FEWEST = 20


@dataclass(frozen=True, eq=False)
class DeclaredTable:
    """The public facts about rows that are sketched.

    Attributes
    ----------
    columns : list of Column
        The columns of rows.
    groups : Groups
        The declared groups.
    box : tuple of two ndarray
        Bounds of numbers.
    schema : TableSchema
        All that is counted: the columns, and last the group.
    """

    columns: list[Column]
    groups: Groups
    box: Any
    schema: TableSchema

    def units(self, table: Table, labels: np.ndarray) -> np.ndarray:
        """Return private rows as integers, -1 for a value that is missing or not declared."""
        units = np.empty((len(table), len(self.columns) + 1), dtype=np.int64, order="F")
        for j, column in enumerate(self.columns):
            codes = private_codes(table, column)
            units[:, j] = self.schema.columns[j].units(codes) if column.kind == NUMERIC else codes
        units[:, -1] = self.groups.find(labels)
        return units

    def codes_of(self, units: np.ndarray, rng: Any) -> np.ndarray:
        """Return drawn rows as codes."""
        codes = units[:, :-1].astype(np.float64)
        for j, column in enumerate(self.schema.columns[:-1]):
            if column.kind == NUMERIC:
                codes[:, j] = column.numbers(units[:, j], rng.uniform(size=len(units)))
        return codes


def declare_table(settings: FitSettings, columns: list[Column]) -> DeclaredTable:
    """Return the public facts about rows that are sketched, or raise."""
    groups = read_groups(settings.groups, settings.weights)
    box = read_box(settings, columns)
    return DeclaredTable(columns, groups, box, read_schema_of(settings, columns, box, groups))


@dataclass(frozen=True, eq=False)
class SketchedRows:
    """Private rows and the labels of their groups, read after the charge; their count is public."""

    settings: FitSettings
    declared: DeclaredTable
    table: Table
    labels: np.ndarray
    n_records: int

    @cached_property
    def points(self) -> np.ndarray:
        """Return the rows that count, as integers: those of which all is declared and known."""
        with quiet():
            units = self.declared.units(self.table, self.labels)
            return units[(units >= 0).all(axis=1)]

    def plan(self) -> ReleasePlan:
        """Return the plan of the release of the sketch, or raise."""
        # Imported here: open repairs, and repairs by supports, need no generators.
        from skdpot.generative import plan_table

        settings = self.settings
        progress = partial(progress_bar, desc=settings.name, disable=not settings.verbose)
        release = plan_table(
            self.declared.schema, settings.epsilon, settings.delta, "replace_one", progress
        )
        return ReleasePlan(
            release,
            release.event,
            make_source(settings.random_state),
            f"{settings.name}, {release.label}",
            guarantee(settings, *PUBLIC_OF_ROWS),
            n_records=self.n_records,
        )

    def run(self, plan: ReleasePlan) -> KnownRows:
        """Release the sketch, and draw rows from it: as many as there are, or fewer."""
        released: ReleasedTable = plan.release.run(self, plan.source)
        most = self.settings.method._most_rows()
        rows = drawn_rows(self.settings, self.declared, released, min(self.n_records, most))
        noise, columns = plan.release.noise_of_counts, self.declared.columns
        blur = blur_of(released, columns, self.settings.fixed, noise, self.n_records)
        # The map moves blurred rows, so it is fitted to blurred rows.
        keys = rows.rng.randint(2**63, size=len(rows.codes), dtype=np.uint64)
        return replace(
            rows,
            codes=blur.rows(rows.codes, keys),
            blur=blur,
            shown=math.hypot(plan.release.shown_by_noise(self.n_records), self._shown_by_chance),
        )

    @property
    def _shown_by_chance(self) -> float:
        """Return the expected separation of groups by chance, for a map fitted to so many rows."""
        n_columns, n_groups = len(self.declared.columns), len(self.declared.groups.names)
        return math.sqrt(n_columns * n_groups / self.n_records)


def drawn_rows(
    settings: FitSettings, declared: DeclaredTable, released: "ReleasedTable", n_records: int
) -> KnownRows:
    """Return about so many rows drawn from a sketch; post-processing."""
    rng = check_random_state(settings.random_state)
    # Weights by size use the released sizes, not the numbers of drawn rows.
    sizes = np.maximum(np.rint(released.counts * n_records), 1).astype(np.intp)
    codes = np.repeat(np.arange(len(sizes)), np.maximum(sizes, _FEWEST))
    drawn = declared.codes_of(released.units_of(codes, rng), rng)
    groups = Groups(declared.groups.names, codes, sizes, declared.groups.number)
    return KnownRows(settings, declared.columns, declared.box, drawn, groups, rng)
