"""Values that the fit of a sketch hands to its noise: kept, replayed on other records, attacked."""

import math
from dataclasses import dataclass
from unittest import mock

import numpy as np

from skdpot.releases import SketchReleases

_HONEST = SketchReleases.run


@dataclass(frozen=True)
class Made:
    """A release: its integers, what is declared of them, and what left."""

    sums: np.ndarray
    sensitivity: float
    deviation: float
    released: np.ndarray


def transcript_of(fit, given=None, release=_HONEST):
    """Return the releases of a fit by name, in order.

    Those that are given are made of numbers that are given, too, whatever the records.
    """
    made = {}

    def watched(releases, name, sums, sensitivity):
        sums = np.array(sums)
        deviation = releases.standard_deviation(name, sensitivity)
        bound = sensitivity(relation="add_remove")
        if given is not None and name in given:
            released = given[name].released.copy()
            assert released.shape == sums.shape
        else:
            released = release(releases, name, sums.copy(), sensitivity)
        made[name] = Made(sums, bound, deviation, released.copy())
        return released

    with mock.patch.object(SketchReleases, "run", watched):
        fit()
    return made


def squared_norm(integers):
    """Return the squared Euclidean norm of integers, exactly."""
    assert np.asarray(integers).dtype.kind == "i"
    return sum(entry**2 for entry in np.ravel(integers).tolist())


def moved_by(one, other):
    """Return how far apart integers of two transcripts are, as parts of the sensitivity."""
    assert one.keys() == other.keys()
    return {
        name: math.sqrt(squared_norm(made.sums - other[name].sums)) / made.sensitivity
        for name, made in one.items()
    }


def squared_mu(one, other):
    """Return the squared distance of two transcripts in units of their noise."""
    return sum(squared_norm(m.sums - other[name].sums) / m.deviation**2 for name, m in one.items())
