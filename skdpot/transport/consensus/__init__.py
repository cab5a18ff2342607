"""Consensus of targets and sources on a transport plan: networks, utilities and the iteration."""

from ._admm import ConsensusResult, consensus, starting_amounts, starting_eta
from ._certificate import welfare, welfare_bound
from ._coordinator import Coordinator
from ._feasibility import check_feasible
from ._network import BipartiteNetwork, Side, make_network
from ._optimal import OptimalPlan, optimal_plan
from ._repair import repair
from ._side import SideState
from ._utilities import ConcaveUtility, LinearUtility, LogUtility, QuadraticUtility

__all__ = [
    "BipartiteNetwork",
    "ConcaveUtility",
    "ConsensusResult",
    "Coordinator",
    "LinearUtility",
    "LogUtility",
    "OptimalPlan",
    "QuadraticUtility",
    "Side",
    "SideState",
    "check_feasible",
    "consensus",
    "make_network",
    "optimal_plan",
    "repair",
    "starting_amounts",
    "starting_eta",
    "welfare",
    "welfare_bound",
]
