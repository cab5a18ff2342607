"""The mechanisms that prefer a cap: their law, their privacy, and bugs that would be noticed."""

import math

import numpy as np
import pytest
from scipy.special import betainc, betaincinv, erfc, ndtri
from scipy.stats import beta, chisquare, kstest

from skdpot.privacy.choices import (
    CapConstruction,
    CapRejection,
    _outside_coin,
    _precise_normals,
    exceeds_exp,
    rejection_is_affordable,
)
from skdpot.privacy.noise import make_source
from skdpot.transport import sphere_base_measure
from tests.oracles.sphere import cap_mechanism_cdf, unit_vectors
from tests.quick import first_quick

KINDS = [CapRejection, CapConstruction]


def release(mechanism, points, seed=0, n_samples=1):
    source = make_source(seed)
    return mechanism.draw(points, [source.for_user(i) for i in range(len(points))], n_samples)


def distances(points, outputs):
    """Return ``(1 - <x, y>) / 2``."""
    return ((points - outputs) ** 2).sum(axis=-1) / 4.0


def p_value(mechanism, n_features, epsilon, base, n_users=6000):
    """Chi-square test of the distances from many inputs, with an edge of a bin on the cap's."""
    points = unit_vectors(n_users, n_features)
    z = distances(points, release(mechanism, points)[:, 0])
    shape, cap = (n_features - 1) / 2, base.cap_probability
    quantiles = np.concatenate([np.linspace(0, cap, 8), np.linspace(cap, 1, 8)[1:]])
    edges = betaincinv(shape, shape, quantiles)
    edges[7] = base.threshold
    cdf = cap_mechanism_cdf(edges, n_features, epsilon, base.scale, base.threshold)
    counts = np.histogram(z, bins=np.maximum.accumulate(edges))[0]
    expected = np.diff(cdf) * n_users
    assert counts.sum() == n_users
    likely = expected > 5
    return chisquare(
        [*counts[likely], counts[~likely].sum() + 1e-9],
        [*expected[likely], expected[~likely].sum() + 1e-9],
    ).pvalue


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "n_features, epsilon, order",
    first_quick([(2, 0.5, 1), (5, 1.0, 3), (3, 2.0, 1), (20, 3.0, 1), (200, 1.0, 0.5)], 2),
)
def test_distances_follow_the_exact_law(kind, n_features, epsilon, order):
    base = sphere_base_measure(n_features, epsilon, order=order)
    mechanism = kind(n_features, epsilon, base.threshold)
    assert p_value(mechanism, n_features, epsilon, base) > 1e-3


def test_chi_square_test_notices_a_wrong_cap_and_a_wrong_coin():
    base = sphere_base_measure(5, 2.0)
    wrong_cap = CapRejection(5, 2.0, 0.9 * base.threshold)
    assert p_value(wrong_cap, 5, 2.0, base) < 1e-6
    wrong_coin = CapRejection(5, 2.0, base.threshold)
    wrong_coin.coin //= 2
    assert p_value(wrong_coin, 5, 2.0, base) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_features", [2, 6])
def test_directions_around_the_input_are_uniform(kind, n_features):
    point = unit_vectors(1, n_features)
    mechanism = kind(n_features, 1.5, 0.3)
    outputs = release(mechanism, np.repeat(point, 3000, axis=0))[:, 0]
    across = outputs - (outputs @ point[0])[:, None] * point
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    axis = np.linalg.svd(point)[2][-1]
    cosine = across @ axis
    if n_features == 2:
        assert abs((cosine > 0).mean() - 0.5) < 0.03
    else:
        shape = (n_features - 2) / 2
        assert kstest((1.0 - cosine) / 2, beta(shape, shape).cdf).pvalue > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 2])
def test_directions_do_not_depend_on_distances(kind, axis):
    """The coordinates across the input, in units of their length, tell nothing of it."""
    outputs = release(kind(3, 1.5, 0.3), np.repeat(np.eye(3)[axis][None], 6000, axis=0))[:, 0]
    height, across = outputs[:, axis], np.delete(outputs, axis, axis=1)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    # In the cap and beyond it, too, as what is added there could cancel.
    for part in (height > -1, height > 0.4, height < 0.4):
        correlations = [
            np.corrcoef(height[part], x[part])[0, 1] for x in (*across.T, across[:, 0] ** 2)
        ]
        assert np.abs(correlations).max() < 5 / math.sqrt(part.sum())


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 12.0, 25.0, 30.0])
@pytest.mark.parametrize("threshold", [1e-16, 1e-10, 0.1, 1.0])
def test_coin_pays_for_the_blur_of_the_edge_and_little_more(epsilon, threshold):
    """On the ordinary sphere, where the probability of a cap is its threshold."""
    radius, ratio = 2 * math.sqrt(threshold), math.exp(-epsilon)

    def worst(blur):
        least, most = (min(max(radius + sign * blur, 0.0), 2.0) ** 2 / 4 for sign in (-1, 1))
        return ratio * (ratio + (1 - ratio) * most) / (ratio + (1 - ratio) * least)

    coin = _outside_coin(3, epsilon, threshold)
    assert worst(2.0**-40) * (1 + 2.0**-31) * 2.0**63 <= coin
    assert coin <= worst(1.01 * 2.0**-40) * (1 + 2.0**-29) * 2.0**63 + 1


