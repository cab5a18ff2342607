"""One release ritual: what is refused, charged, released and kept, the same for every estimator.

An estimator is added by one entry in ``CASES``.
"""

import copy
import os
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
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
)
from skdpot.fairness import FreeSupport
from skdpot.generative import NetworkTraining, TableSketch
from skdpot.privacy import (
    BudgetAccountant,
    BudgetError,
    BudgetExceededError,
    PrivacyLedger,
    charging,
)
from skdpot.privacy.noise import NoiseSource
from skdpot.published import NoisySinkhornDistance, PrivateMessageADMM, SinkhornGradientGenerator


@dataclass(frozen=True)
class Case:
    """An estimator, data that it takes, and data that it refuses.

    Attributes
    ----------
    make : callable
        Returns an estimator that is private, from further parameters.
    data, bad : callable
        Return the arguments of a fit. Those of `bad` are refused for what they hold.
    release : str
        The method that releases. It is given the same arguments.
    without_guarantee : dict or None
        Parameters with which nothing is guaranteed, where there are any.
    fixed_relation : dict
        Parameters with which the relation is replace_one, whatever the ledger's is.
    draws_in_plan : bool
        Whether what is planned is drawn at random, before the charge.
    """

    make: Callable[..., Any]
    data: Callable[[], tuple]
    bad: Callable[[], tuple]
    release: str = "fit"
    without_guarantee: dict[str, Any] | None = None
    fixed_relation: dict[str, Any] = field(default_factory=dict)
    draws_in_plan: bool = False

    @property
    def fit_releases(self):
        """Return whether a fit is a release; that of a local sampler only prepares them."""
        return self.release != "sample"

    def fitted(self, **params):
        return self.make(**params).fit(*self.data())

    def run(self, estimator):
        """Make the release of an estimator that is not fitted."""
        if self.release != "fit":
            estimator.fit(*self.data())
        return getattr(estimator, self.release)(*self.data())


def with_nan(make):
    """Return data with a value missing in the first argument."""

    def data():
        X, *others = make()
        X = np.array(X, dtype=float)
        X[0, 0] = np.nan
        return (X, *others)

    return data


def complex_numbers(make):
    """Return data with a first argument of complex numbers."""
    return lambda: (make()[0].astype(complex), *make()[1:])


def as_text(make):
    """Return data of which the first argument has a type of text."""

    def data():
        X, *others = make()
        return (X.astype(str), *others)

    return data


def histograms():
    return (np.random.default_rng(0).random((6, 4)),)


def unit_vectors():
    X = np.random.default_rng(0).standard_normal((6, 3))
    return (X / np.linalg.norm(X, axis=1, keepdims=True),)


def two_groups():
    return np.random.default_rng(0).random((30, 2)), np.arange(30) % 2


def a_table():
    X, y = two_groups()
    return (np.column_stack([X[:, 0], y]),)


def a_table_of_people():
    (table,) = a_table()
    return table, None, np.arange(30) // 2


def two_columns():
    X, y = two_groups()
    return np.column_stack([X[:, 0], y]), y


def utilities():
    return (np.random.default_rng(0).random((3, 2)),)


def make_distance(**params):
    return PrivateSinkhornDistance(bounds=(0, 1), **params)


def make_search(**params):
    classifier = DummyClassifier()
    strategies = {"strategy": ["prior", "most_frequent"]}
    return PrivateSearchCV(classifier, strategies, n_blocks=2, cv=2, **params)


def make_repair(**params):
    declared = {"groups": [0, 1], "method": FreeSupport(n_support=5)}
    bounds = {"bounds": (0, 1)} if params.get("epsilon", 1.0) else {}
    return FairBarycenterPreprocessor([1], **{"epsilon": 1.0} | bounds | declared | params)


def make_premium(**params):
    trained_elsewhere = LinearRegression().fit([[0.0, 0.0], [1.0, 0.0]], [0.0, 1.0])
    declared = {"bounds": (0, 1), "groups": [0, 1]} if params.get("epsilon", 1.0) else {}
    return FairBarycenterRegressor(
        FrozenEstimator(trained_elsewhere),
        sensitive_features=[1],
        **{"epsilon": 1.0} | declared | params,
    )


