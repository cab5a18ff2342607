"""A fitted generator as what a file can hold, and back."""

import math

import numpy as np

from skdpot.generative._records import read_bounds, read_classes
from skdpot.privacy.guarantee import PrivacyGuarantee

# Of the parameters these are not written: they are the user's own, or of the user's machine.
_NOT_WRITTEN = ("device", "ledger", "network", "random_state")


def to_file(generator, engine):
    """Return the header and the arrays of a fitted generator's file."""
    parameters = {
        name: value
        for name, value in generator.get_params(deep=False).items()
        if name not in _NOT_WRITTEN
    }
    # What the weights go with is that of the fit, whatever the parameters are by now.
    parameters |= {
        "classes": getattr(generator, "classes_", None),
        "data_bounds": [_one_or_all(bound) for bound in generator._box],
        "image_shape": generator._network.image_shape,
    }
    settings, guarantee = dict(vars(generator._settings)), generator.privacy_guarantee_
    # JSON has no infinity, which stands for no clipping.
    if settings["clip_norm"] == math.inf:
        settings["clip_norm"] = None
    header = {
        "parameters": parameters,
        "network": generator._network_name,
        "settings": settings,
        "guarantee": None if guarantee is None else vars(guarantee),
        "noise_multiplier": generator.noise_multiplier_,
        "feature_names": _plain(getattr(generator, "feature_names_in_", None)),
    }
    arrays = {"loss_curve": np.array(generator.loss_curve_, dtype=np.float64)}
    weights = engine.weights_to_arrays(generator._network)
    return _plain(header), arrays | {f"weights.{name}": array for name, array in weights.items()}


def from_file(header, arrays, engine, network):
    """Return the parameters of a generator and its fitted attributes."""
    try:
        return _from_file(header, arrays, engine, network)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the file does not hold what a generator is made of: {error}.") from None


def _from_file(header, arrays, engine, network):
    parameters, settings = header["parameters"], dict(header["settings"])
    if settings["clip_norm"] is None:
        settings["clip_norm"] = math.inf
    settings = engine.Settings(**settings)
    parameters["network"] = header["network"] if network is None else network
    if parameters["network"] is None:
        raise ValueError(
            "this generator's network was a module or a callable of the user's: give it again, as "
            "network=..., for the weights of the file."
        )
    losses = arrays.pop("loss_curve").tolist()
    weights = {name.removeprefix("weights."): array for name, array in arrays.items()}
    sizes = (settings.n_features, settings.n_classes, settings.latent_dim)
    # So that a forged file makes no network that is larger than itself.
    if max(sizes) > sum(array.size for array in weights.values()):
        raise ValueError("the file has fewer weights than its network has inputs or outputs.")
    trained = engine.make_network(
        parameters["network"],
        n_features=settings.n_features,
        n_classes=settings.n_classes,
        latent_dim=settings.latent_dim,
        image_shape=parameters["image_shape"],
        seed=0,
    )
    engine.load_arrays(trained, weights)
    guarantee = header["guarantee"]
    fitted = {
        "n_features_in_": settings.n_features,
        "loss_curve_": losses,
        "n_iter_": len(losses),
        "noise_multiplier_": header["noise_multiplier"],
        "privacy_guarantee_": None if guarantee is None else _as_guarantee(guarantee),
        "_box": read_bounds(parameters["data_bounds"], settings.n_features),
        "_settings": settings,
        "_training_state": {},
        "_network": trained.eval(),
        "_network_name": header["network"],
    }
    if parameters["classes"] is not None:
        fitted["classes_"] = read_classes(parameters["classes"])[0]
    if header["feature_names"] is not None:
        fitted["feature_names_in_"] = np.array(header["feature_names"], dtype=object)
    return parameters, fitted


def network_name(network):
    """Return the name of a network; None for one of the user's own."""
    return network if isinstance(network, str) else None


def _one_or_all(bound):
    """Return a bound as one number, if it is the same for all features."""
    return bound[0] if (bound == bound[0]).all() else bound


def _as_guarantee(fields):
    return PrivacyGuarantee(**{**fields, "not_protected": tuple(fields["not_protected"])})


def _plain(value):
    """Return a value with lists for arrays and tuples, and Python's numbers for numpy's."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return [_plain(part) for part in value]
    return value
