"""The published training of a generator, by steps that release noisy gradients."""

import copy
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from tqdm.auto import tqdm

from skdpot._base import tells_of_charges, warn_user
from skdpot._sklearn_compat import Interval, StrOptions, fit_context, validate_parameters
from skdpot.generative import (
    DEFAULT_BOUNDS,
    BaseGenerator,
    Declared,
    FittedRecords,
    Training,
    load_engine,
    read_points,
    training_of,
    unseen_points,
)
from skdpot.privacy.charging import ReleasePlan, relation_of
from skdpot.privacy.guarantee import NoGuaranteeWarning, PrivacyGuarantee
from skdpot.privacy.mechanisms import GaussianMechanism
from skdpot.privacy.preview import HasExpectedErrors
from skdpot.privacy.random import NoiseSource, make_source
from skdpot.published._step_vector import GRADIENTS, StepVector, default_clip_norm, make_vector
from skdpot.published._training_plan import TrainingPlan, plan_published, plan_training


class SinkhornGradientGenerator(BaseGenerator):
    """Generator that a network learns from noisy gradients of a Sinkhorn loss (DP-Sinkhorn).

    It is kept for study: at equal budgets :class:`skdpot.DPSinkhornGenerator` makes better records.
    A step compares points that the network makes with a Poisson sample of the records, by optimal
    transport, and releases one vector with Gaussian noise. It needs PyTorch.

    **What is protected.** Every record together with its label, by epsilon and delta, for one call
    of :meth:`fit`; losses and progress included. With ``accounting="paper"`` **nothing is
    guaranteed**: the published accounting does not hold (see :ref:`errata-generator`).

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy parameter of a fit. None has no noise and no clipping of gradients, for public
        data: **nothing is guaranteed**, and a ledger is refused.
    delta : float, default=1e-5
        Above 0, and far below one over the number of records.
    bounds : tuple (low, high), default=(0, 1)
        Public. Each a number, or one number per feature. Values outside are moved to the bounds.
    classes : array-like of shape (n_classes,), default=None
        Public. All labels that there may be. None is for records without labels.
    image_shape : tuple of int, default=None
        (height, width) or (height, width, channels) where a record is an image.
    network : str, torch.nn.Module, callable or NetworkTraining, default="auto"
        The network, and how it is trained: see :class:`skdpot.generative.NetworkTraining`. Its
        `n_iter` is the number of steps; with a `noise_multiplier` the largest. Its `reg` of None is
        0.04 per feature for ``gradient="per_record"``, and the published 0.05 otherwise.
    gradient : {"per_record", "images", "per_image", "parameters"}, default="per_record"
        What a step releases. ``"per_record"`` releases sums over records, of each of which a
        bounded part is taken: noise is scaled to that part, and more records drown it.
        ``"per_image"`` releases the gradient at the generated points, each point's clipped on its
        own, as published; ``"images"`` clips it as a whole, and ``"parameters"`` is the gradient at
        the weights of the network. These are functions of a sample as a whole, that may turn with a
        single record, and need much more noise.
    accounting : {"sound", "paper"}, default="sound"
        ``"paper"`` scales noise by the published accounting, which does not hold: **nothing is
        guaranteed**, a warning says so, and a ledger is refused. It goes with
        ``gradient="per_image"`` and ``neighbouring="add_remove"``.
    noise_multiplier : float, default=None
        Standard deviation of the noise, in units of the sensitivity of all that a step releases.
        With None as little as the steps need to cost epsilon. With a number there are as many
        steps as the budget allows. For ``accounting="paper"`` it is the published noise scale.
    clip_norm : float, default=None
        What the norm of a gradient is clipped to: that of a record, of the points together, of a
        point, or of the weights, according to `gradient`. None chooses by public numbers alone.
    neighbouring : {"auto", "add_remove", "replace_one"}, default="auto"
        What a neighbour of the data is. ``"auto"`` is the relation of a `PrivacyLedger`, and
        ``"add_remove"`` without one.
    secure_noise : bool, default=False
        Whether noise for a GPU is drawn on the CPU, from cryptographic bits alone. On a CPU it
        always is.
    score_reg : float, default=0.05
        Regularisation of :meth:`score`, in units of the mean squared difference of features.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before anything is released with all that will be, for the unit ``"record"``.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's cryptographic source. An integer is for tests
        and teaching, and *not private*. It also decides about :meth:`sample`.
    warm_start : bool, default=False
        Whether another :meth:`fit` goes on with the network of the last one. It is charged like any
        other, and guarantees add up.
    verbose : int, default=0
        Whether to show a progress bar of steps, with the released losses and their epsilon.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The declared labels; only if there are any.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity, of a step of the last fit; 0 without
        noise.
    n_iter_ : int
        Number of steps made, since the network was.
    loss_curve_ : list of float
        The loss of every step, in units of cost. It has noise as everything else, and is paid for.
    privacy_guarantee_ : PrivacyGuarantee or None
        What is guaranteed of all that was fitted since the network was made; None for
        ``epsilon=None``, ``accounting="paper"`` and seeded fits.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has any.

    Warns
    -----
    NoGuaranteeWarning
        For ``accounting="paper"``, with the epsilon that such a training really has.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator in use.
    sound_epsilon : What the published training costs.

    Notes
    -----
    A step releases gradients, the loss and, for ``gradient="per_record"``, the number of records,
    as one Poisson-sampled Gaussian event; a fit is a number of them, priced together. Proofs:
    :ref:`proof-training-steps`, :ref:`proof-record-sums`. A step whose sample is empty
    releases noise, like any other.

    Classes are generated equally often, while records are as they are. The transport that all but
    ``"per_record"`` follow has to carry mass from one class to another, then, and a rare class
    learns to look like others.

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

    @tells_of_charges
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Train the network. The ledger is charged first, with all that it will cost.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
            Private records. Values outside of `bounds` are moved to them, silently; what is not
            finite is refused.
        y : array-like of shape (n_records,), default=None
            Private labels, each one of `classes`; others are refused.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ModuleNotFoundError
            If PyTorch is not installed.
        BudgetExceededError
            If the ledger does not allow the fit. Then nothing has been released.
        ValueError
            If a parameter, a record or a label is wrong, or epsilon does not allow a single step
            with this `noise_multiplier`. Nothing has been charged then.
        """
        return self._fit(X, y)

    def _validate(self, X: Any, y: Any) -> "_Prepared":
        relation = relation_of(self.ledger, self.neighbouring, "add_remove")
        continued = self.warm_start and hasattr(self, "_fitted")
        earlier: Any = self._fitted if continued else None
        declared = Declared(self.bounds, self.classes, self.image_shape)
        load_engine()
        # A copy, so that later changes of the parameters do not affect this plan.
        training_parameters = copy.copy(training_of(self.network))
        validate_parameters(training_parameters)
        records = read_points(self, X, y, declared, reset=earlier is None)
        plan = self._training_plan(training_parameters, relation)
        vector = self._vector(records.space.n_features, training_parameters, relation)
        training = Training(
            training_parameters, records.space, GRADIENTS[self.gradient],
            **vector.settings(plan.noise_multiplier),
        )  # fmt: skip
        source = make_source(self.random_state).for_user(self.n_iter_ if earlier else 0)
        within = training.engine.within_memory
        trainer = within(self._trainer, training, source, earlier, relation)
        held = within(trainer.hold, records.points, records.codes)
        within(trainer.rehearse)
        bar = partial(tqdm, desc=type(self).__name__, unit=" steps", disable=not self.verbose)
        steps = GradientSteps(
            training, plan, vector, trainer, earlier, bool(self.secure_noise),
            self._kind_of_training(), bar,
        )  # fmt: skip
        return _Prepared(steps, held, source, relation)

    def _declared(self, n_records: int, columns: Any) -> "_Prepared":
        """Return the steps of a new training, without records and without a network."""
        relation = relation_of(self.ledger, self.neighbouring, "add_remove")
        declared = Declared(self.bounds, self.classes, self.image_shape)
        load_engine()
        parameters = training_of(self.network)
        validate_parameters(parameters)
        space = unseen_points(declared, columns).space
        plan = self._training_plan(parameters, relation)
        vector = self._vector(space.n_features, parameters, relation)
        training = Training(
            parameters, space, GRADIENTS[self.gradient], **vector.settings(plan.noise_multiplier)
        )
        steps = GradientSteps(
            training, plan, vector, None, None, bool(self.secure_noise),
            self._kind_of_training(), None,
        )  # fmt: skip
        return _Prepared(steps, None, make_source(self.random_state), relation)

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
        """Return the fitted generator that was saved in a file; nothing in it is executed.

        Parameters
        ----------
        path : str or path-like
            The file.
        network : torch.nn.Module or callable, default=None
            The network of the generator that was saved, where it was no name.
        ledger : PrivacyLedger, default=None
            To be charged if it is fitted again.

        Returns
        -------
        SinkhornGradientGenerator
            Fitted.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is damaged or none of a generator, or the network is missing or another one than
            before.
        """
        return cls._load(path, ledger, network=network)

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
                "accounting='paper' is that of gradient='per_image' and "
                "neighbouring='add_remove', with an epsilon."
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
        self, training: Training, source: NoiseSource, earlier: FittedRecords | None, relation: str
    ) -> Any:
        """Return a network and its training, or raise if a setting is wrong."""
        first_weights, latents = source.bits(62, 2).tolist()
        if earlier is None or earlier.network is None:
            return training.make_trainer(training.new_network(first_weights), latents)
        self._check_continues(training, earlier, relation)
        # A copy, so that the fitted network is unchanged if this fit fails.
        trainer = training.make_trainer(copy.deepcopy(earlier.network.network), latents)
        if earlier.network.state.get("of") == self._kind_of_training():
            trainer.restore(earlier.network.state["state"])
        return trainer

    def _kind_of_training(self) -> tuple[Any, ...]:
        """Return the settings that two trainings must share for one to continue the other."""
        training = training_of(self.network)
        return training.optimizer, GRADIENTS[self.gradient], int(training.batch_size)

    def _check_continues(self, training: Training, earlier: Any, relation: str) -> None:
        """Raise if the network of the last fit is not for this one."""
        promised, space, network = self.privacy_guarantee_, training.space, earlier.network
        labels = [None if of.classes is None else of.classes.tolist() for of in (space, earlier)]
        if (
            labels[0] != labels[1]
            or not np.array_equal(space.box, earlier.space.box)
            or training.latent_dim != network.latent_dim
            or training.name != network.name
            # Guarantees under different relations do not add up.
            or (promised and promised.neighbouring != relation)
        ):
            raise ValueError(
                "warm_start=True goes on with the network of the last fit, so that classes, "
                "bounds, network, latent_dim and neighbouring must be those of that fit. Use "
                "warm_start=False."
            )


