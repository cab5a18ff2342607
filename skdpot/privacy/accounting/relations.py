"""Neighbouring relations, and the conversion of events from one to another.

An event describes a release under one relation, because its noise is measured in units of a
sensitivity, which depends on the relation.
"""

import math
from typing import Any

from skdpot.privacy import events as ev
from skdpot.privacy.checks import check_choice

RELATIONS = ("add_remove", "replace_one")


def check_relation(neighbouring: Any) -> None:
    """Raise unless this names a neighbouring relation."""
    check_choice("neighbouring", neighbouring, RELATIONS)


def convert_event(event: ev.DpEvent, source: str, target: str) -> ev.DpEvent:
    """Return an event under another relation than the one it holds under.

    Replacing a record is removing it and adding another, so sensitivities at most double, and
    guarantees follow the rules of groups of two records.

    Parameters
    ----------
    event : DpEvent
        The event under `source`.
    source, target : {"add_remove", "replace_one"}
        Neighbouring relations.

    Returns
    -------
    DpEvent
        The same release as it is described under `target`: multipliers are halved, (epsilon,
        delta) becomes ``(2 epsilon, (1 + exp(epsilon)) delta)``, and (xi, rho)-zero-concentrated
        privacy becomes ``(3 xi, 4 rho)``. The delta at which a plan is sold stays.

    Raises
    ------
    ValueError
        If `source` is "replace_one" and `target` is not: replacing records never changes the size
        of a data set, so nothing follows about data sets of different sizes. Or if the converted
        delta would be 1 or more.

    Notes
    -----
    For P, R, Q where P, R and R, Q are add/remove neighbours, Hölder's inequality gives
    ``D_a(P, Q) <= 2a/(2a-1) D_{2a-1}(P, R) + D_{2a}(R, Q)``. With ``D_a <= xi + rho a`` this is at
    most ``3 xi + 4 rho a``.

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent, PoissonSampledDpEvent
    >>> from skdpot.privacy.accounting import convert_event
    >>> convert_event(
    ...     PoissonSampledDpEvent(0.1, GaussianDpEvent(4.0)), "add_remove", "replace_one"
    ... )
    PoissonSampledDpEvent(sampling_probability=0.1, event=GaussianDpEvent(noise_multiplier=2.0))
    """
    event = ev.plain_event(event)
    check_relation(source)
    check_relation(target)
    if source == target:
        return event
    if source == "replace_one":
        raise ValueError(
            "an event under 'replace_one' says nothing about data sets of different sizes, so it "
            "cannot be converted to 'add_remove': describe the release by its sensitivity to a "
            "record that is added or removed."
        )
    return _for_two_records(event)


def _for_two_records(event: Any) -> ev.DpEvent:
    """Return the guarantee of an event for two records, one removed and one added."""
    match event:
        case ev.GaussianDpEvent() | ev.LaplaceDpEvent():
            # A sum of centred contributions stays one.
            return type(event)(event.noise_multiplier / 2)
        case ev.PureDpEvent():
            return ev.PureDpEvent(2 * event.epsilon)
        case ev.ApproximateDpEvent():
            return _approximate_for_two_records(event)
        case ev.ZCDpEvent():
            return ev.ZCDpEvent(4 * event.rho, 3 * event.xi)
        case ev.ComposedDpEvent():
            return ev.ComposedDpEvent([_for_two_records(part) for part in event.events])
        case ev.NoOpDpEvent():
            return event
        case ev.PlannedDpEvent():
            return ev.PlannedDpEvent(_for_two_records(event.event), event.delta)
        case ev.PoissonSampledDpEvent():
            part = _for_two_records(event.event)
            return ev.PoissonSampledDpEvent(event.sampling_probability, part)
        case ev.SelfComposedDpEvent():
            return ev.SelfComposedDpEvent(_for_two_records(event.event), event.count)
    raise TypeError(f"no rule for a {type(event).__name__}.")


def _approximate_for_two_records(event: ev.ApproximateDpEvent) -> ev.ApproximateDpEvent:
    # Beyond the largest double exp(epsilon) delta is above 1 unless delta is 0.
    growth = 1 + math.exp(event.epsilon) if event.epsilon < 709 else math.inf
    delta = growth * event.delta if event.delta else 0.0
    if delta >= 1:
        raise ValueError(
            f"{ev.in_words(event)} has no guarantee under 'replace_one': (1 + exp(epsilon)) delta "
            f"is {delta}, and must be below 1. Describe it with a smaller delta."
        )
    return ev.ApproximateDpEvent(2 * event.epsilon, delta)
