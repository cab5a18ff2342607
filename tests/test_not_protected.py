"""The page of what is not protected: no value of a record changes what a private fit says or costs.

One odd value is planted in one record. Fits with and without it are refused alike, warn alike,
print the same and are charged alike. A room adds an estimator by one entry in ``CASES``.
"""

import decimal
import math
import re
import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags

import skdpot
from skdpot import (
    DPSinkhornGenerator,
    FairBarycenterPreprocessor,
    PrivacyLedger,
    PrivateADMMTransport,
    PrivateSearchCV,
    PrivateSinkhornDistance,
)
from skdpot.fairness import FreeSupport
from skdpot.generative import NetworkTraining, TableSketch
from skdpot.published import NoisySinkhornDistance, PrivateMessageADMM, SinkhornGradientGenerator
from skdpot.tables import declared_labels, is_plain
from tests.quick import first_quick

PAGE = Path(__file__).parents[1] / "doc" / "not_protected.rst"
WORD = "s3cret"
# Where an odd value is planted.
ROW = 3


class Unreadable:
    """A value that raises its secret, whatever is asked of it."""

    __hash__ = None

    def __eq__(self, other):
        raise KeyError(WORD)

    def __float__(self):
        raise SystemExit(WORD)

    def __array__(self, *args, **params):
        raise RuntimeError(WORD)


class Pretender:
    """A value that raises its secret if it is asked what it is."""

    @property
    def __class__(self):
        raise RuntimeError(WORD)


class Unspeakable(float):
    """A number that raises its secret if anything is asked of it."""

    def _raise(self, *others):
        raise RuntimeError(WORD)

    __float__ = __abs__ = __eq__ = __ne__ = __lt__ = __gt__ = __hash__ = _raise


class Loud:
    """A value that tells of itself whenever it is asked: by output, warnings, and random states."""

    def _tell(self, *others):
        print(WORD)
        print(WORD, file=sys.stderr)
        warnings.warn(WORD, stacklevel=2)
        np.random.random()
        return False

    __eq__ = __ne__ = __lt__ = __gt__ = __bool__ = _tell

    def __hash__(self):
        self._tell()
        return 0

    def __float__(self):
        self._tell()
        return 0.25

    def __str__(self):
        self._tell()
        return "f"


NUMBERS = (math.nan, math.inf, -math.inf, 1e308, 7.0)
OBJECTS = (
    None, WORD, "1", 1, Unreadable(), 1.5, Pretender(), Unspeakable(3), Loud(), 2.0**60, 10**400,
    [1], math.nan, -math.inf,
)  # fmt: skip
MORE = (
    "", "0.5", True, 1j, Decimal("sNaN"), pd.NA, pd.NaT, b"x", [], ("f",), {"f": 1}, np.zeros(2),
    pd.Timestamp("2021-05-05"), *OBJECTS, *NUMBERS,
)  # fmt: skip

DRAWN = np.random.default_rng(0)
POINTS = DRAWN.uniform(size=(40, 4))
SIDES = np.array(["f", "m"] * 20, dtype=object)
TABLE = {
    "age": np.linspace(0, 1, 40).tolist(),
    "kids": [0, 1, 2, 3] * 10,
    "day": ["2021-05-05", "2022-06-06"] * 20,
    "job": ["p", "q"] * 20,
    "level": [1, 2] * 20,
    "id": [2**52, 2**52 + 1] * 20,
    "sex": SIDES.tolist(),
}
SCHEMA = {
    "age": (0.0, 1.0),
    "kids": {"bounds": (0, 9), "integer": True, "missing": True},
    "day": ("2020-01-01", "2024-12-31"),
    "job": {"categories": ["p", "q"], "missing": True},
    "level": {"levels": [1, 2]},
    "id": [2**52, 2**52 + 1],
    "sex": ["f", "m"],
}
UTILITIES = DRAWN.uniform(1, 5, (6, 3))
NETWORK = {"utility_bounds": (1, 5), "target_bounds": (0, 5), "source_bounds": (0, 10)}


