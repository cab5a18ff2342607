r"""Predictions with equalized odds: kernels from score cells to cells, one for every group.

The class is not known when a prediction is made. So the image of a score may depend only on the
score and the group: the score moves to another cell at random, with the probabilities of a row of
the group's kernel. In every class, images must have the same distribution in all groups. Among the
kernels with this property, those are chosen that move predictions least. That is a linear program
(:ref:`proof-equalized-odds`).
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from skdpot.fairness._cells import cell_numbers, sampled_masses
from skdpot.fairness._quantiles import QuantileFunction, resolution, rounded

# With more cells, the program takes seconds.
MOST_ODDS_CELLS = 30
# Number of steps between the quantiles of the scores in a cell.
_STEPS = 20
# A smaller mass counts as none, as the solver is not more precise; scores there stay.
_TINY_MASS = 1e-6


@dataclass(frozen=True, eq=False)
class OddsKernels:
    """The kernels that move the scores of groups, cell by cell.

    Attributes
    ----------
    edges : ndarray of shape (n_cells + 1,)
        Edges of the cells.
    inner : ndarray of shape (n_cells, n_steps + 1)
        Quantiles of scores within each cell, over all groups. Images in a cell have this
        distribution, for all groups and cells that they come from.
    kernels : ndarray of shape (n_groups, n_cells, n_cells)
        Probabilities to go from a cell to another one.
    quantiles : QuantileFunction
        The quantile function of fair predictions, over all groups.
    objective : float
        The mean squared distance that predictions move.
    unit : float
        Scores are rounded to multiples of it before their cells are found.
    """

    edges: np.ndarray
    inner: np.ndarray
    kernels: np.ndarray
    quantiles: QuantileFunction
    objective: float
    unit: float

    @classmethod
    def from_rows(
        cls,
        scores: np.ndarray,
        codes: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        n_cells: int,
    ) -> "OddsKernels":
        """Return the kernels for rows; quantiles of their scores are the edges of cells.

        `codes` are numbers of groups and `labels` of classes: all groups have rows of all classes.
        `weights` are masses of the groups.
        """
        unit = resolution(scores)
        scores = rounded(scores, unit)
        edges = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, n_cells + 1)))
        if len(edges) == 1:
            edges = np.repeat(edges, 2)
        cells, n_cells = cell_numbers(scores, edges), len(edges) - 1
        counts = np.zeros((len(weights), labels.max() + 1, n_cells))
        np.add.at(counts, (codes, labels, cells), 1.0)
        inner = _even_quantiles(edges)
        shares_of_steps = np.linspace(0.0, 1.0, _STEPS + 1)
        for cell in np.unique(cells):
            inner[cell] = np.quantile(scores[cells == cell], shares_of_steps)
        sums, of_cells = np.zeros((len(weights), n_cells)), counts.sum(axis=1)
        np.add.at(sums, (codes, cells), scores)
        means = np.where(of_cells > 0, sums / np.maximum(of_cells, 1.0), _means(inner))
        of_classes = counts.sum(axis=2)
        shares = weights[:, None] * of_classes / of_classes.sum(axis=1, keepdims=True)
        # Without shrinkage, the scores of a class with few rows would look less informative.
        masses = np.stack([sampled_masses(of_class) for of_class in counts.swapaxes(0, 1)], axis=1)
        return cls._with_least_movement(edges, inner, masses, shares, means, unit)

    @classmethod
    def from_cells(cls, edges: np.ndarray, masses: np.ndarray, shares: np.ndarray) -> "OddsKernels":
        """Return the kernels for masses that are spread evenly in cells."""
        inner = _even_quantiles(edges)
        means = np.broadcast_to(_means(inner), (len(masses), len(inner)))
        return cls._with_least_movement(edges, inner, masses, shares, means, resolution(edges))

    @classmethod
    def _with_least_movement(
        cls,
        edges: np.ndarray,
        inner: np.ndarray,
        masses: np.ndarray,
        shares: np.ndarray,
        means: np.ndarray,
        unit: float,
    ) -> "OddsKernels":
        """Return the kernels with the least movement.

        `masses`, of shape (n_groups, n_classes, n_cells), are distributions over cells of every
        class of every group; `shares`, with sum 1, are masses of the classes of groups; and `means`
        are mean scores of groups in the cells. Scores are rounded to multiples of `unit`.
        """
        masses = np.where(masses < _TINY_MASS, 0.0, masses)
        masses = masses / masses.sum(axis=2, keepdims=True)
        of_cells = np.einsum("gc,gcb->gb", shares, masses)
        centres = _means(inner)
        costs = (means[:, :, None] - centres) ** 2
        kernels = _cheapest_kernels(masses, of_cells, costs)
        plans = of_cells[:, :, None] * kernels
        images = plans.sum(axis=(0, 1))
        spread = np.maximum(_means(inner**2) - centres**2, 0.0)
        objective = float((costs * plans).sum() + images @ spread)
        return cls(edges, inner, kernels, _quantiles(images, inner), objective, unit)

    def move(self, scores: np.ndarray, codes: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the moved scores of groups; scores with code -1 stay."""
        moved = scores.copy()
        rows = np.flatnonzero(codes >= 0)
        cells = cell_numbers(rounded(scores[rows], self.unit), self.edges)
        ends = np.cumsum(self.kernels[codes[rows], cells], axis=1)
        # One random number for each row: which cell it goes to, and where in the cell.
        drawn = uniforms[rows] * ends[:, -1]
        to = np.minimum((drawn[:, None] >= ends).sum(axis=1), len(self.edges) - 2)
        each = np.arange(len(rows))
        probabilities = self.kernels[codes[rows], cells, to]
        places = (drawn - ends[each, to] + probabilities) / probabilities
        steps = np.clip(places, 0.0, 1.0) * (self.inner.shape[1] - 1)
        below = np.minimum(steps.astype(np.intp), self.inner.shape[1] - 2)
        low, high = self.inner[to, below], self.inner[to, below + 1]
        moved[rows] = low + (steps - below) * (high - low)
        return moved


