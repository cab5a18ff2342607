"""The price of the published training of a generator: as published, and as proven.

Everything is computed from public numbers, without data.
"""

import math

import numpy as np

from skdpot.privacy.accounting import epsilon_of, renyi_divergence
from skdpot.privacy.checks import check_count, check_delta, check_positive
from skdpot.privacy.events import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

# The orders among which accountants of the paper's time took the best.
_ORDERS = np.concatenate([np.arange(1.1, 11.0, 0.1), np.arange(11.0, 65.0)])


def published_epsilon(
    noise_scale: float, delta: float, *, batch_size: int, sampling_rate: float, steps: int
) -> float:
    r"""Return the epsilon that the paper states for a training; it does not hold for this code.

    The paper counts every generated point's gradient as a separate query, with its own sample of
    records. But all gradients of a step are computed from one sample: see `sound_epsilon`.

    Parameters
    ----------
    noise_scale : float
        The paper's :math:`\sigma`: noise has the standard deviation :math:`2 \Delta \sigma`, where
        :math:`\Delta` is the norm that each point's gradient is clipped to.
    delta : float
        Above 0 and below 1.
    batch_size : int
        Generated points in a step.
    sampling_rate : float
        Probability with which a record is in a step's sample.
    steps : int
        Number of steps.

    Returns
    -------
    float
        Epsilon, of the Renyi divergences of the queries, with the conversion of the paper's
        definition 3.2.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    sound_epsilon : The epsilon that holds.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021, section 4.3.

    Examples
    --------
    The setting that is printed for MNIST:

    >>> from skdpot.published import published_epsilon, sound_epsilon
    >>> printed = dict(batch_size=50, sampling_rate=1 / 1200, steps=160_000)
    >>> round(published_epsilon(1.5, 1e-5, **printed), 1)
    10.0
    >>> round(sound_epsilon(1.5, 1e-5, **printed))
    846
    """
    query = PoissonSampledDpEvent(sampling_rate, GaussianDpEvent(noise_scale))
    n_queries = check_count("batch_size", batch_size) * check_count("steps", steps)
    divergences = renyi_divergence(SelfComposedDpEvent(query, n_queries), _ORDERS, "add_remove")
    return float(np.min(divergences + math.log(1 / check_delta(delta)) / (_ORDERS - 1)))


def sound_epsilon(
    noise_scale: float, delta: float, *, batch_size: int, sampling_rate: float, steps: int
) -> float:
    r"""Return the epsilon of a training whose gradients are clipped point by point.

    One record may change the gradients of all points. So the :math:`n` rows of a step are one
    query on one sample, with sensitivity :math:`2 \Delta \sqrt n`.

    Parameters
    ----------
    noise_scale : float
        The paper's :math:`\sigma`: noise has the standard deviation :math:`2 \Delta \sigma`, where
        :math:`\Delta` is the norm that each point's gradient is clipped to.
    delta : float
        Above 0 and below 1.
    batch_size : int
        Generated points in a step.
    sampling_rate : float
        Probability with which a record is in a step's sample.
    steps : int
        Number of steps.

    Returns
    -------
    float
        Epsilon, for the relation add/remove.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    published_epsilon : The epsilon that the paper claims.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021, algorithm 1. That the rows of
    a step are one query is proven in :ref:`proof-gradient-sensitivity`.

    Examples
    --------
    One step, of 160,000:

    >>> from skdpot.published import sound_epsilon
    >>> round(sound_epsilon(1.5, 1e-5, batch_size=50, sampling_rate=1 / 1200, steps=1), 1)
    13.8
    """
    noise_scale = check_positive("noise_scale", noise_scale)
    multiplier = noise_scale / math.sqrt(check_count("batch_size", batch_size))
    return epsilon_of(multiplier, delta, sampling_rate=sampling_rate, steps=steps)
