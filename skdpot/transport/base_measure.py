"""Base measures of the local-privacy polytope and the worst case they leave a user with.

With cost matrix ``C`` (inputs by outputs), ``E = exp(epsilon)`` and a base measure ``s``, the
cheapest privatised image of the Dirac at input ``i`` costs ::

    f_i(s) = max_t { t + sum_j s_j [(C_ij - t)_+ - E (t - C_ij)_+] }

and the worst case over all input distributions is ``F(s) = max_i f_i(s)``, a convex function.
Inside this module costs are shifted and scaled to lie in [0, 1), and linear programs are written
in ``u = E s``, whose entries stay of order one however large epsilon is.

*On the unit sphere* under powers of the Euclidean distance, with ``z = (1 - <x, y>) / 2`` (so that
the squared distance is ``4 z``) and ``a = (d - 1) / 2``, a uniform output y makes z a symmetric
beta variable with parameters (a, a). The optimal mechanism has density ``E c`` on the cap
``z <= z*`` around the input and c outside it (:ref:`proof-unit-vectors`).
"""

import math
import operator
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, linprog
from scipy.special import betainc, betaln, psi

from .polytope import check_base_measure, check_cost_matrix, check_epsilon, check_stopping

MACHINE_EPSILON = float(np.finfo(np.float64).eps)
# Gaps up to this fraction of the costs' range are rounding: no float64 search can close them.
ROUNDING_OF_RANGE = 4 * MACHINE_EPSILON
_LOG_4 = math.log(4.0)


class TransportConvergenceWarning(UserWarning):
    """An iteration on public geometry stopped before it reached its tolerance."""


@dataclass(frozen=True, eq=False)
class BaseMeasureResult:
    """A base measure with the quality that was certified for it.

    Parameters
    ----------
    base_measure : ndarray of shape (n_outputs,)
        Non-negative masses s with ``sum(s) <= 1 <= exp(epsilon) * sum(s)`` in float64.
    cost : float
        The worst-case cost of `base_measure`, as `worst_case_cost` gives it.
    lower_bound : float
        No base measure among those searched has a smaller worst-case cost.
    gap : float
        ``(cost - lower_bound) / abs(cost)``, or ``cost - lower_bound`` if `cost` is 0. It is 0
        where ``cost - lower_bound`` is at most four units of rounding (about 1e-15) of the range
        of the cost matrix, which is as far as float64 can tell costs apart.
    n_iter : int
        Number of linear programs solved.

    Examples
    --------
    >>> from skdpot.transport.base_measure import uniform_base_measure
    >>> uniform_base_measure([[0.0, 1.0], [1.0, 0.0]], epsilon=1.0).n_iter
    0
    """

    base_measure: np.ndarray
    cost: float
    lower_bound: float
    gap: float
    n_iter: int


def make_result(geometry, masses, scaled_cost, scaled_bound, n_iter):
    """Return the result in the caller's units, with a bound that is never above the cost."""
    is_rounding = scaled_cost - scaled_bound <= ROUNDING_OF_RANGE
    cost = geometry.to_cost(scaled_cost)
    lower_bound = min(cost, geometry.to_lower_bound(scaled_bound))
    return BaseMeasureResult(
        base_measure=masses,
        cost=cost,
        lower_bound=lower_bound,
        gap=0.0 if is_rounding else (cost - lower_bound) / (abs(cost) or 1.0),
        n_iter=n_iter,
    )


