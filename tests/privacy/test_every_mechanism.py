"""Every mechanism: its noise has one scale, no attack refutes its claim, and its bugs are found.

A mechanism is one row of MECHANISMS, and all tests of this file are made of the rows. All audits
together are wrong with a probability of at most 5 %.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare, expon, gamma, halfnorm, kstest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression

from skdpot import (
    DPSinkhornGenerator,
    ExponentialMechanismSampler,
    FairBarycenterRegressor,
    KLProjectionSampler,
    PrivateSinkhornDistance,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.privacy.audit import audit, exact_audit
from skdpot.privacy.choices import BoundedRatioMechanism
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism, make_source
from skdpot.privacy.sensitivity import ball_sum_sensitivity, message_sensitivity
from skdpot.releases import (
    ChoiceRelease,
    HistogramRelease,
    MessageReleases,
    SketchReleases,
    UnitLayout,
    UtilityNoise,
    UtilityResponse,
    VectorRelease,
    label_threshold,
)
from skdpot.transport import sphere_base_measure
from tests.oracles import distance_releases
from tests.oracles.allocation import project_rows
from tests.oracles.privacy_profiles import gaussian_mu
from tests.oracles.sensitivities import declared
from tests.oracles.sphere import cap_mechanism_cdf

# As large as it takes for attacks on Gaussian noise to succeed.
DELTA = 0.1
# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4


@dataclass(frozen=True)
class Mechanism:
    """One row: how a mechanism is run, on which neighbours, and what is claimed of its noise.

    Attributes
    ----------
    run : callable
        ``run(data, epsilon, n, seed)`` returns the outputs of n releases.
    neighbours : tuple
        The two data sets that can be told apart best.
    law : callable or None
        ``law(epsilon)`` is the distribution of `numbers`, computed from the sensitivity: a
        cumulative distribution function, or the probabilities of outputs from 0 on. None where
        another row has the same noise.
    numbers : callable
        The absolute value of ``numbers(outputs, data, epsilon)`` has this distribution. By default
        these are the differences of outputs and data.
    ratio : callable or None
        Increases with the ratio of the densities of an output on the two neighbours. None where
        the attack has to learn it.
    delta : float
        Of the claim.
    planted : mapping
        Bugs by name: another `run`, or by what factor too much is spent.
    finds : float
        The least that an attack proves of a claim of 1.
    epsilon : float
        The claim at which the scale is tested and bugs are planted.
    n_draws, n_trials : int
        Releases of the test of the scale, and of an attack.
    is_slow : bool
        Whether its attacks are long tests.
    """

    run: Callable[..., Any]
    neighbours: tuple[Any, Any]
    law: Callable[[float], Any] | None = None
    numbers: Callable[..., Any] = lambda outputs, data, epsilon: (outputs - data).ravel()
    ratio: Callable[..., Any] | None = None
    delta: float = 0.0
    planted: Mapping[str, Any] = field(default_factory=lambda: {"half of the noise": 2.0})
    finds: float = 0.3
    epsilon: float = 1.0
    n_draws: int = 20_000
    n_trials: int = 6000
    is_slow: bool = False


def magnitude(sensitivity, delta=0.0):
    """Return the law of the absolute value of Laplace noise, or of Gaussian noise with a delta."""

    def law(epsilon):
        if delta:
            return halfnorm(scale=sensitivity / gaussian_mu(epsilon, delta)).cdf
        return expon(scale=sensitivity / epsilon).cdf

    return law


def closer_to(neighbours, delta=0.0):
    """Return the ratio of densities of noise that is added: the nearer neighbour is likelier."""
    power = 2 if delta else 1

    def ratio(outputs):
        rows = np.reshape(outputs, (len(outputs), -1))
        away = [(np.abs(rows - np.ravel(value)) ** power).sum(axis=1) for value in neighbours]
        return away[1] - away[0]

    return ratio


# Noise on numbers and vectors
# ----------------------------


def noise_on(delta, size):
    """Return noise on vectors, whose neighbours are as far apart as the sensitivity, 3."""

    def run(data, epsilon, n, seed):
        options = {"n_coordinates": n * size}
        made = (
            GaussianMechanism(epsilon, delta, 3.0, **options)
            if delta
            else LaplaceMechanism(epsilon, 3.0, **options)
        )
        return made.release(np.tile(data, (n, 1)), seed)

    pair = np.zeros(size), np.full(size, 3.0 / size ** (0.5 if delta else 1.0))
    return Mechanism(
        run, pair, magnitude(3.0, delta), ratio=closer_to(pair, delta), delta=delta,
        n_draws=20_000 // size, n_trials=40_000 if delta else 20_000,
    )  # fmt: skip


def noise_on_counts(delta):
    """Return noise on integers: a record that is replaced moves two counts by 1."""

    def run(data, epsilon, n, seed):
        release = VectorRelease(
            epsilon, delta, declared((2.0, math.sqrt(2.0))), n_coordinates=2 * n, largest=100.0,
            counts=True,
        )  # fmt: skip
        return release.run(np.tile(data, (n, 1)), make_source(seed))

    pair = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    law = magnitude(math.sqrt(2.0) if delta else 2.0, delta)
    # Noise that is so large does not show that it is rounded.
    return Mechanism(
        run, pair, law, ratio=closer_to(pair, delta), delta=delta, epsilon=0.2, n_trials=60_000,
    )  # fmt: skip


def noise_on_groups(layout, records, delta):
    """Return counts of cells in two groups, between which a record moves or within one of which."""

    def run(data, epsilon, n, seed):
        release = HistogramRelease(layout, 2, 6, epsilon, delta)
        exact = release.values(*data)
        # The noise of all releases is drawn at once.
        release._noise._mechanism.n_coordinates = n * exact.size
        copies = np.broadcast_to(exact.ravel(), (n, exact.size))
        return release._noise.run(copies, make_source(seed)).reshape(n, *exact.shape)

    def ratio(outputs):
        # How many cells there are depends on epsilon; all records are in the last one of a group.
        last = outputs.reshape(len(outputs), 2, -1)[..., -1]
        return closer_to(([3.0, 2.0], [2.0, 3.0]), delta)(last)

    def numbers(outputs, data, epsilon):
        exact = HistogramRelease(layout, 2, 6, epsilon, delta).values(*data)
        return (outputs - exact).ravel()

    # A record that changes its group leaves one cell and comes to another.
    law = magnitude(math.sqrt(2.0) if delta else 2.0, delta)
    return Mechanism(
        run, records, law, numbers, ratio, delta, finds=0.25, epsilon=0.5, n_draws=3000
    )  # fmt: skip


def records_of(d):
    """Return six records at the upper corner, and the same but for the first one's group."""
    values, groups = np.ones((6, d)), np.array([0, 0, 0, 1, 1, -1])
    return (values, groups), (values, np.where(np.arange(6) == 0, 1, groups))


