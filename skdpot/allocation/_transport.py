"""An allocation of resources, as an estimator."""

import warnings
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skdpot._base import PrivateEstimator, validate_private_data
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.allocation._reading import FAMILIES, make_utility, on_edges, read_network
from skdpot.privacy.allocation_sensitivity import PROTECTED, marginal_bounds
from skdpot.privacy.charging import charge, check_ledger
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.privacy.message_noise import MessageNoise
from skdpot.privacy.random import make_source
from skdpot.privacy.utility_noise import UtilityNoise
from skdpot.privacy.utility_response import UtilityResponse
from skdpot.transport.consensus import check_feasible, consensus, starting_eta, welfare

NEIGHBOURING = "replace_one"
_INPUTS = {"input": UtilityResponse, "input_laplace": UtilityNoise}
_UNITS = {"parameter": "edge", "node": "node"}


class PrivateADMMTransport(PrivateEstimator):
    """Draft of the estimator: see the branch's last commit message for what is missing."""

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "mechanism": [StrOptions({*_INPUTS, "messages"})],
        "protect": [StrOptions(set(PROTECTED))],
        "utility": [StrOptions(set(FAMILIES)), callable],
        "utility_range": ["array-like", None],
        "target_bounds": ["array-like", None],
        "source_bounds": ["array-like", None],
        "adjacency": ["array-like", "sparse matrix", None],
        "eta": [StrOptions({"adaptive"}), Interval(Real, 0, None, closed="neither")],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "averaging": ["boolean"],
        "ledger": "no_validation",
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        epsilon=None,
        delta=0.0,
        *,
        mechanism="input",
        protect="parameter",
        utility="linear",
        utility_range=None,
        target_bounds=None,
        source_bounds=None,
        adjacency=None,
        eta="adaptive",
        n_iter=2000,
        tol=1e-3,
        averaging=True,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.protect = protect
        self.utility = utility
        self.utility_range = utility_range
        self.target_bounds = target_bounds
        self.source_bounds = source_bounds
        self.adjacency = adjacency
        self.eta = eta
        self.n_iter = n_iter
        self.tol = tol
        self.averaging = averaging
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, source_utilities=None):
        X = validate_private_data(self, X, accept_sparse="csr", dtype=np.float64)
        network = read_network(
            X,
            self.adjacency,
            self.target_bounds,
            self.source_bounds,
            private=self.epsilon is not None,
        )
        check_feasible(network)
        values = [on_edges(X, network), None]
        if source_utilities is not None:
            values[1] = on_edges(source_utilities, network)
        if self.epsilon is None:
            result = self._agree(network, values, "gap")
        elif self.mechanism == "messages":
            result = self._by_messages(network, values)
        else:
            result = self._by_inputs(network, values)
        self._sparse = sparse.issparse(X) or sparse.issparse(self.adjacency)
        plan = network.matrix(result.plan)
        self.plan_ = plan if self._sparse else plan.toarray()
        self.duals_ = network.matrix(result.prices)
        self.n_iter_ = result.n_iter
        self.primal_residual_, self.dual_residual_ = result.primal_residual, result.dual_residual
        self._network, self._plan = network, result.plan
        return self

    def _agree(self, network, values, criterion, release=None):
        utilities = [
            make_utility(self.utility, np.zeros(network.n_edges) if of is None else of)
            for of in values
        ]
        adaptive = self.eta == "adaptive"
        width = 1.0 if self.utility_range is None else float(np.ptp(self.utility_range))
        result = consensus(
            network,
            *utilities,
            eta=starting_eta(network, width) if adaptive else float(self.eta),
            adaptive=adaptive,
            criterion=criterion,
            tol=self.tol,
            max_iter=self.n_iter,
            average_from=self.n_iter // 2 + 1 if self.averaging and release else None,
            release=release,
        )
        if criterion == "gap":
            self.welfare_ = welfare(network, *utilities, result.plan)
            if not result.converged:
                warnings.warn(
                    f"after {result.n_iter} rounds the plan is within {result.gap:.1e} of the "
                    f"optimum, not {self.tol:g}: raise n_iter or tol.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
        return result

    def _by_inputs(self, network, values):
        low, high = self._range()
        source = self._source()
        noises = [
            of
            if of is None
            else _INPUTS[self.mechanism](
                self.epsilon,
                low=low,
                high=high,
                degrees=side.degrees,
                protect=self.protect,
                source=source,
            )
            for of, side in zip(values, (network.targets, network.sources), strict=True)
        ]
        self._charge(noises[0].event)
        order, back = network.sources.positions, network.targets.positions
        told = [noises[0].estimate(noises[0].release(values[0])), None]
        if noises[1] is not None:
            told[1] = noises[1].estimate(noises[1].release(values[1][order]))[back]
        return self._agree(network, told, "gap")

    def _by_messages(self, network, values):
        source = self._source()
        noises = []
        for of, side in zip(values, (network.targets, network.sources), strict=True):
            width = 0.0
            if of is not None:
                ranges = {"a": self._range(), "b": (1.0, 1.0), "c": (1.0, 1.0)}
                width = marginal_bounds(self.utility, ranges, float(side.upper.max()))[0]
            noises.append(
                MessageNoise(
                    self.epsilon,
                    self.delta,
                    n_rounds=self.n_iter,
                    degrees=side.degrees,
                    utility_range=width,
                    cap=side.upper,
                    least=side.lower,
                    protect=self.protect,
                    source=source,
                )
            )
        self._charge(noises[0].event)

        def release(n_iter, eta, targets, sources):
            return noises[0].release(targets, eta), noises[1].release(sources, eta)

        return self._agree(network, values, None, release)

    def _range(self):
        if self.utility_range is None:
            raise ValueError(
                "utility_range must be declared for a private fit: the least and the largest "
                "utility that there may be."
            )
        low, high = np.asarray(self.utility_range, dtype=np.float64)
        return float(low), float(high)

    def _source(self):
        check_ledger(self.ledger, NEIGHBOURING, seeded=self.random_state is not None)
        return make_source(self.random_state)

    def _charge(self, event):
        charge(
            self.ledger,
            event,
            unit=_UNITS[self.protect],
            label=f"{type(self).__name__} by {self.mechanism}",
            neighbouring=NEIGHBOURING,
            seeded=self.random_state is not None,
        )
        self.privacy_guarantee_ = PrivacyGuarantee(
            float(self.epsilon), float(self.delta), NEIGHBOURING, _UNITS[self.protect]
        )

    def score(self, X, y=None, *, source_utilities=None):
        check_is_fitted(self)
        X = validate_private_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        values = [on_edges(X, self._network), np.zeros(self._network.n_edges)]
        if source_utilities is not None:
            values[1] = on_edges(source_utilities, self._network)
        return welfare(
            self._network, *(make_utility(self.utility, of) for of in values), self._plan
        )
