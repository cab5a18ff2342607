"""Gaussian noise on tensors, from bits that nobody can guess."""

import math
from typing import Any

import torch

from skdpot.privacy.random import make_source

__all__ = ["normal_noise"]


def normal_noise(
    shape: Any, std: float, *, device: Any, dtype: torch.dtype, random_state: Any = None
) -> torch.Tensor:
    """Return independent Gaussian noise.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the tensor.
    std : float
        Standard deviation, finite and at least 0.
    device : torch.device or str
        Where the tensor will be.
    dtype : torch.dtype
        A floating type.
    random_state : None, int, numpy.random.RandomState or NoiseSource, default=None
        None draws from the operating system's cryptographic source. An integer gives the same
        noise at every call: for a training loop, make one source and pass that.

    Returns
    -------
    torch.Tensor
        The noise.

    Raises
    ------
    ValueError
        If `std` is out of range, or `random_state` is invalid.

    Notes
    -----
    On a GPU the noise is drawn by the device's generator (Philox), seeded at every call with 64
    bits of the source. This generator is fast and statistically good, but not cryptographic: from
    some of its output, and unlimited computing, the rest of that call follows, but no other call.

    On a CPU all noise is made from bits of the source. PyTorch's generator there uses only 32 bits
    of a seed, few enough to try them all.

    Noise is drawn in double precision, and no magnitude above about 9 standard deviations can
    occur. **Adding it to floating-point numbers is not private:** the last bits of a sum may reveal
    the number. Round both to a common grid, and add integers, as the releases of training steps do.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.noise import normal_noise
    >>> noise = normal_noise((2, 3), 0.5, device="cpu", dtype=torch.float32)
    >>> noise.shape, noise.dtype
    (torch.Size([2, 3]), torch.float32)
    """
    if not 0 <= std < math.inf:
        raise ValueError(f"std must be a finite number of at least 0, got {std!r}.")
    source, device = make_source(random_state), torch.device(device)
    if device.type == "cpu":
        noise = torch.as_tensor(source.normal(shape)) * std
    else:
        noise = _draw_by_generator(source, shape, device) * std
    return noise.to(device=device, dtype=dtype)


def _draw_by_generator(source: Any, shape: Any, device: torch.device) -> torch.Tensor:
    """Return standard Gaussian noise from the device's own generator."""
    high, low = source.bits(32, 2).tolist()
    generator = torch.Generator(device=device).manual_seed(high << 32 | low)
    return torch.randn(shape, generator=generator, device=device, dtype=torch.float64)
