"""Events: frozen descriptions of releases, from which prices are computed.

The vocabulary has the classes of ``dp_accounting``, which can be imported from here, and four
events of skdpot: releases known only by their privacy parameters (pure and approximate), sums of
centred contributions, and plans declared as a whole.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)

from skdpot.privacy.checks import real_number


@dataclass(frozen=True)
class PureDpEvent(DpEvent):
    """A release that is epsilon-differentially private, with nothing else known about it.

    It costs as much as randomised response, which no such release exceeds. Laplace noise with the
    same epsilon costs less, and its price would be wrong here.

    Parameters
    ----------
    epsilon : float
        Privacy parameter, non-negative and finite.

    Examples
    --------
    >>> from skdpot.privacy import PureDpEvent
    >>> PureDpEvent(0.5)
    PureDpEvent(epsilon=0.5)
    """

    epsilon: float


@dataclass(frozen=True)
class ApproximateDpEvent(DpEvent):
    """A release that is (epsilon, delta)-differentially private, with nothing else known about it.

    Parameters
    ----------
    epsilon : float
        Privacy parameter, non-negative and finite.
    delta : float
        From 0 to less than 1.

    Examples
    --------
    >>> from skdpot.privacy import ApproximateDpEvent
    >>> ApproximateDpEvent(0.5, 1e-6)
    ApproximateDpEvent(epsilon=0.5, delta=1e-06)
    """

    epsilon: float
    delta: float


class CentredGaussianDpEvent(GaussianDpEvent):
    """Gaussian noise on a sum of centred vectors of bounded norm, one per record.

    An added record moves such a sum by at most half as much as a replaced one. This makes a Poisson
    sample cheaper under "replace_one" (:ref:`centred-sums`). All other prices are those of a
    `GaussianDpEvent`, which says nothing about contributions.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the l2 sensitivity of the sum: over C under
        "add_remove", and over 2 C under "replace_one", where C bounds the norms.

    Examples
    --------
    >>> from skdpot.privacy import CentredGaussianDpEvent, GaussianDpEvent, PoissonSampledDpEvent
    >>> from skdpot.privacy import SelfComposedDpEvent, plan_epsilon
    >>> for noise in (GaussianDpEvent(1.0), CentredGaussianDpEvent(1.0)):
    ...     steps = SelfComposedDpEvent(PoissonSampledDpEvent(0.02, noise), 500)
    ...     print(round(plan_epsilon(steps, 1e-6, neighbouring="replace_one"), 2))
    3.71
    2.0
    """

    __slots__ = ()


@dataclass(frozen=True)
class PlannedDpEvent(DpEvent):
    """A release, or a series of releases, declared beforehand as a whole and priced at a delta.

    Where pairs (epsilon, delta) are added up, the plan counts with this delta and the smallest
    epsilon for it.

    Parameters
    ----------
    event : DpEvent
        The event of the whole plan.
    delta : float
        Above 0 and below 1.

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent, PlannedDpEvent, SelfComposedDpEvent
    >>> plan = PlannedDpEvent(SelfComposedDpEvent(GaussianDpEvent(10.0), 20), delta=1e-6)
    >>> plan.delta
    1e-06
    """

    event: DpEvent
    delta: float


# Events that a ledger can record and read back, with their fields.
_FIELDS: dict[type, tuple[str, ...]] = {
    ApproximateDpEvent: ("epsilon", "delta"),
    CentredGaussianDpEvent: ("noise_multiplier",),
    ComposedDpEvent: ("events",),
    GaussianDpEvent: ("noise_multiplier",),
    LaplaceDpEvent: ("noise_multiplier",),
    NoOpDpEvent: (),
    PlannedDpEvent: ("event", "delta"),
    PoissonSampledDpEvent: ("sampling_probability", "event"),
    PureDpEvent: ("epsilon",),
    SelfComposedDpEvent: ("event", "count"),
    ZCDpEvent: ("rho", "xi"),
}
_CLASSES = {kind.__name__: kind for kind in _FIELDS}


def check_event(event: Any) -> DpEvent:
    """Return an immutable copy of a known event, with plain numbers, or raise.

    It is a TypeError if a part is no event that can be recorded and priced, and a ValueError if a
    parameter is out of its range.

    Examples
    --------
    >>> from skdpot.privacy.events import PureDpEvent, check_event
    >>> check_event(PureDpEvent(-1.0))
    Traceback (most recent call last):
    ValueError: epsilon of a PureDpEvent must be from 0 to 1e100, got -1.0.
    """
    # A derived class may mean something else, which no rule here knows.
    kind = type(event)
    if kind not in _FIELDS:
        raise TypeError(
            f"cannot price a {kind.__name__}: an event must be one of "
            f"{', '.join(sorted(_CLASSES))}. Record a release of another kind as "
            "PureDpEvent(epsilon) or ApproximateDpEvent(epsilon, delta)."
        )
    plain: dict[str, Any] = {}
    for field in _FIELDS[kind]:
        value = getattr(event, field)
        if field == "event":
            plain[field] = check_event(value)
        elif field == "events":
            plain[field] = [check_event(part) for part in value]
        else:
            holds, said = _RULES[field]
            number = real_number(value)
            if not (math.isfinite(number) and holds(number)):
                raise ValueError(f"{field} of a {kind.__name__} must be {said}, got {value!r}.")
            # An integer keeps all its digits, which a double may not hold.
            plain[field] = int(value) if isinstance(value, Integral) else number
    if kind is PlannedDpEvent and plain["delta"] == 0:
        raise ValueError("delta of a PlannedDpEvent must be above 0.")
    return kind(**plain)


def leaves(event: Any, *, into_plans: bool = True) -> Iterator[tuple[Any, int]]:
    """Yield basic and sampled events with their counts, with plain numbers.

    Without `into_plans`, a plan is yielded as a whole. Raises as `check_event` does.
    """
    return _leaves(check_event(event), 1, into_plans)


def _leaves(event: Any, count: int, into_plans: bool) -> Iterator[tuple[Any, int]]:
    match event:
        # Nothing is released, so that nothing has a price.
        case NoOpDpEvent() | SelfComposedDpEvent(count=0):
            return
        case PlannedDpEvent() if into_plans:
            yield from _leaves(event.event, count, into_plans)
        case SelfComposedDpEvent():
            yield from _leaves(event.event, count * int(event.count), into_plans)
        case ComposedDpEvent():
            for part in event.events:
                yield from _leaves(part, count, into_plans)
        case _:
            # Also an event that no rule knows: what prices it raises.
            yield event, count


def in_words(event: DpEvent) -> str:
    """Return what an event releases, and with which noise or epsilon.

    More than three kinds of noise are only counted.

    Examples
    --------
    >>> from skdpot.privacy.events import GaussianDpEvent, PlannedDpEvent, PureDpEvent
    >>> from skdpot.privacy.events import SelfComposedDpEvent, in_words
    >>> in_words(PureDpEvent(0.5))
    'a release with epsilon 0.5'
    >>> in_words(PlannedDpEvent(SelfComposedDpEvent(GaussianDpEvent(10.0), 20), delta=1e-6))
    '20 releases with Gaussian noise of multiplier 10'
    """
    counts: Counter[str] = Counter()
    for leaf, count in leaves(event):
        counts[_noise_in_words(leaf)] += count
    if len(counts) > 3:
        return f"{counts.total():,} releases"
    kinds = [
        f"{'a release' if count == 1 else f'{count:,} releases'} with {noise}"
        for noise, count in counts.items()
    ]
    return ", and ".join(kinds) or "no release"


def _noise_in_words(leaf: Any) -> str:
    match leaf:
        case PureDpEvent():
            return f"epsilon {leaf.epsilon:g}"
        case ApproximateDpEvent():
            return f"epsilon {leaf.epsilon:g} and delta {leaf.delta:g}"
        case GaussianDpEvent():
            return f"Gaussian noise of multiplier {leaf.noise_multiplier:g}"
        case LaplaceDpEvent():
            return f"Laplace noise of multiplier {leaf.noise_multiplier:g}"
        case PoissonSampledDpEvent():
            noise = " and ".join(_noise_in_words(part) for part, _ in leaves(leaf.event))
            return f"{noise}, on a sample of share {leaf.sampling_probability:g}"
    return f"zero-concentrated privacy of rho {leaf.rho:g}"


# The condition on each number, and its wording in errors.
_RULES: dict[str, tuple[Any, str]] = {
    # Squares of numbers in these ranges are doubles.
    "epsilon": (lambda value: 0 <= value <= 1e100, "from 0 to 1e100"),
    "rho": (lambda value: 0 <= value <= 1e100, "from 0 to 1e100"),
    "xi": (lambda value: 0 <= value <= 1e100, "from 0 to 1e100"),
    "delta": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "noise_multiplier": (lambda value: 1e-50 <= value <= 1e100, "from 1e-50 to 1e100"),
    "sampling_probability": (lambda value: 0 <= value <= 1, "from 0 to 1"),
    "count": (
        lambda value: 0 <= value < 2**63 and value == int(value),
        "a non-negative integer below 2**63",
    ),
}


def event_to_json(event: DpEvent) -> str:
    """Return an event as text, from which `event_from_json` makes an equal event.

    Keys are sorted, and numbers are written with all their digits.

    Examples
    --------
    >>> from skdpot.privacy.events import GaussianDpEvent, event_to_json
    >>> event_to_json(GaussianDpEvent(2.0))
    '{"GaussianDpEvent": {"noise_multiplier": 2.0}}'
    """
    return json.dumps(
        check_event(event),
        default=lambda part: {
            type(part).__name__: {field: getattr(part, field) for field in _FIELDS[type(part)]}
        },
        sort_keys=True,
    )


def event_from_json(text: str) -> DpEvent:
    """Return the event in a text of `event_to_json`; raise ValueError if there is none.

    Examples
    --------
    >>> from skdpot.privacy.events import event_from_json
    >>> event_from_json('{"PureDpEvent": {"epsilon": 0.5}}')
    PureDpEvent(epsilon=0.5)
    """
    try:
        # Fields are dictionaries, too, and stay what they are.
        event = json.loads(
            text,
            object_hook=lambda found: next(
                (_CLASSES[name](**of) for name, of in found.items() if name in _CLASSES), found
            ),
        )
        return check_event(event)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no recorded event: {text[:80]!r}.") from error
