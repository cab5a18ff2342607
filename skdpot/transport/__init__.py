"""Kernels of optimal transport: arrays in, arrays out; no randomness and no privacy."""

from .base_measure import (
    BaseMeasureResult,
    TransportConvergenceWarning,
    optimal_base_measure,
    uniform_base_measure,
    worst_case_cost,
)
from .costs import Costs, FunctionCosts, MatrixCosts, PointCosts, refuse_degrees
from .exact import TransportResult, certifiable_gap, exact_transport, monotone_transport
from .kernels import load_compiler
from .polytope import (
    check_base_measure,
    check_cost_matrix,
    check_epsilon,
    clip_to_polytope,
    kl_projection,
    nearest_distribution,
    normalise_rows,
)
from .pot import load_solver
from .projection import ProjectionResult, Projector, transport_costs, wasserstein_projection
from .sinkhorn import EntropicResult, entropic_transport, smallest_tolerance
from .sphere import SphereBaseMeasure, sphere_base_measure, sphere_cap_cost

__all__ = [
    "TransportConvergenceWarning",
    "entropic_transport",
    "exact_transport",
    "optimal_base_measure",
    "transport_costs",
    "wasserstein_projection",
]
