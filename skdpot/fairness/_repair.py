"""From the rows of a fit, through groups and a method, to the map that repairs rows."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import clone
from sklearn.utils import check_random_state

from skdpot import tables
from skdpot._base import (
    make_bar,
    refuse_bounds_in_other_order,
    warn_of_few,
    warn_of_grid,
    warn_of_stand_ins,
    warn_user,
)
from skdpot._sklearn_compat import MANY_ROWS, one_thread_unless
from skdpot.fairness._certificate import MOST_ROWS, FairnessCertificate, certify, hold_out
from skdpot.fairness._computed import ComputedColumn, find_computed, read_computed, warn_of_false
from skdpot.fairness._conditional import (
    ConditionalMap,
    ConditionalRepair,
    Part,
    fit_conditional,
    found_in,
    harm_by_chance,
    joined,
    shared_maps,
)
from skdpot.fairness._conditional_models import N_FOLDS, deal_folds
from skdpot.fairness._groups import Groups, group_weights, read_groups
from skdpot.fairness._supports import (
    BLUR_DRAW,
    BLURRED_IMAGE_DRAW,
    ColumnSpace,
    FreeSupport,
    Group,
    SupportMap,
    distinct,
    in_own_units,
    row_keys,
    uniforms,
)
from skdpot.privacy.charging import PrivacyGuarantee, ReleasePlan
from skdpot.privacy.checks import silence
from skdpot.privacy.noise import make_source
from skdpot.releases import HistogramRelease, has_grid
from skdpot.transport import exact_transport, load_compiler, load_solver

if TYPE_CHECKING:
    from skdpot.generative import ReleasedTable

# Maximum of the default size of a support, also of private fits, which have no numbers of rows.
_LARGEST_AUTOMATIC_SUPPORT = 1000


@dataclass(frozen=True, eq=False)
class RepairRows:
    """The rows of a fit as they were read, and the public facts about their repair.

    Attributes
    ----------
    every : list of Column
        The columns of rows.
    computed : tuple of ComputedColumn
        Those that are functions of others.
    method : FreeSupport or ConditionalRepair
        The method that moves them.
    fixed : tuple of int
        Places of the columns that are conditioned on, among those that are not computed.
    groups : Groups or None
        The groups: declared ones without rows, until groups of rows are found or drawn.
    n_records : int
        The number of rows, which is public.
    table, labels : Table, ndarray of shape (n_records,)
        The rows and the labels of their groups; of a private fit, read after the charge alone.
    codes : ndarray of shape (n_rows, n_columns) or None
        The rows of a fit without privacy, as codes of every column; then those to be moved, or
        rows that are drawn from a release.
    n_parts : int
        Number of owners whose releases are added up, each with noise of its own.
    certified : bool
        Whether rows are held out for a certificate; never of a fit with epsilon.
    """

    every: list[tables.Column]
    computed: tuple[ComputedColumn, ...]
    method: Any
    fixed: tuple[int, ...]
    groups: Any
    n_records: int
    table: Any
    labels: Any
    codes: Any = None
    n_parts: int = 1
    certified: bool = True

    @property
    def columns(self) -> list[tables.Column]:
        """Return the columns that are moved: those that are not computed."""
        return [self.every[j] for j in not_computed(self.every, self.computed)]


@dataclass(frozen=True, eq=False)
class BlurredColumn:
    """A column of numbers whose cells with small shares are merged.

    Attributes
    ----------
    position : int
        Its place in the table.
    column : Column
        Its declaration.
    starts, stops : ndarray of shape (n_cells,)
        The ranges of codes of the cells.
    shares : ndarray of shape (n_cells,)
        Their shares of the rows.
    merged : ndarray of shape (n_cells,)
        The number of the merged cell of each, in ascending order.
    """

    position: int
    column: tables.Column
    starts: np.ndarray
    stops: np.ndarray
    shares: np.ndarray
    merged: np.ndarray

    def drawn(self, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return numbers drawn in the merged cells of these, by uniform numbers."""
        cell = np.searchsorted(self.starts, self.column.codes(numbers), side="right") - 1
        running = np.r_[0.0, np.cumsum(self.shares)]
        # Where in these shares the merged cell of each begins and ends.
        low = running[np.searchsorted(self.merged, self.merged[cell], side="left")]
        high = running[np.searchsorted(self.merged, self.merged[cell], side="right")]
        at = low + places * (high - low)
        # Within a cell all codes are as likely; cells without rows are skipped.
        ends = np.append(self.starts, self.stops[-1])
        exact = np.interp(at, running, ends)
        codes = np.minimum(np.floor(exact), ends[-1] - 1)
        return self.column.numbers(codes.astype(np.int64), exact - codes)


