"""Options of the sequential conditional repair."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ConditionalOptions:
    """The choices of a fit.

    Attributes
    ----------
    fixed : tuple of int
        Positions of columns that are conditioned on: they come first and are never moved.
    tol : float
        Nothing is moved if no classifier tells a group of held-out rows from the others by an area
        under the curve that is above 0.5 + tol, by more than chance. 0 moves whatever is found.
    max_rows : int
        A fit uses at most so many rows, drawn at random.
    """

    fixed: tuple[int, ...] = ()
    tol: float = 0.02
    max_rows: int = 100_000
