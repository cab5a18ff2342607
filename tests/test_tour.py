"""The tour: what it prints, what it writes, and how it ends."""

import builtins
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from skdpot import __version__, _fair_tour, _generator_tour, _tour
from skdpot.__main__ import main
from skdpot.transport.barycenter._relaxation import best_points
from skdpot.transport.consensus._nodes import log_side
from skdpot.transport.projection import _project_rows
from skdpot.transport.sinkhorn import answer_points

PROJECT = Path(__file__).parents[1]
N_USERS = 30
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def fair_outcomes(monkeypatch):
    """Let the part about fairness print made-up numbers; return what finds the true ones."""
    real = _fair_tour.outcomes
    made_up = {repair: _fair_tour.Outcome(0.7, 0.1, 0.6) for repair in _fair_tour.REPAIRS}
    monkeypatch.setattr(_fair_tour, "outcomes", lambda patients: made_up)
    return real


@pytest.fixture(autouse=True)
def generator_outcomes(monkeypatch):
    """Let the part about synthetic data print made-up numbers; return what finds the true ones."""
    real = _generator_tour.outcomes
    monkeypatch.setattr(_generator_tour, "outcomes", lambda digits: {_generator_tour.REAL: 0.5})
    return real


def run(folder, *arguments):
    """Run the tour for few users, with its picture in a folder; return the exit status."""
    return main(["--users", str(N_USERS), "--output", str(folder / "tour.png"), *arguments])


def without_matplotlib(monkeypatch):
    """Let imports of matplotlib fail as they do where it is not installed."""
    real_import = builtins.__import__

    def guarded(name, *args, **kwargs):
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", guarded)


def test_prints_every_mechanism_and_writes_a_picture(tmp_path, capsys):
    assert run(tmp_path) == 0
    printed, progress = capsys.readouterr()
    assert f"{N_USERS} users" in printed
    for name in (*_tour.MECHANISMS, _tour.UNIFORM, _tour.NO_PRIVACY):
        assert printed.count(name) == 2
    assert f"Picture: {tmp_path / 'tour.png'}" in printed
    assert (tmp_path / "tour.png").read_bytes().startswith(PNG_SIGNATURE)
    assert "15/15" in progress
    for repair in _fair_tour.REPAIRS:
        assert printed.count(repair) == 1
    assert printed.count(_generator_tour.REAL) == 1


def test_goes_on_without_matplotlib(tmp_path, capsys, monkeypatch):
    without_matplotlib(monkeypatch)
    assert run(tmp_path) == 0
    printed = capsys.readouterr().out
    assert _tour.MECHANISMS[0] in printed
    assert "pip install matplotlib" in printed
    assert "Picture:" not in printed
    assert not (tmp_path / "tour.png").exists()


def test_another_missing_module_is_not_hidden(tmp_path, monkeypatch):
    def broken(*args):
        raise ModuleNotFoundError("No module named 'kiwisolver'", name="kiwisolver")

    monkeypatch.setattr(_tour, "draw", broken)
    with pytest.raises(ModuleNotFoundError, match="kiwisolver"):
        run(tmp_path)


def test_a_picture_that_cannot_be_written_is_an_error_after_the_table(tmp_path, capsys):
    (tmp_path / "tour.png").mkdir()
    assert run(tmp_path) == 1
    printed, errors = capsys.readouterr()
    assert _tour.MECHANISMS[0] in printed
    assert "could not be written" in errors


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--output", "no/such/folder/tour.png"], "there is no folder"),
        (["--users", "0"], "invalid"),
        (["--users", "many"], "invalid"),
        (["--nonsense"], "unrecognized"),
    ],
)
def test_wrong_command_line_is_refused_before_anything_is_done(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    printed, errors = capsys.readouterr()
    assert printed == ""
    assert message in errors


@pytest.mark.parametrize("option, expected", [("--help", "--output"), ("--version", __version__)])
def test_help_and_version(option, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        main([option])
    assert ended.value.code == 0
    assert expected in capsys.readouterr().out


def test_runs_as_a_module():
    command = [sys.executable, "-m", "skdpot", "--version"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"skdpot {__version__}\n"


def test_wasserstein_projection_is_nearest_to_the_users():
    users = _tour.load_users(100)
    distances = {(eps, name): release.distance for eps, name, release in _tour.releases(users)}
    for epsilon in _tour.EPSILONS:
        here = [distances[epsilon, name] for name in _tour.MECHANISMS]
        assert min(here) == distances[epsilon, _tour.WASSERSTEIN]
        assert max(here) < _tour.limits(users)[_tour.UNIFORM][0]
    wasserstein = [distances[epsilon, _tour.WASSERSTEIN] for epsilon in _tour.EPSILONS]
    assert (np.diff(wasserstein) < 0).all()


def test_what_is_collected_is_one_pixel_of_each_user_and_not_seeded():
    users = _tour.load_users(200)
    first, second = (next(_tour.releases(users))[2].collected for _ in range(2))
    for shares in (first, second):
        assert shares.shape == (len(_tour.PIXELS),)
        assert np.allclose(np.round(shares * len(users)), shares * len(users))
        assert shares.sum() == pytest.approx(1.0)
    # Two unseeded runs agree in all pixels with a probability that is negligible.
    assert (first != second).any()


def test_limits_are_those_of_hiding_everything_and_nothing():
    users = np.eye(len(_tour.PIXELS))[[0, 0, 63]]
    limits = _tour.limits(users)
    assert limits[_tour.NO_PRIVACY] == pytest.approx((0.0, 0.0), abs=1e-12)
    corner = np.linalg.norm(_tour.PIXELS, axis=1).mean()
    assert limits[_tour.UNIFORM][0] == pytest.approx(corner)


@pytest.mark.experiment
def test_only_the_barycenter_hides_the_groups(fair_outcomes):
    found = fair_outcomes(_fair_tour.load_patients())
    nothing, means, barycenter = (found[repair] for repair in _fair_tour.REPAIRS)
    assert nothing.difference > 0.15
    assert means.difference < 0.12 and barycenter.difference < 0.1
    assert min(nothing.group_auc, means.group_auc) > 0.65
    assert 0.43 < barycenter.group_auc < 0.57
    assert barycenter.accuracy > nothing.accuracy - 0.03


def test_synthetic_digits_teach_nearly_as_well_as_real_ones(generator_outcomes, monkeypatch):
    # The first command of the README does not install PyTorch.
    monkeypatch.setitem(sys.modules, "skdpot.generative._torch", None)
    found = generator_outcomes(_generator_tour.load())
    assert list(found)[0] == _generator_tour.REAL and found[_generator_tour.REAL] > 0.9
    epsilons = _generator_tour.EPSILONS
    accuracies = [found[_generator_tour.synthetic_name(epsilon)] for epsilon in epsilons]
    # Guessing is right once in ten times.
    assert min(accuracies) > 0.2
    assert accuracies[epsilons.index(1.0)] > 0.6
    assert 0.85 < accuracies[-1] < found[_generator_tour.REAL]
    assert f"{accuracies[-1]:.2f}" in _generator_tour.table(found)


def test_kernels_can_be_compiled_in_advance(capsys):
    """All of them, so that a second time only loads them."""
    assert main(["--warm"]) == 0
    assert capsys.readouterr().out.count(" s  ") == 4
    for compiled in (_project_rows, answer_points, best_points, log_side):
        assert compiled.signatures
