"""Barycenters by rounds of sums: against methods that see everything, and as a protocol."""

import functools

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from skdpot.transport.barycenter import (
    PointGroup,
    candidate_barycenter,
    free_support_barycenter,
    solve,
)
from tests.oracles.barycenter import capped_barycenter_value, objective_of

CHOOSING = ("dual", "bundle")
MEANS = np.array([(-2, -2), (2, 2), (2, -2), (-2, 2), (0, 0)])
COVARIANCE = [[0.5, -0.2], [-0.2, 0.5]]
PAPERS_WEIGHTS = (0.7, 0.1, 0.05, 0.05, 0.1)


def papers_groups(n, n_candidates, seed=0):
    rng = np.random.default_rng(seed)
    groups = [rng.multivariate_normal(mean, COVARIANCE, n) for mean in MEANS]
    return groups, rng.normal(size=(n_candidates, 2)) * np.sqrt(5)


def small_groups(seed=0, sizes=(6, 9, 4), n_candidates=14, n_features=2):
    rng = np.random.default_rng(seed)
    groups = [rng.normal(size=n_features) + rng.normal(size=(n, n_features)) for n in sizes]
    return groups, rng.normal(size=(n_candidates, n_features)) * 1.5


def masses_of(groups):
    return [np.full(len(group), 1 / len(group)) for group in groups]


def exact_sum(answers, step):
    return functools.reduce(np.add, answers)


def problem_of(n_groups, n_support, weights="proportional", candidates=None, **options):
    """Return the arguments of the generator."""
    if options.get("method") == "free":
        candidates = None
    facts = {"n_groups": n_groups, "n_support": n_support, "weights": weights}
    return {**facts, "candidates": candidates, "n_features": 2, **options}


def run(problem, members, add=exact_sum, between=lambda members: members):
    """Let members answer until the end: return the result, the steps, and the sums."""
    rounds, steps, sums = solve(**problem), [], []
    step = next(rounds)
    while True:
        answers = [one.answer(step.kind, step.arrays, member) for member, one in enumerate(members)]
        for answer in answers:
            assert answer.dtype == np.float64 and answer.shape == (step.size,)
        steps.append(step)
        sums.append(add(answers, step))
        members = between(members)
        try:
            step = rounds.send(sums[-1])
        except StopIteration as end:
            return end.value, steps, sums


def barycenter(groups, candidates, weights, n_support, **options):
    """Return the result for groups; points of method "free" need no candidates."""
    problem = problem_of(len(groups), n_support, weights, candidates, **options)
    return run(problem, list(map(PointGroup, groups)))[0]


def squared(groups, candidates):
    return [cdist(group, candidates, "sqeuclidean") for group in groups]


def value(groups, support, weights):
    """Return the exact objective of a support, by POT."""
    return objective_of(range(len(support)), squared(groups, support), weights)


def assert_certified(result, groups, candidates, weights, n_support):
    """Check what a result says about itself by linear programs."""
    costs = squared(groups, candidates)
    best = capped_barycenter_value(costs, weights, n_support)
    rounding = 1e-9 * max(cost.max() for cost in costs)
    assert result.lower_bound <= best + rounding
    assert best <= result.relaxed_objective + rounding
    assert len(np.unique(result.chosen)) == n_support
    assert np.array_equal(result.support, candidates[result.chosen])
    shares = result.shares
    assert shares.min() >= 0 and shares.max() <= (1 + 1e-12) / n_support
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    reached = objective_of(result.chosen, costs, weights)
    assert result.objective - result.gap - rounding <= reached <= result.objective + rounding
    assert result.gap <= rounding
    assert result.lower_bound <= result.objective


@pytest.mark.parametrize("method", CHOOSING)
@pytest.mark.parametrize("seed", range(2))
def test_certificates_hold(method, seed):
    groups, candidates = small_groups(seed)
    weights = np.random.default_rng(seed).dirichlet(np.ones(3))
    result = barycenter(groups, candidates, weights, 5, method=method, tol=3e-2)
    assert result.converged
    assert result.relaxed_objective - result.lower_bound <= 3.001e-2 * result.relaxed_objective
    assert_certified(result, groups, candidates, weights, 5)


@pytest.mark.parametrize(("method", "tol"), [("dual", 1e-2), ("bundle", 1e-4)])
def test_gap_on_papers_problem(method, tol):
    """As good as what a solver that sees everything finds, up to both tolerances."""
    groups, candidates = papers_groups(40, 80)
    found = barycenter(groups, candidates, PAPERS_WEIGHTS, 20, method=method, tol=tol)
    costs = squared(groups, candidates)
    local = candidate_barycenter(costs, PAPERS_WEIGHTS, 20, candidates=candidates, tol=1e-5)
    assert found.converged
    assert found.lower_bound <= local.relaxed_objective
    assert local.lower_bound <= found.relaxed_objective <= (1 + tol) * local.relaxed_objective
    assert found.objective == pytest.approx(local.objective, rel=1e-2)


