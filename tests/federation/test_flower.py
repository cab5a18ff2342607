"""The barycenter on Flower: the same numbers as in a process, and nothing of rows in failures."""

import functools
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from sklearn.base import clone

from skdpot import FairBarycenterPreprocessor
from skdpot.fairness import FreeSupport
from skdpot.federation import (
    BarycenterCoordinator,
    BarycenterFederation,
    BarycenterOwner,
    FederationError,
    GroupRelease,
    InProcessCarrier,
    SecureAggregation,
    SigningKey,
    run_barycenter,
)
from skdpot.federation._state_file import StateFile
from skdpot.federation._wire import Packet, pack, unpack
from skdpot.privacy import PrivacyLedger
from skdpot.privacy.random import make_source
from tests.oracles.direct_grid import RUN, DirectGrid, over_the_wire

# Flower's environment is set by the import above.
from flwr.app import Context, Message, RecordDict  # isort: skip
from skdpot.federation import _tasks, flower  # isort: skip

PROJECT = Path(__file__).parents[2]
OWNERS = ("north", "south", "west")
SECRET = 7.654321
DECLARED = {
    "epsilon": 4.0,
    "delta": 1e-6,
    "groups": "men, women",
    "low": "-4, -4",
    "high": "4, 4",
    "kind": "histogram",
}
AGREED = GroupRelease(
    4.0, ["men", "women"], bounds=([-4, -4], [4, 4]), delta=1e-6, kind="histogram"
)
CANDIDATES = np.stack(np.meshgrid(*[np.linspace(-3, 3, 7)] * 2), axis=-1).reshape(-1, 2)


def draw_rows(n_rows=30):
    rng = np.random.default_rng(5)
    return {
        name: rng.normal(size=(n_rows + place, 2)) + place - 1 for place, name in enumerate(OWNERS)
    }


def draw_labels(n_rows):
    return np.random.default_rng(n_rows).choice(["men", "women"], n_rows)


@pytest.fixture
def open_nodes(tmp_path):
    """Owners of a group each, without a release."""
    nodes = {}
    for place, (name, points) in enumerate(draw_rows().items()):
        np.savez(tmp_path / f"{name}.npz", points=points, group=f"group of {name}")
        nodes[10 + place] = {"name": name, "data": str(tmp_path / f"{name}.npz")}
    return nodes


@pytest.fixture
def private_nodes(tmp_path):
    """Owners of rows of two groups, who agreed to a release and have a budget for one."""
    nodes = {}
    for place, (name, points) in enumerate(draw_rows(200).items()):
        data, ledger = tmp_path / f"{name}.npz", tmp_path / f"{name}.ledger"
        np.savez(data, points=points, group=draw_labels(len(points)))
        PrivacyLedger(5.0, 1e-5, path=ledger, allow_seeded=True)
        nodes[10 + place] = {
            "name": name,
            "data": str(data),
            "ledger": str(ledger),
            "state": str(tmp_path / f"{name}.state"),
            **DECLARED,
        }
    return nodes


@pytest.fixture
def seeded(monkeypatch):
    """Let every owner's noise be that of a seed, though it is read anew for each message."""

    def read(config):
        owner = read_owner(config)
        owner.owner._source = make_source(len(owner.name))
        return owner

    read_owner = _tasks.read_owner
    monkeypatch.setattr(_tasks, "read_owner", read)


def direct_grid(nodes):
    return DirectGrid(lambda: flower.client_app, nodes)


def coordinate(grid, coordinator, timeout=1.0, patience=0.05):
    carrier = flower.FlowerCarrier(grid, patience=patience, pause=0.01)
    return run_barycenter(coordinator, carrier, timeout=timeout, checkpoint=None)


def charges(nodes):
    ledgers = [PrivacyLedger.open(config["ledger"]) for config in nodes.values()]
    return [len(ledger.entries()) for ledger in ledgers]


def in_process(make_coordinator):
    owners = [
        BarycenterOwner(name, points, f"group of {name}") for name, points in draw_rows().items()
    ]
    return run_barycenter(make_coordinator(), InProcessCarrier(owners))


