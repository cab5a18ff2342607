"""A randomized search for hyperparameters with a differentially private choice."""

import copy
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import product
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend
from sklearn import get_config
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterSampler, RandomizedSearchCV, cross_validate
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import get_routing_for_object, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter

from skdpot._base import LOST_GROUPS, PrivateEstimator, is_library, make_bar, make_trial, warn_user
from skdpot._sklearn_compat import (
    Interval,
    fit_context,
    metadata_at,
    rows_at,
    validate_nested_parameters,
)
from skdpot.model_selection._copies import DIGITS, WORDS, as_rows, copy_of, stand_in
from skdpot.privacy import BudgetExceededError, PrivacyLedger, allow_useless_releases
from skdpot.privacy.charging import ExpectedError, PrivacyGuarantee, ReleasePlan
from skdpot.privacy.checks import UndeclaredError, real_number, redact_errors, result_of, silence
from skdpot.privacy.choices import SCORE_UNITS, choose_n_blocks, in_units, random_blocks
from skdpot.privacy.events import ComposedDpEvent
from skdpot.privacy.noise import NoiseSource, make_source
from skdpot.privacy.sensitivity import block_score_sensitivity
from skdpot.releases import ChoiceRelease
from skdpot.tables import person_codes, refuse_other_rows


@dataclass(frozen=True, eq=False)
class SearchRecords:
    """Private records, and the arrays of `params`, with one value for each."""

    X: Any
    y: Any
    params: dict[str, Any]
    # Further parameters of fits.
    public: dict[str, Any]
    # The number of units that are assigned to blocks: records, or people. A block has none.
    n_units: int = 0
    # The number of each record's person, if people have several records.
    person: np.ndarray | None = None

    def rows_in(self, blocks: list[np.ndarray]) -> list[np.ndarray]:
        """Return the positions of the records in each block; a person's records stay together."""
        if self.person is None:
            return blocks
        # Positions of the rows of person 0, then of person 1, and so on.
        ordered = np.argsort(self.person, kind="stable")
        of_people = np.split(ordered, np.cumsum(np.bincount(self.person))[:-1])
        return [np.concatenate([of_people[i] for i in block]) for block in blocks]

    def each(self, made: Callable[[Any], Any]) -> "SearchRecords":
        """Return the records of a block, made of the arrays of these."""
        y = None if self.y is None else made(self.y)
        params = {name: made(values) for name, values in self.params.items()}
        return SearchRecords(made(self.X), y, params, self.public)


@dataclass(frozen=True, eq=False)
class Search:
    """The candidates of a search, and how they are judged; the number of candidates is secret."""

    selection: ChoiceRelease
    drawn: list[dict[str, Any]]
    trials: dict[int, Any]
    n_blocks: int
    score_range: tuple[float, float]
    scoring: Any
    cv: Any
    scorer: Any

    @property
    def unit(self) -> float:
        """Return the unit of sums of scores."""
        return float(np.ptp(self.score_range)) / (self.n_blocks * SCORE_UNITS)

    @property
    def standard_error(self) -> float:
        """Return the standard deviation of the noise of a score."""
        return self.unit * self.selection.standard_deviation

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard error of a candidate's score; its scale is the range of scores."""
        what = f"standard error of a score, with {self.n_blocks} blocks"
        return (ExpectedError(what, self.standard_error, float(np.ptp(self.score_range))),)


