"""Rules between the columns of a table: held in every drawn row, and refused early."""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch
from tests.oracles.sketch import transcript_of
from tests.quick import first_quick

DAYS = ("2020-01-01", "2020-03-31")
SCHEMA = {
    "start": range(0, 51),
    "end": range(0, 81),
    "food": (0.0, 5.0),
    "rent": (0.0, 9.0),
    "total": (0.0, 14.0),
    "sex": ["F", "M"],
    "pregnant": {"categories": ["no", "yes"], "missing": True},
    "age": {"bounds": (16, 99), "integer": True, "missing": True},
    "in": DAYS,
    "out": {"bounds": DAYS, "missing": True},
    "monthly rent": (0.0, 9.0),
}
SMALL = TableSketch(20, n_iter=20)
# Each is a rule, and tells whether rows of a frame keep it.
HELD = {
    "end >= start": lambda t: t["end"] >= t["start"],
    "0 < end - start <= 30": lambda t: (t["end"] - t["start"]).between(1, 30),
    "sex == 'F' or pregnant.isna()": lambda t: (t["sex"] == "F") | t["pregnant"].isna(),
    "age.isna() | (age > end)": lambda t: t["age"].isna() | (t["age"] > t["end"]).fillna(False),
    "out >= `in`": lambda t: t["out"] >= t["in"],
    "`in` >= '2020-03-01'": lambda t: t["in"] >= pd.Timestamp("2020-03-01"),
    "`monthly rent` <= rent": lambda t: t["monthly rent"] <= t["rent"],
}
CONTAINERS = ["pandas", "polars", "array"]


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
            "age": pd.array(rng.integers(16, 99, n), dtype="Int64"),
            "in": day + pd.to_timedelta(rng.integers(0, 91, n), unit="D"),
            "out": day + pd.to_timedelta(rng.integers(0, 91, n), unit="D"),
            "monthly rent": rng.uniform(0, 9, n),
        }
    )


def make(*rules, **params):
    options = {"epsilon": 20.0, "schema": SCHEMA, "rules": list(rules), "model": SMALL}
    return DPSinkhornGenerator(**options | params)


def refuse(message, table=None, **params):
    """Check that rules are refused before the charge."""
    ledger = PrivacyLedger(100.0, 0.5, neighbouring="add_remove")
    with pytest.raises(ValueError, match=message):
        make(ledger=ledger, **params).fit(make_table() if table is None else table)
    assert not ledger.entries()


@pytest.fixture(scope="module")
def fitted():
    """Return a generator of all rules, as texts or functions; no private row keeps them all."""
    rules = [held if "in" in rule else rule for rule, held in HELD.items()]
    computed = {"total": "food + rent"}
    return make(*rules, computed=computed, target="sex", random_state=0).fit(make_table())


@pytest.mark.experiment
@pytest.mark.parametrize(
    "order",
    [
        {"n_samples": 1000},
        {"y": {"F": 40, "M": 60}},
        {"n_samples": 200, "given": {"start": (0, 5), "sex": "M"}},
    ],
    ids=str,
)
def test_rules_hold_in_every_row_that_is_drawn(fitted, order):
    drawn = fitted.sample(**order)
    assert all(held(drawn).all() for held in HELD.values())
    assert (drawn["total"] == drawn["food"] + drawn["rent"]).all()
    assert list(drawn.columns) == list(SCHEMA)
    if "y" in order:
        assert drawn["sex"].tolist() == ["F"] * 40 + ["M"] * 60
    if "given" in order:
        assert drawn["start"].between(0, 5).all() and drawn["sex"].eq("M").all()


@pytest.mark.experiment
def test_without_rules_they_do_not_hold_and_rules_are_read_for_each_sample(fitted):
    ruled = make("end >= start").fit(make_table())
    assert ruled.sample(200).eval("end >= start").all()
    assert not ruled.set_params(rules=None).sample(200).eval("end >= start").all()
    with pytest.raises(ValueError, match="no further row was found that keeps all rules"):
        ruled.set_params(rules=["end > 80"]).sample(5)


@pytest.mark.parametrize("container", CONTAINERS)
def test_rules_hold_whatever_holds_the_table(container):
    names = ["start", "end", "food"]
    schema = {name: SCHEMA[name] for name in names} | {"double": (0.0, 10.0)}
    frame = make_table()[names].assign(double=0.0)
    table = frame.to_numpy() if container == "array" else frame
    if container == "polars":
        table = pytest.importorskip("polars").DataFrame(frame.to_dict("list"))
    generator = make("end >= start", computed={"double": lambda t: 2 * t["food"]}, schema=schema)
    sampled = generator.fit(table).sample(500)
    assert type(sampled) is type(table)
    start, end, food, double = np.asarray(sampled, dtype=float).T
    assert (end >= start).all() and (double == 2 * food).all() and len(np.unique(food)) > 400


