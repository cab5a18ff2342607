"""Files that the user has, and errors where they are missing or hold something else."""

import os
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

# What NumPy raises for archives that are damaged, or none at all.
_NO_ARCHIVE = (BadZipFile, EOFError, ValueError, zlib.error)


def existing_file(path, where_to_get_it):
    """Return the path of a file, or raise where there is none."""
    file = Path(os.fspath(path))
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {str(file)!r}. {where_to_get_it}")
    return file


def read_arrays(file, names, message):
    """Return those of the named arrays that an .npz archive has, or raise where it is none.

    A file of a single array, which has no name, has none of them.
    """
    try:
        with file.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            named = isinstance(archive, np.lib.npyio.NpzFile)
            return {name: archive[name] for name in names if named and name in archive}
    except _NO_ARCHIVE as error:
        raise ValueError(message) from error
