"""Optimal transport under differential privacy, and for fairness, as scikit-learn estimators."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    # `as` tells type checkers that a name is the package's own, too.
    from skdpot.allocation import PrivateADMMTransport as PrivateADMMTransport
    from skdpot.distance import PrivateSinkhornDistance as PrivateSinkhornDistance
    from skdpot.distance import private_ot_cost as private_ot_cost
    from skdpot.fairness import FairBarycenterClassifier as FairBarycenterClassifier
    from skdpot.fairness import FairBarycenterPreprocessor as FairBarycenterPreprocessor
    from skdpot.fairness import FairBarycenterRegressor as FairBarycenterRegressor
    from skdpot.generative import DPSinkhornGenerator as DPSinkhornGenerator
    from skdpot.model_selection import PrivateSearchCV as PrivateSearchCV
    from skdpot.privacy import PrivacyLedger as PrivacyLedger
    from skdpot.sampling import ExponentialMechanismSampler as ExponentialMechanismSampler
    from skdpot.sampling import KLProjectionSampler as KLProjectionSampler
    from skdpot.sampling import SphericalProjectionSampler as SphericalProjectionSampler
    from skdpot.sampling import WassersteinProjectionSampler as WassersteinProjectionSampler
    from skdpot.sampling import release_files as release_files
    from skdpot.transport import optimal_base_measure as optimal_base_measure
    from skdpot.transport import wasserstein_projection as wasserstein_projection
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
    __all__ = sorted(name for names in _HOMES.values() for name in names)

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
