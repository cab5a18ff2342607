"""Sensitivities: how much one record or one node can change a release, each with a proof."""

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import log_expit

from skdpot.privacy.accounting import RAISED, check_relation, raised_by_margin
from skdpot.privacy.checks import check_choice

# Neighbouring relations for which a bound holds.


def _check_replaced(relation: str, public: str) -> None:
    """Raise unless neighbours differ in a replaced record, since some quantities are public."""
    check_relation(relation)
    if relation != "replace_one":
        raise ValueError(
            f"there is no sensitivity under {relation!r} where {public}: choose 'replace_one'."
        )


def _doubled_if_replaced(bound: float, relation: str) -> float:
    """Return a bound for an added or removed record, and twice that for a replaced one."""
    check_relation(relation)
    return 2.0 * bound if relation == "replace_one" else bound


# Sensitivities of counts of records.


_ROOT_OF_TWO = math.nextafter(math.sqrt(2.0), 2.0)


def histogram_sensitivities(*, relation: str = "replace_one") -> tuple[float, float]:
    """Return how much a record can change a histogram, in the l1 and l2 norm.

    Every record is counted in at most one cell.

    Parameters
    ----------
    relation : {"replace_one", "add_remove"}, default="replace_one"
        The neighbouring relation.

    Returns
    -------
    l1, l2 : float
        2 and the root of 2, rounded up, for a record that is replaced; 1 and 1 for a record more or
        less.

    Notes
    -----
    Proof: :ref:`proof-histograms`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import histogram_sensitivities
    >>> histogram_sensitivities()
    (2.0, 1.4142135623730954)
    >>> histogram_sensitivities(relation="add_remove")
    (1.0, 1.0)
    """
    check_relation(relation)
    return (2.0, _ROOT_OF_TWO) if relation == "replace_one" else (1.0, 1.0)


# Sensitivities of sums of integers over records, in the l2 norm.
#
# The contribution of a record is a vector in a ball, or is computed from one. A replaced record
# takes away its contribution a and adds another one, b, which doubles a bound. Counts are not
# negative: then |a - b|**2 <= |a|**2 + |b|**2, and a bound grows by the root of two only.


def cell_count_sensitivity(
    *, n_tables: int = 1, whole: float = 1.0, signed: bool = False, relation: str = "add_remove"
) -> float:
    """Return how much a record, or a user, can change the cells of several tables of counts.

    Parameters
    ----------
    n_tables : int, default=1
        In how many tables a record is counted, once in each.
    whole : float, default=1.0
        Largest l2 norm of a user's contribution to each table: several rows of a user share it
        among their cells.
    signed : bool, default=False
        Whether a record may be counted as -1, too: these are sums, and no counts.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``whole sqrt(n_tables)``; for a record that is replaced, this times the root of two, or
        doubled if it is signed. The root may be rounded down.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`, :ref:`proof-sketch-tables`, :ref:`proof-sketch-people`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import cell_count_sensitivity
    >>> cell_count_sensitivity(n_tables=9)
    3.0
    >>> cell_count_sensitivity(n_tables=8, relation="replace_one")
    4.0
    """
    check_relation(relation)
    added = 1 if relation == "add_remove" else 4 if signed else 2
    return whole * math.sqrt(added * n_tables)


def repeated_count_sensitivity(*, n_values: int, relation: str = "add_remove") -> float:
    """Return how much a record can change a histogram of its many values.

    Parameters
    ----------
    n_values : int
        How many values of a record are counted, perhaps all of them in one bin.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``n_values``; for a record that is replaced, this times the root of two, rounded up.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import repeated_count_sensitivity
    >>> repeated_count_sensitivity(n_values=784)
    784.0
    """
    check_relation(relation)
    bound = float(n_values)
    return bound if relation == "add_remove" else math.nextafter(bound * _ROOT_OF_TWO, math.inf)


