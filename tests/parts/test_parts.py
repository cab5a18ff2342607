"""Parts of several owners: what is in a file, what it costs, how private it is, and their sum."""

import json
import os
import subprocess
import sys
from functools import cache
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import kstest, norm

from skdpot import (
    DPSinkhornGenerator,
    FairBarycenterPreprocessor,
    FairBarycenterRegressor,
    PrivacyLedger,
    PrivateSinkhornDistance,
)
from skdpot.__main__ import main
from skdpot.fairness import FreeSupport
from skdpot.fairness.metrics import group_auc
from skdpot.parts import Agreement, add_parts, make_part
from skdpot.privacy import BudgetExceededError, allow_useless_releases
from skdpot.privacy.audit import audit
from skdpot.privacy.noise import keyed_source
from skdpot.releases import RADIUS
from tests.quick import first_quick

OWNERS = ("north", "south", "west")
N = 600


def repair(**parameters):
    given = {"epsilon": 4.0, "delta": 1e-6, "bounds": (-5, 6), "groups": ["f", "m"]}
    return FairBarycenterPreprocessor(**given | {"method": FreeSupport(n_support=40)} | parameters)


def drift(**parameters):
    given = {"bounds": (0, 10), "metric": "euclidean", "groups": ["f", "m"]}
    return PrivateSinkhornDistance(4.0, mechanism="histogram", **{**given, **parameters})


KINDS = {"repair": (repair, 2), "distance": (drift, 1)}


def rows_of(place, n_features=2, n=N):
    rng = np.random.default_rng(place)
    group = rng.choice(["f", "m"], n)
    return rng.normal(size=(n, n_features)) + 2 + (group == "f")[:, None], group


def agreed(kind="repair", **parameters):
    make, n_features = KINDS[kind]
    return Agreement(make(**parameters), n_features, 3 * N, OWNERS)


@pytest.fixture
def make(tmp_path):
    """Return a function that makes the part of an owner, with a ledger of her own."""
    ledgers = {}

    def made(agreement, owner="north", n_features=2, rows=None, **options):
        default = PrivacyLedger(4.0, 1e-6, path=tmp_path / f"{owner}.sqlite")
        ledger = options.pop("ledger", None) or ledgers.setdefault(owner, default)
        X, group = rows or rows_of(OWNERS.index(owner), n_features)
        path = options.pop("path", tmp_path / f"{owner}-{agreement.digest[:8]}.part")
        return make_part(agreement, owner, X, group, ledger=ledger, path=path, **options)

    made.ledgers = ledgers
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_of_parts_is_fitted_like_one_table(kind, make):
    agreement, n_features = agreed(kind), KINDS[kind][1]
    fitted = add_parts([make(agreement, owner, n_features) for owner in OWNERS], random_state=0)
    assert fitted.n_features_in_ == n_features
    assert fitted.privacy_guarantee_.epsilon == 4.0
    for ledger in make.ledgers.values():
        assert len(ledger.entries()) == 1
    X, group = rows_of(7, n_features, 1000)
    if kind == "distance":
        assert fitted.distance_ == pytest.approx(1.0, abs=0.25)
    else:
        found = fitted.transform(X, sensitive_features=group)
        assert group_auc(X, group, random_state=0) > 0.75
        assert group_auc(found, group, random_state=0) < 0.65


def test_parts_in_any_order_and_their_saved_sum_give_the_same_fit(make, tmp_path):
    agreement = agreed()
    parts = [make(agreement, owner) for owner in OWNERS]
    path = tmp_path / "sum.npz"
    fits = [
        add_parts(parts[::-1], random_state=0, path=path),
        add_parts(parts, agreement=agreement, random_state=0),
        add_parts([path], random_state=0),
    ]
    for fit in fits:
        np.testing.assert_array_equal(fit.support_, fits[0].support_)


# What an owner is charged
# ------------------------


def test_a_part_that_is_made_again_is_the_same_file_and_costs_nothing(make):
    agreement = agreed()
    first = make(agreement).read_bytes()
    spent = make.ledgers["north"].spent()
    X, group = rows_of(0)
    turned = X[::-1], group[::-1]
    assert make(agreement, rows=turned).read_bytes() == first
    assert make.ledgers["north"].spent() == spent


