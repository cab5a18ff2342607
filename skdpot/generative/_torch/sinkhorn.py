r"""Entropic transport between small weighted samples, for every step of a training loop.

Sinkhorn's updates are done in rounds. A round computes both potentials anew by logarithms of sums,
which no cost can make overflow, keeps the kernel ``exp((f + g - c) / reg)`` that belongs to them,
and goes on with products of that kernel and vectors, which are several times cheaper. The
potentials that belong to the first rounds are for regularisations that fall from the range of the
costs to the one that is wanted, by the same factor each time. As the regularisation goes to 0, they
come to lie on a line, and so each of these rounds begins where the line through the last two leads.

No entry of a kernel is let below a number that is small enough to be lost in rounding, and so the
scalings of rows and columns to which updates lead are numbers of moderate size. Updates bring
scalings nearer to these, and never farther away: those on the way stay in the range of
floating-point numbers, too.

With a tolerance, steps of Newton's method are taken between rounds, where they are steps upwards:
that shortens the slow convergence between parts of a plan that next to no mass joins.

With a fixed number of rounds, only values depend on values: no number is waited for by the
processor that feeds a GPU, and the shapes and the count of operations tell nothing of the data.
"""

import math
import warnings
from dataclasses import dataclass, field, fields

import torch

__all__ = ["DEFAULT_N_ITER", "SinkhornConvergenceWarning", "SinkhornResult", "sinkhorn"]

# Between labelled images, so many rounds leave less than 0.2 % of a plan's mass in the wrong place
# for 50 points on each side, about 1 % for 100, and up to 20 % for 200. The noise of a gradient
# that is released is larger than the gradient.
DEFAULT_N_ITER = 16
# Pairs of updates with the kernel of a round: together about as dear as the kernel.
_KEPT_UPDATES = 16
# The part of all rounds in which the regularisation falls.
_FALLING = 0.8
# With a tolerance: rounds between steps of Newton's method, and the number of rounds to stop after.
_ROUNDS_BETWEEN_GAPS = 2
_LARGEST_N_ITER = 500
_LN2 = math.log(2.0)


class SinkhornConvergenceWarning(UserWarning):
    """The tolerance was not reached."""


@dataclass(frozen=True, eq=False)
class SinkhornResult:
    """Potentials, their value, and a plan.

    Attributes
    ----------
    f, g : torch.Tensor of shape (..., n), (..., m)
        Potentials of rows and columns, in units of cost; 0 where the weight is 0.
    value : torch.Tensor of shape (...)
        Sum of the weighted means of `f` and `g`. As `f` is the best answer to `g`, this is the dual
        objective.
    gap : torch.Tensor of shape (...)
        Certified distance between `value` and the entropic transport cost, in double precision.
    """

    f: torch.Tensor
    g: torch.Tensor
    value: torch.Tensor
    _plan: torch.Tensor = field(repr=False)
    _costs: torch.Tensor = field(repr=False)
    _mu: torch.Tensor = field(repr=False)
    _nu: torch.Tensor = field(repr=False)
    _reg: torch.Tensor = field(repr=False)

    def plan(self) -> torch.Tensor:
        """Return the plan that belongs to the potentials; the sums of its rows are right.

        Returns
        -------
        torch.Tensor of shape (..., n, m)
            Plan.
        """
        return self._plan

    @property
    def gap(self) -> torch.Tensor:
        """Return the certified distance between `value` and the entropic transport cost.

        The plan is rounded to one with the right sums of rows and columns. Its objective is not
        below the minimum, and the dual objective is not above that. Both are computed in double
        precision, so that the gap holds what lower precision did to `value`, too.
        """
        costs, reg = self._costs.double(), self._reg.double()
        mu, nu = _normalised(self._mu.double()), _normalised(self._nu.double())
        product = mu[..., :, None] * nu[..., None, :]
        plan = _rounded(self._plan.double(), mu, nu)
        density = torch.where(product > 0, plan / product, 1)
        entropy = torch.xlogy(plan, density).sum(dim=(-2, -1))
        primal = (plan * costs).sum(dim=(-2, -1)) + reg * entropy
        f, g = self.f.double(), self.g.double()
        exponents = (f[..., :, None] + g[..., None, :] - costs) / reg[..., None, None]
        excess = torch.where(product > 0, product * torch.expm1(exponents), 0).sum(dim=(-2, -1))
        dual = (mu * f).sum(dim=-1) + (nu * g).sum(dim=-1) - reg * excess
        largest = costs.abs().amax(dim=(-2, -1)) + reg
        rounding = torch.finfo(torch.double).eps * sum(costs.shape[-2:]) * largest
        return torch.maximum(primal - self.value, self.value - dual) + rounding


