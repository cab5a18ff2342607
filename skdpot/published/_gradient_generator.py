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

from skdpot import generative
from skdpot._base import make_bar, warn_user
from skdpot._sklearn_compat import Interval, StrOptions, fit_context, validate_parameters
from skdpot.privacy import events as ev
from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.charging import NoGuaranteeWarning, PrivacyGuarantee, ReleasePlan, relation_of
from skdpot.privacy.checks import check_count, check_delta, check_positive
from skdpot.privacy.noise import GaussianMechanism, NoiseSource, make_source
from skdpot.privacy.sensitivity import clipped_gradient_sensitivity, clipped_sum_sensitivity
from skdpot.releases import ReleaseSeries


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
    query = ev.PoissonSampledDpEvent(sampling_rate, ev.GaussianDpEvent(noise_scale))
    ev.check_event(query)
    # As the paper counts: every point of every step is a query of its own.
    n_queries = check_count("batch_size", batch_size) * check_count("steps", steps)
    # The orders among which accountants of the paper's time took the best.
    orders = np.concatenate([np.arange(1.1, 11.0, 0.1), np.arange(11.0, 65.0)])
    accountant = RdpAccountant(orders)
    accountant.compose(query, n_queries)
    return float(np.min(accountant.rdp - math.log(check_delta(delta)) / (orders - 1)))


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
    # All rows of a step are one query, so its sensitivity is that of one row times the root of
    # their number.
    multiplier = noise_scale / math.sqrt(check_count("batch_size", batch_size))
    return epsilon_of(multiplier, delta, sampling_rate=sampling_rate, steps=steps)


def affordable_steps(epsilon: float, n_iter: int, price: Callable[[int], float]) -> int:
    """Return the largest number of steps, up to `n_iter`, with a price within epsilon, or raise."""
    # The usual case needs one price and no search.
    if price(n_iter) <= epsilon:
        return n_iter
    smallest = price(1)
    if smallest > epsilon:
        raise ValueError(
            f"epsilon={epsilon!r} does not allow a single step with this noise_multiplier, "
            "sampling_rate and delta: the smallest epsilon that does is "
            f"{generative.rounded_up(smallest, 4)!r}. Use that, or more noise, or "
            "noise_multiplier=None."
        )
    # False for affordable numbers, True for others and for no number.
    return bisect_left(range(1, n_iter), True, key=lambda n_steps: not price(n_steps) <= epsilon)


def published_noise_scale(
    epsilon: float, delta: float, *, low: float = 0.3, high: float = 1e6, **training: Any
) -> float:
    """Return the smallest noise scale that the paper's accounting allows, or raise.

    It is searched between two bounds.

    Examples
    --------
    >>> from skdpot.published._gradient_generator import published_noise_scale
    >>> printed = dict(batch_size=50, sampling_rate=1 / 1200, steps=160_000)
    >>> round(published_noise_scale(10.0, 1e-5, **printed), 2)
    1.5
    """

    def excess(log_scale: float) -> float:
        return published_epsilon(math.exp(log_scale), delta, **training) - epsilon

    if excess(math.log(high)) > 0:
        raise ValueError(
            f"epsilon={epsilon!r} is less than the paper's conversion of Renyi divergences "
            f"states for any noise at delta={delta!r}. Use accounting='sound', or more epsilon."
        )
    if excess(math.log(low)) < 0:
        return low
    return math.exp(brentq(excess, math.log(low), math.log(high)))


