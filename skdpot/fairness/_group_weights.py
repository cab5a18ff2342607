"""The weights that groups have in a barycenter, which users may give by labels."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from skdpot.federation import weights_of_groups


def check_group_weights(weights: Any, names: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the weights of groups, with sum 1, or raise.

    Parameters
    ----------
    weights : {"proportional", "uniform"}, dict or array-like of shape (n_groups,)
        What the user asks for.
    names : ndarray of shape (n_groups,), dtype=object
        Labels of the groups.
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
    >>> from skdpot.fairness._group_weights import check_group_weights
    >>> check_group_weights({"b": 3, "a": 1}, np.array(["a", "b"], dtype=object), np.ones(2))
    array([0.25, 0.75])
    """
    if isinstance(weights, Mapping):
        if set(weights) != set(names.tolist()):
            raise ValueError(
                f"weights must have the labels of the {len(names)} groups as keys, no more and no "
                f"fewer, got {len(weights)} keys."
            )
        weights = [weights[name] for name in names.tolist()]
    return weights_of_groups(weights, sizes)
