"""People with several rows: what a person changes, and what is generated of people."""

import math
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.metadata_routing import get_routing_for_object

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch
from skdpot.tables import person_codes
from tests.oracles.people import SCHEMA, SMALL, fit_people, make_people, refused
from tests.oracles.sketch import moved_by, squared_mu, transcript_of
from tests.quick import first_quick


def one_person(stars, **columns):
    """Return rows of one more person."""
    values = {"day": np.arange(len(stars)) % 100.0, "shop": "A", "spent": 1000.0}
    return pd.DataFrame({"user": -1, "stars": stars, **values, **columns})


# Of one row, of two, of a thousand and of many; alike, and as different as they may be.
PERSONS = {
    "a row": one_person([5]),
    "two rows": one_person([1, 5]),
    "a row, twice": one_person([5, 5], day=3.0),
    "seven rows": one_person([5] * 7, shop=None, spent=np.nan),
    "at both ends of all columns": one_person(
        [1, 5] * 50, day=[0.0, 100.0] * 50, spent=[0.0, 1000.0] * 50, shop=["A", "C"] * 50
    ),
    "far too many": one_person([5] * 10_000, day=3.0),
    "more than weights": one_person([5] * (2**20 + 1)),
}
OPTIONS = {"no target": {}, "target": {"target": "shop"}}


def farthest(persons, **options):
    """Return by how much of the sensitivity these people move each release, at most."""
    base = make_people(60)
    first = transcript_of(lambda: fit_people(base, **options))
    moved = dict.fromkeys(first, 0.0)
    for person in persons:
        rows = pd.concat([base.iloc[:50], person, base.iloc[50:]])
        other = transcript_of(lambda: fit_people(rows, **options), given=first)  # noqa: B023
        assert squared_mu(first, other) <= 1 / spent_noise(first) ** 2 * (1 + 1e-9)
        moved = {name: max(moved[name], part) for name, part in moved_by(first, other).items()}
    return moved


def spent_noise(transcript):
    """Return the noise multiplier of all releases as one."""
    return math.fsum((of.sensitivity / of.deviation) ** 2 for of in transcript.values()) ** -0.5


@pytest.mark.parametrize("options", first_quick(OPTIONS.values(), 1), ids=list(OPTIONS))
def test_a_person_moves_no_release_further_than_declared_however_many_rows_she_has(options):
    moved = farthest(PERSONS.values(), **options)
    assert {"cells 1", "numbers of rows"} < set(moved) and "parities" not in moved
    # And the noise is for no more than people may do.
    assert 0.999 < min(moved.values()) and max(moved.values()) <= 1.0


@pytest.mark.experiment
def test_a_person_replaced_moves_releases_by_twice_as_much_at_most():
    """All rows of one person are replaced, by a search for the worst ones."""
    base, names = make_people(40), list(PERSONS)[:-1]
    for name in names:
        one = transcript_of(lambda: fit_people(pd.concat([base, PERSONS[name]])))  # noqa: B023
        for other in names:
            rows = pd.concat([base, PERSONS[other]])
            found = transcript_of(lambda: fit_people(rows), given=one)  # noqa: B023
            moved = moved_by(one, found)
            assert max(moved.values()) <= (2.0 if name != other else 0.0)


def test_the_noise_is_that_of_the_budget_and_the_unit_is_a_user():
    ledger = PrivacyLedger(2.0, 1e-5, neighbouring="add_remove")
    generator = fit_people(make_people(60), random_state=None, ledger=ledger)
    assert generator.privacy_guarantee_.unit == "user"
    assert ledger.spent()[0] == pytest.approx(1.0, rel=1e-3)
    transcript = transcript_of(lambda: fit_people(make_people(60)))
    assert spent_noise(transcript) == pytest.approx(generator.noise_multiplier_, rel=1e-9)


