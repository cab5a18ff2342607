"""Linear functions of features that become known one column at a time, evaluated in blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# A block of columns ends when it has this many features.
_BLOCK = 48


@dataclass(frozen=True, eq=False)
class Linear:
    """The linear functions of one column.

    Attributes
    ----------
    intercepts : ndarray of shape (n_groups, n_functions)
    slopes : ndarray of shape (n_groups or 1, n_functions, n_features)
        Slopes, a single one if groups share them.
    """

    intercepts: np.ndarray
    slopes: np.ndarray


@dataclass(frozen=True, eq=False)
class Block:
    """Columns whose functions of all earlier features are evaluated together.

    Attributes
    ----------
    first : int
        Where their features begin.
    before : Linear
        Their functions of features before.
    within : list of ndarray of shape (n_groups or 1, n_functions, n_features)
        For each column the slopes of features since.
    """

    first: int
    before: Linear
    within: list[np.ndarray]


def blocks_of(columns: Sequence[Linear]) -> list[Block]:
    """Return blocks of consecutive columns, each with more features than the block before."""
    blocks: list[Block] = []
    members: list[Linear] = []
    for column in columns:
        if members and column.slopes.shape[2] - members[0].slopes.shape[2] > _BLOCK:
            blocks.append(_block(members))
            members = []
        members.append(column)
    return [*blocks, _block(members)] if members else blocks


def _block(members: list[Linear]) -> Block:
    first = members[0].slopes.shape[2]
    before = stacked([Linear(one.intercepts, one.slopes[:, :, :first]) for one in members])
    within = [np.ascontiguousarray(one.slopes[:, :, first:]) for one in members]
    return Block(first, before, within)


def stacked(functions: Sequence[Linear]) -> Linear:
    """Return functions of the same features, combined into one."""
    n_groups = max(len(one.slopes) for one in functions)
    slopes = [np.broadcast_to(one.slopes, (n_groups, *one.slopes.shape[1:])) for one in functions]
    return Linear(np.hstack([one.intercepts for one in functions]), np.concatenate(slopes, axis=1))


def evaluate(blocks: Sequence[Block], features: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the functions of each column in turn, of shape (n_groups, n_functions, n_rows).

    `features`, of shape (n_groups, n_features, n_rows), may be written after each step, up to the
    end of the next column's features.
    """
    for block in blocks:
        before = np.matmul(block.before.slopes, features[:, : block.first])
        before += block.before.intercepts[:, :, None]
        start = 0
        for slopes in block.within:
            end = start + slopes.shape[1]
            found = before[:, start:end]
            if slopes.shape[2]:
                found += np.matmul(slopes, features[:, block.first : block.first + slopes.shape[2]])
            yield found
            start = end
