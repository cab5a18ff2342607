"""The published training of a generator, as a user of scikit-learn meets it."""

import copy
import pickle
import re
import struct
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_html_repr

from skdpot.generative._files import read_generator, write_generator
from skdpot.generative._torch import training
from skdpot.generative._torch.training import Trainer
from skdpot.privacy import BudgetAccountant, BudgetError, BudgetExceededError, NoGuaranteeWarning
from skdpot.privacy.mechanisms import GaussianMechanism
from skdpot.published import SinkhornGradientGenerator, _gradient_generator
from tests.oracles.gradient_generators import make_gradient_generator, nested
from tests.oracles.refusals import SECRET, make_ledger, refuse_without_telling

# Noise for samples of all records needs no search.
FAST = {"epsilon": 5.0, "n_iter": 3, "sampling_rate": 1.0, "batch_size": 6}
PAPER = {"gradient": "per_image", "accounting": "paper"}
STEPS = [{"gradient": name} for name in ("per_record", "images", "per_image", "parameters")]
NAMES = ["-".join(step.values()) for step in STEPS]
# Within the bounds, so that nothing moves it.


def make_records(n_records=40, n_features=2, seed=0):
    return np.random.default_rng(seed).random((n_records, n_features))


def make(**params):
    return make_gradient_generator(**FAST | params)


def linear(n_inputs, n_features):
    return torch.nn.Linear(n_inputs, n_features)


def make_weights(fitted):
    return {
        name: values.numpy() for name, values in fitted._fitted.network.network.state_dict().items()
    }


def assert_same_model(one, other):
    assert one.loss_curve_ == other.loss_curve_
    np.testing.assert_equal(make_weights(one), make_weights(other))


# What is generated
# -----------------


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_what_is_learned_is_near_the_records(step):
    rng = np.random.default_rng(0)
    X = rng.normal([2.0, 70.0], [0.2, 4.0], (200, 2))
    options = {"bounds": ([0, 0], [10, 100]), "batch_size": 30, "learning_rate": 2e-3}
    for noise in ({"epsilon": None, "sampling_rate": 0.2}, {"epsilon": 1e4}):
        fitted = make(**options | step | noise | {"n_iter": 60, "random_state": 0}).fit(X)
        generated = fitted.sample(500)
        np.testing.assert_allclose(generated.mean(axis=0) / [10, 100], [0.2, 0.7], atol=0.06)
        assert (generated.std(axis=0) / [10, 100] < 0.12).all()
        assert fitted.score(X) > -0.03


@pytest.mark.parametrize("n_features", [1, 3])
def test_shapes_and_ranges(n_features):
    low, high = -2.0 - np.arange(n_features), 3.0
    X = 10 * make_records(20, n_features) - 5
    fitted = make(bounds=(low, high)).fit(X)
    for n_samples in (1, 7, 1500):
        generated = fitted.sample(n_samples)
        assert generated.shape == (n_samples, n_features)
        assert generated.dtype == np.float64
        assert (low <= generated).all() and (generated <= high).all()
    assert fitted.sample().shape == (1, n_features)
    assert len(np.unique(generated, axis=0)) > 1400


def test_bounds_are_never_left_by_rounding():
    far = make(bounds=(0.1, 0.3), network=lambda i, o: Constant(o), random_state=0)
    generated = far.fit(np.full((5, 2), 0.2)).sample(50)
    assert generated.max() == 0.3


class Constant(torch.nn.Module):
    """Makes what is far beyond the bounds."""

    def __init__(self, n_features):
        super().__init__()
        self.numbers = torch.nn.Parameter(torch.full((n_features,), 100.0))

    def forward(self, inputs):
        """Return the same numbers for every row."""
        return self.numbers.expand(len(inputs), -1)


@pytest.mark.parametrize("n_samples", [0, -1, 2.0, "3", None])
def test_number_of_samples_is_checked(n_samples):
    fitted = make().fit(make_records())
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
        fitted.sample(n_samples)


@pytest.mark.parametrize(
    "kind",
    [np.float32, np.int8, np.bool_, np.ndarray.tolist, pd.DataFrame, np.asfortranarray],
    ids=["float32", "int8", "bool", "list", "frame", "Fortran"],
)
def test_records_of_any_type(kind):
    X = make_records().round()
    models = [make(random_state=0).fit(given) for given in (X, kind(X))]
    assert_same_model(*models)


