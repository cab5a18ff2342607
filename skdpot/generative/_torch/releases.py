"""The vectors that leave a step of training: of bounded sensitivity, with noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from skdpot.generative._torch.noise import normal_noise
from skdpot.privacy.noise import GaussianMechanism

__all__ = ["NoisyRelease", "clip_rows", "clip_whole"]

# Single precision may make a clipped vector longer by this share at most; it is clipped to as much
# less.
_ROUNDING = 2.0**-20


def clip_whole(gradient: torch.Tensor, clip_norm: float) -> torch.Tensor:
    """Return a gradient, shortened to the norm that it must not exceed.

    The l2 norm is at most `clip_norm`, rounding included; infinite is no clipping. NaN becomes
    zero, and infinite values become the largest number.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.releases import clip_whole
    >>> clip_whole(torch.tensor([[3.0, 0.0], [0.0, 4.0]]), 2.5).norm() <= 2.5
    tensor(True)
    """
    return clip_rows(gradient.reshape(1, -1), clip_norm).reshape(gradient.shape)


def clip_rows(gradient: torch.Tensor, clip_norm: float) -> torch.Tensor:
    """Return a gradient each of whose rows is shortened to the norm that it must not exceed.

    The l2 norm of each row is at most `clip_norm`, rounding included; infinite is no clipping.
    Other values are treated as by `clip_whole`.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.releases import clip_rows
    >>> (clip_rows(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 2.5).norm(dim=1) <= 2.5).all()
    tensor(True)
    """
    if clip_norm == float("inf"):
        return gradient
    gradient = torch.nan_to_num(gradient)
    # Norms in double precision: squares of single-precision numbers do not overflow there.
    norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True, dtype=torch.float64)
    factors = (clip_norm * (1 - _ROUNDING) / norms).clamp(max=1.0)
    return (gradient * factors).to(gradient.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyRelease:
    """Gaussian noise on the vectors that the steps of a training release.

    Parameters
    ----------
    mechanism : GaussianMechanism or None
        None adds no noise, which is no release of private data.
    source : NoiseSource
        Where the noise comes from.
    device : torch.device
        Where the vectors lie.
    secure : bool
        Whether noise for a GPU is drawn on the CPU, from cryptographic bits alone and with its
        exact distribution. On a CPU it always is.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.releases import NoisyRelease
    >>> from skdpot.privacy import GaussianMechanism
    >>> from skdpot.privacy.random import make_source
    >>> mechanism = GaussianMechanism.from_noise_multiplier(1.0, 1.0, n_coordinates=3)
    >>> release = NoisyRelease(mechanism, make_source(0), torch.device("cpu"), secure=False)
    >>> [part.shape for part in release([torch.zeros(2), torch.tensor(1.0)])]
    [torch.Size([2]), torch.Size([])]
    """

    mechanism: GaussianMechanism | None
    source: Any
    device: torch.device
    secure: bool

    def __call__(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the parts of one vector with noise, in double precision."""
        values = torch.cat([part.detach().reshape(-1).to(torch.float64) for part in parts])
        values = torch.nan_to_num(values, nan=0.0)
        released = self._with_noise(values).split([part.numel() for part in parts])
        return [
            with_noise.reshape(part.shape) for with_noise, part in zip(released, parts, strict=True)
        ]

    def _with_noise(self, values: torch.Tensor) -> torch.Tensor:
        mechanism = self.mechanism
        if mechanism is None:
            return values
        if self.device.type == "cpu":
            return torch.as_tensor(mechanism.release(values.numpy(), self.source))
        # As in the mechanism: integers plus integers, whose last bits reveal nothing.
        nearest = torch.floor(values / mechanism.granularity + 0.5)
        return (nearest + self._integer_noise(values)) * mechanism.granularity

    def _integer_noise(self, values: torch.Tensor) -> torch.Tensor:
        """Return noise in units of the grid, on the device."""
        mechanism: Any = self.mechanism
        if self.secure:
            drawn = torch.as_tensor(mechanism.noise(len(values), self.source))
            return drawn.pin_memory().to(self.device, non_blocking=True)
        return torch.round(
            normal_noise(
                values.shape,
                mechanism.grid_scale,
                device=self.device,
                dtype=torch.float64,
                random_state=self.source,
            )
        )
