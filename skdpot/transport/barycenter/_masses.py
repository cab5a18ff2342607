"""Masses of several groups' points."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..polytope import check_weights


def check_masses(masses: Sequence[Any] | None, groups: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the masses of all groups' points, equal ones where none are given."""
    given = [None] * len(groups) if masses is None else masses
    if len(given) != len(groups):
        raise ValueError(f"masses are of {len(given)} groups, points of {len(groups)}.")
    return [
        np.full(len(group), 1 / len(group))
        if one is None
        else check_weights(one, len(group), f"masses[{s}]")
        for s, (one, group) in enumerate(zip(given, groups, strict=True))
    ]
