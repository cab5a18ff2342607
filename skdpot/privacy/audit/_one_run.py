"""The audit of a training algorithm in a single run, with canaries."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import betainc

from skdpot.privacy.audit._result import LowerBound
from skdpot.privacy.checks import check_delta, check_probability
from skdpot.privacy.random import make_source

# If the number of guesses is not given, it is halved up to this often, and down to this number.
_MOST_HALVINGS = 5
_FEWEST_GUESSES = 8
# For a larger epsilon, an accuracy of exp(epsilon) / (1 + exp(epsilon)) is 1 in double precision.
_LARGEST_EPSILON = 37.0
_BISECTIONS = 40


@dataclass(frozen=True)
class OneRunAuditResult(LowerBound):
    """The lower bound of epsilon for a training algorithm, proved by :func:`one_run_audit`.

    Parameters
    ----------
    epsilon_lower : float
        With the stated confidence, the algorithm is not (epsilon, delta)-differentially private
        for any smaller epsilon. Neighbours differ in the presence of one canary. 0 if nothing was
        proved.
    delta : float
        The other privacy parameter.
    confidence : float
        Smallest probability that the bound holds, for any algorithm.
    n_canaries : int
        Number of canaries, each included by a fair coin.
    n_guesses : int
        Number of canaries with a guess.
    n_correct : int
        Number of right guesses.
    included : ndarray of shape (n_canaries,)
        Which canaries were included.
    scores : ndarray of shape (n_canaries,)
        Score of each canary.

    See Also
    --------
    one_run_audit : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.audit import one_run_audit
    >>> result = one_run_audit(lambda included: included, 200, delta=1e-5, n_guesses=100)
    >>> result.n_correct, result.exceeds(3.0)
    (100, True)
    """

    n_canaries: int
    n_guesses: int
    n_correct: int
    included: np.ndarray = field(repr=False, compare=False)
    scores: np.ndarray = field(repr=False, compare=False)


def one_run_audit(
    train: Any,
    n_canaries: int,
    *,
    delta: float,
    n_guesses: int | None = None,
    confidence: float = 0.95,
    random_state: Any = None,
) -> OneRunAuditResult:
    """Attack a training algorithm in one run, by guessing which canaries were included.

    A canary is a record invented for the audit. A fair coin decides for each canary whether it is
    included in the training data. The attacker sees the result of the training and guesses, for
    some canaries, whether they were included. If the algorithm is private, few guesses can be
    right.

    Parameters
    ----------
    train : callable
        ``train(included)`` gets an ndarray of `n_canaries` booleans, trains on the included
        canaries (and any other records), and returns a score for each canary. A higher score means
        that the canary was more likely included.
    n_canaries : int
        Number of canaries.
    delta : float
        The privacy parameter beside epsilon, at least 0 and below 1.
    n_guesses : int, default=None
        Number of guesses: half of them say "included", for the highest scores, and half say "not
        included", for the lowest. None tries all canaries, half of them, a quarter and so on, and
        gives each an equal share of the risk.
    confidence : float, default=0.95
        Smallest probability that the bound holds.
    random_state : None, int or numpy.random.RandomState, default=None
        Decides which canaries are included. None uses the cryptographic source.

    Returns
    -------
    OneRunAuditResult
        A lower bound of epsilon, for neighbours that differ in the presence of one canary.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or if `train` does not return one number per canary.

    See Also
    --------
    audit : A sharper bound, from thousands of runs.

    Notes
    -----
    Let ``r`` be the number of guesses, ``v`` that of right ones, ``m`` that of canaries, and
    ``f(v)`` the probability that a binomial variable W of r trials with success probability
    ``exp(epsilon) / (1 + exp(epsilon))`` is at least v. If delta is 0, then by Bayes' rule the
    odds that a canary was included, given what was trained and which of the others were, are
    between ``exp(-epsilon)`` and ``exp(epsilon)``. So for any result of the earlier guesses, the
    next one is right with at most W's probability, and v is stochastically at most W. With a
    delta, on average at most ``2 m delta`` canaries F are also revealed, and v is at most ``W +
    F``. The probability of v or more right guesses is therefore at most the mean of ``f(v - F)``,
    which for any distribution of F is at most::

        f(v) + 2 m delta max_{i >= 1} (f(v - i) - f(v)) / i

    The bound returned is the largest epsilon for which this is at most ``1 - confidence``.

    However large epsilon is, `r` right guesses prove no more than about ``log(r / log(1 / risk))``.

    References
    ----------
    T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training Run", Advances in
    Neural Information Processing Systems 36, 2023, Theorem 5.2.

    Examples
    --------
    The sum of canaries that are orthogonal unit vectors, with far too little noise:

    >>> import numpy as np
    >>> from skdpot.privacy.audit import one_run_audit
    >>> noise = 0.2 * np.random.default_rng(0).standard_normal(1000)
    >>> def train(included):
    ...     released = included + noise
    ...     return released
    >>> one_run_audit(train, 1000, delta=1e-5, random_state=0).exceeds(4.0)
    True
    """
    check_probability("delta", delta)
    check_delta(confidence, "confidence")
    sizes = _guess_sizes(n_canaries, n_guesses)
    included = make_source(random_state).bits(1, n_canaries).astype(bool)
    scores = np.asarray(train(included.copy()), dtype=np.float64)
    if scores.shape != included.shape or np.isnan(scores).any():
        raise ValueError(
            f"train must return one number per canary, of shape {included.shape} and without "
            f"NaN, got shape {scores.shape} with {int(np.isnan(scores).sum())} NaN."
        )
    risk = (1.0 - confidence) / len(sizes)
    tried = []
    for size in sizes:
        correct = _count_correct(scores, included, size)
        tried.append((_largest_refuted(n_canaries, size, correct, delta, risk), size, correct))
    bound, size, correct = max(tried)
    return OneRunAuditResult(
        epsilon_lower=bound,
        delta=float(delta),
        confidence=float(confidence),
        n_canaries=int(n_canaries),
        n_guesses=size,
        n_correct=correct,
        included=included,
        scores=scores,
    )


def _guess_sizes(n_canaries: Any, n_guesses: Any) -> list[int]:
    if not isinstance(n_canaries, (int, np.integer)) or n_canaries < 1:
        raise ValueError(f"n_canaries must be a positive integer, got {n_canaries!r}.")
    if n_guesses is None:
        halved = [int(n_canaries) >> power for power in range(_MOST_HALVINGS + 1)]
        return [size for size in halved if size >= _FEWEST_GUESSES] or [int(n_canaries)]
    if not isinstance(n_guesses, (int, np.integer)) or not 1 <= n_guesses <= n_canaries:
        raise ValueError(f"n_guesses must be None or from 1 to {n_canaries}, got {n_guesses!r}.")
    return [int(n_guesses)]


def _count_correct(scores: np.ndarray, included: np.ndarray, n_guesses: int) -> int:
    """Return how many of the canaries with extreme scores are guessed correctly."""
    order = np.argsort(scores, kind="stable")
    n_said_out = n_guesses // 2
    said_out, said_in = order[:n_said_out], order[len(order) - (n_guesses - n_said_out) :]
    return int(np.count_nonzero(~included[said_out]) + np.count_nonzero(included[said_in]))


def probability_of_correct(
    n_canaries: int, n_guesses: int, n_correct: int, epsilon: float, delta: float
) -> float:
    """Return a bound of the probability of so many correct guesses if the claim is true.

    Examples
    --------
    >>> from skdpot.privacy.audit._one_run import probability_of_correct
    >>> round(probability_of_correct(10, 10, 10, epsilon=0.0, delta=0.0) * 2**10, 9)
    1.0
    """
    if n_correct == 0:
        return 1.0
    accuracy = 1.0 / (1.0 + math.exp(-epsilon))
    # f(v), f(v - 1), ..., f(0): a binomial tail is an incomplete beta integral.
    right = np.arange(n_correct, 0, -1)
    tails = np.append(betainc(right, n_guesses - right + 1, accuracy), 1.0)
    steepest = float(np.max((tails[1:] - tails[0]) / np.arange(1, n_correct + 1)))
    return min(float(tails[0]) + 2.0 * n_canaries * delta * steepest, 1.0)


def _largest_refuted(
    n_canaries: int, n_guesses: int, n_correct: int, delta: float, risk: float
) -> float:
    """Return the largest epsilon that so many correct guesses refute, or 0.

    That is sound even if the probability is not monotone in epsilon: a mechanism that is private
    for a smaller epsilon is private for this one.
    """

    def is_refuted(epsilon: float) -> bool:
        return probability_of_correct(n_canaries, n_guesses, n_correct, epsilon, delta) <= risk

    refuted, open_ = 0.0, _LARGEST_EPSILON
    if not is_refuted(refuted):
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (refuted + open_) / 2
        if is_refuted(middle):
            refuted = middle
        else:
            open_ = middle
    return refuted