def test_other_rows_are_refused_unless_they_are_charged(make):
    agreement, small = agreed(), {"epsilon": 1.0}
    first = make(agreement).read_bytes()
    with pytest.raises(ValueError, match="again=True"):
        make(agreement, rows=rows_of(5))
    assert len(make.ledgers["north"].entries()) == 1
    with pytest.raises(BudgetExceededError):
        make(agreement, rows=rows_of(5), again=True)
    other = agreed(**small)
    ledger = PrivacyLedger(2.0, 2e-6, path=make.ledgers["north"].path.with_name("other.sqlite"))
    with allow_useless_releases():
        for place in (0, 5):
            make(other, rows=rows_of(place), ledger=ledger, again=True)
    assert len(ledger.entries()) == 2
    assert ledger.spent()[0] == pytest.approx(2.0)
    assert make(agreement).read_bytes() == first


@pytest.mark.parametrize("prefix", [None, "march"])
def test_another_part_has_other_noise_and_is_charged_whether_or_not_rows_changed(make, prefix):
    # Equal files, or one charge less, would tell that no record has changed.
    agreement = agreed(epsilon=1.0)
    ledger = PrivacyLedger(4.0, 4e-6)
    ledger = ledger if prefix is None else ledger.labelled(prefix)
    parts = []
    with allow_useless_releases():
        for again in (True, True, False):
            parts.append(make(agreement, ledger=ledger, again=again).read_bytes())
        assert parts[0] != parts[1] and parts[2] in parts[:2]
        april = ledger.labelled("april")
        assert make(agreement, ledger=april).read_bytes() == parts[2]
        with pytest.raises(ValueError, match="again=True"):
            make(agreement, rows=rows_of(5), ledger=ledger)
    assert len(ledger.entries()) == 2


def test_a_ledger_is_for_one_owner(make):
    agreement, ledger = agreed(epsilon=1.0), PrivacyLedger(4.0, 4e-6)
    with allow_useless_releases():
        make(agreement, ledger=ledger)
        with pytest.raises(ValueError, match="nothing was charged: .* part of another owner"):
            make(agreement, "south", ledger=ledger)
    assert len(ledger.entries()) == 1


def test_without_its_key_no_part_is_made_again(make):
    agreement = agreed()
    make(agreement)
    ledger = make.ledgers["north"]
    key = ledger.path.with_name(ledger.path.name + ".key")
    assert key.stat().st_mode & 0o077 == 0
    kept = key.read_bytes()
    key.unlink()
    with pytest.raises(ValueError, match="another key"):
        make(agreement)
    for other in (kept[:-1], kept.replace(b"key 1", b"key 2")):
        key.write_bytes(other)
        with pytest.raises(ValueError, match="no key that this version"):
            make(agreement)
    key.rename(key.with_name("moved"))
    key.with_name("moved").write_bytes(kept)
    key.symlink_to(key.with_name("moved"))
    with pytest.raises(ValueError, match="no link"):
        make(agreement)
    assert len(ledger.entries()) == 1


def test_a_key_of_equal_bytes_is_refused(make):
    """A crash of the machine can leave zeros in a file that was not written to the disk."""
    agreement = agreed()
    ledger = PrivacyLedger(9.0, 1e-5)
    key = ledger.path.with_name(ledger.path.name + ".key")
    for byte in (b"\0", b"\xff"):
        key.write_bytes(byte * 32)
        with pytest.raises(ValueError, match="not all equal"):
            make(agreement, ledger=ledger)
    assert not ledger.entries()


def test_a_key_has_its_name_when_it_is_on_the_disk(make, monkeypatch):
    written, sync = [], os.fsync

    def dies(handle):
        written.append(handle)
        if not ledger.entries():
            raise InterruptedError
        sync(handle)

    ledger = PrivacyLedger(9.0, 1e-5)
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(os, "fsync", dies)
        make(agreed(), ledger=ledger)
    assert written and not list(ledger.path.parent.glob(f"*{ledger.path.name}.key*"))
    make(agreed(), ledger=ledger)
    assert len(ledger.path.with_name(ledger.path.name + ".key").read_bytes()) > 32


