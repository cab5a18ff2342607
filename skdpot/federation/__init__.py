"""Who sends what to whom: owners and nodes that keep their data, and carriers of their messages."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from skdpot.federation._agreement import BarycenterAgreement, Crossing, FederationError
    from skdpot.federation._allocation._coordinator import (
        AllocationAgreement,
        AllocationCoordinator,
    )
    from skdpot.federation._allocation._engine import allocation_nodes, run_allocation
    from skdpot.federation._allocation._messages import AllocationMessage, Announcement
    from skdpot.federation._allocation._node import AllocationNode, NodePrivacy
    from skdpot.federation._carriers import (
        Carrier,
        InProcessCarrier,
        JoblibCarrier,
        run_barycenter,
    )
    from skdpot.federation._coordinator._coordinator import BarycenterCoordinator
    from skdpot.federation._federation import BarycenterFederation
    from skdpot.federation._owner._client import BarycenterClient
    from skdpot.federation._release import GroupRelease
    from skdpot.federation._summing import SecureAggregation
else:
    from skdpot._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_agreement": ["BarycenterAgreement", "Crossing", "FederationError"],
            "_allocation._coordinator": ["AllocationAgreement", "AllocationCoordinator"],
            "_allocation._engine": ["allocation_nodes", "run_allocation"],
            "_allocation._messages": ["AllocationMessage", "Announcement"],
            "_allocation._node": ["AllocationNode", "NodePrivacy"],
            "_carriers": ["Carrier", "InProcessCarrier", "JoblibCarrier", "run_barycenter"],
            "_coordinator._coordinator": ["BarycenterCoordinator"],
            "_federation": ["BarycenterFederation"],
            "_owner._client": ["BarycenterClient"],
            "_release": ["GroupRelease"],
            "_summing": ["SecureAggregation"],
        },
    )
