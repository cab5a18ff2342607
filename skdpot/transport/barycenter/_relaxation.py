r"""The relaxed barycenter on candidates: rounds, planes, certificate, two methods, and results.

With groups of masses a_s and weights lambda_s, costs c_s to the candidates and M points to choose,
the relaxed problem is to minimise ``F(q) = sum_s lambda_s OT_s(q)`` over the capped simplex
``{0 <= q <= 1/M, sum q = 1}``, whose vertices are the uniform distributions on M candidates.

Only sums over groups are needed. So a method is a generator: it yields steps and is sent the sums
of all groups' answers. By duality, a group has for any potential phi of its points ::

    OT(q) >= sum_i a_i phi_i + sum_k q_k psi_k,      psi_k = min_i (c_ik - phi_i).

Of these minorants, sums are planes: ``prices @ shares`` is below the cost for all shares, as levels
are part of the prices. The mean of the M smallest prices bounds F from below. The largest effect of
rounding on a plane, its slack, is a sum over groups, too.

*Cutting planes in a trust region.* In each round groups are sent shares; each answers by its exact
transport cost to them and by the minorant that touches it there. The next shares are near the best
known ones, and minimise the sum of the largest planes of every part of the groups. Where only sums
over all groups are known, as in rounds of owners, all groups are one part. The multipliers of that
linear program mix each part's planes to one that is as good as all of them, which proves the lower
bound. Nothing is believed of the program's solution but that it is a proposal.

*The paper's single-loop dual subgradient method.* A group keeps potentials phi of its points;
theta_i of the paper is ``w_s phi_i``, with ``w_s = lambda_s / M``. So a step in units of w_s is a
step in units of cost here. Its message is ``T_k = max_i (theta_i - w_s c_ik) - sum_i a_i theta_i``,
K numbers. The best multiplier theta_0 of the number of points is known for given messages. It
selects the M candidates with the largest sums, and the dual value is minus their sum. Groups
receive these candidates.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from ..exact import TransportResult, certifiable_gap, exact_transport
from ..kernels import kernel

_EPS = float(np.finfo(np.float64).eps)

Arrays = dict[str, np.ndarray]
_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class BarycenterResult:
    """A barycenter with what is known of it: what a method does not find is NaN, None or 0.

    Attributes
    ----------
    support : ndarray of shape (n_support, n_features) or (n_support,)
        Its points; on a line in ascending order, and some may be equal.
    objective : float
        Weighted sum of the groups' exact transport costs to it: squared Wasserstein distances of
        order 2, unless other costs to candidates were given.
    gap : float
        Certified: that sum is at least ``objective - gap``.
    lower_bound : float
        Lower bound on the objective of every distribution, with any support and masses. For
        candidates it is one on the optimum of the relaxed problem, and so on the objective of any
        choice.
    relaxed_objective : float
        Weighted sum of the groups' exact transport costs to `shares`: an upper bound on the
        optimum of the relaxed problem.
    converged : bool
        Whether the tolerance was reached. For candidates: whether ``relaxed_objective -
        lower_bound`` is at most `tol` times `relaxed_objective`; for points that move freely:
        whether the last sweep lowered the objective by no more than the tolerance.
    n_iter : int
        Number of rounds: one message of n_candidates numbers from each group, and one to all. For
        points that move freely, number of sweeps over the groups.
    n_rounds : int
        Number of all steps, which the coordinator counts.
    chosen : ndarray of shape (n_support,) or None
        Indices of the chosen candidates, distinct and in ascending order.
    shares : ndarray of shape (n_candidates,) or None
        Solution of the relaxed problem: non-negative masses of at most ``1 / n_support``, sum 1.
    masses : ndarray of shape (n_support,) or None
        Masses of the points, positive with sum 1. None stands for ``1 / n_support``.
    levels : ndarray of shape (n_support,) or None
        On a line, the largest level for which each point is the quantile:
        ``support[np.searchsorted(levels, u)]`` is the quantile of level u, for 0 < u <= 1. The last
        one is 1.
    plans : list of scipy.sparse.csr_array of shape (n_s, n_support) or None
        Optimal couplings of the groups with the support.
    """

    support: np.ndarray
    objective: float
    gap: float = math.nan
    lower_bound: float = math.nan
    relaxed_objective: float = math.nan
    converged: bool = True
    n_iter: int = 0
    n_rounds: int = 0
    chosen: np.ndarray | None = None
    shares: np.ndarray | None = None
    masses: np.ndarray | None = None
    levels: np.ndarray | None = None
    plans: list[sparse.csr_array] | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """A question for all groups.

    Attributes
    ----------
    kind : str
        The name of the step.
    arrays : dict of str to ndarray
        Its arguments.
    size : int
        Length of each group's answer.
    """

    kind: str
    arrays: Arrays
    size: int


Rounds = Generator[Step, np.ndarray, _Result]


def ask(kind: str, size: int, **arrays: np.ndarray) -> Rounds[np.ndarray]:
    """Return sums of answers over disjoint sets of groups, one a row: one row in rounds of owners.

    A step is the coordinator's, so what it is sent must be checked.
    """
    # A carrier may send one row of sums, or one for each part of the groups.
    sums = np.atleast_2d(np.array((yield Step(kind, arrays, size)), dtype=np.float64))
    if sums.shape[1:] != (size,) or not np.isfinite(sums).all():
        raise ValueError(f"step {kind!r} has sums of {size} finite numbers.")
    return sums


def drive(rounds: Rounds[_Result], groups: Sequence[Any], n_parts: int = 1) -> _Result:
    """Let groups of this process answer until the end, and return the result."""
    step = next(rounds)
    while True:
        # Groups are dealt out to the parts in turn, so that parts are of about equal size.
        given = [group.answer(step.kind, step.arrays, s) for s, group in enumerate(groups)]
        parts = [np.sum(given[first::n_parts], axis=0) for first in range(n_parts)]
        try:
            step = rounds.send(np.array(parts))
        except StopIteration as end:
            return end.value


@kernel
def best_points(cost, potential, prices, points):
    """Set ``prices[k] = min_i cost[i, k] - potential[i]``, and `points` to who attains that."""
    prices[:] = np.inf
    for i in range(len(potential)):
        row = cost[i]
        own = potential[i]
        for k in range(len(prices)):
            price = row[k] - own
            points[k] = i if price < prices[k] else points[k]
            prices[k] = min(price, prices[k])


def answering(cost: np.ndarray, potential: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``min_i cost[i, k] - potential[i]`` for every candidate k, and who attains it.

    With ``masses @ potential`` these prices are a minorant of the cost of shares.
    """
    prices, points = np.empty(cost.shape[1]), np.zeros(cost.shape[1], np.int32)
    best_points(cost, potential, prices, points)
    return prices, points


