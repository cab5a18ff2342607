"""Kernels of optimal transport: arrays in, arrays out; no randomness and no privacy."""

from .base_measure import (
    TransportConvergenceWarning,
    optimal_base_measure,
    sphere_base_measure,
    sphere_cap_cost,
    uniform_base_measure,
    worst_case_cost,
)
from .exact import (
    TransportResult,
    certifiable_gap,
    exact_transport,
    load_solver,
    monotone_transport,
)
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
from .projection import ProjectionResult, Projector, transport_costs, wasserstein_projection
from .sinkhorn import (
    Costs,
    FunctionCosts,
    MatrixCosts,
    PointCosts,
    entropic_transport,
    refuse_degrees,
    smallest_tolerance,
)

__all__ = [
    "TransportConvergenceWarning",
    "entropic_transport",
    "exact_transport",
    "optimal_base_measure",
    "transport_costs",
    "wasserstein_projection",
]
