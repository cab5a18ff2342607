"""A preprocessor that is fitted to rows of several owners, who release them together."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpot import FairBarycenterPreprocessor, PrivacyLedger
from skdpot.fairness import FreeSupport
from skdpot.federation import (
    BarycenterFederation,
    FederationError,
    GroupRelease,
    InProcessCarrier,
    SecureAggregation,
    SigningKey,
)
from skdpot.releases import UnitLayout

DECLARED = {"epsilon": 3.0, "delta": 1e-6, "bounds": (-5, 5), "groups": ["a", "b"]}
NAMES = ["north", "east", "south"]
KEYS = {name: SigningKey.create() for name in NAMES}
PUBLICS = {name: key.public for name, key in KEYS.items()}


def make_rows(n=300, seed=0):
    """Return rows of two groups, one of them shifted, and their labels."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], n)
    return rng.normal(size=(n, 2)) + 1.5 * (group == "a")[:, None], group


def make_owners(fair, n_rows=300, **options):
    """Return owners of different rows."""
    owners = []
    for seed, name in enumerate(NAMES):
        X, group = make_rows(n_rows, seed)
        if options.get("noise") == "shared":
            options["owners"] = PUBLICS
        owners.append(fair.as_owner(name, X, sensitive_features=group, key=KEYS[name], **options))
    return owners


def make_federation(owners, **options):
    names = [owner.name for owner in owners]
    if options.get("noise") == "shared":
        names = {name: PUBLICS[name] for name in names}
    return BarycenterFederation(names, InProcessCarrier(owners), **options)


def fit_with(fair, federation, columns=2):
    return clone(fair).set_params(federation=federation).fit(np.empty((0, columns)))


@pytest.mark.parametrize("kind", ["histogram", "moments"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_one_owner_is_fitted_to_as_its_rows_are(kind, delta):
    X, group = make_rows()
    fair = FairBarycenterPreprocessor(
        **DECLARED | {"delta": delta},
        method=FreeSupport(n_support=40, private_release=kind),
        random_state=3,
    )
    owner = fair.as_owner("only", X, sensitive_features=group, random_state=3)
    federated = clone(fair).set_params(federation=make_federation([owner]))
    federated.fit(X[:0])
    local = fair.fit(X, sensitive_features=group)
    np.testing.assert_array_equal(federated.support_, local.support_)
    assert federated.objective_ == local.objective_
    np.testing.assert_array_equal(
        federated.transform(X, sensitive_features=group),
        local.transform(X, sensitive_features=group),
    )


@pytest.mark.parametrize("secure", [None, SecureAggregation()])
@pytest.mark.parametrize("noise", ["own", "shared"])
def test_owners_together_are_fitted_to_as_all_of_their_rows_are(noise, secure):
    if noise == "shared" and secure is None:
        pytest.skip("shared noise needs secure aggregation")
    n_honest = 2 if noise == "shared" else None
    # With so large an epsilon, what remains is the grid of the release.
    fair = FairBarycenterPreprocessor(
        **DECLARED | {"epsilon": 1e3},
        method=FreeSupport(n_support=60, private_release="moments"),
        random_state=0,
    )
    owners = make_owners(fair, noise=noise, n_honest=n_honest)
    federation = make_federation(owners, noise=noise, n_honest=n_honest, secure=secure)
    federated = fit_with(fair, federation)
    rows, groups = zip(*(make_rows(300, seed) for seed in range(3)), strict=True)
    local = clone(fair).fit(np.concatenate(rows), sensitive_features=np.concatenate(groups))
    assert federated.objective_ == pytest.approx(local.objective_, rel=0.02)
    np.testing.assert_allclose(federated.group_weights_, local.group_weights_, atol=1e-3)
    assert federation.agreement.owners == tuple(NAMES)


def test_carriers_give_the_same():
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=30), random_state=0)
    fitted, rows = [], [make_rows(300, seed) for seed in range(3)]
    for carrier in (InProcessCarrier, lambda owners: InProcessCarrier(owners, n_jobs=2)):
        owners = [
            fair.as_owner(name, X, sensitive_features=group, random_state=seed)
            for seed, (name, (X, group)) in enumerate(zip(NAMES, rows, strict=True))
        ]
        fitted.append(fit_with(fair, BarycenterFederation(NAMES, carrier(owners))))
    np.testing.assert_array_equal(fitted[0].support_, fitted[1].support_)