def test_rows_are_counted_by_person_whatever_their_order_and_names():
    X = make_people(50)
    same = [
        fit_people(X.sample(frac=1.0, random_state=0)),
        fit_people(X.drop(columns="user"), groups=X["user"]),
        fit_people(X.drop(columns="user"), groups=[f"person {u}" for u in X["user"]]),
    ]
    drawn = fit_people(X).set_params(random_state=1).sample(n_users=20)
    for generator in same:
        drawn_too = generator.set_params(random_state=1).sample(n_users=20)
        pd.testing.assert_frame_equal(drawn_too, drawn, check_names=False)


@pytest.mark.parametrize("seed", [2, 3])
def test_people_have_the_numbers_of_rows_that_people_have(seed):
    X = make_people(3000, n_rows=3.0)
    generator = fit_people(X, random_state=seed)
    drawn = generator.sample(n_users=2000)
    assert list(drawn.columns) == list(X.columns)
    sizes = drawn.groupby("user").size()
    assert len(sizes) == 2000 and drawn["user"].is_monotonic_increasing
    # Of empty cells that are not cleared, noise alone makes people of hundreds of rows.
    assert sizes.max() < 15
    assert sizes.mean() == pytest.approx(X.groupby("user").size().mean(), abs=0.3)
    assert generator.n_records_ == pytest.approx(3000, rel=0.05)


def test_single_rows_are_those_of_random_people():
    # A tenth of all people has most of the rows.
    X = pd.DataFrame({"user": np.repeat(np.arange(1000), np.where(np.arange(1000) < 100, 50, 1))})
    X["kind"] = np.where(X["user"] < 100, "busy", "idle")
    X["word"] = np.where(np.arange(len(X)) % 2, "a", "b")
    schema = {"kind": ["busy", "idle"], "word": ["a", "b"]}
    generator = fit_people(
        X, epsilon=None, schema=schema, model=TableSketch(n_components=60, n_iter=400)
    )
    assert generator.sample(4000)["kind"].eq("busy").mean() == pytest.approx(0.1, abs=0.02)
    assert generator.sample(50, given={"kind": "busy"})["kind"].eq("busy").all()
    sizes = generator.sample(n_users=1000).groupby("user").size()
    assert (sizes > 30).mean() == pytest.approx(0.1, abs=0.03) and (sizes == 1).mean() > 0.85


@pytest.mark.parametrize("apart", [False, True])
def test_targets(apart):
    X = make_people(60)
    X["shop"] = X["shop"].fillna("A")
    schema = {**SCHEMA, "shop": ["A", "B", "C"]}
    if apart:
        del schema["shop"]
        generator = DPSinkhornGenerator(
            1.0, 1e-6, schema=schema, classes=["A", "B", "C"], model=SMALL, random_state=0
        ).fit(X.drop(columns=["user", "shop"]), X["shop"], groups=X["user"])
        rows, labels = generator.sample(y={"A": 3, "B": 4})
        assert sorted(labels) == ["A"] * 3 + ["B"] * 4
        people, labels = generator.sample(n_users=7)
        assert len(people) == len(labels)
    else:
        generator = fit_people(X, schema=schema, target="shop")
        assert generator.sample(y={"B": 5})["shop"].eq("B").all()
        people = generator.sample(n_users=7)
    assert people["user"].nunique() == 7


def test_arrays_and_frames():
    X = make_people(40)
    schema = {0: range(1, 6), 1: (0.0, 100.0)}
    users = X["user"].to_numpy()
    of_array = fit_people(X[["stars", "day"]].to_numpy(), groups=users, schema=schema)
    drawn = of_array.sample(n_users=5)
    assert drawn.shape[1] == 3 and set(drawn[:, 0]) == set(range(5))
    polars = pytest.importorskip("polars")
    of_polars = fit_people(polars.from_pandas(X))
    assert of_polars.sample(n_users=5).columns == list(X.columns)
    of_arrow = fit_people(pa.Table.from_pandas(X))
    assert of_arrow.sample(n_users=5).column_names == list(X.columns)


