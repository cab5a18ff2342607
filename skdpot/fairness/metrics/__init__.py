"""Metrics of unequal treatment of groups: by decisions and scores, and by features."""

from ._distributions import group_auc, ks_between_groups, wasserstein_between_groups
from ._scorer import make_fairness_scorer

__all__ = ["group_auc", "ks_between_groups", "make_fairness_scorer", "wasserstein_between_groups"]
