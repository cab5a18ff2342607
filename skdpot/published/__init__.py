"""Methods as the papers state them, kept for study and superseded by the rest of the package."""

from skdpot.published._message_admm import PrivateMessageADMM

__all__ = ["PrivateMessageADMM"]
