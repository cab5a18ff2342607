"""The published training of a generator: what it learns, charges, refuses and keeps.

How far a record moves a step, and attacks on it, are in tests/generative and tests/privacy.
"""

import copy
import math
import pickle
import re
import struct
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_html_repr

from skdpot.privacy import NoGuaranteeWarning
from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.events import (
    CentredGaussianDpEvent,
    GaussianDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from skdpot.privacy.noise import GaussianMechanism
from skdpot.privacy.sensitivity import clipped_gradient_sensitivity, clipped_sum_sensitivity
from skdpot.published import SinkhornGradientGenerator, published_epsilon, sound_epsilon
from tests.oracles.gradient_generators import make_gradient_generator, nested
from tests.oracles.refusals import SECRET, make_ledger, refuse_without_telling
from tests.quick import first_quick

DELTA = 1e-5
# Noise for samples of all records needs no search.
FAST = {"epsilon": 5.0, "n_iter": 3, "sampling_rate": 1.0, "batch_size": 6}
PAPER = {"gradient": "per_image", "accounting": "paper"}
CENTERS = {"cat": (0.2, 0.2), "dog": (0.8, 0.7)}
by_gradient = pytest.mark.parametrize("gradient", first_quick(["per_record", "per_image"]))
by_relation = pytest.mark.parametrize("neighbouring", ["add_remove", "replace_one"])


def make(**params):
    return make_gradient_generator(**FAST | params)


def make_records(n_records=40, n_features=2, seed=0):
    return np.random.default_rng(seed).random((n_records, n_features))


def make_labelled(n_per_class=100, seed=0):
    """Return two clusters, far apart, in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([*CENTERS], n_per_class))
    return rng.normal([CENTERS[label] for label in y], 0.04), y


def assert_same_model(one, other):
    assert one.loss_curve_ == other.loss_curve_
    samples = [copy.copy(model).set_params(random_state=0).sample(9) for model in (one, other)]
    np.testing.assert_array_equal(*samples)


def reload(fitted, tmp_path, **options):
    path = tmp_path / "generator"
    fitted.save(path)
    return SinkhornGradientGenerator.load(path, **options)


# What is generated
# -----------------


@by_gradient
@pytest.mark.parametrize(
    "noise",
    [
        pytest.param({"epsilon": None, "sampling_rate": 0.2}, marks=pytest.mark.experiment),
        {"epsilon": 1e4},
    ],
    ids=["public", "private"],
)
def test_classes_are_learned_apart(gradient, noise):
    X, y = make_labelled()
    options = {"batch_size": 30, "learning_rate": 2e-3, "n_iter": 80, "random_state": 0}
    model = make(classes=["cat", "dog"], gradient=gradient, **options | noise).fit(X, y)
    generated, labels = model.sample(500)
    for label, center in CENTERS.items():
        found = generated[labels == label]
        np.testing.assert_allclose(found.mean(axis=0), center, atol=0.15)
        assert (found.std(axis=0) < 0.12).all()
    assert model.score(X, y) > -0.05 > model.score(X, y[::-1])


def test_shapes_and_ranges():
    low, high = [-2.0, -3.0, -4.0], 3.0
    fitted = make(bounds=(low, high)).fit(10 * make_records(20, 3) - 5)
    for n_samples in (1, 7, 1500):
        generated = fitted.sample(n_samples)
        assert generated.shape == (n_samples, 3) and generated.dtype == np.float64
        assert (low <= generated).all() and (generated <= high).all()
    assert fitted.sample().shape == (1, 3)
    assert len(np.unique(generated, axis=0)) > 1400


class Constant(torch.nn.Module):
    """Makes what is far beyond the bounds."""

    def __init__(self, n_features):
        super().__init__()
        self.numbers = torch.nn.Parameter(torch.full((n_features,), 100.0))

    def forward(self, inputs):
        """Return the same numbers for every row."""
        return self.numbers.expand(len(inputs), -1)


def test_bounds_are_never_left_by_rounding():
    far = make(bounds=(0.1, 0.3), network=lambda i, o: Constant(o), random_state=0)
    generated = far.fit(np.full((5, 2), 0.2)).sample(50)
    assert generated.max() == 0.3


@pytest.mark.parametrize("kind", [np.int8, np.ndarray.tolist, pd.DataFrame])
def test_records_of_any_type_and_beyond_the_bounds(kind):
    X = (3 * make_records() - 1).round()
    models = [make(random_state=0).fit(given) for given in (X.clip(0, 1), kind(X))]
    assert_same_model(*models)


@pytest.mark.parametrize("network", ["mlp", "dcgan"])
def test_images(network):
    X = make_records(6, 4 * 6)
    fitted = make(network=network, image_shape=(4, 6), n_iter=1, batch_size=2).fit(X)
    before = pickle.dumps(fitted)
    assert fitted.sample(3).shape == (3, 24)
    assert pickle.dumps(fitted) == before


def test_a_module_of_the_user_is_copied(tmp_path):
    X, module = make_records(), torch.nn.Linear(2, 2)
    before = copy.deepcopy(module.state_dict())
    fitted = make(network=module, learning_rate=0.1).fit(X)
    for name, values in module.state_dict().items():
        assert torch.equal(values, before[name])
    assert_same_model(fitted, reload(fitted, tmp_path, network=torch.nn.Linear))
    for network, message in [
        (None, "pass it again, as network="),
        ("mlp", "weights of another network"),
        (torch.nn.Linear(3, 2), "size mismatch for body.weight"),
    ]:
        with pytest.raises(ValueError, match=message):
            SinkhornGradientGenerator.load(tmp_path / "generator", network=network)


def test_no_number_of_records_is_refused():
    """Doubles do not add up the terms of so many exactly, with this weight."""
    X = np.broadcast_to(0.5, (80_660, 1))
    assert make(l1_weight=100.0, n_iter=1, batch_size=2).fit(X).n_iter_ == 1


# Labels
# ------


@pytest.mark.parametrize(
    "classes, y",
    [
        (range(9), np.array([3, 7] * 10)),
        ([False, True], [True, False] * 10),
        (["b", 1, None], [1, "b"] * 10),
        (pd.Index(["b", "a"]), pd.Series(["a", "b"] * 10, dtype="category", index=range(5, 25))),
        (np.array(["2020-01-02", "2020-01-01"], "M8[D]"), pd.DatetimeIndex(["2020-01-01"] * 20)),
        (["a"], ["a"] * 20),
    ],
    ids=["a range", "truth values", "mixed", "categories", "days", "one"],
)
def test_labels_of_all_kinds(classes, y, tmp_path):
    X = make_records(20)
    model = make(classes=classes, random_state=0).fit(X, y)
    assert list(model.classes_) == list(classes)
    assert np.isfinite(model.score(X, y))
    loaded = model if isinstance(classes, np.ndarray) else reload(model, tmp_path)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    generated, labels = loaded.set_params(random_state=0).sample(4 * len(classes))
    assert generated.shape == (4 * len(classes), 2)
    # All classes are generated equally often, those without records, too.
    assert [list(labels).count(label) for label in model.classes_] == [4] * len(classes)


@by_gradient
def test_names_of_classes_do_not_matter(gradient):
    X, y = make_labelled(20)
    words, numbers = (
        make(random_state=0, classes=classes, gradient=gradient).fit(X, of_records)
        for classes, of_records in ((["cat", "dog"], y), ([0, 1], (y == "dog").astype(int)))
    )
    assert words.loss_curve_ == numbers.loss_curve_
    np.testing.assert_array_equal(words.sample(9)[0], numbers.sample(9)[0])


WORDS = np.array(["cat", "dog"] * 5)


@pytest.mark.parametrize(
    "y, params, message",
    [
        (None, {}, "requires y to be passed, but the target y is None"),
        (WORDS, {"classes": None}, r"classes are not declared: .* classes=\[...\]"),
        ([str(SECRET)] * 9, {}, "must have one label for each row"),
        (np.full((10, 2), SECRET), {}, "y should be a 1d array"),
        (WORDS, {"classes": []}, "classes must name at least one label"),
        (WORDS, {"classes": ["cat", "dog", "cat"]}, "classes must be a list of different labels"),
    ],
)
def test_bad_labels_are_refused_before_the_charge(y, params, message):
    ledger, X = make_ledger(), np.full((10, 2), SECRET)
    options = {"classes": ["cat", "dog"]} | params
    refuse_without_telling(lambda: make(ledger=ledger, **options).fit(X, y), message)
    assert not ledger.entries()


# Seeds, and what is kept
# -----------------------


@by_gradient
def test_a_seed_is_one_model(gradient):
    X = make_records()
    state = np.random.get_state()[1].copy(), torch.get_rng_state()
    first, second, third, unseeded, another = (
        make(random_state=seed, gradient=gradient).fit(X) for seed in (3, 3, 4, None, None)
    )
    assert_same_model(first, second)
    curves = {tuple(fitted.loss_curve_) for fitted in (first, third, unseeded, another)}
    assert len(curves) == 4
    np.testing.assert_array_equal(np.random.get_state()[1], state[0])
    assert torch.equal(torch.get_rng_state(), state[1])
    assert not np.array_equal(unseeded.sample(5), unseeded.sample(5))


@pytest.mark.parametrize("other", [{"verbose": 2}, {"secure_noise": True}, {"device": "cpu"}])
def test_what_does_not_change_the_model(other):
    X = make_records()
    assert_same_model(make(random_state=0).fit(X), make(random_state=0, **other).fit(X))


def numbers_in(thing, seen):
    """Yield all arrays of numbers that an object holds, however deep."""
    if id(thing) in seen or isinstance(thing, str | bytes | type(None) | type):
        return
    seen[id(thing)] = thing
    if isinstance(thing, torch.Tensor):
        thing = thing.detach().cpu().numpy()
    if isinstance(thing, np.ndarray | np.number | int | float):
        array = np.asarray(thing)
        if array.dtype != object:
            yield array.astype(np.float64)
            return
        thing = array.tolist()
    if isinstance(thing, dict):
        thing = [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | set):
        for part in thing:
            yield from numbers_in(part, seen)
    elif hasattr(thing, "__dict__"):
        yield from numbers_in(vars(thing), seen)


@by_gradient
@pytest.mark.parametrize("epsilon", [5.0, None])
def test_nothing_of_the_records_is_kept(gradient, epsilon, tmp_path):
    X = make_records()
    X[7] = SECRET
    fitted = make(epsilon=epsilon, random_state=0, gradient=gradient).fit(X)
    fitted.score(X)
    fitted.save(tmp_path / "generator")
    values = np.concatenate([X.ravel(), 2 * X.ravel() - 1])
    kept = np.concatenate([array.ravel() for array in numbers_in(fitted, {})])
    assert len(kept) > 1000
    assert not np.isin(kept, values).any()
    secrets = np.float32([SECRET, 2 * SECRET - 1])
    assert not np.isin(kept.astype(np.float32), secrets).any()
    files = pickle.dumps(fitted), (tmp_path / "generator").read_bytes()
    # Eight bytes of each number, since four of them may be found anywhere by chance.
    forms = [struct.pack(code, value) for value in values for code in ("<d", ">d")]
    assert not any(form in file for form in forms for file in files)
    for text in (repr(fitted), estimator_html_repr(fitted), *map(repr, files)):
        assert str(SECRET)[:8] not in text


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"epsilon": None, "gradient": "per_image", "optimizer": "sgd", "verbose": 1},
        {"bounds": (pd.Series([0, -1]), pd.Series([1, 2])), "latent_dim": np.int64(3)},
        {"network": "dcgan", "image_shape": np.array([1, 2]), "device": torch.device("cpu")},
    ],
    ids=str,
)
def test_files_hold_the_generator(params, tmp_path):
    frame = pd.DataFrame(make_records(), columns=["age", "height"])
    fitted = make(**params).fit(frame)
    # What is set after the fit is not that of the fitted generator.
    fitted.set_params(bounds=(-7, 7), network__network="mlp", image_shape=None, classes=["a"])
    loaded = reload(fitted, tmp_path)
    assert_same_model(loaded, fitted)
    fitted.set_params(**nested(**{"bounds": (0, 1), "classes": None} | params))
    for estimator in (fitted, loaded):
        estimator.set_params(random_state=0)
    assert loaded.score(frame) == pytest.approx(fitted.score(frame))
    for name in ("n_iter_", "noise_multiplier_", "privacy_guarantee_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    assert loaded.feature_names_in_.tolist() == ["age", "height"]
    assert loaded.get_params()["network__n_iter"] == 3
    assert loaded.ledger is None and loaded.network.device == "auto"
    assert_same_model(reload(loaded, tmp_path), fitted)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "generator"
    make().fit(make_records()).save(path)
    whole = path.read_bytes()
    weights = whole.index(b"NUMPY", whole.index(b"weights"))
    for data in (
        whole[:-1],
        b"",
        whole.replace(b"body", b"BODY", 1),
        whole[: weights + 300] + b"\xff\x00\xff" + whole[weights + 303 :],
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError):
            SinkhornGradientGenerator.load(path)
    with pytest.raises(FileNotFoundError):
        SinkhornGradientGenerator.load(tmp_path / "nothing")


# What is charged
# ---------------


@by_gradient
@by_relation
@pytest.mark.parametrize("rate", [1.0, pytest.param(0.3, marks=pytest.mark.experiment)])
def test_a_ledger_gets_one_entry_with_the_event_of_the_training(gradient, neighbouring, rate):
    ledger = make_ledger(neighbouring=neighbouring)
    options = {"noise_multiplier": 20.0, "n_iter": 4, "sampling_rate": rate}
    fitted = make(ledger=ledger, gradient=gradient, **options).fit(make_records())
    (entry,) = ledger.entries()
    step = (CentredGaussianDpEvent if gradient == "per_record" else GaussianDpEvent)(20.0)
    step = step if rate == 1 else PoissonSampledDpEvent(rate, step)
    assert entry.event == PlannedDpEvent(SelfComposedDpEvent(step, 4), DELTA)
    assert entry.unit == "record" and "SinkhornGradientGenerator, 4 steps" in entry.label
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 4
    assert fitted.noise_multiplier_ == 20.0
    epsilon, delta = ledger.spent()
    price = epsilon_of(
        20.0, DELTA, steps=4, sampling_rate=rate, neighbouring=neighbouring,
        centred=gradient == "per_record",
    )  # fmt: skip
    assert epsilon == pytest.approx(price, rel=1e-6) and delta == DELTA
    guarantee = fitted.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (5.0, DELTA)
    assert (guarantee.neighbouring, guarantee.unit) == (neighbouring, "record")
    fitted.sample(100)
    fitted.score(make_records())
    assert len(ledger.entries()) == 1


@by_gradient
@by_relation
@pytest.mark.parametrize("rate", [1.0, pytest.param(0.05, marks=pytest.mark.experiment)])
def test_the_budget_is_spent_and_not_exceeded(gradient, neighbouring, rate):
    """By as little noise as the steps need, or as many steps as a given noise allows."""
    options = {"epsilon": 2.0, "gradient": gradient, "neighbouring": neighbouring}
    options |= {"sampling_rate": rate, "batch_size": 1, "network": torch.nn.Linear}
    X = make_records(3)

    def price(fitted, n_steps):
        return epsilon_of(
            fitted.noise_multiplier_, DELTA, steps=n_steps, sampling_rate=rate,
            neighbouring=neighbouring, centred=gradient == "per_record",
        )  # fmt: skip

    least = make(**options, n_iter=7).fit(X)
    assert least.n_iter_ == 7 and 0.998 * 2.0 <= price(least, 7) <= 2.0
    most = make(**options, n_iter=3000, noise_multiplier=10.0 if rate == 1 else 1.5).fit(X)
    assert 1 < most.n_iter_ < 3000
    assert price(most, most.n_iter_) <= 2.0 < price(most, most.n_iter_ + 1)


@by_relation
def test_the_smallest_epsilon_of_the_error_is_enough_and_hardly_less_is(neighbouring):
    X, options = make_records(), {"noise_multiplier": 2.0, "neighbouring": neighbouring}
    with pytest.raises(ValueError, match="does not allow a single step") as error:
        make(**options, epsilon=0.01).fit(X)
    named = float(re.search(r"the smallest epsilon that does is (\S+?)\. ", str(error.value))[1])
    assert make(**options, epsilon=named).fit(X).n_iter_ >= 1
    with pytest.raises(ValueError, match="does not allow a single step"):
        make(**options, epsilon=0.998 * named).fit(X)


@by_gradient
@by_relation
def test_noise_has_the_scale_of_what_a_record_changes(gradient, neighbouring, monkeypatch):
    """And rounding to its grid is part of what a record changes."""
    made, from_multiplier = [], GaussianMechanism.from_noise_multiplier

    def keep(*args, **options):
        made.append(from_multiplier(*args, **options))
        return made[-1]

    monkeypatch.setattr(GaussianMechanism, "from_noise_multiplier", keep)
    options = {"gradient": gradient, "neighbouring": neighbouring, "clip_norm": 8.0}
    fitted = make(**options).fit(make_records())
    (mechanism,) = made
    if gradient == "per_record":
        n_moved = 2 if neighbouring == "replace_one" else 1
        moved = clipped_sum_sensitivity(8.0, count_weight=1.0, loss_weight=1.0)
    else:
        n_moved, diameter = 1, clipped_gradient_sensitivity(8.0, n_parts=6)
        moved = clipped_gradient_sensitivity(8.0, n_parts=6, loss_range=diameter / 4)
    rounded = moved / mechanism.granularity + math.sqrt(mechanism.n_coordinates)
    needed = n_moved * fitted.noise_multiplier_ * rounded
    assert needed <= mechanism.grid_scale <= needed * (1 + 1e-9)


def test_without_noise_there_is_no_guarantee():
    X = make_records()
    fitted = make(epsilon=None).fit(X)
    assert fitted.privacy_guarantee_ is None and fitted.noise_multiplier_ == 0
    assert make(random_state=0).fit(X).privacy_guarantee_ is None
    assert make(epsilon=1e300).fit(X).privacy_guarantee_.epsilon == 1e300


PRINTED = {"batch_size": 50, "sampling_rate": 1 / 1200}


@pytest.mark.experiment
def test_the_published_accounting_warns_of_what_it_guarantees():
    options = {**PAPER, **PRINTED, "epsilon": 10.0, "random_state": None}
    X, truth = make_records(), sound_epsilon(1.5, DELTA, **PRINTED, steps=2)
    with pytest.warns(NoGuaranteeWarning, match=f"this training is {truth:.4g}") as caught:
        fitted = make(**options, noise_multiplier=1.5, n_iter=2).fit(X)
    assert truth > 13 and caught[0].filename == __file__
    assert fitted.privacy_guarantee_ is None
    assert fitted.noise_multiplier_ == pytest.approx(1.5 / 50**0.5, rel=1e-12)
    with pytest.raises(ValueError, match="nothing is guaranteed"):
        make(**options, ledger=make_ledger()).fit(X)
    for other in ({"gradient": "per_record"}, {"neighbouring": "replace_one"}, {"epsilon": None}):
        with pytest.raises(ValueError, match="accounting='paper' needs"):
            make(**options | other).fit(X)
    for noise, message in ((1.5, "does not allow a single step"), (None, "accounting='sound'")):
        with pytest.raises(ValueError, match=message):
            make(**options | {"epsilon": 0.1}, noise_multiplier=noise).fit(X)


@pytest.mark.experiment
@pytest.mark.filterwarnings("ignore::skdpot.privacy.NoGuaranteeWarning")
def test_the_published_accounting_spends_what_it_claims():
    """By as little noise as the steps need, or as many steps as a given noise allows."""
    claim = {"batch_size": 2, "sampling_rate": 1.0}
    options = {**PAPER, **claim, "network": torch.nn.Linear}
    least = make(**options, epsilon=2.0, n_iter=20).fit(make_records())
    scale = least.noise_multiplier_ * 2**0.5
    assert published_epsilon(scale, DELTA, **claim, steps=20) == pytest.approx(2.0, rel=1e-6)
    most = make(**options, epsilon=3.0, noise_multiplier=20.0, n_iter=10**6).fit(make_records())
    spent = [published_epsilon(20.0, DELTA, **claim, steps=most.n_iter_ + more) for more in (0, 1)]
    assert spent[0] <= 3.0 < spent[1]


@pytest.mark.experiment
@pytest.mark.parametrize("n_iter", [1, 45])
def test_progress_ends_with_the_budget(n_iter, capsys, monkeypatch):
    # To which tqdm would cut what it shows.
    monkeypatch.delenv("COLUMNS", raising=False)
    fitted = make(verbose=1, n_iter=n_iter).fit(make_records())
    shown = capsys.readouterr().err
    spent = [float(number) for number in re.findall(r"epsilon=([\d.e+-]+)", shown)]
    assert spent == sorted(spent) and spent[-1] == 5.0
    assert f"{n_iter}/{n_iter}" in shown
    # The bar is updated twenty times, each with the mean of the last steps.
    last = np.mean(fitted.loss_curve_[-math.ceil(n_iter / 20) :])
    assert float(re.findall(r"loss=([\d.e+-]+)", shown)[-1]) == pytest.approx(last, rel=0.01)
    make(verbose=1, epsilon=None).fit(make_records())
    with pytest.warns(NoGuaranteeWarning):
        make(verbose=1, epsilon=10.0, **PAPER).fit(make_records())
    shown = capsys.readouterr().err
    assert "loss=" in shown and "epsilon" not in shown


# What is refused
# ---------------

TEXT = "The '{}' parameter of .* must be"
BAD_PARAMETERS = [
    ({"epsilon": 0}, TEXT.format("epsilon")),
    ({"epsilon": np.nan}, TEXT.format("epsilon")),
    ({"delta": 0}, TEXT.format("delta")),
    ({"bounds": (0, [1, 1, 1])}, "one number for each of the 2 features"),
    ({"n_iter": 2.0}, TEXT.format("n_iter")),
    ({"sampling_rate": 1.1}, TEXT.format("sampling_rate")),
    ({"noise_multiplier": 0}, TEXT.format("noise_multiplier")),
    ({"clip_norm": 1e300}, TEXT.format("clip_norm")),
    ({"network": "dcgan"}, "needs an image_shape"),
    ({"network": lambda i, o: torch.nn.Linear(i + 1, o)}, "the network fails on an input"),
    ({"image_shape": (2, 2)}, "image_shape must be .* with a product of 2"),
    ({"device": "tpu"}, "device='tpu' cannot be used here"),
    ({"secure_noise": "yes"}, TEXT.format("secure_noise")),
]


@pytest.mark.parametrize("params, message", BAD_PARAMETERS)
def test_bad_parameters_are_refused_before_the_charge(params, message):
    ledger = make_ledger()
    estimator = make(ledger=ledger).set_params(**nested(**params))
    refuse_without_telling(lambda: estimator.fit(np.full((5, 2), SECRET)), message)
    assert not ledger.entries()
    with pytest.raises(NotFittedError):
        clone(estimator).sample()


class Forgets(torch.nn.Linear):
    """Has no memory left from a call on."""

    calls, allowed = 0, 0

    def forward(self, inputs):
        """Return what a linear network does, or fail as PyTorch."""
        type(self).calls += 1
        if self.calls > self.allowed:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {SECRET} GiB")
        return super().forward(inputs)


def test_short_memory_costs_nothing_at_the_rehearsal_and_tells_nothing_of_records():
    X = make_records()
    Forgets.calls, Forgets.allowed = 0, 10**9
    ledger = make_ledger()
    make(network=Forgets, ledger=ledger).fit(X)
    of_a_fit = Forgets.calls
    for allowed, n_charged in ((of_a_fit - 1, 2), (of_a_fit - 4, 2)):
        Forgets.calls, Forgets.allowed = 0, allowed
        refuse_without_telling(
            lambda: make(network=Forgets, ledger=ledger).fit(X), "smaller settings", MemoryError
        )
        # What was charged may have been released in part.
        assert len(ledger.entries()) == n_charged


@pytest.mark.experiment
def test_without_pytorch_the_way_to_install_it_is_told():
    code = """
import sys
from skdpot import PrivacyLedger
from skdpot.published import SinkhornGradientGenerator
sys.modules["torch"] = None
ledger = PrivacyLedger(10.0, 0.5, neighbouring="add_remove")
estimator = SinkhornGradientGenerator(ledger=ledger)
repr(estimator), estimator.get_params()
try:
    estimator.fit([[0.5]])
except ModuleNotFoundError as error:
    print(error.name, error, ledger.spent())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torch ")
    assert '"skdpot[torch]"' in done.stdout
    assert "(0.0, 0.0)" in done.stdout