def coupling_of_choice(cost: np.ndarray, masses: np.ndarray, chosen: np.ndarray) -> TransportResult:
    """Return the optimal coupling of a group with equal masses on a choice."""
    # Every chosen candidate is one point of the barycenter.
    equal = np.full(len(chosen), 1.0 / len(chosen))
    return exact_transport(cost[:, chosen], masses, equal)


class Group:
    """A group's costs to the candidates, its masses and weight, and its answers to steps.

    Every answer is weighted here, so answers of all groups only have to be added.

    Parameters
    ----------
    cost : ndarray of shape (n, n_candidates)
        The costs.
    masses : ndarray of shape (n,)
        Masses of the group's points.
    weight : float
        The weight of the group.
    n_groups : int
        How many groups there are.
    """

    def __init__(self, cost: np.ndarray, masses: np.ndarray, weight: float, n_groups: int) -> None:
        self.masses = masses
        self.measure(cost)
        self.enter(weight, n_groups)

    def measure(self, cost: np.ndarray) -> None:
        """Take the costs to the candidates."""
        self.cost, self.low, self.high = cost, float(cost.min()), float(cost.max())

    def enter(self, weight: float, n_groups: int) -> None:
        """Begin anew, with a weight among all groups; `state` is all that steps change."""
        # As arrays: a group that is put away between two steps is a file of these.
        self.state: Arrays = {"weight": np.array([weight]), "n_groups": np.array([n_groups])}

    @property
    def weight(self) -> float:
        """Return the group's weight."""
        return float(self.state["weight"][0])

    @property
    def n_groups(self) -> int:
        """Return how many groups there are."""
        return int(self.state["n_groups"][0])

    @property
    def relative_rounding(self) -> float:
        """Return by how much, at most, a sum of products with the weights is off."""
        return (self.n_groups + 4) * _EPS

    def zeros(self, name: str) -> np.ndarray:
        """Return an array of the state with a number for each point, 0 when first asked for."""
        return self.state.setdefault(name, np.zeros(len(self.masses)))

    def answer(self, kind: str, arrays: Arrays, place: int) -> np.ndarray:
        """Return the group's summand, after it learns from the last step; state changes."""
        # A group learns the choice of the last step with the next one, which saves a message.
        if "selected" in arrays:
            self._ascend(arrays)
        answer = getattr(self, f"answer_{kind}", None)
        if answer is None:
            raise ValueError(f"there is no step {kind!r}.")
        return self.weight * answer(arrays)

    def answer_begin(self, arrays: Arrays) -> np.ndarray:
        """Answer the mean cost above the smallest one, and a bound on rounding errors of costs."""
        self.state["n_support"] = np.array(arrays["n_support"], dtype=np.int64)
        n_points, n_candidates = self.cost.shape
        noise = 4 * certifiable_gap(n_points, n_candidates, self.low, self.high)
        return np.array([self.cost.mean() - self.low, noise])

    def answer_evaluate(self, arrays: Arrays) -> np.ndarray:
        """Answer the cost of shares, the minorant that is tangent there, and own ones by name."""
        # The column potentials of the optimum are a subgradient in the shares.
        result = exact_transport(self.cost, self.masses, arrays["shares"])
        minorants = [(result.column_potential, result.row_potential)]
        for name in ("best_potential", "potential")[2 - int(arrays.get("own", [0])[0]) :]:
            own = self.zeros(name).copy()
            minorants.append((answering(self.cost, own)[0], own))
        cost = result.cost + result.gap
        # Upper bounds are rounded up here, since the coordinator sees sums only.
        rounded_up = cost + abs(cost) * self.relative_rounding
        return np.concatenate([[rounded_up], *(self._message(*one) for one in minorants)])

    def _message(self, prices: np.ndarray, potential: np.ndarray) -> np.ndarray:
        """Return a bound on rounding errors of a minorant in the sum of all, and its prices.

        The level is added to the prices, because shares have the sum 1.
        """
        # The rounding error of this many terms; 16 are for the few operations beside the sums.
        n_terms = sum(self.cost.shape) + self.n_groups + 16
        spread = self.high - self.low + float(np.ptp(potential))
        max_cost = max(abs(self.low), abs(self.high))
        max_magnitude = max_cost + float(np.abs(potential).max())
        allowance = _EPS * (n_terms * spread + 16 * max_magnitude)
        allowance += self.n_groups * _EPS * max_cost
        return np.concatenate([[allowance], prices + math.fsum(self.masses * potential)])

    def answer_dual(self, arrays: Arrays) -> np.ndarray:
        """Answer the message T of the paper's equation (15), and keep who attains its maxima."""
        potential = self.zeros("potential")
        # A batch costs time in proportion to its candidates.
        cost = self.cost[:, arrays["batch"]] if "batch" in arrays else self.cost
        prices, points = answering(cost, potential)
        self.state["points_that_serve"] = points.astype(np.int64)
        return -(prices + math.fsum(self.masses * potential)) / int(self.state["n_support"][0])

    def answer_choice(self, arrays: Arrays) -> np.ndarray:
        """Answer the cost of a choice, and its cost with any other candidates for its points."""
        result = coupling_of_choice(self.cost, self.masses, arrays["chosen"])
        elsewhere = result.plan.T @ self.cost
        return np.concatenate([[result.cost], elsewhere.ravel()])

    def _ascend(self, arrays: Arrays) -> None:
        """Take a step along a subgradient: points to serve candidates by, less those that do.

        Of a batch fewer than M candidates may be selected: they count for as many.
        """
        potential, momentum = self.zeros("potential"), self.zeros("momentum")
        if arrays["is_best"][0]:
            self.state["best_potential"] = potential.copy()
        serving = self.state["points_that_serve"][arrays["selected"]]
        # Points that serve a selected candidate may be charged more, and others less.
        served = np.bincount(serving, minlength=len(potential)) / len(serving)
        # Nine tenths of the last direction are kept, as in the paper.
        momentum *= 0.9
        momentum += (1 - 0.9) * int(self.state["n_support"][0]) * (self.masses - served)
        potential += float(arrays["step"][0]) * momentum


