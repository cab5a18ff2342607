"""The agreement of owners and coordinator about a private release of groups."""

import dataclasses
import math
import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from skdpot.privacy.checks import check_choice
from skdpot.privacy.events import ApproximateDpEvent, DpEvent, PureDpEvent
from skdpot.privacy.labels import number_of_label
from skdpot.privacy.preview import ExpectedError
from skdpot.releases import (
    KINDS,
    HistogramRelease,
    MomentsRelease,
    ReleasedGroups,
    SharedRelease,
    SummedRelease,
    UnitLayout,
    plan_release,
)

NEIGHBOURING = "replace_one"
# The name of the step of a release, the only one that is answered.
RELEASE = "release"
NOISES = ("own", "shared")


@dataclass(frozen=True)
class GroupRelease:
    """A private release of groups, in which every owner releases a part.

    All parameters are public. Owners and coordinator need equal objects. An owner releases nothing
    to a coordinator that asks for a different release.

    Parameters
    ----------
    epsilon : float
        Privacy cost of the release for every owner, above 0.
    groups : sequence of hashable
        Labels of all groups. Rows of other groups are ignored.
    bounds : tuple of (array-like, array-like) of shape (n_features,), default=None
        Lower and upper bounds of the features; values outside are clipped. Required without
        `layout`.
    delta : float, default=0.0
        0 means Laplace noise; a value above 0 means Gaussian noise.
    kind : {"auto", "histogram", "moments"}, default="auto"
        Counts in the cells of a grid, or sums of rows and of their products.
    noise : {"own", "shared"}, default="own"
        ``"own"``: every owner adds all the noise that its own rows need, independent of other
        owners. The sum of k owners then has k times the variance. ``"shared"``: every owner adds a
        part of the noise, and all parts together are enough. It needs secure aggregation, a delta,
        and `n_honest`.
    n_honest : int, default=None
        With shared noise, the smallest number of honest owners in the sum. With fewer, the release
        is **not** as private as `epsilon` says. An owner that colludes with the coordinator is not
        honest.
    layout : UnitLayout, default=None
        Layout of rows that are already in unit coordinates. None is one number for every feature.
    meaning : mapping of str to str, default={}
        Other facts on which all must agree, by topic: digests of the meaning of coordinates.
    owners_per_group : sequence of int, default=None
        Use it if every owner has rows of one public group only: the number of owners of each
        group, in the order of `groups`. Then an owner sends nothing about other groups and adds no
        noise to their counts. The group of its rows is not protected.

    Raises
    ------
    ValueError
        If a parameter is invalid, or parameters do not fit together.

    See Also
    --------
    BarycenterOwner : An owner, which charges a release before it answers.
    BarycenterCoordinator : Asks owners for it.

    Notes
    -----
    The release consists of counts, or moments of clipped rows, with exact discrete noise. Proofs
    of the sensitivity: :ref:`proof-full-noise` and :ref:`proof-shared-noise`.

    Data sets are neighbours if they differ in the values of one row of one owner, and possibly its
    group, unless that is public. The number of rows of every owner is public. For a person with
    rows at several owners, the costs of all these owners add up.

    Examples
    --------
    >>> from skdpot.federation import GroupRelease
    >>> agreed = GroupRelease(1.0, groups=["a", "b"], bounds=([0, 0], [1, 1]), delta=1e-6)
    >>> agreed.plan(n_records=10_000, n_parts=3).kind
    'histogram'
    """

    epsilon: float
    groups: Any
    bounds: Any = None
    delta: float = 0.0
    kind: str = "auto"
    noise: str = "own"
    n_honest: int | None = None
    layout: UnitLayout | None = None
    meaning: Any = field(default_factory=dict)
    owners_per_group: Any = None

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the expected errors of the release of one owner alone.

        Parameters
        ----------
        n_records : int
                Number of records of the owner; public.

        Returns
        -------
        tuple of ExpectedError
            One for each kind of quantity.
        """
        return self.plan(n_records, 1).expected_errors(n_records)

    def __post_init__(self) -> None:
        labels = () if self.groups is None else self.groups
        object.__setattr__(self, "groups", tuple(labels))
        if not (0 < self.epsilon < math.inf and 0 <= self.delta < 1):
            raise ValueError("epsilon must be above 0 and finite, and delta in [0, 1).")
        if len(set(self.groups)) != len(self.groups) or not self.groups:
            raise ValueError("groups must be labels that differ from each other, one or more.")
        check_choice("kind", self.kind, KINDS)
        check_choice("noise", self.noise, NOISES)
        if self.noise == "shared" and self.n_honest is None:
            raise ValueError("noise='shared' needs n_honest: how many owners are honest, at least.")
        if self.noise != "shared" and self.n_honest is not None:
            raise ValueError("n_honest is for noise='shared'.")
        if self.n_honest is not None and self.n_honest < 1:
            raise ValueError(f"n_honest must be at least 1, got {self.n_honest!r}.")
        if self.noise == "shared" and self.delta == 0:
            raise ValueError("shared noise is Gaussian: declare a delta above 0.")
        if (self.bounds is None) == (self.layout is None):
            raise ValueError("a release needs bounds of the features, or a layout instead.")
        if self.bounds is not None:
            object.__setattr__(self, "bounds", _checked_bounds(self.bounds))
        if self.owners_per_group is not None:
            self._check_owners()

    def _check_owners(self) -> None:
        numbers = tuple(operator.index(number) for number in self.owners_per_group)
        if len(numbers) != len(self.groups) or min(numbers) < 1:
            raise ValueError("owners_per_group must be a number for each group, 1 or more.")
        if self.noise == "shared" or self.layout is not None:
            raise ValueError(
                "owners_per_group is for owners with one group each, of rows with bounds, who add "
                "noise of their own."
            )
        object.__setattr__(self, "owners_per_group", numbers)

    @property
    def promise(self) -> DpEvent:
        """Return the event of the largest cost, for any number of rows and owners."""
        if not self.delta:
            return PureDpEvent(self.epsilon)
        return ApproximateDpEvent(self.epsilon, self.delta)

    @cached_property
    def unit_layout(self) -> UnitLayout:
        """Return the layout of the coordinates of a row."""
        return self.layout or UnitLayout((0,) * len(self.bounds[0]), ())

    def described(self) -> dict[str, Any]:
        """Return all parameters as values for JSON, by which two parties compare releases.

        Returns
        -------
        dict
            By the names of the parameters.
        """
        described: dict[str, Any] = {name: getattr(self, name) for name in ("kind", "noise")}
        described |= {"epsilon": float(self.epsilon), "delta": float(self.delta)}
        described["n_honest"] = None if self.n_honest is None else int(self.n_honest)
        bounds = None if self.bounds is None else [list(end) for end in self.bounds]
        levels, blocks = self.unit_layout.levels, self.unit_layout.blocks
        return described | {
            "groups": [described_label(label) for label in self.groups],
            "owners_per_group": list(self.owners_per_group or ()),
            "bounds": bounds,
            "layout": [list(levels), list(blocks)],
            **self.meaning,
        }

    def plan(self, n_records: int, n_parts: int) -> HistogramRelease | MomentsRelease:
        """Return the planned release, for numbers of records and owners.

        Parameters
        ----------
        n_records, n_parts : int
            Number of rows of all owners together, and of owners.

        Returns
        -------
        HistogramRelease or MomentsRelease
            A release with the noise of one part.

        Raises
        ------
        ValueError
            If there are too many cells or moments, or the budget is out of range.
        """
        # With one group each, only the owners of a group add noise to its numbers.
        make: Any = partial(SummedRelease, n_parts=1 if self.owners_per_group else n_parts)
        if self.n_honest is not None:
            make = partial(SharedRelease, n_parts=n_parts, n_honest=self.n_honest)
        return plan_release(
            self.kind,
            self.unit_layout,
            len(self.groups),
            n_records,
            self.epsilon,
            self.delta,
            make_noise=make,
        )

    def read(
        self,
        total: np.ndarray,
        n_records: int,
        n_parts: int,
        n_contributors: int,
        rows: Sequence[int] = (),
    ) -> ReleasedGroups:
        """Return the groups estimated from a sum of parts; post-processing.

        Parameters
        ----------
        total : ndarray of shape (n_words,), dtype=int64
            The sum.
        n_records, n_parts : int
            As of the plan.
        n_contributors : int
            How many parts were summed.
        rows : sequence of int, default=()
            If parts were not summed but their median was taken, how many rows each of the
            contributors declared.

        Returns
        -------
        ReleasedGroups
            Points are in the features' own units, unless a layout was given.
        """
        plan = self.plan(n_records, n_parts)
        values = plan.noise.read_sum(total).reshape(plan.released_shape)
        deviations = None
        if rows:
            plan.use_noise(plan.noise.of_median(rows))
        elif self.owners_per_group:
            deviations = plan.noise.standard_deviation * np.sqrt(self.owners_per_group)
        else:
            plan.use_noise(plan.noise.with_parts(n_contributors))
        groups = plan.groups_of(values, deviations)
        if self.bounds is None:
            return groups
        low, high = self.bounds
        return dataclasses.replace(
            groups, points=[low + (np.array(high) - low) * points for points in groups.points]
        )

    def part(self, plan: Any, units: np.ndarray, codes: np.ndarray, source: Any) -> np.ndarray:
        """Release an owner's part; charge the plan's event before you send it.

        Parameters
        ----------
        plan : HistogramRelease or MomentsRelease
            Of all owners.
        units, codes : ndarray
            Private rows in unit coordinates, and positions of their groups.
        source : NoiseSource
            Where the noise comes from.

        Returns
        -------
        ndarray of shape (n_words,), dtype=int64
            With zeros for groups that the owner has no rows of, if that is public.
        """
        part = plan.part((units, codes), source).astype(np.int64)
        if self.owners_per_group:
            part[np.arange(len(self.groups)) != codes[0]] = 0
        return part.ravel()

    def check_range(self, plan: Any, total: np.ndarray, n_rows: Sequence[int]) -> None:
        """Raise ValueError for a sum of parts that is impossible for so many rows; post-processing.

        Parameters
        ----------
        plan : HistogramRelease or MomentsRelease
            Of all owners.
        total : ndarray of shape (n_words,), dtype=int64
            A part, or a sum of parts.
        n_rows : sequence of int
            How many rows each of their owners declared.
        """
        if self.owners_per_group and len(n_rows) == 1:
            if np.count_nonzero(total.reshape(len(self.groups), -1).any(axis=1)) > 1:
                raise ValueError("it has rows of several groups")
        plan.check_range(total, sum(n_rows), len(n_rows))

    def to_units(self, points: np.ndarray) -> np.ndarray:
        """Return private rows in unit coordinates.

        Parameters
        ----------
        points : ndarray of shape (n_rows, n_features)
            Private; they are clipped to the bounds. With a layout they are as they are returned.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            Between 0 and 1.
        """
        if self.bounds is None:
            return points
        low, high = map(np.array, self.bounds)
        if points.shape[1] != len(low):
            raise ValueError(f"points have {points.shape[1]} features, and the bounds {len(low)}.")
        return (np.clip(points, low, high) - low) / (high - low)

    def codes_of(self, labels: Any, n_records: int) -> np.ndarray:
        """Return the position of every row's group; private.

        Parameters
        ----------
        labels : hashable or array-like of shape (n_records,)
            One for all rows, or one for each.
        n_records : int
            Number of rows.

        Returns
        -------
        ndarray of shape (n_records,)
            -1 for a label that was not declared.

        Raises
        ------
        ValueError
            If there is neither one label nor one for every row; or if every owner has one group,
            and this is the label of none.
        """
        if self.layout is not None:
            return np.asarray(labels, dtype=np.intp)
        position = {label: code for code, label in enumerate(self.groups)}
        if self.owners_per_group and not (isinstance(labels, Hashable) and labels in position):
            raise ValueError(
                "with owners_per_group an owner has rows of one group: group must be its label, "
                "one of the labels of the release."
            )
        # A tuple may be a label; any other tuple contains the labels of rows.
        several = isinstance(labels, tuple) and labels not in position
        if isinstance(labels, Hashable) and not several:
            return np.full(n_records, position.get(labels, -1))
        if len(labels) != n_records:
            raise ValueError(f"group must be one label, or {n_records}, got {len(labels)}.")
        return np.array([number_of_label(label, position) for label in labels], dtype=np.intp)


def described_label(label: Hashable) -> str:
    """Return a text for a label, the same for values of NumPy and of Python."""
    label = label.item() if isinstance(label, np.generic) else label
    return f"{type(label).__name__} {label!r}"


def _checked_bounds(bounds: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    low, high = (np.atleast_1d(np.asarray(end, dtype=np.float64)) for end in bounds)
    if low.shape != high.shape or low.ndim != 1 or not np.isfinite([*low, *high]).all():
        raise ValueError("bounds must be two arrays of finite numbers, one for every feature.")
    if not (low < high).all() or not np.isfinite(high - low).all():
        raise ValueError("every lower bound must be below its upper bound.")
    return tuple(low.tolist()), tuple(high.tolist())
