"""Signatures of owners in a secure sum."""

from dataclasses import dataclass

import numpy as np

from .._keys import SIGNATURE_BYTES, SigningKey, is_signed
from ._sum_plan import SumPlan

# What an owner signs: its keys, and the list of survivors.
KEYS, CONSENT = "keys of a secure sum", "survivors of a secure sum"


@dataclass(frozen=True)
class Signers:
    """Public keys of all owners of a sum, by their numbers.

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
        """Raise ValueError unless an owner signed a content, for a purpose, in this sum."""
        if not is_signed(self.publics[owner], purpose, _bound(plan, owner, content), signature):
            raise ValueError(f"owner {owner} has not signed its {purpose}.")


def signatures_of(
    signers: Signers | None, plan: SumPlan, owner: int, purpose: str, content: bytes
) -> dict[str, np.ndarray]:
    """Return an owner's signature as a payload has it: none without signers."""
    if signers is None or signers.key is None:
        return {}
    signature = signers.key.sign(purpose, _bound(plan, owner, content))
    return {"signatures": np.frombuffer(signature, np.uint8).reshape(1, SIGNATURE_BYTES).copy()}


def _bound(plan: SumPlan, owner: int, content: bytes) -> bytes:
    """Return what is signed: of this sum and owner, whatever the content."""
    return plan.context + owner.to_bytes(8, "big") + content
