"""The published noisy Sinkhorn as an estimator, and the prices that are claimed and that hold."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import PrivacyLedger
from skdpot.privacy import NoGuaranteeWarning
from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.events import ApproximateDpEvent, PlannedDpEvent
from skdpot.privacy.sensitivity import noisy_sinkhorn_sensitivity
from skdpot.published import NoisySinkhornDistance, published_privacy, sound_privacy
from tests.distance.grouped_records import DELTA, failing, make_groups
from tests.oracles.refusals import SECRET, refuse_without_telling

TEXT = "'{}' parameter of NoisySinkhornDistance"


def make(epsilon=1.0, **params):
    return NoisySinkhornDistance(epsilon, **{"bounds": (0, 1), "reg": 1.0} | params)


@pytest.mark.parametrize("sizes", [(), (7, 8)])
def test_events_are_exact(sizes):
    X, y = make_groups(10, 6, *sizes)
    ledger = PrivacyLedger(9.0, 0.1)
    fitted = make(0.5, ledger=ledger).fit(X, y)
    assert str(fitted.privacy_guarantee_) == (
        "(0.5, 1e-05)-differentially private for every record (replace_one); not protected: the "
        "group of each record, the size of each group"
    )
    (entry,) = ledger.entries()
    assert (entry.unit, entry.label) == ("record", "NoisySinkhornDistance, public labels")
    assert 0.95 * 0.5 < ledger.spent()[0] <= 0.5
    if sizes:
        assert entry.event == ApproximateDpEvent(0.5, DELTA)
    else:
        assert isinstance(entry.event, PlannedDpEvent) and entry.event.delta == DELTA


@pytest.mark.parametrize("further", [{}, {"adaptive_noise": 0.5, "n_iter": 2}])
def test_published_accounting_guarantees_nothing(further):
    X, y = make_groups(10, 6)
    estimator = make(accounting="paper", **{"reg": 5.0} | further)
    with pytest.warns(NoGuaranteeWarning, match="the release is not private") as caught:
        estimator.fit(X, y)
    assert caught[0].filename == __file__
    assert estimator.privacy_guarantee_ is None
    assert math.isfinite(estimator.distance_)


@pytest.mark.parametrize("sizes", [(10, 6), (9, 7, 12)])
def test_what_is_released(sizes):
    X, y = make_groups(*sizes)
    fitted = make(1e3, random_state=0).fit(X, y)
    k = len(sizes)
    assert fitted.groups_.tolist() == [*"abc"][:k]
    assert fitted.distances_.shape == (k, k)
    np.testing.assert_array_equal(fitted.distances_, fitted.distances_.T)
    assert ((fitted.distances_ >= 0) & (fitted.distances_ <= 2)).all()
    assert np.isnan(fitted.noise_interval_).any()
    assert hasattr(fitted, "distance_") == hasattr(fitted, "potentials_") == (k == 2)
    for absent in ("plan_", "transform", "score", "support_"):
        assert not hasattr(fitted, absent)
    if k == 2:
        assert [len(potential) for potential in fitted.potentials_] == [10, 6]
        assert np.isnan(fitted.standard_error_)


def test_the_default_regularisation_is_the_range_of_the_costs():
    X, y = make_groups(10, 6)
    found = [
        make(1e3, reg=reg, bounds=(0, 3), metric="cityblock", random_state=0).fit(X, y).distance_
        for reg in (None, 6.0)
    ]
    assert found[0] == found[1]


def test_nothing_private_is_kept_and_nothing_of_the_last_fit():
    X, y = make_groups(10, 6)
    estimator = make().fit(X, y)
    state = pickle.dumps(estimator)
    for record in X:
        assert record[:1].tobytes() not in state
    estimator.fit(*make_groups(10, 6, 5))
    assert {name for name in vars(estimator) if name.endswith("_")} == {
        "distances_", "standard_error_", "noise_interval_", "groups_", "privacy_guarantee_",
        "n_features_in_",
    }  # fmt: skip


def test_results_do_not_depend_on_jobs():
    X, y = make_groups(30, 20, 25)
    of_jobs = [make(1e3, random_state=0, n_jobs=n).fit(X, y).distances_ for n in (None, 2)]
    np.testing.assert_array_equal(*of_jobs)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, 1.0, 0.5, 5e-324, 1e-160, 1e-310, -0.0, 1.7e308, -1.7e308]
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("params", [{}, {"metric": failing, "cost_range": (0, 1)}])
def test_no_record_makes_a_release_fail_or_warn(params):
    X, y = make_groups(5, 4)

    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(st.integers(0, len(y) - 1), st.lists(NUMBERS, min_size=2, max_size=2))
    def search(i, record):
        other = X.copy()
        other[i] = record
        with np.errstate(all="warn"):
            make(**params).fit(other, y)

    search()


@pytest.mark.parametrize(
    "params, message",
    [
        ({"delta": 0.0}, "delta must be above 0"),
        ({"reg": 0.0}, TEXT.format("reg")),
        ({"reg": 1e-3}, "reg=0.001 is too small for potentials"),
        ({"accounting": "hopeful"}, TEXT.format("accounting")),
        ({"adaptive_noise": 0.1}, "has no proof of privacy"),
        ({"adaptive_noise": 1.0}, TEXT.format("adaptive_noise")),
        ({"n_iter": 0}, TEXT.format("n_iter")),
        ({"noise_variance": 0}, TEXT.format("noise_variance")),
        ({"n_iter": 5, "noise_variance": 1.0}, "leave nothing for the cost"),
        ({"bounds": None}, "bounds must be declared"),
    ],
)
def test_bad_parameters_are_refused_before_the_charge(params, message):
    _, y = make_groups(10, 6)
    ledger = PrivacyLedger(10.0, 0.5)
    estimator = make(**{"ledger": ledger} | params)
    refuse_without_telling(lambda: estimator.fit(np.full((16, 2), SECRET), y), message)
    assert not ledger.entries()
    assert not hasattr(estimator, "groups_")


# Prices
# ------

PROBLEM = {"n_samples": (400, 300), "cost_range": 1.5, "reg": 2.0}


def test_the_numbers_of_the_counterexample():
    options = {"n_samples": 10_000, "cost_range": 1.0, "reg": 5.0}
    assert published_privacy(1, 0.02, DELTA, **options) == pytest.approx(3.91, abs=0.005)
    # The potential of the replaced record alone.
    own = epsilon_of(math.sqrt(0.02), DELTA)
    assert 54 <= own <= sound_privacy(1, 0.02, DELTA, **options) < 60


@pytest.mark.parametrize("reg", [0.5, 2.0, 30.0])
def test_prices_are_their_formulas(reg):
    constant = reg / 2 * math.log(1 + 4 * reg * 1.5 / 300 * math.exp(6 * 1.5 / reg))
    price = 7 * constant / 0.4
    options = PROBLEM | {"reg": reg}
    assert published_privacy(7, 0.4, DELTA, **options) == pytest.approx(
        price + math.sqrt(price * math.log(1 / DELTA)), rel=1e-12
    )
    sensitivity = noisy_sinkhorn_sensitivity(1.5, reg, 400, 300, 1.5)
    assert sound_privacy(7, 0.4, DELTA, **options) == pytest.approx(
        epsilon_of(1 / math.sqrt(7) * math.sqrt(0.4) / sensitivity, DELTA), rel=1e-8
    )
    # Huge exponents of the claim.
    assert published_privacy(1, 1.0, DELTA, n_samples=5, cost_range=1.0, reg=1e-5) < 10


@pytest.mark.parametrize("price", [published_privacy, sound_privacy])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", True, np.ones(2)], ids=repr)
def test_bad_arguments_are_named(price, value):
    arguments = {"n_iter": 1, "noise_variance": 1.0, "delta": DELTA, **PROBLEM}
    for name in arguments:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            price(**arguments | {name: value})
    with pytest.raises(ValueError, match="one size for both samples, or two"):
        price(**arguments | {"n_samples": (1, 2, 3)})
