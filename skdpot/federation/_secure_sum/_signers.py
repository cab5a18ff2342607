"""Signatures of owners in a secure sum."""

from dataclasses import dataclass

import numpy as np

from .._keys import SIGNATURE_BYTES, SigningKey, is_signed
from ._sum_plan import SumPlan

# Purposes of signatures: an owner's keys, and the list of survivors.
KEYS, CONSENT = "keys of a secure sum", "survivors of a secure sum"


@dataclass(frozen=True)
class Signers:
    """Public keys of all owners of a sum, in the order of owners.

    Parameters
    ----------
    publics : tuple of str
        As `SigningKey.public`.
    key : SigningKey, default=None
        The private key of an owner; the coordinator has none.
    """

    publics: tuple[str, ...]
    key: SigningKey | None = None

    def check(
        self, plan: SumPlan, owner: int, purpose: str, content: bytes, signature: bytes
    ) -> None:
        """Raise ValueError unless an owner signed the content for this purpose, in this sum."""
        if not is_signed(self.publics[owner], purpose, _bound(plan, owner, content), signature):
            raise ValueError(f"owner {owner} has not signed its {purpose}.")


def signatures_of(
    signers: Signers | None, plan: SumPlan, owner: int, purpose: str, content: bytes
) -> dict[str, np.ndarray]:
    """Return an owner's signature as part of a payload; nothing without signers."""
    if signers is None or signers.key is None:
        return {}
    signature = signers.key.sign(purpose, _bound(plan, owner, content))
    return {"signatures": np.frombuffer(signature, np.uint8).reshape(1, SIGNATURE_BYTES).copy()}


def survivors_as_signed(survivors: np.ndarray) -> bytes:
    """Return the bytes of a list of survivors that owners sign."""
    return survivors.astype("<i8").tobytes()


def _bound(plan: SumPlan, owner: int, content: bytes) -> bytes:
    """Return the signed bytes, which bind the content to this sum and owner."""
    return plan.context + owner.to_bytes(8, "big") + content
