"""Consensus of targets and sources on a transport plan: networks, utilities and the iteration."""

from ._network import BipartiteNetwork as BipartiteNetwork
from ._network import Side as Side
from ._network import check_feasible as check_feasible
from ._network import make_network as make_network
from ._network import repair as repair
from ._nodes import FAMILIES as FAMILIES
from ._nodes import ConcaveUtility, LinearUtility, LogUtility, QuadraticUtility
from ._nodes import SideState as SideState
from ._nodes import make_utility as make_utility
from ._nodes import welfare as welfare
from ._nodes import welfare_bound as welfare_bound
from ._plans import OptimalPlan as OptimalPlan
from ._plans import consensus as consensus
from ._plans import optimal_plan
from ._plans import starting_amounts as starting_amounts
from ._plans import starting_eta as starting_eta

# The other names are for the rooms above.
__all__ = ["ConcaveUtility", "LinearUtility", "LogUtility", "QuadraticUtility", "optimal_plan"]
