"""A party's folder: its TOML file, and the parts for Flower and for the agreement."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._keys import SigningKey, checked_public, is_signed
from .._run_defaults import OF_RUNS
from .._settings_error import SettingsError
from ._tables import Schema, Tables, read_tables, written

FILE, PRIVATE = "party.toml", "private"
SIGNING_KEY, NODE_KEY = "signing.pem", "node"
AUTHORITY_KEY, SERVER_KEY = "authority.key", "server.key"
AUTHORITY, SERVER = "authority.crt", "server.crt"
AGREEMENT = "agreement.toml"
OUTPUTS = {"barycenter": "barycenter.npz", "allocation": "plan.npz"}

# Values that all parties agree on, with the keys of runs and of SuperNodes.
DECLARED: dict[str, dict[str, Any]] = {
    "barycenter": {
        "epsilon": float,
        "delta": 0.0,
        "groups": list,
        "low": list,
        "high": list,
        "kind": "auto",
        "noise": "own",
        "n-honest": 0,
        "owners-per-group": [],
        "secure": True,
        "threshold": 0,
        "n-neighbours": 0,
    },
    "allocation": {
        # Required: 0 means no privacy.
        "epsilon": float,
        "delta": 0.0,
        "marginals": [],
        "protect": "parameter",
        "mechanism": "input",
        "utility": "linear",
        "utility-scale": 1.0,
        "utilities-of": ["target", "source"],
        "rounds": int,
        "edges": list,
        "target-bounds": list,
        "source-bounds": list,
    },
}
TASKS = tuple(DECLARED)
# Keys that only the coordinator's run gets, not the nodes.
_OF_NETWORK = ("edges", "target-bounds", "source-bounds")
# The number of restarts is not passed to Flower.
_RUN = {task: {**told, "restarts": 2} for task, told in OF_RUNS.items()}
_CARD: Schema = {"": {"name": str, "signing-key": str, "node-key": str}}


def schema_of(party: str, task: str) -> Schema:
    """Return the keys of a party's file, or of an "agreement", for a task."""
    agreed: dict[str, Any] = {"agreement": DECLARED[task], "owners": None}
    if party == "owner":
        return {
            "": {"party": str, "task": TASKS[0], "name": str},
            "files": {
                "data": str,
                "ledger": f"{PRIVATE}/ledger",
                "state": f"{PRIVATE}/state",
                "outcome": "",
            },
            "network": {"superlink": str, "certificate": AUTHORITY, "port": 0},
            **agreed,
            "coordinator": {"key": str},
        }
    if party == "agreement":
        return {
            "": {"task": TASKS[0]},
            "network": {"superlink": str, "certificate": str},
            **agreed,
            "coordinator": {"key": str, "signature": str},
        }
    return {
        "": {"party": str, "task": TASKS[0]},
        "files": {"output": OUTPUTS[task], "checkpoint": f"{PRIVATE}/checkpoint"},
        "network": {
            "superlink": str,
            "listen": str,
            "certificate": AUTHORITY,
            "server-certificate": SERVER,
            "server-key": f"{PRIVATE}/{SERVER_KEY}",
        },
        "run": _RUN[task],
        **agreed,
        "nodes": None,
    }


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PURPOSE = "agreement of a federation"
_ROLES = ("target", "source")


