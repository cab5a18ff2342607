"""Hyperparameters that are chosen privately."""

from skdpot.model_selection._search import PrivateSearchCV

__all__ = ["PrivateSearchCV"]