@dataclass(frozen=True, eq=False)
class FairMap:
    """Groups, and the map of their rows.

    A private map by conditional distributions redraws the numbers of rows first: only the
    information of the release remains. The release does not contain numbers that many rows share,
    nor close ties between columns. A map would move them by different errors in each group, and so
    mark the rows of a group. Images are redrawn too: numbers that heap up in the release would be
    moved apart by group.

    Attributes
    ----------
    every : list of Column
        The columns of rows.
    computed : tuple of ComputedColumn
        Those that are computed from others.
    groups : Groups
        The groups; those of a private fit have no rows here.
    weights : ndarray of shape (n_groups,)
        Their weights.
    transport : SupportMap or ConditionalMap
        How they are moved.
    certificate : FairnessCertificate or None
        The certificate from held-out rows.
    n_changed : int or None
        Number of rows of a fit without privacy that are changed.
    of_rows, of_images : list of BlurredColumn
        The numbers that are redrawn before they are moved, and after, if any rows are moved.
    drawn : list of int
        Columns of a private fit of which a row's own values are not used: their images are drawn,
        given the images of the columns before them.
    ranges : ndarray of shape (2, n_columns) or None
        The least and the largest number of each column, of a fit without privacy.
    """

    every: list[tables.Column]
    computed: tuple[ComputedColumn, ...]
    groups: Groups
    weights: np.ndarray
    transport: SupportMap | ConditionalMap
    certificate: FairnessCertificate | None = None
    n_changed: int | None = None
    of_rows: list[BlurredColumn] | tuple[()] = ()
    of_images: list[BlurredColumn] | tuple[()] = ()
    drawn: list[int] | tuple[()] = ()
    ranges: np.ndarray | None = None

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, n_jobs: int | None
    ) -> np.ndarray:
        """Return the images of rows, as codes; rows with group number -1 stay.

        `keys` are those of `row_keys`, and `n_jobs` is that of the estimator. Columns that are
        computed are those of the rows: they come after the images are blended with these.
        """
        kept, images = not_computed(self.every, self.computed), codes.copy()
        moved = to_be_moved(codes, self.every, self.computed)
        for place, j in enumerate(kept):
            # Numbers of a private fit have bounds.
            if self.every[j].low < self.every[j].high:
                moved[:, place] = np.clip(moved[:, place], self.every[j].low, self.every[j].high)
        if self.transport.moves:
            moved = redrawn(self.of_rows, moved, keys, BLUR_DRAW)
            moved[:, list(self.drawn)] = np.nan
            moved = self.transport.images(moved, groups, keys, n_jobs)
            moved = redrawn(self.of_images, moved, keys, BLURRED_IMAGE_DRAW)
        images[:, kept] = np.where((groups >= 0)[:, None], moved, codes[:, kept])
        return images


def not_computed(every: list[tables.Column], computed: tuple[ComputedColumn, ...]) -> list[int]:
    """Return the places of the columns that are not computed, or of which gaps are moved."""
    places = {column.position for column in computed if not column.has_gaps}
    return [j for j in range(len(every)) if j not in places]


def to_be_moved(
    codes: np.ndarray, every: list[tables.Column], computed: tuple[ComputedColumn, ...]
) -> np.ndarray:
    """Return the codes of columns that are not computed, and of gaps: 0 where there is none."""
    codes = codes.copy()
    for column in computed:
        codes[:, column.position] *= 0.0
    return codes[:, not_computed(every, computed)]


def redrawn(
    columns: Iterable[BlurredColumn], codes: np.ndarray, keys: np.ndarray, first_draw: int
) -> np.ndarray:
    """Return rows with redrawn numbers, regardless of their groups."""
    codes = codes.copy()
    for blurred in columns:
        j = blurred.position
        codes[:, j] = blurred.drawn(codes[:, j], uniforms(keys, first_draw + j))
    return codes


# ------------------------------------------------------------------- public facts about a repair


def read_repair(
    fair: Any, table: tables.Table, labels: np.ndarray, kept: np.ndarray, n_records: int
) -> RepairRows:
    """Return the rows of a fit, and the public facts about their repair; or raise.

    `kept` are the positions of the columns that do not hold the attribute.
    """
    private = fair.epsilon is not None
    every = tables.find_columns(
        table, kept, fair.categorical_features, fair.categories, fair._missing(True)
    )
    if fair.categorical_features is None and not (private or fair.categories):
        warn_of_labels(every, n_records)
    # Raises if joblib does not understand n_jobs, before a budget is charged.
    effective_n_jobs(fair.n_jobs)
    if private and fair.missing != "error":
        raise ValueError(
            "missing='category' is for fits without epsilon. With epsilon, declare None among "
            "the categories of a column; leave out rows that have missing numbers, or fill in "
            "a number that is public."
        )
    computed = () if fair.computed is None else read_computed(fair.computed, every)
    columns = [every[j] for j in not_computed(every, computed)]
    groups = read_groups(fair) if private else None
    method = fair._method(partial(automatic_method, fair, columns, n_records, groups))
    is_conditional = isinstance(method, ConditionalRepair)
    # A support refuses missing numbers here.
    codes = None if private else tables.read_numbers(table, every, fair._missing(is_conditional))
    if codes is not None and fair.computed is None:
        not_moved = positions_of(fair.conditional_on, every)
        computed = find_computed(every, codes, np.random.default_rng(0), not_moved)
        columns = [every[j] for j in not_computed(every, computed)]
        warn_of_dummies(columns, codes[:, not_computed(every, computed)])
    method._check(fair.epsilon, fair.delta)
    fixed = positions_of(fair.conditional_on, columns)
    if fixed and not is_conditional:
        raise ValueError("conditional_on needs method='conditional'.")
    if not is_conditional:
        # What is missing on this machine is missed before a budget is charged.
        load_compiler()
        load_solver()
    if private:
        every = read_bounds(fair.bounds, every, not_computed(every, computed))
    # Columns without rows may stand for any.
    if private and len(table):
        refuse_types(table, columns)
    return RepairRows(every, computed, method, fixed, groups, n_records, table, labels, codes)