SHARES = {"a": 0.2, "b": 0.8}


def shares_of_a_budget(epsilon, seed):
    """Return the releases of a sketch, which has two shares of a budget for two sums."""
    multiplier = 1 / gaussian_mu(epsilon, DELTA)
    return SketchReleases(multiplier, SHARES, "add_remove", make_source(seed))


def sums(data, epsilon, n, seed):
    """Return two sums of vectors in a ball, in units in which their noise is equally large."""
    releases, bound = shares_of_a_budget(epsilon, seed), partial(ball_sum_sensitivity, radius=5000)
    return np.column_stack([
        releases.run(name, np.full(n, data, dtype=np.int64), bound) * math.sqrt(share)
        for name, share in SHARES.items()
    ])  # fmt: skip


def scaled_sums(data):
    return data * np.sqrt([*SHARES.values()])


def found_schema(epsilon):
    """Return the release of the schema of three columns."""
    generator = DPSinkhornGenerator(epsilon, DELTA, schema="auto")
    columns = pd.DataFrame({"a": [1], "b": ["x"], "c": [0.5]})[:0]
    release = generator._plan(generator._declared(100, columns)).release
    return replace(release, plan_sketch=None)


def counts_of_columns(data, epsilon, n, seed):
    """Return counts of three columns and of all records, in each of which a record is once."""
    release = found_schema(epsilon)
    releases = release.releases(make_source(seed))
    return releases.run("schema", np.tile(data, n), release.sensitivity).reshape(n, 4)


