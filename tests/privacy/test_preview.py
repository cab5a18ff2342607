"""Previews: what they say is what a fit does, and how far its releases are spread."""

import json
import pickle
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from skdpot import (
    DPSinkhornGenerator,
    ExponentialMechanismSampler,
    FairBarycenterClassifier,
    FairBarycenterPreprocessor,
    FairBarycenterRegressor,
    KLProjectionSampler,
    PrivacyLedger,
    PrivateADMMTransport,
    PrivateSearchCV,
    PrivateSinkhornDistance,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.fairness import ConditionalRepair, FreeSupport
from skdpot.generative import TableSketch, VectorSketch
from skdpot.generative._table import release_marginals
from skdpot.privacy import PureDpEvent
from skdpot.privacy.events import event_to_json
from skdpot.privacy.noise import make_source
from skdpot.published import NoisySinkhornDistance, PrivateMessageADMM
from skdpot.releases import HistogramRelease, UnitLayout, UtilityNoise, UtilityResponse
from tests.quick import first_quick

N = 60
RNG = np.random.default_rng(5)
NUMBERS = RNG.uniform(0, 1, (N, 2))
LABELS = np.arange(N) % 2
TABLE = pd.DataFrame(
    {"a": NUMBERS[:, 0], "c": np.where(NUMBERS[:, 1] > 0.5, "p", "q"), "g": LABELS}
)
SCHEMA = {"a": (0.0, 1.0), "c": ["p", "q"], "g": [0, 1]}
WORTH = RNG.integers(1, 6, (8, 3)).astype(float)
VECTORS = NUMBERS / np.linalg.norm(NUMBERS, axis=1, keepdims=True)
ALLOCATION = {"utility_bounds": (1, 5), "target_bounds": (0, 1), "source_bounds": (0, 3)}


@dataclass(frozen=True)
class Case:
    """An estimator, its data, and what is public of them."""

    estimator: object
    data: tuple
    columns: object = None
    options: dict = field(default_factory=dict)

    def preview(self, estimator=None, **options):
        chosen = self.estimator if estimator is None else estimator
        return chosen.preview(len(self.data[0]), self.columns, **(self.options | options))

    def fit(self, estimator):
        """Make a release, which is after the fit of a sampler."""
        estimator.fit(*self.data)
        if hasattr(estimator, "sample") and not hasattr(estimator, "load"):
            estimator.transform(self.data[0])
        return estimator


def repair(method):
    return FairBarycenterPreprocessor(
        "g", epsilon=20.0, delta=1e-5, bounds={"a": (0, 1)}, groups=[0, 1],
        categories={"c": ["p", "q"]}, method=method,
    )  # fmt: skip


LINE = FrozenEstimator(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))
SIGNS = FrozenEstimator(LogisticRegression().fit([[0.0], [1.0]], [0, 1]))
CASES = {
    "distance": Case(
        PrivateSinkhornDistance(1.0, bounds=(0, 1)), (NUMBERS, LABELS), 2,
        {"group_sizes": {0: N // 2, 1: N // 2}},
    ),
    "distance, histogram, private labels": Case(
        PrivateSinkhornDistance(
            1.0, 1e-5, bounds=(0, 1), labels="private", groups=[0, 1], min_group_size=5,
            mechanism="histogram",
        ),
        (NUMBERS, LABELS), 2,
    ),
    "distance, a table": Case(
        PrivateSinkhornDistance(1.0, schema={"a": (0.0, 1.0), "c": ["p", "q"]}),
        (TABLE[["a", "c"]], LABELS), 2, {"group_sizes": [N // 2, N // 2]},
    ),
    "search": Case(
        PrivateSearchCV(DummyClassifier(), {"constant": [0, 1]}, n_iter=2, n_blocks=3, cv=2),
        (NUMBERS, LABELS),
    ),
    **{
        name.__name__: Case(name(2.0), (RNG.dirichlet(np.ones(4), N),), 4)
        for name in (WassersteinProjectionSampler, KLProjectionSampler, ExponentialMechanismSampler)
    },
    "SphericalProjectionSampler": Case(SphericalProjectionSampler(2.0), (VECTORS,), 2),
    "generator, a table": Case(
        DPSinkhornGenerator(2.0, schema=SCHEMA, target="g", model=TableSketch(4, n_iter=5)),
        (TABLE,),
    ),
    "generator, vectors": Case(
        DPSinkhornGenerator(2.0, bounds=(0, 1), classes=[0, 1]), (NUMBERS, LABELS), 2
    ),
    "allocation": Case(PrivateADMMTransport(2.0, **ALLOCATION), (WORTH,), 3),
    "allocation, messages": Case(PrivateMessageADMM(2.0, **ALLOCATION), (WORTH,), 3),
    **{
        f"repair, {name}": Case(repair(method), (TABLE,), TABLE[:0])
        for name, method in {
            "histogram": FreeSupport(n_support=4),
            "conditional": ConditionalRepair(),
        }.items()
    },
    "predictions": Case(
        FairBarycenterRegressor(
            LINE, sensitive_features=1, sensitive_in_estimator=False, epsilon=1.0, bounds=(0, 1),
            groups=[0, 1],
        ),
        (np.column_stack([NUMBERS[:, 0], LABELS]), NUMBERS[:, 1]),
    ),
    "probabilities": Case(
        FairBarycenterClassifier(
            SIGNS, sensitive_features=1, sensitive_in_estimator=False, epsilon=1.0, groups=[0, 1],
        ),
        (np.column_stack([NUMBERS[:, 0], LABELS]), LABELS),
    ),
    "noisy Sinkhorn": Case(NoisySinkhornDistance(1.0, bounds=(0, 1)), (NUMBERS, LABELS), 2),
}  # fmt: skip
# Fits of these take more than a second, and the others show most mistakes.
SLOW = ("generator, a table", "repair, conditional", "noisy Sinkhorn", "allocation, messages")
each_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.experiment] * (name in SLOW))
        for name, case in CASES.items()
    ],
)
quick_cases = pytest.mark.parametrize(
    "case", [CASES[name] for name in ("distance", "allocation", "predictions")]
)


