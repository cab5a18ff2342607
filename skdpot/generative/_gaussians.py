"""Mixtures of Gaussian distributions: sums over vectors, estimates from noisy ones, and draws.

*Estimates* are by empirical Bayes. A number that was released is its true value plus noise of a
known variance. True values are taken for draws around a guess, with a variance that groups of them
have in common; its size is estimated by the mean square of the data minus that of the noise. All of
this is computed from releases and public numbers.

*Clusters* of similar sizes are found by balanced transport between records and centres. A round is
a step of the semi-dual of entropic transport. Each record is shared among the centres, by squared
distance minus the potential of a centre, and the sums of these shares are released. Centres move to
the means, and potentials of crowded ones fall.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.optimize import least_squares
from scipy.special import gammainc, gammaincc, gammaincinv

from skdpot._sklearn_compat import one_blas_thread
from skdpot.generative._counts import excess_over_noise, kept_shares
from skdpot.generative._encoders import Encoder, Moves
from skdpot.generative._images import Random, blocks, intensity_map, mapped
from skdpot.privacy import sensitivity
from skdpot.releases import RADIUS, ball_points, sum_of_blocks

# Variances are not below this share of the largest, nor below this, in units of the largest norm.
_LEAST_SHARE, _LEAST_VARIANCE = 1e-9, 1e-12
_TINY = 1e-300


def expected_variances(
    seen: np.ndarray, deviation: float, frequencies: np.ndarray | None
) -> np.ndarray:
    """Return a guess of variances that are mostly noise.

    Parameters
    ----------
    seen : ndarray of shape (d,)
        Variances with noise.
    deviation : float
        Standard deviation of the noise.
    frequencies : ndarray of shape (d,) or None
        Of coordinates of images, along which variances fall off smoothly; -1 for other coordinates.
        None without any.

    Returns
    -------
    ndarray of shape (d,)
        Above 0.

    Notes
    -----
    The largest variance where noise is as large as the variance. The logarithm of those of images
    is fitted as a parabola of that of one plus the frequency.
    """
    guess = np.maximum(seen, max(deviation, _LEAST_SHARE * float(np.max(seen)), _LEAST_VARIANCE))
    if frequencies is None or np.sum(frequencies >= 0) < 8:
        return guess
    smooth = frequencies >= 0
    height, logarithms = np.max(guess[smooth]), np.log1p(frequencies[smooth])

    def variances(t: np.ndarray) -> np.ndarray:
        return height * np.exp(t[0] - t[1] * logarithms - t[2] * logarithms**2)

    def misfit(t: np.ndarray) -> np.ndarray:
        fitted = variances(t)
        # Relative to the noise and to the variance itself, so that the largest do not decide alone.
        return (seen[smooth] - fitted) / (deviation + 0.3 * fitted + _TINY)

    fit = least_squares(misfit, [0.0, 1.5, 0.3], bounds=([-20, -3, 0], [20, 8, 5]), max_nfev=200)
    guess[smooth] = variances(fit.x)
    return np.maximum(guess, max(_LEAST_SHARE * guess.max(), _LEAST_VARIANCE))


def clean_covariance(seen: np.ndarray, deviation: float, guess: np.ndarray) -> np.ndarray:
    """Return an estimate of a covariance from one with noise.

    Parameters
    ----------
    seen : ndarray of shape (d, d)
        Symmetric.
    deviation : float
        Standard deviation of the noise on the diagonal; beside it, it is less by the root of two,
        so that it is the same in every basis.
    guess : ndarray of shape (d, d)
        A covariance.

    Returns
    -------
    ndarray of shape (d, d)
        Positive definite.

    Notes
    -----
    Entries in the basis of the guess's eigenvectors deviate from the guess by multiples of
    ``sqrt(l_i l_j)``, whose variance blocks of leading and trailing eigenvectors have in common.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._gaussians import clean_covariance
    >>> seen = np.array([[2.0, 0.5], [0.5, 1.0]])
    >>> clean_covariance(seen, 0.0, np.eye(2)).round(6)
    array([[2. , 0.5],
           [0.5, 1. ]])
    """
    values, vectors = np.linalg.eigh(guess)
    values = np.maximum(values[::-1], max(_LEAST_SHARE * values[-1], _LEAST_VARIANCE))
    vectors = vectors[:, ::-1]
    deviations = vectors.T @ seen @ vectors - np.diag(values)
    scale = np.outer(values, values)
    on_diagonal = np.eye(len(values), dtype=bool)
    noise = np.where(on_diagonal, 1.0, 0.5) * deviation**2 + _TINY
    # Groups of eigenvectors double in size, up to this one.
    last_group = 7
    group = np.minimum(np.log2(np.arange(len(values)) + 1).astype(int), last_group)
    block = np.where(on_diagonal, -1 - group[:, None], group[:, None] * (last_group + 1) + group)
    shares = np.empty_like(scale)
    for label in np.unique(block):
        members = block == label
        scales, block_noise = scale[members], noise[members]
        # In units of the scale, so large entries do not dominate small ones.
        relative = excess_over_noise(deviations[members] ** 2 / scales, block_noise / scales)
        shares[members] = relative * scales / (relative * scales + block_noise)
    matrix = vectors @ (np.diag(values) + shares * deviations) @ vectors.T
    # The nearest positive definite matrix to this symmetric one.
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    min_variance = max(_LEAST_SHARE * values[-1], _LEAST_VARIANCE)
    return (vectors * np.maximum(values, min_variance)) @ vectors.T


def square_roots(covariances: np.ndarray) -> np.ndarray:
    """Return short matrices F with ``F' F`` nearly equal to covariances.

    The result has the shape (m, q, d). Left-out directions have less than a thousandth of the
    variance of any of the others.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._gaussians import square_roots
    >>> square_roots(np.diag([4.0, 1e-4, 9.0])[None]).shape
    (1, 2, 3)
    """
    values, vectors = np.linalg.eigh(covariances)
    values = np.maximum(values, 0.0)
    remaining = np.cumsum(values, axis=1) / np.maximum(values.sum(axis=1), _TINY)[:, None]
    # Directions with so small a part of all variance are not worth keeping.
    left_out = 1e-3
    start = int(np.argmax((remaining > left_out).any(axis=0)))
    roots = np.sqrt(values[:, start:, None]) * vectors.transpose(0, 2, 1)[:, start:]
    return roots[:, ::-1]


# Entries on and off the diagonal of a symmetric matrix are weighted by integers whose ratio is just
# below the root of two, because each off the diagonal stands for two. Then the norm of the weighted
# entries of x x' is at most the first weight times the squared norm of x.
DIAGONAL, _BESIDE = 29, 41
# Contribution of a record to a count of its class, next to a vector in the ball.
COUNT = RADIUS // 2
# By how much a record can change counts, and sums: of vectors, of both, and of products.
COUNTED = sensitivity.cell_count_sensitivity
BALL = partial(sensitivity.ball_sum_sensitivity, radius=RADIUS)
WITH_COUNT = partial(sensitivity.counted_sum_sensitivity, radius=RADIUS, count_weight=COUNT)
SYMMETRIC = partial(
    sensitivity.product_sum_sensitivity, radius=RADIUS, diagonal=DIAGONAL, beside=_BESIDE
)


def entry_weights(n_dimensions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows and columns of a symmetric matrix's upper entries, and their weights."""
    rows, columns = np.triu_indices(n_dimensions)
    return rows, columns, np.where(rows == columns, DIAGONAL, _BESIDE)