class Geometry:
    """Shifted, scaled and sorted costs, and the greedy projection of every Dirac."""

    def __init__(self, cost_matrix, epsilon):
        cost_matrix = check_cost_matrix(cost_matrix)
        self.exp_epsilon = math.exp(check_epsilon(epsilon))
        self._offset = cost_matrix.min()
        # An overflow is told in words below.
        with np.errstate(over="ignore"):
            shifted = cost_matrix - self._offset
        if not np.isfinite(shifted.max()):
            raise ValueError(
                "cost_matrix spans a range that overflows float64; rescale it, for example by "
                "dividing it by its largest absolute entry."
            )
        # A power of two scales without rounding.
        self._exponent = math.frexp(shifted.max())[1]
        self.costs = np.ldexp(shifted, -self._exponent)
        self.n_inputs, self.n_outputs = self.costs.shape
        # A Dirac is served in this order: sorted once, and used for every base measure.
        self._order = np.argsort(self.costs, axis=1)
        self.sorted_costs = np.take_along_axis(self.costs, self._order, axis=1)

    def to_cost(self, scaled_cost):
        """Cost in the caller's units."""
        return float(self._offset + math.ldexp(scaled_cost, self._exponent))

    def to_lower_bound(self, scaled_bound):
        """Bound in the caller's units, rounded down."""
        shrunk = scaled_bound - 4 * MACHINE_EPSILON * abs(scaled_bound)
        return float(np.nextafter(self.to_cost(shrunk), -np.inf)) if shrunk else self.to_cost(0.0)

    def _capacities(self, masses):
        """Mass left to place, and how much of it the cheapest outputs of each input can take."""
        # Every output gets its lower bound first, so this is what is left for the greedy filling.
        remaining = max(0.0, 1.0 - masses.sum())
        slots = ((self.exp_epsilon - 1.0) * masses)[self._order]
        return remaining, slots, np.cumsum(slots, axis=1)

    def dirac_costs(self, masses):
        """Cost of the cheapest distribution in the polytope, for the Dirac at each input."""
        remaining, slots, filled_up_to = self._capacities(masses)
        placed = np.clip(remaining - (filled_up_to - slots), 0.0, slots)
        placed[:, -1] += np.maximum(0.0, remaining - filled_up_to[:, -1])
        # Sums of non-negative terms only: tiny costs keep their relative accuracy.
        return self.costs @ masses + np.einsum("ij,ij->i", placed, self.sorted_costs)

    def minorants(self, masses, rows):
        """Thresholds t and slopes in u = E s of linear minorants that touch at `masses`.

        Where the marginal cost of an input jumps at `masses`, it has a minorant for both sides.
        """
        # Capacities this close (relatively) to the mass still to be placed count as a tie.
        tie_tolerance = 1e-9
        remaining, _, filled_up_to = self._capacities(masses)
        filled_up_to, sorted_costs = filled_up_to[rows], self.sorted_costs[rows]
        # At a tie the cost has a kink, and both of its sides are minorants.
        tie = tie_tolerance * remaining
        last = self.n_outputs - 1
        position = np.arange(len(rows))
        n_below = np.minimum((filled_up_to < remaining - tie).sum(axis=1), last)
        n_above = np.minimum((filled_up_to <= remaining + tie).sum(axis=1), last)
        low, high = sorted_costs[position, n_below], sorted_costs[position, n_above]
        jumps = high > low
        thresholds = np.concatenate([low, high[jumps]])
        excess = self.costs[np.concatenate([rows, rows[jumps]])] - thresholds[:, None]
        return thresholds, np.where(excess > 0, excess / self.exp_epsilon, excess)

    def max_mass(self, cost):
        """Bound on sum(u) over all base measures whose worst-case cost is at most `cost`.

        With t = 0 the minorants, averaged over the inputs, give F(s) >= sum_j s_j mean_i C_ij.
        """
        smallest_mean = self.costs.mean(axis=0).min()
        rounded_up = cost * (1 + (self.n_inputs + self.n_outputs + 16) * MACHINE_EPSILON)
        # No bound follows from it, and the constraint on the sum is all that there is.
        if rounded_up >= smallest_mean:
            return self.exp_epsilon
        return max(1.0, self.exp_epsilon * (rounded_up / smallest_mean))


def _solve_master(thresholds, slopes, max_mass, unit):
    """Minimise the largest minorant: u and the minorants' multipliers, or None on failure."""
    objective_weight = 1e4
    n_minorants, n_outputs = slopes.shape
    # In units of the best cost, the solver's absolute tolerances act as relative ones. A large
    # objective makes that on the duals finer still: in the bound, it is multiplied by the mass.
    below_height = np.column_stack([slopes / unit, np.full(n_minorants, -1.0)])
    total = np.append(np.ones(n_outputs), 0.0)
    constraints = np.vstack([below_height, total, -total])
    limits = np.concatenate([-thresholds / unit, [max_mass, -1.0]])
    objective = np.append(np.zeros(n_outputs), objective_weight)
    bounds = [(0.0, None)] * n_outputs + [(None, None)]
    accuracy = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for method, options in (("highs-ds", accuracy), ("highs-ds", {}), ("highs-ipm", {})):
        how = {"bounds": bounds, "method": method, "options": options}
        solution = linprog(objective, constraints, limits, **how)
        if solution.status == 0:
            multipliers = np.maximum(-solution.ineqlin.marginals[:n_minorants], 0.0)
            if multipliers.sum() > 0:
                return solution.x[:n_outputs], multipliers / multipliers.sum()
    return None


