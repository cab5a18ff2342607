"""The tour's second part: repairs of diabetes data, and how well a classifier finds the sex."""

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpot.fairness import FairBarycenterPreprocessor
from skdpot.fairness.metrics import group_auc, ks_between_groups

NOTHING, MEANS, BARYCENTER = "as they are", "means of groups removed", "moved to the barycenter"
REPAIRS = (NOTHING, MEANS, BARYCENTER)
N_SPLITS = 8
_SEX = "sex"


class Outcome(NamedTuple):
    """How well held-out rows predict, and how much the predictions differ between the sexes.

    Attributes
    ----------
    accuracy : float
        The accuracy of a logistic regression.
    difference : float
        Demographic-parity difference of its predictions.
    group_auc : float
        How well a gradient boosting recovers the sex from repaired rows: 0.5 is not at all.
    """

    accuracy: float
    difference: float
    group_auc: float


def load_patients() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of 442 patients, their sex, and whether their disease progressed fast."""
    data = load_diabetes(scaled=False)
    place = data.feature_names.index(_SEX)
    fast = data.target > np.median(data.target)
    return np.delete(data.data, place, axis=1), data.data[:, place], fast


def outcomes(patients: tuple[np.ndarray, np.ndarray, np.ndarray]) -> dict[str, Outcome]:
    """Return the outcomes of held-out patients with every repair, over several splits."""
    rows, sex, fast = patients
    splitter = StratifiedShuffleSplit(N_SPLITS, test_size=0.25, random_state=0)
    splits = list(splitter.split(rows, 2 * (sex == sex[0]) + fast))
    tested = np.concatenate([test for _, test in splits])
    found = {}
    for repair in REPAIRS:
        predicted, areas = [], []
        for train, test in splits:
            fitted, repaired = _repaired(repair, rows, sex, train, test)
            model = make_pipeline(StandardScaler(), LogisticRegression()).fit(fitted, fast[train])
            predicted.append(model.predict(repaired))
            areas.append(group_auc(repaired, sex[test], random_state=0))
        labels, truth = np.concatenate(predicted), fast[tested]
        gap = ks_between_groups(labels, sensitive_features=sex[tested])
        found[repair] = Outcome(float(np.mean(labels == truth)), gap, float(np.mean(areas)))
    return found


def _repaired(repair, rows, sex, train, test):
    """Return training and test rows, repaired by a map that was fitted to the training rows."""
    if repair == NOTHING:
        return rows[train], rows[test]
    if repair == MEANS:
        shift = np.zeros_like(rows)
        for label in np.unique(sex):
            in_train = train[sex[train] == label]
            shift[sex == label] = rows[train].mean(axis=0) - rows[in_train].mean(axis=0)
        return rows[train] + shift[train], rows[test] + shift[test]
    # Rows are few, and all columns numbers.
    fair = FairBarycenterPreprocessor(method="support", random_state=0)
    return (
        fair.fit_transform(rows[train], sensitive_features=sex[train]),
        fair.transform(rows[test], sensitive_features=sex[test]),
    )


def table(found: dict[str, Outcome]) -> str:
    """Return the outcomes as text."""
    lines = [
        "Fair data: 442 patients, the diabetes data of scikit-learn, a quarter held out",
        f"  {'their rows':<26}{'accuracy':>10}{'parity gap':>12}{'group AUC':>11}",
    ]
    for repair, outcome in found.items():
        accuracy, difference, auc = outcome
        lines.append(f"  {repair:<26}{accuracy:>10.2f}{difference:>12.2f}{auc:>11.2f}")
    lines.append(
        "\nAccuracy and parity gap, the difference of positive rates between the sexes, are those "
        "of a\nlogistic regression. The group AUC says how well a gradient boosting tells the "
        "sexes apart\n(0.5 is guessing): after means are removed, as easily as before."
    )
    return "\n".join(lines)
