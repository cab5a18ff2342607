"""The generator of tables with a declared schema, as a user of scikit-learn meets it."""

import copy
import re
import sys
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch, VectorSketch
from tests.oracles.refusals import SECRET, make_ledger, refuse_without_telling
from tests.quick import first_quick

SCHEMA = {
    "age": range(18, 80),
    "wage": (0.0, 1.0),
    "grade": {"levels": ["low", "mid", "high"]},
    "children": {"bounds": (0, 5), "integer": True, "missing": True},
    "town": {"categories": ["here", "there"], "missing": True},
    "retired": ["no", "yes"],
}
FEATURES = {name: declared for name, declared in SCHEMA.items() if name != "retired"}


def make(**params):
    # A model that is fitted in a tenth of the usual time.
    options = {"schema": SCHEMA, "target": "retired", "model": TableSketch(100, n_iter=150)}
    return DPSinkhornGenerator(**{"epsilon": 20.0} | options | params)


def make_apart(**params):
    """Return a generator of tables whose labels go beside them."""
    return make(schema=FEATURES, target=None, classes=["no", "yes"], **params)


def make_table(n_records=600, seed=0):
    """Return a table in which those above 65 are retired, and half of the towns are missing."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n_records)
    return pd.DataFrame(
        {
            "age": age,
            "wage": np.clip(rng.normal(0.3 + age / 200, 0.05), 0, 1),
            "grade": rng.choice(["low", "mid", "high"], n_records, p=[0.6, 0.3, 0.1]),
            "children": pd.array(rng.integers(0, 3, n_records), dtype="Int64"),
            "town": np.where(rng.random(n_records) < 0.5, None, "here"),
            "retired": np.where(age > 65, "yes", "no"),
        }
    ).astype({"town": object})


@pytest.fixture(scope="module")
def fitted():
    return make(random_state=0).fit(make_table())


@pytest.fixture(scope="module")
def apart():
    table = make_table()
    return make_apart(random_state=0).fit(table.drop(columns="retired"), table["retired"])


def sampled_with_seed(generator):
    return copy.copy(generator).set_params(random_state=0).sample(30)


def assert_same_samples(one, other):
    pd.testing.assert_frame_equal(sampled_with_seed(one), sampled_with_seed(other))


# What is generated
# -----------------


def test_tables_are_alike(fitted):
    table, sampled = make_table(), fitted.sample(3000)
    assert sampled.columns.tolist() == list(SCHEMA) and len(fitted.sample()) == 1
    assert [str(sampled[of].dtype) for of in [*SCHEMA][:2]] == ["int64", "float64"]
    assert sampled["children"].dtype == pd.Int64Dtype() and set(sampled["grade"].map(type)) == {str}
    assert sampled["age"].between(18, 79).all() and sampled["wage"].between(0, 1).all()
    assert sampled["age"].mean() == pytest.approx(table["age"].mean(), abs=3)
    assert sampled["wage"].mean() == pytest.approx(table["wage"].mean(), abs=0.03)
    shares = sampled["grade"].value_counts(normalize=True)
    np.testing.assert_allclose(shares[["low", "mid", "high"]], [0.6, 0.3, 0.1], atol=0.08)
    assert sampled["town"].isna().mean() == pytest.approx(0.5, abs=0.08)
    assert (sampled["retired"] == "yes").mean() == pytest.approx(14 / 62, abs=0.06)
    assert ((sampled["age"] > 65) == (sampled["retired"] == "yes")).mean() > 0.9
    assert sampled["age"].corr(sampled["wage"]) > 0.25


@pytest.mark.parametrize("container", ["polars", "array", "list"])
def test_a_table_comes_in_the_container_of_the_records(container):
    small = {name: SCHEMA[name] for name in ("age", "wage", "town")}
    table = make_table(50)[list(small)]
    records = [[*row] for row in table.itertuples(index=False)]
    if container == "array":
        records = np.array(records, dtype=object)
    if container == "polars":
        pl = pytest.importorskip("polars")
        records = pl.DataFrame(records, schema=list(small), orient="row")
    generator = make(schema=small, target=None).fit(records)
    sampled = generator.sample(100)
    assert sampled.shape == (100, 3)
    assert generator.n_features_in_ == 3 and not hasattr(generator, "classes_")
    if container == "polars":
        assert sampled.columns == list(small)
        assert sampled.dtypes == [pl.Int64, pl.Float64, pl.String]
        towns = set(sampled["town"].to_list())
    else:
        assert isinstance(sampled, np.ndarray) and sampled.dtype == object
        towns = set(sampled[:, 2])
    assert towns <= {"here", "there", None} and {"here", None} <= towns
    assert np.isfinite(generator.score(records))


def test_columns_are_found_by_name_and_names_may_be_numbers():
    table = make_table(40)[["grade", "age"]]
    generator = make(schema={"age": range(18, 80), "grade": ["low", "mid", "high"]}, target="grade")
    assert generator.fit(table).sample(3).columns.tolist() == ["age", "grade"]
    numbered = make(schema={0: range(18, 80), 1: (0.0, 1.0)}, target=None)
    sampled = numbered.fit(table[["age"]].assign(x=0.5).to_numpy()).sample(3)
    assert sampled.shape == (3, 2) and sampled.dtype == np.float64
    assert numbered.sample(5, given={0: (30, 31)})[:, 0].max() <= 31


@pytest.mark.parametrize(
    "given, holds",
    [
        ({"age": 30}, lambda table: table["age"] == 30),
        ({"age": (70, 200), "grade": ["mid", "high"]}, lambda table: table["age"] >= 70),
        ({"age": [20, 30.0]}, lambda table: table["age"].isin([20, 30])),
        ({"wage": (0.4, 0.45)}, lambda table: table["wage"].between(0.4, 0.45)),
        ({"town": None}, lambda table: table["town"].isna()),
        ({"town": ["here", None], "children": None}, lambda table: table["children"].isna()),
        ({"retired": "yes"}, lambda table: table["retired"] == "yes"),
        ({}, lambda table: table["age"] >= 18),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_conditions_hold(fitted, given, holds):
    assert holds(fitted.sample(50, given=given)).all()


def test_conditions_tell_of_other_columns(fitted):
    old, young = (fitted.sample(300, given={"age": ages}) for ages in ((70, 79), (18, 40)))
    assert (old["retired"] == "yes").mean() > 0.8
    assert (young["retired"] == "yes").mean() < 0.2
    assert old["wage"].mean() > young["wage"].mean() + 0.1
    assert (fitted.sample(300, given={"retired": "yes"})["age"] > 60).mean() > 0.8


@pytest.mark.parametrize(
    "options, message",
    [
        ({"given": {"height": 1}}, r"on 'height', and the table has no such .* Those are \["),
        ({"given": {"age": range(20, 30)}}, r"a value of type range\. A condition is"),
        ({"given": [("age", 30)]}, "given must be a dictionary of conditions"),
        ({"given": {"age": 17}}, "'age' is not declared to hold 17. A condition is a value, a"),
        ({"given": {"age": (80, 90)}}, "column 'age' is not declared to hold values in"),
        ({"given": {"age": (30, 20)}}, "column 'age'"),
        ({"given": {"age": (1, 2, 3)}}, r"is \(low, high\)"),
        ({"given": {"grade": "top"}}, "column 'grade' is not declared to hold 'top'"),
        ({"given": {"grade": None}}, "column 'grade' is not declared to hold None"),
        ({"given": {"grade": []}}, "allows no value"),
        ({"given": {"age": "30"}}, "column 'age'"),
        ({"given": {"age": np.inf}}, "column 'age'"),
        ({"given": {"age": ("a", "b")}}, "column 'age'"),
        ({"given": {"children": (np.nan, 3)}}, "column 'children'"),
        ({"given": {"retired": "no"}, "y": ["yes"]}, "given has a condition on the target"),
        ({"n_samples": True}, "n_samples must be an integer of at least 1, got True"),
    ],
    ids=str,
)
def test_orders_are_checked(fitted, options, message):
    with pytest.raises(ValueError, match=message):
        fitted.sample(**options)


def test_records_that_are_given_instead_of_an_order_are_not_quoted(fitted):
    table = make_table(10).assign(wage=SECRET)
    orders = [{"n_samples": table}, {"given": table}, {"given": {"wage": table["wage"]}}]
    for order in [*orders, {"y": table["wage"].tolist()}]:
        refuse_without_telling(lambda order=order: fitted.sample(**order), "a value of type")
    for params in ({"schema": table}, {"schema": dict(table)}, {"target": table["wage"].tolist()}):
        refuse(make(**params), "a value of type|schema must be a dict", table)


def test_a_column_in_place_of_its_labels_is_not_quoted():
    table = make_table(10).assign(wage=SECRET)
    message = "must be a list of different labels, none of them missing"
    wages = table["wage"].to_numpy()
    refuse(make_apart().set_params(classes=wages), message, table[list(FEATURES)], table["retired"])
    refuse(make(schema=SCHEMA | {"wage": wages}), message, table)


def test_a_frame_without_a_schema_is_told_of_it():
    generator = make(schema=None, target=None, model="auto")
    for table in (make_table(10)[["grade"]], pd.DataFrame({"wage": [np.nan, SECRET]})):
        refuse(generator, r"[fF]or a table declare schema=\{column: ...\}", table)


@pytest.mark.experiment
def test_the_number_of_records_is_released_with_noise(tmp_path):
    table = make_table(500)
    sizes = {make(epsilon=1.0).fit(table).n_records_ for _ in range(4)}
    assert len(sizes) > 1 and all(abs(size - 500) < 200 for size in sizes)
    exact = make(epsilon=None).fit(table)
    assert exact.n_records_ == 500
    exact.save(tmp_path / "generator")
    assert DPSinkhornGenerator.load(tmp_path / "generator").n_records_ == 500


def test_records_are_made_to_order(fitted):
    assert fitted.sample(y=["yes", "no", "yes"])["retired"].tolist() == ["yes", "no", "yes"]
    sampled = fitted.sample(y={"no": 2, "yes": 1}, given={"age": (20, 30)})
    assert sampled["retired"].tolist() == ["no", "no", "yes"]
    assert sampled["age"].between(20, 30).all()
    assert fitted.sample(y={"no": 0}).shape == (0, 6)


def test_a_target_may_go_beside_the_table(apart):
    table, y = apart.sample(2000)
    assert table.columns.tolist() == list(FEATURES)
    assert (y == "yes").mean() == pytest.approx(14 / 62, abs=0.06)
    assert ((table["age"] > 65) == (y == "yes")).mean() > 0.9
    assert apart.sample(y={"yes": 3})[1].tolist() == ["yes"] * 3
    with pytest.raises(ValueError, match="a condition on .y., and the table has no such"):
        apart.sample(given={"y": "yes"})
    records = make_table(100, seed=1)
    X, y = records.drop(columns="retired"), records["retired"]
    assert apart.score(X, y) > apart.score(X, np.where(y == "yes", "no", "yes")) + 0.05
    with pytest.raises(ValueError, match="pass y .* exactly if"):
        apart.score(X)


@pytest.fixture(scope="module")
def numeric():
    return make(target="age", random_state=0).fit(make_table())


def test_a_target_may_be_a_number(numeric, tmp_path):
    table, sampled = make_table(), numeric.sample(3000)
    assert sampled.columns.tolist() == list(SCHEMA) and sampled["age"].dtype == np.int64
    assert sampled["age"].between(18, 79).all() and sampled["age"].nunique() > 50
    assert sampled["age"].mean() == pytest.approx(table["age"].mean(), abs=3)
    assert ((sampled["age"] > 65) == (sampled["retired"] == "yes")).mean() > 0.85
    assert not hasattr(numeric, "classes_")
    old = numeric.sample(300, given={"age": (70, 75)})
    assert old["age"].between(70, 75).all() and (old["retired"] == "yes").mean() > 0.7
    with pytest.raises(ValueError, match="fitted without classes"):
        numeric.sample(y=[30])
    shuffled = table.assign(age=table["age"].to_numpy()[::-1])
    assert numeric.score(table) > numeric.score(shuffled)
    numeric.save(tmp_path / "generator")
    loaded = DPSinkhornGenerator.load(tmp_path / "generator")
    assert loaded.target == "age"
    assert_same_samples(loaded, numeric)


@pytest.mark.parametrize("target", first_quick(["retired", "age"]))
def test_a_declared_target_may_go_beside_the_table(target, tmp_path):
    table = make_table()
    X, y = table.drop(columns=target), table[target]
    generator = make(target=target, random_state=0).fit(X, y)
    X_new, y_new = generator.sample(1000)
    assert X_new.columns.tolist() == X.columns.tolist()
    both = X_new.assign(**{target: y_new})
    assert ((both["age"] > 65) == (both["retired"] == "yes")).mean() > 0.85
    assert y_new.dtype == np.asarray(y.tolist()).dtype
    assert generator.n_features_in_ == 5 and np.isfinite(generator.score(X, y))
    path = tmp_path / "generator"
    generator.save(path)
    loaded = DPSinkhornGenerator.load(path)
    assert loaded.target == target and loaded.classes is None and target in loaded.schema
    (one, one_y), (other, other_y) = sampled_with_seed(loaded), sampled_with_seed(generator)
    pd.testing.assert_frame_equal(one, other)
    np.testing.assert_array_equal(one_y, other_y)
    given = {"age": (30, 40)}
    ages = generator.sample(9, given=given)
    assert (ages[1] if target == "age" else ages[0]["age"].to_numpy()).max() <= 40
    again = clone(loaded).set_params(random_state=0).fit(X, y)
    np.testing.assert_array_equal(sampled_with_seed(again)[1], one_y)


def test_what_is_nearer_scores_higher(fitted):
    records = make_table(300, seed=1)
    own = fitted.score(records)
    assert own > fitted.score(records.assign(age=18)) + 0.1
    assert own > fitted.score(records.assign(grade="high", town="there")) + 0.1
    with pytest.raises(ValueError, match="lacks"):
        fitted.score(records.drop(columns="age"))
    with pytest.raises(ValueError, match="pass y .* exactly if the schema declares classes"):
        fitted.score(records, records["retired"])


@pytest.mark.parametrize(
    "schema, records",
    [
        ({"x": range(3)}, [[1]]),
        ({"x": ["only"], "y": (0.0, 1.0)}, [["only", 0.5]] * 30),
        ({"x": {"categories": ["a"], "missing": True}, "y": range(1000)}, [[None, 5000]] * 30),
    ],
    ids=str,
)
@pytest.mark.parametrize("epsilon", [0.01, None])
def test_small_tables_do(schema, records, epsilon):
    generator = make(schema=schema, target=None, epsilon=epsilon).fit(records)
    assert len(generator.sample(9)) == 9
    assert (generator.privacy_guarantee_ is None) == (epsilon is None)


def test_what_is_not_declared_may_count_as_missing():
    records = [["here", 1.0], ["elsewhere", np.nan]] * 300
    schema = {
        "town": {"categories": ["here"], "missing": True},
        "x": {"bounds": (0, 2), "missing": True},
    }
    sampled = make(schema=schema, target="town", random_state=0).fit(records).sample(200)
    missing = np.array([town is None for town in sampled[:, 0]])
    assert missing.mean() == pytest.approx(0.5, abs=0.15)
    assert (np.isnan(sampled[:, 1].astype(float)) == missing).mean() > 0.8


# What is refused
# ---------------


def refuse(generator, message, *records):
    """Check that a fit is refused without telling, and before the charge."""
    ledger = make_ledger()
    refuse_without_telling(lambda: generator.set_params(ledger=ledger).fit(*records), message)
    assert not ledger.entries()
    with pytest.raises(NotFittedError):
        generator.sample()


BAD_TABLES = {
    "a column is missing": (lambda table: table.drop(columns="age"), r"\['age'\] .* Add them to"),
    "a column is too many": (lambda table: table.assign(x=1), r"declare: \['x'\].*leave them out"),
    "a column occurs twice": (
        lambda table: pd.concat([table, table["age"]], axis=1),
        "column 'age' of X is there twice",
    ),
    "a frame of another kind": (pa.RecordBatch.from_pandas, "X is a pyarrow.lib.RecordBatch; give"),
    "text": (lambda table: table.assign(age="secret"), "'age' .* not numbers.* dates as bounds"),
    "dates": (lambda table: table.assign(wage=pd.Timestamp(0)), "'wage' is declared numeric"),
    "no records": (lambda table: table.iloc[:0], "no records"),
    "an array of other columns": (lambda table: table.to_numpy()[:, :4], "6 columns of the schema"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables_are_refused_before_the_charge(kind):
    change, message = BAD_TABLES[kind]
    refuse(make(), message, change(make_table(10).assign(wage=SECRET)))


@pytest.mark.parametrize(
    "params, message",
    [
        ({"schema": {}}, "schema must be a dict that declares"),
        ({"target": "height"}, "target must be a column of the schema.*got 'height'"),
        (
            {"schema": {"retired": ["no", "yes"]}},
            "the schema must declare another column beside the target",
        ),
        ({"classes": ["no", "yes"]}, "y and classes go together"),
        ({"network": "mlp"}, "network is for vectors and images"),
        ({"model": VectorSketch()}, "schema is declared, but VectorSketch is for"),
        ({"image_shape": (1, 6)}, "image_shape is declared"),
        ({"bounds": (0, 2)}, "bounds are for records without a schema"),
        ({"model": TableSketch(0)}, "The 'n_components' parameter of TableSketch must be"),
        ({"epsilon": 1e-14, "delta": 1e-14}, "epsilon is too small for a sketch"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused_before_the_charge(params, message):
    refuse(make().set_params(**params), message, make_table(10).assign(wage=SECRET))


def test_too_many_classes_are_refused_before_the_charge():
    schema = {"age": range(100), "retired": [str(k) for k in range(1001)]}
    refuse(
        make().set_params(schema=schema),
        "the target has 1,001 classes",
        make_table(10)[["age", "retired"]],
    )


def test_labels_and_classes_go_together():
    table = make_table(10)
    X, y = table.drop(columns="retired"), table["retired"]
    refuse(make_apart(), "y and classes go together", X)
    refuse(make_apart().set_params(target="grade"), "use one", X, y)
    refuse(make_apart(), "one label for each row", X, y[:9])
    refuse(make(), "column 'retired' is in X and beside it", table, y)
    refuse(make(), r"does not declare: \['retired'\]", table, y.tolist())
    refuse(make(), "y must have one label for each row", X, y[:9])
    refuse(make(), "mask would be lost", X, np.ma.masked_equal(y.to_numpy(), "no"))
    refuse(make(target=None), "y and classes go together", table, y.tolist())


def test_the_smallest_epsilon_is_named():
    params = {"schema": {"x": range(3), "y": range(4)}, "target": None, "delta": 1e-13}
    records = [[1, 1], [2, 2]]
    with pytest.raises(ValueError, match="epsilon is too small") as caught:
        make(epsilon=1e-13, **params).fit(records)
    named = float(re.search(r"is ([0-9.e-]+)\.$", str(caught.value))[1])
    with pytest.raises(ValueError, match="epsilon is too small"):
        make(epsilon=0.9 * named, **params).fit(records)
    assert make(epsilon=named, **params).fit(records).sample(3).shape == (3, 2)


# The budget
# ----------


def test_methods_and_kinds_of_records_leave_nothing_to_each_other():
    generator = make(schema={"x": ["a", "b"], "y": range(3)}, target="x").fit([["a", 1], ["b", 2]])
    assert generator.classes_.tolist() == ["a", "b"]
    generator.set_params(schema=None, target=None, bounds=(0, 1), model="auto").fit([[0.5, 0.5]])
    assert not hasattr(generator, "classes_") and generator.sample().dtype == np.float64
    generator.set_params(schema={"x": range(3)}, bounds=None).fit(pd.DataFrame({"x": [1, 2]}))
    assert generator.sample(2).columns.tolist() == ["x"]
    assert vars(generator).keys() == make().fit(make_table()).__dict__.keys() - {"classes_"}


# Copies and files
# ----------------


def test_files_hold_the_generator(fitted, tmp_path):
    fitted.save(tmp_path / "generator")
    loaded = DPSinkhornGenerator.load(tmp_path / "generator")
    assert_same_samples(loaded, fitted)
    assert loaded.classes_.tolist() == ["no", "yes"] and loaded.classes is None
    assert loaded.target == "retired" and list(loaded.schema) == list(SCHEMA)
    assert loaded.n_features_in_ == 6 and loaded.feature_names_in_.tolist() == list(SCHEMA)
    assert loaded.quality().to_dict() == fitted.quality().to_dict()
    # What was loaded can be fitted again, as it was.
    again = clone(loaded).set_params(random_state=0).fit(make_table())
    assert_same_samples(again, fitted)


def test_tables_of_files_can_be_drawn_without_the_library_of_frames(fitted, tmp_path, monkeypatch):
    path = tmp_path / "generator"
    fitted.save(path)
    polars = DPSinkhornGenerator.load(path, container="polars").sample(5)
    assert type(polars).__module__.startswith("polars")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"install pandas, or load\(path, container='array'\)"):
        DPSinkhornGenerator.load(path)
    assert isinstance(DPSinkhornGenerator.load(path, container="array").sample(5), np.ndarray)
    with pytest.raises(ValueError, match="container must be among"):
        DPSinkhornGenerator.load(path, container="list")


def test_tables_of_other_kinds_are_refused_before_the_charge():
    numbers = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
    make_of_numbers = partial(DPSinkhornGenerator, schema=numbers)
    refuse(make_of_numbers(), "mask would be lost", np.ma.masked_array(np.zeros((9, 2)), True))
    refuse(make_of_numbers(), "give a pandas, polars or pyarrow frame", {"a": [0.5], "b": [0.5]})
    text = pd.DataFrame({"a": ["0.5"], "b": [0.5]})
    refuse(make_of_numbers(), "Convert text to numbers first", text)
    with pytest.raises(ValueError, match="groups must have one person for each row"):
        make_of_numbers().fit(np.zeros((9, 2)), groups=3)
    arrow = pa.record_batch({"a": [0.5], "b": [0.5], "user": [1]})
    with pytest.raises(TypeError, match="give a pandas, polars or pyarrow frame"):
        make_of_numbers().fit(arrow, groups="user")
    lazy = pytest.importorskip("polars").LazyFrame({"a": [0.5], "b": [0.5]})
    # Warnings are errors, such as that of polars about names of columns.
    for groups in (None, "user"):
        with pytest.raises(TypeError, match=r"table\.collect\(\)"):
            make_of_numbers().fit(lazy, groups=groups)


def test_decimal_numbers_are_numbers():
    table = pd.DataFrame({"a": [Decimal("0.5"), None] * 50})
    schema = {"a": {"bounds": (0.0, 1.0), "missing": True}}
    generator = DPSinkhornGenerator(100.0, schema=schema, random_state=0).fit(table)
    assert 0.3 < generator.sample(1000)["a"].isna().mean() < 0.7


@pytest.mark.parametrize("order", [{"n_samples": 2000}, {"y": {"no": 1200, "yes": 800}}], ids=str)
def test_no_later_split_with_the_seed_of_a_sample_sorts_its_rows(order):
    """Rows were dealt out in the order of the first permutation of the seed, as splits are."""
    table = make_table()
    vectors = DPSinkhornGenerator(20.0, bounds=(0, 80), classes=["no", "yes"])
    vectors.fit(table[["age", "wage"]], table["retired"])
    made = {"table": make().fit(table), "vectors": vectors}
    for name, generator in made.items():
        for seed in (0, 1, 42):
            X = generator.set_params(random_state=seed).sample(**order)
            retired = (X["retired"] if name == "table" else X[1]) == "yes"
            # People choose which rows are drawn for given labels, and deal these out by a split.
            if "y" in order:
                retired = np.asarray(X["age"] if name == "table" else X[0][:, 0])[:1200] > 40
            share, retired = np.mean(retired), np.asarray(retired)
            for split in (0, 1, 42):
                _, test = train_test_split(retired, test_size=0.25, random_state=split)
                error = np.sqrt(share * (1 - share) / len(test))
                assert np.mean(test) == pytest.approx(share, abs=4 * error)
