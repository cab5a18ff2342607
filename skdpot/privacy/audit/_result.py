"""The result of an audit."""

from dataclasses import dataclass, field

import numpy as np

from skdpot.privacy.audit._bounds import lower_rate, upper_rate


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
    rates : tuple of two float
        Shares of the outputs counted that were in the event.
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
    def rates(self) -> tuple[float, float]:
        """Return the shares of counted outputs in the event: on the data, and on its neighbour."""
        return self.counts[0] / self.n_held_out, self.counts[1] / self.n_held_out

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
        thresholds = np.unique(sign * np.concatenate(scores))
        missed = np.searchsorted(np.sort(sign * likely), thresholds, side="left")
        below = np.searchsorted(np.sort(sign * unlikely), thresholds, side="left")
        false_negatives = np.append(missed / self.n_held_out, 1.0)
        false_positives = np.append(1.0 - below / self.n_held_out, 0.0)
        return false_positives, false_negatives
