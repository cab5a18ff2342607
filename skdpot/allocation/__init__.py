"""Allocation of resources over a network whose nodes keep their utilities to themselves."""

from skdpot.allocation._transport import PrivateADMMTransport

__all__ = ["PrivateADMMTransport"]
