"""The base of generators: samples, scores and files."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdpot._base import PrivateEstimator
from skdpot._sklearn_compat import validate_nested_parameters
from skdpot.generative._files import read_generator, write_generator
from skdpot.generative._fitted import FittedRecords
from skdpot.generative._network import device_of, training_of
from skdpot.generative._saving import SavedGenerator, plain
from skdpot.generative._sketch.released_table import ReleasedTable
from skdpot.generative._sketch.table_rows import read_rules
from skdpot.privacy.checks import check_count

# Warnings and errors of floating-point arithmetic may depend on private values.
_SILENT = np.errstate(all="ignore")


class BaseGenerator(DensityMixin, PrivateEstimator):
    """Methods of every fitted generator."""

    classes: Any
    network: Any
    rules: Any
    computed: Any
    random_state: Any
    score_reg: float

    _fitted: FittedRecords | ReleasedTable
    # Parameters that a file holds as they are.
    _in_files: ClassVar[tuple[str, ...]]

    @_SILENT
    def sample(self, n_samples=1, y=None, given=None, *, n_users=None) -> Any:
        """Generate records from the release, at no cost.

        Rows of a table are drawn evenly: each single row has nearly the distribution of the model,
        and together they are closer to the model than independent rows.

        Parameters
        ----------
        n_samples : int, default=1
            Number of records; ignored if `y` is given. Everybody who gets the file sees this
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
        rng = check_random_state(self.random_state)
        if n_users is not None:
            return self._sample_users(n_users, y, given, rng)
        return self._ruled.sample(n_samples, y, given, rng, device_of(self.network))

    @property
    def _ruled(self) -> FittedRecords | ReleasedTable:
        """Return the release, of which samples keep the rules. These are read for each sample."""
        fitted = self._fitted
        if not isinstance(fitted, ReleasedTable):
            return fitted
        rules = read_rules(self.rules, self.computed)
        names = [column.name for column in fitted.space.schema.computed]
        if set(rules.formulas) != set(names):
            raise ValueError(f"computed must have the columns of the fit, {names}.")
        return replace(fitted, rules=rules)

    def _sample_users(self, n_users: Any, y: Any, given: Any, rng: Any) -> Any:
        """Return the rows of people, or raise."""
        fitted = self._ruled
        if not isinstance(fitted, ReleasedTable):
            raise ValueError("n_users is for a generator that was fitted with groups=.")
        if y is not None or given is not None:
            raise ValueError("y and given are for single rows: n_users draws whole people.")
        return fitted.sample_users(check_count("n_users", n_users), rng)

    @_SILENT
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
        rng = check_random_state(self.random_state)
        return self._ruled.score(self, X, y, float(self.score_reg), rng, device_of(self.network))

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
        header, arrays = self._content()
        write_generator(path, plain(header), arrays)

    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the header and the arrays of a file."""
        check_is_fitted(self)
        header = {
            "class": type(self).__name__,
            "parameters": {name: getattr(self, name) for name in self._in_files},
            "guarantee": self.privacy_guarantee_ and vars(self.privacy_guarantee_),
            "noise_multiplier": self.noise_multiplier_,
            "n_features": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", None),
        }
        described, arrays = SavedGenerator.describe(self._ruled, getattr(self, "model", None))
        if self._fitted.network is not None:
            described["training"] = {
                name: value
                for name, value in training_of(self.network).get_params(deep=False).items()
                if name not in ("network", "device")
            }
        return {**header, **described}, arrays

    @classmethod
    def _load(cls, path: Any, ledger: Any, **parts: Any) -> Any:
        """Return the generator of a file; `parts` are those that the user gives again."""
        saved = SavedGenerator.read(*read_generator(path), cls.__name__, cls._in_files, **parts)
        try:
            generator = cls(**saved.parameters, ledger=ledger)
        except TypeError as error:
            raise ValueError(f"parameters in the file are invalid: {error}.") from None
        validate_nested_parameters(generator)
        for name, value in saved.attributes.items():
            setattr(generator, name, value)
        generator._set_fitted(saved.fitted, saved.noise_multiplier)
        # Raises if the network does not fit the weights, or the arrays are invalid.
        generator.sample()
        return generator

    def _set_fitted(self, fitted: FittedRecords | ReleasedTable, noise_multiplier: float) -> None:
        """Set the fitted attributes: functions of the release and of public parameters."""
        self._fitted = fitted
        self.noise_multiplier_ = noise_multiplier
        if fitted.classes is not None:
            self.classes_ = fitted.classes
        if fitted.n_records is not None:
            self.n_records_ = fitted.n_records
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
