"""Allocations on Flower, and between real processes that are killed: the same numbers."""

import numpy as np
import pytest

from skdpot.federation import (
    AllocationCoordinator,
    FederationError,
    allocation_nodes,
    run_allocation,
)
from skdpot.privacy import PrivacyLedger
from skdpot.transport.consensus import LinearUtility, make_network
from tests.oracles.direct_grid import RUN, DirectGrid
from tests.oracles.federation_faults import Nursery, PartyElsewhere, Terms

# Flower's environment is set by the import above.
from flwr.app import Context, RecordDict  # isort: skip
from skdpot.federation import flower  # isort: skip
from skdpot.federation._tasks import read_any_owner  # isort: skip

N_ROUNDS = 12
WORTH = np.array([[5.0, 1.0], [4.0, 2.0], [1.0, 3.0]])
NETWORK = make_network(np.ones((3, 2)), (0, 2), [(0, 3), (0, 2)])
PRIVATE = {"epsilon": 2.0, "delta": 1e-6, "marginals": "0, 6", "rounds": N_ROUNDS}


def in_process(n_rounds=N_ROUNDS):
    nodes = allocation_nodes(NETWORK, LinearUtility(WORTH.ravel()))
    return run_allocation(nodes, AllocationCoordinator(NETWORK, n_rounds=n_rounds))


@pytest.fixture
def nodes(tmp_path):
    """Configurations of SuperNodes: three targets and two sources, without an epsilon."""
    made = {}
    for role, worth, neighbours, bounds in (
        ("target", WORTH, "0, 1", ["0, 2"] * 3),
        ("source", np.zeros((2, 3)), "0, 1, 2", ["0, 3", "0, 2"]),
    ):
        for index, (own, of_node) in enumerate(zip(worth, bounds, strict=True)):
            name = f"{role} {index}"
            np.savez(tmp_path / f"{name}.npz", utilities=own)
            made[10 + len(made)] = {
                "task": "allocation",
                "name": name,
                "neighbours": neighbours,
                "bounds": of_node,
                "data": str(tmp_path / f"{name}.npz"),
                "state": str(tmp_path / f"state of {name}"),
                "outcome": str(tmp_path / f"part of {name}.npz"),
            }
    return made


@pytest.fixture
def ledgers(nodes, tmp_path):
    """Give the targets a budget, and return their ledgers."""
    found = []
    for node in (10, 11, 12):
        path = tmp_path / f"ledger {node}"
        found.append(PrivacyLedger(3.0, 1e-5, path=path))
        nodes[node] |= PRIVATE | {"ledger": str(path)}
    return found


