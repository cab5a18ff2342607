"""Privacy filters: the total cost of many releases, and whether a budget admits another one.

Later releases are chosen after earlier ones are seen, so the rule that admits a charge must hold
under fully adaptive composition (:ref:`proof-filters`). Two rules do, and a ledger follows one of
them from its first charge on. Choosing the better one afterwards would not be sound.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache, partial
from itertools import starmap, zip_longest
from typing import Any, NamedTuple

import numpy as np

from skdpot.privacy import accounting
from skdpot.privacy import events as ev

Pair = tuple[float, float]


class Total(NamedTuple):
    """The sum of the costs of releases, in every currency.

    Attributes
    ----------
    epsilon, delta : Fraction or float
        Sum of the pairs (epsilon, delta) that releases were sold as; exact if finite.
    pure : Fraction or float
        Largest privacy loss that is possible where no release fails.
    failure : Fraction
        Probability that a release violates the bounds of the other currencies.
    squared_mu : float
        Squared parameter of Gaussian differential privacy; sums are rounded up.
    renyi : tuple of float
        Renyi divergences at the orders of the ledger; sums are rounded up.
    """

    epsilon: Fraction | float = Fraction(0)
    delta: Fraction | float = Fraction(0)
    pure: Fraction | float = Fraction(0)
    failure: Fraction = Fraction(0)
    squared_mu: float = 0.0
    renyi: tuple[float, ...] = ()

    @property
    def amounts(self) -> tuple:
        """Return the amount in every currency, each order of divergences for itself."""
        return (*self[:-1], *self.renyi)

    @classmethod
    def of(cls, amounts: Iterable[Any]) -> "Total":
        """Return the total with these amounts."""
        epsilon, delta, pure, failure, squared_mu, *renyi = amounts
        return cls(epsilon, delta, pure, failure, squared_mu, tuple(renyi))

    def plus(self, other: "Total") -> "Total":
        """Return the sum of two totals."""
        # A total of nothing has no divergences.
        return Total.of(starmap(_sum, zip_longest(self.amounts, other.amounts, fillvalue=0.0)))


def _sum(a: Any, b: Any, most_bits: int = 4096, finest: int = 2**2048) -> Any:
    """Return a sum in one currency: exact for exact terms, else rounded up."""
    if not (isinstance(a, Fraction) and isinstance(b, Fraction)):
        return accounting.sum_rounded_up(a, b)
    total = a + b
    # Denominators multiply: without a limit, each of many charges would take longer.
    if total.denominator.bit_length() <= most_bits:
        return total
    return Fraction(math.ceil(total * finest), finest)


def stated_epsilon_delta(event: ev.DpEvent, neighbouring: str) -> tuple[float, float] | None:
    """Return the (epsilon, delta) that an event states itself, None if it states no delta.

    The event counts as this pair where pairs are added up.

    Examples
    --------
    >>> from skdpot.privacy.filters import stated_epsilon_delta
    >>> from skdpot.privacy.events import ApproximateDpEvent, GaussianDpEvent, LaplaceDpEvent
    >>> stated_epsilon_delta(LaplaceDpEvent(2.0), "add_remove")
    (0.5, 0.0)
    >>> stated_epsilon_delta(ApproximateDpEvent(0.5, 1e-6), "add_remove")
    (0.5, 1e-06)
    >>> stated_epsilon_delta(GaussianDpEvent(2.0), "add_remove")
    """
    pair = _exact_pair(event, partial(accounting.plan_epsilon, neighbouring=neighbouring))
    if pair is None:
        return None
    epsilon, delta = map(accounting.rounded_up, pair)
    return epsilon, delta


def _exact_pair(event: ev.DpEvent, plan_price: Callable) -> tuple[Fraction, Fraction] | None:
    """Return the exact pair of an event, given the epsilon of a plan as a function of its delta."""
    epsilon = delta = Fraction(0)
    for leaf, count in ev.leaves(event, into_plans=False):
        if isinstance(leaf, ev.PlannedDpEvent):
            price = accounting.as_written(plan_price(leaf.event, leaf.delta))
            failure = accounting.as_written(leaf.delta)
        else:
            price, failure = accounting.exact_loss(leaf), accounting.failure_delta(leaf)
        # It states no epsilon that is finite: noise without a plan.
        if not isinstance(price, Fraction):
            return None
        epsilon, delta = epsilon + count * price, delta + count * failure
    return epsilon, delta


@lru_cache(maxsize=2**15)
def charged(event: str, recorded: tuple | None) -> tuple[ev.DpEvent, Pair | None]:
    """Return a recorded event, and the pair that its charge counts as.

    Its delta is at least that of the event: version 0.1.0 recorded none for Poisson samples of
    releases that may fail.

    Examples
    --------
    >>> from skdpot.privacy.events import ApproximateDpEvent, PoissonSampledDpEvent, event_to_json
    >>> from skdpot.privacy.filters import charged
    >>> sampled = event_to_json(PoissonSampledDpEvent(0.5, ApproximateDpEvent(0.0, 1e-6)))
    >>> charged(sampled, (0.0, 0.0))[1]
    (0.0, 5e-07)
    """
    plain = ev.event_from_json(event)
    if recorded is None:
        return plain, None
    epsilon, delta = (float(number) for number in recorded)
    if not (epsilon >= 0 and delta >= 0):
        raise ValueError("no such pair")
    # The epsilon of a plan is slow to compute, and no delta depends on it.
    exact = _exact_pair(plain, _no_price)
    min_delta = 0.0 if exact is None else accounting.rounded_up(exact[1])
    return plain, (epsilon, max(delta, min_delta))


def _no_price(event: ev.DpEvent, delta: float) -> float:
    """Return 0 for a plan with a finite epsilon at a delta, else infinity."""
    return 0.0 if accounting.failure_delta(event) <= accounting.as_written(delta) else math.inf


class PairFilter:
    """Admits releases while the sum of their pairs (epsilon, delta) is within the budget.

    Parameters
    ----------
    epsilon, delta : float
        The budget.

    Examples
    --------
    >>> from skdpot.privacy.filters import PairFilter
    >>> from skdpot.privacy.events import PureDpEvent
    >>> rule = PairFilter(0.3, 0.0)
    >>> total = rule.price(PureDpEvent(0.1), (0.1, 0.0))
    >>> thrice = total.plus(total).plus(total)
    >>> rule.admits(thrice), rule.admits(thrice.plus(total))
    (True, False)
    """

    name = "the sum of (epsilon, delta)"
    slack = 0.0

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta

    def price(self, event: ev.DpEvent, pair: Pair | None) -> Total:
        """Return the price of one release, given the pair that it was sold as."""
        if pair is None:
            return Total(epsilon=float("inf"))
        # The pair of a plan is slow to compute, and therefore that of the record.
        return Total(*(_exact_pair(event, lambda *_: math.inf) or map(accounting.as_written, pair)))

    def admits(self, total: Total) -> bool:
        """Tell whether releases with this total are within the budget."""
        if math.isinf(self.epsilon):
            return True
        # Exactly, so that ten times 0.1 are 1, and not less or more.
        epsilon, delta = accounting.as_written(self.epsilon), accounting.as_written(self.delta)
        return bool(total.epsilon <= epsilon and total.delta <= delta)

    def spent(self, total: Total) -> tuple[float, float]:
        """Return the part of the budget that releases have used."""
        return accounting.rounded_up(total.epsilon), accounting.rounded_up(total.delta)

    def left(self, total: Total) -> tuple[float, float]:
        """Return the largest (epsilon, delta) of one further release."""
        return _difference(self.epsilon, total.epsilon), self.delta_left(total)

    def delta_left(self, total: Total) -> float:
        """Return the largest delta of one further release."""
        return _difference(self.delta, total.delta)


class MixtureFilter:
    """Admits releases by a mixture of bounds on Renyi divergences and Gaussian parameters.

    The part `slack` of delta pays for the tail of the privacy loss; the rest of delta pays for
    releases that are private only up to a delta of their own (:ref:`proof-filters`). A plan of
    sampled noise is such a release: it counts as the pair that it was sold as.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    slack : float
        Above 0, at most `delta`.

    Examples
    --------
    >>> from skdpot.privacy.filters import MixtureFilter, Total
    >>> from skdpot.privacy.events import GaussianDpEvent
    >>> rule = MixtureFilter(1.0, 1e-5, slack=1e-5)
    >>> price = rule.price(GaussianDpEvent(40.0), None)
    >>> total, admitted = price, 0
    >>> while rule.admits(total):
    ...     total, admitted = total.plus(price), admitted + 1
    >>> admitted  # 115 if they had been declared as one plan
    106
    """

    name = "Renyi and Gaussian privacy at fixed orders"

    def __init__(self, epsilon: float, delta: float, slack: float) -> None:
        self.epsilon, self.delta, self.slack = epsilon, delta, slack
        self._for_failures = accounting.as_written(delta) - accounting.as_written(slack)
        # An unlimited budget admits every charge; its orders are for reports only.
        scale = np.log(1 / slack) / (epsilon if math.isfinite(epsilon) else 1.0)
        # Multiples of log(1 / slack) / epsilon above 1. The best order for a history near the
        # budget is among them, for all mechanisms.
        self.orders = 1 + scale * np.array([1.2, 1.7, 2.4, 4.0])
        # Half of the slack is for the Gaussian term of the mixture, and the terms of all orders
        # divide the rest. The shares are fixed: a mixture that is chosen after the fact is no
        # filter.
        self._for_gaussian = slack / 2
        self._log_weight = np.log(slack / 2 / len(self.orders))
        # Excess losses at which the bound is compared with the allowed loss. The step between two
        # of them costs the same relative share of the slack.
        self._excess = np.concatenate([[0.0], np.geomspace(1e-9, 800.0, 2800)])

    def price(self, event: ev.DpEvent, pair: Pair | None) -> Total:
        """Return the price of one release, given the pair that it was sold as."""
        # Its other prices are those without sampling, and much larger.
        if pair is not None and _is_planned_sample(event):
            event = ev.ApproximateDpEvent(*pair)
        renyi = accounting.renyi_divergence(event, self.orders) * accounting.RAISED
        return Total(
            pure=accounting.exact_pure(event),
            failure=accounting.failure_delta(event),
            squared_mu=accounting.squared_gaussian_mu(event) * accounting.RAISED,
            renyi=tuple(renyi.tolist()),
        )

    def admits(self, total: Total) -> bool:
        """Tell whether releases with this total are within the budget."""
        if math.isinf(self.epsilon):
            return True
        # Releases that may fail are paid from what the slack leaves of delta.
        if total.failure > self._for_failures:
            return False
        # With probability 1 - slack the privacy loss stays below epsilon, if one of these holds.
        if total.pure <= accounting.as_written(self.epsilon):
            return True
        if math.isfinite(total.squared_mu):
            tail = accounting.gaussian_delta(self.epsilon, math.sqrt(total.squared_mu))
            if tail * accounting.RAISED <= self._for_gaussian:
                return True
        return self._renyi_bounds_loss(total, self.epsilon)

    def spent(self, total: Total) -> tuple[float, float]:
        """Return the smallest epsilon that would have admitted the releases, and their delta."""
        failure = accounting.rounded_up(total.failure + accounting.as_written(self.slack))
        return self._smallest_epsilon(total), failure

    def left(self, total: Total) -> tuple[float, float]:
        """Return the largest epsilon of one further pure release, and the remaining delta."""
        delta = self.delta_left(total)
        if not math.isfinite(self.epsilon):
            return self.epsilon, delta

        def admits(epsilon: float) -> bool:
            # No pure release is worse than one of which nothing else is known.
            return self.admits(total.plus(self.price(ev.PureDpEvent(epsilon), None)))

        most = self.epsilon if admits(self.epsilon) else _bisect(admits, self.epsilon)[0]
        return most, delta

    def delta_left(self, total: Total) -> float:
        """Return the largest delta of one further release that is private up to a delta only."""
        return _difference(self._for_failures, total.failure)

    def _renyi_bounds_loss(self, total: Total, epsilon: float) -> bool:
        # The mixture must be at least as large as the term of the excess loss, at every excess.
        # Both grow with the excess, so the left end of each interval is compared with its right
        # end.
        divergences = np.array(total.renyi or [0.0] * len(self.orders))
        exponents = (self.orders - 1) * (epsilon + self._excess[:-1, None] - divergences)
        mixture = np.exp(np.minimum(exponents + self._log_weight, 1.0)).sum(axis=1)
        return bool((mixture >= -np.expm1(-self._excess[1:]) * accounting.RAISED).all())

    def _smallest_epsilon(self, total: Total) -> float:
        candidates = [accounting.rounded_up(total.pure)]
        if total.squared_mu < math.inf:
            mu = math.sqrt(total.squared_mu)
            delta = self._for_gaussian / accounting.RAISED
            candidates.append(accounting.gaussian_epsilon(delta, mu))
        # An admitted total costs at most the budget, also if the search below finds more.
        if self.admits(total):
            candidates.append(self.epsilon)
        # Beyond, no bound of the mixture is of use.
        upper = min(*candidates, 2.0**40)
        if self._renyi_bounds_loss(total, upper):
            _, smallest = _bisect(lambda e: not self._renyi_bounds_loss(total, e), upper)
            candidates.append(smallest)
        return min(candidates)


def _difference(budget: Fraction | float, amount: Fraction | float) -> float:
    """Return the rest of a budget after an amount, rounded down."""
    if not math.isfinite(budget):
        return float(budget)
    left = accounting.as_written(budget) - amount
    return accounting.rounded_down(left) if left > 0 else 0.0


def _is_planned_sample(event: ev.DpEvent) -> bool:
    """Tell whether an event names a pair of its own, and samples what has no pure guarantee."""
    return _exact_pair(event, _no_price) is not None and any(
        isinstance(leaf, ev.PoissonSampledDpEvent) and math.isinf(accounting.pure_epsilon(leaf))
        for leaf, _ in ev.leaves(event)
    )


def _bisect(holds: Callable[[float], bool], upper: float) -> tuple[float, float]:
    """Return the ends of a short interval in which a monotone condition becomes false."""
    lower = 0.0
    # As many halvings as take 2**40 to 2**-60.
    for _ in range(100):
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if holds(middle) else (lower, middle)
    return lower, upper
