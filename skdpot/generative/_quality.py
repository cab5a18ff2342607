"""Measures of synthetic records, from the release: noise, misfits, and held-out records."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import chi2, norm

from skdpot.generative._fitted import FittedRecords
from skdpot.generative._quality_report import (
    Estimate,
    Fit,
    HeldOut,
    ParityFit,
    QualityReport,
    SketchedClass,
)
from skdpot.generative._sketch.held_out import counted_size
from skdpot.generative._sketch.parities import mixture_parities, scanned_subsets
from skdpot.generative._sketch.people_sketch import ReleasedPeople
from skdpot.generative._sketch.released_table import ReleasedTable
from skdpot.generative._sketch.vector_summaries import summary_schema
from skdpot.tables import TableSchema

# Probability that noise alone moves a parity, or a table, farther than the stated limit.
_FALSE_ALARM = 0.01
_TINY = 1e-300


def quality_of(fitted: ReleasedTable | FittedRecords, guarantee: Any) -> QualityReport:
    """Return the report on a fitted model; that costs nothing.

    Parameters
    ----------
    fitted : ReleasedTable or FittedRecords
        The fitted model, with its release.
    guarantee : PrivacyGuarantee or None
        The guarantee.

    Returns
    -------
    QualityReport
        A function of both.

    Raises
    ------
    ValueError
        If the release is no longer known.
    """
    stated = "none" if guarantee is None else str(guarantee)
    if isinstance(fitted, ReleasedTable):
        columns, pairs = _count_fits(fitted)
        held_out = _held_out(fitted.space.schema, fitted.held_out)
        counted = "people" if isinstance(fitted, ReleasedPeople) else "records"
        return QualityReport(
            fitted.n_in_all, stated, columns, pairs, held_out, _parity_fit(fitted), counted=counted
        )
    classes, sketch = _sketched_classes(fitted), fitted.sketch
    held_out = _held_out(summary_schema(fitted.space), sketch.held_out)
    encoder = sketch.encoder.header()["name"]
    return QualityReport(
        sketch.n_in_all, stated, [], [], held_out, classes=classes, encoder=encoder
    )


def _count_fits(table: ReleasedTable) -> tuple[list[Fit], list[Fit]]:
    """Return how a model fits the counts of columns, and of pairs of them."""
    released, (schema, model) = table.known_statistics, table.counted
    n_records = max(float(table.n_records), 1.0)
    names = [schema.names[j] for j in schema.features]
    ends, n_classes = np.cumsum(released["n_cells"])[:-1], schema.n_classes
    n_tables = math.comb(len(names) + 1, 2)
    counts, groups = (np.split(released[name], ends) for name in ("counts", "groups"))
    noise_of_columns, noise_of_pairs = released["deviations"][:2]
    weights = [np.where(model["classes"] == c, model["weights"], 0.0) for c in range(n_classes)]
    cells = np.split(model["cells"], ends, axis=1)
    columns = [
        _fit_of(
            (name,), count, _joint_shares([cell], weights), noise_of_columns, n_records, n_tables
        )
        for name, count, cell in zip(names, counts, cells, strict=True)
    ]
    sums = [_group_shares(cell, group) for cell, group in zip(cells, groups, strict=True)]
    fits, start = [], 0
    for a, b in combinations(range(len(names)), 2):
        expected = _joint_shares([sums[a], sums[b]], weights)
        pair_counts = released["pairs"][start : start + expected.size].reshape(expected.shape)
        start += expected.size
        pair = (names[a], names[b])
        fits.append(_fit_of(pair, pair_counts, expected, noise_of_pairs, n_records, n_tables))
    return columns, fits


def _parity_fit(table: ReleasedTable) -> ParityFit | None:
    """Return how a model fits the released parities, None without any."""
    released, model, schema = table.known_statistics, table.model, table.space.schema
    if "parities" not in released:
        return None
    ends = np.cumsum(released["n_cells"])[:-1]
    groups, cells = np.split(released["groups"], ends), np.split(model["cells"], ends, axis=1)
    sums = [_group_shares(cell, group) for cell, group in zip(cells, groups, strict=True)]
    halves = np.split(
        released["halves"], np.cumsum([of_column.shape[1] for of_column in sums])[:-1]
    )
    signs = [of_column @ (1 - 2 * half) for of_column, half in zip(sums, halves, strict=True)]
    subsets = scanned_subsets(len(sums), int(released["largest_parity"][0]))
    # A column of one half has no sign.
    has_sign = np.array([half.min() < half.max() for half in halves])
    kept = np.concatenate([has_sign[of_size].all(axis=1) for of_size in subsets])
    if not kept.any():
        return None
    n_records, units = max(float(table.n_records), 1.0), []
    for c, seen in enumerate(released["parities"].T):
        weights = np.where(model["classes"] == c, model["weights"], 0.0)
        expected = n_records * mixture_parities(weights, np.column_stack(signs), subsets)
        noise = math.hypot(released["parity_deviation"][0], math.sqrt(n_records * weights.sum()))
        units.append(np.abs(seen - expected)[kept] / max(noise, 1.0))
    distances = np.array(units)
    worst = np.flatnonzero(kept)[int(distances.max(axis=0).argmax())]
    subset = [one for of_size in subsets for one in of_size][worst]
    columns = tuple(schema.names[schema.features[j]] for j in subset)
    explained = float(norm.isf(_FALSE_ALARM / (2 * distances.size)))
    misfit, farthest = float(np.mean(distances**2)), float(distances.max())
    return ParityFit(distances.size, misfit, columns, farthest, explained)


def _group_shares(cells: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the probability of each group of a column in each component."""
    return np.column_stack([cells[:, group == g].sum(axis=1) for g in range(group.max() + 1)])


