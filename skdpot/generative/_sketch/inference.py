"""Models of a table that agree with its release: for inference.

The model that is fitted for samples is shrunk towards independence, a bias that no interval would
show. The models of this module have the released moments of columns and of their pairs as they
are. They are fitted to the released statistics with more noise: as much as the release added, and
as much as the drawing of records made. Moments are sums of counts, so the models differ from the
first one as that one differs from the population.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import ndtri

from skdpot.generative._sketch.cell_groups import possible_counts
from skdpot.generative._sketch.column_totals import with_totals
from skdpot.generative._sketch.descent import column_slices
from skdpot.generative._sketch.noisy_counts import count_together
from skdpot.generative._sketch.table_draws import sample_units
from skdpot.generative._sketch.table_model import shares_within, with_even_share
from skdpot.generative._sketch.tilted_mixture import ColumnFunctions, MomentFit
from skdpot.tables import TableSchema
from skdpot.transport import nearest_distribution

__all__ = ["draw_models"]

# A column with no more groups, or of categories, has an indicator function for each group.
_FEW_GROUPS = 4
_SMALLEST_SHARE = 1e-6
# Noise is taken to be at least one record.
_LEAST_NOISE = 1.0
# A moment of second degree with more noise than this is not fitted; variances are 1.
_MOST_NOISE = 0.25
# A function is left out if so small a part of its variance is new.
_LEAST_VARIANCE = 1e-3
# With more records, the sampling error is that of so many, scaled.
_MOST_ROWS = 100_000
# The least distance of a mean within a group from either end of its range, as a part of it.
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
    """Yield models of the population of a table that agree with its release.

    Parameters
    ----------
    statistics : mapping of str to ndarray
        Of `release_marginals`.
    schema : TableSchema
        The declaration of the table.
    n_records : int
        About how many records there are.
    n_sets : int
        Number of models.
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
    model, start = _fit(layout, counts, None)
    expected = layout.model_shares(model)
    for _ in range(n_sets):
        error = _errors(layout, model, expected, n_records, rng)
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
        The declaration of the table.
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

        # Standard deviations of the noise; of a cell, and of a pair.
        cell_noise, pair_noise, *separate_noise = statistics["deviations"]
        self._pairs = list(combinations(range(len(self.sizes)), 2))
        self._shapes = list(combinations(self.sizes, 2))
        self.cell_noise = np.full(len(self.group_of_cell), cell_noise)
        # Before counts were combined: of each class, and of all together, where these were counted.
        self._value_noise, *self._total_noise = (
            np.full(len(self.group_of_cell), noise) for noise in separate_noise or [cell_noise]
        )
        self._table_noise = np.full(len(self._pairs), pair_noise)
        self.pair_noise = np.repeat(self._table_noise, [a * b for a, b in self._shapes])

    def grouped(self, values: np.ndarray) -> np.ndarray:
        """Return sums over the cells of each group."""
        return np.bincount(self.group_of_cell, values, minlength=sum(self.sizes))

    def noise(self, rng: np.random.RandomState) -> _Counts:
        """Return noise as in the released counts, and none where no record can be."""
        n_classes = self.schema.n_classes
        cells = self._value_noise[:, None] * rng.normal(size=(len(self._value_noise), n_classes))
        pairs = self.pair_noise[:, None] * rng.normal(size=(len(self.pair_noise), n_classes))
        possible = np.ones(cells.shape, dtype=bool)
        if self.schema.has_bands:
            starts = [self.ends["starts"][cells] for cells in self.cells]
            possible, possible_pairs = map(
                np.concatenate, possible_counts(self.schema, starts, self.groups)
            )
            cells, pairs = cells * possible, pairs * possible_pairs.reshape(pairs.shape)
        for total_noise in self._total_noise:
            totals = total_noise * rng.normal(size=len(cells))
            cells = with_totals(cells, totals, self._value_noise, total_noise, possible)
        return _Counts(cells, pairs)

    def tables(self, pairs: np.ndarray) -> Iterator[tuple[tuple[int, int], np.ndarray, float]]:
        """Yield the columns of each pair, its counts of all classes, and their noise."""
        stops = np.cumsum([a * b for a, b in self._shapes])
        for pair, shape, stop, deviation in zip(
            self._pairs, self._shapes, stops, self._table_noise, strict=True
        ):
            table = pairs[stop - shape[0] * shape[1] : stop].reshape(*shape, -1)
            yield pair, table, max(float(deviation), _LEAST_NOISE)

    def count_units(self, units: np.ndarray) -> _Counts:
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

    def model_shares(self, model: Mapping[str, np.ndarray]) -> _Counts:
        """Return the expected counts of a model, as shares of all records."""
        is_of_class = model["classes"] == np.arange(self.schema.n_classes)[:, None]
        weights = is_of_class * model["weights"]
        profiles = np.stack([self.grouped(cells) for cells in model["cells"]])
        parts = [profiles[:, column] for column in self.columns]
        pairs = [
            np.einsum("ck,ka,kb->abc", weights, parts[a], parts[b], optimize=True).ravel()
            for a, b in combinations(range(len(parts)), 2)
        ]
        pair_shares = np.concatenate([*pairs, np.zeros(0)]).reshape(-1, self.schema.n_classes)
        return _Counts((weights @ model["cells"]).T, pair_shares)


