r"""By how much a record can change transport costs, and potentials.

Costs lie in ``[0, R]``, weights are uniform, and the entropic penalty is the Kullback-Leibler
divergence from the product of the marginals, times the regularisation. Every bound is proven where
it stands, attained, and raised by a share of 1e-12, which is more than its own rounding errors.
"""

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import log_expit

from skdpot.privacy.checks import check_choice
from skdpot.privacy.rounding import raised_by_margin
from skdpot.privacy.sensitivity._relation import check_replaced

__all__ = [
    "cost_vector_sensitivities",
    "half_step_shift",
    "noisy_sinkhorn_sensitivity",
    "pairwise_sensitivities",
    "plan_cost_sensitivity",
    "transport_cost_sensitivity",
]

_EPS = float(np.finfo(np.float64).eps)


def transport_cost_sensitivity(
    cost_range: float,
    n: Any,
    m: Any,
    *,
    labels: str = "public",
    divergence: str = "ot",
) -> Any:
    r"""Return by how much one record can change a transport cost, entropic or not.

    Parameters
    ----------
    cost_range : float
        By how much two costs may differ, R.
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
    *Lemma.* If ``mu = (1 - t) k + t a`` and ``mu' = (1 - t) k + t a'`` with probability measures k,
    a, a', then the costs of transport to any nu differ by at most t R, with and without
    regularisation. *Proof.* In an optimal plan from mu to nu let every x that belongs to the share
    t of a be exchanged for an independent x' from a', while its partner y stays. This couples mu'
    with nu, and its cost is larger by at most t R. The penalty is the mean, over the left points,
    of the divergence of a point's partners from nu. It is convex in the partners' law, and all that
    was done is to average such laws: it did not grow. The same holds the other way round.

    *Public labels.* A record that is replaced is a share 1 / n or 1 / m of its sample. The bound is
    attained: all points are where all costs are 0, and one moves to where its costs are R.

    *Private labels.* Filled up, a sample that loses a record has either lost one of more than n, a
    share below 1 / n, or exchanged one of n points for the public one, a share 1 / n. One that
    gains a record likewise changes by a share of 1 / m at most. If values change within a sample,
    one of the terms is enough. The sum is attained where both samples are filled up: a record
    leaves the far end of the left for the far end of the right sample, others being left behind.

    *Divergence.* ``OT(x, x) / 2`` changes by half of twice the lemma's bound, since both of its
    sides change, one after the other; so each sample adds its bound twice. For large
    regularisation, where the divergence tends to ``(1 - s)^2 R`` if a share s of both samples
    together left its own end of a line for the other end, that is attained up to the square of s.

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
    r"""Return by how much one record can change the costs between all pairs of several samples.

    Parameters
    ----------
    cost_range : float
        By how much two costs may differ, R.
    sizes : array-like of int, shape (k,)
        Sizes of the samples. With private labels, lower bounds that were declared.
    labels : {"public", "private"}, default="public"
        As for :func:`transport_cost_sensitivity`.
    divergence : {"ot", "sinkhorn"}, default="ot"
        As for :func:`transport_cost_sensitivity`.
    tol : float, default=0.0
        Each transport cost is computed within an interval of this part of the sensitivity that
        ``divergence="ot"`` has for its pair.

    Returns
    -------
    sensitivities : ndarray of shape (n_pairs,)
        Of each pair alone, in the order of ``itertools.combinations(range(k), 2)``.
    changes : ndarray of shape (n_kinds, n_pairs)
        For every kind of neighbour (a record of one sample is replaced, or it moves between two)
        by how much it can change each of the costs.

    Raises
    ------
    ValueError
        If `labels` or `divergence` is none of these.

    Notes
    -----
    A record changes a sample by a share of one over its size, and so, by the lemma of
    :func:`transport_cost_sensitivity`, each cost of that sample by at most R times the share, and
    no other cost. If ``v = OT - e`` is computed instead of OT, with an error e between 0 and t,
    then two such values differ by at most t more than the costs do; for the divergence, whose three
    errors leave it between -t and t, by at most 2 t.

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
    """Return by how much a record can change all costs, each in units of its own sensitivity.

    Parameters
    ----------
    cost_range, sizes, **options
        As for :func:`pairwise_sensitivities`.
    relation : {"replace_one"}, default="replace_one"
        The neighbouring relation. The sizes are public.

    Returns
    -------
    l1, l2 : float
        With public labels at most k - 1 for k samples, and its root; raised by what the division by
        the sensitivities may do to a cost, and to these numbers.

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
    r"""Return by how much a record can move the potentials of the *other* sample in a half step.

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
    Let the first record be replaced, its potential be p, and its cost to j fall from c to c' (if it
    rises, exchange the two). With S for the sum of the other terms, ``psi_j`` falls by ::

        reg log((exp((p - c') / reg) + S) / (exp((p - c) / reg) + S)),

    which grows as c' falls and as c grows, hence is largest at c' = 0 and c = R; it then grows with
    p, because c > c', and falls with S. The extremes p = B, and ``S = (n - 1) exp((-B - R) /
    reg)`` where all other records have potential -B and cost R, give b, and so b is attained; by
    all j at once if those costs do not depend on j, and in directions of choice.

    It is computed as ``reg log(1 + exp(log t + log(exp(R / reg) - 1)))``, where nothing overflows
    and no near equals are subtracted.

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
    r"""Return by how much a record can move all that a round of noisy Sinkhorn releases.

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
        By how much more, in the l2 norm, what is released of either half step may move on account
        of arithmetic and of a grid.

    Returns
    -------
    float or ndarray
        D in the l2 norm: K rounds with noise of variance M are Gaussian differential privacy with
        ``mu = D sqrt(K / M)``.

    Notes
    -----
    What a half step is given is the same for both neighbours, since it was released. If an x is
    replaced, the half step for phi moves its own potential alone, by at most R (a soft minimum
    moves no more than what it is taken of), and centring is a projection. The half step for psi
    moves m potentials by at most `half_step_shift` b(n) each. If a y is replaced, n potentials move
    by at most b(m), and one by at most R. So ::

        D^2 = max((R + e)^2 + (sqrt(m) b(n) + e)^2, (R + e)^2 + (sqrt(n) b(m) + e)^2)

    with e for the rounding. A pair of neighbours has its terms, in every round, whatever was
    released before; so Gaussian mechanisms with these sensitivities compose to the root of the sum
    of their squares.

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
    return raised_by_margin(np.hypot(cost_range + rounding, others + rounding))


def plan_cost_sensitivity(cost_range: float, reg: float, n: Any, m: Any, bound: float) -> Any:
    r"""Return by how much a record can change the cost of the plan that two potentials stand for.

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

    Returns
    -------
    float or ndarray
        ``exp(2 B / reg) h exp(-h / reg) / min(n, m)`` with ``h = min(reg, R)``; infinite where that
        is beyond the range of doubles.

    Notes
    -----
    If an x is replaced, one of n rows changes. Its terms are ``c exp(-c / reg)`` times at most
    ``exp(2 B / reg)``, and the first factor is between 0, for c = 0, and its value at h: it grows
    up to c = reg, and falls from there. The mean of a row therefore changes by at most the product,
    and does so where the record's potential and all others' on the other side are B and its costs
    go from 0 to h. The same holds for a y.

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
    return raised_by_margin(largest_term / np.minimum(n, m))
