"""The sketch of a table: its parameters, its release, and what was released."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from skdpot._sklearn_compat import Interval, validate_parameters
from skdpot.generative._records import (
    Declared,
    check_count,
    read_classes,
    read_codes,
    read_each,
    wanted_labels,
)
from skdpot.generative._score import SCORED_ROWS, sinkhorn_divergence
from skdpot.generative._sketch.cell_groups import merge_cells
from skdpot.generative._sketch.expected_errors import expected_errors
from skdpot.generative._sketch.file_parts import part_of, with_kinds, with_prefix
from skdpot.generative._sketch.held_out import (
    HeldOutRows,
    Judged,
    cells_of_model,
    expected_report_error,
    held_out_plans,
    hold_out,
    n_held_out,
    read_held_out,
    release_held_out,
)
from skdpot.generative._sketch.inference import draw_models
from skdpot.generative._sketch.marginals import release_marginals, share_marginals
from skdpot.generative._sketch.noisy_counts import noise_of_counts, released_size
from skdpot.generative._sketch.parities import (
    MOST_PARITIES,
    PARITY_SIZES,
    are_scanned,
    count_subsets,
)
from skdpot.generative._sketch.plan import (
    PlannedRelease,
    SketchBudget,
    SketchSeries,
    check_noise,
    sketch_budget,
)
from skdpot.generative._sketch.table_model import class_shares, fit_table, sample_units
from skdpot.generative._sketch.table_rows import TableRows, WantedRows, check_rules, draw_rows
from skdpot.generative._sketch.workload import Workload, read_workload
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.quotes import shown
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import (
    CONTAINERS,
    Column,
    Rules,
    Table,
    TableSchema,
    read_rules,
    read_schema,
    read_units,
    schema_from_plain,
    write_table,
)

# The target beside tables: no column has this name.
_LABELS = object()
# Different categories are as far from each other as both ends of the range of a number.
_HALF_RANGE = 2**-0.5
# The largest count in a file, with its noise.
_LARGEST = 2.0**53
# Arrays of a model in a file, and their types.
_ARRAYS = {
    **dict.fromkeys(("n_cells", "starts", "stops", "classes"), np.int64),
    **dict.fromkeys(("weights", "cells"), np.float64),
}
# Arrays of released statistics in a file, and their types.
_STATISTICS = {
    **dict.fromkeys(("n_cells", "starts", "stops", "groups"), np.int64),
    **dict.fromkeys(("counts", "pairs", "deviations"), np.float64),
}
_PARITY_ARRAYS = {
    **dict.fromkeys(("halves", "largest_parity"), np.int64),
    **dict.fromkeys(("parities", "parity_deviation"), np.float64),
}
# Statistics that are computed from these, and are only used for the fit of a model.
_FIT_ONLY = ("totals", "tails")
# Totals of all classes are released if the noise multiplier is above this. With less noise, counts
# within classes are precise enough, and matter more to models.
_NOISE_OF_TOTALS = 1.0
_STATISTICS_PREFIX, _HELD_OUT_PREFIX = "statistics.", "held_out."
_WORKLOAD_ARRAYS = dict.fromkeys(("column_weights", "pair_weights"), np.float64)
_JOINT_ARRAYS = {
    **dict.fromkeys(("joint_columns", "joint_parts"), np.int64),
    **dict.fromkeys(("joint_weights", "joints"), np.float64),
}


class TableSketch(BaseEstimator):
    """A sketch of a table: counts of pairs of columns, and a mixture fitted to them.

    Parameters
    ----------
    n_components : int, default=400
        Number of components of all mixtures together. Half of them are divided equally among the
        classes of the target, the others in proportion to class size.
    n_iter : int, default=600
        Number of steps of the fit of a mixture to the released counts.
    quality_share : float, default=0.0
        Probability with which each record is held out of the sketch, independently, for
        :meth:`DPSinkhornGenerator.quality <skdpot.DPSinkhornGenerator.quality>`. The sketch has
        fewer records, but no budget is spent. At most 0.5. With groups, people are held out, with
        all their rows.
    workload : dict or list, default=None
        Public. Columns, or tuples of columns, whose counts need less noise: a dict from names or
        tuples of names to weights above 0. In a list, each has the weight 10. Counts with weight
        `w` have noise that is smaller by a factor ``sqrt(w)``, and all other counts have more
        noise than without a workload. Tuples of three to five columns are counted together, and
        the model is fitted to these counts. All counts are made for each class of the target; with
        groups the target is one of the columns.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator, which takes it as `model`.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import TableSketch
    >>> generator = DPSinkhornGenerator(
    ...     schema={"age": range(18, 80), "sex": ["F", "M"]}, model=TableSketch(n_components=100)
    ... )
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "quality_share": [Interval(Real, 0, 0.5, closed="both")],
        # Its names are those of a schema, so that it is read with the plan.
        "workload": "no_validation",
    }

    def __init__(self, n_components=400, *, n_iter=600, quality_share=0.0, workload=None):
        self.n_components = n_components
        self.n_iter = n_iter
        self.quality_share = quality_share
        self.workload = workload

    def _check(self, declared: Declared) -> None:
        """Raise where parameters are wrong."""
        validate_parameters(self)

    def _read(
        self, estimator: Any, X: Any, y: Any, declared: Declared, *, reset: bool
    ) -> "TableRecords":
        """Return a private table, or raise."""
        space = self._space_of(X, y, declared)
        return TableRecords(space, space.read(estimator, X, y, reset=reset))

    def _space_of(self, X: Any, y: Any, declared: Declared) -> "TableSpace":
        """Return what a table is declared to hold, with the types that a frame has, or raise."""
        table = Table(X)
        space = _read_space(declared, table.container, apart=y is not None)
        return replace(space, schema=space.schema.typed(table))

    def _unseen(self, declared: Declared, columns: Any) -> "TableRecords":
        """Return no records of the declared table, or raise."""
        space = _read_space(declared, "array", apart=declared.classes is not None)
        return TableRecords(space, np.empty((0, 0)))

    def _plan(
        self, space: "TableSpace", budget: SketchBudget, training: Any,
        progress: Callable[..., Any],
    ) -> "TableReleases":  # fmt: skip
        """Return the release, or raise; no record is looked at."""
        workload = self._read_workload(space.schema, training)
        release = TableReleases(
            space, budget, int(self.n_components), int(self.n_iter), progress,
            quality_share=float(self.quality_share), workload=workload,
        )  # fmt: skip
        held_out = held_out_plans(space.schema) if self.quality_share else []
        check_noise(budget, release.planned, *held_out)
        return release

    def _read_workload(self, schema: TableSchema, training: Any) -> Workload | None:
        """Return the workload, or raise; a network raises, too."""
        if training is not None:
            raise ValueError("network is for vectors and images, and a table has a schema.")
        return None if self.workload is None else read_workload(self.workload, schema)