def _errors(layout, model, expected, n_records, rng):
    """Return random errors of counts: from drawing records, and from the noise."""
    n_rows = min(n_records, _MOST_ROWS)
    units = sample_units(model, layout.schema, n_rows, rng)
    chance = layout.count_units(units).plus(expected, -n_rows)
    return layout.noise(rng).plus(chance, np.sqrt(n_records / n_rows))


def _fit(layout, counts, starts):
    """Return the model of counts, and the fit, the curved tests and the mixture of each class.

    The next fit starts from these; the first one has `starts` of None.
    """
    schema = layout.schema
    column_counts = np.add.reduceat(counts.cells, [cell[0] for cell in layout.cells], axis=0)
    # Columns with more cells add up more noise.
    totals = np.average(column_counts, axis=0, weights=1 / layout.ends["n_cells"])
    n_records = max(float(totals.sum()), 1.0)
    class_shares = with_even_share(nearest_distribution(totals / n_records))
    group_counts = _group_counts(layout, counts)
    rng = np.random.RandomState(_SEED)
    classes = []
    for c, share in enumerate(class_shares):
        class_size = max(share * n_records, 1.0)
        shares = _cell_shares(layout, counts, group_counts[:, c] / class_size, c)
        fit, curved = _fit_and_curved(layout, shares) if starts is None else starts[c][:2]
        targets = shares, *_moments(layout, fit, curved, counts.pairs[:, c], class_size, shares)
        if starts is None:
            mixture = fit.fit_first(*targets, rng)
        else:
            mixture = fit.refit(starts[c][2], *targets)
        classes.append((fit, curved, mixture))
    profiles = [mixture.profiles for _, _, mixture in classes]
    n_components = [len(profile) for profile in profiles]
    model = {
        **layout.ends,
        "weights": np.repeat(class_shares / n_components, n_components),
        "classes": np.repeat(np.arange(schema.n_classes), n_components),
        "cells": np.concatenate(profiles),
    }
    return model, classes


def _group_counts(layout, counts):
    """Return counts of groups in each class: weighted means of all tables that count them."""
    n_groups, n_classes = sum(layout.sizes), counts.cells.shape[1]
    variances = layout.grouped(np.maximum(layout.cell_noise, _LEAST_NOISE) ** 2)
    precisions = np.repeat(1 / variances[:, None], n_classes, axis=1)
    sums = precisions * np.apply_along_axis(layout.grouped, 0, counts.cells)
    for (a, b), table, deviation in layout.tables(counts.pairs):
        for column, axis in ((a, 1), (b, 0)):
            precision = 1 / (table.shape[axis] * deviation**2)
            sums[layout.columns[column]] += precision * table.sum(axis=axis)
            precisions[layout.columns[column]] += precision
    return (sums / precisions).reshape(n_groups, n_classes)


def _cell_shares(layout, counts, group_shares, c):
    """Return the distribution of each column in a class."""
    shares = []
    for j, group in enumerate(layout.groups):
        nearest = with_even_share(nearest_distribution(group_shares[layout.columns[j]]))
        shares.append(nearest[group] * _shares_in_groups(layout, counts.cells, c, j))
    return np.maximum(np.concatenate(shares), _SMALLEST_SHARE)


def _fit_and_curved(layout, shares):
    """Return a fit with functions of all columns, and which tests are of second degree."""
    functions, curved = zip(*_functions(layout, shares), strict=True)
    return MomentFit(functions), np.concatenate(curved)


def _functions(layout, shares):
    """Yield the functions of each column, and which of its tests are of second degree."""
    ends = column_slices(layout.ends["n_cells"])
    for j, cells, group, size in zip(
        layout.schema.features, ends, layout.groups, layout.sizes, strict=True
    ):
        column, cell_shares = layout.schema.columns[j], shares[cells]
        group_shares = np.bincount(group, cell_shares)
        missing = np.zeros((int(column.missing), len(group)))
        missing[:, len(group) - 1 :] = 1.0
        if column.kind == "nominal" or size - len(missing) <= _FEW_GROUPS:
            indicators = _orthonormal(np.eye(size)[1:], group_shares)[:, group]
            yield ColumnFunctions(indicators, indicators), np.zeros(len(indicators), dtype=bool)
            continue
        is_known = 1.0 - missing.sum(axis=0)
        known_shares = cell_shares * is_known / (cell_shares @ is_known)
        # Tilts along normal scores give normal distributions their dependence.
        ranks = np.cumsum(known_shares) - known_shares / 2
        scores = ndtri(np.clip(ranks, _SMALLEST_SHARE, 1 - _SMALLEST_SHARE)) * is_known
        places = (layout.ends["starts"][cells] + layout.ends["stops"][cells]) / 2 * is_known
        tests = [
            np.bincount(group, function * cell_shares) / group_shares
            for function in (*missing, places, scores**2)
        ]
        functions = ColumnFunctions(
            _orthonormal([*missing, scores], cell_shares),
            _orthonormal(tests, group_shares)[:, group],
        )
        curved = np.zeros(len(functions.tests), dtype=bool)
        curved[len(missing) + 1 :] = True
        yield functions, curved


