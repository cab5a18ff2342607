"""Entropic transport between small samples, and the loss of generated points.

Entropic transport between small samples, for every step of a training loop.

Sinkhorn's updates are done in rounds. A round computes both potentials by logarithms of sums, which
no cost can make overflow. It keeps their kernel ``exp((f + g - c) / reg)``, and continues with
products of that kernel and vectors, which are several times cheaper. The first rounds have
regularisations that fall from the range of the costs to the final one, by the same factor each
time. As the regularisation goes to 0, potentials approach a line. So each of these rounds begins on
the line through the last two.

Entries of a kernel are at least a number that is so small that rounding loses it. So the scalings
of rows and columns are of moderate size. Updates bring scalings nearer to these, and never farther
away: those on the way stay in the range of floating-point numbers, too.

The number of rounds is fixed, and only values depend on values. So the processor that feeds a GPU
waits for no number, and the shapes and the count of operations do not depend on the data.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

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
    largest = _BLOCK_IN_CACHE if X.device.type == "cpu" else _BLOCK_ON_GPU
    height = max(1, largest // max(1, Y.numel()))
    for start in range(0, len(X), height):
        yield slice(start, start + height)


# Between labelled images, so many rounds leave less than 0.2 % of a plan's mass in the wrong place
# for 50 points on each side, about 1 % for 100, and up to 20 % for 200. The noise of a gradient
# that is released is larger than the gradient.
_N_ITER = 16
# Pairs of updates with the kernel of a round: together about as dear as the kernel.
_KEPT_UPDATES = 16
# The part of all rounds in which the regularisation falls.
_FALLING = 0.8
_LN2 = math.log(2.0)


class SinkhornResult(NamedTuple):
    """Potentials, their value, and a plan.

    Attributes
    ----------
    f, g : torch.Tensor of shape (n,), (m,)
        Potentials of rows and columns, in units of cost.
    value : torch.Tensor of shape ()
        Sum of the means of `f` and `g`. As `f` is the best answer to `g`, this is the dual
        objective.
    plan : torch.Tensor of shape (n, m)
        That of the potentials; the sums of its rows are right.
    """

    f: torch.Tensor
    g: torch.Tensor
    value: torch.Tensor
    plan: torch.Tensor


@torch.no_grad()
def sinkhorn(costs: torch.Tensor, reg: float, *, n_iter: int = _N_ITER) -> SinkhornResult:
    r"""Return potentials and a plan for entropic transport between equally weighted points.

    The value is :math:`\min_P \langle C, P \rangle + reg \, KL(P | \mu \otimes \nu)` over plans
    with these marginals. Nothing is differentiated: its gradient in the costs is the plan.

    Parameters
    ----------
    costs : torch.Tensor of shape (n, m)
        Costs, in single or double precision, which is also that of the computation.
    reg : float
        Regularisation, above 0, in units of cost.
    n_iter : int, default=16
        Rounds, each of one pair of updates in the log domain and sixteen with a kept kernel.

    Returns
    -------
    SinkhornResult
        Potentials, value and plan.

    Raises
    ------
    ValueError
        If an argument is out of its range, or the costs have less than single precision: sums over
        hundreds of pixels are to be compared in units of `reg`.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.transport import sinkhorn
    >>> result = sinkhorn(1 - torch.eye(2, dtype=torch.double), reg=0.1)
    >>> result.value
    tensor(0.0693, dtype=torch.float64)
    >>> result.plan.sum(dim=0)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    _check(costs, reg, n_iter)
    ascent = _Ascent(costs, reg)
    n_levels = int(_FALLING * n_iter)
    ascent.fall(n_levels)
    ascent.stay(n_iter - n_levels - 1)
    return ascent.result()


