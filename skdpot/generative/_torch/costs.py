"""The cost between generated and private rows, and its gradient averaged over a plan."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

__all__ = ["GroundCost", "absolute_distances"]

# Entries of the blocks of differences for the l1 part: as many as stay in a processor's cache, and
# as many as keep a GPU busy (256 MiB in single precision).
_BLOCK_IN_CACHE = 1 << 18
_BLOCK_ON_GPU = 1 << 26


@dataclass(frozen=True)
class GroundCost:
    """Squared Euclidean cost, plus an l1 part, plus a constant between rows of different classes.

    The cost is ``|x - y|_2^2 + l1_weight |x - y|_1`` between rows to which their labels are
    appended as one-hot codes times `class_scale`.

    Parameters
    ----------
    l1_weight : float, default=0.0
        Weight of the l1 part, at least 0.
    class_scale : float, default=0.0
        Scale of the one-hot codes, at least 0.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.costs import GroundCost
    >>> X, Y = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, -1.0], [0.0, 1.0]])
    >>> cost = GroundCost(l1_weight=0.5, class_scale=1.0)
    >>> cost.matrix(X, Y)
    tensor([[5., 0.]])
    >>> cost.matrix(X, Y, torch.tensor([0]), torch.tensor([1, 0]))
    tensor([[8., 0.]])
    """

    l1_weight: float = 0.0
    class_scale: float = 0.0

    def matrix(
        self,
        X: torch.Tensor,
        Y: torch.Tensor,
        x_labels: torch.Tensor | None = None,
        y_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the costs between all rows of two tensors. Nothing is differentiated.

        Labels are class codes, or None without classes.
        """
        with torch.no_grad():
            costs = _squared_distances(X, Y)
            if self.l1_weight:
                costs += self.l1_weight * absolute_distances(X, Y)
            if x_labels is not None and y_labels is not None:
                costs += self.between_classes() * (x_labels[:, None] != y_labels)
            return costs

    def pull(self, X: torch.Tensor, Y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return sums of gradients of the cost, one for each row of `X`.

        That of ``X[i]`` is the sum over j of ``weights[i, j]`` times the gradient, in ``X[i]``, of
        its cost to ``Y[j]``. Where coordinates are equal, the l1 part has the slope 0.
        """
        with torch.no_grad():
            pulls = 2 * (X * weights.sum(dim=1, keepdim=True) - weights @ Y)
            if self.l1_weight:
                pulls += self.l1_weight * _weighted_signs(X, Y, weights)
            return pulls

    def largest(self, d: int, has_classes: bool) -> float:
        """Return the largest cost that is possible between rows in [-1, 1]^d."""
        return d * (4 + 2 * self.l1_weight) + (self.between_classes() if has_classes else 0.0)

    def between_classes(self) -> float:
        """Return the cost that different labels add."""
        return 2 * self.class_scale * (self.class_scale + self.l1_weight)


def _squared_distances(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """Return squared distances by a product of matrices.

    The common centre of the rows is moved to 0 before, where squares are smallest: less is lost
    when they are subtracted.
    """
    centre = X.mean(dim=0)
    X, Y = X - centre, Y - centre
    distances = X @ (-2 * Y).T
    distances += X.square().sum(dim=1)[:, None]
    distances += Y.square().sum(dim=1)
    return distances.clamp_(min=0)


def absolute_distances(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """Return l1 distances: on a processor, faster than `torch.cdist`.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.costs import absolute_distances
    >>> absolute_distances(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 0.0]]))
    tensor([[3.]])
    """
    distances = X.new_empty((len(X), len(Y)))
    for rows in _blocks(X, Y):
        torch.sum((X[rows, None] - Y).abs_(), dim=2, out=distances[rows])
    return distances


def _weighted_signs(X: torch.Tensor, Y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the sums over j of ``weights[i, j] * sign(X[i] - Y[j])``."""
    sums = torch.empty_like(X)
    for rows in _blocks(X, Y):
        signs = (X[rows, None] - Y).sign_()
        sums[rows] = torch.bmm(weights[rows, None], signs)[:, 0]
    return sums


def _blocks(X: torch.Tensor, Y: torch.Tensor) -> Iterator[slice]:
    """Yield rows of X whose differences to all rows of Y are few enough to be kept."""
    largest = _BLOCK_IN_CACHE if X.device.type == "cpu" else _BLOCK_ON_GPU
    height = max(1, largest // max(1, Y.numel()))
    for start in range(0, len(X), height):
        yield slice(start, start + height)
