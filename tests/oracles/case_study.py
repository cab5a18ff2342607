"""The paper's case study: 4 sources with 20 to 40 units, 30 targets that take up to 1 to 5."""

import numpy as np

from skdpot.transport.consensus import make_network
from tests.oracles.consensus import linear_optimum

RANGE = (1.0, 5.0)


def draw_case_study(rng):
    """Return the targets' and the sources' utilities, and the public bounds of both."""
    utilities = [rng.uniform(*RANGE, (30, 4)) for _ in range(2)]
    targets = np.c_[np.zeros(30), rng.uniform(1, 5, 30)]
    sources = np.c_[np.zeros(4), rng.uniform(20, 40, 4)]
    return utilities, {"target_bounds": targets, "source_bounds": sources}


def best_welfare(utilities, bounds):
    """Return the largest welfare on the complete network, by HiGHS."""
    total = sum(utilities)
    network = make_network(np.ones(total.shape), *bounds.values())
    return linear_optimum(network, total.ravel())