def test_files_hold_people(tmp_path):
    generator = fit_people(make_people(60).rename(columns={"user": "name"}), groups="name")
    generator.save(tmp_path / "file")
    loaded = DPSinkhornGenerator.load(tmp_path / "file").set_params(random_state=0)
    generator.set_params(random_state=0)
    drawn = loaded.sample(n_users=9)
    assert drawn.columns[0] == "name"
    pd.testing.assert_frame_equal(drawn, generator.sample(n_users=9))
    pd.testing.assert_frame_equal(loaded.sample(5), generator.sample(5))
    assert "people" in str(loaded.quality())


def test_what_is_wrong_is_said_before_the_charge_without_a_value():
    X = make_people(20)
    rows, users = X.drop(columns="user"), X["user"]
    assert str(len(rows)) not in refused("one person for each row", rows, users[1:].to_numpy())
    moments = [pd.Timestamp("2020"), pd.Timestamp("2021", tz="UTC")]
    for wrong in (["7", 7], [(7,), ("7",)], [Decimal(7), 7.5], moments):
        people = (wrong * len(rows))[: len(rows)]
        assert "202" not in refused("values of different types", rows, people)
    refused("another index", rows, users[::-1])
    # A name with a missing part equals none, not even itself: each row would be a person.
    names = [("a", np.nan), ("a", 1), (("a", None), 2), ("a", 1)]
    assert person_codes(names, 4, leave_out=True)[0].tolist() == [-1, 0, -1, 0]
    # Nor does a missing name change others; names that cannot be read are nobody.
    long = pd.Series(pd.Categorical([2**60, 2**60 + 1, None, 2**60]))
    assert person_codes(long, 4, leave_out=True)[0].tolist() == [0, 1, -1, 0]
    parts = [None, pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"a\xff\xfe")]
    unread = pa.chunked_array([pa.Array.from_buffers(pa.string(), 3, parts)])
    assert person_codes(unread, 3, leave_out=True)[0].tolist() == [0, -1, -1]
    # Times are rounded where they are read: two people would be one.
    times = np.datetime64("2020-01-01", "ns") + users.to_numpy(dtype="m8[ns]")
    refused("by dates, times or short", rows, times)
    assert len(person_codes(list(times), len(rows))[1]) == users.nunique()
    refused("X has no column 'name'", X, "name")
    refused("groups are for tables", X[["stars"]].to_numpy(), users, schema=None, model="auto")
    plain = {"stars": range(1, 6)}
    generator = DPSinkhornGenerator(1.0, schema=plain, model=SMALL).fit(X[["stars"]])
    with pytest.raises(ValueError, match="fitted with groups"):
        generator.sample(n_users=3)
    with pytest.raises(ValueError, match="whole people"):
        fit_people(X).sample(n_users=3, given={"stars": 3})


def test_noise_of_weights_beyond_all_numbers_is_refused_before_the_charge():
    refused("epsilon is too small for a sketch", make_people(20), "user", epsilon=1e-9)


@pytest.mark.refuses_useless
def test_what_would_tell_nothing_of_people_is_refused_before_the_charge():
    X, plain = make_people(40)[["user", "stars"]], {"stars": range(1, 6)}
    ledger = PrivacyLedger(10.0, 1e-4, neighbouring="replace_one")
    with pytest.raises(ValueError, match="charged, because the release would be useless"):
        fit_people(X, epsilon=0.01, schema=plain, random_state=None, ledger=ledger)
    assert not ledger.entries()


def test_a_preview_and_routing():
    preview = DPSinkhornGenerator(1.0, 1e-6, schema=SCHEMA).preview(1000, groups=True)
    assert preview.guarantee.unit == "user"
    # One of each column, and of pairs.
    assert len(preview.errors) == len(SCHEMA) + 1
    request = get_routing_for_object(DPSinkhornGenerator(schema=SCHEMA))
    assert "groups" in str(request)
    X = make_people(30)
    with config_context(enable_metadata_routing=True):
        generator = DPSinkhornGenerator(1.0, 1e-6, schema=SCHEMA, model=SMALL)
        pipeline = make_pipeline(FunctionTransformer(), generator)
        pipeline.fit(X.drop(columns="user"), groups=X["user"])
        assert pipeline[-1].privacy_guarantee_.unit == "user"


@pytest.mark.parametrize("is_nested", first_quick([True, False], 1))
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