@pytest.mark.parametrize("end", ["", "-wal", ".key"])
def test_a_part_replaces_no_file_of_the_ledger(end, make, tmp_path):
    ledger = PrivacyLedger(9.0, 1e-5, path=tmp_path / "own.sqlite")
    file = tmp_path / f"own.sqlite{end}"
    for path in (file, tmp_path / "." / ".." / tmp_path.name / file.name):
        with pytest.raises(ValueError, match="is a file of the ledger"):
            make(agreed(), ledger=ledger, path=path)
    assert not ledger.entries() and PrivacyLedger.open(ledger.path).remaining()


def test_a_key_from_a_backup_is_hidden_from_other_accounts_again(make):
    agreement = agreed()
    first = make(agreement).read_bytes()
    ledger = make.ledgers["north"]
    key = ledger.path.with_name(ledger.path.name + ".key")
    key.chmod(0o644)
    assert make(agreement).read_bytes() == first
    assert key.stat().st_mode & 0o077 == 0


def test_a_budget_that_is_too_small_makes_no_file(make, tmp_path):
    with pytest.raises(BudgetExceededError):
        make(agreed(), ledger=PrivacyLedger(1.0, 1e-6))
    assert not list(tmp_path.glob("*.part"))


KILLED = """
import os, signal, sys
import numpy as np
from skdpot import PrivacyLedger
from skdpot.parts import Agreement, make_part

folder, stop = sys.argv[1], int(sys.argv[2])
X, group = np.load(folder + "/X.npy"), np.load(folder + "/group.npy")
agreement = Agreement.load(folder + "/agreement.json")
ledger = PrivacyLedger.open(folder + "/north.sqlite")
left = [stop]

def dies(event, arguments):
    left[0] -= event in ("open", "os.rename") and folder in str(arguments)
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(dies)
make_part(agreement, "north", X, group, ledger=ledger, path=folder + "/north.part")
"""


@pytest.mark.experiment
@pytest.mark.parametrize("stop", first_quick([2, 0, 1, 3, 5], 1))
def test_a_process_that_is_killed_is_charged_once_and_writes_the_same_file(stop, make, tmp_path):
    """It dies when it opens or renames a file; the next one goes on."""
    agreement = agreed()
    agreement.save(tmp_path / "agreement.json")
    for name, values in zip(("X", "group"), rows_of(0), strict=True):
        np.save(tmp_path / f"{name}.npy", values)
    ledger = make.ledgers["north"] = PrivacyLedger(4.0, 1e-6, path=tmp_path / "north.sqlite")
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(stop)], timeout=120)
    left = [path.read_bytes() for path in tmp_path.glob("north.part")]
    whole = make(agreement).read_bytes()
    assert left in ([], [whole])
    assert len(ledger.entries()) == 1


# How private a part is
# ---------------------


def sums_of(path):
    with np.load(path) as file:
        return file["sums"]


def test_a_delta_that_publishes_records_is_warned_of(make):
    with pytest.warns(UserWarning, match="part of north.* delta of 0.05 allows to publish records"):
        make(agreed(delta=0.05), ledger=PrivacyLedger(4.0, 0.1))


@pytest.mark.parametrize("plant, refuted", [(False, False), (True, True)])
def test_an_audit_of_parts_finds_a_planted_bug(plant, refuted, monkeypatch):
    """The bug: noise that depends on the agreement alone, and not on the sums."""
    agreement = Agreement(drift(bounds=(0, 1)), 1, 3, OWNERS)
    estimator, plan = agreement._planned()
    key = iter(range(10**6))

    @cache
    def exact(first):
        X, group = np.array([[first], [0.1], [0.9]]), np.repeat(["f", "m"], [2, 1])
        return estimator._private_sums(plan, estimator._validate(X, group))

    def release(first):
        values = exact(first)
        what = b"" if plant else values.tobytes()
        secret = (0 if plant else next(key)).to_bytes(32, "big")
        return plan.release.add_noise(values, keyed_source(secret, what)).ravel()

    found = audit(release, 0.1, 0.9, n_trials=600)
    assert bool(found.epsilon_lower > 4.0) is refuted


