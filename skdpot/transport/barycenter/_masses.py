"""Masses of several groups' points: checked, and as integers with one sum."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..network import integer_masses
from ..polytope import check_weights

_LARGEST_TOTAL = 2**52


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


def common_masses(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return weights (each of sum 1) as integers with one sum, exactly if all are equal weights.

    That sum is below 2**53, so that sums of these masses are exact as doubles, too. Otherwise
    weights are rounded to multiples of 2**-52.
    """
    total = math.lcm(*(len(one) for one in weights))
    if total <= _LARGEST_TOTAL and all((one == one[0]).all() for one in weights):
        return [np.full(len(one), total // len(one)) for one in weights]
    return [integer_masses(one) for one in weights]
