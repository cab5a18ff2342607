"""Transport costs between groups of private records, under central differential privacy."""

# Also exports what `skdpot.published` builds on.
from ._base import BaseTransportDistance as BaseTransportDistance
from ._costs import CostSettings as CostSettings
from ._estimator import PrivateSinkhornDistance, private_ot_cost
from ._groups import Groups as Groups
from ._groups import Layout as Layout
from ._released import Released as Released

__all__ = ["PrivateSinkhornDistance", "private_ot_cost"]
