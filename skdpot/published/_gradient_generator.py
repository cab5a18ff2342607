"""The published training of a generator, by steps that release noisy gradients."""

import copy
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq

from skdpot._base import warn_user
from skdpot._progress import plain_bar
from skdpot._sklearn_compat import Interval, StrOptions, fit_context, validate_parameters
from skdpot.generative import (
    DEFAULT_BOUNDS,
    BaseGenerator,
    Declared,
    FittedRecords,
    least_noise,
    load_engine,
    load_generator,
    read_points,
    rounded_up,
    trained_network,
    training_of,
    unseen_points,
)
from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.charging import ReleasePlan, relation_of
from skdpot.privacy.checks import check_count, check_delta, check_positive
from skdpot.privacy.events import (
    CentredGaussianDpEvent,
    DpEvent,
    GaussianDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    check_event,
)
from skdpot.privacy.noise import GaussianMechanism
from skdpot.privacy.preview import HasExpectedErrors, NoGuaranteeWarning, PrivacyGuarantee
from skdpot.privacy.random import NoiseSource, make_source
from skdpot.privacy.sensitivity import clipped_gradient_sensitivity, clipped_sum_sensitivity

# The orders among which accountants of the paper's time took the best.
_ORDERS = np.concatenate([np.arange(1.1, 11.0, 0.1), np.arange(11.0, 65.0)])


def published_epsilon(
    noise_scale: float, delta: float, *, batch_size: int, sampling_rate: float, steps: int
) -> float:
    r"""Return the epsilon that the paper states for a training; it does not hold for this code.

    The paper counts every generated point's gradient as a separate query, with its own sample of
    records. But all gradients of a step are computed from one sample: see `sound_epsilon`.

    Parameters
    ----------
    noise_scale : float
        The paper's :math:`\sigma`: noise has the standard deviation :math:`2 \Delta \sigma`, where
        :math:`\Delta` is the norm that each point's gradient is clipped to.
    delta : float
        Above 0 and below 1.
    batch_size : int
        Generated points in a step.
    sampling_rate : float
        Probability with which a record is in a step's sample.
    steps : int
        Number of steps.

    Returns
    -------
    float
        Epsilon, of the Renyi divergences of the queries, with the conversion of the paper's
        definition 3.2.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    sound_epsilon : The epsilon that holds.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021, section 4.3.

    Examples
    --------
    The setting that is printed for MNIST:

    >>> from skdpot.published import published_epsilon, sound_epsilon
    >>> printed = dict(batch_size=50, sampling_rate=1 / 1200, steps=160_000)
    >>> round(published_epsilon(1.5, 1e-5, **printed), 1)
    10.0
    >>> round(sound_epsilon(1.5, 1e-5, **printed))
    846
    """
    query = PoissonSampledDpEvent(sampling_rate, GaussianDpEvent(noise_scale))
    check_event(query)
    n_queries = check_count("batch_size", batch_size) * check_count("steps", steps)
    accountant = RdpAccountant(_ORDERS)
    accountant.compose(query, n_queries)
    return float(np.min(accountant.rdp - math.log(check_delta(delta)) / (_ORDERS - 1)))


def sound_epsilon(
    noise_scale: float, delta: float, *, batch_size: int, sampling_rate: float, steps: int
) -> float:
    r"""Return the epsilon of a training whose gradients are clipped point by point.

    One record may change the gradients of all points. So the :math:`n` rows of a step are one
    query on one sample, with sensitivity :math:`2 \Delta \sqrt n`.

    Parameters
    ----------
    noise_scale : float
        The paper's :math:`\sigma`: noise has the standard deviation :math:`2 \Delta \sigma`, where
        :math:`\Delta` is the norm that each point's gradient is clipped to.
    delta : float
        Above 0 and below 1.
    batch_size : int
        Generated points in a step.
    sampling_rate : float
        Probability with which a record is in a step's sample.
    steps : int
        Number of steps.

    Returns
    -------
    float
        Epsilon, for the relation add/remove.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    published_epsilon : The epsilon that the paper claims.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021, algorithm 1. That the rows of
    a step are one query is proven in :ref:`proof-gradient-sensitivity`.

    Examples
    --------
    One step, of 160,000:

    >>> from skdpot.published import sound_epsilon
    >>> round(sound_epsilon(1.5, 1e-5, batch_size=50, sampling_rate=1 / 1200, steps=1), 1)
    13.8
    """
    noise_scale = check_positive("noise_scale", noise_scale)
    multiplier = noise_scale / math.sqrt(check_count("batch_size", batch_size))
    return epsilon_of(multiplier, delta, sampling_rate=sampling_rate, steps=steps)


