"""Files of fitted generators: archives of arrays (.npz) with a header in JSON.

A fitted generator is made of a few dataclasses, arrays and plain values. The header names classes
of a fixed list, and nothing in a file is executed.
"""

import copy
import io
import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np

from skdpot._sklearn_compat import validate_nested_parameters
from skdpot.generative._draws import ReleasedTable
from skdpot.generative._encoders import RecordSpace, named_encoders
from skdpot.generative._gaussians import Mixture, ReleasedVectors
from skdpot.generative._network import NetworkTraining, TrainedNetwork, training_of
from skdpot.generative._records import FittedRecords, TableSpace, record_space
from skdpot.generative._table import TableSketch
from skdpot.generative._vectors import ImageSketch, VectorSketch
from skdpot.privacy.charging import PrivacyGuarantee
from skdpot.privacy.checks import draft_of
from skdpot.tables import CONTAINERS, TableSchema, read_schema

_FORMAT, _VERSION = "skdpot generator", 4


def save_generator(path: str | os.PathLike[str], generator: Any) -> None:
    """Write a fitted generator to a file, which an existing one is replaced by, or raise."""
    fitted: FittedRecords | ReleasedTable = generator._fitted
    model: Any = generator.model
    ground = weights = training = None
    if isinstance(fitted, FittedRecords):
        if fitted.sketch is not None:
            ground = fitted.sketch.encoder.ground
            if model != "auto":
                # The encoder is that of the sketch.
                model = copy.copy(model).set_params(encoder="auto")
        # Modules are code, which a file never holds: only their weights are saved.
        if fitted.network is not None:
            weights = fitted.network.weights()
            losses: Any = np.array(fitted.network.losses, dtype=np.float64)
            fitted = replace(fitted, network=replace(fitted.network, network=None, losses=losses))
            training = copy.copy(training_of(generator.network))
            training.set_params(network="auto", device="auto")
    content = {
        "class": type(generator).__name__,
        "parameters": {name: getattr(generator, name) for name in generator._in_files},
        "guarantee": generator.privacy_guarantee_,
        "noise_multiplier": generator.noise_multiplier_,
        "n_features": generator.n_features_in_,
        "feature_names": getattr(generator, "feature_names_in_", None),
        "model": model,
        "fitted": fitted,
        "ground": ground,
        "weights": weights,
        "training": training,
        # Rules are code: the file only says that there were some, so that load asks for them.
        "ruled": bool(generator.rules or generator.computed),
    }
    # What is not listed here is in no file: neither the ledger nor the random state.
    arrays: dict[str, np.ndarray] = {}
    write_generator(path, _encoded(content, "", arrays), arrays)


def load_generator(
    kind: type, path: str | os.PathLike[str], *, network: Any, container: Any = None, **given: Any
) -> Any:
    """Return the generator of a file; `network`, and `given` parameters, are in no file."""
    header, arrays = read_generator(path)
    try:
        return _restored(kind, _decoded(header, arrays), network, container, given)
    # What a file lacks, or has in another form, is found where it is used.
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"the file does not hold a whole generator: {what}.") from error


def _restored(kind: type, content: dict, network: Any, container: Any, given: Mapping) -> Any:
    """Return a generator of this class with the content of a file, or raise."""
    # The two generators have other parameters, so one is no file of the other.
    if content["class"] != kind.__name__:
        raise ValueError(f"the file is of a {content['class']}, and not of a {kind.__name__}.")
    fitted: FittedRecords | ReleasedTable
    if isinstance(content["fitted"], ReleasedTable):
        if content["ruled"] and given.get("rules") is None and given.get("computed") is None:
            raise ValueError(
                "the generator has rules or computed columns, which are code and in no file: give "
                "them again, load(path, rules=[...], computed={...}); rules=[] are none."
            )
        fitted, parameters = _restored_table(content, container)
    elif container is not None:
        raise ValueError("container is for tables, and the file is of a generator of none.")
    else:
        fitted, parameters = _restored_records(content, network)
    generator = kind(**content["parameters"], **parameters, **given)
    validate_nested_parameters(generator)
    generator.n_features_in_ = content["n_features"]
    guarantee = content["guarantee"]
    if guarantee is not None:
        # JSON has no tuples.
        guarantee = replace(guarantee, not_protected=tuple(guarantee.not_protected))
    generator.privacy_guarantee_ = guarantee
    if content["feature_names"] is not None:
        generator.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    generator._set_fitted(fitted, content["noise_multiplier"])
    # Raises if the network does not fit the weights, or the arrays do not fit each other.
    generator.sample()
    return generator