class PrivateSearchCV(PrivateEstimator, RandomizedSearchCV):
    """Randomized search for hyperparameters whose choice is differentially private.

    Use it like :class:`~sklearn.model_selection.RandomizedSearchCV`: candidates are drawn at
    random and cross-validated, and the best one is kept. For privacy, every record is assigned at
    random to one of many blocks. Candidates are trained and scored in each block separately, and
    noise is added to their mean scores. The estimator and the scoring may be anything.

    **What is protected.** Every record, with epsilon, for one call of :meth:`fit`: you
    may publish the chosen parameters `best_params_` and their score `best_score_`. A record is a
    row with its target and its fit parameters; it may be replaced by any other. If metadata
    routing passes `groups` to the estimator, *people* are protected, each with all of their rows,
    which are in one block. Some facts are public: the number of records (or people), names and
    types of columns, categories and their order, the estimator and its parameters. No value
    refuses a search. If the estimator does not accept NaN, begin it with an imputer: a candidate
    that fails has the lowest score, without a message.

    **The model is not protected.** `best_estimator_` is the estimator with the chosen parameters,
    fitted to all records. If the estimator is not private, *it is as sensitive as the records, and
    so are its predictions*, and the errors and warnings of its fit. If it is private, its fit is a
    separate release with its own `epsilon`, charged to its own `ledger`; both costs add up. With
    ``refit=False`` all results are protected.

    Parameters
    ----------
    estimator : estimator object
        Any estimator of scikit-learn's form. During the search, copies of it charge no ledger.
    param_distributions : dict or list of dict
        Public. As in scikit-learn: lists, or distributions with a method ``rvs``. Candidates are
        drawn independently, so some may be drawn twice.
    n_iter : int, default=10
        The *expected* number of candidates. The actual number is random and never shown. A
        candidate is trained once for every fold of every block: with 80 blocks and 5 folds, 10
        candidates are 4,000 fits, each to a small part of the records.
    epsilon : float, default=1.0
        Privacy parameter of the whole search, at least 1e-4.
    scoring : str or callable, default=None
        One score, higher is better, as in scikit-learn; None is the estimator's own. If a callable
        does not return a number, the candidate fails.
    score_range : tuple (low, high), default=(0, 1)
        Public. The score of a block is clipped to this range, without a warning. The noise is
        proportional to its width. A candidate that fails in a block gets the lower end there.
        Scores of generators are negative: give them a range such as (-1, 0).
    n_blocks : int, default=None
        Number of blocks. More blocks mean less noise, but also fewer records to train each
        candidate. None chooses enough blocks for noise of 1 % of the range, or fewer, so that a
        block has at least 50 records.
    cv : int, splitter or None, default=None
        How a block is divided for training and scoring, as in scikit-learn; None is 5 folds. Lists
        of positions are refused, because they refer to all records.
    refit : bool, default=True
        Whether to fit the estimator with the chosen parameters to all records.
    n_jobs : int, default=None
        Number of processes over blocks. Results do not depend on it. With joblib's thread backend,
        blocks run one after the other, because threads share numpy's global random numbers.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged once, before the search reads any record, with the unit ``"record"`` (with
        groups ``"user"``) and the relation ``"replace_one"``.
    random_state : int or RandomState, default=None
        None uses the operating system's cryptographic source. Seeded searches can be reproduced,
        so they are *not private*: use seeds for tests and teaching only.
    verbose : bool, default=None
        Whether to show a progress bar over blocks. None shows it on a terminal. It shows no times,
        because the running time would reveal the number of candidates to those who read it later.

    Attributes
    ----------
    best_params_ : dict
        The chosen parameters, protected by `privacy_guarantee_`.
    best_score_ : float
        Their score with noise, protected in the same way. It belongs to models trained on a part
        of a block, and to the luckiest of several candidates: do not report it as performance.
    best_estimator_ : estimator
        Fitted to all records. **As sensitive as the records,** unless its fit is private by itself.
        Only with ``refit=True``.
    standard_error_ : float
        Standard deviation of the noise of a candidate's score, in units of the score. Public.
    n_blocks_ : int
        The number of blocks. Public.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee for `best_params_` and `best_score_`; None for seeded searches.
    scorer_ : callable
        The scorer that `score` applies to `best_estimator_`.
    multimetric_ : bool
        False: there is one score.
    n_features_in_ : int
        Number of features of `best_estimator_`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if `best_estimator_` has them.
    classes_ : ndarray of shape (n_classes,)
        Labels, if `best_estimator_` has them.

    See Also
    --------
    PrivacyLedger : Records and limits all releases.
    sklearn.model_selection.RandomizedSearchCV : Without privacy.

    Notes
    -----
    *There is no* ``cv_results_``, and progress is shown over blocks only: the other candidates and
    their number are secret. *The running time reveals the number of candidates,* and depends on
    the records. If an observer can measure it, this is a side channel.

    *Failures are not visible.* Errors, warnings and output of candidates are suppressed, because
    they could reveal information about the records. Before anything is charged, candidates are
    tried on invented rows with the types of X and y. If one fails, and its errors do not depend on
    values, an error tells why. Afterwards, a warning tells of a score that noise does not tell from
    the lower end of `score_range`. Code of your own, and records in lists, which have no types, are
    not judged: test them on synthetic records. The search cannot suppress compiled code that prints
    or ends the process.

    *The estimator, scorer and splitter may be anything*, but they must not keep state between
    calls in global variables, attributes of classes, caches or files, nor look for records in the
    memory of the process: the score of a block must depend on its own records only. So an estimator
    must not be fitted to the records before, as a ``FrozenEstimator``.

    References
    ----------
    J. Liu, K. Talwar, "Private selection from private candidates", STOC 2019. :arxiv:`1811.07971`

    N. Papernot, T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022.
    :arxiv:`2110.03620`

    K. Nissim, S. Raskhodnikova, A. Smith, "Smooth sensitivity and sampling in private data
    analysis", STOC 2007: sample and aggregate.

    Examples
    --------
    >>> from scipy.stats import loguniform
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpot import PrivateSearchCV
    >>> X, y = make_classification(1000, n_features=5, random_state=0)
    >>> search = PrivateSearchCV(
    ...     LogisticRegression(), {"C": loguniform(1e-4, 1e2)}, score_range=(0.5, 1), random_state=0
    ... )
    >>> search.fit(X, y).n_blocks_
    20
    >>> round(search.standard_error_, 3)
    0.093
    >>> search.score(X, y) > 0.8
    True
    """

    _parameter_constraints: dict = {
        **{
            name: RandomizedSearchCV._parameter_constraints[name]
            for name in ("estimator", "param_distributions", "cv", "n_jobs", "random_state")
        },
        # Their number is drawn one by one.
        "n_iter": [Interval(Integral, 1, 10_000, closed="both")],
        "verbose": ["verbose", None],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "scoring": [str, callable, None],
        "score_range": ["array-like"],
        "n_blocks": [Interval(Integral, 1, None, closed="left"), None],
        "refit": ["boolean"],
        "ledger": "no_validation",
    }

    def __init__(
        self,
        estimator,
        param_distributions,
        *,
        n_iter=10,
        epsilon=1.0,
        scoring=None,
        score_range=(0.0, 1.0),
        n_blocks=None,
        cv=None,
        refit=True,
        n_jobs=None,
        ledger=None,
        random_state=None,
        verbose=None,
    ):
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.epsilon = epsilon
        self.scoring = scoring
        self.score_range = score_range
        self.n_blocks = n_blocks
        self.cv = cv
        self.refit = refit
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    # Nested estimators are validated with the parameters of their candidates.
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, **params):
        """Choose parameters privately, and fit the estimator with them to all records.

        Charges the ledger first.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
            Private records: a NumPy array, a SciPy matrix, a list, or a table of pandas or polars.
            Blocks are given copies of the values: without index, and with the categories of their
            own records. Cells hold numbers, texts and dates; a block with any other object fails.
        y : array-like of shape (n_records,) or (n_records, n_outputs), default=None
            Private targets.
        **params : dict
            Further arguments of the estimator's ``fit``, and with metadata routing also of the
            scorer and the splitter. Arguments with one value per record are divided with the
            records; others must be public. Without metadata routing, ``groups`` goes to the
            splitter, and is refused if the estimator's ``fit`` accepts it, too.

        Returns
        -------
        self : object
            The fitted search.

        Raises
        ------
        ValueError
            If a public quantity is invalid. Nothing is charged in this case.
        BudgetExceededError
            If the budget of `ledger` does not allow the search. Nothing is charged in this case.
        """
        self._fit(X, y, params)
        # The chosen parameters are paid for, and are kept if this fit fails.
        if self.refit:
            self._refit(X, y, params)
        return self

    @property
    def cv_results_(self):
        """Does not exist, because it would reveal the other candidates and their number."""
        raise AttributeError(
            f"{type(self).__name__} has no cv_results_: scores of candidates that were not chosen, "
            "and how many there were, are private. See best_params_ and best_score_."
        )

    def __sklearn_tags__(self):
        # A copy: tags of the searched estimator must not change with ours.
        tags = super().__sklearn_tags__()
        searched = copy.deepcopy(get_tags(self.estimator))
        tags.transformer_tags, tags.target_tags = searched.transformer_tags, searched.target_tags
        return tags

    def _validate(self, X, y, params):
        X, y = as_rows(X, "X"), as_rows(y, "y")
        X, y = redact_errors(lambda: indexable(X, y), "X and y cannot be read as rows.")
        n_records = X.shape[0] if hasattr(X, "shape") else len(X)
        params = redact_errors(lambda: metadata_at(X, params), "parameters of fit cannot be read.")
        n_units, person, groups = n_records, None, params.get("groups")
        # Groups that no fit takes are for the splitter: then records are protected.
        if self._route(params).get("groups") is not None and _takes_groups(self.estimator):
            refuse_other_rows(X, {"groups": groups}, or_new=True)
            person, names = person_codes(groups, n_records)
            n_units = len(names)
        if groups is not None and np.shape(groups)[:1] != (n_records,):
            raise ValueError("groups must have one value for each row of X.")
        # Without rows, parameters that do not have one value for each record stay as they are.
        # Cross-validation routes the parameters of a block itself.
        none = metadata_at(X, params, indices=np.arange(0))
        public = {name: value for name, value in params.items() if none[name] is value}
        private = {name: as_rows(params[name], name) for name in params if name not in public}
        return SearchRecords(X, y, private, public, n_units, person)

    def _declared(self, n_records, columns, groups=None):
        # With groups, `n_records` is the number of people: the noise depends on nothing else.
        people = None if groups is None else np.arange(n_records)
        return SearchRecords(None, None, {}, {}, n_records, people)

    def _plan(self, data):
        ends = check_score_range(self.score_range, self.scoring, self.estimator)
        sensitivity = partial(block_score_sensitivity, n_units=SCORE_UNITS)
        selection = ChoiceRelease(self.n_iter, self.epsilon, sensitivity)
        # In shares of the range of scores, for a single block.
        noise = selection.standard_deviation / SCORE_UNITS
        n_blocks = choose_n_blocks(self.n_blocks, self.cv, data.n_units, noise)
        # The remaining public errors are raised here.
        # It raises for n_jobs=0.
        effective_n_jobs(self.n_jobs)
        scorer = check_scoring(self.estimator, self.scoring)
        # Later changes of these objects must not change a release that is planned.
        scoring, cv = copy.deepcopy((self.scoring, self.cv))
        source = make_source(self.random_state)
        # Prints, warnings, draws and states of distributions, and constructors, would reveal the
        # number of candidates.
        with silence():
            # Apart from those of the release, whose number must not decide.
            of = copy.deepcopy(self.param_distributions)
            tried = draw_candidates(of, 64, make_source(0)) if of else []
            may_differ = [hasattr(v, "rvs") for part in np.ravel(of) for v in part.values()]
            if len(set(map(id, tried))) < 2 and not any(may_differ):
                raise ValueError(
                    "nothing was charged: param_distributions has fewer than two candidates, so "
                    "that nothing would be chosen. Give two or more values, or fit the estimator."
                )
            self._check_refit(selection.event, data, tried)
            drawn, trials = self._draw(selection.draw_count(source), source)
        own = getattr(self.estimator, "ledger", self.ledger)
        is_private = getattr(self.estimator, "epsilon", None) is not None
        if self.refit and is_private and own is None and self.ledger is not None:
            warn_user(
                "the fit with the chosen parameters is charged to no ledger: give the estimator "
                "one, or set refit=False."
            )
        search = Search(selection, drawn, trials, n_blocks, ends, scoring, cv, scorer)
        # Lists have no types.
        if hasattr(data.X, "shape"):
            self._refuse_failing(search, data)
        # The guarantee is about the choice.
        model = "the fitted model best_estimator_ (this guarantee is about the choice)"
        unit, units = ("record", "records") if data.person is None else ("user", "people")
        public = (f"the number of {units}", *([model] if self.refit else []))
        # Blocks are equally large, so that their sizes say how many records there are.
        guarantee = PrivacyGuarantee(selection.epsilon, 0.0, "replace_one", unit, public)
        about = type(self).__name__, guarantee, unit, guarantee.neighbouring, data.n_units
        return ReleasePlan(search, selection.event, source, *about)

    def _check_refit(self, event, data, tried):
        """Raise if a ledger could pay no fit of a private estimator after the search."""
        ledger: Any = getattr(self.estimator, "ledger", None)
        if not (self.refit and isinstance(ledger, PrivacyLedger)):
            return

        def refusal(params):
            chosen = clone(self.estimator).set_params(**clone(params, safe=False))
            # A preview has no X, and may not know the number of columns.
            fit = chosen.preview(data.n_units, *np.shape(data.X)[1:])
            events = [event, fit.event] if ledger is self.ledger else [fit.event]
            try:
                ledger.quote(ComposedDpEvent(events), unit=fit.guarantee.unit)
            except BudgetExceededError as error:
                error.add_note("This includes the fit with the chosen parameters: see refit=False.")
                return error

        if all(result_of(partial(refusal, params), None) for params in tried):
            raise refusal(tried[0])

    def _draw(self, count, source):
        """Return the parameters of candidates, and unfitted ones by the number of their object.

        Candidates of lists are drawn several times, and trained once: `draw_candidates` returns one
        object for equal ones. Each draw gets noise of its own.
        """
        drawn = draw_candidates(copy.deepcopy(self.param_distributions), count, source)
        each = {id(params): params for params in drawn}
        return drawn, {key: make_candidate(self.estimator, each[key]) for key in each}

    def _refuse_failing(self, search, data):
        """Raise if a candidate fails on all invented rows of the types, as many as in a block.

        No value is read. The candidates are drawn apart from those of the release, whose number and
        parameters must not depend on the answer. It must fail with some numbers of labels, and with
        numbers, as targets, and with text and numbers as objects, of any size. Errors that may be
        due to the invented values refuse nothing: those of the user's own code, and those whose
        text is another one for other values. But where digits as text, and numbers as targets,
        would do, the types of text are what fails.
        """

        def failure(trial, n_labels, words, texts, scale):
            n, of_X = data.X.shape[0] // search.n_blocks, (None, words, texts, scale)
            of_y = n_labels, words, () if texts == DIGITS else texts, 1.0
            try:
                rows = data.each(lambda v: stand_in(v, n, *(of_y if v is data.y else of_X)))
                _score(trial, search.scoring, search.cv, rows, 0)
                return None, True
            except (Exception, SystemExit) as error:
                stack = traceback.walk_tb(error.__traceback__)
                # Further lines may quote the values.
                said = str(error).partition("\n")[0]
                # Declared labels are others than the invented ones.
                is_sure = not isinstance(error, UndeclaredError)
                return said, is_sure and all(is_library(one) for one, _ in stack)

        def surely_failing(trial):
            first, depends, works_on_digits = "", False, False
            for n_labels in (2, 3, 4, 5, len(WORDS), None):
                told = set()
                for words, scale in product((True, False), (1.0, 1e-3, 1e6)):
                    said, is_ours = failure(trial, n_labels, words, WORDS, scale)
                    if said is None or not is_ours:
                        return ""
                    told.add(said)
                    first = first or said[:300].rstrip(".:")
                said, _ = failure(trial, n_labels, False, DIGITS, 1.0)
                works_on_digits |= said is None
                depends |= len(told | {said}) > 1
            return "" if depends and not works_on_digits else first

        with silence():
            # A search trains about as many, in each of its blocks.
            drawn, trials = self._draw(12, make_source(0))
            for params in {id(params): params for params in drawn}.values():
                if said := surely_failing(trials[id(params)]):
                    raise ValueError(
                        f"nothing was charged: whatever the values, candidates such as {params} "
                        f"would fail with {said!r}. Change the estimator, its parameters, scoring "
                        "or cv, or convert columns."
                    )

    def _run(self, plan, data):
        search, source = plan.release, plan.source
        blocks = data.rows_in(random_blocks(source, data.n_units, search.n_blocks))
        # A block has a seed of its own, so that its scores depend on no other block.
        seeds = source.bits(31, search.n_blocks).tolist()
        judged = list(search.trials.values()), search.scoring, search.cv, search.score_range
        # What is printed is a function of the number of blocks: one line for each, without times.
        counts: dict[str, Any] = {"bar_format": "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit}"}
        counts |= {"mininterval": 0, "miniters": 1, "delay": 0, "verbose": self.verbose}
        watched = make_bar(blocks, type(self).__name__, len(blocks), unit=" blocks", **counts)
        with watched, silence():
            # Threads share numpy's global random numbers, so those of a block would depend on the
            # concurrent work on other blocks, which have other records.
            backend, _ = get_active_backend()
            n_jobs = 1 if getattr(backend, "supports_sharedmem", False) else self.n_jobs
            # Copies are of plain values: others might not be sent, or run their own code where they
            # are received.
            copied = (
                partial(data.each, lambda x, of=rows: copy_of(rows_at(x, of))) for rows in watched
            )
            # Without max_nbytes=None, joblib would write large blocks, which are private, to files.
            scores = Parallel(n_jobs=n_jobs, max_nbytes=None, verbose=0)(
                delayed(score_block)(*judged, result_of(block, None), seed)
                for block, seed in zip(copied, seeds, strict=True)
            )
        sums = dict(zip(search.trials, np.sum(scores, axis=0), strict=True))
        best, score = search.selection.run([sums[id(params)] for params in search.drawn], source)
        return search.drawn[best], score

    def _keep(self, plan, released):
        search = plan.release
        self.best_params_, score = released
        # From units of the sum over blocks to the mean score.
        self.best_score_ = search.score_range[0] + search.unit * score
        self.standard_error_ = search.standard_error
        # More noise than this is rare, also in the best of several scores.
        if self.best_score_ < search.score_range[0] + 3 * search.standard_error:
            warn_user(
                "noise does not tell best_score_ from the lower end of score_range: the choice may "
                "be random, as when all candidates fail. Try the estimator on invented records."
            )
        self.n_blocks_ = search.n_blocks
        self.scorer_ = search.scorer
        self.multimetric_ = False
        # These names belong to the model of the last fit.
        self.__dict__.pop("feature_names_in_", None)

    def _route(self, params):
        """Return the parameters of the fit to all records."""
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, "fit", **params).estimator.fit
        if params.get("groups") is not None:
            if _takes_groups(self.estimator):
                raise ValueError(LOST_GROUPS)
            # One of the user's own may take them without a request.
            is_known = type(self.cv).__module__.partition(".")[0] in ("builtins", "sklearn")
            if is_known and "groups" not in get_routing_for_object(self.cv).split.requests:
                raise ValueError(
                    "groups would have no effect: no fit takes them, so records are protected, and "
                    "not people. Leave them out; to protect people, give each of them one row."
                )
        # They are for the splitter.
        return {name: value for name, value in params.items() if name != "groups"}

    def _refit(self, X, y, params):
        # The rows as they were given, with their index: what the model sees is not protected here.
        X, y = indexable(X, y)
        fit_params = self._route(metadata_at(X, params))
        chosen = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        self.best_estimator_ = redact_errors(
            # Transformers may take no y at all.
            lambda: chosen.fit(X, *([] if y is None else [y]), **fit_params),
            "the estimator with best_params_ could not be fitted to all records, by an error that "
            "may quote them. To see it, fit the estimator to invented records of the same columns.",
            instead={
                "Input X contains NaN": (
                    "Input X contains NaN, which the estimator does not accept. Begin the "
                    "estimator with an imputer, as in make_pipeline(SimpleImputer(), ...), or take "
                    "one that supports missing values, such as HistGradientBoostingClassifier."
                )
            },
        )
        if hasattr(chosen, "feature_names_in_"):
            self.feature_names_in_ = chosen.feature_names_in_