def _certified_bound(thresholds, slopes, weights, max_mass):
    """Minimum of a mixture of minorants over u >= 0, 1 <= sum(u) <= max_mass, rounded down.

    By weak duality any weights give a bound. Each slope, each product and each sum is off by at
    most `rounding` times the sum of the absolute values that enter it.
    """
    # Minorants without weight would only add to the bound on rounding.
    used = np.flatnonzero(weights)
    weights, thresholds, slopes = weights[used], thresholds[used], slopes[used]
    rounding = (len(used) + 16) * MACHINE_EPSILON
    lowest = (weights @ slopes - rounding * (weights @ np.abs(slopes))).min()
    # All mass goes to the cheapest output, as little of it as possible or as much.
    mass = 1.0 if lowest >= 0 else max_mass
    level = weights @ thresholds
    return level + mass * lowest - rounding * (level + mass * abs(lowest))


def best_scaled_uniform(geometry):
    """Best constant base measure, and the smallest worst-case cost along its family."""
    n_outputs, excess = geometry.n_outputs, geometry.exp_epsilon - 1.0
    # At these scales the k cheapest outputs are exactly full, and all costs are linear between.
    # Kinks are where another output of some input becomes full.
    n_full = np.arange(n_outputs + 1)
    scales = n_outputs / (n_outputs + n_full * excess)
    prefix_sums = np.zeros((geometry.n_inputs, n_outputs + 1))
    np.cumsum(geometry.sorted_costs, axis=1, out=prefix_sums[:, 1:])
    costs = (scales / n_outputs) * (prefix_sums[:, -1:] + excess * prefix_sums)
    lowest = int(costs.max(axis=0).argmin())
    scale, value = scales[lowest], costs[:, lowest].max()
    # Convex, so the minimum is in one of the two pieces beside the best kink.
    for first in range(max(0, lowest - 1), min(n_outputs, lowest + 1)):
        position, height = lowest_of_envelope(costs[:, first], costs[:, first + 1])
        if height < value:
            value = height
            scale = (1.0 - position) * scales[first] + position * scales[first + 1]
    masses = np.full(n_outputs, scale / n_outputs)
    return _into_mass_limits(masses, geometry.exp_epsilon), value


def lowest_of_envelope(at_start, at_end):
    """Position in [0, 1] and height of the lowest point of the maximum of lines."""
    falling = np.lexsort((at_end, at_start))[-1]
    rising = np.lexsort((at_start, at_end))[-1]
    if at_end[falling] >= at_start[falling]:
        return 0.0, at_start[falling]
    if at_start[rising] >= at_end[rising]:
        return 1.0, at_end[rising]
    for _ in range(len(at_start)):
        drop = at_start[falling] - at_start[rising]
        position = drop / (drop + at_end[rising] - at_end[falling])
        heights = (1.0 - position) * at_start + position * at_end
        highest = heights.argmax()
        if heights[highest] <= max(heights[falling], heights[rising]):
            break
        if at_end[highest] < at_start[highest]:
            falling = highest
        else:
            rising = highest
    return position, heights[highest]


