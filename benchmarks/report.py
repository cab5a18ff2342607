"""Reports of a contest: a page for browsers, Markdown, and a picture of its curves."""

import base64
import html
import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from threadpoolctl import threadpool_info

import skdpot
from benchmarks.contest import NOT_INSTALLED, ONE_THREAD, Contest, Row
from benchmarks.quiet import QUIET, load
from skdpot.display import COLOURS, MARKERS, load_pyplot

PACKAGES = (
    *("numpy", "scipy", "scikit-learn", "numba", "joblib", "pot", "regot", "geomloss"),
    *("torch", "ott-jax", "jax", "fairlearn", "equipy", "diffprivlib", "dp-accounting"),
    "opendp",
)
HEADINGS = ("Work", "Ours", "Peer", "Ours", "Peer", "Peer / ours", "Reached (ours / peer)")
HOW = (
    "Ours and the peers did the work in turns (A B C A B C ...), after a first call of each that "
    "is not timed. Times are the processor's, of all threads of a process, which do not count what "
    "other programs do meanwhile; those of charges to a ledger, which wait for a disk, are those "
    "of a clock on the wall. They are medians, and a ratio is the median of the ratios within a "
    "round, with their quartiles and extremes in brackets: above 1 we are faster. Where there "
    "is a tolerance, each was given the coarsest of its settings that reaches it; what was reached "
    "was measured on what was returned."
)
STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}"
    ".slower{background:#fde7dc}img{max-width:100%}"
)


def machine(contest: Contest) -> dict[str, str]:
    """Return what the benchmarks ran on, by name, and whether it was quiet."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), model)
    found = {"Processor": model, "Cores": str(os.cpu_count())}
    if hasattr(os, "sysconf"):
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        found["Memory"] = f"{size / 2**30:.0f} GiB"
    found["Load before"] = f"{contest.load:.1f} (mean of a minute)"
    found["Load when it ended"] = f"{load():.1f}, of which the benchmarks are about 1"
    found["Quiet"] = contest.warning or "yes, as far as can be known"
    found["Processor time of the whole run"] = f"{time.process_time():.0f} s"
    return found | {"System": platform.system(), "Python": platform.python_version()}


def versions() -> dict[str, str]:
    return {"skdpot": skdpot.__version__} | {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return NOT_INSTALLED


def threads() -> dict[str, str]:
    """Return what holds contestants to one thread."""
    pools = {one["user_api"] for one in threadpool_info()}
    return {
        "Pools held to one thread": ", ".join(sorted(pools)),
        "Environment": ", ".join(f"{name}={value}" for name, value in ONE_THREAD.items()),
    }


def facts(contest: Contest) -> dict[str, dict[str, str]]:
    """Return what is not about the work, by title."""
    return {"Machine": machine(contest), "Threads": threads(), "Versions": versions()}


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's words, in the order of the headings."""
    if row.ratio is None:
        return row.work, row.ours, row.peer, "", "", row.note, ""
    reached = "; ".join(f"{name} {a:.2g} / {b:.2g}" for name, (a, b) in row.figures.items())
    if row.tolerance is not None:
        reached += f" (tolerance {row.tolerance:g})"
    if row.same_accuracy is False:
        reached += "; the peer is not within the tolerance"
    if row.note:
        reached += f"; {row.note}"
    if row.others is not None and row.others > QUIET:
        reached += f"; others kept {row.others:.1f} cores busy"
    ratio = f"{row.ratio:.3g} ({row.spread})"
    return row.work, row.ours, row.peer, *map(duration, row.seconds), ratio, reached


def duration(seconds: float) -> str:
    """Return a time in its unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def by_estimator(contest: Contest) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in contest.rows:
        found.setdefault(row.estimator, []).append(row)
    return found


def curve_rows(contest: Contest) -> list[tuple[str, ...]]:
    """Return the curves' words: title, who, sizes, times, exponent."""
    found = []
    for curve in contest.curves:
        for name, times in curve.seconds.items():
            sizes = curve.sizes[name]
            span = f"{sizes[0]:,} to {sizes[-1]:,} {curve.along}"
            took = f"{duration(times[0])} to {duration(times[-1])}"
            found.append((curve.title, name, span, took, f"{curve.exponents[name]:.2f}"))
        found += [(curve.title, name, "", "", NOT_INSTALLED) for name in curve.missing]
    return found


