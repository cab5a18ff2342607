"""The generator of private synthetic data, as an estimator; and the base of generators.

doc/theory/releases.csv has the sensitivity, noise and proof of each release in one row.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import DensityMixin, clone
from sklearn.utils.validation import check_is_fitted

from skdpot._base import PrivateEstimator, make_bar, warn_of_few, warn_of_uncounted, warn_user
from skdpot._sklearn_compat import Interval, StrOptions, fit_context
from skdpot.generative import _records
from skdpot.generative._draws import ReleasedTable
from skdpot.generative._files import load_generator, save_generator
from skdpot.generative._network import learn_from_sketch, training_of
from skdpot.generative._quality import QualityReport, quality_of
from skdpot.generative._schema import is_auto
from skdpot.generative._table import TableSketch
from skdpot.generative._vectors import ImageSketch, VectorSketch
from skdpot.privacy.charging import (
    PrivacyGuarantee,
    ReleasePlan,
    relation_of,
    useless_releases_are_allowed,
)
from skdpot.privacy.checks import check_count, refuse_derived
from skdpot.privacy.noise import make_source
from skdpot.releases import check_exact_sums

_Fitted = _records.FittedRecords | ReleasedTable


class BaseGenerator(DensityMixin, PrivateEstimator):
    """Methods of every fitted generator."""

    classes: Any
    network: Any
    model: Any = "auto"
    rules: Any = None
    computed: Any = None
    random_state: Any
    score_reg: float

    _fitted: _Fitted
    # Parameters that a file holds as they are.
    _in_files: ClassVar[tuple[str, ...]]

    # Floating-point warnings and errors may depend on private values.
    @np.errstate(all="ignore")
    def sample(self, n_samples=1, y=None, given=None, *, n_users=None) -> Any:
        """Generate records from the release, at no cost.

        Rows of a table are drawn evenly: each single row has nearly the distribution of the model,
        and together they are closer to the model than independent rows.

        Parameters
        ----------
        n_samples : int, default=1
            Number of records; leave it out if `y` is given. Everybody who gets the file sees this
            number. Under ``neighbouring="add_remove"`` the number of records is private: draw a
            round number, not ``len(table)``.
        y : array-like of shape (n_samples,) or dict, default=None
            Labels of the records, or the number of records with each label, such as ``{"cat": 10,
            "dog": 5}``. None draws labels in the released proportions. If no proportions were
            released, all classes get the same number, up to one, in random order.
        given : dict, default=None
            For tables: conditions by name of column. Each is a value, a list of values, None for a
            missing value, or for numbers a tuple (low, high).
        n_users : int, default=None
            After a fit with `groups`: the number of people, each with a released number of rows
            (1,000 at most), which are drawn independently; other parameters are then not used.
            None draws each row from a different person.

        Returns
        -------
        X : {ndarray, DataFrame} of shape (n_samples, n_features)
            Records within `bounds`. With a `schema`, declared values, in a table of the type of
            the fitted one. With `n_users` the first column is the person of each row.
        y : ndarray of shape (n_samples,)
            Their labels, or the target; only if it was fitted with `y`.

        Raises
        ------
        ImportError
            If the frames to draw belong to a library that is not installed.
        ValueError
            If `y` or `given` has undeclared values, `n_samples` or `n_users` is invalid, or
            the fit had no `groups` or no schema.
        """
        check_is_fitted(self)
        rng = _records.stream_of(self.random_state)
        fitted = self._ruled
        if n_users is None:
            return fitted.sample(n_samples, y, given, rng)
        if not isinstance(fitted, ReleasedTable) or fitted.space.user is None:
            raise ValueError("n_users is for a generator that was fitted with groups=.")
        if y is not None or given is not None:
            raise ValueError("y and given are for single rows: n_users draws whole people.")
        return fitted.sample_users(check_count("n_users", n_users), fitted.space.user, rng)

    @property
    def _ruled(self) -> _Fitted:
        """Return the release, of which samples keep the rules. These are read for each sample."""
        fitted = self._fitted
        if not isinstance(fitted, ReleasedTable):
            return replace(fitted, device=training_of(self.network).device)
        rules = _records.read_rules(self.rules, self.computed)
        names = [column.name for column in fitted.space.schema.computed]
        if set(rules.formulas) != set(names):
            raise ValueError(f"computed must have the columns of the fit, {names}.")
        return replace(fitted, rules=rules)

    # Floating-point warnings and errors may depend on private values.
    @np.errstate(all="ignore")
    def score(self, X, y=None) -> float:
        """Return minus the distance of generated records from given ones; not private.

        The distance is the debiased Sinkhorn divergence with regularisation `score_reg`, for mean
        squared differences of features scaled to [-1, 1]. With labels, a record of another class
        costs 4 more. In tables, two different categories have the distance of the two ends of a
        numeric column. 0 is the best, up to chance. The score depends on no other parameter, so
        that candidates are comparable. It is computed from the given records without noise. If
        these are private, do not publish the score, or a choice that depends on it.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
            Records. If there are more than 2,000, 2,000 of them are used.
        y : array-like of shape (n_records,), default=None
            Their labels; required if `classes` were declared.

        Returns
        -------
        float
            Higher means closer.

        Raises
        ------
        ValueError
            If a fit would refuse the records or labels.
        """
        check_is_fitted(self)
        rng = _records.stream_of(self.random_state)
        return self._ruled.score(self, X, y, float(self.score_reg), rng)

    def save(self, path) -> None:
        """Write the fitted generator to a file, without private data.

        The file contains only released values, so you may publish it. It does not contain the
        ledger, the `random_state` or the device. For a network that is a module or a callable, it
        contains only the weights. It contains no rules: they are code.

        Parameters
        ----------
        path : str or path-like
            The file; an existing file is replaced.

        Raises
        ------
        OSError
            If the file cannot be written. An existing file is then unchanged.
        ValueError
            If the state of your own network contains something other than numeric arrays.
        """
        check_is_fitted(self)
        save_generator(path, self)

    def _set_fitted(self, fitted: _Fitted, noise_multiplier: float) -> None:
        """Set the fitted attributes: functions of the release and of public parameters."""
        self._fitted = fitted
        self.noise_multiplier_ = noise_multiplier
        if fitted.space.classes is not None:
            self.classes_ = fitted.space.classes
        if fitted.n_records is not None:
            self.n_records_ = fitted.n_records
        if isinstance(fitted, ReleasedTable):
            self.schema_ = fitted.space.declaration
        if fitted.network is not None:
            self.loss_curve_ = fitted.network.losses
            self.n_iter_ = len(fitted.network.losses)

    def __sklearn_is_fitted__(self):
        # A fit that was refused may have counted the features already.
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.classes is not None
        tags.input_tags.allow_nan = self.epsilon is not None
        return tags


# How private records are sketched, and these records.
_Data = tuple[VectorSketch | TableSketch, _records.PrivateRecords]


class DPSinkhornGenerator(BaseGenerator):
    """Generator of synthetic records, by optimal transport under differential privacy.

    A fit releases a sketch of the records. A public encoder turns each record into a vector. Sums
    over records are released with Gaussian noise, all from one budget: their number, means and
    covariances, and shares of clusters by balanced transport. Everything else is computed from the
    sketch and costs nothing. The sketch of a table consists of counts of pairs of columns.

    **What is protected.** Every record together with its label, with epsilon and delta, for one
    call of :meth:`fit`. These facts are *not* protected: there is at least one record; names, types
    and shapes; the running time. No value of a record refuses a private fit, see
    :doc:`/not_protected`. :meth:`score` is not private.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy parameter of a fit. None means no noise, for public data: **nothing is
        guaranteed**, and a ledger is refused.
    delta : float, default=1e-5
        Above 0, and far below one over the number of records. A ledger is charged epsilon and
        delta.
    bounds : tuple (low, high), default=None
        Public. Required, except for tables with a `schema`. Each is a number, or one number per
        feature. Values outside are clipped, without a warning; generated values are within.
    classes : array-like of shape (n_classes,), default=None
        Public. All possible labels; do not learn them from private data. None means records
        without labels; then `y` is refused.
    image_shape : tuple of int, default=None
        (height, width) or (height, width, channels) if a record is an image, flattened in this
        order.
    schema : dict, str or path-like, default=None
        Public. The possible values of each column of a table, by name: ``range(low, high + 1)``
        for integers, ``(low, high)`` for real numbers or dates, a list of categories, or a
        dictionary: :ref:`the guide of schemas <tables-schema>`. A string is JSON, or the path of
        JSON. ``"auto"`` finds it with noise (:func:`~skdpot.generative.schema_from`).
    target : str or int, default=None
        Public. The column of the `schema` that models will predict. If it is numeric, its classes
        are equal bands between its bounds. If you pass it as `y`, leave it out of X.
    rules : list of str or callable, default=None
        Public. Conditions of every synthetic row: expressions of pandas, such as
        ``"end >= start"``, or functions that return True for right rows of a data frame:
        :ref:`rules <tables-rules>`.
    computed : dict, default=None
        Public. Columns of the `schema` that follow from others, by name, as expressions or
        functions: ``{"total": "food + rent"}``. They cost nothing.
    model : "auto", VectorSketch, ImageSketch or TableSketch, default="auto"
        The type of sketch. ``"auto"`` is a :class:`~skdpot.generative.TableSketch` with a
        `schema`, an :class:`~skdpot.generative.ImageSketch` with an `image_shape`, and a
        :class:`~skdpot.generative.VectorSketch` otherwise. To search ``model__n_clusters``, pass
        the model itself.
    network : str, torch.nn.Module, callable or NetworkTraining, default=None
        A network that learns from the sketch, at no cost, and draws the samples; if training
        fails, the sketch draws them. See :class:`~skdpot.generative.NetworkTraining`.
    neighbouring : {"auto", "add_remove", "replace_one"}, default="auto"
        One record is added or removed, or one is replaced. ``"auto"`` is the relation of the
        `PrivacyLedger`, and ``"add_remove"`` without one.
    score_reg : float, default=0.05
        Regularisation of :meth:`score`.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before anything is released, with the unit ``"record"``; with groups,
        ``"user"``.
    random_state : int, RandomState or None, default=None
        None uses the operating system's cryptographic source. With an integer, a fit can be
        reproduced and is *not private*. It also seeds :meth:`sample`: for a private fit with
        repeatable samples, set it after the fit.
    verbose : bool, default=None
        Whether to show a progress bar. None: on a terminal, after three seconds.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The declared labels, if any.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the sensitivity, for the whole sketch; 0 without
        noise.
    n_records_ : int
        The released, noisy number of records.
    schema_ : dict
        The `schema`, declared or found.
    n_iter_ : int
        Number of steps of the network; only if there is one.
    loss_curve_ : list of float
        The loss of every step; only if there is a network.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee; None for ``epsilon=None`` and seeded fits.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X has names.

    See Also
    --------
    PrivacyLedger : Records and limits all releases.
    skdpot.published.SinkhornGradientGenerator : The published training on noisy gradients.

    Notes
    -----
    All releases together are one Gaussian event with `noise_multiplier_`. Proofs:
    :ref:`proof-sketch-releases`.

    *Searches.* In a grid search every fit spends epsilon (:ref:`search-costs`), and the choice by
    :meth:`score` is **not private**: search on public data.

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
        "computed": "no_validation",
        "model": [StrOptions({"auto"}), VectorSketch, TableSketch],
        "network": "no_validation",
        "neighbouring": [StrOptions({"auto", "add_remove", "replace_one"})],
        "score_reg": [Interval(Real, 0, None, closed="neither")],
        "ledger": "no_validation",
        "random_state": ["random_state"],
        "verbose": ["verbose", None],
    }
    # With groups, people are protected, so meta-estimators must pass them on.
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
        computed=None,
        model="auto",
        network=None,
        neighbouring="auto",
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
        self.schema = schema
        self.target = target
        self.rules = rules
        self.computed = computed
        self.model = model
        self.network = network
        self.neighbouring = neighbouring
        self.score_reg = score_reg
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, groups=None) -> Self:
        """Release a sketch of the records. The ledger is charged first, with the whole cost.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Private records. Values outside `bounds` are clipped, without a warning, and NaN is read
            as the middle. With a `schema`, a table with its columns: a record with an undeclared
            value counts nowhere, unless the column may have missing values. Without epsilon such
            values are refused.
        y : array-like of shape (n_records,), default=None
            Private labels, each one of `classes`; records with other labels count nowhere. With a
            `schema` and without `classes`, the `target`.
        groups : array-like of shape (n_records,) or str, default=None
            The person of each row of a table, or the column of a frame with the persons. Then
            people are protected, each with all of their rows, which share the weight of one
            record. Rows without a person count nowhere. None means one row per person.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ModuleNotFoundError
            If a network needs PyTorch, and it is not installed.
        BudgetExceededError
            If the ledger does not allow the fit. Nothing is released in this case.
        ValueError
            If a parameter, or a type or shape of the data, is wrong, or epsilon is too small for a
            sketch. Nothing is charged in this case.
        """
        self._fit(X, y, groups)
        self._learn()
        return self

    def _validate(self, X: Any, y: Any, groups: Any = None) -> _Data:
        # Declarations are read first: what is wrong with them is said without a look at records.
        model = self._read_model(by_person=groups is not None)
        by_person = {} if groups is None else {"groups": groups}
        records = model._read(self, X, y, reset=True, private=self.epsilon is not None, **by_person)
        check_exact_sums(len(records))
        return model, records

    def _declared(self, n_records: int, columns: Any, groups: Any = None) -> _Data:
        """Return a sketch of records that are known only by their declaration."""
        model = self._read_model(by_person=groups is not None)
        by_person = {} if groups is None else {"by_person": True}
        return model, model._unseen(self, columns, **by_person)

    def _read_model(self, *, by_person: bool) -> VectorSketch | TableSketch:
        """Return the model of what the parameters declare, or raise."""
        model = self.model
        if model == "auto":
            tabular, images = self.schema is not None, self.image_shape is not None
            model = TableSketch() if tabular else ImageSketch() if images else VectorSketch()
        refuse_derived("model", model, (TableSketch, ImageSketch, VectorSketch))
        model._check(self)
        if by_person and (is_auto(self) or not isinstance(model, TableSketch)):
            raise ValueError("groups are for tables with a schema: declare schema={column: ...}.")
        return model

    def _plan(self, data: _Data) -> ReleasePlan:
        (model, records), relation = data, relation_of(self.ledger, self.neighbouring)
        warn_user(records.doubts)
        # A network that learns afterwards has random numbers of its own, for_user(1).
        source = make_source(self.random_state).for_user(0)
        budget = _records.sketch_budget(self.epsilon, self.delta, relation)
        training = None if self.network is None else training_of(self.network)
        release = model._plan(records.space, budget, training, self._bar)
        unit = "record" if getattr(records.space, "user", None) is None else "user"
        return ReleasePlan(
            release,
            release.event,
            source,
            f"{type(self).__name__}, {release.label}",
            PrivacyGuarantee(float(self.epsilon or 0), float(self.delta), relation, unit),
            neighbouring=relation,
            unit=unit,
            n_records=records.n_read if relation == "replace_one" else None,
            parameters=("neighbouring",),
        )

    def _run(self, plan: ReleasePlan, data: _Data) -> _Fitted:
        _, records = data
        return plan.release.run(records, plan.source)

    def _keep(self, plan: ReleasePlan, released: _Fitted) -> None:
        self._set_fitted(released, plan.release.budget.noise_multiplier)

    def _replace_fit(self, plan: ReleasePlan, released: Any) -> Self:
        """Replace the attributes, and warn if the release shows that it is of no use.

        That is a function of the release: it counts no row whose values are not declared, and noise
        makes some of none. Of 60 such releases of tables of two columns 11 counted more than four
        times a useless number, and are not told. What "auto" finds is declared.
        """
        super()._replace_fit(plan, released)
        told = plan.event is None or (plan.n_records and plan.useless) or is_auto(self)
        if told or useless_releases_are_allowed(self._permit) or not hasattr(self, "n_records_"):
            return self
        counted, is_table = max(round(self.n_records_), 1), self.schema is not None
        if replace(plan, n_records=-(-counted // (4 if is_table else 1))).refusal:
            warn_of_uncounted(counted, "records, too few for it to be of use with this epsilon")
            return self
        if is_table:
            released.warn_of_bounds()
            if plan.n_records is not None:
                noise = plan.release.noise_of_counts * np.sqrt(released.statistics["n_cells"].min())
                warn_of_few(released.counts * counted, noise, plan.n_records)
        if plan.refuse_useless(None) is None:
            # Public facts may not have the number of records.
            warn_user(replace(plan, n_records=counted).refuse_useless(None))
        return self

    def _for_parts(self) -> Self:
        """Return what owners agree on, or raise."""
        if self.epsilon is None or self.network is not None or is_auto(self):
            raise ValueError(
                "parts of a generator are released: set an epsilon, and no network. Owners agree "
                "on one declared schema."
            )
        # "auto" would be the relation of each owner's ledger, and owners must have the same.
        neighbouring = "replace_one" if self.neighbouring == "auto" else self.neighbouring
        return clone(self).set_params(neighbouring=neighbouring)

    def _plan_of_parts(self, n_records, columns, n_parts) -> ReleasePlan:
        """Return the plan of the release of each owner, or raise."""
        plan = self._plan(self._declared(n_records, columns))
        return replace(plan, release=plan.release.for_parts(n_parts, columns))

    def _private_sums(self, plan, data) -> np.ndarray:
        """Return an owner's counts without noise: private."""
        _, records = data
        return plan.release.values(records)

    @property
    def _bar(self) -> Callable[..., Any]:
        """Return a function that makes a progress bar."""
        return partial(make_bar, desc=type(self).__name__, verbose=self.verbose)

    def _learn(self) -> None:
        """Have a network learn from the sketch, if there is to be one; that costs nothing.

        The sketch has been paid for, and is kept if this fails or is interrupted.
        """
        if self.network is None or not isinstance(self._fitted, _records.FittedRecords):
            return
        # Random numbers that depend on no record, and differ from those of the sketch.
        source = make_source(self.random_state).for_user(1)
        rng = np.random.default_rng(source.bits(62, 2).tolist())
        with np.errstate(all="ignore"):
            training, fitted = training_of(self.network), self._fitted
            network = learn_from_sketch(training, fitted.space, fitted.sketch, rng, self._bar)
        self._set_fitted(replace(fitted, network=network), self.noise_multiplier_)

    def quality(self) -> QualityReport:
        """Return a report on the fitted sketch, made from the release; it costs nothing.

        The report states the noise. For a table, it says whether the model fits the released
        counts, and how strong associations of columns are there and in the model, the worst first.
        For vectors and images, it says how much of each class is above the noise. It knows nothing
        that was not released: to compare samples with records, keep some of the records out of the
        fit (:ref:`the guide <quality-of-samples>`). It does not test a network that learned from
        the sketch.

        Returns
        -------
        QualityReport
            The report. Use ``print`` or a notebook to show it, and ``to_dict``, ``to_html`` or
            ``save(path)`` (.txt, .html or .json) to keep it.

        Raises
        ------
        ValueError
            If the generator was loaded from a file without the released counts.
        """
        check_is_fitted(self)
        return quality_of(self._fitted, self.privacy_guarantee_)

    def prototypes(self) -> Any:
        """Return the released means of clusters of vectors or images, as records.

        They cost nothing. They are not private records, but noisy means of many records.

        Returns
        -------
        X : ndarray of shape (n_clusters of all classes, n_features)
            The means, within `bounds`.
        y : ndarray of shape (n_clusters of all classes,)
            Their labels; only if `classes` were declared.

        Raises
        ------
        ValueError
            If the generator is of a table.
        """
        check_is_fitted(self)
        if not isinstance(self._fitted, _records.FittedRecords):
            raise ValueError("prototypes() is of vectors and images, and the generator's a table.")
        return self._fitted.prototypes()

    @classmethod
    def load(
        cls, path, *, network=None, ledger=None, container=None, rules=None, computed=None
    ) -> "DPSinkhornGenerator":
        """Return the fitted generator that was saved in a file; no code in it is executed.

        Parameters
        ----------
        path : str or path-like
            The file.
        network : torch.nn.Module or callable, default=None
            The network of the saved generator, if it was not given by name.
        ledger : PrivacyLedger, default=None
            Ledger for later fits.
        container : {"array", "pandas", "polars"}, default=None
            Type of the tables that are drawn. None is the type of the private table.
        rules, computed : list and dict, default=None
            The rules and computed columns of the saved generator. ``rules=[]`` for none.

        Returns
        -------
        DPSinkhornGenerator
            Fitted.

        Raises
        ------
        ImportError
            If tables are frames of a library that is not installed.
        OSError
            If the file cannot be read.
        ValueError
            If the file is damaged or does not contain a generator, the network or rules are
            missing or differ from the saved ones, or `container` is unknown.
        """
        given = {"ledger": ledger, "rules": rules, "computed": computed}
        return load_generator(cls, path, network=network, container=container, **given)


class SchemaFinder(DPSinkhornGenerator):
    """The estimator of `schema_from`: a fit to a table releases its schema alone."""

    def _plan(self, data: _Data) -> ReleasePlan:
        plan = super()._plan(data)
        return replace(plan, release=replace(plan.release, plan_sketch=None))

    def _keep(self, plan: ReleasePlan, released: Any) -> None:
        self.schema_ = released


def schema_from(
    frame, epsilon, *, delta=1e-5, neighbouring="auto", ledger=None, random_state=None
) -> dict:
    """Return a schema of a private table, found with noise. The ledger is charged first.

    What a column may hold is read from its type alone: numbers, truth values, dates (to the day)
    and labels. Columns of categories or Python objects have numbers or labels, whichever more of
    are found.
    Bounds enclose the magnitudes, between powers of two and one and a half times them, that many
    records have, and the scale suits them. Categories are labels that many records have; all
    others are read as ``"other"``, or as missing where noise explains them. Values are declared to
    be missing, perhaps, wherever the type allows it.

    Parameters
    ----------
    frame : {DataFrame, ndarray} of shape (n_records, n_features)
        Private: a frame of pandas, polars or pyarrow, or an array of numbers. Leave out columns
        that you can declare: they cost nothing.
    epsilon : float
        Privacy parameter.
    delta : float, default=1e-5
        Above 0, and far below one over the number of records.
    neighbouring : {"auto", "add_remove", "replace_one"}, default="auto"
        One record is added or removed, or one is replaced. ``"auto"`` is the relation of the
        `PrivacyLedger`, and ``"add_remove"`` without one.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before anything is released, with the unit ``"record"``.
    random_state : int, RandomState or None, default=None
        None uses the operating system's cryptographic source. With an integer, the release can be
        reproduced and is *not private*.

    Returns
    -------
    dict
        For `schema` of :class:`~skdpot.DPSinkhornGenerator`. You may publish and change it. A
        column of which nothing was found has the bounds 0 and 1, or ``"other"`` alone.

    Raises
    ------
    BudgetExceededError
        If the ledger does not allow the release. Nothing is released in this case.
    ValueError
        If a parameter or a type is wrong, or, with ``"replace_one"``, there are too few records.
        Nothing is charged in this case.

    See Also
    --------
    schema_template : A schema to be filled in, for which no value is read.
    skdpot.DPSinkhornGenerator : ``schema="auto"`` finds the schema within the budget of a fit.

    Notes
    -----
    All counts are one Gaussian release, and labels are found by a threshold. Proof:
    :ref:`proof-found-schemas`.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpot.generative import schema_from
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({
    ...     "age": rng.integers(18, 90, 5000),
    ...     "town": rng.choice(["Oslo", "Rome"], 5000), "smokes": rng.random(5000) < 0.3,
    ... })
    >>> for name, declared in schema_from(table, 1.0, random_state=0).items():
    ...     print(name, declared)
    age {'missing': False, 'bounds': [16, 95], 'integer': True}
    town {'missing': True, 'categories': ['Oslo', 'Rome']}
    smokes {'missing': False, 'categories': [False, True]}
    """
    options = {"neighbouring": neighbouring, "ledger": ledger, "random_state": random_state}
    return SchemaFinder(epsilon, delta, schema="auto", **options).fit(frame).schema_