def as_matrices(entries: np.ndarray) -> np.ndarray:
    """Return the symmetric matrices of weighted entries, in units of integers.

    `entries` are those of `ClassRows.symmetric_sums`, perhaps with noise; a matrix is the sum of
    ``x x'``.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._gaussians import as_matrices
    >>> as_matrices(np.array([[29, 82, 116]]))
    array([[[1., 2.],
            [2., 4.]]])
    """
    n_dimensions = math.isqrt(2 * entries.shape[1])
    rows, columns, weights = entry_weights(n_dimensions)
    matrices = np.empty((len(entries), n_dimensions, n_dimensions))
    matrices[:, rows, columns] = matrices[:, columns, rows] = entries / weights
    return matrices


# Bins of a geometric grid of norms, each this much wider than the one before.
_N_BINS = 48
_RATIO = 2.0**0.25
# The distributions that norms may have: the root of their mean square, in bins, and of how many
# independent Gaussian numbers of the same variance they could be the norms.
_SCALES, _FREEDOMS = (
    grid.ravel() for grid in np.meshgrid(np.arange(-48, 2, 0.5), 2.0 ** np.arange(-1, 7, 0.5))
)


def norm_counts(norms: np.ndarray) -> np.ndarray:
    """Return how many norms, at most 1, are in each of 48 bins.

    The norms are private. A record more or less changes one count by one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._gaussians import norm_counts
    >>> norm_counts(np.array([0.0, 0.9, 1.0]))[[0, -2, -1]]
    array([1, 0, 2])
    """
    bins = np.searchsorted(_RATIO ** np.arange(1.0 - _N_BINS, 0.0), norms)
    return np.bincount(bins, minlength=_N_BINS).astype(np.int64)


