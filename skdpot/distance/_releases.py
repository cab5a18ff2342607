"""Releases of a distance: costs with noise, or noisy histograms on a public grid."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from scipy.spatial import cKDTree
from scipy.spatial.distance import squareform

from skdpot._base import make_bar, warn_of_grid
from skdpot._sklearn_compat import one_blas_thread
from skdpot.distance._costs import CostFunction
from skdpot.privacy.checks import check_memory
from skdpot.privacy.sensitivity import (
    cost_vector_sensitivities,
    histogram_sensitivities,
    pairwise_sensitivities,
)
from skdpot.releases import NoisyRelease, VectorRelease
from skdpot.transport import (
    Costs,
    FunctionCosts,
    MatrixCosts,
    PointCosts,
    TransportResult,
    certifiable_gap,
    entropic_transport,
    exact_transport,
    monotone_transport,
    nearest_distribution,
    smallest_tolerance,
)

if TYPE_CHECKING:
    from skdpot.distance._estimator import LabelledGroups


@dataclass(frozen=True)
class Released:
    """Released costs between all pairs of groups.

    Attributes
    ----------
    costs : ndarray of shape (n_pairs,)
        In the order of ``itertools.combinations``.
    standard_errors, half_widths : ndarray of shape (n_pairs,), default=nan
        Standard deviation of the noise, and the magnitude that it exceeds with a probability of 5
        %; NaN if unknown.
    attributes : dict
        Further fitted attributes, by name.
    """

    costs: np.ndarray
    standard_errors: Any = math.nan
    half_widths: Any = math.nan
    attributes: dict[str, Any] = field(default_factory=dict)

    def distances(self, order: float | None) -> dict[str, Any]:
        """Return the fitted attributes about distances, as roots of a degree if it is not None.

        Numbers that are negative by noise become 0 before the root. There are matrices, and numbers
        beside them if there are two groups.
        """
        # The ends of an interval are rooted themselves, as a root of a width is no width.
        ends = [self.costs - self.half_widths, self.costs + self.half_widths]
        interval = np.stack([squareform(_root(end, order)) for end in ends], axis=-1)
        distances = squareform(_root(self.costs, order))
        # Errors stay in units of cost: the root of a noisy cost has no standard deviation that is
        # known.
        errors = squareform(np.broadcast_to(self.standard_errors, self.costs.shape))
        shown = {"distances_": distances, "standard_error_": errors, "noise_interval_": interval}
        if len(distances) > 2:
            return shown
        return shown | {
            "distance_": float(distances[0, 1]),
            "standard_error_": float(errors[0, 1]),
            # With two groups, numbers are what users print and compare.
            "noise_interval_": tuple(interval[0, 1].tolist()),
        }


def _root(costs: np.ndarray, order: float | None) -> np.ndarray:
    return costs if order is None else np.maximum(costs, 0.0) ** (1.0 / order)


@dataclass(frozen=True)
class CostSettings:
    """The public settings of the cost between two samples.

    Parameters
    ----------
    cost : CostFunction
        Cost between two points.
    reg : float
        Regularisation; 0 is exact transport.
    divergence : {"ot", "sinkhorn"}
        The cost of transport, or the debiased divergence.
    n_jobs : int or None
        Number of threads.
    progress : callable
        Makes a progress bar.
    """

    cost: CostFunction
    reg: float
    divergence: str
    n_jobs: int | None = None
    progress: Callable[..., Any] = partial(make_bar, verbose=False)

    @property
    def cost_range(self) -> float:
        """Return the width of the range of costs."""
        low, high = self.cost.range
        return high - low

    @property
    def offset(self) -> float:
        """Return the constant to add to results, which are computed for costs from 0."""
        # In a divergence, a constant that is added to all costs cancels.
        return self.cost.range[0] if self.divergence == "ot" else 0.0

    def map(self, calls: list[Any]) -> list[Any]:
        """Return the results of functions, each given with its arguments."""
        # Threads: kernels release the interpreter, and private samples need not be copied.
        parallel = Parallel(n_jobs=self.n_jobs, require="sharedmem")
        tasks = (delayed(function)(*arguments) for function, *arguments in calls)
        with one_blas_thread(), self.progress(tasks, total=len(calls)) as watched:
            return parallel(watched)

    def check_tolerance(self, tol: float, max_sizes: tuple[int, int]) -> None:
        """Raise unless costs can be computed up to `tol`, for all data of at most these sizes."""
        # An error that is raised after the charge would depend on private records; so the worst
        # case of all data is checked before.
        if self.reg > 0:
            smallest = smallest_tolerance(*max_sizes, self.cost_range, self.reg)
            advice = "Raise reg" if self.reg < self.cost_range else "Lower reg"
            advice += ", or use fewer records"
        else:
            smallest = certifiable_gap(*max_sizes, 0.0, self.cost_range)
            advice = "Use reg > 0 or fewer records"
            if not self.cost.monotone:
                what = "exact transport (reg=0) between {:,} and {:,} records".format(*max_sizes)
                # The solver's matrices, of nodes and of arcs.
                check_memory(60 * math.prod(max_sizes), what, "Use reg > 0, which has no matrices.")
        if tol < smallest:
            raise ValueError(
                f"costs would have to be computed up to {tol:.2g}, and double precision certifies "
                f"no less than {smallest:.2g} with reg={self.reg:g}. {advice}."
            )

    def transport_cost(self, x: np.ndarray, y: np.ndarray, tol: float, n_threads: int = 1) -> float:
        """Return the transport cost for costs from 0, at most `tol` below the exact one."""
        # On a line, sorting takes no memory for pairs of records, and no solver's tolerance.
        if self.reg == 0 and self.cost.monotone:
            return monotone_transport(x[:, 0], y[:, 0], cost=self.cost.between)
        cost = self._from_zero(x, y) if self.reg == 0 else self._costs(x, y)
        a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
        return self.transport(cost, a, b, tol, n_threads).cost

    def transport(
        self, cost: np.ndarray | Costs, a: np.ndarray, b: np.ndarray, tol: float, n_threads: int = 1
    ) -> TransportResult:
        """Return the transport between two weights for costs from 0, exact or up to `tol`."""
        if self.reg == 0:
            return exact_transport(cost, a, b)
        return entropic_transport(cost, a, b, self.reg, tol, n_threads=n_threads)

    def _from_zero(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        # Solvers take costs from 0; `offset` adds the constant to results.
        return self.cost(x, y) - self.cost.range[0]

    def _costs(self, x: np.ndarray, y: np.ndarray) -> Costs:
        """Return the costs between samples, in the representation that suits their size."""
        # Up to 8 features, a cost is computed faster than it is read from memory.
        if self.cost.kind is not None and x.shape[1] <= 8:
            squared = self.cost.kind == "sqeuclidean"
            return PointCosts(x, y, squared=squared, high=self.cost.range[1])
        # A matrix of at most 256 MiB.
        if len(x) * len(y) <= 1 << 25:
            return MatrixCosts(self._from_zero(x, y))
        return FunctionCosts(x, y, self._from_zero, 0.0, self.cost_range)


def pairwise_costs(
    settings: CostSettings, samples: list[np.ndarray], tolerances: Sequence[float] | np.ndarray
) -> np.ndarray:
    """Return the costs or divergences between all pairs of samples, for costs from 0.

    Pairs are in the order of ``itertools.combinations``. The tolerances bound how far transport
    costs may be below the exact ones. If there are few costs, each of them uses several threads.
    """
    pairs = list(combinations(range(len(samples)), 2))
    tasks = list(zip(pairs, tolerances, strict=True))
    # The cost of a sample to itself takes part in several pairs: the smallest of their tolerances.
    if settings.divergence == "sinkhorn":
        tasks += [((g, g), min(tolerances)) for g in range(len(samples))]
    # Few pairs would leave threads idle, which a single cost can use.
    n_threads = max(1, effective_n_jobs(settings.n_jobs) // len(tasks))
    cost = settings.transport_cost
    calls = [(cost, samples[g], samples[h], tol, n_threads) for (g, h), tol in tasks]
    costs = dict(zip([pair for pair, _ in tasks], settings.map(calls), strict=True))
    return debiased(costs, pairs)


def debiased(costs: dict[tuple[int, int], float], pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the costs of pairs, minus the mean of their costs to themselves if these are given."""
    own = [(costs.get((g, g), 0.0) + costs.get((h, h), 0.0)) / 2 for g, h in pairs]
    return np.array([costs[pair] - half for pair, half in zip(pairs, own, strict=True)])


