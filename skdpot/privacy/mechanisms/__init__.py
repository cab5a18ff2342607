"""Mechanisms: the only places where random private outputs leave the package."""

from skdpot.privacy.mechanisms._additive import GaussianMechanism, LaplaceMechanism
from skdpot.privacy.mechanisms._bounded_ratio import (
    TOTAL_WEIGHT,
    WEIGHT_BITS,
    BoundedRatioMechanism,
    exceeds_exp,
    scaled_exp,
)
from skdpot.privacy.mechanisms._selection import ExponentialMechanism, PermuteAndFlipMechanism
