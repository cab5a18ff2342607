"""Models of a table as it may have been, given what was released of it: for inference.

The model that is fitted for samples is shrunk towards independence, which no interval could tell.
Here one is fitted that has the released moments of columns and of their pairs as they are. It is
fitted again and again to what was released with more noise, as much of each kind as is in it: that
of the release, and that of drawing records. Moments are sums of counts, and so the models move by
as much as the first one erred.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import ndtri

from skdpot.generative._sketch.column_totals import with_totals
from skdpot.generative._sketch.descent import column_slices
from skdpot.generative._sketch.marginals import count_together, possible_counts
from skdpot.generative._sketch.table_model import sample_units, shares_within, with_even_share
from skdpot.generative._sketch.tilted_mixture import ColumnFunctions, MomentFit
from skdpot.tables import TableSchema
from skdpot.transport import nearest_distribution

__all__ = ["draw_models"]

# The functions of a column with no more groups, and of categories, are all that there are.
_FEW_GROUPS = 4
_SMALLEST_SHARE = 1e-6
# The least that is taken for noise is a record.
_LEAST_NOISE = 1.0
# A moment of curves with more noise than that, where variances are 1, is not asked for.
_MOST_NOISE = 0.25
# A function that differs less from others is left out.
_LEAST_VARIANCE = 1e-3
# The noise of more records is that of so many, made smaller.
_MOST_ROWS = 100_000
# A mean within a group keeps so much of its range from either end.
_MARGIN = 0.02
_NEWTON_STEPS = 30
_SEED = 0


def draw_models(
    statistics: Mapping[str, np.ndarray],
    schema: TableSchema,
    n_records: int,
    n_sets: int,
    rng: np.random.RandomState,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield models of the population that a table may have come from, given what was released.

    Parameters
    ----------
    statistics : mapping of str to ndarray
        Of `release_marginals`.
    schema : TableSchema
        What the table is declared to hold.
    n_records : int
        About how many records there are.
    n_sets : int
        How many models.
    rng : RandomState
        Source of randomness.

    Yields
    ------
    dict of str to ndarray
        As of `fit_table`.

    Notes
    -----
    Derivation: :ref:`sketch-inference`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_schema
    >>> from skdpot.generative._sketch.inference import draw_models
    >>> released = {
    ...     "n_cells": np.array([2, 2]), "starts": np.array([0, 1, 0, 1]),
    ...     "stops": np.array([1, 2, 1, 2]), "counts": np.array([[800.0], [200], [300], [700]]),
    ...     "groups": np.array([0, 1, 0, 1]), "pairs": np.array([300.0, 500, 0, 200]),
    ...     "deviations": np.array([20.0, 20.0]),
    ... }
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> models = list(draw_models(released, schema, 1000, 20, np.random.RandomState(0)))
    >>> shares = [(model["weights"] @ model["cells"])[0] for model in models]
    >>> print(f"{np.mean(shares):.1f} {np.std(shares):.2f}")
    0.8 0.02
    """
    layout = _Layout(statistics, schema)
    counts = _Counts(statistics["counts"], statistics["pairs"].reshape(-1, schema.n_classes))
    n_records = max(n_records, 1)
    first, start = _fit(layout, counts, None)
    expected = layout.of_model(first)
    for _ in range(n_sets):
        error = _errors(layout, first, expected, n_records, rng)
        yield _fit(layout, counts.plus(error), start)[0]


@dataclass(frozen=True, eq=False)
class _Counts:
    """Counts of the cells of all columns, and of pairs of groups, of each class."""

    cells: np.ndarray
    pairs: np.ndarray

    def plus(self, other: "_Counts", factor: float = 1.0) -> "_Counts":
        """Return the sum with others."""
        return _Counts(self.cells + factor * other.cells, self.pairs + factor * other.pairs)


