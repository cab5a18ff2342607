"""Audits: attacks that prove lower bounds on the epsilon of a mechanism.

An attack that finds nothing proves nothing.
"""

import decimal
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import joblib
import numpy as np
from scipy.special import betainccinv, betaincinv
from tqdm.auto import tqdm

from skdpot.privacy.checks import check_delta, check_probability, result_of
from skdpot.privacy.choices import exceeds_exp
from skdpot.privacy.noise import make_source

__all__ = ["audit", "exact_audit"]

# Confidence bounds of probabilities and epsilon from counts, and the event to count.

Counts = int | np.ndarray


def lower_rate(count: Counts, n_trials: int, risk: float) -> np.ndarray:
    """Return a lower confidence bound of a probability, with this risk (Clopper and Pearson).

    Examples
    --------
    >>> from skdpot.privacy.audit import lower_rate
    >>> round(float(lower_rate(50, 100, 0.05)), 4)
    0.4136
    """
    count = np.asarray(count)
    return np.where(count > 0, betaincinv(np.maximum(count, 1), n_trials - count + 1, risk), 0.0)


def upper_rate(count: Counts, n_trials: int, risk: float) -> np.ndarray:
    """Return an upper confidence bound of a probability, with this risk (Clopper and Pearson).

    Examples
    --------
    >>> from skdpot.privacy.audit import upper_rate
    >>> round(float(upper_rate(0, 100, 0.05)), 4)
    0.0295
    """
    missed = n_trials - np.asarray(count)
    bound = betainccinv(np.asarray(count) + 1, np.maximum(missed, 1), risk)
    return np.where(missed > 0, bound, 1.0)


def epsilon_from_counts(
    hits: Counts, false_hits: Counts, n_trials: int, delta: float, confidence: float
) -> np.ndarray:
    """Return a lower bound of epsilon, from counts of an event on two neighbouring data sets.

    Since ``p <= exp(epsilon) q + delta`` for the event's two probabilities, epsilon is at least
    ``log((p - delta) / q)``; p is bounded from below and q from above, each with half of the risk.
    The bound is minus infinity if delta explains the counts.

    Examples
    --------
    >>> from skdpot.privacy.audit import epsilon_from_counts
    >>> round(float(epsilon_from_counts(750, 250, 1000, 0.0, 0.95)), 4)
    0.9542
    """
    risk = (1.0 - confidence) / 2
    likely = lower_rate(hits, n_trials, risk) - delta
    # Both bounds hold together, with the confidence that the sum of their risks leaves.
    ratio = likely / upper_rate(false_hits, n_trials, risk)
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(ratio, 0.0))


def choose_event(
    data_scores: np.ndarray, neighbour_scores: np.ndarray, delta: float, confidence: float
) -> tuple[float, float, str, str]:
    """Return the largest expected bound of epsilon, and the event that has it.

    An event is a set of outputs: those whose score is at least ("upper" tail) or at most ("lower"
    tail) a threshold. It is named by its threshold, its tail, and the data set on which it is
    expected more often ("data" or "neighbour"). Count it among *other* outputs than these.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.audit import choose_event
    >>> _, *event = choose_event(np.arange(100.0), np.arange(50.0, 150.0), 0.0, 0.95)
    >>> event
    [100.0, 'upper', 'neighbour']
    """
    n_trials = len(data_scores)
    # A hundredth of the risk. With the full risk, the luckiest of many thresholds would too often
    # lie where hardly any output does.
    cautious = 1.0 - 0.01 * (1.0 - confidence)
    ordered = np.sort(data_scores), np.sort(neighbour_scores)
    thresholds = _thresholds(np.concatenate([data_scores, neighbour_scores]))
    best = -math.inf, float(thresholds[0]), "upper", "data"
    for tail in ("upper", "lower"):
        counts = [_tail_counts(scores, thresholds, tail) for scores in ordered]
        for likelier_on, (hits, false_hits) in (("data", counts), ("neighbour", counts[::-1])):
            bounds = epsilon_from_counts(hits, false_hits, n_trials, delta, cautious)
            position = int(np.argmax(bounds))
            if bounds[position] > best[0]:
                best = float(bounds[position]), float(thresholds[position]), tail, likelier_on
    return best


