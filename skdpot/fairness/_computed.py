"""Columns that are functions of others: a repair leaves them out, and computes them from its rows.

If it moved both sides, the function would hold for the rows that stay and fail for those that move.
The broken function would show the group better than the column itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np
from scipy.stats import rankdata
from scipy.stats.contingency import crosstab

from skdpot._base import warn_user
from skdpot.fairness._conditional_models import least_decimals
from skdpot.privacy.checks import to_display
from skdpot.tables import NUMERIC, Column, column_index, simplest_number

_Function = partial[np.ndarray]
# A function of one number or of two.
_Term = Callable[..., np.ndarray]
# The share of rows that a function must explain, and the correlation that it must have. The square
# of that is the share of the variance: with .999 of it, a total that is nearly a product was found
# in half of the samples of 500 rows, and in the others its repair showed the group.
_EXPLAINED = 0.999


@dataclass(frozen=True, eq=False)
class ComputedColumn:
    """A column, and how it is computed from others.

    Attributes
    ----------
    position : int
        Its place in the table.
    of : tuple of int
        The places of the columns that it is a function of.
    function : partial
        Takes these columns as codes, and returns the codes of this one.
    text : str
        The function in words.
    decimals : int
        Number of decimals that values are rounded to.
    is_exact : bool
        Whether values differ from the function by rounding alone. Otherwise a row keeps its
        difference.
    has_gaps : bool
        Whether values are missing where the function has some. Then it is moved which are.
    """

    position: int
    of: tuple[int, ...]
    function: _Function
    text: str
    decimals: int = 15
    is_exact: bool = True
    has_gaps: bool = False

    def values(self, codes: np.ndarray) -> np.ndarray:
        """Return this column, computed from others."""
        with np.errstate(all="ignore"):
            return np.round(self.function([codes[:, j] for j in self.of]), self.decimals)

    def updated(self, codes: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return this column for rows with new codes, which had others before.

        A row keeps its value if no argument has changed, or if there is no result. With gaps, the
        codes of this column tell where they are now.
        """
        found, own = self.values(codes), before[:, self.position]
        if not self.is_exact:
            off = own - self.values(before)
            found = np.round(found + np.where(np.isfinite(off), off, 0.0), self.decimals)
        now, then = codes[:, list(self.of)], before[:, list(self.of)]
        same = ((now == then) | (np.isnan(now) & np.isnan(then))).all(axis=1)
        has_result = np.isfinite(found) | np.isnan(now).any(axis=1)
        is_new = (has_result & ~same) | (self.has_gaps & np.isnan(own))
        is_gap = self.has_gaps & np.isnan(codes[:, self.position])
        return np.where(is_gap, np.nan, np.where(is_new, found, own))


# --------------------------------------------------------------------- functions that are declared


def read_computed(declared: Any, columns: list[Column]) -> tuple[ComputedColumn, ...]:
    """Return declared functions in the order of their computation, or raise."""
    remedy = (
        "computed has a formula of other numeric columns for each numeric column that is computed, "
        "such as {'ratio': 'loan / price'}, in an order in which they can be computed."
    )
    numbers = [j for j, column in enumerate(columns) if column.kind == NUMERIC]
    found: list[ComputedColumn] = []
    waiting: list[Any] = [column_index(key, columns) for key in declared]
    if not all(place in numbers for place in waiting):
        raise ValueError(
            f"{remedy} The numeric columns of X are {[columns[j].name for j in numbers]}."
        )
    for place, formula in zip(waiting, declared.values(), strict=True):
        of = tuple(j for j in numbers if j not in waiting[len(found) :])
        names = [str(columns[j].name) for j in of]
        function = partial(_evaluated, formula=formula, names=names)
        try:
            # On two rows that are made up: no value of X is read.
            function([np.ones(2)] * len(of))
        except Exception as error:
            raise ValueError(
                f"{remedy} {to_display(formula)} cannot be evaluated with the columns {names}: "
                f"{type(error).__name__}: {error}."
            ) from error
        found.append(ComputedColumn(place, of, function, f"{columns[place].name} = {formula}"))
    return tuple(found)


def warn_of_false(computed: tuple[ComputedColumn, ...], codes: np.ndarray) -> None:
    """Warn of functions that more than 5 % of the rows, which are not private, break.

    Those that are found, and hold but for differences that rows keep, are not told.
    """
    for column in computed:
        own, most = codes[:, column.position], 0.05
        wrong = _differ(own, column.values(codes), least_decimals(own)).mean()
        if wrong > most and column.is_exact:
            warn_user(f"computed: {column.text} is wrong for {wrong:.0%} of the rows. Correct it.")


