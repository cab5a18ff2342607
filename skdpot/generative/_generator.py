"""The generator of private synthetic data, as an estimator."""

import copy
import math
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from tqdm.auto import tqdm

from skdpot._base import PrivateEstimator
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.generative._engine import load_engine
from skdpot.generative._files import read_generator, write_generator
from skdpot.generative._plan import plan_published, plan_training
from skdpot.generative._records import (
    check_exactness,
    from_unit_box,
    read_bounds,
    read_classes,
    read_records,
    wanted_labels,
)
from skdpot.generative._saving import from_file, network_name, to_file
from skdpot.generative._score import sinkhorn_divergence
from skdpot.generative._vector import default_clip_norm, default_reg, make_vector
from skdpot.privacy.charging import charge, check_fixed_part, check_ledger
from skdpot.privacy.guarantee import NoGuaranteeWarning, PrivacyGuarantee
from skdpot.privacy.mechanisms import GaussianMechanism
from skdpot.privacy.poisson import poisson_sample
from skdpot.privacy.random import make_source

# What floating-point arithmetic would warn of, or raise, may be due to private values.
_SILENT = np.errstate(all="ignore")
# What a fit leaves without an underscore at the end.
_STATE = ("_box", "_settings", "_training_state", "_network", "_network_name")
# How often a progress bar is told the loss and what has been spent so far.
_UPDATES = 20
# More are represented by so many when a score is computed.
_SCORED_ROWS = 2000


