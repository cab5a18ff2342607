"""Strong pairs and parities of columns, which a mixture of products alone loses.

In component k of a mixture, a column c without parents has the distribution p_k(c). With parents,
strongly dependent columns that are drawn before it, it has ``p_k(c) F(a, c) F(b, c) ... / Z``.
The factors F are shared by all components. They are fitted so that the pairs are as released. A
parity of several columns is a parent of the last of them: the product of the signs of the others.
Only releases are fitted: nothing here is private, and nothing costs budget.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.special import ndtri

from skdpot.generative import _counts
from skdpot.generative._counts import SURE_ERRORS, sparse_counts
from skdpot.tables import NOMINAL, TableSchema
from skdpot.transport import nearest_distribution

_TINY = 1e-300
# The largest uniform number that is used: products with it are clearly below the other factor.
MAX_UNIFORM = 1 - 2.0**-30
# All groups of a column in each row of a sample take at most 128 MiB.
_MOST_ENTRIES = 2**25
# The class of a component, among the parents of a column.
_CLASS = -1


def clear_errors(n_pairs: int) -> float:
    """Return the number of deviations beyond which signs of this many pairs are clear of noise."""
    false_alarms = 0.05
    return float(ndtri(1 - false_alarms / n_pairs))


def sign_correlations(
    products: np.ndarray, deviation: float, means: np.ndarray, known: np.ndarray | float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the correlation of the two signs of each pair, and the deviation of its noise.

    Parameters
    ----------
    products : ndarray of shape (n_pairs,)
        Released mean products of two signs.
    deviation : float
        Of the noise of these means.
    means : ndarray of shape (2, n_pairs)
        The mean of each sign where it is not 0.
    known : ndarray of shape (n_pairs,), default=1.0
        The share of the records in which no sign of the pair is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._factors import sign_correlations
    >>> sign_correlations(np.array([0.5, 0.2]), 0.1, np.zeros((2, 2)), np.array([1.0, 0.4]))
    (array([0.5, 0.5]), array([0.1 , 0.25]))
    """
    min_spread = 1e-3
    spreads = np.sqrt(np.maximum(1 - means**2, min_spread)).prod(axis=0)
    return (products / known - means.prod(axis=0)) / spreads, deviation / known / spreads


def strong_correlations(
    correlations: np.ndarray, noise: np.ndarray, n_tests: int, n_columns: int
) -> np.ndarray:
    """Return absolute correlations, and 0 where a mixture has them or noise explains them.

    If fewer than 3 for every 4 columns are clear of the noise of so many tests, these are the
    strongest of those that exceed their own noise. Measured on fourteen public tables.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._factors import strong_correlations
    >>> strong_correlations(np.array([0.7, 0.3, -0.15]), np.full(3, 0.1), 3, 3)
    array([0.7, 0.3, 0. ])
    """
    sizes, min_correlation, share_of_columns = np.abs(correlations), 0.2, 0.75
    exceeds = sizes > np.maximum(min_correlation, SURE_ERRORS * noise)
    clear = exceeds & (sizes > clear_errors(n_tests) * noise)
    order = np.lexsort([-sizes * exceeds, ~clear])
    n_kept = max(np.count_nonzero(clear), int(share_of_columns * n_columns))
    kept = np.isin(np.arange(len(sizes)), order[:n_kept])
    return np.where(exceeds & kept, sizes, 0.0)


def missing_together(
    correlations: np.ndarray,
    noise: np.ndarray,
    n_tests: int,
    columns: np.ndarray,
    lost: np.ndarray,
    noise_of_lost: np.ndarray,
) -> np.ndarray:
    """Return how missing values of columns are correlated: 1 where they may be the same.

    `correlations` and `noise` are those of pairs of `columns`, of shape (2, n_pairs). `lost` has
    the share of missing values of each column. What noise of so many tests explains is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._factors import missing_together
    >>> pairs, lost = np.array([[0, 0, 1], [1, 2, 2]]), np.array([0.30, 0.31, 0.6])
    >>> found = np.array([0.95, 0.6, 0.1]), np.full(3, 0.1), 3
    >>> missing_together(*found, pairs, lost, np.full(3, 0.01))
    array([[1. , 1. , 0.6],
           [1. , 1. , 0. ],
           [0.6, 0. , 1. ]])
    """
    (a, b), least, most = columns, 0.5, 0.999
    clear = np.abs(correlations) > clear_errors(n_tests) * noise
    alike = np.abs(lost[a] - lost[b]) < SURE_ERRORS * np.hypot(noise_of_lost[a], noise_of_lost[b])
    same = clear & alike & (correlations > np.maximum(1 - SURE_ERRORS * noise, least))
    together = np.eye(len(lost))
    together[a, b] = together[b, a] = np.clip(np.where(clear, correlations, 0.0), -1.0, most)
    graph = sparse.csr_array((np.ones(same.sum()), (a[same], b[same])), together.shape)
    _, first = connected_components(graph, directed=False)
    return np.where(first[:, None] == first, 1.0, together)


