"""Strong pairs of columns: their choice, their factors, and rows drawn with them."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, multivariate_normal, norm

from skdpot import DPSinkhornGenerator
from skdpot.generative import _counts as counts_of_tables
from skdpot.generative._factors import (
    _fitted_factors,
    choose_pairs,
    coarse_dependence,
    draw_groups,
    normal_table,
    pair_target,
    sign_correlations,
    standard_ranks,
    strong_correlations,
)
from skdpot.generative._table import release_marginals, share_marginals
from skdpot.privacy.noise import make_source
from skdpot.releases import SketchReleases
from skdpot.tables import read_schema
from tests.oracles.sketch import moved_by, transcript_of


def test_the_table_of_a_normal_copula(rng):
    rows, columns = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(3))
    table = normal_table(rows, columns, 0.6)
    np.testing.assert_allclose(table.sum(axis=1), rows, atol=1e-12)
    np.testing.assert_allclose(table.sum(axis=0), columns, atol=1e-12)
    corner = norm.ppf([rows[:2].sum(), columns[0]])
    quadrant = multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]]).cdf(corner)
    assert table[:2, 0].sum() == pytest.approx(quadrant, abs=1e-5)


@pytest.mark.parametrize("n_columns", [5, 60])
def test_strong_pairs_come_before_noise_and_noise_is_no_more_than_a_few(rng, n_columns):
    n_pairs, deviation = n_columns * (n_columns - 1) // 2, 0.2
    products = deviation * rng.normal(size=(200, n_pairs))
    products[:, : n_columns - 1] += 10 * deviation
    few, many = products.copy(), products
    few[:, 2 : n_columns - 1] -= 10 * deviation
    for n_strong, rows in ((2, few), (n_columns - 1, many)):
        for row in rows:
            found = sign_correlations(row, deviation, np.zeros((2, n_pairs)))
            sizes = strong_correlations(*found, n_pairs, n_columns)
            assert (sizes[:n_strong] > sizes[n_strong:].max()).all()
            assert np.count_nonzero(sizes) <= max(n_strong + 2, 0.75 * n_columns)
        assert {(0, 1), (0, 2)} <= set(choose_pairs(sizes, n_columns))


def test_correlations_of_signs_are_those_of_the_records_that_have_both(rng):
    signs = np.sign(rng.normal(size=(2, 200_000)) + [[0.3], [-0.5]] + rng.normal(size=200_000))
    known = rng.uniform(size=200_000) < 0.4
    products = np.array([signs.prod(axis=0).mean(), (known * signs.prod(axis=0)).mean()])
    means, shares = np.tile(signs.mean(axis=1)[:, None], 2), np.array([1.0, known.mean()])
    found, noise = sign_correlations(products, 0.01, means, shares)
    np.testing.assert_allclose(found, np.corrcoef(signs)[0, 1], atol=0.01)
    assert noise[1] == pytest.approx(noise[0] / known.mean())


@pytest.mark.parametrize("n_records", [0, 300, 30_000])
def test_noise_is_seldom_taken_for_dependence_of_categories(rng, n_records):
    shares, deviation, found = np.full(20, 1 / 20), 20.0, []
    for _ in range(200):
        table = rng.multinomial(n_records, np.outer(shares, shares).ravel())
        noisy, size = table + deviation * rng.normal(size=400), max(n_records, 1)
        found.append(coarse_dependence(noisy, shares, shares, size, deviation))
    assert np.mean(np.array(found) > 0) < 0.05
    table = n_records * (0.5 * np.diag(shares) + 0.5 * np.outer(shares, shares)).ravel()
    strong = coarse_dependence(table, shares, shares, max(n_records, 1), deviation)
    # Half of the mass is on the diagonal, where a twentieth of it would be by chance.
    assert (strong > 0.3) == (n_records == 30_000)


@pytest.mark.experiment
def test_many_categories_that_go_together_stay_together(rng):
    n, names = 300, [f"{k:03}" for k in range(300)]
    origin = rng.choice(n, 60_000, p=rng.dirichlet(np.ones(n)))
    # Seven of ten have the partner of their category.
    partner = np.where(rng.uniform(size=60_000) < 0.7, (origin * 7) % n, rng.permuted(origin))
    table = pd.DataFrame({"day": rng.integers(0, 7, 60_000), "a": origin, "b": partner})
    table[["a", "b"]] = np.array(names)[table[["a", "b"]]]
    schema = {"day": range(7), "a": names, "b": names}
    generator = DPSinkhornGenerator(1.0, 1e-6, schema=schema, random_state=0).fit(table)
    sampled = generator.sample(60_000)
    kept = (sampled["a"].astype(int) * 7 % n == sampled["b"].astype(int)).mean()
    assert kept > 0.5


@pytest.mark.parametrize("ordered", [False, True])
def test_a_target_is_near_what_was_counted(rng, ordered):
    margins = [rng.dirichlet(np.full(8, 9.0)), rng.dirichlet(np.full(6, 9.0))]
    coarse = [np.arange(8) // 2, np.arange(6) // 2]
    exact, deviation, n_records = normal_table(*margins, 0.8), 10.0, 10_000
    counts = np.zeros((4, 3))
    np.add.at(counts, (coarse[0][:, None], coarse[1]), n_records * exact)
    noisy = counts + deviation * rng.normal(size=counts.shape)
    groups = (slice(None), slice(None)) if ordered else None
    target = pair_target(noisy, deviation, n_records, margins, coarse, ordered=groups)
    np.testing.assert_allclose(target.sum(axis=0), margins[1], atol=1e-6)
    merged = np.zeros((4, 3))
    np.add.at(merged, (coarse[0][:, None], coarse[1]), target)
    assert np.abs(merged - counts / n_records).sum() < 0.03
    # Within groups, an order tells more than independence.
    assert (np.abs(target - exact).sum() < 0.04) == ordered


@pytest.mark.parametrize("filled", [0.03, 0.3, 1.0])
def test_counts_of_sparse_tables_are_nearer_than_noisy_or_independent_ones(rng, filled):
    expected, deviation = 20_000 * rng.dirichlet(np.full(4_000, 0.7)) + 1e-6, 10.0
    exact = rng.poisson(expected * np.where(rng.uniform(size=4_000) < filled, 1 / filled, 0.0))
    noisy = exact + deviation * rng.normal(size=4_000)
    likely = counts_of_tables.sparse_counts(noisy, expected, deviation)
    error = np.linalg.norm(likely - exact)
    peers = [expected, np.maximum(noisy, 0), np.where(noisy > 3 * deviation, noisy, 0)]
    assert error < 1.02 * min(np.linalg.norm(peer - exact) for peer in peers)
    # Without dependence, none is invented: noise moves cells by less than it does by chance alone.
    if filled == 1:
        assert np.abs(likely - expected).sum() < 0.2 * np.abs(noisy - expected).sum()


@pytest.fixture(scope="module")
def with_missing():
    """Return records with missing values, and records that were made after them."""
    rng, n = np.random.default_rng(0), 8000
    first = rng.normal(size=(n, 1))
    values = np.hstack([first, first + 0.2 * rng.normal(size=(n, 1)), rng.normal(size=(n, 6))])
    real = pd.DataFrame(values.clip(-4, 4), columns=list("abcdefgh"))
    real.loc[rng.uniform(size=n) < 0.6, "a"] = np.nan
    real.loc[rng.uniform(size=n) < 0.6, "b"] = np.nan
    real.loc[rng.uniform(size=n) < 0.4, ["c", "d", "e"]] = np.nan
    real.loc[real["c"].isna() ^ (rng.uniform(size=n) < 0.1), "f"] = np.nan
    schema = {name: {"bounds": (-4, 4), "missing": True} for name in real}
    return real, DPSinkhornGenerator(3.0, 1e-6, schema=schema, random_state=0).fit(real).sample(n)


def test_columns_that_are_missing_together_stay_so(with_missing):
    real, made = (frame.isna() for frame in with_missing)
    assert made["c"].mean() == pytest.approx(0.4, abs=0.02)
    for name in "de":
        assert (made["c"] != made[name]).mean() < 0.004
    for name in "fgh":
        shares = [(part["c"] != part[name]).mean() for part in (real, made)]
        assert shares[1] == pytest.approx(shares[0], abs=0.03)


def test_dependence_of_known_values_is_kept_where_most_are_missing(with_missing):
    real, made = (frame[["a", "b"]].corr().loc["a", "b"] for frame in with_missing)
    assert made == pytest.approx(real, abs=0.1)


def test_noise_makes_no_strong_pair_a_copy(rng):
    """Ranks alone cannot tell a correlation of .96 from one of .99."""
    margins, cells = np.full(32, 1 / 32), np.arange(32)
    truth, ranks = normal_table(margins, margins, 0.96), standard_ranks(margins)
    for _ in range(8):
        counts = 20_000 * truth + rng.normal(0, 16, truth.shape)
        of_groups = [margins] * 2, [cells] * 2
        found = pair_target(counts, 16, 20_000, *of_groups, ordered=(slice(None), slice(None)))
        assert ranks @ found @ ranks == pytest.approx(ranks @ truth @ ranks, abs=0.015)


def test_factors_give_rows_the_pairs_that_are_wanted(rng):
    own, components = rng.dirichlet(np.ones(5), size=20), np.sort(rng.integers(20, size=20_000))
    grouped = {-1: components % 2, 0: rng.integers(4, size=20_000)}
    wanted = {0: rng.dirichlet(np.ones(20)).reshape(4, 5)}
    wanted[0] *= 0.25 / wanted[0].sum(axis=1, keepdims=True)
    share = np.array([[0.5], [0.5]]) * wanted[0].sum(axis=0)
    each = np.full(20_000, 1 / 20_000)
    factors = _fitted_factors(own[components], wanted | {-1: share}, grouped, each)
    drawn, kept = draw_groups(own, components, factors, grouped, np.random.RandomState(0))
    made = np.zeros((4, 5))
    np.add.at(made, (grouped[0], drawn), 1 / len(drawn))
    assert np.abs(made - wanted[0]).sum() / 2 < 0.02 and np.allclose(kept, 1)
    # Conditions restrict what is drawn, and the probability that they hold is told.
    allowed = np.array([1.0, 0, 0, 0, 0])
    drawn, kept = draw_groups(own, components, factors, grouped, np.random.RandomState(0), allowed)
    assert (drawn == 0).all() and kept.mean() == pytest.approx(wanted[0][:, 0].sum(), abs=0.01)


@pytest.fixture(scope="module")
def generator():
    """Return a generator of a table with strong pairs, of numbers and of words."""
    rng = np.random.default_rng(0)
    n = 20_000
    income = rng.normal(50, 12, n).round(1).clip(0, 100)
    tax = (0.3 * income + rng.normal(0, 1, n)).round(1).clip(0, 40)
    city = rng.choice(["A", "B", "C"], n, p=[0.5, 0.3, 0.2])
    language = np.where(rng.random(n) < 0.9, np.char.lower(city), rng.choice(["a", "b", "c"], n))
    answer = np.where(income + rng.normal(0, 10, n) > 55, "yes", "no")
    table = pd.DataFrame(
        {"income": income, "tax": tax, "city": city, "language": language, "answer": answer}
    )
    schema = {
        "income": (0.0, 100.0), "tax": (0.0, 40.0), "city": list("ABC"), "language": list("abc"),
        "answer": ["no", "yes"],
    }  # fmt: skip
    made = DPSinkhornGenerator(1.0, 1e-6, schema=schema, target="answer", random_state=0)
    return made.fit(table), table


def test_strong_pairs_are_kept(generator):
    fitted, table = generator
    made = fitted.sample(20_000)
    numbers = ["income", "tax"]
    real, drawn = (frame[numbers].corr("spearman").iloc[0, 1] for frame in (table, made))
    assert real > 0.94 and drawn == pytest.approx(real, abs=0.04)
    joint = [pd.crosstab(frame.city, frame.language, normalize=True) for frame in (table, made)]
    assert (joint[0] - joint[1]).abs().to_numpy().sum() / 2 < 0.04
    for name in ("city", "language", "answer"):
        shares = [frame[name].value_counts(normalize=True) for frame in (table, made)]
        assert (shares[0] - shares[1]).abs().sum() / 2 < 0.02


@pytest.mark.parametrize(
    "given",
    [{"income": (60.0, 65.0)}, {"tax": (18.0, 20.0)}, {"language": "b", "income": (30, 45)}],
)
def test_conditional_rows_are_those_rows_that_meet_the_conditions(generator, given):
    fitted, _ = generator
    made, drawn = fitted.sample(200_000), fitted.sample(4_000, given=given)
    for name, wanted in given.items():
        holds = made[name] == wanted if isinstance(wanted, str) else made[name].between(*wanted)
        made = made[holds]
    for name in ("income", "tax"):
        assert drawn[name].mean() == pytest.approx(made[name].mean(), abs=0.2 + made.tax.std() / 10)
    for name in ("city", "language", "answer"):
        shares = [frame[name].value_counts(normalize=True) for frame in (made, drawn)]
        assert shares[0].sub(shares[1], fill_value=0).abs().sum() / 2 < 0.05


@pytest.mark.parametrize("given", [{"tax": (39.5, 40.0), "language": "c"}, {"income": (0.0, 0.1)}])
def test_conditions_that_hardly_any_record_meets_are_met(generator, given):
    fitted, _ = generator
    made = fitted.sample(300, given=given)
    for name, wanted in given.items():
        holds = made[name] == wanted if isinstance(wanted, str) else made[name].between(*wanted)
        assert holds.all()


def test_a_file_has_the_factors(generator, tmp_path):
    fitted, _ = generator
    fitted.save(tmp_path / "made.npz")
    loaded = DPSinkhornGenerator.load(tmp_path / "made.npz")
    first, second = (
        one._fitted.sample(2000, None, None, np.random.RandomState(0)) for one in (fitted, loaded)
    )
    pd.testing.assert_frame_equal(first, second)


MAY_MISS = {"bounds": (0, 7), "integer": True, "missing": True}
SCHEMA = read_schema({"a": MAY_MISS, "b": MAY_MISS, "c": ["x", "y"], "d": ["x", "y"]}, "d")


def codes_with_a_strong_pair(n):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 8, n)
    b = np.clip(a + rng.integers(-1, 2, n), 0, 7)
    return np.column_stack([a, b, rng.integers(0, 2, (n, 2))])


def release_of(codes, noise=1.0, seed=0):
    shares = share_marginals(SCHEMA, parities=True)
    releases = SketchReleases(noise, shares, "add_remove", make_source(seed))
    return release_marginals(codes, SCHEMA, releases, parities=True)


def moves_of_a_record(record=(7, 0, 1, 1)):
    """Return by how much a record more moves each release, of its sensitivity."""
    codes = codes_with_a_strong_pair(2000)
    first = transcript_of(lambda: release_of(codes))
    more = np.vstack([codes, record])
    return moved_by(transcript_of(lambda: release_of(more), given=first), first)


def test_a_record_moves_signs_and_strong_pairs_by_their_sensitivity(monkeypatch):
    moved = moves_of_a_record()
    assert moved["signs"] == pytest.approx(1) and moved["strong"] == pytest.approx(1)
    # A missing value has no half.
    assert 0 < moves_of_a_record((8, 0, 1, 1))["signs"] < 1
    honest = counts_of_tables.product_sums
    monkeypatch.setattr(counts_of_tables, "product_sums", lambda signs: 2 * honest(signs))
    assert moves_of_a_record()["signs"] > 1.9
    monkeypatch.undo()
    # A record that counts twice.
    honest_tables = counts_of_tables.release_tables
    monkeypatch.setattr(
        counts_of_tables, "release_tables",
        lambda releases, name, counts, whole: honest_tables(
            releases, name, [count * 2 for count in counts] if name == "strong" else counts, whole
        ),
    )  # fmt: skip
    assert moves_of_a_record()["strong"] > 1.9


def test_where_noise_hides_signs_columns_are_counted_again():
    codes, errors = codes_with_a_strong_pair(10), []
    exact = np.concatenate(
        [
            np.bincount(2 * codes[:, j] + codes[:, 3], minlength=2 * n)
            for j, n in enumerate((9, 9, 2))
        ]
    )
    for seed in range(40):
        found = release_of(codes, 20.0, seed)
        assert "strong_pairs" not in found
        errors.append((found["counts"].ravel() - exact) / found["deviations"][0])
    assert kstest(np.concatenate(errors), "norm").pvalue > 1e-4
    shares = share_marginals(SCHEMA, parities=True)
    share = sum(shares[name] for name in ("values", "signs", "strong")) / sum(shares.values())
    assert found["deviations"][0] == pytest.approx(20 * np.sqrt(3 / share))


def test_the_noise_of_strong_pairs_is_as_declared():
    codes, errors = codes_with_a_strong_pair(20_000), []
    for seed in range(10):
        found = release_of(codes, 20.0, seed)
        assert [0, 1] in found["strong_pairs"].tolist()
        groups = np.split(found["strong_groups"], np.cumsum(found["n_cells"])[:-1])
        exact = []
        for a, b in found["strong_pairs"]:
            size = groups[b].max() + 1
            pair = groups[a][codes[:, a]] * size + groups[b][codes[:, b]]
            exact.append(np.bincount(pair, minlength=(groups[a].max() + 1) * size))
        shares = share_marginals(SCHEMA, parities=True)
        share = shares["strong"] / sum(shares.values())
        deviation = 20 * np.sqrt(len(exact) / share)
        assert found["strong_deviation"][0] == pytest.approx(deviation)
        errors.append((found["strong_counts"] - np.concatenate(exact)) / deviation)
    assert kstest(np.concatenate(errors), "norm").pvalue > 1e-4
    assert kstest(1.3 * np.concatenate(errors), "norm").pvalue < 1e-4
    assert kstest(0.7 * np.concatenate(errors), "norm").pvalue < 1e-4


def test_a_parity_of_uneven_columns_leaves_their_shares(rng):
    n = 30_000
    table = pd.DataFrame(rng.uniform(size=(n, 2)) < [0.3, 0.35], columns=["a", "b"]).astype(int)
    table["c"] = (table["a"] ^ table["b"]) ^ (rng.uniform(size=n) < 0.05)
    table["other"] = rng.integers(0, 2, n)
    schema = dict.fromkeys(table, [0, 1])
    generator = DPSinkhornGenerator(2.0, 1e-6, schema=schema, random_state=0).fit(table)
    sampled = generator.sample(n)
    assert len(generator._fitted.model["parities"]) == 1
    assert ((sampled["a"] ^ sampled["b"]) == sampled["c"]).mean() > 0.93
    np.testing.assert_allclose(sampled.mean(), table.mean(), atol=0.015)
    # A column that is in no parity is drawn evenly: by chance, two samples would differ by 120.
    assert abs(sampled["other"].sum() - generator.sample(n - 1)["other"].sum()) < 20


def test_questions_that_rotate_are_strong_pairs(rng):
    n, names = 6000, [*"abcdefghijkl"]
    table = pd.DataFrame(rng.uniform(size=(n, 12)), columns=names)
    for k, name in enumerate("abc"):
        table.loc[np.arange(n) % 4 == k, name] = np.nan
    schema = dict.fromkeys(names, {"bounds": (0.0, 1.0), "missing": True})
    generator = DPSinkhornGenerator(1.0, 1e-6, schema=schema, random_state=0).fit(table)
    edges = generator._fitted.model["edges"]
    # Their halves hardly depend on each other, but nobody misses two of them.
    assert len(edges) >= 2 and edges[edges[:, 0] >= 0].max() < 3
    missed = generator.sample(n)[["a", "b", "c"]].isna().sum(axis=1)
    assert (missed <= 1).mean() > 0.9


@pytest.mark.experiment
def test_pairs_that_are_independent_of_each_other_are_no_parity_and_stay_independent(rng):
    n = 30_000
    table = pd.DataFrame(rng.uniform(size=(n, 4)), columns=[*"abcd"])
    for name in "abcd":
        table[name.upper()] = (table[name] + 0.05 * rng.normal(size=n)).clip(0, 1)
    schema = dict.fromkeys(table, (0.0, 1.0))
    generator = DPSinkhornGenerator(4.0, 1e-6, schema=schema, random_state=0).fit(table)
    assert not len(generator._fitted.model["parities"])
    errors = np.abs(generator.sample(n).corr() - table.corr())
    assert errors.to_numpy().max() < 0.1


def test_rows_may_have_many_parents(rng):
    """More than an integer of 64 bits can number all at once."""
    own, grouped = np.ones((400, 3)), {a: rng.integers(20, size=500) for a in range(-16, 0)}
    factors = {a: np.ones((20, 3)) for a in grouped}
    factors[-16], factors[-1] = (np.eye(3)[rng.integers(3, size=20)] + 1e-9 for _ in range(2))
    drawn, _ = draw_groups(
        own, rng.integers(400, size=500), factors, grouped, np.random.RandomState(0)
    )
    first, last = (factors[a][grouped[a]].argmax(axis=1) for a in (-16, -1))
    assert (drawn == first)[first == last].all() and ((drawn == first) | (drawn == last)).all()


def test_a_pair_of_many_categories_is_as_near_as_another_sample(rng):
    """With a number that depends on both: a distance is drawn after its origin and destination."""
    n, places, categories = 60_000, rng.normal(size=(40, 2)), list(range(40))
    routes = rng.gamma(0.15, size=(40, 40)) * rng.gamma(1.0, size=(40, 1))
    start, end = np.divmod(rng.choice(1600, n, p=(routes / routes.sum()).ravel()), 40)
    distance = (100 * np.hypot(*(places[start] - places[end]).T)).astype(int)
    table = pd.DataFrame({"distance": distance, "from": start, "to": end})
    declared = {"categories": categories}
    schema = {"distance": range(1000), "from": declared, "to": declared}
    made = DPSinkhornGenerator(1000.0, 1e-6, schema=schema, random_state=0).fit(table).sample(n)

    def error(other):
        tables = [pd.crosstab(t["from"], t["to"]).reindex(categories) / n for t in (other, table)]
        return (tables[0] - tables[1]).abs().sum().sum() / 2

    assert error(made) < error(table.sample(frac=1, replace=True, random_state=0))
