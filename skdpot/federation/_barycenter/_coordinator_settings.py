"""Checked parameters of a coordinator."""

import dataclasses
import hashlib
import json
import math
import operator
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from skdpot.privacy.checks import check_choice
from skdpot.releases import ReleasedGroups, group_weights
from skdpot.transport.barycenter import BarycenterProblem, BarycenterResult, Method, Step

from .._keys import checked_publics
from .._run_defaults import MAX_ROWS
from .._secure_aggregation import SecureAggregation, resolution
from ._group_release import RELEASE, GroupRelease
from ._released_barycenter import barycenter_of_groups
from ._round_sums import Check, OutOfRange

MISSING = ("raise", "drop")
COMBINE = ("sum", "median")


class BarycenterSettings:
    """Checked parameters of a :class:`BarycenterCoordinator`, which documents them."""

    def __init__(
        self,
        owners: Sequence[str] | Mapping[str, str],
        n_support: int | None,
        method: str,
        release: GroupRelease | None,
        candidates: Any,
        weights: Any,
        bounds: Any,
        secure: SecureAggregation | None,
        tol: float,
        max_iter: int | None,
        on_missing: str,
        n_attempts: int,
        n_least: int,
        max_rows: int | Mapping[str, int],
        combine: str,
    ) -> None:
        self.owners = checked_names(owners)
        self.publics = checked_publics(owners) if isinstance(owners, Mapping) else {}
        check_choice("method", method, ("release", *Method.known))
        if (method == "release") != (release is not None):
            raise ValueError(
                "method='release', the default, needs release=GroupRelease(...), and other methods "
                f"take none; got method={method!r} and release={release!r}."
            )
        check_choice("on_missing", on_missing, MISSING)
        self.n_attempts, self.n_least = operator.index(n_attempts), operator.index(n_least)
        if self.n_attempts < 1 or not 1 <= self.n_least <= len(self.owners):
            raise ValueError(
                "n_attempts must be at least 1, and n_least from 1 to the number of owners, got "
                f"{n_attempts} and {n_least}."
            )
        self.combine = combine
        self._max_rows = _checked_rows(max_rows, self.owners)
        self.n_support = None if n_support is None else operator.index(n_support)
        if self.n_support is None and release is None:
            raise ValueError("n_support may be None for a release only.")
        self.method, self.release, self.secure = method, release, secure
        self.candidates = None if candidates is None else np.array(candidates, dtype=np.float64)
        self.weights = weights if isinstance(weights, str) else np.array(weights, dtype=np.float64)
        self.bounds = None
        if bounds is not None:
            self.bounds = tuple(np.array(end, dtype=np.float64) for end in bounds)
        self.tol, self.on_missing = float(tol), on_missing
        self.max_iter = None if max_iter is None else operator.index(max_iter)
        self._check_sums()
        if release is None:
            self.problem(self.owners, self._assumed_width())
        else:
            self._check_release(release)

    @property
    def n_honest(self) -> int:
        """Return the smallest number of honest owners in a sum."""
        return 1 if self.release is None else self.release.n_honest or 1

    def max_rows(self, owner: str) -> int:
        """Return the largest number of rows that an owner may declare."""
        return self._max_rows.get(owner, MAX_ROWS)

    def secure_for(self, n_owners: int) -> SecureAggregation:
        """Return the secure aggregation of so many owners, or raise ValueError."""
        assert self.secure is not None
        secure = self.secure
        if self.publics and secure.threshold is None:
            # Owners count on this threshold, even if some of them are left out.
            of_all = secure.for_owners(len(self.owners), self.n_honest, signed=True)
            secure = dataclasses.replace(secure, threshold=of_all.threshold)
        return secure.for_owners(n_owners, self.n_honest)

    def resolution(self, n_owners: int) -> float:
        """Return the largest error of a sum, in units of the largest entry."""
        return 0.0 if self.secure is None else resolution(n_owners)

    def problem(self, owners: Sequence[str], n_features: int | None) -> BarycenterProblem:
        """Return the problem of an algorithm for these owners, or raise ValueError."""
        return BarycenterProblem(
            n_groups=len(owners),
            n_support=self.n_support or 0,
            n_features=n_features,
            weights=self._weights_of(owners),
            candidates=self.candidates,
            bounds=self.bounds,
            method=self.method,
            tol=self.tol,
            max_iter=self.max_iter,
            resolution=self.resolution(len(owners)),
        )

    def release_rounds(
        self, n_records: int, n_parts: int
    ) -> Generator[Step, tuple[np.ndarray, list[int]], tuple[BarycenterResult, ReleasedGroups]]:
        """Yield the one step of a release, and return the result computed from the sum."""
        release = self.release
        assert release is not None
        size = math.prod(release.plan(n_records, n_parts).released_shape)
        total, rows = yield Step(RELEASE, {}, size, 0.0)
        of_median = rows if self.combine == "median" else ()
        groups = release.read(total, n_records, n_parts, len(rows), of_median)
        return barycenter_of_groups(groups, self.weights, self.n_support or 0, self.tol), groups

    def check_of(self, step: Step, rows: Mapping[str, int]) -> Check:
        """Return the check of every vector of a step, or of the sum of masked ones."""
        release = self.release
        if release is None:
            # With room for rounding errors.
            largest = step.largest * (1.0 + 1e-9)
            return partial(_check_magnitude, largest)
        plan = release.plan(sum(rows.values()), len(rows))

        def check(vector: np.ndarray, owners: Sequence[str]) -> None:
            try:
                release.check_range(plan, vector, [rows[name] for name in owners])
            except ValueError as error:
                raise OutOfRange(str(error)) from None

        return check

    def task_of(self, step: Step, n_records: int, n_parts: int) -> tuple[dict[str, Any], bool]:
        """Return the task of a step, without arrays, and whether all owners must answer."""
        task: dict[str, Any] = {"kind": step.kind, "size": step.size}
        if step.kind == RELEASE:
            task |= {"type": "int64", "n_records": n_records, "n_parts": n_parts}
            return task, self.on_missing == "raise"
        task["type"] = "float64"
        if self.secure is not None:
            task["largest"] = float(step.largest)
        return task, True

    def can_do_with(self, owners: Sequence[str], n_features: int | None) -> bool:
        """Return whether the coordinator may and can continue with these owners."""
        if self.on_missing == "raise" or len(owners) < max(self.n_least, self.n_honest):
            return False
        try:
            if self.release is None:
                self.problem(owners, n_features or self._assumed_width())
            return self.secure is None or bool(self.secure_for(len(owners)))
        except ValueError:
            return False

    def digest(self) -> str:
        """Return a digest of all parameters that sums depend on."""
        bounds = None if self.bounds is None else [end.tolist() for end in self.bounds]
        settings = [
            list(self.owners), self.n_support, self.method,
            None if self.candidates is None else self.candidates.tolist(),
            self.weights if isinstance(self.weights, str) else self.weights.tolist(),
            bounds, None if self.release is None else self.release.described(),
            self.secure is not None, self.tol, self.max_iter, self.combine, self.publics,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()

    def _check_release(self, release: GroupRelease) -> None:
        group_weights(self.weights, np.ones(len(release.groups)))
        if sum(release.owners_per_group or [len(self.owners)]) != len(self.owners):
            raise ValueError("owners_per_group must add up to the number of owners.")
        if (self.n_support is not None and self.n_support < 1) or not self.tol > 0:
            raise ValueError("n_support must be at least 1, and tol positive.")

    def _check_sums(self) -> None:
        check_choice("combine", self.combine, COMBINE)
        release = self.release
        parts = release and release.noise == "own" and not release.owners_per_group
        if self.combine == "median" and (self.secure is not None or not parts):
            raise ValueError(
                "combine='median' is for a release with own noise, of owners with rows of any "
                "group, and without secure aggregation: masked parts have a sum and no median."
            )
        shared = self.release is not None and self.release.noise == "shared"
        if shared and self.secure is None:
            raise ValueError("shared noise needs secure aggregation: set secure, too.")
        if shared and not self.publics:
            raise ValueError(
                "shared noise needs keys: owners must be a mapping of names to public keys."
            )
        if self.n_honest > len(self.owners):
            raise ValueError(f"n_honest={self.n_honest} exceeds the {len(self.owners)} owners.")
        if self.secure is None:
            return
        self.secure_for(len(self.owners))
        if self.release is None and self.bounds is None:
            raise ValueError("secure sums of doubles need the bounds of the rows: declare bounds.")

    def _assumed_width(self) -> int | None:
        """Return a number of features for a check of the problem before owners declare theirs.

        None if candidates or bounds determine it.
        """
        told_by_bounds = self.bounds is not None and max(end.ndim for end in self.bounds) == 1
        return None if self.candidates is not None or told_by_bounds else 1

    def _weights_of(self, owners: Sequence[str]) -> Any:
        if isinstance(self.weights, str):
            if self.weights == "proportional":
                return self.weights
            if self.weights != "uniform":
                raise ValueError(
                    f"weights must be 'proportional', 'uniform' or numbers, got {self.weights!r}."
                )
            return np.full(len(owners), 1.0 / len(owners))
        if self.weights.shape != (len(self.owners),) or not (self.weights >= 0).all():
            raise ValueError("weights must be non-negative numbers, one for every owner.")
        kept = np.array([self.weights[self.owners.index(name)] for name in owners])
        if not 0 < kept.sum() < np.inf:
            raise ValueError("the weights of the owners that take part have no positive sum.")
        return kept / kept.sum()


def checked_names(owners: Sequence[str] | Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of owners, or raise ValueError if they are not distinct names."""
    names = tuple(map(str, owners))
    if isinstance(owners, str) or not names or len(set(names)) < len(names):
        raise ValueError("owners must be names that differ from each other, one or more.")
    return names


def _check_magnitude(largest: float, vector: np.ndarray, owners: Sequence[str]) -> None:
    most = float(np.abs(vector).max(initial=0.0))
    if most > largest:
        raise OutOfRange(f"it has the number {most:.6g}, and bounds allow {largest:.6g}")


def _checked_rows(max_rows: Any, owners: Sequence[str]) -> dict[str, int]:
    """Return the largest numbers of rows that owners may declare, by owner."""
    of_each = isinstance(max_rows, Mapping)
    rows = dict(max_rows) if of_each else dict.fromkeys(owners, max_rows)
    if not set(rows) <= set(owners):
        raise ValueError("max_rows must be a number, or numbers by the names of owners.")
    if min([operator.index(number) for number in rows.values()], default=1) < 1:
        raise ValueError("max_rows must be at least 1.")
    return rows
