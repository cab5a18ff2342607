"""Statistics: scores of outputs that separate two data sets."""

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

import numpy as np

from skdpot.privacy.audit._outputs import Outcomes, Raised

# Outputs that repeat this often on average are counted, and need no classifier.
_FEW_OUTPUTS = 10
# Maximum number of names, or texts, of outputs that become features: the most frequent ones.
_N_NAMES = 50
# Maximum numbers of features for trees, and for products of features; more take too long.
_N_FEATURES_OF_TREES = 64
_N_FEATURES_OF_PRODUCTS = 16
_RATIO_DECIMALS = 9
# Larger numbers are replaced by it, so that sums of squares stay finite.
_LARGEST = 1e100


class Statistic(ABC):
    """A score of outputs, which may be fitted to other outputs.

    Attributes
    ----------
    name : str
        Its name in a result.
    """

    name: str

    def fit(self, data: Outcomes, neighbour: Outcomes) -> None:
        """Learn from outputs of the two data sets, if there is something to learn."""
        return

    @abstractmethod
    def score(self, outcomes: Outcomes) -> np.ndarray:
        """Return a score for each output."""


class DensityRatio(Statistic):
    """The score of a function that knows the densities and needs no learning.

    Scores are rounded. For a constant ratio, the noise in its last bits would show which numbers
    were added in floating point, and this leak is not the question here.
    """

    name = "likelihood_ratio"

    def __init__(self, log_density_ratio: Any) -> None:
        self.log_density_ratio = log_density_ratio

    def score(self, outcomes: Outcomes) -> np.ndarray:
        scores = np.zeros(len(outcomes))
        worked = [not isinstance(output, Raised) for output in outcomes.outputs]
        if not any(worked):
            return scores
        outputs = outcomes.outputs
        if not all(worked):
            good = [output for output, fine in zip(outputs, worked, strict=True) if fine]
            outputs = Outcomes(good).outputs
        ratios = np.asarray(self.log_density_ratio(outputs), dtype=np.float64)
        if ratios.shape != (sum(worked),):
            raise ValueError(
                f"log_density_ratio must return {sum(worked)} numbers, one per output, got "
                f"{ratios.shape}."
            )
        scores[worked] = np.round(ratios, _RATIO_DECIMALS)
        return np.where(np.isnan(scores), 0.0, scores)


class Frequency(Statistic):
    """The log-odds with which an output was seen on either data set."""

    name = "frequency of atoms"

    def fit(self, data: Outcomes, neighbour: Outcomes) -> None:
        on_data, on_neighbour = Counter(data.atoms()), Counter(neighbour.atoms())
        self.odds_ = {
            key: np.log((on_data[key] + 0.5) / (on_neighbour[key] + 0.5))
            for key in on_data | on_neighbour
        }

    def score(self, outcomes: Outcomes) -> np.ndarray:
        return np.array([self.odds_.get(key, 0.0) for key in outcomes.atoms()])


class Value(Statistic):
    """A single number itself, which suffices for monotone density ratios."""

    name = "value"

    def score(self, outcomes: Outcomes) -> np.ndarray:
        values = np.array([numbers[0] if numbers.size else 0.0 for numbers in outcomes.numbers()])
        return np.where(np.isnan(values), 0.0, values)


class Classifier(Statistic):
    """The score of a scikit-learn classifier that was trained on outputs of both data sets."""

    def __init__(self, name: str, model: Any) -> None:
        self.name = f"classifier ({name})"
        self.model = model

    def fit(self, data: Outcomes, neighbour: Outcomes) -> None:
        from sklearn.exceptions import ConvergenceWarning

        self.features_ = Features(data, neighbour)
        labels = np.repeat([1, 0], [len(data), len(neighbour)])
        features = np.vstack([self.features_(data), self.features_(neighbour)])
        with warnings.catch_warnings():
            # A classifier that did not converge makes the attack weaker, not wrong.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(features, labels)

    def score(self, outcomes: Outcomes) -> np.ndarray:
        features = self.features_(outcomes)
        if hasattr(self.model, "decision_function"):
            return np.asarray(self.model.decision_function(features), dtype=np.float64)
        return np.asarray(self.model.predict_proba(features), dtype=np.float64)[:, 1]


class Features:
    """The features of outputs for a classifier: finite numbers, indicators of others, and kinds.

    Parameters
    ----------
    data, neighbour : Outcomes
        Outputs that show which kinds of outputs besides numbers occur, and where numbers may not be
        finite.
    """

    def __init__(self, data: Outcomes, neighbour: Outcomes) -> None:
        both = (data, neighbour)
        self.names_ = _most_frequent(data.names() + neighbour.names())
        self.texts_ = _most_frequent(data.texts() + neighbour.texts())
        self.width_ = max(outcomes.width() for outcomes in both)
        finite = np.vstack([np.isfinite(outcomes.padded(self.width_)) for outcomes in both])
        self.suspects_ = np.flatnonzero(~finite.all(axis=0))

    @property
    def n_features(self) -> int:
        """Return the number of columns."""
        return self.width_ + 3 * len(self.suspects_) + len(self.names_) + len(self.texts_)

    def __call__(self, outcomes: Outcomes) -> np.ndarray:
        """Return the features of outputs, one row each."""
        numbers = outcomes.padded(self.width_)
        suspects = numbers[:, self.suspects_]
        columns = [
            np.clip(np.where(np.isfinite(numbers), numbers, 0.0), -_LARGEST, _LARGEST),
            np.isnan(suspects),
            suspects == np.inf,
            suspects == -np.inf,
        ]
        for known, seen in ((self.names_, outcomes.names()), (self.texts_, outcomes.texts())):
            columns.append(np.array(seen, dtype=object)[:, None] == np.array(known, dtype=object))
        return np.hstack(columns)


def _most_frequent(labels: list[str]) -> list[str]:
    """Return the labels that get a feature each, none if there is only one."""
    counts = Counter(labels)
    return [label for label, _ in counts.most_common(_N_NAMES)] if len(counts) > 1 else []


def default_classifiers(n_features: int) -> list[Classifier]:
    """Return quick classifiers of different kinds: linear, of products of features, and trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    def logistic() -> Any:
        return LogisticRegression(C=0.1, max_iter=200, tol=1e-3)

    found = [Classifier("linear", make_pipeline(StandardScaler(), logistic()))]
    if n_features <= _N_FEATURES_OF_PRODUCTS:
        products = make_pipeline(
            StandardScaler(), PolynomialFeatures(2, include_bias=False), logistic()
        )
        found.append(Classifier("quadratic", products))
    if n_features <= _N_FEATURES_OF_TREES:
        trees = HistGradientBoostingClassifier(
            max_iter=50, max_leaf_nodes=15, early_stopping=False, random_state=0
        )
        found.append(Classifier("trees", trees))
    return found


def candidates(statistic: str, classifier: Any, data: Outcomes, neighbour: Outcomes) -> list:
    """Return the unfitted statistics that `audit` tries on outputs like these."""
    n_different = len(set(data.atoms()) | set(neighbour.atoms()))
    few = n_different * _FEW_OUTPUTS <= len(data) + len(neighbour)
    if statistic == "frequency" or (statistic == "auto" and few and classifier is None):
        return [Frequency()]
    if classifier is not None:
        from sklearn.base import clone

        learned: list = [Classifier(type(classifier).__name__, clone(classifier))]
    else:
        features = Features(data, neighbour)
        learned = [Value()] if features.width_ == 1 else []
        learned += default_classifiers(features.n_features) if features.n_features else []
    return learned if statistic == "classifier" else [Frequency(), *learned]
