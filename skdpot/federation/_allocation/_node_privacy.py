"""Privacy of a node: its declarations, its releases, and the noise of its messages."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.random import NoiseSource, make_source
from skdpot.privacy.sensitivity import message_error
from skdpot.releases import UTILITY_MECHANISMS, MessageReleases
from skdpot.transport.consensus import LogUtility, SideState

from ._input_release import InputRelease


@dataclass(frozen=True)
class NodePrivacy:
    """Privacy of all messages of a node, and declarations about its utilities.

    Parameters
    ----------
    epsilon : float
        Total budget of the node for all rounds, above 0.
    marginal_bounds : (float, float)
        Public; required. The smallest and the largest possible marginal utility, for any amount
        from 0 to the node's upper bound. For linear utilities, the range of their slopes. A
        utility outside is refused. The noise is proportional to the width.
    n_rounds : int, default=100
        Largest number of messages of the node. The budget is divided among them.
    delta : float, default=0.0
        0 means noise whose density decreases exponentially with its Euclidean norm; a value above
        0 means Gaussian noise.
    utility_range : float, default=None
        Largest difference of marginal utilities at *one* amount, if it is known to be less than
        the width: :func:`~skdpot.privacy.sensitivity.marginal_bounds`. None is the width.
    largest_scale : float, default=0.0
        For logarithmic utilities, the declared largest scale.
    curvature : float, default=0.0
        A lower bound of minus the second derivative of every utility.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the utility of one edge at this end, or all utilities of the node.
    mechanism : {"messages", "input", "input_laplace"}, default="messages"
        ``"messages"``: noise on every message. Otherwise noise on the utilities themselves, once,
        as in :class:`~skdpot.PrivateADMMTransport`. Then all rounds of all runs are computed from
        this release and cost nothing more. `marginal_bounds` are the range of slopes, or of the
        weights of logarithmic utilities; curvatures and scales are public, and delta is 0.
    random_state : None, int, RandomState or NoiseSource, default=None
        Source of the node's noise; None is the cryptographic source. Two nodes must not share a
        seed.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        The node's own ledger, charged for all its messages before the first one.

    Raises
    ------
    ValueError
        If the `mechanism` is unknown, or does not allow a `delta`.

    See Also
    --------
    AllocationNode : Checks the declarations, and spends the budget.
    skdpot.releases.MessageReleases : The noise of many nodes at once.

    Notes
    -----
    Proofs: :ref:`proof-private-messages` for messages, :ref:`proof-private-utilities` for
    utilities that are released once.

    Examples
    --------
    >>> from skdpot.federation import NodePrivacy
    >>> NodePrivacy(1.0, marginal_bounds=(1.0, 5.0), n_rounds=50, delta=1e-6).protect
    'parameter'
    """

    epsilon: float
    marginal_bounds: tuple[float, float]
    n_rounds: int = 100
    delta: float = 0.0
    utility_range: float | None = None
    largest_scale: float = 0.0
    curvature: float = 0.0
    protect: str = "parameter"
    mechanism: str = "messages"
    random_state: Any = field(default=None, repr=False)
    ledger: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        known = UTILITY_MECHANISMS
        if self.mechanism != "messages" and (self.mechanism not in known or self.delta):
            raise ValueError(
                f"mechanism must be 'messages' or, with delta=0, one of {', '.join(known)}, "
                f"got {self.mechanism!r} and delta={self.delta:g}."
            )


def plan_of(
    privacy: NodePrivacy, utility: Any, bounds: tuple[float, float], n_edges: int, name: str
) -> tuple[ReleasePlan, InputRelease | None]:
    """Return the plan of the charge; and the release of the utility, if it is released once."""
    source = make_source(privacy.random_state)
    unit = "node" if privacy.protect == "node" else "edge"
    if privacy.mechanism == "messages":
        noise = message_noise(privacy, utility, bounds, n_edges, source)
        label = f"{name}, {privacy.n_rounds} messages"
        return ReleasePlan(noise, noise.event, source, label, None, unit=unit), None
    once = InputRelease(
        privacy.mechanism, utility, privacy.epsilon, privacy.marginal_bounds, privacy.protect
    )
    label = f"{name}, its utilities"
    return ReleasePlan(once.release, once.event, source, label, None, unit=unit), once


def message_noise(
    privacy: NodePrivacy,
    utility: Any,
    bounds: tuple[float, float],
    n_edges: int,
    source: NoiseSource,
) -> MessageReleases:
    """Return the noise of a node's messages, whose amounts are within its bounds."""
    width = _check_declared(privacy, utility, n_edges, bounds[1])
    return MessageReleases(
        privacy.epsilon,
        privacy.delta,
        n_rounds=privacy.n_rounds,
        degrees=[n_edges],
        utility_range=width,
        cap=bounds[1],
        least=bounds[0],
        curvature=privacy.curvature,
        protect=privacy.protect,
        source=source,
    )


def solver_error(privacy: NodePrivacy, state: SideState, eta: float, iterative: bool) -> float:
    """Return a bound on the solver's error, in the l2 norm, from public numbers.

    `iterative` tells whether the best amounts of the utility have no closed form.
    """
    bound = message_error(
        eta,
        float(state.side.upper[0]),
        len(state.side.positions),
        reach=np.max(eta * np.abs(state.agreed) + np.abs(state.prices)),
        largest_marginal=max(map(abs, privacy.marginal_bounds)),
        largest_scale=privacy.largest_scale,
        iterative=iterative,
    )
    return float(bound)


def _check_declared(privacy: NodePrivacy, utility: Any, n_edges: int, cap: float) -> float:
    """Return the largest difference of marginal utilities; raise if a declaration is violated.

    Marginal utilities never increase, so it is enough to check the least and the largest amount.
    """
    least, largest = (float(end) for end in privacy.marginal_bounds)
    if not -math.inf < least < largest < math.inf:
        raise ValueError("marginal_bounds must be a pair (least, largest) of finite numbers.")
    width = largest - least if privacy.utility_range is None else float(privacy.utility_range)
    if not 0 < width <= largest - least:
        raise ValueError("utility_range must be above 0, and at most the width of marginal_bounds.")
    if not 0 <= privacy.largest_scale < math.inf:
        raise ValueError("largest_scale must be finite and at least 0.")
    ends = np.zeros(n_edges), np.full(n_edges, cap)
    marginals = [utility.derivative(amounts) for amounts in ends]
    if (marginals[0] > largest).any() or (marginals[1] < least).any():
        raise ValueError("the utility is outside of its declared marginal_bounds.")
    if any((-utility.second_derivative(x) < privacy.curvature).any() for x in ends):
        raise ValueError("the utility has less than its declared curvature.")
    if isinstance(utility, LogUtility) and (utility.scales > privacy.largest_scale).any():
        raise ValueError("the utility has a larger scale than the declared largest_scale.")
    return width
