"""What can be released of private records, each with its event, its sensitivity and its noise."""

from skdpot.releases._choice import RepeatedSelection
from skdpot.releases._choose_groups import KINDS, plan_release
from skdpot.releases._groups import GroupPlan
from skdpot.releases._histogram import LARGEST_GRID, HistogramPlan
from skdpot.releases._layout import ReleasedGroups, UnitLayout
from skdpot.releases._messages import MessageNoise, quiet
from skdpot.releases._moments import MomentsPlan
from skdpot.releases._release import Release
from skdpot.releases._responses import UtilityResponse
from skdpot.releases._shared_noise import SharedNoise, SummedNoise
from skdpot.releases._sums import (
    RADIUS,
    BudgetedReleases,
    ball_points,
    check_exact_sums,
    products,
)
from skdpot.releases._utilities import UtilityNoise
from skdpot.releases._vector import VectorNoise

__all__ = [
    "KINDS",
    "LARGEST_GRID",
    "RADIUS",
    "BudgetedReleases",
    "GroupPlan",
    "HistogramPlan",
    "MessageNoise",
    "MomentsPlan",
    "Release",
    "ReleasedGroups",
    "RepeatedSelection",
    "SharedNoise",
    "SummedNoise",
    "UnitLayout",
    "UtilityNoise",
    "UtilityResponse",
    "VectorNoise",
    "ball_points",
    "check_exact_sums",
    "plan_release",
    "products",
    "quiet",
]
