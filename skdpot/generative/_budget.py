"""How much noise a budget asks for, for whatever a generator releases."""

import math
from functools import lru_cache
from typing import Any

from skdpot.privacy.accounting import calibrate_noise_multiplier

# Of a larger budget no more is spent: there is next to no noise.
LARGEST_EPSILON = 1e6


# A search over other parameters asks for the same noise again and again.
@lru_cache(maxsize=256)
def least_noise(epsilon: float, delta: float, **options: Any) -> float:
    """Return the smallest noise multiplier within a budget.

    Parameters
    ----------
    epsilon, delta : float
        Budget.
    **options
        Of `calibrate_noise_multiplier`.

    Returns
    -------
    float
        Standard deviation of the noise over the sensitivity.

    Examples
    --------
    >>> from skdpot.generative._budget import least_noise
    >>> round(least_noise(1.0, 1e-5), 2)
    3.73
    """
    return calibrate_noise_multiplier(min(epsilon, LARGEST_EPSILON), delta, **options)


def rounded_up(epsilon: float, n_digits: int) -> float:
    """Return a number of so many digits, or about so many, that is not below this one.

    Examples
    --------
    >>> from skdpot.generative._budget import rounded_up
    >>> rounded_up(0.012341, 3)
    0.0124
    """
    places = n_digits - 1 - math.floor(math.log10(epsilon))
    return math.ceil(epsilon * 10**places) / 10**places
