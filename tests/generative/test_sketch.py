"""The generator that sketches vectors and images, as a user of scikit-learn meets it."""

import copy
import pickle
import re
import subprocess
import sys
from itertools import chain, repeat

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import DPSinkhornGenerator, PrivacyLedger
from tests.oracles.refusals import SECRET, make_ledger, refuse_without_telling
from tests.oracles.sketch_generators import make_sketch_generator

IMAGES = {"image_shape": (6, 5)}


def make(**params):
    return make_sketch_generator(**{"epsilon": 5.0} | params)


def make_records(n_records=60, n_features=3, seed=0):
    return np.random.default_rng(seed).random((n_records, n_features))


def make_labelled(n_records=300, seed=0):
    """Return records of two classes far apart, the second three times as frequent."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n_records) % 4, "b", "a")
    centres = np.where(y == "a", 0.25, 0.75)[:, None] * [1.0, 0.6]
    return rng.normal(centres, 0.05), y


def double(X):
    return 2 * X


def halve(X):
    return X / 2


@pytest.fixture(scope="module")
def labelled():
    with pytest.warns(UserWarning, match=r"noise hides all records of \['never'\]"):
        return make(classes=["a", "b", "never"], random_state=0).fit(*make_labelled())


def reload(fitted, tmp_path, **options):
    path = tmp_path / "generator"
    fitted.save(path)
    return DPSinkhornGenerator.load(path, **options)


def samples_of(fitted, n_samples=20):
    """Return what a generator makes with a seed: records, and labels if there are any."""
    sampled = copy.copy(fitted).set_params(random_state=0).sample(n_samples)
    return sampled if isinstance(sampled, tuple) else (sampled,)


def assert_same_samples(one, other):
    for x, y in zip(samples_of(one), samples_of(other), strict=True):
        np.testing.assert_array_equal(x, y)


# What is generated
# -----------------


@pytest.mark.experiment
def test_digits_are_learned():
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))
    train, test = rows[:1200], rows[1200:]
    fitted = make(
        epsilon=8.0, bounds=(0, 16), classes=range(10), image_shape=(8, 8), random_state=0
    ).fit(X[train], y[train])
    X_new, y_new = fitted.sample(2000)
    classifier = LogisticRegression(max_iter=300).fit(X_new / 16, y_new)
    assert classifier.score(X[test] / 16, y[test]) >= 0.9


@pytest.mark.parametrize("epsilon", [None, 100.0])
def test_what_is_sampled_is_near_the_records(epsilon):
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([2.0, 70.0], [[0.04, 0.5], [0.5, 16.0]], 2000)
    bounds = ([0, 0], [10, 100])
    for params in ({}, {"n_clusters": 1}):
        sampled = make(epsilon=epsilon, bounds=bounds, random_state=0, **params).fit(X).sample(4000)
        np.testing.assert_allclose(sampled.mean(axis=0), [2.0, 70.0], rtol=0.02)
        ratios = np.cov(sampled.T) / [[0.04, 0.5], [0.5, 16.0]]
        assert ratios.min() > 0.8 and ratios.max() < 1.2
        assert (sampled >= bounds[0]).all() and (sampled <= bounds[1]).all()


def test_clusters_are_found_where_they_are_asked_for():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(centre, 0.02, (500, 2)) for centre in (0.2, 0.8)])
    between = []
    for n_clusters in (1, 2):
        fitted = make(epsilon=50.0, n_clusters=n_clusters, random_state=0).fit(X)
        between.append((abs(fitted.sample(1000) - 0.5) < 0.2).mean())
    assert between[0] > 0.3 and between[1] < 0.1


def test_classes_have_the_shares_of_the_records(labelled):
    X, y = labelled.sample(4000)
    shares = [(y == label).mean() for label in ("a", "b")]
    np.testing.assert_allclose(shares, [0.25, 0.75], atol=0.07)
    for label, centre in {"a": 0.25, "b": 0.75}.items():
        np.testing.assert_allclose(X[y == label].mean(axis=0), [centre, 0.6 * centre], atol=0.1)


def test_records_are_made_to_order(labelled):
    X, y = labelled.sample(y={"b": 3, "never": 2, "a": 0})
    assert X.shape == (5, 2) and y.tolist() == ["b"] * 3 + ["never"] * 2
    for asked in (["b", "a", "b"], np.array(["b", "a", "b"]), pd.Series(["b", "a", "b"])):
        assert labelled.sample(3, y=asked)[1].tolist() == ["b", "a", "b"]
    assert labelled.sample(y={"a": 0})[0].shape == (0, 2)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_samples": 0}, "n_samples must be an integer of at least 1"),
        ({"n_samples": 2.0}, "n_samples must be an integer of at least 1"),
        ({"y": ["c"]}, "y must ask for labels among"),
        ({"y": {}}, "y must ask for labels among"),
        ({"y": {"a": -1}}, "y must give the number of records of each label"),
        ({"given": {"x0": 1}}, "given is for tables"),
    ],
    ids=str,
)
def test_orders_are_checked(labelled, options, message):
    with pytest.raises(ValueError, match=message):
        labelled.sample(**options)


def test_orders_of_labels_need_classes():
    with pytest.raises(ValueError, match="fitted without classes"):
        make().fit(make_records()).sample(y=["a"])


def test_images_in_colour_do():
    X = make_records(4, 16 * 16 * 3)
    fitted = make(image_shape=(16, 16, 3), n_coefficients=5).fit(X)
    assert fitted.sample(3).shape == (3, 16 * 16 * 3)


def test_values_beyond_the_bounds_are_moved_to_them():
    X = 4 * make_records() - 2
    one, other = (make(random_state=0).fit(records) for records in (X, np.clip(X, 0, 1)))
    assert_same_samples(one, other)


# Parameters
# ----------


@pytest.mark.parametrize(
    "kind", [list, pd.DataFrame, np.float32, np.asfortranarray], ids=lambda kind: kind.__name__
)
def test_records_of_any_type(kind):
    X = np.float32(make_records()).astype(np.float64)
    records = X.tolist() if kind is list else kind(X)
    assert_same_samples(make(random_state=0).fit(records), make(random_state=0).fit(X))


def test_all_ways_of_saying_the_same():
    X = make_records(40, 30)
    default = make(random_state=0, **IMAGES).fit(X)
    for same in (
        {"encoder": "dct"},
        {"image_shape": [6, 5, 1]},
        {"image_shape": np.array([6, 5])},
        {"n_coefficients": 5},
        {"augment": None},
        {"verbose": 0},
    ):
        assert_same_samples(make(random_state=0, **IMAGES | same).fit(X), default)


def test_moves_change_what_is_sampled():
    X = np.zeros((200, 30))
    X[:, 12] = 1.0
    samples = [
        make(epsilon=None, augment=augment, random_state=0, **IMAGES).fit(X).sample(100)
        for augment in (
            None,
            {"shift": 0.3},
            {"rotation": np.float32(0.5), "scale": 1, "bend": 0.2},
        )
    ]
    spread = [sample.std(axis=0).max() for sample in samples]
    assert spread[0] < 0.05 and min(spread[1:]) > 0.1


def test_without_a_budget_there_is_no_noise():
    X = make_records(500)
    fitted = make(epsilon=None).fit(X)
    assert fitted.noise_multiplier_ == 0 and fitted.privacy_guarantee_ is None
    again = make(epsilon=None, n_clusters=1).fit(X)
    np.testing.assert_allclose(again.sample(5000).mean(axis=0), X.mean(axis=0), atol=0.03)


def test_fitted_attributes(labelled):
    assert labelled.classes_.tolist() == ["a", "b", "never"]
    assert labelled.n_features_in_ == 2
    assert labelled.privacy_guarantee_ is None
    for name in ("n_iter_", "loss_curve_", "feature_names_in_"):
        assert not hasattr(labelled, name)
    fitted = make(epsilon=1.0).fit(pd.DataFrame(make_records(), columns=["x", "y", "z"]))
    assert fitted.feature_names_in_.tolist() == ["x", "y", "z"]
    assert fitted.noise_multiplier_ == pytest.approx(3.73, abs=0.01)
    promised = fitted.privacy_guarantee_
    assert (promised.epsilon, promised.delta, promised.unit) == (1.0, 1e-5, "record")
    # Another fit has a guarantee of its own.
    assert fitted.fit(make_records()).privacy_guarantee_.epsilon == 1.0
    assert not hasattr(fitted, "feature_names_in_")


def test_the_front_door_is_read_in_a_few_minutes():
    assert len(DPSinkhornGenerator.__doc__.split()) < 900
    assert len(DPSinkhornGenerator().get_params(deep=False)) <= 20


@pytest.mark.parametrize("verbose, is_terminal, seconds, is_shown", [
    (None, True, 3.1, True), (None, True, 0.5, False), (None, False, 3.1, False),
    (1, False, 0.5, True), (0, True, 3.1, False),
])  # fmt: skip
def test_long_fits_show_progress_on_a_terminal(
    verbose, is_terminal, seconds, is_shown, capsys, monkeypatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    # The clock of bars is late by so much after the first look.
    monkeypatch.setattr("tqdm.std.time", chain([0.0], repeat(seconds)).__next__)
    make(verbose=verbose).fit(make_records())
    shown = capsys.readouterr().err
    assert ("DPSinkhornGenerator" in shown and "releases" in shown) == is_shown


# What is refused
# ---------------


TEXT = "The '{}' parameter of .* must be"
BAD_PARAMETERS = [
    ({"epsilon": 1e-3}, "epsilon is too small for a sketch"),
    ({"bounds": (1, 0)}, "bounds must be a pair"),
    ({"bounds": (0, [1, 1])}, "one number for each of the 4 features"),
    ({"target": "a"}, "target is declared, but VectorSketch is for"),
    ({"encoder": "fourier"}, "encoder must be one of"),
    ({"encoder": None}, "encoder must be one of"),
    ({"encoder": np.eye(4)}, "encoder must be one of"),
    ({"encoder": "dct"}, 'encoder="dct" is for images, and needs an image_shape'),
    ({"encoder": "pose"}, 'encoder="pose" is for images, and needs an image_shape'),
    ({"encoder": "pose", "image_shape": (1, 2, 2)}, "images of one channel, got 2"),
    ({"image_shape": (4,)}, "image_shape must be .* with a product of 4"),
    ({"image_shape": (2, 3)}, "image_shape must be .* with a product of 4"),
    ({"image_shape": ("2", "2")}, "image_shape must be .* with a product of 4"),
    ({"n_coefficients": 2}, "needs an image_shape"),
    ({"n_coefficients": 3, "image_shape": (2, 2)}, "from 1 to 2, for images of 2 x 2 pixels"),
    ({"n_coefficients": 0, "image_shape": (2, 2)}, TEXT.format("n_coefficients")),
    ({"n_clusters": 0}, TEXT.format("n_clusters")),
    ({"n_clusters": 2.0}, TEXT.format("n_clusters")),
    ({"augment": {"shift": 1}}, "ImageSketch is for images, and needs an image_shape"),
    ({"augment": {"moves": 1}, "image_shape": (2, 2)}, r"by the names \['bend', 'rotation'"),
    ({"augment": {"shift": -1}, "image_shape": (2, 2)}, "numbers from 0 to 4"),
    ({"augment": {"shift": np.nan}, "image_shape": (2, 2)}, "numbers from 0 to 4"),
    ({"augment": "much", "image_shape": (2, 2)}, TEXT.format("augment")),
    ({"classes": ["a"]}, "give the label of each record"),
]


@pytest.mark.parametrize(
    "params, message",
    BAD_PARAMETERS,
    ids=[f"{i}-{message[:30]}" for i, (_, message) in enumerate(BAD_PARAMETERS)],
)
def test_bad_parameters_are_refused_before_the_charge(params, message):
    ledger = make_ledger()
    estimator = make(ledger=ledger, **params)
    refuse_without_telling(lambda: estimator.fit(np.full((5, 4), SECRET)), message)
    assert not ledger.entries()
    with pytest.raises(NotFittedError):
        estimator.sample()


@pytest.mark.parametrize(
    "X, y, message",
    [
        ([[SECRET, 0]], ["a", "b"], "one label for each row"),
        ([[SECRET, 0]], None, "give the label of each record"),
    ],
    ids=str,
)
def test_bad_records_are_refused_before_the_charge(X, y, message):
    ledger = make_ledger()
    estimator = make(ledger=ledger, classes=["a", "b"])
    refuse_without_telling(lambda: estimator.fit(X, y), message)
    assert not ledger.entries()


@pytest.mark.parametrize("params", [{}, {"n_clusters": 2}, {"neighbouring": "replace_one"}])
def test_the_smallest_epsilon_is_named(params):
    X, ledger = make_records(), make_ledger()
    if "neighbouring" in params:
        ledger = make_ledger(**params)
    with pytest.raises(ValueError, match="epsilon is too small") as caught:
        make(ledger=ledger, **params | {"epsilon": 1e-9}).fit(X)
    named = float(re.search(r"is ([0-9.e-]+)\.$", str(caught.value))[1])
    with pytest.raises(ValueError, match="epsilon is too small"):
        make(ledger=ledger, **params | {"epsilon": 0.93 * named}).fit(X)
    assert not ledger.entries()
    assert make(ledger=ledger, **params | {"epsilon": named}).fit(X).sample(3).shape == (3, 3)


# The budget
# ----------


# With the rest of scikit-learn
# -----------------------------


def test_what_is_nearer_scores_higher(labelled):
    X, y = make_labelled(seed=1)
    own = labelled.score(X, y)
    assert own > labelled.score(X, np.random.default_rng(0).permutation(y)) + 0.1
    assert own > labelled.score(1 - X, y) + 0.1
    assert own > labelled.score(make_records(300, 2), y) + 0.1
    with pytest.raises(ValueError, match="requires y"):
        labelled.score(X)
    with pytest.raises(ValueError, match="2 features"):
        labelled.score(make_records(), y[:60])


def test_every_fit_of_a_search_is_charged():
    ledger = make_ledger(allow_seeded=True)
    search = GridSearchCV(
        make(ledger=ledger, random_state=0, classes=["a", "b"], n_clusters=None),
        {"model__n_clusters": [1, 2]},
        cv=2,
    ).fit(*make_labelled(80))
    assert len(ledger.entries()) == 5
    assert search.best_estimator_.ledger is ledger
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(search.best_estimator_.sample(3)[0]) == 3


def test_pipeline():
    X = make_records()
    pipeline = make_pipeline(FunctionTransformer(halve, double), make(random_state=0)).fit(X)
    assert_same_samples(pipeline[-1], make(random_state=0).fit(X / 2))
    assert pipeline.score(X) == pytest.approx(pipeline[-1].score(X / 2))
    sampled = pipeline[:-1].inverse_transform(pipeline[-1].sample(5))
    assert sampled.shape == (5, 3)


def test_copies(labelled):
    X, y = make_labelled()
    for copied in (pickle.loads(pickle.dumps(labelled)), copy.deepcopy(labelled)):
        assert_same_samples(copied, labelled)
        assert copied.score(X, y) == pytest.approx(labelled.score(X, y))
    cloned = clone(labelled)
    assert cloned.get_params() == labelled.get_params()
    with pytest.raises(NotFittedError):
        cloned.sample()
    assert_same_samples(cloned.fit(X, y), labelled)


def test_a_network_may_learn_from_the_sketch(tmp_path):
    pytest.importorskip("torch")
    X, y = make_labelled()
    ledger = make_ledger()
    options = {"n_iter": 3, "sampling_rate": 0.002, "batch_size": 5}
    fitted = make(epsilon=50.0, classes=["a", "b"], network="mlp", ledger=ledger, **options)
    fitted.fit(X, y)
    assert fitted.n_iter_ == 3 and len(fitted.loss_curve_) == 3
    assert len(ledger.entries()) == 1
    assert fitted.privacy_guarantee_.epsilon == 50.0
    assert fitted.noise_multiplier_ > 0
    X_new, y_new = fitted.sample(2000)
    assert X_new.shape == (2000, 2)
    assert (y_new == "a").mean() == pytest.approx(0.25, abs=0.1)
    loaded = reload(fitted, tmp_path)
    assert loaded.network.network == "mlp" and loaded.network.n_iter == 3
    assert_same_samples(loaded, fitted)
    assert not hasattr(fitted.set_params(network=None).fit(X, y), "loss_curve_")


# Files
# -----


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"epsilon": None, "n_clusters": np.int64(3)},
        {"bounds": (0, [1, 2.0] * 15), "classes": ["a", "b"]},
        {"classes": np.arange(2), "augment": {"shift": np.float32(0.5)}, **IMAGES},
        {"classes": [False, True], "encoder": "pose", "image_shape": np.array([6, 5])},
        {"neighbouring": "replace_one", "delta": np.float64(1e-6)},
    ],
    ids=str,
)
def test_files_hold_the_generator(params, tmp_path):
    frame = pd.DataFrame(make_records(40, 30)).add_prefix("x")
    y = None if "classes" not in params else np.array(params["classes"])[np.arange(40) % 2]
    fitted = make(**params).fit(frame, y)
    loaded = reload(fitted, tmp_path)
    assert_same_samples(loaded, fitted)
    for estimator in (fitted, loaded):
        estimator.set_params(random_state=0)
    assert loaded.score(frame, y) == pytest.approx(fitted.score(frame, y))
    for name in ("noise_multiplier_", "privacy_guarantee_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    assert loaded.feature_names_in_.tolist() == frame.columns.tolist()
    assert loaded.ledger is None
    assert_same_samples(reload(loaded, tmp_path), fitted)
    # What was loaded can be fitted again.
    assert_same_samples(loaded.fit(frame, y), fitted.fit(frame, y))


@pytest.mark.experiment
def test_files_need_no_pytorch(labelled, tmp_path):
    code = """