class CostsRelease(NoisyRelease):
    """All costs between pairs of groups, each in units of its sensitivity, with noise.

    With public labels a record takes part in k - 1 of the costs of k groups. So in these units it
    changes the vector of all costs by at most k - 1 in the l1 norm, and sqrt(k - 1) in the l2 norm.
    With private labels it may take part in the costs of two groups. The bound is computed for the
    given sizes.

    Parameters
    ----------
    settings : CostSettings
        The public settings of the cost.
    groups : "LabelledGroups"
        The groups.
    filler : ndarray of shape (n_features,)
        Public point that fills up groups of private size to their declared sizes.
    epsilon, delta : float
        Budget; Laplace noise for delta 0, Gaussian noise above.
    tol : float, default=1e-3
        Part of the sensitivity up to which costs are computed, by which the noise is larger.
    """

    def __init__(
        self,
        settings: CostSettings,
        groups: "LabelledGroups",
        filler: np.ndarray,
        epsilon: float,
        delta: float,
        tol: float = 1e-3,
    ) -> None:
        self.settings, self.groups, self.filler = settings, groups, filler
        # The solver's tolerance is a share of the sensitivity without it.
        exact, _ = pairwise_sensitivities(settings.cost_range, groups.sizes, labels=groups.labels)
        self.tolerances = tol * exact
        of_costs: dict[str, Any] = {
            "labels": groups.labels,
            "divergence": settings.divergence,
            "tol": tol,
        }
        # A solver may be at either end of its tolerance for two neighbours, so that it adds to what
        # a record changes.
        self.sensitivities, _ = pairwise_sensitivities(
            settings.cost_range, groups.sizes, **of_costs
        )
        self._noise = VectorRelease(
            epsilon,
            delta,
            partial(cost_vector_sensitivities, settings.cost_range, groups.sizes, **of_costs),
            n_coordinates=len(exact),
            # In units of its sensitivity, no cost is above its range; noise is drawn on a grid that
            # reaches so far.
            largest=float((settings.cost_range / self.sensitivities).max()),
        )
        self.standard_errors = self.sensitivities * self._noise.standard_deviation

    def expected_errors(self, n_records):
        return self.groups.cost_errors(self.standard_errors, self.settings.cost_range)

    def run(self, X, source):
        # Filled up before any cost is computed: nothing after this depends on a private size.
        samples = self.groups.split(X, self.filler)
        costs = pairwise_costs(self.settings, samples, self.tolerances)
        released = self._noise.run(costs / self.sensitivities, source)
        return Released(
            # Scaling and shifting by public numbers is post-processing.
            costs=self.settings.offset + self.sensitivities * released,
            standard_errors=self.standard_errors,
            half_widths=self.sensitivities * self._noise.half_width,
        )


