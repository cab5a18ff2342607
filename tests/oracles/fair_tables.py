"""Tables with groups that differ, and what a fair map of them costs."""

import numpy as np
import ot
import pandas as pd
import polars as pl

from skdpot.fairness import ConditionalRepair

# It searches for no group, and has no certificate, which take most of the time.
WITHOUT_SEARCH = ConditionalRepair(tol=0.0, held_out=0.0)

COLUMNS = ["number", "whole", "level", "color", "word", "group"]
# What is declared of these columns of `mixed_frame`.
DECLARED = {
    "bounds": ([-4, 0], [5, 10]),
    "groups": ["f", "m"],
    "categories": {
        "level": ["low", "middle", "high"], "color": [*"rgbw"], "word": ["no", "so", "yes"],
    },
    "categorical_features": {"level": "ordinal", "color": "nominal", "word": "nominal"},
}  # fmt: skip


def shifted_groups(sizes=(40, 60), n_columns=2, seed=0):
    """Return normal rows of groups a, b, ... that are apart, in no order, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat([*"abcdefgh"[: len(sizes)]], sizes))
    return rng.normal(size=(len(labels), n_columns)) + (labels != "a")[:, None], labels


def mixed_frame(n=120, seed=0):
    """Return a frame of pandas with a column of every type, all of which tell of the group."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["f", "m"], n)
    shift = (group == "m") * 1
    return pd.DataFrame(
        {
            "number": rng.normal(size=n) + shift,
            "whole": rng.integers(0, 9, n) + shift,
            "level": pd.Categorical(
                np.array(["low", "middle", "high"])[np.minimum(rng.integers(0, 3, n) + shift, 2)],
                ["low", "middle", "high"],
                ordered=True,
            ),
            "color": pd.Categorical(np.array([*"rgbw"])[rng.integers(0, 3, n) + shift]),
            "word": np.array(["no", "so", "yes"])[rng.integers(0, 2, n) + shift],
            "flag": rng.random(n) < 0.3 + 0.4 * shift,
            "group": group,
        },
        index=np.arange(n) + 1000,
    )


def extreme_tables():
    """Return tables with the columns of `DECLARED` that are as odd as tables may be, and names."""
    frame = mixed_frame(60)[COLUMNS]
    plain = frame.astype({"level": object, "color": object, "word": object, "group": object})
    n = len(frame)
    yield "as it is", frame
    yield "one group", plain.assign(group="f")
    yield "no group", plain.assign(group="nobody")
    yield "missing groups", plain.assign(group=[None, np.nan, pd.NA] * (n // 3))
    odd = plain.copy()
    odd["group"] = [[1], {}, ("f",), 1j] * (n // 4)
    yield "no labels", odd
    yield "beyond the bounds", plain.assign(number=[1e300, -1e300] * (n // 2), whole=-1e308)
    yield "one row", plain.iloc[[0] * n]
    yield (
        "undeclared",
        plain.assign(
            level="top", color=np.full(n, 7, dtype=object), word=[["no"], None] * (n // 2)
        ),
    )
    yield "missing", plain.assign(level=None, color=np.full(n, np.nan, dtype=object), word=pd.NA)
    yield "tiny", plain.assign(number=5e-324, whole=[0.0, -0.0] * (n // 2))


def in_polars(frame):
    """Return a frame of pandas as one of polars, with categories as its enumerations."""
    columns = {}
    for name, column in frame.items():
        categories = getattr(column.dtype, "categories", None)
        dtype = None if categories is None else pl.Enum(list(categories))
        values = [None if pd.isna(value) else value for value in column.tolist()]
        columns[name] = pl.Series(name, values, dtype=dtype)
    return pl.DataFrame(columns)


def discrete_table(n, seed=0):
    """Return rows of three small integers, with different laws in two groups, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    columns = [rng.binomial(3, 0.35 + 0.25 * labels), rng.binomial(2, 0.5 - 0.2 * labels)]
    return np.column_stack([*columns, rng.integers(0, 2, n)]).astype(float), labels


def transport_cost(rows, support, order=2):
    """Return the cost of transport of equal masses on rows to equal masses on a support."""
    cost = ot.dist(rows, support, metric="euclidean") ** order
    return ot.emd2(ot.unif(len(rows)), ot.unif(len(support)), cost)


def barycenter_cost(X, labels, fair, order=2):
    """Return what the support of a fair map costs, in the units of X, by POT."""
    return sum(
        weight * transport_cost(X[[label == name for label in labels]], fair.support_, order)
        for name, weight in zip(fair.groups_, fair.group_weights_, strict=True)
    )
