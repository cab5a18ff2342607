"""The sequential conditional repair of a table, and its fit."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from joblib import Parallel, delayed

from skdpot.fairness._conditional._coupling import along_the_order, by_a_race
from skdpot.fairness._conditional._gate import groups_are_told_apart
from skdpot.fairness._conditional._moments import deal_folds
from skdpot.fairness._conditional._numbers import NumberModel, fit_numbers
from skdpot.fairness._conditional._parts import UNKNOWN, Parts, fit_parts
from skdpot.fairness._conditional._products import Block, Linear, blocks_of, evaluate, stacked
from skdpot.fairness._conditional._states import StateModel, fit_states
from skdpot.fairness._row_draws import DRAWS_PER_COLUMN, Draws, mixed
from skdpot.tables import Column

# Images are always computed for this number of rows at a time. The rounding of a matrix product
# depends on its shape, and the image of a row must not depend on the other rows. The number is
# divisible by the block sizes of BLAS kernels, so that the position of a row does not matter.
_CHUNK = 1536
# Default of the number of rows that a fit uses at most.
MAX_ROWS = 100_000
# Moved rows are moved a second time if an AUC exceeds 0.5 by more than this.
_STILL_FOUND = 0.02
# Changes the keys of rows for the second time.
_OTHER_KEYS = np.uint64(0x5851F42D4C957F2D)
# Random numbers of a column: a place in the cell, a rank, and those of its state.
_PLACE, _RANK, _STATE = range(3)


@dataclass(frozen=True, eq=False)
class Step:
    """One column of the sequence.

    Attributes
    ----------
    position : int
        Its place in the table.
    parts : Parts
    states : StateModel or None
    numbers : NumberModel or None
    first, last : int
        Its features among those of all columns.
    moves : bool
        Whether any row may get another value.
    """

    position: int
    parts: Parts
    states: StateModel | None
    numbers: NumberModel | None
    first: int
    moves: bool

    @property
    def last(self) -> int:
        """Return the end of its features."""
        return self.first + self.parts.width

    def linear(self) -> Linear:
        """Return the linear functions of its models: logits of states, then means of scores."""
        found = [] if self.states is None else [self.states.linear()]
        return stacked(found if self.numbers is None else [*found, self.numbers.lines.linear()])

    def draw(self, number: int) -> int:
        """Return the number of one of this column's random draws."""
        return 1 + self.position * DRAWS_PER_COLUMN + number


@dataclass(frozen=True, eq=False)
class ConditionalMap:
    """A repair of tables, column by column.

    Attributes
    ----------
    steps : tuple of Step
        The columns, in the order of the sequence.
    weights : ndarray of shape (n_groups,)
        Weights of groups.
    then : ConditionalMap or None
        A second map, which is applied to the images.
    """

    steps: tuple[Step, ...]
    weights: np.ndarray
    then: "ConditionalMap | None" = None

    @property
    def moves(self) -> bool:
        """Tell whether any row may get another value."""
        return any(step.moves for step in self.steps)

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, n_jobs: int | None = None
    ) -> np.ndarray:
        """Return the images of rows; randomness depends on their keys.

        Rows of group -1 are not changed. `n_jobs` threads work on parts of the rows.
        """
        images = np.array(codes, dtype=np.float64)
        rows = np.flatnonzero(groups >= 0)
        if not self.moves:
            return images
        parts = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
        found = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(self._images)(codes[whole], groups[whole], keys[whole])
            for whole in (np.resize(part, _CHUNK) for part in parts)
        )
        for part, moved in zip(parts, found, strict=True):
            images[part] = moved[: len(part)]
        if self.then is None:
            return images
        return self.then.images(images, groups, mixed(keys ^ _OTHER_KEYS), n_jobs)

    @cached_property
    def _blocks(self) -> list[Block]:
        """Return the linear functions of the columns that are moved, in blocks."""
        return blocks_of([step.linear() for step in self.steps if step.moves])

    # Threads do not inherit the caller's np.errstate.
    @np.errstate(all="ignore")
    def _images(self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray) -> np.ndarray:
        images, draws = np.array(codes, dtype=np.float64), Draws(keys)
        # Features of the rows' images in every group, filled in column by column.
        features = np.empty((len(self.weights), self.steps[-1].last, len(codes)))
        linear = evaluate(self._blocks, features)
        for step in self.steps:
            column = np.ascontiguousarray(images[:, step.position])
            place = draws.uniforms(step.draw(_PLACE))
            states, scores = read(step.parts, column, place)
            if step.moves:
                states, scores = _moved(step, states, scores, features, next(linear), groups, draws)
                combined = step.parts.combined(states, scores, self.weights)
                images[:, step.position] = step.parts.resolved(combined, column, place)
            step.parts.write_features(features[:, step.first : step.last], states, scores)
        return images


