"""The sketch of vectors and of images: its parameters, its release, and what was released."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, StrOptions, validate_parameters
from skdpot.generative._encoders import (
    Encoder,
    RecordSpace,
    encoder_from_header,
    make_encoder,
    make_rival,
)
from skdpot.generative._encoders.images import blocks
from skdpot.generative._encoders.pixels import IntensityMap
from skdpot.generative._fitted import FittedRecords
from skdpot.generative._network import NetworkTraining, Training
from skdpot.generative._records import (
    Declared,
    Points,
    ScaledRecords,
    read_points,
    unseen_points,
)
from skdpot.generative._sketch.class_rows import ClassRows
from skdpot.generative._sketch.file_parts import part_of, with_kinds, with_prefix
from skdpot.generative._sketch.held_out import (
    HeldOutRows,
    expected_report_error,
    held_out_plans,
    hold_out,
    n_held_out,
    read_held_out,
    release_held_out,
)
from skdpot.generative._sketch.mixture import NOISE, Mixture, MixturePlan, MixtureSketch
from skdpot.generative._sketch.moments import BALL, COUNTED
from skdpot.generative._sketch.plan import SketchBudget, SketchSeries, check_noise
from skdpot.generative._sketch.vector_plan import SHARE_NAMES, VectorPlan
from skdpot.generative._sketch.vector_summaries import (
    judged_vectors,
    summaries,
    summary_schema,
)
from skdpot.privacy.preview import ExpectedError
from skdpot.releases import RADIUS, SketchReleases
from skdpot.transport import nearest_distribution

# Bins of the histogram of intensities, and images whose intensities are compared with it.
_N_INTENSITIES = 20
_N_COMPARED = 2000
# A vote is clear if it is above zero by so many standard deviations of its noise.
_CLEAR = 3.0
# From this epsilon on a budget is ample for finer codes of images.
_AMPLE = 5.0
# Moves of images that are lengths, in parts of the height.
_LENGTHS = ("shift", "bend")
_MOVES = ("rotation", "scale", *_LENGTHS)
_MIXTURE_ARRAYS = tuple(field.name for field in fields(Mixture))
# In a file names begin like this.
_NOISE_PREFIX, _HELD_OUT_PREFIX = "noise.", "held_out."


class VectorSketch(BaseEstimator):
    """A sketch of vectors: sums over the codes of records, clustered by balanced transport.

    Parameters
    ----------
    encoder : str, encoder, transformer or pair of callables, default="auto"
        Public. How records become codes. ``"whiten-by-bounds"``, which is ``"auto"``, scales
        features by their bounds; ``"identity"`` keeps the units of the data. Your own encoder is
        an :class:`OwnEncoder`, or a transformer with an attribute `largest_norm`.
    n_clusters : int, default=None
        Number of clusters of a class. None chooses by the released number of records: as many as
        the noise allows, up to 30.
    budget_shares : dict, default=None
        Shares of the budget for the parts of the release, to change the defaults: ``"counts"``,
        ``"radii"``, ``"intensities"``, ``"means"``, ``"covariances"``, ``"assignments"``,
        ``"clusters"`` and ``"kernels"``. They are divided by their sum.
    quality_share : float, default=0.0
        Probability with which each record is held out of the sketch, independently, for
        :meth:`DPSinkhornGenerator.quality <skdpot.DPSinkhornGenerator.quality>`. The sketch has
        fewer records, but no budget is spent. At most 0.5.

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
        "quality_share": [Interval(Real, 0, 0.5, closed="both")],
    }

    def __init__(
        self, encoder="auto", *, n_clusters=None, budget_shares=None, quality_share=0.0
    ) -> None:
        self.encoder = encoder
        self.n_clusters = n_clusters
        self.budget_shares = budget_shares
        self.quality_share = quality_share

    _read = staticmethod(read_points)
    _unseen = staticmethod(unseen_points)

    def _check(self, declared: Declared) -> None:
        """Raise where parameters are wrong, or something is declared that this is not for."""
        validate_parameters(self)
        declared.refuse("VectorSketch", "image_shape", "schema", "target", "rules")

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
        rival = make_rival(self.encoder, space, ample=ample)
        plan = VectorPlan(
            n_classes=max(space.n_classes, 1),
            noise_multiplier=budget.noise_multiplier,
            n_clusters=self.n_clusters,
            budget_shares=_read_shares(self.budget_shares),
            n_pixels=space.n_features if encoder.counts_intensities else 0,
            is_voted=rival is not None,
        )
        candidates = [encoder] if rival is None else [encoder, rival]
        for candidate in candidates:
            plan.check(budget, candidate)
        if self.quality_share:
            check_noise(budget, *held_out_plans(summary_schema(space)))
        codings = tuple(Coding(candidate, self._moves(candidate)) for candidate in candidates)
        if training is not None:
            # Raises where there can be no such network.
            Training(training, space).new_network(0)
        share = float(self.quality_share)
        return VectorReleases(space, plan, budget, codings, progress, share)

    def _moves(self, encoder: Encoder) -> dict[str, float] | None:
        return None


