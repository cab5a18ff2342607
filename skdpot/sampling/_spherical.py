"""Private unit vectors."""

from functools import partial

import numpy as np

from skdpot._base import validate_private_data
from skdpot._sklearn_compat import StrOptions
from skdpot.privacy.choices import CapConstruction, CapRejection, rejection_is_affordable
from skdpot.privacy.noise import NoiseSource
from skdpot.sampling._base import BaseLocalSampler, UserSamples
from skdpot.transport import sphere_base_measure, sphere_cap_cost


class SphericalProjectionSampler(BaseLocalSampler):
    """Release private unit vectors, by Wasserstein projection on the sphere.

    A user's vector (an embedding, a direction) is divided by its norm. The sampler replaces this
    unit vector x by a random unit vector y. The density of y with respect to the uniform
    distribution is ``exp(epsilon) c`` on a cap around x, and c elsewhere. The size of the cap is
    optimal: no epsilon-locally private mechanism has a smaller worst-case expectation of the
    distance between x and y to the power `order`.

    **What is protected.** Local differential privacy with epsilon per sample. The unit is a user:
    a user's unit vector may be replaced by any other. All constructor parameters and fitted
    attributes are public, because ``fit`` learns only the number and the names of the columns from
    X. With ``method="rejection"`` the guarantee holds for the released floating-point numbers, in
    every bit. With ``method="direct"`` it holds in real arithmetic only: the last bits of the
    released numbers depend on x, and nothing is proven about them. :attr:`method_` says which
    method was used.

    Parameters
    ----------
    {epsilon}
    order : float, default=1
        The cost of an output is its Euclidean distance from the input to this power.
    method : {"auto", "rejection", "direct"}, default="auto"
        ``"rejection"`` draws uniform vectors until one is accepted, and ``"direct"`` constructs
        the output around the input. ``"auto"`` chooses rejection if it needs at most ``2**22``
        Gaussian variables per sample on average and epsilon is at most 30. This depends only on
        epsilon, `order` and the number of features. With ``order=1``, rejection is used up to
        epsilon = 11 with 1,000 features, 13 with 100 and 21 with 3.
    {n_jobs}
    {ledger}
    {random_state}
    {verbose}

    Attributes
    ----------
    scale_ : float
        The c above: the base measure is c times the uniform distribution.
    threshold_ : float
        The cap is ``(1 - <x, y>) / 2 <= threshold_``.
    worst_case_cost_ : float
        Expected distance between input and output to the power `order`, the same for all inputs.
    method_ : {"rejection", "direct"}
        How samples are drawn.
    {privacy_guarantee_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    WassersteinProjectionSampler : The same mechanism for distributions over finitely many points.
    sphere_base_measure : Computes the scale, the cap and the cost.

    Notes
    -----
    ``transform`` draws new samples at every call, unless `random_state` is an integer. Every call
    is charged with the epsilon of the last `fit`. Two facts are not protected: that a user takes
    part, and that a row was refused (the error names it). With rejection, the running time depends
    on the number of proposals. This number has the same distribution for every input and is
    independent of the released vector, up to the margin for rounding of :ref:`proof-unit-vectors`.

    References
    ----------
    S. Takakura, S. P. Liew and S. Hasegawa, "Differentially Private Sampling from Distributions via
    Wasserstein Projection", 2026, :arxiv:`2605.10015`, Appendix H.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SphericalProjectionSampler
    >>> directions = np.array([[1.0, 0.0, 0.0], [0.6, 0.0, 0.8]])
    >>> sampler = SphericalProjectionSampler(epsilon=2.0, random_state=0).fit(directions)
    >>> bool(np.allclose(np.linalg.norm(sampler.transform(directions), axis=1), 1.0))
    True
    >>> round(sampler.worst_case_cost_, 3)
    0.919
    """

    _parameter_constraints: dict = {
        **BaseLocalSampler._parameter_constraints,
        "method": [StrOptions({"auto", "rejection", "direct"})],
    }

    def __init__(
        self, epsilon=1.0, *, order=1, method="auto", n_jobs=None, ledger=None,
        random_state=None, verbose=None,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.order = order
        self.method = method
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _validate(self, X, reset=True):
        return validate_private_data(self, X, dtype=np.float64, reset=reset)

    def _plan_mechanism(self, epsilon):
        n_features = self.n_features_in_
        base = sphere_base_measure(n_features, epsilon, order=self.order)
        # The choice of the method depends on nothing private, so it tells nothing.
        public = (n_features, epsilon, base.threshold)
        affordable = "rejection" if rejection_is_affordable(*public) else "direct"
        method = affordable if self.method == "auto" else self.method
        draws = (CapRejection if method == "rejection" else CapConstruction)(*public)
        attributes = {
            "scale_": base.scale,
            "threshold_": base.threshold,
            "worst_case_cost_": base.cost,
            "method_": method,
        }
        # With so small an epsilon, a sample hardly depends on the vector.
        costs = base.cost, sphere_base_measure(n_features, 1e-6, order=self.order).cost
        # Proposals of rejection take more than samples, which chunks must leave room for.
        doubles = draws.doubles_per_user
        return UserSamples(draws, costs, attributes, doubles, doubles_per_sample=n_features)

    def _validate_users(self, X):
        X = self._validate(X, reset=False)
        # A row of zeros has no direction, and its number alone is told.
        maxima = np.abs(X).max(axis=1)
        empty = np.flatnonzero(maxima == 0)
        if empty.size:
            raise ValueError(
                f"row {empty[0]} is all zero, so it has no direction. Give it one that does not "
                "depend on anybody's data, such as all ones: its absence reveals that it is empty."
            )
        # Scaled before squares are added, which could overflow or underflow.
        X = X / maxima[:, None]
        return X / np.linalg.norm(X, axis=1, keepdims=True)

    def _run(self, plan, data):
        draw = partial(_draw, plan.release, plan.source)
        return self._map(draw, plan.release, data, np.arange(len(data)))

    def score(self, X, y=None) -> float:
        """Return minus the expected distance between users' vectors and their samples.

        The expectation is exact and the same for all unit vectors, so it reveals nothing about X
        and nothing is charged. It uses the distance itself, not its power `order`, so that
        candidates are comparable.

        Parameters
        ----------
        X : array-like of shape (n_users, n_features)
            Vectors, of any norm but 0.
        y : None
            Ignored.

        Returns
        -------
        float
            Higher is better; zero is perfect.

        Raises
        ------
        ValueError
            If a row of X has no direction.
        """
        # Rows are checked as in a release, although the score is the same for all of them.
        self._read_users(X)
        epsilon = self._fitted.draws.epsilon
        return -sphere_cap_cost(self.n_features_in_, epsilon, self.threshold_, order=1)

    @property
    def _n_features_out(self):
        return self.n_features_in_


def _draw(
    samples: UserSamples, source: NoiseSource, points: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """Return unit vectors, drawn from the sources of the users at these positions."""
    sources = [source.for_user(position) for position in positions]
    # A caller may have made underflow an error, which the values of a row could raise.
    with np.errstate(all="ignore"):
        return samples.draws.draw(points, sources, samples.n_samples)