def ball_sum_sensitivity(*, radius: float, relation: str = "add_remove") -> float:
    """Return how much a record can change a sum of vectors in a ball.

    Parameters
    ----------
    radius : float
        Radius of the ball.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        The radius, doubled for a record that is replaced.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import ball_sum_sensitivity
    >>> ball_sum_sensitivity(radius=5.0, relation="replace_one")
    10.0
    """
    return _doubled_if_replaced(float(radius), relation)


def counted_sum_sensitivity(
    *, radius: float, count_weight: float, relation: str = "add_remove"
) -> float:
    """Return how much a record can change weighted counts and sums of clusters.

    Parameters
    ----------
    radius : float
        Radius of the ball that contains the vectors.
    count_weight : float
        Contribution of a record to the count of its cluster.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``sqrt(radius^2 + count_weight^2)``, doubled for a record that is replaced.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import counted_sum_sensitivity
    >>> counted_sum_sensitivity(radius=4, count_weight=3)
    5.0
    """
    return _doubled_if_replaced((radius**2 + count_weight**2) ** 0.5, relation)


def share_sum_sensitivity(
    *, radius: float, count_weight: float, whole: float, relation: str = "add_remove"
) -> float:
    """Return how much a record that is shared among clusters can change their sums.

    Parameters
    ----------
    radius, count_weight : float
        As in `counted_sum_sensitivity`.
    whole : float
        Largest sum of the non-negative shares of a record.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``whole`` times `counted_sum_sensitivity`.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import share_sum_sensitivity
    >>> share_sum_sensitivity(radius=4, count_weight=3, whole=10)
    50.0
    """
    sizes = {"radius": radius, "count_weight": count_weight}
    return whole * counted_sum_sensitivity(**sizes, relation=relation)


def product_sum_sensitivity(
    *, radius: float, diagonal: float, beside: float, relation: str = "add_remove"
) -> float:
    """Return how much a record can change the weighted entries of a sum of ``x x'``.

    Parameters
    ----------
    radius : float
        Radius of the ball that contains the vectors.
    diagonal, beside : float
        Multipliers of entries on the diagonal, and above it; the square of the latter is at most
        twice that of the former.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``diagonal radius^2``, doubled for a record that is replaced.

    Raises
    ------
    ValueError
        If entries beside the diagonal are multiplied by more.

    Notes
    -----
    Proof: :ref:`proof-sketch-releases`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import product_sum_sensitivity
    >>> product_sum_sensitivity(radius=10.0, diagonal=29, beside=41)
    2900.0
    """
    if beside**2 > 2 * diagonal**2:
        raise ValueError("the weight off the diagonal must be at most sqrt(2) times that on it.")
    return _doubled_if_replaced(diagonal * float(radius) ** 2, relation)


# Sensitivities of the releases of a training step (:ref:`proof-training-steps`).


def clipped_gradient_sensitivity(
    clip_norm: float, *, n_parts: int = 1, loss_range: float = 0.0
) -> float:
    """Return the l2 sensitivity of a gradient with clipped parts, and of a loss beside it.

    A gradient of a transport cost is not a sum over records: one record may turn it as a whole. So
    the sensitivity is the diameter of its range, under any neighbouring relation.

    Parameters
    ----------
    clip_norm : float
        The norm that no part exceeds.
    n_parts : int, default=1
        How many parts are clipped, each on its own: 1 for a gradient that is clipped as a whole,
        and the number of generated points where that of each is. All are computed from the same
        records, so that all may turn at once.
    loss_range : float, default=0.0
        Width of the interval in which the loss lies.

    Returns
    -------
    float
        ``sqrt(n_parts (2 clip_norm)^2 + loss_range^2)``, rounded up.

    Notes
    -----
    Proof: :ref:`proof-gradient-sensitivity`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import clipped_gradient_sensitivity
    >>> clipped_gradient_sensitivity(0.5)
    1.0
    >>> round(clipped_gradient_sensitivity(0.5, n_parts=50), 3)
    7.071
    """
    return _norm(*[2 * clip_norm] * n_parts, loss_range)


