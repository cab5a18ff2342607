"""Files of fitted generators: archives of arrays (.npz) with a header in JSON.

A fitted generator is made of a few dataclasses, arrays and plain values. The header names classes
of a fixed list, and nothing in a file is executed. Nothing is compressed, so the content of a file
is never larger than the file.
"""

import io
import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from skdpot._sklearn_compat import validate_nested_parameters
from skdpot.generative._counts import released_size
from skdpot.generative._draws import ReleasedTable
from skdpot.generative._encoders import RecordSpace, named_encoders
from skdpot.generative._gaussians import Mixture, ReleasedVectors
from skdpot.generative._network import NetworkTraining, TrainedNetwork, training_of
from skdpot.generative._records import Declared, FittedRecords
from skdpot.generative._table import TableSketch
from skdpot.generative._table_space import SIZE_EDGES, TableSpace
from skdpot.generative._vectors import ImageSketch, VectorSketch
from skdpot.privacy.preview import PrivacyGuarantee
from skdpot.tables import CONTAINERS, TableSchema, read_schema

_FORMAT, _VERSION = "skdpot generator", 4
_HEADER, _HEADER_OF_OLD = "header.json", "header.npy"
# Truth values, integers and floating-point numbers that are the same on every machine.
_DTYPES = {np.dtype(code).newbyteorder("<").str for code in "?bhilqBHILQefd"}
# The classes that a file may name, besides encoders. All are made of public or released values.
_KNOWN = (
    FittedRecords, RecordSpace, ReleasedVectors, Mixture, TrainedNetwork, ReleasedTable,
    TableSpace, PrivacyGuarantee, TableSketch, VectorSketch, ImageSketch, NetworkTraining,
)  # fmt: skip
# So that a forged file makes no vector that is much larger than itself.
_MOST_FEATURES = 2**27
# The largest noisy count of a valid file.
_LARGEST = 2.0**53
_NO_TABLE = "the file does not hold a sketch of a table."


def save_generator(path: str | os.PathLike[str], generator: Any) -> None:
    """Write a fitted generator to a file, which an existing one is replaced by, or raise."""
    fitted: Any = generator._fitted
    model: Any = getattr(generator, "model", "auto")
    ground = weights = training = None
    if isinstance(fitted, FittedRecords):
        if fitted.sketch is not None:
            ground = fitted.sketch.encoder.ground
            if model != "auto":
                # The encoder is that of the sketch.
                model = type(model)(**{**model.get_params(deep=False), "encoder": "auto"})
        if fitted.network is not None:
            weights = fitted.network.weights()
            losses: Any = np.array(fitted.network.losses, dtype=np.float64)
            trained = replace(fitted.network, network=None, losses=losses, state={})
            fitted = replace(fitted, network=trained)
            training = NetworkTraining(**{
                **training_of(generator.network).get_params(deep=False),
                "network": "auto", "device": "auto",
            })  # fmt: skip
    ruled = getattr(generator, "rules", None) or getattr(generator, "computed", None)
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
        "ruled": bool(ruled),
    }
    arrays: dict[str, Any] = {}
    write_generator(path, _encoded(content, "", arrays), arrays)


def load_generator(
    kind: Any, path: str | os.PathLike[str], ledger: Any, *, network: Any = None,
    container: Any = None, rules: Any = None, computed: Any = None,
) -> Any:  # fmt: skip
    """Return the generator of a file; `network`, `rules` and `computed` are given again."""
    header, arrays = read_generator(path)
    try:
        content = _decoded(header, arrays)
        if arrays:
            raise ValueError(f"the file has arrays that belong to nothing: {sorted(arrays)}.")
        return _restored(kind, content, ledger, network, container, rules, computed)
    except KeyError as error:
        problem: Exception = error
        what = f"it lacks {error}"
    except (AttributeError, IndexError, OverflowError, RecursionError, TypeError) as error:
        problem, what = error, str(error)
    raise ValueError(f"the file does not hold a whole generator: {what}.") from problem


