"""Releases of private records: each has an event, a sensitivity and a run."""

from skdpot.releases._choice import ChoiceRelease
from skdpot.releases._group_weights import group_weights
from skdpot.releases._histogram import LARGEST_GRID, HistogramRelease, has_grid
from skdpot.releases._layout import ReleasedGroups, UnitLayout
from skdpot.releases._messages import MessageRelease, MessageReleases
from skdpot.releases._release import NoisyRelease, Release, ReleaseSeries
from skdpot.releases._responses import UTILITY_MECHANISMS, UtilityResponse
from skdpot.releases._sums import (
    RADIUS,
    SketchReleases,
    SumRelease,
    ball_points,
    check_exact_sums,
    sum_of_blocks,
)
from skdpot.releases._utilities import UtilityNoise, UtilityRelease
from skdpot.releases._vector import VectorRelease
