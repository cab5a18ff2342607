"""Sensitivities of counts of records."""

import math

from skdpot.privacy.accounting import check_relation

_ROOT_OF_TWO = math.nextafter(math.sqrt(2.0), 2.0)


def histogram_sensitivities(*, relation: str = "replace_one") -> tuple[float, float]:
    """Return how much a record can change a histogram, in the l1 and l2 norm.

    Every record is counted in at most one cell.

    Parameters
    ----------
    relation : {"replace_one", "add_remove"}, default="replace_one"
        The neighbouring relation.

    Returns
    -------
    l1, l2 : float
        2 and the root of 2, rounded up, for a record that is replaced; 1 and 1 for a record more or
        less.

    Notes
    -----
    Proof: :ref:`proof-histograms`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import histogram_sensitivities
    >>> histogram_sensitivities()
    (2.0, 1.4142135623730954)
    >>> histogram_sensitivities(relation="add_remove")
    (1.0, 1.0)
    """
    check_relation(relation)
    return (2.0, _ROOT_OF_TWO) if relation == "replace_one" else (1.0, 1.0)
