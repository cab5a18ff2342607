"""The sketch of a table: its parameters, and its release."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, validate_parameters
from skdpot.generative._records import Declared
from skdpot.generative._sketch.expected_errors import expected_errors
from skdpot.generative._sketch.marginals import release_marginals, share_marginals
from skdpot.generative._sketch.noisy_counts import noise_of_counts, released_size
from skdpot.generative._sketch.parities import MOST_PARITIES
from skdpot.generative._sketch.people import LARGEST_WEIGHT, People, taken_out
from skdpot.generative._sketch.plan import (
    PlannedRelease,
    SketchBudget,
    SketchSeries,
    check_noise,
    sketch_budget,
)
from skdpot.generative._sketch.released_table import ReleasedTable
from skdpot.generative._sketch.table_model import fit_table
from skdpot.generative._sketch.table_space import TableRecords, TableSpace, read_space
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import Table, TableSchema, check_index, person_codes

# Statistics that are used only to fit a model.
_FIT_ONLY = ("totals", "tails")
# Totals of all classes are released if the noise multiplier is above this. With less noise, counts
# within classes are precise enough, and matter more to models.
_NOISE_OF_TOTALS = 1.0


class TableSketch(BaseEstimator):
    """A sketch of a table: counts of pairs of columns, and a mixture fitted to them.

    Parameters
    ----------
    n_components : int, default=400
        Number of components of all mixtures together. Half of them are divided equally among the
        classes of the target, the others in proportion to class size.
    n_iter : int, default=600
        Number of steps of the fit of a mixture to the released counts.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator, which takes it as `model`.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import TableSketch
    >>> generator = DPSinkhornGenerator(
    ...     schema={"age": range(18, 80), "sex": ["F", "M"]}, model=TableSketch(n_components=100)
    ... )
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, n_components=400, *, n_iter=600):
        self.n_components = n_components
        self.n_iter = n_iter

    def _check(self, declared: Declared) -> None:
        """Raise where parameters are wrong."""
        validate_parameters(self)

    def _read(
        self, estimator: Any, X: Any, y: Any, declared: Declared, *, reset: bool, private: bool,
        groups: Any = None,
    ) -> "TableRecords":  # fmt: skip
        """Return a private table, or raise; with `groups`, that of their people."""
        if groups is None:
            space = self._space_of(X, y, declared)
            units = space.read(estimator, X, y, reset=reset, private=private)
            return TableRecords(space, units[(units >= 0).all(axis=1)], len(units))
        X, groups, user = taken_out(X, groups)
        check_index(X, groups)
        space = self._space_of(X, y, declared).by_person(user)
        units = space.read(estimator, X, y, reset=reset, private=private)
        codes, names = person_codes(groups, len(units), leave_out=private)
        kept = (codes >= 0) & (units >= 0).all(axis=1)
        return TableRecords(space, units[kept], len(names), People.of(codes[kept]))

    def _space_of(self, X: Any, y: Any, declared: Declared) -> "TableSpace":
        """Return the declaration of a table, with the types of a frame, or raise."""
        table = Table(X)
        space = read_space(declared, table.container, apart=y is not None)
        return replace(space, schema=space.schema.typed(table, declared.schema))

    def _unseen(
        self, declared: Declared, columns: Any, *, by_person: bool = False
    ) -> "TableRecords":
        """Return no records of the declared table, or raise."""
        space = read_space(declared, "array", apart=declared.classes is not None)
        if by_person:
            space = space.by_person("user")
        return TableRecords(space, np.empty((0, 0)), 0)

    def _plan(
        self, space: "TableSpace", budget: SketchBudget, training: Any,
        progress: Callable[..., Any],
    ) -> "TableReleases":  # fmt: skip
        """Return the release, or raise; no record is looked at."""
        if training is not None:
            raise ValueError("network is for vectors and images, and a table has a schema.")
        release = TableReleases(space, budget, int(self.n_components), int(self.n_iter), progress)
        check_noise(budget, release.planned)
        return release


