r"""Rounds of the relaxed problem, in which candidates share the mass: what the coordinator does.

As in `skdpot.transport.barycenter`, but that the coordinator knows sums over the groups only. Of
the groups' minorants, these are planes: ``prices @ shares`` is below the objective for all shares,
as levels are part of the prices. The mean of the M smallest prices bounds the objective of all
shares within the cap. What rounding may add to a plane, its slack, is a sum of the groups', too.
"""

import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from skdpot.federation._solvers._problem import Exchange, Step
from skdpot.federation._solvers._steps import OF_BEST_POTENTIAL, OF_POTENTIAL, OF_PRICES
from skdpot.transport.barycenter import _bregman, _bundle, _dual

_EPS = float(np.finfo(np.float64).eps)
# No logarithm of a column is larger in absolute value.
_LARGEST_LOGARITHM = 700.0
# As candidate_barycenter's.
_HAND_OVER = 1e-4
_FIRST_CUTS = 8

_Found = TypeVar("_Found")
Rounds = Generator[Step, np.ndarray, _Found]


@dataclass(eq=False)
class _Plane(_bundle.Plane):
    """A plane, and what rounding may have added to it."""

    slack: float


class Relaxation:
    """The best shares and the best bound that rounds led to, and the gap between them."""

    def __init__(self, exchange: Exchange, candidates: np.ndarray) -> None:
        problem = exchange.problem
        self.exchange, self.problem, self.candidates = exchange, problem, candidates
        self.n_candidates, self.n_support = len(candidates), problem.n_support
        self.shares = np.full(self.n_candidates, 1.0 / self.n_candidates)
        self.upper, self.lower = math.inf, -math.inf
        self.n_iter = 0
        self.history: list[tuple[int, float, float]] = []
        self.scale, self._noise = 0.0, 0.0

    def begin(self, weighing: dict[str, np.ndarray]) -> Rounds[None]:
        """Tell groups the candidates, and learn the scale of costs."""
        self.scale, self._noise = yield from self.exchange.ask(
            "begin",
            2,
            self.problem.largest_cost,
            candidates=self.candidates,
            n_support=np.array([self.n_support]),
            **weighing,
        )

    @property
    def gap(self) -> float:
        """How far from the optimum the best shares can be."""
        return self.upper - self.lower

    @property
    def converged(self) -> bool:
        """Whether the gap is within the tolerance, or within what rounding hides."""
        tolerance = self.problem.tol * abs(self.upper) + self._noise
        return bool(math.isfinite(self.gap) and self.gap <= tolerance)

    @property
    def n_left(self) -> int:
        """How many rounds are left."""
        return self.problem.max_iter - self.n_iter

    @property
    def finished(self) -> bool:
        """Whether nothing remains to be done, or no round is left to do it in."""
        return self.converged or self.n_left <= 0

    def learn(self, plane: _Plane) -> None:
        """Keep a plane's bound if it is the best."""
        smallest = np.partition(plane.prices, self.n_support - 1)[: self.n_support]
        bound = math.fsum(smallest) / self.n_support
        bound -= plane.slack + 4 * _EPS * float(np.abs(smallest).max())
        self.lower = max(self.lower, bound)

    def evaluate(
        self, shares: np.ndarray, minorants: Sequence[int] = (), largest: float = 0.0
    ) -> Rounds[tuple[float, list[_Plane]]]:
        """Return the cost of shares, the plane that touches it there, and those asked for.

        `largest` is the largest potential there can be, besides those that exact transport finds.
        """
        self.n_iter += 1
        largest = 2 * self.problem.largest_cost + largest
        answer = yield from self.exchange.ask(
            "evaluate",
            1 + (1 + len(minorants)) * (1 + self.n_candidates),
            largest,
            shares=shares,
            minorants=np.array(minorants, dtype=np.int64),
        )
        unheard = self.problem.resolution * largest if self.problem.resolution else 0.0
        upper = float(answer[0]) + unheard
        planes = [
            _Plane(0.0, one[1:], float(one[0]) + 2 * unheard)
            for one in answer[1:].reshape(-1, 1 + self.n_candidates)
        ]
        if upper < self.upper:
            self.upper, self.shares = upper, shares
        for plane in planes:
            self.learn(plane)
        self.history.append((self.n_iter, self.lower, self.upper))
        return upper, planes


def relax(relaxation: Relaxation, method: str) -> Rounds[None]:
    """Close the gap, or use up the rounds."""
    if relaxation.n_support == relaxation.n_candidates:
        # There is only one choice, and the minorants at it prove that.
        yield from relaxation.evaluate(relaxation.shares)
    elif method == "dual":
        yield from _ascend(relaxation)
    elif method == "bregman":
        yield from _anneal(relaxation)
    else:
        known = yield from _anneal(relaxation, _HAND_OVER)
        if not relaxation.finished:
            yield from _descend(relaxation, known[-_FIRST_CUTS:])