def test_tables_with_words_come_out_as_tables():
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "age": rng.uniform(18, 90, n),
            "work": pd.Categorical(rng.choice(["none", "part", "full"], n)),
        }
    )
    fair = FairBarycenterPreprocessor(
        "sex", epsilon=5.0, delta=1e-6, bounds=([18], [90]), groups=["f", "m"],
        categories={"work": ["none", "part", "full"]}, method=FreeSupport(n_support=50),
    ).set_output(transform="pandas")  # fmt: skip
    owners = [fair.as_owner(name, frame.iloc[i::3]) for i, name in enumerate(NAMES)]
    fitted = clone(fair).set_params(federation=make_federation(owners)).fit(frame.iloc[:0])
    moved = fitted.transform(frame)
    assert list(moved.columns) == ["age", "work"]
    assert set(moved["work"]) <= {"none", "part", "full"}
    assert moved["age"].between(18, 90).all()
    assert list(fitted.feature_names_in_) == ["sex", "age", "work"]


def test_the_guarantee_says_what_it_rests_on():
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20))
    own = fit_with(fair, make_federation(make_owners(fair))).privacy_guarantee_
    assert (own.epsilon, own.delta, own.unit) == (3.0, 1e-6, "record")
    assert "the number of rows of every owner" in own.not_protected
    shared = make_federation(
        make_owners(fair, noise="shared", n_honest=2),
        noise="shared", n_honest=2, secure=SecureAggregation(),
    )  # fmt: skip
    said = fit_with(fair, shared).privacy_guarantee_.not_protected
    assert any("fewer than 2 of the owners whose parts were summed" in public for public in said)
    # Whoever asks cannot know where owners have their noise from.
    for guarantee in (own.not_protected, said):
        assert "rows of owners whose noise is seeded" in guarantee


def test_an_owner_insists_on_a_threshold_whoever_is_left_out():
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20))
    for insisted, refuses in [(SecureAggregation(2), False), (False, True)]:
        owners = make_owners(fair, 100, noise="shared", n_honest=2, secure=insisted)
        federation = BarycenterFederation(
            PUBLICS, InProcessCarrier(owners[:2]), noise="shared", n_honest=2,
            secure=SecureAggregation(2), on_missing="drop",
        )  # fmt: skip
        if refuses:
            with pytest.raises(FederationError, match="fewer owners than this owner requires"):
                fit_with(fair, federation)
        else:
            fit_with(fair, federation)
            assert federation.agreement.owners == tuple(NAMES[:2])


def make_owners_with(fair, ledgers):
    owners = []
    for seed, (name, ledger) in enumerate(zip(NAMES, ledgers, strict=True)):
        X, group = make_rows(100, seed)
        with_ledger = clone(fair).set_params(ledger=ledger)
        owners.append(with_ledger.as_owner(name, X, sensitive_features=group))
    return owners


def test_every_owner_pays_once_and_from_its_own_ledger():
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20))
    ledgers = [PrivacyLedger(4.0, 1e-5, neighbouring="replace_one") for _ in NAMES]
    federation = make_federation(make_owners_with(fair, ledgers))
    fit_with(fair, federation)
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1]
    with pytest.raises(FederationError, match="ledger does not allow") as caught:
        fit_with(fair, federation)
    assert set(caught.value.missing) == set(NAMES)
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1]


def test_owners_who_agreed_to_something_else_refuse():
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20))
    owners = make_owners(fair)
    others = {
        "epsilon": clone(fair).set_params(epsilon=4.0),
        "bounds": clone(fair).set_params(bounds=(-6, 5)),
        "groups": clone(fair).set_params(groups=["a", "b", "c"]),
        "kind": clone(fair).set_params(method__private_release="moments"),
    }
    for name, asking in others.items():
        with pytest.raises(FederationError, match=name):
            fit_with(asking, make_federation(owners))
    with pytest.raises(FederationError, match="noise"):
        fit_with(
            fair, make_federation(owners, noise="shared", n_honest=1, secure=SecureAggregation())
        )


def test_what_is_fitted_goes_with_a_pickle_and_the_way_to_owners_does_not():
    X, group = make_rows()
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20), random_state=0)
    fitted = fit_with(fair, make_federation(make_owners(fair)))
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(
        copy.transform(X, sensitive_features=group), fitted.transform(X, sensitive_features=group)
    )
    with pytest.raises(RuntimeError, match="pickle"):
        copy.fit(X[:0])
    assert clone(fitted).federation is fitted.federation