def make_classes(**params):
    model = LogisticRegression().fit([[0.0, 0.0], [1.0, 0.0]], [False, True])
    declared = {"groups": [0, 1]} if params.get("epsilon", 1.0) else {}
    return FairBarycenterClassifier(
        FrozenEstimator(model), sensitive_features=[1], **{"epsilon": 1.0} | declared | params
    )


def a_table_and_classes():
    (table,) = a_table()
    return table, table[:, 0] > np.median(table[:, 0])


def a_table_and_targets():
    (table,) = a_table()
    return table, table[:, 0]


def unreadable_targets():
    X, y = two_groups()
    return X, y[:-1]


TINY_TRAINING = {"network": NetworkTraining(n_iter=2, batch_size=4, sampling_rate=1.0)}
SMALL_TABLE = {"schema": {0: (0.0, 1.0), 1: range(2)}, "model": TableSketch(24, n_iter=5)}
AMOUNTS = {"utility_bounds": (0, 1), "target_bounds": (0, 1), "source_bounds": (0, 2)}
CASES = {
    **{
        sampler.__name__: Case(sampler, histograms, with_nan(histograms), "sample")
        for sampler in (
            WassersteinProjectionSampler,
            KLProjectionSampler,
            ExponentialMechanismSampler,
        )
    },
    "SphericalProjectionSampler": Case(
        SphericalProjectionSampler, unit_vectors, with_nan(unit_vectors), "sample"
    ),
    "PrivateSinkhornDistance": Case(make_distance, two_groups, as_text(two_groups)),
    "PrivateSinkhornDistance, histogram": Case(
        lambda **params: make_distance(mechanism="histogram", **params),
        two_groups,
        as_text(two_groups),
    ),
    "PrivateSinkhornDistance, tables": Case(
        lambda **params: PrivateSinkhornDistance(schema={"x": (0, 1), "y": [0, 1]}, **params),
        two_columns,
        as_text(two_columns),
    ),
    "FairBarycenterPreprocessor": Case(
        make_repair, a_table, complex_numbers(a_table), without_guarantee={"epsilon": None}
    ),
    "FairBarycenterRegressor": Case(
        make_premium,
        a_table_and_targets,
        lambda: (a_table()[0], a_table()[0][1:, 0]),
        without_guarantee={"epsilon": None},
    ),
    "FairBarycenterClassifier": Case(
        make_classes,
        a_table_and_classes,
        lambda: (a_table()[0], a_table()[0][1:, 0] > 0.5),
        without_guarantee={"epsilon": None},
    ),
    "FairBarycenterPreprocessor, conditional": Case(
        lambda **params: make_repair(**{"method": "conditional", "delta": 1e-6} | params),
        a_table,
        complex_numbers(a_table),
        without_guarantee={"epsilon": None, "delta": None},
    ),
    "PrivateSearchCV": Case(make_search, two_groups, unreadable_targets, draws_in_plan=True),
    "PrivateADMMTransport": Case(
        lambda **params: PrivateADMMTransport(**AMOUNTS | params),
        utilities,
        as_text(utilities),
        without_guarantee={"epsilon": None},
    ),
    "NoisySinkhornDistance": Case(
        lambda **params: NoisySinkhornDistance(bounds=(0, 1), **params),
        two_groups,
        as_text(two_groups),
        without_guarantee={"accounting": "paper"},
    ),
    **{
        f"DPSinkhornGenerator, {name}": Case(
            partial(DPSinkhornGenerator, **params),
            data,
            bad,
            without_guarantee={"epsilon": None},
            fixed_relation={"neighbouring": "replace_one"},
        )
        for name, params, data, bad in (
            ("vectors", {"bounds": (0, 1), "classes": [0, 1]}, two_groups, as_text(two_groups)),
            (
                "images",
                {"classes": [0, 1], "image_shape": (1, 2), "bounds": (0, 1)},
                two_groups,
                as_text(two_groups),
            ),
            ("a table", SMALL_TABLE, a_table, as_text(a_table)),
        )
    },
    "DPSinkhornGenerator, people": Case(
        partial(DPSinkhornGenerator, **SMALL_TABLE),
        a_table_of_people,
        as_text(a_table_of_people),
        without_guarantee={"epsilon": None},
        fixed_relation={"neighbouring": "replace_one"},
    ),
    "SinkhornGradientGenerator": Case(
        lambda **params: SinkhornGradientGenerator(classes=[0, 1], **TINY_TRAINING | params),
        two_groups,
        as_text(two_groups),
        without_guarantee={"epsilon": None},
        fixed_relation={"neighbouring": "replace_one"},
        draws_in_plan=True,
    ),
    "PrivateMessageADMM": Case(
        lambda **params: PrivateMessageADMM(delta=1e-6, n_rounds=2, eta=1.0, **AMOUNTS | params),
        utilities,
        as_text(utilities),
    ),
}
# One form of each estimator is quick, and the others are long tests.
FORMS = {
    "KLProjectionSampler", "PrivateSinkhornDistance, histogram", "PrivateSinkhornDistance, tables",
    "FairBarycenterPreprocessor, conditional", "DPSinkhornGenerator, images",
    "DPSinkhornGenerator, people",
}  # fmt: skip