@dataclass(frozen=True)
class TableSpace:
    """What a table is declared to hold: public.

    Parameters
    ----------
    schema : TableSchema
        Target included.
    container : str
        What tables are held by.
    apart : bool
        Whether the target is no column of tables, and goes beside them.
    rules : Rules
        That hold in every row that is drawn. Columns which they compute are not learned.
    named : bool, default=False
        Whether a target that goes beside tables is declared in their schema.
    """

    schema: TableSchema
    container: str
    apart: bool
    rules: Rules = Rules()
    named: bool = False

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
        """Return what a file says of a table, or raise."""
        schema, container, apart = (header[name] for name in ("schema", "container", "apart"))
        named = header.get("named", False)
        schema = schema_from_plain(schema)
        rules = read_rules(header.get("rules"), schema)
        schema = schema.computing(rules.computed)
        if (
            container not in CONTAINERS
            or apart not in (False, True)
            or named not in (False, True)
            or (apart and schema.target != len(schema.columns) - 1)
            or (named and not apart)
            or (apart and schema.has_bands and not named)
        ):
            raise ValueError("the file does not hold a sketch of a table.")
        return cls(schema, container, apart, rules, named)

    def read(self, estimator: Any, X: Any, y: Any, *, reset: bool) -> np.ndarray:
        """Return the values of a table as whole numbers, or raise."""
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
        units = read_units(X, self.table_schema)
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        if schema.target is None or not self.apart:
            return units
        target = schema.columns[schema.target]
        if self.named:
            codes = read_units(read_each(y, len(units))[:, None], TableSchema((target,)))[:, 0]
        else:
            codes = read_codes(y, read_classes(target.values)[1], len(units))
        return np.column_stack([units, codes])


@dataclass(frozen=True, eq=False)
class TableRecords:
    """A private table that was read: `points` has a row of whole numbers for each record."""

    space: TableSpace
    points: np.ndarray


