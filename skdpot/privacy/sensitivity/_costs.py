r"""Sensitivities of transport costs, and of potentials.

Costs lie in ``[0, R]``, weights are uniform, and the entropic penalty is the Kullback-Leibler
divergence from the product of the marginals, times the regularisation. Every bound is sharp, and
raised by a share of 1e-12, which covers its rounding errors.
"""

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import log_expit

from skdpot.privacy.checks import check_choice
from skdpot.privacy.rounding import raised_by_margin
from skdpot.privacy.sensitivity._relation import check_replaced

_EPS = float(np.finfo(np.float64).eps)


def transport_cost_sensitivity(
    cost_range: float, n: Any, m: Any, *, labels: str = "public", divergence: str = "ot"
) -> Any:
    r"""Return how much one record can change a transport cost, entropic or not.

    Parameters
    ----------
    cost_range : float
        Largest difference of two costs, R.
    n, m : int or array-like of int
        Sizes of the two samples. With private labels, lower bounds that were declared: a sample
        that has fewer records is filled up to it with copies of one public point.
    labels : {"public", "private"}, default="public"
        Whether the neighbouring data set has a record with other values in the same sample, or
        one that may also have moved to the other sample.
    divergence : {"ot", "sinkhorn"}, default="ot"
        The cost of (entropic) transport, or the debiased Sinkhorn divergence
        ``OT(x, y) - OT(x, x) / 2 - OT(y, y) / 2``.

    Returns
    -------
    float or ndarray
        ``R / min(n, m)`` with public, ``R (1 / n + 1 / m)`` with private labels; twice that for the
        divergence.

    Raises
    ------
    ValueError
        If `labels` or `divergence` is none of these.

    Notes
    -----
    Proof: :ref:`proof-transport-sensitivity`.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", proof of Lemma 5, where the
    bound for public labels is twice as large.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import transport_cost_sensitivity
    >>> round(transport_cost_sensitivity(2.0, 100, 400), 9)
    0.02
    >>> round(transport_cost_sensitivity(2.0, 100, 400, labels="private"), 9)
    0.025
    """
    check_choice("labels", labels, ("public", "private"))
    check_choice("divergence", divergence, ("ot", "sinkhorn"))
    of_each = cost_range / np.asarray(n, dtype=float), cost_range / np.asarray(m, dtype=float)
    largest = np.maximum(*of_each) if labels == "public" else np.add(*of_each)
    return raised_by_margin(largest * (2 if divergence == "sinkhorn" else 1))


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
        Sizes of the samples. With private labels, lower bounds that were declared.
    labels : {"public", "private"}, default="public"
        As in :func:`transport_cost_sensitivity`.
    divergence : {"ot", "sinkhorn"}, default="ot"
        As in :func:`transport_cost_sensitivity`.
    tol : float, default=0.0
        Each transport cost is computed within an interval of this part of the sensitivity that
        ``divergence="ot"`` has for its pair.

    Returns
    -------
    sensitivities : ndarray of shape (n_pairs,)
        Sensitivity of each pair alone, in the order of ``itertools.combinations(range(k), 2)``.
    changes : ndarray of shape (n_kinds, n_pairs)
        How much each kind of neighbour (a record of one sample is replaced, or moves to another
        sample) can change each of the costs.

    Raises
    ------
    ValueError
        If `labels` or `divergence` is none of these.

    Notes
    -----
    Proof: :ref:`proof-all-pairs`, :ref:`proof-computed-costs`.

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
    check_replaced(relation, "sizes are public")
    sensitivities, changes = pairwise_sensitivities(cost_range, sizes, **options)
    relative = changes / sensitivities
    margin = 1.0 + 8 * _EPS * float((cost_range / sensitivities).max() + len(sensitivities))
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
    steepest = min(reg, cost_range)
    with np.errstate(over="ignore"):
        largest_term = steepest * np.exp((2 * bound - steepest) / reg)
    smaller = np.minimum(n, m)
    rounded = 1 + rounding * smaller * (1 + (2 * bound + cost_range) / reg)
    bound = raised_by_margin(largest_term / smaller) * rounded
    return bound if np.ndim(bound) else float(bound)
