"""Purity: all that a private fit leaves is a function of releases and of public values.

Every estimator is fitted twice: to some records, and to a neighbouring data set, in whose fit every
release returns what was released in the first one. Fitted state, pickles, files, representations,
warnings and what the ledger says must then be bit-identical. An exact size of a group by which
something is divided, or a warning that goes by private values, shows here.
"""

import pickle
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from skdpot import (
    DPSinkhornGenerator,
    FairBarycenterClassifier,
    FairBarycenterPreprocessor,
    FairBarycenterRegressor,
    PrivacyLedger,
    PrivateADMMTransport,
    PrivateSearchCV,
    PrivateSinkhornDistance,
)
from skdpot.fairness import ConditionalRepair, FreeSupport, _models, _repair
from skdpot.generative import TableSketch
from skdpot.releases import VectorRelease
from tests.oracles.transcripts import Transcript, differences, on_transcript

N = 60
rng = np.random.default_rng(3)
NUMBERS = rng.uniform(0, 1, (N, 2))
LABELS = rng.integers(0, 2, N)
TABLE = pd.DataFrame(
    {
        "a": NUMBERS[:, 0],
        "c": np.where(NUMBERS[:, 1] > 0.5, "p", "q").astype(object),
        "g": np.where(LABELS, "f", "m").astype(object),
    }
)
IMAGES = rng.uniform(0, 1, (N, 64))
WORTH = rng.integers(1, 6, (8, 3)).astype(float)


def last_replaced(array, value):
    """Return a neighbour: the last record has other values."""
    other = array.copy()
    other[-1] = value
    return other


def last_row_replaced(**values):
    other = TABLE.copy()
    for name, value in values.items():
        other.loc[N - 1, name] = value
    return other


@dataclass(frozen=True)
class Case:
    """An estimator, and the arguments of its fit for two neighbours."""

    make: object
    data: tuple
    neighbour: tuple
    options: dict


def case(make, data, neighbour, **options):
    return Case(make, data, neighbour, options)


def distance(**options):
    options |= {"groups": [0, 1], "random_state": 0}
    return PrivateSinkhornDistance(1.0, 1e-5, bounds=(0, 1), **options)


OTHER = last_replaced(NUMBERS, [0.0, 1.0])
OTHER_LABELS = last_replaced(LABELS, 1 - LABELS[-1])
UNKNOWN = last_replaced(LABELS, 7)

DISTANCES = {
    f"distance, {mechanism}, {labels} labels, {divergence}": case(
        lambda options=options: distance(**options),
        (NUMBERS, LABELS),
        (OTHER, OTHER_LABELS if labels == "private" else LABELS),
    )
    for mechanism in ("output", "histogram")
    for labels in ("public", "private")
    for divergence in ("ot", "sinkhorn")
    for options in [
        {
            "mechanism": mechanism,
            "labels": labels,
            "min_group_size": 3 if labels == "private" else None,
            "divergence": divergence,
            "reg": 0.1 if divergence == "sinkhorn" else 0.0,
        }
    ]
}
DISTANCES["distance, histogram, a label that is none"] = case(
    lambda: distance(mechanism="histogram", labels="private", min_group_size=3),
    (NUMBERS, LABELS),
    (OTHER, UNKNOWN),
)


SCHEMA = {"a": (0.0, 1.0), "c": {"categories": ["p", "q"], "missing": True}, "g": ["f", "m"]}
DISTANCES["distance, tables"] = case(
    lambda: PrivateSinkhornDistance(schema=SCHEMA, reg=0.1, groups=[0, 1], random_state=0),
    (TABLE, LABELS),
    (last_row_replaced(a=7.0, c=None), LABELS),
)


def repair(method):
    return FairBarycenterPreprocessor(
        sensitive_features="g",
        epsilon=5.0,
        delta=1e-5,
        bounds=(0, 1),
        groups=["f", "m"],
        categorical_features=["c"],
        categories={"c": ["p", "q"]},
        method=method,
        random_state=0,
    )


METHODS = {"histogram": FreeSupport(n_support=4), "conditional": ConditionalRepair()}
REPAIRS = {
    f"repair, {name}, {change}": case(
        lambda method=method: repair(method), (TABLE,), (last_row_replaced(**values),)
    )
    for name, method in METHODS.items()
    for change, values in {
        "undeclared": {"a": 0.001, "c": "neither", "g": "other"},
        "declared": {"a": 7.0, "c": "p", "g": "f" if LABELS[-1] == 0 else "m"},
    }.items()
}

