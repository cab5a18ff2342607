"""Files of fitted generators: archives of arrays (.npz), the first of which is a JSON text.

Nothing in a file is executed. Nothing is compressed, so the content of a file is never larger than
the file.
"""

import io
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

__all__ = ["read_generator", "write_generator"]

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
