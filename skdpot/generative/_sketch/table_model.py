"""The model of a table: a mixture for each class, fitted to released counts.

Within a component of a mixture, columns are independent.
"""

import math
from collections.abc import Mapping
from functools import partial
from itertools import combinations

import numpy as np

from skdpot.generative._sketch.class_effects import pool_classes
from skdpot.generative._sketch.column_totals import column_shares
from skdpot.generative._sketch.joint_tables import joint_tables
from skdpot.generative._sketch.latent_classes import fit_mixture, penalty_of
from skdpot.tables import TableSchema
from skdpot.transport import nearest_distribution

__all__ = ["class_shares", "fit_table", "shares_within", "with_even_share"]

# The even part of every distribution of a column, and of classes: no declared value is impossible.
_EVEN_SHARE = 1e-6
# The smallest number of records of a class; counts are divided by it.
_SMALLEST_CLASS = 1.0
_FIT_SEED = 0
_TINY = 1e-300
# The least part of its expected count that a cell keeps, for any noisy count.
_SMALLEST_PART = 0.01
# The largest factor by which the noise of pairs with a clear dependence is divided.
_MOST_CLEAR = 2.0
# Rounds of iterative proportional fitting of a model to the distributions of columns.
_RAKINGS = 8


def fit_table(
    released: Mapping[str, np.ndarray],
    schema: TableSchema,
    n_components: int = 400,
    n_iter: int = 600,
    *,
    pooled: bool = False,
) -> dict[str, np.ndarray]:
    """Return the model of a table, fitted to its released counts.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_marginals`.
    schema : TableSchema
        The declaration of the table.
    n_components : int, default=400
        Number of components of all mixtures together. Half of them are divided equally among the
        classes, the others in proportion to class size.
    n_iter : int, default=600
        Number of steps of the fit of a mixture.
    pooled : bool, default=False
        Whether differences of classes that noise and chance explain are removed. The mixtures of
        all classes then have equally many components, and start from the same ones.

    Returns
    -------
    dict of str to ndarray
        All that sampling needs. Cells are those of all columns but the target.

        - ``"n_cells"``, ``"starts"``, ``"stops"``: of `release_marginals`.
        - ``"weights"``, ``"classes"`` of shape (n_components,): the probability of each component,
          and its class.
        - ``"cells"`` of shape (n_components, n_cells): the distribution of each column in each
          component.
        - ``"n_parities"`` of shape (): how many parities it was fitted to, where there are any.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_schema
    >>> from skdpot.generative._sketch.table_model import fit_table
    >>> released = {
    ...     "n_cells": np.array([2, 2]), "starts": np.array([0, 1, 0, 1]),
    ...     "stops": np.array([1, 2, 1, 2]), "counts": np.array([[800.0], [200], [300], [700]]),
    ...     "groups": np.array([0, 1, 0, 1]), "pairs": np.array([300.0, 500, 0, 200]),
    ...     "deviations": np.array([2.0, 2.0]),
    ... }
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> model = fit_table(released, schema, n_components=8, n_iter=200)
    >>> np.round(model["weights"] @ model["cells"], 1)
    array([0.8, 0.2, 0.3, 0.7])
    """
    n_classes, pair_noise = schema.n_classes, None
    if pooled:
        released, pair_noise = pool_classes(released, n_classes)
    ends = np.cumsum(released["n_cells"])[:-1]
    columns = np.split(np.arange(len(released["groups"])), ends)
    n_records, shares = _sizes_of_classes(released, columns)
    class_sizes = np.maximum(shares * n_records, _SMALLEST_CLASS)
    tails = released.get("tails", np.zeros(len(released["groups"]), dtype=bool))
    counts = np.where(tails[:, None], 0.0, released["counts"])
    released = {**released, "counts": counts, "tails": tails}
    fitted, n_parities = _fit_classes(
        released, columns, class_sizes, pair_noise, shares, n_components, n_iter
    )
    weights = np.concatenate([shares[c] * mixture[0] for c, mixture in enumerate(fitted)])
    profiles = [
        _cell_profiles(mixture[1], released, columns, c) for c, mixture in enumerate(fitted)
    ]
    # The memory layout of arrays of a file, so that sums have the same rounding errors.
    cells = np.ascontiguousarray(np.concatenate(profiles))
    if not pooled and "totals" in released:
        totals = [released["totals"][column] for column in columns]
        distributions = [nearest_distribution(total / max(total.sum(), 1.0)) for total in totals]
        _rake_in_place(cells, weights, [with_even_share(part) for part in distributions])
    model = {
        **{name: released[name] for name in ("n_cells", "starts", "stops")},
        "weights": weights,
        "classes": np.repeat(np.arange(n_classes), [len(mixture[0]) for mixture in fitted]),
        "cells": cells,
    }
    return model | ({"n_parities": np.array(n_parities)} if n_parities else {})


