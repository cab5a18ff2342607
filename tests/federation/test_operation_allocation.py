"""Folders of the parties of an allocation: made, checked and run, without an engine."""

import json
import shutil

import numpy as np
import pytest

from skdpot import PrivacyLedger
from skdpot.federation import AllocationCoordinator, allocation_nodes, run_allocation
from skdpot.federation.__main__ import main
from skdpot.federation._operation import _engine, _records
from skdpot.federation._operation._conduct import conduct_for_party
from skdpot.federation._operation._party import read_agreement, read_party
from skdpot.federation._settings_error import SettingsError
from skdpot.transport.consensus import LinearUtility, make_network
from tests.oracles.direct_grid import DirectGrid

N_ROUNDS = 12
WORTH = np.array([[5.0, 1.0], [4.0, 2.0], [1.0, 3.1234567]])
BOUNDS = {"target_bounds": [0.0, 2.0], "source_bounds": [[0.0, 3.0], [0.0, 2.0]]}
NODES = (*(f"target-{k}" for k in range(3)), "source-0", "source-1")


def make_parties(folder, epsilon):
    """Make all parties as their operators do."""
    for place, name in enumerate(NODES):
        init = ["init", "owner", str(folder / name), "--name", name]
        assert main([*init, "--budget", "3", "1e-5"]) == 0
        if place < 3:
            np.savez(folder / name / "utilities.npz", utilities=WORTH[place])
    np.savez(folder / "network.npz", adjacency=np.ones((3, 2)), **BOUNDS)
    cards = [str(folder / name / f"{name}.card.toml") for name in NODES]
    code = main(
        ["init", "coordinator", str(folder / "hub"), "--task=allocation", "--cards", *cards]
        + [f"--address=localhost:{_engine.free_port()}", f"--network={folder}/network.npz"]
        + [f"--rounds={N_ROUNDS}", f"--epsilon={epsilon}", "--delta=1e-6", "--marginals=0,6"]
        + ["--utilities-of=target", "--mechanism=messages"]
    )
    assert code == 0
    for name in NODES:
        agreement = str(folder / "hub" / "agreement.toml")
        assert main(["init", "owner", str(folder / name), "--agreement", agreement]) == 0
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_parties(tmp_path_factory.mktemp("allocation"), epsilon=2)


@pytest.fixture
def parties(made, tmp_path):
    """A copy that a test may spoil."""
    shutil.copytree(made, tmp_path / "parties")
    return tmp_path / "parties"


def conduct(folder):
    """Run as the operator's command does, without an engine; return the record."""
    from skdpot.federation import flower

    hub, nodes = folder / "hub", dict(enumerate(folder / name for name in NODES))
    (hub / "runs").mkdir(exist_ok=True)
    (hub / "private" / "ticket").write_text("t")
    configs = {place: read_party(node).node_config() for place, node in nodes.items()}
    try:
        conduct_for_party(hub, "t", DirectGrid(lambda: flower.client_app, configs))
    except RuntimeError:
        pass
    return _records.last_record(read_party(hub))


def edit(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_what_init_made_is_good_and_all_compute_one_digest(made, capsys):
    digest = read_agreement(made / "hub" / "agreement.toml").digest()
    for name in ("hub", *NODES):
        assert main(["check", str(made / name)]) == 0
        said = capsys.readouterr().out
        assert "WRONG" not in said and digest in said and "3.12" not in said
        if name.startswith("target"):
            assert "utilities of 2 edges" in said and "allows the release, of epsilon 2" in said
        elif name.startswith("source"):
            assert "no utilities to hide" in said
        else:
            assert "an allocation of 3 targets and 2 sources" in said


def test_a_run_is_recorded_charged_once_and_cannot_be_paid_twice(parties, capsys):
    record = conduct(parties)
    assert record["outcome"] == "completed" and f"rounds: {N_ROUNDS}" in record["found"]
    assert record["seen"]["owners"] == [name.replace("-", " ") for name in NODES]
    with np.load(parties / "hub" / "plan.npz") as found:
        plan = found["plan"].reshape(3, 2)
    with np.load(parties / "source-1" / "plan.npz") as part:
        assert (part["plan"] == plan[:, 1]).all()
    ledgers = [PrivacyLedger.open(parties / n / "private" / "ledger") for n in NODES]
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1, 0, 0]
    assert main(["status", str(parties / "hub")]) == 0
    assert "last run: completed" in capsys.readouterr().out
    record = conduct(parties)
    assert record["outcome"] == "failed" and "ledger does not allow" in record["reason"]
    assert set(record["missing"]) == {"target 0", "target 1", "target 2"}
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1, 0, 0]
    assert "3.1234" not in json.dumps(record)


