"""Optimal transport under differential privacy, and for fairness, as scikit-learn estimators."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "DPSinkhornGenerator",
    "ExponentialMechanismSampler",
    "FairBarycenterPreprocessor",
    "FairBarycenterRegressor",
    "KLProjectionSampler",
    "PrivacyLedger",
    "PrivateADMMTransport",
    "PrivateSearchCV",
    "PrivateSinkhornDistance",
    "SphericalProjectionSampler",
    "WassersteinProjectionSampler",
    "optimal_base_measure",
    "private_ot_cost",
    "release_files",
    "wasserstein_projection",
]

if TYPE_CHECKING:
    from skdpot.allocation import PrivateADMMTransport
    from skdpot.distance import PrivateSinkhornDistance, private_ot_cost
    from skdpot.fairness import FairBarycenterPreprocessor, FairBarycenterRegressor
    from skdpot.generative import DPSinkhornGenerator
    from skdpot.model_selection import PrivateSearchCV
    from skdpot.privacy import PrivacyLedger
    from skdpot.sampling import (
        ExponentialMechanismSampler,
        KLProjectionSampler,
        SphericalProjectionSampler,
        WassersteinProjectionSampler,
        release_files,
    )
    from skdpot.transport import optimal_base_measure, wasserstein_projection
else:
    from skdpot._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "allocation": ["PrivateADMMTransport"],
            "display": [],
            "distance": ["PrivateSinkhornDistance", "private_ot_cost"],
            "fairness": ["FairBarycenterPreprocessor", "FairBarycenterRegressor"],
            "parts": [],
            "generative": ["DPSinkhornGenerator"],
            "model_selection": ["PrivateSearchCV"],
            "privacy": ["PrivacyLedger"],
            "published": [],
            "sampling": [
                "ExponentialMechanismSampler",
                "KLProjectionSampler",
                "SphericalProjectionSampler",
                "WassersteinProjectionSampler",
                "release_files",
            ],
            "transport": ["optimal_base_measure", "wasserstein_projection"],
        },
    )
