"""A fitted generator as what a file can hold, and back."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from skdpot.generative._engine import load_engine
from skdpot.generative._records import read_bounds, read_classes
from skdpot.generative._sketch.files import sketch_from_file, sketch_to_file
from skdpot.generative._sketch.table_sketch import TableSketch
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.tables import CONTAINERS

# Of the parameters these are not written: they are the user's own, or of the user's machine.
_NOT_WRITTEN = ("device", "encoder", "ledger", "network", "random_state", "schema")
# So that a forged file makes no vector that is much larger than itself.
_MOST_FEATURES = 2**27
# Names of arrays.
_LOSSES, _WEIGHTS = "loss_curve", "weights."


def to_file(generator):
    """Return the header and the arrays of a fitted generator's file."""
    parameters = {
        name: value
        for name, value in generator.get_params(deep=False).items()
        if name not in _NOT_WRITTEN
    }
    # What a file goes with is that of the fit, whatever the parameters are by now.
    parameters["classes"] = getattr(generator, "classes_", None)
    parameters["method"] = "sketch" if hasattr(generator, "_sketch") else "gradient"
    if hasattr(generator, "_box"):
        parameters["data_bounds"] = [_one_or_all(bound) for bound in generator._box]
    guarantee = generator.privacy_guarantee_
    header = {
        "parameters": parameters,
        "guarantee": None if guarantee is None else vars(guarantee),
        "noise_multiplier": generator.noise_multiplier_,
        "n_features": generator.n_features_in_,
        "feature_names": getattr(generator, "feature_names_in_", None),
        "n_records": getattr(generator, "n_records_", None),
    }
    arrays: dict[str, np.ndarray] = {}
    if hasattr(generator, "_sketch"):
        sketch = generator._sketch
        if isinstance(sketch, TableSketch):
            parameters |= {"target": sketch.target, "data_bounds": (0, 1)}
            if not sketch.apart:
                parameters["classes"] = None
        header["sketch"], arrays = sketch_to_file(sketch)
    if hasattr(generator, "_network"):
        parameters["image_shape"] = generator._network.image_shape
        header["network"], weights = _network_to_file(generator)
        arrays |= weights
    return _plain(header), arrays


def _network_to_file(generator):
    """Return how a network is described, and its weights."""
    settings = dict(vars(generator._settings))
    # JSON has no infinity, which stands for no clipping.
    if settings["clip_norm"] == math.inf:
        settings["clip_norm"] = None
    arrays = {_LOSSES: np.array(generator.loss_curve_, dtype=np.float64)}
    weights = load_engine().weights_to_arrays(generator._network)
    arrays |= {f"{_WEIGHTS}{name}": array for name, array in weights.items()}
    return {"name": generator._network_name, "settings": settings}, arrays


def from_file(header, arrays, network, encoder, container):
    """Return the parameters of a generator and its fitted attributes."""
    try:
        parameters, fitted = _from_file(header, arrays, network, encoder)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the file does not hold what a generator is made of: {error}.") from None
    if container is not None:
        fitted["_sketch"] = _held_by(container, fitted.get("_sketch"))
    return parameters, fitted


def _held_by(container, sketch):
    """Return a sketch whose tables are held by another container, or raise."""
    if not isinstance(sketch, TableSketch):
        raise ValueError("container is for tables, and the file is of a generator of none.")
    if container not in CONTAINERS:
        raise ValueError(f"container must be among {CONTAINERS}, or None; got {container!r}.")
    return replace(sketch, container=container)


