"""Generators by sketches, with all parameters in one dictionary."""

from skdpot import DPSinkhornGenerator
from skdpot.generative import CosineEncoder, ImageSketch, NetworkTraining, PoseEncoder, VectorSketch

_OF_NETWORK = set(NetworkTraining().get_params()) - {"network"}
_OF_MODEL = {"encoder", "n_clusters", "augment"}
_OF_IMAGES = {"dct": CosineEncoder, "auto": CosineEncoder, "pose": PoseEncoder}


def make_sketch_generator(epsilon=1.0, **params):
    """Return a generator, with the parameters of its model and its network among the others."""
    if "n_coefficients" in params:
        kind = _OF_IMAGES[params.get("encoder", "auto")]
        params["encoder"] = kind(params.pop("n_coefficients"))
    of_model = {name: params.pop(name) for name in _OF_MODEL & params.keys()}
    if of_model:
        images = "augment" in of_model or params.get("image_shape") is not None
        params["model"] = (ImageSketch if images else VectorSketch)(**of_model)
    of_network = {name: params.pop(name) for name in _OF_NETWORK & params.keys()}
    if of_network:
        params["network"] = NetworkTraining(params["network"], **of_network)
    if "schema" not in params:
        params.setdefault("bounds", (0, 1))
    return DPSinkhornGenerator(epsilon, **params)