def choose_pairs(strengths: np.ndarray, n_columns: int) -> list[tuple[int, int]]:
    """Return the pairs of columns with the largest strengths, at most 5 for every 4 columns.

    The strongest pairs that connect all columns come first: columns that repeat each other have
    more pairs than can be counted. `strengths` are in the order of ``itertools.combinations``;
    pairs without any are not chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._factors import choose_pairs
    >>> choose_pairs(np.array([0.7, 0.0, 0.0]), 3)
    [(0, 1)]
    """
    pairs, most_for_each = list(combinations(range(n_columns), 2)), 1.25
    a, b = np.transpose(pairs)
    graph = sparse.csr_array((-strengths, (a, b)), shape=(n_columns, n_columns))
    in_forest = minimum_spanning_tree(graph).toarray()[a, b] < 0
    order = np.lexsort([-strengths, ~in_forest])
    n_chosen = min(np.count_nonzero(strengths), int(most_for_each * n_columns))
    return sorted(pairs[i] for i in order[:n_chosen].tolist())


def coarse_dependence(
    pair: np.ndarray, rows: np.ndarray, columns: np.ndarray, n_records: float, deviation: float
) -> float:
    """Return the distance of a pair of columns from independence that noise does not explain.

    It is the total variation of the released counts of groups with these shares, in all classes
    together, less the mean of what noise and chance make of it and three standard deviations; 0 if
    little is left.
    """
    # Of the absolute value of a standard normal number.
    mean, spread, errors = math.sqrt(2 / math.pi), math.sqrt(1 - 2 / math.pi), 3.0
    counts = pair.reshape(len(rows), len(columns), -1)
    expected = n_records * np.outer(rows, columns)
    noise = np.sqrt(counts.shape[2] * deviation**2 + expected)
    by_chance = mean * noise.sum() + errors * spread * np.linalg.norm(noise)
    distance = np.abs(counts.sum(axis=2) - expected).sum()
    left, min_distance = float(distance - by_chance) / 2 / n_records, 0.1
    return left if left > min_distance else 0.0


def group_sums(cells: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the sums of the columns of each group."""
    return np.column_stack([cells[:, group == g].sum(axis=1) for g in range(group.max() + 1)])


def normal_table(rows: np.ndarray, columns: np.ndarray, correlation: float) -> np.ndarray:
    """Return the shares of a normal copula with these margins.

    By Plackett's identity: the derivative of a quadrant by the correlation is a normal density.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._factors import normal_table
    >>> normal_table(np.full(2, 0.5), np.full(2, 0.5), 0.5).round(3)
    array([[0.333, 0.167],
           [0.167, 0.333]])
    """
    nodes, weights = np.polynomial.legendre.leggauss(24)
    x, y = (ndtri(np.minimum(np.cumsum(part)[:-1], 1.0)) for part in (rows, columns))
    x, y, half = x[:, None, None], y[:, None], np.arcsin(correlation) / 2
    angles = half * (nodes + 1)
    with np.errstate(invalid="ignore"):
        exponents = -(x**2 - 2 * x * y * np.sin(angles) + y**2) / (2 * np.cos(angles) ** 2)
    densities = np.exp(np.where(np.isnan(exponents), -np.inf, exponents))
    excess = np.pad(densities @ weights * half / (2 * np.pi), 1)
    table = np.outer(rows, columns) + np.diff(np.diff(excess, axis=0), axis=1)
    return np.maximum(table, 0.0)


def standard_ranks(shares: np.ndarray) -> np.ndarray:
    """Return the mean rank of each group of cells with these shares, with mean 0 and variance 1."""
    ranks = np.cumsum(shares) - shares / 2
    ranks -= shares @ ranks / shares.sum()
    return ranks / max(float(np.sqrt(shares @ ranks**2 / shares.sum())), 1e-9)


def _normal_correlation(table, shares, deviation):
    """Return the correlation of the normal copula that is nearest to a table, in units of noise.

    Its rank correlation counts as much as five cells: chosen on 579 pairs of 17 public tables. It
    is shrunk by what noise explains of it.
    """
    (rows, columns), weight, ranks = shares, 5.0, list(map(standard_ranks, shares))
    seen = ranks[0] @ table @ ranks[1]
    # One group has no rank, and no error.
    error = max(deviation * np.linalg.norm(ranks[0]) * np.linalg.norm(ranks[1]), _TINY)

    def misfit(correlation):
        expected = normal_table(rows, columns, correlation)
        of_ranks = (seen - ranks[0] @ expected @ ranks[1]) / error
        return weight * of_ranks**2 + np.sum((table - expected) ** 2) / deviation**2

    found = minimize_scalar(misfit, bounds=(-0.995, 0.995), options={"xatol": 1e-3})
    return found.x * max(1 - (error / max(abs(seen), _TINY)) ** 2, 0.0)


def fit_to_margins(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return a table scaled to these sums of rows and columns: iterative proportional fitting."""
    n_rounds = 10
    for _ in range(n_rounds):
        table = table * (rows / np.maximum(table.sum(axis=1), _TINY))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), _TINY))
    return table / max(float(table.sum()), _TINY)


