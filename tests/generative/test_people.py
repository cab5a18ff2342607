"""People with several rows: what a person changes, and what is generated of people."""

import math
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import halfnorm, kstest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.metadata_routing import get_routing_for_object

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch
from skdpot.generative._sketch import people_sketch
from skdpot.generative._sketch.people_parts import PeoplePart
from skdpot.generative._sketch.people_targets import _denoised, _group_shares
from skdpot.generative._sketch.row_products import mean_products
from skdpot.releases import RADIUS
from tests.oracles.people import SCHEMA, SMALL, fit_people, make_people, refused
from tests.oracles.sketch import moved_by, squared_mu, squared_norm, transcript_of


def one_person(stars, **columns):
    """Return rows of one more person."""
    n = len(stars)
    values = {"day": np.arange(n) % 100.0, "shop": "A", "spent": 1000.0, "sex": "F", "age": 18}
    return pd.DataFrame({"user": -1, "stars": stars, **values, **columns})


# Of one row, of two, of a thousand and of many; alike, and as different as they may be.
PERSONS = {
    "a row": one_person([5]),
    "two rows": one_person([1, 5]),
    "a row, twice": one_person([5, 5], day=3.0),
    "seven rows": one_person([5] * 7, shop=None, spent=np.nan),
    "as many as are told apart": one_person([5, 1] * 500, shop=["A", "C"] * 500),
    "at both ends of all columns": one_person(
        [1, 5] * 50, day=[0.0, 100.0] * 50, spent=[0.0, 1000.0] * 50, shop=["A", "C"] * 50
    ),
    "far too many": one_person([5] * 100_000),
    "far too many, in turns": one_person([5, 1] * 50_000, spent=[0.0, 1000.0] * 50_000),
}


def farthest(persons, base=None):
    """Return by how much of the sensitivity these people move each release, at most."""
    base = make_people(60) if base is None else base
    first = transcript_of(lambda: fit_people(base))
    moved = dict.fromkeys(first, 0.0)
    for person in persons:
        rows = pd.concat([base.iloc[:50], person, base.iloc[50:]])
        other = transcript_of(lambda: fit_people(rows), given=first)  # noqa: B023
        assert squared_mu(first, other) <= 1 / spent_noise(first) ** 2 * (1 + 1e-9)
        moved = {name: max(moved[name], part) for name, part in moved_by(first, other).items()}
    return moved


def spent_noise(transcript):
    """Return the noise multiplier of all releases as one."""
    return math.fsum((of.sensitivity / of.deviation) ** 2 for of in transcript.values()) ** -0.5


def test_a_person_moves_no_release_further_than_declared_however_many_rows_she_has():
    moved = farthest(PERSONS.values())
    assert set(moved) == {
        "cells 1", "cells 2", "cells 3", "values", "pairs", "within", "crossed", "next",
    }  # fmt: skip
    assert max(moved.values()) <= 1.0
    # And the noise is for no more than people may do.
    assert all(moved[name] > 0.999 for name in ("cells 1", "values", "pairs"))
    assert min(moved["within"], moved["next"]) > 0.5


def test_clipping_rows_instead_of_people_would_be_seen(monkeypatch):
    """The mistake that is planted: every row adds what a person may add."""
    whole = np.float64(2**20)
    monkeypatch.setattr(
        PeoplePart, "weights", property(lambda part: np.full(part.sizes.sum(), whole))
    )
    with pytest.raises(AssertionError):
        farthest([PERSONS["two rows"]])
    monkeypatch.undo()
    assert max(farthest([PERSONS["two rows"]]).values()) <= 1.0


def test_means_of_rows_are_rounded_towards_zero():
    """Of points in the ball, the mean rounded to the nearest integers may be outside of it."""
    low, high = np.array([2896] * 7 + [2893]), [1] * 5 + [0] * 3
    points = low + np.array([np.roll(high, i) for i in range(8)])
    nearest = np.rint(points.mean(axis=0)).astype(int)
    assert max(map(squared_norm, points)) <= RADIUS**2 < squared_norm(nearest)
    rows = SimpleNamespace(
        row_columns=[0, 1], shared=(), schema=SimpleNamespace(columns=[None] * 3)
    )
    person = PeoplePart([np.arange(8)] * 2, np.array([8]))
    (sums,) = mean_products(rows, dict.fromkeys((0, 1), np.arange(9)), [points, points], person)
    assert squared_norm(sums) <= RADIUS**4


