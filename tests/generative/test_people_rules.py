"""Rules in the rows of people, of what they have themselves, and of both; targets of numbers."""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.generative._sketch import people_rows
from skdpot.generative._sketch.people_model import as_mixture
from tests.oracles.people import SCHEMA, SMALL, fit_people, make_people, refused
from tests.oracles.sketch import moved_by, transcript_of

VISITS = {
    "start": {"bounds": (0.0, 300.0), "order": True},
    "end": (0.0, 330.0),
    "days": (0.0, 330.0),
    "age": range(15, 90),
    "born": {"bounds": (1930, 2005), "integer": True, "per": "user"},
    "low": {"bounds": (0.0, 100.0), "per": "user"},
    "high": {"bounds": (0.0, 100.0), "per": "user"},
    "range": {"bounds": (0.0, 100.0), "per": "user"},
    "home": {"categories": ["A", "B", "C"], "per": "user"},
    "ward": ["A", "B", "C"],
}
RULES = [
    "end >= start + 1",
    "days == end - start",
    "2026 - born >= age - 1 and age >= 15",
    "home == 'A' -> age >= 30",
    "high >= low",
    "range == high - low",
    "ward != home",
]


def make_visits(n_people=400, seed=0):
    """Return rows that keep the rules."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n_people), rng.poisson(4, n_people) + 1)
    n, homes = len(person), np.array(["A", "B", "C"], dtype=object)
    home, low = rng.integers(0, 3, n_people)[person], rng.uniform(0, 50, n_people)[person]
    start, days = rng.uniform(0, 300, n), rng.uniform(1, 30, n)
    high = low + rng.uniform(0, 50, n_people)[person]
    return pd.DataFrame(
        {
            "user": person, "start": start, "end": start + days, "days": days,
            "age": rng.integers(30, 60, n), "born": rng.integers(1930, 1996, n_people)[person],
            "low": low, "high": high, "range": high - low, "home": homes[home],
            "ward": homes[(home + rng.integers(1, 3, n)) % 3],
        }
    )  # fmt: skip


def are_kept(rows):
    """Tell which of the rules hold in all rows."""
    return [
        (rows["end"] >= rows["start"] + 1).all(),
        np.allclose(rows["days"], rows["end"] - rows["start"]),
        (2026 - rows["born"] >= rows["age"] - 1).all(),
        (rows.loc[rows["home"] == "A", "age"] >= 30).all(),
        (rows["high"] >= rows["low"]).all(),
        np.allclose(rows["range"], rows["high"] - rows["low"]),
        (rows["ward"] != rows["home"]).all(),
    ]


def are_people(rows, own):
    """Tell whether people have one value of what is theirs, and rows in their order."""
    once = rows.groupby("user")[own].nunique(dropna=False) == 1
    return once.all(axis=None) and rows.groupby("user")["start"].is_monotonic_increasing.all()


@pytest.mark.parametrize("target", [None, "home", "age"])
def test_rules_of_rows_of_people_and_of_both_hold_in_every_row(target, tmp_path):
    generator = fit_people(make_visits(), schema=VISITS, rules=RULES, target=target)
    generator.save(tmp_path / "file")
    for made in (generator, DPSinkhornGenerator.load(tmp_path / "file")):
        drawn = made.set_params(random_state=3).sample(n_users=300)
        assert all(are_kept(drawn)) and drawn["user"].nunique() == 300
        assert are_people(drawn, ["born", "low", "high", "range", "home"])
        assert all(are_kept(made.sample(500)))
        given = made.sample(100, given={"home": "A", "days": (2.0, 9.0)})
        assert all(are_kept(given)) and given["days"].between(2, 9).all()
    assert made.rules == RULES


def test_sorting_the_order_alone_would_be_seen(monkeypatch):
    """The mistake that is planted: values of a row are torn apart by the order."""
    generator = fit_people(make_visits(), schema=VISITS, rules=RULES)

    def sort(drawn):
        starts = drawn.rows.plain["start"]
        drawn.rows.plain["start"] = starts[np.lexsort((starts, drawn.person))]

    monkeypatch.setattr(people_rows._DrawnPeople, "sort", sort)
    assert not all(are_kept(generator.sample(n_users=300)))


def test_rules_that_nearly_no_row_keeps_hold_as_well():
    X, rng = make_visits(100)[["user", "start"]], np.random.default_rng(1)
    X["here"], own = rng.integers(0, 1001, len(X)), rng.integers(0, 1001, 100)
    X["there"], X["gone"] = own[X["user"]], 1000 - own[X["user"]]
    schema = {
        "start": VISITS["start"], "here": range(1001),
        **dict.fromkeys(("there", "gone"), {"bounds": (0, 1000), "integer": True, "per": "user"}),
    }  # fmt: skip
    rules = ["here == there or here == there + 1", "gone + there >= 990", "gone + there <= 1000"]
    drawn = fit_people(X, schema=schema, rules=rules).sample(n_users=150)
    assert (drawn["here"] - drawn["there"]).isin([0, 1]).all()
    assert (drawn["gone"] + drawn["there"]).between(990, 1000).all()
    assert are_people(drawn, ["there", "gone"]) and drawn["user"].nunique() == 150


def test_rows_are_drawn_for_the_people_who_are_there():
    X = make_visits()
    joined = X.groupby("user")["start"].transform("min") * 0.9
    X = X[["user", "start"]].assign(joined=joined)
    schema = {"start": VISITS["start"], "joined": {"bounds": (0.0, 300.0), "per": "user"}}
    model = TableSketch(n_components=120, n_iter=200)
    generator = fit_people(X, epsilon=None, schema=schema, rules=["joined <= start"], model=model)
    drawn = generator.sample(n_users=400)
    assert (drawn["joined"] <= drawn["start"]).all() and are_people(drawn, ["joined"])
    means = [of.drop_duplicates("user")["joined"].mean() for of in (X, drawn)]
    assert means[1] == pytest.approx(means[0], rel=0.15)
    assert drawn["start"].mean() == pytest.approx(X["start"].mean(), rel=0.2)
    assert drawn["joined"].nunique() > 300


def test_columns_that_no_rule_ties_to_the_order_stay_where_the_walk_is(monkeypatch):
    X = make_visits(50)
    drawn, walks = [], []
    for rules in ([], ["high >= low"], ["end >= start"]):
        generator = fit_people(X, schema=VISITS, rules=rules)
        sort = people_rows._DrawnPeople.sort

        def watched(of, sort=sort):
            walks.append({name: one.copy() for name, one in of.rows.plain.items()})
            sort(of)

        with monkeypatch.context() as patched:
            patched.setattr(people_rows._DrawnPeople, "sort", watched)
            drawn.append(generator.sample(n_users=100))
    for rows, before, tied in zip(drawn, walks, (False, False, True), strict=True):
        np.testing.assert_array_equal(rows["age"], before["age"])
        assert not np.array_equal(rows["start"], before["start"])
        assert np.array_equal(rows["end"], before["end"]) != tied


def test_rules_change_nothing_of_what_is_released_but_columns_that_they_compute():
    X = make_visits(60)
    X.loc[X.index[:9], "end"] = 0.0
    plain = transcript_of(lambda: fit_people(X, schema=VISITS))
    # Rows that break a rule are not refused, which would tell of them.
    rules = transcript_of(lambda: fit_people(X, schema=VISITS, rules=["end >= start"]))
    assert max(moved_by(plain, rules).values()) == 0.0
    computed = transcript_of(lambda: fit_people(X, schema=VISITS, rules=RULES))
    assert computed["values"].sensitivity < plain["values"].sensitivity


def test_roles_and_rules_that_do_not_go_together_are_refused_before_the_charge():
    X = make_visits(20)
    refused("computes it from columns that rows have", X, "user", schema=VISITS,
            rules=["high == low + days"])  # fmt: skip
    refused("no rule computes the order", X, "user", schema=VISITS, rules=["start == end - days"])
    refused("no row was found|contradicts other", X, "user", schema=VISITS, rules=["age > 200"])
    named = {**VISITS, "room": {"identifier": True, "per": "user"}}
    refused("they are no identifiers", X.assign(room=1), "user", schema=named)


@pytest.mark.parametrize("apart", [False, True])
def test_a_target_of_numbers_is_one_of_the_columns_and_its_bands_are_the_classes(apart, tmp_path):
    X = make_people(300)
    options = {"schema": SCHEMA, "target": "spent", "model": SMALL, "random_state": 0}
    generator = DPSinkhornGenerator(2.0, 1e-6, **options)
    plain = transcript_of(lambda: fit_people(X, epsilon=2.0))
    rows, users = X.drop(columns="user"), X["user"]
    y = X["spent"].to_numpy() if apart else None
    of_rows = rows.drop(columns="spent") if apart else rows
    made = transcript_of(lambda: generator.fit(of_rows, y, groups=users))
    # It costs nothing, and nothing is released of it but what is of other columns.
    assert made.keys() == plain.keys()
    assert all(made[name].sensitivity == plain[name].sensitivity for name in plain)
    generator.save(tmp_path / "file")
    loaded = DPSinkhornGenerator.load(tmp_path / "file").set_params(random_state=0)
    for of in (generator, loaded):
        found, drawn = of.sample(200), of.sample(n_users=50)
        (table, target), (people, of_people) = (found, drawn) if apart else (
            (found, found["spent"]), (drawn, drawn["spent"])
        )  # fmt: skip
        assert list(table) == [name for name in SCHEMA if not apart or name != "spent"]
        assert len(target) == 200 and len(of_people) == len(people)
        assert np.nanmin(np.asarray(target, dtype=float)) >= 0
        assert people["user"].nunique() == 50
    held = generator._fitted
    schema, model = held.space.schema, held.model
    ends = np.cumsum(model["n_cells"])[:-1]
    of_target = schema.features.index(schema.target)
    starts = np.split(model["starts"], ends)[of_target]
    cells = np.split(model["cells"], ends, axis=1)[of_target]
    bands = schema.classes_of(starts) == model["classes"][:, None]
    assert not cells[~bands].any() and np.allclose(cells.sum(axis=1), 1)
    # Together they are what they are without a target.
    whole = as_mixture(held.people, type(schema)(schema.columns))
    np.testing.assert_allclose(
        model["weights"] @ cells,
        whole["weights"] @ np.split(whole["cells"], np.cumsum(whole["n_cells"])[:-1], axis=1)[
            schema.target
        ],
    )  # fmt: skip
