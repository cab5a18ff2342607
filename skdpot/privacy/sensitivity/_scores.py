"""Sensitivities of scores of candidates."""

from typing import Any

import numpy as np

from skdpot.privacy.sensitivity._relation import check_replaced


def block_score_sensitivity(*, n_units: int, relation: str = "replace_one") -> int:
    """Return how much a record can change the sum of the scores of blocks of records.

    Parameters
    ----------
    n_units : int
        A block's score is an integer from 0 to this.
    relation : {"replace_one"}, default="replace_one"
        The neighbouring relation. The number of records is public.

    Returns
    -------
    int
        ``n_units``.

    Notes
    -----
    Proof: :ref:`proof-block-scores`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import block_score_sensitivity
    >>> block_score_sensitivity(n_units=2**20)
    1048576
    """
    check_replaced(relation, "the number of records is public")
    return n_units


def cost_score_sensitivity(costs: Any) -> float:
    """Return how much a user's input can change the cost of any one output.

    Parameters
    ----------
    costs : ndarray of shape (n_inputs, n_outputs)
        Cost of every output at every input.

    Returns
    -------
    float
        The largest difference between two entries of a column.

    Notes
    -----
    Proof: :ref:`proof-exponential-mechanism`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import cost_score_sensitivity
    >>> cost_score_sensitivity([[0.0, 3.0], [1.0, 1.0]])
    2.0
    """
    return float(np.ptp(costs, axis=0).max())
