"""The parameters of the sketches of vectors and of images."""

from collections.abc import Callable
from numbers import Integral
from typing import Any

from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, StrOptions, validate_parameters
from skdpot.generative._encoders import Encoder, RecordSpace, make_encoder
from skdpot.generative._network import NetworkTraining, Training
from skdpot.generative._records import Declared, read_points, unseen_points
from skdpot.generative._sketch.plan import SketchBudget
from skdpot.generative._sketch.released_vectors import MOVES, are_moves, is_size
from skdpot.generative._sketch.vector_plan import SHARE_NAMES, VectorPlan
from skdpot.generative._sketch.vector_releases import VectorReleases

# From this epsilon on, a budget suffices for finer codes of images.
_AMPLE = 5.0


class VectorSketch(BaseEstimator):
    """A sketch of vectors: sums over the codes of records, clustered by balanced transport.

    Parameters
    ----------
    encoder : str or encoder, default="auto"
        Public. How records become codes. ``"whiten-by-bounds"``, which is ``"auto"``, scales
        features by their bounds; ``"identity"`` keeps the units of the data.
    n_clusters : int, default=None
        Number of clusters of a class. None chooses by the released number of records: as many as
        the noise allows, up to 30.
    budget_shares : dict, default=None
        Shares of the budget for the parts of the release, to change the defaults: ``"counts"``,
        ``"radii"``, ``"intensities"``, ``"means"``, ``"covariances"``, ``"assignments"``,
        ``"clusters"`` and ``"kernels"``. They are divided by their sum.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator, which takes it as `model`.
    ImageSketch : For images.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import VectorSketch
    >>> generator = DPSinkhornGenerator(bounds=(0, 1), model=VectorSketch(n_clusters=5))
    >>> generator.set_params(model__n_clusters=8).model
    VectorSketch(n_clusters=8)
    """

    _parameter_constraints: dict = {
        "encoder": "no_validation",
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "budget_shares": [dict, None],
    }

    def __init__(self, encoder="auto", *, n_clusters=None, budget_shares=None) -> None:
        self.encoder = encoder
        self.n_clusters = n_clusters
        self.budget_shares = budget_shares

    _read = staticmethod(read_points)
    _unseen = staticmethod(unseen_points)

    def _check(self, declared: Declared) -> None:
        """Raise where parameters are wrong, or something is declared that this is not for."""
        validate_parameters(self)
        declared.refuse("VectorSketch", "image_shape", "schema", "target", "rules", "computed")

    def _plan(
        self,
        space: RecordSpace,
        budget: SketchBudget,
        training: NetworkTraining | None,
        progress: Callable[..., Any],
    ) -> "VectorReleases":
        """Return the release, or raise; no record is looked at."""
        ample = budget.epsilon is None or budget.epsilon >= _AMPLE
        encoder = make_encoder(self.encoder, space, ample=ample)
        plan = VectorPlan(
            n_classes=max(space.n_classes, 1),
            noise_multiplier=budget.noise_multiplier,
            n_clusters=self.n_clusters,
            budget_shares=_read_shares(self.budget_shares),
            n_pixels=space.n_features if encoder.counts_intensities else 0,
        )
        plan.check(budget, encoder)
        augment = self._moves(encoder)
        if training is not None:
            # Raises where there can be no such network.
            Training(training, space).new_network(0)
        return VectorReleases(space, plan, budget, encoder, augment, progress)

    def _moves(self, encoder: Encoder) -> dict[str, float] | None:
        return None


class ImageSketch(VectorSketch):
    """A sketch of images: a sketch of their codes, from which images are drawn.

    Parameters
    ----------
    encoder : str or encoder, default="auto"
        Public. ``"dct"``, which is ``"auto"``, uses the lowest coefficients of an image's cosine
        transform. ``"pose"``, for bright strokes on a dark ground, first turns the image upright,
        and adds its pose to the coefficients: see :ref:`images-encoder`. :class:`CosineEncoder` and
        :class:`PoseEncoder` are the same with parameters. Encoders of vectors work, too.
    n_clusters : int, default=None
        As in :class:`VectorSketch`.
    budget_shares : dict, default=None
        As in :class:`VectorSketch`.
    augment : dict, "auto" or None, default="auto"
        Random changes of sampled images, as standard deviations: ``"rotation"`` in radians,
        ``"scale"`` of the logarithm of a factor, and ``"shift"`` and ``"bend"`` in units of the
        height. If it is publicly known that such changes do not affect the label, models learn
        better from changed images. ``"auto"`` changes images with ``encoder="pose"`` a little, and
        no others.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator, which takes it as `model`.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import ImageSketch
    >>> generator = DPSinkhornGenerator(image_shape=(28, 28), model=ImageSketch("pose"))
    """

    _parameter_constraints: dict = {
        **VectorSketch._parameter_constraints,
        "augment": [dict, StrOptions({"auto"}), None],
    }

    def __init__(
        self, encoder="auto", *, n_clusters=None, budget_shares=None, augment="auto"
    ) -> None:
        super().__init__(encoder, n_clusters=n_clusters, budget_shares=budget_shares)
        self.augment = augment

    def _check(self, declared: Declared) -> None:
        validate_parameters(self)
        declared.refuse("ImageSketch", "schema", "target", "rules", "computed")
        if declared.image_shape is None:
            raise ValueError("ImageSketch is for images, and needs an image_shape.")

    def _moves(self, encoder: Encoder) -> dict[str, float] | None:
        if self.augment == "auto":
            return None if encoder.usual_moves is None else dict(encoder.usual_moves)
        if self.augment is None:
            return None
        if not are_moves(self.augment):
            raise ValueError(
                "augment must be None, 'auto' or a dictionary of numbers of at least 0, by the "
                f"names {sorted(MOVES)}; got {self.augment!r}."
            )
        return {name: float(self.augment.get(name, 0.0)) for name in MOVES}


def _read_shares(shares: Any) -> dict[str, float]:
    """Return the user's own parts of the budget, by group of releases, or raise."""
    shares = {} if shares is None else dict(shares)
    if not (set(shares) <= set(SHARE_NAMES) and all(is_size(x) and x for x in shares.values())):
        raise ValueError(
            "budget_shares must be a dictionary of numbers above 0, by the names "
            f"{', '.join(SHARE_NAMES)}; got {shares!r}."
        )
    return {name: float(share) for name, share in shares.items()}
