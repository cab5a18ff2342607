"""Plans of trainings: as many steps, and as little noise, as the budget allows; charged first."""

import math
import re

import numpy as np
import pytest
import torch

from skdpot.generative._torch import training
from skdpot.privacy import BudgetExceededError, NoGuaranteeWarning, PrivacyLedger
from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.events import (
    CentredGaussianDpEvent,
    GaussianDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from skdpot.privacy.noise import GaussianMechanism, poisson_sample
from skdpot.privacy.sensitivity import clipped_sum_sensitivity
from skdpot.published import published_epsilon, sound_epsilon
from skdpot.published._gradient_generator import TrainingPlan, plan_published, plan_training
from tests.oracles.gradient_generators import make_gradient_generator

pytestmark = pytest.mark.experiment

DELTA = 1e-5
RELATIONS = ["add_remove", "replace_one"]
by_relation = pytest.mark.parametrize("neighbouring", RELATIONS)


def plan(epsilon=2.0, *, n_iter=3000, noise_multiplier=None, rate=0.05, neighbouring="add_remove"):
    return plan_training(
        epsilon=epsilon, delta=DELTA, sampling_rate=rate, n_iter=n_iter,
        noise_multiplier=noise_multiplier, neighbouring=neighbouring,
    )  # fmt: skip


def price(made, n_steps, **changes):
    """Return the epsilon of so many steps of a plan, by the accountant."""
    options = {"sampling_rate": made.sampling_rate, "neighbouring": made.neighbouring} | changes
    return epsilon_of(made.noise_multiplier, DELTA, steps=n_steps, **options)


# Steps and noise
# ---------------


@by_relation
@pytest.mark.parametrize("rate, noise_multiplier", [(1.0, 40.0), (0.05, 3.0), (0.01, 1.0)])
def test_training_stops_just_before_the_budget_is_exceeded(rate, noise_multiplier, neighbouring):
    made = plan(rate=rate, noise_multiplier=noise_multiplier, neighbouring=neighbouring)
    assert made.noise_multiplier == noise_multiplier
    assert made.guaranteed
    assert 1 < made.n_steps < 3000
    assert price(made, made.n_steps) <= 2.0 < price(made, made.n_steps + 1)
    assert made.epsilon_after(made.n_steps) == price(made, made.n_steps)


def test_steps_are_no_more_than_were_asked_for():
    assert plan(noise_multiplier=1000.0, n_iter=7).n_steps == 7
    assert plan(noise_multiplier=3.0, n_iter=1).n_steps == 1


@by_relation
@pytest.mark.parametrize("rate", [1.0, 0.05])
@pytest.mark.parametrize("n_iter", [1, 200])
def test_noise_is_as_little_as_the_steps_need(rate, n_iter, neighbouring):
    made = plan(rate=rate, n_iter=n_iter, neighbouring=neighbouring)
    assert made.n_steps == n_iter
    assert 0.998 * 2.0 <= price(made, n_iter) <= 2.0


def test_a_replaced_record_costs_more_where_samples_are_drawn():
    """With the noise in units of a sensitivity that is twice as large, which is for the step."""
    added, replaced = (plan(noise_multiplier=3.0, neighbouring=each) for each in RELATIONS)
    assert replaced.n_steps < added.n_steps


@by_relation
@pytest.mark.parametrize("rate, noise_multiplier", [(1.0, 2.0), (0.05, 0.4), (1e-3, 0.2)])
def test_the_smallest_epsilon_of_the_error_is_enough_and_hardly_less_is(
    rate, noise_multiplier, neighbouring
):
    options = {"rate": rate, "noise_multiplier": noise_multiplier, "neighbouring": neighbouring}
    with pytest.raises(ValueError, match="does not allow a single step") as error:
        plan(0.01, **options)
    named = float(re.search(r"the smallest epsilon that does is (\S+?)\. ", str(error.value))[1])
    assert plan(named, **options).n_steps >= 1
    with pytest.raises(ValueError, match="does not allow a single step"):
        plan(0.998 * named, **options)


def test_without_an_epsilon_there_is_no_noise_and_no_guarantee():
    made = plan(None, n_iter=5)
    assert (made.n_steps, made.noise_multiplier, made.guaranteed) == (5, 0.0, False)
    assert made.event is None


# What is charged
# ---------------


def test_event_is_that_of_all_steps():
    made = TrainingPlan(30, 0.05, 1.5, DELTA, "add_remove", guaranteed=True)
    step = PoissonSampledDpEvent(0.05, GaussianDpEvent(1.5))
    assert made.event == PlannedDpEvent(SelfComposedDpEvent(step, 30), DELTA)
    whole = TrainingPlan(30, 1.0, 1.5, DELTA, "add_remove", guaranteed=True)
    assert whole.event == PlannedDpEvent(SelfComposedDpEvent(GaussianDpEvent(1.5), 30), DELTA)


def test_sums_over_records_are_charged_as_such():
    made = TrainingPlan(500, 0.02, 1.0, 1e-6, "replace_one", guaranteed=True, centred=True)
    step = PoissonSampledDpEvent(0.02, CentredGaussianDpEvent(1.0))
    assert made.event == PlannedDpEvent(SelfComposedDpEvent(step, 500), 1e-6)
    assert made.epsilon_after(500) == pytest.approx(2.004, abs=1e-3)


@pytest.mark.parametrize("gradient, epsilon", [("per_record", 2.004), ("images", 3.709)])
def test_only_sums_over_records_are_centred(gradient, epsilon):
    """A gradient of transport turns as a whole where a record enters the sample."""
    ledger = make_ledger(neighbouring="replace_one")
    make_generator(
        ledger, gradient=gradient, neighbouring="replace_one", sampling_rate=0.02,
        noise_multiplier=1.0, n_iter=500, epsilon=10.0, delta=1e-6,
    ).fit(X)  # fmt: skip
    assert ledger.spent()[0] == pytest.approx(epsilon, abs=1e-3)


@by_relation
def test_noise_of_sums_covers_rounding_for_records_that_are_added(neighbouring, monkeypatch):
    """Half of what a replaced record moves on the grid is less than what an added one may."""
    made, make = [], GaussianMechanism.from_noise_multiplier
    monkeypatch.setattr(
        GaussianMechanism,
        "from_noise_multiplier",
        lambda *args, **params: made.append(make(*args, **params)) or made[-1],
    )
    ledger = make_ledger(neighbouring=neighbouring)
    generator = make_generator(ledger, neighbouring=neighbouring, clip_norm=8.0).fit(X)
    (mechanism,) = made
    n_added = 2 if neighbouring == "replace_one" else 1
    added = clipped_sum_sensitivity(8.0, count_weight=1.0, loss_weight=1.0)
    rounded = added / mechanism.granularity + math.sqrt(mechanism.n_coordinates)
    needed = n_added * generator.noise_multiplier_ * rounded
    assert needed <= mechanism.grid_scale <= needed * (1 + 1e-9)


def make_ledger(epsilon=10.0, neighbouring="add_remove"):
    return PrivacyLedger(epsilon, 1e-3, neighbouring=neighbouring, allow_seeded=True)


def make_generator(ledger, **params):
    options = {
        "n_iter": 3, "sampling_rate": 1.0, "batch_size": 4,
        "network": torch.nn.Linear, "ledger": ledger, "random_state": 0,
    }  # fmt: skip
    return make_gradient_generator(**(options | params))


X = np.random.default_rng(0).uniform(size=(12, 2))


@by_relation
@pytest.mark.parametrize("gradient", ["per_record", "images"])
def test_a_ledger_gets_one_entry_with_the_event_of_the_training(gradient, neighbouring):
    ledger = make_ledger(neighbouring=neighbouring)
    params = {"gradient": gradient, "neighbouring": neighbouring}
    generator = make_generator(ledger, **params, noise_multiplier=20.0, n_iter=4).fit(X)
    (entry,) = ledger.entries()
    step = (CentredGaussianDpEvent if gradient == "per_record" else GaussianDpEvent)(20.0)
    assert entry.event == PlannedDpEvent(SelfComposedDpEvent(step, 4), DELTA)
    assert entry.unit == "record"
    assert generator.n_iter_ == 4
    epsilon, delta = ledger.spent()
    assert epsilon == pytest.approx(epsilon_of(20.0, DELTA, steps=4), rel=1e-6)
    assert delta == DELTA


def test_a_sampled_training_is_charged_as_one():
    ledger = make_ledger()
    generator = make_generator(ledger, sampling_rate=0.3, noise_multiplier=5.0).fit(X)
    (entry,) = ledger.entries()
    step = PoissonSampledDpEvent(0.3, CentredGaussianDpEvent(5.0))
    assert entry.event == PlannedDpEvent(SelfComposedDpEvent(step, generator.n_iter_), DELTA)


def test_samples_have_the_rate_that_was_charged(monkeypatch):
    asked = []

    def watched(source, n_records, rate):
        asked.append((n_records, rate))
        return poisson_sample(source, n_records, rate)

    monkeypatch.setattr(training, "poisson_sample", watched)
    make_generator(None, sampling_rate=0.3, noise_multiplier=5.0).fit(X)
    assert asked == [(12, 0.3)] * 3


def test_a_rate_that_is_set_during_a_fit_is_that_of_the_next_one(monkeypatch):
    """Estimators in other threads may share the parameters of the training."""
    ledger, asked = make_ledger(), []
    generator = make_generator(ledger, sampling_rate=0.3, noise_multiplier=5.0)

    def watched(source, n_records, rate):
        asked.append(rate)
        generator.set_params(network__sampling_rate=1.0)
        return poisson_sample(source, n_records, rate)

    monkeypatch.setattr(training, "poisson_sample", watched)
    generator.fit(X)
    assert asked == [0.3] * 3
    generator.fit(X)
    assert set(asked[3:]) == {1.0}
    events = [entry.event.event.event for entry in ledger.entries()]
    assert events == [
        PoissonSampledDpEvent(0.3, CentredGaussianDpEvent(5.0)), CentredGaussianDpEvent(5.0),
    ]  # fmt: skip


def test_what_fails_in_the_first_step_has_been_charged(monkeypatch):
    class Broken(Exception):
        pass

    def fails(*_):
        raise Broken

    ledger = make_ledger()
    monkeypatch.setattr(training, "poisson_sample", fails)
    with pytest.raises(Broken):
        make_generator(ledger).fit(X)
    assert len(list(ledger.entries())) == 1
    assert ledger.spent()[0] == pytest.approx(1.0, rel=2e-3)


def test_records_are_in_no_step_before_they_are_charged(monkeypatch):
    """The step that is tried before is one with other records."""
    ledger = make_ledger()
    made = []
    step = training.Trainer.step

    def watched(trainer, records, sampled):
        made.append((len(list(ledger.entries())), bool(records.points.any())))
        return step(trainer, records, sampled)

    monkeypatch.setattr(training.Trainer, "step", watched)
    make_generator(ledger).fit(X)
    assert set(made) == {(0, False), (1, True)}
    assert made.count((1, True)) == 3


def weights_of(generator):
    return {
        name: value.clone()
        for name, value in generator._fitted.network.network.state_dict().items()
    }


def test_a_refused_budget_samples_nothing(monkeypatch):
    ledger = make_ledger(1.5)
    generator = make_generator(ledger, epsilon=2.0)
    monkeypatch.setattr(training, "poisson_sample", lambda *_: pytest.fail("sampled"))
    with pytest.raises(BudgetExceededError):
        generator.fit(X)
    assert list(ledger.entries()) == []
    assert not hasattr(generator, "loss_curve_")


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_refused_budget_leaves_what_was_fitted(warm_start, monkeypatch):
    ledger = make_ledger(1.5)
    generator = make_generator(ledger, warm_start=warm_start).fit(X)
    weights, losses = weights_of(generator), generator.loss_curve_
    monkeypatch.setattr(training, "poisson_sample", lambda *_: pytest.fail("sampled"))
    with pytest.raises(BudgetExceededError):
        generator.fit(X)
    assert len(list(ledger.entries())) == 1
    assert generator.loss_curve_ == losses
    for name, value in weights_of(generator).items():
        assert torch.equal(value, weights[name])


def test_a_continued_training_is_charged_again():
    ledger = make_ledger(2.5)
    generator = make_generator(ledger, warm_start=True).fit(X).fit(X)
    first, second = ledger.entries()
    assert first.event == second.event
    assert ledger.spent()[0] == pytest.approx(2.0, rel=2e-3)
    assert generator.n_iter_ == 6


def test_guarantees_of_continued_trainings_add_up():
    generator = make_generator(None, warm_start=True, random_state=None, epsilon=0.5)
    generator.fit(X)
    generator.set_params(epsilon=2.0, delta=1e-6).fit(X)
    guarantee = generator.privacy_guarantee_
    assert guarantee.epsilon == pytest.approx(2.5)
    assert guarantee.delta == pytest.approx(DELTA + 1e-6)


@pytest.mark.parametrize("order", [RELATIONS, RELATIONS[::-1]])
def test_guarantees_under_two_relations_are_not_added(order):
    """A replaced record is one removed and one added, which costs twice what either does."""
    generator = make_generator(None, warm_start=True, random_state=None)
    generator.set_params(neighbouring=order[0]).fit(X)
    with pytest.raises(ValueError, match="neighbouring must be"):
        generator.set_params(neighbouring=order[1]).fit(X)


@pytest.mark.parametrize("without", [{"epsilon": None}, {"random_state": 0}])
@pytest.mark.parametrize("order", [1, -1])
def test_no_guarantee_comes_back(without, order):
    """What was once trained without one has none, whatever follows, and the other way round."""
    generator = make_generator(None, warm_start=True, random_state=None)
    for params in [without, {"epsilon": 1.0, "random_state": None}][::order]:
        generator.set_params(**params).fit(X)
    assert generator.privacy_guarantee_ is None
    generator.fit(X)
    assert generator.privacy_guarantee_ is None


# As it was published
# -------------------

PRINTED = {"mnist": (1.5, 160_000), "fashion": (1.9, 280_000)}


def published(epsilon=10.0, **options):
    defaults = {
        "delta": DELTA, "sampling_rate": 1 / 1200, "n_iter": 10**6, "noise_scale": 1.5,
        "batch_size": 50,
    }  # fmt: skip
    return plan_published(epsilon=epsilon, **(defaults | options))


@pytest.mark.parametrize("data", PRINTED)
def test_published_settings_reach_their_epsilon_in_about_the_printed_steps(data):
    noise_scale, n_steps = PRINTED[data]
    made = published(noise_scale=noise_scale)
    assert made.n_steps == pytest.approx(n_steps, rel=0.01)
    options = {"batch_size": 50, "sampling_rate": 1 / 1200}
    spent = [
        published_epsilon(noise_scale, DELTA, steps=steps, **options)
        for steps in (made.n_steps, made.n_steps + 1)
    ]
    assert spent[0] <= 10.0 < spent[1]
    assert made.noise_multiplier == pytest.approx(noise_scale / 50**0.5, rel=1e-12)


def test_published_plans_guarantee_nothing():
    made = published()
    assert not made.guaranteed
    assert made.event is None
    assert made.epsilon_after(made.n_steps) > 800


@pytest.mark.parametrize("epsilon", [2.0, 10.0])
def test_published_noise_is_found_for_given_steps(epsilon):
    made = published(epsilon, noise_scale=None, n_iter=20_000)
    scale = made.noise_multiplier * 50**0.5
    spent = published_epsilon(scale, DELTA, batch_size=50, sampling_rate=1 / 1200, steps=20_000)
    assert spent == pytest.approx(epsilon, rel=1e-6)
    assert made.n_steps == 20_000


def test_published_plans_that_are_out_of_reach_are_refused():
    with pytest.raises(ValueError, match="does not allow a single step"):
        published(0.1)
    with pytest.raises(ValueError, match="accounting='sound'"):
        published(0.1, noise_scale=None)


def test_published_accounting_warns_of_the_true_price_and_charges_nothing():
    params = {
        "gradient": "per_image", "accounting": "paper", "epsilon": 10.0,
        "noise_multiplier": 1.5, "sampling_rate": 1 / 1200, "batch_size": 50,
    }  # fmt: skip
    truth = sound_epsilon(1.5, DELTA, batch_size=50, sampling_rate=1 / 1200, steps=2)
    with pytest.warns(NoGuaranteeWarning, match=f"the epsilon of this training is {truth:.4g}"):
        generator = make_generator(None, **params, n_iter=2, random_state=None).fit(X)
    assert truth > 13
    assert generator.privacy_guarantee_ is None
    with pytest.raises(ValueError, match="nothing is guaranteed"):
        make_generator(make_ledger(), **params).fit(X)
    with pytest.raises(ValueError, match="accounting='paper' needs"):
        make_generator(None, **(params | {"gradient": "images"})).fit(X)
