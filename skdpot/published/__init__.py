"""Methods as the papers state them, kept for study and superseded by the rest of the package."""

from typing import TYPE_CHECKING

__all__ = [
    "NoisySinkhornDistance",
    "PrivateMessageADMM",
    "SinkhornGradientGenerator",
]

if TYPE_CHECKING:
    from skdpot.published._gradient_generator import SinkhornGradientGenerator
    from skdpot.published._message_admm import PrivateMessageADMM
    from skdpot.published._noisy_sinkhorn_distance import NoisySinkhornDistance
    from skdpot.published._sinkhorn_privacy import (
        published_privacy,
        sound_privacy,
    )
    from skdpot.published._sinkhorn_utility import sound_utility_bound, utility_bound
    from skdpot.published._training_price import published_epsilon, sound_epsilon
else:
    from skdpot._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_gradient_generator": ["SinkhornGradientGenerator"],
            "_message_admm": ["PrivateMessageADMM"],
            "_noisy_sinkhorn_distance": ["NoisySinkhornDistance"],
            "_sinkhorn_privacy": [
                "published_privacy",
                "sound_privacy",
            ],
            "_sinkhorn_utility": ["sound_utility_bound", "utility_bound"],
            "_training_price": ["published_epsilon", "sound_epsilon"],
        },
    )