@pytest.mark.parametrize(("n_support", "max_iter"), [(20, 60), (1, 8), (3, 31)])
def test_dual_steps_are_those_of_the_local_solver(n_support, max_iter):
    groups, candidates = papers_groups(60, 80)
    # The local solver counts costs from the smallest of all groups, and this one from each group's.
    groups = [np.vstack([group, candidates[s]]) for s, group in enumerate(groups)]
    options = {"tol": 1e-9, "max_iter": max_iter}
    found = barycenter(groups, candidates, PAPERS_WEIGHTS, n_support, method="dual", **options)
    with pytest.warns(UserWarning, match="stopped after"):
        local = candidate_barycenter(
            squared(groups, candidates), PAPERS_WEIGHTS, n_support, method="dual",
            candidates=candidates, **options,
        )  # fmt: skip
    assert not found.converged
    assert found.lower_bound == pytest.approx(local.lower_bound, rel=1e-9)
    assert found.relaxed_objective == pytest.approx(local.relaxed_objective, rel=1e-12)
    np.testing.assert_allclose(found.shares, local.shares, atol=1e-15)
    assert np.array_equal(found.chosen, local.chosen)


def test_free_support_is_as_good_as_pots():
    groups, candidates = papers_groups(60, 60)
    found = barycenter(groups, None, PAPERS_WEIGHTS, 30, method="free", tol=1e-6)
    start = candidates[:30]
    pot = ot.lp.free_support_barycenter(
        groups, masses_of(groups), start, weights=np.array(PAPERS_WEIGHTS), numItermax=200
    )
    assert found.converged
    reached = value(groups, found.support, PAPERS_WEIGHTS)
    assert found.objective == pytest.approx(reached, rel=1e-9)
    assert found.gap <= 1e-9 * reached
    assert reached <= 1.01 * value(groups, pot, PAPERS_WEIGHTS)
    local = free_support_barycenter(groups, PAPERS_WEIGHTS, start)
    assert local.lower_bound <= reached <= 1.01 * local.objective
    assert found.chosen is None and found.shares is None and np.isnan(found.lower_bound)


def test_free_rounds_lower_the_objective():
    groups, _ = papers_groups(80, 1)
    options = {"method": "free", "tol": 1e-9}
    values = [
        barycenter(groups, None, PAPERS_WEIGHTS, 30, max_iter=n, **options).objective
        for n in (1, 2, 3, 100)
    ]
    assert (np.diff(values) < 0).all()
    assert not barycenter(groups, None, PAPERS_WEIGHTS, 30, max_iter=2, **options).converged


@pytest.mark.parametrize("method", CHOOSING)
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_bounds_of_a_known_optimum(method, shift):
    """All numbers are integers, and so is the optimum: no rounding excuses a bound beyond it."""
    square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    groups = [square + shift, 3 * square + 4 + shift]
    candidates = np.stack(np.meshgrid(range(8), range(8)), axis=-1).reshape(-1, 2) + shift
    result = barycenter(groups, candidates, [0.5, 0.5], 4, method=method, tol=1e-13, max_iter=300)
    assert result.lower_bound <= 13 <= result.relaxed_objective
    assert 13 <= result.objective < 13 + 1e-9
    if method == "bundle":
        assert result.converged and result.relaxed_objective - result.lower_bound < 1e-8


def edge_cases():
    groups, candidates = small_groups()
    three, two = [0.5, 0.2, 0.3], [0.4, 0.6]
    yield "one support point", groups, candidates, three, 1
    yield "all candidates", groups, candidates, three, len(candidates)
    yield "one group", groups[:1], candidates, [1.0], 4
    yield "a group of one point", [groups[0], groups[1][:1]], candidates, two, 4
    yield "groups of equal points", [np.ones((5, 2)), np.zeros((3, 2))], candidates, two, 4
    yield "a group without weight", groups, candidates, [0.5, 0.0, 0.5], 4
    yield "equal candidates", groups, np.ones((6, 2)), three, 3
    yield "no cost", [candidates[:4], candidates[:4]], candidates[:8], two, 4


@pytest.mark.parametrize("method", [*CHOOSING, "free"])
@pytest.mark.parametrize("case", list(edge_cases()), ids=lambda case: case[0])
def test_edges(method, case):
    name, groups, candidates, weights, n_support = case
    if method == "free":
        result = barycenter(groups, None, weights, n_support, method=method, tol=1e-9)
        assert result.converged and result.support.shape == (n_support, 2)
        reached = value(groups, result.support, weights)
        assert result.objective == pytest.approx(reached, abs=1e-9)
        mean = sum(w * group.mean(axis=0) for w, group in zip(weights, groups, strict=True))
        np.testing.assert_allclose(result.support.mean(axis=0), mean, atol=1e-4)
        return
    how = {"method": method, "max_iter": 150, "tol": 2e-2}
    result = barycenter(groups, candidates, weights, n_support, **how)
    assert_certified(result, groups, candidates, weights, n_support)
    # On few points, subgradient steps take long: those of the local solver, too.
    reached = {"dual": 0.25, "bundle": 0.02}[method]
    gap = result.relaxed_objective - result.lower_bound
    # Of no cost, subgradient steps find no more than a small part of the scale.
    unit = 1.0 if name == "no cost" else result.relaxed_objective
    assert gap <= 1.01 * reached * unit + 1e-9


