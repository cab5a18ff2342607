"""By how much one record, or one node, can change what is released; each bound with its proof."""

from skdpot.privacy.sensitivity._allocations import (
    PROTECTED,
    marginal_bounds,
    marginal_bounds_of_nodes,
    message_error,
    message_sensitivity,
)
from skdpot.privacy.sensitivity._distances import (
    half_step_shift,
    moment_sensitivities,
    noisy_sinkhorn_sensitivity,
    pairwise_sensitivities,
    plan_cost_sensitivity,
    transport_cost_sensitivity,
)
from skdpot.privacy.sensitivity._gradients import (
    clipped_gradient_sensitivity,
    clipped_sum_sensitivity,
)

__all__ = [
    "PROTECTED",
    "clipped_gradient_sensitivity",
    "clipped_sum_sensitivity",
    "half_step_shift",
    "marginal_bounds",
    "marginal_bounds_of_nodes",
    "message_error",
    "message_sensitivity",
    "moment_sensitivities",
    "noisy_sinkhorn_sensitivity",
    "pairwise_sensitivities",
    "plan_cost_sensitivity",
    "transport_cost_sensitivity",
]
