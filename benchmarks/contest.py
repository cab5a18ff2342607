"""Ours beside what a user would pick instead: the same work, in turns, to the same accuracy.

A `Contestant` does the work once when it is called. `Contest.compare` lets ours and the peers do it
in turns (A B A B ...), so that whatever else the machine does meets all of them alike, and makes a
row of each peer: the median of the ratios of neighbouring times, and what either one reached.
`Contest.scale` does so at several sizes, and fits the exponent with which times grow.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.quiet import QUIET, Watch, load

# A round of a call that is shorter repeats it.
SHORTEST = 2e-3
# A first call that took so long tells that nothing has to be repeated.
LONG = 0.5
ROUNDS = (3, 15)
NOT_INSTALLED = "not installed"
# What libraries read when they are loaded, and programs that are started by a benchmark.
ONE_THREAD = {
    **dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}


@dataclass(frozen=True)
class Contestant:
    """Who does the work.

    Attributes
    ----------
    name : str
    call : callable
        Does the work, of the size that it is given in a curve, and returns what came out. It
        imports what it needs: its first call is not timed.
    package : str or None
        What has to be installed for it, by the name that is imported.
    units : int
        How often a call does the work; times are divided by it.
    """

    name: str
    call: Callable
    package: str | None = None
    units: int = 1

    @property
    def is_installed(self) -> bool:
        return self.package is None or find_spec(self.package) is not None


@dataclass(frozen=True)
class Row:
    """One comparison with one peer; times are in seconds, and a ratio above 1 says we are faster.

    Attributes
    ----------
    ratios : pair of float or None
        The least and the largest ratio of a round.
    quartiles : pair of float or None
        Between which half of the ratios lie.
    others : float or None
        How many cores other programs kept busy meanwhile; None where that is not known.
    figures : dict of str to pair of float
        What was reached, by us and by the peer.
    tolerance : float or None
        What the first figure may be at most; None where more or less of it is no error.
    note : str
        What a reader has to know of the peer, or why nothing was measured.
    """

    estimator: str
    work: str
    ours: str
    peer: str
    note: str = ""
    seconds: tuple[float, float] | None = None
    ratio: float | None = None
    ratios: tuple[float, float] | None = None
    quartiles: tuple[float, float] | None = None
    n_rounds: int = 0
    others: float | None = None
    figures: dict[str, tuple[float, float]] = field(default_factory=dict)
    tolerance: float | None = None

    @property
    def same_accuracy(self) -> bool | None:
        """Tell whether the peer got within the tolerance, too; None if there is none."""
        if self.tolerance is None or not self.figures:
            return None
        return next(iter(self.figures.values()))[1] <= self.tolerance

    @property
    def spread(self) -> str:
        """The quartiles of the ratios, their extremes, and of how many rounds."""
        (low, high), (least, most) = self.quartiles, self.ratios
        return f"{low:.3g} to {high:.3g}, all {least:.3g} to {most:.3g}, {self.n_rounds} rounds"

    def __str__(self) -> str:
        if self.ratio is None:
            return f"  {self.peer:34s} {self.note}"
        reached = "; ".join(f"{name} {a:.3g} / {b:.3g}" for name, (a, b) in self.figures.items())
        verdict = {None: "", True: "", False: "  NOT THE SAME ACCURACY"}[self.same_accuracy]
        return (
            f"  {self.peer:34s} {self.seconds[1]:10.4g} s, ratio {self.ratio:8.3g} "
            f"({self.spread}); {reached}{verdict}"
        )


@dataclass(frozen=True)
class Curve:
    """How long work of growing size takes, in seconds; ours is the first."""

    title: str
    along: str
    sizes: dict[str, list[int]]
    seconds: dict[str, list[float]]
    missing: list[str]

    @property
    def exponents(self) -> dict[str, float]:
        """Return the slopes of least squares through the logarithms of times."""
        return {name: slope(self.sizes[name], times) for name, times in self.seconds.items()}

    def __str__(self) -> str:
        lines = []
        for name, times in self.seconds.items():
            points = zip(self.sizes[name], times, strict=True)
            shown = ", ".join(f"{size}: {took:.3g} s" for size, took in points)
            lines.append(f"  {name:34s} exponent {self.exponents[name]:.2f}  ({shown})")
        return "\n".join([*lines, *(f"  {name:34s} {NOT_INSTALLED}" for name in self.missing)])


def slope(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return by which power of the size times grow; NaN for a single size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0]) if len(sizes) > 1 else np.nan


def take_turns(
    calls: Sequence[Callable],
    seconds: float,
    rounds: tuple[int, int] = ROUNDS,
    clock: Callable[[], float] = time.process_time,
) -> tuple[list, np.ndarray]:
    """Return what each call returns, and times of shape (n_rounds, n_calls) by the clock.

    A first call of each, which compiles what has to be compiled, is not timed. Rounds end after
    about so many seconds of waiting, but for the least number of them.
    """
    results, repeats = [], []
    for call in calls:
        start = clock()
        results.append(call())
        is_slow = clock() - start > LONG
        repeats.append(1 if is_slow else max(1, int(SHORTEST / _timed(call, 1, clock))))
    times: list[list[float]] = []
    begun = time.perf_counter()
    while len(times) < rounds[0] or (
        len(times) < rounds[1] and time.perf_counter() - begun < seconds
    ):
        times.append([_timed(*of, clock) for of in zip(calls, repeats, strict=True)])
    return results, np.array(times)


def _timed(call: Callable, repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def coarsest(
    settings: Iterable[Any], run: Callable, error: Callable, tolerance: float
) -> Callable[[], Any]:
    """Return the call of `run` at the first setting whose error is within the tolerance.

    Where none is, at the one that comes closest. Settings go from coarse to fine, so that nobody is
    slower than accuracy asks for.
    """
    closest, chosen = np.inf, None
    for setting in settings:
        reached = error(run(setting))
        if reached < closest or chosen is None:
            chosen = setting
        closest = min(closest, reached)
        if reached <= tolerance:
            break
    return lambda: run(chosen)


class Contest:
    """Compares, prints, and keeps what was found for a report.

    Parameters
    ----------
    quick : bool, default=False
        Whether to compare at reduced sizes.
    min_rounds : int, default=1
        Rounds of each comparison at least, whatever it asks for itself.

    Attributes
    ----------
    load : float
        How many programs wanted a core in the minute before.
    """

    def __init__(self, *, quick: bool = False, min_rounds: int = 1) -> None:
        self.quick = quick
        self.min_rounds = min_rounds
        self.load = load()
        self.rows: list[Row] = []
        self.curves: list[Curve] = []

    @property
    def warning(self) -> str:
        """What says that the machine was not quiet; empty if it was, or nobody knows."""
        found = [row.others for row in self.rows if row.others is not None and row.others > QUIET]
        if not found:
            return ""
        return (
            f"THE MACHINE WAS NOT QUIET: in {len(found)} of {len(self.rows)} comparisons other "
            f"programs kept more than {QUIET} cores busy, and {max(found):.2g} at most."
        )

    def size(self, whole: Any, quick: Any) -> Any:
        """Return one of two sizes of a problem: that of the whole comparison, or a quick one."""
        return quick if self.quick else whole

    def compare(
        self,
        estimator: str,
        work: str,
        ours: Contestant,
        peers: Sequence[Contestant],
        figures: Mapping[str, Callable[[Any], float]],
        *,
        tolerance: float | None = None,
        notes: Mapping[str, str] | None = None,
        seconds: float | None = None,
        rounds: tuple[int, int] = ROUNDS,
        clock: Callable[[], float] = time.process_time,
    ) -> list[Row]:
        """Compare with each peer that is installed, and return the rows.

        Times are those of the processor, which do not count what other programs do meanwhile;
        where somebody waits for a disk, or for another process, take ``time.perf_counter``.
        """
        present = [peer for peer in peers if peer.is_installed]
        calls = [one.call for one in (ours, *present)]
        patience = self.size(10.0, 3.0) if seconds is None else seconds
        rounds = tuple(max(number, self.min_rounds) for number in rounds)
        watch = Watch()
        results, times = take_turns(calls, patience, rounds, clock)
        others = watch.others()
        times /= [one.units for one in (ours, *present)]
        reached = [
            {name: float(figure(result)) for name, figure in figures.items()} for result in results
        ]
        medians, ratios = np.median(times, axis=0).tolist(), times / times[:, :1]
        common = {"estimator": estimator, "work": work, "ours": ours.name, "tolerance": tolerance}
        found = [
            Row(
                peer=peer.name,
                note=(notes or {}).get(peer.name, ""),
                seconds=(medians[0], medians[k]),
                ratio=float(np.median(ratios[:, k])),
                ratios=(float(ratios[:, k].min()), float(ratios[:, k].max())),
                quartiles=tuple(np.quantile(ratios[:, k], [0.25, 0.75]).tolist()),
                others=others,
                n_rounds=len(times),
                figures={name: (of, reached[k][name]) for name, of in reached[0].items()},
                **common,
            )
            for k, peer in enumerate(present, start=1)
        ]
        missing = [peer for peer in peers if not peer.is_installed]
        found += [Row(peer=peer.name, note=NOT_INSTALLED, **common) for peer in missing]
        print(f"\n{estimator}: {work}\n  {ours.name:34s} {medians[0]:10.4g} s")
        print(*found, sep="\n")
        self.rows += found
        if tolerance is not None:
            name, own = next(iter(reached[0].items()))
            assert own <= tolerance, f"{ours.name}: {name} {own:.3g} is above {tolerance:g}"
        return found

    def scale(
        self,
        title: str,
        along: str,
        sizes: Sequence[int],
        contestants: Sequence[Contestant],
        *,
        largest: Mapping[str, int] | None = None,
        seconds: float = 2.0,
        clock: Callable[[], float] = time.process_time,
    ) -> Curve:
        """Time all contestants at each size, up to the largest that is asked of each.

        A contestant's `call` takes a size and returns the work: a function without arguments.
        """
        present = [one for one in contestants if one.is_installed]
        reached: dict[str, list[int]] = {one.name: [] for one in present}
        times: dict[str, list[float]] = {one.name: [] for one in present}
        for size in sizes:
            those = [one for one in present if size <= (largest or {}).get(one.name, size)]
            _, took = take_turns([one.call(size) for one in those], seconds, (2, 15), clock)
            for one, median in zip(those, np.median(took, axis=0), strict=True):
                reached[one.name].append(size)
                times[one.name].append(float(median))
        missing = [one.name for one in contestants if not one.is_installed]
        curve = Curve(title, along, reached, times, missing)
        print(f"\n{title}, time against {along}\n{curve}")
        self.curves.append(curve)
        return curve

    def as_dict(self) -> dict[str, Any]:
        """Return all that was found, as numbers and words."""
        return {
            "warning": self.warning,
            "rows": [asdict(row) for row in self.rows],
            "curves": [asdict(curve) | {"exponents": curve.exponents} for curve in self.curves],
        }
