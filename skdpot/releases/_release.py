"""The interface of every release, and of several releases for one budget."""

from abc import ABC, abstractmethod
from typing import Any

from skdpot.privacy.events import DpEvent
from skdpot.privacy.preview import HasExpectedErrors
from skdpot.privacy.random import NoiseSource


class Release(HasExpectedErrors, ABC):
    """A release of private values, planned from public quantities only.

    The event is charged first; then it is run, once. The sensitivity is computed by a function of
    :mod:`skdpot.privacy.sensitivity`, which states the proof.
    """

    @property
    @abstractmethod
    def event(self) -> DpEvent | None:
        """Return the event that is charged before the release is run; None without a guarantee."""

    @abstractmethod
    def sensitivity(self, relation: str) -> float:
        """Return the distance of neighbours in the norm that noise is scaled to, rounded up."""

    @abstractmethod
    def run(self, values: Any, source: NoiseSource) -> Any:
        """Release private values, which each release defines; the result may be published."""


class NoisyRelease(Release):
    """A release that takes its noise, event and sensitivity from another release.

    A subclass sets ``_noise``.
    """

    _noise: Any

    @property
    def event(self) -> DpEvent | None:
        return self._noise.event

    def sensitivity(self, relation: str) -> float:
        return self._noise.sensitivity(relation)


class ReleaseSeries(HasExpectedErrors, ABC):
    """Several releases for one budget, made in turn from one source of noise.

    Each is a :class:`Release`, and may depend on earlier releases.
    """

    @property
    @abstractmethod
    def event(self) -> DpEvent | None:
        """Return the event charged for all before the first run; None without a guarantee."""

    @abstractmethod
    def run(self, *args: Any, **options: Any) -> Any:
        """Run the next release, once; subclasses define the arguments."""
