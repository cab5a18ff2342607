"""Fairness by Wasserstein barycenters: metrics, and estimators that treat groups alike."""

from skdpot.fairness._conditional import ConditionalRepair
from skdpot.fairness._groups import DeclaredGroups, FoundGroups
from skdpot.fairness._models import FairBarycenterClassifier, FairBarycenterRegressor
from skdpot.fairness._preprocessor import FairBarycenterPreprocessor
from skdpot.fairness._supports import FreeSupport

__all__ = [
    "ConditionalRepair",
    "DeclaredGroups",
    "FairBarycenterClassifier",
    "FairBarycenterPreprocessor",
    "FairBarycenterRegressor",
    "FoundGroups",
    "FreeSupport",
]
