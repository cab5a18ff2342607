"""Joint tables of three and more columns, for a mixture that is fitted to the release."""

from collections.abc import Mapping, Sequence

import numpy as np

from skdpot.generative._sketch.latent_classes import JointTable
from skdpot.generative._sketch.parities import mixture_parities, scanned_subsets, standing_out

__all__ = ["joint_tables"]


def joint_tables(
    released: Mapping[str, np.ndarray],
    columns: Sequence[np.ndarray],
    n_records: np.ndarray,
    fitted: Sequence[tuple[np.ndarray, np.ndarray]],
) -> list[list[JointTable]] | None:
    """Return the dependence of more than two columns in each class that its mixture lacks.

    `n_records` of shape (n_classes,) is about the number of records of each class. `fitted` has the
    mixture of each class from pairs only, as `fit_mixture` returns it. None means that there is
    nothing.
    """
    sizes = [released["groups"][column].max() + 1 for column in columns]
    tables = _parities(released, sizes, n_records, fitted)
    return tables if any(tables) else None


def _parities(released, sizes, n_records, fitted):
    """Return the parities that stand out, of each class."""
    if "parities" not in released:
        return [[] for _ in fitted]
    halves = np.split(released["halves"], np.cumsum(sizes)[:-1])
    subsets = scanned_subsets(len(sizes), int(released["largest_parity"][0]))
    predicted = [
        mixture_parities(weights, _mean_signs(profiles, halves), subsets)
        for weights, profiles in fitted
    ]
    deviations = np.sqrt(released["parity_deviation"][0] ** 2 + n_records) / n_records
    parities = released["parities"] / n_records
    # A column whose groups are all in one half has no sign; its parities are set to predicted ones.
    has_sign = np.array([half.min() < half.max() for half in halves])
    is_unknown = ~np.concatenate([has_sign[group].all(axis=1) for group in subsets])
    parities[is_unknown] = np.transpose(predicted)[is_unknown]
    outstanding = standing_out(parities, np.transpose(predicted), deviations, n_records, subsets)
    members = [np.eye(2, dtype=np.float32)[half] for half in halves]
    # Parities that stand out are not due to chance, and count as much as the most precise pairs.
    pair_noise = max(released["deviations"][1], 1.0) / n_records
    return [
        [
            JointTable(
                subset,
                [members[j] for j in subset],
                np.float32(mean[c]),
                pair_noise[c],
                _parity_contrast(len(subset)),
            )
            for subset, mean in outstanding
        ]
        for c in range(len(fitted))
    ]


def _mean_signs(profiles, halves):
    """Return the mean sign of each column in each component."""
    parts = np.split(profiles, np.cumsum([len(half) for half in halves])[:-1], axis=1)
    signs = [part @ (1 - 2 * half) for part, half in zip(parts, halves, strict=True)]
    return np.column_stack(signs)


def _parity_contrast(n_columns):
    """Return the parity of each combination of halves."""
    signs = np.ones(1, dtype=np.float32)
    for _ in range(n_columns):
        signs = np.multiply.outer(signs, np.array([1, -1], dtype=np.float32)).ravel()
    return signs
