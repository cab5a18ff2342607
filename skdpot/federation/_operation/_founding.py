"""New folders of parties: keys, certificates, a ledger, the TOML file, and files to send."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.privacy.ledger import PrivacyLedger

from .._allocation_settings import read_network
from .._keys import SigningKey
from .._settings_error import SettingsError
from ._credentials import make_authority, make_node_key, make_server_certificate
from ._engine import split_address
from ._party import (
    AGREEMENT,
    AUTHORITY,
    AUTHORITY_KEY,
    DECLARED,
    FILE,
    NODE_KEY,
    OUTPUTS,
    PRIVATE,
    SERVER,
    SERVER_KEY,
    SIGNING_KEY,
    Agreement,
    Card,
    check_name,
    read_agreement,
    read_card,
    read_party,
)
from ._tables import as_toml

Say = Callable[[str], None]

_DECLARED_TEXT = {
    "barycenter": """\
# What all parties have agreed to. If one of these changes, all parties must agree anew.
[agreement]
epsilon = {epsilon}
delta = {delta}  # 0 is Laplace noise
groups = {groups}
low = {low}  # bounds of the columns: public, and not learned from rows
high = {high}
kind = {kind}  # or "histogram", "moments"
noise = {noise}  # or "shared", which needs secure, and n-honest
n-honest = {n-honest}
owners-per-group = {owners-per-group}
secure = {secure}  # the coordinator sees sums only
threshold = {threshold}  # owners that a sum needs; 0 is two thirds
n-neighbours = {n-neighbours}  # owners with whom each shares keys; 0 is all
""",
    "allocation": """\
# What all parties have agreed to. If one of these changes, all parties must agree anew.
[agreement]
epsilon = {epsilon}  # of each node; 0 is NOT PRIVATE, and needs nodes without a ledger
delta = {delta}
marginals = {marginals}  # least and largest utility of a unit: public, and not learned
protect = {protect}  # the utility of one edge; or "node", all of a node
mechanism = {mechanism}  # noise on utilities, once; or "messages", on each, with a delta or not
utility = {utility}  # or "quadratic", "log", with utility-scale
utility-scale = {utility-scale}
utilities-of = {utilities-of}  # the other nodes have no utilities, and nothing to hide
rounds = {rounds}  # messages of each node
edges = {edges}  # of the target and the source
target-bounds = {target-bounds}  # least and largest amount: of all, or of each in turn
source-bounds = {source-bounds}
""",
}
_OWNER_TEXT = """\
# An owner. Paths are relative to this folder. `check` says what is wrong.
party = "owner"
task = {task}
name = {name}

[files]
data = {data}  # {content}, as np.savez writes them
ledger = "private/ledger"  # what may ever be released, and what was
state = "private/state"  # what was answered; never restore an old copy
outcome = {outcome}  # what was found, for this owner; "" is no file

[network]
superlink = {superlink}
certificate = "authority.crt"  # of who signed the SuperLink's certificate
port = 0  # of this machine's own processes; 0 is any that is free

{agreement}
# Public keys. With another key, nobody can answer in the name of an owner.
[owners]
{owners}

[coordinator]
key = {coordinator}
"""
_COORDINATOR_TEXT = """\
# The coordinator. Paths are relative to this folder. `check` says what is wrong.
party = "coordinator"
task = {task}

[files]
output = {output}
checkpoint = "private/checkpoint"  # a run that failed goes on from there

[network]
superlink = {superlink}  # as owners reach it
listen = {listen}  # where it listens
certificate = "authority.crt"
server-certificate = "server.crt"
server-key = "private/server.key"

[run]
{run}
n-attempts = 3  # number of times that owners are asked
timeout = 120.0  # seconds to wait in each part of a round
restarts = 2  # how often a run is started again in which owners did not answer

{agreement}
# After a change of anything that owners know: `init coordinator --publish`.
[owners]
{owners}

# What Flower knows the owners' nodes by.
[nodes]
{nodes}
"""


_RUN_TEXT = {
    "barycenter": """\