def plain(method, **settings):
    settings = {"candidates": CANDIDATES, "max_iter": 12, "tol": 1e-9} | settings
    return BarycenterCoordinator(OWNERS, 12, method=method, **settings)


def private(**settings):
    return BarycenterCoordinator(OWNERS, 10, release=AGREED, **settings)


# ------------------------------------------------------------------------------- the same numbers


@pytest.mark.parametrize("method", ["dual", "bregman", "bundle", "free"])
def test_flower_finds_what_is_found_in_a_process_bit_by_bit(open_nodes, method):
    found = coordinate(direct_grid(open_nodes), plain(method))
    wanted = in_process(lambda: plain(method))
    np.testing.assert_array_equal(found.support, wanted.support)
    assert found.objective == wanted.objective
    assert found.n_rounds == wanted.n_rounds > 2
    assert [sizeless(of) for of in found.traffic] == [sizeless(of) for of in wanted.traffic]
    for one, other in zip(found.traffic, wanted.traffic, strict=True):
        # Names of sessions are drawn, and what is drawn is shortened by a few bytes more or less.
        assert one.bytes_up == pytest.approx(other.bytes_up, abs=10 * one.n_answered)
        assert one.bytes_down == pytest.approx(other.bytes_down, abs=10 * one.n_asked)


def sizeless(crossing):
    return replace(crossing, bytes_up=0, bytes_down=0)


def test_secure_sums_are_those_in_the_open_up_to_their_resolution(open_nodes):
    settings = {"bounds": ([-6, -6], [6, 6]), "tol": 1e-2, "max_iter": 20}
    secure = plain("bregman", secure=SecureAggregation(), **settings)
    found = coordinate(direct_grid(open_nodes), secure)
    wanted = in_process(lambda: plain("bregman", **settings))
    assert 0 < found.resolution < 1e-9
    np.testing.assert_array_equal(found.support, wanted.support)
    assert found.objective == pytest.approx(wanted.objective, rel=1e-6)
    assert {crossing.leg for crossing in found.traffic} == {
        "hello", "keys", "shares", "masked", "reveal", "finish",
    }  # fmt: skip


@pytest.mark.parametrize("secure", [None, SecureAggregation()])
def test_a_release_of_the_same_noise_is_the_same(private_nodes, seeded, secure):
    found = coordinate(direct_grid(private_nodes), private(secure=secure))
    owners = [
        BarycenterOwner(
            name, points, draw_labels(len(points)).tolist(), release=AGREED, random_state=len(name)
        )
        for name, points in draw_rows(200).items()
    ]
    wanted = run_barycenter(private(secure=secure), InProcessCarrier(owners))
    np.testing.assert_array_equal(found.support, wanted.support)
    assert found.objective == wanted.objective
    assert charges(private_nodes) == [1, 1, 1]


def test_noise_is_not_reproducible_otherwise(private_nodes):
    totals = []
    for _ in range(2):
        for config in private_nodes.values():
            PrivacyLedger(50.0, 1e-4, path=config["ledger"] + " large")
        nodes = {
            node: config | {"ledger": config["ledger"] + " large"}
            for node, config in private_nodes.items()
        }
        totals.append(coordinate(direct_grid(nodes), private()).released.sizes)
    assert (totals[0] != totals[1]).any()
    assert charges(nodes) == [2, 2, 2]


# ---------------------------------------------------------------------- what is kept, and charged


def test_nothing_is_kept_in_the_module(open_nodes):
    grid = DirectGrid(lambda: importlib.reload(flower).client_app, open_nodes)
    found = coordinate(grid, plain("free"))
    assert found.objective == in_process(lambda: plain("free")).objective


