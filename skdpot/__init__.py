"""Optimal transport under differential privacy, and for fairness, as scikit-learn estimators."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "DPSinkhornGenerator",
    "ExponentialMechanismSampler",
    "FairBarycenterClassifier",
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
    from skdpot.fairness import (
        FairBarycenterClassifier,
        FairBarycenterPreprocessor,
        FairBarycenterRegressor,
    )
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
    # Modules that are attributes, and which of their names are the package's own, too: they are
    # imported on first use. A type checker does not run this.
    _HOMES = {
        "allocation": ["PrivateADMMTransport"],
        "display": [],
        "distance": ["PrivateSinkhornDistance", "private_ot_cost"],
        "fairness": [
            "FairBarycenterClassifier",
            "FairBarycenterPreprocessor",
            "FairBarycenterRegressor",
        ],
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
    }

    def __getattr__(name):
        from importlib import import_module

        if name in _HOMES:
            return import_module(f"{__name__}.{name}")
        for home, names in _HOMES.items():
            if name in names:
                # So that it is looked up but once.
                return globals().setdefault(name, getattr(import_module(f"skdpot.{home}"), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *_HOMES, *__all__})