def new_labels(has_record, epsilon, n, seed, n_columns=2):
    """Return how many labels are found that only one record has, one in each of two columns."""
    # All of delta is for labels here: counts of other records are the same.
    deviation = math.sqrt(2) / gaussian_mu(epsilon, DELTA)
    noise = GaussianMechanism.from_noise_multiplier(
        deviation, 1.0, granularity=1.0, on_grid=True
    ).noise((n, 2), make_source(seed))
    found = 1 + noise >= label_threshold(deviation, n_columns, DELTA)
    return found.sum(axis=1) * has_record


# Choices
# -------


def bounded_ratio(data, epsilon, n, seed):
    """Return outputs that are as different as the mechanism allows."""
    mechanism, inputs = at_the_bounds(epsilon)
    weights = mechanism.integer_weights(inputs[data][None])
    return mechanism.draw(weights, make_source(seed).bits(62, (1, n)))[0]


def at_the_bounds(epsilon):
    """Return the mechanism, and the probabilities of two neighbours."""
    base = np.full(4, 1.0 / (math.exp(epsilon) + 3.0))
    inputs = np.where(np.eye(4)[:2] > 0, math.exp(epsilon) * base, base)
    return BoundedRatioMechanism(base, epsilon), inputs


RING = np.exp(2j * np.pi * np.arange(6) / 6).view(np.float64).reshape(6, 2)


def sampler(kind):
    """Return a sampler, of a user whose whole distribution is replaced."""

    def run(data, epsilon, n, seed):
        made = kind(epsilon, input_points=RING, random_state=seed % 2**32).fit(np.eye(6))
        return made.sample(data[None], n_samples=n)[0]

    def law(epsilon):
        return kind(epsilon, input_points=RING).fit(np.eye(6)).project(np.eye(6)[:1])[0]

    def numbers(outputs, data, epsilon):
        return outputs

    # Most users lose far less than the exponential mechanism claims for the worst.
    loose = kind is ExponentialMechanismSampler
    return Mechanism(
        run, (np.eye(6)[0], np.eye(6)[3]), law, numbers, finds=0.1 if loose else 0.3,
        planted={"a quarter of the noise": 4.0} if loose else {"half of the noise": 2.0},
        epsilon=2.0 if loose else 1.0, n_draws=100_000,
    )  # fmt: skip


def on_the_sphere(method):
    """Return the sampler of vectors, of a user at the other pole."""
    pole = np.array([0.6, 0.0, 0.8])

    def run(data, epsilon, n, seed):
        made = SphericalProjectionSampler(epsilon, method=method, random_state=seed % 2**32)
        return made.fit(pole[None]).sample(data[None], n_samples=n)[0]

    def law(epsilon):
        base = sphere_base_measure(3, epsilon)
        return lambda z: cap_mechanism_cdf(z, 3, epsilon, base.scale, base.threshold)

    def ratio(outputs):
        # The cap shrinks with epsilon; that of the middle one tells enough of all.
        threshold = sphere_base_measure(3, 1.0).threshold
        inside = ((1 - outputs @ pole) / 2 <= threshold).astype(float)
        return inside - ((1 + outputs @ pole) / 2 <= threshold)

    def numbers(outputs, data, epsilon):
        return (1 - outputs @ data) / 2

    return Mechanism(
        run, (pole, -pole), law, numbers, ratio, epsilon=2.0, n_draws=10_000, n_trials=3000,
    )  # fmt: skip


def score_of_a_choice():
    """Return the noisy score of the candidate that is chosen, of one with the score 7."""

    def run(data, epsilon, n, seed):
        release = ChoiceRelease(10, epsilon, declared(SCORES))
        source = make_source(seed)
        return np.array([release.run([data], source)[1] for _ in range(n)])

    def law(epsilon):
        release = ChoiceRelease(10, epsilon, declared(SCORES))
        run_epsilon = 1 / release.mechanism.noise_multiplier
        assert release.price(run_epsilon) == pytest.approx(epsilon, rel=1e-6)
        return expon(scale=SCORES / run_epsilon).cdf

    return Mechanism(run, (7, 7), law, planted={}, n_draws=8000, n_trials=0)


SCORES = 1000


