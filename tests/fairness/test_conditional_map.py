"""Properties of the sequential conditional repair."""

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp, norm, spearmanr
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from skdpot.fairness import ConditionalRepair
from skdpot.fairness._conditional import (
    fit_conditional,
    gumbel_max_coupling,
    maximal_coupling,
    monotone_coupling,
)
from skdpot.fairness._conditional_models import fit_numbers
from skdpot.fairness._supports import uniforms
from skdpot.tables import NOMINAL, NUMERIC, ORDINAL, Column

RARE = 1e-4
COLUMNS = [
    Column("income", NUMERIC),
    Column("rooms", NUMERIC),
    Column("level", ORDINAL, values=("low", "middle", "high")),
    Column("town", NOMINAL, values=("a", "b", "c", "d")),
    Column("debt", NUMERIC),
]


def keys_of(n_rows, seed=0):
    return np.random.default_rng(seed).integers(2**63, size=n_rows, dtype=np.uint64)


def mixed_table(n_rows, strength, n_groups=3, seed=0):
    """Return codes and groups of a table all of whose columns depend on the group and each other.

    Incomes are skewed, rooms are integers, and most have no debt.
    """
    rng = np.random.default_rng(seed)
    groups = rng.integers(n_groups, size=n_rows)
    shift = strength * (groups - (n_groups - 1) / 2)
    base = rng.normal(size=n_rows) * np.exp(0.3 * shift) + shift
    rooms = np.clip(np.round(3 + base + rng.normal(size=n_rows)), 1, 12)
    level = np.searchsorted([-0.5, 0.7], 0.6 * base + shift + rng.normal(size=n_rows))
    scores = np.outer(base, [0.0, 0.5, -0.5, 1.0]) + np.outer(shift, [1.0, 0.0, 0.5, -1.0])
    town = np.argmax(scores + rng.gumbel(size=(n_rows, 4)), axis=1)
    debt = base - shift * (town == 1) + rng.normal(size=n_rows)
    debt = np.where(debt < 0.5, 0.0, np.round(100 * np.exp(debt)))
    codes = np.column_stack([np.exp(base), rooms, level, town, debt]).astype(np.float64)
    return codes, groups


def shares(groups, n_groups=3):
    return np.bincount(groups[groups >= 0], minlength=n_groups) / np.sum(groups >= 0)


def fit(codes, groups, columns=COLUMNS, seed=0, fixed=(), **options):
    # Without a search for groups, which takes most of the time.
    method = ConditionalRepair(**{"tol": 0.0} | options)
    rng = np.random.default_rng(seed)
    n_groups = groups.max() + 1
    return fit_conditional(columns, codes, groups, shares(groups, n_groups), rng, method, fixed)


def test_where_nothing_depends_on_the_group_nothing_is_moved():
    codes, groups = mixed_table(2000, 0.0, seed=2)
    identity = fit(codes, np.zeros_like(groups))
    np.testing.assert_array_equal(identity.images(codes, groups * 0, keys_of(2000)), codes)


@pytest.mark.experiment
def test_groups_have_one_distribution_in_new_rows():
    codes, groups = mixed_table(4000, 0.6)
    repair = fit(codes, groups)
    new, new_groups = mixed_table(4000, 0.6, seed=1)
    images = repair.images(new, new_groups, keys_of(4000))
    for column in range(5):
        before = [new[new_groups == g, column] for g in (0, 2)]
        after = [images[new_groups == g, column] for g in (0, 2)]
        assert ks_2samp(*before).statistic > 0.15
        assert ks_2samp(*after).statistic < 0.09
    correlations = [spearmanr(images[new_groups == g]).statistic for g in range(3)]
    assert np.ptp(correlations, axis=0).max() < 0.15