def test_state_files_outlive_supernodes(open_nodes, tmp_path):
    """SuperNodes that are started anew in the midst of it go on where they were."""
    nodes = {
        node: config | {"state": str(tmp_path / "all states")}
        for node, config in open_nodes.items()
    }
    grid = direct_grid(nodes)
    restarts = [(10, 20), (11, 21), (20, 30)]

    class Restarting:
        carrier = flower.FlowerCarrier(grid, patience=0.05, pause=0.01)

        def exchange(self, messages, timeout):
            if grid.delivered and restarts:
                grid.restart(*restarts.pop(0))
            return self.carrier.exchange(messages, timeout)

    found = run_barycenter(plain("free"), Restarting(), timeout=1.0)
    assert set(grid.contexts) == {12, 21, 30}
    assert found.objective == in_process(lambda: plain("free")).objective


def test_an_owner_that_forgot_refuses_and_is_named(open_nodes):
    grid = direct_grid(open_nodes)
    coordinator = plain("free", n_attempts=2)
    carrier = flower.FlowerCarrier(grid, patience=0.05, pause=0.01)
    for name, data in carrier.exchange(coordinator.messages(), 1.0):
        coordinator.receive(name, data)
    coordinator.advance()
    grid.restart(11, 21)
    with pytest.raises(FederationError, match="south .this is no session") as caught:
        run_barycenter(coordinator, carrier, timeout=1.0)
    assert set(caught.value.missing) == {"south"}


@pytest.mark.parametrize("secure", [None, SecureAggregation()])
def test_a_release_is_charged_once_however_often_it_is_asked_for(private_nodes, secure):
    """Of one owner every answer is lost at first, and one says everything twice."""
    grid = direct_grid(private_nodes)
    grid.losing, grid.repeating = {10}, {11}
    coordinator = private(secure=secure)
    found = coordinate(grid, coordinator, timeout=0.02, patience=0.2)
    n_asked = {node: [where for where, _ in grid.delivered].count(node) for node in private_nodes}
    assert n_asked[10] > 1.5 * n_asked[12]
    assert not coordinator.rejected
    assert charges(private_nodes) == [1, 1, 1]
    assert found.owners == OWNERS
    assert found.released.sizes.sum() == pytest.approx(603, abs=100)


def test_an_answer_that_was_lost_is_given_again_by_a_supernode_that_was_started_anew(private_nodes):
    grid = direct_grid(private_nodes)
    coordinator = private(n_attempts=2)
    carrier = flower.FlowerCarrier(grid, patience=0.05, pause=0.01)
    replies = []
    for _ in range(3):
        messages = coordinator.messages()
        for name, data in carrier.exchange(messages, 1.0):
            if unpack(data).kind == "answer" and len(replies) < 3:
                replies.append((name, data))
            else:
                coordinator.receive(name, data)
        coordinator.advance()
        for node in list(grid.contexts):
            grid.restart(node, node + 10)
    assert dict(replies) == {name: dict(replies)[name] for name in OWNERS}
    assert coordinator.n_rounds == 1
    assert charges(private_nodes) == [1, 1, 1]
    for (name, first), again in zip(replies, carrier.exchange(messages, 1.0), strict=True):
        assert again == (name, first)


@pytest.mark.parametrize("place", ["write", "charge"])
def test_a_process_that_ends_between_charge_and_answer_is_charged_once(
    private_nodes, monkeypatch, place
):
    """The budget is enough for one release: the next process gives the same answer."""
    owner = {"write": StateFile, "charge": PrivacyLedger}[place]
    finish, n_done = getattr(owner, place), []

    def fail_after_the_third_time(*arguments, **options):
        done = finish(*arguments, **options)
        n_done.append(place)
        if len(n_done) == 3:
            raise OSError(f"no space left for {SECRET}")
        return done

    monkeypatch.setattr(owner, place, fail_after_the_third_time)
    grid = direct_grid(private_nodes)
    found = coordinate(grid, private())
    assert found.owners == OWNERS
    assert charges(private_nodes) == [1, 1, 1]
    assert str(SECRET) not in str(grid.answers)


def test_a_ledger_that_is_spent_refuses_the_next_session(private_nodes):
    coordinate(direct_grid(private_nodes), private())
    with pytest.raises(FederationError, match="ledger does not allow the release"):
        coordinate(direct_grid(private_nodes), private(n_attempts=1))
    assert charges(private_nodes) == [1, 1, 1]


