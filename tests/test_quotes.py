"""Errors and warnings, none of which quotes a private value.

A mark is planted among private values, in many forms, and everything that is said is read.
"""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from skdpot import (
    DPSinkhornGenerator,
    ExponentialMechanismSampler,
    FairBarycenterClassifier,
    FairBarycenterPreprocessor,
    FairBarycenterRegressor,
    KLProjectionSampler,
    PrivateADMMTransport,
    PrivateSearchCV,
    PrivateSinkhornDistance,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
    private_ot_cost,
)
from skdpot.fairness import FreeSupport
from skdpot.generative import TableSketch
from skdpot.privacy import GaussianMechanism, LaplaceMechanism, allow_useless_releases
from skdpot.published import BarycenterOwner
from skdpot.transport.consensus import LinearUtility
from tests import house

WORD, NUMBER = "s3cret77", 7777.25
MARKS = (WORD, "7777")


class Loud:
    """A value that raises what it is, whatever is asked of it."""

    def __float__(self):
        raise ValueError(WORD)

    def __array__(self, *args, **params):
        raise RuntimeError(WORD)

    def __eq__(self, other):
        raise KeyError(WORD)

    def __lt__(self, other):
        raise TypeError(WORD)

    def __hash__(self):
        return 7

    def __repr__(self):
        return WORD


FEW_VALUES = {"word": WORD, "loud": Loud()}
MORE_VALUES = {
    "number": NUMBER,
    "bytes": WORD.encode(),
    "bytearray": bytearray(WORD.encode()),
    "list": [WORD],
    "tuple": (WORD, 1),
    "dictionary": {WORD: 1},
    "negative": -NUMBER,
    "large": NUMBER * 1e290,
    "beyond doubles": 7777 * 10**400,
    "complex": NUMBER * 1j,
    "decimal": Decimal("7777.25"),
    "number in words": "7777.25",
    "date": pd.Timestamp("1777-07-07"),
    "surrogate": WORD + "\udcff",
    "error": ValueError(WORD),
}

rng = np.random.default_rng(0)
N = 40
X, Y = rng.random((N, 2)), np.arange(N) % 2
GROUPS = np.where(Y, "f", "m").astype(object)
WEIGHTS = rng.random(N)
TABLE = pd.DataFrame(
    {"a": X[:, 0], "c": np.where(X[:, 1] > 0.5, "p", "q").astype(object), "g": GROUPS}
)
QUICK_SKETCH = TableSketch(8, n_iter=1)
SCHEMA = {"a": (0.0, 1.0), "c": ["p", "q"], "g": ["f", "m"]}
MAY_MISS = SCHEMA | {
    "a": {"bounds": (0.0, 1.0), "missing": True},
    "c": {"categories": ["p", "q"], "missing": True},
}
UTILITIES = rng.random((6, 4))
DIRECTIONS = UTILITIES / np.linalg.norm(UTILITIES, axis=1, keepdims=True)
AMOUNTS = {"utility_bounds": (0, 1), "target_bounds": (0, 1), "source_bounds": (0, 2)}


@dataclass(frozen=True)
class Case:
    """A call, and the private values that it is given."""

    call: Callable[..., Any]
    values: tuple


def distance(**options):
    private = {"groups": [0, 1], "labels": "private", "min_group_size": 3}
    return PrivateSinkhornDistance(1.0, 1e-5, **private | options)


def repair(method, **options):
    declared = {"bounds": (0, 1), "groups": ["f", "m"], "categories": {"c": ["p", "q"]}}
    return FairBarycenterPreprocessor(
        epsilon=5.0, delta=1e-5, categorical_features=["c"], method=method, **declared | options
    )


def premium(**options):
    model = LogisticRegression() if options else LinearRegression()
    bounds = None if options else (0, 1)
    fair = FairBarycenterClassifier if options else FairBarycenterRegressor
    return fair(
        FrozenEstimator(model.fit(X, Y)), epsilon=1.0, groups=["f", "m"], bounds=bounds, **options
    )


def search(estimator, grid, **options):
    return PrivateSearchCV(estimator, grid, n_blocks=2, cv=2, **options)


def fitted(make, *values):
    """Return a function that returns an estimator that is fitted once."""

    @cache
    def fit():
        return make().fit(*values[:2], **({"sensitive_features": values[2]} if values[2:] else {}))

    return fit


def sampling(sampler, X):
    fit = fitted(sampler, X)
    return Case(lambda X: fit().sample(X), (X,))


