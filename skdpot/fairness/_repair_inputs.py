"""Tables and declarations of a repair, read for its releases."""

from contextlib import nullcontext
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.validation import validate_data

from skdpot._base import PrivateEstimator, count_columns, validate_private_data
from skdpot.fairness._attribute import split_attribute
from skdpot.fairness._declared import FitSettings, declare
from skdpot.fairness._fitting import OpenRows, PrivateRows
from skdpot.fairness._groups import group_policy, label_options_of_fit
from skdpot.fairness._methods import (
    ConditionalRepair,
    automatic_method,
    positions_of,
    repair_method,
)
from skdpot.fairness._private_cells import in_cells, refuse_types
from skdpot.fairness._sketched import SketchedRows, declare_table
from skdpot.fairness._support import Support
from skdpot.privacy.foreign import quiet
from skdpot.tables import Column, Table, doubts_about_identifiers, find_columns, read_codes
from skdpot.transport import load_compiler, load_solver


class RepairInputs(PrivateEstimator):
    """The part of :class:`FairBarycenterPreprocessor` that reads tables and its parameters."""

    sensitive_features: Any
    method: Any
    weights: Any
    categorical_features: Any
    missing: Any
    groups: Any
    conditional_on: Any
    delta: Any
    bounds: Any
    categories: Any
    n_jobs: Any
    random_state: Any
    verbose: Any

    def _missing(self, method: Support | ConditionalRepair) -> str:
        """Return the policy for missing values; private ones never raise, and are not missing."""
        if self.epsilon is not None:
            return "none"
        keeps = self.missing == "category" and isinstance(method, ConditionalRepair)
        return "kept" if keeps else self.missing

    def _settings(self, columns: list[Column], n_records: int) -> FitSettings:
        """Return the settings of a fit, or raise if they contradict each other."""
        # Raises if joblib does not understand n_jobs, before a budget is charged.
        effective_n_jobs(self.n_jobs)
        load_compiler()
        load_solver()
        private = self.epsilon is not None
        if not private and self.delta is not None:
            raise ValueError("delta is for fits with epsilon.")
        if private and self.missing != "error":
            raise ValueError(
                "missing='category' is for fits without epsilon. With epsilon, declare None among "
                "the categories of a column; leave out rows that have missing numbers, or fill in "
                "a number that is public."
            )
        groups = group_policy(self.groups)
        automatic = automatic_method(columns, n_records, groups, self.epsilon, self.delta)
        method = repair_method(self.method, automatic)
        method._check(self.epsilon, self.delta)
        fixed = positions_of(self.conditional_on, columns)
        if fixed and not isinstance(method, ConditionalRepair):
            raise ValueError("conditional_on needs method='conditional'.")
        return FitSettings(
            type(self).__name__,
            self.weights,
            method,
            fixed,
            groups,
            self.epsilon,
            float(self.delta or 0.0),
            self.bounds,
            self.n_jobs,
            self.random_state,
            self.verbose,
            doubts_about_identifiers(columns, n_records),
        )

    def _validate(self, X, sensitive_features) -> Any:
        """Return the rows of a fit in the form for their release."""
        policy = group_policy(self.groups)
        reading = label_options_of_fit(policy, private=self.epsilon is not None)
        with quiet() if self.epsilon is not None else nullcontext():
            table, labels, kept = self._read(X, sensitive_features, reset=True, **reading)
            return self._rows(table, labels, kept, len(table))

    def _declared(self, n_records: int, columns: Any) -> Any:
        """Return rows with known columns and unknown values."""
        table = columns
        if not hasattr(columns, "shape"):
            table = np.empty((0, count_columns(columns)))
        elif len(columns):
            raise ValueError("columns must be a table without rows, such as X[:0].")
        labels = np.empty(0, dtype=object)
        beside = labels if self.sensitive_features is None else None
        read = self._read(table, beside, reset=True, fewest=0)
        return self._rows(*read, n_records)

    def _rows(self, table: Table, labels: np.ndarray, kept: np.ndarray, n_records: int) -> Any:
        """Return rows in the form for their release, or raise."""
        columns = find_columns(
            table,
            kept,
            categorical_features=self.categorical_features,
            categories=self.categories,
            missing="kept" if self.missing == "category" else self.missing,
            private=self.epsilon is not None,
        )
        settings = self._settings(columns, n_records)
        if self.epsilon is None:
            codes = read_codes(table, columns, self._missing(settings.method))
            return OpenRows(settings, columns, codes, labels)
        if isinstance(settings.method, ConditionalRepair):
            of_table = declare_table(settings, columns)
            refuse_types(table, columns)
            return SketchedRows(settings, of_table, table, labels, n_records)
        declared = declare(settings, columns)
        refuse_types(table, columns)
        return PrivateRows(settings, declared, table, labels, n_records)

    def _read(
        self, X, sensitive_features, reset, fewest=1, **reading
    ) -> tuple[Table, np.ndarray, np.ndarray]:
        """Return rows as a table, the label of each, and the positions of the other columns."""
        table = Table(X if self.epsilon is None else in_cells(X))
        if table.container != "array":
            validate_data(self, X, skip_check_array=True, reset=reset)
        else:
            options: dict[str, Any] = {
                "dtype": None,
                "ensure_all_finite": False,
                "ensure_min_samples": fewest,
            }
            table.X = validate_private_data(self, table.X, reset=reset, **options)
        labels, kept = split_attribute(
            self, table, sensitive_features, private=self.epsilon is not None, **reading
        )
        if not len(kept):
            raise ValueError(
                f"X has {table.X.shape[1]} feature(s), and none is left besides the sensitive "
                "attribute: a minimum of 1 is required."
            )
        return table, labels, kept
