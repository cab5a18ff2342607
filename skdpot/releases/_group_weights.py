"""The weights that groups have in a barycenter."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def group_weights(weights: Any, sizes: np.ndarray, names: np.ndarray | None = None) -> np.ndarray:
    """Return the weights of groups, non-negative with sum 1, or raise.

    `weights` is the user's parameter: "proportional", "uniform", one number for each group, or a
    dict with one for each label in `names`. `sizes` are numbers of rows, possibly as released.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases import group_weights
    >>> group_weights("proportional", np.array([10, 30]))
    array([0.25, 0.75])
    >>> group_weights({"b": 1, "a": 1}, np.array([10, 30]), np.array(["a", "b"]))
    array([0.5, 0.5])
    """
    if isinstance(weights, str):
        if weights not in ("proportional", "uniform"):
            raise ValueError(f"weights must be 'proportional' or 'uniform', got {weights!r}.")
        shares = sizes if weights == "proportional" else np.ones(len(sizes))
        return shares / shares.sum()
    if names is not None and isinstance(weights, Mapping):
        if set(weights) != set(names.tolist()):
            raise ValueError(
                f"weights must have the labels of the {len(names)} groups as keys, no more and no "
                f"fewer, got {len(weights)} keys."
            )
        weights = [weights[name] for name in names.tolist()]
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (len(sizes),):
        raise ValueError(
            f"weights must be {len(sizes)} numbers, one per group, got shape {weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError("weights must be finite and non-negative, and not all zero.")
    # The sum of very large weights could overflow.
    weights = weights / weights.max()
    return weights / weights.sum()