@dataclass(eq=False)
class Plane:
    """A function ``prices @ shares`` below the cost of some groups, up to its slack."""

    prices: np.ndarray
    slack: float
    # For how many rounds it was of no use to a linear program.
    idle: int = 0


def mixture(planes: Sequence[Plane], multipliers: np.ndarray) -> Plane:
    """Return the mixture of planes, which is below the cost as they are; the last one if all 0."""
    total = multipliers.sum()
    # A program without a binding plane proves nothing; the last plane is a valid one.
    used = np.flatnonzero(multipliers) if total > 0 else np.array([len(planes) - 1])
    parts = multipliers[used] / total if total > 0 else np.ones(1)
    prices = np.array([planes[j].prices for j in used])
    slack = max(planes[j].slack for j in used)
    # Parts have the sum 1 up to rounding.
    slack += (2 * len(used) + 4) * _EPS * float(np.abs(prices).max())
    return Plane(parts @ prices, slack)


class Relaxation:
    """The best shares and the best bound that rounds led to, and the gap between them."""

    def __init__(
        self,
        n_candidates: int,
        n_support: int,
        tol: float,
        max_iter: int,
        callback: Callable[[int, float, float], Any] | None = None,
    ) -> None:
        self.tol, self.max_iter = tol, max_iter
        self.n_candidates, self.n_support = n_candidates, n_support
        # Equal shares are within every cap.
        self.shares = np.full(n_candidates, 1.0 / n_candidates)
        self.upper, self.lower = math.inf, -math.inf
        self.n_iter = 0
        self.scale, self._noise = 0.0, 0.0
        self._callback = callback

    def begin(self, **arrays: np.ndarray) -> Rounds[None]:
        """Send groups the candidates, and learn the scale of costs."""
        sums = yield from ask("begin", 2, n_support=np.array([self.n_support]), **arrays)
        self.scale, self._noise = sums.sum(axis=0)

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
    def finished(self) -> bool:
        """Whether the gap is closed, or no round is left."""
        return self.converged or self.n_iter >= self.max_iter

    def learn(self, planes: list[Plane]) -> None:
        """Learn the lower bound that the planes of all parts prove together."""
        prices = np.sum([plane.prices for plane in planes], axis=0)
        # A linear function is least at a vertex: equal masses on the cheapest candidates.
        smallest = np.argpartition(prices, self.n_support - 1)[: self.n_support]
        bound = math.fsum(prices[smallest]) / self.n_support
        sizes = sum(float(np.abs(plane.prices[smallest]).max()) for plane in planes)
        # What rounding may have added to the planes and to this sum is taken off again.
        bound -= sum(plane.slack for plane in planes) + (len(planes) + 3) * _EPS * sizes
        self.lower = max(self.lower, bound)

    def evaluate(
        self, shares: np.ndarray, n_own: int = 0, **news: np.ndarray
    ) -> Rounds[tuple[np.ndarray, list[list[Plane]]]]:
        """Return the parts' costs of shares, and their tangent planes.

        Bounds are learned from these, and from the minorants of `n_own` potentials that groups
        hold; `news` is what groups learn before they answer.
        """
        self.n_iter += 1
        own = {"own": np.array([n_own])} if n_own else {}
        size = 1 + (1 + n_own) * (1 + self.n_candidates)
        parts = yield from ask("evaluate", size, shares=shares, **own, **news)
        messages = parts[:, 1:].reshape(len(parts), -1, 1 + self.n_candidates)
        planes = [
            [Plane(message[1:], float(message[0])) for message in messages[:, i]]
            for i in range(messages.shape[1])
        ]
        upper = math.fsum(parts[:, 0])
        # The best shares of all rounds, as steps of both methods may go up.
        if upper < self.upper:
            self.upper, self.shares = upper, shares
        for planes_of_parts in planes:
            self.learn(planes_of_parts)
        if self._callback is not None:
            self._callback(self.n_iter, self.lower, self.upper)
        return parts[:, 0], planes