@torch.no_grad()
def sinkhorn(
    costs: torch.Tensor,
    reg: float,
    log_mu: torch.Tensor | None = None,
    log_nu: torch.Tensor | None = None,
    *,
    n_iter: int = DEFAULT_N_ITER,
    tol: float | None = None,
) -> SinkhornResult:
    r"""Return potentials and a plan for entropic transport between weighted points.

    The value is :math:`\min_P \langle C, P \rangle + reg \, KL(P | \mu \otimes \nu)` over plans
    with these marginals. Nothing is differentiated: its gradient in the costs is the plan.

    Parameters
    ----------
    costs : torch.Tensor of shape (..., n, m)
        Costs, in single or double precision, which is also that of the computation. Those of a
        batch are solved one by one.
    reg : float
        Regularisation, above 0, in units of cost.
    log_mu : torch.Tensor of shape (..., n), default=None
        Logarithms of weights with sum 1. A row with -inf counts as if it did not exist, whatever
        its costs; if that is all rows, all results are 0. None stands for equal weights.
    log_nu : torch.Tensor of shape (..., m), default=None
        The same of columns.
    n_iter : int, default=16
        Rounds, each of one pair of updates in the log domain and sixteen with a kept kernel.
    tol : float, default=None
        Gap, in units of cost, until which rounds are added. None adds none, and so never waits for
        the device.

    Returns
    -------
    SinkhornResult
        Potentials, value, plan, and gap.

    Raises
    ------
    ValueError
        If an argument is out of its range, or the costs have less than single precision: sums over
        hundreds of pixels are to be compared in units of `reg`.

    Warns
    -----
    SinkhornConvergenceWarning
        If the gap stays above `tol`.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.sinkhorn import sinkhorn
    >>> result = sinkhorn(1 - torch.eye(2, dtype=torch.double), reg=0.1)
    >>> result.value, bool(result.gap < 1e-9)
    (tensor(0.0693, dtype=torch.float64), True)
    >>> result.plan().sum(dim=0)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    _check(costs, reg, n_iter, tol)
    if costs.dim() > 2:
        shape = costs.shape[:-2]
        result = _stacked(
            [
                _solved(matrix, reg, mu, nu, n_iter, tol)
                for matrix, mu, nu in zip(
                    costs.flatten(0, -3), _each(log_mu, shape), _each(log_nu, shape), strict=True
                )
            ],
            shape,
        )
    else:
        result = _solved(costs, reg, log_mu, log_nu, n_iter, tol)
    if tol is not None and not _reaches(result, tol):
        warnings.warn(
            f"sinkhorn stopped after {_LARGEST_N_ITER} rounds at a gap of {result.gap.max():.3g}, "
            f"above tol={tol:.3g}. Raise tol or reg, or use double precision.",
            SinkhornConvergenceWarning,
            stacklevel=2,
        )
    return result


class _Ascent:
    """The potentials of one problem, and the updates that raise its dual objective.

    Within a round, potentials are in units in which exponents have the base 2, which is the faster
    exponential. Rows and columns without weight have the largest cost: their own potentials are
    finite then, and they have no part in the others'.
    """

    def __init__(
        self,
        costs: torch.Tensor,
        reg: float,
        log_mu: torch.Tensor | None,
        log_nu: torch.Tensor | None,
    ) -> None:
        self._mu, self._nu = _weights(log_mu, costs, -2), _weights(log_nu, costs, -1)
        self._given, self._reg = (self._mu, self._nu), reg
        self._is_masked = log_mu is not None or log_nu is not None
        low, high = torch.aminmax(costs)
        if self._is_masked:
            self._exists = (self._mu > 0)[:, None] & (self._nu > 0)
            low = torch.where(self._exists, costs, torch.inf).amin()
            high = torch.where(self._exists, costs, -torch.inf).amax().nan_to_num(0.0, 0.0, 0.0)
            costs = torch.where(self._exists, costs, high)
            # Where nothing exists, another problem is solved in vain.
            self._mu, self._nu = _or_equal(self._mu), _or_equal(self._nu)
        self._costs = costs
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

    def climb(self) -> None:
        """Take a step of Newton's method, at the last regularisation, if it raises the value."""
        start, before = self._g, self.result()
        plan, columns = before.plan(), before.plan().sum(dim=0)
        # Where the weight is 0, the plan is, too.
        smallest = torch.finfo(plan.dtype).tiny
        scale = self._nu.clamp_min(smallest).sqrt()
        joint = plan * self._mu.clamp_min(smallest).rsqrt()[:, None] / scale
        # Constants change nothing, so that the Hessian is singular but for the first product; the
        # small number is for parts of the plan that nothing joins.
        hessian = torch.outer(scale, scale) - joint.T @ joint
        hessian.diagonal().add_(columns / scale.square() + torch.finfo(plan.dtype).eps)
        factor, _ = torch.linalg.cholesky_ex(hessian)
        error = (self._nu - columns) / scale
        step = torch.cholesky_solve(error[:, None], factor)[:, 0] / scale
        # Along a step of this range, curvature changes by a factor of at most its exponential.
        length = step.max() - step.min()
        self._g = start + self._reg * step * (torch.log1p(length) / length)
        # Not a number is no rise.
        if not bool(self.result().value > before.value):
            self._g = start

    def result(self) -> SinkhornResult:
        """Return the column potentials, the row potentials that answer them, and their plan."""
        unit = self._reg * _LN2
        torch.mul(self._costs, 1 / unit, out=self._scaled)
        f, sums = self._row_answer(self._g / unit)
        f, g = f * unit, self._g
        plan = self._kernel * (self._mu / sums)[:, None] * self._nu
        mu, nu = self._given
        if self._is_masked:
            exists = self._exists
            plan = torch.where(exists, plan, 0)
            f, g = torch.where(exists.any(dim=1), f, 0), torch.where(exists.any(dim=0), g, 0)
        value = torch.dot(mu, f) + torch.dot(nu, g)
        reg = torch.full_like(value, self._reg)
        return SinkhornResult(f, g, value, plan, self._costs, mu, nu, reg)

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


