"""A board of private images: what classifiers learn from each method's, and lists for a page.

An `ImageResult` is what one method made of one set of images at one epsilon with one seed.
`ImageBoard` keeps them in a file of the repository.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fair_board import brief_seconds, list_table, mean_and_error
from benchmarks.stored_board import StoredBoard

OURS, REAL = "ours", "real images"
RESULTS = Path(__file__).with_name("image_results.json")
PAGE = Path(__file__).parents[1] / "doc" / "images_measured.inc"
EPSILONS = (10.0, 1.0, 0.2)
CLASSIFIERS = ("strided", "max-pooling", "batch norm", "residual", "boosting")
# Measures by the headings of the page, with the number of digits.
MEASURES = {
    "precision": ("precision", 2),
    "recall": ("recall", 2),
    "divergence": ("divergence", 2),
    "saturated": ("saturated", 3),
    "empty": ("empty", 3),
    "low": ("power, low", 2),
    "middle": ("middle", 2),
    "high": ("high", 2),
    "fine": ("fine structure", 1),
    "fine_on_real": ("on real", 1),
}


@dataclass(frozen=True)
class ImageResult:
    """What one method made of one set of images.

    Attributes
    ----------
    split : {"held-out", "test"}
        The real images by which it was judged.
    protocol : str
        From how many images, in how many passes, classifiers learned.
    accuracy : dict of str to float
        Of each classifier, in per cent.
    seconds : float
        Of the processor, to fit and to sample.
    """

    images: str
    method: str
    epsilon: float
    seed: int
    split: str
    protocol: str
    accuracy: dict[str, float]
    measures: dict[str, float]
    seconds: float
    version: str

    @property
    def key(self) -> tuple:
        return self.images, self.split, self.protocol, self.method, self.epsilon, self.seed

    @property
    def mean(self) -> float:
        """Return the mean over classifiers."""
        return float(np.mean(list(self.accuracy.values())))


class ImageBoard(StoredBoard[ImageResult]):
    """All results of images."""

    kind, file = ImageResult, RESULTS

    def ceiling(self, result: ImageResult) -> dict[str, float] | None:
        """Return what each classifier gets right that learned from as many real images."""
        where = {"images": result.images, "split": result.split, "protocol": result.protocol}
        found = [one.accuracy for one in self.select(method=REAL, **where)]
        if not found:
            return None
        return {name: float(np.mean([one[name] for one in found])) for name in found[0]}

    def shortcut(self, result: ImageResult) -> float:
        """Return by how much fine structure tells made images apart better than real ones.

        In per cent; above 0 it is a shortcut that misleads whoever learns from the images.
        """
        where = {"images": result.images, "split": result.split, "protocol": result.protocol}
        real = [one.measures["fine"] for one in self.select(method=REAL, **where)]
        return result.measures["fine"] - float(np.mean(real)) if real else np.nan


def runs_of(board: ImageBoard, results: Sequence[ImageResult]) -> list[list[ImageResult]]:
    """Return the results of each method at each epsilon, real images first."""
    keys = {(one.method != REAL, -one.epsilon, one.method) for one in results}
    return [
        [one for one in results if (one.method, one.epsilon) == (method, -epsilon)]
        for _, epsilon, method in sorted(keys)
    ]


def accuracies_of(board: ImageBoard, results: Sequence[ImageResult]) -> list[str]:
    """Return the lines of what classifiers get right, and how far the worst is from its ceiling."""
    rows = []
    for runs in runs_of(board, results):
        shown = [_brief([one.accuracy[name] for one in runs], 1) for name in CLASSIFIERS]
        shown.append(_brief([one.mean for one in runs], 1))
        ceiling = board.ceiling(runs[0])
        below = ""
        if ceiling and runs[0].method != REAL:
            worst = [max(ceiling[n] - one.accuracy[n] for n in CLASSIFIERS) for one in runs]
            below = _brief(worst, 1)
        rows.append([*_names(runs), *shown, below, _seconds(runs)])
    headings = ["method", "epsilon", *CLASSIFIERS, "mean", "worst below real", "seconds"]
    return list_table(headings, rows)


def measures_of(board: ImageBoard, results: Sequence[ImageResult]) -> list[str]:
    """Return the lines of how near images are to real ones; a shortcut is bold."""
    rows = []
    for runs in runs_of(board, results):
        shown = [
            _brief([one.measures[name] for one in runs], digits)
            for name, (_, digits) in MEASURES.items()
        ]
        if np.mean([board.shortcut(one) for one in runs]) > 0:
            place = list(MEASURES).index("fine")
            shown[place] = f"**{shown[place]}**"
        rows.append([*_names(runs), *shown])
    return list_table(["method", "epsilon", *(title for title, _ in MEASURES.values())], rows)


def _names(runs: Sequence[ImageResult]) -> list[str]:
    method = runs[0].method
    return [
        f"**{method}**" if method.startswith(OURS) else method,
        "" if method == REAL else f"{runs[0].epsilon:g}",
    ]


def _seconds(runs: Sequence[ImageResult]) -> str:
    return "" if runs[0].method == REAL else brief_seconds([one.seconds for one in runs])


def _brief(values: Sequence[float], digits: int) -> str:
    """Return a mean, with the standard error in brackets where there are several values."""
    mean, error = mean_and_error(values)
    shown = f"{mean:.{digits}f}"
    return shown if np.isnan(error) else f"{shown} ({error:.{digits}f})"


def page_of(board: ImageBoard, titles: dict[str, str]) -> str:
    """Return sections for the documentation."""
    lines: list[str] = []
    for name, title in titles.items():
        here = board.select(images=name)
        if here:
            lines += [title, "-" * len(title), ""]
        for split, protocol in sorted({(one.split, one.protocol) for one in here}):
            part = [one for one in here if (one.split, one.protocol) == (split, protocol)]
            seeds = len({one.seed for one in part if one.method != REAL})
            judged = {"held-out": "held-out training images", "test": "test images"}[split]
            lines += [f"Learned from {protocol}; judged by {judged}; seeds: {seeds}.", ""]
            lines += [*accuracies_of(board, part), *measures_of(board, part)]
    return "\n".join(lines)
