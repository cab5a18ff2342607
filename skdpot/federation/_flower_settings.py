"""Configuration of Flower runs and SuperNodes: keys, types and checks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.privacy.events import DpEvent
from skdpot.privacy.ledger import PrivacyLedger

from . import _config_values as values
from ._allocation._allocation_node import AllocationNode
from ._barycenter._agreement import BarycenterAgreement
from ._barycenter._barycenter_coordinator import BarycenterCoordinator
from ._barycenter._barycenter_owner import BarycenterOwner
from ._barycenter._group_release import GroupRelease
from ._carriers import Carrier, run_barycenter
from ._run_defaults import OF_RUNS
from ._secure_aggregation import SecureAggregation
from ._settings_error import SettingsError

# Keys of a configuration: a type for a required key, otherwise the default.
_RELEASE = {
    "epsilon": 0.0,
    "delta": 0.0,
    "groups": "",
    "low": "",
    "high": "",
    "kind": "auto",
    "noise": "own",
    "n-honest": 0,
    "owners-per-group": "",
}
_OWNER = {
    "name": str,
    "data": str,
    "secure": False,
    "threshold": 0,
    "n-neighbours": 0,
    "ledger": "",
    "state": "",
    "outcome": "",
    "key": "",
    "owner-keys": "",
    "coordinator-key": "",
    **_RELEASE,
    **values.OF_SIMULATIONS,
}
_RUN = {
    "owners": str,
    **OF_RUNS["barycenter"],
    "method": "release",
    **_RELEASE,
    "candidates": "",
    "secure": False,
    "threshold": 0,
    "n-neighbours": 0,
    "tol": 1e-3,
    "max-iter": 0,
    "output": "",
    "checkpoint": "",
    "key": "",
    "owner-keys": "",
}


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run.

    Attributes
    ----------
    coordinator : BarycenterCoordinator
        The coordinator.
    timeout : float
        Seconds to wait for answers in a leg of a round.
    output, checkpoint : Path or None
        Files that are written.
    """

    coordinator: BarycenterCoordinator
    timeout: float
    output: Path | None
    checkpoint: Path | None

    @property
    def goal(self) -> str:
        """Return the goal of the run, in words."""
        return f"a barycenter by the method {self.coordinator.method}"

    @property
    def n_done(self) -> int:
        """Return how many rounds were made."""
        return self.coordinator.n_rounds

    def about(self) -> list[str]:
        """Return lines that an operator should read before the first message."""
        coordinator = self.coordinator
        told = [f"method {coordinator.method}, owners {', '.join(coordinator.owners)}"]
        if coordinator.method != "release":
            told.append("NOT PRIVATE: messages of this algorithm, and sums of them, reveal rows")
        return told

    def run(self, carrier: Carrier, checkpoint: Path | None) -> BarycenterAgreement:
        """Run the rounds, and return the result."""
        return run_barycenter(
            self.coordinator, carrier, timeout=self.timeout, checkpoint=checkpoint
        )

    def outcome(self, found: BarycenterAgreement) -> tuple[str, dict[str, Any]]:
        """Return the result in words, and as arrays for a file."""
        arrays: dict[str, Any] = {"support": found.support, "owners": np.array(found.owners)}
        arrays |= {"objective": found.objective, "lower_bound": found.lower_bound}
        return f"objective {found.objective:.6g}, rounds: {found.n_rounds}", arrays

    def record(self, found: BarycenterAgreement) -> str:
        """Return the record of the messages, as JSON."""
        return found.record()


@dataclass(frozen=True, eq=False)
class OwnerSettings:
    """The settings of an owner's SuperNode.

    Attributes
    ----------
    name : str
        The owner's name.
    state, outcome : Path or None
        File of the owner's state, and file for the result.
    owner : BarycenterOwner or AllocationNode
        The owner with its rows, or the node.
    data : str
        Description of the owner's data, without values.
    event : DpEvent or None
        Event of the charge, as far as it is known; None without a guarantee.
    unit : str
        The unit that it protects.
    epsilon : float
        Its epsilon, 0 without a guarantee.
    """

    name: str
    state: Path | None
    outcome: Path | None
    owner: BarycenterOwner | AllocationNode
    data: str = ""
    event: DpEvent | None = None
    unit: str = "record"
    epsilon: float = 0.0


def read_owner(node_config: Mapping[str, Any]) -> OwnerSettings:
    """Make the owner that a SuperNode's configuration describes, or raise a SettingsError.

    The page on federations has a table of the keys.
    """
    given = values.checked(node_config, _OWNER, "the SuperNode's configuration")
    release = _release_in(given)
    if release is not None and not given["state"]:
        raise SettingsError(
            "a release needs state=, a file in which the owner keeps its answers. Without it, they "
            "are lost when the SuperNode stops, and the owner would release again."
        )
    points, group = _rows_in(Path(given["data"]))
    state = values.path_in(given, "state")
    # Errors mention only declared values, shapes and paths, as rows are known to be numbers.
    with values.readable():
        ledger = PrivacyLedger.open(given["ledger"]) if given["ledger"] else None
        owner = BarycenterOwner(
            given["name"],
            points,
            group,
            release=release,
            secure=_secure_in(given) or False,
            ledger=ledger,
            state=state,
            key=values.key_in(given),
            owners=values.publics_in(given),
            coordinator_key=given["coordinator-key"] or None,
        )
    outcome = values.path_in(given, "outcome")
    data = f"{points.shape[0]} rows and {points.shape[1]} columns of finite numbers"
    told = OwnerSettings(given["name"], state, outcome, owner, data)
    if release is None:
        return told
    return replace(told, event=release.promise, epsilon=release.epsilon)