@dataclass(frozen=True)
class TableReleases(SketchSeries):
    """The releases of a sketch of a table: public."""

    space: TableSpace
    budget: SketchBudget
    n_components: int
    n_iter: int
    progress: Callable[..., Any]
    # Whether classes are the groups of a map, which noise in them would reveal.
    pooled: bool = False

    label = "a sketch of a table"

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the counts of columns, and of pairs of columns."""
        errors = expected_errors(
            n_records, self.space.schema, self._releases(None), totals=self._options["totals"]
        )
        if not self.pooled:
            return errors
        quantity = "AUC above 1/2 that the noise of a map may give groups away by"
        return (*errors, ExpectedError(quantity, self.shown_by_noise(n_records), 0.5))

    def shown_by_noise(self, n_records: int) -> float:
        """Return by how much the AUC is above 1/2 that errors reveal a class of average size by."""
        schema = self.space.schema
        share_noise = self.noise_of_counts * schema.n_classes / n_records
        return 2 * math.sqrt(len(schema.features)) * share_noise

    @property
    def noise_of_counts(self) -> float:
        """Return the standard deviation of the noise of the counts of single columns."""
        return noise_of_counts(self.space.schema, self._releases(None))

    def run(self, records: Any, source: Any) -> "ReleasedTable":
        """Release the counts of the points of records, and fit the model to them."""
        schema, shares = self.space.schema, self._shares
        releases, points = self._releases(source), records.points
        # One step for each release, and one for the fit of the model.
        with self.progress(total=len(shares) + 1, unit=" parts") as bar:
            released = release_marginals(
                points, schema, releases, **self._options,
                people=None if self.space.user is None else records.people,
            )  # fmt: skip
            bar.update(len(shares))
            model = fit_table(released, schema, self.n_components, self.n_iter, pooled=self.pooled)
            bar.update()
        statistics = {name: array for name, array in released.items() if name not in _FIT_ONLY}
        return ReleasedTable(self.space, model, released_size(released), statistics)

    def _releases(self, source: Any) -> SketchReleases:
        budget = self.budget
        return SketchReleases(budget.noise_multiplier, self._shares, budget.neighbouring, source)

    @property
    def planned(self) -> dict[str, PlannedRelease]:
        """Return the releases, with bounds of their sensitivities."""
        # A record is in at most one table for each column, and for each pair of columns.
        n_tables = max(len(self.space.schema.columns) ** 2, MOST_PARITIES)
        whole = 1 if self.space.user is None else LARGEST_WEIGHT
        bound = partial(cell_count_sensitivity, n_tables=n_tables, whole=whole)
        return {name: PlannedRelease(share, bound) for name, share in self._shares.items()}

    @property
    def _shares(self) -> dict[str, float]:
        by_person = self.space.user is not None
        return share_marginals(self.space.schema, **self._options, by_person=by_person)

    @property
    def _options(self) -> dict[str, Any]:
        """Return the release; classes that are groups of a map need no parities or totals."""
        apart = not self.pooled
        totals = apart and self.budget.noise_multiplier > _NOISE_OF_TOTALS
        # Parities are counted by bits, which have no weights.
        return {"parities": apart and self.space.user is None, "totals": totals}


def plan_table(
    schema: TableSchema,
    epsilon: float,
    delta: float,
    neighbouring: str,
    progress: Callable[..., Any],
) -> TableReleases:
    """Return the release of the sketch of a table, or raise; for other parts of the package.

    Parameters
    ----------
    schema : TableSchema
        The declaration of the table; all columns depend on its target.
    epsilon, delta : float
        Budget, which is spent completely.
    neighbouring : {"add_remove", "replace_one"}
        The neighbouring relation.
    progress : callable
        Makes a progress bar, as tqdm does.

    Returns
    -------
    TableReleases
        Its ``event`` is charged, then ``run(records, source)`` returns a `ReleasedTable`. Of
        `records` it reads the attribute ``points``, as of `TableRecords`. Records that are not
        declared may be left out there: they count nowhere then.

    Raises
    ------
    ValueError
        If epsilon is too small: that depends on public quantities only.

    Examples
    --------
    >>> from tqdm import tqdm
    >>> from skdpot.generative import plan_table
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"age": range(18, 80), "sex": ["F", "M"]}, "sex")
    >>> plan_table(schema, 1.0, 1e-5, "replace_one", tqdm).label
    'a sketch of a table'
    """
    space = TableSpace(schema, "array", False)
    budget = sketch_budget(epsilon, delta, neighbouring)
    model = TableSketch()
    release = TableReleases(space, budget, model.n_components, model.n_iter, progress, pooled=True)
    check_noise(budget, release.planned)
    return release
