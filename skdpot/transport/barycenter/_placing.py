r"""Couplings of groups' points with a support, and the images of its points.

A group's optimal coupling with a support of M points gives each of them its image, the mean of the
mass it receives. For squared costs, the sums :math:`b_j` of the weighted images are sufficient:
with fixed couplings, point j costs :math:`|b_j - z|^2 / M` at z, up to a constant.
"""

from typing import NamedTuple

import numpy as np

from ._exchange import Arrays, Exchange, Group, Rounds, answers


class Placed(NamedTuple):
    """A support, bounds on its objective, and the weighted sum of the groups' images."""

    support: np.ndarray
    upper: float
    lower: float
    images: np.ndarray


def place_support(exchange: Exchange, support: np.ndarray) -> Rounds[Placed]:
    """Let groups couple with a support."""
    largest = max(exchange.largest_cost, exchange.largest_coordinate)
    answer = yield from exchange.ask("images", 2 + support.size, largest, support=support)
    unheard = exchange.unheard(largest)
    upper, lower = float(answer[0]) + unheard, float(answer[1]) - unheard
    return Placed(support, upper, lower, answer[2:].reshape(support.shape))


@answers("images")
def _images(group: Group, arrays: Arrays) -> np.ndarray:
    """Answer bounds on the cost of a support, and the means of the mass its points receive."""
    support = np.ascontiguousarray(arrays["support"], dtype=np.float64)
    placed = group.placed(len(support))
    lower, upper = placed.place(support)
    rounding = group.relative_rounding
    bounds = [upper * (1 + rounding), max(lower, 0.0) * (1 - rounding)]
    return group.weight * np.concatenate([bounds, placed.image.ravel()])