def choice(scores, epsilon, n, seed, select=None):
    """Return which of two candidates is chosen, where a record exchanges their scores."""
    release, chosen = ChoiceRelease(10, epsilon, declared(4)), []
    source = make_source(seed)
    for _ in range(n):
        candidates = source.bits(1, release.draw_count(source))
        best = (select or release.run)([scores[at] for at in candidates], source)[0]
        chosen.append(int(candidates[best]))
    return np.array(chosen)


def first_best(scores, source):
    """Choose by the scores without noise: a bug."""
    return int(np.argmax(scores)), 0


# Networks
# --------

CAP, RANGE, ETA = 6.0, 4.0, 1.0
# Slopes of a node of two edges: one of them at either end of its range.
SLOPES = np.array([5.0, 3.0]), np.array([1.0, 3.0])


class Node:
    """A node in many copies, which talk to an adversary.

    It answers such that the next message is at one end of where utilities can move it, and the
    penalty follows what was sent.
    """

    def __init__(self, slopes, n):
        self.slopes, self.alpha, self.eta = slopes, np.zeros((n, 2)), np.full((n, 1), ETA)
        self.z = self._wanted()

    def _wanted(self):
        return np.array([-1.0, -3.0]) / self.eta

    def message(self):
        return project_rows(self.z + (self.slopes - self.alpha) / self.eta, CAP)

    def hear(self, sent):
        away = np.abs(sent).sum(axis=1, keepdims=True)
        previous = self.eta
        self.eta = ETA * np.where(away > 20, 2.0, np.where(away < 5, 0.5, 1.0))
        # With this answer, what the next message is the projection of is as wanted.
        share = previous / self.eta
        wanted = self._wanted() + self.alpha / self.eta
        answer = (wanted - (1 - share) / 2 * sent) / ((1 + share) / 2)
        self.z = (sent + answer) / 2
        self.alpha = self.alpha + previous / 2 * (sent - answer)


def message_noise(n, epsilon, delta, source, n_rounds=6, width=RANGE):
    return MessageReleases(
        epsilon, delta, n_rounds=n_rounds, degrees=[2] * n, utility_range=width, cap=CAP,
        source=make_source(source),
    )  # fmt: skip


def messages(slopes, epsilon, n, seed, delta=0.0, bug=None):
    """Return the messages of all rounds of a node, with one of several bugs."""
    source, node, sent = make_source(seed), Node(slopes, n), []
    # The rate as it is printed, rho beta / eta, is that of a sensitivity of eta / rho.
    width = ETA**2 / RANGE if bug == "rate" else RANGE
    noise = message_noise(n, epsilon, delta, source, width=width)
    # With Gaussian noise a budget per round hides long.
    for _ in range(40 if bug == "each round" and delta else 6):
        if bug == "each round":
            noise = message_noise(n, epsilon, delta, source, n_rounds=1)
        penalty = 8.0 if bug == "penalty" else node.eta[:, 0]
        sent.append(noise.run(node.message().ravel(), penalty).reshape(n, 2))
        node.hear(sent[-1])
    return np.stack(sent, axis=1)


def ratio_of_messages(outputs, delta):
    """Return the log-density ratio of transcripts, up to a factor of the rounds' scales."""
    n, total = len(outputs), 0.0
    nodes = [Node(slopes, n) for slopes in SLOPES]
    for sent in np.moveaxis(outputs, 1, 0):
        scale = message_noise(n, 1.0, delta, 0).standard_deviations(nodes[0].eta[:, 0])
        away = [np.linalg.norm(sent - node.message(), axis=1) / scale for node in nodes]
        total = total + (away[1] ** 2 - away[0] ** 2 if delta else away[1] - away[0])
        for node in nodes:
            node.hear(sent)
    return total


def rounds_of_messages(delta):
    def law(epsilon):
        # Six rounds share the budget. The noise on a vector of two has a Gamma length.
        bound = message_sensitivity(ETA, RANGE, CAP, 2)
        if delta:
            return halfnorm(scale=math.sqrt(6) * bound / gaussian_mu(epsilon, delta)).cdf
        return gamma(2, scale=6 * bound / epsilon).cdf

    def numbers(outputs, data, epsilon):
        noise = outputs[:, 0] - Node(data, len(outputs)).message()
        return noise.ravel() if delta else np.linalg.norm(noise, axis=1)

    bugs = ("rate", "each round", "penalty")
    return Mechanism(
        partial(messages, delta=delta), SLOPES, law, numbers,
        partial(ratio_of_messages, delta=delta), delta=delta,
        planted={bug: partial(messages, delta=delta, bug=bug) for bug in bugs},
        epsilon=0.5, finds=0.1, n_draws=12_000, is_slow=True,
    )  # fmt: skip