def warn_of_labels(columns: list[tables.Column], n_rows: int) -> None:
    """Warn of columns of text that are identifiers, or numbers with decimals or many of them."""
    for column in columns:
        words = [word for word in column.values if isinstance(word, str) and column.dtype is None]
        numbers = [tables.number_in_file(word.replace(",", "")) for word in words]
        are_codes = len(words) <= 20 and not any(set(word) & set(".,") for word in words)
        if not are_codes and all(isinstance(number, float) for number in numbers):
            warn_user(
                f"column {column.name!r} has numbers as text, which are read as categories: make "
                "numbers of them, as by pandas.to_numeric, or name it in categorical_features."
            )
        elif len(column.values) > max(20, n_rows / 2):
            warn_user(
                f"column {column.name!r} has a label of its own for most rows, and rows would get "
                "those of others: leave out identifiers."
            )


def warn_of_dummies(columns: list[tables.Column], codes: np.ndarray) -> None:
    """Warn of truth values of which some are a sum of others, as in a one-hot code."""
    flags = [j for j, one in enumerate(columns) if one.values == (False, True)]
    flags = [j for j in flags if len(np.unique(codes[:, j])) > 1]
    table = np.column_stack([np.ones(len(codes)), codes[:, flags]])
    if flags and len(table) and np.linalg.matrix_rank(table.T @ table) <= len(flags):
        names = [columns[j].name for j in flags]
        warn_user(
            f"the truth values {names[:5]}{'...' * (len(names) > 5)} are a one-hot code, of which "
            "a repair may leave rows without any, or with two. Give the column that was coded."
        )


def warn_of_strata(rows: RepairRows) -> None:
    """Warn if many rows have values of the fixed columns that almost no other group has.

    The rows are those of an open fit, or drawn from a release.
    """
    groups, many, few = rows.groups.codes, 0.1, 0.01
    kept, columns = groups >= 0, [rows.columns[j] for j in rows.fixed]
    values, of_rows = np.unique(rows.codes[kept][:, rows.fixed], axis=0, return_inverse=True)
    counts = np.zeros((len(values), len(rows.groups.names)))
    np.add.at(counts, (of_rows.ravel(), groups[kept]), 1)
    sizes, shares = counts.sum(axis=1), counts.sum(axis=0) / counts.sum()
    # If seven rows of other groups are expected, all are lacking once in a thousand times.
    expected = sizes * (1 - shares[counts.argmax(axis=1)])
    alone = (expected > 7) & (sizes - counts.max(axis=1) < few * expected)
    share = sizes[alone].sum() / sizes.sum()
    if share > many:
        named = [
            [f"{c.name}={[*c.values, None][int(v)] if c.values else v}" for c, v in of]
            for of in (zip(columns, point, strict=True) for point in values[alone][:3])
        ]
        warn_user(
            f"about {round(100 * share, -1):.0f} % of the rows have values of conditional_on that "
            f"almost no row of another group has, such as {'; '.join(map(' and '.join, named))}. "
            "How to repair these is a guess: merge such values into ones that groups share, or "
            "condition on other columns."
        )


def automatic_method(
    fair: Any, columns: list[tables.Column], n_records: int, groups: Groups | None
) -> FreeSupport | ConditionalRepair:
    """Return the method that ``"auto"`` stands for, from public facts.

    It is a support for few columns (without epsilon only if they are numbers), and for private fits
    without a delta. Otherwise it is conditional distributions. So it is if the histogram of a
    support has too many cells, or so much noise that a group of a fourth of the average size would
    be moved like another one.
    """
    most_columns, smallest = 3, 0.25
    few = len(columns) <= most_columns
    if fair.epsilon is None or groups is None:
        takes_support = few and all(column.kind == tables.NUMERIC for column in columns)
    elif few and fair.delta and has_grid(layout := in_own_units(columns).layout):
        n_groups = len(groups.names)
        release = HistogramRelease(layout, n_groups, n_records, fair.epsilon, fair.delta)
        takes_support = not release.is_harmful(smallest * n_records / n_groups)
    else:
        takes_support = not fair.delta
    return FreeSupport() if takes_support else ConditionalRepair()


def positions_of(named: Any, columns: list[tables.Column]) -> tuple[int, ...]:
    """Return the positions of columns, given by names or positions in X; or raise."""
    if named is None:
        return ()
    names = [named] if np.ndim(named) == 0 else list(named)
    found = [tables.column_index(name, columns) for name in names]
    if None in found:
        unknown, known = names[found.index(None)], [column.name for column in columns]
        raise ValueError(f"conditional_on names {unknown!r}; the repaired columns are {known}.")
    if len(set(found)) == len(columns):
        raise ValueError("conditional_on names all columns, so none is left to repair.")
    return tuple(sorted({place for place in found if place is not None}))


def read_bounds(bounds: Any, every: list[tables.Column], kept: list[int]) -> list[tables.Column]:
    """Return the columns of a private fit, with the bounds of numbers; or raise and name columns.

    They are declared for the columns at the places `kept`. Numbers whose bounds are a range are
    integers.
    """
    numeric = [every[j] for j in kept if every[j].kind == tables.NUMERIC]
    names = [column.name for column in numeric]
    why = "They determine the grid or the clipping of the release."
    or_categories = (
        "For columns of text or categories, declare categories={column: [labels]} instead."
    )
    pairs: dict[int, range | tuple[float, float]] = {}
    if isinstance(bounds, dict):
        for key, pair in bounds.items():
            place = tables.column_index(key, numeric)
            if place is None:
                raise ValueError(
                    f"bounds are declared for column {key!r}, which is not one of the numeric "
                    f"columns that need them: {names}."
                )
            is_range = isinstance(pair, range) and len(pair) > 1 and pair.step == 1
            ends = (pair[0], pair[-1]) if is_range else pair
            low, high = tables.check_bounds(ends, 1, why, f"bounds[{key!r}]")
            pairs[place] = pair if is_range else (low.item(), high.item())
        if unbounded := [name for place, name in enumerate(names) if place not in pairs]:
            raise ValueError(
                f"bounds must be declared for the columns {unbounded}. {why} {or_categories}"
            )
    elif numeric:
        refuse_bounds_in_other_order(bounds, names)
        try:
            low, high = tables.check_bounds(bounds, len(numeric), why)
        except ValueError as error:
            raise ValueError(
                f"{error} A dict gives bounds by column. The columns without categories are, in "
                f"order: {names}. {or_categories}"
            ) from error
        pairs = dict(enumerate(zip(low.tolist(), high.tolist(), strict=True)))
    bounded = {}
    for place, column in enumerate(numeric):
        declared = tables.read_schema({str(column.name): pairs[place]}).columns[0]
        bounded[column.position] = replace(declared, name=column.name, position=column.position)
    return [bounded.get(column.position, column) for column in every]