def test_without_an_epsilon_it_is_not_private_and_the_plan_is_that_of_one_process(tmp_path, capsys):
    folder = make_parties(tmp_path, epsilon=0)
    assert main(["check", str(folder / "target-0")]) == 1
    assert "WRONG  epsilon must be above 0" in capsys.readouterr().out
    assert conduct(folder)["outcome"] == "failed"
    for name in NODES[:3]:
        edit(folder / name / "party.toml", 'ledger = "private/ledger"', 'ledger = ""')
    for command in ("check", "status"):
        assert main([command, str(folder / "target-0")]) == 0
        assert "PRIVATE" in capsys.readouterr().out
    assert main(["check", str(folder / "source-0")]) == 0
    assert "PRIVATE" not in capsys.readouterr().out
    assert conduct(folder)["outcome"] == "completed"
    network = make_network(np.ones((3, 2)), *BOUNDS.values())
    nodes = allocation_nodes(network, LinearUtility(WORTH.ravel()))
    wanted = run_allocation(nodes, AllocationCoordinator(network, n_rounds=N_ROUNDS))
    with np.load(folder / "hub" / "plan.npz") as found:
        assert (found["plan"] == wanted.plan).all() and (found["prices"] == wanted.prices).all()


@pytest.mark.parametrize(
    ("party", "before", "after", "message"),
    [
        ("target-0", "rounds = 12", "rounds = 12.5", "rounds must be a whole number"),
        ("target-0", "marginals = [0.0, 6.0]", "marginals = [0.0, 4.0]", "outside of its declared"),
        ("target-0", "marginals = [0.0, 6.0]", "marginals = []", "marginals must be"),
        ("target-0", 'ledger = "private/ledger"', 'ledger = ""', "an epsilon to be charged"),
        ("target-0", 'task = "allocation"', 'task = "auction"', "task must be one of"),
        ("target-0", 'task = "allocation"', 'task = "barycenter"', "is no key"),
        ("hub", 'edges = ["0 0"', 'edges = ["0-0"', "edges must be pairs of indices"),
        ("hub", 'edges = ["0 0"', 'edges = ["3 0"', "public key of each node"),
        ("hub", "target-bounds = [0.0, 2.0]", "target-bounds = [2.0]", "must be pairs"),
        ("hub", "rounds = 12", "rounds = 13", "--publish"),
        ("hub", 'mechanism = "messages"', 'mechanism = "input"', "or, with delta=0, one of"),
    ],
)
def test_check_says_what_is_wrong(parties, party, before, after, message, capsys):
    edit(parties / party / "party.toml", before, after)
    code = main(["check", str(parties / party)])
    said = capsys.readouterr()
    assert code == 1 and message in said.out + said.err


def test_a_node_is_named_by_its_role_and_index(parties):
    party = parties / "target-0" / "party.toml"
    key = read_party(parties / "target-0").tables["owners"]["target-0"]
    edit(party, 'name = "target-0"', 'name = "depot"')
    edit(party, f'target-0 = "{key}"', f'depot = "{key}"')
    with pytest.raises(SettingsError, match="such as target-0"):
        read_party(parties / "target-0").node_config()


def test_a_new_coordinator_needs_the_network(made, tmp_path, capsys):
    init = ["init", "coordinator", str(tmp_path / "hub"), "--task=allocation", "--address=a:1"]
    assert main([*init, "--cards", str(made / "target-0" / "target-0.card.toml")]) == 1
    assert "needs --network" in capsys.readouterr().err
    # No privacy has to be asked for.
    init += [f"--network={made}/network.npz", "--rounds=3"]
    assert main([*init, "--cards", str(made / "target-0" / "target-0.card.toml")]) == 1
    assert "needs --epsilon" in capsys.readouterr().err
