"""Entropic transport between small samples, and the loss of generated points.

Sinkhorn's updates are done in rounds. A round computes both potentials by logarithms of sums, which
no cost can make overflow. It keeps their kernel ``exp((f + g - c) / reg)``, and continues with
products of that kernel and vectors, which are several times cheaper. The first rounds have
regularisations that fall from the range of the costs to the final one, by the same factor each
time. As the regularisation goes to 0, potentials approach a line. So each of these rounds begins on
the line through the last two.

Entries of a kernel are at least a number that is so small that rounding loses it. So the scalings
of rows and columns are of moderate size. Updates bring scalings nearer to these, and never farther
away: those on the way stay in the range of floating-point numbers, too.

The number of rounds and all shapes are fixed, so the CPU never waits for a result of the GPU, and
neither depends on the data.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

# Entries of the blocks of differences for the l1 part: as many as stay in a processor's cache, and
# as many as keep a GPU busy (256 MiB in single precision).
_BLOCK_IN_CACHE = 1 << 18


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
    >>> from skdpot.generative._torch.transport import GroundCost
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

    def gradient(self, X: torch.Tensor, Y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
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
    >>> from skdpot.generative._torch.transport import absolute_distances
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
    block_on_gpu = 1 << 26
    block_size = _BLOCK_IN_CACHE if X.device.type == "cpu" else block_on_gpu
    height = max(1, block_size // max(1, Y.numel()))
    for start in range(0, len(X), height):
        yield slice(start, start + height)


@torch.no_grad()
def sinkhorn(
    costs: torch.Tensor, reg: float, *, n_iter: int = 16, kept_updates: int = 16
) -> tuple[torch.Tensor, ...]:
    r"""Return potentials, their value and a plan for transport between equally weighted points.

    The value is :math:`\min_P \langle C, P \rangle + reg \, KL(P | \mu \otimes \nu)` over plans
    with these marginals. Nothing is differentiated: its gradient in the costs is the plan.

    Parameters
    ----------
    costs : torch.Tensor of shape (n, m)
        Costs, in single or double precision, which is also that of the computation. With less, sums
        over hundreds of pixels could not be compared in units of `reg`.
    reg : float
        Regularisation, above 0, in units of cost.
    n_iter : int, default=16
        Rounds, each of one pair of updates in the log domain and further ones with a kept kernel.
        Between labelled images, 16 leave less than 0.2 % of a plan's mass in the wrong place for 50
        points on each side, about 1 % for 100, and up to 20 % for 200. The noise of a gradient that
        is released is larger than the gradient.
    kept_updates : int, default=16
        Pairs of updates with the kernel of a round: together about as dear as the kernel.

    Returns
    -------
    f, g : torch.Tensor of shape (n,), (m,)
        Potentials of rows and columns, in units of cost.
    value : torch.Tensor of shape ()
        Sum of the means of `f` and `g`. As `f` is the best answer to `g`, this is the dual
        objective.
    plan : torch.Tensor of shape (n, m)
        That of the potentials; the sums of its rows are right.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.transport import sinkhorn
    >>> _, _, value, plan = sinkhorn(1 - torch.eye(2, dtype=torch.double), reg=0.1)
    >>> value
    tensor(0.0693, dtype=torch.float64)
    >>> plan.sum(dim=0)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    mu, nu = (
        torch.full((size,), 1 / size, dtype=costs.dtype, device=costs.device)
        for size in costs.shape
    )
    # In single precision 2^-94: what is less is lost in rounding, and would also cost time.
    lowest_exponent = 0.75 * math.log2(torch.finfo(costs.dtype).tiny)
    # All rounds write into the same two matrices.
    scaled, kernel = torch.empty_like(costs), torch.empty_like(costs)

    def answer(potentials: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best potentials of rows (1) or columns (0), and the sums of the kernel there.

        Sums are in units of the largest entry. Exponents have the base 2, the faster exponential.
        """
        torch.sub(potentials, scaled, out=kernel)
        peaks = kernel.amax(dim=dim)
        kernel.sub_(peaks.unsqueeze(dim)).clamp_(min=lowest_exponent).exp2_()
        sums = torch.mv(kernel, nu) if dim else torch.mv(kernel.mT, mu)
        return -(peaks + sums.log2()), sums

    def round_at(g: torch.Tensor, level: torch.Tensor | float) -> torch.Tensor:
        """Return the column potentials after a round at a regularisation."""
        unit = level * math.log(2.0)
        torch.mul(costs, 1 / unit, out=scaled)
        f, _ = answer(g / unit, 1)
        g, sums = answer(f[:, None], 0)
        kernel.div_(sums)
        v = nu
        for _ in range(kept_updates):
            u = mu / torch.mv(kernel, v)
            columns = torch.mv(kernel.mT, u)
            v = nu / columns
        return unit * (g - columns.log2())

    # Four fifths of the rounds have regularisations that fall from the range of the costs.
    n_levels = int(0.8 * n_iter)
    # The range of the costs stays on the device: nothing waits for a number of it.
    low, high = torch.aminmax(costs)
    ratio = ((high - low) / reg).clamp_min(1)
    factor = ratio ** (-1 / (n_levels + 1))
    g, before = torch.zeros_like(nu), None
    for level in range(n_levels, -1, -1):
        start = g if before is None else g + factor * (g - before)
        before, g = g, round_at(start, reg * ratio ** (level / (n_levels + 1)))
    for _ in range(n_iter - n_levels - 1):
        g = round_at(g, reg)
    unit = reg * math.log(2.0)
    torch.mul(costs, 1 / unit, out=scaled)
    f, sums = answer(g / unit, 1)
    f = f * unit
    plan = kernel * (mu / sums)[:, None] * nu
    return f, g, torch.dot(mu, f) + torch.dot(nu, g), plan


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
) -> tuple[torch.Tensor, ...]:
    r"""Return the parts of the semi-debiased Sinkhorn loss, and their gradients.

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
    private_value : torch.Tensor of shape ()
        Twice the entropic cost between the first n generated points and the private ones.
    public_value : torch.Tensor of shape ()
        Entropic cost between the first and the last n generated points. The loss is the difference.
    private_gradient : torch.Tensor of shape (n, d)
        Gradient of the private value in the first n generated points. It depends on private data.
        Without private points it is 0.
    public_gradient : torch.Tensor of shape (n_points, d)
        Gradient of minus the public value in all generated points.

    Notes
    -----
    The value is differentiated as if the plans did not depend on the points, which is right for
    optimal ones. Nothing is differentiated by the package that made the tensors.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.transport import GroundCost
    >>> from skdpot.generative._torch.transport import semi_debiased
    >>> X, Y = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5]])
    >>> private, public, private_gradient, public_gradient = semi_debiased(
    ...     X, None, Y, None, n=1, cost=GroundCost(), reg=0.1
    ... )
    >>> private, private_gradient
    (tensor(0.5000), tensor([[-2.]]))
    >>> public, public_gradient
    (tensor(1.), tensor([[ 2.],
            [-2.]]))
    """
    first, labels = X[:n], None if x_labels is None else x_labels[:n]
    private_value, private_gradient = X.new_zeros(()), torch.zeros_like(first)
    if len(Y):
        _, _, value, plan = sinkhorn(cost.matrix(first, Y, labels, y_labels), reg)
        private_value = 2 * value
        private_gradient = 2 * cost.gradient(first, Y, plan)
    public_value, gradient, _ = self_transport(X, x_labels, n=n, cost=cost, reg=reg)
    return private_value, public_value, private_gradient, -gradient


@torch.no_grad()
def self_transport(
    X: torch.Tensor, labels: torch.Tensor | None, *, n: int, cost: GroundCost, reg: float
) -> tuple[torch.Tensor, ...]:
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
    value : torch.Tensor of shape ()
        Entropic cost between the first and the last n points.
    gradient : torch.Tensor of shape (n_points, d)
        Its gradient in all points.
    potentials : torch.Tensor of shape (n,)
        Of the first n points.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.transport import GroundCost
    >>> from skdpot.generative._torch.transport import self_transport
    >>> X = torch.tensor([[0.0], [1.0]])
    >>> self_transport(X, None, n=1, cost=GroundCost(), reg=0.1)[:2]
    (tensor(1.), tensor([[-2.],
            [ 2.]]))
    """
    first, last = slice(n), slice(len(X) - n, None)
    sides = (None, None) if labels is None else (labels[first], labels[last])
    potentials, _, value, plan = sinkhorn(cost.matrix(X[first], X[last], *sides), reg)
    gradient = torch.zeros_like(X)
    # A point that is on both sides has two parts.
    gradient[first] += cost.gradient(X[first], X[last], plan)
    gradient[last] += cost.gradient(X[last], X[first], plan.T)
    return value, gradient, potentials