class _Layout:
    """Which cells and groups are counted.

    Parameters
    ----------
    statistics : mapping of str to ndarray
        Of `release_marginals`.
    schema : TableSchema
        What the table is declared to hold.
    """

    def __init__(self, statistics: Mapping[str, np.ndarray], schema: TableSchema) -> None:
        self.schema = schema
        self.ends = {name: statistics[name] for name in ("n_cells", "starts", "stops")}
        self.cells = np.split(
            np.arange(len(statistics["groups"])), np.cumsum(statistics["n_cells"])[:-1]
        )
        self.groups = [statistics["groups"][cell] for cell in self.cells]
        self.sizes = [int(group.max()) + 1 for group in self.groups]
        self.columns = column_slices(self.sizes)
        # The group of each cell, among those of all columns.
        self.group_of_cell = np.concatenate(
            [column.start + group for column, group in zip(self.columns, self.groups, strict=True)]
        )

        # Of the noise: counts that were wanted more have less.
        of_cells, of_pairs, *of_both = statistics["deviations"]
        self._pairs = list(combinations(range(len(self.sizes)), 2))
        self._shapes = list(combinations(self.sizes, 2))
        weights = statistics.get("column_weights", np.ones(len(self.cells)))
        weights = np.repeat(weights, self.ends["n_cells"])
        self.of_cells = of_cells / np.sqrt(weights)
        # Before they were combined: of each class, and of all together, where these were counted.
        self._of_values, *self._of_totals = (of / np.sqrt(weights) for of in of_both or [of_cells])
        weights = statistics.get("pair_weights", np.ones(len(self._pairs)))
        self._of_tables = of_pairs / np.sqrt(weights)
        self.of_pairs = np.repeat(self._of_tables, [a * b for a, b in self._shapes])

    def grouped(self, of_cells: np.ndarray) -> np.ndarray:
        """Return sums over the cells of each group."""
        return np.bincount(self.group_of_cell, of_cells, minlength=sum(self.sizes))

    def noise(self, rng: np.random.RandomState) -> _Counts:
        """Return noise as there is in what was released, and none where no record can be."""
        n_classes = self.schema.n_classes
        cells = self._of_values[:, None] * rng.normal(size=(len(self._of_values), n_classes))
        pairs = self.of_pairs[:, None] * rng.normal(size=(len(self.of_pairs), n_classes))
        possible = np.ones(cells.shape, dtype=bool)
        if self.schema.has_bands:
            starts = [self.ends["starts"][cells] for cells in self.cells]
            possible, of_pairs = map(
                np.concatenate, possible_counts(self.schema, starts, self.groups)
            )
            cells, pairs = cells * possible, pairs * of_pairs.reshape(pairs.shape)
        for of_totals in self._of_totals:
            totals = of_totals * rng.normal(size=len(cells))
            cells = with_totals(cells, totals, self._of_values, of_totals, possible)
        return _Counts(cells, pairs)

    def tables(self, pairs: np.ndarray) -> Iterator[tuple[tuple[int, int], np.ndarray, float]]:
        """Yield the columns of each pair, its counts of all classes, and their noise."""
        stops = np.cumsum([a * b for a, b in self._shapes])
        for pair, shape, stop, deviation in zip(
            self._pairs, self._shapes, stops, self._of_tables, strict=True
        ):
            table = pairs[stop - shape[0] * shape[1] : stop].reshape(*shape, -1)
            yield pair, table, max(float(deviation), _LEAST_NOISE)

    def of_units(self, units: np.ndarray) -> _Counts:
        """Return the counts of records."""
        n_classes = self.schema.n_classes
        target, classes = self.schema.target, np.zeros(len(units), dtype=np.int64)
        if target is not None:
            classes = self.schema.classes_of(units[:, target])
        counts, codes = [], []
        for j, cells, group in zip(self.schema.features, self.cells, self.groups, strict=True):
            starts = self.ends["starts"][cells]
            cell = np.searchsorted(starts, units[:, j], side="right") - 1
            counts.append(np.bincount(cell * n_classes + classes, minlength=len(cells) * n_classes))
            codes.append(group[cell])
        pairs = [
            count_together(codes, self.sizes, pair, classes, n_classes)
            for pair in combinations(range(len(codes)), 2)
        ]
        counted = (np.concatenate([*part, np.zeros(0)]) for part in (counts, pairs))
        return _Counts(*(part.reshape(-1, n_classes) for part in counted))

    def of_model(self, model: Mapping[str, np.ndarray]) -> _Counts:
        """Return the shares of all records that a model has in the place of counts."""
        of_classes = model["classes"] == np.arange(self.schema.n_classes)[:, None]
        weights = of_classes * model["weights"]
        profiles = np.stack([self.grouped(of_component) for of_component in model["cells"]])
        parts = [profiles[:, column] for column in self.columns]
        pairs = [
            np.einsum("ck,ka,kb->abc", weights, parts[a], parts[b], optimize=True).ravel()
            for a, b in combinations(range(len(parts)), 2)
        ]
        of_pairs = np.concatenate([*pairs, np.zeros(0)]).reshape(-1, self.schema.n_classes)
        return _Counts((weights @ model["cells"]).T, of_pairs)