SCORER = LogisticRegression().fit([[0.0], [1.0], [0.2], [0.9]], [0, 1, 0, 1])
LINE = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])


def premium(model, **options):
    fair = FairBarycenterClassifier if model is SCORER else FairBarycenterRegressor
    return fair(
        FrozenEstimator(model),
        sensitive_features=1,
        sensitive_in_estimator=False,
        epsilon=1.0,
        groups=[0, 1],
        random_state=0,
        **options,
    )


ROWS = np.column_stack([NUMBERS[:, 0], LABELS])
TARGETS = (NUMBERS[:, 1] > 0.5).astype(int)
PREMIUMS = {
    "premium, a regressor": case(
        lambda: premium(LINE, bounds=(0, 1)),
        (ROWS, TARGETS),
        (last_replaced(ROWS, [0.5, 1 - LABELS[-1]]), TARGETS),
    ),
    "premium, a group that is none": case(
        lambda: premium(LINE, bounds=(0, 1)),
        (ROWS, TARGETS),
        (last_replaced(ROWS, [0.5, 7.0]), TARGETS),
    ),
    "premium, a classifier": case(
        lambda: premium(SCORER, delta=1e-5),
        (ROWS, TARGETS),
        (last_replaced(ROWS, [0.5, 1 - LABELS[-1]]), TARGETS),
    ),
}


FEW_STEPS = TableSketch(n_iter=20)


def sketch(epsilon=50.0, **options):
    return DPSinkhornGenerator(epsilon, 1e-5, random_state=0, **options)


GENERATORS = {
    "table, a record replaced": case(
        lambda: sketch(5.0, schema=SCHEMA, target="g", model=FEW_STEPS, neighbouring="replace_one"),
        (TABLE,),
        (last_row_replaced(a=0.001, c=None, g="f" if LABELS[-1] == 0 else "m"),),
    ),
    "table, a record removed": case(
        lambda: sketch(5.0, schema=SCHEMA, model=FEW_STEPS, neighbouring="add_remove"),
        (TABLE,),
        (TABLE.iloc[:-1],),
    ),
    "table, found schema, a record removed": case(
        lambda: sketch(5.0, schema="auto", neighbouring="add_remove"), (TABLE,), (TABLE.iloc[:-1],)
    ),
    "vectors, a record replaced": case(
        lambda: sketch(bounds=(0, 1), classes=[0, 1], neighbouring="replace_one"),
        (NUMBERS, LABELS),
        (OTHER, OTHER_LABELS),
    ),
    "vectors, a record removed": case(
        lambda: sketch(bounds=(0, 1), classes=[0, 1], neighbouring="add_remove"),
        (NUMBERS, LABELS),
        (NUMBERS[:-1], LABELS[:-1]),
    ),
    "images, a record removed": case(
        lambda: sketch(bounds=(0, 1), image_shape=(8, 8), neighbouring="add_remove"),
        (IMAGES,),
        (IMAGES[:-1],),
    ),
}

ALLOCATIONS = {
    f"allocation, {mechanism}, {protect}": case(
        lambda mechanism=mechanism, protect=protect: PrivateADMMTransport(
            2.0,
            mechanism=mechanism,
            protect=protect,
            utility_bounds=(1, 5),
            target_bounds=(0, 2),
            source_bounds=(0, 5),
            random_state=0,
        ),
        (WORTH,),
        (last_replaced(WORTH, [5.0, 1.0, 1.0]),),
    )
    for mechanism in ("input", "input_laplace")
    for protect in ("parameter", "node")
}

SEARCHES = {
    "search": case(
        lambda: PrivateSearchCV(
            LogisticRegression(),
            {"C": [0.01, 1.0, 100.0]},
            n_blocks=3,
            cv=2,
            refit=False,
            random_state=0,
        ),
        (NUMBERS, LABELS),
        (OTHER, OTHER_LABELS),
    )
}

CASES = {**DISTANCES, **REPAIRS, **PREMIUMS, **GENERATORS, **ALLOCATIONS, **SEARCHES}


