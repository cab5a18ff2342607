"""The coordinator of a federated barycenter: a generator of steps that is sent sums of answers."""

import math
from collections.abc import Generator

import numpy as np

from skdpot.federation._solvers._problem import (
    BarycenterProblem,
    BarycenterResult,
    Exchange,
    Step,
)
from skdpot.federation._solvers._relaxation_rounds import Relaxation, Rounds, project, relax
from skdpot.federation._solvers._support_rounds import choose, first_support, move_freely
from skdpot.transport.barycenter import _bregman
from skdpot.transport.barycenter._rounding import space_filling_order, systematic_choice

# After so many projections the choice is a good start for points that move freely.
_FIRST_PROJECTIONS = 20


def solve(problem: BarycenterProblem) -> Generator[Step, np.ndarray, BarycenterResult]:
    r"""Yield steps, be sent the sums of all groups' answers to them, and return a barycenter.

    Parameters
    ----------
    problem : BarycenterProblem
        What is public.

    Yields
    ------
    Step
        What groups are to answer.

    Returns
    -------
    BarycenterResult
        The barycenter. `converged` says whether the tolerance was reached in time.

    Raises
    ------
    ValueError
        If the sum that is sent is not of the length that the step says, or not finite.

    Notes
    -----
    It minimises :math:`\sum_s \lambda_s W_2^2(Q_s, q)` over distributions q of a given number of
    points of equal mass: :func:`~skdpot.transport.barycenter.candidate_barycenter` and
    :func:`~skdpot.transport.barycenter.free_support_barycenter` say what the algorithms do, and
    these find the same up to details: "bundle" has one model of the sum of all groups instead of a
    model of each, and "free" moves all groups at once, as Cuturi and Doucet do.

    All that is used of the answers is their sum. The same sums lead to the same steps, bit by bit:
    a coordinator that was interrupted goes on if a new generator is sent the sums that the old one
    got.

    *Not private.* Neither sums nor results are, unless points were made private before.

    Examples
    --------
    >>> from skdpot.federation._solvers import BarycenterProblem, solve
    >>> from skdpot.federation._solvers._steps import GroupSteps
    >>> groups = [GroupSteps([[0.0], [1.0]]), GroupSteps([[4.0], [5.0]])]
    >>> rounds = solve(BarycenterProblem(2, 2, n_features=1, method="free"))
    >>> step = next(rounds)
    >>> while True:
    ...     answers = [
    ...         group.answer(step.kind, step.arrays, member) for member, group in enumerate(groups)
    ...     ]
    ...     try:
    ...         step = rounds.send(sum(answers))
    ...     except StopIteration as end:
    ...         result = end.value
    ...         break
    >>> result.support.round(6).tolist(), round(result.objective, 6)
    ([[2.0], [3.0]], 4.0)
    """
    exchange = Exchange(problem)
    weighing = yield from exchange.who_weighs_what()
    if problem.candidates is None:
        support = yield from first_support(exchange, weighing)
        return (yield from _go_freely(exchange, support))
    relaxation = Relaxation(exchange, problem.candidates)
    yield from relaxation.begin(weighing)
    if problem.method == "free":
        support = yield from _rough_choice(relaxation)
        return (yield from _go_freely(exchange, support))
    yield from relax(relaxation, problem.method)
    exchange.news = {}
    chosen, placed = yield from choose(exchange, problem.candidates, relaxation.shares)
    return BarycenterResult(
        support=placed.support,
        chosen=chosen,
        shares=relaxation.shares,
        objective=placed.upper,
        gap=placed.upper - placed.lower,
        relaxed_objective=relaxation.upper,
        lower_bound=relaxation.lower,
        n_rounds=exchange.n_rounds,
        converged=relaxation.converged,
        history=relaxation.history,
    )


def _rough_choice(relaxation: Relaxation) -> Rounds[np.ndarray]:
    """Return candidates that a few projections choose."""
    relative = _bregman.FIRST_REG
    shares = relaxation.shares
    for _ in range(_FIRST_PROJECTIONS):
        log_shares, relative = yield from project(relaxation, relative)
        shares = np.exp(log_shares)
    relaxation.exchange.news = {}
    order = space_filling_order(relaxation.candidates, shares)
    return relaxation.candidates[systematic_choice(shares, order, relaxation.n_support)]


def _go_freely(exchange: Exchange, support: np.ndarray) -> Rounds[BarycenterResult]:
    """Let points move from where they are."""
    history: list[tuple[int, float, float]] = []
    placed, converged = yield from move_freely(exchange, support, history)
    return BarycenterResult(
        support=placed.support,
        chosen=None,
        shares=None,
        objective=placed.upper,
        gap=placed.upper - placed.lower,
        relaxed_objective=math.nan,
        lower_bound=math.nan,
        n_rounds=exchange.n_rounds,
        converged=converged,
        history=history,
    )