def test_owners_have_noise_of_their_own(make):
    """The same rows at two owners: files that were equal would say so."""
    rows, agreement = rows_of(0), agreed()
    north, south = (sums_of(make(agreement, owner, rows=rows)) for owner in OWNERS[:2])
    assert (north != south).mean() > 0.5


# Tables of several owners
# ------------------------

SCHEMA = {"job": ["a", "b", "c"], "kids": range(4), "rich": ["no", "yes"]}
TABLE_SHARES = {"values": 0.3, "pairs": 0.4}


def generator(**parameters):
    return DPSinkhornGenerator(4.0, 1e-6, **{"schema": SCHEMA, "target": "rich", **parameters})


def table_of(place, n=N):
    rng = np.random.default_rng(place)
    job, kids = rng.choice(["a", "b", "c"], n), rng.integers(0, 4, n)
    rich = np.where((job == "a") == (kids > 1), "yes", "no")
    return pd.DataFrame({"job": job, "kids": kids, "rich": rich})


def agreed_table(**parameters):
    return Agreement(generator(**parameters), list(SCHEMA), 3 * N, OWNERS)


def sums_of_rows(agreement, X, label=None):
    estimator, plan = agreement._planned()
    return plan, estimator._private_sums(plan, estimator._validate(X, label))


def sums_of_table(table, agreement):
    return sums_of_rows(agreement, agreement._arranged(table))


def noise_of(plan, values):
    """Return the noise of 300 parts of the same sums."""
    keys = (k.to_bytes(32, "big") for k in range(300))
    drawn = [plan.release.add_noise(values, keyed_source(key, b"x")) for key in keys]
    return np.array(drawn) - values


@pytest.mark.refuses_useless
@pytest.mark.parametrize("target", first_quick(["rich", None]))
def test_a_table_is_made_of_the_parts_of_several_owners(target, make):
    agreement = agreed_table(target=target)
    files = [make(agreement, owner, rows=(table_of(i), None)) for i, owner in enumerate(OWNERS)]
    fitted = add_parts(files, random_state=0)
    assert fitted.privacy_guarantee_.neighbouring == "replace_one"
    assert fitted.n_records_ == pytest.approx(3 * N, rel=0.1)
    assert [len(ledger.entries()) for ledger in make.ledgers.values()] == [1, 1, 1]
    made, real = fitted.sample(4000), pd.concat(table_of(i) for i in range(3))
    assert list(made.columns) == list(SCHEMA)
    for pair in (["job", "kids"], ["job", "rich"], ["kids", "rich"]):
        shares = [pd.crosstab(*(t[name] for name in pair), normalize=True) for t in (made, real)]
        assert np.abs(shares[0] - shares[1]).to_numpy().sum() / 2 < 0.1
    # What only three columns together show.
    of = made[made["job"] == "a"].groupby("kids")["rich"].agg(lambda c: (c == "yes").mean())
    assert of[3] - of[0] > 0.3 or target is None


# A scale of the noise, and whether it is accepted. These are no rows of
# tests/privacy/test_every_mechanism.py: noise is compared with what the agreement's plan declares,
# and what parts of a budget its releases have is read off their noise.
SCALES = ((1.0, True), (0.8, False), (1.25, False))


def test_parts_of_tables_have_the_noise_of_a_whole_fit():
    plan, values = sums_of_table(table_of(0), agreed_table(target=None))
    drawn = noise_of(plan, values)
    # Three tables of single columns, then three of pairs. A replaced record leaves one cell of each
    # and enters another.
    deviation = plan.event.event.noise_multiplier * np.sqrt(6)
    for scale, accepted in SCALES:
        smooth = scale * drawn + np.random.default_rng(0).uniform(-0.5, 0.5, drawn.shape)
        of_each = np.split(smooth, [3 + 4 + 2], axis=1)
        for name, noise in zip(TABLE_SHARES, of_each, strict=True):
            share = TABLE_SHARES[name] / sum(TABLE_SHARES.values())
            wanted = norm(0, np.hypot(deviation / np.sqrt(share), np.sqrt(1 / 12)))
            assert (kstest(noise.ravel(), wanted.cdf).pvalue > 1e-3) == accepted, name


