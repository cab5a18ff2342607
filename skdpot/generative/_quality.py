"""The quality of synthetic records, from the release alone: noise, misfits, associations."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.stats import chi2

from skdpot.generative._draws import ReleasedTable, sample_codes
from skdpot.generative._mixture import pair_counts
from skdpot.generative._records import FittedRecords
from skdpot.privacy.charging import PrivacyGuarantee
from skdpot.privacy.report import Report, Section

# Only this number of the worst columns, pairs or classes is shown: a report fits on a screen.
_MOST_SHOWN = 8


@dataclass(frozen=True)
class Fit:
    """How far a model is from the counts that it was fitted to.

    Attributes
    ----------
    columns : tuple
        One column, or two.
    noise : float
        The expected distance in total variation from noise alone.
    distance : float
        That of the model from the counts.
    misfit : float
        The mean squared difference in units of the noise: about 1, or below, if noise explains it.
    explained : float
        The misfit that noise alone exceeds for any table, in one of a hundred reports. It is larger
        for tables of few counts.
    released, modelled : float or None
        How strong the association of both columns is, by the counts and by the model: the distance
        from independence in total variation. For one column, its association with the target;
        None without a target.
    fits : bool
        Whether noise explains most of the difference of the model and the counts.
    """

    columns: tuple[Any, ...]
    noise: float
    distance: float
    misfit: float
    explained: float
    released: float | None
    modelled: float | None
    fits: bool

    @property
    def cells(self) -> list[str]:
        """Return a row of the table of a report."""
        numbers = f"{self.distance:.3f}", f"{self.noise:.3f}", f"{self.misfit:.2f}"
        found = self.released, self.modelled
        associations = ["" if share is None else f"{share:.3f}" for share in found]
        verdict = "" if self.fits else "does not fit"
        return [" x ".join(map(str, self.columns)), *numbers, *associations, verdict]


@dataclass(frozen=True)
class SketchedClass:
    """The information that noise leaves of a class of vectors or images.

    Attributes
    ----------
    label : object
        The label; None without any.
    n_records, n_records_error : float
        An estimate of how many records were sketched, and its standard error.
    mean_error : float
        The length that noise alone makes in the mean, in units of the spread of the class.
    directions : int
        Number of directions along which the variance within clusters exceeds the noise.
    n_codes : int
        Number of directions in total.
    seen : float
        The share of the variance along these directions.
    clusters : list of float
        The shares of clusters, the largest first.
    radius : float
        The radius to which records are clipped, around a common point, in units of the spread of
        the class.
    is_seen : bool
        Whether the mean of the class, and the size, are more than noise.
    """

    label: Any
    n_records: float
    n_records_error: float
    mean_error: float
    directions: int
    n_codes: int
    seen: float
    clusters: list[float]
    radius: float
    is_seen: bool

    @property
    def cells(self) -> list[str]:
        """Return a row of the table of a report."""
        label = "" if self.label is None else str(self.label)
        records = f"{self.n_records:,.0f} +- {self.n_records_error:,.0f}"
        directions = f"{self.directions} of {self.n_codes}"
        shares = f"{len(self.clusters)} ({self.clusters[-1]:.3f} to {self.clusters[0]:.3f})"
        numbers = directions, f"{self.seen:.2f}", shares, f"{self.radius:.2f}"
        return [label, records, f"{self.mean_error:.3f}", *numbers]


@dataclass(frozen=True)
class QualityReport(Report):
    """A report on synthetic records, at no cost: ``print`` it, or `save` it.

    It is computed from the release only, so you may publish it.

    Attributes
    ----------
    n_records : int
        Estimated number of records.
    guarantee : str
        The guarantee.
    columns, pairs : list of Fit
        Fits to the counts of single columns of a table, and of pairs, the worst first.
    classes : list of SketchedClass
        For vectors and images, one entry per class, that with the largest error first.
    counted : str
        The unit of `n_records`: records, or people with several rows.
    encoder : str or None
        For vectors and images, the encoder.
    """

    n_records: int
    guarantee: str
    columns: list[Fit]
    pairs: list[Fit]
    classes: list[SketchedClass] = field(default_factory=list)
    counted: str = "records"
    encoder: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as what JSON can hold; what cannot be told is None."""
        return _plain(asdict(self))

    _for_json = to_dict

    def _sections(self) -> Iterator[Section]:
        verdict = _verdict_on_classes(self.classes) if self.classes else self._verdict_on_fits()
        about = f"About {self.n_records:,} {self.counted}. Guarantee: {self.guarantee}."
        records = "synthetic records" if self.classes else "a synthetic table"
        yield f"Quality of {records}", [about, verdict], ()
        if self.classes:
            about_classes = (
                "Errors of means, and radii that records are clipped to, are in units of the "
                "spread of the class. Noise hides the variance along other directions."
            )
            head = ["class", "records", "error of mean", "directions seen", "of variance"]
            head += ["clusters (shares)", "radius"]
            paragraphs = [f"Encoder: {self.encoder}.", about_classes]
            yield _section("Classes", paragraphs, head, self.classes)
        head = ["", "distance", "of noise", "misfit", "association", "in the model", ""]
        if self.columns:
            about_fits = (
                "The distance of the model from the released counts, in total variation; what "
                "noise alone makes of it; the squared difference in units of the noise; and the "
                "association of two columns (of one, with the target) by the counts and by the "
                "model, as a distance from independence."
            )
            yield _section("Columns", [about_fits], head, self.columns)
        if self.pairs:
            yield _section("Pairs of columns", [], head, self.pairs)

    def _verdict_on_fits(self) -> str:
        wrong = [fit for fit in (*self.columns, *self.pairs) if not fit.fits]
        if not wrong:
            return "Noise explains the differences of the model from the released counts."
        tables = ", ".join(" x ".join(map(str, fit.columns)) for fit in wrong[:_MOST_SHOWN])
        return (
            f"THE MODEL DOES NOT FIT {len(wrong)} of {len(self.columns) + len(self.pairs)} "
            f"tables of counts by more than noise explains: {tables}."
        )