@dataclass(frozen=True)
class Party:
    """The content of a party's file, with absolute paths.

    Attributes
    ----------
    folder : Path
        The party's folder, an absolute path.
    tables : dict of str to dict
        Tables of its file.
    """

    folder: Path
    tables: Tables

    @property
    def is_owner(self) -> bool:
        return self.tables[""]["party"] == "owner"

    @property
    def task(self) -> str:
        return self.tables[""]["task"]

    @property
    def name(self) -> str:
        return self.tables[""].get("name", "coordinator")

    @property
    def has_ledger(self) -> bool:
        return bool(self.tables["files"]["ledger"])

    def path(self, table: str, key: str) -> Path:
        """Return the path of a key, which is relative to the folder."""
        return self.folder / self.tables[table][key]

    def private(self, name: str) -> Path:
        """Return the path of a file in the private folder."""
        return self.folder / PRIVATE / name

    def signing_key(self) -> SigningKey:
        """Return the party's own key."""
        return SigningKey.open(self.private(SIGNING_KEY))

    def agreement(self) -> "Agreement":
        """Return the agreement of all parties, as this party knows it."""
        is_owner = self.is_owner
        key = self.tables["coordinator"]["key"] if is_owner else self.signing_key().public
        return Agreement(
            self.tables["network"]["superlink"],
            _text_of(self.path("network", "certificate")),
            self.tables["agreement"],
            self.tables["owners"],
            key,
            self.task,
        )

    def node_config(self) -> dict[str, Any]:
        """Return the configuration of an owner's SuperNode."""
        outcome = self.tables["files"]["outcome"]
        if self.tables["agreement"]["epsilon"] and not self.has_ledger:
            raise SettingsError("[files] ledger must be a file: there is an epsilon to be charged.")
        told = {
            "name": address_of(self.name, self.task),
            "data": str(self.path("files", "data")),
            "ledger": str(self.path("files", "ledger")) if self.has_ledger else "",
            "state": str(self.path("files", "state")),
            "outcome": str(self.folder / outcome) if outcome else "",
            "coordinator-key": self.tables["coordinator"]["key"],
            "key": str(self.private(SIGNING_KEY)),
        }
        if self.task == "allocation":
            return told | {"task": self.task} | self._place_in_network()
        return told | {"owner-keys": self._owner_keys()} | _flat(self.tables["agreement"])

    def run_config(self) -> dict[str, Any]:
        """Return the configuration of a run of the coordinator."""
        run = {key: value for key, value in self.tables["run"].items() if key != "restarts"}
        told = {
            "output": str(self.path("files", "output")),
            "checkpoint": str(self.path("files", "checkpoint")),
            "key": str(self.private(SIGNING_KEY)),
            "owner-keys": self._owner_keys(),
            **run,
        }
        agreed = _flat(self.tables["agreement"])
        if self.task == "allocation":
            agreed = {key: agreed[key] for key in (*_OF_NETWORK, "rounds")}
            return told | {"task": self.task} | agreed
        return told | {"owners": ",".join(self.tables["owners"])} | agreed

    def _owner_keys(self) -> str:
        """Return the public keys of all owners as a text, for Flower."""
        owners = self.tables["owners"].items()
        return ",".join(f"{address_of(name, self.task)}={key}" for name, key in owners)

    def _place_in_network(self) -> dict[str, Any]:
        """Return a node's edges and bounds, and the agreed facts about its utilities."""
        agreed = self.tables["agreement"]
        role, _, index = self.name.partition("-")
        if role not in _ROLES or not index.isdecimal():
            raise SettingsError(f"a node's name is such as target-0, got {self.name}.")
        place, pairs = _ROLES.index(role), [edge.split() for edge in agreed["edges"]]
        neighbours = [ends[1 - place] for ends in pairs if ends[place] == index]
        bounds = agreed[f"{role}-bounds"]
        first = 0 if len(bounds) == 2 else 2 * int(index)
        told = {"neighbours": ", ".join(neighbours), "bounds": _text(bounds[first : first + 2])}
        if role not in agreed["utilities-of"]:
            return told | {"data": ""}
        return told | self.of_nodes()

    def of_nodes(self) -> dict[str, Any]:
        """Return the agreed facts about the utilities of all nodes of an allocation."""
        left = ("utilities-of", *_OF_NETWORK)
        agreed = self.tables["agreement"].items()
        return _flat({key: value for key, value in agreed if key not in left})


def read_party(folder: Path) -> Party:
    """Return the party of a folder that ``init`` made.

    A SettingsError names the key and the line of a wrong entry.
    """
    folder = Path(folder).resolve()
    path = folder / FILE
    if not path.exists():
        raise SettingsError(f"there is no {FILE} in {folder}: `init` makes it.")
    kind = _word_in(path, "party", "")
    if kind not in ("owner", "coordinator"):
        raise SettingsError(f'{path}: party must be "owner" or "coordinator".')
    party = Party(folder, read_tables(path, schema_of(kind, _task_in(path))))
    _check_roster(party.tables["owners"], path)
    if party.is_owner and party.name not in party.tables["owners"]:
        raise SettingsError(f"{path}: [owners] lacks {party.name}, whose file this is.")
    if not party.is_owner and set(party.tables["nodes"]) != set(party.tables["owners"]):
        raise SettingsError(f"{path}: [owners] and [nodes] must have the same names.")
    return party