def parametrized(cases):
    """Return a mark that runs a test for each case."""
    marks = {name: [pytest.mark.experiment] if name in FORMS else [] for name in cases}
    given = [pytest.param(case, id=name, marks=marks[name]) for name, case in cases.items()]
    return pytest.mark.parametrize("case", given)


by_case = parametrized(CASES)


def state(estimator):
    """Return all that a fit has left, bit for bit."""
    params = estimator.get_params(deep=False)
    return pickle.dumps({key: value for key, value in vars(estimator).items() if key not in params})


def through_pickle(estimator):
    return pickle.loads(pickle.dumps(estimator))


def n_charges(ledger):
    return len(ledger.entries()) if isinstance(ledger, PrivacyLedger) else len(ledger)


class Interrupted(BaseException):
    """What no handler expects."""


def interrupt(*_args, **_params):
    raise Interrupted


@by_case
def test_a_refused_refit_keeps_the_earlier_fit(case):
    estimator = case.fitted()
    before = state(estimator)
    with pytest.raises(ValueError):
        estimator.fit(*case.bad())
    assert state(estimator) == before


@by_case
@pytest.mark.parametrize("step", ["_words", "_keep"])
def test_a_refit_that_is_interrupted_keeps_the_earlier_fit(case, step, monkeypatch):
    ledger = PrivacyLedger(100.0, 0.1)
    estimator = case.fitted(ledger=ledger)
    before, charged = state(estimator), n_charges(ledger)
    # The source of noise is used by what releases, and a fit is kept at its end.
    method = "fit" if step == "_keep" else case.release
    monkeypatch.setattr(NoiseSource if step == "_words" else type(estimator), step, interrupt)
    with pytest.raises(Interrupted):
        getattr(estimator, method)(*case.data())
    assert state(estimator) == before
    # What was charged stays charged.
    prepares = method == "fit" and not case.fit_releases
    is_before_the_charge = step == "_words" and case.draws_in_plan
    assert n_charges(ledger) == charged + (not (prepares or is_before_the_charge))


@by_case
@pytest.mark.parametrize("kind", [PrivacyLedger, BudgetAccountant])
def test_what_the_budget_forbids_changes_nothing(case, kind):
    ledger = kind(1e-3, 1e-9)
    estimator = case.fitted().set_params(ledger=ledger)
    before = state(estimator)
    with pytest.raises((BudgetExceededError, BudgetError)):
        getattr(estimator, case.release)(*case.data())
    assert state(estimator) == before
    assert not n_charges(ledger)