def make_grid(low: np.ndarray, high: np.ndarray, groups: Any, epsilon: float) -> np.ndarray:
    """Return the points of a public grid: the middles of cells of equal width, in a box.

    It has as many cells as the n records and epsilon allow: rounding to cells of width 1/g moves a
    record by a share 1/g of the box, and the noise of g**d cells, of k parts, by ``g**d sqrt(k) /
    (epsilon n)`` of the mass. Both are of one size for ``g**(d + 1) = epsilon n / sqrt(k)``.
    """
    d, most_cells = len(low), 1024
    # Costs between all cells are held in memory: 128 MiB for 4,096.
    if 2**d > 4 * most_cells:
        raise ValueError(
            f"a grid over {d} features has more than {4 * most_cells} cells. Use fewer features, "
            "or mechanism='output'."
        )
    # With less than one record's worth of signal, the coarsest grid is taken.
    heard = epsilon * groups.n_records / math.sqrt(groups.n_parts)
    balanced = max(heard, 1.0) ** (1.0 / (d + 1))
    n_cells = int(max(min(balanced, most_cells ** (1.0 / d) + 1e-9), 2))
    # Middles halve the largest distance of a record from its point, compared with corners.
    middles = (np.arange(n_cells) + 0.5) / n_cells
    return low + (high - low) * np.array(list(product(middles, repeat=d)))