def test_values_beyond_the_bounds_are_moved_to_them():
    X = 3 * make_records() - 1
    models = [make(random_state=0).fit(given) for given in (X, X.clip(0, 1))]
    assert_same_model(*models)


@pytest.mark.parametrize("network", ["auto", "mlp", "dcgan"])
def test_images(network):
    X = make_records(6, 4 * 6)
    fitted = make(network=network, image_shape=(4, 6), n_iter=1, batch_size=2).fit(X)
    assert fitted.sample(3).shape == (3, 24)


@pytest.mark.parametrize("network, shape", [("mlp", None), ("dcgan", (4, 6)), ("residual", (4, 6))])
def test_samples_do_not_depend_on_how_many_rows_are_made_at_a_time(network, shape, monkeypatch):
    options = {"network": network, "image_shape": shape, "n_iter": 1, "batch_size": 2}
    fitted = make(random_state=0, **options).fit(make_records(6, 4 * 6))
    expected = fitted.sample(10)
    for name in ("_CHUNK", "_IMAGES_IN_CACHE"):
        monkeypatch.setattr(training, name, 3)
    np.testing.assert_allclose(fitted.sample(10), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(fitted.sample(4), expected[:4], rtol=0, atol=1e-5)


def test_sampling_leaves_the_network_as_it_is():
    fitted = make(network="dcgan", image_shape=(4, 6), n_iter=1, batch_size=2)
    fitted.fit(make_records(6, 4 * 6))
    before = pickle.dumps(fitted)
    fitted.sample(3)
    assert pickle.dumps(fitted) == before


def test_networks_of_users():
    X = make_records()
    module = torch.nn.Linear(2, 2)
    before = copy.deepcopy(module.state_dict())
    for network in (module, linear):
        fitted = clone(make(network=network, learning_rate=0.1)).fit(X)
        assert fitted.sample(5).shape == (5, 2)
    # It is copied, so that a second fit starts where the first one did.
    np.testing.assert_equal(
        {name: values.numpy() for name, values in module.state_dict().items()},
        {name: values.numpy() for name, values in before.items()},
    )


# Parameters, seeds and what is kept
# ----------------------------------


def test_parameters_come_and_go():
    estimator = make(reg=0.3, ledger=make_ledger())
    params = estimator.get_params()
    copied = clone(estimator)
    assert copied.get_params(deep=False).keys() == estimator.get_params(deep=False).keys()
    assert repr(copied) == repr(estimator)
    assert copied.ledger is estimator.ledger
    assert copied.set_params(network__debias=0.1).network.debias == 0.1
    estimator.fit(make_records())
    assert estimator.get_params() == params
    with pytest.raises(NotFittedError):
        clone(estimator).sample()


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_a_seed_is_one_model(step):
    X = make_records()
    first, second, third, unseeded, another = (
        make(random_state=seed, **step).fit(X) for seed in (3, 3, 4, None, None)
    )
    assert_same_model(first, second)
    np.testing.assert_array_equal(first.sample(20), second.sample(20))
    curves = {tuple(fitted.loss_curve_) for fitted in (first, third, unseeded, another)}
    assert len(curves) == 4
    assert not np.array_equal(unseeded.sample(5), unseeded.sample(5))


def test_a_generator_of_random_numbers_goes_on():
    X, state = make_records(), np.random.RandomState(0)
    estimator = make(random_state=state)
    first = estimator.fit(X).loss_curve_
    assert estimator.fit(X).loss_curve_ != first
    state.seed(0)
    assert estimator.fit(X).loss_curve_ == first


def test_no_state_of_others_is_used_or_changed():
    X = make_records()
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(make(random_state=7).fit(X))
    torch.manual_seed(0)
    make().fit(X)
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert_same_model(*models)


@pytest.mark.parametrize("other", [{"verbose": 2}, {"secure_noise": True}, {"device": "cpu"}])
def test_what_does_not_change_the_model(other):
    X = make_records()
    assert_same_model(make(random_state=0).fit(X), make(random_state=0, **other).fit(X))


def test_fitted_attributes():
    fitted = make().fit(make_records())
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 3
    assert all(type(loss) is float for loss in fitted.loss_curve_)
    assert fitted.n_features_in_ == 2
    assert fitted.noise_multiplier_ > 0
    guarantee = fitted.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (5.0, 1e-5)
    assert (guarantee.neighbouring, guarantee.unit) == ("add_remove", "record")
    assert not hasattr(fitted, "classes_")
    for nothing in ({"epsilon": None}, {"random_state": 0}):
        assert make(**nothing).fit(make_records()).privacy_guarantee_ is None
    assert make(epsilon=None).fit(make_records()).noise_multiplier_ == 0


def test_a_given_noise_buys_as_many_steps_as_the_budget_allows():
    fitted = make(noise_multiplier=2.0, n_iter=10_000).fit(make_records())
    assert 1 < fitted.n_iter_ < 100
    assert fitted.noise_multiplier_ == 2.0


def test_tables_name_their_columns():
    frame = pd.DataFrame(make_records(), columns=["age", "height"])
    fitted = make().fit(frame)
    assert fitted.feature_names_in_.tolist() == ["age", "height"]
    fitted.score(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.score(frame[["height", "age"]])
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.score(frame[["age"]])


def test_the_published_accounting_warns_of_what_it_guarantees():
    with pytest.warns(NoGuaranteeWarning, match="the epsilon of this training is") as caught:
        fitted = make(**PAPER, epsilon=10.0).fit(make_records())
    assert caught[0].filename == __file__
    assert fitted.privacy_guarantee_ is None


# A ledger
# --------


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
@pytest.mark.parametrize("neighbouring", ["add_remove", "replace_one"])
def test_a_fit_is_charged_once(step, neighbouring):
    ledger = make_ledger(neighbouring=neighbouring)
    fitted = make(ledger=ledger, neighbouring=neighbouring, **step).fit(make_records())
    (entry,) = ledger.entries()
    assert "SinkhornGradientGenerator" in entry.label
    epsilon, delta = ledger.spent()
    assert epsilon == pytest.approx(5.0, rel=1e-6) and epsilon <= 5.0
    assert delta == 1e-5
    fitted.sample(100)
    fitted.score(make_records())
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
@pytest.mark.parametrize("neighbouring", ["add_remove", "replace_one"])
def test_noise_has_the_scale_of_what_a_record_changes(step, neighbouring, monkeypatch):
    vectors, mechanisms = [], []

    def keeping(kept, make):
        def keep(*args, **options):
            kept.append(make(*args, **options))
            return kept[-1]

        return keep

    from_multiplier = GaussianMechanism.from_noise_multiplier
    monkeypatch.setattr(
        GaussianMechanism, "from_noise_multiplier", keeping(mechanisms, from_multiplier)
    )
    monkeypatch.setattr(
        _gradient_generator, "make_vector", keeping(vectors, _gradient_generator.make_vector)
    )
    fitted = make(neighbouring=neighbouring, **step).fit(make_records())
    scale = fitted.noise_multiplier_ * vectors[-1].sensitivity
    # Values are rounded to a grid, which moves neighbours a little further apart.
    assert scale <= mechanisms[-1].scale <= 1.001 * scale


def test_what_is_spent_is_spent():
    ledger = make_ledger(6.0)
    fitted = make(ledger=ledger).fit(make_records())
    with pytest.raises(BudgetExceededError, match="asked for .* left"):
        clone(fitted).fit(make_records())
    assert len(ledger.entries()) == 1
    assert len(fitted.sample(3)) == 3


def test_an_accountant_is_charged():
    accountant = BudgetAccountant(6.0, 1e-4)
    make(ledger=accountant).fit(make_records())
    assert accountant.total()[0] == pytest.approx(5.0)
    with pytest.raises(BudgetError):
        make(ledger=accountant).fit(make_records())


def scale_up(X):
    return 100 * X


def scale_down(X):
    return X / 100


def test_pipeline():
    X = make_records() / 100
    steps = FunctionTransformer(scale_up, scale_down), make(random_state=0)
    pipeline = make_pipeline(*steps).fit(X)
    assert_same_model(pipeline[-1], make(random_state=0).fit(100 * X))
    assert pipeline.score(X) == pytest.approx(pipeline[-1].score(100 * X))
    generated = pipeline[:-1].inverse_transform(pipeline[-1].sample(5))
    assert generated.max() <= 0.01


@pytest.mark.experiment
def test_a_search_spends_as_often_as_it_fits_wherever_that_is():
    """In one process, and in several."""
    X = make_records()
    found = []
    for n_jobs in (1, 2):
        ledger = make_ledger(allow_seeded=True)
        search = GridSearchCV(
            make(ledger=ledger, random_state=0, n_iter=2),
            {"network__reg": [0.05, 1.0], "network__debias": [0.0, 0.4]},
            cv=2,
            n_jobs=n_jobs,
        )
        with parallel_config(backend="loky"):
            search.fit(X)
        assert len(ledger.entries()) == 9
        assert search.best_estimator_.ledger is ledger
        found.append(search)
    assert len(set(found[0].cv_results_["mean_test_score"])) == 4
    np.testing.assert_allclose(
        *(search.cv_results_["mean_test_score"] for search in found), rtol=1e-6
    )
    np.testing.assert_allclose(*(search.best_estimator_.sample(9) for search in found), rtol=1e-5)
    # Fitted ones go to other processes, too.
    fitted = found[0].best_estimator_
    with parallel_config(backend="loky", n_jobs=2):
        sampled = Parallel()(delayed(fitted.sample)(4) for _ in range(2))
    np.testing.assert_allclose(sampled[0], fitted.sample(4), rtol=1e-5)
    get_reusable_executor().shutdown(wait=True)


# Progress
# --------


@pytest.mark.parametrize("n_iter", [1, 45])
def test_progress_ends_with_the_budget(n_iter, capsys, monkeypatch):
    # To which tqdm would cut what it shows.
    monkeypatch.delenv("COLUMNS", raising=False)
    fitted = make(verbose=1, n_iter=n_iter).fit(make_records())
    shown = capsys.readouterr().err
    spent = [float(number) for number in re.findall(r"epsilon=([\d.e+-]+)", shown)]
    assert spent == sorted(spent) and spent[-1] == 5.0
    assert f"{n_iter}/{n_iter}" in shown
    every = -(-n_iter // 20)
    last = np.mean(fitted.loss_curve_[-every:])
    assert float(re.findall(r"loss=([\d.e+-]+)", shown)[-1]) == pytest.approx(last, rel=0.01)
    make(verbose=0).fit(make_records())
    assert capsys.readouterr() == ("", "")


def test_progress_without_a_guarantee_shows_no_epsilon(capsys):
    make(verbose=1, epsilon=None).fit(make_records())
    with pytest.warns(NoGuaranteeWarning):
        make(verbose=1, epsilon=10.0, **PAPER).fit(make_records())
    shown = capsys.readouterr().err
    assert "loss=" in shown and "epsilon" not in shown


# Going on
# --------


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_warm_start_goes_on(step):
    X, ledger = make_records(), make_ledger()
    estimator = make(warm_start=True, ledger=ledger, **step).fit(X)
    first = list(estimator.loss_curve_)
    before = make_weights(estimator)
    estimator.set_params(**nested(n_iter=4, epsilon=2.0, learning_rate=1e-9)).fit(X)
    assert estimator.n_iter_ == 7
    assert estimator.loss_curve_[:3] == first
    assert len(ledger.entries()) == 2
    guarantee = estimator.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (7.0, 2e-5)
    assert ledger.spent()[0] == pytest.approx(7.0)
    for name, values in make_weights(estimator).items():
        np.testing.assert_allclose(values, before[name], atol=1e-6)
    estimator.set_params(warm_start=False).fit(X)
    assert estimator.n_iter_ == 4
    assert estimator.privacy_guarantee_.epsilon == 2.0


def test_warm_start_draws_other_noise():
    X = make_records()
    estimator = make(warm_start=True, random_state=0, learning_rate=1e-12).fit(X).fit(X)
    first, second = estimator.loss_curve_[:3], estimator.loss_curve_[3:]
    assert not set(first) & set(second)
    again = make(warm_start=True, random_state=0, learning_rate=1e-12).fit(X).fit(X)
    assert_same_model(estimator, again)


@pytest.mark.parametrize("lost", [{"epsilon": None}, {"random_state": 0}])
def test_a_guarantee_that_is_lost_does_not_come_back(lost):
    X = make_records()
    estimator = make(warm_start=True, **lost).fit(X)
    estimator.set_params(epsilon=1.0, random_state=None).fit(X)
    assert estimator.n_iter_ == 6
    assert estimator.privacy_guarantee_ is None
    estimator = make(warm_start=True).fit(X).set_params(**lost).fit(X)
    assert estimator.privacy_guarantee_ is None


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 9},
        {"optimizer": "sgd"},
        {"gradient": "per_image"},
        {"gradient": "parameters"},
        {"reg": 0.3, "debias": 0.9, "l1_weight": 0.5},
    ],
    ids=str,
)
def test_warm_start_goes_on_in_another_way(change):
    X = make_records()
    estimator = make(warm_start=True).fit(X).set_params(**nested(**change)).fit(X)
    assert estimator.n_iter_ == 6
    estimator.set_params(**make().get_params(deep=False) | {"warm_start": True}).fit(X)
    assert estimator.n_iter_ == 9