# ---------------------------------------------------------------------------- private rows
#
# Private rows are read cell by cell: no value raises, warns, or changes how others are read. Types,
# names and shapes are public, and are all that a fit may refuse for nothing. A value that is not
# declared is missing, and a row without a place is counted nowhere.


def in_cells(X: Any) -> Any:
    """Return rows in a list as an array of objects, whatever their values; others as they are.

    Lists have no type: that of `np.asarray` would depend on single values.

    Examples
    --------
    >>> from skdpot.fairness._repair import in_cells
    >>> in_cells([[1, 2.5], [["a"], None]])
    array([[1, 2.5],
           [list(['a']), None]], dtype=object)
    """
    rows = X if isinstance(X, list | tuple) else []
    widths = {len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in rows}
    if len(widths) != 1 or -1 in widths:
        return X
    return tables.objects([cell for row in rows for cell in row]).reshape(len(rows), *widths)


def refuse_types(table: tables.Table, columns: list[tables.Column]) -> None:
    """Raise if the type of a column shows that it holds no declared value; no value is read."""
    for column in columns:
        if column.kind != tables.NUMERIC:
            tables.refuse_other_labels(table.series(column.position), column.values, column.name)
        # Kinds of NumPy: text of three forms, periods, dates, durations, complex numbers.
        elif (kind := table.kind(column.position)) in "USTVMmc":
            wrong = (
                f"column {column.name!r} of X has the type "
                f"{table.dtype(column.position) or table.X.dtype}, which is not numeric. "
                "Convert it first, or declare its labels by categories"
            )
            raise ValueError(f"{(column.type_problems(kind) or [wrong])[0]}.")


def private_points(rows: RepairRows) -> tuple[np.ndarray, np.ndarray]:
    """Return private rows in unit coordinates, and the numbers of their groups.

    A row of an undeclared group, or with a missing number, has the number -1.
    """
    space, low, high = in_own_units(rows.columns).in_bounds(scaled=rows.method.scale)
    with silence():
        points = space.raw(tables.private_numbers(rows.table, column) for column in rows.columns)
        # In place, through a view of the numbers and ranks.
        ranked = points[:, : len(low)]
        ranked[:] = (np.clip(ranked, low, high) - low) / (high - low)
        codes = rows.groups.find(rows.labels)
        return np.nan_to_num(points), np.where(np.isnan(points).any(axis=1), -1, codes)


def private_codes(rows: RepairRows, schema: tables.TableSchema) -> np.ndarray:
    """Return the private rows of which all is declared and known, as codes, last the group."""
    codes = np.empty((len(rows.table), len(schema.columns)), dtype=np.int64, order="F")
    with silence():
        for j, column in enumerate(rows.columns):
            read = tables.private_numbers(rows.table, column)
            codes[:, j] = schema.columns[j].codes(read) if column.kind == tables.NUMERIC else read
        codes[:, -1] = rows.groups.find(rows.labels)
        # A sketch counts whole rows: what is unknown in one column has no place in the pairs.
        return codes[(codes >= 0).all(axis=1)]


# --------------------------------------------------------------- from rows to groups to a map


def progress_of(fair: Any, **options: Any) -> Any:
    """Return a progress bar of an estimator, which is shown as its `verbose` says."""
    return make_bar(desc=type(fair).__name__, verbose=fair.verbose, **options)


def plan_repair(fair: Any, rows: RepairRows) -> ReleasePlan:
    """Return the plan of the release of a private fit, from public facts; or raise."""
    n_groups, delta = len(rows.groups.names), float(fair.delta or 0.0)
    if n_groups > 1000:
        raise ValueError(
            f"nothing was charged: a repair compares all pairs of the {n_groups:,} groups, which "
            "takes hours or days. Declare fewer groups, such as groups of labels."
        )
    if isinstance(rows.method, ConditionalRepair):
        # Imported here: open repairs, and repairs by supports, need no generators.
        from skdpot.generative import plan_table

        target = tables.Column("group", tables.NOMINAL, values=tuple(rows.groups.names.tolist()))
        schema = tables.TableSchema((*rows.columns, target), len(rows.columns))
        progress = partial(progress_of, fair)

        def made(n_records: int, epsilon: float) -> Any:
            return plan_table(schema, epsilon, delta, "replace_one", progress)
    else:
        layout = in_own_units(rows.columns).layout

        def made(n_records: int, epsilon: float) -> Any:
            return HistogramRelease(layout, n_groups, n_records, epsilon, delta, rows.n_parts)

    release = made(rows.n_records, fair.epsilon)
    plan = plan_of(fair, release, ("rows that are transformed",), rows.n_records)
    if plan.refusal is None:
        return plan
    return replace(plan, advice=_advice(made, rows.n_records, fair.epsilon))