def _errors(layout, model, expected, n_records, rng):
    """Return by what counts of records of a model differ from those expected, noise included."""
    n_rows = min(n_records, _MOST_ROWS)
    units = sample_units(model, layout.schema, n_rows, rng)
    chance = layout.of_units(units).plus(expected, -n_rows)
    return layout.noise(rng).plus(chance, np.sqrt(n_records / n_rows))


def _fit(layout, counts, starts):
    """Return the model of counts, and of each class its fit, curved tests and mixture.

    These are where the next fit starts; for starts of None it is the first.
    """
    schema = layout.schema
    of_columns = np.add.reduceat(counts.cells, [cell[0] for cell in layout.cells], axis=0)
    # Columns with more cells add up more noise.
    totals = np.average(of_columns, axis=0, weights=1 / layout.ends["n_cells"])
    n_records = max(float(totals.sum()), 1.0)
    shares_of_classes = with_even_share(nearest_distribution(totals / n_records))
    of_groups = _counts_of_groups(layout, counts)
    rng = np.random.RandomState(_SEED)
    classes = []
    for c, share in enumerate(shares_of_classes):
        n_here = max(share * n_records, 1.0)
        shares = _shares_of_cells(layout, counts, of_groups[:, c] / n_here, c)
        fit, curved = _functions_of(layout, shares) if starts is None else starts[c][:2]
        known = shares, *_moments(layout, fit, curved, counts.pairs[:, c], n_here, shares)
        mixture = fit.first(*known, rng) if starts is None else fit.moved(starts[c][2], *known)
        classes.append((fit, curved, mixture))
    profiles = [mixture.profiles for _, _, mixture in classes]
    n_components = [len(profile) for profile in profiles]
    model = {
        **layout.ends,
        "weights": np.repeat(shares_of_classes / n_components, n_components),
        "classes": np.repeat(np.arange(schema.n_classes), n_components),
        "cells": np.concatenate(profiles),
    }
    return model, classes


def _counts_of_groups(layout, counts):
    """Return how many records each group has in each class: of all tables that tell, weighted."""
    n_groups, n_classes = sum(layout.sizes), counts.cells.shape[1]
    variances = layout.grouped(np.maximum(layout.of_cells, _LEAST_NOISE) ** 2)
    precisions = np.repeat(1 / variances[:, None], n_classes, axis=1)
    sums = precisions * np.apply_along_axis(layout.grouped, 0, counts.cells)
    for (a, b), table, deviation in layout.tables(counts.pairs):
        for column, other in ((a, 1), (b, 0)):
            precision = 1 / (table.shape[other] * deviation**2)
            sums[layout.columns[column]] += precision * table.sum(axis=other)
            precisions[layout.columns[column]] += precision
    return (sums / precisions).reshape(n_groups, n_classes)


def _shares_of_cells(layout, counts, of_groups, c):
    """Return the distribution of each column in a class."""
    shares = []
    for j, group in enumerate(layout.groups):
        nearest = with_even_share(nearest_distribution(of_groups[layout.columns[j]]))
        shares.append(nearest[group] * _within(layout, counts.cells, c, j))
    return np.maximum(np.concatenate(shares), _SMALLEST_SHARE)


def _functions_of(layout, shares):
    """Return a fit with functions of all columns, and which tests are of second degree."""
    functions, curved = zip(*_functions(layout, shares), strict=True)
    return MomentFit(functions), np.concatenate(curved)


def _functions(layout, shares):
    """Yield the functions of each column, and which of its tests are of second degree."""
    ends = column_slices(layout.ends["n_cells"])
    for j, cells, group, size in zip(
        layout.schema.features, ends, layout.groups, layout.sizes, strict=True
    ):
        column, of_cells = layout.schema.columns[j], shares[cells]
        of_groups = np.bincount(group, of_cells)
        missing = np.zeros((int(column.missing), len(group)))
        missing[:, len(group) - 1 :] = 1.0
        if column.kind == "nominal" or size - len(missing) <= _FEW_GROUPS:
            known = _orthonormal(np.eye(size)[1:], of_groups)[:, group]
            yield ColumnFunctions(known, known), np.zeros(len(known), dtype=bool)
            continue
        is_known = 1.0 - missing.sum(axis=0)
        of_known = of_cells * is_known / (of_cells @ is_known)
        # Normal scores: by tilts along them normal distributions depend on each other.
        below = np.clip(np.cumsum(of_known) - of_known / 2, _SMALLEST_SHARE, 1 - _SMALLEST_SHARE)
        scores = ndtri(below) * is_known
        places = (layout.ends["starts"][cells] + layout.ends["stops"][cells]) / 2 * is_known
        tests = [
            np.bincount(group, function * of_cells) / of_groups
            for function in (*missing, places, scores**2)
        ]
        functions = ColumnFunctions(
            _orthonormal([*missing, scores], of_cells),
            _orthonormal(tests, of_groups)[:, group],
        )
        curved = np.zeros(len(functions.tests), dtype=bool)
        curved[len(missing) + 1 :] = True
        yield functions, curved


