"""The score of generated rows: a Sinkhorn divergence from given ones."""

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from skdpot.transport.sinkhorn import entropic_transport

# Cost of a row of another class: as if all features were at the other ends of their ranges.
_OTHER_CLASS = 4.0
_TOLERANCE = 1e-3
# More are represented by so many when a score is computed.
SCORED_ROWS = 2000


def mean_squared_costs(rows, columns, row_labels=None, column_labels=None):
    """Return mean squared differences of features, and 4 more between labels that differ."""
    costs = euclidean_distances(rows, columns, squared=True) / rows.shape[1]
    if row_labels is not None:
        costs += _OTHER_CLASS * (row_labels[:, None] != column_labels)
    return costs


def sinkhorn_divergence(rows, columns, row_labels=None, column_labels=None, *, reg):
    """Return the debiased transport cost between rows of [-1, 1]; zero between equal ones."""
    sets = {"rows": (rows, row_labels), "columns": (columns, column_labels)}

    def transport(one, other):
        (x, x_labels), (y, y_labels) = sets[one], sets[other]
        costs = mean_squared_costs(x, y, x_labels, y_labels)
        a, b = (np.full(n, 1 / n) for n in costs.shape)
        return entropic_transport(costs, a, b, reg, _TOLERANCE).cost

    within = transport("rows", "rows") + transport("columns", "columns")
    return transport("rows", "columns") - within / 2