def _section(what, paragraphs, head, parts):
    """Return a section whose title says how many parts are shown."""
    shown = [part.cells for part in parts[:_MOST_SHOWN]]
    some = f": {len(shown)} of {len(parts)}" if len(shown) < len(parts) else ""
    return f"{what}, worst first{some}", paragraphs, [head, *shown]


def _verdict_on_classes(classes: Sequence[SketchedClass]) -> str:
    hidden = [one for one in classes if not one.is_seen]
    if not hidden:
        return "The means and sizes of all classes are above the noise."
    labels = ", ".join(str(one.label) for one in hidden[:_MOST_SHOWN])
    return f"NOISE HIDES the mean or the size of {len(hidden)} of {len(classes)} classes: {labels}."


def _plain(value: Any) -> Any:
    """Return what JSON can hold: None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # JSON has neither NaN nor infinity.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def quality_of(
    fitted: ReleasedTable | FittedRecords, guarantee: PrivacyGuarantee | None
) -> QualityReport:
    """Return the report on a fitted model; that costs nothing.

    Parameters
    ----------
    fitted : ReleasedTable or FittedRecords
        The fitted model, with its release.
    guarantee : PrivacyGuarantee or None
        The guarantee.

    Returns
    -------
    QualityReport
        A function of both.

    Raises
    ------
    ValueError
        If the release is no longer known.
    """
    stated = "none" if guarantee is None else str(guarantee)
    if isinstance(fitted, ReleasedTable):
        columns, pairs = _count_fits(fitted)
        counted = "records" if fitted.space.user is None else "people"
        return QualityReport(fitted.n_records, stated, columns, pairs, counted=counted)
    classes, sketch = _sketched_classes(fitted), fitted.sketch
    return QualityReport(
        sketch.n_records, stated, [], [], classes=classes, encoder=sketch.encoder.name
    )


def _count_fits(table: ReleasedTable) -> tuple[list[Fit], list[Fit]]:
    """Return how drawn rows fit the counts of columns, and of pairs of them, the worst first."""
    released, schema, n_classes = table.statistics, table.space.schema, table.space.schema.n_classes
    ends = np.cumsum(released["n_cells"])[:-1]
    parts = (np.split(released[name], ends) for name in ("counts", "groups", "stops"))
    # Strong pairs are in rows alone, and not in components.
    n_rows = int(np.clip(table.n_records, 2**16, 2**18))
    codes = sample_codes(table.model, schema, n_rows, np.random.RandomState(0), evenly=True)
    classes = 0 if schema.target is None else schema.classes_of(codes[:, schema.target])
    n_records, n_tables = max(float(table.n_records), 1.0), math.comb(len(schema.features) + 1, 2)

    def fit(names: tuple[Any, ...], counts: np.ndarray, groups: np.ndarray, noise: float) -> Fit:
        drawn = np.bincount(groups * n_classes + classes, minlength=counts.size)
        return _fit_of(names, counts, drawn.reshape(counts.shape), noise, n_records, n_tables)

    columns, pairs, grouped = [], [], []
    for j, counts, group, stops in zip(schema.features, *parts, strict=True):
        cells = np.searchsorted(stops, codes[:, j], side="right")
        columns.append(fit((schema.names[j],), counts, cells, released["deviations"][0]))
        grouped.append((schema.names[j], group[cells], group.max() + 1))
    tables = pair_counts(released["pairs"], [size for *_, size in grouped], n_classes)
    for (i, j), pair in tables.items():
        (a, of_a, _), (b, of_b, n_b) = grouped[i], grouped[j]
        counts = np.moveaxis(pair, 0, -1)
        pairs.append(fit((a, b), counts, of_a * n_b + of_b, released["deviations"][1]))
    return _worst_first(columns), _worst_first(pairs)


def _worst_first(fits: list[Fit]) -> list[Fit]:
    return sorted(fits, key=lambda fit: fit.noise - fit.distance)


def _associations(counts, shares, deviation, n):
    """Return the association of two variables, by released counts and by the model.

    It is the distance from independence in total variation. Independence is the product of the
    margins of the model. The part of the squared distance that noise and sampling make is
    subtracted.
    """
    # The margins of the model have less noise than those of the counts.
    independent = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    modelled = shares - independent
    released = counts / n - independent
    # A sum of squares has the squares of noise and of sampling errors in it, which would look like
    # an association.
    squares = float(np.sum(released**2))
    chance = (counts.size * deviation**2 + n) / n**2
    kept = math.sqrt(max(1 - chance / squares, 0.0)) if squares else 0.0
    seen = min(kept * float(np.abs(released).sum()) / 2, 1.0)
    return seen, float(np.abs(modelled).sum()) / 2


def _fit_of(columns, counts, drawn, deviation, n, n_tables):
    """Return how drawn rows fit counts of one column or two, whose last axis has the classes."""
    shares, n_classes = drawn / drawn.sum(), counts.shape[-1]
    differences, by_chance = counts - n * shares, n**2 * shares / drawn.sum()
    # One record more or less is as little noise as matters.
    misfit = float(np.mean(differences**2 / (max(float(deviation), 1.0) ** 2 + by_chance)))
    distance = min(float(np.abs(differences).sum() / (2 * n)), 1.0)
    noise = math.sqrt(2 / math.pi) * float(np.sqrt(deviation**2 + by_chance).sum()) / (2 * n)
    noise = min(noise, 1.0)
    associations: tuple[float | None, float | None] = None, None
    if len(columns) == 2:
        # Of the sum over classes, each of which has noise of its own.
        in_all = counts.sum(axis=2), shares.sum(axis=2)
        associations = _associations(*in_all, deviation * math.sqrt(n_classes), n)
    elif n_classes > 1:
        associations = _associations(counts, shares, deviation, n)
    # Probability that noise alone moves a table farther than the stated limit.
    false_alarm = 0.01
    explained = float(chi2.isf(false_alarm / n_tables, counts.size)) / counts.size
    # A model is reported not to fit if it is off by this share of all records more than noise
    # explains, and noise explains less than half of the squared differences.
    large_misfit, large_distance = 2.0, 0.01
    fits = misfit <= max(explained, large_misfit) or distance <= noise + large_distance
    return Fit(columns, noise, distance, misfit, explained, *associations, fits)


def _sketched_classes(fitted: FittedRecords) -> list[SketchedClass]:
    """Return the information that noise leaves of every class."""
    noise, mixture = fitted.sketch.noise, fitted.sketch.mixture
    n_classes, n_clusters, n_codes = mixture.means.shape
    declared = fitted.space.classes
    labels = [None] * n_classes if declared is None else declared.tolist()
    found = []
    tiny = 1e-300
    for c, label in enumerate(labels):
        # In a fixed memory order, so a loaded file gives the same report to the last bit.
        means = mixture.means[c].astype(np.float64, order="C")
        factor = mixture.factors[c % len(mixture.factors)].astype(np.float64, order="C")
        weights, variances = mixture.weights[c], np.square(factor).sum(axis=1)
        between = weights @ np.square(means - weights @ means).sum(axis=1)
        spread = math.sqrt(max(float(variances.sum() + between), tiny))
        # About the largest eigenvalue of noise alone, which is half as large off the diagonal.
        seen = variances > noise["variance"][c] * math.sqrt(2 * n_codes)
        size, error, radius = float(mixture.counts[c]), float(noise["size"][c]), noise["radius"][c]
        mean_error = float(noise["mean"][c]) * math.sqrt(n_codes) / spread
        share = float(variances[seen].sum() / max(float(variances.sum()), tiny))
        directions = int(seen.sum()), n_codes, share
        clusters = sorted(weights.tolist(), reverse=True), float(radius) / spread
        is_seen = mean_error < 1 and size > 2 * error
        found.append(SketchedClass(label, size, error, mean_error, *directions, *clusters, is_seen))
    return sorted(found, key=lambda one: -one.mean_error)
