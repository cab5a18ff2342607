"""How a generator releases a sketch of private records."""

from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from skdpot.generative._engine import load_engine
from skdpot.generative._records import read_bounds, read_classes, read_records, without_sizes
from skdpot.generative._sketch.encoders import make_encoder
from skdpot.generative._sketch.images import whole_shape
from skdpot.generative._sketch.plan import check_noise
from skdpot.generative._sketch.vectors import (
    SHARE_NAMES,
    STAGES,
    USUAL_MOVES,
    VectorPlan,
    are_moves,
    is_size,
    release_vectors,
)
from skdpot.generative._tables import TableFitting
from skdpot.releases import SketchReleases, check_exact_sums

# What a network leaves.
_OF_NETWORK = (
    "_network", "_network_name", "_settings", "_training_state", "loss_curve_", "n_iter_",
)  # fmt: skip
# The parameters by which it learns.
_OF_TRAINING = (
    "network", "latent_dim", "image_shape", "n_iter", "sampling_rate", "batch_size",
    "learning_rate", "optimizer", "reg", "l1_weight", "debias", "class_scale", "device", "verbose",
)  # fmt: skip
# From so many records of a sketch a network learns.
_N_LESSONS = 20_000
# For all of these numbers of records there must be noise enough; what is released depends on them.
_SIZES = np.logspace(0, 12, 61)
# From this epsilon on so many coefficients of an image are taken along either side.
_AMPLE, _FINE = 5.0, 22


class SketchFitting(TableFitting):
    """The part of a generator that releases a sketch, and draws records from it."""

    _sketch: Any

    if TYPE_CHECKING:
        # The parameters are those of the estimator that this is a part of.
        def __getattr__(self, name: str) -> Any: ...

    def _fit_by_sketch(self, X, y):
        """Release a sketch. All that may be refused is, before the ledger is charged."""
        if self.schema is not None:
            return self._fit_table(X, y)
        if self.target is not None:
            raise ValueError(
                "target names a column of a table, and needs a schema. Labels of records that are "
                "no table are given as y, with classes=[...]."
            )
        points, codes = without_sizes(
            lambda: read_records(self, X, y, self.classes, self.data_bounds, reset=True)
        )
        check_exact_sums(len(points))
        source = self._make_source(False)
        n_features = points.shape[1]
        box = read_bounds(self.data_bounds, n_features)
        encoder = self._make_encoder(box)
        classes = read_classes(self.classes)
        budget = self._sketch_budget()
        plan = self._plan_vectors(budget, encoder, classes, n_features)
        augment = self._read_augment(encoder)
        if self.network is not None:
            # Raises where there can be no such network.
            self._new_network(load_engine(), n_features, plan.n_classes if classes else 0, 0)
        self._charge(budget, source, "a sketch")
        self._forget()
        first = np.random.default_rng(source.bits(62, 2).tolist())
        if codes is None:
            codes = np.zeros(len(points), dtype=np.intp)
        releases = SketchReleases(budget.noise_multiplier, STAGES, self.neighbouring, source)
        with tqdm(desc=type(self).__name__, unit=" releases", disable=not self.verbose) as bar:
            self._sketch = without_sizes(
                release_vectors, points, codes, encoder, plan, releases, first, augment, bar.update
            )
        self._box = box
        if classes is not None:
            self.classes_ = classes[0]
        self.n_records_ = round(float(self._sketch.counts.sum()))
        self.noise_multiplier_ = budget.noise_multiplier
        self.privacy_guarantee_ = self._guarantee(budget, source)
        if self.network is not None:
            self._learn_from_sketch(first)
        return self

    def _make_encoder(self, box):
        """Return the encoder of records in a box, or raise."""
        n_features = len(box[0])
        return make_encoder(
            self.encoder,
            n_features=n_features,
            image_shape=self.image_shape,
            box=box,
            n_coefficients=self._coefficients(n_features),
            encoder_norm=self.encoder_norm,
        )

    def _plan_vectors(self, budget, encoder, classes, n_features):
        """Return what will be released, or raise where its noise would be out of range."""
        plan = VectorPlan(
            n_classes=1 if classes is None else len(classes[0]),
            noise_multiplier=budget.noise_multiplier,
            n_clusters=self.n_clusters,
            budget_shares=_read_shares(self.budget_shares),
            n_pixels=n_features if self.encoder == "pose" else 0,
        )
        check_noise(budget, *(plan.releases(plan.sizes(n, encoder)) for n in _SIZES))
        return plan

    def _learn_from_sketch(self, rng):
        """Train a network on records of the sketch, which costs nothing."""
        codes = self._drawn_codes(_N_LESSONS, rng)
        rows = self._sketch.rows(codes, rng)
        parameters = {name: getattr(self, name) for name in _OF_TRAINING}
        labelled = hasattr(self, "classes_")
        make: Any = type(self)
        student = make(
            None,
            method="gradient",
            data_bounds=(-1, 1),
            classes=range(len(self.classes_)) if labelled else None,
            random_state=int(rng.integers(2**31)),
            **parameters,
        )
        student.fit(rows, codes if labelled else None)
        for name in _OF_NETWORK:
            setattr(self, name, getattr(student, name))

    def _drawn_codes(self, n_samples, rng):
        """Return as many classes, in proportion to the records' own."""
        counts = self._sketch.counts
        return rng.choice(len(counts), n_samples, p=counts / counts.sum())

    def _coefficients(self, n_features):
        """Return how many coefficients of an image are taken along either side; None for all."""
        of_cosines = isinstance(self.encoder, str) and self.encoder in ("auto", "dct")
        if self.n_coefficients is not None or not of_cosines or self.image_shape is None:
            return self.n_coefficients
        ample = self.epsilon is None or self.epsilon >= _AMPLE
        height, width, _ = whole_shape(self.image_shape, n_features)
        return min(height, width, _FINE) if ample else None

    def _class_counts(self):
        """Return how many records of each class there are, about; None where none were counted."""
        return self._sketch.counts if hasattr(self, "_sketch") else None

    def _sketch_rows(self, n_rows, codes, rng):
        """Return records drawn from the sketch, from -1 to 1."""
        return self._sketch.rows(np.zeros(n_rows, dtype=np.intp) if codes is None else codes, rng)

    def _read_augment(self, encoder) -> dict[str, float] | None:
        """Return by how much sampled images are moved at random; None for not at all."""
        augment: Any = self.augment
        if augment is None or (augment == "auto" and self.encoder != "pose"):
            return None
        if not encoder.is_image:
            raise ValueError("augment moves images, and needs an image_shape.")
        if augment == "auto":
            return dict(USUAL_MOVES)
        given = dict(augment)
        if not are_moves(given):
            raise ValueError(
                "augment must be None, 'auto' or a dictionary of numbers of at least 0, by the "
                f"names {sorted(USUAL_MOVES)}; got {augment!r}."
            )
        return {name: float(given.get(name, 0.0)) for name in USUAL_MOVES}


def _read_shares(given):
    """Return the user's own parts of the budget, by group of releases."""
    given = {} if given is None else dict(given)
    if not set(given) <= set(SHARE_NAMES) or not all(is_size(x) and x > 0 for x in given.values()):
        raise ValueError(
            "budget_shares must be a dictionary of numbers above 0, by the names "
            f"{', '.join(SHARE_NAMES)}; got {given!r}."
        )
    return {name: float(share) for name, share in given.items()}