def clipped_sum_sensitivity(
    clip_norm: float,
    *,
    count_weight: float = 0.0,
    loss_weight: float = 0.0,
    relation: str = "add_remove",
) -> float:
    """Return the l2 sensitivity of sums over records: of clipped gradients, ones, and losses.

    Parameters
    ----------
    clip_norm : float
        The norm that no record's gradient exceeds.
    count_weight : float, default=0.0
        Multiplier of the number of records.
    loss_weight : float, default=0.0
        Multiplier of a record's loss, which is between 0 and 1.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``sqrt(clip_norm^2 + count_weight^2 + loss_weight^2)``, and twice that where a record is
        replaced; rounded up.

    Raises
    ------
    ValueError
        If the relation is unknown.

    Notes
    -----
    Proof: :ref:`proof-record-sums`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import clipped_sum_sensitivity
    >>> clipped_sum_sensitivity(3.0, count_weight=4.0)
    5.0
    >>> clipped_sum_sensitivity(3.0, count_weight=4.0, relation="replace_one")
    10.0
    """
    return _doubled_if_replaced(_norm(clip_norm, count_weight, loss_weight), relation)


def _norm(*numbers: float) -> float:
    """Return the Euclidean norm, rounded up."""
    norm = math.hypot(*numbers)
    squared = sum(Fraction(number) ** 2 for number in numbers)
    return norm if Fraction(norm) ** 2 >= squared else math.nextafter(norm, math.inf)


# Sensitivities of transport costs, and of potentials.
#
# Costs lie in ``[0, R]``, weights are uniform, and the entropic penalty is the Kullback-Leibler
# divergence from the product of the marginals, times the regularisation. Every bound is sharp, and
# raised by a share of 1e-12, which covers its rounding errors.