def step_vector(
    gradient: str, clip_norm: float, batch_size: int, neighbouring: str
) -> tuple[float, float, float]:
    """Return the sensitivity of a step's vector, and the weights of its loss and of its count.

    The vector has gradients that are clipped to a norm, a loss in [0, 1] times its weight and, for
    "per_record", the number of records times its weight. `batch_size` is the number of generated
    points.

    Examples
    --------
    >>> from skdpot.published._gradient_generator import step_vector
    >>> sensitivity, loss_weight, count_weight = step_vector("per_record", 8.0, 50, "add_remove")
    >>> round(sensitivity, 2), loss_weight, count_weight
    (8.12, 1.0, 1.0)
    """
    if gradient == "per_record":
        # An eighth of the norm makes the noise 2 % larger. A power of two, so that losses stay
        # on their grid.
        weight = 2.0 ** round(math.log2(0.125 * clip_norm))
        sensitivity = clipped_sum_sensitivity(
            clip_norm, count_weight=weight, loss_weight=weight, relation=neighbouring
        )
        return sensitivity, weight, weight
    # One record may turn the gradients of all points, so their diameter counts. A loss over a
    # quarter of it makes the noise 3 % larger.
    weight = 0.25 * clipped_gradient_sensitivity(clip_norm, n_parts=batch_size)
    sensitivity = clipped_gradient_sensitivity(clip_norm, n_parts=batch_size, loss_range=weight)
    return sensitivity, weight, 0.0


@dataclass(frozen=True, eq=False)
class GradientSteps(ReleaseSeries):
    """The release of a training: its planned steps, which are public, and its network.

    `noise_multiplier` is the standard deviation of the noise over the l2 sensitivity of all that a
    step releases, or 0. `sensitivities` are those under the relation of the training, and to an
    added record. `guaranteed` says whether a proof covers the noise.
    """

    training: Any
    gradient: str
    neighbouring: str
    delta: float
    n_steps: int
    noise_multiplier: float
    guaranteed: bool
    sensitivities: tuple[float, float]
    secure: bool
    trainer: Any = None
    progress: Any = None

    @property
    def sampling_rate(self) -> float:
        """Return the probability with which a record is in a step's sample."""
        return float(self.training.parameters.sampling_rate)

    @property
    def event(self) -> ev.DpEvent | None:
        """Return the event to be charged; None without a guarantee."""
        if not self.guaranteed:
            return None
        noise = ev.CentredGaussianDpEvent if self.gradient == "per_record" else ev.GaussianDpEvent
        step: ev.DpEvent = noise(self.noise_multiplier)
        # Samples of all records are no samples: their price needs no search over orders.
        if self.sampling_rate < 1:
            step = ev.PoissonSampledDpEvent(self.sampling_rate, step)
        return ev.PlannedDpEvent(ev.SelfComposedDpEvent(step, self.n_steps), self.delta)

    def epsilon_after(self, n_steps: int) -> float:
        """Return the epsilon of the first steps."""
        return epsilon_of(
            self.noise_multiplier,
            self.delta,
            sampling_rate=self.sampling_rate,
            steps=n_steps,
            neighbouring=self.neighbouring,
            # Only sums over records are centred: a gradient of transport turns as a whole.
            centred=self.gradient == "per_record",
        )

    def run(self, records: Any, source: NoiseSource) -> generative.FittedRecords:
        """Make all steps."""
        mechanism = None
        if self.noise_multiplier:
            # Replacing a record moves centred sums by twice as much as adding one. Rounding to the
            # grid adds the same to both. So half of the sensitivity to replacement would not cover
            # an addition.
            halved = (self.gradient, self.neighbouring) == ("per_record", "replace_one")
            mechanism = GaussianMechanism.from_noise_multiplier(
                self.noise_multiplier * (2 if halved else 1),
                self.sensitivities[halved],
                n_coordinates=self.trainer.vector_size,
            )
        self.trainer.make_private(mechanism, source, secure=self.secure)

        # Public: the price of the first steps, whatever the records are.
        def spent(n_steps: int) -> dict[str, str]:
            return {"epsilon": f"{self.epsilon_after(n_steps):.3g}"} if self.guaranteed else {}

        with self.progress(total=self.n_steps) as bar:
            losses = self.trainer.run(records, source, self.n_steps, bar, spent)
        return generative.FittedRecords(
            self.training.space, None, generative.trained_network(self.trainer, losses)
        )


