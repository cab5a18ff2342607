"""A fitted generator as the header and the arrays of a file, and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdpot.generative._encoders import RecordSpace
from skdpot.generative._fitted import FittedRecords
from skdpot.generative._network import NetworkTraining, TrainedNetwork
from skdpot.generative._records import Declared
from skdpot.generative._sketch.released_table import ReleasedTable
from skdpot.generative._sketch.released_vectors import ReleasedVectors
from skdpot.generative._sketch.table_sketch import TableSketch
from skdpot.generative._sketch.vectors import ImageSketch, VectorSketch
from skdpot.privacy.preview import PrivacyGuarantee
from skdpot.tables import CONTAINERS

# So that a forged file makes no vector that is much larger than itself.
_MOST_FEATURES = 2**27
# Parameters of the first version of files, which have other places now.
_OF_TRAINING = tuple(set(NetworkTraining().get_params()) - {"network", "device"})
_OF_BOTH = ("epsilon", "delta", "neighbouring", "score_reg", "verbose")
_OF_STEPS = ("accounting", "noise_multiplier", "clip_norm", "secure_noise", "warm_start")


@dataclass(frozen=True, eq=False)
class SavedGenerator:
    """The content of a generator's file."""

    parameters: dict[str, Any]
    attributes: dict[str, Any]
    fitted: FittedRecords | ReleasedTable
    noise_multiplier: float

    @staticmethod
    def describe(
        fitted: FittedRecords | ReleasedTable, model: Any
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the header of a fitted model, and its arrays."""
        parameters = {} if model in (None, "auto") else model.get_params(deep=False)
        for name in ("encoder", "augment"):
            parameters.pop(name, None)
        header: dict[str, Any] = {"model": parameters, "n_records": fitted.n_records}
        if isinstance(fitted, ReleasedTable):
            header["sketch"], arrays = fitted.to_file()
            return header, arrays
        space = fitted.space
        header["space"] = {
            "bounds": [_one_or_all(bound) for bound in space.box],
            "classes": space.classes,
            "image_shape": space.image_shape,
        }
        arrays = {}
        for name in ("sketch", "network"):
            part = getattr(fitted, name)
            if part is not None:
                header[name], of_part = part.to_file()
                arrays |= of_part
        return header, arrays

    @classmethod
    def read(
        cls,
        header: dict[str, Any],
        arrays: dict[str, np.ndarray],
        kind: str,
        names: tuple[str, ...],
        *,
        network: Any = None,
        container: Any = None,
        rules: Any = None,
        computed: Any = None,
    ) -> "SavedGenerator":
        """Return the content of a file for a generator of this class and parameters, or raise."""
        try:
            if "class" not in header:
                header = _of_first_version(header)
            if header["class"] != kind:
                raise ValueError(f"the file is of a {header['class']}, and not of a {kind}.")
            if header["parameters"].keys() != set(names):
                raise ValueError("the file has parameters that are no part of a generator's file.")
            return cls._read(header, dict(arrays), network, container, rules, computed)
        except KeyError as error:
            problem: Exception = error
            what = f"it lacks {error}"
        except (AttributeError, IndexError, OverflowError, TypeError) as error:
            problem, what = error, str(error)
        raise ValueError(f"the file does not hold a whole generator: {what}.") from problem

    @classmethod
    def _read(
        cls, header: dict[str, Any], arrays: dict[str, np.ndarray], network: Any, container: Any,
        rules: Any, computed: Any,
    ) -> "SavedGenerator":  # fmt: skip
        n_features, guarantee = _read_n_features(header), header["guarantee"]
        attributes = {
            "n_features_in_": n_features,
            "privacy_guarantee_": None if guarantee is None else _as_guarantee(guarantee),
            **_read_feature_names(header["feature_names"], n_features),
        }
        if "table" in header.get("sketch", {}):
            table, parameters = _read_table(header, arrays, n_features, container)
            _check_rules(header["sketch"]["table"], rules, computed)
            parameters |= {"rules": rules, "computed": computed}
            fitted: FittedRecords | ReleasedTable = table
        elif container is not None:
            raise ValueError("container is for tables, and the file is of a generator of none.")
        else:
            fitted, parameters = _read_vectors(header, arrays, n_features, network)
        return cls(
            {**header["parameters"], **parameters},
            attributes,
            fitted,
            _read_amount(header, "noise_multiplier"),
        )


def _read_table(
    header: dict[str, Any], arrays: dict[str, np.ndarray], n_features: int, container: Any
) -> tuple[ReleasedTable, dict[str, Any]]:
    """Return the sketch of a table, and the parameters that it stands for, or raise."""
    declared = header["sketch"]["table"]
    if "people" in declared or "rules" in declared:
        raise ValueError(
            "an earlier version saved this sketch, of people with several rows or with rules: fit "
            "again."
        )
    table = ReleasedTable.from_file(declared, arrays, _read_n_records(header))
    space = table.space
    columns = [column.name for column in space.table_schema.declared]
    if len(columns) != n_features:
        raise ValueError("the sketch of the file has another number of columns.")
    names = header["feature_names"]
    if names is not None and set(names) != set(columns):
        raise ValueError("the sketch of the file has columns of other names.")
    parameters = {
        "schema": table.declaration,
        "target": space.target,
        "classes": space.classes.tolist()
        if space.apart and not space.named and space.classes is not None
        else None,
        "model": TableSketch(**header["model"]) if header["model"] else "auto",
    }
    if container is None:
        return table, parameters
    if container not in CONTAINERS:
        raise ValueError(f"container must be among {CONTAINERS}, or None; got {container!r}.")
    return replace(table, space=replace(space, container=container)), parameters


def _check_rules(declared: Mapping[str, Any], rules: Any, computed: Any) -> None:
    """Raise where the saved generator has rules, which are in no file, and none are given."""
    if declared.get("ruled") and rules is None and computed is None:
        raise ValueError(
            "the generator has rules or computed columns, which are code and in no file: give them "
            "again, load(path, rules=[...], computed={...}); rules=[] are none."
        )


def _read_vectors(
    header: dict[str, Any], arrays: dict[str, np.ndarray], n_features: int, network: Any
) -> tuple[FittedRecords, dict[str, Any]]:
    """Return a sketch or a network of records, and the parameters that it stands for, or raise."""
    declared = header["space"]
    space = Declared(**declared).space(n_features)
    parameters = dict(declared)
    trained = sketch = None
    if "network" in header:
        trained = TrainedNetwork.from_file(header["network"], arrays, space, network)
        name = header["network"]["name"] if network is None else network
        parameters["network"] = NetworkTraining(name, **header["training"])
    if "sketch" in header:
        sketch = ReleasedVectors.from_file(header["sketch"], arrays, space)
        _read_n_records(header)
        parameters["model"] = _model(header, sketch, space)
    elif trained is None:
        raise KeyError("sketch")
    return FittedRecords(space, sketch, trained), parameters


def _model(header: dict[str, Any], sketch: ReleasedVectors, space: RecordSpace) -> VectorSketch:
    """Return the model, as a parameter, of a sketch that was read."""
    encoder = type(sketch.encoder)(**sketch.encoder.get_params(deep=False))
    if space.image_shape is None:
        return VectorSketch(encoder, **header["model"])
    return ImageSketch(encoder, augment=header["sketch"]["augment"], **header["model"])


def _of_first_version(header: dict[str, Any]) -> dict[str, Any]:
    """Return the header of a file of the first version as one of this version."""
    old = header["parameters"]
    parameters = {name: old[name] for name in _OF_BOTH}
    new = {name: value for name, value in header.items() if name != "parameters"}
    new["space"] = {
        "bounds": old["data_bounds"],
        "classes": old["classes"],
        "image_shape": old["image_shape"],
    }
    new["model"] = {}
    if "sketch" in header:
        new["class"] = "DPSinkhornGenerator"
        if "table" not in header["sketch"]:
            new["model"] = {name: old[name] for name in ("n_clusters", "budget_shares")}
    else:
        new["class"] = "SinkhornGradientGenerator"
        parameters |= {name: old[name] for name in _OF_STEPS}
        whole = old["gradient"] == "per_image" and old["clipping"] == "joint"
        parameters["gradient"] = "images" if whole else old["gradient"]
    if "network" in header:
        old_network = header["network"]
        latent_dim = old_network["settings"]["latent_dim"]
        new["network"] = {"name": old_network["name"], "latent_dim": latent_dim}
        new["training"] = {name: old[name] for name in _OF_TRAINING}
    return {**new, "parameters": parameters}


def _read_n_features(header: dict[str, Any]) -> int:
    """Return the number of features, or raise."""
    n_features = header["n_features"]
    if type(n_features) is not int or not 1 <= n_features <= _MOST_FEATURES:
        raise ValueError(f"the file has no number of features, but {n_features!r}.")
    return n_features


def _read_n_records(header: dict[str, Any]) -> int:
    """Return the released number of records, or raise."""
    n_records = header["n_records"]
    if type(n_records) is not int or n_records < 0:
        raise ValueError(f"the file has no number of records, but {n_records!r}.")
    return n_records


def _read_amount(fields: Mapping[str, Any], name: str) -> float:
    """Return a finite number from 0 on, or raise."""
    amount = fields[name]
    if type(amount) not in (int, float) or not 0 <= amount < math.inf:
        raise ValueError(f"the file has no {name} from 0 on, but {amount!r}.")
    return amount


def _read_feature_names(names: Any, n_features: int) -> dict[str, np.ndarray]:
    """Return the fitted names of features, if there are any, or raise."""
    if names is None:
        return {}
    if len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise ValueError("the file does not have a name for each feature.")
    return {"feature_names_in_": np.array(names, dtype=object)}


def _as_guarantee(fields: Mapping[str, Any]) -> PrivacyGuarantee:
    """Return the guarantee of a file, or raise."""
    guarantee = PrivacyGuarantee(**{**fields, "not_protected": tuple(fields["not_protected"])})
    for name in ("epsilon", "delta"):
        _read_amount(fields, name)
    texts = (guarantee.neighbouring, guarantee.unit, *guarantee.not_protected)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("the file has no text of the guarantee.")
    return guarantee


def _one_or_all(bound: np.ndarray) -> Any:
    """Return a bound as one number, if it is the same for all features."""
    return bound[0] if (bound == bound[0]).all() else bound


def plain(value: Any) -> Any:
    """Return a value with lists for arrays and tuples, and Python's numbers for numpy's."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(part) for part in value]
    return value
