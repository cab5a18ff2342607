"""The example of projected distributions and of the published iteration."""

import math

import numpy as np
import pytest

REGS = (0.03, 0.01)


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("sampling/plot_projected_distributions.py")


@pytest.fixture(scope="module")
def projections(example):
    """Return what the mechanisms make of a user's distribution over fewer points."""
    return example.project_user(example.draw_user(seed=1, n_points=40))


@pytest.fixture(scope="module")
def convergence(example, projections):
    """Return the costs of the published iteration."""
    return example.measure_convergence(
        projections.user, projections.base_measure, regs=REGS, n_rounds=300
    )


def test_projections_keep_to_the_bounds(example, projections):
    upper = math.exp(example.EPSILON) * projections.base_measure
    for name in (example.WASSERSTEIN, example.KL):
        assert (projections.base_measure <= projections.targets[name]).all()
        assert (projections.targets[name] <= upper).all()


def test_wasserstein_projection_costs_least(example, projections):
    cost = projections.costs[example.WASSERSTEIN]
    assert (
        0 < cost < 0.7 * min(projections.costs[example.KL], projections.costs[example.EXPONENTIAL])
    )


@pytest.mark.parametrize("seed", range(5))
def test_balance_is_exact(example, seed):
    rng = np.random.default_rng(seed)
    lower = rng.dirichlet(np.ones(30)) * 0.4
    q = np.exp(20 * rng.standard_normal(30))
    clipped = np.clip(example.balance(q, lower, 5 * lower) * q, lower, 5 * lower)
    assert clipped.sum() == pytest.approx(1, abs=1e-12)


def test_iteration_converges_from_within_the_bounds(example, projections, convergence):
    upper = math.exp(example.EPSILON) * projections.base_measure
    path = example.published_iteration(
        projections.user, example.ring_distances(40), projections.base_measure, example.EPSILON,
        REGS[0], n_rounds=20,
    )  # fmt: skip
    for projection in path:
        assert (projections.base_measure <= projection).all() and (projection <= upper).all()
        assert projection.sum() == pytest.approx(1, abs=1e-12)
    assert convergence.rounds[0] == 1 and convergence.rounds[-1] == 300
    for reg, costs in convergence.costs.items():
        excess = costs - convergence.exact
        assert (excess >= -1e-12).all()
        assert excess[-1] <= reg * math.log(40)
        assert costs[-1] == pytest.approx(costs[-2], rel=1e-4)
    assert convergence.costs[REGS[1]][-1] < convergence.costs[REGS[0]][-1]


def test_exact_cost_is_that_of_the_projection(example, projections, convergence):
    assert convergence.exact == pytest.approx(projections.costs[example.WASSERSTEIN], rel=1e-9)


def test_figures(example, projections, convergence):
    figure = example.draw_projections(projections)
    assert [name in figure.axes[k + 1].get_title() for k, name in enumerate(projections.targets)]
    example.plt.close(figure)
    figure = example.draw_convergence(convergence)
    assert [len(axes.lines) for axes in figure.axes] == [len(REGS) + 1] * 2
    example.plt.close(figure)
