"""Laplace and normal noise on a grid: sensitivity, calibration, law, and what is never told."""

import itertools
import math
import pickle
import warnings
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, laplace, norm

from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism, make_source

# Levels of tests: of draws that are the same in every run, and of draws that are not.
RARE, NEVER = 1e-4, 1e-9


def make_laplace(sensitivity=1.0, epsilon=1.0, **options):
    return LaplaceMechanism(epsilon, sensitivity, **options)


def make_gaussian(sensitivity=1.0, epsilon=1.0, **options):
    return GaussianMechanism(epsilon, 1e-5, sensitivity, **options)


MECHANISMS = {"laplace": (make_laplace, laplace, 1), "gaussian": (make_gaussian, norm, 2)}
by_mechanism = pytest.mark.parametrize("kind", MECHANISMS)


def exact_delta(epsilon, multiplier):
    """Return the delta of normal noise, to 200 digits."""
    with mpmath.workdps(200):
        epsilon, multiplier = mpmath.mpf(epsilon), mpmath.mpf(multiplier)
        middle, shift = epsilon * multiplier, 1 / (2 * multiplier)
        tail = [mpmath.erfc(x / mpmath.sqrt(2)) / 2 for x in (middle - shift, middle + shift)]
        return tail[0] - mpmath.exp(epsilon) * tail[1]


# ------------------------------------------------------------------------------- rounding


doubles = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 5e-324, -5e-324, 1e308, 2.0**60, 2.0**61]),
    st.integers(-(2**20), 2**20).map(lambda n: n / 8),
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(doubles, st.integers(-30, 30))
@example(0.49999999999999994, 0)
@example(-5e-324, 5)
@example(4503599627370497.5, 0)
def test_values_go_to_the_nearest_point_of_the_grid_exactly(value, exponent):
    mechanism = make_laplace(2.0**exponent, granularity=2.0**exponent)
    if math.isinf(value):
        exact = int(math.copysign(2**60, value))
    else:
        exact = math.floor(Fraction(value) / Fraction(2) ** exponent + Fraction(1, 2))
    integer = mechanism._to_grid(np.float64(value))
    assert integer.dtype == np.int64
    assert integer == max(min(exact, 2**60), -(2**60))


def neighbouring_values(kind, rng, n, sensitivity):
    """Yield pairs of values that are at most the sensitivity apart, exactly."""
    order = MECHANISMS[kind][2]
    for trial in range(100):
        value = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4)
        move = rng.dirichlet(np.full(n, rng.choice([0.05, 1.0, 100.0]))) * rng.choice([-1, 1], n)
        if trial % 2:
            # From just before halves to just after them: the worst of rounding.
            share = sensitivity * n ** (-1 / order)
            value = rng.integers(-9, 9, n) + 0.5 - np.abs(move) * 1e-4
            move = np.full(n, share)
        norm_of_move = np.linalg.norm(move, order)
        other = value + move * (sensitivity / norm_of_move * (1 - 1e-12))
        exact = [Fraction(x) - Fraction(y) for x, y in zip(value, other, strict=True)]
        distance = sum(abs(x) ** order for x in exact)
        if distance <= Fraction(sensitivity) ** order:
            yield value, other


@by_mechanism
@pytest.mark.parametrize("n", [1, 2, 100])
@pytest.mark.parametrize("points", [0.01, 1.001, 50.2])
def test_declared_sensitivity_of_the_integers_is_reached_and_never_exceeded(kind, n, points, rng):
    """`points` of the grid are moved by per coordinate, shared out in the norm."""
    make, _, order = MECHANISMS[kind]
    sensitivity = points * n ** (1 / order)
    mechanism = make(sensitivity, n_coordinates=n, granularity=1.0)
    largest = 0.0
    for value, other in neighbouring_values(kind, rng, n, sensitivity):
        moved = mechanism._to_grid(value) - mechanism._to_grid(other)
        largest = max(largest, float(np.linalg.norm(moved, order)))
    assert largest <= mechanism.grid_sensitivity
    # A whole number of points leaves no room for rounding to add one to each coordinate.
    if n == 1 or points % 1:
        assert largest >= 0.95 * min(
            mechanism.grid_sensitivity, math.ceil(points) * n ** (1 / order)
        )
    if points in (0.01, 1.001):
        assert largest >= 0.95 * mechanism.grid_sensitivity


# ------------------------------------------------------------------------------- calibration


