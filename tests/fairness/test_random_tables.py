"""In no random table does a repair make a group easier to find: an attacker has fresh rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score

from skdpot import FairBarycenterPreprocessor

KINDS = {
    "number": lambda z: z,
    "money": lambda z: np.round(np.exp(8 + z)),
    "count": lambda z: np.round(30 + 8 * z),
    "mostly nothing": lambda z: np.where(z > 0.8, np.round(np.exp(5 + 2 * z)), 0.0),
    "word": lambda z: np.array(list("abcdef"))[np.digitize(z, [-1.2, -0.5, 0.2, 0.7, 1.5])],
}
IDENTITIES = {
    "ratio": lambda x, y: np.round(x / np.where(y == 0, 1, y), 4),
    "sum": lambda x, y: x + y,
    "copy": lambda x, y: x,
    "log": lambda x, y: np.log1p(np.abs(x)),
    "product": lambda x, y: x * y,
}


def population(seed):
    """Return a function that draws rows and their groups."""
    rng = np.random.default_rng(seed)
    width, n_groups = int(rng.integers(2, 9)), int(rng.choice([2, 2, 3, 4]))
    shares = rng.dirichlet(np.full(n_groups, 2.0)) * 0.8 + 0.2 / n_groups
    shifts = rng.normal(size=(n_groups, width)) * rng.choice([0.0, 0.1, 0.3, 0.6])
    mix = rng.normal(size=(width, width)) * 0.5 + np.eye(width)
    kinds = rng.choice(list(KINDS), width)
    numbers = np.flatnonzero(kinds != "word")
    lacks = np.where(rng.random(width) < 0.25, 0.4 * rng.random(width), 0.0)
    lacks_by_group = np.exp(0.5 * rng.normal(size=n_groups))
    identities = rng.choice(list(IDENTITIES), int(rng.integers(0, 3)))
    places = rng.integers(0, 1000, (2, 2))

    def draw(n, rng):
        groups = rng.choice(n_groups, n, p=shares)
        z = (rng.normal(size=(n, width)) + shifts[groups]) @ mix / np.linalg.norm(mix, axis=0)
        table = pd.DataFrame({str(j): KINDS[kind](z[:, j]) for j, kind in enumerate(kinds)})
        for j in range(width):
            missing = rng.random(n) < np.minimum(lacks[j] * lacks_by_group[groups], 0.9)
            table[str(j)] = table[str(j)].mask(missing)
        for name, place in zip(identities, places, strict=False):
            if len(numbers):
                x, y = (table[str(numbers[i % len(numbers)])] for i in place)
                table[f"{name} {table.shape[1]}"] = IDENTITIES[name](x, y)
        return table, groups.astype(str)

    return draw


def features(table, *, with_pairs):
    words = table.select_dtypes(exclude="number").fillna("?")
    words = words.apply(lambda column: column.map("abcdef".find))
    numbers = table.select_dtypes("number").astype(float)
    found = [numbers.to_numpy(), words.to_numpy(dtype=float)]
    if with_pairs:
        first, second = np.triu_indices(numbers.shape[1], 1)
        x, y = numbers.to_numpy()[:, first], numbers.to_numpy()[:, second]
        found += [x - y, x / np.where(y == 0, np.nan, y)]
    whole = np.column_stack(found)
    return np.where(np.isnan(whole).all(axis=0), 0.0, whole)


def max_auc(train, new):
    """Return how well the best of two attackers tells two groups apart."""
    best, boosting = 0.5, HistGradientBoostingClassifier(max_iter=60, random_state=0)
    forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=0)
    for attacker in (boosting, forest):
        parts = [(features(X, with_pairs=attacker is boosting), g) for X, g in (train, new)]
        shown = attacker.fit(*parts[0]).predict_proba(parts[1][0])
        for i, j in zip(*np.triu_indices(len(attacker.classes_), 1), strict=True):
            of_pair = np.isin(new[1], attacker.classes_[[i, j]])
            ratio = shown[of_pair, i] / np.maximum(shown[of_pair][:, [i, j]].sum(axis=1), 1e-12)
            best = max(best, roc_auc_score(new[1][of_pair] == attacker.classes_[i], ratio))
    return best


@pytest.mark.experiment
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n_rows", [200, 500, 2000])
@pytest.mark.parametrize("seed", range(4))
def test_no_group_is_easier_to_find(seed, n_rows):
    draw, rng = population(seed), np.random.default_rng(1000 + seed)
    fitted, *fresh = (draw(n, rng) for n in (n_rows, 3000, 3000))
    fair = FairBarycenterPreprocessor(missing="category", random_state=seed)
    fair.set_output(transform="pandas").fit(fitted[0], sensitive_features=fitted[1])
    after = [(fair.transform(X, sensitive_features=groups), groups) for X, groups in fresh]
    assert max_auc(*after) <= max_auc(*fresh) + 0.03
