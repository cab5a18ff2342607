"""The base of generators: samples, scores and files."""

from typing import Any, ClassVar

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdpot._base import PrivateEstimator
from skdpot.generative._files import read_generator, write_generator
from skdpot.generative._fitted import FittedRecords
from skdpot.generative._network import device_of, training_of
from skdpot.generative._saving import SavedGenerator, plain
from skdpot.generative._sketch.table_sketch import ReleasedTable

# What floating-point arithmetic would warn of, or raise, may be due to private values.
_SILENT = np.errstate(all="ignore")


class BaseGenerator(DensityMixin, PrivateEstimator):
    """What every generator does once it is fitted."""

    classes: Any
    network: Any
    random_state: Any
    score_reg: float

    _fitted: FittedRecords | ReleasedTable
    # Parameters that a file holds as they are.
    _in_files: ClassVar[tuple[str, ...]]

    @_SILENT
    def sample(self, n_samples=1, y=None, given=None) -> Any:
        """Generate records. That costs nothing: they are made of what was released.

        Parameters
        ----------
        n_samples : int, default=1
            How many records; ignored where `y` is given. How many you draw is seen by whoever gets
            the file. Under ``neighbouring="add_remove"`` the number of records is private: draw a
            round number, not ``len(table)``.
        y : array-like of shape (n_samples,) or dict, default=None
            Labels of the records, or how many records of each label there shall be, such as
            ``{"cat": 10, "dog": 5}``. None draws them in proportion to what was released of the
            records' own; where nothing was, equally many of all classes, up to one, in random
            order.
        given : dict, default=None
            For tables: conditions by the name of a column. A value, a list of values, None for a
            missing one, or for numbers a tuple (low, high).

        Returns
        -------
        X : {ndarray, DataFrame} of shape (n_samples, n_features)
            Records within `bounds`. With a `schema`, values that it declares, held by what held
            the records that the generator was fitted to.
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
        return self._fitted.sample(n_samples, y, given, rng, device_of(self.network))

    @_SILENT
    def score(self, X, y=None) -> float:
        """Return minus how far generated records are from given ones; that is not private.

        The debiased Sinkhorn divergence with regularisation `score_reg`, for mean squared
        differences of features scaled to [-1, 1]; with labels, a record of another class costs 4
        more, and in tables two categories differ as the ends of a column of numbers do. 0 is the
        best, but for chance. It depends on no other parameter, so that candidates stay comparable.
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
        return self._fitted.score(self, X, y, float(self.score_reg), rng, device_of(self.network))

    def save(self, path) -> None:
        """Write the fitted generator to a file, without private data.

        All that the file holds was released, so that it may be published. The ledger, the
        `random_state` and the device are not written, nor is a network that is a module or a
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
        header = {
            "class": type(self).__name__,
            "parameters": {name: getattr(self, name) for name in self._in_files},
            "guarantee": self.privacy_guarantee_ and vars(self.privacy_guarantee_),
            "noise_multiplier": self.noise_multiplier_,
            "n_features": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", None),
        }
        described, arrays = SavedGenerator.describe(self._fitted, getattr(self, "model", None))
        if self._fitted.network is not None:
            described["training"] = {
                name: value
                for name, value in training_of(self.network).get_params(deep=False).items()
                if name not in ("network", "device")
            }
        write_generator(path, plain({**header, **described}), arrays)

    @classmethod
    def _load(cls, path: Any, ledger: Any, **own: Any) -> Any:
        """Return the generator of a file; `own` are parts that the user gives again."""
        saved = SavedGenerator.read(*read_generator(path), cls.__name__, cls._in_files, **own)
        try:
            generator = cls(**saved.parameters, ledger=ledger)
        except TypeError as error:
            raise ValueError(f"the file has parameters of no such generator: {error}.") from None
        for name, value in saved.attributes.items():
            setattr(generator, name, value)
        generator._set_fitted(saved.fitted, saved.noise_multiplier)
        # Raises if the network is not that of the weights, or the arrays are of no use.
        generator.sample()
        return generator

    def _set_fitted(self, fitted: FittedRecords | ReleasedTable, noise_multiplier: float) -> None:
        """Set what was fitted: functions of what was released, and of public parameters."""
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

    def _undeclared(self) -> str | None:
        return "labels in y are not declared: give classes" if self.classes is None else None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.classes is not None
        return tags
