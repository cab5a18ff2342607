"""Checks whether owners' sums are possible for their numbers of records, with noise."""

import math
from typing import Any

import numpy as np

# Maximum probability that honest noise fails any of the checks.
_REFUSED_BY_CHANCE = 2.0**-40
# Relative rounding error of doubles, as a share of the largest number.
_ROUNDED = 2.0**-50


def check_range(
    numbers: np.ndarray,
    record_range: tuple[np.ndarray, np.ndarray],
    n_records: int,
    noise: Any,
    n_parts: int,
) -> None:
    """Raise ValueError for a sum of parts that so many records give with rare noise only.

    A record adds to one slot of one group in `numbers`, of shape (n_groups, n_slots, n_numbers), at
    least and at most the numbers of `record_range`. The first number counts the records. An honest
    sum is refused with a probability of ``2**-40`` at most (:ref:`proof-ranges`).
    """
    (low, high), tail, step = record_range, noise.tail, noise.step
    unit = float(high[0])
    rounded = _ROUNDED * n_records * float(np.max(high))
    half, quarter = _REFUSED_BY_CHANCE / 2, _REFUSED_BY_CHANCE / 4
    reach = step * tail.of_sum(n_parts, half / numbers.size) + rounded
    _check_entries(numbers, np.minimum(low, 0.0) * n_records - reach, high * n_records + reach)
    needed = _records_needed(numbers.reshape(-1, len(low)), low, high, reach)
    if math.isinf(needed):
        raise ValueError("its sums are larger than its counts allow")
    if needed > n_records * (1.0 + _ROUNDED):
        raise ValueError(f"its numbers need {needed:.6g} rows, and there are {n_records:,}")
    counts = numbers[..., 0]
    n_groups, n_slots = counts.shape
    sums = [*zip(counts.sum(axis=1), [n_slots] * n_groups, strict=True)]
    for total, n_terms in [*sums, (counts.sum(), counts.size)]:
        slack = step * tail.of_sum(n_terms * n_parts, quarter / (n_groups + 1)) + rounded
        if not -slack <= total <= unit * n_records + slack:
            raise ValueError(
                f"its counts add up to {total / unit:.6g}, and those of {n_records:,} rows are "
                f"from {-slack / unit:.6g} to {n_records + slack / unit:.6g}"
            )
    if n_parts == 1:
        far = np.maximum(-counts, 0.0).sum()
        far += max(np.maximum(counts, 0.0).sum() - unit * n_records, 0.0)
        most = step * tail.of_magnitudes(counts.size, quarter) + rounded
        if far > most:
            raise ValueError(
                f"its counts are {far / unit:.6g} from those of any {n_records:,} rows, and noise "
                f"moves them by {most / unit:.6g}"
            )


def _check_entries(numbers: np.ndarray, least: np.ndarray, most: np.ndarray) -> None:
    beyond = np.maximum(numbers - most, least - numbers)
    worst = np.unravel_index(np.argmax(beyond), beyond.shape)
    if beyond[worst] > 0:
        raise ValueError(
            f"it has the number {numbers[worst]:.6g}, and possible are numbers from "
            f"{least[worst[-1]]:.6g} to {most[worst[-1]]:.6g}"
        )


def _records_needed(numbers: np.ndarray, low: np.ndarray, high: np.ndarray, reach: float) -> float:
    """Return how many records are needed at least for numbers this close; infinity for none.

    With c records in a slot its numbers are between c times `low` and c times `high`.
    """
    up, down = high > 0, low < 0
    least = np.zeros(len(numbers))
    for some, ends, sign in ((up, high, 1.0), (down, low, -1.0)):
        if some.any():
            needed = (sign * numbers[:, some] - reach) / np.abs(ends[some])
            least = np.maximum(least, needed.max(axis=1))
    never = ((numbers + reach < 0) & ~down).any() or ((numbers - reach > 0) & ~up).any()
    # No more records than the count allows.
    if never or (least * low[0] > (numbers[:, 0] + reach) * (1.0 + _ROUNDED)).any():
        return math.inf
    return float(least.sum())
