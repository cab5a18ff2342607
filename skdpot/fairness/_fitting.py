"""Rows of a fit, open or private, and their groups as released."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skdpot._base import warn_user
from skdpot._progress import progress_bar
from skdpot._threads import MANY_ROWS, one_thread_unless
from skdpot.fairness._blur import Blur
from skdpot.fairness._certificate import MOST_ROWS, FairnessCertificate, certify, hold_out
from skdpot.fairness._conditional import fit_conditional
from skdpot.fairness._declared import Declared, FitSettings, read_box, read_candidates
from skdpot.fairness._fair_map import ConditionalTransport, FairMap, SupportTransport, clipped
from skdpot.fairness._groups import Groups, doubts_about_small_groups
from skdpot.fairness._maps import distinct
from skdpot.fairness._methods import ConditionalRepair
from skdpot.fairness._private_cells import PUBLIC_OF_ROWS
from skdpot.fairness._row_draws import row_keys
from skdpot.fairness._space import ColumnSpace, in_own_units
from skdpot.fairness._support import LARGEST_AUTOMATIC_SUPPORT, Question, doubts_about_support
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.foreign import quiet
from skdpot.privacy.preview import PrivacyGuarantee
from skdpot.privacy.random import make_source
from skdpot.releases import HistogramRelease, ReleasedGroups, group_weights
from skdpot.tables import NUMERIC, Column, Table, doubts_about_heavy_tails

# Default size of a support: one point for this many rows, but at least this many points.
_ROWS_PER_POINT, _FEW = 10, 50


@dataclass(frozen=True, eq=False)
class KnownGroups:
    """Exact or released groups, from which a map is made.

    Attributes
    ----------
    settings : FitSettings
        Settings of the fit.
    columns : list of Column
        The columns of rows.
    space : ColumnSpace
        Where distances are taken.
    box : tuple of two ndarray, or None
        Bounds that numbers are clipped to.
    candidates : ndarray or None
        Rows to choose the support from, as codes.
    groups : Groups
        The groups.
    sizes : ndarray of shape (n_groups,)
        Their numbers of rows, possibly as released.
    found : list of (ndarray, ndarray)
        Different points of every group, and their masses.
    n_support : int
        Default number of points of a support.
    rng : RandomState
        The generator of all further draws.
    """

    settings: FitSettings
    columns: list[Column]
    space: ColumnSpace
    box: Any
    candidates: np.ndarray | None
    groups: Groups
    sizes: np.ndarray
    found: list[tuple[np.ndarray, np.ndarray]]
    n_support: int
    rng: Any

    def fair_map(self, *, certified: bool = True) -> FairMap:
        """Return the map to the barycenter of the groups, without a certificate."""
        settings = self.settings
        weights = group_weights(settings.weights, self.sizes, self.groups.names)
        question = Question(
            space=self.space,
            points=[points for points, _ in self.found],
            masses=[masses for _, masses in self.found],
            weights=weights,
            n_support=settings.method.n_support or self.n_support,
            candidates=self.candidates,
        )
        with progress_bar(desc=settings.name, unit=" rounds", disable=not settings.verbose) as bar:
            barycenter = settings.method._solve(
                question, self.rng, settings.n_jobs, lambda n_iter: bar.update(n_iter - bar.n)
            )
        if settings.epsilon is None:
            warn_user(doubts_about_support(question, barycenter))
        transport = SupportTransport(self.space, barycenter)
        return FairMap(self.columns, self.box, self.groups, weights, transport)


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Exact rows, or rows drawn from a release, from which a map is made.

    Attributes
    ----------
    settings : FitSettings
        Settings of the fit.
    columns : list of Column
        The columns of rows.
    box : tuple of two ndarray, or None
        Bounds that numbers are clipped to.
    codes : ndarray of shape (n_rows, n_columns)
        The rows, clipped.
    groups : Groups
        The groups.
    rng : RandomState
        The generator of all further draws.
    blur : Blur or None
        Blurs rows of a private fit before they are moved.
    shown : float
        Excess of the AUC over 1/2 that errors of a private map may cause. If groups are not found
        more easily, nothing is moved.
    """

    settings: FitSettings
    columns: list[Column]
    box: Any
    codes: np.ndarray
    groups: Groups
    rng: Any
    blur: Blur | None = None
    shown: float = 0.0

    def fair_map(self, *, certified: bool = True) -> FairMap:
        """Return the map by conditional distributions, with a certificate if one is possible.

        There is no certificate for rows drawn from a release, and none of conditional parity.
        """
        settings, groups = self.settings, self.groups
        weights = group_weights(settings.weights, groups.sizes, groups.names)
        rng = np.random.default_rng(self.rng.randint(2**31))
        may_be = certified and settings.epsilon is None and not settings.fixed
        held_out = hold_out(groups.codes, settings.method.held_out if may_be else 0.0, rng)
        with one_thread_unless(len(groups.codes) >= MANY_ROWS):
            transport = self._transport(np.where(held_out, -1, groups.codes), weights, rng)
            certificate = self._certificate(transport, held_out, rng) if held_out.any() else None
        return FairMap(self.columns, self.box, groups, weights, transport, certificate)

    def _transport(
        self, groups: np.ndarray, weights: np.ndarray, rng: np.random.Generator
    ) -> ConditionalTransport:
        """Return the transport that is fitted to the rows of these groups."""
        settings = self.settings
        tol = float(settings.method.tol)
        if tol > 0:
            tol = max(tol, min(self.shown, 0.5))
        with progress_bar(desc=settings.name, unit=" columns", disable=not settings.verbose) as bar:
            found = fit_conditional(
                self.columns,
                self.codes,
                groups,
                weights,
                rng,
                fixed=settings.fixed,
                tol=tol,
                max_rows=settings.method._most_rows(),
                callback=bar.update,
            )
        return ConditionalTransport(found, self.blur)

    def _certificate(
        self, transport: ConditionalTransport, held_out: np.ndarray, rng: np.random.Generator
    ) -> FairnessCertificate:
        """Return the certificate of a map, from rows that the map does not depend on."""
        settings, groups, seed = self.settings, self.groups.codes, int(rng.integers(2**63))

        def repaired(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            codes, of_rows = self.codes[rows], groups[rows]
            keys = row_keys(seed, codes, of_rows)
            moved = transport.images(codes, of_rows, keys, settings.method, settings.n_jobs)
            return moved, of_rows

        known = rng.permutation(np.flatnonzero(~held_out & (groups >= 0)))[:MOST_ROWS]
        names = self.groups.names.tolist()
        of_fit, of_others = repaired(known), repaired(np.flatnonzero(held_out))
        return certify(of_fit, of_others, self.columns, names, rng)


@dataclass(frozen=True, eq=False)
class OpenRows:
    """Rows of a fit without privacy, as codes, and the labels of their groups."""

    settings: FitSettings
    columns: list[Column]
    codes: np.ndarray
    labels: np.ndarray

    def plan(self) -> ReleasePlan:
        """Return the plan of a release without a guarantee."""
        return ReleasePlan(None, None, make_source(), f"{self.settings.name} without epsilon", None)

    def run(self, plan: ReleasePlan | None = None) -> KnownGroups | KnownRows:
        """Return the groups as they are; they are as private as the rows."""
        settings, columns = self.settings, self.columns
        candidates = read_candidates(settings, columns)
        groups = settings.groups._make_groups(self.labels)
        warn_user(doubts_about_small_groups(settings.groups, groups))
        # Wrong weights raise before anything is computed.
        group_weights(settings.weights, groups.sizes, groups.names)
        rng = check_random_state(settings.random_state)
        box = read_box(settings, columns)
        codes = clipped(self.codes, columns, box)
        if isinstance(settings.method, ConditionalRepair):
            return KnownRows(settings, columns, box, codes, groups, rng)
        space = self._space(codes[groups.codes >= 0])
        found, n_rows = self._points(space, codes, groups, rng)
        # Each support point then has enough rows to estimate the masses of new rows.
        few = max(n_rows // _ROWS_PER_POINT, min(n_rows, _FEW))
        return KnownGroups(
            settings,
            columns,
            space,
            box,
            candidates,
            groups,
            groups.sizes,
            found,
            min(LARGEST_AUTOMATIC_SUPPORT, few),
            rng,
        )

    def _space(self, codes: np.ndarray) -> ColumnSpace:
        """Return where distances between rows are taken; warn if a few rows decide them."""
        columns = self.columns
        numeric = [j for j, column in enumerate(columns) if column.kind == NUMERIC]
        names = [columns[j].name for j in numeric]
        if len(columns) > 1:
            warn_user(doubts_about_heavy_tails(names, codes[:, numeric]))
        units = in_own_units(columns)
        return units.scaled_to(codes) if self.settings.method.scale else units.centred_on(codes)

    def _points(
        self, space: ColumnSpace, codes: np.ndarray, groups: Groups, rng: Any
    ) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        """Return the points and masses of every group, and the number of rows that they are of.

        They are of all rows, or of as many as the method takes, drawn at random.
        """
        most, drawn = self.settings.method._most_rows(), []
        for g in range(len(groups.names)):
            rows = np.flatnonzero(groups.codes == g)
            drawn.append(rows if len(rows) <= most else rng.choice(rows, most, replace=False))
        found = [
            distinct(space.encode(codes[rows]), np.full(len(rows), 1.0 / len(rows)))
            for rows in drawn
        ]
        return found, sum(map(len, drawn))


@dataclass(frozen=True, eq=False)
class PrivateRows:
    """Private rows and the labels of their groups, read after the charge; their count is public.

    Releases of `n_parts` owners are added up, each with noise of its own.
    """

    settings: FitSettings
    declared: Declared
    table: Table
    labels: np.ndarray
    n_records: int
    n_parts: int = 1

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in unit coordinates, and the numbers of their groups.

        A row of an undeclared group, or with a missing number, has the number -1.
        """
        with quiet():
            units, codes = self.declared.units(self.table), self.declared.groups.find(self.labels)
            return np.nan_to_num(units), np.where(np.isnan(units).any(axis=1), -1, codes)

    def plan(self) -> ReleasePlan:
        """Return the plan of the release of the groups, or raise."""
        settings, groups = self.settings, self.declared.groups
        release = HistogramRelease(
            self.declared.unscaled.layout,
            len(groups.names),
            self.n_records,
            settings.epsilon,
            settings.delta,
            self.n_parts,
        )
        n_points = len(groups.names) * release.most_points
        settings.method._check_size(n_points, self.declared.candidates)
        return ReleasePlan(
            release,
            release.event,
            make_source(settings.random_state),
            f"{settings.name}, histogram",
            guarantee(settings, *PUBLIC_OF_ROWS),
            n_records=self.n_records,
        )

    def run(self, plan: ReleasePlan) -> KnownGroups:
        """Release the groups."""
        return self.known(plan.release.run(self.read(), plan.source))

    def known(self, released: ReleasedGroups) -> KnownGroups:
        """Return released groups in unit coordinates; post-processing of public facts."""
        settings, declared = self.settings, self.declared
        found = [
            distinct(declared.points_of(units), masses)
            for units, masses in zip(released.points, released.masses, strict=True)
        ]
        return KnownGroups(
            settings,
            declared.columns,
            declared.space,
            declared.box,
            declared.candidates,
            declared.groups,
            released.sizes,
            found,
            LARGEST_AUTOMATIC_SUPPORT,
            check_random_state(settings.random_state),
        )


def guarantee(settings: FitSettings, *public: str) -> PrivacyGuarantee:
    """Return the guarantee of a private fit, which does not protect anything in `public`."""
    return PrivacyGuarantee(
        epsilon=float(settings.epsilon),
        delta=settings.delta,
        neighbouring="replace_one",
        unit="record",
        not_protected=("rows that are transformed", *public),
    )