@pytest.mark.parametrize(
    "change",
    [
        {"bounds": (0, 2)},
        {"latent_dim": 5},
        {"network": "mlp"},
        {"neighbouring": "replace_one", "ledger": None},
    ],
    ids=str,
)
def test_warm_start_refuses_what_the_network_is_not_for(change):
    X, ledger = make_records(), make_ledger()
    estimator = make(warm_start=True, ledger=ledger).fit(X)
    before, state = make_weights(estimator), set(vars(estimator))
    with pytest.raises(ValueError, match="warm_start=True continues with the network"):
        estimator.set_params(**nested(**change)).fit(X)
    with pytest.raises(ValueError, match="has 3 features, but .* is expecting 2"):
        estimator.set_params(bounds=(0, 1)).fit(make_records(10, 3))
    assert len(ledger.entries()) == 1
    np.testing.assert_equal(make_weights(estimator), before)
    assert set(vars(estimator)) == state


def test_a_budget_that_is_spent_leaves_what_was_to_go_on():
    X, ledger = make_records(), make_ledger(6.0)
    estimator = make(warm_start=True, ledger=ledger).fit(X)
    before = make_weights(estimator)
    with pytest.raises(BudgetExceededError):
        estimator.fit(X)
    np.testing.assert_equal(make_weights(estimator), before)
    assert estimator.n_iter_ == 3
    assert estimator.privacy_guarantee_.epsilon == 5.0


