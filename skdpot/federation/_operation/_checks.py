"""Findings on a party's folder before a run, each with a remedy."""

import importlib.metadata
import importlib.util
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from skdpot.privacy.errors import BudgetExceededError
from skdpot.privacy.ledger import PrivacyLedger

from .._allocation_settings import privacy_in
from .._settings_error import SettingsError
from .._tasks import read_any_owner, read_any_run
from ._credentials import problems_of_authority, problems_of_certificates, public_node_key
from ._engine import answers, is_served, port_of, split_address
from ._party import AGREEMENT, AUTHORITY_KEY, NODE_KEY, SIGNING_KEY, Party, read_agreement, spoken

_LOWEST_FLOWER = (1, 41)


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes
    ----------
    good : bool or None
        Whether the check passed; None for information.
    text : str
        The finding, and what to do; without values of rows.
    is_fatal : bool
        Whether serving is useless if it is not good.
    """

    good: bool | None
    text: str
    is_fatal: bool = True

    def __str__(self) -> str:
        return f"{ {True: 'good ', False: 'WRONG', None: 'note '}[self.good] }  {self.text}"


def check(party: Party) -> list[Finding]:
    """Check everything that a party's run needs, and return the findings in order."""
    looks = [_engine, _keys, _roster]
    looks += [_rows, _owner_network] if party.is_owner else [_certificates, _run, _published]
    return [finding for look in looks for finding in _safely(look, party)]


def _safely(look: Callable[[Party], Iterator[Finding]], party: Party) -> Iterator[Finding]:
    try:
        yield from look(party)
    except (SettingsError, OSError, ValueError) as error:
        yield Finding(False, str(error))


def _engine(party: Party) -> Iterator[Finding]:
    for name in ("flwr", "cryptography", "Crypto"):
        if importlib.util.find_spec(name) is None:
            yield Finding(False, f'{name} is not installed: pip install "skdpot[federated]"')
            return
    version = importlib.metadata.version("flwr")
    good = tuple(map(int, version.split(".")[:2])) >= _LOWEST_FLOWER
    advice = "" if good else '; it is too old: pip install "skdpot[federated]"'
    yield Finding(good, f"Flower is of version {version}{advice}")


def _keys(party: Party) -> Iterator[Finding]:
    public = party.signing_key().public
    if party.is_owner:
        key = party.tables["owners"][party.name]
        advice = "" if key == public else ": the agreement is of another key. Send your card again"
        yield Finding(key == public, f"the signing key is that of {party.name}{advice}")
        public_node_key(party.private(NODE_KEY))
    names = (SIGNING_KEY, NODE_KEY) if party.is_owner else (SIGNING_KEY, AUTHORITY_KEY)
    paths = [party.private(name) for name in names]
    if not party.is_owner:
        paths.append(party.path("network", "server-key"))
    # The key of the authority may be kept elsewhere.
    for path in filter(Path.exists, paths):
        closed = not stat.S_IMODE(path.stat().st_mode) & 0o077
        yield Finding(
            closed, f"nobody else may read {path}{'' if closed else f': chmod 600 {path}'}"
        )


def _roster(party: Party) -> Iterator[Finding]:
    names = ", ".join(party.tables["owners"])
    yield Finding(len(party.tables["owners"]) > 1, f"the owners are {names}")
    yield Finding(
        None,
        f"the agreement's digest is {party.agreement().digest()}: compare it with every other "
        "party by telephone",
    )


def _rows(party: Party) -> Iterator[Finding]:
    settings = read_any_owner(party.node_config())
    yield Finding(True, f"the data has {settings.data}")
    if settings.event is None:
        if party.task == "barycenter":
            raise SettingsError("[agreement] epsilon must be above 0.")
        if party.node_config()["data"]:
            yield Finding(None, "what this node sends is NOT PRIVATE: it REVEALS THE UTILITIES")
        return
    ledger = PrivacyLedger.open(party.path("files", "ledger"))
    try:
        ledger.quote(settings.event, unit=settings.unit)
    except BudgetExceededError as error:
        # Earlier answers can still be repeated.
        yield Finding(False, f"the ledger does not allow the release: {error}", is_fatal=False)
    else:
        yield Finding(True, f"the ledger allows the release, of epsilon {settings.epsilon:g}")


def _owner_network(party: Party) -> Iterator[Finding]:
    problems = problems_of_authority(party.path("network", "certificate"))
    yield from _said(problems, "the certificate is valid")
    port = party.tables["network"]["port"]
    if port and answers("127.0.0.1", port) and not is_served(party):
        yield Finding(False, f"port {port} is used by another program: set [network] port = 0")
    superlink = party.tables["network"]["superlink"]
    if not answers(*split_address(superlink, "superlink")):
        yield Finding(None, f"nobody answers at {superlink} now: is the coordinator serving?")


def _certificates(party: Party) -> Iterator[Finding]:
    host, _ = split_address(party.tables["network"]["superlink"], "superlink")
    names = ("certificate", "server-certificate", "server-key")
    paths = [party.path("network", name) for name in names]
    yield from _said(
        problems_of_certificates(host, *paths),
        f"the SuperLink's certificate is valid, and for {host}",
        ": `init coordinator --renew` makes another one",
    )


def _run(party: Party) -> Iterator[Finding]:
    settings = read_any_run(party.run_config())
    if party.task == "allocation":
        privacy_in(party.of_nodes() | {"ledger": ""})
    yield Finding(True, f"the run is of {settings.goal}")
    port = port_of(party)
    if answers("127.0.0.1", port) and not is_served(party):
        yield Finding(False, f"port {port} is used by another program: change [network] listen")


def _published(party: Party) -> Iterator[Finding]:
    path = party.folder / AGREEMENT
    same = path.exists() and read_agreement(path).digest() == party.agreement().digest()
    advice = "" if same else ": `init coordinator --publish` writes it anew, for all owners"
    yield Finding(same, f"{path} says what the file says{advice}")
    for name, key in party.tables["nodes"].items():
        yield Finding(None, f"node key of {name}: {spoken(key.encode())}")


def _said(problems: list[str], otherwise: str, advice: str = "") -> Iterator[Finding]:
    for problem in problems:
        yield Finding(False, problem.rstrip(".") + advice)
    if not problems:
        yield Finding(True, otherwise)
