"""Methods as published, kept for study; the rest of the package supersedes them."""

from skdpot.published._barycenter_rounds import BarycenterOwner, barycenter_rounds
from skdpot.published._gradient_generator import (
    SinkhornGradientGenerator,
    published_epsilon,
    sound_epsilon,
)
from skdpot.published._message_admm import PrivateMessageADMM
from skdpot.published._noisy_sinkhorn import NoisySinkhornDistance, published_privacy, sound_privacy

__all__ = [
    "BarycenterOwner",
    "NoisySinkhornDistance",
    "PrivateMessageADMM",
    "SinkhornGradientGenerator",
    "barycenter_rounds",
]