def run_server(grid, tmp_path, **settings):
    path = tmp_path / "network.npz"
    np.savez(
        path,
        adjacency=np.ones((3, 2)),
        target_bounds=[0.0, 2.0],
        source_bounds=[[0.0, 3.0], [0.0, 2.0]],
    )
    config = {
        "task": "allocation",
        "network": str(path),
        "rounds": N_ROUNDS,
        "timeout": 1.0,
        "output": str(tmp_path / "found.npz"),
        "checkpoint": str(tmp_path / "checkpoint"),
        **settings,
    }
    context = Context(run_id=RUN, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    flower.server_app(grid, context)


def direct_grid(nodes):
    return DirectGrid(lambda: flower.client_app, nodes)


def test_flower_comes_to_the_same_plan_and_tells_every_node_its_part(nodes, tmp_path, capfd):
    run_server(direct_grid(nodes), tmp_path)
    wanted = in_process()
    with np.load(tmp_path / "found.npz") as found:
        assert (found["plan"] == wanted.plan).all() and (found["prices"] == wanted.prices).all()
        assert found["targets"].tolist() == [0, 0, 1, 1, 2, 2]
        assert found["sources"].tolist() == [0, 1, 0, 1, 0, 1]
    with np.load(tmp_path / "part of source 1.npz") as part:
        assert (part["plan"] == wanted.plan.reshape(3, 2)[:, 1]).all()
    said = capfd.readouterr().out
    assert "3 targets and 2 sources" in said and "NOT PRIVATE" in said
    assert f"rounds: {N_ROUNDS}" in said


def test_a_run_that_stopped_goes_on_and_is_charged_once(nodes, ledgers, tmp_path, capfd):
    grid = direct_grid(nodes)
    grid.silence_after(25, 13)
    settings = {"n-attempts": 1, "timeout": 0.1}
    with pytest.raises(FederationError, match="source 0 .no answer"):
        run_server(grid, tmp_path, **settings)
    # All SuperNodes are started anew, with other identifiers.
    run_server(direct_grid({node + 50: of for node, of in nodes.items()}), tmp_path, **settings)
    assert "continuing after" in capfd.readouterr().out
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1]
    # The next run is another one, and there is no budget for it.
    with pytest.raises(FederationError, match="ledger does not allow"):
        run_server(direct_grid(nodes), tmp_path, **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "depot 1"}, "'target' or 'source' and an index"),
        ({"state": ""}, "state= must be a file"),
        ({"bounds": "0"}, "least and the largest amount"),
        ({"bounds": "2, 1"}, "bounds must be finite"),
        ({"neighbours": "0"}, "one per neighbour"),
        ({"neighbours": "0, x"}, "neighbours must be numbers"),
        ({"utility": "cubic"}, "utility must be one of"),
        ({"epsilon": 1.0}, "marginals"),
        ({"epsilon": 1.0, "marginals": "0, 4"}, "outside of its declared marginal_bounds"),
        ({"colour": "red"}, "unknown keys: colour"),
        ({"task": "transport"}, "task must be"),
    ],
)
def test_wrong_settings_of_a_node_are_said_without_its_utilities(nodes, changes, message):
    with pytest.raises(flower.SettingsError, match=message) as error:
        read_any_owner(nodes[10] | changes)
    assert "5.0" not in str(error.value)


@pytest.mark.parametrize("family", ["quadratic", "log"])
def test_families_are_private_with_a_public_scale(nodes, family):
    changes = PRIVATE | {"utility": family, "utility-scale": 0.5, "marginals": "0, 12"}
    assert read_any_owner(nodes[11] | changes).owner.epsilon == 2.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "n_rounds"),
        ({"timeout": 0.0}, "timeout"),
        ({"network": "nowhere.npz"}, "network"),
        ({"eta": -1.0}, "eta"),
    ],
)
def test_wrong_settings_of_a_run_are_found_before_anything_is_asked(settings, message, tmp_path):
    with pytest.raises(flower.SettingsError, match=message):
        run_server(direct_grid({}), tmp_path, **settings)


# ------------------------------------------------------------------------------- real processes


class Processes:
    """A carrier to real processes, some of which are killed while they answer."""

    def __init__(self, nodes, rng, share, nursery, folder):
        self.rng, self.share, self.n_killed, self.parties = rng, share, 0, {}
        for config in nodes.values():
            told = {key: value for key, value in config.items() if key != "task"}
            self.parties[config["name"]] = PartyElsewhere(nursery, told, folder, Terms(), "node")

    def exchange(self, messages, timeout=None):
        arrived = []
        for name, data in messages.items():
            moment = self.rng.random() if self.rng.random() < self.share else None
            self.n_killed += moment is not None
            answer = self.parties[name].answer(data, moment)
            if answer is not None:
                arrived.append((name, answer))
        return arrived

    def stop(self):
        for party in self.parties.values():
            party.stop()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("nursery") / "socket") as made:
        yield made


@pytest.fixture
def killed(nodes, nursery, tmp_path):
    """Return a function that runs nodes that are killed, and says how many processes were."""

    def run(seed, share):
        carrier = Processes(nodes, np.random.default_rng(seed), share, nursery, tmp_path)
        coordinator = AllocationCoordinator(NETWORK, n_rounds=N_ROUNDS)
        path = tmp_path / "checkpoint"
        try:
            return run_allocation(carrier, coordinator, n_attempts=50, checkpoint=path)
        finally:
            carrier.stop()
            assert carrier.n_killed > 3

    return run


@pytest.mark.experiment
@pytest.mark.parametrize("seed", range(3))
def test_processes_that_are_killed_come_to_the_same_plan(seed, killed):
    assert (killed(seed, 0.1).plan == in_process().plan).all()


@pytest.mark.experiment
def test_processes_that_are_killed_are_charged_once(killed, ledgers):
    killed(7, 0.15)
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1]
