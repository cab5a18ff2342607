"""Locally private samples of users' distributions."""

from skdpot.sampling._baselines import ExponentialMechanismSampler, KLProjectionSampler
from skdpot.sampling._files import release_files
from skdpot.sampling._spherical import SphericalProjectionSampler
from skdpot.sampling._wasserstein import WassersteinProjectionSampler

__all__ = [
    "ExponentialMechanismSampler",
    "KLProjectionSampler",
    "SphericalProjectionSampler",
    "WassersteinProjectionSampler",
    "release_files",
]
