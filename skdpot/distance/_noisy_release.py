"""Noisy Sinkhorn between all pairs of groups: with a guarantee, or as it was published."""

from itertools import combinations
from typing import Any

import numpy as np

from skdpot.distance._costs import Question
from skdpot.distance._groups import Groups
from skdpot.distance._noisy_sinkhorn import plan_noisy_sinkhorn, run_noisy_sinkhorn
from skdpot.distance._published_sinkhorn import plan_published_sinkhorn, run_published_sinkhorn
from skdpot.distance._release import Release, Released, unknown
from skdpot.privacy.events import ApproximateDpEvent

# Matrices of costs and of what becomes of them are held in memory, a few at a time.
_LARGEST = 1 << 26


class NoisySinkhornRelease(Release):
    """A run of noisy Sinkhorn for every pair of groups.

    A record takes part in k - 1 of the runs, each of which gets that part of the budget.

    Parameters
    ----------
    question : Question
        What is asked; public.
    groups : Groups
        The groups, whose labels are public.
    epsilon, delta : float
        Budget, or what is claimed.
    published : bool
        Whether to run the published algorithm, for which nothing is guaranteed.
    **options
        Of :func:`plan_noisy_sinkhorn` or :func:`plan_published_sinkhorn`.
    """

    def __init__(
        self,
        question: Question,
        groups: Groups,
        epsilon: float,
        delta: float,
        *,
        published: bool,
        **options: Any,
    ) -> None:
        self.question, self.groups = question, groups
        self.epsilon, self.delta = epsilon, delta
        self._published = published
        make: Any = plan_published_sinkhorn if published else plan_noisy_sinkhorn
        others = len(groups.sizes) - 1
        given = {name: value for name, value in options.items() if value is not None}
        self.plans: list[Any] = []
        for n, m in combinations(groups.sizes.tolist(), 2):
            if n * m > _LARGEST:
                raise ValueError(
                    f"noisy Sinkhorn between {n} and {m} records needs too much memory. Use "
                    "mechanism='output', which also has far less noise."
                )
            self.plans.append(
                make(
                    epsilon / others,
                    delta / others,
                    n,
                    m,
                    question.cost_range,
                    question.reg,
                    **given,
                )
            )

    @property
    def event(self):
        if self._published:
            return None
        if len(self.plans) == 1:
            return self.plans[0].event
        # Of the runs in which a record takes part, the pairs (epsilon, delta) add up.
        return ApproximateDpEvent(self.epsilon, self.delta)

    def run(self, X, source):
        pairs = combinations(self.groups.split(X, X[:0]), 2)
        calls = [(self._between, k, x, y, source.for_user(k)) for k, (x, y) in enumerate(pairs)]
        released = self.question.threads.map(calls)
        costs = np.array([value for value, _, _ in released])
        potentials = {"potentials_": released[0][1:]} if len(released) == 1 else {}
        return Released(costs, unknown(costs), unknown(costs), potentials)

    def _between(
        self, k: int, x: np.ndarray, y: np.ndarray, source: Any
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the cost of a pair, and the potentials of its samples."""
        low, _ = self.question.cost.range
        run: Any = run_published_sinkhorn if self._published else run_noisy_sinkhorn
        value, phi, psi = run(self.question.cost(x, y) - low, self.plans[k], source)
        if not self._published:
            # Noise gives the plan too much mass, or too little; no cost can be out of this range.
            value = min(max(value, 0.0), self.question.cost_range)
        return low + value, low + phi, psi
