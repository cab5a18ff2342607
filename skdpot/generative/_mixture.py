"""The model of a table: a mixture for each class, fitted to released counts.

Within a component columns are independent, so that it is easy to sample from a mixture, and to
condition it on any columns; with enough components it has any dependence of pairs. Only releases
are fitted: nothing here is private, and nothing costs budget.

Noisy counts of two equal classes are not equal, and models would find the difference. So empirical
Bayes moves them towards the counts of all classes together: a difference that noise explains is
removed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations

import numpy as np
from scipy import special
from scipy.fft import dct, dctn, idctn

from skdpot._sklearn_compat import one_thread_unless
from skdpot.generative._counts import SURE_ERRORS, kept_shares, mean_total
from skdpot.generative._factors import clear_errors, fit_factors, fit_to_margins
from skdpot.tables import NOMINAL, TableSchema
from skdpot.transport import nearest_distribution


def descend(state, moments, gradients, rate, n_steps):
    """Step against gradients in units of their own size, in place (D. P. Kingma and J. Ba, 2015).

    `moments` has the means of the gradients and of their squares, and `n_steps` counts this one.
    """
    # Decay of the means, and their weights, since they begin at zero.
    first, second = 0.9, 0.99
    mean_weight, square_weight = 1 - first**n_steps, 1 - second**n_steps
    for part, gradient, (mean, square) in zip(state, gradients, moments, strict=True):
        mean += (1 - first) * (gradient - mean)
        square += (1 - second) * (gradient**2 - square)
        size = np.sqrt(square / square_weight) + np.float32(1e-12)
        part -= np.float32(rate) * mean / mean_weight / size


def column_slices(sizes):
    """Return where each column's groups are among those of all."""
    stops = np.cumsum(sizes).tolist()
    return [slice(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


def pair_tables(pairs, sizes):
    """Return the tables of all pairs in one above the diagonal."""
    columns = column_slices(sizes)
    tables = np.zeros((sum(sizes), sum(sizes)), dtype=np.float32)
    for (a, b), (table,) in pair_counts(pairs, sizes, 1).items():
        tables[columns[a], columns[b]] = table
    return tables


def softmax(logits, columns):
    """Return the distribution of each column that rows of logits stand for."""
    shares = np.empty_like(logits)
    for column in columns:
        shares[:, column] = special.softmax(logits[:, column], axis=1)
    return shares


def through_softmax(slopes, shares, columns):
    """Return the gradient at logits of a function with such a gradient at the distributions."""
    gradient = shares * slopes
    for column in columns:
        gradient[:, column] -= shares[:, column] * gradient[:, column].sum(axis=1, keepdims=True)
    return gradient


def rate_of_step(step, n_iter):
    """Return the share of the learning rate for a step: rising at first, and then falling."""
    falling = 0.5 * (1 + np.cos(np.pi * step / n_iter))
    warm_up = 20
    return min(1.0, (step + 1) / warm_up) * (0.05 + 0.95 * falling)


# How strongly components are pulled together, over the noise of pairs.
_PENALTY = 2.0


def penalty_of(n_columns):
    """Return how strongly components of this many columns are pulled together.

    Few columns have few pairs, which must show strong dependence.

    Examples
    --------
    >>> from skdpot.generative._mixture import penalty_of
    >>> [round(penalty_of(n_columns), 2) for n_columns in (3, 6, 12, 40)]
    [0.01, 0.11, 1.21, 2.0]
    """
    # The penalty is full from this number of other columns on; below, it falls with the cube of the
    # number.
    many_columns = 13
    return _PENALTY * min((n_columns - 1) / many_columns, 1.0) ** 3


def fit_mixture(singles, pairs, deviations, n_components, n_iter, rng, *, penalty=_PENALTY):
    """Return the mixture whose marginals are nearest to those given, in units of their noise.

    Parameters
    ----------
    singles : list of ndarray of shape (n_groups,)
        The distribution of each column, above 0.
    pairs : ndarray
        Shares of the pairs of groups of each two columns: tables of shape (n_groups, n_groups), in
        the order of ``itertools.combinations``, one after another.
    deviations : tuple of (float or ndarray, float or ndarray)
        Of the noise of singles, perhaps one for each group, and of pairs, perhaps one for each
        entry; above 0.
    n_components : int
        Of the mixture.
    n_iter : int
        Number of steps of Adam.
    rng : RandomState
        Of which the first guess is made.
    penalty : float, default=2.0
        How strongly components are pulled together, over the noise of pairs.

    Returns
    -------
    weights : ndarray of shape (n_components,)
        They have the sum 1.
    profiles : ndarray of shape (n_components, sum of n_groups)
        The distribution of each column in each component.

    Notes
    -----
    Squared errors over their variances are minimised. A penalty ``sum_k w_k KL(k || mean)``, with a
    fixed mean, pulls each component towards the mean of all. It is finite if a component lacks a
    value that others have: columns may determine each other. The errors that noise makes pull
    components apart with a force that grows as one over its deviation, and so does the penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._mixture import fit_mixture
    >>> pairs = np.array([0.5, 0.0, 0.0, 0.5])
    >>> half = np.array([0.5, 0.5])
    >>> weights, profiles = fit_mixture(
    ...     [half, half], pairs, (0.1, 0.001), 4, 100, np.random.RandomState(0)
    ... )
    >>> joint = (profiles[:, :2] * weights[:, None]).T @ profiles[:, 2:]
    >>> bool(np.abs(joint - [[0.5, 0], [0, 0.5]]).max() < 0.05)
    True
    """
    sizes = [len(single) for single in singles]
    columns = column_slices(sizes)
    means = np.concatenate(singles).astype(np.float32)
    targets = pair_tables(pairs, sizes)
    single_precisions = np.asarray(1 / deviations[0] ** 2, dtype=np.float32)
    # Broadcast, since the noise of an entry may depend on its pair.
    precisions = pair_tables(np.broadcast_to(1 / np.square(deviations[1]), pairs.shape), sizes)
    n_cells = len(pairs) + len(means)
    penalty = np.float32(penalty / np.max(deviations[1]))
    # Components start apart at random: equal ones would have equal gradients, and stay equal.
    logits = np.log(np.maximum(means, 1e-4)) + rng.normal(size=(n_components, len(means)))
    heights = 0.1 * rng.normal(size=(n_components, 1))
    # In single precision, which halves the time: noise is far larger than rounding errors.
    state = [logits.astype(np.float32), heights.astype(np.float32)]
    moments = [(np.zeros_like(part), np.zeros_like(part)) for part in state]
    # Products of matrices with fewer rows are too small for several threads.
    many_groups = 1_000
    with one_thread_unless(len(means) >= many_groups):
        learning_rate, min_share = 0.1, np.float32(1e-9)
        for step in range(n_iter):
            profiles, weights = softmax(state[0], columns), softmax(state[1].T, [slice(None)]).T
            weighed = weights * profiles
            errors = precisions * (weighed.T @ profiles - targets)
            single_errors = single_precisions * (weighed.sum(axis=0) - means)
            pair_slopes = profiles @ (errors + errors.T)
            slopes = ((0.5 * pair_slopes + single_errors) * profiles).sum(axis=1, keepdims=True)
            # Per unit of its weight, so that a light component learns as fast as a heavy one.
            ratios = np.maximum(profiles, min_share) / np.maximum(weighed.sum(axis=0), min_share)
            gradients = [
                through_softmax(pair_slopes + single_errors, profiles, columns)
                + penalty * through_softmax(np.log(ratios), profiles, columns),
                weights * (slopes - (weights * slopes).sum()),
            ]
            # Divided, so that squares of gradients stay within the range of single precision.
            rate = learning_rate * rate_of_step(step, n_iter)
            descend(state, moments, [part / n_cells for part in gradients], rate, step + 1)
    weights = softmax(state[1].T.astype(np.float64), [slice(None)])[0]
    return weights, softmax(state[0].astype(np.float64), columns)


_TINY_SHARE = 1e-9


def pool_classes(
    released: Mapping[str, np.ndarray],
    n_classes: int,
    smooth: Sequence[int] = (),
    target: int | None = None,
    clear: Callable[..., np.ndarray] | None = None,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the release, with the classes as similar as noise and chance allow.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_marginals`.
    n_classes : int
        Number of classes.
    smooth : sequence of int, default=()
        Places of columns with an order, in which classes differ more at large than in single cells.
        So less noise hides the differences of small classes.
    target : int, default=None
        Place of a target of numbers, whose bands are the classes. Bands differ in most columns, so
        that differences need not be clear of noise, and in pairs more at large than in single
        cells. Pairs with the target stay as they are.
    clear : callable, default=None
        Removes noise from what all classes have in common in a pair of columns: `clear_of_noise`,
        of which the first two arguments are known.

    Returns
    -------
    released : dict of str to ndarray
        No count of a group of cells, or of a pair of groups that was compared, is below 0.
    deviations : ndarray of shape (n_classes,)
        Standard deviations of the remaining noise of pairs, as shares of the class.

    Notes
    -----
    The pairs of a class are compared with the pairs of all classes together, adjusted to the
    margins of the class. Columns may be distributed differently and still depend on each other in
    the same way.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._mixture import pool_classes
    >>> released = {
    ...     "n_cells": np.array([2]), "groups": np.array([0, 1]), "pairs": np.zeros(0),
    ...     "counts": np.array([[110.0, 90.0], [90.0, 110.0]]), "deviations": np.array([20.0, 0.0]),
    ... }
    >>> pooled, _ = pool_classes(released, 2)
    >>> pooled["counts"].round()
    array([[100., 100.],
           [100., 100.]])
    """
    sizes, counts = released["n_cells"], released["counts"].copy()
    cell_noise, pair_noise = released["deviations"][:2]
    columns = np.split(np.arange(len(counts)), np.cumsum(sizes)[:-1])
    mean = mean_total([counts[column] for column in columns])
    n_records = max(float(mean.sum()), 1.0)
    # The smallest share that a class is taken to have.
    smallest_share = 1e-3
    shares = np.maximum(nearest_distribution(mean / n_records), smallest_share)
    shares /= shares.sum()
    # Small classes differ most from what all have in common.
    own = 1 - shares[:, None]
    groups = [released["groups"][column] for column in columns]
    tables = pair_counts(released["pairs"], [group.max() + 1 for group in groups], n_classes)
    pooled = partial(_pooled_shares, shares=shares, n_records=n_records)
    surely = 0.0 if target is not None else SURE_ERRORS
    margins = []
    for j, (column, group) in enumerate(zip(columns, groups, strict=True)):
        n_cells = np.bincount(group).astype(np.float64)
        class_counts = np.array([np.bincount(group, cells) for cells in counts[column].T])
        variances = n_cells * cell_noise**2
        estimates, noise = _column_counts(class_counts, variances, j, tables, pair_noise)
        common_shares = nearest_distribution(estimates.sum(axis=0) / n_records)
        expected = np.tile(common_shares, (n_classes, 1))
        # True differences in a column are modelled as proportional to the root of expected shares.
        # Otherwise empty cells, which have hardly any noise, would decide for all others.
        scale = own * np.sqrt(np.maximum(expected, _TINY_SHARE))
        at_large = class_counts.shape[1:] if j in smooth else None
        margins.append(pooled(estimates, expected, noise, scale, surely, smooth=at_large)[0])
        corrections = shares[:, None] * n_records * margins[-1] - class_counts
        counts[column] += (corrections / n_cells).T[group]
    pairs, pair_variances = [np.zeros(0)], []
    # In wide tables, some of many pairs differ by chance, and a target of noise is told from these.
    # Measured on seventeen public tables.
    clearly = 0.0 if target is not None else clear_errors(max(len(tables), 1))
    for (a, b), table in tables.items():
        if target in (a, b):
            pairs.append(np.moveaxis(table, 0, -1).ravel())
            pair_variances.append((pair_noise / (shares * n_records)) ** 2)
            continue
        common = table.sum(axis=0) / n_records
        if clear:
            by_class = np.einsum("c,ca,cb->ab", shares, margins[a], margins[b])
            common = clear((a, b), common, by_class, np.sqrt(n_classes) * pair_noise / n_records)
        common_table = nearest_distribution(common.ravel()).reshape(common.shape) + _TINY_SHARE
        class_margins = zip(margins[a], margins[b], strict=True)
        expected = np.array([fit_to_margins(common_table, *m).ravel() for m in class_margins])
        noise = np.full(expected.shape[1], pair_noise**2)
        # Differences in pairs are judged by the cells with the least noise. A dependence that is
        # repaired by mistake reveals the group more clearly than one that is left unchanged. Bands
        # that are all alike by mistake teach models less: measured on diamonds and houses.
        scale = own if target is None else own * np.sqrt(np.maximum(expected, _TINY_SHARE))
        estimates = table.reshape(n_classes, -1)
        at_large = None if target is None else table.shape[1:]
        likely, deviations = pooled(estimates, expected, noise, scale, clearly, smooth=at_large)
        pairs.append((shares[:, None] * n_records * likely).T.ravel())
        pair_variances.append(deviations**2)
    deviations = np.sqrt(np.mean(pair_variances, axis=0)) if pair_variances else np.zeros(n_classes)
    return {**released, "counts": counts, "pairs": np.concatenate(pairs)}, deviations


def pair_counts(pairs: np.ndarray, sizes: list[int], n_classes: int) -> dict[tuple, np.ndarray]:
    """Return the counts of each two columns, of shape (n_classes, n_groups, n_groups)."""
    tables, start = {}, 0
    for a, b in combinations(range(len(sizes)), 2):
        stop = start + sizes[a] * sizes[b] * n_classes
        table = pairs[start:stop].reshape(sizes[a], sizes[b], n_classes)
        tables[a, b], start = np.moveaxis(table, -1, 0), stop
    return tables


def waves_of(
    n_groups: int, *, ordered: bool = True, missing: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return orthonormal waves along the groups of a column, one a row, and the octave of each.

    The last group may have the missing values, which have no place in the order, and an octave of
    their own. Groups without an order are all in one octave.
    """
    if not ordered:
        return np.eye(n_groups), np.zeros(n_groups, dtype=np.int64)
    n_values = max(n_groups - missing, 1)
    waves = np.eye(n_groups)
    waves[:n_values, :n_values] = dct(np.eye(n_values), axis=0, norm="ortho")
    # 0, 1, 2 and 3, 4 to 7 and so on.
    octaves = np.frexp(np.arange(n_groups))[1]
    octaves[n_values:] = -1
    return waves, octaves


def clear_of_noise(
    waves: Sequence[tuple[np.ndarray, np.ndarray]],
    removed: float,
    pair: tuple[int, int],
    shares: np.ndarray,
    expected: np.ndarray,
    deviation: float,
) -> np.ndarray:
    """Return the shares of a pair, without dependence that noise explains.

    Parameters
    ----------
    waves : sequence of tuple
        Of `waves_of`, for each column.
    removed : float
        The part of the noise that is removed, from 0 to 1.
    pair : tuple of int
        Both columns.
    shares, expected : ndarray of shape (n_groups, n_groups)
        Noisy, and as they are without dependence.
    deviation : float
        Of the noise, above 0.

    Returns
    -------
    ndarray of shape (n_groups, n_groups)
        Perhaps below 0. Differences from the expected shares are judged by octaves of the waves.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._mixture import clear_of_noise, waves_of
    >>> shares, expected = np.array([[0.3, 0.2], [0.2, 0.3]]), np.full((2, 2), 0.25)
    >>> clear_of_noise([waves_of(2)] * 2, 1.0, (0, 1), shares, expected, 0.1)
    array([[0.25, 0.25],
           [0.25, 0.25]])
    """
    (left, rows), (right, columns) = waves[pair[0]], waves[pair[1]]
    most_octaves = 64
    octaves = (most_octaves * rows[:, None] + columns).ravel()
    observed = (left @ (shares - expected) @ right.T).ravel()
    kept = kept_shares(observed, np.array(deviation**2), octaves, errors=SURE_ERRORS)
    # Of a correlation, which is one number, also a hint counts.
    first = octaves == most_octaves + 1
    kept[first] = kept_shares(observed[first], np.array(deviation**2), octaves[first])
    kept += (1 - kept) * (1 - removed)
    return expected + left.T @ (kept * observed).reshape(shares.shape) @ right


def _column_counts(class_counts, noise, j, tables, pair_noise):
    """Return the counts of a column and their variances, from its own counts and all its pairs."""
    precisions = 1 / np.maximum(noise, _TINY_SHARE)
    total = class_counts * precisions
    for pair, table in tables.items():
        if j in pair:
            along = 2 - pair.index(j)
            precision = 1 / max(table.shape[along] * pair_noise**2, _TINY_SHARE)
            total, precisions = total + precision * table.sum(axis=along), precisions + precision
    return total / precisions, 1 / precisions


def _pooled_shares(
    estimates, expected, count_variances, scale, errors, *, shares, n_records, smooth=None
):
    """Return a distribution for every class, between its estimate and the expected one.

    `estimates` are counts and `expected` are shares, of shape (n_classes, n_cells);
    `count_variances` are those of the noise of counts. True differences are modelled as
    proportional to `scale`, and `errors` is as of `kept_shares`. If they are `smooth` tables of
    this shape, frequencies are judged by octaves, and not cells. The second array has the standard
    deviations of the remaining noise.
    """
    n_classes, sizes = len(shares), (shares * n_records)[:, None]
    differences = estimates / sizes - expected
    # An error of the size of a class changes all its cells alike, and is no difference.
    differences -= expected * differences.sum(axis=1, keepdims=True)
    noise_variances = count_variances * (1 - 2 * expected) + expected**2 * count_variances.sum()
    # The counts of all classes together have noise, too.
    noise_variances *= (1 - shares[:, None]) ** 2 + shares[:, None] ** 2 * (n_classes - 1)
    # Chance may make classes of one distribution differ. Bands do differ: measured on two tables.
    by_chance = expected / np.maximum(sizes, 1.0) if errors else 0.0
    variances = noise_variances / sizes**2 + by_chance
    at_large = 0.0
    if smooth is not None:
        # In units of the noise, which is then the same in all frequencies.
        units = np.sqrt(np.maximum(variances, _TINY_SHARE))
        tables, along = (n_classes, *smooth), range(1, len(smooth) + 1)
        observed = dctn((differences / units).reshape(tables), axes=along, norm="ortho")
        octaves = np.log2(np.maximum(np.indices(smooth), 1)).astype(int)
        _, octave = np.unique(octaves.reshape(len(smooth), -1), axis=1, return_inverse=True)
        observed = observed.reshape(n_classes, -1)
        kept = kept_shares(observed, np.ones(observed.shape), octave.ravel(), errors=SURE_ERRORS)
        waves = idctn((kept * observed).reshape(tables), axes=along, norm="ortho")
        at_large = units * waves.reshape(n_classes, -1)
    rest, one_group = differences - at_large, np.zeros(len(count_variances), dtype=int)
    kept = kept_shares(rest / scale, variances / scale**2, one_group, errors=errors)
    pooled = np.array([nearest_distribution(row) for row in expected + at_large + kept * rest])
    class_variances = count_variances.mean() / sizes[:, 0] ** 2
    common_variance = count_variances.mean() * n_classes / n_records**2
    weights = kept.mean(axis=1)
    return pooled, np.sqrt(weights**2 * class_variances + (1 - weights) ** 2 * common_variance)


# The even part of every distribution of a column, and of classes: no declared value is impossible.
_EVEN_SHARE = 1e-6
# The smallest number of records of a class; counts are divided by it.
_SMALLEST_CLASS = 1.0


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
        Whether classes are the groups of a map. Their mixtures have equally many components, and
        are not adjusted to the counts of all classes together.

    Returns
    -------
    dict of str to ndarray
        All that sampling needs. Cells are those of all columns but the target.

        - ``"n_cells"``, ``"starts"``, ``"stops"``: of `release_marginals`.
        - ``"weights"``, ``"classes"`` of shape (n_components,): the probability of each component,
          and its class.
        - ``"cells"`` of shape (n_components, n_cells): the distribution of each column in each
          component.
        - All that `fit_factors` returns.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_schema
    >>> from skdpot.generative._mixture import fit_table
    >>> released = {
    ...     "n_cells": np.array([2, 2]), "starts": np.array([0, 1, 0, 1]),
    ...     "stops": np.array([1, 2, 1, 2]), "counts": np.array([[800.0], [200], [300], [700]]),
    ...     "groups": np.array([0, 1, 0, 1]), "pairs": np.array([300.0, 500, 0, 200]),
    ...     "deviations": np.array([2.0, 2.0]), "totals": np.array([800.0, 200, 300, 700]),
    ... }
    >>> schema = read_schema({"sex": ["F", "M"], "degree": ["no", "yes"]})
    >>> model = fit_table(released, schema, n_components=8, n_iter=200)
    >>> np.round(model["weights"] @ model["cells"], 1)
    array([0.8, 0.2, 0.3, 0.7])
    """
    n_classes, features = schema.n_classes, [schema.columns[j] for j in schema.features]
    ends = np.cumsum(released["n_cells"])[:-1]
    clear, pulled = None, penalty_of(len(features)) / _PENALTY
    # More pairs show together what noise hides in each, and components are pulled together.
    # Measured on 18 public tables, with all of their columns, and with 5 and 8 of them.
    if pulled < 1 and not pooled:
        waves = [
            waves_of(group.max() + 1, ordered=column.kind != NOMINAL, missing=column.missing)
            for column, group in zip(features, np.split(released["groups"], ends), strict=True)
        ]
        clear = partial(clear_of_noise, waves, 1 - pulled)
    if n_classes > 1:
        ordered = [i for i, column in enumerate(features) if column.kind != NOMINAL]
        # Only a target of numbers is a feature as well.
        target = next((i for i, j in enumerate(schema.features) if j == schema.target), None)
        smooth = ordered if pooled else ()
        released, pair_noise = pool_classes(released, n_classes, smooth, target, clear)
        clear = None
    columns = np.split(np.arange(len(released["groups"])), ends)
    class_totals = mean_total([released["counts"][column] for column in columns])
    n_records = max(float(class_totals.sum()), _SMALLEST_CLASS)
    shares = with_even_share(nearest_distribution(class_totals / n_records))
    class_sizes = np.maximum(shares * n_records, _SMALLEST_CLASS)
    if n_classes > 1:
        pair_noise = np.maximum(pair_noise, 1 / class_sizes)
    else:
        pair_noise = max(released["deviations"][1], 1.0) / class_sizes
    targets = [
        _class_targets(released, columns, c, *of_class, clear)
        for c, of_class in enumerate(zip(class_sizes, pair_noise, strict=True))
    ]
    fitted = _fit_classes(targets, shares, n_components, n_iter, pooled=pooled)
    weights = np.concatenate([shares[c] * mixture[0] for c, mixture in enumerate(fitted)])
    profiles = [_cell_profiles(part, released, columns, c) for c, (_, part) in enumerate(fitted)]
    # The memory layout of arrays of a file, so that sums have the same rounding errors.
    cells = np.ascontiguousarray(np.concatenate(profiles))
    if not pooled:
        totals = [released["totals"][column] for column in columns]
        distributions = [nearest_distribution(total / max(total.sum(), 1.0)) for total in totals]
        _rake_in_place(cells, weights, [with_even_share(part) for part in distributions])
    if "missing" in released:
        parts = np.cumsum([len(mixture[0]) for mixture in fitted])[:-1]
        for of_class in zip(np.split(cells, parts), np.split(weights, parts), strict=True):
            _miss_together_in_place(*of_class, columns, released["missing"])
    model = {
        **{name: released[name] for name in ("n_cells", "starts", "stops")},
        "weights": weights,
        "classes": np.repeat(np.arange(n_classes), [len(mixture[0]) for mixture in fitted]),
        "cells": cells,
    }
    return model if pooled else model | fit_factors(released, schema, model)


def _fit_classes(targets, shares, n_components, n_iter, *, pooled):
    """Return the weights and profiles of the mixture of each class.

    `targets` has what `_class_targets` returns for each. If `pooled`, classes are the groups of a
    map, and all mixtures have the same size: differences that are only noise would reveal the
    group.
    """
    n_classes = len(targets)
    fractions = np.full(n_classes, 1 / n_classes) if pooled else shares
    penalty = _PENALTY if pooled else penalty_of(len(targets[0][0]))
    fitted = []
    for (singles, pairs, deviations), fraction in zip(targets, fractions, strict=True):
        # The same draws for every class: mixtures differ only where counts do.
        rng = np.random.RandomState(0)
        n_parts = max(round(n_components * (0.5 / n_classes + 0.5 * fraction)), 2)
        of_class = singles, pairs, deviations, n_parts, n_iter, rng
        fitted.append(fit_mixture(*of_class, penalty=penalty))
    return fitted


def _class_targets(released, columns, c, n_records, pair_noise, clear):
    """Return the counts to which the mixture of a class is fitted.

    These are the distributions of groups in each column, the shares of pairs of groups, and the
    standard deviations of the noise of both. `clear` is as of `pool_classes`.
    """
    # The mixture is fitted to groups of cells, of which there are fewer than cells.
    groups = [released["groups"][column] for column in columns]
    counts = [released["counts"][column, c] for column in columns]
    singles = [
        with_even_share(nearest_distribution(np.bincount(group, count) / n_records))
        for group, count in zip(groups, counts, strict=True)
    ]
    # The noise of a group is that of all its cells, each taken to be one record at least.
    n_cells = list(map(np.bincount, groups))
    noise = np.sqrt(np.concatenate(n_cells)) * max(released["deviations"][0], 1.0) / n_records
    pairs = released["pairs"].reshape(-1, released["counts"].shape[1])[:, c] / n_records
    if clear:
        tables = pair_counts(pairs, list(map(len, singles)), 1).items()
        pairs = np.concatenate(
            [
                clear((a, b), table, np.outer(singles[a], singles[b]), pair_noise).ravel()
                for (a, b), (table,) in tables
            ]
            or [pairs]
        )
    return singles, pairs, (noise, pair_noise)


def _cell_profiles(profiles, released, columns, c):
    """Return the distributions over cells of a class, from `profiles` over groups."""
    noise = max(float(released["deviations"][0]), 1.0)
    groups, cell_shares, offset = [], [], 0
    for column in columns:
        counts, group, totals = (released[name][column] for name in ("counts", "groups", "totals"))
        cell_shares.append(shares_within(counts, group, c, noise, totals))
        groups.append(offset + group)
        offset += group.max() + 1
    return profiles[:, np.concatenate(groups)] * np.concatenate(cell_shares)


def _rake_in_place(cells, weights, distributions):
    """Scale cells, in place, until all components together have these distributions of columns.

    Cells of all components are multiplied by the same factors, so that their ratios between
    components, and between classes, are about the same as before.
    """
    start = 0
    tiny = 1e-300
    # Rounds of iterative proportional fitting of a model to the distributions of columns.
    rakings = 8
    for distribution in distributions:
        profiles = cells[:, start : start + len(distribution)]
        start += len(distribution)
        for _ in range(rakings):
            profiles *= distribution / np.maximum(weights @ profiles, tiny)
            profiles /= profiles.sum(axis=1, keepdims=True)


def _miss_together_in_place(cells, weights, columns, together):
    """Scale cells, in place, so that columns that are missing together miss equally many values."""
    for members in {tuple(np.flatnonzero(row == 1).tolist()) for row in together}:
        missing = float(np.mean(weights @ cells[:, [columns[j][-1] for j in members]]))
        for j in members if len(members) > 1 else ():
            profiles = cells[:, columns[j][0] : columns[j][-1] + 1]
            known = weights @ profiles[:, :-1]
            known *= (weights.sum() - missing) / known.sum()
            _rake_in_place(profiles, weights, [np.append(known, missing)])


def with_even_share(shares):
    """Return a distribution mixed with a small even part, so that every share is above 0."""
    return (1 - _EVEN_SHARE) * shares + _EVEN_SHARE / len(shares)


def shares_within(counts, group, c, noise, totals):
    """Return the share that each cell has of its group in a class.

    `totals` are counts of all classes together, none below 0.
    Counts of the class are moved towards those that all classes together would have there, by as
    much as noise explains their differences.
    """
    totals = totals + _EVEN_SHARE * noise
    shares = totals / np.bincount(group, totals)[group]
    expected = shares * np.maximum(np.bincount(group, counts[:, c]), 0.0)[group]
    differences = counts[:, c] - expected
    is_divided, smallest_part = np.bincount(group)[group] > 1, 0.01
    spread = float(np.sum(differences[is_divided] ** 2)) / max(float(is_divided.sum()), 1.0)
    kept = np.maximum(spread - noise**2, 0.0) / np.maximum(spread, noise**2)
    # For any noisy count, a cell keeps a part of its expected one.
    expected = np.maximum(expected + kept * differences, smallest_part * expected)
    # If a class has no records in a group, it gets the shares of all classes.
    expected += _EVEN_SHARE * noise * shares
    return expected / np.bincount(group, expected)[group]
