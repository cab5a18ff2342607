"""The semi-debiased Sinkhorn loss of generated points, and its gradients in them."""

from typing import NamedTuple

import torch

from skdpot.generative._torch.costs import GroundCost
from skdpot.generative._torch.sinkhorn import sinkhorn

__all__ = ["SelfTransport", "SemiDebiasedLoss", "self_transport", "semi_debiased"]


class SemiDebiasedLoss(NamedTuple):
    """The two parts of the loss, ``private_value - public_value``, and the gradient of each.

    Attributes
    ----------
    private_value : torch.Tensor of shape ()
        Twice the entropic cost between the first n generated points and the private ones.
    public_value : torch.Tensor of shape ()
        Entropic cost between the first and the last n generated points.
    private_gradient : torch.Tensor of shape (n, d)
        Gradient of the private value in the first n generated points. It depends on private data.
    public_gradient : torch.Tensor of shape (n_points, d)
        Gradient of minus the public value in all generated points.
    """

    private_value: torch.Tensor
    public_value: torch.Tensor
    private_gradient: torch.Tensor
    public_gradient: torch.Tensor


@torch.no_grad()
def semi_debiased(
    X: torch.Tensor,
    x_labels: torch.Tensor | None,
    Y: torch.Tensor,
    y_labels: torch.Tensor | None,
    *,
    n: int,
    cost: GroundCost,
    reg: float,
) -> SemiDebiasedLoss:
    r"""Return the semi-debiased Sinkhorn loss, and its gradients in generated points.

    With all points of a side weighted equally, and W the entropic transport cost, it is
    :math:`2 W(X_{0:n}, Y) - W(X_{0:n}, X_{n':n'+n})` for n + n' generated points. The last n of
    them are the first n if n' is 0, and others if it is n; in between, some are on both sides.

    Parameters
    ----------
    X : torch.Tensor of shape (n_points, d)
        Generated points; n_points is from n to 2 n.
    x_labels : torch.Tensor of shape (n_points,) or None
        Their class codes, or None where there are no classes.
    Y : torch.Tensor of shape (m, d)
        Private points.
    y_labels : torch.Tensor of shape (m,) or None
        Their class codes, or None where there are no classes.
    n : int
        How many generated points meet the private ones.
    cost : GroundCost
        Cost between two points.
    reg : float
        Regularisation, above 0, in units of cost.

    Returns
    -------
    SemiDebiasedLoss
        Values and gradients. Without private points, those that would depend on them are 0.

    Raises
    ------
    ValueError
        If the number of generated points is not from n to 2 n.

    Notes
    -----
    The value is differentiated as if the plans did not depend on the points, which is right for
    optimal ones. Nothing is differentiated by the package that made the tensors.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.costs import GroundCost
    >>> from skdpot.generative._torch.losses import semi_debiased
    >>> X, Y = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5]])
    >>> loss = semi_debiased(X, None, Y, None, n=1, cost=GroundCost(), reg=0.1)
    >>> loss.private_value, loss.private_gradient
    (tensor(0.5000), tensor([[-2.]]))
    >>> loss.public_value, loss.public_gradient
    (tensor(1.), tensor([[ 2.],
            [-2.]]))
    """
    if not 1 <= n <= len(X) <= 2 * n:
        raise ValueError(f"n must be at least 1, and X have n to 2 n rows, got {n} and {len(X)}.")
    first, labels = X[:n], None if x_labels is None else x_labels[:n]
    private_value, private_gradient = X.new_zeros(()), torch.zeros_like(first)
    if len(Y):
        result = sinkhorn(cost.matrix(first, Y, labels, y_labels), reg)
        private_value = 2 * result.value
        private_gradient = 2 * cost.pull(first, Y, result.plan)
    public = self_transport(X, x_labels, n=n, cost=cost, reg=reg)
    return SemiDebiasedLoss(private_value, public.value, private_gradient, -public.gradient)


class SelfTransport(NamedTuple):
    """The transport cost among generated points.

    Attributes
    ----------
    value : torch.Tensor of shape ()
        Entropic cost between the first and the last n points.
    gradient : torch.Tensor of shape (n_points, d)
        Its gradient in all points.
    potentials : torch.Tensor of shape (n,)
        Of the first n points.
    """

    value: torch.Tensor
    gradient: torch.Tensor
    potentials: torch.Tensor


@torch.no_grad()
def self_transport(
    X: torch.Tensor, labels: torch.Tensor | None, *, n: int, cost: GroundCost, reg: float
) -> SelfTransport:
    """Return the transport cost among generated points, its gradient, and potentials.

    Parameters
    ----------
    X : torch.Tensor of shape (n_points, d)
        Generated points; n_points is from n to 2 n.
    labels : torch.Tensor of shape (n_points,) or None
        Their class codes, or None where there are no classes.
    n : int
        How many points are on either side: the first, and the last.
    cost : GroundCost
        Cost between two points.
    reg : float
        Regularisation, above 0, in units of cost.

    Returns
    -------
    SelfTransport
        Value, gradient and potentials.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.costs import GroundCost
    >>> from skdpot.generative._torch.losses import self_transport
    >>> own = self_transport(torch.tensor([[0.0], [1.0]]), None, n=1, cost=GroundCost(), reg=0.1)
    >>> own.value, own.gradient
    (tensor(1.), tensor([[-2.],
            [ 2.]]))
    """
    first, last = slice(n), slice(len(X) - n, None)
    sides = (None, None) if labels is None else (labels[first], labels[last])
    result = sinkhorn(cost.matrix(X[first], X[last], *sides), reg)
    plan = result.plan
    gradient = torch.zeros_like(X)
    # A point that is on both sides has two parts.
    gradient[first] += cost.pull(X[first], X[last], plan)
    gradient[last] += cost.pull(X[last], X[first], plan.T)
    return SelfTransport(result.value, gradient, result.f)
