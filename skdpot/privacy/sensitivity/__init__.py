"""Sensitivities: how much one record or one node can change a release, each with a proof."""

from skdpot.privacy.sensitivity._costs import (
    cost_vector_sensitivities,
    half_step_shift,
    noisy_sinkhorn_sensitivity,
    pairwise_sensitivities,
    plan_cost_sensitivity,
    transport_cost_sensitivity,
)
from skdpot.privacy.sensitivity._counts import histogram_sensitivities
from skdpot.privacy.sensitivity._gradients import (
    clipped_gradient_sensitivity,
    clipped_sum_sensitivity,
)
from skdpot.privacy.sensitivity._messages import (
    computed_message_sensitivity,
    marginal_bounds,
    message_error,
    message_sensitivity,
    rounded_message_sensitivity,
)
from skdpot.privacy.sensitivity._scores import block_score_sensitivity, cost_score_sensitivity
from skdpot.privacy.sensitivity._sums import (
    ball_sum_sensitivity,
    cell_count_sensitivity,
    counted_sum_sensitivity,
    product_sum_sensitivity,
    repeated_count_sensitivity,
    share_sum_sensitivity,
)
from skdpot.privacy.sensitivity._utilities import PROTECTED, utility_sensitivity