@each_case
def test_a_fit_releases_and_charges_what_the_preview_said(case):
    estimator = clone(case.estimator).set_params(ledger=PrivacyLedger(50.0, 1e-3))
    preview = case.preview(estimator)
    assert estimator.ledger.entries() == []
    # Rounds as published have a price, and no error that is known beforehand.
    assert preview.errors or isinstance(estimator, PrivateMessageADMM)
    # Of so few rows a sketch makes no map.
    assert preview.refusal is None or "a sketch of a table" in preview.label
    fitted = case.fit(estimator)
    (entry,) = estimator.ledger.entries()
    assert (entry.event, entry.label) == (preview.event, preview.label)
    assert preview.price.spent_after == estimator.ledger.spent(unit=entry.unit)
    assert preview.guarantee == fitted.privacy_guarantee_
    # A preview of the fitted one, which costs a second release.
    again = case.preview(fitted)
    assert (again.event, again.errors) == (preview.event, preview.errors)
    assert again.price.spent == preview.price.spent_after


@quick_cases
def test_a_preview_is_the_same_for_neighbours_and_plain_values(case):
    first = case.preview()
    copied = case.preview(pickle.loads(pickle.dumps(clone(case.estimator))))
    told = json.loads(json.dumps(first.to_dict()))
    assert str(copied) == str(first) and copied.to_dict() == first.to_dict()
    assert (told["label"], told["event"]) == (first.label, event_to_json(first.event))
    assert [each["share"] for each in told["errors"]] == [each.share for each in first.errors]
    assert all(error.error > 0 and error.scale > 0 for error in first.errors)


@quick_cases
def test_what_is_wrong_is_said_in_words(case):
    for wrong in (0, 2.5, None):
        with pytest.raises(ValueError, match="n_records must be a positive integer"):
            case.estimator.preview(wrong, case.columns)
    with pytest.raises(TypeError, match="unknown"):
        case.preview(unknown=1)


@each_case
def test_a_table_with_rows_is_never_read_by_a_preview(case):
    """Rows may be private: what their table says is not taken from it."""
    with pytest.raises(ValueError, match="without rows"):
        case.estimator.preview(N, case.data[0], **case.options)