def _restored(
    kind: Any, content: dict[str, Any], ledger: Any, network: Any, container: Any, rules: Any,
    computed: Any,
) -> Any:  # fmt: skip
    """Return a generator of this class with the content of a file, or raise."""
    if content["class"] != kind.__name__:
        raise ValueError(f"the file is of a {content['class']}, and not of a {kind.__name__}.")
    parameters, n_features = content["parameters"], content["n_features"]
    if parameters.keys() != set(kind._in_files):
        raise ValueError("the file has parameters that are no part of a generator's file.")
    if type(n_features) is not int or not 1 <= n_features <= _MOST_FEATURES:
        raise ValueError(f"the file has no number of features, but {n_features!r}.")
    names, guarantee = content["feature_names"], content["guarantee"]
    if names is not None and (
        len(names) != n_features or not all(isinstance(name, str) for name in names)
    ):
        raise ValueError("the file does not have a name for each feature.")
    if guarantee is not None:
        guarantee = replace(guarantee, not_protected=tuple(guarantee.not_protected))
        _check_guarantee(guarantee)
    _check_amount(content["noise_multiplier"], "noise_multiplier")
    fitted: FittedRecords | ReleasedTable
    if isinstance(content["fitted"], ReleasedTable):
        if content["ruled"] and rules is None and computed is None:
            raise ValueError(
                "the generator has rules or computed columns, which are code and in no file: give "
                "them again, load(path, rules=[...], computed={...}); rules=[] are none."
            )
        fitted, further = _restored_table(content, container)
        further |= {"rules": rules, "computed": computed}
    elif container is not None:
        raise ValueError("container is for tables, and the file is of a generator of none.")
    else:
        fitted, further = _restored_records(content, network)
    generator = kind(**parameters, **further, ledger=ledger)
    validate_nested_parameters(generator)
    generator.n_features_in_ = n_features
    generator.privacy_guarantee_ = guarantee
    if names is not None:
        generator.feature_names_in_ = np.array(names, dtype=object)
    generator._set_fitted(fitted, content["noise_multiplier"])
    # Raises if the network does not fit the weights, or the arrays are invalid.
    generator.sample()
    return generator


def _restored_table(
    content: dict[str, Any], container: Any
) -> tuple[ReleasedTable, dict[str, Any]]:
    """Return the sketch of a table, and the parameters that it stands for, or raise."""
    table, names = content["fitted"], content["feature_names"]
    space, model = table.space, content["model"]
    _check_table(table)
    columns = [column.name for column in space.table_schema.declared]
    if len(columns) != content["n_features"]:
        raise ValueError("the sketch of the file has another number of columns.")
    if names is not None and set(names) != set(columns):
        raise ValueError("the sketch of the file has columns of other names.")
    labelled = space.apart and not space.named and space.classes is not None
    parameters = {
        "schema": space.declaration,
        "target": space.target,
        "classes": space.classes.tolist() if labelled else None,
        "model": model,
    }
    if container is None:
        return table, parameters
    if container not in CONTAINERS:
        raise ValueError(f"container must be among {CONTAINERS}, or None; got {container!r}.")
    return replace(table, space=replace(space, container=container)), parameters


def _restored_records(
    content: dict[str, Any], network: Any
) -> tuple[FittedRecords, dict[str, Any]]:
    """Return a sketch or a network of records, and the parameters that it stands for, or raise."""
    fitted, classes = content["fitted"], content["fitted"].space.classes
    space = Declared(fitted.space.box, classes, fitted.space.image_shape).space(
        content["n_features"]
    )
    # A bound that is the same for all features is one number.
    bounds = [bound[0] if (bound == bound[0]).all() else bound for bound in space.box]
    parameters = {
        "bounds": [bound.tolist() for bound in bounds],
        "classes": classes,
        "image_shape": None if space.image_shape is None else list(space.image_shape),
    }
    sketch, trained = fitted.sketch, fitted.network
    if sketch is None and trained is None:
        raise KeyError("sketch")
    if sketch is not None:
        encoder = sketch.encoder.prepared(space)
        if content["ground"] is not None:
            encoder = encoder.on_ground(content["ground"])
        sketch = replace(sketch, encoder=encoder)
        sketch.check(space)
        model = content["model"]
        if model == "auto":
            model = VectorSketch() if space.image_shape is None else ImageSketch()
        parameters["model"] = model.set_params(encoder=type(encoder)(**encoder.get_params()))
    if trained is not None:
        trained = trained.with_weights(content["weights"], space, network)
        training = content["training"]
        parameters["network"] = training.set_params(
            network=trained.name if network is None else network
        )
    return FittedRecords(space, sketch, trained), parameters