def test_a_run_goes_on_from_a_checkpoint_with_other_nodes(open_nodes, tmp_path):
    """A new run of Flower finds SuperNodes that remember nothing of the last one."""
    nodes = {
        node: config | {"state": str(tmp_path / config["name"])}
        for node, config in open_nodes.items()
    }
    first = plain("free", n_attempts=1)
    grid = direct_grid(nodes)
    carrier = flower.FlowerCarrier(grid, patience=0.05, pause=0.01)
    while first.n_rounds < 3:
        for name, data in carrier.exchange(first.messages(), 1.0):
            first.receive(name, data)
        first.advance()
    second = plain("free")
    second.restore(first.checkpoint())
    found = coordinate(direct_grid({node + 50: config for node, config in nodes.items()}), second)
    assert found.objective == in_process(lambda: plain("free")).objective


def test_one_at_a_time_has_a_state(tmp_path):
    path = tmp_path / "state"

    def append(letter):
        file = StateFile(path, "north")
        for _ in range(10):
            with file.alone():
                file.write((file.read() or b"") + letter)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, [b"x"] * 4))
    file, entered = StateFile(path, "north"), Event()

    def enter():
        with StateFile(path, "north").alone():
            entered.set()

    with ThreadPoolExecutor(1) as pool, file.alone():
        assert file.read() == b"x" * 40
        pool.submit(enter)
        assert not entered.wait(0.3)
    assert entered.is_set()
    with pytest.raises(KeyError), file.alone():
        file.write(b"y")
        raise KeyError
    with file.alone():
        assert file.read() == b"y"
    with StateFile(path, "south").alone() as other:
        assert other.read() is None
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0


# --------------------------------------------------------------------------------------- failures


def ask(config, request):
    """Return what the app answers, and what went to the server besides."""
    grid = direct_grid({10: config})
    carrier = flower.FlowerCarrier(grid, patience=0.05, pause=0.01)
    (found,) = carrier.exchange({config["name"]: request}, 1.0)
    return unpack(found[1]), grid.answers


def fail_with_rows(*args):
    raise ValueError(f"the row {SECRET} is not to be seen")


def test_what_an_app_raises_stays_with_the_owner(open_nodes, monkeypatch, capfd):
    monkeypatch.setattr(BarycenterOwner, "handle", fail_with_rows)
    request = pack(Packet("step", "session", 4, "attempt"))
    refusal, answers = ask(open_nodes[10], request)
    assert (refusal.kind, refusal.fields) == ("refusal", {"reason": "the owner's app failed."})
    assert (refusal.session, refusal.round, refusal.attempt) == ("session", 4, "attempt")
    assert refusal.sender == "north"
    out, err = capfd.readouterr()
    assert "ValueError" in err
    assert str(SECRET) not in out + err + str(answers)


def test_a_refusal_of_the_app_reaches_the_coordinators_error(open_nodes, monkeypatch):
    monkeypatch.setattr(BarycenterOwner, "handle", fail_with_rows)
    with pytest.raises(FederationError, match="north .the owner's app failed"):
        coordinate(direct_grid(open_nodes), plain("free", n_attempts=1))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"data": "/nonexistent/rows.npz"}, "data: there is no file /nonexistent/rows.npz"),
        ({"secur": True}, "unknown keys: secur"),
        ({"secure": "false"}, "secure must be a flag, got 'false'"),
        ({"epsilon": 1.0, "state": "x"}, "low and high, the bounds"),
        (DECLARED, "a release needs state="),
        (DECLARED | {"state": "x", "low": "0", "high": "1"}, "points have 2 features"),
        (DECLARED | {"state": "x", "low": "0,0"}, "every lower bound|must be below|2 numbers"),
        (DECLARED | {"state": "/nonexistent/x"}, "there is no folder /nonexistent"),
        (DECLARED | {"state": "x", "ledger": "/nonexistent/l"}, "no ledger at /nonexistent/l"),
        (DECLARED | {"state": "x", "groups": "a,,b"}, "groups must be names"),
        (DECLARED | {"state": "x", "noise": "none"}, "noise must be one of"),
        (DECLARED | {"state": "x", "threshold": 3}, "are for secure = true"),
    ],
)
def test_wrong_settings_of_an_owner_are_said_in_its_own_log(open_nodes, config, message, capfd):
    config = open_nodes[10] | config
    if "numbers" in message:
        config["high"] = "-1,-1"
    refusal, answers = ask(config, pack(Packet("hello", "session")))
    assert refusal.fields == {"reason": "the owner's app is not set up, as its log says."}
    with pytest.raises(flower.SettingsError, match=message) as caught:
        flower.read_owner(config)
    assert str(caught.value) in capfd.readouterr().err
    assert "nonexistent" not in str(answers)