# What is refused
# ---------------


TEXT = "The '{}' parameter of .* must be"
BAD_PARAMETERS = [
    ({"epsilon": 0}, TEXT.format("epsilon")),
    ({"epsilon": np.nan}, TEXT.format("epsilon")),
    ({"epsilon": np.inf}, TEXT.format("epsilon")),
    ({"epsilon": None}, "nothing is guaranteed"),
    ({"epsilon": 1e-3, "noise_multiplier": 1.0}, "the smallest epsilon that does is"),
    ({"delta": 0}, TEXT.format("delta")),
    ({"bounds": None}, TEXT.format("bounds")),
    ({"bounds": (1, 0)}, "bounds must be a pair .* with low < high"),
    ({"bounds": (0, [1, 1, 1])}, "one number for each of the 2 features"),
    ({"bounds": (0, np.inf)}, "bounds must be a pair"),
    ({"bounds": [1]}, "bounds must be a pair"),
    ({"gradient": "per_user"}, TEXT.format("gradient")),
    ({"accounting": "hopeful"}, TEXT.format("accounting")),
    ({"accounting": "paper", "gradient": "per_image"}, "nothing is guaranteed"),
    ({"accounting": "paper", "ledger": None}, "needs gradient='per_image'"),
    ({"neighbouring": "replace_one"}, "the ledger is for 'add_remove'"),
    ({"neighbouring": "swap"}, TEXT.format("neighbouring")),
    ({"n_iter": 0}, TEXT.format("n_iter")),
    ({"n_iter": 2.0}, TEXT.format("n_iter")),
    ({"sampling_rate": 0}, TEXT.format("sampling_rate")),
    ({"sampling_rate": 1.1}, TEXT.format("sampling_rate")),
    ({"batch_size": 0}, TEXT.format("batch_size")),
    ({"noise_multiplier": 0}, TEXT.format("noise_multiplier")),
    ({"clip_norm": 0}, TEXT.format("clip_norm")),
    ({"clip_norm": 1e300}, TEXT.format("clip_norm")),
    ({"reg": 0}, TEXT.format("reg")),
    ({"l1_weight": -1}, TEXT.format("l1_weight")),
    ({"debias": 1.5}, TEXT.format("debias")),
    ({"class_scale": -1}, TEXT.format("class_scale")),
    ({"network": "gan"}, "network must be"),
    ({"network": "dcgan"}, "needs an image_shape"),
    ({"network": 3}, "network must be"),
    ({"network": lambda i, o: torch.nn.Linear(i + 1, o)}, "the network fails on an input"),
    ({"network": lambda i, o: torch.nn.Linear(i, o + 1)}, "must return shape"),
    ({"latent_dim": 0}, TEXT.format("latent_dim")),
    ({"image_shape": (2, 2)}, "image_shape must be .* with a product of 2"),
    ({"image_shape": (2.0, 1.0)}, "image_shape must be .* with a product of 2"),
    ({"image_shape": ("2", "1")}, "image_shape must be .* with a product of 2"),
    ({"image_shape": "2x1"}, TEXT.format("image_shape")),
    ({"learning_rate": 0}, TEXT.format("learning_rate")),
    ({"optimizer": "lbfgs"}, TEXT.format("optimizer")),
    ({"device": "tpu"}, "device='tpu' cannot be used here"),
    ({"device": None}, "device=None cannot be used here"),
    ({"secure_noise": "yes"}, TEXT.format("secure_noise")),
    ({"score_reg": 0}, TEXT.format("score_reg")),
    ({"ledger": "book"}, "ledger must be None, a skdpot.PrivacyLedger"),
    ({"random_state": -1}, TEXT.format("random_state")),
    ({"random_state": 0}, "seed"),
    ({"warm_start": 2.5}, TEXT.format("warm_start")),
    ({"verbose": -1}, TEXT.format("verbose")),
]


