"""Transport of skdpot as a solver of benchopt's benchmark of optimal transport.

Copy this file as ``solvers/skdpot.py`` into a clone of https://github.com/benchopt/benchmark_ot,
and run ``benchopt run benchmark_ot -s skdpot -s pot``. Costs are halves of squared distances, as
those of its other solvers. Plans of least entropy relative to the product of the weights, which
skdpot finds, are those of least entropy.
"""

import numpy as np
from scipy.spatial.distance import cdist

from skdpot.transport import entropic_transport, exact_transport, smallest_tolerance

try:
    from benchopt import BaseSolver
except ImportError:
    # What a solver does can be tried without benchopt.
    BaseSolver = object


class Solver(BaseSolver):
    """Exact transport for a regularisation of 0, and else a plan that certifies the tolerance."""

    name = "skdpot"
    sampling_strategy = "tolerance"
    install_cmd = "conda"
    requirements = ("pip::skdpot",)
    parameters = {"reg": [0, 1e-2, 1e-1]}  # noqa: RUF012

    def set_objective(self, x, a, y, b):
        self.points, self.weights = (x, y), (a, b)

    def warm_up(self):
        """Compile kernels, which is not timed."""
        whole = self.points, self.weights
        (x, y), (a, b) = whole
        self.points = x[:50], y[:50]
        self.weights = a[:50] / a[:50].sum(), b[:50] / b[:50].sum()
        self.run(1.0)
        self.points, self.weights = whole

    def run(self, tolerance):
        (x, y), (a, b) = self.points, self.weights
        cost = cdist(x, y, "sqeuclidean") / 2
        if self.reg == 0:
            self.plan = exact_transport(cost, a, b).plan.toarray()
            return
        span = float(np.ptp(cost))
        least = 2 * smallest_tolerance(*cost.shape, span, self.reg)
        found = entropic_transport(cost, a, b, self.reg, np.clip(tolerance, least, span + least))
        np.subtract(found.row_potential[:, None] + found.column_potential, cost, out=cost)
        cost /= self.reg
        self.plan = np.exp(cost, out=cost)
        self.plan *= a[:, None] * b

    def get_result(self):
        return {"P": self.plan}
