r"""Entropic optimal transport, solved until a gap between primal and dual is certified.

Sinkhorn's algorithm maximises the semi-dual objective

    D(g) = <a, f> + <b, g>,    f = -reg log sum_j b_j exp((g_j - c_ij) / reg),

whose gradient is b minus the column sums of the plan that f and g describe. The update that makes
the columns right raises D by reg KL(b || columns) at least. Anderson's extrapolation of several
such updates, an over-relaxation whose factors adapt themselves, needs far fewer of them. A point is
accepted only if it raises D by a part of the gain of the update, so convergence is certain.

Between clusters of points, a small mass may have a long way to go: the potentials then move at a
constant speed for thousands of updates. There extrapolation fails, and multiples of the update are
tried, twice as large every time. If the regularisation is small, it is also lowered in steps, each
solved to the tolerance. The next potentials are nearly on the line through the last two. This may
still be slow, for example between parts of the plan that hardly any mass joins. So a step of
Newton's method is tried from time to time, unless the Hessian would be too large.

Costs between points are in memory, or computed on the fly, a panel of rows at a time. A half step
answers column potentials by row potentials,

    f_i = -reg log sum_j b_j exp((g_j - c_ij) / reg),

and the same pass over the costs adds up the columns of the plan that both describe. It is compiled,
in the logarithmic domain and in double precision. Potentials are in units of reg there, and
`biased` is ``g / reg + log b``. The largest exponent of a row is subtracted before exponentials are
taken. So nothing overflows, and terms that underflow are negligible. Costs are read once, or
computed on the fly: a pass needs memory for a row or two. All results are as private as the costs
and weights.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from .exact import TransportResult
from .kernels import kernel, part
from .polytope import check_numbers, check_weights

# Where the regularisation is below this part of the costs' range, it is lowered in steps.
_FIRST_REG = 1.0 / 16.0
# Plans of up to this many entries (256 MiB) are kept.
_LARGEST_PLAN = 1 << 25
# Hessians of up to this many entries (128 MiB) are used.
_LARGEST_HESSIAN = 1 << 24
_EPS = float(np.finfo(np.float64).eps)
# Doubles of a panel of costs that is computed on the fly: 8 MiB.
_COST_PANEL = 1 << 20
_PANEL_SIZE = 1 << 17
_NOTHING = np.empty((0, 0))


@part(fastmath={"contract"})
def exponentials(values, scratch):
    """Replace values of at most 700 by their exponentials, in place; 1e-16 from the right ones.

    Written as loops that compilers turn into vector instructions. Libraries for doubles have none
    on most machines. Values below -708 are taken for that.
    """
    # exp(x) = 2**k exp(r) with r = x - k log 2: k is rounded by adding a number so large that no
    # bits for fractions are left, and shifted into the exponent of a double.
    log2_e = 1.4426950408889634
    log_2_high, log_2_low = 6.93147180369123816490e-01, 1.90821492927058770002e-10
    rounder = 1.5 * 2.0**52
    exponent_of_one = 1023 << 52
    smallest_exponent = -708.0
    bits = scratch.view(np.int64)
    for j in range(len(values)):
        x = max(values[j], smallest_exponent)
        k = x * log2_e + rounder
        scratch[j] = k
        k = k - rounder
        r = x - k * log_2_high
        r = r - k * log_2_low
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        values[j] = p * r + 1.0
    for j in range(len(values)):
        bits[j] = (bits[j] << 52) + exponent_of_one
    for j in range(len(values)):
        values[j] *= scratch[j]


# Minus infinity must be allowed, of columns without weight.
@part(fastmath={"nnan", "nsz", "reassoc", "contract"})
def _largest(values):
    maximum = values[0]
    for j in range(len(values)):
        maximum = max(maximum, values[j])
    return maximum


@part(fastmath=True)
def _total(values):
    total = 0.0
    for j in range(len(values)):
        total += values[j]
    return total


@part(fastmath={"contract"})
def _finish_row(exponents, scratch, weight, columns):
    """Return the potential of a row, add the row to the plan's columns, and leave it normalised."""
    # A common factor of the row cancels, and no exponential is above 1.
    maximum = _largest(exponents)
    for j in range(len(exponents)):
        exponents[j] -= maximum
    exponentials(exponents, scratch)
    total = _total(exponents)
    # One division for the row, and products for its entries.
    inverse = 1.0 / total
    for j in range(len(exponents)):
        exponents[j] *= inverse
        columns[j] += weight * exponents[j]
    return -(maximum + math.log(total))