def test_a_person_replaced_moves_releases_by_twice_as_much_at_most():
    base = make_people(40)
    one, other = (
        transcript_of(lambda: fit_people(pd.concat([base, PERSONS[name]])))  # noqa: B023
        for name in ("far too many", "far too many")
    )
    assert max(moved_by(one, other).values()) == 0.0
    rows = pd.concat([base, PERSONS["two rows"]])
    assert max(moved_by(one, transcript_of(lambda: fit_people(rows), given=one)).values()) <= 2.0


def test_the_noise_is_that_of_the_budget_and_the_unit_is_a_user():
    ledger = PrivacyLedger(2.0, 1e-5, neighbouring="add_remove")
    generator = fit_people(make_people(60), random_state=None, ledger=ledger)
    assert generator.privacy_guarantee_.unit == "user"
    assert ledger.spent()[0] == pytest.approx(1.0, rel=1e-3)
    transcript = transcript_of(lambda: fit_people(make_people(60)))
    assert spent_noise(transcript) == pytest.approx(generator.noise_multiplier_, rel=1e-9)


def test_noise_of_each_release_has_its_scale(rng):
    transcripts = [
        transcript_of(lambda: fit_people(make_people(30), random_state=seed))  # noqa: B023
        for seed in range(8)
    ]
    for name in transcripts[0]:
        noise = [(of[name].released - of[name].sums) / of[name].deviation for of in transcripts]
        noise = np.abs(np.concatenate([np.ravel(part) for part in noise]))
        for share, fits in ((0.8, False), (1.0, True), (1.25, False)):
            pvalue = kstest(noise, halfnorm(scale=share).cdf).pvalue
            assert pvalue > 1e-4 if fits else pvalue < 1e-5 or len(noise) < 1000, name


def test_rows_are_counted_by_person_whatever_their_order_and_the_part_that_they_are_in():
    X = make_people(50)
    whole = fit_people(X)
    shuffled = X.sample(frac=1.0, random_state=0)
    # Equal days do not occur here: they would be in the order of the rows.
    same = [
        fit_people(shuffled),
        fit_people(X.drop(columns="user"), groups=X["user"]),
        fit_people(X.drop(columns="user"), groups=[f"person {u}" for u in X["user"]]),
        fit_people([X[X["user"] < 20], X[X["user"] >= 20]]),
        fit_people(of for _, of in X.groupby(X["user"] % 3)),
    ]
    drawn = whole.set_params(random_state=1).sample(n_users=20)
    for generator in same:
        drawn_too = generator.set_params(random_state=1).sample(n_users=20)
        pd.testing.assert_frame_equal(drawn_too, drawn, check_names=False)


def test_partitions_of_dask_are_added_up_with_one_release_and_one_charge():
    dataframe = pytest.importorskip("dask.dataframe")
    import dask

    X = make_people(50)
    ledger = PrivacyLedger(5.0, 1e-5, neighbouring="add_remove")
    with dask.config.set(scheduler="sync"):
        parts = dataframe.from_pandas(X.set_index("user"), npartitions=4).reset_index()
        found = transcript_of(lambda: fit_people(parts, random_state=0, ledger=None))
        private = fit_people(parts, random_state=None, ledger=ledger)
    assert moved_by(transcript_of(lambda: fit_people(X)), found).keys() == found.keys()
    assert max(moved_by(transcript_of(lambda: fit_people(X)), found).values()) == 0.0
    assert private.privacy_guarantee_.unit == "user"
    assert ledger.spent()[0] == pytest.approx(1.0, rel=1e-3)