def pairwise_sensitivities(
    cost_range: float,
    sizes: Any,
    *,
    labels: str = "public",
    divergence: str = "ot",
    tol: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return how much one record can change the costs between all pairs of several samples.

    Parameters
    ----------
    cost_range : float
        Largest difference of two costs, R.
    sizes : array-like of int, shape (k,)
        Sizes of the samples. With private labels, lower bounds that were declared: a sample that
        has fewer records is filled up to it with copies of one public point.
    labels : {"public", "private"}, default="public"
        Whether the neighbouring data set has a record with other values in the same sample, or
        one that may also have moved to the other sample.
    divergence : {"ot", "sinkhorn"}, default="ot"
        The cost of (entropic) transport, or the debiased Sinkhorn divergence
        ``OT(x, y) - OT(x, x) / 2 - OT(y, y) / 2``.
    tol : float, default=0.0
        Each transport cost is computed within an interval of this part of the sensitivity that
        ``divergence="ot"`` has for its pair.

    Returns
    -------
    sensitivities : ndarray of shape (n_pairs,)
        Sensitivity of each pair alone, in the order of ``itertools.combinations(range(k), 2)``: of
        samples of n and m, ``R / min(n, m)`` with public labels, ``R (1 / n + 1 / m)`` with private
        ones; twice that for the divergence.
    changes : ndarray of shape (n_kinds, n_pairs)
        How much each kind of neighbour (a record of one sample is replaced, or moves to another
        sample) can change each of the costs.

    Raises
    ------
    ValueError
        If `labels` or `divergence` is none of these.

    Notes
    -----
    Proof: :ref:`proof-transport-sensitivity`, :ref:`proof-all-pairs`, :ref:`proof-computed-costs`.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", proof of Lemma 5, where the
    bound of a pair with public labels is twice as large.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import pairwise_sensitivities
    >>> alone, changes = pairwise_sensitivities(1.0, [10, 10, 40])
    >>> alone.round(3)
    array([0.1, 0.1, 0.1])
    >>> changes.round(3)
    array([[0.1  , 0.1  , 0.   ],
           [0.1  , 0.   , 0.1  ],
           [0.   , 0.025, 0.025]])
    """
    check_choice("labels", labels, ("public", "private"))
    check_choice("divergence", divergence, ("ot", "sinkhorn"))
    shares = cost_range / np.asarray(sizes, dtype=np.float64)
    k = len(shares)
    pairs = np.array(list(combinations(range(k), 2)))
    # A record of sample g changes the costs of all pairs with g, each at most by its share.
    takes_part = (pairs == np.arange(k)[:, None, None]).any(axis=2)
    changes = shares[:, None] * takes_part
    if labels == "private":
        changes = np.array([changes[g] + changes[h] for g, h in pairs])
    changes = changes + tol * changes.max(axis=0) * (changes > 0)
    changes = raised_by_margin(changes * (2 if divergence == "sinkhorn" else 1))
    return changes.max(axis=0), changes


def cost_vector_sensitivities(
    cost_range: float, sizes: Any, *, relation: str = "replace_one", **options: Any
) -> tuple[float, float]:
    """Return how much a record can change all costs, each in units of its own sensitivity.

    Parameters
    ----------
    cost_range, sizes, **options
        As for :func:`pairwise_sensitivities`.
    relation : {"replace_one"}, default="replace_one"
        The neighbouring relation. The sizes are public.

    Returns
    -------
    l1, l2 : float
        With public labels at most k - 1 for k samples, and its root; raised to cover the rounding
        errors of the division by the sensitivities.

    Notes
    -----
    Proof: :ref:`proof-all-pairs`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import cost_vector_sensitivities
    >>> l1, l2 = cost_vector_sensitivities(1.0, [10, 10, 40])
    >>> round(l1, 9), round(l2**2, 9)
    (2.0, 2.0)
    """
    _check_replaced(relation, "sizes are public")
    sensitivities, changes = pairwise_sensitivities(cost_range, sizes, **options)
    relative = changes / sensitivities
    n_roundings = float((cost_range / sensitivities).max() + len(sensitivities))
    margin = 1.0 + 8 * float(np.finfo(np.float64).eps) * n_roundings
    l1, l2 = relative.sum(axis=1).max(), np.linalg.norm(relative, axis=1).max()
    return margin * float(l1), margin * float(l2)


def half_step_shift(cost_range: float, reg: float, n: Any, bound: float) -> Any:
    r"""Return how much a record can move the potentials of the *other* sample in a half step.

    The half step is ``psi_j = -reg log(mean_i exp((phi_i - c_ij) / reg))``.

    Parameters
    ----------
    cost_range : float
        Costs lie between 0 and this, R.
    reg : float
        Regularisation, above 0.
    n : int or array-like of int
        Size of the sample that the record is in, over which the mean is taken.
    bound : float
        Bound B on the magnitude of the potentials ``phi_i`` of that sample.

    Returns
    -------
    float or ndarray
        ``b = reg log(1 + t (exp(R / reg) - 1))`` with ``t = 1 / (1 + (n - 1) exp(-2 B / reg))``:
        at most R, and that for n = 1.

    Notes
    -----
    Proof: :ref:`proof-noisy-sinkhorn`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import half_step_shift
    >>> round(half_step_shift(1.0, 0.5, 100, 1.0), 3)
    0.593
    >>> round(half_step_shift(1.0, 0.5, 10_000, 1.0), 3)
    0.017
    """
    others = np.asarray(n, dtype=float) - 1
    ratio = cost_range / reg
    with np.errstate(divide="ignore"):
        log_share = log_expit(2 * bound / reg - np.log(others))
    log_growth = ratio + np.log(-np.expm1(-ratio))
    shift = reg * np.logaddexp(0.0, log_share + log_growth)
    return raised_by_margin(shift)


def noisy_sinkhorn_sensitivity(
    cost_range: float, reg: float, n: Any, m: Any, bound: float, *, rounding: Any = 0.0
) -> Any:
    r"""Return how much a record can move everything that a round of noisy Sinkhorn releases.

    A round is two half steps, each of which starts from potentials that were released before and
    clipped: for ``phi``, which is then centred, and for ``psi``.

    Parameters
    ----------
    cost_range : float
        Costs lie between 0 and this, R.
    reg : float
        Regularisation, above 0.
    n, m : int or array-like of int
        Sizes of the two samples.
    bound : float
        Released potentials are clipped to ``[-bound, bound]`` before they are used.
    rounding : float, default=0.0
        How much more each potential may move by arithmetic and a grid.

    Returns
    -------
    float or ndarray
        D in the l2 norm: K rounds with noise of variance M are Gaussian differential privacy with
        ``mu = D sqrt(K / M)``.

    Notes
    -----
    Proof: :ref:`proof-noisy-sinkhorn`.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", proof of Theorem 2, whose
    sensitivity leaves out the record's own potential and the number of all others.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import noisy_sinkhorn_sensitivity
    >>> round(noisy_sinkhorn_sensitivity(1.0, 1.0, 1000, 1000, 1.0), 3)
    1.076
    """
    # All potentials of the other sample may move; the record's own moves by R at most.
    others_of_x = np.sqrt(m) * half_step_shift(cost_range, reg, n, bound)
    others_of_y = np.sqrt(n) * half_step_shift(cost_range, reg, m, bound)
    others = np.maximum(others_of_x, others_of_y)
    rounded = np.sqrt(np.maximum(n, m)) * rounding
    return raised_by_margin(np.hypot(cost_range + rounded, others + rounded))


def plan_cost_sensitivity(
    cost_range: float, reg: float, n: Any, m: Any, bound: float, *, rounding: float = 0.0
) -> Any:
    r"""Return how much a record can change the cost of the plan of two potentials.

    The cost is the mean of ``c_ij exp((phi_i + psi_j - c_ij) / reg)`` over all i and j.

    Parameters
    ----------
    cost_range : float
        Costs lie between 0 and this, R.
    reg : float
        Regularisation, above 0.
    n, m : int or array-like of int
        Sizes of the two samples.
    bound : float
        Bound B on the magnitude of the potentials, which are the same for both neighbours.
    rounding : float, default=0.0
        Arithmetic changes the cost by at most this, times ``1 + (2 B + R) / reg``, times the
        largest term.

    Returns
    -------
    float or ndarray
        Without rounding ``exp(2 B / reg) h exp(-h / reg) / min(n, m)`` with ``h = min(reg, R)``;
        infinite where that is beyond the range of doubles.

    Notes
    -----
    Proof: :ref:`proof-noisy-sinkhorn`.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", eq. (8); the sensitivity of
    its Lemma 5 is that of the optimal plan, which is another one.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import plan_cost_sensitivity
    >>> round(plan_cost_sensitivity(1.0, 1.0, 1000, 1000, 1.0), 5)
    0.00272
    """
    # The largest value of c exp(-c / reg) over costs up to the range is at this cost.
    steepest = min(reg, cost_range)
    with np.errstate(over="ignore"):
        max_term = steepest * np.exp((2 * bound - steepest) / reg)
    smaller = np.minimum(n, m)
    rounded = 1 + rounding * smaller * (1 + (2 * bound + cost_range) / reg)
    bound = raised_by_margin(max_term / smaller) * rounded
    return bound if np.ndim(bound) else float(bound)


# Sensitivities of scores of candidates.


def block_score_sensitivity(*, n_units: int, relation: str = "replace_one") -> int:
    """Return how much a record can change the sum of the scores of blocks of records.

    Parameters
    ----------
    n_units : int
        A block's score is an integer from 0 to this.
    relation : {"replace_one"}, default="replace_one"
        The neighbouring relation. The number of records is public.

    Returns
    -------
    int
        ``n_units``.

    Notes
    -----
    Proof: :ref:`proof-block-scores`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import block_score_sensitivity
    >>> block_score_sensitivity(n_units=2**20)
    1048576
    """
    _check_replaced(relation, "the number of records is public")
    return n_units


def cost_score_sensitivity(costs: Any) -> float:
    """Return how much a user's input can change the cost of any one output.

    Parameters
    ----------
    costs : ndarray of shape (n_inputs, n_outputs)
        Cost of every output at every input.

    Returns
    -------
    float
        The largest difference between two entries of a column.

    Notes
    -----
    Proof: :ref:`proof-exponential-mechanism`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import cost_score_sensitivity
    >>> cost_score_sensitivity([[0.0, 3.0], [1.0, 1.0]])
    2.0
    """
    return float(np.ptp(costs, axis=0).max())


# Sensitivities of the declared parameters of utilities.

# The unit of privacy: the utility of one edge at one of its ends, or all utilities of a node.
PROTECTED = ("parameter", "node")


def utility_sensitivity(
    width: Any, degree: Any, *, protect: str = "parameter", relation: str = "replace_one"
) -> np.ndarray:
    """Return how much a unit of privacy can change the parameters of a node, in the l1 norm.

    Parameters
    ----------
    width : float or array-like
        Width of the range that parameters are clipped to.
    degree : int or array-like of int
        How many parameters of the node are released.
    protect : {"parameter", "node"}, default="parameter"
        Whether one parameter is replaced, or all of the node's.
    relation : {"replace_one"}, default="replace_one"
        The neighbouring relation. The network is public.

    Returns
    -------
    ndarray
        The width, or ``max(degree, 1)`` times the width.

    Notes
    -----
    Proof: :ref:`proof-private-utilities`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import utility_sensitivity
    >>> utility_sensitivity(4.0, [2, 3], protect="node")
    array([ 8., 12.])
    """
    check_choice("protect", protect, PROTECTED)
    _check_replaced(relation, "the network is public")
    n_moved = np.maximum(degree, 1) if protect == "node" else np.ones_like(degree)
    return np.asarray(width * n_moved, dtype=np.float64)


# Sensitivities of the messages of a node in an allocation network, to its private utilities.
#
# Every bound is proven in :ref:`proof-message-sensitivity`, sharp, and raised by a share of 1e-12,
# which covers its rounding errors.


def message_sensitivity(
    eta: Any,
    utility_range: Any,
    cap: Any,
    degree: Any,
    *,
    least: Any = 0.0,
    curvature: Any = 0.0,
    protect: str = "parameter",
    relation: str = "replace_one",
) -> Any:
    r"""Return how much private utilities can move one message of a node, in the l2 norm.

    The message is the unique minimiser of ``sum_j -u_j(x_j) + <c, x> + eta/2 |x - z|^2`` over all
    ``x >= 0`` with ``least <= sum(x) <= cap``. The utilities u are private; c and z are the same
    for both neighbours. All arguments but `protect` are broadcast, with one entry per node.

    Parameters
    ----------
    eta : float or array-like
        Penalty of the round, above 0.
    utility_range : float or array-like
        Largest difference R of the marginal utilities of two neighbours, at any amount between 0
        and `cap`. For linear utilities it is the width of the range of their slopes.
    cap : float or array-like
        Upper bound of the sum of the node's amounts, or infinity.
    degree : int or array-like of int
        Number d of the node's edges.
    least : float or array-like, default=0.0
        Lower bound of that sum.
    curvature : float or array-like, default=0.0
        Lower bound of minus the second derivative of every utility, between 0 and `cap`.
    protect : {"parameter", "node"}, default="parameter"
        Whether the utility of one edge is replaced, or those of all edges of the node.
    relation : {"replace_one"}, default="replace_one"
        The neighbouring relation. The network is public.

    Returns
    -------
    float or ndarray
        With ``s = R / (eta + curvature)``, the smallest of ``s``, ``sqrt(s cap)`` and ``sqrt(2)
        cap`` for a parameter, and of ``sqrt(d) s``, ``sqrt(2 s cap)`` and ``sqrt(2) cap`` for a
        node. A single edge has ``cap - least`` for the last of them. With equal bounds the first is
        ``sqrt(1 - 1/d) s``, or ``sqrt(d - 1/d) s`` for a node of odd degree. It is 0 for a single
        edge with equal bounds, of which nothing is decided, and for a node without edges.

    Raises
    ------
    ValueError
        If `protect` is neither, or `least` is above `cap`.

    See Also
    --------
    marginal_bounds : The range and the curvature of families of utilities.

    Notes
    -----
    Proof: :ref:`proof-message-sensitivity`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import message_sensitivity
    >>> round(message_sensitivity(8.0, 4.0, 5.0, 30), 6)
    0.5
    >>> round(message_sensitivity(8.0, 4.0, 5.0, 30, protect="node"), 6)
    2.236068
    >>> message_sensitivity(0.1, 4.0, [5.0, 10.0, 1000.0], 4).round(3)
    array([ 7.071, 14.142, 40.   ])
    """
    check_choice("protect", protect, PROTECTED)
    _check_replaced(relation, "the network is public")
    eta, utility_range, cap, degree, least, curvature = (
        np.asarray(value, dtype=np.float64)
        for value in (eta, utility_range, cap, degree, least, curvature)
    )
    if (least > cap).any():
        raise ValueError("least must not be above cap.")
    step = utility_range / (eta + curvature)
    single, equal, edges = degree == 1, least == cap, np.maximum(degree, 1.0)
    if protect == "parameter":
        lengthened = np.where(equal, np.sqrt(1.0 - 1.0 / edges), 1.0)
        along = 1.0
    else:
        odd = equal & (edges % 2 == 1)
        lengthened = np.sqrt(edges - np.where(odd, 1.0 / edges, 0.0))
        along = 2.0
    diameter = np.where(single, cap - least, np.sqrt(2.0) * cap)
    # If the range is 0, no message moves, even without a cap, where the product is undefined.
    with np.errstate(invalid="ignore"):
        # A product of roots: the product of the numbers may underflow.
        mean = np.fmin(np.sqrt(along * step) * np.sqrt(cap), diameter)
    bound = np.minimum(lengthened * step, mean)
    return raised_by_margin(np.where(degree == 0, 0.0, bound))


def message_error(
    eta: Any,
    cap: Any,
    degree: Any,
    *,
    reach: Any,
    max_marginal: Any,
    max_scale: Any = 0.0,
    iterative: bool = False,
) -> np.ndarray:
    r"""Return how far a node's computed message may be from the exact one, in the l2 norm.

    All arguments are public, and broadcast, with one entry per node.

    Parameters
    ----------
    eta : float or array-like
        Penalty of the round, above 0.
    cap : float or array-like
        Upper bound of the sum of the node's amounts.
    degree : int or array-like of int
        Number d of the node's edges.
    reach : float or array-like
        The largest ``|eta z| + |alpha|`` of an edge, with the amounts z and the prices alpha that
        the message is the answer to.
    max_marginal : float or array-like
        Declared upper bound of absolute marginal utilities.
    max_scale : float or array-like, default=0.0
        Upper bound of the scales of logarithmic utilities.
    iterative : bool, default=False
        Whether amounts are found by iteration, other than sums and quotients.

    Returns
    -------
    ndarray
        ``sqrt(d) (d + 16) M / eta`` times some roundings, with the sum M of the solver's terms; at
        most half of the largest distance of two messages within the bounds.

    Notes
    -----
    Proof: :ref:`proof-message-sensitivity`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import message_error
    >>> float(message_error(1.0, 5.0, 30, reach=100.0, max_marginal=5.0)) < 1e-10
    True
    """
    eta, cap, degree = (np.asarray(value, dtype=np.float64) for value in (eta, cap, degree))
    size = reach + max_marginal + eta * (cap + max_scale)
    # Rounding error for each operation of a sum, relative to its largest number: eight times that
    # of sums and quotients alone, and that of nested iterations that stop near a root.
    share = 2.0**-42 if iterative else 2.0**-50
    error = share * np.sqrt(degree) * (degree + 16.0) * size / eta
    return np.asarray(np.minimum(error, np.sqrt(degree) * cap / 2.0))


def rounded_message_sensitivity(
    exact: Any, cap: Any, degree: Any, *, error: Any, unit: Any
) -> np.ndarray:
    """Return how much a message that is computed and rounded to a grid can move.

    Parameters
    ----------
    exact : float or array-like
        The result of `message_sensitivity` with the same `cap` and `degree`.
    cap : float or array-like
        Upper bound of the sum of the node's amounts.
    degree : int or array-like of int
        Number of the node's edges.
    error : float or array-like
        How far the computed message may be from the exact one, in the l2 norm.
    unit : float or array-like
        Width of the grid.

    Returns
    -------
    ndarray
        In units of the grid, in the l2 norm.

    Notes
    -----
    Proof: :ref:`proof-private-messages`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import rounded_message_sensitivity
    >>> float(rounded_message_sensitivity(1.0, 5.0, 4, error=0.0, unit=0.5).round(6))
    4.0
    """
    moved = computed_message_sensitivity(exact, error)
    # Rounding moves each amount by at most half a unit, plus the relative error of its quotient.
    rounding = np.sqrt(degree) * (1.0 + 2.0**-51 * (cap / unit + 1.0))
    return moved / unit + rounding


def computed_message_sensitivity(exact: Any, error: Any) -> Any:
    """Return how much a message that is computed with an error can move, in the l2 norm.

    Parameters
    ----------
    exact : float or array-like
        The result of `message_sensitivity`.
    error : float or array-like
        How far the computed message may be from the exact one, in the l2 norm.

    Returns
    -------
    float or ndarray
        Rounded up.

    Notes
    -----
    Proof: :ref:`proof-message-sensitivity`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import computed_message_sensitivity
    >>> round(computed_message_sensitivity(1.0, 0.25), 9)
    1.5
    """
    return (exact + 2.0 * error) * RAISED


def marginal_bounds(
    family: str, ranges: Mapping[str, tuple[float, float]], cap: float
) -> tuple[float, float]:
    """Return the range of marginal utilities of a family, and their minimum curvature.

    Parameters
    ----------
    family : {"linear", "quadratic", "log"}
        Utilities ``a x``, ``a x - b x^2 / 2``, or ``a log(1 + x / c)``.
    ranges : mapping of str to (float, float)
        The least and the largest value of every parameter, by its name. One that is public may have
        its own range on every edge: give the widest here, or call once for every edge.
    cap : float
        The largest amount.

    Returns
    -------
    utility_range : float
        Largest difference of the marginal utilities of two members, at any amount up to the cap.
    curvature : float
        Lower bound of minus the second derivative of every member.

    Raises
    ------
    ValueError
        If the family is none, a range is missing, crossed or not finite, or utilities need not be
        concave (b below 0, or a below 0 or c not above 0 for the logarithm).

    Notes
    -----
    Proof: :ref:`proof-allocations`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import marginal_bounds
    >>> marginal_bounds("quadratic", {"a": (1.0, 5.0), "b": (0.5, 1.0)}, cap=2.0)
    (5.0, 0.5)
    >>> marginal_bounds("log", {"a": (1.0, 5.0), "c": (1.0, 1.0)}, cap=1.0)
    (4.0, 0.25)
    """
    check_choice("family", family, ("linear", "quadratic", "log"))
    a_low, a_high = _range(ranges, "a")
    if family == "linear":
        return a_high - a_low, 0.0
    if family == "quadratic":
        b_low, b_high = _range(ranges, "b")
        if b_low < 0:
            raise ValueError("quadratic utilities are concave with b of at least 0 only.")
        # A public b adds nothing, even without a cap.
        of_curvature = (b_high - b_low) * cap if b_high > b_low else 0.0
        return (a_high - a_low) + of_curvature, b_low
    c_low, c_high = _range(ranges, "c")
    if a_low < 0 or c_low <= 0:
        raise ValueError("logarithms are concave utilities with a >= 0 and c > 0 only.")
    # This form avoids the difference of two quotients that are nearly equal.
    of_scale = a_low * (c_high - c_low) / (c_low * c_high) if c_high > c_low else 0.0
    return (a_high - a_low) / c_low + of_scale, a_low / (c_high + cap) ** 2


def _range(ranges: Mapping[str, tuple[float, float]], name: str) -> tuple[float, float]:
    if name not in ranges:
        raise ValueError(f"the range of the parameter {name!r} is missing.")
    low, high = (float(end) for end in ranges[name])
    if not -np.inf < low <= high < np.inf:
        raise ValueError(f"the range of {name!r} must be finite, with low <= high.")
    return low, high
