"""How a generator releases a sketch of a private table."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data
from tqdm.auto import tqdm

from skdpot.generative._records import (
    check_count,
    read_classes,
    read_codes,
    wanted_labels,
    without_sizes,
)
from skdpot.generative._score import SCORED_ROWS, sinkhorn_divergence
from skdpot.generative._sketch.marginals import (
    release_marginals,
    released_size,
    share_marginals,
)
from skdpot.generative._sketch.plan import PlannedRelease, check_noise, plan_sketch
from skdpot.generative._sketch.table_sketch import TableSketch, table_points
from skdpot.generative._sketch.tables import fit_table
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases, check_exact_sums
from skdpot.tables import container_of, read_columns, read_schema

# Parameters that say nothing about tables.
_OF_VECTORS = (
    "image_shape", "encoder_norm", "n_coefficients", "n_clusters", "budget_shares", "network",
)  # fmt: skip


class TableFitting:
    """The part of a generator that releases a sketch of a table with a declared schema."""

    _sketch: Any

    if TYPE_CHECKING:
        # The parameters are those of the estimator that this is a part of.
        def __getattr__(self, name: str) -> Any: ...

    def _fit_table(self, X, y):
        """Release a sketch. All that may be refused is, before the ledger is charged."""
        schema, apart = self._read_schema(y)
        units = without_sizes(lambda: self._read_units(X, y, schema, apart, reset=True))
        check_exact_sums(len(units))
        source = self._make_source(False)
        budget = self._sketch_budget()
        check_noise(budget, _planned_marginals(schema))
        self._charge(budget, source, "a sketch of a table")
        self._forget()
        shares = share_marginals(schema)
        releases = SketchReleases(budget.noise_multiplier, shares, self.neighbouring, source)
        # All releases, and the model of them.
        with tqdm(
            total=len(shares) + 1,
            desc=type(self).__name__,
            unit=" parts",
            disable=not self.verbose,
        ) as bar:
            released = without_sizes(release_marginals, units, schema, releases)
            bar.update(len(shares))
            model = fit_table(released, schema)
            bar.update()
        self._sketch = TableSketch(schema, container_of(X), model, apart)
        if self._sketch.classes is not None:
            self.classes_ = self._sketch.classes
        self.n_records_ = released_size(released)
        self.noise_multiplier_ = budget.noise_multiplier
        self.privacy_guarantee_ = self._guarantee(budget, source)
        return self

    def _sketch_budget(self):
        """Return how much noise a sketch has."""
        return plan_sketch(
            epsilon=None if self.epsilon is None else float(self.epsilon),
            delta=float(self.delta),
            neighbouring=self.neighbouring,
        )

    def _read_schema(self, y):
        """Return what a table is declared to hold, and whether the target goes beside it."""
        if (y is None) != (self.classes is None):
            raise ValueError(
                "y and classes go together: give the labels of records as y, and all labels that "
                "there may be as classes=[...]; or a target that is a column of the table."
            )
        given = [name for name in _OF_VECTORS if getattr(self, name) is not None]
        if given or not (isinstance(self.encoder, str) and self.encoder == "auto"):
            raise ValueError(
                f"encoder, {', '.join(_OF_VECTORS)} are for vectors and images: leave them as they "
                "are by default with a schema."
            )
        features = read_schema(self.schema, self.target)
        if y is None:
            return features, False
        if self.target is not None:
            raise ValueError("target names a column of the table, and y goes beside it: use one.")
        name = "y"
        while name in features.names:
            name += "_"
        declared = {"categories": read_classes(self.classes)[0].tolist()}
        return read_schema({**self.schema, name: declared}, name), True

    def _read_units(self, X, y, schema, apart, *, reset):
        """Return the values of a table as whole numbers, or raise."""
        if apart != (y is not None):
            raise ValueError(
                "y must be given if classes were declared, and only then: with one label for each "
                "row of X."
            )
        features = schema.without_target() if apart else schema
        columns = read_columns(X, features)
        validate_data(self, X, skip_check_array=True, reset=reset)
        units = features.encode(columns)
        if not apart:
            return units
        number = read_classes(schema.columns[schema.target].values)[1]
        return np.column_stack([units, read_codes(y, number, len(units))])

    def _sample_table(self, n_samples, y, given, rng):
        """Return a table of records, and their labels where these are no column of it."""
        classes = self._sketch.classes
        codes = None if y is None else wanted_labels(n_samples, y, classes, rng)
        table, codes = self._sketch.table(
            check_count(n_samples) if codes is None else len(codes), rng, given, codes
        )
        return table if codes is None else (table, classes[codes])

    def _score_table(self, X, y, rng):
        """Return minus how far generated records are from given ones."""
        schema = self._sketch.schema
        units = self._read_units(X, y, schema, self._sketch.apart, reset=False)
        units = units[rng.permutation(len(units))[:SCORED_ROWS]]
        labels = None if schema.target is None else units[:, schema.target]
        made = self._sketch.units(len(units), rng, None, labels)
        rows, columns = (table_points(of, schema) for of in (made, units))
        return -sinkhorn_divergence(rows, columns, reg=float(self.score_reg))


def _planned_marginals(schema):
    """Return the releases of a table's sketch, with bounds of their sensitivities."""
    # A record is in no more tables than there are pairs of columns, and columns.
    most = partial(cell_count_sensitivity, n_tables=len(schema.columns) ** 2)
    return {name: PlannedRelease(share, most) for name, share in share_marginals(schema).items()}
