"""Who sends what to whom: nodes that keep their data, and engines that carry their messages."""

from skdpot.federation._coordinator import AllocationAgreement, AllocationCoordinator
from skdpot.federation._engine import allocation_nodes, run_allocation
from skdpot.federation._messages import AllocationMessage, Announcement
from skdpot.federation._node import AllocationNode, NodePrivacy

__all__ = [
    "AllocationAgreement",
    "AllocationCoordinator",
    "AllocationMessage",
    "AllocationNode",
    "Announcement",
    "NodePrivacy",
    "allocation_nodes",
    "run_allocation",
]