def _thresholds(scores: np.ndarray, n_ranks: int = 300) -> np.ndarray:
    """Return thresholds for tails, dense where the tails are thin."""
    values = np.unique(scores)
    if len(values) <= 2 * n_ranks:
        return values
    # Ranks from either end grow geometrically.
    ranks = np.unique(np.geomspace(1, len(values), n_ranks).astype(int)) - 1
    return np.unique(values[np.concatenate([ranks, len(values) - 1 - ranks])])


def _tail_counts(ordered: np.ndarray, thresholds: np.ndarray, tail: str) -> np.ndarray:
    if tail == "upper":
        return len(ordered) - np.searchsorted(ordered, thresholds, side="left")
    return np.searchsorted(ordered, thresholds, side="right")


# The outputs of many releases, and the numbers, types and texts in them.


class Raised(NamedTuple):
    """The outcome of a release that raised an error: the exception's class, and its message."""

    kind: str
    message: str


class Outcomes:
    """The outcomes of many releases: numbers, other objects, or errors.

    Parameters
    ----------
    outputs : list or ndarray
        One output per trial.

    Attributes
    ----------
    outputs : list or ndarray
        The same, as an array if all are numbers of one shape and type.
    kinds : list of str
        The kind of every output: an array's type and shape, another type with its text, or the
        class of an error.
    numbers : list of ndarray, or ndarray of shape (n_outputs, n_numbers)
        The numbers in every output; an output without numbers has none.
    """

    def __init__(self, outputs: Any) -> None:
        if not isinstance(outputs, np.ndarray):
            outputs = _joined([[output] for output in outputs])
        self.outputs = outputs
        self.numbers: Sequence[np.ndarray] | np.ndarray
        if isinstance(outputs, np.ndarray):
            # Many of one kind at once, which is much faster.
            self.numbers = _real_numbers(outputs).reshape(len(outputs), -1)
            self.kinds = [f"{outputs.dtype}{outputs.shape[1:]}"] * len(outputs)
        else:
            self.kinds, self.numbers = map(list, zip(*map(_described, outputs), strict=True))

    def __len__(self) -> int:
        return len(self.outputs)

    def __getitem__(self, part: slice) -> "Outcomes":
        return Outcomes(self.outputs[part])

    def padded(self, width: int) -> np.ndarray:
        """Return the numbers as rows of this width, padded with zeros or cut off."""
        if isinstance(self.numbers, np.ndarray) and self.numbers.shape[1] == width:
            return self.numbers
        rows = np.zeros((len(self), width))
        for row, numbers in zip(rows, self.numbers, strict=True):
            row[: len(numbers)] = numbers[:width]
        return rows

    def atoms(self) -> list[tuple[str, bytes]]:
        """Return keys that are equal for bitwise equal outputs."""
        parts = zip(self.kinds, self.numbers, strict=True)
        return [(kind, numbers.tobytes()) for kind, numbers in parts]


def _described(output: Any) -> tuple[str, np.ndarray]:
    """Return the kind of an output, with its text if it is not numerical, and its numbers."""
    if isinstance(output, Raised):
        return f"raised {output.kind}", np.empty(0)
    array = _as_numbers(output)
    if array is None:
        text = output.tolist() if isinstance(output, np.ndarray) else output
        return f"{type(output).__name__}: {text!r}", np.empty(0)
    return f"{array.dtype}{array.shape}", _real_numbers(array).ravel()