class _Ascent:
    """The potentials of one problem, and the updates that raise its dual objective.

    Within a round, potentials are in units in which exponents have the base 2, which is the faster
    exponential.
    """

    def __init__(self, costs: torch.Tensor, reg: float) -> None:
        self._mu, self._nu = (
            torch.full((size,), 1 / size, dtype=costs.dtype, device=costs.device)
            for size in costs.shape
        )
        self._costs, self._reg = costs, reg
        low, high = torch.aminmax(costs)
        self._ratio = ((high - low) / reg).clamp_min(1)
        # In single precision 2^-94: what is less is lost in rounding, and would also cost time.
        self._lowest_exponent = 0.75 * math.log2(torch.finfo(costs.dtype).tiny)
        self._scaled, self._kernel = torch.empty_like(costs), torch.empty_like(costs)
        self._g = torch.zeros_like(self._nu)

    def fall(self, n_levels: int) -> None:
        """Do rounds at regularisations between the range of the costs and the last, and there."""
        factor = self._ratio ** (-1 / (n_levels + 1))
        before = None
        for level in range(n_levels, -1, -1):
            start = self._g if before is None else self._g + factor * (self._g - before)
            before = self._g
            self._do_round(start, self._reg * self._ratio ** (level / (n_levels + 1)))

    def stay(self, n_rounds: int) -> None:
        """Do rounds at the last regularisation."""
        for _ in range(n_rounds):
            self._do_round(self._g, self._reg)

    def result(self) -> SinkhornResult:
        """Return the column potentials, the row potentials that answer them, and their plan."""
        unit = self._reg * _LN2
        torch.mul(self._costs, 1 / unit, out=self._scaled)
        f, sums = self._row_answer(self._g / unit)
        f, g = f * unit, self._g
        plan = self._kernel * (self._mu / sums)[:, None] * self._nu
        return SinkhornResult(f, g, torch.dot(self._mu, f) + torch.dot(self._nu, g), plan)

    def _do_round(self, g: torch.Tensor, reg: torch.Tensor | float) -> None:
        unit = reg * _LN2
        torch.mul(self._costs, 1 / unit, out=self._scaled)
        f, _ = self._row_answer(g / unit)
        g, sums = self._column_answer(f)
        self._kernel.div_(sums)
        self._g = unit * (g - self._change_by_kept_updates())

    def _row_answer(self, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return row potentials, and the sums of rows in units of the largest entry of each."""
        torch.sub(g, self._scaled, out=self._kernel)
        peaks = self._kernel.amax(dim=1)
        self._kernel.sub_(peaks[:, None]).clamp_(min=self._lowest_exponent).exp2_()
        sums = torch.mv(self._kernel, self._nu)
        return -(peaks + sums.log2()), sums

    def _column_answer(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return column potentials, and the sums of columns in units of the largest entry."""
        torch.sub(f[:, None], self._scaled, out=self._kernel)
        peaks = self._kernel.amax(dim=0)
        self._kernel.sub_(peaks).clamp_(min=self._lowest_exponent).exp2_()
        sums = torch.mv(self._kernel.mT, self._mu)
        return -(peaks + sums.log2()), sums

    def _change_by_kept_updates(self) -> torch.Tensor:
        """Return by how much the column potentials fall in updates with the kept kernel."""
        kernel, transposed = self._kernel, self._kernel.mT
        v = self._nu
        for _ in range(_KEPT_UPDATES):
            u = self._mu / torch.mv(kernel, v)
            columns = torch.mv(transposed, u)
            v = self._nu / columns
        return columns.log2()


def _check(costs: torch.Tensor, reg: float, n_iter: int) -> None:
    if costs.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"costs must have single or double precision, got {costs.dtype}.")
    if costs.dim() != 2 or 0 in costs.shape:
        raise ValueError(f"costs must be a matrix with entries, got shape {tuple(costs.shape)}.")
    if not 0 < reg < math.inf:
        raise ValueError(f"reg must be a finite number above 0, got {reg!r}.")
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter!r}.")


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
    >>> from skdpot.generative._torch.transport import GroundCost
    >>> from skdpot.generative._torch.transport import semi_debiased
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
    >>> from skdpot.generative._torch.transport import GroundCost
    >>> from skdpot.generative._torch.transport import self_transport
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