def with_value(column, value):
    """Return a column of objects with a value in the place of one."""
    column = list(column)
    column[ROW] = value
    return np.fromiter(column, dtype=object, count=len(column))


def points(value, form="array", X=POINTS):
    """Return records with a value in one of them; 0.5 is an ordinary one."""
    if type(value) is float and form in ("array", "sparse"):
        X = X.copy()
        X[ROW, 1] = value
        return X if form == "array" else sparse.csr_array(X)
    columns = [with_value(X[:, j], value) if j == 1 else X[:, j] for j in range(X.shape[1])]
    if form == "frame":
        return pd.DataFrame(dict(zip("abcd", columns, strict=False)))
    rows = np.empty(X.shape, dtype=object)
    for j, column in enumerate(columns):
        rows[:, j] = column
    return rows.tolist() if form == "list" else rows


def table(value, name=None, form="pandas"):
    columns = {key: with_value(TABLE[key], TABLE[key][ROW]) for key in TABLE}
    if name is not None:
        columns[name] = with_value(TABLE[name], value)
    if form == "polars":
        return pl.DataFrame({key: column.tolist() for key, column in columns.items()})
    frame = pd.DataFrame({key: pd.Series(column, dtype=object) for key, column in columns.items()})
    return frame if form == "pandas" else frame.to_numpy()


@dataclass(frozen=True)
class Case:
    """A way to fit an estimator to records, of which one has a value.

    Attributes
    ----------
    estimator : str
        Its name.
    make : callable
        Returns it, from a ledger.
    data : callable
        Returns positional and named arguments of a fit, from a value.
    usual : object
        A value that is declared.
    values : list
        The odd values.
    relation : str
        Of the ledger.
    """

    estimator: str
    make: Callable[..., Any]
    data: Callable[[Any], tuple[tuple, dict]]
    usual: Any = 0.5
    values: tuple = OBJECTS
    relation: str = "replace_one"


def of_points(form, y=None, **named):
    return lambda value: ((points(value, form), *([] if y is None else [y])), named)


def of_labels(X=POINTS, as_list=False):
    def data(value):
        y = with_value(SIDES, value)
        return (X, y.tolist() if as_list else y), {}

    return data


def of_table(name, form="pandas", y=None, only=None, **named):
    def data(value):
        X = table(value, name, form)
        return (X if only is None else X[only], *([] if y is None else [y])), named

    return data


def of_target(value):
    return (table(None).drop(columns="sex"), with_value(SIDES, value)), {}


def of_people(value):
    return (table(None),), {"groups": with_value(np.repeat(range(10), 4), value)}


def of_named_people(value):
    frame = table(None).assign(who=with_value(np.repeat(range(10), 4), value))
    return (frame,), {"groups": "who"}


def of_utilities(form):
    return lambda value: ((points(value, form, UTILITIES),), {})


def of_sources(value):
    return (UTILITIES,), {"source_utilities": points(value, "array", UTILITIES)}


def nullable(value, kind, X, form="pandas"):
    """Return a frame of columns that may have missing values, with a value in one place."""
    if "bool" in kind.lower():
        X = np.median(X) < X
    elif "int" in kind.lower():
        X = np.round(X)
    frame = pd.DataFrame(X, columns=list("abcd")[: X.shape[1]]).astype(kind)
    frame.iloc[ROW, 1] = value
    return pl.from_pandas(frame) if form == "polars" else frame


def in_nullable(kind, X, *others, form="pandas"):
    return lambda value: ((nullable(value, kind, X, form), *others), {})


def sources_in_nullable(kind, form="pandas"):
    return lambda value: (
        (UTILITIES,), {"source_utilities": nullable(value, kind, UTILITIES, form)}
    )  # fmt: skip


def loud(number, threshold):
    """Fail aloud above a threshold, as the code of somebody who looks for a record."""
    if number > threshold:
        warnings.warn(WORD, stacklevel=1)
        print(number)
        print(number, file=sys.stderr)
        raise SystemExit(f"{WORD} {number}")
    return number