def bills(n_rows, seed):
    """Return two bills of each row, and its group, which few rows without bills depend on."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(2, size=n_rows)
    wealth = rng.normal(size=n_rows) + 0.3 * groups
    amounts = np.exp(8 + wealth[:, None] + rng.normal(scale=0.5, size=(n_rows, 2)))
    unused = wealth + 0.5 * groups + rng.normal(size=n_rows) < -1.7
    return np.where(unused[:, None], 0.0, np.round(amounts)), groups


def test_a_number_that_a_fifteenth_of_the_rows_have_stays_one():
    codes, groups = bills(8000, 0)
    new, new_groups = bills(8000, 1)
    assert 0.05 < (codes == 0).mean() < 0.1
    repair = fit(codes, groups, COLUMNS[:1] + COLUMNS[4:])
    images = repair.images(new, new_groups, keys_of(8000))
    none = images[:, 1] == 0
    assert ks_2samp(new[new_groups == 0, 1], new[new_groups == 1, 1]).statistic > 0.1
    assert abs(none[new_groups == 0].mean() - none[new_groups == 1].mean()) < 0.02
    assert np.mean(~none & (images[:, 1] < new[new > 0].min())) < 0.005


@pytest.mark.experiment
def test_values_stay_on_their_lattice_and_in_their_range():
    codes, groups = mixed_table(1200, 0.8)
    images = fit(codes, groups).images(codes, groups, keys_of(1200))
    for column in range(1, 4):
        assert np.isin(images[:, column], codes[:, column]).all()
    np.testing.assert_array_equal(images[:, 4], np.round(images[:, 4]))
    assert (codes.min(axis=0) <= images.min(axis=0)).all()
    assert (images.max(axis=0) <= codes.max(axis=0)).all()


@pytest.mark.parametrize(
    "coupling", [pytest.param("monotone", marks=pytest.mark.experiment), "common"]
)
def test_images_depend_on_the_row_and_its_key_alone(coupling):
    # More rows than are moved at a time.
    codes, groups = mixed_table(2000, 0.6)
    repair, keys = fit(codes, groups, coupling=coupling), keys_of(2000)
    images = repair.images(codes, groups, keys)
    chosen = np.random.default_rng(3).permutation(2000)[:500]
    again = repair.images(codes[chosen], groups[chosen], keys[chosen])
    np.testing.assert_allclose(again, images[chosen], rtol=1e-9)
    other = repair.images(codes, groups, keys_of(2000, seed=1))
    assert (other != images).any()


def test_rows_without_a_group_and_fixed_columns_are_left_as_they_are():
    codes, groups = mixed_table(3000, 0.6)
    groups[:700] = -1
    repair = fit(codes, groups, fixed=(3, 1))
    images = repair.images(codes, groups, keys_of(3000))
    np.testing.assert_array_equal(images[:700], codes[:700])
    np.testing.assert_array_equal(images[:, [1, 3]], codes[:, [1, 3]])
    assert (images[700:] != codes[700:]).mean() > 0.2


@pytest.mark.experiment
def test_given_a_fixed_column_groups_have_one_distribution():
    codes, groups = mixed_table(6000, 0.6)
    repair = fit(codes, groups, fixed=(3,))
    images = repair.images(codes, groups, keys_of(6000))
    for town in range(4):
        first, last = (images[(codes[:, 3] == town) & (groups == g), 0] for g in (0, 2))
        assert ks_2samp(first, last).statistic < 0.14


@pytest.mark.parametrize("coupling", ["monotone", "common"])
def test_missing_values_have_one_share_in_all_groups(coupling):
    codes, groups = mixed_table(4000, 0.6)
    rng = np.random.default_rng(5)
    codes[rng.random(4000) < 0.1 + 0.2 * groups, 0] = np.nan
    codes[rng.random(4000) < 0.3 - 0.1 * groups, 3] = -1
    images = fit(codes, groups, coupling=coupling).images(codes, groups, keys_of(4000))
    for missing in (np.isnan(images[:, 0]), images[:, 3] == -1):
        rates = [missing[groups == g].mean() for g in range(3)]
        assert 0.1 < min(rates)
        assert np.ptp(rates) < 0.06
    assert not np.isnan(images[:, 1:]).any()


@pytest.mark.experiment
def test_values_that_the_fit_has_not_seen_get_images_too():
    codes, groups = mixed_table(600, 0.6)
    repair = fit(codes, groups)
    new = codes[:4].copy()
    new[0, 0], new[1, 0], new[2, 3], new[3, 4] = np.nan, 1e9, -1, -5.0
    images = repair.images(new, groups[:4], keys_of(4))
    assert np.isfinite(images).all()
    assert (images >= 0).all()


@pytest.mark.parametrize("coupling", ["monotone", "common"])
@pytest.mark.parametrize("n_rows", [2, 5, 40])
def test_few_rows_and_constant_columns_are_no_obstacle(n_rows, coupling):
    codes, groups = mixed_table(n_rows, 0.6)
    codes[:, 1] = 7
    groups[:2] = 0, 1
    images = fit(codes, groups, coupling=coupling).images(codes, groups, keys_of(n_rows))
    assert np.isfinite(images).all()
    assert (images[:, 1] == 7).all()


def test_a_group_with_few_rows_is_moved_like_the_others():
    codes, groups = mixed_table(2000, 0.0)
    groups[:] = 0
    groups[:12] = 1
    images = fit(codes, groups).images(codes, groups, keys_of(2000))
    assert np.mean(images == codes) > 0.8


PROBABILITIES = np.array([[0.5, 0.3, 0.15, 0.05], [0.2, 0.3, 0.2, 0.3]])


def drawn_states(couple, n_rows=40_000):
    """Return states drawn in group 0, and their images in both groups."""
    rng = np.random.default_rng(4)
    states = rng.choice(4, size=n_rows, p=PROBABILITIES[0])
    logits = np.repeat(np.log(PROBABILITIES)[:, :, None], n_rows, axis=2)
    return states, couple(states, logits, np.zeros(n_rows, dtype=int), keys_of(n_rows), 0)


@pytest.mark.parametrize("couple", [monotone_coupling, gumbel_max_coupling])
def test_images_of_states_have_the_probabilities_of_their_group(couple):
    states, images = drawn_states(couple)
    np.testing.assert_array_equal(images[0], states)
    counts = np.bincount(images[1], minlength=4)
    assert chisquare(counts, PROBABILITIES[1] * len(states)).pvalue > RARE


def test_a_race_changes_hardly_more_states_than_must_be():
    states, images = drawn_states(gumbel_max_coupling)
    variation = np.abs(PROBABILITIES[0] - PROBABILITIES[1]).sum() / 2
    p, q = PROBABILITIES
    same = sum(1 / np.maximum(p / p[c], q / q[c]).sum() for c in range(4))
    assert np.mean(images[1] == states) == pytest.approx(same, abs=0.01)
    assert variation <= 1 - same <= 2 * variation / (1 + variation)


def test_states_that_are_unknown_are_drawn_from_the_group():
    unknown, groups = np.full(20_000, -1), np.zeros(20_000, dtype=int)
    for couple in (monotone_coupling, gumbel_max_coupling):
        logits = np.repeat(np.log(PROBABILITIES)[:, :, None], 20_000, axis=2)
        images = couple(unknown, logits, groups, keys_of(20_000), 0)
        counts = np.bincount(images[1], minlength=4)
        assert chisquare(counts, PROBABILITIES[1] * 20_000).pvalue > RARE


def redrawn_from_the_target(states, own, target, keys, draw):
    """Couple like `maximal_coupling`, with an error: rows that leave may come back."""
    stays = maximal_coupling(states, own, target, keys, draw)[1]
    drawn = (target.cumsum(axis=0) < uniforms(keys, draw + 1)).sum(axis=0)
    return np.where(stays, states, drawn), stays


def check_common_part(couple, states):
    own, target = np.repeat(PROBABILITIES[:, :, None], len(states), axis=2)
    found, stays = couple(states, own, target, keys_of(len(states)), 0)
    counts = np.bincount(found, minlength=4)
    assert chisquare(counts, PROBABILITIES[1] * len(states)).pvalue > RARE
    np.testing.assert_array_equal(found[stays], states[stays])
    return np.mean(found != states)


def test_a_maximal_coupling_changes_as_few_states_as_possible():
    states = np.random.default_rng(4).choice(4, size=40_000, p=PROBABILITIES[0])
    variation = np.abs(PROBABILITIES[0] - PROBABILITIES[1]).sum() / 2
    changed = check_common_part(maximal_coupling, states)
    assert changed == pytest.approx(variation, abs=0.01)
    check_common_part(maximal_coupling, np.full(40_000, -1))
    with pytest.raises(AssertionError):
        check_common_part(redrawn_from_the_target, states)


def test_the_common_part_of_a_column_of_categories_stays():
    rng = np.random.default_rng(8)
    groups = (rng.random(8000) < 0.2).astype(int)
    smokes = (rng.random(8000) < np.where(groups, 0.6, 0.2)).astype(float)
    columns = [Column("smokes", NOMINAL, values=("no", "yes"))]
    repair = fit(smokes[:, None], groups, columns, coupling="common")
    images = repair.images(smokes[:, None], groups, keys_of(8000))[:, 0]
    # The variation between a group and the mixture is that between groups times the other's weight.
    shares = [smokes[groups == g].mean() for g in range(2)]
    weight, variation = groups.mean(), shares[1] - shares[0]
    for group, other in ((0, weight), (1, 1 - weight)):
        own = groups == group
        assert images[own].mean() == pytest.approx(smokes.mean(), abs=0.03)
        assert np.mean((images != smokes)[own]) == pytest.approx(other * variation, abs=0.02)


def test_the_common_part_of_numbers_stays():
    """Two Gaussian distributions that are one deviation apart, and a column that follows them."""
    rng = np.random.default_rng(9)
    groups = rng.integers(2, size=8000)
    first = rng.normal(size=8000) + groups
    codes = np.column_stack([first, np.where(groups, 1.0, -1.0) + first + rng.normal(size=8000)])
    columns = [COLUMNS[0], Column("second", NUMERIC)]
    images = fit(codes, groups, columns, coupling="common").images(codes, groups, keys_of(8000))
    variation = 2 * norm.cdf(0.5) - 1
    changed = images != codes
    assert changed[:, 0].mean() == pytest.approx(variation / 2, abs=0.02)
    # The image of the first column is distributed as the mixture.
    assert ks_2samp(images[:, 0], codes[:, 0]).statistic < 0.02
    bins = np.searchsorted([-0.5, 0.5, 1.5], images[:, 0])
    for near in (np.full(8000, True), *(bins == b for b in range(4))):
        for column in range(2):
            of_groups = [images[near & (groups == g), column] for g in range(2)]
            assert ks_2samp(*of_groups).statistic < 0.06


def test_categories_follow_most_groups():
    """A group of few rows takes on the categories of the many, who keep theirs."""
    rng = np.random.default_rng(8)
    groups = (rng.random(6000) < 0.2).astype(int)
    smokes = (rng.random(6000) < np.where(groups, 0.6, 0.2)).astype(float)
    columns = [Column("smokes", NOMINAL, values=("no", "yes"))]
    images = fit(smokes[:, None], groups, columns).images(smokes[:, None], groups, keys_of(6000))
    np.testing.assert_array_equal(images[groups == 0, 0], smokes[groups == 0])
    assert images[groups == 1, 0].mean() == pytest.approx(smokes[groups == 0].mean(), abs=0.03)
    assert (images[groups == 1, 0] <= smokes[groups == 1]).all()


def test_images_of_scores_have_the_distribution_of_their_group():
    """Means, variances and slopes differ."""
    rng = np.random.default_rng(6)
    groups = rng.integers(2, size=12_000)
    earlier = rng.normal(size=(12_000, 1))
    noise = rng.normal(size=12_000) * np.where(groups, 0.5, 1.5)
    scores = np.where(groups, 1 + earlier[:, 0], -0.5 * earlier[:, 0]) + noise
    folds = rng.integers(4, size=12_000)
    model = fit_numbers(scores, earlier.T, groups, folds, 2)
    assert model.differ
    means = model.lines.of(earlier.T)[:, 0]
    moved = model.move(scores, means, groups, rng.random(12_000))
    np.testing.assert_array_equal(moved[groups, np.arange(12_000)], scores)
    for low, high in ((-3, -0.7), (-0.7, 0.7), (0.7, 3)):
        near = (low < earlier[:, 0]) & (earlier[:, 0] < high)
        for group in range(2):
            images, own = moved[group][near & (groups != group)], scores[near & (groups == group)]
            assert ks_2samp(images, own).statistic < 0.07


@pytest.mark.experiment
def test_the_gate_is_shut_where_held_out_rows_do_not_show_a_group():
    codes, groups = mixed_table(600, 0.0, seed=3)
    shut = fit(codes, groups, tol=0.02)
    np.testing.assert_array_equal(shut.images(codes, groups, keys_of(600)), codes)
    shown, groups = mixed_table(600, 0.6, seed=3)
    for tol, moves in ((0.0, True), (0.02, True), (0.5, False)):
        assert fit(shown, groups, tol=tol).moves is moves


def area(codes, groups, new_codes, new_groups):
    """Return the weighted area under the curves of each group against the others."""
    found = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(codes, groups)
    return roc_auc_score(
        new_groups, found.predict_proba(new_codes), multi_class="ovr", average="weighted"
    )


@pytest.mark.experiment
@pytest.mark.parametrize("n_groups", [3, 10])
@pytest.mark.parametrize("strength", [0.3, 0.8])
def test_no_strong_model_finds_the_group_of_new_rows(strength, n_groups):
    strength *= 3 / n_groups
    (codes, groups), (new, new_groups) = (
        mixed_table(10_000, strength, n_groups, seed) for seed in (0, 1)
    )
    repair = fit(codes, groups)
    images = repair.images(codes, groups, keys_of(10_000))
    new_images = repair.images(new, new_groups, keys_of(10_000, seed=1))
    assert area(codes, groups, new, new_groups) > 0.56
    assert area(images, groups, new_images, new_groups) < 0.55


@pytest.mark.experiment
@pytest.mark.parametrize("n_rows", [300, 600, 5000])
def test_little_is_lost_where_nothing_depends_on_the_group(n_rows):
    """Whatever is moved at all is moved by too little to matter."""
    lost = []
    for seed in range(8):
        tables = [mixed_table(n, 0.0, 4, seed + start) for n, start in ((n_rows, 0), (4000, 100))]
        (codes, groups), (new, new_groups) = tables
        rng = np.random.default_rng(seed)
        target = [t[:, 3] == 3 for t, _ in tables]
        target = [t ^ (rng.random(len(t)) < 0.1) for t in target]
        features = [np.delete(t, 3, axis=1) for t, _ in tables]
        columns = [column for j, column in enumerate(COLUMNS) if j != 3]
        repair = fit(features[0], groups, columns)
        images = [
            repair.images(table, g, keys_of(len(table), seed))
            for table, g in zip(features, (groups, new_groups), strict=True)
        ]
        areas = [
            roc_auc_score(
                target[1],
                LogisticRegression(max_iter=5000)
                .fit(np.log1p(a), target[0])
                .predict_proba(np.log1p(b))[:, 1],
            )
            for a, b in (features, images)
        ]
        lost.append(areas[0] - areas[1])
    assert np.mean(lost) < 0.01


def test_many_categories_stay_categories_and_the_rare_ones_keep_theirs():
    rng = np.random.default_rng(5)
    groups = rng.integers(2, size=3000)
    towns = np.floor(400 * rng.random(3000) ** np.where(groups, 2.0, 3.0))
    columns = [Column("town", NOMINAL, values=tuple(range(400)))]
    images = fit(towns[:, None], groups, columns).images(towns[:, None], groups, keys_of(3000))[
        :, 0
    ]
    assert np.isin(images, towns).all()
    assert ks_2samp(*(images[groups == g] < 25 for g in range(2))).statistic < 0.06
    assert np.mean(images[towns > 200] == towns[towns > 200]) > 0.5
