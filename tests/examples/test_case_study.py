"""The case study of allocations, on few networks."""

import numpy as np
import pytest

from skdpot.privacy.sensitivity import message_sensitivity


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("allocation/plot_case_study.py")


def test_published_noise_has_the_printed_rate(example, rng):
    # A Gamma law of shape d has the mean d over the rate.
    lengths = np.linalg.norm(example.spheres(20_000, 4, 2.0, rng), axis=1)
    assert lengths.mean() == pytest.approx(2.0, rel=0.03)
    assert lengths.var() == pytest.approx(1.0, rel=0.1)


def test_the_budget_is_that_of_all_rounds(example):
    bounds = example.draw_case(0)[2]
    of_source = message_sensitivity(1.0, 4.0, 40.0, 30)
    assert example.price_of(0.5, bounds, 10) == pytest.approx(10 * 2.0 * 0.5 * of_source)


def test_rounds_without_noise_lead_to_the_best_plan(example):
    targets, sources, bounds = example.draw_case(0)
    rounds, welfare = example.agree(targets, sources, bounds)
    best = example.PrivateADMMTransport(None, **bounds).fit(targets, source_utilities=sources)
    assert len(rounds) == example.N_ROUNDS
    assert welfare == pytest.approx(best.welfare_, rel=0.01)


@pytest.mark.experiment
def test_utilities_are_worth_more_than_messages(example, capsys):
    scores = example.compare([10.0], [0.01], n_networks=3)
    ours, one, published, printed = (np.mean(shares) for _, shares in scores.values())
    assert 1.001 > ours > one > published == printed
    assert list(scores.values())[2][0][0] > 100 * 0.01
    example.print_table(scores)
    assert f"{ours:.3f}" in capsys.readouterr().out


def test_figures_are_drawn(example):
    case = example.draw_case(0)
    model = example.PrivateADMMTransport(None, **case[2]).fit(case[0], source_utilities=case[1])
    example.plot_rounds(case, model.welfare_)
    example.plot_plans(case, {"one": model, "other": model})
    assert len(example.plt.get_fignums()) == 2
    example.plt.close("all")