CURVE_HEADINGS = ("Work", "Who", "Size", "Time", "Exponent")


def draw(contest: Contest, path: Path) -> None:
    """Draw all curves into one picture."""
    pyplot = load_pyplot()
    n_columns = 3
    n_lines = -(-len(contest.curves) // n_columns)
    figure, axes = pyplot.subplots(
        n_lines, n_columns, figsize=(11, 3.3 * n_lines), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(contest.curves) :]:
        axis.set_axis_off()
    for axis, curve in zip(axes.flat, contest.curves, strict=False):
        marks = zip(curve.seconds.items(), COLOURS, MARKERS, strict=False)
        for (name, times), colour, marker in marks:
            label = f"{name}: {curve.exponents[name]:.1f}"
            axis.loglog(curve.sizes[name], times, color=colour, marker=marker, label=label)
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_minor_formatter("")
        axis.set(title=curve.title, xlabel=curve.along, ylabel="seconds")
        axis.title.set_size("medium")
        axis.legend(fontsize="x-small", title="exponents", title_fontsize="x-small")
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def as_markdown(contest: Contest) -> str:
    def table(headings, rows):
        lines = [headings, ["---"] * len(headings), *rows]
        return ["| " + " | ".join(line) + " |" for line in lines]

    parts = ["# Benchmarks of skdpot", "", HOW, "", contest.warning, ""]
    for title, found in facts(contest).items():
        parts += [f"## {title}", "", *(f"- {name}: {value}" for name, value in found.items()), ""]
    for estimator, rows in by_estimator(contest).items():
        parts += [f"## {estimator}", "", *table(HEADINGS, map(cells, rows)), ""]
    if contest.curves:
        parts += ["## Time against size", "", "![Curves](scaling.png)", ""]
        parts += [*table(CURVE_HEADINGS, curve_rows(contest)), ""]
    return "\n".join(parts)


def as_html(contest: Contest, picture: bytes | None) -> str:
    def table(headings, rows, classes):
        yield "<table><tr>" + "".join(f"<th>{name}</th>" for name in headings) + "</tr>"
        for row, name in zip(rows, classes, strict=True):
            inner = "".join(f"<td>{html.escape(word)}</td>" for word in row)
            yield f'<tr class="{name}">{inner}</tr>'
        yield "</table>"

    title = "Benchmarks of skdpot"
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"]
    parts += [f"<style>{STYLE}</style><h1>{title}</h1><p>{HOW} Where we lose is coloured.</p>"]
    parts += [f"<p><b>{contest.warning}</b></p>"]
    for estimator, rows in by_estimator(contest).items():
        lost = ["slower" if row.ratio is not None and row.ratio < 1 else "" for row in rows]
        parts += [f"<h2>{html.escape(estimator)}</h2>", *table(HEADINGS, map(cells, rows), lost)]
    if picture is not None:
        data = base64.b64encode(picture).decode()
        rows = curve_rows(contest)
        parts += ["<h2>Time against size</h2>", f'<img alt="" src="data:image/png;base64,{data}">']
        parts += table(CURVE_HEADINGS, rows, [""] * len(rows))
    for name, found in facts(contest).items():
        items = "".join(f"<li>{html.escape(': '.join(fact))}</li>" for fact in found.items())
        parts.append(f"<h2>{name}</h2><ul>{items}</ul>")
    return "\n".join([*parts, "</html>"])


def write_report(contest: Contest, folder: Path) -> None:
    """Write all files of the report, and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "scaling.png"
    if contest.curves:
        draw(contest, picture)
    kept = {name.lower(): found for name, found in facts(contest).items()} | contest.as_dict()
    (folder / "report.json").write_text(json.dumps(kept, indent=1))
    (folder / "report.md").write_text(as_markdown(contest))
    data = picture.read_bytes() if contest.curves else None
    (folder / "report.html").write_text(as_html(contest, data))
    print(f"\n{contest.warning}" * bool(contest.warning))
    print(f"\nreport: {(folder / 'report.html').resolve()}")