def test_an_owner_insists_on_the_threshold_that_is_configured(private_nodes, tmp_path):
    config = private_nodes[10] | {"noise": "shared", "n-honest": 2, "secure": True, "threshold": 3}
    with pytest.raises(flower.SettingsError, match="shared noise needs key="):
        flower.read_owner(config)
    names, path = [node["name"] for node in private_nodes.values()], tmp_path / "key"
    keys = {name: SigningKey.create() for name in names}
    keys[config["name"]].save(path)
    roster = [[name, key.public] for name, key in keys.items()]
    config |= {"key": str(path), "owner-keys": ", ".join("=".join(one) for one in roster)}
    owner = flower.read_owner(config).owner
    told = {"release": owner._release.described(), "secure": True, "owner": 0, "n_owners": 3}
    told |= {"roster": roster, "name": owner.name}
    owner.handle(pack(Packet("hello", "session", fields=told)))
    for threshold, kind in [(2, "refusal"), (3, "keys")]:
        plan = {"n_owners": 3, "size": 8, "threshold": threshold, "n_neighbours": None}
        begun = {"plan": plan | {"all_or_nothing": False}, "task": "a digest"}
        answer = owner.handle(pack(Packet("keys", "session", 0, str(threshold), "", begun)))
        assert unpack(answer).kind == kind


def test_rows_that_are_no_numbers_are_not_quoted(open_nodes, tmp_path):
    np.savez(tmp_path / "texts.npz", points=np.array([["Smith", "1.0"]]), group="men")
    with pytest.raises(flower.SettingsError, match="must be a matrix of numbers") as caught:
        flower.read_owner(open_nodes[10] | {"data": str(tmp_path / "texts.npz")})
    assert "Smith" not in str(caught.value)
    np.savez(tmp_path / "objects.npz", points=np.array([[{}]]), group="men")
    with pytest.raises(flower.SettingsError, match="is not a readable NumPy file"):
        flower.read_owner(open_nodes[10] | {"data": str(tmp_path / "objects.npz")})


def test_labels_are_compared_as_texts(private_nodes, tmp_path):
    """Integers of a file are the texts of a configuration; else no row would count."""
    nodes = {}
    for node, config in private_nodes.items():
        rows = np.load(config["data"])
        path = str(tmp_path / f"integers {node}.npz")
        np.savez(path, points=rows["points"], group=(rows["group"] == "women").astype(int))
        nodes[node] = config | {"data": path, "groups": "0,1"}
    agreed = replace(AGREED, groups=["0", "1"])
    found = coordinate(direct_grid(nodes), BarycenterCoordinator(OWNERS, 5, release=agreed))
    n_women = sum((np.load(c["data"])["group"] == 1).sum() for c in nodes.values())
    assert found.released.sizes == pytest.approx([603 - n_women, n_women], abs=60)


@pytest.mark.parametrize("way", ["silent", "failing"])
def test_a_node_that_does_not_answer_is_named(open_nodes, way):
    grid = direct_grid(open_nodes)
    coordinator = plain("free", n_attempts=2)
    carrier = flower.FlowerCarrier(grid, patience=0.05, pause=0.01)
    for name, data in carrier.exchange(coordinator.messages(), 0.1):
        coordinator.receive(name, data)
    coordinator.advance()
    getattr(grid, way).add(11)
    with pytest.raises(FederationError, match="south .no answer") as caught:
        run_barycenter(coordinator, carrier, timeout=0.05)
    assert caught.value.missing == {"south": "no answer"}
    getattr(grid, way).clear()
    found = run_barycenter(coordinator, carrier, timeout=1.0)
    assert found.objective == in_process(lambda: plain("free")).objective


