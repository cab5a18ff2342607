"""The two tasks of configurations, a barycenter and an allocation, and readers of both."""

from collections.abc import Mapping
from typing import Any

from ._allocation_settings import AllocationSettings, read_allocation, read_node
from ._flower_settings import OwnerSettings, RunSettings, read_owner, read_run
from ._settings_error import SettingsError


def read_any_owner(config: Mapping[str, Any]) -> OwnerSettings:
    """Return the owner, or the node, that a SuperNode's configuration describes."""
    task, rest = _task_of(config)
    return read_node(rest) if task == "allocation" else read_owner(rest)


def read_any_run(config: Mapping[str, Any]) -> RunSettings | AllocationSettings:
    """Return the settings of the run that a configuration describes."""
    task, rest = _task_of(config)
    return read_allocation(rest) if task == "allocation" else read_run(rest)


def _task_of(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the task of a configuration, and its other entries."""
    rest = dict(config)
    task = rest.pop("task", "barycenter")
    if task not in ("barycenter", "allocation"):
        raise SettingsError(f"task must be 'barycenter' or 'allocation', got {task!r}.")
    return task, rest