@pytest.mark.parametrize("named", [False, True])
def test_rules_hold_beside_labels(named):
    table = make_table()[["food", "rent"]]
    schema, y = {"food": (0.0, 5.0), "rent": (0.0, 5.0)}, np.arange(300) % 2
    if named:
        schema, options = schema | {"y": [0, 1]}, {"target": "y", "rules": ["y == 0 or food < 2"]}
    else:
        options = {"classes": [0, 1], "rules": ["food < rent"]}
    X, labels = make(schema=schema, **options).fit(table, y).sample(y={1: 300})
    assert set(labels) == {1} and list(X.columns) == ["food", "rent"]
    assert (X["food"] < (2 if named else X["rent"])).all()


def test_private_rows_that_break_rules_are_learned_as_well_and_never_tested():
    """A rule is called with public or drawn rows only: none has the values of private rows."""
    seen = []

    def rule(frame):
        seen.append(frame)
        return frame["end"] >= frame["start"]

    table = make_table().assign(end=20)
    assert rule(make(rule).fit(table).sample(50)).all()
    assert len(seen) > 2 and not np.isin(pd.concat(seen)["rent"], table["rent"]).any()
    # Rules change nothing of what is released.
    one, other = (transcript_of(lambda: g.fit(table)) for g in (  # noqa: B023
        make("end >= start", random_state=0), make(random_state=0)
    ))  # fmt: skip
    assert one.keys() == other.keys()
    assert all((one[name].released == other[name].released).all() for name in one)


def test_computed_columns_cost_nothing_and_are_not_read():
    plain = make(schema={name: SCHEMA[name] for name in SCHEMA if name != "total"})
    computing = make(computed={"total": "food + rent"})
    table = make_table()
    noise = [generator.preview(300) for generator in (plain, computing)]
    assert str(noise[0]).replace("'total'", "") == str(noise[1])
    one, other = (
        computing.set_params(random_state=0).fit(table.assign(total=total)).sample(9)
        for total in (0.5, 13.0)
    )
    pd.testing.assert_frame_equal(one, other)


def test_computed_columns_of_each_type_and_one_from_another():
    schema = {
        "a": {"bounds": (0, 9), "integer": True, "missing": True},
        "b": {"bounds": (0, 18), "integer": True, "missing": True},
        "c": {"bounds": (0, 19), "integer": True, "missing": True},
        "town": ["A", "B"], "home": ["B", "C", "A"], "in": DAYS, "out": DAYS,
    }  # fmt: skip
    table = pd.DataFrame({"a": pd.array([1, None] * 100, dtype="Int64")}).assign(
        b=1, c=1, town="A", home="C", **{"in": pd.Timestamp("2020-02-01"), "out": DAYS[0]}
    )
    table["out"] = pd.to_datetime(table["out"])
    computed = {"b": "2 * a", "c": "b + 1", "home": "town", "out": lambda t: t["in"]}
    sampled = make(computed=computed, schema=schema).fit(table).sample(200)
    assert 40 < sampled["b"].isna().sum() < 160 and str(sampled["b"].dtype) == "Int64"
    assert (sampled["b"].isna() == sampled["a"].isna()).all()
    assert (sampled["c"] == 2 * sampled["a"] + 1).dropna().all()
    assert (sampled["home"] == sampled["town"]).all() and (sampled["out"] == sampled["in"]).all()


def test_computed_values_are_declared_ones():
    schema = {"a": range(10), "b": range(10)}
    table = pd.DataFrame({"a": np.arange(10).repeat(30), "b": 0})
    with pytest.warns(UserWarning, match="could be from 4 to 13, .* 38% of possible rows"):
        drawn = make(computed={"b": "a + 4"}, schema=schema).fit(table).sample(200)
    assert drawn["a"].max() == 5 and drawn["b"].max() == 9
    schema = {"a": {"bounds": (0, 9), "integer": True, "missing": True}, "b": [0, 1, 2]}
    table["a"] = table["a"].astype("Int64").where(np.arange(300) % 2 == 0)
    with pytest.warns(UserWarning, match="could be .*'missing'"):
        fitted = make(computed={"b": "a"}, schema=schema).fit(table)
    with pytest.warns(UserWarning, match="left out: compare computed"):
        drawn = fitted.sample(200)
    assert set(drawn["a"]) == {0, 1, 2} and drawn["a"].notna().all()


