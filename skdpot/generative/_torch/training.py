"""Training: a network, an optimiser, and steps."""

import copy
from collections.abc import Callable
from typing import Any, Self

import torch

from skdpot.generative._torch import networks, steps
from skdpot.privacy.noise import GaussianMechanism, NoiseSource, poisson_sample

STEPS: dict[str, type[steps.TrainingStep]] = {
    "per_image": steps.PointStep,
    "per_record": steps.RecordStep,
}
# Rows that a network makes at a time, and images on a processor, whose cache they fit.
_CHUNK, _IMAGES_IN_CACHE = 1024, 64


def find_device(device: Any) -> torch.device:
    """Return the requested device, or raise if it does not exist.

    "auto" is a GPU with CUDA if there is one, and the CPU otherwise. The device can hold numbers in
    double precision.

    Examples
    --------
    >>> from skdpot.generative._torch.training import find_device
    >>> find_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
        # Tried, since some devices have no double precision.
        torch.zeros(1, dtype=torch.float64, device=found).item()
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        first_line = str(error).strip().split("\n")[0].rstrip(".")
        raise ValueError(
            f"device={device!r} cannot be used here: {first_line}. Use 'cpu', or 'auto'."
        ) from None
    return found


def generate(
    network: networks.RowGenerator,
    latent_dim: int,
    n_classes: int,
    labels: Any,
    device: torch.device,
    seed: int,
) -> Any:
    """Return rows that a network makes.

    A copy of the trained network computes. Labels are codes, ignored without classes. Rows of shape
    (n, n_features) are from -1 to 1, in double precision, and depend only on the seed, up to
    rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = steps.latents(torch.as_tensor(labels), latent_dim, n_classes, generator)
    maker: Any = copy.deepcopy(network).to(device).eval()
    chunk_size = _CHUNK
    if device.type == "cpu" and any(weight.dim() == 4 for weight in maker.parameters()):
        # Convolutions on a processor are faster where the channels of a pixel lie side by side.
        maker.to(memory_format=torch.channels_last)
        chunk_size = _IMAGES_IN_CACHE
    # Filled at once: between many small arrays that stay, memory would be left that none can use.
    rows = torch.empty(len(inputs), maker.n_features, dtype=torch.float64)
    with torch.no_grad():
        for start in range(0, len(inputs), chunk_size):
            chunk = slice(start, start + chunk_size)
            rows[chunk] = maker(inputs[chunk].to(device))
    return rows.numpy()


