"""The published private post-processing for fair regression, written from its description.

R. Xian, Q. Li, G. Kamath and H. Zhao, "Differentially private post-processing for fair regression",
ICML 2024: a histogram of scores by group with Laplace noise; distribution functions made monotone
by isotonic regression in the largest norm; a linear program for transport plans to distributions
that are apart by at most a tolerance; and images that are the middles of bins, drawn from the plan.
"""

import numpy as np
from scipy import sparse
from scipy.optimize import linprog


class PublishedRegression:
    """Scores that are distributed alike in all groups, up to a tolerance.

    Parameters
    ----------
    bounds : tuple of float
        Of scores.
    n_bins : int
        How many bins there are between them.
    epsilon : float
        For a record that is replaced.
    tolerance : float
        How far distribution functions of two groups may be apart.
    """

    def __init__(self, bounds, n_bins, epsilon, tolerance=0.0):
        self.bounds, self.n_bins = bounds, n_bins
        self.epsilon, self.tolerance = epsilon, tolerance

    def fit(self, scores, groups, rng):
        """Learn plans; groups are numbers from 0, all of them present."""
        counts = np.zeros((groups.max() + 1, self.n_bins))
        np.add.at(counts, (groups, self._bins(scores)), 1.0)
        shares = counts / len(scores)
        shares += rng.laplace(scale=2.0 / (self.epsilon * len(scores)), size=shares.shape)
        weights = np.maximum(shares.sum(axis=1), 1e-6)
        ends = np.cumsum(shares / weights[:, None], axis=1)
        highest = np.maximum.accumulate(ends, axis=1)
        lowest = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
        ends = np.clip(0.5 * (highest + lowest), 0.0, 1.0)
        ends[:, -1] = 1.0
        self.plans = self._plans(np.diff(ends, prepend=0.0, axis=1), weights)
        return self

    def predict(self, scores, groups, rng):
        """Return the middles of the bins that scores go to."""
        ends = np.cumsum(self.plans[groups, self._bins(scores)], axis=1)
        drawn = rng.random(len(scores)) * ends[:, -1]
        to = (drawn[:, None] >= ends).sum(axis=1)
        low, high = self.bounds
        return low + (high - low) * (to + 0.5) / self.n_bins

    def _bins(self, scores):
        low, high = self.bounds
        bins = np.floor((scores - low) / (high - low) * self.n_bins)
        return np.clip(bins, 0, self.n_bins - 1).astype(int)

    def _plans(self, masses, weights):
        """Return the probabilities of where scores of each group and bin go."""
        n_groups, n = masses.shape
        squares = (np.arange(n)[:, None] - np.arange(n)) ** 2.0
        costs = (weights[:, None, None] * squares).ravel()
        one = sparse.identity
        rows = sparse.kron(one(n_groups * n), np.ones((1, n)))
        upto = np.tril(np.ones((n, n)))
        images = sparse.kron(one(n_groups), sparse.kron(np.ones((1, n)), upto))
        off = sparse.hstack([images, sparse.vstack([-sparse.csr_array(upto)] * n_groups)])
        of_rows = sparse.hstack([rows, sparse.csr_array((n_groups * n, n))])
        total = sparse.csr_array(np.r_[np.zeros(n_groups * n * n), np.ones(n)][None])
        found = linprog(
            np.r_[costs, np.zeros(n)],
            A_ub=sparse.vstack([off, -off]),
            b_ub=np.full(2 * n_groups * n, self.tolerance / 2.0),
            A_eq=sparse.vstack([of_rows, total]),
            b_eq=np.r_[masses.ravel(), 1.0],
            method="highs",
        )
        plans = np.clip(found.x[:-n].reshape(n_groups, n, n), 0.0, 1.0)
        sums = plans.sum(axis=2, keepdims=True)
        return np.where(sums > 1e-12, plans / np.maximum(sums, 1e-300), np.eye(n))