def into_capped_simplex(shares: np.ndarray, n_support: int) -> np.ndarray:
    """Move shares into the capped simplex, which rounding or a tolerance made them leave."""
    cap = 1.0 / n_support
    # Solvers keep bounds up to a tolerance, and certificates are about exact ones.
    shares = np.clip(shares, 0.0, cap)
    missing = 1.0 - math.fsum(shares)
    room = cap - shares if missing > 0 else shares
    total = math.fsum(room)
    return shares + room * (missing / total) if total > 0 else shares


def cutting_planes(relaxation: Relaxation) -> Rounds[None]:
    """Improve shares and bound until the gap is closed or nothing can be improved."""
    # Of the trust region, in units of the cap.
    first_radius = 0.1
    center, radius, n_support = relaxation.shares, first_radius, relaxation.n_support
    heights, (touching,) = yield from relaxation.evaluate(center)
    models = [[plane] for plane in touching]
    while not relaxation.finished:
        proposal = _propose(models, center, n_support, heights, relaxation.gap, radius)
        # A linear program that failed ends the method: what is known stays certified.
        if proposal is None:
            break
        shares, expected, multipliers = proposal
        relaxation.learn(list(map(mixture, models, multipliers)))
        # The mixture may have closed the gap without a further round.
        if relaxation.converged:
            break
        trial, (touching,) = yield from relaxation.evaluate(shares)
        models = [
            [*_still_needed(planes, of_planes), plane]
            for planes, of_planes, plane in zip(models, multipliers, touching, strict=True)
        ]
        decrease = float(heights.sum() - trial.sum())
        radius = _next_radius(radius, decrease, expected, relaxation.gap)
        # A serious step; otherwise the planes at the trial alone improve the model.
        if decrease > 0:
            center, heights = shares, trial


