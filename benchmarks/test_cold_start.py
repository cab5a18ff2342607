"""First calls where no kernel was ever compiled, on data of the size of README's.

Run with ``python -m pytest benchmarks -m benchmark -s -k cold_start``. Nothing is asserted
about time. Every call has a process of its own, and so has what is compared with it: the same call
by a next process, which finds the kernels on disk. Imports are timed apart.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import first_calls
from benchmarks.contest import Row

pytestmark = pytest.mark.benchmark

PROGRAM = Path(first_calls.__file__)
QUICK = (
    "WassersteinProjectionSampler",
    "PrivateSinkhornDistance",
    "FairBarycenterPreprocessor",
    "PrivateADMMTransport",
)


def seconds(name, folder):
    """Return what a process took for its imports, its first call and its second one."""
    variables = {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(PROGRAM.parents[1])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", PROGRAM, name],
        env=os.environ | variables, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.quick] * (name in QUICK)) for name in first_calls.WORKS],
)
def test_first_call(name, contest, tmp_path):
    cold, warm = seconds(name, tmp_path), seconds(name, tmp_path)
    note = (
        f"{cold['first']:.1f} s, after imports of {cold['imports']:.1f} s; "
        f"{warm['first']:.1f} s with kernels on disk; the next call {cold['second']:.2g} s"
    )
    contest.rows.append(Row("First calls, with nothing compiled", name, "", "", note))
    print(f"\n{name}: {note}")