@dataclass(frozen=True)
class NormDistributions:
    """The distributions of the norms of classes, as of vectors of independent Gaussian numbers.

    Parameters
    ----------
    scales : ndarray of shape (n_classes,)
        Roots of the mean squared norms.
    freedoms : ndarray of shape (n_classes,)
        How many Gaussian numbers of the same variance a vector could have.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._gaussians import norm_counts, fit_norms
    >>> norms = np.linalg.norm(np.random.default_rng(0).standard_normal((1000, 3)), axis=1) / 9
    >>> found = fit_norms(norm_counts(norms)[None], 0.0, 1)
    >>> (radius,) = found.quantiles(0.5)
    >>> bool(abs(radius / np.median(norms) - 1) < 0.1)
    True
    >>> kept = np.mean(np.minimum(norms, radius) ** 2) / np.mean(norms**2)
    >>> bool(abs(found.lost(np.array([radius]))[0] * kept - 1) < 0.1)
    True
    """

    scales: np.ndarray
    freedoms: np.ndarray

    def quantiles(self, level: float) -> np.ndarray:
        """Return a radius for every class, below which this share of its norms lies, about."""
        halves = self.freedoms / 2
        radii = self.scales * np.sqrt(gammaincinv(halves, level) / halves)
        return np.minimum(radii, 1.0)

    def lost(self, radii: np.ndarray) -> np.ndarray:
        """Return how much larger mean squared norms are than those of clipped vectors, about."""
        # Squared norms are distributed as a gamma variable.
        halves, squares = self.freedoms / 2, (radii / self.scales) ** 2
        ends = halves * squares
        clipped = gammainc(halves + 1, ends) + squares * gammaincc(halves, ends)
        # Limit of the factor by which clipping is compensated.
        most_lost = 3.0
        return np.clip(1 / np.maximum(clipped, 1e-300), 1.0, most_lost)


