"""Steps of barycenter methods: questions, answers of groups, and their sums.

A method is written once, as a generator: it yields steps and is sent the sums of all groups'
answers. `drive` lets groups of one process answer; in rounds of owners every group stays with its
owner, and the coordinator adds up.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from ._placed_points import PlacedPoints

_EPS = float(np.finfo(np.float64).eps)

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Step:
    """A question for all groups, and the known facts about its answers.

    Attributes
    ----------
    kind : str
        The name of the step.
    arrays : dict of str to ndarray
        Its arguments.
    size : int
        Length of each group's answer.
    largest : float
        No entry of an answer, and none of the sum of all answers, is larger in absolute value, if
        points are within the declared bounds. Infinite if no bounds are declared.
    """

    kind: str
    arrays: Arrays
    size: int
    largest: float


_Result = TypeVar("_Result")
Rounds = Generator[Step, np.ndarray, _Result]


@dataclass(eq=False)
class Exchange:
    """The end of the line at which steps are made, counted, and their sums checked."""

    # No cost or coordinate is larger, if points are within the declared bounds.
    largest_cost: float = math.inf
    largest_coordinate: float = math.inf
    # Largest error of sums of the answers, in units of `Step.largest`.
    resolution: float = 0.0
    n_rounds: int = 0
    # The part of the last sum that groups learn with the next step.
    news: Arrays = field(default_factory=dict)

    def ask(self, kind: str, size: int, largest: float, **arrays: np.ndarray) -> Rounds[np.ndarray]:
        """Return the sum of the groups' answers."""
        parts = yield from self.ask_parts(kind, size, largest, **arrays)
        return parts.sum(axis=0)

    def ask_parts(
        self, kind: str, size: int, largest: float, **arrays: np.ndarray
    ) -> Rounds[np.ndarray]:
        """Return sums over disjoint sets of groups, one a row: one of all in rounds of owners."""
        arrays, self.news = {**self.news, **arrays}, {}
        self.n_rounds += 1
        parts = np.atleast_2d(np.array((yield Step(kind, arrays, size, largest)), dtype=np.float64))
        if parts.shape[1:] != (size,) or not np.isfinite(parts).all():
            raise ValueError(f"step {kind!r} has sums of {size} finite numbers.")
        return parts

    def unheard(self, largest: float) -> float:
        """Return the largest error of an entry of a sum."""
        return self.resolution * largest if self.resolution else 0.0


@dataclass(eq=False)
class Method:
    """A barycenter method, found by its name; its file also has the answers of groups to its steps.

    A subclass sets `name`, and its fields are options besides tol and max_iter. Importing its file
    is all it takes to be known here, to `candidate_barycenter` or to coordinators.
    """

    name: ClassVar[str] = ""
    default_rounds: ClassVar[int] = 200
    needs_candidates: ClassVar[bool] = True
    known: ClassVar[dict[str, type["Method"]]] = {}

    def __init_subclass__(cls) -> None:
        if cls.name:
            Method.known[cls.name] = cls

    def rounds(self, problem: Any, exchange: Exchange) -> Rounds[Any]:
        """Return the barycenter of groups that keep their points to themselves."""
        raise NotImplementedError


_ANSWERS: dict[str, Callable[[Any, Arrays], np.ndarray]] = {}
_LESSONS: dict[str, Callable[[Any, Arrays], None]] = {}


def answers(kind: str) -> Callable[[Callable], Callable]:
    """Register a group's answer to a kind of step."""
    return lambda function: _ANSWERS.setdefault(kind, function)


def learns(news: str) -> Callable[[Callable], Callable]:
    """Register how a group brings its state up to date with news of the last sum."""
    return lambda function: _LESSONS.setdefault(news, function)


class Group:
    """A group's costs to the candidates, its masses and weight, its state, and its answers.

    Every answer is weighted here, so answers of all groups only have to be added.
    """

    cost: np.ndarray
    # The smallest and the largest cost.
    low: float
    high: float
    masses: np.ndarray
    # Points and couplings with a support, where costs are squared distances.
    points: np.ndarray
    placing: PlacedPoints | None = None
    # Potentials of every minorant that was answered, by evaluation, where they are to be kept.
    kept: list[list[np.ndarray]] | None = None

    def __init__(self) -> None:
        self.state: Arrays = {}

    def measure(self, cost: np.ndarray) -> None:
        """Take the costs to the candidates."""
        self.cost, self.low, self.high = cost, float(cost.min()), float(cost.max())

    def enter(self, weight: float, n_groups: int, place: int = 0) -> None:
        """Begin anew, with a weight and a place among so many groups."""
        self.state = {"weight": np.array([weight]), "place": np.array([place, n_groups])}
        self.placing = None

    def placed(self, n_support: int) -> PlacedPoints:
        """Return the points, to be coupled with supports of so many points."""
        if self.placing is None or self.placing.n_support != n_support:
            self.placing = PlacedPoints(self.points, self.masses, n_support)
        return self.placing

    @property
    def weight(self) -> float:
        """Return the group's weight."""
        return float(self.state["weight"][0])

    @property
    def place(self) -> int:
        """Return the group's place among all."""
        return int(self.state["place"][0])

    @property
    def n_groups(self) -> int:
        """Return how many groups there are."""
        return int(self.state["place"][1])

    @property
    def relative_rounding(self) -> float:
        """Return by how much, at most, a sum of products with the weights is off."""
        return (self.n_groups + 4) * _EPS

    def zeros(self, name: str, length: int) -> np.ndarray:
        """Return an array of the state, of zeros when it is first asked for."""
        return self.state.setdefault(name, np.zeros(length))

    def answer(self, kind: str, arrays: Arrays, place: int) -> np.ndarray:
        """Return the group's summand, after it learns from the last step; state changes."""
        if kind not in _ANSWERS:
            raise ValueError(f"there is no step {kind!r}.")
        for news, learn in _LESSONS.items():
            if news in arrays:
                learn(self, arrays)
        return _ANSWERS[kind](self, arrays)


def drive(rounds: Rounds[_Result], groups: Sequence[Any], n_parts: int = 1) -> _Result:
    """Let groups of this process answer until the end, and return the result."""
    step = next(rounds)
    while True:
        given = [group.answer(step.kind, step.arrays, s) for s, group in enumerate(groups)]
        parts = [np.sum(given[first::n_parts], axis=0) for first in range(n_parts)]
        try:
            step = rounds.send(np.array(parts))
        except StopIteration as end:
            return end.value
