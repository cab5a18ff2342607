"""Mixtures of products of distributions, fitted to counts with noise of pairs of columns.

Within a component columns are independent, so that it is easy to sample from a mixture, and to
condition it on any columns; with enough components it has any dependence of pairs. Only releases
are fitted: nothing here is private, and nothing costs budget.
"""

from dataclasses import dataclass

import numpy as np

from skdpot._threads import one_thread_unless
from skdpot.generative._sketch.descent import (
    Adam,
    column_slices,
    pair_tables,
    rate_of_step,
    softmax,
    through_softmax,
)

__all__ = ["JointTable", "fit_mixture", "penalty_of"]

_LEARNING_RATE = 0.1
# Products of matrices with fewer rows are too small for several threads.
_MANY_GROUPS = 1_000
# How strongly components are pulled together, over the noise of pairs.
_PENALTY = 2.0
# Pairs with so many other columns pull a column as strongly; with fewer, less is held against them.
_MANY_COLUMNS = 13
# A mixture that is split has so many components more, at most, and no table takes more of it.
_MOST_ADDED = 300
_MOST_SPLIT = 0.9
_LEAST_SPLIT = 0.02
# A difference of fewer deviations of its noise is no reason to split.
_SPLIT_DEVIATIONS = 2.0
_LEAST_PROFILE = 1e-4
_LEAST_SHARE = np.float32(1e-9)


@dataclass(frozen=True, eq=False)
class JointTable:
    """The known dependence of several columns.

    Parameters
    ----------
    columns : tuple of int
        Positions of the columns.
    members : list of ndarray of shape (n_groups, n_parts)
        Which part of its column each group is in, as 1 in a row of zeros.
    target : float or ndarray of shape (n_cells,)
        The share of every combination of parts; or the mean of the contrast.
    deviation : float
        Of the noise of the target.
    contrast : ndarray of shape (n_cells,) or None
        The mean that the target has, as for a parity.
    """

    columns: tuple
    members: list
    target: object
    deviation: float
    contrast: object = None

    def products(self, parts):
        """Return, of each component, the shares of combinations of the first columns."""
        products = [np.ones((len(parts[0]), 1), dtype=parts[0].dtype)]
        for part in parts:
            products.append((products[-1][:, :, None] * part[:, None, :]).reshape(len(part), -1))
        return products

    def parts(self, profiles, slices):
        """Return, of each component, the shares of the parts of each column."""
        return [
            profiles[:, slices[j]] @ member
            for j, member in zip(self.columns, self.members, strict=True)
        ]

    def errors(self, shares):
        """Return by how much shares of all combinations are off the target."""
        if self.contrast is None:
            return shares - self.target
        return (shares @ self.contrast - self.target) * self.contrast

    def add_slopes(self, slopes, profiles, weights, slices):
        """Add the gradient per unit of a component's weight, and return the gradient of weights."""
        parts = self.parts(profiles, slices)
        *products, combined = self.products(parts)
        inner = np.float32(self.deviation**-2) * self.errors(weights[:, 0] @ combined)[None]
        for i in range(len(parts) - 1, -1, -1):
            n_parts = parts[i].shape[1]
            inner = inner.reshape(len(inner), -1, n_parts)
            part_slopes = (products[i][:, :, None] * inner).sum(axis=1)
            slopes[:, slices[self.columns[i]]] += part_slopes @ self.members[i].T
            inner = (inner * parts[i][:, None, :]).sum(axis=2)
        return inner


def penalty_of(n_columns):
    """Return how strongly components of so many columns are pulled together.

    Few columns have few pairs, which must show strong dependence.

    Examples
    --------
    >>> from skdpot.generative._sketch.latent_classes import penalty_of
    >>> [round(penalty_of(n_columns), 2) for n_columns in (3, 6, 12, 40)]
    [0.01, 0.11, 1.21, 2.0]
    """
    return _PENALTY * min((n_columns - 1) / _MANY_COLUMNS, 1.0) ** 3