def _still_needed(planes: Sequence[Plane], multipliers: np.ndarray) -> list[Plane]:
    """Return the planes without those that have not mattered for long."""
    no_plane = 1e-12
    # Planes that were slack for this many rounds are forgotten.
    patience = 20
    for plane, multiplier in zip(planes, multipliers, strict=True):
        plane.idle = 0 if multiplier > no_plane else plane.idle + 1
    return [plane for plane in planes if plane.idle <= patience]


def _next_radius(radius: float, decrease: float, expected: float, gap: float) -> float:
    """Return the trust region's next radius, which is at most 1: the whole capped simplex."""
    accepted, good = 0.1, 0.5
    if decrease >= good * expected:
        radius *= 2.0
    elif decrease < 0:
        radius /= 2.0 if decrease > -expected else 4.0
    # If no step within the region can gain anything, the bound must be improved.
    if expected <= accepted * gap:
        radius *= 4.0
    return min(radius, 1.0)


def _propose(
    models: Sequence[Sequence[Plane]],
    center: np.ndarray,
    n_support: int,
    heights: np.ndarray,
    unit: float,
    radius: float,
) -> tuple[np.ndarray, float, list[np.ndarray]] | None:
    """Minimise the models near the center: shares, expected decrease, multipliers of the planes.

    A model is its planes, and `heights` are the values of models at the center. Variables are the
    moves in units of the cap, and the models' changes in units of the gap: the solver's absolute
    tolerances then act as relative ones.
    """
    n_candidates = len(center)
    planes = [plane for model in models for plane in model]
    model_of = np.repeat(np.arange(len(models)), [len(model) for model in models])
    prices = np.array([plane.prices for plane in planes])
    constants = prices @ center - heights[model_of]
    # Moves have the sum 0, so a common part of the prices changes nothing, and digits are saved.
    slopes = prices - prices.mean(axis=1, keepdims=True)
    constraints = np.hstack([slopes / (n_support * unit), -np.eye(len(models))[model_of]])
    filling = center * n_support
    moves = np.column_stack([np.maximum(-filling, -radius), np.minimum(1.0 - filling, radius)])
    bounds = np.vstack([moves, np.tile([-np.inf, np.inf], (len(models), 1))])
    balance = np.concatenate([np.ones(n_candidates), np.zeros(len(models))])
    solution = linprog(
        1.0 - balance,
        A_ub=constraints,
        b_ub=-constants / unit,
        A_eq=balance[None],
        b_eq=[0.0],
        bounds=bounds,
        method="highs",
    )
    if solution.status != 0:
        return None
    multipliers = np.maximum(-solution.ineqlin.marginals, 0.0)
    shares = into_capped_simplex(center + solution.x[:n_candidates] / n_support, n_support)
    of_models = [multipliers[model_of == m] for m in range(len(models))]
    return shares, -float(solution.fun) * unit, of_models