def _advice(made: Callable[[int, float], Any], n_records: int, epsilon: float) -> str:
    """Return from how many rows, or from which epsilon on, about, a release is of use."""
    max_epsilon, growth = 20.0, [1.3**k for k in range(60)]

    def first(of: Iterable[tuple[int, float]]) -> tuple[int, float] | None:
        useful = (pair for pair in of if not made(*pair).expected_errors(pair[0])[0].is_useless)
        return next(useful, None)

    rows = first((math.ceil(n_records * factor), epsilon) for factor in growth)
    budget = first((n_records, epsilon * f) for f in growth if epsilon * f < max_epsilon)
    starts = [f"from about {rows[0]:,} rows on"] if rows else []
    starts += [f"from an epsilon of about {budget[1]:.2g} on"] if budget else []
    return (
        f"A repair pays {', or '.join(starts) or 'for much larger tables'}; with fewer columns or "
        "groups, earlier. FairBarycenterRegressor(epsilon=...), which repairs predictions, needs "
        "far fewer rows. Or release it all the same within "
        "skdpot.privacy.allow_useless_releases()."
    )


def open_plan(fair: Any) -> ReleasePlan:
    """Return the plan of a fit without privacy, which releases nothing; or raise."""
    if fair.delta is not None or fair.bounds is not None:
        raise ValueError("delta and bounds are for fits with epsilon.")
    return ReleasePlan(None, None, make_source(), f"{type(fair).__name__} without epsilon", None)


def plan_of(fair: Any, release: Any, not_protected: tuple[str, ...], n_records: int) -> ReleasePlan:
    """Return the plan of the release of an estimator, in which any record may be replaced."""
    guarantee = PrivacyGuarantee(
        epsilon=float(fair.epsilon),
        delta=float(fair.delta or 0.0),
        neighbouring="replace_one",
        unit="record",
        # What of rows no private fit protects.
        not_protected=(
            *not_protected,
            "the number of rows",
            "the names and types of columns",
            "the time of the fit",
        ),
    )
    label = f"{type(fair).__name__}, {getattr(release, 'label', 'histogram')}"
    source = make_source(fair.random_state)
    return ReleasePlan(release, release.event, source, label, guarantee, n_records=n_records)


def private_repair(fair: Any, plan: ReleasePlan, rows: RepairRows) -> FairMap:
    """Return the map of a private fit. Every step that reads private values is here, in order.

    `fair` is the estimator. One record may be replaced by any other. There is one release, with the
    whole budget; what follows it is a function of the release and of public facts. Proof:
    :ref:`proof-private-groups`, and of the sketch :ref:`proof-private-tables`.
    """
    release, source = plan.release, plan.source
    # What follows the release is handed no private value, and could not read one.
    public = replace(rows, table=None, labels=None)
    if isinstance(rows.method, ConditionalRepair):
        # The sketch of the columns and the group. Its own recipe divides the budget, and says by
        # how much each of its counts and sums may change.
        records = SimpleNamespace(values=private_codes(rows, release.space.schema))
        released = release.run(records, source)
        warn_of_few(released.n_records, release.noise_of_counts, rows.n_records)
        return map_of_table(fair, release, public, released)
    # Counts by group and cell. A replaced record leaves one of them and joins another: they change
    # by 2 in the l1 norm and by sqrt(2) in the l2 norm, as `histogram_sensitivities` proves.
    counts = release.add_noise(release.values(*private_points(rows)), source)
    return map_of_counts(fair, release, public, counts)


def open_repair(fair: Any, rows: RepairRows) -> FairMap:
    """Return the map of a fit without privacy; it is as private as the rows.

    `fair` is the estimator, whose parameters say how.
    """
    groups, n_changed = read_groups(fair, rows.labels), 0
    warn_of_false(rows.computed, rows.codes)
    groups.warn_of_attribute(rows.codes.T, [column.name for column in rows.every])
    warn_of_stand_ins(rows.every, rows.codes.T)
    moved = to_be_moved(rows.codes, rows.every, rows.computed)
    fitted = _open_map(fair, replace(rows, codes=moved, groups=groups))
    if fitted.transport.moves:
        seed = check_random_state(fair.random_state).randint(2**63 - 1, dtype=np.int64)
        keys = row_keys(seed, rows.codes)
        images = fitted.transport.images(moved, groups.codes, keys, fair.n_jobs)
        # Rounding, as of a score that is put back on its own value, is no change.
        same = np.isclose(images, moved, rtol=1e-9, atol=0.0, equal_nan=True)
        n_changed = int((~same).any(axis=1).sum())
    if not n_changed and len(groups.names) > 1:
        warn_user(
            "the repair changes no row. No classifier distinguishes the groups in held-out rows by "
            "more than chance, or a map from so few rows would make them easier to find. "
            "ConditionalRepair(tol=0), or for few rows method='support', moves rows in any case."
        )
    ranges = np.array([np.fmin.reduce(rows.codes), np.fmax.reduce(rows.codes)])
    return replace(fitted, n_changed=n_changed, ranges=ranges)


def warn_of_units(fitted: FairMap, codes: np.ndarray) -> None:
    """Warn of columns of which most rows are beyond all of the fit, if it had no privacy."""
    if fitted.ranges is None or len(codes) < 10:
        return
    low, high = fitted.ranges
    beyond = (low < high) & (((codes < low) | (codes > high)).mean(axis=0) > 0.5)
    beyond &= [column.kind == tables.NUMERIC for column in fitted.every]
    if names := [fitted.every[j].name for j in np.flatnonzero(beyond)]:
        warn_user(
            f"most numbers of {names} are beyond those of the fit, and get images like its least "
            "or largest: are they in the same unit?"
        )


