"""Contests that tell who is faster, and what is missing, and reports that hold it."""

import json

import numpy as np
import pytest

from benchmarks import quiet
from benchmarks.benchopt_solver import Solver
from benchmarks.contest import NOT_INSTALLED, Contest, Contestant, coarsest, slope, take_turns
from benchmarks.report import write_report
from skdpot.transport import exact_transport


class Clock:
    """A clock that goes on as sleepers say."""

    now = 0.0

    def __call__(self):
        return self.now

    def sleeper(self, seconds, result=0.0):
        def call():
            self.now += seconds
            return result

        return call


def contest_of_sleepers(clock):
    contest = Contest(quick=True)
    contest.compare(
        "Sleeper",
        "to sleep",
        Contestant("ours", clock.sleeper(0.25, 1e-9)),
        [
            Contestant("theirs", clock.sleeper(0.75, 1e-3)),
            Contestant("absent", clock.sleeper(1.0), "no_such_package"),
        ],
        {"error": float},
        tolerance=1e-6,
        seconds=0.0,
        clock=clock,
    )
    return contest


def test_rows_say_who_is_faster_and_who_is_not_as_accurate():
    theirs, absent = contest_of_sleepers(Clock()).rows
    assert theirs.ratio == pytest.approx(3) and theirs.n_rounds == 3
    assert theirs.seconds == pytest.approx((0.25, 0.75))
    assert theirs.figures == {"error": (1e-9, 1e-3)}
    assert theirs.same_accuracy is False
    assert absent.ratio is None and absent.note == NOT_INSTALLED


def test_rounds_give_quartiles_and_are_as_many_as_were_asked_for():
    clock, turns = Clock(), iter(range(100))
    contest = Contest(min_rounds=11)
    peer = Contestant("theirs", lambda: clock.sleeper(1.0 + next(turns))())
    (row,) = contest.compare(
        "x", "y", Contestant("ours", clock.sleeper(1.0)), [peer], {}, seconds=0.0, rounds=(1, 3),
        clock=clock,
    )  # fmt: skip
    # The first call is not timed.
    assert row.n_rounds == 11 and row.ratio == 7
    assert row.ratios == (2, 12) and row.quartiles == (4.5, 9.5)
    assert "4.5 to 9.5, all 2 to 12, 11 rounds" in str(row)


def statistics(path, seconds):
    """Write what Linux says of cores that were busy for so long."""
    path.write_text(f"cpu  {round(100 * seconds)} 0 0 99 7 0 0 0 0 0\ncpu0 1 2 3\n")


@pytest.mark.parametrize(("others", "is_quiet"), [(0.0, True), (1.5, False)])
def test_other_programs_are_noticed(others, is_quiet, tmp_path, monkeypatch):
    path, now = tmp_path / "stat", Clock()
    statistics(path, 100)
    monkeypatch.setattr(quiet, "_STATISTICS", path)
    monkeypatch.setattr(quiet.time, "perf_counter", now)
    monkeypatch.setattr(quiet, "own_seconds", now)
    contest, work = Contest(), now.sleeper(2.0)

    def busy():
        work()
        statistics(path, 100 + (1 + others) * now())

    (row,) = contest.compare(
        "x", "y", Contestant("ours", busy), [Contestant("theirs", busy)], {}, clock=now
    )
    assert row.others == pytest.approx(others, abs=0.01)
    assert bool(contest.warning) is not is_quiet
    write_report(contest, tmp_path)
    assert ("NOT QUIET" in (tmp_path / "report.md").read_text()) is not is_quiet


def test_without_counts_of_the_kernel_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(quiet, "_STATISTICS", tmp_path / "missing")
    watch = quiet.Watch()
    assert watch.others() is None


def test_ours_must_be_within_the_tolerance():
    with pytest.raises(AssertionError, match="error 0.1 is above 0.01"):
        Contest().compare(
            "x", "y", Contestant("ours", lambda: 0.1), [], {"error": float}, tolerance=0.01,
            seconds=0.0,
        )  # fmt: skip


def test_calls_take_turns_after_a_first_one():
    turns, clock = [], Clock()

    def call_of(name, seconds):
        sleep = clock.sleeper(seconds)
        return lambda: turns.append(name) or sleep()

    _, times = take_turns([call_of("a", 1.0), call_of("b", 9e-4)], 0.0, (2, 2), clock)
    # A short call is made once more to count how often a round repeats it.
    assert "".join(turns) == "abb" + 2 * "abb"
    np.testing.assert_allclose(times, [[1.0, 9e-4]] * 2)


def test_the_coarsest_setting_within_the_tolerance_is_chosen():
    tried = []
    call = coarsest([1, 2, 3, 4], lambda k: tried.append(k) or 10.0**-k, float, 1e-2)
    assert call() == 1e-2
    assert tried == [1, 2, 2]


@pytest.mark.parametrize("errors", [[3.0, 1.0, 2.0], [np.nan, 1.0, np.nan]])
def test_the_closest_setting_is_chosen_where_none_is_within_the_tolerance(errors):
    assert coarsest(range(3), lambda k: errors[k], float, 0.5)() == 1.0


def test_times_are_of_a_unit():
    clock = Clock()
    ours, theirs = Contestant("ours", clock.sleeper(1.0), units=4), clock.sleeper(1.0)
    (row,) = Contest().compare(
        "x", "y", ours, [Contestant("theirs", theirs, units=2)], {}, seconds=0.0, clock=clock
    )
    assert row.seconds == (0.25, 0.5) and row.ratio == 2


def test_exponents_are_those_of_powers():
    sizes = np.array([10, 100, 1000])
    assert slope(sizes, 3e-6 * sizes**1.5) == pytest.approx(1.5)


def test_reports_hold_rows_curves_and_versions(tmp_path, capsys):
    clock = Clock()
    contest = contest_of_sleepers(clock)
    contest.scale(
        "sleep", "naps", [1, 4], [Contestant("ours", lambda n: clock.sleeper(n**2))],
        seconds=0.0, clock=clock,
    )  # fmt: skip
    write_report(contest, tmp_path)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    for words in ("Sleeper", "theirs", NOT_INSTALLED, "not within the tolerance", "numpy", "Cores"):
        assert words in page and words in text
    assert "data:image/png;base64," in page
    assert (tmp_path / "scaling.png").stat().st_size > 0
    kept = json.loads((tmp_path / "report.json").read_text())
    assert [row["peer"] for row in kept["rows"]] == ["theirs", "absent"]
    assert kept["curves"][0]["exponents"] == {"ours": pytest.approx(2)}
    assert "report.html" in capsys.readouterr().out


@pytest.mark.parametrize("reg", [0, 0.05])
def test_the_solver_for_benchopt_returns_plans(reg, rng):
    x, y = rng.random((60, 2)), rng.random((61, 2))
    a, b = np.full(60, 1 / 60), np.full(61, 1 / 61)
    solver = Solver()
    solver.reg = reg
    solver.set_objective(x, a, y, b)
    solver.warm_up()
    for tolerance in (np.inf, 1e-6, 0.0):
        solver.run(tolerance)
    plan = solver.get_result()["P"]
    np.testing.assert_allclose(plan.sum(axis=1), a, atol=1e-8)
    np.testing.assert_allclose(plan.sum(axis=0), b, atol=1e-8)
    cost = ((x[:, None] - y) ** 2).sum(axis=2) / 2
    assert plan.min() >= 0
    best = exact_transport(cost, a, b).cost
    assert best - 1e-9 <= (plan * cost).sum() <= best + (0.05 * np.log(61) if reg else 1e-9)
