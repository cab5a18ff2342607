"""Optimal transport under differential privacy, and for fairness, as scikit-learn estimators."""

from skdpot.allocation import PrivateADMMTransport
from skdpot.distance import PrivateSinkhornDistance, private_ot_cost
from skdpot.fairness import FairBarycenterPreprocessor, FairBarycenterRegressor
from skdpot.generative import DPSinkhornGenerator
from skdpot.privacy.ledger import PrivacyLedger
from skdpot.sampling import (
    ExponentialMechanismSampler,
    KLProjectionSampler,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.transport import (
    optimal_base_measure,
    sphere_base_measure,
    wasserstein_projection,
    worst_case_cost,
)

__version__ = "0.1.0"

__all__ = [
    "DPSinkhornGenerator",
    "ExponentialMechanismSampler",
    "FairBarycenterPreprocessor",
    "FairBarycenterRegressor",
    "KLProjectionSampler",
    "PrivacyLedger",
    "PrivateADMMTransport",
    "PrivateSinkhornDistance",
    "SphericalProjectionSampler",
    "WassersteinProjectionSampler",
    "optimal_base_measure",
    "private_ot_cost",
    "sphere_base_measure",
    "wasserstein_projection",
    "worst_case_cost",
]
