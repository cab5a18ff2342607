"""Barycenters and allocations of data that stay with their owners: protocols and carriers."""

from typing import TYPE_CHECKING

__all__ = [
    "AllocationCoordinator",
    "AllocationNode",
    "BarycenterCoordinator",
    "BarycenterFederation",
    "BarycenterOwner",
    "FederationError",
    "GroupRelease",
    "InProcessCarrier",
    "NodePrivacy",
    "SecureAggregation",
    "SigningKey",
    "run_allocation",
    "run_barycenter",
]

if TYPE_CHECKING:
    from skdpot.federation._allocation._allocation_coordinator import (
        AllocationAgreement,
        AllocationCoordinator,
    )
    from skdpot.federation._allocation._allocation_messages import AllocationMessage, Announcement
    from skdpot.federation._allocation._allocation_node import AllocationNode
    from skdpot.federation._allocation._network_nodes import allocation_nodes
    from skdpot.federation._allocation._node_privacy import NodePrivacy
    from skdpot.federation._barycenter._agreement import BarycenterAgreement
    from skdpot.federation._barycenter._barycenter_coordinator import BarycenterCoordinator
    from skdpot.federation._barycenter._barycenter_federation import BarycenterFederation
    from skdpot.federation._barycenter._barycenter_owner import BarycenterOwner
    from skdpot.federation._barycenter._group_release import GroupRelease
    from skdpot.federation._carriers import (
        Carrier,
        InProcessCarrier,
        run_allocation,
        run_barycenter,
    )
    from skdpot.federation._keys import SigningKey
    from skdpot.federation._legs import Crossing, FederationError
    from skdpot.federation._secure_aggregation import SecureAggregation
else:
    from skdpot._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_allocation._allocation_coordinator": ["AllocationAgreement", "AllocationCoordinator"],
            "_allocation._allocation_messages": ["AllocationMessage", "Announcement"],
            "_allocation._allocation_node": ["AllocationNode"],
            "_allocation._node_privacy": ["NodePrivacy"],
            "_allocation._network_nodes": ["allocation_nodes"],
            "_barycenter._agreement": ["BarycenterAgreement"],
            "_barycenter._barycenter_coordinator": ["BarycenterCoordinator"],
            "_barycenter._barycenter_federation": ["BarycenterFederation"],
            "_barycenter._barycenter_owner": ["BarycenterOwner"],
            "_barycenter._group_release": ["GroupRelease"],
            "_carriers": ["Carrier", "InProcessCarrier", "run_allocation", "run_barycenter"],
            "_keys": ["SigningKey"],
            "_legs": ["Crossing", "FederationError"],
            "_secure_aggregation": ["SecureAggregation"],
        },
    )
