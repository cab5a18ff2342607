"""Rules between the columns of a table: read from text, held in every drawn row, refused early."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch
from skdpot.generative._sketch.table_rows import WantedRows, draw_rows
from skdpot.tables import read_rules, read_schema, schema_from_plain

DAYS = ("2020-01-01", "2020-03-31")
SCHEMA = {
    "start": range(0, 51),
    "end": range(0, 81),
    "food": (0.0, 5.0),
    "rent": (0.0, 9.0),
    "total": (0.0, 14.0),
    "sex": ["F", "M"],
    "pregnant": {"categories": ["no", "yes"], "missing": True},
    "grade": {"levels": ["low", "mid", "high"]},
    "spouse_age": {"bounds": (16, 99), "integer": True, "missing": True},
    "in": DAYS,
    "out": {"bounds": DAYS, "missing": True},
    "kids": [0, 1, 2],
    "monthly rent": (0.0, 9.0),
}
SMALL = TableSketch(20, n_iter=20)
# Of each rule, whether rows of a frame keep it.
HELD = {
    "end >= start": lambda t: t["end"] >= t["start"],
    "0 < end - start <= 30": lambda t: (t["end"] - t["start"]).between(1, 30),
    "end == start + 30": lambda t: t["end"] == t["start"] + 30,
    "total == food + rent": lambda t: t["total"] == t["food"] + t["rent"],
    "total == food * 2 - rent": lambda t: t["total"] == t["food"] * 2 - t["rent"],
    "sex == 'M' -> pregnant is missing": lambda t: (t["sex"] != "M") | t["pregnant"].isna(),
    "pregnant == 'yes' -> sex == 'F'": lambda t: (t["pregnant"] != "yes") | (t["sex"] == "F"),
    "grade < 'mid' -> kids == 0": lambda t: (t["grade"] != "low") | (t["kids"] == 0),
    "grade in ['low', 'high']": lambda t: t["grade"].isin(["low", "high"]),
    "kids not in [1, 2] or start > 40": lambda t: (t["kids"] == 0) | (t["start"] > 40),
    "spouse_age is not missing": lambda t: t["spouse_age"].notna(),
    "spouse_age is missing or spouse_age > end": lambda t: (
        t["spouse_age"].isna() | (t["spouse_age"] > t["end"]).fillna(False)
    ),
    "out >= `in`": lambda t: t["out"].isna() | (t["out"] >= t["in"]),
    "`in` >= '2020-03-01'": lambda t: t["in"] >= pd.Timestamp("2020-03-01"),
    "`monthly rent` <= rent": lambda t: t["monthly rent"] <= t["rent"],
    "not (start > 10 and sex == 'F')": lambda t: (t["start"] <= 10) | (t["sex"] == "M"),
}


def make_table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    day = pd.Timestamp(DAYS[0])
    return pd.DataFrame(
        {
            "start": rng.integers(0, 51, n),
            "end": rng.integers(0, 81, n),
            "food": rng.uniform(0, 5, n),
            "rent": rng.uniform(0, 9, n),
            "total": rng.uniform(0, 14, n),
            "sex": rng.choice(["F", "M"], n),
            "pregnant": rng.choice(["no", "yes", None], n),
            "grade": rng.choice(["low", "mid", "high"], n),
            "spouse_age": pd.array(rng.integers(16, 99, n), dtype="Int64"),
            "in": day + pd.to_timedelta(rng.integers(0, 91, n), unit="D"),
            "out": day + pd.to_timedelta(rng.integers(0, 91, n), unit="D"),
            "kids": rng.integers(0, 3, n),
            "monthly rent": rng.uniform(0, 9, n),
        }
    )


def make(*rules, **params):
    options = {"epsilon": 20.0, "schema": SCHEMA, "rules": list(rules), "model": SMALL}
    return DPSinkhornGenerator(**options | params)


def refuse(message, *rules, **params):
    """Check that rules are refused before the charge."""
    ledger = PrivacyLedger(100.0, 0.5, neighbouring="add_remove")
    with pytest.raises(ValueError, match=message):
        make(*rules, ledger=ledger, **params).fit(make_table())
    assert not ledger.entries()


# Rules hold
# ----------


@pytest.fixture(scope="module")
def fitted():
    """Return generators of all rules that hold together, some of which no private row keeps."""
    together = [rule for rule in HELD if not rule.startswith(("total == food *", "end =="))]
    return make(*together, target="sex", random_state=0).fit(make_table())


def held(table, rules):
    return [rule for rule in rules if not HELD[rule](table).all()] == []


def test_rules_hold_in_every_row_that_is_drawn(fitted, tmp_path):
    fitted.save(tmp_path / "generator")
    loaded = DPSinkhornGenerator.load(tmp_path / "generator")
    assert loaded.rules == fitted.rules
    orders = [
        {"n_samples": 1000},
        {"y": {"F": 40, "M": 60}},
        {"n_samples": 200, "given": {"start": (0, 5), "sex": "M"}},
        {"n_samples": 200, "given": {"total": (3.0, 4.0), "grade": "low"}},
    ]
    for order in orders:
        assert held(fitted.sample(**order), fitted.rules)
    assert held(loaded.sample(200), fitted.rules)
    assert fitted.sample(y={"F": 40, "M": 60})["sex"].tolist() == ["F"] * 40 + ["M"] * 60
    totals = fitted.sample(100, given={"total": (3.0, 4.0)})["total"]
    assert totals.between(3.0, 4.0).all() and totals.nunique() > 50


@pytest.mark.parametrize("rule", HELD)
def test_each_rule_holds_alone(rule):
    generator = make(rule, model=TableSketch(2, n_iter=1), random_state=0)
    assert HELD[rule](generator.fit(make_table(60)).sample(300)).all()


@pytest.mark.parametrize("container", ["polars", "array"])
def test_rules_hold_whatever_holds_the_table(container):
    names = ["start", "end", "food"]
    schema = {name: SCHEMA[name] for name in names} | {"double": (0.0, 10.0)}
    frame = make_table()[names].assign(double=0.0)
    table = frame.to_numpy()
    if container == "polars":
        table = pytest.importorskip("polars").DataFrame(frame.to_dict("list"))
    rules = ["end >= start", "double == 2 * food"]
    sampled = make(*rules, schema=schema).fit(table).sample(500)
    start, end, food, double = np.asarray(sampled, dtype=float).T
    assert (end >= start).all() and (double == 2 * food).all() and len(np.unique(food)) > 400


def test_rules_hold_beside_labels_and_of_floats_of_half_the_size():
    table = make_table()[["food", "rent"]].astype("float32")
    schema = {"food": (0.0, 5.0), "rent": (0.0, 5.0)}
    generator = make("food < rent", schema=schema, classes=[0, 1])
    X, _ = generator.fit(table, np.arange(300) % 2).sample(y={1: 300})
    assert (X["food"] < X["rent"]).all() and X["food"].dtype == np.float64


def test_rows_that_the_model_never_draws_are_mended():
    """The model has no row that keeps the rule, so that values of possible rows are set."""
    schema = read_schema({"a": range(0, 9), "b": range(0, 9), "c": ["x", "y"]})
    model = {
        "n_cells": np.array([9, 9, 2]),
        "starts": np.array([*range(9), *range(9), 0, 1]),
        "stops": np.array([*range(1, 10), *range(1, 10), 1, 2]),
        "weights": np.array([1.0]),
        "classes": np.array([0]),
        "cells": np.eye(9)[[5, 4]].ravel()[None].repeat(1, axis=0),
    }
    model["cells"] = np.hstack([model["cells"], [[0.5, 0.5]]])
    rng = np.random.RandomState(0)
    wanted = WantedRows(schema, read_rules(["a < b"], schema), {})
    rows = draw_rows(model, wanted, 200, rng)
    a, b, c = rows.units.T
    assert (a < b).all() and set(c) == {0, 1}
    # The nearest to (5, 4) that is permitted.
    assert (np.abs(a - 5) + np.abs(b - 4) <= 2).all()


def test_private_rows_that_break_rules_are_learned_as_well():
    table = make_table().assign(start=50, end=0)
    generator = make("end >= start").fit(table)
    sampled = generator.sample(50)
    assert (sampled["end"] >= sampled["start"]).all()


def test_computed_columns_cost_nothing_and_are_not_read():
    plain = make(schema={name: SCHEMA[name] for name in SCHEMA if name != "total"}, rules=None)
    computing = make("total == food + rent")
    table = make_table()
    noise = [generator.preview(300) for generator in (plain, computing)]
    assert str(noise[0]).replace("'total'", "") == str(noise[1])
    one, other = (
        computing.set_params(random_state=0).fit(table.assign(total=total)).sample(9)
        for total in (0.5, 13.0)
    )
    pd.testing.assert_frame_equal(one, other)


def test_a_computed_column_is_missing_where_what_it_needs_is():
    schema = {
        "a": {"bounds": (0, 9), "integer": True, "missing": True},
        "b": {"bounds": (0, 18), "integer": True, "missing": True},
    }
    table = pd.DataFrame({"a": pd.array([1, None] * 100, dtype="Int64")}).assign(b=1)
    sampled = make("b == 2 * a", schema=schema).fit(table).sample(200)
    assert 40 < sampled["b"].isna().sum() < 160
    assert (sampled["b"].isna() == sampled["a"].isna()).all()
    assert (sampled["b"] == 2 * sampled["a"]).dropna().all()


def test_labels_may_be_copied():
    schema = {"town": ["A", "B"], "home": ["B", "C", "A"], "age": range(9)}
    table = pd.DataFrame({"town": ["A", "B"] * 50, "home": "C", "age": 3})
    sampled = make("home == town", schema=schema).fit(table).sample(50)
    assert (sampled["home"] == sampled["town"]).all() and sampled["home"].nunique() == 2


# What is refused
# ---------------


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["end < start", "start < end"], "contradicts other"),
        (["end > 80"], "contradicts other"),
        (["start >= 40", "end <= 30", "end > start"], "contradicts other"),
        (["start + end > 200"], "contradicts other"),
        (["grade > 'high'"], "contradicts other"),
        (["kids * start > 101"], "contradicts other"),
        (["spouse_age is missing", "spouse_age is not missing"], "no row was found"),
        (["total == food + rent", "total > 14"], "contradicts other"),
        (["start is missing"], "contradicts other"),
        (["total == food + rent", "total == food"], "two rules compute the column 'total'"),
        (["food == rent + total", "rent == food - total"], "from each other"),
        (["end == food * 2"], "computes 'end', a column of integers, from other numbers"),
        (["end == spouse_age"], "'missing': True for 'end'"),
        (["food + rent == total * 2"], "requires real numbers to be equal"),
        (["start > 3 -> food == rent"], "requires real numbers to be equal"),
        (["start > 3 -> food == 0"], "write <= or >=, as in 'tip <= 0'"),
        (["height > 3"], "no learned column 'height'"),
        (["end > food > nothing"], "no learned column 'nothing'"),
        (["sex > 'F'"], "has no order"),
        (["sex == 'X'"], "is not declared to hold 'X'"),
        (["sex == 1"], "holds no numbers"),
        (["sex + 1 > 2"], "holds no numbers"),
        (["end > 'x'"], "cannot be compared with 'x'"),
        (["start > out"], "mixes dates"),
        (["`in` + out > `in`"], "mixes dates"),
        (["out * 2 > `in`"], "mixes dates"),
        (["1 < 2"], "compares two constants"),
        (["end"], "compares nothing"),
        (["end > 1 -> end > 2 -> end > 3"], "more than one ->"),
        (["end >"], "not an expression"),
        (["end ** 2 > 3"], r"\*\* is not allowed"),
        (["food / rent < 3"], "/ is not allowed"),
        (["end = start"], "write == instead of =[.]"),
        (["end => start"], "write >= instead of =>[.]"),
        (["sex == '=>' and end >"], "not an expression"),
        (["end is None"], "'is' may only be followed by 'missing'"),
        (["end in 3"], "'in' needs a list"),
        (["end > 1e999"], "too large"),
        (["__import__('os').system('true')"], "cannot be read"),
        (["end > (lambda: 3)()"], "is not allowed"),
        (["end > start.real"], "is not allowed"),
        (["end > f'{start}'"], "is not allowed"),
        (["(" * 900 + "end"], "cannot be read"),
        (["end > " + "1" * 2000], "at most 1000 characters"),
        ([3], "a rule is a text"),
        ("end > 3", "rules must be a list"),
    ],
    ids=str,
)
def test_rules_that_cannot_be_are_refused_before_the_charge(rules, message):
    if isinstance(rules, list):
        refuse(message, *rules)
    else:
        refuse(message, rules=rules)


def test_a_label_that_the_rules_exclude_is_warned_of_and_a_rare_one_is_drawn():
    table = pd.DataFrame({"age": np.arange(20, 80).repeat(20)})
    table["kind"] = np.where(table["age"] == 79, "senior", "adult")
    schema = {"age": range(18, 80), "kind": ["adult", "senior"]}
    rare = make("kind == 'senior' -> age >= 79", schema=schema).fit(table)
    assert rare.sample(9, given={"kind": "senior"})["age"].eq(79).all()
    with pytest.warns(UserWarning, match=r"no synthetic row will have: {'kind': \['senior'\]}"):
        make("kind == 'senior' -> age >= 90", schema=schema).preview(1000)
    make("kind != 'senior'", schema=schema).preview(1000)


def test_a_rule_is_about_columns_that_are_learned():
    schema = {"id": {"identifier": True}, "land": {"constant": "NL"}, "age": range(9)}
    for rule in ("id > 3", "land == 'NL'"):
        with pytest.raises(ValueError, match="no learned column"):
            make(rule, schema=schema).preview(100)
    with pytest.raises(ValueError, match="rules is declared"):
        DPSinkhornGenerator(bounds=(0, 1), rules=["a > 3"]).fit(np.zeros((5, 2)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"start": (40, 50), "end": (0, 30)}, "contradicts other"),
        ({"total": (20.0, 30.0)}, "not declared to hold"),
        ({"food": (0.0, 1.0), "rent": (0.0, 1.0), "total": (5.0, 9.0)}, "contradicts other"),
        ({"grade": "low", "kids": 2}, "no row .* conditions of given on .'grade', 'kids'"),
        ({"total": "much"}, "is not declared to hold"),
    ],
    ids=str,
)
def test_conditions_that_contradict_rules_are_refused(given, message):
    rules = ["end >= start", "total == food + rent", "grade == 'low' -> kids == 0"]
    generator = make(*rules).fit(make_table())
    with pytest.raises(ValueError, match=message):
        generator.sample(5, given=given)


# The grammar
# -----------

WORDS = st.sampled_from(
    [
        *("start end food sex grade pregnant `in` out missing nothing None True eval").split(),
        *("< <= > >= == != + - * ** / // % -> and or not in is ( ) [ ] { } , : . = := @").split(),
        *("0 1 -2.5 1e9 1j 'F' 'mid' '2020-02-01' \"x\" lambda if else __class__ f'{end}'").split(),
    ]
)


@settings(max_examples=150, deadline=None)
@given(text=st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=12).map(" ".join)))
@example("end >= start")
@example("`")
@example("'\\")
def test_any_text_is_a_rule_or_refused(text):
    """What is read makes masks of rows, and negations of it the opposite ones."""
    schema = read_schema(SCHEMA)
    try:
        rules = read_rules([text], schema)
    except ValueError as error:
        assert "rule" in str(error)
        return
    assert not rules.texts or rules.conditions
    rng = np.random.default_rng(0)
    units = np.column_stack([rng.integers(0, column.n_units, 20) for column in schema.columns])
    plain = schema.plain_values(units, rng.uniform(size=units.shape))
    rows = dict(zip(schema.names, plain, strict=True))
    (condition,) = (condition for _, condition in rules.conditions)
    true, false = condition.truth(rows)
    other_true, other_false = condition.negated().truth(rows)
    assert true.shape == false.shape == (20,) and not (true & false).any()
    np.testing.assert_array_equal([true, false], [other_false, other_true])


@settings(max_examples=60, deadline=None)
@given(
    rules=st.lists(st.sampled_from(list(HELD)), min_size=1, max_size=4, unique=True),
    bounds=st.tuples(st.integers(0, 50), st.integers(0, 50)).filter(lambda ends: ends[0] < ends[1]),
)
def test_what_is_called_impossible_no_row_keeps(rules, bounds):
    """Bounds are narrowed to what rows that keep all rules have."""
    schema = read_schema(SCHEMA | {"start": range(bounds[0], bounds[1] + 1)})
    try:
        read = read_rules(rules, schema)
    except ValueError:
        return
    learned = schema.computing(read.computed)
    rng = np.random.default_rng(1)
    units = np.column_stack([rng.integers(0, column.n_units, 4000) for column in learned.columns])
    plain = learned.plain_values(units, rng.uniform(size=units.shape))
    rows = read.complete(dict(zip(learned.names, plain, strict=True)))
    kept = read.kept(rows)
    try:
        boxes = read.narrowed({})
    except ValueError:
        assert not kept.any()
        return
    for column in learned.columns:
        if column.kind == "numeric" and column.name in boxes:
            low, high = boxes[column.name]
            values = rows[column.name][kept]
            assert (np.isnan(values) | ((values >= low - 1e-6) & (values <= high + 1e-6))).all()


def test_a_schema_that_computes_survives_json():
    schema = read_schema(SCHEMA).computing(["total"])
    assert [column.name for column in schema.declared] == list(SCHEMA)
    again = schema_from_plain(json.loads(json.dumps(schema.plain())))
    assert again.computing(["total"]) == schema
