"""The tour's first part: private samples of the digit images of scikit-learn, with a picture.

Every image is the distribution of one user over a map of 8 x 8 places, its pixels. A picture needs
matplotlib, which is imported when it is drawn.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from skdpot.display import FrontierDisplay
from skdpot.sampling import (
    ExponentialMechanismSampler,
    KLProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.transport import transport_costs

SIDE = 8
PIXELS = np.stack(np.unravel_index(np.arange(SIDE**2), (SIDE, SIDE)), axis=1).astype(float)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SHOWN_EPSILON = 2.0
SHOWN_USER = 3
WASSERSTEIN, KL, EXPONENTIAL = "Wasserstein projection", "KL projection", "exponential mechanism"
MECHANISMS = (WASSERSTEIN, KL, EXPONENTIAL)
UNIFORM, NO_PRIVACY = "a pixel at random", "samples without privacy"


class Release(NamedTuple):
    """One private sample of every user, and its quality.

    Attributes
    ----------
    distance : float
        Mean distance, in pixels, between users' distributions and those their samples are drawn
        from. Not private.
    error : float
        Distance, in pixels, between the average of the users' distributions and `collected`. Not
        private.
    collected : ndarray of shape (n_pixels,)
        The share of the samples that fell on each pixel: private, and all that is collected.
    projected : ndarray of shape (n_pixels,)
        The distribution that the sample of one user was drawn from. Not private.
    """

    distance: float
    error: float
    collected: np.ndarray
    projected: np.ndarray


def load_users(n_users: int | None = None) -> np.ndarray:
    """Return the weights of users over the pixels, one row per user; by default all 1,797."""
    return load_digits().data[:n_users]


def average(users: np.ndarray) -> np.ndarray:
    """Return the mean of the users' distributions."""
    return (users / users.sum(axis=1, keepdims=True)).mean(axis=0)


def releases(users: np.ndarray) -> Iterator[tuple[float, str, Release]]:
    """Release one sample per user with every epsilon and every mechanism.

    Yields
    ------
    epsilon, mechanism, release
        Each, when it is done.
    """
    for epsilon in EPSILONS:
        # Of all multiples of the uniform distribution, the one with the smallest worst case. It
        # serves both projections: with its own base measure the KL projection is farther off.
        wasserstein = WassersteinProjectionSampler(
            epsilon, input_points=PIXELS, base_measure="uniform"
        ).fit(users)
        samplers = {
            WASSERSTEIN: wasserstein,
            KL: KLProjectionSampler(
                epsilon, input_points=PIXELS, base_measure=wasserstein.base_measure_
            ).fit(users),
            EXPONENTIAL: ExponentialMechanismSampler(epsilon, input_points=PIXELS).fit(users),
        }
        for name, sampler in samplers.items():
            yield epsilon, name, _release(sampler, users)


def limits(users: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return distance and error of samples that are independent of the data, and of exact ones."""
    found = {}
    for name, weights in ((UNIFORM, np.ones_like(users)), (NO_PRIVACY, users)):
        ends = np.cumsum(weights, axis=1)
        drawn = np.random.default_rng(0).random(len(ends)) * ends[:, -1]
        pixels = (ends <= drawn[:, None]).sum(axis=1)
        found[name] = float(np.mean(_distances(users, weights))), _error(users, _shares(pixels))
    return found


def _release(sampler: Any, users: np.ndarray) -> Release:
    collected = _shares(sampler.sample(users)[:, 0])
    shown = sampler.project(users[[SHOWN_USER % len(users)]])[0]
    return Release(-sampler.score(users), _error(users, collected), collected, shown)


def _shares(pixels: np.ndarray) -> np.ndarray:
    return np.bincount(pixels, minlength=len(PIXELS)) / len(pixels)


def _distances(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return transport_costs(sources, targets, cdist(PIXELS, PIXELS))


def _error(users: np.ndarray, collected: np.ndarray) -> float:
    return float(_distances(average(users)[None], collected[None])[0])


def table(results: dict[tuple[float, str], Release], bounds: dict[str, tuple[float, float]]) -> str:
    """Return distances and errors against epsilon, as text."""
    parts = []
    headings = (
        "How far a user's sample is drawn from her own distribution, on average",
        "How far the map of all samples is from the average of all distributions",
    )
    for measure, heading in enumerate(headings):
        parts += [heading, _line("epsilon", [f"{epsilon:g}" for epsilon in EPSILONS])]
        for name in MECHANISMS:
            values = [results[epsilon, name][measure] for epsilon in EPSILONS]
            parts.append(_line(name, [f"{value:.3f}" for value in values]))
        for name in (UNIFORM, NO_PRIVACY):
            parts.append(_line(f"({name})", [f"{bounds[name][measure]:.3f}"] * len(EPSILONS)))
        parts.append("")
    parts.append(
        "Wasserstein distances of order 1, in pixels; smaller is better. The noise of the samples "
        "moves\nthe second table by about 0.03 from run to run."
    )
    return "\n".join(parts)


def _line(name: str, cells: list[str]) -> str:
    return f"  {name:<26}" + "".join(f"{cell:>8}" for cell in cells)


def draw(
    users: np.ndarray,
    results: dict[tuple[float, str], Release],
    bounds: dict[str, tuple[float, float]],
) -> Any:
    """Return the picture, a matplotlib figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.75), layout="constrained", facecolor="white")
    halves: Any = figure.subfigures(1, 2, width_ratios=[1, 1.42], wspace=0.04)
    distances = {
        name: (EPSILONS, [[results[epsilon, name].distance] for epsilon in EPSILONS])
        for name in MECHANISMS
    }
    axes = halves[0].subplots()
    FrontierDisplay.from_scores(
        distances, ax=axes, score_name="mean Wasserstein distance, in pixels",
        cost_name=r"$\varepsilon$  (smaller is more private)",
    )  # fmt: skip
    axes.axhline(bounds[UNIFORM][0], color="0.55", linestyle="--", label=UNIFORM)
    axes.set(ylim=(0, None), title="From a user to what she samples from")
    axes.legend(fontsize="small")
    _draw_maps(halves[1], users, results)
    return figure


def _draw_maps(figure: Any, users: np.ndarray, results: Any) -> None:
    shown = users[SHOWN_USER % len(users)]
    rows = (
        ("a user\n(kept to herself)", shown / shown.sum(), "projected"),
        (f"{len(users):,} users\n(collected)", average(users), "collected"),
    )
    axes = figure.subplots(2, 1 + len(MECHANISMS))
    for line, (label, truth, field) in zip(axes, rows, strict=True):
        maps = [truth, *(getattr(results[SHOWN_EPSILON, name], field) for name in MECHANISMS)]
        for place, image in zip(line, maps, strict=True):
            place.imshow(image.reshape(SIDE, SIDE), cmap="magma", vmin=0, vmax=np.max(maps))
            place.set(xticks=[], yticks=[])
        line[0].set_ylabel(label)
    for place, name in zip(axes[0], ("truth", *MECHANISMS), strict=True):
        place.set_title(name.replace(" ", "\n"), fontsize="medium")
    figure.supxlabel(
        rf"At $\varepsilon = {SHOWN_EPSILON:g}$. Above, what a user draws her one pixel from. "
        "Below, where everybody's pixels fell.",
        fontsize="small",
    )
