"""Folders of parties: made, checked, and told apart, without an engine."""

import asyncio
import json
import shutil
import socket
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

from skdpot import PrivacyLedger
from skdpot.federation import SigningKey, _flower_settings
from skdpot.federation.__main__ import _parser, main
from skdpot.federation._flower_settings import read_owner, read_run
from skdpot.federation._operation import _credentials, _engine, _launched, _party, _records, _runs
from skdpot.federation._operation._conduct import conduct_for_party
from skdpot.federation._operation._party import read_agreement, read_card, read_party
from skdpot.federation._settings_error import SettingsError
from tests.oracles.direct_grid import DirectGrid

PROJECT = Path(__file__).parents[2]
OWNERS = ("north", "south")
AGREED = [
    "--epsilon=4", "--delta=1e-6", "--groups=men,women", "--low=-4,-4", "--high=4,4",
    "--kind=moments", "--n-support=8",
]  # fmt: skip
SECRET = 3.1234567


def make_owner(folder, name):
    assert main(["init", "owner", str(folder), "--name", name, "--budget", "5", "1e-5"]) == 0
    rng = np.random.default_rng(len(name))
    group = rng.choice(["men", "women"], 300)
    points = rng.normal(size=(300, 2)) + (group == "men")[:, None]
    points[0, 0] = SECRET
    np.savez(folder / "rows.npz", points=points, group=group)


def join(folder, hub):
    assert main(["init", "owner", str(folder), "--agreement", f"{hub}/agreement.toml"]) == 0


def make_federation(folder, owners=OWNERS, port=None):
    """Make all parties as their operators do, and return the coordinator's folder."""
    for name in owners:
        make_owner(folder / name, name)
    hub, cards = folder / "hub", [str(folder / n / f"{n}.card.toml") for n in owners]
    address = f"localhost:{port or _engine.free_port()}"
    init = ["init", "coordinator", str(hub), "--address", address, "--cards", *cards]
    assert main([*init, *AGREED]) == 0
    for name in owners:
        join(folder / name, hub)
    return hub


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    make_federation(folder)
    return folder


@pytest.fixture
def parties(made, tmp_path):
    """A copy that a test may spoil."""
    shutil.copytree(made, tmp_path / "parties")
    return tmp_path / "parties"


