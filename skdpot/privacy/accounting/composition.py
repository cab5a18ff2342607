"""Composition: the price of many releases together, from the losses of each.

The losses of independent releases add up, so their distributions are convolved, by Fourier
transforms. The distributions are *tilted* first: multiplied by ``exp(t * loss)`` and normalised.
The tilt moves the losses in question to the middle, and the transform's rounding errors, which are
relative to the largest probability, become relative to the requested delta, however small it is.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from skdpot.privacy.accounting.losses import GridLosses

# Tilted probability that a window may miss on either side; the price includes it.
_LOG_MISSED = -40.0
# Largest relative price of what the window misses, and how many tilts are tried to reach it.
_NEGLIGIBLE, _MOST_TILTS = 1e-13, 20
# Prices are raised by the first share, plus the second for each release: far above rounding errors.
_MARGIN, _MARGIN_PER_RELEASE = 1e-9, 1e-13
# A window with more points is refused; the price is then infinite.
_MOST_POINTS = 2**24
# Losses are merged to about this many, besides the frequent ones, to find a tilt.
_COARSE_SIZE = 20_000


class _TooWide(ValueError):
    """The losses of a composition are too far apart for any grid."""


class Composition:
    """The sum of the losses of independent releases, on one grid.

    Parameters
    ----------
    parts : sequence of (GridLosses, int)
        The losses of a release, and the number of such releases, at least one.
    """

    def __init__(self, parts: Sequence[tuple[GridLosses, int]]) -> None:
        self._parts = parts
        self._step = parts[0][0].step
        survival = sum(count * math.log1p(-losses.infinite) for losses, count in parts)
        self._infinite = -math.expm1(survival)
        self._margin = 1 + _MARGIN + _MARGIN_PER_RELEASE * sum(count for _, count in parts)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of the delta at epsilon."""
        tilt = self._best_tilt(lambda t, log_mgf: log_mgf - t * epsilon)
        try:
            found = _Tilted(self._parts, tilt).delta(epsilon) + self._infinite
        except _TooWide:
            return 1.0
        return min(found * self._margin, 1.0)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of the smallest epsilon, at least 0, at delta."""
        finite = delta / self._margin - self._infinite
        if finite <= 0:
            return math.inf
        tilt = self._best_tilt(lambda t, log_mgf: (log_mgf - math.log(finite)) / t)
        found = math.inf
        for _ in range(_MOST_TILTS):
            try:
                tilted = _Tilted(self._parts, tilt)
            except _TooWide:
                break
            found = min(found, tilted.epsilon(finite))
            # A tilt that is too steep hides the losses below the largest ones.
            if math.isinf(found) or tilted.missed(found) <= _NEGLIGIBLE * finite:
                break
            tilt *= 0.7
        return found

    def _best_tilt(self, bound: Callable[[float, float], float]) -> float:
        """Return the approximate tilt with the best Chernoff bound."""
        coarse = [_coarsened(losses) for losses, _ in self._parts]
        spread = math.sqrt(
            sum(
                count * _variance(*part)
                for part, (_, count) in zip(coarse, self._parts, strict=True)
            )
        )
        spread = max(spread, self._step)

        def objective(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            log_mgf = sum(
                count * logsumexp(log_mass + tilt * losses)
                for (losses, log_mass), (_, count) in zip(coarse, self._parts, strict=True)
            )
            return bound(tilt, log_mgf)

        # A steeper tilt would resolve single grid points.
        bounds = (math.log(1e-3 / max(1, spread)), -math.log(self._step))
        found = minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 0.02})
        return math.exp(found.x)


def _coarsened(grid: GridLosses) -> tuple[np.ndarray, np.ndarray]:
    """Return losses and the logarithms of their masses, with rare ones merged if they are many."""
    every = -(-len(grid.mass) // _COARSE_SIZE)
    often = np.flatnonzero(grid.mass > 1e-6)
    starts = np.unique(np.concatenate([np.arange(0, len(grid.mass), every), often, often + 1]))
    starts = starts[starts < len(grid.mass)]
    mass = np.add.reduceat(grid.mass, starts)
    total = np.add.reduceat(grid.mass * np.arange(len(grid.mass)), starts)
    occurs = np.flatnonzero(mass)
    losses = (grid.first + total[occurs] / mass[occurs]) * grid.step
    return losses, np.log(mass[occurs])


def _variance(losses: np.ndarray, log_mass: np.ndarray) -> float:
    mass = np.exp(log_mass)
    mean = mass @ losses / mass.sum()
    return float(mass @ (losses - mean) ** 2)


class _Tilted:
    """The finite losses of a composition, in a window around those that a tilt makes likely."""

    def __init__(self, parts: Sequence[tuple[GridLosses, int]], tilt: float) -> None:
        step = parts[0][0].step
        self._tilt, self._step = tilt, step
        tilted = [_TiltedPart(losses, count, tilt) for losses, count in parts]
        # Probabilities are exp(log_scale - tilt * loss) times the tilted ones.
        self._log_scale = sum(part.log_scale for part in tilted)
        first, last = _window(tilted, step)
        if last - first >= _MOST_POINTS:
            raise _TooWide
        size = next_fast_len(last - first + 1, real=True)
        spectrum = np.ones(size // 2 + 1, dtype=complex)
        for part in tilted:
            spectrum *= part.spectrum(size)
        centre = sum(part.count * part.centre for part in tilted)
        mass = np.maximum(np.roll(irfft(spectrum, size), -((first - centre) % size)), 0)
        self._losses = (first + np.arange(size)) * step
        self._weights = self._untilted(self._losses) * mass
        # Weight of a loss that is k steps above epsilon.
        self._gains = -np.expm1(-step * np.arange(size))

    def delta(self, epsilon: float) -> float:
        """Return the delta at epsilon, from finite losses in the window."""
        above = int(np.searchsorted(self._losses, epsilon, side="right"))
        gains = -np.expm1(epsilon - self._losses[above:])
        return float(self._weights[above:] @ gains) + self.missed(epsilon)

    def _delta_at(self, position: int) -> float:
        """Return the delta at one of the losses."""
        gains = self._gains[: len(self._gains) - position]
        return float(self._weights[position:] @ gains) + self.missed(self._losses[position])

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon, at least 0, whose `delta` is small enough."""
        if self.delta(0.0) <= delta:
            return 0.0
        # The loss at `low` is too small, or negative; the loss at `high` is large enough.
        low, high = int(np.searchsorted(self._losses, 0.0)) - 1, len(self._losses) - 1
        if self._delta_at(high) > delta:
            return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            if self._delta_at(middle) <= delta:
                high = middle
            else:
                low = middle
        # Between two losses, delta is a linear function of exp(epsilon).
        end = self._losses[high]
        surplus = self._weights[high:].sum() + self.missed(max(end - self._step, 0.0)) - delta
        ratio = surplus / (self._weights[high:] @ np.exp(end - self._losses[high:]))
        if ratio <= 0:
            return float(end)
        # Rounded up by more than the error of a sum of doubles.
        return float(np.clip((end + math.log(ratio)) * (1 + 1e-14), 0.0, end))

    def missed(self, epsilon: float) -> float:
        """Return a bound on the mass of losses above the window, or between it and epsilon."""
        ends = np.array([epsilon, self._losses[-1]])
        return float(self._untilted(ends).sum()) * math.exp(_LOG_MISSED)

    def _untilted(self, losses: np.ndarray) -> np.ndarray:
        """Return the divisor of probabilities, or a huge smaller number if it overflows."""
        return np.exp(np.minimum(self._log_scale - self._tilt * losses, 600))