# Range in which the paper's noise scale is searched.
_PUBLISHED_SCALES = (0.3, 1e6)


@dataclass(frozen=True)
class TrainingPlan:
    """The releases of a training.

    Parameters
    ----------
    n_steps : int
        Number of steps.
    sampling_rate : float
        Probability with which a record is in a step's sample.
    noise_multiplier : float
        Standard deviation of the noise over the l2 sensitivity of all that a step releases; 0 for
        no noise.
    delta : float
        At which the steps are sold.
    neighbouring : str
        The relation under which the sensitivity is one.
    guaranteed : bool
        Whether a proof covers the noise.
    centred : bool, default=False
        Whether a step releases sums of vectors, one for each record of its sample.

    Examples
    --------
    >>> from skdpot.published._gradient_generator import TrainingPlan
    >>> plan = TrainingPlan(2000, 0.01, 1.84, 1e-5, "add_remove", guaranteed=True)
    >>> round(plan.epsilon_after(2000), 2)
    1.0
    """

    n_steps: int
    sampling_rate: float
    noise_multiplier: float
    delta: float
    neighbouring: str
    guaranteed: bool
    centred: bool = False

    @property
    def event(self) -> DpEvent | None:
        """Return the event to be charged; None without a guarantee."""
        if not self.guaranteed:
            return None
        noise = CentredGaussianDpEvent if self.centred else GaussianDpEvent
        step: DpEvent = noise(self.noise_multiplier)
        if self.sampling_rate < 1:
            step = PoissonSampledDpEvent(self.sampling_rate, step)
        return PlannedDpEvent(SelfComposedDpEvent(step, self.n_steps), self.delta)

    def epsilon_after(self, n_steps: int) -> float:
        """Return the epsilon of the first steps."""
        return epsilon_of(
            self.noise_multiplier,
            self.delta,
            sampling_rate=self.sampling_rate,
            steps=n_steps,
            neighbouring=self.neighbouring,
            centred=self.centred,
        )

    def progress(self, n_steps: int) -> dict[str, str]:
        """Return the text of the progress bar about the budget: public."""
        return {"epsilon": f"{self.epsilon_after(n_steps):.3g}"} if self.guaranteed else {}


def plan_training(
    *,
    epsilon: float | None,
    delta: float,
    sampling_rate: float,
    n_iter: int,
    noise_multiplier: float | None,
    neighbouring: str,
    centred: bool = False,
) -> TrainingPlan:
    """Return the plan of a training within a budget.

    An `epsilon` of None asks for no noise and no guarantee. If `noise_multiplier` is None, noise is
    as little as `n_iter` steps need; else as many of them are planned as the budget allows.
    `centred` says whether a step releases sums of vectors, one for each record of its sample.
    Raises ValueError if not even one step is within the budget.

    Examples
    --------
    >>> from skdpot.published._gradient_generator import plan_training
    >>> options = dict(delta=1e-5, sampling_rate=0.01, neighbouring="add_remove")
    >>> plan = plan_training(epsilon=1.0, n_iter=2000, noise_multiplier=None, **options)
    >>> round(plan.noise_multiplier, 2)
    1.84
    >>> plan_training(epsilon=1.0, n_iter=5000, noise_multiplier=1.84, **options).n_steps
    1992
    """
    options: dict[str, Any] = {
        "sampling_rate": sampling_rate,
        "neighbouring": neighbouring,
        "centred": centred,
    }
    if epsilon is None:
        return TrainingPlan(n_iter, noise_multiplier=0.0, delta=0.0, guaranteed=False, **options)
    if noise_multiplier is None:
        found = least_noise(epsilon, delta, steps=n_iter, **options)
        return TrainingPlan(n_iter, noise_multiplier=found, delta=delta, guaranteed=True, **options)
    n_steps = _affordable(
        epsilon, n_iter, lambda steps: epsilon_of(noise_multiplier, delta, steps=steps, **options)
    )
    return TrainingPlan(n_steps, noise_multiplier=noise_multiplier, delta=delta,
                        guaranteed=True, **options)  # fmt: skip


