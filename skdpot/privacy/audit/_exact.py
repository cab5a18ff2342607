"""The exact privacy loss of discrete mechanisms with known weights."""

import decimal
from typing import Any, NamedTuple

import numpy as np

from skdpot.privacy.mechanisms import exceeds_exp


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
        raise ValueError("weights must be a two-dimensional array of non-negative integers.")
    totals = {sum(int(weight) for weight in row) for row in weights}
    if len(totals) != 1 or totals == {0}:
        raise ValueError("weights must have the same sum in every row, and not zero.")
    worst = ExactAudit(0.0, 0, 0, 0, 1, 1)
    for output, column in enumerate(weights.T):
        most, least = int(column.argmax()), int(column.argmin())
        numerator, denominator = int(column[most]), int(column[least])
        if numerator * worst.denominator > worst.numerator * denominator:
            worst = ExactAudit(0.0, output, most, least, numerator, denominator)
    return worst._replace(epsilon=_log_ratio(worst.numerator, worst.denominator))


def _log_ratio(numerator: int, denominator: int) -> float:
    if denominator == 0:
        return float("inf")
    context = decimal.Context(prec=60)
    ratio = context.divide(decimal.Decimal(numerator), decimal.Decimal(denominator))
    return float(context.ln(ratio))