@kernel(fastmath={"contract"})
def answer_matrix(cost, low, reg, biased, weights, potential, columns, kept):
    """Answer column potentials by those of the rows of a cost matrix; add to the plan's columns.

    From the costs `low` is taken off first. The rows of the plan, with sum 1, are written to `kept`
    unless that is empty.
    """
    buffer, scratch = np.empty(len(biased)), np.empty(len(biased))
    for i in range(len(weights)):
        exponents = kept[i] if len(kept) else buffer
        row = cost[i]
        for j in range(len(biased)):
            exponents[j] = biased[j] - (row[j] - low) / reg
        potential[i] = _finish_row(exponents, scratch, weights[i], columns)


@kernel(fastmath={"contract"})
def answer_points(x, y_columns, squared, high, reg, biased, weights, potential, columns, kept):
    """Answer as `answer_matrix` does, for costs of at most `high` between points x and y."""
    buffer, scratch = np.empty(len(biased)), np.empty(len(biased))
    for i in range(len(weights)):
        exponents = kept[i] if len(kept) else buffer
        # Coordinate by coordinate, the inner loop runs over contiguous memory.
        exponents[:] = 0.0
        for k in range(len(y_columns)):
            coordinate, others = x[i, k], y_columns[k]
            for j in range(len(biased)):
                difference = coordinate - others[j]
                exponents[j] += difference * difference
        if not squared:
            for j in range(len(biased)):
                exponents[j] = math.sqrt(exponents[j])
        for j in range(len(biased)):
            # Certificates rely on the declared range, so rounding must not leave it.
            exponents[j] = biased[j] - min(exponents[j], high) / reg
        potential[i] = _finish_row(exponents, scratch, weights[i], columns)


def refuse_degrees(metric: Any, points: Any) -> None:
    """Raise if a metric needs radians, and points or bounds are in degrees.

    Examples
    --------
    >>> from skdpot.transport import refuse_degrees
    >>> refuse_degrees("haversine", [[51.5, -0.1]])
    Traceback (most recent call last):
    ValueError: metric='haversine' needs latitude and longitude in radians, and there are ...
    """
    magnitudes = [np.abs(np.atleast_2d(each)).max(axis=0) for each in points]
    beyond = any(each[0] > np.pi / 2 or each.max() > 2 * np.pi for each in magnitudes)
    if metric == "haversine" and beyond:
        raise ValueError(
            "metric='haversine' needs latitude and longitude in radians, and there are latitudes "
            "above pi / 2, or numbers above 2 pi. Convert degrees by numpy.radians."
        )