def _restored_table(content: dict, container: Any) -> tuple[ReleasedTable, dict[str, Any]]:
    """Return the sketch of a table, and the parameters that it stands for, or raise."""
    table = content["fitted"]
    space = table.space
    labelled = space.apart and not space.named and space.classes is not None
    parameters = {
        "schema": space.declaration,
        "target": space.target,
        "classes": space.classes.tolist() if labelled else None,
        "model": content["model"],
    }
    if container is None:
        return table, parameters
    if container not in CONTAINERS:
        raise ValueError(f"container must be among {CONTAINERS}, or None; got {container!r}.")
    return replace(table, space=replace(space, container=container)), parameters


def _restored_records(content: dict, network: Any) -> tuple[FittedRecords, dict[str, Any]]:
    """Return a sketch or a network of records, and the parameters that it stands for, or raise."""
    fitted, classes = content["fitted"], content["fitted"].space.classes
    space = record_space(content["n_features"], fitted.space.box, classes, fitted.space.image_shape)
    # A bound that is the same for all features is one number.
    bounds = [bound[0] if (bound == bound[0]).all() else bound for bound in space.box]
    parameters = {
        "bounds": [bound.tolist() for bound in bounds],
        "classes": classes,
        "image_shape": None if space.image_shape is None else list(space.image_shape),
    }
    sketch, trained = fitted.sketch, fitted.network
    if sketch is not None:
        encoder = sketch.encoder.prepared(space)
        if content["ground"] is not None:
            encoder = encoder.on_ground(content["ground"])
        sketch = replace(sketch, encoder=encoder)
        model = content["model"]
        if model == "auto":
            model = VectorSketch() if space.image_shape is None else ImageSketch()
        parameters["model"] = model.set_params(encoder=type(encoder)(**encoder.get_params()))
    if trained is not None:
        trained = trained.with_weights(content["weights"], space, network)
        named = trained.name if network is None else network
        parameters["network"] = content["training"].set_params(network=named)
    return FittedRecords(space, sketch, trained), parameters