n-support = {n-support}  # number of points of the barycenter
weights = "proportional"  # of the groups; or "uniform", or numbers with commas
on-missing = "raise"  # or "drop": go on without owners that do not answer
max-rows = 10000000  # that an owner may declare: choose what is plausible
combine = "sum"  # or "median" over owners, against liars: for own noise, and secure = false""",
    "allocation": """\
eta = 1.0  # penalty of differing amounts in the first round
relaxation = 1.8
tol = 0.0  # to stop once both residuals are at most this; 0 is to make all rounds
average-from = {average-from}  # round from which amounts are averaged; 0 is to take the last""",
}
# Content of the data, and the default name of its file.
_DATA = {
    "barycenter": ("points and group", "rows.npz"),
    "allocation": ("utilities, one for each edge", "utilities.npz"),
}


def found_owner(options: argparse.Namespace, say: Say) -> None:
    """Make an owner's keys and ledger; with an agreement, the owner's file."""
    folder = Path(options.folder)
    cards = sorted(folder.glob("*.card.toml"))
    if options.agreement:
        if len(cards) != 1:
            raise SettingsError(f"there is no owner in {folder} yet: give --name first.")
        return _join(folder, read_card(cards[0]), options, say)
    if cards:
        raise SettingsError(f"{cards[0]} is there: this folder has an owner, with keys and ledger.")
    if not options.name or not options.budget:
        raise SettingsError("a new owner needs --name and --budget EPSILON DELTA.")
    name, private = check_name(options.name), _private_folder(folder)
    key = SigningKey.create()
    key.save(private / SIGNING_KEY)
    card = Card(name, key.public, make_node_key(private / NODE_KEY))
    with PrivacyLedger(*options.budget, path=private / "ledger"):
        path = folder / f"{name}.card.toml"
        path.write_text(card.text())
    say(f"made the owner {name} in {folder}, with a ledger of {_budget(options.budget)}.")
    say("Nothing in the folder private may ever leave this machine.")
    say(f"Send {path} to the coordinator, by mail if you like.")
    say(f"Tell the coordinator its fingerprint by telephone: {card.fingerprint()}")
    say("Then wait for the agreement, and give it to `init owner --agreement`.")


def _join(folder: Path, card: Card, options: argparse.Namespace, say: Say) -> None:
    """Write the file of an owner, from the agreement."""
    agreement = read_agreement(Path(options.agreement))
    if agreement.owners.get(card.name) != card.signing_key:
        raise SettingsError(
            f"in the agreement, {card.name} has another key, or none. Send the coordinator "
            f"{card.name}.card.toml once more, and compare its fingerprint: {card.fingerprint()}"
        )
    content, data = _DATA[agreement.task]
    if options.data:
        data = os.path.relpath(options.data, folder)
    text = _OWNER_TEXT.format(
        task=as_toml(agreement.task),
        content=content,
        outcome=as_toml(OUTPUTS[agreement.task]),
        name=as_toml(card.name),
        data=as_toml(data),
        superlink=as_toml(agreement.superlink),
        agreement=_declared_text(agreement.task, agreement.declared),
        owners=_lines(agreement.owners),
        coordinator=as_toml(agreement.coordinator),
    )
    _write_new(folder / FILE, text)
    (folder / AUTHORITY).write_text(agreement.certificate)
    say(f"wrote {folder / FILE}. Read what is under [agreement]: it is what you agree to.")
    say(f"Compare this digest with all other parties by telephone: {agreement.digest()}")
    say("A digest that differs means that not all have been told the same: stop then.")
    say(f"Next: python -m skdpot.federation check {folder}")


def found_coordinator(options: argparse.Namespace, say: Say) -> None:
    """Make a coordinator's keys, certificates and file, and the agreement for all owners."""
    folder = Path(options.folder)
    if options.renew:
        _renew(folder, say)
    elif options.publish:
        _publish(folder, say)
    else:
        _found_coordinator(folder, options, say)


