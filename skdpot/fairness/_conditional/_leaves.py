"""Trees on features whose leaves differ in the residuals of a linear model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

# Maximum numbers of rows and features that a tree is grown from.
_MOST_ROWS, _MOST_FEATURES = 20_000, 12
# Maximum number of leaves, and minimum number of rows of each.
_MOST_LEAVES, _LEAST_ROWS = 24, 60
# Number of targets of a tree: random mixtures of residuals, and of residuals by group.
_N_MIXTURES = 6


@dataclass(frozen=True, eq=False)
class Leaves:
    """A partition of rows by their features.

    Attributes
    ----------
    tree : DecisionTreeRegressor
    chosen : ndarray of shape (n_chosen,)
        The features that it looks at.
    number : ndarray of shape (n_nodes,)
        The number of the leaf that each node is.
    """

    tree: Any
    chosen: np.ndarray
    number: np.ndarray

    @property
    def n_leaves(self) -> int:
        """Return the number of leaves."""
        return int(self.number.max()) + 1

    def numbers(self, features: np.ndarray) -> np.ndarray:
        """Return the leaf of each row; rows are the last axis of `features`, groups may be one."""
        looked_at = features[..., self.chosen, :].swapaxes(-1, -2).astype(np.float32, order="C")
        nodes = self.tree.tree_.apply(looked_at.reshape(-1, len(self.chosen)))
        return self.number[nodes].reshape(looked_at.shape[:-1])


def grow(features: np.ndarray, residuals: np.ndarray, groups: np.ndarray) -> Leaves | None:
    """Return leaves that differ in mean residuals, overall or between groups.

    Rows are the last axis of `features`; `residuals` have a column for each kind of residual. There
    are no leaves if there are few rows.
    """
    features, residuals = features[:, :_MOST_ROWS].T, residuals[:_MOST_ROWS]
    groups = groups[:_MOST_ROWS]
    most = min(_MOST_LEAVES, len(features) // (2 * _LEAST_ROWS))
    if most < 2 or not features.shape[1]:
        return None
    targets = _mixtures(residuals, groups)
    chosen = _related(features, targets)
    tree = DecisionTreeRegressor(
        max_leaf_nodes=most, min_samples_leaf=_LEAST_ROWS, random_state=0
    ).fit(features[:, chosen].astype(np.float32), targets)
    is_leaf = tree.tree_.children_left < 0
    return Leaves(tree, chosen, np.cumsum(is_leaf) - 1) if is_leaf.sum() > 1 else None


def _mixtures(residuals: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return few targets that vary between rows if residuals do, overall or in a group."""
    scale = residuals.std(axis=0)
    residuals = (residuals - residuals.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    shares = np.bincount(groups) / len(groups)
    scales = np.sqrt(1 / np.maximum(shares, 0.02))
    indicators = (np.eye(len(shares))[groups] - shares) * scales / np.sqrt(len(shares))
    by_group = (residuals[:, :, None] * indicators[:, None]).reshape(len(groups), -1)
    every = np.hstack([residuals, by_group])
    if every.shape[1] <= _N_MIXTURES:
        return every
    mix = np.random.default_rng(0).normal(size=(every.shape[1], _N_MIXTURES))
    return every @ mix


def _related(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the features that are most correlated with any target."""
    centred = features - features.mean(axis=0)
    sizes = np.sqrt((centred**2).sum(axis=0))
    evidence = np.abs(centred.T @ (targets - targets.mean(axis=0))).max(axis=1)
    return np.argsort(evidence / np.where(sizes > 0, sizes, np.inf))[-_MOST_FEATURES:]
