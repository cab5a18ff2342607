"""Base measures of the local-privacy polytope and the worst case they leave a user with.

With cost matrix ``C`` (inputs by outputs), ``E = exp(epsilon)`` and a base measure ``s``, the
cheapest privatised image of the Dirac at input ``i`` costs ::

    f_i(s) = max_t { t + sum_j s_j [(C_ij - t)_+ - E (t - C_ij)_+] }

and the worst case over all input distributions is ``F(s) = max_i f_i(s)``, a convex function.
Inside this module costs are shifted and scaled to lie in [0, 1), and linear programs are written
in ``u = E s``, whose entries stay of order one however large epsilon is.
"""

import math
import operator
import warnings

from .cutting_planes import (
    MACHINE_EPSILON,
    BaseMeasureResult,
    CuttingPlanes,
    Geometry,
    best_scaled_uniform,
    make_result,
)
from .polytope import check_base_measure

__all__ = [
    "BaseMeasureResult",
    "TransportConvergenceWarning",
    "optimal_base_measure",
    "uniform_base_measure",
    "worst_case_cost",
]


class TransportConvergenceWarning(UserWarning):
    """An iteration on public geometry stopped before it reached its tolerance."""


def worst_case_cost(cost_matrix, base_measure, epsilon) -> float:
    """Largest cost of projecting an input distribution onto the polytope of a base measure.

    The largest cost is reached at a Dirac, whose projection fills the cheapest outputs first,
    so the value is exact up to rounding.

    Parameters
    ----------
    cost_matrix : array-like of shape (n_inputs, n_outputs)
        Finite costs of moving a unit of mass from an input to an output point.
    base_measure : array-like of shape (n_outputs,)
        Masses s >= 0 (zeros allowed) with ``sum(s) <= 1 <= exp(epsilon) * sum(s)``.
    epsilon : float
        Privacy parameter, positive, with a finite exponential.

    Returns
    -------
    float
        The worst-case cost. It is a power of a Wasserstein distance if the costs are powers of
        distances. Like all of its arguments, it is public.

    Raises
    ------
    ValueError
        If costs, base measure or epsilon are not valid.

    References
    ----------
    Differentially Private Sampling from Distributions via Wasserstein Projection, Proposition B.2.

    Examples
    --------
    >>> import math
    >>> from skdpot.transport.base_measure import worst_case_cost
    >>> round(worst_case_cost([[0.0, 1.0], [1.0, 0.0]], [0.25, 0.25], math.log(3.0)), 12)
    0.25
    """
    geometry = Geometry(cost_matrix, epsilon)
    masses = check_base_measure(base_measure, epsilon, geometry.n_outputs)
    return geometry.to_cost(geometry.dirac_costs(masses).max())


def uniform_base_measure(cost_matrix, epsilon) -> BaseMeasureResult:
    """Best base measure that gives every output point the same mass.

    Along ``s = c / n_outputs`` the worst-case cost is convex and piecewise linear in c. Its kinks
    are known, so the best c in ``[exp(-epsilon), 1]`` is found exactly, without a search grid.

    Parameters
    ----------
    cost_matrix : array-like of shape (n_inputs, n_outputs)
        Finite costs of moving a unit of mass from an input to an output point.
    epsilon : float
        Privacy parameter, positive, with a finite exponential.

    Returns
    -------
    BaseMeasureResult
        Its `lower_bound` holds only for scaled uniform measures, and `n_iter` is 0. All of it is
        public.

    Raises
    ------
    ValueError
        If costs or epsilon are not valid.

    See Also
    --------
    optimal_base_measure : The best among all base measures.

    Examples
    --------
    >>> from skdpot.transport.base_measure import uniform_base_measure
    >>> result = uniform_base_measure([[0.0, 1.0], [1.0, 0.0]], epsilon=1.0)
    >>> result.base_measure.round(4), round(result.cost, 4)
    (array([0.2689, 0.2689]), 0.2689)
    """
    geometry = Geometry(cost_matrix, epsilon)
    masses, model_value = best_scaled_uniform(geometry)
    cost = geometry.dirac_costs(masses).max()
    rounding = (geometry.n_outputs + 16) * MACHINE_EPSILON
    return make_result(geometry, masses, cost, model_value * (1 - rounding), n_iter=0)


def optimal_base_measure(
    cost_matrix, epsilon, *, tol=1e-6, max_iter=200, callback=None
) -> BaseMeasureResult:
    """Base measure with the smallest worst-case cost, to a certified gap.

    Kelley's cutting planes, started at the best scaled uniform measure: each round minimises the
    largest of the linear minorants known so far, and adds those of all Diracs that may still be
    the worst case at the minimiser.

    Parameters
    ----------
    cost_matrix : array-like of shape (n_inputs, n_outputs)
        Finite costs of moving a unit of mass from an input to an output point.
    epsilon : float
        Privacy parameter, positive, with a finite exponential.
    tol : float, default=1e-6
        Gap at which the search stops, see `BaseMeasureResult`.
    max_iter : int, default=200
        Largest number of linear programs solved.
    callback : callable, default=None
        Called with the `BaseMeasureResult` so far after every linear program.

    Returns
    -------
    BaseMeasureResult
        The optimum is usually sparse and not unique: compare costs, not base measures. All of it
        is public.

    Raises
    ------
    ValueError
        If costs, epsilon, `tol` or `max_iter` are not valid.

    Warns
    -----
    TransportConvergenceWarning
        If the gap is still above `tol` when the search ends. The result remains valid, and so do
        its lower bound and gap.

    See Also
    --------
    uniform_base_measure : The best scaled uniform measure, at a fraction of the time.
    worst_case_cost : The function that is minimised.

    Notes
    -----
    The lower bound does not rely on the accuracy of the linear programming solver. Its multipliers
    are made non-negative and normalised, the mixture of minorants that they define is minimised in
    closed form, and a bound on the rounding of that computation is subtracted. The solver's base
    measure is clipped to non-negative values and its mass scaled into ``[exp(-epsilon), 1]`` before
    its cost is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport.base_measure import optimal_base_measure, uniform_base_measure
    >>> points = np.array([0.0, 1.0, 2.0, 5.0])
    >>> cost_matrix = np.abs(points[:, None] - points)
    >>> best = optimal_base_measure(cost_matrix, epsilon=1.0)
    >>> best.gap <= 1e-6
    True
    >>> best.cost < uniform_base_measure(cost_matrix, epsilon=1.0).cost
    True
    """
    _check_stopping_rule(tol, max_iter)
    search = CuttingPlanes(Geometry(cost_matrix, epsilon))
    while not search.has_converged(tol) and search.n_iter < max_iter and not search.is_stalled:
        search.improve()
        if callback is not None:
            callback(search.result())
    result = search.result()
    if not search.has_converged(tol):
        warnings.warn(
            f"optimal_base_measure stopped after {result.n_iter} linear programs with a gap of "
            f"{result.gap:.3g}, above tol={tol:g}. The base measure is valid; raise max_iter or "
            "tol if this gap is not small enough or the warning is not wanted.",
            TransportConvergenceWarning,
            stacklevel=2,
        )
    return result


def _check_stopping_rule(tol, max_iter):
    if not 0 < float(tol) < math.inf:
        raise ValueError(f"tol must be positive and finite, got {tol}.")
    if operator.index(max_iter) < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}.")