def _joint_shares(parts: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return the probabilities of all combinations of parts of columns, in each class."""
    *first, last = parts
    joint = np.ones((len(last), 1))
    for part in first:
        joint = (joint[:, :, None] * part[:, None, :]).reshape(len(part), -1)
    return np.column_stack([((joint * w[:, None]).T @ last).ravel() for w in weights])


def _fit_of(
    columns: tuple[Any, ...], counts: np.ndarray, shares: np.ndarray, deviation: float, n: float,
    n_tables: int,
) -> Fit:  # fmt: skip
    # One record more or less is as little noise as matters.
    differences, unit = counts - n * shares, max(float(deviation), 1.0)
    noise = deviation * math.sqrt(2 / math.pi) * counts.size / (2 * n)
    return Fit(
        columns,
        min(float(noise), 1.0),
        min(float(np.abs(differences).sum() / (2 * n)), 1.0),
        float(np.mean((differences / unit) ** 2)),
        float(chi2.isf(_FALSE_ALARM / n_tables, counts.size)) / counts.size,
    )


def _sketched_classes(fitted: FittedRecords) -> list[SketchedClass]:
    """Return the information that noise leaves of every class."""
    noise, mixture = fitted.sketch.known_noise, fitted.sketch.mixture
    n_classes, n_clusters, n_codes = mixture.means.shape
    labels = [None] * n_classes if fitted.classes is None else fitted.classes.tolist()
    found = []
    for c, label in enumerate(labels):
        # In a fixed memory order, so a loaded file gives the same report to the last bit.
        means, factor = (
            part.astype(np.float64, order="C")
            for part in (mixture.means[c], mixture.factors[c % len(mixture.factors)])
        )
        weights, variances = mixture.weights[c], np.square(factor).sum(axis=1)
        between = weights @ np.square(means - weights @ means).sum(axis=1)
        spread = math.sqrt(max(float(variances.sum() + between), _TINY))
        # About the largest eigenvalue of noise alone, which is half as large off the diagonal.
        seen = variances > noise["variance"][c] * math.sqrt(2 * n_codes)
        found.append(SketchedClass(
            label,
            Estimate(float(mixture.counts[c]), float(noise["size"][c])),
            float(noise["mean"][c]) * math.sqrt(n_codes) / spread,
            int(seen.sum()),
            n_codes,
            float(variances[seen].sum() / max(float(variances.sum()), _TINY)),
            sorted(weights.tolist(), reverse=True),
            float(noise["radius"][c]) / spread,
        ))  # fmt: skip
    return found


def _held_out(schema: TableSchema, held_out: Mapping[str, np.ndarray] | None) -> HeldOut | None:
    """Return the comparison of samples with held-out records, None without any."""
    if held_out is None:
        return None
    of_values, of_scores, *of_utility = held_out["deviations"]
    ends = np.cumsum(held_out["n_bins"])[:-1]
    counts, shares = (np.split(held_out[name], ends) for name in ("values", "value_shares"))
    size, noise = counted_size(held_out)
    n_records = Estimate(size, noise * float(of_values))
    columns = {
        name: _distance(count, share, of_values, n_records.value)
        for name, count, share in zip(schema.names, counts, shares, strict=True)
    }
    auc = _auc_against_samples(held_out["scores"], held_out["score_shares"], of_scores)
    if schema.target is None or not of_utility:
        return HeldOut(n_records, columns, auc)
    table_of, samples = held_out["utility"], held_out["utility_shares"]
    right = held_out["predictions"][:, None] == np.arange(schema.n_classes)
    target = schema.names[schema.target]
    return HeldOut(
        n_records, columns, auc, f"band of {target}" if schema.has_bands else target,
        _mean_of(right.astype(np.float64), table_of, of_utility[0]),
        _auc_between_classes(table_of, of_utility[0]) if schema.n_classes == 2 else None,
        float(samples[right].sum()),
        _auc_between_classes(samples, 0.0).value if schema.n_classes == 2 else None,
    )  # fmt: skip


def _distance(counts: np.ndarray, shares: np.ndarray, deviation: float, n: float) -> Estimate:
    """Return a distance in total variation, without the part due to noise and sampling.

    That part is subtracted from the squares of differences. The error is at least the error of
    their sum.
    """
    if n <= 0:
        return Estimate(math.nan, math.nan)
    variances = (deviation**2 + n * shares) / n**2
    differences = counts / n - shares
    squares = float((differences**2).sum())
    left = max(1 - float(variances.sum()) / squares, 0.0) if squares else 0.0
    distance = float(np.abs(differences).sum()) / 2 * math.sqrt(left)
    return Estimate(min(distance, 1.0), math.sqrt(float(variances.sum())) / 2)


def _mean_of(values: np.ndarray, counts: np.ndarray, deviation: float) -> Estimate:
    """Return the mean of values from 0 to 1 of cells, over records that are counted with noise."""
    n = float(counts.sum())
    if n <= 0:
        return Estimate(math.nan, math.nan)
    mean = float((values * counts).sum()) / n
    variance = ((values - mean) ** 2 * (deviation**2 + np.maximum(counts, 0))).sum()
    # With few records noise may give any number, but the mean is from 0 to 1.
    return Estimate(min(max(mean, 0.0), 1.0), math.sqrt(float(variance)) / n)


def _ranks(shares: np.ndarray) -> np.ndarray:
    """Return the share of a distribution below each bin, plus half of the bin."""
    return np.cumsum(shares) - shares / 2


def _auc_against_samples(counts: np.ndarray, shares: np.ndarray, deviation: float) -> Estimate:
    """Return the chance that a record has a higher score than a sample."""
    return _mean_of(_ranks(shares), counts, deviation)


def _auc_between_classes(counts: np.ndarray, deviation: float) -> Estimate:
    """Return the chance that a record of the second class has a higher score than of the first."""
    first, second = counts.T
    if min(first.sum(), second.sum()) <= 0:
        return Estimate(math.nan, math.nan)
    of_second = _mean_of(_ranks(first / first.sum()), second, deviation)
    of_first = _mean_of(1 - _ranks(second / second.sum()), first, deviation)
    return Estimate(of_second.value, math.hypot(of_second.error, of_first.error))