def _check_amount(amount: Any, name: str) -> None:
    if type(amount) not in (int, float) or not 0 <= amount < math.inf:
        raise ValueError(f"the file has no {name} from 0 on, but {amount!r}.")


def _check_guarantee(guarantee: Any) -> None:
    """Raise unless a guarantee states amounts and texts."""
    for name in ("epsilon", "delta"):
        _check_amount(getattr(guarantee, name), name)
    texts = (guarantee.neighbouring, guarantee.unit, *guarantee.not_protected)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("the file has no text of the guarantee.")


def _check_table(table: ReleasedTable) -> None:
    """Raise unless records can be drawn from the sketch of a table, and its quality be told."""
    space, schema, n_records = table.space, table.space.schema, table.n_records
    target = None if schema.target is None else schema.names[schema.target]
    if (
        space.container not in CONTAINERS
        or not all(type(told) is bool for told in (space.apart, space.named))
        or not isinstance(space.user, str | None)
        or target in [column.name for column in schema.computed]
        or (space.apart and schema.target != len(schema.columns) - 1)
        or (space.named and not space.apart)
        or (space.apart and schema.has_bands and not space.named)
        or not _is_model(schema, **table.model)
    ):
        raise ValueError(_NO_TABLE)
    if type(n_records) is not int or n_records < 0:
        raise ValueError(f"the file has no number of records, but {n_records!r}.")
    if not _are_statistics(table, **table.statistics):
        raise ValueError("the file lacks the release of a table.")


def _are_cells(schema: TableSchema, n_cells: Any, starts: Any, stops: Any) -> bool:
    """Tell whether arrays are cells of the columns of a table but the target."""
    columns = [schema.columns[j] for j in schema.features]
    # Shapes are checked before entries are read.
    if (
        n_cells.shape != (len(columns),)
        or not columns
        or any(array.dtype != np.int64 for array in (n_cells, starts, stops))
        or starts.ndim != 1
        or not ((n_cells > 0) & (n_cells <= len(starts))).all()
        or not starts.shape == stops.shape == (n_cells.sum(),)
    ):
        return False
    # The cells of a column have all its units, in order.
    lasts = np.cumsum(n_cells) - 1
    expected = np.append(0, stops[:-1])
    expected[lasts[:-1] + 1] = 0
    n_units = [column.n_units for column in columns]
    return bool(
        (starts == expected).all() and (starts < stops).all() and (stops[lasts] == n_units).all()
    )


def _is_model(
    schema: TableSchema, n_cells: Any, starts: Any, stops: Any, weights: Any, classes: Any,
    cells: Any, n_parities: Any = None,
) -> bool:  # fmt: skip
    """Tell whether arrays are a model of a table, from which records can be drawn."""
    return bool(
        _are_cells(schema, n_cells, starts, stops)
        and weights.ndim == 1
        and weights.shape == classes.shape
        and classes.dtype == np.int64
        and cells.shape == (len(weights), len(starts))
        and (n_parities is None or (n_parities.shape == () and n_parities >= 1))
        and ((classes >= 0) & (classes < schema.n_classes)).all()
        and (weights >= 0).all()
        and np.isclose(weights.sum(), 1)
        and (cells >= 0).all()
        and np.allclose(np.add.reduceat(cells, np.cumsum(n_cells) - n_cells, axis=1), 1)
    )