def read(parts: Parts, codes: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return states and scores of values; scores of other values than regular numbers are NaN."""
    states, scores = parts.states(codes), np.full(len(codes), np.nan)
    if parts.scale is not None:
        regular = states == 0
        spread = parts.scale.spread(codes[regular], place[regular])
        scores[regular] = parts.scale.score(spread)
    return states, scores


def _moved(
    step: Step,
    states: np.ndarray,
    scores: np.ndarray,
    features: np.ndarray,
    linear: np.ndarray,
    groups: np.ndarray,
    draws: Draws,
) -> tuple[np.ndarray, np.ndarray]:
    """Return states and scores of rows in every group."""
    in_groups = np.zeros((len(features), len(states)), dtype=np.int8)
    if step.states is not None:
        in_groups = _coupled(step, states, linear[:, : step.parts.n_states], groups, draws)
    if step.numbers is None:
        return in_groups, np.full(in_groups.shape, np.nan)
    ranks = draws.uniforms(step.draw(_RANK))
    return in_groups, step.numbers.move(scores, linear[:, -1], features, groups, ranks)


def _coupled(
    step: Step, states: np.ndarray, logits: np.ndarray, groups: np.ndarray, draws: Draws
) -> np.ndarray:
    """Return coupled states of rows in every group, along their order if they have one."""
    order = step.parts.order
    if order is None:
        return by_a_race(states, logits, groups, draws, step.draw(_STATE))
    if step.parts.scale is None:
        return along_the_order(states, logits, groups, draws, step.draw(_STATE))
    # The last entry is for rows with an unknown state.
    ranks = np.append(np.argsort(order), UNKNOWN)
    coupled = along_the_order(ranks[states], logits[:, order], groups, draws, step.draw(_STATE))
    return order[coupled]


def fit_conditional(
    columns: list[Column],
    codes: np.ndarray,
    groups: np.ndarray,
    weights: np.ndarray,
    rng: np.random.Generator,
    *,
    fixed: tuple[int, ...] = (),
    tol: float = 0.02,
    max_rows: int = MAX_ROWS,
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
    fixed : tuple of int
        Positions of columns that are conditioned on: they come first and are never moved.
    tol : float
        Nothing is moved if no classifier tells a group of held-out rows from the others by an area
        under the curve that is above 0.5 + tol, by more than chance. 0 moves whatever is found.
    max_rows : int
        Maximum number of rows, drawn at random.
    callback : callable
        Called after every column.
    """
    rows = rng.permutation(np.flatnonzero(groups >= 0))[:max_rows]
    codes, groups = codes[rows], groups[rows]
    first = _fit_sequence(columns, codes, groups, weights, rng, fixed, tol, callback)
    if not first.moves:
        return first
    keys = rng.integers(2**63, size=len(rows), dtype=np.uint64)
    images = first.images(codes, groups, keys)
    tol = max(tol, _STILL_FOUND)
    second = _fit_sequence(columns, images, groups, weights, rng, fixed, tol, callback)
    return replace(first, then=second) if second.moves else first


def _fit_sequence(
    columns: list[Column],
    codes: np.ndarray,
    groups: np.ndarray,
    weights: np.ndarray,
    rng: np.random.Generator,
    fixed: tuple[int, ...],
    tol: float,
    callback: Callable[[], object],
) -> ConditionalMap:
    """Return the map of one pass over the columns; the identity if no group is found."""
    folds = deal_folds(groups, rng)
    keys = rng.integers(2**63, size=len(groups), dtype=np.uint64)
    free = [j for j in range(len(columns)) if j not in fixed]
    parts = [fit_parts(columns[j], codes[:, j], groups) for j in range(len(columns))]
    known = np.empty((sum(part.width for part in parts), len(groups)))
    draws, first = Draws(keys), 0
    steps: list[Step] = []
    for position in (*fixed, *free):
        is_free, part = position not in fixed, parts[position]
        place = draws.uniforms(1 + position * DRAWS_PER_COLUMN + _PLACE)
        states, scores = read(part, codes[:, position], place)
        state_model, number_model = None, None
        moved_before = any(step.moves for step in steps)
        if is_free:
            earlier = known[:first]
            if part.n_states > 1:
                state_model = fit_states(
                    states, earlier, groups, folds, len(weights), part.n_states
                )
            if part.scale is not None:
                rows = states == 0
                number_model = fit_numbers(
                    scores[rows], earlier[:, rows], groups[rows], folds[rows], len(weights)
                )
        differs = any(model is not None and model.differs for model in (state_model, number_model))
        moves = is_free and part.width > 0 and (differs or moved_before)
        steps.append(Step(position, part, state_model, number_model, first, moves))
        part.write_features(known[first : first + part.width], states, scores)
        first += part.width
        callback()
    if any(step.moves for step in steps) and not groups_are_told_apart(known.T, groups, tol):
        steps = [replace(step, moves=False) for step in steps]
    return ConditionalMap(tuple(steps), np.asarray(weights, dtype=np.float64))
