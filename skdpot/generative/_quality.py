"""The report on what was fitted: what noise did to it, and what records say that were held out."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from skdpot.generative._fitted import FittedRecords
from skdpot.generative._sketch.held_out import counted_size
from skdpot.generative._sketch.parities import mixture_parities, scanned_subsets
from skdpot.generative._sketch.people_sketch import ReleasedPeople
from skdpot.generative._sketch.table_sketch import ReleasedTable
from skdpot.generative._sketch.vector_summaries import summary_schema
from skdpot.tables import TableSchema

# A model is said not to fit where it is off by so much of all records more than noise explains,
# and noise explains less than half of the squared differences.
_LARGE_MISFIT, _LARGE_DISTANCE = 2.0, 0.01
# Noise alone has this chance to leave a parity farther off than is said to be explained.
_FALSE_ALARM = 0.01
# So many pairs of columns are shown: those that are farthest off.
_MOST_SHOWN = 10
_TINY = 1e-300
_STYLE = (
    "body{font-family:sans-serif;max-width:60em;margin:2em auto}"
    "td,th{text-align:left;padding:.1em .8em .1em 0;vertical-align:top}"
)


class Estimate(NamedTuple):
    """What was estimated with noise, and its standard error; NaN where nothing can be told."""

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
        One column, two, or more that a workload has.
    noise : float
        The distance in total variation that noise alone is expected to make.
    distance : float
        That of the model from the counts.
    misfit : float
        The mean squared difference in units of the noise: about 1, or below, if noise explains it.
    """

    columns: tuple[Any, ...]
    noise: float
    distance: float
    misfit: float

    @property
    def fits(self) -> bool:
        """Tell whether noise explains most of what the model and the counts differ by."""
        return self.misfit <= _LARGE_MISFIT or self.distance <= self.noise + _LARGE_DISTANCE


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
    """What noise left of a class of vectors or images.

    Attributes
    ----------
    label : object
        The label; None without any.
    n_records : Estimate
        How many records were sketched.
    mean_error : float
        The length that noise alone makes in the mean, in units of the spread of the class.
    directions : int
        Along so many directions the variance within clusters is above what noise makes.
    n_codes : int
        Of so many.
    seen : float
        What part of the variance these directions have.
    clusters : list of float
        The shares of clusters, the largest first.
    radius : float
        What records are clipped to, around a common point, in units of the spread of the class.
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
class HeldOut:
    """What records say that were held out.

    Attributes
    ----------
    n_records : Estimate
        How many of them were counted.
    columns : dict of str or int to Estimate
        By column, or by public summary of vectors and images, the distance of the records from
        samples, in total variation.
    telling : Estimate
        The AUC by which a classifier tells records from samples; 1/2 if it does not.
    target : str or int or None
        What is predicted: of numbers, in which band they are.
    accuracy, auc : Estimate or None
        Of a model that learned from samples, on records; the AUC only of two classes.
    accuracy_of_samples, auc_of_samples : float or None
        Of the same model on further samples.
    """

    n_records: Estimate
    columns: dict[Any, Estimate]
    telling: Estimate
    target: Any = None
    accuracy: Estimate | None = None
    auc: Estimate | None = None
    accuracy_of_samples: float | None = None
    auc_of_samples: float | None = None


@dataclass(frozen=True)
class QualityReport:
    """A report on synthetic records, at no cost: ``print`` it, or `save` it.

    It is computed from the release only, so you may publish it.

    Attributes
    ----------
    n_records : int
        Estimated number of records.
    guarantee : str
        The guarantee.
    columns, pairs : list of Fit
        Fits to the counts of single columns of a table, and of pairs (and tuples of a workload).
    held_out : HeldOut or None
        Comparison with held-out records; None if no records were held out.
    parities : ParityFit or None
        Fit to the released parities; None if there are none.
    classes : list of SketchedClass
        For vectors and images, one entry per class.

    counted : str
        What `n_records` counts: records, or people with several rows.
    encoder : str or None
        For vectors and images, the encoder; if records voted, the chosen one.
    """

    n_records: int
    guarantee: str
    columns: list[Fit]
    pairs: list[Fit]
    held_out: HeldOut | None
    parities: ParityFit | None = None
    classes: list[SketchedClass] = field(default_factory=list)
    counted: str = "records"
    encoder: str | None = None

    def __str__(self) -> str:
        lines: list[str] = []
        for section in self._sections():
            lines += [section.title, "-" * len(section.title), *section.said]
            widths = [max(map(len, cells)) for cells in zip(*section.table, strict=True)]
            lines += [
                "  ".join(
                    cell.ljust(width) for cell, width in zip(row, widths, strict=True)
                ).rstrip()
                for row in section.table
            ]
            lines.append("")
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        return "".join(_as_html(section) for section in self._sections())

    def to_html(self) -> str:
        """Return the report as a page."""
        return (
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>"
            f"{self._title}</title><style>{_STYLE}</style></head><body>{self._repr_html_()}"
            "</body></html>\n"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as what JSON can hold; what cannot be told is None."""
        fits = [
            [{**asdict(fit), "columns": list(fit.columns), "fits": fit.fits} for fit in of]
            for of in (self.columns, self.pairs)
        ]
        held_out = None
        if self.held_out is not None:
            held_out = {**vars(self.held_out), "columns": list(self.held_out.columns.items())}
        plain = {
            "n_records": self.n_records, "guarantee": self.guarantee, "columns": fits[0],
            "pairs": fits[1], "held_out": held_out, "counted": self.counted,
            "parities": self.parities and vars(self.parities),
            "classes": [{**vars(of), "is_seen": of.is_seen} for of in self.classes],
            "encoder": self.encoder,
        }  # fmt: skip
        return _plain(plain)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file that ends with .txt, .html or .json."""
        path = Path(path)
        written = {
            ".txt": lambda: f"{self}\n",
            ".html": self.to_html,
            ".json": lambda: json.dumps(self.to_dict(), indent=1, allow_nan=False),
        }
        if path.suffix not in written:
            raise ValueError(f"a report ends with .txt, .html or .json, got {path.name!r}.")
        path.write_text(written[path.suffix](), encoding="utf-8")

    @property
    def _title(self) -> str:
        return f"Quality of {'synthetic records' if self.classes else 'a synthetic table'}"

    def _sections(self) -> Iterator["_Section"]:
        verdict = _said_of_noise(self.classes) if self.classes else self._said_of_fits()
        about = f"About {self.n_records:,} {self.counted}. Guarantee: {self.guarantee}."
        yield _Section(self._title, [about, verdict])
        if self.classes:
            table = _table_of_classes(self.classes)
            said = [f"Encoder: {self.encoder}.", _ABOUT_CLASSES]
            yield _Section("Classes, from the release alone", said, table)
        if self.columns:
            yield _Section("Columns, from the release alone", [_ABOUT_FITS], _table(self.columns))
        if self.pairs:
            shown = sorted(self.pairs, key=lambda fit: fit.noise - fit.distance)[:_MOST_SHOWN]
            note = f"{len(shown)} of {len(self.pairs)}, the farthest off first."
            yield _Section("Pairs of columns, from the release alone", [note], _table(shown))
        if self.parities is not None:
            title = "Three columns and more, from the release alone"
            yield _Section(title, [str(self.parities)])
        if self.held_out is not None:
            yield from _said_of_held_out(self.held_out, self.counted, farthest=bool(self.classes))

    def _said_of_fits(self) -> str:
        wrong = [fit for fit in (*self.columns, *self.pairs) if not fit.fits]
        if not wrong:
            return "Noise explains what the model and the released counts differ by."
        said = ", ".join(" x ".join(map(str, fit.columns)) for fit in wrong[:_MOST_SHOWN])
        return (
            f"THE MODEL DOES NOT FIT {len(wrong)} of {len(self.columns) + len(self.pairs)} "
            f"tables of counts by more than noise explains: {said}."
        )


def quality_of(fitted: ReleasedTable | FittedRecords, guarantee: Any) -> QualityReport:
    """Return the report on what was fitted; that costs nothing.

    Parameters
    ----------
    fitted : ReleasedTable or FittedRecords
        With what was released.
    guarantee : PrivacyGuarantee or None
        What was guaranteed.

    Returns
    -------
    QualityReport
        A function of both.

    Raises
    ------
    ValueError
        If what was released is not known any more.
    """
    said = "none" if guarantee is None else str(guarantee)
    if isinstance(fitted, ReleasedTable):
        columns, pairs = _fits(fitted)
        judged = _held_out(fitted.space.schema, fitted.held_out)
        counted = "people" if isinstance(fitted, ReleasedPeople) else "records"
        return QualityReport(
            fitted.n_in_all, said, columns, pairs, judged, _parity_fit(fitted), counted=counted
        )
    classes, sketch = _sketched_classes(fitted), fitted.sketch
    judged = _held_out(summary_schema(fitted.space), sketch.held_out)
    encoder = sketch.encoder.header()["name"]
    return QualityReport(sketch.n_in_all, said, [], [], judged, classes=classes, encoder=encoder)


class _Section(NamedTuple):
    title: str
    said: Sequence[str]
    table: Sequence[Sequence[str]] = ()


_ABOUT_FITS = (
    "The distance of the model from the counts that it was fitted to, in total variation; the "
    "distance that noise alone makes; and the squared difference in units of the noise."
)


def _table(fits: Sequence[Fit]) -> list[list[str]]:
    rows = [
        [" x ".join(map(str, fit.columns)), f"{fit.distance:.3f}", f"{fit.noise:.3f}",
         f"{fit.misfit:.2f}", "" if fit.fits else "does not fit"]
        for fit in fits
    ]  # fmt: skip
    return [["", "distance", "of noise", "misfit", ""], *rows]


_ABOUT_CLASSES = (
    "Errors of means, and radii that records are clipped to, are in units of the spread of the "
    "class. Noise hides the variance along other directions."
)


def _said_of_noise(classes: Sequence[SketchedClass]) -> str:
    hidden = [of for of in classes if not of.is_seen]
    if not hidden:
        return "The means and sizes of all classes are above the noise."
    said = ", ".join(str(of.label) for of in hidden[:_MOST_SHOWN])
    return f"NOISE HIDES the mean or the size of {len(hidden)} of {len(classes)} classes: {said}."


def _table_of_classes(classes: Sequence[SketchedClass]) -> list[list[str]]:
    rows = [
        ["" if of.label is None else str(of.label),
         f"{of.n_records.value:,.0f} +- {of.n_records.error:,.0f}", f"{of.mean_error:.3f}",
         f"{of.directions} of {of.n_codes}", f"{of.seen:.2f}",
         f"{len(of.clusters)} ({of.clusters[-1]:.3f} to {of.clusters[0]:.3f})",
         f"{of.radius:.2f}"]
        for of in classes
    ]  # fmt: skip
    head = ["class", "records", "error of mean", "directions seen", "of variance",
            "clusters (shares)", "radius"]  # fmt: skip
    return [head, *rows]


def _said_of_held_out(found: HeldOut, counted: str, *, farthest: bool) -> Iterator[_Section]:
    rows = [["classifier that tells records from samples: AUC", str(found.telling), "0.5 is best"]]
    if found.accuracy is not None:
        made = f"{found.accuracy_of_samples:.3f} on samples"
        rows.append([f"accuracy of predicting {found.target!r}", str(found.accuracy), made])
    if found.auc is not None:
        made = f"{found.auc_of_samples:.3f} on samples"
        rows.append([f"AUC of predicting {found.target!r}", str(found.auc), made])
    said = (
        f"About {found.n_records.value:,.0f} {counted} were counted that the sketch has not seen. "
        "Errors are standard errors, of noise and of sampling."
    )
    yield _Section(f"{counted.capitalize()} that were held out", [said], rows)
    columns, what = list(found.columns.items()), "Columns"
    note = "In total variation, less what noise and sampling make."
    if farthest:
        columns, what = sorted(columns, key=lambda of: -of[1].value)[:_MOST_SHOWN], "Summaries"
        note += f" {len(columns)} of {len(found.columns)}, the farthest off first."
    rows = [[str(name), str(of)] for name, of in columns]
    head = ["", "distance of samples"]
    yield _Section(f"{what} of {counted} that were held out", [note], [head, *rows])


def _fits(table: ReleasedTable) -> tuple[list[Fit], list[Fit]]:
    """Return how a model fits the counts of columns, and of pairs of them."""
    released, (schema, model) = table.known_statistics, table.counted
    n_records = max(float(table.n_records), 1.0)
    names = [schema.names[j] for j in schema.features]
    ends, n_classes = np.cumsum(released["n_cells"])[:-1], schema.n_classes
    counts, groups = (np.split(released[name], ends) for name in ("counts", "groups"))
    of_single, of_pairs = released["deviations"][:2]
    weights = [np.where(model["classes"] == c, model["weights"], 0.0) for c in range(n_classes)]
    cells = np.split(model["cells"], ends, axis=1)
    precisions = released.get("column_weights", np.ones(len(names)))
    columns = [
        _fit((name,), count, _together([cell], weights), of_single / math.sqrt(w), n_records)
        for name, count, cell, w in zip(names, counts, cells, precisions, strict=True)
    ]
    sums = [_sums_of(cell, group) for cell, group in zip(cells, groups, strict=True)]
    tables: list[tuple[int, ...]] = list(combinations(range(len(names)), 2))
    precisions = released.get("pair_weights", np.ones(len(tables)))
    made = [[sums[a], sums[b]] for a, b in tables]
    found = released["pairs"]
    if "joints" in released:
        # Those that were wanted: three columns and more.
        for of, parts in zip(released["joint_columns"], released["joint_parts"], strict=True):
            tables.append(tuple(int(j) for j in of if j >= 0))
            of_groups = np.split(parts, np.cumsum([of.shape[1] for of in sums])[:-1])
            made.append([_sums_of(sums[j], of_groups[j]) for j in tables[-1]])
        precisions = np.concatenate([precisions, released["joint_weights"]])
        found = np.concatenate([found, released["joints"]])
    fits, start = [], 0
    for of, parts, w in zip(tables, made, precisions, strict=True):
        expected = _together(parts, weights)
        table_of = found[start : start + expected.size].reshape(expected.shape)
        start += expected.size
        columns_of = tuple(names[j] for j in of)
        fits.append(_fit(columns_of, table_of, expected, of_pairs / math.sqrt(w), n_records))
    return columns, fits


def _parity_fit(table: ReleasedTable) -> ParityFit | None:
    """Return how a model fits the parities that were released, None where there are none."""
    released, model, schema = table.known_statistics, table.model, table.space.schema
    if "parities" not in released:
        return None
    ends = np.cumsum(released["n_cells"])[:-1]
    groups, cells = np.split(released["groups"], ends), np.split(model["cells"], ends, axis=1)
    sums = [_sums_of(cell, group) for cell, group in zip(cells, groups, strict=True)]
    halves = np.split(released["halves"], np.cumsum([of.shape[1] for of in sums])[:-1])
    signs = [of @ (1 - 2 * half) for of, half in zip(sums, halves, strict=True)]
    subsets = scanned_subsets(len(sums), int(released["largest_parity"][0]))
    # A column of one half has no sign.
    told = np.array([half.min() < half.max() for half in halves])
    kept = np.concatenate([told[of_size].all(axis=1) for of_size in subsets])
    if not kept.any():
        return None
    n_records, units = max(float(table.n_records), 1.0), []
    for c, seen in enumerate(released["parities"].T):
        weights = np.where(model["classes"] == c, model["weights"], 0.0)
        expected = n_records * mixture_parities(weights, np.column_stack(signs), subsets)
        noise = math.hypot(released["parity_deviation"][0], math.sqrt(n_records * weights.sum()))
        units.append(np.abs(seen - expected)[kept] / max(noise, 1.0))
    found = np.array(units)
    worst = np.flatnonzero(kept)[int(found.max(axis=0).argmax())]
    named = [of for of_size in subsets for of in of_size][worst]
    most = float(norm.isf(_FALSE_ALARM / (2 * found.size)))
    columns = tuple(schema.names[schema.features[j]] for j in named)
    return ParityFit(found.size, float(np.mean(found**2)), columns, float(found.max()), most)


def _sums_of(cells: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the probability of each group of a column in each component."""
    return np.column_stack([cells[:, group == g].sum(axis=1) for g in range(group.max() + 1)])