VECTORS = fitted(partial(DPSinkhornGenerator, bounds=(0, 1), classes=[0, 1]), X, Y)
ROWS = fitted(partial(DPSinkhornGenerator, schema=SCHEMA, target="g"), TABLE)
FREE = fitted(partial(repair, FreeSupport(n_support=4), sensitive_features="g"), TABLE)
SCORES = fitted(premium, X, Y, GROUPS)
CLASSES = fitted(lambda: premium(delta=1e-5), X, Y, GROUPS)
FEW = FreeSupport(n_support=4)
CASES = {
    "distance": Case(lambda X, y: distance(bounds=(0, 1)).fit(X, y), (X, Y)),
    "cost": Case(lambda X, Y: private_ot_cost(X, Y, bounds=(0, 1)), (X, X)),
    "repair, free": Case(
        lambda X: repair(FreeSupport(n_support=4), sensitive_features="g").fit(X), (TABLE,)
    ),
    "repair, passed groups": Case(
        lambda X, s: repair(FEW).fit(X, sensitive_features=s), (TABLE.drop(columns="g"), GROUPS)
    ),
    "repair, transform": Case(lambda X: FREE().transform(X), (TABLE,)),
    "premium, predict": Case(lambda X, s: SCORES().predict(X, sensitive_features=s), (X, GROUPS)),
    "premium, score": Case(
        lambda X, y, w, s: SCORES().score(X, y, w, sensitive_features=s), (X, Y, WEIGHTS, GROUPS)
    ),
    "classes, predict_proba": Case(
        lambda X, s: CLASSES().predict_proba(X, sensitive_features=s), (X, GROUPS)
    ),
    "classes, score": Case(
        lambda X, y, w, s: CLASSES().score(X, y, w, sensitive_features=s), (X, Y, WEIGHTS, GROUPS)
    ),
    "vectors, score": Case(lambda X, y: VECTORS().score(X, y), (X, Y)),
    "rows": Case(
        lambda X: DPSinkhornGenerator(schema=SCHEMA, target="g", model=QUICK_SKETCH).fit(X),
        (TABLE,),
    ),
    "rows, score": Case(lambda X: ROWS().score(X), (TABLE,)),
    "search": Case(
        lambda X, y: search(DummyClassifier(), {"strategy": ["prior", "stratified"]}).fit(X, y),
        (X, Y),
    ),
    "allocation": Case(
        lambda X, s: PrivateADMMTransport(**AMOUNTS).fit(X, source_utilities=s),
        (UTILITIES, UTILITIES),
    ),
    "node": Case(LinearUtility, (WEIGHTS,)),
    "owner": Case(BarycenterOwner, (X,)),
    "Laplace": Case(
        lambda X: LaplaceMechanism(1.0, 1.0, n_coordinates=N).release(X, 0), (X[:, 0],)
    ),
    "Gaussian": Case(
        lambda X: GaussianMechanism(1.0, 1e-5, 1.0, n_coordinates=N).release(X, 0), (X[:, 0],)
    ),
    **{
        sampler.__name__: sampling(sampler, X)
        for sampler, X in (
            (WassersteinProjectionSampler, UTILITIES),
            (KLProjectionSampler, UTILITIES),
            (ExponentialMechanismSampler, UTILITIES),
            (SphericalProjectionSampler, DIRECTIONS),
        )
    },
}


def planted(value, mark):
    """Yield private values with a mark among them, held in several ways."""
    array = value.to_numpy(dtype=object) if hasattr(value, "to_numpy") else value.astype(object)
    array = array.copy()
    array[3 if array.ndim == 1 else (3, 0)] = mark
    yield array
    yield array.tolist()
    yield mark
    if isinstance(value, pd.DataFrame):
        for column in value.columns:
            # Not as a list, of which old versions of pandas ask each entry for an array.
            entries = value[column].to_numpy(dtype=object).copy()
            entries[3] = mark
            yield value.assign(**{column: pd.Series(entries, dtype=object)})
    elif value.ndim == 2:
        yield pd.DataFrame(array, dtype=object)
        rows = value.tolist()
        yield [*rows[:3], [*rows[3], mark], *rows[4:]]
        yield [*rows[:3], mark, *rows[4:]]
    else:
        yield pd.Series(array, dtype=object)
        yield array[:, None].repeat(2, axis=1)


def chain_of(error):
    """Yield an error, and all that it was raised for."""
    left, seen = [error], set()
    while left:
        error = left.pop()
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            yield error
            left += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]


def said_by(call):
    """Return all texts of errors and warnings of a call."""
    with warnings.catch_warnings(record=True) as caught, allow_useless_releases():
        warnings.simplefilter("always")
        try:
            call()
            raised = None
        except Exception as error:
            raised = error
    said = [str(warning.message) for warning in caught]
    for error in chain_of(raised):
        said += [str(error), repr(error.args), repr(vars(error))]
    return said


def assert_unquoted(case, marks, ways):
    for position, value in enumerate(case.values):
        for name, mark in marks.items():
            for way in ways:
                for given in way(value, mark):
                    values = [*case.values[:position], given, *case.values[position + 1 :]]
                    said = said_by(lambda values=values: case.call(*values))
                    quoted = [text for text in said if any(each in text for each in MARKS)]
                    assert not quoted, (position, name, type(given), quoted)


# Where another case goes the same way, or test_not_protected.py plants more, it is a long test.
QUICK = {
    "distance", "cost", "repair, free", "premium, predict", "vectors, score",
    "rows", "search", "allocation", "owner", "Laplace", "WassersteinProjectionSampler",
    "SphericalProjectionSampler",
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[] if name in QUICK else [pytest.mark.experiment])
        for name, case in CASES.items()
    ],
)
def test_no_private_value_is_quoted(case):
    with allow_useless_releases():
        case.call(*case.values)
    assert_unquoted(case, FEW_VALUES, [planted])


@pytest.mark.experiment
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_private_value_is_quoted_in_whatever_form(case):
    assert_unquoted(case, MORE_VALUES, [planted])


@pytest.mark.parametrize("estimator", house.estimators().values())
def test_no_table_is_quoted_that_is_passed_for_something_public(estimator):
    accepted = inspect.signature(estimator.__init__).parameters
    required = {"estimator": LinearRegression(), "param_grid": {}}
    required = {name: value for name, value in required.items() if name in accepted}
    for table in X * 0 + NUMBER, TABLE.assign(a=NUMBER):
        said = said_by(lambda table=table: estimator(**required).preview(table))
        assert said
        for name in set(accepted) - {"self"}:
            params = required | {name: table}
            said += said_by(lambda params=params: estimator(**params).preview(N, 2))
        assert not [text for text in said if any(mark in text for mark in MARKS)]


def test_a_mark_would_be_found():
    assert_quotes = Case(lambda X: float(X[3]), (WEIGHTS,))
    with pytest.raises(AssertionError, match=WORD):
        assert_unquoted(assert_quotes, FEW_VALUES, [planted])
