"""Run examples and keep their pictures and what they print, for pages that are built without.

A build of the documentation runs the examples that take seconds. The others take minutes, or need
data that do not come with the package, and their pages show what is kept in ``images/gallery``. It
is made again, with the data sets named by the environment variables that the examples ask for, by

    python doc/gallery_results.py plot_movielens plot_fair_tables
"""

import contextlib
import io
import re
import resource
import runpy
import sys
from pathlib import Path

DOC = Path(__file__).parent
EXAMPLES = DOC.parent / "examples"
RESULTS = DOC / "images" / "gallery"
LARGEST_PICTURE = 100_000  # bytes


def keep_results(name):
    """Run the example `name`, keep its pictures and its output, and return its CPU seconds."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    plt.close("all")
    set_style()
    plt.show = lambda *args, **kwargs: None  # figures stay open until they are kept
    (script,) = EXAMPLES.glob(f"*/{name}.py")
    printed, before = io.StringIO(), _cpu_seconds()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(script), run_name="__main__")
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in results_of(name):
        old.unlink()
    for number in plt.get_fignums():
        _keep_picture(plt.figure(number), RESULTS / f"{name}_{number}.png")
    if printed.getvalue().strip():
        (RESULTS / f"{name}.txt").write_text(printed.getvalue().strip("\n") + "\n")
    return _cpu_seconds() - before


def set_style(*_):
    """Draw with the colours and lines of the package, and letters that are read on a page."""
    from matplotlib import pyplot as plt

    from skdpot.display import COLOURS, DASHES

    cycle = plt.cycler(color=COLOURS, linestyle=DASHES)
    plt.rcParams.update({"axes.prop_cycle": cycle, "font.size": 13, "legend.fontsize": "small"})


def pictures_of(name):
    """Return the kept pictures of the example `name`, in the order of its figures."""
    return [path for path in results_of(name) if path.suffix == ".png"]


def results_of(name):
    """Return the files that are kept of the example `name`."""
    kept = re.compile(rf"{re.escape(name)}(_\d+\.png|\.txt)")
    return sorted(path for path in RESULTS.glob("*") if kept.fullmatch(path.name))


def _keep_picture(figure, path):
    """Save a figure with few colours, and with fewer pixels where it would be too large."""
    from PIL import Image

    for dpi in (100, 80, 65, 50):
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=dpi, bbox_inches="tight")
        with Image.open(drawn) as picture:
            picture.convert("RGB").quantize(128).save(path, optimize=True)
        if path.stat().st_size < LARGEST_PICTURE:
            return
    raise RuntimeError(f"{path.name} has {path.stat().st_size} bytes")


def _cpu_seconds():
    """Return the processor time of this process and of those that it started, in seconds."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    for example in sys.argv[1:]:
        print(f"{example}: {keep_results(example):.0f} seconds of CPU time", flush=True)
