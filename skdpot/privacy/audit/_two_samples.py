"""The audit of a release on two neighbouring data sets."""

from typing import Any

import numpy as np

from skdpot.privacy.audit._bounds import choose_event, epsilon_from_counts
from skdpot.privacy.audit._outputs import alike_and_finite, collect
from skdpot.privacy.audit._result import AuditResult
from skdpot.privacy.audit._statistics import DensityRatio, candidates
from skdpot.privacy.checks import check_choice, check_delta, check_probability

_STATISTICS = ("auto", "likelihood_ratio", "frequency", "classifier")
_FEWEST_TRIALS = 20


def audit(
    release: Any,
    data: Any,
    neighbour: Any,
    *,
    delta: float = 0.0,
    n_trials: int = 10_000,
    confidence: float = 0.95,
    statistic: str = "auto",
    log_density_ratio: Any = None,
    classifier: Any = None,
    vectorized: bool = False,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> AuditResult:
    """Attack a mechanism: prove a lower bound of its epsilon from its outputs.

    The mechanism is run many times on two neighbouring data sets. One half of the outputs is used
    to choose a statistic and an event (a set of outputs that is more likely on one of them). The
    event is counted in the other half, and the bound depends only on the counts. So the bound
    holds for any mechanism and any attack; a better attack makes it larger.

    Parameters
    ----------
    release : callable
        The mechanism: ``release(data)`` returns one new output at every call. Outputs are numbers
        or arrays of numbers; anything else is compared by its type and ``repr``. Shapes, types,
        infinities, NaN, and errors (by their class) are parts of an output, because an attacker
        sees them, too. It must not change `data`.
    data, neighbour : object
        Two neighbouring data sets. The bound depends on the pair: choose the worst pair for the
        mechanism.
    delta : float, default=0.0
        The privacy parameter beside epsilon, at least 0 and below 1.
    n_trials : int, default=10_000
        Releases per data set, at least 20. No more than about ``log(n_trials / 8)`` can be proven.
    confidence : float, default=0.95
        Probability with which the bound holds, at least.
    statistic : {"auto", "likelihood_ratio", "frequency", "classifier"}, default="auto"
        How outputs are scored. ``"likelihood_ratio"`` is `log_density_ratio`; ``"frequency"``
        counts how often an output occurred on either data set; ``"classifier"`` learns to
        distinguish the data sets. ``"auto"`` is the first if the ratio is given, the second if
        outputs repeat often, and otherwise the best of all, as found within the first half.
    log_density_ratio : callable, default=None
        ``log_density_ratio(outputs)`` returns one number per output: the logarithm of the output's
        density on `data` divided by that on `neighbour`, or any other number that may distinguish
        them; it is rounded to nine decimals. It gets an array with the outputs along the first
        axis if all are numbers of one shape and type, otherwise a list.
    classifier : scikit-learn classifier, default=None
        Used instead of the default ones: a logistic regression, one with squares and products for
        up to 16 numbers, and gradient-boosted trees for up to 64.
    vectorized : bool, default=False
        If True, ``release(data, n)`` returns n independent outputs along the first axis, which is
        much faster. Errors are then not outcomes, and are passed on.
    n_jobs : int, default=None
        Workers of joblib among which releases are divided.
    random_state : None, int or numpy.random.RandomState, default=None
        If given, releases are called with a keyword ``random_state``, a new integer for every
        call, and the attack is reproducible for any `n_jobs`. None adds no keyword.
    verbose : int, default=0
        Whether to show a progress bar.

    Returns
    -------
    AuditResult
        The bound, the counts behind it, and a plot.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    RuntimeError
        If every release raised, or any did with ``vectorized=True``.

    See Also
    --------
    exact_audit : Needs no trials if the probabilities are known exactly.

    Notes
    -----
    An (epsilon, delta)-differentially private mechanism satisfies ``p <= exp(epsilon) q + delta``
    for the probabilities p and q of any event on two neighbouring data sets, so that epsilon is at
    least ``log((p - delta) / q)``. Both are bounded by Clopper and Pearson's method, each with half
    of the risk ``1 - confidence``. With several audits, divide the risk by their number.

    The bound is for the mechanism as it was called. For example, the audit does not notice a
    generator that is seeded outside of `release`, and the confidence is wrong if outputs depend on
    earlier calls.

    A result reveals information about the two data sets: use synthetic ones, or treat the result
    as private.

    References
    ----------
    M. Jagielski, J. Ullman, A. Oprea, "Auditing Differentially Private Machine Learning: How
    Private is Private SGD?", Advances in Neural Information Processing Systems 33, 2020.

    Z. Ding, Y. Wang, G. Wang, D. Zhang, D. Kifer, "Detecting Violations of Differential Privacy",
    ACM Conference on Computer and Communications Security, 2018.

    Examples
    --------
    A sum with Laplace noise of scale 1, which is 1-differentially private if a record changes it
    by at most 1. Here a record was not clipped:

    >>> import numpy as np
    >>> from skdpot.privacy.audit import audit
    >>> def release(records, random_state):
    ...     noise = np.random.default_rng(random_state).laplace()
    ...     return sum(records) + noise
    >>> clipped = audit(release, [1.0, 0.5], [0.0, 0.5], n_trials=2000, random_state=0)
    >>> clipped.exceeds(1.0)
    False
    >>> unclipped = audit(release, [3.0, 0.5], [0.0, 0.5], n_trials=2000, random_state=0)
    >>> unclipped.exceeds(1.0)
    True
    """
    check_probability("delta", delta)
    check_delta(confidence, "confidence")
    _check_parameters(release, n_trials, statistic, log_density_ratio, classifier)
    outcomes = collect(
        release,
        (data, neighbour),
        n_trials,
        vectorized=vectorized,
        n_jobs=n_jobs,
        random_state=random_state,
        verbose=verbose,
    )
    half = n_trials // 2
    first = tuple(part[:half] for part in outcomes)
    held_out = tuple(part[half:] for part in outcomes)
    chosen, event = _choose(first, delta, confidence, statistic, log_density_ratio, classifier)
    scores = [chosen.score(part) for part in held_out]
    counts = tuple(event.count(part) for part in scores)
    hits, false_hits = counts if event.likelier_on == "data" else counts[::-1]
    bound = epsilon_from_counts(hits, false_hits, n_trials - half, delta, confidence)
    return AuditResult(
        epsilon_lower=max(float(bound), 0.0),
        delta=float(delta),
        confidence=float(confidence),
        n_trials=int(n_trials),
        statistic=chosen.name,
        threshold=event.threshold,
        tail=event.tail,
        likelier_on=event.likelier_on,
        n_held_out=int(n_trials - half),
        counts=(counts[0], counts[1]),
        data_scores=scores[0],
        neighbour_scores=scores[1],
    )


def _choose(
    pair: Any, delta: float, confidence: float, statistic: str, ratio: Any, classifier: Any
) -> tuple[Any, Any]:
    """Return the statistic and the event that do best on outputs that are not counted later."""
    if ratio is not None and alike_and_finite(*pair):
        known = DensityRatio(ratio)
        scores = [known.score(part) for part in pair]
        return known, choose_event(scores[0], scores[1], delta, confidence)[0]
    quarter = len(pair[0]) // 2
    learn = tuple(part[:quarter] for part in pair)
    choose = tuple(part[quarter:] for part in pair)
    if ratio is not None:
        tried = [DensityRatio(ratio), *candidates("frequency", None, *learn)]
    else:
        tried = candidates(statistic, classifier, *learn)
    best: tuple[Any, Any] = (None, None)
    best_bound = -np.inf
    for candidate in tried:
        candidate.fit(*learn)
        scores = [candidate.score(part) for part in choose]
        event, bound = choose_event(scores[0], scores[1], delta, confidence)
        if best[0] is None or bound > best_bound:
            best, best_bound = (candidate, event), bound
    return best


def _check_parameters(
    release: Any, n_trials: Any, statistic: Any, log_density_ratio: Any, classifier: Any
) -> None:
    if not callable(release):
        raise TypeError(f"release must be callable, got {type(release).__name__}.")
    if not isinstance(n_trials, (int, np.integer)) or n_trials < _FEWEST_TRIALS:
        raise ValueError(
            f"n_trials must be an integer of {_FEWEST_TRIALS} or more, got {n_trials!r}."
        )
    check_choice("statistic", statistic, _STATISTICS)
    if (statistic == "likelihood_ratio") > (log_density_ratio is not None):
        raise ValueError('statistic="likelihood_ratio" needs log_density_ratio.')
    if log_density_ratio is not None and statistic not in ("auto", "likelihood_ratio"):
        raise ValueError(f"log_density_ratio is not used with statistic={statistic!r}.")
    if classifier is not None and (
        statistic not in ("auto", "classifier") or log_density_ratio is not None
    ):
        raise ValueError(
            "classifier is used without log_density_ratio, and only with statistic "
            '"auto" or "classifier".'
        )
