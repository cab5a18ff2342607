r"""Certificates of a repair, from held-out rows, and the bounds that they are made of.

Bounds hold for all distributions and sample sizes. The largest of several unknown quantities is one
of them, and which one does not depend on the sample. If each quantity has an upper bound that fails
with some risk, the largest bound is an upper bound of the largest quantity at the same risk. The
number of quantities does not matter. Proofs: :ref:`certificate`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom

from skdpot.fairness._conditional import Split, found_pairs, max_gap, mean_found
from skdpot.tables import Column

# More rows hardly sharpen bounds, and make the classifier slower.
MOST_ROWS = 10_000
# The probability with which each bound holds.
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class FairnessCertificate:
    """Bounds for new rows, each valid with the stated confidence.

    Attributes
    ----------
    confidence : float
        Each bound holds with this probability.
    group_auc : float
        Upper bound of the AUC with which the tested classifier distinguishes any two groups.
    group_auc_before : float
        The AUC that it reached on held-out rows without the repair.
    parity_gap : float
        Upper bound of the difference of any two groups' rates, for decisions by any threshold on
        the scores of the tested classifier.
    n_rows : dict of label to int
        Number of held-out rows of each group. Groups without held-out rows have no bounds.
    statement : str
        A summary in words.
    """

    confidence: float
    group_auc: float
    group_auc_before: float
    parity_gap: float
    n_rows: dict[Any, int]
    statement: str = field(repr=False)

    def __str__(self) -> str:
        return self.statement


def hold_out(groups: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return which rows are held out: a random share of every group.

    Fewer rows of large groups are held out, equally many of each. No rows of small groups are, and
    none at all unless two groups can be compared.
    """
    held_out = np.zeros(len(groups), dtype=bool)
    sizes = np.bincount(groups[groups >= 0])
    numbers = np.minimum((share * sizes).astype(int), MOST_ROWS // max(int((sizes > 0).sum()), 1))
    # Bounds from fewer rows say next to nothing, and small groups need their rows for the fit.
    compared = np.flatnonzero(numbers >= 25)
    for g in compared if len(compared) > 1 else []:
        rows = np.flatnonzero(groups == g)
        held_out[rng.choice(rows, numbers[g], replace=False)] = True
    return held_out


def certify(
    after: Split,
    groups: Split,
    columns: list[Column],
    names: Sequence[Any],
    rng: np.random.Generator,
    before: Split | None = None,
    is_harm: Callable[[float], bool] = lambda raised: False,
) -> tuple[FairnessCertificate, bool]:
    """Return the certificate of a repair, from rows that its fit did not use, and if it did harm.

    `after` are the codes of repaired rows, and `groups` the numbers of their groups: of rows that
    the repair was fitted to, and of rows that it does not depend on. They have two groups or more.
    `names` are the labels of all groups. `before` are the codes of both before the repair, None if
    it moves no row. `is_harm` tells of the amount by which groups are easier to find after a repair
    if the table before it is to be returned; then the certificate is that of the rows before it.
    """
    seed, tables = int(rng.integers(2**31)), [after] if before is None else [before, after]
    found = [list(found_pairs(of, groups, columns, len(names), seed)) for of in tables]
    did_harm = before is not None and is_harm(mean_found(found[-1]) - mean_found(found[0]))
    # The largest of several bounds holds with the confidence of each: see the head of this file.
    # One of two tables is returned, by what is seen here: each bound has half of the risk.
    risk, auc, gap = (1.0 - _CONFIDENCE) / 2, 0.0, 0.0
    # The certificate is that of the table that is returned.
    for _, of_pair, of_rates, of_each in found[0 if did_harm else -1]:
        auc = max(auc, max_mean(of_pair, min(of_each), risk))
        gap = max(gap, min(1.0, of_rates + gap_radius(*of_each, risk)))
    largest = max((of_pair for _, of_pair, *_ in found[0]), default=0.5)
    sizes = np.bincount(groups[1], minlength=len(names))
    n_rows = dict(zip(names, sizes.tolist(), strict=True))
    too_small = [str(name) for name, n in n_rows.items() if not n]
    left_out = f"the groups {', '.join(too_small)}, which have too few rows; " if too_small else ""
    verdict = ", which proves nothing" if auc > largest else ""
    kind = "unrepaired" if did_harm else "repaired"
    statement = (
        f"AUC of finding the group: before {largest:.3f}, after at most {auc:.3f}{verdict}.\n"
        f"With confidence {_CONFIDENCE:.0%} each, from {sizes.sum()} rows that had no part in "
        f"the fit, at least {sizes[sizes > 0].min()} of every group: gradient boosting, "
        f"trained with {len(groups[0])} {kind} rows to find the group from all columns, and from "
        "differences and ratios of pairs of them, tells no two groups apart "
        f"with an AUC above {auc:.3f}, and rates of any decision by a threshold on its scores "
        f"differ by at most {gap:.3f}. Not certified: {left_out}other models, among them models of "
        f"the same kind that find the group better, as after training with many new {kind} rows; "
        "rows that are distributed otherwise; single rows; error rates; a partial repair."
    )
    return FairnessCertificate(_CONFIDENCE, auc, largest, gap, n_rows, statement), did_harm


# ---------------------------------------------------------------------------- confidence bounds


def max_mean(mean: float, n: int, risk: float) -> float:
    """Return an upper bound of an expectation, from the mean of n numbers in [0, 1].

    The variables may be those with the largest spread of n draws of 0 or 1, such as a share of
    ordered pairs of n and at least n rows.

    Examples
    --------
    >>> from skdpot.fairness._certificate import max_mean
    >>> round(max_mean(0.5, 500, 0.05), 3)
    0.546
    """
    # Nothing is below 1, and a search would have no sign to find.
    if mean >= 1.0:
        return 1.0
    # Up to this probability, the lowest cases are n times 0.
    least = max(mean, 1.0 - risk ** (1.0 / n))
    if mean <= 0.0:
        return least
    return float(brentq(lambda p: _lowest_mean(n, p, risk) - mean, least, 1.0, xtol=1e-9))


def _lowest_mean(n: int, p: float, risk: float) -> float:
    """Return the lower tail mean of the share of successes in n draws with probability p.

    The tail has the probability `risk`.
    """
    count = binom.ppf(risk, n, p)
    below = binom.cdf(count - 1, n, p)
    in_full = n * p * binom.cdf(count - 2, n - 1, p)
    return float((in_full + count * (risk - below)) / (n * risk))


@cache
def gap_radius(n: int, m: int, risk: float) -> float:
    """Return the confidence radius of the difference of two probabilities, from n and m rows.

    Examples
    --------
    >>> from skdpot.fairness._certificate import gap_radius
    >>> round(gap_radius(500, 500, 0.05), 3)
    0.058
    """
    of_hoeffding = math.sqrt(math.log(1.0 / risk) / 2.0 * (1.0 / n + 1.0 / m))
    # Errors of shares are below Gaussian ones but for a step of the distribution function of each.
    found = brentq(lambda x: _sum_exceeds(x, n, m) - risk, 0.0, of_hoeffding)
    return min(of_hoeffding, float(found) + 1.0 / n + 1.0 / m)


def _sum_exceeds(x: float, n: int, m: int) -> float:
    """Return the probability that the positive parts of two Gaussian errors have a larger sum.

    The errors have the largest variances of shares of n and m rows.
    """
    # A share of n rows has the largest variance at a probability of one half.
    wide, narrow = 0.5 / math.sqrt(min(n, m)), 0.5 / math.sqrt(max(n, m))

    def density(part: float) -> float:
        return math.exp(-0.5 * (part / wide) ** 2) * float(ndtr((part - x) / narrow))

    between = quad(density, 0.0, x, epsabs=1e-10)[0] / (wide * math.sqrt(2.0 * math.pi))
    return float(ndtr(-x / wide)) + 0.5 * float(ndtr(-x / narrow)) + between


def gap_bound(x: np.ndarray, y: np.ndarray, risk: float) -> float:
    """Return an upper bound of the largest difference, for the distributions of the samples.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._certificate import gap_bound
    >>> round(gap_bound(np.arange(900), np.arange(900), 0.05), 3)
    0.042
    """
    return min(1.0, max_gap(x, y) + gap_radius(len(x), len(y), risk))
