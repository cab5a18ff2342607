"""The example of attacks on a round: what they recover is true, and of a release it is chance."""

import importlib.util
import math
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import norm

EXAMPLE = Path(__file__).parents[2] / "examples" / "federation" / "plot_attacks.py"


@pytest.fixture(scope="module")
def example():
    """Return the example as a module."""
    matplotlib.use("Agg")
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def homes(example):
    """Return the homes of the patients of three clinics."""
    return example.draw_homes()


@pytest.fixture(scope="module")
def grid(example):
    """Return the candidates."""
    return example.public_grid(240)


@pytest.fixture(scope="module")
def seen(example, homes, grid):
    """Return what the first round discloses."""
    return example.attack_round(homes, grid)


def weighted_minima(example, homes, grid):
    """Return the sum of the clinics' messages in units of 1 / M, and each one's nearest home."""
    costs = [cdist(own, grid, "sqeuclidean") for own in homes]
    nearest = [own[cost.argmin(axis=0)] for own, cost in zip(homes, costs, strict=True)]
    return -np.tensordot(example.WEIGHTS, [cost.min(axis=0) for cost in costs], axes=1), nearest


def distance_to_nearest(points, others):
    """Return how far each point is from the nearest of the others."""
    return cdist(points, others).min(axis=1)


def test_messages_and_masks(example, homes, grid):
    messages = [
        example.message(own, weight, grid)
        for own, weight in zip(homes, example.WEIGHTS, strict=True)
    ]
    total = np.sum(messages, axis=0)
    expected = weighted_minima(example, homes, grid)[0] / example.N_SUPPORT
    np.testing.assert_allclose(total, expected, atol=1e-12)
    words = example.masked(messages)
    exact = example.as_numbers(np.sum(words, axis=0))
    assert np.abs(exact - total).max() <= 1.5 * example.RESOLUTION + 1e-14
    # Masked words are uniform: their leading bits, and whether neighbours have equal ones.
    for word in words:
        bits = word >> np.uint64(63)
        assert abs(bits.mean() - 0.5) < 4 * 0.5 / math.sqrt(len(bits))
        assert abs((bits[1:] == bits[:-1]).mean() - 0.5) < 4 * 0.5 / math.sqrt(len(bits))


def test_plain_messages_disclose_homes_and_masked_ones_none(homes, seen):
    for own, found, hidden in zip(homes, seen.plain, seen.masked, strict=True):
        assert len(found) >= 0.95 * len(own)
        assert distance_to_nearest(found, own).max() < 1e-6
        assert len(hidden) == 0


