"""The example of two proofs that do not hold: what was claimed, and that it is refuted."""

import numpy as np
import pytest
from scipy.special import logsumexp

pytestmark = pytest.mark.experiment


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("privacy/plot_two_proofs.py")


@pytest.fixture(scope="module")
def sinkhorn(example):
    """Return what the attack proves about noisy Sinkhorn."""
    return example.refute_sinkhorn(
        n_trials=50_000, n_trials_of_rounds=2000, variances=(0.002, 0.02, 0.2)
    )


@pytest.fixture(scope="module")
def accounting(example):
    """Return what the attack proves about one step of the generator's training."""
    return example.refute_accounting(n_trials=400_000, numbers_of_rows=(50, 100))


def test_claims_are_those_of_the_papers(example):
    assert example.claim_of_theorem(example.ONE_ROUND) == pytest.approx(3.91, abs=0.005)
    assert example.claim_of_theorem(example.THREE_ROUNDS) == pytest.approx(2.82, abs=0.005)
    for training in example.PRINTED.values():
        assert example.rows_as_queries(training) == pytest.approx(10.0, rel=0.005)


def test_noisy_sinkhorn_is_refuted(example, sinkhorn):
    for setting, result in (
        (example.ONE_ROUND, sinkhorn.one_round),
        (example.THREE_ROUNDS, sinkhorn.three_rounds),
    ):
        claim = example.claim_of_theorem(setting)
        assert result.exceeds(claim)
        assert claim < result.epsilon_lower < example.exact_epsilon(setting)


def test_exact_price_of_one_potential(example):
    assert example.exact_epsilon(example.ONE_ROUND) == pytest.approx(54.37, abs=0.01)
    assert example.exact_epsilon(example.THREE_ROUNDS) == pytest.approx(17.85, abs=0.01)
    settings = [example.ONE_ROUND._replace(variance=variance) for variance in example.VARIANCES]
    ratios = [example.exact_epsilon(one) / example.claim_of_theorem(one) for one in settings]
    assert 8.5 < min(ratios) < 9.5 and 18.5 < max(ratios) < 19.5


def test_claim_and_certified_bound_cross(example, sinkhorn):
    setting = example.ONE_ROUND
    claims = [example.claim_of_theorem(setting._replace(variance=m)) for m in sinkhorn.variances]
    np.testing.assert_array_equal(sinkhorn.certified > claims, [False, True, True])
    assert 0.002 < example.crossing(sinkhorn) < 0.02


@pytest.mark.parametrize("n_rounds", [1, 3])
def test_algorithm_is_that_of_the_paper(example, n_rounds):
    n, reg = 7, 0.8
    setting = example.SinkhornSetting(n, reg, n_rounds, variance=1e-20)
    x = np.linspace(1, 0, n)
    cost = np.abs(np.subtract.outer(x, np.zeros(n)))
    psi = np.zeros(n)
    for _ in range(n_rounds):
        phi = -reg * (logsumexp((psi - cost) / reg, axis=1) - np.log(n))
        phi -= phi.mean()
        psi = -reg * (logsumexp((phi[:, None] - cost) / reg, axis=0) - np.log(n))
    released = example.own_potential(setting)(x, 5, random_state=0)
    np.testing.assert_allclose(released, phi[0], atol=1e-8)


def test_accounting_is_refuted(example, accounting):
    claim = example.rows_as_queries(example.ONE_STEP)
    assert claim == pytest.approx(0.374, abs=0.001)
    assert claim < accounting[50].epsilon_lower < example.steps_as_queries(example.ONE_STEP)
    assert accounting[50].exceeds(claim) and accounting[100].exceeds(claim)


def test_sound_prices(example):
    prices = [example.steps_as_queries(training) for training in example.PRINTED.values()]
    np.testing.assert_allclose(prices, [846, 461], rtol=0.02)


@pytest.mark.parametrize("n_rows", [1, 50])
def test_far_record_turns_every_row_round(example, n_rows):
    clip = 1 / n_rows
    for n_near in (10, 50, 110):
        np.testing.assert_array_equal(example.clipped_rows(n_rows, n_near, 0, clip), clip)
        np.testing.assert_array_equal(example.clipped_rows(n_rows, n_near, 1, clip), -clip)
    assert not example.clipped_rows(n_rows, 0, 0, clip).any()


def test_step_has_the_noise_of_the_algorithm(example):
    training = example.ONE_STEP._replace(n_rows=4)
    sums = example.one_step(training)(np.zeros(60_000), 50_000, random_state=0)
    assert sums.mean() == pytest.approx(1.0, abs=0.05)
    assert sums.std() == pytest.approx(2 * (1 / 4) * 1.5 * np.sqrt(4), rel=0.02)


def test_tables_and_figures(example, sinkhorn, accounting, capsys):
    example.print_sinkhorn(sinkhorn)
    example.print_accounting(accounting)
    example.print_noise()
    printed = capsys.readouterr().out
    assert "claimed 3.91" in printed and "one potential exactly 54.4" in printed
    assert "MNIST: one step 0.37, 13.8; 160000 steps 10.0" in printed
    assert "epsilon = 10: 5e-05 on the cost, at least 0.5 on the potentials" in printed
    assert "n = 50 rows need sigma = 3.8 instead of 1.5" in printed
    for figure in (example.draw_sinkhorn(sinkhorn), example.draw_accounting(accounting)):
        assert len(figure.axes) == 2
        assert all(len(axes.lines) >= 3 for axes in figure.axes)
        example.plt.close(figure)