def plan_published(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    n_iter: int,
    noise_scale: float | None,
    batch_size: int,
) -> TrainingPlan:
    """Return the plan by the paper's accounting, which guarantees nothing.

    `noise_scale` is the paper's sigma: the multiplier of one of `batch_size` generated points'
    gradients. If it is None, noise is as little as `n_iter` steps need. The plan's noise multiplier
    is that of a whole step. Raises ValueError if not even one step is within the budget, or no
    noise is enough.

    Examples
    --------
    >>> from skdpot.published._gradient_generator import plan_published
    >>> plan = plan_published(epsilon=10.0, delta=1e-5, sampling_rate=1 / 1200, n_iter=200_000,
    ...                       noise_scale=1.5, batch_size=50)
    >>> plan.n_steps
    159412
    """
    count: dict[str, Any] = {"batch_size": batch_size, "sampling_rate": sampling_rate}
    if noise_scale is None:
        n_steps, scale = n_iter, _published_scale(epsilon, delta, steps=n_iter, **count)
    else:
        scale = float(noise_scale)
        n_steps = _affordable(
            epsilon, n_iter, lambda steps: published_epsilon(scale, delta, steps=steps, **count)
        )
    return TrainingPlan(
        n_steps, sampling_rate, scale / math.sqrt(batch_size), delta, "add_remove", guaranteed=False
    )


def _published_scale(epsilon: float, delta: float, **training: Any) -> float:
    """Return the smallest noise scale that the paper's accounting allows, or raise."""
    low, high = map(math.log, _PUBLISHED_SCALES)

    def excess(log_scale: float) -> float:
        return published_epsilon(math.exp(log_scale), delta, **training) - epsilon

    if excess(high) > 0:
        raise ValueError(
            f"epsilon={epsilon!r} is less than the paper's conversion of Renyi divergences "
            f"states for any noise at delta={delta!r}. Use accounting='sound', or more epsilon."
        )
    return _PUBLISHED_SCALES[0] if excess(low) < 0 else math.exp(brentq(excess, low, high))


def _affordable(epsilon: float, n_iter: int, price: Callable[[int], float]) -> int:
    """Return the largest number of steps, up to `n_iter`, with a price within epsilon."""
    if price(n_iter) <= epsilon:
        return n_iter
    smallest = price(1)
    if smallest > epsilon:
        raise ValueError(
            f"epsilon={epsilon!r} does not allow a single step with this noise_multiplier, "
            "sampling_rate and delta: the smallest epsilon that does is "
            f"{rounded_up(smallest, 4)!r}. Use that, or more noise, or noise_multiplier=None."
        )
    # False for affordable numbers, True for others and for no number.
    return bisect_left(range(1, n_iter), True, key=lambda n_steps: not price(n_steps) <= epsilon)


# Range of the loss beside a gradient that is clipped as a whole, as a share of its diameter.
_LOSS_SHARE = 0.25
# Weights of the number of records and of losses beside sums over records, as a share of the
# clipping norm.
_COUNT_SHARE = 0.125
# Possible releases of a step, and the engine's name of such a step.
GRADIENTS = {"per_record": "per_record", "images": "per_image", "per_image": "per_image"}


