"""Measures of made records: how near they are to real ones, and what models learn from them.

Models learn from the made records and are tested on real ones. Distances of marginals are in total
variation, over the public bins that all methods have in common.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
from scipy.stats import wasserstein_distance
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.table_sets import Numbers, TableSet

# Of pairs and triples of columns at most so many are compared, the same ones for all methods.
_MOST_SETS = {1: 1_000, 2: 3_000, 3: 300}
# Models learn from at most so many records.
_MOST_RECORDS = 50_000
# Columns of more categories than this are codes to boosting, and tell linear models nothing.
_MOST_CATEGORIES = 254
_STRONG = 0.5
_BOOSTING = {"early_stopping": True, "random_state": 0}


def measures(table: TableSet, made: pd.DataFrame) -> dict[str, float]:
    """Return all measures of made records."""
    return {**_utilities(table, made), **errors(table, made), "propensity": _told(table, made)}


def measures_of_real(table: TableSet) -> dict[str, float]:
    """Return what models learn from real records, and the errors of as many that are drawn again.

    Records that are drawn independently have such errors even without noise.
    """
    again = table.train.sample(frac=1, replace=True, random_state=0, ignore_index=True)
    noise = noise_of(with_noise(table, 0), with_noise(table, 0).train)
    told = {"propensity": _told(table, table.test), "noise": noise}
    return {**_utilities(table, table.train), **errors(table, again), **told}


def with_noise(table: TableSet, seed: int) -> TableSet:
    """Return a table whose target is a random one: that of other records."""
    order = np.random.default_rng([seed, 1]).permutation(len(table.train))
    shuffled = table.train[table.target].to_numpy()[order]
    return replace(table, train=table.train.assign(**{table.target: shuffled}))


def noise_of(table: TableSet, made: pd.DataFrame) -> float:
    """Return how well boosting that learned from a half of records tells the other half's target.

    It is an area under the curve, the mean of both halves; of numbers, it is told which ones are
    above the median. With a target of pure noise, 0.5 is right.
    """
    made = _some(made, 2 * _MOST_RECORDS)
    X, y = _of(table, made), _target(table, made)
    y = y > np.median(y) if table.is_regression else y
    first = np.arange(len(made)) < len(made) // 2
    parts = [_separated(table, X, y, learned) for learned in (first, ~first)]
    return float(np.mean(parts))


def _told(table: TableSet, made: pd.DataFrame) -> float:
    """Return how well boosting tells fresh made records from real ones: .5 where it cannot."""
    size = min(len(made), len(table.train), _MOST_RECORDS // 2)
    everything = replace(table, target=None)
    X = pd.concat([_of(everything, _some(of, size)) for of in (table.train, made)])
    y = np.repeat([True, False], size)
    learned = np.random.default_rng(0).random(len(X)) < 0.5
    return _separated(everything, X, y, learned)


def _separated(table, X, y, learned) -> float:
    if min(len(np.unique(y[learned])), len(np.unique(y[~learned]))) < 2:
        return 0.5
    model = HistGradientBoostingClassifier(categorical_features=_words(table), **_BOOSTING)
    model.fit(X[learned], y[learned])
    return float(roc_auc_score(y[~learned], model.predict_proba(X[~learned])[:, 1]))


def _some(frame: pd.DataFrame, size: int) -> pd.DataFrame:
    """Return at most so many records, in a random order.

    No seed of a contender draws this order as well.
    """
    order = np.random.default_rng([2026, 11]).permutation(len(frame))
    return frame.iloc[order[:size]]


def errors(table: TableSet, made: pd.DataFrame) -> dict[str, float]:
    """Return the errors of made records."""
    codes, real = table.codes(made), table.codes(table.train)
    return {
        "one_way": marginal_error(codes, real, table.sizes, 1),
        "two_way": marginal_error(codes, real, table.sizes, 2),
        "three_way": marginal_error(codes, real, table.sizes, 3),
        **_shapes(table, made),
    }


def marginal_error(made: pd.DataFrame, real: pd.DataFrame, sizes: dict, order: int) -> float:
    """Return the mean distance in total variation over the sets of so many columns."""
    n_sets = comb(len(sizes), order)
    if n_sets <= 100_000:
        chosen = list(combinations(sizes, order))
        if n_sets > _MOST_SETS[order]:
            order_of = np.random.default_rng(0).permutation(n_sets)[: _MOST_SETS[order]]
            chosen = [chosen[i] for i in order_of]
    else:
        rng, names = np.random.default_rng(0), list(sizes)
        chosen = [rng.choice(names, order, replace=False) for _ in range(_MOST_SETS[order])]
    columns = [{name: of[name].to_numpy() for name in sizes} for of in (made, real)]
    return float(np.mean([_distance(*columns, sizes, names) for names in chosen]))


def _distance(made: dict, real: dict, sizes: dict, names: Sequence[str]) -> float:
    shape = [sizes[name] for name in names]
    shares = []
    for of in (made, real):
        cells = np.ravel_multi_index([of[name] for name in names], shape)
        shares.append(np.bincount(cells, minlength=int(np.prod(shape))) / len(cells))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _utilities(table: TableSet, made: pd.DataFrame) -> dict[str, float]:
    """Return what boosting and a linear model reach: AUC, or R2 where the target is a number."""
    found = {}
    for name, model in (("boosting", _boosting(table)), ("linear", _linear(table))):
        some = _some(made, _MOST_RECORDS)
        X, y = _of(table, some), _target(table, some)
        X_test, y_test = _of(table, table.test), _target(table, table.test)
        if table.is_regression:
            found[name] = float(r2_score(y_test, model.fit(X, y).predict(X_test)))
        elif len(np.unique(y)) < 2:
            found[name] = 0.5
        else:
            scores = model.fit(X, y).predict_proba(X_test)[:, 1]
            found[name] = float(roc_auc_score(y_test, scores))
    return found


def _target(table, frame):
    if table.is_regression:
        return frame[table.target].astype(float).to_numpy()
    return (frame[table.target] == table.positive).to_numpy()


def _of(table: TableSet, frame: pd.DataFrame) -> pd.DataFrame:
    """Return what models learn from: numbers, and codes of words."""
    return pd.DataFrame(
        {
            name: frame[name].astype(float)
            if isinstance(column, Numbers)
            else column.codes(frame[name])
            for name, column in table.columns.items()
            if name != table.target
        }
    )


def _words(table):
    return [
        name
        for name, column in table.columns.items()
        if not isinstance(column, Numbers)
        and column.n_bins <= _MOST_CATEGORIES
        and name != table.target
    ]


def _boosting(table):
    regression = table.is_regression
    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    return kind(categorical_features=_words(table), **_BOOSTING)


def _linear(table):
    return make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), _words(table)),
            remainder=make_pipeline(
                SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
            ),
        ),
        Ridge() if table.is_regression else LogisticRegression(max_iter=300),
    )


def _shapes(table: TableSet, made: pd.DataFrame) -> dict[str, float]:
    """Return the errors of single columns of numbers, of correlations, and of missing patterns.

    Wasserstein distances and 99th percentiles are in standard deviations. Correlations are of
    numbers and of columns of two categories; strong ones are above .5.
    """
    distances, tails = [], []
    for name in table.numbers:
        of_made, of_real = (of[name].astype(float).dropna() for of in (made, table.train))
        if len(of_made) and of_real.std() > 0:
            scale = of_real.std()
            distances.append(wasserstein_distance(of_made, of_real) / scale)
            tails.append(abs(of_made.quantile(0.99) - of_real.quantile(0.99)) / scale)
    pairs = [
        name
        for name, column in table.columns.items()
        if isinstance(column, Numbers) or len(column.categories) == 2
    ]
    found = {}
    if len(pairs) > 1:
        upper = np.triu_indices(len(pairs), 1)
        of_made, of_real = (
            _as_numbers(table, of, pairs).corr().fillna(0).to_numpy()[upper]
            for of in (made, table.train)
        )
        off, strong = np.abs(of_made - of_real), np.abs(of_real) > _STRONG
        found["correlation"] = float(off.mean())
        if strong.any():
            found["strong"] = float(off[strong].mean())
    if distances:
        found |= {"wasserstein": float(np.mean(distances)), "tails": float(np.mean(tails))}
    optional = [name for name, column in table.columns.items() if column.missing]
    if optional:
        found["missing"] = _missing_patterns(table.train[optional], made[optional])
    return found


def _missing_patterns(real: pd.DataFrame, made: pd.DataFrame) -> float:
    """Return the distance in total variation of which values are missing together."""
    shares = [of.isna().value_counts(normalize=True) for of in (made, real)]
    return float(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)


def _as_numbers(table, frame, names):
    return pd.DataFrame(
        {
            name: frame[name].astype(float)
            if name in table.numbers
            else table.columns[name].codes(frame[name])
            for name in names
        }
    )