def _from_file(header, arrays, network, encoder):
    parameters, guarantee = header["parameters"], header["guarantee"]
    n_features = _read_n_features(header)
    if not parameters.keys().isdisjoint(_NOT_WRITTEN):
        raise ValueError("the file has parameters that are no part of a generator's file.")
    fitted: dict[str, Any] = {
        "n_features_in_": n_features,
        "noise_multiplier_": header["noise_multiplier"],
        "privacy_guarantee_": None if guarantee is None else _as_guarantee(guarantee),
        **_read_feature_names(header["feature_names"], n_features),
        **_read_n_records(header),
    }
    if not header.get("sketch", {}).get("table"):
        fitted["_box"] = read_bounds(parameters["data_bounds"], n_features)
    if parameters["classes"] is not None:
        fitted["classes_"] = read_classes(parameters["classes"])[0]
    of_network = {
        name: arrays.pop(name)
        for name in list(arrays)
        if name == _LOSSES or name.startswith(_WEIGHTS)
    }
    if "sketch" in header:
        of_sketch, sketched = _sketch_from_file(header["sketch"], arrays, fitted, encoder)
        parameters, fitted = parameters | of_sketch, fitted | sketched
    if "network" in header:
        parameters["network"], learned = _network_from_file(
            header["network"], of_network, network, parameters["image_shape"]
        )
        if learned["_settings"].n_features != n_features:
            raise ValueError("the network of the file makes records of another length.")
        fitted |= learned
    return parameters, fitted


def _read_n_features(header):
    """Return the number of features, or raise."""
    n_features = header["n_features"]
    if type(n_features) is not int or not 1 <= n_features <= _MOST_FEATURES:
        raise ValueError(f"the file has no number of features, but {n_features!r}.")
    return n_features


def _read_n_records(header):
    """Return the released number of records, if there is one, or raise."""
    n_records = header.get("n_records")
    if n_records is None:
        return {}
    if type(n_records) is not int or n_records < 0:
        raise ValueError(f"the file has no number of records, but {n_records!r}.")
    return {"n_records_": n_records}


def _read_feature_names(names, n_features):
    """Return the fitted names of features, if there are any, or raise."""
    if names is None:
        return {}
    if len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise ValueError("the file does not have a name for each feature.")
    return {"feature_names_in_": np.array(names, dtype=object)}


def _sketch_from_file(header, arrays, fitted, encoder):
    """Return the parameters that a sketch stands for, and what was fitted, or raise."""
    n_features, box = fitted["n_features_in_"], fitted.get("_box")
    sketch: Any = sketch_from_file(header, arrays, n_features, box, encoder)
    classes = fitted.get("classes_")
    if isinstance(sketch, TableSketch):
        if sketch.classes is not None:
            classes = sketch.classes
        if len(sketch.declaration) != n_features:
            raise ValueError("the sketch of the file has another number of columns.")
        parameters = {"schema": sketch.declaration}
    else:
        parameters = {"encoder": header["encoder"]["name"] if encoder is None else encoder}
    if len(sketch.counts) != (1 if classes is None else len(classes)):
        raise ValueError("the sketch of the file has another number of classes.")
    of_classes = {} if classes is None else {"classes_": classes}
    return parameters, {"_sketch": sketch, **of_classes}


def _network_from_file(header, arrays, network, image_shape):
    """Return a network as a parameter, and what was fitted."""
    engine = load_engine()
    settings = dict(header["settings"])
    if settings["clip_norm"] is None:
        settings["clip_norm"] = math.inf
    settings = engine.Settings(**settings)
    network = header["name"] if network is None else network
    if network is None:
        raise ValueError(
            "this generator's network was a module or a callable of the user's: give it again, as "
            "network=..., for the weights of the file."
        )
    losses = arrays.pop(_LOSSES).tolist()
    weights = {name.removeprefix(_WEIGHTS): array for name, array in arrays.items()}
    sizes = (settings.n_features, settings.n_classes, settings.latent_dim)
    # So that a forged file makes no network that is larger than itself.
    if max(sizes) > sum(array.size for array in weights.values()):
        raise ValueError("the file has fewer weights than its network has inputs or outputs.")
    trained = engine.make_network(
        network,
        n_features=settings.n_features,
        n_classes=settings.n_classes,
        latent_dim=settings.latent_dim,
        image_shape=image_shape,
        seed=0,
    )
    engine.load_arrays(trained, weights)
    return network, {
        "loss_curve_": losses,
        "n_iter_": len(losses),
        "_settings": settings,
        "_training_state": {},
        "_network": trained.eval(),
        "_network_name": header["name"],
    }


def network_name(network):
    """Return the name of a network; None for one of the user's own."""
    if network is None:
        return "auto"
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
