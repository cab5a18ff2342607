"""Methods as published, kept for study; the rest of the package supersedes them."""

from skdpot.published._barycenter_rounds import BarycenterOwner, barycenter_rounds
from skdpot.published._gradient_generator import SinkhornGradientGenerator
from skdpot.published._message_admm import PrivateMessageADMM
from skdpot.published._noisy_sinkhorn_distance import NoisySinkhornDistance
from skdpot.published._sinkhorn_privacy import published_privacy, sound_privacy
from skdpot.published._training import published_epsilon, sound_epsilon

__all__ = [
    "BarycenterOwner",
    "NoisySinkhornDistance",
    "PrivateMessageADMM",
    "SinkhornGradientGenerator",
    "barycenter_rounds",
]