def asking_metric(a, b):
    # At corners of the box, which are public, it works.
    return loud(abs(a - b).sum() * (0 < a[1] < 1), 0.5)


class AskingClassifier(LogisticRegression):
    def fit(self, X, y):
        loud(np.nanmax(X), 0.9)
        return super().fit(np.nan_to_num(X), y)


def generator(relation, ledger, **options):
    return DPSinkhornGenerator(50.0, neighbouring=relation, ledger=ledger, **options)


def table_generator(relation, ledger, **options):
    model = TableSketch(8, n_iter=1)
    return generator(relation, ledger, **{"schema": SCHEMA, "model": model} | options)


def gradients(relation, ledger, **options):
    training = NetworkTraining(n_iter=2, batch_size=4, sampling_rate=1.0)
    return SinkhornGradientGenerator(
        50.0, network=training, neighbouring=relation, ledger=ledger, **options
    )


def distance(ledger, **options):
    return PrivateSinkhornDistance(5.0, ledger=ledger, **{"bounds": (0, 1)} | options)


def private_distance(ledger, groups=("f", "m"), **options):
    private = {"labels": "private", "groups": list(groups), "min_group_size": 4}
    return distance(ledger, **private | options)


def noisy_distance(ledger):
    return NoisySinkhornDistance(2000.0, bounds=(0, 1), ledger=ledger)


def allocation(ledger, **options):
    return PrivateADMMTransport(5.0, ledger=ledger, **NETWORK | options)


def messages(ledger, **options):
    return PrivateMessageADMM(50.0, delta=1e-6, ledger=ledger, **NETWORK | options)


ROUNDS = {"n_rounds": 1, "eta": 1.0}


def search(ledger, estimator=None, grid=None, **options):
    return PrivateSearchCV(
        estimator or LogisticRegression(), grid or {"C": [0.1, 1.0]}, n_iter=2, refit=False,
        ledger=ledger, **options,
    )  # fmt: skip


CASES = {}
RELATIONS = ("add_remove", "replace_one")
FORMS = ("array", "list", "frame")
for relation in RELATIONS:
    both = {"relation": relation}
    CASES |= {
        f"vectors, {relation}": Case(
            "DPSinkhornGenerator", partial(generator, relation, bounds=(0, 1)),
            of_points("array"), **both,
        ),
        f"images, {relation}": Case(
            "DPSinkhornGenerator",
            partial(generator, relation, bounds=(0, 1), image_shape=(2, 2)),
            of_points("array"), **both,
        ),
        f"labels of vectors, {relation}": Case(
            "DPSinkhornGenerator",
            partial(generator, relation, bounds=(0, 1), classes=["f", "m"]),
            of_labels(), usual="m", **both,
        ),
        f"gradients, {relation}": Case(
            "SinkhornGradientGenerator", partial(gradients, relation), of_points("array"), **both
        ),
        f"labels of gradients, {relation}": Case(
            "SinkhornGradientGenerator",
            partial(gradients, relation, gradient="per_image", classes=["f", "m"]),
            of_labels(as_list=True), usual="m", **both,
        ),
        f"people, {relation}": Case(
            "DPSinkhornGenerator", partial(table_generator, relation), of_people,
            usual=0, values=(None, math.nan, 2.0**60, [1], pd.NA, Unreadable(), np.zeros(2)),
            **both,
        ),
        f"people of a column, {relation}": Case(
            "DPSinkhornGenerator", partial(table_generator, relation), of_named_people,
            usual=0, values=(None, math.nan, 2.0**60, [1]), **both,
        ),
        f"rows of people, {relation}": Case(
            "DPSinkhornGenerator", partial(table_generator, relation),
            of_table("level", groups=np.repeat(range(10), 4)), usual=2, **both,
        ),
        f"target beside the table, {relation}": Case(
            "DPSinkhornGenerator", partial(table_generator, relation, target="sex"),
            of_target, usual="m", **both,
        ),
        f"table, {relation}": Case(
            "DPSinkhornGenerator", partial(table_generator, relation),
            of_table("sex"), usual="m", **both,
        ),
    }  # fmt: skip
