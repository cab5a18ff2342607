"""The ways to fit a fair map: from rows, or from what one or many release of the groups."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from tqdm.auto import tqdm

from skdpot.fairness._declared import (
    Declared,
    check_box,
    check_candidates,
    check_size,
    check_solver,
    declare,
)
from skdpot.fairness._fair_map import FairMap, clipped
from skdpot.fairness._group_weights import check_group_weights
from skdpot.fairness._groups import Groups, declare_groups, find_groups, rows_of_declared
from skdpot.fairness._maps import distinct
from skdpot.fairness._space import ColumnSpace, in_own_units
from skdpot.fairness._support import LARGEST_AUTOMATIC_SUPPORT, Barycenter, Question
from skdpot.federation import GroupRelease
from skdpot.privacy.charging import charge, check_ledger
from skdpot.privacy.random import make_source
from skdpot.releases import LARGEST_GRID, ReleasedGroups, plan_release
from skdpot.tables import Column

NEIGHBOURING = "replace_one"
# Sizes of supports, unless there is one that was asked for.
_ROWS_PER_POINT, _FEW = 10, 50


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
    check_size(settings, len(groups.names) * plan.most_points, candidates)
    source = make_source(settings.random_state)
    check_ledger(settings.ledger, NEIGHBOURING, seeded=source.seeded)
    charge(
        settings.ledger,
        plan.event,
        unit="record",
        label=f"{type(settings).__name__}, {plan.kind}",
        neighbouring=NEIGHBOURING,
        seeded=source.seeded,
    )
    released = plan.run((declared.units(codes), groups.find(labels)), source)
    return fit_released(settings, declared, released)


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
    check_size(settings, len(declared.groups.names) * most, declared.candidates)
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


def fit_released(settings: Any, declared: Declared, released: ReleasedGroups) -> FairMap:
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