@pytest.mark.parametrize("params, message", BAD_PARAMETERS)
def test_bad_parameters_are_refused_before_the_charge(params, message):
    ledger = make_ledger()
    estimator = make(ledger=ledger).set_params(**nested(**params))
    refuse_without_telling(lambda: estimator.fit(np.full((5, 2), SECRET)), message)
    assert not ledger.entries()
    with pytest.raises(NotFittedError):
        estimator.sample()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused_before_the_charge():
    ledger = make_ledger()
    with pytest.raises(ValueError, match="device='cuda' cannot be used here.*'cpu', or 'auto'"):
        make(device="cuda", ledger=ledger).fit(make_records())
    assert not ledger.entries()


ROWS = np.full((4, 2), SECRET)
BAD_X = {
    "flat": (ROWS[:, 0], "two-dimensional"),
    "scalar": (SECRET, "two-dimensional"),
    "complex": (ROWS + 1j, "Complex data not supported"),
    "ragged": ([[SECRET, 1.0], [SECRET]] * 2, "inhomogeneous"),
    "sparse": (sparse.csr_array(ROWS), "Sparse data was passed"),
    "empty": (np.empty((0, 2)), r"0 sample\(s\)"),
    "no features": (np.empty((4, 0)), r"0 feature\(s\)"),
}


