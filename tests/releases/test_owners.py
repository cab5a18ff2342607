"""Noise that owners add to a sum: sensitivity, law, guarantee, and room in 64 bits."""

import functools
import itertools
import math
import warnings

import mpmath
import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.special import logit, ndtr, ndtri
from scipy.stats import chisquare, laplace, norm

from skdpot.privacy.accounting import calibrate_noise_multiplier, epsilon_of
from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent, PlannedDpEvent
from skdpot.privacy.random import make_source
from skdpot.releases import (
    HistogramRelease,
    MomentsRelease,
    SharedRelease,
    SummedRelease,
    UnitLayout,
)
from skdpot.releases import _owners as shared_noise
from skdpot.releases._owners import rounding_price
from tests.oracles.privacy_profiles import gaussian_delta, gaussian_epsilon
from tests.oracles.sensitivities import declared

# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4


def with_bounds(options):
    """Return the options of a release, and the sensitivities that are among them."""
    given = {"l1": 2.0, "l2": math.sqrt(2.0), "n_coordinates": 4, "largest": 1e6, **options}
    return given, declared((given.pop("l1"), given.pop("l2")))


def shared(epsilon=1.0, delta=1e-5, *, n_parts=3, n_honest=2, **options):
    given, bounds = with_bounds(options)
    return SharedRelease(epsilon, delta, bounds, **given, n_parts=n_parts, n_honest=n_honest)


def summed(epsilon=1.0, delta=0.0, *, n_parts=3, **options):
    given, bounds = with_bounds(options)
    return SummedRelease(epsilon, delta, bounds, **given, n_parts=n_parts)


# ------------------------------------------------------------------------------- sensitivity


RECORDS = {
    "line": (UnitLayout((0,), ()), [[math.nan], *([number / 32] for number in range(33))]),
    "plane": (UnitLayout((0, 0), ()), list(itertools.product(np.linspace(0, 1, 9), repeat=2))),
    "mixed": (
        UnitLayout((0, 2), (3,)),
        [
            [number, level, *category]
            for number in (0.0, 0.5, 0.875, 1.0)
            for level in (0.0, 1.0)
            for category in ([1, 0, 0], [0, 0, 1], [0, 0, 0])
        ],
    ),
}


NORMS = ("cityblock", "euclidean")


def split_plan(kind, layout, n_records, make_noise):
    """Return a plan, and what sensitivities were declared to its noise."""
    given = []

    def make(epsilon, delta, sensitivities, **options):
        given.append(sensitivities(relation="replace_one"))
        return make_noise(epsilon, delta, sensitivities, **options)

    plan = kind(layout, 2, n_records, 1.0, 1e-5, make_noise=make)
    return plan, given[-1]


def exact_values(plan, V, codes):
    return plan.values(V, codes)


@pytest.mark.parametrize("kind", [HistogramRelease, MomentsRelease])
@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("n_owners", [2, 3])
def test_no_record_of_one_owner_moves_the_sum_by_more_than_is_declared(kind, name, n_owners, rng):
    """All pairs of records and groups, at every owner; the bounds are attained, or nearly so."""
    layout, records = RECORDS[name]
    make = functools.partial(SharedRelease, n_parts=n_owners, n_honest=n_owners)
    plan, bounds = split_plan(kind, layout, 4 * n_owners, make)
    tables = [
        (np.array(records)[rng.integers(len(records), size=4)], rng.integers(-1, 2, size=4))
        for _ in range(n_owners)
    ]
    candidates = list(itertools.product(records, (-1, 0, 1)))
    largest = np.zeros(2)
    for owner in range(n_owners):
        others = sum(exact_values(plan, *tables[i]) for i in range(n_owners) if i != owner)
        totals = []
        for record, group in candidates:
            V, codes = (array.copy() for array in tables[owner])
            V[0], codes[0] = record, group
            totals.append((others + exact_values(plan, V, codes)).ravel())
        totals = np.unique(totals, axis=0)
        totals = totals[:, np.ptp(totals, axis=0) > 0]
        assert (totals == np.rint(totals)).all()
        largest = np.maximum(largest, [pdist(totals, metric).max() for metric in NORMS])
    assert (largest <= bounds).all()
    # In the l1 norm a number is worst somewhere between the middle and an end.
    assert largest[0] > 0.97 * bounds[0]
    assert largest[1] == pytest.approx(bounds[1], rel=1e-6)