def _open_map(fair: Any, rows: RepairRows) -> FairMap:
    """Return the map of a fit without privacy.

    Groups of fewer than 8 rows are moved to a support without asking whether they differ: of so few
    rows, no classifier tells anything. Of more than 5000 rows, groups that differ are found less
    after the repair.
    """
    rng, codes, groups = check_random_state(fair.random_state), rows.codes, rows.groups
    if isinstance(rows.method, ConditionalRepair):
        return map_of_rows(fair, rows, rng)
    inside = np.flatnonzero(groups.codes >= 0)
    space = in_own_units(rows.columns).of_rows(codes[inside], scaled=rows.method.scale)
    shared = np.arange(len(groups.names))

    def fitted_to(part: np.ndarray) -> FairMap:
        maps = np.where(part & (groups.codes >= 0), shared[groups.codes], -1)
        # All rows, or as many as the method takes.
        most, found, n_rows = rows.method.max_rows or 10_000, [], 0
        for g in range(shared.max() + 1):
            drawn = np.flatnonzero(maps == g)
            drawn = drawn if len(drawn) <= most else rng.choice(drawn, most, replace=False)
            n_rows += len(drawn)
            masses = np.full(len(drawn), 1.0 / len(drawn))
            found.append(distinct(space.encode(codes[drawn]), masses))
        return map_of_groups(fair, rows, space, found, n_rows, rng, shared)

    rows_to_compare, rows_to_check, tol = 8, 5000, 0.02
    # A support that was asked for is made.
    if fair.method == "auto" and groups.sizes.min() >= rows_to_compare:
        order = rng.permutation(inside)
        features = space.encode(codes[order])
        shared = shared_maps(features, groups.codes[order], len(groups.names), tol)
        if shared.any() and len(inside) <= rows_to_check:
            generator = np.random.default_rng(rng.randint(2**31))
            if does_harm(rows, lambda part: fitted_to(part).transport, generator):
                shared = np.zeros_like(shared)
    return fitted_to(np.ones(len(codes), dtype=bool))


# Below, no private value is read: groups and rows are released, or those of an open fit.


def map_of_counts(
    fair: Any, release: HistogramRelease, rows: RepairRows, counts: np.ndarray
) -> FairMap:
    """Return the map to the barycenter of groups with released counts.

    Groups share a map if their distributions differ by less than the errors of these: two maps
    would show more than they hide. Errors are those of the noise, and of new rows.
    """
    sizes, points, masses = release.groups_of(counts)
    space, low, high = in_own_units(rows.columns).in_bounds(scaled=rows.method.scale)
    ranked = [column for column in rows.columns if column.kind != tables.NOMINAL]
    names = [repr(c.name) if c.kind == tables.NUMERIC and c.n_known > 8 else None for c in ranked]
    warn_of_grid(names, (low, high), counts, release.standard_deviation, rows.n_records)
    by_cell = counts.reshape(len(sizes), -1)
    noise = by_cell.shape[1] * release.standard_deviation**2

    def excess(a: Part, b: Part) -> float:
        found, errors = [], 0.0
        for part in map(list, (a, b)):
            size = sizes[part].sum()
            found.append(by_cell[part].sum(axis=0) / size)
            errors += (len(part) * noise / size + 1.0) / size
        # The squared difference contains the errors once.
        return float(np.square(found[0] - found[1]).sum()) - 2.0 * errors

    shared = joined(len(sizes), excess)
    # All are moved like the largest one; so are groups that errors would show in any case.
    totals = np.bincount(shared, sizes)
    is_shown = [release.is_harmful(size) for size in totals]
    shared = np.where(is_shown, totals.argmax(), np.arange(len(totals)))[shared]
    shared = np.unique(shared, return_inverse=True)[1]
    found = []
    for g in (np.where(shared == place, sizes, 0.0).argmax() for place in range(shared.max() + 1)):
        # Released points are in units of the bounds.
        raw = points[g].copy()
        raw[:, : len(low)] = low + (high - low) * raw[:, : len(low)]
        found.append(distinct((raw - space.origin) * space.factor, masses[g]))
    rows = replace(rows, groups=replace(rows.groups, sizes=sizes))
    rng = check_random_state(fair.random_state)
    return map_of_groups(fair, rows, space, found, rows.n_records, rng, shared)


