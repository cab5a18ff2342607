"""The length of noise whose density falls exponentially with its Euclidean norm."""

from typing import Any

import numpy as np

from skdpot.privacy.noise import rounded_gaussian
from skdpot.privacy.random import NoiseSource

# A length of Gaussian coordinates exceeds its mean by more with a probability of exp(-2000).
LONGEST = 64.0
# Bits of the resolution of lengths. Lengths beyond 1.4 d + _FAR have a probability below
# exp(-1000), which no double can hold.
_RADIUS_BITS, _FAR = 38, 2000.0
# The proof sets smaller lengths aside.
_LARGEST_SHORT = 1 / 3


def spherical_slack(degree: Any) -> np.ndarray:
    """Return the part of a round's epsilon that covers the rounding of a length, in d dimensions.

    It is ``k (2.4 d + 2000) + 3 h`` for the best h, where k bounds the relative error of the length
    of a Gaussian vector with d + 1 coordinates, if the length is at least h. It is infinite in so
    many dimensions that no h is below a third, the limit of the proof
    (:ref:`proof-private-messages`).

    Examples
    --------
    >>> from skdpot.releases._spherical_noise import spherical_slack
    >>> bool(spherical_slack(4) < 5e-4)
    True
    """
    d = np.asarray(degree, dtype=np.float64)
    reach = 2.4 * d + _FAR
    shift = np.sqrt(d + 1.0) * 2.0**-_RADIUS_BITS
    h = np.sqrt(shift * reach / 3.0)
    relative = (1.0 + shift / h) * (1.0 + 2.0**-28) - 1.0
    return np.where(h < _LARGEST_SHORT, relative * reach + 3.0 * h, np.inf)


def random_lengths(source: NoiseSource, degrees: np.ndarray) -> np.ndarray:
    """Return lengths of Gaussian vectors in d + 1 dimensions, or slightly more."""
    sizes = degrees + 1
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    coordinates = rounded_gaussian(source, 2.0**_RADIUS_BITS, int(sizes.sum())).astype(np.float64)
    squares = np.add.reduceat(coordinates * coordinates, starts)
    shift = np.sqrt(sizes) / 2
    return np.ldexp((np.sqrt(squares) + shift) * (1.0 + 2.0**-30), -_RADIUS_BITS)