def _ascend(relaxation: Relaxation) -> Rounds[None]:
    """Take subgradient steps: groups send T, and are told who was selected."""
    problem, exchange = relaxation.problem, relaxation.exchange
    n_support, n_candidates = relaxation.n_support, relaxation.n_candidates
    unit = _dual.FIRST_STEP * relaxation.scale
    recent: deque = deque(maxlen=_dual.AVERAGED)
    best_value = -math.inf
    n_steps = 0
    while not relaxation.finished:
        potential = _largest_potential(relaxation, n_steps)
        message = (problem.largest_cost + potential) / n_support
        usefulness = yield from exchange.ask("dual", n_candidates, message)
        relaxation.n_iter += 1
        n_steps += 1
        selected = _dual.selected(usefulness, n_support)
        value = -math.fsum(usefulness[selected])
        step = 1.0 / math.sqrt(n_steps)
        recent.append((step, selected))
        exchange.news = {
            "selected": selected.astype(np.int64),
            "step": np.array([unit * step]),
            "is_best": np.array([value > best_value], dtype=np.int64),
        }
        best_value = max(best_value, value)
        if relaxation.n_left <= 1 or n_steps % _dual.ROUNDS_PER_CHECK == 0:
            shares = _dual.average_selection(recent, n_candidates, n_support)
            largest = _largest_potential(relaxation, n_steps)
            yield from relaxation.evaluate(shares, (OF_BEST_POTENTIAL, OF_POTENTIAL), largest)


def _largest_potential(relaxation: Relaxation, n_steps: int) -> float:
    """Return how far potentials can be apart after so many steps.

    The entries of a subgradient are at most M, and the lengths of steps add up to 2 sqrt(n).
    """
    unit = _dual.FIRST_STEP * relaxation.problem.largest_cost
    return 4 * unit * relaxation.n_support * math.sqrt(n_steps) if n_steps else 0.0


def _anneal(relaxation: Relaxation, last_reg: float = 0.0) -> Rounds[list[_Plane]]:
    """Project with falling regularisation until the gap is closed; return the planes met.

    Where it is not closed, end without a round left; or, if `last_reg` is positive, as soon as a
    check is below that regularisation or finds the gap nearly as wide as the one before.
    """
    found: list[_Plane] = []
    relative, n_projections = _bregman.FIRST_REG, 0
    while not relaxation.finished:
        log_shares, relative = yield from project(relaxation, relative)
        n_projections += 1
        if relaxation.n_left <= 1 or (
            n_projections >= _bregman.FIRST_CHECK and n_projections % _bregman.ROUNDS_PER_CHECK == 0
        ):
            gap_before = relaxation.gap
            shares = np.exp(log_shares)
            _, planes = yield from relaxation.evaluate(shares / shares.sum(), (OF_PRICES,))
            found += planes
            stalled = relaxation.gap > _bregman.STALLED * gap_before
            if last_reg and (relative <= last_reg or stalled):
                break
    return found


def project(relaxation: Relaxation, relative: float) -> Rounds[tuple[np.ndarray, float]]:
    """Project once: return logarithms of shares, and the next relative regularisation."""
    # Costs that do not differ need no regularisation, but a number to divide by.
    reg = relative * (relaxation.scale or 1.0)
    answer = yield from relaxation.exchange.ask(
        "bregman", relaxation.n_candidates + 1, _LARGEST_LOGARITHM, reg=np.array([reg])
    )
    relaxation.n_iter += 1
    log_shares = _bregman.capped(answer[:-1], relaxation.n_support)
    relaxation.exchange.news = {"log_shares": log_shares}
    # Groups can tell how far they were from the shares when they know these: one round later.
    if answer[-1] <= _bregman.LARGEST_DISAGREEMENT:
        relative = max(relative * _bregman.FACTOR, _bregman.LAST_REG)
    return log_shares, relative


def _descend(relaxation: Relaxation, known: Sequence[_Plane]) -> Rounds[None]:
    """Improve shares and bound by cutting planes, as `_bundle.descend` with a single model."""
    center = relaxation.shares
    value, (touching,) = yield from relaxation.evaluate(center)
    planes, radius = [*known, touching], _bundle.FIRST_RADIUS
    while not relaxation.finished:
        proposal = _bundle.propose(
            [planes], center, relaxation.n_support, [value], relaxation.gap, radius
        )
        if proposal is None:
            break
        multipliers = proposal.multipliers[0]
        relaxation.learn(_mixture(planes, multipliers))
        if relaxation.converged:
            break
        trial, (touching,) = yield from relaxation.evaluate(proposal.shares)
        planes = [*_bundle.still_needed(planes, multipliers), touching]
        radius = _bundle.next_radius(radius, value - trial, proposal.decrease, relaxation.gap)
        if trial < value:
            center, value = proposal.shares, trial
    relaxation.history.append((relaxation.n_iter, relaxation.lower, relaxation.upper))


def _mixture(planes: Sequence[_Plane], multipliers: np.ndarray) -> _Plane:
    """Return the mixture of planes, which is below the objective as they are."""
    used, parts = _bundle.parts_of_mixture(multipliers)
    prices = np.array([planes[j].prices for j in used])
    slack = max(planes[j].slack for j in used)
    # Parts have the sum 1 up to rounding.
    slack += (2 * len(used) + 4) * _EPS * float(np.abs(prices).max())
    return _Plane(0.0, parts @ prices, slack)
