"""First calls of everything, on data of the size of README's, each in a process of its own.

``python benchmarks/first_calls.py NAME`` prints what took how many seconds of the processor:
the imports, the first call, and a second one.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module

import numpy as np

PLACES = [[0.0, 0.0], [0.5, 0.2], [4.0, 3.0], [4.2, 3.1], [9.0, 1.0]]
VISITS = [[12, 3, 0, 0, 1], [0, 0, 5, 9, 0]]
BOX, GROUPS = {"bounds": (-5, 6)}, {"groups": ["f", "m"]}


def _rows():
    rng = np.random.default_rng(0)
    group = rng.choice(["f", "m"], 2000)
    return rng.normal(size=(2000, 3)) + (group == "f")[:, None], group


def _sampler(name, **parameters):
    def call(module):
        sampler = getattr(module, name)(epsilon=2.0, input_points=PLACES, **parameters)
        return sampler.fit(VISITS).transform(VISITS)

    return "skdpot", call


def _digits(solver):
    def call(module):
        users = _load_digits()[:200]
        places = np.stack(np.unravel_index(np.arange(64), (8, 8)), axis=1)
        sampler = module.WassersteinProjectionSampler(
            2.0, input_points=places, base_measure="uniform", solver=solver
        )
        return sampler.fit(users).transform(users)

    return "skdpot", call


def _load_digits():
    from sklearn.datasets import load_digits

    return load_digits().data


def _spherical(module):
    X = _rows()[0]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return module.SphericalProjectionSampler(epsilon=2.0).fit(X).transform(X)


def _distance(name="PrivateSinkhornDistance", room="skdpot", **parameters):
    def call(module):
        X, group = _rows()
        return getattr(module, name)(epsilon=1.0, **BOX, **parameters).fit(X, group).distance_

    return room, call


def _preprocessor(method=None, **parameters):
    def call(module):
        X, group = _rows()
        if method is not None:
            parameters["method"] = getattr(import_module("skdpot.fairness"), method)()
        made = module.FairBarycenterPreprocessor(random_state=0, **parameters)
        return made.fit(X, sensitive_features=group).transform(X, sensitive_features=group)

    return "skdpot", call


def _regressor(module):
    X, group = _rows()
    made = module.FairBarycenterRegressor().fit(X[:, :2], X[:, 2], sensitive_features=group)
    return made.predict(X[:, :2], sensitive_features=group)


def _private_regressor(module):
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LinearRegression

    X, group = _rows()
    model = FrozenEstimator(LinearRegression().fit(X[:1000, :2], X[:1000, 2]))
    made = module.FairBarycenterRegressor(model, epsilon=1.0, **GROUPS, **BOX)
    return made.fit(X[1000:, :2], X[1000:, 2], sensitive_features=group[1000:])


def _vectors(module):
    return module.DPSinkhornGenerator(epsilon=1.0, **BOX).fit(_rows()[0]).sample(500)


def _table(module):
    import pandas as pd

    age = np.random.default_rng(0).integers(18, 80, 2000)
    table = pd.DataFrame({"age": age, "retired": np.where(age > 65, "yes", "no")})
    schema = {"age": range(18, 80), "retired": ["no", "yes"]}
    people = module.DPSinkhornGenerator(epsilon=1.0, schema=schema, target="retired").fit(table)
    return people.sample(500, given={"age": (20, 29)})


def _images(module):
    return module.DPSinkhornGenerator(epsilon=8.0, bounds=(0, 16)).fit(_load_digits()).sample(9)


def _network(module):
    from skdpot.generative import NetworkTraining

    made = module.DPSinkhornGenerator(
        epsilon=1.0, **BOX, network=NetworkTraining(n_iter=5, batch_size=16)
    )
    return made.fit(_rows()[0]).sample(9)


def _allocation(name="PrivateADMMTransport", room="skdpot", **parameters):
    def call(module):
        worth = np.random.default_rng(0).integers(1, 6, (30, 4))
        made = getattr(module, name)(
            epsilon=10.0, utility_bounds=(1, 5), target_bounds=(0, 5), source_bounds=(0, 40),
            **parameters,
        )  # fmt: skip
        return made.fit(worth)

    return room, call


def _search(module):
    from sklearn.linear_model import LogisticRegression

    X, group = _rows()
    search = module.PrivateSearchCV(LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, epsilon=1.0)
    return search.fit(X, group)


def _gradient(module):
    from skdpot.generative import NetworkTraining

    network = NetworkTraining(n_iter=3, batch_size=16)
    return module.SinkhornGradientGenerator(epsilon=1.0, **BOX, network=network).fit(_rows()[0])


def _cost():
    points = np.asarray(PLACES)
    return np.linalg.norm(points[:, None] - points, axis=-1)


def _base_measure(module):
    return module.optimal_base_measure(_cost(), 2.0)


def _projection(module):
    return module.wasserstein_projection(VISITS, _cost(), np.full(5, 0.15), 2.0)


def _transport(module):
    X, _ = _rows()
    cost = np.linalg.norm(X[:200, None] - X[None, 200:400], axis=-1)
    return module.exact_transport(cost, np.full(200, 0.005), np.full(200, 0.005))


WORKS: dict[str, tuple[str, Callable]] = {
    "WassersteinProjectionSampler": _sampler("WassersteinProjectionSampler"),
    "WassersteinProjectionSampler, entropic": _sampler(
        "WassersteinProjectionSampler", solver="entropic"
    ),
    "WassersteinProjectionSampler, uniform": _sampler(
        "WassersteinProjectionSampler", base_measure="uniform"
    ),
    "WassersteinProjectionSampler, 200 users of 64 places": _digits("exact"),
    "WassersteinProjectionSampler, entropic, 200 users of 64 places": _digits("entropic"),
    "KLProjectionSampler": _sampler("KLProjectionSampler"),
    "ExponentialMechanismSampler": _sampler("ExponentialMechanismSampler"),
    "SphericalProjectionSampler": ("skdpot", _spherical),
    "PrivateSinkhornDistance": _distance(),
    "PrivateSinkhornDistance, reg": _distance(reg=0.1),
    "PrivateSinkhornDistance, histogram": _distance(mechanism="histogram"),
    "FairBarycenterPreprocessor": _preprocessor(),
    "FairBarycenterPreprocessor, free": _preprocessor("FreeSupport"),
    "FairBarycenterPreprocessor, epsilon": _preprocessor(epsilon=1.0, **GROUPS, **BOX),
    "FairBarycenterRegressor": ("skdpot", _regressor),
    "FairBarycenterRegressor, epsilon": ("skdpot", _private_regressor),
    "DPSinkhornGenerator, vectors": ("skdpot", _vectors),
    "DPSinkhornGenerator, table": ("skdpot", _table),
    "DPSinkhornGenerator, images": ("skdpot", _images),
    "DPSinkhornGenerator, network": ("skdpot", _network),
    "PrivateADMMTransport": _allocation(),
    "PrivateSearchCV": ("skdpot", _search),
    "NoisySinkhornDistance": _distance("NoisySinkhornDistance", "skdpot.published"),
    "PrivateMessageADMM": _allocation("PrivateMessageADMM", "skdpot.published"),
    "SinkhornGradientGenerator": ("skdpot.published", _gradient),
    "optimal_base_measure": ("skdpot", _base_measure),
    "wasserstein_projection": ("skdpot", _projection),
    "exact_transport": ("skdpot.transport", _transport),
}


def main(name: str) -> None:
    """Make one first call, and print what took how many seconds."""
    room, call = WORKS[name]
    start = time.process_time()
    module = import_module(room)
    for one in module.__all__:
        getattr(module, one)
    imported = time.process_time()
    call(module)
    called = time.process_time()
    call(module)
    again = time.process_time()
    seconds = {"imports": imported - start, "first": called - imported, "second": again - called}
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1])