def _orthonormal(functions, shares):
    """Return functions of mean 0 and variance 1, without correlation, that span the same ones."""
    found = np.zeros((0, len(shares)))
    for function in functions:
        left = function - shares @ function
        left = left - (found * shares @ left) @ found
        variance = shares @ left**2
        if variance > _LEAST_VARIANCE * (shares @ np.square(function)):
            found = np.vstack([found, left / np.sqrt(variance)])
    return found


def _moments(layout, fit, curved, pairs, n_records, shares):
    """Return covariances of tests in a class, and one over the deviations of their noise."""
    tests = np.zeros((len(fit.tests), sum(layout.sizes)))
    tests[:, layout.group_of_cell] = fit.tests
    means, norms = fit.tests @ shares, np.sqrt(np.sum(tests**2, axis=1))
    moments, deviations = np.zeros(fit.between.shape), np.ones(fit.between.shape)
    for (a, b), table, deviation in layout.tables(pairs[:, None]):
        first, second = fit.of_tests[a], fit.of_tests[b]
        products = tests[first, layout.columns[a]] @ table[:, :, 0] / n_records
        moments[first, second] = (
            products @ tests[second, layout.columns[b]].T - np.outer(means[first], means[second])
        )  # fmt: skip
        of_noise = deviation / n_records * np.outer(norms[first], norms[second])
        deviations[first, second] = np.sqrt(of_noise**2 + 1 / n_records)
    moments, deviations = (
        np.where(np.tri(len(matrix), k=-1, dtype=bool), matrix.T, matrix)
        for matrix in (moments, deviations)
    )
    # What noise hides of curves is not asked for.
    wanted = (deviations < _MOST_NOISE) | ~(curved[:, None] | curved)
    return moments, np.where(fit.between & wanted, 1 / deviations, 0.0)


def _within(layout, counts, c, k):
    """Return the share that each cell of a column has of its group, in a class.

    Cells of numbers are few records each, and none is below 0, which makes tails heavier. So the
    mean of each group is made what counts say it is.
    """
    column, cells, group = (
        layout.schema.columns[layout.schema.features[k]], layout.cells[k], layout.groups[k],
    )  # fmt: skip
    shares = shares_within(counts[cells], group, c, max(float(layout.of_cells[cells[0]]), 1.0))
    if column.kind == "nominal":
        return shares
    starts, stops = (layout.ends[name][cells] for name in ("starts", "stops"))
    places = (starts + stops - 1) / 2.0
    size = layout.sizes[k]
    known = np.bincount(group, stops > column.n_known, minlength=size) == 0
    return _tilted(shares, counts[cells, c], group, places, known)


def _tilted(shares, counts, group, places, movable):
    """Return shares within groups, some of which are tilted until they have the means of counts."""
    size = len(movable)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, group, places)
    np.maximum.at(high, group, places)
    mass = np.bincount(group, counts, minlength=size)
    movable = movable & (mass > 0) & (high > low)
    span = np.where(movable, high - low, 1.0)
    mean = np.bincount(group, shares * places, minlength=size)
    wanted = np.bincount(group, counts * places, minlength=size) / np.where(movable, mass, 1.0)
    wanted = np.clip(wanted, low + _MARGIN * span, high - _MARGIN * span)
    goal = np.where(movable, (wanted - mean) / span, 0.0)
    along = np.where(movable[group], (places - mean[group]) / span[group], 0.0)
    tilt = np.zeros(size)
    for _ in range(_NEWTON_STEPS):
        tilted = shares * np.exp(tilt[group] * along)
        tilted /= np.bincount(group, tilted)[group]
        now = np.bincount(group, tilted * along)
        variance = np.maximum(np.bincount(group, tilted * along**2) - now**2, 1e-4)
        # No step is so long that the next one would be back, and no tilt out of range.
        tilt = np.clip(tilt + np.clip((goal - now) / variance, -5, 5), -50, 50)
    tilted = shares * np.exp(tilt[group] * along)
    return tilted / np.bincount(group, tilted)[group]
