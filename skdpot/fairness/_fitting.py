"""The two ways to fit a fair map: from rows, and from a private release of the groups."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state
from tqdm.auto import tqdm

from skdpot._declarations import check_bounds
from skdpot.fairness._attribute import Groups, declare_groups, find_groups, rows_of_declared
from skdpot.fairness._columns import (
    NUMERIC,
    Column,
    ColumnSpace,
    in_own_units,
)
from skdpot.fairness._group_weights import check_group_weights
from skdpot.fairness._maps import METHODS, distinct
from skdpot.fairness._reading import find_columns, read_codes
from skdpot.fairness._support import (
    CANDIDATES_PER_POINT,
    LARGEST_AUTOMATIC_SUPPORT,
    OPTIONS,
    VALUES,
    Barycenter,
    Question,
)
from skdpot.fairness._tables import as_table
from skdpot.federation import GroupRelease
from skdpot.federation.group_release import LARGEST_GRID, ReleasedGroups, plan_release
from skdpot.privacy.charging import charge, check_fixed_part, check_ledger
from skdpot.privacy.random import make_source
from skdpot.transport.barycenter._exact import LARGEST_EXACT

NEIGHBOURING = "replace_one"
# Sizes of supports, unless there is one that was asked for.
_ROWS_PER_POINT, _FEW = 10, 50
# By how much sums of costs may be larger than one of them.
_ROOM = 1e6
_WHY_BOUNDS = "They give the grid, or the clipping, that what is released is scaled to."


@dataclass(frozen=True, eq=False)
class FairMap:
    """Groups, and how rows of theirs are moved.

    Attributes
    ----------
    columns : list of Column
        What rows are made of.
    space : ColumnSpace
        Where distances are taken.
    box : tuple of two ndarray, or None
        Bounds that numbers are clipped to.
    groups : Groups
        The groups; those of a private fit have no rows here.
    weights : ndarray of shape (n_groups,)
        Their weights.
    barycenter : Barycenter
        Where they are moved.
    """

    columns: list[Column]
    space: ColumnSpace
    box: tuple[np.ndarray, np.ndarray] | None
    groups: Groups
    weights: np.ndarray
    barycenter: Barycenter

    def images(
        self,
        codes: np.ndarray,
        groups: np.ndarray,
        uniforms: np.ndarray,
        *,
        method: str,
        n_neighbors: int,
        n_jobs: Any,
    ) -> np.ndarray:
        """Return where rows are moved, as codes; rows of no group stay.

        Parameters
        ----------
        codes : ndarray of shape (n, n_columns)
            Rows.
        groups : ndarray of shape (n,)
            Numbers of their groups, -1 for none.
        uniforms : ndarray of shape (n,)
            Random numbers, for images that are drawn.
        method, n_neighbors, n_jobs
            As of the estimator.

        Returns
        -------
        ndarray of shape (n, n_columns)
            Codes.
        """

        # Threads do not inherit what the caller has said of floating-point errors.
        @np.errstate(all="ignore")
        def move(g: int, rows: np.ndarray) -> np.ndarray:
            group = self.barycenter.maps[g]
            points = self.space.encode(clipped(codes[rows], self.columns, self.box))
            if method == "coupling":
                return self.barycenter.codes[group.draw(points, uniforms[rows])]
            return self.space.decode(METHODS[method](group, points, n_neighbors))

        rows_of = [np.flatnonzero(groups == g) for g in range(len(self.groups.names))]
        work = [(g, rows) for g, rows in enumerate(rows_of) if len(rows)]
        found = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(move)(*task) for task in work)
        images = codes.copy()
        for (_, rows), image in zip(work, found, strict=True):
            images[rows] = image
        return images


def read_columns(settings: Any, X: Any, kept: np.ndarray) -> list[Column]:
    """Return what is in the columns of X, as the estimator's parameters have it."""
    return find_columns(
        X,
        kept,
        categorical_features=settings.categorical_features,
        categories=settings.categories,
        missing=settings.missing,
        private=settings.epsilon is not None,
    )