def test_another_node_takes_the_place_of_one_that_is_thought_to_be_up(open_nodes, tmp_path):
    """The SuperLink notices only after a while that a SuperNode is gone."""
    nodes = {
        node: config | {"state": str(tmp_path / config["name"])}
        for node, config in open_nodes.items()
    }
    grid = direct_grid(nodes)
    coordinator = plain("free", n_attempts=3)
    carrier = flower.FlowerCarrier(grid, patience=0.2, pause=0.01)
    for name, data in carrier.exchange(coordinator.messages(), 1.0):
        coordinator.receive(name, data)
    coordinator.advance()
    grid.silent.add(11)
    grid.start(21, nodes[11])
    found = run_barycenter(coordinator, carrier, timeout=0.2)
    assert found.objective == in_process(lambda: plain("free")).objective


def test_owners_without_a_node_are_missed(private_nodes):
    del private_nodes[11]
    with pytest.raises(FederationError, match="1 of 3 owners .* south .no answer"):
        coordinate(direct_grid(private_nodes), private())
    found = coordinate(direct_grid(private_nodes), private(on_missing="drop"))
    assert (found.owners, found.dropped) == (("north", "west"), ("south",))


def test_two_nodes_of_one_owner_are_an_error(open_nodes):
    grid = direct_grid(open_nodes | {13: open_nodes[11]})
    with pytest.raises(FederationError, match="two nodes claim to be the owner 'south'"):
        coordinate(grid, plain("free"))
    assert {kind for _, kind in grid.delivered} == {"query.barycenter_owner"}


def test_nodes_of_other_owners_are_let_alone(open_nodes):
    stranger = open_nodes[11] | {"name": "a stranger"}
    grid = direct_grid(open_nodes | {13: stranger, 14: stranger})
    found = coordinate(grid, plain("free"))
    assert found.objective == in_process(lambda: plain("free")).objective
    assert [kind for node, kind in grid.delivered if node > 12] == ["query.barycenter_owner"] * 2


# --------------------------------------------------------------------------------- the ServerApp


def run_server(grid, config):
    context = Context(
        run_id=RUN, node_id=1, node_config={}, state=RecordDict(), run_config=dict(config)
    )
    flower.server_app(grid, context)


def run_config(tmp_path, **settings):
    np.save(tmp_path / "candidates.npy", CANDIDATES)
    return {
        "owners": "north, south, west",
        "n-support": 12,
        "method": "free",
        "candidates": str(tmp_path / "candidates.npy"),
        "tol": 1e-9,
        "max-iter": 12,
        "timeout": 1.0,
        "output": str(tmp_path / "found.npz"),
        "checkpoint": str(tmp_path / "checkpoint"),
        **settings,
    }


def test_the_server_app_writes_what_was_found_and_says_what_crossed(open_nodes, tmp_path, capfd):
    nodes = {
        node: config | {"outcome": str(tmp_path / f"found by {config['name']}.npz")}
        for node, config in open_nodes.items()
    }
    run_server(direct_grid(nodes), run_config(tmp_path))
    wanted = in_process(lambda: plain("free"))
    for name in ["found.npz", *(f"found by {owner}.npz" for owner in OWNERS)]:
        with np.load(tmp_path / name) as found:
            np.testing.assert_array_equal(found["support"], wanted.support)
            assert found["objective"] == wanted.objective
    assert not (tmp_path / "checkpoint").exists()
    record = json.loads((tmp_path / "found.json").read_text())
    assert record["owners"] == list(OWNERS)
    assert len(record["legs"]) == len(wanted.traffic)
    said = capfd.readouterr().out
    assert "NOT PRIVATE" in said
    first = wanted.traffic[1]
    step = re.escape(f"round 0, step ({first.step})")
    assert re.search(rf"{step}: \d+ bytes in 3 messages to owners, \d+ bytes in 3 answers", said)
    assert len([line for line in said.splitlines() if ", finish:" in line]) == 1