def _into_mass_limits(masses, exp_epsilon):
    """Non-negative masses with sum <= 1 <= exp_epsilon * sum, changed by as little as possible.

    The lower limit is kept with a few units of rounding to spare, as another library's exponential
    may be the larger one.
    """
    # Solvers may return entries that are a little below 0.
    masses = np.maximum(masses, 0.0)
    smallest = min(1.0, (1.0 + 8 * MACHINE_EPSILON) / exp_epsilon)
    total = math.fsum(masses)
    if total > 1.0:
        masses = masses / total
    elif total < smallest:
        masses = masses * (smallest / total)
    # Division leaves an error of a few units in the last place: step over it, up or down.
    for n_steps in range(1, 65):
        sums = math.fsum(masses), float(masses.sum())
        if max(sums) > 1.0:
            masses = masses * (1.0 - n_steps * MACHINE_EPSILON)
        elif min(sums) < smallest:
            masses = masses * (1.0 + n_steps * MACHINE_EPSILON)
        else:
            break
    return masses


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
    check_stopping(tol, max_iter=max_iter)
    geometry = Geometry(cost_matrix, epsilon)
    masses = best_masses = best_scaled_uniform(geometry)[0]
    dirac_costs = geometry.dirac_costs(masses)
    best_cost = dirac_costs.max()
    # Every image of the Dirac at i costs at least the cheapest output of i.
    lower_bound = geometry.sorted_costs[:, 0].max()
    thresholds, slopes = np.empty(0), np.empty((0, geometry.n_outputs))
    result = make_result(geometry, best_masses, best_cost, lower_bound, 0)
    for n_iter in range(1, max_iter + 1):
        if result.gap <= tol:
            break
        # A Dirac below the lower bound is not the worst case anywhere near.
        rows = np.flatnonzero(dirac_costs >= min(lower_bound, dirac_costs.max()))
        new_thresholds, new_slopes = geometry.minorants(masses, rows)
        thresholds = np.concatenate([thresholds, new_thresholds])
        slopes = np.concatenate([slopes, new_slopes])
        max_mass = geometry.max_mass(best_cost)
        solution = _solve_master(thresholds, slopes, max_mass, best_cost)
        is_stalled = solution is None
        if solution is not None:
            u, multipliers = solution
            bound = _certified_bound(thresholds, slopes, multipliers, max_mass)
            has_risen = bound > lower_bound
            lower_bound = max(lower_bound, min(bound, best_cost))
            masses = _into_mass_limits(u / geometry.exp_epsilon, geometry.exp_epsilon)
            dirac_costs = geometry.dirac_costs(masses)
            cost = dirac_costs.max()
            model = thresholds + slopes @ (geometry.exp_epsilon * masses)
            has_fallen = cost < best_cost
            # Where the model is exact, the next master problem would be this one again.
            is_exact = cost <= model.max() + ROUNDING_OF_RANGE
            is_stalled = is_exact and not has_risen and not has_fallen
            if has_fallen:
                best_masses, best_cost = masses, cost
            # Forgetting only after progress keeps the method finite: cuts whose slack is more than
            # a tenth of the gap.
            if has_risen:
                slack_allowed = 0.1 * (best_cost - lower_bound)
                kept = (model >= model.max() - slack_allowed) | (multipliers > 0)
                thresholds, slopes = thresholds[kept], slopes[kept]
        result = make_result(geometry, best_masses, best_cost, lower_bound, n_iter)
        if callback is not None:
            callback(result)
        if is_stalled:
            break
    if result.gap > tol:
        warnings.warn(
            f"optimal_base_measure stopped after {result.n_iter} linear programs with a gap of "
            f"{result.gap:.3g}, above tol={tol:g}. The base measure is valid; raise max_iter or "
            "tol if this gap is not small enough or the warning is not wanted.",
            TransportConvergenceWarning,
            stacklevel=2,
        )
    return result


@dataclass(frozen=True)
class SphereBaseMeasure:
    """A multiple of the uniform distribution on the sphere, and the mechanism that belongs to it.

    Parameters
    ----------
    scale : float
        The base measure is `scale` times the uniform distribution.
    threshold : float
        The density is ``exp(epsilon) * scale`` where ``(1 - <x, y>) / 2 <= threshold``, and
        `scale` elsewhere.
    cost : float
        Expected distance between input and output to the power ``order``, the same for every unit
        vector, and the worst case over all distributions on the sphere.
    cap_probability : float
        Probability of the cap ``(1 - <x, y>) / 2 <= threshold`` under the uniform distribution.

    Examples
    --------
    >>> from skdpot.transport import sphere_base_measure
    >>> round(sphere_base_measure(3, epsilon=2.0, order=2).cap_probability, 4)
    0.2689
    """

    scale: float
    threshold: float
    cost: float
    cap_probability: float


def sphere_base_measure(n_features, epsilon, *, order=1) -> SphereBaseMeasure:
    """Find the optimal base measure for unit vectors under Euclidean distance to a power.

    By symmetry it is a multiple of the uniform distribution; which one is the root of a scalar
    equation, solved to rounding. It depends on nothing private.

    Parameters
    ----------
    n_features : int
        Number of coordinates d of the vectors, at least 2.
    epsilon : float
        Privacy parameter, positive, with a finite exponential.
    order : float, default=1
        The cost is the Euclidean distance to this power; positive.

    Returns
    -------
    SphereBaseMeasure
        With fields `scale`, `threshold`, `cost` and `cap_probability`.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or if the cap or the cost is not representable.

    References
    ----------
    Differentially Private Sampling from Distributions via Wasserstein Projection, Appendix H.

    Examples
    --------
    In three dimensions with squared distances, the scale is ``exp(-epsilon / 2)`` and the cost
    ``4 / (1 + exp(epsilon / 2))``:

    >>> import math
    >>> from skdpot.transport import sphere_base_measure
    >>> result = sphere_base_measure(3, epsilon=2.0, order=2)
    >>> round(result.scale / math.exp(-1.0), 9)
    1.0
    >>> round(result.cost * (1.0 + math.exp(1.0)), 9)
    4.0
    """
    shape, gain, half_order = _read_sphere(n_features, epsilon, order)
    log_threshold = _solve_log_threshold(shape, gain, half_order)
    threshold = math.exp(log_threshold)
    cap = float(betainc(shape, shape, threshold))
    return SphereBaseMeasure(
        scale=1.0 / (1.0 + gain * cap),
        threshold=threshold,
        cost=_exp(half_order * (log_threshold + _LOG_4)),
        cap_probability=cap,
    )