def _encoded(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON, and put its arrays beside it, named by their places."""

    def inner(part: Any, name: str | int) -> Any:
        return _encoded(part, f"{place}.{name}" if place else str(name), arrays)

    if isinstance(value, np.ndarray) and value.dtype.kind not in "OU":
        arrays[place] = value
        return {"array": place}
    if isinstance(value, TableSchema):
        computed = [column.name for column in value.computed]
        return {"class": "TableSchema", "fields": {"declared": value.plain(), "computed": computed}}
    name = type(value).__name__
    if type(value) in _known().values():
        if is_dataclass(value):
            # What has its default is not written: so are rules, which are code.
            kept = [f.name for f in fields(value) if getattr(value, f.name) is not f.default]
            parts = {each: getattr(value, each) for each in kept}
        else:
            parts = value.get_params(deep=False)
        return {"class": name, "fields": {each: inner(parts[each], each) for each in parts}}
    if isinstance(value, Mapping):
        return {key: inner(part, key) for key, part in value.items()}
    if isinstance(value, list | tuple | range | np.ndarray):
        return [inner(part, k) for k, part in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _decoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the value that `_encoded` wrote, with lists for tuples; its arrays are taken out."""
    if isinstance(value, list):
        return [_decoded(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"array"}:
        return arrays.pop(value["array"])
    if value.keys() != {"class", "fields"}:
        return {key: _decoded(part, arrays) for key, part in value.items()}
    name, parts = value["class"], _decoded(value["fields"], arrays)
    if name == "TableSchema":
        return read_schema(dict(parts["declared"])).computing(parts["computed"])
    if name not in (known := _known()):
        raise ValueError(f"the file names an unknown class: {name!r}.")
    return known[name](**parts)


def _known() -> dict[str, type]:
    """Return the classes that a file may name: all are made of public or released values."""
    fitted = FittedRecords, RecordSpace, ReleasedVectors, Mixture, TrainedNetwork
    of_tables = ReleasedTable, TableSpace, PrivacyGuarantee
    parameters = TableSketch, VectorSketch, ImageSketch, NetworkTraining
    kinds = *fitted, *of_tables, *parameters, *named_encoders().values()
    return {known.__name__: known for known in kinds}


def write_generator(path: str | os.PathLike[str], header: dict[str, Any], arrays: Mapping) -> None:
    """Write or replace a file atomically: a reader sees either the old file or the new one.

    The same content makes the same bytes: the file holds no time, and no name of a machine.

    Parameters
    ----------
    path : str or path-like
        The file. If it is a link, its target is replaced.
    header : dict
        Values of JSON.
    arrays : mapping of str to ndarray
        Truth values or numbers.

    Raises
    ------
    ValueError
        If the header or an array cannot be written.
    OSError
        If the file cannot be written. An old file is then unchanged.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from skdpot.generative._files import read_generator, write_generator
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "generator.npz"
    ...     write_generator(path, {"steps": 10}, {"weights": np.array([0.5, 1.0])})
    ...     header, arrays = read_generator(path)
    >>> header, arrays
    ({'steps': 10}, {'weights': array([0.5, 1. ])})
    """
    content = {"format": _FORMAT, "version": _VERSION, "arrays": list(arrays), "header": header}
    try:
        text = json.dumps(content, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the header must have values of JSON: {error}") from error
    members = {"header.json": text}
    for name, array in arrays.items():
        file = io.BytesIO()
        # Little-endian, so that the bytes are the same on every machine.
        little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        np.lib.format.write_array(file, little, (1, 0), allow_pickle=False)
        members[f"{name}.npy"] = file.getvalue()
    with draft_of(Path(os.path.realpath(path))) as draft, open(draft, "xb") as target:
        with ZipFile(target, "w") as archive:
            for name, data in members.items():
                # A ZipInfo without a time has the earliest one, which is always the same.
                archive.writestr(ZipInfo(name), data)
        target.flush()
        os.fsync(target.fileno())


def read_generator(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays that :func:`write_generator` wrote, or raise ValueError."""
    where, data = repr(os.fspath(path)), Path(path).read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            members = {name: archive[name] for name in archive.files}
        content = json.loads(members.pop("header.json", b"{}"))
    # zipfile and NumPy may raise nearly any exception for damaged data.
    except Exception as error:
        raise ValueError(
            f"{where} is damaged, or not a file of a generator. Give a file that its method save "
            "has written."
        ) from error
    # In version 0.1 the header was an array.
    if content == {} and "header" in members:
        raise ValueError(
            f"{where} was saved by skdpot 0.1, and this version does not read its files. Load it "
            'with that version (pip install "skdpot==0.1.*") and draw rows there, or fit again.'
        )
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{where} is not a file of a generator; parts are opened by add_parts.")
    if content.get("version") != _VERSION:
        raise ValueError(
            f"{where} has the version {content.get('version')!r}, and only version {_VERSION} can "
            "be read: a later version of this package has written it, so load it with that one."
        )
    if list(members) != content.get("arrays"):
        raise ValueError(f"{where} must hold the arrays {content.get('arrays')}.")
    return content["header"], members
