"""The interface of every release: its event, its sensitivity, and how it is run."""

from abc import ABC, abstractmethod
from typing import Any

from skdpot.privacy.events import DpEvent
from skdpot.privacy.random import NoiseSource


class Release(ABC):
    """A release of private values, planned from public quantities alone.

    The event is charged first; then it is run, once. The sensitivity is computed by a function of
    :mod:`skdpot.privacy.sensitivity`, which states the proof.
    """

    @property
    @abstractmethod
    def event(self) -> DpEvent:
        """Return what is charged before the release is run."""

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
            Private.
        source : NoiseSource
            Where the noise comes from.

        Returns
        -------
        Any
            What may be published.
        """
