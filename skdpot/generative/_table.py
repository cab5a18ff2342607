"""The sketch of a table: its parameters, and its release.

`release_marginals` has all private steps, in order. Counts are made within each class of the
target, if there is one. A record is in one cell of every table, with or without classes.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._base import warn_of_empty, warn_user
from skdpot._sklearn_compat import Interval, validate_parameters
from skdpot.generative import _counts, _factors, _records, _schema
from skdpot.generative._counts import LEAST_NOISE, CountReleases
from skdpot.generative._draws import ReleasedTable
from skdpot.generative._mixture import fit_table
from skdpot.generative._network import NetworkTraining
from skdpot.generative._records import PrivateRecords, SketchBudget, SketchSeries, TableSpace
from skdpot.privacy.charging import ExpectedError
from skdpot.privacy.checks import check_memory
from skdpot.privacy.noise import NoiseSource
from skdpot.releases import label_threshold
from skdpot.tables import NOMINAL, NUMERIC, Table, TableSchema, person_codes, refuse_other_rows
from skdpot.transport import nearest_distribution


class TableSketch(BaseEstimator):
    """A sketch of a table: counts of pairs of columns, and a mixture fitted to them.

    Parameters
    ----------
    n_components : int, default=400
        Number of components of all mixtures together. Half of them are divided equally among the
        classes of the target, the others in proportion to class size.
    n_iter : int, default=600
        Number of steps of the fit of a mixture to the released counts.

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
    }

    def __init__(self, n_components=400, *, n_iter=600):
        self.n_components = n_components
        self.n_iter = n_iter

    def _check(self, estimator: Any) -> None:
        """Raise where parameters are wrong."""
        validate_parameters(self)

    def _read(
        self, estimator: Any, X: Any, y: Any, *, reset: bool, private: bool, groups: Any = None
    ) -> PrivateRecords:
        """Return a private table, or raise; with `groups`, that of their people."""
        if _schema.is_auto(estimator):
            return _schema.read_open(estimator, X, y, reset=reset)
        user = None
        if groups is not None:
            X, groups, user = _records.taken_out(X, groups)
            refuse_other_rows(X, {"groups": groups}, or_new=True)
        table = Table(X)
        space = _records.read_space(estimator, table.container, apart=y is not None)
        space = replace(space, schema=space.schema.typed(table))
        codes = space.read(estimator, X, y, reset=reset, private=private)
        doubts = _records.doubts_of(estimator, space, table)
        # A row without a person, or with an undeclared value, counts nowhere: an error would tell
        # of it.
        kept = (codes >= 0).all(axis=1)
        if user is None:
            return PrivateRecords(space, codes[kept], len(codes), doubts=doubts)
        persons, names = person_codes(groups, len(codes), leave_out=private)
        kept &= persons >= 0
        space, persons = space.by_person(user), persons[kept]
        return PrivateRecords(space, codes[kept], len(names), persons=persons, doubts=doubts)

    def _unseen(self, estimator: Any, columns: Any, *, by_person: bool = False) -> PrivateRecords:
        """Return no records of the declared table, or raise."""
        if _schema.is_auto(estimator):
            return PrivateRecords(_schema.open_space(estimator, columns), np.empty((0, 0)), 0)
        space = _records.read_space(estimator, "array", apart=estimator.classes is not None)
        table = Table(columns if len(getattr(columns, "shape", ())) == 2 else np.empty((0, 0)))
        doubts = _records.doubts_of(estimator, space, table)
        if by_person:
            space = space.by_person("user")
        return PrivateRecords(space, np.empty((0, 0)), 0, doubts=doubts)

    def _plan(
        self,
        space: TableSpace,
        budget: SketchBudget,
        training: NetworkTraining | None,
        progress: Callable[..., Any],
        *,
        is_found: bool = False,
    ) -> "TableReleases | SchemaReleases":
        """Return the release, or raise; no record is looked at.

        That of a schema which is found (`is_found`) is planned after the charge: it must not raise.
        """
        if training is not None:
            raise ValueError("network is for vectors and images, and a table has a schema.")
        if space.is_open:
            plan = partial(self._plan, training=None, progress=progress, is_found=True)
            return plan_schema(space, budget, plan)
        # With 500 classes, the model of three columns takes 15 seconds.
        n_classes, most_classes = space.schema.n_classes, 1_000
        if n_classes > most_classes and not is_found:
            raise ValueError(
                f"the target has {n_classes:,} classes, and at most {most_classes:,} are possible: "
                "choose another target, or leave it out."
            )
        # All shares and sensitivities are public, so that a refusal tells nothing.
        release = TableReleases(space, budget, int(self.n_components), int(self.n_iter), progress)
        _records.check_noise(budget, release.planned)
        return release


