"""``python -m skdpot``: a tour of samplers, fair rows and synthetic records, or a command."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from skdpot import __version__

_INTRODUCTION = """\
{n_users:,} users, the digit images of scikit-learn: each is a distribution over a map of 8 x 8
pixels. Every user releases ONE pixel under epsilon-local differential privacy, drawn with noise of
the operating system's cryptographic source; nobody else sees the distribution.
(The first run also compiles kernels, for some seconds; they are kept.)
"""
_CLOSING = """
Only the samples are private. The distances use the users' own distributions, and can be shown only
because these data are public. Both projections start from the same base measure: the multiple of
the uniform distribution with the best worst case.
"""
_NO_MATPLOTLIB = """\
No picture: matplotlib is not installed. `python -m pip install matplotlib` adds it, as does
installing this package with its extra "plot".
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour or the command that the first argument names, and return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and not arguments[0].startswith("-"):
        from skdpot import _synthesize

        return _synthesize.main(arguments)
    options = _parse(arguments)
    # The tour needs nearly all of the package, and a command does not.
    from skdpot import _fair_tour, _generator_tour, _tour
    from skdpot._warm import warm

    if options.warm:
        for name, seconds in warm():
            print(f"{seconds:6.1f} s  {name}", flush=True)
        return 0
    users = _tour.load_users(options.users)
    print(_INTRODUCTION.format(n_users=len(users)))
    bounds = _tour.limits(users)
    n_releases = len(_tour.EPSILONS) * len(_tour.MECHANISMS)
    progress = tqdm(_tour.releases(users), total=n_releases, unit="release")
    results = {(epsilon, mechanism): release for epsilon, mechanism, release in progress}
    print(f"\n{_tour.table(results, bounds)}\n{_CLOSING}")
    print(_fair_tour.table(_fair_tour.outcomes(_fair_tour.load_patients())), end="\n\n")
    print(_generator_tour.table(_generator_tour.outcomes(_generator_tour.load())), end="\n\n")
    try:
        figure = _tour.draw(users, results, bounds)
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print(_NO_MATPLOTLIB)
        return 0
    try:
        figure.savefig(options.output, format="png", dpi=120)
    except OSError as error:
        print(f"The picture could not be written: {error}", file=sys.stderr)
        return 1
    print(f"Picture: {options.output.resolve()}")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m skdpot",
        description="A tour: private samples of 1,797 users' distributions, a table of utility "
        "against epsilon, and a picture; fair data of 442 patients; and synthetic digits.",
        epilog="`python -m skdpot synthesize --help`: synthetic tables of private ones; `python -m "
        "skdpot template --help`: the schemas of these.",
    )
    add = parser.add_argument
    output = Path("skdpot_tour.png")
    add("--output", type=Path, default=output, metavar="PATH",
        help="where the picture goes (default: %(default)s); needs matplotlib")  # fmt: skip
    add("--users", type=_positive_integer, metavar="N",
        help="take only the first N users (default: all 1,797)")  # fmt: skip
    add(
        "--warm",
        action="store_true",
        help="only compile and cache the kernels, so that first calls need not wait",
    )
    add("--version", action="version", version=f"skdpot {__version__}")
    options = parser.parse_args(arguments)
    if not options.output.parent.is_dir():
        parser.error(f"there is no folder {str(options.output.parent)!r} for the picture")
    return options


def _positive_integer(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
