"""The worst that an adaptive analyst can do within a rule, computed exactly for small releases.

She chooses among binary releases: randomised response, whose privacy loss is plus or minus a, and a
failure, which tells everything with some probability. After every answer she decides, knowing her
privacy loss so far, what to ask next, among what the rule admits, or to stop. What counts in the
end is ``E[(1 - exp(epsilon - L))_+]`` over her losses L: the delta that goes with epsilon.
"""

import math
from functools import lru_cache


def worst_delta(epsilon, losses, failures, admits, most):
    """Return the largest delta over all adaptive strategies.

    Parameters
    ----------
    epsilon : float
        At which delta is wanted.
    losses : sequence of float
        Epsilons of the randomised responses on offer.
    failures : sequence of float
        Probabilities of the failures on offer.
    admits : callable
        Takes a tuple of counts, of the responses and then of the failures, and tells whether the
        rule admits a history of these.
    most : int
        No history is longer.

    Returns
    -------
    float
        By dynamic programming over counts and losses.
    """
    n_losses = len(losses)
    admits = lru_cache(None)(admits)

    def one_more(counts, kind):
        return counts[:kind] + (counts[kind] + 1,) + counts[kind + 1 :]

    @lru_cache(None)
    def value(counts, signs):
        """Return the value of a history with these counts, and sums of signs of its losses."""
        loss = sum(sign * size for sign, size in zip(signs, losses, strict=True))
        best = max(-math.expm1(epsilon - loss), 0.0)
        if sum(counts) == most:
            return best
        for kind in range(len(counts)):
            more = one_more(counts, kind)
            if not admits(more):
                continue
            if kind >= n_losses:
                failure = failures[kind - n_losses]
                best = max(best, failure + (1 - failure) * value(more, signs))
                continue
            up = 1 / (1 + math.exp(-losses[kind]))
            raised = signs[:kind] + (signs[kind] + 1,) + signs[kind + 1 :]
            lowered = signs[:kind] + (signs[kind] - 1,) + signs[kind + 1 :]
            best = max(best, up * value(more, raised) + (1 - up) * value(more, lowered))
        return best

    return value((0,) * (n_losses + len(failures)), (0,) * n_losses)