def map_of_table(fair: Any, release: Any, rows: RepairRows, released: "ReleasedTable") -> FairMap:
    """Return the map of a released sketch, or one that moves no row if it would do harm.

    A map is tried on rows drawn from the release, and another one if what that shows is not clear.
    """
    rng = check_random_state(fair.random_state)
    released.warn_of_bounds()
    found = map_of_sketch(fair, release, rows, released, rng)
    transport = found.transport
    assert isinstance(transport, ConditionalMap)
    # With a tol of 0 the repair is made in any case; by columns that are fixed, groups are found.
    if not transport.moves or rows.method.tol <= 0 or rows.fixed:
        return found

    def gain() -> float:
        """Return by how much less groups are found after a map like this one, less chance.

        The release stands for the records: rows drawn from it are released again, and a map of
        these is tried on others. No private value is read. Drawn rows lack some ties of columns
        that the release shows, and a map that breaks these shows the groups of the records: each
        unit that may be lacking about a third of what is hidden otherwise. Measured on 56 repairs
        of public tables, of which nine made groups easier to find by .02 to .27: drawn rows alone
        told of none of these.
        """
        # Those of the second release, those that a classifier knows, and new ones.
        first, *others = (drawn_rows(rows, released, rows.n_records, rng) for _ in range(3))
        columns = zip(release.space.schema.columns, first.codes.T, strict=False)
        codes = [
            column.codes(of) if column.kind == tables.NUMERIC else of for column, of in columns
        ]
        values = np.column_stack([*codes, first.groups.codes]).astype(np.int64)
        in_any_case = replace(rows, method=clone(rows.method).set_params(tol=0.0))
        # What would be told is about drawn rows.
        with silence():
            again = release.run(SimpleNamespace(values=values), make_source(rng))
        tried = map_of_sketch(fair, release, in_any_case, again, rng)
        tried, before, after, labels = replace(tried, every=rows.columns, computed=()), [], [], []
        for drawn in others:
            few = rng.permutation(len(drawn.codes))[:MOST_ROWS]
            before.append(drawn.codes[few])
            labels.append(drawn.groups.codes[few])
            keys = row_keys(int(rng.randint(2**63, dtype=np.uint64)), before[-1])
            after.append(tried.images(before[-1], labels[-1], keys, fair.n_jobs))
        seed, n_groups = int(rng.randint(2**31)), len(rows.groups.names)
        shown, left = found_in(before, after, labels, rows.columns, n_groups, seed)
        moving = {step.position for step in transport.steps if step.moves}
        hidden = (1.0 - left) * math.exp(-0.35 * released.closer_ties(again, moving, found.drawn))
        return shown + hidden - 1.0 - harm_by_chance(labels[1]) / 2

    gained, clear = gain(), 0.1
    if abs(gained) < clear:
        gained += gain()
    return found if gained > 0 else replace(found, transport=transport.at_rest())


def map_of_sketch(
    fair: Any, release: Any, rows: RepairRows, released: "ReleasedTable", rng: np.random.RandomState
) -> FairMap:
    """Return the map by conditional distributions of rows drawn from a released sketch.

    Cells with fewer rows than four deviations of the noise of a count are merged. Maps are not
    precise enough to give cells with a share below .02 the same share in all groups, so images are
    drawn in larger ones. Nor do they keep what ties columns to each other: they would break it in
    each group in its own way. So a column that depends on an earlier one is not moved, but drawn
    given its image, if their mean square contingency is clearly above .2. Measured on 40 public
    tables with two groups that hardly differ: 42 of 50 maps that moved closely tied columns made
    these easier to find, by up to .42 of the AUC.
    """
    n_records, n_groups = rows.n_records, len(rows.groups.names)
    rows = drawn_rows(rows, released, min(n_records, rows.method.max_rows or 100_000), rng)
    told_apart, min_of_images, closest = 4.0, 0.02, 0.2
    least = told_apart * release.noise_of_counts * math.sqrt(n_groups) / n_records
    free = [j for j, column in enumerate(rows.columns) if column.kind == tables.NUMERIC]

    def blurred(least: float) -> list[BlurredColumn]:
        """Return columns whose cells with smaller shares than this are merged."""
        cells, columns = released.merged_cells(least), released.space.schema.columns
        return [BlurredColumn(j, columns[j], *cells[j]) for j in free if j not in rows.fixed]

    of_rows = blurred(least)
    # The map moves blurred rows, so it is fitted to blurred rows.
    keys = rng.randint(2**63, size=len(rows.codes), dtype=np.uint64)
    rows = replace(rows, codes=redrawn(of_rows, rows.codes, keys, BLUR_DRAW))
    found = map_of_rows(fair, rows, rng)
    of_images = blurred(max(least, min_of_images))
    assert isinstance(found.transport, ConditionalMap)
    moving = [step.position for step in found.transport.steps if step.moves]
    ties = released.ties().items()
    tied = {b for (_, b), (tie, error, unit) in ties if tie - 2.0 * error > closest * unit}
    drawn = [j for j in moving if j in tied]
    return replace(found, of_rows=of_rows, of_images=of_images, drawn=drawn)


def drawn_rows(
    rows: RepairRows, released: "ReleasedTable", n_records: int, rng: np.random.RandomState
) -> RepairRows:
    """Return a repair of about this number of rows drawn from a sketch, with their groups."""
    # Weights by size use the released sizes, not the numbers of drawn rows.
    sizes = np.maximum(np.rint(released.counts * n_records), 1).astype(np.intp)
    # A few rows of every group, also where noise hides it: models need examples.
    of_rows = np.repeat(np.arange(len(sizes)), np.maximum(sizes, 20))
    codes = released.codes_of(of_rows, rng)
    drawn = codes[:, :-1].astype(np.float64)
    for j, column in enumerate(released.space.schema.columns[:-1]):
        if column.kind == tables.NUMERIC:
            drawn[:, j] = column.numbers(codes[:, j], rng.uniform(size=len(codes)))
    return replace(rows, codes=drawn, groups=replace(rows.groups, codes=of_rows, sizes=sizes))


