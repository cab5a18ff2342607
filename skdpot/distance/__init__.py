"""Transport costs between groups of private records, under central differential privacy."""

from ._estimator import PrivateSinkhornDistance, private_ot_cost

__all__ = ["PrivateSinkhornDistance", "private_ot_cost"]