for form in FORMS:
    CASES |= {
        f"vectors, {form}": Case(
            "DPSinkhornGenerator",
            partial(generator, "add_remove", bounds=(0, 1)),
            of_points(form),
            values=MORE,
            relation="add_remove",
        ),
        f"distance, {form}": Case("PrivateSinkhornDistance", distance, of_points(form, SIDES)),
        f"allocation, {form}": Case("PrivateADMMTransport", allocation, of_utilities(form), 2.0),
        f"messages, {form}": Case("PrivateMessageADMM", messages, of_utilities(form), 2.0),
    }
for name in SCHEMA:
    CASES[f"distance of tables, {name}"] = Case(
        "PrivateSinkhornDistance",
        partial(distance, bounds=None, schema=SCHEMA, metric="cityblock"),
        of_table(name, y=SIDES), usual=TABLE[name][ROW], values=MORE,
    )  # fmt: skip
    CASES[f"table, found schema, {name}"] = Case(
        "DPSinkhornGenerator", partial(table_generator, "add_remove", schema="auto"),
        of_table(name), usual=TABLE[name][ROW], values=MORE, relation="add_remove",
    )  # fmt: skip
    schema = {name: SCHEMA[name], "sex": SCHEMA["sex"]}
    CASES[f"table, {name}"] = Case(
        "DPSinkhornGenerator", partial(table_generator, "add_remove", schema=schema),
        of_table(name, only=list(schema)), usual=TABLE[name][ROW], values=MORE,
        relation="add_remove",
    )  # fmt: skip
CASES |= {
    "a table as an array": Case(
        "DPSinkhornGenerator",
        partial(table_generator, "add_remove", schema=dict(enumerate(SCHEMA.values()))),
        of_table("sex", "array"), usual="m", relation="add_remove",
    ),
    "a polars table": Case(
        "DPSinkhornGenerator", partial(table_generator, "add_remove"),
        of_table("sex", "polars"), usual="m", values=("x", None), relation="add_remove",
    ),
    "distance by histograms": Case(
        "PrivateSinkhornDistance", partial(distance, mechanism="histogram"),
        of_points("array", SIDES),
    ),
    "private groups": Case(
        "PrivateSinkhornDistance", private_distance, of_labels(), usual="m"
    ),
    "private groups in a list": Case(
        "PrivateSinkhornDistance", private_distance, of_labels(as_list=True), usual="m"
    ),
    "noisy Sinkhorn": Case("NoisySinkhornDistance", noisy_distance, of_points("array", SIDES)),
    "a sparse network": Case(
        "PrivateADMMTransport", partial(allocation, adjacency=np.ones((6, 3))),
        of_utilities("sparse"), 2.0, NUMBERS,
    ),
    "utilities of sources": Case("PrivateADMMTransport", allocation, of_sources, 2.0),
    "rounds of messages": Case(
        "PrivateMessageADMM", partial(messages, **ROUNDS), of_utilities("array"), 2.0
    ),
    "search": Case(
        "PrivateSearchCV", search, of_points("array", SIDES == "f"), values=NUMBERS
    ),
    # Code of users.
    "a metric that asks": Case(
        "PrivateSinkhornDistance", partial(distance, metric=asking_metric, cost_range=(0, 4)),
        of_points("array", SIDES), values=(0.001, 0.999, math.nan),
    ),
    "a candidate that asks": Case(
        "PrivateSearchCV", partial(search, estimator=AskingClassifier()),
        of_points("array", SIDES == "f"), values=(0.999, math.nan),
    ),
}  # fmt: skip

