"""Steps of training: their computation from a sample of records, and its privacy.

There are two ways: the gradient at the generated points, which is clipped; and sums over records of
clipped shares of it. Each turns one sample into one vector of bounded sensitivity, adds noise to
it, and backpropagates the result. No other function of records leaves a step.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from skdpot.generative._torch import transport
from skdpot.privacy.noise import GaussianMechanism, NoiseSource


def clip_whole(gradient: torch.Tensor, clip_norm: float) -> torch.Tensor:
    """Return a gradient, shortened to the norm that it must not exceed.

    The l2 norm is at most `clip_norm`, rounding included; infinite is no clipping. NaN becomes
    zero, and infinite values become the largest number.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.steps import clip_whole
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
    >>> from skdpot.generative._torch.steps import clip_rows
    >>> (clip_rows(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 2.5).norm(dim=1) <= 2.5).all()
    tensor(True)
    """
    if clip_norm == float("inf"):
        return gradient
    gradient = torch.nan_to_num(gradient)
    # Norms in double precision: squares of single-precision numbers do not overflow there.
    norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True, dtype=torch.float64)
    # Single precision may make a clipped vector longer by this share at most; it is clipped to as
    # much less.
    rounding = 2.0**-20
    factors = (clip_norm * (1 - rounding) / norms).clamp(max=1.0)
    return (gradient * factors).to(gradient.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyGradients:
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
    >>> from skdpot.generative._torch.steps import NoisyGradients
    >>> from skdpot.privacy import GaussianMechanism
    >>> from skdpot.privacy.noise import make_source
    >>> mechanism = GaussianMechanism.from_noise_multiplier(1.0, 1.0, n_coordinates=3)
    >>> release = NoisyGradients(mechanism, make_source(0), torch.device("cpu"), secure=False)
    >>> [part.shape for part in release([torch.zeros(2), torch.tensor(1.0)])]
    [torch.Size([2]), torch.Size([])]
    """

    mechanism: GaussianMechanism | None
    source: NoiseSource | None
    device: torch.device
    secure: bool

    def __call__(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the parts of one vector with noise, in double precision."""
        values = torch.cat([part.detach().reshape(-1).to(torch.float64) for part in parts])
        # NaN would pass through the noise, and tell of the records.
        values = torch.nan_to_num(values, nan=0.0)
        released = self._with_noise(values).split([part.numel() for part in parts])
        each = zip(released, parts, strict=True)
        return [with_noise.reshape(part.shape) for with_noise, part in each]

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
        mechanism, source = self.mechanism, self.source
        assert mechanism is not None and source is not None
        if self.secure:
            drawn = torch.as_tensor(mechanism.noise(len(values), source))
            return drawn.pin_memory().to(self.device, non_blocking=True)
        # Philox, seeded for each release with 64 bits of the source: fast, and not cryptographic.
        # From some of its output, and unlimited computing, the rest of that release follows.
        high, low = source.bits(32, 2).tolist()
        generator = torch.Generator(device=self.device).manual_seed(high << 32 | low)
        how: Any = {"device": self.device, "dtype": torch.float64}
        noise = torch.randn(values.shape, generator=generator, **how)
        return torch.round(noise * mechanism.grid_scale)


# Of sums over records: records and generated points are rounded to multiples of the first, shares
# of a record of the second, and the weight of the l1 part of the third, so that double precision
# adds up the terms of 2**23 / (4 + l1_weight) records exactly, in any order: of a block, whatever
# the weight. Terms are multiples of the last.
_POINT_GRID, _SHARE_GRID, _L1_GRID, _TERM_GRID = 2.0**-12, 2.0**-18, 2.0**-10, 2.0**-30
_BLOCK = 2**16


@dataclass(frozen=True)
class Settings:
    """The public parameters of a step.

    Attributes
    ----------
    n_features, n_classes, latent_dim : int
        Sizes of a record, of the set of labels (0 without labels) and of a latent vector.
    batch_size : int
        Number of generated points that meet the records.
    debias : float
        Share of them that the self term replaces by others.
    reg, l1_weight, class_scale : float
        Of the transport.
    clip_norm : float
        Infinite for no clipping.
    per_point : bool
        Whether each generated point's gradient is clipped on its own.
    loss_weight, count_weight : float
        The factors of a loss from 0 to 1, and of the number of records, in the vector.
    count_noise : float
        Standard deviation of the noise on the number of records.
    """

    n_features: int
    n_classes: int
    latent_dim: int
    batch_size: int
    debias: float
    reg: float
    l1_weight: float
    class_scale: float
    clip_norm: float = math.inf
    per_point: bool = False
    loss_weight: float = 1.0
    count_weight: float = 1.0
    count_noise: float = 0.0

    @property
    def cost(self) -> transport.GroundCost:
        """Return the cost of moving a point."""
        return transport.GroundCost(self.l1_weight, self.class_scale)

    @property
    def max_loss(self) -> float:
        """Return the transport cost of a released loss of 1."""
        # The released part of the range of a record's or a batch's loss; larger losses are cut off.
        loss_share = 0.25
        return loss_share * self.cost.largest(self.n_features, self.n_classes > 0)


# A sample of records, which are private: points of shape (n_sampled, n_features) that are scaled to
# [-1, 1], and the codes of their labels, or None.
Batch = tuple[torch.Tensor, torch.Tensor | None]


def latents(
    labels: torch.Tensor, latent_dim: int, n_classes: int, generator: torch.Generator
) -> torch.Tensor:
    """Return inputs of a network: uniform numbers, followed by one-hot codes of the labels.

    Labels are codes of shape (n,), ignored without classes. The generator is on their device.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.steps import latents
    >>> latents(torch.tensor([1, 0]), 3, 2, torch.Generator().manual_seed(0))[:, 3:]
    tensor([[0., 1.],
            [1., 0.]])
    """
    shape = (len(labels), latent_dim)
    uniform = torch.rand(shape, generator=generator, device=labels.device)
    if not n_classes:
        return uniform
    return torch.cat([uniform, torch.nn.functional.one_hot(labels, n_classes)], dim=1)


@dataclass(eq=False, repr=False)
class TrainingStep(ABC):
    """A training step, used for all steps of one training.

    Parameters
    ----------
    settings : Settings
        Public parameters.
    network : torch.nn.Module
        The network to train.
    release : NoisyGradients
        Adds the noise. It may be replaced.
    generator : torch.Generator
        Source of public randomness: latent vectors and labels of generated points.
    """

    _settings: Settings
    _network: torch.nn.Module
    release: NoisyGradients
    _generator: torch.Generator
    # Released numbers beside the gradient.
    n_further: ClassVar[int]

    @property
    def vector_size(self) -> int:
        """Return the number of released numbers of a step."""
        return self._settings.batch_size * self._settings.n_features + self.n_further

    @abstractmethod
    def backpropagate(self, batch: Batch) -> torch.Tensor:
        """Set the gradients of the network's parameters, and return the loss, both with noise."""

    def _generate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return labels and generated points: of both terms, and then of the self term only."""
        settings = self._settings
        n_fresh = math.floor(settings.batch_size * settings.debias)
        labels = torch.cat([self._all_labels(settings.batch_size), self._all_labels(n_fresh)])
        inputs = latents(labels, settings.latent_dim, settings.n_classes, self._generator)
        # An interruption in a block without gradients can leave PyTorch without them.
        with torch.enable_grad():
            return labels, self._network(inputs)

    def _all_labels(self, size: int) -> torch.Tensor:
        """Return every class about equally often, starting with a random one.

        The records of a class without a point would be sent to points of other classes.
        """
        n_classes, device = max(self._settings.n_classes, 1), self._generator.device
        first = torch.randint(n_classes, (1,), generator=self._generator, device=device)
        return (torch.arange(size, device=device) + first) % n_classes

    @property
    def _range(self) -> float:
        """Return the loss whose released entry is 1."""
        return 2 * self._settings.max_loss / self._settings.loss_weight


class PointStep(TrainingStep):
    """The gradient at the generated points, clipped: algorithm 1 of the paper.

    The plan depends on the batch as a whole, so one more record may change all entries of the
    gradient.
    """

    # The loss.
    n_further = 1

    def backpropagate(self, batch: Batch) -> torch.Tensor:
        """Set the gradients of the network's parameters, and return the loss, both with noise."""
        settings, n = self._settings, self._settings.batch_size
        labels, points = self._generate()
        found = transport.semi_debiased(
            points.detach(), labels, *batch, n=n, cost=settings.cost, reg=settings.reg
        )
        private_value, public_value, private_gradient, public_gradient = found
        # Without records, only noise is released.
        public = public_gradient[:n] if len(batch[0]) else torch.zeros_like(points[:n])
        clip = clip_rows if settings.per_point else clip_whole
        gradient = clip(private_gradient + public, settings.clip_norm)
        loss_share = (private_value.to(torch.float64) / self._range).clamp(0, settings.loss_weight)
        # One release of both, so that they are one vector of the declared sensitivity.
        gradient, share = self.release([gradient, loss_share])
        part = 1 if settings.per_point else math.sqrt(settings.debias)
        self_only = clip(public_gradient[n:], settings.clip_norm * part)
        points.backward(torch.cat([gradient.to(points.dtype), self_only]))
        return self._range * share - public_value


@dataclass(eq=False, repr=False)
class RecordStep(TrainingStep):
    """Sums over records of bounded terms.

    Given public potentials of the generated points, a record's shares in these points are a
    function of the record only (the semi-dual of transport). So the release is a sum with one term
    for each record. The potentials are those of the self term. They are exact if generated points
    are distributed like the records.
    """

    # The number of records, and the loss.
    n_further = 2

    def __post_init__(self) -> None:
        device = self._generator.device
        self._mean_count = torch.zeros((), device=device, dtype=torch.float64)
        self._n_steps = torch.zeros((), device=device, dtype=torch.int64)

    def backpropagate(self, batch: Batch) -> torch.Tensor:
        """Set the gradients of the network's parameters, and return the loss, both with noise."""
        settings = self._settings
        n = settings.batch_size
        labels, points = self._generate()
        self_value, self_gradient, potentials = transport.self_transport(
            points.detach(), labels, n=n, cost=settings.cost, reg=settings.reg
        )
        exact = self._sums(points.detach()[:n], labels[:n], potentials, batch)
        sums, count, loss = self.release(exact)
        count = self._smoothed_count(count / settings.count_weight)
        gradient = -self_gradient
        # The private part has the weight 2 in the semi-debiased loss.
        gradient[:n] += (2 / count * sums).to(gradient.dtype)
        points.backward(gradient)
        return self._range * loss / count - self_value

    def _sums(
        self, points: torch.Tensor, labels: torch.Tensor, potentials: torch.Tensor, batch: Batch
    ) -> list[torch.Tensor]:
        """Return the exact sums over records of clipped gradients, of 1, and of losses.

        In all bits, a record's terms are functions of the record and of public values. They lie on
        grids, so one record changes the sums by its own terms only.
        """
        settings, (records, record_labels) = self._settings, batch
        points = _on_grid(points.to(torch.float64), _POINT_GRID)
        blocks = []
        for start in range(0, max(len(records), 1), _BLOCK):
            rows = slice(start, start + _BLOCK)
            block = records[rows], None if record_labels is None else record_labels[rows]
            blocks.append(self._sums_of_block(points, labels, potentials, block))
        gradients, losses = zip(*blocks, strict=True)
        count = torch.full((), len(records), device=points.device, dtype=torch.float64)
        return [
            _exact_sum(gradients, _TERM_GRID),
            settings.count_weight * count,
            settings.loss_weight * sum(losses),
        ]

    def _sums_of_block(
        self, points: torch.Tensor, labels: torch.Tensor, potentials: torch.Tensor, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sums of gradients and of losses over up to `_BLOCK` records."""
        settings, (records, record_labels) = self._settings, batch
        cost = transport.GroundCost(_on_grid(settings.l1_weight, _L1_GRID), settings.class_scale)
        records = _on_grid(records.to(torch.float64), _POINT_GRID)
        costs = _exact_squares(records, points)
        squared_lengths = 4 * costs
        if cost.l1_weight:
            distances = cost.l1_weight * transport.absolute_distances(records, points)
            squared_lengths += 4 * distances + cost.l1_weight**2 * settings.n_features
            costs = costs + distances
        if record_labels is not None:
            costs = costs + cost.between_classes() * (record_labels[:, None] != labels)
        utilities = (potentials.to(torch.float64) - costs) / settings.reg
        highest = utilities.amax(dim=1, keepdim=True)
        # And sums over the points for a record: the odds of points, and squares.
        odds_grid, square_grid = 2.0**-32, 2.0**-20
        # Exact sums over points, too: rounding could depend on the number of records.
        odds = _down_to_grid(torch.exp(utilities - highest), odds_grid)
        all_odds = odds.sum(dim=1, keepdim=True)
        shares = _down_to_grid(odds / all_odds)
        parts = _down_to_grid(shares.square() * squared_lengths, square_grid) + square_grid
        # More than the rounding error of the length of a record's gradient in double precision.
        lengthened = 2.0**-40
        factors = settings.clip_norm * (1 - lengthened) / parts.sum(dim=1, keepdim=True).sqrt()
        # Shares are rounded down, so that a clipped gradient gets no longer.
        gradients = cost.gradient(points, records, _down_to_grid(shares * factors.clamp(max=1)).mT)
        log_sums = highest + torch.log(all_odds / settings.batch_size)
        duals = potentials.mean() - settings.reg * log_sums
        losses = _down_to_grid((duals / settings.max_loss).clamp(0, 1))
        return gradients, losses.sum()

    def _smoothed_count(self, count: torch.Tensor) -> torch.Tensor:
        """Return the mean of all noisy counts so far, but at least the size of the noise."""
        self._n_steps += 1
        # The mean of many noisy counts: the expected number of sampled records is the same in all
        # steps.
        self._mean_count += (count - self._mean_count) / self._n_steps
        return self._mean_count.clamp(min=max(1.0, self._settings.count_noise))


def _on_grid(numbers: Any, width: float) -> Any:
    """Return the nearest multiples of a power of two."""
    return (numbers / width + 0.5) // 1 * width


def _down_to_grid(numbers: torch.Tensor, width: float = _SHARE_GRID) -> torch.Tensor:
    """Return the largest multiples of a power of two that are not above the numbers."""
    return torch.floor(numbers / width) * width


def _exact_sum(parts: Sequence[torch.Tensor], width: float) -> torch.Tensor:
    """Return the exact sum of multiples of a width.

    Terms and sums are clipped to ``2**53`` multiples, which never increases a difference of sums.
    """
    # Unbounded public points may make terms of all records NaN.
    finite = [torch.nan_to_num(part / width, nan=0.0).clamp(-(2.0**53), 2.0**53) for part in parts]
    units = torch.stack(finite).to(torch.int64)
    # Two digits of each number are summed, so that no sum overflows.
    low = (units & (2**26 - 1)).sum(dim=0)
    high = (units >> 26).sum(dim=0) + (low >> 26)
    total = (high.clamp(-(2**27) - 1, 2**27) << 26) + (low & (2**26 - 1))
    return total.clamp(-(2**53), 2**53).to(torch.float64) * width


def _exact_squares(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """Return the squared distances of rows on the grid, which are exact in any order of sums."""
    norms = X.square().sum(dim=1)[:, None] + Y.square().sum(dim=1)
    return norms - 2 * X @ Y.mT
