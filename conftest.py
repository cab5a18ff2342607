"""Import of the package's modules for their doctests."""

import importlib
import os
from contextlib import suppress
from pathlib import Path

# Workers take all cores: a second level of threads would only get in their way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

PROJECT = Path(__file__).parent


def pytest_collect_file(file_path):
    """Import a module's package first, as every import does but pytest's own.

    Otherwise pytest imports a module that its package also imports twice, and a doctest of this
    module alone has other classes and other state than the package.
    """
    folder = file_path.relative_to(PROJECT).parent if PROJECT in file_path.parents else Path()
    if folder.parts[:1] == ("skdpot",) and file_path.suffix == ".py":
        # Doctests report a library that is missing.
        with suppress(ImportError):
            importlib.import_module(".".join(folder.parts))