def fit_norms(counts: np.ndarray, deviation: float, n_classes: int) -> NormDistributions:
    """Return the distributions of norms of classes that noisy counts are most like.

    `counts` of shape (n_classes, 48), or (1, 48) of all classes together, are those of
    `norm_counts`, with noise of this standard deviation. They are fitted by least squares. The
    noise of all counts then averages out, whereas a quantile of the counts themselves would add it
    up. Classes that are mostly noise get the distribution of all classes.
    """
    total = counts.sum(axis=0)
    share = np.maximum(counts.sum(axis=1, keepdims=True), 0.0) / max(total.sum(), 1e-300)
    alike = np.minimum(share, 1.0) * total
    noise = np.full(_N_BINS, deviation**2)
    shares = [kept_shares(differences, noise, np.zeros(_N_BINS)) for differences in counts - alike]
    likely = alike + np.stack(shares) * (counts - alike)
    # The bins of every distribution, up to a factor: columns of shape (48,).
    centres = np.arange(-_N_BINS, 0)[:, None] + 0.5
    logarithms = (centres - _SCALES) * math.log(_RATIO)
    shapes = np.exp(_FREEDOMS / 2 * (2 * logarithms - np.expm1(2 * logarithms)))
    # Of shapes that are known up to a factor, least squares are at the largest projection.
    best = np.argmax(np.maximum(likely @ shapes, 0.0) / np.linalg.norm(shapes, axis=0), axis=1)
    best = np.resize(best, n_classes)
    return NormDistributions(_RATIO ** _SCALES[best], _FREEDOMS[best])


# By how much a record more or less changes the sums of a round, in the Euclidean norm.
ROUND = partial(sensitivity.share_sum_sensitivity, radius=RADIUS, count_weight=COUNT, whole=RADIUS)