def _differ(own: np.ndarray, found: np.ndarray, decimals: int) -> np.ndarray:
    """Tell where values differ by more than rounding."""
    # The last digit, and rounding of values that were written in single precision.
    unit = 0.51 * 10.0**-decimals if decimals < 15 else 0.0
    return np.abs(own - found) > unit + 1e-6 * np.abs(own)


def _evaluated(arguments: list[np.ndarray], *, formula: str, names: list[str]) -> np.ndarray:
    """Return the value of a formula of columns for each row."""
    import pandas as pd

    frame = pd.DataFrame(dict(zip(names, arguments, strict=True)))
    found = frame.eval(formula, engine="python", local_dict={}, global_dict={})
    return np.asarray(found, dtype=np.float64).reshape(len(frame))


# ------------------------------------------------------------------------ functions that are found


def find_computed(
    columns: list[Column], codes: np.ndarray, rng: np.random.Generator, fixed: tuple[int, ...] = ()
) -> tuple[ComputedColumn, ...]:
    """Return the columns that are functions of others, in an order in which to compute them.

    Half of the rows are used to find functions, and the others to check them. The last columns are
    tried first, as tables mostly put a ratio or a sum after what it is made of. `fixed` columns are
    none.
    """
    # More rows hardly tell more of a function, and take longer.
    rows = rng.permutation(len(codes))[:2000]
    # Anything is a function of anything in a few rows.
    if len(rows) < 30:
        return ()
    fitted, checked = codes[rows[len(rows) // 2 :]], codes[rows[: len(rows) // 2]]
    names = [str(column.name) for column in columns]
    numbers = [j for j, column in enumerate(columns) if column.kind == NUMERIC]
    terms = _terms(numbers)
    with np.errstate(all="ignore"):
        scores = np.array([of(*fitted.T[list(places)]) for places, of in terms])
    scores, may_be_steps = scores.reshape(len(terms), len(fitted)), _may_be_steps(fitted)
    standard = _standardised(scores)
    found: list[ComputedColumn] = []
    for target in reversed(range(len(columns))):
        values, left = fitted[:, target], {target} | {column.position for column in found}
        # A column without different values is a function of all, and is never moved.
        if target in fixed or len(np.unique(values[np.isfinite(values)])) < 2:
            continue
        others = set(numbers) - left if target in numbers else set()
        # Where a value is missing, a function of others may have one.
        known = ~np.isnan(values)
        of_known = standard if known.all() else _standardised(scores[:, known])
        dependence = np.abs(of_known @ _standardised(values[known]))
        may = may_be_steps if known.all() else _may_be_steps(fitted[known])
        candidates = [
            _line_of(fitted, target, *terms[i], names)
            for i in np.flatnonzero(dependence > _EXPLAINED)
            if others.issuperset(terms[i][0])
        ]
        candidates += _sums(fitted, target, sorted(others), names)
        candidates += [
            ((j,), _steps(fitted[:, j], values), f"a function of {names[j]}")
            for j in np.flatnonzero(may[:, target]).tolist()
            if j not in left
        ]
        decimals = least_decimals(codes[rows, target])
        drafts = (ComputedColumn(target, *each, decimals) for each in candidates)
        held = [_checked(draft, checked, columns[target]) for draft in drafts]
        # What a function misses may be another column, which a repair moves: the nearest is best.
        best = min(filter(None, held), key=partial(_error, fitted), default=None)
        if best is None:
            continue
        if best.function.func is _looked_up:
            steps = _steps(codes[:, best.of[0]], codes[:, target])
            best = replace(best, function=steps, is_exact=True)
        found.append(best)
    return tuple(reversed(found))


def _over_square(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x / y**2


# Functions of one number and of two, each with a weight and a constant.
_OF_ONE = (np.positive, np.log, np.log1p, np.sqrt, np.square, np.exp)
_OF_TWO = {np.multiply: "{} * {}", np.divide: "{} / {}", _over_square: "{} / {}**2"}


def _terms(numbers: list[int], *, most_columns: int = 40) -> list[tuple[tuple[int, ...], _Term]]:
    """Return functions of one number and of two; pairs are of the first `most_columns`."""
    few = numbers[:most_columns]
    terms: list[Any] = [((j,), of) for of in _OF_ONE for j in numbers]
    terms += [(pair, np.multiply) for pair in combinations(few, 2)]
    terms += [(pair, of) for of in (np.divide, _over_square) for pair in permutations(few, 2)]
    return terms


def _standardised(values: np.ndarray) -> np.ndarray:
    """Return values of length 1 about their mean, with 0 for those that are not finite."""
    known = np.isfinite(values)
    options: dict[str, Any] = {"axis": -1, "keepdims": True}
    values = np.where(known, values, 0.0)
    # Scaled first, so that no square overflows.
    scaled = values / np.maximum(np.abs(values).max(initial=0.0, **options), 1e-300)
    means = scaled.sum(**options) / np.maximum(known.sum(**options), 1)
    centred = np.where(known, scaled - means, 0.0)
    return centred / np.maximum(np.linalg.norm(centred, **options), 1e-300)


def _line_of(
    codes: np.ndarray, target: int, places: tuple[int, ...], of: _Term, names: list[str]
) -> tuple[tuple[int, ...], _Function, str]:
    """Return the line through numbers, or through one function of them, also in words."""
    with np.errstate(all="ignore"):
        terms = np.column_stack(_parts(codes.T[list(places)], of))
    weights, constant = _line(terms, codes[:, target])
    form = _OF_TWO.get(of, f"{of.__name__}({{}})")
    named = [names[j] for j in places]
    pairs = zip(named if of is np.positive else [form.format(*named)], weights, strict=True)
    parts = [term if weight == 1 else f"{weight:.6g} * {term}" for term, weight in pairs]
    text = " + ".join(parts + [f"{constant:.6g}"] * (constant != 0)).replace("+ -", "- ")
    return places, partial(_weighted, of=of, weights=weights, constant=constant), text


def _sums(
    codes: np.ndarray, target: int, numbers: list[int], names: list[str]
) -> list[tuple[tuple[int, ...], _Function, str]]:
    """Return the weighted sum of as few numbers as explain the target, if there is one."""
    known = np.isfinite(codes[:, [target, *numbers]]).all(axis=1)
    table, values, chosen = codes[known], codes[known, target], list(numbers)
    # With hardly more rows than columns any target is a sum of them.
    if known.sum() < 3 * len(numbers) + 10 or len(numbers) < 2:
        return []

    def left(places: list[int]) -> float:
        weights, constant = _line(table[:, places], values)
        off = np.square(values - constant - table[:, places] @ weights)
        return float(np.sort(off)[: int(0.9 * len(off))].mean())

    exact = left(chosen)
    if exact > 0.001 * np.var(values):
        return []
    for j in numbers:
        fewer = [k for k in chosen if k != j]
        if fewer and left(fewer) <= max(1.1 * exact, 1e-9 * np.var(values)):
            chosen = fewer
    return [_line_of(table, target, tuple(chosen), np.positive, names)]


def _weighted(
    arguments: list[np.ndarray], *, of: _Term, weights: np.ndarray, constant: float
) -> np.ndarray:
    """Return a weighted sum of the arguments, or of one function of them all."""
    parts = zip(weights, _parts(arguments, of), strict=True)
    return constant + sum(weight * part for weight, part in parts)


def _parts(arguments: Any, of: _Term) -> Any:
    """Return the terms of a sum: numbers, or one function of them."""
    return arguments if of is np.positive else [of(*arguments)]


def _line(terms: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """Return weights of terms and a constant by least squares, as round as they may be."""
    known = np.isfinite(terms).all(axis=1) & np.isfinite(values)
    table, values = np.column_stack([terms[known], np.ones(known.sum())]), values[known]
    # Scaled, since terms may have any units.
    scale = np.abs(table).max(axis=0, initial=1e-300)
    kept = np.ones(len(values), dtype=bool)
    for _ in range(4):
        found = np.linalg.lstsq(table[kept] / scale, values[kept], rcond=None)[0] / scale
        off = np.abs(values - table @ found)
        # Rows that are far off are exceptions, such as a total that is cut off.
        kept = off <= 6 * np.median(off) + 1e-9 * np.abs(values).max(initial=0.0)
    table, values = table[kept], values[kept]
    # Rounded values move weights by little: a round weight that fits as well is meant.
    most = 1.05 * np.square(values - table @ found).sum() + 1e-18 * (values @ values)
    # All together first, since an error of one is made up for by others.
    for rounded in (slice(None), *range(len(found))):
        for digits in range(7):
            rounder = found.copy()
            rounder[rounded] = np.round(found[rounded], digits)
            if np.square(values - table @ rounder).sum() <= most:
                found = rounder
                break
    return found[:-1], float(found[-1])


def _may_be_steps(codes: np.ndarray, *, most_changes: float = 0.2) -> np.ndarray:
    """Tell which columns (rows of the result) may have others (its columns) as step functions.

    Along the rows in the order of the first, the second may hardly change where the first does not,
    and elsewhere at a share of the rows up to `most_changes`. So it may be a band, a copy of a
    category, or the label of a number.
    """
    filled = _keys(codes)
    may = np.zeros((codes.shape[1], codes.shape[1]), dtype=bool)
    for j, keys in enumerate(filled.T):
        rows = filled[np.argsort(keys, kind="stable")]
        changes = rows[1:] != rows[:-1]
        within = (changes & ~changes[:, [j]]).mean(axis=0)
        may[j] = (within <= 0.001) & (changes.mean(axis=0) <= most_changes)
    return may


def _steps(argument: np.ndarray, values: np.ndarray) -> _Function:
    """Return the step function with the most frequent value for each argument."""
    # A value that is missing where the argument is known is a gap, and no value of the function.
    kept = ~(np.isnan(values) & np.isfinite(argument))
    (keys, codes), counts = crosstab(_keys(argument[kept]), values[kept])
    most = counts.argmax(axis=1)
    first = np.flatnonzero(np.diff(most, prepend=-1))
    starts, low = keys[first], keys[np.maximum(first - 1, 0)]
    # A step between two arguments is at the simplest number there: 30, not 29.7.
    inner = np.isfinite(low) & (first > 0)
    starts[inner] = -simplest_number(-starts[inner], -low[inner])
    return partial(_looked_up, starts=starts, values=codes[most[first]])


def _looked_up(
    arguments: list[np.ndarray], *, starts: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Return the value of the step in which each number is."""
    place = np.searchsorted(starts, _keys(arguments[0]), side="right") - 1
    return values[np.maximum(place, 0)]


def _keys(argument: np.ndarray) -> np.ndarray:
    """Return numbers in which a missing value is below all others."""
    return np.where(np.isnan(argument), -np.inf, argument)


def _error(rows: np.ndarray, one: ComputedColumn) -> float:
    """Return by how much a function misses rows, in the middle: not at all if it is exact."""
    off = np.abs(one.values(rows) - rows[:, one.position])
    return 0.0 if one.is_exact else float(np.nanmedian(off))


def _checked(draft: ComputedColumn, rows: np.ndarray, column: Column) -> ComputedColumn | None:
    """Return the draft of a column if its function holds for rows that it was not found from.

    It must be right for 95 % of the rows, or explain nearly all variance, of values and of their
    ranks: a few large values explain nearly all variance of heavy tails, but not that of ranks. One
    value of few must be right for 99 % of the rows that do not have the most frequent one: others
    may lie in bands that no row has shown.
    """
    own, found = rows[:, draft.position], draft.values(rows)
    both, gaps = np.isfinite(own) & np.isfinite(found), np.isnan(own) & np.isfinite(found)
    if np.mean(np.isfinite(own) & ~both) > 1 - _EXPLAINED or both.sum() < 10:
        return None
    has_gaps = bool(gaps.mean() > 1 - _EXPLAINED)
    own, found = own[both], found[both]
    errors = _differ(own, found, draft.decimals)
    counts = np.unique(own, return_counts=True)[1]
    if len(counts) <= min(50, len(own) / 4) or column.kind != NUMERIC:
        # Of a value that nearly all rows have, there must be exceptions that are told.
        rare = len(own) - counts.max()
        holds = rare >= 5 and errors.sum() <= 0.01 * rare
    else:
        pairs = ((own, found), (rankdata(own), rankdata(found)))
        explained = all(np.var(x - y) <= (1 - _EXPLAINED**2) * np.var(x) for x, y in pairs)
        # Or it is right for nearly all rows, and the others are exceptions.
        holds = explained or errors.mean() <= 0.05
    is_exact = bool(errors.mean() <= 1 - _EXPLAINED)
    text = f"{column.name} = {draft.text}" + ", or missing" * has_gaps
    return replace(draft, text=text, is_exact=is_exact, has_gaps=has_gaps) if holds else None
