"""Numbers, levels and categories: how they are read, where distances are taken, how they leave."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from skdpot import FairBarycenterPreprocessor, tables
from skdpot.fairness import FreeSupport
from skdpot.tables import Table, find_columns
from tests.oracles.fair_tables import WITHOUT_SEARCH, in_polars, mixed_frame, transport_cost

MIXED = mixed_frame()
FEATURES = MIXED.columns.drop("group")
KINDS = ["numeric", "numeric", "ordinal", "nominal", "nominal", "nominal"]


def repair(X, attribute="group", new=None, **params):
    """Return repaired rows as a data frame of the kind of X."""
    container = "polars" if isinstance(X, pl.DataFrame) else "pandas"
    fair = FairBarycenterPreprocessor(attribute, **{"random_state": 0} | params)
    fair.set_output(transform=container).fit(X)
    return fair, fair.transform(X if new is None else new)


def columns_of(X, **options):
    options = {"categorical_features": None, "categories": None, "missing": "error"} | options
    return find_columns(Table(X), np.arange(X.shape[1]), **options)


def read_numbers(X, columns, missing):
    return tables.read_numbers(Table(X), columns, missing)


def array_of(frame):
    return frame.to_numpy(dtype=object)


# What columns are
# ----------------


def test_text_that_is_declared_ordinal_needs_an_order():
    words = pd.DataFrame({"education": ["low", "high", "medium", "low"]})
    options = {"categorical_features": {"education": "ordinal"}}
    message = r"column 'education' is declared ordinal.*categories={'education': \[...\]}"
    frames = words, words.astype("category"), pl.from_pandas(words), words.to_numpy(dtype=object)
    for X in frames[:3]:
        with pytest.raises(ValueError, match=message):
            columns_of(X, **options)
    with pytest.raises(ValueError, match="column 0 is declared ordinal"):
        columns_of(frames[3], categorical_features={0: "ordinal"})
    order = ["low", "medium", "high"]
    typed = words.astype(pd.CategoricalDtype(order, ordered=True))
    enum = pl.from_pandas(words).cast(pl.Enum(order))
    for X, declared in ((words, {"education": order}), (typed, None), (enum, None)):
        (column,) = columns_of(X, categories=declared, **options)
        assert (column.kind, column.labels.tolist()) == ("ordinal", order)


def test_a_dict_overrides_types_and_leaves_the_other_columns_to_them():
    features = MIXED[FEATURES]
    columns = columns_of(features, categorical_features={"level": "nominal"})
    assert [column.kind for column in columns] == [*KINDS[:2], *["nominal"] * 4]
    numbers = columns_of(features, categorical_features={0: "ordinal"})
    assert [column.kind for column in numbers] == ["ordinal", *KINDS[1:]]
    # With epsilon types do not tell: what is not declared is a number.
    declared = {"level": ["low", "middle", "high"], "word": ["no", "so", "yes"]}
    options = {"categorical_features": {"level": "nominal"}, "categories": declared}
    private = columns_of(features.drop(columns="color"), missing="none", **options)
    assert [column.kind for column in private] == [*KINDS[:2], "nominal", "nominal", "numeric"]


@pytest.mark.parametrize("dates", [
    pd.DataFrame({"applied": pd.to_datetime(["2020-01-01", None])}),
    pd.DataFrame({"applied": pd.to_datetime(["2020-01-01", "2021-01-01"], utc=True)}),
    pl.DataFrame({"applied": pd.to_datetime(["2020-01-01", "2021-01-01"]).to_numpy()}),
])  # fmt: skip
def test_dates_are_no_numbers(dates):
    with pytest.raises(TypeError, match="column 'applied' of X is not numeric, it holds dates"):
        read_numbers(dates, columns_of(dates), "error")
    array = np.array([[1], [2]], dtype="timedelta64[D]")
    with pytest.raises(TypeError, match="column 0 of X is not .* dates or durations. Convert"):
        read_numbers(array, columns_of(array), "error")


def test_kinds_follow_the_types_of_frames():
    features = MIXED[FEATURES]
    for frame in (features, in_polars(features)):
        for option in (None, "from_dtype"):
            columns = columns_of(frame, categorical_features=option)
            kinds = [column.kind for column in columns]
            expected = KINDS if frame is features else [*KINDS[:2], *["nominal"] * 4]
            assert kinds == expected
            assert [column.name for column in columns] == FEATURES.tolist()
        labels = [None if c.labels is None else c.labels.tolist() for c in columns[2:]]
        levels = ["low", "middle", "high"] if frame is features else ["high", "low", "middle"]
        assert labels == [levels, [*"bgrw"], ["no", "so", "yes"], [False, True]]
    assert {column.kind for column in columns_of(np.ones((3, 2)))} == {"numeric"}


@pytest.mark.parametrize(
    "option",
    [
        ["level", "color", "word", "flag"],
        [2, 3, 4, 5],
        [-4, "color", np.int64(4), 5],
        [False, False, True, True, True, True],
        {"level": "ordinal", "color": "nominal", 4: "nominal", -1: "nominal"},
    ],
    ids=str,
)
def test_categorical_columns_can_be_named(option):
    features = MIXED[FEATURES]
    assert [c.kind for c in columns_of(features, categorical_features=option)] == KINDS
    names = all(isinstance(name, str) for name in option)
    if not names and not (isinstance(option, dict) or "color" in option):
        found = columns_of(array_of(features), categorical_features=option)
        assert [c.kind for c in found] == [*KINDS[:2], *["nominal"] * 4]


def test_numbers_can_be_levels_or_categories():
    X = np.array([[3.0, 1], [1.0, 2], [7.0, 2]])
    columns = columns_of(X, categorical_features={0: "ordinal", 1: "nominal"})
    assert [column.kind for column in columns] == ["ordinal", "nominal"]
    assert [column.labels.tolist() for column in columns] == [[1.0, 3.0, 7.0], [1.0, 2.0]]
    assert read_numbers(X, columns, "error").tolist() == [[1, 0], [0, 1], [2, 1]]


def test_declared_categories_may_have_no_rows_and_set_the_order():
    X = np.array([["b", "u"], ["a", "u"]], dtype=object)
    options = {"categorical_features": {0: "ordinal", 1: "nominal"}}
    expected = [["b", "c", "a"], ["u", "v"]]
    for declared in ({0: expected[0], 1: expected[1]}, {-2: expected[0], -1: ("u", "v")}):
        columns = columns_of(X, categories=declared, **options)
        assert [column.labels.tolist() for column in columns] == expected
    assert read_numbers(X, columns, "error").tolist() == [[0, 0], [2, 0]]
    # A single level is in no order.
    single = columns_of(X[:1], categories={0: ["b"]}, **options)
    assert [column.kind for column in single] == ["nominal", "nominal"]


@pytest.mark.parametrize(
    "params, message",
    [
        (
            {"categorical_features": ["colour"]},
            "X has no column 'colour'. Its columns are .'number",
        ),
        ({"categorical_features": [9]}, "categorical_features names a .*X has no column 9"),
        ({"categories": {"colour": ["a"]}}, "categories names a column that X lacks"),
        ({"categorical_features": {"color": "ranked"}}, "'ordinal' or 'nominal'"),
        ({"categories": {"number": [1, 2]}}, "not categorical: .'number'"),
        ({"categories": {"word": ["a", "a"]}}, "must be a list of different labels"),
        ({"categories": {"word": []}}, "are empty; declare at least one"),
        ({"categories": {"word": ["a"]}}, "has labels that categories does not declare: add"),
    ],
)
def test_declarations_that_do_not_match_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        FairBarycenterPreprocessor("group", **params).fit(MIXED)


# What cannot be read
# -------------------


SECRET = "ssn 123-45"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, None, pd.NA, SECRET, 10**400, 1j, [1]])
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_what_is_no_number_is_refused_and_not_quoted(value, method):
    X = np.random.default_rng(0).normal(size=(20, 2)).astype(object)
    groups = ["a", "b"] * 10
    fair = FairBarycenterPreprocessor().fit(X, sensitive_features=groups)
    X[3, 1] = value
    missing = value is None or value is pd.NA or isinstance(value, float | int)
    message = "infinity, in column 1" if missing else "holds what cannot be read as a number"
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        getattr(fair, method)(X, sensitive_features=groups)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None and caught.value.__cause__ is None


def test_infinity_is_not_kept_as_missing():
    frame = pd.DataFrame({"group": ["a", "b"] * 10, "x": [-np.inf, np.nan] * 10})
    fair = FairBarycenterPreprocessor("group", method="conditional", missing="category")
    with pytest.raises(ValueError, match="infinity, in column 'x', which is not a missing value"):
        fair.fit(frame)


@pytest.mark.parametrize("method", ["fit", "transform"])
@pytest.mark.parametrize("public", [{}, {"epsilon": 1.0, "bounds": (0, 1), "groups": ["a", "b"]}])
def test_tables_of_other_libraries_are_refused_and_not_quoted(public, method):
    frame = pd.DataFrame({"group": ["a", "b"] * 10, "x": np.linspace(0, 1, 20)})
    fair = FairBarycenterPreprocessor("group", **public).fit(frame)
    # What such a table calls its columns are the values in them.
    table = pa.RecordBatch.from_pandas(frame.assign(x=[SECRET] * 20))
    with pytest.raises(TypeError, match="is a pyarrow.lib.RecordBatch; give a pandas") as caught:
        getattr(fair, method)(table)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", [None, np.nan, pd.NA])
def test_missing_categories_are_refused_or_a_category(value):
    frame = MIXED.astype({"word": object})
    frame.iloc[:20, 4] = value
    with pytest.raises(ValueError, match="contains NaN, in column 'word' of categories"):
        FairBarycenterPreprocessor("group").fit(frame)
    fair, repaired = repair(frame, missing="category", method=WITHOUT_SEARCH)
    (word,) = [column for column in fair._fitted.every if column.name == "word"]
    assert word.labels.tolist() == ["no", "so", "yes", None]
    assert 0.05 < repaired["word"].isna().mean() < 0.4
    levels = frame.astype({"level": object})
    levels.iloc[3, 2] = value
    for level in (levels, levels.astype({"level": MIXED["level"].dtype})):
        options = {
            "categorical_features": {"level": "ordinal"},
            "categories": {"level": ["low", "middle", "high"]},
            "missing": "category",
            "method": "support",
        }
        with pytest.raises(ValueError, match="contains NaN, in column 'level' of levels"):
            FairBarycenterPreprocessor("group", **options).fit(level[["level", "group"]])


# Where distances are taken
# -------------------------


@pytest.mark.parametrize("scale", [True, False])
def test_the_objective_is_that_of_numbers_ranks_and_categories(scale):
    def encoded(rows):
        ranks = rows[:, 2:3] == np.array(["low", "middle", "high"])
        blocks = [
            rows[:, j : j + 1] == np.array(labels, dtype=object)
            for j, labels in ((3, [*"bgrw"]), (4, ["no", "so", "yes"]), (5, [False, True]))
        ]
        return [rows[:, :1].astype(float), rows[:, 1:2].astype(float),
                ranks.argmax(axis=1)[:, None], *blocks]  # fmt: skip

    method = FreeSupport(n_support=40, scale=scale)
    fair, _ = repair(MIXED, method=method)
    parts = encoded(array_of(MIXED[FEATURES]))
    # Scaled, every column has the variance 1; otherwise different categories have the distance 1.
    factors = [part.var(axis=0).sum() ** -0.5 for part in parts]
    if not scale:
        factors = [1.0] * 3 + [0.5**0.5] * 3
    rows, support = (
        np.hstack([part * factor for part, factor in zip(encoded(table), factors, strict=True)])
        for table in (array_of(MIXED[FEATURES]), fair.support_)
    )
    group = MIXED["group"].to_numpy()
    costs = [transport_cost(rows[group == name], support) for name in fair.groups_]
    assert fair.objective_ == pytest.approx(np.dot(fair.group_weights_, costs), rel=1e-6)
    assert 0 < fair.lower_bound_ <= fair.objective_


# How rows leave
# --------------


def test_repaired_rows_are_valid_and_keep_their_types():
    options = {"method": FreeSupport(n_support=40)}
    fair, _ = repair(MIXED, **options)
    kinds = dict(zip(FEATURES[2:], KINDS[2:], strict=True))
    levels = {"level": ["low", "middle", "high"]}
    frame = in_polars(MIXED)
    other, _ = repair(frame, categorical_features=kinds, categories=levels, **options)
    for level in (1.0, 0.4):
        repaired = fair.set_params(repair_level=level).transform(MIXED)
        of_polars = other.set_params(repair_level=level).transform(frame)
        assert repaired.columns.tolist() == of_polars.columns == FEATURES.tolist()
        assert repaired.index.equals(MIXED.index)
        for name in FEATURES:
            assert of_polars[name].to_list() == repaired[name].tolist()
        for name in FEATURES[:2]:
            # Whole numbers are integers, if they were before.
            assert repaired[name].dtype in (float, MIXED[name].dtype)
            assert of_polars.schema[name] in (pl.Float64, frame.schema[name])
        for name in FEATURES[2:]:
            assert repaired[name].dtype == MIXED[name].dtype
            assert of_polars.schema[name] == frame.schema[name]
            assert set(repaired[name]) <= set(MIXED[name])


def test_arrays_leave_as_arrays():
    array = array_of(MIXED)
    options = {"categorical_features": {2: "ordinal", 3: "nominal", 4: "nominal", 5: "nominal"},
               "categories": {2: ["low", "middle", "high"]}}  # fmt: skip
    fair = FairBarycenterPreprocessor(6, method="support", random_state=0, **options)
    found = fair.fit_transform(array)
    _, expected = repair(MIXED, method="support")
    assert found.dtype == object and fair.support_.dtype == object
    np.testing.assert_array_equal(found, array_of(expected))
    numbers = FairBarycenterPreprocessor(2).fit_transform(array[:, [0, 1, 6]])
    assert numbers.dtype == np.float64


@pytest.mark.parametrize("form", [lambda frame: frame, in_polars], ids=["pandas", "polars"])
def test_unknown_labels_are_moved_or_stay_what_they_are(form):
    new = MIXED.astype({"color": object, "level": object, "word": object, "flag": object})
    new.iloc[:10, 2:6] = ["medium", "violet", "maybe", 2]
    if form is in_polars:
        new["flag"] = new["flag"].astype(int)
    new = form(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fair, moved = repair(form(MIXED), new=new, method=WITHOUT_SEARCH)
        kept, some = (fair.set_params(repair_level=level).transform(new) for level in (0.0, 0.5))
    for j, name in enumerate(FEATURES[2:]):
        assert set(moved[name].to_list()) <= set(MIXED[name].tolist())
        assert kept[name].to_list()[:10] == [["medium", "violet", "maybe", 2][j]] * 10
    changed = [value != "violet" for value in some["color"].to_list()[:10]]
    assert 0 < sum(changed) < 10
    # Of one row, either all labels are changed or none.
    assert changed == [value != "maybe" for value in some["word"].to_list()[:10]]


def test_missing_labels_stay_missing_in_every_type():
    frame = MIXED.astype({"word": "string", "flag": "boolean"})
    frame.loc[frame.index[:30], ["word", "flag", "color"]] = None
    _, repaired = repair(frame, missing="category", method=WITHOUT_SEARCH)
    assert repaired["word"].dtype == "string" and repaired["flag"].dtype == "boolean"
    assert repaired["color"].dtype == MIXED["color"].dtype
    for name in ("word", "flag", "color"):
        assert 0.1 < repaired[name].isna().mean() < 0.4
    # What a type has no place for stays an object.
    new = MIXED.astype({"flag": object})
    new.iloc[:5, 5] = None
    options = {"missing": "category", "method": WITHOUT_SEARCH}
    _, kept = repair(MIXED, new=new, repair_level=0.0, **options)
    assert kept["flag"].tolist() == new["flag"].tolist()
