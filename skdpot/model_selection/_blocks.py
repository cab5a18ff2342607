"""Public settings of the blocks of a search: their number, and the range of their scores."""

import math
from numbers import Integral
from typing import Any

from sklearn.utils import get_tags

# The default number of blocks lowers the noise of a score to this share of its range, as long as a
# block has this number of records.
_NOISE_SHARE = 0.01
_DEFAULT_BLOCK_SIZE = 50
_DEFAULT_N_SPLITS = 5


def check_score_range(score_range: Any, scoring: Any, estimator: Any) -> tuple[float, float]:
    """Return the ends of the range of scores, or raise if it does not fit the scoring."""
    try:
        low, high = (float(end) for end in score_range)
        good = low < high and math.isfinite(high - low)
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            f"score_range must be finite (low, high) with low < high, got {score_range!r}."
        )
    if isinstance(scoring, str) and scoring.startswith("neg_") and low >= 0:
        raise ValueError(
            f"scoring={scoring!r} is never above 0, and score_range=({low:g}, {high:g}) "
            "never below: all candidates would score the same. Choose a range such as (-1, 0), "
            "as wide as errors may be."
        )
    # A class has no tags, and is refused later.
    has_own = scoring is None and not isinstance(estimator, type)
    kind = get_tags(estimator).estimator_type if has_own else None
    if kind == "density_estimator" and (low, high) == (0, 1):
        raise ValueError(
            "the score of a generator is minus a distance, and that of other density "
            "estimators a log-likelihood: neither lies from 0 to 1. Choose score_range, such "
            "as (-1, 0) for a generator."
        )
    return low, high


def choose_n_blocks(n_blocks: int | None, cv: Any, n_records: int, noise: float) -> int:
    """Return the number of blocks, from public facts; `noise` is that of a single block."""
    if cv is None:
        fewest = _DEFAULT_N_SPLITS
    elif isinstance(cv, Integral):
        fewest = int(cv)
    elif hasattr(cv, "split"):
        fewest = 2
    else:
        raise ValueError(
            "cv must be an integer or splitter: positions of records make no sense in a block."
        )
    if n_blocks is None:
        wanted = math.ceil(noise / _NOISE_SHARE)
        n_blocks = max(1, min(wanted, n_records // max(_DEFAULT_BLOCK_SIZE, fewest)))
    if n_records < n_blocks * fewest:
        raise ValueError(
            f"n_blocks={n_blocks} with at least {fewest} records each, to be divided by cv, "
            f"cannot be made of n_samples={n_records}. Choose fewer blocks, or a smaller cv."
        )
    return int(n_blocks)