def test_no_record_moves_the_sums_of_a_table_further_than_declared():
    agreement, few, moves = agreed_table(target=None), table_of(0, 5), []
    rng = np.random.default_rng(0)
    for _ in range(40):
        other = few.copy()
        other.loc[0] = [rng.choice(list(values)) for values in SCHEMA.values()]
        of_values, of_pairs = np.split(
            sums_of_table(other, agreement)[1] - sums_of_table(few, agreement)[1], [3 + 4 + 2]
        )
        moves.append((of_values @ of_values, of_pairs @ of_pairs))
    # Two cells of each of three tables: all that is declared.
    assert np.max(moves, axis=0).tolist() == [6, 6]


# Vectors of several owners
# -------------------------


def vectors_of(place, n=36 * N):
    rng = np.random.default_rng(place)
    label = rng.integers(0, 2, n)
    noise = rng.multivariate_normal([0, 0], [[0.3, 0.2], [0.2, 0.3]], n)
    return np.clip(noise + label[:, None], -2, 4), label


def agreed_vectors(**parameters):
    given = {"bounds": (-2, 4), "classes": [0, 1], **parameters}
    return Agreement(DPSinkhornGenerator(4.0, 1e-6, **given), 2, 108 * N, OWNERS)


@pytest.mark.refuses_useless
def test_vectors_are_made_of_the_parts_of_several_owners(make):
    agreement = agreed_vectors()
    files = [make(agreement, owner, rows=vectors_of(i)) for i, owner in enumerate(OWNERS)]
    fitted = add_parts(files, random_state=0)
    assert fitted.privacy_guarantee_.neighbouring == "replace_one"
    assert fitted.n_records_ == pytest.approx(108 * N, rel=0.1)
    (made, of), (real, label) = fitted.sample(4000), vectors_of(9)
    for one in (0, 1):
        here, there = made[of == one], real[label == one]
        np.testing.assert_allclose(here.mean(axis=0), there.mean(axis=0), atol=0.1)
        np.testing.assert_allclose(np.cov(here.T), np.cov(there.T), atol=0.1)


def layout_of(release):
    """Return the size and the sensitivity of each release of a part, by its name."""
    sums = Mock(run=Mock(side_effect=lambda name, array, by: array))
    release._released(None, sums)
    return {name: (len(array), by) for (name, array, by), _ in sums.run.call_args_list}


def test_parts_of_vectors_have_the_noise_that_their_shares_buy():
    plan, values = sums_of_rows(agreed_vectors(), *vectors_of(0, 50))
    drawn = noise_of(plan, values)
    # What adds up to the whole: each release costs (sensitivity / deviation)**2.
    shares, start = [], 0
    for size, sensitivity in layout_of(plan.release).values():
        noise, start = drawn[:, start : start + size], start + size
        shares.append((sensitivity(relation="replace_one") / noise.std()) ** 2)
    spent = np.sqrt(sum(shares)) * plan.event.event.noise_multiplier
    for scale, accepted in SCALES:
        assert (abs(spent / scale - 1) < 0.1) == accepted


def test_errors_that_are_shown_before_a_charge_are_those_of_the_sum():
    release = agreed_vectors()._planned()[1].release
    one, layout = release.releases(None), layout_of(release)
    for error, name in zip(release.expected_errors(9 * N), ("counts", "means 1.0"), strict=True):
        of_owner = one.standard_deviation(name, layout[name][1])
        share = {"counts": 1.0, "means 1.0": np.sqrt(2) / RADIUS / (4.5 * N)}[name]
        assert error.error == pytest.approx(np.sqrt(3) * of_owner * share)


def test_no_record_moves_the_sums_of_vectors_further_than_declared():
    agreement, rng = agreed_vectors(), np.random.default_rng(0)
    layout = layout_of(agreement._planned()[1].release).values()
    declared = [sensitivity(relation="replace_one") ** 2 for _, sensitivity in layout]
    ends = np.cumsum([size for size, _ in layout])[:-1]
    corners, worst = np.array([[-2, -2], [-2, 4], [4, -2], [4, 4]]), np.zeros(len(declared))
    for k in range(60):
        (X, label), sums = vectors_of(0, 5), []
        for _ in range(2):
            # Records at the corners, in either class, are the furthest apart; some have no number.
            X[0] = corners[rng.integers(4)] if k % 3 else rng.normal(1, 3, 2)
            X[0, 0] = np.nan if k % 40 == 0 else X[0, 0]
            label[0] = rng.integers(2)
            sums.append(sums_of_rows(agreement, X.copy(), label)[1].astype(float))
        moved = np.split(sums[1] - sums[0], ends)
        worst = np.maximum(worst, [part @ part for part in moved] / np.array(declared))
    assert (worst <= 1).all()
    # Counts and sums in opposite corners are as far apart as two records can be.
    assert worst[0] == pytest.approx(1) and worst[2] > 0.9