def test_columns_of_people_are_those_of_their_first_rows():
    X = make_people(40)
    others = X.copy()
    later = others["user"].duplicated()
    others.loc[later, "sex"] = "F"
    assert (
        max(
            moved_by(
                transcript_of(lambda: fit_people(X)), transcript_of(lambda: fit_people(others))
            ).values()
        )
        == 0.0
    )


def test_people_are_generated_with_what_they_have_and_their_rows():
    X = make_people(2000, n_rows=8.0)
    generator = fit_people(X, epsilon=None, model=TableSketch(n_components=240, n_iter=300))
    drawn = generator.set_params(random_state=2).sample(n_users=2000)
    assert list(drawn.columns) == list(X.columns)
    assert drawn["user"].nunique() == 2000
    assert (drawn.groupby("user")[["sex", "age"]].nunique() == 1).all(axis=None)
    assert drawn.groupby("user")["day"].is_monotonic_increasing.all()
    for of in (X, drawn):
        assert of["stars"].between(1, 5).all()
    sizes = [of.groupby("user").size() for of in (X, drawn)]
    assert sizes[1].mean() == pytest.approx(sizes[0].mean(), rel=0.05)
    assert sizes[1].std() == pytest.approx(sizes[0].std(), rel=0.15)
    within = [of.groupby("user")["stars"].var().mean() for of in (X, drawn)]
    assert within[1] == pytest.approx(within[0], rel=0.1)
    assert lag_one(drawn) == pytest.approx(lag_one(X), rel=0.1)
    by_sex = [of.groupby("sex")["stars"].mean() for of in (X, drawn)]
    np.testing.assert_allclose(by_sex[1], by_sex[0], rtol=0.05)