@dataclass(frozen=True, eq=False)
class GradientSteps(HasExpectedErrors):
    """The release of a training: its steps, and the state that they start from."""

    training: Training
    plan: TrainingPlan
    vector: StepVector
    trainer: Any
    earlier: FittedRecords | None
    secure: bool
    kind: tuple[Any, ...]
    progress: Any

    def run(self, records: Any, source: NoiseSource) -> FittedRecords:
        """Make all steps."""
        plan, mechanism = self.plan, None
        if plan.noise_multiplier:
            # Replacing a record moves centred sums by twice as much as adding one. Rounding to the
            # grid adds the same to both, so that half of the sensitivity to replacement would not
            # cover an addition.
            halved = plan.centred and plan.neighbouring == "replace_one"
            vector = self.vector
            mechanism = GaussianMechanism.from_noise_multiplier(
                plan.noise_multiplier * (2 if halved else 1),
                vector.sensitivity_to_added if halved else vector.sensitivity,
                n_coordinates=self.trainer.vector_size,
            )
        self.trainer.make_private(mechanism, source, secure=self.secure)
        with self.progress(total=plan.n_steps) as bar:
            losses = self.training.run(
                self.trainer, records, source, plan.n_steps, bar, plan.progress
            )
        before = self.earlier.network.losses if self.earlier and self.earlier.network else []
        state = {"of": self.kind, "state": self.trainer.state()}
        network = self.training.trained(self.trainer, [*before, *losses], state)
        return FittedRecords(self.training.space, None, network)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Private records on their device, and the steps that use them."""

    steps: GradientSteps
    records: Any
    source: NoiseSource
    relation: str
