"""The sketch of a table: its parameters, its release, and what was released."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from skdpot._sklearn_compat import Interval, validate_parameters
from skdpot.generative._records import (
    DEFAULT_BOUNDS,
    Declared,
    check_count,
    read_classes,
    read_codes,
    wanted_labels,
)
from skdpot.generative._score import SCORED_ROWS, sinkhorn_divergence
from skdpot.generative._sketch.marginals import (
    expected_errors,
    merge_cells,
    noise_of_counts,
    release_marginals,
    released_size,
    share_marginals,
)
from skdpot.generative._sketch.plan import (
    PlannedRelease,
    SketchBudget,
    SketchSeries,
    check_noise,
    sketch_budget,
)
from skdpot.generative._sketch.table_model import class_shares, fit_table, sample_units
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import (
    CONTAINERS,
    TableSchema,
    container_of,
    read_columns,
    read_schema,
    schema_from_plain,
    shown,
    write_table,
)

# A category that differs is as far as a number at the other end of its range.
_HALF_RANGE = 2**-0.5
# Whole numbers, and others, of a model in a file.
_ARRAYS = {
    **dict.fromkeys(("n_cells", "starts", "stops", "classes"), np.int64),
    **dict.fromkeys(("weights", "cells"), np.float64),
}


class TableSketch(BaseEstimator):
    """A sketch of a table: counts of pairs of columns, and a mixture that is fitted to them.

    Parameters
    ----------
    n_components : int, default=400
        Of all mixtures together: half of them evenly for all classes of the target, the others by
        the sizes of these.
    n_iter : int, default=600
        Number of steps by which a mixture is fitted to what was released.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator whose `model` it is.

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
    }

    def __init__(self, n_components=400, *, n_iter=600):
        self.n_components = n_components
        self.n_iter = n_iter

    def _check(self, declared: Declared) -> None:
        """Raise where parameters are wrong."""
        validate_parameters(self)

    def _read(
        self, estimator: Any, X: Any, y: Any, declared: Declared, *, reset: bool
    ) -> "TableRecords":
        """Return a private table, or raise."""
        space = _read_space(declared, container_of(X), apart=y is not None)
        return TableRecords(space, space.read(estimator, X, y, reset=reset))

    def _unseen(self, declared: Declared, columns: Any) -> "TableRecords":
        """Return no records of the declared table, or raise."""
        space = _read_space(declared, "array", apart=declared.classes is not None)
        return TableRecords(space, np.empty((0, 0)))

    def _plan(
        self, space: "TableSpace", budget: SketchBudget, training: Any,
        progress: Callable[..., Any],
    ) -> "TableReleases":  # fmt: skip
        """Return the release, or raise; no record is looked at."""
        if training is not None:
            raise ValueError("network is for vectors and images, and a table has a schema.")
        check_noise(budget, _planned_marginals(space.schema))
        return TableReleases(space, budget, int(self.n_components), int(self.n_iter), progress)


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
    """

    schema: TableSchema
    container: str
    apart: bool

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

    def read(self, estimator: Any, X: Any, y: Any, *, reset: bool) -> np.ndarray:
        """Return the values of a table as whole numbers, or raise."""
        if self.apart != (y is not None):
            raise ValueError(
                "y must be given if classes were declared, and only then: with one label for each "
                "row of X."
            )
        schema = self.schema
        features = schema.without_target() if self.apart else schema
        columns = read_columns(X, features)
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        units = features.encode(columns)
        if schema.target is None or not self.apart:
            return units
        number = read_classes(schema.columns[schema.target].values)[1]
        return np.column_stack([units, read_codes(y, number, len(units))])


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

    label = "a sketch of a table"

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of what the counts tell of columns, and of pairs of them."""
        errors = expected_errors(n_records, self.space.schema, self._releases(None))
        if not self.pooled:
            return errors
        what = "AUC above 1/2 that the noise of a map may give groups away by"
        return (*errors, ExpectedError(what, self.shown_by_noise(n_records), 0.5))

    def shown_by_noise(self, n_records: int) -> float:
        """Return by about how much errors of all columns of a class of average size show it."""
        schema = self.space.schema
        of_share = self.noise_of_counts * schema.n_classes / n_records
        return 2 * math.sqrt(len(schema.features)) * of_share

    @property
    def noise_of_counts(self) -> float:
        """Return the standard deviation of the noise of the counts of single columns."""
        return noise_of_counts(self.space.schema, self._releases(None))

    def run(self, records: Any, source: Any) -> "ReleasedTable":
        """Release the counts of the points of records, and fit the model to them."""
        schema, shares = self.space.schema, share_marginals(self.space.schema)
        releases = self._releases(source)
        # All releases, and the model of them.
        with self.progress(total=len(shares) + 1, unit=" parts") as bar:
            released = release_marginals(records.points, schema, releases)
            bar.update(len(shares))
            model = fit_table(released, schema, self.n_components, self.n_iter, pooled=self.pooled)
            bar.update()
        return ReleasedTable(self.space, model, released_size(released))

    def _releases(self, source: Any) -> SketchReleases:
        budget, shares = self.budget, share_marginals(self.space.schema)
        return SketchReleases(budget.noise_multiplier, shares, budget.neighbouring, source)