class Costs(ABC):
    """Costs between n rows and m columns, as private as the points between which they are.

    Attributes
    ----------
    shape : tuple of int
        Numbers of rows and columns.
    low, high : float
        Between these all costs lie.
    """

    shape: tuple[int, int]
    low: float
    high: float

    def panels(self) -> list[slice]:
        """Return the slices of rows that are worked on one at a time; the shape decides."""
        # Where costs need no memory, 16 panels keep as many threads busy.
        n_panels = 16
        height = -(-self.shape[0] // n_panels)
        return [slice(start, start + height) for start in range(0, self.shape[0], height)]

    def answer(self, rows, biased, weights, reg, potential, columns, kept):
        """Write the potentials of a panel's rows, and add the panel to the columns of their plan.

        These are the potentials for costs from which `low` is taken off.

        Parameters
        ----------
        rows : slice
            Of `panels`.
        biased : ndarray of shape (m,)
            Column potentials in units of `reg`, plus the logarithms of the columns' weights.
        weights : ndarray of shape (n,)
            Weights of the rows.
        reg : float
            Regularisation.
        potential : ndarray of shape (n,)
            Receives the row potentials, in units of `reg`.
        columns : ndarray of shape (m,)
            To these the panel's rows of the plan are added.
        kept : ndarray of shape (n, m) or (0, 0)
            Receives the rows of the plan, scaled to sum 1, unless it is empty.
        """
        of_rows = weights[rows], potential[rows], columns, kept[rows]
        answer_matrix(self.panel(rows), self.low, reg, biased, *of_rows)

    def panel(self, rows: slice) -> np.ndarray:
        """Return the costs of some rows; subclasses have this, or an `answer` of their own."""
        raise NotImplementedError

    @abstractmethod
    def transposed(self) -> "Costs":
        """Return the costs with rows and columns exchanged."""


class MatrixCosts(Costs):
    """A cost matrix that is held in memory.

    Parameters
    ----------
    matrix : array-like of shape (n, m)
        Finite costs.

    Raises
    ------
    ValueError
        If they are empty, not a matrix, or not all finite.

    Examples
    --------
    >>> from skdpot.transport.sinkhorn import MatrixCosts
    >>> costs = MatrixCosts([[0.0, 1.0, 4.0]])
    >>> costs.shape, costs.low, costs.high
    ((1, 3), 0.0, 4.0)
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = check_numbers(matrix, "costs", 2)
        self.shape = self.matrix.shape
        self.low, self.high = float(self.matrix.min()), float(self.matrix.max())

    def panel(self, rows: slice) -> np.ndarray:
        return self.matrix[rows]

    def transposed(self) -> "MatrixCosts":
        return MatrixCosts(self.matrix.T)


class FunctionCosts(Costs):
    """Costs between two sets of points by a function, which is called anew in every pass.

    Parameters
    ----------
    x, y : ndarray of shape (n, n_features), (m, n_features)
        The points.
    function : callable
        Returns the costs between the rows of two matrices of points.
    low, high : float
        Between these all costs lie.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.spatial.distance import cdist
    >>> from skdpot.transport.sinkhorn import FunctionCosts
    >>> FunctionCosts(np.zeros((3, 1)), np.ones((2, 1)), cdist, low=0.0, high=1.0).shape
    (3, 2)
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        function: Callable[[np.ndarray, np.ndarray], np.ndarray],
        low: float,
        high: float,
    ) -> None:
        self.x, self.y, self.function = x, y, function
        self.low, self.high = low, high
        self.shape = (len(x), len(y))

    def panels(self) -> list[slice]:
        height = max(1, _COST_PANEL // self.shape[1])
        return [slice(start, start + height) for start in range(0, self.shape[0], height)]

    def panel(self, rows: slice) -> np.ndarray:
        return np.ascontiguousarray(self.function(self.x[rows], self.y), dtype=np.float64)

    def transposed(self) -> "FunctionCosts":
        def exchanged(y, x):
            return self.function(x, y).T

        return FunctionCosts(self.y, self.x, exchanged, self.low, self.high)


class PointCosts(Costs):
    """Euclidean distances between points, or their squares, which the kernels compute themselves.

    Parameters
    ----------
    x, y : array-like of shape (n, n_features), (m, n_features)
        The points.
    squared : bool
        Whether the costs are squares of distances.
    high : float
        No cost is larger; one that is, by rounding, is replaced by it.

    Examples
    --------
    >>> from skdpot.transport.sinkhorn import PointCosts
    >>> PointCosts([[0.0], [1.0]], [[2.0]], squared=True, high=4.0).shape
    (2, 1)
    """

    low = 0.0

    def __init__(self, x: Any, y: Any, *, squared: bool, high: float) -> None:
        self.x = np.ascontiguousarray(x, dtype=np.float64)
        self.y = np.ascontiguousarray(y, dtype=np.float64)
        self.squared, self.high = squared, float(high)
        self.shape = (len(self.x), len(self.y))
        self._y_columns = np.ascontiguousarray(self.y.T)

    def answer(self, rows, biased, weights, reg, potential, columns, kept):
        of_rows = weights[rows], potential[rows], columns, kept[rows]
        points = self.x[rows], self._y_columns
        answer_points(*points, self.squared, self.high, reg, biased, *of_rows)

    def transposed(self) -> "PointCosts":
        return PointCosts(self.y, self.x, squared=self.squared, high=self.high)


def as_costs(cost: Any) -> Costs:
    """Return costs as they are, and a matrix of them as `MatrixCosts`."""
    return cost if isinstance(cost, Costs) else MatrixCosts(cost)


def half_step(
    costs: Costs,
    g: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    reg: float,
    executor: ThreadPoolExecutor | None,
    kept: np.ndarray = _NOTHING,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row potentials that answer g, and the columns of their plan.

    Rows have the weights a, and columns b. The plan's rows, scaled to sum 1, are written to `kept`
    unless that is empty.
    """
    # Minus infinity for columns without weight, which then get no mass.
    biased = g + np.log(b)
    panels = costs.panels()
    potential = np.empty(costs.shape[0])
    # A row of sums for each panel: the result does not depend on which thread is first.
    columns = np.zeros((len(panels), costs.shape[1]))

    def work(k: int) -> None:
        costs.answer(panels[k], biased, a, reg, potential, columns[k], kept)

    _run(work, len(panels), executor)
    return potential, columns.sum(axis=0)


class KeptPlan:
    """A plan with exact rows that is scaled as long as the potentials stay near those it has."""

    def __init__(
        self, costs: Costs, a: np.ndarray, b: np.ndarray, executor: ThreadPoolExecutor | None
    ) -> None:
        self.costs, self.a, self.b, self._executor = costs, a, b, executor
        self._rows = np.empty(costs.shape)
        height = max(1, _PANEL_SIZE // costs.shape[1])
        self._panels = [slice(start, start + height) for start in range(0, costs.shape[0], height)]
        # Not a number is no regularisation, so the first call computes the plan.
        self._reg, self._g, self._f = math.nan, b, a

    def evaluate(self, g: np.ndarray, reg: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the row potentials that answer g, and the columns of their plan."""
        # A plan that is kept is scaled while the potentials change by no more than this many units
        # of reg: two products with a matrix are cheaper than exponentials.
        reach = 30.0
        if reg != self._reg or np.abs(g - self._g)[self.b > 0].max() > reach:
            self._reg, self._g = reg, g
            self._f, columns = half_step(
                self.costs, g, self.a, self.b, reg, self._executor, self._rows
            )
            return self._f, columns
        # Two products with the kept matrix are a Sinkhorn step from the kept potentials.
        scaling = np.exp(g - self._g)
        sums = np.empty(len(self.a))
        columns = np.empty((len(self._panels), len(self.b)))

        def work(k: int) -> None:
            rows = self._panels[k]
            sums[rows] = self._rows[rows] @ scaling
            columns[k] = (self.a[rows] / sums[rows]) @ self._rows[rows]

        _run(work, len(self._panels), self._executor)
        return self._f - np.log(sums), scaling * columns.sum(axis=0)

    def overlaps(self, g: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return P' diag(1 / a) P, where P is the plan of g with its columns times weights."""
        scaling, (n, m) = np.exp(g - self._g), self.costs.shape
        result = np.zeros((m, m))
        # As many rows at a time as the result has are no more memory than that.
        for start in range(0, n, m):
            rows = slice(start, start + m)
            sums = self._rows[rows] @ scaling
            plan = self._rows[rows] * (scaling * weights)
            plan *= (np.sqrt(self.a[rows]) / sums)[:, None]
            result += plan.T @ plan
        return result


def threads(n_threads: int) -> AbstractContextManager[ThreadPoolExecutor | None]:
    """Return a context whose value runs panels in threads, and is None for a single one."""
    return nullcontext() if n_threads == 1 else ThreadPoolExecutor(n_threads)


def _run(work: Callable[[int], None], count: int, executor: ThreadPoolExecutor | None) -> None:
    """Call a function with 0, 1, ..., in threads if there are any; errors come through."""

    def quietly(k: int) -> None:
        # Settings of the caller's thread do not hold in other threads.
        with np.errstate(all="ignore"):
            work(k)

    for _ in (map if executor is None else executor.map)(quietly, range(count)):
        pass


def smallest_tolerance(n_rows: int, n_columns: int, cost_range: float, reg: float) -> float:
    """Return the smallest gap that the entropic solver can certify in double precision.

    It is in units of cost, and depends only on these arguments, so it may be public. `cost_range`
    is the largest minus the smallest cost.

    Notes
    -----
    An exponent is of the size of ``1 + cost_range / reg``, and known up to a few units in its last
    place; so are, relatively, the entries of the plan, and its columns. Errors of the columns count
    as much as `cost_range`, and those of the rows' logarithms as much as `reg`. So do the errors of
    sums, which grow with the number of terms. For costs that do not begin at 0, the rounding of the
    largest comes on top.

    Examples
    --------
    >>> from skdpot.transport import smallest_tolerance
    >>> smallest_tolerance(1000, 1000, 1.0, 0.01) < 2e-11
    True
    """
    # As row potentials differ by no more than costs do, the allowance is half of this at most.
    return 8 * _rounding_allowance(n_rows + n_columns, cost_range, reg)


def entropic_transport(
    cost: Any, a: np.ndarray, b: np.ndarray, reg: float, tol: float, *, n_threads: int = 1
) -> TransportResult:
    r"""Return the entropic transport cost between two weighted samples, with a certificate.

    The cost is :math:`\min_\pi \langle c, \pi \rangle + \mathrm{reg} \cdot
    \mathrm{KL}(\pi | a \otimes b)` over all plans with marginals a and b.

    Parameters
    ----------
    cost : array-like of shape (n, m) or Costs
        A matrix, or costs between points of :mod:`skdpot.transport`. These are computed on
        the fly where a plan of n times m entries would be too large to be kept.
    a, b : ndarray of shape (n,), (m,)
        Non-negative weights with sum 1.
    reg : float
        Regularisation, above 0, in units of cost.
    tol : float
        Certified gap at which to stop, in units of cost.
    n_threads : int, default=1
        Threads; the result does not depend on it.

    Returns
    -------
    TransportResult
        Cost, certified gap, potentials, and the number of passes.

    Raises
    ------
    ValueError
        If an argument is out of its range, or `tol` below what double precision can certify.

    Notes
    -----
    *Certificate.* Let f be the row potentials that answer some g, and h the column potentials that
    answer f. The objective of f and h is concave in f, and its gradient is a minus the row sums of
    their plan. So the optimum is higher by at most ``<a - rows, f* - f>``. Answers have a range of
    at most R, that of the costs; those that attain the optimum, f*, are such. A Markov kernel maps
    ``b - columns``, of the plan of f and g, to ``rows - a``, which therefore has no larger l1 norm.
    As the sum of ``a - rows`` is 0, the optimum is higher by at most ``(R + range(f)) / 2 *
    |b - columns|_1``.

    *Not private*: cost and potentials depend on single points. How long it takes does, too.

    With plain updates only, the objective would be within `tol` after ``2 R**2 / (reg tol)`` passes
    at most; usually it is after ten.

    References
    ----------
    D. G. Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 12(4), 1965.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport import entropic_transport
    >>> cost, half = 1 - np.eye(2), np.full(2, 0.5)
    >>> result = entropic_transport(cost, half, half, reg=0.1, tol=1e-9)
    >>> round(result.cost, 6), result.gap <= 1e-9
    (0.06931, True)
    """
    # Where a caller made underflow an error, private values could raise it.
    with np.errstate(all="ignore"), threads(n_threads) as executor:
        costs = as_costs(cost)
        a, b = check_weights(a, costs.shape[0], "a"), check_weights(b, costs.shape[1], "b")
        _check_reg(costs, reg, tol)
        ascent = _SinkhornIteration(costs, a, b, executor)
        for level in _levels(costs.high - costs.low, reg):
            ascent.start(level)
            while ascent.certified_gap() > tol:
                ascent.step()
        return ascent.result()


class _SinkhornIteration:
    """The ascent of the semi-dual objective at one regularisation after another.

    Potentials are kept in units of the regularisation in force, for costs that begin at 0.
    """

    def __init__(
        self, costs: Costs, a: np.ndarray, b: np.ndarray, executor: ThreadPoolExecutor | None
    ) -> None:
        self.costs, self.a, self.b = costs, a, b
        self.n_iter = 0
        self.reg = math.nan
        self._range = costs.high - costs.low
        self._support = b > 0
        self._executor = executor
        self._transposed: Costs | None = None
        self._solved: list[tuple[float, np.ndarray]] = []
        n, m = costs.shape
        self._plan = KeptPlan(costs, a, b, executor) if n * m <= _LARGEST_PLAN else None
        # After this number of passes, they have taken about as long as a Hessian.
        has_hessian = self._plan is not None and m * m <= _LARGEST_HESSIAN
        self._patience = 10 + m * (n + m) // (32 * n) if has_hessian else math.inf

    def start(self, reg: float) -> None:
        """Go on with another regularisation, from where those before it lead on a line."""
        if self.n_iter:
            self._solved.append((self.reg, self.g * self.reg))
        self.reg, self._stretch = reg, 2.0
        self._newton_at = self.n_iter + self._patience
        self._forget()
        g = self._predicted(reg) / reg
        self._move(g, *self._evaluate(g))

    def step(self) -> None:
        """Take an extrapolated update, a multiple of it, or a plain one, whichever does first."""
        if self.n_iter >= self._newton_at:
            self._newton_at = self.n_iter + self._patience
            # A step that is no progress costs one pass, and the plain steps go on.
            if self._advances_to(self._newton()):
                return
        self._points.append(self.g)
        self._updates.append(self.update)
        if len(self._updates) > 1:
            if self._advances_to(self._extrapolated()):
                return
            self._forget()
            if self._advances_to(self.g + self._stretch * self.update):
                # Potentials that move at a constant speed are followed in ever longer steps.
                self._stretch *= 2.0
                return
            self._stretch = 2.0
        plain = self.g + self.update
        self._move(plain, *self._evaluate(plain))

    def certified_gap(self) -> float:
        """Return how far from the maximum, in units of cost, the objective of `result` can be."""
        both_ranges = self._range + self.reg * float(np.ptp(self.f))
        rounding = _rounding_allowance(sum(self.costs.shape), both_ranges, self.reg)
        return 0.5 * both_ranges * self.error + rounding + _EPS * abs(self.costs.low)

    def result(self) -> TransportResult:
        """Return the row potentials, the column potentials that answer them, and the objective."""
        # The answer to the rows, so that both potentials belong to one plan.
        g = self.g + self.update
        objective = self._objective(g, self.f) * self.reg
        if not self._support.all():
            # An empty column has no part in the objective; this is its answer to the rows.
            g[~self._support] = self._column_answer()[~self._support]
        return TransportResult(
            cost=self.costs.low + objective,
            gap=self.certified_gap(),
            row_potential=self.costs.low + self.f * self.reg,
            column_potential=g * self.reg,
            n_iter=self.n_iter,
        )

    def _predicted(self, reg: float) -> np.ndarray:
        """Return column potentials for a regularisation, in units of cost."""
        if not self._solved:
            return np.zeros(len(self.b))
        last, potential = self._solved[-1]
        if len(self._solved) == 1:
            return potential
        earlier, before = self._solved[-2]
        return potential + (potential - before) * ((reg - last) / (last - earlier))

    def _evaluate(self, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.n_iter += 1
        if self._plan is None:
            return half_step(self.costs, g, self.a, self.b, self.reg, self._executor)
        return self._plan.evaluate(g, self.reg)

    def _move(self, g: np.ndarray, f: np.ndarray, columns: np.ndarray) -> None:
        self.g, self.f, self.columns = g, f, columns
        self.objective = self._objective(g, f)
        self.error = float(np.abs(columns - self.b).sum())
        self.update = self._update()

    def _advances_to(self, candidate: np.ndarray) -> bool:
        """Move to column potentials if that is progress; return whether it is."""
        if not np.isfinite(candidate).all():
            return False
        # Constants change nothing, but large ones would drown the objective in rounding.
        candidate = candidate - self.b @ candidate
        f, columns = self._evaluate(candidate)
        if not self._is_progress(candidate, f, columns):
            return False
        self._move(candidate, f, columns)
        return True

    def _is_progress(self, candidate: np.ndarray, f: np.ndarray, columns: np.ndarray) -> bool:
        """Tell whether a point raises the objective by a quarter of the slope towards the answer.

        Where rounding hides that, the objective is integrated from its slopes at both ends.
        """
        # A quarter of the slope, as in a line search: enough that plain steps would not have gained
        # more for ever.
        wanted = 0.25 * float((self.b - self.columns) @ self.update)
        noise = 4 * _EPS * (1.0 + np.abs(f).max() + np.abs(candidate).max())
        if wanted > noise:
            return self._objective(candidate, f) - self.objective >= wanted
        slopes = (self.b - self.columns) + (self.b - columns)
        return 0.5 * float(slopes @ (candidate - self.g)) >= wanted

    def _objective(self, g: np.ndarray, f: np.ndarray) -> float:
        return float(self.a @ f + self.b @ g)

    def _update(self) -> np.ndarray:
        """Return by how much the column potentials must grow for the columns to be right."""
        # Columns with less mass than this are computed anew without underflow, which begins at
        # 1e-307; a plan that is kept and scaled adds two factors of exp(30).
        smallest_column = 1e-250
        support = self._support
        if (self.columns[support] < smallest_column).any():
            return np.where(support, self._column_answer() - self.g, 0.0)
        ratios = np.ones(len(self.b))
        # Empty columns keep a ratio of 1, that is, no update.
        np.divide(self.b, self.columns, out=ratios, where=support)
        return np.log(ratios)

    def _column_answer(self) -> np.ndarray:
        self.n_iter += 1
        if self._transposed is None:
            self._transposed = self.costs.transposed()
        answer, _ = half_step(
            self._transposed, self.f, np.zeros(len(self.b)), self.a, self.reg, self._executor
        )
        return answer

    def _extrapolated(self) -> np.ndarray:
        """Return the combination of the last updates that would be smallest if they were linear."""
        # How many updates are extrapolated.
        memory = 20
        del self._points[: -memory - 1], self._updates[: -memory - 1]
        updates, points = np.array(self._updates), np.array(self._points)
        differences = np.diff(updates, axis=0).T
        # Columns of little mass must not decide on the combination.
        scale = np.sqrt(self.b)
        try:
            scaled = scale[:, None] * differences
            factors = np.linalg.lstsq(scaled, scale * updates[-1], rcond=1e-10)[0]
        except np.linalg.LinAlgError:
            factors = np.full(len(updates) - 1, np.nan)
        return points[-1] + updates[-1] - (np.diff(points, axis=0).T + differences) @ factors

    def _newton(self) -> np.ndarray:
        """Return where a step of Newton's method leads, or NaN where rounding does not let it."""
        assert self._plan is not None
        scale = np.sqrt(self.b)
        inverse = np.divide(1.0, scale, out=np.zeros(len(scale)), where=self._support)
        # Constants change nothing, so without this product the Hessian is singular; the small
        # number is for parts that nothing joins, and the one for empty columns.
        hessian = np.outer(scale, scale) - self._plan.overlaps(self.g, inverse)
        ratios = np.where(self._support, self.columns / self.b, 1.0)
        np.einsum("jj->j", hessian)[:] += ratios + 1e-15
        try:
            factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return np.full(len(self.g), np.nan)
        step = inverse * cho_solve(factor, inverse * (self.b - self.columns), check_finite=False)
        # Along a step of this range, curvature changes by a factor of at most its exponential.
        # So the full step is taken near the optimum only.
        length = np.ptp(step)
        return self.g + step * (np.log1p(length) / length)

    def _forget(self) -> None:
        self._points: list[np.ndarray] = []
        self._updates: list[np.ndarray] = []


def _levels(cost_range: float, reg: float) -> list[float]:
    """Return the regularisations that lead to one, which is the last."""
    reg_factor = 4.0
    levels = []
    # A regularisation above a sixteenth of the range is its own first level.
    level = _FIRST_REG * cost_range
    while level > 1.5 * reg:
        levels.append(level)
        level /= reg_factor
    return [*levels, reg]


def _rounding_allowance(n_points: int, cost_range: float, reg: float) -> float:
    """Return a bound on rounding errors that the certificate does not see."""
    return 2 * _EPS * (cost_range + reg) * (16.0 * (1.0 + cost_range / reg) + n_points)


def _check_reg(costs: Costs, reg: float, tol: float) -> None:
    if not 0 < reg < math.inf:
        raise ValueError(f"reg must be a finite number above 0, got {reg!r}.")
    cost_range = costs.high - costs.low
    smallest = smallest_tolerance(*costs.shape, cost_range, reg) + 2 * _EPS * abs(costs.low)
    if not tol >= smallest:
        raise ValueError(
            f"tol={tol:.3g} cannot be certified in double precision: with reg={reg:.3g} and costs "
            f"between {costs.low:.3g} and {costs.high:.3g}, it must be at least {smallest:.2g}. "
            "Raise tol or reg."
        )
