"""The interface of every release, and of several for one budget."""

from abc import ABC, abstractmethod
from typing import Any

from skdpot.privacy.events import DpEvent
from skdpot.privacy.preview import HasExpectedErrors
from skdpot.privacy.random import NoiseSource


class Release(HasExpectedErrors, ABC):
    """A release of private values, planned from public quantities alone.

    The event is charged first; then it is run, once. The sensitivity is computed by a function of
    :mod:`skdpot.privacy.sensitivity`, which states the proof.
    """

    @property
    @abstractmethod
    def event(self) -> DpEvent | None:
        """Return what is charged before the release is run; None where nothing is guaranteed."""

    @abstractmethod
    def sensitivity(self, relation: str) -> float:
        """Return by how much neighbours differ, in the norm that the noise is scaled to.

        Parameters
        ----------
        relation : {"replace_one", "add_remove"}
            The neighbouring relation.

        Returns
        -------
        float
            Rounded up.
        """

    @abstractmethod
    def run(self, values: Any, source: NoiseSource) -> Any:
        """Release private values.

        Parameters
        ----------
        values : Any
            Private; what they are, each release says.
        source : NoiseSource
            Where the noise comes from.

        Returns
        -------
        Any
            What may be published.
        """


class NoisyRelease(Release):
    """A release to which another one adds the noise, and whose event and sensitivity are its own.

    A subclass sets ``_noise``.
    """

    _noise: Any

    @property
    def event(self) -> DpEvent | None:
        return self._noise.event

    def sensitivity(self, relation: str) -> float:
        return self._noise.sensitivity(relation)


class ReleaseSeries(HasExpectedErrors, ABC):
    """Several releases for one budget, made one after another from one source of noise.

    Each is a :class:`Release`, and may depend on what was released before it.
    """

    @property
    @abstractmethod
    def event(self) -> DpEvent | None:
        """Return what is charged for all before the first is run; None for no guarantee."""

    @abstractmethod
    def run(self, *args: Any, **options: Any) -> Any:
        """Run the next release, once; subclasses say what it takes."""
