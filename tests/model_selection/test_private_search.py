"""PrivateSearchCV: what it releases, what it charges, and all that it keeps to itself."""

import logging
import os
import pickle
import random
import sys
import time
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.stats import uniform
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    ShuffleSplit,
    StratifiedGroupKFold,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skdpot import DPSinkhornGenerator, FairBarycenterPreprocessor, PrivacyLedger, PrivateSearchCV
from skdpot.fairness import FoundGroups, FreeSupport
from skdpot.privacy import BudgetExceededError, PrivacyGuarantee, PureDpEvent
from skdpot.privacy.checks import silence
from skdpot.privacy.choices import SCORE_UNITS
from skdpot.releases import ChoiceRelease
from tests.oracles.sensitivities import declared
from tests.oracles.versions import IS_SKLEARN_1_7

N = 120
POISON = 1e6


class Panic(BaseException):
    """What compiled code may raise, which is no Exception."""


class Only:
    """A distribution of one value."""

    def __init__(self, value):
        self.value = value

    def rvs(self, random_state):
        return self.value


class Odd(ClassifierMixin, BaseEstimator):
    """A classifier that scores as it is told, and worse where it has seen a poisoned record."""

    def __init__(self, quality=0.5, on_poison="raise", notes=None, random_state=None):
        self.quality = quality
        self.on_poison = on_poison
        self.notes = notes
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.array([0, 1])
        self.poisoned_ = bool((np.asarray(X) == POISON).any())
        if self.poisoned_ and self.notes is not None:
            self.notes.append(POISON)
        if self.poisoned_ and self.on_poison == "raise":
            raise RuntimeError(f"found {POISON}")
        if self.poisoned_ and self.on_poison == "exit":
            raise SystemExit(1)
        if self.poisoned_ and self.on_poison == "panic":
            raise Panic
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def score(self, X, y, sample_weight=None):
        if self.notes:
            return 0.0
        return self.on_poison if self.poisoned_ else self.quality


class Charging(Odd):
    """Charges every fit to its ledger."""

    def __init__(self, quality=0.5, ledger=None):
        super().__init__(quality)
        self.ledger = ledger

    def fit(self, X, y):
        if self.ledger is not None:
            self.ledger.charge(PureDpEvent(1.0), unit="record", label="a fit")
        return super().fit(X, y)


class NotingScorer:
    """A scorer that remembers that it has ever seen a poisoned record."""

    def __init__(self):
        self.seen = False

    def __call__(self, estimator, X, y):
        self.seen |= bool((np.asarray(X) == POISON).any())
        return 0.0 if self.seen else 1.0


@pytest.fixture
def records(rng):
    y = np.arange(N) % 2
    return rng.normal(size=(N, 3)) + y[:, None], y


@pytest.fixture
def sums(monkeypatch):
    """Return the lists of sums over blocks that noise was added to, search by search."""
    seen = []
    select = ChoiceRelease.run

    def noting(self, scores, source):
        seen.append(np.array(scores))
        return select(self, scores, source)

    monkeypatch.setattr(ChoiceRelease, "run", noting)
    return seen


def odd_search(**params):
    options = {"n_iter": 6, "n_blocks": 6, "cv": 2, "random_state": 3}
    estimator = params.pop("estimator", None) or Odd()
    grid = params.pop("grid", {"quality": [0.2, 0.6, 1.0]})
    return PrivateSearchCV(estimator, grid, **options | params)


# Sensitivity
# -----------

WEIRD = ["raise", "exit", "panic", np.nan, np.inf, -np.inf, 1e300, "text", None, [1, 2], 0.0]
ODD = {str(value): {"estimator": Odd(on_poison=value)} for value in WEIRD} | {
    "an estimator that remembers": {"estimator": Odd(on_poison=0.0, notes=[])},
    "a scorer that remembers": {"scoring": NotingScorer()},
}