class DPSinkhornGenerator(DensityMixin, PrivateEstimator):
    """Generator of synthetic records, trained with optimal transport under differential privacy.

    A network learns to make records whose transport cost to samples of the private ones is small:
    the semi-debiased Sinkhorn loss. Everything by which a step of the training depends on records
    is one vector of bounded sensitivity, which gets Gaussian noise before it is used. So the
    network is private, and whatever is sampled from it costs nothing, as often as one likes.

    **What is protected.** Every record together with its label, by epsilon and delta, for one call
    of :meth:`fit`: it may be added or removed (or, with ``neighbouring="replace_one"``, replaced
    by any other), and everything that is fitted hardly changes, losses and progress included. *Not*
    protected are that there is a record, that all values are finite numbers and all labels declared
    ones (others are refused with an error), and how long a fit takes. :meth:`score` is not private.

    Records are scaled to [-1, 1] by `data_bounds` before anything else, so that `reg`, `clip_norm`,
    `l1_weight` and `class_scale` are in these units, whatever those of the data. PyTorch is needed,
    and is imported when a generator is fitted, used or loaded.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy parameter of a fit. None trains without noise and without clipping, for public
        data: **nothing is guaranteed**, and a ledger is refused.
    delta : float, default=1e-5
        Above 0 and below 1: the probability with which epsilon may be exceeded, which should be
        far below one over the number of records.
    method : {"gradient"}, default="gradient"
        How the generator is trained: by steps that release gradients.
    data_bounds : tuple (low, high), default=(0, 1)
        Public. Each a number, or one number per feature. Values outside are moved to the bounds,
        silently, and generated ones are within them.
    classes : array-like of shape (n_classes,), default=None
        Public. All labels that there may be; they may not be learned from private data. None is
        for records without labels, and then `y` is refused.
    gradient : {"per_record", "per_image", "parameters"}, default="per_record"
        What a step releases. ``"per_record"`` releases sums over records, of each of which a
        bounded part is taken: noise is scaled to that part, and more records drown it.
        ``"per_image"`` releases the gradient at the generated points, as published, and
        ``"parameters"`` that at the weights of the network; both are functions of a sample as a
        whole, that may turn with a single record, and need much more noise.
    clipping : {"joint", "per_image"}, default="joint"
        For ``gradient="per_image"``, and ignored otherwise: whether the gradient at all generated
        points is clipped as a whole, or each point's on its own, as published. The latter has the
        noise of a whole that is clipped to the root of `batch_size` times `clip_norm`.
    accounting : {"sound", "paper"}, default="sound"
        ``"paper"`` scales noise by the published accounting, which does not hold: **nothing is
        guaranteed**, a warning says so, and a ledger is refused. It goes with
        ``gradient="per_image"``, ``clipping="per_image"`` and ``neighbouring="add_remove"``.
    neighbouring : {"add_remove", "replace_one"}, default="add_remove"
        What a neighbour of the data is: one with a record more or less, or as many of which one is
        another. It must be the relation of the ledger, whose own default is ``"replace_one"``.
    n_iter : int, default=400
        Number of steps; with a `noise_multiplier` the largest.
    sampling_rate : float, default=0.05
        Public. Probability with which a record is in a step's sample, independently of all others.
        With 1 every step sees all records.
    batch_size : int, default=50
        Number of generated points in a step that meet the sample. How many records a sample has is
        private, and never decides about it.
    noise_multiplier : float, default=None
        Standard deviation of the noise, in units of the sensitivity of all that a step releases.
        With None as little as `n_iter` steps need to cost epsilon. With a number there are as many
        steps as the budget allows, up to `n_iter`. For ``accounting="paper"`` it is the published
        noise scale sigma. Ignored for ``epsilon=None``.
    clip_norm : float, default=None
        What the norm of a gradient is clipped to: that of a record, of the points together, of a
        point, or of the weights, according to `gradient` and `clipping`. None chooses by public
        numbers alone. Ignored for ``epsilon=None``.
    reg : float, default=None
        Regularisation of transport, in units of cost. None is 0.04 per feature for
        ``gradient="per_record"``, and the published 0.05 otherwise.
    l1_weight : float, default=0.0
        The cost between two records is their squared distance plus this times the sum of absolute
        differences.
    debias : float, default=0.4
        From 0 to 1. How much of the second term of the loss, the cost between generated points
        themselves, is between different ones. With 0 generated records crowd together where
        records are dense, with 1 they spread out.
    class_scale : float, default=15.0
        Labels take part in the cost, as one-hot codes times this. Ignored without `classes`.
    network : {"auto", "mlp", "dcgan", "residual"}, torch.nn.Module or callable, default="auto"
        ``"mlp"`` is for vectors, ``"dcgan"`` for images of one channel, ``"residual"`` for those of
        several; ``"auto"`` goes by `image_shape`. A module is copied. A callable is called as
        ``network(n_inputs, n_features)`` and returns a module. Inputs are uniform numbers, and
        behind them a one-hot code of the class; outputs are cut off outside of [-1, 1], so that a
        hyperbolic tangent should come last.
    latent_dim : int, default=None
        How many random numbers a record is made of. None is 12 for images of one channel, 32 for
        others, and for vectors the number of features, up to 32.
    image_shape : tuple of int, default=None
        (height, width) or (height, width, channels) where a record is an image, flattened in this
        order.
    learning_rate : float, default=1e-3
        Of the optimiser.
    optimizer : {"adam", "sgd"}, default="adam"
        Which optimiser of PyTorch turns gradients with noise into steps.
    device : str or torch.device, default="auto"
        ``"auto"`` is a GPU with CUDA where there is one, and the CPU otherwise.
    secure_noise : bool, default=False
        Whether noise for a GPU is drawn on the CPU, from cryptographic bits alone and with its
        exact law. On a CPU it always is.
    score_reg : float, default=0.05
        Regularisation of :meth:`score`, in units of the mean squared difference of features. The
        training does not depend on it.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before the first step with all steps, for the unit ``"record"`` and the relation
        `neighbouring`.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's cryptographic source. With an integer the
        training is reproducible, for tests and teaching, and therefore *not private*. It also
        decides about :meth:`sample`; to have private trainings and repeatable samples, set it
        after the fit.
    warm_start : bool, default=False
        Whether another :meth:`fit` goes on with the network of the last one. It is charged like any
        other, and guarantees add up.
    verbose : int, default=0
        Whether to show a progress bar, with the released losses and the epsilon of the steps made.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The declared labels; only if there are any.
    n_iter_ : int
        Number of steps made, since the network was.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity of a step, of the last fit; 0 without
        noise.
    loss_curve_ : list of float
        The loss of every step, in units of cost. It has noise as everything else, and is paid for.
    privacy_guarantee_ : PrivacyGuarantee or None
        What is guaranteed of all that was fitted since the network was made; None for
        ``epsilon=None``, ``accounting="paper"`` and seeded fits.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has any.

    Raises
    ------
    ModuleNotFoundError
        If PyTorch is not installed.
    BudgetExceededError
        If the ledger does not allow the training. Then no record has been sampled.
    ValueError
        If a parameter, a record or a label is wrong, or epsilon does not allow a single step with
        this `noise_multiplier`. Nothing has been charged then.

    Warns
    -----
    NoGuaranteeWarning
        For ``accounting="paper"``, with the epsilon that such a training really has.

    See Also
    --------
    PrivacyLedger : Keeps account of what was released.
    skdpot.generative.theory.sound_epsilon : What the published training costs.

    Notes
    -----
    *A step* draws a Poisson sample of the records, and releases one vector: gradients, the loss
    and, for ``gradient="per_record"``, the number of records. It is one Poisson-sampled Gaussian
    event, and a fit is `n_iter` of them, priced together. Proofs are on the theory page, "Synthetic
    data". A step whose sample is empty releases noise, like any other.

    *Searches.* In a grid search every fit of every candidate on every fold spends epsilon, also
    that of ``refit``, and all go on the ledger. The search looks at :meth:`score`, which is **not
    private**, so that neither ``cv_results_`` nor the choice is, nor a generator that was chosen so
    from the very records it protects. Search on public data that are alike.

    *What is kept.* A pickle and :meth:`save` hold the network, the losses and the parameters, which
    were released or public; a pickle also what a further training goes on from (and the ledger's
    place). No record is among them.

    *Classes* are generated equally often, while records are as they are. The transport that
    ``"per_image"`` and ``"parameters"`` follow has to carry mass from one class to another, then,
    and a rare class learns to look like others; ``"per_record"`` leaves every class its own.

    *Networks of your own* with ``gradient="parameters"`` see gradients without noise in their
    backward pass. Buffers are put back afterwards; hooks must not keep what they see elsewhere.

    *On a GPU* noise is drawn by a generator that is not cryptographic, unless `secure_noise` is
    set.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021. The loss is that of
    definition 4.3; ``gradient="per_image"`` with ``clipping="per_image"`` is algorithm 1.

    Examples
    --------
    Two kinds of records. With a seed the training is reproducible, and not private:

    >>> import numpy as np
    >>> from skdpot import DPSinkhornGenerator
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(2, 0.5, (500, 3)), rng.normal(8, 0.5, (500, 3))])
    >>> y = np.repeat(["low", "high"], 500)
    >>> generator = DPSinkhornGenerator(
    ...     epsilon=4.0, data_bounds=(0, 10), classes=["low", "high"], sampling_rate=1.0, n_iter=30,
    ...     batch_size=20, learning_rate=3e-3, random_state=0,
    ... ).fit(X, y)
    >>> X_new, y_new = generator.sample(200)
    >>> X_new.shape, np.unique(y_new, return_counts=True)[1].tolist()
    ((200, 3), [100, 100])
    >>> bool(X_new[y_new == "low"].mean() < 4 < 6 < X_new[y_new == "high"].mean())
    True
    """

    _parameter_constraints = {
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "method": [StrOptions({"gradient"})],
        "data_bounds": ["array-like"],
        "classes": ["array-like", None],
        "gradient": [StrOptions({"per_record", "per_image", "parameters"})],
        "clipping": [StrOptions({"joint", "per_image"})],
        "accounting": [StrOptions({"sound", "paper"})],
        "neighbouring": [StrOptions({"add_remove", "replace_one"})],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "sampling_rate": [Interval(Real, 0, 1, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "noise_multiplier": [Interval(Real, 0, None, closed="neither"), None],
        "clip_norm": [Interval(Real, 1e-30, 1e30, closed="both"), None],
        "reg": [Interval(Real, 1e-30, 1e30, closed="both"), None],
        "l1_weight": [Interval(Real, 0, 100, closed="both")],
        "debias": [Interval(Real, 0, 1, closed="both")],
        "class_scale": [Interval(Real, 0, 1e6, closed="both")],
        "network": "no_validation",
        "latent_dim": [Interval(Integral, 1, None, closed="left"), None],
        "image_shape": ["array-like", None],
        "learning_rate": [Interval(Real, 0, 1e6, closed="right")],
        "optimizer": [StrOptions({"adam", "sgd"})],
        "device": "no_validation",
        "secure_noise": ["boolean"],
        "score_reg": [Interval(Real, 0, None, closed="neither")],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-5,
        *,
        method="gradient",
        data_bounds=(0, 1),
        classes=None,
        gradient="per_record",
        clipping="joint",
        accounting="sound",
        neighbouring="add_remove",
        n_iter=400,
        sampling_rate=0.05,
        batch_size=50,
        noise_multiplier=None,
        clip_norm=None,
        reg=None,
        l1_weight=0.0,
        debias=0.4,
        class_scale=15.0,
        network="auto",
        latent_dim=None,
        image_shape=None,
        learning_rate=1e-3,
        optimizer="adam",
        device="auto",
        secure_noise=False,
        score_reg=0.05,
        ledger=None,
        random_state=None,
        warm_start=False,
        verbose=0,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.data_bounds = data_bounds
        self.classes = classes
        self.gradient = gradient
        self.clipping = clipping
        self.accounting = accounting
        self.neighbouring = neighbouring
        self.n_iter = n_iter
        self.sampling_rate = sampling_rate
        self.batch_size = batch_size
        self.noise_multiplier = noise_multiplier
        self.clip_norm = clip_norm
        self.reg = reg
        self.l1_weight = l1_weight
        self.debias = debias
        self.class_scale = class_scale
        self.network = network
        self.latent_dim = latent_dim
        self.image_shape = image_shape
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.device = device
        self.secure_noise = secure_noise
        self.score_reg = score_reg
        self.ledger = ledger
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    @_SILENT
    def fit(self, X, y=None):
        """Train the generator. Charges the ledger first, with all that the training will cost.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
            Private records. Values outside of `data_bounds` are moved to them, silently; what is
            not finite is refused.
        y : array-like of shape (n_records,), default=None
            Private labels, each one of `classes`; others are refused.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        engine = load_engine()
        continued = self.warm_start and hasattr(self, "_network")
        points, codes = engine.within_memory(
            lambda: read_records(self, X, y, self.classes, self.data_bounds, reset=not continued)
        )
        check_exactness(self.gradient, self.l1_weight, self.sampling_rate, len(points))
        source = self._make_source(continued)
        plan = self._plan()
        vector = self._make_vector(points.shape[1])
        settings = self._make_settings(engine, plan, vector, points.shape[1])
        trainer = engine.within_memory(self._make_trainer, engine, settings, source, continued)
        records = engine.within_memory(trainer.hold, points, codes)
        engine.within_memory(trainer.rehearse)
        mechanism = None
        if plan.noise_multiplier:
            mechanism = GaussianMechanism.from_noise_multiplier(
                plan.noise_multiplier, vector.sensitivity, n_coordinates=trainer.vector_size
            )
        self._charge(plan, source)
        if not continued:
            self._forget()
        trainer.make_private(mechanism, source, secure=self.secure_noise)
        losses = self._train(engine, trainer, plan, records, source)
        self._keep(trainer, settings, plan, losses, source)
        return self

    @_SILENT
    def sample(self, n_samples=1, y=None):
        """Generate records. That costs nothing: they are made of what was released.

        Parameters
        ----------
        n_samples : int, default=1
            How many records; of no account where `y` is given.
        y : array-like of shape (n_samples,) or dict, default=None
            Labels of the records, or how many records of each label there shall be, such as
            ``{"cat": 10, "dog": 5}``. None makes equally many of all classes, up to one, in random
            order.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Records within `data_bounds`.
        y : ndarray of shape (n_samples,)
            Their labels; only if `classes` were declared.
        """
        check_is_fitted(self)
        rng = check_random_state(self.random_state)
        classes = getattr(self, "classes_", None)
        codes = wanted_labels(n_samples, y, classes, rng)
        rows = self._rows(n_samples if codes is None else len(codes), codes, rng)
        X = from_unit_box(rows, self._box)
        return X if codes is None else (X, self.classes_[codes])

    @_SILENT
    def score(self, X, y=None):
        """Return minus how far generated records are from given ones; that is not private.

        The debiased Sinkhorn divergence with regularisation `score_reg`, for mean squared
        differences of features scaled to [-1, 1]; with labels, a record of another class costs 4
        more. It depends on no other parameter of the training, so that candidates stay comparable.
        It is computed from the given records without noise: where these are private, so is the
        score, and whatever is chosen by it.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
            Records. More than 2,000 are represented by 2,000 of them.
        y : array-like of shape (n_records,), default=None
            Their labels; required if `classes` were declared.

        Returns
        -------
        float
            Higher is nearer.
        """
        check_is_fitted(self)
        points, codes = read_records(
            self, X, y, getattr(self, "classes_", None), self._box, reset=False
        )
        rng = check_random_state(self.random_state)
        kept = rng.permutation(len(points))[:_SCORED_ROWS]
        points, codes = points[kept], None if codes is None else codes[kept]
        rows = self._rows(len(kept), codes, rng)
        return -sinkhorn_divergence(rows, points, codes, codes, reg=float(self.score_reg))

    def save(self, path):
        """Write the fitted generator to a file, without private data.

        All that the file holds was released, so that it may be published. The ledger, the
        `random_state` and the `device` are not written, nor is a `network` that is a module or a
        callable: its weights are.

        Parameters
        ----------
        path : str or path-like
            The file; one that exists is replaced.
        """
        check_is_fitted(self)
        write_generator(path, *to_file(self, load_engine()))

    @classmethod
    def load(cls, path, *, network=None, ledger=None):
        """Return the fitted generator that was saved in a file; nothing in it is executed.

        Parameters
        ----------
        path : str or path-like
            The file.
        network : torch.nn.Module or callable, default=None
            The `network` of the generator that was saved, where it was no name.
        ledger : PrivacyLedger, default=None
            To be charged if it is trained further.

        Returns
        -------
        DPSinkhornGenerator
            Fitted.
        """
        engine = load_engine()
        parameters, fitted = from_file(*read_generator(path), engine, network)
        generator = cls(**parameters, ledger=ledger)
        generator.__dict__.update(fitted)
        # Raises if the network is not that of the weights.
        generator._rows(1, None, check_random_state(0))
        return generator

    def __sklearn_is_fitted__(self):
        # A fit that was refused may have counted the features already.
        return hasattr(self, "_network")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.classes is not None
        return tags

    def _forget(self):
        """Take away what the last fit left, but for what was read of this one's X."""
        left = [name for name in vars(self) if name.endswith("_") or name in _STATE]
        for name in left:
            if name not in ("n_features_in_", "feature_names_in_"):
                delattr(self, name)

    def _make_source(self, continued):
        """Return where noise comes from: another stream of a seed for a training that goes on."""
        source = make_source(self.random_state).for_user(self.n_iter_ if continued else 0)
        if self.ledger is not None and (self.epsilon is None or self.accounting == "paper"):
            raise ValueError(
                "epsilon=None and accounting='paper' guarantee nothing that a ledger could keep "
                "account of. Use an epsilon and accounting='sound', or no ledger."
            )
        check_ledger(self.ledger, self.neighbouring, seeded=source.seeded)
        if self.neighbouring == "replace_one":
            check_fixed_part(self.ledger, "noise for neighbours of one size")
        return source

    def _plan(self):
        """Return how many steps there will be, with how much noise, or raise."""
        options: dict[str, Any] = {
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "delta": float(self.delta),
            "sampling_rate": float(self.sampling_rate),
            "n_iter": int(self.n_iter),
        }
        if self.accounting == "sound":
            return plan_training(
                **options, noise_multiplier=self.noise_multiplier, neighbouring=self.neighbouring
            )
        of_paper = (self.gradient, self.clipping, self.neighbouring)
        if self.epsilon is None or of_paper != ("per_image", "per_image", "add_remove"):
            raise ValueError(
                "accounting='paper' is that of gradient='per_image', clipping='per_image' and "
                "neighbouring='add_remove', with an epsilon."
            )
        plan = plan_published(
            **options, noise_scale=self.noise_multiplier, batch_size=int(self.batch_size)
        )
        warnings.warn(
            "accounting='paper' counts every generated point as a query of its own. What it calls "
            f"epsilon={self.epsilon:g} guarantees nothing: the epsilon of this training is "
            f"{plan.epsilon_after(plan.n_steps):.4g}.",
            NoGuaranteeWarning,
            stacklevel=5,
        )
        return plan

    def _make_vector(self, n_features):
        """Return how a step's vector is made."""
        clip_norm = self.clip_norm
        if clip_norm is None:
            clip_norm = default_clip_norm(
                self.gradient, self.clipping, n_features, self.l1_weight, self.batch_size
            )
        return make_vector(
            self.gradient, self.clipping, float(clip_norm), int(self.batch_size), self.neighbouring
        )

    def _make_settings(self, engine, plan, vector, n_features):
        """Return the public parameters of a step."""
        classes = read_classes(self.classes)
        return engine.Settings(
            n_features=n_features,
            n_classes=0 if classes is None else len(classes[0]),
            latent_dim=self.latent_dim or engine.default_latent_dim(n_features, self.image_shape),
            batch_size=int(self.batch_size),
            debias=float(self.debias),
            reg=float(self.reg or default_reg(self.gradient, n_features)),
            l1_weight=float(self.l1_weight),
            class_scale=float(self.class_scale),
            clip_norm=vector.clip_norm if plan.noise_multiplier else math.inf,
            per_point=vector.per_point,
            loss_weight=vector.loss_weight,
            count_weight=vector.count_weight,
            count_noise=vector.count_noise(plan.noise_multiplier),
        )

    def _make_trainer(self, engine, settings, source, continued):
        """Return a network with what trains it, or raise where there is something wrong."""
        first_weights, latents = source.bits(62, 2).tolist()
        device = engine.find_device(self.device)
        if continued:
            network = self._network_to_continue(settings)
        else:
            network = engine.make_network(
                self.network,
                n_features=settings.n_features,
                n_classes=settings.n_classes,
                latent_dim=settings.latent_dim,
                image_shape=self.image_shape,
                seed=first_weights,
            )
        trainer = engine.Trainer(
            network,
            settings,
            self.gradient,
            optimizer=self.optimizer,
            learning_rate=float(self.learning_rate),
            device=device,
            seed=latents,
        )
        if continued and self._training_state.get("of") == self._kind_of_training():
            trainer.restore(self._training_state["state"])
        return trainer

    def _kind_of_training(self):
        """Return what must be the same for a training to remember an earlier one."""
        return self.optimizer, self.gradient, int(self.batch_size)

    def _network_to_continue(self, settings):
        """Return a copy of the network, so that the fitted one is as it was if this fit fails."""
        names = None if self.classes is None else read_classes(self.classes)[0].tolist()
        fitted = self.classes_.tolist() if hasattr(self, "classes_") else None
        box = read_bounds(self.data_bounds, settings.n_features)
        shape = ("n_features", "n_classes", "latent_dim")
        promised = self.privacy_guarantee_
        if (
            names != fitted
            or not np.array_equal(box, self._box)
            or any(getattr(settings, name) != getattr(self._settings, name) for name in shape)
            or network_name(self.network) != self._network_name
            # Guarantees under different relations do not add up.
            or (promised and promised.neighbouring != self.neighbouring)
        ):
            raise ValueError(
                "warm_start=True goes on with the network of the last fit, so that classes, "
                "data_bounds, network, latent_dim and neighbouring must be those of that fit. Use "
                "warm_start=False."
            )
        return copy.deepcopy(self._network)

    def _charge(self, plan, source):
        if plan.guaranteed:
            charge(
                self.ledger,
                plan.event,
                unit="record",
                label=f"{type(self).__name__}, {plan.n_steps} steps",
                neighbouring=self.neighbouring,
                seeded=source.seeded,
            )

    def _train(self, engine, trainer, plan, records, source):
        """Return the losses of the steps, with noise."""
        losses = []
        every = -(-plan.n_steps // _UPDATES)
        with tqdm(
            total=plan.n_steps, desc=type(self).__name__, unit=" steps", disable=not self.verbose
        ) as bar:
            for made in range(1, plan.n_steps + 1):
                sampled = engine.within_memory(
                    poisson_sample, source, len(records.points), plan.sampling_rate
                )
                losses.append(trainer.step(records, sampled))
                bar.update()
                if self.verbose and (made % every == 0 or made == plan.n_steps):
                    bar.set_postfix(_progress(plan, made, losses[-every:]))
        return trainer.numbers(losses)

    def _keep(self, trainer, settings, plan, losses, source):
        """Set what was fitted: functions of what was released, and of public parameters."""
        if self.classes is not None:
            self.classes_ = read_classes(self.classes)[0]
        self.privacy_guarantee_ = self._guarantee(plan, source)
        self.loss_curve_ = [*getattr(self, "loss_curve_", []), *losses]
        self.n_iter_ = len(self.loss_curve_)
        self.noise_multiplier_ = plan.noise_multiplier
        self._box = read_bounds(self.data_bounds, settings.n_features)
        self._settings = settings
        self._training_state = {"of": self._kind_of_training(), "state": trainer.state()}
        self._network = trainer.network.cpu().eval()
        self._network_name = network_name(self.network)

    def _guarantee(self, plan, source):
        """Return what is promised of all that was released since the network was made."""
        nothing = PrivacyGuarantee(0.0, 0.0, self.neighbouring, "record")
        earlier = getattr(self, "privacy_guarantee_", nothing)
        if not plan.guaranteed or source.seeded or earlier is None:
            return None
        return PrivacyGuarantee(
            epsilon=float(self.epsilon) + earlier.epsilon,
            delta=float(self.delta) + earlier.delta,
            neighbouring=self.neighbouring,
            unit="record",
        )

    def _rows(self, n_rows, codes, rng):
        """Return generated rows, from -1 to 1."""
        engine = load_engine()
        return engine.generate(
            self._network,
            self._settings,
            codes,
            n_rows,
            engine.find_device(self.device),
            int(rng.randint(2**31)),
        )


def _progress(plan, n_steps, losses):
    """Return what a progress bar shows: public, or released."""
    shown = {"loss": f"{sum(map(float, losses)) / len(losses):.3g}"}
    if plan.guaranteed:
        shown["epsilon"] = f"{plan.epsilon_after(n_steps):.3g}"
    return shown
