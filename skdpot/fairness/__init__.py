"""Fairness by Wasserstein barycenters: metrics, and estimators that treat groups alike."""

from skdpot.fairness._preprocessor import FairBarycenterPreprocessor
from skdpot.fairness._regressor import FairBarycenterRegressor

__all__ = ["FairBarycenterPreprocessor", "FairBarycenterRegressor"]
