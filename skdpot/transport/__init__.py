"""Kernels of optimal transport: arrays in, arrays out; no randomness and no privacy."""

from .base_measure import (
    BaseMeasureResult,
    TransportConvergenceWarning,
    optimal_base_measure,
    uniform_base_measure,
    worst_case_cost,
)
from .polytope import (
    check_base_measure,
    check_cost_matrix,
    check_epsilon,
    clip_to_polytope,
    kl_projection,
    normalise_rows,
)
from .projection import (
    ProjectionResult,
    Projector,
    transport_costs,
    wasserstein_projection,
)
from .sphere import SphereBaseMeasure, sphere_base_measure, sphere_cap_cost

__all__ = [
    "BaseMeasureResult",
    "ProjectionResult",
    "Projector",
    "SphereBaseMeasure",
    "TransportConvergenceWarning",
    "check_base_measure",
    "check_cost_matrix",
    "check_epsilon",
    "clip_to_polytope",
    "kl_projection",
    "normalise_rows",
    "optimal_base_measure",
    "sphere_base_measure",
    "sphere_cap_cost",
    "transport_costs",
    "uniform_base_measure",
    "wasserstein_projection",
    "worst_case_cost",
]