@pytest.mark.parametrize("n_features", [2, 30, 1000])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 12.0])
@pytest.mark.parametrize("order", [0.5, 4])
def test_coin_keeps_epsilon_whatever_rounding_does_to_acceptance(n_features, epsilon, order):
    threshold = sphere_base_measure(n_features, epsilon, order=order).threshold
    coin = _outside_coin(n_features, epsilon, threshold)
    assert coin <= 2**63
    assert not exceeds_exp(2**63, coin, epsilon)
    # Utility pays next to nothing for it.
    assert coin <= math.ceil(math.exp(-epsilon) * (1.0 + 1e-7) * 2**63)
    # Two inputs whose acceptance differs by more than the blur of the cap's edge ever allows.
    shape, radius, blur = (n_features - 1) / 2, 2 * math.sqrt(threshold), 2.0**-41
    edges = np.minimum([radius - blur, radius + blur], 2.0) ** 2 / 4.0
    least, most = coin / 2**63 + (1.0 - coin / 2**63) * betainc(shape, shape, edges)
    assert math.log(2**63 / coin) + math.log(most / least) <= epsilon


def test_input_enters_no_arithmetic_on_the_output():
    n_features, points = 4, unit_vectors(2, 4)
    mechanism = CapRejection(n_features, 1.0, 0.3)
    (first, accepted), (second, accepted_too) = (
        mechanism._propose(point[None], [make_source(3)]) for point in points
    )
    np.testing.assert_array_equal(first, second)
    assert (accepted != accepted_too).any()
    proposals = {tuple(row) for row in first[0]}
    outputs = [release(mechanism, np.repeat(point[None], 50, axis=0), seed=3) for point in points]
    same = (outputs[0] == outputs[1]).all(axis=-1)
    assert same.any() and not same.all()
    drawn = mechanism.draw(points[:1], [make_source(3)], 1)[0, 0]
    assert tuple(drawn) in proposals


@pytest.mark.parametrize("kind", KINDS)
def test_first_samples_do_not_depend_on_how_many_are_drawn(kind):
    mechanism, points = kind(3, 2.0, 0.2), unit_vectors(7, 3)
    many = release(mechanism, points, n_samples=4)
    np.testing.assert_array_equal(many[:, :2], release(mechanism, points, n_samples=2))
    assert len(np.unique(many[..., 0])) == many[..., 0].size


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_unit_vectors_from_either_source(kind):
    mechanism, points = kind(50, 3.0, 0.4), unit_vectors(20, 50)
    for seed in (0, None):
        norms = np.linalg.norm(release(mechanism, points, seed, n_samples=3), axis=-1)
        np.testing.assert_allclose(norms, 1.0, rtol=1e-14)
    assert (release(mechanism, points, None) != release(mechanism, points, None)).all()


def test_normals_are_normal_to_within_what_the_proof_assumes():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**63, size=(2, 20_000))
    assert kstest(_precise_normals(*words), "norm").pvalue > 1e-3
    # The smallest and the largest words: a median, and tails far beyond what 52 bits reach.
    extremes = _precise_normals(np.array([0, 1, 2**63 - 2]), np.array([0, 0, 2**63 - 1]))
    assert extremes[0] == -extremes[1] < -12
    assert extremes[2] == 0
    # Words and finer words are 126 bits of one tail.
    for word, finer in [(0, 0), (0, 5), (1, 2**62), (3, 2**63 - 1)]:
        tail = (word + (finer + 0.5) / 2.0**63) / 2.0**63
        assert _precise_normals(np.array(2 * word), np.array(finer)) == pytest.approx(
            ndtri(tail), rel=1e-12
        )
    tails = np.concatenate([2.0 ** -rng.uniform(1, 75, 5000), rng.uniform(0, 0.5, 5000)])
    normals = ndtri(tails)
    density = np.exp(-(normals**2) / 2) / math.sqrt(2.0 * math.pi)
    errors = np.abs(erfc(-normals / math.sqrt(2.0)) / 2 - tails) / density
    assert (errors <= 2.0**-48 * (1.0 + np.abs(normals))).all()


def test_rejection_is_chosen_where_it_is_affordable_and_refused_where_it_is_hopeless():
    assert rejection_is_affordable(1000, 10.0, sphere_base_measure(1000, 10.0).threshold)
    threshold = sphere_base_measure(1000, 30.0).threshold
    assert not rejection_is_affordable(1000, 30.0, threshold)
    # Few proposals, and more epsilon than the coin has digits for.
    assert not rejection_is_affordable(2, 35.0, 0.3)
    for n_features, epsilon, cap in [(1000, 30.0, threshold), (2, 35.0, 0.3)]:
        with pytest.raises(ValueError, match="rejection is out of reach .* Choose a smaller"):
            CapRejection(n_features, epsilon, cap)


@pytest.mark.parametrize("n_features", [2, 39, 1000])
@pytest.mark.parametrize("epsilon", [50.0, 700.0])
def test_construction_reaches_tiny_caps(n_features, epsilon):
    base = sphere_base_measure(n_features, epsilon)
    points = unit_vectors(200, n_features)
    mechanism = CapConstruction(n_features, epsilon, base.threshold)
    z = mechanism._distances(np.ones(4), np.array([0.01, 0.5, 0.99, 1.0]))
    assert (np.diff(z) > 0).all()
    assert z[-1] == pytest.approx(base.threshold, rel=1e-9)
    shape = (n_features - 1) / 2
    assert betainc(shape, shape, z[1]) == pytest.approx(0.5 * base.cap_probability, rel=1e-9)
    z = distances(points, release(mechanism, points)[:, 0])
    assert (z <= base.threshold * (1.0 + 1e-9) + 1e-30).mean() > 0.95
    assert (z < 1.0).all()