class ImageSketch(VectorSketch):
    """A sketch of images: a sketch of their codes, from which images are drawn.

    Parameters
    ----------
    encoder : str, encoder, transformer or pair of callables, default="auto"
        Public. ``"dct"`` uses the lowest coefficients of an image's cosine transform. ``"pose"``,
        for bright strokes on a dark ground, first turns the image upright, and adds its pose to
        the coefficients. :class:`CosineEncoder` and :class:`PoseEncoder` are the same with
        parameters. Encoders of vectors work, too. ``"auto"`` is ``"dct"``, except for gray images
        of 16 x 16 pixels or more: these choose between ``"dct"`` and ``"pose"`` by a noisy vote,
        with a thousandth of the budget.
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
    quality_share : float, default=0.0
        As in :class:`VectorSketch`.

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
        self, encoder="auto", *, n_clusters=None, budget_shares=None, augment="auto",
        quality_share=0.0,
    ) -> None:  # fmt: skip
        super().__init__(
            encoder,
            n_clusters=n_clusters,
            budget_shares=budget_shares,
            quality_share=quality_share,
        )
        self.augment = augment

    def _check(self, declared: Declared) -> None:
        validate_parameters(self)
        declared.refuse("ImageSketch", "schema", "target", "rules")
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
                f"names {sorted(_MOVES)}; got {self.augment!r}."
            )
        return {name: float(self.augment.get(name, 0.0)) for name in _MOVES}


@dataclass(frozen=True)
class Coding:
    """An encoder, and by how much what is drawn of it is moved at random."""

    encoder: Encoder
    augment: Mapping[str, float] | None


@dataclass(frozen=True)
class VectorReleases(SketchSeries):
    """The releases of a sketch of vectors: public.

    Parameters
    ----------
    space : RecordSpace
        What records are declared to be.
    plan : VectorPlan
        Its releases.
    budget : SketchBudget
        Their noise.
    codings : tuple of Coding
        Of one encoder, prepared; or of two, and records vote on the second.
    progress : callable
        Makes a progress bar.
    quality_share : float
        The probability with which a record is held out.
    """

    space: RecordSpace
    plan: VectorPlan
    budget: SketchBudget
    codings: tuple[Coding, ...]
    progress: Callable[..., Any]
    quality_share: float

    label = "a sketch"

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the size and of the mean of a class.

        An answer that is made up is off by the size of a class, and by the radius of the ball that
        records are moved into. Where records vote, they are those of the worse encoder; a vote that
        is made up is off by all records.
        """
        n_sketched = n_records * (1 - self.quality_share)
        class_size = n_sketched / self.plan.n_classes
        deviations = []
        for coding in self.codings:
            releases, n_codes = self._releases(None), coding.encoder.n_codes
            self._divide(releases, self.plan.sizes(n_sketched, coding.encoder))
            count = releases.standard_deviation("counts", COUNTED)
            sum_noise = releases.standard_deviation("means", BALL) * math.sqrt(n_codes)
            deviations.append((count, sum_noise / RADIUS / class_size))
        count, mean = map(max, zip(*deviations, strict=True))
        errors = [
            ExpectedError("standard error of the number of records of a class", count, class_size),
            ExpectedError("error of the mean of a class, in radii of the records", mean, 1.0),
        ]
        if self.plan.is_voted:
            vote = self._releases(None).standard_deviation("vote", COUNTED)
            names = " or ".join(f'"{coding.encoder.name}"' for coding in self.codings)
            quantity = f"standard error of the vote of records on the encoder, {names}"
            errors.append(ExpectedError(quantity, vote, n_sketched))
        if self.quality_share:
            n_judges = n_records * self.quality_share
            report_error = expected_report_error(n_judges, summary_schema(self.space), self.budget)
            errors.append(report_error)
        return tuple(errors)

    def run(self, records: Points, source: Any) -> FittedRecords:
        """Release the sketch, and what records tell of it that are held out."""
        # Of numbers that depend on no record, not even on how many there are.
        rng = np.random.default_rng(source.bits(62, 2).tolist())
        if not self.quality_share:
            return FittedRecords(self.space, self._sketched(records, rng, source), None)
        points, labels = records.points, records.labels
        uses = hold_out(len(points), self.quality_share, source)
        sketched_rows = ScaledRecords(self.space, points.records[uses == 0])
        sketched = Points(self.space, sketched_rows, labels[uses == 0])
        sketch = self._sketched(sketched, rng, source)
        teachers, counted = (
            HeldOutRows(summaries(points[uses == use], labels[uses == use], self.space))
            for use in (1, 2)
        )
        judged = judged_vectors(self.space, sketch)
        held_out = release_held_out(teachers, counted, judged, self.budget, source)
        return FittedRecords(self.space, replace(sketch, held_out=held_out), None)

    def _sketched(self, records: Points, rng: Any, source: Any) -> "ReleasedVectors":
        """Release the sketch; where clusters are looked for at first depends on `rng`."""
        releases = self._releases(source)
        with self.progress(unit=" releases") as bar:
            size = float(releases.run("size", np.array(len(records.points)), COUNTED))
            bar.update()
            coding = self.codings[0]
            if self.plan.is_voted:
                coding = self._elected(records, releases)
                bar.update()
            encoder = coding.encoder
            sizes = self.plan.sizes(size, encoder)
            self._divide(releases, sizes)
            intensities = None
            if self.plan.n_pixels:
                intensities = self._intensities(records, releases)
                bar.update()
            # Of norms up to one, so that no square is out of range.
            codes = encoder.encode(records.points)
            codes /= encoder.largest_norm
            rows = [ClassRows(codes[records.labels == c]) for c in range(sizes.n_classes)]
            # As large as the copies of its parts.
            del codes
            sums = MixtureSketch(rows, sizes, releases, bar.update)
            mixture = sums.release(encoder.largest_norm, rng)
        return ReleasedVectors(encoder, mixture, intensities, coding.augment, sums.noise)

    def _elected(self, records: Points, releases: SketchReleases) -> Coding:
        """Return the usual encoder, or the other one if a vote is clearly for it.

        A record adds 1 or -1. What is clear is a function of the noise, which is public.
        """
        usual, rival = self.codings
        votes = np.array(rival.encoder.votes(records.points).sum())
        noisy = float(releases.run("vote", votes, COUNTED))
        deviation = releases.standard_deviation("vote", COUNTED)
        return rival if noisy > _CLEAR * deviation else usual

    def _releases(self, source: Any) -> SketchReleases:
        budget = self.budget
        stages = self.plan.stages
        return SketchReleases(budget.noise_multiplier, stages, budget.neighbouring, source)

    def _divide(self, releases: SketchReleases, sizes: MixturePlan) -> None:
        """Share out the budget, now that it is known how many records there are, about."""
        planned = self.plan.releases(sizes)
        releases.divide("sketch", {name: release.share for name, release in planned.items()})

    def _intensities(self, records: Points, releases: SketchReleases) -> np.ndarray:
        """Release the shares of the intensities of pixels, of all classes together.

        Those of every class would make maps of pixels that tell classes apart by themselves.
        """
        counts = intensity_counts(records.points)
        noisy = releases.run("intensities", counts, self.plan.intensity_sensitivity)
        return nearest_distribution(noisy / max(noisy.sum(), 1.0))


