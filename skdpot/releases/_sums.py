"""Releases of vectors and of sums over records: what every release is, and its noise."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import ndtri_exp

from skdpot.privacy.accounting import check_relation
from skdpot.privacy.charging import ExpectedError
from skdpot.privacy.events import DpEvent, GaussianDpEvent, PlannedDpEvent
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism, NoiseSource

# Half widths of the intervals that hold unit noise with a probability of 95 %.
_LAPLACE_QUANTILE = math.log(20.0)
_NORMAL_QUANTILE = 1.959963984540054

# By how much neighbours differ in the l1 and in the l2 norm, under a relation given by keyword.
Sensitivities = Callable[..., tuple[float, float]]
# Returns by how much sums of neighbours differ in the l2 norm, for the keyword `relation`.
Sensitivity = Callable[..., float]
# Radius of the ball that holds all rows of integers.
RADIUS = 2**13
# Sums are clipped to this: they exceed it only if the noise saturated.
LARGEST_SUM = 2**61
# Numbers of products of two integers up to RADIUS that doubles, and 64-bit integers, add up
# exactly.
_MOST_PRODUCTS, _MOST_RECORDS = 2**53 // RADIUS**2, 2**62 // RADIUS**2
# Sums of products are clipped to this, so that there is room for weights.
_LARGEST_PRODUCT = 2**55


class ReleaseSeries(ABC):
    """One or several releases for one budget, made in turn from one source of noise.

    Each is a :class:`Release`, and may depend on earlier releases.
    """

    @property
    @abstractmethod
    def event(self) -> DpEvent | None:
        """Return the event charged for all before the first run; None without a guarantee."""

    @abstractmethod
    def run(self, *args: Any, **options: Any) -> Any:
        """Run the next release, once; subclasses define the arguments."""

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the expected errors of the releases; empty if they are unknown.

        Parameters
        ----------
        n_records : int
            Number of records; public, or a guess.

        Returns
        -------
        tuple of ExpectedError
            One for each kind of quantity.
        """
        return ()


class Release(ReleaseSeries):
    """A release of private values, planned from public quantities only: a series of one.

    The event is charged first; then it is run, once. The sensitivity is computed by a function of
    :mod:`skdpot.privacy.sensitivity`, which states the proof.
    """

    @abstractmethod
    def sensitivity(self, relation: str) -> float:
        """Return the distance of neighbours in the norm that noise is scaled to, rounded up."""

    @abstractmethod
    def run(self, values: Any, source: NoiseSource) -> Any:
        """Release private values, which each release defines; the result may be published."""


class NoisyRelease(Release):
    """A release that takes its noise, event and sensitivity from another release.

    A subclass sets ``_noise``.
    """

    _noise: "VectorRelease"

    @property
    def event(self) -> DpEvent | None:
        return self._noise.event

    def sensitivity(self, relation: str) -> float:
        return self._noise.sensitivity(relation)

    def add_noise(self, values: np.ndarray, source: NoiseSource) -> np.ndarray:
        """Release values, of all records or of one owner's, with all the noise that they need."""
        return self._noise.run(values, source)

    def counted(self, sums: np.ndarray) -> tuple[np.ndarray, float]:
        """Return what an owner's released sums count, and the standard deviation of the noise."""
        return sums, self._noise.standard_deviation