@pytest.mark.parametrize("kind", [HistogramRelease, MomentsRelease])
@pytest.mark.parametrize(
    "make",
    [
        functools.partial(SharedRelease, n_parts=3, n_honest=2),
        functools.partial(SummedRelease, n_parts=3),
    ],
)
def test_plans_of_groups_are_read_from_sums_of_parts(kind, make, rng, seed):
    layout = RECORDS["plane"][0]
    plan, _ = split_plan(kind, layout, 3000, make)
    tables = [(rng.random((1000, 2)), rng.integers(0, 2, 1000)) for _ in range(3)]
    source, noise = make_source(seed), plan._noise
    parts = [noise.run(exact_values(plan, *table), source) for table in tables]
    released = noise.read_sum(sum(parts))
    exact = sum(exact_values(plan, *table) for table in tables)
    assert released.shape == exact.shape and released.dtype == np.float64
    off = (released - exact) / noise.standard_deviation
    assert np.abs(off).max() < 6 and np.sqrt((off**2).mean()) == pytest.approx(1.0, abs=0.5)
    sizes = plan.groups_of(released).sizes
    assert sizes.sum() == pytest.approx(3000, abs=1000)


def test_sums_of_fewer_owners_are_read_as_sums_with_less_noise():
    """A group whose size says nothing beside the noise of nine is told apart beside that of one."""
    layout = RECORDS["plane"][0]
    make = functools.partial(SummedRelease, n_parts=9)
    plan, _ = split_plan(HistogramRelease, layout, 3000, make)
    values = exact_values(plan, np.full((3000, 2), 0.9), np.zeros(3000, dtype=int))
    middles, before = [], plan.noise.standard_deviation
    for n in (9, 1):
        plan.use_noise(plan.noise.with_parts(n))
        groups = plan.groups_of(values / 40)
        middles.append((groups.masses[0] @ groups.points[0])[0])
    assert plan.noise.standard_deviation == pytest.approx(before / 3)
    assert middles[0] < middles[1]


# ------------------------------------------------------------------------------- the law


def rounded_masses(law, scale, reach):
    """Return the probabilities of integers up to reach, of a rounded variable."""
    return np.diff(law.cdf(np.arange(-reach - 0.5, reach + 1.0), scale=scale))


def masses_of_sum(law, scale, n, reach):
    masses = single = rounded_masses(law, scale, reach)
    for _ in range(n - 1):
        masses = np.convolve(masses, single)
    return masses


def p_value(noise, masses):
    """Return that of a chi-square test; the middle of the masses belongs to zero."""
    reach = len(masses) // 2
    found = np.bincount(np.clip(noise, -reach, reach) + reach, minlength=len(masses))
    expected = masses * len(noise)
    likely = expected > 5
    found = np.append(found[likely], found[~likely].sum())
    expected = np.append(expected[likely], len(noise) - expected[likely].sum())
    return chisquare(found, expected).pvalue