import sys
from itertools import chain, repeat
from skdpot import DPSinkhornGenerator
X, y = DPSinkhornGenerator.load(sys.argv[1]).sample(7)
fitted = DPSinkhornGenerator(bounds=(0, 1)).fit(X)
fitted.save(sys.argv[1])
print(X.shape, len(y), fitted.sample(3).shape, {"torch", "polars"} & set(sys.modules))
"""
    labelled.save(tmp_path / "generator")
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "generator"], capture_output=True, text=True
    )
    assert done.stdout == "(7, 2) 7 (3, 2) set()\n", done.stderr


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_a_sketch_that_was_paid_for_outlives_its_network(monkeypatch, failure):
    """What a network learns costs nothing; that it fails must not cost the release."""

    def fails(*args):
        raise failure

    monkeypatch.setattr("skdpot.generative._generator.learn_from_sketch", fails)
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
    generator = DPSinkhornGenerator(bounds=(0, 1), network="mlp", ledger=ledger)
    with pytest.raises(failure):
        generator.fit(np.random.default_rng(0).random((2000, 2)))
    assert generator.sample(5).shape == (5, 2)
    assert generator.privacy_guarantee_.epsilon == 1.0 and len(ledger.entries()) == 1
    assert not hasattr(generator, "loss_curve_")
