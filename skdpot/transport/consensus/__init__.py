"""Consensus of targets and sources on a transport plan: networks, utilities and the iteration."""

from ._network import BipartiteNetwork, Side, check_feasible, make_network, repair
from ._nodes import (
    FAMILIES,
    ConcaveUtility,
    LinearUtility,
    LogUtility,
    QuadraticUtility,
    SideState,
    make_utility,
    welfare,
    welfare_bound,
)
from ._plans import NetworkPlan, consensus, optimal_plan, starting_amounts, starting_eta

# The other names are for the rooms above.
__all__ = ["ConcaveUtility", "LinearUtility", "LogUtility", "QuadraticUtility", "optimal_plan"]