def _are_statistics(
    table: ReleasedTable, n_cells: Any, starts: Any, stops: Any, groups: Any, counts: Any,
    pairs: Any, deviations: Any, sizes: Any = None,
) -> bool:  # fmt: skip
    """Tell whether arrays are the released statistics of a table, of which its quality is told."""
    schema, columns = table.space.schema, np.cumsum(n_cells)[:-1]
    if not (
        _are_cells(schema, n_cells, starts, stops)
        and counts.shape == (len(starts), schema.n_classes)
        and groups.shape == starts.shape
        and groups.dtype == np.int64
        and all((np.abs(array) <= _LARGEST).all() for array in table.statistics.values())
        and table.n_records == released_size(table.statistics)
        and (sizes is None) == (table.space.user is None)
        and (sizes is None or sizes.shape == (len(SIZE_EDGES) - 1,))
    ):
        return False
    if any(set(group) != set(range(len(set(group)))) for group in np.split(groups, columns)):
        return False
    n_groups = [int(group.max()) + 1 for group in np.split(groups, columns)]
    n_pairs = (sum(n_groups) ** 2 - sum(size**2 for size in n_groups)) // 2
    return (
        pairs.shape == (n_pairs * schema.n_classes,)
        and deviations.shape in ((2,), (4,))
        and bool((deviations >= 0).all() and (deviations[2:] > 0).all())
    )


def _encoded(value: Any, place: str, arrays: dict[str, Any]) -> Any:
    """Return a value as JSON, and put its arrays beside it, named by their places."""

    def inner(part: Any, name: Any) -> Any:
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


def _known() -> dict[str, Any]:
    """Return the classes that a file may name."""
    return {known.__name__: known for known in (*_KNOWN, *named_encoders().values())}


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
        Values of JSON.
    arrays : mapping of str to ndarray
        Truth values, integers or floating-point numbers of up to 64 bits.

    Raises
    ------
    ValueError
        If the header, an array or its name cannot be written.
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
    members = {_HEADER: text, **{f"{name}.npy": _as_npy(name, arrays[name]) for name in arrays}}
    path = Path(os.path.realpath(path))
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


def read_generator(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays that :func:`write_generator` wrote, or raise ValueError."""
    where, data = repr(os.fspath(path)), Path(path).read_bytes()
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            _check_directory(archive.infolist(), len(data))
            members = {member.filename: archive.read(member) for member in archive.infolist()}
    # zipfile may raise nearly any exception for damaged data.
    except Exception as error:
        raise ValueError(
            f"{where} is damaged, or not a file of a generator: {error}. Give a file that its "
            "method save has written."
        ) from error
    if _HEADER_OF_OLD in members:
        raise ValueError(
            f"{where} was saved by skdpot 0.1, and this version does not read its files. Load it "
            'with that version (pip install "skdpot==0.1.*") and draw rows there, or fit again.'
        )
    if _HEADER not in members:
        raise ValueError(f"{where} is not a file of a generator: it has no {_HEADER}.")
    header, names = _read_header(members.pop(_HEADER), where)
    if list(members) != [f"{name}.npy" for name in names]:
        raise ValueError(f"{where} must hold the arrays {names}, got {list(members)}.")
    return header, {name: _as_array(name, members[f"{name}.npy"]) for name in names}


def _check_directory(members: list[ZipInfo], file_size: int) -> None:
    """Check that the members of an archive are no larger than it, and have different names."""
    if any(member.compress_type != ZIP_STORED for member in members):
        raise ValueError("something in it is compressed")
    if sum(max(member.file_size, member.compress_size) for member in members) > file_size:
        raise ValueError("it claims to hold more than its own size")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("a name occurs twice in it")


def _read_header(text: bytes, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return the header of `write_generator`, and the names of the arrays, or raise."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the header of {where} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{where} is not a file of a generator.")
    if content.get("version") != _VERSION:
        raise ValueError(
            f"{where} has the version {content.get('version')!r}, and only version {_VERSION} can "
            "be read: a later version of this package has written it, so load it with that one."
        )
    header, names = content.get("header"), content.get("arrays")
    if not isinstance(header, dict) or not isinstance(names, list):
        raise ValueError(f"{where} lacks a header, or the names of its arrays.")
    return header, names


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


def _as_array(name: str, data: bytes) -> np.ndarray:
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
        raise ValueError(
            f"the array {name!r} is damaged, or not an array of numbers: {error}."
        ) from error
    return values.astype(dtype.newbyteorder("="))