@by_mechanism
@pytest.mark.parametrize("epsilon", [1e-4, 100.0])
@pytest.mark.parametrize("sensitivity", [1e-200, 12345.678])
@pytest.mark.parametrize("n", [1, 3, 10**6])
def test_noise_is_enough_and_hardly_more(kind, epsilon, sensitivity, n):
    make, _, order = MECHANISMS[kind]
    mechanism = make(sensitivity, epsilon, n_coordinates=n)
    width, multiplier = Fraction(mechanism.granularity), Fraction(mechanism.noise_multiplier)
    assert math.frexp(mechanism.granularity)[0] == 0.5
    assert Fraction(mechanism.scale) == width * Fraction(mechanism.grid_scale)
    # Enough, by exact arithmetic: scale over sensitivity on the grid is the multiplier or more.
    distance = Fraction(sensitivity) / width
    if order == 1 or n == 1:
        most = math.ceil(distance) + n - 1
        assert mechanism.grid_sensitivity == most
    else:
        assert (Fraction(mechanism.grid_sensitivity) - distance) ** 2 >= n
        most = mechanism.grid_sensitivity
    assert Fraction(mechanism.grid_scale) >= multiplier * Fraction(most)
    # Hardly more.
    excess = mechanism.scale / (mechanism.noise_multiplier * sensitivity) - 1
    limit = n ** (1 / order) * 2.0**-35 * max(1 / mechanism.noise_multiplier, 1.0)
    assert -1e-15 < excess <= max(2.0**-20, limit * mechanism.noise_multiplier) * (1 + 1e-9)
    # The range of values is wide.
    assert mechanism.granularity * 2.0**60 >= 2.0**20 * mechanism.scale


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 3.0, 49.0, 1e30])
def test_laplace_multiplier_is_one_over_epsilon_or_the_next_double(epsilon):
    mechanism = LaplaceMechanism(epsilon, 1.0)
    multiplier = Fraction(mechanism.noise_multiplier)
    assert multiplier * Fraction(epsilon) >= 1
    assert Fraction(math.nextafter(mechanism.noise_multiplier, 0)) * Fraction(epsilon) < 1
    assert mechanism.event == LaplaceDpEvent(mechanism.noise_multiplier)
    assert 1 / mechanism.event.noise_multiplier <= epsilon


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-16, 1e-5, 0.999])
def test_gaussian_multiplier_is_enough_and_hardly_more(epsilon, delta):
    mechanism = GaussianMechanism(epsilon, delta, 1.0)
    reached = exact_delta(epsilon, mechanism.noise_multiplier)
    assert reached <= mpmath.mpf(delta)
    less = exact_delta(epsilon, mechanism.noise_multiplier * (1 - max(1e-7, 1e-10 / epsilon)))
    assert less > mpmath.mpf(delta)
    # What was bought is not charged for more than was asked for.
    assert epsilon_of(mechanism.event.noise_multiplier, delta) <= epsilon
    assert mechanism.event == GaussianDpEvent(mechanism.noise_multiplier)
    assert (mechanism.epsilon, mechanism.delta) == (epsilon, delta)


def test_gaussian_multiplier_can_be_given(seed):
    mechanism = GaussianMechanism.from_noise_multiplier(2.5, 3.0, n_coordinates=2)
    assert mechanism.epsilon is mechanism.delta is None
    assert mechanism.event == GaussianDpEvent(2.5)
    assert mechanism.n_coordinates == 2
    assert GaussianMechanism.from_noise_multiplier(2.5, 3.0).n_coordinates == 1
    assert mechanism.scale == pytest.approx(7.5, rel=1e-5)
    assert mechanism.scale >= 7.5
    with pytest.raises(ValueError, match="noise_multiplier must be a finite number above 0"):
        GaussianMechanism.from_noise_multiplier(0.0, 1.0)
    same = GaussianMechanism.from_noise_multiplier(3.0, 1.0, granularity=0.25)
    assert same.granularity == 0.25 and same.release(1.0, seed) % 0.25 == 0


# ------------------------------------------------------------------------------- the law


def exact_probabilities(kind, scale, integers):
    """Return the probabilities of integers of noise, and that of all beyond, to 60 digits."""
    with mpmath.workdps(60):
        edges = [(mpmath.mpf(k) - 0.5) / mpmath.mpf(scale) for k in integers]
        edges.append(edges[-1] + 1 / mpmath.mpf(scale))
        if kind == "laplace":
            distribution = [mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2 for x in edges]
        else:
            distribution = [mpmath.erfc(-x / mpmath.sqrt(2)) / 2 for x in edges]
        return [b - a for a, b in itertools.pairwise(distribution)]


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("granularity", [1.0, 0.25])
def test_probabilities_of_laplace_neighbours_differ_by_epsilon_at_most(epsilon, granularity):
    """The integers themselves, all of them: the guarantee is that of the rounded noise."""
    mechanism = LaplaceMechanism(epsilon, 0.9, granularity=granularity)
    shift = int(mechanism.grid_sensitivity)
    reach = int(12 * mechanism.grid_scale)
    masses = exact_probabilities("laplace", mechanism.grid_scale, range(-reach, reach + 1))
    losses = [abs(mpmath.log(a / b)) for a, b in zip(masses, masses[shift:], strict=False)]
    assert 0.95 * epsilon < max(losses) <= epsilon * (1 + mpmath.mpf(10) ** -15)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("granularity", [1.0, 0.25])