def fit_mixture(
    singles,
    pairs,
    deviations,
    n_components,
    n_iter,
    rng,
    *,
    start=None,
    joints=(),
    penalty=_PENALTY,
):
    """Return the mixture whose marginals are nearest to those given, in units of their noise.

    Parameters
    ----------
    singles : list of ndarray of shape (n_groups,)
        The distribution of each column, above 0.
    pairs : ndarray
        Shares of the pairs of groups of each two columns: tables of shape (n_groups, n_groups), in
        the order of ``itertools.combinations``, one after another.
    deviations : tuple of (float or ndarray, float or ndarray)
        Of the noise of singles, perhaps one for each group, and of pairs, perhaps one for each
        entry; above 0.
    n_components : int
        Of the mixture.
    n_iter : int
        Number of steps of Adam.
    rng : RandomState
        Of which the first guess is made.
    start : tuple of (ndarray, ndarray), default=None
        Weights and profiles, as they are returned: the first guess.
    joints : sequence of JointTable
        The known dependence of more than two columns. Components of the first guess are split where
        it has less of it.
    penalty : float, default=2.0
        How strongly components are pulled together, over the noise of pairs.

    Returns
    -------
    weights : ndarray of shape (n_components,)
        They have the sum 1.
    profiles : ndarray of shape (n_components, sum of n_groups)
        The distribution of each column in each component.

    Notes
    -----
    Squared errors over their variances are minimised. A penalty ``sum_k w_k KL(k || mean)``, with a
    fixed mean, pulls each component towards the mean of all. It is finite if a component lacks a
    value that others have: columns may determine each other. The errors that noise makes pull
    components apart with a force that grows as one over its deviation, and so does the penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.latent_classes import fit_mixture
    >>> pairs = np.array([0.5, 0.0, 0.0, 0.5])
    >>> half = np.array([0.5, 0.5])
    >>> weights, profiles = fit_mixture(
    ...     [half, half], pairs, (0.1, 0.001), 4, 100, np.random.RandomState(0)
    ... )
    >>> joint = (profiles[:, :2] * weights[:, None]).T @ profiles[:, 2:]
    >>> bool(np.abs(joint - [[0.5, 0], [0, 0.5]]).max() < 0.05)
    True
    """
    sizes = [len(single) for single in singles]
    columns = column_slices(sizes)
    means = np.concatenate(singles).astype(np.float32)
    targets = pair_tables(pairs, sizes)
    single_precisions = np.asarray(1 / deviations[0] ** 2, dtype=np.float32)
    precisions = pair_tables(np.broadcast_to(1 / np.square(deviations[1]), pairs.shape), sizes)
    n_cells = len(pairs) + len(means)
    penalty = np.float32(penalty / np.max(deviations[1]))
    if start is None:
        logits = np.log(np.maximum(means, 1e-4)) + rng.normal(size=(n_components, len(means)))
        heights = 0.1 * rng.normal(size=(n_components, 1))
    else:
        weights, profiles = _split(start, joints, columns)
        logits, heights = (
            np.log(np.maximum(probabilities, _LEAST_PROFILE * least))
            for probabilities, least in ((profiles, 1.0), (weights[:, None], 1 / len(weights)))
        )
    state = [logits.astype(np.float32), heights.astype(np.float32)]
    optimiser = Adam(state)
    with one_thread_unless(len(means) >= _MANY_GROUPS):
        for step in range(n_iter):
            profiles, weights = softmax(state[0], columns), softmax(state[1].T, [slice(None)]).T
            weighed = weights * profiles
            errors = precisions * (weighed.T @ profiles - targets)
            single_errors = single_precisions * (weighed.sum(axis=0) - means)
            pair_slopes = profiles @ (errors + errors.T)
            slopes = ((0.5 * pair_slopes + single_errors) * profiles).sum(axis=1, keepdims=True)
            for joint in joints:
                slopes += joint.add_slopes(pair_slopes, profiles, weights, columns)
            # Per unit of its weight, so that a light component learns as fast as a heavy one.
            gradients = [
                through_softmax(pair_slopes + single_errors, profiles, columns)
                + penalty * _pull_gradient(profiles, weighed.sum(axis=0), columns),
                weights * (slopes - (weights * slopes).sum()),
            ]
            optimiser.descend(
                [gradient / n_cells for gradient in gradients],
                _LEARNING_RATE * rate_of_step(step, n_iter),
            )
    weights = softmax(state[1].T.astype(np.float64), [slice(None)])[0]
    return weights, softmax(state[0].astype(np.float64), columns)


def _pull_gradient(profiles, mean, columns):
    """Return the gradient at logits of how far, in relative entropy, components are from a mean."""
    ratios = np.maximum(profiles, _LEAST_SHARE) / np.maximum(mean, _LEAST_SHARE)
    return through_softmax(np.log(ratios), profiles, columns)


def _split(mixture, joints, columns):
    """Return a mixture with more components, which fits joint tables better."""
    weights, profiles = mixture
    labels, n_first = np.zeros(len(weights), dtype=np.int64), len(weights)
    for joint in joints:
        combined = joint.products(joint.parts(profiles, columns))[-1]
        lacking = -joint.errors(weights @ combined)
        if joint.contrast is not None:
            lacking, noise = lacking / len(lacking), 0.0
        else:
            noise = _SPLIT_DEVIATIONS * joint.deviation
        lacking = np.where(lacking > noise, lacking, 0.0)
        share = min(2 * lacking.sum(), _MOST_SPLIT)
        if share < _LEAST_SPLIT:
            continue
        cells = np.flatnonzero(lacking)
        n_left = _MOST_ADDED + n_first - len(weights)
        if len(cells) * (labels.max() + 1) > n_left:
            labels[:] = 0
        if len(cells) > n_left:
            break
        added = [
            _restricted(joint, columns, weights, profiles, combined, labels == label, cells)
            for label in np.unique(labels)
        ]
        shares = np.concatenate([new[0] for new in added]) * np.tile(lacking[cells], len(added))
        weights = np.concatenate([(1 - share) * weights, share * shares / shares.sum()])
        profiles = np.concatenate([profiles, *(new[1] for new in added)])
        new = labels.max() + 1 + np.arange(len(shares))
        labels = np.concatenate([labels, new])
    return weights, profiles


def _restricted(joint, columns, weights, profiles, combined, selected, cells):
    """Return one component for each cell of a table, as components of a label are within it."""
    masses = (weights[:, None] * combined)[selected][:, cells]
    totals = np.maximum(masses.sum(axis=0), 1e-30)
    components = (masses / totals).T @ profiles[selected]
    shape = [member.shape[1] for member in joint.members]
    for j, member, part in zip(
        joint.columns, joint.members, np.unravel_index(cells, shape), strict=True
    ):
        restricted = components[:, columns[j]] * member.T[part] + 1e-12 * member.T[part]
        components[:, columns[j]] = restricted / restricted.sum(axis=1, keepdims=True)
    return np.full(len(cells), weights[selected].sum()), components