def utilities(kind, protect):
    """Return a node of three edges; a bug is to spend the budget once for each of them."""
    theirs = np.array([1.0, 1.0, 1.0]) if protect == "node" else np.array([1.0, 5.0, 5.0])
    width = 12.0 if protect == "node" else 4.0

    def run(data, epsilon, n, seed):
        node = kind(epsilon, low=1.0, high=5.0, degrees=[3] * n, protect=protect)
        return node.run(np.tile(data, n), make_source(seed)).reshape(n, 3)

    def levels(epsilon):
        # A node that protects one parameter answers for each edge, with two levels at epsilon 1.
        return np.array([1.0, math.exp(epsilon)]) / (1 + math.exp(epsilon))

    of_levels = kind is UtilityResponse
    law = magnitude(width) if not of_levels else levels if protect == "parameter" else None

    def numbers(outputs, data, epsilon):
        return outputs.ravel() if of_levels else (outputs - data).ravel()

    def ratio(outputs):
        return outputs.sum(axis=1) if protect == "node" else outputs[:, 0]

    return Mechanism(
        run, (np.full(3, 5.0), theirs), law, numbers, ratio,
        planted={"a budget for each edge": 3.0}, n_draws=8000,
    )  # fmt: skip


# Estimators
# ----------


def differ(x, y):
    """Return 1 for different points: the filler of empty groups is as far from all as can be."""
    return float((x != y).any())


def distance(
    *sizes, private_labels=False, delta=0.0, sensitivity=None, epsilon=1.0, is_slow=False, **params
):
    """Return distances between groups at two ends, where a record goes to the other end or group.

    With private labels all other records are in no group, and so groups are filled up with what is
    far from all records.
    """
    y = np.repeat(np.arange(len(sizes)), sizes)
    # In three dimensions, the grid of so few records is the same for all epsilons.
    n_features = 3 if "mechanism" in params else 1
    X = np.repeat((y > 0).astype(float)[:, None], n_features, axis=1)
    options = {"bounds": (0, 1), "metric": differ, "cost_range": (0, 1), "delta": delta}
    other_X, other_y = X.copy(), y.copy()
    if private_labels:
        X, other_X, y = np.ones_like(X), np.ones_like(X), np.where(y == 0, 0, -1)
        other_y = np.where(np.arange(len(y)) == 0, 1, y)
        options |= {"labels": "private", "groups": [*range(len(sizes))], "min_group_size": sizes}
    else:
        other_X[0] = 1.0
    estimator = PrivateSinkhornDistance(**options | params)
    pair = (X, y), (other_X, other_y)

    # An attack asks for the same values many times.
    @cache
    def values_of(which, epsilon):
        plan = distance_releases.plan(clone(estimator).set_params(epsilon=epsilon), *pair[which])
        return plan[0], distance_releases.exact_values(*plan)[0]

    def values(data, epsilon):
        return values_of([one is data for one in pair].index(True), epsilon)

    def run(data, epsilon, n, seed):
        release, exact = values(data, epsilon)
        return distance_releases.noisy_values(release, exact, n, seed)

    def numbers(outputs, data, epsilon):
        release, exact = values(data, epsilon)
        # Costs, not counts, are released in units of what a record moves them by.
        units = 1.0 if "mechanism" in params else release.sensitivities
        return ((outputs - exact) * units).ravel()

    def ratio(outputs):
        return closer_to([values(data, 1.0)[1] for data in pair], delta)(outputs)

    law = magnitude(sensitivity, delta) if sensitivity else None
    return Mechanism(
        run, pair, law, numbers, ratio, delta=delta, epsilon=epsilon,
        n_draws=4000 if "mechanism" in params else 20_000, n_trials=20_000, is_slow=is_slow,
    )  # fmt: skip


