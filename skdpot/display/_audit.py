"""The plot of an audit."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ._style import COLOURS, axes_for

# False positive rates at which the bound of a claim is drawn: even, and dense near 0.
_GRID = np.unique(np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 400), np.linspace(0, 1, 401)]))


@dataclass(eq=False, repr=False)
class AuditDisplay:
    """Error rates of an attack on a mechanism, against those that a privacy claim allows.

    An attacker sees one output and guesses from which of two neighbouring data sets it came. There
    are two kinds of errors. If the mechanism is (epsilon, delta)-differentially private, no attack
    is below the curve of :func:`trade_off_bound`. The plot shows outputs for two data sets that
    the auditor chose; it is sensitive only if these are. Create it with :meth:`from_result`.

    Parameters
    ----------
    false_positive_rates, false_negative_rates : ndarray
        Counted error rates of the attacks that use a threshold on the scores.
    event_bounds : tuple of two float
        Upper bounds of both error rates of the attack chosen beforehand.
    epsilon_lower : float
        The proved lower bound.
    delta : float
        The other privacy parameter.
    confidence : float
        Probability that the bounds hold.
    claimed_epsilon : float, default=None
        A claim to compare with.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        The figure of these axes.
    line_ : matplotlib Line2D
        The counted error rates.
    event_ : matplotlib Line2D
        A point: the upper bounds of the attack chosen beforehand.
    bound_ : matplotlib Line2D
        The proved bound.
    claim_ : matplotlib PolyCollection or None
        The region that the claim excludes; None without a claim.

    See Also
    --------
    skdpot.privacy.audit.audit : Attacks a mechanism.
    FrontierDisplay : Plots scores against epsilon.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.display import AuditDisplay
    >>> from skdpot.privacy.audit import audit
    >>> def release(bit, n_trials, random_state):
    ...     return bit ^ (np.random.default_rng(random_state).random(n_trials) < 0.25)
    >>> result = audit(release, True, False, vectorized=True, random_state=0)
    >>> display = AuditDisplay.from_result(result, claimed_epsilon=0.5)
    >>> display.ax_.get_xlabel()
    'False positive rate'
    """

    false_positive_rates: np.ndarray
    false_negative_rates: np.ndarray
    _: KW_ONLY
    event_bounds: tuple[float, float]
    epsilon_lower: float
    delta: float
    confidence: float
    claimed_epsilon: float | None = None

    @classmethod
    def from_result(
        cls, result: Any, *, ax: Any = None, claimed_epsilon: float | None = None
    ) -> "AuditDisplay":
        """Plot the result of an audit.

        Parameters
        ----------
        result : AuditResult
            Result of :func:`skdpot.privacy.audit.audit`.
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        claimed_epsilon : float, default=None
            A claim to compare with.

        Returns
        -------
        AuditDisplay
            The plot.

        Raises
        ------
        TypeError
            If the result is from another kind of audit, without error rates.
        """
        if not hasattr(result, "trade_off"):
            raise TypeError(
                "result must be what skdpot.privacy.audit.audit returned, got an object of "
                f"{type(result)}."
            )
        likely, unlikely = result.rate_bounds
        display = cls(
            *result.trade_off(),
            event_bounds=(unlikely, 1.0 - likely),
            epsilon_lower=result.epsilon_lower,
            delta=result.delta,
            confidence=result.confidence,
            claimed_epsilon=claimed_epsilon,
        )
        return display.plot(ax)

    def plot(self, ax: Any = None, **line_kw: Any) -> "AuditDisplay":
        """Plot it again.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        **line_kw : dict
            Options of the line of error rates.

        Returns
        -------
        AuditDisplay
            This object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If the claim is negative.
        """
        if self.claimed_epsilon is not None and not self.claimed_epsilon >= 0:
            raise ValueError(f"claimed_epsilon must be at least 0, got {self.claimed_epsilon!r}.")
        ax, self.claim_ = axes_for(ax), None
        if self.claimed_epsilon is not None:
            bound = trade_off_bound(_GRID, self.claimed_epsilon, self.delta)
            label = f"impossible if $\\varepsilon$ = {self.claimed_epsilon:.3g}"
            style = {"alpha": 0.25, "color": COLOURS[1], "linewidth": 0.0, "label": label}
            self.claim_ = ax.fill_between(_GRID, 0.0, bound, **style)
        options = {"color": COLOURS[0], "label": "attack, as counted"} | line_kw
        (self.line_,) = ax.plot(self.false_positive_rates, self.false_negative_rates, **options)
        label = f"at most, with {self.confidence:.3g} confidence"
        (self.event_,) = ax.plot(*self.event_bounds, "o", color="black", label=label)
        proven = trade_off_bound(_GRID, self.epsilon_lower, self.delta)
        label = f"proven: $\\varepsilon \\geq$ {self.epsilon_lower:.3g}"
        (self.bound_,) = ax.plot(_GRID, proven, "--", color="black", label=label)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.set(xlabel="False positive rate", ylabel="False negative rate")
        ax.legend(loc="upper right", fontsize="small", title=f"$\\delta$ = {self.delta:.3g}")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def trade_off_bound(false_positive_rates: Any, epsilon: float, delta: float) -> np.ndarray:
    """Return the least false negative rate of any attack on a private mechanism.

    P. Kairouz, S. Oh, P. Viswanath, "The Composition Theorem for Differential Privacy", IEEE
    Transactions on Information Theory 63, 2017.
    """
    rates = np.asarray(false_positive_rates, dtype=np.float64)
    steep = 1.0 - delta - math.exp(min(epsilon, 700.0)) * rates
    flat = math.exp(-epsilon) * (1.0 - delta - rates)
    return np.maximum(0.0, np.maximum(steep, flat))