MAKERS = {
    "shared": lambda n: (shared(n_coordinates=n), norm),
    "summed, normal": lambda n: (summed(2.0, 1e-2, n_coordinates=n), norm),
    "summed, Laplace": lambda n: (summed(0.5, n_coordinates=n), laplace),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_noise_of_parts_and_of_sums_has_this_scale_and_no_other(maker, n, seed):
    n_draws = 100_000
    noise, law = MAKERS[maker](n_draws)
    scale = noise.scale if maker == "shared" else noise._noise._mechanism.scale
    source = make_source(seed)
    values = np.full(n_draws, 7)
    total = sum(noise.run(values, source) for _ in range(n)) - round(7 * n / noise.step)
    assert total.dtype == np.int64
    for factor in (1.0, 0.95, 1.05):
        masses = masses_of_sum(law, scale * factor, n, int(24 * scale) + 2)
        assert (p_value(total, masses) > RARE) == (factor == 1.0)


@pytest.mark.parametrize("n", [2, 3])
def test_standard_deviation_is_that_of_the_sum(n):
    for noise in (shared(n_honest=1), shared(0.1, 1e-9, n_honest=2)):
        masses = masses_of_sum(norm, noise.scale, n, int(12 * noise.scale))
        points = np.arange(len(masses)) - len(masses) // 2
        deviation = noise.step * math.sqrt(masses @ points**2)
        assert noise.with_parts(n).standard_deviation == pytest.approx(deviation, rel=1e-9)
    noise = summed(0.1)
    assert noise.standard_deviation == pytest.approx(math.sqrt(2 * 3) * 2.0 / 0.1, rel=1e-12)
    assert noise.with_parts(n).standard_deviation == pytest.approx(math.sqrt(2 * n) * 20.0)


# ------------------------------------------------------------------------------- the theorem


def exact_masses(scale, n):
    """Return the law of a sum of n rounded normal variables, by convolution, to 50 digits."""
    reach = int(11 * scale) + 2
    edges = [(mpmath.mpf(k) - 0.5) / scale for k in range(-reach, reach + 2)]
    cdf = [mpmath.ncdf(edge) for edge in edges]
    single = [b - a for a, b in itertools.pairwise(cdf)]
    masses = single
    for _ in range(n - 1):
        longer = [mpmath.mpf(0)] * (len(masses) + 2 * reach)
        for (i, a), (j, b) in itertools.product(enumerate(masses), enumerate(single)):
            longer[i + j] += a * b
        masses = longer
    return masses


def mass_of_rounded_sum(k, scale, n):
    """Return P(round(Y + U_2 + ... + U_n) = k): the n-th difference of an n-fold integral."""
    deviation = scale * mpmath.sqrt(n)

    def integral(x):
        before, now = mpmath.npdf(x, 0, deviation), mpmath.ncdf(x / deviation)
        for order in range(1, n):
            before, now = now, (x * now + deviation**2 * before) / order
        return now

    return sum((-1) ** i * mpmath.binomial(n, i) * integral(k + mpmath.mpf(n) / 2 - i)
               for i in range(n + 1))  # fmt: skip


def factor_of(scale):
    return 2 * mpmath.fsum(mpmath.exp(-((mpmath.pi * scale * i) ** 2)) for i in range(1, 12))


@pytest.mark.parametrize("scale", [0.6, 1.0, 1.3])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_sums_of_rounded_variables_are_nearly_rounded_sums(scale, n):
    """The factor is attained up to a constant for two; total variation is less than half of it."""
    with mpmath.workdps(50):
        scale = mpmath.mpf(scale)
        masses = exact_masses(scale, n)
        middle, reach = len(masses) // 2, int(5 * scale * math.sqrt(n))
        ideal = [mass_of_rounded_sum(k, scale, n) for k in range(-reach, reach + 1)]
        near = masses[middle - reach : middle + reach + 1]
        error = max(abs(a / b - 1) for a, b in zip(near, ideal, strict=True))
        t = factor_of(scale)
        allowed = (1 + t) ** (n - 1) - 1
        assert 0 < error <= allowed
        variation = sum(abs(a - b) for a, b in zip(near, ideal, strict=True)) / 2
        assert variation <= allowed / 2
        if n == 2:
            assert error > 0.4 * allowed


def test_a_law_within_factors_of_another_is_hardly_easier_to_test():
    """Odds that differ by exp(x) are quantiles that differ by sqrt(pi / 8) x, or less."""
    a, b = np.meshgrid(np.linspace(-8, 8, 801), np.linspace(-8, 8, 801))
    apart = a != b
    odds = np.abs(_log_odds(a) - _log_odds(b))[apart]
    ratio = np.abs(a - b)[apart] / odds / math.sqrt(math.pi / 8)
    assert ratio.max() <= 1.0 + 1e-12
    assert ratio.max() > 0.999


def _log_odds(x):
    near = np.clip(x, -5, 5)
    far = np.log(ndtr(-np.abs(x))) - np.log(ndtr(np.abs(x)))
    return np.where(np.abs(x) > 5, -np.sign(x) * far, logit(ndtr(near)))


@pytest.mark.parametrize("scale", [1.0, 1.5, 4.0, 16.0])
def test_price_of_rounding_is_that_of_the_factor(scale):
    with mpmath.workdps(2500):
        t = factor_of(mpmath.mpf(scale))
        exact = mpmath.sqrt(mpmath.pi / 2) * 5 * 3 * mpmath.log((1 + t) / (1 - t))
        price = rounding_price(scale, 4, 5)
        assert price >= exact
        assert price <= exact * (1 + 1e-11) + 1e-297
    assert rounding_price(scale, 1, 5) == 0.0


def test_factors_are_as_testable_as_the_price_says():
    """Powers of tests, between laws that were both tilted by the factors in the worst way."""
    mu, t, n = 0.7, 0.01, 2
    tilt = math.log((1 + t) / (1 - t)) * n
    price = math.sqrt(math.pi / 2) * tilt
    # Gaussian trade-off in terms of quantiles; the worst tilt moves both odds by exp(tilt).
    false_alarms = np.linspace(1e-6, 1 - 1e-6, 2001)
    ideal = 1 / (1 + np.exp(-(logit(false_alarms) + tilt)))
    power = ndtr(ndtri(ideal) + mu)
    worst = 1 / (1 + np.exp(-(logit(power) + tilt)))
    allowed = ndtr(ndtri(false_alarms) + mu + price)
    assert (worst <= allowed + 1e-15).all()
    assert (worst > ndtr(ndtri(false_alarms) + mu + 0.8 * price)).any()


BUDGETS = [(0.01, 1e-12), (0.5, 1e-5), (1.0, 1e-300), (8.0, 0.4), (1e5, 1e-6), (1e12, 0.5)]


@pytest.mark.parametrize("epsilon, delta", BUDGETS)
@pytest.mark.parametrize("n_honest", [1, 2, 1000])
@pytest.mark.parametrize("n_coordinates", [1, 10**9])
def test_noise_pays_for_its_rounding(epsilon, delta, n_honest, n_coordinates):
    noise = shared(epsilon, delta, n_parts=n_honest + 3, n_honest=n_honest,
                   n_coordinates=n_coordinates)  # fmt: skip
    multiplier = noise.event.event.noise_multiplier
    with mpmath.workdps(40):
        deviation = mpmath.mpf(noise.scale) * mpmath.sqrt(n_honest)
        sensitivity = mpmath.sqrt(2) / mpmath.mpf(noise.step)
        price = rounding_price(noise.scale, n_honest, n_coordinates)
        assert sensitivity / deviation + price < 1 / mpmath.mpf(multiplier)
        assert deviation < multiplier * sensitivity * (1 + mpmath.mpf(2) ** -39)
    assert math.log2(noise.step) == -noise._shift and noise._shift >= 0
    assert noise.scale >= 16.0
    assert noise._shift == 0 or noise.scale < 32.0
    assert epsilon_of(multiplier, delta) <= epsilon


def test_noise_would_pay_for_coarser_grids_too(monkeypatch):
    """Where the price can be seen, since it cannot be at the scale that is used."""
    monkeypatch.setattr(shared_noise, "_SMALLEST_SCALE", 1.5)
    for epsilon, n_coordinates in [(1.0, 4), (1.0, 10**6), (300.0, 1000)]:
        noise = shared(epsilon, n_coordinates=n_coordinates, n_parts=7, n_honest=5)
        assert noise.scale < 3.0
        multiplier = noise.event.event.noise_multiplier
        ratio = math.sqrt(2.0) / noise.step / (noise.scale * math.sqrt(5))
        # At the coarsest scale.
        total = ratio + rounding_price(1.5, 5, n_coordinates)
        assert total <= 1.0 / multiplier
        assert ratio > 1.0 / multiplier - 3 * rounding_price(1.5, 5, n_coordinates) - 1e-12


def reached_delta(masses, shift, epsilon):
    """Return the delta of two laws that are a shift apart."""
    p, q = np.pad(masses, (0, shift)), np.pad(masses, (shift, 0))
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


def reached_delta_of_two(masses, shift, epsilon):
    """Return the same where one coordinate moves up and another one down."""
    p, q = np.pad(masses, (0, shift)), np.pad(masses, (shift, 0))
    excess = np.outer(p, q)
    excess -= math.exp(epsilon) * np.outer(q, p)
    return np.maximum(excess, 0).sum()


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
@pytest.mark.parametrize("n_honest", [1, 3])
@pytest.mark.parametrize("case", ["one", "two"])
def test_sums_of_honest_parts_keep_the_promise_and_less_noise_does_not(
    epsilon, delta, n_honest, case
):
    l2 = 1.0 if case == "one" else math.nextafter(math.sqrt(2.0), 2.0)
    noise = shared(epsilon, delta, l2=l2, n_parts=4, n_honest=n_honest)
    reached = reached_delta if case == "one" else reached_delta_of_two

    def delta_of(factor):
        scale = noise.scale * factor
        masses = masses_of_sum(norm, scale, n_honest, int(8 * scale) + 1)
        kept = np.cumsum(masses) > 1e-12
        masses = masses[kept & kept[::-1]]
        return reached(masses, round(1 / noise.step), epsilon)

    assert 0.9 * delta < delta_of(1.0) <= delta
    assert delta_of(0.8) > 1.5 * delta
    assert noise.event == PlannedDpEvent(
        GaussianDpEvent(calibrate_noise_multiplier(epsilon, delta)), delta
    )


def test_charges_of_several_owners_do_not_add_up_for_shared_noise():
    """A person with records at three owners moves one sum three times as far."""
    multiplier = shared(1.0, 1e-5).event.event.noise_multiplier
    assert gaussian_delta(3.0, 3 / multiplier) > 2.5 * 3e-5
    assert epsilon_of(multiplier / 3, 3e-5) == pytest.approx(
        gaussian_epsilon(3e-5, 3 / multiplier), rel=1e-6
    )
    # Independent noise at every owner: as three releases, which sums of epsilon do bound.
    assert gaussian_delta(3.0, math.sqrt(3) / multiplier) < 3e-5


# ------------------------------------------------------------------------------- room, and values


def test_no_sum_leaves_the_range_of_64_bits(monkeypatch):
    for n_parts in (1, 2, 3, 4, 1000):
        noise = shared(n_parts=n_parts, n_honest=1)
        monkeypatch.setattr(
            shared_noise, "rounded_gaussian", lambda *_: np.array([2**62, -(2**62)], np.int64)
        )
        part = noise.run([math.inf, -math.inf])
        monkeypatch.undo()
        assert all(abs(int(number)) * n_parts < 2**63 for number in part)
        assert part.tolist() == [noise._largest_part, -noise._largest_part]
    noise = summed(n_parts=1000)
    part = noise.run([math.inf, -math.inf])
    assert part.tolist() == [noise._largest_part, -noise._largest_part]
    assert noise._largest_part * 1000 < 2**63


def test_parts_are_cut_off_far_beyond_values_and_noise():
    for noise in (shared(), shared(1e-6, 1e-9), shared(1e12, 0.5), shared(largest=2.0**45)):
        assert noise._largest_part >= noise.largest / noise.step + 4096 * noise.scale


@pytest.mark.parametrize("make", [shared, summed])
def test_no_number_raises_or_warns(make, seed):
    noise = make(largest=100.0)
    hostile = [math.nan, math.inf, -1e308, None]
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        part = noise.run(hostile, seed)
    assert part.shape == (4,) and part.dtype == np.int64
    assert part[0] == noise.run([0, 0, 0, 0], seed)[0]


def test_values_beyond_the_largest_are_moved_there(seed):
    noise = shared(largest=100.0)
    assert (noise.run([101, -1e9], seed) == noise.run([100, -100], seed)).all()


@pytest.mark.parametrize("make", [shared, summed])
def test_shapes_and_seeds(make, seed):
    noise = make()
    values = np.array([[1, 2], [3, 4]])
    part = noise.run(values, seed)
    assert part.shape == (2, 2)
    assert (part == noise.run(values, seed)).all()
    assert (noise.run(values * 1000) != noise.run(values * 1000)).any()
    source = make_source(seed)
    assert (noise.run(values, source) != noise.run(values, source)).any()
    with pytest.raises(ValueError, match=r"5 numbers .* n_coordinates=4"):
        noise.run(np.zeros(5))


def test_sums_are_read_in_units_of_values():
    noise = shared()
    total = np.array([[3, -5], [0, 8]]) << noise._shift
    assert noise.read_sum(total + 1).tolist() == [
        [3 + noise.step, -5 + noise.step],
        [noise.step, 8 + noise.step],
    ]
    assert summed().read_sum(np.array([7, -1])).tolist() == [7.0, -1.0]
    for other in (np.array([1.0]), np.array([1], np.uint64)):
        with pytest.raises(TypeError, match="a sum of parts is of int64"):
            noise.read_sum(other)


def test_owners_may_drop_out():
    noise = shared(n_parts=5, n_honest=3)
    for n in (3, 4, 5):
        fewer = noise.with_parts(n)
        assert fewer.n_contributors == n and fewer.event == noise.event
        assert fewer.standard_deviation == pytest.approx(noise.standard_deviation * (n / 5) ** 0.5)
    assert noise.n_contributors == 5
    for n in (2, 6):
        with pytest.raises(ValueError, match=f"has 3 to 5 contributors, got {n}"):
            noise.with_parts(n)
    assert summed(n_parts=5).with_parts(1).n_contributors == 1


def test_events():
    assert summed(0.5).event == LaplaceDpEvent(2.0)
    planned = summed(1.0, 1e-5).event
    assert planned == shared(1.0, 1e-5).event
    assert planned.delta == 1e-5


def test_parameters_out_of_range_are_refused():
    with pytest.raises(ValueError, match="shares of noise are Gaussian"):
        shared(delta=0.0)
    for delta in (-1.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta must be"):
            shared(delta=delta)
    for make in (shared, summed):
        for name in ("epsilon", "l2", "largest"):
            with pytest.raises(ValueError, match="must be a finite number above 0"):
                make(delta=1e-5, **{name: -1.0})
        for name in ("n_parts", "n_coordinates"):
            with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1"):
                make(**{name: 0})
        with pytest.raises(ValueError, match="do not fit into a sum of 4096 integers"):
            make(n_parts=4096, largest=2.0**52)
    with pytest.raises(ValueError, match="do not fit into a sum of 4096 integers"):
        shared(n_parts=4096, largest=1.0, l2=2.0**38)
    for make in (shared, summed):
        with pytest.raises(ValueError, match="must be a finite number above 0"):
            make(delta=1e-5 if make is shared else 0.0, l1=0.0, l2=0.0)
    with pytest.raises(ValueError, match="n_honest must be an integer of at least 1"):
        shared(n_honest=0)
    with pytest.raises(ValueError, match="n_honest=4 must be at most n_parts=3"):
        shared(n_honest=4)
    with pytest.raises(ValueError, match=r"more than 2\*\*40 integers"):
        shared(1e-14, 1e-14)
    with pytest.raises(ValueError, match=r"more than 2\*\*40 integers"):
        shared(l2=2.0**45)
    with pytest.raises(ValueError, match="scale must be at least 1"):
        rounding_price(0.9, 2)


def test_of_a_huge_epsilon_no_more_is_spent():
    assert shared(1e12).event == shared(2.0**22).event != shared(2.0**21).event


def test_sensitivities_below_one_are_those_of_integers():
    small, one = shared(l2=1e-9), shared(l2=1.0)
    assert small.scale == one.scale
    assert small.standard_deviation == one.standard_deviation