class _TiltedPart:
    """The tilted losses of one release, for `count` compositions."""

    def __init__(self, grid: GridLosses, count: int, tilt: float) -> None:
        occurs = np.flatnonzero(grid.mass)
        self._tilt, self.count = tilt, count
        self._index = grid.first + occurs
        self._log_mass = np.log(grid.mass[occurs])
        self._losses = self._index * grid.step
        log_mgf = self.log_mgf(0.0)
        self.log_scale = count * log_mgf
        self._mass = np.exp(self._log_mass + tilt * self._losses - log_mgf)
        mean = self._mass @ self._losses
        self.variance = float(self._mass @ (self._losses - mean) ** 2)
        self.centre = round(mean / grid.step)

    def log_mgf(self, further: float) -> float:
        """Return the log moment generating function at the tilt plus further numbers."""
        return float(logsumexp(self._log_mass + (self._tilt + further) * self._losses))

    def spectrum(self, size: int) -> np.ndarray:
        """Return the Fourier transform of the composed losses, relative to `count * centre`."""
        wrapped = np.bincount((self._index - self.centre) % size, self._mass, size)
        # Phases near the centre are small, and so are their errors in the power.
        return rfft(wrapped) ** self.count


def _window(parts: Sequence[_TiltedPart], step: float) -> tuple[int, int]:
    """Return the range of indices with nearly all of the tilted losses (Chernoff bounds)."""
    log_scale = sum(part.log_scale for part in parts)
    spread = math.sqrt(sum(part.count * part.variance for part in parts))
    below, above = [], []
    steepest = 32 / max(spread, step)
    for further in np.geomspace(min(0.5, steepest / 64), steepest, 6):
        up = sum(part.count * part.log_mgf(further) for part in parts) - log_scale
        down = sum(part.count * part.log_mgf(-further) for part in parts) - log_scale
        above.append((up - _LOG_MISSED) / further)
        below.append((_LOG_MISSED - down) / further)
    return math.floor(max(below) / step), math.ceil(min(above) / step)
