"""Metrics of unequal treatment of groups: by decisions, by scores, and by features."""

from ._distributions import group_auc, ks_between_groups, wasserstein_between_groups
from ._rates import (
    demographic_parity_difference,
    demographic_parity_ratio,
    equalized_odds_difference,
    equalized_odds_ratio,
)
from ._scorer import make_fairness_scorer

__all__ = [
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "group_auc",
    "ks_between_groups",
    "make_fairness_scorer",
    "wasserstein_between_groups",
]