LINE = FrozenEstimator(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))


def fair_predictions(n_first, epsilon, n, seed, delta=0.0):
    """Return the weights of two groups, where a record changes its group and its score."""
    groups, found = np.repeat([0.0, 1.0], [n_first, 101 - n_first]), []
    for random_state in np.random.SeedSequence(seed).generate_state(n):
        fair = FairBarycenterRegressor(
            LINE, sensitive_features=1, sensitive_in_estimator=False, epsilon=epsilon, delta=delta,
            bounds=(0, 1), groups=[0, 1], n_quantiles=2, random_state=int(random_state),
        )  # fmt: skip
        fair.fit(np.column_stack([groups, groups]), groups)
        found.append(fair.group_weights_[0])
    return np.array(found)


def counts_of_predictions(delta):
    """Return the counts of which fair predictions are made; a record changes its group."""
    pair = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 1.0]])

    def run(data, epsilon, n, seed):
        fair = FairBarycenterRegressor(
            LINE, sensitive_features=1, sensitive_in_estimator=False, epsilon=epsilon, delta=delta,
            bounds=(0, 1), groups=[0, 1], n_quantiles=2,
        )  # fmt: skip
        rows = fair._validate(np.zeros((60, 2)), np.zeros(60), None, {})
        release = fair._plan(rows).release
        release._mechanism.n_coordinates = n * data.size
        return release.run(np.broadcast_to(data, (n, *data.shape)), make_source(seed))

    law = magnitude(math.sqrt(2.0) if delta else 2.0, delta)
    # Noise that is so large does not show that it is rounded.
    return Mechanism(
        run, pair, law, ratio=closer_to(pair, delta), delta=delta, epsilon=0.2, n_trials=60_000
    )  # fmt: skip


def unchanged(outputs):
    return outputs


# Trainings
# ---------


def step_of_a_training(way, **options):
    """Return a step with a record that is far from all points, or without it."""
    from tests.oracles import generator_steps as steps

    # Steps take long, and all workers collect this file.
    @cache
    def step(has_record, **clip):
        records = [steps.NEAR, steps.FAR] if has_record else [steps.NEAR]
        return steps.values_of(way, records, **clip)

    def values(has_record, **clip):
        return step(has_record, **clip)[0]

    def law(epsilon):
        return magnitude(step(False)[1], DELTA)(epsilon)

    def ratio(outputs):
        return closer_to((values(True), values(False)), DELTA)(outputs)

    def run(has_record, epsilon, n, seed, **clip):
        rows = np.tile(values(has_record, **clip), (n, 1))
        multiplier = 1 / gaussian_mu(epsilon, DELTA)
        return steps.with_noise(rows, multiplier, step(False)[1], make_source(seed), **options)

    def numbers(outputs, has_record, epsilon):
        return (outputs - values(has_record)).ravel()

    # Without a clip, the noise is for steps with one.
    planted = {"half of the noise": 2.0, "no clip": partial(run, clip_norm=1.0)}
    return Mechanism(
        run, (True, False), law, numbers, ratio, DELTA, planted,
        n_draws=2000, n_trials=30_000, is_slow=True,
    )  # fmt: skip


def whole_training(way, neighbouring, n_steps=80):
    """Return the noise of all steps, which have the budget together."""
    from tests.oracles.generator_steps import noise_of_training

    def run(data, epsilon, n, seed):
        return noise_of_training(way, neighbouring, epsilon, 1e-5, n_steps, seed)

    return Mechanism(
        run, (None, None), magnitude(math.sqrt(n_steps), 1e-5),
        lambda outputs, data, epsilon: outputs, planted={}, epsilon=4.0, n_trials=0,
    )  # fmt: skip


def rows_of_trainings():
    import torch

    # Without a GPU, noise that it would be sent from the CPU cannot be tried.
    on_gpu = [False, True] if torch.cuda.is_available() else [False]
    return {
        **{f"step of a training, {way}": step_of_a_training(way) for way in WAYS},
        **{
            f"step of a training, on a GPU, secure: {secure}": step_of_a_training(
                "per record", on_gpu=True, secure=secure
            )
            for secure in on_gpu
        },
        **{f"training, {way}": whole_training(way, "add_remove") for way in WAYS},
        "training, a record replaced": whole_training("per record", "replace_one"),
    }