def _even_quantiles(edges: np.ndarray) -> np.ndarray:
    """Return quantiles of scores that are spread evenly in cells."""
    return np.linspace(edges[:-1], edges[1:], _STEPS + 1, axis=1)


def _means(inner: np.ndarray) -> np.ndarray:
    """Return the means of the arguments of quantiles, row by row."""
    return 0.5 * (inner[:, 1:] + inner[:, :-1]).mean(axis=1)


def _quantiles(images: np.ndarray, inner: np.ndarray) -> QuantileFunction:
    """Return the quantile function of images with these masses in cells."""
    ends = np.concatenate([[0.0], np.cumsum(images)])
    ranks = np.linspace(ends[:-1], ends[1:], inner.shape[1], axis=1) / ends[-1]
    return QuantileFunction(ranks.ravel(), inner.ravel())


def _cheapest_kernels(masses: np.ndarray, of_cells: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the cheapest kernels that make the images of every class equal in all groups.

    The variables are the masses from cell to cell, for every group, and the images.
    """
    n_groups, n_classes, n_cells = masses.shape
    n_entries, one = n_groups * n_cells**2, sparse.identity
    # Probabilities of classes in a cell of a group, over those in the group.
    odds = masses / np.where(of_cells > 0.0, of_cells, 1.0)[:, None, :]
    sums = sparse.kron(one(n_groups * n_cells), np.ones((1, n_cells)))
    images = sparse.block_diag(
        [sparse.kron(sparse.csr_array(of_group), one(n_cells)) for of_group in odds]
    )
    common = sparse.vstack([one(n_classes * n_cells)] * n_groups)
    found = linprog(
        # Costs are scaled to the tolerances of the solver.
        np.concatenate([(costs / (costs.max() or 1.0)).ravel(), np.zeros(n_classes * n_cells)]),
        A_eq=sparse.block_array([[sums, None], [images, -common]], format="csr"),
        b_eq=np.concatenate([of_cells.ravel(), np.zeros(images.shape[0])]),
        method="highs",
    )
    if found.x is None:
        raise RuntimeError(
            f"the linear program of equalized odds was not solved: {found.message} Use fewer "
            "n_quantiles."
        )
    plans = np.maximum(found.x[:n_entries].reshape(n_groups, n_cells, n_cells), 0.0)
    sent = plans.sum(axis=2, keepdims=True)
    stays = sent < _TINY_MASS**2
    return np.where(stays, np.eye(n_cells), plans / np.where(stays, 1.0, sent))