def test_columns_are_a_number_names_or_a_table_without_rows():
    distance = PrivateSinkhornDistance(1.0, bounds=([0, 0], [1, 2]))
    given = (2, ["a", "b"], TABLE.columns[:2], np.empty((0, 2)), None)
    told = {str(distance.preview(50, c)) for c in given}
    assert len(told) == 1
    for wrong in ("ab", 0, np.zeros((3, 2)), 1.5):
        with pytest.raises((ValueError, TypeError)):
            distance.preview(50, wrong)
    with pytest.raises(ValueError, match=r"columns must say how many columns X .*; it is missing"):
        PrivateADMMTransport(2.0, **ALLOCATION).preview(5)
    for places in ({"input_points": np.eye(3)}, {"cost_matrix": 1 - np.eye(3)}):
        sampler = WassersteinProjectionSampler(2.0, **places)
        assert str(sampler.preview(50)) == str(sampler.preview(50, 3))


def test_a_fit_without_guarantee_has_no_errors():
    case = CASES["allocation"]
    preview = case.preview(clone(case.estimator).set_params(epsilon=None))
    assert preview.event is None and preview.guarantee is None and preview.errors == ()
    assert "guarantee: none" in str(preview)
    assert json.dumps(preview.to_dict())


def test_a_ledger_that_refuses_is_quoted_and_its_file_stays_as_it_is(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ledger = PrivacyLedger(1.5, path=path)
    distance = PrivateSinkhornDistance(1.0, bounds=(0, 1), ledger=ledger)
    distance.fit(NUMBERS, LABELS)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    preview = distance.preview(N)
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert preview.price is None and "budget" in preview.refusal
    assert preview.refusal in str(preview)
    cheap = clone(distance).set_params(epsilon=0.25).preview(N)
    assert cheap.price.spent == (1.0, 0.0) and cheap.price.spent_after == (1.25, 0.0)


@pytest.mark.parametrize("slack", [None, 0.0, 1e-7])
def test_the_price_is_that_of_the_whole_ledger(slack):
    ledger = PrivacyLedger(5.0, 1e-6, slack=slack)
    for _ in range(20):
        ledger.charge(PureDpEvent(0.1), unit="record", label="earlier")
    distance = PrivateSinkhornDistance(0.1, bounds=(0, 1), ledger=ledger)
    price = distance.preview(N).price
    assert (price.budget, price.spent) == ((5.0, 1e-6), ledger.spent(unit="record"))
    distance.fit(NUMBERS, LABELS)
    assert price.spent_after == ledger.spent(unit="record")


def test_a_private_number_of_records_is_asked_for_in_a_preview_alone():
    generator = DPSinkhornGenerator(0.05, bounds=(0, 1), classes=[0, 1])
    assert generator.preview(4, 2).refusal is not None
    generator.set_params(neighbouring="replace_one")
    preview = generator.preview(10**6, 2)
    assert preview.refusal is None and "noise is up to twice that of" in str(preview)


# --------------------------------------------------------------------- releases that are refused


@pytest.mark.refuses_useless
def test_what_tells_nothing_is_refused_before_the_charge():
    ledger = PrivacyLedger(50.0, 1e-3)
    distance = PrivateSinkhornDistance(1.0, bounds=(0, 1), ledger=ledger)
    identifiers = [str(i) for i in range(N)]
    everybody = pd.DataFrame({"a": NUMBERS[:, 0], "g": np.arange(N), "id": identifiers})
    repair = {"epsilon": 1.0, "delta": 1e-5, "bounds": {"a": (0, 1)}, "groups": range(N)}
    attempts = [
        (PrivateSearchCV(LogisticRegression(), {"C": [1, 2]}), NUMBERS[:10], LABELS[:10]),
        (distance, np.arange(200.0)[:, None], np.arange(200) // 2),
        (FairBarycenterPreprocessor("g", **repair), everybody[["a", "g"]], None),
        (DPSinkhornGenerator(0.1, schema={"id": identifiers}), everybody[["id"]], None),
        (PrivateADMMTransport(1e-9, utility_bounds=(0, 1), source_bounds=(0, N)), NUMBERS, None),
    ]  # fmt: skip
    for estimator, X, y in attempts:
        with pytest.raises(ValueError, match="charged, because the release would be useless"):
            estimator.set_params(ledger=ledger).fit(X, y)
    assert ledger.entries() == []


# The second is above one over the number of records, where that is public.
@pytest.mark.parametrize("delta, relation", [(0.1, "add_remove"), (1.5 / N, "replace_one")])
def test_a_delta_that_publishes_records_is_warned_of(delta, relation):
    generator = DPSinkhornGenerator(2.0, delta, bounds=(0, 1), neighbouring=relation)
    with pytest.warns(UserWarning, match=f"delta of {delta:g} allows to publish records") as told:
        generator.fit(NUMBERS)
    preview = generator.preview(len(NUMBERS), NUMBERS.shape[1])
    assert preview.warning == str(told[0].message) and f"  warning: {preview.warning}" in str(
        preview
    )
    assert generator.set_params(delta=1e-5).preview(N, NUMBERS.shape[1]).warning is None


@pytest.mark.refuses_useless
def test_what_tells_nothing_in_part_is_warned_of():
    distance = PrivateSinkhornDistance(1.0, bounds=(0, 1))
    with pytest.warns(UserWarning, match="a part of the release is useless.*between 0 and 2"):
        distance.fit(np.vstack([NUMBERS, NUMBERS[:1]]), [*LABELS, 2])
    # A column like an identifier: with a public number of records it is known to be one.
    table = pd.DataFrame({"id": [f"{i}" for i in range(N)], "g": LABELS})
    generator = DPSinkhornGenerator(
        2.0, schema={"id": table["id"].tolist(), "g": [0, 1]}, model=TableSketch(4, n_iter=5)
    )
    told = generator.preview(N)
    assert [error.is_useless for error in told.errors] == [True, False, False]
    assert "is useless" in str(told) and told.refusal is None
    # Where the number of records is private, the released one says it.
    for relation in ("replace_one", "add_remove"):
        with pytest.warns(UserWarning, match="share of a category of 'id'"):
            clone(generator).set_params(neighbouring=relation).fit(table)


# ------------------------------------------------------------------ errors against simulations


def spread(values):
    return float(np.std(values, axis=0).mean())


def root_mean_square(values):
    return float(np.sqrt(np.mean(np.square(values))))


def distances(**options):
    """Return the deviation of distances, over fits to two slopes."""
    steps = np.linspace(0, 1, 1000, endpoint=False)
    X = np.concatenate([steps**0.7, steps**1.4])[:, None]
    y = np.repeat([0, 1], 1000)
    made = PrivateSinkhornDistance(1.0, bounds=(0, 1), metric="euclidean", **options)
    found = [clone(made).set_params(random_state=k).fit(X, y).distance_ for k in range(80)]
    return [(spread(found), made.preview(2000).errors[0].error)]


def costs_of_samples():
    pairs = []
    for made in (WassersteinProjectionSampler, KLProjectionSampler, ExponentialMechanismSampler):
        sampler = made(2.0, random_state=0).fit(np.eye(4))
        drawn = sampler.sample(np.eye(4), 20_000)
        costs = np.take_along_axis(sampler.cost_matrix_, drawn, axis=1).mean(axis=1)
        pairs.append((costs.max(), sampler.preview(4, 4).errors[0].error))
    sampler = SphericalProjectionSampler(2.0, random_state=0).fit(VECTORS)
    apart = np.linalg.norm(sampler.sample(VECTORS, 200) - VECTORS[:, None], axis=2)
    return [*pairs, (apart.mean(), sampler.preview(N, 2).errors[0].error)]


def counts_of_tables():
    n, schema = 4000, {"age": range(0, 50), "sex": ["f", "m"], "mood": list("abcd")}
    generator = DPSinkhornGenerator(1.0, schema=schema)
    release = generator._plan(generator._declared(n, None)).release
    rng = np.random.default_rng(0)
    units = np.column_stack([rng.integers(0, k, n) for k in (50, 2, 4)])
    shares, means, correlations = [], [], []
    for seed in range(300):
        found = release_marginals(units, release.space.schema, release.releases(make_source(seed)))
        of_age, of_sex = found["totals"][:50], found["totals"][50:52]
        means.append(of_age @ np.arange(50) / of_age.sum())
        shares.append(of_sex[0] / of_sex.sum())
        # The upper half of age, and of the other one with the most groups.
        groups = found["groups"][:50].max() + 1
        of_pairs = found["pairs"][2 * groups : 6 * groups].reshape(groups, 4)
        signs = np.where(np.arange(groups) < groups / 2, -1, 1)
        correlations.append(signs @ of_pairs @ np.array([-1, -1, 1, 1]) / n)
    expected = {error.quantity: error.error for error in generator.preview(n).errors}
    of_halves = "standard error of the correlation of the upper halves of two columns"
    return [
        (spread(means), expected["standard error of the mean of 'age'"]),
        (spread(shares), expected["standard error of the share of a category of 'sex'"]),
        (spread(correlations), expected[of_halves]),
    ]


def sizes_and_means_of_classes():
    angles = np.linspace(0, 2 * np.pi, 3000, endpoint=False)
    X = 0.9 * np.column_stack([np.cos(angles), np.sin(angles)])
    generator = DPSinkhornGenerator(0.5, bounds=(-1, 1), model=VectorSketch(n_clusters=1))
    sketches = [
        clone(generator).set_params(random_state=k).fit(X)._fitted.sketch.mixture for k in range(60)
    ]
    means = np.array([of.weights[0] @ of.means[0] * of.unit for of in sketches])
    size, mean = (error.error for error in generator.preview(3000, 2).errors)
    return [
        (spread([of.counts[0] for of in sketches]), size),
        (root_mean_square(np.linalg.norm(means, axis=1)) / 0.9, mean),
    ]


def groups_of_released_rows():
    rng, n = np.random.default_rng(0), 500
    shapes = [
        rng.normal(0.5, 0.17, n), rng.normal(0.3, 0.05, n), rng.uniform(0, 1, n),
        rng.beta(0.5, 0.5, n), rng.exponential(0.1, n),
    ]  # fmt: skip
    release, moved = HistogramRelease(UnitLayout((0,), ()), 2, 2 * n, 1.0, 1e-5), []
    for shape, seed in product(shapes, range(12)):
        rows = np.sort(np.clip(shape, 0, 1))
        values = (np.tile(rows, 2)[:, None], np.repeat([0, 1], n))
        _, points, masses = release.run(values, make_source(seed))
        order = np.argsort(points[0][:, 0])
        ranks = np.cumsum(masses[0][order])
        places = np.searchsorted(ranks, (np.arange(n) + 0.5) / n).clip(max=len(order) - 1)
        moved.append(rows - points[0][order, 0][places])
    return [(root_mean_square(moved), release.expected_errors(2 * n)[0].error)]


def medians_of_predictions():
    made = CASES["predictions"].estimator
    release = made._plan(made._declared(400, None)).release
    counts = np.full(release.n_cells - release.n_cells % 2, 200 / release.n_cells)
    noisy = [release.run(np.rint(counts), make_source(k)) for k in range(200)]
    below = [of[: len(of) // 2].sum() / of.sum() for of in noisy]
    return [(spread(below), made.preview(400).errors[0].error)]


def utilities():
    pairs = []
    values = np.random.default_rng(0).uniform(1, 5, 4000)
    for made, epsilon, protect in [
        (UtilityResponse, 3.0, "parameter"), (UtilityResponse, 8.0, "node"),
        (UtilityNoise, 3.0, "parameter"),
    ]:  # fmt: skip
        release = made(epsilon, low=1, high=5, degrees=np.full(400, 10), protect=protect)
        found = release.estimate(release.run(values, make_source(0)))
        pairs.append((root_mean_square(found - values), release.standard_error))
    return pairs


SIMULATIONS = {
    # What is simulated, and from what share of the expected error up to what share it may be.
    "utilities": (utilities, 0.9, 1.02),
    "distance": (distances, 0.8, 1.2),
    "distance, histogram": (lambda: distances(mechanism="histogram"), 0.8, 1.2),
    "samplers": (costs_of_samples, 0.95, 1.05),
    "tables": (counts_of_tables, 0.8, 1.2),
    "vectors": (sizes_and_means_of_classes, 0.8, 1.2),
    # The formulas are averages over groups of several shapes.
    "repair": (groups_of_released_rows, 0.7, 1.4),
    "predictions": (medians_of_predictions, 0.8, 1.2),
}


@pytest.mark.parametrize("name", first_quick(SIMULATIONS))
def test_errors_are_as_large_as_expected(name):
    simulate, least, most = SIMULATIONS[name]
    for measured, expected in simulate():
        assert least * expected <= measured <= most * expected
