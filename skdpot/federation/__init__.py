"""Who sends what to whom: owners and nodes that keep their data, and carriers of their messages."""

from skdpot.federation._agreement import BarycenterAgreement, Crossing, FederationError
from skdpot.federation._allocation._coordinator import AllocationAgreement, AllocationCoordinator
from skdpot.federation._allocation._engine import allocation_nodes, run_allocation
from skdpot.federation._allocation._messages import AllocationMessage, Announcement
from skdpot.federation._allocation._node import AllocationNode, NodePrivacy
from skdpot.federation._carriers import Carrier, InProcessCarrier, JoblibCarrier, run_barycenter
from skdpot.federation._coordinator._coordinator import BarycenterCoordinator
from skdpot.federation._federation import BarycenterFederation
from skdpot.federation._owner._client import BarycenterClient
from skdpot.federation._release import GroupRelease
from skdpot.federation._summing import SecureAggregation

__all__ = [
    "AllocationAgreement",
    "AllocationCoordinator",
    "AllocationMessage",
    "AllocationNode",
    "Announcement",
    "BarycenterAgreement",
    "BarycenterClient",
    "BarycenterCoordinator",
    "BarycenterFederation",
    "Carrier",
    "Crossing",
    "FederationError",
    "GroupRelease",
    "InProcessCarrier",
    "JoblibCarrier",
    "NodePrivacy",
    "SecureAggregation",
    "allocation_nodes",
    "run_allocation",
    "run_barycenter",
]