@by_case
def test_the_charge_comes_before_the_release(case, monkeypatch):
    steps = []

    def watch(where, name):
        original = getattr(where, name)

        def watched(*args, **params):
            steps.append(name)
            return original(*args, **params)

        monkeypatch.setattr(where, name, watched)

    ledger = PrivacyLedger(100.0, 0.1)
    estimator = case.make(ledger=ledger)
    watch(PrivacyLedger, "charge")
    watch(type(estimator), "_run")
    watch(NoiseSource, "_words")
    case.run(estimator)
    if case.draws_in_plan:
        steps = steps[steps.index("charge") :]
    assert steps[:3] == ["charge", "_run", "_words"]
    assert steps.count("charge") == n_charges(ledger)


@by_case
def test_what_is_refused_is_not_charged(case):
    ledger = PrivacyLedger(100.0, 0.1)
    estimator = case.fitted(ledger=ledger)
    charged = n_charges(ledger)
    with pytest.raises(ValueError) as caught:
        getattr(estimator, case.release)(*case.bad())
    assert n_charges(ledger) == charged
    assert not told(caught.value)


def accountant_of_another_process():
    accountant = BudgetAccountant()
    charging._process_of[accountant] = os.getpid() + 1
    return accountant


WRONG_LEDGERS = {
    "another relation": (
        lambda: PrivacyLedger(100.0, 0.1, neighbouring="add_remove"), ValueError, "is for",
    ),
    "a part of hidden size": (
        lambda: PrivacyLedger(100.0, 0.1).partition("site", ["a", "b"])["a"],
        ValueError,
        "a part of the data",
    ),
    "neither ledger nor accountant": (lambda: "book", TypeError, "ledger must be None"),
    "another process": (accountant_of_another_process, RuntimeError, "is of one process"),
}  # fmt: skip


def assert_refused(case, estimator, error, message, monkeypatch):
    """Check that a release is refused before its charge, and that the fit is as it was."""
    before = state(estimator)
    monkeypatch.setattr(type(estimator), "_run", interrupt)
    monkeypatch.setattr(PrivacyLedger, "charge", interrupt)
    with pytest.raises(error, match=re.escape(message)):
        getattr(estimator, case.release)(*case.data())
    with pytest.raises(error, match=re.escape(message)):
        estimator.fit(*case.data())
    assert state(estimator) == before


@by_case
@pytest.mark.parametrize("kind", WRONG_LEDGERS)
def test_ledgers_that_cannot_follow_are_refused_alike(case, kind, monkeypatch):
    make, error, message = WRONG_LEDGERS[kind]
    estimator = case.fitted().set_params(ledger=make(), **case.fixed_relation)
    assert_refused(case, estimator, error, message, monkeypatch)


@by_case
def test_seeded_releases_are_refused_by_a_ledger_that_takes_none(case, monkeypatch):
    ledger = PrivacyLedger(100.0, 0.1)
    estimator = case.fitted().set_params(ledger=ledger, random_state=0)
    assert_refused(case, estimator, ValueError, "allow_seeded=True", monkeypatch)
    assert not n_charges(ledger)


@by_case
def test_a_default_ledger_is_charged_what_is_guaranteed(case):
    ledger = PrivacyLedger(3.0, 1e-5)
    estimator = case.make(ledger=ledger)
    case.run(estimator)
    guarantee = estimator.privacy_guarantee_
    assert guarantee.neighbouring == ledger.neighbouring
    assert {entry.unit for entry in ledger.entries()} == {guarantee.unit}
    assert ledger.entries()[0].label.startswith(type(estimator).__name__)
    assert 0.95 * guarantee.epsilon <= ledger.spent()[0] <= guarantee.epsilon
    assert ledger.spent()[1] == guarantee.delta
    # What is made of a release is free.
    if hasattr(estimator, "save"):
        estimator.sample()
        estimator.score(*case.data()[:2])
    for name in ("transform", "predict"):
        if case.fit_releases and hasattr(estimator, name):
            getattr(estimator, name)(case.data()[0])
    assert n_charges(ledger) == 1


NOTHING_GUARANTEED = {name: case for name, case in CASES.items() if case.without_guarantee}