def dual_subgradient(
    relaxation: Relaxation,
    batches: Iterable[np.ndarray] | None = None,
    primal_recovery: int | None = None,
) -> Rounds[None]:
    """Take steps until the gap is closed, the batches are used up, or no round is left.

    Groups send T, and learn the selected candidates with the next step. The distinct candidates of
    each step are a batch: see `candidate_barycenter`.
    """
    averaged = 200
    rounds_per_check = 50
    # The first step for one point too many or too few, in units of the mean cost above the
    # smallest.
    first_step = 0.05
    n_support, every = relaxation.n_support, np.arange(relaxation.n_candidates)
    recent: deque[tuple[float, np.ndarray]] = deque(maxlen=primal_recovery or averaged)
    best_value, n_steps = -math.inf, 0
    news: Arrays = {}
    queue: Any = None if batches is None else iter(batches)
    while not relaxation.finished:
        batch = every if queue is None else next(queue, None)
        if batch is not None:
            n_selected = max(1, round(n_support * len(batch) / len(every)))
            seen = {} if batch is every else {"batch": batch.astype(np.int64)}
            sums = yield from ask("dual", len(batch), **news, **seen)
            usefulness = sums.sum(axis=0)
            relaxation.n_iter += 1
            n_steps += 1
            chosen = np.sort(np.argpartition(-usefulness, n_selected - 1)[:n_selected])
            value = -math.fsum(usefulness[chosen]) if batch is every else -math.inf
            step = 1.0 / math.sqrt(n_steps)
            recent.append((step, batch[chosen]))
            news = {
                "selected": chosen.astype(np.int64),
                "step": np.array([first_step * relaxation.scale * step]),
                "is_best": np.array([value > best_value], dtype=np.int64),
            }
            best_value = max(best_value, value)
        # An evaluation costs exact transport in every group, and steps cost much less.
        is_last = batch is None or relaxation.n_iter >= relaxation.max_iter - 1
        if is_last or n_steps % rounds_per_check == 0:
            yield from relaxation.evaluate(_average_selection(recent, relaxation), 2, **news)
            news = {}
        if batch is None:
            break


def _average_selection(
    selections: Iterable[tuple[float, np.ndarray]], relaxation: Relaxation
) -> np.ndarray:
    """Return the average of selections, each weighted by the length of its step, as shares."""
    total = np.zeros(relaxation.n_candidates)
    for step, chosen in selections:
        # Longer steps were earlier ones, and the averages that converge weigh by length.
        total[chosen] += step / len(chosen)
    mass = total.sum()
    return into_capped_simplex(total / mass, relaxation.n_support) if mass else relaxation.shares


# What closes the gap of a relaxation, and the largest number of rounds unless another one is given.
METHODS: dict[str, tuple[Callable[..., Rounds[None]], int]] = {
    "bundle": (cutting_planes, 200),
    "dual": (dual_subgradient, 3000),
}