@pytest.mark.parametrize("method", [*CHOOSING, "free"])
def test_groups_may_be_put_away_between_steps(method):
    groups, candidates = papers_groups(40, 50)
    # On a grid there are many optimal couplings, of which the last tree decides on one.
    groups, candidates = [np.rint(group) for group in groups], np.rint(candidates)
    problem = problem_of(5, 10, PAPERS_WEIGHTS, candidates, method=method, max_iter=60)
    _, steps, sums = run(problem, list(map(PointGroup, groups)))

    def put_away(members):
        fresh = []
        for member, points in zip(members, groups, strict=True):
            state = member.put_away()
            assert {array.dtype for array in state.values()} <= {np.dtype("f8"), np.dtype("i8")}
            assert all(array.ndim for array in state.values())
            another = PointGroup(points)
            another.restore(state)
            fresh.append(another)
        return fresh

    _, same_steps, same_sums = run(problem, list(map(PointGroup, groups)), between=put_away)
    assert_same(steps, same_steps)
    assert len(sums) == len(same_sums)
    assert all(map(np.array_equal, sums, same_sums))


def assert_same(steps, others):
    assert [step.kind for step in steps] == [step.kind for step in others]
    for step, other in zip(steps, others, strict=True):
        assert step.size == other.size
        assert step.arrays.keys() == other.arrays.keys()
        assert all(np.array_equal(array, other.arrays[name]) for name, array in step.arrays.items())


@pytest.mark.parametrize("method", [*CHOOSING, "free"])
def test_a_coordinator_is_its_sums(method):
    groups, candidates = papers_groups(20, 30)
    problem = problem_of(5, 10, "proportional", candidates, method=method)
    result, steps, sums = run(problem, list(map(PointGroup, groups)))
    again, replayed = solve(**problem), []
    with pytest.raises(StopIteration) as end:
        replayed.append(next(again))
        for total in sums:
            replayed.append(again.send(total))
    assert_same(steps, replayed)
    assert np.array_equal(end.value.value.support, result.support)


def test_weights_in_proportion_to_sizes():
    groups, candidates = small_groups()
    sizes = np.array([len(group) for group in groups])
    found = barycenter(groups, candidates, "proportional", 5, method="bundle")
    expected = barycenter(groups, candidates, sizes / sizes.sum(), 5, method="bundle")
    assert found.relaxed_objective == expected.relaxed_objective
    assert np.array_equal(found.chosen, expected.chosen)


def test_answers_are_as_long_as_problems_say():
    groups, candidates = small_groups()
    problem = problem_of(3, 5, candidates=candidates, method="bundle", tol=1e-7)
    _, steps, _ = run(problem, list(map(PointGroup, groups)))
    assert [step.kind for step in steps[:3]] == ["size", "begin", "evaluate"]
    sizes = {step.size for step in steps if step.kind == "evaluate"}
    assert sizes == {1 + 1 + len(candidates)}
    assert {step.size for step in steps if step.kind == "images"} == {2 + 5 * 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_groups": 0}, "n_groups must be at least 1"),
        ({"n_support": 0}, "n_support must be at least 1"),
        ({"n_support": 3}, "must not be above the number of candidates"),
        ({"method": "exact"}, "method must be one of"),
        ({"candidates": None}, "need candidates"),
        ({"method": "free"}, "'free' takes none"),
        ({"candidates": [[0.0], [np.nan]]}, "matrix of finite numbers"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"weights": [0.5, 0.6]}, "weights"),
        ({"candidates": None, "method": "free"}, "needs n_features"),
    ],
)
def test_bad_problems(options, message):
    with pytest.raises(ValueError, match=message):
        next(solve(**{"n_groups": 2, "n_support": 1, "candidates": [[0.0], [1.0]], **options}))


def test_bad_members_and_answers():
    for points in ([], [1.0], [[np.inf]], np.empty((3, 0))):
        with pytest.raises(ValueError, match="non-empty matrix"):
            PointGroup(points)
    member = PointGroup([[1.0]])
    with pytest.raises(ValueError, match="before a beginning"):
        member.answer("dual", {}, 0)
    rounds = solve(1, 1, weights=[1.0], candidates=[[0.0], [1.0]])
    step = next(rounds)
    member.answer(step.kind, step.arrays, 0)
    with pytest.raises(ValueError, match="there is no step"):
        member.answer("points", {}, 0)
    with pytest.raises(ValueError, match="sums of 2 finite numbers"):
        rounds.send(np.zeros(3))
    rounds = solve(1, 1, weights=[1.0], candidates=[[0.0], [1.0]])
    next(rounds)
    with pytest.raises(ValueError, match="sums of 2 finite numbers"):
        rounds.send(np.array([0.0, np.nan]))