def test_a_server_app_that_stopped_goes_on(open_nodes, tmp_path, capfd):
    nodes = {
        node: config | {"state": str(tmp_path / config["name"])}
        for node, config in open_nodes.items()
    }
    config = run_config(tmp_path, **{"n-attempts": 1, "timeout": 0.2})
    grid = direct_grid(nodes)
    grid.silence_after(20, 12)
    with pytest.raises(FederationError, match="west .no answer"):
        run_server(grid, config)
    assert "continues from" in capfd.readouterr().out
    run_server(direct_grid(nodes), config)
    assert "continuing after" in capfd.readouterr().out
    with np.load(tmp_path / "found.npz") as found:
        assert found["objective"] == in_process(lambda: plain("free")).objective


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"owners": ""}, "lacks owners"),
        ({"owners": "north,,west"}, "owners must be names"),
        ({"owners": "north,north"}, "differ from each other"),
        ({"n-support": 0}, "n-support must be at least 1"),
        ({"n-support": 50}, "must not be above the number of candidates"),
        ({"n-support": True}, "n-support must be a whole"),
        ({"method": "simplex"}, "method must be one of"),
        ({"method": "release"}, "an epsilon above 0 is for"),
        ({"epsilon": 1.0}, "an epsilon above 0 is for"),
        ({"method": "dual", "candidates": ""}, "needs candidates"),
        ({"candidates": "/nonexistent/c.npy"}, "candidates: there is no file /nonexistent/c.npy"),
        ({"weights": "0.5,0.5"}, "one for every owner"),
        ({"weights": "equal"}, "weights must be numbers"),
        ({"secure": True}, "the bounds of the rows"),
        ({"threshold": 2}, "are for secure = true"),
        ({"secure": True, "threshold": 9, "low": "0,0", "high": "1,1"}, "threshold from 2 to 3"),
        ({"low": "0,0"}, "low and high are the bounds"),
        ({"tol": 0}, "tol must be positive"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"on-missing": "wait"}, "on_missing must be one of"),
        ({"n-atempts": 2}, "unknown keys: n-atempts"),
        ({"output": "/nonexistent/x.npz"}, "there is no folder /nonexistent"),
        (
            {"method": "release", "secure": True, "threshold": 2}
            | DECLARED
            | {"noise": "shared", "n-honest": 3},
            "needs a threshold from 3 to 3",
        ),
        ({"method": "release", **DECLARED, "noise": "shared"}, "noise='shared' needs n_honest"),
    ],
)
def test_wrong_settings_of_a_run_are_found_before_anything_is_asked(
    open_nodes, tmp_path, changed, message
):
    grid = direct_grid(open_nodes)
    with pytest.raises(flower.SettingsError, match=message):
        run_server(grid, run_config(tmp_path, **changed))
    assert grid.delivered == []


def test_a_release_by_the_server_app(private_nodes, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"owners": ",".join(OWNERS), "n-support": 10, "secure": True, "timeout": 1.0}
    run_server(direct_grid(private_nodes), config | DECLARED)
    said = capfd.readouterr().out
    assert "NOT PRIVATE" not in said
    for leg in ("hello", "keys", "shares", "masked", "reveal", "finish"):
        assert f"{leg}" in said
    assert charges(private_nodes) == [1, 1, 1]


@pytest.mark.parametrize("output", [True, False])
def test_a_release_goes_on_from_a_checkpoint_that_nobody_named(
    private_nodes, tmp_path, capfd, monkeypatch, output
):
    (tmp_path / "server").mkdir()
    monkeypatch.chdir(tmp_path / "server")
    config = {"owners": ",".join(OWNERS), "n-support": 10, "timeout": 0.2, "n-attempts": 1}
    config |= DECLARED | ({"output": str(tmp_path / "server" / "found.npz")} if output else {})
    grid = direct_grid(private_nodes)
    grid.silence_after(5, 12)
    with pytest.raises(FederationError, match="west .no answer"):
        run_server(grid, config)
    (path,) = (tmp_path / "server").iterdir()
    assert path.name == "found.npz.checkpoint" or not output
    assert f"the same run continues from {path}" in capfd.readouterr().out
    run_server(direct_grid({node + 5: each for node, each in private_nodes.items()}), config)
    assert "continuing after 0 rounds" in capfd.readouterr().out
    assert charges(private_nodes) == [1, 1, 1]
    assert not path.exists()