def _solved(
    costs: torch.Tensor,
    reg: float,
    log_mu: torch.Tensor | None,
    log_nu: torch.Tensor | None,
    n_iter: int,
    tol: float | None,
) -> SinkhornResult:
    ascent = _Ascent(costs, reg, log_mu, log_nu)
    n_levels = int(_FALLING * n_iter)
    ascent.fall(n_levels)
    ascent.stay(n_iter - n_levels - 1)
    result = ascent.result()
    if tol is None:
        return result
    while not _reaches(result, tol) and n_iter < _LARGEST_N_ITER:
        ascent.climb()
        ascent.stay(_ROUNDS_BETWEEN_GAPS)
        n_iter += _ROUNDS_BETWEEN_GAPS
        result = ascent.result()
    return result


def _reaches(result: SinkhornResult, tol: float) -> bool:
    return bool((result.gap <= tol).all())


def _each(log_weights: torch.Tensor | None, shape: torch.Size) -> list[torch.Tensor | None]:
    """Return the weights of each problem of a batch."""
    if log_weights is None:
        return [None] * math.prod(shape)
    return list(log_weights.expand(shape + log_weights.shape[-1:]).flatten(0, -2))


def _stacked(results: list[SinkhornResult], shape: torch.Size) -> SinkhornResult:
    """Return the results of a batch as one."""
    names = [attribute.name for attribute in fields(SinkhornResult)]
    return SinkhornResult(
        *(
            torch.stack([getattr(result, name) for result in results]).unflatten(0, shape)
            for name in names
        )
    )


def _weights(log_weights: torch.Tensor | None, costs: torch.Tensor, dim: int) -> torch.Tensor:
    """Return weights with sum 1, or all of them 0."""
    if log_weights is None:
        size = costs.shape[dim]
        return torch.full((size,), 1 / size, dtype=costs.dtype, device=costs.device)
    return _normalised(log_weights.to(costs.dtype).exp())


def _normalised(weights: torch.Tensor) -> torch.Tensor:
    total = weights.sum(dim=-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1)


def _or_equal(weights: torch.Tensor) -> torch.Tensor:
    """Return weights, or equal ones where all are 0."""
    return torch.where((weights > 0).any(), weights, 1 / len(weights))


def _rounded(plan: torch.Tensor, mu: torch.Tensor, nu: torch.Tensor) -> torch.Tensor:
    """Return a plan with marginals mu and nu that differs little if those of a plan do.

    Rows and then columns with too much are scaled down, and what is missing then is spread over
    those that have too little (J. Altschuler, J. Weed and P. Rigollet, 2017).
    """
    rows = plan.sum(dim=-1)
    plan = plan * torch.where(rows > mu, mu / rows, 1)[..., :, None]
    columns = plan.sum(dim=-2)
    plan = plan * torch.where(columns > nu, nu / columns, 1)[..., None, :]
    rows = (mu - plan.sum(dim=-1)).clamp_min(0)
    columns = (nu - plan.sum(dim=-2)).clamp_min(0)
    missing = rows.sum(dim=-1, keepdim=True)
    share = rows / torch.where(missing > 0, missing, 1)
    return plan + share[..., :, None] * columns[..., None, :]


def _check(costs: torch.Tensor, reg: float, n_iter: int, tol: float | None) -> None:
    if costs.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"costs must have single or double precision, got {costs.dtype}.")
    if costs.dim() < 2 or 0 in costs.shape:
        raise ValueError(f"costs must be matrices with entries, got shape {tuple(costs.shape)}.")
    if not 0 < reg < math.inf:
        raise ValueError(f"reg must be a finite number above 0, got {reg!r}.")
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter!r}.")
    if tol is not None and not tol > 0:
        raise ValueError(f"tol must be above 0, got {tol!r}.")