@dataclass(frozen=True)
class ReleasedVectors:
    """What was released of records, and how records are made of it.

    Parameters
    ----------
    encoder : Encoder
        Public.
    mixture : Mixture
        Of codes.
    intensities : ndarray of shape (20,) or None
        Shares of the intensities of the pixels of all records.
    augment : dict or None
        By how much images are moved at random.
    noise : mapping of str to ndarray, default=None
        Of `MixtureSketch`. Files of earlier versions have none.
    held_out : mapping of str to ndarray, default=None
        Of `release_held_out`, where records were held out.
    """

    encoder: Encoder
    mixture: Mixture
    intensities: np.ndarray | None
    augment: Mapping[str, float] | None
    noise: Mapping[str, np.ndarray] | None = None
    held_out: Mapping[str, np.ndarray] | None = None

    @property
    def counts(self) -> np.ndarray:
        """Return how many records each class has, about."""
        return self.mixture.counts

    @property
    def n_records(self) -> int:
        """Return about how many records were sketched."""
        return round(float(self.counts.sum()))

    @property
    def n_in_all(self) -> int:
        """Return about how many records there are, with those that were held out."""
        return self.n_records + n_held_out(self.held_out)

    @property
    def known_noise(self) -> Mapping[str, np.ndarray]:
        """Return what is known of the noise, or raise where it is not known any more."""
        if self.noise is None:
            raise ValueError(
                "the generator is of a file of an earlier version, which does not say how large "
                "the noise was: fit it again."
            )
        return self.noise

    def prototypes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of all clusters as records, from -1 to 1, and their classes."""
        means = self.mixture.means * self.mixture.unit
        n_classes, n_clusters, n_codes = means.shape
        labels = np.repeat(np.arange(n_classes), n_clusters)
        return self.encoder.decode(means.reshape(-1, n_codes).astype(np.float64)), labels

    def drawn_labels(self, n_samples: int, rng: Any) -> np.ndarray:
        """Return as many classes, in proportion to the records' own."""
        counts = self.counts
        return rng.choice(len(counts), n_samples, p=counts / counts.sum())

    def rows(self, labels: np.ndarray, rng: Any) -> np.ndarray:
        """Return records of these classes, from -1 to 1."""
        # Intensities need no more digits, and there may be many codes.
        drawn = self.mixture.draw(labels, rng, single=self.encoder.for_images)
        rows = self.encoder.sampled(drawn, rng, self._moves())
        if self._intensity_map is not None:
            for block in blocks(*rows.shape):
                rows[block] = 2 * self._intensity_map.of((rows[block] + 1) / 2) - 1
        return rows

    @cached_property
    def _intensity_map(self) -> IntensityMap | None:
        """Return the map to released intensities, the same whatever classes are drawn."""
        if self.intensities is None:
            return None
        # Of numbers that depend on no record, so that the map is that of the release.
        rng = np.random.default_rng(0)
        drawn = self.mixture.draw(self.drawn_labels(_N_COMPARED, rng), rng)
        rows = self.encoder.sampled(drawn, rng, self._moves())
        return IntensityMap((rows + 1) / 2, self.intensities)

    def _moves(self) -> dict[str, float] | None:
        """Return by how much images are moved, with lengths in pixels."""
        if self.augment is None or self.encoder.image_shape is None:
            return None
        height = self.encoder.image_shape[0]
        return {n: x * height if n in _LENGTHS else x for n, x in self.augment.items()}

    def to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return a header that JSON can hold, and arrays."""
        arrays = {name: getattr(self.mixture, name) for name in _MIXTURE_ARRAYS}
        if self.intensities is not None:
            arrays["intensities"] = self.intensities[None]
        arrays |= with_prefix(self.noise, _NOISE_PREFIX)
        arrays |= with_prefix(self.held_out, _HELD_OUT_PREFIX)
        augment = None if self.augment is None else dict(self.augment)
        return {"encoder": self.encoder.header(), "augment": augment}, arrays

    @classmethod
    def from_file(
        cls, header: Mapping[str, Any], arrays: dict[str, np.ndarray], space: RecordSpace, own: Any
    ) -> "ReleasedVectors":
        """Return the sketch of a file, or raise; `own` is the user's encoder, where it was one."""
        mixture = Mixture(**{name: arrays.pop(name) for name in _MIXTURE_ARRAYS})
        shares = arrays.pop("intensities", None)
        noise, held_out = (part_of(arrays, prefix) for prefix in (_NOISE_PREFIX, _HELD_OUT_PREFIX))
        encoder = encoder_from_header(header["encoder"], space, own)
        augment = header["augment"]
        n_classes = max(space.n_classes, 1)
        if (
            len(arrays) != len(noise) + len(held_out)
            or not mixture.is_sound(n_classes, encoder.n_codes)
            or not (not noise or _is_noise(noise, n_classes))
            or not (shares is None or _are_shares(shares, n_classes))
            or not (augment is None or (encoder.image_shape and are_moves(augment)))
        ):
            raise ValueError("the file does not hold a sketch.")
        if shares is not None:
            # Earlier versions released those of every class.
            several = len(shares) > 1
            shares = np.average(shares, axis=0, weights=mixture.counts) if several else shares[0]
        judged = read_held_out(summary_schema(space), held_out)
        return cls(encoder, mixture, shares, augment, noise or None, judged)


