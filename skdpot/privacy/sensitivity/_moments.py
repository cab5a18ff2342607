r"""Sensitivities of counts, sums, and sums of products, of groups."""

import math
from collections.abc import Sequence

from skdpot.privacy.accounting import check_relation
from skdpot.privacy.rounding import raised_by_margin


def moment_sensitivities(
    multipliers: tuple[int, int, int, int],
    half_width: int,
    *,
    n_continuous: int,
    n_binary: int = 0,
    blocks: Sequence[tuple[int, int, int]] = (),
    relation: str = "replace_one",
) -> tuple[float, float]:
    r"""Return how much one record can change the moments of all groups, in the l1 and l2 norm.

    A record is a group and several *features*, which are vectors of integers: a continuous one is a
    number u between -h and h, a binary one is -h or h, and a block of k categories is a vertex,
    with one entry ``own`` and k - 1 entries ``-other``, or zero. In the slot of its group a record
    adds ``k0``, all its features times ``k1``, ``k3 (h^2 - u^2)`` for every continuous feature, and
    for every pair of features ``k2`` times all products of an entry of one and an entry of the
    other. All other slots stay as they are; a record without a group adds nothing to any.

    Parameters
    ----------
    multipliers : tuple of int
        ``k0, k1, k2, k3``, none of them negative.
    half_width : int
        h, above 0.
    n_continuous, n_binary : int
        Numbers of features of these kinds.
    blocks : sequence of tuple of int
        Number of categories, ``own`` and ``other`` for every block.
    relation : {"replace_one", "add_remove"}, default="replace_one"
        The neighbouring relation. A record that is replaced may change its group, too.

    Returns
    -------
    l1, l2 : float
        Bounds over all records and groups. For a record that is replaced, the first is attained up
        to the rounding of one number, and the second where it is worst to change the group.

    Notes
    -----
    Proof: :ref:`proof-moments`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import moment_sensitivities
    >>> l1, l2 = moment_sensitivities((2, 1, 1, 0), 1, n_continuous=2)
    >>> round(l1, 6), round(l2**2, 6)
    (10.0, 14.0)
    """
    check_relation(relation)
    square = half_width * half_width
    squares = [square] * n_binary + [own**2 + (k - 1) * other**2 for k, own, other in blocks]
    opposite = [square] * (n_binary + n_continuous)
    opposite += [
        max(2 * own * other - (k - 2) * other**2, 0) if k > 1 else 0 for k, own, other in blocks
    ]
    lengths = [half_width] * n_binary + [own + (k - 1) * other for k, own, other in blocks]
    largest = _largest_square(multipliers, squares, [square] * n_continuous)
    opposed = _most_opposed(multipliers, squares + [square] * n_continuous, opposite)
    l1 = _largest_l1(multipliers, lengths, half_width, n_continuous)
    if relation == "add_remove":
        return raised_by_margin(l1), raised_by_margin(math.sqrt(largest))
    l2 = math.sqrt(2 * largest + 2 * max(opposed, 0.0))
    return raised_by_margin(2 * l1), raised_by_margin(l2)


def _largest_square(
    multipliers: tuple[int, int, int, int], squares: list[int], of_continuous: list[int]
) -> int:
    """Return the largest ``|p|^2``: continuous features are all at the middle, or all at an end."""
    k0, k1, k2, k3 = multipliers
    at_ends = squares + of_continuous
    return k0**2 + max(
        k1**2 * sum(squares)
        + k2**2 * _pair_sum(squares)
        + k3**2 * sum(square**2 for square in of_continuous),
        k1**2 * sum(at_ends) + k2**2 * _pair_sum(at_ends),
    )


def _most_opposed(
    multipliers: tuple[int, int, int, int], squares: list[int], opposite: list[int]
) -> float:
    """Return minus a lower bound of ``<p, p'>`` for two records in one slot."""
    k0, k1, k2, _ = multipliers
    reach = float(sum(opposite))
    if k1**2 < k2**2 * reach:
        reach = k1**2 / k2**2
    opposed = k1**2 * reach - k2**2 * reach**2 / 2 - k0**2
    return opposed + (k2**2 * sum(square**2 for square in squares) / 2 if k2 else 0.0)


def _largest_l1(
    multipliers: tuple[int, int, int, int], lengths: list[int], half_width: int, n_continuous: int
) -> float:
    """Return the largest ``|p|_1``, where all continuous features have the same norm."""
    k0, k1, k2, k3 = multipliers
    slope = n_continuous * (k1 + k2 * sum(lengths))
    bend = k2 * (n_continuous * (n_continuous - 1) // 2) - k3 * n_continuous
    y = float(half_width)
    if bend < 0 and slope < -2 * bend * half_width:
        y = slope / (-2 * bend)
    constant = k0 + k1 * sum(lengths) + k2 * _pair_sum(lengths) + k3 * n_continuous * half_width**2
    return constant + (slope * y + bend * y**2)


def _pair_sum(numbers: Sequence[int]) -> int:
    """Return the sum of the products of all pairs."""
    return (sum(numbers) ** 2 - sum(number**2 for number in numbers)) // 2