def _found_coordinator(folder: Path, options: argparse.Namespace, say: Say) -> None:
    if not options.cards or not options.address:
        raise SettingsError("a new coordinator needs --address and --cards.")
    cards = [read_card(Path(card)) for card in options.cards]
    host, port = split_address(options.address, "superlink")
    task, told = options.task, vars(options) | _network_in(options)
    declared = {key: _option(told, key, default) for key, default in DECLARED[task].items()}
    of_run = {"n-support": options.n_support, "average-from": options.average_from}
    text = _COORDINATOR_TEXT.format(
        task=as_toml(task),
        output=as_toml(OUTPUTS[task]),
        run=_RUN_TEXT[task].format(**of_run),
        superlink=as_toml(options.address),
        listen=as_toml(options.listen or f"0.0.0.0:{port}"),
        agreement=_declared_text(task, declared),
        owners=_lines({card.name: card.signing_key for card in cards}),
        nodes=_lines({card.name: card.node_key for card in cards}),
    )
    private = _private_folder(folder)
    _write_new(folder / FILE, text)
    SigningKey.create().save(private / SIGNING_KEY)
    make_authority(folder / AUTHORITY, private / AUTHORITY_KEY)
    _certify(folder, host)
    say(f"made the coordinator in {folder}.")
    say("Nothing in the folder private may ever leave this machine.")
    for card in cards:
        say(f"Compare with {card.name} by telephone, fingerprint: {card.fingerprint()}")
    _publish(folder, say)


def _publish(folder: Path, say: Say) -> None:
    party = read_party(folder)
    agreement: Agreement = party.agreement()
    (folder / AGREEMENT).write_text(agreement.signed(party.signing_key()))
    say(f"Send {folder / AGREEMENT} to all owners, by mail if you like.")
    say(f"Compare its digest with every owner by telephone: {agreement.digest()}")
    say(f"Next: python -m skdpot.federation check {folder}")


def _renew(folder: Path, say: Say) -> None:
    party = read_party(folder)
    _certify(folder, split_address(party.tables["network"]["superlink"], "superlink")[0])
    say(f"wrote {folder / SERVER}. Owners notice nothing. Start `serve` again.")


def _certify(folder: Path, host: str) -> None:
    private = folder / PRIVATE
    authority = (folder / AUTHORITY, private / AUTHORITY_KEY)
    make_server_certificate(host, authority, folder / SERVER, private / SERVER_KEY)


def _private_folder(folder: Path) -> Path:
    private = folder / PRIVATE
    private.mkdir(parents=True, exist_ok=True)
    # Also if the folder existed before.
    private.chmod(0o700)
    return private


def _write_new(path: Path, text: str) -> None:
    if path.exists():
        raise SettingsError(f"{path} is there. Edit it; or move it away, to have a new one.")
    path.write_text(text)


def _network_in(options: argparse.Namespace) -> dict[str, Any]:
    """Return the network of an allocation, in the form of an agreement."""
    if options.task != "allocation":
        return {}
    if not options.network:
        raise SettingsError("a new coordinator of an allocation needs --network.")
    network = read_network(Path(options.network))
    told = {"edges": [f"{t} {s}" for t, s in np.argwhere(network["adjacency"]).tolist()]}
    for side in ("target", "source"):
        told[f"{side}_bounds"] = network[f"{side}_bounds"].astype(float).ravel().tolist()
    return told


def _option(options: Mapping[str, Any], key: str, default: Any) -> Any:
    """Return the value of a key of the agreement from the command line, or its default."""
    given = options.get(key.replace("-", "_"))
    if given is None:
        if isinstance(default, type):
            raise SettingsError(f"a new coordinator needs --{key}.")
        return default
    return given


def _declared_text(task: str, declared: Any) -> str:
    return _DECLARED_TEXT[task].format(**{key: as_toml(value) for key, value in declared.items()})


def _lines(table: Any) -> str:
    return "\n".join(f"{key} = {as_toml(value)}" for key, value in table.items())


def _budget(budget: Any) -> str:
    return "epsilon {:g} and delta {:g}".format(*budget)
