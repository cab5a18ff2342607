"""Files of fitted generators: numbers and what they mean, and nothing that could be executed.

A file is an archive of NumPy's arrays (.npz), not compressed: the first is a text in JSON, the
others are those that it names, with their types and shapes, in its order. As nothing is compressed,
what a file claims to hold cannot be larger than the file is. Nothing in it is interpreted but the
archive's directory and the JSON, neither of which makes objects of other classes; and every other
byte either has a checksum or does not matter.
"""

import io
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

__all__ = ["read_generator", "write_generator"]

_FORMAT = "skdpot generator"
_VERSION = 1
_HEADER = "header.npy"
_ARRAYS = "arrays/"
# Truth values, integers and floating-point numbers that are the same on every machine.
_DTYPES = {np.dtype(code).newbyteorder("<").str for code in "?bhilqBHILQefd"}
_LARGEST_DIMENSION = 2**31


def write_generator(
    path: str | os.PathLike[str], header: dict[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write a file, or replace one, at once: whoever reads sees the old one or the new one.

    Parameters
    ----------
    path : str or path-like
        The file. Where it is a link, what it points to is replaced.
    header : dict
        What JSON can hold, as it will be read: strings, finite numbers, truth values, None, lists,
        and dictionaries whose keys are strings.
    arrays : mapping of str to ndarray
        Truth values, integers or floating-point numbers of up to 64 bits.

    Raises
    ------
    ValueError
        If the header would not be read as it is, or an array or its name cannot be written.
    OSError
        If the file cannot be written. An old one is as it was, then.

    Notes
    -----
    The same content makes the same bytes: the file holds no time, and no name of a machine.

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
    members = {}
    described = {}
    for name, values in arrays.items():
        _check_name(name)
        array = _portable(name, values)
        described[name] = {"dtype": array.dtype.str, "shape": list(array.shape)}
        members[f"{_ARRAYS}{name}.npy"] = _as_npy(array)
    content = {"format": _FORMAT, "version": _VERSION, "arrays": described, "header": header}
    text = np.frombuffer(_as_json(content), dtype=np.uint8)
    _replace(Path(os.path.realpath(path)), {_HEADER: _as_npy(text), **members})


def read_generator(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what :func:`write_generator` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    header : dict
        What was written.
    arrays : dict of str to ndarray
        What was written, in the same order.

    Raises
    ------
    ValueError
        If the file is damaged, or no such file, or of a later version.
    OSError
        If it cannot be read.

    Examples
    --------
    See :func:`write_generator`.
    """
    where = repr(os.fspath(path))
    members = _read_members(path, where)
    if _HEADER not in members:
        raise ValueError(f"{where} is no file of a generator: it has no {_HEADER}.")
    header, described = _read_header(members.pop(_HEADER), where)
    expected = [f"{_ARRAYS}{name}.npy" for name in described]
    if list(members) != expected:
        raise ValueError(f"{where} must hold the arrays {expected}, got {list(members)}.")
    arrays = {
        name: _as_array(data, description, f"the array {name!r} of {where}")
        for (name, description), data in zip(described.items(), members.values(), strict=True)
    }
    return header, arrays


def _check_name(name: Any) -> None:
    """Check that an archive holds a name as it is on every system."""
    if not isinstance(name, str) or not name.isprintable() or "\\" in name:
        raise ValueError(
            f"names of arrays must be printable texts without a backslash, got {name!r}."
        )


def _portable(name: str, values: Any) -> np.ndarray:
    """Return an array whose bytes mean the same on every machine."""
    array = np.asarray(values)
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in _DTYPES:
        raise ValueError(
            f"the array {name!r} must hold truth values, integers or floating-point numbers of up "
            f"to 64 bits, got the type {array.dtype}."
        )
    return array.astype(dtype)


def _as_json(content: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(content, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the header must be what JSON can hold: {error}") from error
    if json.loads(text) != content:
        raise ValueError(
            "the header would not be read as it is: its lists must be lists, and its keys strings."
        )
    return text.encode()


def _as_npy(array: np.ndarray) -> bytes:
    """Return the content of an .npy file."""
    return _npy_prefix(array.dtype.str, array.shape) + array.tobytes()


def _npy_prefix(dtype: str, shape: Iterable[int]) -> bytes:
    """Return what an .npy file of format 1.0 begins with.

    A file is compared with it, so that no such beginning, which is Python code, is ever evaluated.
    """
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    # With the ten bytes before it, and a line's end, it fills blocks of 64.
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1")


def _replace(path: Path, members: Mapping[str, bytes]) -> None:
    """Write an archive beside a file's place, and move it there once it is whole."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(draft, "xb") as file:
            with ZipFile(file, "w", ZIP_STORED) as archive:
                for name, data in members.items():
                    # Without a time of its own, it has the first that an archive can hold.
                    archive.writestr(ZipInfo(name), data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _read_members(path: str | os.PathLike[str], where: str) -> dict[str, bytes]:
    """Return the content of an archive's files, checked against their checksums."""
    data = Path(path).read_bytes()
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            _check_directory(archive.infolist(), len(data))
            return {member.filename: archive.read(member) for member in archive.infolist()}
    # What is damaged can make zipfile raise nearly anything.
    except Exception as error:
        raise ValueError(f"{where} is damaged, or no file of a generator: {error}") from error


def _check_directory(members: list[ZipInfo], file_size: int) -> None:
    """Check that the files in an archive are no larger than it is, and have different names."""
    if any(member.compress_type != ZIP_STORED for member in members):
        raise ValueError("something in it is compressed")
    if sum(max(member.file_size, member.compress_size) for member in members) > file_size:
        raise ValueError("it claims to hold more than its own size")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("a name occurs twice in it")


def _read_header(data: bytes, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the user wrote into the header, and the descriptions of the arrays."""
    length = max(len(data) - len(_npy_prefix("|u1", [0])), 0)
    description = {"dtype": "|u1", "shape": [length]}
    text = _as_array(data, description, f"the header of {where}").tobytes()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the header of {where} is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{where} is no file of a generator.")
    if content.get("version") != _VERSION:
        raise ValueError(
            f"{where} has the version {content.get('version')!r}, and only {_VERSION} can be read: "
            "a later version of this package has written it."
        )
    header, described = content.get("header"), content.get("arrays")
    if len(content) != 4 or not isinstance(header, dict) or not isinstance(described, dict):
        raise ValueError(f"the header of {where} must have a header, and arrays, and no more.")
    return header, described


def _as_array(data: bytes, description: Any, what: str) -> np.ndarray:
    """Return the array that an .npy file of a known type and shape holds."""
    if not _is_description(description):
        raise ValueError(f"{what} has no type and shape of numbers: {description!r}.")
    dtype, shape = np.dtype(description["dtype"]), description["shape"]
    prefix = _npy_prefix(dtype.str, shape)
    size = dtype.itemsize
    for length in shape:
        size *= length
    if not data.startswith(prefix) or len(data) != len(prefix) + size:
        raise ValueError(f"{what} is not of the type {dtype.str!r} and the shape {tuple(shape)}.")
    values = np.frombuffer(data, dtype, offset=len(prefix)).reshape(shape)
    # A copy that may be written to, in the order of bytes of this machine.
    return values.astype(dtype.newbyteorder("="))


def _is_description(description: Any) -> bool:
    """Tell whether something says the type and the shape of an array."""
    if not isinstance(description, dict) or description.keys() != {"dtype", "shape"}:
        return False
    dtype, shape = description["dtype"], description["shape"]
    return (
        isinstance(dtype, str)
        and dtype in _DTYPES
        and isinstance(shape, list)
        and all(type(length) is int and 0 <= length < _LARGEST_DIMENSION for length in shape)
    )