WAYS = ("per image", "per record")
MECHANISMS = {
    "Laplace noise": noise_on(0.0, 1),
    "Laplace noise on a vector": noise_on(0.0, 5),
    "Gaussian noise": noise_on(DELTA, 1),
    "Gaussian noise on a vector": noise_on(DELTA, 5),
    "Laplace noise on counts": noise_on_counts(0.0),
    "Gaussian noise on counts": noise_on_counts(DELTA),
    "Laplace noise on groups": noise_on_groups(UnitLayout((0,), ()), records_of(1), 0.0),
    "Gaussian noise on groups": noise_on_groups(UnitLayout((0, 0), ()), records_of(2), DELTA),
    "sums that share a budget": Mechanism(
        sums, (0, 5000), magnitude(5000.0, DELTA),
        lambda outputs, data, epsilon: outputs.ravel(),
        closer_to((scaled_sums(0), scaled_sums(5000)), DELTA), delta=DELTA,
    ),
    "counts of a found schema": Mechanism(
        counts_of_columns, (np.zeros(4, int), np.ones(4, int)), magnitude(2.0, 0.9 * DELTA),
        ratio=closer_to((np.zeros(4), np.ones(4)), DELTA), delta=DELTA, epsilon=0.2,
        n_draws=5000, n_trials=40_000,
    ),
    # With much noise, its rounding leaves little of delta.
    "labels of a found schema": Mechanism(
        new_labels, (True, False), ratio=lambda outputs: outputs, delta=DELTA, finds=0.0,
        planted={"delta is not divided": partial(new_labels, n_columns=1)}, epsilon=0.02,
    ),
    "bounded ratio": Mechanism(
        bounded_ratio, (0, 1), lambda epsilon: at_the_bounds(epsilon)[1][0],
        lambda outputs, data, epsilon: outputs, finds=0.6,
    ),
    "Wasserstein projection": sampler(WassersteinProjectionSampler),
    "KL projection": sampler(KLProjectionSampler),
    "exponential mechanism of a sampler": sampler(ExponentialMechanismSampler),
    "sphere, rejection": on_the_sphere("rejection"),
    "sphere, direct": on_the_sphere("direct"),
    "score of a choice": score_of_a_choice(),
    "choice among a random number": Mechanism(
        choice, ((4, 0), (0, 4)), finds=0.0, n_trials=1500,
        planted={"no noise": partial(choice, select=first_best), "a fifth of the noise": 5.0},
    ),
    "messages, spherical noise": rounds_of_messages(0.0),
    "messages, Gaussian noise": rounds_of_messages(DELTA),
    **{
        f"{kind.__name__}, {protect}": utilities(kind, protect)
        for kind in (UtilityNoise, UtilityResponse)
        for protect in ("parameter", "node")
    },
    # A record has a share of 1 / 20 of the smaller group.
    "distance": distance(20, 30, sensitivity=1 / 20),
    "distance, Gaussian noise": distance(20, 30, delta=DELTA, sensitivity=1 / 20),
    # With so much regularisation, a record changes the divergence by twice as much as the cost.
    "distance, debiased": distance(
        20, 30, reg=50.0, divergence="sinkhorn", sensitivity=2 / 20, is_slow=True
    ),
    "distance, private labels": distance(20, 20, private_labels=True, sensitivity=2 / 20),
    "distance, private labels, debiased, Gaussian noise": distance(
        20, 20, private_labels=True, reg=50.0, divergence="sinkhorn", delta=DELTA,
        sensitivity=4 / 20, is_slow=True,
    ),
    # A record takes part in the distances to two other groups.
    "distance, three groups": distance(20, 20, 20, sensitivity=2 / 20, is_slow=True),
    "distance, histogram": distance(6, 4, mechanism="histogram", sensitivity=2, epsilon=0.2),
    "distance, histogram, Gaussian noise": distance(
        6, 4, mechanism="histogram", delta=DELTA, sensitivity=math.sqrt(2), epsilon=0.2
    ),
    "distance, histogram, private labels": distance(
        6, 4, private_labels=True, mechanism="histogram"
    ),
    "counts of predictions": counts_of_predictions(0.0),
    "counts of predictions, Gaussian noise": counts_of_predictions(DELTA),
    "fair predictions": Mechanism(
        fair_predictions, (51, 50), ratio=unchanged, planted={"an eighth of the noise": 8.0},
        finds=0.0, n_trials=400, is_slow=True,
    ),
    "fair predictions, Gaussian noise": Mechanism(
        partial(fair_predictions, delta=DELTA), (51, 50), ratio=unchanged, delta=DELTA,
        planted={"a fraction of the noise": 8.0}, finds=0.0, n_trials=400, is_slow=True,
    ),
}  # fmt: skip
# Without PyTorch there are no trainings.
if find_spec("torch"):
    MECHANISMS |= rows_of_trainings()