class SinkhornGradientGenerator(generative.BaseGenerator):
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
    gradient : {"per_record", "per_image"}, default="per_record"
        The release of a step. ``"per_record"`` releases sums over records with clipped
        contributions; the noise is scaled to one contribution, so it becomes small with many
        records. ``"per_image"`` releases the gradient at the generated points, clipped for each
        point separately, as published. It depends on the sample as a whole and may change
        completely with a single record, so it needs much more noise.
    accounting : {"sound", "paper"}, default="sound"
        ``"paper"`` scales noise by the published accounting, which is wrong: **nothing is
        guaranteed**, a warning says so, and a ledger is refused. It requires
        ``gradient="per_image"`` and ``neighbouring="add_remove"``.
    noise_multiplier : float, default=None
        Standard deviation of the noise divided by the sensitivity of a step. None chooses the
        smallest noise with which all steps cost epsilon. With a number, there are as many steps as
        the budget allows. For ``accounting="paper"`` it is the published noise scale.
    clip_norm : float, default=None
        Bound to which the norm of a gradient is clipped: for a record, or for a generated point,
        according to `gradient`. None chooses by public numbers only.
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
    verbose : bool, default=None
        Whether to show a progress bar of steps, with the released losses and their epsilon. None
        shows it on a terminal after three seconds.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The declared labels, if any.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the sensitivity of a step; 0 without noise.
    n_iter_ : int
        Number of steps.
    loss_curve_ : list of float
        The noisy loss of every step, in units of cost. It is part of the release.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee; None for ``epsilon=None``, ``accounting="paper"`` and seeded fits.
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
    So with ``"per_image"``, transport moves mass from one class to another, and a rare class learns
    to look like others.

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
    >>> X = np.random.default_rng(0).random((100, 2))
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
        "gradient": [StrOptions({"per_record", "per_image"})],
        "accounting": [StrOptions({"sound", "paper"})],
        "noise_multiplier": [Interval(Real, 0, None, closed="neither"), None],
        "clip_norm": [Interval(Real, 1e-30, 1e30, closed="both"), None],
        "neighbouring": [StrOptions({"auto", "add_remove", "replace_one"})],
        "secure_noise": ["boolean"],
        "score_reg": [Interval(Real, 0, None, closed="neither")],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "verbose": ["verbose", None],
    }
    _in_files = (
        "epsilon", "delta", "gradient", "accounting", "noise_multiplier", "clip_norm",
        "neighbouring", "secure_noise", "score_reg", "verbose",
    )  # fmt: skip

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-5,
        *,
        bounds=(0, 1),
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
        verbose=None,
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

    def _validate(self, X: Any, y: Any) -> tuple[GradientSteps, Any, NoiseSource]:
        generative.load_engine()
        records = generative.read_points(self, X, y, reset=True, private=self.epsilon is not None)
        steps = self._steps(records.space)
        training, source = steps.training, make_source(self.random_state).for_user(0)
        # It tries a step on other records: what would fail is refused before the charge.
        trainer = training.start(source)
        held = trainer.hold(records[:], records.labels)
        bar = partial(make_bar, desc=type(self).__name__, unit=" steps", verbose=self.verbose)
        return replace(steps, trainer=trainer, progress=bar), held, source

    def _declared(self, n_records: int, columns: Any) -> tuple[GradientSteps, Any, NoiseSource]:
        """Return the planned steps, without records and without a network."""
        generative.load_engine()
        steps = self._steps(generative.unseen_points(self, columns).space)
        return steps, None, make_source(self.random_state)

    def _steps(self, space: Any) -> GradientSteps:
        """Return the planned steps, still without a network, or raise."""
        # A copy, so that later changes of the parameters do not affect this plan.
        parameters = copy.copy(generative.training_of(self.network))
        # Its own parameters are checked by no scikit-learn, which sees one nested object.
        validate_parameters(parameters)
        relation = relation_of(self.ledger, self.neighbouring)
        delta, rate = float(self.delta), float(parameters.sampling_rate)
        n_iter, batch_size = int(parameters.n_iter), int(parameters.batch_size)
        per_record = self.gradient == "per_record"
        n_steps, multiplier = n_iter, 0.0
        price: Callable[..., float] = epsilon_of
        least: Callable[..., float] = generative.min_noise
        options: dict[str, Any] = {"neighbouring": relation, "centred": per_record}
        if self.accounting == "paper":
            # The published proof, wrong as it is, is about these alone.
            if self.epsilon is None or per_record or relation != "add_remove":
                raise ValueError(
                    "accounting='paper' needs gradient='per_image', neighbouring='add_remove' and "
                    "an epsilon."
                )
            price, least = published_epsilon, published_noise_scale
            options = {"batch_size": batch_size}
        if self.epsilon is not None:
            options["sampling_rate"] = rate
            multiplier, epsilon = self.noise_multiplier, float(self.epsilon)
            if multiplier is None:
                multiplier = least(epsilon, delta, steps=n_iter, **options)
            else:
                n_steps = affordable_steps(
                    epsilon, n_iter, lambda n: price(multiplier, delta, steps=n, **options)
                )
        if self.accounting == "paper":
            # The paper's noise scale is for the gradient of one of `batch_size` points.
            multiplier /= math.sqrt(batch_size)
        clip_norm = self.clip_norm
        if clip_norm is None:
            # About the norm of a gradient between rows at a moderate distance: public.
            clip_norm = (0.7 + float(parameters.l1_weight)) * math.sqrt(space.n_features)
            clip_norm *= 1 if per_record else 2 / batch_size
        # Twice: the noise is scaled to one relation, and checked against additions.
        of_step = partial(step_vector, self.gradient, float(clip_norm), batch_size)
        sensitivity, loss_weight, count_weight = of_step(relation)
        training = generative.load_engine().Trainer(
            parameters,
            space,
            self.gradient,
            # Nothing is clipped without noise.
            clip_norm=float(clip_norm) if multiplier else math.inf,
            per_point=not per_record,
            loss_weight=loss_weight,
            count_weight=count_weight,
            # On the number of records itself, of which no step but "per_record" tells.
            count_noise=multiplier * sensitivity / count_weight if per_record else 0.0,
        )
        return GradientSteps(
            training=training,
            gradient=self.gradient,
            neighbouring=relation,
            delta=delta,
            n_steps=n_steps,
            noise_multiplier=float(multiplier),
            guaranteed=self.epsilon is not None and self.accounting == "sound",
            sensitivities=(sensitivity, of_step("add_remove")[0]),
            secure=bool(self.secure_noise),
        )

    def _plan(self, data: tuple[GradientSteps, Any, NoiseSource]) -> ReleasePlan:
        steps, _, source = data
        relation = steps.neighbouring
        guarantee = None
        if steps.guaranteed:
            guarantee = PrivacyGuarantee(float(self.epsilon), steps.delta, relation, "record")
        return ReleasePlan(
            steps,
            steps.event,
            source,
            f"{type(self).__name__}, {steps.n_steps} steps",
            guarantee,
            neighbouring=relation,
            parameters=("neighbouring", "accounting"),
        )

    def _run(
        self, plan: ReleasePlan, data: tuple[GradientSteps, Any, NoiseSource]
    ) -> generative.FittedRecords:
        steps, records, _ = data
        if self.accounting == "paper":
            warn_user(
                "accounting='paper' counts every generated point as a query of its own. The stated "
                f"epsilon={self.epsilon:g} guarantees nothing: the epsilon of this training is "
                f"{steps.epsilon_after(steps.n_steps):.4g}.",
                NoGuaranteeWarning,
            )
        return plan.release.run(records, plan.source)

    def _keep(self, plan: ReleasePlan, released: generative.FittedRecords) -> None:
        self._set_fitted(released, plan.release.noise_multiplier)

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
        return generative.load_generator(cls, path, network=network, ledger=ledger)
