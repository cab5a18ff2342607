"""What the parameters of all audits must satisfy."""

from typing import Any

import numpy as np


def check_probabilities(delta: Any, confidence: Any) -> None:
    """Raise unless delta and the confidence are in their ranges.

    Parameters
    ----------
    delta : float
        At least 0 and below 1.
    confidence : float
        Above 0 and below 1.

    Raises
    ------
    ValueError
        If one of them is not.

    Examples
    --------
    >>> from skdpot.privacy.audit._checks import check_probabilities
    >>> check_probabilities(1e-5, 0.95)
    >>> check_probabilities(-1.0, 0.95)
    Traceback (most recent call last):
    ValueError: delta must be at least 0 and below 1, got -1.0.
    """
    if not isinstance(delta, (int, float, np.floating)) or not 0 <= delta < 1:
        raise ValueError(f"delta must be at least 0 and below 1, got {delta!r}.")
    if not isinstance(confidence, (float, np.floating)) or not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, got {confidence!r}.")
