"""The weights that groups have in a barycenter."""

from typing import Any

import numpy as np


def weights_of_groups(weights: Any, sizes: np.ndarray) -> np.ndarray:
    """Return the weights of groups, with sum 1, or raise.

    Parameters
    ----------
    weights : {"proportional", "uniform"} or array-like of shape (n_groups,)
        What the user asks for.
    sizes : ndarray of shape (n_groups,)
        How many rows each has, or is said to have by what was released.

    Returns
    -------
    ndarray of shape (n_groups,)
        Non-negative, with sum 1.

    Raises
    ------
    ValueError
        If there is not one weight for each group, or they are no weights.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation._barycenter._group_weights import weights_of_groups
    >>> weights_of_groups("proportional", np.array([10, 30]))
    array([0.25, 0.75])
    >>> weights_of_groups([1, 1], np.array([10, 30]))
    array([0.5, 0.5])
    """
    if isinstance(weights, str):
        if weights not in ("proportional", "uniform"):
            raise ValueError(f"weights must be 'proportional' or 'uniform', got {weights!r}.")
        shares = sizes if weights == "proportional" else np.ones(len(sizes))
        return shares / shares.sum()
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (len(sizes),):
        raise ValueError(
            f"weights must be one number for each of the {len(sizes)} groups, got shape "
            f"{weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError("weights must be finite and non-negative, and not all zero.")
    # The sum of huge ones could be infinite.
    weights = weights / weights.max()
    return weights / weights.sum()
