"""Sensitivities of sums of integers over records, in the l2 norm.

The contribution of a record is a vector in a ball, or is computed from one. A replaced record takes
away its contribution and adds another one, which doubles every bound.
"""

import math

from skdpot.privacy.sensitivity._relation import doubled_if_replaced


def cell_count_sensitivity(
    *, n_tables: int = 1, whole: float = 1.0, relation: str = "add_remove"
) -> float:
    """Return how much a record, or a user, can change the cells of several tables of counts.

    The same holds for several sums, to each of which it adds 1 or -1.

    Parameters
    ----------
    n_tables : int, default=1
        In how many tables a record is counted, once in each, as 1 or -1.
    whole : float, default=1.0
        Largest l2 norm of a user's contribution to each table: several rows of a user share it
        among their cells.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``whole sqrt(n_tables)``, doubled for a record that is replaced. The root may be rounded
        down.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`, :ref:`proof-sketch-tables`, :ref:`proof-sketch-people`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import cell_count_sensitivity
    >>> cell_count_sensitivity(n_tables=9)
    3.0
    """
    return doubled_if_replaced(whole * math.sqrt(n_tables), relation)


def repeated_count_sensitivity(*, n_values: int, relation: str = "add_remove") -> float:
    """Return how much a record can change a histogram of its many values.

    Parameters
    ----------
    n_values : int
        How many values of a record are counted, perhaps all of them in one bin.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``n_values``, doubled for a record that is replaced.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import repeated_count_sensitivity
    >>> repeated_count_sensitivity(n_values=784)
    784.0
    """
    return doubled_if_replaced(float(n_values), relation)


def ball_sum_sensitivity(*, radius: float, relation: str = "add_remove") -> float:
    """Return how much a record can change a sum of vectors in a ball.

    Parameters
    ----------
    radius : float
        Radius of the ball.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        The radius, doubled for a record that is replaced.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import ball_sum_sensitivity
    >>> ball_sum_sensitivity(radius=5.0, relation="replace_one")
    10.0
    """
    return doubled_if_replaced(float(radius), relation)


def counted_sum_sensitivity(
    *, radius: float, count_weight: float, relation: str = "add_remove"
) -> float:
    """Return how much a record can change weighted counts and sums of clusters.

    Parameters
    ----------
    radius : float
        Radius of the ball that contains the vectors.
    count_weight : float
        Contribution of a record to the count of its cluster.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``sqrt(radius^2 + count_weight^2)``, doubled for a record that is replaced.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import counted_sum_sensitivity
    >>> counted_sum_sensitivity(radius=4, count_weight=3)
    5.0
    """
    return doubled_if_replaced((radius**2 + count_weight**2) ** 0.5, relation)


def share_sum_sensitivity(
    *, radius: float, count_weight: float, whole: float, relation: str = "add_remove"
) -> float:
    """Return how much a record that is shared among clusters can change their sums.

    Parameters
    ----------
    radius, count_weight : float
        As in `counted_sum_sensitivity`.
    whole : float
        Largest sum of the non-negative shares of a record.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``whole`` times `counted_sum_sensitivity`.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import share_sum_sensitivity
    >>> share_sum_sensitivity(radius=4, count_weight=3, whole=10)
    50.0
    """
    return whole * counted_sum_sensitivity(
        radius=radius, count_weight=count_weight, relation=relation
    )


def product_sum_sensitivity(
    *, radius: float, diagonal: float, beside: float, relation: str = "add_remove"
) -> float:
    """Return how much a record can change the weighted entries of a sum of ``x x'``.

    Parameters
    ----------
    radius : float
        Radius of the ball that contains the vectors.
    diagonal, beside : float
        Multipliers of entries on the diagonal, and above it; the square of the latter is at most
        twice that of the former.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``diagonal radius^2``, doubled for a record that is replaced.

    Raises
    ------
    ValueError
        If entries beside the diagonal are multiplied by more.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import product_sum_sensitivity
    >>> product_sum_sensitivity(radius=10.0, diagonal=29, beside=41)
    2900.0
    """
    if beside**2 > 2 * diagonal**2:
        raise ValueError("the weight off the diagonal must be at most sqrt(2) times that on it.")
    return doubled_if_replaced(diagonal * float(radius) ** 2, relation)