# ------------------------------------------------------------------------------------- the package


@pytest.mark.experiment
def test_flower_is_imported_by_its_own_module_only():
    script = (
        "import sys, skdpot, skdpot.federation\n"
        "import skdpot.federation._flower_settings\n"
        "import skdpot.federation._state_file\n"
        "assert 'flwr' not in sys.modules\n"
        "import skdpot.federation.flower\n"
        "assert 'flwr' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def example_settings():
    path = PROJECT / "examples" / "federation" / "flower_app" / "pyproject.toml"
    return tomllib.loads(path.read_text())["tool"]["flwr"]["app"]


def test_the_example_app_has_every_key_and_starts_these_apps():
    from skdpot.federation._flower_settings import _RUN

    app = example_settings()
    assert set(app["config"]) == set(_RUN)
    names = {name.split(":")[1]: name.split(":")[0] for name in app["components"].values()}
    assert names == dict.fromkeys(["server_app", "client_app"], "skdpot.federation.flower")
    assert flower.read_run(app["config"]).coordinator.method == "release"


def test_large_messages_arrive_whole():
    """Flower cuts arrays into pieces of 5 MB, and sends equal pieces once."""
    direct_grid({})  # who creates messages is somebody
    for data in (bytes(12_000_000), np.random.default_rng(0).bytes(12_000_000), b"x"):
        message = Message(flower._record(data), 10, "query.barycenter")
        assert flower._bytes_in(over_the_wire(message)) == data


# ------------------------------------------------------------------------------------ the network


@pytest.mark.experiment
@pytest.mark.benchmark
def test_processes_on_loopback_do_the_same(tmp_path):
    """Real SuperNodes, and a process for every message: a minute.

    A release on the engine is in the tests of its operation, with TLS.
    """
    example = PROJECT / "examples" / "federation" / "run_flower.py"
    # Two rounds start the algorithm, and a third one is as all that follow.
    command = [sys.executable, str(example), "open", "--rounds=3"]
    environment = os.environ | {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    environment["PYTHONPATH"] = str(PROJECT)
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "=== done in" in done.stdout
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ owners of other data


def test_a_preprocessor_is_fitted_through_flower(private_nodes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fair = FairBarycenterPreprocessor(
        epsilon=4.0,
        delta=1e-6,
        bounds=(-4, 4),
        groups=["men", "women"],
        method=FreeSupport(n_support=20),
        random_state=0,
    )

    def make_owner(config):
        with np.load(config["data"]) as data:
            own = clone(fair).set_params(ledger=PrivacyLedger.open(config["ledger"]))
            return own.as_owner(
                config["name"], data["points"], sensitive_features=data["group"].astype(object)
            )

    app = flower.make_client_app(make_owner)
    grid = DirectGrid(lambda: app, private_nodes)
    carrier = flower.FlowerCarrier(grid, patience=0.05, pause=0.01)
    federation = BarycenterFederation(OWNERS, carrier, timeout=1.0)
    fitted = fair.set_params(federation=federation).fit(np.empty((0, 2)))
    assert fitted.support_.shape == (20, 2) and (abs(fitted.support_) <= 4).all()
    assert charges(private_nodes) == [1, 1, 1]


def test_an_owner_of_other_data_needs_a_place_to_remember_in(private_nodes, capfd):
    made = []
    app = flower.make_client_app(lambda config: made.append(config))
    nodes = {node: {"name": config["name"]} for node, config in private_nodes.items()}
    grid = DirectGrid(lambda: app, nodes)
    with pytest.raises(FederationError, match="not set up"):
        coordinate(grid, private(n_attempts=1))
    assert "state=" in capfd.readouterr().err and not made
