"""Steps of training: clipping, noise, how far a record moves them, and what else leaves them."""

import math

import numpy as np
import pytest
import torch

from skdpot import PrivacyLedger
from skdpot.generative._torch import training
from skdpot.generative._torch.steps import NoisyGradients, _exact_sum, clip_rows, clip_whole
from skdpot.privacy.events import CentredGaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from skdpot.privacy.noise import GaussianMechanism, NoiseSource, make_source, poisson_sample
from tests.oracles.devices import DEVICES
from tests.oracles.generator_steps import WAYS, batch_of, make_step, vector_for
from tests.oracles.gradient_generators import make_gradient_generator

pytestmark = pytest.mark.experiment

DTYPES = [torch.float32, torch.float64]
RELATIONS = ["add_remove", "replace_one"]
# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4
by_way = pytest.mark.parametrize("way", WAYS)
by_labels = pytest.mark.parametrize("n_classes", [0, 2])


def public_of(step):
    """Return all that a step leaves behind, but for the loss."""
    network = step._network
    return [
        *(parameter.grad for parameter in network.parameters()),
        *network.state_dict().values(),
        *(value for name, value in vars(step).items() if name in ("_mean_count", "_n_steps")),
        step._generator.get_state(),
    ]


# Clipping
# --------


def exact_norm(vector):
    """Return the norm of a tensor, in doubles whose sum of squares is rounded once."""
    numbers = vector.detach().double().reshape(-1).tolist()
    largest = max(map(abs, numbers), default=0.0)
    if largest == 0:
        return 0.0
    return largest * math.sqrt(math.fsum((x / largest) ** 2 for x in numbers))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("clip_norm", [1e-30, 1e-3, 0.5, 7.0, 1e30])
