"""Transport costs between groups of private records, under central differential privacy."""

# Also exports what `skdpot.published` builds on.
from ._estimator import BaseTransportDistance as BaseTransportDistance
from ._estimator import LabelledGroups as LabelledGroups
from ._estimator import PrivateSinkhornDistance, private_ot_cost
from ._releases import CostSettings as CostSettings
from ._releases import Released as Released

__all__ = ["PrivateSinkhornDistance", "private_ot_cost"]