def edit(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


# ------------------------------------------------------------------------------------------- init


def test_what_is_private_is_for_its_user_alone(made):
    for party in ("hub", *OWNERS):
        private = made / party / "private"
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        for file in private.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_a_private_folder_that_was_there_is_closed(tmp_path):
    (tmp_path / "east" / "private").mkdir(parents=True, mode=0o755)
    make_owner(tmp_path / "east", "east")
    assert stat.S_IMODE((tmp_path / "east" / "private").stat().st_mode) == 0o700


def test_who_reads_may_have_read_enough(made):
    command = f"{sys.executable} -m skdpot.federation status {made / 'north'} | true"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=PROJECT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_sent_has_public_halves_only(made):
    keys = [
        line
        for path in made.glob("*/private/*")
        if path.suffix in (".pem", ".key", "") and b"PRIVATE KEY" in path.read_bytes()
        for line in path.read_text().splitlines()[1:-1]
    ]
    assert len(keys) > 6
    sent = [*made.glob("*/*.card.toml"), made / "hub" / "agreement.toml"]
    text = "".join(path.read_text() for path in sent)
    assert "PRIVATE" not in text and not any(line in text for line in keys)


def test_all_parties_compute_one_digest(made):
    digests = {read_party(made / party).agreement().digest() for party in ("hub", *OWNERS)}
    assert digests == {read_agreement(made / "hub" / "agreement.toml").digest()}


def test_init_says_what_goes_to_whom(tmp_path, capsys):
    make_owner(tmp_path / "east", "east")
    said = capsys.readouterr().out
    assert read_card(tmp_path / "east" / "east.card.toml").fingerprint() in said
    assert "by telephone" in said and "east.card.toml to the coordinator" in said
    ledger = PrivacyLedger.open(tmp_path / "east" / "private" / "ledger")
    assert (ledger.epsilon, ledger.delta) == (5.0, 1e-5)


def test_init_overwrites_nothing(parties, capsys):
    north, before = parties / "north", (parties / "north" / "private" / "signing.pem").read_bytes()
    for arguments in (
        ["--name", "x", "--budget", "1", "0"],
        ["--agreement", f"{parties}/hub/agreement.toml"],
    ):
        assert main(["init", "owner", str(north), *arguments]) == 1
    assert (north / "private" / "signing.pem").read_bytes() == before
    assert "is there" in capsys.readouterr().err


def test_an_agreement_that_was_changed_on_its_way_is_refused(parties, capsys):
    path = parties / "hub" / "agreement.toml"
    edit(path, "epsilon = 4.0", "epsilon = 5.0")
    (parties / "north" / "party.toml").unlink()
    assert main(["init", "owner", str(parties / "north"), "--agreement", str(path)]) == 1
    assert "not as the coordinator signed it" in capsys.readouterr().err


def test_an_agreement_with_another_key_for_an_owner_is_refused(parties, capsys):
    hub = parties / "hub"
    own = read_party(hub).tables["owners"]["north"]
    edit(hub / "party.toml", own, SigningKey.create().public)
    assert main(["init", "coordinator", str(hub), "--publish"]) == 0
    (parties / "north" / "party.toml").unlink()
    arguments = ["init", "owner", str(parties / "north"), "--agreement", f"{hub}/agreement.toml"]
    assert main(arguments) == 1
    assert "has another key" in capsys.readouterr().err


def test_a_certificate_is_for_the_name_that_owners_know(tmp_path):
    paths = [tmp_path / name for name in ("ca", "ca.key", "server", "server.key")]
    _credentials.make_authority(*paths[:2])
    for host in ("hub.example.org", "10.1.2.3"):
        _credentials.make_server_certificate(host, tuple(paths[:2]), *paths[2:])
        problems = _credentials.problems_of_certificates
        assert problems(host, paths[0], *paths[2:]) == []
        assert "not for other.org" in problems("other.org", paths[0], *paths[2:])[0]
    _credentials.make_authority(tmp_path / "ca 2", tmp_path / "ca 2.key")
    assert "was not signed by" in problems(host, tmp_path / "ca 2", *paths[2:])[0]


# ------------------------------------------------------------------------------------------ TOML


@pytest.mark.parametrize(
    ("party", "before", "after", "message"),
    [
        ("north", "epsilon = 4.0", "epsilon = '4'", r"line \d+: \[agreement\] epsilon must be"),
        ("north", "secure = true", "secur = true", r"line \d+: \[agreement\] secur is no key"),
        ("north", "[coordinator]\nkey", "[coordinator]\nkeys", "keys is no key"),
        ("north", "[files]", "[file]", "line 6: file is no key"),
        ("north", "epsilon = 4.0\n", "", "epsilon is missing"),
        ("north", "epsilon = 4.0", "epsilon = ", r"not written as TOML is: .* line \d+"),
        ("north", 'groups = ["men", "women"]', 'groups = ["a,b"]', "without commas"),
        ("north", 'party = "owner"', 'party = "guest"', 'party must be "owner" or'),
        ("north", 'name = "north"', 'name = "east"', "lacks east"),
        ("north", 'south = "ed25519:', 'south = "rsa:', r"\[owners\] south: a public key is"),
        ("hub", "south = \"ecdsa", "east = \"ecdsa", "must have the same names"),
        ("hub", "n-support = 8", "n-support = 8.5", "n-support must be a whole number"),
    ],
)  # fmt: skip
def test_errors_of_a_file_name_the_key_and_the_line(parties, party, before, after, message):
    edit(parties / party / "party.toml", before, after)
    with pytest.raises(SettingsError, match=message):
        read_party(parties / party)


def test_every_setting_of_flowers_apps_has_a_place():
    left_out = {"method", "candidates", "tol", "max-iter", "partition-id", "num-partitions"}
    party, hub = (_party.schema_of(kind, "barycenter") for kind in ("owner", "coordinator"))
    keys = {"key", "owner-keys"}
    told = {*party[""], *party["files"], *party["agreement"], *keys, "coordinator-key"} - {
        "party",
        "task",
    }
    assert told == set(_flower_settings._OWNER) - left_out
    told = {*hub["files"], *hub["run"], *hub["agreement"], *keys, "owners"} - {"restarts"}
    assert told == set(_flower_settings._RUN) - left_out
    for key, default in hub["run"].items():
        if key in _flower_settings._RUN:
            assert default == _flower_settings._RUN[key]


def test_two_owners_with_one_key_are_refused(parties):
    owners = read_party(parties / "hub").tables["owners"]
    edit(parties / "hub" / "party.toml", owners["south"], owners["north"])
    with pytest.raises(SettingsError, match="two owners have one key"):
        read_party(parties / "hub")


def test_a_folder_without_a_party_says_what_makes_it(tmp_path):
    with pytest.raises(SettingsError, match="`init` makes it"):
        read_party(tmp_path)


def test_files_are_what_flower_is_told(made):
    owner = read_owner(read_party(made / "north").node_config())
    assert owner.name == "north" and owner.data.startswith("300 rows and 2 columns")
    coordinator = read_run(read_party(made / "hub").run_config()).coordinator
    assert coordinator.owners == OWNERS and coordinator.method == "release"


# ------------------------------------------------------------------------------------- check


def checked(folder, capsys):
    code = main(["check", str(folder)])
    return code, capsys.readouterr().out


def test_what_init_made_is_good(made, capsys):
    for party in ("hub", *OWNERS):
        code, said = checked(made / party, capsys)
        assert code == 0 and "WRONG" not in said
        assert read_party(made / "hub").agreement().digest() in said
        assert str(SECRET) not in said


@pytest.mark.parametrize(
    ("party", "spoil", "message"),
    [
        ("north", lambda p: (p / "private" / "node").chmod(0o644), "chmod 600"),
        ("hub", lambda p: (p / "private" / "authority.key").chmod(0o640), "authority.key"),
        ("hub", lambda p: (p / "private" / "server.key").chmod(0o604), "chmod 600"),
        ("north", lambda p: (p / "rows.npz").unlink(), "there is no file"),
        ("north", lambda p: (p / "authority.crt").write_text("-\n"), "there is no certificate"),
        ("north", lambda p: (p / "private" / "ledger").unlink(), "no ledger at"),
        ("north", lambda p: replace_key(p / "private" / "signing.pem"), "Send your card again"),
        ("north", lambda p: edit(p / "party.toml", "[4.0, 4.0]", "[4.0]"), "high has 1"),
        ("hub", lambda p: edit(p / "party.toml", "localhost", "hub.org"), "is not for hub.org"),
        ("hub", lambda p: edit(p / "party.toml", "epsilon = 4.0", "epsilon = 3.0"), "--publish"),
        ("hub", lambda p: edit(p / "party.toml", "n-support = 8", "n-support = 0"), "at least 1"),
        ("hub", lambda p: (p / "private" / "server.key").unlink(), "--renew"),
    ],
)  # fmt: skip
def test_check_says_what_is_wrong(parties, party, spoil, message, capsys):
    spoil(parties / party)
    code, said = checked(parties / party, capsys)
    assert code == 1 and message in said
    assert str(SECRET) not in said


def replace_key(path):
    path.unlink()
    SigningKey.create().save(path)


def test_a_ledger_with_too_little_left_is_found_and_still_served(parties, capsys):
    edit(parties / "north" / "party.toml", "epsilon = 4.0", "epsilon = 6.0")
    code, said = checked(parties / "north", capsys)
    assert code == 1 and "the ledger does not allow the release" in said
    assert main(["check", "--before-serving", str(parties / "north")]) == 0


def test_a_port_in_use_is_found(parties, capsys):
    with socket.create_server(("127.0.0.1", _engine.port_of(read_party(parties / "hub")))):
        code, said = checked(parties / "hub", capsys)
    assert code == 1 and "is used by another program" in said


# ------------------------------------------------------------------------------ status, serve, run


def test_status_without_an_engine(made, capsys):
    assert main(["status", str(made / "north")]) == 0
    said = capsys.readouterr().out
    assert "the owner north: stopped" in said and "epsilon 0 of 5" in said
    assert main(["status", str(made / "hub")]) == 0
    said = capsys.readouterr().out
    assert "the SuperLink does not answer" in said and "last run: none" in said


def test_run_fails_without_an_engine(made, capsys):
    assert main(["run", str(made / "hub")]) == 1
    assert "start it with `serve`" in capsys.readouterr().err
    assert main(["run", str(made / "north")]) == 1


@pytest.mark.parametrize(
    ("first", "n_starts"),
    [
        ({"missing": {"north": "no answer"}}, 2),
        ({"cut_off": True}, 2),
        ({"missing": {"north": "the owner's ledger does not allow the release"}}, 1),
        ({"cut_off": False}, 1),
    ],
)
def test_a_run_is_started_again_where_that_may_help(made, monkeypatch, first, n_starts):
    failed = {"outcome": "failed", "reason": "x"} | first
    left = [failed, {"outcome": "completed"}]
    monkeypatch.setattr(_runs, "_once", lambda party, say: left.pop(0))
    monkeypatch.setattr(_runs.time, "sleep", lambda seconds: None)
    record = _runs.run(read_party(made / "hub"), print)
    assert 2 - len(left) == n_starts
    assert record["outcome"] == ("completed" if n_starts == 2 else "failed")


def test_serve_refuses_what_is_wrong(parties, capfd, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    (parties / "north" / "rows.npz").unlink()
    assert main(["serve", str(parties / "north")]) == 1
    assert "there is no file" in capfd.readouterr().out


def test_one_process_serves_a_folder(made):
    party = read_party(made / "north")
    with _engine._alone(party):
        assert _engine.is_served(party)
        with pytest.raises(SettingsError, match="another process serves"):
            _engine.serve(party, None, print)
    assert not _engine.is_served(party)


def grid_of(parties):
    from skdpot.federation import flower

    nodes = {place: read_party(parties / name).node_config() for place, name in enumerate(OWNERS)}
    return DirectGrid(lambda: flower.client_app, nodes)


def give_ticket(hub, ticket):
    (hub / "runs").mkdir(exist_ok=True)
    (hub / "private" / "ticket").write_text(ticket)


def test_a_run_is_recorded(parties, capsys):
    hub = parties / "hub"
    give_ticket(hub, "t")
    conduct_for_party(hub, "t", grid_of(parties))
    record = _records.last_record(read_party(hub))
    assert record["outcome"] == "completed" and record["seen"]["owners"] == list(OWNERS)
    assert record["agreement"] == read_party(parties / "north").agreement().digest()
    assert np.load(hub / "barycenter.npz")["support"].shape == (8, 2)
    assert not (hub / "private" / "ticket").exists()
    assert str(SECRET) not in json.dumps(record)
    main(["status", str(hub)])
    assert "last run: completed" in capsys.readouterr().out


def test_a_run_that_fails_is_recorded_with_its_reason(parties, capsys):
    hub = parties / "hub"
    edit(hub / "party.toml", "epsilon = 4.0", "epsilon = 3.0")
    give_ticket(hub, "t")
    with pytest.raises(RuntimeError):
        conduct_for_party(hub, "t", grid_of(parties))
    record = _records.last_record(read_party(hub))
    assert record["outcome"] == "failed" and set(record["missing"]) == set(OWNERS)
    main(["status", str(hub)])
    assert "last run: failed" in capsys.readouterr().out


def test_a_reason_of_an_owner_that_is_not_set_up_is_signed(parties):
    hub = parties / "hub"
    (parties / "north" / "rows.npz").write_bytes(b"")
    edit(hub / "party.toml", "n-attempts = 3", "n-attempts = 1")
    give_ticket(hub, "t")
    with pytest.raises(RuntimeError):
        conduct_for_party(hub, "t", grid_of(parties))
    missing = _records.last_record(read_party(hub))["missing"]
    assert missing == {"north": "the owner's app is not set up, as its log says."}


def test_a_node_in_the_name_of_another_owner_is_no_owner(parties):
    """It has the name, and even the data, but not the key."""
    hub, key = parties / "hub", parties / "thief.pem"
    SigningKey.create().save(key)
    edit(hub / "party.toml", "n-attempts = 3", "n-attempts = 1")
    grid = grid_of(parties)
    thief = read_party(parties / "north").node_config() | {"key": str(key), "owner-keys": ""}
    grid.restart(0, 10)
    grid.contexts[10].node_config = thief
    give_ticket(hub, "t")
    with pytest.raises(RuntimeError):
        conduct_for_party(hub, "t", grid)
    missing = _records.last_record(read_party(hub))["missing"]
    assert "not signed with its key" in missing["north"]


@pytest.mark.parametrize("ticket", ["", "guessed"])
def test_a_run_that_the_operator_did_not_ask_for_asks_nobody(parties, ticket):
    grid = grid_of(parties)
    for given in (None, "t"):
        if given:
            give_ticket(parties / "hub", given)
        with pytest.raises(SettingsError, match="was not asked for"):
            conduct_for_party(parties / "hub", ticket, grid)
    assert not grid.delivered


@pytest.mark.parametrize(
    ("peer", "path", "status"),
    [
        ("127.0.0.1", "/v1/control/start-run", 200),
        ("10.0.0.7", "/v1/control/start-run", 403),
        ("10.0.0.7", "/v1/runtime/acquire-task", 403),
        ("10.0.0.7", "/docs", 403),
        ("10.0.0.7", "/v1/fleet/pull-messages", 200),
        ("10.0.0.7", "/health", 200),
    ],
)  # fmt: skip
def test_other_machines_reach_the_interface_of_nodes_alone(peer, path, status):
    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "client": (peer, 1), "path": path}
    asyncio.run(_launched.OnlyOwnersFromOutside(answer)(scope, None, send))
    assert sent[0]["status"] == status


def test_flower_has_what_is_replaced_in_it():
    """Another version of Flower that lacks it is refused, and this test says so first."""
    script = (
        "from skdpot.federation._operation import _launched as l\n"
        "for name in ('flwr.superlink.extensions get_middleware',"
        "'flwr.superlink.runtime.run_serverapp run_',"
        "'flwr.supernode.runtime.run_clientapp get_load_client_app_fn'):\n"
        "    l._replace(*name.split(), lambda: None)\n"
        "for name in ('flwr.supercore.heartbeat', 'flwr.supernode.fleet_http_connection'):\n"
        "    l._replace(name, 'HEARTBEAT_DEFAULT_INTERVAL', l.HEARTBEAT)\n"
        "from flwr.common.constant import HEARTBEAT_MIN_INTERVAL, HEARTBEAT_PATIENCE\n"
        "from skdpot.federation._operation._engine import SILENCE\n"
        "assert HEARTBEAT_MIN_INTERVAL <= l.HEARTBEAT\n"
        "assert HEARTBEAT_PATIENCE * l.HEARTBEAT == SILENCE\n"
        "try: l._replace('flwr.superlink.extensions', 'get_nothing', print)\n"
        "except SystemExit as error: assert 'this version of Flower' in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=PROJECT, check=True)


def test_the_file_of_every_party_is_as_documented(made):
    """Comments apart, what init writes has every key, with the schema's own defaults."""
    for party, kind in (("hub", "coordinator"), ("north", "owner")):
        schema = _party.schema_of(kind, "barycenter")
        tables = tomllib.loads((made / party / "party.toml").read_text())
        for name, keys in schema.items():
            if name and keys is not None:
                assert set(tables[name]) == set(keys)


# ------------------------------------------------------------------------------------- containers


CONTAINERS = PROJECT / "examples" / "federation" / "containers"
INSTRUCTIONS = {"FROM", "COPY", "RUN", "USER", "WORKDIR", "ENV", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def test_the_containerfile_has_instructions_that_there_are():
    text = (CONTAINERS / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    assert lines[0][0] == "FROM" and {name for name, _ in lines} == INSTRUCTIONS
    told = dict(lines)
    command = json.loads(told["ENTRYPOINT"]) + json.loads(told["CMD"])
    assert command[:3] == ["python", "-m", "skdpot.federation"]
    _parser().parse_args(command[3:])
    for name, rest in lines:
        for source in rest.split()[:-1] if name == "COPY" else ():
            assert (PROJECT / source).exists(), source
    # Nobody is root when rows are read.
    assert [name for name, _ in lines].index("USER") < [name for name, _ in lines].index("CMD")


@pytest.mark.parametrize("party", ["coordinator", "owner"])
def test_compose_files_start_what_serves(party):
    composed = yaml.safe_load((CONTAINERS / f"{party}.yaml").read_text())
    (service,) = composed["services"].values()
    _parser().parse_args(service["command"])
    assert (CONTAINERS / service["build"]["context"]).resolve() == PROJECT
    assert (PROJECT / service["build"]["dockerfile"]).exists()
    assert all(volume.endswith(":/party") for volume in service["volumes"])
    assert ("ports" in service) is (party == "coordinator")