def map_of_groups(
    fair: Any,
    rows: RepairRows,
    space: ColumnSpace,
    found: list[Group],
    n_rows: int,
    rng: np.random.RandomState,
    shared: np.ndarray,
) -> FairMap:
    """Return the map to the barycenter of exact or released groups.

    `found` are points and their masses, from `n_rows` rows, and `shared` has the place of each
    group's among them. No row is read.
    """
    groups = rows.groups
    weights = group_weights(fair.weights, groups.sizes, groups.names)
    of_found = np.bincount(shared, weights)
    # Ten rows for each support point are enough to estimate the masses of new rows there.
    automatic = min(_LARGEST_AUTOMATIC_SUPPORT, max(n_rows // 10, min(n_rows, 50)))
    n_support = rows.method.n_support or automatic
    with progress_of(fair, unit=" rounds") as bar:

        def callback(n_rounds: int, *_: Any) -> None:
            bar.update(n_rounds - bar.n)

        codes, bound, n_iter = rows.method._find(space, found, of_found, n_support, rng, callback)
    # Of valid rows: categories and levels of averages were rounded, so couplings are new ones.
    support = space.encode(codes)
    squares = (support**2).sum(axis=1)

    # Threads do not inherit the caller's np.errstate.
    @np.errstate(all="ignore")
    def coupled(points: np.ndarray, masses: np.ndarray) -> tuple[float, Any]:
        costs = (points**2).sum(axis=1)[:, None] - 2 * points @ support.T + squares
        # By one product of matrices; rounding may leave squares just below 0.
        np.maximum(costs, 0.0, out=costs)
        coupling = exact_transport(costs, masses, np.full(len(support), 1 / len(support)))
        return coupling.cost, coupling.plan

    threads = Parallel(n_jobs=fair.n_jobs, prefer="threads")
    costs, plans = zip(*threads(delayed(coupled)(*of_group) for of_group in found), strict=True)
    objective = math.fsum(of_found * costs)
    # The rounding of a lower bound may lift it above what it bounds.
    bound = min(max(bound, 0.0), objective)
    points = [points for points, _ in found]
    transport = SupportMap(space, codes, points, list(plans), objective, bound, n_iter, shared)
    return FairMap(rows.every, rows.computed, groups, weights, transport)


def map_of_rows(fair: Any, rows: RepairRows, rng: np.random.RandomState) -> FairMap:
    """Return the map by conditional distributions, with a certificate if one is possible.

    Its codes are exact rows, or rows drawn from a release. There is no certificate for the latter,
    and none of conditional parity.
    """
    method, codes, groups = rows.method, rows.codes, rows.groups
    warn_of_strata(rows)
    weights = group_weights(fair.weights, groups.sizes, groups.names)
    generator = np.random.default_rng(rng.randint(2**31))
    held_out = np.zeros(len(codes), dtype=bool)
    # Of conditional parity there is no bound: groups may differ in the columns that are fixed.
    is_checked = rows.certified and fair.epsilon is None and not rows.fixed
    if is_checked:
        held_out = hold_out(groups.codes, method.held_out, generator)
    tol, certificate, names = float(method.tol), None, groups.names.tolist()
    seed, did_harm = int(generator.integers(2**63)), False

    def fitted_to(
        part: np.ndarray, callback: Callable[[], object] = lambda: None
    ) -> ConditionalMap:
        of_part = np.where(part, groups.codes, -1)
        return fit_conditional(
            rows.columns, codes, of_part, weights, generator, method, rows.fixed, callback
        )

    def is_harm(raised: float) -> bool:
        few_rows, by_chance = 1000, harm_by_chance(groups.codes[held_out])
        # Few rows leave it open: that is two standard errors of an AUC, and more.
        if tol > 0 and held_out.sum() < few_rows and abs(raised) < 4.0 * by_chance:
            return does_harm(rows, fitted_to, generator)
        return tol > 0 and raised > by_chance

    with one_thread_unless(len(codes) >= MANY_ROWS):
        with progress_of(fair, unit=" columns") as bar:
            transport = fitted_to(~held_out, bar.update)
        if held_out.any():
            known = generator.permutation(np.flatnonzero(~held_out & (groups.codes >= 0)))
            parts = [known[:MOST_ROWS], np.flatnonzero(held_out)]
            before, labels = ([of[part] for part in parts] for of in (codes, groups.codes))
            keys = [row_keys(seed, of) for of in before]
            after = list(map(partial(transport.images, n_jobs=fair.n_jobs), before, labels, keys))
            raw = before if transport.moves else None
            certificate, did_harm = certify(
                after, labels, rows.columns, names, generator, raw, is_harm
            )
        elif is_checked and tol > 0 and transport.moves:
            did_harm = does_harm(rows, fitted_to, generator)
        if did_harm:
            transport = transport.at_rest()
    return FairMap(rows.every, rows.computed, groups, weights, transport, certificate)


def does_harm(
    rows: RepairRows,
    fitted_to: Callable[[np.ndarray], SupportMap | ConditionalMap],
    rng: np.random.Generator,
) -> bool:
    """Tell whether groups may be found more easily, where no certificate tells, or it is not clear.

    Maps of three quarters of the rows, by `fitted_to`, move the others. Of many rows, two folds are
    enough, and take half the time. So few rows must show that a repair helps, by twice as much as
    chance: otherwise, a map of 92 and 8 rows raised the AUC of the group by .07.
    """
    dealt, kept = deal_folds(rows.groups.codes, rng), rows.groups.codes >= 0
    codes, labels, folds = rows.codes[kept], rows.groups.codes[kept], dealt[kept]
    many_rows, times_chance, gains = 5000, 2.0, []
    n_folds = N_FOLDS if len(codes) <= many_rows else 2
    for fold in range(n_folds):
        # Like new rows: their draws are not those that the fit was made with.
        keys = row_keys(int(rng.integers(2**63)), codes)
        images, is_new = fitted_to(dealt != fold).images(codes, labels, keys), folds == fold
        before, after, of_groups = ([of[~is_new], of[is_new]] for of in (codes, images, labels))
        found = found_in(before, after, of_groups, rows.columns, len(rows.groups.names), fold)
        gains.append(found[0] - found[1])
    return sum(gains) / n_folds < times_chance * harm_by_chance(labels[folds < n_folds])
