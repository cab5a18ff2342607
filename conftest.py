"""Import of the package's modules for their doctests, and what makes all tests quicker."""

import gc
import importlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

# Workers take all cores: a second level of threads would only get in their way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A ledger waits for the disk with every charge, most of the time of a small fit. In memory it does
# not, and nothing else differs. Processes that tests start inherit the folder.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
    if shutil.disk_usage(MEMORY).free > 2**30:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# Collection makes next to no garbage, and it takes long to look for it among so many objects.
gc.disable()

PROJECT = Path(__file__).parent


def pytest_collection_finish():
    """Look for garbage again, among what tests make alone, and less often than by default."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


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