@pytest.mark.parametrize("kind", BAD_X)
def test_bad_records_are_refused_before_the_charge(kind):
    X, message = BAD_X[kind]
    ledger = make_ledger()
    refuse_without_telling(lambda: make(ledger=ledger).fit(X), message)
    assert not ledger.entries()
    fitted = make().fit(ROWS)
    refuse_without_telling(lambda: fitted.score(X), message)


def test_what_is_not_fitted_makes_nothing(tmp_path):
    X, ledger = make_records(), make_ledger(4.0)
    refused = make(ledger=ledger)
    with pytest.raises(BudgetExceededError):
        refused.fit(X)
    for estimator in (make(), refused):
        for call in (
            estimator.sample,
            lambda it=estimator: it.score(X),
            lambda it=estimator: it.save(tmp_path / "x"),
        ):
            with pytest.raises(NotFittedError):
                call()
    assert not list(tmp_path.iterdir())


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


def short_of_memory(error):
    """Return a step that fails at its third time, after the rehearsal and a first step."""
    made = []

    def step(trainer, records, sampled):
        made.append(1)
        if len(made) == 3:
            raise error
        return torch.zeros(())

    return step


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"DefaultCPUAllocator: can't allocate memory: {SECRET} bytes"),
        torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {SECRET} GiB"),
        MemoryError(f"Unable to allocate an array with {SECRET} rows"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_short_memory_does_not_tell_how_much_was_asked_for(error, monkeypatch):
    monkeypatch.setattr(Trainer, "_step_with", short_of_memory(error))
    ledger = make_ledger()
    estimator = make(ledger=ledger)
    refuse_without_telling(
        lambda: estimator.fit(make_records()), "choose a smaller batch_size", MemoryError
    )
    # What was charged may have been released in part.
    assert len(ledger.entries()) == 1
    with pytest.raises(NotFittedError):
        estimator.sample()


def test_short_memory_at_the_rehearsal_costs_nothing(monkeypatch):
    def step(trainer, records, sampled):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Trainer, "_step_with", step)
    ledger = make_ledger()
    with pytest.raises(MemoryError, match="choose a smaller batch_size"):
        make(ledger=ledger).fit(make_records())
    assert not ledger.entries()


