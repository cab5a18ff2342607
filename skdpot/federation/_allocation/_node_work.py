"""The numbers of a node in one session: its state, its noise and its last answer."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from skdpot.releases import MessageReleases, quiet
from skdpot.transport.consensus import Side, SideState, nearest_amounts

from ._allocation_messages import Announcement


@dataclass(eq=False, repr=False)
class NodeWork:
    """A node's noise and state in one session."""

    noise: MessageReleases | None
    state: SideState | None = None
    sent: np.ndarray = field(default_factory=lambda: np.empty(0))
    n_rounds: int = 0
    asked: str = ""

    def wanted(
        self,
        announcement: Announcement,
        received: np.ndarray,
        error: Callable[[SideState, float], float],
    ) -> np.ndarray:
        """Return the amounts to send, with noise if the node has a budget, within its bounds.

        `error` returns a bound on the solver's error, which the noise must also cover.
        """
        state, eta = self.state, float(announcement.eta)
        assert state is not None
        relaxation, shift = float(announcement.relaxation), float(announcement.shift)
        if self.noise is None:
            wanted = state.answer(self.sent, received, eta, relaxation, shift)
        else:
            with quiet():
                wanted = state.answer(self.sent, received, eta, relaxation, shift)
            wanted = self.noise.run(wanted, eta, error=error(state, eta))
        return nearest_amounts(state.side, wanted)


def only_side(bounds: tuple[float, float], n_edges: int) -> Side:
    """Return a side of a network that consists of one node."""
    return Side(
        indptr=np.array([0, n_edges]),
        neighbours=np.arange(n_edges),
        positions=np.arange(n_edges, dtype=np.int32),
        lower=np.array([bounds[0]]),
        upper=np.array([bounds[1]]),
    )


def digest_of_round(announcement: Announcement, received: np.ndarray) -> str:
    """Return a digest of the announcement and of the incoming amounts of a round."""
    rates = announcement.eta, announcement.shift, announcement.relaxation
    numbers = np.array([announcement.round, *rates, *received], dtype=np.float64)
    return hashlib.sha256(numbers.tobytes()).hexdigest()
