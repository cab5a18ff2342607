"""The method of a repair: a support or conditional distributions, and the automatic choice."""

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, validate_parameters
from skdpot.fairness._conditional import MAX_ROWS
from skdpot.fairness._space import in_own_units
from skdpot.fairness._support import FreeSupport, Support
from skdpot.releases import has_grid
from skdpot.tables import NUMERIC, Column, place_of

# Maximum number of numeric columns for which "auto" chooses a free support.
_MOST_COLUMNS = 3
# Rows for each column of each group that a private conditional fit needs at an epsilon of 1, and in
# proportion to 1 / epsilon: enough to distinguish three parts of a column.
_ROWS_PER_CELL = 25


class ConditionalRepair(BaseEstimator):
    """Repair of one column after the other, for wide and mixed tables.

    Each column is repaired given the columns before it. With epsilon, which needs a delta, a noisy
    sketch of the table is released. The models are fitted to synthetic rows from the sketch: as
    many as the table has, or `max_rows`. Differences that the noise hides are not repaired, and
    there is no certificate.

    Parameters
    ----------
    tol : float, default=0.02
        No row is moved if no classifier predicts the group of held-out rows with an AUC above 0.5
        + tol. With 0 the repair is always made.
    max_rows : int, default=None
        Largest number of rows to which the models of columns are fitted, drawn at random; None is
        100,000.
    held_out : float, default=0.2
        Share of each group's rows that the fit holds out for ``certificate_``: at most 10,000 rows
        of all groups, and none of groups with fewer than 25 rows to hold out. With 0 there is no
        certificate.

    See Also
    --------
    FreeSupport : Couplings with points that move freely, for few numeric columns.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.fairness import ConditionalRepair
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat(["a", "b"], 500)
    >>> X = rng.normal(size=(1000, 6)) + (group == "b")[:, None]
    >>> fair = FairBarycenterPreprocessor(method=ConditionalRepair(tol=0.0), random_state=0)
    >>> Z = fair.fit_transform(X, sensitive_features=group)
    >>> means = Z[group == "a"].mean(axis=0), Z[group == "b"].mean(axis=0)
    >>> bool(np.allclose(*means, atol=0.2))
    True
    """

    _parameter_constraints = {
        "tol": [Interval(Real, 0, 0.5, closed="both")],
        "max_rows": [Interval(Integral, 1, None, closed="left"), None],
        "held_out": [Interval(Real, 0, 0.9, closed="both")],
    }

    # A conditional repair has no candidates.
    candidates = None

    def __init__(self, *, tol=0.02, max_rows=None, held_out=0.2) -> None:
        self.tol = tol
        self.max_rows = max_rows
        self.held_out = held_out

    def _check(self, epsilon: float | None, delta: float | None) -> None:
        """Raise if parameters do not fit a private fit, or an open one."""
        if epsilon is not None and not delta:
            raise ValueError(
                "method='conditional' with epsilon releases the sketch of a table with Gaussian "
                "noise, which needs delta above 0, far below one over the number of rows; a "
                "support, method='support', does not."
            )

    def _most_rows(self) -> int:
        """Return the maximum number of rows that models are fitted to."""
        return MAX_ROWS if self.max_rows is None else self.max_rows


def automatic_method(
    columns: list[Column], n_records: int, groups: Any, epsilon: float | None, delta: float | None
) -> str:
    """Return the method that ``"auto"`` stands for, from public facts.

    It is a support for few columns (without epsilon only if they are numbers), and for private fits
    without a delta or with so few rows that noise hides how columns depend on each other. Otherwise
    it is conditional distributions, also for a private fit with a delta whose histogram would have
    too many cells.
    """
    few = len(columns) <= _MOST_COLUMNS
    if epsilon is None:
        numbers = all(column.kind == NUMERIC for column in columns)
        return "support" if few and numbers else "conditional"
    if delta and not has_grid(in_own_units(columns).layout):
        return "conditional"
    if few:
        return "support"
    n_cells = len(columns) * len(getattr(groups, "labels", ()))
    return "conditional" if delta and n_records * epsilon >= _ROWS_PER_CELL * n_cells else "support"


def repair_method(method: Any, automatic: str) -> Support | ConditionalRepair:
    """Return the method of a parameter `method`, or raise if it is wrong."""
    method = automatic if isinstance(method, str) and method == "auto" else method
    if isinstance(method, str):
        method = FreeSupport() if method == "support" else ConditionalRepair()
    validate_parameters(method)
    return method


def positions_of(named: Any, columns: list[Column]) -> tuple[int, ...]:
    """Return the positions of columns, given by names or positions in X; or raise."""
    if named is None:
        return ()
    names = [named] if np.ndim(named) == 0 else list(named)
    found = []
    for name in names:
        place = place_of(name, columns)
        if place is None:
            known = [column.name for column in columns]
            raise ValueError(f"conditional_on names {name!r}; the repaired columns are {known}.")
        found.append(place)
    if len(set(found)) == len(columns):
        raise ValueError("conditional_on names all columns, so none is left to repair.")
    return tuple(sorted(set(found)))
