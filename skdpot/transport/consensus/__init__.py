"""Consensus of targets and sources on a transport plan: networks, utilities and the iteration."""

from ._admm import ConsensusResult as ConsensusResult
from ._admm import consensus as consensus
from ._admm import starting_amounts as starting_amounts
from ._admm import starting_eta as starting_eta
from ._bipartite import BipartiteNetwork as BipartiteNetwork
from ._bipartite import Side as Side
from ._bipartite import make_network as make_network
from ._certificate import welfare as welfare
from ._certificate import welfare_bound as welfare_bound
from ._feasibility import check_feasible as check_feasible
from ._optimal import OptimalPlan as OptimalPlan
from ._optimal import optimal_plan
from ._penalty import Coordinator as Coordinator
from ._penalty import check_rates as check_rates
from ._repair import nearest_amounts as nearest_amounts
from ._repair import repair as repair
from ._side import SideState as SideState
from ._utilities import FAMILIES as FAMILIES
from ._utilities import ConcaveUtility, LinearUtility, LogUtility, QuadraticUtility
from ._utilities import check_utility as check_utility
from ._utilities import make_utility as make_utility

# The other names are for the rooms above.
__all__ = ["ConcaveUtility", "LinearUtility", "LogUtility", "QuadraticUtility", "optimal_plan"]
