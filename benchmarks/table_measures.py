"""Measures of made records: how near they are to real ones, and what models learn from them.

Models learn from the made records and are tested on real ones. Distances of marginals are in total
variation, over the public bins that all methods have in common.
"""

from collections.abc import Sequence
from itertools import combinations

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

# Of triples of columns at most so many are compared, the same ones for all methods.
_MOST_TRIPLES = 300
_BOOSTING = {"early_stopping": True, "random_state": 0}


def measures(table: TableSet, made: pd.DataFrame) -> dict[str, float]:
    """Return all measures of made records."""
    return {**_utilities(table, made), **errors(table, made)}


def measures_of_real(table: TableSet) -> dict[str, float]:
    """Return what models learn from real records, and the errors of as many that are drawn again.

    Records that are drawn independently have such errors even without noise.
    """
    again = table.train.sample(frac=1, replace=True, random_state=0, ignore_index=True)
    return {**_utilities(table, table.train), **errors(table, again)}


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
    chosen = list(combinations(sizes, order))
    if len(chosen) > _MOST_TRIPLES and order > 2:
        order_of = np.random.default_rng(0).permutation(len(chosen))[:_MOST_TRIPLES]
        chosen = [chosen[i] for i in order_of]
    return float(np.mean([_distance(made, real, sizes, names) for names in chosen]))


def _distance(made, real, sizes, names: Sequence[str]) -> float:
    shape = [sizes[name] for name in names]
    shares = [
        np.bincount(
            np.ravel_multi_index([of[name].to_numpy() for name in names], shape),
            minlength=int(np.prod(shape)),
        )
        / len(of)
        for of in (made, real)
    ]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _utilities(table: TableSet, made: pd.DataFrame) -> dict[str, float]:
    """Return what boosting and a linear model reach: AUC, or R2 where the target is a number."""
    found = {}
    for name, model in (("boosting", _boosting(table)), ("linear", _linear(table))):
        X, y = _of(table, made), _target(table, made)
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
    return [name for name in table.columns if name not in table.numbers and name != table.target]


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
    """Return the mean Wasserstein distance in standard deviations, and the error of correlations.

    Correlations are of numbers and of columns of two categories.
    """
    distances = []
    for name in table.numbers:
        of_made, of_real = (of[name].astype(float).dropna() for of in (made, table.train))
        distances.append(
            wasserstein_distance(of_made, of_real) / of_real.std() if len(of_made) else np.nan
        )
    pairs = [
        name
        for name, column in table.columns.items()
        if isinstance(column, Numbers) or len(column.categories) == 2
    ]
    made, real = (_as_numbers(table, of, pairs).corr().fillna(0) for of in (made, table.train))
    upper = np.triu_indices(len(pairs), 1)
    found = {"correlation": float(np.abs((made - real).to_numpy()[upper]).mean())}
    if distances:
        found["wasserstein"] = float(np.mean(distances))
    return found


def _as_numbers(table, frame, names):
    return pd.DataFrame(
        {
            name: frame[name].astype(float)
            if name in table.numbers
            else table.columns[name].codes(frame[name])
            for name in names
        }
    )
