"""Charges for releases of distances, and what is guaranteed of them."""

import pytest
from sklearn.base import clone

from skdpot import PrivacyLedger, PrivateSinkhornDistance
from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent, PlannedDpEvent
from tests.distance.grouped_records import DELTA, MECHANISMS, PRIVATE, make_groups

OUTPUT = {"mechanism": "output"}


def spent(ledger):
    return ledger.spent()[0]


# Ledgers
# -------


def the_event(**params):
    X, y = make_groups(10, 6, *params.pop("further_sizes", ()))
    ledger = PrivacyLedger(neighbouring="replace_one", epsilon=9.0, delta=0.1)
    estimator = PrivateSinkhornDistance(bounds=(0, 1), ledger=ledger, **params).fit(X, y)
    (entry,) = ledger.entries()
    assert entry.unit == "record" and not entry.seeded
    assert entry.label == f"PrivateSinkhornDistance, {estimator.labels} labels"
    assert 0.95 * estimator.epsilon < spent(ledger) <= estimator.epsilon
    return entry.event


@pytest.mark.parametrize("sizes", [(), (7, 8)])
def test_events_are_exact(sizes):
    gaussian = GaussianDpEvent(calibrate_noise_multiplier(0.5, DELTA))
    for params in (MECHANISMS["output"], MECHANISMS["histogram"]):
        event = the_event(epsilon=0.5, further_sizes=sizes, **params)
        assert event == LaplaceDpEvent(2.0)
        event = the_event(epsilon=0.5, delta=DELTA, further_sizes=sizes, **params)
        assert event == PlannedDpEvent(gaussian, DELTA)
    assert the_event(epsilon=0.5, **PRIVATE) == LaplaceDpEvent(2.0)


def test_ledgers_of_public_parts_and_of_seeds_are_charged():
    X, y = make_groups(10, 6)
    fixed = PrivacyLedger(10.0).partition("region", ["north"], fixed_key=True)["north"]
    PrivateSinkhornDistance(bounds=(0, 1), ledger=fixed).fit(X, y)
    seeded = PrivacyLedger(10.0, allow_seeded=True)
    PrivateSinkhornDistance(bounds=(0, 1), ledger=seeded, random_state=0).fit(X, y)
    assert [entry.seeded for entry in seeded.entries()] == [True]


# Guarantees
# ----------


@pytest.mark.parametrize("name", MECHANISMS)
def test_guarantee(name):
    X, y = make_groups(10, 6)
    fitted = PrivateSinkhornDistance(0.5, bounds=(0, 1)).set_params(**MECHANISMS[name]).fit(X, y)
    guarantee = fitted.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (0.5, fitted.delta)
    assert (guarantee.neighbouring, guarantee.unit) == ("replace_one", "record")
    amount = "(0.5, 1e-05)" if fitted.delta else "0.5"
    assert str(guarantee) == (
        f"{amount}-differentially private for every record (replace_one); not protected: the group "
        "of each record, the size of each group"
    )
    fitted = clone(fitted).set_params(**PRIVATE).fit(X, y)
    assert str(fitted.privacy_guarantee_).endswith("private for every record (replace_one)")


def test_a_refit_leaves_nothing_of_the_last_one():
    X, y = make_groups(10, 6)
    X3, y3 = make_groups(10, 6, 5)
    estimator = PrivateSinkhornDistance(bounds=(0, 1))
    always = {
        "distances_", "standard_error_", "noise_interval_", "groups_", "privacy_guarantee_",
        "n_features_in_",
    }  # fmt: skip
    of_histograms = {"support_", "histograms_"}
    of_two_histograms = of_histograms | {"distance_", "plan_", "potentials_"}
    for params, data, further in (
        (MECHANISMS["histogram"], (X, y), of_two_histograms),
        (MECHANISMS["histogram"], (X3, y3), of_histograms),
        (OUTPUT, (X, y), {"distance_"}),
        (MECHANISMS["histogram"], (X, y), of_two_histograms),
        (OUTPUT, (X3, y3), set()),
    ):
        estimator.set_params(**params).fit(*data)
        assert {name for name in vars(estimator) if name.endswith("_")} == always | further