def _takes_groups(estimator):
    """Tell whether the fit of an estimator, or of a nested one, takes groups."""
    parts = [estimator, *estimator.get_params(deep=True).values()]
    return any(hasattr(part, "fit") and has_fit_parameter(part, "groups") for part in parts)


def check_score_range(score_range: Any, scoring: Any, estimator: Any) -> tuple[float, float]:
    """Return the ends of the range of scores, or raise if it does not fit the scoring."""
    low, high = map(real_number, score_range) if len(score_range) == 2 else (np.nan, np.nan)
    # An infinite range would need infinite noise.
    if not (low < high and np.isfinite(high - low)):
        raise ValueError(f"score_range must be two finite numbers low < high, got {score_range!r}.")
    judge = getattr(type(estimator), "score", None) if scoring is None else scoring
    known = isinstance(judge, str) or judge in (ClassifierMixin.score, RegressorMixin.score)
    unbounded = "positive_likelihood_ratio", "mutual_info_score"
    # Scorers of scikit-learn know whether they turn the sign of an error.
    is_loss = str(scoring).startswith("neg_") or getattr(scoring, "_sign", 1) < 0
    name = getattr(getattr(scoring, "_score_func", None), "__name__", "")
    if name.endswith(("error", "loss", "deviance")) and not is_loss:
        raise ValueError(f"{name} is better if lower: pass greater_is_better=False to make_scorer.")
    highest = 0 if is_loss else 1
    if (known or is_loss) and judge not in unbounded and high - highest > highest - low:
        raise ValueError(
            f"scoring={scoring!r} is never above {highest}, as score_range=({low:g}, {high:g}) is "
            f"by more than half: noise would be too large. Choose a range such as "
            f"{(highest - 1, highest)}, as wide as scores may differ."
        )
    if known and not is_loss and high <= 0:
        raise ValueError(
            f"scoring={scoring!r} is above 0 for good models, and score_range=({low:g}, {high:g}) "
            "ends there: all would score alike. Choose a range such as (0, 1)."
        )
    # A class has no tags, and is refused later.
    has_own = scoring is None and not isinstance(estimator, type) and (low, high) == (0, 1)
    if has_own and get_tags(estimator).estimator_type == "density_estimator":
        raise ValueError(
            "the score of a generator is minus a distance, and that of other density estimators a "
            "log-likelihood: choose score_range, such as (-1, 0) for a generator."
        )
    return low, high


