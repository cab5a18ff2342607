"""The probabilities of a column's states, given earlier columns and the group."""

from dataclasses import dataclass

import numpy as np

from skdpot.fairness._conditional._moments import N_FOLDS
from skdpot.fairness._conditional._products import Linear
from skdpot.fairness._conditional._softmax import minimise, softmax

# Penalties, in rows: of common slopes, of slopes by group, and of intercepts by group.
_COMMON, _SLOPES, _INTERCEPTS = 3.0, 20.0, 0.5
# Maximum number of rows that a model is fitted to; or this many for each feature and group, if that
# is more.
_MOST_ROWS, _ROWS_PER_SLOPE = 20_000, 20
# Added to the number of rows of each state.
_PSEUDO_ROWS = 0.5


@dataclass(frozen=True, eq=False)
class StateModel:
    """Probabilities of a column's states, given earlier columns and the group.

    Attributes
    ----------
    intercepts : ndarray of shape (n_groups, n_states)
    slopes : ndarray of shape (n_groups or 1, n_states, n_features)
    differs : bool
        Whether groups have different probabilities.
    """

    intercepts: np.ndarray
    slopes: np.ndarray
    differs: bool

    def linear(self) -> Linear:
        """Return logits as functions of images in every group."""
        return Linear(self.intercepts, self.slopes)

    def probabilities(self, features: np.ndarray, group: int) -> np.ndarray:
        """Return the probabilities of states, computed as if all rows were in one group."""
        slopes = self.slopes[group if len(self.slopes) > 1 else 0]
        return softmax(slopes @ features + self.intercepts[group][:, None])


def fit_states(
    states: np.ndarray,
    features: np.ndarray,
    groups: np.ndarray,
    folds: np.ndarray,
    n_groups: int,
    n_states: int,
) -> StateModel:
    """Return the model of states; slopes differ between groups if that lowers the held-out loss.

    `features` have one row per feature.
    """
    if n_states == 1:
        return StateModel(np.zeros((n_groups, 1)), np.zeros((1, 1, len(features))), False)
    counts = np.bincount(states, minlength=n_states) + _PSEUDO_ROWS
    level = np.log(counts / counts.sum())
    few = slice(0, max(_MOST_ROWS, _ROWS_PER_SLOPE * n_groups * len(features)))
    problem = _Problem(states[few], features[:, few], groups[few], n_groups, level)
    common, shifts = problem.fit_common()
    intercepts = level + shifts
    model = StateModel(intercepts, common[None], bool(shifts.any()))
    if n_groups == 1 or not len(features):
        return model
    trained, tested = folds[few] != N_FOLDS - 1, folds[few] == N_FOLDS - 1
    if not tested.any() or not trained.any():
        return model
    training, tests = problem.rows(trained), problem.rows(tested)
    if tests.loss(training.tilt(model)) < tests.loss(model) - 1.0:
        return problem.tilt(model)
    return model


@dataclass(frozen=True, eq=False)
class _Problem:
    """The rows of a regression of states."""

    states: np.ndarray
    features: np.ndarray
    groups: np.ndarray
    n_groups: int
    level: np.ndarray

    def rows(self, chosen: np.ndarray) -> "_Problem":
        """Return the problem with these rows only."""
        return _Problem(self.states[chosen], self.features[:, chosen], self.groups[chosen],
                        self.n_groups, self.level)  # fmt: skip

    def fit_common(self) -> tuple[np.ndarray, np.ndarray]:
        """Return common slopes, and the shrunk intercepts of groups."""
        width, n_states = len(self.features), len(self.level)
        penalties = np.full(width, _COMMON)
        level = np.broadcast_to(self.level[:, None], (n_states, len(self.states)))
        alone, loss = minimise(self.features, self.states, level, penalties)
        if self.n_groups == 1:
            return alone, np.zeros((1, n_states))
        indicators = np.eye(self.n_groups)[:, self.groups]
        both = np.vstack([self.features, indicators])
        penalties = np.r_[penalties, np.full(self.n_groups, _INTERCEPTS)]
        start = np.hstack([alone, np.zeros((n_states, self.n_groups))])
        found, with_groups = minimise(both, self.states, level, penalties, start)
        spared = (len(np.unique(self.groups)) - 1) * (n_states - 1)
        support = 1 - spared / max(2 * (loss - with_groups), 1e-9)
        if support <= 0:
            return alone, np.zeros((self.n_groups, n_states))
        return found[:, :width], support * found[:, width:].T

    def tilt(self, model: StateModel) -> StateModel:
        """Return the model with group-specific slopes in addition to common ones."""
        slopes, intercepts = [], []
        for group in range(self.n_groups):
            rows = self.groups == group
            features = np.vstack([self.features[:, rows], np.ones((1, rows.sum()))])
            start = np.column_stack([model.slopes[0], model.intercepts[group]])
            penalties = np.r_[np.full(len(self.features), _SLOPES), _INTERCEPTS]
            found, _ = minimise(features, self.states[rows], start @ features, penalties)
            slopes.append(start[:, :-1] + found[:, :-1])
            intercepts.append(start[:, -1] + found[:, -1])
        return StateModel(np.array(intercepts), np.array(slopes), True)

    def loss(self, model: StateModel) -> float:
        """Return the sum of logarithmic losses."""
        found = self.probabilities(model)[self.states, np.arange(len(self.states))]
        return float(-np.log(found + 1e-300).sum())

    def probabilities(self, model: StateModel) -> np.ndarray:
        """Return the model's probabilities of rows in their own groups."""
        found = np.empty((len(self.level), len(self.states)))
        for group in range(self.n_groups):
            rows = self.groups == group
            found[:, rows] = model.probabilities(self.features[:, rows], group)
        return found