@pytest.mark.parametrize("odd", ODD)
def test_a_record_changes_a_sum_by_one_block_at_most(odd, records, sums):
    X, y = records
    poisoned = X.copy()
    poisoned[17] = POISON
    search = odd_search(refit=False, **ODD[odd])
    for of in (X, poisoned, X):
        search.fit(of, y)
    assert sums[0].shape == sums[1].shape
    assert 0 < np.abs(sums[1] - sums[0]).max() <= SCORE_UNITS
    np.testing.assert_array_equal(sums[2], sums[0])


class Moody(Odd):
    """Draws from a random state of the process, and more where a record is poisoned."""

    def __init__(self, source="numpy", quality=0.5):
        super().__init__(quality, on_poison=0.5)
        self.source = source

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y)
        if self.source == "torch":
            import torch

            self.on_poison = self.quality = float(torch.rand(1 + 9 * self.poisoned_)[-1])
        else:
            time.sleep(0.02 * self.poisoned_)
            self.on_poison = self.quality = np.random.rand()
            time.sleep(0.001)
        DRAWN.append(self.quality)
        return self


# What moody candidates drew, block by block: blocks of one process are worked on in their order.
DRAWN = []


@pytest.mark.parametrize("source, n_jobs", [("torch", 1), ("numpy", 1), ("numpy", 3)])
def test_random_states_of_the_process_do_not_join_blocks(source, n_jobs, records):
    if source == "torch":
        pytest.importorskip("torch").manual_seed(0)
    X, y = records
    poisoned = X.copy()
    poisoned[17] = POISON
    search = odd_search(
        estimator=Moody(source), grid={"quality": Only(0.5)}, refit=False, n_jobs=n_jobs,
        n_blocks=12, cv=ShuffleSplit(1),
    )  # fmt: skip
    seen = []
    with joblib.parallel_config("threading"):
        for of in (X, poisoned):
            DRAWN.clear()
            search.fit(of, y)
            # The first is of invented rows.
            seen.append(DRAWN[1:])
    assert len(seen[0]) == len(seen[1]) == 12 == len(set(seen[0]))
    assert sum(before != after for before, after in zip(*seen, strict=True)) <= 1


class Spoiling(Odd):
    """Changes what it is given, records and fit parameters, and scores by what it found changed."""

    def fit(self, X, y, notes=None):
        super().fit(X, y)
        self.quality = 0.0 if X.any() or notes else 1.0
        X[:] = 1.0
        if notes is not None:
            notes.append(POISON)
        return self


def test_what_a_candidate_spoils_is_a_copy(sums):
    X, notes = np.zeros((N, 1)), []
    search = odd_search(estimator=Spoiling(), grid={"quality": uniform()}, cv=ShuffleSplit(1))
    search.set_params(random_state=2, refit=False).fit(X, np.arange(N) % 2, notes=notes)
    assert len(sums[0]) > 1 and (sums[0] == 6 * SCORE_UNITS).all()
    assert not notes and not X.any()