def read_run(run_config: Mapping[str, Any]) -> RunSettings:
    """Make the coordinator that a run's configuration describes, or raise a SettingsError.

    The page on federations has a table of the keys.
    """
    given = values.checked(run_config, _RUN, "the run's configuration")
    owners = values.names_in(given["owners"], "owners")
    timeout = values.checked_timeout(given)
    if given["n-support"] < 1:
        raise SettingsError(f"n-support must be at least 1, got {given['n-support']!r}.")
    release = _release_in(given) if given["method"] == "release" else None
    if release is None and (given["method"] == "release" or given["epsilon"]):
        raise SettingsError(
            "an epsilon above 0 is for method='release', which needs one; the other algorithms "
            "are not private."
        )
    with values.readable():
        secure = _secure_in(given)
        if secure is not None:
            secure.for_owners(len(owners), given["n-honest"] or 1)
        publics = values.publics_in(given)
        if publics is not None and set(publics) != set(owners):
            raise SettingsError("owner-keys must have a public key of each of the owners.")
        coordinator = BarycenterCoordinator(
            owners if publics is None else {name: publics[name] for name in owners},
            given["n-support"],
            method=given["method"],
            release=release,
            candidates=_candidates_in(given["candidates"]),
            weights=_weights_in(given["weights"]),
            bounds=_bounds_in(given) if release is None else None,
            secure=secure,
            tol=given["tol"],
            max_iter=given["max-iter"] or None,
            on_missing=given["on-missing"],
            n_attempts=given["n-attempts"],
            max_rows=given["max-rows"],
            combine=given["combine"],
            key=values.key_in(given),
        )
    output, checkpoint = values.files_of_run(given, is_charged=release is not None)
    return RunSettings(coordinator, timeout, output, checkpoint)


def _release_in(given: Mapping[str, Any]) -> GroupRelease | None:
    """Return the configured release, None without an epsilon."""
    if not given["epsilon"]:
        return None
    bounds = _bounds_in(given)
    if bounds is None:
        raise SettingsError("a release needs low and high, the bounds of the features.")
    with values.readable():
        return GroupRelease(
            float(given["epsilon"]),
            values.names_in(given["groups"], "groups"),
            bounds=bounds,
            delta=float(given["delta"]),
            kind=given["kind"],
            noise=given["noise"],
            n_honest=given["n-honest"] or None,
            owners_per_group=values.whole_numbers_in(given["owners-per-group"], "owners-per-group"),
        )


def _bounds_in(given: Mapping[str, Any]) -> tuple[list[float], list[float]] | None:
    if bool(given["low"]) != bool(given["high"]):
        raise SettingsError("low and high are the bounds: give both, or none.")
    if not given["low"]:
        return None
    low, high = values.numbers_in(given["low"], "low"), values.numbers_in(given["high"], "high")
    if len(low) != len(high):
        raise SettingsError(f"low has {len(low)} numbers, and high has {len(high)}.")
    return low, high


def _secure_in(given: Mapping[str, Any]) -> SecureAggregation | None:
    if given["secure"]:
        return SecureAggregation(given["threshold"] or None, given["n-neighbours"] or None)
    if given["threshold"] or given["n-neighbours"]:
        raise SettingsError("threshold and n-neighbours are for secure = true.")
    return None


def _weights_in(text: str) -> Any:
    return text if text in ("proportional", "uniform") else values.numbers_in(text, "weights")


def _candidates_in(text: str) -> np.ndarray | None:
    if not text:
        return None
    candidates = values.loaded(Path(text), "candidates")
    if not isinstance(candidates, np.ndarray) or candidates.dtype.kind not in "fiu":
        raise SettingsError(f"candidates: {text} must hold one array of numbers (.npy).")
    return candidates


def _rows_in(path: Path) -> tuple[np.ndarray, Any]:
    """Return rows, and the label or labels of their groups as texts."""
    data = values.loaded(path, "data")
    if isinstance(data, np.ndarray) or {"points", "group"} - set(data):
        raise SettingsError(f"data: {path} must hold the arrays points and group (.npz).")
    points, group = data["points"], data["group"]
    if points.dtype.kind not in "fiu" or points.ndim != 2:
        raise SettingsError(f"data: points in {path} must be a matrix of numbers.")
    if group.dtype.kind not in "Uiu" or group.ndim > 1:
        raise SettingsError(f"data: group in {path} must be texts or integers, one or many.")
    # A configuration names groups by texts, so 1 and "1" are the same label.
    labels = group.astype(str)
    return points, labels.item() if labels.ndim == 0 else labels.tolist()
