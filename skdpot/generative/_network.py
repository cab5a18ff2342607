"""Networks: the parameters of their training, and networks that were trained."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.generative._encoders import RecordSpace
from skdpot.generative._gaussians import ReleasedVectors
from skdpot.privacy.noise import make_source


def load_engine() -> ModuleType:
    """Return the module that trains networks, or raise where PyTorch is missing.

    Returns
    -------
    module
        `skdpot.generative._torch.training`.

    Raises
    ------
    ModuleNotFoundError
        If PyTorch is not installed.

    Examples
    --------
    >>> from skdpot.generative._network import load_engine
    >>> load_engine().find_device("cpu")
    device(type='cpu')
    """
    try:
        from skdpot.generative._torch import training
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            "a network is trained with PyTorch, which is not installed. Install it "
            'with this package: python -m pip install "skdpot[torch]".',
            name="torch",
        ) from None
    return training


class NetworkTraining(BaseEstimator):
    """A network that generates records, trained with a Sinkhorn loss; needs PyTorch.

    Pass it as ``network=...`` to :class:`skdpot.DPSinkhornGenerator`. Then it learns from
    synthetic records of the sketch, at no further cost.

    Parameters
    ----------
    network : {"auto", "mlp", "dcgan"}, torch.nn.Module or callable, default="auto"
        ``"mlp"`` is for vectors, ``"dcgan"`` for images; ``"auto"`` chooses. A module is copied. A
        callable is called as ``network(n_inputs, n_features)`` and returns a module. The inputs
        are uniform numbers, followed by a one-hot code of the class. Outputs are clipped to [-1,
        1], so the last layer should be a hyperbolic tangent.
    latent_dim : int, default=None
        Number of random inputs for one record. None is 12 for images with one channel, 32 for
        other images, and for vectors the number of features, up to 32.
    n_iter : int, default=400
        Number of steps.
    sampling_rate : float, default=0.05
        Public. Probability that a record is in the sample of a step, independently of all others.
        With 1 every step uses all records.
    batch_size : int, default=50
        Number of generated points that a step compares with the sample.
    learning_rate : float, default=1e-3
        Learning rate of the optimiser.
    optimizer : {"adam", "sgd"}, default="adam"
        The optimiser of PyTorch.
    reg : float, default=None
        Regularisation of transport, in units of cost. None is 0.04 per feature.
    l1_weight : float, default=0.0
        The cost between two records is their squared distance plus this times the sum of absolute
        differences. Records are scaled to [-1, 1].
    debias : float, default=0.4
        From 0 to 1. The part of the second term of the loss (the cost between generated points)
        that compares different points. With 0 generated records concentrate where records are
        dense; with 1 they spread out.
    class_scale : float, default=15.0
        Labels enter the cost as one-hot codes times this factor.
    device : str or torch.device, default="auto"
        ``"auto"`` is a GPU with CUDA if there is one, and the CPU otherwise.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator, which takes it as `network`.
    skdpot.published.SinkhornGradientGenerator : Trains networks on noisy gradients instead.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import NetworkTraining
    >>> generator = DPSinkhornGenerator(
    ...     bounds=(0, 1), network=NetworkTraining("mlp", n_iter=100)
    ... )
    >>> generator.set_params(network__n_iter=50).network.n_iter
    50
    """

    _parameter_constraints: dict = {
        "network": "no_validation",
        "latent_dim": [Interval(Integral, 1, None, closed="left"), None],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "sampling_rate": [Interval(Real, 0, 1, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1e6, closed="right")],
        "optimizer": [StrOptions({"adam", "sgd"})],
        "reg": [Interval(Real, 1e-30, 1e30, closed="both"), None],
        "l1_weight": [Interval(Real, 0, 100, closed="both")],
        "debias": [Interval(Real, 0, 1, closed="both")],
        "class_scale": [Interval(Real, 0, 1e6, closed="both")],
        "device": "no_validation",
    }

    def __init__(
        self,
        network="auto",
        *,
        latent_dim=None,
        n_iter=400,
        sampling_rate=0.05,
        batch_size=50,
        learning_rate=1e-3,
        optimizer="adam",
        reg=None,
        l1_weight=0.0,
        debias=0.4,
        class_scale=15.0,
        device="auto",
    ):
        self.network = network
        self.latent_dim = latent_dim
        self.n_iter = n_iter
        self.sampling_rate = sampling_rate
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.reg = reg
        self.l1_weight = l1_weight
        self.debias = debias
        self.class_scale = class_scale
        self.device = device


def training_of(network: Any) -> NetworkTraining:
    """Return the training that a parameter `network` stands for."""
    return network if isinstance(network, NetworkTraining) else NetworkTraining(network)


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network that was trained.

    Attributes
    ----------
    network : RowGenerator
        On the CPU.
    name : str or None
        None for a network of the user's own.
    latent_dim, n_classes : int
        Of its input.
    losses : list of float
        Of every step.
    """

    network: Any
    name: str | None
    latent_dim: int
    n_classes: int
    losses: list[float]

    def rows(
        self, n_rows: int, codes: np.ndarray | None, rng: np.random.RandomState, device: Any
    ) -> np.ndarray:
        """Return rows that the network makes, from -1 to 1."""
        labels = np.zeros(n_rows, dtype=np.int64) if codes is None else codes
        # A seed, since random numbers of PyTorch are drawn on its own generators.
        seed = int(rng.randint(2**31))
        engine, sizes = load_engine(), (self.latent_dim, self.n_classes)
        return engine.generate(self.network, *sizes, labels, engine.find_device(device), seed)

    def weights(self) -> dict[str, np.ndarray]:
        """Return the weights, as arrays for a file."""
        return load_engine().networks.weights_to_arrays(self.network)

    def with_weights(
        self, weights: dict[str, np.ndarray], space: RecordSpace, given: Any
    ) -> "TrainedNetwork":
        """Return the network of a file, from its weights, or raise."""
        network = self.name if given is None else given
        if network is None:
            raise ValueError(
                "the file was saved with a user's own network: pass it again, as network=..., for "
                "the weights of the file."
            )
        sizes = (space.n_features, space.n_classes, self.latent_dim)
        # So that a forged file makes no network that is larger than itself.
        if max(sizes) > sum(array.size for array in weights.values()):
            raise ValueError("the file has fewer weights than its network has inputs or outputs.")
        engine = load_engine()
        training = NetworkTraining(network, latent_dim=self.latent_dim)
        made = engine.Trainer(training, space).new_network(0)
        engine.networks.load_arrays(made, weights)
        # A list again, as after a fit.
        losses = np.asarray(self.losses).tolist()
        return replace(self, network=made.eval(), n_classes=space.n_classes, losses=losses)


def trained_network(trainer: Any, losses: list[float]) -> TrainedNetwork:
    """Return the network of a trainer as it is now."""
    network, given = trainer.network.cpu().eval(), trainer.parameters.network
    name = given if isinstance(given, str) else None
    return TrainedNetwork(network, name, trainer.latent_dim, trainer.space.n_classes, losses)


def learn_from_sketch(
    parameters: NetworkTraining,
    space: RecordSpace,
    sketch: ReleasedVectors,
    rng: np.random.Generator,
    progress: Callable[..., Any],
) -> TrainedNetwork:
    """Return a network that was trained on records of a sketch, which costs nothing."""
    trainer = load_engine().Trainer(parameters, space)
    # A network learns from 20,000 records of a sketch.
    labels = sketch.drawn_labels(20_000, rng)
    rows = sketch.rows(labels, rng)
    source = make_source(int(rng.integers(2**31))).for_user(0)
    trainer.start(source)
    records = trainer.hold(rows, labels if space.n_classes else None)
    with progress(total=int(parameters.n_iter), unit=" steps") as bar:
        losses = trainer.run(records, source, int(parameters.n_iter), bar)
    return trained_network(trainer, losses)
