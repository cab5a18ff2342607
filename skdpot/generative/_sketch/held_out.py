"""Records that are held out of a sketch, and the releases of them that judge it.

One part of them trains a classifier that distinguishes records from samples. The others are
counted: by their values, by the score of that classifier, and by the prediction of a model that was
trained on samples. The place where a record is counted depends only on the record and the sketch. A
record is a row of whole numbers: of a table its values, and of vectors and images public summaries.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skdpot.generative._sketch.file_parts import with_kinds
from skdpot.generative._sketch.judges import (
    FEATURES,
    SCORE_BINS,
    Cells,
    column_cells,
    even_edges,
    fit_discriminator,
    fit_predictor,
    largest_features_sensitivity,
)
from skdpot.generative._sketch.noisy_counts import tables_sensitivity
from skdpot.generative._sketch.plan import PlannedRelease, SketchBudget
from skdpot.generative._sketch.table_model import class_shares
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import TableSchema

__all__ = [
    "HeldOutRows",
    "Judged",
    "cells_of_model",
    "counted_size",
    "expected_report_error",
    "held_out_plans",
    "hold_out",
    "n_held_out",
    "read_held_out",
    "release_held_out",
]

# The share of held-out records that train the classifier, and are counted nowhere else.
_TEACHERS = 1 / 3
_VALUES, _SCORES, _UTILITY = "held-out values", "held-out scores", "held-out utility"
_SHARES = {_VALUES: 0.4, _SCORES: 0.3, _UTILITY: 0.3}
# The names of the shares of samples, and of the counts of records.
_NAMES = {
    _VALUES: ("value_shares", "values"),
    _SCORES: ("score_shares", "scores"),
    _UTILITY: ("utility_shares", "utility"),
}
# The arrays that `release_held_out` returns, and their types.
_HELD_OUT = {
    **dict.fromkeys(("n_bins", "predictions"), np.int64),
    **dict.fromkeys((name for pair in _NAMES.values() for name in pair), np.float64),
    **dict.fromkeys(("n_records", "deviations"), np.float64),
}
_N_SAMPLES = 20_000
# The largest count in a file, with its noise.
_LARGEST_COUNT = 2.0**53
_LEARNING_SEED, _TEST_SEED = 1, 2


class Judged(NamedTuple):
    """The samples that held-out records judge, as rows of whole numbers.

    Attributes
    ----------
    schema : TableSchema
        Public: the columns of rows, target included.
    draw : callable
        Takes a number of rows and a `RandomState`, and returns rows: a function of the release.
    cells : sequence of tuple of two ndarray, default=None
        Of each column. None makes a cell of each unit, with its share of samples.
    """

    schema: TableSchema
    draw: Callable[[int, Any], np.ndarray]
    cells: Sequence[Cells] | None = None


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Held-out records, one row each: private.

    Parameters
    ----------
    units : ndarray of shape (n, n_columns), dtype int64
        Of `TableSchema.encode`.
    """

    units: np.ndarray

    def sums(self, sum_rows: Callable[..., list[np.ndarray]]) -> list[np.ndarray]:
        """Return the sums of a function of rows and of their weights, which are 1."""
        return sum_rows(self.units, np.ones(len(self.units)))


def hold_out(n_records: int, share: float, source: Any) -> np.ndarray:
    """Return the use of each record: 0 for the sketch, 1 for the classifier, 2 for the counts.

    An independent coin decides for each record, and does not depend on its values. The result is
    private; `share` is public: the probability of being held out. With 0 no coin is thrown.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.held_out import hold_out
    >>> from skdpot.privacy.random import make_source
    >>> uses = hold_out(6000, 0.3, make_source(0))
    >>> np.round(np.bincount(uses) / 6000, 1)
    array([0.7, 0.1, 0.2])
    """
    if not share:
        return np.zeros(n_records, dtype=np.int8)
    coins = source.uniform(n_records)
    return np.where(coins < share, np.where(coins < _TEACHERS * share, 1, 2), 0)


def held_out_plans(schema: TableSchema, whole: int = 1) -> list[dict[str, PlannedRelease]]:
    """Return the planned releases of records that teach, and of those that are counted.

    The two parts and the sketch have no record in common, so each has the whole budget. `whole` is
    the largest sum of the weights of the rows of a record, or of a person.

    Examples
    --------
    >>> from skdpot.generative._sketch.held_out import held_out_plans
    >>> from skdpot.tables import read_schema
    >>> teachers, counted = held_out_plans(read_schema({"sex": ["F", "M"], "age": range(99)}))
    >>> list(teachers), list(counted)
    (['held-out features'], ['held-out values', 'held-out scores'])
    """
    n_columns = len(schema.columns)
    counted = {_VALUES: n_columns, _SCORES: 1}
    if schema.n_classes > 1:
        counted[_UTILITY] = 1
    return [
        {FEATURES: PlannedRelease(1.0, largest_features_sensitivity(whole))},
        {
            name: PlannedRelease(_SHARES[name], tables_sensitivity(n, whole))
            for name, n in counted.items()
        },
    ]


