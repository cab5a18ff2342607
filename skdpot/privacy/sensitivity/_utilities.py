"""Sensitivities of the declared parameters of utilities."""

from typing import Any

import numpy as np

from skdpot.privacy.checks import check_choice
from skdpot.privacy.sensitivity._relation import check_replaced

# The unit of privacy: the utility of one edge at one of its ends, or all utilities of a node.
PROTECTED = ("parameter", "node")


def utility_sensitivity(
    width: Any, degree: Any, *, protect: str = "parameter", relation: str = "replace_one"
) -> np.ndarray:
    """Return how much a unit of privacy can change the parameters of a node, in the l1 norm.

    Parameters
    ----------
    width : float or array-like
        Width of the range that parameters are clipped to.
    degree : int or array-like of int
        How many parameters of the node are released.
    protect : {"parameter", "node"}, default="parameter"
        Whether one parameter is replaced, or all of the node's.
    relation : {"replace_one"}, default="replace_one"
        The neighbouring relation. The network is public.

    Returns
    -------
    ndarray
        The width, or ``max(degree, 1)`` times the width.

    Notes
    -----
    Proof: :ref:`proof-private-utilities`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import utility_sensitivity
    >>> utility_sensitivity(4.0, [2, 3], protect="node")
    array([ 8., 12.])
    """
    check_choice("protect", protect, PROTECTED)
    check_replaced(relation, "the network is public")
    n_moved = np.maximum(degree, 1) if protect == "node" else np.ones_like(degree)
    return np.asarray(width * n_moved, dtype=np.float64)