def _sizes_of_classes(released, columns):
    """Return the estimated number of records, and the share of each class.

    Columns with more cells add up more noise, and have less weight.
    """
    totals = np.array([released["counts"][column].sum(axis=0) for column in columns])
    class_totals = np.average(totals, axis=0, weights=1 / released["n_cells"])
    n_records = max(float(class_totals.sum()), _SMALLEST_CLASS)
    return n_records, with_even_share(nearest_distribution(class_totals / n_records))


def _fit_classes(released, columns, class_sizes, pair_noise, shares, n_components, n_iter):
    """Return the weights and profiles of the mixture of each class, and the number of parities.

    With the `pair_noise` of pooled classes, which are the groups of a map, all mixtures have the
    same size and the same start: differences that are only noise would reveal the group.
    """
    n_classes, pooled = len(class_sizes), pair_noise is not None
    fractions = np.full(n_classes, 1 / n_classes) if pooled else shares
    fit = fit_mixture if pooled else partial(fit_mixture, penalty=penalty_of(len(columns)))
    rng = np.random.RandomState(_FIT_SEED)
    targets, fitted = [], []
    for c, class_size in enumerate(class_sizes):
        noise = max(released["deviations"][1], 1.0) / class_size
        if pooled:
            rng = np.random.RandomState(_FIT_SEED)
            noise = max(pair_noise[c], 1 / class_size)
        n_parts = max(round(n_components * (0.5 / n_classes + 0.5 * fractions[c])), 2)
        singles, pairs, deviations = _class_targets(released, columns, c, class_size, noise)
        if not pooled and len(columns) > 1:
            divisors = _noise_divisors(singles, pairs, deviations[1])
            deviations = deviations[0], deviations[1] / divisors
        targets.append((singles, pairs, deviations))
        fitted.append(fit(singles, pairs, deviations, n_parts, n_iter, rng))
    joints = joint_tables(released, columns, class_sizes, fitted)
    if joints is None:
        return fitted, 0
    fitted = [
        fit(*target, 0, n_iter, rng, start=start, joints=tables)
        for target, start, tables in zip(targets, fitted, joints, strict=True)
    ]
    return fitted, sum(table.contrast is not None for table in joints[0])


def class_shares(model: Mapping[str, np.ndarray], n_classes: int) -> np.ndarray:
    """Return the probability of each class of the target.

    The model is one of `fit_table`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.table_model import class_shares
    >>> model = {"weights": np.array([0.5, 0.25, 0.25]), "classes": np.array([0, 1, 1])}
    >>> class_shares(model, 2)
    array([0.5, 0.5])
    """
    return np.bincount(model["classes"], model["weights"], minlength=n_classes)


def _class_targets(released, columns, c, n_records, pair_noise):
    """Return the counts to which the mixture of a class is fitted.

    These are the distributions of groups in each column, the shares of pairs of groups, and the
    standard deviations of the noise of both.
    """
    singles = []
    for column in columns:
        group, counts = released["groups"][column], released["counts"][column]
        single = nearest_distribution(np.bincount(group, counts[:, c]) / n_records)
        singles.append(with_even_share(single))
    # The noise of a group is that of all its cells, each taken to be one record at least.
    n_cells = [np.bincount(released["groups"][column]) for column in columns]
    deviations = (
        np.sqrt(np.concatenate(n_cells)) * max(released["deviations"][0], 1.0) / n_records,
        pair_noise,
    )
    pairs = released["pairs"].reshape(-1, released["counts"].shape[1])[:, c] / n_records
    return singles, pairs, deviations