def expected_report_error(
    n_records: float, schema: TableSchema, budget: SketchBudget
) -> ExpectedError:
    """Return the standard error of the AUC between records and samples.

    `n_records` is the number of held-out records, and `budget` that of each part. An error of 0.5
    is useless: it is the AUC of a classifier that cannot distinguish them.

    Examples
    --------
    >>> from skdpot.generative._sketch.held_out import expected_report_error
    >>> from skdpot.generative._sketch.plan import sketch_budget
    >>> from skdpot.tables import read_schema
    >>> schema, budget = read_schema({"sex": ["F", "M"]}), sketch_budget(1.0, 1e-5, "add_remove")
    >>> print(expected_report_error(3000, schema, budget))
    standard error of the AUC by which records are told from samples: 0.00725 (useless from 0.5)
    """
    plan = held_out_plans(schema)[1]
    share = plan[_SCORES].share / sum(planned.share for planned in plan.values())
    sensitivity = cell_count_sensitivity(relation=budget.neighbouring)
    deviation = budget.noise_multiplier / math.sqrt(share) * sensitivity
    n_counted = (1 - _TEACHERS) * n_records
    # Ranks of samples are uniform from 0 to 1, and have the variance 1/12.
    error = math.sqrt((SCORE_BINS * deviation**2 / n_counted + 1) / (12 * n_counted))
    quantity = "standard error of the AUC by which records are told from samples"
    return ExpectedError(quantity, error, 0.5)


def release_held_out(
    teachers: Any, counted: Any, judged: Judged, budget: SketchBudget, source: Any, whole: int = 1
) -> dict[str, np.ndarray]:
    """Release counts of held-out records that judge the samples of a sketch.

    Each part has the whole budget: :ref:`proof-held-out`.

    Parameters
    ----------
    teachers, counted : HeldOutRows
        Private. The parts 1 and 2 of `hold_out`, or other objects with a method ``sums``, of rows
        with integer weights.
    judged : Judged
        The samples of the sketch of the other records.
    budget : SketchBudget
        Of each part: no record is in two.
    source : NoiseSource
        Source of noise.
    whole : int, default=1
        As of `held_out_plans`.

    Returns
    -------
    dict of str to ndarray
        Released values, and numbers computed from them and the sketch.

        - ``"n_records"``: an estimate of the number of held-out records.
        - ``"n_bins"``: the number of bins of each column, target included.
        - ``"values"``, ``"value_shares"``: the number of records in each bin, one column after
          another, and the shares of samples.
        - ``"scores"``, ``"score_shares"``: the same of bins of the score by which a classifier
          tells records from samples.
        - ``"utility"``, ``"utility_shares"`` of shape (n_bins, n_classes): the same of bins of a
          prediction, for each class; empty without a target.
        - ``"predictions"`` of shape (n_bins,): the predicted class of each bin.
        - ``"deviations"``: of the noise of values, scores and utility.
    """
    schema = judged.schema
    learned, compared = (
        judged.draw(_N_SAMPLES, np.random.RandomState(seed))
        for seed in (_LEARNING_SEED, _TEST_SEED)
    )
    columns = column_cells(judged.cells or _cells_of_samples(learned, schema), schema)
    plans = held_out_plans(schema, whole)
    fit_releases, count_releases = (
        SketchReleases(
            budget.noise_multiplier, {name: planned.share for name, planned in plan.items()},
            budget.neighbouring, source,
        )
        for plan in plans
    )  # fmt: skip
    score, n_teachers = fit_discriminator(teachers, learned, columns, fit_releases, whole)
    edges = even_edges(score(compared))
    bins = {
        _VALUES: [partial(_value_bins, column) for column in columns],
        _SCORES: [lambda units: np.searchsorted(edges, score(units), side="right")],
    }
    n_bins = {
        _VALUES: [int(column.bins.max()) + 1 for column in columns],
        _SCORES: [len(edges) + 1],
    }
    predictions = np.zeros(0, dtype=np.int64)
    if _UTILITY in plans[1]:
        predicted, predictions = fit_predictor(learned, compared, schema)
        bins[_UTILITY] = [partial(_class_cells, predicted, schema)]
        n_bins[_UTILITY] = [len(predictions) * schema.n_classes]
    released = {"n_bins": np.array(n_bins[_VALUES]), "predictions": predictions}
    deviations = []
    for name, plan in plans[1].items():
        share_name, count_name = _NAMES[name]
        count = partial(_bin_counts, bins=bins[name], n_bins=n_bins[name])
        (counts,) = counted.sums(count)
        released[count_name] = count_releases.run(name, counts, plan.sensitivity) / whole
        released[share_name] = HeldOutRows(compared).sums(count)[0] / _N_SAMPLES
        deviations.append(count_releases.standard_deviation(name, plan.sensitivity) / whole)
    for name in _NAMES[_UTILITY]:
        table = released.get(name, np.zeros(0))
        released[name] = table.reshape(len(predictions), schema.n_classes)
    released["n_records"] = np.array(n_teachers + counted_size(released)[0])
    return {**released, "deviations": np.array(deviations)}


