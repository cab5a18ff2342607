"""Reports on synthetic records: their content and their text."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from skdpot.privacy.report import Report, Section

# A model is reported not to fit if it is off by this share of all records more than noise explains,
# and noise explains less than half of the squared differences.
_LARGE_MISFIT, _LARGE_DISTANCE = 2.0, 0.01
# So many columns, pairs of columns or classes are shown, the worst: a report fits on a screen.
_MOST_SHOWN = 8


class Estimate(NamedTuple):
    """An estimate from noisy data, and its standard error; NaN if nothing is known."""

    value: float
    error: float

    def __str__(self) -> str:
        if not math.isfinite(self.value + self.error):
            return "unknown"
        return f"{self.value:.3f} +- {self.error:.3f}"


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
    """

    columns: tuple[Any, ...]
    noise: float
    distance: float
    misfit: float
    explained: float
    released: float | None
    modelled: float | None

    @property
    def fits(self) -> bool:
        """Tell whether noise explains most of the difference of the model and the counts."""
        explained = max(self.explained, _LARGE_MISFIT)
        return self.misfit <= explained or self.distance <= self.noise + _LARGE_DISTANCE


@dataclass(frozen=True)
class ParityFit:
    """How far a model is from the parities of three and more columns that were released.

    Attributes
    ----------
    n_parities : int
        How many were released, of all classes, of columns that have two halves.
    misfit : float
        The mean squared difference in units of noise and chance: about 1 if these explain it.
    columns : tuple
        Those whose parity is farthest off.
    distance, noise : float
        By how many units it is, and how many noise and chance explain of so many parities.
    """

    n_parities: int
    misfit: float
    columns: tuple[Any, ...]
    distance: float
    noise: float

    def __str__(self) -> str:
        verdict = "noise explains all" if self.distance <= self.noise else "the model does not fit"
        return (
            f"{self.n_parities} parities of halves of columns; squared difference of the model in "
            f"units of noise: {self.misfit:.2f} on average. Farthest off: "
            f"{' x '.join(map(str, self.columns))}, by {self.distance:.1f} units, of which noise "
            f"explains {self.noise:.1f}: {verdict}."
        )