def test_pieces_are_parts_of_the_sum(example, homes, grid, seen):
    total, nearest = weighted_minima(example, homes, grid)
    u = total + (grid**2).sum(axis=1)
    assert len(seen.pieces) > 400
    envelope = (2 * grid @ seen.pieces[:, :2].T + seen.pieces[:, 2]).max(axis=1)
    assert (envelope - u).max() < 1e-6
    means = np.unique(np.tensordot(example.WEIGHTS, nearest, axes=1), axis=0)
    assert distance_to_nearest(seen.pieces[:, :2], means).max() < 1e-6
    assert example.n_recovered(seen.pieces[:, :2], example.true_means(homes, grid)) == len(
        seen.pieces
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_sum_discloses_single_homes_of_every_clinic(example, seed):
    homes = example.draw_homes(seed=seed)
    found = example.attack_round(homes, example.public_grid(240)).of_sum
    assert sum(map(len, found)) > 0.4 * sum(map(len, homes))
    for own, disclosed in zip(homes, found, strict=True):
        assert len(disclosed) > 0.2 * len(own)
        assert distance_to_nearest(disclosed, own).max() < 1e-6


def test_collusion_leaves_a_plain_message(homes, seen):
    assert len(seen.by_collusion) >= 0.95 * len(homes[0])
    assert distance_to_nearest(seen.by_collusion, homes[0]).max() < 1e-6


def test_solutions_for_the_right_and_for_a_wrong_weight(example):
    rng = np.random.default_rng(0)
    own, other = rng.normal(size=(3, 2)), rng.normal(size=2)
    weight, wrong = 0.3, 0.5
    pieces = np.array(
        [
            [*weight * home + 0.7 * other, -weight * home @ home - 0.7 * other @ other]
            for home in own
        ]
    )
    triples = np.array([[0, 1, 2]])
    np.testing.assert_allclose(example.solutions(pieces, triples, weight), own, atol=1e-12)
    # Equally far from all three.
    corner = np.linalg.solve(
        2 * (own[1:] - own[0]), (own[1:] ** 2).sum(axis=1) - (own[0] ** 2).sum()
    )
    np.testing.assert_allclose(np.ptp(np.linalg.norm(own - corner, axis=1)), 0, atol=1e-12)
    np.testing.assert_allclose(
        example.solutions(pieces, triples, wrong),
        own + (weight / wrong - 1) * (own - corner),
        atol=1e-12,
    )


@pytest.mark.parametrize("n_homes", [1, 2, 3])
def test_where_no_three_pieces_meet_twice_no_home_is_found(example, n_homes):
    first, *others = example.draw_homes()
    homes = [first[:n_homes], *(own[:1] for own in others)]
    seen = example.attack_round(homes, example.public_grid(40))
    assert len(seen.pieces) == n_homes
    assert [len(found) for found in seen.of_sum] == [0, 0, 0]
    assert len(example.attack_round(homes, example.public_grid(2)).pieces) == 0


def test_of_a_release_attacks_recover_what_was_released(example, homes):
    points, seen = example.attack_release(homes, example.public_grid(120))
    assert sum(map(len, points)) > len(homes)
    for own, released, found in zip(homes, points, seen.plain, strict=True):
        assert len(found) == len(released)
        assert distance_to_nearest(found, released).max() < 1e-6
        assert distance_to_nearest(found, own).min() > 1e-6
    for own, found in zip(homes, seen.of_sum, strict=True):
        assert not len(found) or distance_to_nearest(found, own).min() > 1e-6


@pytest.mark.parametrize(("kind", "n_releases"), [("histogram", 10), ("moments", 10), ("fit", 2)])
def test_a_release_hits_patients_no_more_than_strangers(example, homes, kind, n_releases):
    exact, near = example.hit_rates(homes, kind, (1e-6, 0.1), n_releases)
    assert exact == (0, 0, 0)
    deviation = math.sqrt(near.strangers * (1 - near.strangers) / sum(map(len, homes)))
    assert 0 < near.strangers
    assert near.patients < near.strangers + 3 * deviation


def test_plain_messages_hit_patients_and_no_strangers(example, homes, seen):
    strangers = example.draw_homes(seed=1)
    assert example.share_hit(homes, seen.plain, 1e-6) > 0.95
    assert example.share_hit(strangers, seen.plain, 1e-6) == 0


def test_a_patient_is_told_by_the_sum(example, homes):
    advantage, n_targets = example.advantage_against_sum(homes, example.public_grid(200), 3)
    assert (advantage, n_targets) == (1, 3)


def test_a_patient_is_hardly_told_by_the_release(example, homes):
    result = example.audit_release(homes)
    assert 0.2 < result.epsilon_lower < example.EPSILON
    plan = example.plan_release("histogram", example.LAYOUT, 1, 60, 1.0, 1e-6)
    scale = plan.event.event.noise_multiplier * math.sqrt(2)
    exact = 2 * norm.cdf(math.sqrt(2) / (2 * scale)) - 1
    assert example.advantage_of(result) == pytest.approx(exact, abs=0.01)
    assert exact < example.largest_advantage() == pytest.approx(math.tanh(0.5), abs=2e-6)


def test_neighbours_differ_in_one_home(example, homes):
    changed = example.with_stranger(homes, 7, [1.0, 2.0])
    assert changed[0][7].tolist() == [1, 2]
    assert np.flatnonzero((changed[0] != homes[0]).any(axis=1)).tolist() == [7]
    assert changed[1] is homes[1] and changed[2] is homes[2]


def test_tables_and_figure(example, homes, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = example.print_round(homes, sides=(40, 60))
    example.print_release(homes, example.public_grid(60), n_releases=1)
    example.print_membership(homes, example.public_grid(150))
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("plateaus", "strangers", "Advantage"))
    figure = example.draw(homes, seen, *example.released_homes(homes))
    assert len(figure.axes) == 3
    example.plt.close(figure)
    assert not list(tmp_path.iterdir())