def draw_candidates(param_distributions: Any, count: int, source: NoiseSource) -> list[dict]:
    """Return the parameters of candidates, drawn independently from one distribution.

    `sklearn.model_selection.ParameterSampler` draws *without* replacement if all parameters are
    lists, so that each draw is its first. Equal candidates from lists are one object.
    """
    # Distributions of SciPy take a RandomState; its 248 bits come from the source of the release.
    seeds = [int(seed) for seed in source.bits(62, 4)]
    rng = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seeds)))
    sampler = ParameterSampler(param_distributions, 1, random_state=rng)
    for part in sampler.param_distributions:
        # Arrays make another object at each look.
        part.update({name: [*v] for name, v in part.items() if getattr(v, "ndim", 0) == 1})
    known: dict[tuple, dict] = {}
    drawn = (next(iter(sampler)) for _ in range(count))
    # What is known is kept, so that no other value has the identity of one of its values.
    return [known.setdefault((*one, *map(id, one.values())), one) for one in drawn]


def make_candidate(estimator: Any, params: dict[str, Any]) -> Any:
    """Return the trial of an estimator with a candidate's parameters, as `make_trial` does.

    Raises ValueError if there is no such parameter, or an estimator of scikit-learn's kind does not
    allow its value.
    """
    # It is its own clone, which would be changed.
    if isinstance(estimator, FrozenEstimator):
        raise ValueError("a FrozenEstimator has no parameters to search.")
    # Values may be estimators, which candidates must not share.
    try:
        candidate = clone(estimator).set_params(**clone(params, safe=False))
    except ValueError as error:
        known = estimator.get_params()
        for name in params.keys() - known.keys():
            near = [k for k in known if k.endswith(f"__{name}")] or get_close_matches(name, known)
            error.add_note(f"{name!r} is not a parameter; near are {near}.")
        raise
    validate_nested_parameters(candidate)
    if get_tags(candidate).input_tags.pairwise:
        raise ValueError(
            "a matrix of distances or kernels between records cannot be searched with: a record is "
            "in every row of it, and so would be in every block. Give the records."
        )
    return make_trial(candidate)