# What is refused
# ---------------


def test_parts_that_do_not_belong_together_are_refused(make, tmp_path):
    agreement, other = agreed(), agreed(epsilon=3.0)
    parts = [make(agreement, owner) for owner in OWNERS]
    wrong = make(other, "west", ledger=PrivacyLedger(9.0, 1e-5), path=tmp_path / "wrong.part")
    for paths, message in (
        (parts[:2], "Missing are \\['west'\\]"),
        ([*parts, parts[0]], "more than once are \\['north'\\]"),
        ([*parts[:2], wrong], "different agreements"),
        ([], "no parts"),
    ):
        with pytest.raises(ValueError, match=message):
            add_parts(paths)
    with pytest.raises(ValueError, match="different agreements"):
        add_parts(parts, agreement=other)


@pytest.mark.parametrize("how", ["cut", "bit", "sum", "pickle"])
def test_a_file_that_was_changed_is_refused(how, make, tmp_path):
    path = make(agreed())
    data = bytearray(path.read_bytes())
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "bit":
        data[len(data) - 200 if len(data) < 400 else len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    if how in ("sum", "pickle"):
        with np.load(path) as file:
            arrays = dict(file)
        arrays["sums"] = arrays["sums"] + 1 if how == "sum" else np.array([{}], dtype=object)
        np.savez(path, **arrays)
        path.with_suffix(".part.npz").rename(path)
    with pytest.raises(ValueError, match="cut or changed"):
        add_parts([path])


def test_a_file_that_is_not_there_is_said_as_python_does():
    with pytest.raises(FileNotFoundError):
        add_parts(["nowhere.part"])


def test_wrong_owners_ledgers_and_columns_are_refused(make):
    agreement = agreed()
    X, group = rows_of(0)
    with pytest.raises(ValueError, match="'east' is no owner .*its owners are .'north', 'south'"):
        make_part(agreement, "east", X, group, ledger=PrivacyLedger(4.0), path="x")
    with pytest.raises(TypeError, match="PrivacyLedger"):
        make_part(agreement, "north", X, group, ledger=None, path="x")
    with pytest.raises(ValueError, match="about the columns"):
        make(agreement, rows=(X[:, :1], group))
    # No value of a table of Arrow is quoted, and a cell that is a list counts nowhere.
    with pytest.raises(ValueError, match=r"got \['a', 'b', 'c'\]\.$"):
        make(agreement, rows=(pa.table(dict.fromkeys("abc", X[:, 0])), group))
    frame = pd.DataFrame(X, columns=["a", "sex"])
    named = Agreement(repair(groups=[0.0, 1.0]), frame[:0], 3 * N, OWNERS)
    with pytest.raises(ValueError, match="column 'sex' is in X and in labels"):
        make(named, rows=(frame, frame["sex"]))
    make(agreement, rows=([[[1.0], 2.0], *X[1:].tolist()], group))
    assert len(make.ledgers["north"].entries()) == 1


# Agreements
# ----------


@pytest.mark.parametrize(
    "estimator, error, message",
    [
        (FairBarycenterRegressor(), TypeError, "has no parts"),
        (DPSinkhornGenerator(None, bounds=(0, 1)), ValueError, "set an epsilon"),
        (DPSinkhornGenerator(1.0, bounds=(0, 1), image_shape=(1, 1)), ValueError, "none of images"),
        (DPSinkhornGenerator(schema={"pay": (0.0, 1.0)}), ValueError, r"columns \['pay'\] have"),
        (repair(epsilon=None, delta=None), ValueError, "set epsilon"),
        (repair(method="conditional"), ValueError, "method='support'"),
        (drift(groups=None), ValueError, "set mechanism='histogram'"),
        (
            PrivateSinkhornDistance(bounds=(0, 1), groups=[0, 1]),
            ValueError,
            "mechanism='histogram'",
        ),
        (drift(metric=lambda a, b: 0.0, cost_range=(0, 1)), ValueError, "type function"),
        (drift(bounds=(0, np.inf)), ValueError, "finite|Infinity|JSON"),
    ],
)
def test_what_has_no_parts_is_refused(estimator, error, message):
    with pytest.raises(error, match=message):
        Agreement(estimator, 1, 3 * N, OWNERS)


@pytest.mark.parametrize("owners", [(), ["north"], "north", ["a", "a"], ["a", ""], ["a", 2]])
def test_owners_are_two_or_more_names(owners):
    with pytest.raises(ValueError, match="owners"):
        Agreement(repair(), 2, 3 * N, owners)


RICH = {
    "sensitive_features": ["sex", "older"],
    "groups": [("f", True), ("f", False), ("m", True), ("m", False)],
    "bounds": {"wage": (0.0, 9.5), "age": range(18, 80)},
    "categories": {"region": ["n", "s"]},
    "method": FreeSupport(n_support=12, scale=False),
}


def test_an_agreement_is_text_that_says_all(tmp_path):
    columns = ["sex", "older", "wage", "age", "region"]
    agreement = Agreement(repair(epsilon=50.0, **RICH), columns, 10**6, ["b", "a"])
    agreement.save(tmp_path / "agreement.json")
    read = Agreement.load(tmp_path / "agreement.json")
    assert read.digest == agreement.digest and read.owners == ("b", "a")
    estimator, _ = read._planned()
    assert estimator.groups == RICH["groups"] and estimator.bounds == RICH["bounds"]
    assert estimator.categories == RICH["categories"]
    table = pd.DataFrame(columns=columns)
    assert Agreement(repair(epsilon=50.0, **RICH), table, 10**6, ["b", "a"]).digest == read.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(format="other"),
        lambda told: told.update(more=1),
        lambda told: told["estimator"].update(object="os.system"),
        lambda told: told["estimator"].update(object="skdpot.privacy.PrivacyLedger"),
        lambda told: told["estimator"].update(object="skdpot.parts._part._FORMAT"),
        lambda told: told.pop("owners"),
    ],
)
def test_text_that_is_no_agreement_is_refused(change):
    told = json.loads(agreed().text)
    change(told)
    with pytest.raises(ValueError, match="no agreement|was changed"):
        Agreement.from_text(json.dumps(told))


