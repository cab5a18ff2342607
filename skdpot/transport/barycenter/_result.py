"""What the solvers for a barycenter on given candidates return."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse


@dataclass(frozen=True, eq=False)
class CandidateBarycenter:
    """A barycenter on candidates, and a certificate of how good it is.

    Attributes
    ----------
    chosen : ndarray of shape (n_support,)
        Indices of the chosen candidates, distinct and in ascending order.
    objective : float
        Weighted sum of the groups' exact transport costs to equal masses on the chosen candidates.
    shares : ndarray of shape (n_candidates,)
        Solution of the relaxed problem: non-negative masses of at most ``1 / n_support``, sum 1.
    relaxed_objective : float
        Weighted sum of the groups' exact transport costs to `shares`: an upper bound on the
        optimum of the relaxed problem.
    lower_bound : float
        Lower bound on the optimum of the relaxed problem, and so on the objective of any choice.
    n_iter : int
        Number of rounds: one message of n_candidates numbers from each group, and one to all.
    converged : bool
        Whether ``relaxed_objective - lower_bound`` is at most `tol` times `relaxed_objective`.
    potentials : list of ndarray of shape (n_s,)
        Dual potentials of the groups' points, in units of cost: they prove `lower_bound`.
    plans : list of scipy.sparse.csr_array of shape (n_s, n_support)
        Optimal couplings of the groups with the chosen candidates.
    """

    chosen: np.ndarray
    objective: float
    shares: np.ndarray
    relaxed_objective: float
    lower_bound: float
    n_iter: int
    converged: bool
    potentials: list[np.ndarray]
    plans: list[sparse.csr_array]
