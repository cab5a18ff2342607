"""Confidence bounds of probabilities and epsilon from counts, and the event to count."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainccinv, betaincinv

# Share of the risk with which an event is chosen. With the full risk, the luckiest of many
# thresholds would too often lie where hardly any output does.
_CAUTION = 0.01
# Number of thresholds tried from either end of the scores, at ranks that grow geometrically.
_N_THRESHOLDS = 300


def lower_rate(count: Any, n_trials: int, risk: float) -> Any:
    """Return a lower confidence bound of a probability, with this risk (Clopper and Pearson).

    Examples
    --------
    >>> from skdpot.privacy.audit._bounds import lower_rate
    >>> round(float(lower_rate(50, 100, 0.05)), 4)
    0.4136
    """
    count = np.asarray(count)
    return np.where(count > 0, betaincinv(np.maximum(count, 1), n_trials - count + 1, risk), 0.0)


def upper_rate(count: Any, n_trials: int, risk: float) -> Any:
    """Return an upper confidence bound of a probability, with this risk (Clopper and Pearson).

    Examples
    --------
    >>> from skdpot.privacy.audit._bounds import upper_rate
    >>> round(float(upper_rate(0, 100, 0.05)), 4)
    0.0295
    """
    missed = n_trials - np.asarray(count)
    return np.where(
        missed > 0, betainccinv(np.asarray(count) + 1, np.maximum(missed, 1), risk), 1.0
    )


def epsilon_from_counts(
    hits: Any, false_hits: Any, n_trials: int, delta: float, confidence: float
) -> Any:
    """Return a lower bound of epsilon, from counts of an event on two neighbouring data sets.

    Since ``p <= exp(epsilon) q + delta`` for the event's two probabilities, epsilon is at least
    ``log((p - delta) / q)``; p is bounded from below and q from above, each with half of the risk.
    The bound is minus infinity if delta explains the counts.

    Examples
    --------
    >>> from skdpot.privacy.audit._bounds import epsilon_from_counts
    >>> round(float(epsilon_from_counts(750, 250, 1000, 0.0, 0.95)), 4)
    0.9542
    """
    risk = (1.0 - confidence) / 2
    likely = lower_rate(hits, n_trials, risk) - delta
    ratio = likely / upper_rate(false_hits, n_trials, risk)
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(ratio, 0.0))


@dataclass(frozen=True)
class Event:
    """A set of outputs: those whose statistic is at least, or at most, a threshold.

    Attributes
    ----------
    threshold : float
        Where the event begins.
    tail : {"upper", "lower"}
        Whether scores of at least or at most the threshold belong to it.
    likelier_on : {"data", "neighbour"}
        The data set on which it is expected more often.
    """

    threshold: float
    tail: str
    likelier_on: str

    def count(self, scores: np.ndarray) -> int:
        """Return the number of outputs in the event."""
        inside = scores >= self.threshold if self.tail == "upper" else scores <= self.threshold
        return int(np.count_nonzero(inside))


def choose_event(
    data_scores: np.ndarray, neighbour_scores: np.ndarray, delta: float, confidence: float
) -> tuple[Event, float]:
    """Return the event with the largest expected bound of epsilon, and that bound.

    Count it among *other* outputs than these.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.audit._bounds import choose_event
    >>> event, _ = choose_event(np.arange(100.0), np.arange(50.0, 150.0), 0.0, 0.95)
    >>> event
    Event(threshold=100.0, tail='upper', likelier_on='neighbour')
    """
    n_trials = len(data_scores)
    cautious = 1.0 - _CAUTION * (1.0 - confidence)
    data_sorted, neighbour_sorted = np.sort(data_scores), np.sort(neighbour_scores)
    thresholds = _thresholds(np.concatenate([data_scores, neighbour_scores]))
    best, best_bound = Event(float(thresholds[0]), "upper", "data"), -math.inf
    for tail in ("upper", "lower"):
        data_counts = _tail_counts(data_sorted, thresholds, tail)
        neighbour_counts = _tail_counts(neighbour_sorted, thresholds, tail)
        for likelier_on, hits, false_hits in (
            ("data", data_counts, neighbour_counts),
            ("neighbour", neighbour_counts, data_counts),
        ):
            bounds = epsilon_from_counts(hits, false_hits, n_trials, delta, cautious)
            position = int(np.argmax(bounds))
            if bounds[position] > best_bound:
                best_bound = float(bounds[position])
                best = Event(float(thresholds[position]), tail, likelier_on)
    return best, best_bound


def _thresholds(scores: np.ndarray) -> np.ndarray:
    """Return thresholds for tails, dense where the tails are thin."""
    values = np.unique(scores)
    if len(values) <= 2 * _N_THRESHOLDS:
        return values
    ranks = np.unique(np.geomspace(1, len(values), _N_THRESHOLDS).astype(int)) - 1
    return np.unique(values[np.concatenate([ranks, len(values) - 1 - ranks])])


def _tail_counts(ordered: np.ndarray, thresholds: np.ndarray, tail: str) -> np.ndarray:
    if tail == "upper":
        return len(ordered) - np.searchsorted(ordered, thresholds, side="left")
    return np.searchsorted(ordered, thresholds, side="right")
