"""The generator of private synthetic data, as an estimator."""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdpot._base import PrivateEstimator
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.generative._files import read_generator, write_generator
from skdpot.generative._gradients import GradientTraining
from skdpot.generative._records import from_unit_box, read_records, wanted_labels
from skdpot.generative._saving import from_file, to_file
from skdpot.generative._score import SCORED_ROWS, sinkhorn_divergence
from skdpot.generative._sketch.table_sketch import TableSketch
from skdpot.generative._sketching import SketchFitting
from skdpot.privacy.charging import charge, check_ledger
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.privacy.random import make_source

# What floating-point arithmetic would warn of, or raise, may be due to private values.
_SILENT = np.errstate(all="ignore")
# What is read of the columns of X, before anything else.
_OF_COLUMNS = ("n_features_in_", "feature_names_in_")
# What a fit leaves without an underscore at the end.
_STATE = ("_box", "_sketch", "_network", "_network_name", "_settings", "_training_state")


class DPSinkhornGenerator(SketchFitting, GradientTraining, DensityMixin, PrivateEstimator):
    """Generator of synthetic records, by optimal transport under differential privacy.

    By default the records are sketched: a public encoder turns each of them into a vector, and
    sums over records (how many there are, of which means and covariances, and how they share
    themselves out among clusters by balanced transport) are released with Gaussian noise, all from
    one budget. Whatever is made of the sketch costs nothing: as many records as one likes, and
    files that may be published. Tables with a declared schema are sketched by the counts of pairs
    of their columns. The other method, of the paper, trains a network step by step on noisy
    gradients of a Sinkhorn loss.

    **What is protected.** Every record together with its label, by epsilon and delta, for one call
    of :meth:`fit`: it may be added or removed (or, with ``neighbouring="replace_one"``, replaced
    by any other), and everything that is fitted hardly changes, losses and progress included. *Not*
    protected are that there is a record, that all values are finite numbers and all labels,
    categories and columns declared ones (others are refused with an error), and how long a fit
    takes. :meth:`score` is not private.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy parameter of a fit. None has no noise and no clipping of gradients, for public
        data: **nothing is guaranteed**, and a ledger is refused.
    delta : float, default=1e-5
        Above 0 and below 1: the probability with which epsilon may be exceeded, which should be
        far below one over the number of records.
    method : {"sketch", "gradient"}, default="sketch"
        What is released: a sketch of the records, all at once, or gradients, step by step. The
        latter needs PyTorch; parameters from `gradient` on are for it, unless they say otherwise.
    data_bounds : tuple (low, high), default=(0, 1)
        Public. Each a number, or one number per feature. Values outside are moved to the bounds,
        silently, and generated ones are within them. Ignored with a `schema`.
    classes : array-like of shape (n_classes,), default=None
        Public. All labels that there may be; they may not be learned from private data. None is
        for records without labels, and then `y` is refused.
    image_shape : tuple of int, default=None
        (height, width) or (height, width, channels) where a record is an image, flattened in this
        order.
    schema : dict, default=None
        Public. What the columns of a table hold, by name: ``range(low, high + 1)`` for integers,
        ``(low, high)`` for real numbers, a list of categories; or a dictionary, for more:
        ``{"bounds": (low, high), "integer": False}``, ``{"categories": [...]}``, ``{"levels":
        [...]}`` for categories in an order, each with ``"missing": True`` where values may be
        missing; then values that are not declared count as missing, too. Numbers outside of bounds
        are moved to them.
    target : str or int, default=None
        Public. A column of the `schema`, with categories or levels, on which all others are
        modelled to depend: that which is to be predicted. A target that is no column goes beside
        the table, as `y` with `classes`.
    encoder : str, transformer or pair of callables, default="auto"
        Public. What vectors are made of records that are no table. ``"whiten-by-bounds"`` takes
        features in units of their bounds, ``"identity"`` in those of the data. ``"dct"`` takes the
        lowest coefficients of an image's cosine transform, and ``"pose"``, for bright strokes on a
        dark ground, those of the image in an upright pose, and that pose. ``"auto"`` is ``"dct"``
        with an `image_shape`, and ``"whiten-by-bounds"`` without. A fitted transformer with an
        ``inverse_transform``, or a pair (encode, decode), is given records in the units of the
        data, one at a time, and must not have learned from them; for searches, whose clones forget
        what was fitted, wrap a transformer in `sklearn.frozen.FrozenEstimator`.
    encoder_norm : float, default=None
        The largest norm of a vector, for an encoder of your own that has no attribute
        `largest_norm`; longer vectors are made shorter.
    n_coefficients : int, default=None
        Of ``"dct"`` and ``"pose"``, along either side of an image. None is up to 14, and for
        ``"dct"`` up to 22 from an epsilon of 5 on.
    n_clusters : int, default=None
        Clusters of a class. None chooses, by what was released of the number of records: as many
        as noise allows, up to 30.
    budget_shares : dict, default=None
        What parts of the budget groups of releases have, where you know better:
        ``"counts"``, ``"radii"``, ``"intensities"``, ``"means"``, ``"covariances"``,
        ``"assignments"``, ``"clusters"`` and ``"kernels"``. They are divided by their sum.
    augment : dict, "auto" or None, default="auto"
        By how much sampled images are moved at random, in standard deviations:
        ``"rotation"`` in radians, ``"scale"`` of the logarithm of a factor, and ``"shift"`` and
        ``"bend"`` in units of the height. Public knowledge that such moves change nothing makes a
        better sample to learn from. ``"auto"`` moves images of strokes, with
        ``encoder="pose"``, a little, and no others.
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
    network : {"auto", "mlp", "dcgan", "residual"}, torch.nn.Module or callable, default=None
        None is no network for ``method="sketch"``. With one, it is trained on records of the sketch
        afterwards, without further cost and by the parameters of the steps, and makes the samples.
        For ``method="gradient"``, None is ``"auto"``. ``"mlp"`` is for vectors, ``"dcgan"`` for
        images of one channel, ``"residual"`` for those of several; ``"auto"`` goes by
        `image_shape`. A module is copied. A callable is called as ``network(n_inputs, n_features)``
        and returns a module. Inputs are uniform numbers, and behind them a one-hot code of the
        class; outputs are cut off outside of [-1, 1], so that a hyperbolic tangent should come
        last.
    latent_dim : int, default=None
        How many random numbers a record is made of. None is 12 for images of one channel, 32 for
        others, and for vectors the number of features, up to 32.
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
        Is charged before anything is released with all that will be, for the unit ``"record"`` and
        the relation `neighbouring`.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's cryptographic source. With an integer a fit
        is reproducible, for tests and teaching, and therefore *not private*. It also
        decides about :meth:`sample`; to have private trainings and repeatable samples, set it
        after the fit.
    warm_start : bool, default=False
        For ``method="gradient"``: whether another :meth:`fit` goes on with the network of the last
        one. It is charged like any other, and guarantees add up.
    verbose : int, default=0
        Whether to show a progress bar; of steps, with the released losses and their epsilon.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The declared labels; only if there are any.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity, of the last fit: of a sketch as a
        whole, or of a step; 0 without noise.
    n_iter_ : int
        Number of steps made, since the network was; only if there is one.
    loss_curve_ : list of float
        The loss of every step, in units of cost; only if there is a network. It has noise as
        everything else, and is paid for.
    privacy_guarantee_ : PrivacyGuarantee or None
        What is guaranteed of all that was fitted since the network was made; None for
        ``epsilon=None``, ``accounting="paper"`` and seeded fits.
    n_records_ : int
        The number of records, with noise, as it was released; only with ``method="sketch"``. The
        true one is private under ``neighbouring="add_remove"``.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has any.

    Raises
    ------
    ModuleNotFoundError
        If PyTorch is not installed, and needed for a network.
    BudgetExceededError
        If the ledger does not allow the fit. Then nothing has been released.
    ValueError
        If a parameter, a record or a label is wrong, or epsilon is too small for a sketch, or does
        not allow a single step with this `noise_multiplier`. Nothing has been charged then.

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
    *A sketch* releases the number of records first, and then shares out the rest of its budget by
    it: where noise leaves little of a class, most goes to the means of classes; otherwise to
    clusters and covariances, which are those of each class where noise allows. Radii, to which
    vectors are clipped, are read off noisy histograms. Everything is one Gaussian event, whose
    noise multiplier is `noise_multiplier_`. What noise has left is estimated by empirical Bayes,
    with the known size of the noise. Proofs: :ref:`sketch-releases`.

    *A table* is released as counts of the values of columns, and of pairs of groups of values of
    every two columns, within the classes of the target. Mixtures of independent columns are fitted
    to these.

    *A step* of ``method="gradient"`` draws a Poisson sample of the records, and releases one
    vector: gradients, the loss and, for ``gradient="per_record"``, the number of records. It is one
    Poisson-sampled Gaussian event, and a fit is `n_iter` of them, priced together. Proofs:
    :ref:`proof-gradient-sensitivity`. A step whose sample is empty releases noise, like any other.
    Records are scaled to [-1, 1] by `data_bounds`, so that `reg`, `clip_norm`, `l1_weight` and
    `class_scale` are in these units, whatever those of the data.

    *Searches.* In a grid search every fit of every candidate on every fold spends epsilon, also
    that of ``refit``, and all go on the ledger. The search looks at :meth:`score`, which is **not
    private**, so that neither ``cv_results_`` nor the choice is, nor a generator that was chosen so
    from the very records it protects. Search on public data that are alike.

    *What is kept.* A pickle and :meth:`save` hold the sketch, or the network and the losses, and
    the parameters, which were released or public; a pickle also what a further training goes on
    from (and the ledger's place). No record is among them.

    *Classes* in ``method="gradient"`` are generated equally often, while records are as they are.
    The transport that ``"per_image"`` and ``"parameters"`` follow has to carry mass from one class
    to another, then, and a rare class learns to look like others; ``"per_record"`` leaves every
    class its own.

    *Networks of your own* with ``gradient="parameters"`` see gradients without noise in their
    backward pass. Buffers are put back afterwards; hooks must not keep what they see elsewhere.

    *On a GPU* noise is drawn by a generator that is not cryptographic, unless `secure_noise` is
    set.

    References
    ----------
    T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training Differentially
    Private Generative Models with Sinkhorn Divergence", NeurIPS 2021. The loss is that of
    definition 4.3; ``method="gradient"`` with ``gradient="per_image"`` and ``clipping="per_image"``
    is algorithm 1. The sketch is not in the paper.

    Examples
    --------
    Digits that nobody wrote, and how many real ones a classifier knows that has learned from them:

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpot import DPSinkhornGenerator
    >>> X, y = load_digits(return_X_y=True)
    >>> generator = DPSinkhornGenerator(
    ...     epsilon=8.0, data_bounds=(0, 16), classes=range(10), image_shape=(8, 8)
    ... ).fit(X[:1200], y[:1200])
    >>> X_new, y_new = generator.sample(3000)
    >>> classifier = LogisticRegression(max_iter=1000).fit(X_new / 16, y_new)
    >>> classifier.score(X[1200:] / 16, y[1200:]) > 0.75
    True

    A table:

    >>> import numpy as np
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> age, sex = rng.integers(18, 80, 2000), rng.choice(["F", "M"], 2000)
    >>> table = pd.DataFrame({"age": age, "sex": sex, "retired": np.where(age > 65, "yes", "no")})
    >>> generator = DPSinkhornGenerator(
    ...     epsilon=1.0, target="retired",
    ...     schema={"age": range(18, 80), "sex": ["F", "M"], "retired": ["no", "yes"]},
    ... ).fit(table)
    >>> new = generator.sample(1000)
    >>> new.columns.tolist(), bool(new["age"].between(18, 79).all())
    (['age', 'sex', 'retired'], True)
    >>> bool(generator.sample(100, given={"age": (70, 79)})["retired"].eq("yes").mean() > 0.8)
    True
    """

    _parameter_constraints = {
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "method": [StrOptions({"sketch", "gradient"})],
        "data_bounds": ["array-like"],
        "classes": ["array-like", None],
        "image_shape": ["array-like", None],
        "schema": "no_validation",
        "target": "no_validation",
        "encoder": "no_validation",
        "encoder_norm": [Interval(Real, 0, None, closed="neither"), None],
        "n_coefficients": [Interval(Integral, 1, None, closed="left"), None],
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "budget_shares": [dict, None],
        "augment": [dict, StrOptions({"auto"}), None],
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
        method="sketch",
        data_bounds=(0, 1),
        classes=None,
        image_shape=None,
        schema=None,
        target=None,
        encoder="auto",
        encoder_norm=None,
        n_coefficients=None,
        n_clusters=None,
        budget_shares=None,
        augment="auto",
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
        network=None,
        latent_dim=None,
        learning_rate=1e-3,
        optimizer="adam",
        device="auto",
        secure_noise=False,
        score_reg=0.05,
        ledger=None,
        random_state=None,
        warm_start=False,
        verbose=0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.data_bounds = data_bounds
        self.classes = classes
        self.image_shape = image_shape
        self.schema = schema
        self.target = target
        self.encoder = encoder
        self.encoder_norm = encoder_norm
        self.n_coefficients = n_coefficients
        self.n_clusters = n_clusters
        self.budget_shares = budget_shares
        self.augment = augment
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
    def fit(self, X, y=None) -> Self:
        """Sketch records, or train a network. Charges the ledger first, with all that it will cost.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Private records. Values outside of `data_bounds` are moved to them, silently; what is
            not finite is refused. With a `schema`, a table with its columns.
        y : array-like of shape (n_records,), default=None
            Private labels, each one of `classes`; others are refused.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        fit = self._fit_by_sketch if self.method == "sketch" else self._fit_by_gradients
        columns = {name: vars(self)[name] for name in _OF_COLUMNS if name in vars(self)}
        try:
            return fit(X, y)
        except BaseException:
            # What was fitted before is still there, and goes with the columns that it had.
            for name, value in columns.items():
                setattr(self, name, value)
            raise

    @_SILENT
    def sample(self, n_samples=1, y=None, given=None) -> Any:
        """Generate records. That costs nothing: they are made of what was released.

        Parameters
        ----------
        n_samples : int, default=1
            How many records; of no account where `y` is given. How many you draw is seen by
            whoever gets the file. Under ``neighbouring="add_remove"`` the number of records is
            private: draw a round number, not ``len(table)``; `n_records_` tells about how many
            there are.
        y : array-like of shape (n_samples,) or dict, default=None
            Labels of the records, or how many records of each label there shall be, such as
            ``{"cat": 10, "dog": 5}``. None draws them in proportion to what was released of the
            records' own; with ``method="gradient"`` it makes equally many of all classes, up to
            one, in random order.
        given : dict, default=None
            For tables: conditions by the name of a column. A value, a list of values, None for a
            missing one, or for numbers a tuple (low, high).

        Returns
        -------
        X : {ndarray, DataFrame} of shape (n_samples, n_features)
            Records within `data_bounds`. With a `schema`, values that it declares, held by what
            held the records that the generator was fitted to.
        y : ndarray of shape (n_samples,)
            Their labels; only if `classes` were declared.

        Raises
        ------
        ImportError
            If the frames that are drawn are of a library that is not installed.
        ValueError
            If `y` or `given` asks for what was not declared, or `n_samples` is no such number.
        """
        check_is_fitted(self)
        rng = check_random_state(self.random_state)
        classes = getattr(self, "classes_", None)
        if isinstance(getattr(self, "_sketch", None), TableSketch):
            return self._sample_table(n_samples, y, given, rng)
        if given is not None:
            raise ValueError("given is for tables, with a schema; use y for labels.")
        codes = wanted_labels(n_samples, y, classes, rng, self._class_counts())
        rows = self._rows(n_samples if codes is None else len(codes), codes, rng)
        X = from_unit_box(rows, self._box)
        return X if codes is None else (X, self.classes_[codes])

    @_SILENT
    def score(self, X, y=None) -> float:
        """Return minus how far generated records are from given ones; that is not private.

        The debiased Sinkhorn divergence with regularisation `score_reg`, for mean squared
        differences of features scaled to [-1, 1]; with labels, a record of another class costs 4
        more, and in tables two categories differ as the ends of a column of numbers do. 0 is the
        best, but for chance. It depends on no other parameter of the training, so that candidates
        stay comparable.
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

        Raises
        ------
        ValueError
            If records or labels are none that a fit would take.
        """
        check_is_fitted(self)
        rng = check_random_state(self.random_state)
        if isinstance(getattr(self, "_sketch", None), TableSketch):
            return self._score_table(X, y, rng)
        points, codes = read_records(
            self, X, y, getattr(self, "classes_", None), self._box, reset=False
        )
        kept = rng.permutation(len(points))[:SCORED_ROWS]
        points, codes = points[kept], None if codes is None else codes[kept]
        rows = self._rows(len(kept), codes, rng)
        return -sinkhorn_divergence(rows, points, codes, codes, reg=float(self.score_reg))

    def save(self, path) -> None:
        """Write the fitted generator to a file, without private data.

        All that the file holds was released, so that it may be published. The ledger, the
        `random_state` and the `device` are not written, nor is a `network` that is a module or a
        callable: its weights are.

        Parameters
        ----------
        path : str or path-like
            The file; one that exists is replaced.

        Raises
        ------
        OSError
            If the file cannot be written. An old one is as it was, then.
        ValueError
            If something in the state of a network of your own is no array of numbers.
        """
        check_is_fitted(self)
        write_generator(path, *to_file(self))

    @classmethod
    def load(
        cls, path, *, network=None, encoder=None, ledger=None, container=None
    ) -> "DPSinkhornGenerator":
        """Return the fitted generator that was saved in a file; nothing in it is executed.

        Parameters
        ----------
        path : str or path-like
            The file.
        network : torch.nn.Module or callable, default=None
            The `network` of the generator that was saved, where it was no name.
        encoder : transformer or pair of callables, default=None
            The `encoder` of the generator that was saved, where it was no name.
        ledger : PrivacyLedger, default=None
            To be charged if it is fitted again.
        container : {"array", "pandas", "polars"}, default=None
            What shall hold tables that are drawn. None is what held the private one.

        Returns
        -------
        DPSinkhornGenerator
            Fitted.

        Raises
        ------
        ImportError
            If tables are drawn as frames of a library that is not installed.
        OSError
            If the file cannot be read.
        ValueError
            If it is damaged or none of a generator, or the network or the encoder is missing or
            another one than before, or there is no such container.
        """
        parameters, fitted = from_file(*read_generator(path), network, encoder, container)
        try:
            generator = cls(**parameters, ledger=ledger)
        except TypeError as error:
            raise ValueError(f"the file has parameters of no such generator: {error}.") from None
        generator.__dict__.update(fitted)
        # Raises if the network is not that of the weights, or the arrays are of no use.
        generator.sample()
        return generator

    def __sklearn_is_fitted__(self):
        # A fit that was refused may have counted the features already.
        return hasattr(self, "_network") or hasattr(self, "_sketch")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.classes is not None
        return tags

    def _forget(self):
        """Take away what the last fit left, but for what was read of this one's X."""
        left = [name for name in vars(self) if name.endswith("_") or name in _STATE]
        for name in left:
            if name not in _OF_COLUMNS:
                delattr(self, name)

    def _rows(self, n_rows, codes, rng):
        """Return generated rows, from -1 to 1."""
        draw = self._network_rows if hasattr(self, "_network") else self._sketch_rows
        return draw(n_rows, codes, rng)

    def _make_source(self, continued):
        """Return where noise comes from: another stream of a seed for a training that goes on."""
        source = make_source(self.random_state).for_user(self.n_iter_ if continued else 0)
        if self.ledger is not None and (self.epsilon is None or self.accounting == "paper"):
            raise ValueError(
                "epsilon=None and accounting='paper' guarantee nothing that a ledger could keep "
                "account of. Use an epsilon and accounting='sound', or no ledger."
            )
        check_ledger(self.ledger, self.neighbouring, seeded=source.seeded)
        return source

    def _charge(self, plan, source, what):
        if plan.guaranteed:
            charge(
                self.ledger,
                plan.event,
                unit="record",
                label=f"{type(self).__name__}, {what}",
                neighbouring=self.neighbouring,
                seeded=source.seeded,
            )

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