# Frames of pandas and polars, whose columns may have missing values.
NULLABLE = [("Float64", "pandas"), ("bool[pyarrow]", "pandas"), ("int64[pyarrow]", "polars")]
for kind, form in NULLABLE:
    of = partial(in_nullable, kind, form=form)
    SOURCES = sources_in_nullable(kind, form)
    as_boxed = partial(generator, "add_remove", bounds=(0, 1))
    fits = {
        "vectors": Case("DPSinkhornGenerator", as_boxed, of(POINTS), relation="add_remove"),
        "gradients": Case(
            "SinkhornGradientGenerator", partial(gradients, "replace_one"), of(POINTS)
        ),
        "distance": Case("PrivateSinkhornDistance", distance, of(POINTS, SIDES)),
        "noisy": Case("NoisySinkhornDistance", noisy_distance, of(POINTS, SIDES)),
        "search": Case("PrivateSearchCV", search, of(POINTS, SIDES == "f")),
        "allocation": Case("PrivateADMMTransport", allocation, of(UTILITIES)),
        "messages": Case("PrivateMessageADMM", messages, of(UTILITIES)),
        "sources": Case("PrivateADMMTransport", allocation, SOURCES),
        "sources of messages": Case("PrivateMessageADMM", messages, SOURCES),
    }  # fmt: skip
    for what, case in fits.items():
        CASES[f"{what}, {kind}, {form}"] = replace(case, usual="bool" in kind or 1, values=(pd.NA,))


