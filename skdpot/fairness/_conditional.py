"""The sequential conditional repair of a table: one-dimensional conditional transports, in turn."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.special import softmax
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.fairness._conditional_models import (
    UNKNOWN,
    ColumnParts,
    Linear,
    NumberModel,
    deal_folds,
    fit_numbers,
    fit_parts,
    fit_states,
)
from skdpot.fairness._supports import uniforms
from skdpot.tables import NOMINAL, NUMERIC, Column

# Groups that share a map, in ascending order.
Part = tuple[int, ...]
# Of the rows that a classifier knows, and of those that it is tested with.
Split = Sequence[np.ndarray]
# Two groups, by scores of a classifier their AUC and largest gap of rates, and their sizes.
FoundPair = tuple[tuple[int, int], float, float, tuple[int, int]]


class ConditionalRepair(BaseEstimator):
    """Repair of one column after the other, for wide and mixed tables.

    Each column is repaired given the columns before it. With epsilon, which needs a delta, a noisy
    sketch of the table is released. The models are fitted to synthetic rows from the sketch: as
    many as the table has, or `max_rows`. Differences that the noise hides are not repaired, and a
    column that depends on an earlier one is drawn again, given the images of the columns before it.
    The same is tried with synthetic rows in the place of the table. If the repair does not make
    their groups harder to find, by more than ties of columns show that a map may break and these
    rows lack, no row is moved. There is no certificate.

    Parameters
    ----------
    tol : float, default=0.02
        No row is moved if no classifier predicts the group of held-out rows with an AUC above 0.5
        + tol. With 0 the repair is always made.
    max_rows : int, default=None
        Largest number of rows to which the models of columns are fitted, drawn at random; None is
        100,000.
    held_out : float, default=0.2
        Share of each group's rows that the fit holds out for ``certificate_``: at most 10,000 rows
        of all groups, and none of groups with fewer than 25 rows to hold out. With 0 there is no
        certificate.
    coupling : {"monotone", "common"}, default="monotone"
        How values move to the common distribution. With ``"monotone"`` they keep their ranks, and
        the common distribution is the average of quantiles. With ``"common"`` it is the mixture,
        and a value stays with the largest possible probability: the fewest cells change, but these
        may change by much (:ref:`proof <proof-common-part>`).

    See Also
    --------
    FreeSupport : Couplings with points that move freely, for few numeric columns.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.fairness import ConditionalRepair
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat(["a", "b"], 500)
    >>> X = rng.normal(size=(1000, 6)) + (group == "b")[:, None]
    >>> repair = ConditionalRepair(tol=0.0, held_out=0.0)
    >>> fair = FairBarycenterPreprocessor(method=repair, random_state=0)
    >>> Z = fair.fit_transform(X, sensitive_features=group)
    >>> means = Z[group == "a"].mean(axis=0), Z[group == "b"].mean(axis=0)
    >>> bool(np.allclose(*means, atol=0.2))
    True
    """

    _parameter_constraints = {
        "tol": [Interval(Real, 0, 0.5, closed="both")],
        "max_rows": [Interval(Integral, 1, None, closed="left"), None],
        "held_out": [Interval(Real, 0, 0.9, closed="both")],
        "coupling": [StrOptions({"monotone", "common"})],
    }

    def __init__(self, *, tol=0.02, max_rows=None, held_out=0.2, coupling="monotone") -> None:
        self.tol = tol
        self.max_rows = max_rows
        self.held_out = held_out
        self.coupling = coupling

    def _check(self, epsilon: float | None, delta: float | None) -> None:
        """Raise if parameters do not fit a private fit, or an open one."""
        if epsilon is not None and not delta:
            raise ValueError(
                "method='conditional' with epsilon releases the sketch of a table with Gaussian "
                "noise, which needs delta above 0, far below one over the number of rows; a "
                "support, method='support', does not."
            )


@dataclass(frozen=True, eq=False)
class ColumnStep:
    """One column of the sequence.

    Attributes
    ----------
    position : int
        Its place in the table.
    parts : ColumnParts
        The parts of its values.
    states : Linear or None
        The logits of states.
    numbers : NumberModel or None
        The distribution of scores.
    first, last : int
        Its features among those of all columns.
    moves : bool
        Whether any row may get another value.
    """

    position: int
    parts: ColumnParts
    states: Linear | None
    numbers: NumberModel | None
    first: int
    last: int
    moves: bool


@dataclass(frozen=True, eq=False)
class ConditionalMap:
    """A repair of tables, column by column.

    Attributes
    ----------
    steps : tuple of ColumnStep
        The columns, in the order of the sequence.
    weights : ndarray of shape (n_maps,)
        Weights of the maps: the sums of those of their groups.
    shared : ndarray of shape (n_groups,)
        The map of each group. Groups that no classifier tells apart share one.
    coupling : {"monotone", "common"}
        How values and their images are coupled.
    """

    steps: tuple[ColumnStep, ...]
    weights: np.ndarray
    shared: np.ndarray
    coupling: str = "monotone"

    @property
    def moves(self) -> bool:
        """Tell whether any row may get another value."""
        return any(step.moves for step in self.steps)

    def at_rest(self) -> "ConditionalMap":
        """Return the map that moves no row."""
        return replace(self, steps=tuple(replace(step, moves=False) for step in self.steps))

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, n_jobs: int | None = None
    ) -> np.ndarray:
        """Return the images of rows; randomness depends on their keys.

        Rows of group -1 are not changed. `n_jobs` threads work on parts of the rows.
        """
        images = np.array(codes, dtype=np.float64)
        rows = np.flatnonzero(groups >= 0)
        if not self.moves:
            # Not even rounded: rows that need no repair stay what they are, bit by bit.
            return images
        # Images are always computed for this number of rows at a time. The rounding of a matrix
        # product depends on its shape, and the image of a row must not depend on the other rows.
        # The number is divisible by the block sizes of BLAS kernels, so that the position of a row
        # does not matter.
        chunk = 1536
        parts = [rows[start : start + chunk] for start in range(0, len(rows), chunk)]
        found = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(self._images)(codes[whole], self.shared[groups[whole]], keys[whole])
            # The last part repeats its rows; the images of copies are dropped.
            for whole in (np.resize(part, chunk) for part in parts)
        )
        for part, moved in zip(parts, found, strict=True):
            images[part] = moved[: len(part)]
        return images

    # Threads do not inherit the caller's np.errstate.
    @np.errstate(all="ignore")
    def _images(self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray) -> np.ndarray:
        images = np.array(codes, dtype=np.float64)
        # Features of the rows' images in every group, or of the rows and their images, filled in
        # column by column. Features before rows, so that each feature is contiguous.
        move, shares = _moved, self.weights
        if self.coupling == "common":
            move, shares = partial(_in_common, self.weights), np.array([0.0, 1.0])
        features = np.empty((len(shares), self.steps[-1].last, len(codes)))
        for step in self.steps:
            # Contiguous, for the searches and comparisons of its values; a copy of the only column.
            column = images[:, step.position].copy()
            place = uniforms(keys, first_draw(step.position, "place"))
            states, scores = read(step.parts, column, place)
            if step.moves:
                states, scores, stays = move(step, states, scores, features, groups, keys)
                draws = uniforms(keys, first_draw(step.position, "missing"))
                combined = step.parts.combined(states, scores, shares, draws)
                moved = step.parts.resolved(combined, column, place)
                images[:, step.position] = np.where(stays, column, moved)
            step.parts.write_features(features[:, step.first : step.last], states, scores)
        return images


def first_draw(position: int, what: str) -> int:
    """Return the number of a column's first draw: of its place in a cell, its rank, or others.

    Many draws are reserved for each column, as states need one more than there are of them.
    """
    return 1 + position * (1 << 20) + ("place", "rank", "missing", "state").index(what)


def read(parts: ColumnParts, codes: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return states and scores of values; scores of other values than regular numbers are NaN."""
    states, scores = parts.states(codes), np.full(len(codes), np.nan)
    if parts.scale is not None:
        regular = states == 0
        scores[regular] = parts.scale.score(codes[regular], place[regular])
    return states, scores