class GridRelease(NoisyRelease):
    """Noisy counts of all groups and cells, and the results computed from them.

    A record that is replaced, or changes its group, or both, leaves one count and joins another. So
    the vector of all counts moves by at most 2 in the l1 norm, and sqrt(2) in the l2 norm.

    Parameters
    ----------
    settings : CostSettings
        The public settings of the cost.
    groups : "LabelledGroups"
        The groups, the number of records, and of parts that are added up.
    box : tuple of two ndarray of shape (n_features,)
        The declared bounds, of which `support` has the points of the grid.
    epsilon, delta : float
        Budget; Laplace noise for delta 0, Gaussian noise above.
    """

    def __init__(
        self,
        settings: CostSettings,
        groups: "LabelledGroups",
        box: tuple[np.ndarray, np.ndarray],
        epsilon: float,
        delta: float,
    ) -> None:
        self.settings, self.groups, self.box = settings, groups, box
        self.support = make_grid(*box, groups, epsilon)
        self._noise = VectorRelease(
            epsilon,
            delta,
            histogram_sensitivities,
            # All counts are one vector: a record moves two of them, however many groups there are.
            n_coordinates=len(self.groups.names) * len(self.support),
            largest=float(groups.n_records),
            # Integers on a grid of width 1: noise is rounded to integers, too.
            counts=True,
        )

    def expected_errors(self, n_records):
        """Return the standard error of each cost, to first order in the noise.

        Noise e of the histograms changes a cost by the scalar product of e with the potentials,
        which are assumed to be uniform over the range of costs. Groups of private sizes may be
        equally large.
        """
        max_cost, sizes = self.settings.cost_range, self.groups.sizes
        # What a preview may know is the total; equal sizes are the middle case.
        if self.groups.labels == "private":
            sizes = np.full(len(sizes), n_records / len(sizes))
        # Each owner of parts adds noise of her own, and variances add up.
        deviation = self._noise.standard_deviation * math.sqrt(self.groups.n_parts)
        of_count = deviation * math.sqrt(len(self.support) / 12.0)
        of_group = of_count / sizes * max_cost
        errors = (math.hypot(*pair) for pair in combinations(of_group.tolist(), 2))
        return self.groups.cost_errors(errors, max_cost)

    def values(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the counts of records in the groups of these codes, without noise: private."""
        # Ties go to one of the nearest points by coordinates alone, so a record's cell depends on
        # no other record.
        cells = cKDTree(self.support).query(X)[1]
        counts = np.zeros((len(self.groups.names), len(self.support)))
        # A record without a declared group counts nowhere.
        member = codes >= 0
        np.add.at(counts, (codes[member], cells[member]), 1.0)
        return counts

    def run(self, X, source):
        return self.read(self.add_noise(self.values(X, self.groups.codes), source))

    def read(self, noisy: np.ndarray) -> Released:
        """Return what is computed from the sum of all parts; a function of the release."""
        names = [f"feature {j}" for j in range(len(self.box[0]))]
        shape = [len(noisy)] + [round(len(self.support) ** (1 / len(names)))] * len(names)
        noise = self._noise.standard_deviation * math.sqrt(self.groups.n_parts)
        warn_of_grid(names, self.box, noisy.reshape(shape), noise, self.groups.n_records)
        totals = self.groups.sizes.astype(np.float64)
        if self.groups.labels == "private":
            # Noisy totals may be too small, even negative; each group has at least its declared
            # number.
            totals = np.maximum(noisy.sum(axis=1), totals)
        # Any function of noisy counts is as private as they are. The nearest distribution has zeros
        # where hardly anything was counted.
        histograms = np.array(
            [nearest_distribution(row / size) for row, size in zip(noisy, totals, strict=True)]
        )
        return released_on_grid(self.settings, self.support, histograms)


def released_on_grid(settings: Any, support: np.ndarray, histograms: np.ndarray) -> Released:
    """Return the costs between histograms on one grid, and the plan between two of them."""
    low, _ = settings.cost.range
    cost = settings.cost(support, support) - low
    pairs = list(combinations(range(len(histograms)), 2))
    every = pairs + [(g, g) for g in range(len(histograms)) if settings.divergence != "ot"]
    # To a billionth of the range, if that can be certified.
    tol = 1e-9 * settings.cost_range
    if settings.reg > 0:
        sizes = len(support), len(support)
        tol = max(tol, smallest_tolerance(*sizes, settings.cost_range, settings.reg))
    tasks = [(settings.transport, cost, histograms[g], histograms[h], tol) for g, h in every]
    found = dict(zip(every, settings.map(tasks), strict=True))
    values = {pair: result.cost for pair, result in found.items()}
    costs = settings.offset + debiased(values, pairs)
    shown: dict[str, Any] = {"support_": support, "histograms_": histograms}
    if len(histograms) > 2:
        return Released(costs, attributes=shown)
    first = found[0, 1]
    # Dual potentials of costs that begin at `low`: the rows' take the constant.
    rows, columns = first.row_potential + low, first.column_potential
    if first.plan is not None:
        plan = first.plan.toarray()
    else:
        exponents = (rows[:, None] + columns - cost - low) / settings.reg
        # Exponents are far below this where both weights are positive.
        plan = histograms[0][:, None] * histograms[1] * np.exp(np.minimum(exponents, 700.0))
    shown |= {"plan_": plan, "potentials_": (rows, columns)}
    return Released(costs, attributes=shown)
