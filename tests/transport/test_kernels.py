"""Kernels that are compiled, or left to the interpreter."""

import logging
import os
import subprocess
import sys
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from skdpot.transport import Projector, kernels, normalise_rows, projection


def grid_users(side, n_users, seed):
    """Return costs and users with many ties: integers on a grid."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(range(side), range(side)), -1).reshape(-1, 2)
    weights = rng.integers(0, 3, (n_users, len(grid)))
    weights[:, 0] += 1
    return cdist(grid, grid), weights


@pytest.mark.parametrize("side", [1, 2, 3, 5])
def test_the_interpreter_projects_as_compiled_kernels_do_bit_by_bit(side):
    cost, weights = grid_users(side, 10, side)
    rows = normalise_rows(weights)
    projector = Projector(cost, np.full(len(cost), 0.6 / len(cost)), 1.0)
    with kernels.compiled_at_once():
        compiled = projector.project(rows)
    result = projector._empty_result(rows)
    projection._project_rows.py_func(*projector._arguments(rows, result))
    np.testing.assert_array_equal(result.projections, compiled.projections)
    np.testing.assert_array_equal(result.costs * projector.unit, compiled.costs)
    np.testing.assert_array_equal(result.lower_bounds * projector.unit, compiled.lower_bounds)


def test_a_user_is_projected_alike_whoever_else_is_projected():
    """Those of few points start from scratch, and others do not, whatever the batch is."""
    cost, weights = grid_users(8, 12, 0)
    weights[::2, 10:] = 0
    projector = Projector(cost, np.full(64, 0.6 / 64), 1.0)
    together = projector(normalise_rows(weights))
    alone = np.vstack([projector(normalise_rows(row[None])) for row in weights])
    np.testing.assert_array_equal(together, alone)


def fake_kernel(monkeypatch, *, on_disk):
    budget = SimpleNamespace(limit=1.0, spent=defaultdict(float), is_told=False)
    monkeypatch.setattr(kernels, "interpreter_budget", budget)
    monkeypatch.setattr(kernels, "is_on_disk", lambda kernel: on_disk)

    class Fake(SimpleNamespace):
        __hash__ = object.__hash__

        def compile(self, types):
            self.signatures.append(types)

        def __call__(self, argument):
            return "compiled"

    return Fake(signatures=[], py_func=lambda argument: "interpreted")


def test_little_work_is_interpreted_until_it_is_not_little_any_more(monkeypatch, caplog):
    work = fake_kernel(monkeypatch, on_disk=False)
    assert kernels.run(work, 0.4, 1.0) == "interpreted"
    kernels.interpreter_budget.spent[work] = 0.7
    assert not caplog.records
    assert kernels.run(work, 0.4, 1.0) == "compiled"
    assert "once on this machine" in caplog.text


def test_compilation_is_announced_once(monkeypatch, caplog):
    for work in (fake_kernel(monkeypatch, on_disk=False),) * 2:
        assert kernels.run(work, np.inf, 1.0) == "compiled"
        work.signatures.clear()
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING


def test_what_is_on_disk_is_loaded_in_silence(monkeypatch, caplog):
    work = fake_kernel(monkeypatch, on_disk=True)
    assert kernels.run(work, 0.0, 1.0) == "compiled"
    assert not caplog.records


def test_kernels_that_can_be_kept_nowhere_are_compiled_all_the_same():
    scope = {}
    exec("def double(x): return 2.0 * x", scope)  # no file, beside which there could be a folder
    double = kernels.kernel(scope["double"])
    assert not kernels.is_on_disk(double)
    assert double(2.0) == 4.0


FEW_USERS = """
import numpy as np
from skdpot import WassersteinProjectionSampler
from skdpot.transport import kernels, projection
users = np.array([[12, 3, 0, 0, 1], [0, 0, 5, 9, 0]])
WassersteinProjectionSampler(epsilon=2.0).fit(users).transform(users)
assert not projection._project_rows.signatures
assert not kernels.is_on_disk(projection._project_rows)
"""


@pytest.mark.experiment
def test_a_first_sample_of_few_users_compiles_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FEW_USERS],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.experiment
def test_without_a_compiler_the_interpreter_does_all():
    program = (
        "import numpy as np\n"
        "from skdpot import WassersteinProjectionSampler\n"
        "sampler = WassersteinProjectionSampler(1.0, input_points=np.eye(3), random_state=0)\n"
        "print(sampler.fit_transform(np.eye(3)).tolist())"
    )
    found = {
        flag: subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"NUMBA_DISABLE_JIT": flag},
            capture_output=True, text=True, check=True,
        ).stdout
        for flag in "01"
    }  # fmt: skip
    assert found["0"] == found["1"]
