"""Values of configurations on Flower: their types, texts and files."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.privacy.errors import LedgerError

from ._keys import SigningKey
from ._settings_error import SettingsError

# Keys that Flower's simulations give to every node.
OF_SIMULATIONS = {"partition-id": 0, "num-partitions": 0}
_KINDS = {str: "text", float: "number", int: "whole", bool: "flag"}


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Turn errors about configured values into a SettingsError."""
    try:
        yield
    except (ValueError, LedgerError) as error:
        raise SettingsError(str(error)) from None


def checked(config: Mapping[str, Any], settings: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Return a value for every key, or raise if keys or types are wrong."""
    unknown = sorted(set(config) - set(settings))
    if unknown:
        raise SettingsError(f"{subject} has unknown keys: {', '.join(unknown)}.")
    given = {}
    for name, default in settings.items():
        kind = default if isinstance(default, type) else type(default)
        value = config.get(name, "" if kind is default else default)
        if kind is default and value == "":
            raise SettingsError(f"{subject} lacks {name}.")
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or isinstance(value, bool) != (kind is bool):
            raise SettingsError(f"{name} must be a {_KINDS[kind]}, got {value!r}.")
        given[name] = value
    return given


def checked_timeout(given: Mapping[str, Any]) -> float:
    if not 0 < given["timeout"] < math.inf:
        raise SettingsError(f"timeout must be positive and finite, got {given['timeout']!r}.")
    return float(given["timeout"])


def loaded(path: Path, name: str) -> Any:
    """Return the array in a file, or its arrays by name; nothing is unpickled."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {key: found[key] for key in found.files}
    except FileNotFoundError:
        raise SettingsError(f"{name}: there is no file {path.resolve()}.") from None
    except (OSError, ValueError, EOFError):
        raise SettingsError(
            f"{name}: {path} is not a readable NumPy file. Labels are saved as texts, "
            "np.asarray(labels, dtype=str), and not as objects."
        ) from None


def key_in(given: Mapping[str, Any]) -> SigningKey | None:
    """Return the private key in the configured file, None without a file."""
    try:
        return SigningKey.open(given["key"]) if given["key"] else None
    except OSError as error:
        raise SettingsError(f"the key cannot be read: {error}") from None


def publics_in(given: Mapping[str, Any]) -> dict[str, str] | None:
    """Return public keys by name, from a text like ``north=ed25519:..., south=ed25519:...``."""
    pairs = [one.partition("=") for one in given["owner-keys"].split(",") if one.strip()]
    return {name.strip(): public.strip() for name, _, public in pairs} or None


def names_in(text: str, name: str) -> list[str]:
    names = [one.strip() for one in text.split(",")]
    if not all(names):
        raise SettingsError(f"{name} must be names with commas between them, got {text!r}.")
    return names


def numbers_in(text: str, name: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise SettingsError(f"{name} must be numbers separated by commas, got {text!r}.") from None


def whole_numbers_in(text: str, name: str) -> list[int] | None:
    if not text:
        return None
    numbers = numbers_in(text, name)
    if not all(number.is_integer() for number in numbers):
        raise SettingsError(f"{name} must be whole numbers, got {text!r}.")
    return [int(number) for number in numbers]


def path_in(given: Mapping[str, Any], name: str) -> Path | None:
    """Return the path of a file to write, None for no file."""
    path = Path(given[name]) if given[name] else None
    if path is not None and not path.parent.is_dir():
        raise SettingsError(f"{name}: there is no folder {path.parent} to write {path.name} to.")
    return path


def files_of_run(
    given: Mapping[str, Any], *, is_charged: bool = True
) -> tuple[Path | None, Path | None]:
    """Return the files of the output and of the checkpoint, by default beside the output."""
    output, checkpoint = path_in(given, "output"), path_in(given, "checkpoint")
    if checkpoint is None and output is not None and is_charged:
        checkpoint = output.with_name(f"{output.name}.checkpoint")
    return output, checkpoint
