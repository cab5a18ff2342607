"""The common base of all local samplers: preparation, charge and release.

doc/theory/releases.csv has the sensitivity, noise and proof of each release in one row.
"""

import re
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skdpot._base import PrivateEstimator, count_columns, make_bar
from skdpot._sklearn_compat import Interval, fit_context, one_blas_thread, validate_parameters
from skdpot.privacy.charging import ExpectedError, PrivacyGuarantee, ReleasePlan
from skdpot.privacy.checks import check_count, names_of, refuse_unused
from skdpot.privacy.events import DpEvent, PureDpEvent, SelfComposedDpEvent
from skdpot.privacy.noise import NoiseSource, make_source
from skdpot.transport import check_epsilon


@dataclass(frozen=True)
class UserSamples:
    """The samples of all users by a mechanism, all of which is public.

    Attributes
    ----------
    draws : object
        Draws samples from distributions, or around vectors; it has an `epsilon`.
    worst_costs : tuple of float or None
        The expected cost of a sample for the worst user, and without any data, if it is known.
    attributes : dict
        Fitted attributes, by name.
    doubles_per_user : int
        How many doubles the work on one user takes, besides samples.
    project : callable, default=None
        Returns the distributions from which samples of users are drawn, where these are finite.
    input_points : ndarray, default=None
        The points that users' distributions are over, if output points are of the same space.
    doubles_per_sample : int
        How many doubles a sample takes.
    n_samples : int
        Samples of each user.
    """

    draws: Any
    worst_costs: tuple[float, float] | None
    attributes: dict[str, Any]
    doubles_per_user: int
    project: Callable[[Any], np.ndarray] | None = None
    input_points: np.ndarray | None = None
    doubles_per_sample: int = 1
    n_samples: int = 1

    @property
    def event(self) -> DpEvent:
        """Return the event to be charged; a user's samples compose."""
        event = PureDpEvent(self.draws.epsilon)
        return event if self.n_samples == 1 else SelfComposedDpEvent(event, self.n_samples)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the largest expected cost of a sample; its scale is the cost of a blind guess."""
        costs = self.worst_costs
        return () if costs is None else (ExpectedError("cost of a sample at worst", *costs),)


class BaseLocalSampler(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator, metaclass=ABCMeta
):
    """Base of the mechanisms that draw private samples from a user's data.

    ``fit`` releases nothing. It prepares a public mechanism, kept as ``_fitted``. A subclass reads
    X in ``_validate``, returns the mechanism in ``_plan_mechanism``, reads users in
    ``_validate_users`` and draws their samples in ``_run``.

    Shared parameters are documented once: a line ``{name}`` in the docstring of a subclass is
    replaced by the entry of that name in the docstring of a base.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of one sample.
    n_jobs : int, default=None
        Number of threads (or of workers of the active joblib backend) over users.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged with epsilon per sample, before anything is released.
    random_state : int or RandomState, default=None
        None uses the operating system's cryptographic source. Seeded samples can be reproduced, so
        they are *not private*: use seeds for tests and teaching only.
    verbose : bool, default=None
        Whether to show a progress bar over chunks of users. None shows it on a terminal after three
        seconds.

    Attributes
    ----------
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee for one sample of a user; None for seeded samples.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns of X, if X has names.
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "order": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [Integral, None],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "verbose": ["verbose", None],
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # An entry of a numpydoc section, and a line that stands for one.
        entry_of = re.compile(r"^    (\w+) : .*\n(?:        .*\n)+", re.MULTILINE)
        shared = re.compile(r"^    \{(\w+)\}\n", re.MULTILINE)
        # Nearer bases win, so that a subclass may say more about a shared parameter.
        told = "".join(base.__doc__ or "" for base in reversed(cls.__mro__[1:]))
        entries = {entry[1]: entry[0] for entry in entry_of.finditer(told)}
        if cls.__doc__:
            cls.__doc__ = shared.sub(lambda line: entries.get(line[1], line[0]), cls.__doc__)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Prepare the mechanism; nothing is released, and nothing is charged.

        ``fit`` learns only the number and the names of the columns from X.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_features)
            One row per user.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted sampler.

        Raises
        ------
        ValueError
            If a parameter is wrong, X cannot be read, or the ledger does not accept such samples.
        """
        refuse_unused(X, y)
        return self._prepare(X)

    def _declared(self, n_records: int, columns: Any) -> None:
        """Keep the declared number of columns, the only thing that a fit learns from X."""
        if columns is not None or not hasattr(self, "n_features_in_"):
            # Public points or costs say how many columns there are.
            places = [getattr(self, name, None) for name in ("input_points", "cost_matrix")]
            sizes = [len(each) for each in places if each is not None]
            self.n_features_in_ = count_columns(columns, sizes[0] if sizes else None)

    def _plan(self, data: Any) -> ReleasePlan:
        """Return the plan of one sample of each user."""
        # A fit draws nothing, and must not advance a RandomState.
        source = make_source(None if self.random_state is None else 0)
        # Everything here is public: parameters, and the number of columns.
        return self._plan_samples(self._plan_mechanism(check_epsilon(self.epsilon)), source)

    def _plan_samples(self, samples: UserSamples, source: NoiseSource) -> ReleasePlan:
        return ReleasePlan(
            samples,
            samples.event,
            source,
            label=type(self).__name__,
            guarantee=PrivacyGuarantee(
                epsilon=samples.draws.epsilon,
                delta=0.0,
                # The whole data of a user is replaced; it is public who takes part.
                neighbouring="replace_one",
                unit="user",
                not_protected=("who takes part", "that a row was refused", "running time"),
            ),
            unit="user",
            n_records=1,
            advice="Use a larger epsilon, and outputs that do not all cost the same.",
        )

    def _keep(self, plan: ReleasePlan, released: Any) -> None:
        self._fitted = plan.release
        self.__dict__.update(plan.release.attributes)

    @abstractmethod
    def _plan_mechanism(self, epsilon: float) -> UserSamples:
        """Return the mechanism, or raise; all of it is public."""

    @abstractmethod
    def _validate_users(self, X: Any) -> Any:
        """Return the users' data, or raise."""

    def transform(self, X) -> Any:
        """Release one epsilon-LDP sample per user.

        Charges epsilon to the ledger: every call is assumed to concern the same users.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_features)
            One row per user, as in :meth:`sample`.

        Returns
        -------
        ndarray of shape (n_users, n_features_out)
            One sample per row. Private, unless seeded.

        Raises
        ------
        ValueError, BudgetExceededError
            As in :meth:`sample`.
        """
        return self._as_output(self.sample(X)[:, 0])

    def _as_output(self, samples: np.ndarray) -> np.ndarray:
        """Return one sample of each user in the form of `transform`."""
        return samples

    def sample(self, X, n_samples=1) -> np.ndarray:
        """Release private samples for every user.

        Charges ``n_samples * epsilon`` to the ledger, because the epsilons of a user's samples add
        up.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_features)
            One row per user. Samplers of distributions take non-negative weights, which are
            normalised; no row may be all zero. The spherical sampler takes vectors and uses only
            their direction.
        n_samples : int, default=1
            Samples per user.

        Returns
        -------
        ndarray of shape (n_users, n_samples) or (n_users, n_samples, n_features)
            Indices of output points, or unit vectors. Private with ``n_samples * epsilon`` per
            user, unless seeded.

        Raises
        ------
        ValueError
            If a parameter is wrong, or a row of X cannot be used; the error names the row. Or if
            the index of X names a user twice, or `epsilon` was set after the fit. Nothing is
            charged in this case.
        BudgetExceededError
            If the ledger does not allow the release. Nothing is released in this case.
        """
        n_samples = check_count("n_samples", n_samples)
        users = self._read_users(X)
        names, epsilon = names_of(X), self._fitted.draws.epsilon
        # Integers without a name are positions, as in tables that were put together.
        if len(set(names)) < len(names) and (X.index.name or X.index.dtype.kind not in "iu"):
            raise ValueError(
                "the index of X has a user twice, whose samples would be charged as one: add up "
                "rows by X.groupby(level=0).sum(), or drop other names by X.reset_index(drop=True)."
            )
        if epsilon != float(self.epsilon):
            raise ValueError(f"the fit had epsilon={epsilon:g}, not {self.epsilon:g}: fit again.")
        samples = replace(self._fitted, n_samples=n_samples)
        plan = self._plan_samples(samples, make_source(self.random_state))
        # Charged once for all users: each of them has these samples.
        released = self._guarded(lambda: self._release(plan, users))
        # It changes if random_state was set since the fit.
        self.privacy_guarantee_ = plan.guarantee
        return released

    def _read_users(self, X: Any) -> Any:
        """Return the users' data, with the current parameters; raise before any charge."""
        # Parameters may have been set since the fit.
        check_is_fitted(self)
        validate_parameters(self)
        # It raises if joblib does not understand n_jobs.
        effective_n_jobs(self.n_jobs)
        # A caller may have made underflow an error, which the values of a row could raise.
        with np.errstate(all="ignore"):
            return self._validate_users(X)

    def _map(self, function: Callable, samples: UserSamples, *per_user: Any) -> np.ndarray:
        """Apply a function to chunks of the arrays `per_user`, and stack the results.

        Chunks are small enough for a cache, and enough of them for all workers. Workers are threads
        unless another joblib backend is active.
        """
        n_users = per_user[0].shape[0]
        # A progress bar is shown over a hundred chunks, and the work on one takes up to 512 KiB.
        n_chunks = max(effective_n_jobs(self.n_jobs), 100 if self.verbose else 1)
        of_samples = samples.n_samples * samples.doubles_per_sample
        in_cache = (1 << 16) // max(samples.doubles_per_user, of_samples)
        size = max(1, min(in_cache, -(-n_users // n_chunks)))
        chunks = [slice(start, start + size) for start in range(0, n_users, size)]
        # Without max_nbytes=None, joblib would write large chunks, which are private, to files.
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads", max_nbytes=None)
        tasks = (delayed(function)(*(array[chunk] for array in per_user)) for chunk in chunks)
        bar = {"desc": type(self).__name__, "total": len(chunks), "verbose": self.verbose}
        with one_blas_thread(), make_bar(tasks, **bar) as watched:
            return np.concatenate(parallel(watched))