def test_gaussian_neighbours_differ_by_epsilon_and_delta_at_most(epsilon, granularity):
    mechanism = GaussianMechanism(epsilon, 1e-3, 0.9, granularity=granularity)
    shift = int(mechanism.grid_sensitivity)
    reach = int(15 * mechanism.grid_scale) + shift
    masses = exact_probabilities("gaussian", mechanism.grid_scale, range(-reach, reach + 1))
    excess = [a - mpmath.exp(epsilon) * b for a, b in zip(masses, masses[shift:], strict=False)]
    reached = sum(x for x in excess if x > 0)
    assert 0.5e-3 < reached <= 1e-3


@by_mechanism
@pytest.mark.parametrize("value", [0.0, -1 / 3, 1e3 + 1e-9])
def test_the_last_bits_tell_nothing_of_the_value(kind, value, seed):
    """All outputs lie on one grid, and the last bits of their integers are uniform."""
    n = 20_000
    mechanism = MECHANISMS[kind][0](n_coordinates=n)
    released = mechanism.release(np.full(n, value), seed) / mechanism.granularity
    assert (released == np.rint(released)).all()
    assert chisquare(np.bincount(released.astype(np.int64) & 63, minlength=64)).pvalue > RARE


# ------------------------------------------------------------------------------- hostile values


HOSTILE = [
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    -5e-324,
    10**400,
    2**63,
    None,
    Decimal("sNaN"),
    Fraction(10**400),
    np.longdouble("1e4000"),
    True,
    Fraction(1, 3),
]


@by_mechanism
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_no_number_raises_or_warns(kind, value, seed):
    mechanism = MECHANISMS[kind][0](n_coordinates=3)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        alone = mechanism.release(value, seed)
        several = mechanism.release([1.0, value, 2.0], seed)
    assert type(alone) is float and math.isfinite(alone)
    assert several.shape == (3,) and np.isfinite(several).all()


@by_mechanism
def test_what_is_no_number_counts_as_zero_and_what_is_too_large_as_the_largest(kind, seed):
    mechanism = MECHANISMS[kind][0]()
    assert mechanism.release(math.nan, seed) == mechanism.release(0.0, seed)
    end = mechanism.granularity * 2.0**60
    assert mechanism.release(math.inf, seed) == mechanism.release(end, seed)
    assert mechanism.release(10**400, seed) == mechanism.release(2 * end, seed)
    assert mechanism.release(-math.inf, seed) == mechanism.release(-end, seed)
    for sign in (1, -1):
        beyond = mechanism.release(Fraction(sign * 10**400), seed)
        assert beyond == mechanism.release(sign * math.inf, seed)
    assert mechanism.release(end, seed) == pytest.approx(end)


@by_mechanism
def test_noise_that_saturated_does_not_show_the_value(kind, monkeypatch):
    mechanism = MECHANISMS[kind][0]()
    for sign in (1, -1):
        monkeypatch.setattr(mechanism, "_draw", lambda *_, sign=sign: np.int64(sign * 2**62))
        ends = {mechanism.release(value) for value in (0.0, math.inf, -math.inf, 7.0)}
        assert ends == {sign * mechanism.granularity * 2.0**61}


def test_zero_has_no_sign():
    mechanism = LaplaceMechanism(50.0, 1.0, granularity=1.0)
    zeros = [mechanism.release(-0.0) for _ in range(50)]
    assert {math.copysign(1, zero) for zero in zeros if zero == 0} == {1.0}


# ------------------------------------------------------------------------------- interface


@by_mechanism
def test_shapes_are_those_of_the_value(kind, seed):
    mechanism = MECHANISMS[kind][0](n_coordinates=6)
    assert type(mechanism.release(3, seed)) is float
    assert type(mechanism.release(np.float32(3), seed)) is float
    assert type(mechanism.release(np.array(3.0), seed)) is float
    for shape in [(6,), (2, 3), (1, 1), (0,), (2, 0)]:
        released = mechanism.release(np.ones(shape), seed)
        assert released.shape == shape and released.dtype == np.float64
    assert mechanism.release([[1, 2], [3, 4]], seed).shape == (2, 2)
    with pytest.raises(ValueError, match="a value of 7 numbers .* n_coordinates=6"):
        mechanism.release(np.ones(7))