def pair_target(
    counts: np.ndarray,
    deviation: float,
    n_records: float,
    margins: Sequence[np.ndarray],
    coarse: Sequence[np.ndarray],
    *,
    ordered: tuple[slice, slice] | None,
) -> np.ndarray:
    """Return the shares of a pair in fine groups, by released counts of coarse ones.

    Parameters
    ----------
    counts : ndarray of shape (n_groups, n_groups)
        Released.
    deviation : float
        Of their noise.
    n_records : float
        About the number of records.
    margins, coarse : sequence of two ndarray of shape (n_fine,)
        The share and the group of each fine group.
    ordered : tuple of slice, or None
        The groups that have an order: all but that of missing values, which is the last one. Of
        these, a normal copula is the first guess, and what noise and chance do not explain of the
        difference is added. With None, a column has no order: see `sparse_counts`.
    """
    rows, columns = margins
    observed, fine = counts / n_records, np.outer(rows, columns)
    if ordered:
        shares = [
            part[some] / part[some].sum() for part, some in zip(margins, ordered, strict=True)
        ]
        each = zip(coarse, ordered, shares, strict=True)
        parts = [np.bincount(group[some], share) for group, some, share in each]
        known, least = observed[ordered], 0.01
        size = max(float(known.sum()), least)
        correlation = _normal_correlation(known / size, parts, deviation / n_records / size)
        fine[ordered] = fine[ordered].sum() * normal_table(shares[0], shares[1], correlation)
    guess = np.zeros(counts.shape)
    np.add.at(guess, (coarse[0][:, None], coarse[1]), fine)
    if ordered:
        differences, noise = observed - guess, (deviation / n_records) ** 2 + guess / n_records
        # What differences exceed the noise by, less two standard errors, is in proportion to the
        # guess. Noise explains none that is clear among so many.
        excess = np.sum(differences**2 - noise) - 2 * math.sqrt(2 * np.sum(noise**2))
        spreads = max(excess, 0.0) * guess
        hidden = differences**2 < clear_errors(guess.size) ** 2 * noise
        likely = guess + differences * np.where(hidden, spreads / (spreads + noise), 1.0)
    else:
        expected = np.maximum(n_records * guess, _TINY)
        likely = sparse_counts(counts.ravel(), expected.ravel(), deviation) / n_records
    likely = nearest_distribution(likely.ravel()).reshape(guess.shape)
    ratios = likely / np.maximum(guess, _TINY)
    # No pair is impossible.
    even = 1e-4
    table = fine * ratios[coarse[0]][:, coarse[1]] + even * np.outer(rows, columns)
    return fit_to_margins(table, rows, columns)


