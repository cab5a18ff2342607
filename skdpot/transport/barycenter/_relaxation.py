r"""The barycenter on candidates as a linear program: its rounds, its planes, its certificate.

With groups of masses a_s and weights lambda_s, costs c_s to the candidates and M points to choose,
the relaxed problem is to minimise ``F(q) = sum_s lambda_s OT_s(q)`` over the capped simplex
``{0 <= q <= 1/M, sum q = 1}``, whose vertices are the uniform distributions on M candidates.

Only sums over groups are needed. Of the groups' minorants these are planes: ``prices @ shares`` is
below the cost for all shares, as levels are part of the prices. The mean of the M smallest prices
bounds F from below. The largest effect of rounding on a plane, its slack, is a sum over groups,
too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from ..exact import certifiable_gap
from ._choice import Choice, choose
from ._exchange import Arrays, Exchange, Group, Method, Rounds, answers
from ._minorants import Minorant, exact_answer, rounding_allowance
from ._placing import place_support
from ._point_problem import BarycenterProblem, BarycenterResult

_EPS = float(np.finfo(np.float64).eps)

# Minorants that a group's state leads to, by the number that a coordinator asks for them by.
OWN_MINORANTS: dict[int, Callable[[Group], Minorant]] = {}


def own_minorant(number: int) -> Callable[[Callable], Callable]:
    """Register a minorant that a group's state leads to."""
    return lambda function: OWN_MINORANTS.setdefault(number, function)


@dataclass(eq=False)
class Plane:
    """A function ``prices @ shares`` below the cost of some groups, up to its slack.

    It mixes minorants in the parts `made_of`, by evaluation and position in it.
    """

    prices: np.ndarray
    slack: float
    made_of: dict[tuple[int, int], float]
    # For how many rounds it was of no use to a linear program.
    idle: int = field(default=0, kw_only=True)


def mixture(planes: Sequence[Plane], multipliers: np.ndarray) -> Plane:
    """Return the mixture of planes, which is below the cost as they are; the last one if all 0."""
    total = multipliers.sum()
    used = np.flatnonzero(multipliers) if total > 0 else np.array([len(planes) - 1])
    parts = multipliers[used] / total if total > 0 else np.ones(1)
    prices = np.array([planes[j].prices for j in used])
    slack = max(planes[j].slack for j in used)
    # Parts have the sum 1 up to rounding.
    slack += (2 * len(used) + 4) * _EPS * float(np.abs(prices).max())
    made_of: dict[tuple[int, int], float] = {}
    for j, part in zip(used, parts.tolist(), strict=True):
        for minorant, share in planes[j].made_of.items():
            made_of[minorant] = made_of.get(minorant, 0.0) + part * share
    return Plane(parts @ prices, slack, made_of)


class Relaxation:
    """The best shares and the best bound that rounds led to, and the gap between them."""

    def __init__(
        self,
        exchange: Exchange,
        n_candidates: int,
        n_support: int,
        tol: float,
        max_iter: int,
        callback: Callable[[int, float, float], Any] | None = None,
    ) -> None:
        self.exchange, self.tol, self.max_iter = exchange, tol, max_iter
        self.n_candidates, self.n_support = n_candidates, n_support
        self.shares = np.full(n_candidates, 1.0 / n_candidates)
        self.upper, self.lower = math.inf, -math.inf
        # Planes of all parts that prove the lower bound.
        self.proof: list[Plane] = []
        self.n_iter = self.n_evaluations = 0
        self.history: list[tuple[int, float, float]] = []
        self.scale, self._noise = 0.0, 0.0
        self._callback = callback

    def begin(self, **arrays: np.ndarray) -> Rounds[None]:
        """Send groups the candidates, and learn the scale of costs."""
        self.scale, self._noise = yield from self.exchange.ask(
            "begin", 2, self.exchange.largest_cost, n_support=np.array([self.n_support]), **arrays
        )

    @property
    def gap(self) -> float:
        """Upper bound on the distance of the best objective from the optimum."""
        return self.upper - self.lower

    @property
    def converged(self) -> bool:
        """Whether the gap is within the tolerance, or within rounding errors."""
        tolerance = self.tol * abs(self.upper) + self._noise
        return bool(math.isfinite(self.gap) and self.gap <= tolerance)

    @property
    def n_left(self) -> int:
        """Number of rounds left."""
        return self.max_iter - self.n_iter

    @property
    def finished(self) -> bool:
        """Whether the gap is closed, or no round is left."""
        return self.converged or self.n_left <= 0

    def learn(self, planes: list[Plane]) -> None:
        """Keep the planes of all parts if they give the best lower bound."""
        prices = np.sum([plane.prices for plane in planes], axis=0)
        smallest = np.argpartition(prices, self.n_support - 1)[: self.n_support]
        bound = math.fsum(prices[smallest]) / self.n_support
        sizes = sum(float(np.abs(plane.prices[smallest]).max()) for plane in planes)
        bound -= sum(plane.slack for plane in planes) + (len(planes) + 3) * _EPS * sizes
        if bound > self.lower:
            self.lower, self.proof = bound, planes

    def evaluate(
        self, shares: np.ndarray, minorants: Sequence[int] = (), largest: float = 0.0
    ) -> Rounds[tuple[np.ndarray, list[list[Plane]]]]:
        """Return the parts' costs of shares, their tangent planes, and the requested minorants.

        `largest` bounds the potentials, besides those of exact transport.
        """
        self.n_iter += 1
        largest = 2 * self.exchange.largest_cost + largest
        parts = yield from self.exchange.ask_parts(
            "evaluate",
            1 + (1 + len(minorants)) * (1 + self.n_candidates),
            largest,
            shares=shares,
            minorants=np.array(minorants, dtype=np.int64),
        )
        unheard = self.exchange.unheard(largest)
        costs = parts[:, 0] + unheard
        messages = parts[:, 1:].reshape(len(parts), -1, 1 + self.n_candidates)
        planes = [
            [Plane(message[1:], float(message[0]) + 2 * unheard, {(self.n_evaluations, i): 1.0})
             for message in messages[:, i]]
            for i in range(messages.shape[1])
        ]  # fmt: skip
        self.n_evaluations += 1
        upper = math.fsum(costs)
        if upper < self.upper:
            self.upper, self.shares = upper, shares
        for planes_of_parts in planes:
            self.learn(planes_of_parts)
        self.note()
        if self._callback is not None:
            self._callback(self.n_iter, self.lower, self.upper)
        return costs, planes

    def note(self) -> None:
        """Record the bounds after this round."""
        self.history.append((self.n_iter, self.lower, self.upper))