def test_rows_scatter_around_their_person_as_much_in_numbers_that_are_skewed():
    """Means and variances are those of numbers: ranks would be right, and these not."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(1500), rng.integers(2, 12, 1500))
    centre = rng.exponential(10, 1500)[person]
    X = pd.DataFrame({"user": person, "spent": centre * rng.exponential(1, len(person))})
    X["kind"] = np.where(rng.random(len(person)) < 0.5, "a", "b")
    schema = {"spent": (0.0, 150.0), "kind": ["a", "b"]}
    model = TableSketch(n_components=240, n_iter=200)
    drawn = fit_people(X, epsilon=None, schema=schema, model=model).sample(n_users=1500)
    within = [of.groupby("user")["spent"].var().mean() for of in (X, drawn)]
    between = [of.groupby("user")["spent"].mean().var() for of in (X, drawn)]
    assert within[1] == pytest.approx(within[0], rel=0.1)
    assert between[1] == pytest.approx(between[0], rel=0.15)


@pytest.mark.parametrize("seed", [2, 3])
def test_nobody_has_far_more_rows_than_people_have(seed):
    X = make_people(3000, n_rows=3.0)
    generator = fit_people(X, model=TableSketch(24, n_iter=60), random_state=seed)
    sizes = generator.sample(n_users=2000).groupby("user").size()
    # Of empty cells that are not cleared, noise alone makes people of hundreds of rows.
    assert sizes.max() < 15
    assert sizes.mean() == pytest.approx(X.groupby("user").size().mean(), abs=0.3)


@pytest.mark.parametrize("classes", [None, ["no", "yes"]])
def test_people_are_drawn_a_block_at_a_time(classes, monkeypatch):
    monkeypatch.setattr(people_sketch, "_PEOPLE_AT_ONCE", 7)
    X = make_people(60)
    y = None if classes is None else np.where(X["stars"] > 2, "yes", "no")
    generator = DPSinkhornGenerator(
        2.0, 1e-6, schema={**SCHEMA, "code": {"identifier": True}}, classes=classes, model=SMALL
    )
    X["code"] = 0
    drawn = generator.fit(X.drop(columns="user"), y, groups=X["user"]).sample(n_users=20)
    rows, labels = (drawn, None) if classes is None else drawn
    assert sorted(set(rows["user"])) == list(range(20)) and (rows["user"].diff()[1:] >= 0).all()
    # Identifiers go on from block to block.
    assert rows["code"].tolist() == list(range(1, len(rows) + 1))
    assert labels is None or (len(labels) == len(rows) and set(labels) <= set(classes))
    # People and their own columns are of one block.
    assert (rows.groupby("user")["sex"].nunique() == 1).all()


@pytest.mark.parametrize("n_rows", [10, 50])
def test_people_have_the_rows_that_all_people_have(n_rows):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"user": np.repeat(np.arange(1000), n_rows)})
    X["stars"] = rng.integers(1, 6, len(X))
    generator = fit_people(X, schema={"stars": range(1, 6)}, model=TableSketch(24, n_iter=60))
    sizes = generator.sample(n_users=1000).groupby("user").size()
    # Cells of numbers of rows are up to 1.4 times as wide, where they are not cut.
    assert sizes.mean() == pytest.approx(n_rows, rel=0.03)
    assert sizes.median() == pytest.approx(n_rows, rel=0.03)


def test_empty_ends_of_long_tails_hold_nobody():
    X = make_people(800)
    X["spent"] = X["spent"].fillna(1.0).clip(1, 1000)
    schema = {**SCHEMA, "spent": {"bounds": (1.0, 1e7), "scale": "log"}}
    generator = fit_people(X, schema=schema, model=TableSketch(24, n_iter=60))
    # Noise alone would make the mean 40,000.
    assert generator.sample(2000)["spent"].max() < 3000


def test_what_noise_does_not_explain_is_kept_of_pairs_and_shares_are_those_of_all_tables(rng):
    true = np.array([[0.3, 0.1], [0.1, 0.5]])
    shares = true.sum(axis=1), true.sum(axis=0)
    chance = np.outer(*shares)
    np.testing.assert_allclose(_denoised(true, shares, 0.001), true, atol=1e-4)
    np.testing.assert_allclose(_denoised(true, shares, 0.5), chance, atol=1e-12)
    # Margins that a table has by noise do not count twice.
    np.testing.assert_allclose(_denoised(true + 0.1, shares, 0.001), true, atol=1e-4)
    columns, errors = [slice(0, 2), slice(2, 4)], []
    for _ in range(200):
        singles = np.concatenate(shares) + 0.02 * rng.normal(size=4)
        pairs, of_pairs = np.zeros((4, 4)), np.zeros((4, 4))
        pairs[:2, 2:] = true + 0.01 * rng.normal(size=(2, 2))
        of_pairs[:2, 2:] = 0.01**-2
        found, precisions = _group_shares(singles, np.full(4, 0.02**-2), pairs, of_pairs, columns)
        errors.append(found[0][0] - shares[0][0])
    np.testing.assert_allclose(precisions, 0.02**-2 + 0.01**-2 / 2)
    # Both cells have errors, which are divided by their difference.
    assert np.std(errors) == pytest.approx((2 * precisions[0]) ** -0.5, rel=0.15)


def lag_one(rows):
    """Return the correlation of the stars of a row and of the next one of the same person."""
    stars, user = rows["stars"].to_numpy(), rows["user"].to_numpy()
    same = user[1:] == user[:-1]
    return np.corrcoef(stars[:-1][same], stars[1:][same])[0, 1]


def test_single_rows_are_those_of_random_people():
    # A tenth of all people has most of the rows.
    X = pd.DataFrame({"user": np.repeat(np.arange(1000), np.where(np.arange(1000) < 100, 50, 1))})
    X["kind"] = np.where(X["user"] < 100, "busy", "idle")
    X["word"] = np.where(np.arange(len(X)) % 2, "a", "b")
    schema = {"kind": ["busy", "idle"], "word": ["a", "b"]}
    generator = fit_people(
        X, epsilon=None, schema=schema, model=TableSketch(n_components=60, n_iter=400)
    )
    rows, people = generator.sample(4000), generator.sample(n_users=1000)
    assert rows["kind"].eq("busy").mean() == pytest.approx(0.1, abs=0.02)
    assert people["kind"].eq("busy").mean() == pytest.approx(X["kind"].eq("busy").mean(), abs=0.1)
    assert generator.sample(50, given={"kind": "busy"})["kind"].eq("busy").all()


@pytest.mark.parametrize("apart", [False, True])
def test_targets(apart):
    X = make_people(60)
    schema = {name: of for name, of in SCHEMA.items() if name != "shop"}
    if apart:
        y = X["shop"].fillna("A")
        generator = DPSinkhornGenerator(
            1.0, 1e-6, schema=schema, classes=["A", "B", "C"], model=SMALL, random_state=0
        ).fit(X.drop(columns=["user", "shop"]), y, groups=X["user"])
        rows, labels = generator.sample(y={"A": 3, "B": 4})
        assert sorted(labels) == ["A"] * 3 + ["B"] * 4
        people, labels = generator.sample(n_users=7)
        assert len(people) == len(labels)
    else:
        generator = fit_people(X, target="sex")
        assert generator.sample(y={"F": 5})["sex"].eq("F").all()
        people = generator.sample(n_users=7)
    assert people["user"].nunique() == 7


def test_arrays_and_polars():
    X = make_people(40)
    schema = {0: range(1, 6), 1: (0.0, 100.0)}
    of_array = fit_people(
        X[["stars", "day"]].to_numpy(), groups=X["user"].to_numpy(), schema=schema
    )
    drawn = of_array.sample(n_users=5)
    assert drawn.shape[1] == 3 and set(drawn[:, 0]) == set(range(5))
    polars = pytest.importorskip("polars")
    of_polars = fit_people(polars.from_pandas(X))
    assert of_polars.sample(n_users=5).columns == list(X.columns)


def test_files_hold_people(tmp_path):
    generator = fit_people(make_people(60).rename(columns={"user": "name"}), groups="name")
    generator.save(tmp_path / "file")
    loaded = DPSinkhornGenerator.load(tmp_path / "file").set_params(random_state=0)
    generator.set_params(random_state=0)
    drawn = loaded.sample(n_users=9)
    assert drawn.columns[0] == "name"
    pd.testing.assert_frame_equal(drawn, generator.sample(n_users=9))
    assert loaded.schema["sex"]["per"] == "user" and loaded.schema["day"]["order"] is True
    pd.testing.assert_frame_equal(loaded.sample(5), generator.sample(5))


def test_forged_files_are_refused():
    sketch = fit_people(make_people(30))._fitted
    header, arrays = sketch.to_file()
    for name, forged in (
        ("types", arrays["types"][:-1]),
        ("chains", -arrays["chains"]),
        ("cells", arrays["cells"][:, :1]),
        ("starts", arrays["starts"] + 1),
    ):
        with pytest.raises(ValueError, match="does not hold a sketch of people"):
            type(sketch).from_file(header["table"], {**arrays, name: forged}, 30)
    with pytest.raises(ValueError, match="does not hold a sketch of people"):
        other = header["table"] | {"people": header["table"]["people"] | {"own": ["name"]}}
        type(sketch).from_file(other, arrays, 30)


def test_what_is_wrong_is_said_before_the_charge_without_a_value():
    X = make_people(20)
    rows, users = X.drop(columns="user"), X["user"]
    assert str(len(rows)) not in refused("one person for each row", rows, users[1:].to_numpy())
    moments = [pd.Timestamp("2020"), pd.Timestamp("2021", tz="UTC")]
    for wrong in (["7", 7], [(7,), ("7",)], [Decimal(7), 7.5], moments):
        people = (wrong * len(rows))[: len(rows)]
        assert "202" not in refused("values of different types", rows, people)
    of_text = X.astype({"user": str})
    refused("values of different types", [X, of_text.iloc[-5:]], "user")
    refused("another index", rows, users[::-1])
    refused("masked array", rows, np.ma.masked_equal(users, 3))
    refused("no records", iter([X[:0], X[:0]]), "user")
    refused("X has no column 'name'", X, "name")
    refused("several parts", [X.iloc[:10], X.iloc[5:]], "user")
    plain = {"stars": range(1, 6)}
    refused("rows need one", X[["user", "stars"]], "user",
            schema={"stars": {"bounds": (1, 5), "per": "user"}})  # fmt: skip
    refused("'per': 'user' or", X[["user", "stars"]], "user",
            schema={"stars": {"bounds": (1, 5), "per": "day"}})  # fmt: skip
    twice = {name: {"bounds": (0, 5000), "order": True} for name in ("day", "spent")}
    refused("at most one column", X[["user", "day", "spent"]], "user", schema=twice)
    words = {"shop": {"categories": ["A", "B", "C"], "missing": True, "order": True}}
    refused("have no order", X[["user", "shop"]], "user", schema=words)
    refused("groups are for tables", X[["stars"]].to_numpy(), users, schema=None, model="auto")
    refused("give the person of each row as groups", rows, None)
    generator = DPSinkhornGenerator(1.0, schema=plain, model=SMALL).fit(X[["stars"]])
    with pytest.raises(ValueError, match="fitted with groups"):
        generator.sample(n_users=3)
    with pytest.raises(ValueError, match="whole people"):
        fit_people(X).sample(n_users=3, given={"stars": 3})


@pytest.mark.refuses_useless
def test_what_would_tell_nothing_of_people_is_refused_before_the_charge():
    X, plain = make_people(40)[["user", "stars"]], {"stars": range(1, 6)}
    ledger = PrivacyLedger(10.0, 1e-4, neighbouring="replace_one")
    with pytest.raises(ValueError, match="charged, because the release would be useless"):
        fit_people(X, epsilon=0.01, schema=plain, random_state=None, ledger=ledger)
    assert not ledger.entries()


def test_expected_errors_are_those_of_counts_over_the_number_of_people():
    transcript = transcript_of(lambda: fit_people(make_people(30)))
    for n_people in (1000, 8000):
        errors = DPSinkhornGenerator(1.0, 1e-6, schema=SCHEMA).preview(n_people, groups=True).errors
        # One of each column, of the number of rows, and of pairs.
        assert len(errors) == len(SCHEMA) + 2
        of_sex = next(error for error in errors if "'sex'" in error.quantity)
        deviation = transcript["values"].deviation / 2**20 / n_people
        # Pairs tell the same, about half as precisely as all counts of the column.
        assert 0.7 < of_sex.error / (deviation * math.sqrt(1 / 2)) < 0.95


def test_a_preview_and_routing():
    preview = DPSinkhornGenerator(1.0, 1e-6, schema=SCHEMA).preview(1000, groups=True)
    assert preview.guarantee.unit == "user"
    request = get_routing_for_object(DPSinkhornGenerator(schema=SCHEMA))
    assert "groups" in str(request)
    X = make_people(30)
    with config_context(enable_metadata_routing=True):
        generator = DPSinkhornGenerator(1.0, 1e-6, schema=SCHEMA, model=SMALL)
        pipeline = make_pipeline(FunctionTransformer(), generator)
        pipeline.fit(X.drop(columns="user"), groups=X["user"])
        assert pipeline[-1].privacy_guarantee_.unit == "user"


@pytest.mark.parametrize("is_nested", [False, True])
def test_groups_that_a_search_would_keep_to_itself_are_refused_before_the_charge(is_nested):
    """Without metadata routing, fits would protect rows, and no splitter by groups warns."""
    ledger, X = PrivacyLedger(1000.0, 0.1), make_people(30)
    rows, people = X.drop(columns="user"), X["user"]
    generator = DPSinkhornGenerator(1.0, 1e-6, schema=SCHEMA, model=SMALL, ledger=ledger)
    if is_nested:
        generator = make_pipeline(FunctionTransformer(), generator)
    search = GridSearchCV(generator, {}, cv=GroupKFold(2))
    for call in (search.fit, partial(cross_val_score, generator, cv=GroupKFold(2))):
        with pytest.raises(ValueError, match=r"enable_metadata_routing=True"):
            call(rows, groups=people)
    assert not ledger.entries()
    if not is_nested:
        with config_context(enable_metadata_routing=True):
            search.fit(rows, groups=people)
        assert {entry.unit for entry in ledger.entries()} == {"user"}