@parametrized(NOTHING_GUARANTEED)
@pytest.mark.parametrize("make_ledger", [lambda: PrivacyLedger(100.0, 0.1), BudgetAccountant])
@pytest.mark.filterwarnings("ignore::skdpot.privacy.NoGuaranteeWarning")
def test_what_guarantees_nothing_is_refused_with_a_ledger(case, make_ledger, monkeypatch):
    estimator = case.fitted(**case.without_guarantee)
    assert estimator.privacy_guarantee_ is None
    ledger = make_ledger()
    estimator.set_params(ledger=ledger)
    assert_refused(case, estimator, ValueError, "nothing is guaranteed", monkeypatch)
    assert not n_charges(ledger)


# Pickles of a network hold addresses, so that training has a test of its own.
SEEDED = {name: case for name, case in CASES.items() if name != "SinkhornGradientGenerator"}


@parametrized(SEEDED)
def test_a_seed_decides_about_a_release_and_nothing_else_does(case):
    def released(random_state):
        estimator = case.make(random_state=random_state)
        np.random.seed(0)
        result = case.run(estimator)
        assert (estimator.privacy_guarantee_ is None) == (random_state is not None)
        return state(estimator) if result is estimator else result.tobytes()

    first = released(0)
    assert released(0) == first
    # Two releases of few labels or counts may be the same by chance.
    assert any(released(None) != released(None) for _ in range(20))
    assert any(released(k) != first for k in range(1, 20))


@parametrized(SEEDED)
def test_a_progress_bar_changes_nothing_and_ends(case, capsys):
    results, printed = [], []
    for verbose in (None, 1):
        estimator = case.make(random_state=0, verbose=verbose)
        result = case.run(estimator)
        results.append(state(estimator) if result is estimator else result.tobytes())
        printed.append(capsys.readouterr())
    assert results[0] == results[1]
    assert printed[0] == ("", "") and printed[1].out == ""
    last, name = printed[1].err.split("\r")[-1], type(estimator).__name__
    # What is done at once has none.
    at_once = {"FairBarycenterRegressor", "FairBarycenterClassifier", "PrivateADMMTransport"}
    assert last == "" if name in at_once else last.startswith(name)
    assert "%" not in last or "100%" in last


@by_case
def test_clones_and_copies_spend_the_budget_of_the_original(case):
    ledger = PrivacyLedger(100.0, 0.1)
    estimator = case.make(ledger=ledger)
    for k, duplicate_of in enumerate((clone, copy.deepcopy, copy.copy, through_pickle)):
        case.run(duplicate_of(estimator))
        assert n_charges(ledger) == k + 1


def told(error):
    return " ".join(getattr(error, "__notes__", []))


@by_case
@pytest.mark.parametrize("kind", [PrivacyLedger, BudgetAccountant])
def test_an_interruption_says_whether_it_was_charged(case, kind, monkeypatch):
    ledger = kind(100.0, 0.1)
    estimator = case.fitted(ledger=ledger)
    charged = n_charges(ledger)
    messages = {"charge_to": "entries of the ledger say", "_run": "The ledger was charged"}
    for step, message in messages.items():
        where = charging.ReleasePlan if step == "charge_to" else type(estimator)
        monkeypatch.setattr(where, step, interrupt)
        with pytest.raises(Interrupted) as caught:
            getattr(estimator, case.release)(*case.data())
        monkeypatch.undo()
        assert message in told(caught.value)
        assert n_charges(ledger) == charged + (step == "_run")


@by_case
def test_an_error_after_the_charge_says_so(case, monkeypatch):
    ledger = PrivacyLedger(100.0, 0.1)
    estimator = case.fitted(ledger=ledger)

    for kind in (MemoryError, OverflowError):

        def fail(*_args, kind=kind):
            raise kind("Unable to allocate an array with shape (4711, 3)")

        monkeypatch.setattr(type(estimator), "_run", fail)
        with pytest.raises(kind) as caught:
            getattr(estimator, case.release)(*case.data())
        assert "see its entries. The release is lost" in told(caught.value)
        assert not ledger.entries()[-1].released
        # Nor does it name how many records there were, which may be private.
        assert "4711" not in str(caught.value)
        assert caught.value.__context__ is None and caught.value.__cause__ is None
