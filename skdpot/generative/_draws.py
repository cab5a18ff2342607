"""Rows of a table, drawn from its model, with or without conditions.

Within a component of a mixture, columns are independent. So the conditional probability of values,
given others, is a sum over components. Columns with factors of strong pairs are drawn after their
parents; conditions on them choose among candidates by their weights.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.random import RandomState

from skdpot._base import warn_of_bounds, warn_user
from skdpot.generative import _factors, _records
from skdpot.generative._counts import merge_cells
from skdpot.generative._mixture import pair_counts
from skdpot.privacy.checks import check_count, to_display
from skdpot.tables import LOG, NOMINAL, NUMERIC, TableSchema, with_person, write_table


def draw_entries(
    weights: np.ndarray,
    rows: np.ndarray,
    rng: RandomState,
    sizes: np.ndarray | None = None,
    strata: np.ndarray | None = None,
) -> np.ndarray:
    """Return an entry for each record, with a probability proportional to those of its row.

    Parameters
    ----------
    weights : ndarray of shape (n_rows, n_entries)
        Of the entries of each row.
    rows : ndarray of shape (n,)
        The row of each record.
    rng : RandomState
        Source of randomness.
    sizes : ndarray of shape (n_strata, n_rows), default=None
        The expected number of records of each row in each stratum: the totals of entries are
        nearly those of this many records, while each record is drawn almost as if it were the only
        one. With None, records do not depend on each other.
    strata : ndarray of shape (n,), default=None
        The stratum of each record; None for one stratum. With one row of `sizes`, all strata are
        even together.

    Returns
    -------
    ndarray of shape (n,)
        Entries.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._draws import draw_entries
    >>> rng = np.random.RandomState(0)
    >>> draw_entries(np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([0, 1, 1]), rng)
    array([1, 0, 0])
    >>> np.bincount(draw_entries(np.full((50, 2), 0.5), np.arange(50), rng, np.ones((1, 50))))
    array([25, 25])
    """
    drawn = _factors.chosen_entries(weights, rows, rng.uniform(size=len(rows)))
    if sizes is not None:
        shares, strata = shares_of_rows(weights), np.zeros_like(rows) if strata is None else strata
        _factors.even_totals(drawn, strata, sizes @ shares, lambda moved: shares[rows[moved]], rng)
    return drawn


def shares_of_rows(weights):
    """Return the share that each entry has of its row; a row of zeros remains one."""
    tiny = 1e-300
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), tiny)


def draw_codes(starts, stops, intervals, uniforms):
    """Return codes that are spread over cells, by numbers from 0 to 1, and within the intervals."""
    firsts, lasts = np.array(intervals).T
    low = np.maximum(starts[:, None], firsts)
    sizes = np.maximum(np.minimum(stops[:, None], lasts) - low, 0)
    passed = np.cumsum(sizes, axis=1)
    # Uniform numbers are below 1, so that no code is beyond its cell.
    position = np.floor(uniforms * passed[:, -1]).astype(np.int64)
    piece = (position[:, None] >= passed).sum(axis=1)
    row = np.arange(len(starts))
    return low[row, piece] + position - (passed - sizes)[row, piece]


def sample_codes(
    model: Mapping[str, np.ndarray],
    schema: TableSchema,
    n_samples: int,
    rng: RandomState,
    given: Mapping[Any, Any] | None = None,
    labels: np.ndarray | None = None,
    *,
    evenly: bool = False,
) -> np.ndarray:
    """Return records that a model generates, under conditions.

    Parameters
    ----------
    model : mapping of str to ndarray
        Of `fit_table`.
    schema : TableSchema
        The declaration of the table.
    n_samples : int
        How many.
    rng : RandomState
        Source of randomness.
    given : mapping, default=None
        Conditions by the name of the column, as `TableSchema.intervals` reads them. They hold for
        all records.
    labels : ndarray of shape (n_samples,), default=None
        The class of each record. None draws them, given the conditions.
    evenly : bool, default=False
        Whether shares of components, of cells, and of each component's cells, are hardly changed
        by chance. Each record is drawn almost as if it were the only one, and all are nearer to
        the model than independent ones. Components of a model with parities are drawn
        independently, and columns of these have even totals in all classes together only.

    Returns
    -------
    ndarray of shape (n_samples, n_columns), dtype int64
        Codes, as of `read_codes`.

    Raises
    ------
    ValueError
        If a condition is none.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_schema
    >>> from skdpot.generative._draws import sample_codes
    >>> model = {
    ...     "n_cells": np.array([2, 2]), "starts": np.array([0, 1, 0, 1]),
    ...     "stops": np.array([1, 2, 1, 2]), "weights": np.array([0.5, 0.5]),
    ...     "classes": np.array([0, 0]), "cells": np.array([[1.0, 0, 1, 0], [0, 1, 0, 1]]),
    ... }
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> sample_codes(model, schema, 3, np.random.RandomState(0), {"sex": "M"})
    array([[1, 1],
           [1, 1],
           [1, 1]])
    """
    conditions = {
        schema.names.index(name): schema.intervals(name, condition)
        for name, condition in (given or {}).items()
    }
    features, ends = schema.features, np.cumsum(model["n_cells"])[:-1]
    cells = np.split(model["cells"], ends, axis=1)
    starts, stops = (np.split(model[name], ends) for name in ("starts", "stops"))
    intervals = [conditions.get(j) for j in features]
    allowed = list(map(_allowed_shares, starts, stops, intervals))
    prior, held = _conditioned(model, schema, conditions, cells, allowed)
    posterior = math.prod(held.values(), start=prior)
    factors = _factors.factors_of(model) if "edges" in model else {}
    # The posterior leaves factors out. So conditions on their columns choose among candidates.
    n_candidates, most_rows = 1, 2_000_000
    if held.keys() & factors.keys():
        n_candidates = min(max(most_rows // max(n_samples, 1), 2), 16)
    n_rows = n_samples * n_candidates
    # Trees find a parity because, by chance, components, its columns or pairs of these are slightly
    # informative about the target.
    parities = model.get("parities", np.zeros((1, len(features)), dtype=bool))
    by_chance = np.any(parities[parities.sum(axis=1) > 1], axis=0)
    evenly &= not conditions
    is_of_class = model["classes"] == np.arange(model["classes"].max() + 1)[:, None]
    if labels is None:
        of_classes = _with_fallback(posterior[None], prior) @ is_of_class.T
        everyone = np.array([[n_rows]]) if evenly else None
        labels = draw_entries(of_classes, np.zeros(n_rows, dtype=np.int64), rng, everyone)
    else:
        labels = np.repeat(labels, n_candidates)
    of_labels = shares_of_rows(_with_fallback(is_of_class * posterior, is_of_class * prior))
    of_each = np.bincount(labels, minlength=len(of_labels))[None]
    is_even = evenly and not by_chance.any()
    components = draw_entries(of_labels, labels, rng, of_each if is_even else None)
    of_all = np.bincount(components, minlength=len(prior))[None] if is_even else of_each @ of_labels
    sizes = is_of_class * of_all if evenly else None
    # Records are drawn faster in the order of their components.
    order = np.argsort(components, kind="stable")
    components = components[order]
    codes = np.empty((n_rows, len(schema.columns)), dtype=np.int64, order="F")
    if schema.target is not None and not schema.has_bands:
        codes[order, schema.target] = model["classes"][components]
    fine, halves, last = _factors.fine_groups(model) if factors else ([], [], [])
    # The class of each row, and the groups that its cells are in, by the column.
    grouped, fits = {-1: model["classes"][components]}, np.ones(n_rows)
    for c in model["order"].tolist() if factors else range(len(features)):
        profiles, rows, weights = cells[c], components, prior
        of_rows = of_all if by_chance[c] and evenly else sizes
        if c in factors:
            for parent in factors[c]:
                if parent < -1:
                    others = np.flatnonzero(parities[-2 - parent])
                    # Missing values have the last group.
                    parts = halves if len(others) > 1 else last
                    grouped[parent] = _factors.parity_groups(others, grouped, parts)
            # First a group of cells, given the parents, and then a cell of it.
            within = _cells_of_groups(fine[c], prior @ cells[c])
            weights, profiles = within.sum(axis=1), shares_of_rows(within)
            own = _factors.group_sums(cells[c], fine[c])
            rows, kept = _factors.draw_groups(
                own, components, factors[c], grouped, rng, profiles @ allowed[c], sizes=of_rows
            )
            if c in held:
                fits[order] *= kept / np.maximum(held[c][components], 1e-9)
            of_rows = None if of_rows is None else of_rows @ own
        widths = stops[c] - starts[c]
        # A row without any allowed cell gets all allowed codes with equal probability.
        of_cells = _with_fallback(profiles * allowed[c], allowed[c] * widths)
        chosen = draw_entries(of_cells, rows, rng, of_rows, grouped[-1])
        column, density = schema.columns[features[c]], (weights @ profiles) / widths
        codes[order, features[c]] = draw_column(
            column, starts[c], stops[c], density, chosen, rng, intervals[c]
        )
        if factors:
            grouped[c] = rows if c in factors else fine[c][chosen]
    if n_candidates == 1:
        return codes
    chosen = draw_entries(fits.reshape(n_samples, n_candidates), np.arange(n_samples), rng)
    return codes[np.arange(n_samples) * n_candidates + chosen]


def _conditioned(model, schema, conditions, cells, allowed):
    """Return components' weights, if their class is allowed, and by how much they meet conditions.

    The latter has the probability that a component has an allowed value, by the place of a column
    with a condition.
    """
    prior = model["weights"]
    if schema.target in conditions and not schema.has_bands:
        classes = [np.arange(*interval) for interval in conditions[schema.target]]
        prior = prior * np.isin(model["classes"], np.concatenate(classes))
    held = {c: cells[c] @ allowed[c] for c, j in enumerate(schema.features) if j in conditions}
    # A value that no component has, as in an empty tail, does not change the posterior.
    return prior, {c: met if met.any() else np.ones(len(prior)) for c, met in held.items()}


def _cells_of_groups(fine, shares):
    """Return the share of each cell, in the row of its group; in an empty one, cells are equal."""
    is_of_group = fine == np.arange(fine.max() + 1)[:, None]
    return _with_fallback(is_of_group * shares, is_of_group)


def draw_column(column, starts, stops, density, chosen, rng, intervals=None):
    """Return a code of a column for each record, within the cell that was chosen for it.

    Parameters
    ----------
    column : Column
        Its declaration.
    starts, stops : ndarray of shape (n_cells,)
        The first codes of cells, and the ends of cells.
    density : ndarray of shape (n_cells,)
        The share of all records of a cell, over its width.
    chosen : ndarray of shape (n,)
        The cell of each record.
    rng : RandomState
        Source of randomness.
    intervals : list of (int, int), default=None
        The allowed codes; None for all.

    Returns
    -------
    ndarray of shape (n,)
        Codes.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._draws import draw_column
    >>> from skdpot.tables import read_schema
    >>> column = read_schema({"age": range(10)}).columns[0]
    >>> cells, rng = (np.array([0, 9]), np.array([9, 10])), np.random.RandomState(0)
    >>> draw_column(column, *cells, np.array([0.0, 1.0]), np.array([1, 0, 1]), rng, [(8, 10)])
    array([9, 8, 9])
    """
    within = [(0, column.n_codes)] if intervals is None else intervals
    codes = draw_codes(starts[chosen], stops[chosen], within, rng.uniform(size=len(chosen)))
    if intervals is not None:
        return codes
    heaps = _heaps(column, starts, stops, density)[chosen]
    return np.where(heaps < 0, codes, heaps)


def _heaps(column, starts, stops, density):
    """Return the only code that a cell has, if it has a heap, and -1 otherwise.

    Where people write round numbers, cells are cut until each round number is in a narrow cell of
    its own.
    """
    codes = np.full(len(starts), -1)
    # Integers are round numbers themselves.
    if column.kind != NUMERIC or column.integer:
        return codes
    nearby = np.maximum(np.append(0, density[:-1]), np.append(density[1:], 0))
    # A cell with a heap is narrower than the bounds by this factor, and denser than its neighbours
    # by this one.
    most_of_heap = 1024
    narrow = (stops - starts) * most_of_heap <= column.n_known
    heap_density = 5.0
    heaped = narrow & (density > heap_density * nearby) & (starts > 0) & (stops < column.n_known)
    codes[heaped] = column.rounded_codes(starts[heaped], stops[heaped])
    return codes


def _allowed_shares(starts, stops, intervals):
    """Return the share of each cell within the intervals; 1 for `intervals` of None."""
    # A cell may have a part of its codes within an interval, which are equally likely.
    overlaps = [
        np.maximum(np.minimum(stops, last) - np.maximum(starts, first), 0)
        for first, last in intervals or [(0, stops[-1])]
    ]
    return np.sum(overlaps, axis=0) / (stops - starts)


def _with_fallback(weights, fallback):
    """Return weights, with the fallback in rows where all are 0."""
    return np.where(weights.any(axis=1, keepdims=True), weights, fallback)


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
    statistics : mapping of str to ndarray
        The statistics of `release_marginals` to which the model was fitted.
    rules : Rules, default=Rules()
        That samples keep.
    """

    space: _records.TableSpace
    model: Mapping[str, np.ndarray]
    n_records: int
    statistics: Mapping[str, np.ndarray]
    rules: _records.Rules = _records.Rules()

    network = None

    @property
    def counts(self) -> np.ndarray:
        """Return the share of the records that each class has."""
        n_classes = self.space.schema.n_classes
        return np.bincount(self.model["classes"], self.model["weights"], minlength=n_classes)

    def warn_of_bounds(self) -> None:
        """Warn of columns of which all that was released is in one place, or missing.

        Of columns that are no numbers, or few, only the latter is of interest; and of a logarithmic
        scale, on which bounds may be wide, whether all are at an end. A numeric target is looked at
        by its bands, too. The model shows it better than the counts: in 12 columns of 2,000 equal
        records, with epsilon 1 or 3, it had up to 70 in other cells, and the counts up to 97 more
        or less.
        """
        schema, axes = self.space.schema, []
        noise = 0.75 * self.statistics["deviations"][0] * math.sqrt(schema.n_classes)
        each = zip(schema.features, self.merged_cells(0.0), strict=True)
        parts = [(schema.columns[j], starts, shares) for j, (starts, _, shares, _) in each]
        if schema.has_bands:
            target = schema.columns[schema.target or 0]
            parts.append((target, target.band_starts(), self.counts))
        for column, starts, shares in parts:
            n_known = len(shares) - column.missing
            firsts, lows = np.zeros(1, dtype=np.intp), np.zeros(1)
            if column.kind == NUMERIC and column.n_known > 8:
                firsts = np.arange(n_known)[[0, 1, -1] if column.scale == LOG else slice(None)]
                lows = column.numbers(starts[firsts], np.zeros(len(firsts)))
            highs = np.append(lows[1:] - column.integer, column.high)
            merged = np.add.reduceat(shares, [*firsts, *[n_known] * column.missing])
            deviation = noise * math.sqrt(np.diff(firsts, append=n_known).max())
            axes.append((repr(column.name), lows, highs, self.n_records * merged, deviation))
        warn_of_bounds(axes)

    def merged_cells(self, min_share: float) -> list[tuple[np.ndarray, ...]]:
        """Return the cells of every column but the target, and how they are merged into groups.

        Each column has four arrays: where the codes of cells start, where they stop, their shares
        of all records, and groups of consecutive cells with a share of about `min_share` or more.
        """
        model = self.model
        shares = model["weights"] @ model["cells"]
        ends = np.cumsum(model["n_cells"])[:-1]
        column_parts = [np.split(part, ends) for part in (model["starts"], model["stops"], shares)]
        return [
            (*part, merge_cells(part[-1], min_share)) for part in zip(*column_parts, strict=True)
        ]

    def ties(self) -> dict[tuple[int, int], tuple[float, float, int]]:
        """Return how closely columns are tied two by two, the error of that, and its unit.

        The measure is the mean square contingency of released pairs, less its noise: for Gaussian
        columns of correlation r, about r^2 / (1 - r^2). The error is a standard deviation, by
        noise. With a column without an order, the unit is the largest possible contingency.
        """
        schema, released = self.space.schema, self.statistics
        groups = np.split(released["groups"], np.cumsum(released["n_cells"])[:-1])
        cells = self.merged_cells(0.0)
        shares = [np.bincount(group, of[2]) for group, of in zip(groups, cells, strict=True)]
        tables = pair_counts(released["pairs"], [len(x) for x in shares], schema.n_classes)
        noise, found = released["deviations"][1] * math.sqrt(schema.n_classes), {}
        for (a, b), table in tables.items():
            counts = table.sum(axis=0)
            n_records = max(counts.sum(), 1.0)
            expected = n_records * np.outer(shares[a], shares[b])
            weights = 1.0 / (expected + max(noise, 1.0))
            excess = (weights * ((counts - expected) ** 2 - noise**2)).sum()
            error = math.sqrt(2.0) * noise**2 * np.linalg.norm(weights)
            nominal = NOMINAL in (schema.columns[schema.features[j]].kind for j in (a, b))
            largest = min(table.shape[1:]) - 1 if nominal else 1
            found[a, b] = excess / n_records, error / n_records, largest
        return found

    def closer_ties(self, other: Self, moving: Collection[int], drawn: Collection[int]) -> float:
        """Return by how much more columns may be tied here than in another release, together.

        Counted are pairs of which one is moving and none is drawn. Of noise, two standard
        deviations are added.
        """
        ties, others = self.ties(), other.ties()
        pairs = [pair for pair in ties if {*pair} & {*moving} and not {*pair} & {*drawn}]
        first, second = (max(sum(of[pair][0] for pair in pairs), 0.0) for of in (ties, others))
        return max(first - second + 2.0 * math.hypot(*(ties[pair][1] for pair in pairs)), 0.0)

    def codes_of(self, classes: np.ndarray, rng: RandomState) -> np.ndarray:
        """Return the codes of a drawn record of each of these classes."""
        return sample_codes(self.model, self.space.schema, len(classes), rng, None, classes)

    def sample(
        self, n_samples: Any, y: Any, given: Any, rng: RandomState, *, evenly: bool = True
    ) -> Any:
        """Return a table of records, and their labels where these are no column of it."""
        # Labels that are asked for take the place of a number of rows.
        classes = self.space.classes
        classes = None if y is None else _records.wanted_labels(n_samples, y, classes, rng)
        n_samples = check_count("n_samples", n_samples) if classes is None else len(classes)
        _, *plain = self._rows(n_samples, rng, given, classes, evenly=evenly)
        schema = self.space.table_schema
        columns = schema.presented(plain[: len(schema.columns)])
        table = write_table(self.space.container, schema, columns, self._computed(plain))
        labels = self._labels(plain)
        return table if labels is None else (table, labels)

    def _frame(self, plain: Sequence[np.ndarray]) -> Any:
        """Return rows as a pandas data frame, with the target if it is declared in the schema."""
        schema = self.space.named_schema
        return _records.frame_of(schema, plain[: len(schema.columns)])

    def _computed(self, plain: Sequence[np.ndarray]) -> dict[Any, np.ndarray]:
        """Return the computed columns of rows."""
        computed = self.space.schema.computed
        if not computed:
            return {}
        frame = self.rules.complete(self._frame(plain))
        return {one.name: _records.computed_values(one, frame[one.name]) for one in computed}

    def _labels(self, plain: Sequence[np.ndarray]) -> Any:
        """Return the target of rows, where it is not a column of tables."""
        schema = self.space.schema
        if schema.target is None or not self.space.apart:
            return None
        if self.space.classes is not None:
            return self.space.classes[plain[schema.target]]
        return schema.columns[schema.target].presented(plain[schema.target])

    def sample_users(self, n_users: int, name: str, rng: RandomState) -> Any:
        """Return the rows of this many people, with a column of this name for their person."""
        sizes = _records.draw_sizes(self.statistics, n_users, rng)
        # Even draws would make the rows of a person depend on those of others.
        drawn = self.sample(int(sizes.sum()), None, None, rng, evenly=False)
        table, *labels = drawn if isinstance(drawn, tuple) else (drawn,)
        person = np.repeat(np.arange(n_users), sizes)
        if isinstance(table, np.ndarray):
            table = np.column_stack([person.astype(table.dtype), table])
        else:
            table = with_person(table, name, person)
        return (table, *labels) if labels else table

    def score(self, estimator: Any, X: Any, y: Any, reg: float, rng: RandomState) -> float:
        """Return minus the Sinkhorn divergence of generated records from given ones."""
        schema = self.space.schema
        codes = self.space.read(estimator, X, y, reset=False)
        codes = codes[rng.permutation(len(codes))[: _records.SCORED_ROWS]]
        # Rows are drawn for the labels of the given ones: shares of classes do not count.
        labels = None if schema.target is None else schema.classes_of(codes[:, schema.target])
        samples = self._rows(len(codes), rng, None, labels, evenly=False)[0]
        points, sampled = (_table_points(rows, schema) for rows in (codes, samples))
        return -_records.sinkhorn_divergence(sampled, points, reg=reg)

    def _rows(
        self, n_samples: int, rng: RandomState, given: Any, classes: np.ndarray | None, evenly: bool
    ) -> list[np.ndarray]:
        """Return records under conditions that keep all rules: codes, and each column's numbers."""
        space, schema = self.space, self.space.schema
        conditions = self._conditions(given, classes is not None)
        # A label beside the table is the last column, and has no position within its code.
        n_drawn = len(schema.columns) - (space.apart and not schema.has_bands)

        def draw(n: int, labels: np.ndarray | None) -> list[np.ndarray]:
            codes = sample_codes(self.model, schema, n, rng, conditions, labels, evenly=evenly)
            uniforms = np.zeros(codes.shape)
            uniforms[:, :n_drawn] = rng.uniform(size=(n, n_drawn))
            return [codes, *schema.plain_values(codes, uniforms, conditions)]

        if not (self.rules and n_samples):
            return draw(n_samples, classes)

        def kept(rows: list[np.ndarray]) -> np.ndarray:
            right = self.rules.kept(self._frame(rows[1:]), schema)
            shares.append(right.mean())
            return right

        shares: list[float] = []
        drawn = _records.draw_rows(draw, kept, n_samples, classes, rng)
        if not self.rules.conditions and min(shares) < 0.5:
            # A function of the release.
            warn_user("most drawn rows are left out: compare computed columns with the schema.")
        return drawn

    def _conditions(self, given: Any, labelled: bool) -> Mapping[Any, Any]:
        """Return conditions by the names of columns, or raise."""
        given = {} if given is None else given
        names = self.space.named_schema.names
        if not isinstance(given, Mapping):
            raise ValueError(
                f"given must be a dictionary of conditions by the name of a column, among {names}, "
                f"such as given={{{names[0]!r}: value}}; got {to_display(given)}."
            )
        unknown = [to_display(name) for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"given has a condition on {', '.join(unknown)}, and the table has no such column "
                f"that is learned. Those are {names}."
            )
        if labelled and self.space.target is not None and self.space.target in given:
            raise ValueError("given has a condition on the target, for which y asks: use one.")
        return given


def _table_points(rows: np.ndarray, schema: TableSchema) -> np.ndarray:
    """Return records as points whose squared distances are sums of differences of columns.

    Numbers and levels are scaled to the range from -1 to 1. Different categories have the distance
    2. A missing number is at 0, and has the distance 1 from all others in a further coordinate.
    """
    parts = []
    # Different categories have the distance of the two ends of the range of a number.
    half_range = 2**-0.5
    for column, codes in zip(schema.columns, rows.T, strict=True):
        known = codes < column.n_known
        if column.kind == "nominal":
            one_hot = codes[:, None] == np.arange(column.n_codes)
            parts.append(one_hot * (2 * half_range))
            continue
        along = 2 * column.positions_of_codes(codes) - 1
        parts.append(np.where(known, along, 0.0)[:, None])
        if column.missing:
            parts.append(np.where(known, 0.0, 1.0)[:, None])
    return np.column_stack(parts)
