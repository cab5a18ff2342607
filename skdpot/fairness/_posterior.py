"""Group probabilities of rows without a known attribute, and kinds of rows by them."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from skdpot.fairness._group_finders import GroupFinder, train_finder
from skdpot.tables import Column

_LEARNERS = ("gradient boosting", "logistic regression")
_FOLDS = 5
# Maximum number of rows that a posterior is learned from.
_MOST_ROWS = 20_000
# Smaller probabilities are raised to this.
_LEAST = 1e-3
# Number of kinds of rows for each group, and minimum number of rows for each kind.
_KINDS_PER_GROUP, _ROWS_PER_KIND = 2, 100


@dataclass(frozen=True, eq=False)
class Posterior:
    """Group probabilities, given the columns of a row.

    Attributes
    ----------
    prior : ndarray of shape (n_groups,)
        Shares of the groups.
    finders : tuple of GroupFinder
        Classifiers, whose probabilities are averaged; without any, all rows have the prior.
    """

    prior: np.ndarray
    finders: tuple[GroupFinder, ...] = ()

    def shares(self, codes: np.ndarray) -> np.ndarray:
        """Return group probabilities, one row per row of data."""
        if not self.finders:
            return np.tile(self.prior, (len(codes), 1))
        return np.mean([finder.probabilities(codes) for finder in self.finders], axis=0)


@dataclass(frozen=True, eq=False)
class Kinds:
    """Rows by their group probabilities: the attribute that an unaware repair removes.

    Attributes
    ----------
    posterior : Posterior
        Group probabilities of rows.
    clusters : KMeans
        Clusters of rows by these probabilities.
    """

    posterior: Posterior
    clusters: KMeans

    def numbers(self, codes: np.ndarray) -> np.ndarray:
        """Return the kind of each row."""
        return self.clusters.predict(_log_ratios(self.posterior.shares(codes)))


def fit_posterior(
    columns: list[Column], codes: np.ndarray, groups: np.ndarray, n_groups: int, seed: int
) -> tuple[Posterior, np.ndarray, np.ndarray]:
    """Return the posterior, its training rows, and their probabilities by held-out folds.

    Held-out folds show whether each classifier predicts better than the groups' shares, by the
    logarithmic score; if not, it is left out. Rows of group -1 are not used.
    """
    rng = np.random.RandomState(seed)
    rows = rng.permutation(np.flatnonzero(groups >= 0))[:_MOST_ROWS]
    codes, groups = codes[rows], groups[rows]
    counts = np.bincount(groups, minlength=n_groups)
    prior = counts / len(rows)
    alike, finders, held_out = np.tile(prior, (len(rows), 1)), [], []
    n_folds = min(_FOLDS, int(counts.min()))
    for learner in _LEARNERS if n_folds > 1 else ():
        found = np.empty((len(rows), n_groups))
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
        for train, test in folds.split(codes, groups):
            finder = train_finder(learner, columns, seed, (codes[train], groups[train]), n_groups)
            found[test] = finder.probabilities(codes[test])
        if _score(groups, found) < _score(groups, alike):
            finders.append(train_finder(learner, columns, seed, (codes, groups), n_groups))
            held_out.append(found)
    posterior = Posterior(prior, tuple(finders))
    return posterior, rows, np.mean(held_out, axis=0) if finders else alike


def fit_kinds(
    columns: list[Column], codes: np.ndarray, groups: np.ndarray, n_groups: int, seed: int
) -> tuple[Kinds, np.ndarray, np.ndarray]:
    """Return the kinds of rows, the rows they were learned from, and the kinds of those.

    The kind of a training row comes from classifiers trained without the row, as for new rows.
    """
    posterior, rows, held_out = fit_posterior(columns, codes, groups, n_groups, seed)
    n_kinds = max(1, min(_KINDS_PER_GROUP * n_groups, len(rows) // _ROWS_PER_KIND))
    clusters = KMeans(n_kinds, n_init=3, random_state=seed)
    with warnings.catch_warnings():
        # If rows reveal nothing about their group, there are fewer kinds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        kinds = clusters.fit_predict(_log_ratios(held_out))
    return Kinds(posterior, clusters), rows, kinds


def _log_ratios(shares: np.ndarray) -> np.ndarray:
    """Return centred log-ratios of shares: coordinates without a constraint."""
    logs = np.log(np.maximum(shares, _LEAST))
    return logs - logs.mean(axis=1, keepdims=True)


def _score(groups: np.ndarray, shares: np.ndarray) -> float:
    """Return the mean negative log-likelihood of rows' own groups."""
    return -float(np.log(np.maximum(shares[np.arange(len(groups)), groups], _LEAST)).mean())