class VectorRelease(Release):
    """The (epsilon, delta)-private release of a vector with noise.

    All parameters are public.

    Parameters
    ----------
    epsilon, delta : float
        Budget; Laplace noise for delta 0, Gaussian noise above. If epsilon is very large, only the
        part is spent that the range of the grid can use.
    sensitivities : callable
        A function of :mod:`skdpot.privacy.sensitivity` that returns, for ``relation=``, the largest
        l1 and l2 distances of the vectors of neighbours. The noise is for "replace_one".
    n_coordinates : int
        Length of the vector, at most.
    largest : float
        Largest magnitude of a value. It is not enforced, and only utility depends on it.
    counts : bool, default=False
        Whether values are integers. Their noise is rounded to integers, too, which makes it smaller
        for a large epsilon.

    Attributes
    ----------
    event : DpEvent
        The event of a release.
    standard_deviation, half_width : float
        The standard deviation of the noise on each value, and the magnitude that it exceeds with a
        probability of 5 %.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the noise would span too many points of a grid.

    See Also
    --------
    LaplaceMechanism, GaussianMechanism : The mechanisms that add the noise, with proofs.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import histogram_sensitivities
    >>> from skdpot.releases import VectorRelease
    >>> release = VectorRelease(
    ...     1.0, 0.0, histogram_sensitivities, n_coordinates=5, largest=1e6, counts=True
    ... )
    >>> release.event, release.sensitivity("replace_one")
    (LaplaceDpEvent(noise_multiplier=1.0), 2.0)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        sensitivities: Sensitivities,
        *,
        n_coordinates: int,
        largest: float,
        counts: bool = False,
    ) -> None:
        self._delta, self._sensitivities = delta, sensitivities
        grid: dict[str, Any] = {"n_coordinates": n_coordinates}
        grid |= {"granularity": 1.0, "on_grid": True} if counts else {}
        sensitivity = self.sensitivity("replace_one")
        # The grid of the noise ends at 2**39 times its scale, and values must lie on it.
        max_precision = 2.0**38
        epsilon = min(epsilon, max_precision * sensitivity / largest)
        self._mechanism: LaplaceMechanism | GaussianMechanism
        if delta == 0:
            self._mechanism = LaplaceMechanism(epsilon, sensitivity, **grid)
        else:
            self._mechanism = GaussianMechanism(epsilon, delta, sensitivity, **grid)

    @property
    def event(self) -> DpEvent:
        event = self._mechanism.event
        return event if self._delta == 0 else PlannedDpEvent(event, self._delta)

    def sensitivity(self, relation: str) -> float:
        l1, l2 = self._sensitivities(relation=relation)
        return l1 if self._delta == 0 else l2

    @property
    def standard_deviation(self) -> float:
        """Return the standard deviation of the noise on each value."""
        return self._mechanism.scale * (math.sqrt(2.0) if self._delta == 0 else 1.0)

    @property
    def half_width(self) -> float:
        """Return the magnitude that the noise on a value exceeds with a probability of 5 %."""
        return self._mechanism.scale * (_LAPLACE_QUANTILE if self._delta == 0 else _NORMAL_QUANTILE)

    def run(self, values: Any, source: NoiseSource) -> np.ndarray:
        """Return noisy values in their shape; every call is a separate release.

        Values beyond the end of the grid are clipped, and NaN becomes zero, silently.
        """
        return self._mechanism.release(values, source)


def check_exact_sums(n_records: int) -> None:
    """Raise for more than 68 billion records, since their sums would not be exact.

    The error does not reveal a private number of records, because no table that fits into memory
    has more.
    """
    if n_records > _MOST_RECORDS:
        raise ValueError(
            f"sums of more than {_MOST_RECORDS} records would not be exact: fit a part of them."
        )


def ball_points(rows: np.ndarray, radius: float) -> np.ndarray:
    """Return rows in units of ``radius / RADIUS``, as integers in the ball of radius RADIUS.

    Rows that are not finite become zero, and rows beyond the public radius are moved to the sphere.
    Norms are at most RADIUS, despite rounding. Rounding moves a row by at most ``sqrt(d) / 2``, so
    rows are clipped to a ball that is smaller by this much, and by one more for the rounding errors
    of the norm. In more than about ``RADIUS**2 / 4`` dimensions entries are rounded towards zero,
    which makes no norm larger (:ref:`proof-exact-sums`).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases import ball_points
    >>> ball_points(np.array([[3.0, 4.0], [0.5, 0.0]]), 1.0)
    array([[4914., 6552.],
           [4096.,    0.]])
    """
    with np.errstate(all="ignore"):
        # In C order, the squares of a row are added in the same order for any number of rows.
        units = np.ascontiguousarray(rows) * (RADIUS / radius)
        # Squares of larger numbers may overflow.
        units = np.nan_to_num(units, nan=0.0, posinf=0.0, neginf=0.0)
        units = np.clip(units, -(2.0**40), 2.0**40)
        margin = math.sqrt(rows.shape[1]) / 2 + 1
        nearest = margin < RADIUS / 4
        inner = RADIUS - (margin if nearest else 1)
        norms = np.sqrt(np.add.reduce(units * units, axis=1))
        units *= np.minimum(1.0, inner / np.maximum(norms, inner))[:, None]
    return np.rint(units) if nearest else np.trunc(units)


def sum_of_blocks(sum_of: Callable[[slice], np.ndarray], n_records: int) -> np.ndarray:
    """Return exact sums over records of products of two integers with magnitudes up to RADIUS.

    `sum_of` returns the sum over a block of records, as doubles. Sums beyond ``2**55``, of half a
    billion records or more, are clipped, which moves sums of neighbours no further apart.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases import sum_of_blocks
    >>> rows = np.array([[1.0], [2.0]])
    >>> sum_of_blocks(lambda block: rows[block].T @ rows[block], len(rows))
    array([[5]])
    """
    starts = range(0, max(n_records, 1), _MOST_PRODUCTS)
    # In a block, every product and every partial sum is an integer of at most 2**53.
    sums = (sum_of(slice(start, start + _MOST_PRODUCTS)).astype(np.int64) for start in starts)
    return np.clip(sum(sums), -_LARGEST_PRODUCT, _LARGEST_PRODUCT)


class SumRelease(Release):
    """The release of sums of integers over records, with Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity. With 0 there is no noise and no
        guarantee.
    sensitivity : callable
        A function of :mod:`skdpot.privacy.sensitivity` that returns, for ``relation=``, the largest
        l2 distance of the sums of neighbours.
    relation : {"add_remove", "replace_one"}
        The neighbouring relation that the noise is for.
    """

    def __init__(self, noise_multiplier: float, sensitivity: Sensitivity, relation: str) -> None:
        self._noise_multiplier, self._relation = noise_multiplier, relation
        self._sensitivity = sensitivity

    @property
    def event(self) -> DpEvent | None:
        return GaussianDpEvent(self._noise_multiplier) if self._noise_multiplier else None

    def sensitivity(self, relation: str) -> float:
        return self._sensitivity(relation=relation)

    @property
    def standard_deviation(self) -> float:
        """Return the standard deviation of the noise, in units of the sums; 0 without noise."""
        return self._noise_multiplier * self.sensitivity(self._relation)

    def run(self, values: np.ndarray, source: NoiseSource) -> np.ndarray:
        """Return noisy int64 sums, as doubles."""
        if self._noise_multiplier == 0:
            return np.asarray(values, dtype=np.float64)
        mechanism = GaussianMechanism.from_noise_multiplier(
            self._noise_multiplier,
            self.sensitivity(self._relation),
            n_coordinates=max(np.size(values), 1),
            granularity=1.0,
            on_grid=True,
        )
        noise = mechanism.noise(np.shape(values), source)
        # Noise that saturated is beyond this bound for any sums, as the full noise would be.
        noisy = np.clip(values + noise, -LARGEST_SUM, LARGEST_SUM)
        return np.asarray(noisy, dtype=np.float64)


class SketchReleases(ReleaseSeries):
    """Releases of sums over records that share a budget, which may be divided further later.

    Parameters
    ----------
    noise_multiplier : float
        Multiplier of the whole: Gaussian releases with multipliers ``s_i`` cost exactly as much as
        one with ``1 / sqrt(sum(1 / s_i**2))``. That is true even if later releases and their noise
        depend on earlier results. With 0 there is no noise, and no guarantee.
    shares : mapping of str to float
        Share of ``1 / noise_multiplier**2`` of each release, by name. They are divided by their
        sum.
    relation : {"add_remove", "replace_one"}
        The neighbouring relation that the noise is for.
    source : NoiseSource
        Source of the noise.

    Raises
    ------
    ValueError
        If the relation is unknown, or shares are not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.noise import make_source
    >>> from skdpot.privacy.sensitivity import cell_count_sensitivity
    >>> from skdpot.releases import SketchReleases
    >>> releases = SketchReleases(3.0, {"size": 0.25, "sums": 0.75}, "add_remove", make_source())
    >>> round(releases.standard_deviation("size", cell_count_sensitivity), 6)
    6.0
    >>> size = releases.run("size", np.array(100), cell_count_sensitivity)
    >>> releases.divide("sums", {"low": 1.0, "high": 2.0})
    >>> round(releases.standard_deviation("low", cell_count_sensitivity), 6)
    6.0
    >>> releases.event
    GaussianDpEvent(noise_multiplier=3.0)
    """

    def __init__(
        self, noise_multiplier: float, shares: Mapping[str, float], relation: str, source: Any
    ) -> None:
        check_relation(relation)
        self._relation = relation
        self._noise_multiplier = noise_multiplier
        self._source = source
        self._shares: dict[str, float] = {}
        self._made: set[str] = set()
        self._share_out(1.0, shares)

    @property
    def event(self) -> DpEvent | None:
        return GaussianDpEvent(self._noise_multiplier) if self._noise_multiplier else None

    def divide(self, name: str, shares: Mapping[str, float]) -> None:
        """Divide the share of one release, which is not made, among several.

        The proportions `shares` may depend on earlier releases. Raises KeyError if there is no
        release of this name, RuntimeError if it was made before, and ValueError if shares are not
        above 0 or a name has one already.
        """
        self._check_not_made(name)
        self._share_out(self._shares.pop(name), shares)

    def standard_deviation(self, name: str, sensitivity: Sensitivity) -> float:
        """Return the public standard deviation of a release's noise, in units of the sums."""
        return self.one(name, sensitivity).standard_deviation

    def one(self, name: str, sensitivity: Sensitivity) -> SumRelease:
        """Return one of the releases, with its share of the budget."""
        # Rounded up by more than the error of the few operations that make a share.
        multiplier = self._noise_multiplier / math.sqrt(self._shares[name]) * (1 + 2.0**-40)
        return SumRelease(multiplier, sensitivity, self._relation)

    def run(self, name: str, sums: np.ndarray, sensitivity: Sensitivity) -> np.ndarray:
        """Return noisy sums in doubles; each release can be made once.

        `sums` are private integers. Raises KeyError if there is no release of this name, and
        RuntimeError if it was made before.
        """
        self._check_not_made(name)
        release = self.one(name, sensitivity)
        self._made.add(name)
        return release.run(sums, self._source)

    def _share_out(self, whole: float, shares: Mapping[str, float]) -> None:
        if not all(0 < share < math.inf for share in shares.values()):
            raise ValueError("shares must be above 0.")
        if not shares.keys().isdisjoint(self._shares):
            raise ValueError("a release has one share of the budget.")
        total = math.fsum(shares.values())
        self._shares |= {name: whole * share / total for name, share in shares.items()}

    def _check_not_made(self, name: str) -> None:
        if name in self._made:
            raise RuntimeError(f"the release {name!r} has been made before.")


def label_threshold(deviation: float, n_columns: int, delta: float) -> int:
    """Return the least noisy count with which a label may be released, beside `SumRelease`.

    Parameters
    ----------
    deviation : float
        Standard deviation of the noise of a count; 0 without noise.
    n_columns : int
        In how many columns a record may have a label.
    delta : float
        Largest probability that any label is released which a single record has.

    Notes
    -----
    Such a label gets ``1 + round(s G)`` with a standard Gaussian G. This is at least t only where
    ``s G`` is at least ``t - 3/2``, with a probability of at most ``delta / n_columns``. Proof:
    :ref:`proof-found-schemas`.

    Examples
    --------
    >>> from skdpot.releases import label_threshold
    >>> label_threshold(10.0, 1, 1e-6)
    50
    """
    quantile = -float(ndtri_exp(math.log(delta) - math.log(n_columns)))
    # Raised by more than the errors of the quantile and of the scale of the noise.
    return math.ceil(1.5 + deviation * quantile * (1 + 1e-9)) if deviation else 1
