"""Parts of the arrays of a file, by how their names begin."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def with_prefix(arrays: Mapping[str, np.ndarray] | None, prefix: str) -> dict[str, np.ndarray]:
    """Return arrays by names that begin like this; empty without any.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._file_parts import part_of, with_prefix
    >>> named = with_prefix({"size": np.array(3)}, "noise.")
    >>> part_of({**named, "size": np.array(5)}, "noise.")
    {'size': array(3)}
    """
    return {prefix + name: array for name, array in (arrays or {}).items()}


def part_of(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names have a prefix, by the rest of the name."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def with_kinds(arrays: Mapping[str, np.ndarray], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays that have kinds, of these, or raise."""
    return {name: arrays[name].astype(kind, casting="safe") for name, kind in kinds.items()}