def test_columns_are_matched_by_name(tmp_path, make):
    agreement = Agreement(repair(sensitive_features="sex"), ["a", "sex", "b"], 3 * N, OWNERS)
    X, group = rows_of(0)
    frame = pd.DataFrame({"a": X[:, 0], "sex": group, "b": X[:, 1]})
    options = {"ledger": PrivacyLedger(9.0, 1e-5), "path": tmp_path / "a.part"}
    make_part(agreement, "north", frame, **options)
    first = options["path"].read_bytes()
    make_part(agreement, "north", frame[["b", "sex", "a"]], **options)
    assert options["path"].read_bytes() == first
    for wrong in (frame.rename(columns={"a": "c"}), frame[["a", "sex"]], frame.to_numpy()):
        with pytest.raises(ValueError, match="about the columns"):
            make_part(agreement, "north", wrong, **options)


# What an owner is told
# ---------------------


@pytest.mark.refuses_useless
@pytest.mark.parametrize("kind", ["repair", "distance", "table", "vectors"])
def test_an_owner_is_told_if_most_of_her_records_count_nowhere(kind, make):
    """By her part. Warnings are errors here: she is not told of records that count."""
    if kind in KINDS:
        X, labels = rows_of(0, KINDS[kind][1])
        agreement, wrong = agreed(kind), (X, np.char.upper(labels))
    elif kind == "table":
        agreement, X, labels = agreed_table(), table_of(0), None
        wrong = X.assign(rich=X["rich"].str.upper()), None
    else:
        agreement, (X, labels) = agreed_vectors(), vectors_of(0)
        wrong = X, labels + 2
    make(agreement, rows=(X, labels))
    with pytest.warns(UserWarning, match=f"about .* of {len(X):,} records.* compare the records"):
        make(agreement, "south", rows=wrong)
    # Whether a number of records is private is agreed on.
    if kind == "table":
        of_west = PrivacyLedger(4.0, 1e-6, neighbouring="add_remove")
        make(agreed_table(neighbouring="add_remove"), "west", rows=wrong, ledger=of_west)


