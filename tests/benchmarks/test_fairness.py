"""Speed and memory of the fair preprocessor, and of its barycenter against POT's.

Run with ``OMP_NUM_THREADS=1 python -m pytest tests/benchmarks/test_fairness.py -m benchmark -s``.
Nothing is asserted about time. The first case repairs 100,000 rows of 20 features in 4 groups, of
which 10,000 a group are coupled, with the defaults, in a process of its own, whose peak memory is
printed. fairlearn's linear remover of correlations, on the same rows, does less. The second finds a
free-support barycenter of groups of 2,000 rows in 20 dimensions, with 500 points, from one start.
"""

import subprocess
import sys
import time

import numpy as np
import ot
import pytest

from skdpot.transport.barycenter import free_support_barycenter

pytestmark = pytest.mark.benchmark

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


def test_barycenter_in_twenty_dimensions():
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(2000, 20)) + rng.normal(size=20) for _ in range(4)]
    weights = np.full(4, 0.25)
    start = np.concatenate(groups)[rng.choice(8000, 500, replace=False)]
    free_support_barycenter([group[:20] for group in groups], weights, start[:10])
    found = {}
    begun = time.perf_counter()
    found["skdpot"] = free_support_barycenter(groups, weights, start, tol=1e-3).support
    seconds = {"skdpot": time.perf_counter() - begun}
    begun = time.perf_counter()
    equal = [np.full(2000, 1 / 2000)] * 4
    found["POT"] = ot.lp.free_support_barycenter(groups, equal, start, weights=weights)
    seconds["POT"] = time.perf_counter() - begun
    print("\nfree support, 4 groups of 2,000 rows, 20 features, 500 points")
    for name, support in found.items():
        half = np.full(500, 1 / 500)
        value = np.mean([ot.emd2(equal[0], half, ot.dist(group, support)) for group in groups])
        ratio = seconds[name] / seconds["POT"]
        print(f"  {name:<8}{seconds[name]:8.2f} s ({ratio:.2f}x), objective {value:.4f}")