@dataclass(frozen=True)
class Agreement:
    """The agreement of all parties: public, and the same for all.

    Attributes
    ----------
    superlink : str
        Address of the coordinator's SuperLink. It may change, so it is not in the digest.
    certificate : str
        Certificate of the authority that signed the SuperLink's.
    declared : dict
        Parameters of the release.
    owners : dict of str to str
        Public keys of owners, by name.
    coordinator : str
        Public key of the coordinator.
    task : {"barycenter", "allocation"}
        The task of the parties, which also follows from the keys of `declared`.
    """

    superlink: str
    certificate: str
    declared: Mapping[str, Any]
    owners: Mapping[str, str]
    coordinator: str
    task: str = TASKS[0]

    def digest(self) -> str:
        """Return a digest to compare by telephone.

        It has 160 bits, so two agreements with the same digest need about 2**80 attempts.
        """
        return spoken(self._content())

    def signed(self, key: SigningKey) -> str:
        """Return the text of a file with the agreement and the coordinator's signature."""
        signature = base64.b64encode(key.sign(_PURPOSE, self._content())).decode()
        coordinator = {"key": self.coordinator, "signature": signature}
        network = {"superlink": self.superlink, "certificate": self.certificate}
        text = written(
            {
                "": {} if self.task == TASKS[0] else {"task": self.task},
                "network": network,
                "agreement": self.declared,
                "owners": self.owners,
                "coordinator": coordinator,
            }
        )
        return (
            f"# What all agree to. Nothing in it is secret.\n# Its digest: {self.digest()}\n{text}"
        )

    def _content(self) -> bytes:
        told = [self.certificate, dict(self.declared), dict(self.owners), self.coordinator]
        return json.dumps(told, sort_keys=True).encode()


def read_agreement(path: Path) -> Agreement:
    """Return the agreement in a file; raise if the coordinator has not signed it."""
    task = _task_in(path)
    tables = read_tables(path, schema_of("agreement", task))
    _check_roster(tables["owners"], path)
    network, coordinator = tables["network"], tables["coordinator"]
    agreement = Agreement(
        network["superlink"],
        network["certificate"],
        tables["agreement"],
        tables["owners"],
        coordinator["key"],
        task,
    )
    try:
        signature = base64.b64decode(coordinator["signature"], validate=True)
        signed = is_signed(agreement.coordinator, _PURPOSE, agreement._content(), signature)
    except ValueError:
        signed = False
    if not signed:
        raise SettingsError(f"{path} is not as the coordinator signed it: ask for it again.")
    return agreement


@dataclass(frozen=True)
class Card:
    """An owner's name and the public halves of its keys, for the coordinator."""

    name: str
    signing_key: str
    node_key: str

    def fingerprint(self) -> str:
        """Return a digest to compare by telephone."""
        return spoken(json.dumps([self.name, self.signing_key, self.node_key]).encode())

    def text(self) -> str:
        """Return the text of a file with the card."""
        card = {"name": self.name, "signing-key": self.signing_key, "node-key": self.node_key}
        return (
            f"# Who {self.name} is. Nothing in it is secret.\n"
            f"# Its fingerprint: {self.fingerprint()}\n{written({'': card})}"
        )


def read_card(path: Path) -> Card:
    """Return the owner's card in a file."""
    card = read_tables(path, _CARD)[""]
    _check_roster({card["name"]: card["signing-key"]}, path)
    if not card["node-key"].startswith("ecdsa-sha2-nistp384 "):
        raise SettingsError(f"{path}: node-key must be a public key as `ssh-keygen` writes it.")
    return Card(card["name"], card["signing-key"], card["node-key"])


def check_name(name: str) -> str:
    """Return an owner's name, or raise if it is no valid part of a file's name."""
    if not _NAME.fullmatch(name):
        raise SettingsError(f"a name is made of letters, digits, - and _, got {name!r}.")
    return name


def spoken(content: bytes) -> str:
    """Return a digest of 160 bits in short groups, to be read aloud."""
    digits = hashlib.sha256(content).hexdigest()[:40]
    return "-".join(digits[start : start + 4] for start in range(0, 40, 4))


def _check_roster(owners: Mapping[str, str], path: Path) -> None:
    for name, key in owners.items():
        try:
            checked_public(key)
        except ValueError as error:
            raise SettingsError(f"{path}: [owners] {check_name(name)}: {error}") from None
        check_name(name)
    if len(set(owners.values())) < len(owners):
        raise SettingsError(f"{path}: two owners have one key.")


def address_of(name: str, task: str) -> str:
    """Return an owner's name in messages: the node ``target-0`` is ``target 0``."""
    return name.replace("-", " ") if task == "allocation" else name


def _task_in(path: Path) -> str:
    """Return the task that a file names."""
    task = _word_in(path, "task", TASKS[0])
    if task not in TASKS:
        raise SettingsError(f"{path}: task must be one of {', '.join(TASKS)}.")
    return task


def _word_in(path: Path, key: str, otherwise: str) -> str:
    """Return the text of a key that determines the schema of the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return otherwise
    found = re.search(rf'^\s*{key}\s*=\s*"(\w+)"', text, re.MULTILINE)
    return found[1] if found else otherwise


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip() + "\n"
    except (OSError, ValueError):
        raise SettingsError(f"there is no certificate in {path}.") from None


def _flat(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return declared values for Flower: lists become texts with commas."""
    return {
        key: _text(value) if isinstance(value, list) else value for key, value in declared.items()
    }


def _text(values: list[Any]) -> str:
    return ",".join(map(str, values))