# What is kept
# ------------


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


def forms(value):
    """Return the bytes of a number: eight, since four of them may be found anywhere by chance."""
    return {struct.pack(code, value) for code in ("<d", ">d")}


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
@pytest.mark.parametrize("epsilon", [5.0, None])
def test_nothing_of_the_records_is_kept(step, epsilon, tmp_path):
    X = make_records()
    X[7] = SECRET
    fitted = make(epsilon=epsilon, warm_start=True, random_state=0, **step).fit(X).fit(X)
    fitted.score(X)
    fitted.save(tmp_path / "generator")
    values = np.concatenate([X.ravel(), 2 * X.ravel() - 1])
    kept = np.concatenate([array.ravel() for array in numbers_in(fitted, {})])
    assert len(kept) > 1000
    assert not np.isin(kept, values).any()
    secrets = np.float32([SECRET, 2 * SECRET - 1])
    assert not np.isin(kept.astype(np.float32), secrets).any()
    files = pickle.dumps(fitted), (tmp_path / "generator").read_bytes()
    for value in values:
        assert not any(form in file for form in forms(value) for file in files)
    for text in (repr(fitted), estimator_html_repr(fitted), *map(repr, files)):
        assert str(SECRET)[:8] not in text


def test_pickles_and_copies_make_the_same():
    X, ledger = make_records(), make_ledger(allow_seeded=True)
    fitted = make(random_state=0, ledger=ledger).fit(X)
    expected = fitted.sample(9)
    for copied in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(copied.sample(9), expected)
        assert copied.score(X) == pytest.approx(fitted.score(X))
        assert copied.privacy_guarantee_ == fitted.privacy_guarantee_
        assert copied.ledger.path == ledger.path
        copied.set_params(warm_start=True).fit(X)
    assert len(ledger.entries()) == 3
    np.testing.assert_array_equal(fitted.sample(9), expected)


# Files
# -----