def fit_factors(
    released: Mapping[str, np.ndarray], schema: TableSchema, model: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the factors of strong pairs, and of parities that stand out; empty without any.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_marginals`.
    schema : TableSchema
        The declaration of the table.
    model : mapping of str to ndarray
        Of `fit_table`, without factors.

    Returns
    -------
    dict of str to ndarray
        - ``"order"`` of shape (n_columns,): the order in which columns are drawn.
        - ``"fine"``, ``"halves"`` of shape (n_cells,): the fine group of each cell in its column,
          and whether it is in the upper half.
        - ``"parities"`` of shape (n_parities, n_columns): the columns of each, but the last. One
          column alone tells whether its value is missing.
        - ``"edges"`` of shape (n_edges, 2): a parent and its column. A parent is a column, or -1
          for the class, or -2 and less for parities.
        - ``"factors"``: of all edges, one after another.

    Notes
    -----
    Columns are drawn in turn, for a sample of rows. The factors of a column are fitted to its pairs
    with all parents, and with the class, in turn: iterative proportional fitting, where the sample
    stands for the distribution of the parents.
    """
    ends = np.cumsum(model["n_cells"])[:-1]
    weights, cells = model["weights"], np.split(model["cells"], ends, axis=1)
    shares = [weights @ part for part in cells]
    halves = groups = [np.zeros(len(share), dtype=np.int64) for share in shares]
    if "halves" in released:
        halves = np.split(released["halves"], ends)
    if "strong_groups" in released:
        groups = np.split(released["strong_groups"], ends)
    # The last cell is apart, which may have missing values.
    each = zip(groups, halves, strict=True)
    ranks = [4 * g + 2 * h + (np.arange(len(g)) == len(g) - 1) for g, h in each]
    parts = [np.unique(rank, return_inverse=True)[1] for rank in ranks]
    # A fine group has about 1/32 of all records.
    fine = [_counts.merge_within(*part, 1 / 32) for part in zip(parts, shares, strict=True)]
    margins = list(map(np.bincount, fine, shares))
    targets = _pair_targets(released, schema, margins, list(map(_counts.firsts_of, groups, fine)))
    fine_halves = list(map(_counts.firsts_of, halves, fine))
    absent = [(np.arange(part.max() + 1) == part[-1]).astype(np.int64) for part in fine]
    explained = partial(explained_by_pairs, *_signs_of_pairs(margins, fine_halves, targets))
    outstanding = outstanding_parities(released, model, schema.n_classes, halves, explained)
    together = released.get("missing", np.eye(len(cells)))
    if not (targets or outstanding or np.count_nonzero(together) > len(cells)):
        return {}
    # Columns of many categories come first, and then those with the strongest pairs. Pairs of later
    # columns lose more, and numbers, which have an order, lose least. Measured on flights.
    strengths = np.zeros(len(cells))
    for (a, b), target in targets.items():
        strengths[a] += _dependence(target, margins[a], margins[b])
        if together[a, b] == 1:
            target[-1, :-1] = target[:-1, -1] = 0.0
    usual_groups = 32
    many = [
        schema.columns[j].kind == NOMINAL and len(margin) > usual_groups
        for j, margin in zip(schema.features, margins, strict=True)
    ]
    order = np.lexsort([-strengths, ~np.array(many)]).tolist()
    rows = _spread_components(weights, targets, margins)
    is_of_class = model["classes"] == np.arange(schema.n_classes)[:, None]
    # The class of each row, and the groups that its cells are in, by the column.
    grouped = {_CLASS: model["classes"][rows]}
    parities: list[np.ndarray] = []
    # Columns with no other parent than the first one need no sample: of this, each component has
    # each group.
    firsts = group_sums(cells[order[0]], fine[order[0]])
    members, group = np.divmod(np.arange(firsts.size), firsts.shape[1])
    of_group = {order[0]: group, _CLASS: model["classes"][members]}
    whole = members, of_group, weights[members] * firsts.ravel()
    edges, factors, rng = [], [], np.random.RandomState(0)
    for place, c in enumerate(order):
        own = group_sums(cells[c], fine[c])
        of_classes = (is_of_class * weights) @ own
        parents = [a for a in order[:place] if (a, c) in targets]
        parents.sort(key=lambda a: -_dependence(targets[a, c], margins[a], margins[c]))
        # More parents are seldom known well.
        most_parents = 3
        wanted = {a: targets[a, c] for a in parents[:most_parents]}
        others_of: list[tuple[list[int], np.ndarray | None]] = [
            ([j for j in columns if j != c], means)
            for columns, means in outstanding
            if c in columns and set(columns) <= set(order[: place + 1])
        ]
        others_of += [([a], None) for a in _missing_parents(together[c], order[:place])]
        for others, means in others_of:
            parent, parts = -2 - len(parities), fine_halves if means is not None else absent
            grouped[parent] = parity_groups(others, grouped, parts)
            of_parents = np.bincount(grouped[parent], minlength=2 * schema.n_classes)
            if means is None:
                means = _missing_means(together[c, others[0]], of_classes, absent[c], of_parents)
            wanted[parent] = _parity_target(means, of_classes, parts[c], of_parents)
            parities.append(np.isin(np.arange(len(cells)), others))
        if wanted and min(wanted) >= 0:
            # The shares of its groups in a class stay. A parity has them in it.
            wanted[_CLASS] = of_classes
        is_whole = set(wanted) == {order[0], _CLASS} and firsts.size * own.shape[1] <= _MOST_ENTRIES
        members, *sample = whole if is_whole else (rows, grouped, np.full(len(rows), 1 / len(rows)))
        found = _fitted_factors(own[members].astype(np.float32), wanted, *sample) if wanted else {}
        edges += [(a, c) for a in found]
        factors += [factor.ravel() for factor in found.values()]
        sizes = len(rows) * is_of_class * weights
        grouped[c], _ = draw_groups(own, rows, found, grouped, rng, sizes=sizes)
    return {
        "order": np.array(order),
        "fine": np.concatenate(fine),
        "halves": np.concatenate(halves),
        "parities": np.array(parities, dtype=bool).reshape(-1, len(cells)),
        "edges": np.array(edges),
        "factors": np.concatenate(factors),
    }


def _signs_of_pairs(margins, halves, targets):
    """Return the mean sign of each column, and the mean product of the signs of each pair."""
    signs = np.array(
        [1 - 2 * (half @ margin) for half, margin in zip(halves, margins, strict=True)]
    )
    pair_signs = np.outer(signs, signs)
    for (a, b), target in targets.items():
        pair_signs[a, b] = (1 - 2 * halves[a]) @ target @ (1 - 2 * halves[b])
    return signs, pair_signs


def _spread_components(weights, targets, margins):
    """Return the components of a sample of rows, in proportion to their weights."""
    # Noise of this sample is smaller than that of releases. Large tables need more rows.
    max_size = max((target.size for target in targets.values()), default=0)
    most_rows = min(_MOST_ENTRIES // max(len(margin) for margin in margins), 2**17)
    n_rows = max(min(2 * max_size, most_rows), 2**13)
    places = (np.arange(n_rows) + 0.5) / n_rows * weights.sum()
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)


def _dependence(target, rows, columns):
    """Return the distance of a table from independence, in total variation."""
    return float(np.abs(target - np.outer(rows, columns)).sum()) / 2


def _pair_targets(released, schema, margins, coarse):
    """Return the shares of each strong pair, in both orders of its columns."""
    targets, stop, n_records = {}, 0, max(_counts.released_size(released), 1.0)
    is_nominal = [schema.columns[j].kind == NOMINAL for j in schema.features]
    alone = [np.count_nonzero(part == part[-1]) == 1 for part in coarse]
    each = zip(schema.features, alone, strict=True)
    known = [slice(-1 if schema.columns[j].missing and only else None) for j, only in each]
    for a, b in released.get("strong_pairs", np.empty((0, 2), dtype=np.int64)).tolist():
        shape = coarse[a].max() + 1, coarse[b].max() + 1
        start, stop = stop, stop + shape[0] * shape[1]
        counts = released["strong_counts"][start:stop].reshape(shape)
        deviation = float(released["strong_deviation"][0])
        parts = [margins[a], margins[b]], [coarse[a], coarse[b]]
        ordered = None if is_nominal[a] or is_nominal[b] else (known[a], known[b])
        shares = pair_target(counts, deviation, n_records, *parts, ordered=ordered)
        targets[a, b], targets[b, a] = shares, shares.T
    return targets


def outstanding_parities(
    released: Mapping[str, np.ndarray],
    model: Mapping[str, np.ndarray],
    n_classes: int,
    halves: Sequence[np.ndarray],
    explained: Callable[[Sequence[np.ndarray]], np.ndarray],
) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Return the parities that a model lacks, as columns and the mean in each class.

    Nor does it have strong pairs, whose parities are not lacking where these are `explained`.
    """
    if "parities" not in released:
        return []
    subsets = _counts.scanned_subsets(len(halves), int(released["max_parity"][0]))
    cells = np.split(model["cells"], np.cumsum(model["n_cells"])[:-1], axis=1)
    signs = np.column_stack([1 - 2 * (one @ half) for one, half in zip(cells, halves, strict=True)])
    is_of_class = model["classes"] == np.arange(n_classes)[:, None]
    weights = is_of_class * model["weights"]
    shares = weights.sum(axis=1)
    parities = [_counts.mixture_parities(w, signs, subsets) for w in weights]
    predicted = np.transpose(parities) / shares
    n_records = np.maximum(shares * float(released["counts"].sum() / len(halves)), 1.0)
    deviations = np.sqrt(released["parity_deviation"][0] ** 2 + n_records) / n_records
    seen = released["parities"] / n_records
    # A column whose cells are all in one half has no sign; its parities are set to predicted ones.
    has_sign = np.array([half.min() < half.max() for half in halves])
    is_unknown = ~np.concatenate([has_sign[group].all(axis=1) for group in subsets])
    seen[is_unknown] = predicted[is_unknown]
    by_pairs = explained(subsets)[:, None]
    predicted = np.where(np.abs(seen - by_pairs) < np.abs(seen - predicted), by_pairs, predicted)
    return _counts.standing_out(seen, predicted, deviations, n_records, subsets)


def explained_by_pairs(
    signs: np.ndarray, pair_signs: np.ndarray, subsets: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the mean parities of columns of which only strong pairs depend on each other.

    They are products of the mean products of disjoint pairs, the strongest first, and of the mean
    signs of all other columns.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._factors import explained_by_pairs
    >>> pair_signs = np.outer([0.5, 0, 0], [0.5, 0, 0])
    >>> pair_signs[1, 2] = pair_signs[2, 1] = 0.8
    >>> explained_by_pairs(np.array([0.5, 0, 0]), pair_signs, [np.array([[0, 1, 2]])])
    array([0.4])
    """
    # No column is a pair with itself: of those, and of pairs that are not strong, this is 0.
    strengths, found = np.abs(pair_signs - np.outer(signs, signs)), []
    for group in subsets:
        rows, size = np.arange(len(group)), group.shape[1]
        products, is_left = np.ones(len(group)), np.ones(group.shape, dtype=bool)
        for _ in range(size // 2):
            are_left = is_left[:, :, None] & is_left[:, None]
            of_pairs = strengths[group[:, :, None], group[:, None]] * are_left
            a, b = np.divmod(of_pairs.reshape(len(group), -1).argmax(axis=1), size)
            is_pair = of_pairs[rows, a, b] > 0
            products[is_pair] *= pair_signs[group[rows, a], group[rows, b]][is_pair]
            is_left[rows[is_pair], a[is_pair]] = is_left[rows[is_pair], b[is_pair]] = False
        found.append(products * np.where(is_left, signs[group], 1.0).prod(axis=1))
    return np.concatenate(found)


def parity_groups(
    columns: Iterable[int], grouped: Mapping[int, np.ndarray], halves: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the class of each row, doubled, plus whether the parity of these columns is odd.

    `halves` has those of the groups of each column; of one column alone, whether it is missing.
    """
    odd = np.bitwise_xor.reduce([halves[j][grouped[j]] for j in columns])
    return 2 * grouped[_CLASS] + odd


def _missing_parents(together, earlier):
    """Return up to three columns that tell whether a column's value is missing, the best first."""
    most_parents = 3
    found = sorted((a for a in earlier if together[a]), key=lambda a: -abs(together[a]))
    # Those that are missing in the same records tell all.
    return found[: 1 if found and together[found[0]] == 1 else most_parents]


def _missing_means(correlation, of_classes, absent, of_parents):
    """Return the mean product, in each class, of the signs of two columns' missing values."""
    numbers = of_parents.reshape(-1, 2)
    of_parent = 1 - 2 * numbers[:, 1] / np.maximum(numbers.sum(axis=1), 1)
    of_column = 1 - 2 * (of_classes @ absent) / np.maximum(of_classes.sum(axis=1), _TINY)
    spread = np.sqrt(np.maximum((1 - of_parent**2) * (1 - of_column**2), 0.0))
    return of_parent * of_column + correlation * spread


def _parity_target(means, of_classes, half, of_parities):
    """Return the shares of a column's fine groups, by class and the parity of the other columns.

    `means` has the mean of the parity with this column in each class, and `of_parities` the number
    of rows with each parity of the others, even and odd, in each class.
    """
    target, smallest = [], 1e-3
    for mean, own, numbers in zip(means, of_classes, of_parities.reshape(-1, 2), strict=True):
        upper = half @ own / own.sum()
        of_halves = np.maximum(np.bincount(half, own, minlength=2), _TINY)
        for sign, number in zip((1, -1), numbers, strict=True):
            # The mean sign of the column, and so the share of the upper half, given that of others.
            given = 2 * max(number / max(numbers.sum(), 1), smallest)
            share = np.clip((1 - (1 - 2 * upper + sign * mean) / given) / 2, smallest, 1 - smallest)
            target.append(own * (np.array([1 - share, share]) / of_halves)[half])
    return np.array(target)


def _fitted_factors(joint, wanted, grouped, weights):
    """Return the factor of each parent, for rows with these distributions without them."""
    n_rows, weights = len(joint), weights.astype(joint.dtype)
    factors = {a: np.ones(table.shape) for a, table in wanted.items()}
    members = {
        a: sparse.csr_array((weights, (grouped[a], np.arange(n_rows))), (len(table), n_rows))
        for a, table in wanted.items()
    }
    # The sample has not exactly the shares of the parents.
    targets = {
        a: table * (members[a].sum(axis=1) / np.maximum(table.sum(axis=1), _TINY))[:, None]
        for a, table in wanted.items()
    }
    # Of a round without an end, pairs contradict each other.
    n_rounds, max_step, moved, least = 20, 20.0, math.inf, 0.97
    for _ in range(n_rounds):
        before, moved = moved, 0.0
        for a, target in targets.items():
            joint /= np.maximum(joint.sum(axis=1, keepdims=True), _TINY)
            ratios = (target + 1e-9) / (members[a] @ joint + 1e-9)
            ratios = np.clip(ratios, 1 / max_step, max_step)
            factors[a] *= ratios
            joint *= ratios.astype(joint.dtype)[grouped[a]]
            moved += float(np.sum(target * abs(ratios - 1)))
        if moved > least * before:
            break
    return {a: factor / factor.max(axis=1, keepdims=True) for a, factor in factors.items()}


def even_totals(
    drawn: np.ndarray,
    strata: np.ndarray,
    expected: np.ndarray,
    weights_of: Callable[[np.ndarray], np.ndarray],
    rng: np.random.RandomState,
) -> None:
    """Draw some entries again, in place, until their totals are nearly the expected ones.

    Records of entries with too many are drawn again among their own entry and those with too few.
    Each record is in a stratum; `expected` has the shape (n_strata, n_entries), or (1, n_entries)
    for the totals of all strata together. `weights_of` returns the probabilities of entries, of
    shape (n, n_entries), for the positions of records: few of them become what is unlikely for
    them.
    """
    # Far fewer records than chance moves, if the table is large.
    n_rounds, n_entries, enough = 8, expected.shape[1], len(drawn) / 2000
    strata, accepted, least = strata % len(expected), 1.0, 0.1
    cells = strata * n_entries + drawn
    surplus = np.bincount(cells, minlength=expected.size) - expected.ravel()
    for _ in range(n_rounds):
        if np.abs(surplus).sum() < enough:
            break
        chances = np.maximum(surplus, 0) / np.maximum(surplus + expected.ravel(), _TINY) / accepted
        tried = rng.permutation(np.flatnonzero(rng.uniform(size=len(drawn)) < chances[cells]))
        lacking = np.maximum(-surplus, 0.0).reshape(expected.shape)
        lacking /= np.maximum(lacking.max(axis=1, keepdims=True), _TINY)
        found = drawn[tried]
        # Some records at once: a matrix of all and of 10,000 entries takes a gigabyte.
        for part in np.array_split(np.arange(len(tried)), 1 + tried.size * n_entries // 2**23):
            some, each = tried[part], np.arange(len(part))
            allowed = lacking[strata[some]]
            allowed[each, found[part]] = 1.0
            weights = weights_of(some) * allowed
            found[part] = chosen_entries(weights, each, rng.uniform(size=len(some)))
        changed = found != drawn[tried]
        accepted = max(float(changed.mean()) if len(tried) else 1.0, least)
        # No more leave or reach an entry than are too many, or too few.
        for sign in 1, -1:
            ends = cells[tried] if sign > 0 else strata[tried] * n_entries + found
            changed[changed] = _first_of(ends[changed], sign * surplus)
        moved, found = tried[changed], found[changed]
        surplus -= np.bincount(cells[moved], minlength=expected.size)
        drawn[moved], cells[moved] = found, strata[moved] * n_entries + found
        surplus += np.bincount(cells[moved], minlength=expected.size)


def _first_of(cells, numbers):
    """Tell which are among the first of their cell, of each up to a rounded number."""
    order = np.argsort(cells, kind="stable")
    places = np.empty(len(cells))
    places[order] = np.arange(len(cells)) - np.searchsorted(cells[order], cells[order])
    return places < np.round(numbers)[cells]


def chosen_entries(weights: np.ndarray, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return an entry for each record, by its row of weights and by a number from 0 to 1.

    A row of zeros has the last one.
    """
    n_rows, n_entries = weights.shape
    ladder = np.cumsum(weights, axis=1)
    ladder /= np.where(ladder[:, -1:] > 0, ladder[:, -1:], 1.0)
    # One search for all: each row is moved to an interval of its own.
    ladder += 2 * np.arange(n_rows)[:, None]
    ladder[:, -1] = 2 * np.arange(n_rows) + 2
    # Rounding moves no number to the next integer, where entries of no weight are.
    places = np.minimum(uniforms, MAX_UNIFORM) + 2 * rows
    return np.searchsorted(ladder.ravel(), places, side="right") - rows * n_entries


def draw_groups(
    own: np.ndarray,
    components: np.ndarray,
    factors: Mapping[int, np.ndarray],
    grouped: Mapping[int, np.ndarray],
    rng: np.random.RandomState,
    allowed: np.ndarray | float = 1.0,
    sizes: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the fine group of a column in each row, given those of its parents.

    `allowed` is the share of each group that conditions allow. The second array has the probability
    of these in each row. With the expected `sizes` of components, of shape (n_classes,
    n_components), totals in classes are nearly those that the components have by themselves:
    factors are fitted so as to keep them.
    """

    def weights_of(rows: np.ndarray) -> np.ndarray:
        joint = own[components[rows]]
        for a, factor in factors.items():
            joint *= factor[grouped[a][rows]]
        return joint / np.maximum(joint.sum(axis=1, keepdims=True), _TINY)

    # Rows with the same component and groups have the same weights.
    kinds, n_kinds = components, len(own)
    for a, factor in factors.items():
        if n_kinds * len(factor) >= 2**63:
            kinds, n_kinds = np.unique(kinds, return_inverse=True)[1], len(kinds)
        kinds, n_kinds = kinds * len(factor) + grouped[a], n_kinds * len(factor)
    n, block = len(components), 2**12
    order = np.argsort(kinds, kind="stable")
    starts = np.flatnonzero(np.diff(kinds[order], prepend=-1))
    ends = np.append(starts[1:], n)
    drawn, kept, uniforms = np.empty(n, dtype=np.int64), np.empty(n), rng.uniform(size=n)
    for first in range(0, len(starts), block):
        part = slice(first, first + block)
        rows = order[starts[first] : ends[part][-1]]
        weights = weights_of(order[starts[part]]) * allowed
        kind = np.repeat(np.arange(len(weights)), ends[part] - starts[part])
        kept[rows] = weights.sum(axis=1)[kind]
        drawn[rows] = chosen_entries(weights, kind, uniforms[rows])
    if sizes is not None:
        even_totals(drawn, grouped[_CLASS], sizes @ own, weights_of, rng)
    return drawn, kept


def fine_groups(model: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], ...]:
    """Return the fine group of each cell of each column; of these, the half, and which is last."""
    ends = np.cumsum(model["n_cells"])[:-1]
    fine, halves = np.split(model["fine"], ends), np.split(model["halves"], ends)
    last = [np.arange(group.max() + 1) == group[-1] for group in fine]
    return fine, list(map(_counts.firsts_of, halves, fine)), last


def factors_of(model: Mapping[str, np.ndarray]) -> dict[int, dict[int, np.ndarray]]:
    """Return the factors of each column with parents, by parent."""
    sizes = [part.max() + 1 for part in fine_groups(model)[0]]
    found: dict[int, dict[int, np.ndarray]] = {}
    start = 0
    for a, c in model["edges"].tolist():
        n_classes = model["classes"].max() + 1
        n_rows = sizes[a] if a >= 0 else n_classes if a == _CLASS else 2 * n_classes
        stop = start + n_rows * sizes[c]
        found.setdefault(c, {})[a] = model["factors"][start:stop].reshape(n_rows, sizes[c])
        start = stop
    return found
