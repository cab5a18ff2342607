"""Files of fitted generators.

Files of fitted generators: archives of arrays (.npz), the first of which is a JSON text.

Nothing in a file is executed. Nothing is compressed, so the content of a file is never larger than
the file.
"""

import io
import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from skdpot.generative._draws import ReleasedTable
from skdpot.generative._encoders import RecordSpace
from skdpot.generative._gaussians import ReleasedVectors
from skdpot.generative._network import NetworkTraining, TrainedNetwork
from skdpot.generative._records import Declared, FittedRecords
from skdpot.generative._table import TableSketch
from skdpot.generative._vectors import ImageSketch, VectorSketch
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.tables import CONTAINERS

_FORMAT = "skdpot generator"
# Files of earlier versions can be read. From version 3 on, tables include their released counts.
_VERSION = 3
_HEADER, _ARRAYS = "header.npy", "arrays/"
# Truth values, integers and floating-point numbers that are the same on every machine.
_DTYPES = {np.dtype(code).newbyteorder("<").str for code in "?bhilqBHILQefd"}


def write_generator(
    path: str | os.PathLike[str], header: dict[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write or replace a file atomically: a reader sees either the old file or the new one.

    The same content makes the same bytes: the file holds no time, and no name of a machine.

    Parameters
    ----------
    path : str or path-like
        The file. If it is a link, its target is replaced.
    header : dict
        Values that JSON restores unchanged: strings, finite numbers, truth values, None, lists, and
        dictionaries whose keys are strings.
    arrays : mapping of str to ndarray
        Truth values, integers or floating-point numbers of up to 64 bits.

    Raises
    ------
    ValueError
        If JSON would change the header, or if an array or its name cannot be written.
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
    if not isinstance(header, dict):
        raise ValueError(f"the header must be a dictionary, got {type(header).__name__}.")
    members = {f"{_ARRAYS}{name}.npy": _as_npy(name, values) for name, values in arrays.items()}
    content = {"format": _FORMAT, "version": _VERSION, "arrays": list(arrays), "header": header}
    text = np.frombuffer(_as_json(content), dtype=np.uint8)
    _replace(Path(os.path.realpath(path)), {_HEADER: _as_npy("header", text), **members})


def read_generator(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays that :func:`write_generator` wrote, or raise ValueError."""
    where = repr(os.fspath(path))
    members = _read_members(path, where)
    if _HEADER not in members:
        raise ValueError(f"{where} is not a file of a generator: it has no {_HEADER}.")
    text = _as_array(members.pop(_HEADER), f"the header of {where}").tobytes()
    header, names = _read_header(text, where)
    if list(members) != [f"{_ARRAYS}{name}.npy" for name in names]:
        raise ValueError(f"{where} must hold the arrays {names}, got {list(members)}.")
    arrays = {
        name: _as_array(data, f"the array {name!r} of {where}")
        for name, data in zip(names, members.values(), strict=True)
    }
    return header, arrays


def _as_npy(name: Any, values: Any) -> bytes:
    """Return the content of an .npy file that is the same on every machine, or raise."""
    if not isinstance(name, str) or not name.isprintable() or "\\" in name:
        raise ValueError(f"names of arrays must be printable, without a backslash, got {name!r}.")
    array = np.asarray(values)
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in _DTYPES:
        raise ValueError(
            f"the array {name!r} must hold truth values, integers or floating-point numbers of up "
            f"to 64 bits, got the type {array.dtype}."
        )
    file = io.BytesIO()
    np.lib.format.write_array(file, array.astype(dtype, order="C"), (1, 0), allow_pickle=False)
    return file.getvalue()


def _as_array(data: bytes, what: str) -> np.ndarray:
    """Return the array of an .npy file, or raise, without using more memory than the file has.

    It is a writeable copy in the byte order of this machine.
    """
    file = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("of another format")
        shape, columns_first, dtype = np.lib.format.read_array_header_1_0(file)
        if columns_first or dtype.str not in _DTYPES or min(shape, default=0) < 0:
            raise ValueError(f"of the type {dtype} and the shape {shape}")
        values = np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)
    # NumPy may raise nearly any exception for damaged data.
    except Exception as error:
        raise ValueError(f"{what} is damaged, or not an array of numbers: {error}.") from error
    return values.astype(dtype.newbyteorder("="))


def _as_json(content: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(content, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the header must have values of JSON: {error}") from error
    if json.loads(text) != content:
        raise ValueError(
            "the header would change when read: it must have lists, no tuples, and keys of text."
        )
    return text.encode()


def _replace(path: Path, members: Mapping[str, bytes]) -> None:
    """Write an archive beside the file, and replace the file by it when it is complete."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(draft, "xb") as file:
            with ZipFile(file, "w", ZIP_STORED) as archive:
                for name, data in members.items():
                    # A ZipInfo without a time has the earliest one, which is always the same.
                    archive.writestr(ZipInfo(name), data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _read_members(path: str | os.PathLike[str], where: str) -> dict[str, bytes]:
    """Return the content of the members of an archive, whose checksums are checked."""
    data = Path(path).read_bytes()
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            _check_directory(archive.infolist(), len(data))
            return {member.filename: archive.read(member) for member in archive.infolist()}
    # zipfile may raise nearly any exception for damaged data.
    except Exception as error:
        raise ValueError(
            f"{where} is damaged, or not a file of a generator: {error}. Give a file that its "
            "method save has written."
        ) from error


def _check_directory(members: list[ZipInfo], file_size: int) -> None:
    """Check that the members of an archive are no larger than it, and have different names."""
    if any(member.compress_type != ZIP_STORED for member in members):
        raise ValueError("something in it is compressed")
    if sum(max(member.file_size, member.compress_size) for member in members) > file_size:
        raise ValueError("it claims to hold more than its own size")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("a name occurs twice in it")


def _read_header(text: bytes, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return the header of `write_generator`, and the names of the arrays."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the header of {where} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{where} is not a file of a generator.")
    if content.get("version") not in range(1, _VERSION + 1):
        raise ValueError(
            f"{where} has the version {content.get('version')!r}, and only versions up to "
            f"{_VERSION} can be read: a later version of this package has written it."
        )
    header, names = content.get("header"), content.get("arrays")
    if len(content) != 4 or not isinstance(header, dict) or not isinstance(names, dict | list):
        raise ValueError(f"the header of {where} must have a header, and arrays, and no more.")
    # In the first version, this was a dictionary by the names of arrays.
    return header, list(names)


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