def _is_noise(noise: Mapping[str, np.ndarray], n_classes: int) -> bool:
    """Tell whether arrays of a file say how large the noise was, of each class."""
    typed = with_kinds(noise, dict.fromkeys(NOISE, np.float64))
    return noise.keys() == typed.keys() and all(
        part.shape == (n_classes,) and np.isfinite(part).all() and (part >= 0).all()
        for part in typed.values()
    )


def are_moves(augment: Any) -> bool:
    """Tell whether something says by how much images are moved."""
    return isinstance(augment, dict) and all(
        name in _MOVES and _is_size(size) for name, size in augment.items()
    )


def intensity_counts(points: Any) -> np.ndarray:
    """Return how many pixels are how bright; a record has as many as features."""
    counts = np.zeros(_N_INTENSITIES, dtype=np.int64)
    for rows in blocks(*points.shape):
        scaled = (points[rows] + 1) * (_N_INTENSITIES / 2)
        bins = np.minimum(scaled.astype(np.int64), _N_INTENSITIES - 1)
        counts += np.bincount(bins.ravel(), minlength=_N_INTENSITIES)
    return counts


def _is_size(value: Any) -> bool:
    """Tell whether something is a number from 0 on that is not too large."""
    return isinstance(value, Real) and 0 <= float(value) < 1e3


def _are_shares(intensities: np.ndarray, n_classes: int) -> bool:
    """Tell whether an array holds the shares of intensities, of all classes or of each."""
    return bool(
        intensities.shape in ((1, _N_INTENSITIES), (n_classes, _N_INTENSITIES))
        and (intensities >= 0).all()
        and np.allclose(intensities.sum(axis=1), 1)
    )


def _read_shares(shares: Any) -> dict[str, float]:
    """Return the user's own parts of the budget, by group of releases, or raise."""
    shares = {} if shares is None else dict(shares)
    if not (set(shares) <= set(SHARE_NAMES) and all(_is_size(x) and x for x in shares.values())):
        raise ValueError(
            "budget_shares must be a dictionary of numbers above 0, by the names "
            f"{', '.join(SHARE_NAMES)}; got {shares!r}."
        )
    return {name: float(share) for name, share in shares.items()}