def test_a_file_holds_no_code(tmp_path):
    generator = make(HELD["end >= start"], computed={"total": "food + rent"}, random_state=0)
    generator.fit(make_table()).save(tmp_path / "file")
    assert b"food + rent" not in (tmp_path / "file").read_bytes()
    with pytest.raises(ValueError, match="code and in no file"):
        DPSinkhornGenerator.load(tmp_path / "file")
    with pytest.raises(ValueError, match="computed must have the columns of the fit"):
        DPSinkhornGenerator.load(tmp_path / "file", rules=[])
    code = {"rules": generator.rules, "computed": generator.computed}
    loaded = DPSinkhornGenerator.load(tmp_path / "file", **code).set_params(random_state=0)
    pd.testing.assert_frame_equal(loaded.sample(20), generator.sample(20))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rules": "end > 3"}, "rules must be a list"),
        ({"rules": [3]}, "rules must be a list"),
        ({"computed": ["end"]}, "computed must be a dictionary"),
        ({"computed": {"end": 3}}, "computed must be a dictionary"),
        ({"computed": {"height": "end"}}, r"those of the schema .* It has \['height'\]"),
        ({"computed": {"sex": "end"}, "target": "sex"}, "the target, which cannot be computed"),
        ({"rules": ["height > 3"]}, "'height > 3' cannot be evaluated: .*name 'height' is not"),
        ({"rules": ["end >"]}, "cannot be evaluated: .*SyntaxError"),
        ({"rules": ["end > @frame.start"]}, "cannot be evaluated: .*frame"),
        ({"rules": ["end > 'x'"]}, "cannot be evaluated: .*TypeError"),
        ({"rules": ["3 > 2"]}, "one value for each row"),
        ({"rules": ["total = 3"]}, "one value for each row"),
        ({"rules": [lambda t: True]}, "one value for each row"),
        ({"rules": ["end + 1"]}, "must be true or false"),
    ],
    ids=lambda given: "" if isinstance(given, dict) else given,
)
def test_rules_that_cannot_be_are_refused_before_the_charge(params, message):
    refuse(message, **params)


def test_rules_are_for_tables_of_which_a_column_is_learned():
    refuse("must declare a column that is learned", schema={"a": range(3)}, computed={"a": "1"},
           table=pd.DataFrame({"a": [1, 2]}))  # fmt: skip
    for declared in ({"rules": ["a > 3"]}, {"computed": {"a": "b"}}):
        with pytest.raises(ValueError, match="is declared"):
            DPSinkhornGenerator(bounds=(0, 1), **declared).fit(np.zeros((5, 2)))


def test_rows_of_people_keep_rules():
    table = make_table()[["start", "end"]]
    schema = {name: SCHEMA[name] for name in ("start", "end")}
    generator = make("end >= start", schema=schema).fit(table, groups=np.arange(300) // 3)
    drawn = generator.sample(n_users=50)
    assert drawn["user"].nunique() == 50 and (drawn["end"] >= drawn["start"]).all()


def fit_pregnancies(**params):
    """Return a generator of a table in which some women of 14 to 50 are pregnant, and the rule."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sex": rng.choice(["f", "m"], 4000), "age": rng.integers(0, 100, 4000)})
    fertile = (table["sex"] == "f") & table["age"].between(14, 50)
    table["pregnant"] = np.where(fertile & (rng.random(4000) < 0.2), "yes", "no")
    schema = {"sex": ["f", "m"], "age": range(100), "pregnant": ["no", "yes"]}
    generator = make(epsilon=1.0, schema=schema, random_state=0, **params).fit(table)
    return generator, "pregnant == 'no' or (sex == 'f' and 14 <= age <= 50)"


@pytest.mark.parametrize("target", first_quick(["pregnant", None]))
def test_rules_keep_the_shares_of_columns(target):
    """Rows drawn anew as a whole would lose half of the pregnant, and some of the men."""
    generator, rule = fit_pregnancies(target=target)
    free, ruled = (generator.set_params(rules=r).sample(6000) for r in ([], [rule]))
    assert ruled.eval(rule).all() and not free.eval(rule).all()
    pregnant, women = ((free["pregnant"] == "yes").mean(), (free["sex"] == "f").mean())
    # Within two errors of sampling.
    error = np.sqrt(pregnant / len(ruled))
    assert (ruled["pregnant"] == "yes").mean() == pytest.approx(pregnant, abs=2 * error)
    assert (ruled["sex"] == "f").mean() == pytest.approx(women, abs=0.01)
    assert ruled["age"].mean() == pytest.approx(free["age"].mean(), abs=0.6)
    # So it is on average where few rows are drawn.
    few = pd.concat([generator.set_params(random_state=i).sample(20) for i in range(60)])
    error = np.sqrt(pregnant / len(few))
    assert (few["pregnant"] == "yes").mean() == pytest.approx(pregnant, abs=3 * error)


def test_rules_keep_the_labels_that_are_asked_for():
    generator, rule = fit_pregnancies(target="pregnant")
    ruled = generator.set_params(rules=[rule]).sample(y={"yes": 50, "no": 3000})
    assert ruled["pregnant"].tolist() == ["yes"] * 50 + ["no"] * 3000 and ruled.eval(rule).all()
    assert not len(generator.sample(y={"yes": 0}))


@pytest.mark.experiment
def test_rules_draw_no_row_twice():
    schema = {"food": (0.0, 5.0), "rent": (0.0, 5.0)}
    generator = make("food < rent", schema=schema).fit(make_table()[["food", "rent"]])
    for n in (1, 30, 3000, 70_000):
        drawn = generator.sample(n)
        assert len(drawn) == n and (drawn["food"] < drawn["rent"]).all()
        # Rounding makes few equal rows.
        assert drawn.duplicated().mean() < 2e-3