class Trainer:
    """A training: its settings, and its network and steps once it is started.

    Parameters
    ----------
    parameters : NetworkTraining
        Public, and validated.
    space : RecordSpace
        Public.
    kind : {"per_record", "per_image"}
        Which steps.
    **vector
        How a step's vector is made, of `Settings`; for private records.
    """

    network: networks.RowGenerator

    def __init__(
        self, parameters: Any, space: Any, kind: str = "per_record", **vector: Any
    ) -> None:
        self.parameters, self.space, self.kind = parameters, space, kind
        usual = networks.default_latent_dim(space.n_features, space.image_shape)
        self.latent_dim = parameters.latent_dim or usual
        # The published regularisation, except for sums over records: there a larger one has every
        # generated point learn from more of them.
        reg = 0.04 * space.n_features if kind == "per_record" else 0.05
        self.settings = steps.Settings(
            n_features=space.n_features,
            n_classes=space.n_classes,
            latent_dim=self.latent_dim,
            batch_size=int(parameters.batch_size),
            debias=float(parameters.debias),
            reg=float(parameters.reg or reg),
            l1_weight=float(parameters.l1_weight),
            class_scale=float(parameters.class_scale),
            **vector,
        )

    def new_network(self, seed: int) -> networks.RowGenerator:
        """Return a network with its first weights, or raise where there can be no such one.

        It is on the CPU, in single precision. A module is copied, with its weights. First weights
        of others depend only on the seed.
        """
        network, space = self.parameters.network, self.space
        with networks.seeded(seed):
            if isinstance(network, torch.nn.Module):
                body: Any = copy.deepcopy(network)
            elif isinstance(network, str):
                sizes = space.n_features, space.n_classes, self.latent_dim
                body = networks.named_network(network, *sizes, space.image_shape)
            elif callable(network):
                body = network(self.latent_dim + space.n_classes, space.n_features)
            else:
                raise TypeError(
                    f"network must be a name, a torch.nn.Module or a callable, got {network!r}."
                )
        if not isinstance(body, torch.nn.Module):
            raise TypeError(f"network must return a torch.nn.Module, got {body!r}.")
        made = networks.RowGenerator(body, space.n_features, space.image_shape)
        return made.to("cpu", torch.float32)

    def start(self, source: NoiseSource) -> Self:
        """Make a network to be trained, with public randomness from a source."""
        # Weights and inputs are independent of each other.
        first_weights, seed = source.bits(62, 2).tolist()
        network = self.new_network(first_weights)
        networks.check_network(network, self.latent_dim + self.space.n_classes)
        self._device = find_device(self.parameters.device)
        # A step of a copy is tried on made-up records: errors then occur before a charge.
        self._begin(copy.deepcopy(network), seed)
        self._dry_run()
        self._begin(network, seed)
        return self

    def _begin(self, network: networks.RowGenerator, seed: int) -> None:
        self.network = network.to(self._device).train()
        generator = torch.Generator(device=self._device).manual_seed(seed)
        rate = float(self.parameters.learning_rate)
        self._optimizer: torch.optim.Optimizer = torch.optim.SGD(network.parameters(), rate)
        if self.parameters.optimizer == "adam":
            # The decay of weights is that of the paper.
            self._optimizer = torch.optim.Adam(network.parameters(), rate, weight_decay=2e-5)
        no_noise = steps.NoisyGradients(None, None, self._device, secure=False)
        self._step = STEPS[self.kind](self.settings, self.network, no_noise, generator)

    def run(
        self,
        records: steps.Batch,
        source: NoiseSource,
        n_steps: int,
        bar: Any,
        spent: Callable[[int], dict[str, str]] = lambda n_steps: {},
    ) -> list[float]:
        """Make steps, and return their losses."""
        losses: list[torch.Tensor] = []
        rate = float(self.parameters.sampling_rate)
        # A progress bar shows the loss and the amount spent so far twenty times.
        every = -(-n_steps // 20)
        for made in range(1, n_steps + 1):
            sampled = poisson_sample(source, len(records[0]), rate)
            losses.append(self.step(records, sampled))
            bar.update()
            if not bar.disable and (made % every == 0 or made == n_steps):
                last = losses[-every:]
                loss = sum(map(float, last)) / len(last)
                bar.set_postfix({"loss": f"{loss:.3g}", **spent(made)})
        return torch.stack(losses).tolist()

    @property
    def vector_size(self) -> int:
        """Return how many numbers a step releases."""
        return self._step.vector_size

    def make_private(
        self, mechanism: GaussianMechanism | None, source: NoiseSource, *, secure: bool
    ) -> None:
        """Set the mechanism by which steps release; None adds no noise."""
        self._step.release = steps.NoisyGradients(mechanism, source, self._device, secure)

    def hold(self, points: Any, labels: Any) -> steps.Batch:
        """Return the points and labels of records on the device.

        `points` of shape (n_records, n_features) are scaled to [-1, 1], and `labels` are codes or
        None.
        """
        held = torch.as_tensor(points, dtype=torch.float32).to(self._device)
        codes = None if labels is None else torch.as_tensor(labels).to(self._device)
        return held, codes

    def step(self, records: steps.Batch, sampled: Any) -> torch.Tensor:
        """Make one step with the records that were sampled; return the loss, with noise.

        `sampled` are positions in `records`. The loss is as private as the network.
        """
        where = torch.as_tensor(sampled)
        if self._device.type == "cuda":
            where = where.pin_memory().to(self._device, non_blocking=True)
        points, labels = records
        sampled = points[where], None if labels is None else labels[where]
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._step.backpropagate(sampled)
        self._optimizer.step()
        return loss

    def _dry_run(self) -> None:
        """Make a step on made-up records."""
        n = self.settings.batch_size
        labels = torch.zeros(n, dtype=torch.long) if self.settings.n_classes else None
        self.step(self.hold(torch.zeros(n, self.settings.n_features), labels), torch.arange(n))
