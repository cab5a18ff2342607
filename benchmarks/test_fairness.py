"""The fair preprocessor against other repairs, its scale, and its barycenter against POT's.

Run with ``python -m pytest benchmarks -m benchmark -s -k test_fairness``. Nothing is
asserted about time. Repairs differ in what they leave: how well gradient boosting recovers the
group from repaired rows that no repair has seen (0.5 is not at all), and how well boosting, trained
on repaired rows, predicts. With ``SKDPOT_ADULT=path``, which `load_adult` reads, rows are those of
the Adult census by sex; otherwise made ones, whose groups differ in their means, and in how two of
the features go together.

The case of 100,000 rows has 20 features in 4 groups, of which 10,000 a group are coupled, with the
defaults, in a process of its own, whose peak memory is printed. The last one finds a free-support
barycenter of groups of 2,000 rows in 20 dimensions, with 500 points, from one start.
"""

import os
import subprocess
import sys

import numpy as np
import ot
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.contest import Contestant
from examples.datasets import load_adult
from skdpot import FairBarycenterPreprocessor
from skdpot.fairness.metrics import group_auc
from skdpot.transport.barycenter import free_support_barycenter

pytestmark = pytest.mark.benchmark


def made_table(n=4000):
    """Return rows, groups and what is to be predicted."""
    rng = np.random.default_rng(0)
    group, hidden = rng.integers(0, 2, n), rng.normal(size=(n, 4))
    X = hidden.copy()
    # In one group two features rise together, in the other one falls: no marginal tells.
    X[:, 1] = (2 * group - 1) * hidden[:, 0] + 0.3 * hidden[:, 1]
    X[:, 2] += 0.8 * group
    return X, group, hidden[:, 2] + 0.5 * hidden[:, 3] + 0.5 * rng.normal(size=n) > 0


def adult_table(n=20_000):
    data = load_adult(os.environ["SKDPOT_ADULT"])
    kept = np.random.default_rng(0).permutation(len(data.target))[:n]
    numbers = [data.feature_names.index(name) for name in data.feature_names if name != "fnlwgt"]
    sex = data.categories["sex"] == "Male"
    return data.data[kept][:, numbers], sex[kept].astype(int), data.target[kept] == 1


def by_correlation(train, test, group, new_group):
    from fairlearn.preprocessing import CorrelationRemover

    remover = CorrelationRemover(sensitive_feature_ids=[train.shape[1]])
    remover.fit(np.column_stack([train, group]))
    return tuple(
        remover.transform(np.column_stack([X, of])) for X, of in ((train, group), (test, new_group))
    )


def by_quantiles(train, test, group, new_group):
    """Move each feature to the average of its quantile functions in the groups."""
    names, sizes = np.unique(group, return_counts=True)
    repaired = [np.empty(train.shape), np.empty(test.shape)]
    for j, column in enumerate(train.T):
        samples = [np.sort(column[group == name]) for name in names]
        for X, of, out in zip((train, test), (group, new_group), repaired, strict=True):
            for name, sample in zip(names, samples, strict=True):
                own = X[of == name, j]
                ranks = np.searchsorted(sample, own) + np.searchsorted(sample, own, "right")
                quantiles = [np.quantile(other, ranks / (2 * len(sample))) for other in samples]
                out[of == name, j] = np.average(quantiles, axis=0, weights=sizes)
    return tuple(repaired)


def by_barycenter(train, test, group, new_group, method="auto"):
    fair = FairBarycenterPreprocessor(method=method, random_state=0)
    fair.fit(train, sensitive_features=group)
    return tuple(
        fair.transform(X, sensitive_features=of) for X, of in ((train, group), (test, new_group))
    )


@pytest.mark.quick
def test_repairs(contest):
    title, table = "made table, 4,000 rows", made_table
    if "SKDPOT_ADULT" in os.environ:
        title, table = "20,000 rows of Adult by sex", adult_table
    X, group, target = table()
    half = len(X) // 2
    parts = X[:half], X[half:], group[:half], group[half:]

    def accuracy(repaired):
        model = HistGradientBoostingClassifier(random_state=0).fit(repaired[0], target[:half])
        return model.score(repaired[1], target[half:])

    contest.compare(
        "FairBarycenterPreprocessor",
        f"{title}, {X.shape[1]} features, 2 groups: repair one half, and the other by its map",
        Contestant("FairBarycenterPreprocessor", lambda: by_barycenter(*parts)),
        [
            Contestant("no repair", lambda: (parts[0].copy(), parts[1].copy())),
            Contestant(
                "fairlearn, CorrelationRemover", lambda: by_correlation(*parts), "fairlearn"
            ),
            Contestant("quantiles, feature by feature", lambda: by_quantiles(*parts)),
            Contestant("method='support'", lambda: by_barycenter(*parts, method="support")),
        ],
        {
            "group AUC": lambda found: group_auc(found[1], group[half:], random_state=0),
            "accuracy": accuracy,
        },
        rounds=(3, 5),
    )


SCALE = """
import resource, time
import numpy as np
from skdpot import FairBarycenterPreprocessor
rng = np.random.default_rng(0)
n_rows, n_features, n_groups = 100_000, 20, 4
group = rng.integers(0, n_groups, n_rows)
X = rng.normal(size=(n_rows, n_features)) @ rng.normal(size=(n_features, n_features)) / 4.5
X += 0.7 * rng.normal(size=(n_groups, n_features))[group]
X[:, :5] = np.round(X[:, :5])
start = time.perf_counter()
fair = FairBarycenterPreprocessor(random_state=0, n_jobs=2).fit(X, sensitive_features=group)
fitted = time.perf_counter()
fair.transform(X, sensitive_features=group)
ours = time.perf_counter() - fitted
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"skdpot: fit {fitted - start:.1f} s, transform {ours:.1f} s, peak {peak:.0f} MiB")
from fairlearn.preprocessing import CorrelationRemover
start = time.perf_counter()
CorrelationRemover(sensitive_feature_ids=[20]).fit_transform(np.column_stack([X, group]))
print(f"fairlearn: {time.perf_counter() - start:.1f} s")
"""


def test_hundred_thousand_rows():
    done = subprocess.run([sys.executable, "-c", SCALE], capture_output=True, text=True, check=True)
    print("\n100,000 rows, 20 features, 4 groups\n" + done.stdout)


@pytest.mark.parametrize("bound", ["moments", "pairs"])
def test_barycenter_in_twenty_dimensions(bound, contest):
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(2000, 20)) + rng.normal(size=20) for _ in range(4)]
    weights, equal, half = np.full(4, 0.25), [np.full(2000, 1 / 2000)] * 4, np.full(500, 1 / 500)
    start = np.concatenate(groups)[rng.choice(8000, 500, replace=False)]

    def pot():
        return ot.lp.free_support_barycenter(groups, equal, start, weights=weights)

    def value(support):
        return np.mean([ot.emd2(equal[0], half, ot.dist(group, support)) for group in groups])

    best = value(pot())
    contest.compare(
        "FairBarycenterPreprocessor, barycenter solver",
        "free support, 4 groups of 2,000 rows, 20 features, 500 support points",
        Contestant(
            f"free_support_barycenter, bound by {bound}",
            lambda: free_support_barycenter(groups, weights, start, tol=1e-3, bound=bound).support,
        ),
        [Contestant("POT, lp.free_support_barycenter", pot)],
        {"objective over POT's": lambda support: value(support) / best},
        tolerance=1.001,
        rounds=(1, 3),
    )
