"""A fitted generator of vectors and images: its samples and its score."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.generative._encoders import RecordSpace
from skdpot.generative._encoders.images import blocks
from skdpot.generative._network import TrainedNetwork
from skdpot.generative._records import Declared, read_points, wanted_labels
from skdpot.generative._score import SCORED_ROWS, sinkhorn_divergence


@dataclass(frozen=True, eq=False)
class FittedRecords:
    """The source of records: a sketch, or a network; all of it was released, or is public.

    Attributes
    ----------
    space : RecordSpace
        Public.
    sketch : ReleasedVectors or None
        None where a network was trained on records.
    network : TrainedNetwork or None
        Makes the samples, if there is one.
    """

    space: RecordSpace
    sketch: Any
    network: TrainedNetwork | None

    @property
    def classes(self) -> np.ndarray | None:
        """Return the declared labels."""
        return self.space.classes

    @property
    def n_records(self) -> int | None:
        """Return how many records there are, about, where that was released."""
        return None if self.sketch is None else self.sketch.n_records

    def sample(self, n_samples: Any, y: Any, given: Any, rng: Any, device: Any) -> Any:
        """Return records, with their labels if there are any."""
        if given is not None:
            raise ValueError("given is for tables, with a schema; use y for labels.")
        counts = None if self.sketch is None else self.sketch.counts
        codes = wanted_labels(n_samples, y, self.classes, rng, counts)
        rows = self._rows(n_samples if codes is None else len(codes), codes, rng, device)
        X = np.asarray(rows, dtype=np.float64)
        for block in blocks(*X.shape):
            X[block] = self.space.records(X[block])
        return X if self.classes is None else (X, self.classes[codes])

    def prototypes(self) -> Any:
        """Return the means of clusters as records, with their labels if there are any."""
        rows, codes = self.sketch.prototypes()
        X = self.space.records(rows)
        return X if self.classes is None else (X, self.classes[codes])

    def score(self, estimator: Any, X: Any, y: Any, reg: float, rng: Any, device: Any) -> float:
        """Return minus how far generated records are from given ones."""
        declared = Declared(self.space.box, self.classes)
        given = read_points(estimator, X, y, declared, reset=False)
        kept = rng.permutation(len(given.points))[:SCORED_ROWS]
        points, codes = given.points[kept], None if given.codes is None else given.codes[kept]
        rows = self._rows(len(kept), codes, rng, device)
        return -sinkhorn_divergence(rows, points, codes, codes, reg=reg)

    def _rows(self, n_rows: int, codes: np.ndarray | None, rng: Any, device: Any) -> np.ndarray:
        """Return generated rows, from -1 to 1."""
        if self.network is not None:
            return self.network.rows(n_rows, codes, rng, device)
        return self.sketch.rows(np.zeros(n_rows, dtype=np.intp) if codes is None else codes, rng)