def counted_size(held_out: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Return an estimate of the number of counted records, and its standard deviation.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.held_out import counted_size
    >>> values = np.array([60.0, 42.0, 20.0, 30.0, 25.0, 25.0])
    >>> size, noise = counted_size({"n_bins": np.array([2, 4]), "values": values})
    >>> round(size, 3), round(noise, 3)
    (101.333, 1.155)
    """
    n_bins = held_out["n_bins"]
    totals = np.add.reduceat(held_out["values"], np.cumsum(n_bins) - n_bins)
    precisions = 1 / n_bins
    size = np.average(totals, weights=precisions)
    return float(size), float(1 / np.sqrt(precisions.sum()))


def n_held_out(held_out: Mapping[str, np.ndarray] | None) -> int:
    """Return an estimate of the number of held-out records; 0 if none were held out."""
    return 0 if held_out is None else max(round(float(held_out["n_records"])), 0)


def read_held_out(
    schema: TableSchema, arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Return the arrays of `release_held_out` from a file, or raise.

    The result is None if no records were held out.
    """
    if not arrays:
        return None
    held_out = with_kinds(arrays, _HELD_OUT)
    if arrays.keys() != held_out.keys() or not _are_held_out(schema, held_out):
        raise ValueError("the file lacks the release of held-out records.")
    return held_out


def cells_of_model(model: Mapping[str, np.ndarray], schema: TableSchema) -> list[Cells]:
    """Return the cells of every column of a table, target included."""
    shares = model["weights"] @ model["cells"]
    ends = np.cumsum(model["n_cells"])[:-1]
    feature_cells = zip(np.split(model["starts"], ends), np.split(shares, ends), strict=True)
    cells = dict(zip(schema.features, feature_cells, strict=True))
    if schema.target is not None and not schema.has_bands:
        n_classes = schema.n_classes
        cells[schema.target] = (np.arange(n_classes), class_shares(model, n_classes))
    return [cells[j] for j in range(len(schema.columns))]


def _cells_of_samples(samples: np.ndarray, schema: TableSchema) -> list[Cells]:
    """Return a cell for each unit of every column, and its share of samples."""
    sizes = [column.n_units for column in schema.columns]
    return [
        (np.arange(n), np.bincount(units, minlength=n) / len(samples))
        for n, units in zip(sizes, samples.T, strict=True)
    ]


def _are_held_out(schema: TableSchema, held_out: Mapping[str, np.ndarray]) -> bool:
    """Tell whether arrays are as `release_held_out` returns them, so that a report can use them."""
    n_bins, predictions = held_out["n_bins"], held_out["predictions"]
    utility = (len(predictions), schema.n_classes)
    return bool(
        n_bins.shape == (len(schema.columns),)
        and ((n_bins > 0) & (n_bins <= len(held_out["values"]))).all()
        and held_out["values"].shape == held_out["value_shares"].shape == (n_bins.sum(),)
        and held_out["scores"].ndim == 1
        and held_out["scores"].shape == held_out["score_shares"].shape
        and held_out["utility"].shape == held_out["utility_shares"].shape == utility
        and (len(predictions) > 0) == (schema.n_classes > 1)
        and predictions.ndim == 1
        and held_out["n_records"].ndim == 0
        and held_out["deviations"].shape == (2 + (schema.n_classes > 1),)
        and (held_out["deviations"] >= 0).all()
        and all((held_out[shares] >= 0).all() for shares, _ in _NAMES.values())
        and all((np.abs(array) <= _LARGEST_COUNT).all() for array in held_out.values())
    )


def _value_bins(column, units):
    return column.bins[column.cells(units)]


def _class_cells(predicted, schema, units):
    """Return the cell of each record in the table of predictions and classes."""
    return predicted(units) * schema.n_classes + schema.classes_of(units[:, schema.target])


def _bin_counts(units, weights, bins, n_bins):
    """Return the sum of the weights of rows in each bin, one table after another."""
    counts = [
        np.bincount(bin_of(units), weights, minlength=n)
        for bin_of, n in zip(bins, n_bins, strict=True)
    ]
    return [np.concatenate(counts).astype(np.int64)]