@by_mechanism
def test_seeds_reproduce_and_nothing_else_does(kind, seed):
    mechanism = MECHANISMS[kind][0](n_coordinates=4)
    value = [1.0, -2.0, 0.3, 4.0]
    first = mechanism.release(value, seed)
    assert (first == mechanism.release(value, seed)).all()
    assert (first == pickle.loads(pickle.dumps(mechanism)).release(value, seed)).all()
    assert (first != mechanism.release(value, seed + 1)).any()
    assert (mechanism.release(value) != mechanism.release(value)).any()
    for state in (make_source(seed), np.random.RandomState(seed % 2**32)):
        assert (mechanism.release(value, state) != mechanism.release(value, state)).any()
    with pytest.raises(ValueError, match="random_state must be None"):
        mechanism.release(value, "seed")


@by_mechanism
def test_the_grid_is_public(kind):
    """It does not depend on what was released."""
    mechanism = MECHANISMS[kind][0](n_coordinates=2)
    before = pickle.dumps(mechanism)
    mechanism.release([1e9, -3.0])
    assert pickle.dumps(mechanism) == before


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None, True, [1.0], 10**400])
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match="epsilon must be a finite number above 0"):
        LaplaceMechanism(bad, 1.0)
    with pytest.raises(ValueError, match="epsilon must be a finite number above 0"):
        GaussianMechanism(bad, 1e-5, 1.0)
    with pytest.raises(ValueError, match="delta must be"):
        GaussianMechanism(1.0, bad, 1.0)
    for make in (make_laplace, make_gaussian):
        with pytest.raises(ValueError, match="sensitivity must be a finite number above 0"):
            make(bad)
        if bad is not None:
            with pytest.raises(ValueError, match="granularity must be a finite number above 0"):
                make(granularity=bad)


@by_mechanism
@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", None, True])
def test_numbers_of_coordinates_are_checked(kind, bad):
    with pytest.raises(ValueError, match="n_coordinates must be an integer of at least 1"):
        MECHANISMS[kind][0](n_coordinates=bad)


@by_mechanism
def test_grids_that_cannot_be_are_refused(kind):
    make = MECHANISMS[kind][0]
    with pytest.raises(ValueError, match="granularity must be a power of two, got 0.1"):
        make(granularity=0.1)
    with pytest.raises(ValueError, match="more than .* points of a grid of width 2.8.*e-14"):
        make(granularity=2.0**-45)
    with pytest.raises(ValueError, match="more than .* points of a grid"):
        LaplaceMechanism(1e-13, 1.0)
    with pytest.raises(ValueError, match="is out of the range of double precision"):
        make(granularity=2.0**-1001, sensitivity=1e-300)
    for sensitivity in (1e-300, 1e300, 5e-324):
        with pytest.raises(ValueError, match="is out of the range of double precision"):
            make(sensitivity)
    with pytest.raises(ValueError, match="is out of the range of double precision"):
        LaplaceMechanism(5e-324, 1.0, granularity=1.0)
    with pytest.raises(ValueError, match="delta must be above 0 and below 1"):
        GaussianMechanism(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "kind",
    [
        int,
        np.int64,
        np.uint64,
        lambda number: np.array(number, object),
        lambda number: [number, 0.5],
        lambda number: (number, np.float32(0.5)),
        lambda number: [[number], [-1]],
    ],
)
def test_integers_that_are_neighbours_stay_so_however_large_they_are(kind):
    """Beyond 2**53 doubles are further apart than integers, also beside others in a list."""
    mechanism = LaplaceMechanism(1.0, 1.0, n_coordinates=2, granularity=1.0)
    for large in (2**53 - 1, 2**53, 2**53 + 1, 2**59 + 64, 2**63 - 2):
        first, second = (mechanism.release(kind(large + more), 0) for more in (0, 1))
        assert np.abs(np.subtract(first, second)).max() <= 1


def test_integers_beyond_2_to_the_53_are_moved_there():
    mechanism = LaplaceMechanism(1.0, 1.0, granularity=1.0)
    noise = mechanism.release(0, 0)
    for large in (2**53 - 1, 2**53, 2**53 + 1, 2**59 + 64):
        assert mechanism.release(large, 0) == min(large, 2**53) + noise


@pytest.mark.parametrize(
    "value", ["1", [1.0, "x"], 1j, [1.0, 1j], np.array(["1"]), [None, np.complex64(1j)]]
)
def test_what_is_no_real_number_is_refused(value):
    with pytest.raises(TypeError, match="must be real numbers"):
        LaplaceMechanism(1.0, 1.0, n_coordinates=2).release(value)


@by_mechanism
def test_values_on_the_grid_need_no_allowance_for_rounding(kind):
    make = MECHANISMS[kind][0]
    assert make(2.0, n_coordinates=1000, granularity=1.0).grid_sensitivity > 30.0
    for granularity in (1.0, 0.25):
        mechanism = make(2.0, n_coordinates=1000, granularity=granularity, on_grid=True)
        assert mechanism.grid_sensitivity == 2.0 / granularity
    with pytest.raises(ValueError, match="on_grid=True.* need its granularity"):
        make(2.0, on_grid=True)