def fitted(case, data):
    """Return an estimator that was fitted, and what was warned of."""
    estimator = case.make().set_params(
        ledger=PrivacyLedger(
            1e6, 0.5, neighbouring=getattr(case.make(), "neighbouring", "replace_one"),
            allow_seeded=True,
        )
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(*data, **case.options)
        if hasattr(estimator, "save"):
            estimator.score(*data)
    return estimator, [str(warning.message) for warning in caught]


def fits_to_neighbours(case, transcript):
    """Return fits to the data, and to the neighbour with the same releases; and their warnings."""
    transcript.record()
    one = fitted(case, case.data)
    transcript.replay()
    other = fitted(case, case.neighbour)
    assert transcript.is_complete
    return one, other


def charges_of(ledger):
    return [(entry.event, entry.label, entry.unit) for entry in ledger.entries()]


@pytest.mark.parametrize("name", CASES)
def test_same_transcript_same_state(name, tmp_path):
    with on_transcript(Transcript()) as transcript:
        (one, warned), (other, warned_again) = fits_to_neighbours(CASES[name], transcript)
    assert transcript.neighbour_differs
    state, state_again = (
        {key: value for key, value in vars(estimator).items() if key != "ledger"}
        for estimator in (one, other)
    )
    assert differences(state, state_again) == []
    assert warned == warned_again
    assert charges_of(one.ledger) == charges_of(other.ledger)
    assert repr(one.privacy_guarantee_) == repr(other.privacy_guarantee_)
    one.ledger = other.ledger = None
    assert repr(one) == repr(other)
    assert differences(pickle.loads(pickle.dumps(one)), pickle.loads(pickle.dumps(other))) == []
    if hasattr(one, "save"):
        for estimator, file in ((one, "one.npz"), (other, "other.npz")):
            estimator.save(tmp_path / file)
        assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other.npz").read_bytes()


def test_exact_sizes_of_groups_are_found():
    """A planted bug: counts of private groups are divided by their exact numbers."""
    case = CASES["distance, histogram, private labels, ot"]
    with on_transcript(Transcript()) as transcript, pytest.MonkeyPatch.context() as patch:
        hooked = VectorRelease.run

        def divided(self, values, source):
            """Use private values once more, after what is on the transcript."""
            return hooked(self, values, source) / np.maximum(values.sum(axis=-1, keepdims=True), 1)

        patch.setattr(VectorRelease, "run", divided)
        (one, _), (other, _) = fits_to_neighbours(case, transcript)
    assert differences(one.histograms_, other.histograms_)


def test_exact_sizes_as_weights_of_predictions_are_found():
    """A planted bug: groups have the weights of their exact sizes."""
    case = CASES["premium, a regressor"]
    with on_transcript(Transcript()) as transcript, pytest.MonkeyPatch.context() as patch:
        sizes, count, weigh = [], _models.private_counts, _models.group_weights

        def counted(*args):
            counts = count(*args)
            sizes[:] = counts.sum(axis=1).tolist()
            return counts

        def weights_of_sizes(weights, _, names):
            return weigh(weights, np.array(sizes or [1.0, 1.0]), names)

        patch.setattr(_models, "private_counts", counted)
        patch.setattr(_models, "group_weights", weights_of_sizes)
        (one, _), (other, _) = fits_to_neighbours(case, transcript)
    assert differences(one.group_weights_, other.group_weights_)


def raw_rows(private, drawn, columns):
    """Return what models are fitted to, with private rows in the place of drawn ones."""
    codes = private[:, :-1].astype(float)
    codes[:, 0] = columns[0].numbers(private[:, 0], 0.5)
    return replace(drawn, codes=codes, groups=replace(drawn.groups, codes=private[:, -1]))


def exact_sizes(private, drawn, columns):
    """Return what models are fitted to, with exact sizes of groups in the place of released."""
    return replace(drawn, groups=replace(drawn.groups, sizes=np.bincount(private[:, -1])))


@pytest.mark.parametrize("planted", [raw_rows, exact_sizes])
def test_a_conditional_repair_that_looks_at_private_rows_again_is_found(planted, monkeypatch):
    """A planted bug: after the release of the sketch, its rows are used once more."""
    seen, read, draw = [], _repair.private_codes, _repair.drawn_rows

    def codes(*args):
        seen[:] = [read(*args)]
        return seen[0]

    def drawn(rows, released, *args):
        columns = released.space.schema.columns
        return planted(seen[0], draw(rows, released, *args), columns)

    monkeypatch.setattr(_repair, "private_codes", codes)
    monkeypatch.setattr(_repair, "drawn_rows", drawn)
    case = CASES["repair, conditional, declared"]
    with on_transcript(Transcript()) as transcript:
        (one, _), (other, _) = fits_to_neighbours(case, transcript)
    assert differences(one._fitted, other._fitted)