@dataclass(frozen=True)
class ReleasedTable:
    """What was released of a table, and how tables are made of it.

    Parameters
    ----------
    space : TableSpace
        Public.
    model : mapping of str to ndarray
        Of `fit_table`.
    n_records : int
        About how many records there are.
    """

    space: TableSpace
    model: Mapping[str, np.ndarray]
    n_records: int

    network = None

    @property
    def classes(self) -> np.ndarray | None:
        """Return the labels of the target; None where there is none."""
        return self.space.classes

    @property
    def counts(self) -> np.ndarray:
        """Return what part of the records each class has."""
        return class_shares(self.model, self.space.schema.n_classes)

    def merged_cells(self, least: float) -> list[tuple[np.ndarray, ...]]:
        """Return the cells of every column but the target, and which of them go together.

        Of each it is where the units of cells start and stop, their shares of all records, and the
        groups of consecutive ones that have about so large a share at least.
        """
        model = self.model
        shares = model["weights"] @ model["cells"]
        ends = np.cumsum(model["n_cells"])[:-1]
        of_columns = [np.split(part, ends) for part in (model["starts"], model["stops"], shares)]
        return [(*cells, merge_cells(cells[-1], least)) for cells in zip(*of_columns, strict=True)]

    def units_of(self, codes: np.ndarray, rng: Any) -> np.ndarray:
        """Return a record of each of these classes, as whole numbers."""
        return self._units(len(codes), rng, None, codes)

    def sample(self, n_samples: Any, y: Any, given: Any, rng: Any, device: Any = None) -> Any:
        """Return a table of records, and their labels where these are no column of it."""
        codes = None if y is None else wanted_labels(n_samples, y, self.classes, rng)
        n_samples = check_count(n_samples) if codes is None else len(codes)
        units, schema = self._units(n_samples, rng, given, codes), self.space.schema
        labels = None
        if self.space.apart and self.classes is not None:
            labels = self.classes[units[:, schema.target]]
            units, schema = units[:, schema.features], schema.without_target()
        of_columns = {name: of for name, of in (given or {}).items() if name in schema.names}
        values = schema.decode(units, rng.uniform(size=units.shape), of_columns)
        table = write_table(self.space.container, schema, values)
        return table if labels is None else (table, labels)

    def score(
        self, estimator: Any, X: Any, y: Any, reg: float, rng: Any, device: Any = None
    ) -> float:
        """Return minus how far generated records are from given ones."""
        schema = self.space.schema
        units = self.space.read(estimator, X, y, reset=False)
        units = units[rng.permutation(len(units))[:SCORED_ROWS]]
        labels = None if schema.target is None else units[:, schema.target]
        made = self._units(len(units), rng, None, labels)
        rows, columns = (table_points(of, schema) for of in (made, units))
        return -sinkhorn_divergence(rows, columns, reg=reg)

    def _units(self, n_samples: int, rng: Any, given: Any, codes: Any) -> np.ndarray:
        """Return records under conditions, target included, as whole numbers."""
        conditions = self._conditions(given, codes is not None)
        return sample_units(self.model, self.space.schema, n_samples, rng, conditions, codes)

    def _conditions(self, given: Any, labelled: bool) -> Mapping[Any, Any]:
        """Return conditions by the names of columns, or raise."""
        given = {} if given is None else given
        names = list(self.space.declaration)
        if not isinstance(given, Mapping):
            raise ValueError(
                f"given must be a dictionary of conditions by the name of a column, among {names}, "
                f"such as given={{{names[0]!r}: value}}; got {shown(given)}."
            )
        unknown = [shown(name) for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"given has a condition on {', '.join(unknown)}, and the table has no such column. "
                f"Its columns are {names}."
            )
        if labelled and self.space.target is not None and self.space.target in given:
            raise ValueError("given has a condition on the target, for which y asks: use one.")
        return given

    def to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return a header that JSON can hold, and arrays."""
        space = self.space
        header = {
            "schema": space.schema.plain(), "container": space.container, "apart": space.apart,
        }  # fmt: skip
        return {"table": header}, dict(self.model)

    @classmethod
    def from_file(
        cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_records: Any
    ) -> "ReleasedTable":
        """Return the sketch of a file, or raise."""
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
        return cls(TableSpace(schema, container, apart), model, n_records)


def plan_table(
    schema: TableSchema,
    epsilon: float,
    delta: float,
    neighbouring: str,
    progress: Callable[..., Any],
) -> TableReleases:
    """Return the release of the sketch of a table, or raise; for other rooms of the package.

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
    return replace(TableSketch()._plan(space, budget, None, progress), pooled=True)


def _read_space(declared: Declared, container: str, *, apart: bool) -> TableSpace:
    """Return what a table is declared to hold, or raise."""
    if apart != (declared.classes is not None):
        raise ValueError(
            "y and classes go together: give the labels of records as y, and all labels that "
            "there may be as classes=[...]; or a target that is a column of the table."
        )
    declared.refuse("a table", "image_shape")
    if declared.schema is None:
        raise ValueError(
            "TableSketch is for tables, and needs a schema: declare schema={column: ...}."
        )
    if not np.array_equal(declared.bounds, DEFAULT_BOUNDS):
        raise ValueError("bounds are for records without a schema. Give them in the schema.")
    features = read_schema(declared.schema, declared.target)
    if not apart:
        return TableSpace(features, container, False)
    if declared.target is not None:
        raise ValueError("target names a column of the table, and y goes beside it: use one.")
    name = "y"
    while name in features.names:
        name += "_"
    labels = {"categories": read_classes(declared.classes)[0].tolist()}
    return TableSpace(read_schema({**declared.schema, name: labels}, name), container, True)


def _planned_marginals(schema: TableSchema) -> dict[str, PlannedRelease]:
    """Return the releases of a table's sketch, with bounds of their sensitivities."""
    # A record is in no more tables than there are pairs of columns, and columns.
    most = partial(cell_count_sensitivity, n_tables=len(schema.columns) ** 2)
    return {name: PlannedRelease(share, most) for name, share in share_marginals(schema).items()}


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
