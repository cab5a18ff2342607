r"""The paper's single-loop dual subgradient method, with a certificate.

A group keeps potentials phi of its points; theta_i of the paper is ``w_s phi_i``, with ``w_s =
lambda_s / M``. So a step in units of w_s is a step in units of cost here. Its message is ``T_k =
max_i (theta_i - w_s c_ik) - sum_i a_i theta_i``, K numbers. The best multiplier theta_0 of the
number of points is known for given messages. It selects the M candidates with the largest sums, and
the dual value is minus their sum. Groups receive these candidates.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._exchange import Arrays, Group, Rounds, answers, learns
from ._minorants import Minorant, best_points, minorant_of_potential
from ._relaxation import Relaxation, RelaxedMethod, into_capped_simplex, own_minorant

_MOMENTUM = 0.9
# The first step for one point too many or too few, in units of the mean cost above the smallest.
_FIRST_STEP = 0.05
_ROUNDS_PER_CHECK = 50
_AVERAGED = 200
# Numbers of the minorants that groups are asked for.
POTENTIAL_MINORANT, _BEST_POTENTIAL_MINORANT = 1, 2


@dataclass(eq=False)
class DualSubgradient(RelaxedMethod):
    """Subgradient steps: groups send T, and receive the selected candidates."""

    name = "dual"
    default_rounds = 3000
    # The distinct candidates of each step: see `candidate_barycenter`.
    batches: Iterable[np.ndarray] | None = None
    primal_recovery: int | None = None

    def relax(self, relaxation: Relaxation) -> Rounds[None]:
        """Take steps until the gap is closed, the batches are used up, or no round is left."""
        exchange, n_support = relaxation.exchange, relaxation.n_support
        unit = _FIRST_STEP * relaxation.scale
        recent: deque[tuple[float, np.ndarray]] = deque(maxlen=self.primal_recovery or _AVERAGED)
        best_value, n_steps = -math.inf, 0
        every = np.arange(relaxation.n_candidates)
        queue: Any = None if self.batches is None else iter(self.batches)
        while not relaxation.finished:
            batch = every if queue is None else next(queue, None)
            if batch is not None:
                n_selected = max(1, round(n_support * len(batch) / len(every)))
                largest = exchange.largest_cost + _largest_potential(relaxation, n_steps)
                seen = {} if batch is every else {"batch": batch.astype(np.int64)}
                usefulness = yield from exchange.ask(
                    "dual", len(batch), largest / n_support, **seen
                )
                relaxation.n_iter += 1
                n_steps += 1
                chosen = selected(usefulness, n_selected)
                value = -math.fsum(usefulness[chosen]) if batch is every else -math.inf
                step = 1.0 / math.sqrt(n_steps)
                recent.append((step, batch[chosen]))
                exchange.news = {
                    "selected": chosen.astype(np.int64),
                    "step": np.array([unit * step]),
                    "is_best": np.array([value > best_value], dtype=np.int64),
                }
                best_value = max(best_value, value)
            if batch is None or relaxation.n_left <= 1 or n_steps % _ROUNDS_PER_CHECK == 0:
                yield from relaxation.evaluate(
                    _average_selection(recent, relaxation),
                    (_BEST_POTENTIAL_MINORANT, POTENTIAL_MINORANT),
                    _largest_potential(relaxation, n_steps),
                )
            if batch is None:
                break


def selected(usefulness: np.ndarray, n_selected: int) -> np.ndarray:
    """Return the candidates of the largest sums of messages."""
    return np.sort(np.argpartition(-usefulness, n_selected - 1)[:n_selected])


def _average_selection(
    selections: Iterable[tuple[float, np.ndarray]], relaxation: Relaxation
) -> np.ndarray:
    """Return the average of selections, each weighted by the length of its step, as shares."""
    total = np.zeros(relaxation.n_candidates)
    for step, chosen in selections:
        total[chosen] += step / len(chosen)
    mass = total.sum()
    return into_capped_simplex(total / mass, relaxation.n_support) if mass else relaxation.shares


def _largest_potential(relaxation: Relaxation, n_steps: int) -> float:
    """Return how far potentials can be apart after so many steps.

    The entries of a subgradient are at most M, and the lengths of steps add up to 2 sqrt(n).
    """
    unit = _FIRST_STEP * relaxation.exchange.largest_cost
    return 4 * unit * relaxation.n_support * math.sqrt(n_steps) if n_steps else 0.0


# ------------------------------------------------------------------------------ computations of
# groups


@answers("dual")
def _message(group: Group, arrays: Arrays) -> np.ndarray:
    """Answer the message T of the paper's equation (15)."""
    potential = group.zeros("potential", len(group.masses))
    cost = group.cost[:, arrays["batch"]] if "batch" in arrays else group.cost
    unit = group.weight / int(group.state["n_support"][0])
    message, points = useful_candidates(cost, group.masses, unit, potential)
    group.state["points_that_serve"] = points.astype(np.int64)
    return message


def useful_candidates(
    cost: np.ndarray, masses: np.ndarray, unit: float, potential: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a group's message T of equation (15), and the points that attain its maxima."""
    prices, points = np.empty(cost.shape[1]), np.zeros(cost.shape[1], np.int32)
    best_points(cost, potential, prices, points)
    return -unit * (prices + math.fsum(masses * potential)), points


@learns("selected")
def _ascend(group: Group, arrays: Arrays) -> None:
    """Take a step along a group's subgradient: points that it should serve by, less those it does.

    Of a batch fewer than M candidates may be selected: they count for as many.
    """
    state, n_points = group.state, len(group.masses)
    potential, momentum = group.zeros("potential", n_points), group.zeros("momentum", n_points)
    if arrays["is_best"][0]:
        state["best_potential"] = potential.copy()
    serving = state["points_that_serve"][arrays["selected"]]
    served = np.bincount(serving, minlength=n_points) / len(serving)
    momentum *= _MOMENTUM
    momentum += (1 - _MOMENTUM) * int(state["n_support"][0]) * (group.masses - served)
    potential += float(arrays["step"][0]) * momentum


@own_minorant(POTENTIAL_MINORANT)
def _minorant_from_potential(group: Group) -> Minorant:
    potential = group.zeros("potential", len(group.masses)).copy()
    return minorant_of_potential(group.cost, group.masses, potential)


@own_minorant(_BEST_POTENTIAL_MINORANT)
def _minorant_from_best_potential(group: Group) -> Minorant:
    potential = group.zeros("best_potential", len(group.masses)).copy()
    return minorant_of_potential(group.cost, group.masses, potential)