def test_a_score_is_a_mean_over_blocks(records, sums):
    search = odd_search(grid={"quality": Only(0.25)}, score_range=(0, 0.5)).fit(*records)
    assert (sums[0] == 6 * SCORE_UNITS // 2).all()
    assert search.best_score_ == pytest.approx(0.25, abs=5 * search.standard_error_)
    scale = ChoiceRelease(6, 1.0, declared(SCORE_UNITS)).standard_deviation / SCORE_UNITS
    assert search.standard_error_ == pytest.approx(0.5 / 6 * scale)


# The budget
# ----------


def test_a_search_is_charged_once_whatever_it_tries(records):
    ledger, own = PrivacyLedger(epsilon=2.0), PrivacyLedger(epsilon=100.0)
    search = odd_search(
        estimator=make_pipeline(PCA(2), Charging(ledger=own)),
        grid={"charging__quality": Only(0.5)}, n_blocks=3, ledger=ledger, random_state=None,
    )  # fmt: skip
    X, y = records
    search.fit(X, y)
    (entry,) = ledger.entries()
    assert entry.event == PureDpEvent(1.0)
    assert (entry.unit, entry.label) == ("record", "PrivateSearchCV")
    # The fit to all records is a release of its own.
    assert len(own.entries()) == 1
    assert search.best_estimator_[1].ledger is own
    assert search.privacy_guarantee_ == PrivacyGuarantee(
        1.0, 0.0, "replace_one", "record",
        ("the number of records",
         "the fitted model best_estimator_ (this guarantee is about the choice)"),
    )  # fmt: skip
    search.set_params(refit=False).fit(X, y)
    assert len(ledger.entries()) == 2 and len(own.entries()) == 1
    best = search.best_score_
    with pytest.raises(BudgetExceededError):
        search.fit(X, y)
    assert search.best_score_ == best


class Unlooked(list):
    """Records that must not be looked at."""

    def __init__(self):
        super().__init__([[0.0] * 3] * N)

    def __iter__(self):
        raise AssertionError("a record was looked at")

    def __getitem__(self, key):
        # Types are looked at without rows.
        return [] if key == slice(0) else self.__iter__()


@pytest.mark.parametrize(
    "params, message",
    [
        ({"epsilon": 1e-6}, "epsilon must be at least"),
        ({"estimator": LogisticRegression(), "grid": {"C": [-1.0, -2.0]}}, "'C' parameter"),
        ({"estimator": SVC(), "grid": {"kernel": Only("precomputed")}}, "distances or kernels"),
        ({"scoring": ["accuracy", "f1"]}, "scoring"),
        ({"estimator": DPSinkhornGenerator(bounds=(0, 1)), "grid": {}}, "minus a distance"),
        ({"score_range": (1, 0)}, "score_range"),
        ({"cv": [(range(60), range(60, 120))]}, "splitter"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_public_mistakes_cost_nothing(params, message):
    ledger = PrivacyLedger(epsilon=2.0, allow_seeded=True)
    with pytest.raises(ValueError, match=message):
        odd_search(ledger=ledger, **params).fit(Unlooked(), np.zeros(N))
    assert ledger.entries() == []


def test_what_the_budget_forbids_does_not_look_at_records():
    ledger = PrivacyLedger(epsilon=0.5)
    with pytest.raises(BudgetExceededError):
        odd_search(ledger=ledger, random_state=None).fit(Unlooked(), np.zeros(N))
    with pytest.raises(ValueError, match="seeded"):
        odd_search(ledger=PrivacyLedger(epsilon=2.0)).fit(Unlooked(), np.zeros(N))


# What is kept back
# -----------------


class Loud(Odd):
    """Says what it does, wherever it can, and uses up random numbers."""

    def __init__(self, quality=0.5, on_poison="raise", notes=None, random_state=None, verbose=1):
        super().__init__(quality, on_poison, notes, random_state)
        self.verbose = verbose

    def fit(self, X, y, sample_weight=None):
        warnings.warn(f"a record: {X[0]}", stacklevel=2)
        print("a print")
        print("an error", file=sys.stderr)
        logging.getLogger("loud").log(2 * logging.CRITICAL, "a log")
        np.random.random(3)
        random.random()
        assert not self.verbose
        return super().fit(X, y)


def test_nothing_is_seen_of_trials(records, capfd, caplog):
    search = odd_search(estimator=Loud(quality=1.0), grid={"quality": Only(1.0)}, refit=False)
    states = np.random.get_state()[1].copy(), random.getstate()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.set_params(epsilon=1e4).fit(*records)
    assert search.best_score_ > 0.99  # no trial failed, though warnings are errors outside
    assert capfd.readouterr() == ("", "") and not caplog.records
    np.testing.assert_array_equal(np.random.get_state()[1], states[0])
    assert random.getstate() == states[1]


class Failing(Odd):
    def fit(self, X, y):
        raise ValueError("s3cret")


def test_a_refit_that_fails_says_how_to_see_why(records):
    with pytest.raises(ValueError, match="fit the estimator to invented records") as error:
        odd_search(estimator=Failing(), refit=True).fit(*records)
    assert "s3cret" not in str(error.value) and error.value.__context__ is None


class Dividing(Odd):
    """Scores best if its own parallel work is done where it is silent."""

    def fit(self, X, y):
        tasks = [joblib.delayed(os.getpid)()] * 2
        workers = joblib.Parallel(n_jobs=2)(tasks)
        self.quality = float(set(workers) == {os.getpid()})
        return super().fit(X, y)


def test_parallel_work_of_a_candidate_stays_in_its_process(records):
    search = odd_search(estimator=Dividing(), grid={"notes": Only(None)}, refit=False)
    assert search.set_params(epsilon=1e4).fit(*records).best_score_ > 0.99


class OwnLaw:
    """Has no use for the random state that it is given."""

    n_draws = 0

    def rvs(self, random_state):
        self.n_draws += 1
        print("a draw")
        return np.random.random()


class LoudlyMade(Odd):
    def __init__(self, quality=0.5):
        print("made")
        warnings.warn("made", stacklevel=2)
        super().__init__(quality)


def test_nothing_tells_how_many_candidates_are_made(records, sums, capsys):
    state = np.random.get_state()[1].copy()
    with pytest.warns(UserWarning, match="made") as seen:
        law = OwnLaw()
        search = odd_search(estimator=LoudlyMade(), grid={"quality": law}, refit=False)
        search.set_params(random_state=2, epsilon=1e4)
        made = len(seen)
        capsys.readouterr()
        search.fit(*records)
    assert len(sums[0]) > 1
    assert len(seen) == made and capsys.readouterr().out == ""
    assert law.n_draws == 0
    np.testing.assert_array_equal(np.random.get_state()[1], state)


def test_the_progress_bar_tells_nothing_but_the_number_of_blocks(records, sums, capsys):
    X, y = records
    shown = set()
    for n_iter in (1, 20):
        tree, grid = DecisionTreeClassifier(), {"max_depth": [1, 2, 3]}
        search = odd_search(estimator=tree, grid=grid, n_iter=n_iter, random_state=2, refit=False)
        expected = search.fit(X, y).best_score_
        capsys.readouterr()
        assert clone(search).set_params(verbose=1).fit(X, y).best_score_ == expected
        printed = capsys.readouterr()
        assert printed.out == ""
        shown.add(printed.err)
    # The same text, for any number of candidates and any running time.
    assert len({len(scores) for scores in sums}) > 1 and len(shown) == 1
    lines = shown.pop().split("\r")
    assert lines[-1].startswith("PrivateSearchCV: 100%") and lines[-1].endswith("| 6/6 blocks\n")


def test_silence_lasts_until_the_last_has_left(capsys):
    first, second = silence(), silence()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    print("hushed")
    second.__exit__(None, None, None)
    print("heard")
    assert capsys.readouterr().out == "heard\n"


def test_only_what_is_released_is_kept(records):
    search = odd_search(random_state=None, refit=False).fit(*records)
    assert {name for name in vars(search) if name not in search.get_params(deep=False)} == {
        "best_params_", "best_score_", "standard_error_", "n_blocks_", "scorer_", "multimetric_",
        "privacy_guarantee_",
    }  # fmt: skip
    assert not hasattr(search, "predict")
    seeded = odd_search().fit(*records)
    assert seeded.privacy_guarantee_ is None


def test_trials_charge_nobody_also_from_within_containers(records):
    ledger = PrivacyLedger(epsilon=100.0)
    inner = GridSearchCV(
        Pipeline([("model", Odd())]),
        {"model": [Charging(ledger=ledger)], "model__ledger": [ledger]}, cv=2,
    )  # fmt: skip
    search = odd_search(estimator=inner, grid={"cv": Only(2)}, n_blocks=2, refit=False)
    search.set_params(random_state=None).fit(*records)
    assert ledger.entries() == []
    search.set_params(refit=True).fit(*records)
    assert len(ledger.entries()) == 2 + 1  # of the fit to all records: two folds, and the refit


SEEDS = []


class Seeded(Odd):
    def fit(self, X, y):
        SEEDS.append(self.random_state)
        return super().fit(X, y)


@pytest.mark.parametrize("given, n_different", [(None, 6), (5, 1)])
def test_open_random_states_follow_from_the_block(given, n_different, records):
    SEEDS.clear()
    odd_search(estimator=Seeded(random_state=given), refit=False).fit(*records)
    # Two folds of each of the three candidates are of invented rows.
    assert len(set(SEEDS[6:])) == n_different < len(SEEDS[6:]) and None not in SEEDS


# Candidates
# ----------


def test_candidates_are_drawn_independently(records, sums):
    """Lists are drawn from with replacement: without, the proof would not hold."""
    search = odd_search(n_iter=400, n_blocks=1, cv=ShuffleSplit(1), refit=False).fit(*records)
    _, counts = np.unique(sums[0], return_counts=True)
    assert len(counts) == 3 and counts.min() > 0.2 * len(sums[0]) > 20
    search.set_params(param_distributions=[{"quality": uniform()}, {"quality": [3]}])
    search.set_params(n_iter=60).fit(*records)
    values, counts = np.unique(sums[1], return_counts=True)
    assert len(values) > 5 and 0.3 * len(sums[1]) < counts.max() < 0.7 * len(sums[1])


def test_good_candidates_are_found(records):
    """Unless they are not among those that are tried, or only one candidate is."""
    search = odd_search(n_iter=30, epsilon=1e3, cv=ShuffleSplit(1), n_blocks=2)
    chosen = [search.set_params(random_state=seed).fit(*records).best_params_ for seed in range(6)]
    assert chosen.count({"quality": 1.0}) >= 5
    assert search.best_estimator_.quality == chosen[-1]["quality"]


# As in scikit-learn
# ------------------


@pytest.mark.experiment
def test_results_do_not_depend_on_jobs(records, capsys):
    X, y = records
    grid = {"max_features": [1, 2, 3], "max_depth": [1, 3]}
    search = odd_search(estimator=DecisionTreeClassifier(), grid=grid, n_blocks=3, refit=False)
    expected = search.fit(X, y).best_score_
    with joblib.parallel_config("threading"):
        assert clone(search).set_params(n_jobs=3).fit(X, y).best_score_ == expected
    shown = clone(search).set_params(n_jobs=2, verbose=1)
    assert shown.fit(X, y).best_score_ == expected
    assert capsys.readouterr().err.endswith("| 3/3 blocks\n")


def test_it_stands_in_for_a_randomized_search(records):
    X, y = records
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    search = odd_search(estimator=LogisticRegression(), grid={"C": uniform(0.1, 1)}, n_blocks=3)
    assert isinstance(search, RandomizedSearchCV)
    search.fit(frame, y)
    assert list(search.feature_names_in_) == ["a", "b", "c"] and search.n_features_in_ == 3
    assert list(search.classes_) == [0, 1]
    assert search.predict(frame).shape == (N,) and search.predict_proba(frame).shape == (N, 2)
    assert search.decision_function(frame).shape == (N,)
    assert search.score(frame, y) == search.best_estimator_.score(frame, y)
    assert not hasattr(search, "transform") and not hasattr(search, "cv_results_")
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(frame), search.predict(frame))
    assert search.fit(csr_array(X), y).predict(csr_array(X)).shape == (N,)
    assert search.fit(X.tolist(), y.tolist()).best_score_ > 0


def test_fit_parameters_go_with_their_records(records):
    X, y = records
    weights = np.where(y == 1, 1.0, 0.0)
    seen = []

    class Weighted(Odd):
        def fit(self, X, y, sample_weight=None):
            seen.append(bool(np.all(sample_weight == y)) and len(sample_weight) == len(y))
            return super().fit(X, y)

    odd_search(estimator=Weighted()).fit(X, y, sample_weight=weights)
    # Two fits of each of the three candidates are to invented rows.
    assert all(seen[6:])
    seen.clear()
    with config_context(enable_metadata_routing=True):
        routed = Weighted().set_fit_request(sample_weight=True)
        routed.set_score_request(sample_weight=False)
        odd_search(estimator=routed).fit(X, y, sample_weight=weights)
        with pytest.raises(TypeError, match="unexpected"):
            odd_search(estimator=routed).fit(X, y, other=weights)
    assert all(seen[6:])


@pytest.mark.skipif(IS_SKLEARN_1_7, reason="scores are not given what predictions need")
def test_sensitive_features_and_groups_are_routed(records, sums):
    X, y = records
    repair = FairBarycenterPreprocessor(
        groups=FoundGroups(small="merge"), method=FreeSupport(n_support=5), random_state=0
    )
    search = odd_search(
        estimator=make_pipeline(repair, LogisticRegression()),
        grid={"logisticregression__C": [1, 2]}, n_blocks=2, n_iter=1, cv=StratifiedGroupKFold(2),
    )  # fmt: skip
    with config_context(enable_metadata_routing=True):
        search.fit(X, y, sensitive_features=y, groups=np.arange(N) // 2)
    assert sums[0].min() > 0  # no block failed


def test_groups_that_would_only_reach_the_splitter_are_refused_before_the_charge(records):
    X, y = records
    groups = np.arange(N) // 2
    for estimator in (OfPeople(), make_pipeline(OfPeople())):
        ledger = PrivacyLedger(1000.0)
        with pytest.raises(ValueError, match=r"set_fit_request\(groups=True\)"):
            odd_search(estimator=estimator, ledger=ledger).fit(X, y, groups=groups)
        assert not ledger.entries()


class OfPeople(Odd):
    """An estimator that is told whose each row is."""

    __metadata_request__fit = {"groups": True}

    def fit(self, X, y, groups=None):
        return super().fit(X, y)


PEOPLE = np.arange(N) % 20
OF_PEOPLE = {"estimator": OfPeople(1.0, 0.0), "grid": {"quality": Only(1.0)}, "refit": False}


def search_of_people(X, y, groups=PEOPLE, **params):
    with config_context(enable_metadata_routing=True):
        return odd_search(**OF_PEOPLE | params).fit(X, y, groups=groups)


def test_a_person_with_several_rows_changes_a_sum_by_one_block_at_most(records, sums):
    X, y = records
    poisoned = X.copy()
    poisoned[PEOPLE == 7] = POISON
    for of in (X, poisoned):
        search_of_people(of, y)
    changes = np.abs(sums[1] - sums[0])
    assert 0 < changes.max() <= SCORE_UNITS
    # Records of their own are not all in one block.
    with config_context(enable_metadata_routing=True):
        odd_search(**OF_PEOPLE).fit(poisoned, y)
    assert np.abs(sums[2] - sums[0]).max() > SCORE_UNITS


def test_who_has_how_many_rows_is_no_matter_of_the_search(records, sums):
    """Another person, who has other rows and many more of them, is in the same block."""
    X, y = records
    search_of_people(X, y)
    more = np.concatenate([X, np.full((200, X.shape[1]), POISON)])
    search_of_people(more, np.resize(y, len(more)), np.append(PEOPLE, [7] * 200))
    assert 0 < np.abs(sums[1] - sums[0]).max() <= SCORE_UNITS


def test_a_search_for_people_is_charged_for_users(records):
    ledger = PrivacyLedger(1000.0, neighbouring="replace_one")
    search = search_of_people(*records, ledger=ledger, random_state=None)
    assert search.privacy_guarantee_.unit == "user"
    assert "the number of people" in search.privacy_guarantee_.not_protected
    assert ledger.entries()[0].unit == "user"
    assert "user" in str(search.preview(20, groups=True))


@pytest.mark.parametrize("groups", ["user", [None, *PEOPLE[1:]], PEOPLE[1:], [[1]] * N], ids=str)
def test_people_who_are_not_given_for_each_row_are_refused_before_the_charge(records, groups):
    ledger = PrivacyLedger(1000.0)
    with pytest.raises(ValueError, match="groups"):
        search_of_people(*records, groups, ledger=ledger, random_state=None)
    X, y = records
    with pytest.raises(ValueError, match="groups has another index"):
        search_of_people(
            pd.DataFrame(X), y, pd.Series(PEOPLE)[::-1], ledger=ledger, random_state=None
        )
    assert not ledger.entries()