def what_is_seen(case, value, capfd):
    """Return all that a private fit shows, and whether it was fitted."""
    ledger = PrivacyLedger(1e6, 0.5, neighbouring=case.relation)
    inputs, named = case.data(value)
    made = case.make(ledger)
    capfd.readouterr()
    np.random.seed(0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            made.fit(*inputs, **named)
            said = None
        except BaseException as error:
            said = type(error).__name__, str(error)
    charges = [(entry.label, entry.unit, str(entry.event)) for entry in ledger.entries()]
    # Some also warn of what they have released, which is random.
    released = re.compile("best_score_|nothing was found of|nearly all that the")
    told = [each for each in (str(one.message) for one in warned) if not released.search(each)]
    heard = told, tuple(capfd.readouterr()), np.random.random()
    return said, heard, charges


@pytest.mark.parametrize("every", first_quick([14, 1]))
@pytest.mark.parametrize("name", CASES)
def test_no_value_changes_what_a_private_fit_says_or_costs(name, every, capfd):
    case = CASES[name]
    usual = what_is_seen(case, case.usual, capfd)
    said, _, charges = usual
    assert said is None and len(charges) == 1
    # In quick tests one of its values, or two: another one than of other cases.
    for value in case.values[zlib.crc32(name.encode()) % min(every, len(case.values)) :: every]:
        assert what_is_seen(case, value, capfd) == usual, type(value)


def test_a_single_record_that_counts_nowhere_is_no_error(capfd):
    schema = {"sex": ["f", "m"], "age": (0.0, 1.0)}
    alone = pd.DataFrame({"sex": pd.Series(["x"], dtype=object), "age": [0.5]})
    for named in ({}, {"groups": [1]}, {"groups": [None]}):
        case = Case(
            "", partial(table_generator, "add_remove", schema=schema),
            lambda sex, named=named: ((alone.assign(sex=pd.Series([sex], dtype=object)),), named),
            relation="add_remove",
        )  # fmt: skip
        assert what_is_seen(case, "x", capfd) == what_is_seen(case, "f", capfd)


def test_without_epsilon_odd_values_are_errors():
    for X, advice in ((table("x", "sex"), "not among"), (table(None, "age"), "missing values")):
        with pytest.raises(ValueError, match=advice):
            DPSinkhornGenerator(None, schema=SCHEMA).fit(X)
    with pytest.raises(ValueError, match="contains NaN"):
        DPSinkhornGenerator(None, bounds=(0, 1)).fit(points(math.nan))
    with pytest.raises(ValueError, match="not among the declared classes"):
        DPSinkhornGenerator(None, bounds=(0, 1), classes=["f"]).fit(POINTS, SIDES)
    with pytest.raises(ValueError, match="contains NaN"):
        PrivateADMMTransport(None, source_bounds=(0, 10)).fit(points(math.nan, X=UTILITIES))


@pytest.mark.parametrize("odd", [{"age": list("ab") * 20}, {"day": range(40)},
                                 {"sex": [0, 1] * 20}, {"level": list("ab") * 20},
                                 {"age": [1j] * 40}])  # fmt: skip
def test_types_of_columns_are_refused_before_the_charge(odd):
    ledger = PrivacyLedger(1e6, 0.5, neighbouring="add_remove")
    wrong = table(None).assign(**{key: pd.Series(list(column)) for key, column in odd.items()})
    if "age" in odd and isinstance(odd["age"][0], str):
        wrong = wrong.astype({"age": "string"})
    if "level" in odd:
        wrong = wrong.astype({"level": "string"})
    name = next(iter(odd))
    wrong = wrong.astype({name: "Int64"} if wrong[name].dtype == "int64" else {})
    # No value decides, also not whether there is one.
    for kept in (True, False):
        rows = wrong.assign(**{name: wrong[name].where([kept] * len(wrong))})
        with pytest.raises(ValueError, match=f"column '{name}'"):
            table_generator("add_remove", ledger).fit(rows)
    assert not ledger.entries()


class Label(str):
    """A label that is told with what it is compared."""

    __hash__, shown = str.__hash__, []

    def __eq__(self, other):
        self.shown.append(str(other))
        return False


class SaysItIsText(type):
    """The type of a class that claims to equal the type of texts."""

    def __hash__(cls):
        return hash(str)

    def __eq__(cls, other):
        return True


def test_a_class_that_says_it_is_text_is_not_plain():
    label = SaysItIsText("str", (str,), {"__hash__": str.__hash__})("m")
    assert type(label) == str and not is_plain(label)  # noqa: E721
    with pytest.raises(TypeError, match="must be text, numbers"):
        declared_labels(["f", 1, label], "classes")


class OwnSketch(TableSketch):
    def _read(self, estimator, X, *args, **kwargs):
        Label.shown += X["sex"].tolist()


class OwnSupport(FreeSupport):
    pass


@pytest.mark.parametrize(
    "fit",
    [
        lambda own, ledger: generator(
            "replace_one", ledger, schema={"sex": ["f", own]}, model=TableSketch(8, n_iter=1)
        ).fit(table(None)[["sex"]]),
        lambda own, ledger: generator("replace_one", ledger, bounds=(0, 1), classes=["f", own]).fit(
            POINTS, SIDES
        ),
        lambda own, ledger: private_distance(ledger, groups=["f", own]).fit(POINTS, SIDES),
        lambda own, ledger: FairBarycenterPreprocessor(
            epsilon=5.0, categories={"sex": ["f", own]}, groups=["f", "m"], ledger=ledger
        ).fit(table(None)[["sex"]], sensitive_features=SIDES),
        lambda own, ledger: table_generator("replace_one", ledger, model=OwnSketch()).fit(
            table(None)
        ),
        lambda own, ledger: FairBarycenterPreprocessor(
            epsilon=5.0, bounds=(0, 1), groups=["f", "m"], ledger=ledger, method=OwnSupport()
        ).fit(POINTS, sensitive_features=SIDES),
    ],
)
def test_classes_of_the_analyst_see_no_record_before_the_charge(fit):
    ledger = PrivacyLedger(1e6, 0.5, neighbouring="replace_one")
    Label.shown.clear()
    try:
        # Some parameters are made plain text.
        fit(Label("m"), ledger)
    except TypeError as error:
        assert re.search("be text, numbers, truth values|of a derived class", str(error))
        assert not ledger.entries()
    assert not {"f", "m"} & set(Label.shown)


def test_text_as_a_type_is_refused_where_numbers_are_wanted():
    numbers, words = POINTS.astype(str), POINTS.astype(str)
    words[ROW, 1] = "x"
    for rows in (numbers, words):
        for kind in ("U9", "S9", np.dtypes.StringDType()):
            for made in (generator("add_remove", None, bounds=(0, 1)), distance(None)):
                with pytest.raises(ValueError, match="X holds text"):
                    made.fit(rows.astype(kind), *([SIDES] if hasattr(made, "metric") else []))


def test_a_comparison_of_decimal_numbers_leaves_no_flag():
    context = decimal.getcontext()
    context.clear_flags()
    labels = np.array([77.0, *[1.0] * (len(SIDES) - 1)], dtype=object)
    fit = generator("add_remove", None, bounds=(0, 1), classes=[Decimal("77"), Decimal("1")]).fit
    fit(POINTS, labels)
    assert not any(context.flags.values())


def test_a_record_that_is_read_by_rule_is_that_of_the_rule():
    """NaN is the middle, infinity a bound, and an undeclared label no record at all."""
    odd, plain = POINTS.copy(), POINTS.copy()
    odd[:3, 0], plain[:3, 0] = [math.nan, math.inf, -math.inf], [0.5, 1.0, 0.0]
    seeded = {"bounds": (0, 1), "random_state": 0}
    pairs = [
        [PrivateSinkhornDistance(**seeded).fit(X, SIDES).distance_ for X in (odd, plain)],
        [DPSinkhornGenerator(1e3, **seeded).fit(X).prototypes().tolist() for X in (odd, plain)],
    ]
    labels = np.where(np.arange(40) == ROW, "x", SIDES).astype(object)
    with_classes = DPSinkhornGenerator(1e3, classes=["f", "m"], **seeded)
    left = np.arange(40) != ROW
    pairs.append([with_classes.fit(X, y).prototypes()[0].tolist()
                  for X, y in ((POINTS, labels), (POINTS[left], SIDES[left]))])  # fmt: skip
    tables = table("x", "sex"), table(None).drop(index=ROW)
    model = TableSketch(8, n_iter=1)
    pairs.append([DPSinkhornGenerator(1e3, schema=SCHEMA, model=model, random_state=0)
                  .fit(X).sample(20).to_numpy().tolist() for X in tables])  # fmt: skip
    odd_utilities = points(math.nan, X=UTILITIES)
    pairs.append([PrivateADMMTransport(5.0, random_state=0, **NETWORK).fit(X).plan_.tolist()
                  for X in (odd_utilities, points(3.0, X=UTILITIES))])  # fmt: skip
    for odd_result, plain_result in pairs:
        assert odd_result == plain_result


def test_a_row_without_a_place_takes_no_row_of_its_person_along():
    people = np.repeat(range(10), 4)
    made = [
        table_generator("add_remove", None, random_state=0)
        .fit(X, groups=groups)
        .sample(n_users=5)
        .to_numpy()
        .tolist()
        for X, groups in (
            (table("x", "sex"), people),
            (table(None), with_value(people, None)),
            (table(None).drop(index=ROW).reset_index(drop=True), np.delete(people, ROW)),
        )
    ]
    assert made[0] == made[1] == made[2]


def test_private_estimators_take_nan_and_open_ones_say_that_they_do_not():
    private = [distance(None), generator("add_remove", None), allocation(None)]
    assert all(get_tags(one).input_tags.allow_nan for one in private)
    opened = [DPSinkhornGenerator(None), PrivateADMMTransport(None)]
    assert not any(get_tags(one).input_tags.allow_nan for one in opened)


def estimators():
    """Return the names of all private estimators."""
    named = [(room, name) for room in (skdpot, skdpot.published) for name in room.__all__]
    classes = {name: getattr(room, name) for room, name in named}
    return {
        name
        for name, one in classes.items()
        if isinstance(one, type) and hasattr(one, "fit") and hasattr(one, "preview")
    }


def test_the_page_has_a_row_for_each_private_estimator():
    rows = set(re.findall(r'^   "``(\w+)``",', PAGE.read_text(), flags=re.MULTILINE))
    assert rows == estimators()


# The local samplers refuse rows that are no distributions, which no declaration decides about; fair
# estimators have tests of their own.
ELSEWHERE = {
    "ExponentialMechanismSampler", "FairBarycenterClassifier", "FairBarycenterPreprocessor",
    "FairBarycenterRegressor", "KLProjectionSampler", "SphericalProjectionSampler",
    "WassersteinProjectionSampler",
}  # fmt: skip


def test_each_private_estimator_has_cases():
    assert {case.estimator for case in CASES.values()} == estimators() - ELSEWHERE
