"""Releases of private records: each has an event, a sensitivity and a run."""

from skdpot.releases._choice import ChoiceRelease
from skdpot.releases._groups import LARGEST_GRID, HistogramRelease, UnitLayout, has_grid
from skdpot.releases._nodes import (
    UTILITY_MECHANISMS,
    MessageReleases,
    UtilityNoise,
    UtilityResponse,
)
from skdpot.releases._sums import (
    RADIUS,
    NoisyRelease,
    Release,
    ReleaseSeries,
    SketchReleases,
    SumRelease,
    VectorRelease,
    ball_points,
    check_exact_sums,
    label_threshold,
    sum_of_blocks,
)
