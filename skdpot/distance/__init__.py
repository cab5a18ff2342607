"""Transport costs between groups of private records, under central differential privacy."""

from ._estimator import NoGuaranteeWarning, PrivateSinkhornDistance, private_ot_cost

__all__ = ["NoGuaranteeWarning", "PrivateSinkhornDistance", "private_ot_cost"]
