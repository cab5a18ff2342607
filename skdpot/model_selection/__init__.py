"""Private choice of hyperparameters."""

from skdpot.model_selection._search import PrivateSearchCV

__all__ = ["PrivateSearchCV"]