@dataclass(frozen=True)
class StepVector:
    """The composition of a step's vector.

    Attributes
    ----------
    sensitivity : float
        How much one record moves it, in the l2 norm, under the relation of the training.
    sensitivity_to_added : float
        How much an added record moves it.
    clip_norm : float
        Norm that gradients are clipped to.
    per_point : bool
        Whether the gradient of each generated point is clipped on its own.
    loss_weight, count_weight : float
        Multipliers of a loss in [0, 1], and of the number of records.
    """

    sensitivity: float
    sensitivity_to_added: float
    clip_norm: float
    per_point: bool
    loss_weight: float
    count_weight: float

    def settings(self, noise_multiplier: float) -> dict[str, Any]:
        """Return it as settings of the engine; nothing is clipped without noise."""
        return {
            "clip_norm": self.clip_norm if noise_multiplier else math.inf,
            "per_point": self.per_point,
            "loss_weight": self.loss_weight,
            "count_weight": self.count_weight,
            "count_noise": self.count_noise(noise_multiplier),
        }

    def count_noise(self, noise_multiplier: float) -> float:
        """Return the standard deviation of the noise on the number of records, or 0."""
        if not self.count_weight:
            return 0.0
        return noise_multiplier * self.sensitivity / self.count_weight


def make_vector(gradient: str, clip_norm: float, batch_size: int, neighbouring: str) -> StepVector:
    """Return the composition of a step's vector, for gradients clipped to a norm.

    `gradient` is one of "per_record", "images" and "per_image", and `batch_size` the
    number of generated points.

    Examples
    --------
    >>> from skdpot.published._gradient_generator import make_vector
    >>> vector = make_vector("per_record", 8.0, 50, "add_remove")
    >>> vector.count_weight, round(vector.sensitivity, 2)
    (1.0, 8.12)
    """
    if gradient == "per_record":
        # A power of two, so that losses on a grid stay on a grid.
        weight = 2.0 ** round(math.log2(_COUNT_SHARE * clip_norm))
        sensitivity, of_added = (
            clipped_sum_sensitivity(
                clip_norm, count_weight=weight, loss_weight=weight, relation=relation
            )
            for relation in (neighbouring, "add_remove")
        )
        return StepVector(sensitivity, of_added, clip_norm, False, weight, weight)
    per_point = gradient == "per_image"
    n_parts = batch_size if per_point else 1
    weight = _LOSS_SHARE * clipped_gradient_sensitivity(clip_norm, n_parts=n_parts)
    sensitivity = clipped_gradient_sensitivity(clip_norm, n_parts=n_parts, loss_range=weight)
    return StepVector(sensitivity, sensitivity, clip_norm, per_point, weight, 0.0)


def default_clip_norm(gradient: str, n_features: int, l1_weight: float, batch_size: int) -> float:
    """Return about the norm of a gradient between rows at a moderate distance: public."""
    of_record = (0.7 + l1_weight) * math.sqrt(n_features)
    if gradient == "per_record":
        return of_record
    return 2 * of_record / (batch_size if gradient == "per_image" else math.sqrt(batch_size))


