"""The example of a Dask cluster, with dask and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.experiment

EXAMPLE = Path(__file__).parents[2] / "examples" / "sampling" / "plot_dask_cluster.py"


def run(*command):
    """Return what an interpreter of its own prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=EXAMPLE.parents[2],
        env={**os.environ, "PYTHONPATH": str(EXAMPLE.parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_samples_are_the_same_on_the_cluster():
    printed = run(str(EXAMPLE))
    assert "2000 users on 2 workers" in printed
    assert "the same samples: True" in printed
    assert "epsilon = 4 for two releases" in printed


@pytest.mark.parametrize("name", ["plot_dask_cluster.py", "plot_million_users.py"])
def test_it_says_when_dask_is_missing(name):
    script = (
        "import runpy, sys; sys.modules['dask'] = None; "
        f"runpy.run_path({str(EXAMPLE.with_name(name))!r}, run_name='__main__')"
    )
    assert "dask.distributed is missing" in run("-c", script)
