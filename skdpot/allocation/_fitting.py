"""The ways to fit a plan: to utilities as they are, to what is released of them, or by messages.

What is returned are fitted attributes by their names.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from skdpot.allocation._estimates import estimate_utilities
from skdpot.allocation._inputs import make_releases, release_utilities
from skdpot.allocation._messages import make_noise, private_consensus
from skdpot.allocation._planning import plan_rounds
from skdpot.allocation._reading import (
    check_within,
    declare_utilities,
    make_utility,
    on_edges,
    read_factors,
    read_network,
    read_ranges,
    read_scale,
    read_source_utilities,
)
from skdpot.privacy.charging import charge, check_ledger
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.privacy.random import NoiseSource, make_source
from skdpot.transport.consensus import (
    BipartiteNetwork,
    LinearUtility,
    check_feasible,
    consensus,
    optimal_plan,
    starting_eta,
)

NEIGHBOURING = "replace_one"
_UNITS = {"parameter": "edge", "node": "node"}
_HISTORY = ("n_iter", "eta", "primal_residual", "dual_residual", "welfare", "bound")
# For whom linear programs take some seconds.
_FEW_EDGES = 100_000
# Rounds, at most, where there is no noise and nothing else is said.
_MOST_ROUNDS = 20_000


@dataclass(frozen=True, eq=False)
class Problem:
    """What there is to allocate; the network and the scale are public.

    Attributes
    ----------
    network : BipartiteNetwork
        Edges, and bounds of the nodes.
    values : list of ndarray of shape (n_edges,)
        Utilities of the targets, and of the sources if they have any: private, unless they are what
        was released.
    scale : ndarray of shape (n_edges,)
        The public parameter of utilities that have a second one.
    """

    network: BipartiteNetwork
    values: list[np.ndarray]
    scale: np.ndarray


def read_problem(settings: Any, X: Any, source_utilities: Any) -> Problem:
    """Return the problem, or raise where it is none."""
    private = settings.epsilon is not None
    # Raises where n_jobs is nothing that joblib understands, before a budget is charged.
    effective_n_jobs(settings.n_jobs)
    network = read_network(
        X, settings.adjacency, settings.target_bounds, settings.source_bounds, private=private
    )
    check_feasible(network)
    problem = problem_on(settings, network, X, source_utilities)
    if private:
        ranges = read_ranges(settings.utility_range)
        names = ("X", "source_utilities")
        for name, of, bounds in zip(names, problem.values, ranges, strict=False):
            # Raises where the family has no such member, which is public.
            make_utility(settings.utility, np.full(network.n_edges, bounds[0]), problem.scale)
            check_within(of, bounds, name)
    return problem


def problem_on(settings: Any, network: BipartiteNetwork, X: Any, source_utilities: Any) -> Problem:
    """Return the problem of these utilities on the edges of a network."""
    values = [on_edges(X, network)]
    if source_utilities is not None:
        values.append(on_edges(read_source_utilities(source_utilities, X.shape), network))
    return Problem(network, values, read_scale(settings.utility_scale, network))


def fit_openly(settings: Any, problem: Problem) -> dict[str, Any]:
    """Return what the nodes agree on, by messages in which nothing is hidden."""
    network, n_iter = problem.network, settings.n_iter or _MOST_ROUNDS
    adaptive = settings.eta == "adaptive"
    spread = max(float(np.ptp(of)) if len(of) else 0.0 for of in problem.values)
    with _progress(settings, n_iter) as bar:

        def pass_on(n_iter, eta, *answers):
            """Return answers as they are; it is called once in every round."""
            bar.update()
            return answers

        result = consensus(
            network,
            *utilities_of(settings, problem),
            eta=starting_eta(network, spread) if adaptive else float(settings.eta),
            adaptive=adaptive,
            tol=settings.tol,
            max_iter=n_iter,
            release=pass_on,
            n_threads=min(effective_n_jobs(settings.n_jobs), 2),
        )
    if not result.converged:
        warnings.warn(
            f"after {result.n_iter} rounds the welfare of the plan is within {result.gap:.1e} "
            f"of the largest possible one, and not within {settings.tol:g}. Raise n_iter or tol.",
            ConvergenceWarning,
            stacklevel=4 if settings.epsilon is None else 6,
        )
    return _told_of(result) | {"welfare_": result.welfare, "gap_": result.gap}


def fit_to_inputs(settings: Any, problem: Problem) -> dict[str, Any]:
    """Return the plan that is best for the utilities that the nodes release."""
    source = _source(settings)
    releases = make_releases(
        settings.mechanism, problem.network, epsilon=settings.epsilon,
        ranges=read_ranges(settings.utility_range), protect=settings.protect,
        factors=read_factors(settings.node_budgets, problem.network), both=len(problem.values) > 1,
    )  # fmt: skip
    promised = _charge(settings, releases, 0.0)
    told = release_utilities(releases, problem.network, problem.values, source)
    return promised | _plan_for(settings, problem, told)


def fit_by_messages(settings: Any, problem: Problem) -> dict[str, Any]:
    """Return the plan that messages with noise lead to."""
    source, network = _source(settings), problem.network
    declared = declare_utilities(
        settings.utility, read_ranges(settings.utility_range), settings.utility_scale, network,
        both=len(problem.values) > 1,
    )  # fmt: skip
    factors = read_factors(settings.node_budgets, network)
    budget = {"epsilon": settings.epsilon, "delta": settings.delta, "protect": settings.protect}
    rounds = plan_rounds(
        network, declared, factors=factors, averaging=settings.averaging, n_iter=settings.n_iter,
        eta=None if settings.eta == "adaptive" else float(settings.eta), **budget,
    )  # fmt: skip
    noises: Any = tuple(
        make_noise(side, of, n_rounds=rounds.n_iter, factors=part, source=source, **budget)
        for side, of, part in zip(
            (network.targets, network.sources), declared, factors, strict=True
        )
    )
    promised = _charge(settings, [of for of in noises if of is not None], settings.delta)
    targets, sources = utilities_of(settings, problem)
    of_nodes = network, (targets, None if declared[1] is None else sources), noises, declared
    if rounds.queries is not None:
        told = estimate_utilities(*of_nodes, rounds.queries, delta=settings.delta)
        return promised | _plan_for(settings, problem, [of for of in told if of is not None])
    with _progress(settings, rounds.n_iter) as bar:
        result = private_consensus(
            *of_nodes, eta=rounds.eta, n_iter=rounds.n_iter,
            average_from=rounds.average_from, progress=bar.update,
        )  # fmt: skip
    return promised | _told_of(result)


def utilities_of(settings: Any, problem: Problem) -> list[Any]:
    """Return the utilities of the targets and of the sources, who may have none."""
    found = [make_utility(settings.utility, of, problem.scale) for of in problem.values]
    nothing = LinearUtility(np.zeros(problem.network.n_edges))
    return found if len(found) == 2 else [*found, nothing]


def _plan_for(settings: Any, problem: Problem, told: list[np.ndarray]) -> dict[str, Any]:
    """Return the best plan for utilities that were released."""
    public = replace(problem, values=told)
    central = settings.utility == "linear" and _is_soon_solved(problem.network)
    fitted = _solve(settings, public) if central else fit_openly(settings, public)
    return fitted | dict(zip(("target_utilities_", "source_utilities_"), told, strict=False))


def _solve(settings: Any, problem: Problem) -> dict[str, Any]:
    """Return the best plan for linear utilities, as of whoever knows them all."""
    result = optimal_plan(problem.network, *utilities_of(settings, problem))
    return {
        "plan_": result.plan,
        "duals_": result.prices,
        "n_iter_": result.n_programs,
        "primal_residual_": 0.0,
        "dual_residual_": 0.0,
        "history_": dict.fromkeys(_HISTORY, np.empty(0)),
        "welfare_": result.welfare,
        "gap_": result.gap,
    }


def _source(settings: Any) -> NoiseSource:
    """Return where noise comes from; raise where its releases cannot be charged."""
    check_ledger(settings.ledger, NEIGHBOURING, seeded=settings.random_state is not None)
    return make_source(settings.random_state)


def _charge(settings: Any, releases: list[Any], delta: float) -> dict[str, Any]:
    """Charge what the nodes are about to release; return what is promised then."""
    # A unit belongs to one node, and all nodes together cost what the dearest costs.
    dearest = max(releases, key=lambda of: of.epsilons.max(initial=0.0))
    seeded = settings.random_state is not None
    charge(
        settings.ledger,
        dearest.event,
        unit=_UNITS[settings.protect],
        label=f"{type(settings).__name__} by {settings.mechanism}",
        neighbouring=NEIGHBOURING,
        seeded=seeded,
    )
    guarantee = PrivacyGuarantee(
        float(dearest.epsilons.max()), float(delta), NEIGHBOURING, _UNITS[settings.protect],
        _not_protected(settings, n_sides=len(releases)),
    )  # fmt: skip
    return {
        "privacy_guarantee_": None if seeded else guarantee,
        "epsilons_": tuple(of.epsilons for of in releases),
    }


def _not_protected(settings: Any, n_sides: int) -> tuple[str, ...]:
    """Return what the guarantee is not about, in words."""
    public = ("the edges of the network", "the bounds of its nodes", "running time")
    if n_sides == 1 or settings.protect == "node":
        return public
    return (*public, "both utilities of an edge, at its target and at its source, as one")


def _progress(settings: Any, n_rounds: int) -> Any:
    return tqdm(
        desc=type(settings).__name__, total=n_rounds, unit=" rounds", disable=not settings.verbose
    )


def _is_soon_solved(network: BipartiteNetwork) -> bool:
    """Tell whether linear programs are faster than rounds: on small networks, and on dense ones."""
    return network.n_edges <= max(_FEW_EDGES, network.shape[0] * network.shape[1] // 2)


def _told_of(result: Any) -> dict[str, Any]:
    """Return what a run of messages tells, and nothing that it computed from utilities."""
    return {
        "plan_": result.plan,
        "duals_": result.prices,
        "n_iter_": result.n_iter,
        "primal_residual_": result.primal_residual,
        "dual_residual_": result.dual_residual,
        "history_": result.history,
    }
