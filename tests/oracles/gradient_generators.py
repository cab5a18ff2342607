"""Generators trained by noisy gradients, with all parameters in one dictionary."""

from skdpot.generative import NetworkTraining
from skdpot.published import SinkhornGradientGenerator

_OF_NETWORK = set(NetworkTraining().get_params())


def nested(**params):
    """Return parameters for `set_params`, those of the network with its prefix."""
    return {f"network__{name}" if name in _OF_NETWORK else name: x for name, x in params.items()}


def make_gradient_generator(**params):
    """Return a generator, with the parameters of its network among the others."""
    of_network = {name: params.pop(name) for name in _OF_NETWORK & params.keys()}
    return SinkhornGradientGenerator(network=NetworkTraining(**of_network), **params)
