"""The generator of private synthetic data, as an estimator."""

from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted
from tqdm.auto import tqdm

from skdpot._base import tells_of_charges, warn_user
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.generative._base import BaseGenerator
from skdpot.generative._fitted import FittedRecords
from skdpot.generative._network import NetworkTraining, learn_from_sketch, training_of
from skdpot.generative._quality import QualityReport, quality_of
from skdpot.generative._records import Declared, Points
from skdpot.generative._sketch.people_sketch import PeopleRecords, PeopleSketch, split_roles
from skdpot.generative._sketch.plan import sketch_budget
from skdpot.generative._sketch.table_sketch import ReleasedTable, TableRecords, TableSketch
from skdpot.generative._sketch.vectors import ImageSketch, VectorSketch
from skdpot.privacy.charging import ReleasePlan, relation_of
from skdpot.privacy.guarantee import PrivacyGuarantee
from skdpot.privacy.random import make_source
from skdpot.releases import check_exact_sums
from skdpot.tables import doubts_about_crowding


@dataclass(frozen=True, eq=False)
class _Data:
    """Private records, and how they are sketched."""

    model: VectorSketch | TableSketch | PeopleSketch
    training: NetworkTraining | None
    records: Points | TableRecords | PeopleRecords


class DPSinkhornGenerator(BaseGenerator):
    """Generator of synthetic records, by optimal transport under differential privacy.

    The records are sketched: a public encoder turns each of them into a vector, and sums over
    records (their number, means and covariances, and shares of clusters by balanced transport)
    are released with Gaussian noise, all from one budget.
    The rest costs nothing. Tables are sketched by counts of pairs of columns.

    **What is protected.** Every record together with its label, by epsilon and delta, for one call
    of :meth:`fit`. *Not* protected are that there is a record, that values are finite (in a table:
    that none is missing which may not be) and labels, categories and columns declared ones (others
    are refused), how a frame holds dates and labels, and how long a fit takes. :meth:`score` is not
    private.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy parameter of a fit. None has no noise, for public data: **nothing is guaranteed**,
        and a ledger is refused.
    delta : float, default=1e-5
        Above 0, and far below one over the number of records. A ledger is charged epsilon and
        delta.
    bounds : tuple (low, high), default=None
        Public, and required but for tables with a `schema`, and for images, whose default is
        (0, 1). Each a number, or one per feature. Values outside are moved to them, silently, and
        generated ones are within.
    classes : array-like of shape (n_classes,), default=None
        Public. All labels that there may be; they may not be learned from private data. None is
        for records without labels, and then `y` is refused.
    image_shape : tuple of int, default=None
        (height, width) or (height, width, channels) where a record is an image, flattened in this
        order.
    schema : dict, str or path-like, default=None
        Public. What the columns of a table hold, by name: ``range(low, high + 1)`` for integers,
        ``(low, high)`` for real numbers or dates, a list of categories, or a dictionary:
        :ref:`the guide of schemas <tables-schema>`. Text is JSON, or the path of a file with it.
    target : str or int, default=None
        Public. A column of the `schema` that is to be predicted; of numbers, even bands between
        the bounds are the classes. With `y`, which is this column, it is none of X.
    rules : list of str, default=None
        Public. What holds in every row that is drawn, such as ``"end >= start"``, or ``"total ==
        food + rent"``, which computes a column: :ref:`rules <tables-rules>`.
    model : "auto", VectorSketch, ImageSketch or TableSketch, default="auto"
        How records are sketched. ``"auto"`` is a :class:`~skdpot.generative.TableSketch` with a
        `schema`, an :class:`~skdpot.generative.ImageSketch` with an `image_shape`, and a
        :class:`~skdpot.generative.VectorSketch` otherwise. To search ``model__n_clusters``, pass
        the model itself.
    network : str, torch.nn.Module, callable or NetworkTraining, default=None
        A network that learns from the sketch at no cost and makes the samples; if it fails, the
        sketch does. See :class:`~skdpot.generative.NetworkTraining`.
    neighbouring : {"auto", "add_remove", "replace_one"}, default="auto"
        A neighbour of the data has a record more or less, or another one in the place of one.
        ``"auto"`` is the relation of a `PrivacyLedger`, and ``"add_remove"`` without one.
    score_reg : float, default=0.05
        Regularisation of :meth:`score`.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before anything is released, for the unit ``"record"``; with groups, ``"user"``.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's cryptographic source. With an integer a fit
        is reproducible, and therefore *not private*. It also decides about :meth:`sample`; for
        private fits and repeatable samples, set it after the fit.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The declared labels; only if there are any.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity, of the sketch as a whole; 0 without
        noise.
    n_records_ : int
        The number of records, with noise, as it was released.
    n_iter_ : int
        Number of steps of the network; only if there is one.
    loss_curve_ : list of float
        The loss of every step; only if there is a network.
    privacy_guarantee_ : PrivacyGuarantee or None
        What is guaranteed; None for ``epsilon=None`` and seeded fits.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has any.

    See Also
    --------
    PrivacyLedger : Keeps account of what was released.
    skdpot.published.SinkhornGradientGenerator : The published training on noisy gradients.

    Notes
    -----
    All releases are one Gaussian event, with this `noise_multiplier_`. Proofs:
    :ref:`proof-sketch-releases`.

    *Searches.* In a grid search every fit spends epsilon, and the choice by :meth:`score` is **not
    private**: search on public data.

    *What is kept.* A pickle and :meth:`save` hold what was released, and public parameters.

    References
    ----------
    T. Cao and others, "Don't Generate Me: Training Differentially Private Generative Models with
    Sinkhorn Divergence", NeurIPS 2021. The loss of networks is that of definition 4.3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpot import DPSinkhornGenerator
    >>> X, y = load_digits(return_X_y=True)
    >>> generator = DPSinkhornGenerator(
    ...     epsilon=8.0, bounds=(0, 16), classes=range(10), image_shape=(8, 8)
    ... ).fit(X[:1200], y[:1200])
    >>> X_new, y_new = generator.sample(3000)
    >>> X_new.shape, generator.score(X[1200:], y[1200:]) > -0.2
    ((3000, 64), True)

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
    >>> bool(generator.sample(100, given={"age": (70, 79)})["retired"].eq("yes").mean() > 0.8)
    True
    """

    _parameter_constraints = {
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "bounds": ["array-like", None],
        "classes": ["array-like", None],
        "image_shape": ["array-like", None],
        "schema": "no_validation",
        "target": "no_validation",
        "rules": "no_validation",
        "model": [StrOptions({"auto"}), VectorSketch, TableSketch],
        "network": "no_validation",
        "neighbouring": [StrOptions({"auto", "add_remove", "replace_one"})],
        "score_reg": [Interval(Real, 0, None, closed="neither")],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    # With groups, people are protected: whoever passes them on shall do so.
    __metadata_request__fit = {"groups": True}
    _in_files = ("epsilon", "delta", "neighbouring", "score_reg", "verbose")

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-5,
        *,
        bounds=None,
        classes=None,
        image_shape=None,
        schema=None,
        target=None,
        rules=None,
        model="auto",
        network=None,
        neighbouring="auto",
        score_reg=0.05,
        ledger=None,
        random_state=None,
        verbose=0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.image_shape = image_shape
        self.schema = schema
        self.target = target
        self.rules = rules
        self.model = model
        self.network = network
        self.neighbouring = neighbouring
        self.score_reg = score_reg
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    @tells_of_charges
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, groups=None) -> Self:
        """Sketch records. The ledger is charged first, with all that it will cost.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Private records. Values outside of `bounds` are moved to them, silently; what is not
            finite is refused. With a `schema`, a table with its columns: there infinite values,
            too, are moved to the bounds, and NaN is a missing value.
        y : array-like of shape (n_records,), default=None
            Private labels, each one of `classes`; others are refused. With a `schema` and no
            `classes`, the `target`.
        groups : array-like of shape (n_records,) or str, default=None
            The person of each row of a table, or the column of a frame that has them. Then people
            are protected, each with all of her rows, and a person counts as much as any other,
            however many rows she has. None is a row for each person.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ModuleNotFoundError
            If PyTorch is not installed, and needed for a network.
        BudgetExceededError
            If the ledger does not allow the fit. Then nothing has been released.
        ValueError
            If a parameter, a record or a label is wrong, or epsilon is too small for a sketch.
            Nothing has been charged then.
        """
        try:
            self._fit(X, y, groups)
            self._learn()
            return self
        except MemoryError:
            pass
        # Sizes of classes, and of all records, are private. Outside of the handler, so that the
        # error in question is no context of this one.
        raise MemoryError(
            "the records do not fit into memory, as they are needed for a sketch: use fewer of "
            "them, fewer coefficients, or a smaller network."
        )

    def _validate(self, X: Any, y: Any, groups: Any = None) -> _Data:
        declared, model = self._read_model(by_person=groups is not None)
        if isinstance(model, PeopleSketch):
            records = model.read(self, X, y, groups, declared)
        else:
            records = model._read(self, X, y, declared, reset=True)
        check_exact_sums(len(records.points))
        # With epsilon nothing may be said of what records are like.
        if self.epsilon is None and self.schema is None and self.image_shape is None:
            names = getattr(self, "feature_names_in_", range(self.n_features_in_))
            warn_user(doubts_about_crowding(names, records.points))
        return _Data(model, self._training(), records)

    def _declared(self, n_records: int, columns: Any, groups: Any = None) -> _Data:
        """Return a sketch of records of which nothing is known but what was declared."""
        declared, model = self._read_model(by_person=groups is not None)
        return _Data(model, self._training(), model._unseen(declared, columns))

    def _read_model(self, *, by_person: bool) -> tuple[Declared, Any]:
        """Return what is declared of records, and how they are sketched, or raise."""
        declared = Declared(
            self.bounds, self.classes, self.image_shape, self.schema, self.target, self.rules
        )
        model = self.model
        if model == "auto":
            tabular, images = self.schema is not None, self.image_shape is not None
            model = TableSketch() if tabular else ImageSketch() if images else VectorSketch()
        model._check(declared)
        if by_person:
            return PeopleSketch.of(model, declared)
        if self.schema is not None and any(split_roles(self.schema)[1:]):
            raise ValueError(
                "the schema declares columns with 'per': 'user' or 'order': True, which are for "
                "people with several rows: give the person of each row as groups."
            )
        return declared, model

    def _training(self) -> NetworkTraining | None:
        """Return how a network learns from the sketch, if there is to be one."""
        return None if self.network is None else training_of(self.network)

    def _plan(self, data: _Data) -> ReleasePlan:
        relation = relation_of(self.ledger, self.neighbouring, "add_remove")
        source = make_source(self.random_state).for_user(0)
        budget = sketch_budget(self.epsilon, self.delta, relation)
        space: Any = data.records.space
        release = data.model._plan(space, budget, data.training, self._bar)
        unit = "user" if isinstance(data.model, PeopleSketch) else "record"
        return ReleasePlan(
            release,
            release.event,
            source,
            f"{type(self).__name__}, {release.label}",
            PrivacyGuarantee(float(self.epsilon or 0), float(self.delta), relation, unit),
            neighbouring=relation,
            unit=unit,
            n_records=len(data.records.points) if relation == "replace_one" else None,
            parameters=("neighbouring",),
        )

    def _run(self, plan: ReleasePlan, data: _Data) -> FittedRecords | ReleasedTable:
        return plan.release.run(data.records, plan.source)

    def _keep(self, plan: ReleasePlan, released: FittedRecords | ReleasedTable) -> None:
        self._set_fitted(released, plan.release.budget.noise_multiplier)

    @property
    def _bar(self) -> Any:
        """Return what makes a progress bar."""
        return partial(tqdm, desc=type(self).__name__, disable=not self.verbose)

    def _learn(self) -> None:
        """Have a network learn from the sketch, if there is to be one; that costs nothing.

        The sketch has been paid for, and is kept if this fails or is interrupted.
        """
        if self.network is None or not isinstance(self._fitted, FittedRecords):
            return
        # Of numbers that depend on no record, and are others than those of the sketch.
        source = make_source(self.random_state).for_user(1)
        rng = np.random.default_rng(source.bits(62, 2).tolist())
        with np.errstate(all="ignore"):
            network = learn_from_sketch(training_of(self.network), self._fitted, rng, self._bar)
        self._set_fitted(replace(self._fitted, network=network), self.noise_multiplier_)

    def quality(self) -> QualityReport:
        """Return a report on the fitted sketch, made of what was released: that costs nothing.

        How much noise there is; of a table, whether the model fits the counts that were released;
        of vectors and images, what noise leaves of each class. With a model that has a
        `quality_share`, such as ``ImageSketch(quality_share=0.1)``, also what records tell that
        were held out: how far samples are from them, by which chance a classifier tells them
        apart, and how well a model that learned from samples predicts the target, or the label,
        with standard errors. A network that learned from the sketch is not judged.

        Returns
        -------
        QualityReport
            Shown by ``print``, or at the end of a notebook cell; its methods are ``to_dict``,
            ``to_html`` and ``save(path)`` as .txt, .html or .json.

        Raises
        ------
        ValueError
            If the generator is of a file that does not hold what was released.
        """
        check_is_fitted(self)
        return quality_of(self._fitted, self.privacy_guarantee_)

    def prototypes(self) -> Any:
        """Return what was released of clusters of vectors or images: their means, as records.

        They cost nothing, and are no private records, but means of many of them, with noise.

        Returns
        -------
        X : ndarray of shape (n_clusters of all classes, n_features)
            Within `bounds`.
        y : ndarray of shape (n_clusters of all classes,)
            Their labels; only if `classes` were declared.

        Raises
        ------
        ValueError
            If the generator is of a table.
        """
        check_is_fitted(self)
        if not isinstance(self._fitted, FittedRecords):
            raise ValueError("prototypes() is of vectors and images, and the generator's a table.")
        return self._fitted.prototypes()

    def _undeclared(self) -> str | None:
        if self.bounds is None and self.schema is None and self.image_shape is None:
            return "bounds are not declared"
        return super()._undeclared()

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
            The network of the generator that was saved, where it was no name.
        encoder : transformer or pair of callables, default=None
            The encoder of the generator that was saved, where it was one of your own.
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
        return cls._load(path, ledger, network=network, encoder=encoder, container=container)