def fit_openly(
    settings: Any, columns: list[Column], codes: np.ndarray, labels: np.ndarray
) -> FairMap:
    """Return the map that is learned from rows.

    Parameters
    ----------
    settings : FairBarycenterPreprocessor
        Whose parameters count.
    columns : list of Column
        What rows are made of.
    codes : ndarray of shape (n, n_columns)
        Rows.
    labels : ndarray of shape (n,), dtype=object
        Labels of their groups.

    Returns
    -------
    FairMap
        The map; as private as the rows.
    """
    candidates = check_candidates(settings, columns)
    groups = _find_groups(settings, labels)
    weights = check_group_weights(settings.weights, groups.names, groups.sizes)
    rng = check_random_state(settings.random_state)
    box = check_box(settings, columns)
    codes = clipped(codes, columns, box)
    own, members = in_own_units(columns), codes[groups.codes >= 0]
    space = own.scaled_to(members) if settings.scale else own.centred_on(members)
    rows_of = [np.flatnonzero(groups.codes == g) for g in range(len(groups.names))]
    drawn = [_at_most(settings.n_particles, rows, rng) for rows in rows_of]
    found = [
        distinct(space.encode(codes[rows]), np.full(len(rows), 1.0 / len(rows))) for rows in drawn
    ]
    n_support = settings.n_support or _automatic_support(sum(map(len, drawn)))
    barycenter = _solve(settings, space, found, weights, n_support, candidates, rng)
    return FairMap(columns, space, box, groups, weights, barycenter)


def fit_privately(
    settings: Any, columns: list[Column], codes: np.ndarray, labels: np.ndarray
) -> FairMap:
    """Return the map that is learned from what is released of the groups, and charged before.

    Parameters
    ----------
    settings : FairBarycenterPreprocessor
        Whose parameters count.
    columns : list of Column
        What rows are made of; public.
    codes : ndarray of shape (n, n_columns)
        Private rows; how many they are is public.
    labels : ndarray of shape (n,), dtype=object
        Private labels of their groups.

    Returns
    -------
    FairMap
        The map; a function of the release.
    """
    declared = declare(settings, columns)
    groups, candidates = declared.groups, declared.candidates
    plan = plan_release(
        settings.private_release,
        declared.own.layout,
        len(groups.names),
        len(codes),
        settings.epsilon,
        settings.delta or 0.0,
    )
    _check_size(settings, len(groups.names) * plan.most_points, candidates)
    source = make_source(settings.random_state)
    check_ledger(settings.ledger, NEIGHBOURING, seeded=source.seeded)
    check_fixed_part(settings.ledger, "the resolution of what is released")
    charge(
        settings.ledger,
        plan.event,
        unit="record",
        label=f"{type(settings).__name__}, {plan.kind}",
        neighbouring=NEIGHBOURING,
        seeded=source.seeded,
    )
    released = plan.run(declared.units(codes), groups.find(labels), source)
    return fit_released(settings, declared, released)


def fit_released(settings: Any, declared: "Declared", released: ReleasedGroups) -> FairMap:
    """Return the map that is learned from released groups; post-processing.

    Parameters
    ----------
    settings : FairBarycenterPreprocessor
        Whose parameters count.
    declared : Declared
        What is public.
    released : ReleasedGroups
        Groups, in unit coordinates.

    Returns
    -------
    FairMap
        The map.
    """
    space, names = declared.space, declared.groups.names
    found = [
        distinct(declared.points_of(units), masses)
        for units, masses in zip(released.points, released.masses, strict=True)
    ]
    weights = check_group_weights(settings.weights, names, released.sizes)
    n_support = settings.n_support or LARGEST_AUTOMATIC_SUPPORT
    rng = check_random_state(settings.random_state)
    barycenter = _solve(settings, space, found, weights, n_support, declared.candidates, rng)
    return FairMap(declared.columns, space, declared.box, declared.groups, weights, barycenter)


@dataclass(frozen=True, eq=False)
class Declared:
    """What is public of rows, before anything is released of them.

    Attributes
    ----------
    columns : list of Column
        What rows are made of.
    groups : Groups
        The declared groups.
    candidates : ndarray of shape (n_candidates, n_columns) or None
        Rows to choose the support from, as codes.
    box : tuple of two ndarray
        Bounds of numbers.
    own, space : ColumnSpace
        Rows in their own units, and where distances are taken.
    low, high : ndarray of shape (n_ranked,)
        Bounds of numbers and ranks.
    """

    columns: list[Column]
    groups: Groups
    candidates: np.ndarray | None
    box: tuple[np.ndarray, np.ndarray]
    own: ColumnSpace
    space: ColumnSpace
    low: np.ndarray
    high: np.ndarray

    def units(self, codes: np.ndarray) -> np.ndarray:
        """Return private rows in unit coordinates."""
        ranked = len(self.low)
        units = self.own.raw(clipped(codes, self.columns, self.box))
        units[:, :ranked] = (units[:, :ranked] - self.low) / (self.high - self.low)
        return units

    def points_of(self, units: np.ndarray) -> np.ndarray:
        """Return points in the space of distances."""
        ranked, raw = len(self.low), units.copy()
        raw[:, :ranked] = self.low + (self.high - self.low) * raw[:, :ranked]
        return (raw - self.space.origin) * self.space.factor

    def meaning(self) -> dict[str, str]:
        """Return digests of what coordinates mean, which owners have to agree on."""
        labels = [() if column.labels is None else column.labels for column in self.columns]
        told = {
            "columns": [[column.kind, repr(column.name)] for column in self.columns],
            "categories": [[repr(label) for label in of_column] for of_column in labels],
            "bounds": [self.low.tolist(), self.high.tolist()],
        }
        return {
            name: hashlib.sha256(json.dumps(one).encode()).hexdigest() for name, one in told.items()
        }


