"""The guarantee that an estimator states for its release, and the warning without one."""

from dataclasses import dataclass


class NoGuaranteeWarning(UserWarning):
    """Warning: a release is not private, because the requested published proof does not hold."""


@dataclass(frozen=True)
class PrivacyGuarantee:
    """The privacy guarantee of a release; public.

    Parameters
    ----------
    epsilon, delta : float
        The release is (epsilon, delta)-differentially private.
    neighbouring : {"replace_one", "add_remove"}
        The neighbouring relation.
    unit : {"record", "user", "edge", "node"}
        The unit whose data are protected.
    not_protected : tuple of str
        Facts that are treated as public, in words.

    Examples
    --------
    >>> from skdpot.privacy import PrivacyGuarantee
    >>> print(PrivacyGuarantee(1.0, 0.0, "replace_one", "record", ("the size of each group",)))
    1-differentially private for every record (replace_one); not protected: the size of each group
    """

    epsilon: float
    delta: float
    neighbouring: str
    unit: str
    not_protected: tuple[str, ...] = ()

    def __str__(self) -> str:
        amount = f"({self.epsilon:g}, {self.delta:g})" if self.delta else f"{self.epsilon:g}"
        text = f"{amount}-differentially private for every {self.unit} ({self.neighbouring})"
        if self.not_protected:
            text += "; not protected: " + ", ".join(self.not_protected)
        return text