def _orthonormal(functions, shares):
    """Return uncorrelated functions of mean 0 and variance 1, from Gram-Schmidt."""
    basis = np.zeros((0, len(shares)))
    for function in functions:
        residual = function - shares @ function
        residual = residual - (basis * shares @ residual) @ basis
        variance = shares @ residual**2
        if variance > _LEAST_VARIANCE * (shares @ np.square(function)):
            basis = np.vstack([basis, residual / np.sqrt(variance)])
    return basis


def _moments(layout, fit, curved, pairs, n_records, shares):
    """Return covariances of tests in a class, and one over the deviations of their noise."""
    tests = np.zeros((len(fit.tests), sum(layout.sizes)))
    tests[:, layout.group_of_cell] = fit.tests
    means, norms = fit.tests @ shares, np.sqrt(np.sum(tests**2, axis=1))
    moments, deviations = np.zeros(fit.between.shape), np.ones(fit.between.shape)
    for (a, b), table, deviation in layout.tables(pairs[:, None]):
        rows, columns = fit.test_slices[a], fit.test_slices[b]
        products = tests[rows, layout.columns[a]] @ table[:, :, 0] / n_records
        moments[rows, columns] = (
            products @ tests[columns, layout.columns[b]].T - np.outer(means[rows], means[columns])
        )  # fmt: skip
        noise = deviation / n_records * np.outer(norms[rows], norms[columns])
        deviations[rows, columns] = np.sqrt(noise**2 + 1 / n_records)
    moments, deviations = (
        np.where(np.tri(len(matrix), k=-1, dtype=bool), matrix.T, matrix)
        for matrix in (moments, deviations)
    )
    # Moments of second degree that noise hides are not fitted.
    is_used = (deviations < _MOST_NOISE) | ~(curved[:, None] | curved)
    return moments, np.where(fit.between & is_used, 1 / deviations, 0.0)


def _shares_in_groups(layout, counts, c, k):
    """Return the share that each cell of a column has of its group, in a class.

    Cells of numbers have few records each, and no share is below 0, which makes tails heavier. So
    each group is given the mean of its counts.
    """
    column, cells, group = (
        layout.schema.columns[layout.schema.features[k]], layout.cells[k], layout.groups[k],
    )  # fmt: skip
    shares = shares_within(counts[cells], group, c, max(float(layout.cell_noise[cells[0]]), 1.0))
    if column.kind == "nominal":
        return shares
    starts, stops = (layout.ends[name][cells] for name in ("starts", "stops"))
    places = (starts + stops - 1) / 2.0
    size = layout.sizes[k]
    movable = np.bincount(group, stops > column.n_known, minlength=size) == 0
    return _tilted(shares, counts[cells, c], group, places, movable)


def _tilted(shares, counts, group, places, movable):
    """Return shares within groups, of which movable ones are tilted to the means of counts."""
    size = len(movable)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, group, places)
    np.maximum.at(high, group, places)
    mass = np.bincount(group, counts, minlength=size)
    movable = movable & (mass > 0) & (high > low)
    span = np.where(movable, high - low, 1.0)
    mean = np.bincount(group, shares * places, minlength=size)
    targets = np.bincount(group, counts * places, minlength=size) / np.where(movable, mass, 1.0)
    targets = np.clip(targets, low + _MARGIN * span, high - _MARGIN * span)
    goal = np.where(movable, (targets - mean) / span, 0.0)
    relative = np.where(movable[group], (places - mean[group]) / span[group], 0.0)
    tilt = np.zeros(size)
    for _ in range(_NEWTON_STEPS):
        tilted = shares * np.exp(tilt[group] * relative)
        tilted /= np.bincount(group, tilted)[group]
        current = np.bincount(group, tilted * relative)
        variance = np.maximum(np.bincount(group, tilted * relative**2) - current**2, 1e-4)
        # Steps are short, so the next one does not go back, and tilts do not overflow.
        tilt = np.clip(tilt + np.clip((goal - current) / variance, -5, 5), -50, 50)
    tilted = shares * np.exp(tilt[group] * relative)
    return tilted / np.bincount(group, tilted)[group]