class SinkhornGradientGenerator(BaseGenerator):
    """Generator whose network learns from noisy gradients of a Sinkhorn loss (DP-Sinkhorn).

    It is kept for study: with the same budget :class:`skdpot.DPSinkhornGenerator` generates better
    records. A step compares points generated by the network with a Poisson sample of the records,
    by optimal transport, and releases one vector with Gaussian noise. It needs PyTorch.

    **What is protected.** Every record together with its label, with epsilon and delta, for one
    call of :meth:`fit`, including losses and progress. With ``accounting="paper"`` **nothing is
    guaranteed**: the published accounting does not hold (see :ref:`errata-generator`).

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy parameter of a fit. None means no noise and no clipping of gradients, for public
        data: **nothing is guaranteed**, and a ledger is refused.
    delta : float, default=1e-5
        Above 0, and far below one over the number of records.
    bounds : tuple (low, high), default=(0, 1)
        Public. Each is a number, or one number per feature. Values outside are clipped to the
        bounds.
    classes : array-like of shape (n_classes,), default=None
        Public. All possible labels. None means records without labels.
    image_shape : tuple of int, default=None
        (height, width) or (height, width, channels) if a record is an image.
    network : str, torch.nn.Module, callable or NetworkTraining, default="auto"
        The network and its training: see :class:`skdpot.generative.NetworkTraining`. Its `n_iter`
        is the number of steps; with a `noise_multiplier`, the largest number. Its `reg` of None is
        0.04 per feature for ``gradient="per_record"``, and the published 0.05 otherwise.
    gradient : {"per_record", "images", "per_image"}, default="per_record"
        The release of a step. ``"per_record"`` releases sums over records with clipped
        contributions; the noise is scaled to one contribution, so it becomes small with many
        records. ``"per_image"`` releases the gradient at the generated points, clipped for each
        point separately, as published. ``"images"`` clips it as a whole. The last two depend on the
        sample as a whole and may change completely with a single record, so they need much more
        noise.
    accounting : {"sound", "paper"}, default="sound"
        ``"paper"`` scales noise by the published accounting, which is wrong: **nothing is
        guaranteed**, a warning says so, and a ledger is refused. It requires
        ``gradient="per_image"`` and ``neighbouring="add_remove"``.
    noise_multiplier : float, default=None
        Standard deviation of the noise divided by the sensitivity of a step. None chooses the
        smallest noise with which all steps cost epsilon. With a number, there are as many steps as
        the budget allows. For ``accounting="paper"`` it is the published noise scale.
    clip_norm : float, default=None
        Bound to which the norm of a gradient is clipped: for a record, all points together, one
        point, or the weights, according to `gradient`. None chooses by public numbers only.
    neighbouring : {"auto", "add_remove", "replace_one"}, default="auto"
        The neighbouring relation. ``"auto"`` is the relation of the `PrivacyLedger`, and
        ``"add_remove"`` without one.
    secure_noise : bool, default=False
        Whether noise for a GPU is drawn on the CPU, from cryptographic bits only. On a CPU it
        always is.
    score_reg : float, default=0.05
        Regularisation of :meth:`score`, in units of the mean squared difference of features.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged for the whole fit before anything is released, with the unit ``"record"``.
    random_state : int, RandomState or None, default=None
        None uses the operating system's cryptographic source. With an integer, for tests and
        teaching, a fit is *not private*. It also seeds :meth:`sample`.
    warm_start : bool, default=False
        Whether :meth:`fit` continues with the network of the last fit. It is charged like any
        other fit, and the guarantees add up.
    verbose : int, default=0
        Whether to show a progress bar of steps, with the released losses and their epsilon.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The declared labels, if any.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the sensitivity, for a step of the last fit; 0
        without noise.
    n_iter_ : int
        Number of steps since the network was created.
    loss_curve_ : list of float
        The noisy loss of every step, in units of cost. It is part of the release.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee for all fits since the network was created; None for ``epsilon=None``,
        ``accounting="paper"`` and seeded fits.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X has names.

    Warns
    -----
    NoGuaranteeWarning
        For ``accounting="paper"``, with the true epsilon of the training.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator to use instead.
    sound_epsilon : The true epsilon of the published training.

    Notes
    -----
    A step releases gradients, the loss and, for ``gradient="per_record"``, the number of records,
    as one Poisson-sampled Gaussian event. All steps of a fit are priced together. Proofs:
    :ref:`proof-training-steps`, :ref:`proof-record-sums`. A step with an empty sample also
    releases noise.

    All classes are generated equally often, although classes of records may have different sizes.
    So with every choice except ``"per_record"``, transport moves mass from one class to another,
    and a rare class learns to look like others.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021. The loss is that of
    definition 4.3; ``gradient="per_image"`` is algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative import NetworkTraining
    >>> from skdpot.published import SinkhornGradientGenerator
    >>> X = np.random.default_rng(0).random((500, 2))
    >>> network = NetworkTraining("mlp", n_iter=3, sampling_rate=1.0)
    >>> generator = SinkhornGradientGenerator(epsilon=2.0, network=network).fit(X)
    >>> generator.sample(10).shape, generator.n_iter_
    ((10, 2), 3)
    """

    _parameter_constraints = {
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "bounds": ["array-like"],
        "classes": ["array-like", None],
        "image_shape": ["array-like", None],
        "network": "no_validation",
        "gradient": [StrOptions(set(GRADIENTS))],
        "accounting": [StrOptions({"sound", "paper"})],
        "noise_multiplier": [Interval(Real, 0, None, closed="neither"), None],
        "clip_norm": [Interval(Real, 1e-30, 1e30, closed="both"), None],
        "neighbouring": [StrOptions({"auto", "add_remove", "replace_one"})],
        "secure_noise": ["boolean"],
        "score_reg": [Interval(Real, 0, None, closed="neither")],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
    }
    _in_files = (
        "epsilon", "delta", "gradient", "accounting", "noise_multiplier", "clip_norm",
        "neighbouring", "secure_noise", "score_reg", "warm_start", "verbose",
    )  # fmt: skip

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-5,
        *,
        bounds=DEFAULT_BOUNDS,
        classes=None,
        image_shape=None,
        network="auto",
        gradient="per_record",
        accounting="sound",
        noise_multiplier=None,
        clip_norm=None,
        neighbouring="auto",
        secure_noise=False,
        score_reg=0.05,
        ledger=None,
        random_state=None,
        warm_start=False,
        verbose=0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.image_shape = image_shape
        self.network = network
        self.gradient = gradient
        self.accounting = accounting
        self.noise_multiplier = noise_multiplier
        self.clip_norm = clip_norm
        self.neighbouring = neighbouring
        self.secure_noise = secure_noise
        self.score_reg = score_reg
        self.ledger = ledger
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Train the network. The ledger is charged first, with the whole cost.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
            Private records. Values outside `bounds` are clipped, without a warning, and NaN is read
            as the middle. Without epsilon, NaN is refused.
        y : array-like of shape (n_records,), default=None
            Private labels, each one of `classes`; records with other labels count nowhere.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ModuleNotFoundError
            If PyTorch is not installed.
        BudgetExceededError
            If the ledger does not allow the fit. Nothing is released in this case.
        ValueError
            If a parameter, or a type or shape of the data, is wrong, or epsilon does not allow a
            single step with this `noise_multiplier`. Nothing is charged in this case.
        """
        return self._fit(X, y)

    def _validate(self, X: Any, y: Any) -> "_Prepared":
        relation = relation_of(self.ledger, self.neighbouring)
        continued = self.warm_start and hasattr(self, "_fitted")
        earlier: Any = self._fitted if continued else None
        declared = Declared(self.bounds, self.classes, self.image_shape)
        load_engine()
        # A copy, so that later changes of the parameters do not affect this plan.
        parameters = copy.copy(training_of(self.network))
        validate_parameters(parameters)
        private = self.epsilon is not None
        records = read_points(self, X, y, declared, reset=earlier is None, private=private)
        steps = self._steps(parameters, records.space, relation)
        source = make_source(self.random_state).for_user(self.n_iter_ if earlier else 0)
        within = load_engine().within_memory
        trainer = within(self._trainer, steps.training, source, earlier, relation)
        held = within(trainer.hold, records.points[:], records.codes)
        within(trainer.dry_run)
        bar = partial(plain_bar, desc=type(self).__name__, unit=" steps", disable=not self.verbose)
        steps = replace(steps, trainer=trainer, earlier=earlier, progress=bar)
        return _Prepared(steps, held, source, relation)

    def _declared(self, n_records: int, columns: Any) -> "_Prepared":
        """Return the steps of a new training, without records and without a network."""
        relation = relation_of(self.ledger, self.neighbouring)
        declared = Declared(self.bounds, self.classes, self.image_shape)
        load_engine()
        parameters = training_of(self.network)
        validate_parameters(parameters)
        steps = self._steps(parameters, unseen_points(declared, columns).space, relation)
        return _Prepared(steps, None, make_source(self.random_state), relation)

    def _steps(self, parameters: Any, space: Any, relation: str) -> "GradientSteps":
        """Return the planned steps, still without a network."""
        plan = self._training_plan(parameters, relation)
        vector = self._vector(space.n_features, parameters, relation)
        training = load_engine().Trainer(
            parameters, space, GRADIENTS[self.gradient], **vector.settings(plan.noise_multiplier)
        )
        return GradientSteps(
            training, plan, vector, bool(self.secure_noise), self._kind_of_training()
        )

    def _plan(self, data: "_Prepared") -> ReleasePlan:
        plan = data.steps.plan
        earlier: Any = PrivacyGuarantee(0.0, 0.0, data.relation, "record")
        if data.steps.earlier is not None:
            earlier = self.privacy_guarantee_
        guarantee = None
        if earlier is not None:
            guarantee = PrivacyGuarantee(
                float(self.epsilon or 0) + earlier.epsilon,
                float(self.delta) + earlier.delta,
                data.relation,
                "record",
            )
        return ReleasePlan(
            data.steps,
            plan.event,
            data.source,
            f"{type(self).__name__}, {plan.n_steps} steps",
            guarantee,
            neighbouring=data.relation,
            parameters=("neighbouring", "accounting"),
        )

    def _run(self, plan: ReleasePlan, data: "_Prepared") -> FittedRecords:
        steps = data.steps.plan
        if self.accounting == "paper":
            warn_user(
                "accounting='paper' counts every generated point as a query of its own. The stated "
                f"epsilon={self.epsilon:g} guarantees nothing: the epsilon of this training is "
                f"{steps.epsilon_after(steps.n_steps):.4g}.",
                NoGuaranteeWarning,
            )
        return plan.release.run(data.records, plan.source)

    def _keep(self, plan: ReleasePlan, released: FittedRecords) -> None:
        self._set_fitted(released, plan.release.plan.noise_multiplier)

    @classmethod
    def load(cls, path, *, network=None, ledger=None) -> "SinkhornGradientGenerator":
        """Return the fitted generator that was saved in a file; no code in it is executed.

        Parameters
        ----------
        path : str or path-like
            The file.
        network : torch.nn.Module or callable, default=None
            The network of the saved generator, if it was not given by name.
        ledger : PrivacyLedger, default=None
            Ledger for later fits.

        Returns
        -------
        SinkhornGradientGenerator
            Fitted.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If the file is damaged or does not contain a generator, or the network is missing or
            differs from the saved one.
        """
        return load_generator(cls, path, ledger, network=network)

    def _training_plan(self, training: Any, relation: str) -> TrainingPlan:
        """Return the number of steps and their noise, or raise."""
        options: dict[str, Any] = {
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "delta": float(self.delta),
            "sampling_rate": float(training.sampling_rate),
            "n_iter": int(training.n_iter),
        }
        if self.accounting == "sound":
            return plan_training(
                **options,
                noise_multiplier=self.noise_multiplier,
                neighbouring=relation,
                centred=self.gradient == "per_record",
            )
        of_paper = (self.gradient, relation) == ("per_image", "add_remove")
        if self.epsilon is None or not of_paper:
            raise ValueError(
                "accounting='paper' needs gradient='per_image', neighbouring='add_remove' and an "
                "epsilon."
            )
        return plan_published(
            **options, noise_scale=self.noise_multiplier, batch_size=int(training.batch_size)
        )

    def _vector(self, n_features: int, training: Any, relation: str) -> StepVector:
        """Return the composition of a step's vector."""
        batch_size = int(training.batch_size)
        clip_norm = self.clip_norm
        if clip_norm is None:
            clip_norm = default_clip_norm(
                self.gradient, n_features, float(training.l1_weight), batch_size
            )
        return make_vector(self.gradient, float(clip_norm), batch_size, relation)

    def _trainer(
        self, training: Any, source: NoiseSource, earlier: FittedRecords | None, relation: str
    ) -> Any:
        """Return a network and its training, or raise if a setting is wrong."""
        first_weights, latents = source.bits(62, 2).tolist()
        if earlier is None or earlier.network is None:
            return training.start(training.new_network(first_weights), latents)
        self._check_continues(training, earlier, relation)
        # A copy, so that the fitted network is unchanged if this fit fails.
        trainer = training.start(copy.deepcopy(earlier.network.network), latents)
        if earlier.network.state.get("of") == self._kind_of_training():
            trainer.restore(earlier.network.state["state"])
        return trainer

    def _kind_of_training(self) -> tuple[Any, ...]:
        """Return the settings that two trainings must share for one to continue the other."""
        training = training_of(self.network)
        return training.optimizer, GRADIENTS[self.gradient], int(training.batch_size)

    def _check_continues(self, training: Any, earlier: Any, relation: str) -> None:
        """Raise if the network of the last fit is not for this one."""
        promised, space, network = self.privacy_guarantee_, training.space, earlier.network
        labels = [
            None if space_of_fit.classes is None else space_of_fit.classes.tolist()
            for space_of_fit in (space, earlier)
        ]
        if (
            labels[0] != labels[1]
            or not np.array_equal(space.box, earlier.space.box)
            or training.latent_dim != network.latent_dim
            or training.name != network.name
            # Guarantees under different relations do not add up.
            or (promised and promised.neighbouring != relation)
        ):
            raise ValueError(
                "warm_start=True continues with the network of the last fit, so classes, bounds, "
                "network, latent_dim and neighbouring must be unchanged. Use warm_start=False."
            )