def sphere_cap_cost(n_features, epsilon, threshold, *, order=1) -> float:
    """Expected cost of the mechanism that prefers a cap, whether or not the cap suits the cost.

    Parameters
    ----------
    n_features : int
        Number of coordinates d of the vectors, at least 2.
    epsilon : float
        Privacy parameter, positive, with a finite exponential.
    threshold : float
        The density is ``exp(epsilon)`` times larger where ``(1 - <x, y>) / 2 <= threshold``; in
        (0, 1].
    order : float, default=1
        The cost is the Euclidean distance to this power; positive.

    Returns
    -------
    float
        Expectation of the distance between input and output to the power `order`; the same for
        every unit vector, and so public.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the cost is not representable.

    References
    ----------
    Differentially Private Sampling from Distributions via Wasserstein Projection, Appendix H.

    Examples
    --------
    The mechanism that is optimal for distances, and its expected squared distance:

    >>> from skdpot.transport import sphere_cap_cost, sphere_base_measure
    >>> result = sphere_base_measure(10, epsilon=2.0)
    >>> round(sphere_cap_cost(10, 2.0, result.threshold, order=2), 4)
    1.5007
    """
    shape, gain, half_order = _read_sphere(n_features, epsilon, order)
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold!r}.")
    # The cap's share of the cost, and below that of its mass, over those of the whole sphere.
    near = 1.0 + gain * float(betainc(shape + half_order, shape, threshold))
    total = 1.0 + gain * float(betainc(shape, shape, threshold))
    return _exp(_log_mean_cost(shape, half_order) + math.log(near) - math.log(total))


def _read_sphere(n_features, epsilon, order):
    """Return the parameter (d - 1) / 2 of the beta distribution, exp(epsilon) - 1 and order / 2."""
    n_features = operator.index(n_features)
    if n_features < 2:
        raise ValueError(f"n_features={n_features}: a sphere needs at least 2 features.")
    gain = math.expm1(check_epsilon(epsilon))
    order = float(order)
    if not (order > 0 and math.isfinite(order)):
        raise ValueError(f"order must be positive and finite, got {order}.")
    # Distances are roots of 4 z, so that powers of z have half of the order.
    return (n_features - 1) / 2, gain, order / 2


def _exp(log_cost):
    try:
        return math.exp(log_cost)
    except OverflowError:
        raise ValueError("the cost overflows: choose a smaller order.") from None


def _solve_log_threshold(shape, gain, half_order):
    """Return log(z*), where the density's jump costs as much as it saves.

    Both sides of the optimality condition are compared by their logarithms, as functions of
    log z: they span hundreds of decades, and this difference does not.
    """
    log_smallest = math.log(np.finfo(np.float64).tiny)
    log_mean = _log_mean_cost(shape, half_order)

    def excess(log_z):
        z = math.exp(log_z)
        cap = math.log1p(gain * float(betainc(shape, shape, z)))
        cost_in_cap = math.log1p(gain * float(betainc(shape + half_order, shape, z)))
        return half_order * (log_z + _LOG_4) + cap - (log_mean + cost_in_cap)

    # The cost at the edge of the cap never exceeds the mean cost of a uniform output.
    highest = log_mean / half_order - _LOG_4
    if excess(highest) <= 0:
        return highest
    if excess(log_smallest) >= 0:
        raise ValueError(
            "epsilon is too large for this number of features and this order: the optimal cap is "
            "smaller than the smallest float. Choose a smaller epsilon."
        )
    # As tight as brentq allows.
    return brentq(excess, log_smallest, highest, xtol=1e-16, rtol=4 * np.finfo(np.float64).eps)


def _log_mean_cost(shape, half_order):
    """Return the logarithm of the mean cost of a uniform output, 4**h B(a + h, a) / B(a, a)."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    if half_order > shape:
        ratio = betaln(shape + half_order, shape) - betaln(shape, shape)
    else:
        # In high dimension both terms are large and nearly equal; their difference is an integral
        # of digamma functions, so smooth here that the quadrature is exact to rounding.
        steps = half_order * (nodes + 1) / 2
        slopes = psi(shape + steps) - psi(2 * shape + steps)
        ratio = half_order / 2 * float(weights @ slopes)
    return half_order * _LOG_4 + float(ratio)