def test_owners_use_it_in_pipelines():
    X, group = make_rows()
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20), random_state=0)
    fitted = fit_with(fair, make_federation(make_owners(fair)))
    moved = fitted.transform(X, sensitive_features=group)
    scaled = make_pipeline(StandardScaler()).fit_transform(moved)
    assert np.isfinite(scaled).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": None}, "set epsilon"),
        ({"ledger": PrivacyLedger(9.0, 1e-3, neighbouring="replace_one")}, "own ledgers"),
        ({"groups": None}, "groups"),
        ({"bounds": None}, "bounds"),
        ({"groups": ["a"]}, "two or more groups"),
    ],
)
def test_wrong_settings_raise_before_owners_are_asked(change, said):
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20))
    federation = make_federation(make_owners(fair))
    with pytest.raises(ValueError, match=said):
        fit_with(fair.set_params(**change), federation)
    assert federation.agreement is None


def test_rows_stay_with_their_owners():
    fair = FairBarycenterPreprocessor(**DECLARED)
    X, group = make_rows()
    fair.set_params(federation=make_federation(make_owners(fair)))
    with pytest.raises(ValueError, match="rows stay with their owners"):
        fair.fit(X, sensitive_features=group)


def test_an_owner_needs_declarations():
    X, group = make_rows()
    with pytest.raises(ValueError, match="set epsilon"):
        FairBarycenterPreprocessor().as_owner("north", X, sensitive_features=group)
    with pytest.raises(ValueError, match="bounds"):
        FairBarycenterPreprocessor(epsilon=1.0, groups=["a", "b"]).as_owner(
            "north", X, sensitive_features=group
        )


def test_what_rows_are_does_not_show():
    fair = FairBarycenterPreprocessor(**DECLARED)
    owner = make_owners(fair)[0]
    assert repr(owner) == "BarycenterOwner('north', n_features=2, epsilon=3.0)"
    with pytest.raises(TypeError, match="hold private data, and release them again"):
        pickle.dumps(owner)


def test_labels_that_nobody_declared_count_nowhere_and_raise_nowhere():
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20))
    X, group = make_rows(50)
    for labels in (np.full(50, "z"), np.where(np.arange(50) == 0, "z", group)):
        owners = [fair.as_owner("only", X, sensitive_features=labels)]
        assert fit_with(fair, make_federation(owners)).support_.shape == (20, 2)


def test_a_layout_is_for_rows_in_its_units():
    release = GroupRelease(1.0, ["a"], layout=UnitLayout((0,), (2,)))
    assert release.described()["layout"] == [[0], [2]]
    with pytest.raises(ValueError, match="layout instead"):
        GroupRelease(1.0, ["a"])


def test_a_fit_goes_on_where_owners_have_paid():
    """Who has answered is not charged again when those who refused have mended that."""
    fair = FairBarycenterPreprocessor(**DECLARED, method=FreeSupport(n_support=20))
    ledgers = [PrivacyLedger(budget, 1e-5) for budget in (4.0, 4.0, 1.0)]
    owners = make_owners_with(fair, ledgers)
    federation = make_federation(owners)
    with pytest.raises(FederationError, match="refused or did not answer"):
        fit_with(fair, federation)
    owners[2]._ledger = ledgers[2] = PrivacyLedger(4.0, 1e-5)
    assert fit_with(fair, federation).support_.shape == (20, 2)
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"owners": "north"}, ValueError),
        ({"owners": []}, ValueError),
        ({"owners": ["a", "a"]}, ValueError),
        ({"carrier": ["a"]}, TypeError),
        ({"secure": True}, TypeError),
    ],
)
def test_a_federation_that_cannot_be_is_refused_at_once(wrong, error):
    with pytest.raises(error, match="owners must|carrier must|secure must"):
        BarycenterFederation(**{"owners": ["a"], "carrier": InProcessCarrier([])} | wrong)


def test_an_owner_has_a_name_and_rows():
    X, group = make_rows(10)
    fair = FairBarycenterPreprocessor(**DECLARED)
    with pytest.raises(ValueError, match="name must be the text"):
        fair.as_owner("", X, sensitive_features=group)
    with pytest.raises(ValueError, match="minimum of 1"):
        fair.as_owner("north", X[:0], sensitive_features=group[:0])