@dataclass(frozen=True, eq=False)
class GradientSteps(HasExpectedErrors):
    """The release of a training: its steps, and the state that they start from."""

    training: Any
    plan: TrainingPlan
    vector: StepVector
    secure: bool
    kind: tuple[Any, ...]
    trainer: Any = None
    earlier: FittedRecords | None = None
    progress: Any = None

    def run(self, records: Any, source: NoiseSource) -> FittedRecords:
        """Make all steps."""
        plan, mechanism = self.plan, None
        if plan.noise_multiplier:
            # Replacing a record moves centred sums by twice as much as adding one. Rounding to the
            # grid adds the same to both. So half of the sensitivity to replacement would not cover
            # an addition.
            halved = plan.centred and plan.neighbouring == "replace_one"
            vector = self.vector
            mechanism = GaussianMechanism.from_noise_multiplier(
                plan.noise_multiplier * (2 if halved else 1),
                vector.sensitivity_to_added if halved else vector.sensitivity,
                n_coordinates=self.trainer.vector_size,
            )
        self.trainer.make_private(mechanism, source, secure=self.secure)
        with self.progress(total=plan.n_steps) as bar:
            losses = self.trainer.run(records, source, plan.n_steps, bar, plan.progress)
        before = self.earlier.network.losses if self.earlier and self.earlier.network else []
        state = {"of": self.kind, "state": self.trainer.state()}
        network = trained_network(self.trainer, [*before, *losses], state)
        return FittedRecords(self.training.space, None, network)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Private records on their device, and the steps that use them."""

    steps: GradientSteps
    records: Any
    source: NoiseSource
    relation: str