def declare(settings: Any, columns: list[Column]) -> Declared:
    """Return what is public of rows, or raise before anything is charged.

    Parameters
    ----------
    settings : FairBarycenterPreprocessor
        Whose parameters count.
    columns : list of Column
        What rows are made of.

    Returns
    -------
    Declared
        Groups, candidates, bounds and spaces.
    """
    groups = declare_groups(settings.groups)
    if len(groups.names) < 2:
        raise ValueError("a repair needs two or more groups, and one was declared.")
    # Wrong weights and candidates raise before anything is charged; sizes are not known yet.
    check_group_weights(settings.weights, groups.names, np.ones(len(groups.names)))
    candidates = check_candidates(settings, columns)
    box = check_box(settings, columns)
    own = in_own_units(columns)
    low, high = own.box(*box)
    space = own.of_box(low, high, scaled=settings.scale)
    corner = np.concatenate([high, np.ones(len(own.factor) - len(high))])
    _check_extent(settings, space, corner, candidates)
    return Declared(columns, groups, candidates, box, own, space, low, high)


def fit_together(settings: Any, columns: list[Column]) -> FairMap:
    """Return the map that is learned from what owners release, who charge it to their ledgers.

    Parameters
    ----------
    settings : FairBarycenterPreprocessor
        Whose parameters count.
    columns : list of Column
        What rows are made of; public.

    Returns
    -------
    FairMap
        The map; a function of the owners' releases.
    """
    declared, federation = declare(settings, columns), settings.federation
    release = release_of(settings, declared, federation.noise, federation.n_honest)
    # A release may have more points than this only if there are more cells than records.
    most = max(release.plan(1, len(federation.owners)).most_points, LARGEST_GRID)
    _check_size(settings, len(declared.groups.names) * most, declared.candidates)
    return fit_released(settings, declared, federation.collect(release).released)


def release_of(settings: Any, declared: Declared, noise: str, n_honest: int | None) -> GroupRelease:
    """Return what every owner agrees to release.

    Parameters
    ----------
    settings : FairBarycenterPreprocessor
        Whose parameters count.
    declared : Declared
        What is public.
    noise, n_honest
        As of :class:`GroupRelease`.

    Returns
    -------
    GroupRelease
        The same for all who have the same parameters.
    """
    return GroupRelease(
        settings.epsilon,
        declared.groups.names,
        delta=settings.delta or 0.0,
        kind=settings.private_release,
        noise=noise,
        n_honest=n_honest,
        layout=declared.own.layout,
        meaning=declared.meaning(),
    )


def clipped(codes: np.ndarray, columns: list[Column], box: Any) -> np.ndarray:
    """Return rows with numbers moved into their bounds, if there are any."""
    if box is None:
        return codes
    numeric = [column.kind == NUMERIC for column in columns]
    codes = codes.copy()
    codes[:, numeric] = np.clip(codes[:, numeric], *box)
    return codes


def check_box(settings: Any, columns: list[Column]) -> Any:
    """Return the bounds of numbers, None if there are none and need not be, or raise."""
    if settings.epsilon is None and settings.bounds is None:
        return None
    numeric = [column for column in columns if column.kind == NUMERIC]
    # Labels y, which have no position and come last, have no bounds.
    n_bounded = sum(column.position is not None for column in numeric)
    low, high = np.empty(0), np.empty(0)
    if n_bounded:
        low, high = check_bounds(settings.bounds, n_bounded, _WHY_BOUNDS)
    beyond = np.full(len(numeric) - n_bounded, np.inf)
    return np.concatenate([low, -beyond]), np.concatenate([high, beyond])


def check_solver(settings: Any) -> tuple[str, dict[str, Any]]:
    """Return the solver that is asked for and its options, or raise."""
    solver = settings.solver
    free = settings.order == 2 and settings.candidates is None
    if solver == "auto" and free:
        solver = "free"
    if solver == "free" and not free:
        raise ValueError(
            "solver='free' moves support points freely, with costs of order 2; candidates and "
            "other orders are for the other solvers."
        )
    given = settings.solver_params or {}
    options = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(set(options) - OPTIONS[solver])
    if unknown:
        raise ValueError(
            f"solver_params holds {unknown}, and those of the solver {solver!r} are "
            f"{sorted(OPTIONS[solver])}."
        )
    for name, value in options.items():
        if not VALUES[name].is_satisfied_by(value):
            raise ValueError(f"solver_params[{name!r}] must be {VALUES[name]}, got {value!r}.")
    return solver, options


