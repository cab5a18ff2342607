"""The generator of records with labels: declared, private, and made to order."""

import traceback
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from skdpot import PrivacyLedger
from skdpot.published import SinkhornGradientGenerator
from tests.oracles.gradient_generators import make_gradient_generator

# Noise for samples of all records needs no search.
FAST = {"epsilon": 5.0, "n_iter": 2, "sampling_rate": 1.0, "batch_size": 6}
STEPS = [{"gradient": name} for name in ("per_record", "images", "per_image", "parameters")]
NAMES = ["-".join(step.values()) for step in STEPS]
CENTERS = {"cat": (0.2, 0.2), "dog": (0.8, 0.7)}


def make(**params):
    return make_gradient_generator(**FAST | {"classes": ["cat", "dog"]} | params)


def make_records(n_per_class=100, seed=0):
    """Return two clusters, far apart, in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([*CENTERS], n_per_class))
    return rng.normal([CENTERS[label] for label in y], 0.04), y


@pytest.fixture(scope="module")
def fitted():
    return make(classes=["dog", "bird", "cat"]).fit(*make_records())


@pytest.mark.experiment
@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_classes_are_learned_apart(step):
    X, y = make_records()
    options = {"batch_size": 30, "learning_rate": 2e-3, "n_iter": 80, "random_state": 0}
    for noise in ({"epsilon": None, "sampling_rate": 0.2}, {"epsilon": 1e4}):
        model = make(**options | step | noise).fit(X, y)
        generated, labels = model.sample(500)
        for label, center in CENTERS.items():
            found = generated[labels == label]
            np.testing.assert_allclose(found.mean(axis=0), center, atol=0.15)
            assert (found.std(axis=0) < 0.12).all()
        assert model.score(X, y) > -0.05 > model.score(X, y[::-1])


KINDS = {
    "numbers": ([7, 3], np.array([3, 7] * 10)),
    "numpy numbers": (np.array([7, 3], dtype=np.int8), [np.int64(3), np.int32(7)] * 10),
    "floats": ([7.0, 3.0], np.array([3, 7] * 10)),
    "a range": (range(9), np.array([3, 7] * 10)),
    "truth values": ([False, True], [True, False] * 10),
    "words": (["b", "a"], np.array(["a", "b"] * 10)),
    "words as objects": (["b", "a"], np.array(["a", "b"] * 10, dtype=object)),
    "both": (["b", 1], [1, "b"] * 10),
    "a column": (["b", "a"], pd.Series(["a", "b"] * 10, index=range(5, 25))),
    "categories": (pd.Index(["b", "a"]), pd.Series(["a", "b"] * 10, dtype="category")),
    "strings": (pd.Series(["b", "a"]), pd.Series(["a", "b"] * 10, dtype="string")),
    "days": (np.array(["2020-01-02", "2020-01-01"], "M8[D]"), pd.date_range("2020", periods=2)),
    "one": (["a"], ["a"] * 20),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_all_kinds(kind):
    classes, y = KINDS[kind]
    y = np.resize(y, 20) if kind == "days" else y
    X = make_records(10)[0]
    model = make(classes=classes, random_state=0).fit(X, y)
    assert list(model.classes_) == list(classes)
    generated, labels = model.sample(4 * len(classes))
    assert generated.shape == (4 * len(classes), 2)
    assert labels.dtype == model.classes_.dtype
    assert Counter(labels.tolist()) == dict.fromkeys(model.classes_.tolist(), 4)
    _, labels = model.sample(y=model.classes_[[0, 0, 0]])
    assert (labels == model.classes_[0]).all()
    assert np.isfinite(model.score(X, y))


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_names_and_types_of_classes_do_not_matter(step):
    X, y = make_records(20)
    number = {"cat": 0, "dog": 1}
    words = make(random_state=0, **step).fit(X, y)
    numbers = make(random_state=0, classes=[0, 1], **step).fit(X, [number[word] for word in y])
    assert words.loss_curve_ == numbers.loss_curve_
    for one, other in zip(words.sample(9), numbers.sample(9), strict=True):
        if one.dtype.kind == "U":
            one = np.array([number[word] for word in one])
        np.testing.assert_array_equal(one, other)


def test_a_class_without_records_is_no_other_case(fitted):
    generated, labels = fitted.sample(y=["bird"] * 5)
    assert generated.shape == (5, 2)
    assert (labels == "bird").all()
    one_class = make().fit([[0.5]] * 5, ["cat"] * 5)
    assert len(one_class.sample(y={"dog": 3})[0]) == 3


@pytest.mark.parametrize("n_samples", [1, 2, 3, 7, 300])
def test_all_classes_are_made_equally_often(fitted, n_samples):
    generated, labels = fitted.sample(n_samples)
    assert generated.shape == (n_samples, 2) and labels.shape == (n_samples,)
    counts = [np.sum(labels == label) for label in fitted.classes_]
    assert sum(counts) == n_samples and max(counts) - min(counts) <= 1
    if n_samples == 300:
        assert labels[:9].tolist() != labels[9:18].tolist()


def test_records_are_made_to_order(fitted):
    wanted = ["cat", "dog", "dog", "bird"]
    for y in (wanted, tuple(wanted), np.array(wanted), pd.Series(wanted, index=[3, 1, 2, 0])):
        generated, labels = fitted.sample(y=y)
        assert labels.tolist() == wanted
        assert generated.shape == (4, 2)
    # How many there are is told once.
    assert len(fitted.sample(99, y=wanted)[1]) == 4
    for y in ({"cat": 2, "dog": 0, "bird": 1}, {"cat": np.int64(2), "bird": np.uint8(1)}):
        generated, labels = fitted.sample(y=y)
        assert labels.tolist() == ["cat", "cat", "bird"]
        assert generated.shape == (3, 2)
    generated, labels = fitted.sample(y={"cat": 0})
    assert generated.shape == (0, 2) and len(labels) == 0


@pytest.mark.parametrize(
    "y, message",
    [
        (["cat", "cow"], "y must ask for labels among .* got a value of type list"),
        ({"cow": 1}, "y must ask for labels among"),
        ([], "y must ask for labels among"),
        ({}, "y must ask for labels among"),
        ([None], "y must ask for labels among"),
        ([["cat"], ["dog"]], "y must ask for labels among"),
        ("cat", "got a text"),
        (3, "1d array"),
        (np.full((2, 2), "cat"), "1d array"),
        ({"cat": -1}, "number of records of each label"),
        ({"cat": 1.5, "dog": 1}, "number of records of each label"),
        ({"cat": "many"}, "number of records of each label"),
        ({"cat": None}, "number of records of each label"),
    ],
    ids=str,
)
def test_orders_are_checked(fitted, y, message):
    with pytest.raises(ValueError, match=message):
        fitted.sample(y=y)


def test_orders_need_classes():
    model = make(classes=None).fit(make_records(10)[0])
    with pytest.raises(ValueError, match="was fitted without classes"):
        model.sample(y=["cat"])


SECRET = "leprosy"
WORDS = np.array(["cat", "dog"] * 5)
BAD_Y = [
    (None, {}, "requires y to be passed, but the target y is None"),
    (
        WORDS,
        {"classes": None},
        r"classes are not declared: give all possible labels.* classes=\[...\]",
    ),
    ([SECRET] * 9, {}, "must have one label for each row"),
    (np.full((10, 2), SECRET), {}, "y should be a 1d array"),
    (SECRET, {}, "fit needs one value for each row"),
    (WORDS, {"classes": []}, "classes must name at least one label"),
    (WORDS, {"classes": ["cat", "dog", "cat"]}, "classes must be a list of different labels"),
    (WORDS, {"classes": [["cat", "dog"]]}, "classes must be a list of different labels"),
    (WORDS, {"classes": {"cat", "dog"}}, "classes must be a list of different labels"),
    (WORDS, {"classes": "cat"}, "The 'classes' parameter"),
]


@pytest.mark.parametrize("y, params, message", BAD_Y)
def test_bad_labels_are_refused_before_the_charge(y, params, message):
    ledger = PrivacyLedger(100.0, 0.5, neighbouring="add_remove")
    X = np.full((10, 2), 0.5)
    with pytest.raises(ValueError, match=message) as caught:
        make(ledger=ledger, **params).fit(X, y)
    assert SECRET not in "".join(traceback.format_exception(caught.value, limit=0))
    assert not ledger.entries()
    if not params:
        model = make().fit(X, WORDS)
        of_score = "y should be a 1d array" if isinstance(y, str) else message
        with pytest.raises(ValueError, match=of_score) as caught:
            model.score(X, y)
        assert SECRET not in "".join(traceback.format_exception(caught.value, limit=0))


def test_warm_start_refuses_other_classes():
    X, y = make_records(10)
    ledger = PrivacyLedger(100.0, 0.5, neighbouring="add_remove")
    model = make(warm_start=True, ledger=ledger).fit(X, y).fit(X, y)
    assert model.n_iter_ == 4
    for classes in (["dog", "cat"], ["cat", "dog", "bird"]):
        with pytest.raises(ValueError, match="classes, .* must be unchanged"):
            model.set_params(classes=classes).fit(X, y)
    with pytest.raises(ValueError, match="classes, .* must be unchanged"):
        model.set_params(classes=None).fit(X)
    assert len(ledger.entries()) == 2
    assert model.classes_.tolist() == ["cat", "dog"]
    model.set_params(warm_start=False).fit(X)
    assert not hasattr(model, "classes_")
    assert model.sample(3).shape == (3, 2)


@pytest.mark.parametrize(
    "classes", [["b", "a"], np.array([3, 1]), range(4), ["b", 1, None], pd.Series(["a", "b"])]
)
def test_files_hold_classes(classes, tmp_path):
    X, labels = make_records(10)[0], list(classes)
    model = make(classes=classes).fit(X, np.resize(np.array(labels, dtype=object), 20))
    model.save(tmp_path / "generator")
    loaded = SinkhornGradientGenerator.load(tmp_path / "generator")
    assert loaded.classes_.tolist() == model.classes_.tolist() == labels
    one, other = (it.set_params(random_state=0).sample(9) for it in (model, loaded))
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
    assert set(loaded.sample(y=labels[:1] * 2)[1]) == set(labels[:1])