def _real_numbers(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    return array.astype(np.float64)


def _as_numbers(output: Any) -> np.ndarray | None:
    if isinstance(output, (Raised, str, bytes)) or output is None:
        return None
    try:
        array = np.asarray(output)
    except Exception:  # An output that cannot be an array is compared as text.
        return None
    return array if array.dtype.kind in "biufc" else None


def collect(
    release: Callable,
    pair: tuple[Any, Any],
    n_trials: int,
    *,
    vectorized: bool,
    n_jobs: int | None,
    random_state: Any,
    verbose: bool | None,
) -> tuple[Outcomes, Outcomes]:
    """Release `n_trials` times from each of two data sets, with the parameters of `audit`.

    Raises a RuntimeError if every release raised, or if any did when one call makes many.
    """
    # As many chunks for any number of workers, so that the seeds do not depend on it.
    sizes = [len(chunk) for chunk in np.array_split(np.arange(n_trials), min(32, n_trials))]
    source = None if random_state is None else make_source(random_state)
    run = _run_vectorized if vectorized else _run_singly
    tasks = []
    for data in pair:
        for size in sizes:
            n_seeds = 1 if vectorized else size
            # Drawn here and not by workers, so that the division of work does not matter.
            seeds = [None] * n_seeds if source is None else source.bits(32, n_seeds)
            tasks.append(joblib.delayed(run)(release, data, size, seeds))
    # For tqdm, None hides a bar on what is no terminal.
    with tqdm(tasks, desc="releases", disable=None if verbose is None else not verbose) as watched:
        chunks = joblib.Parallel(n_jobs=n_jobs, max_nbytes=None)(watched)
    halves = chunks[: len(sizes)], chunks[len(sizes) :]
    if vectorized:
        return Outcomes(_joined(halves[0])), Outcomes(_joined(halves[1]))
    first, second = ([output for chunk in half for output in chunk] for half in halves)
    if all(isinstance(output, Raised) for output in first + second):
        said = f"{first[0].kind}: {first[0].message}"
        raise RuntimeError(f"release raised at every trial, at first {said}")
    return Outcomes(first), Outcomes(second)


def _run_singly(release: Callable, data: Any, size: int, seeds: Any) -> list:
    outputs: list[Any] = []
    for seed in seeds:
        keywords = {} if seed is None else {"random_state": int(seed)}
        try:
            outputs.append(release(data, **keywords))
        except Exception as error:
            # An error that one data set alone triggers is a leak like any output.
            outputs.append(Raised(type(error).__name__, str(error)))
    return outputs


def _run_vectorized(release: Callable, data: Any, size: int, seeds: Any) -> Any:
    keywords = {} if seeds[0] is None else {"random_state": int(seeds[0])}
    try:
        outputs = release(data, size, **keywords)
    except Exception as error:
        raise RuntimeError(
            f"release(data, {size}) raised {type(error).__name__}: {error}. To count errors as "
            "outcomes, as one that a single data set triggers is a leak, use vectorized=False."
        ) from error
    if len(outputs) != size:
        raise ValueError(f"release(data, {size}) must return {size} outputs, got {len(outputs)}.")
    return outputs


def _joined(chunks: list) -> Any:
    """Return the outputs of all chunks, as one array if all are numbers of one shape and type."""
    arrays = [array for chunk in chunks if (array := _as_numbers(chunk)) is not None]
    alike = len({(array.dtype, array.shape[1:]) for array in arrays}) == 1
    if alike and len(arrays) == len(chunks):
        return np.concatenate(arrays)
    return [output for chunk in chunks for output in chunk]


# Scores of outputs that separate two data sets. Each function returns a score for every output of
# others than it has learned from.


def _by_ratio(log_density_ratio: Callable) -> Callable[[Outcomes], np.ndarray]:
    """Return the score of a function that knows the densities and needs no learning."""

    def score(outcomes: Outcomes) -> np.ndarray:
        scores = np.zeros(len(outcomes))
        worked = [not isinstance(output, Raised) for output in outcomes.outputs]
        if not any(worked):
            return scores
        outputs = outcomes.outputs
        if not all(worked):
            outputs = _joined([[out] for out, fine in zip(outputs, worked, strict=True) if fine])
        ratios = np.asarray(log_density_ratio(outputs), dtype=np.float64)
        if ratios.shape != (sum(worked),):
            raise ValueError(f"log_density_ratio must return one number per output: {sum(worked)}.")
        # Rounded: for a constant ratio, the noise in its last bits would show which numbers were
        # added in floating point, and this leak is not the question here.
        scores[worked] = np.round(ratios, 9)
        return np.where(np.isnan(scores), 0.0, scores)

    return score


def _by_frequency(data: Outcomes, neighbour: Outcomes) -> Callable[[Outcomes], np.ndarray]:
    """Return the log-odds with which an output was seen on either data set."""
    on_data, on_neighbour = Counter(data.atoms()), Counter(neighbour.atoms())
    odds = {
        key: np.log((on_data[key] + 0.5) / (on_neighbour[key] + 0.5))
        for key in on_data | on_neighbour
    }
    return lambda outcomes: np.array([odds.get(key, 0.0) for key in outcomes.atoms()])


def _by_value(outcomes: Outcomes) -> np.ndarray:
    """Return a single number itself, which suffices for monotone density ratios."""
    return np.nan_to_num(outcomes.padded(1)[:, 0], nan=0.0, posinf=np.inf, neginf=-np.inf)


def _by_classifier(
    model: Any, features: Callable, data: Outcomes, neighbour: Outcomes
) -> Callable[[Outcomes], np.ndarray]:
    """Return the decision of a classifier that was trained on outputs of both data sets."""
    from sklearn.exceptions import ConvergenceWarning

    labels = np.repeat([1, 0], [len(data), len(neighbour)])
    with warnings.catch_warnings():
        # A classifier that did not converge makes the attack weaker, not wrong.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.vstack([features(data), features(neighbour)]), labels)
    return lambda found: np.asarray(model.decision_function(features(found)), dtype=np.float64)


def _features_of(
    data: Outcomes, neighbour: Outcomes, most_kinds: int = 50, largest: float = 1e100
) -> tuple[Callable[[Outcomes], np.ndarray], int]:
    """Return a function that gives the features of outputs for a classifier, and their number.

    They are finite numbers, indicators of others, and of the most frequent kinds of outputs.
    """
    both = (data, neighbour)
    counts = Counter(data.kinds + neighbour.kinds)
    # One kind alone tells nothing.
    kinds = [kind for kind, _ in counts.most_common(most_kinds)] if len(counts) > 1 else []
    width = max(len(numbers) for outcomes in both for numbers in outcomes.numbers)
    finite = np.vstack([np.isfinite(outcomes.padded(width)) for outcomes in both])
    suspects = np.flatnonzero(~finite.all(axis=0))

    def features(outcomes: Outcomes) -> np.ndarray:
        numbers = outcomes.padded(width)
        suspected = numbers[:, suspects]
        columns = [
            # Clipped, so that sums of squares stay finite.
            np.clip(np.where(np.isfinite(numbers), numbers, 0.0), -largest, largest),
            np.isnan(suspected),
            suspected == np.inf,
            suspected == -np.inf,
            np.array(outcomes.kinds, dtype=object)[:, None] == np.array(kinds, dtype=object),
        ]
        return np.hstack(columns)

    return features, width + 3 * len(suspects) + len(kinds)


def candidates(
    data: Outcomes, neighbour: Outcomes
) -> Iterator[tuple[str, Callable[[Outcomes], np.ndarray]]]:
    """Yield the names and scores that `audit` tries, which have learned from these outputs."""
    yield "frequency of atoms", _by_frequency(data, neighbour)
    n_different = len({*data.atoms(), *neighbour.atoms()})
    # Outputs that repeat ten times on average are counted, and need no classifier.
    if n_different * 10 <= len(data) + len(neighbour):
        return
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    features, n_features = _features_of(data, neighbour)
    if max(len(numbers) for numbers in (*data.numbers, *neighbour.numbers)) == 1:
        yield "value", _by_value
    logistic = LogisticRegression(C=0.1, max_iter=200, tol=1e-3)
    products = PolynomialFeatures(include_bias=False)
    trees = HistGradientBoostingClassifier(
        max_iter=50, max_leaf_nodes=15, early_stopping=False, random_state=0
    )
    models = {
        "linear": (make_pipeline(StandardScaler(), logistic), math.inf),
        # Products, and trees, of more features take too long.
        "quadratic": (make_pipeline(StandardScaler(), products, logistic), 16),
        "trees": (trees, 64),
    }
    for name, (model, most_features) in models.items():
        if 0 < n_features <= most_features:
            yield f"classifier ({name})", _by_classifier(clone(model), features, data, neighbour)


# The result of an audit.


@dataclass(frozen=True)
class AuditResult:
    """The lower bound of epsilon that :func:`audit` proved, and the counts behind it.

    Parameters
    ----------
    epsilon_lower : float
        With the stated confidence, the mechanism is not (epsilon, delta)-differentially private
        for any smaller epsilon. It is 0 where nothing was proven.
    delta : float
        The other privacy parameter.
    confidence : float
        Probability with which such a bound holds, at least, whatever the mechanism.
    n_trials : int
        Releases per data set: one half chose the event, the other was counted.
    statistic : str
        What gave outputs their scores: ``"likelihood_ratio"``, ``"frequency of atoms"`` (of whole
        outputs, to the last bit), ``"value"`` (of a single number) or ``"classifier (...)"``.
    threshold : float
        The score from which on, or up to which, outputs belong to the event that was counted.
    tail : {"upper", "lower"}
        Whether that event is made of scores of at least or of at most the threshold.
    likelier_on : {"data", "neighbour"}
        The data set on which the event was expected to be likelier.
    n_held_out : int
        Trials per data set that were counted.
    counts : tuple of two int
        How many of them were in the event: from the data, and from their neighbour.
    data_scores, neighbour_scores : ndarray of shape (n_held_out,)
        The scores of the outputs counted.

    Attributes
    ----------
    rate_bounds : tuple of two float
        Bounds of the event's two probabilities, from which `epsilon_lower` follows.

    See Also
    --------
    audit : Makes it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.audit import audit
    >>> def release(bit, n_trials, random_state):
    ...     return bit ^ (np.random.default_rng(random_state).random(n_trials) < 0.25)
    >>> result = audit(release, True, False, vectorized=True, random_state=0)
    >>> result.exceeds(1.0), result.exceeds(1.2)
    (True, False)
    """

    epsilon_lower: float
    delta: float
    confidence: float
    n_trials: int
    statistic: str
    threshold: float
    tail: str
    likelier_on: str
    n_held_out: int
    counts: tuple[int, int]
    data_scores: np.ndarray = field(repr=False, compare=False)
    neighbour_scores: np.ndarray = field(repr=False, compare=False)

    def exceeds(self, epsilon: float) -> bool:
        """Tell whether a claim of this epsilon, at the result's delta, is refuted.

        Parameters
        ----------
        epsilon : float
            The claimed epsilon.

        Returns
        -------
        bool
            True is a proof, with the result's confidence; False proves nothing.
        """
        return self.epsilon_lower > epsilon

    @property
    def rate_bounds(self) -> tuple[float, float]:
        """Return a lower bound of the event's larger probability, and an upper of the other."""
        risk = (1.0 - self.confidence) / 2
        hits, false_hits = self.counts if self.likelier_on == "data" else self.counts[::-1]
        return (
            float(lower_rate(hits, self.n_held_out, risk)),
            float(upper_rate(false_hits, self.n_held_out, risk)),
        )

    def trade_off(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the two error rates of attacks with every threshold of the score.

        Returns
        -------
        false_positive_rates : ndarray
            How often an output is in the event where the event is less likely.
        false_negative_rates : ndarray
            How often an output is not in it where it is likelier.
        """
        scores = [self.data_scores, self.neighbour_scores]
        likely, unlikely = scores if self.likelier_on == "data" else scores[::-1]
        sign = 1.0 if self.tail == "upper" else -1.0
        # Every score is a threshold, so that no attack by scores is left out.
        thresholds = np.unique(sign * np.concatenate(scores))
        missed = np.searchsorted(np.sort(sign * likely), thresholds, side="left")
        below = np.searchsorted(np.sort(sign * unlikely), thresholds, side="left")
        false_negatives = np.append(missed / self.n_held_out, 1.0)
        false_positives = np.append(1.0 - below / self.n_held_out, 0.0)
        return false_positives, false_negatives


# The audit of a release on two neighbouring data sets.


def audit(
    release: Any,
    data: Any,
    neighbour: Any,
    *,
    delta: float = 0.0,
    n_trials: int = 10_000,
    confidence: float = 0.95,
    log_density_ratio: Any = None,
    vectorized: bool = False,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: bool | None = None,
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
    log_density_ratio : callable, default=None
        ``log_density_ratio(outputs)`` returns one number per output: the logarithm of the output's
        density on `data` divided by that on `neighbour`, or any other number that may distinguish
        them, such as the decision of a classifier; it is rounded to nine decimals. None learns to
        distinguish the data sets: by how often an output occurred on either, by its value, and by
        classifiers (a logistic regression, one with squares and products for up to 16 numbers, and
        gradient-boosted trees for up to 64). It gets an array with the outputs along the first
        axis if all are numbers of one shape and type, otherwise a list.
    vectorized : bool, default=False
        If True, ``release(data, n)`` returns n independent outputs along the first axis, which is
        much faster. Errors are then not outcomes, and are passed on.
    n_jobs : int, default=None
        Workers of joblib among which releases are divided.
    random_state : None, int or numpy.random.RandomState, default=None
        If given, releases are called with a keyword ``random_state``, a new integer for every
        call, and the attack is reproducible for any `n_jobs`. None adds no keyword.
    verbose : bool, default=None
        Whether to show a progress bar. None shows it on a terminal.

    Returns
    -------
    AuditResult
        The bound, and the counts behind it.

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
    if not callable(release):
        raise TypeError(f"release must be callable, got {type(release).__name__}.")
    if not isinstance(n_trials, (int, np.integer)) or n_trials < 20:
        raise ValueError(f"n_trials must be an integer of 20 or more, got {n_trials!r}.")
    before = [result_of(partial(joblib.hash, each), None) for each in (data, neighbour)]
    outcomes = collect(
        release,
        (data, neighbour),
        n_trials,
        vectorized=vectorized,
        n_jobs=n_jobs,
        random_state=random_state,
        verbose=verbose,
    )
    if before != [result_of(partial(joblib.hash, each), None) for each in (data, neighbour)]:
        raise ValueError("release changed its data, and so later outputs: have it copy them.")
    same = "data and neighbour are equal" if None is not before[0] == before[1] else ""
    if same or len({atom for part in outcomes for atom in part.atoms()}) == 1:
        same = same or "all outputs are the same (does release return something?)"
        warnings.warn(f"{same}: nothing can be found, and this proves nothing.", stacklevel=2)
    half = n_trials // 2
    first = tuple(part[:half] for part in outcomes)
    name, score, threshold, tail, likelier_on = _choose(first, delta, confidence, log_density_ratio)
    scores = [score(part[half:]) for part in outcomes]
    counts = [int(_tail_counts(np.sort(part), np.asarray(threshold), tail)) for part in scores]
    hits, false_hits = counts if likelier_on == "data" else counts[::-1]
    bound = epsilon_from_counts(hits, false_hits, n_trials - half, delta, confidence)
    return AuditResult(
        epsilon_lower=max(float(bound), 0.0),
        delta=float(delta),
        confidence=float(confidence),
        n_trials=int(n_trials),
        statistic=name,
        threshold=threshold,
        tail=tail,
        likelier_on=likelier_on,
        n_held_out=int(n_trials - half),
        counts=(counts[0], counts[1]),
        data_scores=scores[0],
        neighbour_scores=scores[1],
    )


def _choose(
    pair: tuple[Outcomes, ...], delta: float, confidence: float, ratio: Any
) -> tuple[str, Callable[[Outcomes], np.ndarray], float, str, str]:
    """Return the name, score and event that do best on outputs that are not counted later.

    The event is its threshold, its tail, and the data set on which it is likelier.
    """
    known = ("likelihood_ratio", _by_ratio(ratio))
    alike = len({kind for part in pair for kind in part.kinds}) == 1
    if ratio is not None and alike and all(np.isfinite(part.numbers).all() for part in pair):
        scores = [known[1](part) for part in pair]
        return *known, *choose_event(scores[0], scores[1], delta, confidence)[1:]
    quarter = len(pair[0]) // 2
    learn, choose = ([part[:quarter] for part in pair], [part[quarter:] for part in pair])
    tried = candidates(*learn)
    if ratio is not None:
        # Errors and numbers that are not finite have no ratio, but may repeat.
        tried = iter([known, next(tried)])
    found = []
    for name, score in tried:
        scores = [score(part) for part in choose]
        # Chosen on other outputs than the score has learned from.
        bound, threshold, tail, likelier_on = choose_event(scores[0], scores[1], delta, confidence)
        found.append((bound, name, score, threshold, tail, likelier_on))
    return max(found, key=lambda each: each[0])[1:]


# The exact privacy loss of discrete mechanisms with known weights.


class ExactAudit(NamedTuple):
    """The privacy loss of a discrete mechanism over the inputs tried.

    Parameters
    ----------
    epsilon : float
        The largest log-ratio found (``inf`` if an output is possible for one input and impossible
        for another).
    output : int
        The output at which it occurs.
    more_likely, less_likely : int
        Positions of the two inputs between which it occurs.
    numerator, denominator : int
        Their exact weights there.

    See Also
    --------
    exact_audit : Returns it.

    Examples
    --------
    >>> from skdpot.privacy.audit import exact_audit
    >>> exact_audit([[2, 0], [1, 1]]).epsilon
    inf
    """

    epsilon: float
    output: int
    more_likely: int
    less_likely: int
    numerator: int
    denominator: int

    def exceeds(self, epsilon: float) -> bool:
        """Tell whether the ratio found exceeds ``exp(epsilon)``, in exact arithmetic.

        Parameters
        ----------
        epsilon : float
            The claimed epsilon.

        Returns
        -------
        bool
            True is a proof that the claim is wrong.
        """
        return exceeds_exp(self.numerator, self.denominator, epsilon)


def exact_audit(weights: Any) -> ExactAudit:
    """Find the worst privacy loss of a discrete mechanism from its exact weights.

    Under local differential privacy any two inputs are neighbours. So the loss is the largest
    log-ratio of two weights of one output.

    Parameters
    ----------
    weights : array-like of int, shape (n_inputs, n_outputs)
        For every input tried, the integer weights from which its output is drawn; all rows have
        the same sum.

    Returns
    -------
    ExactAudit
        A lower bound on the epsilon of the mechanism, exact for the inputs tried.

    Raises
    ------
    ValueError
        If the weights are not non-negative integers with equal row sums above zero.

    Examples
    --------
    >>> from skdpot.privacy.audit import exact_audit
    >>> result = exact_audit([[3, 1], [1, 3]])
    >>> round(result.epsilon, 6)
    1.098612
    >>> result.exceeds(1.0), result.exceeds(1.1)
    (True, False)
    """
    weights = np.asarray(weights)
    if weights.ndim != 2 or weights.dtype.kind not in "iu" or weights.min(initial=0) < 0:
        made = "as BoundedRatioMechanism(...).integer_weights(projections) returns"
        raise ValueError(f"weights must be a two-dimensional array of integers from 0 on, {made}.")
    totals = {sum(int(weight) for weight in row) for row in weights}
    if len(weights) < 2 or len(totals) != 1 or totals == {0}:
        raise ValueError("weights must have two or more rows, all of one sum that is not zero.")
    worst = ExactAudit(0.0, 0, 0, 0, 1, 1)
    for output, column in enumerate(weights.T):
        likeliest, rarest = int(column.argmax()), int(column.argmin())
        numerator, denominator = int(column[likeliest]), int(column[rarest])
        # Compared as integers: the logarithm would round two ratios to one.
        if numerator * worst.denominator > worst.numerator * denominator:
            worst = ExactAudit(0.0, output, likeliest, rarest, numerator, denominator)
    if worst.denominator == 0:
        return worst._replace(epsilon=math.inf)
    context = decimal.Context(prec=60)
    ratio = context.divide(decimal.Decimal(worst.numerator), decimal.Decimal(worst.denominator))
    return worst._replace(epsilon=float(context.ln(ratio)))