def _moved(
    step: ColumnStep,
    states: np.ndarray,
    scores: np.ndarray,
    features: np.ndarray,
    groups: np.ndarray,
    keys: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return states and scores of rows in every group, and that no value is kept in any case."""
    earlier = features[:, : step.first]
    order, draw = step.parts.order, first_draw(step.position, "state")
    in_groups = np.zeros((len(features), len(states)), dtype=np.int8)
    if step.states is not None:
        logits = step.states.of(earlier)
        if order is None:
            in_groups = gumbel_max_coupling(states, logits, groups, keys, draw)
        else:
            # The last entry is for rows with an unknown state.
            places = np.append(np.argsort(order), UNKNOWN)[states]
            in_groups = order[monotone_coupling(places, logits[:, order], groups, keys, draw)]
    moved = np.full(in_groups.shape, np.nan)
    if step.numbers is not None:
        means = step.numbers.lines.of(earlier)[:, 0]
        ranks = uniforms(keys, first_draw(step.position, "rank"))
        moved = step.numbers.move(scores, means, groups, ranks)
    return in_groups, moved, np.zeros(len(states), dtype=bool)


def _in_common(
    weights: np.ndarray,
    step: ColumnStep,
    states: np.ndarray,
    scores: np.ndarray,
    features: np.ndarray,
    groups: np.ndarray,
    keys: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return states and scores of rows and of their images, and which rows keep their values.

    The cells of a column are its states, of which that of regular numbers is empty, and then the
    cells of these numbers.
    """
    numbers, earlier = step.numbers, features[:, None, : step.first]
    cells, n_states, draw = states, step.parts.n_states, first_draw(step.position, "state")
    masses, moved = np.ones((1, 2, len(weights), len(groups))), scores
    if step.states is not None:
        masses = softmax(np.moveaxis(step.states.of(earlier), 2, 0), axis=0)
    if numbers is not None:
        of_numbers = masses[0] * numbers.masses(numbers.lines.of(earlier)[:, :, 0])
        masses = np.concatenate([0.0 * masses[:1], masses[1:], of_numbers])
        cells = np.where(states == 0, n_states + numbers.cells(scores), states)
    of_rows = masses[:, 0, groups, np.arange(len(groups))]
    of_images = (masses[:, 1] * weights[:, None]).sum(axis=1)
    found, stays = maximal_coupling(cells, of_rows, of_images, keys, draw)
    if numbers is not None:
        moved = np.where(stays, scores, numbers.drawn(found - n_states, uniforms(keys, draw + 2)))
    found = np.where(found < n_states, found, 0)
    return np.stack([states, found]), np.stack([scores, moved]), stays


def maximal_coupling(
    cells: np.ndarray, own: np.ndarray, target: np.ndarray, keys: np.ndarray, draw: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return cells with the probabilities `target`, and which rows stay in theirs.

    Rows have their cells with the probabilities `own`, or an unknown one. The others keep their
    rank: what their probabilities exceed the target by is coupled with what the target exceeds
    them by, in the order of the cells. Proof: :ref:`proof-common-part`.
    """
    rows, known = np.arange(len(cells)), cells != UNKNOWN
    stays = known & (uniforms(keys, draw) * own[cells, rows] <= target[cells, rows])
    less = np.maximum(own - target, 0.0)
    more = np.where(known, np.maximum(target - own, 0.0), target).cumsum(axis=0)
    place, running = uniforms(keys, draw + 1), less.cumsum(axis=0)
    ranks = (running[cells, rows] - place * less[cells, rows]) / running[-1]
    found = (more < np.where(known, ranks, place) * more[-1]).sum(axis=0)
    return np.where(stays, cells, found), stays


def fit_conditional(
    columns: list[Column],
    codes: np.ndarray,
    groups: np.ndarray,
    weights: np.ndarray,
    rng: np.random.Generator,
    method: ConditionalRepair,
    fixed: tuple[int, ...] = (),
    callback: Callable[[], object] = lambda: None,
) -> ConditionalMap:
    """Return the sequential conditional repair of a table.

    For true conditional distributions, images are independent of the group. Proof:
    :ref:`proof-conditional-repair`.

    Parameters
    ----------
    columns : list of Column
        The declarations of the columns.
    codes : ndarray of shape (n_rows, n_columns)
        Numbers, NaN where missing; positions of levels and categories, -1 where missing.
    groups : ndarray of shape (n_rows,)
        Numbers of groups; rows of group -1 are not used.
    weights : ndarray of shape (n_groups,)
        Weights of groups, with sum 1.
    method : ConditionalRepair
        Its `tol`, `max_rows` and `coupling`.
    fixed : tuple of int
        Positions of columns that are conditioned on: they come first and are never moved.
    callback : callable
        Called after every column.
    """
    # In random order, since some models are fitted to the first rows alone.
    rows = rng.permutation(np.flatnonzero(groups >= 0))[: method.max_rows or 100_000]
    codes, groups, weights = codes[rows], groups[rows], np.asarray(weights, dtype=np.float64)

    keys = rng.integers(2**63, size=len(groups), dtype=np.uint64)
    order = (*fixed, *(j for j in range(len(columns)) if j not in fixed))
    parts = [fit_parts(columns[j], codes[:, j], groups) for j in order]
    *starts, n_features = np.cumsum([0, *(part.width for part in parts)]).tolist()
    known, read_columns = np.empty((n_features, len(groups))), []
    for position, part, first in zip(order, parts, starts, strict=True):
        place = uniforms(keys, first_draw(position, "place"))
        read_columns.append(read(part, codes[:, position], place))
        part.write_features(known[first : first + part.width], *read_columns[-1])
    # Moving rows costs information, so it must be worth it.
    shared = shared_maps(known.T, groups, len(weights), method.tol)
    maps, n_maps = shared[groups], int(shared.max()) + 1
    folds = deal_folds(maps, rng)
    steps: list[ColumnStep] = []
    every = zip(order, parts, starts, read_columns, strict=True)
    for position, part, first, (states, scores) in every:
        moves, of_states, of_numbers = False, None, None
        if position not in fixed and part.width > 0 and n_maps > 1:
            earlier = known[:first]
            if part.n_states > 1:
                of_states = fit_states(states, earlier, maps, folds, n_maps, part.n_states)
            if part.scale is not None:
                regular = states == 0
                of_numbers = fit_numbers(
                    scores[regular], earlier[:, regular], maps[regular], folds[regular], n_maps
                )
            # A column that does not depend on the group moves with those it depends on.
            differ = any(model.differ for model in (of_states, of_numbers) if model is not None)
            moves = differ or any(step.moves for step in steps)
        last = first + part.width
        steps.append(ColumnStep(position, part, of_states, of_numbers, first, last, moves))
        callback()
    return ConditionalMap(tuple(steps), np.bincount(shared, weights), shared, method.coupling)


def monotone_coupling(
    states: np.ndarray, logits: np.ndarray, groups: np.ndarray, keys: np.ndarray, draw: int
) -> np.ndarray:
    """Return states in every group from one uniform rank: the monotone coupling of an order.

    Changes `logits` in place.
    """
    rows, known = np.arange(len(states)), states != UNKNOWN
    # In place, as these arrays have an entry for each group, state and row.
    logits -= logits.max(axis=1, keepdims=True)
    running = np.exp(logits, out=logits)
    share = running[groups, states, rows]
    np.cumsum(running, axis=1, out=running)
    totals = running[:, -1]
    total = totals[groups, rows]
    # The rank is drawn within the mass of the row's own state; for an unknown one, within all.
    high = np.where(known, running[groups, states, rows], total)
    low = np.where(known, high - share, 0.0)
    ranks = (low + uniforms(keys, draw) * (high - low)) / total
    found = (running[:, :-1] < (ranks * totals)[:, None]).sum(axis=1, dtype=np.int8)
    return _with_own(found, states, groups)


def gumbel_max_coupling(
    states: np.ndarray, logits: np.ndarray, groups: np.ndarray, keys: np.ndarray, draw: int
) -> np.ndarray:
    """Return states without an order in every group, from clocks that groups share.

    In a group with probabilities p, the state is the one with the smallest clock divided by p.
    Clocks are drawn conditionally on the row's own state, and are independent of its group. Changes
    `logits` in place. Proof: :ref:`proof-race`.
    """
    rows, known = np.arange(len(states)), states != UNKNOWN
    n_states = logits.shape[1]
    drawn = -np.log(np.stack([uniforms(keys, draw + j) for j in range(n_states + 1)]))
    first = softmax(logits[groups, :, rows].T, axis=0) * drawn[-1]
    # The own state won: its clock is the first to ring, and the others are memoryless after it.
    clocks = drawn[:-1] + np.where(known, first, 0.0)
    clocks[states[known], rows[known]] = first[states[known], rows[known]]
    logits -= np.log(clocks)
    return _with_own(logits.argmax(axis=1).astype(np.int8), states, groups)


def _with_own(found: np.ndarray, states: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return states in which a row keeps its own state in its own group, despite rounding."""
    # A rank at the end of a state's mass may fall beyond it when it is computed again.
    known = np.flatnonzero(states != UNKNOWN)
    found[groups[known], known] = states[known]
    return found


def shared_maps(features: np.ndarray, groups: np.ndarray, n_groups: int, tol: float) -> np.ndarray:
    """Return the number of a map for each group: groups that no classifier tells apart share one.

    Two groups are told apart if the area under the curve in held-out rows exceeds 0.5 + tol by more
    than chance. Two maps of such groups would differ by errors alone, and so make the groups easier
    to find. A linear classifier is tried first, then boosted trees, on 6000 rows, or on ten for
    each feature and group if that is more.
    """
    shared = np.arange(n_groups)
    if tol <= 0:
        return shared
    if not features.shape[1]:
        # Columns with a single value tell no groups apart.
        return np.zeros_like(shared)
    most = max(6000, 10 * features.shape[1] * n_groups)
    features, groups = features[:most], groups[:most]
    # Penalties of ten rows, and at least ten trees of each group: few rows tell of a small one.
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
    boosted = HistGradientBoostingClassifier(
        max_iter=max(10, 60 // n_groups), max_leaf_nodes=15, early_stopping=False, random_state=0
    )
    found: list[np.ndarray] = []

    def excess(a: Part, b: Part) -> float:
        return max(_excess(scores, groups, a, b) for scores in found) - tol

    for classifier in (linear, boosted):
        found.append(_held_out_scores(classifier, features, groups, n_groups))
        shared = joined(n_groups, excess)
        if shared.max() == n_groups - 1:
            break
    return shared


def joined(n_groups: int, excess: Callable[[Part, Part], float]) -> np.ndarray:
    """Return the number of a map for each group: those that are not told apart share one.

    `excess` says by how much more than errors explain two parts of the groups differ. The parts
    with the least are joined first, until all others have more than 0.
    """
    known, shared = cache(excess), np.empty(n_groups, int)
    parts: list[Part] = [(g,) for g in range(n_groups)]
    while len(parts) > 1:
        nearest = min(combinations(parts, 2), key=lambda pair: known(*pair))
        if known(*nearest) > 0:
            break
        parts = sorted({*parts}.difference(nearest) | {tuple(sorted(sum(nearest, ())))})
    for place, part in enumerate(parts):
        shared[list(part)] = place
    return shared


def _held_out_scores(
    classifier: Any, features: np.ndarray, groups: np.ndarray, n_groups: int
) -> np.ndarray:
    """Return the probabilities of groups for all rows, each by a classifier of other rows."""
    parts, scores = np.arange(len(groups)) % 3, np.zeros((len(groups), n_groups))
    for part in range(3):
        trained, tested = parts != part, parts == part
        if tested.any() and len(np.unique(groups[trained])) > 1:
            known = features[trained], groups[trained]
            scores[tested] = group_probabilities(classifier, known, features[tested], n_groups)
    return scores


def _excess(scores: np.ndarray, groups: np.ndarray, a: Part, b: Part) -> float:
    """Return by how much the AUC of two parts of the groups exceeds 1/2, less what chance explains.

    That is 1.5 standard errors, and 2.5 if one has fewer than 47 rows: a map of so few does harm.
    """
    of_a, of_b = (scores[:, list(part)].sum(axis=1) for part in (a, b))
    ratio = of_a / np.maximum(of_a + of_b, 1e-300)
    x, y = (ratio[np.isin(groups, part)] for part in (b, a))
    if not len(x) or not len(y):
        return 0.0
    error = np.sqrt((len(x) + len(y) + 1) / (12 * len(x) * len(y)))
    few_rows, few_errors, n_errors = 47, 2.5, 1.5
    by_chance = few_errors if min(len(x), len(y)) < few_rows else n_errors
    return area(x, y) - 0.5 - by_chance * float(error)


def group_probabilities(
    classifier: Any, train: tuple[np.ndarray, np.ndarray], rows: np.ndarray, n_groups: int
) -> np.ndarray:
    """Return the probabilities of all groups for rows, by a classifier of other rows."""
    fitted = clone(classifier).fit(*train)
    found = np.zeros((len(rows), n_groups))
    # A group without rows to train with is never found.
    found[:, fitted.classes_] = fitted.predict_proba(rows)
    return found


def area(x: np.ndarray, y: np.ndarray) -> float:
    """Return the area under the curve of scores x of negative rows, and y of positive ones."""
    x = np.sort(x)
    below, upto = (np.searchsorted(x, y, side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(x)))


def max_gap(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest difference between the shares of two samples at or below a number.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._conditional import max_gap
    >>> max_gap(np.array([1.0, 2.0]), np.array([1.5, 3.0]))
    0.5
    """
    # Distribution functions of samples differ most at one of their values.
    values = np.unique(np.concatenate([x, y]))
    shares = [np.searchsorted(np.sort(s), values, side="right") / len(s) for s in (x, y)]
    return float(np.abs(shares[0] - shares[1]).max())


# ----------------------------------------------------------- who finds the groups of other rows


def harm_by_chance(groups: np.ndarray) -> float:
    """Return by how much the AUC in new rows may be above that without a repair: by chance.

    It is .01, and half of the standard error of an AUC. With .01 alone, compas was left as it was
    in one of two splits of 2,000 rows, although its repair helps.
    """
    sizes = np.bincount(groups[groups >= 0])
    rows = sum(a * b / (a + b) for a, b in combinations(sizes[sizes > 0], 2))
    return 0.01 + 0.5 / math.sqrt(12 * max(rows, 1.0))


def found_in(
    before: Split, after: Split, groups: Split, columns: list[Column], n_groups: int, seed: int
) -> tuple[float, float]:
    """Return how well groups are found in a table before a repair, and after it."""
    pairs = (found_pairs(of, groups, columns, n_groups, seed) for of in (before, after))
    return mean_found(next(pairs)), mean_found(next(pairs))


def mean_found(pairs: Iterable[FoundPair]) -> float:
    """Return the mean AUC of pairs of groups, each by the rows that tell of it; 1/2 without any."""
    best: dict[tuple[int, int], tuple[float, float]] = {}
    for pair, found, _, (n, m) in pairs:
        seen = found, 1 / (1 / n + 1 / m)
        best[pair] = max(best.get(pair, seen), seen)
    found, rows = np.transpose(list(best.values()) or [(0.5, 1.0)])
    return float(np.average(found, weights=rows))


def found_pairs(
    codes: Split, groups: Split, columns: list[Column], n_groups: int, seed: int
) -> Iterator[FoundPair]:
    """Yield how well classifiers tell each pair of groups apart in their second rows.

    These know the first rows. One gets all columns, and one also differences and ratios.
    """
    labelled = np.array([column.kind != NUMERIC for column in columns])
    # Missing and unknown labels are NaN, like missing numbers.
    known, new = (np.where(labelled & (rows < 0), np.nan, rows) for rows in codes)
    # It takes no more categories; they are numbers then.
    categorical = [column.kind == NOMINAL and len(column.values) <= 255 for column in columns]
    booster = HistGradientBoostingClassifier(early_stopping=False, max_iter=50, random_state=seed)
    # In fewer than two leaves of the default size, boosting would find nothing.
    booster.set_params(min_samples_leaf=min(max(len(groups[0]) // 4, 2), 20))
    present = np.unique(groups[1]).tolist()
    for fitted, tested in ((known, new), _with_pairs(known, new, np.flatnonzero(~labelled))):
        # Gradient boosting fails for a column without any value, which tells nothing.
        fitted[:, np.isnan(fitted).all(axis=0)] = 0.0
        further = [False] * (fitted.shape[1] - len(categorical))
        booster.set_params(categorical_features=categorical + further)
        probabilities = group_probabilities(booster, (fitted, groups[0]), tested, n_groups)
        for a, b in combinations(present, 2):
            of_a, of_b = probabilities[:, a], probabilities[:, b]
            both = of_a + of_b
            ratio = np.divide(of_a, both, out=np.full(len(both), 0.5), where=both > 0)
            for scores in [ratio] if n_groups == 2 else [ratio, of_a, of_b]:
                x, y = (scores[groups[1] == g] for g in (a, b))
                # A score that is always wrong tells groups apart as well as one that is right.
                found = max(area(x, y), 1.0 - area(x, y))
                yield (a, b), found, max_gap(x, y), (len(x), len(y))


def _with_pairs(
    known: np.ndarray, new: np.ndarray, numbers: np.ndarray, *, most_pairs: int = 15
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with differences and ratios of the numbers that depend on each other most.

    Boosting compares a column with constants, not with another column. A repair that breaks what
    holds between two columns is found by these.
    """
    if len(numbers) < 2:
        return known, new
    ranks = rankdata(np.nan_to_num(known[:, numbers]), axis=0)
    with np.errstate(all="ignore"):
        # Of a column without different values there is none.
        dependence = np.triu(np.abs(np.nan_to_num(np.corrcoef(ranks, rowvar=False))), 1)
    most = np.argsort(-dependence, axis=None, kind="stable")[:most_pairs]
    first, second = (numbers[place] for place in np.unravel_index(most, dependence.shape))

    def widened(rows: np.ndarray) -> np.ndarray:
        x, y = rows[:, first], rows[:, second]
        with np.errstate(all="ignore"):
            return np.column_stack([rows, x - y, np.where(y == 0, np.nan, x / y)])

    return widened(known), widened(new)
