"""Kernels of optimal transport: arrays in, arrays out; no randomness and no privacy."""

from .base_measure import (
    BaseMeasureResult,
    TransportConvergenceWarning,
    optimal_base_measure,
    uniform_base_measure,
    worst_case_cost,
)
from .costs import Costs, FunctionCosts, MatrixCosts, PointCosts
from .exact import TransportResult, certifiable_gap, exact_transport, monotone_transport
from .polytope import (
    check_base_measure,
    check_cost_matrix,
    check_epsilon,
    clip_to_polytope,
    kl_projection,
    nearest_distribution,
    normalise_rows,
)
from .projection import (
    ProjectionResult,
    Projector,
    transport_costs,
    wasserstein_projection,
)
from .sinkhorn import EntropicResult, entropic_transport, smallest_tolerance, soft_transform
from .sphere import SphereBaseMeasure, sphere_base_measure, sphere_cap_cost

__all__ = [
    "BaseMeasureResult",
    "Costs",
    "EntropicResult",
    "FunctionCosts",
    "MatrixCosts",
    "PointCosts",
    "ProjectionResult",
    "Projector",
    "SphereBaseMeasure",
    "TransportConvergenceWarning",
    "TransportResult",
    "certifiable_gap",
    "check_base_measure",
    "check_cost_matrix",
    "check_epsilon",
    "clip_to_polytope",
    "entropic_transport",
    "exact_transport",
    "kl_projection",
    "monotone_transport",
    "nearest_distribution",
    "normalise_rows",
    "optimal_base_measure",
    "smallest_tolerance",
    "soft_transform",
    "sphere_base_measure",
    "sphere_cap_cost",
    "transport_costs",
    "uniform_base_measure",
    "wasserstein_projection",
    "worst_case_cost",
]