BUGS = [(name, bug) for name, row in MECHANISMS.items() for bug in row.planted]
EPSILONS = [1.0, 0.5, 4.0]
CONFIDENCE = 1 - 0.05 / (len(MECHANISMS) * len(EPSILONS) + len(BUGS))


def of_rows(cases, quick=lambda *case: True):
    """Return parameters of a test, of which slow rows and all that is not quick are long tests."""
    return [
        pytest.param(*case, marks=pytest.mark.experiment)
        if MECHANISMS[case[0]].is_slow or not quick(*case)
        else case
        for case in cases
    ]


def p_value(outputs, law, rng):
    """Return the p-value of numbers, or of outputs, if this were their law."""
    if callable(law):
        # Integers stand for all numbers that are rounded to them.
        size, half = np.abs(outputs), 0.5 * (outputs == np.rint(outputs)).all()
        low, high = law(np.maximum(size - half, 0.0)), law(size + half)
        return kstest(rng.uniform(low, high), "uniform").pvalue
    counts = np.bincount(outputs, minlength=len(law))
    return chisquare(counts, law / law.sum() * len(outputs)).pvalue


@pytest.mark.parametrize("name", [name for name, row in MECHANISMS.items() if row.law])
def test_noise_has_this_scale_and_no_other(name, seed, rng):
    row = MECHANISMS[name]
    data = row.neighbours[0]
    outputs = row.run(data, row.epsilon, row.n_draws, seed % 2**32)
    found = row.numbers(outputs, data, row.epsilon)
    for share, fits in ((0.9, False), (1.0, True), (1.1, False)):
        assert (p_value(found, row.law(row.epsilon / share), rng) > RARE) == fits, share


def bound(name, claim, seed, bug=None):
    """Return the lower bound on epsilon that an attack proves, of a mechanism or of a bug."""
    row = MECHANISMS[name]
    run, spent = row.run, claim
    if callable(bug):
        run = bug
    elif bug is not None:
        spent = bug * claim

    def release(data, n_trials, random_state):
        return run(data, spent, n_trials, random_state)

    return audit(
        release, *row.neighbours, delta=row.delta, n_trials=row.n_trials, vectorized=True,
        confidence=CONFIDENCE, log_density_ratio=row.ratio, random_state=seed % 2**32,
    ).epsilon_lower  # fmt: skip


ATTACKED = [(name, e) for name, row in MECHANISMS.items() if row.n_trials for e in EPSILONS]


@pytest.mark.parametrize(
    "name, epsilon", of_rows(ATTACKED, lambda name, epsilon: epsilon == EPSILONS[0])
)
def test_no_attack_refutes_the_claim(name, epsilon, seed):
    found = bound(name, epsilon, seed)
    assert found <= epsilon
    # An attack that is made for this epsilon comes near to it.
    assert epsilon != EPSILONS[0] or found >= MECHANISMS[name].finds


@pytest.mark.parametrize("name, bug", of_rows(BUGS))
def test_the_same_attack_finds_what_is_planted(name, bug, seed):
    row = MECHANISMS[name]
    assert bound(name, row.epsilon, seed, row.planted[bug]) > row.epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_weights_that_are_drawn_from_keep_the_claim_exactly(epsilon):
    mechanism, inputs = at_the_bounds(epsilon)
    result = exact_audit(mechanism.integer_weights(inputs))
    assert not result.exceeds(epsilon)
    assert result.epsilon == pytest.approx(epsilon, rel=1e-12)