def reload(fitted, tmp_path, **options):
    path = tmp_path / "generator"
    fitted.save(path)
    return SinkhornGradientGenerator.load(path, **options)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"epsilon": None},
        {"gradient": "parameters", "optimizer": "sgd", "verbose": 1},
        {"bounds": ([0.0, -1.0], [1, 2])},
        {"bounds": (pd.Series([0, -1]), pd.Series([1, 2]))},
        {"bounds": np.array([[0, 0], [1, 2]])},
        {"device": torch.device("cpu"), "latent_dim": np.int64(3), "delta": np.float64(1e-6)},
        {"network": "dcgan", "image_shape": np.array([1, 2])},
    ],
    ids=str,
)
def test_files_hold_the_generator(params, tmp_path):
    frame = pd.DataFrame(make_records(), columns=["age", "height"])
    fitted = make(**params).fit(frame)
    # What is set after the fit is not that of the fitted generator.
    fitted.set_params(bounds=(-7, 7), network__network="mlp", image_shape=None, classes=["a"])
    loaded = reload(fitted, tmp_path)
    for estimator in (fitted, loaded):
        estimator.set_params(random_state=0)
    np.testing.assert_array_equal(loaded.sample(20), fitted.sample(20))
    fitted.set_params(**nested(**{"bounds": (0, 1), "classes": None} | params))
    assert loaded.score(frame) == pytest.approx(fitted.score(frame))
    for name in ("loss_curve_", "n_iter_", "noise_multiplier_", "privacy_guarantee_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    assert loaded.feature_names_in_.tolist() == ["age", "height"]
    assert loaded.get_params()["network__n_iter"] == 3
    assert loaded.ledger is None and loaded.network.device == "auto"
    again = reload(loaded, tmp_path).set_params(random_state=0)
    np.testing.assert_array_equal(again.sample(20), fitted.sample(20))


def test_what_was_loaded_goes_on(tmp_path):
    X, ledger = make_records(), make_ledger()
    loaded = reload(make(warm_start=True).fit(X), tmp_path, ledger=ledger).fit(X)
    assert loaded.n_iter_ == 6
    assert len(ledger.entries()) == 1
    assert loaded.privacy_guarantee_.epsilon == 10.0


def test_networks_of_users_are_given_again(tmp_path):
    fitted = make(network=linear).fit(make_records())
    loaded = reload(fitted, tmp_path, network=linear)
    for estimator in (fitted, loaded):
        estimator.set_params(random_state=0)
    np.testing.assert_array_equal(loaded.sample(5), fitted.sample(5))
    path = tmp_path / "generator"
    for network, message in [
        (None, "pass it again, as network="),
        ("mlp", "weights of another network"),
        (torch.nn.Linear(3, 2), r"must be float32 of shape \(2, 3\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            SinkhornGradientGenerator.load(path, network=network)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "generator"
    make().fit(make_records()).save(path)
    whole, (header, arrays) = path.read_bytes(), read_generator(path)
    damaged = [whole[:-1], whole[: len(whole) // 2], b"", whole.replace(b"body", b"BODY", 1)]
    weights = whole.index(b"NUMPY", whole.index(b"weights"))
    damaged.append(whole[: weights + 300] + b"\xff\x00\xff" + whole[weights + 303 :])
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(ValueError):
            SinkhornGradientGenerator.load(path)
    for changes in (
        {"network": header["network"] | {"latent_dim": {}}},
        {"network": header["network"] | {"latent_dim": None}},
        {"network": None},
        {"guarantee": {"epsilon": 1.0}},
        {"parameters": 3},
    ):
        write_generator(path, header | changes, arrays)
        with pytest.raises(ValueError, match="does not hold a whole generator"):
            SinkhornGradientGenerator.load(path)
    write_generator(path, {}, {})
    with pytest.raises(ValueError, match="does not hold a whole generator"):
        SinkhornGradientGenerator.load(path)
    with pytest.raises(FileNotFoundError):
        SinkhornGradientGenerator.load(tmp_path / "nothing")


# What the networks of users see
# ------------------------------


class Remembering(torch.nn.Module):
    """A network that keeps the gradient at its output."""

    def __init__(self, n_inputs, n_features):
        super().__init__()
        self.layer = torch.nn.Linear(n_inputs, n_features)
        self.register_buffer("seen", torch.zeros(n_features))

    def forward(self, inputs):
        output = self.layer(inputs).tanh()
        if output.requires_grad:
            output.register_hook(self.see)
        return output

    def see(self, gradient):
        self.seen.copy_(gradient.sum(dim=0))


def test_what_a_network_sees_going_backwards_is_not_kept():
    generator = make(network=Remembering, gradient="parameters", n_iter=1).fit(make_records())
    assert not generator._fitted.network.network.state_dict()["body.seen"].any()


@pytest.mark.parametrize("n_records", [80_659, 80_660])
def test_no_number_of_records_is_refused(n_records):
    """Doubles add up the terms of the first exactly, with this weight, and not of the second."""
    X = np.broadcast_to(0.5, (n_records, 1))
    generator = make(l1_weight=100.0, n_iter=1, batch_size=2).fit(X)
    assert generator.n_iter_ == 1


def test_any_budget_is_enough():
    generator = make(epsilon=1e300, random_state=None).fit(make_records())
    assert generator.privacy_guarantee_.epsilon == 1e300