def check_candidates(settings: Any, columns: list[Column]) -> np.ndarray | None:
    """Return the candidates as codes, None if there are none, or raise."""
    if settings.candidates is None:
        return None
    candidates = as_table(settings.candidates)
    if len(np.shape(candidates)) != 2 or candidates.shape[1] != len(columns):
        raise ValueError(
            f"candidates must be rows of {len(columns)} columns, those of X without the sensitive "
            f"attribute; got shape {np.shape(candidates)}."
        )
    places = [
        Column(column.name, place, column.kind, column.labels, column.number)
        for place, column in enumerate(columns)
    ]
    codes = read_codes(candidates, places, "category")
    if (codes[:, [column.kind != NUMERIC for column in columns]] < 0).any():
        raise ValueError("candidates hold categories that are none of those of X.")
    codes = np.unique(codes, axis=0)
    if settings.n_support is not None and settings.n_support > len(codes):
        raise ValueError(
            f"n_support={settings.n_support} points cannot be chosen among {len(codes)} different "
            "candidates."
        )
    return codes


def _check_extent(
    settings: Any, space: ColumnSpace, corner: np.ndarray, candidates: np.ndarray | None
) -> None:
    """Raise if costs within the box, to whose lower corner this one is opposite, may overflow."""
    extent = np.abs((corner - space.origin) * space.factor)
    if candidates is not None:
        extent = np.maximum(extent, np.abs(space.encode(candidates)).max(axis=0))
    # Four times: an upper bound on squares of sums of two. The rest is room for sums of costs.
    largest = np.float64(4.0 * (extent @ extent)) ** (settings.order / 2.0) * _ROOM
    if not np.isfinite([largest, space.factor.max()]).all():
        raise ValueError(
            "costs of transport between the bounds are beyond the range of doubles. Declare other "
            "bounds, or use a smaller order or other units."
        )


def _check_size(settings: Any, n_points: int, candidates: np.ndarray | None) -> None:
    """Raise if the problem of released points may be too large for the solver."""
    if settings.solver != "exact":
        return
    n_candidates = CANDIDATES_PER_POINT * (settings.n_support or LARGEST_AUTOMATIC_SUPPORT)
    if candidates is not None:
        n_candidates = len(candidates)
    if n_points * n_candidates > LARGEST_EXACT:
        raise ValueError(
            f"solver='exact' is for at most {LARGEST_EXACT} pairs of points and candidates, and "
            f"these may be {n_points * n_candidates}. Use solver='bundle' with a small tol."
        )


def _find_groups(settings: Any, labels: np.ndarray) -> Groups:
    if settings.groups is not None:
        return rows_of_declared(declare_groups(settings.groups), labels)
    groups = find_groups(
        labels, min_group_size=settings.min_group_size, small_groups=settings.small_groups
    )
    if not len(groups.names):
        raise ValueError(
            f"no group has min_group_size={settings.min_group_size} rows, and small_groups='drop' "
            "leaves out all of them."
        )
    return groups


def _automatic_support(n_rows: int) -> int:
    """Return how many points a support has: the masses of new rows at each are then known."""
    return min(LARGEST_AUTOMATIC_SUPPORT, max(n_rows // _ROWS_PER_POINT, min(n_rows, _FEW)))


def _at_most(size: int, rows: np.ndarray, rng: Any) -> np.ndarray:
    return rows if len(rows) <= size else rng.choice(rows, size, replace=False)


def _solve(
    settings: Any,
    space: ColumnSpace,
    found: list[tuple[np.ndarray, np.ndarray]],
    weights: np.ndarray,
    n_support: int,
    candidates: np.ndarray | None,
    rng: Any,
) -> Barycenter:
    solver, options = check_solver(settings)
    question = Question(
        space=space,
        points=[points for points, _ in found],
        masses=[masses for _, masses in found],
        weights=weights,
        n_support=n_support,
        order=float(settings.order),
        solver=solver,
        options=options,
        candidates=candidates,
    )
    name = type(settings).__name__
    with tqdm(desc=name, unit=" rounds", disable=not settings.verbose) as bar:
        return question.solve(
            rng, n_jobs=settings.n_jobs, callback=lambda n_iter: bar.update(n_iter - bar.n)
        )
