"""The map that a fit learns: groups, and the images of their rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from skdpot.fairness._groups import Groups
from skdpot.fairness._space import ColumnSpace
from skdpot.fairness._support import Barycenter
from skdpot.tables import NUMERIC, Column


@dataclass(frozen=True, eq=False)
class FairMap:
    """Groups, and how rows of theirs are moved.

    Attributes
    ----------
    columns : list of Column
        What rows are made of.
    space : ColumnSpace
        Where distances are taken.
    box : tuple of two ndarray, or None
        Bounds that numbers are clipped to.
    groups : Groups
        The groups; those of a private fit have no rows here.
    weights : ndarray of shape (n_groups,)
        Their weights.
    barycenter : Barycenter
        Where they are moved.
    """

    columns: list[Column]
    space: ColumnSpace
    box: tuple[np.ndarray, np.ndarray] | None
    groups: Groups
    weights: np.ndarray
    barycenter: Barycenter

    def images(
        self, codes: np.ndarray, groups: np.ndarray, uniforms: np.ndarray, method: Any, n_jobs: Any
    ) -> np.ndarray:
        """Return where rows are moved, as codes; rows of no group, with number -1, stay.

        `uniforms` draw images; `method` and `n_jobs` are those of the estimator.
        """

        # Threads do not inherit what the caller has said of floating-point errors.
        @np.errstate(all="ignore")
        def move(g: int, rows: np.ndarray) -> np.ndarray:
            group = self.barycenter.maps[g]
            points = self.space.encode(clipped(codes[rows], self.columns, self.box))
            if isinstance(method, str) and method == "coupling":
                return self.barycenter.codes[group.draw(points, uniforms[rows])]
            return self.space.decode(group.image(points, method))

        rows_of = [np.flatnonzero(groups == g) for g in range(len(self.groups.names))]
        work = [(g, rows) for g, rows in enumerate(rows_of) if len(rows)]
        found = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(move)(*task) for task in work)
        images = codes.copy()
        for (_, rows), image in zip(work, found, strict=True):
            images[rows] = image
        return images


def clipped(codes: np.ndarray, columns: list[Column], box: Any) -> np.ndarray:
    """Return rows with numbers moved into their bounds, if there are any."""
    if box is None:
        return codes
    numeric = [column.kind == NUMERIC for column in columns]
    codes = codes.copy()
    codes[:, numeric] = np.clip(codes[:, numeric], *box)
    return codes