@dataclass(frozen=True)
class SketchedClass:
    """The information that noise leaves of a class of vectors or images.

    Attributes
    ----------
    label : object
        The label; None without any.
    n_records : Estimate
        How many records were sketched.
    mean_error : float
        The length that noise alone makes in the mean, in units of the spread of the class.
    directions : int
        Number of directions along which the variance within clusters exceeds the noise.
    n_codes : int
        Of so many.
    seen : float
        The share of the variance along these directions.
    clusters : list of float
        The shares of clusters, the largest first.
    radius : float
        The radius to which records are clipped, around a common point, in units of the spread of
        the class.
    """

    label: Any
    n_records: Estimate
    mean_error: float
    directions: int
    n_codes: int
    seen: float
    clusters: list[float]
    radius: float

    @property
    def is_seen(self) -> bool:
        """Tell whether the mean of the class, and the size, are more than noise."""
        return self.mean_error < 1 and self.n_records.value > 2 * self.n_records.error


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
    parities : ParityFit or None
        Fit to the released parities; None without any.
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
    parities: ParityFit | None = None
    classes: list[SketchedClass] = field(default_factory=list)
    counted: str = "records"
    encoder: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as what JSON can hold; what cannot be told is None."""
        fits = [
            [{**asdict(fit), "columns": list(fit.columns), "fits": fit.fits} for fit in tables]
            for tables in (self.columns, self.pairs)
        ]
        plain = {
            "n_records": self.n_records, "guarantee": self.guarantee, "columns": fits[0],
            "pairs": fits[1], "counted": self.counted,
            "parities": self.parities and vars(self.parities),
            "classes": [{**vars(one), "is_seen": one.is_seen} for one in self.classes],
            "encoder": self.encoder,
        }  # fmt: skip
        return _plain(plain)

    _for_json = to_dict

    def _sections(self) -> Iterator[Section]:
        verdict = _verdict_on_classes(self.classes) if self.classes else self._verdict_on_fits()
        about = f"About {self.n_records:,} {self.counted}. Guarantee: {self.guarantee}."
        records = "synthetic records" if self.classes else "a synthetic table"
        yield Section(f"Quality of {records}", [about, verdict])
        if self.classes:
            table = _table_of_classes(self.classes[:_MOST_SHOWN])
            paragraphs = [f"Encoder: {self.encoder}.", _ABOUT_CLASSES]
            yield Section(_titled("Classes", self.classes), paragraphs, table)
        if self.columns:
            yield Section(_titled("Columns", self.columns), [_ABOUT_FITS], _table(self.columns))
        if self.pairs:
            yield Section(_titled("Pairs of columns", self.pairs), [], _table(self.pairs))
        if self.parities is not None:
            yield Section("Three columns and more", [str(self.parities)])

    def _verdict_on_fits(self) -> str:
        wrong = [fit for fit in (*self.columns, *self.pairs) if not fit.fits]
        if not wrong:
            return "Noise explains the differences of the model from the released counts."
        tables = ", ".join(" x ".join(map(str, fit.columns)) for fit in wrong[:_MOST_SHOWN])
        return (
            f"THE MODEL DOES NOT FIT {len(wrong)} of {len(self.columns) + len(self.pairs)} "
            f"tables of counts by more than noise explains: {tables}."
        )


_ABOUT_FITS = (
    "The distance of the model from the released counts, in total variation; what noise alone "
    "makes of it; the squared difference in units of the noise; and the association of two columns "
    "(of one, with the target) by the counts and by the model, as a distance from independence."
)


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.3f}"


def _titled(what: str, parts: Sequence[Any]) -> str:
    """Return a title that says how many are shown."""
    shown = min(len(parts), _MOST_SHOWN)
    return f"{what}, worst first" + (f": {shown} of {len(parts)}" if shown < len(parts) else "")


def _table(fits: Sequence[Fit]) -> list[list[str]]:
    rows = [
        [" x ".join(map(str, fit.columns)), f"{fit.distance:.3f}", f"{fit.noise:.3f}",
         f"{fit.misfit:.2f}", _share(fit.released), _share(fit.modelled),
         "" if fit.fits else "does not fit"]
        for fit in fits[:_MOST_SHOWN]
    ]  # fmt: skip
    head = ["", "distance", "of noise", "misfit", "association", "in the model", ""]
    return [head, *rows]


_ABOUT_CLASSES = (
    "Errors of means, and radii that records are clipped to, are in units of the spread of the "
    "class. Noise hides the variance along other directions."
)


def _verdict_on_classes(classes: Sequence[SketchedClass]) -> str:
    hidden = [one for one in classes if not one.is_seen]
    if not hidden:
        return "The means and sizes of all classes are above the noise."
    labels = ", ".join(str(one.label) for one in hidden[:_MOST_SHOWN])
    return f"NOISE HIDES the mean or the size of {len(hidden)} of {len(classes)} classes: {labels}."


def _table_of_classes(classes: Sequence[SketchedClass]) -> list[list[str]]:
    rows = [
        ["" if one.label is None else str(one.label),
         f"{one.n_records.value:,.0f} +- {one.n_records.error:,.0f}", f"{one.mean_error:.3f}",
         f"{one.directions} of {one.n_codes}", f"{one.seen:.2f}",
         f"{len(one.clusters)} ({one.clusters[-1]:.3f} to {one.clusters[0]:.3f})",
         f"{one.radius:.2f}"]
        for one in classes
    ]  # fmt: skip
    head = ["class", "records", "error of mean", "directions seen", "of variance",
            "clusters (shares)", "radius"]  # fmt: skip
    return [head, *rows]


def _plain(value: Any) -> Any:
    """Return what JSON can hold: None for numbers that are not finite."""
    if isinstance(value, Estimate):
        return {"value": _plain(value.value), "error": _plain(value.error)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