def _together(parts: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return the probabilities of all combinations of parts of columns, in each class."""
    *first, last = parts
    joint = np.ones((len(last), 1))
    for part in first:
        joint = (joint[:, :, None] * part[:, None, :]).reshape(len(part), -1)
    return np.column_stack([((joint * w[:, None]).T @ last).ravel() for w in weights])


def _fit(
    columns: tuple[Any, ...], counts: np.ndarray, shares: np.ndarray, deviation: float, n: float
) -> Fit:
    # One record more or less is as little noise as matters.
    differences, unit = counts - n * shares, max(float(deviation), 1.0)
    noise = deviation * math.sqrt(2 / math.pi) * counts.size / (2 * n)
    return Fit(
        columns,
        min(float(noise), 1.0),
        min(float(np.abs(differences).sum() / (2 * n)), 1.0),
        float(np.mean((differences / unit) ** 2)),
    )


def _sketched_classes(fitted: FittedRecords) -> list[SketchedClass]:
    """Return what noise left of every class."""
    noise, mixture = fitted.sketch.known_noise, fitted.sketch.mixture
    n_classes, n_clusters, n_codes = mixture.means.shape
    labels = [None] * n_classes if fitted.classes is None else fitted.classes.tolist()
    found = []
    for c, label in enumerate(labels):
        # In one order, so that a file has the same report to the last bit.
        means, factor = (
            part.astype(np.float64, order="C")
            for part in (mixture.means[c], mixture.factors[c % len(mixture.factors)])
        )
        weights, variances = mixture.weights[c], np.square(factor).sum(axis=1)
        around = weights @ np.square(means - weights @ means).sum(axis=1)
        spread = math.sqrt(max(float(variances.sum() + around), _TINY))
        # No eigenvalue of noise alone is above this, about: off the diagonal it is half as large.
        seen = variances > noise["variance"][c] * math.sqrt(2 * n_codes)
        found.append(SketchedClass(
            label,
            Estimate(float(mixture.counts[c]), float(noise["size"][c])),
            float(noise["mean"][c]) * math.sqrt(n_codes) / spread,
            int(seen.sum()),
            n_codes,
            float(variances[seen].sum() / max(float(variances.sum()), _TINY)),
            sorted(weights.tolist(), reverse=True),
            float(noise["radius"][c]) / spread,
        ))  # fmt: skip
    return found


def _held_out(schema: TableSchema, held_out: Mapping[str, np.ndarray] | None) -> HeldOut | None:
    """Return what records say of samples, by what was released of them, if anything was."""
    if held_out is None:
        return None
    of_values, of_scores, *of_utility = held_out["deviations"]
    ends = np.cumsum(held_out["n_bins"])[:-1]
    counts, shares = (np.split(held_out[name], ends) for name in ("values", "value_shares"))
    size, noise = counted_size(held_out)
    n_records = Estimate(size, noise * float(of_values))
    columns = {
        name: _distance(count, share, of_values, n_records.value)
        for name, count, share in zip(schema.names, counts, shares, strict=True)
    }
    telling = _auc(held_out["scores"], held_out["score_shares"], of_scores)
    if schema.target is None or not of_utility:
        return HeldOut(n_records, columns, telling)
    table_of, samples = held_out["utility"], held_out["utility_shares"]
    right = held_out["predictions"][:, None] == np.arange(schema.n_classes)
    target = schema.names[schema.target]
    return HeldOut(
        n_records, columns, telling, f"band of {target}" if schema.has_bands else target,
        _mean_of(right.astype(np.float64), table_of, of_utility[0]),
        _auc_of_two(table_of, of_utility[0]) if schema.n_classes == 2 else None,
        float(samples[right].sum()),
        _auc_of_two(samples, 0.0).value if schema.n_classes == 2 else None,
    )  # fmt: skip


def _distance(counts: np.ndarray, shares: np.ndarray, deviation: float, n: float) -> Estimate:
    """Return a distance in total variation without what noise and sampling add to it.

    That is taken away from the squares of differences. The error is at least that of their sum.
    """
    if n <= 0:
        return Estimate(math.nan, math.nan)
    variances = (deviation**2 + n * shares) / n**2
    differences = counts / n - shares
    squares = float((differences**2).sum())
    left = max(1 - float(variances.sum()) / squares, 0.0) if squares else 0.0
    distance = float(np.abs(differences).sum()) / 2 * math.sqrt(left)
    return Estimate(min(distance, 1.0), math.sqrt(float(variances.sum())) / 2)


def _mean_of(values: np.ndarray, counts: np.ndarray, deviation: float) -> Estimate:
    """Return the mean of the values of cells over records that are counted with noise."""
    n = float(counts.sum())
    if n <= 0:
        return Estimate(math.nan, math.nan)
    mean = float((values * counts).sum()) / n
    variance = ((values - mean) ** 2 * (deviation**2 + np.maximum(counts, 0))).sum()
    return Estimate(mean, math.sqrt(float(variance)) / n)


def _ranks(shares: np.ndarray) -> np.ndarray:
    """Return what part of a distribution is below each bin, with half of its own."""
    return np.cumsum(shares) - shares / 2


def _auc(counts: np.ndarray, shares: np.ndarray, deviation: float) -> Estimate:
    """Return the chance that a record has a higher score than a sample."""
    return _mean_of(_ranks(shares), counts, deviation)


def _auc_of_two(counts: np.ndarray, deviation: float) -> Estimate:
    """Return the chance that a record of the second class has a higher score than of the first."""
    first, second = counts.T
    if min(first.sum(), second.sum()) <= 0:
        return Estimate(math.nan, math.nan)
    of_second = _mean_of(_ranks(first / first.sum()), second, deviation)
    of_first = _mean_of(1 - _ranks(second / second.sum()), first, deviation)
    return Estimate(of_second.value, math.hypot(of_second.error, of_first.error))


def _plain(value: Any) -> Any:
    """Return what JSON can hold: None for numbers that are not finite."""
    if isinstance(value, Estimate):
        return {"value": _plain(value.value), "error": _plain(value.error)}
    if isinstance(value, Mapping):
        return {key: _plain(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(of) for of in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_html(section: _Section) -> str:
    said = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in section.said)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in section.table
    )
    return f"<h3>{escape(section.title)}</h3>{said}<table>{rows}</table>"