class Centres:
    """Centres of one class, which move by the releases of rounds.

    Parameters
    ----------
    points : ndarray of shape (k, r)
        Where they are at first, in units of integers, along leading directions first.
    reg : float
        Regularisation, in units of squared distances.

    Attributes
    ----------
    points : ndarray of shape (k, r)
        Where they are.
    potentials : ndarray of shape (k,)
        In units of the regularisation.
    reg : float
        Regularisation.
    """

    def __init__(self, points: np.ndarray, reg: float) -> None:
        self.points, self.potentials = points, np.zeros(len(points))
        self.reg = reg

    def move(self, sums: np.ndarray, deviation: float, n_records: float) -> None:
        """Take in the released sums of a round of about this many records.

        `sums` of shape (k, 1 + r) are those of `ClassRows.round_sums`, with noise of this standard
        deviation.
        """
        target = n_records / len(sums)
        # A centre is not taken for having less than this part of an equal share.
        min_centre = 0.1
        counts = np.maximum(sums[:, 0] / COUNT / RADIUS, min_centre * target)
        means = sums[:, 1:] / RADIUS / counts[:, None]
        noise = (deviation / RADIUS / counts[:, None]) ** 2
        ranks = np.arange(means.shape[1])
        # The first three directions are judged one by one, and others by sixes.
        self.points = kept_shares(means, noise, np.minimum(ranks, 3 + ranks // 6)) * means
        # Steps of potentials, and their largest magnitude, in units of the regularisation.
        potential_step, max_potential = 0.5, 3.0
        moved = self.potentials + potential_step * np.log(target / counts)
        moved = np.clip(moved, -max_potential, max_potential)
        # A common offset changes no share.
        self.potentials = moved - moved.mean()


@dataclass(eq=False, repr=False)
class ClassRows:
    """The codes of each class, which are moved as one learns where they are, and clipped for sums.

    A row is clipped to a ball, and rounded to integers there, so sums are exact. One record changes
    them only by its own row, in any order of rows. Nothing that is computed of a row depends on
    another row.

    Parameters
    ----------
    rows : list of ndarray of shape (n, d)
        Private, of each class, of norms up to 1. They are changed in place.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._gaussians import ClassRows
    >>> rows = ClassRows([np.array([[0.25, 0.5], [0.5, 0.0]]), np.zeros((0, 2))])
    >>> rows.clip(np.ones(2))
    >>> rows.sums()
    array([[6144, 4096],
           [   0,    0]])
    """

    rows: list[np.ndarray]

    def __post_init__(self) -> None:
        # The centre that each row is nearest to.
        self._nearest = [np.zeros(len(of_class), dtype=np.intp) for of_class in self.rows]
        # In units of balls: whole rows, and projections of them on leading directions.
        self._units: list[np.ndarray] = []
        self._projected: list[np.ndarray] = []

    def __len__(self) -> int:
        return len(self.rows)

    def sizes(self) -> np.ndarray:
        """Return how many rows each class has; a record changes one size."""
        return np.array([len(of_class) for of_class in self.rows], dtype=np.int64)

    def norm_counts(self, *, own: bool) -> np.ndarray:
        """Return how many rows have which norm, of each class or of all together.

        A record changes one count.
        """
        # Rows in the order of memory: a sum along one is the same beside any other rows.
        squares = (np.square(np.ascontiguousarray(of_class)) for of_class in self.rows)
        norms = (np.sqrt(np.add.reduce(of_class, axis=1)) for of_class in squares)
        return _of_classes(map(norm_counts, norms), own=own)

    def subtract(self, centres: np.ndarray) -> None:
        """Move every row by the centre of its class, shape (k, d), that it is nearest to."""
        for rows, nearest, of_class in zip(self.rows, self._nearest, centres, strict=True):
            rows -= of_class[nearest]

    def clip(self, radii: np.ndarray) -> None:
        """Take the rows in units of a ball of a public radius for each class."""
        self.radii = radii
        self._units = list(map(ball_points, self.rows, radii))

    def sums(self) -> np.ndarray:
        """Return the sums of clipped rows; a record changes one by `BALL`."""
        return np.stack([np.add.reduce(units, axis=0).astype(np.int64) for units in self._units])

    def symmetric_sums(self, *, own: bool) -> np.ndarray:
        """Return the weighted entries of sums of ``x x'``; a record changes one by `SYMMETRIC`.

        The sums are of clipped rows, of each class or of all together. Each has d (d + 1) / 2
        entries.
        """
        rows, columns, weights = entry_weights(self._units[0].shape[1])
        sums = (_summed_products(units, units) for units in self._units)
        return _of_classes((weights * matrix[rows, columns] for matrix in sums), own=own)

    def counts_and_sums(self, n_groups: int) -> np.ndarray:
        """Return sizes and sums of clusters; a record changes one row of them by `WITH_COUNT`.

        Row by row these are COUNT times the size of a cluster, and the sum of its clipped rows; the
        shape is (n_classes, n_groups, 1 + d).
        """
        sums = []
        for nearest, units in zip(self._nearest, self._units, strict=True):
            members = np.eye(n_groups)[nearest]
            # Sums of integers in doubles are exact up to 2**53, in any order.
            sums.append(np.column_stack([COUNT * members.sum(axis=0), members.T @ units]))
        return np.stack(sums).astype(np.int64)

    def project(self, directions: list[np.ndarray], radii: list[float]) -> None:
        """Take clipped rows along public directions, in units of other balls."""
        # Projections onto directions are exact for directions on this grid: products of integers,
        # so that a row's depend on no other row.
        directions_grid = 2.0**20
        units = self.radii / RADIUS / directions_grid
        each = zip(self._units, directions, units, strict=True)
        projected = (rows @ np.rint(ways * directions_grid) * unit for rows, ways, unit in each)
        self._projected = list(map(ball_points, projected, radii))

    def round_sums(self, centres: list[Centres]) -> np.ndarray:
        """Return the sums of a round; a record changes them by at most `ROUND`.

        The shape is (n_classes, k, 1 + r): of each centre the shares, and the rows by shares.
        """
        sums = []
        for c, (at, rows) in enumerate(zip(centres, self._projected, strict=True)):
            shares = self._shares(c, at)
            totals = COUNT * np.add.reduce(shares, axis=0).astype(np.int64)
            sums.append(np.column_stack([totals, _summed_products(shares, rows)]))
        return np.stack(sums)

    def find_nearest(self, centres: list[Centres]) -> None:
        """Give every row to the centre of which it has the largest share."""
        self._nearest = [np.argmax(self._shares(c, at), axis=1) for c, at in enumerate(centres)]

    def _shares(self, c: int, centres: Centres) -> np.ndarray:
        """Return how the rows of a class share themselves out among its centres.

        They are integers of at least 0. Those of a row add up to at most RADIUS.
        """
        # Products of integers, so that neither they nor their sums are rounded.
        grid = np.clip(np.nan_to_num(np.rint(centres.points)), -RADIUS, RADIUS)
        closeness = 2 * (self._projected[c] @ grid.T) - np.add.reduce(grid * grid, axis=1)
        scores = closeness / centres.reg + centres.potentials
        # A common offset of all scores of a row has no effect.
        below = scores - np.maximum.reduce(scores, axis=1)[:, None]
        likeness = _exponentials(below.ravel()).reshape(below.shape)
        # As for norms: in the order of memory.
        totals = np.add.reduce(np.ascontiguousarray(likeness), axis=1)
        # No number at all would be as far as can be from any other.
        return np.nan_to_num(np.floor(likeness / totals[:, None] * RADIUS))


def _of_classes(sums: Iterable[np.ndarray], *, own: bool) -> np.ndarray:
    """Return sums of each class, or one sum of all, which a record changes as much."""
    of_classes = np.stack(list(sums))
    return of_classes if own else of_classes.sum(axis=0, keepdims=True)


def _summed_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return sum_of_blocks(lambda block: left[block].T @ right[block], len(left))


def _exponentials(numbers: np.ndarray) -> np.ndarray:
    """Return the exponentials of numbers up to 0, nearly.

    They use only operations whose rounding does not depend on the position of a number in an array;
    the exponential function of a library need not be.
    """
    result = np.empty_like(numbers)
    # Lower powers of two have no effect, beside one of 0.
    smallest_power = -60.0
    # Coefficients of a polynomial that is a power of two, from 0 to 1, up to an error of 1e-9.
    of_two = [math.log(2) ** n / math.factorial(n) for n in range(9, -1, -1)]
    # Numbers whose exponentials stay in a fast cache.
    at_once = 1 << 13
    for start in range(0, len(numbers), at_once):
        block = slice(start, start + at_once)
        powers = np.maximum(np.nan_to_num(numbers[block] * (1 / math.log(2))), smallest_power)
        exponents = np.floor(powers)
        fractions = powers - exponents
        power = np.full(fractions.shape, of_two[0])
        for coefficient in of_two[1:]:
            power *= fractions
            power += coefficient
        np.ldexp(power, exponents.astype(np.int64), out=result[block])
    return result


@dataclass(frozen=True)
class Mixture:
    """A mixture of Gaussian distributions for each class.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Records of each class, about.
    weights : ndarray of shape (n_classes, n_clusters)
        Of the clusters; weights of a class add up to one.
    means : ndarray of shape (n_classes, n_clusters, n_codes)
        Of the clusters.
    factors : ndarray of shape (n_factors, n_directions, n_codes)
        Roots of the covariances within clusters: of each class, or one of all.
    unit : ndarray of shape ()
        The step of which means and factors are multiples.
    """

    counts: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray
    unit: np.ndarray

    def draw(
        self, labels: np.ndarray, rng: Random, *, single: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return codes of these classes, perhaps in single precision, and the cluster of each."""
        clusters = np.empty(len(labels), dtype=np.intp)
        codes = np.empty((len(labels), self.means.shape[2]), np.float32 if single else np.float64)
        for c in np.unique(labels):
            rows = np.flatnonzero(labels == c)
            clusters[rows] = rng.choice(len(self.weights[c]), len(rows), p=self.weights[c])
            factor = self.factors[c % len(self.factors)]
            normal = rng.standard_normal((len(rows), len(factor)))
            codes[rows] = self.means[c, clusters[rows]] + normal @ factor
        codes *= self.unit
        return codes, clusters

    def around(self, c: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of a class's clusters, and the root of the covariance within them."""
        factor = self.factors[c % len(self.factors)]
        return self.means[c] * self.unit, factor * self.unit

    def mean_squares(self) -> np.ndarray:
        """Return the mean squares of the coordinates of codes, in the units of the encoder."""
        class_squares = np.square(self.factors).sum(axis=1)
        within = np.resize(class_squares, (len(self.counts), self.means.shape[2]))
        between = np.einsum("ck,ckj->cj", self.weights, np.square(self.means, dtype=np.float64))
        shares = self.counts / self.counts.sum()
        return shares @ (within + between) * self.unit**2


def mixture_of(
    counts: np.ndarray, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, unit: float
) -> Mixture:
    """Return the mixture with these covariances within clusters, of each class or one of all."""
    # Noise leaves no more digits than these. The memory layout is that of arrays of a file, so
    # that sums have the same rounding errors.
    parts = means, square_roots(covariances)
    means, factors = (part.astype(np.float32, order="C") for part in parts)
    return Mixture(counts, weights, means, factors, np.array(unit))


# Bins of the histogram of intensities, and the number of images that are compared with it.
N_INTENSITIES = 20


@dataclass(frozen=True)
class ReleasedVectors:
    """The released sketch of vectors or images, from which records are drawn.

    Parameters
    ----------
    encoder : Encoder
        Public.
    mixture : Mixture
        Of codes.
    intensities : ndarray of shape (20,) or None
        Shares of the intensities of all pixels of all records.
    augment : dict or None
        The sizes of random moves of images.
    noise : mapping of str to ndarray
        Of `VectorReleases.run`.
    """

    encoder: Encoder
    mixture: Mixture
    intensities: np.ndarray | None
    augment: Moves
    noise: Mapping[str, np.ndarray]

    @property
    def counts(self) -> np.ndarray:
        """Return an estimate of the number of records of each class."""
        return self.mixture.counts

    @property
    def n_records(self) -> int:
        """Return an estimate of the number of records."""
        return round(float(self.counts.sum()))

    def prototypes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of all clusters as records, from -1 to 1, and their classes."""
        means = self.mixture.means * self.mixture.unit
        n_classes, n_clusters, n_codes = means.shape
        labels = np.repeat(np.arange(n_classes), n_clusters)
        return self.encoder.decode(means.reshape(-1, n_codes).astype(np.float64)), labels

    def drawn_labels(self, n_samples: int, rng: Random) -> np.ndarray:
        """Return classes, drawn in proportion to their numbers of records."""
        counts = self.counts
        return rng.choice(len(counts), n_samples, p=counts / counts.sum())

    def rows(self, labels: np.ndarray, rng: Random) -> np.ndarray:
        """Return records of these classes, from -1 to 1."""
        with one_blas_thread():
            # Intensities need no more digits, and there may be many codes.
            single = self.encoder.for_images
            rows = self.encoder._sampled(self.mixture, labels, rng, self.augment, single=single)
            if self._intensity_map is not None:
                for block in blocks(*rows.shape):
                    rows[block] = 2 * mapped((rows[block] + 1) / 2, self._intensity_map) - 1
            return rows

    @cached_property
    def _intensity_map(self) -> np.ndarray | None:
        """Return the map to released intensities; it does not depend on the classes drawn."""
        if self.intensities is None:
            return None
        # A fixed seed, so that the map is a function of the release.
        rng = np.random.default_rng(0)
        n_compared = 2000
        labels = self.drawn_labels(n_compared, rng)
        rows = self.encoder._sampled(self.mixture, labels, rng, self.augment, single=False)
        return intensity_map((rows + 1) / 2, self.intensities)
