"""Locally private samples of users' distributions."""

from skdpot.sampling._distributions import (
    ExponentialMechanismSampler,
    KLProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.sampling._files import release_files
from skdpot.sampling._spherical import SphericalProjectionSampler

__all__ = [
    "ExponentialMechanismSampler",
    "KLProjectionSampler",
    "SphericalProjectionSampler",
    "WassersteinProjectionSampler",
    "release_files",
]