def _noise_divisors(singles, pairs, deviations):
    """Return the divisor of the noise of each entry: more than 1 where pairs clearly depend.

    The penalty that pulls components together suits the noise of weak pairs, and would hide a part
    of strong dependence.
    """
    deviations = np.broadcast_to(deviations, pairs.shape)
    divisors, start = np.ones(len(pairs)), 0
    for single, other in combinations(singles, 2):
        block = slice(start, start + len(single) * len(other))
        differences = pairs[block] - np.outer(single, other).ravel()
        excess = np.mean((differences / deviations[block]) ** 2) - 1
        divisors[block] = math.sqrt(np.clip(excess, 1.0, _MOST_CLEAR))
        start = block.stop
    return divisors


def _cell_profiles(profiles, released, columns, c):
    """Return the distributions over cells of a class, from `profiles` over groups."""
    noise = max(float(released["deviations"][0]), 1.0)
    groups, cell_shares, offset = [], [], 0
    for column in columns:
        group = released["groups"][column]
        totals = released["totals"][column] if "totals" in released else None
        shares = shares_within(released["counts"][column], group, c, noise, totals)
        cell_shares.append(_without_tail(released["tails"][column], shares, group))
        groups.append(offset + group)
        offset += group.max() + 1
    return profiles[:, np.concatenate(groups)] * np.concatenate(cell_shares)


def _rake_in_place(cells, weights, distributions):
    """Scale cells, in place, until all components together have these distributions of columns.

    Cells of all components are multiplied by the same factors, so that their ratios between
    components, and between classes, are about the same as before.
    """
    start = 0
    for distribution in distributions:
        profiles = cells[:, start : start + len(distribution)]
        start += len(distribution)
        for _ in range(_RAKINGS):
            profiles *= distribution / np.maximum(weights @ profiles, _TINY)
            profiles /= profiles.sum(axis=1, keepdims=True)


def _without_tail(tail, shares, group):
    """Return shares of cells within groups, where an empty tail has the share 0."""
    if not tail.any():
        return shares
    remaining = np.where(tail, 0.0, shares)
    totals = np.bincount(group, remaining)[group]
    return np.where(totals > 0, remaining / np.where(totals > 0, totals, 1.0), shares)


def with_even_share(shares):
    """Return a distribution mixed with a small even part, so that every share is above 0."""
    return (1 - _EVEN_SHARE) * shares + _EVEN_SHARE / len(shares)


def shares_within(counts, group, c, noise, totals=None):
    """Return the share that each cell has of its group in a class.

    `totals` are counts of all classes together, none below 0, where they are known otherwise.
    Counts of the class are moved towards those that all classes together would have there, by as
    much as noise explains their differences.
    """
    n_classes = counts.shape[1]
    if totals is None:
        shares = column_shares(counts.sum(axis=1), group, math.sqrt(n_classes) * noise)
    else:
        totals = totals + _EVEN_SHARE * noise
        shares = totals / np.bincount(group, totals)[group]
    expected = shares * np.maximum(np.bincount(group, counts[:, c]), 0.0)[group]
    differences = counts[:, c] - expected
    is_divided = np.bincount(group)[group] > 1
    if is_divided.any():
        spread = max(float(np.mean(differences[is_divided] ** 2)) - noise**2, 0.0)
        expected = np.maximum(
            expected + spread / (spread + noise**2) * differences, _SMALLEST_PART * expected
        )
    # If a class has no records in a group, it gets the shares of all classes.
    expected += _EVEN_SHARE * noise * shares
    return expected / np.bincount(group, expected)[group]