@pytest.mark.parametrize("size", [(1, 1), (5, 3), (50, 784)])
def test_nothing_is_longer_than_the_clip_norm(device, dtype, clip_norm, size, rng):
    for scale in (1e-40, 1e-3, 1.0, 1e3, 1e37):
        rows = torch.tensor(rng.standard_normal(size) * scale, dtype=dtype, device=device)
        assert exact_norm(clip_whole(rows, clip_norm)) <= clip_norm
        assert max(map(exact_norm, clip_rows(rows, clip_norm))) <= clip_norm


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_short_stays_as_it_is_and_what_is_long_keeps_its_direction(dtype, rng):
    rows = torch.tensor(rng.standard_normal((4, 3)), dtype=dtype)
    rows = rows / rows.norm(dim=1, keepdim=True) * torch.tensor([[0.1], [0.9], [2.0], [50.0]])
    found = clip_rows(rows, 1.0)
    assert found.dtype == dtype or found.dtype == torch.float64
    torch.testing.assert_close(found[:2].double(), rows[:2].double(), rtol=0, atol=0)
    expected = rows[2:] / rows[2:].norm(dim=1, keepdim=True)
    torch.testing.assert_close(found[2:].double(), expected.double(), rtol=1e-5, atol=0)
    whole = clip_whole(rows, 1.0)
    torch.testing.assert_close(whole.double(), (rows / rows.norm()).double(), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_no_number_is_clipped_like_any_other(dtype):
    odd = torch.tensor([[math.nan, 3.0], [math.inf, 1.0], [-math.inf, math.nan]], dtype=dtype)
    rows = clip_rows(odd, 1.0).double()
    expected = torch.tensor([0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(rows[0], expected, rtol=1e-5, atol=0)
    assert max(map(exact_norm, rows)) <= 1.0
    assert exact_norm(clip_whole(odd, 1.0)) <= 1.0
    assert clip_whole(torch.full((3, 2), math.nan, dtype=dtype), 1.0).abs().sum() == 0.0


def test_an_infinite_norm_clips_nothing():
    rows = torch.tensor([[1e30, -2.0]])
    assert torch.equal(clip_rows(rows, math.inf), rows)
    assert torch.equal(clip_whole(rows, math.inf), rows)


# Noise
# -----


def make_release(multiplier, sensitivity, n_coordinates, source, *, device="cpu", secure=False):
    mechanism = GaussianMechanism.from_noise_multiplier(
        multiplier, sensitivity, n_coordinates=n_coordinates
    )
    return NoisyGradients(mechanism, source, torch.device(device), secure), mechanism


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("secure", [False, True])
def test_what_is_released_lies_on_a_grid_that_tells_no_last_bits(device, secure, rng):
    """What is not on the grid would tell which values could have been there before."""
    values = torch.tensor(rng.standard_normal(500), device=device)
    # What is no number is released as one.
    values[0] = math.nan
    release, mechanism = make_release(1.0, 2.0, 500, make_source(0), device=device, secure=secure)
    (noisy,) = release([values])
    assert noisy.isfinite().all() and ((noisy / mechanism.granularity) % 1 == 0).all()


def test_parts_are_one_vector_with_one_noise():
    """The noise of each coordinate is its own, in whatever part that is."""
    release, mechanism = make_release(1.0, 1.0, 7, make_source(5))
    noisy = release([torch.zeros(2, 2), torch.tensor(0.0), torch.zeros(2)])
    together = torch.cat([part.reshape(-1) for part in noisy]).numpy()
    expected = mechanism.release(np.zeros(7), make_source(5))
    np.testing.assert_array_equal(together, expected)
    assert len(set(together)) == 7


def test_noise_is_drawn_anew_for_every_release_and_from_a_cryptographic_source():
    class Counted(NoiseSource):
        seeded = False

        def __init__(self, inner):
            self.inner = inner
            self.n_drawn = 0

        def for_user(self, index):
            raise NotImplementedError

        def _words(self, count):
            self.n_drawn += count
            return self.inner._words(count)

    source = Counted(make_source())
    release, _ = make_release(1.0, 1.0, 100, source)
    first, second = release([torch.zeros(100)])[0], release([torch.zeros(100)])[0]
    assert source.n_drawn >= 200
    assert not (first == second).any()


def test_a_longer_vector_than_was_accounted_for_is_refused():
    release, _ = make_release(1.0, 1.0, 3, make_source(0))
    with pytest.raises(ValueError, match="n_coordinates=3"):
        release([torch.zeros(4)])


def test_gradients_do_not_flow_through_a_release():
    release, _ = make_release(1.0, 1.0, 3, make_source(0))
    values = torch.zeros(3, requires_grad=True)
    assert not release([values])[0].requires_grad


# Sensitivity
# -----------


class Search:
    """A search for neighbouring batches whose vectors are as far apart as possible.

    Distances are in units of the declared sensitivity.
    """

    def __init__(self, way, neighbouring, n_classes, l1_weight, rng):
        self._way, self._neighbouring, self._rng = way, neighbouring, rng
        self._options = {
            "n_classes": n_classes,
            "l1_weight": l1_weight,
            "neighbouring": neighbouring,
            "batch_size": 3,
        }

    def farthest(self, n_random, n_climbing):
        candidates = [self._opposite(), *(self._random() for _ in range(n_random))]
        distances = [self._distance(*candidate) for candidate in candidates]
        largest = max(distances)
        where = candidates[distances.index(largest)]
        for _ in range(n_climbing):
            records, options = where
            moved = records + self._rng.normal(0, 0.1, records.shape)
            nearby = moved.clip(-1, 1), options
            distance = self._distance(*nearby)
            if distance > largest:
                largest, where = distance, nearby
        return largest

    def _opposite(self):
        """Return records on either side of all generated points, one near and one far."""
        records = np.array([[-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
        clip_norm = 0.05 if self._way == "per record" else 1e-3
        return records, {"centre": -0.9, "spread": 0.0, "clip_norm": clip_norm, "reg": 0.5}

    def _random(self):
        rng = self._rng
        records = rng.uniform(-1, 1, (rng.integers(2, 6), 2))
        if rng.random() < 0.5:
            records = np.sign(records)
        return records, {
            "centre": rng.choice([-1.0, -0.9, 0.0]),
            "spread": rng.choice([0.0, 0.3, 2.0]),
            "reg": rng.choice([1e-30, 1e-3, 0.05, 0.5, 10.0, 1e30]),
            "clip_norm": rng.choice([1e-3, 0.05, 1.0, 100.0]),
            "seed": int(rng.integers(100)),
        }

    def _distance(self, records, options):
        """Return the distance for batches that share all records but the last two."""
        labels = np.zeros(len(records), dtype=int) if self._options["n_classes"] else None
        shared = [*range(len(records) - 2)]
        one = [*shared, len(records) - 2]
        other = [*shared, len(records) - 1] if self._neighbouring == "replace_one" else shared
        vectors = []
        for rows in (one, other):
            codes = None if labels is None else labels[rows]
            vector, made = vector_for(self._way, records[rows], codes, **self._options, **options)
            # As the noise takes it.
            vectors.append(np.where(np.isnan(vector), 0.0, vector))
        return np.linalg.norm(vectors[0] - vectors[1]) / made.sensitivity


@by_way
@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize("n_classes, l1_weight", [(0, 0.0), (0, 1.0), (2, 0.0), (2, 1.0)])
def test_no_record_moves_the_vector_further_than_declared_and_some_do_as_far(
    way, neighbouring, n_classes, l1_weight, rng
):
    """A record may turn all of a clipped gradient, and move the loss over the whole of its range.

    In sums over records, where one is replaced, the declared sensitivity is that of both terms,
    though they have the same count and no opposite losses.
    """
    search = Search(way, neighbouring, n_classes, l1_weight, rng)
    largest = search.farthest(n_random=5, n_climbing=3)
    assert 0.97 < largest <= 1.0


@by_way
@by_labels
def test_an_empty_batch_has_a_vector_of_zeros_and_is_a_neighbour_like_others(way, n_classes):
    nobody = [] if n_classes else None
    for reg in (1e-30, 0.5, 1e30):
        options = {"n_classes": n_classes, "l1_weight": 1.0, "reg": reg, "centre": -0.9}
        empty, vector = vector_for(way, np.zeros((0, 2)), nobody, **options)
        np.testing.assert_array_equal(np.where(np.isnan(empty), 0.0, empty), 0.0)
        record, _ = vector_for(way, [[1.0, -1.0]], [1] if n_classes else None, **options)
        record = np.where(np.isnan(record), 0.0, record)
        assert 0 < np.linalg.norm(record - empty) <= vector.sensitivity


@by_way
@by_labels
def test_vectors_have_one_length_whatever_the_batch(way, n_classes, rng):
    lengths = set()
    for size in (0, 1, 4, 300):
        step, _, recorder = make_step(way, n_classes=n_classes)
        labels = rng.integers(0, n_classes, size) if n_classes else None
        step.backpropagate(batch_of(rng.uniform(-1, 1, (size, 2)), labels))
        lengths.add(len(recorder.vectors[0]))
    assert lengths == {step.vector_size}


@by_way
def test_a_loss_and_a_gradient_without_bounds_are_released_within_theirs(way):
    """Costs beyond the range of single precision, and a network that fails."""

    class Fails(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, inputs):
            return inputs[:, :2] * self.weight * math.nan

    for options in ({"network": Fails()}, {"reg": 1e-44}, {"l1_weight": 1e9}):
        for records in ([[1.0, 1.0]], [[1.0, -1.0]] * 5):
            found, vector = vector_for(way, records, **options)
            found = np.where(np.isnan(found), 0.0, found)
            one_each = len(records) if way == "per record" else 1
            assert np.linalg.norm(found) <= one_each * vector.sensitivity


# Sums over records
# -----------------

SUMS = {
    "plain": {},
    "labels": {"n_classes": 3},
    "more classes than points": {"n_classes": 9, "batch_size": 2},
    "one point": {"batch_size": 1},
    "many points": {"batch_size": 300},
    "l1": {"l1_weight": 1.0},
    "l1, a weight with an endless fraction": {"l1_weight": 1 / 3, "n_classes": 3},
    "a large weight": {"l1_weight": 1e3 / 7},
    "little regularisation": {"reg": 1e-30, "spread": 2.0},
    "much regularisation": {"reg": 1e30},
    "a small norm": {"clip_norm": 1e-3},
    "a large norm": {"clip_norm": 1e6},
    "images": {"n_features": 784, "batch_size": 20, "reg": 30.0, "clip_norm": 19.6},
    "images, l1": {"n_features": 784, "batch_size": 20, "reg": 30.0, "l1_weight": 0.7},
}


def records_like(options, size, rng):
    points = rng.uniform(-1, 1, (size, options.get("n_features", 2))).astype(np.float32)
    points[::5] = np.sign(points[::5])
    labels = rng.integers(0, options["n_classes"], size) if "n_classes" in options else None
    return points, labels


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", SUMS)
def test_one_record_moves_sums_by_its_own_terms_to_the_last_bit(case, device, rng):
    """Whatever the others are, how many, and in which order."""
    options = SUMS[case] | {"device": device}
    points, labels = records_like(options, 80, rng)

    def sums(rows):
        step, _, recorder = make_step("per record", **options)
        codes = None if labels is None else labels[rows]
        step.backpropagate(batch_of(points[rows], codes, device))
        return recorder.vectors[0].cpu().numpy()

    everyone = np.arange(len(points))
    total = sums(everyone)
    assert np.isfinite(total).all()
    np.testing.assert_array_equal(sums(rng.permutation(everyone)), total)
    for size in (1, 2, 17, 64):
        left_out = rng.choice(everyone, size, replace=False)
        rest = np.setdiff1d(everyone, left_out)
        np.testing.assert_array_equal(total - sums(rest), sums(left_out))
    for row in rng.choice(everyone, 2, replace=False):
        rest = np.setdiff1d(everyone, [row])
        np.testing.assert_array_equal(total - sums(rest), sums([row]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("l1_weight", [0.0, 1 / 3])
def test_sums_over_very_many_records_are_as_exact(l1_weight, device):
    """A record many times over is the same terms many times over."""
    record, count = np.array([[1.0, -0.123456789]]), 1 << 17
    options = {"l1_weight": l1_weight, "batch_size": 5, "device": device}

    def sums(records):
        step, _, recorder = make_step("per record", **options)
        step.backpropagate(batch_of(records, device=device))
        return recorder.vectors[0].cpu().numpy()

    once = sums(record)
    np.testing.assert_array_equal(sums(np.repeat(record, count, axis=0)), count * once)
    np.testing.assert_array_equal(sums(np.repeat(record, count + 1, axis=0)), (count + 1) * once)


@pytest.mark.parametrize("device", DEVICES)
def test_sums_of_blocks_are_moved_to_what_doubles_hold(device):
    """As exact integers; what is moved there comes no further apart."""
    largest = 2.0**53
    parts = torch.tensor([largest, -largest, 3.0, largest - 1, 1.0], dtype=torch.float64)
    parts = parts.to(device)[:, None] * 2.0**-30
    assert _exact_sum(parts[:3], 2.0**-30).item() == 3 * 2.0**-30
    assert _exact_sum(parts[3:], 2.0**-30).item() == largest * 2.0**-30
    for sign in (1, -1):
        for count in (2, 3, 5000):
            moved = _exact_sum([sign * parts[0]] * count, 2.0**-30)
            assert moved.item() == sign * largest * 2.0**-30


@pytest.mark.parametrize("l1_weight", [0.0, 1 / 3])
@by_labels
def test_each_record_is_clipped(l1_weight, n_classes, rng):
    """Every term is within what is declared for one record, gradient, count and loss each."""
    for _ in range(20):
        options = {
            "clip_norm": rng.choice([0.02, 0.3, 4.0]),
            "reg": rng.choice([1e-3, 0.5, 50.0]),
            "spread": rng.choice([0.0, 1.0, 5.0]),
            "seed": int(rng.integers(100)),
        }
        labels = [0] if n_classes else None
        record = np.sign(rng.uniform(-1, 1, (1, 2)))
        found, vector = vector_for(
            "per record", record, labels, n_classes=n_classes, l1_weight=l1_weight, **options
        )
        assert np.linalg.norm(found[:8]) <= options["clip_norm"]
        assert np.linalg.norm(found[8:-1]) <= vector.count_weight
        assert 0 <= found[-1] <= vector.loss_weight


# Nothing else
# ------------


class Given:
    """Takes the place of noise: releases numbers that a test has chosen, whatever the records."""

    def __init__(self, *_, seed=0, **__):
        self._rng = np.random.default_rng(seed)

    def __call__(self, parts):
        return [torch.tensor(self._rng.standard_normal(part.shape)) for part in parts]


def batches(n_classes, rng):
    for size in (0, 1, 7, 200):
        labels = rng.integers(0, n_classes, size) if n_classes else None
        yield batch_of(rng.uniform(-1, 1, (size, 2)), labels)
    yield batch_of([[1.0, -1.0]] * 3, [0] * 3 if n_classes else None)


@by_way
@by_labels
def test_what_a_step_leaves_is_a_function_of_what_was_released(way, n_classes, rng):
    """Gradients, the loss, the network, its state, and the state of public randomness."""
    left = []
    for batch in batches(n_classes, rng):
        step, _, _ = make_step(way, n_classes=n_classes, l1_weight=1.0, release=Given())
        losses = [step.backpropagate(batch) for _ in range(2)]
        left.append([*losses, *public_of(step)])
    for other in left[1:]:
        for one, two in zip(left[0], other, strict=True):
            assert one.dtype == two.dtype
            assert torch.equal(one, two)


@by_way
def test_a_step_releases_once(way):
    step, _, recorder = make_step(way)
    for n_steps in (1, 2):
        step.backpropagate(batch_of([[0.5, 0.5]]))
        assert len(recorder.vectors) == n_steps


@by_way
def test_what_has_not_gone_through_the_noise_is_on_no_gradient(way):
    """Not even if the noise fails: the network is the caller's."""

    class Broken(Exception):
        pass

    def fails(parts):
        raise Broken

    step, _, _ = make_step(way, release=fails)
    with pytest.raises(Broken):
        step.backpropagate(batch_of([[1.0, 1.0]]))
    assert all(parameter.grad is None for parameter in step._network.parameters())


# Whole trainings
# ---------------


def contents(thing):
    """Return all that can be reached of a fitted attribute, as plain values in order."""
    if isinstance(thing, torch.nn.Module):
        gradients = [p.grad for p in thing.parameters()]
        return contents([vars(thing).get("training"), thing.state_dict(), gradients])
    if isinstance(thing, torch.Tensor):
        return [str(thing.dtype), thing.detach().cpu().numpy().tobytes()]
    if isinstance(thing, np.ndarray):
        return [str(thing.dtype), thing.tobytes()]
    if isinstance(thing, dict):
        return [part for item in thing.items() for part in contents(item)]
    if isinstance(thing, list | tuple):
        return [part for item in thing for part in contents(item)]
    return [repr(thing)]


@by_way
@pytest.mark.parametrize("labelled", [False, True])
def test_a_fitted_generator_is_a_function_of_what_was_released(way, labelled, monkeypatch):
    """Whatever the records, how many, and how often they were sampled: to the last bit."""
    monkeypatch.setattr(NoisyGradients, "_with_noise", lambda self, values: self.given.draw(values))
    left = []
    for size, low, high in ((1, 0, 1), (30, 0, 1), (30, -5, 0), (7, 1, 1e300)):
        rng = np.random.default_rng(size)
        X = rng.uniform(size=(size, 3)) * (high - low) + low
        y = rng.integers(0, 3, size) if labelled else None
        monkeypatch.setattr(NoisyGradients, "given", Drawn(), raising=False)
        generator = make_gradient_generator(
            gradient=WAYS[way],
            classes=[0, 1, 2] if labelled else None, n_iter=4,
            sampling_rate=0.5, noise_multiplier=20.0, batch_size=5, random_state=0,
        ).fit(X, y)  # fmt: skip
        left.append(contents(vars(generator)))
    assert all(other == left[0] for other in left[1:])


class Drawn:
    """Numbers in the place of what is released."""

    def __init__(self):
        self._rng = np.random.default_rng(7)

    def draw(self, values):
        return torch.tensor(self._rng.standard_normal(len(values)))


def short_of_memory(*_):
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: tried to allocate 4711 bytes.")


@by_way
def test_memory_that_is_short_in_a_step_tells_no_sizes(way, monkeypatch):
    """Not even in what the error came from, which tracebacks show."""
    monkeypatch.setattr(NoisyGradients, "_with_noise", short_of_memory)
    monkeypatch.setattr(training.Trainer, "_dry_run", lambda trainer: None)
    generator = make_gradient_generator(
        gradient=WAYS[way], sampling_rate=1.0, n_iter=2, network=torch.nn.Linear
    )
    with pytest.raises(MemoryError) as error:
        generator.fit(np.full((5, 2), 0.5))
    assert "4711" not in str(error.value)
    assert error.value.__context__ is None
    assert error.value.__cause__ is None


def test_the_noise_of_a_gpu_is_seeded_by_the_source(seed):
    """Its path, on the generator that every machine has."""
    mechanism = GaussianMechanism.from_noise_multiplier(1.0, 1.0, n_coordinates=1000)

    def noise(source):
        release = NoisyGradients(mechanism, source, torch.device("cpu"), secure=False)
        return release._integer_noise(torch.zeros(1000, dtype=torch.float64))

    assert torch.equal(noise(make_source(seed)), noise(make_source(seed)))
    source = make_source(seed)
    assert not torch.equal(noise(source), noise(source))


@pytest.mark.parametrize("changed", [0.3, 1.0])
def test_samples_have_the_rate_that_was_charged(changed, monkeypatch):
    """Also where another thread, which shares the parameters of the training, sets it meanwhile."""
    asked, ledger = [], PrivacyLedger(10.0, 1e-3, neighbouring="add_remove", allow_seeded=True)
    generator = make_gradient_generator(
        ledger=ledger, sampling_rate=0.3, noise_multiplier=5.0, n_iter=3,
        network=torch.nn.Linear, random_state=0,
    )  # fmt: skip

    def watched(source, n_records, rate):
        asked.append((n_records, rate, len(ledger.entries())))
        generator.set_params(network__sampling_rate=changed)
        return poisson_sample(source, n_records, rate)

    monkeypatch.setattr(training, "poisson_sample", watched)
    generator.fit(np.full((12, 2), 0.5))
    assert asked == [(12, 0.3, 1)] * 3
    step = PoissonSampledDpEvent(0.3, CentredGaussianDpEvent(5.0))
    assert ledger.entries()[0].event.event == SelfComposedDpEvent(step, 3)


def test_records_are_in_no_step_before_they_are_charged(monkeypatch):
    """The step that is tried before is one with other records."""
    made, step = [], training.Trainer.step
    ledger = PrivacyLedger(10.0, 1e-3, neighbouring="add_remove")

    def watched(trainer, records, sampled):
        made.append((len(ledger.entries()), bool(records[0].any())))
        return step(trainer, records, sampled)

    monkeypatch.setattr(training.Trainer, "step", watched)
    make_gradient_generator(
        ledger=ledger, sampling_rate=1.0, n_iter=3, network=torch.nn.Linear
    ).fit(np.full((5, 2), 0.7))
    assert made.count((1, True)) == 3 and set(made) == {(0, False), (1, True)}