def score_block(
    trials: list[Any],
    scoring: Any,
    cv: Any,
    score_range: Any,
    records: SearchRecords | None,
    seed: int,
) -> list[int]:
    """Return the private scores of candidates in a block, in units of the range of scores.

    `trials` are from `make_trial`; `scoring` and `cv` are as in `cross_validate`. The mean over the
    splits of the block is clipped to `score_range`. A candidate that fails has the lowest score, as
    has each if there are no `records`, since one was no plain value.
    """
    if records is None:
        return [in_units(None, *score_range)] * len(trials)
    # The process of the search is silent already, but others may work on this block.
    with silence():
        each = (partial(_score, trial, scoring, cv, records, seed) for trial in trials)
        return [in_units(result_of(score, None), *score_range) for score in each]


def _score(trial: Any, scoring: Any, cv: Any, records: SearchRecords, seed: int) -> Any:
    # Nothing of a fit may stay on the trial, which goes to the next block.
    trial = clone(trial)
    # Open random states are seeded from the seed of the block. So its randomness does not depend on
    # earlier trials, nor on how many processes share the work.
    own = trial.get_params(deep=True)
    open_states = sorted(p for p in own if f"__{p}".endswith("__random_state") and own[p] is None)
    numbers = np.random.SeedSequence(seed).generate_state(len(open_states), np.uint32) >> 1
    trial.set_params(**dict(zip(open_states, numbers.tolist(), strict=True)))
    # Estimators without a random_state draw from the generators of the process.
    np.random.seed(seed)
    random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    # Copies: candidates and blocks must neither affect nor see each other.
    given = copy.deepcopy({"scoring": scoring, "cv": cv, "params": records.public})
    block = records.each(copy_of)
    given["params"] |= block.params
    # Without metadata routing, cross-validation takes groups for the splitter, apart.
    routed = get_config()["enable_metadata_routing"]
    given["groups"] = None if routed else given["params"].pop("groups", None)
    # A trial of a private estimator has few records; whether it is useful depends on all of them.
    # Processes of a candidate would not be silent, so that it has threads only.
    with np.errstate(all="ignore"), allow_useless_releases(), parallel_config("threading"):
        found = cross_validate(trial, block.X, block.y, **given, error_score="raise")
        return np.mean(found["test_score"])
