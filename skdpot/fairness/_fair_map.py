"""The map that a fit learns: groups, and the images of their rows."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed

from skdpot.fairness._blur import Blur
from skdpot.fairness._certificate import FairnessCertificate
from skdpot.fairness._conditional import ConditionalMap
from skdpot.fairness._groups import Groups
from skdpot.fairness._row_draws import IMAGE_DRAW, uniforms
from skdpot.fairness._space import ColumnSpace
from skdpot.fairness._support import Barycenter
from skdpot.tables import NUMERIC, Column, as_array


class Transport(Protocol):
    """A way to move the rows of groups to one distribution; `method` is its name."""

    method: str

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, method: Any, n_jobs: Any
    ) -> np.ndarray:
        """Return the images of rows, as codes; numbers of rows are within their bounds.

        The results for rows without a group, with number -1, are not used. `keys` are those of
        `row_keys`; `method` and `n_jobs` are those of the estimator.
        """

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes that an estimator shows, by name."""


@dataclass(frozen=True, eq=False)
class FairMap:
    """Groups, and the transport of their rows.

    Attributes
    ----------
    columns : list of Column
        The columns of rows.
    box : tuple of two ndarray, or None
        Bounds that numbers are clipped to.
    groups : Groups
        The groups; those of a private fit have no rows here.
    weights : ndarray of shape (n_groups,)
        Their weights.
    transport : Transport
        Where they are moved.
    certificate : FairnessCertificate or None
        The certificate from held-out rows.
    """

    columns: list[Column]
    box: tuple[np.ndarray, np.ndarray] | None
    groups: Groups
    weights: np.ndarray
    transport: Transport
    certificate: FairnessCertificate | None = None

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, method: Any, n_jobs: Any
    ) -> np.ndarray:
        """Return the images of rows; rows with group number -1 stay."""
        inside = clipped(codes, self.columns, self.box)
        images = self.transport.images(inside, groups, keys, method, n_jobs)
        return np.where((groups >= 0)[:, None], images, codes)


@dataclass(frozen=True, eq=False)
class SupportTransport:
    """Couplings of groups with the support of their barycenter.

    Attributes
    ----------
    space : ColumnSpace
        Where distances are taken.
    barycenter : Barycenter
        Where the groups are moved.
    """

    space: ColumnSpace
    barycenter: Barycenter

    method = "support"

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, method: Any, n_jobs: Any
    ) -> np.ndarray:
        """Return the images of rows, as codes; see `Transport`."""
        way, drawn = method.transform_method, uniforms(keys, IMAGE_DRAW)

        # Threads do not inherit the caller's np.errstate.
        @np.errstate(all="ignore")
        def move(g: int, rows: np.ndarray) -> np.ndarray:
            group = self.barycenter.maps[g]
            points = self.space.encode(codes[rows])
            if isinstance(way, str) and way == "coupling":
                return self.barycenter.codes[group.draw(points, drawn[rows])]
            return self.space.decode(group.image(points, way))

        rows_of = [np.flatnonzero(groups == g) for g in range(len(self.barycenter.maps))]
        work = [(g, rows) for g, rows in enumerate(rows_of) if len(rows)]
        found = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(move)(*task) for task in work)
        images = codes.copy()
        for (_, rows), image in zip(work, found, strict=True):
            images[rows] = image
        return images

    def attributes(self) -> dict[str, Any]:
        """Return the support, the couplings with it, and their costs."""
        found = self.barycenter
        return {
            "support_": as_array(self.space.labelled(found.codes)),
            "couplings_": [group.plan for group in found.maps],
            "objective_": found.objective,
            "lower_bound_": found.lower_bound,
            "n_iter_": found.n_iter,
        }


@dataclass(frozen=True, eq=False)
class ConditionalTransport:
    """Conditional distributions of columns: rows are moved one column after the other.

    Attributes
    ----------
    conditional : ConditionalMap
        The map.
    blur : Blur or None
        Blurs rows before they are moved, and their images, if any are moved.
    """

    conditional: ConditionalMap
    blur: Blur | None

    method = "conditional"

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, method: Any, n_jobs: Any
    ) -> np.ndarray:
        """Return the images of rows, as codes; see `Transport`."""
        blur = self.blur if self.conditional.moves else None
        codes = codes if blur is None else blur.rows(codes, keys)
        images = self.conditional.images(codes, groups, keys, n_jobs)
        return images if blur is None else blur.images(images, keys)

    def attributes(self) -> dict[str, Any]:
        """Return nothing: there are no points or couplings to show."""
        return {}


def clipped(codes: np.ndarray, columns: list[Column], box: Any) -> np.ndarray:
    """Return rows with numbers clipped to their bounds, if there are any."""
    if box is None:
        return codes
    numeric = [column.kind == NUMERIC for column in columns]
    codes = codes.copy()
    codes[:, numeric] = np.clip(codes[:, numeric], *box)
    return codes
