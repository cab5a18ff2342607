"""Fixtures that the tests of the examples share."""

import importlib.util
from pathlib import Path

import matplotlib
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def load_example():
    """Return a function that imports an example as a module, by its path in the examples folder."""
    matplotlib.use("Agg")

    def load(name):
        spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(params=[None, "nowhere"])
def no_data(request, tmp_path, monkeypatch):
    """Let no file be named, or one that is not there, as that of real data."""
    for variable in ("SKDPOT_ADULT", "SKDPOT_COMPAS", "SKDPOT_MOVIELENS"):
        monkeypatch.delenv(variable, raising=False)
        if request.param is not None:
            monkeypatch.setenv(variable, str(tmp_path / request.param))