class RelaxedMethod(Method):
    """A method that closes the gap of a relaxation."""

    def relax(self, relaxation: Relaxation) -> Rounds[None]:
        """Close the gap, or use all rounds."""
        raise NotImplementedError

    def rounds(self, problem: BarycenterProblem, exchange: Exchange) -> Rounds[BarycenterResult]:
        """Return the barycenter of groups that keep their points to themselves."""
        weighing = yield from problem.weighing(exchange)
        relaxation = Relaxation(
            exchange, problem.n_candidates, problem.n_support, problem.tol, problem.max_iter
        )
        yield from relaxation.begin(candidates=problem.candidates, **weighing)
        if problem.n_support == problem.n_candidates:
            yield from relaxation.evaluate(relaxation.shares)
        else:
            yield from self.relax(relaxation)
        exchange.news = {}
        candidates = problem.candidates

        def place(chosen: np.ndarray) -> Rounds[Choice]:
            at = yield from place_support(exchange, candidates[chosen])
            return Choice(
                at.upper,
                at.lower,
                lambda: cdist(at.images, candidates, "sqeuclidean") / len(chosen),
            )

        shares = relaxation.shares
        chosen, best = yield from choose(place, shares, candidates, problem.n_support)
        return BarycenterResult(
            support=candidates[chosen],
            chosen=chosen,
            shares=shares,
            objective=best.upper,
            gap=best.upper - best.lower,
            relaxed_objective=relaxation.upper,
            lower_bound=relaxation.lower,
            n_rounds=exchange.n_rounds,
            converged=relaxation.converged,
            history=relaxation.history,
        )


@answers("begin")
def begin(group: Group, arrays: Arrays) -> np.ndarray:
    """Answer the mean cost above the smallest one, and a bound on rounding errors of costs."""
    group.state["n_support"] = np.array(arrays["n_support"], dtype=np.int64)
    n_points, n_candidates = group.cost.shape
    noise = 4 * certifiable_gap(n_points, n_candidates, group.low, group.high)
    return group.weight * np.array([group.cost.mean() - group.low, noise])


@answers("evaluate")
def evaluate(group: Group, arrays: Arrays) -> np.ndarray:
    """Answer the cost of shares, the minorant that is tangent there, and requested ones."""
    cost, touching = exact_answer(group.cost, group.masses, arrays["shares"])
    requested = [OWN_MINORANTS[number](group) for number in arrays["minorants"].tolist()]
    if group.kept is not None:
        group.kept.append([minorant.potential for minorant in (touching, *requested)])
    rounded_up = cost + abs(cost) * group.relative_rounding
    messages = [_message(group, minorant) for minorant in (touching, *requested)]
    return group.weight * np.concatenate([[rounded_up], *messages])


def _message(group: Group, minorant: Minorant) -> np.ndarray:
    """Return a bound on rounding errors of a minorant in the sum of all, and its prices.

    The level is added to the prices, because shares have the sum 1.
    """
    n_terms = sum(group.cost.shape) + group.n_groups
    allowance = rounding_allowance(n_terms, group.low, group.high, [minorant.potential])
    allowance += group.n_groups * _EPS * max(abs(group.low), abs(group.high))
    return np.concatenate([[allowance], minorant.prices + minorant.level])


def into_capped_simplex(shares: np.ndarray, n_support: int) -> np.ndarray:
    """Move shares into the capped simplex, which rounding or a tolerance made them leave."""
    cap = 1.0 / n_support
    shares = np.clip(shares, 0.0, cap)
    missing = 1.0 - math.fsum(shares)
    room = cap - shares if missing > 0 else shares
    total = math.fsum(room)
    return shares + room * (missing / total) if total > 0 else shares