# Commands
# --------


def command(*arguments):
    return main([str(argument) for argument in arguments])


def test_commands_make_parts_and_add_them_up(tmp_path, capsys):
    agreement = Agreement(repair(sensitive_features="sex"), ["a", "sex", "b"], 3 * N, OWNERS)
    agreement.save(tmp_path / "agreement.json")
    for place, owner in enumerate(OWNERS):
        X, group = rows_of(place)
        frame = pd.DataFrame({"b": X[:, 1], "sex": group, "a": X[:, 0]})
        frame.to_csv(tmp_path / f"{owner}.csv", index=False)
        given = ["--agreement", tmp_path / "agreement.json", "--owner", owner]
        given += ["--ledger", tmp_path / f"{owner}.sqlite", "--out", tmp_path / f"{owner}.part"]
        run = "part", tmp_path / f"{owner}.csv", *given
        assert command(*run, "--budget", 4, 1e-6) == 0
        first = (tmp_path / f"{owner}.part").read_bytes()
        (tmp_path / f"{owner}.part").unlink()
        assert command(*run) == 0 and (tmp_path / f"{owner}.part").read_bytes() == first
        (tmp_path / f"{owner}.part").rename(tmp_path / f"{owner}.kept")
        frame.assign(a=0.0).to_csv(tmp_path / f"{owner}.csv", index=False)
        assert command(*run) == 1
        assert "pass --again for another" in capsys.readouterr().err
        assert len(PrivacyLedger.open(tmp_path / f"{owner}.sqlite").entries()) == 1
    parts = [tmp_path / f"{owner}.kept" for owner in OWNERS]
    assert command("combine", *parts[:2], "--out", tmp_path / "repair.npz") == 1
    assert "Missing are ['west']" in capsys.readouterr().err
    assert command("combine", *parts, "--out", tmp_path / "repair.npz") == 0
    fair = add_parts([tmp_path / "repair.npz"], random_state=0)
    assert fair.transform(frame[["a", "sex", "b"]]).shape == (N, 2)


def test_a_text_among_numbers_does_not_change_the_other_rows(tmp_path):
    agreement = Agreement(drift(), ["a"], 3 * N, OWNERS)
    agreement.save(tmp_path / "agreement.json")
    given = ["--agreement", tmp_path / "agreement.json", "--labels", "sex", "--budget", 4, 1e-6]
    for name, odd in (("usual", "3.5"), ("odd", "text")):
        rows = "\n".join(f"{place % 7},{'fm'[place % 2]}" for place in range(N))
        (tmp_path / f"{name}.csv").write_text(f"a,sex\n{odd},f\n{rows}\n")
        files = ["--ledger", tmp_path / f"{name}.sqlite", "--out", tmp_path / f"{name}.part"]
        assert command("part", tmp_path / f"{name}.csv", *given, *files, "--owner", "north") == 0


def test_what_is_refused_makes_no_ledger(tmp_path, capsys):
    Agreement(drift(), ["a"], 3 * N, OWNERS).save(tmp_path / "agreement.json")
    (tmp_path / "data.csv").write_text("a,sex\n1,f\n2,m\n")
    given = ["--agreement", tmp_path / "agreement.json", "--budget", 4, 1e-6]
    given += ["--ledger", tmp_path / "mine.sqlite", "--out", tmp_path / "mine.part"]
    for names, said in (
        (["--owner", "nord", "--labels", "sex"], "'nord' is no owner"),
        (["--owner", "north", "--labels", "gender"], "'gender' is not a column"),
        (["--owner", "north", "--labels", "sex", "--budget", 3, 0], "the budget does not allow"),
    ):
        assert command("part", tmp_path / "data.csv", *given, *names) == 1
        assert said in capsys.readouterr().err
    assert not (tmp_path / "mine.sqlite").exists()
