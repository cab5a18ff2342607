"""Measures of synthetic records, from the release: noise, misfits and associations."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import chi2, norm

from skdpot.generative._fitted import FittedRecords
from skdpot.generative._quality_report import Estimate, Fit, ParityFit, QualityReport, SketchedClass
from skdpot.generative._sketch.parities import mixture_parities, scanned_subsets
from skdpot.generative._sketch.released_table import ReleasedTable

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
        counted = "records" if fitted.space.user is None else "people"
        return QualityReport(
            fitted.n_records, stated, columns, pairs, _parity_fit(fitted), counted=counted
        )
    classes, sketch = _sketched_classes(fitted), fitted.sketch
    return QualityReport(
        sketch.n_records, stated, [], [], classes=classes, encoder=sketch.encoder.header()["name"]
    )


def _count_fits(table: ReleasedTable) -> tuple[list[Fit], list[Fit]]:
    """Return how a model fits the counts of columns, and of pairs of them, the worst first."""
    released, schema, model = table.known_statistics, table.space.schema, table.model
    n_records = max(float(table.n_records), 1.0)
    names = [schema.names[j] for j in schema.features]
    ends, n_classes = np.cumsum(released["n_cells"])[:-1], schema.n_classes
    n_tables = math.comb(len(names) + 1, 2)
    counts, groups = (np.split(released[name], ends) for name in ("counts", "groups"))
    noise_of_columns, noise_of_pairs = released["deviations"][:2]
    weights = [np.where(model["classes"] == c, model["weights"], 0.0) for c in range(n_classes)]
    cells = np.split(model["cells"], ends, axis=1)
    columns = []
    for name, count, cell in zip(names, counts, cells, strict=True):
        expected = _joint_shares([cell], weights)
        # Without a target there is one class.
        associations: tuple[float, float] | tuple[None, None] = (None, None)
        if n_classes > 1:
            associations = _associations(count, expected, noise_of_columns, n_records)
        columns.append(
            _fit_of((name,), count, expected, noise_of_columns, n_records, n_tables, associations)
        )
    sums = [_group_shares(cell, group) for cell, group in zip(cells, groups, strict=True)]
    fits, start = [], 0
    for a, b in combinations(range(len(names)), 2):
        expected = _joint_shares([sums[a], sums[b]], weights)
        pair_counts = released["pairs"][start : start + expected.size].reshape(expected.shape)
        start += expected.size
        shape = (sums[a].shape[1], sums[b].shape[1], n_classes)
        in_all, expected_in_all = (t.reshape(shape).sum(axis=2) for t in (pair_counts, expected))
        noise = noise_of_pairs * math.sqrt(n_classes)
        associations = _associations(in_all, expected_in_all, noise, n_records)
        pair = (names[a], names[b])
        fits.append(
            _fit_of(pair, pair_counts, expected, noise_of_pairs, n_records, n_tables, associations)
        )
    return _worst_first(columns), _worst_first(fits)


def _worst_first(fits: list[Fit]) -> list[Fit]:
    return sorted(fits, key=lambda fit: fit.noise - fit.distance)


def _associations(
    counts: np.ndarray, shares: np.ndarray, deviation: float, n: float
) -> tuple[float, float]:
    """Return the association of two variables, by released counts and by the model.

    It is the distance from independence in total variation. Independence is the product of the
    margins of the model. The part of the squared distance that noise and sampling make is
    subtracted.
    """
    independent = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    modelled = shares - independent
    released = counts / n - independent
    squares = float(np.sum(released**2))
    chance = (counts.size * deviation**2 + n) / n**2
    kept = math.sqrt(max(1 - chance / squares, 0.0)) if squares else 0.0
    return (
        min(kept * float(np.abs(released).sum()) / 2, 1.0), float(np.abs(modelled).sum()) / 2,
    )  # fmt: skip


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
    n_tables: int, associations: tuple[float, float] | tuple[None, None],
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
        *associations,
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
    return sorted(found, key=lambda one: -one.mean_error)