@dataclass(frozen=True)
class TableReleases(SketchSeries):
    """The releases of a sketch of a table: public."""

    space: TableSpace
    budget: SketchBudget
    n_components: int
    n_iter: int
    progress: Callable[..., Any]
    # Whether classes are the groups of a map, which what noise makes of them would show.
    pooled: bool = False
    quality_share: float = 0.0
    workload: Workload | None = None

    label = "a sketch of a table"

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the counts of columns, and of pairs of columns."""
        n_sketched = max(round(n_records * (1 - self.quality_share)), 1)
        errors = expected_errors(
            n_sketched, self.space.schema, self._releases(None), self.workload,
            totals=self._options["totals"],
        )  # fmt: skip
        if self.quality_share:
            n_judges = n_records * self.quality_share
            errors += (expected_report_error(n_judges, self.space.schema, self.budget),)
        if not self.pooled:
            return errors
        quantity = "AUC above 1/2 that the noise of a map may give groups away by"
        return (*errors, ExpectedError(quantity, self.shown_by_noise(n_records), 0.5))

    def shown_by_noise(self, n_records: int) -> float:
        """Return by how much the AUC is above 1/2 that errors reveal a class of average size by."""
        schema = self.space.schema
        share_noise = self.noise_of_counts * schema.n_classes / n_records
        return 2 * math.sqrt(len(schema.features)) * share_noise

    @property
    def noise_of_counts(self) -> float:
        """Return the standard deviation of the noise of the counts of single columns."""
        return noise_of_counts(self.space.schema, self._releases(None), self.workload)

    def run(self, records: Any, source: Any) -> "ReleasedTable":
        """Release the counts of the points of records, and fit the model to them."""
        schema, shares = self.space.schema, self._shares
        releases, points = self._releases(source), records.points
        uses = hold_out(len(points), self.quality_share, source)
        # One step for each release, and one for the fit of the model.
        with self.progress(total=len(shares) + 1, unit=" parts") as bar:
            sketched = points[uses == 0]
            released = release_marginals(sketched, schema, releases, **self._options)
            bar.update(len(shares))
            model = fit_table(released, schema, self.n_components, self.n_iter, pooled=self.pooled)
            bar.update()
        statistics = {name: array for name, array in released.items() if name not in _FIT_ONLY}
        table = ReleasedTable(self.space, model, released_size(released), statistics)
        if not self.quality_share:
            return table
        teachers, counted = (HeldOutRows(points[uses == use]) for use in (1, 2))
        held_out = release_held_out(teachers, counted, table.judged, self.budget, source)
        return replace(table, held_out=held_out)

    def _releases(self, source: Any) -> SketchReleases:
        budget = self.budget
        return SketchReleases(budget.noise_multiplier, self._shares, budget.neighbouring, source)

    @property
    def planned(self) -> dict[str, PlannedRelease]:
        """Return the releases, with bounds of their sensitivities."""
        # A record is in at most one table for each column, pair of columns, and wanted joint.
        n_wanted = 0 if self.workload is None else len(self.workload.joints)
        n_tables = max(len(self.space.schema.columns) ** 2 + n_wanted, MOST_PARITIES)
        bound = partial(cell_count_sensitivity, n_tables=n_tables)
        return {name: PlannedRelease(share, bound) for name, share in self._shares.items()}

    @property
    def _shares(self) -> dict[str, float]:
        """Return the shares of the budget."""
        return share_marginals(self.space.schema, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        """Return what is released; classes that are groups of a map need no parities or totals."""
        apart = not self.pooled
        totals = apart and self.budget.noise_multiplier > _NOISE_OF_TOTALS
        return {"parities": apart, "totals": totals, "workload": self.workload}


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
        Of `release_marginals`: what the model was fitted to. Files of earlier versions have none.
    held_out : mapping of str to ndarray, default=None
        Of `release_held_out`, where records were held out.
    """

    space: TableSpace
    model: Mapping[str, np.ndarray]
    n_records: int
    statistics: Mapping[str, np.ndarray] | None = None
    held_out: Mapping[str, np.ndarray] | None = None

    network = None

    @property
    def declaration(self) -> dict[Any, Any]:
        """Return the schema as a generator is given it."""
        return self.space.declaration

    @property
    def classes(self) -> np.ndarray | None:
        """Return the labels of the target; None where there is none."""
        return self.space.classes

    @property
    def counts(self) -> np.ndarray:
        """Return the share of the records that each class has."""
        return class_shares(self.model, self.space.schema.n_classes)

    @property
    def n_in_all(self) -> int:
        """Return about how many records there are, with those that were held out."""
        return self.n_records + n_held_out(self.held_out)

    @property
    def counted(self) -> tuple[TableSchema, Mapping[str, np.ndarray]]:
        """Return the columns that were counted, and the model of these."""
        return self.space.schema, self.model

    @property
    def known_statistics(self) -> Mapping[str, np.ndarray]:
        """Return the released statistics, or raise where a file does not hold them."""
        if self.statistics is None:
            raise ValueError(
                "the generator is of a file of an earlier version, which does not hold the counts "
                "that were released, but what was made of them only: fit it again."
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

    @property
    def judged(self) -> Judged:
        """Return the samples that the held-out records judge."""
        schema = self.space.schema
        return Judged(schema, self.draw, cells_of_model(self.model, schema))

    def units_of(self, codes: np.ndarray, rng: Any) -> np.ndarray:
        """Return a record of each of these classes, as whole numbers."""
        return sample_units(self.model, self.space.schema, len(codes), rng, None, codes)

    def draw(self, n_samples: int, rng: Any) -> np.ndarray:
        """Return records as whole numbers, target included; rules are ignored if none keeps them.

        The budget of the release has been spent, and an error would lose it.
        """
        try:
            return self._rows(n_samples, rng, None, None).units
        except ValueError:
            return sample_units(self.model, self.space.schema, n_samples, rng)

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

    def sample_sets(self, n_sets: Any, n_samples: Any, y: Any, given: Any, rng: Any) -> list[Any]:
        """Return tables, each of a model that may be the one of the population."""
        if not isinstance(n_sets, Integral) or isinstance(n_sets, bool) or n_sets < 2:
            raise ValueError(f"n_sets must be an integer of at least 2, got {shown(n_sets)}.")
        models = draw_models(
            self.known_statistics, self.space.schema, self.n_records, int(n_sets), rng
        )
        # Sampling errors are part of the intervals that sets are used for.
        return [
            replace(self, model=model)._sample(n_samples, y, given, rng, evenly=False)
            for model in models
        ]

    def score(
        self, estimator: Any, X: Any, y: Any, reg: float, rng: Any, device: Any = None
    ) -> float:
        """Return minus the Sinkhorn divergence of generated records from given ones."""
        schema = self.space.schema
        units = self.space.read(estimator, X, y, reset=False)
        units = units[rng.permutation(len(units))[:SCORED_ROWS]]
        labels = None if schema.target is None else schema.classes_of(units[:, schema.target])
        samples = self._rows(len(units), rng, None, labels).units
        points, sampled = (table_points(rows, schema) for rows in (units, samples))
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
        """Return what a file holds of the release beside the model."""
        count_arrays = with_prefix(self.statistics, _STATISTICS_PREFIX)
        return count_arrays | with_prefix(self.held_out, _HELD_OUT_PREFIX)

    @classmethod
    def from_file(
        cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_records: Any
    ) -> "ReleasedTable":
        """Return the sketch of a file, or raise."""
        space = TableSpace.from_file(header)
        schema = space.schema
        model = with_kinds(arrays, _ARRAYS)
        if not _is_model(schema, **model):
            raise ValueError("the file does not hold a sketch of a table.")
        further = read_further(arrays, len(model), schema, schema, n_records)
        return cls(space, model, n_records, **further)


def plan_table(
    schema: TableSchema,
    epsilon: float,
    delta: float,
    neighbouring: str,
    progress: Callable[..., Any],
) -> TableReleases:
    """Return the release of the sketch of a table, or raise; for other parts of the package.

    Parameters
    ----------
    schema : TableSchema
        What the table is declared to hold; its target is what all columns depend on.
    epsilon, delta : float
        Budget, of which all is spent.
    neighbouring : {"add_remove", "replace_one"}
        What a neighbour of the table is.
    progress : callable
        Makes a progress bar, as tqdm does.

    Returns
    -------
    TableReleases
        Its ``event`` is charged, then ``run(records, source)`` returns a `ReleasedTable`. Of
        `records` it reads the attribute ``points``, as of `TableRecords`. Records that are not
        declared may be left out there: they count nowhere then.

    Raises
    ------
    ValueError
        If epsilon is too small: that depends on public quantities only.

    Examples
    --------
    >>> from tqdm import tqdm
    >>> from skdpot.generative import plan_table
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"age": range(18, 80), "sex": ["F", "M"]}, "sex")
    >>> plan_table(schema, 1.0, 1e-5, "replace_one", tqdm).label
    'a sketch of a table'
    """
    space = TableSpace(schema, "array", False)
    budget = sketch_budget(epsilon, delta, neighbouring)
    model = TableSketch()
    release = TableReleases(space, budget, model.n_components, model.n_iter, progress, pooled=True)
    check_noise(budget, release.planned)
    return release


def _read_space(declared: Declared, container: str, *, apart: bool) -> TableSpace:
    """Return what a table is declared to hold, or raise."""
    declared.refuse("a table", "image_shape")
    if declared.schema is None:
        raise ValueError(
            "TableSketch is for tables, and needs a schema: declare schema={column: ...}."
        )
    if declared.bounds is not None:
        raise ValueError("bounds are for records without a schema. Give them in the schema.")
    features = read_schema(declared.schema, declared.target)
    named = apart and declared.classes is None and features.target is not None
    if not named and apart != (declared.classes is not None):
        raise ValueError(
            "y and classes go together: give the labels of records as y, and all labels that "
            "there may be as classes=[...]. Or declare y in the schema, and name it as target; "
            "without y it is a column of the table."
        )
    rules = read_rules(declared.rules, features)
    features = features.computing(rules.computed)
    check_rules(features, rules)
    if not apart:
        return TableSpace(features, container, False, rules)
    if named:
        return TableSpace(_with_target_last(features), container, True, rules, named=True)
    if declared.target is not None:
        raise ValueError("target is of the schema, and classes are of a y that is not: use one.")
    plain, name = features.plain()["columns"], "y"
    while name in {column["name"] for column in plain}:
        name += "_"
    labels = {"name": name, "categories": read_classes(declared.classes)[0].tolist()}
    schema = schema_from_plain({"columns": [*plain, labels], "target": name})
    return TableSpace(schema.computing(rules.computed), container, True, rules)


def _with_target_last(schema: TableSchema) -> TableSchema:
    """Return the schema with the target as the last column."""
    target = schema.columns[schema.target or 0]
    features = [column for column in schema.declared if column is not target]
    computed = [column.name for _, column in schema.others if isinstance(column, Column)]
    plain = [column.plain() for column in (*features, target)]
    reordered = schema_from_plain({"columns": plain, "target": target.name})
    return reordered.computing(computed)


def read_further(
    arrays: Mapping[str, np.ndarray], n_others: int, counted: TableSchema, judged: TableSchema,
    n_records: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return what a file holds beside the arrays of a model, or raise.

    These are the statistics of the columns that were counted, and those of held-out records.
    """
    statistics = part_of(arrays, _STATISTICS_PREFIX)
    held_out = part_of(arrays, _HELD_OUT_PREFIX)
    if len(arrays) != n_others + len(statistics) + len(held_out):
        raise ValueError("the file does not hold a sketch of a table.")
    if not statistics:
        return {}
    kinds = dict(_STATISTICS)
    for name, further in (
        ("parities", _PARITY_ARRAYS), ("pair_weights", _WORKLOAD_ARRAYS), ("joints", _JOINT_ARRAYS),
    ):  # fmt: skip
        kinds |= further if name in statistics else {}
    statistics |= with_kinds(statistics, kinds)
    if (
        statistics.keys() != kinds.keys()
        or not _are_statistics(counted, statistics)
        or n_records != released_size(statistics)
    ):
        raise ValueError("the file does not hold what was released of a table.")
    return {"statistics": statistics, "held_out": read_held_out(judged, held_out)}


def _are_statistics(schema: TableSchema, statistics: Mapping[str, np.ndarray]) -> bool:
    """Tell whether arrays are released statistics of a table, to which a model can be fitted."""
    n_cells, starts, stops, groups, counts, pairs, deviations = (
        statistics[name] for name in _STATISTICS
    )
    if not (
        are_cells(schema, n_cells, starts, stops)
        and counts.shape == (len(starts), schema.n_classes)
        and groups.shape == starts.shape
        and all((np.abs(array) <= _LARGEST).all() for array in statistics.values())
    ):
        return False
    column_groups = np.split(groups, np.cumsum(n_cells)[:-1])
    if any(set(column) != set(range(len(set(column)))) for column in column_groups):
        return False
    sizes = [int(column.max()) + 1 for column in column_groups]
    n_pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    return (
        pairs.shape == (n_pairs * schema.n_classes,)
        and deviations.shape in ((2,), (4,))
        and bool((deviations >= 0).all() and (deviations[2:] > 0).all())
        and ("parities" not in statistics or _are_parities(schema, sum(sizes), statistics))
        and ("pair_weights" not in statistics or _are_weights(schema, statistics))
        and ("joints" not in statistics or _are_joints(schema, sizes, statistics))
    )


def _are_weights(schema: TableSchema, statistics: Mapping[str, np.ndarray]) -> bool:
    """Tell whether arrays are the weights of columns and of pairs."""
    column_weights, pair_weights = (statistics[name] for name in _WORKLOAD_ARRAYS)
    n = len(schema.features)
    shapes_fit = column_weights.shape == (n,) and pair_weights.shape == (n * (n - 1) // 2,)
    return shapes_fit and bool((column_weights > 0).all() and (pair_weights > 0).all())


def _are_joints(
    schema: TableSchema, sizes: Sequence[int], statistics: Mapping[str, np.ndarray]
) -> bool:
    """Tell whether arrays are counts of more than two columns, of groups of these sizes."""
    columns, parts, weights, joints = (statistics[name] for name in _JOINT_ARRAYS)
    if not (
        columns.ndim == 2
        and weights.shape == (len(columns),)
        and (weights > 0).all()
        and parts.shape == (len(columns), sum(sizes))
        and ((columns >= -1) & (columns < len(sizes))).all()
    ):
        return False
    n_counts = 0
    for joint, group_parts in zip(columns, parts, strict=True):
        column_parts = np.split(group_parts, np.cumsum(sizes)[:-1])
        if any(set(part) != set(range(len(set(part)))) for part in column_parts):
            return False
        n_counts += math.prod(len(set(column_parts[j])) for j in joint[joint >= 0])
    return joints.shape == (n_counts * schema.n_classes,)


def _are_parities(schema: TableSchema, n_groups: int, statistics: Mapping[str, np.ndarray]) -> bool:
    """Tell whether arrays are the parities of a table with so many groups of cells."""
    halves, largest, parities, deviation = (statistics[name] for name in _PARITY_ARRAYS)
    n_columns = len(schema.features)
    if not (
        set(halves.tolist()) <= {0, 1}
        and halves.shape == (n_groups,)
        and largest.shape == deviation.shape == (1,)
        and deviation[0] >= 0
        and are_scanned(n_columns)
        and largest[0] in PARITY_SIZES[: n_columns - 2]
    ):
        return False
    n_subsets = count_subsets(n_columns, int(largest[0]))
    return parities.shape == (n_subsets, schema.n_classes)


def are_cells(
    schema: TableSchema, n_cells: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> bool:
    """Tell whether arrays are cells of the columns of a table but the target."""
    columns = [schema.columns[j] for j in schema.features]
    # The order of checks matters: shapes are checked before entries are read.
    if (
        n_cells.shape != (len(columns),)
        or not columns
        or starts.ndim != 1
        or not ((n_cells > 0) & (n_cells <= len(starts))).all()
        or not starts.shape == stops.shape == (n_cells.sum(),)
    ):
        return False
    # The cells of a column have all its units, in order.
    lasts = np.cumsum(n_cells) - 1
    expected = np.append(0, stops[:-1])
    expected[lasts[:-1] + 1] = 0
    n_units = [column.n_units for column in columns]
    return bool(
        (starts == expected).all() and (starts < stops).all() and (stops[lasts] == n_units).all()
    )


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
    if (
        not are_cells(schema, n_cells, starts, stops)
        or weights.ndim != 1
        or weights.shape != classes.shape
        or cells.shape != (len(weights), len(starts))
    ):
        return False
    column_sums = np.add.reduceat(cells, np.cumsum(n_cells) - n_cells, axis=1)
    return bool(
        ((classes >= 0) & (classes < schema.n_classes)).all()
        and (weights >= 0).all()
        and np.isclose(weights.sum(), 1)
        and (cells >= 0).all()
        and np.allclose(column_sums, 1)
    )


def table_points(units: np.ndarray, schema: TableSchema) -> np.ndarray:
    """Return records as points whose squared distances are sums of differences of columns.

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