@dataclass(frozen=True)
class TableReleases(SketchSeries):
    """The releases of a sketch of a table: public."""

    space: TableSpace
    budget: SketchBudget
    n_components: int
    n_iter: int
    progress: Callable[..., Any]
    # Whether classes are the groups of a map, which noise in them would reveal.
    pooled: bool = False
    # The number of owners whose sums are added up, each with noise of its own; 0 for a fit.
    n_parts: int = 0

    label = "a sketch of a table"

    def __post_init__(self) -> None:
        schema = self.space.schema
        n_cells = sum(len(_counts.first_edges(schema.columns[j])) for j in schema.features)
        # Of each pair of columns a few groups of cells are counted, or in parts all cells.
        per_cell = 4 * n_cells if self.n_parts else 6 * len(schema.features)
        per_cell = 3 * self.n_components + (8 + per_cell) * schema.n_classes
        what = f"a table of {n_cells:,} categories and cells (classes: {schema.n_classes:,})"
        check_memory(8 * n_cells * per_cell, what, "Declare fewer, such as groups of categories.")

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of counts; of a map, what its errors show of groups alone."""
        if self.pooled:
            # Errors of noise and of chance show a class of average size. What they explain is
            # removed from the release, which halves what is left of them in maps (measured on
            # twelve public tables). Of 26 fits to public tables with more errors than this, none
            # changed a row.
            most_of_map, quantity = 0.1, "AUC above 1/2 that errors of a map may show groups by"
            schema = self.space.schema
            n_columns, class_size = len(schema.features), n_records / schema.n_classes
            by_noise = 2 * math.sqrt(n_columns) * self.noise_of_counts / class_size
            shown = math.hypot(by_noise, math.sqrt(n_columns / class_size)) / 2
            return (ExpectedError(quantity, shown, most_of_map),)
        schema, sums = self.space.schema, self._of_parts()
        return _counts.expected_errors(n_records, schema, sums, totals=self._options["totals"])

    @property
    def noise_of_counts(self) -> float:
        """Return the standard deviation of the noise of the counts of single columns."""
        n_columns = len(self.space.schema.features)
        return _counts.noise_of_tables(self._of_parts(), "values", n_columns)

    def for_parts(self, n_parts: int, columns: Any) -> "TableReleases":
        """Return what each of several owners releases, or raise."""
        schema = self.space.schema
        if refined := [schema.names[j] for j in _counts.refined_columns(schema)]:
            raise ValueError(
                f"parts are counts of single values, of which the columns {refined} have too many: "
                "declare categories, levels or fewer integers for them, such as intervals."
            )
        container = "pandas" if hasattr(columns, "columns") else "array"
        return replace(self, n_parts=n_parts, space=replace(self.space, container=container))

    def counted(self, sums: np.ndarray) -> tuple[np.ndarray, float]:
        """Return what an owner's released sums count, and the standard deviation of the noise."""
        return self._sizes(self._released(None, self._of_parts(sums)))

    def read(self, total: np.ndarray) -> ReleasedTable:
        """Return what is fitted to the sum of all parts."""
        return self._fitted(self._released(None, self._of_parts(total)))

    def run(self, records: PrivateRecords, source: NoiseSource) -> ReleasedTable:
        """Release the counts of the points of records, and fit the model to them."""
        shares, releases = self._shares, self.releases(source)
        # One step for each release, and one for the fit of the model.
        with self.progress(total=len(shares) + 1, unit=" parts") as bar:
            released = self._released(records, releases)
            bar.update(len(shares))
            fitted = self._fitted(released)
            bar.update()
        return fitted

    def _released(
        self, records: PrivateRecords | None, releases: CountReleases
    ) -> dict[str, np.ndarray]:
        """Return what is released of records, or of none."""
        schema = self.space.schema
        options: dict[str, Any] = {**self._options, "by_cell": bool(self.n_parts)}
        if records is None:
            no_codes = np.empty((0, len(schema.columns)), dtype=np.int64)
            return release_marginals(no_codes, schema, releases, **options)
        persons = None if self.space.user is None else records.persons
        return release_marginals(records.values, schema, releases, persons=persons, **options)

    def _fitted(self, released: dict[str, np.ndarray]) -> ReleasedTable:
        """Return the model of released counts, with those that tell of its quality."""
        schema = self.space.schema
        model = fit_table(released, schema, self.n_components, self.n_iter, pooled=self.pooled)
        # How the names of statistics begin that are used only to fit a model.
        fit_only = ("totals", "parit", "max_parity", "halves", "strong", "missing")
        statistics = {name: x for name, x in released.items() if not name.startswith(fit_only)}
        if schema.target is not None:
            warn_of_empty(schema.columns[schema.target].values, *self._sizes(released))
        return ReleasedTable(self.space, model, _counts.released_size(released), statistics)

    def _sizes(self, released: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
        """Return released numbers of records of the classes, and the deviation of their noise."""
        # Each column is counted, and the one with the fewest cells has the least noise.
        n_cells, j = released["n_cells"], released["n_cells"].argmin()
        sizes = np.split(released["counts"], np.cumsum(n_cells)[:-1])[j].sum(axis=0)
        return sizes, self.noise_of_counts * math.sqrt(n_cells[j])

    @property
    def planned(self) -> dict[str, _records.PlannedRelease]:
        """Return the releases, with bounds of their sensitivities."""
        # A record is in at most one table for each column, and for each pair of columns.
        n_tables = max(len(self.space.schema.columns) ** 2, _counts.MOST_PARITIES)
        whole = 1 if self.space.user is None else _records.LARGEST_WEIGHT
        bound = _counts.tables_sensitivity(n_tables, whole, signed=True)
        return {name: (share, bound) for name, share in self._shares.items()}

    @property
    def _shares(self) -> dict[str, float]:
        by_person = self.space.user is not None
        return share_marginals(self.space.schema, **self._options, by_person=by_person)

    @property
    def _options(self) -> dict[str, bool]:
        """Return the release; classes that are groups of a map need no parities or totals."""
        apart = not self.pooled
        # Totals of all classes are released if the noise multiplier is above this. With less noise,
        # counts within classes are precise enough, and matter more to models.
        noise_of_totals = 1.0
        totals = apart and self.budget.noise_multiplier > noise_of_totals
        # Parities are counted by bits, which have no weights; and of halves that a release finds.
        parities = apart and self.space.user is None and not self.n_parts
        return {"parities": parities, "totals": totals}


# The share of the budget, in units of 1 / noise**2, that finds a schema: the noise of what is left
# is larger by 5 %.
SCHEMA_SHARE = 0.1


@dataclass(frozen=True)
class SchemaReleases(SketchSeries):
    """The release of a schema, and then of the sketch of a table with it: public.

    `plan_sketch` returns the releases of the sketch, for its declaration and its share of the
    budget; it is None where the schema is all that is released.
    """

    space: TableSpace
    budget: SketchBudget
    plan_sketch: Callable[[TableSpace, SketchBudget], SketchSeries] | None

    label = "a schema that is found with noise"

    @property
    def _shares(self) -> dict[str, float]:
        """Return that of the counts; if there is a sketch, the rest is kept for it."""
        kept = {} if self.plan_sketch is None else {"sketch": 1 - SCHEMA_SHARE}
        return {"schema": SCHEMA_SHARE} | kept

    @property
    def sensitivity(self) -> Callable[..., float]:
        """Return that of the counts: a record is in one of each column, and in that of all."""
        return _counts.tables_sensitivity(1 + len(self.space.schema.columns))

    @property
    def noise(self) -> tuple[float, int]:
        """Return the standard deviation of a count, and the least noisy count of a category."""
        deviation = self.releases(None).standard_deviation("schema", self.sensitivity)
        n_columns = len(self.space.schema.columns)
        return deviation, label_threshold(deviation, n_columns, self.budget.failure)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        deviation, threshold = self.noise
        # Of this many records with one label, 97 of 100 noisy counts reach the threshold.
        clear = _schema.CLEAR_DEVIATIONS * deviation
        needed = {"number": clear, "category": threshold + 2 * deviation}
        return tuple(
            ExpectedError(f"records that a {what} needs to be found", n, n_records)
            for what, n in needed.items()
        )

    def run(self, records: PrivateRecords, source: NoiseSource) -> ReleasedTable | dict:
        """Return the declaration of what was found, or the sketch of the table with it."""
        schema = self.space.schema
        counted = [_schema.count_column(numbers, labels) for numbers, labels in records.values]
        exact = [np.array([records.n_read]), *(counts for counts, _ in counted)]
        ends = np.cumsum([len(counts) for counts in exact])[:-1]
        noisy = self.releases(source).run("schema", np.concatenate(exact), self.sensitivity)
        (size,), *released = np.split(noisy, ends)
        columns = [
            _schema.found_column(column, counts, labels, size, self.noise)
            for column, counts, (_, labels) in zip(schema.columns, released, counted, strict=True)
        ]
        lost = [c for c in schema.columns if c in columns and c.values != (False, True)]
        advice = "Declare these columns, leave out identifiers, or use more records."
        warn_user(f"nothing was found of {[c.name for c in lost]}. {advice}" if lost else None)
        # Clipped to these, numbers that noise hides do no harm, which draws from all ranges would.
        numbers = [c for c in lost if c.kind == NUMERIC and c.unit is None]
        columns = [replace(c, low=0, high=1) if c in numbers else c for c in columns]
        schema = replace(schema, columns=tuple(columns))
        space = replace(self.space, schema=schema, is_open=False)
        if self.plan_sketch is None:
            return space.declaration
        # Rounded up by more than the error of the root and of the quotient.
        multiplier = self.budget.noise_multiplier / math.sqrt(1 - SCHEMA_SHARE) * (1 + 2.0**-40)
        sketch = self.plan_sketch(space, replace(self.budget, noise_multiplier=multiplier))
        read = zip(columns, records.values, strict=True)
        values = [pair[0] if column.kind == NUMERIC else pair[1] for column, pair in read]
        codes, _ = schema.codes_and_problems(values)
        kept = codes[(codes >= 0).all(axis=1)]
        return sketch.run(PrivateRecords(space, kept, len(codes)), source)


def plan_schema(space: TableSpace, budget: SketchBudget, plan_sketch: Callable) -> SchemaReleases:
    """Return the releases of a schema and of a sketch, or raise; no record is looked at."""
    # With a tenth of delta for labels, thresholds are only some percent higher than with all of it.
    failure = budget.delta / 10
    # With less noise, no release of a sketch exceeds the range of numbers.
    max_multiplier = 2.0**20
    if not failure or budget.noise_multiplier > max_multiplier:
        raise ValueError("epsilon or delta is too small for schema='auto': declare the schema.")
    counts = _records.sketch_budget(budget.epsilon, budget.delta - failure, budget.neighbouring)
    return SchemaReleases(space, replace(counts, delta=budget.delta, failure=failure), plan_sketch)


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
        The declaration of the table; all columns depend on its target.
    epsilon, delta : float
        Budget, which is spent completely.
    neighbouring : {"add_remove", "replace_one"}
        The neighbouring relation.
    progress : callable
        Makes a progress bar, as tqdm does.

    Returns
    -------
    TableReleases
        Its ``event`` is charged, then ``run(records, source)`` returns a `ReleasedTable`. Of
        `records` it reads the attribute ``values``, as of `PrivateRecords`. Records that are not
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
    # A map reads the codes of drawn rows, so the container is of no effect.
    space = TableSpace(schema, "array", False)
    budget = _records.sketch_budget(epsilon, delta, neighbouring)
    model = TableSketch()
    release = TableReleases(space, budget, model.n_components, model.n_iter, progress, pooled=True)
    _records.check_noise(budget, release.planned)
    return release


def share_marginals(
    schema: TableSchema, *, parities: bool = False, totals: bool = False, by_person: bool = False
) -> dict[str, float]:
    """Return the share of the budget of each release of `release_marginals`.

    Parameters
    ----------
    schema : TableSchema
        The declaration of the table.
    parities : bool, default=False
        Whether signs of halves are released: of pairs, with counts of the strong ones, and of
        three and more columns, unless there are too many.
    totals : bool, default=False
        Whether columns are also counted in all classes together, if there are several classes.
    by_person : bool, default=False
        Whether people have several rows, whose numbers are released.

    Returns
    -------
    dict of str to float
        By the name of the release. The sum need not be 1.

    Examples
    --------
    >>> from skdpot.generative._table import share_marginals
    >>> from skdpot.tables import read_schema
    >>> share_marginals(read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]}))
    {'values': 0.3, 'pairs': 0.4}
    """
    n_columns, has_totals = len(schema.features), totals and schema.n_classes > 1
    has_signs = parities and n_columns > 2
    # The noise of signs grows with the number of columns, and wide tables have more for them.
    # Measured on nineteen public tables.
    wide = min(max(n_columns / 20 - 1, 0.0), 1.0)
    # Up to 8 columns have few pairs: strong ones are worth more than all in groups.
    few = min(max(5 - n_columns / 2, 0.0), 1.0)
    shares = {
        # Where columns are also counted in all classes together, this needs less. Measured on 22
        # public tables: with 0.1 for totals, shares of columns are off by a sixth more.
        "values": 0.2 if has_totals else 0.3,
        "totals": 0.25 if has_totals else 0.0,
        **dict.fromkeys(_counts.ROUNDS, 0.02 if _counts.refined_columns(schema) else 0.0),
        "pairs": 0.3 - 0.05 * wide - 0.08 * few if has_signs else 0.4 * (n_columns > 1),
        "signs": 0.06 + 0.08 * wide if has_signs else 0.0,
        "strong": 0.12 + 0.08 * few if has_signs else 0.0,
        "parities": 0.08 if parities and _counts.are_scanned(n_columns) else 0.0,
        "numbers of rows": 0.05 if by_person else 0.0,
    }
    return {name: share for name, share in shares.items() if share}


def release_marginals(
    codes: np.ndarray,
    schema: TableSchema,
    releases: CountReleases,
    *,
    parities: bool = False,
    totals: bool = False,
    by_cell: bool = False,
    persons: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Release the counts of single columns and of all pairs, within each class.

    Parameters
    ----------
    codes : ndarray of shape (n, n_columns), dtype int64
        Private, of `read_codes`.
    schema : TableSchema
        The declaration of the table.
    releases : SketchReleases or SumsOfParts
        With the shares of `share_marginals`.
    parities, totals : bool
        As of `share_marginals`. There are no parities of people.
    by_cell : bool, default=False
        Whether pairs are counted by single cells, and not by groups of cells, which are functions
        of earlier releases. Then all sums are functions of the records alone, if no column is
        refined and there are no parities.
    persons : ndarray of shape (n,), default=None
        Private. The number of the person of each row. None means one row per person.

    Returns
    -------
    dict of str to ndarray
        Released values, and numbers computed from public ones. Columns are all but the target;
        cells are those of all columns, one column after another.

        - ``"n_cells"``: the number of cells of each column.
        - ``"starts"``, ``"stops"``: the range of codes of each cell.
        - ``"counts"`` of shape (n_cells, n_classes): the number of records of each cell, 0 in
          `empty_tails`.
        - ``"groups"``: the group of each cell, from 0 in every column.
        - ``"pairs"``: the number of records in each pair of groups of two columns, by class: the
          tables of shape (n_groups, n_groups, n_classes), one pair of columns after another.
        - ``"deviations"``: of the noise of counts and of pairs. If columns are also counted in all
          classes together, two more follow: of the noise of counts of each class, and of all
          classes, before they were combined in ``"counts"``.
        - ``"parities"`` of shape (n_subsets, n_classes), if they are released: sums of the parities
          of `scanned_subsets`, of up to ``"max_parity"`` columns. ``"halves"`` has the half of
          its column in which each cell is, and ``"parity_deviation"`` that of the noise.
        - ``"strong_pairs"`` of shape (n_strong, 2), if any stand out by their signs: the columns.
          ``"strong_counts"`` has the number of records in each pair of ``"strong_groups"`` of cells
          in all classes together, and ``"strong_deviation"`` that of the noise.
        - ``"missing"`` of shape (n_columns, n_columns), with signs: of `missing_together`.
        - ``"totals"`` of shape (n_cells,): the number of records of all classes in each cell, by
          all counts together, at least 0.
        - With people, ``"sizes"``: of `release_sizes`. All other counts are of people then.

    Notes
    -----
    A record is in one cell of each of the `t` tables of a release, whose sensitivity is
    ``sqrt(t)``; the noise is this times the noise multiplier, over the root of the share. With
    people, each of the `k` rows of a person adds ``LARGEST_WEIGHT // k``, so that a person adds at
    most the weight of a record to each table, and the sensitivity is ``LARGEST_WEIGHT * sqrt(t)``.
    Cells, their groups and strong pairs are functions of earlier releases. A record changes a
    parity by 1, in its class only, and a sum of signs of a pair by at most 1. Where released values
    show that noise would hide all signs, what was kept for them, and for strong pairs, releases the
    same counts of values again, with the same sensitivity.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._table import release_marginals, share_marginals
    >>> from skdpot.tables import read_schema
    >>> from skdpot.privacy.noise import make_source
    >>> from skdpot.releases import SketchReleases
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> codes = np.repeat([[0, 0], [0, 1], [1, 1]], [300, 500, 200], axis=0)
    >>> releases = SketchReleases(1.0, share_marginals(schema), "add_remove", make_source(0))
    >>> released = release_marginals(codes, schema, releases)
    >>> released["counts"].shape, released["pairs"].shape
    ((4, 1), (4,))
    >>> bool(np.abs(np.sort(released["pairs"]) - [0, 200, 300, 500]).max() < 20)
    True
    """
    rows, further = PrivateRows(codes, schema, releases), {}
    if schema.target is not None:
        rows = replace(rows, classes=schema.classes_of(codes[:, schema.target]))
    if persons is not None:
        weights, sizes_of_people = _records.weigh_rows(persons)
        rows = replace(rows, weights=weights, whole=_records.LARGEST_WEIGHT)

    # Where are the values? Cells with many records are cut, in three rounds.
    edges, known = _refine_cells(rows)
    starts = [edge[:-1] for edge in edges]
    cells = list(map(_counts.cells_of_codes, codes[:, schema.features].T, edges))
    rows = replace(rows, cells=cells, starts=starts)

    # How many records of each class are in each cell? And how many of all classes together?
    see_signs = parities and len(cells) > 2
    counts, noise_of_sums, deviations, see_signs = _count_cells(rows, totals, see_signs)
    sums = [count.sum(axis=1) for count in counts]
    # Noise of these sums is independent; that of what they are combined with below is not.
    tails = _counts.empty_tails(sums, starts, schema, [noise.max() for noise in noise_of_sums])
    if persons is not None:
        # How many rows has a person?
        further["sizes"] = _records.release_sizes(sizes_of_people, releases)

    # What do columns tell of each other? Pairs of columns are counted in groups of cells.
    cleared = [np.where(tail, 0.0, count) for tail, count in zip(tails, sums, strict=True)]
    # All columns count the records. Noise may leave less than no records.
    n_records = max(float(_counts.mean_total(cleared)), 1.0)
    noise_of_number = max(noise.max() for noise in noise_of_sums)
    noise_of_number /= math.sqrt(sum(1 / len(count) for count in cleared))
    for column, cell in zip(known, starts, strict=True):
        column.append((np.zeros_like(cell), np.array([n_records]), noise_of_number))
    groups, pairs, pair_noise = _count_groups(rows, cleared, n_records, by_cell=by_cell)
    if pairs:
        sizes, noise = [group.max() + 1 for group in groups], max(pair_noise, LEAST_NOISE)
        margins = _counts.sums_of_pairs(pairs, sizes, schema.n_classes, noise)
        for column, group, margin in zip(known, groups, margins, strict=True):
            column.append((group, *margin))
    if parities and len(cells) > 2:
        signs, means, shares = _signs_of_cells(schema, groups, sums)
    if see_signs:
        # Which pairs are strong?
        blurred = [
            schema.columns[j].kind == NOMINAL and len(start) > len(share)
            for j, start, share in zip(schema.features, starts, shares, strict=True)
        ]
        coarse = [
            _factors.coarse_dependence(pair, shares[a], shares[b], n_records, pair_noise)
            if blurred[a] or blurred[b]
            else 0.0
            for pair, (a, b) in zip(pairs, combinations(range(len(cells)), 2), strict=True)
        ]
        of_cells = groups, sums, noise_of_sums, n_records
        further["missing"], strong = _find_strong(rows, signs, means, coarse, *of_cells)
        if strong:
            further |= _count_strong(rows, strong, cleared, blurred, n_records)
    if parities and _counts.are_scanned(len(cells)):
        # And three and more columns?
        halves = [sign < 0 for sign in signs]
        further |= _sum_parities(rows, np.array(rows.parts(halves)), n_records)
        further["halves"] = np.concatenate(halves).astype(np.int64)

    # From here on, all is computed from released and public numbers.
    missing = _counts.mean_of_missing(sums, noise_of_sums, schema)
    widths = [
        None if schema.columns[j].kind == NOMINAL else np.diff(edge)
        for j, edge in zip(schema.features, edges, strict=True)
    ]
    combined = map(_counts.likely_counts, sums, noise_of_sums, known, widths, tails, missing)
    return {
        **further,
        "n_cells": np.array(list(map(len, starts))),
        "starts": np.concatenate(starts),
        "stops": np.concatenate([edge[1:] for edge in edges]),
        "counts": np.where(np.concatenate(tails)[:, None], 0.0, np.concatenate(counts)),
        "groups": np.concatenate(groups),
        "pairs": np.concatenate([*pairs, np.zeros(0)]),
        "deviations": np.array([deviations[0], pair_noise, *deviations[1:]]),
        "totals": np.concatenate(list(combined)),
    }


@dataclass(frozen=True, eq=False)
class PrivateRows:
    """The rows of a table, and the releases of their counts.

    `codes` are those of `read_codes`, and `classes` the class of each row, or 0. Rows of people
    have `weights`, integers of which a person has at most `whole` together. Once cells are found,
    `cells` has those of the rows, and `starts` the first code of each, by column but the target.
    """

    codes: np.ndarray
    schema: TableSchema
    releases: CountReleases
    classes: np.ndarray | int = 0
    weights: np.ndarray | None = None
    whole: int = 1
    cells: Sequence[np.ndarray] = ()
    starts: Sequence[np.ndarray] = ()

    def parts(self, of_cells: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Return what rows have of the cells of each column, such as groups: private."""
        return [of_cell[cell] for of_cell, cell in zip(of_cells, self.cells, strict=True)]

    def count(
        self, grouped: Iterable[np.ndarray], sizes: Iterable[int], *, by_class: bool = True
    ) -> list[np.ndarray]:
        """Return the number of rows in each group, by class or in all classes: private."""
        n_classes, classes = (self.schema.n_classes, self.classes) if by_class else (1, 0)
        each = zip(grouped, sizes, strict=True)
        return [np.bincount(g * n_classes + classes, self.weights, n * n_classes) for g, n in each]

    def count_pairs(
        self, groups: list[np.ndarray], some: list[tuple[int, int]] | None = None
    ) -> list[np.ndarray]:
        """Return counts of all pairs of columns by class, or of some in all classes together."""
        grouped, sizes = self.parts(groups), [group.max() + 1 for group in groups]
        pairs = some or list(combinations(range(len(groups)), 2))
        joint = (grouped[a] * sizes[b] + grouped[b] for a, b in pairs)
        return self.count(joint, [sizes[a] * sizes[b] for a, b in pairs], by_class=not some)

    def release_signs(self, name: str, sums: np.ndarray) -> tuple[np.ndarray, float]:
        """Release sums to each of which, in one class, a record adds 1 or -1."""
        sensitivity = _counts.tables_sensitivity(len(sums), signed=True)
        deviation = self.releases.standard_deviation(name, sensitivity)
        return self.releases.run(name, sums, sensitivity), deviation

    def sum_signs(self, signs: np.ndarray, subsets: Sequence[np.ndarray]) -> np.ndarray:
        """Return sums of products of signs in each class: private.

        `signs` of shape (n_signs, n) are True for -1. Each subset is of signs.
        """
        classes = np.broadcast_to(self.classes, len(self.codes))
        return _counts.parity_sums(signs, classes, self.schema.n_classes, subsets)

    def release(self, name: str, exact: list[np.ndarray]) -> tuple[list[np.ndarray], float]:
        """Release tables; a record, or a person, is in one cell of each, with the weight 1."""
        deviation = _counts.noise_of_tables(self.releases, name, len(exact))
        return _counts.release_tables(self.releases, name, exact, self.whole), deviation


def _refine_cells(rows):
    """Return the edges of the cells of each column, and what was released to find them.

    The latter has the wider cell of each cell, the counts of these, and the deviation of the noise.
    """
    schema = rows.schema
    edges = {j: _counts.first_edges(schema.columns[j]) for j in schema.features}
    rounds: dict[int, list[tuple[np.ndarray, np.ndarray, float]]] = {j: [] for j in edges}
    refined = _counts.refined_columns(schema)
    final_noise = _counts.noise_of_tables(rows.releases, "values", len(edges))
    final_noise *= math.sqrt(schema.n_classes)
    for name in _counts.ROUNDS if refined else ():
        cells = (_counts.cells_of_codes(rows.codes[:, j], edges[j]) for j in refined)
        exact = rows.count(cells, [len(edges[j]) - 1 for j in refined], by_class=False)
        noisy, deviation = rows.release(name, exact)
        n_records = np.mean([count.sum() for count in noisy])
        if name == _counts.ROUNDS[0] and n_records < _counts.records_hidden_by(deviation):
            for k, j in enumerate(refined):
                edges[j], noisy[k] = _counts.widened_cells(edges[j], noisy[k])
            deviation *= math.sqrt(_counts.WIDENING)
        for j, count in zip(refined, noisy, strict=True):
            rounds[j].append((edges[j], count, deviation))
            edges[j] = _counts.cut_cells(edges[j], count, deviation, final_noise)
    known = [
        [
            (np.searchsorted(wider, edges[j][:-1], side="right") - 1, count, deviation)
            for wider, count, deviation in rounds[j]
        ]
        for j in edges
    ]
    return list(edges.values()), known


def _count_cells(rows, totals, see_signs):
    """Return the counts of all cells in each class, their noise, and whether signs can be seen.

    The noise is that of sums over classes, and then what `release_marginals` calls deviations. If
    noise hides even the signs of strong pairs, what was kept for them counts cells again.
    """
    schema, n_cells = rows.schema, list(map(len, rows.starts))
    exact = rows.count(rows.cells, n_cells)
    noisy, class_noise = rows.release("values", exact)
    if see_signs:
        n_pairs, strongest = _counts.number_of_signs(schema), 0.65
        sensitivity = _counts.tables_sensitivity(n_pairs, signed=True)
        sign_noise = rows.releases.standard_deviation("signs", sensitivity)
        n_records = np.mean([count.sum() for count in noisy])
        see_signs = bool(sign_noise * _factors.clear_errors(n_pairs) <= strongest * n_records)
        for name in ("signs", "strong") if not see_signs else ():
            again, noise = rows.release(name, exact)
            weight = class_noise**2 / (class_noise**2 + noise**2)
            noisy = [(1 - weight) * a + weight * b for a, b in zip(noisy, again, strict=True)]
            class_noise *= math.sqrt(1 - weight)
    each = zip(schema.features, rows.starts, strict=True)
    possible = [_counts.possible_cells(schema, j, start) for j, start in each]
    counts = [count.reshape(cell.shape) * cell for count, cell in zip(noisy, possible, strict=True)]
    noise_of_sums = [np.sqrt(cell.sum(axis=1)) * class_noise for cell in possible]
    if not totals or schema.n_classes == 1:
        return counts, noise_of_sums, [class_noise], see_signs
    # The sum over classes would add up their noise.
    noisy, total_noise = rows.release("totals", rows.count(rows.cells, n_cells, by_class=False))
    class_noise, total_noise = max(class_noise, LEAST_NOISE), max(total_noise, LEAST_NOISE)
    for k, total in enumerate(noisy):
        counts[k] = _counts.with_totals(counts[k], total, class_noise, total_noise, possible[k])
        noise_of_sums[k] *= total_noise / np.hypot(noise_of_sums[k], total_noise)
    combined_noise = _counts.deviation_in_classes(class_noise, total_noise, schema.n_classes)
    return counts, noise_of_sums, [combined_noise, class_noise, total_noise], see_signs


def _count_groups(rows, cleared, n_records, *, by_cell):
    """Return the group of each cell, the counts of pairs of groups by class, and their noise.

    `cleared` is as of `_count_strong`, and `by_cell` as of `release_marginals`.
    """
    schema, starts = rows.schema, rows.starts
    if len(cleared) == 1:
        return [np.zeros(len(starts[0]), dtype=np.int64)], [], 0.0
    noise = _counts.noise_of_tables(rows.releases, "pairs", math.comb(len(cleared), 2))
    n_groups = _counts.number_of_groups(n_records, schema.n_classes, noise)
    groups = [np.arange(len(start)) for start in starts]
    if not by_cell:
        groups = _counts.group_cells(cleared, schema, n_groups, starts)
    pairs, noise = rows.release("pairs", rows.count_pairs(groups))
    if schema.has_bands:
        masks = _counts.possible_pairs(schema, starts, groups)
        pairs = [pair * mask for pair, mask in zip(pairs, masks, strict=True)]
    return groups, pairs, noise


def _signs_of_cells(schema, groups, counts):
    """Return signs of cells, by their half of a column, mean signs, and shares of groups.

    `groups` and `counts` have the group of each cell and its released count, for each column.
    """
    masses = [np.bincount(group, count) for group, count in zip(groups, counts, strict=True)]
    halves = [1 - 2 * half for half in _counts.column_halves(masses, schema)]
    shares = [nearest_distribution(mass / max(mass.sum(), 1.0)) for mass in masses]
    signs = [half[group] for half, group in zip(halves, groups, strict=True)]
    means = np.array([half @ share for half, share in zip(halves, shares, strict=True)])
    return signs, means, shares


def _find_strong(rows, signs, means, coarse, groups, sums, noise_of_sums, n_records):
    """Return how values are missing together, and the pairs that depend on each other strongly.

    Both follow from released sums of signs. `signs` and `means` are of `_signs_of_cells`, and
    `coarse` is what counts of pairs show. `groups` and `sums` have the group of each cell and its
    released count: about `n_records` in each column.
    """
    columns = np.array(np.triu_indices(len(sums), 1))
    may_miss = np.array([rows.schema.columns[j].missing for j in rows.schema.features])
    both = np.logical_and(*may_miss[columns])
    # Missing values have the last cell of a column.
    last = [np.arange(len(x)) == len(x) - may for x, may in zip(sums, may_miss, strict=True)]
    known = [np.where(end, 0.0, count) for end, count in zip(last, sums, strict=True)]
    of_known, means_of_known, _ = _signs_of_cells(rows.schema, groups, known)
    # The sign of a record is that of its half of the column. Where both columns of a pair may miss
    # values, it is that of its half of the known ones, or 0; and there is one of missing values.
    exact = _counts.product_sums(rows.parts(signs))[*columns]
    some, inner = np.flatnonzero(may_miss), np.triu_indices(int(may_miss.sum()), 1)
    known_signs = [np.where(last[k], 0, of_known[k])[rows.cells[k]] for k in some]
    exact[both] = _counts.product_sums(known_signs)[*inner]
    is_missing = _counts.product_sums([1 - 2 * last[k][rows.cells[k]] for k in some])[*inner]
    noisy, noise = rows.release_signs("signs", np.append(exact, is_missing))
    # From here on, all is computed from released and public numbers.
    of_pairs, of_missing = np.split(noisy / n_records, [len(both)])
    lost = may_miss * np.clip([count[-1] / n_records for count in sums], 0.0, 1.0)
    noise_of_lost = np.array([of_column[-1] / n_records for of_column in noise_of_sums])
    of_some, deviation = columns[:, both], noise / n_records
    found = _factors.sign_correlations(of_missing, deviation, 1 - 2 * lost[of_some])
    together = _factors.missing_together(*found, len(noisy), of_some, lost, noise_of_lost)
    # What is seldom missing together matters little: the covariance counts.
    covariance = together[*columns] * np.sqrt(lost * (1 - lost))[columns].prod(axis=0)
    known_both = np.maximum((1 - lost)[columns].prod(axis=0) + covariance, 0.01)
    mean = np.where(both, means_of_known[columns], means[columns])
    found = _factors.sign_correlations(of_pairs, deviation, mean, np.where(both, known_both, 1.0))
    strengths = _factors.strong_correlations(*found, len(noisy), len(sums))
    # Missing values count half, for signs have four times this. Measured on twelve public tables.
    strengths = np.maximum.reduce([strengths, coarse, 2 * np.abs(covariance)])
    return together, _factors.choose_pairs(strengths, len(sums))


def _count_strong(rows, strong, cleared, blurred, n_records):
    """Return the counts of strong pairs, in finer groups of cells and in all classes together.

    `cleared` has the released counts of cells, without empty tails: about `n_records` in each
    column. Groups of the columns that are `blurred` are single cells, unless these are too many.
    """
    noise, most_groups = _counts.noise_of_tables(rows.releases, "strong", len(strong)), 256
    n_groups = _counts.number_of_groups(n_records, 1, 2 * noise, most_groups)
    groups = _counts.group_cells(cleared, rows.schema, n_groups, rows.starts)
    # With more cells in all pairs together, factors take longer than ten seconds to fit.
    most_categories = max(most_groups, math.isqrt(2**20 // len(strong)))
    for k in np.flatnonzero(blurred).tolist():
        # Rare categories are apart, too: of sparse tables, noise hides no more than they have.
        if len(cleared[k]) <= most_categories:
            groups[k] = np.arange(len(cleared[k]))
    noisy, _ = rows.release("strong", rows.count_pairs(groups, strong))
    return {
        "strong_pairs": np.array(strong),
        "strong_groups": np.concatenate(groups),
        "strong_counts": np.concatenate(noisy),
        "strong_deviation": np.array([max(noise, LEAST_NOISE)]),
    }


def _sum_parities(rows, upper, n_records):
    """Return the sums of parities of three and more columns, by class.

    `upper` tells which half of each column rows are in, of which there are about `n_records`.
    """
    noise_of_one = _counts.noise_of_tables(rows.releases, "parities", 1)
    max_columns = _counts.max_scanned(len(upper), n_records / rows.schema.n_classes, noise_of_one)
    subsets = _counts.scanned_subsets(len(upper), max_columns)
    noisy, noise = rows.release_signs("parities", rows.sum_signs(upper, subsets))
    return {
        "parities": noisy,
        "parity_deviation": np.array([noise]),
        "max_parity": np.array([max_columns]),
    }
