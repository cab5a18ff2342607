"""What is known of noisy Sinkhorn beforehand, to choose iterations, noise and regularisation by.

Functions with a `published` formula say what the paper "Differentially Private Sinkhorn Algorithm"
claims, repaired where its print contradicts its own proofs. Its privacy claims, and its utility
with noise, do not hold; the `sound` formulas do, for potentials that are clipped and released
before they are used. A *record* is replaced by any other one, the neighbouring relation of all of
them.

What they return is a function of their arguments alone, and so as public as these are. All are
public quantities but `initial_gap` and `vertex_gap`, which depend on the data: leave these out
where the result is to be published, or decides about what is.
"""

from skdpot.distance.theory._privacy import (
    linear_component_sensitivity,
    published_privacy,
    sound_privacy,
)
from skdpot.distance.theory._suggestion import NoisySinkhornSuggestion, suggest_noisy_sinkhorn
from skdpot.distance.theory._tradeoffs import PrivacyUtilityTradeoff, privacy_utility_tradeoff
from skdpot.distance.theory._two_stages import (
    TwoStageTradeoff,
    regularization_objective,
    two_stage_tradeoff,
)
from skdpot.distance.theory._utility import sound_utility_bound, utility_bound

__all__ = [
    "NoisySinkhornSuggestion",
    "PrivacyUtilityTradeoff",
    "TwoStageTradeoff",
    "linear_component_sensitivity",
    "privacy_utility_tradeoff",
    "published_privacy",
    "regularization_objective",
    "sound_privacy",
    "sound_utility_bound",
    "suggest_noisy_sinkhorn",
    "two_stage_tradeoff",
    "utility_bound",
]
