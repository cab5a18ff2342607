"""The release of a node's utility, once, after which all its rounds are free."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np

from skdpot.privacy.events import DpEvent
from skdpot.privacy.random import NoiseSource
from skdpot.releases import UTILITY_MECHANISMS, UtilityRelease
from skdpot.transport.consensus import LinearUtility, LogUtility, QuadraticUtility

# The private parameter of each family; the other parameter is public.
_PARAMETERS = {LinearUtility: "slopes", QuadraticUtility: "slopes", LogUtility: "weights"}


class InputRelease:
    """The release of a node's utility, and the utility estimated from it.

    Parameters
    ----------
    mechanism : {"input", "input_laplace"}
        Randomised response, or Laplace noise.
    utility : LinearUtility, QuadraticUtility or LogUtility
        The node's own.
    epsilon : float
        Budget of the node.
    bounds : (float, float)
        Public: the least and the largest slope or weight that there may be.
    protect : {"parameter", "node"}
        The unit of privacy.

    Raises
    ------
    ValueError
        If the utility is of another family, or not within its bounds.
    """

    def __init__(
        self, mechanism: str, utility: Any, epsilon: float, bounds: Any, protect: str
    ) -> None:
        if type(utility) not in _PARAMETERS:
            raise ValueError(
                f"mechanism={mechanism!r} is for linear, quadratic and logarithmic utilities. Use "
                "'messages' for others."
            )
        self._utility, self._name = utility, _PARAMETERS[type(utility)]
        self._values = getattr(utility, self._name)
        low, high = bounds
        if (self._values < low).any() or (self._values > high).any():
            raise ValueError("the utility is outside of its declared marginal_bounds.")
        family = type(utility).__name__
        self._facts = [mechanism, family, protect, float(epsilon), float(low), float(high)]
        self.release: UtilityRelease = UTILITY_MECHANISMS[mechanism](
            epsilon, low=low, high=high, degrees=[len(self._values)], protect=protect
        )

    @property
    def event(self) -> DpEvent:
        """Return the event of the charge."""
        return self.release.node_event(0)

    def digest(self, neighbours: Any) -> str:
        """Return a digest of the utility and of the parameters; as private as the utility."""
        facts = self._facts, [str(name) for name in neighbours], self._values.tolist()
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def draw(self, source: NoiseSource) -> np.ndarray:
        """Return a new release; every call draws other noise."""
        return np.asarray(self.release.run(self._values, source), dtype=np.float64)

    def utility(self, released: np.ndarray) -> Any:
        """Return the expected utility, given the release."""
        return replace(self._utility, **{self._name: self.release.estimate(released)})
